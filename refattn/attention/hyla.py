"""HYLA, hypernetwork linear attention: the code generates both layers of a value network with a relu between them.

    a[h, q, k] = RMSHead over h of (q_hq . k_hk / sqrt(d) + bias)                                             eq. (1)
    z[q, k]    = sum_h a[h, q, k] v[h, k]               W_qk x_k, with v[h, k] = W_h^value x_k                eq. (6)
    o[h, q]    = sum_k a[h, q, k] relu(z[q, k])         then W_h^out and the sum over h, by the layer         eq. (6)

Source: H, section 2.2, eq. (6)-(7), algorithm 2.  Differs: epsilon 1e-6 inside RMSHead's root (released code); `bias`,
`keep` and `dropout` as in the released code, where both uses of the code see the dropout.
Symbols: a = latent code, one vector over heads for each query and key; z has no head axis.
Its name says linear, its time is quadratic in T: RMSHead and relu act on every pair of query and key, so that no state
of fixed size stands for the keys (the theorem `which_variants_have_a_state`).
"""

from typing import Any, NamedTuple

from .. import ops
from ..contract import contract
from .shapes import check_inputs

__all__ = ["Saved", "hyla", "hyla_backward"]


class Saved(NamedTuple):
    q: Any
    k: Any
    v: Any
    bias: Any
    keep: Any
    dropout: Any
    code: Any                  # (b, h, q, k), before dropout
    rho: Any                   # (b, 1, q, k), 1 / root mean square of the scores over heads
    z: Any                     # (b, q, k, e), hidden layer of the value network before relu


def hyla(q, k, v, *, bias=None, keep=None, dropout=None, epsilon=1e-6):
    """o[b, q, h, e] = sum_k a_h relu(sum_j a_j v[b, k, j, e]), a = RMSHead(q.k / sqrt(d) + bias).  Returns o, Saved.

    Shapes
    ------
    q       : b q h d
    k       : b k h d
    v       : b k h e
    bias    : b h q k      (finite, broadcasts)
    keep    : b h q k      (bool, broadcasts; False = score 0 before RMSHead, whose mean still divides by h)
    dropout : b h q k      (broadcasts; already divided by 1 - p)
    returns : b q h e

    `epsilon` is added inside RMSHead's root; 0 is the paper's text, 1e-6 the released code's.

    Raises ValueError or TypeError for shapes, dtypes or devices that do not fit together.
    """
    check_inputs(q, k, v, bias, keep, dropout)
    s = ops.scores(q, k, bias, over="h")                        # (1) eq. 1
    s = ops.dropped_to_zero(s, keep)                            # (2)
    a, rho = ops.rms_head(s, epsilon=epsilon)                   # (3) eq. 1, sigma = RMSHead
    c = ops.drop(a, dropout)                                    # (4)
    z = contract("bhqk,bkhe->bqke", c, v)                       # (5) eq. 6, inner sum over heads
    g = ops.relu(z)                                             # (6) eq. 6, phi
    o = contract("bhqk,bqke->bqhe", c, g)                       # (7) eq. 6, outer sum over keys
    return o, Saved(q, k, v, bias, keep, dropout, a, rho, z)


def hyla_backward(saved, do):
    """dq, dk, dv, dbias from do (b, q, h, e); each in the shape of its input, dbias None without bias."""
    q, k, v, bias, keep, dropout, a, rho, z = saved
    c, g = ops.drop(a, dropout), ops.relu(z)                    # (4), (6) again
    dg = contract("bhqk,bqhe->bqke", c, do)                     # (7)
    dc = contract("bqhe,bqke->bhqk", do, g, order=a)            # (7) the code's second use
    dz = ops.relu_backward(z, dg)                               # (6)
    dc += contract("bqke,bkhe->bhqk", dz, v, order=a)           # (5) the code's first use
    dv = contract("bhqk,bqke->bkhe", c, dz)                     # (5)
    da = ops.drop(dc, dropout, out=dc)                          # (4)
    ds = ops.rms_head_backward(a, rho, da)                      # (3)
    ds = ops.dropped_to_zero(ds, keep)                          # (2)
    dq, dk, dbias = ops.scores_backward(q, k, bias, ds)         # (1)
    return dq, dk, dv, dbias
