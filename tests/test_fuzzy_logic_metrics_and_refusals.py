"""The fuzzy-logic task: its metrics against loops, and what it refuses."""

import math

import numpy as np
import pytest

from refattn.tasks import r2
from refattn.tasks.fuzzy_logic import FuzzyLogic
from tests.refusals import refused

# ---------------------------------------------------------------- metrics

def test_metrics_against_loops():
    batch = FuzzyLogic(length=9).sample(np.random.default_rng(2), 30)
    prediction = batch.target + np.random.default_rng(3).normal(size=30).astype(np.float32) / 10
    ratios = []
    for b in range(30):
        y = [float(value) for value in batch.values[b]]
        variance = sum((value - sum(y) / 9) ** 2 for value in y) / 9
        ratios.append(1 - (float(prediction[b]) - y[-1]) ** 2 / variance)
    np.testing.assert_allclose(r2.r2_of_each_task(prediction, batch.values), ratios, rtol=1e-12)
    target = [float(value) for value in batch.target]
    residual = sum((float(prediction[b]) - target[b]) ** 2 for b in range(30))
    total = sum((value - sum(target) / 30) ** 2 for value in target)
    assert math.isclose(r2.r2_pooled(prediction, batch.values), 1 - residual / total, rel_tol=1e-12)
    assert (r2.r2_of_each_task(batch.target, batch.values) == 1).all() and r2.r2_pooled(batch.target, batch.values) == 1


def test_a_task_that_does_not_vary():
    assert r2.r2_of_each_task([0.5, 0.4], [[0.5, 0.5], [0.5, 0.5]]).tolist() == [1, -math.inf]


@pytest.mark.parametrize("metric", (r2.r2_of_each_task, r2.r2_pooled))
def test_a_column_of_predictions_is_refused(metric):
    with pytest.raises(ValueError, match=r"prediction has shape \(3, 1\); allowed: \(3,\)"):
        metric(np.zeros((3, 1)), np.zeros((3, 4)))


# ---------------------------------------------------------------- refusals

@pytest.mark.parametrize(("change", "message"), [
    ({"variables": 1}, "variables is 1; allowed: whole numbers from 2 to 10"),
    ({"variables": "4"}, "variables is '4'; allowed:"),
    ({"variables": 64}, "variables is 64; allowed:"),
    ({"terms": 0}, "terms is 0; allowed: whole numbers from 1 to 12"),
    ({"terms": 13}, "terms is 13; allowed:"),
    ({"terms": 2.0}, "terms is 2.0; allowed:"),
    ({"variables": 8, "terms": 5}, "2,063,130,048 combinations of the 192 known terms; allowed: at most 1,000,000"),
    ({"length": 1}, "length is 1; allowed: whole numbers from 2"),
    ({"length": True}, "length is True; allowed:"),
    ({"length": 10**12}, "length is 1000000000000; allowed:"),
    ({"held_out": 1.0}, "held_out is 1.0; allowed: numbers from 0 up to, but not including, 1"),
    ({"held_out": -0.1}, "held_out is -0.1"),
    ({"held_out": math.nan}, "held_out is nan"),
    ({"held_out": "0.5"}, "held_out is '0.5'"),
    ({"seed": -1}, "seed is -1; allowed: whole numbers of at least 0"),
    ({"cover_terms": "yes"}, "cover_terms is 'yes'; allowed: True and False"),
    ({"cover_terms": True, "held_out": 0.95}, "held_out is 0.95, which leaves 4 combinations to train on"),
    ({"released": 1}, "released is 1; allowed: True and False"),
    ({"released": True, "seed": 3}, "seed is 3; allowed with released splits: 0, 1, 2, 2024"),
    ({"released": True, "variables": 5}, "variables is 5; allowed with released splits: 4"),
    ({"released": True, "cover_terms": True}, "cover_terms is True; allowed with released splits: False"),
])
def test_settings_that_are_refused(change, message):
    refused(message, FuzzyLogic, **change)


def test_a_cover_that_is_not_found_is_an_error():
    task = FuzzyLogic(variables=6, held_out=0.97, cover_terms=True)             # 34 pairs for 48 terms: too rare
    with pytest.raises(ValueError, match="held_out is 0.97, and 1,000 random splits never left all 48 known terms"):
        task.combinations("train")


@pytest.mark.parametrize(("arguments", "message"), [
    ({"split": "test"}, "split is 'test'; allowed: train, held_out, unseen_terms"),
    ({"batch": 0}, "batch is 0; allowed: whole numbers of at least 1"),
    ({"context": np.zeros((32, 4))}, "context has shape (32, 4); allowed: (31, 4)"),
    ({"query": np.full(4, 1.5)}, "query has entries from 1.5 to 1.5; allowed: entries from 0 to 1"),
    ({"query": np.full(4, np.nan)}, "query has entries from nan to nan"),
])
def test_samples_that_are_refused(arguments, message):
    refused(message, FuzzyLogic().sample, np.random.default_rng(0), **{"batch": 2} | arguments)


def test_an_empty_split_is_refused():
    with pytest.raises(ValueError, match="split 'held_out' of FuzzyLogic.* has no combinations"):
        FuzzyLogic(held_out=0.0).sample(np.random.default_rng(0), 2, "held_out")
