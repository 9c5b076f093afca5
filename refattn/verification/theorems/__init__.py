"""What the papers claim, and what this library promises, as statements that are checked at random sizes in float64.

A theorem is a function from a random generator to the largest error found; its statement, conditions and source stand
beside it.  `refattn verify` runs all of them, and behind them every function against its definition in loops, every
gradient against its derivative; tutorials and tests only call them.  Errors are relative, max |a - b| / max |b|; a
claim of exactness has tolerance 0.
"""

import time
from collections.abc import Iterator
from importlib import import_module
from typing import NamedTuple

import numpy as np

from ...refusals import guess
from .. import cases, checks
from .statement import THEOREMS, Theorem, deviation, deviations, theorem

__all__ = ["THEOREMS", "Result", "Theorem", "chosen", "every", "deviation", "deviations", "theorem", "verify"]

MODULES = "hypernetwork", "variants", "experts", "compositional", "regular", "automata", "language"   # in this order
for _name in MODULES:
    import_module(f".{_name}", __name__)


class Result(NamedTuple):
    """What checking a theorem has found."""
    name: str
    statement: str
    source: str
    error: float               # infinite where the check raised
    tolerance: float
    ok: bool
    seconds: float
    raised: str = ""           # first line of the exception
    where: str = ""            # the entry of the largest error, where a check that says it fails


def _of_case(case, check_name: str, name: str, statement: str) -> Theorem:
    return Theorem(f"{name} of {case.name}", statement, case.source or "this library",
                   checks.tolerance(case, check_name), lambda rng: checks.CHECKS[check_name](case, rng))


def every() -> dict[str, Theorem]:
    """Name -> Theorem: the statements above, then the definition of every case, and the gradient where there is one."""
    rows = [_of_case(case, "loops", "definition", "the output is that of the definition, written as loops")
            for case in cases.CASES + cases.ROUTINES]
    rows += [_of_case(case, "derivative", "gradient", "the backward is the derivative of the forward, by "
                      + ("the complex step" if case.analytic else "finite differences")) for case in cases.CASES]
    return THEOREMS | {t.name: t for t in rows}


def chosen(names=()) -> list[Theorem]:
    """Those with one of the names, or the one name, in their own; all without any.

    Raises ValueError for a name that matches none.
    """
    table, names = every(), [names] if isinstance(names, str) else names
    for name in names:
        if not (name and any(name in t for t in table)):
            rows = dict.fromkeys(t.removeprefix("definition of ").removeprefix("gradient of ") for t in table)
            raise ValueError(f"no theorem is called {name!r}{guess(name, rows)} allowed: parts of names of theorems "
                             f"and rows (attention/hyla, ...), which `refattn list` prints, or of what `refattn "
                             f"verify` prints for a row ('gradient of attention/hyla')")
    return [t for t in table.values() if not names or any(name in t.name for name in names)]


def verify(names=(), seed: int = 0) -> Iterator[Result]:
    """Results one by one; what is drawn depends on seed and name alone, so that one theorem repeats its instance.

    A check that raises, or returns no number, has failed.  Raises ValueError as `chosen` does.
    """
    for t in chosen(names):
        start, raised, where = time.perf_counter(), "", ""
        try:
            found = t.error(np.random.default_rng((seed, *t.name.encode())))
            error, where = float(found), "" if found <= t.tolerance else getattr(found, "where", "")
        except Exception as caught:
            error, raised = np.inf, f"{type(caught).__name__}: {caught}".splitlines()[0]
        seconds = time.perf_counter() - start
        yield Result(t.name, t.statement, t.source, error, t.tolerance, error <= t.tolerance, seconds, raised, where)
