"""Temporal context normalisation, one feature of one segment at a time."""

import numpy as np

from .arguments import exact


def context_norm(x, scale, shift, segments=1, epsilon=1e-8):
    """y_t = scale (x_t - mean) / sqrt(variance + epsilon) + shift over the positions of a segment; variance unbiased.

    Source: Webb et al. 2020; the authors' code of Compositional Attention.

    Shapes: x (b, t, m), scale and shift (m), returns (b, t, m).

    >>> context_norm([[[1.0], [3.0], [5.0], [5.0]]], [np.sqrt(2)], [10.0], segments=2).ravel().round(6)
    array([ 9., 11., 10., 10.])
    """
    x, scale, shift = exact(x), exact(scale), exact(shift)
    y = np.zeros(x.shape, dtype=np.result_type(x, scale, shift))
    size = x.shape[1] // segments
    for b, g, m in np.ndindex(x.shape[0], segments, x.shape[2]):
        positions = range(g * size, (g + 1) * size)
        mean = sum(x[b, t, m] for t in positions) / size                                        # (1)
        variance = sum((x[b, t, m] - mean) * (x[b, t, m] - mean) for t in positions) / (size - 1)       # (2)
        for t in positions:
            n = (x[b, t, m] - mean) / np.sqrt(variance + epsilon)                               # (3), (4)
            y[b, t, m] = scale[m] * n + shift[m]                                                # (5)
    return y
