"""The definitions around attention: positions, small operations, the whole decoder, the optimiser."""

import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from refattn import params
from refattn.attention.layer import MultiHead
from refattn.models.transformer import decoder
from refattn.verification.naive import feed_forward, losses, ops, optim, positions
from refattn.verification.naive.hyla import hyla
from refattn.verification.naive.linear import linear
from refattn.verification.naive.softmax import softmax
from refattn.verification.naive.transformer import transformer

B, H, D, E, M = 2, 3, 5, 2, 6


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def deviation(a, b):
    return np.abs(a - b).max() / np.abs(b).max()


def projections(rng):
    return SimpleNamespace(wq=rng.normal(size=(M, H, D)), wk=rng.normal(size=(M, H, D)), wv=rng.normal(size=(M, H, E)),
                           wo=rng.normal(size=(H, E, M)))


# ---------------------------------------------------------------- positions

def test_buckets_of_the_lengths_used():
    used = {T: [positions.bucket(n, T, T) for n in range(T)] for T in (16, 32, 36, 64, 96)}
    assert used[16] == list(range(16))
    assert used[32] == [*range(20), *range(21, 29), 28, *used[32][29:]] and 20 not in used[32]
    assert used[36] == [*range(21), *range(22, 33), 32, *used[36][33:]] and 21 not in used[36]
    assert set(range(64)) - set(used[64]) == {35, 40}
    assert set(range(96)) - set(used[96]) == {51, 55, 60, 69}
    assert all(positions.bucket(-n, 32, 32) == 0 for n in range(32))
    for T, row in used.items():
        assert row == sorted(row) and row[-1] == T - 1


def test_bidirectional_buckets_are_the_published_ones():
    # Raffel et al.: 32 buckets, 128 tokens; 16 for each sign, exact up to 7, shared beyond
    for n in range(200):
        behind, ahead = (positions.bucket(d, 32, 128, bidirectional=True) for d in (n, -n))
        assert behind < 16 and ahead == (behind + 16 if n else 0)
        assert (behind == n) == (n <= 8)


# ---------------------------------------------------------------- ops, losses, networks

def test_small_operations_by_hand():
    np.testing.assert_array_equal(ops.relu([-1.0, 0.0, 2.0]), [0, 0, 2])
    np.testing.assert_allclose(ops.gelu_exact([1.0]), [0.8413447460685429])
    np.testing.assert_allclose(ops.gelu([1.0]), [0.8411919906082768])
    np.testing.assert_allclose(ops.silu([0.0, np.log(3)]), [0, 0.75 * np.log(3)])
    np.testing.assert_array_equal(ops.embedding([[1.0], [2.0], [3.0]], [[2, 0]]), [[[3], [1]]])
    np.testing.assert_array_equal(ops.softmax([[1.0, 2.0]], keep=[[False, False]]), [[0, 0]])
    np.testing.assert_allclose(feed_forward.swiglu([np.log(3)], [[2.0]], [[1.0]], [[4.0]]), [8 * np.log(3) ** 2 * 0.75])
    logits, labels, weights = [[0.0, np.log(3)], [0.0, 0.0]], [0, 1], [3.0, 1.0]
    assert math.isclose(losses.cross_entropy(logits, labels, weights), (3 * np.log(4) + np.log(2)) / 4)


def test_complex_input_gives_the_derivative(rng):
    q, k, v = (rng.normal(size=(B, 4, H, width)) for width in (D, D, E))
    direction = rng.normal(size=q.shape)
    for page in (softmax, linear, hyla):
        slope = page(q + 1e-30j * direction, k, v).imag / 1e-30
        difference = (page(q + 1e-6 * direction, k, v) - page(q - 1e-6 * direction, k, v)) / 2e-6
        assert deviation(slope, difference) < 1e-7


def small_decoder(rng, blocks=2, f=5):
    def norm():
        return SimpleNamespace(scale=rng.normal(size=M), shift=rng.normal(size=M))

    def block():
        return SimpleNamespace(
            attention=projections(rng), norm1=norm(), norm2=norm(),
            position=SimpleNamespace(table=rng.normal(size=(H, 4))),
            feed_forward=SimpleNamespace(
                w1=rng.normal(size=(M, f)), b1=rng.normal(size=f), w2=rng.normal(size=(f, M)), b2=rng.normal(size=M)),
        )

    return SimpleNamespace(
        embed=SimpleNamespace(w=rng.normal(size=(3, M)), b=rng.normal(size=M)), blocks=[block() for _ in range(blocks)],
        norm=norm(), readout=SimpleNamespace(w=rng.normal(size=(M, 2)), b=rng.normal(size=2)),
    )


def test_a_decoder_whose_blocks_add_nothing_is_its_norm_between_two_maps(rng):
    p, x = small_decoder(rng), rng.normal(size=(B, 4, 3))
    for block in p.blocks:
        block.attention.wo[:] = 0
        block.feed_forward.w2[:] = 0
        block.feed_forward.b2[:] = 0
    h = x @ p.embed.w + p.embed.b
    h = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-6) * p.norm.scale + p.norm.shift
    assert deviation(transformer(p, x), h @ p.readout.w + p.readout.b) < 1e-13


@pytest.mark.parametrize("page", [softmax, linear, hyla])
def test_a_causal_decoder_does_not_look_ahead(page, rng):
    p, x = small_decoder(rng), rng.normal(size=(1, 4, 3))
    changed = x.copy()
    changed[0, 2] += 1
    before, after = (transformer(p, inputs, page=page, causal=True) for inputs in (x, changed))
    np.testing.assert_array_equal(before[0, :2], after[0, :2])
    assert (before[0, 2:] != after[0, 2:]).all()
    assert (transformer(p, x, page=page)[0, 0] != transformer(p, changed, page=page)[0, 0]).all()


# ---------------------------------------------------------------- optimiser

@pytest.mark.parametrize(("c", "steps", "warmup", "rate"), [
    (0, 50_000, 100, 0.0), (1, 50_000, 100, 1e-5), (100, 50_000, 100, 1e-3), (25_000, 50_000, 100, 5.5e-4),
    (49_900, 50_000, 100, 1e-4), (49_999, 50_000, 100, 1e-4), (78_125, 156_250, 1000, 5.5e-4),
])
def test_schedule_as_released(c, steps, warmup, rate):
    assert math.isclose(optim.schedule(c, rate=1e-3, steps=steps, warmup=warmup), rate, rel_tol=1e-9)


def test_schedule_as_in_the_text():
    rate = partial(optim.schedule, rate=1.0, steps=1000, warmup=100, decay_length="text")
    assert math.isclose(rate(100 + 450), 0.55) and math.isclose(rate(1000), 0.1) and rate(999) > 0.1
    with pytest.raises(ValueError, match="decay_length is 'paper'; allowed: 'released', 'text'"):
        optim.schedule(200, rate=1.0, steps=1000, warmup=100, decay_length="paper")
    with pytest.raises(ValueError, match="leave 0 steps of decay"):
        optim.schedule(20, rate=1.0, steps=20, warmup=10)


def test_adamw_by_hand():
    # the first update is the sign of the gradient; the second, with gradients 1 and -1, is worked out below
    adamw = partial(optim.adamw, rate=0.1, decay=0.5, decayed=[True, False])
    p, first, second = adamw([2.0, 2.0], [1.0, 1.0], [0.0, 0.0], [0.0, 0.0], 1)
    np.testing.assert_allclose(p, [2 - 0.1 - 0.1, 2 - 0.1], rtol=1e-8)
    p, *_ = adamw(p, [-1.0, -1.0], first, second, 2)
    step = (0.9 * 0.1 - 0.1) / (1 - 0.81)                                       # over sqrt(1) = 1
    np.testing.assert_allclose(p, [1.8 - 0.1 * (step + 0.9), 1.9 - 0.1 * step], rtol=1e-8)


def test_clipping_leaves_short_gradients_alone():
    assert optim.clip_by_global_norm([3.0, 4.0], 5.0) == ([3.0, 4.0], 5.0)
    clipped, norm = optim.clip_by_global_norm([30.0, 40.0], 5.0)
    assert math.isclose(norm, 50) and np.allclose(clipped, [3, 4])


def test_a_causal_model_that_is_given_a_keep_looks_back_all_the_same():
    model = decoder(MultiHead(8, 2, 4), hidden=8, layers=1, vocabulary=5, outputs=5, causal=True)
    flat, p = params.allocate(model.parameters(), np.float64)
    params.initialise(flat, model.parameters(), np.random.default_rng(0), "random")
    keep = np.array([True, True, False, True])[None, None, None]
    one, two = (model.forward(p, np.array([[1, 2, 3, last]]), keep=keep)[0] for last in (4, 0))
    np.testing.assert_array_equal(one[:, :3], two[:, :3])
    assert (model.forward(p, np.array([[1, 2, 0, 4]]), keep=keep)[0][:, 3] == one[:, 3]).all()
