"""Linear attention: softmax attention with sigma = identity.

    a[h, q, k] = q_hq . k_hk / sqrt(d) + bias                                                                 eq. (1)
    o[h, q]    = sum_k a[h, q, k] v[h, k]                                                                     eq. (3)

Source: H, eq. (1)-(3), sigma = Id.  Differs: `bias`, `keep` and `dropout`, as in H's code; no feature map and no
normaliser (Katharopoulos et al. 2020 have both).
The latent code, which H is about, is stored: T x T numbers for each head.  Without a bias the order of the products
is free, q (sum_k k v^T); `linear_state` has it so between pieces of a sequence: with pieces of one length its time is
linear in T, and its state of fixed size.
"""

from typing import Any, NamedTuple

from .. import ops
from ..contract import contract
from .shapes import check_inputs

__all__ = ["Saved", "linear", "linear_backward"]


class Saved(NamedTuple):
    q: Any
    k: Any
    v: Any
    bias: Any
    keep: Any
    dropout: Any
    code: Any                  # (b, h, q, k), before dropout


def linear(q, k, v, *, bias=None, keep=None, dropout=None):
    """o[b, q, h, e] = sum_k (q.k / sqrt(d) + bias) v[b, k, h, e].  Returns o and Saved.

    Shapes
    ------
    q       : b q h d
    k       : b k h d
    v       : b k h e
    bias    : b h q k      (finite, broadcasts)
    keep    : b h q k      (bool, broadcasts; False = weight 0)
    dropout : b h q k      (broadcasts; already divided by 1 - p)
    returns : b q h e

    Raises ValueError or TypeError for shapes, dtypes or devices that do not fit together.
    """
    check_inputs(q, k, v, bias, keep, dropout)
    s = ops.scores(q, k, bias)                                  # (1) eq. 1
    a = ops.dropped_to_zero(s, keep)                            # (2) eq. 1, sigma = Id
    c = ops.drop(a, dropout)                                    # (3)
    o = contract("bhqk,bkhe->bqhe", c, v)                       # (4) eq. 3
    return o, Saved(q, k, v, bias, keep, dropout, a)


def linear_backward(saved, do):
    """dq, dk, dv, dbias from do (b, q, h, e); each in the shape of its input, dbias None without bias."""
    q, k, v, bias, keep, dropout, a = saved
    c = ops.drop(a, dropout)                                    # (3) again
    dc = contract("bqhe,bkhe->bhqk", do, v, order=a)            # (4)
    dv = contract("bhqk,bqhe->bkhe", c, do)                     # (4)
    da = ops.drop(dc, dropout, out=dc)                          # (3)
    ds = ops.dropped_to_zero(da, keep)                          # (2)
    dq, dk, dbias = ops.scores_backward(q, k, bias, ds)         # (1)
    return dq, dk, dv, dbias
