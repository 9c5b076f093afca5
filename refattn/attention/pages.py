"""Every page as one table: the variants of multi-head attention, and those that have a layer of their own.

    forward(q, k, v, *extras, bias, keep, dropout) -> o, Saved        backward(saved, do) -> dq, dk, dv, dbias, *dextras

`do` has o's dtype.  A page does not check it: where they differ, gradients may have either.  Every layer checks it.
"""

from functools import partial

from ..refusals import unknown
from . import VARIANTS, Variant, variant
from .compositional import compositional, compositional_backward
from .sliding_dilated import sliding_dilated, sliding_dilated_backward
from .value_scores import SCORINGS

__all__ = ["PAGES", "page"]

LOGITS = {"dot": "selector.(t wr) / sqrt(c)", "linear": "selector.wc + t.wr + br",
          "nonlinear": "relu(selector wc + t wr + br).w2 + b2"}
OWN_EQUATIONS = {"dot": "eq. 7-13", "linear": "eq. 7-10, 13, B.7", "nonlinear": "eq. 7-10, 13, released code"}
BEFORE = {"mask": "there is no key", "pad": "pad_k and pad_v stand"}


def _compositional(name: str, scoring: str) -> Variant:
    names, axes = SCORINGS[scoring].names, SCORINGS[scoring].axes
    formula = ("o[b,q,s] = sum_r g_sr t_sr with t_sr = sum_k softmax_k(q.k / sqrt(d) + bias) dropout v_r and "
               f"g = softmax_r({LOGITS[scoring]})")
    return Variant(name, partial(compositional, scoring=scoring), compositional_backward,
                   OWN_EQUATIONS[scoring], formula, "compositional.py", "Mittal et al. 2022",
                   letters={"v": "bkre"}, parts=("value_scores.py",),
                   extras={"selector": "bqhc", **dict(zip(names, axes, strict=True))})


def _sliding_dilated(name: str, out_of_range: str, **pads) -> Variant:
    formula = ("o[b,q,h] = sum_w a_w dropout_w v[n], a = softmax_w(q.k[n] / sqrt(d) + offset_bias[h,w] + bias), n = p "
               "- 2 w and p = q + the number of keys - the number of queries; where n < 0, " + BEFORE[out_of_range])
    return Variant(name, partial(sliding_dilated, dilation=2, out_of_range=out_of_range), sliding_dilated_backward,
                   "eq. 1", formula, "sliding_dilated.py", "Chi et al. 2023", parts=("windows.py",),
                   letters=dict.fromkeys(("bias", "keep", "dropout"), "bhqw"), extras={"offset_bias": "hw", **pads})


PAGES: dict[str, Variant] = VARIANTS | {row.name: row for row in (
    _compositional("compositional", "dot"),
    _compositional("compositional_linear", "linear"),
    _compositional("compositional_nonlinear", "nonlinear"),
    _sliding_dilated("sliding_dilated", "mask"),            # both at dilation 2, the queries at the last positions
    _sliding_dilated("sliding_dilated_pad", "pad", pad_k="hd", pad_v="he"),
)}


def page(name, among=PAGES) -> Variant:
    """The row of a name or of Knobs.  Raises ValueError listing the names."""
    if isinstance(name, str) and name not in among:
        raise ValueError(unknown("variant", name, among))
    return among[name] if isinstance(name, str) else variant(name)
