"""What a first reader of the code found: wrong results and states left broken, each by the lines that showed it."""

import re

import numpy as np
import pytest

from refattn import cli, losses, optim, params
from refattn.attention import masks
from refattn.attention.layer import MultiHead
from refattn.attention.sliding_dilated import SlidingDilated
from refattn.contract import contract
from refattn.layers.block import Block
from refattn.layers.convolution import Conv
from refattn.layers.embedding import Embedding, Readout
from refattn.layers.feed_forward import FeedForward
from refattn.layers.positions import T5
from refattn.layers.stack import Stack
from refattn.models.contextual_retrieval import RetrievalNetwork
from refattn.models.regular_gpt import levels
from refattn.models.transformer import Transformer
from refattn.recipes import recipe
from refattn.reproduce.all_tables import TABLES
from refattn.tasks import sraven_ambiguity
from refattn.tasks.contextual_retrieval import ContextualRetrieval
from refattn.tasks.fuzzy_logic import FuzzyLogic
from refattn.tasks.languages import LANGUAGES
from refattn.tasks.sraven import Sraven
from refattn.tasks.sraven_bayes import ceiling, check_size
from refattn.tasks.triangles import Triangles
from refattn.verification import plain_formulas
from tests.refusals import refused


def made(layer, seed=0):
    """Random parameters of a layer, zero gradients."""
    flat, p = params.allocate(layer.parameters(), np.float64)
    flat[...] = np.random.default_rng(seed).standard_normal(flat.shape)
    return p, params.allocate(layer.parameters(), np.float64)[1]


def sliding_transformer(causal):
    return Transformer(Embedding(4, vocabulary=5), Stack(Block(SlidingDilated(4, 2, 2, 3), FeedForward(4, 8),
                                                               epsilon=1e-5), 1), Readout(4, 5), causal)


@pytest.mark.parametrize("tokens", [1, 3, 4])
def test_sliding_attention_looks_back_without_a_mask(tokens):
    x = np.arange(tokens)[None] % 5
    p, _ = made(sliding_transformer(True))
    outputs = [sliding_transformer(causal).forward(p, x)[0] for causal in (True, False)]
    np.testing.assert_array_equal(*outputs)
    model = sliding_transformer(True)
    np.testing.assert_allclose(model.extend(p, x, model.begin(p))[0], outputs[0], rtol=1e-12)


def test_what_has_keys_at_offsets_takes_no_bias_of_pairs():
    refused("allowed: None, since its keys have offsets", Block, SlidingDilated(4, 2, 2, 3), FeedForward(4, 8),
            T5(2, 8, 16), epsilon=1e-5)
    refused("every pair of objects", RetrievalNetwork, 4, SlidingDilated(4, 2, 2, 3), 0)


def test_small_integers_of_numpy_do_not_overflow():
    assert masks.causal(np.uint8(3), np.uint8(2)).tolist() == masks.causal(3, 2).tolist()
    assert levels(500, np.int8(2)) == 9
    refused("tuples", ContextualRetrieval, np.int64(40), np.int64(8), alpha_seed=0)
    assert FuzzyLogic(variables=np.uint8(8), terms=1).known_terms == FuzzyLogic(variables=8, terms=1).known_terms
    refused("too many", check_size, np.int64(12), np.int64(64))
    pictures = (Triangles(size).sample(np.random.default_rng(0), 4).image for size in (64, np.int8(64), np.uint8(64)))
    first, *others = pictures
    assert all((first == other).all() for other in others)
    assert sraven_ambiguity.instances(np.int64(8), np.int64(16)) == sraven_ambiguity.instances(8, 16) > 2**63
    assert sraven_ambiguity.tasks(np.int64(20)) == sraven_ambiguity.tasks(20)
    for number in np.int8(8), np.uint64(8):
        task = Sraven(4, number)
        same, best = (ceiling(x, np.random.default_rng(0), 20, "all") for x in (task, Sraven(4, 8)))
        assert same == best
        assert task.sample(np.random.default_rng(0), number).panels.shape[0] == 8


@pytest.mark.parametrize("wrong", [dict(lengths=np.array([-1, 2])), dict(lengths=np.array([5])), dict(keys=2.5)])
def test_padding_counts_keys(wrong):
    with pytest.raises(ValueError, match="allowed"):
        masks.padding(**{"lengths": np.array([1, 2]), "keys": 4} | wrong)


@pytest.mark.parametrize("loss", [losses.mse, losses.mean_absolute_error, losses.binary_cross_entropy])
def test_a_loss_of_integers_cuts_no_targets(loss):
    with pytest.raises(TypeError, match="allowed: floating point"):
        loss(np.array([1, 2]), np.array([0.9, 0.5]))


def test_clipping_takes_all_entries_of_a_matrix():
    grads = np.array([[3.0, 0.0], [0.0, 4.0]])
    assert optim.clip_by_global_norm(grads, 1.0) == 5 and np.allclose(grads, [[0.6, 0], [0, 0.8]])


@pytest.mark.parametrize("wrong", [
    dict(beta1=1.0), dict(beta2=1.0), dict(epsilon=-1.0), dict(decay=float("nan")), dict(rate=float("inf")),
    dict(rate="0.1"), dict(first=np.zeros(1)), dict(second=np.zeros(1))])
def test_a_refused_step_changes_nothing(wrong):
    flat, grads, state = np.ones(3), np.ones(3), optim.Moments(np.zeros(3), np.zeros(3))
    state = state._replace(**{name: x for name, x in wrong.items() if name in state._fields})
    settings = {"rate": 0.1} | {name: x for name, x in wrong.items() if name not in state._fields}
    with pytest.raises(ValueError, match=next(iter(wrong))):
        optim.adamw_step(flat, grads, state, step=1, **settings)
    assert (flat == 1).all() and not state.first.any() and not state.second.any()


def test_gradients_of_another_shape_change_nothing():
    embedding = Embedding(4, vocabulary=5)
    p, g = made(embedding)
    _, saved = embedding.forward(p, np.zeros((2, 3), int), dropout=np.ones((2, 3, 4)))
    refused("dh has shape (1, 1, 4)", embedding.backward, p, saved, np.ones((1, 1, 4)), g)
    assert not g.table.any()
    conv = Conv(1, 2, 2, 1)
    p, g = made(conv)
    _, saved = conv.forward(p, np.ones((1, 3, 3, 1)))
    refused("dy has shape (1, 3, 3, 2)", conv.backward, p, saved, np.ones((1, 3, 3, 2)), g)
    assert not g.b.any()


def test_parameters_of_another_stack_are_refused():
    block = Block(MultiHead(4, 2, 2), FeedForward(4, 8), epsilon=1e-5)
    p, _ = made(Stack(block, 2))
    for layers in 1, 3:
        refused(f"p has 2 blocks; allowed: {layers}", Stack(block, layers).forward, p, np.ones((1, 2, 4)))
    with pytest.raises(AttributeError, match="there is no 'block'; allowed: blocks"):
        Stack(block, 1, shared=True).forward(p, np.ones((1, 2, 4)))


def test_what_is_kept_is_of_one_dtype_and_of_the_same_layer():
    layer = MultiHead(4, 2, 2)
    p, _ = made(layer)
    _, kept = layer.extend(p, np.ones((1, 2, 4)))
    single = kept._replace(arrays={name: x.astype(np.float32) for name, x in kept.arrays.items()})
    with pytest.raises(TypeError, match="kept is float32 but tokens is float64"):
        layer.extend(p, np.ones((1, 1, 4)), single)
    other = MultiHead(4, 2, 3)
    refused("kept has 1 rows of (2, 2), the further tokens 1 of (2, 3)", other.extend, made(other)[0],
            np.ones((1, 1, 4)), kept)
    linear = MultiHead(4, 2, 2, variant="linear")
    state = linear.extend(p, np.ones((1, 2, 4)))[1]
    with pytest.raises(TypeError, match="kept is a "):
        layer.extend(p, np.ones((1, 1, 4)), state)


def test_a_tied_readout_has_its_outputs():
    refused("table has shape (7, 4); allowed: (5, 4)", Readout(4, 5, tied=True).forward, None, np.ones((2, 3, 4)),
            np.ones((7, 4)))


def test_a_summary_leaves_its_scores_as_they_are():
    chosen = recipe("fuzzy_logic", length=4)
    batch = chosen.sample(np.random.default_rng(0), "train", 6)
    scores = chosen.score(np.zeros((6, 1, 1)), batch)
    assert chosen.summary(scores) == chosen.summary(scores)


def test_initial_values_fill_arrays_of_their_size_and_dtype():
    layer = MultiHead(4, 2, 2)
    rng = np.random.default_rng(0)
    refused("flat has shape (5,)", params.initialise, np.zeros(5), layer.parameters(), rng)
    with pytest.raises(TypeError, match="allowed: floating point"):
        params.initialise(np.zeros(params.count(layer.parameters()), int), layer.parameters(), rng)


def test_a_foreign_file_is_no_checkpoint(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match=re.escape("complete refattn checkpoint (ValueError: its end")):
        params.load(tmp_path / "x.npz")


@pytest.mark.parametrize("make", [
    lambda: MultiHead(4, 2, 2, biases="no"), lambda: T5(2, 8, 16, "no"), lambda: Embedding(4, vocabulary=2, scale="no"),
    lambda: Stack(Block(MultiHead(4, 2, 2), FeedForward(4, 8), epsilon=0.0), 1, "no")])
def test_switches_of_layers_are_true_or_false(make):
    refused("is 'no'; allowed: True and False", make)


@pytest.mark.parametrize("settings, message", [
    (dict(epsilon="1e-5"), "epsilon is '1e-5'"), (dict(epsilon=-1), "epsilon is -1"), (dict(norm=["pre"]), "norm is"),
    (dict(position=T5), "position is")])
def test_settings_of_a_block_are_refused_when_it_is_made(settings, message):
    refused(message, Block, MultiHead(4, 2, 2), FeedForward(4, 8), **{"epsilon": 1e-5} | settings)


def test_the_message_on_buckets_names_what_is_at_fault():
    refused("max_distance is 2; allowed: numbers above 4", T5, 2, 8, 2)
    refused("buckets is 1", T5, 2, 1, 16)


def test_lists_are_named():
    for call in (lambda: losses.mse(np.ones(1), [1.0]), lambda: contract("ab,bc->ac", [[1.0]], np.ones((1, 1)))):
        with pytest.raises(TypeError, match="is a list; allowed: an array"):
            call()


def test_the_shared_automata_cannot_be_written():
    with pytest.raises(ValueError, match="read-only"):
        LANGUAGES["parity"].automaton.transition[0, 0] = 1


def test_a_chunk_may_be_as_long_as_is_allowed(tmp_path):
    assert cli.main(["compile", "--regex", "a*", "--alphabet", "a", "--chunk", "64", "--out", str(tmp_path / "c")]) == 0


def test_rounding_keeps_every_nan():
    x = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000], np.uint32).view(np.float32)
    assert np.isnan(plain_formulas.rounded(x, "bfloat16")).all()


def test_a_curve_with_a_gap_is_drawn_and_runs_of_other_settings_are_no_mean():
    pytest.importorskip("matplotlib")
    figure = TABLES["figure-10"]
    runs = figure.recorded()
    assert figure.plot(figure.sheet(runs))
    name = f"{figure.split}.{figure.metric}"
    runs[0] = {**runs[0], "history": {**runs[0]["history"], name: [None, *runs[0]["history"][name][1:]]}}
    assert figure.plot(figure.sheet(runs))
    with pytest.raises(ValueError, match="have a seed twice"):
        figure.sheet([*runs, runs[0]])
