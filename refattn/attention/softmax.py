"""Softmax attention.

    a[h, q, k] = softmax over k of (q_hq . k_hk / sqrt(d) + bias)                                            eq. (1)
    o[h, q]    = sum_k a[h, q, k] v[h, k]                                                                     eq. (3)

Source: Vaswani et al. 2017, section 3.2; H, eq. (1)-(3).  Differs: `bias`, `keep` and `dropout`, as in H's code.
Symbols: a = the attention scores A of H after sigma, its latent code; d = D^head.
"""

from typing import Any, NamedTuple

from .. import ops
from ..contract import contract
from .shapes import check_inputs

__all__ = ["Saved", "softmax", "softmax_backward"]


class Saved(NamedTuple):
    q: Any
    k: Any
    v: Any
    bias: Any
    dropout: Any
    code: Any                  # (b, h, q, k), before dropout


def softmax(q, k, v, *, bias=None, keep=None, dropout=None):
    """o[b, q, h, e] = sum_k softmax_k(q.k / sqrt(d) + bias) v[b, k, h, e].  Returns o and Saved.

    Shapes
    ------
    q       : b q h d
    k       : b k h d
    v       : b k h e
    bias    : b h q k      (finite, broadcasts)
    keep    : b h q k      (bool, broadcasts; False = not attended to)
    dropout : b h q k      (broadcasts; already divided by 1 - p)
    returns : b q h e

    A query that keeps nothing gets exactly zero.  Raises ValueError or TypeError for shapes, dtypes or devices that do
    not fit together.
    """
    check_inputs(q, k, v, bias, keep, dropout)
    s = ops.scores(q, k, bias, over="k")                        # (1) eq. 1
    a = ops.softmax(s, keep, out=s)                             # (2) eq. 1, sigma
    c = ops.drop(a, dropout)                                    # (3)
    o = contract("bhqk,bkhe->bqhe", c, v)                       # (4) eq. 3
    return o, Saved(q, k, v, bias, dropout, a)


def softmax_backward(saved, do):
    """dq, dk, dv, dbias from do (b, q, h, e); each in the shape of its input, dbias None without bias."""
    q, k, v, bias, dropout, a = saved
    c = ops.drop(a, dropout)                                    # (3) again
    dc = contract("bqhe,bkhe->bhqk", do, v, order=a)            # (4)
    dv = contract("bhqk,bqhe->bkhe", c, do)                     # (4)
    da = ops.drop(dc, dropout, out=dc)                          # (3)
    ds = ops.softmax_backward(a, da, out=da)                    # (2)
    dq, dk, dbias = ops.scores_backward(q, k, bias, ds)         # (1)
    return dq, dk, dv, dbias
