"""Multi-head attention: the projections by loops, around any of the definitions."""

from collections.abc import Mapping

import numpy as np

from .ablations import ablation
from .arguments import exact
from .hyla import hyla
from .linear import linear as linear_attention
from .ops import linear
from .softmax import softmax

PAGES = {"softmax": softmax, "linear": linear_attention, "hyla": hyla}


def part(p, name):
    """The parameter or group of parameters called `name` in p, a mapping or an object; None if there is none."""
    return p.get(name) if isinstance(p, Mapping) else getattr(p, name, None)


def attention(variant, q, k, v, **given):
    """The output of one of PAGES, of the knobs (normaliser, code_uses, phi), or of a function like these."""
    if isinstance(variant, tuple):
        normaliser, code_uses, phi = variant
        return ablation(q, k, v, normaliser=normaliser, code_uses=code_uses, phi=phi, **given)
    if isinstance(variant, str) and variant not in PAGES:
        raise ValueError(f"variant is {variant!r}; allowed: {', '.join(PAGES)} or (normaliser, code_uses, phi)")
    return PAGES.get(variant, variant)(q, k, v, **given)


def multi_head(p, x, *, variant="softmax", extras=None, context=None, bias=None, keep=None, dropout=None,
               position=None):
    """y_i = bo + sum_h,e o_ihe wo_he with o the attention of q = x wq + bq to k, v = context wk + bk, context wv + bv.

    Source: Attention as a Hypernetwork, eq. 2 and 6, and the authors' code for the biases.

    variant             : "softmax", "linear", "hyla", the three knobs (normaliser, code_uses, phi) of `ablations`, or a
                          function of q, k and v
    extras              : {further input of that function: its axes}: a projection of x, x wu + bu, where they begin
                          with (b, q), of the context where they begin with (b, k); else the parameter of that name
    position            : None, or a function applied to q and to k, such as `positions.rotary`

    Shapes
    ------
    x, context          : (b, q, m), (b, k, m); x is its own context unless one is given
    bias, keep, dropout : broadcast to (b, h, q, k)
    p                   : wq (m, h, d)  bq (h, d)  wk  bk alike  wv (m, h, e)  bv (h, e)  wo (h, e, m)  bo (m)
                          and what extras need; absent biases are 0
    returns             : (b, q, m)
    """
    context = x if context is None else context
    q = linear(x, part(p, "wq"), part(p, "bq"))
    k = linear(context, part(p, "wk"), part(p, "bk"))
    v = linear(context, part(p, "wv"), part(p, "bv"))
    if position is not None:
        q, k = position(q), position(k)
    further = {}
    for name, axes in (extras or {}).items():
        of = {"bq": x, "bk": context}.get(axes[:2])
        further[name] = part(p, name) if of is None else linear(of, part(p, f"w{name}"), part(p, f"b{name}"))
    o = attention(variant, q, k, v, **further, bias=bias, keep=keep, dropout=dropout)
    wo = exact(part(p, "wo"))
    bo = exact(np.zeros(wo.shape[2]) if part(p, "bo") is None else part(p, "bo"))
    y = np.zeros((*o.shape[:2], wo.shape[2]), dtype=np.result_type(o, wo, bo))
    for b, i, m in np.ndindex(y.shape):
        y[b, i, m] = bo[m]
        for h, e in np.ndindex(wo.shape[:2]):
            y[b, i, m] += o[b, i, h, e] * wo[h, e, m]
    return y
