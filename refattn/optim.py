"""AdamW, clipping and learning-rate schedules, on flat arrays.

Source: Loshchilov & Hutter 2019; settings as in the released code of H.  Rates are per step; nothing here waits for a
device.
"""

from math import cos, inf, pi
from typing import Any, NamedTuple

from .checks import check_choice, check_integer, check_integers, check_number
from .xp import array_module, check_alike, fitted

__all__ = ["Moments", "adamw_step", "clip_by_global_norm", "moments", "warmup_cosine"]


class Moments(NamedTuple):
    """Running means of the gradient and of its square, zero at the start; arrays like the parameters."""
    first: Any
    second: Any


def moments(flat) -> Moments:
    """Zero moments for the flat parameters."""
    xp = array_module(flat)
    return Moments(xp.zeros_like(flat), xp.zeros_like(flat))


def adamw_step(flat, grads, state: Moments, *, step: int, rate: float, decay: float = 0.0, mask=None,
               beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, epsilon_first: bool = False) -> None:
    """p <- p - rate (m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + epsilon) + decay mask p), in place.

    m <- beta1 m + (1 - beta1) g and v <- beta2 v + (1 - beta2) g g first; `step` counts from 1; `mask` is 1 where decay
    acts (everywhere when None).  Epsilon stands outside the root; with `epsilon_first` (C) it is added
    before the correction of v.  Differs from Adam: decay is decoupled from g.
    Squares are of g's dtype: in float32 a g above 1.8e19 makes v infinite, for good, and its p only decays.
    Raises TypeError for arrays of several dtypes (the mask may have its own), of several devices, and of float16,
    ValueError for one of another shape, a step below 1, a negative rate or decay, an epsilon that is not above 0 in
    their dtype (p would be NaN where g is 0), a beta outside [0, 1).
    """
    check_integer("step", step)
    for name, value in ("rate", rate), ("decay", decay), ("epsilon", epsilon):              # before anything is changed
        check_number(name, value)
    check_number("beta1", beta1, below=1)
    check_number("beta2", beta2, below=1)
    first, second = state
    xp = check_alike(flat=flat, grads=grads, first=first, second=second)
    if flat.dtype.itemsize < 4:
        raise TypeError(f"flat has dtype {flat.dtype}; allowed: float32, float64")
    if not flat.dtype.type(epsilon):
        raise ValueError(f"epsilon is {epsilon}; allowed: numbers above 0 in {flat.dtype}")
    for name, x in ("grads", grads), ("mask", mask), ("first", first), ("second", second):
        fitted(x, name, flat.shape, xp=xp)
    first *= beta1
    first += (1 - beta1) * grads
    update = grads * grads
    update *= 1 - beta2
    second *= beta2
    second += update
    root = xp.sqrt(second, out=update)
    correction = (1 - beta2**step) ** -0.5
    root *= correction
    root += epsilon * correction if epsilon_first else epsilon
    update = first / root
    update *= rate / (1 - beta1**step)
    if decay:
        shrink = flat * (rate * decay)
        update += shrink if mask is None else xp.multiply(shrink, mask, out=shrink)
    flat -= update


def clip_by_global_norm(grads, limit: float, epsilon: float = 0.0):
    """g <- g min(1, limit / (|g| + epsilon)) in place, |g| over all parameters; returns |g| before it, as a 0-d array
    (NumPy: a scalar).

    Source: R has epsilon 0; C, released code for SCAN (PyTorch), 1e-6.  Differs: 1e-30 in place of 0.
    Raises ValueError for a limit or epsilon below 0.  An infinite limit leaves g as it is.
    Squares are of g's dtype: in float32 a |g| above 1.8e19 is infinite, and g becomes 0 under any other limit.
    """
    check_number("epsilon", epsilon)
    xp, g = check_alike(grads=grads), grads.reshape(-1)
    norm = xp.sqrt(g @ g)
    if limit != inf:
        check_number("limit", limit)
        grads *= xp.minimum(limit / (norm + max(epsilon, 1e-30)), 1.0)      # zero gradients stay zero
    return norm


def warmup_cosine(count: int, *, rate: float, steps: int, warmup: int, floor: float = 0.1,
                  length: str = "released") -> float:
    """Learning rate of update number `count` = 0, 1, ...: linear from 0 over `warmup`, then cosine to floor x rate.

    rate (floor + (1 - floor) (1 + cos(pi u)) / 2),  u = min(count - warmup, n) / n.
    Source: H, released code: n = steps - 2 warmup ("released"), so the floor is reached `warmup` steps before the end.
    Differs as a switch: n = steps - warmup ("text").  Raises ValueError when no step is left for the cosine, for a
    count, steps or warmup that is no whole number from 0 on, a rate or floor below 0, and another length.
    """
    check_choice("length", length, ("released", "text"))
    check_integers({"count": count, "steps": steps, "warmup": warmup}, least=0)
    check_number("rate", rate)
    check_number("floor", floor)
    n = steps - (2 if length == "released" else 1) * warmup
    if n <= 0:
        raise ValueError(f"warmup is {warmup}, which leaves no step of {steps}; allowed: steps above {steps - n}")
    if count < warmup:
        return rate * count / warmup
    return rate * (floor + (1 - floor) * (1 + cos(pi * min(count - warmup, n) / n)) / 2)
