"""What a recipe may say: finite sets, several updates a step, what is kept, how values begin, what is scored."""

import resource
import weakref
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

import refattn
from refattn import cli, params
from refattn.layers.feed_forward import FeedForward
from refattn.losses import cross_entropy, log_loss, mse
from refattn.params import KAIMING_NORMAL, XAVIER_NORMAL, XAVIER_UNIFORM, Init
from refattn.recipes import RECIPES, recipe
from refattn.recipes.base import FiniteRecipe, Recipe, setting
from refattn.train import evaluate, fit, runs
from refattn.train.groups import Alone
from refattn.train.record import Record, State
from tests.refusals import refused


class Batch(NamedTuple):
    x: np.ndarray
    target: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Points(FiniteRecipe):
    """A hundred and three points of a sine, by a feed-forward layer; `hidden` is what a comparison varies."""

    TASK, SOURCE, SPLITS = "points", "nobody", ("train", "test")
    COMPARES = "hidden"
    LABELS, TABLE = {"loss": "loss"}, (("test loss", "test", "loss"),)
    SCALES = {"tiny": {"steps": 26, "batch": 8, "log_every": 2, "evaluate_every": 4, "warmup": 0, "rate": 0.01,
                       "checkpoint_every": 5, "evaluation": 50, "probe": 50}}

    hidden: int = setting(5, "hidden units", least=1, most=99)
    turned: int = setting(1, "updates of a step", least=1, most=2)

    @property
    def name(self):
        return f"{self.hidden}-seed{self.seed}"

    @property
    def TURNS(self):
        return self.turned

    def turns(self, batch):
        return [batch] if self.turned == 1 else [Batch(*(x[:4] for x in batch)), Batch(*(x[4:] for x in batch))]

    def size(self, split):
        return 103 if split == "train" else 30

    def take(self, split, index):
        x = (np.asarray(index, dtype=np.float32)[:, None] + (split == "test") / 2) / 16
        return Batch(x, np.sin(x))

    def build(self):
        return FeedForward(1, self.hidden)

    def inputs(self, batch):
        return batch.x, {}

    def loss(self, y, batch):
        return mse(y, batch.target)

    def score(self, y, batch):
        return {"loss": (y[:, 0] - batch.target[:, 0]) ** 2}


class Chosen(Points):
    CHOSEN_BY = "test", "loss", "least"


@pytest.fixture
def points(monkeypatch):
    monkeypatch.setitem(RECIPES, "points", Points)
    return lambda **fields: recipe("points", **fields)


def test_an_epoch_sees_every_sample_once_and_epochs_differ(points):
    r = points()
    assert r.steps_per_epoch == 13
    epochs = [np.concatenate([r.draw(step).x[:, 0] for step in range(e * 13, e * 13 + 13)]) for e in (0, 1)]
    for epoch in epochs:
        np.testing.assert_array_equal(np.sort(epoch), r.take("train", np.arange(103)).x[:, 0])
    assert (epochs[0] != epochs[1]).any() and len(r.draw(12).x) == 103 - 12 * 8
    dropped = points(last_batch="drop")
    assert dropped.steps_per_epoch == 12 and len(dropped.draw(11).x) == 8
    np.testing.assert_array_equal(dropped.draw(12).x, r.draw(13).x)         # the second epoch of each
    with pytest.raises(ValueError, match="batch is 200; allowed with last_batch drop: numbers up to the 103 "):
        points(last_batch="drop", batch=200).draw(0)


def test_evaluations_read_a_split_once_in_order(points):
    r = points(evaluation_batch=7)
    parts = [batch.x for batch in r.asked("test", 50)]
    assert [len(x) for x in parts] == [7, 7, 7, 7, 2]
    np.testing.assert_array_equal(np.concatenate(parts), r.take("test", np.arange(30)).x)
    assert [len(batch.x) for batch in r.asked("train", 10)] == [7, 3]


def test_a_finite_run_that_stops_resumes_to_the_same_bits(points, tmp_path, monkeypatch):
    whole = fit(points(), progress=False)
    for steps in (7, 11):
        import refattn.train.stop as stop
        left = iter(range(steps))
        monkeypatch.setattr(stop.Stop, "__call__", lambda self, left=left: next(left, None) is None)
        assert not fit(points(), tmp_path, resume=True, progress=False).finished
    monkeypatch.undo()
    monkeypatch.setitem(RECIPES, "points", Points)
    again = fit(points(), tmp_path, resume=True, progress=False)
    np.testing.assert_array_equal(again.parameters.w1, whole.parameters.w1)
    assert again.metrics == whole.metrics and again.metrics["test"]["loss"] > 0


def test_updates_in_turn_are_counted_by_adam(points):
    """Two updates of four samples each are two steps of four samples each, at the same rates."""
    two = fit(points(turned=2, steps=1, schedule_length="text", decay=0.0), progress=False)
    batch, p = points().draw(0), None
    from refattn import optim
    model = points().build()
    flat, p = params.allocate(model.parameters())
    params.initialise(flat, model.parameters(), refattn.train.stream(0, "init"))
    gradient, grads = params.allocate(model.parameters())
    moments = optim.moments(flat)
    for number, part in enumerate((slice(4), slice(4, None)), start=1):
        y, saved = model.forward(p, batch.x[part])
        gradient[...] = 0
        model.backward(p, saved, mse(y, batch.target[part])[1], grads)
        optim.adamw_step(flat, gradient, moments, step=number, rate=points(steps=1).rate_at(0))
    np.testing.assert_array_equal(two.parameters.w2, p.w2)


def test_the_best_evaluation_is_kept(points, tmp_path, monkeypatch):
    monkeypatch.setitem(RECIPES, "points", Chosen)
    r = Chosen(**{**Points.SCALES["tiny"], "rate": 0.5})            # overshoots: the best is not the last
    done = fit(r, tmp_path, progress=False)
    history = {line["step"]: line["test"]["loss"] for line in runs.lines(tmp_path) if "test" in line}
    assert r.steps in history and len(history) == 7
    found = runs.result(tmp_path)["best"]
    assert found["step"] == min(history, key=history.get) != r.steps
    _, model, p = runs.load(tmp_path, best=True)
    assert evaluate(r, model, p, "test")["loss"] == found["metrics"]["test"]["loss"] < done.metrics["test"]["loss"]
    with pytest.raises(ValueError, match="has no best.npz"):
        fit(Points(**Points.SCALES["tiny"]), tmp_path / "other", progress=False)
        monkeypatch.setitem(RECIPES, "points", Points)
        runs.load(tmp_path / "other", best=True)


def test_a_row_of_recipes_is_all_that_the_command_line_needs(points, tmp_path, capsys):
    from refattn import cli
    assert cli.main(["train", "points", "--hidden", "3", "4", "--seed", "0", "1", "--out", str(tmp_path)]) == 0
    table = capsys.readouterr().out
    assert "hidden" in table and {path.name for path in tmp_path.glob("*-seed*")} == {
        "3-seed0", "3-seed1", "4-seed0", "4-seed1"}
    assert cli.main(["train", "points", "--out", str(tmp_path / "one")]) == 0
    assert [path.name for path in (tmp_path / "one").glob("*-seed*")] == ["5-seed0"]
    assert cli.main(["train", "points", "--attention", "hyla"]) == 2


@pytest.mark.parametrize(("init", "deviation", "most"), [
    (Init("normal", "none"), 1, 6), (KAIMING_NORMAL, (2 / 300) ** 0.5, 1),
    (Init("uniform", "in", 2**0.5), (2 / 300) ** 0.5, 0.02**0.5),
    (XAVIER_NORMAL, (2 / 500) ** 0.5, 1), (XAVIER_UNIFORM, (2 / 500) ** 0.5, (6 / 500) ** 0.5),
    (Init("truncated", "out", 3.0), 3 * 0.87963 / 200**0.5, 6 / 200**0.5)])
def test_initial_values_by_place(init, deviation, most):
    listed = FeedForward(300, 200, "relu", 7).parameters()
    flat, p = params.allocate(listed, np.float64)
    params.initialise(flat, listed, np.random.default_rng(0), "pytorch", {"w1": init, "b*": 0.25})
    assert abs(p.w1.std() / deviation - 1) < 0.01 and np.abs(p.w1).max() <= most * (1 + 1e-12)
    assert (p.b1 == 0.25).all() and (p.b2 == 0.25).all() and 0 < np.abs(p.w2).max() <= 200**-0.5
    with pytest.raises(ValueError, match=r"pattern 'w3' fits no parameter; allowed: patterns of: w1, b1, w2, b2"):
        params.initialise(flat, listed, np.random.default_rng(0), "pytorch", {"w3": init})
    with pytest.raises(ValueError, match="fan is 'both'; allowed: in, out, mean, none"):
        params.initialise(flat, listed, np.random.default_rng(0), "pytorch", {"w1": Init("normal", "both")})


def test_log_loss_is_cross_entropy_of_each_entry():
    rng = np.random.default_rng(0)
    logits, target = 30 * rng.standard_normal((4, 5, 6)), rng.integers(6, size=(4, 5))
    found = log_loss(logits, target)
    assert found.shape == (4, 5) and found.mean() == pytest.approx(float(cross_entropy(logits, target)[0]), rel=1e-12)


def test_evaluation_holds_one_batch_of_outputs():
    """256 positions of 32,000 symbols: sixty batches of two take no more memory than one."""
    class Words(Recipe):
        SPLITS, LABELS = ("test",), {"loss": "nats"}

        def sample(self, rng, split, size):
            tokens = rng.integers(32_000, size=(size, 256))
            return Batch(tokens, tokens)

        def inputs(self, batch):
            return batch.x, {}

        def score(self, y, batch):
            return {"loss": log_loss(y, batch.target).reshape(-1)}

    class Flat:
        def forward(self, p, x):
            y = np.zeros((*x.shape, 32_000), dtype=np.float32)
            y[..., 0] = 1
            return y, None

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    metrics = evaluate(Words(batch=2), Flat(), np.zeros(1), "test", tasks=12)
    assert metrics["loss"] == pytest.approx(np.log(31_999 + np.e), rel=1e-4)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20         # KiB: under a gibibyte


def test_an_evaluation_has_let_go_of_its_outputs_when_it_computes_the_next(monkeypatch):
    chosen, held = recipe("sraven", "quick", width=8, heads=2, hidden=8, ceiling=False, batch=4), []
    model = chosen.build()

    def watched(self, *arguments):
        assert not [x for x in held if x() is not None]
        y = predict(self, *arguments)
        held.append(weakref.ref(y))
        return y
    predict = type(chosen).predict
    monkeypatch.setattr(type(chosen), "predict", watched)
    evaluate(chosen, model, params.allocate(model.parameters(), np.float32)[1], "train", tasks=12)
    assert len(held) == 3


@pytest.mark.parametrize("name", ["TASK", "SOURCE", "SPLITS", "LABELS", "TABLE", "SCALES"])
def test_a_class_that_lacks_what_every_recipe_says_is_refused_before_it_is_trained(name, monkeypatch, capsys):
    said = {"TASK": "half", "SOURCE": "ours", "SPLITS": ("test",), "LABELS": {"loss": "nats"},
            "TABLE": (("loss", "test", "loss"),), "SCALES": {"quick": {}}}
    monkeypatch.setitem(RECIPES, "half", type("Half", (Recipe,), {x: said[x] for x in said if x != name}))
    message = f"Half lacks {name}; allowed: all that the docstring of Recipe lists"
    refused(message, recipe, "half")
    for words in ["list"], ["train", "half"], ["train", "half", "--help"]:
        assert cli.main(words) == 2 and capsys.readouterr().err == f"refattn {words[0]}: {message}\n"


@pytest.mark.parametrize(("own", "message"), [
    ({"SCALES": {"quick": {"stepz": 3}}}, "field in scale 'quick' of Half 'stepz' is unknown, did you mean steps?"),
    ({"TABLE": (("loss", "test", "los"),)}, "metric in TABLE of Half 'los' is unknown, did you mean loss?")])
def test_scales_have_fields_and_columns_have_labels(own, message, monkeypatch, capsys):
    """A column without a label was a dash in every table."""
    said = {"LABELS": {"loss": "nats"}, "TABLE": (("loss", "test", "loss"),), "SCALES": {"quick": {}}}
    half = type("Half", (Points,), {"TASK": "half", **said, **own})
    monkeypatch.setitem(RECIPES, "half", half)
    refused(message, recipe, "half")
    for words in ["list"], ["train", "half"]:
        assert cli.main(words) == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize("task", RECIPES)
def test_an_evaluation_of_no_split_there_is_says_which_there_are(task):
    made = recipe(task)
    with pytest.raises(ValueError, match=rf"^split is 'nonsense'; allowed: .*\b{made.SPLITS[-1]}\b"):
        evaluate(made, made.build(), np.zeros(1, dtype=np.float32), "nonsense")


def test_of_equally_good_evaluations_the_first_is_kept(tmp_path, monkeypatch):
    r = recipe("fuzzy_logic")
    monkeypatch.setattr(type(r), "CHOSEN_BY", ("held_out", "mse", "least"))
    kept = []
    monkeypatch.setattr(runs, "save_checkpoint", lambda *args: kept.append(args[4]))
    model = r.build()
    state = State(r, model.parameters(), np)
    record = Record(r, model, state, tmp_path, False, Alone())
    for state.step, value in (1, 0.5), (2, 0.5), (3, 0.4):
        line = {"step": state.step, "loss": 1.0, "rate": 1.0, "held_out": {"mse": value}}
        record.choose(line)
        runs.append(tmp_path, line)
    assert kept == [1, 3]
