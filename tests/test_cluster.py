"""Runs on a real Dask cluster of two worker processes on this machine, one of which is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import refattn
from refattn import cli
from refattn.train import fit, runs
from tests.processes import wait_for
from tests.tiny import final, tiny

pytest.importorskip("distributed")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")]
ROOT = Path(refattn.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "5"}
SETTINGS = {"steps": 500, "checkpoint_every": 25, "evaluate_every": 40}
SEEDS = range(4)

CLIENT = f"""
import sys
from refattn.train.compare import compare
from refattn.train.executors import executor
from tests.tiny import tiny

with executor(sys.argv[1]) as cluster:
    found = compare([tiny(seed=seed, **{SETTINGS}) for seed in {list(SEEDS)}], sys.argv[2], executor=cluster,
                    progress=False)
sys.exit(not all(outcome["finished"] for outcome in found))
"""


@pytest.fixture
def cluster(tmp_path):
    """(address, worker processes) of a scheduler and two workers without a nanny that would bring them back."""
    started, file = [], tmp_path / "scheduler.json"

    def start(kind, *words):
        with open(tmp_path / f"log{len(started)}", "w") as log:
            started.append(subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{kind}", "--scheduler-file", file, "--no-dashboard",
                 "--host", "127.0.0.1", *words], env=ENVIRONMENT, cwd=tmp_path, stdout=log, stderr=log))
        return started[-1]
    try:
        start("scheduler", "--port", "0")
        address = wait_for(lambda: file.exists() and runs.read_json(file).get("address"))
        workers = [start("worker", "--no-nanny", "--nthreads", "1") for _ in range(2)]
        yield address.replace("tcp://", "dask://"), workers
    finally:
        for process in started:
            process.kill()
            process.wait()


def marks(path):
    """What changes when a file is written again."""
    found = (path / "result.json").stat()
    return found.st_ino, found.st_mtime_ns


def test_a_killed_worker_loses_and_repeats_no_run(cluster, tmp_path):
    address, workers = cluster
    out = tmp_path / "out"
    with open(tmp_path / "said", "w") as said:
        client = subprocess.Popen([sys.executable, "-c", CLIENT, address, str(out)], env=ENVIRONMENT, cwd=ROOT,
                                  stdout=said, stderr=said)
    try:
        paths = [out / f"hyla-seed{seed}" for seed in SEEDS]
        done = wait_for(lambda: [path for path in paths if runs.result(path)], client)
        wait_for(lambda: sum(len(runs.lines(path)) > 3 for path in paths) > len(done) + 1, client)
        before = {path: marks(path) for path in paths if runs.result(path)}
        assert len(before) < len(paths)
        workers[0].send_signal(signal.SIGKILL)
        assert client.wait(300) == 0, (tmp_path / "said").read_text()
    finally:
        client.kill()
    assert before == {path: marks(path) for path in before}
    assert workers[1].poll() is None and workers[0].poll() == -signal.SIGKILL
    whole = tmp_path / "whole"
    for seed, path in zip(SEEDS, paths, strict=True):
        fit(tiny(seed=seed, **SETTINGS), whole / path.name, progress=False)
        assert final(path) == final(whole / path.name)
    assert not list(out.glob("stop-*"))


def test_the_command_takes_the_address_of_a_cluster(cluster, tmp_path):
    address, _ = cluster
    words = ["reproduce", "table-6", "--row", "4 retrievals, width 64: comp", "--scale", "quick", "--steps", "20",
             "--seed", "0", "--executor", address, "--out", str(tmp_path / "out")]
    done = subprocess.run([sys.executable, "-m", "refattn", *words], env=ENVIRONMENT, cwd=ROOT, capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    row = next(line for line in done.stdout.splitlines() if "compositional" in line)
    assert row.count("(1)") == 2 and "steps 20 (100,000)" in done.stdout


def test_nobody_answers(capsys, tmp_path):
    assert cli.main(["reproduce", "table-6", "--executor", "dask://127.0.0.1:9", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "where no Dask scheduler answers" in said and not (tmp_path / "out").exists()
