"""The small operations, entry by entry.

Shapes: `...` stands for any number of axes, the same ones in the argument and the result.
"""

import math

import numpy as np

from .arguments import exact


def softmax(s, keep=None):
    """a_j = exp(s_j) / sum_j' exp(s_j') over the last axis, the sum running over the kept j'; 0 where not kept.

    Shapes: s (..., k), keep broadcasts to it, returns (..., k).  A row that keeps nothing is all zero.

    >>> softmax([0.0, 0.0, 5.0], keep=[True, True, False])
    array([0.5, 0.5, 0. ])
    """
    s = exact(s)
    keep = np.broadcast_to(True if keep is None else keep, s.shape)
    a = np.zeros_like(s)
    for row in np.ndindex(s.shape[:-1]):
        kept = [j for j in range(s.shape[-1]) if keep[row][j]]
        top = max((s[row][j].real for j in kept), default=0.0)
        total = sum(np.exp(s[row][j] - top) for j in kept)
        for j in kept:
            a[row][j] = np.exp(s[row][j] - top) / total
    return a


def rms_head(s, axis=1, epsilon=1e-6):
    """a_h = s_h / sqrt(mean_h' s_h'^2 + epsilon), h running along `axis`; 0 where all s_h and epsilon are.

    Shapes: s (..., h, ...), returns the same.  Source: Attention as a Hypernetwork, section 2.2; epsilon from the code.

    >>> rms_head([1.0, -7.0], axis=0, epsilon=0.0)
    array([ 0.2, -1.4])
    """
    s = np.moveaxis(exact(s), axis, -1)
    a = np.zeros_like(s)
    for row in np.ndindex(s.shape[:-1]):
        root = np.sqrt(sum(value * value for value in s[row]) / s.shape[-1] + epsilon)
        for h in range(s.shape[-1]):
            a[row][h] = s[row][h] / root if root else 0
    return np.moveaxis(a, -1, axis)


def layer_norm(x, scale, shift, epsilon=1e-6):
    """y_m = scale_m (x_m - mean) / sqrt(variance + epsilon) + shift_m, the variance divided by the number of features.

    Shapes: x (..., m), scale (m), shift (m), returns (..., m).

    >>> layer_norm([1.0, 3.0], [1.0, 10.0], [0.0, 5.0], epsilon=0.0)
    array([-1., 15.])
    """
    x, scale, shift = exact(x), exact(scale), exact(shift)
    y = np.zeros(x.shape, dtype=np.result_type(x, scale, shift))
    for row in np.ndindex(x.shape[:-1]):
        mean = sum(x[row]) / x.shape[-1]
        variance = sum((value - mean) * (value - mean) for value in x[row]) / x.shape[-1]
        for m in range(x.shape[-1]):
            y[row][m] = scale[m] * (x[row][m] - mean) / np.sqrt(variance + epsilon) + shift[m]
    return y


def entry_by_entry(function, x):
    """y with y[n] = function(x[n]) for every entry n."""
    x = exact(x)
    return np.array([function(value) for value in x.flat], dtype=x.dtype).reshape(x.shape)


def relu(x):
    """x where its (real part) is above 0, else 0."""
    return entry_by_entry(lambda value: value if value.real > 0 else 0.0, x)


def gelu(x):
    """x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, the approximation that the authors' code uses."""
    root = math.sqrt(2 / math.pi)
    return entry_by_entry(lambda value: 0.5 * value * (1 + np.tanh(root * (value + 0.044715 * value**3))), x)


def gelu_exact(x):
    """x (1 + erf(x / sqrt(2))) / 2, x times the normal distribution's probability of less than x; real x only."""
    return entry_by_entry(lambda value: 0.5 * value * (1 + math.erf(value / math.sqrt(2))), x)


def silu(x):
    """x / (1 + exp(-x))."""
    return entry_by_entry(lambda value: value / (1 + np.exp(-value)), x)


def linear(x, w, b=None):
    """y = b + sum_m x_m w_m, for a w with any number of output axes after its first.

    Shapes: x (..., m), w (m, *outputs), b (*outputs), returns (..., *outputs).

    >>> linear([1.0, 2.0], [[[1.0, 10.0]], [[3.0, 30.0]]], [[100.0, 0.0]])
    array([[107.,  70.]])
    """
    x, w = exact(x), exact(w)
    b = exact(np.zeros(w.shape[1:]) if b is None else b)
    y = np.zeros(x.shape[:-1] + w.shape[1:], dtype=np.result_type(x, w, b))
    for row in np.ndindex(x.shape[:-1]):
        for output in np.ndindex(w.shape[1:]):
            y[row + output] = b[output] + sum(x[row][m] * w[(m, *output)] for m in range(w.shape[0]))
    return y


def embedding(table, tokens):
    """y_t = table[token_t].

    Shapes: table (v, m), tokens (...) integer, returns (..., m).
    """
    table, tokens = exact(table), np.asarray(tokens)
    y = np.zeros((*tokens.shape, table.shape[1]), dtype=table.dtype)
    for place in np.ndindex(tokens.shape):
        y[place] = table[tokens[place]]
    return y
