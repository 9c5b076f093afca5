"""Is a backward the derivative of its forward?"""

import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..checks import check_choice
from ..xp import array_module, to_host
from .deviation import Deviation, deviation

COMPLEX = 1e-30                # the complex step
TOLERANCE = {"complex": 1e-12, "finite": 1e-9}
FIVE = 4e-4                    # of the largest entry of an input: the step of five-point differences,
FIRST, RUNGS = 1 / 64, 19      # the first of those that are asked where these do not agree, and how many, each a fourth
NEAR = 1e-6                    # that of slopes to both sides
OFF = 10                       # times what finer differences change one another, they may be off
LOW = 100                      # times the rounding of float32, say, where results are no float64
EVEN = 8                       # times what finer steps leave is as much: rounding of a few outputs varies so
SETTLED = 1e-2                 # what differences may be off at most, of the largest slope, to say something
OWN = 64                       # times the rounding of outputs over inputs, a backward's own
BESIDE = 2.0**-24, 2.0**-50    # of every number: steps that float32, and float64, round in other ways each
TINY = 1e-10                   # of the largest entry: steps from an entry of 0 that a forward need not feel
LITTLE = 1e-5                  # of the largest slope, rounding of a backward's own may do; much more is a kink


class Derivative(NamedTuple):
    """What was found: one Deviation for each input, and the largest of the tolerances that they are held to."""
    errors: dict[str, Deviation]
    tolerance: float
    allowed: dict[str, float]  # of each input

    @property
    def error(self) -> Deviation:
        """The largest one."""
        return max(self.errors.values(), default=Deviation(0))

    @property
    def ok(self) -> bool:
        """Whether every gradient is the derivative."""
        return all(map(self.agrees, self.errors))

    def agrees(self, name) -> bool:
        """Whether the gradient of one input is the derivative."""
        return self.errors[name] <= self.allowed[name]

    def __str__(self):
        return "\n".join(f"d{n}: relative error {x:.1e}, {'agrees' if self.agrees(n) else f'WRONG: {x.where}'}"
                         for n, x in self.errors.items())


def as_tuple(y) -> tuple:
    """Outputs as a tuple, whether there is one or several."""
    return y if isinstance(y, tuple) else (y,)


def each(f, y):
    """f of an output, or of each of several."""
    return tuple(map(f, y)) if isinstance(y, tuple) else f(y)


def random_like(y, rng):
    """Normal numbers in the form, the dtypes and the array modules of an output."""
    return each(lambda x: array_module(x).asarray(np.asarray(rng.standard_normal(x.shape)).astype(x.dtype)), y)


def plateau(bends, rises, known) -> float:
    """How far outputs are off parabolas at the finest three steps that leave about as much, if more than known.

    That is rounding of the greater numbers whose difference outputs are.  0 where it is no small part of what outputs
    rise by at the largest step that leaves no more, as where a forward bends within less than a step.
    """
    left = [(x, rise) for x, rise in reversed([*zip(bends, rises, strict=True)]) if x > known]
    for n, (x, _) in enumerate(left):
        end = next((m for m, (y, _) in enumerate(left) if m > n and y > EVEN * x), len(left))
        if end - n > 2:
            most, _ = max(left[n:end])
            return most if most <= SETTLED * left[end - 1][1] else 0.0
    return 0.0


def is_float(x) -> bool:
    """Whether it is an array of real floating-point numbers."""
    return getattr(getattr(x, "dtype", None), "kind", None) == "f"


def derivative(forward, backward, inputs, *, constants=(), rng=None, method=None, entries=48, directions=4,
               tolerance=None) -> Derivative:
    """Compare the gradients of `backward` with slopes of `forward`, for a random gradient of the output.

    forward(inputs) -> output, saved      inputs: {name: array}; output: an array, or a tuple of arrays
    backward(saved, doutput) -> {name: gradient}

    Any pair fits after wrapping, here one of functions of positional arguments:

    >>> from refattn import ops
    >>> x, w = np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]])
    >>> report = derivative(lambda a: (ops.linear(a["x"], a["w"]), (a["x"], a["w"])),
    ...                     lambda saved, dy: dict(zip("xw", ops.linear_backward(*saved, dy))), {"x": x, "w": w})
    >>> report.ok, sorted(report.errors)
    (True, ['w', 'x'])

    Method "complex", the step f(x + ih).imag / h, has no cancellation, so 1e-12 is asked for; all float inputs become
    complex together, hence forward must take complex numbers and compare only real parts.  "finite" (five-point,
    1e-9) asks nothing of it.  Where such differences do not agree with a gradient, further ones are asked, of steps
    from 1/64 of the input's largest entry to about 2e-13 of the smallest that is moved; the slope is where they change
    one another least, and ten times that change is allowed, as is what the finest show to be rounding of outputs that
    are differences of greater numbers.  At a kink any slope between those to both sides is right.
    Without a method it is the complex step, and finite differences for an input along which forward refuses complex
    numbers, gives real ones for them or, as with an abs inside, is not analytic: where the two do not agree, or where
    in a random direction the slopes to both sides agree with one another and not with the complex step.  They judge a
    small entry too, where gradient and complex step differ by what the forward's own rounding does there.

    All of it is asked in float64, to which float inputs are raised; of results in float32, say, or of a forward that
    computes in it, a hundred times its rounding is asked for, 1 % at most.  Rounding of a backward's own, as where it
    computes in float32 or solves a system that is nearly singular, shows where inputs change a little, eight times
    alike: then its gradients do not follow parabolas, and ten times that is allowed, 1e-5 at most.  Inputs of up to
    `entries` numbers are checked entry by entry, larger ones in as many random directions as `directions`.  Integer and
    boolean arrays, None, and names in `constants` are not differentiated.  Raises ValueError for an unknown method,
    lists, floats and complex numbers that are no constant, a gradient that is missing, inputs of which none is to be
    differentiated, results that are not as described, not finite, or others when asked again, a pair that changes what
    it is given, differences that do not settle, as those of a forward that computes in half precision, and, with method
    "complex", a forward that gives real numbers for complex ones.
    """
    check_choice("method", method, (None, *TOLERANCE))
    _need(isinstance(inputs, Mapping), f"inputs is a {type(inputs).__name__}; allowed: {{name: array}}")
    _need(not isinstance(constants, str), f"constants is {constants!r}; allowed: a tuple of names")
    _need(tolerance is None or isinstance(tolerance, int | float) and tolerance >= 0,
          f"tolerance is {tolerance!r}; allowed: None, or a number from 0")
    for name, x in inputs.items():                          # whose gradient would not be asked for, without a word
        _need(is_float(x) or name in constants or not (isinstance(x, float | list | tuple) or np.iscomplexobj(x)),
              f"{name} is a {type(x).__name__}; allowed: an array of real numbers, or its name in constants")
    of = _Slopes(forward, {n: x.astype("float64") if is_float(x) else x for n, x in inputs.items()}, constants)
    seed = int(rng or 0) if isinstance(rng, int | np.integer | None) else np.random.default_rng(rng).integers(2**63)
    gradients = of.gradients(backward, np.random.default_rng((int(seed), 1)))                   # nobody draws inputs so
    asked = {name: of.inputs[name] for name in of.scale if of.inputs[name].size}
    _need(asked, f"inputs are {', '.join(inputs) or 'none'}; allowed: one of floats, not empty, no constant")
    errors, allowed = {}, {}
    for name, x in asked.items():
        _need(name in gradients, f"backward returned no gradient of {name}; it returned "
              f"{', '.join(gradients) or 'none'}; allowed: one for each float input that is no constant")
        g, allowed[name] = gradients[name], 0.0
        if g.shape != x.shape:
            errors[name] = Deviation(np.inf, f"d{name} has shape {g.shape}, {name} has {x.shape}")
            continue
        whole = x.size <= entries
        steps = np.eye(x.size) if whole else of.rng.standard_normal((directions, x.size)) / x.size ** 0.5
        claimed = g.ravel() if whole else steps @ g.ravel()
        slopes, by = of.slopes(name, steps.reshape(-1, *x.shape), claimed, method, tolerance)
        words = f": backward {{}}, {'complex step' if by == 'complex' else 'finite differences'} {{}}"
        allowed[name] = max(TOLERANCE[by], min(LOW * of.rounding, SETTLED)) if tolerance is None else tolerance
        how = {"words": words, "scale": of.measure(name, slopes, TOLERANCE[by]), "least": 0.0}
        errors[name] = (deviation(f"d{name}", g, slopes.reshape(x.shape), **how) if whole else
                        deviation(f"d{name} along direction ", claimed, slopes, **how))
        if tolerance is None and errors[name] > allowed[name]:
            allowed[name] = max(allowed[name], of.roughness(name, how["scale"]))
    return Derivative(errors, max(allowed.values()), allowed)


def _need(fact, words) -> None:
    if not fact:
        raise ValueError(words)


def _settled(x, y) -> bool:
    """Whether two answers are one, up to a part of the largest entry."""
    x, y = np.nan_to_num(x), np.nan_to_num(y)
    return x.shape == y.shape and np.allclose(x, y, 0, SETTLED * np.abs(x).max(initial=0))


class _Slopes:
    """Slopes of sum(weights * output) along directions of the inputs."""
    def __init__(self, forward, inputs, constants):
        self.forward, self.inputs = forward, inputs
        self.lifted = {n: x.astype("complex128") if is_float(x) else x for n, x in inputs.items()}
        self.scale = {n: float(np.abs(to_host(x)).max(initial=0)) or 1.0 for n, x in inputs.items()
                      if is_float(x) and n not in constants}

    def gradients(self, backward, rng) -> dict:
        """Those of the backward, for random weights."""
        before = {n: to_host(x).copy() for n, x in self.inputs.items() if is_float(x)}
        self.backward, self.rng = backward, rng
        result = self.forward(self.inputs)
        _need(isinstance(result, tuple | list) and len(result) == 2,
              f"forward returned a {type(result).__name__}; allowed: output, saved")
        output, saved = result
        for y in as_tuple(output):
            _need(hasattr(y, "dtype") and y.dtype.kind != "c", f"forward returned an output that is a "
                  f"{getattr(y, 'dtype', type(y).__name__)}; allowed: arrays of real numbers")
        first = [1.0 * to_host(y) for y in as_tuple(output)]
        _need(all(np.isfinite(y).all() for y in first), "forward gave NaN or infinite numbers; allowed: finite ones")
        upstream = random_like(output, rng)
        self.upstream, self.weights = upstream, [1.0 * to_host(x) for x in as_tuple(upstream)]
        gradients = self.answer(saved)
        for name, x in before.items():
            _need(np.array_equal(x, to_host(self.inputs[name]), equal_nan=True),
                  f"{name} was changed in place; allowed: it stays as it is")
        _need(all(map(np.array_equal, self.weights, map(to_host, as_tuple(upstream)))),
              "the gradient of the output was changed in place; allowed: it stays as it is")
        self.first = np.concatenate([(w * y).ravel() for w, y in zip(self.weights, first, strict=True)])
        self.size = float(np.hypot.reduce(self.first, initial=0.0))
        again, saved = self.forward(self.inputs)
        _need(all(np.allclose(x, to_host(y), 1e-6, 1e-6) for x, y in zip(first, as_tuple(again), strict=True)),
              "forward answers differently when asked again; allowed: the same for the same inputs")
        second = self.answer(saved)
        _need(gradients.keys() == second.keys() and all(_settled(g, second[name]) for name, g in gradients.items()),
              "backward answers differently when asked again; allowed: the same")
        self.rounding = max(np.finfo(x.dtype).eps for x in (*as_tuple(output), *gradients.values(), 1.0 * first[0])
                            if is_float(x))
        return gradients

    def answer(self, saved) -> dict:
        """The gradients that the backward gives, in arrays that no later call writes into."""
        gradients = self.backward(saved, self.upstream)
        _need(isinstance(gradients, dict),
              f"backward returned a {type(gradients).__name__}; allowed: {{name: gradient}}")
        for name, g in gradients.items():
            _need(g is None or hasattr(g, "shape"),
                  f"backward returned d{name} as a {type(g).__name__}; allowed: an array")
        return {name: np.array(to_host(g)) for name, g in gradients.items() if g is not None}

    def roughness(self, name, scale) -> float:
        """What rounding of a backward's own may do to a gradient: ten times what eight in a row are off parabolas.

        0 where that is much, or where one of the eight raises something.
        """
        def moved(x, step):
            u = np.random.default_rng(0).uniform(0.5, 1.5, x.shape)
            return x + array_module(x).asarray((step * u * to_host(x)).astype(x.dtype))

        def gradient(step):
            saved = self.forward(self.inputs | {n: moved(self.inputs[n], step) for n in self.scale})[1]
            return 1.0 * to_host(self.backward(saved, each(lambda x: moved(x, step), self.upstream))[name])

        found = [0.0]
        with suppress(Exception), np.errstate(all="ignore"):
            found += [OFF * np.abs(np.diff([gradient(i * step) for i in range(8)], 3, axis=0)).max() / scale
                      for step in BESIDE]
        return max(min(x, LITTLE) for x in found if x <= OFF * LITTLE)

    def measure(self, name, slopes, tolerance) -> float:
        """What errors of slopes are parts of: the largest slope, unless that is less than what rounding may do."""
        own = OWN * np.finfo(float).eps * self.size / self.scale[name]
        return max(np.abs(slopes[np.isfinite(slopes)]).max(initial=0), own / tolerance, 0.0 if own else 1e-30)

    def slopes(self, name, steps, claimed, method, tolerance) -> tuple:
        """The slopes along the steps, and what they were found by: "complex" steps or "finite" differences."""
        exact = np.full(len(steps), np.nan)
        with suppress(*[Exception] * (method is None)):     # whatever it raises, finite differences raise it again
            exact = exact if method == "finite" else np.array([self.complex(name, step) for step in steps])
        agrees = self.agree(name, claimed, exact, tolerance)
        if method == "complex" or agrees and self.analytic(name):
            return exact, "complex"
        _need(np.isfinite(self.scale[name]), f"{name} has NaN or infinite entries, along which no differences can be "
              f"asked; allowed: finite ones, or {name} in constants")
        tolerance = tolerance or TOLERANCE["finite"]
        found, off = self.differences(name, steps, claimed, tolerance)
        apart, bar = np.abs(claimed - found), tolerance * self.measure(name, found, tolerance)
        largest = max(np.abs(x[np.isfinite(x)]).max(initial=0) for x in (claimed, found))
        unclear = ~((apart > OFF * off) | (OFF * off <= max(SETTLED * largest, bar)))
        unclear |= (found == 0) & (apart > bar) & (np.abs(claimed - exact) <= tolerance * np.abs(exact))  # rounded away
        near = (np.abs(exact - found) <= bar + OFF * off) & (off < np.inf)
        if agrees and unclear.any() or near.all() and not self.doubtful(name, steps, claimed, exact):
            return exact, "complex"
        zero = np.abs(claimed).max() <= LOW * self.rounding * self.size / self.scale[name]
        _need(zero or not unclear.any(),
              f"differences of forward along {name} do not settle on slopes; allowed: a forward that is continuous and "
              f"finite around its inputs, in more than half precision; for many inputs in float32, or some of which "
              f"are at kinks, as 0 under a relu, greater entries, to ask one by one")
        return np.where((apart > bar) & (apart <= OFF * off), claimed, found), "finite"

    def agree(self, name, claimed, exact, tolerance) -> bool:
        """Whether the claimed slopes are those of complex steps, but for what rounding of the backward's own may do."""
        strict = TOLERANCE["complex"]
        scale = self.measure(name, exact, strict)
        error = np.abs(claimed - exact).max() / scale
        return error <= strict or tolerance is None and error <= LITTLE and error <= self.roughness(name, scale)

    def doubtful(self, name, steps, claimed, exact) -> bool:
        """Whether complex steps and claimed slopes differ by no more than rounding of outputs over each small entry."""
        x, strict = np.abs(to_host(self.inputs[name])), TOLERANCE["complex"]
        moved = [x[step != 0].max() if np.count_nonzero(step) == 1 else self.scale[name] for step in steps]
        own = OWN * np.finfo(float).eps * self.size / np.maximum(moved, 1e-300)
        return (np.abs(claimed - exact) <= np.maximum(own, strict * self.measure(name, exact, strict))).all()

    def differences(self, name, steps, claimed, tolerance):
        """Slopes by finite differences, and how far each may be off where it is not the claimed one."""
        found = np.array([self.finite(name, step, FIVE * self.scale[name])[0] for step in steps])
        bar, off = tolerance * self.measure(name, found, tolerance), np.zeros(len(steps))
        for i in np.flatnonzero(~(np.abs(claimed - found) <= bar)):
            found[i], off[i] = self.finer(name, steps[i], claimed[i])
        return found, off

    def finer(self, name, step, claimed) -> tuple[float, float]:
        """The slope along a step by differences of many sizes, and how far it may be off.

        At a kink, where slopes to both sides stay apart, it is the one between them that is nearest to the claimed.
        Otherwise that of the finest size that has settled, or of those that agree the one that is off least.
        """
        coarse = max(self.rounding, self.coarse)
        self.rounding = max(self.rounding, min(coarse, SETTLED / LOW))      # what is flat may look like half precision
        moved, scale = np.abs(to_host(self.inputs[name])[step != 0]), self.scale[name]
        left, right = (self.outputs(name, x * FIRST * step) for x in (-scale, scale))
        rounding = coarse * (self.first[left != right] ** 2).sum() ** 0.5             # of outputs that feel it

        def at_kink(h):
            sides = np.array([self.sides(name, step, h / n) for n in (1, 4, 16)])       # (3, 2, outputs)
            gaps = np.abs(np.diff(sides, axis=1)).sum((1, 2))
            if gaps.max() < 2 * gaps.min() and gaps.min() > max(1e-9 * np.abs(sides).max(), 100 * rounding / h):
                low, high = sides[-1].min(0).sum() - 1e-4 * gaps[-1], sides[-1].max(0).sum() + 1e-4 * gaps[-1]
                return np.clip(claimed, low, high), 0.0 if moved.size == 1 else np.inf  # many kinks tell little
        if found := at_kink((moved.max() or scale) * NEAR):
            return found
        least = moved[moved > 0].min(initial=scale if moved.max() else TINY * min(scale, 1.0))
        h = scale * FIRST * 0.25 ** np.arange(RUNGS + np.log2(scale / least) // 2)
        found, bent = np.array([self.finite(name, step, x) for x in h]).T
        found[(found == 0) & (h < TINY * scale) & (moved.max() == 0)] = np.nan      # as of log(1 + x) at 0
        change = np.nan_to_num(np.abs(np.diff(found)), nan=np.inf)
        cancelled = plateau(bent, np.abs(found) * h, OFF * rounding)
        noise = (rounding + cancelled + coarse * moved.min(initial=least) * np.abs(found)) / h    # of outputs, of steps
        best, off, at = np.nan, np.inf, None
        for x, its, by in zip(found[1:-1], np.maximum(change[1:], change[:-1]) + noise[1:-1], h[1:-1], strict=True):
            same, settled = abs(x - best) <= OFF * (its + off), OFF * its <= SETTLED * np.fmax(abs(x), abs(best))
            if its < np.inf and (off == np.inf or (its < off if same else settled)):
                best, off, at = x, its, by
        return at and at_kink(at) or (best, off)

    @cached_property
    def coarse(self) -> float:
        """The rounding of a forward that computes in lower precision than it answers, else 0.

        A change of the inputs that is smaller than this leaves most outputs bit for bit as they are, though their
        dtype would show it.  Which outputs feel the inputs is read off a change of a hundredth.
        """
        real = {n: self.inputs[n] for n in self.scale}
        moves = {n: np.abs(to_host(x)) * self.rng.standard_normal(x.shape) for n, x in real.items()}

        def moved(by):
            return self.weighted(self.inputs | {n: x + array_module(x).asarray(by * moves[n]) for n, x in real.items()})

        slopes, fine = np.abs(moved(0.01) - self.first) / 0.01, np.finfo(self.first.dtype).eps
        for part in 1e-9, 4e-7, 4e-3:
            seen = part * slopes > 4 * fine * np.abs(self.first)
            if part > fine and (moved(part) == self.first)[seen].sum() <= seen.sum() / 2:
                return part * (part > max(1e-9, 4 * fine))
        return 0.1

    def analytic(self, name) -> bool:
        """Whether slopes to both sides do not speak against a complex step; at a kink, where they differ, none do.

        Where they do, finer ones are asked, to which rounding leaves seven digits: a forward that is nearly singular
        bends within a millionth of its inputs.
        """
        direction, scale = self.rng.standard_normal(self.inputs[name].shape), self.scale[name]
        step = self.complex(name, direction)
        fine = 1e7 * np.finfo(float).eps * self.size / max(abs(step) * scale, 1e-300)

        def against(h):
            left, right = np.sum(self.sides(name, direction, h * scale), axis=1)
            clear = 1e-6 * max(map(abs, (left, right, step))) + 1e-8 * self.size / scale
            return abs((left + right) / 2 - step) > max(10 * abs(left - right), clear)
        return not all(against(h) for h in (NEAR, np.clip(fine, NEAR / 1000, NEAR)))

    def weighted(self, inputs) -> np.ndarray:
        """Weight times output, of all outputs in a row; NaN where real inputs make the forward raise something."""
        try:
            with np.errstate(all="ignore"):
                y = as_tuple(self.forward(inputs)[0])
        except Exception:
            if any(map(np.iscomplexobj, inputs.values())):
                raise
            y = tuple(np.full(w.shape, np.nan) for w in self.weights)
        return np.concatenate([(w * to_host(x)).ravel() for w, x in zip(self.weights, y, strict=True)])

    def outputs(self, name, step) -> np.ndarray:
        """The same where `step` is added to an input."""
        inputs = self.lifted if np.iscomplexobj(step) else self.inputs
        return self.weighted(inputs | {name: inputs[name] + array_module(inputs[name]).asarray(step)})

    def complex(self, name, direction) -> float:
        """By one complex step."""
        with warnings.catch_warnings():                     # of a forward that writes into arrays of real numbers
            warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
            value = self.outputs(name, 1j * COMPLEX * direction).sum()
        if not np.iscomplexobj(value):
            raise ValueError("forward gives real numbers for complex ones, as abs does; allowed: method None, 'finite'")
        return value.imag / COMPLEX

    def finite(self, name, direction, h) -> tuple[float, float]:
        """By five points in a row, and how far outputs there are off parabolas."""
        y = np.array([self.outputs(name, n * h * direction) if n else self.first for n in (-2, -1, 0, 1, 2)])
        bent = np.hypot.reduce(np.abs(np.diff(y, 3, axis=0)).max(axis=0))
        return (8 * (y[3] - y[1]) - (y[4] - y[0])).sum() / (12 * h), bent

    def sides(self, name, direction, h) -> tuple[np.ndarray, np.ndarray]:
        """Of every output, to the left and to the right."""
        left, here, right = (self.outputs(name, n * h * direction) for n in (-1, 0, 1))
        return (here - left) / h, (right - here) / h
