"""What a row of the table is, and how rows draw their inputs."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """One function.  Inputs are a dict of float64, integer or boolean arrays; None is an optional one left out.

    An output is an array or a tuple of arrays; its upstream gradient has the same form.
    """
    name: str
    source: str                # paper and equation
    file: str                  # below refattn/
    make: Callable             # rng -> inputs; small, with distinct sizes for distinct axes
    forward: Callable          # inputs -> output, saved
    backward: Callable | None  # saved, doutput -> {input: gradient}; None where there is nothing to differentiate
    naive: Callable            # inputs -> output, by loops in float64
    constants: tuple[str, ...] = ()     # float inputs that are given, not differentiated
    axes: dict = field(default_factory=dict)        # input, and "output" -> letters, aligned at the right
    independent: str = ""      # letters whose entries do not influence one another
    symmetric: str = ""        # letters whose permutation permutes inputs, output and gradients alike
    masked: str = ""           # of a query that keeps nothing: "zero" output, or zero "gradient" only
    analytic: bool = True      # takes complex input
    layer: Any = None          # for layers and models
    views: Callable | None = None       # flat parameters -> them by name
    recomputed: tuple | None = None     # (forward, backward) of the same layer under `recompute`
    xp: Any = np               # the array module that the checks run it on
    settings: str = ""         # what it is called with, or made of, beside its inputs
    read: slice | None = None  # the queries that a layer is asked for, where not all

    def on(self, xp) -> "Case":
        """The same case on another array module."""
        return replace(self, xp=xp)


def told(*of, **settings) -> str:
    """The settings of a row in words: a layer, and what else is fixed."""
    return ", ".join([*map(str, of), *(f"{name}={x!r}" for name, x in settings.items())])


FORMS = ("k", "qk", "1k", "q1", "hqk", "h11", "1hqk", "b11k", "b1qk", "bh1k", "bhq1", "bhqk")


def sizes(rng, letters: str, smallest: int = 2) -> dict[str, int]:
    """Letter -> size, all sizes different, in random order."""
    return dict(zip(letters, map(int, rng.permutation(len(letters)) + smallest), strict=True))


def shape(form: str, size) -> tuple[int, ...]:
    """The shape that a form, letters or 1, stands for."""
    return tuple(1 if x == "1" else size[x] for x in form)


def normal(rng, form: str, size):
    """Standard normal numbers, one axis for each letter."""
    return rng.standard_normal(shape(form, size))


def some_form(rng, size):
    """The shape of one of the forms that broadcast to (b, h, q, k)."""
    return shape(FORMS[rng.integers(len(FORMS))], size)


def some_mask(rng, size):
    """Booleans of such a shape, seven in ten True, but not such that each pair that is kept is kept by one head alone.

    RMSHead of one head is a sign: its gradient is what rounding leaves of a difference.
    """
    while True:
        keep = rng.random(some_form(rng, size)) < 0.7
        if keep.ndim < 3 or keep.shape[-3] == 1 or keep.sum(axis=-3).max() != 1:
            return keep


DRAWS = {                      # standard normal numbers; seven in ten True; 0 or 4/3, a quarter being dropped
    "bias": lambda rng, size: rng.standard_normal(some_form(rng, size)),
    "keep": some_mask,
    "dropout": lambda rng, size: (rng.random(some_form(rng, size)) < 0.75) / 0.75,
}


def maybe(rng, size, names=tuple(DRAWS)):
    """The named ones of bias, keep and dropout, each left out in a third of the draws."""
    return {name: DRAWS[name](rng, size) if rng.random() < 2 / 3 else None for name in names}


def dropped(rng, *shape):
    """Dropout of that shape, a quarter being dropped; None, which is left out, in three of ten draws."""
    return (rng.random(shape) < 0.75) / 0.75 if rng.random() < 0.7 else None


def named(names, gradients) -> dict:
    """{name: gradient}, without those that are None."""
    return {name: g for name, g in zip(names, gradients, strict=False) if g is not None}


def of_page(forward, backward, extras, **fixed):
    """(forward, backward) of a page as functions of a dict of inputs; `extras` are the arrays that follow v."""
    arrays = ("q", "k", "v", *extras)

    def run(inputs):
        options = {name: x for name, x in inputs.items() if name not in arrays}
        return forward(*(inputs[name] for name in arrays), **options, **fixed)

    return run, lambda saved, do: named(("q", "k", "v", "bias", *extras), backward(saved, do))
