"""The command line: what it prints, how it ends, and one clear line for every kind of bad input, here and in Python."""

import json
import math
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import refattn
from refattn import cli, optim, params, recipes, xp
from refattn.attention import VARIANTS, variant
from refattn.attention.ablations import Knobs
from refattn.attention.layer import MultiHead
from refattn.check import deviation
from refattn.cli import layout, listing, places, training
from refattn.contract import contract
from refattn.layers.block import Block
from refattn.layers.feed_forward import FeedForward, SwiGLU
from refattn.layers.mixture_of_experts import MixtureOfExperts
from refattn.layers.norm import LayerNorm
from refattn.models.recurrent import Recurrent
from refattn.models.transformer import decoder
from refattn.recipes import recipe
from refattn.tasks.fuzzy_logic import FuzzyLogic
from refattn.tasks.languages import LANGUAGES
from refattn.train import compare, curves, evaluate, fit, runs
from refattn.train.json_files import write_json
from refattn.verification import theorems, vectors
from refattn.verification.cases import CASES
from tests import strict_cupy
from tests.processes import children, is_there, linux, wait_for
from tests.tiny import FLAGS, final, tiny

ROOT = Path(refattn.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A directory with two complete runs."""
    out = tmp_path_factory.mktemp("finished")
    assert cli.main(["train", "--attention", "softmax", "hyla", *FLAGS, "--out", str(out)]) == 0
    return out


def test_two_that_begin_in_one_directory_leave_one_whole_run(tmp_path):
    both, said = threading.Barrier(2), []

    def begin(one, path):
        both.wait()
        try:
            runs.begin(path, one)
            said.append(one.rate)
        except ValueError as error:
            said.append(str(error))

    for n in range(20):
        path = tmp_path / str(n)
        racing = [threading.Thread(target=begin, args=(tiny(rate=rate), path)) for rate in (1e-3, 2e-3)]
        for thread in racing:
            thread.start()
        for thread in racing:
            thread.join()
        (won,), (lost,) = ([x for x in said if isinstance(x, kind)] for kind in (float, str))
        assert runs.read_recipe(path).rate == won and "holds a run already" in lost
        said.clear()


@pytest.mark.parametrize("missing", [("recipe.json",), ("recipe.json", "checkpoint.npz")])
def test_what_is_left_of_a_run_is_not_gone_on_with_as_a_new_one(missing, finished, tmp_path):
    shutil.copytree(finished / "hyla-seed0", tmp_path / "run")
    for name in missing:
        (tmp_path / "run" / name).unlink()
    with pytest.raises(ValueError, match="which holds .*result.json; allowed: another directory"):
        fit(tiny(seed=5), tmp_path / "run", progress=False)


def test_a_comparison_that_has_lost_a_recipe_does_not_go_on_without_that_run(finished, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "all")
    (tmp_path / "all" / "hyla-seed0" / "recipe.json").unlink()
    for words in ["train", "--resume"], ["reproduce", "--record", str(tmp_path / "made.json")]:
        assert cli.main([*words, str(tmp_path / "all")]) == 2
        said = capsys.readouterr().err
        assert f"{str(tmp_path / 'all' / 'hyla-seed0')!r} holds parts of a run and no recipe.json; allowed" in said


def test_curves_that_cannot_be_written_are_said(finished, tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")
    shutil.copytree(finished / "hyla-seed0", tmp_path / "run")
    (tmp_path / "run" / "curves.png").unlink(missing_ok=True)
    monkeypatch.setattr(os, "replace", full)
    curves.draw(tmp_path / "run", tiny())
    file = str(tmp_path / "run" / "curves.png")
    assert capsys.readouterr().err == f"refattn: {file!r} cannot be written (No space left on device)\n" * bool(
        find_spec("matplotlib"))


def test_a_link_to_a_run_is_gone_on_with_where_the_link_stands(finished, tmp_path):
    (tmp_path / "c").mkdir()
    shutil.copytree(finished / "softmax-seed0", tmp_path / "elsewhere" / "softmax-seed0")
    shutil.copytree(finished / "hyla-seed0", tmp_path / "c" / "hyla-seed0")
    (tmp_path / "c" / "softmax-seed0").symlink_to(tmp_path / "elsewhere" / "softmax-seed0")
    assert cli.main(["train", "--resume", str(tmp_path / "c")]) == 0
    assert [x.name for x in (tmp_path / "elsewhere").iterdir()] == ["softmax-seed0"]


def test_runs_are_copied_whole_or_not_at_all(finished, tmp_path, monkeypatch, capsys):
    def full(source, target, **how):
        os.makedirs(target)
        raise shutil.Error([(source, f"{target}/checkpoint.npz", "[Errno 28] No space left on device")])

    copytree = shutil.copytree
    monkeypatch.setattr(shutil, "copytree", lambda *x, **how: (full if "softmax" in str(x[0]) else copytree)(*x, **how))
    words = ["train", "--resume", str(finished), "--out", str(tmp_path / "b")]
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    assert "checkpoint.npz' cannot be written ([Errno 28] No space left on device)" in said and said.count("\n") == 1
    assert not list((tmp_path / "b").iterdir())

    def stopped(*x, **how):
        copytree(*x, **how)
        raise KeyboardInterrupt
    monkeypatch.setattr(shutil, "copytree", stopped)
    assert cli.main(words) == 130 and not list((tmp_path / "b").iterdir())
    monkeypatch.undo()
    for path in (archive := tmp_path / "archive", *shutil.copytree(finished, archive).rglob("*")):
        path.chmod(0o555)                                   # which its copy shall not be
    words[2] = str(archive)
    assert cli.main(words) == 0 and {x.name for x in (tmp_path / "b").iterdir()} == {"softmax-seed0", "hyla-seed0"}
    assert all(path.stat().st_mode & 0o200 for path in (tmp_path / "b").rglob("*"))


def test_a_new_directory_is_nobody_elses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert [places.new("a").name for _ in range(3)] == ["a", "a-2", "a-3"]


@pytest.mark.parametrize("words", [["train", "--resume", ""], ["show", ""], ["write", "", "x"]])
def test_an_unset_variable_is_no_directory(words, capsys):
    assert cli.main(words) == 2
    assert "allowed: the name of a directory" in capsys.readouterr().err


def snapshot(directory) -> dict:
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(Path(directory).rglob("*"))
            if path.is_file() and path.name != "lock"}


# --- bad input on the command line -----------------------------------------------------------------------------------

with pytest.raises(ValueError, match="null") as refused:
    os.mkdir("a\0b")
NULL = str(refused.value)                                   # a null byte, in the words of this Python
BAD_LINES = [                                               # words, what the line must contain
    ("trian", ["'trian'", "did you mean train?",
               "train, verify, list, show, reproduce, vectors, compile, check, write"]),
    ("train fuzzy_logc", ["TASK 'fuzzy_logc'", "did you mean fuzzy_logic?"]),
    ("train fuzy", ["TASK 'fuzy'", "did you mean fuzzy_logic?"]),
    ("train --scale quikc", ["--scale is 'quikc', did you mean quick? allowed: quick, short, paper"]),
    ("train --attention linear_rms_hed", ["'linear_rms_hed', did you mean linear_rms_head? allowed"]),
    ("verify hyla_eqals", ["'hyla_eqals', did you mean hyla_equals_its_pseudocode? allowed: parts of"]),
    ("reproduce table-1 --row evn_pairs", ["--row is 'evn_pairs', did you mean even_pairs: rnn? allowed: parts of"]),
    ("train Parity --steps 1", ["TASK 'Parity'", "did you mean parity? allowed"]),
    ("train chess", ["TASK 'chess'", "allowed: fuzzy_logic"]),
    ("train parity --language d2", ["--language is 'd2'", "task 'parity' says it already"]),
    ("train regular-languages --language dyck", ["--language is 'dyck'", "parity, even_pairs"]),
    ("train parity --chunk 1", ["--chunk is 1", "from 2 to 1,024"]),
    ("train parity --heads 7", ["--width is 64", "multiples of heads, 7"]),
    ("train cycle --ones 0.3", ["--ones is 0.3", "for parity numbers from 0 to 1"]),
    ("train parity --max-length 41", ["--max-length is 41", "--train-length + 2 = 42 on"]),
    ("train --stepz 5", ["--stepz", "did you mean --steps?"]),
    ("train --heldout 0.5", ["--heldout", "did you mean --held-out?"]),
    ("train --no-reed", ["--no-reed", "did you mean --no-read?"]),
    ("train --step 5", ["--step ", "did you mean --steps?"]),                           # no abbreviations
    ("train sraven --chunk 3", ["--chunk is not an option; allowed: what refattn train sraven --help lists"]),
    ("train --qqq=3", ["--qqq is not an option; allowed: what refattn train fuzzy_logic"]),
    ("train fuzzy_logic extra", ["'extra'", "one argument too many"]),
    ("train --attention hila", ["--attention is 'hila'", "softmax, linear, hyla", "did you mean hyla?"]),
    ("train --attention softmax nonsense", ["--attention is 'nonsense'", "softmax, linear, hyla"]),
    ("train --attention", ["--attention has no value; allowed: what refattn train fuzzy_logic --help lists"]),
    ("train --scale huge", ["--scale is 'huge'; allowed: quick, short, paper"]),
    ("train --device tpu", ["--device is 'tpu'; allowed: cpu, gpu"]),
    ("train --steps 0", ["--steps is 0", "from 1 to"]),
    ("train --steps -5", ["--steps is -5", "from 1 to"]),
    ("train --steps many", ["--steps is 'many'; allowed: whole numbers"]),
    ("train --steps 1.5", ["--steps is '1.5'; allowed: whole numbers"]),
    ("train --steps 99999999999999999999", ["--steps is 99999999999999999999", "1,000,000,000"]),
    ("train --steps {digits}", ["--steps is 100000000000000000...0000000000000000000; allowed: whole numbers"]),
    ("train --steps {digits}{digits}{digits}{digits}{digits}{digits}{digits}{digits}{digits}{digits}{digits}",
     ["--steps is '100000000000...0000000000000'; allowed: whole numbers"]),
    ("train --seed {digits}", ["--seed is 1", "from 0 to"]),
    ("train --evaluation 0", ["--evaluation is 0", "from 1 to"]),
    ("train --probe 0", ["--probe is 0", "from 1 to"]),
    ("train --log-every 0", ["--log-every is 0", "from 1 to"]),
    ("train --checkpoint-every 0", ["--checkpoint-every is 0", "from 1 to"]),
    ("train --warmup -1", ["--warmup is -1", "from 0 to"]),
    ("train --clip -1", ["--clip is -1", "from 0 to"]),
    ("train --decay -1", ["--decay is -1", "from 0 to"]),
    ("train --seed -1", ["--seed is -1", "from 0 to"]),
    ("train contextual_retrieval --held-out 1", ["--held-out takes no value, but '1' follows it"]),
    ("list --json=3", ["--json takes no value, but '3' follows it; allowed: the switch alone"]),
    ("train contextual_retrieval --held-out --sed 1", ["--sed is not an option, did you mean --seed?"]),
    ("train fuzzy-logic --seed 0 1 --seed 0", ["--seed is 0 1 0, which has 0 twice; allowed: each value once"]),
    ("train --attention hyla linear hyla", ["--attention is hyla linear hyla, which has hyla twice; allowed: each"]),
    ("verify --seed 1 1", ["--seed is 1 1, which has 1 twice"]),
    ("reproduce table-6 --fresh --seed 2 2", ["--seed is 2 2, which has 2 twice"]),
    ("train --seed 0 x", ["--seed is 'x'; allowed: whole numbers"]),
    ("train --rate nan", ["--rate is nan", "from 0 to 1000"]),
    ("train --rate=-0.1", ["--rate is -0.1", "from 0 to 1000"]),
    ("train --rate inf", ["--rate is inf", "from 0 to 1000"]),
    ("train --rate fast", ["--rate is 'fast'; allowed: numbers"]),
    ("train --held-out 1.5", ["--held-out is 1.5", "from 0 to 0.999"]),
    ("train --attention-dropout 1", ["--attention-dropout is 1", "from 0 to 0.99"]),
    ("train --width 0", ["--width is 0", "from 1 to 16,384"]),
    ("train --heads 1000000", ["--heads is 1000000", "from 1 to 1,024"]),
    ("train --batch 99999999999", ["--batch is 99999999999", "1,048,576"]),
    ("train --length 1", ["--length is 1", "from 2 to 4,096"]),
    ("train --variables 40", ["--variables is 40", "from 2 to 10"]),
    ("train --terms 13", ["--terms is 13", "from 1 to 12"]),
    ("train --warmup 5000", ["--warmup is 5000", "no step of 2000", "steps above 10000"]),
    ("train --evaluate-every 7", ["--evaluate-every is 7", "multiples of --log-every, 20"]),
    ("train --schedule-length long", ["--schedule-length is 'long'", "released, text"]),
    ("train parity --schedule-length text", ["--schedule-length is not an option"]),
    ("train parity --schedule-length released", ["--schedule-length is not an option"]),   # nothing to choose
    ("train --decay-rule all", ["--decay-rule is 'all'", "released, text, none"]),
    ("train --released-split --seed 7", ["--seed is 7; allowed with released splits: 0, 1, 2, 2024"]),
    ("train --max-seconds 0", ["--max-seconds", "'0'", "numbers above 0"]),
    ("train --max-seconds nan", ["--max-seconds", "'nan'", "numbers above 0"]),
    ("train --out {file}/below", ["--out is", "below", "cannot be written", "allowed"]),
    ("train --out {file}", ["--out is", "cannot be written", "allowed"]),
    ("train --out {finished}", ["--out is", "holds the run softmax-seed0 already", "another directory"]),
    ("train --out {finished}/hyla-seed0", ["--out is", "hyla-seed0 is a run; allowed: a directory that is in none"]),
    ("train --out {finished}/hyla-seed0/new", ["--out is", "hyla-seed0 is a run; allowed"]),
    ("train --out {finished}/hyla-seed0/new/one", ["--out is", "hyla-seed0 is a run; allowed"]),
    ("train --rate -1e-3", ["--rate is -0.001; allowed: numbers from 0 to"]),
    ("compile --language parity --out {finished}", ["--out is", "which holds runs already"]),
    ("train --resume {empty}", ["--resume", "holds no run", "recipe.json"]),
    ("train --resume {empty}/nowhere", ["--resume", "nowhere", "holds no run"]),
    ("train --resume {finished} --steps 9", ["--steps cannot go with --resume", "--out, --device, --max-seconds"]),
    ("train fuzzy_logic --resume {finished}", ["TASK 'fuzzy_logic' cannot go with --resume"]),
    ("train parity --resume {finished}", ["TASK 'parity' cannot go with --resume"]),
    ("train --resume {finished} --attention hyla", ["--attention cannot go with --resume"]),
    ("train --resume {finished} --out {finished}", ["--out is", "holds softmax-seed0 already"]),
    ("train --layers 1024 --width 16384 --hidden 65536", ["takes at least 41,304", "GiB of this machine", "--width"]),
    ("train --batch 1000000 --length 4096", ["GiB of memory", "GiB of this machine", "--batch, --length"]),
    ("train sraven --layers 1024 --width 16384 --hidden 65536", ["smaller --batch, --width, or more --shards"]),
    ("train parity --width 16384 --layers 1024 --attention softmax", ["smaller --batch, --train-length, --width"]),
    ("verify atention/hyla", ["'atention/hyla', did you mean attention/hyla? allowed: parts of names of theorems"]),
    ("verify nothing_like_it", ["'nothing_like_it'", "refattn list"]),
    ("verify --seed -1", ["--seed is '-1'; allowed: whole numbers from 0 to"]),
    ("verify --sed 1", ["--sed", "did you mean --seed?"]),
    ("list everything --json", ["'everything'", "one argument too many"]),
    ("vectors", ["--out"]),
    ("train --out {null}", ["--out is", NULL, "cannot be written"]),
    ("vectors --out={nothing}", ["--out is ''", "name of a directory"]),
    ("train --out={nothing}", ["--out is ''", "name of a directory"]),
    ("compile --language parity --out={nothing}", ["--out is ''", "name of a directory"]),
    ("reproduce table-6 --fresh --out={nothing}", ["--out is ''", "name of a directory"]),
    ("reproduce --record nowhere/x.json {finished}", ["nowhere/x.json", "in a directory that there is"]),
    ("train text --test nowhere.txt", ["--test is 'nowhere.txt'; allowed: documentation", "REFATTN_DATA"]),
    ("train multitask_images --first cifar10 --data {empty}", ["binary.tar.gz cannot", "--data or REFATTN_DATA"]),
    ("check math:sin --as hila", ["--as 'hila' is unknown, did you mean hyla? allowed: "]),
    ("check math:sin --as hyla --dtype int8", ["--dtype is 'int8'; allowed: float64, float32"]),
    ("check math:sin --as hyla --layout bth", ["--layout 'bth' is unknown; allowed: b, t, h, d in any order"]),
    ("check math:sin --as hyla --bias={nothing}", ["--bias is ''; allowed: the last axes"]),
    ("check math:sin --as hyla --sizes q=6,k", ["--sizes is 'q=6,k'; allowed: axes with whole numbers, each once"]),
    ("check math:sin --as hyla --sizes q=6,q=7", ["--sizes is 'q=6,q=7'; allowed: axes with whole numbers, each once"]),
    ("check math:sin --as hyla --sizes z=6", ["--sizes has the unknown axis 'z'; allowed: b, q, k"]),
    ("check math:sin --as hyla --sizes q=6 --tiles", ["--tiles is given, but so is --sizes; allowed: one of the two"]),
    ("check math:sin --as layers/?", ["'layers/?'; allowed: 'layers/LayerNorm', ", "'layers/Block pre, across', "]),
    ("check mien:kernel --as hyla", ["'mien' cannot be imported", "that is found from {here}, or a file of Python"]),
    ("compile even-pairs", ["too many, did you mean --language even-pairs? allowed: what refattn compile"]),
    ("compile nothing", ["'nothing' is one argument too many; allowed: what refattn compile"]),
    ("compile --regex ab*", ["'a', 'b', to which no symbol", "allowed: an --alphabet that has them"]),
    ("check math:sin --as hyla --seed -1", ["--seed is '-1'; allowed: whole numbers from 0 to 4,294,967,295"]),
    ("write somewhere prompt --seed 4294967296", ["--seed is '4294967296'", "from 0 to 4,294,967,295"]),
    ("write somewhere -- -a --tokens 3", ["'--tokens' is one argument too many; allowed"]),
    ("vectors --out {file}/below", ["--out is", "cannot be written"]),
    ("vectors --out {finished}", ["--out is", "which holds", "allowed: a directory of nothing but vectors"]),
]


def test_vectors_replace_only_a_manifest_of_theirs_and_count_their_files(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(vectors, "rows", lambda rows=vectors.rows: islice(rows(), 2))
    out, manifest = str(tmp_path), tmp_path / "manifest.json"
    for text in '{"name": "an extension"}', "[1]", "not JSON":
        manifest.write_text(text)
        assert cli.main(["vectors", "--out", out]) == 2
        assert "holds manifest.json; allowed: a directory of nothing but vectors" in capsys.readouterr().err
        assert [x.read_text() for x in tmp_path.iterdir()] == [text]
    manifest.unlink()
    for _ in range(2):
        assert cli.main(["vectors", "--out", out]) == 0 and len(list(tmp_path.iterdir())) == 3
        assert "2/2 [" in capsys.readouterr().err


def test_a_full_disk_is_a_run_that_failed_and_says_how_to_go_on(monkeypatch, tmp_path, capsys):
    def full(*_, **__):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr("refattn.cli.training.compare.compare", full)
    assert cli.main(["train", *FLAGS, "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "No space left on device, go on with: refattn train --resume" in said and said.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="no limit of a file's size here")
def test_a_file_that_cannot_be_written_is_named(tmp_path):
    """As on a full disk, whose error says no file."""
    import resource
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, limit[1]))
    try:
        with pytest.raises(OSError, match=r"run.json' cannot be written \(File too large\)"):
            write_json(tmp_path / "run.json", {"text": "x" * 10_000})
        assert not list(tmp_path.iterdir())
        with pytest.raises(OSError, match=r"metrics.jsonl' cannot be written \(File too large\)"):
            runs.append(tmp_path, {"text": "x" * 10_000})
        with pytest.raises(OSError, match=r"npz' cannot be written \(File too large\)"):
            vectors.write(tmp_path / "vectors")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    with pytest.raises(FileNotFoundError, match=r"run.json' cannot be written \(No such file or directory\)"):
        write_json(tmp_path / "nowhere" / "run.json", {})


def test_a_directory_that_begins_with_a_dash_is_named_as_a_command_takes_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "--attention", "hyla", *FLAGS, "--max-seconds", "1e-6", "--out=-x"]) == 0
    command = capsys.readouterr().err.splitlines()[-1].partition("go on with: refattn ")[2].split()
    assert command == ["train", "--resume", str(tmp_path / "-x")] and cli.main(command) == 0


@pytest.mark.parametrize("attention", [["hyla"], ["hyla", "softmax"]])
def test_where_no_thread_can_be_started_nothing_is_begun(attention, tmp_path, monkeypatch, capsys):
    def none_left(thread):
        raise RuntimeError("can't start new thread")
    monkeypatch.setattr(threading.Thread, "start", none_left)
    assert cli.main(["train", "--attention", *attention, *FLAGS, "--out", str(tmp_path / "new")]) == 2
    assert capsys.readouterr().err == "refattn train: can't start new thread\n" and not (tmp_path / "new").exists()


def test_a_directory_that_cannot_be_looked_into_is_not_said_to_be_empty(tmp_path, monkeypatch, capsys):
    def closed(path):
        raise PermissionError(13, "Permission denied", str(path))
    monkeypatch.setattr(os, "listdir", closed)
    assert cli.main(["show", str(tmp_path)]) == 2
    assert f"Permission denied: '{tmp_path}'" in capsys.readouterr().err


def test_memory_that_does_not_suffice_is_said_with_options_that_the_task_has(monkeypatch, tmp_path, capsys):
    def none_left(*_, **__):
        raise MemoryError
    monkeypatch.setattr("refattn.cli.training.compare.compare", none_left)
    for words, sizes in (FLAGS, "--batch, --length, --width"), (["triangles"], "--batch, --size, --width"):
        assert cli.main(["train", *words, "--out", str(tmp_path)]) == 2
        assert capsys.readouterr().err == ("refattn train: memory does not suffice for these sizes; allowed: smaller "
                                           f"{sizes}, or more --shards\n")


@pytest.mark.parametrize("words", [["show", ".", ""], ["vectors", "--out", "new", ""]])
def test_an_empty_word_too_many_is_one_line(words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    assert "''" in said and said.count("\n") == 1 and not [*tmp_path.iterdir()]


@pytest.mark.parametrize("words, pieces", BAD_LINES, ids=[words for words, _ in BAD_LINES])
def test_bad_input_is_one_line_and_status_2(words, pieces, finished, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("mine")
    places = {"file": tmp_path / "file", "empty": tmp_path / "empty", "finished": finished,
              "digits": str(10**400), "null": "a\0b", "nothing": ""}
    before = snapshot(finished)
    assert cli.main(words.format(**places).split()) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "Traceback" not in said.err
    assert said.err.startswith("refattn")
    for piece in pieces:
        assert piece.replace("{here}", str(tmp_path)) in said.err, said.err
    assert snapshot(finished) == before and (tmp_path / "file").read_text() == "mine"


def test_what_the_first_batch_finds_out_names_the_option(tmp_path, capsys):
    assert cli.main(["train", "sort_of_clevr", "--scenes", "1", "--attention", "softmax", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "refattn train: --batch is 64; allowed with last_batch drop: numbers up to the 10 samples there are"


def test_a_device_that_is_not_there(capsys, monkeypatch, tmp_path):
    def no_device(name):
        raise RuntimeError("device is 'gpu', but CuPy is missing (No module named 'cupy'); allowed: cpu")
    monkeypatch.setattr(xp, "device", no_device)
    assert cli.main(["train", "--device", "gpu", "--out", str(tmp_path / "new")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "--device is 'gpu'" in said and "allowed: cpu" in said
    assert not (tmp_path / "new").exists()


def test_what_was_stopped_on_a_gpu_goes_on_there(capsys, monkeypatch, tmp_path):
    """The command that was given went on with the processor."""
    for module, name in (xp, "device"), (refattn.train, "find_device"):
        monkeypatch.setattr(module, name, lambda name: strict_cupy)
    flags = ["train", "--attention", "softmax", *FLAGS, "--max-seconds", "0.001", "--out", str(tmp_path)]
    for device in "cpu", "gpu":
        assert cli.main([*flags[:-1], str(tmp_path / device), "--device", device]) == 0
        on = capsys.readouterr().err.splitlines()[-1].partition("go on with: ")[2]
        assert on == f"refattn train --resume {tmp_path / device}" + " --device gpu" * (device == "gpu")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_directory_that_may_not_be_written(capsys, tmp_path):
    tmp_path.chmod(0o555)
    assert cli.main(["train", *FLAGS, "--out", str(tmp_path)]) == 2
    tmp_path.chmod(0o755)
    assert "--out is" in capsys.readouterr().err


def test_a_run_that_may_not_be_written_is_refused_before_another_goes_on(finished, tmp_path, monkeypatch, capsys):
    paths = {name: shutil.copytree(finished / name, tmp_path / name) for name in ("softmax-seed0", "hyla-seed0")}
    for path in paths.values():
        (path / "result.json").unlink()
    before, access = snapshot(tmp_path), os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "hyla-seed0" and access(path, mode))
    assert cli.main(["train", "--resume", str(tmp_path)]) == 2
    assert "hyla-seed0' cannot be written; allowed: " in capsys.readouterr().err and snapshot(tmp_path) == before
    shutil.copy(finished / "hyla-seed0" / "result.json", paths["hyla-seed0"])           # of an archive
    assert cli.main(["train", "--resume", str(tmp_path)]) == 0


# --- damaged run directories -----------------------------------------------------------------------------------------

def damage_truncate(run):
    file = run / "checkpoint.npz"
    file.write_bytes(file.read_bytes()[:-200])


def damage_half(run):
    file = run / "checkpoint.npz"
    file.write_bytes(file.read_bytes()[:len(file.read_bytes()) // 2])


def damage_flip(run):
    data = bytearray((run / "checkpoint.npz").read_bytes())
    data[len(data) // 2] ^= 0xFF
    (run / "checkpoint.npz").write_bytes(bytes(data))


def damage_foreign_npz(run):
    np.savez(run / "checkpoint.npz", weights=np.zeros(3))


def damage_pickle(run):
    np.savez(run / "checkpoint.npz", header=np.array({"format": "refattn-1"}, dtype=object))


def damage_other_layout(run):
    other = tiny(width=16)
    listed = other.build().parameters()
    zeros = {name: np.zeros(() if name == "loss_sum" else params.count(listed), np.float32) for name in runs.ARRAYS}
    runs.save_checkpoint(run, other, listed, zeros, 3, 0.0)


def damage_other_recipe(run):
    other = tiny(attention="softmax")                       # the same layout: only the recipe tells them apart
    listed = other.build().parameters()
    zeros = {name: np.zeros(() if name == "loss_sum" else params.count(listed), np.float32) for name in runs.ARRAYS}
    runs.save_checkpoint(run, other, listed, zeros, 3, 0.0)


def damage_nan(run):
    listed = tiny().build().parameters()
    arrays, _ = params.load(run / "checkpoint.npz")
    arrays["first"][7] = np.nan
    runs.save_checkpoint(run, tiny(), listed, arrays, 3, 0.0)


def damage_second_moment(run):
    arrays, _ = params.load(run / "checkpoint.npz")
    runs.save_checkpoint(run, tiny(), tiny().build().parameters(), {**arrays, "second": -arrays["second"]}, 3, 0.0)


def damage_no_checkpoint(run):
    (run / "checkpoint.npz").unlink()


def damage_missing_array(run):
    listed = tiny().build().parameters()
    arrays, _ = params.load(run / "checkpoint.npz")
    del arrays["second"]
    runs.save_checkpoint(run, tiny(), listed, arrays, 3, 0.0)


def damage_step(run):
    listed = tiny().build().parameters()
    runs.save_checkpoint(run, tiny(), listed, params.load(run / "checkpoint.npz")[0], 10**6, 0.0)


def damage_recipe_text(run):
    (run / "recipe.json").write_text("not json")


def damage_recipe_list(run):
    (run / "recipe.json").write_text('["fuzzy_logic"]')


def damage_recipe_field(run):
    document = json.loads((run / "recipe.json").read_text())
    document["fields"]["depth"] = 3
    (run / "recipe.json").write_text(json.dumps(document))


def damage_recipe_value(run):
    document = json.loads((run / "recipe.json").read_text())
    document["fields"]["heads"] = "many"
    (run / "recipe.json").write_text(json.dumps(document))


def damage_recipe_task(run):
    document = json.loads((run / "recipe.json").read_text())
    (run / "recipe.json").write_text(json.dumps({**document, "task": "chess"}))


def with_header(change, run):
    """The checkpoint with its header changed."""
    with np.load(run / "checkpoint.npz") as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(str(arrays.pop("header")))
    change(header)
    np.savez(run / "checkpoint.npz", header=np.array(json.dumps(header)), **arrays)


HEADERS = {
    "meta null": (lambda header: header.update(meta=None), "its layout is no list, or its meta no object"),
    "layout null": (lambda header: header.update(layout=None), "its layout is no list, or its meta no object"),
    "no layout": (lambda header: header.pop("layout"), "is not a complete refattn checkpoint (KeyError: 'layout')"),
    "layout of numbers": (lambda header: header.update(layout=[1]), "it has 1; allowed: "),
    "recipe a string": (lambda header: header["meta"].update(recipe="hyla"), "was written by another recipe"),
    "seconds a string": (lambda header: header["meta"].update(seconds="x"), "has seconds 'x'; allowed: numbers"),
    "seconds below 0": (lambda header: header["meta"].update(seconds=-0.5), "has seconds -0.5; allowed: numbers"),
    "seconds not a number": (lambda header: header["meta"].update(cpu_seconds=math.nan), "has cpu_seconds nan"),
    "step true": (lambda header: header["meta"].update(step=True), "is of step True; allowed: steps from 0 to 30"),
    "step -1": (lambda header: header["meta"].update(step=-1), "is of step -1; allowed: steps from 0 to 30"),
}


def damage_brackets(run):
    (run / "recipe.json").write_text("[" * 100_000)


def damage_header_of_brackets(run):
    np.savez(run / "checkpoint.npz", header=np.array("[" * 100_000))


DAMAGES = [                                                 # what is done to a run, what the line must contain
    *((partial(with_header, change), [words]) for change, words in HEADERS.values()),
    (damage_brackets, ["recipe.json is not a JSON object"]),
    (damage_header_of_brackets, ["checkpoint.npz is not a complete refattn checkpoint"]),
    (damage_truncate, ["checkpoint.npz is not a complete refattn checkpoint"]),
    (damage_half, ["checkpoint.npz is not a complete refattn checkpoint"]),
    (damage_flip, ["checkpoint.npz is not a complete refattn checkpoint"]),
    (damage_foreign_npz, ["checkpoint.npz is not a complete refattn checkpoint"]),
    (damage_pickle, ["checkpoint.npz is not a complete refattn checkpoint"]),
    (damage_other_layout, ["was written for other parameters", "16", "8"]),
    (damage_other_recipe, ["was written by another recipe", "; allowed: that one"]),
    (damage_nan, ["first", "not finite"]),
    (damage_second_moment, ["entries of second that are not finite or below 0"]),
    (damage_no_checkpoint, ["checkpoint.npz is missing, but metrics.jsonl goes to step 30; allowed: both"]),
    (damage_missing_array, ["second", "is missing"]),
    (damage_step, ["step 1000000", "from 0 to 30"]),
    (damage_recipe_text, ["recipe.json is not a JSON object"]),
    (damage_recipe_list, ["recipe.json is not a JSON object", "it holds ['fuzzy_logic']"]),
    (damage_recipe_field, ["recipe.json", "depth"]),
    (damage_recipe_value, ["recipe.json", "heads is 'many'"]),
    (damage_recipe_task, ["recipe.json", "'chess' is unknown", "fuzzy_logic"]),
]


@pytest.mark.parametrize("damage, pieces", DAMAGES, ids=[
    *HEADERS, *(damage.__name__ for damage, _ in DAMAGES[len(HEADERS):])])
def test_a_damaged_run_is_refused_and_left_alone(damage, pieces, finished, tmp_path, capsys):
    run = tmp_path / "hyla-seed0"
    shutil.copytree(finished / "hyla-seed0", run)
    (run / "result.json").unlink()
    damage(run)
    before = snapshot(run)
    with pytest.raises(ValueError) as caught:
        refattn.load(run)
    assert cli.main(["train", "--resume", str(run), "--out", str(tmp_path / "copy")]) == 2
    assert "refattn train: " in capsys.readouterr().err and not (tmp_path / "copy").exists()
    assert cli.main(["train", "--resume", str(run)]) == 2
    said = capsys.readouterr().err
    lines = [line for line in said.splitlines() if line.startswith("refattn")]
    assert len(lines) == 1 and "Traceback" not in said
    for piece in pieces:
        assert piece in str(caught.value) and piece in lines[0]
    assert "\n" not in str(caught.value) and snapshot(run) == before


@pytest.mark.parametrize("change, words", [
    ({"metrics": None}, "its metrics is None"), ({"metrics": {}}, "its metrics is {}"),
    ({"metrics": {"train": {}}}, "its metrics is {'train': {}}"), ({"metrics": {"train": 1}}, "its metrics is"),
    ({"metrics": {"train": {"mse": "x"}}}, "its metrics is"), ({"seconds": "x"}, "its seconds is 'x'"),
    ({"seconds": -0.1}, "its seconds is -0.1"), ({"seconds": True}, "its seconds is True"),
    ({"step": 3}, "is of step 3; allowed: 30"),
    ({"step": None}, "its step is None"), ({"step": -1}, "its step is -1"), ({"fields": []}, "its fields is []"),
    ({"name": 3}, "its name is 3"), ({"fields": {"heads": 4}}, "was written by another recipe")])
def test_a_damaged_result_is_refused_and_left_alone(change, words, finished, tmp_path, capsys):
    run = tmp_path / "hyla-seed0"
    shutil.copytree(finished / "hyla-seed0", run)
    (run / "result.json").write_text(json.dumps({**runs.result(run), **change}))
    before = snapshot(run)
    assert cli.main(["train", "--resume", str(run)]) == 2
    assert cli.main(["train", "--resume", str(run), "--json"]) == 2
    assert cli.main(["train", "--resume", str(run), "--out", str(tmp_path / "copy")]) == 2
    assert not (tmp_path / "copy").exists()
    for line in capsys.readouterr().err.splitlines():
        assert line.startswith("refattn train:") and "result.json" in line and words in line
    assert snapshot(run) == before


def test_a_result_without_a_metric_of_the_table_has_a_dash_there(finished, tmp_path, capsys):
    run = tmp_path / "hyla-seed0"
    shutil.copytree(finished / "hyla-seed0", run)
    (run / "result.json").write_text(json.dumps({**runs.result(run), "metrics": {"held_out": {"r2_per_task": 0.25}}}))
    assert cli.main(["train", "--resume", str(run)]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("hyla"))
    assert "0.250" in row and row.split().count("-") == 4


def test_a_comparison_with_a_damaged_checkpoint_is_refused_before_a_run_goes_on(finished, tmp_path):
    paths = {tmp_path / one.name: one for one in (tiny(seed=1), tiny())}
    for path, one in paths.items():
        runs.begin(path, one)
    shutil.copy(finished / "hyla-seed0" / "checkpoint.npz", tmp_path / "hyla-seed0")
    damage_truncate(tmp_path / "hyla-seed0")
    with pytest.raises(ValueError, match="hyla-seed0/checkpoint.npz is not a complete refattn checkpoint"):
        compare.train_all(paths, tmp_path, resume=True, progress=False)
    assert {file.name for file in (tmp_path / "hyla-seed1").iterdir()} == {"lock", "recipe.json"}


# --- bad input in Python ---------------------------------------------------------------------------------------------

def arrays(dtype=np.float64, **shapes):
    rng = np.random.default_rng(0)
    base = {"q": (2, 3, 4, 5), "k": (2, 6, 4, 5), "v": (2, 6, 4, 7)} | shapes
    return {name: rng.standard_normal(shape).astype(dtype) for name, shape in base.items()}


def page(name="hyla", options=None, **changes):
    return lambda: variant(name).forward(**{**arrays(), **changes}, **(options or {}))


def layer(x, **options):
    def call():
        multi_head = MultiHead(6, 2, 3)
        _, p = params.allocate(multi_head.parameters(), np.float64)
        multi_head.forward(p, np.zeros(x) if isinstance(x, tuple) else x, **options)
    return call


def single(made, dtype):
    made.forward(params.allocate(made.parameters(), np.float64)[1], np.zeros((2, 6), dtype))


def network(**options):
    def call():
        model = Recurrent(6, 5, 2)
        model.forward(params.allocate(model.parameters(), np.float64)[1], np.zeros((2, 3), int), **options)
    return call


LISTED = {"w": params.Parameter("ab", (2, 3), 2, "weight")}
def flat_for_views(layer, x):
    flat, _ = params.allocate(layer.parameters(), np.float64)
    layer.forward(flat, x)


def flat_gradient(model, x):
    flat, p = params.allocate(model.parameters(), np.float64)
    y, saved = model.forward(p, x)
    model.backward(p, saved, y, flat)


BAD_CALLS = [                                               # call, exception, what it must contain
    ("q and k of other heads", page(k=np.zeros((2, 6, 3, 5))), ValueError, ["axis h is 4 in q but 3 in k"]),
    ("k and v of other lengths", page(v=np.zeros((2, 5, 4, 7))), ValueError, ["axis k is 6 in k but 5 in v"]),
    ("q of three axes", page(q=np.zeros((2, 3, 4))), ValueError, ["q has shape (2, 3, 4)", "4 axes"]),
    ("mixed dtypes", page(k=np.zeros((2, 6, 4, 5), np.float32)), TypeError, ["q is float64 but k is float32"]),
    ("mixed modules", page(k=strict_cupy.zeros((2, 6, 4, 5))), TypeError, ["numpy", "strict_cupy"]),
    ("integers", page(q=np.zeros((2, 3, 4, 5), int)), TypeError, ["q has dtype int64", "floating point"]),
    ("a list", page(q=[[1.0]]), TypeError, ["q is a list", "array"]),
    ("a bias that does not broadcast", page(bias=np.zeros((3, 6, 4))), ValueError, ["(3, 6, 4)", "(2, 4, 3, 6)"]),
    ("minus infinity as a mask", page(bias=np.full((3, 6), -np.inf)), ValueError,
     ["bias has entries that are not finite", "keep for a mask"]),
    ("a bias that is no number", page(bias=np.full((3, 6), np.nan)), ValueError, ["bias has entries that are not"]),
    ("a negative epsilon", page(epsilon=-1), ValueError, ["epsilon is -1; allowed: numbers of at least 0"]),
    ("an epsilon that is no number", lambda: single(LayerNorm(6, math.nan), np.float64), ValueError,
     ["epsilon is nan"]),
    ("a variant near another", lambda: VARIANTS["hila"], KeyError,
     ["'hila' is unknown, did you mean hyla?", "softmax"]),
    ("a variant with a layer of its own", lambda: VARIANTS["compositional"], KeyError,
     ["variant is 'compositional', but its layer is in refattn.attention.compositional; allowed: softmax, linear"]),
    ("a page of such a layer", lambda: variant("compositional_linear"), ValueError,
     ["variant is 'compositional_linear', but its layer is in refattn.attention.compositional; allowed: softmax"]),
    ("a module that is no variant", lambda: variant("masks"), ValueError, ["'masks' is unknown; allowed: softmax"]),
    ("a variant like none", lambda: variant("zzzz"), ValueError, ["'zzzz' is unknown; allowed: softmax, linear"]),
    *((f"the flat array for its views in {type(kind).__name__}", partial(flat_for_views, kind, x), TypeError,
       ["p is an array of shape", "allowed: the named views that params.allocate gives"])
      for kind, x in ((MultiHead(6, 2, 3), np.zeros((1, 2, 6))), (FeedForward(6, 4), np.zeros((2, 6))),
                      (decoder(MultiHead(6, 2, 3), hidden=4, layers=1, inputs=5), np.zeros((1, 2, 5))))),
    ("the flat gradient for its views", lambda: flat_gradient(
        decoder(MultiHead(6, 2, 3), hidden=4, layers=1, inputs=5), np.zeros((1, 2, 5))), TypeError,
     ["grads is an array of shape"]),
    ("a keep of numbers", page(keep=np.ones((3, 6))), TypeError, ["keep", "float64", "booleans"]),
    ("an unknown variant", lambda: variant("hila"), ValueError, ["'hila'", *VARIANTS]),
    ("unknown knobs", lambda: variant(Knobs("sparsemax", 1, "relu")), ValueError,
     ["normaliser is 'sparsemax'", "softmax"]),
    ("x of another dtype", layer(np.zeros((2, 3, 6), np.float32)), TypeError, ["x is float32 but w is float64"]),
    ("a context of another dtype", layer((2, 3, 6), context=np.zeros((2, 4, 6), np.float32)), TypeError,
     ["x is float64 but context is float32"]),
    ("a list as x", layer([[[1.0] * 6]]), TypeError, ["x is a list; allowed: an array"]),
    ("whole numbers as x", layer(np.zeros((2, 3, 6), int)), TypeError, ["x has dtype int64"]),
    ("a position for a slice", layer((2, 3, 6), read=-1), ValueError, ["read is -1", "slices"]),
    *((f"a {name} of fewer queries than x, with read", layer((2, 3, 6), read=slice(1, 3), **{name: given}),
       ValueError, [f"{name} has shape (2, 3)", "with read: 1 or all 3 queries, or those up to the last read"])
      for name, given in (("bias", np.zeros((2, 3))), ("keep", np.ones((2, 3), bool)), ("dropout", np.ones((2, 3))))),
    ("a position for a slice of a network", network(read=-1), ValueError, ["read is -1", "slices"]),
    ("x of another dtype in a feed-forward layer", lambda: single(FeedForward(6, 4), np.float32), TypeError,
     ["x is float32 but w is float64"]),
    ("x of another dtype in SwiGLU", lambda: single(SwiGLU(6, 4), np.float32), TypeError, ["x is float32 but w is"]),
    ("x of another dtype in LayerNorm", lambda: single(LayerNorm(6), np.float32), TypeError,
     ["x is float32 but scale is float64"]),
    ("x of another dtype in a mixture", lambda: single(MixtureOfExperts(6, 4, 3, 2), np.float32), TypeError,
     ["x is float32 but w is float64"]),
    ("a feed-forward layer of another width", lambda: Block(MultiHead(6, 2, 3), FeedForward(5, 4), epsilon=1e-6),
     ValueError, ["feed_forward has width 5 in a block of width 6"]),
    ("a switch for a size", lambda: FeedForward(6, True), ValueError, ["hidden is True", "whole numbers of at least"]),
    ("x of another width", layer((2, 3, 7)), ValueError, ["x has shape (2, 3, 7)", "m = 6"]),
    ("half a hidden unit", lambda: FeedForward(6, 2.5), ValueError, ["hidden is 2.5", "whole numbers of at least 1"]),
    ("half a hidden unit with a gate", lambda: SwiGLU(6, 2.5), ValueError, ["hidden is 2.5", "whole numbers"]),
    ("half an expert", lambda: MixtureOfExperts(6, 4, 3, 1.5), ValueError, ["chosen is 1.5", "whole numbers"]),
    ("more experts than there are", lambda: MixtureOfExperts(6, 4, 3, 4), ValueError, ["chosen is 4", "from 1 to 3"]),
    ("no heads", lambda: MultiHead(6, 0, 3), ValueError, ["heads is 0", "at least 1"]),
    ("no layers", lambda: decoder(MultiHead(6, 2, 3), hidden=4, layers=0, inputs=5), ValueError, ["layers is 0", "1"]),
    ("a contraction that does not fit", lambda: contract("ab,bc->ac", np.zeros((2, 3)), np.zeros((4, 5))), ValueError,
     ["axis b is 3", "4 in the second; allowed: one size"]),
    ("a flat array of another size", lambda: params.view(np.zeros(5), LISTED), ValueError, ["(5,)", "(6,)"]),
    ("rebinding a parameter", lambda: setattr(params.allocate(LISTED)[1], "w", np.zeros((2, 3))), AttributeError,
     ["w cannot be bound", "p.w[...] = x"]),
    ("an unknown scheme", lambda: params.initialise(np.zeros(6), LISTED, np.random.default_rng(0), "magic"),
     ValueError, ["'magic'", "lecun_normal"]),
    ("an unknown decay rule", lambda: params.decay_mask(LISTED, "some"), ValueError,
     ["'some'", "released, text, none"]),
    ("a schedule without steps", lambda: optim.warmup_cosine(0, rate=1.0, steps=10, warmup=5), ValueError,
     ["warmup is 5", "10", "allowed: steps above 10"]),
    ("an unknown device", lambda: fit(tiny(), device="tpu"), ValueError, ["'tpu'", "cpu, gpu"]),
    ("no time", lambda: fit(tiny(), max_seconds=0), ValueError, ["max_seconds is 0", "above 0"]),
    ("an unknown split", lambda: evaluate(tiny(), tiny().build(), np.zeros(1), "test"), ValueError,
     ["'test'", "train", "held_out", "unseen_terms"]),
    ("no tasks", lambda: evaluate(tiny(), tiny().build(), np.zeros(1), "train", tasks=0), ValueError,
     ["tasks is 0", "at least 1"]),
    ("no thread", lambda: fit(tiny(), threads=0), ValueError, ["threads is 0", "at least 1"]),
    ("an unknown task", lambda: recipe("fuzy_logic"), ValueError, ["'fuzy_logic'", "did you mean fuzzy_logic?"]),
    ("a language twice", lambda: recipe("parity", language="d2"), ValueError,
     ["language is 'd2'", "task 'parity' says it already", "'regular_languages'"]),
    ("an unknown field", lambda: recipe(widht=3), ValueError, ["'widht'", "did you mean width?"]),
    ("a field of another type", lambda: recipe(heads=2.0), ValueError, ["heads is 2.0", "whole numbers"]),
    ("a number for a switch", lambda: recipe(read=1), ValueError, ["read is 1", "True and False"]),
    ("a task of one token", lambda: FuzzyLogic(length=1), ValueError, ["length is 1", "2"]),
    ("two runs of one name", lambda: compare.compare([tiny(), tiny()], "/nowhere"), ValueError,
     ["hyla-seed0, hyla-seed0", "each once"]),
    ("no workers", lambda: compare.compare([tiny()], "/nowhere", workers=0), ValueError,
     ["workers is 0; allowed: whole numbers of at least 1"]),
    ("an unknown device of several runs", lambda: compare.compare([tiny(), tiny(seed=1)], "/nowhere", device="tpu"),
     ValueError, ["'tpu'", "cpu, gpu"]),
    ("no run", lambda: refattn.load("/nowhere"), ValueError, ["'/nowhere' holds no run", "recipe.json"]),
    ("no name of a run", lambda: refattn.load(""), ValueError, ["path is ''; allowed: the name of a run directory"]),
    ("a number for a run", lambda: refattn.load(3), ValueError, ["path is 3; allowed: the name of a run directory"]),
    *((f"{size} samples of {task}", partial(recipe(task).sample, np.random.default_rng(0), size=size), ValueError,
       [f"size is {size}; allowed: whole numbers of at least 1"])
      for task in ("fuzzy_logic", "contextual_retrieval", "parity", "triangles", "text") for size in (-1, 0)),
    ("no such name", lambda: refattn.laod, AttributeError, ["laod"]),
]


@pytest.mark.parametrize("call, kind, pieces", [case[1:] for case in BAD_CALLS], ids=[case[0] for case in BAD_CALLS])
def test_bad_calls_name_the_value_and_what_is_allowed(call, kind, pieces):
    with pytest.raises(kind) as caught:
        call()
    for piece in pieces:
        assert piece in str(caught.value)
    assert "\n" not in str(caught.value) and not Path("/nowhere").exists()


def test_a_run_where_none_may_be_is_refused_and_left_alone(finished):
    before = snapshot(finished)
    with pytest.raises(ValueError, match="holds a run already; allowed: another directory, or resuming it"):
        fit(tiny(), finished / "hyla-seed0", progress=False)
    with pytest.raises(ValueError, match="heads is 4, but a resumed run keeps its recipe; allowed in .*: 2"):
        fit(tiny(heads=4), finished / "hyla-seed0", resume=True, progress=False)
    assert snapshot(finished) == before


# --- what good input does --------------------------------------------------------------------------------------------

def test_train_prints_a_table_with_the_papers_figures_marked(tmp_path, capsys):
    flags = ["--seed", "0", "1", "--attention", "softmax", "hyla", *FLAGS]
    assert cli.main(["train", *flags, "--out", str(tmp_path)]) == 0
    said = capsys.readouterr()
    rows = [line for line in said.out.splitlines() if line.startswith(("softmax", "hyla"))]
    assert len(rows) == 2 and all(row.count("±") >= 5 for row in rows)
    assert "0.633 ± 0.023" in rows[0] and "best of a grid, 50,000 steps in the code, 3 seeds" in said.out
    assert "seeds 0, 1: mean ± standard error" in said.out
    assert "Traceback" not in said.err and "4 runs, 120 steps together" in said.err
    assert {path.name for path in tmp_path.iterdir()} == {f"{a}-seed{s}" for a in ("hyla", "softmax") for s in (0, 1)}


def test_train_alone_is_the_main_job(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    seen = {}

    def instead(chosen, out, **options):
        seen.update(chosen=chosen, out=out, options=options)
        raise KeyboardInterrupt
    monkeypatch.setattr(compare, "compare", instead)
    assert cli.main(["train"]) == 130
    assert [one.attention for one in seen["chosen"]] == ["softmax", "linear", "hyla"]
    assert {one.steps for one in seen["chosen"]} == {recipe().steps} and recipe().steps >= 2_000
    assert all(one.read and one.evaluation == 16_000 and one.seed == 0 for one in seen["chosen"])
    assert seen["out"].parent == Path("runs") and "fuzzy_logic-quick" in seen["out"].name
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"refattn train --resume {seen['out']}" in said


def test_train_json_is_one_document(tmp_path, capsys):
    assert cli.main(["train", "--attention", "hyla", *FLAGS, "--json", "--out", str(tmp_path)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["runs"][0]["metrics"].keys() == {"train", "held_out", "unseen_terms"}
    assert document["table"][0]["published"]["mean"] == 0.8113
    assert document["runs"][0]["fields"]["steps"] == 30


def test_every_field_of_the_recipe_is_a_flag(monkeypatch, tmp_path):
    words = "--no-read --cover-terms --rate 1e-3 --decay-rule text --held-out 0.3 --attention linear --seed 3 --clip 2"
    chosen, _, _, _ = training.plan([*words.split(), "--scale", "paper"])
    assert chosen == [recipe("fuzzy_logic", "paper", read=False, cover_terms=True, rate=1e-3, decay_rule="text",
                             held_out=0.3, attention="linear", seed=3, clip=2.0)]


def test_resume_goes_on_and_can_move(finished, tmp_path, capsys):
    out = tmp_path / "first"
    assert cli.main(["train", "--attention", "softmax", "hyla", *FLAGS, "--max-seconds", "0.000001",
                     "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "not complete: stopped at step" in said.out and f"refattn train --resume {out}" in said.err
    assert cli.main(["train", "--resume", str(out), "--out", str(tmp_path / "second")]) == 0
    assert cli.main(["train", "--resume", str(out)]) == 0
    for name in "softmax-seed0", "hyla-seed0":
        assert final(out / name) == final(tmp_path / "second" / name) == final(finished / name)
    capsys.readouterr()
    assert cli.main(["train", "--resume", str(finished), "--json"]) == 0                # complete: only the table
    assert [run["name"] for run in json.loads(capsys.readouterr().out)["runs"]] == ["softmax-seed0", "hyla-seed0"]
    assert cli.main(["train", "--resume", str(finished / "hyla-seed0")]) == 0


def test_runs_of_several_settings_that_are_resumed_are_several_tables(finished, tmp_path, capsys):
    """Two seeds that were trained differently are no mean of two, and another task has other columns."""
    shutil.copytree(finished / "hyla-seed0", tmp_path / "hyla-seed0")
    assert cli.main(["train", *FLAGS, "--attention", "hyla", "--seed", "1", "--steps", "5", "--out",
                     str(tmp_path)]) == 0
    assert cli.main(["train", "contextual_retrieval", "--attention", "softmax", "--steps", "1", "--width", "4",
                     "--evaluation", "3", "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    assert cli.main(["train", "--resume", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    for words in "fuzzy_logic, steps 30, ", "fuzzy_logic, steps 5, ", "contextual_retrieval\n", "held-out loss":
        assert words in said
    assert "±" not in said.replace("0.811 ± 0.078", "").replace("mean ± standard error", "")
    assert cli.main(["train", "--resume", str(tmp_path), "--json"]) == 0
    assert [row["runs"] for row in json.loads(capsys.readouterr().out)["table"]] == [1, 1, 1]


def test_a_run_that_meets_a_bad_number_ends_with_status_1(tmp_path, capsys):
    flags = ["--attention", "linear", *FLAGS, "--rate", "1000", "--decay", "1000", "--warmup", "0"]
    assert cli.main(["train", *flags, "--out", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert "is not finite" in said.out and "Traceback" not in said.err
    assert "linear-seed0, step" in said.err.splitlines()[-2] and "is kept" in said.err


def test_verify_prints_lines_and_ends_with_1_if_one_fails(monkeypatch, capsys):
    good = theorems.Theorem("one", "1 = 1", "here", 1e-12, lambda rng: 0.0)
    bad, broken = good._replace(name="two", error=lambda rng: 1.0), good._replace(name="three", error=lambda rng: 1 / 0)
    for table, failures in ([good], 0), ([good, bad, broken], 2):
        monkeypatch.setattr(theorems, "every", lambda found=table: {t.name: t for t in found})
        assert cli.main(["verify"]) == (failures > 0)
        said = capsys.readouterr()
        assert "one: 1 = 1 [here]" in said.out and said.out.count("FAIL") == failures and f"/{len(table)} " in said.err
        assert re.fullmatch(rf"{len(table) - failures} of {len(table)} hold, \d+\.\d s", said.out.splitlines()[-1])
        assert cli.main(["verify", "--quiet"]) == (failures > 0)
        said = capsys.readouterr()
        assert [line[:4] for line in said.out.splitlines()[:-1]] == ["FAIL"] * failures
        assert f"/{len(table)} " in said.err
    assert re.search(r"      inf <= 1e-12   \d\.\d\d s  three: ZeroDivisionError: division by zero \[here\]", said.out)
    assert cli.main(["verify", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)[2]["error"] is None


def test_verify_says_where_a_gradient_is_wrong(monkeypatch, capsys):
    for found, status, words in (1.0, 1, "1 = 1; dk[1] is 1.0, not 2.0 [here]"), (2.0, 0, "1 = 1 [here]"):
        one = theorems.Theorem("one", "1 = 1", "here", 0, lambda rng, x=found: deviation("dk", [1.0, x], [1.0, 2.0]))
        monkeypatch.setattr(theorems, "every", lambda one=one: {"one": one})
        assert cli.main(["verify"]) == status and words in capsys.readouterr().out


def test_verify_json(capsys):
    name = next(iter(theorems.THEOREMS))
    assert cli.main(["verify", name, "--json"]) == 0
    assert all(row["ok"] for row in json.loads(capsys.readouterr().out))


def test_verify_draws_once_for_each_seed(monkeypatch, capsys):
    one = theorems.Theorem("one", "1 = 1", "here", 0.5, lambda rng: rng.random())
    monkeypatch.setattr(theorems, "every", lambda: {"one": one, "two": one._replace(name="two")})
    expected = [next(theorems.verify(["one"], seed)).error for seed in (3, 4)]
    failed = sum(error > 0.5 for seed in (3, 4) for error in (result.error for result in theorems.verify((), seed)))
    assert cli.main(["verify", "--seed", "3", "4"]) == (failed > 0)
    said = capsys.readouterr()
    assert [line.split(" s  ")[1] for line in said.out.splitlines()[:-1]] == [
        f"{name}, seed {seed}: 1 = 1 [here]" for seed in (3, 4) for name in ("one", "two")]
    assert f"{4 - failed} of 4 hold" in said.out and "/4 " in said.err
    cli.main(["verify", "one", "--seed", "3", "4", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [row["seed"] for row in found] == [3, 4] and [row["error"] for row in found] == expected


def test_list_names_everything_with_its_file(capsys, monkeypatch):
    assert cli.main(["list"]) == 0
    said = capsys.readouterr().out
    for name in [*VARIANTS, *recipes.RECIPES, *theorems.THEOREMS, "quick", "paper", "HYLA + deep value network"]:
        assert name in said
    assert any(line.startswith("hyla_deep ") and line.endswith(" ablations.py") for line in said.splitlines())
    assert cli.main(["list", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"variants", "tasks", "recipes", "theorems", "checked"}
    assert "layers/MultiHead hyla;" in said and "models/" in said
    rng, known = np.random.default_rng(0), {row["name"] for row in document["checked"]}
    assert known == {"linear_state", *(x.name for x in CASES if not isinstance(x.forward(x.make(rng))[0], tuple))}
    for name, kind in recipes.RECIPES.items():
        scales = [f"{row['scale']} {row['steps']}" for row in document["recipes"] if row["name"] == name]
        assert [each.split()[0] for each in scales] == list(kind.SCALES) and f" {'; '.join(scales)} " in said
    monkeypatch.setitem(LANGUAGES, "parity", LANGUAGES["parity"]._replace(source="-"))     # of one's own
    papers = {row[0]: row[1] for row in listing.sections()["tasks"]}
    assert (papers["parity"], papers["d2"]) == ("-", "Chi et al. 2023, table 1")
    for rows in document.values():
        assert all((ROOT / row["file"]).exists() for row in rows)


def test_list_says_where_a_recipe_of_ones_own_is_defined(capsys, monkeypatch):
    own = type("Own", (recipes.RECIPES["fuzzy_logic"],), {"TASK": "own", "__module__": __name__})
    monkeypatch.setitem(recipes.RECIPES, "own", own)
    assert cli.main(["list"]) == 0
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [words[-1] for words in said if words[:1] == ["own"]] == [__file__, __file__]
    assert ["fuzzy_logic.py"] == sorted({words[-1] for words in said if words[:1] == ["fuzzy_logic"]})


@pytest.mark.parametrize("words, status", [([], 2), (["--help"], 0), (["--version"], 0)])
def test_help_names_the_commands(words, status, capsys):
    assert cli.main(words) == status
    assert "refattn train" in capsys.readouterr().out or words == ["--version"]


@pytest.mark.parametrize("command", [*cli.COMMANDS, *(f"train {task}" for task in recipes.RECIPES)])
@pytest.mark.parametrize("width", [80, 120])
def test_every_help_fits_the_terminal(command, width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    with pytest.raises(SystemExit) as caught:
        cli.main([*command.split(), "--help"])
    said = capsys.readouterr().out
    assert caught.value.code == 0 and "--" in said
    assert max(map(len, said.splitlines())) <= width


def test_there_are_nine_commands_and_the_help_names_them_all(capsys):
    assert cli.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert len(cli.COMMANDS) == 9 and all(f"  refattn {name} " in said for name in cli.COMMANDS)
    assert max(map(len, said.splitlines())) <= 80


def test_the_help_of_train_has_a_line_for_every_task_and_that_of_a_task_its_choices(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80                           # in a pipe, too
    for name in [*recipes.RECIPES, *recipes.SHORT]:
        assert sum(line.split()[:1] == [name] for line in said.splitlines()) == 1, name
    with pytest.raises(SystemExit):
        cli.main(["train", "fuzzy_logic", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "one of released, text, none" in said and f"one of {', '.join(VARIANTS)}" in said


@pytest.mark.parametrize("task", ["esbn", "rmts", "parity", "triangles", "fuzzy_logic"])
def test_the_defaults_in_the_help_of_a_task_are_those_of_its_runs(task, capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", task, "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(rf"--steps INT [^(]*of training[^(]* \(default: {recipe(task).steps}\) --batch", said)
    if task == "rmts":
        assert "(default: rmts)" in said
    assert ("--schedule-length" in said) == (task == "fuzzy_logic")        # elsewhere there is nothing to choose


WIDE = ["list", "verify hyla_equals", "reproduce", "reproduce --all", "reproduce claims", "reproduce claims --all",
        "reproduce table-a1-logic", "reproduce table-6 --all", "reproduce table-3 --all"]


def test_numbers_stand_to_the_right_and_words_to_the_left(monkeypatch, capsys):
    def claims(*words):
        assert cli.main(["reproduce", "claims", "--row", "Applying the latent code twice", "H, eq. 2-5", *words]) == 0
        return capsys.readouterr().out.splitlines()
    assert "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |" in claims("--format", "markdown")
    monkeypatch.setenv("COLUMNS", "110")
    heading, exact, number = (next(line for line in claims() if word in line)
                              for word in ("source", "H, eq. 2-5", "+0.131"))
    assert heading.index("verdict") == exact.index("holds") and heading.index("source") == exact.index("H, eq.")
    assert heading.index("effect") + len("effect") == number.index("+0.131") + len("+0.131")


def test_no_number_is_broken_however_narrow_the_terminal_is():
    rows = [["attention", "held-out", "unseen terms R²", "minutes"], ["softmax", "-0.277 ± 0.078", "0.124", "0.3"]]
    said = layout.columns(rows, right={1, 2, 3}, limit=16)
    assert said.splitlines() == ["softmax", "  held-out:", "    -0.277", "    ± 0.078", "  unseen terms",
                                 "    R²: 0.124", "  minutes: 0.3"]
    assert layout.columns(rows, right={1, 2, 3}, limit=60).splitlines()[2].split() == [*" ".join(rows[1]).split()]


@pytest.mark.parametrize("words", WIDE)
def test_tables_fit_the_terminal_and_a_pipe_gets_whole_lines(words, capsys, monkeypatch):
    for width in 80, 120:                                   # at 80 some stand below one another
        monkeypatch.setenv("COLUMNS", str(width))
        assert cli.main(words.split()) == 0
        narrow = capsys.readouterr().out
        assert max(map(len, narrow.splitlines())) <= width
    monkeypatch.delenv("COLUMNS")
    assert cli.main(words.split()) == 0
    whole = capsys.readouterr().out
    assert len(whole.splitlines()) <= len(narrow.splitlines())
    if not words.startswith("verify"):                      # which says how long each check took
        assert sorted("".join(narrow.split()).replace("-", "")) == sorted("".join(whole.split()).replace("-", ""))
    monkeypatch.setenv("COLUMNS", "20")
    assert cli.main([*words.split(), "--json"]) == 0
    json.loads(capsys.readouterr().out)


def run(*words, **options):
    return subprocess.Popen([sys.executable, "-m", "refattn", *map(str, words)], env=ENVIRONMENT, cwd=ROOT, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def test_the_program_ends_with_its_status_and_no_traceback():
    process = run("train", "--steps", "none")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2 and out == "" and err.count("\n") == 1


@pytest.mark.parametrize("words", ["--help", "list", "reproduce"])
def test_a_reader_that_leaves_early_is_no_error(words):
    """The pipe is closed before anything is read, as by `| head -0`."""
    process = run(*words.split())
    process.stdout.close()
    assert process.wait(60) == 141 and process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no file that is always full")
def test_output_that_cannot_be_written_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "refattn", "list"], env=ENVIRONMENT, cwd=ROOT, stdout=full,
                              stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "refattn list: [Errno 28] No space left on device\n")


def test_closed_streams_are_written_to_by_nobody(tmp_path):
    """As after `>&- 2>&-`: the run is trained, where nothing can be printed."""
    code = ("import sys; from refattn import cli; sys.stdout = sys.stderr = None; "
            f"sys.__stdout__.write(str(cli.main({['train', *FLAGS, '--out', str(tmp_path)]})))")
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0", "") and list(tmp_path.glob("*/result.json"))


@pytest.mark.skipif(os.name == "nt", reason="no shell that closes a stream")
@pytest.mark.parametrize("closed", [True, False])
def test_runs_side_by_side_go_on_without_standard_error(closed, tmp_path):
    """As after `2>&-`, or where its reader leaves: progress is lost, no run, and no worker of a run."""
    reading, writing = os.pipe()
    os.close(reading)
    words = ["-m", "refattn", "train", *FLAGS, *"--attention softmax --seed 0 1 2 --shards 2 --out".split()]
    done = subprocess.run(["sh", "-c", '"$@"' + " 2>&-" * closed, "sh", sys.executable, *words, str(tmp_path)],
                          env=ENVIRONMENT, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=writing)
    os.close(writing)
    assert done.returncode == 0 and "seeds 0, 1, 2" in done.stdout and len(list(tmp_path.glob("*/result.json"))) == 3


def test_help_imports_no_numerics():
    code = "import sys, refattn.cli; refattn.cli.main(['--help']); sys.exit('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, cwd=ROOT, stdout=subprocess.DEVNULL)
    assert done.returncode == 0


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks the C library of GNU")
def test_help_is_words_where_python_leaves_docstrings_out():
    done = subprocess.run([sys.executable, "-OO", "-m", "refattn", "train", "--help"], env=ENVIRONMENT, cwd=ROOT,
                          stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0 and "fuzzy_logic" in done.stdout and "seed: int" not in done.stdout


def test_freed_memory_is_kept_for_the_process():
    """Arrays of 1 MiB, one after the other: one behind the first needs next to none of 256 new pages.

    Below 4 MiB NumPy asks for no huge pages, of which there are so few that none would seem to be new.
    """
    code = ("import numpy as np; from resource import RUSAGE_SELF, getrusage\n"
            "from refattn.xp import keep_freed_memory\n"
            "print(keep_freed_memory())\n"
            "for _ in range(4):\n"
            "    before = getrusage(RUSAGE_SELF).ru_minflt; np.ones(1 << 17)\n"
            "    print(getrusage(RUSAGE_SELF).ru_minflt - before)")
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    taken, _, *faults = done.stdout.split()
    assert taken == "True" and min(map(int, faults)) < 100


@pytest.mark.skipif(os.name == "nt", reason="no groups of processes here")
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize("seeds, whole_group", [([0], False), ([0, 1], False), ([0, 1], True)],
                         ids=["one run", "the parent of two runs", "the terminal of two runs"])
def test_ctrl_c_and_sigterm_end_with_130_and_say_how_to_resume(seeds, whole_group, sign, tmp_path):
    flags = ["fuzzy_logic", "--attention", "hyla", *FLAGS, "--steps", "300000", "--seed", *seeds]
    process = run("train", *flags, "--out", tmp_path, start_new_session=True)
    deadline = time.monotonic() + 60
    while not all(runs.lines(tmp_path / f"hyla-seed{seed}") for seed in seeds) and time.monotonic() < deadline:
        time.sleep(0.02)
    (os.killpg if whole_group else os.kill)(process.pid, sign)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out == "" and "Traceback" not in err
    assert f"checkpoints are in {tmp_path}, go on with: refattn train --resume {tmp_path}" in err.splitlines()[-1]
    for seed in seeds:
        settings = runs.read_recipe(tmp_path / f"hyla-seed{seed}")
        step = runs.load_checkpoint(tmp_path / f"hyla-seed{seed}", settings, settings.build().parameters())[1]["step"]
        assert 0 < step < 300_000


@pytest.mark.skipif(os.name == "nt", reason="no SIGTERM here")
def test_sigterm_ends_the_command_that_the_guide_gives_for_a_recipe_of_ones_own(tmp_path):
    guide = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    code, = re.findall(r"```python\n(.*?RECIPES\[\"steeper\"\] = Steeper\n)", guide, re.S)
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    begun, = re.findall(r'^python -c "(.*)" show run$', guide, re.M)
    words = map(str, ["train", "steeper", "--attention", "hyla", *FLAGS, "--steps", "3000", "--out", "run"])
    process = subprocess.Popen([sys.executable, "-c", begun, *words], env=ENVIRONMENT, cwd=tmp_path, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: runs.lines(tmp_path / "run" / "hyla-seed0"), process)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out == "" and "go on with: refattn train --resume run" in err.splitlines()[-1]
    shown = subprocess.run([sys.executable, "-c", begun, "show", "run"], env=ENVIRONMENT, cwd=tmp_path, text=True,
                           stdout=subprocess.PIPE)
    assert shown.returncode == 0 and "steeper: 3,000 steps" in shown.stdout


@pytest.mark.skipif(os.name == "nt", reason="no SIGTERM here")
@pytest.mark.parametrize("seeds, workers", [([0], 1), ([0], 2), ([0, 1], 1)])
def test_sigterm_ends_a_command_that_ignores_ctrl_c(seeds, workers, tmp_path):
    """As one that a script has begun with `&`: a Ctrl-C does not reach it."""
    words = ["fuzzy_logic", "--attention", "hyla", *FLAGS, "--steps", "3000", "--shards", "2", "--workers", workers,
             "--seed", *seeds, "--out", tmp_path]
    process = run("train", *words, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    for sign in signal.SIGINT, signal.SIGTERM:
        steps = len(runs.lines(tmp_path / "hyla-seed0"))
        wait_for(lambda steps=steps: len(runs.lines(tmp_path / "hyla-seed0")) > steps, process)
        process.send_signal(sign)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out == "" and "Traceback" not in err
    assert f"go on with: refattn train --resume {tmp_path}" in err.splitlines()[-1]
    settings = runs.read_recipe(tmp_path / "hyla-seed0")
    state = runs.load_checkpoint(tmp_path / "hyla-seed0", settings, settings.build().parameters())[1]
    assert 0 < state["step"] < 3000


def begun(tmp_path):
    """A comparison whose two runs have made a step, side by side."""
    words = [*FLAGS, "--steps", "300000", "--attention", "hyla", "softmax", "--workers", "1", "--out", tmp_path]
    process = run("train", "fuzzy_logic", *words, start_new_session=True)
    wait_for(lambda: len([x for x in tmp_path.glob("*") if runs.lines(x)]) == 2, process)
    return process


@linux
@pytest.mark.parametrize("whole_group", [False, True], ids=["the parent", "the group"])
def test_signals_in_a_row_are_one(whole_group, tmp_path):
    """A key that is held down, or who tells a process and its group: nothing hangs, says more, or is left behind."""
    process = begun(tmp_path)
    workers = children(process.pid)
    for _ in range(12):
        (os.killpg if whole_group else os.kill)(process.pid, signal.SIGTERM)
        time.sleep(0.03)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out == "" and "Traceback" not in err and "leaked" not in err
    assert f"go on with: refattn train --resume {tmp_path}" in err.splitlines()[-1]
    assert not list(tmp_path.glob("stop-*")) and len(workers) > 1
    wait_for(lambda: not any(map(is_there, workers)))       # multiprocessing's own helper ends after its parent
    for path in tmp_path.iterdir():
        settings = runs.read_recipe(path)
        state = runs.load_checkpoint(path, settings, settings.build().parameters())[1]
        assert state["step"] >= runs.lines(path)[-1]["step"] > 0


@linux
def test_a_later_signal_ends_workers_that_do_not_answer(tmp_path):
    process = begun(tmp_path)
    workers = children(process.pid)
    for n in workers:
        if "spawn_main" in Path(f"/proc/{n}/cmdline").read_text():      # not multiprocessing's own helper
            os.kill(n, signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    time.sleep(1.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "2 runs stopped; checkpoints are in" in err
    assert "Traceback" not in err and "leaked" not in err
    assert not list(tmp_path.glob("stop-*"))


def test_a_split_without_combinations_is_refused_before_training(tmp_path, capsys):
    assert cli.main(["train", "--held-out", "0", "--out", str(tmp_path / "runs")]) == 2
    said = capsys.readouterr().err
    assert "--held-out is 0.0, which leaves no combination in split 'held_out'" in said and not list(tmp_path.iterdir())


def test_an_option_of_several_values_may_be_given_again():
    parser = training.train_parser(recipes.RECIPES["fuzzy_logic"], {})
    found = parser.parse(["--attention", "hyla", "--seed", "0", "--attention", "softmax", "linear", "--seed", "1"])
    assert found == {"compared": ["hyla", "softmax", "linear"], "seed": [0, 1]}
