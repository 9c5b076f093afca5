"""ESBN's tasks: every trial against the list of all trials, the authors' sizes and shares, pictures, refusals."""

from math import comb
from time import perf_counter

import numpy as np
import pytest

from refattn.tasks.esbn import SPLITS, TASKS, Esbn, _trials
from refattn.tasks.glyphs import glyphs
from refattn.verification.naive import esbn as naive
from tests.refusals import refused

SIZES = {               # of train and held_out, as the authors' code has them
    "same_different": {0: (18_810, 990), 50: (4_900, 4_900), 85: (420, 10_000), 95: (40, 10_000), 98: (4, 10_000)},
    "rmts": {0: (10_000, 10_000), 50: (10_000, 10_000), 85: (10_000, 10_000), 95: (480, 10_000)},
    "distribution_of_three": {0: (10_000, 10_000), 50: (10_000, 10_000), 85: (10_000, 10_000), 95: (360, 10_000)},
    "identity_rules": {0: (10_000, 10_000), 50: (10_000, 10_000), 85: (10_000, 10_000), 95: (8_640, 10_000)}}
SETTINGS = [(task, m) for task, row in SIZES.items() for m in row]
COUNTS = {              # kinds of n objects, by the papers' combinatorics
    "same_different": lambda n: (n, n * (n - 1)), "rmts": lambda n: (48 * comb(n, 4), 240 * comb(n, 5)),
    "distribution_of_three": lambda n: (36 * comb(n, 3),),
    "identity_rules": lambda n: (288 * comb(n, 4), 576 * comb(n, 4), 576 * comb(n, 4))}


@pytest.mark.parametrize("task", TASKS)
def test_numbers_unfold_into_all_trials(task):
    n, rng = 5, np.random.default_rng(0)
    listed, found = set(naive.TASKS[task](range(n))), set()
    for kind, count in zip(TASKS[task].kinds, COUNTS[task](n), strict=True):
        assert kind.count(n) == count and [kind.count(k) for k in (7, 50)] == [
            COUNTS[task](k)[TASKS[task].kinds.index(kind)] for k in (7, 50)]
        objects, target = kind.unfold(np.arange(count), n, rng)
        these = set(zip(map(tuple, objects.tolist()), target.tolist(), strict=True))
        assert len(these) == count and these <= listed and not these & found
        found |= these
    if task == "distribution_of_three":                     # its choices are drawn, not counted
        assert {x[:5] for x, _ in found} == {x[:5] for x, _ in listed}
    else:
        assert found == listed


@pytest.mark.parametrize(("task", "m"), SETTINGS)
def test_data_sets(task, m):
    """Sizes, objects, validity of every trial, repetitions and shares, all of one setting."""
    patterns = {(naive.renamed(x), y) for x, y in naive.TASKS[task](range(6))}
    sets = [Esbn(task, m, seed=3).trials(split) for split in SPLITS]
    assert tuple(len(each.target) for each in sets) == SIZES[task][m]
    shown = [set(np.unique(each.pictures)) for each in sets]
    if m:
        assert not shown[0] & shown[1] and len(shown[0]) == 100 - m and len(shown[1]) == m
    rows = [list(zip(map(tuple, each.pictures.tolist()), each.target.tolist(), strict=True)) for each in sets]
    assert not {x for x, _ in rows[0]} & {x for x, _ in rows[1]}
    for each, trials in zip(sets, rows, strict=True):
        assert {(naive.renamed(x), y) for x, y in trials} <= patterns
        answers = np.bincount(each.target, minlength=TASKS[task].answers) / len(trials)
        assert abs(answers - 1 / len(answers)).max() < 0.03 + 3 / len(trials)**0.5
        kinds = np.bincount(each.kind, minlength=len(TASKS[task].kinds)) / len(trials)
        share = 65_520 / 786_240 if (task, m) == ("rmts", 85) and each is sets[0] else 1 / len(kinds)
        assert abs(kinds[0] - share) < 5 * (share * (1 - share) / len(trials))**0.5 + 1e-3
        once = len(set(trials)) == len(trials)
        repeats = task == "same_different" or (task == "identity_rules" and each is sets[0] and m >= 85)
        assert once != repeats or len(trials) == 4
        if m == 95 and each is sets[0] and task != "same_different":            # few objects: every trial is there
            assert {x[:5] for x, _ in trials} == {x[:5] for x, _ in naive.TASKS[task](sorted(shown[0]))}
            assert task != "identity_rules" or len(set(trials)) == 1_440 + 2_880 + 2_880       # AAA is repeated


@pytest.mark.parametrize(("hold_out", "train", "held_out"), [
    (5, 17_860, 40), (28, 10_224, 1_512), (29, 10_000 - 60, 1_624), (50, 4_900, 4_900), (71, 1_624, 9_940),
    (72, 1_512, 10_224), (75, 1_200, 11_100), (76, 1_104, 10_000), (85, 420, 10_000), (98, 4, 10_000)])
def test_same_different_is_cut_where_the_code_cuts(hold_out, train, held_out):
    """Where both splits, cut to 10,000 trials each, have fewer than the whole test, and nowhere else."""
    assert [Esbn("same_different", hold_out).size(split) for split in ("train", "held_out")] == [train, held_out]


def test_a_data_set_takes_less_than_two_seconds_and_a_batch_less_than_a_millisecond():
    seconds = []
    for task, m in (("rmts", 85), ("identity_rules", 50)):
        _trials.cache_clear()
        began = perf_counter()
        Esbn(task, m).size("train")
        seconds.append(perf_counter() - began)
    assert max(seconds) < 2
    chosen, task = np.arange(32), Esbn(task, m)
    began = perf_counter()
    for _ in range(20):
        task.take("train", chosen)
    assert (perf_counter() - began) / 20 < 5e-3             # measured 0.02 ms; room for a busy machine


def test_batches_name_each_picture_once():
    task = Esbn("distribution_of_three", 85)
    pictures, place, target = task.take("train", np.arange(40, 72))
    trials = task.trials("train")
    np.testing.assert_array_equal(pictures[place], trials.pictures[40:72])
    np.testing.assert_array_equal(target, trials.target[40:72])
    assert len(set(pictures.tolist())) == len(pictures) <= 15 and set(place.ravel()) == set(range(len(pictures)))


def test_seeds_hold_out_other_objects():
    held_out = [set(np.unique(Esbn("rmts", 50, seed).trials("held_out").pictures)) for seed in range(3)]
    assert len(set.union(*held_out)) > 75
    np.testing.assert_array_equal(Esbn("rmts", 50, 1).trials("train").pictures, Esbn("rmts", 50, 1).trials(
        "train").pictures)


def test_pictures_are_the_published_ones_kin():
    """Criteria of the originals: distances at least 18, median at least 120; ink 4 to 57 %, mean 18 %; mean 0.81."""
    x = glyphs()
    assert x.shape == (100, 32, 32) and x.dtype == np.float32 and set(np.unique(x * 16)) == set(range(17))
    flat = x.reshape(100, -1).astype(float)
    distance = ((flat[:, None] - flat) ** 2).sum(-1)[np.triu_indices(100, 1)]
    assert distance.min() > 47 > 18 and np.median(distance) >= 120
    ink = (x < 0.5).mean(axis=(1, 2))
    assert 0.04 <= ink.min() and ink.max() <= 0.5 and 0.12 < ink.mean() < 0.2 and abs(x.mean() - 0.81) < 0.03


@pytest.mark.parametrize(("task", "hold_out", "most"), [
    ("same_different", 100, "2 to 98"), ("same_different", 1, "2 to 98"), ("rmts", 98, "5 to 95"),
    ("distribution_of_three", 97, "4 to 96"), ("identity_rules", -1, "4 to 96"), ("rmts", 50.0, "5 to 95")])
def test_objects_that_are_too_few_are_refused(task, hold_out, most):
    refused(f"hold_out is {hold_out}; allowed for {task}: 0 and whole numbers from {most}", Esbn, task, hold_out)


def test_other_refusals():
    refused("task is 'rtms'; allowed: same_different, rmts, distribution_of_three, identity_rules", Esbn,
            "rtms")
    refused("split is 'test'; allowed: train, held_out", Esbn().size, "test")
    refused("seed is -1; allowed: whole numbers of at least 0", Esbn, seed=-1)
    refused("chosen has -1 to 479; allowed: 0 to 479", Esbn("rmts", 95).take, "train", np.array([479, -1]))


def test_of_few_pairs_of_the_same_one_can_be_missing():
    def seen(seed):
        trials = Esbn("same_different", 95, seed).trials("train")
        return len(np.unique(trials.pictures[trials.target == 0]))
    assert {seen(seed) for seed in range(20)} > {5}
