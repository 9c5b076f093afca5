"""What the checks have in common: running a case, copying what it returned, cutting arrays by letters."""

from typing import Any, NamedTuple

import numpy as np

from ..xp import to_host
from .derivatives import as_tuple, is_float, random_like


class Run(NamedTuple):
    """One forward and one backward, on the case's array module."""
    inputs: dict
    y: tuple
    saved: Any
    dy: Any
    gradients: dict | None


def mapped(f, x):
    """f of an array, or of every array in tuples and dicts; None stays None."""
    if isinstance(x, dict):
        return {name: mapped(f, value) for name, value in x.items()}
    if isinstance(x, tuple):
        return tuple(mapped(f, value) for value in x)
    return None if x is None else f(x)


def moved(case, x):
    """Host arrays (None, or dicts and tuples of them) on the case's array module."""
    return mapped((lambda x: x) if case.xp is np else case.xp.asarray, x)


def cast(inputs, dtype):
    """The inputs with floats in another dtype."""
    return {name: x.astype(dtype) if is_float(x) else x for name, x in inputs.items()}


def passes(case, inputs, rng=None, dy=None) -> Run:
    """Forward and, if there is one, backward, from host inputs; the host array or tuple dy is random unless given."""
    inputs = moved(case, inputs)
    y, saved = case.forward(inputs)
    if case.backward is None:
        return Run(inputs, as_tuple(y), saved, None, None)
    dy = random_like(y, rng) if dy is None else moved(case, dy)
    return Run(inputs, as_tuple(y), saved, dy, case.backward(saved, dy))


def arrays(tree) -> list:
    """Every array of nested tuples, lists, dicts and objects."""
    if hasattr(tree, "dtype"):
        return [tree]
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, tuple | list):
        tree = vars(tree).values() if hasattr(tree, "__dict__") else ()
    return [x for branch in tree for x in arrays(branch)]


def copied(tree) -> list:
    """The same as host copies."""
    return [np.array(to_host(x)) for x in arrays(tree)]


def hosted(x):
    """Arrays, or tuples and dicts of them, on the host."""
    return mapped(lambda x: np.asarray(to_host(x)), x)


def axes_of(letters, letter, x) -> list[int]:
    """The axes of x called `letter`, x aligned with its letters at the right; stretched axes (size 1) do not count."""
    axes = range(-min(len(letters), x.ndim), 0)
    return [axis for axis in axes if letters[axis] == letter and x.shape[axis] != 1]


def taken(letters, letter, x, index):
    """x with `index` taken along every axis of that letter; a tuple of letters goes with a tuple of arrays."""
    if isinstance(x, tuple):
        names = letters if isinstance(letters, tuple) else (letters,)
        return tuple(taken(n, letter, part, index) for n, part in zip(names, x, strict=True))
    for axis in axes_of(letters, letter, x) if x is not None else ():
        x = x.take(index, axis=axis)
    return x


def taken_all(case, letter, named_arrays: dict, index):
    """`taken` for a dict of inputs or gradients."""
    return {name: taken(case.axes.get(name, ""), letter, x, index) for name, x in named_arrays.items()}


def length(case, letter, inputs) -> int:
    """The size of a letter, read from the inputs."""
    return max((x.shape[axis] for name, x in inputs.items() if x is not None
                for axis in axes_of(case.axes.get(name, ""), letter, x)), default=1)
