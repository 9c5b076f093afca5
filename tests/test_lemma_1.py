"""Lemma 1: the paper's example and weights, chains of transition matrices, and what it refuses."""

import re

import numpy as np
import pytest

from refattn.automata.lemma_1 import chain, lemma_1, lemma_1_backward, weights


def test_the_weights_are_those_of_appendix_d():
    n = 3
    w1, w2 = np.zeros((2 * n * n, n**3)), np.zeros((n**3, n * n))
    for i, j, k in np.ndindex(n, n, n):
        unit = i * n * n + j * n + k
        w1[i * n + k, unit] = w1[n * n + k * n + j, unit] = 1
        w2[unit, i * n + j] = 1
    ours = weights(n)
    np.testing.assert_array_equal(ours[0], w1)
    np.testing.assert_array_equal(ours[1], w2)
    assert (ours[0].sum(axis=0) == 2).all() and (ours[0].sum(axis=1) == n).all()


def test_an_example_by_hand():
    y, saved = lemma_1(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert y.ravel().tolist() == [0, 1, 0, 1]
    assert saved.hidden.tolist() == [[0, 0, 1, -1, 0, 0, 1, -1]]


@pytest.mark.parametrize("axes", [(), (5,), (2, 5), (2, 4, 5)])
def test_any_number_of_axes_stands_before_the_matrices(axes):
    """Gradients matrix by matrix: those of a[i, k] and b[k, j] get dy[i, j] where the two are above 1 together."""
    n, rng = 3, np.random.default_rng(0)
    a, b, dy = rng.random((3, *axes, n, n))
    _, saved = lemma_1(a, b)
    da, db = np.zeros_like(a), np.zeros_like(b)
    for place in np.ndindex(axes):
        for i, j, k in np.ndindex(n, n, n):
            if a[place][i, k] + b[place][k, j] > 1:
                da[place][i, k] += dy[place][i, j]
                db[place][k, j] += dy[place][i, j]
    for ours, expected in zip(lemma_1_backward(saved, dy), (da, db), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-12)


@pytest.mark.parametrize("t", [1, 2, 3, 7, 8, 9])
def test_chains_keep_their_batch_and_order(t):
    rng = np.random.default_rng(t)
    matrices = np.eye(4)[rng.integers(4, size=(2, 3, t, 4))]
    levels = chain(matrices)
    assert [len(x[0, 0]) for x in levels[:2]] == [t, (t + 1) // 2][:len(levels)] and levels[-1].shape == (2, 3, 1, 4, 4)
    for place in np.ndindex(2, 3):
        expected = np.eye(4)
        for a in matrices[place]:
            expected = expected @ a
        np.testing.assert_array_equal(levels[-1][place][0], expected)


@pytest.mark.parametrize(("a", "b", "error"), [
    (np.ones((2, 3)), np.ones((2, 3)), ValueError), (np.ones((2, 2)), np.ones((3, 3)), ValueError),
    (np.ones(4), np.ones(4), ValueError), (np.ones((2, 2)), np.ones((2, 2), dtype=np.float32), TypeError)])
def test_what_does_not_fit_is_refused(a, b, error):
    with pytest.raises(error):
        lemma_1(a, b)


def test_a_chain_is_of_an_array():
    with pytest.raises(TypeError, match="matrices is a list; allowed: an array of NumPy or CuPy"):
        chain([[[1.0]]])
    for shape in (1, 2, 3), (2, 2), (0, 2, 2):                  # one matrix is multiplied by no other
        with pytest.raises(ValueError, match=re.escape(f"matrices has shape {shape}; allowed: (..., t, n, n)")):
            chain(np.ones(shape))
