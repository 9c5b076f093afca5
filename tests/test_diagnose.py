"""The oracle: error bars that hold, formulas that are the pages, mistakes found in the line where they were made."""

import ast
import inspect
import json
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from refattn import check, ops
from refattn.attention import ablations
from refattn.attention.pages import PAGES
from refattn.attention.sliding_dilated import sliding_dilated, sliding_dilated_backward
from refattn.attention.windows import Window, windows
from refattn.check import changes
from refattn.check.diagnosis import answers, pattern
from refattn.check.formulas import formulas, start
from refattn.check.grammar import mutants, resolved
from refattn.check.kernels import Call
from refattn.check.probing import consistent
from refattn.check.running import FUNCTIONS, Runner, along, erf_of, ways
from refattn.check.subjects import drawn, subject
from refattn.contract import contract as dot
from refattn.layers.convolution import patches
from refattn.verification import rounding
from refattn.verification.cases import CASES

from .bench import false_alarms
from .kernels_blind_8 import CASES as EIGHTH
from .kernels_blind_10 import CASES as TENTH
from .kernels_blind_13 import CASES as THIRTEENTH
from .kernels_blind_13 import kernel as thirteenth
from .kernels_blind_15 import CASES as FIFTEENTH
from .kernels_blind_16 import CASES as SIXTEENTH
from .kernels_blind_17 import CASES as SEVENTEENTH
from .kernels_blind_19 import CASES as OF_NINETEENTH
from .kernels_blind_19 import SETTINGS as NINETEENTH
from .kernels_own import CASES as BANK
from .kernels_own import cases

ALL_DTYPES = "float64", "float32", "bfloat16", "float16"
ROWS = [case.name for case in CASES if formulas(case.name)]
SAMPLE = ("hyla: dropout missing in the first use", "hyla: a sign", "hyla: dq unscaled", "softmax: scores too large",
          "softmax: keep missing", "softmax: the model's width in the scale", "linear: keep missing backward",
          "compositional: d for c", "sliding_dilated: dilation 1", "sliding_dilated: duplicates lost")


def everything(page):
    letter = "w" if page.startswith("sliding") else "k"
    return {"bias": f"bhq{letter}", "keep": f"bhq{letter}", "dropout": f"bhq{letter}"}


def anything(*arrays, **options):
    """A kernel that takes everything."""


def own(call):
    """What the library itself gives, as a kernel."""
    def kernel(*arrays, **options):
        inputs = dict(zip(call.of.arrays, arrays, strict=True)) | options
        if call.causal:
            q, k = arrays[0].shape[1], arrays[1].shape[1]
            inputs["keep"] = np.tri(q, k, k - q, bool)
        return call.of.run(inputs)
    return kernel


# ---------------------------------------------------------------------------------------------------------- error bars


def test_every_step_is_rough():
    """Where an array loses its class on the way, bars are silently too small: here every operation must be off."""
    rounding.current.set(rounding.Noise("float32").draw(0, 2))
    x = rounding.Rough(np.random.default_rng(0).standard_normal((4, 5)))
    for f in (lambda x: x + 1, lambda x: x @ x.T, np.exp, lambda x: x.sum(axis=1), lambda x: x.mean(axis=0),
              lambda x: rounding.einsum("ij,kj->ik", x, x) * 1, lambda x: rounding.where(x > 0, x, 0) * 3,
              lambda x: ops.softmax(x), lambda x: ops.gelu(x),
              lambda x: patches((x * 2).reshape(1, 4, 5, 1), 2, 1, 1),
              lambda x: rounding.concatenate([x, x]) / 3, lambda x: ops.layer_norm(x, x[0], x[1])[0]):
        y, exact = f(x), f(x)                       # twice: the noise is another one
        assert type(y) is rounding.Rough and (y.host != exact.host).mean() > 0.4
        assert np.abs(y.host - exact.host).max() < 1e-3 * np.abs(y.host).max()


def test_two_threads_have_bars_of_their_own():
    """Their evaluations take turns, so each draws its noise between the other's drawing and computing."""
    x, together = np.random.default_rng(0).standard_normal((4, 5)), threading.Barrier(2, timeout=60)

    def bars(dtype, wait=lambda: None):
        def run(xp):
            wait()
            return {"y": xp.exp(xp.asarray(x)) @ xp.asarray(x).T}
        return rounding.bars(run, dtype)[1]["y"]
    alone = [bars(dtype) for dtype in ("float32", "float64")]
    with ThreadPoolExecutor(2) as pool:
        beside = [pool.submit(bars, dtype, together.wait) for dtype in ("float32", "float64")]
    assert all(np.array_equal(one, other.result()) for one, other in zip(alone, beside, strict=True))


@pytest.mark.parametrize("name", [*PAGES, "linear_state"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_pages_are_not_called_wrong_and_an_error_of_a_thousandth_is_seen(name, dtype):
    if name == "linear_state":
        assert check.compare(own(Call(anything, name, dtype)), name, dtype=dtype, sizes={"q": 3}).ok
        return
    assert false_alarms.ratios(name, dtype, "all three", 1, None, {"own": false_alarms.own(name, dtype)})["own"] < 1
    if dtype == "float32" and formulas(name):
        seen, total = false_alarms.planted(name, range(2))
        assert seen == total > 10


def test_no_false_alarm_is_recorded():
    """What `python -m tests.bench.false_alarms --record` counted, for every page of then, option and precision.

    And what `tests.bench.diagnoses --record` did, in every bank.
    """
    banks = json.loads(Path(false_alarms.__file__).with_name("diagnoses.json").read_text())
    assert {*banks} == {path.parent.name for path in Path(__file__).parent.glob("kernels_blind*/__init__.py")}
    assert not any(row["called wrong"] for bank in banks.values() for row in bank.values())
    counts = json.loads(Path(false_alarms.__file__).with_suffix(".json").read_text())
    planted = {name: row for name, row in counts.items() if name.startswith("planted")}
    cells = {name: row for name, row in counts.items() if name not in planted}
    assert sum(name.startswith("default") for name in cells) >= 17 * 4 * 6 and all(row[0] >= 20 or "kernel" in name
                                                                                  for name, row in cells.items())
    assert not {name: row for name, row in cells.items() if row[1]}
    assert all(seen >= 0.99 * total for _, seen, total in planted.values()) and len(planted) >= 17


@pytest.mark.parametrize("options", [{"causal": True, "bias": "hqk"}, {"causal": True, "keep": "b11k"},
                                     {"sizes": "tiles"}, {"sizes": {"q": 63, "k": 65, "d": 64, "e": 64}}])
def test_causal_masks_lengths_and_tiles(options):
    def kernel(q, k, v, do, bias=None, keep=None):
        seen = np.tri(q.shape[1], k.shape[1], k.shape[1] - q.shape[1], bool) if options.get("causal") else None
        keep = seen if keep is None else keep & seen
        o, saved = PAGES["hyla"].forward(q, k, v, bias=bias, keep=keep)
        return o, *PAGES["hyla"].backward(saved, do)
    assert check.compare(kernel, "hyla", **options).ok


@pytest.mark.parametrize("name", [case.name for case in CASES if case.name in (
    "ops/layer_norm", "ops/gelu", "ops/embedding", "losses/cross_entropy", "ops/softmax of axis -1",
    "layers/MultiHead hyla", "layers/Compositional dot", "layers/SlidingDilated pad",
    "models/RegularGPT tree, released")])
def test_operations_layers_and_models(name):
    call = Call(anything, name, "float32")
    assert check.compare(own(call), name).ok

    def wrong(**inputs):
        found = own(call)(**inputs)
        last = list(found)[-1]
        return found | {last: found[last] * 1.001}
    assert not check.compare(wrong, name).ok


def test_log_sum_exp_is_a_named_value():
    def kernel(q, k, v, do):
        s = np.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        return {"lse": np.log(np.exp(s).sum(-1)) * factor}
    factor = 1
    assert check.compare(kernel, "softmax").ok
    factor = 1.0001
    assert not check.compare(kernel, "softmax").ok


@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_what_a_dtype_may_not_hold_is_allowed_anything(dtype):
    x = np.array([1.0, 250.0, 255.9, 256.0, 300.0])         # float16 ends at 65,504, which is 255.94 squared
    exact, bars = rounding.bars(lambda xp: {"y": xp.asarray(x) * xp.asarray(x)}, dtype)
    assert exact["y"].tolist() == (x * x).tolist()
    assert np.isinf(bars["y"]).tolist() == [False, False, *[dtype == "float16"] * 3] and (bars["y"] > 0).all()


# ----------------------------------------------------------------------------------------------------------- formulas


@pytest.mark.parametrize("name", [*PAGES, "linear_state", *ROWS])
def test_formulas_are_the_page(name):
    of = subject(name)
    inputs = drawn(of, "float64", everything(name) if name in PAGES else {}, None, 3)
    ours = of.run(inputs)
    largest = max(np.abs(x).max() for x in ours.values())
    for each in formulas(name):
        assert not {line.name for line in each.lines} & FUNCTIONS.keys()
        env = Runner(each).run(start(each, inputs))
        for n, x in ours.items():
            assert np.abs(np.reshape(env[n], np.shape(x)) - x).max() <= 1e-12 * max(np.abs(x).max(), largest), n


def test_a_complex_step_of_erf_is_its_slope():
    x = np.linspace(-3, 3, 13)                              # by which lines are asked whether they would explain it
    np.testing.assert_allclose(erf_of(x + 1e-30j).imag / 1e-30, 2 / np.pi**0.5 * np.exp(-x * x), rtol=1e-12)
    np.testing.assert_array_equal(erf_of(x + 1e-30j).real, erf_of(x))


HANDLED = {"the first for all": "11111", "shifted by one": "23455", "shifted back by one": "11234", "mean": "33333",
           "rolled by one": "51234", "rolled back by one": "23451", "reversed": "54321", "only the first": "10000",
           "the first missing": "02345", "the last missing": "12340", "only the last": "00005",
           "the first tile missing, of 2": "00345", "only the first tile, of 2": "12000",
           "the last tile missing, of 3": "12300", "only the last tile, of 3": "00045",
           "the partial tile missing, of 4": "12340"}


def test_an_axis_is_handled_as_the_words_say():
    assert {how.rstrip(" 234") for how in ways(5)} == {how.rstrip(" 234") for how in HANDLED} | {"sum"}
    for how, digits in HANDLED.items():
        assert along(np.arange(1, 6), 0, how).tolist() == [*map(int, digits)], how
    assert along(np.arange(1, 5), 0, "the partial tile missing, of 2").tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("spec, moved, meant", [
    ("bqhd,bkhd->bhqk", 0, "bkhd,bkhd->bhk"), ("bqhd,bkhd->bhqk", 1, "bqhd,bqhd->bhq"),
    ("bqhd,bkhd->bhqk", 2, "bqhd,bkhd->bhkq"), ("bhqk,bkhe->bqhe", 0, "bhkq,bkhe->bqhe"),
    ("bhqk,bkhe->bqhe", 1, "bhqk,bqhe->bqhe"), ("bhqk,bkhe->bqhe", 2, "bhqk,bkhe->bkhe")])
def test_a_product_in_which_one_has_the_place_of_the_other(spec, moved, meant):
    rng, size = np.random.default_rng(0), {"b": 2, "q": 3, "k": 3, "h": 4, "d": 5, "e": 6}
    first, second, result = re.split(",|->", spec)
    x, y = (rng.standard_normal([size[letter] for letter in letters]) for letters in (first, second))
    expected = np.einsum(meant, x, y)
    if len(meant.partition(">")[2]) < len(result):          # the same for every query, or for every key
        expected = expected[:, :, None] if meant.endswith("k") else expected[..., None]
    found = FUNCTIONS["elsewhere"](spec, x, y, moved)
    expected = np.broadcast_to(expected, [size[letter] for letter in result])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("page", ["softmax", "hyla", "compositional", "sliding_dilated"])
def test_mistakes_change_a_line_and_read_nothing_that_is_not_made_by_then(page):
    of = formulas(page)[0]
    made = [line.name for line in of.lines]
    for mistake in (m for part in (0, 1) for m in mutants(of, part, dict.fromkeys("bqkhdercw", 4))):
        for i, code in mistake.codes.items():
            assert not {*code.co_names} & {*made[i:]} - {*made[:i]}, mistake.words
        assert any(ast.unparse(ast.parse(code.co_filename)) != ast.unparse(resolved(of, of.lines[i]))
                   for i, code in mistake.codes.items()), mistake.words


# ----------------------------------------------------------------------------------------------------------- diagnosis


@pytest.mark.parametrize("case", [pytest.param(c, marks=[] if c.name in SAMPLE else pytest.mark.slow, id=c.name)
                                  for c in BANK if c.line])
def test_the_line_of_a_mistake_is_found(case):
    found = check.diagnose(case.function, case.as_, **everything(case.as_))
    assert case.line in found.lines and len(found.lines) <= 3 and found.named, str(found)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_bank_in_pytorch(dtype):
    torch = pytest.importorskip("torch")
    located = named = total = 0
    for case in cases(torch):
        found = check.diagnose(case.function, case.as_, dtype=dtype, **everything(case.as_))
        assert found.comparison.ok == (not case.line), case.name
        if case.line:
            located, named, total = located + (case.line in found.lines), named + found.named, total + 1
    assert located >= 0.9 * total and named >= 0.75 * total


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("bank", ["tests.kernels_blind", "tests.kernels_blind_2", "tests.kernels_blind_3",
                                  "tests.kernels_blind_4"])
def test_banks_of_others(bank, dtype):
    pytest.importorskip("torch")
    pytest.importorskip("jax")
    from .bench import diagnoses
    counts = diagnoses.measure(diagnoses.bank(bank), dtype)
    assert not counts["called wrong"], counts
    assert counts["located"] >= 0.9 * counts["wrong"] and counts["named"] >= 0.75 * counts["wrong"], counts


@pytest.mark.slow
@pytest.mark.parametrize("bank, dtype, located, named", [
    ("5", "float64", 0.94, 0.82), ("5", "float32", 0.93, 0.82), ("5", "bfloat16", 0.87, 0.8),
    ("5", "float16", 0.91, 0.8),
    ("6", "float64", 0.89, 0.81), ("6", "float32", 0.89, 0.81)])
def test_later_banks_of_others(bank, dtype, located, named):
    pytest.importorskip("torch")
    from .bench import diagnoses
    counts = diagnoses.measure(diagnoses.bank(f"tests.kernels_blind_{bank}"), dtype)
    assert not counts["called wrong"], counts
    assert counts["located"] >= located * counts["wrong"] and counts["named"] >= named * counts["wrong"], counts


@pytest.mark.slow
@pytest.mark.parametrize("bank, dtype, every, located, named", [
    ("7", "bfloat16", 20, 0.93, 0.81), ("8", "float16", 20, 0.93, 0.83), ("9", "float32", 20, 0.95, 0.78),
    ("10", "float64", 40, 0.93, 0.72), ("11", "float64", 16, 0.9, 0.7), ("13", "float32", 8, 0.9, 0.75)])
def test_banks_in_numpy(bank, dtype, every, located, named):
    """A few of the mistakes beside all right kernels; `python -m tests.bench.diagnoses` has all, in every dtype."""
    from .bench import diagnoses
    cases = [c for n, c in enumerate(diagnoses.bank(f"tests.kernels_blind_{bank}")) if not c.line or n % every == 0]
    counts = diagnoses.measure(cases, dtype)
    assert not counts["called wrong"], counts
    assert counts["located"] >= located * counts["wrong"] and counts["named"] >= named * counts["wrong"], counts


UNTOLD = "forward differs; whether your gradients are right for it shows where o is finite and has its shape"


@pytest.mark.parametrize("of_o, of_dq, words", [
    (lambda o: 1.5 * o, np.nan, "forward differs, and your gradients are not those of your forward"),
    (lambda o: np.nan * o, 7.0, UNTOLD),
    (lambda o: np.concatenate([o, o], -1), 7.0, UNTOLD),        # its product with do raised NumPy's error
    (lambda o: o[..., :1], 1.1, UNTOLD)])                       # or was broadcast
def test_of_what_is_not_finite_or_misshapen_no_more_is_said_than_shows(of_o, of_dq, words):
    right = own(Call(anything, "softmax", "float32"))

    def kernel(*arrays, **options):
        found = right(*arrays, **options)
        return found | {"o": of_o(found["o"]), "dq": of_dq * found["dq"]}
    assert check.diagnose(kernel, "softmax").verdict == words


@pytest.mark.parametrize("epsilon, words", [(float(np.float32(1e-6)), "1e-6 as float32 rounds it"), (1e-5, "1e-05")])
def test_an_epsilon_has_a_name_and_no_factor_is_called_1(epsilon, words):
    from refattn.check.changes import told
    assert (told(1.50001), told(1 + 3e-8), told(1 - 2e-6)) == ("1.5", "1 + 3e-08", "1 - 2e-06")

    def kernel(q, k, v):
        s = np.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[3] ** 0.5
        a = s * ((s * s).mean(1, keepdims=True) + epsilon) ** -0.5
        return np.einsum("bhqk,bqke->bqhe", a, np.maximum(np.einsum("bhqk,bkhe->bqke", a, v), 0))
    found = check.diagnose(kernel, "hyla", dtype="float64")
    assert found.named and found.sentences[0].endswith(f"epsilon is {words}"), found


def test_sizes_beyond_the_memory_are_refused():
    with pytest.raises(ValueError, match=r"shape \(3, 5, 1\d{7}, 1\d{7}\), .* GiB of this machine; allowed: smaller"):
        check.compare(anything, "softmax", sizes={"q": 10**7, "k": 10**7})


@pytest.mark.parametrize("name, wrong, lines", [
    ("layers/MultiHead hyla", ("dwo",), ("backward (out)",)),
    ("layers/SlidingDilated pad", ("dpad",), ("backward (in)",)),
    ("layers/FeedForward gelu", ("dw2",), ("backward (4)",))])
def test_layers_are_diagnosed(name, wrong, lines):
    call = Call(anything, name, "float32")

    def kernel(**inputs):
        found = own(call)(**inputs)
        return found | {n: found[n][::-1] for n in wrong}
    found = check.diagnose(kernel, name)
    assert found.lines == lines and found.named, found


@pytest.mark.parametrize("seed", range(3))
def test_no_line_is_called_the_first_where_one_before_it_would_explain_the_answers(seed):
    """Where a softmax is nearly sure its scores have no slopes to search by: the search begins anew at scores of 0."""
    right = own(Call(anything, "softmax", "float32"))
    found = check.diagnose(lambda q, *rest, do: right(q.swapaxes(2, 3).reshape(q.shape), *rest, do=do), "softmax",
                           seed=seed)
    assert found.lines[0] == "forward (1)", found


def test_an_output_that_is_nan_where_nothing_is_kept_has_a_line():
    right = own(Call(anything, "softmax", "float64", keep="bhqk"))

    def wrong(*arrays, keep, do):
        found = right(*arrays, keep=keep, do=do)
        return found | {"o": np.where(keep.any(-1).swapaxes(1, 2)[..., None], found["o"], np.nan)}
    found = check.diagnose(wrong, "softmax", dtype="float64", keep="bhqk")
    assert found.named and found.sentences[0].endswith(": 0 / 0 where nothing is kept"), found


def test_mistakes_that_overflow_are_passed_over():                             # a warning is an error here
    call = Call(anything, "softmax", "float64", bias="hqk")

    def kernel(q, k, v, do, bias):                                              # dbias of the first sequence alone
        first = do * (np.arange(len(do)) == 0)[:, None, None, None]
        return own(call)(q, k, v, do=do, bias=bias) | {"dbias": own(call)(q, k, v, do=first, bias=bias)["dbias"]}
    found = check.diagnose(kernel, "softmax", dtype="float64", bias="hqk")
    assert found.named and "backward (1)" in found.lines, found


def test_the_line_of_a_mistake_that_no_table_has():
    def kernel(q, k, v, do):
        o, saved = PAGES["softmax"].forward(q, k, v)
        a = saved.code * (1 + 0.1 * np.sin(40 * saved.code))                    # in the backward's softmax only
        ds = a * (np.einsum("bqhe,bkhe->bhqk", do, v) - (do * o).sum(-1).swapaxes(1, 2)[..., None])
        dv = PAGES["softmax"].backward(saved, do)[2]
        scale = q.shape[-1] ** -0.5
        return o, np.einsum("bhqk,bkhd->bqhd", ds, k) * scale, np.einsum("bhqk,bqhd->bkhd", ds, q) * scale, dv
    found = check.diagnose(kernel, "softmax", dtype="float64", sizes={"k": 5})
    assert found.lines[0] == "backward (2)" and not found.named, found
    assert "another ds would explain it, none of a line before it was found" in str(found), found


def test_of_lines_that_would_explain_it_the_first_is_named_first():
    def kernel(q, k, v, do):
        o, saved = PAGES["softmax"].forward(q, k, v)
        da = np.einsum("bqhe,bkhe->bhqk", do, v)
        da += 0.1 * np.sin(5 * da)                                              # in the backward's line (4)
        ds = saved.code * (da - (da * saved.code).sum(-1, keepdims=True))
        dv, scale = PAGES["softmax"].backward(saved, do)[2], q.shape[-1] ** -0.5
        return o, np.einsum("bhqk,bkhd->bqhd", ds, k) * scale, np.einsum("bhqk,bqhd->bkhd", ds, q) * scale, dv

    found = check.diagnose(kernel, "softmax", dtype="float64", sizes={"k": 5})
    assert found.lines == ("backward (4)", "backward (3)", "backward (2)") and not found.named, found
    first, *others = found.sentences[:3]
    assert first.endswith("another dc would explain it, none of a line before it was found"), found
    assert all(x.endswith("would explain it too") for x in others), found


def test_a_wrong_da_is_named_too_where_the_sum_is_taken_from_the_output():
    """The page's ds sums to 0 over keys whatever da is; that of fused kernels, with sum(do o), only of a right da."""
    def kernel(q, k, v, do):
        o, saved = PAGES["softmax"].forward(q, k, v)
        da = np.einsum("bqhe,bkhe->bhqk", do, v)
        da += 0.1 * np.sin(5 * da)                                              # in the backward's line (4)
        ds = saved.code * (da - (do * o).sum(-1).swapaxes(1, 2)[..., None])
        dv, scale = PAGES["softmax"].backward(saved, do)[2], q.shape[-1] ** -0.5
        return o, np.einsum("bhqk,bkhd->bqhd", ds, k) * scale, np.einsum("bhqk,bqhd->bkhd", ds, q) * scale, dv

    found = check.diagnose(kernel, "softmax", dtype="float64", sizes={"k": 5})
    assert found.lines == ("backward (2)", "backward (4)", "backward (3)") and not found.named, found


def test_a_forward_that_no_table_has():
    def kernel(q, k, v, do):
        s = np.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
        a = np.exp(s + 0.1 * np.sin(7 * s))
        return np.einsum("bhqk,bkhe->bqhe", a / a.sum(-1, keepdims=True), v)

    found = check.diagnose(kernel, "softmax", dtype="float64")
    assert found.lines[0] == "forward (1)" and "another s1 would explain it, none of a line before" in str(found), found


@pytest.mark.parametrize("page", ["softmax", "hyla", "linear"])
@pytest.mark.parametrize("power, words", [(0.5, "not divided by sqrt(d)"), (-0.5, "divided by d in place of sqrt(d)")])
def test_a_scale_that_is_wrong_in_both_gradients(page, power, words):
    def kernel(q, k, v, do):
        o, saved = PAGES[page].forward(q, k, v)
        dq, dk, dv, *_ = PAGES[page].backward(saved, do)
        return o, dq * q.shape[-1] ** power, dk * q.shape[-1] ** power, dv
    found = check.diagnose(kernel, page)
    assert found.lines[0] == "backward (1)" and f"dq and dk: {words}" in found.sentences[0], found


@pytest.mark.parametrize("page", ["softmax", "linear", "hyla", "sliding_dilated"])
@pytest.mark.parametrize("scaled, words", [
    (lambda do: -do, "-1 times what it should be"), (lambda do: 2 * do, "2 times what it should be"),
    (lambda do: do / do.shape[0], "1/b times what it should be"),
    (lambda do: do / np.prod(do.shape[:2], dtype=do.dtype), "that of a mean over batch and positions"),
    (lambda do: do / np.prod(do.shape, dtype=do.dtype), "that of a mean over all outputs"),
    (lambda do: do / 100, "0.01 times what it should be"), (lambda do: 1.7 * do, "1.7 times what it should be"),
    (lambda do: 65536 * do, "6.554e+04 times what it should be"),
], ids=["sign", "twice", "batch", "positions", "all", "100th", "1.7", "65536"])
def test_gradients_that_are_all_off_by_one_factor(page, scaled, words):
    def kernel(*arrays, do):
        o, saved = PAGES[page].forward(*arrays)
        return o, *(x for x in PAGES[page].backward(saved, scaled(do)) if x is not None)
    found = check.diagnose(kernel, page)
    assert found.named and f": every gradient is {words}" in found.sentences[0], found


def test_a_softmax_whose_backward_is_forgotten():
    def kernel(q, k, v, do):
        o, saved = PAGES["softmax"].forward(q, k, v)
        ds = np.einsum("bqhe,bkhe->bhqk", do, v) / np.sqrt(q.shape[-1], dtype=q.dtype)
        return (o, np.einsum("bhqk,bkhd->bqhd", ds, k), np.einsum("bhqk,bqhd->bkhd", ds, q),
                np.einsum("bhqk,bqhe->bkhe", saved.code, do))
    found = check.diagnose(kernel, "softmax")
    assert found.lines[0] == "backward (2)" and found.named and "da stands alone" in found.sentences[0], found


@pytest.mark.parametrize("change, words", [
    (lambda at, q, k: windows(range(k - q, k), len(at), 1), "the dilation is 1 in place of 2"),
    (lambda at, q, k: windows(range(k - q, k), len(at), 3), "the dilation is 3 in place of 2"),
    (lambda at, q, k: (*at[:-1], Window(slice(0, 0), slice(0, 0), None)), "the last offset is missing"),
], ids=["dilation 1", "dilation 3", "an offset less"])
def test_windows_that_are_wrong_in_the_whole_backward(change, words):
    def kernel(q, k, v, offset_bias, do):
        o, saved = sliding_dilated(q, k, v, offset_bias, dilation=2)
        saved = saved._replace(at=change(saved.at, q.shape[1], k.shape[1]))
        return o, *(x for x in sliding_dilated_backward(saved, do) if x is not None)
    found = check.diagnose(kernel, "sliding_dilated")
    assert found.named and f"{words}, in all windows" in found.sentences[0], found


def test_an_output_of_another_page_beside_gradients_of_this_one():
    def kernel(q, k, v, do):
        _, saved = PAGES["linear"].forward(q, k, v)
        return PAGES["softmax"].forward(q, k, v)[0], *PAGES["linear"].backward(saved, do)[:3]
    found = check.diagnose(kernel, "linear")
    assert found.named and found.sentences[0] == "the output is that of softmax" and found.fit < 1, found


def test_a_mistake_that_leaves_most_of_the_error_is_not_said_and_nothing_beside_another_page():
    """A page is the whole explanation; of a tanh for a relu a mean over f in its place would leave nine tenths."""
    def tanh_for_relu(q, k, v, selector, wr, wc, br, w2, b2):
        o, saved = PAGES["compositional_nonlinear"].forward(q, k, v, selector, wr, wc, br, w2, b2)
        scores = np.tanh(saved.inside) @ w2 + b2
        g = np.exp(scores - scores.max(-1, keepdims=True))
        return ((g / g.sum(-1, keepdims=True))[..., None] * saved.retrievals).sum(3)
    said = check.diagnose(tanh_for_relu, "compositional_nonlinear")
    assert said.lines[0] == "forward (5)" and "another l would explain it" in said.sentences[0], said
    assert "leaves" not in str(said), said
    found = check.diagnose(own(Call(anything, "hyla", "float32")), "softmax")
    assert found.sentences == ("every answer is that of hyla",), found


@pytest.mark.parametrize("change, words", [
    ("added", "keep is added to the scores, as 0 and 1"), ("causal", "the causal mask is ignored"),
    ("-10000", "keep is added to the scores, as 0 and -10000")])
def test_masks_that_are_no_masks(change, words):
    def kernel(q, k, v, keep=None):
        s = np.einsum("bqhd,bkhd->bhqk", q, k) / q.dtype.type(q.shape[-1] ** 0.5)
        s = s if keep is None else s + (keep if change == "added" else np.float32(1e4) * (keep - np.float32(1)))
        x = np.exp(s - s.max(-1, keepdims=True))
        return np.einsum("bhqk,bkhe->bqhe", x / x.sum(-1, keepdims=True), v)
    options = {"causal": True} if change == "causal" else {"keep": "qk"}
    found = check.diagnose(kernel, "softmax", **options)
    assert found.named and found.sentences[0].endswith(words), found


@pytest.mark.parametrize("mistake, words", [
    ("prefix", "keys before the first query's own are lost"),
    ("early", "in tiles of 4 counted from the first query, keys of the query's own tile count twice"),
    ("never", "in tiles of 4 counted from the first query, only keys of the query's own tile and those before the "
     "first query's own count")])
def test_chunks_with_a_state_that_begin_at_the_first_query(mistake, words):
    """There are three keys before it: at equal numbers both ways to count tiles are the same."""
    def kernel(q, k, v):
        before = k.shape[1] - q.shape[1]
        state = np.einsum("bkhd,bkhe->bhde", k[:, :before], v[:, :before]) * (mistake != "prefix")
        found = []
        for n in range(0, q.shape[1], 4):
            i, j = slice(n, n + 4), slice(before + n, before + min(n + 4, q.shape[1]))
            new = np.einsum("bkhd,bkhe->bhde", k[:, j], v[:, j])
            state = state + new * (mistake == "early")
            inside = np.tril(np.einsum("bqhd,bkhd->bhqk", q[:, i], k[:, j]))
            own_chunk = np.einsum("bhqk,bkhe->bqhe", inside, v[:, j])
            found.append(np.einsum("bqhd,bhde->bqhe", q[:, i], state) + own_chunk)
            state = state + new * (mistake == "prefix")
        return np.concatenate(found, 1) * q.dtype.type(q.shape[-1] ** -0.5)
    found = check.diagnose(kernel, "linear", causal=True, sizes={"q": 9, "k": 12})
    assert found.named and found.sentences[0].endswith(words) and found.lines[0] == "forward (2)", found


def test_a_loss_that_lacks_the_largest_logit():
    def kernel(logits, target, weight=None):
        top, n = logits.max(-1), (np.arange(len(target))[:, None], np.arange(target.shape[1]), target)
        loss = np.log(np.exp(logits - top[..., None]).sum(-1)) - logits[n]
        return loss.mean() if weight is None else (loss * weight).sum() / weight.sum()
    found = check.diagnose(kernel, "losses/cross_entropy")
    assert found.named and "the largest is not added back" in found.sentences[0], found


def test_scores_that_are_capped_softly():
    def kernel(q, k, v, bias):
        s = np.einsum("bqhd,bkhd->bhqk", q, k) * q.dtype.type(q.shape[-1] ** -0.5) + bias
        x = np.exp(30 * np.tanh(s / 30))
        return np.einsum("bhqk,bkhe->bqhe", x / x.sum(-1, keepdims=True), v)
    found = check.diagnose(kernel, "softmax", bias="hqk")
    assert found.named and found.sentences[0].endswith("scores are capped softly at 30"), found
    assert found.lines[0] == "forward (1)", found


@pytest.mark.parametrize("causal, part", [(False, 4), (True, 3)])
def test_split_keys_that_are_merged_by_a_mean(causal, part):
    def kernel(q, k, v):
        s = np.einsum("bqhd,bkhd->bhqk", q, k) * q.dtype.type(q.shape[-1] ** -0.5)
        x = np.exp(s) * (np.tri(*s.shape[2:], s.shape[3] - s.shape[2], dtype=q.dtype) if causal else 1)
        parts = [slice(n, n + part) for n in range(0, s.shape[3], part)]
        sums = [np.maximum(x[..., at].sum(-1), 1e-30).swapaxes(1, 2)[..., None] for at in parts]
        return sum(np.einsum("bhqk,bkhe->bqhe", x[..., at], v[:, at]) / total
                   for at, total in zip(parts, sums, strict=True)) / len(parts)
    found = check.diagnose(kernel, "softmax", causal=causal)
    words = f"parts of {part} keys are merged by a mean, whatever their sums"
    assert found.named and found.sentences[0].endswith(words) and found.lines[0] == "forward (2)", found


def test_a_forgotten_term_is_called_so():
    def kernel(x, scale, shift, do):
        y, n, r = ops.layer_norm(x, scale, shift)
        dn = do * scale
        return y, r * (dn - dn.mean(-1, keepdims=True)), (do * n).sum((0, 1)), do.sum((0, 1))
    found = check.diagnose(kernel, "ops/layer_norm")
    assert found.named and found.sentences[0].endswith("the term n * mean(dn * n, 'm') is missing"), found


@pytest.mark.parametrize("means, words", [
    (("dwv",), "a mean over bk in place of a sum"), (("dbq", "dbk"), "dbq and dbk: 1/(b q) times what they should be")])
def test_gradients_of_some_parameters_that_are_means(means, words):
    """Of one the report says so, of several it gives the factor: no mistake of all gradients for some of them."""
    def kernel(*arrays, **inputs):
        found = subject("layers/MultiHead linear").run(inputs)
        return {n: x / np.float32(inputs["x"][..., 0].size) if n in means else x for n, x in found.items()}
    said = str(check.diagnose(kernel, "layers/MultiHead linear"))
    assert words in said and "every gradient" not in said and "only" not in said, said


def test_a_kernel_that_gives_lse_and_has_a_mistake_without_a_name():
    """Whether its output is that of another page is asked without lse, which only softmax has."""
    def kernel(q, k, v):
        s = np.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        x = np.exp(2 * np.tanh(s / 2))                          # capped scores
        o = np.einsum("bhqk,bkhe->bqhe", x / x.sum(-1, keepdims=True), v)
        return {"o": o, "lse": np.log(x.sum(-1))}
    found = check.diagnose(kernel, "softmax")
    assert not found.named and found.sentences[0].startswith("line (1) of softmax"), found


def test_a_gradient_that_is_wrong_only_for_a_stretched_bias():
    page = PAGES["softmax"]

    def kernel(q, k, v, do, bias, keep, dropout):
        o, saved = page.forward(q, k, v, bias=bias, keep=keep, dropout=dropout)
        dq, dk, dv, dbias = page.backward(saved, do)
        if bias.shape[0] < len(q):                              # that of the last sequence, not the sum
            last = [x[-1:] for x in (q, k, v)]
            _, saved = page.forward(*last, bias=bias, keep=keep[-1:], dropout=dropout[-1:])
            dbias = page.backward(saved, do[-1:])[3]
        return o, dq, dk, dv, dbias
    found = check.diagnose(kernel, "softmax", dtype="float64", **everything("softmax"))
    assert found.lines[0] == "backward (1)", found


def test_a_kernel_of_whole_biases_need_not_know_stretched_ones():
    page = PAGES["softmax"]

    def kernel(q, k, v, do, bias):
        whole = np.broadcast_to(bias, (len(q), *bias.shape[1:]))
        o, saved = page.forward(q, k, v, bias=whole)
        return o, *page.backward(saved, do)
    assert check.diagnose(kernel, "softmax", bias="bhqk").comparison.ok
    said = check.diagnose(kernel, "softmax", bias="1hqk")       # which it says that it knows
    assert "dbias has shape (3, 5, 6, 7) instead of (1, 5, 6, 7)" in str(said) and said.lines == ("backward (1)",)


@pytest.mark.parametrize("page", ["softmax", "hyla"])
def test_a_right_causal_kernel_is_told_that_it_is_one(page):
    forward, backward = PAGES[page].forward, PAGES[page].backward

    def kernel(q, k, v, do, **options):
        causal = np.tri(q.shape[1], k.shape[1], k.shape[1] - q.shape[1], dtype=bool)
        o, saved = forward(q, k, v, keep=causal, **options)
        return o, *(x for x in backward(saved, do) if x is not None)
    for options in {}, {"bias": "bhqk"}:
        assert not check.compare(kernel, page, **options).ok and check.compare(kernel, page, causal=True, **options).ok
        said = check.diagnose(kernel, page, **options)
        assert str(said) == "right if queries see no later key: causal=True" and not said.lines
        assert str(check.diagnose(kernel, page, sizes={"k": 6}, **options)) == str(said)

    def first(q, k, v, do, **options):                      # np.tril of whole ones
        seen = np.tri(q.shape[1], k.shape[1], dtype=bool)
        o, saved = forward(q, k, v, **options | {"keep": seen & options.get("keep", True)})
        return o, *(x for x in backward(saved, do) if x is not None)
    for options in {}, {"bias": "bhqk", "keep": "b11k"}:
        said = str(check.diagnose(first, page, **options))
        assert said.startswith("right if query i sees keys 0 to i: its causal mask counts from the first key, ")
        assert check.compare(first, page, causal=True, sizes={"k": 6}, **options).ok

    def lost(q, k, v, do, keep):                            # the last key, which a mask from the first never shows
        o, saved = forward(q, k, v, keep=keep & (np.arange(k.shape[1]) < k.shape[1] - 1))
        return o, *(x for x in backward(saved, do) if x is not None)
    assert check.diagnose(lost, page, keep="b11k").verdict.startswith("forward differs")

    def wrong(q, k, v, do):                                 # causal, and its values are doubled
        return kernel(q, k, 2 * v, do)
    assert check.diagnose(wrong, page).verdict.startswith("forward differs")


@pytest.mark.parametrize("off, words, options", [
    (-1, "the query's own key is masked too", {}), (-1, "the query's own key is masked too", {"keep": "b11k"}),
    (1, "the causal mask ends a key too late", {})])
def test_a_causal_mask_that_is_off_by_a_key_has_a_name(off, words, options):
    def kernel(q, k, v, do, keep=True):
        seen = np.tri(q.shape[1], k.shape[1], k.shape[1] - q.shape[1] + off, dtype=bool)
        o, saved = PAGES["softmax"].forward(q, k, v, keep=seen & keep)
        return o, *(x for x in PAGES["softmax"].backward(saved, do) if x is not None)
    found = check.diagnose(kernel, "softmax", causal=True, **options)
    assert found.named and found.lines == ("forward (2)",) and words in found.sentences[0], found


def test_where_only_the_log_sum_exp_is_wrong():
    call = Call(anything, "softmax", "float32")

    def kernel(q, k, v, do):
        inputs = {"q": q, "k": k, "v": v, "do": do}
        found = call.of.run(inputs, lse=True)
        return found | {"lse": found["lse"] / np.log(2)}
    told = "line (2) of softmax, lse = log(sum(exp(s1) * keep)): all entries are wrong, 1.443 times what they should be"
    for names, verdict in ((None, "o and its gradients are right"), (("o", "lse"), "o is right"),
                           (("lse",), "lse alone was given")):
        def some(q, k, v, do, names=names):
            return {n: x for n, x in kernel(q, k, v, do).items() if names is None or n in names}
        assert str(check.diagnose(some, "softmax")) == f"{verdict}\n{told}"


def test_what_else_is_wrong_of_a_causal_kernel_is_said():
    right = own(Call(anything, "softmax", "float32", causal=True))
    assert check.diagnose(right, "softmax").verdict.endswith("causal=True")

    def doubled(q, *arrays, **options):
        found = right(q, *arrays, **options)
        return found | {"o": (1 + (len(q) == 1)) * found["o"]}
    said = check.diagnose(doubled, "softmax")
    assert said.verdict.endswith("causal=True; but then wrong for: one sequence"), said


@pytest.mark.parametrize("page", [*PAGES, "linear_state"])
@pytest.mark.parametrize("sizes", [None, {"h": 2, "q": 3, "k": 3}])
def test_a_kernel_never_gets_arrays_that_do_not_fit_together(page, sizes):
    """One in C would write where it should not."""
    call = Call(anything, page, "float32")
    right, letters = own(call), call.of.letters

    def kernel(*arrays, **options):
        size = {}
        for name, x in (dict(zip(call.of.arrays, arrays, strict=True)) | options).items():
            for letter, n in zip(letters[name], x.shape, strict=True):
                assert size.setdefault(letter, n) == n, (name, letter, n, size)
        found = right(*arrays, **options)
        return found | {"o": 1.5 * found["o"]}
    assert not check.diagnose(kernel, page, sizes=sizes).comparison.ok


def test_not_all_entries_are_wrong_where_one_query_in_many_is_right():
    def kernel(q, k, v, keep, do):
        o, saved = PAGES["softmax"].forward(q, k, v, keep=keep)
        dq, dk, dv, _ = PAGES["softmax"].backward(saved, do)
        noise = np.random.default_rng(0).standard_normal(dq.shape).astype(dq.dtype)
        return o, dq + noise * (dq != 0), dk, dv
    said = str(check.diagnose(kernel, "softmax", keep="qk", sizes={"q": 33, "k": 9, "b": 2, "h": 2, "d": 4}))
    assert "dq: 512 of 528 entries are wrong" in said, said


@pytest.mark.parametrize("page", ["softmax", "linear", "hyla"])
def test_a_pass_of_its_own_for_keys_and_values(page):
    """Two backward kernels, one for dq and one for dk and dv, whose causal mask ends a key too early."""
    right = own(Call(anything, page, "float32", causal=True))

    def kernel(q, k, v, do):
        forward, backward = PAGES[page].forward, PAGES[page].backward
        o, *gradients = (right(q, k, v, do=do)[n] for n in ("o", "dq", "dk", "dv"))
        early = np.tri(q.shape[1], k.shape[1], k.shape[1] - q.shape[1] - 1, dtype=bool)
        _, saved = forward(q, k, v, keep=early)
        return o, gradients[0], *backward(saved, do)[1:3]
    found = check.diagnose(kernel, page, causal=True)
    assert found.named and "the query's own key is masked too, for dk and dv only" in str(found), found
    assert found.lines[0] == "backward (2)", found


def test_a_pass_for_dv_that_lacks_a_term():
    def kernel(q, k, v, selector, wr, do):
        page = PAGES["compositional"]
        o, saved = page.forward(q, k, v, selector, wr)
        dq, dk, _, _, *others = page.backward(saved, do)
        dt = np.einsum("bqsr,bqse->bqsre", saved.value_scores, do)              # without what the value scores say
        return o, dq, dk, np.einsum("bsqk,bqsre->bkre", saved.search_scores, dt), *others
    found = check.diagnose(kernel, "compositional", dtype="float64")
    assert found.named and found.sentences[0].endswith("dt7 in place of dt"), found


@pytest.mark.parametrize("name, wrong, words", [
    ("hyla_no_nonlinearity", lambda run, x: run("hyla", x), "a relu is applied to z"),
    ("layers/FeedForward gelu", lambda run, x: run("layers/FeedForward gelu_exact", x),
     "the exact GELU in place of its tanh form"),
    ("layers/FeedForward gelu_exact", lambda run, x: run("layers/FeedForward gelu", x),
     "GELU's tanh form in place of the exact one"),
    ("losses/cross_entropy", lambda run, x: {**run("losses/cross_entropy", x), "dlogits": run(
        "losses/cross_entropy", {n: a for n, a in x.items() if n != "weight"})["dlogits"]}, "share is uniform"),
    ("ops/softmax of axis -1", lambda run, x: run("ops/softmax of axis -1", {"s": x["s"], "do": x["do"]}),
     "keep is ignored")])
def test_mistakes_of_the_eighth_bank(name, wrong, words):
    def kernel(*arrays, **options):
        inputs = dict(zip(subject(name).arrays, arrays, strict=True)) | options
        return wrong(lambda other, x: subject(other).run(x), inputs)
    found = check.diagnose(kernel, name, dtype="float64")
    assert found.named and words in str(found), found


@pytest.mark.parametrize("name, page, dtypes, seeds, options", [
    ("two maps", "compositional_nonlinear", ("float32", "float64"), (0, 1, 2, 20, 58, 69), {}),
    ("joined, causal", "compositional_linear", ("float32",), (257734,), {"causal": True, "bias": "b11k"}),
    ("exp(s - lse) of keys", "ops/softmax of axis -1", ALL_DTYPES, range(4), {}),
    ("exp(s - lse) of heads", "ops/softmax of axis 1", ALL_DTYPES, range(4), {}),
    ("o in float16", "softmax", ("float16",), (0, 1), {"bias": "bhq1", "keep": "bhqk"}),
    ("o in bfloat16", "softmax", ("bfloat16",), (0, 318624), {"bias": "q1", "keep": "bhqk"})])
def test_right_kernels_that_were_called_wrong(name, page, dtypes, seeds, options):
    """Deltas from an output, exp(s - lse), and an output that is stored in half precision."""
    for dtype in dtypes:
        for seed in seeds:
            found = check.compare(thirteenth(name), page, dtype=dtype, seed=seed, **options)
            assert found.ok, (dtype, seed, str(found))


@pytest.mark.parametrize("name, options, words", [
    ("dselector not scaled", {}, "dselector is sqrt(c) times what it should be"),
    ("value scores detached from the retrievals", {}, "dt = dt7 + dt5: the term dt5 is missing"),
    ("dropout missing in da", {"dropout": "bhqk"}, "da = dc * dropout: dropout is ignored")])
def test_mistakes_beside_a_delta_from_the_output_have_their_names(name, options, words):
    """Of the thirteenth bank, at the first seed: such a delta must not hide what the mistake is."""
    case = next(c for c in THIRTEENTH if c.name == f"dot, all: {name}")
    found = check.diagnose(case.function, "compositional", **options)
    assert found.named and found.lines[0] in case.line and words in found.sentences[0], found


@pytest.mark.parametrize("page, other", [("hyla_and_softmax", "hyla_and_softmax_reversed"), ("softmax", "hyla")],
                         ids=["the other order", "no softmax"])
def test_a_kernel_that_is_another_page(page, other):
    right = own(Call(anything, other, "float32"))
    found = check.diagnose(right, page)
    assert found.named and found.sentences[0] == f"every answer is that of {other}", found
    assert max(x.error / x.allowed for x in check.compare(right, other).entries) <= found.fit < 1


@pytest.mark.parametrize("row, other", [
    ("layers/LayerNorm", "layers/ContextNorm in 1"), ("losses/mse", "losses/mean_absolute_error"),
    pytest.param("layers/Block pre", "layers/Block post", marks=pytest.mark.slow)], ids=str)
def test_a_kernel_that_is_another_row(row, other):
    """A block whose norms are at the other place has a mistake in two lines, and one name."""
    found = check.diagnose(lambda **inputs: subject(other).run({
        n: 1.0 * x if x.dtype.kind == "f" else x for n, x in inputs.items()}), row)
    assert found.named and found.sentences == (f"every answer is that of {other}",) and found.fit < 1, found


def test_relu_slope_at_the_gradient_of_a_value():
    def kernel(q, k, v, do):
        page = PAGES["linear_rms_head_relu_values"]
        o, saved = page.forward(q, k, v)
        dv = np.einsum("bhqk,bqhe->bkhe", saved.code, do)
        return o, *page.backward(saved, do)[:2], np.maximum(dv, 0)
    found = check.diagnose(kernel, "linear_rms_head_relu_values", dtype="float64")
    assert found.named and "relu's slope by the sign of the gradient" in found.sentences[0], found


def test_pads_stand_where_a_wrong_dilation_finds_no_key():
    def kernel(q, k, v, offset_bias, pad_k, pad_v, do):
        return sliding_dilated(q, k, v, offset_bias, pad_k, pad_v, dilation=1, out_of_range="pad")[0]
    found = check.diagnose(kernel, "sliding_dilated_pad", dtype="float64")
    assert found.named and "the dilation is 1 in place of 2" in found.sentences[0], found


def test_an_epsilon_that_is_divided_by_the_heads():
    def kernel(q, k, v, do):
        s = np.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        a = s * ((s * s).sum(1, keepdims=True) + 1e-6) ** -0.5 * s.shape[1] ** 0.5
        z = np.einsum("bhqk,bkhe->bqke", a, v)
        return np.einsum("bhqk,bqke->bqhe", a, np.maximum(z, 0))
    found = check.diagnose(kernel, "hyla", dtype="float64")
    assert found.named and found.sentences[0].endswith("epsilon is divided by h"), found


def test_a_softmax_over_another_axis_than_its_largest():
    def kernel(q, k, v, do):
        s = np.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        a = np.exp(s - s.max(-1, keepdims=True))
        return np.einsum("bhqk,bkhe->bqhe", a / a.sum(-2, keepdims=True), v)
    found = check.diagnose(kernel, "softmax", dtype="float64")
    assert found.named and "the sum is over q, though the largest over its own axis is subtracted" in str(found), found


def test_a_tile_that_only_the_larger_shape_has():
    """Tiles of 5 cut 6 queries, not 4."""
    def kernel(q, k, v, do):
        o, saved = PAGES["hyla"].forward(q, k, v)
        dq, dk, _, _ = PAGES["hyla"].backward(saved, do)
        return o, dq, dk, PAGES["hyla"].backward(saved, do * (np.arange(q.shape[1]) < (q.shape[1] - 1) // 5 * 5)[
            :, None, None])[2]
    found = check.diagnose(kernel, "hyla", dtype="float64")
    assert found.named and "over q: the last tile missing, of 5" in str(found), found


def test_no_line_is_said_where_one_probe_shows_too_little():
    """Of dbr, in half precision, the first of the retrievals alone; a gradient that is right was said to explain it."""
    case, = (c for c in EIGHTH if c.what == "dbr of the first retrieval only")
    found = check.diagnose(case.function, case.as_, dtype="float16", **case.options)
    assert not found.comparison.ok and "dbias" not in str(found), found


@pytest.mark.parametrize("name, words", [
    ("query_chunks/bias_not_recomputed", "made again wrongly, the term bias is missing"),
    ("triton_flash/backward_exp", "e to the power in place of 2, of the log-sum-exp too"),
    ("triton_flash/lse_natural_log", "the logarithm of the sum is natural, the scores are in base 2"),
    ("triton_flash/alpha_natural_base", "sums are rescaled in base e, the scores are in base 2, tiles of 3"),
    ("rowwise/delta_from_dropped_weights", "c in place of a (the second a)"),
    ("jacobian/jacobian_a_squared_diagonal", "the factor a is applied twice to the term da"),
    ("compose_nonlinear/w2_missing_in_dz", "w2 is left out")])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_mistakes_of_fused_kernels_have_names(name, words, dtype):
    case, = (c for c in TENTH if c.name == name)
    found = check.diagnose(case.function, case.as_, dtype=dtype, **case.options)
    assert found.named and words in found.sentences[0], found


def test_what_is_said_first_of_a_line_is_true():
    """A pass for dk alone leaves dq right; scores of -10^4 have the rounding of such scores, which is no mistake."""
    of_dk, masked = (c for c in TENTH if c.name in ("triton_flash/delta_of_first_block",
                                                    "linear_eager/masked_minus_inf_like"))
    found = check.diagnose(of_dk.function, of_dk.as_, dtype="float64", **of_dk.options)
    assert "another dk would explain it, and in a pass for dk alone any line before it" in str(found), found
    found = check.diagnose(masked.function, masked.as_, dtype="float64", **masked.options)
    assert found.lines[0] == masked.line == "forward (2)" and "none of a line before" in found.sentences[0], found


def test_no_value_is_said_to_be_millions_of_times_too_large():
    """Which the rounding of a zero was."""
    case, = (c for c in TENTH if c.name == "compose_linear/dselector_of_output")
    found = check.diagnose(case.function, case.as_, dtype="float32", **case.options)
    assert found.named and found.sentences[0].endswith("the factor g is applied twice, for dselector only"), found


def test_a_kernel_of_the_gradients_alone():
    right = own(Call(anything, "softmax", "float32"))
    for off in 1, 2:
        said = check.diagnose(lambda *x, off=off, **y: {"dk": off * right(*x, **y)["dk"]}, "softmax")
        assert said.comparison.ok == (off == 1), said
    assert said.verdict.startswith("forward not given, backward wrong") and said.named, said


def of_another_forward(page, dtype, name, by):
    """A page's own kernel that reads one input `by` times too large, with the gradients of that."""
    call, right = Call(anything, page, dtype), own(Call(anything, page, dtype))

    def kernel(*arrays, **options):
        arrays = [x * (by if n == name else 1) for n, x in zip(call.of.arrays, arrays, strict=True)]
        found = right(*arrays, **options)
        return found | {f"d{name}": by * found[f"d{name}"]}
    return kernel


OF_ITS_OWN = dict.fromkeys(("float64", "float32"), "forward differs, your gradients are right for it") | dict.fromkeys(
    ("float16", "bfloat16"), "forward differs; whether your gradients are right for it shows in float32")


@pytest.mark.parametrize("dtype, by", [("float64", 1.0001), ("float32", 1.02), ("bfloat16", 2.0)])
@pytest.mark.parametrize("page, name", [("linear_state", "k"), ("compositional_nonlinear", "wr"), ("hyla", "v"),
                                        ("hyla_deep", "v")])
def test_gradients_of_another_forward_are_called_its_own(page, name, dtype, by):
    """An input that is doubled: small queries bend what follows, relus have kinks, and some gradients are zero."""
    kernel = of_another_forward(page, dtype, name, 2)

    def other(*arrays, **options):
        return kernel(*arrays, **options) | {f"d{name}": by * kernel(*arrays, **options)[f"d{name}"]}
    assert check.diagnose(kernel, page, dtype=dtype).verdict == OF_ITS_OWN[dtype]
    assert check.diagnose(other, page, dtype=dtype).verdict.endswith("are not those of your forward")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:overflow")                          # a draw of compositional attention in float16
@pytest.mark.parametrize("dtype, by, least", [("float64", 1.00005, 34), ("float32", 1.02, 34), ("float16", 1.3, 34),
                                              ("bfloat16", 1.5, 29)])
def test_the_verdict_on_gradients_of_every_page(dtype, by, least):
    """What docs/oracle.md says of 34 kernels in which k, or v, is half as large again."""
    def verdict(page, name, factor):
        kernel = of_another_forward(page, dtype, name, 1.5)

        def scaled(*arrays, **options):
            return {n: x * (factor if n[0] == "d" else 1) for n, x in kernel(*arrays, **options).items()}
        call = Call(scaled, page, dtype)
        asked, _ = answers(call, None, 0)
        return consistent(call, asked, {n: [p for p, a in asked.items() if n in a.wrong] for n in asked["all"].theirs})
    kernels = [(page, name) for page in PAGES for name in "kv"]
    assert len(kernels) == 34
    assert {verdict(*x, 1) for x in kernels} == {OF_ITS_OWN[dtype]}
    assert sum(verdict(*x, by).endswith("are not those of your forward") for x in kernels) >= least


@pytest.mark.parametrize("name", ["x", "wk", "bv"])
def test_every_gradient_is_held_against_the_kernel_s_own_forward(name):
    right = own(Call(anything, "layers/MultiHead softmax", "float32"))

    def kernel(**inputs):
        found = right(**inputs | {"do": 1.5 * inputs["do"]})
        return found | {"o": 1.5 * found["o"], f"d{name}": found[f"d{name}"] / 2}
    found = check.diagnose(kernel, "layers/MultiHead softmax")
    assert found.verdict == "forward differs, and your gradients are not those of your forward"


def test_tokens_that_the_gradients_of_all_maps_misread():
    right = own(Call(anything, "layers/MultiHead softmax", "float32"))

    def kernel(**inputs):
        found = right(**inputs)
        keep = np.arange(len(inputs["do"])) < 1                 # what the others give is nothing
        alone = inputs | {"do": inputs["do"] * keep[:, None, None]}
        found["dwq"], found["dwk"], found["dwv"] = (right(**alone)[n] for n in ("dwq", "dwk", "dwv"))
        return found
    found = check.diagnose(kernel, "layers/MultiHead softmax")
    assert found.named and "tokens are read wrongly over b: only the first" in found.sentences[0], found
    assert found.lines[0] == "backward (in)", found


def test_a_mistake_explains_every_wrong_output_or_has_no_name():
    right = own(Call(anything, "linear_state", "float64"))

    def kernel(*arrays, **options):
        found = right(*arrays, **options)
        return found | {"o": 3 * found["o"], "end": found["end"] ** 2}
    found = check.diagnose(kernel, "linear_state", dtype="float64")
    assert not found.named and {"o", "end"} == {words.split(":")[0] for words in found.sentences[1:]}


def test_a_wrong_lse_beside_a_wrong_output_is_not_said_to_be_explained():
    right = own(Call(anything, "softmax", "float64"))

    def kernel(*arrays, **options):
        found, s = right(*arrays, **options), np.einsum("bqhd,bkhd->bhqk", *arrays[:2]) / arrays[0].shape[-1] ** 0.5
        return found | {"o": 3 * found["o"], "lse": 2 * np.log(np.exp(s).sum(-1))}
    found = check.diagnose(kernel, "softmax", dtype="float64")
    assert found.named and "explains every output but lse" in str(found)


def test_weights_that_are_kept_of_an_earlier_call_are_no_mistake_in_a_line():
    kept = {}

    def kernel(q, k, v, do):
        s = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1]).astype(q.dtype)
        a = np.exp(s - s.max(-1, keepdims=True))
        a = kept.setdefault(q.shape, a / a.sum(-1, keepdims=True))
        return np.einsum("bhqk,bkhe->bqhe", a, v)
    assert check.compare(kernel, "softmax").ok
    kept.clear()
    found = check.diagnose(kernel, "softmax")
    assert found.verdict.startswith("right for the first inputs, wrong for others") and not found.lines


@pytest.mark.parametrize("ignored", ["dend", "state"])
def test_an_input_of_a_state_that_is_taken_as_zero(ignored):
    right = own(Call(anything, "linear_state", "float64"))

    def kernel(q, k, v, state, do, dend):
        wrong = right(q, k, v, 0 * state if ignored == "state" else state, do=do,
                      dend=0 * dend if ignored == "dend" else dend)
        return wrong | {n: right(q, k, v, state, do=do, dend=dend)[n] for n in ("o", "end") if ignored == "dend"}
    found = check.diagnose(kernel, "linear_state", dtype="float64")
    assert found.named and f"{ignored} is ignored" in found.sentences[0]


def test_a_backward_that_forgets_the_mask_where_empty_rows_have_an_infinite_lse():
    def kernel(q, k, v, do, keep):
        s = np.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        weights = np.exp(s) * keep
        total = weights.sum(-1, keepdims=True)
        o = np.einsum("bhqk,bkhe->bqhe", weights / np.where(total > 0, total, 1), v)
        p = np.exp(s) / np.where(total > 0, total, np.inf)                      # without keep
        dp = np.einsum("bqhe,bkhe->bhqk", do, v)
        ds = p * (dp - np.einsum("bqhe,bqhe->bhq", do, o)[..., None]) / q.shape[-1] ** 0.5
        return {"o": o, "dq": np.einsum("bhqk,bkhd->bqhd", ds, k), "dk": np.einsum("bhqk,bqhd->bkhd", ds, q),
                "dv": np.einsum("bhqk,bqhe->bkhe", p, do)}
    found = check.diagnose(kernel, "softmax", dtype="float64", keep="bhqk")
    assert found.named and "keep is ignored where a query keeps anything" in str(found)


@pytest.mark.parametrize("name", ["wv2", "dwv2"])
def test_a_transposed_matrix_of_a_deep_value_network(name):
    right = own(Call(anything, "hyla_deep", "float64"))

    def kernel(*arrays, **options):
        found = right(*arrays, **options)
        return found | {"dwv2": found["dwv2"].swapaxes(-1, -2)} if name == "dwv2" else right(
            *arrays[:3], arrays[3].swapaxes(-1, -2), **options)
    found = check.diagnose(kernel, "hyla_deep", dtype="float64")
    assert found.named and f"{name} is transposed" in str(found)


def test_a_wrong_end_alone_is_a_wrong_forward():
    right = own(Call(anything, "linear_state", "float32"))
    said = check.diagnose(lambda *x, **y: (found := right(*x, **y)) | {"end": 2 * found["end"]}, "linear_state")
    assert said.verdict.startswith("forward differs") and said.lines == ("forward (6)",) and said.named
    assert "end is 2 times what it should be" in said.sentences[0]


def test_a_shape_at_which_nothing_is_finite_does_not_hide_a_mistake_at_others():
    """Whole tiles alone: the last keys are left out, and where there is no tile there is 0 / 0."""
    def kernel(q, k, v):
        k, v = (x[:, :k.shape[1] // 64 * 64] for x in (k, v))
        a = np.exp(np.einsum("bqhd,bkhd->bhqk", q, k) / np.float32(q.shape[-1] ** 0.5))
        with np.errstate(invalid="ignore"):
            return np.einsum("bhqk,bkhe->bqhe", a, v) / a.sum(axis=-1).transpose(0, 2, 1)[..., None]
    found = check.diagnose(kernel, "softmax", sizes="tiles")
    assert found.named and "tile" in found.sentences[0] and found.lines == ("forward (2)",), found
    assert found.verdict.endswith("given; nothing is finite where q is (1, 33, 2, 32) and k (1, 63, 2, 32)"), found


def test_scores_that_are_divided_by_the_root_of_the_width():
    right = own(Call(anything, "layers/MultiHead hyla", "float32"))

    def kernel(**inputs):
        factor = np.float32((inputs["wq"].shape[2] / inputs["wq"].shape[0]) ** 0.5)
        found = right(**inputs | {n: factor * inputs[n] for n in ("wq", "bq")})
        return found | {n: factor * found[n] for n in ("dwq", "dbq")}
    found = check.diagnose(kernel, "layers/MultiHead hyla")
    assert found.named and found.sentences[0].endswith("divided by sqrt(m) in place of sqrt(d)"), found


def test_capped_scores_of_a_layer_are_placed_where_scores_are_made():
    """Values are wider than queries: else another q would explain any output."""
    def kernel(x, wq, bq, wk, bk, wv, bv, wo, bo):
        q, k, v = (np.einsum("btm,mhd->bthd", x, w) + b for w, b in ((wq, bq), (wk, bk), (wv, bv)))
        a = np.exp(2 * np.tanh(np.einsum("bqhd,bkhd->bhqk", q, k) / (2 * q.shape[-1] ** 0.5)))
        return np.einsum("bhqk,bkhe,hem->bqm", a / a.sum(axis=-1, keepdims=True), v, wo) + bo
    found = check.diagnose(kernel, "layers/MultiHead softmax")
    assert not found.named and found.lines[0] == "forward (1)", found


@pytest.mark.parametrize("option", ["bias", "keep", "dropout"])
def test_a_layer_that_ignores_an_option_is_wrong(option):
    right = own(Call(anything, "layers/MultiHead hyla", "float32"))

    def kernel(**inputs):
        left = {n: x for n, x in inputs.items() if n != option}
        return right(**left) | ({"dbias": 0 * inputs["bias"]} if option == "bias" and "bias" in inputs else {})
    assert not check.compare(kernel, "layers/MultiHead hyla").ok
    said = str(check.diagnose(kernel, "layers/MultiHead hyla"))
    assert f"{option} is ignored" in said or f"term {option} is missing" in said


def test_a_row_is_not_asked_about_options_that_a_function_does_not_take():
    right = own(Call(anything, "layers/MultiHead hyla", "float32"))

    def kernel(x, wq, bq, wk, bk, wv, bv, wo, bo, do, dropout):
        return right(x=x, wq=wq, bq=bq, wk=wk, bk=bk, wv=wv, bv=bv, wo=wo, bo=bo, do=do, dropout=dropout)
    assert check.compare(kernel, "layers/MultiHead hyla").ok                    # seed 0 hands over dropout alone


def test_a_gradient_that_cancels_may_be_off_by_its_rounding():
    """The bias of a retrieval key: zero here, and a sum that cancels in autograd."""
    right = own(Call(anything, "layers/Compositional dot", "float32"))
    for off, ok in (1e-6, True), (1e-1, False):
        found = check.compare(lambda off=off, **x: (y := right(**x)) | {"dbr": y["dbr"] + off},
                              "layers/Compositional dot")
        assert found.ok == ok, str(found)


@pytest.mark.parametrize("name", [case.name for case in CASES if "/" in case.name][::6])
def test_rows_agree_with_themselves_in_float32(name):
    try:
        found = check.compare(own(Call(anything, name, "float32")), name)
    except ValueError as error:
        assert "has several outputs" in str(error)
    else:
        assert found.ok, str(found)


def test_sums_are_not_contractions_in_half_precision():
    def kernel(x, scale, shift, do):
        n = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, ddof=1, keepdims=True) + 1e-6)
        return n * scale + shift
    assert not check.compare(kernel, "ops/layer_norm", dtype="bfloat16").ok     # a variance over m - 1


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_overflow_shows_with_arrays_of_ones_own(dtype):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(form).astype(dtype) for form in ((2, 4, 3, 8), (2, 5, 3, 8), (2, 5, 3, 6)))
    s = np.einsum("bqhd,bkhd->bhqk", 1_000 * q, k) / np.sqrt(np.array(8, dtype))
    for largest, ok in (s.max(-1, keepdims=True), True), (0, False):
        x = np.exp(s - largest)
        o = np.einsum("bhqk,bkhe->bqhe", x / x.sum(-1, keepdims=True), v)
        assert check.compare({"q": 1_000 * q, "k": k, "v": v, "o": o}, "softmax", dtype=dtype).ok == ok


def test_what_a_row_draws_shows_every_option():
    """Default seeds once drew a bias that no softmax sees, and a keep that keeps everything."""
    for name in "layers/Compositional dot", "layers/Compositional nonlinear", "layers/SlidingDilated pad":
        right = own(Call(anything, name, "float32"))
        for option in "bias", "keep", "dropout":
            def kernel(option=option, right=right, **inputs):
                found = right(**{n: x for n, x in inputs.items() if n != option})
                return found | ({"dbias": 0 * inputs["bias"]} if option == "bias" and "bias" in inputs else {})
            assert not check.compare(kernel, name).ok, (name, option)
            assert not check.diagnose(kernel, name).comparison.ok, (name, option)


def test_a_layer_without_options_can_be_compared():
    right = own(Call(anything, "layers/MultiHead softmax", "float32"))

    def kernel(x, wq, bq, wk, bk, wv, bv, wo, bo, do):
        return right(x=x, wq=wq, bq=bq, wk=wk, bk=bk, wv=wv, bv=bv, wo=wo, bo=bo, do=do)
    assert all(check.compare(kernel, "layers/MultiHead softmax", seed=seed).ok for seed in range(6))


@pytest.mark.parametrize("name, of", [("losses/cross_entropy", "o"), ("layers/FeedForward gelu_exact", "o")])
def test_every_wrong_output_of_a_row_is_diagnosed(name, of):
    right = own(Call(anything, name, "float64"))
    for seed in range(4):
        found = check.diagnose(lambda **x: (y := right(**x)) | {of: y[of] ** 2 + 1}, name, dtype="float64", seed=seed)
        assert found.verdict.startswith("forward differs") and "another o would explain it" in str(found)


def test_the_verdict_asks_the_gradients_that_are_wrong():
    right = own(Call(anything, "layers/MultiHead softmax", "float32"))

    def kernel(**inputs):                                       # bo twice, and its gradient too
        found = right(**inputs)
        return found | {"o": found["o"] + inputs["bo"], "dbo": 2 * found["dbo"]}
    found = check.diagnose(kernel, "layers/MultiHead softmax")
    assert found.verdict == "forward differs, your gradients are right for it" and found.lines == ("forward (out)",)
    assert "explains every output" in str(found)
    again = check.diagnose(lambda **x: kernel(**x) | {"dbo": right(**x)["dbo"]}, "layers/MultiHead softmax")
    assert again.verdict == "forward differs, your gradients are those of the right forward"


@pytest.mark.parametrize("which, words", [(0, "the first x - mean(x, 'm')"), (1, "the second x - mean(x, 'm')")])
def test_of_two_terms_that_read_the_same_the_one_is_named(which, words):
    def kernel(x, scale, shift):
        c = x - x.mean(-1, keepdims=True)
        ends = (x, c) if which == 0 else (c, x)
        return ends[0] / np.sqrt((ends[1] ** 2).mean(-1, keepdims=True) + np.float32(1e-6)) * scale + shift
    found = check.diagnose(kernel, "ops/layer_norm")
    assert found.named and found.sentences[0].endswith(f"the term mean(x, 'm') is missing ({words})"), found


def test_a_variance_divided_by_the_number_of_positions():
    def kernel(x, scale, shift):
        parts = x.reshape(len(x), 2, -1, x.shape[2])
        n = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + np.float32(1e-8))
        return n.reshape(x.shape) * scale + shift
    found = check.diagnose(kernel, "layers/ContextNorm in 2")
    assert found.named and found.sentences[0].endswith("/ (n_t / 2 - 1): the term 1 is missing"), found


@pytest.mark.parametrize("width", [64, 128])
def test_a_width_that_is_written_into_the_scale(width):
    def kernel(q, k, v):
        return PAGES["softmax"].forward(q * np.float32((q.shape[-1] / width) ** 0.5), k, v)[0]
    found = check.diagnose(kernel, "softmax")               # e is 8, the square root of 64
    assert found.named and found.sentences[0].endswith(f"divided by sqrt({width}) in place of sqrt(d)"), found


def test_no_hint_leaves_all_of_the_error():
    def kernel(q, k, v):                                    # ALiBi
        far = np.abs(np.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1] - np.arange(k.shape[1]))
        bias = np.float32(-0.5) ** np.arange(1, q.shape[2] + 1, dtype="f")[:, None, None] * far
        return PAGES["softmax"].forward(q, k, v, bias=bias.astype(q.dtype))[0]
    said = str(check.diagnose(kernel, "softmax"))
    assert "another s1 would explain it" in said and not re.search(r"leaves \d{3,}%", said), said


def test_what_is_like_a_known_mistake_is_not_taken_for_less_precision():
    """Half of the way from the exact GELU to its tanh form, which is as near as less precision is."""
    names = "layers/FeedForward gelu_exact", "layers/FeedForward gelu"
    pair = [own(Call(anything, name, "float32")) for name in names]
    said = str(check.diagnose(lambda **x: {"o": sum(f(**x)["o"] for f in pair) / 2}, names[0]))
    assert "of their size" in said and "tanh form" in said and "less precision" not in said, said


def test_a_row_is_asked_without_an_option_that_a_kernel_has_a_default_for():
    def kernel(s, keep=None):
        x = np.exp(s) * (1 if keep is None else keep)
        total = x.sum(-1, keepdims=True)
        return x / np.where(total > 0, total, 1) * np.float32(1.001 if keep is None else 1)
    assert not check.compare(kernel, "ops/softmax of axis -1").ok
    assert check.compare(lambda s, keep: kernel(s, keep), "ops/softmax of axis -1").ok
    assert check.compare(lambda **x: kernel(x["s"], x["keep"]), "ops/softmax of axis -1").ok


def test_less_precision_and_rows_without_lines_are_said():
    right = own(Call(anything, "softmax", "float64"))
    found = check.diagnose(lambda *x, **y: {n: g.astype("f") for n, g in right(*x, **y).items()}, "softmax",
                           dtype="float64")
    assert "entries are wrong, by 3e-08 of their size: less precision, or an approximation?" in str(found), found
    right = own(Call(anything, "models/Recurrent", "float32"))
    found = check.diagnose(lambda **x: (y := right(**x)) | {"dwi": 2 * y["dwi"]}, "models/Recurrent")
    assert found.verdict.endswith("; lines of models/Recurrent are not searched")


def test_a_gradient_that_should_be_zero_is_no_multiple_of_it():
    right = own(Call(anything, "layers/Compositional dot", "float64"))             # a softmax drops br
    found = check.diagnose(lambda **x: (y := right(**x)) | {"dbr": y["dbr"] + 1}, "layers/Compositional dot",
                           dtype="float64")
    assert found.sentences[-1] == "dbr: all entries are wrong", found


def test_names_of_what_a_row_gives():
    right = own(Call(anything, "losses/cross_entropy", "float32"))
    for results in lambda y: y, lambda y: (y["o"], y["dlogits"]), lambda y: y["o"]:
        assert check.compare(lambda f=results, **x: f(right(**x)), "losses/cross_entropy").ok
    with pytest.raises(ValueError, match="returned 3 arrays; allowed: o alone, or o, dlogits$"):
        check.compare(lambda **x: (*right(**x).values(), 0), "losses/cross_entropy")
    right = own(Call(anything, "mixture_of_experts/largest", "float32"))            # without a backward
    assert check.compare(lambda **x: right(**x)["o"], "mixture_of_experts/largest").ok
    with pytest.raises(ValueError, match="decoding/softmax has several outputs; allowed: rows with one"):
        check.compare(lambda **x: 0, "decoding/softmax")


def test_tiles_reach_over_the_first_key_and_over_one_tile_of_128():
    inputs = drawn(subject("sliding_dilated"), "float32", {}, "tiles", 0)
    assert inputs["k"].shape[1] - inputs["q"].shape[1] < 2 * (inputs["offset_bias"].shape[1] - 1)
    for of in map(subject, ("softmax", "compositional_nonlinear")):             # features: docs/kernels.md
        inputs = drawn(of, "float32", {}, "tiles", 0)
        assert min(inputs[n].shape[1] for n in "qk") > 128
        size = {letter: n for name, x in inputs.items() for letter, n in zip(of.letters[name], x.shape, strict=True)}
        assert all(n.bit_count() == 1 for letter, n in size.items() if letter in "decf")


def test_words_begin_with_the_verdict():
    names = {case.name: case for case in BANK}
    said = str(check.diagnose(names["hyla: a sign"].function, "hyla"))
    assert said.startswith("forward right, backward wrong from line (3) on\nline (3) of hyla_backward, ds0 = rho * (da")
    said = str(check.diagnose(names["softmax: over queries"].function, "softmax"))
    assert said.startswith("forward differs, your gradients are those of the right forward\nline (2) of softmax, ")
    right = str(check.diagnose(names["hyla, right"].function, "hyla"))
    assert right == "no mistake: every output and gradient agrees"


def test_the_shell_command(tmp_path):
    (tmp_path / "mine.py").write_text("""
from refattn.attention.pages import PAGES
def kernel(q, k, v, do):
    o, saved = PAGES["softmax"].forward(q, k, v)
    return (o, *PAGES["softmax"].backward(saved, do)[:3])
def wrong(q, k, v, do):
    o, dq, dk, dv = kernel(q, k, v, do)
    return o, dq, dk * q.shape[-1] ** 0.5, dv
def square(q, k, v, do):
    if q.shape[1] != k.shape[1]:
        raise ValueError("as many queries as keys")
    return kernel(q, k, v, do)
""")
    def run(*words):
        return subprocess.run([sys.executable, "-m", "refattn", "check", *words], cwd=tmp_path, capture_output=True,
                              text=True)
    assert run("mine:kernel", "--as", "softmax").returncode == 0
    assert run("mine:square", "--as", "softmax").returncode == 2
    assert run("mine:square", "--as", "softmax", "--sizes", "q=6,k=6").returncode == 0
    found = run("mine:wrong", "--as", "softmax", "--dtype", "float64")
    assert found.returncode == 1 and "line (1) of softmax_backward, dk" in found.stdout
    found = run("mine:wronk", "--as", "softmax")
    assert found.returncode == 2 and "did you mean wrong?" in found.stderr


@pytest.mark.parametrize("settings", check.pytest_params("softmax", sizes={"q": 3}))
def test_ready_cases(settings):
    call = Call(anything, settings["variant"], settings["dtype"], causal=settings.get("causal", False))
    assert check.compare(own(call), **settings).ok


@pytest.mark.parametrize("wrong, line, words", [
    ("bias", "backward (1)", "the term bias is missing"), ("keep", "backward (2)", "keep is ignored"),
    ("scale", "backward (1)", "the factor scale is missing"),
    ("largest", "backward (2)", "the largest score is left out of the normaliser")])
def test_weights_that_a_fused_backward_makes_again_wrongly(wrong, line, words):
    def kernel(q, k, v, do, bias, keep):
        scale = q.shape[-1] ** -0.5
        s = np.einsum("bqhd,bkhd->bhqk", q, k)
        x = np.where(keep, s * scale + bias, -np.inf)
        top = np.where(keep.any(-1, keepdims=True), x.max(-1, keepdims=True), 0)
        total = np.where(keep, np.exp(x - top), 0).sum(-1, keepdims=True)
        lse = np.log(np.where(total == 0, 1, total)) + (0 if wrong == "largest" else top)
        again = s * (1 if wrong == "scale" else scale) + (0 if wrong == "bias" else bias)
        a = np.where(True if wrong == "keep" else keep, np.exp(again - lse), 0)
        o = PAGES["softmax"].forward(q, k, v, bias=bias, keep=keep)[0]
        ds = a * (np.einsum("bqhe,bkhe->bhqk", do, v) - np.einsum("bqhe,bqhe->bhq", do, o)[..., None])
        return (o, np.einsum("bhqk,bkhd->bqhd", ds, k) * scale, np.einsum("bhqk,bqhd->bkhd", ds, q) * scale,
                np.einsum("bhqk,bqhe->bkhe", a, do), ds)
    found = check.diagnose(kernel, "softmax", dtype="float64", bias="bhqk", keep="bhqk")
    assert found.named and found.lines[0] == line and words in found.sentences[0], str(found)


def test_a_forward_that_is_wrong_in_some_probes_only_has_a_line():
    """The largest score of the first tile stands for all: wrong from the third tile on, which one probe has not."""
    page = PAGES["softmax"]

    def kernel(q, k, v, do):
        x = np.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
        x[..., 6:] *= 1.1
        a = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
        return np.einsum("bhqk,bkhe->bqhe", a, v), *page.backward(page.forward(q, k, 1.1 * v)[1], do)[:3]
    found = check.diagnose(kernel, "softmax", dtype="float64")
    assert found.verdict.startswith("forward differs") and found.lines, str(found)


def test_two_mistakes_are_not_called_one_that_begins_somewhere():
    page = PAGES["linear"]

    def kernel(q, k, v, do):
        o, saved = page.forward(q, k, v)
        dq, dk, dv, _ = page.backward(saved, do)
        return o, dq, 3.3 * dk, 2.2 * dv
    said = check.diagnose(kernel, "linear")
    assert said.verdict == "forward right, backward wrong" and not said.named, said
    assert all(f"{n}: all entries are wrong, {by} times what they should be" in str(said)
               for n, by in (("dk", 3.3), ("dv", 2.2)))


def test_rows_of_a_table_that_are_set_and_not_added():
    def kernel(table, index, do):
        dtable = np.zeros_like(table)
        dtable[index] = do
        return {"o": table[index], "dtable": dtable}
    said = check.diagnose(kernel, "ops/embedding")
    assert said.named and "of several uses of one row only the last is kept" in said.sentences[0], said


def test_options_that_a_kernel_was_not_given_are_not_blamed():
    page = PAGES["softmax"]
    said = str(check.diagnose(lambda q, k, v, do: 0 * page.forward(q, k, v)[0], "softmax"))
    assert "o is 0 times what it should be" in said and not any(f"{x} is" in said for x in ("keep", "dropout", "bias"))

    def without_delta(q, k, v, do):
        o, saved = page.forward(q, k, v)
        ds, scale = saved.code * np.einsum("bqhe,bkhe->bhqk", do, v), q.shape[-1] ** -0.5
        return (o, np.einsum("bhqk,bkhd->bqhd", ds, k) * scale, np.einsum("bhqk,bqhd->bkhd", ds, q) * scale,
                page.backward(saved, do)[2])
    said = str(check.diagnose(without_delta, "softmax"))
    assert "the term delta is missing" in said and "bias" not in said, said


@pytest.mark.parametrize("page, line", [("hyla", "backward (3)"), ("linear_rms_head", "backward (2)")])
@pytest.mark.parametrize("change", [
    lambda a, da, rho, m: rho * (da - a * rho * m), lambda a, da, rho, m: rho * da - a * m,
    lambda a, da, rho, m: rho * (da - a * m / 2), lambda a, da, rho, m: rho * (da - abs(a) * m)])
def test_a_huge_value_that_rms_head_hides_explains_no_mistake(page, line, change):
    """Its backward nearly destroys what lies along a: a value a million times too large before it explains anything."""
    def kernel(q, k, v, do):
        o, saved = PAGES[page].forward(q, k, v)
        scale = q.dtype.type(q.shape[-1] ** -0.5)
        s, a = np.einsum("bqhd,bkhd->bhqk", q, k) * scale, saved.code
        rho = 1 / np.sqrt((s * s).mean(1, keepdims=True) + q.dtype.type(1e-6))
        da = np.einsum("bqhe,bkhe->bhqk", do, v)
        if page == "hyla":
            z = np.einsum("bhqk,bkhe->bqke", a, v)
            dz = np.einsum("bhqk,bqhe->bqke", a, do) * (z > 0)
            da = np.einsum("bqhe,bqke->bhqk", do, np.maximum(z, 0)) + np.einsum("bqke,bkhe->bhqk", dz, v)
        ds = change(a, da, rho, (a * da).mean(1, keepdims=True))
        return (o, np.einsum("bhqk,bkhd->bqhd", ds, k) * scale, np.einsum("bhqk,bqhd->bkhd", ds, q) * scale,
                PAGES[page].backward(saved, do)[2])
    found = check.diagnose(kernel, page)
    assert found.lines[0] == line, found


def reshaped(k):
    """What is read as k where its (position, feature) were reshaped to (feature, position)."""
    b, t, h, d = k.shape
    return k.swapaxes(1, 2).reshape(b, h, d, t).transpose(0, 3, 1, 2)


def by_key(q, k, v, a, do):
    """dq and dk where each key, not each query, has its sum taken off: what a sum without its axis gives."""
    da = dot("bqhe,bkhe->bhqk", do, v)
    ds = a * (da - (a * da).sum(-1)[..., None, :]) / 2
    return {"dq": dot("bhqk,bkhd->bqhd", ds, k), "dk": dot("bhqk,bqhd->bkhd", ds, q)}


EQUAL = {"q": 6, "k": 6, "d": 4, "e": 4}        # as nearly all self-attention has them: exchanged arrays have one shape


@pytest.mark.parametrize("words, change", [
    ("dk is given as dq, dq is given as dk", lambda g: {"dq": g["dk"], "dk": g["dq"]}),
    ("dk is given as dv", lambda g: {"dv": g["dk"]}),
    ("0 is given as dk, dk is given as dv", lambda g: {"dk": 0 * g["dk"], "dv": g["dk"]}),
    ("dk + dq is given as dq", lambda g: {"dq": g["dq"] + g["dk"]}),
    ("dv - dk is given as dk", lambda g: {"dk": g["dv"] - g["dk"]}),
    ("", lambda g: {"dq": g["dk"], "dk": 1.5 * g["dq"]}),
    ("", lambda g: {"dq": g["dk"], "dk": g["dq"], "dv": g["dv"] ** 2}),
    ("", lambda g: {"dq": 2 * g["dk"]}),
    ("", lambda g: {"dq": g["dk"] - 0.1}),
    ("", lambda g: {"dq": g["dk"] * np.nan})])
def test_gradients_that_stand_in_the_place_of_others(words, change):
    dtype = "float32" if words else "float64"
    right = own(Call(anything, "softmax", dtype))

    def kernel(*arrays, **options):
        found = right(*arrays, **options)
        return found | change(found)
    found = check.diagnose(kernel, "softmax", dtype=dtype, sizes=EQUAL)
    assert (found.sentences[0] == words and found.named) if words else " is given as " not in str(found), found
    if words.startswith("dk is given as dv"):
        assert found.lines == ("backward (4)",)


def test_gradients_in_a_wrong_order_are_told_where_their_shapes_differ_too():
    right = own(Call(anything, "softmax", "float32"))

    def kernel(*arrays, **options):
        found = right(*arrays, **options)
        return found | {"dq": found["dv"], "dv": found["dq"]}
    found = check.diagnose(kernel, "softmax")
    assert found.named and found.sentences == ("dv is given as dq, dq is given as dv",), found


@pytest.mark.parametrize("words, kernel", [
    ("(2), ds = a * (da - sum(a * da, 'k')): in line (1), ds is transposed",
     lambda q, k, v, a, ds, do: {"dk": dot("bhqk,bkhd->bqhd", ds, q)}),
    ("(1), dk = dot('bhqk,bqhd->bkhd', ds, q) * scale: k in place of q",
     lambda q, k, v, a, ds, do: {"dk": dot("bhqk,bqhd->bkhd", ds, k)}),
    ("(4), dv = dot('bhqk,bqhe->bkhe', cb, do): cb is transposed",
     lambda q, k, v, a, ds, do: {"dv": dot("bhqk,bkhd->bqhd", a, do)}),
    ("(4), dv = dot('bhqk,bqhe->bkhe', cb, do): q in place of do",
     lambda q, k, v, a, ds, do: {"dv": dot("bhqk,bqhd->bkhd", a, q)}),
    ("(1), dk = dot('bhqk,bqhd->bkhd', ds, q) * scale: q has the key's place, not the query's",
     lambda q, k, v, a, ds, do: {"dk": ds.sum(2).swapaxes(1, 2)[..., None] * q}),
    ("(4), dv = dot('bhqk,bqhe->bkhe', cb, do): dv is reshaped, not transposed",
     lambda q, k, v, a, ds, do: {"dv": np.einsum("bhqk,bqhe->bhek", a, do).reshape(dot("bhqk,bqhe->bhke", a, do).shape)
                                 .swapaxes(1, 2)}),
    ("(1), dq = dot('bhqk,bkhd->bqhd', ds, k) * scale: q and k are exchanged",
     lambda q, k, v, a, ds, do: {"dq": dot("bhqk,bkhd->bqhd", ds, q), "dk": dot("bhqk,bqhd->bkhd", ds, k)}),
    ("(2), delta = dot('bqhe,bqhe->bhq', do, o)[..., None]: delta is transposed",
     lambda q, k, v, a, ds, do: by_key(q, k, v, a, do))])
def test_operands_of_one_shape_are_taken_for_one_another(words, kernel):
    right = own(Call(anything, "softmax", "float64"))

    def wrong(q, k, v, do):
        s = dot("bqhd,bkhd->bhqk", q, k) / 2
        a = np.exp(s) / np.exp(s).sum(-1, keepdims=True)
        da = dot("bqhe,bkhe->bhqk", do, v)
        ds = a * (da - (a * da).sum(-1, keepdims=True)) / 2
        return right(q, k, v, do=do) | kernel(q, k, v, a, ds, do)
    found = check.diagnose(wrong, "softmax", dtype="float64", sizes=EQUAL)
    assert found.named and words in str(found).replace(" of softmax_backward", ""), found


@pytest.mark.parametrize("words, change", [
    ("bias is transposed", lambda q, k, bias, keep: (q, k, bias.swapaxes(-1, -2), keep)),
    ("keep is transposed", lambda q, k, bias, keep: (q, k, bias, keep.swapaxes(-1, -2))),
    ("the product is transposed", lambda q, k, bias, keep: (k, q, bias, keep)),
    ("k is reshaped, not transposed", lambda q, k, bias, keep: (q, reshaped(k), bias, keep)),
    ("batch and heads of bias are taken for one another", lambda q, k, bias, keep: (q, k, np.repeat(
        bias[0], len(q), 0).reshape(len(q), *bias.shape[1:]), keep))])
def test_what_is_transposed_in_a_forward_of_equal_sizes(words, change):
    right = own(Call(anything, "softmax", "float64", bias="bhqk", keep="qk"))

    def wrong(q, k, v, bias, keep, do):
        q, k, bias, keep = change(q, k, bias[None], keep)
        return {"o": right(q, k, v, bias=bias, keep=keep, do=do)["o"]}
    found = check.diagnose(wrong, "softmax", dtype="float64", bias="hqk", keep="qk", sizes=EQUAL)
    assert found.named and words in str(found), found


def summed_by_chance(dbias=True):
    """Softmax attention whose sums are in an order of chance: a gradient of 0 is other rounding each time."""
    rng = np.random.default_rng(0)

    def kernel(q, k, v, bias, do):
        o, saved = PAGES["softmax"].forward(q, k, v, bias=bias)
        *gradients, of_bias = PAGES["softmax"].backward(saved, do)
        least = np.finfo(q.dtype).eps * np.abs(gradients[2]).max()
        return o, *gradients, of_bias + (rng.choice([-1, 1], of_bias.shape) * least if dbias else 0 * of_bias)
    return kernel


def test_sums_in_an_order_of_chance_agree_where_the_gradient_is_zero():
    found = check.compare(summed_by_chance(), "softmax", bias="hq1")
    assert found.ok, str(found)


@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize("seed", [18, 75, 102])
def test_a_context_norm_in_one_pass_agrees(segments, seed):
    def kernel(x, scale, shift, do):
        b, t, m = x.shape
        parts, do = (y.reshape(b, segments, t // segments, m) for y in (x, do))
        n = parts.shape[2]
        variance = ((parts * parts).sum(2, keepdims=True) - parts.sum(2, keepdims=True) ** 2 / n) / (n - 1)
        r = 1 / np.sqrt(variance + 1e-8)
        y = (parts - parts.mean(2, keepdims=True)) * r
        dn = do * scale
        dx = r * (dn - dn.mean(2, keepdims=True) - y * (dn * y).sum(2, keepdims=True) / (n - 1))
        return (y * scale + shift).reshape(x.shape), dx.reshape(x.shape), (do * y).sum((0, 1, 2)), do.sum((0, 1, 2))
    found = check.compare(kernel, f"layers/ContextNorm in {segments}", seed=seed)
    assert found.ok, str(found)


@pytest.mark.parametrize("mistake, words", [
    ("biased", "the term 1 is missing"), ("epsilon", "epsilon is 1000 times what it should be"),
    ("mean", "the term mean(dn, 'p') is missing")])
def test_mistakes_of_a_context_norm(mistake, words):
    def kernel(x, scale, shift, do):
        n = x.shape[1]
        c = x - x.mean(1, keepdims=True)
        variance = (c * c).sum(1, keepdims=True) / (n - (mistake != "biased"))
        r = 1 / np.sqrt(variance + (1e-5 if mistake == "epsilon" else 1e-8))
        y, dn = c * r, do * scale
        dx = r * (dn - (mistake != "mean") * dn.mean(1, keepdims=True) - y * (dn * y).sum(1, keepdims=True) / (n - 1))
        return y * scale + shift, dx, (do * y).sum((0, 1)), do.sum((0, 1))
    found = check.diagnose(kernel, "layers/ContextNorm in 1", dtype="float64")
    assert found.named and words in str(found), found


def test_a_nonlinearity_that_the_backward_makes_again_without_it():
    space, source = dict(vars(ablations)), inspect.getsource(ablations.ablation_backward)
    assert source.count("            g = phi(z) ") == 1
    exec(source.replace("            g = phi(z) ", "            g = z "), space)

    def kernel(q, k, v, wv2, do):
        o, saved = PAGES["hyla_deep"].forward(q, k, v, wv2)
        return o, *(x for x in space["ablation_backward"](saved, do) if x is not None)
    found = check.diagnose(kernel, "hyla_deep")
    assert found.named and found.lines[0] == "backward (5)", found


@pytest.mark.parametrize("factor, words", [(1.7, "dk and dv: 1.7 times what they should be"), (
    2**-7, "dk and dv: 0.007812 times what they should be")])
def test_some_gradients_that_are_off_by_one_factor(factor, words):
    def kernel(q, k, v, do):
        o, saved = PAGES["softmax"].forward(q, k, v)
        dq, dk, dv, _ = PAGES["softmax"].backward(saved, do)
        return o, dq, q.dtype.type(factor) * dk, q.dtype.type(factor) * dv
    found = check.diagnose(kernel, "softmax")
    assert found.named and found.sentences == (words,) and found.lines == ("backward (4)", "backward (1)"), found


def test_what_the_nearest_mistake_leaves_is_that_of_the_inputs_where_it_helps_least():
    """At one sequence a bias of the next query is the reverse of it, at others it leaves most of the error."""
    def kernel(q, k, v, do):
        o, saved = PAGES["softmax"].forward(q, k, v)
        dq, dk, dv, _ = PAGES["softmax"].backward(saved, do)
        return o, dq * (1 if len(q) == 1 else -2) + (0.5 if len(q) == 1 else 0.1), dk, dv
    found = check.diagnose(kernel, "softmax")
    assert not found.named and "another dq would explain it" in found.sentences[0] and "leaves" not in str(found), found


def test_what_the_nearest_mistake_leaves_is_said():
    """Beside the one that it is, a small one of another line."""
    def kernel(q, k, v, do, dropout=None):
        o, saved = PAGES["softmax"].forward(q, k, v, dropout=dropout)
        a, da = saved.code, ops.drop(dot("bqhe,bkhe->bhqk", do, v), dropout)
        dq, dk, _ = ops.scores_backward(q, k, None, a * da - (a * da).sum(-1, keepdims=True))
        return o, dq, dk, dot("bhqk,bqhe->bkhe", a, do)
    said = str(check.diagnose(kernel, "softmax", dropout="bhqk"))
    assert re.search(r": perhaps the factor a misses the term .*, 1 times as much, which leaves \d\d%", said), said


def test_where_two_mistakes_meet_no_third_is_named_that_leaves_most_of_the_error():
    """The code's first use and `keep` are forgotten in the backward: ds itself, in line (2), is all that is sure."""
    def kernel(q, k, v, do, keep=None):
        o, saved = PAGES["hyla"].forward(q, k, v, keep=keep)
        a, g = saved.code, ops.relu(saved.z)
        dc, dz = dot("bqhe,bqke->bhqk", do, g), dot("bhqk,bqhe->bqke", a, do) * (g > 0)
        dq, dk, _ = ops.scores_backward(q, k, None, ops.rms_head_backward(a, saved.rho, dc))
        return o, dq, dk, dot("bhqk,bqke->bkhe", a, dz)
    found = check.diagnose(kernel, "hyla", keep="bhqk")
    assert found.lines == ("backward (2)",) and not found.named, found
    assert found.sentences[0].endswith("another ds would explain it, none of a line before it was found"), found
    assert "the term dot('bqke,bkhe->bhqk', dz, v) is missing" in str(check.diagnose(kernel, "hyla"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_right_kernels_of_rows_that_are_no_pages_agree(dtype):
    for case in FIFTEENTH + SIXTEENTH + SEVENTEENTH:
        if not case.line:
            report = check.compare(case.function, case.as_, dtype=dtype)
            assert report.ok, f"{case.name}\n{report}"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")            # of torch.compile
def test_right_kernels_agree_in_every_setting():
    for case in NINETEENTH:
        report = check.compare(case.function, case.as_, dtype=case.only[0], **case.options)
        assert report.ok, f"{case.name}, {case.options}\n{report}"


@pytest.mark.parametrize("name, words", [
    ("next token, 4, fused: the maximum is not added again", "the largest is not added back"),
    ("next token, all, log softmax: scores lack the scale", "the factor 0.5 is missing"),
    ("next token, all, scatter: dh lacks the target's row", "the term hit is missing, for dh only"),
    ("experts, 2 of 5, dense: the smallest are chosen", "the smallest are chosen"),
    ("experts, 4 of 4, dense: the least is left out", "one less is chosen"),
    ("experts, 1 of 3, renormalised: the gate is the probability among all experts", "every in place of e"),
    ("experts, 2 of 5, dense: dgate lacks what comes through b2", "the term dgate_b is missing"),
    ("binary_cross_entropy, logaddexp: the gradient is not divided by the sum of weights",
     "the weights, where they are given, are not divided by their sum"),
    ("sigmoid_mse, plain: the slope of the sigmoid is forgotten", "the factor p * (1 - p) is missing"),
    ("scores over k, einsum: the bias is scaled too", "the factor scale is applied to both terms"),
    ("gelu_exact, plain: tanh in place of erf", "GELU's tanh form in place of the exact one"),
    ("generated nonlinear network, letters: dcode lacks the inner layer", "dinner, wv) is missing"),
    ("pairs, dense: the pairing is that of halves", "the pairs are those of the other pairing"),
    ("halves, matrices: dx has the matrix of the forward", "turned the other way"),
    ("halves, complex: the exponent is 2i over d - 2", "the exponent of pair i is 2 i / (d - 2), not 2 i / d"),
    ("pairs, recurrence: positions start at 1", "positions begin at 1"),
    ("rotary, fused: the exponent is i / d", "queries and keys: the base is 100, or the exponent of pair i is i / d"),
    ("rotary, heads: values are turned too", "v is turned too"),
    ("hyla rotary read, letters: queries are turned as if the first that is read stood at 0",
     "queries stand at the first positions"),
    ("alibi, online: the penalty is squared in the distance", "the factor n is applied twice"),
    ("kerple log, distances: a and p are exchanged", "position_a and position_p are exchanged"),
    ("kerple power, letters: dx of the queries overwrites what is there", "what is read replaces the rest"),
    ("t5, scattered: the gradient is set, not added", "of several uses of one row only the last is kept"),
    ("t5 both, scattered: the halves are exchanged", "keys before the query are taken for those after it"),
    ("table, gathered: position ids begin at 1", "positions begin at 1"),
    ("table, slice: the gradient is a mean over the batch", "mean over b in place of sum"),
    ("conv tiles, columns: columns have channels first", "k is read as (i, u, w, o)"),
    ("conv overlapping, columns: overlaps are set, not added",
     "of several windows with one pixel only the first counts"),
    ("conv overlapping, columns: the image is padded with its border", "outside the image stands its nearest pixel"),
    ("conv every pixel, direct: pixels outside wrap round to the other side",
     "outside the image stands that of its other side"),
    ("conv overlapping, transposed: the kernel is not turned in dx", "k is turned round by 180 degrees"),
    ("conv gaps, direct: the stride is that of windows without gaps", "the stride is 2"),
    ("block pre, tape: the variance is divided by one less", "in every norm, divided by m - 1"),
    ("block none, tape: the residual is missing in the backward", "in every sub-layer, the term"),
    ("block pre, written out: the residual is the normalised input", "norm1_o in place of x"),
    ("block across, in reverse: the context's mask is left out", "the factor context_keep is missing")])
def test_mistakes_in_rows_that_are_no_pages_are_named(name, words):
    case, = (c for c in FIFTEENTH + SIXTEENTH + SEVENTEENTH if c.name == name)
    found = check.diagnose(case.function, case.as_)
    assert found.named and words in found.sentences[0] and any(line in case.line for line in found.lines), found


def test_a_factor_is_named_where_no_lines_are_searched():
    right = own(Call(anything, "models/linear_scan", "float32"))
    found = check.diagnose(lambda **x: (y := right(**x)) | {n: y[n] / 2 for n in y if n != "o"}, "models/linear_scan")
    words = "da and du: 1/2 times what they should be"
    assert found.named and not found.lines and found.sentences == (words,), found


@pytest.mark.parametrize("size", [1.0, 1e-12])
def test_a_factor_is_told_where_there_is_one_however_small_the_numbers_are(size):
    ours, other = size * np.random.default_rng(0).standard_normal((2, 4, 5))
    for theirs, words in (3 * ours, "dq: all entries are wrong, 3 times what they should be"), (
            other, "dq: all entries are wrong"):
        answer = SimpleNamespace(theirs={"dq": theirs}, ours={"dq": ours}, bars={"dq": 0 * ours})
        assert pattern(answer, "dq") == words


def test_a_sum_in_place_of_a_mean_is_named():
    case, = (c for c in OF_NINETEENTH if c.name == "hyla_sum_heads")
    found = check.diagnose(case.function, case.as_, **case.options)
    assert found.named and found.lines == ("forward (3)",) and "sum over h in place of mean over h" in str(found), found


def test_factors_are_what_their_words_say():
    sizes = {"h": 5, "d": 11}
    for each in changes.factors(sizes):
        said = eval(each["w"], {"sqrt": np.sqrt, **sizes})
        assert said == pytest.approx(eval(each["f"], {f"n_{n}": size for n, size in sizes.items()})), each
