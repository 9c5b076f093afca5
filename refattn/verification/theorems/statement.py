"""What a theorem is, how it enters the table, and how errors are measured."""

from collections.abc import Callable
from functools import wraps
from typing import NamedTuple

import numpy as np

from ... import params
from ..cases.case import DRAWS
from ..cases.layers import random_parameters
from ..deviation import deviation as of_arrays
from ..runs_of_cases import arrays


class Theorem(NamedTuple):
    """A statement, and how far a draw of inputs is from it."""
    name: str
    statement: str             # with its conditions
    source: str
    tolerance: float
    error: Callable            # rng -> the largest error


THEOREMS: dict[str, Theorem] = {}


def theorem(statement: str, source: str, tolerance: float = 1e-12, over=None):
    """Enters a function into THEOREMS under its own name; the statement is its docstring.

    With `over` it holds for each of these: the function has it as second argument, and the largest error counts.
    """
    def enter(f):
        f.__doc__ = f"The largest error of: {statement}."

        @wraps(f)
        def largest_of_all(rng):
            found = [f(rng, each) for each in over]
            return found[np.argmax(found)]                  # which still says where it is; NaN is the largest

        error = f if over is None else largest_of_all
        THEOREMS[f.__name__] = Theorem(f.__name__, statement, source, tolerance, error)
        return f
    return enter


def deviation(a, b) -> float:
    """max |a - b| / max |b|, or max |a - b| where b is zero; infinite for NaN or another shape."""
    return of_arrays("the difference", a, b)


def deviations(ours, theirs) -> float:
    """The largest deviation of two lists of arrays; None matches None only."""
    return max(np.inf if (a is None) != (b is None) else 0.0 if a is None else deviation(a, b)
               for a, b in zip(ours, theirs, strict=True))


def largest(*arrays_) -> float:
    """The size of the largest entry of some arrays; NaN where one is NaN, which Python's max may lose."""
    return float(np.max([np.abs(x).max() for x in arrays_]))


def sizes(rng, n: int) -> list[int]:
    """n different sizes from 2 to 7, so that no swapped axis can hide."""
    return [int(x) for x in rng.permutation(np.arange(2, 8))[:n]]


def masked(rng, q, k) -> dict:
    """bias, keep and dropout, each in some form that broadcasts to (b, h, q, k), of q (b, q, h, d), k (b, k, h, d)."""
    size = dict(zip("bqh", q.shape, strict=False)) | {"k": k.shape[1]}
    return {name: draw(rng, size) for name, draw in DRAWS.items()}


def filled(layer, rng):
    """Random parameters of a layer or model, biases and scales too."""
    return params.view(random_parameters(rng, layer), layer.parameters())


def passes(layer, p, x, dy, **options):
    """Output, parameter gradients as views, and input gradient."""
    y, saved = layer.forward(p, x, **options)
    _, grads = params.allocate(layer.parameters(), np.float64)
    dx = layer.backward(p, saved, dy, grads)
    return y, grads, getattr(dx, "x", dx)


def joined(views):
    """All entries of a group of parameters, in layout order."""
    return np.concatenate([x.ravel() for x in arrays(views)])
