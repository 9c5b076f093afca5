"""HYLA with one value network for a query in place of one for each query and key: its hidden layer sums over the keys.

    a[h, q, k] = RMSHead over h of (q_hq . k_hk / sqrt(d) + bias)                                             eq. (1)
    z[q]       = sum_k sum_h a[h, q, k] v[h, k]         hidden layer: all tokens in, the keys summed        section 7
    m[h, q]    = sum_k a[h, q, k]                       the code of its output layer
    o[h, q]    = m[h, q] relu(z[q])                     then W_h^out and the sum over h, by the layer

Source: H, section 7: "the hypernetwork could parameterize a query specific value network which subsumes the aggregation
over the key index".  Differs: that sentence is all, the paper has no equation.  Read here as eq. (6) with the sum over
keys moved inside relu, o_h = sum_k a_hk relu(sum_j sum_i a_ij v_ij); the outer sum then reaches the code alone.
RMSHead with epsilon 1e-6, `bias`, `keep` and `dropout` (both uses of the code see it) are those of HYLA.
Symbols: a = latent code, now one for all keys of a query: h times k numbers; z has no head axis and no key axis.
"""

from typing import Any, NamedTuple

from .. import ops
from ..contract import contract
from .shapes import check_inputs

__all__ = ["query_values", "query_values_backward", "Saved"]


class Saved(NamedTuple):
    """What the backward needs, and the code."""
    q: Any
    k: Any
    v: Any
    bias: Any
    keep: Any
    dropout: Any
    code: Any                  # (b, h, q, k), before dropout
    rho: Any                   # (b, 1, q, k), 1 / root mean square of the scores over heads
    m: Any                     # (b, q, h), the code summed over keys, after dropout
    z: Any                     # (b, q, e), hidden layer of the query's value network before relu


def query_values(q, k, v, *, bias=None, keep=None, dropout=None):
    """o[b, q, h, e] = (sum_k a_hk) relu(sum_k sum_i a_ik v[b, k, i, e]), a the code of HYLA.  Returns o and Saved.

    Shapes
    ------
    q       : b q h d
    k       : b k h d
    v       : b k h e
    bias    : b h q k      (finite, broadcasts)
    keep    : b h q k      (bool, broadcasts; False = score 0 before RMSHead, whose mean still divides by h)
    dropout : b h q k      (broadcasts; already divided by 1 - p)
    returns : b q h e

    Raises ValueError or TypeError for shapes, dtypes or devices that do not fit together.
    """
    check_inputs(q, k, v, bias, keep, dropout)
    s = ops.scores(q, k, bias, over="h")                        # (1) eq. 1
    s = ops.dropped_to_zero(s, keep)                            # (2)
    a, rho = ops.rms_head(s)                                    # (3) eq. 1, sigma = RMSHead
    c = ops.drop(a, dropout)                                    # (4)
    m = c.sum(axis=3).transpose(0, 2, 1)                        # (5)
    z = contract("bhqk,bkhe->bqe", c, v)                        # (6) section 7, sum over heads and keys
    g = ops.relu(z)                                             # (7)
    o = contract("bqh,bqe->bqhe", m, g)                         # (8)
    return o, Saved(q, k, v, bias, keep, dropout, a, rho, m, z)


def query_values_backward(saved, do):
    """dq, dk, dv, dbias from do (b, q, h, e); each in the shape of its input, dbias None without bias."""
    q, k, v, bias, keep, dropout, a, rho, m, z = saved
    c, g = ops.drop(a, dropout), ops.relu(z)                    # (4), (7) again
    dm = contract("bqhe,bqe->bhq", do, g)                       # (8)
    dg = contract("bqhe,bqh->bqe", do, m)                       # (8)
    dz = ops.relu_backward(z, dg)                               # (7)
    dc = contract("bqe,bkhe->bhqk", dz, v, order=a)             # (6) the code's first use
    dv = contract("bhqk,bqe->bkhe", c, dz)                      # (6)
    dc += dm[..., None]                                         # (5) the code's second use
    da = ops.drop(dc, dropout)                                  # (4)
    ds = ops.rms_head_backward(a, rho, da)                      # (3)
    ds = ops.dropped_to_zero(ds, keep)                          # (2)
    dq, dk, dbias = ops.scores_backward(q, k, bias, ds)         # (1)
    return dq, dk, dv, dbias
