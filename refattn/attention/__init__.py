"""Attention variants: one table, one row each.

A row is all that a new variant needs besides its page and its loops: layer, checks, theorems, tiles, reference vectors,
recipes and the command line read this table.  `CONTRIBUTING.md` says how a row is written.
"""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import NamedTuple

from .. import refusals
from .ablations import Knobs, ablation, ablation_backward

__all__ = ["AXES", "VARIANTS", "Knobs", "Variant", "of_page", "variant"]

AXES = {"q": "bqhd", "k": "bkhd", "v": "bkhe", "bias": "bhqk", "keep": "bhqk", "dropout": "bhqk", "output": "bqhe"}


class Variant(NamedTuple):
    """A row: a page, and what everything else has to know of it."""
    name: str
    forward: Callable          # (q, k, v, *extras, bias, keep, dropout) -> o, Saved
    backward: Callable         # (saved, do) -> dq, dk, dv, dbias, *dextras
    equation: str              # where the paper has it
    formula: str               # it, in one line
    file: str                  # page below refattn/attention; the loops: same name below refattn/verification/naive
    paper: str = "Schug et al. 2025"
    row: str = ""              # its name in table A1 of H
    knobs: Knobs | None = None                      # what it is in table A1
    extras: Mapping[str, str] = MappingProxyType({})        # further arrays -> axes
    tiles: str = ""            # how tiles of keys are put together: "sum", "softmax", or not at all
    letters: Mapping[str, str] = MappingProxyType({})       # input -> its axes, where they are not those of AXES
    parts: tuple[str, ...] = ()     # other files that the page is made of

    @property
    def axes(self) -> dict[str, str]:
        """{input or "output": its axes}."""
        return AXES | {**self.letters, **self.extras}

    def projected(self, letter: str) -> list[str]:
        """The extras that are projections, as their axes say: of the queries' x for "q", of the keys' for "k"."""
        return [name for name, axes in self.extras.items() if axes.startswith(f"b{letter}")]

    def parameters(self) -> list[str]:
        """The extras that are parameters: they have no batch axis."""
        return [name for name, axes in self.extras.items() if not axes.startswith("b")]


def of_page(name: str, equation: str, formula: str, **facts) -> Variant:
    """The row of refattn/attention/NAME.py, whose functions are NAME and NAME_backward; `facts` are further fields."""
    module = import_module(f".{name}", __name__)
    return Variant(name, getattr(module, name), getattr(module, f"{name}_backward"), equation, formula, f"{name}.py",
                   **facts)


def _knobs(name: str, row: str, *settings) -> Variant:
    knobs = Knobs(*settings)
    equation, values = {1: ("eq. 3", "phi(v_h)"), 2: ("eq. 6", "phi(sum_j a_j v_j)"),
                        3: ("eq. 10", "phi(sum_j a_j phi(sum_i a_i v_i) wv2_j)")}[knobs.code_uses]
    formula = (f"o[b,q,h] = sum_k a_h {values} with a = {knobs.normaliser}(q.k / sqrt(d) + bias) x dropout and phi = "
               f"{knobs.phi}; inside phi, a and v are those of the pair q, k")
    return Variant(name, partial(ablation, knobs=knobs), ablation_backward, equation, formula, "ablations.py", row=row,
                   knobs=knobs, extras={"wv2": "hee"} if knobs.code_uses == 3 else {},
                   tiles="" if "softmax" in knobs.normaliser else "sum")


class _Variants(dict):
    """A table of names that says what is near one that it does not have."""

    def __missing__(self, name):
        raise KeyError(unknown(name))


VARIANTS: dict[str, Variant] = _Variants({row.name: row for row in (
    of_page("softmax", "eq. 1-3", "o[b,q,h] = sum_k a_h v_h with a = softmax_k(q.k / sqrt(d) + bias) x dropout",
            row="Softmax attention", knobs=Knobs("softmax", 1, "identity"), tiles="softmax"),
    of_page("linear", "eq. 1-3", "o[b,q,h] = sum_k a_h v_h with a = (q.k / sqrt(d) + bias) x dropout",
            row="Linear attention", knobs=Knobs("none", 1, "identity"), tiles="sum"),
    of_page("hyla", "eq. 6-7",
            "o[b,q,h] = sum_k a_h relu(sum_j a_j v_j) with a = rms_head(q.k / sqrt(d) + bias) x dropout, a and v being "
            "those of the pair q, k", row="HYLA", knobs=Knobs("rms_head", 2, "relu"), tiles="sum"),
    _knobs("linear_rms_head", "Linear attention + RMSHead", "rms_head", 1, "identity"),
    _knobs("linear_rms_head_relu_values", "Linear attention + RMSHead + nonlinear value", "rms_head", 1, "relu"),
    _knobs("hyla_no_rms_head", "HYLA - RMSHead", "none", 2, "relu"),
    _knobs("hyla_no_nonlinearity", "HYLA - nonlinearity", "rms_head", 2, "identity"),
    _knobs("hyla_no_nonlinearity_no_rms_head", "HYLA - nonlinearity - RMSHead", "none", 2, "identity"),
    _knobs("hyla_softmax_for_rms_head", "HYLA - RMSHead + softmax", "softmax", 2, "relu"),
    _knobs("hyla_deep", "HYLA + deep value network", "rms_head", 3, "relu"),
    _knobs("hyla_and_softmax", "HYLA + softmax", "softmax_rms_head", 2, "relu"),
    _knobs("hyla_and_softmax_reversed", "– (ours: HYLA + softmax in the other order)", "rms_head_softmax", 2, "relu"),
)})


def unknown(name) -> str:
    """The words of an error about a name that is none of the table's."""
    for page in "compositional", "sliding_dilated":
        if str(name).startswith(page):
            return f"variant is {name!r}, but its layer is in refattn.attention.{page}; allowed: {', '.join(VARIANTS)}"
    return refusals.unknown("variant", name, VARIANTS)


def variant(name) -> Variant:
    """The row of a name or of Knobs.  Raises ValueError listing the names."""
    if isinstance(name, Knobs):
        return _knobs("-".join(map(str, name.check())), "", *name)
    if not isinstance(name, str) or name not in VARIANTS:
        raise ValueError(unknown(name))
    return VARIANTS[name]
