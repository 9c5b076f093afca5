"""Boolean masks: True = may attend.  Host or device, chosen by `xp`; build them once per length.

What is masked away still has to be finite: its score meets -inf in a sum or 0 in a product, and 0 times inf is NaN.
"""

import numpy as np

from ..checks import check_integer, check_numbers
from ..xp import array_module

__all__ = ["causal", "off_diagonal", "padding", "window"]


def causal(queries: int, keys: int | None = None, xp=np):
    """keep[q, k] = k <= q + (keys - queries): the last query sees every key.

    Raises ValueError for numbers that are not whole or below 0.

    >>> causal(2).tolist()
    [[True, False], [True, True]]
    """
    queries = check_integer("queries", queries, 0)
    keys = queries if keys is None else check_integer("keys", keys, 0)
    q, k = xp.arange(queries, dtype=np.int32)[:, None], xp.arange(keys, dtype=np.int32)
    return k <= q + (keys - queries)


def window(queries: int, size: int, xp=np):
    """keep[q, k] = 0 <= q - k < size: each position sees itself and the size - 1 before it.

    Raises ValueError for numbers that are not whole, queries below 0, a size below 1.
    """
    queries, size = check_integer("queries", queries, 0), check_integer("size", size)
    q, k = xp.arange(queries, dtype=np.int32)[:, None], xp.arange(queries, dtype=np.int32)
    return (k <= q) & (q - k < size)


def padding(lengths, keys: int):
    """keep[b, 1, 1, k] = k < lengths[b], for integer `lengths` (b,), which broadcasts over heads and queries.

    Raises ValueError for other lengths, in host memory also for numbers that are not 0 to `keys`.
    """
    dtype = getattr(lengths, "dtype", None)
    if dtype is None or dtype.kind not in "iu" or lengths.ndim != 1:
        found = "no array" if dtype is None else f"an array of {dtype} and shape {lengths.shape}"
        raise ValueError(f"lengths is {found}; allowed: integers (b,)")
    keys = check_integer("keys", keys, 0)
    check_numbers("lengths", lengths, keys + 1)
    return (array_module(lengths).arange(keys, dtype=np.int32) < lengths[:, None])[:, None, None, :]


def off_diagonal(length: int, xp=np):
    """keep[q, k] = q != k: no position sees itself.  Raises ValueError for a length that is not whole or below 0."""
    return ~xp.eye(check_integer("length", length, 0), dtype=bool)
