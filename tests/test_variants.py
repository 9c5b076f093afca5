"""What holds for the page of every variant, and what its row must say."""

import dataclasses
import inspect
import re

import numpy as np
import pytest

from refattn import attention
from refattn.attention import VARIANTS
from refattn.attention.softmax import softmax
from refattn.check import derivative, deviation, run
from refattn.verification.cases import find
from refattn.verification.cases.attention import loops
from refattn.verification.cases.case import of_page, shape
from tests import new_variants
from tests.pages import check_bad_input, check_row, check_tags
from tests.planted import BUGS, load

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
def test_the_row_has_what_the_layer_can_make(name):
    check_row(VARIANTS[name])


@pytest.mark.parametrize("facts, words", [
    ({"extras": {"b": ""}}, "of axes ''; allowed: bqhd"), ({"extras": {"b": "k"}}, "of axes 'k'; allowed"),
    ({"extras": {"b": "bkh"}}, "of axes 'bkh'"), ({"extras": {"b": "heed"}}, "of axes 'heed'"),
    ({"extras": {"wq": "h"}}, "the extra 'wq'; allowed: other names than"), ({"extras": {"keep": "h"}}, "'keep'"),
    ({"tiles": "yes"}, "has tiles 'yes'; allowed")])
def test_another_row_is_refused(facts, words):
    with pytest.raises(ValueError, match=words):
        check_row(VARIANTS["softmax"]._replace(**facts))


def test_a_wrong_page_is_told_in_one_line():
    bug = next(bug for bug in BUGS if bug.sentence == "dk lacks 1/sqrt(d)")
    words = new_variants.wrong(load(bug).verification.cases.find("attention/hyla"))
    assert re.match(r"attention/hyla fails the check 'derivative' \(error .*\): dk\[", words)
    case = find("attention/hyla")
    assert not new_variants.wrong(case)
    for backward, words in ((lambda saved, do: 1 / 0, "ZeroDivisionError in the check 'derivative': division by zero"),
                            (lambda saved, do: np.log(-1), "RuntimeWarning in the check 'derivative': invalid value")):
        said = new_variants.wrong(dataclasses.replace(case, backward=backward))
        assert said.startswith(f"attention/hyla raises {words}") and "test_variants.py:" in said


def test_no_two_rows_have_one_name():
    names = [name for pattern in (r'\n    of_page\("(\w+)"', r'\n    _knobs\("(\w+)"')
             for name in re.findall(pattern, inspect.getsource(attention))]
    assert sorted(names) == sorted(VARIANTS)


@EACH
def test_every_input_has_a_part_in_the_output(name):
    row = VARIANTS[name]
    arrays, options = given(row)
    o, _ = row.forward(*arrays.values(), **options)
    for option in options:
        assert np.abs(row.forward(*arrays.values(), **options | {option: None})[0] - o).max() > 1e-6, option
    for extra in row.extras:
        other = arrays | {extra: given(row, 1)[0][extra]}
        assert np.abs(row.forward(*other.values(), **options)[0] - o).max() > 1e-6, f"another {extra} changes nothing"


@EACH
def test_a_dropped_pair_is_dropped_from_every_use_of_the_weights(name):
    row = VARIANTS[name]
    arrays, options = given(row)
    options["dropout"][..., 1] = 0
    o, saved = row.forward(*arrays.values(), **options)
    other = arrays | {"v": arrays["v"] + (np.arange(SIZE["k"]) == 1)[:, None, None]}
    words = "dropout is 0 at key 1 for all queries, but the output depends on its v"
    assert (row.forward(*other.values(), **options)[0] == o).all(), words
    assert not row.backward(saved, np.ones_like(o))[2][:, 1].any(), "dropout is 0 at key 1, but dv there is not"


@EACH
@pytest.mark.parametrize("axis, size", [*((axis, 1) for axis in "bqhkde"), ("k", 70), ("e", 6), ("d", 7), ("q", 4)])
def test_sizes_of_one_or_many_or_equal_ones(name, axis, size):
    """Drawn sizes are 2 to 7, all different: a mistake at one feature, at d = e, at many keys would outlive them."""
    row, sizes = VARIANTS[name], SIZE | {axis: size}
    case = dataclasses.replace(find(f"attention/{name}"), make=lambda rng: {
        each: rng.standard_normal(shape(row.axes[each], sizes)) for each in ("q", "k", "v", *row.extras)})
    for check in "loops", "derivative":
        run(check, case)


@EACH
def test_the_bias_is_added_to_the_scores_over_sqrt_d(name):
    check_scores(VARIANTS[name])


def check_scores(row):
    """Where q, k and the bias are read by the scores alone: a row with further queries or keys is not asked."""
    arrays, options = given(row)
    o, factor = row.forward(*arrays.values(), **options)[0], 2.0 ** (np.indices((SIZE["h"], SIZE["d"])).sum(axis=0) % 7)
    same = arrays | {"q": arrays["q"] * factor, "k": arrays["k"] / factor}         # in every q.k of a head with itself
    alone = deviation("output", row.forward(*same.values(), **options)[0], o) <= 1e-12
    if alone and not {"bqhd", "bkhd"} & {*row.extras.values()}:
        scores = np.einsum("bqhd,bkhd->bhqk", arrays["q"], arrays["k"]) / np.sqrt(SIZE["d"])
        no_q, options["bias"] = arrays | {"q": 0 * arrays["q"]}, options["bias"] + scores
        words = "q.k / sqrt(d) + bias has another output than q = 0 with all of it as bias"
        assert deviation("output", row.forward(*no_q.values(), **options)[0], o) <= 1e-12, words


def test_scores_are_asked_to_be_over_sqrt_d_where_q_and_k_are_read_by_them_alone():
    def forward(change):
        return lambda q, k, v, **options: softmax(*change(q, k), v, **options)

    def unit(x):
        return 3 * x / np.sqrt((x * x).sum(axis=-1, keepdims=True))
    row = VARIANTS["softmax"]
    check_scores(row._replace(forward=forward(lambda q, k: (unit(q), unit(k)))))        # cosine attention
    check_scores(row._replace(forward=forward(lambda q, k: (q, 0 * k + k.mean(axis=2, keepdims=True)))))   # multi-query
    over_d = forward(lambda q, k: (q / np.sqrt(SIZE["d"]), k))
    gated = row._replace(forward=lambda q, k, v, gate, **options: (gate * over_d(q, k, v, **options)[0],),
                         extras={"gate": "bqhe"})
    for wrong in row._replace(forward=over_d), gated:
        with pytest.raises(AssertionError, match="has another output than q = 0"):
            check_scores(wrong)
    check_scores(gated._replace(forward=lambda q, k, v, gate, **options: (gate * softmax(q, k, v, **options)[0],)))


@EACH
def test_the_code_is_that_of_every_pair_before_dropout(name):
    row = VARIANTS[name]
    arrays, options = given(row)
    code = row.forward(*arrays.values(), **options)[1].code
    assert code.shape == PAIRS, f"code has shape {code.shape}; allowed: b h q k, {PAIRS}"
    assert not code[~options["keep"]].any(), "code is not 0 at a pair that is not kept"
    whole = row.forward(*arrays.values(), **options | {"dropout": None})[1].code
    assert (code == whole).all(), "code depends on dropout"


@EACH
def test_large_scores_give_finite_numbers(name):
    row = VARIANTS[name]
    arrays, options = given(row)
    for sign in 1e4, -1e4:
        large = arrays | {"q": arrays["q"] * sign}
        large |= {extra: arrays[extra] * sign for extra, axes in row.extras.items() if axes[0] == "b"}
        o, saved = row.forward(*large.values(), **options | {"bias": options["bias"] * sign})
        assert all(np.isfinite(x).all() for x in (o, *row.backward(saved, np.ones_like(o))) if x is not None)


@EACH
def test_zeros_give_finite_numbers(name):
    """A layer hands them to a page where x is zero, as of padding: what is divided by a length needs an epsilon."""
    row = VARIANTS[name]
    arrays, options = given(row)
    for each in (array for array in arrays if row.axes[array][0] == "b"):
        zeros = arrays | {each: arrays[each] * np.r_[0, np.ones(SIZE["b"] - 1)].reshape(-1, 1, 1, 1)}
        o, saved = row.forward(*zeros.values(), **options)
        assert all(np.isfinite(x).all() for x in (o, *row.backward(saved, np.ones_like(o))) if x is not None), (
            f"{each} is 0 in the first entry of the batch, and a result is not finite")


@EACH
def test_extras_of_other_shapes_are_refused(name):
    row = VARIANTS[name]
    arrays, _ = given(row)
    for extra, axes in row.extras.items():
        for axis in range(len(axes)):
            with pytest.raises(ValueError, match=extra):
                row.forward(*(arrays | {extra: arrays[extra].take([0], axis)}).values())


def other_settings(forward):
    """[{name: another value}, ...] of the settings of a page: 1.5 times a number, twice a whole one; half of each."""
    defaults = {n: p.default for n, p in inspect.signature(forward).parameters.items()
                if p.kind == p.KEYWORD_ONLY and isinstance(p.default, (int, float))}
    found = [{n: int(whole * x) or 1 if isinstance(x, int) else by * x for n, x in defaults.items()}
             for whole, by in ((2, 1.5), (0.5, 0.5))]
    return found if defaults else [{}]


def test_a_whole_number_is_a_setting_too():
    def forward(q, k, v, *, bias=None, keep=None, dropout=None, power=3, first=0, epsilon=0.5):
        raise NotImplementedError
    assert other_settings(forward) == [{"power": 6, "first": 1, "epsilon": 0.75},
                                       {"power": 1, "first": 1, "epsilon": 0.25}]


@EACH
def test_a_setting_is_one_of_the_loops_and_its_gradients_are_right(name):
    row = VARIANTS[name]
    arrays, options = given(row)
    forward, backward = of_page(row.forward, row.backward, row.extras)
    for settings in other_settings(row.forward):
        o, _ = row.forward(*arrays.values(), **options, **settings)
        error = deviation("output", o, loops(row)(**arrays, **options, **settings))
        assert error <= 1e-12, f"the loops say something else with {settings or 'all inputs'}: {error.where}"
        report = derivative(lambda x, own=settings: forward(x | own), backward, arrays | options,
                            rng=np.random.default_rng(0), constants=("dropout",))
        assert report.error <= 1e-12, f"{report}, with {settings or 'all inputs'}"


@EACH
def test_in_float32_a_line_loses_no_digits(name):
    """Errors of at most 8 units of rounding, or 8 times what inputs that are rounded do: the median of 20 draws.

    The library's own have up to 2.4 units; those of a gradient in which large terms cancel may have more.
    """
    row = VARIANTS[name]
    where = ["bias", *(extra for extra, axes in row.extras.items() if axes[0] == "b")]
    for moved, by in (("bias", 0), *((each, by) for each in where for by in (-9, 9))):    # weights all small, all large
        errors, rounded = units_of_rounding(row, moved, by)
        assert all(errors[n] <= 8 * max(1, rounded[n]) for n in errors), (
            f"units of rounding, with {by} added to {moved}: {errors}; by inputs that are rounded: {rounded}")


def results(row, x, keep):
    """Output and gradients."""
    arrays = (x[n] for n in ("q", "k", "v", *row.extras))
    o, saved = row.forward(*arrays, bias=x["bias"], dropout=x["dropout"], keep=keep)
    return [o, *row.backward(saved, x["do"])]


def units_of_rounding(row, moved, by):
    """Errors in float32 (rms), with `by` added to an input, and what rounding of the inputs alone changes."""
    names, found = ("o", "dq", "dk", "dv", "dbias", *(f"d{extra}" for extra in row.extras)), ([], [])
    for seed in range(20):
        (arrays, options), rng = given(row, seed), np.random.default_rng(seed)
        floats = {**arrays, "bias": options["bias"], "dropout": options["dropout"],
                  "do": rng.standard_normal(shape("bqhe", SIZE))}
        floats[moved] = floats[moved] + by
        short = {n: x.astype(np.float32) for n, x in floats.items()}
        near = {n: x * (1 + 2.0 ** -24 * rng.uniform(-1, 1, x.shape)) for n, x in short.items()}
        exact, *others = (results(row, x, options["keep"])[:len(names)] for x in (
            {n: x.astype(float) for n, x in short.items()}, short, near))
        for errors, mine in zip(found, others, strict=True):
            errors.append([np.sqrt(((a - b) ** 2).mean() / ((b ** 2).mean() or 1)) for a, b in
                           zip(mine, exact, strict=True)])
    return [dict(zip(names, (np.median(errors, axis=0) * 2 ** 23).round(1).tolist(), strict=True)) for errors in found]
