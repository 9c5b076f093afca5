"""The fuzzy-logic task: samples, targets, splits."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refattn.tasks.fuzzy_logic import FRACTIONS, LENGTHS, SPLITS, FuzzyLogic, divide, truth


def truth_by_loops(x, terms, variables):
    """f(x) for one task and one x, literal by literal."""
    values = []
    for term in terms:
        digits = f"{term:0{variables}b}"
        values.append(min(x[n] if digits[n] == "1" else 1 - x[n] for n in range(variables)))
    return max(values)


@st.composite
def tasks(draw):
    variables = draw(st.integers(2, 5))
    known = 2**variables - 2**variables // 4
    return FuzzyLogic(
        variables=variables, terms=draw(st.integers(1, min(3, known))), length=draw(st.integers(2, 9)),
        held_out=draw(st.sampled_from([0.0, 0.3, 0.5, 0.7])), seed=draw(st.integers(0, 99)),
    )


# ---------------------------------------------------------------- targets and batches

@settings(deadline=None, max_examples=40, derandomize=True)
@given(task=tasks(), batch=st.integers(1, 5), seed=st.integers(0, 2**32 - 1))
def test_every_target_can_be_recomputed_from_the_batch(task, batch, seed):
    tokens, target, terms, values = task.sample(np.random.default_rng(seed), batch)
    assert tokens.shape == (batch, task.length, task.variables + 1) and values.shape == (batch, task.length)
    assert tokens.dtype == target.dtype == values.dtype == np.float32
    x = tokens[..., :-1]
    assert (x >= 0).all() and (x < 1).all()
    for b, t in np.ndindex(values.shape):
        assert values[b, t] == np.float32(truth_by_loops(x[b, t], terms[b].tolist(), task.variables))
    np.testing.assert_array_equal(tokens[:, :-1, -1], values[:, :-1])
    np.testing.assert_array_equal(tokens[:, -1, -1], 0)
    np.testing.assert_array_equal(target, values[:, -1])
    rows = {tuple(row) for row in task.combinations("train").tolist()}
    assert {tuple(row) for row in terms.tolist()} <= rows


def test_boolean_inputs_give_boolean_functions():
    corners = np.array(list(itertools.product([0.0, 1.0], repeat=4)))[None]
    terms = np.array([[0b1111, 0b0101]])
    np.testing.assert_array_equal(np.flatnonzero(truth(corners, terms)), [0b0101, 0b1111])


def test_inputs_are_uniform_and_tasks_equally_likely():
    task = FuzzyLogic(length=16)
    tokens, _, terms, _ = task.sample(np.random.default_rng(1), 20_000, "unseen_terms")
    x = tokens[..., :-1]
    assert abs(x.mean() - 1 / 2) < 0.002 and abs(x.var() - 1 / 12) < 0.001
    counts = np.unique(terms, axis=0, return_counts=True)[1]
    assert len(counts) == 6 and (abs(counts - 20_000 / 6) < 5 * math.sqrt(20_000 * 5 / 36)).all()


def test_one_generator_state_gives_one_batch_and_the_same_inputs_in_every_split():
    task = FuzzyLogic()
    first, again, other = (task.sample(np.random.default_rng((0, 1, s)), 7) for s in (3, 3, 4))
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert (first.tokens[..., :-1] != other.tokens[..., :-1]).any()
    held_out = task.sample(np.random.default_rng((0, 1, 3)), 7, "held_out")
    np.testing.assert_array_equal(first.tokens[..., :-1], held_out.tokens[..., :-1])
    assert (first.values != held_out.values).any()


def test_fixed_context_and_fixed_query():
    task = FuzzyLogic(length=5)
    context, query = np.random.default_rng(8).random((4, 4)), np.random.default_rng(9).random(4)
    free, fixed_context, fixed_query = (
        task.sample(np.random.default_rng(0), 6, **fixed) for fixed in ({}, {"context": context}, {"query": query})
    )
    for batch in (fixed_context, fixed_query):
        np.testing.assert_array_equal(batch.terms, free.terms)
        np.testing.assert_array_equal(batch.values, truth(batch.tokens[..., :-1], batch.terms))
        assert (batch.tokens[:, -1, -1] == 0).all()
    assert (fixed_context.tokens[:, :-1, :-1] == context.astype(np.float32)).all()
    np.testing.assert_array_equal(fixed_context.tokens[:, -1], free.tokens[:, -1])
    assert (fixed_query.tokens[:, -1, :-1] == query.astype(np.float32)).all()
    np.testing.assert_array_equal(fixed_query.tokens[:, :-1], free.tokens[:, :-1])


def test_a_batch_may_be_written_without_touching_the_task():
    task = FuzzyLogic()
    batch = task.sample(np.random.default_rng(0), 50)
    batch.terms[:], batch.values[:] = -1, -1
    assert (batch.target >= 0).all() and task.combinations("train").min() >= 0
    with pytest.raises(ValueError, match="read-only"):
        task.combinations("train")[0] = 0


# ---------------------------------------------------------------- splits

@pytest.mark.parametrize(("held_out", "sizes"), [
    (0.3, (47, 19, 6)), (0.5, (33, 33, 6)), (0.7, (20, 46, 6)), (0, (66, 0, 6)),
])
@pytest.mark.parametrize("released", [False, True])
def test_sizes(held_out, sizes, released):
    task = FuzzyLogic(held_out=held_out, released=released)
    assert tuple(len(task.combinations(split)) for split in SPLITS) == sizes


@settings(deadline=None, max_examples=40, derandomize=True)
@given(task=tasks())
def test_splits_are_disjoint_and_together_everything(task):
    known, every = task.known_terms, 2**task.variables
    train, held_out, unseen = ([tuple(row) for row in task.combinations(split).tolist()] for split in SPLITS)
    assert sorted(train + held_out) == list(itertools.combinations(range(known), task.terms))
    assert unseen == list(itertools.combinations(range(known, every), task.terms))
    assert len(held_out) == math.floor(math.comb(known, task.terms) * task.held_out)
    again = dataclasses.replace(task, length=task.length + 1)
    np.testing.assert_array_equal(again.combinations("train"), train)


def test_the_seed_decides_the_split_and_nothing_else_does():
    first, second = (FuzzyLogic(seed=seed).combinations("train").tolist() for seed in (0, 1))
    assert first != second and sorted(map(tuple, first)) != sorted(map(tuple, second))
    larger = FuzzyLogic(held_out=0.5).combinations("held_out").tolist()
    assert FuzzyLogic(held_out=0.7).combinations("held_out").tolist()[:33] == larger


def test_a_fraction_of_another_precision_is_taken_as_the_number_it_is():
    """Whichever is asked first: equal tasks have one split, of which a process keeps what it has made."""
    single = np.float32(0.35)
    for fractions in (single, float(single)), (float(single), single):
        divide.cache_clear()
        assert [len(FuzzyLogic(variables=3, terms=3, held_out=x).combinations("held_out")) for x in fractions] == [6, 6]


def test_known_terms_missing_from_training_unless_covered():
    plain = [FuzzyLogic(seed=seed) for seed in range(200)]
    missing = [bool(len(task.untrained_terms())) for task in plain]
    assert 0.144 - 0.075 < np.mean(missing) < 0.144 + 0.075         # 14.4 % for a uniform split, 3 standard errors
    for task, lacks in zip(plain, missing, strict=True):
        covered = dataclasses.replace(task, cover_terms=True)
        assert not len(covered.untrained_terms()) and len(covered.combinations("held_out")) == 46
        same = np.array_equal(covered.combinations("train"), task.combinations("train"))
        assert same != lacks                                        # a split that is complete stays as it is


def test_the_released_splits():
    for seed in 0, 1, 2, 2024:
        task = FuzzyLogic(released=True, seed=seed)
        assert task.untrained_terms().tolist() == {2: [5, 6], 2024: [5]}.get(seed, [])
        both = np.concatenate([task.combinations("train"), task.combinations("held_out")]).tolist()
        assert sorted(both) == [list(pair) for pair in itertools.combinations(range(12), 2)]
    assert FuzzyLogic(released=True).combinations("held_out")[:3].tolist() == [[1, 11], [0, 2], [1, 2]]
    assert FuzzyLogic(released=True, seed=1).combinations("train")[-1].tolist() == [7, 10]
    assert FuzzyLogic(released=True, seed=2024, length=96, held_out=0.5).combinations("train")[0].tolist() == [0, 10]


def test_the_settings_of_the_released_code():
    settings = {f"{l}/{k}": FuzzyLogic(variables=l, terms=k) for l, k in ((4, 2), (5, 3), (3, 2))}
    for task in settings.values():
        for length, held_out in itertools.product(LENGTHS, FRACTIONS):
            variant = dataclasses.replace(task, length=length, held_out=held_out)
            batch = variant.sample(np.random.default_rng(0), 2, "held_out")
            assert batch.tokens.shape == (2, length, task.variables + 1) and batch.terms.shape == (2, task.terms)
    counts = {name: [len(task.combinations(split)) for split in SPLITS] for name, task in settings.items()}
    assert counts == {"4/2": [20, 46, 6], "5/3": [608, 1416, 56], "3/2": [5, 10, 1]}
