"""Differential attention: the difference of two softmax attentions, which share the values.

    a1[h, q, k] = softmax over k of (q_hq . k_hk / sqrt(d) + bias)                                            eq. (1)
    a2[h, q, k] = softmax over k of (r_hq . t_hk / sqrt(d) + bias)                                            eq. (1)
    lam[h]      = w[h] + lambda_init                                                                          eq. (2)
    a[h, q, k]  = a1[h, q, k] - lam[h] a2[h, q, k]                                                            eq. (1)
    z[h, q]     = sum_k a[h, q, k] v[h, k]                                                                    eq. (1)
    o[h, q]     = (1 - lambda_init) z[h, q] / sqrt(mean over e of z[h, q]^2 + epsilon)                        eq. (3)

Source: Ye et al. 2024, section 2.1, eq. (1)-(3).  Differs: w[h] is learned as it is, where the paper has the difference
of two exponentials of products, one for all heads; no learned scale behind the norm of a head; `bias`, in both
softmaxes, `keep` and `dropout`, which multiplies the difference.
Symbols: q, r and k, t = Q_1, Q_2 and K_1, K_2; lam = lambda; n = the head after its norm.
"""

from typing import Any, NamedTuple

from .. import ops
from ..contract import contract
from ..xp import array_module
from .shapes import check_inputs

__all__ = ["Saved", "differential", "differential_backward"]


class Saved(NamedTuple):
    """What the backward reads; `code` = the weights of all pairs, which may be negative."""
    q: Any
    k: Any
    v: Any
    r: Any
    t: Any
    bias: Any
    dropout: Any
    a1: Any                    # (b, h, q, k), first softmax
    a2: Any                    # (b, h, q, k), second softmax
    lam: Any                   # (h, 1, 1)
    code: Any                  # (b, h, q, k), before dropout
    rho: Any                   # (b, q, h, 1), 1 / root mean square of z over e
    n: Any                     # (b, q, h, e), z after the norm
    gain: float                # 1 - lambda_init


def differential(q, k, v, r, t, w, *, bias=None, keep=None, dropout=None, lambda_init=0.8, epsilon=1e-5):
    """o[b, q, h] = (1 - lambda_init) rms_e(sum_k (a1 - lam a2) v[b, k, h]), a1, a2 = two softmaxes.  Returns o, Saved.

    Shapes
    ------
    q       : b q h d
    k       : b k h d
    v       : b k h e
    r       : b q h d      (queries of the second softmax)
    t       : b k h d      (keys of the second softmax)
    w       : h            (learned part of lambda)
    bias    : b h q k      (finite, broadcasts; added to the scores of both)
    keep    : b h q k      (bool, broadcasts; False = not attended to)
    dropout : b h q k      (broadcasts; already divided by 1 - p)
    returns : b q h e

    A query that keeps nothing gets exactly zero.  Raises ValueError or TypeError for shapes, dtypes or devices that do
    not fit together.
    """
    check_inputs(q, k, v, bias, keep, dropout, r=(r, "bqhd"), t=(t, "bkhd"), w=(w, "h"))
    xp = array_module(q)
    s1 = ops.scores(q, k, bias, over="k")                       # (1) eq. 1
    a1 = ops.softmax(s1, keep, out=s1)                          # (2) eq. 1
    s2 = ops.scores(r, t, bias, over="k")                       # (3) eq. 1
    a2 = ops.softmax(s2, keep, out=s2)                          # (4) eq. 1
    lam = (w + lambda_init)[:, None, None]                      # (5) eq. 2
    a = a1 - lam * a2                                           # (6) eq. 1
    c = ops.drop(a, dropout)                                    # (7)
    z = contract("bhqk,bkhe->bqhe", c, v)                       # (8) eq. 1
    mean = (z * z).mean(axis=-1, keepdims=True)                 # (9) eq. 3
    rho = 1 / xp.sqrt(mean + epsilon)                           # (9) eq. 3
    n = z * rho                                                 # (9) eq. 3
    o = (1 - lambda_init) * n                                   # (10) eq. 3
    return o, Saved(q, k, v, r, t, bias, dropout, a1, a2, lam, a, rho, n, 1 - lambda_init)


def differential_backward(saved, do):
    """dq, dk, dv, dbias, dr, dt, dw from do (b, q, h, e); each in the shape of its input, dbias None without bias."""
    q, k, v, r, t, bias, dropout, a1, a2, lam, a, rho, n, gain = saved
    c = ops.drop(a, dropout)                                    # (7) again
    dn = gain * do                                              # (10)
    along = contract("bqhe,bqhe->bqh", n, dn)[..., None]        # (9)
    dz = rho * (dn - n * (along / n.shape[-1]))                 # (9)
    dc = contract("bqhe,bkhe->bhqk", dz, v, order=a)            # (8)
    dv = contract("bhqk,bqhe->bkhe", c, dz)                     # (8)
    da = ops.drop(dc, dropout, out=dc)                          # (7)
    dlam = -contract("bhqk,bhqk->h", da, a2)                    # (6)
    da2 = -lam * da                                             # (6)
    dw = dlam                                                   # (5)
    ds2 = ops.softmax_backward(a2, da2, out=da2)                # (4)
    dr, dt, dbias = ops.scores_backward(r, t, bias, ds2)        # (3)
    ds1 = ops.softmax_backward(a1, da, out=da)                  # (2)
    dq, dk, dbias1 = ops.scores_backward(q, k, bias, ds1)       # (1)
    if bias is not None:
        dbias += dbias1                                         # (1)
    return dq, dk, dv, dbias, dr, dt, dw
