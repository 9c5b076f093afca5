"""What the caller left out, filled in."""

import numpy as np


def exact(x):
    """x in float64, or in complex128 if it is complex."""
    x = np.asarray(x)
    return np.asarray(x, dtype=np.result_type(x, np.float64))


def filled(shape, bias, keep, dropout):
    """bias, keep and dropout in that shape: an absent bias is 0, an absent keep True, an absent dropout 1."""
    return (np.broadcast_to(exact(0 if bias is None else bias), shape),
            np.broadcast_to(True if keep is None else np.asarray(keep, dtype=bool), shape),
            np.broadcast_to(exact(1 if dropout is None else dropout), shape))


def complete(q, k, v, bias, keep, dropout):
    """(q, k, v, bias, keep, dropout, o): all in double precision, absent ones `filled`, the last one zero.

    Shapes
    ------
    q, k, v             : (b, q, h, d), (b, k, h, d), (b, k, h, e)
    bias, keep, dropout : anything that broadcasts to (b, h, q, k); returned in that shape
    o                   : (b, q, h, e)
    """
    q, k, v = exact(q), exact(k), exact(v)
    batch, queries, heads, _ = q.shape
    bias, keep, dropout = filled((batch, heads, queries, k.shape[1]), bias, keep, dropout)
    o = np.zeros((batch, queries, heads, v.shape[-1]), dtype=np.result_type(q, k, v, bias, dropout))
    return q, k, v, bias, keep, dropout, o
