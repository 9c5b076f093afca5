"""Every case passes every check: one table of functions, one table of checks, the product of both."""

from dataclasses import is_dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import find as example
from hypothesis import given
from hypothesis import strategies as st

from refattn import check, layers, losses, ops, params
from refattn.attention import AXES, VARIANTS, masks
from refattn.attention.compositional import Compositional
from refattn.attention.layer import MultiHead
from refattn.attention.value_scores import SCORINGS
from refattn.layers.feed_forward import ACTIVATIONS
from refattn.layers.recompute import Recompute
from refattn.verification import plain_formulas, strategies
from refattn.verification.cases import CASES, ROUTINES, find
from refattn.verification.cases.attention import loops
from refattn.verification.cases.case import FORMS, shape
from refattn.verification.cases.layers import random_parameters
from refattn.verification.derivatives import is_float
from refattn.verification.runs_of_cases import copied, passes, taken_all
from refattn.xp import array_module, to_host
from tests import strict_cupy

ALL = CASES + ROUTINES
NAMES = [case.name for case in ALL]
PAIRS = [pytest.param(case, name, id=f"{case.name}-{name}") for case in ALL for name in check.CHECKS
         if check.applies(name, case)]


@pytest.mark.parametrize("case, name", PAIRS)
def test_case(case, name):
    for seed in range(1 if name == "float32" else 3):       # which takes as many draws as it needs by itself
        assert check.run(name, case, np.random.default_rng(seed)) is not None


@pytest.mark.slow
@pytest.mark.parametrize("case, name", PAIRS)
def test_case_in_many_draws(case, name):
    for seed in range(3 if name == "float32" else 8):
        assert check.run(name, case, np.random.default_rng((1, seed))) is not None


@pytest.mark.parametrize("case", ALL, ids=NAMES)
def test_case_under_the_rules_of_cupy(case):
    on_cupy = case.on(strict_cupy)
    for name in filter(lambda name: check.applies(name, on_cupy), ("array_module", "untouched", "dtype", "derivative")):
        for seed in range(2):
            assert check.run(name, on_cupy, np.random.default_rng(seed)) is not None


@pytest.mark.parametrize("case", [case for case in CASES if case.axes], ids=lambda case: case.name)
def test_case_with_one_entry_along_any_axis(case):
    """One head, one feature, one key: cases draw at least two.  Sizes that a layer was made for are refused."""
    for letter in sorted(filter(str.isalpha, {*"".join(map("".join, case.axes.values()))})):
        short = replace(case, make=lambda rng, letter=letter: taken_all(case, letter, case.make(rng), [0]))
        try:
            case.forward(short.make(np.random.default_rng(0)))
        except ValueError:
            continue
        for name in "loops", "derivative":
            check.run(name, short)


@pytest.mark.parametrize("mask", [partial(masks.causal, 4, 7), partial(masks.window, 6, 3),
                                  partial(masks.off_diagonal, 4)], ids=["causal", "window", "off_diagonal"])
def test_masks_of_sizes_alone_are_made_by_the_module_that_is_named(mask):
    """Their rows have no array that would bring another module along."""
    keep = mask(xp=strict_cupy)
    assert array_module(keep) is strict_cupy
    np.testing.assert_array_equal(to_host(keep), mask())


@pytest.mark.parametrize("name", ["array_module", "untouched"])
def test_a_row_without_arrays_has_nothing_that_another_module_or_a_write_could_change(name):
    assert not check.applies(name, find("masks/window").on(strict_cupy))


@pytest.mark.parametrize("case", [case for case in CASES if case.file == "ops.py"], ids=lambda case: case.name)
def test_plain_formulas_give_what_the_tuned_functions_give(case):
    """Else float32 would be judged against a formula that is off by far."""
    inputs = case.make(np.random.default_rng(0))
    tuned = passes(case, inputs, np.random.default_rng(1))
    plain = passes(plain_formulas.package().verification.cases.find(case.name), inputs, dy=tuned.dy)
    for ours, theirs in zip(*(copied((run.y, run.gradients)) for run in (tuned, plain)), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", [case for case in CASES if case.file in ("ops.py", "losses.py")], ids=lambda x: x.name)
def test_large_numbers_give_finite_ones(case, size=1e4):
    """Of both signs, all as large: exp(x) of 1e4 overflows; warnings are errors."""
    inputs = {name: np.copysign(size, x) if is_float(x) and name not in case.constants else x
              for name, x in case.make(np.random.default_rng(0)).items()}
    found = passes(case, inputs, np.random.default_rng(1))
    for name, x in [*enumerate(found.y), *found.gradients.items()]:
        assert np.isfinite(x).all(), f"{case.name}: output or gradient {name} is not finite, of {size:g} and {-size:g}"


def parts(layer):
    """A layer, and the layers that it is made of."""
    if isinstance(layer, tuple | list):
        return [x for each in layer for x in parts(each)]
    return [layer, *(x for each in vars(layer).values() for x in parts(each))] if is_dataclass(layer) else []


def test_nothing_that_has_a_backward_is_without_a_row():
    """Else no check asks for it, and nothing says so."""
    there = {type(x) for case in CASES for x in parts(case.layer)}
    modules = [import_module(f"refattn.layers.{path.stem}") for path in Path(layers.__path__[0]).glob("[!_]*.py")]
    made = {each for module in modules if module.__name__ != "refattn.layers.protocol" for each in vars(module).values()
            if hasattr(each, "backward") and each.__module__ == module.__name__} - {Recompute}      # of every layer
    wanted = {*(f"ops/{name}" for name in ops.__all__ if f"{name}_backward" in ops.__all__),
              *(f"losses/{name}" for name in losses.__all__), *(f"layers/FeedForward {name}" for name in ACTIVATIONS)}
    missing = sorted({each.__name__ for each in made - there} | {
        name for name in wanted if not any(case.name.startswith(name) for case in CASES)})
    assert not missing, f"{', '.join(missing)}: no row in refattn/verification/cases/"


LAYERS = {name: MultiHead(8, 2, 3, variant=name) for name in VARIANTS}
LAYERS |= {f"compositional, {scoring}": Compositional(8, 2, 3, 4, 5, 6, scoring) for scoring in SCORINGS}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_no_token_is_no_error_and_no_key_gives_the_bias_alone(layer, dtype):
    p, grads = (params.view(random_parameters(np.random.default_rng(0), layer).astype(dtype), layer.parameters())
                for _ in range(2))
    some, none = np.random.default_rng(1).standard_normal((2, 3, 8)).astype(dtype), np.zeros((2, 0, 8), dtype)
    for x, context in (none, None), (some, none):
        y, saved = layer.forward(p, x, context=context)
        back = layer.backward(p, saved, y, grads)
        np.testing.assert_array_equal(y, np.broadcast_to(p.bo, x.shape))
        assert not back.x.any() and back.x.shape == x.shape
        assert context is None or back.context.shape == context.shape
        assert {each.dtype for each in (y, back.x, back.context) if each is not None} == {x.dtype}


@pytest.mark.gpu
@pytest.mark.parametrize("name", check.CHECKS)
@pytest.mark.parametrize("case", ALL, ids=NAMES)
def test_case_on_a_gpu(case, name):
    cupy = pytest.importorskip("cupy")
    for seed in range(2):
        check.run(name, case.on(cupy), np.random.default_rng(seed))


def test_cases_have_derivatives_and_routines_have_none():
    assert all(check.applies("derivative", case) for case in CASES)
    assert not any(check.applies("derivative", case) for case in ROUTINES)


@pytest.mark.parametrize("name", check.CHECKS)
def test_every_check_applies_to_several_cases(name):
    on = strict_cupy if name == "array_module" else np
    assert sum(check.applies(name, case.on(on)) for case in ALL) >= 10


def test_an_unknown_check_has_no_tolerance():
    with pytest.raises(ValueError, match="check is 'loop'; allowed: derivative, loops, "):
        check.tolerance(find("attention/hyla"), "loop")


def test_a_check_that_compares_nothing_fails(monkeypatch):
    monkeypatch.setitem(check.CHECKS, "loops", lambda case, rng: None)
    with pytest.raises(check.Wrong, match="attention/hyla fails the check 'loops', which has compared nothing"):
        check.run("loops", find("attention/hyla"))


def test_a_first_application_that_the_second_spoils_is_seen():
    case, last = find("ops/gelu"), []

    def forward(inputs):
        y, saved = case.forward(inputs)
        last[:] = [saved]                                   # of two, the second alone is right afterwards
        return y, saved
    wrong = replace(case, forward=forward, backward=lambda saved, dy: case.backward(last[0], dy))
    with pytest.raises(check.Wrong, match="ops/gelu fails the check 'used_twice' .*: application 1, array "):
        check.run("used_twice", wrong)


def test_a_gradient_that_shares_memory_with_the_upstream_one_is_seen():
    wrong = replace(find("ops/relu"), backward=lambda saved, dy: {"x": dy})
    with pytest.raises(check.Wrong, match="fails the check 'fresh' .*: a gradient of shape .* shares memory"):
        check.run("fresh", wrong)


@pytest.mark.parametrize("name, lost", [("ops/linear", ["w"]), ("ops/linear", ["w", "b"]), ("ops/scores over k", ["q"]),
                                        ("attention/hyla", ["q"]), ("ops/layer_norm", ["scale", "shift"])])
def test_single_gradients_in_float16_are_seen(name, lost):
    """Of a few arrays the mean over all hardly moves."""
    case = find(name)

    def backward(saved, dy):
        return {n: g.astype(np.float16).astype(g.dtype) if n in lost and g.dtype == np.float32 else g
                for n, g in case.backward(saved, dy).items()}
    with pytest.raises(check.Wrong, match="times the error of the plain formulas, in one array alone"):
        check.run("float32", replace(case, backward=backward))
    assert check.run("float32", case) <= 2


def test_all_rows_and_all_knobs_are_there():
    names = set(NAMES)
    assert len(names) == len(NAMES)
    assert {f"attention/{name}" for name in VARIANTS} <= names
    knobs = {row.knobs for row in VARIANTS.values() if row.file == "ablations.py"}
    by_knobs = {name.removeprefix("attention/") for name in names if name.count("-") == 2}
    assert len(by_knobs) + len(knobs) == 5 * 3 * 2


def test_a_tree_answers_once_and_the_dense_form_several_times():
    rng, words = np.random.default_rng(0), "models/RegularGPT "
    runs = {case.name: passes(case, case.make(rng), rng) for case in CASES if case.name.startswith(words)}
    answers = {name: run.y[0].shape[1] for name, run in runs.items()}
    assert answers and all((n == 1) == ("tree" in name) for name, n in answers.items()), answers


def test_draws_have_every_broadcast_form():
    case, rng = find("attention/hyla"), np.random.default_rng(0)
    seen = {"bias": set(), "keep": set(), "dropout": set()}
    for _ in range(300):
        inputs = case.make(rng)
        size = dict(zip("bqhdbkhe", inputs["q"].shape + inputs["v"].shape, strict=True))
        assert len(set(size.values())) == len(size)
        for name in seen:
            x = inputs[name]
            seen[name] |= {None if x is None else next(form for form in FORMS if shape(form, size) == x.shape)}
        keep = inputs["keep"]
        if keep is not None and keep.ndim > 2 and keep.shape[-3] > 1:       # of a sign RMSHead has no derivative
            assert keep.sum(axis=-3).max() != 1
    assert all(forms == {None, *FORMS} for forms in seen.values())


def test_an_unknown_case_is_refused():
    with pytest.raises(ValueError, match=r"'attention/hayla', did you mean attention/hyla\? allowed: 'attention/soft"):
        find("attention/hayla")
    with pytest.raises(ValueError, match=r"'lossy', did you mean losses/...\? allowed: contract/\.\.\., ops/\.\.\."):
        find("lossy")


@pytest.mark.parametrize("name", VARIANTS)
@given(data=st.data())
def test_generated_inputs_agree_with_the_loops(name, data):
    row = VARIANTS[name]
    inputs = data.draw(strategies.attention_inputs(row.extras, largest=6))
    extras = [inputs[x] for x in row.extras]
    options = {x: inputs[x] for x in ("bias", "keep", "dropout")}
    o, saved = row.forward(inputs["q"], inputs["k"], inputs["v"], *extras, **options)
    assert check.deviation("o", o, loops(row)(**inputs)) <= 1e-11
    gradients = dict(zip(["q", "k", "v", "bias", *row.extras], row.backward(saved, np.ones_like(o)), strict=False))
    for x, gradient in gradients.items():
        assert gradient is None and inputs[x] is None or gradient.shape == inputs[x].shape
        assert gradient is None or np.isfinite(gradient).all()


@given(data=st.data())
def test_strategies_are_what_they_say(data):
    size = data.draw(strategies.sizes())
    assert list(size) == list("bqkhde") and len(set(size.values())) == 6
    target = shape(AXES["bias"], size)
    for draw in strategies.biases, strategies.masks, strategies.dropouts:
        x = data.draw(draw(size))
        assert np.broadcast_shapes(x.shape, target) == target
    assert data.draw(strategies.masks(size, empty_rows=False)).any(axis=-1).all()
    with pytest.raises(ValueError, match="largest is 5; allowed: room for 6 different sizes from 1 on"):
        data.draw(strategies.sizes(largest=5))
    drawn = data.draw(strategies.attention_inputs({"mixing": "hr", "scale": "h1"}))     # r is an axis of its own
    (heads, features), (_, _, _, width) = drawn["mixing"].shape, drawn["q"].shape
    assert drawn["scale"].shape == (drawn["q"].shape[2], 1) == (heads, 1) and features not in (heads, width)


def test_a_gradient_that_is_no_derivative_is_told_with_its_entry():
    """Also of an input that is checked along random directions: x has more than 48 numbers, parameters too."""
    case = find("layers/SwiGLU")

    def wrong(name, place):
        def backward(saved, dy, start=None):
            found = case.backward(saved, dy, start)
            found[name][place] += 1
            return found
        return replace(case, backward=backward)

    for name, place, entry in ("x", (0, 2, 3), r"dx\[0, 2, 3\]: "), ("parameters", 100, r"dwu\[3, 1\]: "):
        with pytest.raises(check.Wrong, match=entry):
            check.run("derivative", wrong(name, place), np.random.default_rng(0))


def test_the_entry_of_a_wrong_gradient_is_that_of_the_gradient_whose_error_is_told():
    case, gradients = find("layers/SwiGLU"), []

    def backward(saved, dy, start=None):
        gradients.append(case.backward(saved, dy, start)["x"] * 1.01)
        return {"x": gradients[-1]}
    other = replace(case, backward=backward, constants=("parameters",))
    with pytest.raises(check.Wrong) as found:
        check.run("derivative", other, np.random.default_rng(0))
    entries = {f"dx[{', '.join(map(str, at))}]: backward {x}" for at, x in np.ndenumerate(gradients[0])}
    assert str(found.value).partition("): ")[2].partition(", complex step")[0] in entries


def test_a_gradient_that_shares_memory_with_what_was_saved_is_seen():
    case = find("ops/relu")
    wrong = replace(case, forward=lambda x: (case.forward(x)[0], x["x"].copy()),
                    backward=lambda saved, dy: {"x": saved})
    with pytest.raises(check.Wrong, match="fails the check 'fresh' .*: a gradient of shape .* shares memory"):
        check.run("fresh", wrong)


def test_a_permutation_that_the_generator_leaves_in_order_is_turned_round():
    class Unmoved(np.random.Generator):
        def permutation(self, n):
            return np.arange(n)
    case = find("ops/relu")
    letter = case.symmetric[0]
    axis = case.axes["output"].index(letter)

    def forward(inputs):                                        # looks at the places along the axis
        y, saved = case.forward(inputs)
        shape = [-1 if i == axis else 1 for i in range(y.ndim)]
        return y * np.arange(y.shape[axis]).reshape(shape), saved
    with pytest.raises(check.Wrong, match="permuted: output"):
        check.run("symmetric", replace(case, forward=forward), Unmoved(np.random.PCG64(0)))


def test_dropouts_are_divided_by_what_stays():
    size = dict(zip("bqkhde", range(2, 8), strict=True))
    for rate in 0.25, 0.1:
        assert example(strategies.dropouts(size, rate), np.any).max() == 1 / (1 - rate)
