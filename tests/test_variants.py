"""What holds for the page of every variant, and what its row must say."""

import inspect

import numpy as np
import pytest

from refattn.attention import VARIANTS
from refattn.check import derivative, deviation
from refattn.verification.cases.attention import loops
from refattn.verification.cases.case import of_page, shape
from tests.pages import check_bad_input, check_tags

SIZE = {"b": 2, "q": 3, "k": 4, "h": 5, "d": 6, "e": 7}
PAIRS = 2, 5, 3, 4                               # b h q k
EACH = pytest.mark.parametrize("name", VARIANTS)


def given(row, seed=0):
    """{name: array} of q, k, v and the extras, and the three options, of which every query keeps its first key."""
    rng = np.random.default_rng(seed)
    arrays = {name: rng.standard_normal(shape(row.axes[name], SIZE)) for name in ("q", "k", "v", *row.extras)}
    keep = rng.random(PAIRS) < 0.7
    keep[..., 0] = True
    return arrays, {"bias": rng.standard_normal(PAIRS), "keep": keep, "dropout": (rng.random(PAIRS) < 0.7) / 0.7}


@EACH
def test_tags_are_answered_in_reverse(name):
    row = VARIANTS[name]
    check_tags(getattr(row.forward, "func", row.forward), row.backward)


@EACH
def test_bad_input(name):
    check_bad_input(VARIANTS[name])


@EACH
def test_every_input_has_a_part_in_the_output(name):
    row = VARIANTS[name]
    arrays, options = given(row)
    o, _ = row.forward(*arrays.values(), **options)
    for option in options:
        assert np.abs(row.forward(*arrays.values(), **options | {option: None})[0] - o).max() > 1e-6, option
    for extra in row.extras:
        other = arrays | {extra: arrays[extra] + 1}
        assert np.abs(row.forward(*other.values(), **options)[0] - o).max() > 1e-6, extra


@EACH
def test_the_code_is_that_of_every_pair_before_dropout(name):
    row = VARIANTS[name]
    arrays, options = given(row)
    code = row.forward(*arrays.values(), **options)[1].code
    assert code.shape == PAIRS and not code[~options["keep"]].any()
    assert (code == row.forward(*arrays.values(), **options | {"dropout": None})[1].code).all()


@EACH
def test_large_scores_give_finite_numbers(name):
    row = VARIANTS[name]
    arrays, options = given(row)
    for sign in 1e4, -1e4:
        large = arrays | {"q": arrays["q"] * sign}
        o, saved = row.forward(*large.values(), **options | {"bias": options["bias"] * sign})
        assert all(np.isfinite(x).all() for x in (o, *row.backward(saved, np.ones_like(o))) if x is not None)


@EACH
def test_extras_of_other_shapes_are_refused(name):
    row = VARIANTS[name]
    arrays, _ = given(row)
    for extra, axes in row.extras.items():
        for axis in range(len(axes)):
            with pytest.raises(ValueError, match=extra):
                row.forward(*(arrays | {extra: arrays[extra].take([0], axis)}).values())


@EACH
def test_a_setting_is_one_of_the_loops_and_its_gradients_are_right(name):
    row = VARIANTS[name]
    arrays, options = given(row)
    settings = {n: 1.5 * p.default for n, p in inspect.signature(row.forward).parameters.items()
                if p.kind == p.KEYWORD_ONLY and isinstance(p.default, float)}
    o, _ = row.forward(*arrays.values(), **options, **settings)
    assert deviation("output", o, loops(row)(**arrays, **options, **settings)) <= 1e-12
    forward, backward = of_page(row.forward, row.backward, row.extras)
    report = derivative(lambda x: forward(x | settings), backward, arrays | options, rng=np.random.default_rng(0),
                        constants=("dropout",))
    assert report.error <= 1e-12, report


@EACH
def test_in_float32_a_line_loses_no_digits(name):
    """Root mean square errors, the median of 20 draws at most 8 units of float32; the library's own have up to 2.4."""
    row, errors = VARIANTS[name], []
    for seed in range(20):
        arrays, options = given(row, seed)
        short = {n: x.astype(np.float32) for n, x in {**arrays, "bias": options["bias"]}.items()}
        short["dropout"], do = options["dropout"].astype(np.float32), np.random.default_rng(seed).standard_normal(
            shape("bqhe", SIZE)).astype(np.float32)
        runs = []
        for kind in np.float32, np.float64:
            x = {n: value.astype(kind) for n, value in short.items()}
            o, saved = row.forward(*(x[n] for n in arrays), bias=x["bias"], dropout=x["dropout"], keep=options["keep"])
            runs.append([o, *(dx for dx in row.backward(saved, do.astype(kind)) if dx is not None)])
        errors.append([np.sqrt(((a - b) ** 2).mean() / ((b ** 2).mean() or 1)) for a, b in zip(*runs, strict=True)])
    assert np.median(errors, axis=0).max() <= 8 * 2.0 ** -23, np.median(errors, axis=0) / 2.0 ** -23
