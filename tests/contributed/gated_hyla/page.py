"""Gated HYLA: the code generates two first layers of the value network, and one gates the other.

    a[h, q, k] = RMSHead over h of (q_hq . k_hk / sqrt(d) + bias)                                             eq. (1)
    z[q, k]    = sum_h a[h, q, k] v[h, k]               the gate, before silu                                 eq. (6)
    w[q, k]    = sum_h a[h, q, k] u[h, k]               what is gated, u a second value map of x_k
    g[q, k]    = silu(z[q, k]) w[q, k]
    o[h, q]    = sum_k a[h, q, k] g[q, k]               then W_h^out and the sum over h, by the layer         eq. (6)

Source: H, section 2.2, eq. (6), with the value network of Shazeer 2020 (SwiGLU).  Differs: H's value network is not
gated; epsilon 1e-6 inside RMSHead's root, and all three uses of the code see the dropout, as in HYLA.
Symbols: a = latent code; z, w and g have no head axis.
"""

from typing import Any, NamedTuple

from .. import ops
from ..contract import contract
from .shapes import check_inputs

__all__ = ["gated_hyla", "gated_hyla_backward", "Saved"]


class Saved(NamedTuple):
    """What the backward needs, and the code."""
    q: Any
    k: Any
    v: Any
    u: Any
    bias: Any
    keep: Any
    dropout: Any
    code: Any                  # (b, h, q, k), before dropout
    rho: Any                   # (b, 1, q, k), 1 / root mean square of the scores over heads
    z: Any                     # (b, q, k, e), the gate before silu
    w: Any                     # (b, q, k, e), what is gated


def gated_hyla(q, k, v, u, *, bias=None, keep=None, dropout=None):
    """o[b, q, h, e] = sum_k a_h silu(sum_i a_i v_i) sum_j a_j u_j, a the code of HYLA.  Returns o and Saved.

    Shapes
    ------
    q       : b q h d
    k       : b k h d
    v       : b k h e
    u       : b k h e
    bias    : b h q k      (finite, broadcasts)
    keep    : b h q k      (bool, broadcasts; False = score 0 before RMSHead, whose mean still divides by h)
    dropout : b h q k      (broadcasts; already divided by 1 - p)
    returns : b q h e

    Raises ValueError or TypeError for shapes, dtypes or devices that do not fit together.
    """
    check_inputs(q, k, v, bias, keep, dropout, u=(u, "bkhe"))
    s = ops.scores(q, k, bias, over="h")                        # (1) eq. 1
    s = ops.dropped_to_zero(s, keep)                            # (2)
    a, rho = ops.rms_head(s)                                    # (3) eq. 1, sigma = RMSHead
    c = ops.drop(a, dropout)                                    # (4)
    z = contract("bhqk,bkhe->bqke", c, v)                       # (5) eq. 6, inner sum over heads
    w = contract("bhqk,bkhe->bqke", c, u)                       # (6) the same for the second map
    g = ops.silu(z) * w                                         # (7) the gate
    o = contract("bhqk,bqke->bqhe", c, g)                       # (8) eq. 6, outer sum over keys
    return o, Saved(q, k, v, u, bias, keep, dropout, a, rho, z, w)


def gated_hyla_backward(saved, do):
    """dq, dk, dv, dbias, du from do (b, q, h, e); each in the shape of its input, dbias None without bias."""
    q, k, v, u, bias, keep, dropout, a, rho, z, w = saved
    c = ops.drop(a, dropout)                                    # (4) again
    gate = ops.silu(z)                                          # (7) again
    dg = contract("bhqk,bqhe->bqke", c, do)                     # (8)
    dc = contract("bqhe,bqke->bhqk", do, gate * w, order=a)     # (8) the code's third use
    dz, dw = ops.silu_backward(z, dg * w), dg * gate            # (7)
    dc += contract("bqke,bkhe->bhqk", dw, u, order=a)           # (6) the code's second use
    du = contract("bhqk,bqke->bkhe", c, dw)                     # (6)
    dc += contract("bqke,bkhe->bhqk", dz, v, order=a)           # (5) the code's first use
    dv = contract("bhqk,bqke->bkhe", c, dz)                     # (5)
    da = ops.drop(dc, dropout)                                  # (4)
    ds = ops.rms_head_backward(a, rho, da)                      # (3)
    ds = ops.dropped_to_zero(ds, keep)                          # (2)
    dq, dk, dbias = ops.scores_backward(q, k, bias, ds)         # (1)
    return dq, dk, dv, dbias, du
