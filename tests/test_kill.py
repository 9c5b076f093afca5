"""SIGKILL at any moment, also inside the writing of any file: the run resumes to bitwise the same end."""

import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import refattn
from refattn.train import fit, runs
from tests.tiny import FLAGS, final, tiny

pytestmark = [pytest.mark.kill, pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")]
ROOT = Path(refattn.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "MPLCONFIGDIR": os.environ.get("MPLCONFIGDIR", "/tmp")}

# Trains until the given call of a function that writes, where it kills itself: before the call, inside it (half of the
# bytes written), or right after it.
KILLER = """
import os, signal, sys
import numpy as np
from refattn.train import fit
from tests.tiny import tiny

what, where, at, path = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
calls = 0

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def deadly(module, name):
    function = getattr(module, name)
    def wrapped(*args, **keywords):
        global calls
        calls += 1
        if calls == at and where == "before":
            die()
        if calls == at and where == "inside":
            file = args[0]                                  # np.savez: an open file
            function(*args, **keywords)
            file.flush()
            os.ftruncate(file.fileno(), file.tell() // 2)
            die()
        result = function(*args, **keywords)
        if calls == at:
            die()
        return result
    setattr(module, name, wrapped)

deadly({"replace": os, "fsync": os, "savez": np}[what], what)
fit(tiny(checkpoint_every=1), path, resume=True, progress=False)
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "hyla-seed0"
    fit(tiny(checkpoint_every=1), path, progress=False)
    return path


@pytest.mark.parametrize("what, where, at", [
    ("replace", "before", 1), ("replace", "before", 2), ("replace", "after", 2), ("replace", "before", 3),
    ("replace", "after", 3), ("replace", "before", 17), ("replace", "after", 17), ("replace", "before", 33),
    ("replace", "after", 33), ("replace", "before", 34), ("replace", "after", 34),
    ("fsync", "before", 9), ("fsync", "after", 9), ("fsync", "before", 10), ("fsync", "after", 10),
    ("savez", "inside", 1), ("savez", "inside", 2), ("savez", "inside", 16), ("savez", "inside", 31)])
def test_killed_inside_the_writing_of_a_file(what, where, at, whole, tmp_path):
    path = tmp_path / "hyla-seed0"
    done = subprocess.run([sys.executable, "-c", KILLER, what, where, str(at), str(path)], env=ENVIRONMENT, cwd=ROOT)
    assert done.returncode == -signal.SIGKILL
    if runs.Path(path, "checkpoint.npz").exists():
        refattn.load(path)                                  # whole, whenever it is there
    fit(tiny(checkpoint_every=1), path, resume=True, progress=False)
    assert final(path) == final(whole)
    assert not list(path.glob("*.tmp"))


def command(log, *words):
    """The process of a command line that writes what it says to the file `log`, or to a pipe."""
    with nullcontext(log) if log is subprocess.PIPE else open(log, "w") as file:
        return subprocess.Popen([sys.executable, "-m", "refattn", "train", *map(str, words)], env=ENVIRONMENT,
                                cwd=ROOT, stdout=file, stderr=file)


def resume(log, path):
    assert command(log, "--resume", path).wait(120) == 0, log.read_text()


def test_killed_at_fifty_random_moments(tmp_path):
    """The command is killed again and again, resumed from whatever it left, until it gets to its end; then anew."""
    rng, kills, ends, log = np.random.default_rng(50), 0, 0, tmp_path / "log"
    settings = tiny(steps=600, checkpoint_every=1, evaluate_every=50)
    fit(settings, tmp_path / "whole" / "hyla-seed0", progress=False)
    expected = final(tmp_path / "whole" / "hyla-seed0")
    flags = [*FLAGS, "--steps", 600, "--checkpoint-every", 1, "--evaluate-every", 50, "--warmup", settings.warmup]
    while kills < 50:
        out = tmp_path / f"round{ends}"
        started = bool(list(out.glob("*/recipe.json")))
        anew = ["fuzzy_logic", "--attention", "hyla", *flags, "--out", out]
        process = command(log, *(["--resume", out] if started else anew))
        try:
            assert process.wait(rng.uniform(0.25, 1.4)) == 0, log.read_text()
            assert final(out / "hyla-seed0") == expected
            ends += 1
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
    for path in tmp_path.glob("round*"):
        if list(path.glob("*/recipe.json")):
            resume(log, path)
            assert final(path / "hyla-seed0") == expected


def test_a_killed_comparison_leaves_no_process_behind(tmp_path):
    """Only the parent is killed: its processes notice, save, end, and the comparison resumes whole."""
    recipes = [tiny(steps=2_000), tiny(steps=2_000, seed=1)]
    flags = ["fuzzy_logic", "--attention", "hyla", *FLAGS, "--steps", 2_000, "--seed", 0, 1]
    log = tmp_path / "log"
    process = command(subprocess.PIPE, *flags, "--out", tmp_path)
    deadline = time.monotonic() + 30
    while not all(runs.lines(tmp_path / recipe.name) for recipe in recipes) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.communicate(timeout=60)                         # the pipe ends when the last process that holds it does
    resume(log, tmp_path)
    for recipe in recipes:
        fit(recipe, tmp_path / "whole" / recipe.name, progress=False)
        assert final(tmp_path / recipe.name) == final(tmp_path / "whole" / recipe.name)
