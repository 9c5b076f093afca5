"""Training: the same numbers every time, whatever stops it; and what it says when it must stop."""

import json
import multiprocessing
import os
import re
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import refattn
from refattn import params, recipes, train
from refattn.attention import VARIANTS
from refattn.cli import comparison
from refattn.recipes import recipe
from refattn.reproduce import published
from refattn.train import Interrupted, NonFinite, evaluate, evaluation, fit, groups, pool, record, runs, stop, stream
from refattn.train import compare as compare_module
from refattn.train.compare import compare
from tests import strict_cupy
from tests.tiny import Disturbed, disturbed, final, tiny


def flat(fitted):
    return np.concatenate([x.ravel() for x in leaves(fitted.parameters)])


def leaves(views):
    if isinstance(views, np.ndarray):
        return [views]
    children = views if isinstance(views, tuple) else [child for _, child in views]
    return [leaf for child in children for leaf in leaves(child)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run of the tiny recipe."""
    path = tmp_path_factory.mktemp("whole") / "hyla-seed0"
    return fit(tiny(), path, progress=False), path


# --- random numbers --------------------------------------------------------------------------------------------------

def test_streams_are_functions_of_seed_purpose_and_step():
    drawn = [stream(seed, purpose, step).random() for seed in (0, 1) for purpose in evaluation.PURPOSES
             for step in (0, 1)]
    assert len(set(drawn)) == len(drawn) == 20
    assert evaluation.PURPOSES == {"init": 0, "data": 1, "dropout": 2, "split": 3, "evaluation": 4}
    for words, *given in (("seed is 4294967296; allowed: whole numbers from 0", 2**32, "data"),      # has those of 0
                          ("purpose is 'x'; allowed: init, data", 0, "x"), ("step is -1; allowed", 0, "data", -1)):
        with pytest.raises(ValueError, match=words):
            stream(*given)


@pytest.mark.parametrize("changes", [{}, {"attention": "softmax"}, {"attention": "linear"}, {"read": False},
                                     {"clip": 0.0}, {"attention_dropout": 0.0}])
def test_training_is_repeatable_and_a_directory_changes_nothing(changes, tmp_path):
    one = fit(tiny(**changes), tmp_path / "run", progress=False)
    two = fit(tiny(**changes), progress=False)
    other = fit(tiny(**changes, seed=1), progress=False)
    assert one.finished and one.step == 30
    assert (flat(one) == flat(two)).all() and not (flat(one) == flat(other)).any()
    assert one.metrics == two.metrics


def test_reading_one_position_trains_the_same_model():
    one, two = (fit(tiny(read=read, attention_dropout=0.1), progress=False) for read in (True, False))
    np.testing.assert_allclose(flat(one), flat(two), atol=2e-4)


def test_the_number_of_blas_threads_is_one_whatever_it_was():
    seen, before = [], blas_threads()
    with threadpool_limits(2, "blas"):
        fit(disturbed(lambda step, batch: seen.extend(blas_threads())), progress=False)
    assert set(seen) == ({1} if before else set()) and blas_threads() == before


def test_a_run_that_ends_in_one_thread_leaves_the_others_with_one_of_blas(tmp_path):
    begun, seen = threading.Event(), []

    def long(step, _):
        begun.set()
        if step == 5:                                       # by then the other one has ended
            time.sleep(1)
        seen.extend(blas_threads())
    short = disturbed(lambda *_: begun.wait(30) and None, steps=2, log_every=1, evaluate_every=1, warmup=0)
    with threadpool_limits(2, "blas"), ThreadPoolExecutor(2) as threads:
        before = blas_threads()
        compare([short, disturbed(long, seed=1)], tmp_path, executor=threads, progress=False)
        assert set(seen) == ({1} if before else set()) and blas_threads() == before


def blas_threads() -> list[int]:
    return [x["num_threads"] for x in threadpool_info() if x["user_api"] == "blas"]


# --- stopping and resuming -------------------------------------------------------------------------------------------

class StopAt(stop.Stop):
    """Stops the first time it is asked at or after that many questions."""
    def __init__(self, questions):
        super().__init__()
        self.left = questions

    def __call__(self):
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("stops", [[0], [1], [4], [5], [7], [10], [29], [30], [3, 1, 1, 9], [8, 0, 0, 5, 2]])
def test_a_run_that_stops_anywhere_resumes_to_the_same_bits(stops, whole, tmp_path, monkeypatch):
    path = tmp_path / "hyla-seed0"
    for questions in stops:
        monkeypatch.setattr(train, "Stop", lambda *_, n=questions: StopAt(n))
        fitted = fit(tiny(), path, resume=True, progress=False)
        assert fitted.step == 30 or not (fitted.finished or fitted.metrics)
    monkeypatch.undo()
    resumed = fit(tiny(), path, resume=True, progress=False)
    assert final(path) == final(whole[1])
    assert resumed.metrics == whole[0].metrics and (flat(resumed) == flat(whole[0])).all()
    assert not list(path.glob("*.tmp"))


def test_lines_past_the_checkpoint_and_half_written_ones_are_dropped(whole, tmp_path, monkeypatch, capsys):
    path = tmp_path / "hyla-seed0"
    monkeypatch.setattr(train, "Stop", lambda *_: StopAt(8))
    fit(tiny(), path, progress=False)
    with open(path / "metrics.jsonl", "a") as file:
        file.write('{"step": 10, "loss": 9.0, "rate": 1.0}\n{"step": 15, "lo')
    (path / "checkpoint.npz.99.tmp").write_bytes(b"half")
    monkeypatch.undo()
    fit(tiny(), path, resume=True, progress=False)
    assert final(path) == final(whole[1])
    assert not (path / "checkpoint.npz.99.tmp").exists()
    assert not capsys.readouterr().err                      # a kill does that to a last line: nothing is damaged


@pytest.mark.parametrize("bad", ['{"step": 4, "lo', "[" * 100_000, '{"step": 2}',
                                 '{"step": 2, "loss": "x", "rate": 1}'], ids=["half", "brackets", "no loss", "words"])
def test_a_damaged_line_takes_no_good_one_with_it(bad, whole, tmp_path, monkeypatch, capsys):
    path = tmp_path / "hyla-seed0"
    monkeypatch.setattr(train, "Stop", lambda *_: StopAt(20))
    fit(tiny(), path, progress=False)
    monkeypatch.undo()
    good = (path / "metrics.jsonl").read_text().splitlines(keepends=True)
    assert len(good) > 2
    (path / "metrics.jsonl").write_text("".join([good[0], bad + "\n", *good[1:]]))
    assert len(runs.lines(path)) == len(good)
    fit(tiny(), path, resume=True, progress=False)
    assert final(path) == final(whole[1])
    assert capsys.readouterr().err.strip() == f"refattn: {path}/metrics.jsonl, line 2: damaged and left out"


def test_seconds_are_those_that_passed(tmp_path, monkeypatch):
    """By clocks that say 100 when a run begins, then one second more, or two of the processor, for each step."""
    path, now = tmp_path / "hyla-seed0", [100]
    monkeypatch.setattr(record, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(groups, "time", SimpleNamespace(process_time=lambda: 2 * now[0]))
    for stop_at, expected in (10, 10), (99, 30):
        monkeypatch.setattr(train, "Stop", lambda *_, at=stop_at: StopAt(at))
        now[0] = 100
        fit(disturbed(lambda step, _: now.__setitem__(0, 101 + step)), path, resume=True, progress=False)
        _, meta = runs.load_checkpoint(path, tiny(), tiny().build().parameters())
        assert (meta["step"], meta["seconds"], meta["cpu_seconds"]) == (expected, expected, 2 * expected)
    assert runs.result(path)["seconds"] == 30 and runs.result(path)["cpu_seconds"] == 60


def test_a_complete_run_resumes_to_itself(whole):
    before = {file.name: file.read_bytes() for file in whole[1].iterdir() if file.name != "lock"}
    again = fit(tiny(), whole[1], resume=True, progress=False)
    assert again.finished and again.metrics == whole[0].metrics
    assert {file.name: file.read_bytes() for file in whole[1].iterdir() if file.name != "lock"} == before


def test_ctrl_c_stops_after_the_step_with_a_checkpoint(whole, tmp_path):
    path, handler = tmp_path / "hyla-seed0", signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted, match="hyla-seed0 stopped at step 7 of 30"):
        fit(disturbed(lambda step, _: signal.raise_signal(signal.SIGINT) if step == 6 else None), path, progress=False)
    assert signal.getsignal(signal.SIGINT) is handler
    assert runs.load_checkpoint(path, tiny(), tiny().build().parameters())[1]["step"] == 7
    fit(tiny(), path, resume=True, progress=False)
    assert final(path) == final(whole[1])


def test_ctrl_c_at_the_last_step_is_not_lost(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fit(disturbed(lambda step, _: signal.raise_signal(signal.SIGINT) if step == 29 else None), progress=False)


@pytest.mark.parametrize("later", [True, False])
def test_a_second_ctrl_c_acts_at_once_unless_it_is_the_first_again(later, monkeypatch):
    def twice(step, _):
        if step == 3:
            signal.raise_signal(signal.SIGINT)
            if later:
                monkeypatch.setattr(stop, "SAME", -1)
            signal.raise_signal(signal.SIGINT)
            assert not later, "never reached"
    with pytest.raises(KeyboardInterrupt) as caught:
        fit(disturbed(twice), progress=False)
    assert isinstance(caught.value, Interrupted) is not later


def test_max_seconds_stops_with_a_checkpoint(whole, tmp_path):
    path = tmp_path / "hyla-seed0"
    fitted = fit(tiny(), path, max_seconds=1e-6, progress=False)
    assert not fitted.finished and fitted.metrics == {} and not (path / "result.json").exists()
    assert fit(tiny(), path, resume=True, max_seconds=600, progress=False).finished
    assert final(path) == final(whole[1])


def test_a_stop_file_stops_like_ctrl_c(tmp_path):
    (tmp_path / "stop").touch()
    with pytest.raises(Interrupted, match="step 0"):
        fit(tiny(), tmp_path / "run", stop_file=tmp_path / "stop", progress=False)


def test_a_stop_file_stops_the_last_evaluation_too(whole, tmp_path, monkeypatch):
    def late(batches, **options):
        time.sleep(0.25)                                    # the file is looked at five times a second
        (tmp_path / "stop").touch()
        return iter(batches)
    monkeypatch.setattr(train, "progress_bar", late)
    with pytest.raises(Interrupted, match="hyla-seed0 stopped while it was evaluated; all its steps are done"):
        fit(tiny(), tmp_path / "hyla-seed0", stop_file=tmp_path / "stop", progress=False)
    monkeypatch.undo()
    assert not (tmp_path / "hyla-seed0" / "result.json").exists()
    assert fit(tiny(), tmp_path / "hyla-seed0", resume=True, progress=False).finished
    assert final(tmp_path / "hyla-seed0") == final(whole[1])


def test_time_that_is_up_leaves_the_last_evaluation_alone(whole, monkeypatch):
    def late(batches, **options):
        monkeypatch.setattr(stop.Stop, "__call__", lambda self: True)       # as after max_seconds
        return iter(batches)
    monkeypatch.setattr(train, "progress_bar", late)
    assert fit(tiny(), progress=False).metrics == whole[0].metrics


def test_one_process_at_a_time_writes_a_run(tmp_path, monkeypatch):
    pytest.importorskip("fcntl")
    runs.begin(tmp_path / "run", tiny())
    with runs.locked(tmp_path / "run"):
        with pytest.raises(ValueError, match="is being trained by another process"):
            with runs.locked(tmp_path / "run", patience=0.1):
                pass
    with runs.locked(tmp_path / "run", patience=0.1):
        pass


# --- bad numbers -----------------------------------------------------------------------------------------------------

def poison(at, value=np.nan):
    def disturb(step, batch):
        if step == at:
            batch.tokens[1, 2, 3] = value
    return disturb


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_bad_number_in_the_data_stops_the_run_and_keeps_the_checkpoint(value, tmp_path):
    path = tmp_path / "hyla-seed0"
    with pytest.raises(NonFinite) as caught:
        fit(disturbed(poison(6, value)), path, progress=False)
    assert str(caught.value) == (f"hyla-seed0, step 7: the gradient of embed.w is not finite; "
                                 f"the checkpoint of step 4 in {path} is kept")
    _, _, parameters = refattn.load(path)
    assert all(np.isfinite(x).all() for x in leaves(parameters))
    assert runs.lines(path)[-1]["step"] <= 5 and not (path / "result.json").exists()


def test_without_a_directory_it_says_that_nothing_was_saved():
    with pytest.raises(NonFinite, match="step 1: .* nothing was saved"):
        fit(disturbed(poison(0)), progress=False)


def test_nothing_is_resumed_without_a_directory():
    """It began anew, and said nothing."""
    with pytest.raises(ValueError, match="resume is True, but out is None; allowed: the directory of a run, or "):
        fit(tiny(), resume=True, progress=False)


def test_a_bad_gradient_under_a_good_loss_is_found_and_named():
    class Steep(Disturbed):
        def loss(self, y, batch):
            value, dy = super().loss(y, batch)
            dy[0] = np.inf
            return value, dy
    with pytest.raises(NonFinite, match="step 1: the gradient of"):
        fit(Steep(**tiny().__dict__), progress=False)


def test_a_bad_loss_over_good_gradients_is_named():
    class Lost(Disturbed):
        def loss(self, y, batch):
            return np.float32(np.inf), super().loss(y, batch)[1]
    with pytest.raises(NonFinite, match="step 1: the loss is not finite"):
        fit(Lost(**tiny().__dict__), progress=False)


def test_a_state_that_overflows_in_the_update_is_never_saved(tmp_path):
    class Huge(Disturbed):
        def loss(self, y, batch):                           # finite, but its square is not
            value, dy = super().loss(y, batch)
            return value, np.full_like(dy, 1e30)
    path = tmp_path / "hyla-seed0"
    with pytest.raises(NonFinite, match=r"second of \S+ is not finite after the update; the checkpoint of step 0"):
        fit(Huge(**tiny(clip=0.0).__dict__), path, progress=False)
    assert refattn.load(path)[0] == tiny(clip=0.0)


def test_health_waits_for_the_device_only_when_asked():
    listed = {"a": params.Parameter("n", (2,), 1, "bias"), "b": params.Parameter("n", (3,), 1, "bias")}
    xp = strict_cupy
    health = record.Health(xp.zeros(5, dtype=np.float32), listed, step=10, turns=1)
    good, late = xp.asarray(np.ones(5, np.float32)), xp.asarray(np.full(5, np.nan, np.float32))
    bad = xp.asarray(np.array([1, 1, 1, np.inf, 1], np.float32))
    loss = xp.asarray(np.float32(1.0))
    with xp.forbid():
        for gradient in good, good, bad, late, good:
            health.watch(loss, gradient)
    with pytest.raises(NonFinite, match="step 13: the gradient of b is not finite"):
        health.check()


@pytest.mark.parametrize(("at", "step"), [(6, 7), (8, 9)], ids=["seen before a checkpoint", "seen before a log line"])
def test_a_device_that_is_not_asked_at_every_step_names_the_step_that_was_bad(at, step, monkeypatch, tmp_path):
    """Steps 8, where a checkpoint is due, and 10, a log line, are the first to look."""
    monkeypatch.setattr(train, "find_device", lambda name: strict_cupy)
    with pytest.raises(NonFinite, match=rf"step {step}: the gradient of embed\.w is not finite"):
        fit(disturbed(poison(at)), tmp_path / "run", device="gpu", progress=False)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [5]              # no line of a bad number


def test_a_step_on_a_device_does_not_wait(monkeypatch, tmp_path):
    """`fit` on the strict stand-in for CuPy: between two log points it uploads, and never waits or downloads."""
    monkeypatch.setattr(train, "find_device", lambda name: strict_cupy)
    steps = []

    class Watched(Disturbed):
        def turns(self, batch):
            steps.append(strict_cupy.forbid(h2d=False))
            steps[-1].__enter__()
            return super().turns(batch)

    before = record.Record.after_step
    monkeypatch.setattr(record.Record, "after_step", lambda self: (steps.pop().__exit__(None, None, None),
                                                                     before(self)))
    settings = tiny(attention_dropout=0.1).__dict__
    fitted = fit(Watched(**settings), tmp_path / "run", device="gpu", progress=False)
    assert fitted.finished and not steps
    monkeypatch.undo()
    there = np.concatenate([x.ravel() for x in leaves(refattn.load(tmp_path / "run")[2])])
    np.testing.assert_allclose(there, flat(fit(tiny(attention_dropout=0.1), progress=False)), atol=2e-4)


def test_a_recipe_of_ones_own_has_plain_fields_and_is_entered_to_be_loaded(tmp_path, monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Own(type(tiny())):
        TASK = "own"
        attention: str = "softmax"
        factor: float = 2.0
    own = Own(**tiny(attention="softmax").__dict__)
    with pytest.raises(ValueError, match="factor is 'x'; allowed: numbers"):
        replace(own, factor="x")
    fit(own, tmp_path / own.name, progress=False)
    with pytest.raises(ValueError, match="'own' is unknown; allowed: .*, and one entered into refattn.recipes.RECIPES"):
        refattn.load(tmp_path)
    monkeypatch.setitem(recipes.RECIPES, "own", Own)
    assert refattn.load(tmp_path)[0] == own


def test_the_only_run_below_a_directory_is_loaded_by_its_name(tmp_path):
    fit(tiny(), tmp_path / "hyla-seed0", progress=False)
    assert refattn.load(tmp_path)[0] == tiny()
    shutil.copytree(tmp_path / "hyla-seed0", tmp_path / "copy")
    with pytest.raises(ValueError, match=re.escape(f"{str(tmp_path)!r} holds 2 runs; allowed: one of them, such as ")):
        refattn.load(tmp_path)


# --- evaluation ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("split", ["train", "held_out", "unseen_terms"])
def test_evaluate_is_the_definition_task_by_task(split, whole):
    settings, model, p = refattn.load(whole[1])
    measured = evaluate(settings, model, p, split, tasks=10)            # batches of 4, 4 and 2
    errors, ratios, targets = [], [], []
    for number, size in enumerate((4, 4, 2)):
        batch = settings.sample(stream(0, "evaluation", number), split, size)
        y, _ = model.forward(p, batch.tokens)
        for i in range(size):
            error = (float(y[i, -1, 0]) - float(batch.target[i])) ** 2
            spread = np.mean([(float(v) - np.mean(batch.values[i], dtype=float)) ** 2 for v in batch.values[i]])
            errors.append(error)
            ratios.append(1 - error / spread)
            targets.append(float(batch.target[i]))
    assert measured["mse"] == pytest.approx(np.mean(errors), rel=1e-4)
    assert measured["r2_per_task"] == pytest.approx(np.mean(ratios), rel=1e-4)
    spread = sum((target - np.mean(targets)) ** 2 for target in targets)
    assert measured["r2_pooled"] == pytest.approx(1 - sum(errors) / spread, rel=1e-4)


def test_a_perfect_model_scores_one_and_the_mean_scores_zero():
    settings = tiny(evaluation=4_000, batch=128)

    class Oracle:
        def forward(self, p, x, **_):
            return self.answers.pop(0), None

    for answer, r2 in (lambda batch: batch.target, 1), (lambda batch: 0 * batch.target + batch.target.mean(), 0):
        model = Oracle()
        sizes = [128] * 31 + [4_000 - 31 * 128]
        batches = [settings.sample(stream(0, "evaluation", n), "held_out", size) for n, size in enumerate(sizes)]
        model.answers = [answer(batch)[:, None, None] for batch in batches]
        measured = evaluate(settings, model, np.zeros(1), "held_out")
        assert measured["r2_pooled"] == pytest.approx(r2, abs=0.02)


def test_evaluation_has_no_dropout_and_repeats_itself(whole):
    settings, model, p = refattn.load(whole[1])
    batch = settings.sample(stream(0, "evaluation", 0))
    assert settings.inputs(batch)[1].keys() == {"read"}
    assert settings.dropouts(batch, stream(0, "dropout", 0), np).keys() == {"dropout"}
    assert evaluate(settings, model, p, "held_out") == whole[0].metrics["held_out"]


def test_dropout_is_one_matrix_per_block_over_batch_and_heads():
    batch = recipe().sample(stream(0, "data", 0))
    dropout = np.stack(recipe().dropouts(batch, stream(0, "dropout", 0), np)["dropout"])
    assert dropout.shape == (2, 1, 1, 32, 32) and dropout.dtype == np.float32
    assert set(np.unique(dropout)) == {np.float32(0), np.float32(1 / 0.9)}
    assert (dropout == 0).mean() == pytest.approx(0.1, abs=0.03)


# --- run directories -------------------------------------------------------------------------------------------------

def test_what_a_run_leaves_on_disk(whole):
    _, path = whole
    found = {file.name for file in path.iterdir()} - {"curves.png", "lock"}
    assert found == {"recipe.json", "metrics.jsonl", "checkpoint.npz", "result.json"}
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [5, 10, 15, 20, 25, 30]
    assert [line["step"] for line in lines if "held_out" in line] == [10, 20]
    assert lines[0]["rate"] == tiny().rate_at(4)
    result = json.loads((path / "result.json").read_text())
    assert result["metrics"] == whole[0].metrics and result["fields"]["attention"] == "hyla"


def test_the_logged_loss_is_the_mean_since_the_last_line(tmp_path):
    losses = []

    class Heard(Disturbed):
        def loss(self, y, batch):
            value, dy = super().loss(y, batch)
            losses.append(float(value))
            return value, dy
    fit(Heard(**tiny(steps=12).__dict__), tmp_path, progress=False)
    logged = [line["loss"] for line in runs.lines(tmp_path)]
    assert logged == pytest.approx([np.mean(losses[:5]), np.mean(losses[5:10]), np.mean(losses[10:])], rel=1e-6)


def test_curves_are_drawn_where_matplotlib_is(whole):
    pytest.importorskip("matplotlib")
    assert (whole[1] / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_that_was_killed_before_its_curves_gets_them_when_it_is_resumed(whole, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / tiny().name
    shutil.copytree(whole[1], path)
    (path / "curves.png").unlink()
    before = (path / "result.json").read_bytes()
    compare_module.train_all({path: tiny()}, tmp_path, resume=True, progress=False)
    drawn = (path / "curves.png").read_bytes()
    assert drawn.startswith(b"\x89PNG") and (path / "result.json").read_bytes() == before
    (path / "curves.png").write_bytes(b"somebody's own")
    compare_module.train_all({path: tiny()}, tmp_path, resume=True, progress=False)
    assert (path / "curves.png").read_bytes() == b"somebody's own"


def test_load_gives_what_fit_gave(whole):
    settings, model, parameters = refattn.load(whole[1])
    assert settings == tiny() and model == tiny().build()
    assert (np.concatenate([x.ravel() for x in leaves(parameters)]) == flat(whole[0])).all()


@pytest.mark.parametrize("name, words", [
    ("others", r"best\.npz is not a complete refattn checkpoint \(parameters of shape \(\d+,\) is missing\)"),
    ("parameters", "best.npz has entries of parameters that are not finite; allowed: finite numbers")])
def test_the_best_parameters_are_whole_and_finite(name, words, tmp_path):
    listed = tiny().build().parameters()
    arrays = {name: np.full(params.count(listed), np.nan, np.float32)}
    runs.save_checkpoint(tmp_path, tiny(), listed, arrays, step=4, seconds=0.0, name=runs.BEST)
    with pytest.raises(ValueError, match=words):
        runs.load_checkpoint(tmp_path, tiny(), listed, runs.BEST)


def test_the_bar_says_parameters_steps_and_time(capsys):
    fit(tiny(), progress=True)
    said = capsys.readouterr()
    for words in "parameters, 30 steps of 4 samples", "seconds of training to go", "loss=":
        assert words in said.err
    assert said.out == ""


# --- several runs ----------------------------------------------------------------------------------------------------

def test_processes_and_threads_train_what_fit_trains(whole, tmp_path, capsys):
    chosen = [tiny(), tiny(attention="softmax"), tiny(seed=1)]
    with ThreadPoolExecutor(2) as threads:
        in_threads = compare(chosen, tmp_path / "threads", executor=threads, progress=False)
        assert threads.submit(len, chosen).result() == 3        # an executor that is given is left open, our own is not
    before = multiprocessing.active_children()
    in_processes = compare(chosen, tmp_path / "processes", progress=True)
    assert multiprocessing.active_children() == before
    for one, two, settings in zip(in_threads, in_processes, chosen, strict=True):
        assert one["finished"] and two["finished"] and one["metrics"] == two["metrics"]
        assert final(tmp_path / "threads" / settings.name) == final(tmp_path / "processes" / settings.name)
    assert final(tmp_path / "processes" / "hyla-seed0") == final(whole[1])
    assert not list(tmp_path.glob("*/stop-*"))
    said = capsys.readouterr().err
    assert "3 runs, 90 steps together" in said and "Traceback" not in said


def test_where_a_run_cannot_be_handed_out_those_that_were_are_stopped(tmp_path):
    class Full(ThreadPoolExecutor):
        def submit(self, f, *arguments):
            if submitted:
                raise RuntimeError("no room for another")
            submitted.append(super().submit(f, *arguments))
            return submitted[0]

    submitted, long = [], tiny(steps=100_000)
    with Full(1) as threads, pytest.raises(RuntimeError, match="no room for another"):
        compare([long, tiny(seed=1)], tmp_path, executor=threads, progress=False)
    assert submitted[0].done() and submitted[0].result() is None and not list(tmp_path.glob("stop-*"))
    with np.load(tmp_path / long.name / "checkpoint.npz") as file:
        assert json.loads(str(file["header"]))["meta"]["step"] < 100_000


def test_one_bad_run_does_not_take_the_others_with_it(tmp_path):
    bad = disturbed(poison(6), attention="linear")
    with ThreadPoolExecutor(1) as threads:
        outcomes = compare([tiny(), bad], tmp_path, executor=threads, progress=False)
    assert outcomes[0]["finished"] and not outcomes[1]["finished"]
    assert outcomes[1]["step"] == 4 and "step 7: the gradient of embed.w" in outcomes[1]["error"]


def test_an_error_stops_the_other_runs_with_checkpoints(tmp_path):
    ready = threading.Event()

    def slowly(step, _):
        if step == 6:
            ready.set()
        if step > 6:
            time.sleep(0.2)                                 # 5 seconds for those that are left, were it to go on

    def full(step, _):
        ready.wait(30)
        raise OSError("no space left")
    with ThreadPoolExecutor(2) as threads:
        with pytest.raises(OSError, match="no space left"):
            compare([disturbed(slowly), disturbed(full, seed=1)], tmp_path, executor=threads, progress=False)
    assert not (tmp_path / "hyla-seed0" / "result.json").exists()
    assert runs.load_checkpoint(tmp_path / "hyla-seed0", tiny(), tiny().build().parameters())[1]["step"] >= 6


def test_ctrl_c_stops_all_runs_with_checkpoints(whole, tmp_path):
    ready = threading.Event()

    def slowly(step, _):
        if step == 6:
            ready.set()
            threading.Event().wait(0.5)
    settings = [disturbed(slowly), disturbed(slowly, seed=1), tiny(seed=2)]
    threading.Thread(target=lambda: (ready.wait(30), os.kill(os.getpid(), signal.SIGINT)), daemon=True).start()
    with ThreadPoolExecutor(2) as threads:
        with pytest.raises(Interrupted, match="3 runs"):
            compare(settings, tmp_path, executor=threads, progress=False)
    assert not (tmp_path / "hyla-seed0" / "result.json").exists()
    outcomes = compare([tiny(), tiny(seed=1), tiny(seed=2)], tmp_path, resume=True, progress=False)
    assert all(outcome["finished"] for outcome in outcomes)
    assert final(tmp_path / "hyla-seed0") == final(whole[1])


def test_processes_begin_with_one_thread_and_the_environment_comes_back(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    with pool.quiet_start():
        assert os.environ["OPENBLAS_NUM_THREADS"] == os.environ["MKL_NUM_THREADS"] == "1"
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert os.environ["OPENBLAS_NUM_THREADS"] == "7" and "MKL_NUM_THREADS" not in os.environ


def test_a_process_of_the_pool_ends_with_its_parent(tmp_path, monkeypatch):
    """At once where it is idle, else by the run in it, which puts its state away first."""
    def ended():
        codes = []
        monkeypatch.setattr(os, "_exit", codes.append)
        pool._end_with_parent()
        return codes
    for alive in True, False:
        monkeypatch.setattr(pool, "parent_process", lambda alive=alive: SimpleNamespace(is_alive=lambda: alive))
        monkeypatch.setattr(multiprocessing, "parent_process", pool.parent_process)
        assert ended() == ([] if alive else [1])
        with pool.at_work:
            assert not ended()
        assert stop.Stop(file=tmp_path / "stop")() is not alive
        assert not stop.Stop()()                            # a run that is no part of a comparison


# --- recipes ---------------------------------------------------------------------------------------------------------

def test_the_paper_scale_is_the_papers():
    settings = recipe("fuzzy_logic", "paper")
    assert (settings.steps, settings.batch, settings.warmup, settings.length) == (50_000, 128, 100, 32)
    assert settings.evaluation == 16_000 and settings.attention_dropout == 0.1 and settings.clip == 0
    assert params.count(settings.build().parameters()) == 151_265
    at = {count: settings.rate_at(count) / settings.rate for count in (0, 1, 100, 25_000, 49_900, 49_999)}
    assert at == pytest.approx({0: 0, 1: 0.01, 100: 1, 25_000: 0.55, 49_900: 0.1, 49_999: 0.1})
    assert len(settings.data().combinations("held_out")) == 46


def test_published_figures_belong_to_variants():
    for table in published.FUZZY_LOGIC, published.SRAVEN:
        rows = {name for name, row in VARIANTS.items() if row.row}
        assert rows - set(table.figures) == {"hyla_and_softmax_reversed"}
    experts = published.FUZZY_LOGIC_EXPERTS, published.SRAVEN_EXPERTS
    assert all(set(table.figures) == {"softmax", "linear", "hyla"} for table in experts)
    for table in published.FUZZY_LOGIC, published.SRAVEN, *experts:
        assert set(table.figures) <= set(VARIANTS)
        for mean, error in table.figures.values():
            assert 0.3 < mean < 0.9 and 0 < error < 0.08
    assert list(published.TABLE_A1) == list(range(1, 15))
    assert all(len(row) == 4 and all(0 < average <= best <= 1 for best, average in row.values())
               for row in published.TABLE_1.values())
    parity = published.regular.regular_languages({"language": "parity", "chunk": 3})
    assert parity.figures["sliding_dilated"] == (0.887, None)


@pytest.mark.parametrize("steps, warmup", [(1, 0), (9, 0), (50, 5), (2_000, 100), (10_000, 100)])
def test_fewer_steps_have_a_shorter_warm_up(steps, warmup):
    assert recipe(steps=steps).warmup == warmup


def test_every_recipe_goes_through_json(tmp_path):
    for name, kind in recipes.RECIPES.items():
        for scale in kind.SCALES:
            settings = recipe(name, scale)
            runs.begin(tmp_path / name / scale, settings)
            assert runs.read_recipe(Path(tmp_path, name, scale)) == settings


def test_the_table_gives_mean_and_standard_error_over_seeds_and_marks_the_papers_figures():
    kind = recipes.RECIPES["fuzzy_logic"]
    fields = runs.describe(tiny())["fields"]

    def outcome(seed, r2, finished=True):
        metrics = {split: {"mse": 0.01, "r2_per_task": r2, "r2_pooled": r2} for split in kind.SPLITS}
        return {"task": "fuzzy_logic", "name": f"hyla-seed{seed}", "fields": {**fields, "seed": seed},
                "finished": finished, "metrics": metrics, "seconds": 60, "step": 4}
    text = comparison.table(kind, [outcome(0, 0.4), outcome(1, 0.6), outcome(2, 0.9, finished=False)])
    row = next(line for line in text.splitlines() if line.startswith("hyla"))
    assert row.split("  ")[0] == "hyla" and "0.500 ± 0.100" in row and "0.811 ± 0.078" in row
    assert "* held-out R², not measured here." in text and "hyla-seed2 is not complete: stopped at step 4 of 30" in text


def test_a_table_without_figures_of_a_paper_has_no_column_for_them():
    kind, fields = recipes.RECIPES["text"], runs.describe(recipe("text", "quick"))["fields"]
    metrics = {split: {"bits": 2.5, "perplexity": 5.657, "accuracy": 0.5} for split in kind.SPLITS}
    text = comparison.table(kind, [{"task": "text", "name": "softmax-seed0", "fields": fields, "finished": True,
                                    "metrics": metrics, "seconds": 60, "step": 1_000}])
    assert "paper*" not in text and "all windows per split" in text
    assert text.endswith("No paper's figure is set beside: the papers trained on other corpora")
    rows = [line.split()[-1] for line in text.splitlines() if line.startswith(("attention", "softmax"))]
    assert rows == ["minutes", "1.0"]


def test_a_run_from_before_a_field_came_in_goes_on_with_its_default(whole, tmp_path, monkeypatch):
    path = tmp_path / "hyla-seed0"
    monkeypatch.setattr(train, "Stop", lambda *_: StopAt(8))
    fit(tiny(), path, progress=False)
    monkeypatch.undo()
    document = runs.read_json(path / "recipe.json")
    del document["fields"]["experts"], document["fields"]["chosen"]
    runs.write_json(path / "recipe.json", document)
    assert recipes.from_document(document, path) == tiny() == runs.read_recipe(path)
    listed = tiny().build().parameters()
    arrays, meta = runs.load_checkpoint(path, tiny(), listed)
    params.save(path / "checkpoint.npz", listed, arrays, step=meta["step"], seconds=0.0, recipe=document)
    fit(tiny(), path, resume=True, progress=False)
    assert final(path) == final(whole[1])
    document["fields"]["depth"] = 3
    with pytest.raises(ValueError, match="its fields are not those of fuzzy_logic: ..depth"):
        recipes.from_document(document, path)


def test_a_split_that_is_asked_nothing_has_no_figures(monkeypatch):
    r = recipe("fuzzy_logic")
    monkeypatch.setattr(type(r), "asked", lambda self, split, tasks: iter(()))
    model = r.build()
    _, p = params.allocate(model.parameters())
    assert evaluate(r, model, p, "train") == dict.fromkeys(r.LABELS)
