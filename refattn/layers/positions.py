"""Positional schemes, as pairs.

T5's relative bias is added to the scores and belongs to the block; rotary acts on q and k and stands in
`MultiHead.position`; sinusoidal codes are a table that is added to the embedding.  Positions are counted in tokens.
"""

from dataclasses import dataclass
from functools import lru_cache
from inspect import signature
from math import log
from numbers import Real
from typing import NamedTuple

import numpy as np

from ..checks import check_choice, check_integer, check_integers, check_switch
from ..contract import agree
from ..params import Parameter
from ..xp import array_module, check_alike, read_only

__all__ = ["T5", "Rotary", "halves_table", "image_table", "sinusoidal", "t5_buckets"]


def takes(scheme, name: str) -> bool:
    """Whether a scheme is made for "keys", a block's number of tokens, or for "k", the keys of the heads."""
    forward = getattr(scheme, "forward", None)
    return forward is not None and not isinstance(scheme, type) and name in signature(forward).parameters


def check_at(q, k, at) -> tuple:
    """The array module of q (b, q, h, d) and k, and the range of the queries' positions, `at` or 0, 1, ...

    Raises ValueError for another `at` and other axes, TypeError for what is no array of floats, or several dtypes.
    """
    xp, n = check_alike(q=q, k=k), agree(q=(q, "bqhd"), k=(k, "bkhd"))["q"]
    at = range(n) if at is None else at
    if not (isinstance(at, range) and len(at) == n and min(at, default=0) >= 0):
        raise ValueError(f"at is {at!r}; allowed: None and a range of {n} positions from 0 on")
    return xp, at


def t5_buckets(queries: int, keys: int, buckets: int, max_distance: int, bidirectional: bool = False,
               start: int = 0) -> np.ndarray:
    """bucket[q, k] as int32, from the distance n = start + q - k: the first query stands beside key `start`.

    One direction: n = max(n, 0); with m = buckets // 2, the bucket is n for n < m and then grows with log n up to
    max_distance: min(buckets - 1, m + floor((buckets - m) ln(n / m + 1.19e-7) / ln(max_distance / m))), where the first
    logarithm and what is in it are rounded to float32, as NumPy 2 rounds them in H's released code: n / m above 2
    swallows the 1.19e-7, and where the rest is nearly whole its last bit decides.
    Both directions (Raffel et al. 2020): half of the buckets for each sign, keys after the query in the upper half.
    Source: H, released code, which uses one direction although it masks nothing: a query and all later keys share
    bucket 0.  Raises ValueError for fewer than 2 buckets (4 in both directions), a max_distance of at most m, and for
    queries, keys or a start that are not whole or below 0.

    >>> t5_buckets(1, 3, 4, 8, bidirectional=True).tolist()
    [[0, 3, 3]]
    """
    least = 4 if bidirectional else 2
    check_integer("buckets", buckets, least)
    check_integers({"queries": queries, "keys": keys, "start": start}, least=0)
    if not isinstance(max_distance, Real) or not max_distance > buckets // least:
        raise ValueError(f"max_distance is {max_distance}; allowed: numbers above {buckets // least}, the exact part")
    n = start + np.arange(queries)[:, None] - np.arange(keys)
    offset = 0
    if bidirectional:
        buckets //= 2
        offset, n = np.where(n < 0, buckets, 0), np.abs(n)
    n, m = np.maximum(n, 0), buckets // 2
    ln = np.log(np.maximum(n, m).astype(np.float32) / np.float32(m) + np.finfo(np.float32).eps)      # rounds to float32
    far = m + np.floor(ln.astype(float) / log(max_distance / m) * (buckets - m)).astype(int)
    return (offset + np.where(n < m, n, np.minimum(far, buckets - 1))).astype(np.int32)


@dataclass(frozen=True)
class T5:
    """bias[h, q, k] = table[h, bucket(q - k)], one table per block; buckets and max_distance in tokens."""
    heads: int
    buckets: int
    max_distance: int
    bidirectional: bool = False

    def __post_init__(self):
        check_integers(vars(self), "heads", "buckets", "max_distance")
        check_switch("bidirectional", self.bidirectional)
        t5_buckets(0, 0, self.buckets, self.max_distance, self.bidirectional)          # knows what is allowed

    def parameters(self) -> dict:
        """table (h, w), one bias for each head and bucket."""
        return {"table": Parameter("hw", (self.heads, self.buckets), self.buckets, "table")}

    def forward(self, p, queries: int, keys: int, start: int = 0) -> tuple:
        """bias (h, q, k), the first query beside key `start`.  Returns it and each entry's index in the flat table."""
        index = _table_index(array_module(p.table), self, queries, keys, start)
        return p.table.reshape(-1)[index], index

    def backward(self, p, saved, dbias, grads):
        """Adds the sum of dbias over all pairs of a bucket into grads.table; there is no input gradient."""
        flat = grads.table.reshape(-1)
        array_module(flat, dbias).add.at(flat, saved.reshape(-1), dbias.reshape(-1))


@lru_cache(maxsize=32, typed=True)                          # 3.0 is not 3
def _table_index(xp, t5: T5, queries: int, keys: int, start: int):
    bucket = t5_buckets(queries, keys, t5.buckets, t5.max_distance, t5.bidirectional, start)
    return read_only(xp.asarray(np.arange(t5.heads, dtype=np.int32)[:, None, None] * t5.buckets + bucket))


class RotarySaved(NamedTuple):
    queries: tuple             # cosines and sines of their angles, (q, 1, d/2) each
    keys: tuple                # of theirs, (k, 1, d/2)


@dataclass(frozen=True)
class Rotary:
    """q, k rotated by their position: feature pair i turns by t base^(-2i/d), so q.k depends on the distance only.

    Source: Su et al. 2024.  H used it on C4 and names neither base nor pairing: `pairing` is 'interleaved' (features
    2i and 2i + 1, as in the paper) or 'half' (i and i + d/2).
    """
    base: float = 10000.0
    pairing: str = "interleaved"

    def __post_init__(self):
        check_choice("pairing", self.pairing, ("interleaved", "half"))
        if not isinstance(self.base, Real) or isinstance(self.base, bool) or not 0 < self.base < float("inf"):
            raise ValueError(f"base is {self.base!r}; allowed: numbers above 0, and finite")

    def parameters(self) -> dict:
        """{}: positions turn queries and keys by fixed angles."""
        return {}

    def forward(self, p, q, k, at=None) -> tuple:
        """Rotated q (b, q, h, d) and k (b, k, h, d), no bias, and RotarySaved; the queries stand at the range `at`.

        Raises ValueError for an odd d and another `at`, TypeError for what is no array of floats, or several dtypes.
        """
        (xp, at), d = check_at(q, k, at), q.shape[-1]
        if d % 2:
            raise ValueError(f"head width is {d}; allowed: even numbers, since pairs of features are turned")
        queries, keys = (_turns(xp, x, d, self.base, q.dtype.char.lower()) for x in (at, range(k.shape[1])))
        return self._rotate(q, *queries), self._rotate(k, *keys), None, RotarySaved(queries, keys)

    def backward(self, p, saved, dq, dk, dbias, grads) -> tuple:
        """dq, dk turned back: a rotation's transpose is its inverse."""
        (cos_q, sin_q), (cos_k, sin_k) = saved
        return self._rotate(dq, cos_q, -sin_q), self._rotate(dk, cos_k, -sin_k)

    def _rotate(self, x, cos, sin):
        d = x.shape[-1]
        first, second = ((slice(0, None, 2), slice(1, None, 2)) if self.pairing == "interleaved" else
                         (slice(0, d // 2), slice(d // 2, None)))
        y = array_module(x).empty_like(x)
        y[..., first] = x[..., first] * cos - x[..., second] * sin
        y[..., second] = x[..., first] * sin + x[..., second] * cos
        return y


def room(positions: int) -> int:
    """The rows of a table that is made for so many positions, a power of two: few are made while a text grows."""
    return 1 << max(positions - 1, 0).bit_length()


def slice_of(places: range) -> slice:
    """The slice that picks those places; where a range counts down to place 0 and stops at -1, a slice has None."""
    return slice(places.start, places.stop if places.stop >= 0 else None, places.step)


def _turns(xp, places: range, width: int, base: float, dtype: str):
    """Cosines and sines at those places, upwards or downwards, cut out of tables that are kept for any length."""
    tables = _angles(xp, room(max(places.start + 1, places.stop)), width, base, dtype)
    return tuple(x[slice_of(places)] for x in tables)


@lru_cache(maxsize=32)
def _angles(xp, length: int, width: int, base: float, dtype: str):
    angle = np.arange(length)[:, None, None] * base ** (-np.arange(0, width, 2) / width)
    return tuple(read_only(xp.asarray(f(angle).astype(dtype))) for f in (np.cos, np.sin))


def sinusoidal(length: int, width: int, base: float = 10000.0) -> np.ndarray:
    """table[t, 2i] = sin(t base^(-2i/m)), table[t, 2i+1] = cos(same), float64.  Source: Vaswani et al. 2017, 3.5.

    Raises ValueError for an odd width, a base that is not above 0 and finite, and sizes that are not whole or below 0.
    """
    check_integers({"length": length, "width": width}, least=0)
    if width % 2:
        raise ValueError(f"width is {width}; allowed: even numbers, since sines and cosines come in pairs")
    cos, sin = _angles(np, length, width, Rotary(base).base, "d")        # which knows what base is allowed
    return np.stack([sin, cos], axis=-1).reshape(length, width)


def image_table(length: int, width: int) -> np.ndarray:
    """table[t, i] = c sin(t 10000^(-2i/m)) for even i, c cos of the same expression for odd i; c = 1 / (1 + 1/e).

    Source: C, released code of the image tasks, where i counts features, not pairs: exponents run to 2, and the sine
    and cosine of a pair turn at different speeds.  Raises ValueError for sizes that are not whole or below 0.
    """
    check_integers({"length": length, "width": width}, least=0)
    i = np.arange(width)
    angle = np.arange(length)[:, None] * 10000.0 ** (-2 * i / width)
    return np.where(i % 2, np.cos(angle), np.sin(angle)) / (1 + np.exp(-1))


def halves_table(length: int, width: int, start: int = 2) -> np.ndarray:
    """Sines in the first half of the features, cosines in the second, both at the speeds 10000^(-j / (m/2 - 1)).

    Source: C, released code of the language model; its first position is 2.  Raises ValueError for an odd width, for
    0 or 2, and for numbers that are not whole or below 0.
    """
    check_integers({"length": length, "width": width, "start": start}, least=0)
    if width % 2 or width < 4:
        raise ValueError(f"width is {width}; allowed: even numbers from 4 on, for sines and cosines in halves")
    speed = 10000.0 ** (-np.arange(width // 2) / (width // 2 - 1))
    angle = np.arange(start, start + length)[:, None] * speed
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1)
