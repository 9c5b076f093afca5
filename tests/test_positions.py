"""Positions: T5's buckets against their scalar formula, rotary's invariances, bad settings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refattn.attention import transformer_xl
from refattn.attention.layer import MultiHead
from refattn.attention.transformer_xl import TransformerXL
from refattn.layers import positions
from refattn.layers.positions import T5, Rotary, halves_table, image_table, sinusoidal, t5_buckets
from refattn.layers.text_positions import ALiBi, Kerple, LearnedTable
from refattn.verification.naive.positions import bucket
from refattn.verification.theorems.statement import filled


@given(st.integers(2, 40), st.integers(1, 200), st.booleans())
def test_buckets_are_those_of_the_scalar_formula(buckets, beyond, bidirectional):
    buckets += 2 * bidirectional
    distance = buckets // 2 + beyond
    ours = t5_buckets(30, 50, buckets, distance, bidirectional)
    assert ours.dtype == np.int32 and ours.min() >= 0 and ours.max() < buckets
    assert ours.tolist() == [[bucket(q - k, buckets, distance, bidirectional) for k in range(50)] for q in range(30)]
    later = t5_buckets(3, 50, buckets, distance, bidirectional, start=27)
    assert later.tolist() == ours.tolist()[27:]


@pytest.mark.parametrize("buckets, distance, n, bucket", [(3, 169, 13, 1), (19, 196, 42, 13), (51, 169, 65, 37)])
def test_buckets_round_their_logarithm_as_the_released_code_does(buckets, distance, n, bucket):
    """To float32: without rounding these stand where the next bucket begins, n / m being the root of distance / m."""
    assert t5_buckets(n + 1, 1, buckets, distance)[n, 0] == bucket


def test_released_buckets_do_not_see_later_keys():
    ours = t5_buckets(32, 32, 32, 32)
    assert (ours[np.triu_indices(32)] == 0).all() and ours[19, 0] == 19 and ours[31, 0] == 31


def test_bias_depends_on_the_distance_only():
    layer = T5(3, 8, 16, bidirectional=True)
    p = type("P", (), {"table": np.arange(24.0).reshape(3, 8)})
    bias, index = layer.forward(p, 9, 9)
    assert all(len(set(np.diagonal(bias[1], offset))) == 1 for offset in range(-8, 9)) and index.shape == (3, 9, 9)
    assert not np.array_equal(bias[0], bias[0].T)


@pytest.mark.parametrize("pairing", ["interleaved", "half"])
def test_rotary_keeps_lengths_and_depends_on_distances(pairing):
    rng = np.random.default_rng(0)
    one, two = rng.standard_normal((2, 6))
    x = np.broadcast_to(one, (1, 12, 1, 6)).copy()
    q, k, *_ = Rotary(pairing=pairing).forward(None, x, np.broadcast_to(two, x.shape).copy())
    products = np.einsum("bqhd,bkhd->qk", q, k)
    assert np.allclose(np.linalg.norm(q, axis=-1), np.linalg.norm(one), rtol=1e-13, atol=0)
    assert all(np.ptp(np.diagonal(products, offset)) < 1e-12 for offset in range(-8, 9))
    assert products[0, 0] == pytest.approx(one @ two)


@pytest.mark.parametrize("layer", [Rotary(), T5(2, 8, 16), ALiBi(2), TransformerXL(8, 2, 4)])
def test_what_is_kept_between_calls_cannot_be_written(layer):
    p, x = filled(layer, np.random.default_rng(0)), np.ones((1, 3, 2, 4))
    saved = layer.forward(p, 3, 3)[1] if isinstance(layer, T5) else layer.forward(p, x, x)
    arrays = [saved] if isinstance(layer, T5) else [saved[2]] if isinstance(layer, ALiBi) else (
        saved[3].queries + saved[3].keys if isinstance(layer, Rotary) else [saved[3].table])
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


@pytest.mark.parametrize("layer", [Rotary(), TransformerXL(8, 2, 4)])
def test_a_text_that_grows_needs_few_tables(layer):
    kept = positions._angles if isinstance(layer, Rotary) else transformer_xl._table
    kept.cache_clear()
    p, q = filled(layer, np.random.default_rng(0)), np.ones((1, 1, 2, 4))
    for n in range(1, 65):
        layer.forward(p, q, np.ones((1, n, 2, 4)), range(n - 1, n))
    assert kept.cache_info().misses <= 7


def test_rotary_starts_where_the_queries_are_read():
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 1, 7, 2, 4))
    rotary = Rotary()
    whole = rotary.forward(None, q, k)
    for read in slice(2, 5), slice(-1, None), slice(3, None), slice(1, None, 3), slice(None, None, -2), slice(3, 0, -1):
        part = rotary.forward(None, q[:, read], k, range(7)[read])
        assert np.array_equal(part[0], whole[0][:, read]) and np.array_equal(part[1], whole[1])


@pytest.mark.parametrize("position", [Rotary(), TransformerXL(6, 2, 4)])
def test_reading_is_slicing_whatever_the_lengths(position):
    rng = np.random.default_rng(0)
    layer = MultiHead(6, 2, 4, position=position)
    p, x, context = filled(layer, rng), rng.standard_normal((2, 9, 6)), rng.standard_normal((2, 4, 6))
    for read in slice(2, 5), slice(-1, None), slice(1, None, 3), slice(None, None, -2):
        for options in {}, {"context": context}:              # queries stand at positions of x, also beyond the context
            if read.step is None or position.parameters() == {}:
                y = layer.forward(p, x, read=read, **options)[0]
                np.testing.assert_allclose(y, layer.forward(p, x, **options)[0][:, read], rtol=1e-10)
            else:
                with pytest.raises(ValueError, match=f"step of the queries is {read.step}; allowed: 1"):
                    layer.forward(p, x, read=read, **options)


def test_the_pairings_are_the_same_up_to_the_order_of_features():
    x = np.random.default_rng(0).standard_normal((1, 5, 2, 6))
    order = [0, 2, 4, 1, 3, 5]
    half = Rotary(pairing="half").forward(None, x[..., order], x)[0]
    assert np.allclose(half, Rotary().forward(None, x, x)[0][..., order], rtol=1e-14, atol=0)


@pytest.mark.parametrize("call, words", [
    (lambda: Rotary(pairing="split"), "pairing is 'split'; allowed: interleaved, half"),
    (lambda: Rotary().forward(None, np.ones((1, 2, 1, 3)), np.ones((1, 2, 1, 3))), "head width is 3; allowed: even"),
    (lambda: t5_buckets(2, 2, 1, 8), "buckets is 1; allowed: whole numbers of at least 2"),
    (lambda: t5_buckets(2, 2, 8, 4), "max_distance is 4; allowed: numbers above 4"),
    (lambda: t5_buckets(2, 2, 8, float("nan")), "max_distance is nan; allowed: numbers above 4"),
    (lambda: t5_buckets(2, 2, 2, 8, bidirectional=True), "buckets is 2; allowed: whole numbers of at least 4"),
    (lambda: sinusoidal(4, 3), "width is 3; allowed: even numbers"),
    (lambda: sinusoidal(4, 2, 0), "base is 0; allowed: numbers above 0, and finite"),
    (lambda: sinusoidal(4, 2, -3.0), "base is -3.0; allowed: numbers above 0, and finite"),
    (lambda: Rotary("a"), "base is 'a'; allowed: numbers above 0, and finite"),
    (lambda: t5_buckets(2, 2, 8, "3"), "max_distance is 3; allowed: numbers above 4"),
    (lambda: t5_buckets(2.5, 3, 8, 20), "queries is 2.5; allowed: whole numbers of at least 0"),
    (lambda: T5(2, 8, 16).forward(filled(T5(2, 8, 16), np.random.default_rng(0)), 1.5, 3), "queries is 1.5"),
    (lambda: sinusoidal(-1, 4), "length is -1"), (lambda: image_table(1.5, 2), "length is 1.5"),
    (lambda: image_table(2, 1.5), "width is 1.5"), (lambda: halves_table(3, 4, start=-1), "start is -1"),
])
def test_bad_settings(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("layer", [Rotary(), ALiBi(2), Kerple(2), TransformerXL(8, 2, 4)])
def test_queries_and_keys_are_of_one_kind_and_stand_at_a_range(layer):
    p, x = filled(layer, np.random.default_rng(0)), np.ones((1, 3, 2, 4))
    for at in 2, [0, 1, 2], range(2), range(-1, 2), range(1, -2, -1):
        with pytest.raises(ValueError, match="; allowed: None and a range of 3 positions from 0 on"):
            layer.forward(p, x, x, at)
    for q, words in (x.astype(int), "q has dtype int64"), (x.astype("f"), "q is float32 but k is float64"):
        with pytest.raises(TypeError, match=words):
            layer.forward(p, q, x)


def test_a_learned_table_has_the_dtype_of_its_tokens():
    layer = LearnedTable(5, 4)
    with pytest.raises(TypeError, match="x is float32 but table is float64"):
        layer.forward(filled(layer, np.random.default_rng(0)), np.ones((2, 3, 4), "f"))


def test_the_log_kernel_has_no_greatest_p():
    assert Kerple(2, "log").parameters()["p"].span == (0.01, np.inf)
    assert Kerple(2, "power").parameters()["p"].span == (0.01, 2.0)
