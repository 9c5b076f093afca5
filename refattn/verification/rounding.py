"""An array module that rounds at random, and the error bars that come from it.

The library asks its arrays for their module, so whatever runs on CuPy runs on this one: float64 whose every operation
is off by a random amount, relative to what was added up.  An entry that is nothing but cancellation is then off by what
cancelled, and no array can lose its roughness on the way, because this module makes all of them.

    bars(run, "float32") -> results in float64, and for each entry how far a right kernel in float32 may be off
"""

import sys

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ..contract import _outer
from ..xp import erf as exact_erf
from ..xp import to_host

__all__ = ["UNIT", "Noise", "bars"]

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}   # of rounding to nearest
STEPS, HALF_STEPS = 16, 6      # units that an operation is off at most: other orders of summing, approximate exp, ...
PAIRS = 4                      # of draws; noise of either sign shows both sides of a kink
TIMES, HALF_TIMES = 4, 8       # in half precision kinks are met often, and their errors have long tails
MEANING = (f"allowed: {{}} times the root mean square error of {2 * PAIRS} evaluations in which every operation is off "
           f"by up to {{}}, and 4 units of the entry")


class Noise:
    """What is going on: how far operations are off, and into and out of matrix products how far beside that."""
    def __init__(self, dtype, naive=False):
        half, self.naive = dtype in ("float16", "bfloat16"), naive
        self.width = HALF_STEPS * UNIT[dtype] if half and naive else STEPS * UNIT["float32" if half else dtype]
        self.product = HALF_STEPS * UNIT[dtype] if half and not naive else 0.0
        self.times, self.largest = HALF_TIMES if half else TIMES, 65504 if dtype == "float16" else np.inf
        fused = f"{STEPS} units of float32, and by {HALF_STEPS} of {dtype} into and out of a contraction"
        self.words = MEANING.format(self.times, f"{HALF_STEPS if half else STEPS} units of {dtype}" if naive or not half
                                    else fused)

    def draw(self, seed, sign):
        self.rng, self.sign = np.random.default_rng(seed), sign
        return self

    def held(self, x):
        """x as half precision holds it: infinite where it is too large."""
        return np.where(np.abs(x) > self.largest, np.inf, x)

    def off(self, x, size, width):
        """x, each entry off by between a half and a whole `width` times `size`."""
        u = 2 * self.rng.random(np.shape(x)) - 1
        return x + np.where(np.isfinite(size), size, 0) * (self.sign * width / 2 * (u + np.copysign(1, u)))


noise = Noise("float64").draw(0, 0)


def bare(x):
    """The host arrays in an argument."""
    if isinstance(x, tuple | list):
        return type(x)(map(bare, x))
    return x.host if isinstance(x, Rough) else x


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
        outer = sys._getframe(1).f_code is _outer.__code__      # a contraction that sums over nothing
        args, product = [bare(x) for x in args], ufunc is np.matmul or outer
        if method == "at":
            size = np.zeros(args[0].shape)
            np.add.at(size, args[1], np.abs(args[2]))
            ufunc.at(*args)
            args[0][...] = noise.off(args[0], size, noise.width)
            return None
        if product and noise.product:
            args = [noise.held(noise.off(x, np.abs(x), noise.product)) for x in args]
        y = getattr(ufunc, method)(*args, **kwargs)
        if np.asarray(y).dtype.kind == "f":
            size = (np.matmul(*map(np.abs, args)) if ufunc is np.matmul else
                    ufunc.reduce(np.abs(args[0]), **kwargs) if (ufunc, method) == (np.add, "reduce") else np.abs(y))
            y = noise.off(y, size, noise.width)
            if product and noise.product:
                y = noise.off(y, np.abs(y), noise.product)
            if noise.naive or product:          # a right kernel may overflow there
                y = noise.held(y)
        if out is None:
            return lift(y)
        out[0].host[...] = y
        return out[0]


def erf(x):
    """erf(x)."""
    return Rough(noise.off(y := exact_erf(x.host), np.abs(y), noise.width))


def __getattr__(name):
    f = getattr(np, name)
    return f if isinstance(f, np.ufunc | type) or not callable(f) else lifted(f)


def bars(run, dtype, *, naive=False, seed=0, pairs=PAIRS):
    """{name: result in float64} and {name: allowed error of each entry} of `run`, a function of an array module.

    `pairs` of draws are made.  `naive` is half precision in every operation, not only into and out of contractions.
    """
    global noise
    exact, square = {n: np.asarray(x, float) for n, x in run(np).items()}, {}
    before, noise = noise, Noise(dtype, naive)
    rules = UNIT[dtype], noise.times
    try:
        with np.errstate(all="ignore"):
            for draw in range(2 * pairs):
                noise.draw((seed, draw // 2), (-1) ** draw)
                for n, x in run(sys.modules[__name__]).items():
                    square[n] = square.get(n, 0) + (np.asarray(to_host(x)) - exact[n]) ** 2 / (2 * pairs)
    finally:
        noise = before
    return exact, {n: _bar(exact[n], x, *rules) for n, x in square.items()}


def _bar(exact, square, unit, times):
    row = square.mean(axis=-1, keepdims=True) / 4 if square.ndim else square     # chance cannot spare a single entry
    bar = times * np.sqrt(np.maximum(square, row)) + unit * (4 * np.abs(exact) + 1e-3 * np.abs(exact).max(initial=0))
    return np.where(np.isnan(bar), np.inf, bar)
