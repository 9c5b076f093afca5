"""Every page as one table: the variants of multi-head attention, and those that take more than q, k and v.

    forward(q, k, v, *extras, bias, keep, dropout) -> o, Saved        backward(saved, do) -> dq, dk, dv, dbias, *dextras
"""

from functools import partial

from . import VARIANTS, Variant, variant
from .compositional import compositional, compositional_backward
from .sliding_dilated import sliding_dilated, sliding_dilated_backward
from .value_scores import SCORINGS


def _compositional(scoring: str) -> Variant:
    names, axes = SCORINGS[scoring].names, SCORINGS[scoring].axes
    letters = {"v": "bkre", "selector": "bqhc", **dict(zip(names, axes, strict=True))}
    return Variant(partial(compositional, scoring=scoring), compositional_backward, None, "eq. 7-13",
                   "compositional.py", extras=("selector", *names), letters=letters, parts=("value_scores.py",),
                   paper="Mittal et al. 2022")


def _sliding_dilated(out_of_range: str, **pads) -> Variant:
    letters = {"offset_bias": "hw", **pads, **dict.fromkeys(("bias", "keep", "dropout"), "bhqw")}
    return Variant(partial(sliding_dilated, dilation=2, out_of_range=out_of_range), sliding_dilated_backward, None,
                   "eq. 1", "sliding_dilated.py", extras=("offset_bias", *pads), letters=letters, parts=("windows.py",),
                   paper="Chi et al. 2023")


PAGES: dict[str, Variant] = VARIANTS | {
    "compositional": _compositional("dot"),
    "compositional_linear": _compositional("linear"),
    "compositional_nonlinear": _compositional("nonlinear"),
    "sliding_dilated": _sliding_dilated("mask"),            # both at dilation 2, the queries at the last positions
    "sliding_dilated_pad": _sliding_dilated("pad", pad_k="hd", pad_v="he"),
}


def page(name) -> Variant:
    """The row of a name or of Knobs.  Raises ValueError listing the names."""
    if isinstance(name, str) and name not in PAGES:
        raise ValueError(f"attention {name!r} is unknown; allowed: {', '.join(PAGES)}")
    return PAGES[name] if isinstance(name, str) else variant(name)
