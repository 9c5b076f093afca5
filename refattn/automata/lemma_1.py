"""Lemma 1: a two-layer ReLU network that multiplies two 0/1 matrices exactly, and products of many by its repeated use.

    x = [Flat(A), Flat(B)];    Flat(A B) = relu(x W1 - 1) W2            relu(a + b - 1) = a b for a, b in {0, 1}

Source: R, section 7.2, lemma 1, appendices C and D.  Differs: not at all.  Away from 0/1 entries
it is another function, and even at them its gradient is another one: relu has its kink where a + b = 1, slope 0 here.
So a network that holds these weights has the product's values, but does not learn like a product.

The order of factors matters: with A(x)[q, q'] = 1 where symbol x leads from q to q', the word x_1 ... x_T is
A(x_1) ... A(x_T), the earlier factor on the left.
Symbols: n states; the hidden unit i n^2 + j n + k is A[i, k] B[k, j].
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..xp import array_module, check_alike

__all__ = ["chain", "lemma_1", "lemma_1_backward", "weights"]


class Saved(NamedTuple):
    x: Any                     # (b, 2 n^2): [Flat(A), Flat(B)]
    hidden: Any                # (b, n^3), before the relu
    shape: tuple               # of A and of B


def weights(n: int, dtype=np.float64, xp=np):
    """(W1, W2): (2 n^2, n^3) with two ones in each column, and (n^3, n^2), the identity with every row n times.

    >>> [w.shape for w in weights(3)]
    [(18, 27), (27, 9)]
    """
    unit = np.arange(n**3)
    i, j, k = unit // n**2, unit // n % n, unit % n
    w1, w2 = np.zeros((2 * n * n, n**3), dtype=dtype), np.zeros((n**3, n * n), dtype=dtype)
    w1[i * n + k, unit] = 1
    w1[n * n + k * n + j, unit] = 1
    w2[unit, unit // n] = 1
    return xp.asarray(w1), xp.asarray(w2)


_weights = lru_cache(maxsize=8)(weights)                # kept for the functions below; callers get arrays of their own


def lemma_1(a, b):
    """f[i, j] = sum_k relu(a[i, k] + b[k, j] - 1) of each pair, which is A B where both have entries 0 and 1 only.

    Shapes
    ------
    a, b    : ... n n
    returns : ... n n, and Saved

    Raises ValueError for other shapes, TypeError for mixed dtypes or devices.
    """
    xp = check_alike(a=a, b=b)
    if a.shape != b.shape or a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ValueError(f"a has shape {a.shape} and b {b.shape}; allowed: two arrays of the same square matrices")
    n, shape = a.shape[-1], a.shape
    w1, w2 = _weights(n, a.dtype, xp)
    x = xp.concatenate([a.reshape(-1, n * n), b.reshape(-1, n * n)], axis=1)        # (1) the left factor first
    hidden = ops.linear(x, w1)                                          # (2)
    hidden -= 1                                                         # (3)
    return ops.linear(ops.relu(hidden), w2).reshape(shape), Saved(x, hidden, shape)                     # (4), (5)


def lemma_1_backward(saved, dy):
    """da[i, k] = sum_j dy[i, j] [a[i, k] + b[k, j] > 1], db[k, j] = sum_i of the same; (..., n, n) each."""
    x, hidden, shape = saved
    n = shape[-1]
    w1, w2 = _weights(n, x.dtype, array_module(x))
    dactive = ops.linear(dy.reshape(-1, n * n), w2.T)                   # (5)
    dhidden = ops.relu_backward(hidden, dactive)                        # (4), (3): the constant has no gradient
    dx = ops.linear(dhidden, w1.T)                                      # (2)
    return dx[:, :n * n].reshape(shape), dx[:, n * n:].reshape(shape)   # (1)


def chain(matrices) -> list:
    """Products of neighbours, of these, and so on: ceil(log2 T) levels of one network, the last holding A_1 ... A_T.

    Shapes: matrices (..., t, n, n), returns a list of (..., t', n, n), t' = t, ceil(t / 2), ..., 1.

    Exact for matrices with one 1 in each row, whose products are such matrices again.  Not for 0/1 matrices in
    general: an entry of a first product may be 2, and relu(2 + 2 - 1) is 3.  Raises TypeError for what is no array of
    floats, ValueError for matrices that are not square, for none of them, and without the axis t.
    """
    xp = check_alike(matrices=matrices)
    if matrices.ndim < 3 or not matrices.shape[-3] or matrices.shape[-1] != matrices.shape[-2]:
        raise ValueError(f"matrices has shape {matrices.shape}; allowed: (..., t, n, n) with at least one matrix")
    levels = [matrices]
    while (t := levels[-1].shape[-3]) > 1:
        here = levels[-1]
        product, _ = lemma_1(here[..., t % 2:-1:2, :, :], here[..., t % 2 + 1::2, :, :])
        levels.append(xp.concatenate([here[..., :1, :, :], product], axis=-3) if t % 2 else product)
    return levels
