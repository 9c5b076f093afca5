"""Analyses of networks for images, on networks that are not trained: sums, places, words, refusals."""

import numpy as np
import pytest

from refattn.analysis import images, searches
from refattn.recipes import recipe
from refattn.tasks import sort_of_clevr as task
from refattn.train.record import State
from tests.refusals import refused


def network(name="sort_of_clevr", **fields):
    r = recipe(name, **fields)
    model = r.build()
    return r, model, State(r, model.parameters(), np).parameters


CLEVR = network(scenes=5, retrievals=3)


def test_value_scores_by_kind_are_shares_and_weigh_their_questions():
    found = images.by_kind(*CLEVR, "test", 40)
    assert list(found) == [kind for kinds in task.KINDS for kind in kinds]
    for scores in found.values():
        assert scores.shape == (4, 2, 3)
        np.testing.assert_allclose(scores.sum(axis=-1), 1, rtol=1e-5)
    r, model, p = CLEVR
    batch = r.take("test", np.arange(40))
    weights = [((batch.type == t) & (batch.kind == k)).sum() for t in range(3) for k in range(3)]
    x, options = r.inputs(batch)
    pages = [b.attention.attention for b in model.forward(p, x, **options)[1].stack.blocks]
    expected = np.mean([page.value_scores.mean(axis=(0, 1)) for page in pages], axis=0)
    np.testing.assert_allclose(np.average([x.mean(axis=0) for x in found.values()], axis=0, weights=weights), expected,
                               rtol=1e-5)
    np.testing.assert_allclose(images.pairing(*CLEVR, "test", 40), expected, rtol=1e-5)


@pytest.mark.parametrize("function, name", [(images.by_kind, "questions"), (images.pairing, "samples")])
def test_no_samples_are_refused(function, name):
    for n in 0, -1:
        refused(f"{name} is {n}; allowed: whole numbers of at least 1", function, *CLEVR, "test", n)


def test_kinds_that_nobody_asks_have_no_value_scores():
    found = images.by_kind(*network(scenes=5, types="binary"), "test", 20)
    assert tuple(found) == tuple(task.KINDS[1])
    for scores in found.values():
        np.testing.assert_allclose(scores.sum(axis=-1), 1, rtol=1e-5)


@pytest.mark.parametrize("attention", ["softmax", "compositional"])
def test_maps_lie_where_the_patches_are(attention):
    r, model, p = network(scenes=5, attention=attention)
    x, options = r.inputs(r.take("test", np.arange(2)))
    saved = model.forward(p, x, **options)[1]
    seen, page = images.maps(saved, sample=1), saved.stack.blocks[2].attention.attention
    scores = page.search_scores if attention == "compositional" else page.code
    assert seen.shape == (4, 2, 5, 5) and seen[2, 1, 3, 4] == scores[1, 1, 0, 1 + 3 * 5 + 4]


def test_an_answer_is_the_likeliest_of_the_network_and_a_file_gives_the_same(tmp_path):
    r, model, p = CLEVR
    scene = r.data()["test"].scenes
    image = task.render(task.Scenes(scene.centre[:1], scene.shape[:1]))[0]
    found = images.ask(r, model, p, image, "count between", "red", "gray")
    assert sum(found.probability.values()) == pytest.approx(1) and found.probability[found.words] == max(
        found.probability.values())
    pillow = pytest.importorskip("PIL.Image")
    pillow.fromarray(image).save(tmp_path / "scene.png")
    again = images.ask(r, model, p, tmp_path / "scene.png", "count between", "red", "gray")
    assert again.probability == found.probability and found.maps.shape == (4, 2, 5, 5)
    pytest.importorskip("matplotlib")
    drawn = images.figure(image, found.maps, "red, gray?")
    assert len(drawn.axes) == 4 * 2 + 1 and drawn.get_suptitle() == "red, gray?"
    *panels, scale = drawn.axes
    assert scale.get_ylabel() == "attention" and {each.images[1].get_clim() for each in panels} == {
        (0, found.maps.max())}                              # one scale for all
    pillow.fromarray(image[:70]).save(tmp_path / "cut.png")
    refused("cut.png has shape (70, 75, 3), dtype uint8; allowed: (75, 75, 3) of uint8", images.ask, r, model, p,
            tmp_path / "cut.png", "shape", "red")
    refused("no.png cannot be read as a picture", images.ask, r, model, p, tmp_path / "no.png", "shape", "red")


def test_other_networks_and_words_are_refused():
    r, model, p = CLEVR
    image = np.zeros((75, 75, 3), np.uint8)
    refused("kind is 'colour'; allowed: shape", images.ask, r, model, p, image, "colour", "red")
    refused("image has shape (75, 75, 3), dtype float64", images.ask, r, model, p, image * 1.0, "shape", "red")
    other = network("triangles", attention="softmax")
    refused("task of the recipe is 'triangles'; allowed: sort_of_clevr", images.ask, *other, image, "shape", "red")
    refused("attention is 'softmax', which has no value scores; allowed: compositional", images.pairing, *other)
    refused("task of the recipe is 'triangles'; allowed: sort_of_clevr", images.by_kind, *other)
    for ask in searches.observe, searches.error_by_tuple:
        refused("task of the recipe is 'sort_of_clevr'; allowed: contextual_retrieval", ask, r, model, p, None)


def test_samples_of_a_smaller_last_batch_weigh_as_much(monkeypatch):
    parts = [np.random.default_rng(n).random((n, 2, 3, 4)) for n in (20, 5)]
    monkeypatch.setattr(images, "of_tokens", lambda recipe, model, p, batch: parts[batch])
    r = recipe("triangles")
    monkeypatch.setattr(type(r), "asked", lambda self, split, tasks: iter((0, 1)))
    np.testing.assert_allclose(images.pairing(r, None, None), np.concatenate(parts).mean((0, 1)))
