"""Means over seeds, their standard errors, and intervals of paired differences."""

import math
from typing import NamedTuple

from ..checks import check_integer, check_number

ROUNDING = 1e-12               # values nearer to one another than this part of them are the same


class Mean(NamedTuple):
    """Of n values, with its standard error."""
    mean: float | None         # None where a value is missing or not finite
    standard_error: float | None     # sample standard deviation / sqrt(n); None for fewer than two
    n: int


def mean(values) -> Mean:
    """Of some numbers, with its standard error.

    >>> mean([1.0, 3.0])
    Mean(mean=2.0, standard_error=1.0, n=2)
    """
    values = list(values)
    n = len(values)
    if not n or any(value is None or not math.isfinite(value) for value in values):
        return Mean(None, None, n)
    middle = math.fsum(values) / n
    if n == 1:
        return Mean(middle, None, n)
    if max(values) - min(values) <= ROUNDING * max(map(abs, values)):
        return Mean(middle, 0.0, n)
    return Mean(middle, math.hypot(*(value - middle for value in values)) / math.sqrt(n * (n - 1)), n)


def student_t(level: float, freedom: int) -> float:
    """P(|t| < level) of Student's t with whole degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan(level / math.sqrt(freedom))
    odd, square = freedom % 2, math.cos(angle) ** 2
    term = total = math.cos(angle) if odd else 1.0
    if freedom == 1:
        return 2 * angle / math.pi
    for k in range(2 + odd, freedom - 1, 2):
        term *= square * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


def quantile(probability: float, freedom: int) -> float:
    """The level that |t| stays below with that probability.  Raises ValueError unless 0 <= probability < 1 <= freedom.

    >>> round(quantile(0.95, 7), 4)
    2.3646
    """
    check_number("probability", probability, below=1)
    check_integer("freedom", freedom)
    low, high = 0.0, 1.0
    while student_t(high, freedom) < probability:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if student_t(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def interval(found: Mean) -> tuple[float, float] | None:
    """Student's 95 % interval of a mean; None for fewer than two values."""
    if found.mean is None or found.standard_error is None:
        return None
    half = quantile(0.95, found.n - 1) * found.standard_error
    return found.mean - half, found.mean + half
