"""Solution of `exercises/hyla.py`, in einsum."""

import numpy as np

from refattn.attention.hyla import hyla
from refattn.ops import unbroadcast

__all__ = ["hyla", "hyla_backward"]


def hyla_backward(saved, do):
    q, k, v, bias, keep, dropout, a, rho, z = saved
    factor = 1 if dropout is None else dropout
    c = a * factor
    dg = np.einsum("bhqk,bqhe->bqke", c, do)                                    # (7)
    dc = np.einsum("bqhe,bqke->bhqk", do, np.maximum(z, 0))                     # (7) the code's second use
    dz = dg * (z > 0)                                                           # (6)
    dc = dc + np.einsum("bqke,bkhe->bhqk", dz, v)                               # (5) and its first: a sum
    dv = np.einsum("bhqk,bqke->bkhe", c, dz)                                    # (5)
    da = dc * factor                                                            # (4) both uses saw the dropout
    ds = rho * (da - a * (a * da).mean(axis=1, keepdims=True))                  # (3) the mean is over heads
    ds = ds if keep is None else ds * keep                                      # (2)
    scale = q.shape[-1] ** -0.5
    dq = np.einsum("bhqk,bkhd->bqhd", ds, k) * scale                            # (1)
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q) * scale                            # (1)
    return dq, dk, dv, None if bias is None else unbroadcast(ds, bias.shape)         # (1)
