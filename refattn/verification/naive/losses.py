"""The losses, entry by entry."""

import numpy as np

from .arguments import exact


def weighted_mean(loss_of, shape, weight):
    """sum_n w_n loss_n / sum_n w_n over all places n of a shape, with loss_n = loss_of(n); weight None is all 1."""
    weight = np.ones(shape) if weight is None else exact(weight)
    return sum(weight[n] * loss_of(n) for n in np.ndindex(shape)) / sum(weight.flat)


def mse(y, target):
    """mean of (y_n - target_n)^2 over all entries n.  Shapes: y (...), target (...), returns a number.

    >>> float(mse([1.0, 2.0], [1.0, 5.0]))
    4.5
    """
    y, target = exact(y).ravel(), exact(target).ravel()
    return sum((y[n] - target[n]) ** 2 for n in range(len(y))) / len(y)


def mean_absolute_error(y, target):
    """mean of |y_n - target_n| over all entries n.  Shapes: y (...), target (...), returns a number.

    The sign is that of the real part, so that the complex step finds the slope.

    >>> float(mean_absolute_error([1.0, 2.0], [1.0, 5.0]))
    1.5
    """
    y, target = exact(y).ravel(), exact(target).ravel()
    gaps = [y[n] - target[n] for n in range(len(y))]
    return sum(gap if gap.real >= 0 else -gap for gap in gaps) / len(y)


def sigmoid_mse(logits, target, weight=None):
    """sum_n w_n mse_n / sum_n w_n with mse_n = mean_c of (1 / (1 + exp(-logits_nc)) - target_nc)^2.

    Shapes: logits (..., v), target (..., v), weight (...) or None for all 1, returns a number.

    >>> float(sigmoid_mse([[0.0, 0.0], [9.0, 9.0]], [[1.0, 0.5], [0.0, 0.0]], weight=[2.0, 0.0]))
    0.125
    """
    logits, target = exact(logits), exact(target)

    def mse_of(n):
        return sum((1 / (1 + np.exp(-x)) - y) ** 2 for x, y in zip(logits[n], target[n], strict=True)) / len(logits[n])

    return weighted_mean(mse_of, logits.shape[:-1], weight)


def cross_entropy(logits, target, weight=None):
    """sum_n w_n ce_n / sum_n w_n with ce_n = log(sum_c exp(logits_nc)) - logits_n,target_n.

    Shapes: logits (..., v), target (...) integer, weight (...) or None for all 1, returns a number.

    >>> logits = [[0.0, 0.0], [0.0, np.log(3.0)]]
    >>> round(float(np.exp(cross_entropy(logits, [0, 1]))), 12)                 # root of 2 * 4/3
    1.632993161855
    >>> round(float(np.exp(cross_entropy(logits, [0, 1], weight=[5.0, 0.0]))), 12)
    2.0
    """
    logits, target = exact(logits), np.asarray(target)

    def ce_of(n):
        top = max(value.real for value in logits[n])
        return np.log(sum(np.exp(value - top) for value in logits[n])) + top - logits[n][target[n]]

    return weighted_mean(ce_of, target.shape, weight)


def binary_cross_entropy(logits, target, weight=None):
    """sum_n w_n bce_n / sum_n w_n with bce_n = -target_n log p_n - (1 - target_n) log(1 - p_n), p = 1 / (1 + e^-logit).

    Shapes: logits (...), target (...), weight (...) or None for all 1, returns a number.

    >>> round(float(np.exp(binary_cross_entropy([np.log(3.0), 9.0], [1.0, 0.0], weight=[5.0, 0.0]))), 12)    # p = 3/4
    1.333333333333
    """
    logits, target = exact(logits), exact(target)

    def bce_of(n):
        p = 1 / (1 + np.exp(-logits[n]))
        return -target[n] * np.log(p) - (1 - target[n]) * np.log(1 - p)

    return weighted_mean(bce_of, logits.shape, weight)
