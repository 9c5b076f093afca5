"""The oracle: error bars that hold, formulas that are the pages, mistakes found in the line where they were made."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from refattn import check, ops
from refattn.attention.pages import PAGES
from refattn.check.formulas import OPERATIONS, formulas, start
from refattn.check.kernels import Call
from refattn.check.running import FUNCTIONS, Runner
from refattn.check.subjects import drawn, subject
from refattn.verification import rounding
from refattn.verification.cases import CASES

from .bench import false_alarms
from .kernels_own import CASES as BANK
from .kernels_own import cases

LAYERS = [case.name for case in CASES if case.name.startswith("layers/") and formulas(case.name)]
SAMPLE = ("hyla: dropout missing in the first use", "hyla: a sign", "hyla: dq unscaled", "softmax: scores too large",
          "softmax: keep missing", "softmax: the model's width in the scale", "linear: keep missing backward",
          "compositional: d for c", "sliding_dilated: dilation 1", "sliding_dilated: duplicates lost")


def everything(page):
    letter = "w" if page.startswith("sliding") else "k"
    return {"bias": f"bhq{letter}", "keep": f"bhq{letter}", "dropout": f"bhq{letter}"}


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
    rounding.noise = rounding.Noise("float32").draw(0, 2)
    x = rounding.Rough(np.random.default_rng(0).standard_normal((4, 5)))
    for f in (lambda x: x + 1, lambda x: x @ x.T, np.exp, lambda x: x.sum(axis=1), lambda x: x.mean(axis=0),
              lambda x: rounding.einsum("ij,kj->ik", x, x) * 1, lambda x: rounding.where(x > 0, x, 0) * 3,
              lambda x: ops.softmax(x), lambda x: ops.gelu(x),
              lambda x: rounding.concatenate([x, x]) / 3, lambda x: ops.layer_norm(x, x[0], x[1])[0]):
        y, exact = f(x), f(x)                       # twice: the noise is another one
        assert type(y) is rounding.Rough and (y.host != exact.host).mean() > 0.4
        assert np.abs(y.host - exact.host).max() < 1e-3 * np.abs(y.host).max()


@pytest.mark.parametrize("name", [*PAGES, "linear_state"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_pages_are_not_called_wrong_and_an_error_of_a_thousandth_is_seen(name, dtype):
    if name == "linear_state":
        assert check.compare(own(Call(None, name, dtype)), name, dtype=dtype, sizes={"q": 3}).ok
        return
    assert false_alarms.ratios(name, dtype, "all three", 1, None, {"own": false_alarms.own(name, dtype)})["own"] < 1
    if dtype == "float32" and formulas(name):
        seen, total = false_alarms.planted(name, range(2))
        assert seen == total > 10


def test_no_false_alarm_is_recorded():
    """What `python -m tests.bench.false_alarms --record` counted, for every page of then, option and precision."""
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
    call = Call(None, name, "float32")
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


# ----------------------------------------------------------------------------------------------------------- formulas


@pytest.mark.parametrize("name", [*PAGES, *OPERATIONS, *LAYERS])
def test_formulas_are_the_page(name):
    of = subject(name)
    inputs = drawn(of, "float64", everything(name) if name in PAGES else {}, None, 3)
    ours = of.run(inputs)
    largest = max(np.abs(x).max() for x in ours.values())
    for each in formulas(name):
        env = Runner(each).run({**FUNCTIONS, **start(each, inputs)})
        for n, x in ours.items():
            assert np.abs(np.reshape(env[n], np.shape(x)) - x).max() <= 1e-12 * max(np.abs(x).max(), largest), n


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


@pytest.mark.parametrize("name, wrong, lines", [
    ("layers/MultiHead hyla", ("dwo",), ("backward (out)",)),
    ("layers/SlidingDilated pad", ("dpad",), ("backward (in)",)),
    ("layers/FeedForward gelu", ("dw2",), ("backward (4)",))])
def test_layers_are_diagnosed(name, wrong, lines):
    call = Call(None, name, "float32")

    def kernel(**inputs):
        found = own(call)(**inputs)
        return found | {n: found[n][::-1] for n in wrong}
    found = check.diagnose(kernel, name)
    assert found.lines == lines and found.named, found


def test_the_line_of_a_mistake_that_no_table_has():
    def kernel(q, k, v, do):
        o, saved = PAGES["softmax"].forward(q, k, v)
        a = saved.code * (1 + 0.1 * np.sin(40 * saved.code))                    # in the backward's softmax only
        ds = a * (np.einsum("bqhe,bkhe->bhqk", do, v) - (do * o).sum(-1).swapaxes(1, 2)[..., None])
        dv = PAGES["softmax"].backward(saved, do)[2]
        scale = q.shape[-1] ** -0.5
        return o, np.einsum("bhqk,bkhd->bqhd", ds, k) * scale, np.einsum("bhqk,bqhd->bkhd", ds, q) * scale, dv
    found = check.diagnose(kernel, "softmax", dtype="float64", sizes={"k": 5})
    assert "backward (2)" in found.lines and not found.named and "another ds would explain it" in str(found), found


@pytest.mark.parametrize("page", ["softmax", "hyla"])
def test_a_scale_that_is_forgotten_in_both_gradients(page):
    def kernel(q, k, v, do):
        o, saved = PAGES[page].forward(q, k, v)
        dq, dk, dv, *_ = PAGES[page].backward(saved, do)
        return o, dq * q.shape[-1] ** 0.5, dk * q.shape[-1] ** 0.5, dv
    found = check.diagnose(kernel, page)
    assert found.lines[0] == "backward (1)" and "dq and dk: not divided by sqrt(d)" in found.sentences[0], found


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
""")
    def run(*words):
        return subprocess.run([sys.executable, "-m", "refattn", "check", *words], cwd=tmp_path, capture_output=True,
                              text=True)
    assert run("mine:kernel", "--as", "softmax").returncode == 0
    found = run("mine:wrong", "--as", "softmax", "--dtype", "float64")
    assert found.returncode == 1 and "line (1) of softmax_backward, dk" in found.stdout
    found = run("mine:wronk", "--as", "softmax")
    assert found.returncode == 2 and "did you mean wrong?" in found.stderr


@pytest.mark.parametrize("settings", check.pytest_params("softmax", sizes={"q": 3}))
def test_ready_cases(settings):
    call = Call(None, settings["variant"], settings["dtype"], causal=settings.get("causal", False))
    assert check.compare(own(call), **settings).ok
