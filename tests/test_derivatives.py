"""`check.derivative` calls no right pair wrong, however hard its slopes are to find, and no wrong one right."""

import math
import re

import numpy as np
import pytest

from refattn import check
from refattn.attention import VARIANTS


def real(f):
    """f of the real parts: the complex step sees nothing of it."""
    return lambda a: f({n: np.real(x) for n, x in a.items()})


def page(name, *names):
    """A variant's pair, as one of real numbers."""
    row = VARIANTS[name]
    return (real(lambda a: row.forward(*(a[n] for n in "qkv"), bias=a.get("bias"))),
            lambda saved, do: dict(zip(names, row.backward(saved, do), strict=False)))


def unit(a):
    return a["x"] / np.linalg.norm(a["x"], axis=-1, keepdims=True), a["x"]


def unit_backward(x, do):
    r = np.linalg.norm(x, axis=-1, keepdims=True)
    return {"x": do / r - x * (do * x).sum(-1, keepdims=True) / r**3}


def layer_norm(a):
    n = (a["x"] - a["x"].mean(-1, keepdims=True)) / np.sqrt(a["x"].var(-1, keepdims=True))    # of abs, not analytic
    return n * a["w"], (a["x"], n, a["w"])


def layer_norm_backward(saved, do):
    x, n, w = saved
    dn = do * w
    dx = (dn - dn.mean(-1, keepdims=True) - n * (dn * n).mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
    return {"x": dx, "w": (do * n).sum(0)}


def elementwise(f, slope):
    return real(lambda a: (f(a["x"]), a["x"])), lambda x, do: {"x": do * slope(x)}


def softmax(a):
    e = np.exp(np.float32(a["x"]))
    p = e / e.sum(-1, keepdims=True)
    return p, p


def masked(a):
    e = np.exp(a["s"] + a["m"])
    p = e / e.sum(-1, keepdims=True)
    return p, p


def masked_backward(p, do):
    ds = p * (do - (do * p).sum(-1, keepdims=True))
    return {"s": ds, "m": ds}


RELU = elementwise(lambda x: np.maximum(x, 0), lambda x: x > 0)
LOG = elementwise(np.log, lambda x: 1 / x)
PAIRS = {                      # forward and backward, inputs, and a factor that shows
    "a relu's kinks inside": (page("hyla", "q", "k", "v"), lambda g: {n: g((2, 16, 4, 8)) for n in "qkv"}, 1e-6),
    "a gradient of zero": (page("softmax", "q", "k", "v", "bias"), lambda g: {
        "q": g((2, 5, 3, 4)), "k": g((2, 6, 3, 4)), "v": g((2, 6, 3, 4)), "bias": g((3, 5, 1))}, 1e-6),
    "zeros under a relu": (RELU, lambda g: {"x": np.round(g((3, 6)))}, 1e-3),
    "small inputs": ((unit, unit_backward), lambda g: {"x": 0.02 * g((3, 6))}, 1e-6),
    "tiny inputs": ((unit, unit_backward), lambda g: {"x": 1e-5 * g((3, 6))}, 1e-6),
    "small inputs, by directions": ((unit, unit_backward), lambda g: {"x": 0.02 * g((30, 6))}, 1e-6),
    "large inputs": (elementwise(lambda x: np.tanh(x / 1e4), lambda x: (1 - np.tanh(x / 1e4) ** 2) / 1e4),
                     lambda g: {"x": 1e4 * g((3, 6))}, 1e-6),
    "far from zero": ((real(layer_norm), layer_norm_backward), lambda g: {"x": g((4, 6)) + 1e5, "w": g(6)}, 1e-3),
    "not analytic": ((layer_norm, layer_norm_backward), lambda g: {"x": g((4, 6)), "w": g(6)}, 1e-6),
    "near the edge of the domain": (LOG, lambda g: {"x": np.abs(g(9)) ** 3 + 1e-4}, 1e-6),
    "entries of many sizes": (elementwise(lambda x: np.log(np.abs(x)), lambda x: 1 / x), lambda g: {
        "x": 10.0 ** np.arange(-8, 9, 2) * g(9)}, 1e-6),
    "rows of many sizes": ((unit, unit_backward), lambda g: {
        "x": 10.0 ** np.arange(-8, 9, 4)[:, None] * g((5, 4))}, 1e-6),
    "rows of many sizes, by directions": ((unit, unit_backward), lambda g: {
        "x": 10.0 ** np.linspace(-8, 8, 50)[:, None] * g((50, 4))}, 1e-3),
    "near a kink": (RELU, lambda g: {"x": 10.0 ** np.arange(-8, 9, 2) * g(9)}, 1e-6),
    "far above its slopes": (elementwise(lambda x: 1e8 + x**2, lambda x: 2 * x), lambda g: {"x": g(9)}, 1e-3),
    "steep at the edge": (elementwise(lambda x: x**0.3, lambda x: 0.3 * x**-0.7), lambda g: {
        "x": np.abs(g(9)) ** 8}, 1e-3),
    "clipped": (elementwise(lambda x: np.clip(x, -1, 1), lambda x: np.abs(x) < 1), lambda g: {
        "x": np.round(2 * g((3, 6))) / 2}, 1e-3),
    "a row of zeros": (elementwise(lambda x: x / np.sqrt(x**2 + 1e-30), lambda x: 1e-30 / (x**2 + 1e-30) ** 1.5),
                       lambda g: {"x": np.array([0.0, 0.0, 1.0])}, 1e-3),
    "a pole nearby": (elementwise(lambda x: 1 / (1 - x), lambda x: 1 / (1 - x) ** 2), lambda g: {
        "x": np.array([1 - 1e-9, 0.5])}, 1e-3),
    "a mask among the inputs": ((masked, masked_backward), lambda g: {
        "s": g((4, 4)), "m": np.where(np.tri(4), 0, -1e9)}, 1e-6),
    "far inputs": (elementwise(lambda x: np.sin(x - 1e8), lambda x: np.cos(x - 1e8)), lambda g: {
        "x": 1e8 + g(5)}, 1e-3),
    "saturated": (elementwise(np.tanh, lambda x: 1 - np.tanh(x) ** 2), lambda g: {"x": np.array([6.0, -7, 8])}, 1e-6),
    "float32 inside, float64 out": (elementwise(lambda x: np.sin(np.float32(x)) * 1.0, np.cos), lambda g: {
        "x": g((3, 5))}, 0.05),
    "float32 inside": ((real(softmax), lambda p, do: {"x": p * (do - (p * do).sum(-1, keepdims=True))}),
                       lambda g: {"x": g((3, 6))}, 0.05),
}


@pytest.mark.parametrize("method", [None, "finite"])
@pytest.mark.parametrize("name", PAIRS)
def test_a_right_pair_is_not_called_wrong_and_one_off_by_a_factor_is(name, method):
    (forward, backward), make, factor = PAIRS[name]
    for seed in range(4):
        inputs = make(np.random.default_rng(seed).standard_normal)
        report = check.derivative(forward, backward, inputs, method=method, rng=seed + 1000)
        assert report.ok, f"seed {seed}: {report}"
        for wrong in list(inputs)[:1]:
            spoiled = check.derivative(forward, lambda saved, do, wrong=wrong: {
                n: g * (1 + factor * (n == wrong)) for n, g in backward(saved, do).items()}, inputs, method=method,
                rng=seed + 1000)
            assert [n for n, e in spoiled.errors.items() if e > spoiled.allowed[n]] == [wrong], f"{seed}: {spoiled}"


def test_a_wrong_gradient_does_not_speak_against_another():
    g = np.random.default_rng(0).standard_normal
    report = check.derivative(layer_norm, lambda s, do: layer_norm_backward(s, do) | {"w": (do * s[0]).sum(0)},
                              {"x": g((4, 6)), "w": g(6)})
    assert re.fullmatch(r"dx: relative error .*, agrees\ndw: relative error .*, WRONG: dw\[.\]: backward .*, complex "
                        r"step .*", str(report))


def test_a_gradient_that_the_complex_step_alone_confirms_is_wrong():
    x = {"x": np.random.default_rng(0).standard_normal(6)}
    for power in 2, 3:                                                  # a complex step takes np.real for a constant
        report = check.derivative(lambda a: (a["x"] ** 2 * np.real(a["x"]), a["x"]),
                                  lambda x, do, n=power: {"x": n * x * x * do}, x)
        assert report.ok == (power == 3), report


def test_many_inputs_at_kinks_are_asked_one_by_one_or_not_at_all():
    x = {"x": np.round(np.random.default_rng(0).standard_normal((30, 60)))}
    with pytest.raises(ValueError, match="differences of forward along x do not settle on slopes.*greater entries"):
        check.derivative(*RELU, x)
    assert check.derivative(*RELU, x, entries=1_800).ok
    forward = RELU[0]
    assert not check.derivative(forward, lambda x, do: {"x": do * (x > 0) * (1 + 1e-3 * (x == 1))}, x, entries=1_800).ok


def test_what_is_small_or_parallel_to_the_inputs_is_asked_too():
    x = {"x": np.random.default_rng(0).standard_normal(6)}              # as the upstream gradient might be drawn
    assert check.derivative(unit, unit_backward, x).ok
    assert not check.derivative(unit, lambda x, do: {"x": 0 * x}, x).ok
    for factor in 1, 0, -1:
        tiny = lambda a: (1e-13 * np.sin(a["x"]), a["x"])               # noqa: E731
        assert check.derivative(tiny, lambda x, do, f=factor: {"x": f * 1e-13 * do * np.cos(x)}, x).ok == (factor == 1)


def test_a_forward_may_raise_beside_its_inputs():
    x = {"x": np.array([1e-2, 1.0, 2.0])}
    for factor in 1, 1.001:
        report = check.derivative(lambda a: (np.array([math.log(x) for x in np.real(a["x"])]), a["x"]),
                                  lambda x, do, f=factor: {"x": f * do / x}, x, method="finite")
        assert report.ok == (factor == 1), report


def test_a_kink_in_every_output_bounds_each():
    """A layer that begins at zero: the slopes of several outputs to one side need not enclose a right gradient."""
    def forward(a):
        z = np.real(a["x"]) @ np.real(a["w"]) + np.real(a["b"])
        return np.maximum(z, 0), (np.real(a["x"]), np.real(a["w"]), z)

    def backward(saved, do):
        x, w, z = saved
        dz = do * (z > 0)
        return {"x": dz @ w.T, "w": x.T @ dz, "b": dz.sum(0)}

    x = np.random.default_rng(0).standard_normal((6, 3))
    assert check.derivative(forward, backward, {"x": x, "w": np.zeros((3, 4)), "b": np.zeros(4)}).ok


def product(a):
    return a["x"] @ a["w"], (a["x"], a["w"])


def product_backward(saved, do):
    return {"x": do @ saved[1].T, "w": saved[0].T @ do}


@pytest.mark.parametrize("shapes", [((5, 4), (4, 3)), ((2, 1), (1, 2))])
def test_a_backward_in_float32_is_right_whatever_it_answers_in(shapes):
    def single(*arrays):
        return [np.float32(x.real) for x in arrays]

    def in_float32(saved, do):
        return {n: np.float64(g) for n, g in product_backward(single(*saved), np.float32(do)).items()}
    for seed in range(10):
        x = dict(zip("xw", map(np.random.default_rng(seed).standard_normal, shapes), strict=True))
        assert check.derivative(product, in_float32, x, rng=seed).ok
        assert check.derivative(lambda a: ((y := product(a))[0], single(*y[1])), product_backward, x, rng=seed).ok
        for backward, factor in (in_float32, 1e-4), (product_backward, 1e-10):
            wrong = check.derivative(product, lambda *s, b=backward, f=factor: {n: g * (1 + f) for n, g in b(
                *s).items()}, x, rng=seed)
            assert not any(map(wrong.agrees, wrong.errors)), wrong


def test_a_backward_may_lose_what_its_system_does():
    def solve(a):
        y = np.linalg.solve(a["m"], a["b"])
        return y, (a["m"], y)

    def solve_backward(saved, do):
        db = np.linalg.solve(saved[0].T, do)
        return {"m": -db @ saved[1].T, "b": db}
    # seeds 1, 77 and 325 were called wrong before a complex step was held to the rounding of the backward, too
    for seed, least in [*((s, least) for s in range(4) for least in (1e-4, 1e-6, 1e-8)), (77, 1e-8), (325, 1e-8)]:
        g = np.random.default_rng(seed).standard_normal
        u, v = (np.linalg.qr(g((5, 5)))[0] for _ in range(2))
        x = {"m": u * np.geomspace(1, least, 5) @ v, "b": g((5, 2))}
        assert (report := check.derivative(solve, solve_backward, x, rng=seed)).ok, report
        assert not check.derivative(solve, lambda *s: {n: 1.0001 * g for n, g in solve_backward(*s).items()}, x).ok


@pytest.mark.parametrize("method", [None, "finite"])
def test_a_gradient_is_missed_where_input_and_output_are_zero(method):
    """Finer steps than rounding of 1 + x give slopes of exactly 0 there, which settle."""
    for x in np.zeros(3), np.array([0.0, 0.0, 1.0]):
        for seed in range(4):
            right, none = (check.derivative(lambda a: (np.log(1 + a["x"]), a["x"]), backward, {"x": x}, rng=seed,
                                            method=method).ok
                           for backward in (lambda x, do: {"x": do / (1 + x)}, lambda x, do: {"x": 0 * do}))
            assert right and not none, (x, seed)


def test_a_kink_that_small_entries_are_beside_is_a_kink():
    for seed in range(8):
        x = np.concatenate([np.random.default_rng(seed).standard_normal(199), [1e-7, -1e-7, 0.0]])
        try:
            report = check.derivative(lambda a: (np.maximum(a["x"], 0), a["x"]), lambda x, do: {"x": do * (x > 0)},
                                      {"x": x}, rng=seed)
        except ValueError as error:
            assert "greater entries, to ask one by one" in str(error)
        else:
            assert report.ok, (seed, report)


def test_inputs_drawn_with_the_seed_of_the_check_hide_nothing():
    """An upstream gradient that is x is radial, and x / |x| has none along it."""
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal(9)
        right, none = (check.derivative(unit, backward, {"x": x}, rng=seed).ok
                       for backward in (unit_backward, lambda x, do: {"x": 0 * do}))
        assert right and not none, seed


def test_a_backward_more_exact_than_its_forward_is_right():
    """sin(x) / x is 1 to all digits at 1e-9, and a complex step gives 0 there; a series gives -x / 3."""
    def backward(x, do):
        small, y = np.abs(x) < 1e-4, np.where(np.abs(x) < 1e-4, 1, x)
        return {"x": do * np.where(small, -x / 3, (np.cos(y) * y - np.sin(y)) / y**2)}
    x = np.array([1e-9, 2.0, -0.5, 1e-7, 1e-12, 3e-5])
    for seed in range(4):
        right, wrong = (check.derivative(lambda a: (np.sin(a["x"]) / a["x"], a["x"]), lambda x, do, f=f: {
            "x": f * backward(x, do)["x"]}, {"x": x}, rng=seed) for f in (1, 1.00001))
        assert right.ok and not wrong.ok, (seed, right)


def sure_entropy(a):
    """Cross-entropies of rows whose first logit is far above the others: log(1 + little), which rounds like 1."""
    e = np.exp(a["x"] - a["x"][:, :1])
    return np.log(e.sum(1)), e / e.sum(1)[:, None]


@pytest.mark.parametrize("method", [None, "finite"])
@pytest.mark.parametrize("forward, backward, draw", [
    (sure_entropy, lambda p, do: {"x": do[:, None] * (p - np.eye(5)[0])}, lambda g: g((3, 5)) + 12 * np.eye(5)[0]),
    (lambda a: (np.log(1 + a["x"]**2), a["x"]), lambda x, do: {"x": do * 2 * x / (1 + x**2)}, lambda g: 1e-3 * g(4)),
    (lambda a: (1 - np.cos(a["x"]), a["x"]), lambda x, do: {"x": do * np.sin(x)}, lambda g: 1e-3 * g(6)),
    (lambda a: (np.sin(a["x"]) + 1e6 - 1e6, a["x"]), lambda x, do: {"x": do * np.cos(x)}, lambda g: g(6))])
def test_differences_that_a_forward_rounds_away_are_no_slopes_of_zero(forward, backward, draw, method):
    """Of so small steps its outputs stay bit for bit as they are: a gradient of 0 was called right.

    And a right one wrong, where two sizes of differences agreed on multiples of what greater numbers are rounded to.
    """
    for seed in range(12):
        x = {"x": draw(np.random.default_rng(seed).standard_normal)}
        right, none = (check.derivative(forward, lambda *s, f=f: {"x": f * backward(*s)["x"]}, x, rng=seed,
                                        method=method) for f in (1, 0))
        assert right.ok and not none.ok, (seed, right, none)


def test_what_is_flat_around_its_inputs_is_not_held_to_less():
    """Outputs that stay as they are were taken for those of half precision, and 40 % was allowed."""
    for seed in 3, 10, 33:
        right, wrong = (check.derivative(lambda a: (np.maximum(0, a["x"] - 1.001), a["x"]), lambda x, do, least=least: {
            "x": do * (x > least)}, {"x": np.array([1.0, 1.0, 2.0])}, rng=seed) for least in (1.001, 0.5))
        assert right.ok and not wrong.ok, (seed, wrong)


def test_of_gradients_in_half_precision_1_percent_is_allowed():
    """A hundred times their rounding was, 10 %."""
    for times in 1.0, 1.05:
        report = check.derivative(lambda a: (np.sin(3 * a["x"]), a["x"]), lambda x, do, by=times: {
            "x": (by * 3 * np.cos(3 * x) * do).astype("float16")}, {"x": np.linspace(0.2, 1, 5)})
        assert report.ok == (times == 1) and report.allowed["x"] == 0.01, report


@pytest.mark.filterwarnings("always")
def test_a_forward_that_writes_into_real_arrays_is_judged_by_finite_differences_without_a_warning(recwarn):
    def forward(inputs):
        x, y = inputs["x"], np.zeros(3)
        for i in range(3):
            y[i] = x[i] ** 2
        return y, x
    x = np.array([1.0, -2.0, 0.5])
    for factor in 2, 3:
        report = check.derivative(forward, lambda x, dy, by=factor: {"x": by * x * dy}, {"x": x})
        assert report.ok == (factor == 2) and report.tolerance == 1e-9 and not recwarn


def test_a_tolerance_of_zero_allows_what_is_exact():
    report = check.derivative(lambda a: (0 * a["x"], a["x"]), lambda x, do: {"x": 0 * do}, {"x": np.ones(3)},
                              tolerance=0)
    assert report.ok and "agrees" in str(report), report


def square(a):
    return a["x"] ** 2, a["x"]


def square_backward(x, do):
    return {"x": 2 * x * do}


NOISE = np.random.default_rng(0)


@pytest.mark.parametrize("forward, backward, options, words", [
    (lambda a: a["x"] ** 2, square_backward, {}, "forward returned a ndarray; allowed: output, saved"),
    (lambda a: ([a["x"]], 0), square_backward, {}, "forward returned an output that is a list; allowed: arrays"),
    (lambda a: (a["x"] * NOISE.random(), a["x"]), square_backward, {}, "forward answers differently when asked again"),
    (lambda a: (a["x"].__imul__(2), a["x"]), square_backward, {}, "x was changed in place; allowed: it stays as it is"),
    (lambda a: (a["x"] / 0, a["x"]), square_backward, {}, "forward gave NaN or infinite numbers; allowed: finite ones"),
    (square, lambda x, do: {"x": np.multiply(do, 2 * x, out=do)}, {}, "the gradient of the output was changed"),
    (square, lambda x, do: {"x": None, "y": do}, {}, "backward returned no gradient of x; it returned y"),
    (square, lambda x, do: {"x": [1.0]}, {}, "backward returned dx as a list; allowed: an array"),
    (square, square_backward, {"constants": "x"}, "constants is 'x'; allowed: a tuple of names"),
    (square, square_backward, {"tolerance": "1e-3"}, "tolerance is '1e-3'; allowed: None, or a number from 0"),
    (square, square_backward, {"tolerance": -1}, "tolerance is -1; allowed: None, or a number from 0"),
    (square, square_backward, {"inputs": {"x": np.ones(3), "w": [0.5]}}, "w is a list; allowed: an array of real"),
    (square, square_backward, {"inputs": {"x": np.ones(3), "w": 0.5}}, "w is a float; allowed: an array of real"),
    (square, square_backward, {"inputs": {"x": np.ones(3), "w": np.ones(3) + 0j}}, "w is a ndarray; allowed: an"),
    (square, square_backward, {"inputs": np.ones(3)}, "inputs is a ndarray; allowed: {name: array}"),
    (square, square_backward, {"inputs": {"x": np.ones((0, 3))}}, "inputs are x; allowed: one of floats, not empty"),
    (lambda a: (np.exp(a["x"]), np.exp(a["x"])), lambda y, do: {"x": 2 * do * y},
     {"inputs": {"x": np.array([-np.inf, 1.0])}}, "x has NaN or infinite entries, along which no differences"),
])
def test_a_pair_that_cannot_be_judged_gets_one_line(forward, backward, options, words):
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=re.escape(words)) as error:
        check.derivative(forward, backward, **{"inputs": {"x": np.full((2, 3), 1.5)}, **options})
    assert "\n" not in str(error.value)


def test_what_is_a_constant_need_be_no_array():
    """Nor what is no number of a gradient: of lists and floats nobody was told that they were not asked about."""
    inputs = {"x": np.ones(3), "w": [0.5], "p": 0.5, "z": 1j, "n": 3, "ids": np.ones(3, int), "bias": None}
    assert check.derivative(square, square_backward, inputs, constants=("w", "p", "z")).errors.keys() == {"x"}


@pytest.mark.parametrize("mask", [np.eye(4), np.where(np.eye(4), 1.0, np.nan), np.eye(4, dtype=bool)])
def test_a_constant_is_not_moved(mask):
    """Where it is compared with a number nothing would be left of it; NaN in it is no change."""
    def forward(a):
        return a["x"] @ a["w"] * (a["m"] == 1), (a["x"], a["w"], a["m"] == 1)

    def backward(saved, do):
        x, w, m = (y.astype(np.float32) for y in saved)
        do = do.astype(np.float32) * m
        return {"x": do @ w.T, "w": x.T @ do}
    rng = np.random.default_rng(0)
    inputs = {"x": rng.standard_normal((4, 5)), "w": rng.standard_normal((5, 4)), "m": mask}
    assert check.derivative(forward, backward, inputs, constants=("m",)).ok
    assert not check.derivative(forward, lambda *a: {n: 1.1 * g for n, g in backward(*a).items()}, inputs,
                                constants=("m",)).ok


@pytest.mark.parametrize("second", ["added", "None", "missing", "misshapen"])
def test_a_backward_that_answers_otherwise_when_asked_again_is_refused(second):
    calls = []

    def backward(x, do):
        calls.append(do)
        if len(calls) == 1:
            calls[0] = 2 * x * do
            return {"x": calls[0]}
        calls[0] += 2 * x * do                              # into the array of the first answer
        return {"added": {"x": calls[0]}, "None": {"x": None}, "missing": {}, "misshapen": {"x": x[None]}}[second]

    with pytest.raises(ValueError, match="backward answers differently when asked again"):
        check.derivative(lambda a: (a["x"] ** 2, a["x"]), backward, {"x": np.arange(1.0, 4)})
