"""The definitions of attention against numbers worked by hand, and against one another where they must agree."""

import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from refattn.verification.naive import as_hypernetwork, layer, ops, positions
from refattn.verification.naive.ablations import CODE_USES, NORMALISERS, PHIS, ablation
from refattn.verification.naive.hyla import hyla
from refattn.verification.naive.linear import linear
from refattn.verification.naive.softmax import softmax

B, Q, K, H, D, E, M = 2, 3, 4, 3, 5, 2, 6                   # no two neighbours alike


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def qkv(rng):
    return rng.normal(size=(B, Q, H, D)), rng.normal(size=(B, K, H, D)), rng.normal(size=(B, K, H, E))


def deviation(a, b):
    return np.abs(a - b).max() / np.abs(b).max()


# ---------------------------------------------------------------- attention

def test_softmax_by_hand():
    # scores (ln 1, ln 2, ln 5) and the bias (0, 0, -ln 5): weights 1/4, 2/4, 1/4; dropout removes the second key
    q, k, v = np.full((1, 1, 1, 4), 1.0), np.zeros((1, 3, 1, 4)), np.array([[[[4.0]], [[8.0]], [[12.0]]]])
    k[0, :, 0, 0] = 2 * np.log([1.0, 2.0, 5.0])
    bias = np.array([0.0, 0.0, -np.log(5)])
    assert math.isclose(softmax(q, k, v, bias=bias).item(), 1 + 4 + 3)
    assert math.isclose(softmax(q, k, v, bias=bias, dropout=np.array([2.0, 0.0, 2.0])).item(), 2 + 6)
    assert math.isclose(softmax(q, k, v, bias=bias, keep=np.array([True, True, False])).item(), (4 + 2 * 8) / 3)


def test_one_head_of_hyla_is_a_sign():
    q, k, v = np.ones((1, 1, 1, 1)), np.array([[[[3.0]], [[-2.0]]]]), np.array([[[[5.0]], [[7.0]]]])
    # codes +1 and -1; the second key's hidden value -7 is cut off
    assert math.isclose(hyla(q, k, v).item(), 5.0, rel_tol=1e-6)
    # ... and with -v the first is cut off and the second gives (-1) relu((-1)(-7))
    assert math.isclose(hyla(q, k, -v).item(), -7.0, rel_tol=1e-6)


def test_dropout_is_seen_by_both_uses_of_the_code():
    q, k, v = np.ones((1, 1, 1, 1)), np.ones((1, 1, 1, 1)), np.ones((1, 1, 1, 1))
    assert math.isclose(hyla(q, k, v, dropout=3.0).item() / hyla(q, k, v).item(), 9)
    assert math.isclose(linear(q, k, v, dropout=3.0).item(), 3)


def test_the_mean_over_heads_counts_heads_that_are_not_kept():
    q, k, v = np.ones((1, 1, 2, 1)), np.array([[[[3.0], [4.0]]]]), np.ones((1, 1, 2, 1))
    keep = np.array([True, False])[None, :, None, None]
    code = ablation(q, k, v, normaliser="rms_head", code_uses=1, phi="identity", keep=keep).ravel()
    np.testing.assert_allclose(code, [math.sqrt(2), 0], rtol=1e-6)


@pytest.mark.parametrize(("page", "knobs"), [
    (softmax, ("softmax", 1, "identity")), (linear, ("none", 1, "identity")), (hyla, ("rms_head", 2, "relu")),
])
def test_the_knobs_reach_the_pages(page, knobs, rng):
    q, k, v = qkv(rng)
    given = {
        "bias": rng.normal(size=(H, Q, K)), "keep": rng.random((B, 1, Q, K)) < 0.6, "dropout": rng.random((Q, K)),
    }
    normaliser, code_uses, phi = knobs
    expected = page(q, k, v, **given)
    assert deviation(ablation(q, k, v, normaliser=normaliser, code_uses=code_uses, phi=phi, **given), expected) < 1e-14


@pytest.mark.parametrize("phi", PHIS)
@pytest.mark.parametrize("code_uses", CODE_USES)
@pytest.mark.parametrize("normaliser", NORMALISERS)
def test_what_is_not_kept_contributes_nothing(normaliser, code_uses, phi, rng):
    q, k, v = qkv(rng)
    keep = rng.random((B, 1, Q, K)) < 0.7
    keep[1, :, 2] = False
    keep[0, :, 0, 1] = False
    knobs = {"normaliser": normaliser, "code_uses": code_uses, "phi": phi, "keep": keep}
    knobs["wv2"] = rng.normal(size=(H, E, E)) if code_uses == 3 else None
    o = ablation(q, k, v, **knobs)
    assert np.isfinite(o).all() and not o[1, 2].any()
    k[0, 1], v[0, 1] = 1e3, -1e3
    np.testing.assert_array_equal(ablation(q, k, v, **knobs)[0, 0], o[0, 0])


def test_the_two_orders_of_softmax_and_rms_head_by_hand():
    # two heads, two keys; softmax first: weights (1/4, 3/4) and (3/4, 1/4), then over heads divided by sqrt(5/16)
    q, k = np.ones((1, 1, 2, 1)), np.zeros((1, 2, 2, 1))
    k[0, 1, 0], k[0, 0, 1] = np.log(3), np.log(3)
    v = np.zeros((1, 2, 2, 1))
    v[0, 0] = 1.0                                           # reads the weight of key 0
    first = ablation(q, k, v, normaliser="softmax_rms_head", code_uses=1, phi="identity").ravel()
    np.testing.assert_allclose(first, np.array([1, 3]) / math.sqrt(5), rtol=1e-5)
    # RMSHead first: at each key the scores (0, ln 3) become (0, sqrt 2), then softmax over keys
    last = ablation(q, k, v, normaliser="rms_head_softmax", code_uses=1, phi="identity").ravel()
    grown = math.exp(math.sqrt(2))
    np.testing.assert_allclose(last, [1 / (1 + grown), grown / (1 + grown)], rtol=1e-5)


def test_the_deep_value_network_by_hand():
    # one head, the code 2, v = (1, -1): z1 = relu(2, -2) = (2, 0), z2 = relu(2 (2, 0) W) = (12, 0), o = 2 z2
    q, k, v = np.full((1, 1, 1, 1), 2.0), np.ones((1, 1, 1, 1)), np.array([[[[1.0, -1.0]]]])
    wv2 = np.array([[[3.0, -5.0], [7.0, 11.0]]])
    o = ablation(q, k, v, normaliser="none", code_uses=3, phi="relu", wv2=wv2).ravel()
    np.testing.assert_array_equal(o, [24, 0])


@pytest.mark.parametrize(("change", "message"), [
    ({"normaliser": "rms"}, "normaliser is 'rms'"), ({"code_uses": 4}, "code_uses is 4"), ({"phi": "gelu"}, "phi is"),
    ({"code_uses": 3}, "wv2 is missing, but code_uses is 3"), ({"wv2": np.ones((H, E, E))}, "wv2 is given, but"),
])
def test_unknown_knobs(change, message, rng):
    with pytest.raises(ValueError, match=message):
        ablation(*qkv(rng), **{"normaliser": "none", "code_uses": 2, "phi": "relu"} | change)


# ---------------------------------------------------------------- the paper's equations

def test_equations_2_to_5_are_one_function(rng):
    a, x = rng.normal(size=(B, H, Q, K)), rng.normal(size=(B, K, M))
    wv, wo = rng.normal(size=(M, H, E)), rng.normal(size=(H, E, M))
    expected = np.einsum("bhqk,bkm,mhe,hen->bqn", a, x, wv, wo)
    for equation in ("eq_2", "eq_3", "eq_4", "eq_5"):
        assert deviation(getattr(as_hypernetwork, equation)(a, x, wv, wo), expected) < 1e-13, equation
    hidden = np.maximum(np.einsum("bhqk,bkm,mhe->bqke", a, x, wv), 0)
    assert deviation(as_hypernetwork.eq_6(a, x, wv, wo), np.einsum("bhqk,bqke,hen->bqn", a, hidden, wo)) < 1e-13


def projections(rng):
    return SimpleNamespace(wq=rng.normal(size=(M, H, D)), wk=rng.normal(size=(M, H, D)), wv=rng.normal(size=(M, H, E)),
                           wo=rng.normal(size=(H, E, M)))


def test_the_pseudocode_is_hyla_without_biases(rng):
    p, x = projections(rng), rng.normal(size=(B, K, M))
    y = layer.multi_head(p, x, page=hyla)
    # scores without 1 / sqrt(d) are sqrt(d) larger, so that epsilon has to be d times larger for the same code
    assert deviation(as_hypernetwork.pseudocode_hyla(x, **vars(p), epsilon=1e-6 * D), y) < 1e-13
    assert 1e-13 < deviation(as_hypernetwork.pseudocode_hyla(x, **vars(p)), y) < 1e-3
    q, k = np.einsum("btm,mhd->bthd", x, p.wq), np.einsum("btm,mhd->bthd", x, p.wk)
    a = ops.rms_head(np.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(D))
    assert deviation(as_hypernetwork.eq_6(a, x, p.wv, p.wo), y) < 1e-13


def test_a_layer_with_biases_context_and_rotary(rng):
    p = projections(rng)
    for name, shape in ("bq", (H, D)), ("bk", (H, D)), ("bv", (H, E)), ("bo", M):
        setattr(p, name, rng.normal(size=shape))
    x, context = rng.normal(size=(B, Q, M)), rng.normal(size=(B, K, M))
    shut = layer.multi_head(p, x, context=context, keep=np.zeros((Q, K), dtype=bool))
    np.testing.assert_array_equal(shut, np.broadcast_to(p.bo, shut.shape))
    knobs = partial(ablation, normaliser="rms_head", code_uses=2, phi="relu")
    by_page, by_knobs = (layer.multi_head(p, x, context=context, page=page) for page in (hyla, knobs))
    np.testing.assert_allclose(by_page, by_knobs, rtol=1e-13)
    # rotary scores depend on the difference of positions alone
    even = projections(rng)
    even.wq, even.wk = (rng.normal(size=(M, H, 4)) for _ in "qk")
    for pairing in ("interleaved", "half"):
        turns = [partial(positions.rotary, pairing=pairing, start=start) for start in (0, 9)]
        one, two = (layer.multi_head(even, x, position=turn) for turn in turns)
        assert deviation(one, two) < 1e-12 < 1e-3 < deviation(one, layer.multi_head(even, x))
