"""Solution of `exercises/compositional.py`, in einsum; scoring "dot", its retrieval keys as equation (11) has them."""

import numpy as np

from refattn.attention.compositional import compositional
from refattn.ops import unbroadcast

__all__ = ["compositional", "compositional_backward"]


def compositional_backward(saved, do):
    q, k, v, selector, (wr,), _, bias, dropout, a, t, g, _ = saved
    factor = 1 if dropout is None else dropout
    dg = np.einsum("bqse,bqsre->bqsr", do, t)                                   # (7)
    dl = g * (dg - (g * dg).sum(axis=-1, keepdims=True))                        # (6)
    dl = dl * selector.shape[-1] ** -0.5                                        # (5) l = selector . (t wr) / sqrt(c)
    dselector = np.einsum("bqsr,bqsre,ec->bqsc", dl, t, wr)                     # (5)
    dwr = np.einsum("bqsr,bqsre,bqsc->ec", dl, t, selector)                     # (5)
    dt = np.einsum("bqsr,bqsc,ec->bqsre", dl, selector, wr)                     # (5) the retrievals as candidates
    dt = dt + np.einsum("bqsr,bqse->bqsre", g, do)                              # (7) and as the answer
    dc = np.einsum("bqsre,bkre->bsqk", dt, v)                                   # (4)
    dv = np.einsum("bsqk,bqsre->bkre", a * factor, dt)                          # (4) a value meets every search
    da = dc * factor                                                            # (3)
    ds = a * (da - (a * da).sum(axis=-1, keepdims=True))                        # (2)
    scale = q.shape[-1] ** -0.5
    dq = np.einsum("bsqk,bksd->bqsd", ds, k) * scale                            # (1)
    dk = np.einsum("bsqk,bqsd->bksd", ds, q) * scale                            # (1)
    dbias = None if bias is None else unbroadcast(ds, bias.shape)              # (1)
    return dq, dk, dv, dbias, dselector, dwr
