"""Positions of language models: biases that fall with the distance, and a learned table.

    ALiBi           bias[h, q, k] = -slope_h n                  n = |q - k|, in tokens
    KERPLE, log     bias[h, q, k] = -p_h ln(1 + a_h n)
    KERPLE, power   bias[h, q, k] = -a_h n^p_h
    learned table   y[t] = x[t] + table[t]

The biases stand in `MultiHead.position`, which knows where its queries stand, so that one query beside kept keys costs
one row.  Source: Press et al. 2022; Chi et al. 2022 (KERPLE, equations 7 and 8); R uses both as baselines.
Differs: KERPLE's a and p are each layer's own (authors' code: one set for all layers), and `train.fit` keeps them at
0.01 or more after each update; the authors' forward writes the clamped value into the parameter.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..checks import check_choice, check_integer, check_integers
from ..params import Parameter
from ..xp import array_module, check_alike, fitted, read_only
from .positions import check_at
from .protocol import check_tokens

__all__ = ["ALiBi", "Kerple", "LearnedTable", "slopes"]


def slopes(heads: int) -> np.ndarray:
    """ALiBi's slopes 2^(-8/h), 2^(-16/h), ... for a power of two; else those of the next smaller P, then of 2P.

    Of 2P the first, third, ... are taken.  Source: Press et al. 2022, section 3, and the authors' code.

    >>> slopes(2).tolist(), slopes(3).tolist()
    ([0.0625, 0.00390625], [0.0625, 0.00390625, 0.25])
    """
    power = 1 << (check_integer("heads", heads).bit_length() - 1)
    first = 2.0 ** (-8 * np.arange(1, power + 1) / power)
    return np.concatenate([first, 2.0 ** (-4 * np.arange(1, 2 * power, 2) / power)])[:heads]


@lru_cache(maxsize=8)
def _distances(xp, at: range, keys: int, dtype: str, heads: int | None = None):
    """|q - k| as (q, k); with `heads` ALiBi's bias, (h, q, k)."""
    n = np.abs(np.array(at, dtype=int)[:, None] - np.arange(keys))
    return read_only(xp.asarray((n if heads is None else -slopes(heads)[:, None, None] * n).astype(dtype)))


def _of(q, k, at, heads=None):
    return _distances(*check_at(q, k, at), k.shape[1], q.dtype.char.lower(), heads)


@dataclass(frozen=True)
class ALiBi:
    """bias[h, q, k] = -slope_h |q - k|, nothing learned."""
    heads: int

    def __post_init__(self):
        check_integers(vars(self), "heads")

    def parameters(self) -> dict:
        """{}: slopes are fixed."""
        return {}

    def forward(self, p, q, k, at=None) -> tuple:
        """q and k as they are, the bias (h, q, k), and nothing saved; the queries stand at the range `at`."""
        return q, k, _of(q, k, at, self.heads), None

    def backward(self, p, saved, dq, dk, dbias, grads) -> tuple:
        """dq and dk as they are."""
        return dq, dk


class KerpleSaved(NamedTuple):
    n: Any                     # (q, k), the distances
    log: Any                   # (h, q, k) ln(1 + a n), or (q, k) ln n, with 0 for ln 0
    power: Any                 # (h, q, k): n^p, for the power kernel


@dataclass(frozen=True)
class Kerple:
    """bias = -p ln(1 + a n) with kernel "log", -a n^p with "power"; a and p are numbers of each head, above 0.

    Every update of `train.fit` leaves them at 0.01 or more, an exponent at 2 or less.
    """
    heads: int
    kernel: str = "log"

    def __post_init__(self):
        check_integers(vars(self), "heads")
        check_choice("kernel", self.kernel, ("log", "power"))

    def parameters(self) -> dict:
        """a (h), p (h)."""
        a = Parameter("h", (self.heads,), 4, "scale", span=(0.01, np.inf))      # 4: scheme "random" stays above 0
        return {"a": a, "p": a._replace(span=(0.01, 2.0 if self.kernel == "power" else np.inf))}

    def forward(self, p, q, k, at=None) -> tuple:
        """q and k as they are, the bias (h, q, k), and KerpleSaved; the queries stand at the range `at`."""
        xp, n = array_module(q), _of(q, k, at)
        a, power = p.a[:, None, None], p.p[:, None, None]
        if self.kernel == "log":
            log = xp.log(1 + a * n)                                     # (1)
            return q, k, -power * log, KerpleSaved(n, log, None)        # (2)
        log = xp.log(xp.maximum(n, 1))                                  # (1)
        raised = xp.exp(power * log) * (n > 0)                          # (1)
        return q, k, -a * raised, KerpleSaved(n, log, raised)           # (2)

    def backward(self, p, saved, dq, dk, dbias, grads) -> tuple:
        """dq and dk as they are; the gradients of a and p are added into `grads`."""
        n, log, raised = saved
        dbias = dbias.sum(axis=0) if dbias.ndim == 4 else dbias
        if self.kernel == "log":
            grads.p -= (dbias * log).sum(axis=(1, 2))                   # (2)
            grads.a -= (dbias * n / (1 + p.a[:, None, None] * n)).sum(axis=(1, 2)) * p.p        # (2), (1)
        else:
            grads.a -= (dbias * raised).sum(axis=(1, 2))                # (2)
            grads.p -= (dbias * raised * log).sum(axis=(1, 2)) * p.a    # (2), (1)
        return dq, dk


@dataclass(frozen=True)
class LearnedTable:
    """y[b, t] = x[b, t] + table[start + t], for positions below `length`.  Source: Radford et al. 2019 (GPT-2)."""
    length: int
    width: int

    def __post_init__(self):
        check_integers(vars(self), "length", "width")

    def parameters(self) -> dict:
        """table (t, m)."""
        return {"table": Parameter("tm", (self.length, self.width), self.width, "table")}

    def forward(self, p, x, start: int = 0) -> tuple:
        """y (b, t, m) from x (b, t, m), and the positions.

        Raises ValueError beyond the table, TypeError where x and the table differ in dtype.
        """
        check_tokens(self.width, p=p, x=x)
        at = slice(start, start + x.shape[1])
        if not 0 <= start <= at.stop <= self.length:
            raise ValueError(f"x has positions {start} to {at.stop - 1}; allowed: 0 to {self.length - 1}, the table's")
        check_alike(x=x, table=p.table)
        return x + p.table[at], at                                      # (1)

    def backward(self, p, saved, dy, grads):
        """dx like dy (b, t, m), whose b is not checked; the table's gradient is added into `grads`."""
        check_alike(table=p.table, dy=fitted(dy, "dy", (*dy.shape[:1], *p.table[saved].shape)))
        grads.table[saved] += dy.sum(axis=0)                            # (1)
        return dy.copy()                                                # (1)
