"""Biases of language models that fall with the distance, by their scalar formulas."""

import math

import numpy as np

from .arguments import exact


def slope(h, heads):
    """ALiBi's slope of head h = 0, 1, ... of n: the sequence from 2^(-8/n) on with this ratio, if n is a power of two.

    Otherwise that of the largest power of two P below, then every other one of the sequence of 2P.
    Source: Press et al. 2022, section 3; authors' code.

    >>> [slope(h, 8) for h in range(8)] == [2.0 ** -(h + 1) for h in range(8)]
    True
    >>> slope(8, 12) == 2.0 ** -0.5
    True
    """
    below = 2 ** math.floor(math.log2(heads))
    if h < below:
        return (2 ** (-8 / below)) ** (h + 1)
    return (2 ** (-8 / (2 * below))) ** (2 * (h - below) + 1)


def alibi(heads, queries, keys):
    """bias_hij = -slope_h |i - j|.  Shapes: returns (h, q, k).

    >>> alibi(1, 1, 3).tolist() == [[[0, -2.0 ** -8, -2.0 ** -7]]]
    True
    """
    bias = np.zeros((heads, queries, keys))
    for h, i, j in np.ndindex(bias.shape):
        bias[h, i, j] = -slope(h, heads) * abs(i - j)
    return bias


def kerple(a, p, queries, keys, kernel="log"):
    """bias_hij = -p_h ln(1 + a_h |i - j|), or -a_h |i - j|^p_h with kernel "power".

    Source: Chi et al. 2022.  Shapes: a (h), p (h), returns (h, q, k).

    >>> kerple([1.0], [2.0], 1, 3, "power").tolist()
    [[[-0.0, -1.0, -4.0]]]
    """
    a, p = exact(a), exact(p)
    bias = np.zeros((len(a), queries, keys), dtype=np.result_type(a, p))
    for h, i, j in np.ndindex(bias.shape):
        n = abs(i - j)
        if kernel == "log":
            bias[h, i, j] = -p[h] * np.log(1 + a[h] * n)
        else:
            bias[h, i, j] = -a[h] * (n ** p[h] if n else 0.0)
    return bias
