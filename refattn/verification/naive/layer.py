"""Multi-head attention: the projections by loops, around any of the definitions."""

from .arguments import exact
from .ops import linear
from .softmax import softmax


def affine(p, x, name=""):
    """y = x w + b with the parameters p.w and p.b, or, of the name "q", p.wq and p.bq; an absent bias is 0."""
    return linear(x, getattr(p, f"w{name}"), getattr(p, f"b{name}", None))


def output_map(p, o):
    """y_i = bo + sum_h,e o_ihe wo_he with p.wo and p.bo: the heads side by side, then one map.

    Shapes: o (b, q, h, e), wo (h, e, m), bo (m) or none, returns (b, q, m).
    """
    wo = exact(p.wo)
    return linear(o.reshape(*o.shape[:2], -1), wo.reshape(-1, wo.shape[2]), getattr(p, "bo", None))


def multi_head(p, x, *, page=softmax, extras=None, context=None, bias=None, keep=None, dropout=None,
               position=None):
    """y_i = bo + sum_h,e o_ihe wo_he with o the attention of q = x wq + bq to k, v = context wk + bk, context wv + bv.

    Source: Attention as a Hypernetwork, eq. 2 and 6, and the authors' code for the biases.

    page                : a function of q, k and v, such as `softmax.softmax` or `hyla.hyla`
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
    q, k, v = affine(p, x, "q"), affine(p, context, "k"), affine(p, context, "v")
    if position is not None:
        q, k = position(q), position(k)
    further = {}
    for name, axes in (extras or {}).items():
        of = {"bq": x, "bk": context}.get(axes[:2])
        further[name] = getattr(p, name) if of is None else affine(p, of, name)
    return output_map(p, page(q, k, v, **further, bias=bias, keep=keep, dropout=dropout))
