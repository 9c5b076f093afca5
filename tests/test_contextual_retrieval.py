"""The contextual retrieval task: targets against loops, the published split, frequencies, and what it refuses."""

import math
from itertools import product
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest

from refattn.tasks.contextual_retrieval import ALPHA, ContextualRetrieval, nearest, truth
from tests.refusals import refused

TUTORIAL = Path(__file__).parents[1] / "tutorials" / "04_compositional.py"
SMALL = ContextualRetrieval(3, 5, objects=7, alpha_seed=2)
PUBLISHED = {f"{s}/{r}": ContextualRetrieval(s, r) for s, r in ((2, 4), (4, 8), (4, 16))}


def by_loops(tokens, alpha, retrievals):
    """Equations 15 to 18, one object and one search at a time."""
    s, y = len(alpha), np.zeros(tokens.shape[:2])
    for b, i in np.ndindex(y.shape):
        for search in range(s):
            others = [j for j in range(tokens.shape[1]) if j != i]
            winner = min(others, key=lambda j: abs(tokens[b, i, search] - tokens[b, j, search]))
            one_hot = tokens[b, i, s + retrievals + search * retrievals:][:retrievals].tolist()
            y[b, i] += alpha[search] * tokens[b, winner, s + one_hot.index(1)]
    return y


# ---------------------------------------------------------------- samples

@pytest.mark.parametrize("task", [SMALL, *PUBLISHED.values()], ids=["3/5", *PUBLISHED])
def test_targets_against_loops(task):
    tokens, target, preference, winner = task.sample(np.random.default_rng(0), 5, "held_out")
    np.testing.assert_allclose(target, by_loops(tokens, task.alpha, task.retrievals), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(target, truth(tokens, task.alpha, task.retrievals))
    hot = tokens[..., task.searches + task.retrievals:].reshape(*preference.shape, task.retrievals)
    np.testing.assert_array_equal(hot, preference[..., None] == np.arange(task.retrievals))
    assert (winner != np.arange(task.objects)[:, None]).all()
    assert tokens.dtype == target.dtype == np.float32


def test_the_first_of_equally_near_objects_wins():
    assert nearest(np.array([[[1.0], [1.0], [1.0]]])).tolist() == [[[1], [0], [0]]]
    assert nearest(np.array([[[0.0], [1.0], [-1.0]]])).tolist() == [[[1], [0], [0]]]


def test_targets_are_equivariant_under_permutations_of_objects():
    tokens, target, _, _ = SMALL.sample(np.random.default_rng(1), 20)
    order = np.random.default_rng(2).permutation(SMALL.objects)
    np.testing.assert_array_equal(truth(tokens[:, order], SMALL.alpha, SMALL.retrievals), target[:, order])


def test_one_generator_state_gives_the_same_features_in_every_split():
    batches = [SMALL.sample(np.random.default_rng(3), 4, split) for split in ("all", "train", "held_out")]
    features = [batch.tokens[..., :8] for batch in batches]
    np.testing.assert_array_equal(features[0], features[1])
    np.testing.assert_array_equal(features[0], features[2])


def test_the_published_weights_and_fresh_ones():
    assert ContextualRetrieval(3, 2).alpha.tolist() == np.float32(ALPHA[:3]).tolist()
    assert np.dot(ALPHA, range(1, 26)) == pytest.approx(33.02896422, abs=1e-9)               # each of 25 in its place
    fresh = ContextualRetrieval(40, 2, alpha_seed=0).alpha
    assert len(set(fresh.tolist())) == 40 and np.abs(fresh).max() < 1
    np.testing.assert_array_equal(fresh, ContextualRetrieval(40, 2, alpha_seed=0).alpha)


@pytest.mark.parametrize(("name", "anchor", "measured"), [("2/4", 0.747, 0.757), ("4/8", 1.037, 1.035),
                                                          ("4/16", 1.037, 1.035)])
def test_the_zero_predictor_scores_what_theory_says(name, anchor, measured):
    task = PUBLISHED[name]
    assert abs(task.zero_predictor - anchor) < 1e-3
    target = task.sample(np.random.default_rng(4), 4000).target
    assert abs(np.abs(target).mean() - measured) < 0.02


# ---------------------------------------------------------------- splits

def test_table_5():
    assert PUBLISHED["2/4"].tuples("held_out").tolist() == [[2, 1], [2, 3], [3, 1], [3, 3]]
    assert [task.size(split) for task in PUBLISHED.values() for split in ("train", "held_out")] == [
        12, 4, 3276, 820, 52428, 13108]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8, 0.95])
@pytest.mark.parametrize(("s", "r"), [(1, 7), (2, 3), (2, 4), (3, 4), (4, 2)])
def test_splits_against_the_rule_in_words(s, r, share):
    task = ContextualRetrieval(s, r, share=share)
    every = list(product(range(r), repeat=s))
    ordered = every[0::2] + every[1::2]                     # even numbers first, then odd ones
    n = int(share * len(every))
    for split, expected in (("all", every), ("train", ordered[:n]), ("held_out", ordered[n:])):
        if expected:
            assert task.tuples(split).tolist() == [list(t) for t in sorted(expected)]


def test_every_tuple_of_the_split_occurs_equally_often_and_no_other():
    task = PUBLISHED["2/4"]
    for split in "train", "held_out":
        preference = task.sample(np.random.default_rng(5), 3000, split).preference.reshape(-1, 2)
        found, count = np.unique(preference, axis=0, return_counts=True)
        np.testing.assert_array_equal(found, task.tuples(split))
        assert np.abs(count / count.mean() - 1).max() < 6 / math.sqrt(count.mean())


def test_a_batch_takes_less_than_five_milliseconds():
    task, rng, seconds = PUBLISHED["4/16"], np.random.default_rng(6), []
    for _ in range(30):
        start = perf_counter()
        task.sample(rng, 256, "train")
        seconds.append(perf_counter() - start)
    assert min(seconds) < 5e-3


# ---------------------------------------------------------------- refusals

def test_the_least_loss_without_preferences_is_as_tutorial_4_says():
    """Of whoever finds the objects and knows the trained pairs, not which is asked for: a median over the pairs."""
    task = ContextualRetrieval()
    tokens, target, _, winner = task.sample(np.random.default_rng(0), 4000, "train")
    features = tokens[..., task.searches:task.searches + task.retrievals]
    found = features[np.arange(4000)[:, None, None], winner]                # (b, object, s, r)
    answers = sum(alpha * found[:, :, s, pair] for s, (alpha, pair) in enumerate(
        zip(task.alpha, task.tuples("train").T, strict=True)))
    assert np.isclose(answers, target[..., None], atol=1e-5).any(axis=-1).all()
    least = np.abs(target - np.median(answers, axis=-1)).mean()
    assert f"{least:.2f}" == "0.62" and "0.62 all the same, which is the least without them" in " ".join(
        TUTORIAL.read_text(encoding="utf-8").replace("\n# ", " ").split())


@pytest.mark.parametrize(("change", "message"), [
    ({"searches": 0}, "searches is 0; allowed: whole numbers from 1 to 64"),
    ({"searches": 2.0}, "searches is 2.0; allowed:"),
    ({"searches": 26}, "allowed with the published alpha: whole numbers from 1 to 25; or give an alpha_seed"),
    ({"retrievals": 0}, "retrievals is 0; allowed: whole numbers from 1"),
    ({"retrievals": "4"}, "retrievals is '4'; allowed:"),
    ({"searches": 20, "retrievals": 16, "alpha_seed": 0}, "makes 16^20 tuples; allowed: at most 2^53"),
    ({"objects": 1}, "objects is 1; allowed: whole numbers from 2"),
    ({"objects": True}, "objects is True"),
    ({"share": 1.0}, "share is 1.0; allowed: numbers above 0 and below 1"),
    ({"share": "0.8"}, "share is '0.8'; allowed: numbers above 0 and below 1"),
    ({"share": -0.2}, "share is -0.2"),
    ({"share": math.nan}, "share is nan"),
    ({"alpha_seed": -1}, "alpha_seed is -1; allowed: whole numbers of at least 0"),
])
def test_settings_are_refused(change, message):
    refused(message, ContextualRetrieval, **change)


def test_splits_and_batches_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="split is 'test'; allowed: all, train, held_out"):
        SMALL.sample(rng, 4, "test")
    with pytest.raises(ValueError, match="batch is 0; allowed: whole numbers of at least 1"):
        SMALL.sample(rng, 0)
    with pytest.raises(ValueError, match="split 'train' has no tuple: share 0.01 of 16 leaves 0 to train on"):
        ContextualRetrieval(share=0.01).sample(rng, 4, "train")
    with pytest.raises(ValueError, match="has 1,048,576 tuples; allowed: at most 1,000,000"):
        ContextualRetrieval(4, 32).tuples("all")
