"""Convolution of images, one output at a time."""

import numpy as np

from .arguments import exact


def convolution(x, k, b, stride=1, padding=0):
    """y_gjo = b_o + the sum of x_pqi k_uwio over u, w, i, with p = stride g + u - padding, q = stride j + w - padding.

    Pixels outside the image are 0; windows that do not fit into the padded image are left out.
    Shapes: x (b, g, j, i), k (u, w, i, o), b (o), returns (b, g, j, o), with fewer rows and columns than x.

    >>> image, ones = np.arange(9.0).reshape(1, 3, 3, 1), np.ones((2, 2, 1, 1))
    >>> convolution(image, ones, [100.0]).reshape(2, 2)
    array([[108., 112.],
           [120., 124.]])
    >>> convolution(image, ones, [0.0], stride=3, padding=1).reshape(2, 2)      # the corners
    array([[0., 2.],
           [6., 8.]])
    """
    x, k, b = exact(x), exact(k), exact(b)
    rows, columns = (range(0, n + 2 * padding - len(k) + 1, stride) for n in x.shape[1:3])
    y = np.zeros((len(x), len(rows), len(columns), len(b)), dtype=np.result_type(x, k, b))
    for n, g, j, o in np.ndindex(y.shape):
        y[n, g, j, o] = b[o]
        for u, w, i in np.ndindex(k.shape[:3]):
            row, column = rows[g] + u - padding, columns[j] + w - padding
            if 0 <= row < x.shape[1] and 0 <= column < x.shape[2]:
                y[n, g, j, o] += x[n, row, column, i] * k[u, w, i, o]
    return y
