"""Sigmoid attention: every pair has a weight between 0 and 1 of its own, and no key takes weight from another.

    a[h, q, k] = 1 / (1 + exp(-s)),  s = q_hq . k_hk / sqrt(d) + bias                                    section 2
    o[h, q]    = sum_k a[h, q, k] v[h, k]                                                                section 2

Source: Ramapuram et al. 2024, section 2.  Differs: `bias` is an array, 0 unless given, where the paper has one number,
-log of the number of keys; `keep` and `dropout` as in linear attention.
Symbols: a = weights, the latent code; r = 1 - a; n = exp(-|s|), which cannot overflow and keeps the digits of small a
and r.
"""

from typing import Any, NamedTuple

from .. import ops
from ..contract import contract
from ..xp import array_module
from .shapes import check_inputs

__all__ = ["sigmoid", "sigmoid_backward", "Saved"]


class Saved(NamedTuple):
    """What the backward needs, and the weights."""
    q: Any
    k: Any
    v: Any
    bias: Any
    keep: Any
    dropout: Any
    code: Any                  # (b, h, q, k), before dropout; 0 where not kept
    rest: Any                  # (b, h, q, k), r


def sigmoid(q, k, v, *, bias=None, keep=None, dropout=None):
    """o[b, q, h, e] = sum_k v[b, k, h, e] / (1 + exp(-q.k / sqrt(d) - bias)).  Returns o and Saved.

    Shapes
    ------
    q       : b q h d
    k       : b k h d
    v       : b k h e
    bias    : b h q k      (finite, broadcasts)
    keep    : b h q k      (bool, broadcasts; False = weight 0, where a score of 0 would give 1/2)
    dropout : b h q k      (broadcasts; already divided by 1 - p)
    returns : b q h e

    Raises ValueError or TypeError for shapes, dtypes or devices that do not fit together.
    """
    check_inputs(q, k, v, bias, keep, dropout)
    xp = array_module(q)
    s = ops.scores(q, k, bias)                                  # (1) section 2
    n = xp.exp(xp.where(s.real > 0, -s, s))                     # (2) section 2, sigma
    a = xp.where(s.real > 0, 1, n) / (1 + n)                    # (2)
    r = xp.where(s.real > 0, n, 1) / (1 + n)                    # (2)
    a = ops.dropped_to_zero(a, keep)                            # (3)
    c = ops.drop(a, dropout)                                    # (4)
    o = contract("bhqk,bkhe->bqhe", c, v)                       # (5) section 2
    return o, Saved(q, k, v, bias, keep, dropout, a, r)


def sigmoid_backward(saved, do):
    """dq, dk, dv, dbias from do (b, q, h, e); each in the shape of its input, dbias None without bias."""
    q, k, v, bias, keep, dropout, a, r = saved
    c = ops.drop(a, dropout)                                    # (4) again
    dc = contract("bqhe,bkhe->bhqk", do, v)                     # (5)
    dv = contract("bhqk,bqhe->bkhe", c, do)                     # (5)
    da = ops.drop(dc, dropout)                                  # (4)
    da = ops.dropped_to_zero(da, keep)                          # (3)
    ds = da * a * r                                             # (2)
    dq, dk, dbias = ops.scores_backward(q, k, bias, ds)         # (1)
    return dq, dk, dv, dbias
