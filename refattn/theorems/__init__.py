"""What the papers claim, and what this library promises, as statements that are checked at random sizes in float64.

A theorem is a function from a random generator to the largest error found; its statement, conditions and source stand
beside it.  `refattn verify` runs all of them, and behind them every gradient against its derivative; tutorials and
tests only call them.  Errors are relative, max |a - b| / max |b|; a claim of exactness has tolerance 0.
"""

import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .. import cases, check
from . import hypernetwork

# isort: split
from . import variants

# isort: split
from . import experts

# isort: split
from . import compositional

# isort: split
from . import regular

# isort: split
from . import automata
from .statement import THEOREMS, Theorem, gap, gaps, theorem

__all__ = ["THEOREMS", "Result", "Theorem", "automata", "compositional", "every", "experts", "gap", "gaps",
           "hypernetwork", "regular", "theorem", "variants", "verify"]


class Result(NamedTuple):
    name: str
    statement: str
    source: str
    error: float
    tolerance: float
    ok: bool
    seconds: float


def _gradient(case) -> Theorem:
    statement = "the backward is the derivative of the forward, by the complex step"
    return Theorem(f"gradient of {case.name}", statement, case.source or "this library",
                   check.tolerance(case), lambda rng: check.CHECKS["derivative"](case, rng))


def every() -> dict[str, Theorem]:
    """Name -> Theorem: the statements above, then one gradient check for every case."""
    return THEOREMS | {t.name: t for t in map(_gradient, cases.CASES)}


def verify(names=(), seed: int = 0) -> Iterator[Result]:
    """Results one by one, each from its own random numbers.  Raises ValueError for a name that matches no theorem."""
    table = every()
    chosen = [t for t in table.values() if not names or any(n in t.name for n in names)]
    for name in names:
        if not any(name in t for t in table):
            raise ValueError(f"no theorem is called {name!r}; `refattn list` names them all")
    for number, t in enumerate(chosen):
        start = time.perf_counter()
        error = float(t.error(np.random.default_rng((seed, number))))
        seconds = time.perf_counter() - start
        yield Result(t.name, t.statement, t.source, error, t.tolerance, error <= t.tolerance, seconds)
