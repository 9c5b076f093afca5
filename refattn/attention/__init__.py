"""Attention variants: one table, one row each.

A row is all that a new variant needs besides its page and its naive loop: the layer, the checks, the theorems, the
reference vectors and the command line read this table.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from . import ablations, hyla, linear, softmax
from .ablations import Knobs


class Variant(NamedTuple):
    forward: Callable          # (q, k, v, *extras, bias, keep, dropout) -> o, Saved
    backward: Callable         # (saved, do) -> dq, dk, dv, dbias, *dextras
    knobs: Knobs | None        # what the variant is in table A1
    equation: str
    file: str                  # page below refattn/attention
    row: str = ""              # the row's name in table A1 of H
    extras: tuple[str, ...] = ()
    letters: Mapping = MappingProxyType({})         # input -> axes where multi-head attention has others
    parts: tuple[str, ...] = ()     # other files that the page is made of
    paper: str = "Schug et al. 2025"


def _knobs(normaliser: str, code_uses: int, phi: str, row: str) -> Variant:
    knobs = Knobs(normaliser, code_uses, phi)
    return Variant(partial(ablations.ablation, knobs=knobs), ablations.ablation_backward, knobs,
                   {1: "eq. 3", 2: "eq. 6", 3: "eq. 10"}[code_uses], "ablations.py", row,
                   ("wv2",) if code_uses == 3 else ())


VARIANTS: dict[str, Variant] = {
    "softmax": Variant(softmax.softmax, softmax.softmax_backward, Knobs("softmax", 1, "identity"), "eq. 1-3",
                       "softmax.py", "Softmax attention"),
    "linear": Variant(linear.linear, linear.linear_backward, Knobs("none", 1, "identity"), "eq. 1-3", "linear.py",
                      "Linear attention"),
    "hyla": Variant(hyla.hyla, hyla.hyla_backward, Knobs("rms_head", 2, "relu"), "eq. 6-7", "hyla.py", "HYLA"),
    "linear_rms_head": _knobs("rms_head", 1, "identity", "Linear + RMSHead"),
    "linear_rms_head_relu_values": _knobs("rms_head", 1, "relu", "Linear + RMSHead + nonlinear value"),
    "hyla_no_rms_head": _knobs("none", 2, "relu", "HYLA - RMSHead"),
    "hyla_no_nonlinearity": _knobs("rms_head", 2, "identity", "HYLA - nonlinearity"),
    "hyla_no_nonlinearity_no_rms_head": _knobs("none", 2, "identity", "HYLA - nonlinearity - RMSHead"),
    "hyla_softmax_for_rms_head": _knobs("softmax", 2, "relu", "HYLA - RMSHead + softmax"),
    "hyla_deep": _knobs("rms_head", 3, "relu", "HYLA + deep value network"),
    "hyla_and_softmax": _knobs("softmax_rms_head", 2, "relu", "HYLA + softmax"),
    "hyla_and_softmax_reversed": _knobs("rms_head_softmax", 2, "relu", "HYLA + softmax (the other order)"),
}


def variant(name) -> Variant:
    """The row of a name or of Knobs.  Raises ValueError listing the names."""
    if isinstance(name, Knobs):
        return _knobs(*name.check(), "")
    if name not in VARIANTS:
        raise ValueError(f"attention {name!r} is unknown; allowed: {', '.join(VARIANTS)}")
    return VARIANTS[name]
