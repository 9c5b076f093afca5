"""Key tiles: the results are a theorem; here are the memory they promise, the refusals, and long sequences."""

import tracemalloc

import numpy as np
import pytest

from refattn.attention import VARIANTS
from refattn.attention.tiled import tiled, tiled_backward
from refattn.verification.cases.case import normal

TILED = [name for name, row in VARIANTS.items() if row.tiles]


def draw(length, heads=2, width=4, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((1, length, heads, width), dtype=np.float32) for _ in range(4)]


def peak(f):
    tracemalloc.start()
    try:
        result = f()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("page", ["softmax", "linear", "hyla"])
def test_memory_grows_with_length_times_tile_not_length_squared(page):
    """At T = 2,048 a single T x T array of two float32 heads is 34 MB; forward and backward together stay below it."""
    q, k, v, do = draw(2048)
    (_, saved), forward = peak(lambda: tiled(q, k, v, page=page, tile=64))
    _, backward = peak(lambda: tiled_backward(saved, do))
    assert max(forward, backward) < 2 * 2048 * 2048 * 4 / 2
    _, whole = peak(lambda: VARIANTS[page].forward(q, k, v))
    assert whole > 2 * 2048 * 2048 * 4


@pytest.mark.parametrize("page", TILED)
def test_every_tileable_variant_in_float32(page):
    q, k, v, do = draw(37, seed=1)
    size = dict(zip("bqhde", (*q.shape, v.shape[-1]), strict=True)) | {"k": k.shape[1]}
    rng = np.random.default_rng(2)
    extras = [normal(rng, axes, size).astype(np.float32) for axes in VARIANTS[page].extras.values()]
    o, saved = VARIANTS[page].forward(q, k, v, *extras)
    o2, saved2 = tiled(q, k, v, *extras, page=page, tile=8)
    assert o2.dtype == np.float32 and np.abs(o2 - o).max() < 2e-5 * np.abs(o).max()
    for ours, theirs in zip(tiled_backward(saved2, do), VARIANTS[page].backward(saved, do), strict=False):
        if theirs is None:
            continue
        assert ours.dtype == np.float32 and np.abs(ours - theirs).max() < 1e-4 * np.abs(theirs).max()


def test_softmax_tiles_survive_scores_that_overflow_exp():
    q, k, v, _ = draw(16, seed=2)
    o, _ = tiled(300 * q, 300 * k, v, page="softmax", tile=3)
    assert np.isfinite(o).all()
    np.testing.assert_allclose(o, VARIANTS["softmax"].forward(300 * q, 300 * k, v)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("options", "message"), [
    ({"tile": 0}, "tile is 0; allowed: whole numbers of at least 1"),
    ({"page": "hyla_softmax_for_rms_head"}, "cannot be tiled over keys; allowed: softmax, "),
    ({"page": "hyla_and_softmax"}, "cannot be tiled over keys; allowed: softmax, "),
    ({"page": "flash"}, "variant 'flash' is unknown; allowed: softmax, "),
])
def test_bad_input(options, message):
    q, k, v, _ = draw(5)
    with pytest.raises(ValueError, match=message):
        tiled(q, k, v, **options)
