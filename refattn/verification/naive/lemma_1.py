"""Lemma 1, one hidden unit at a time."""

import numpy as np

from .arguments import exact
from .ops import relu


def lemma_1(a, b):
    """y[i, j] = sum_k relu(a[i, k] + b[k, j] - 1).

    Source: R, lemma 1.  Shapes: a and b (b, n, n), returns (b, n, n).

    >>> lemma_1([[[1, 0], [1, 0]]], [[[0, 1], [1, 0]]])
    array([[[0., 1.],
            [0., 1.]]])
    """
    a, b = exact(a), exact(b)
    y = np.zeros(a.shape, dtype=np.result_type(a, b))
    for place in np.ndindex(a.shape):
        batch, i, j = place
        y[place] = sum(relu(a[batch, i, k] + b[batch, k, j] - 1) for k in range(a.shape[-1]))
    return y
