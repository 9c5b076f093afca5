"""Temporal context normalisation: each feature by its mean and spread over the positions of a segment.

    y[t] = scale n[t] + shift,   n[t] = (x[t] - mean) / sqrt(var + epsilon),   var = sum (x - mean)^2 / (positions - 1)

Source: Webb et al. 2020; C, appendix C.5 and released code.  Differs: not from the code, whose variance is unbiased.
Two positions give n = +-sqrt(1/2) in each feature where they differ and 0 where they are equal: a pair says by its size
alone whether it is of one kind.  Where a feature is constant, x - mean is multiplied by 1 / sqrt(epsilon), 10,000, and
what rounding leaves of it grows by that: three values of 1000.1 in float32 give n = 0.49 instead of 0.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import ops
from ..checks import check_integers, check_number
from ..xp import array_module, check_alike, fitted
from .norm import LayerNorm
from .protocol import check_tokens

__all__ = ["ContextNorm"]


class Saved(NamedTuple):
    n: Any                     # (b, g, t, m): segment, position in it
    r: Any                     # (b, g, 1, m): 1 / sqrt(var + epsilon)


@dataclass(frozen=True)
class ContextNorm:
    """y (b, t, m) from x (b, t, m), normalised in `segments` equal parts of the positions, at least two in each."""
    width: int
    segments: int = 1
    epsilon: float = 1e-8

    def __post_init__(self):
        check_integers(vars(self), "width", "segments")
        check_number("epsilon", self.epsilon)

    def parameters(self) -> dict:
        """scale (m), shift (m)."""
        return LayerNorm(self.width).parameters()

    def forward(self, p, x) -> tuple[Any, Saved]:
        """y like x.  Returns y and Saved.

        Raises ValueError for other axes than (b, t, m) and for positions that do not divide into such segments.
        """
        check_tokens(self.width, p=p, x=x)
        ops.check_features(x, p.scale, name="scale")
        b, t, m = x.shape
        if t % self.segments or t < 2 * self.segments:
            raise ValueError(f"x has {t} positions; allowed: multiples of segments, {self.segments}, two in each")
        x = x.reshape(b, self.segments, t // self.segments, m)
        c = x - x.mean(axis=2, keepdims=True)                                           # (1)
        variance = (c * c).sum(axis=2, keepdims=True) * (1 / (x.shape[2] - 1))          # (2)
        r = 1 / array_module(x).sqrt(variance + float(self.epsilon))                    # (3)
        n = c * r                                                                       # (4)
        return (n * p.scale + p.shift).reshape(b, t, m), Saved(n, r)                    # (5)

    def backward(self, p, saved, dy, grads):
        """dx = r (dn - mean dn - n sum(dn n) / (positions - 1)); parameter gradients are added into `grads`."""
        (n, r), (b, g, t, m) = saved, saved.n.shape
        check_alike(n=n, dy=fitted(dy, "dy", (b, g * t, m)))
        dy = dy.reshape(n.shape)
        grads.scale += (dy * n).sum(axis=(0, 1, 2))                                     # (5)
        grads.shift += dy.sum(axis=(0, 1, 2))                                           # (5)
        dn = dy * p.scale                                                               # (5)
        spread = (dn * n).sum(axis=2, keepdims=True) * (1 / (n.shape[2] - 1))           # (4) (3) (2)
        dx = (dn - dn.mean(axis=2, keepdims=True) - n * spread) * r                     # (1)
        return dx.reshape(b, g * t, m)
