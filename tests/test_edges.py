"""Arguments at the edge of what is allowed: no epsilon, classes that cannot be, ids of few bits or from the end, very
small probabilities, states after keys, shapes that would be stretched."""

import copy
import pickle
import sys

import numpy as np
import pytest

from refattn import losses, ops, optim, params, xp
from refattn.attention import VARIANTS, Variant, masks
from refattn.attention.ablations import Knobs, ablation, ablation_backward
from refattn.attention.as_hypernetwork import eq_2, eq_3
from refattn.attention.compositional import Compositional, compositional
from refattn.attention.hyla import hyla, hyla_backward
from refattn.attention.layer import MultiHead
from refattn.attention.linear_state import KeptState, linear_state
from refattn.attention.pages import PAGES
from refattn.attention.sliding_dilated import SlidingDilated, sliding_dilated
from refattn.attention.softmax import softmax, softmax_backward
from refattn.attention.tiled import tiled, tiled_backward
from refattn.attention.transformer_xl import TransformerXL
from refattn.automata.compiled import WithReset, compiled
from refattn.automata.exactness import errors
from refattn.automata.finite import Automaton
from refattn.contract import contract
from refattn.layers.block import Block
from refattn.layers.context_norm import ContextNorm
from refattn.layers.convolution import Conv
from refattn.layers.embedding import Embedding, Readout
from refattn.layers.feed_forward import FeedForward, SwiGLU
from refattn.layers.mixture_of_experts import MixtureOfExperts, largest
from refattn.layers.next_token import next_token, next_token_backward
from refattn.layers.norm import LayerNorm
from refattn.layers.positions import T5, Rotary
from refattn.layers.recompute import recompute
from refattn.layers.stack import Stack
from refattn.layers.text_positions import ALiBi, Kerple, LearnedTable
from refattn.losses import cross_entropy
from refattn.models.contextual_retrieval import RetrievalNetwork
from refattn.models.encoder_decoder import EncoderDecoder
from refattn.models.esbn import RelationNetwork
from refattn.models.language import Language
from refattn.models.recurrent import Recurrent, linear_scan
from refattn.models.regular_gpt import RegularGPT, levels
from refattn.models.vision import ClassToken, TaskTokens
from refattn.verification.derivatives import derivative
from refattn.verification.naive.hyla import hyla as naive_hyla
from tests import strict_cupy


def test_a_projected_extra_may_have_a_name_of_several_letters(monkeypatch):
    """Also one whose first letter is that of another map: its gradient does not end there."""
    def forward(q, k, v, gate, **options):
        o, saved = softmax(q, k, v * gate, **options)
        return o, (saved, v, gate)

    def backward(saved, do):
        inner, v, gate = saved
        dq, dk, dgated, dbias = softmax_backward(inner, do)
        return dq, dk, dgated * gate, dbias, dgated * v

    x, dy, found = *np.random.default_rng(0).standard_normal((2, 2, 5, 8)), []
    for name in "u", "gate", "vk":
        monkeypatch.setitem(VARIANTS, name, Variant(name, forward, backward, "", "", "", extras={name: "bkhe"}))
        layer = MultiHead(8, 2, 3, variant=name)
        flat, p = params.allocate(layer.parameters(), np.float64)
        params.initialise(flat, layer.parameters(), np.random.default_rng(1), "random")
        flat_grads, grads = params.allocate(layer.parameters(), np.float64)
        y, saved = layer.forward(p, x)
        found.append((y, layer.backward(p, saved, dy, grads).x, flat_grads))
        assert f"w{name}" in dict(grads) and grads[f"w{name}"].any()
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


def test_rms_head_without_epsilon_leaves_masked_pairs_at_zero():
    rng = np.random.default_rng(0)
    q, k, v, do = rng.standard_normal((4, 2, 5, 3, 4))
    keep = np.tri(5, dtype=bool)
    o, saved = hyla(q, k, v, keep=keep, epsilon=0)
    np.testing.assert_allclose(o, naive_hyla(q, k, v, keep=keep, epsilon=0), rtol=1e-12, atol=1e-12)
    assert not saved.code[..., ~keep].any()
    later = k.copy()
    later[:, 4] += 1                                            # the last key, which the first four queries do not see
    np.testing.assert_array_equal(hyla(q, later, v, keep=keep, epsilon=0)[0][:, :4], o[:, :4])
    dq, dk, dv, _ = hyla_backward(saved, do)
    assert all(np.isfinite(x).all() for x in (dq, dk, dv))
    step = np.zeros_like(k, dtype=complex)
    step[1, 2, 1, 3] = 1e-30j
    slope = (hyla(q + 0j, k + step, v + 0j, keep=keep, epsilon=0)[0] * do).sum().imag / 1e-30
    assert dk[1, 2, 1, 3] == pytest.approx(slope, rel=1e-12)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "int32", "uint64"])
def test_targets_of_few_bits_are_found_in_a_large_vocabulary(dtype):
    rng = np.random.default_rng(0)
    h, table = rng.standard_normal((2, 128, 3)), rng.standard_normal((5_000, 3))
    target = rng.integers(0, 250, (2, 128))
    right, saved = next_token(h, table, target)
    loss, narrow = next_token(h, table, target.astype(dtype))
    np.testing.assert_array_equal(loss, right)
    logits = h @ table.T
    for one, other in zip(cross_entropy(logits, target.astype(dtype)), cross_entropy(logits, target), strict=True):
        np.testing.assert_array_equal(one, other)
    for x, y in zip(next_token_backward(narrow, np.ones_like(loss)), next_token_backward(saved, np.ones_like(loss)),
                    strict=True):
        np.testing.assert_array_equal(x, y)


def test_two_classes_may_be_false_and_true():
    logits, target = np.array([[0.3, -1.0], [2.0, 0.5]]), np.array([True, False])
    np.testing.assert_array_equal(losses.log_loss(logits, target), losses.log_loss(logits, target.astype(int)))
    np.testing.assert_array_equal(losses.cross_entropy(logits, target)[1], cross_entropy(logits, target.astype(int))[1])


@pytest.mark.parametrize("index", [np.array([True, False]), np.array([1.0]), strict_cupy.asarray(np.array([1]))])
def test_ids_are_integers_on_the_device_of_the_table(index):
    with pytest.raises(TypeError, match=r"index is \w+ of [\w.]+; allowed: integers of numpy"):
        ops.embedding(np.ones((2, 3)), index)
    with pytest.raises(TypeError, match="index is int64 of numpy; allowed: integers of tests.strict_cupy"):
        ops.embedding(strict_cupy.asarray(np.ones((2, 3))), np.array([1]))


@pytest.mark.parametrize("index, found", [([0, -1], "-1 to 0"), ([3, 4], "3 to 4"), ([-2], "-2 to -2")])
def test_an_id_that_the_vocabulary_lacks_is_refused_where_nothing_waits(index, found):
    """A negative one was the embedding of a token from the end of the table."""
    index = np.array([index])
    for model in Embedding(6, vocabulary=4), Recurrent(6, 4, 2):
        _, p = params.allocate(model.parameters(), np.float64)
        with pytest.raises(ValueError, match=f"index has {found}; allowed: 0 to 3"):
            model.forward(p, index)
    assert ops.embedding(strict_cupy.asarray(np.ones((6, 2))), strict_cupy.asarray(index)).shape == (*index.shape, 2)
    assert ops.embedding(np.ones((4, 2)), index[:, :0]).shape == (1, 0, 2)


@pytest.mark.parametrize("rows", [50, 70])
def test_an_index_without_signs_is_an_index(rows):
    index = np.array([[1, rows - 1, 1]], np.uint64)
    found = ops.embedding_backward(np.zeros((rows, 2)), index, np.ones((1, 3, 2)))
    assert found[1].tolist() == [2, 2] and found[-1].tolist() == [1, 1] and found.sum() == 6


@pytest.mark.parametrize("rows", [5, 70])
def test_an_id_from_the_end_of_a_table_has_its_gradient_there(rows):
    table, index = np.ones((rows, 2)), np.array([0, -1, rows - 1])
    np.testing.assert_array_equal(ops.embedding_backward(table, index, np.ones((3, 2)))[[0, -1]], [[1, 1], [2, 2]])


@pytest.mark.parametrize("spec", ["b,b->b", "bd,bd->b", "ab,bc->ac"])
def test_a_product_is_not_stretched_into_out(spec):
    x = np.ones((3, 3))
    operands = [x if len(letters) == 2 else x[0] for letters in spec.partition("->")[0].split(",")]
    with pytest.raises(ValueError, match=r"out has shape \(5, 3, 3\); allowed: \(3"):
        contract(spec, *operands, out=np.empty((5, 3, 3)))


def test_a_logit_of_minus_infinity_is_a_class_that_cannot_be():
    rng = np.random.default_rng(0)
    logits, target = rng.standard_normal((4, 5, 7)), rng.integers(0, 6, (4, 5))
    without, slopes = cross_entropy(logits[..., :6], target)
    logits[..., 6] = -np.inf
    loss, dlogits = cross_entropy(logits, target)
    assert loss == pytest.approx(float(without), rel=1e-15) and not dlogits[..., 6].any()
    np.testing.assert_allclose(dlogits[..., :6], slopes, rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_left_of_a_sigmoid_far_below_zero(dtype):
    x = np.array([-80, -40, -20, -17, 0, 17, 40, 1e4, -1e4], dtype)
    right = 1 / (1 + np.exp(-x.astype(np.longdouble)))
    close = {"rtol": 8 * np.finfo(dtype).eps, "atol": 0}
    y = ops.sigmoid(x)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, right.astype(dtype), **close)
    np.testing.assert_allclose(ops.silu(x), (x * right).astype(dtype), **close)
    slope = (right * (1 + x * (1 - right))).astype(dtype)
    np.testing.assert_allclose(ops.silu_backward(x, np.ones_like(x)), slope, **close)


def test_binary_cross_entropy_of_what_is_nearly_certain():
    """log(1 + e) is e itself, where e is below the precision of 1."""
    for x in (-20.0, -17.0):
        for target, side in (0, 1), (1, -1):
            loss, slope = losses.binary_cross_entropy(np.full(1, side * x, np.float32), np.full(1, target, np.float32))
            assert loss == pytest.approx(np.exp(x), rel=1e-6) and slope[0] == pytest.approx(side * np.exp(x), rel=1e-6)


def test_a_class_that_cannot_be_may_be_asked_for_where_nothing_counts():
    logits, target = np.array([[0, 1, -np.inf], [2, 0, -np.inf]]), np.array([0, 2])
    loss, slope = losses.cross_entropy(logits, target, np.array([1.0, 0.0]))
    assert loss == losses.cross_entropy(logits[:1], target[:1])[0] and np.isfinite(slope).all() and not slope[1].any()


REAL, WHOLE = np.zeros((4, 3)), np.zeros(4, int)


@pytest.mark.parametrize("call, words", [
    (lambda: losses.mse(REAL[:, :1], REAL[:, 0]), "target has shape (4,); allowed: (4, 1)"),
    (lambda: losses.mean_absolute_error(REAL[:, 0], REAL[:, :1]), "target has shape (4, 1); allowed: (4,)"),
    (lambda: losses.binary_cross_entropy(REAL[:, :1], REAL[:, 0]), "target has shape (4,); allowed: (4, 1)"),
    (lambda: losses.binary_cross_entropy(REAL, REAL, REAL[:, :1]), "weight has shape (4, 1); allowed: (4, 3)"),
    (lambda: losses.sigmoid_mse(REAL, REAL[:1]), "target has shape (1, 3); allowed: (4, 3)"),
    (lambda: losses.sigmoid_mse(REAL, REAL, REAL), "weight has shape (4, 3); allowed: (4,)"),
    (lambda: losses.cross_entropy(REAL, WHOLE[:, None]), "target has shape (4, 1); allowed: (4,)"),
    (lambda: losses.cross_entropy(REAL, WHOLE, REAL[:, :1]), "weight has shape (4, 1); allowed: (4,)"),
    (lambda: losses.sigmoid_mse(REAL, REAL, 0 * REAL[:, 0]),
     "a loss of shape (4, 3) has weights that sum to 0; allowed: other sums"),
    (lambda: losses.cross_entropy(REAL, WHOLE, np.array([1, -1, 0, 0])),
     "a loss of shape (4,) has weights that sum to 0; allowed: other sums"),
    (lambda: losses.binary_cross_entropy(REAL, REAL, np.zeros((4, 3), bool)),
     "a loss of shape (4, 3) has weights that sum to 0; allowed: other sums"),
    *((lambda loss=loss: loss(np.array(1.0), np.array(1)),
       "number of axes of logits is 0; allowed: whole numbers of at least 1")
      for loss in (losses.cross_entropy, losses.log_loss, losses.sigmoid_mse)),
    *((lambda loss=loss: loss(np.zeros((0, 0)), np.zeros(0, int)),
       "number of classes of logits is 0; allowed: whole numbers of at least 1")
      for loss in (losses.cross_entropy, losses.log_loss)),
    (lambda: losses.log_loss(REAL, WHOLE[:1]), "target has shape (1,); allowed: (4,)"),
    (lambda: losses.log_loss(REAL, WHOLE - 1), "target has -1 to -1; allowed: 0 to 2"),
    (lambda: losses.cross_entropy(REAL, WHOLE + 3), "target has 3 to 3; allowed: 0 to 2"),
    (lambda: losses.cross_entropy(REAL, WHOLE + 0.5), "target has dtype float64; allowed: integers, 0 to 2"),
    (lambda: losses.cross_entropy(REAL[0], np.int64(7)), "target has 7 to 7; allowed: 0 to 2"),
    (lambda: losses.log_loss(REAL, WHOLE + 0.5), "target has dtype float64; allowed: integers, 0 to 2"),
    (lambda: next_token(REAL[None], REAL, WHOLE[None] + 0.5), "target has dtype float64; allowed: integers, 0 to 3"),
])
def test_a_loss_stretches_nothing_and_knows_its_classes(call, words):
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == words


@pytest.mark.parametrize("loss", [losses.sigmoid_mse, losses.binary_cross_entropy, losses.cross_entropy])
def test_weights_on_a_device_are_not_asked_for_their_sum(loss):
    """The stand-in refuses to be waited for; 0 / 0 is NaN there."""
    target = WHOLE if loss is losses.cross_entropy else REAL
    weight = REAL if loss is losses.binary_cross_entropy else REAL[:, 0]
    given = [strict_cupy.asarray(x) for x in (REAL, target, weight)]
    with np.errstate(invalid="ignore", divide="ignore"), strict_cupy.forbid():
        value, _ = loss(*given)
    assert np.isnan(float(value))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float64"])
@pytest.mark.parametrize("loss", ["mse", "mean_absolute_error", "sigmoid_mse", "binary_cross_entropy", "cross_entropy"])
def test_a_loss_of_float32_is_float32_whatever_are_targets_and_weights(loss, dtype):
    rng = np.random.default_rng(0)
    y, ones = rng.standard_normal((4, 3)).astype("f"), rng.integers(0, 2, (4, 3))
    target = np.arange(4) % 3 if loss == "cross_entropy" else ones
    weight = None if "m" == loss[0] else np.ones((4, 3)) if loss[0] == "b" else np.array([1, 0, 1, 1])
    found = []
    for kind in "f", dtype:
        given = target if loss == "cross_entropy" else target.astype(kind)
        found.append(getattr(losses, loss)(y, given, *([] if weight is None else [weight.astype(kind)])))
    for one, other in zip(*found, strict=True):
        assert other.dtype == np.float32
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", ["float16", "int32"])
def test_parameters_are_of_at_least_32_bits(dtype):
    with pytest.raises(ValueError, match=f"dtype is {dtype}; allowed: floating point of at least 32 bits"):
        params.allocate(FeedForward(4, 8).parameters(), dtype)


def test_knobs_may_be_a_plain_tuple():
    q, k, v, do = np.random.default_rng(0).standard_normal((4, 2, 5, 3, 4))
    for knobs in (Knobs("rms_head", 2, "relu"), ("rms_head", 2, "relu")):
        o, saved = ablation(q, k, v, knobs=knobs)
        found = o, *ablation_backward(saved, do)[:3]
    right, saved = VARIANTS["hyla"].forward(q, k, v)
    for x, y in zip(found, (right, *VARIANTS["hyla"].backward(saved, do)), strict=False):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def linear_layer(**fields):
    layer = MultiHead(8, 2, 4, variant="linear", **fields)
    flat, p = params.allocate(layer.parameters(), np.float64)
    params.initialise(flat, layer.parameters(), np.random.default_rng(0), "random")
    return layer, p


@pytest.mark.parametrize("position", [None, Rotary(100.0)])
def test_linear_attention_that_was_begun_with_keys_goes_on_with_them(position):
    layer, p = linear_layer(position=position)
    x, keep = np.random.default_rng(1).standard_normal((2, 6, 8)), np.ones((6, 6), bool)
    keep[2, 0] = False
    right, _ = layer.forward(p, x, keep=keep & masks.causal(6))
    first, kept = layer.extend(p, x[:, :4], keep=keep[:4, :4])
    last, kept = layer.extend(p, x[:, 4:], kept)
    np.testing.assert_allclose(np.concatenate([first, last], 1), right, rtol=1e-12, atol=1e-12)
    assert not isinstance(kept, KeptState) and kept.length == 6


def test_a_state_has_no_key_to_leave_out():
    layer, p = linear_layer()
    x = np.random.default_rng(1).standard_normal((2, 6, 8))
    _, kept = layer.extend(p, x[:, :4])
    with pytest.raises(ValueError, match="kept is a state, of which no key can be left out; allowed: neither bias"):
        layer.extend(p, x[:, 4:], kept, keep=np.ones((2, 6), bool))


@pytest.mark.parametrize("make, words", [
    (lambda: MultiHead(8, 4, 2, position=ALiBi(2)), "heads of position is 2, but of the layer 4; allowed: the same"),
    (lambda: MultiHead(8, 4, 2, position=TransformerXL(8, 4, 1)), "head_width of position is 1, but of the layer 2; "
                                                                  "allowed: the same"),
    (lambda: TransformerXL(8, 0, 2), "heads is 0; allowed: whole numbers of at least 1"),
    (lambda: Block(MultiHead(8, 4, 2), FeedForward(8, 8), T5(2, 8, 16), epsilon=0),
     "position is T5(heads=2, buckets=8, max_distance=16, bidirectional=False); allowed: a bias for each of 4 heads"),
    (lambda: Block(MultiHead(8, 4, 2), FeedForward(8, 8), Rotary(), epsilon=0),
     "position is Rotary(base=10000.0, pairing='interleaved'); allowed: a bias for each of 4 heads"),
    (lambda: Block(MultiHead(8, 4, 2), FeedForward(8, 8), ALiBi(4), epsilon=0),
     "position is ALiBi(heads=4); allowed: a bias for each of 4 heads"),
    (lambda: MultiHead(8, 4, 2, position=T5(4, 8, 16)),
     "position is T5(heads=4, buckets=8, max_distance=16, bidirectional=False); allowed: what takes q and k, as "
     "Rotary (T5 is a block's)"),
    (lambda: MultiHead(8, 4, 3, position=Rotary()),
     "head_width is 3; allowed with Rotary: even numbers, to turn pairs"),
    (lambda: MultiHead(8, 4, 2, position="rotary"),
     "position is rotary; allowed: what takes q and k, as Rotary (T5 is a block's)"),
    (lambda: T5(2, 1, 16), "buckets is 1; allowed: whole numbers of at least 2"),
    (lambda: T5(2, 8, 4), "max_distance is 4; allowed: numbers above 4, the exact part"),
    (lambda: T5(0, 8, 16), "heads is 0; allowed: whole numbers of at least 1"),
    (lambda: Rotary(base=0.0), "base is 0.0; allowed: numbers above 0, and finite"),
    (lambda: Rotary(base=float("nan")), "base is nan; allowed: numbers above 0, and finite"),
])
def test_positions_that_do_not_fit_are_refused_when_they_are_made(make, words):
    with pytest.raises(ValueError) as caught:
        make()
    assert str(caught.value) == words


def test_a_recomputed_layer_stands_in_a_block():
    plain, again = (Block(wrap(MultiHead(8, 4, 2)), wrap(FeedForward(8, 8)), epsilon=1e-6)
                    for wrap in (lambda x: x, recompute))
    flat, p = params.allocate(plain.parameters(), np.float64)
    params.initialise(flat, plain.parameters(), np.random.default_rng(0), "random")
    x, dy = np.random.default_rng(1).standard_normal((2, 2, 5, 8))
    found = []
    for block in (plain, again):
        gradients, g = params.allocate(block.parameters(), np.float64)
        y, saved = block.forward(p, x)
        found.append((y, block.backward(p, saved, dy, g).x, gradients))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("inputs, forward, backward, words", [
    ({"x": np.ones(3)}, lambda i: (abs(i["x"]), i["x"]), lambda x, dy: {"x": np.sign(x) * dy},
     "forward gives real numbers for complex ones, as abs does; allowed: method None, 'finite'"),
    ({"x": np.ones(3)}, lambda i: (i["x"] * 2, None), lambda _, dy: 2 * dy,
     "backward returned a ndarray; allowed: {name: gradient}"),
    ({"n": np.ones(3, int)}, lambda i: (i["n"] * 2.0, None), lambda _, dy: {},
     "inputs are n; allowed: one of floats, not empty, no constant"),
])
def test_a_derivative_that_would_compare_nothing_or_nonsense_is_refused(inputs, forward, backward, words):
    with pytest.raises(ValueError) as caught:
        derivative(forward, backward, inputs, method="complex")
    assert str(caught.value) == words


def normalised(i):
    return i["x"] / np.abs(i["x"]).sum(), i["x"]


def normalised_backward(x, dy):
    n = np.abs(x).sum()
    return {"x": dy / n - np.sign(x) * (dy @ x) / n**2}


ODD = {                        # what the complex step cannot ask: gives real numbers, is not analytic, refuses
    "abs": (lambda i: (abs(i["x"]), i["x"]), lambda x, dy: {"x": np.sign(x) * dy}),
    "abs inside": (normalised, normalised_backward),
    "float": (lambda i: (np.array([float(x) ** 2 for x in i["x"]]), i["x"]), lambda x, dy: {"x": 2 * x * dy}),
}


def rms(i):
    size = np.sqrt((i["x"].astype(np.float64) ** 2).mean())
    return i["x"] / size, size


BLIND = {                      # (forward, wrong backward): what the complex step leaves out, the backward has forgotten
    "largest": (lambda i: (i["x"] / np.abs(i["x"]).max(), np.abs(i["x"]).max()), lambda size, dy: {"x": dy / size}),
    "abs inside": (lambda i: (normalised(i)[0], np.abs(i["x"]).sum()), lambda size, dy: {"x": dy / size}),
    "signed square": (lambda i: (i["x"] * abs(i["x"]), abs(i["x"])), lambda size, dy: {"x": size * dy}),
    "real": (lambda i: (i["x"].real**2 + 0 * i["x"], None), lambda s, dy: {"x": 0 * dy}),
    "cast": (rms, lambda size, dy: {"x": dy / size}),
}


@pytest.mark.filterwarnings("ignore:Casting complex")
@pytest.mark.parametrize("name", BLIND)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_backward_that_forgets_what_the_complex_step_does_not_see_is_wrong(name, dtype):
    for seed in range(20):
        x = {"x": np.random.default_rng(seed).standard_normal(6).astype(dtype)}
        assert not derivative(*BLIND[name], x).ok


@pytest.mark.parametrize("factor", [1.0, 1e-6, 1e6])
def test_a_kink_says_nothing_against_a_right_backward(factor):
    def forward(i):
        return factor * np.where(i["x"].real > 0, i["x"], 0) + 1, i["x"]

    for x in np.zeros(4), np.arange(-2.0, 3.0), np.random.default_rng(0).standard_normal(2_000) * 1e-5:
        assert derivative(forward, lambda x, dy: {"x": factor * dy * (x > 0)}, {"x": x}).ok


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("factor", [1, 1 + 1e-4])
def test_a_forward_that_is_not_analytic_has_its_derivative_by_differences(name, factor):
    forward, backward = ODD[name]
    x = {"x": np.random.default_rng(1).standard_normal(6)}
    assert derivative(forward, lambda s, dy: {"x": factor * backward(s, dy)["x"]}, x).ok == (factor == 1)


def filled(layer, seed=0):
    flat, p = params.allocate(layer.parameters(), np.float64)
    params.initialise(flat, layer.parameters(), np.random.default_rng(seed), "random")
    return p


@pytest.mark.parametrize("read", [slice(0, 3), slice(None, None, -1), slice(4, 5)])
def test_positions_that_are_read_keep_their_own_keys_of_the_context(read):
    rng = np.random.default_rng(0)
    block = Block(MultiHead(4, 2, 2), FeedForward(4, 5), epsilon=1e-5, cross=MultiHead(4, 2, 2))
    p, x, context = filled(block), rng.standard_normal((2, 5, 4)), rng.standard_normal((2, 3, 4))
    keep = rng.random((5, 3)) < 0.6
    whole, _ = block.forward(p, x, context=context, context_keep=keep)
    some, _ = block.forward(p, x, context=context, context_keep=keep, read=read)
    np.testing.assert_allclose(some, whole[:, read], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows, more", [(1, 2), (3, 1)])
def test_further_tokens_are_of_as_many_rows_as_are_kept(rows, more):
    layer = MultiHead(4, 2, 2)
    p = filled(layer)
    _, kept = layer.extend(p, np.ones((rows, 3, 4)))
    with pytest.raises(ValueError, match=rf"kept has {rows} rows of .*, the further tokens {more} of "):
        layer.extend(p, np.ones((more, 1, 4)), kept)


def test_a_schedule_says_what_is_read():
    stack = stack_of()
    with pytest.raises(ValueError, match=r"read beside a schedule is slice\(1, None, None\); allowed: None"):
        stack.forward(filled(stack), np.ones((1, 6, 4)), read=slice(1, None), schedule=stack.applications())


def test_an_encoder_that_slides_takes_no_mask_of_the_source():
    """Its masks are of offsets; with as many tokens as offsets the mask would fit, and mean something else."""
    sliding = Stack(Block(SlidingDilated(4, 2, 2, 3), FeedForward(4, 5), epsilon=1e-5), 2)
    ids = np.array([[1, 2, 0]])
    model = EncoderDecoder(Embedding(4, vocabulary=5), sliding, Embedding(4, vocabulary=5), LOOKING, Readout(4, 5))
    assert model.forward(filled(model), ids, target=ids)[0].shape == (1, 3, 5)
    for call in (lambda keep: model.forward(filled(model), ids, target=ids, source_keep=keep),
                 lambda keep: model.begin(filled(model), ids, keep)):
        with pytest.raises(ValueError, match="source_keep for an encoder that slides is True; allowed: False"):
            call(ids[:, None, None] > 0)


@pytest.mark.parametrize("dropout", [np.ones((3, 1, 2, 6, 6)), [None], [None] * 3])
def test_a_stack_takes_as_many_dropouts_as_it_applies_its_block(dropout):
    stack = Stack(Block(MultiHead(4, 2, 2), FeedForward(4, 5), epsilon=1e-5), 2)
    with pytest.raises(ValueError, match=f"dropout has {len(dropout)} entries; allowed: 2, one for each application"):
        stack.forward(filled(stack), np.ones((1, 6, 4)), dropout=dropout)


BLOCK = Block(MultiHead(4, 2, 2), FeedForward(4, 5), cross=MultiHead(4, 2, 2), epsilon=1e-5)
STACK = Stack(Block(MultiHead(4, 2, 2), FeedForward(4, 5), T5(2, 8, 16), epsilon=1e-5), 2)
READ, PAIRS = slice(1, 3), (2, 1, 4, 5)


@pytest.mark.parametrize("name, shape, made", [
    ("residual[1]", (2, 4, 4), lambda x: {"residual": [None, x, None]}), ("hidden", (2, 4, 5), lambda x: {"hidden": x}),
    ("context_keep", PAIRS, lambda x: {"context_keep": x > 0}), ("context_dropout", PAIRS,
                                                                 lambda x: {"context_dropout": x})])
def test_what_belongs_to_the_queries_that_are_read_is_cut_once(name, shape, made):
    """An array of the queries that are read was cut again, and its one row stretched over all of them."""
    rng = np.random.default_rng(0)
    p, x, context = filled(BLOCK), rng.standard_normal((2, 4, 4)), rng.standard_normal((2, 5, 4))
    given = rng.standard_normal(shape)
    y, _ = BLOCK.forward(p, x, context=context, **made(given))
    read, _ = BLOCK.forward(p, x, context=context, read=READ, **made(given))
    np.testing.assert_allclose(read, y[:, READ], rtol=1e-12)
    np.testing.assert_array_equal(read, BLOCK.forward(p, x, context=context, read=READ, **made(given[..., :3, :]))[0])
    for queries in 2, 5:
        wrong = np.ones((*shape[:-2], queries, shape[-1]))
        with pytest.raises(ValueError) as caught:
            BLOCK.forward(p, x, context=context, read=READ, **made(wrong))
        assert str(caught.value) == (f"{name} has shape {wrong.shape}; "
                                     "allowed with read: 1 or all 4 queries, or those up to the last read")


X, IDS = np.ones((2, 4, 4)), np.zeros((2, 4), int)
PAIR = EncoderDecoder(Embedding(4, vocabulary=3), STACK, Embedding(4, vocabulary=3), Stack(BLOCK, 1), Readout(4, 3))
ADDED = ALiBi(2), Kerple(2), TransformerXL(4, 2, 2)
SCALED = Embedding(4, vocabulary=3, scale=True), RegularGPT(SlidingDilated(4, 2, 2, 2), FeedForward(4, 5), 3, 2)


@pytest.mark.parametrize("layer, inputs, options, words", [
    (MultiHead(4, 2, 2), [X], {"keep": [True], "read": READ}, "keep is a list; allowed: an array of NumPy or CuPy"),
    (MultiHead(4, 2, 2), [X], {"dropout": 2.0, "read": READ}, "dropout is a float; allowed: an array"),
    (RetrievalNetwork(4, MultiHead(4, 2, 2), 0), [X], {"dropout": [2.0], "read": READ}, "dropout is a list; allowed"),
    (BLOCK, [X], {"context": X, "residual": [2.0, None, None], "read": READ}, "residual[0] is a float; allowed: an"),
    (BLOCK, [X], {"context": X, "hidden": [2.0], "read": READ}, "hidden is a list; allowed: an array"),
    (BLOCK, [X], {"context": X, "residual": 1}, "residual has 0 arrays; allowed: one for each of 3 sub-layers"),
    (STACK, [X], {"residual": 1}, "residual has 0 entries; allowed: 2, one for each application"),
    (STACK, [X], {"dropout": np.ones(())}, "dropout has 0 entries; allowed: 2, one for each application"),
    *((STACK, [X], {"read": read}, f"read is {read!r}; allowed: None and slices of integers, which keep the axis")
      for read in ("a", range(2), slice(0.0, 2.0), slice(0, 3, 0))),
    *((layer, [None], {}, "x is a NoneType; allowed: an array of NumPy or CuPy")
      for layer in (FeedForward(4, 5), LayerNorm(4), MultiHead(4, 2, 2), Embedding(4, 3), STACK, ContextNorm(4),
                    Conv(1, 2, 2))),
    *((layer, [np.ones(())] * 2, {}, "q has shape (); allowed: 4 axes (b, q, h, d)") for layer in (Rotary(), *ADDED)),
    (Rotary(), [np.ones((1, 3, 2, 2)), np.ones((1, 3, 2, 4))], {}, "axis d is 2 in q but 4 in k; allowed: one size"),
    *((MultiHead(4, 2, 2, position=position), [X], {"bias": np.ones((3, 3))},
       "bias has shape (3, 3); allowed: what broadcasts to (b, h, q, k) = (2, 2, 4, 4)") for position in ADDED),
    *((layer, [X.astype(dtype)], {}, f"x has dtype {dtype}; allowed: floating point")
      for layer in SCALED for dtype in ("int64", "bool")),
    (PAIR, [IDS], {"target": IDS[0]}, "x has shape (4,); allowed: ids (b, t)"),
    (PAIR, [IDS], {"target": np.int64(0)}, "x has shape (); allowed: ids (b, t)"),
    (PAIR, [IDS], {"target": [[0]]}, "is a list; allowed: an array of NumPy or CuPy"),
    (PAIR, [IDS], {"target": IDS, "source_keep": np.ones((2, 1, 4), bool)},
     "source_keep has shape (2, 1, 4); allowed: (2, 1, 1, 4)"),
    (T5(2, 8, 16), [3.0, 5], {}, "queries is 3.0; allowed: whole numbers of at least 0")])
def test_what_cannot_be_used_is_refused_by_its_name(layer, inputs, options, words):
    T5(2, 8, 16).forward(filled(T5(2, 8, 16)), 3, 5)                    # 3.0, which is equal to 3, found its bias
    with pytest.raises((ValueError, TypeError)) as caught:
        layer.forward(filled(layer), *inputs, **options)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("residual, words", [
    ([None], "residual has 1 arrays; allowed: one for each of 2 sub-layers"),
    (np.ones((2, 3, 6, 4)), r"residual\[0\] has shape \(3, ., 4\); allowed: what broadcasts to \(1, ., 4\)"),
    ((None, np.ones((3, 6, 4))), r"residual\[1\] has shape \(3, ., 4\); allowed: what broadcasts to \(1, ., 4\)")])
def test_a_block_has_a_residual_dropout_for_each_sub_layer(residual, words):
    block = Block(MultiHead(4, 2, 2), FeedForward(4, 5), epsilon=1e-5)
    for read in None, slice(2, None):
        with pytest.raises(ValueError, match=words):
            block.forward(filled(block), np.ones((1, 6, 4)), residual=residual, read=read)


@pytest.mark.parametrize("keep", [(3, 4), (2, 1, 2, 5), (1, 3, 2, 1)])
def test_further_tokens_have_a_keep_of_their_own_pairs(keep):
    block = Block(MultiHead(4, 2, 2), FeedForward(4, 5), epsilon=1e-5)
    kept = block.extend(filled(block), np.ones((1, 3, 4)))[1]
    with pytest.raises(ValueError, match=r"keep has shape .*; allowed: what broadcasts to \(b, h, q, k\) = \(1, 2"):
        block.extend(filled(block), np.ones((1, 2, 4)), kept, keep=np.ones(keep, bool))


def stack_of(width=4, **options):
    return Stack(Block(MultiHead(width, 2, 2), FeedForward(width, 5), epsilon=1e-5, **options), 2)


LOOKING = stack_of(cross=MultiHead(4, 2, 2))


@pytest.mark.parametrize("make, words", [
    (lambda: Stack(MultiHead(4, 2, 2), 2), "block is MultiHead("),
    (lambda: RetrievalNetwork(7, None, 1), "attention is None; allowed: layers in which"),
    (lambda: RegularGPT(SlidingDilated(4, 2, 2, 2), FeedForward(4, 5), 3, 3, embedding_scale="x"),
     "embedding_scale is 'x'; allowed: True and False"),
    (lambda: RegularGPT(MultiHead(4, 2, 2), FeedForward(4, 5), 3, 3), "dilation of attention is None; allowed: 1"),
    (lambda: Block(None, FeedForward(4, 5), epsilon=0), "attention is None; allowed: layers, which have a width"),
    (lambda: Block(MultiHead(4, 2, 2), None, epsilon=0), "feed_forward is None; allowed: layers, which have a width"),
    (lambda: EncoderDecoder(Embedding(6, vocabulary=5), stack_of(), Embedding(4, vocabulary=5), LOOKING, Readout(4, 5)),
     "width of source is 6; allowed: 4"),
    (lambda: EncoderDecoder(Embedding(6, vocabulary=5), stack_of(6), Embedding(4, vocabulary=5), LOOKING,
                            Readout(4, 5)), "width of source is 6; allowed: 4"),
    (lambda: EncoderDecoder(Embedding(4, vocabulary=5), stack_of(6), Embedding(4, vocabulary=5), LOOKING,
                            Readout(4, 5)), "width of encoder is 6; allowed: 4"),
    (lambda: EncoderDecoder(Embedding(4, vocabulary=5), LOOKING, Embedding(4, vocabulary=5), LOOKING, Readout(4, 5)),
     "cross of the encoder's block is MultiHead("),
    (lambda: RelationNetwork(MultiHead(5, 2, 2), 2), "width is 5; allowed: even numbers, since sines and cosines come"),
    (lambda: Language(Embedding(4, vocabulary=5), LOOKING), "cross of the stack's block is MultiHead("),
    (lambda: ClassToken(Conv(1, 4, 2, 2), LOOKING, 3), "cross of the stack's block is MultiHead("),
    (lambda: TaskTokens(2, 1, LOOKING, 2, 3), "cross of the stack's block is MultiHead("),
])
def test_parts_that_cannot_be_used_are_refused_where_a_model_is_made(make, words):
    with pytest.raises(ValueError) as caught:
        make()
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize("target, words", [
    ([[0, 5, 2]], "target has 0 to 5; allowed: 0 to 4"), ([[0, -1, 2]], "target has -1 to 2; allowed: 0 to 4"),
    ([[0], [1], [2]], r"target has shape \(3, 1\); allowed: \(1, 3\)")])
def test_targets_that_are_no_tokens_are_refused(target, words):
    with pytest.raises(ValueError, match=words):
        next_token(np.ones((1, 3, 4)), np.ones((5, 4)), np.array(target))


def test_the_loss_of_a_likely_token_keeps_its_digits():
    """Beside scores of 300 a number of float32 has steps of 3e-5, a small loss steps of its own."""
    h, table = np.full((1, 1, 1), 300, "f"), np.array([[1], [1 - 0.03]], "f")
    loss, _ = next_token(h, table, np.zeros((1, 1), int))
    gap = float(h[0, 0, 0] * table[0, 0] - h[0, 0, 0] * table[1, 0])
    assert loss[0, 0] == pytest.approx(np.log1p(np.exp(-gap)), rel=1e-3)


def test_no_tokens_have_no_loss_and_a_gradient_of_zero():
    y, saved = next_token(np.ones((2, 0, 4)), np.ones((5, 4)), np.zeros((2, 0), int))
    dh, dtable = next_token_backward(saved, y)
    assert dh.shape == (2, 0, 4) and not dtable.any()


@pytest.mark.parametrize("b, t, v, m", [(0, 3, 0, 2), (2, 2, 3, 0), (0, 0, 0, 0)])
def test_a_table_without_rows_or_columns(b, t, v, m):
    loss, saved = next_token(np.zeros((b, t, m)), np.zeros((v, m)), np.zeros((b, t), int))
    assert np.allclose(loss, np.log(v or 1)) and loss.shape == (b, t)
    assert [g.shape for g in next_token_backward(saved, loss)] == [(b, t, m), (v, m)]


def test_logits_of_a_scoring_network_are_no_map_into_the_residual_stream():
    block = Block(Compositional(4, 2, 2, 2, 2, 2, scoring="nonlinear"), FeedForward(4, 8), epsilon=1e-5)
    own = Stack(block, 8).parameters()["blocks"][0]
    assert own["attention"]["w2"].residuals == 1 and own["feed_forward"]["w2"].residuals == 16


def test_a_map_into_the_residual_stream_is_one_whatever_its_axis_is_called():
    block = Block(MultiHead(6, 2, 3), FeedForward(6, 8, outputs=6), epsilon=1e-5)
    assert Stack(block, 3).parameters()["blocks"][0]["feed_forward"]["w2"].residuals == 6


@pytest.mark.parametrize("chunk", [0, 1])
def test_chunks_have_at_least_two_tokens(chunk):
    with pytest.raises(ValueError, match=f"chunk is {chunk}; allowed: whole numbers of at least 2"):
        levels(5, chunk)


@pytest.mark.parametrize("name", PAGES)
def test_one_number_is_a_bias_a_mask_or_a_dropout_of_all_pairs(name):
    row, rng = PAGES[name], np.random.default_rng(0)
    size = dict(zip("bqkhdecrwf1", (2, 3, 3, 3, 4, 2, 5, 2, 3, 5, 1), strict=True))
    arrays = [rng.standard_normal([size[x] for x in row.axes[n]]) for n in ("q", "k", "v", *row.extras)]
    found = []
    for shape in (), (1, 1, 1, 1):
        options = {"bias": np.full(shape, 0.3), "keep": np.full(shape, True), "dropout": np.full(shape, 2.0)}
        o, saved = row.forward(*arrays, **options)
        found.append((o, *row.backward(saved, np.cos(o))))
        if row.tiles:
            o, saved = tiled(*arrays, page=name, tile=2, **options)
            found.append((o, *tiled_backward(saved, np.cos(o))))
    for each in found[1:]:
        for one, other in zip(found[0], each, strict=False):    # an ablation has None for arrays that it does not take
            if one is not None:
                np.testing.assert_allclose(one.reshape(other.shape), other, rtol=1e-9, atol=1e-12)
    assert found[0][4].shape == ()


@pytest.mark.parametrize("name", PAGES)
def test_queries_have_features(name):
    row, size = PAGES[name], dict(zip("bqkhdecrwf1", (2, 3, 3, 3, 0, 2, 5, 2, 3, 5, 1), strict=True))
    arrays = [np.ones([size[x] for x in row.axes[n]]) for n in ("q", "k", "v", *row.extras)]
    with pytest.raises(ValueError, match="axis d is 0 in q; allowed: at least 1"):
        row.forward(*arrays)


def test_a_selector_has_features():
    q, k, v, selector = (np.ones((2, 3, 3, n)) for n in (4, 4, 2, 0))
    with pytest.raises(ValueError, match="axis c is 0 in selector; allowed: at least 1"):
        compositional(q, k, v, selector, np.ones((2, 0)))


def test_a_mask_that_is_added_is_no_keep():
    """It kept what it was to hide: every number but 0 is true."""
    with pytest.raises(TypeError, match=r"keep has dtype float64; allowed: booleans \(True = may attend\)"):
        ops.softmax(np.zeros((1, 3)), np.array([[0, -1e9, -1e9]]))
    with pytest.raises(TypeError, match="an argument is a list; allowed: an array of NumPy or CuPy"):
        ops.softmax(np.zeros((1, 3)), [[True, False, True]])


def test_a_map_may_have_no_outputs_beside_others_that_have():
    x, dy, w = np.ones((2, 3, 4)), np.ones((2, 3, 5)), np.ones((4, 5))
    dx, ((dw, db), none) = ops.linears_backward(x, (w, w[:, :0]), (dy, dy[..., :0]))
    for one, other in zip((dx, dw, db), ops.linear_backward(x, w, dy), strict=True):
        np.testing.assert_array_equal(one, other)
    assert [each.shape for each in none] == [(4, 0), (0,)]


def test_a_norm_is_over_something():
    """It was a division by zero."""
    with pytest.raises(ValueError, match=r"x has shape \(2, 0\); allowed: at least one feature to be the mean of"):
        ops.layer_norm(np.ones((2, 0)), np.ones(0), np.ones(0))


@pytest.mark.parametrize("loss", [losses.mse, losses.mean_absolute_error, losses.sigmoid_mse, losses.cross_entropy,
                                  losses.log_loss, losses.binary_cross_entropy])
def test_a_list_in_place_of_outputs_is_refused_by_its_name(loss):
    """`mse` alone said that a list has no shape."""
    with pytest.raises(TypeError, match="^(y|logits) is a list; allowed: an array of NumPy or CuPy$"):
        loss([[1.0]], [[0.0]])


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_where_squares_and_sums_of_a_short_dtype_end():
    """What the docstrings say: scores whose squares vanish stay as they are, an infinite sum makes a loss 0."""
    for score, stays in (2.6e-23, True), (2.7e-23, False):
        s = np.full((1, 2, 1, 1), score, np.float32)
        assert np.array_equal(ops.rms_head(s, epsilon=0)[0], s) == stays
    logits, weight = np.zeros((40_000, 2), np.float16), np.ones(40_000, np.float16)
    assert losses.sigmoid_mse(logits, logits, weight)[0] == 0 and losses.sigmoid_mse(logits[:30_000], logits[:30_000],
                                                                                    weight[:30_000])[0] != 0


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("made", [lambda x: np.ma.masked_array(x, x > 0), np.asmatrix])
def test_an_array_with_rules_of_its_own_is_refused(made):
    """What was masked was left out of a sum and counted in its mean; classes in a matrix ended in a crash."""
    x, w = made(np.eye(3)), np.ones((3, 4))
    name = type(x).__name__
    for call, words in [(lambda: losses.mse(np.ones((3, 3)), x), f"target is a {name}"),
                        (lambda: losses.mse(x, np.ones((3, 3))), f"y is a {name}"),
                        (lambda: cross_entropy(np.ones((3, 3, 2)), x.astype(int)), f"target is a {name}"),
                        (lambda: ops.linear(x, w), f"x is a {name}"),
                        (lambda: contract("ab,bc->ac", x, w), f"an argument is a {name}"),
                        (lambda: ops.embedding(w, x.astype(int)), f"an argument is a {name}"),
                        (lambda: softmax(*np.ones((3, 2, 3, 1, 4)), keep=x > 0), f"an argument is a {name}"),
                        (lambda: optim.clip_by_global_norm(x, 1), f"grads is a {name}")]:
        with pytest.raises(TypeError, match=f"^{words}; allowed: an array of NumPy or CuPy$"):
            call()


def test_an_array_in_a_file_is_like_any_other(tmp_path):
    """Others that are made of NumPy's arrays have its rules."""
    x = np.memmap(tmp_path / "x", np.float64, "w+", shape=(2, 3))
    x[...] = [[1, 2, 3], [4, 5, 6]]
    for mine in x, x.view(np.recarray):
        np.testing.assert_array_equal(ops.linear(mine, np.ones((3, 1))), [[6], [15]])


@pytest.mark.parametrize("f", [ops.sigmoid, ops.silu])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64", "bool"])
def test_a_sigmoid_is_of_floats(f, dtype):
    """That of uint8 was above 1: -1 is 255 there."""
    with pytest.raises(TypeError, match=f"x has dtype {dtype}; allowed: floating point"):
        f(np.ones(2, dtype))


def test_a_class_is_no_array():
    with pytest.raises(TypeError, match="an argument is a type; allowed: an array of NumPy or CuPy"):
        xp.array_module(np.ndarray)


@pytest.mark.parametrize("start", [-1, 1.5])
def test_a_first_position_is_a_whole_number_from_zero_on(start):
    layer = Embedding(4, vocabulary=5, table="interleaved")
    with pytest.raises(ValueError, match=f"start is {start}; allowed: whole numbers of at least 0"):
        layer.forward(params.allocate(layer.parameters(), np.float64)[1], np.array([[1, 2, 3]]), start=start)


@pytest.mark.parametrize("make", [np.array, np.float64])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_one_bias_of_all_pairs_is_finite_too(value, make):
    with pytest.raises(ValueError, match="bias has entries that are not finite"):
        softmax(*np.ones((3, 2, 3, 2, 4)), bias=make(value))


def test_a_window_has_an_offset():
    with pytest.raises(ValueError, match="chunk is 0; allowed: whole numbers of at least 1"):
        sliding_dilated(*np.ones((3, 1, 4, 2, 2)), np.ones((2, 0)))


def test_an_epsilon_of_numpy_widens_nothing():
    layer, x = ContextNorm(4, epsilon=np.float64(1e-8)), np.ones((2, 3, 4), "f")
    _, p = params.allocate(layer.parameters())
    assert layer.forward(p, x)[0].dtype == np.float32


@pytest.mark.parametrize("name", ["k", "pad_k"])
def test_a_complex_step_in_keys_alone_is_seen(name):
    rng = np.random.default_rng(0)
    arrays = dict(zip(("q", "k", "v", "offset_bias", "pad_k", "pad_v"), (rng.standard_normal(shape) for shape in (
        (2, 5, 3, 2), (2, 5, 3, 2), (2, 5, 3, 4), (3, 2), (3, 2), (3, 4))), strict=True))
    step = 1e-30j * rng.standard_normal(arrays[name].shape)
    whole = {n: x.astype(complex) for n, x in arrays.items()}
    o, _ = sliding_dilated(**arrays | {name: arrays[name] + step}, dilation=2, out_of_range="pad")
    right, _ = sliding_dilated(**whole | {name: arrays[name] + step}, dilation=2, out_of_range="pad")
    np.testing.assert_allclose(o.imag, right.imag, rtol=1e-12, atol=1e-45)
    assert o.imag.any()


@pytest.mark.parametrize("layer", [MultiHead(4, 2, 2, position=TransformerXL(4, 2, 2)), SlidingDilated(4, 2, 2, 3),
                                   MultiHead(4, 2, 2, position=Rotary()), MultiHead(4, 2, 2, position=ALiBi(2))])
def test_no_position_may_be_read(layer):
    p, x = filled(layer), np.ones((2, 3, 4))
    y, saved = layer.forward(p, x, read=slice(0, 0))
    gradients, grads = params.allocate(layer.parameters(), np.float64)
    assert y.shape == (2, 0, 4) and not layer.backward(p, saved, y, grads).x.any() and not gradients.any()


@pytest.mark.parametrize("layer, x, words", [
    (Embedding(4, vocabulary=3), np.zeros(5, int), "x has shape (5,); allowed: ids (b, t), or (b, t, m) with m = 4"),
    (Embedding(4, vocabulary=3), np.ones((2, 5, 3)), "x has shape (2, 5, 3); allowed: ids (b, t), or (b, t, m) with m ="
                                                     " 4"),
    (Embedding(4, 3), np.ones((2, 5, 4)), "x has shape (2, 5, 4); allowed: (b, t, m) with m = 3"),
    (Embedding(4, 3), np.ones((5, 3)), "x has shape (5, 3); allowed: (b, t, m) with m = 3"),
    (FeedForward(4, 5), np.ones((2, 5, 3)), "x has shape (2, 5, 3); allowed: (..., m) with m = 4"),
    (SwiGLU(4, 5), np.ones((2, 5, 1)), "x has shape (2, 5, 1); allowed: (..., m) with m = 4"),
    (LayerNorm(1), np.ones((2, 5, 3)), "x has shape (2, 5, 3); allowed: (..., m) with m = 1"),
])
def test_tokens_of_another_width_are_refused(layer, x, words):
    with pytest.raises(ValueError) as caught:
        layer.forward(filled(layer), x)
    assert str(caught.value) == words


def test_an_embedding_neither_returns_its_input_nor_the_gradient_that_it_is_given():
    layer = Embedding(4, vocabulary=3)
    p, x = filled(layer), np.ones((2, 5, 4))
    h, saved = layer.forward(p, x)
    assert not np.shares_memory(h, x) and not np.shares_memory(layer.backward(p, saved, x, None), x)


def test_a_recomputed_layer_decodes_and_is_refused_like_the_layer():
    attention, feed_forward = MultiHead(4, 2, 2), FeedForward(4, 5)
    block = Block(recompute(attention), recompute(feed_forward), cross=recompute(attention), epsilon=1e-5)
    stack = pickle.loads(pickle.dumps(Stack(copy.deepcopy(block), 2)))
    p, x = filled(stack), np.random.default_rng(1).standard_normal((2, 5, 4))
    whole, _ = stack.forward(p, x, context=x[:, :3], keep=masks.causal(5))
    first, kept = stack.extend(p, x[:, :2], stack.keep_context(p, x[:, :3]))
    last, _ = stack.extend(p, x[:, 2:], kept)
    np.testing.assert_allclose(np.concatenate([first, last], 1), whole, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="allowed: a bias for each of 2 heads"):
        Block(recompute(attention), feed_forward, T5(3, 8, 16), epsilon=1e-5)
    with pytest.raises(ValueError, match="feed_forward has width 3 in a block of width 4"):
        Block(attention, recompute(FeedForward(4, 5, outputs=3)), epsilon=1e-5)


@pytest.mark.parametrize("layer", [
    Embedding(4, 3), Embedding(4, vocabulary=3), Recurrent(4, 3, 2),
    *(kind(SlidingDilated(4, 2, 2, 2), FeedForward(4, 5), 3, 2) for kind in (RegularGPT, WithReset))],
    ids=lambda layer: type(layer).__name__)
def test_a_list_is_no_array(layer):
    with pytest.raises(TypeError, match="is a list; allowed: an array of NumPy or CuPy"):
        layer.forward(filled(layer), [[0, 1, 2]])


@pytest.mark.parametrize("call, words", [
    (lambda: params.allocate(FeedForward(4, 8)), "parameters is a FeedForward; allowed: what its parameters() returns"),
    (lambda: Stack(Block(MultiHead(4, 2, 2), FeedForward(4, 5), epsilon=0), 1).forward(
        filled(Stack(Block(MultiHead(4, 2, 2), FeedForward(4, 5), epsilon=0), 1)), np.ones((1, 6, 4)),
        residual=[(None, np.ones((6, 4), "f"))]), "x is float64 but residual[1] is float32; allowed: one dtype")])
def test_what_is_of_another_kind_is_said_in_one_line(call, words):
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == words


@pytest.mark.parametrize("layer, x", [
    (Readout(4, 3), np.ones((2, 3, 4))), (Embedding(4, 4), np.ones((2, 3, 4))),
    (Block(MultiHead(4, 2, 2), FeedForward(4, 5), epsilon=0), np.ones((2, 3, 4))),
    (Stack(Block(MultiHead(4, 2, 2), FeedForward(4, 5), epsilon=0), 2), np.ones((2, 3, 4))),
    (LayerNorm(4), np.ones((2, 3, 4))), (ContextNorm(4), np.ones((2, 3, 4))), (Conv(1, 2, 2), np.ones((1, 4, 4, 1))),
    (SwiGLU(4, 5), np.ones((2, 3, 4))), (MixtureOfExperts(4, 5, 3, 2), np.ones((2, 3, 4))),
    (Recurrent(4, 3, 2), np.zeros((2, 3), int))])
def test_the_flat_array_is_no_place_of_parameters(layer, x):
    flat, _ = params.allocate(layer.parameters(), np.float64)
    with pytest.raises(TypeError, match=r"p is an array of shape .*; allowed: the named views that params.allocate"):
        layer.forward(flat, x)


@pytest.mark.parametrize("chosen", [-1, 1.5, 4])
def test_no_more_experts_are_chosen_than_there_are(chosen):
    with pytest.raises(ValueError, match=f"chosen is {chosen}; allowed: whole numbers from 0 to 3"):
        largest(np.zeros((2, 3)), chosen)


@pytest.mark.parametrize("size", [0, 2.5])
def test_tiles_and_windows_are_whole_numbers(size):
    with pytest.raises(ValueError, match=f"size is {size}; allowed: whole numbers of at least 1"):
        masks.window(4, size)
    with pytest.raises(ValueError, match=f"tile is {size}; allowed: whole numbers of at least 1"):
        tiled(*np.ones((3, 1, 4, 2, 2)), tile=size)


def test_no_trials_are_normalised():
    layer, none = ContextNorm(4, 2), np.ones((0, 6, 4))
    y, saved = layer.forward(filled(layer), none)
    _, grads = params.allocate(layer.parameters(), np.float64)
    assert y.shape == layer.backward(filled(layer), saved, y, grads).shape == none.shape


def test_a_decoder_asks_for_the_context_that_it_has_and_for_no_other():
    """A context_keep without attention to a context was ignored; with too few blocks' keys the others were left out."""
    x, plain = np.ones((2, 3, 4)), Block(MultiHead(4, 2, 2), FeedForward(4, 8), epsilon=1e-5)
    looking = Block(MultiHead(4, 2, 2), FeedForward(4, 8), cross=MultiHead(4, 2, 2), epsilon=1e-5)
    p, q, stack = filled(plain), filled(looking), Stack(plain, 3)
    with pytest.raises(ValueError, match="context_keep is given, but no context; allowed: both or neither"):
        plain.extend(p, x, context_keep=np.ones((3, 3), bool))
    for block, views, context in (plain, p, x), (looking, q, None):
        word = "missing" if context is None else "given"
        with pytest.raises(ValueError, match=f"context is {word}, but the block has .* allowed: both or neither"):
            block.keep_context(views, context)
    with pytest.raises(ValueError, match="context is missing, but the block has a cross-attention"):
        looking.extend(q, x)
    p = filled(stack)
    for many in 2, 6:
        with pytest.raises(ValueError, match=f"kept has {many} entries; allowed: 3, one for each application"):
            stack.extend(p, x, ((None, None),) * many)


def test_heads_that_some_arrays_lack_are_not_left_out():
    rng = np.random.default_rng(0)
    code, x, wv, wo = (rng.standard_normal(shape) for shape in ((2, 3, 4, 5), (2, 5, 6), (6, 1, 2), (1, 2, 7)))
    with pytest.raises(ValueError, match="axis h is 3 in code but 1 in wv"):
        eq_3(code, x, wv, wo)


def test_a_dilation_is_not_lost_in_a_model_that_has_its_own():
    with pytest.raises(ValueError, match="dilation of attention is 3; allowed: 1"):
        RegularGPT(SlidingDilated(6, 2, 3, 2, dilation=3), FeedForward(6, 8), 5, 3)
    with pytest.raises(ValueError, match="dilation of attention is 3; allowed: 1"):
        block = Block(SlidingDilated(4, 2, 2, 2, dilation=3), FeedForward(4, 8), epsilon=1e-5)
        Language(Embedding(4, vocabulary=5), Stack(block, 1))


def test_a_state_is_of_the_dtype_of_the_piece():
    q = np.ones((2, 3, 2, 4))
    with pytest.raises(TypeError, match="q is float64 but state is float32; allowed: one dtype"):
        linear_state(q, q, q, np.ones((2, 2, 4, 4), np.float32))
    with pytest.raises(ValueError, match="axis b is 2 in q but 1 in state"):
        linear_state(q, q, q, np.ones((1, 2, 4, 4)))
    with pytest.raises(ValueError, match="allowed: as many queries as keys"):
        linear_state(q, q[:, :2], q[:, :2])


def test_what_a_page_lacks_or_cannot_use_has_a_name():
    q = np.ones((1, 2, 2, 3))
    for page, extras, wanted in ("hyla_deep", (), 1), ("softmax", (np.ones((2, 3, 3)),), 0):
        with pytest.raises(ValueError, match=f"number of extras is {len(extras)}; allowed: {wanted}"):
            tiled(q, q, q, *extras, page=page)
    with pytest.raises(ValueError, match="read is 3; allowed: None and slices of integers, which keep the axis"):
        sliding_dilated(q, q, q, np.ones((2, 2)), read=3)


@pytest.mark.parametrize("question", [0, 5])
def test_no_images_are_no_error(question):
    stack = Stack(Block(MultiHead(4, 2, 2), FeedForward(4, 8), epsilon=1e-5), 1)
    x = np.ones((0, 4, 4, 3))
    for model, options in ((ClassToken(Conv(3, 2 if question else 4, 2, 2), stack, 3, question),
                            {"question": np.ones((0, 5))} if question else {}),
                           (TaskTokens(2, 3, stack, 2, 3), {"task": np.ones((0, 2))})):
        p = filled(model)
        _, grads = params.allocate(model.parameters(), np.float64)
        y, saved = model.forward(p, x, **options)
        assert y.shape[0] == 0 and y.shape[-1] == 3 and model.backward(p, saved, y, grads).shape == x.shape


@pytest.mark.parametrize("tokens, piece, name", [(3, 0, "piece"), (3, -1, "piece"), (3, 1.5, "piece"),
                                                 (0, 2, "tokens of x")])
def test_a_text_is_read_in_pieces_of_at_least_one_token(tokens, piece, name):
    """Otherwise h had no value."""
    model = Language(Embedding(4, vocabulary=5), Stack(Block(MultiHead(4, 2, 2), FeedForward(4, 8), epsilon=1e-5), 1))
    x = np.ones((2, tokens), int)
    with pytest.raises(ValueError, match=f"{name} is .*; allowed: whole numbers of at least 1"):
        model.last(filled(model), x, x, piece)


@pytest.mark.parametrize("name", ["context_keep", "context_dropout"])
def test_what_belongs_to_a_context_is_not_lost_without_one(name):
    block = Block(MultiHead(4, 2, 2), FeedForward(4, 5), epsilon=1e-5)
    with pytest.raises(ValueError, match=f"{name} is given, but no context; allowed: both or neither"):
        block.forward(filled(block), np.ones((2, 3, 4)), **{name: np.ones((3, 3), bool)})


@pytest.mark.parametrize("epsilon", [-1e-8, float("nan"), float("inf")])
def test_a_root_is_of_no_negative_number(epsilon):
    with pytest.raises(ValueError, match=f"epsilon is {epsilon}; allowed: numbers of at least 0"):
        ContextNorm(4, epsilon=epsilon)
    with pytest.raises(ValueError, match=f"epsilon is {epsilon}; allowed: numbers of at least 0"):
        LayerNorm(4, epsilon).forward(filled(LayerNorm(4)), np.ones((2, 4)))
    for norm, others in (ops.layer_norm, (np.ones(4), np.ones(4))), (ops.rms_head, (1,)):
        with pytest.raises(ValueError, match=f"epsilon is {epsilon}; allowed: numbers of at least 0"):
            norm(np.ones((2, 4)), *others, epsilon)


def test_the_order_of_a_single_number():
    assert contract("ab,ab->", np.ones((2, 3)), np.ones((2, 3)), order=np.zeros(())) == 6


def test_a_layer_without_parameters_has_none_to_initialise_or_to_decay():
    none = ALiBi(2).parameters()
    flat, _ = params.allocate(none)
    params.initialise(flat, none, np.random.default_rng(0))
    mask = params.decay_mask(none, "all")
    assert flat.shape == mask.shape == (0,) and mask.dtype == np.float32 and params.bounds(none) is None


@pytest.mark.parametrize("make", [np.array, np.float32])
def test_a_nonlinearity_takes_a_single_number(make):
    for name in "relu", "gelu", "gelu_exact", "silu":
        forward, backward = (getattr(ops, name + end) for end in ("", "_backward"))
        one, many = make(0.3), np.full(1, 0.3, make(0.3).dtype)
        assert forward(one) == forward(many)[0] and backward(one, make(2.0)) == backward(many, many * 0 + 2)[0]
        assert forward(one).dtype == many.dtype


def off(found, right):
    """The error of each array, root mean square, relative."""
    return np.array([np.sqrt(((x - y) ** 2).sum() / (y**2).sum()) for x, y in zip(found, right, strict=True)])


def in_both_precisions(run, *arrays):
    """Results from arrays of float32, and in float64 from the same numbers."""
    return run(*arrays), run(*(x.astype(np.float64) if x.dtype == np.float32 else x for x in arrays))


def test_a_softmax_of_float32_keeps_its_digits_over_many_keys():
    def page(q, k, v, do):
        o, saved = softmax(q, k, v)
        return o, *softmax_backward(saved, do)[:3]

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((1, n, 2, 8), dtype=np.float32) for n in (9, 4_000, 4_000, 9)]
    ours, right = in_both_precisions(page, *arrays)
    q, k, v, do = (np.ascontiguousarray(x.swapaxes(1, 2)) for x in arrays)
    scale = np.float32(8**-0.5)
    a = np.exp(q @ k.swapaxes(2, 3) * scale)
    a /= a.sum(axis=-1, keepdims=True)                          # along the fastest axis, where NumPy sums in pairs
    da = do @ v.swapaxes(2, 3)
    ds = a * (da - (a * da).sum(axis=-1, keepdims=True)) * scale
    # as in the page keys stand outermost in products: some BLAS kernels of small matrices then add up one by one
    a, ds = (np.ascontiguousarray(x.transpose(3, 0, 1, 2)).transpose(1, 2, 3, 0) for x in (a, ds))
    plain = [x.swapaxes(1, 2) for x in (a @ v, ds @ k, ds.swapaxes(2, 3) @ q, a.swapaxes(2, 3) @ do)]
    assert (off(ours, right) < 2 * off(plain, right)).all()


def test_weights_that_are_made_again_are_those_of_the_forward_where_scores_are_large():
    def tiles(q, k, v, do):
        o, saved = tiled(q, k, v, page="softmax", tile=16)
        return o, *tiled_backward(saved, do)[:3]

    def page(q, k, v, do):
        o, saved = softmax(q, k, v)
        return o, *softmax_backward(saved, do)[:3]

    def tokens(h, table, target):
        y, saved = next_token(h, table, target)
        return next_token_backward(saved, np.ones_like(y))

    def whole(h, table, target):
        d = cross_entropy(h @ table.T, target)[1] * target.size
        return d @ table, d[0].T @ h[0]

    rng = np.random.default_rng(0)
    sizes = (50, 10), (99, 10), (99, 1), (50, 1)
    arrays = [x * rng.standard_normal((1, n, 2, 4), dtype=np.float32) for n, x in sizes]
    (ours, right), (plain, _) = in_both_precisions(tiles, *arrays), in_both_precisions(page, *arrays)
    assert (off(ours, right) < 2 * off(plain, right)).all()
    h, table = (x * rng.standard_normal((n, 8), dtype=np.float32) for n, x in ((64, 1), (50, 30)))
    given = h[None], table, rng.integers(0, 50, (1, 64))
    (ours, right), (plain, _) = in_both_precisions(tokens, *given), in_both_precisions(whole, *given)
    assert (off(ours, right) < 2 * off(plain, right)).all()


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint64"])
def test_states_and_tokens_of_few_bits_run_as_those_of_many(dtype):
    table = np.array([[(q + x) % 40 for x in range(10)] for q in range(40)])
    found = Automaton(table.astype(dtype), np.arange(40).astype(dtype))
    word = np.array([[9, 9, 9, 9, 9], [1, 0, 8, 9, 2]])
    assert found.run(word.astype(dtype)).tolist() == (word.cumsum(axis=1) % 40).tolist()
    assert found.run([]).shape == found.outputs(()).shape == (0,)


@pytest.mark.parametrize(("tokens", "words"), [
    ([12, 15], "int64 from 12 to 15"), ([-3, -2], "int64 from -3 to -2"), ([0.5], "float64 from 0.5 to 0.5"),
    (["b", "a"], "<U1 from a to b")])
def test_tokens_that_are_no_symbols_are_said(tokens, words):
    with pytest.raises(ValueError, match=f"^tokens are {words}; allowed: integers from 0 to 1$"):
        Automaton([[0, 1], [1, 0]], [0, 1]).run(tokens)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_slope_of_gelu_is_0_or_1_however_far_from_0(dtype):
    x = np.array([-np.sqrt(np.finfo(dtype).max), -300, -40, 40, 300, np.sqrt(np.finfo(dtype).max)], dtype)
    with np.errstate(over="ignore"):
        assert ops.gelu_backward(x, np.ones_like(x)).tolist() == [0, 0, 0, 1, 1, 1]
        largest_of_all = np.full(1, np.finfo(dtype).max)                # twice that is infinite
        assert ops.gelu(largest_of_all) == largest_of_all and ops.gelu(-largest_of_all) == 0


def test_a_bias_that_is_kept_for_later_calls_cannot_be_written_into():
    q = np.zeros((1, 3, 2, 4))
    bias = ALiBi(2).forward(None, q, q)[2]
    with pytest.raises(ValueError, match="read-only"):
        bias += 100
    assert ALiBi(2).forward(None, q, q)[2].max() == 0


@pytest.mark.parametrize("read", [None, slice(1, 3)])
def test_a_recomputed_layer_stands_in_the_network_of_contextual_retrieval(read):
    layer, gradients = MultiHead(6, 2, 4), []
    for attention in layer, recompute(layer):
        network = RetrievalNetwork(3, attention, 2)
        (flat, p), (grad, g) = (params.allocate(network.parameters(), np.float64) for _ in range(2))
        params.initialise(flat, network.parameters(), np.random.default_rng(1))
        y, saved = network.forward(p, np.random.default_rng(2).standard_normal((2, 4, 3)), read=read)
        dx = network.backward(p, saved, np.cos(y), g)
        gradients.append(np.concatenate([dx.ravel(), grad]))
    np.testing.assert_allclose(*gradients, rtol=1e-12, atol=1e-12)
    assert network.parameters()["own"]["wo"].fan_out == 6


@pytest.mark.parametrize("wrapped", ["attention", "block"])
def test_a_recomputed_layer_stands_at_every_dilation(wrapped):
    """Of RegularGPT each level is the same layers with another dilation, which `dataclasses.replace` did not find."""
    layer, feed_forward, x = SlidingDilated(6, 2, 3, 2, out_of_range="mask"), FeedForward(6, 5), np.array([[0, 2, 1]])
    found = []
    for wrap in lambda layer: layer, recompute, lambda layer: recompute(recompute(layer)):
        block = Block(wrap(layer) if wrapped == "attention" else layer, feed_forward, epsilon=1e-5)
        stack = Stack(wrap(block) if wrapped == "block" else block, 2)
        for model in Language(Embedding(6, vocabulary=3), stack), RegularGPT(block.attention, feed_forward, 3, 3):
            (flat, p), (grad, g) = (params.allocate(model.parameters(), np.float64) for _ in range(2))
            params.initialise(flat, model.parameters(), np.random.default_rng(0), "random")
            y, saved = model.forward(p, x)
            model.backward(p, saved, np.cos(y), g)
            found.append([y, grad])
    for plain, again in zip(found[:2] * 2, found[2:], strict=True):
        for one, other in zip(plain, again, strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_decoder_that_slides_looks_back_without_a_mask():
    """A causal mask of pairs was taken for one of offsets where there are as many of both, and refused elsewhere."""
    block = Block(SlidingDilated(4, 2, 2, 3), FeedForward(4, 5), cross=MultiHead(4, 2, 2), epsilon=1e-5)
    model = EncoderDecoder(Embedding(4, vocabulary=5), stack_of(), Embedding(4, vocabulary=5), Stack(block, 2),
                           Readout(4, 5))
    p, source, target = filled(model), np.array([[1, 2, 0, 4]]), np.array([[3, 1, 0, 2, 4]])
    for many in range(1, 6):
        whole, _ = model.forward(p, source, target=target[:, :many])
        piece, _ = model.extend(p, target[:, :many], model.begin(p, source))
        np.testing.assert_allclose(whole, piece, rtol=1e-12, atol=1e-12)


def test_a_second_value_map_is_of_the_dtype_of_the_queries():
    q, k, v = np.ones((3, 1, 2, 2, 3), np.float32)
    with pytest.raises(TypeError, match="wv2"):
        ablation(q, k, v, np.ones((2, 3, 3)), knobs=Knobs("rms_head", 3, "relu"))


def test_the_fan_out_of_a_kernel_counts_its_pixels():
    """As in PyTorch and JAX: every output channel of every window that a pixel lies in."""
    kernel = Conv(3, 5, 4, 2).parameters()["k"]
    assert (kernel.fan_in, kernel.fan_out) == (48, 80)


def test_the_fans_of_a_selector_are_its_own():
    for scoring, fans in ("linear", (128, 1)), ("nonlinear", (128, 64)), ("dot", (64, 64)):
        listed = Compositional(16, 2, 3, 4, 64, 64, scoring=scoring).parameters()
        assert (listed["wr"].fan_in, listed["wr"].fan_out) == fans
        flat, p = params.allocate(listed, np.float64)
        params.initialise(flat, listed, np.random.default_rng(0), places={"b*": params.Init("normal", "out"),
                                                                         "wr": params.XAVIER_NORMAL})
        assert abs(p.wr.std() / (2 / sum(fans)) ** 0.5 - 1) < 0.2


def test_no_word_has_no_answer():
    machine = compiled(Automaton([[0, 1], [1, 0]], [0, 1]), out_of_range="mask")
    with pytest.raises(ValueError, match="t at least 1"):
        WithReset(**vars(machine.model)).forward(machine.parameters, np.zeros((2, 0), int), tree=True)
    assert errors(compiled(Automaton([[0, 1], [1, 0]], [0, 1])), np.zeros((0, 3), int)).by_length.sum() == 0
    code, x, wv, wo = (np.zeros(shape) for shape in ((0, 4, 2, 3), (0, 3, 5), (5, 4, 2), (4, 2, 6)))
    assert eq_2(code, x, wv, wo).shape == eq_3(code, x, wv, wo).shape == (0, 2, 6)


def test_a_sum_over_heads_has_heads():
    """It was the number 0."""
    with pytest.raises(ValueError, match="heads is 0; allowed: whole numbers of at least 1"):
        eq_3(np.ones((1, 0, 2, 3)), np.ones((1, 3, 5)), np.ones((5, 0, 2)), np.ones((0, 2, 6)))


def test_a_word_is_a_text_and_a_target_an_array():
    with pytest.raises(TypeError, match="text is a int; allowed: a str"):
        Automaton([[0, 1], [1, 0]], [0, 1]).encode(3)
    with pytest.raises(TypeError, match="target is a list; allowed: an array of NumPy or CuPy"):
        next_token(np.ones((1, 1, 2)), np.ones((3, 2)), [[0]])


def test_integers_receive_no_floats_and_a_result_is_copied_into_what_is_given():
    a, b = np.full((2, 3), 2), np.full((3, 2), 3)
    out = np.empty((2, 2))
    assert contract("ab,bc->ac", a, b, out=out) is out and out.tolist() == [[18, 18], [18, 18]]
    with pytest.raises(TypeError, match="Cannot cast array data from .*float64.* to .*int64"):
        contract("ab,bc->ac", a * 0.5, b, out=np.empty((2, 2), int))
    with pytest.raises(TypeError, match="out is a list; allowed: an array of NumPy or CuPy"):
        contract("ab,bc->ac", a, b, out=[[0, 0], [0, 0]])


@pytest.mark.parametrize("activation", ["gelu", "gelu_exact", "relu"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.longdouble])
def test_an_activation_keeps_its_dtype_whether_scipy_is_there_or_not(activation, dtype, monkeypatch):
    layer, x = FeedForward(2, 3, activation), np.ones((1, 2), dtype)
    flat, p = params.allocate(layer.parameters(), dtype)
    flat[...] = 0.5
    y, saved = layer.forward(p, x)
    assert y.dtype == dtype == layer.backward(p, saved, y, params.allocate(layer.parameters(), dtype)[1]).dtype
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    np.testing.assert_allclose(layer.forward(p, x)[0], y, rtol=max(4 * float(np.finfo(dtype).eps), 1e-15))


@pytest.mark.parametrize("layer, x, name", [
    (FeedForward(4, 5), np.ones((2, 3, 4)), "dropout"), (Embedding(5, 4), np.ones((2, 3, 4)), "dropout"),
    (Embedding(5, vocabulary=6), np.array([[0, 1, 5], [2, 2, 3]]), "dropout"),
    (Language(Embedding(5, vocabulary=6), Stack(Block(MultiHead(5, 2, 2), FeedForward(5, 8), epsilon=1e-5), 1)),
     np.array([[0, 1, 5], [2, 2, 3]]), "embedding_dropout")])
def test_a_dropout_broadcasts_to_what_it_multiplies_and_is_of_its_dtype(layer, x, name):
    """A longer batch came out, or float64; of booleans what stays was not divided by 1 - p."""
    p = filled(layer)
    y, _ = layer.forward(p, x, **{name: np.array(2.0)})
    for shape in (5,), (3, 1), (2, 3, 5):
        np.testing.assert_array_equal(layer.forward(p, x, **{name: np.full(shape, 2.0)})[0], y)
    for shape in (4, 3, 5), (1, 2, 3, 5), (2, 3, 2):
        with pytest.raises(ValueError) as caught:
            layer.forward(p, x, **{name: np.ones(shape)})
        assert str(caught.value) == f"{name} has shape {shape}; allowed: what broadcasts to (2, 3, 5)"
    with pytest.raises(TypeError, match=f"x is float64 but {name} is float32; allowed: one dtype"):
        layer.forward(p, x, **{name: np.ones((2, 3, 5), np.float32)})
    with pytest.raises(TypeError, match=f"{name} has dtype bool; allowed: floating point"):
        layer.forward(p, x, **{name: np.ones((2, 3, 5), bool)})


@pytest.mark.parametrize("layer, shape", [
    *((layer, (2, 4, 4)) for layer in (
        FeedForward(4, 5), SwiGLU(4, 5), MixtureOfExperts(4, 5, 3, 2), LayerNorm(4), ContextNorm(4), Readout(4, 4),
        Embedding(4, 4), LearnedTable(9, 4), MultiHead(4, 2, 2), SlidingDilated(4, 2, 2, 2),
        Block(MultiHead(4, 2, 2), FeedForward(4, 5), epsilon=1e-5))),
    (Embedding(4, vocabulary=4), (2, 4)), (Embedding(4, vocabulary=99), (2, 4)), (Recurrent(5, 4, 3), (2, 4)),
    (Conv(1, 4, 2), (4, 4, 3, 1))])
def test_a_gradient_has_the_shape_and_the_dtype_of_the_output(layer, shape):
    """With axes exchanged its rows were those of other tokens; of another dtype it gave gradients of either."""
    p, (flat, grads) = filled(layer), params.allocate(layer.parameters(), np.float64)
    x = np.ones(shape, int) if getattr(layer, "vocabulary", None) else np.ones(shape)
    options = {"residual": [np.ones(shape)] * 2} if isinstance(layer, Block) else {}
    y, saved = layer.forward(p, x, **options)
    name = "dh" if isinstance(layer, Embedding) else "dy"
    for dy in y.swapaxes(0, 1), y[:, :1]:
        with pytest.raises(ValueError) as caught:
            layer.backward(p, saved, dy, grads)
        batch = len(dy if isinstance(layer, LearnedTable) else y)           # which knows positions only
        assert str(caught.value) == f"{name} has shape {dy.shape}; allowed: {(batch, *y.shape[1:])}"
    with pytest.raises(TypeError, match=f"{name} is float32"):
        layer.backward(p, saved, y.astype("f"), grads)
    assert not flat.any()


@pytest.mark.parametrize("layer", [
    *(Block(MultiHead(4, 2, 2), FeedForward(4, 5), norm=norm, epsilon=1e-5) for norm in ("pre", "post", "none")),
    Stack(Block(MultiHead(4, 2, 2), FeedForward(4, 5), epsilon=1e-5), 2, recompute=True), MultiHead(4, 2, 2),
    Compositional(4, 2, 2, 2, 2, 2), SlidingDilated(4, 2, 2, 2, biases=True)])
@pytest.mark.parametrize("read", [None, slice(1, None)])
def test_a_gradient_that_would_be_stretched_is_refused_before_anything_is_added(layer, read):
    """Where a block has dropout, the gradient of one token, or of one text, passed for that of all."""
    drops = [np.full((2, 4, 4), 2.0)] * 2
    options = {Block: {"residual": drops}, Stack: {"residual": [drops] * 2}}.get(type(layer), {})
    p, (flat, grads) = filled(layer), params.allocate(layer.parameters(), np.float64)
    y, saved = layer.forward(p, np.ones((2, 4, 4)), read=read, **options)
    b, t, m = y.shape
    for shape in (b * t, 1, m), (1, t, m), (b, 1, m), (t, m), (b, t, 1), (1, 1, 1), (1, b, t, m), ():
        with pytest.raises(ValueError) as caught:
            layer.backward(p, saved, np.ones(shape), grads)
        assert str(caught.value) == f"dy has shape {shape}; allowed: {y.shape}" and not flat.any()


def test_the_gradient_of_a_loss_is_one_number_for_each_token():
    h, table, target = np.ones((2, 3, 4)), np.ones((5, 4)), np.zeros((2, 3), int)
    _, saved = next_token(h, table, target)
    for shape in (3, 2), (6,), (1, 6), (6, 1), (1, 1), (1, 2, 3), ():
        with pytest.raises(ValueError) as caught:
            next_token_backward(saved, np.ones(shape))
        assert str(caught.value) == f"dy has shape {shape}; allowed: (2, 3)"
    with pytest.raises(TypeError, match="h is float64 but dy is float32; allowed: one dtype"):
        next_token_backward(saved, np.ones((2, 3), "f"))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_refuses_an_upstream_gradient_that_it_would_have_to_stretch(name):
    row, rng = PAGES[name], np.random.default_rng(0)
    size = dict(zip("bqkhdecrwf1", (2, 3, 3, 3, 4, 2, 5, 2, 3, 5, 1), strict=True))
    o, saved = row.forward(*(rng.standard_normal([size[x] for x in row.axes[n]]) for n in ("q", "k", "v", *row.extras)))
    for do in o[:1], o[:, :1], o[:, :, :1], o[..., :1]:
        with pytest.raises(ValueError, match="contract .*: axis . is|do has shape"):
            row.backward(saved, do)


def test_a_tied_readout_asks_for_its_table():
    layer = Readout(4, 3, tied=True)
    with pytest.raises(ValueError, match=r"table is None, but tied is True; allowed: the table \(o, m\) of an "):
        layer.forward(filled(layer), np.ones((2, 3, 4)))


def test_a_scan_is_of_one_dtype():
    with pytest.raises(TypeError, match="a is float64 but u is float32; allowed: one dtype"):
        linear_scan(np.ones((1, 3, 2, 2)), np.ones((1, 3, 2), np.float32))


@pytest.mark.parametrize("loss, shape", [("mse", (0, 3)), ("mean_absolute_error", (2, 0)), ("sigmoid_mse", (0, 3)),
                                         ("binary_cross_entropy", (0,)), ("cross_entropy", (0,))])
def test_a_mean_has_terms(loss, shape):
    """It was a division by zero."""
    y, target = (np.ones((0, 3)), np.ones(0, int)) if loss == "cross_entropy" else (np.ones(shape),) * 2
    with pytest.raises(ValueError) as caught:
        getattr(losses, loss)(y, target)
    assert str(caught.value) == f"a loss of shape {shape} has no terms; allowed: at least one"


@pytest.mark.parametrize("layer, shape", [(Conv(3, 4, 2), (2, 4, 4, 3)), (ContextNorm(6), (2, 4, 6))])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_images_and_segments_are_of_the_dtype_of_the_parameters(layer, shape, dtype):
    with pytest.raises(TypeError, match=f"x (has dtype|is) {dtype}"):
        layer.forward(filled(layer), np.ones(shape, dtype))


@pytest.mark.parametrize("lengths, found", [([1, 2], "no array"), (2, "no array"),
                                            (np.array([1.5, 2]), "an array of float64")])
def test_lengths_of_paddings_are_an_array_of_integers(lengths, found):
    """Fractions made masks, silently."""
    with pytest.raises(ValueError, match=f"lengths is {found}.*; allowed: integers .b,."):
        masks.padding(lengths, 3)
    assert masks.padding(np.array([1, 2], np.uint8), 3)[:, 0, 0].tolist() == [[True, False, False], [True, True, False]]


@pytest.mark.parametrize("operation", [lambda x, given: ops.scores(x, x, given), ops.drop,
                                       lambda x, given: ops.dropped_to_zero(x, given > 0)])
def test_what_lies_in_host_memory_is_not_copied_to_a_device_without_a_word(operation):
    """Bias, dropout and keep were, in every call."""
    x = np.ones((2, 3, 3, 3), np.float32)
    with strict_cupy.count() as counted, pytest.raises(TypeError, match="Unsupported type"):
        operation(strict_cupy.asarray(x), x)
    assert counted.h2d == 1                                     # x itself


LOSSES = {"mse": ((2, 3), (2, 3)), "mean_absolute_error": ((2, 3), (2, 3)), "binary_cross_entropy": ((2, 3), (2, 3)),
          "sigmoid_mse": ((2, 3), (2, 3)), "cross_entropy": ((2, 3), (2,)), "log_loss": ((2, 3), (2,))}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("here, there", [(np, strict_cupy), (strict_cupy, np)], ids=["host", "device"])
def test_targets_and_weights_are_on_the_device_of_y(loss, here, there):
    """The array module's own error named neither of them."""
    kind = int if LOSSES[loss][1:] == ((2,),) else float
    y, target = here.asarray(np.ones(LOSSES[loss][0])), np.ones(LOSSES[loss][1], kind)
    allowed = f"an array of {there.__name__}; allowed: one of {here.__name__}"
    with pytest.raises(TypeError, match=f"target is {allowed}"):
        getattr(losses, loss)(y, there.asarray(target))
    if loss in ("sigmoid_mse", "cross_entropy", "binary_cross_entropy"):
        weight = there.asarray(np.ones((2, 3) if loss == "binary_cross_entropy" else (2,)))
        with pytest.raises(TypeError, match=f"weight is {allowed}"):
            getattr(losses, loss)(y, here.asarray(target), weight)


def test_next_tokens_are_on_the_device_of_their_vectors():
    h, table = (strict_cupy.asarray(np.ones(shape)) for shape in ((2, 3, 4), (5, 4)))
    with pytest.raises(TypeError, match="target is an array of numpy; allowed: one of tests.strict_cupy"):
        next_token(h, table, np.ones((2, 3), int))


def test_a_step_with_a_mask_in_host_memory_changes_nothing():
    """It raised after both moments had been changed."""
    flat, gradient = (strict_cupy.asarray(np.ones(3)) for _ in range(2))
    state = optim.moments(flat)
    with pytest.raises(TypeError, match="mask is an array of numpy; allowed: one of tests.strict_cupy"):
        optim.adamw_step(flat, gradient, state, step=1, rate=0.1, decay=0.1, mask=np.ones(3))
    assert xp.to_host(flat).tolist() == [1, 1, 1] and not any(xp.to_host(x).any() for x in state)


@pytest.mark.parametrize("position", [ALiBi(2), TransformerXL(6, 2, 3)])
def test_a_bias_beside_that_of_a_position_layer_is_on_the_device_of_x(position):
    layer = MultiHead(6, 2, 3, position=position)
    _, p = params.allocate(layer.parameters(), xp=strict_cupy)
    with pytest.raises(TypeError, match="x is an array of tests.strict_cupy but bias of numpy; allowed: all"):
        layer.forward(p, strict_cupy.zeros((1, 4, 6), np.float32), bias=np.zeros((4, 4), np.float32))
    _, p = params.allocate(layer.parameters())
    with pytest.raises(TypeError, match="bias is a list; allowed: an array of NumPy or CuPy"):
        layer.forward(p, np.zeros((1, 4, 6), np.float32), bias=[[0.0] * 4] * 4)


def test_the_exact_gelu_of_half_precision_stays_so_on_a_device():
    """CuPy's erf of float16 is float64."""
    x = np.linspace(-3, 3, 7).astype(np.float16)
    for f, given in (ops.gelu_exact, (x,)), (ops.gelu_exact_backward, (x, x)):
        there = f(*map(strict_cupy.asarray, given))
        assert there.dtype == np.float16
        np.testing.assert_array_equal(xp.to_host(there), f(*given))


def test_where_prediction_and_target_are_equal_an_absolute_error_has_no_slope():
    _, dy = losses.mean_absolute_error(np.array([1.0, 2.0, 3.0]), np.array([1.0, 5.0, 2.0]))
    np.testing.assert_allclose(dy, [0, -1 / 3, 1 / 3])
