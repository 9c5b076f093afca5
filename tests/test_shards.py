"""Shards: their sum is the batch's gradient; the bits depend on their number, and never on who computed which."""

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

import refattn
from refattn import cli
from refattn.recipes import recipe
from refattn.train import WorkerLost, compare, fit, groups, runs
from refattn.train.record import State
from refattn.train.shards import Shards, dropouts_of
from tests import strict_cupy
from tests.processes import children, is_there, linux
from tests.tiny import FLAGS, final, tiny

ROOT = Path(refattn.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "MPLCONFIGDIR": os.environ.get("MPLCONFIGDIR", "/tmp")}
forks = pytest.mark.skipif(not hasattr(os, "fork") or sys.platform == "darwin", reason="does not fork here")

SHORT = {"steps": 6, "batch": 10, "evaluation": 8, "probe": 8, "log_every": 3, "evaluate_every": 3,
         "checkpoint_every": 3, "warmup": 0}
LOGIC = {"length": 8, "width": 8, "heads": 2, "hidden": 8}
WORDS = {"width": 8, "heads": 2, "train_length": 9, "max_length": 14, "far": 20, "stride": 3}
VISION = {"width": 8, "heads": 2, "searches": 2, "retrievals": 2, "selector_width": 3, "dropout": 0.2}
TEXT = {"width": 16, "heads": 2, "length": 12, "layers": 2, "dropout": 0.2, "attention_dropout": 0.2}
ALL = {                        # every recipe, every way in which a batch, a loss or dropout is made
    **{f"fuzzy logic, {x}": ("fuzzy_logic", {**LOGIC, "attention": x}) for x in ("softmax", "linear", "hyla")},
    "experts": ("fuzzy_logic", {**LOGIC, "experts": 3}),
    "sraven": ("sraven", {"width": 8, "heads": 2, "hidden": 8, "ceiling": False}),
    "contextual retrieval": ("contextual_retrieval", {"width": 8}),
    **{x: ("regular_languages", {**WORDS, "attention": x}) for x in ("sliding_dilated", "rnn", "transformer_xl")},
    "per position": ("regular_languages", {**WORDS, "language": "d2", "protocol": "per_position", "strings": 20}),
    "sort of clevr": ("sort_of_clevr", {**VISION, "scenes": 20}),
    "triangles": ("triangles", {**VISION, "size": 16}),
    "multi-task images": ("multitask_images", {**VISION, "third": "gratings"}),      # digits need scikit-learn
    **{x: ("esbn", {"problem": x, "width": 8, "heads": 2, "batch": 5}) for x in ("rmts", "identity_rules")},
    **{f"scan, {x}": ("scan", {"width": 8, "heads": 2, "hidden": 8, "dropout": 0.2, "attention": x})
       for x in ("softmax", "compositional")},
    "text": ("text", TEXT), "text, regular_gpt": ("text", {**TEXT, "attention": "regular_gpt", "chunk": 4}),
}


def made(name, **changes):
    task, fields = ALL[name]
    return recipe(task, "quick", **{**SHORT, **fields, **changes})


def gradients(chosen):
    """[(loss, gradient), ...] of the updates of a step, in one process."""
    model = chosen.build()
    shards = Shards(chosen, model, State(chosen, model.parameters(), np).flat, groups.Alone())
    return [(float(loss), gradient.copy()) for loss, gradient in (
        shards.gradient(update, part) for update, part in enumerate(chosen.turns(chosen.draw(0))))]


@pytest.mark.parametrize("name", ALL)
def test_the_shards_sum_up_to_the_batch(name):
    """Which needs the right weights, each sample's own dropout, and no shard of more than its samples."""
    for many in (3, 13):                                # of unequal sizes; more than there are samples
        for (loss, gradient), (other, sum_of_shards) in zip(gradients(made(name)), gradients(made(name, shards=many)),
                                                            strict=True):
            assert other == pytest.approx(loss, rel=1e-5)
            assert np.abs(sum_of_shards - gradient).max() < 1e-4 * np.abs(gradient).max()


@pytest.mark.parametrize("shards", [1, 2])
def test_a_batch_that_weighs_nothing_is_refused_by_any_number_of_shards(shards):
    """Several took it for a gradient of 0, one for NaN."""
    chosen = made("text", shards=shards)
    batch = chosen.draw(0)
    model = chosen.build()
    whole = Shards(chosen, model, State(chosen, model.parameters(), np).flat, groups.Alone())
    with pytest.raises(ValueError, match="batch 0 has no terms; allowed: at least one that weighs something"):
        whole.gradient(0, batch._replace(weight=np.zeros_like(batch.weight)))


def test_dropout_is_sliced_by_samples():
    drawn = {"a": [np.arange(12).reshape(6, 2), None], "b": (np.zeros((1, 3)),), "c": {"d": np.arange(3)}}
    found = dropouts_of(drawn, slice(1, 3), 3)
    np.testing.assert_array_equal(found["a"][0], np.arange(4, 12).reshape(4, 2))         # two rows for each sample
    assert found["a"][1] is None and found["b"][0] is drawn["b"][0] and found["c"]["d"].tolist() == [1, 2]


def test_one_shard_is_no_shard_and_several_need_one_row_more():
    model = tiny().build()
    flat = State(tiny(), model.parameters(), np).flat
    one, many = (Shards(tiny(shards=n), model, flat, groups.Alone()) for n in (1, 4))
    assert one.total is one.rows[0][0] and len(one.rows) == len(many.rows) == 1


def test_one_process_holds_the_activations_of_one_shard(monkeypatch):
    """Those of the shard before lay beside them until the next forward was done: twice the memory."""
    chosen, held = made("fuzzy logic, softmax", shards=3), []
    model = chosen.build()
    forward = type(model).forward

    def watched(self, *arguments, **options):
        assert not [x for x in held if x() is not None]
        y, saved = forward(self, *arguments, **options)
        held.extend(map(weakref.ref, (y, saved.blocks[0].attention.attention.code)))
        return y, saved
    monkeypatch.setattr(type(model), "forward", watched)
    gradients(chosen)
    assert len(held) == 6


def test_shards_on_a_device_are_those_of_the_host():
    chosen = tiny(shards=3, attention_dropout=0.1)
    model, found = chosen.build(), []
    for module in np, strict_cupy:
        shards = Shards(chosen, model, State(chosen, model.parameters(), module).flat, groups.Alone())
        shards.gradient(0, chosen.draw(0))
        with strict_cupy.forbid(h2d=False):
            found.append(shards.gradient(1, chosen.draw(1))[1])
    np.testing.assert_allclose(found[1].get(), found[0], atol=1e-5 * np.abs(found[0]).max())


# --- processes -------------------------------------------------------------------------------------------------------

# A process of its own, without the threads of pytest: trains with so many workers, the helpers slowed at random, and
# stops and goes on with other numbers of workers.  Prints the numbers of workers and how long each process computed.
TRAIN = """
import os, sys, time
import numpy as np
from refattn import train
from refattn.train import fit, groups, shards
from tests import test_shards, test_train

name, steps, out, *workers = sys.argv[1:]
chosen = test_shards.made(name, shards=4, steps=int(steps), checkpoint_every=1)
compute, rng, stop = shards.Shards.compute, np.random.default_rng(), train.Stop

def slowed(self, update, batch):
    for row in compute(self, update, batch):
        time.sleep(rng.choice([0, 0.003]) if os.getpid() % 2 else 0)
        yield row
shards.Shards.compute = slowed
train._finish = lambda *_, **more: print(more["workers"]) or {}
for n, count in enumerate(workers):
    last = n == len(workers) - 1
    train.Stop = (lambda *_: stop()) if last else (lambda *_: test_train.StopAt(int(steps) // len(workers)))
    fit(chosen, out, resume=True, progress=False, workers=int(count))
"""


def run(code, *words, **more):
    return subprocess.run([sys.executable, "-c", code, *map(str, words)], env=ENVIRONMENT, cwd=ROOT, text=True,
                          capture_output=True, timeout=300, **more)


def same_whoever_works(name, steps, tmp_path):
    for n, workers in enumerate(([1], [2], [3, 1, 2])):
        done = run(TRAIN, name, steps, tmp_path / f"{n}", *workers)
        assert (done.returncode, done.stdout) == (0, f"{workers[-1]}\n"), done.stderr
    assert final(tmp_path / "0") == final(tmp_path / "1") == final(tmp_path / "2")


@forks
@pytest.mark.parametrize("name", ["fuzzy logic, hyla", "sort of clevr"])
def test_the_number_of_workers_changes_no_bit(name, tmp_path):
    same_whoever_works(name, 6, tmp_path)


@forks
@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_the_number_of_workers_changes_no_bit_of_any_recipe(name, tmp_path):
    same_whoever_works(name, 200, tmp_path)


BUSY = """
import sys, time
from refattn.train import fit, groups, runs
from tests.tiny import tiny
chosen = tiny(shards=4, steps=120, batch=128, width=64, hidden=128, length=32, heads=8, probe=1, evaluation=1)
started = []
at_work = groups.Forked.at_work
groups.Forked.at_work = lambda self, shards: started.append(self) or at_work(self, shards)
begun = time.process_time()
fit(chosen, sys.argv[1], progress=False, workers=2)
leader, = (time.process_time() - begun,)
helper, = started[0].seconds.values()
print(leader, helper, runs.result(sys.argv[1])["cpu_seconds"])
"""


@forks
def test_both_processes_compute_and_their_time_is_counted(tmp_path):
    done = run(BUSY, tmp_path / "run")
    leader, helper, said = map(float, done.stdout.split())
    assert helper > 0.5 * leader > 0.1, done.stderr         # the leader also updates, logs and saves
    assert helper + 0.3 * leader < said < 1.1 * (leader + helper)           # without what comes before the first step


class Training:
    """`refattn train --workers 3` in a process of its own."""

    def __init__(self, out, *words, steps=20_000):
        flags = [*FLAGS, "--attention", "hyla", "--steps", steps, "--warmup", 0, "--shards", 4, "--checkpoint-every", 1]
        self.path, self.log = out / "hyla-seed0", out.parent / f"{out.name}.log"
        words = words or ("fuzzy_logic", *flags, "--out", out)
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "refattn", "train", *map(str, words), "--workers",
                                             "3"], env=ENVIRONMENT, cwd=ROOT, stdout=log, stderr=log)

    def helpers(self):
        """Its two helpers, once it has saved something."""
        deadline = time.monotonic() + 60
        while len(found := children(self.process.pid)) < 2 or not runs.lines(self.path):
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.01)
        return found

    def ended(self, helpers, seconds=30):
        """Its exit status, once nobody is left."""
        status = self.process.wait(seconds)
        deadline = time.monotonic() + 10
        while any(map(is_there, helpers)):
            assert time.monotonic() < deadline, "a helper is left behind"
            time.sleep(0.01)
        return status




@forks
@linux
def test_a_worker_that_dies_ends_the_run_with_its_last_checkpoint(tmp_path):
    trained = Training(tmp_path / "out")
    helpers = trained.helpers()
    os.kill(helpers[1], signal.SIGKILL)
    assert trained.ended(helpers) == 1
    last = trained.log.read_text().splitlines()[-1].rpartition("\r")[2]
    assert "hyla-seed0, step" in last and "one of its workers died; the checkpoint of step" in last
    assert last.endswith(f"go on with: refattn train --resume {tmp_path / 'out'}")
    assert refattn.load(trained.path)[0].shards == 4


@forks
@linux
@pytest.mark.parametrize("sign, status", [("SIGINT", 130), ("SIGTERM", 130), ("SIGKILL", -9)])
def test_nobody_is_left_when_the_leader_is_told_to_stop(sign, status, tmp_path):
    trained = Training(tmp_path / "out")
    helpers = trained.helpers()
    for process in (*helpers, trained.process.pid) if sign == "SIGINT" else (trained.process.pid,):
        os.kill(process, getattr(signal, sign))             # a terminal sends Ctrl-C to all of them
    assert trained.ended(helpers) == status
    refattn.load(trained.path)


@forks
def test_ctrl_c_in_the_moment_of_a_fork_is_the_leaders_alone(tmp_path):
    """A helper in which it was raised before it knew of itself went on as a second leader."""
    code = ("import os, signal\nfrom refattn.train import fit\nfrom tests.tiny import tiny\nfork = os.fork\n"
            "def forked():\n    if not (process := fork()):\n        os.kill(os.getpid(), signal.SIGINT)\n"
            "    return process\n"
            "os.fork = forked\nassert fit(tiny(shards=2), progress=False, workers=2).finished\nprint('done')")
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def test_an_exception_of_the_leader_leaves_nobody(monkeypatch):
    monkeypatch.setattr(groups.threading, "active_count", lambda: 1)
    seen, before = [], children(os.getpid()) if Path("/proc/self/task").exists() else []

    class Failing(type(tiny())):
        def rate_at(self, step):
            if not begun:                                   # a recipe asks once when it is made
                return self.rate
            seen.extend(children(os.getpid()) if Path("/proc/self/task").exists() else [])
            raise OSError("no rate")
    begun = False
    failing = Failing(**tiny(shards=2).__dict__)
    begun = True
    with pytest.raises(OSError, match="no rate"):
        fit(failing, progress=False, workers=2)
    mine = set(seen) - set(before)
    assert mine and not any(map(is_there, mine))


@forks
@pytest.mark.kill
def test_fifty_kills_of_leader_and_workers_lose_nothing(tmp_path):
    """Leader, one helper, all helpers or everybody, at random moments, also while a checkpoint is written."""
    rng, kills, out = np.random.default_rng(3), 0, tmp_path / "out"
    settings = tiny(steps=20_000, shards=4, checkpoint_every=1, warmup=0)
    victims = {"leader": 0, "one helper": 0, "all helpers": 0, "everybody": 0, "in a checkpoint": 0}
    while kills < 50:
        begun, saved = time.time(), out / "hyla-seed0" / "checkpoint.npz"
        trained = Training(out, *(["--resume", out] if trained_before(out) else []))
        helpers = trained.helpers()
        while not saved.exists() or saved.stat().st_mtime < begun:          # each of them gets on
            assert trained.process.poll() is None, trained.log.read_text()
            time.sleep(0.005)
        leader, kind = trained.process.pid, list(victims)[kills % len(victims)]
        time.sleep(rng.uniform(0, 0.3))
        if kind == "in a checkpoint":
            deadline = time.monotonic() + 20
            while not list(trained.path.glob("checkpoint.npz.*.tmp")) and time.monotonic() < deadline:
                pass
        for process in {"leader": [leader], "in a checkpoint": [leader], "one helper": helpers[:1],
                        "all helpers": helpers, "everybody": [leader, *helpers]}[kind]:
            os.kill(process, signal.SIGKILL)
        assert trained.ended(helpers) == (1 if "helper" in kind else -9), trained.log.read_text()
        victims[kind] += 1
        kills += 1
    assert set(victims.values()) == {10}
    arrays, meta = runs.load_checkpoint(trained.path, settings, settings.build().parameters())
    whole = tmp_path / "whole"
    from tests import test_train
    stop_at = meta["step"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refattn.train, "Stop", lambda *_: test_train.StopAt(stop_at))
        fit(settings, whole, progress=False)
    expected, _ = runs.load_checkpoint(whole, settings, settings.build().parameters())
    assert stop_at > 40 and all(arrays[name].tobytes() == expected[name].tobytes() for name in expected)


def trained_before(out) -> bool:
    return bool(list(out.glob("*/recipe.json")))


# --- who works, and bad input ----------------------------------------------------------------------------------------

@forks
def test_workers_are_as_many_as_cores_and_shards_allow(monkeypatch):
    monkeypatch.setattr(groups.threading, "active_count", lambda: 1)
    monkeypatch.setattr(groups, "cores", lambda: 3)
    sizes = {(workers, shards): groups.group(workers, shards).size for workers in (None, 1, 2, 8)
             for shards in (1, 2, 4)}
    assert sizes == {(None, 1): 1, (None, 2): 2, (None, 4): 3, (1, 1): 1, (1, 2): 1, (1, 4): 1, (2, 1): 1, (2, 2): 2,
                     (2, 4): 2, (8, 1): 1, (8, 2): 2, (8, 4): 4}
    assert str(groups.group(2, 1)) == "1 worker (more would need more shards)"
    assert str(groups.group(None, 4)) == "3 workers" and str(groups.group(1, 4)) == "1 worker"
    forked = groups.group(None, 4)
    forked.allocate(4, 5, np, np.float32)
    shards = []
    for forked.rank in range(3):
        shards.append([shard for shard, _ in forked.mine])
    assert shards == [[0], [1], [2, 3]]


def test_beside_threads_or_without_fork_one_works_and_says_why(monkeypatch):
    done, waiting = threading.Event(), threading.Event()
    beside = threading.Thread(target=lambda: (waiting.set(), done.wait()))
    beside.start()
    waiting.wait()
    assert str(groups.group(2, 2)) == "1 worker (this process has threads, and could not fork safely)"
    done.set()
    beside.join()
    monkeypatch.delattr(os, "fork", raising=False)
    assert str(groups.group(2, 2)) == "1 worker (this system does not fork safely)"


def test_physical_cores_count_once(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(groups.Path, "read_text", lambda self, **_: {"0": "0,2", "2": "0,2"}.get(
        self.parts[-3].removeprefix("cpu"), "1,3"))
    assert groups.cores() == 2

    def missing(self, **_):
        raise FileNotFoundError
    monkeypatch.setattr(groups.Path, "read_text", missing)
    assert groups.cores() == 4
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)             # as on a Mac
    for count, expected in (3, 3), (None, 1):
        monkeypatch.setattr(os, "cpu_count", lambda count=count: count)
        assert groups.cores() == expected


def test_comparisons_use_idle_cores():
    assert [compare.shares(n, 2) for n in (1, 2, 3, 6)] == [[2], [1, 1], [1, 1, 2], [1] * 6]
    assert [compare.shares(n, 1) for n in (1, 3)] == [[1], [1, 1, 1]]
    assert compare.shares(3, 8) == [2, 2, 2] and compare.shares(10, 8) == [1] * 8 + [4, 4]


@forks
def test_runs_of_a_comparison_fork_their_workers(tmp_path, capsys):
    chosen = [tiny(shards=2, seed=seed) for seed in range(2)]
    outcomes = compare.compare(chosen, tmp_path / "out", workers=2)
    assert [outcome["workers"] for outcome in outcomes] == [2, 2]
    assert "at a time, each by 2 workers" in capsys.readouterr().err
    for one in chosen:
        fit(one, tmp_path / "whole" / one.name, progress=False)
        assert final(tmp_path / "out" / one.name) == final(tmp_path / "whole" / one.name)


@pytest.mark.parametrize("words, expected", [
    (["--workers", "0"], "--workers is 0; allowed: whole numbers of at least 1"),
    (["--workers", "-3"], "--workers is -3; allowed: whole numbers of at least 1"),
    (["--workers", "two"], "--workers is 'two'; allowed: whole numbers"),
    (["--shards", "0"], "--shards is 0; allowed: whole numbers from 1 to 4,096"),
    (["--shards", "5000"], "--shards is 5000; allowed: whole numbers from 1 to 4,096")])
def test_bad_input_has_one_line(words, expected, capsys, tmp_path):
    assert cli.main(["train", *words, "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f"refattn train: {expected}\n"


@pytest.mark.parametrize("workers", [0, -1, True, 1.5, "2"])
def test_bad_numbers_of_workers_are_refused(workers):
    with pytest.raises(ValueError, match="workers is .*; allowed: whole numbers of at least 1"):
        fit(tiny(), workers=workers, progress=False)
    with pytest.raises(ValueError, match="workers is 2; allowed with device gpu: 1"):
        groups.group(2, 4, "gpu")


def test_another_number_of_shards_is_another_recipe(tmp_path):
    fit(tiny(shards=2), tmp_path / "run", progress=False)
    with pytest.raises(ValueError, match="shards is 4, but a resumed run keeps its recipe"):
        fit(tiny(shards=4), tmp_path / "run", resume=True, progress=False)


def test_a_lost_worker_is_an_error_of_executors():
    assert issubclass(WorkerLost, groups.BrokenExecutor)
