"""What the caller left out, filled in."""

import numpy as np


def exact(x):
    """x in float64, or in complex128 if it is complex."""
    x = np.asarray(x)
    return np.asarray(x, dtype=np.result_type(x, np.float64))


def complete(q, k, v, bias, keep, dropout):
    """(q, k, v, bias, keep, dropout, o): all in double precision, the last one zero.

    An absent bias is 0, an absent keep True, an absent dropout 1.

    Shapes
    ------
    q, k, v             : (b, q, h, d), (b, k, h, d), (b, k, h, e)
    bias, keep, dropout : anything that broadcasts to (b, h, q, k); returned in that shape
    o                   : (b, q, h, e)
    """
    q, k, v = exact(q), exact(k), exact(v)
    batch, queries, heads, _ = q.shape
    pairs = (batch, heads, queries, k.shape[1])
    bias = np.broadcast_to(exact(0 if bias is None else bias), pairs)
    keep = np.broadcast_to(True if keep is None else np.asarray(keep, dtype=bool), pairs)
    dropout = np.broadcast_to(exact(1 if dropout is None else dropout), pairs)
    o = np.zeros((batch, queries, heads, v.shape[-1]), dtype=np.result_type(q, k, v, bias, dropout))
    return q, k, v, bias, keep, dropout, o
