"""What a run and a comparison say while they are under way, and what a run leaves behind that was killed."""

import json
import os
import subprocess
import sys

import pytest

from refattn.params import count
from refattn.recipes import FuzzyLogicRecipe, recipe
from refattn.train import fit, progress, record, runs
from tests.tiny import disturbed, tiny


class Clock:
    """A clock that goes only when it is told to."""
    now = 0.0

    def monotonic(self):
        return self.now


def test_a_run_says_how_long_the_steps_that_are_left_will_take(monkeypatch, capsys):
    clock = Clock()

    def a_minute(step, batch):
        clock.now += 60
    monkeypatch.setattr(record, "time", clock)
    fit(disturbed(a_minute), progress=True)
    assert "about 10.0 minutes of training to go" in capsys.readouterr().err    # after 20 of 30 steps, a minute each


def test_a_run_of_several_updates_a_step_says_how_many_and_of_what_size(capsys):
    settings = {"attention": "softmax", "scenes": 4, "steps": 1, "batch": 2, "log_every": 1, "evaluate_every": 1}
    fit(recipe("sort_of_clevr", scale="quick", evaluation=2, probe=2, **settings), progress=True)
    assert "1 steps of 3 updates, each of 2 samples in 1 shard" in capsys.readouterr().err


def test_a_run_that_goes_on_says_it_by_the_steps_since_then(tmp_path, monkeypatch, capsys):
    clock = Clock()

    def broken(step, batch):
        if step == 9:
            raise KeyboardInterrupt

    def a_minute(step, batch):
        clock.now += 60
    with pytest.raises(KeyboardInterrupt):
        fit(disturbed(broken), tmp_path / "run", progress=False)
    monkeypatch.setattr(record, "time", clock)
    fit(disturbed(a_minute), tmp_path / "run", resume=True, progress=True)
    assert "about 2.0 minutes of training to go" in capsys.readouterr().err     # after 20 of the 22 steps since step 8


def reach(path, step):
    path.mkdir(exist_ok=True)
    with open(path / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": step, "loss": 0.5, "rate": 1e-3}) + "\n")


def test_a_bar_of_all_runs_goes_where_they_are_and_says_once_how_long_they_take(tmp_path, monkeypatch, capsys):
    clock, jobs = Clock(), [(tmp_path / str(seed), tiny(seed=seed, steps=200)) for seed in (0, 1)]
    monkeypatch.setattr(progress, "time", clock)
    reach(jobs[1][0], 10)                                   # one was resumed
    bars = progress.Bars(jobs, True)
    bar = bars.bars[0]
    assert (bar.total, bar.n) == (400, 10) and bars.single
    for now, steps in (60, (20, 30)), (120, (60, 70)), (180, (100, 110)):
        clock.now = now
        for (path, _), step in zip(jobs, steps, strict=True):
            reach(path, step)
        bars.look()
        bars.look()                                         # nothing new: nothing moves
        assert bar.n == sum(steps)
    bars.close()
    said = capsys.readouterr().err
    # first seen at step 30 of 400; told as soon as 40 more are done, at 90: 310 to go at 60 a minute
    assert said.count("minutes of training to go") == 1 and "about 5.2 minutes of training to go" in said
    assert said.startswith("2 runs, 400 steps together; parameters: hyla-seed0 ")


def test_two_first_lines_at_one_moment_say_nothing_of_how_long_it_takes(tmp_path, monkeypatch, capsys):
    clock, jobs = Clock(), [(tmp_path / str(seed), tiny(seed=seed, steps=400)) for seed in (0, 1)]
    monkeypatch.setattr(progress, "time", clock)
    bars = progress.Bars(jobs, True)
    for step in 100, 200:                                   # both log at the same time
        clock.now += 60
        for path, _ in jobs:
            reach(path, step)
            bars.look()
    bars.close()
    assert "about 2.5 minutes of training to go" in capsys.readouterr().err      # of 500 steps, 200 in a minute


def test_a_run_that_is_evaluated_at_its_end_is_said_to_be(tmp_path, capsys):
    jobs = [(tmp_path / str(seed), tiny(seed=seed, steps=30)) for seed in (0, 1)]
    bars = progress.Bars(jobs, True)
    for path, _ in jobs:
        reach(path, 20)
    bars.look()
    for path, _ in jobs:
        reach(path, 30)
    (jobs[1][0] / "result.json").write_text("{}")           # this one is done already
    bars.look()
    bars.look()
    bars.close()
    said = capsys.readouterr().err
    assert said.count("evaluating") == said.count("hyla-seed0: all steps done, evaluating") == 1


def test_on_a_terminal_the_bar_of_a_run_says_how_far_its_evaluation_is(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    jobs = [(tmp_path / str(seed), tiny(seed=seed, steps=30)) for seed in (0, 1)]
    bars, (path, _) = progress.Bars(jobs, True), jobs[0]
    bar, other = bars.bars

    def seen():
        bars.look()
        return bar.postfix
    reach(path, 30)
    reach(jobs[1][0], 20)
    assert "loss=" in seen()
    assert seen() == "evaluating"
    (path / runs.EVALUATED).write_text("train, 3 of 10 batches")
    assert seen() == "evaluating train, 3 of 10 batches" and "loss=" in other.postfix
    (path / runs.EVALUATED).unlink()
    (path / "result.json").write_text("{}")
    assert seen() == "evaluated"
    bars.close()


@pytest.mark.parametrize("shown", [False, True])
def test_a_run_whose_bar_another_draws_says_in_its_directory_how_far_its_evaluation_is(shown, tmp_path, monkeypatch):
    said, sample, file = [], FuzzyLogicRecipe.sample, tmp_path / runs.EVALUATED

    def noted(self, rng, split, size):
        if file.exists():
            said.append(file.read_text())
        return sample(self, rng, split, size)
    monkeypatch.setattr(FuzzyLogicRecipe, "sample", noted)
    fit(tiny(steps=4, batch=4, evaluation=10), tmp_path, progress=shown)
    assert set(said) == (set() if shown else {"train, 0 of 3 batches"}) and not file.exists()


@pytest.mark.parametrize("task, tasks", [("fuzzy_logic", 700), ("regular_languages", 70), ("text", 70),
                                         ("scan", 10**5)])             # more than there are
def test_the_batches_of_an_evaluation_can_be_counted_before(task, tasks):
    one = recipe(task)
    for split in one.SPLITS:
        assert sum(1 for _ in one.batches(split, tasks)) == sum(1 for _ in one.asked(split, tasks)) > 1


def test_many_runs_share_one_bar_and_one_range_of_parameters(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    jobs = [(tmp_path / str(seed), tiny(seed=seed, hidden=8 + (seed == 3))) for seed in range(progress.MANY + 1)]
    least, most = (count(jobs[seed][1].build().parameters()) for seed in (0, 3))
    bars = progress.Bars(jobs, True)
    bars.close()
    assert bars.single and least < most
    assert f"parameters: {least:,} to {most:,} each" in capsys.readouterr().err


def test_on_a_terminal_the_time_of_a_run_begins_with_its_first_step(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    jobs = [(tmp_path / str(seed), tiny(seed=seed, steps=200)) for seed in (0, 1)]
    bars = progress.Bars(jobs, True)
    waited = bars.bars[1]
    for step, seconds in (10, 100), (20, 0):                # for a worker, and not again
        begun, waited.last_print_t = waited.start_t, waited.last_print_t - 100
        reach(jobs[1][0], step)
        bars.look()
        assert waited.n == step and waited.start_t - begun == pytest.approx(seconds, abs=20)
    bars.close()


def test_without_progress_nothing_is_said(tmp_path, capsys):
    bars = progress.Bars([(tmp_path, tiny())], False)
    reach(tmp_path, 5)
    bars.look()
    bars.close()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("silent", [False, True])
def test_the_variable_that_silences_tqdm_silences_a_run(silent):
    code = "from tests.tiny import tiny; from refattn.train import fit; fit(tiny())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, **({"TQDM_DISABLE": "1"} if silent else {})})
    assert done.returncode == 0 and bool(done.stderr) is not silent
    assert ("seconds of training to go" in done.stderr) is not silent


def test_the_variable_that_silences_tqdm_silences_a_comparison(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TQDM_DISABLE", "1")
    bars = progress.Bars([(tmp_path / str(seed), tiny(seed=seed)) for seed in (0, 1)], True)
    reach(tmp_path / "0", 25)
    bars.look()
    bars.close()
    assert capsys.readouterr().err == ""


def test_what_a_killed_writer_left_is_put_away(tmp_path, capsys):
    for step in (1, 2, 3):
        reach(tmp_path, step)
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write("{not a line}\n" + json.dumps({"step": 4, "loss": 0.5, "rate": 1e-3}) + "\n{\"step\": 5, \"lo")
    (tmp_path / "checkpoint.npz.123.tmp").write_bytes(b"half")
    runs.tidy(tmp_path, 3)
    assert [line["step"] for line in runs.lines(tmp_path)] == [1, 2, 3]
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]
    assert "metrics.jsonl, line 4: damaged and left out" in capsys.readouterr().err


@pytest.mark.parametrize(("fields", "name"), [
    ({"problem": "rmts", "hold_out": 85, "attention": "softmax", "seed": 2}, "rmts-85-softmax-seed2"),
    ({"problem": "rmts", "hold_out": 85, "attention": "compositional", "retrievals": 4},
     "rmts-85-compositional-4-seed0")])
def test_runs_that_are_compared_have_names_of_their_own(fields, name):
    assert recipe("esbn", **fields).name == name
