"""Solution of `exercises/softmax.py`, in einsum."""

import numpy as np

from refattn.attention.softmax import softmax
from refattn.ops import unbroadcast

__all__ = ["softmax", "softmax_backward"]


def softmax_backward(saved, do):
    q, k, v, bias, dropout, a = saved
    factor = 1 if dropout is None else dropout
    dc = np.einsum("bqhe,bkhe->bhqk", do, v)                                    # (4)
    dv = np.einsum("bhqk,bqhe->bkhe", a * factor, do)                           # (4)
    da = dc * factor                                                            # (3)
    ds = a * (da - (a * da).sum(axis=-1, keepdims=True))                        # (2) only differences in a row count
    scale = q.shape[-1] ** -0.5
    dq = np.einsum("bhqk,bkhd->bqhd", ds, k) * scale                            # (1)
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q) * scale                            # (1)
    return dq, dk, dv, None if bias is None else unbroadcast(ds, bias.shape)         # (1)
