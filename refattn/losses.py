"""Losses: the value and its gradient together, since every step needs both.

The value is a 0-d array on the device of its arguments, in NumPy a scalar: nothing here waits.  Value and gradient have
the dtype of the first argument, whatever that of targets and weights.  In float16 a sum beyond 65,504 is infinite,
without an error: `mse`, `mean_absolute_error` and `cross_entropy` are 0, inf or NaN where the sum or the number of
their terms is so large; every loss and its gradient are 0 where the sum of the weights is so large, those of
`sigmoid_mse` also where v times that sum is.  In float32 a sum is infinite beyond 3.4e38; and of weights that are not
finite every loss may be NaN.
Classes are integers, or booleans.
TypeError: a first argument that is no array of floating point; targets or weights on another device than it.
ValueError: shapes other than those named; classes of another dtype; a mean of no terms; in host memory also classes out
of range and weights that sum to 0.  A device is not waited for: there the last gives NaN.
"""

from math import prod

import numpy as np

from .checks import check_integer, check_numbers
from .ops import relu, sigmoid
from .xp import array_module, check_alike, fitted

__all__ = ["binary_cross_entropy", "cross_entropy", "mean_absolute_error", "mse", "sigmoid_mse"]


def terms(shape, weight=None):
    """How many numbers a mean is over, or the sum of their weights.  Raises ValueError for 0: it would be 0 / 0."""
    found = prod(shape) if weight is None else weight.sum()
    if prod(shape) == 0 or (weight is not None and array_module(weight) is np and found == 0):
        what = "weights that sum to 0; allowed: other sums" if prod(shape) else "no terms; allowed: at least one"
        raise ValueError(f"a loss of shape {shape} has {what}")
    return found


def check_classes(target, shape, classes: int, xp) -> None:
    """Nothing, or a ValueError for targets of another shape, that are no integers or, unless on a device, too large.

    TypeError for what is no array of the module.
    """
    fitted(target, "target", shape, xp=xp)
    if target.dtype.kind not in "iub":
        raise ValueError(f"target has dtype {target.dtype}; allowed: integers, 0 to {classes - 1}")
    check_numbers("target", target, classes)


def mse(y, target):
    """L = mean (y - target)^2.  Returns L, dy."""
    xp = check_alike(y=y)
    error, n = y - fitted(target, "target", y.shape, y.dtype, xp), terms(y.shape)
    return (error * error).sum() / n, error * (2 / n)


def mean_absolute_error(y, target):
    """L = mean |y - target|.  Returns L, dy; dy = 0 where they are equal."""
    xp = check_alike(y=y)
    error, n = y - fitted(target, "target", y.shape, y.dtype, xp), terms(y.shape)
    sign = xp.sign(error.real).astype(y.dtype)
    return (error * sign).sum() / n, sign * (1 / n)


def sigmoid_mse(logits, target, weight=None):
    """L = sum_i w_i mean_v (p[i, v] - target[i, v])^2 / sum_i w_i,  p = 1 / (1 + exp(-logits)).  Returns L, dlogits.

    Shapes
    ------
    logits  : ... v
    target  : ... v
    weight  : ...          (1 everywhere when None; its sum must not be 0)
    returns : a 0-d array, and ... v
    """
    xp = check_alike(logits=logits)
    check_integer("number of axes of logits", logits.ndim)
    p, weight = sigmoid(logits), fitted(weight, "weight", logits.shape[:-1], logits.dtype, xp)
    error = p - fitted(target, "target", logits.shape, logits.dtype, xp)
    share = 1 / terms(p.shape) if weight is None else weight[..., None] / (terms(p.shape, weight) * p.shape[-1])
    return (error * error * share).sum(), 2 * (error * (p * (1 - p))) * share


def log_loss(logits, target):
    """-log p[target] = logsumexp_v logits[i, v] - logits[i, target_i] of each entry, in nats; no gradient.

    Shapes
    ------
    logits  : ... v
    target  : ...          (integers in 0 .. v - 1)
    returns : ...
    """
    return _of_classes(logits, target, check_alike(logits=logits))[0]


def _of_classes(logits, target, xp):
    """-log p[target] of each entry, exp(logits - their largest), and its sum over v."""
    check_integer("number of axes of logits", logits.ndim)
    check_integer("number of classes of logits", logits.shape[-1])
    check_classes(target, logits.shape[:-1], logits.shape[-1], xp)
    shifted = logits - logits.real.max(axis=-1, keepdims=True)
    p = xp.exp(shifted)
    total = p.sum(axis=-1, keepdims=True)
    mine = xp.take_along_axis(shifted, target[..., None].astype(np.int64), axis=-1)     # the dtype may be too short
    return (xp.log(total) - mine)[..., 0], p, total


def cross_entropy(logits, target, weight=None):
    """L = sum_i w_i (logsumexp_v logits[i, v] - logits[i, target_i]) / sum_i w_i.  Returns L, dlogits.

    Shapes
    ------
    logits  : ... v
    target  : ...          (integers in 0 .. v - 1)
    weight  : ...          (1 everywhere when None; its sum must not be 0)
    returns : a 0-d array, and ... v
    """
    xp = check_alike(logits=logits)
    loss, p, total = _of_classes(logits, target, xp)
    weight = fitted(weight, "weight", target.shape, logits.dtype, xp)
    p /= total
    dlogits = p - (target[..., None] == xp.arange(logits.shape[-1], dtype=np.int64))
    if weight is None:
        n = terms(target.shape)
        return loss.sum() / n, dlogits * (1 / n)
    share = weight / terms(weight.shape, weight)
    return (xp.where(share == 0, 0, loss) * share).sum(), dlogits * share[..., None]     # loss may be infinite there


def binary_cross_entropy(logits, target, weight=None):
    """L = sum_i w_i (log(1 + exp(logits_i)) - target_i logits_i) / sum_i w_i.  Returns L, dlogits.

    Shapes
    ------
    logits  : ...          (finite)
    target  : ...          (numbers from 0 to 1; others are not refused)
    weight  : ...          (1 everywhere when None; its sum must not be 0)
    returns : a 0-d array, and ...
    """
    xp, like = check_alike(logits=logits), (logits.shape, logits.dtype)
    target, weight = fitted(target, "target", *like, xp), fitted(weight, "weight", *like, xp)
    up = relu(logits)
    loss = xp.log1p(xp.exp(logits - 2 * up)) + (up - target * logits)           # neither overflows nor rounds it away
    share = 1 / terms(logits.shape) if weight is None else weight * (1 / terms(logits.shape, weight))
    return (loss * share).sum(), ((1 - target) * sigmoid(logits) - target * sigmoid(-logits)) * share
