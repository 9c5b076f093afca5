"""Context normalisation by hand: what it tells of pairs, constant features, segments, refusals."""

import numpy as np
import pytest

from refattn import params
from refattn.layers.context_norm import ContextNorm
from tests.refusals import refused


def normalise(x, segments=1):
    layer = ContextNorm(x.shape[2], segments)
    flat, p = params.allocate(layer.parameters(), x.dtype)
    params.initialise(flat, layer.parameters(), np.random.default_rng(0), "pytorch")
    return layer, p, *layer.forward(p, x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_pair_says_whether_it_is_of_one_kind(dtype):
    """0 in each feature where two positions agree, +-sqrt(1/2) where they differ, by however little."""
    x = np.array([[[3.0, -2.0, 7.0], [3.0, 5.0, 7.01]]], dtype=dtype)
    _, _, y, _ = normalise(x)
    half = np.sqrt(0.5)
    np.testing.assert_allclose(y, [[[0, -half, -half], [0, half, half]]], atol=1e-3)
    assert (y[..., 0] == 0).all() and y.dtype == dtype


def test_a_constant_feature_has_a_steep_slope():
    layer, p, _, saved = normalise(np.full((1, 2, 1), 0.3))
    dx = layer.backward(p, saved, np.array([[[1.0], [0.0]]]), params.allocate(layer.parameters(), "float64")[1])
    np.testing.assert_allclose(dx.ravel(), [5_000, -5_000])         # half of 1 / sqrt(1e-8), and what it takes back


def test_segments_do_not_see_one_another():
    x = np.random.default_rng(0).standard_normal((2, 6, 4))
    whole = normalise(x, 3)[2]
    for segment in range(3):
        part = slice(2 * segment, 2 * segment + 2)
        np.testing.assert_array_equal(whole[:, part], normalise(x[:, part])[2])


def test_refusals():
    refused("x has 5 positions; allowed: multiples of segments, 3, two in each", normalise, np.ones((1, 5, 2)), 3)
    refused("x has 3 positions; allowed: multiples of segments, 3, two in each", normalise, np.ones((1, 3, 2)), 3)
    refused("segments is 0; allowed: whole numbers of at least 1", ContextNorm, 4, 0)
    layer = ContextNorm(4)
    refused("x has shape (2, 4); allowed: (b, t, m) with m = 4", layer.forward,
            params.allocate(layer.parameters(), np.float64)[1], np.ones((2, 4)))
