"""`derivative`, `compare` and `diagnose`, as somebody uses them who tests other code than ours."""

import re
import sys
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from refattn import check, ops
from refattn.attention import VARIANTS, masks
from refattn.attention.pages import PAGES
from refattn.automata.lemma_1 import lemma_1, lemma_1_backward
from refattn.check import kernels
from refattn.check.kernels import Call
from refattn.verification import plain_formulas
from refattn.verification.cases import CASES
from refattn.verification.deviation import deviations
from tests import half_precision, planted, test_diagnose
from tests.test_diagnose import anything

EVERYTHING = {"bias": "hqk", "keep": "bhqk", "dropout": "bhqk"}


def kernel(row, change=lambda results, inputs: results, precision=None):
    """A kernel for `compare` from a variant; its inputs' dtype is computed in, its results are rounded."""
    def run(q, k, v, *extras, do, **options):
        o, saved = row.forward(q, k, v, *extras, **options)
        results = [x for x in (o, *row.backward(saved, do)) if x is not None]
        results = change(results, {"q": q, "k": k, "v": v, "do": do, **options})
        return results if precision is None else [plain_formulas.rounded(x, precision) for x in results]
    return run


@pytest.mark.parametrize("keep", ["bhqk", "b11k", "k"])
def test_a_causal_kernel_that_takes_a_mask_has_a_causal_mask_of_its_own(keep):
    row, seen = VARIANTS["softmax"], []

    def run(q, k, v, keep, do, causal):
        seen.append(keep.shape)
        o, saved = row.forward(q, k, v, keep=keep & masks.causal(q.shape[1], k.shape[1]) if causal else keep)
        return o, *row.backward(saved, do)[:3]

    def report(causal):
        return check.compare(lambda q, k, v, keep, do: run(q, k, v, keep, do, causal), "softmax", dtype="float64",
                             keep=keep, causal=True)
    assert report(True).ok and not report(False).ok
    stretched = [size for size, axis in zip(seen[0], keep, strict=True) if axis == "1"]
    assert {len(shape) for shape in seen} == {len(keep)} and set(stretched) <= {1}


def test_the_stretched_axis_has_no_other_size():
    with pytest.raises(ValueError, match="sizes has the unknown axis '1'; allowed: b, "):
        check.compare(kernel(VARIANTS["softmax"]), "softmax", sizes={"1": 2}, bias="h11")


def test_a_check_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="check is 'speed'; allowed: "):
        check.run("speed", CASES[0])


# ---------------------------------------------------------------------------------------------------------- derivative


def test_derivative_accepts_a_right_pair_and_names_a_wrong_entry():
    x = np.linspace(-1, 1, 6).reshape(2, 3)

    def forward(inputs):
        return inputs["x"] ** 3, inputs["x"]

    assert check.derivative(forward, lambda x, dy: {"x": 3 * x**2 * dy}, {"x": x}).ok
    report = check.derivative(forward, lambda x, dy: {"x": 3 * x**2 * dy + 0.1 * (x == 1)}, {"x": x})
    assert not report.ok and "dx: relative error" in str(report) and "WRONG: dx[1, 2]: backward" in str(report)


def test_derivative_sees_a_relative_error_of_1e_11():
    x = np.random.default_rng(0).standard_normal(5)
    for method, factor in ("complex", 1e-11), ("finite", 1e-7):
        def backward(x, dy, factor=factor):
            return {"x": 2 * x * dy * (1 + factor)}
        assert not check.derivative(lambda a: (a["x"] * a["x"], a["x"]), backward, {"x": x}, method=method).ok


def test_derivative_in_directions_of_large_inputs_sees_one_wrong_entry():
    x = np.random.default_rng(0).standard_normal((30, 30))
    wrong = np.ones_like(x)
    wrong[17, 4] = 1 + 1e-6

    def backward(factor, dy):
        return {"x": dy * factor}

    assert check.derivative(lambda a: (a["x"] * 1, 1.0), backward, {"x": x}).ok
    assert not check.derivative(lambda a: (a["x"] * 1, wrong), backward, {"x": x}).ok


def test_derivative_refuses_what_it_cannot_check():
    x = np.ones(2)
    with pytest.raises(ValueError, match="method is 'secant'; allowed: None, complex, finite"):
        check.derivative(lambda a: (a["x"], None), lambda s, dy: {}, {"x": x}, method="secant")
    with pytest.raises(ValueError, match="backward returned no gradient of x; it returned y"):
        check.derivative(lambda a: (a["x"], None), lambda s, dy: {"y": dy}, {"x": x})
    report = check.derivative(lambda a: (a["x"], None), lambda s, dy: {"x": dy[:1]}, {"x": x})
    assert "dx has shape (1,), x has (2,)" in str(report) and not report.ok


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_derivative_of_inputs_in_low_precision_is_asked_in_float64(dtype):
    x = np.random.default_rng(0).standard_normal((4, 7)).astype(dtype)
    for factor in 1, 1 + 1e-11:
        report = check.derivative(lambda a: (np.exp(a["x"]),) * 2, lambda y, dy, f=factor: {"x": f * y * dy}, {"x": x})
        assert report.ok == (factor == 1), report


def test_a_failing_check_says_case_check_and_entry():
    bug = next(bug for bug in planted.BUGS if bug.sentence == "dk lacks 1/sqrt(d)")
    with pytest.raises(check.Wrong, match=r"attention/hyla fails the check 'derivative' \(error .*\): dk"):
        check.run("derivative", planted.load(bug).verification.cases.find("attention/hyla"))


# ------------------------------------------------------------------------------------------------------------- compare


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_ours_agrees_with_itself_in_every_precision(variant, dtype):
    storage = "float32" if dtype == "bfloat16" else dtype

    def run(q, *rest, **options):
        assert q.dtype == storage and np.array_equal(plain_formulas.rounded(q, dtype), q)
        return kernel(half_precision.package(dtype).attention.VARIANTS[variant], precision=dtype)(q, *rest, **options)

    report = check.compare(run, variant, dtype=dtype, naive=dtype == "float16", **EVERYTHING)  # NumPy's is naive
    assert report.ok, str(report)


@pytest.mark.parametrize("layout", ["bthd", "bhtd", "tbhd"])
def test_every_layout(layout):
    axes = ["bthd".index(x) for x in layout]

    def run(q, k, v, do, bias):
        assert q.shape == tuple({"b": 3, "t": 6, "h": 5, "d": 11}[x] for x in layout)
        back = np.argsort(axes)
        q, k, v, do = (x.transpose(back) for x in (q, k, v, do))
        *arrays, dbias = kernel(VARIANTS["hyla"])(q, k, v, do=do, bias=bias)
        return [*(x.transpose(axes) for x in arrays), dbias]

    assert check.compare(run, "hyla", layout=layout, bias="1hqk").ok


@pytest.mark.parametrize("page", ["compositional", "linear_state"])
def test_a_selector_has_the_layout_too_and_a_state_has_none(page):
    of = Call(anything, page, "float32").of

    def run(*arrays, **options):
        inputs = dict(zip(of.arrays, arrays, strict=True)) | options
        found = of.run({n: x.swapaxes(1, 2) if n in turned else x for n, x in inputs.items()})
        return {n: x.swapaxes(1, 2) if n.removeprefix("d") in turned else x for n, x in found.items()}
    turned = "q", "k", "v", "o", "do", "selector"
    assert check.compare(run, page, layout="bhtd").ok


def test_the_forward_alone_of_a_page_with_a_state_gives_its_end_too():
    def kernel(q, k, v, state):
        scale = q.shape[-1] ** -0.5
        s = np.tril(np.einsum("bqhd,bkhd->bhqk", q, k)) * scale
        o = np.einsum("bhqk,bkhe->bqhe", s, v) + np.einsum("bqhd,bhde->bqhe", q, state) * scale
        return o, factor * (state + np.einsum("bkhd,bkhe->bhde", k, v))
    factor = 1
    report = check.compare(kernel, "linear_state")
    assert report.ok and [entry.name for entry in report.entries] == ["o", "end"], report
    factor = 2
    assert [entry.ok for entry in check.compare(kernel, "linear_state").entries] == [True, False]
    assert check.diagnose(kernel, "linear_state").lines == ("forward (6)",)
    with pytest.raises(ValueError, match="3 arrays; allowed: o alone, o and end, or o, end, dq, dk, dv, dstate$"):
        check.compare(lambda *arrays: (*kernel(*arrays), 0.0), "linear_state")


def test_the_guide_lists_what_each_page_is_handed():
    guide = (Path(check.__file__).parents[2] / "docs/kernels.md").read_text(encoding="utf-8")
    for name in [*PAGES, "linear_state"]:
        of = Call(anything, name, "float32").of
        extras = ", ".join(f"{n} ({', '.join(of.letters[n])})" for n in of.arrays[3:])
        assert not extras or f"| `{name}` | {extras}" in guide, extras


def test_a_forward_of_other_arrays_is_told_of_these_and_not_of_a_gradient_it_need_not_take():
    for theirs, variant, bias, words in (
            (lambda q, k, v, selector, wr: q, "softmax", None, "missing 2 .* called as theirs.q, k, v., without do"),
            (lambda q, k, v: q, "sliding_dilated", None, "it is called as theirs.q, k, v, offset_bias., without"),
            (lambda q, k, v: q, "softmax", "hqk", "argument 'bias'; it is called as theirs.q, k, v, bias=bias")):
        with pytest.raises(ValueError, match=words):
            check.compare(theirs, variant, bias=bias)


def test_ready_cases_leave_out_what_a_kernel_does_not_take():
    def ways(*words, **options):
        return {case.id.split("-")[1] for case in check.pytest_params(*words, **options)}
    assert ways("softmax") == {"plain", "bias", "keep", "dropout", "all", "causal"}
    assert ways("softmax", ("keep", "bias")) == {"plain", "bias", "keep", "all"}
    assert ways("softmax", options=["causal"]) == {"plain", "causal"}
    assert ways("softmax", options=["keep"]) == {"plain", "keep"}
    assert ways("linear_state") == ways("layers/MultiHead hyla") == {"plain"}
    with pytest.raises(ValueError, match="option 'biass' is unknown, did you mean bias. allowed: bias, keep"):
        check.pytest_params("softmax", options=("biass",))


@pytest.mark.parametrize("dtype", [np.float32, np.dtype("float32")])
def test_a_dtype_of_numpy_is_its_name(dtype):
    assert check.compare(kernel(VARIANTS["hyla"]), "hyla", dtype=dtype).dtype == "float32"


def by_log(q, k, v, do):
    """Softmax attention as kernels have it that keep the log of the sum, and merge two halves of the keys by it."""
    scale, half = np.float32(q.shape[-1] ** -0.5), k.shape[1] // 2
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * scale
    tops = [x.max(-1, keepdims=True) for x in (s[..., :half], s[..., half:])]
    logs = [top + np.log(np.exp(x - top).sum(-1, keepdims=True))
            for top, x in zip(tops, (s[..., :half], s[..., half:]), strict=True)]
    lse = np.logaddexp(*logs)
    a = np.concatenate([np.exp(x - log) * np.exp(log - lse)
                        for x, log in zip((s[..., :half], s[..., half:]), logs, strict=True)], -1)
    o = np.einsum("bhqk,bkhe->bqhe", a, v)
    p, da = np.exp(s - lse), np.einsum("bqhe,bkhe->bhqk", do, v)
    ds = p * (da - (do * o).sum(-1).swapaxes(1, 2)[..., None]) * scale
    return {"q": q, "k": k, "v": v, "do": do, "o": o, "dq": np.einsum("bhqk,bkhd->bqhd", ds, k),
            "dk": np.einsum("bhqk,bqhd->bkhd", ds, q), "dv": np.einsum("bhqk,bqhe->bkhe", p, do)}


@pytest.mark.parametrize("scale", [1, 30, 300, 3_000])
@pytest.mark.parametrize("shape", [(2, 5, 4, 3), (1, 64, 2, 32)])
def test_large_scores_make_no_right_kernel_wrong(shape, scale):
    """Weights by a log of the sum are off by what that is off; what underflows is zero."""
    for seed in range(10 if shape[1] == 5 else 3):
        rng = np.random.default_rng(seed)
        q, k, v, do = (rng.standard_normal(shape).astype(np.float32) for _ in range(4))
        arrays = by_log(q * np.float32(scale), k, v, do)
        assert check.compare(arrays, "softmax").ok
        assert check.compare({n: arrays[n] for n in "qkvo"}, "softmax").ok
        o, saved = VARIANTS["softmax"].forward(arrays["q"], k, v)
        gradients = dict(zip(("dq", "dk", "dv"), VARIANTS["softmax"].backward(saved, do), strict=False))
        assert check.compare({**arrays, "o": o, **gradients}, "softmax").ok
        assert not check.compare({**arrays, "dv": arrays["dv"] * np.float32(1.01)}, "softmax").ok


def test_numbers_that_six_digits_do_not_tell_apart_are_given_more():
    entry = check.kernels.Entry("o", False, 1e-9, 1e-12, "b=0", 1.234567891, 1.234567892)
    assert "yours 1.23456789, refattn 1.23456789;" not in str(entry)
    assert "yours 1.234567891" in str(entry) and "refattn 1.234567892" in str(entry)


def test_a_wrong_entry_is_named_with_both_values():
    def change(results, inputs):
        results[1][1, 3, 2, 0] += 0.5
        return results

    report = check.compare(kernel(VARIANTS["softmax"], change), "softmax")
    assert [entry.name for entry in report.entries if not entry.ok] == ["dq"]
    entry = report.entries[1]
    assert entry.where == "b=1, q=3, h=2, d=0" and entry.theirs - entry.ours == pytest.approx(0.5)
    assert "dq     WRONG   at b=1, q=3, h=2, d=0: yours" in str(report) and "o      agrees" in str(report)


def test_an_error_of_a_few_bars_is_seen_in_each_row():
    """The bar of a small query is small, although another query's gradients are a hundred times larger."""
    for q in range(5):
        def change(results, inputs, q=q):
            results[1][:, q] *= 1 + 1e-3
            return results
        assert not check.compare(kernel(VARIANTS["hyla"], change), "hyla").ok


def test_a_row_without_a_folder_is_a_row_too():
    def kernel(a, b, do):
        y, saved = lemma_1(a, b)
        return y, *lemma_1_backward(saved, do)
    assert check.compare(kernel, "lemma_1").ok


def test_the_report_of_a_row_says_its_settings():
    table, loss, softmax = (str(check.compare(lambda **inputs: np.zeros(7), name)).splitlines()[1] for name in (
        "layers/LearnedTable", "layers/next_token, 4 at a time", "ops/softmax of axis -1"))
    assert table == "settings: LearnedTable(length=10, width=8), start=2" and loss == "settings: scale=1.0, rows=4"
    assert softmax.startswith("o  ")                            # one without any


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_second_answer_is_judged_too(dtype):
    """As of a race, or a buffer that is not cleared; sums in another order may differ."""
    def later(factor):
        calls = count()

        def change(results, inputs):
            return [results[0], results[1] * (factor if next(calls) else 1), *results[2:]]
        return kernel(VARIANTS["softmax"], change)
    report = check.compare(later(1.009), "softmax", dtype=dtype)
    assert [entry.name for entry in report.entries if not entry.ok] == ["dq"]
    assert str(report).startswith(f"softmax, {dtype}, against refattn in float64: the second answer to the same inputs")
    said = str(check.diagnose(later(1.009), "softmax", dtype=dtype))
    assert said.startswith("the second answer to the same inputs is wrong, the first is right: a race, or a buffer")
    assert "\ndq: 990 of 990 entries are wrong, by 9e-03 of their size" in said
    report = check.compare(later(1 + 4 * np.finfo(dtype).eps), "softmax", dtype=dtype)
    assert report.ok and str(report).startswith(f"softmax, {dtype}, against refattn in float64\n")
    assert check.diagnose(later(1 + 4 * np.finfo(dtype).eps), "softmax", dtype=dtype).comparison.ok


def test_nan_and_a_wrong_shape_are_errors():
    for spoil in lambda x: x * np.nan, lambda x: x[:, :-1], lambda x: x.swapaxes(2, 3):      # one clear line each
        report = check.compare(kernel(VARIANTS["hyla"], lambda r, _, f=spoil: [*r[:3], f(r[3])]), "hyla")
        assert [entry.ok for entry in report.entries] == [True, True, True, False]


@pytest.mark.filterwarnings("ignore:invalid value")
def test_an_epsilon_that_is_subtracted_makes_nan_and_one_line():
    def run(q, k, v, do):
        s = np.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        a = s / np.sqrt((s * s).mean(1, keepdims=True) - 0.5)
        return np.einsum("bhqk,bqke->bqhe", a, np.maximum(np.einsum("bhqk,bkhe->bqke", a, v), 0))
    assert re.search("^o +WRONG   at .*: yours nan, refattn", str(check.compare(run, "hyla")), re.MULTILINE)
    assert "entries are NaN or infinite" in str(check.diagnose(run, "hyla"))


def test_arrays_instead_of_a_function():
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal(s).astype("float32") for n, s in
              {"q": (2, 3, 5, 4), "k": (2, 3, 7, 4), "v": (2, 3, 7, 6), "do": (2, 3, 5, 6)}.items()}
    q, k, v, do = (arrays[n].swapaxes(1, 2) for n in ("q", "k", "v", "do"))
    o, dq, dk, dv = (x.swapaxes(1, 2) for x in kernel(VARIANTS["hyla"])(q, k, v, do=do))
    assert check.compare({**arrays, "o": o, "dq": dq, "dk": dk, "dv": dv}, "hyla", layout="bhtd").ok
    assert check.compare({**arrays, "o": o}, "hyla", layout="bhtd").ok
    assert not check.compare({**arrays, "dv": -dv}, "hyla", layout="bhtd").ok
    for name, words in ("q", "allowed: finite numbers"), ("bias", "allowed: finite numbers, and keep for what is"):
        with pytest.raises(ValueError, match=f"theirs has {name} with NaN or infinite entries; {words}"):
            check.compare({**arrays, "o": o, name: np.full((2, 3, 5, 4 if name == "q" else 7), -np.inf)}, "hyla",
                          layout="bhtd")
    with pytest.raises(ValueError, match="theirs is a mapping of arrays; allowed: a function"):
        check.diagnose({**arrays, "o": o}, "hyla")
    with pytest.raises(ValueError, match="theirs is a int; allowed: a function, or a mapping of arrays"):
        check.compare(3, "hyla")
    with pytest.raises(ValueError, match="theirs has q, o; allowed: q, k, v and at least one of o, dq, dk, dv"):
        check.compare({"q": q, "o": o}, "hyla")
    with pytest.raises(ValueError, match="theirs gave dbias; allowed: o, dq, dk, dv"):
        check.compare({**arrays, "o": o, "dbias": o}, "hyla", layout="bhtd")
    with pytest.raises(ValueError, match="theirs gave lse; allowed: o"):
        check.compare({**arrays, "o": o, "lse": o}, "hyla", layout="bhtd")
    for name, value in {"bias": "bhqk", "keep": "q1", "dropout": "k", "sizes": {"q": 3}, "seed": 1}.items():
        with pytest.raises(ValueError, match=f"{name} is .*, but theirs is a mapping of arrays; allowed: its default"):
            check.compare({**arrays, "o": o}, "hyla", layout="bhtd", **{name: value})
    with pytest.raises(ValueError, match="theirs has a bias of -1e.09 at every key of a query, beside which float"):
        check.compare({**arrays, "o": o, "bias": np.where(np.arange(5)[:, None] == 2, -1e9, np.zeros(7))}, "hyla",
                      layout="bhtd")
    with pytest.raises(ValueError, match=r"theirs has q of shape \(0, 3, 5, 4\); allowed: at least one entry"):
        check.compare({n: x[:0] for n, x in {**arrays, "o": o}.items()}, "hyla", layout="bhtd")
    with pytest.raises(TypeError, match="keep is an array of numpy with dtype int64; allowed: booleans"):
        check.compare({**arrays, "o": o, "keep": np.ones((5, 7), "int64")}, "hyla", layout="bhtd")


@pytest.mark.parametrize("kernel, told", [(lambda q, k, v: q, ""), (lambda q, k, v, do: q, "do=do, ")])
def test_a_kernel_that_does_not_take_an_option_is_told_of_that_one(kernel, told):
    words = f"'keep'; it is called as theirs(q, k, v, {told}keep=keep), q being bthd (3, 6, 5, 11)"
    with pytest.raises(ValueError, match=re.escape(words)):
        check.compare(kernel, "softmax", keep="bhqk")


def test_a_kernel_of_another_layout_is_told_which():
    def heads_first(q, k, v):
        p = np.exp(q @ k.mT / np.float32(q.shape[-1] ** 0.5))
        return p / p.sum(-1, keepdims=True) @ v

    assert check.compare(heads_first, "softmax", layout="bhtd").ok
    said = str(check.diagnose(heads_first, "softmax", sizes={"q": 6, "k": 6}))
    assert said == "right if its arrays are in another order: layout='bhtd'"
    assert "layout" not in str(check.diagnose(lambda *x: 2 * heads_first(*x), "softmax", sizes={"q": 6, "k": 6}))


def test_a_layer_norm_that_is_off_by_a_thousandth_is_seen_in_float32():
    """Numbers beside 30 would hide it, since a variance in one pass, which is right too, loses them."""
    def theirs(x, scale, shift, do):
        n = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + np.float32(1e-6))
        return {"o": n * scale + shift, "dscale": factor * (do * n).sum((0, 1))}

    for factor in 1, 1.003:
        for seed in range(6):
            assert check.compare(theirs, "ops/layer_norm", seed=seed).ok == (factor == 1)


def test_arrays_of_a_causal_kernel():
    rng = np.random.default_rng(0)
    q, do, k, v = (rng.standard_normal(s) for s in ((2, 5, 3, 4), (2, 5, 3, 6), (2, 7, 3, 4), (2, 7, 3, 6)))
    o, saved = VARIANTS["softmax"].forward(q, k, v, keep=masks.causal(5, 7))
    arrays = {"q": q, "k": k, "v": v, "do": do, "o": o,
              **dict(zip(("dq", "dk", "dv"), VARIANTS["softmax"].backward(saved, do), strict=False))}
    assert check.compare(arrays, "softmax", dtype="float64", causal=True).ok
    assert not check.compare(arrays, "softmax", dtype="float64").ok
    with pytest.raises(ValueError, match="causal is True, but linear_state has an order of its own"):
        check.compare({**arrays, "state": o, "dend": o}, "linear_state", causal=True)


@pytest.mark.parametrize("variant, more, words", [
    ("compositional", (), "theirs has q, k, v, o; allowed: q, k, v, selector, wr and at least one of o, dq, dk, dv"),
    ("hyla_deep", (), "allowed: q, k, v, wv2 and at least one of"),
    ("linear_state", (), "allowed: q, k, v, state and at least one of"),
    ("linear_state", ("state", "do"), "allowed: q, k, v, state, do, dend and at least one of"),
    ("layers/MultiHead hyla", (), "theirs is a dict; allowed: a function"),
])
def test_arrays_that_lack_some_get_one_line(variant, more, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        check.compare(dict.fromkeys(("q", "k", "v", "o", *more), np.ones((2, 3, 4, 5))), variant)


@pytest.mark.parametrize("variant, more, words", [
    ("linear", "dend", "theirs gave dend; allowed: o, dq, dk, dv"),
    ("linear_state", "keep", "theirs gave keep; allowed: o, end, dq, dk, dv, dstate"),
])
def test_arrays_that_a_page_has_not_get_one_line(variant, more, words):
    ones = dict.fromkeys(("q", "k", "v", "do", "o", "state", "dend"), np.ones((2, 4, 4, 4)))
    given = {n: x for n, x in ones.items() if variant == "linear_state" or n not in ("state", "dend")}
    with pytest.raises(ValueError, match=re.escape(words)):
        check.compare(given | {more: np.ones((2, 4, 4, 4))}, variant, dtype="float64")


def test_a_kernel_that_lacks_the_gradient_of_the_end_takes_that_of_the_output():
    with pytest.raises(ValueError, match=re.escape("'dend'; it is called as theirs(q, k, v, state, do=do, dend=dend)")):
        check.compare(lambda q, k, v, state, do: do, "linear_state")


def test_pytest_parameters_of_one_dtype_come_once():
    params = check.pytest_params("hyla", dtype="bfloat16")
    assert len({param.id for param in params}) == len(params) == 6
    assert all(param.id.endswith("-bfloat16") and param.values[0]["dtype"] == "bfloat16" for param in params)


@pytest.mark.parametrize("options, words", [
    ({"variant": "hayla"}, "variant 'hayla' is unknown, did you mean hyla? allowed: softmax"),
    ({"dtype": "float8"}, "dtype is 'float8'; allowed: float64, float32, float16, bfloat16"),
    ({"layout": "bhqd"}, "layout 'bhqd' is unknown; allowed: b, t, h, d in any order, as in 'bhtd'"),
    ({"bias": "qkh"}, "bias is 'qkh'; allowed: the last axes of 'bhqk', or 1 for a stretched one: 'h1k'"),
    ({"sizes": {"t": 3}}, "sizes has the unknown axis 't'; allowed: b, q, k, h, d, e"),
    ({"sizes": {"q": 0}}, "axis q of sizes is 0; allowed: whole numbers of at least 1"),
    ({"sizes": {"q": True}}, "axis q of sizes is True; allowed: whole numbers of at least 1"),
    ({"bias": True}, "bias is True; allowed: the last axes of 'bhqk', or 1 for a stretched one: 'h1k'"),
    ({"seed": -1}, "seed is -1; allowed: whole numbers of at least 0"),
    ({"sizes": [3, 4]}, "sizes is [3, 4]; allowed: 'tiles', or a mapping of axes such as {'q': 16}"),
    ({"variant": "linear_state", "causal": True}, "causal is True, but linear_state has an order of its own"),
    ({"variant": "ops/softmax of axis -1", "causal": True}, "causal is True, but ops/softmax of axis -1 has an order"),
    ({"variant": "layers/LayerNorm", "bias": "hqk"}, "bias cannot be chosen for layers/LayerNorm"),
    ({"variant": "linear_state", "keep": "qk"}, "keep cannot be chosen for linear_state"),
    ({"layout": None}, "layout None is unknown; allowed: b, t, h, d in any order, as in 'bhtd'"),
    ({"bias": ""}, "bias is ''; allowed: the last axes of 'bhqk', or 1 for a stretched one: 'h1k'"),
])
def test_bad_options_get_one_line(options, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        check.compare(kernel(VARIANTS["hyla"]), **{"variant": "hyla", **options})


def test_the_report_of_the_guide_is_what_is_printed():
    """Of its PyTorch kernel, in NumPy: the code's use inside the relu has no gradient."""
    def without(q, k, v, do, bias):
        o, saved = VARIANTS["hyla"].forward(q, k, v, bias=bias)
        dc = np.einsum("bqhe,bqke->bhqk", do, ops.relu(saved.z))
        dv = VARIANTS["hyla"].backward(saved, do)[2]
        dq, dk, dbias = ops.scores_backward(q, k, bias, ops.rms_head_backward(saved.code, saved.rho, dc))
        return o, dq, dk, dv, dbias

    guide = (Path(check.__file__).parents[2] / "docs/kernels.md").read_text(encoding="utf-8")
    report = check.compare(without, "hyla", bias="hqk")
    for entry in report.entries:
        line, = re.findall(rf"^{entry.name} +(?:agrees|WRONG).*$", guide, re.M)
        yours = re.search(r"yours (\S+),", line)
        assert entry.ok == (yours is None), (line, entry)
        assert entry.ok or f"at {entry.where}: " in line and f"refattn {entry.ours:.6g};" in line, (line, entry)
        assert entry.ok or float(yours[1]) == pytest.approx(entry.theirs, rel=1e-4), (line, entry)
    named = str(check.diagnose(without, "hyla", bias="hqk"))
    assert named.partition(";")[0] in guide and f"\n{report.allowed}\n" in guide


def test_sizes_for_tiles_are_taken_by_rows_without_a_mask():
    right = test_diagnose.own(Call(anything, "ops/gelu", "float32"))
    assert check.compare(lambda **inputs: right(**inputs), "ops/gelu", sizes="tiles").ok


def test_a_wrong_number_of_results_and_an_unknown_option():
    with pytest.raises(ValueError, match="theirs returned 2 arrays; allowed: o alone, or o, dq, dk, dv"):
        check.compare(lambda q, k, v, do: (do, q), "hyla")
    with pytest.raises(TypeError, match="unexpected keyword argument 'mask'"):
        check.diagnose(lambda q, k, v, do: do, "hyla", mask="qk")


def test_a_forward_alone_need_not_take_do():
    def right(query, key, value, bias):
        return VARIANTS["hyla"].forward(query, key, value, bias=bias)[0]
    assert [entry.name for entry in check.compare(right, "hyla", bias="hqk").entries] == ["o"]
    assert check.diagnose(right, "hyla", bias="hqk").comparison.ok
    said = check.diagnose(lambda q, k, v, bias: right(q, k, v, 0 * bias), "hyla", bias="hqk")
    assert said.verdict == "forward differs, no gradients given" and said.named, said
    row = Call(anything, "layers/MultiHead softmax", "float32").of.run

    def layer(x, wq, bq, wk, bk, wv, bv, wo, bo, dropout=None):
        given = dict(x=x, wq=wq, bq=bq, wk=wk, bk=bk, wv=wv, bv=bv, wo=wo, bo=bo)
        return row(given if dropout is None or ignored else given | {"dropout": dropout})["o"]
    for ignored in False, True:                                 # dropout shows in a later draw
        assert check.compare(layer, "layers/MultiHead softmax", seed=2).ok != ignored
        assert check.diagnose(layer, "layers/MultiHead softmax", seed=2).comparison.ok != ignored


@pytest.mark.parametrize("spoil, words", [
    (lambda q, k, v, do: 1 / 0, f"theirs raised ZeroDivisionError: division by zero, {__file__}:"),
    (lambda q, k, v, dout: q,
     "missing 1 required positional argument: 'dout'; it is called as theirs(q, k, v), without do, which it does not"),
    (lambda q, k, v, do: (do, q, k), "theirs returned 3 arrays; allowed: o alone, or o, dq, dk, dv"),
    (lambda q, k, v, do: {"out": do}, "theirs returned out; allowed: o, dq, dk, dv"),
    (lambda q, k, v, do: (do, q.__imul__(2), k, v), "theirs changed its input q in place"),
    (lambda q, k, v, do: np.random.default_rng().standard_normal(do.shape), "theirs answers differently when asked ag"),
    (lambda q, k, v, do: "no", "theirs gave o as <U2; allowed: real numbers"),
    (lambda q, k, v, do: None, "theirs gave o as None; allowed: real numbers"),
    (lambda q, k, v, do: do.astype(object), "theirs gave o as objects such as "),
    (lambda q, k, v, do: (do, None, None, None), "theirs gave dq as None; allowed: real numbers"),
    (lambda q, k, v, do: (do, q, k, None), "theirs gave dv as None; allowed: real numbers, or a mapping without dv"),
    (lambda q, k, v, do: (x for x in (do, q, k, v)), "theirs gave o as <generator"),
    (lambda q, k, v, do: {"o": {"x": 1}}, "theirs gave o as {'x': 1}; allowed: real numbers"),
    (lambda q, k, v, do: np.empty((0, 3), object), "theirs gave o as object; allowed: real numbers"),
    (lambda q, k, v, do, given=[]: given.append(0) or (do, q, k, v)[:4 - 3 * (len(given) % 2)],
     "theirs gives dk once of two times with the same inputs; allowed: the same arrays"),
    (None, "theirs is a NoneType; allowed: a function, or a mapping of arrays"),
    (lambda q, k, v, do: sys.exit("bye"), "theirs raised SystemExit: bye"),
    (lambda q, k, v, do: pytest.skip("no GPU"), "theirs raised Skipped: no GPU"),
])
def test_a_kernel_that_cannot_be_judged_gets_one_line(spoil, words):
    for ask in check.compare, check.diagnose:
        with pytest.raises(ValueError, match=re.escape(words)) as error:
            ask(spoil, "hyla")
        assert "\n" not in str(error.value)


def test_an_error_is_told_with_the_kernels_own_line():
    """Errors that CuPy raises come from its compiled files, whose lines say nothing of the kernel's."""
    namespace = {}
    exec(compile("def exp(x): raise TypeError('Unsupported type')", "cupy/_core/_kernel.pyx", "exec"), namespace)
    with pytest.raises(ValueError, match=f"Unsupported type, {re.escape(__file__)}:[0-9]+; it is called as theirs"):
        check.compare(lambda q, k, v: namespace["exp"](q), "softmax")


def test_bfloat16_is_rounded_to_nearest_even():
    x = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -3.14159, 0.0])
    assert plain_formulas.rounded(x, "bfloat16").tolist() == [1.0, 1.0, 1 + 2**-6, 1 + 2**-7, -3.140625, 0.0]


def test_what_is_zero_beside_the_largest_gradient_is_rounding():
    large, zero = np.full(3, 1e3), np.array([-4.5e-13, 3e-12])
    assert deviations("gradient of", {"q": large, "bias": zero}, {"q": large, "bias": zero[::-1]}) < 1e-11
    assert deviations("gradient of", {"q": large, "bias": zero + 1e-8}, {"q": large, "bias": zero}) > 1e-9
    assert deviations("gradient of", {"bias": zero * 2e3}, {"bias": zero * 1e3}) > 0.9


def test_plain_softmax_of_a_query_that_keeps_nothing_overflows_in_no_precision():
    s, keep = np.array([[40, 0], [40, 0]], "float16"), np.array([[True, True], [False, False]])
    assert plain_formulas.softmax(s, keep).tolist() == [[1, 0], [0, 0]]         # warnings are errors here


# ----------------------------------------------------------------------------------------------------- other libraries


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_the_documented_pytorch_example_runs(capsys):
    lines = kernels.__doc__.splitlines(keepends=True)
    example = "".join(line[4:] for line in lines if line.startswith("    ") or line == "\n")
    exec(compile(example, "example", "exec"), {})
    report, diagnosis = capsys.readouterr().out.rsplit("\n", 2)[:2]
    assert report.count("agrees") == 5 and diagnosis == "no mistake: every output and gradient agrees"
    wrong = example.replace('torch.einsum("bhqk,bqke->bhqe", a, z)', 'torch.einsum("bhqk,bqke->bhqe", a.detach(), z)')
    exec(compile(wrong, "example", "exec"), {})
    said = capsys.readouterr().out
    assert "line (7) of hyla_backward, dc7 = dot('bqhe,bqke->bhqk', do, gb): dc7 is 0 times what it should be" in said


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_bfloat16_tensors_and_autograd_agree():
    import torch

    def run(q, k, v, do):
        q, k, v = (torch.from_numpy(x).bfloat16().requires_grad_() for x in (q, k, v))
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        o.backward(torch.from_numpy(do).bfloat16())
        return o, q.grad, k.grad, v.grad

    report = check.compare(run, "softmax", dtype="bfloat16", layout="bhtd")
    assert report.ok, str(report)


@pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")
def test_jax_arrays_agree():
    import jax
    import jax.numpy as jnp

    def linear(q, k, v):
        return jnp.einsum("bqhd,bkhd,bkhe->bqhe", q, k, v) / q.shape[-1] ** 0.5

    def run(q, k, v, do):
        o, pull = jax.vjp(linear, *map(jnp.asarray, (q, k, v)))
        return o, *pull(jnp.asarray(do))

    assert check.compare(run, "linear").ok


def test_importing_the_checks_brings_no_framework():
    import subprocess
    import sys
    code = "import sys, refattn.check; print({'torch', 'jax', 'scipy', 'hypothesis'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_ops_is_not_replaced_by_the_plain_copy():
    assert plain_formulas.package().ops.softmax is not ops.softmax and plain_formulas.package().ops.relu is not ops.relu


@pytest.mark.parametrize("options", [{"keep": "qk"}, {"causal": True}])
@pytest.mark.parametrize("variant", ["softmax", "compositional"])
def test_masked_scores_are_judged_in_naive_float16_too(variant, options):
    """-inf stays -inf in half precision, else every error bar is infinite and everything agrees."""
    call = Call(anything, variant, "float16", naive=True, keep=options.get("keep"), causal="causal" in options)
    ours, bars, _ = call.bars(call.draw(), {})
    for n, bar in bars.items():
        assert np.isfinite(bar).all() and np.median(bar) < 0.1 * np.abs(ours[n]).max(), n


def test_a_report_says_whether_further_evaluations_were_asked():
    call = Call(anything, "softmax", "float16")
    inputs = call.draw()
    ours, bars, words = call.bars(inputs, {})
    off = {"o": ours["o"].copy()}
    assert call.report(inputs, off).allowed == words and "of 8 evaluations in which" in words
    off["o"][0, 0, 0, 0] += 1.01 * bars["o"][0, 0, 0, 0]
    assert call.report(inputs, off).allowed == f"{words}; since few entries were off by more, also what 32 further " \
                                               "evaluations give"
    off["o"] += 9 * bars["o"]
    assert call.report(inputs, off).allowed == words


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_another_epsilon_is_seen_in_rows_that_have_one(dtype):
    for name, result in ("ops/layer_norm", "dx"), ("layers/LayerNorm", "dx"), ("ops/rms_head", "ds"):
        call = Call(anything, name, dtype)

        def kernel(epsilon, run=call.of.run, name=name, result=result, **inputs):
            if "rms" in name:
                a, rho = ops.rms_head(inputs["s"], epsilon=epsilon)
                return {"o": a, result: ops.rms_head_backward(a, rho, inputs["do"])}
            o, n, r = ops.layer_norm(inputs["x"], inputs["scale"], inputs["shift"], epsilon)
            return {"o": o, result: ops.layer_norm_backward(n, r, inputs["scale"], inputs["do"])[0]}
        for seed in range(3):
            assert check.compare(partial(kernel, 1e-6), name, dtype=dtype, seed=seed, naive=True).ok, name
            assert not check.compare(partial(kernel, 1e-5), name, dtype=dtype, seed=seed).ok, (name, seed)


@pytest.mark.parametrize("nothing", [0.0, -np.inf, np.inf])
def test_the_lse_of_a_query_that_keeps_nothing_is_free(nothing):
    run = Call(anything, "softmax", "float32").of.run

    def kernel(q, k, v, do, keep):
        found = run({"q": q, "k": k, "v": v, "do": do, "keep": keep}, lse=True)
        lse = np.where(keep.any(-1), found["lse"], nothing)
        return found | {"lse": lse + wrong * (np.arange(6) == 4)}
    for wrong in 0.0, 0.1:
        report = check.compare(kernel, "softmax", keep="qk")
        assert report.ok == (not wrong), report
        assert str(check.diagnose(kernel, "softmax", keep="qk")).startswith("no mistake" if report.ok else "o and its")


def test_ready_cases_are_of_two_precisions():
    assert [case.id for case in check.pytest_params("linear", ())] == ["linear-plain-float32", "linear-plain-float64"]
