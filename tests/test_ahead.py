"""Batches prepared ahead: in order, by one thread, while the caller is busy; errors at their own step."""

import threading
import warnings

import numpy as np
import pytest

from refattn.train.prefetch import ahead


def test_the_next_batch_is_made_while_the_caller_has_the_last():
    made, threads = [threading.Event() for _ in range(4)], set()

    def make(step):
        threads.add(threading.get_ident())
        made[step].set()
        return step

    for step, batch in ahead(make, 0, 4):
        assert batch == step
        assert step == 3 or made[step + 1].wait(10)         # would never come, were it made when it is asked for
    assert len(threads) == 1 and threading.get_ident() not in threads


def test_an_error_is_raised_at_its_own_step():
    seen = []
    with pytest.raises(ZeroDivisionError):
        for step, _ in ahead(lambda step: 1 / (step - 2), 0, 9):
            seen.append(step)
    assert seen == [0, 1]


def test_who_stops_early_makes_at_most_one_batch_too_many():
    made = []
    for step, _ in ahead(made.append, 5, 100):
        if step == 7:
            break
    assert made in ([5, 6, 7], [5, 6, 7, 8]) and list(ahead(made.append, 3, 3)) == []


def test_who_goes_to_the_end_makes_none_too_many():
    made = []
    assert len(list(ahead(made.append, 5, 8))) == 3 and made == [5, 6, 7]


def test_the_thread_has_the_error_state_of_the_caller():
    with warnings.catch_warnings(), np.errstate(divide="ignore"):
        warnings.simplefilter("error")
        assert [x for _, x in ahead(lambda step: np.float64(1) / 0, 0, 2)] == [np.inf, np.inf]
