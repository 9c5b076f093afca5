"""Recipes of the image tasks: orders, turns, rates, choices, losses of several sets, and what they refuse."""

import shutil
import zipfile
from math import cos, pi
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from refattn import params
from refattn.losses import binary_cross_entropy, cross_entropy
from refattn.recipes import recipe
from refattn.reproduce.published import figures_for
from refattn.tasks import sort_of_clevr as task
from refattn.train import fit, runs
from refattn.train.record import State
from tests.refusals import refused
from tests.steps import never_waits_nor_transfers_nor_widens
from tests.test_natural_images import folder

TINY = {"scenes": 26, "batch": 64, "evaluation": 40, "probe": 40, "log_every": 2, "evaluate_every": 2,
        "checkpoint_every": 2}


def test_every_type_of_question_comes_in_an_order_of_its_own_once_an_epoch():
    r = recipe("sort_of_clevr", **{**TINY, "batch": 65})
    assert r.steps_per_epoch == 4
    data, seen = r.data()["train"], []
    for epoch in 0, 1:
        parts = [r.draw(4 * epoch + n) for n in range(4)]
        seen.append([np.concatenate([r.turns(x)[t].question for x in parts])[:, 0] for t in range(3)])
        for t, name in enumerate(("ternary", "binary", "unary")):
            asked = task.encode(task.Questions(*(x[:, task.TYPES.index(name)].reshape(-1) for x in data.questions)))
            bits = 2 ** np.arange(18)
            np.testing.assert_array_equal(np.sort(seen[epoch][t] @ bits), np.sort(asked @ bits))
            assert all((x.type[:, t] == task.TYPES.index(name)).all() for x in parts)
    assert all((one != two).any() for one, two in zip(*seen, strict=True))
    first = r.draw(0).image
    assert (first[:, 0] != first[:, 1]).any() and (first[:, 1] != first[:, 2]).any()


def test_a_test_is_chosen_by_the_validation_of_its_own_type(tmp_path):
    validation = {"unary": [0.1, 0.3, 0.2], "binary": [0.5, 0.4, 0.5], "ternary": [0.1, 0.2, 0.3]}
    lines = [{"step": 1, "loss": 1.0}] + [
        {"validation": {name: x[n] for name, x in validation.items()}, "test": dict.fromkeys(task.TYPES, n / 10)}
        for n in range(3)]
    r = recipe("sort_of_clevr", steps=4, **TINY)
    assert r.read_off(lines)["chosen"] == {"unary": 0.1, "binary": 0.0, "ternary": 0.2}
    found = fit(r, tmp_path, progress=False)
    lines = [*runs.lines(tmp_path), {"step": 4, **found.metrics}]
    assert runs.result(tmp_path)["metrics"]["chosen"] == r.read_off(lines)["chosen"] and len(lines) == 3


def test_one_type_alone_is_one_update_a_step_in_the_same_order():
    r, every = (recipe("sort_of_clevr", types=x, **TINY) for x in ("binary", "all"))
    assert (r.TURNS, every.TURNS) == (1, 3) and len(r.turns(r.draw(2))) == 1
    np.testing.assert_array_equal(r.draw(2).question[:, 0], every.draw(2).question[:, 1])
    found = r.summary(r.score(np.zeros((65, 1, 10)), r.take("test", np.arange(65))))
    assert found["unary"] is None and found["binary"] == 0.0 and found["count_of_same_shape"] == 0.0


def test_ink_makes_white_nothing():
    released, ink = (recipe("sort_of_clevr", ink=x, **TINY) for x in (0.0, 4.0))
    batch = released.draw(0)
    one, two = (r.inputs(batch)[0] for r in (released, ink))
    assert one.max() == 1 and one.min() == 0 and one[0, 0, 0].tolist() == [1, 1, 1]
    np.testing.assert_allclose(two, 4 - 4 * one, atol=1e-6)


def test_kinds_are_scored_apart():
    class Asked(NamedTuple):
        target: np.ndarray
        kind: np.ndarray

    r, y = recipe("sort_of_clevr", **TINY), np.eye(10)[[0, 1, 2, 3, 4, 5]][:, None]
    scores = r.score(y, Asked(np.array([[0, 9, 2], [3, 4, 9]]), np.array([[0, 1, 2], [1, 1, 0]])))
    found = r.summary(scores)
    assert [found[name] for name in ("ternary", "binary", "unary")] == [1.0, 0.5, 0.5]
    assert [found[name] for name in ("count_between", "any_on_band", "count_of_obtuse_triangles")] == [1, 1, None]
    assert found["shape_of_furthest"] == 0.5 and found["upper"] == 1 and found["shape"] == 0


def test_the_rate_of_triangles_falls_epoch_by_epoch_to_zero():
    r = recipe("triangles", "paper")
    assert r.steps == 200 * 782
    for step, epoch in (0, 0), (781, 0), (782, 1), (156_399, 199):
        assert r.rate_at(step) == pytest.approx(0.5e-4 * (1 + cos(pi * epoch / 200)))


def test_pixels_of_triangles_are_raw_unless_they_are_divided():
    for divisor, value in (1.0, 255), (255.0, 1):
        x, options = recipe("triangles", divisor=divisor, dropout=0.0).inputs(recipe("triangles").draw(0))
        assert set(np.unique(x)) == {0, value} and options == {"pixels": False}


def test_a_sample_of_triangles_is_as_large_as_asked_or_as_a_batch():
    r = recipe("triangles", batch=6)
    assert [len(r.sample(np.random.default_rng(0), **size).target) for size in ({}, {"size": 3})] == [6, 3]


def test_an_answer_about_a_triangle_is_right_on_the_side_of_its_class():
    batch = recipe("triangles").draw(0)
    y = np.where(batch.target == 1, 0.1, -0.1)[:, None, None]
    assert set(batch.target) == {0, 1} and recipe("triangles").score(y, batch)["accuracy"].all()
    assert not recipe("triangles").score(-y, batch)["accuracy"].any()
    assert (recipe("triangles").score(0 * y, batch)["accuracy"] == batch.target).all()      # 1/2 is a yes (code)


def test_dropout_has_its_share_and_the_last_application_only_what_is_read():
    r = recipe("sort_of_clevr", dropout=0.25)
    found = r.dropped(np.random.default_rng(0), np, 64, 26, 1)
    turn = r.dropouts(r.turns(r.take("train", np.arange(4)))[0], np.random.default_rng(0), np)
    assert [x[1].shape for x in turn["residual"]] == [(4, 26, 32)] * 3 + [(4, 1, 32)]
    assert [x[1].shape for x in found["residual"]] == [(64, 26, 32)] * 3 + [(64, 1, 32)]
    assert [x.shape for x in found["hidden"]] == [(64, 26, 64)] * 3 + [(64, 1, 64)]
    assert all(x[0] is None for x in found["residual"])
    drawn = np.concatenate([x.ravel() for x in found["hidden"]])
    assert drawn.dtype == np.float32 and set(np.unique(drawn)) == {0, np.float32(1 / 0.75)}
    assert abs((drawn == 0).mean() - 0.25) < 5 * (0.1875 / drawn.size) ** 0.5
    assert np.array_equal(found["residual"][0][1].ravel(), np.where(                # bit for bit what it always was
        np.frombuffer(np.random.default_rng(0).bytes(2 * 64 * 26 * 32), np.uint16) >= 16_384, np.float32(1 / 0.75), 0))
    assert recipe("sort_of_clevr", dropout=0.0).dropped(None, np, 64, 26, 1) == {}


MULTI = {"first": "gratings", "second": "shapes", "third": "gratings"}


def test_a_batch_has_every_set_and_is_augmented_anew_in_every_epoch():
    r = recipe("multitask_images", **MULTI)
    one, again, other = r.take("train", [5, 7]), r.take("train", [5, 7]), r.take("train", [5, 8])
    np.testing.assert_array_equal(one.image, again.image)
    assert (one.image[0] != other.image[0]).any() and (one.target[0, :3] == other.target[0, :3]).all()
    test = r.take("test", np.arange(4))
    np.testing.assert_array_equal(test.image[:, 1], r.images("test")[1].image[:4])
    x, options = r.inputs(test)
    assert x.shape == (16, 32, 32, 3) and not options["pixels"]
    np.testing.assert_array_equal(options["task"], np.tile(np.eye(4), (4, 1)))
    assert set(np.unique(test.image[:, 3])) == {0, 255} and (test.image[..., 0] == test.image[..., 2])[:, 3].all()


def test_the_loss_is_the_sum_over_sets_and_its_gradient_is_that_of_the_sum():
    r, rng = recipe("multitask_images", **MULTI), np.random.default_rng(0)
    batch, y = r.take("train", np.arange(6)), rng.standard_normal((24, 31))
    value, dy = r.loss(y, batch)
    rows, target = y.reshape(6, 4, 31), batch.target
    parts = [cross_entropy(rows[:, t, 10 * t:10 * t + 10], target[:, t]) for t in range(3)]
    parts.append(binary_cross_entropy(rows[:, 3, 30], target[:, 3].astype(float)))
    assert value == pytest.approx(sum(part[0] for part in parts))
    np.testing.assert_allclose(dy.reshape(6, 4, 31)[:, 1, 10:20], parts[1][1])
    np.testing.assert_allclose(dy.reshape(6, 4, 31)[:, 3, 30], parts[3][1])
    assert (dy != 0).sum() == 6 * 31


def test_which_data_a_seed_and_a_test_have_is_said_where_the_code_has_others():
    first, second = (recipe("sort_of_clevr", seed=n, **TINY).data()["test"] for n in (0, 1))
    assert (first.scenes.centre != second.scenes.centre).any() and (first.questions.kind != second.questions.kind).any()
    r = recipe("multitask_images", **MULTI)
    assert (r.take("test", np.arange(r.size("test"))).target[:, 3] >= 0).all()
    said = Path(__file__).parents[1].joinpath("docs", "differences.md").read_text(encoding="utf-8")
    rows = {cells[0]: cells for cells in (line[2:].split(" | ") for line in said.split("\n"))}
    assert "of scenes and questions too" in rows["Sort-of-CLEVR: seeds"][-1]
    assert "as many test triangles as the largest test set" in rows["multi-task: smaller sets"][-1]


def test_images_that_a_test_set_has_not_are_not_scored():
    r = recipe("multitask_images", **MULTI)
    assert (r.take("test", [599, 600]).target[:, :3] < 0).tolist() == [[False] * 3, [True] * 3]
    assert (r.take("train", [0, 3_000]).target >= 0).all()
    batch = r.take("train", np.arange(4))
    batch = batch._replace(target=np.where(np.arange(4)[:, None] < [4, 2, 4, 4], batch.target, -1))
    y = np.zeros((4, 4, 31))
    for n, t in np.ndindex(4, 3):
        y[n, t, 10 * t + max(0, batch.target[n, t])] = 1
    y[:, 3, 30] = 2 * batch.target[:, 3] - 1
    scores = r.score(y.reshape(16, 31), batch)
    assert np.isnan(scores["second"]).tolist() == [False, False, True, True]
    assert r.summary(scores) == {"first": 1, "second": 1, "third": 1, "triangles": 1}
    assert (r.score(0 * y.reshape(16, 31), batch)["triangles"] == batch.target[:, 3]).all()


@pytest.mark.parametrize("name", ["triangles", "multitask_images"])
@pytest.mark.parametrize("attention", ["softmax", "compositional"])
def test_a_few_steps_lower_the_loss(name, attention, tmp_path):
    given = MULTI if name == "multitask_images" else {"size": 16, "epoch": 5}
    r = recipe(name, attention=attention, width=16, steps=30, batch=16, rate=3e-3, log_every=10, evaluate_every=30,
               evaluation=16, probe=16, dropout=0.0, **given)
    fit(r, tmp_path, progress=False)
    losses = [line["loss"] for line in runs.lines(tmp_path)]
    assert losses[-1] < losses[0]


def test_published_figures_are_fractions_with_standard_errors():
    model = {"heads": 4, "searches": 4, "retrievals": 3, "scoring": "dot"}
    assert figures_for("sort_of_clevr", {**model, "width": 256}).figures == {
        "softmax": (0.649, 0.0148), "compositional": (0.671, 0.0067)}
    assert figures_for("sort_of_clevr", {**model, "width": 256, "searches": 8}).figures == {"softmax": (0.649, 0.0148)}
    small = {**model, "width": 32, "heads": 2, "retrievals": 2}                 # printed with 2 searches
    assert figures_for("sort_of_clevr", small).figures == {"softmax": (0.545, 0.2397)}
    assert figures_for("sort_of_clevr", {**small, "searches": 2}).figures["compositional"] == (0.536, 0.0036)
    assert figures_for("triangles", {**model, "retrievals": 4}).figures == {
        "softmax": (0.938, 0.0006), "compositional": (0.97, 0.0017)}
    assert figures_for("multitask_images", {"retrievals": 2, "first": "shapes"}).figures == {}


@pytest.mark.parametrize(("name", "change", "message"), [
    ("sort_of_clevr", {"width": 33}, "width is 33; allowed: even numbers that are multiples of searches, 2"),
    ("sort_of_clevr", {"attention": "softmax", "heads": 3},
     "width is 32; allowed: even numbers that are multiples of heads, 3"),
    ("sort_of_clevr", {"nearest": "paper"}, "nearest is 'paper'; allowed: released, text"),
    ("triangles", {"patch": 5}, "size is 32; allowed: multiples of patch, 5"),
    ("multitask_images", {"first": "mnist"}, "first is 'mnist'; allowed: cifar10"),
])
def test_settings_are_refused(name, change, message):
    refused(message, recipe, name, **change)


def test_a_missing_archive_is_refused_before_training(tmp_path):
    r = recipe("multitask_images", first="cifar10", data=str(tmp_path))
    refused("cifar-10-binary.tar.gz cannot be read (No such file or directory); allowed:", fit, r, progress=False)


def test_what_is_read_is_the_zip_alone_and_an_archive_that_is_missing_is_refused(tmp_path):
    assert recipe("multitask_images", **MULTI).data_read() is None          # drawn here, to the last bit or nearly
    folder(tmp_path / "a.zip")
    for name in "bc":
        shutil.copy(tmp_path / "a.zip", tmp_path / f"{name}.zip")
    with zipfile.ZipFile(tmp_path / "c.zip", "a") as archive:
        archive.writestr("test/class0/two.png", archive.read("test/class1/one.png"))
    a, b, c = (recipe("multitask_images", third="folders", data=str(tmp_path / f"{name}.zip")) for name in "abc")
    assert a.data_read() == b.data_read() != c.data_read() and a.data_read().startswith("a zip of checksum ")
    missing = recipe("multitask_images", first="cifar10", data=str(tmp_path))
    refused("cifar-10-binary.tar.gz cannot be read", missing.data_read)
    assert missing.data_read(resuming=False) is None                        # a trained network is looked at without it


@pytest.mark.parametrize("name", ["sort_of_clevr", "triangles", "multitask_images"])
@pytest.mark.parametrize("attention", ["softmax", "compositional"])
def test_a_step_never_waits_for_the_device_and_agrees_with_numpy(name, attention):
    given = {"sort_of_clevr": TINY, "triangles": {"size": 16}, "multitask_images": MULTI}[name]
    r = recipe(name, attention=attention, **{**given, "width": 16, "layers": 2, "batch": 4})
    batch = r.turns(r.draw(0))[0]
    there = never_waits_nor_transfers_nor_widens(r, batch, np.random.default_rng(0)).get()
    model = r.build()
    state = State(r, model.parameters(), np)
    gradient, grads = params.allocate(model.parameters())
    x, options = r.inputs(batch)
    options |= r.dropouts(batch, np.random.default_rng(0), np)
    y, saved = model.forward(state.parameters, x, **options)
    for _ in range(2):
        model.backward(state.parameters, saved, r.loss(y, batch)[1], grads)
    assert np.abs(there - gradient).max() < 1e-5 * np.abs(gradient).max()


ADAM = {"rate": 1e-4, "decay": 0.0, "clip": 0.0, "warmup": 0, "dropout": 0.1, "initialise": "pytorch"}
PUBLISHED = {
    ("sort_of_clevr", "paper"): {**ADAM, "steps": 153_100, "batch": 64, "width": 256, "heads": 4, "searches": 4,
                                 "selector_width": 32, "layers": 4, "scenes": 9_800, "last_batch": "drop", "ink": 0.0,
                                 "types": "all", "nearest": "released", "evaluation": 1_984, "probe": 1_984,
                                 "evaluate_every": 1_531},
    ("sort_of_clevr", "small"): {**ADAM, "steps": 153_100, "batch": 64, "width": 32, "heads": 2, "searches": 2,
                                 "retrievals": 2, "selector_width": 8, "layers": 4, "scenes": 9_800, "ink": 0.0},
    ("triangles", "paper"): {**ADAM, "steps": 156_400, "batch": 64, "width": 256, "heads": 4, "searches": 4,
                             "selector_width": 32, "layers": 4, "size": 64, "patch": 4, "divisor": 1.0, "epoch": 782,
                             "evaluation": 10_000},
    ("triangles", "small"): {**ADAM, "rate": 1e-3, "steps": 31_280, "batch": 64, "width": 64, "heads": 4, "searches": 4,
                             "retrievals": 4, "layers": 2, "size": 32, "divisor": 255.0, "epoch": 782},
    ("multitask_images", "paper"): {**ADAM, "steps": 229_000, "batch": 32, "width": 256, "heads": 4, "searches": 4,
                                    "selector_width": 16, "layers": 2, "last_batch": "keep", "first": "cifar10",
                                    "second": "fashion_mnist", "third": "svhn"},
}


@pytest.mark.parametrize(("name", "scale"), PUBLISHED)
def test_settings_are_the_published_ones(name, scale):
    r = recipe(name, scale)
    assert {field: getattr(r, field) for field in PUBLISHED[name, scale]} == PUBLISHED[name, scale]
