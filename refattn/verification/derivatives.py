"""Is a backward the derivative of its forward?"""

from functools import partial
from typing import NamedTuple

import numpy as np

from ..xp import array_module, to_host
from .deviation import Deviation, deviation

STEP = {"complex": 1e-30, "finite": 1e-3}
TOLERANCE = {"complex": 1e-12, "finite": 1e-9}
DOUBTED = 1e-6                 # a complex step that says so much against a backward is held against finite differences
NEAR = 1e-6                    # the step of differences that a complex step in favour of one is held against


class Derivative(NamedTuple):
    """What was found: one Deviation for each input, and the tolerance they are held to."""
    errors: dict[str, Deviation]
    tolerance: float

    @property
    def error(self) -> Deviation:
        """The largest one."""
        return max(self.errors.values(), default=Deviation(0))

    @property
    def ok(self) -> bool:
        """Whether every gradient is the derivative."""
        return self.error <= self.tolerance

    def __str__(self):
        return "\n".join(f"d{name}: relative error {error:.1e}, " + (
            "agrees" if error <= self.tolerance else f"WRONG: {error.where}") for name, error in self.errors.items())


def as_tuple(y) -> tuple:
    """Outputs as a tuple, whether there is one or several."""
    return y if isinstance(y, tuple) else (y,)


def random_like(y, rng):
    """Normal numbers in the form, the dtypes and the array modules of an output."""
    def one(x):
        return array_module(x).asarray(np.asarray(rng.standard_normal(x.shape)).astype(x.dtype))
    return tuple(map(one, y)) if isinstance(y, tuple) else one(y)


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
    1e-9) asks nothing of it.  Without a method it is the complex step, and finite differences where forward refuses
    complex numbers, gives real ones for them or, as with an abs inside, is not analytic: where a backward that is off
    by more than 1e-6 in the complex step is so by less than a thousandth of that in differences, or where in a random
    direction the slopes to both sides agree with one another and not with the complex step.
    All of it is asked in float64, to which float inputs are raised.  Inputs of up to `entries` numbers are checked
    entry by entry, larger ones in as many random directions as `directions`.  Integer and boolean arrays, None, and
    names in `constants` are not differentiated.  Raises ValueError for an unknown method, a gradient that is missing,
    inputs of which none is to be differentiated, results in a lower precision unless a tolerance is given, and, with
    method "complex", a forward that gives real numbers for complex ones.
    """
    if method not in (*STEP, None):
        raise ValueError(f"method {method!r} is unknown; allowed: None, {', '.join(STEP)}")
    rng = np.random.default_rng(0) if rng is None else rng
    inputs = {n: x.astype("float64") if is_float(x) else x for n, x in inputs.items()}
    if method is None:
        told = partial(derivative, forward, backward, inputs, constants=constants, entries=entries,
                       directions=directions, tolerance=tolerance)
        seed = rng.integers(2**63)
        try:
            found = told(rng=np.random.default_rng(seed), method="complex")
            good = found.error <= DOUBTED or found.ok
            if good and _analytic(forward, inputs, found.errors, np.random.default_rng(seed)):
                return found
        except Exception:                                   # whatever it raises, finite differences raise it again
            return told(rng=np.random.default_rng(seed), method="finite")
        finite = told(rng=np.random.default_rng(seed), method="finite")
        return finite if good or finite.error <= 1e-3 * found.error else found
    output, saved = forward(inputs)
    upstream = random_like(output, rng)
    gradients = backward(saved, upstream)
    if not isinstance(gradients, dict):
        raise ValueError(f"backward returned a {type(gradients).__name__}; allowed: {{name: gradient}}")
    low = [x.dtype for x in (*as_tuple(output), *gradients.values()) if is_float(x) and x.dtype.itemsize < 8]
    if low and tolerance is None:
        raise ValueError(f"forward or backward gives {low[0]} for float64; allowed: float64, or a tolerance")
    weights = [to_host(x) for x in as_tuple(upstream)]
    slope, errors = _complex_slope if method == "complex" else _finite_slope, {}
    asked = {name: x for name, x in inputs.items() if is_float(x) and name not in constants}
    if not asked:
        raise ValueError(f"inputs are {', '.join(inputs) or 'none'}; allowed: at least one of floats, no constant")
    for name, x in ((name, x) for name, x in asked.items() if x.size):
        if gradients.get(name) is None:
            raise ValueError(f"backward returned no gradient of {name}; it returned {', '.join(gradients) or 'none'}")
        g = to_host(gradients[name])
        if g.shape != x.shape:
            errors[name] = Deviation(np.inf, f"d{name} has shape {g.shape}, {name} has {x.shape}")
            continue
        whole = x.size > entries
        steps = rng.standard_normal((directions, x.size)) / x.size ** 0.5 if whole else np.eye(x.size)
        slopes = np.array([slope(forward, weights, inputs, name, step.reshape(x.shape)) for step in steps])
        words = f": backward {{}}, {'complex step' if method == 'complex' else 'finite differences'} {{}}"
        errors[name] = (deviation(f"d{name} along direction ", steps @ g.ravel(), slopes, words=words) if whole else
                        deviation(f"d{name}", g, slopes.reshape(x.shape), words=words))
    return Derivative(errors, TOLERANCE[method] if tolerance is None else tolerance)


def _value(forward, weights, inputs, name, step):
    y = as_tuple(forward(inputs | {name: inputs[name] + array_module(inputs[name]).asarray(step)})[0])
    return sum((w * to_host(part)).sum() for w, part in zip(weights, y, strict=True))


def _complex_slope(forward, weights, inputs, name, direction):
    lifted = {n: x.astype("complex128") if is_float(x) else x for n, x in inputs.items()}
    h = STEP["complex"]
    value = _value(forward, weights, lifted, name, 1j * h * direction)
    if not np.iscomplexobj(value):
        raise ValueError("forward gives real numbers for complex ones, as abs does; allowed: method None, 'finite'")
    return value.imag / h


def _analytic(forward, inputs, names, rng) -> bool:
    """Whether no input's slopes to both sides speak against its complex step; at a kink, where they differ, none do."""
    outputs = as_tuple(forward(inputs)[0])
    weights = [rng.standard_normal(y.shape) for y in outputs]
    rounding = 1e-8 * sum((np.abs(w) * np.abs(to_host(y))).sum() for w, y in zip(weights, outputs, strict=True))
    for name in names:
        direction = rng.standard_normal(inputs[name].shape)
        left, here, right = (_value(forward, weights, inputs, name, h * direction) for h in (-NEAR, 0, NEAR))
        sides = (here - left) / NEAR, (right - here) / NEAR
        step = _complex_slope(forward, weights, inputs, name, direction)
        gap = abs(sum(sides) / 2 - step)
        if gap > 10 * abs(sides[0] - sides[1]) and gap > 1e-4 * max(map(abs, (*sides, step))) + rounding:
            return False
    return True


def _finite_slope(forward, weights, inputs, name, direction):
    h = STEP["finite"]
    near, far = ((_value(forward, weights, inputs, name, n * h * direction) -
                  _value(forward, weights, inputs, name, -n * h * direction)) / (2 * n * h) for n in (1, 2))
    return (4 * near - far) / 3
