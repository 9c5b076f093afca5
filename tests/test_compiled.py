"""Compiled automata: exact by construction, as files, by the command line, and what is refused."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import refattn
from refattn import cli, params
from refattn.automata import compiled as module
from refattn.automata import exactness
from refattn.automata.compiled import SATURATED, compiled, shaped
from refattn.automata.exactness import errors, logits, passes, positions, walked
from refattn.automata.expressions import from_regex
from refattn.automata.finite import random_automaton
from refattn.models.regular_gpt import RegularGPT
from refattn.reproduce import records
from refattn.tasks.languages import LANGUAGES
from refattn.train import evaluate, runs
from tests import strict_cupy
from tests.tiny import OF_R

RECORD = json.loads((records.RECORDS / "compiled_automata.json").read_text())
SMALL = [name for name, row in LANGUAGES.items() if row.automaton.states <= 6]
PARITY = LANGUAGES["parity"].automaton


# ---------------------------------------------------------------- exact

@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("chunk", [2, 3])
def test_languages_are_read_without_error_at_every_length_up_to_600(name, chunk):
    automaton = LANGUAGES[name].automaton
    machine = compiled(automaton, chunk, dtype=np.float32)
    found = errors(machine, walked(machine, np.random.default_rng(0), 2, 600))
    assert found.by_length.shape == (600,) and not found.by_length.any()
    assert found.elsewhere == 0 and found.margin == 1 and found.answers == 2 * sum(n for _, n in passes(machine, 600))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LANGUAGES if name != "modular_arithmetic"])
def test_languages_are_read_without_error_up_to_4096(name):
    automaton = LANGUAGES[name].automaton
    machine = compiled(automaton, dtype=np.float32)
    found = errors(machine, walked(machine, np.random.default_rng(1), 2, 4096))
    assert found.elsewhere == 0 and found.margin == 1


@pytest.mark.slow
def test_the_25_states_of_modular_arithmetic():
    automaton = LANGUAGES["modular_arithmetic"].automaton
    machine = compiled(automaton, dtype=np.float32)
    assert (machine.model.attention.width, machine.model.feed_forward.hidden) == (1250, 15_625 + 1250)
    found = errors(machine, walked(machine, np.random.default_rng(0), 1, 100))
    assert found.elsewhere == 0 and found.margin == 1


def test_more_levels_than_needed_do_no_harm_with_pads_or_a_reset():
    for edge in "pad", "mask":
        machine = compiled(LANGUAGES["d3"].automaton, out_of_range=edge)
        tokens = np.random.default_rng(0).integers(2, size=(3, 21))
        np.testing.assert_array_equal(logits(machine, tokens, 8), logits(machine, tokens))


@pytest.mark.parametrize("edge", ["pad", "mask"])
@pytest.mark.parametrize("norm", ["none", "post", "pre"])
def test_reading_in_tiles_is_the_models_own_forward(edge, norm, monkeypatch):
    machine = compiled(LANGUAGES["d2"].automaton, 3, out_of_range=edge, norm=norm, embedding_scale=True)
    tokens = np.random.default_rng(0).integers(2, size=(2, 50))
    reset = np.full((2, int(edge == "mask")), machine.automaton.vocabulary)
    whole, _ = machine.model.forward(machine.parameters, np.concatenate([reset, tokens], axis=1))
    monkeypatch.setattr("refattn.automata.exactness.TILE", 7 * machine.model.feed_forward.hidden * 2)
    told = []
    found = logits(machine, tokens, progress=told.append)
    np.testing.assert_allclose(found, whole[:, reset.shape[1]:], rtol=0, atol=1e-12)
    assert len(told) > 8
    told.clear()
    errors(machine, tokens, told.append)
    assert sum(told) == positions(machine, 50)


@pytest.mark.parametrize("name, chunk, levels", [("d4", 2, 16), ("d2", 3, 12), ("tomita4", 3, 12), ("tomita6", 4, 12)])
def test_only_layer_norm_rounds_and_answers_stay_right_for_as_many_levels_as_is_said(name, chunk, levels):
    automaton, words = LANGUAGES[name].automaton, np.random.default_rng(0).integers(2, size=(1, 24))
    truth = np.eye(2)[automaton.outputs(words)]
    for norm, activation in ("none", "relu"), ("none", "gelu"), ("post", "relu"), ("pre", "relu"), ("pre", "gelu"):
        machine = compiled(automaton, chunk, dtype=np.float32, norm=norm, activation=activation)
        y = logits(machine, words, 30 if norm == "none" else levels)
        assert (y.argmax(axis=-1) == truth.argmax(axis=-1)).all()
        assert norm != "none" or np.array_equal(y, truth)


def test_the_stream_is_the_integer_product_of_the_window():
    automaton = LANGUAGES["tomita3"].automaton
    machine, n = compiled(automaton), automaton.states
    tokens = np.random.default_rng(2).integers(2, size=(1, 30))
    _, saved = machine.model.forward(machine.parameters, tokens)
    a = automaton.matrices(int)
    for level, block in enumerate(saved.blocks[1:], start=1):               # what enters a level
        stream = block.attention.x[0]
        for i in range(30):
            expected = np.eye(n, dtype=int)
            for x in tokens[0, max(0, i + 1 - 2**level):i + 1]:
                expected = expected @ a[x]
            np.testing.assert_array_equal(stream[i], [*expected.ravel(), *np.zeros(n * n)])


def test_a_planted_error_is_found_at_its_lengths():
    """Errors are counted, not assumed away: a head that looks two back is wrong from length 2 on, not before."""
    machine = compiled(PARITY, 3)
    machine.parameters.blocks[0].attention.offset_bias[0] = [-SATURATED, -SATURATED, 1]
    found = errors(machine, np.ones((1, 30), dtype=int))
    assert found.by_length[:2].tolist() == [0, 1] and found.elsewhere >= found.by_length.sum() and found.margin == -1


def test_weights_work_on_another_array_module():
    machine = compiled(LANGUAGES["d2"].automaton, xp=strict_cupy, norm="pre", activation="gelu")
    tokens = np.random.default_rng(0).integers(2, size=(2, 17))
    for words in tokens, strict_cupy.asarray(tokens):
        found = errors(machine, words)
        assert found.elsewhere == 0 and type(machine.flat) is not np.ndarray


def test_no_offset_bias_is_zero_which_the_released_code_takes_for_a_mask():
    for edge in "pad", "mask":
        assert (compiled(PARITY, 4, out_of_range=edge).parameters.blocks[0].attention.offset_bias != 0).all()


# ---------------------------------------------------------------- the record

def test_the_record_says_what_was_promised():
    rows = RECORD["languages"]
    for name in OF_R:
        row = LANGUAGES[name]
        mine = [x for x in rows if x["name"] == name and x["chunk"] == 2 and x["switches"] == "as constructed"]
        assert {(*x["lengths"],) for x in mine} >= {(1, 600), (1, 4096)}, name
        for chunk in 3, 4:
            if row.automaton.states**(chunk + 1) <= RECORD["most_units"]:
                assert any(x["name"] == name and x["chunk"] == chunk for x in rows)
    for row in (*rows, RECORD["random"]):
        assert row["errors"] == row["errors_at_all_positions"] == 0 and row["margin_from_1"] < 1e-2
    assert RECORD["random"]["automata"] == 200 and RECORD["random"]["states"] == [1, 8]


@pytest.mark.parametrize("row", RECORD["languages"][::13], ids=lambda row: f"{row['name']}-{row['chunk']}")
def test_its_sizes_are_those_of_the_construction(row):
    model = shaped(LANGUAGES[row["name"]].automaton, row["chunk"], **RECORD["switches"][row["switches"]])
    assert isinstance(model, RegularGPT)
    assert (model.feed_forward.hidden, params.count(model.parameters())) == (row["hidden"], row["parameters"])


# ---------------------------------------------------------------- refusals

def test_an_automaton_too_large_for_the_memory_is_refused_before_anything_is_allocated(monkeypatch):
    monkeypatch.setattr(module, "memory_at_hand", lambda: 2.0**30)
    monkeypatch.setattr(params, "allocate", None)
    big = random_automaton(np.random.default_rng(0), 60, 2)
    with pytest.raises(MemoryError) as error:
        compiled(big)
    assert str(error.value).startswith("223,200 hidden units at width 7,200 take 24.4 GiB in float64, but at hand")


def test_the_memory_at_hand_is_some():
    assert module.memory_at_hand() > 2**20


@pytest.mark.parametrize(("change", "message"), [
    ({"chunk": 1}, "chunk is 1; allowed: whole numbers of at least 2"),
    ({"activation": "tanh"}, "activation is 'tanh'; allowed: relu, gelu, gelu_exact"),
    ({"norm": "both"}, "norm is 'both'; allowed: pre, post, none"),
    ({"out_of_range": "clamp"}, "out_of_range is 'clamp'; allowed: mask, pad"),
])
def test_switches_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        compiled(PARITY, **change)


@pytest.mark.parametrize("words", [np.array([1, 0]), np.zeros((2, 0), int), [1, 0], []])
def test_words_have_two_axes_and_a_token(words):
    for ask in logits, errors:
        with pytest.raises(ValueError, match="words have shape .*; allowed:"):
            ask(compiled(PARITY), words)
    one, four = np.ones((1, 1), int), np.ones((1, 4), int)     # a word of length 1 says nothing of length 2
    with pytest.raises(ValueError, match=r"words are of lengths \[1, 4\]; allowed: those of the passes, \[2, 4\]"):
        errors(compiled(PARITY), [one, four])
    with pytest.raises(ValueError, match="automaton is 'list'; allowed: Automaton"):
        compiled([[0, 1], [1, 0]])


def test_words_may_be_a_list_of_rows():
    machine = compiled(PARITY)
    np.testing.assert_array_equal(logits(machine, [[1, 0, 1]]), logits(machine, np.array([[1, 0, 1]])))


# ---------------------------------------------------------------- the command line

def test_a_language_becomes_a_checkpoint_that_load_reads(tmp_path, capsys):
    for number, more in enumerate(([], ["--norm", "pre", "--activation", "gelu", "--chunk", "3"],
                                   ["--out-of-range", "mask", "--norm", "post", "--dtype", "float64"])):
        out = tmp_path / str(number)
        assert cli.main(["compile", "--language", "even-pairs", "--max-length", "60", "--out", str(out), *more]) == 0
        printed = capsys.readouterr()
        assert "0 errors in 4 words of each length 1 to 60" in printed.out and "5 states" in printed.err
        recipe, model, p = refattn.load(out)
        assert isinstance(model, RegularGPT) and p.readout.w.dtype == (np.float64 if number == 2 else np.float32)
        assert evaluate(recipe, model, p, "words", tasks=12) == {"errors": 0, "accuracy": 1.0}
        with pytest.raises(ValueError, match="split is 'train'; allowed: words"):
            evaluate(recipe, model, p, "train")
        done = runs.result(out)
        assert done["metrics"]["words"]["errors"] == 0 and done["parameters"] == params.count(model.parameters())


def test_a_table_and_an_expression_are_compiled(tmp_path, capsys, monkeypatch):
    table = tmp_path / "go.txt"
    table.write_text("state output go stop\na 0 b a\nb 2 c a\nc 1 c a\nnever 0 a a\n")
    out = str(tmp_path / "a")
    assert cli.main(["compile", "--table", str(table), "--json", "--max-length", "20", "--out", out]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["errors"] == 0 and document["by_length"] == [0] * 20 and document["name"] == "go"
    assert refattn.load(tmp_path / "a")[0].automaton.states == 3                # `never` is never reached
    assert cli.main(["compile", "--regex", "-(ab)*", "--alphabet", "-ab", "--out", str(tmp_path / "b")]) == 0
    recipe = refattn.load(tmp_path / "b")[0]
    assert recipe.automaton.symbols == ("-", "a", "b") and recipe.expression == "-(ab)*"
    assert json.loads((tmp_path / "b" / "recipe.json").read_text())["fields"]["expression"] == "-(ab)*"
    table.write_text("\ufeff" + table.read_text(), encoding="utf-8")             # as some editors begin a file
    assert cli.main(["compile", "--table", str(table), "--max-length", "3", "--out", str(tmp_path / "c")]) == 0
    monkeypatch.chdir(tmp_path)                             # a name may have what stands for a part of the date
    assert cli.main(["compile", "--table", str(table.rename(tmp_path / "day%d.txt")), "--max-length", "3"]) == 0
    assert [path.name.startswith("compiled-day%d-2") for path in (tmp_path / "runs").iterdir()] == [True]


def test_the_report_says_how_often_every_state_and_answer_was_asked(tmp_path, capsys):
    command = ["compile", "--regex", "(01)*", "--out", str(tmp_path / "a")]
    assert cli.main([*command, "--max-length", "64"]) == 0
    printed = capsys.readouterr().out
    assert [line.split()[4:7] for line in printed.splitlines()[2:8]] == [["3", "of", "3"]] * 6
    assert "asked about 3 of the 3 states that these words can end in, each at least" in printed
    counts = printed.rpartition("answers ")[2].split("\n")[0]
    asked = dict(part.split(": ") for part in counts.split(", "))
    assert int(asked["0"]) + int(asked["1"]) == 4 * 64 and min(map(int, asked.values())) > 20


@pytest.mark.parametrize(("expression", "one"), [("0*1*|.*", 1), ("1[^01]", 0)])
def test_a_language_with_one_answer_keeps_two_logits_and_says_so(expression, one, tmp_path, capsys):
    assert cli.main(["compile", "--regex", expression, "--max-length", "9", "--out", str(tmp_path / "a")]) == 0
    said = capsys.readouterr()
    assert f"each word has class {one}" in said.err and "least margin 1" in said.out
    recipe, model, p = refattn.load(tmp_path / "a")
    y, _ = model.forward(p, recipe.automaton.encode("0110")[None])
    assert y.shape == (1, 4, 2) and (y[..., one] == 1).all() and (y[..., 1 - one] == 0).all()


@pytest.mark.parametrize("edge", ["pad", "mask"])
def test_a_loaded_checkpoint_is_asked_about_a_word_and_by_exactness(edge, tmp_path, capsys):
    out = tmp_path / "ends"
    assert cli.main(["compile", "--regex", "(01|10)*1?", "--out-of-range", edge, "--max-length", "9", "--out",
                     str(out)]) == 0
    assert ("a reset, token 2, stands before every word" in capsys.readouterr().err) == (edge == "mask")
    recipe, model, p = refattn.load(out)
    for word, answer in ("0110", 1), ("01101", 1), ("0111", 0), ("1", 1), ("0", 0):
        y, _ = model.forward(p, recipe.automaton.encode(word)[None])
        last, _ = model.forward(p, recipe.automaton.encode(word)[None], tree=True)
        part, _ = model.forward(p, recipe.automaton.encode(word)[None], read=slice(-1, None))
        assert y.shape == (1, len(word), 2) and y[0, -1].argmax() == answer
        np.testing.assert_array_equal(last, y[:, -1:])
        np.testing.assert_array_equal(part, y[:, -1:])
    loaded = refattn.load(out)
    found = errors(loaded, walked(loaded, np.random.default_rng(0), 3, 40))
    assert found.elsewhere == 0 and found.margin == 1 and (found.asked[2:] > 0).all()
    loaded[2].readout.w[...] *= -1
    found = errors(loaded, np.ones((1, 9), int))
    assert found.elsewhere == found.answers and found.by_length.tolist() == [1] * 9 and found.margin == -1


def test_a_reset_is_put_before_tokens_only():
    machine = compiled(PARITY, out_of_range="mask")
    with pytest.raises(ValueError, match=r"x has shape \(1, 3, 8\); allowed: \(b, t\) tokens"):
        module.WithReset(**vars(machine.model)).forward(machine.parameters, np.zeros((1, 3, 8)))


@pytest.mark.parametrize("expression", ["(01|10)*1?", "(01)*", "(0|1(01*0)*1)*", "0{3,}1*", "0*1", "((0|1){7})*"])
def test_a_model_that_forgets_all_but_16_symbols_fails_the_check(expression, tmp_path, capsys, monkeypatch):
    """Four levels see 16 symbols.  Random words would not tell: beyond 64 symbols they are in one state for good."""
    whole = exactness.logits
    monkeypatch.setattr(exactness, "logits", lambda machine, words, levels=None, progress=None: whole(
        machine, words, min(levels, 4), progress))
    assert cli.main(["compile", "--regex", expression, "--out", str(tmp_path / "a"), "--max-length", "300"]) == 1
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split()[-1] for line in lines[:4]] == ["0"] * 4                # to 16 symbols all is well
    assert all("(at length" in line for line in lines[7:9])
    if expression == "(01)*":
        machine = compiled(from_regex(expression, "01"))
        random = errors(machine, np.random.default_rng(0).integers(2, size=(4, 300)))
        assert not random.by_length[64:].any() and (random.asked[7:] > 0).sum() == 2


def test_weights_that_are_wrong_are_reported_by_length_and_fail(tmp_path, capsys, monkeypatch):
    def broken(automaton, **switches):
        machine = compiled(automaton, **switches)
        machine.parameters.blocks[0].attention.pad[...] = 0
        return machine

    monkeypatch.setattr("refattn.cli.compiling.compiled", broken)
    assert cli.main(["compile", "--language", "parity", "--max-length", "9", "--out", str(tmp_path / "x")]) == 1
    assert "(at length 1: 4" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "no automaton given; allowed: exactly one of --language, --table, --regex"),
    (["--language", "parity", "--regex", "a"], "--language and --regex given; allowed: exactly one"),
    (["--language", "party"], "--language 'party' is unknown, did you mean parity?"),
    (["--language", "parity", "--alphabet", "ab"], "--alphabet is 'ab', but there is no --regex; allowed: both"),
    (["--language", "parity", "--chunk", "1"], "--chunk is 1; allowed: whole numbers from 2 to 64"),
    (["--language", "parity", "--words", "0"], "--words is '0'; allowed: whole numbers from 1 to 65,536"),
    (["--language", "parity", "--max-length", "0"], "--max-length is '0'; allowed"),
    (["--language", "parity", "--seed", "-1"], "--seed is '-1'; allowed"),
    (["--language", "d12", "--chunk", "9"], "d12 has 14 states"),
    (["--language", "parity", "--out", "/proc/none"], "--out is '/proc/none', which cannot be written"),
    (["--table", "/nowhere"], "--table is '/nowhere', which cannot be read (No such file or directory); allowed: "),
    (["--table", "setup.py"], "--table: setup.py begins with"),
    (["--regex", "(a"], "--regex: regular expression '(a' cannot be read"),
    (["--regex", "(ab)*"], "it names 'a', 'b', to which no symbol of the alphabet '01' belongs"),
    (["--regex", "a", "--alphabet", "aa"], "compile: --alphabet is 'aa'; allowed: one or more"),
    (["--regex", "a", "--alphabet", "a#"], "--regex: symbol '#' fits no table"),
    (["--langauge", "parity"], "--langauge is not an option, did you mean --language?"),
])
def test_bad_input_is_one_line_and_writes_nothing(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("setup.py").write_text('"""no table"""')
    assert cli.main(["compile", *arguments]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
    assert os.listdir(tmp_path) == ["setup.py"]


def test_a_run_is_never_overwritten_and_never_trained(tmp_path, capsys):
    out = str(tmp_path / "x")
    assert cli.main(["compile", "--language", "parity", "--max-length", "9", "--out", out]) == 0
    before = {path.name: path.read_bytes() for path in Path(out).iterdir()}
    said = json.loads(before["result.json"])
    assert said["workers"] == 1 and said["cpu_seconds"] >= 0             # as a trained run says
    assert cli.main(["compile", "--language", "cycle", "--out", out]) == 2
    assert cli.main(["train", "--resume", out]) == 2
    assert "holds a compiled_automaton, which is not trained" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in Path(out).iterdir()} == before


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ctrl_c_keeps_the_checkpoint(tmp_path):
    out = tmp_path / "x"
    process = subprocess.Popen([sys.executable, "-m", "refattn", "compile", "--language", "d12", "--max-length", "4096",
                                "--words", "64", "--out", str(out)], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (out / "checkpoint.npz").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and f"the checkpoint is in {out}" in said
    assert refattn.load(out)[0].name == "d12" and not (out / "result.json").exists()
