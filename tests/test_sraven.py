"""SRAVEN: samples against loops, distributions, splits, and what is refused."""

import math
from itertools import combinations_with_replacement
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refattn.tasks import sraven
from refattn.tasks.sraven import RULES, SPLITS, Sraven, truth
from refattn.verification.naive import sraven as naive
from tests.refusals import refused


@st.composite
def tasks(draw):
    return Sraven(draw(st.integers(1, 5)), draw(st.integers(3, 9)), draw(st.sampled_from([0.0, 0.25, 0.5])),
                  draw(st.integers(0, 99)))


def chi_square(counts, expected):
    """How many standard deviations chi-square lies above its mean."""
    counts, expected = np.asarray(counts, float), np.broadcast_to(expected, np.shape(counts)).astype(float)
    n = counts.size - 1
    return (((counts - expected) ** 2 / expected).sum() - n) / math.sqrt(2 * n)


# ---------------------------------------------------------------- samples

@settings(deadline=None, max_examples=40, derandomize=True)
@given(task=tasks(), batch=st.integers(1, 5), seed=st.integers(0, 2**32 - 1), split=st.sampled_from(["all", "train"]),
       shuffled=st.booleans())
def test_samples_against_loops(task, batch, seed, split, shuffled):
    found = task.sample(np.random.default_rng(seed), batch, split, shuffled=shuffled)
    m = task.features
    assert found.tokens.shape == (batch, 9 * m, task.symbols) and found.tokens.dtype == np.float32
    assert [x.shape for x in found[1:]] == [(batch, m), (batch, 3, 3, m), (batch, m), (batch, 3, m)]
    assert naive.faults(found, task.symbols, task.combinations(split)) == {}
    np.testing.assert_array_equal(truth(found.tokens, found.rules, found.permutation), found.target)
    if not shuffled:
        assert (found.permutation == np.arange(m)).all()


def test_rule_combinations_are_equally_likely_multisets():
    task = Sraven(2, 4)
    for split in SPLITS:
        rules = task.sample(np.random.default_rng(1), 20_000, split).rules
        found, counts = np.unique(rules, axis=0, return_counts=True)
        assert sorted(map(tuple, task.combinations(split).tolist())) == list(map(tuple, found.tolist()))
        assert chi_square(counts, 20_000 / len(counts)) < 5
    last = Sraven().sample(np.random.default_rng(2), 20_000, "all").rules[:, -1]
    expected = [math.comb(r + 3, 3) / 330 for r in range(8)]                    # 0.3, 1.2, ..., 36.4 %
    assert chi_square(np.bincount(last, minlength=8), 20_000 * np.array(expected)) < 5


def test_the_three_columns_are_permuted_uniformly_and_independently():
    permutation = Sraven(3, 4).sample(np.random.default_rng(3), 43_200).permutation
    code = (permutation[..., 0] * 3 + permutation[..., 1]) @ [81, 9, 1]
    counts = np.unique(code, return_counts=True)[1]
    assert len(counts) == 216 and chi_square(counts, 200) < 5


def test_each_rule_makes_its_grids_with_equal_probability():
    """K = 3: all grids of every rule, as often as they should; addition and subtraction by their first two columns."""
    task = Sraven(1, 3)
    found = task.sample(np.random.default_rng(4), 200_000, "all", shuffled=False)
    for rule, name in enumerate(RULES):
        cells = found.panels[found.rules[:, 0] == rule][..., 0].reshape(-1, 9)
        counts = np.unique(cells @ 3 ** np.arange(9), return_counts=True)[1]
        assert len(counts) == (27 if rule < 5 else 729 if rule < 7 else 216), name
        assert chi_square(counts, len(cells) / len(counts)) < 5, name


def test_symbols_of_distribute_three_are_uniform_over_ordered_choices():
    three = sraven.different(np.random.default_rng(5), 5, 60_000)
    counts = np.unique(three @ [25, 5, 1], return_counts=True)[1]
    assert len(counts) == 60 and chi_square(counts, 1000) < 5


def test_one_generator_state_gives_the_same_symbols_in_every_split_and_without_the_shuffle():
    task = Sraven(3, 5)
    train, again, other = (task.sample(np.random.default_rng((0, 1, s)), 7) for s in (3, 3, 4))
    assert all((a == b).all() for a, b in zip(train, again, strict=True)) and (train.panels != other.panels).any()
    held_out = task.sample(np.random.default_rng((0, 1, 3)), 7, "held_out")
    np.testing.assert_array_equal(train.permutation, held_out.permutation)
    plain = task.sample(np.random.default_rng((0, 1, 3)), 7, shuffled=False)
    np.testing.assert_array_equal(plain.rules, train.rules)
    shown = np.take_along_axis(plain.panels, train.permutation[:, None], axis=-1)
    np.testing.assert_array_equal(shown, train.panels)


def test_a_batch_may_be_written_without_touching_the_task():
    task = Sraven()
    batch = task.sample(np.random.default_rng(0), 50)
    batch.target[:], batch.rules[:], batch.permutation[:] = -1, -1, -1
    assert batch.panels.min() >= 0 and task.combinations("train").min() >= 0
    with pytest.raises(ValueError, match="read-only"):
        task.combinations("train")[0] = 0


def test_a_batch_takes_less_than_three_milliseconds():
    task, rng, seconds = Sraven(), np.random.default_rng(6), []
    for _ in range(30):
        start = perf_counter()
        task.sample(rng, 128, "train")
        seconds.append(perf_counter() - start)
    assert min(seconds) < 3e-3


# ---------------------------------------------------------------- splits

@settings(deadline=None, max_examples=20, derandomize=True)
@given(task=tasks())
def test_splits_are_disjoint_and_together_everything(task):
    every, train, held_out = ([tuple(row) for row in task.combinations(split).tolist()] for split in SPLITS)
    assert every == list(combinations_with_replacement(range(8), task.features)) == sorted(train + held_out)
    assert len(held_out) == math.floor(len(every) * task.held_out)


def test_the_seed_decides_the_split_and_nothing_else_does():
    held_out = Sraven().combinations("held_out").tolist()
    assert held_out == Sraven(symbols=16).combinations("held_out").tolist()
    assert sorted(held_out) != sorted(Sraven(seed=1).combinations("held_out").tolist())


def test_the_released_splits():
    splits = [Sraven(seed=seed, released=True) for seed in (0, 1, 2, 2024)]
    for task in splits:
        every, train, held_out = ([tuple(row) for row in task.combinations(split).tolist()] for split in SPLITS)
        assert len(set(held_out)) == 82 and sorted(train + held_out) == every
    assert splits[0].combinations("held_out")[[0, 1, -1]].tolist() == [[0] * 4, [0, 0, 0, 2], [6, 7, 7, 7]]
    assert all(splits[i].combinations("held_out")[-1].tolist() == [6, 6, 6, 6] for i in (2, 3))


# ---------------------------------------------------------------- metrics

def test_accuracies_against_loops():
    rng = np.random.default_rng(7)
    prediction, target = rng.integers(3, size=(2, 200, 2))
    panels = [all(p == t for p, t in zip(*pair, strict=True)) for pair in zip(prediction, target, strict=True)]
    features = [p == t for p, t in zip(prediction.ravel(), target.ravel(), strict=True)]
    assert sraven.panel_accuracy(prediction, target) == sum(panels) / 200
    assert sraven.feature_accuracy(prediction, target) == sum(features) / 400


# ---------------------------------------------------------------- refusals

@pytest.mark.parametrize(("change", "message"), [
    ({"features": 0}, "features is 0; allowed: whole numbers of at least 1"),
    ({"features": 2.0}, "features is 2.0; allowed:"),
    ({"features": 21}, "features is 21, which makes 1,184,040 rule combinations; allowed: at most 1,000,000"),
    ({"features": 10**9}, "features is 1000000000, which makes"),
    ({"symbols": 2}, 'symbols is 2, but "distribute three" takes 3 different ones; allowed: whole numbers from 3'),
    ({"symbols": "8"}, "symbols is '8'; allowed:"),
    ({"held_out": 1.0}, "held_out is 1.0; allowed: numbers from 0 up to, but not including, 1"),
    ({"held_out": math.nan}, "held_out is nan"),
    ({"seed": -1}, "seed is -1; allowed: whole numbers of at least 0"),
    ({"released": 1}, "released is 1; allowed: True and False"),
    ({"released": True, "seed": 3}, "seed is 3; allowed with released splits: 0, 1, 2, 2024"),
    ({"released": True, "features": 3}, "features is 3; allowed with released splits: 4"),
    ({"released": True, "held_out": 0.5}, "held_out is 0.5; allowed with released splits: 0.25"),
])
def test_settings_that_are_refused(change, message):
    refused(message, Sraven, **change)


def test_samples_that_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="split is 'test'; allowed: all, train, held_out"):
        Sraven().sample(rng, 4, "test")
    with pytest.raises(ValueError, match="batch is 0; allowed: whole numbers of at least 1"):
        Sraven().sample(rng, 0)
    with pytest.raises(ValueError, match="split 'held_out' of Sraven.* has no rule combination"):
        Sraven(held_out=0.0).sample(rng, 4, "held_out")


def test_the_split_of_a_combination_does_not_depend_on_the_order_of_its_rules():
    task = Sraven(3, 4)
    for split in "train", "held_out":
        for rules in task.combinations(split):
            assert task.split_of(rules[::-1]) == task.split_of(rules) == split


def test_a_batch_that_is_not_shuffled_may_be_written():
    batch = Sraven().sample(np.random.default_rng(0), 2, shuffled=False)
    assert all(x.flags.writeable for x in batch)
