"""An array module that rounds at random, and the error bars that come from it.

The library asks its arrays for their module, so whatever runs on CuPy runs on this one: float64 whose every operation
is off by a random amount, relative to what was added up.  An entry that is nothing but cancellation is then off by what
cancelled, and no array can lose its roughness on the way, because this module makes all of them.

    bars(run, "float32") -> results in float64, and for each entry how far a right kernel in float32 may be off
"""

import sys
from contextvars import ContextVar
from functools import cache
from random import Random
from types import SimpleNamespace

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ..contract import _dots, _outer
from ..xp import erf as exact_erf
from ..xp import to_host

__all__ = ["UNIT", "Noise", "bars"]

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}   # of rounding to nearest
STEPS, HALF_STEPS = 16, 6      # units that an operation is off at most: other orders of summing, approximate exp, ...
PAIRS = 4                      # of draws; noise of either sign shows both sides of a kink
TIMES, HALF_TIMES = 4, 14      # in half precision kinks are met often, and their errors have long tails,
HALF_SCALES = 1.0, 0.5, 0.25, 0.125     # and small noise finds what lies just beside a result, which large noise skips
LEAST = 2.0**-24               # what float16 holds beside 0
NOTHING = 2.0**-106            # what is below is lost in float32, or in what it is the product of
POOL = 65_537                  # random numbers that all draws read; prime, so that no axis of an array repeats them
MEANING = ("allowed: what rounding explains: {} times the root mean square error of {} evaluations in which every "
           "operation is off by up to {} (or half of its row's, if more), and 4 units of the entry "
           "and 0.001 units of the largest")


class Noise:
    """How far every operation is off, and how far operands and results of matrix products are off besides."""
    def __init__(self, dtype, naive=False, pairs=PAIRS):
        half = self.half = dtype in ("float16", "bfloat16")
        fused = half and not naive                          # float32, but for operands and results of products
        steps, of = HALF_STEPS if half and naive else STEPS, "float32" if fused else dtype
        self.naive, self.width = naive, steps * UNIT[of]
        self.product = HALF_STEPS * UNIT[dtype] if fused else 0.0
        self.times, self.largest = HALF_TIMES if half else TIMES, 65504 if dtype == "float16" else np.inf
        besides = f", and by {HALF_STEPS} of {dtype} into and out of a contraction" if fused else ""
        self.words = MEANING.format(self.times, 2 * pairs, f"{steps} units of {of}{besides}")

    def draw(self, seed, number):
        """The noise of one evaluation; those of one pair have opposite signs."""
        scales = HALF_SCALES if self.half else (1.0,)
        self.rng, self.scale = Random(repr((seed, number // 2))), (-1) ** number * scales[number // 2 % len(scales)]
        return self

    def held(self, x):
        """x as half precision holds it: infinite of its sign if too large, off by what is lost below the smallest."""
        low = np.minimum(np.abs(x), LEAST)
        return x if self.largest == np.inf else np.where(np.abs(x) > self.largest, x * np.inf, self.off(x, 1.0, low))

    def off(self, x, width, size=None):
        """x, each entry off by between a half and a whole `width`, relative to itself or to `size`."""
        n = np.size(x)
        first = int(self.rng.random() * POOL)
        u = _pool(self.scale * width, size is None)
        u = (u[first:first + n] if n <= POOL else np.resize(u[first:first + POOL], n)).reshape(np.shape(x))
        return x * u if size is None else x + np.where(np.isfinite(size), size, 0) * u


@cache
def _pool(width, around_one):
    """Random numbers of either sign, of half a `width` to a whole, twice in a row: to be read from anywhere."""
    u = np.random.default_rng(0).uniform(-1, 1, POOL)
    u = np.tile(width / 2 * (u + np.copysign(1, u)), 2)
    return 1 + u if around_one else u


current: ContextVar[Noise] = ContextVar("noise")            # each thread has its own


def bare(x):
    """The host arrays in an argument."""
    if type(x) is Rough:
        return x.host
    return type(x)(map(bare, x)) if isinstance(x, tuple | list) else x


def lift(x):
    """Host arrays in a result as arrays of this module."""
    if isinstance(x, tuple | list):
        return type(x)(map(lift, x))
    return Rough(np.asarray(x)) if isinstance(x, np.ndarray | np.generic) else x


def lifted(f):
    """f on arrays of this module, exact: for what moves numbers but does not compute."""
    return lambda *args, **kwargs: lift(f(*map(bare, args), **{name: bare(x) for name, x in kwargs.items()}))


class Rough(NDArrayOperatorsMixin):
    """An array of this module; `host` holds the numbers."""
    def __init__(self, host):
        self.host = host

    def __getattr__(self, name):
        found = getattr(self.host, name)
        return lifted(found) if callable(found) else lift(found) if name in ("T", "mT", "real", "imag") else found

    def __getitem__(self, at):
        return lift(self.host[bare(at)])

    def __setitem__(self, at, x):
        self.host[bare(at)] = bare(x)

    def __len__(self):
        return len(self.host)

    def __iter__(self):
        return map(lift, self.host)

    def __float__(self):
        return float(self.host)

    def __bool__(self):
        return bool(self.host)

    def get(self):
        """The numbers on the host."""
        return self.host

    def sum(self, axis=None, keepdims=False):
        """The sum, off relative to what was added."""
        return np.add.reduce(self, axis=axis, keepdims=keepdims)

    def mean(self, axis=None, keepdims=False):
        """The sum divided by the number of entries."""
        total = self.sum(axis, keepdims)
        return total * (total.size / self.size)

    def __array_function__(self, f, types, args, kwargs):
        return lifted(f)(*args, **kwargs)

    def __array_ufunc__(self, ufunc, method, *args, out=None, **kwargs):
        args, inside, noise = [bare(x) for x in args], sys._getframe(1).f_code, current.get()
        product = (inside is _outer.__code__ or ufunc is np.matmul      # of a vector of numbers it is a sum
                   and (min(map(np.ndim, args)) > 1 or inside is _dots.__code__))
        if method == "at":
            size = np.zeros(args[0].shape)
            np.add.at(size, args[1], np.abs(args[2]))
            ufunc.at(*args)
            args[0][...] = noise.off(args[0], noise.width, size)
            return None
        if product and noise.product:
            args = [noise.held(noise.off(x, noise.product)) for x in args]
        f, adds = getattr(ufunc, method), ufunc is np.matmul or (ufunc, method) == (np.add, "reduce")
        y = f(*args, **kwargs)
        if np.asarray(y).dtype.kind == "f":
            y = noise.off(y, noise.width, f(*map(np.abs, args), **kwargs) if adds else None)
            if product and noise.product:
                y = noise.off(y, noise.product)
            y = noise.held(y) if noise.naive or product else y      # a right kernel may overflow there
        if out is None:
            return lift(y)
        out[0].host[...] = y
        return out[0]


def erf(x):
    """erf(x)."""
    noise = current.get()
    return Rough(noise.off(exact_erf(x.host), noise.width))


lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=lifted(np.lib.stride_tricks.as_strided)))


def __getattr__(name):
    f = getattr(np, name)
    return f if isinstance(f, np.ufunc | type) or not callable(f) else lifted(f)


def bars(run, dtype, *, naive=False, seed=0, pairs=PAIRS, other=None):
    """{name: result in float64} and {name: allowed error of each entry} of `run`, a function of an array module.

    `pairs` of draws are made.  `naive` is half precision in every operation, not only into and out of contractions.
    `other` is another form of the same, which every second pair runs; what it leaves out or cannot hold is not counted.
    A gradient that is zero whatever the inputs (of a bias under a softmax) is a sum that cancels in other programs: it
    is allowed as much as the largest entry of the middle one of the other gradients.
    """
    exact = {n: np.asarray(x, float) for n, x in run(np).items()}
    square, count = {n: np.zeros(x.shape) for n, x in exact.items()}, dict.fromkeys(exact, 0)
    noise = Noise(dtype, naive)
    rules, before = (UNIT[dtype], noise.times, noise.largest), current.set(noise)
    try:
        with np.errstate(all="ignore"):
            for draw in range(2 * pairs):
                noise.draw(seed, draw)
                second = other is not None and draw // 2 % 2
                for n, x in (other if second else run)(sys.modules[__name__]).items():
                    x = np.asarray(to_host(x))
                    if n in exact and not (second and not np.isfinite(x).all()):
                        square[n] += (x.reshape(exact[n].shape) - exact[n]) ** 2
                        count[n] += 1
    finally:
        current.reset(before)
    found = {n: _bar(exact[n], x / count[n], *rules) for n, x in square.items()}
    others = [x.max(initial=0) for n, x in found.items() if n[:1] == "d" and square[n].any()]
    cancel = {n for n, x in square.items() if others and n[:1] == "d" and not x.any()}
    return exact, {n: np.full_like(x, np.median(others)) if n in cancel else x for n, x in found.items()}


def _bar(exact, square, unit, times, largest):
    axis = max((i for i, n in enumerate(square.shape) if n > 1), default=None)
    row = square.mean(axis, keepdims=True) / 4                      # chance cannot spare a single entry
    bar = times * np.sqrt(np.maximum(square, row)) + LEAST * (largest < np.inf)
    bar += unit * (4 * np.abs(exact) + 1e-3 * np.abs(exact).max(initial=0)) + (NOTHING if unit > UNIT["float64"] else 0)
    return np.where(np.isnan(bar) | (np.abs(exact) + bar > largest), np.inf, bar)       # there it may overflow
