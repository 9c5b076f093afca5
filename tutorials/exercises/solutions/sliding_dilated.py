"""Solution of `exercises/sliding_dilated.py`, offset by offset and without pads: a shift is undone by its opposite."""

import numpy as np

from refattn.attention.sliding_dilated import sliding_dilated
from refattn.ops import unbroadcast

__all__ = ["sliding_dilated", "sliding_dilated_backward"]


def sliding_dilated_backward(saved, do):
    q, k, v, _, at, bias, dropout, a = saved
    factor = np.ones_like(a) if dropout is None else np.broadcast_to(dropout, a.shape)
    scale, queries = q.shape[-1] ** -0.5, q.shape[1]
    first = k.shape[1] - queries                            # the queries stand at the last positions
    places = [np.arange(first, k.shape[1]) - offset * DILATION for offset in range(a.shape[-1])]
    ds, dq, dk, dv = np.zeros_like(a), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for offset, place in enumerate(places):
        there = place >= 0
        ds[:, :, there, offset] = np.einsum("bqhe,bqhe->bhq", do[:, there], v[:, place[there]])         # (6) this is dc
        dv[:, place[there]] += np.einsum("bhq,bqhe->bqhe", (a * factor)[:, :, there, offset], do[:, there])     # (6)
    da = ds * factor                                                                                    # (5)
    ds = a * (da - (a * da).sum(axis=-1, keepdims=True))                                                # (4)
    dbias = None if bias is None else unbroadcast(ds, bias.shape)                                      # (3)
    for offset, place in enumerate(places):
        there = place >= 0
        dq[:, there] += scale * np.einsum("bhq,bqhd->bqhd", ds[:, :, there, offset], k[:, place[there]])        # (1)
        dk[:, place[there]] += scale * np.einsum("bhq,bqhd->bqhd", ds[:, :, there, offset], q[:, there])        # (1)
    return dq, dk, dv, dbias, ds.sum(axis=(0, 2))                                                       # (2)


DILATION = 2                                                # at which `refattn check` asks
