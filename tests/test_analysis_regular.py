"""Reading RegularGPT: on compiled automata, whose layers are known, and costs against the stand-in's count."""

import numpy as np
import pytest

from refattn import params
from refattn.analysis import regular
from refattn.attention.sliding_dilated import SlidingDilated
from refattn.automata.compiled import compiled
from refattn.automata.finite import random_automaton
from refattn.layers.feed_forward import FeedForward
from refattn.losses import cross_entropy
from refattn.models.regular_gpt import RegularGPT, levels
from refattn.recipes import recipe
from refattn.tasks.languages import LANGUAGES
from refattn.verification.runs_of_cases import arrays
from tests import strict_cupy


def some_model(norm="post", thickness=1, out_of_range="pad", seed=0):
    model = RegularGPT(SlidingDilated(8, 2, 4, 2, out_of_range=out_of_range), FeedForward(8, 9, "gelu"), 2, 3,
                       thickness=thickness, norm=norm)
    flat, p = params.allocate(model.parameters(), np.float64)
    params.initialise(flat, model.parameters(), np.random.default_rng(seed), "random")
    return model, p


# ---------------------------------------------------------------- layer outputs

@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("chunk", [2, 3])
def test_window_maps_are_the_maps_of_the_windows(seed, chunk):
    rng = np.random.default_rng(seed)
    automaton = random_automaton(rng, int(rng.integers(1, 6)), 3)
    tokens = rng.integers(3, size=int(rng.integers(1, 30)))
    found = regular.window_maps(automaton, tokens, chunk)
    assert len(found) == levels(len(tokens), chunk)
    for level, maps in enumerate(found):
        for i in range(len(tokens)):
            window = tokens[max(0, i + 1 - chunk**(level + 1)):i + 1]
            np.testing.assert_array_equal(maps[i], automaton.word_map(window))


@pytest.mark.parametrize(("norm", "edge"), [("none", "pad"), ("post", "pad"), ("pre", "pad"), ("none", "mask")])
def test_a_compiled_automaton_holds_the_map_of_every_window(norm, edge):
    """Each vector's first slot is the matrix of the true map, whatever form; without a reset only inside the word."""
    automaton = LANGUAGES["d3"].automaton
    machine, n = compiled(automaton, norm=norm, out_of_range=edge), automaton.states
    tokens = np.random.default_rng(0).integers(2, size=100 if edge == "pad" else 64)
    found = regular.layer_outputs(machine.model, machine.parameters, automaton, tokens)
    assert len(found.vectors) == sum(-(-len(tokens) // 2**level) for level in range(1, found.level[-1] + 2))
    expected = np.eye(n)[found.maps[found.element]].reshape(-1, n * n)
    np.testing.assert_allclose(found.vectors[:, :n * n], expected, rtol=0, atol=1e-9)
    assert found.position[-1] == len(tokens) - 1


def test_500_tokens_make_the_501_vectors_of_figure_3():
    machine = compiled(LANGUAGES["parity"].automaton)
    tokens = np.random.default_rng(0).integers(2, size=500)
    found = regular.layer_outputs(machine.model, machine.parameters, machine.automaton, tokens)
    assert np.bincount(found.level).tolist() == [250, 125, 63, 32, 16, 8, 4, 2, 1]


def test_words_and_answers_may_be_on_a_device():
    machine = compiled(LANGUAGES["parity"].automaton, xp=strict_cupy)
    tokens = strict_cupy.asarray(np.random.default_rng(0).integers(2, size=9))
    assert len(regular.layer_outputs(machine.model, machine.parameters, machine.automaton, tokens).maps) == 2

    def answer(words):
        return machine.model.forward(machine.parameters, strict_cupy.asarray(words))[0][:, -1].argmax(axis=-1)
    assert regular.probability_shift(answer, [5, 8], ones=(0.5,), words=16) == {0.5: 1}


def test_the_last_vector_is_what_the_read_out_sees():
    for norm, thickness in ("post", 1), ("post", 3), ("none", 2):
        model, p = some_model(norm, thickness)
        tokens = np.random.default_rng(1).integers(2, size=37)
        found = regular.layer_outputs(model, p, LANGUAGES["parity"].automaton, tokens)
        _, saved = model.forward(p, tokens[None], tree=True)
        np.testing.assert_allclose(found.vectors[-1], saved.h[0, 0], rtol=1e-12)


@pytest.mark.parametrize(("name", "elements"), [("parity", 2), ("cycle", 5), ("tomita6", 3)])
def test_clusters_of_a_compiled_automaton_are_its_monoid(name, elements):
    pytest.importorskip("sklearn")
    machine = compiled(LANGUAGES[name].automaton, norm="post")
    tokens = np.random.default_rng(0).integers(machine.automaton.vocabulary, size=500)
    found = regular.layer_outputs(machine.model, machine.parameters, machine.automaton, tokens)
    points = regular.principal(found.vectors)
    assert points.shape == (len(found.vectors), 2) and len(found.maps) == elements
    assert regular.purity(points, found.element) == 1
    mixed = np.random.default_rng(1).permutation(found.element)
    chance = np.bincount(found.element).max() / len(mixed)
    assert regular.purity(points, mixed) < chance + 0.2


def test_few_points_have_no_more_clusters_than_can_be_told():
    pytest.importorskip("sklearn")
    assert regular.cluster_count(np.array([[0.0], [0.1], [9.0]])) == 2
    for points in np.zeros((5, 2)), np.array([[0.0], [1.0]]):
        with pytest.raises(ValueError, match=f"points are {len(points)}, too few that differ; allowed: at least 3"):
            regular.cluster_count(points)


def test_purity_of_a_known_mixture():
    pytest.importorskip("sklearn")
    points = np.concatenate([np.zeros((10, 2)), np.ones((10, 2)) * 9]) + np.random.default_rng(0).normal(size=(20, 2))
    assert regular.purity(points, np.array([0] * 8 + [1] * 2 + [1] * 7 + [0] * 3)) == 15 / 20


# ---------------------------------------------------------------- receptive field

def test_the_receptive_field_is_the_norm_of_the_derivative():
    model, p = some_model()
    rng = np.random.default_rng(2)
    tokens, target = rng.integers(2, size=(2, 7)), rng.integers(3, size=2)
    field = regular.receptive_field(model, p, tokens, target)
    slopes, flat = np.zeros((2, 7, 8)), np.concatenate([x.ravel() for x in arrays(p)])
    complex_p = params.view(flat.astype(complex), model.parameters())           # the model takes one dtype
    for place in np.ndindex(slopes.shape):
        x = p.embed.table[tokens].astype(complex)
        x[place] += 1e-30j
        loss, _ = cross_entropy(model.forward(complex_p, x, tree=True)[0], target[:, None])
        slopes[place] = loss.imag / 1e-30
    norm = np.linalg.norm(slopes, axis=-1).mean(axis=0)
    np.testing.assert_allclose(field, np.cumsum(norm[::-1]) / norm.sum(), rtol=1e-10)
    assert field[-1] == pytest.approx(1) and (np.diff(field) >= 0).all()


def test_heads_that_never_look_back_have_a_field_of_one_token():
    model, p = some_model()
    p.blocks[0].attention.offset_bias[:, 1] = -1000
    tokens = np.random.default_rng(3).integers(2, size=(4, 20))
    assert regular.receptive_field(model, p, tokens, np.zeros(4, dtype=int))[0] == 1


# ---------------------------------------------------------------- probability shift

def test_probability_shift_of_answers_that_are_known():
    assert regular.probability_shift(lambda x: x.sum(axis=1) % 2, [1, 5, 40], words=50) == dict.fromkeys(
        (0.1, 0.3, 0.5, 0.7, 0.9), 1.0)
    even = regular.probability_shift(lambda x: 0 * x[:, 0], [1], ones=(0.1, 0.9), words=4000)
    assert abs(even[0.1] - 0.9) < 0.03 and abs(even[0.9] - 0.1) < 0.03


# ---------------------------------------------------------------- cost

@pytest.mark.parametrize("edge", ["pad", "mask"])
@pytest.mark.parametrize(("length", "chunk", "thickness"), [(7, 2, 1), (27, 3, 2), (30, 3, 1)])
def test_pairs_are_those_that_are_multiplied(edge, length, chunk, thickness):
    """The stand-in counts the scores' products, d a pair and head; what does not depend on pairs is subtracted."""
    def count(chunk):
        model = RegularGPT(SlidingDilated(6, 2, 3, chunk, out_of_range=edge, value_width=5), FeedForward(6, 7, "relu"),
                           2, 2, thickness=thickness, norm="none")
        _, p = params.allocate(model.parameters(), np.float32, strict_cupy)
        tokens = strict_cupy.asarray(np.zeros((1, length), np.int64))
        with strict_cupy.count() as counted:
            model.forward(p, tokens)
        rest = length * thickness * levels(length, chunk) * (6 * 2 * (3 + 3 + 5) + 2 * 5 * 6 + 2 * 6 * 7)
        pads = thickness * levels(length, chunk) * 6 * 2 * (3 + 5) * (edge == "pad")
        return counted.multiply_adds - rest - pads - length * 6 * 2
    assert count(chunk) == 2 * 3 * regular.pairs(length, chunk, thickness, edge)


def test_the_papers_comparison():
    assert regular.pairs(512, 128, 2) == 512**2                                 # K = 2 L with L = 1
    assert f"{regular.crossing(512, 128, whole_levels=False):.2f}" == "3.11"    # R, section 3.4
    assert regular.crossing(512, 128) == 2


def test_clusters_of_a_run_are_those_of_its_words():
    pytest.importorskip("sklearn")
    chosen = recipe("parity", "quick")
    machine = compiled(LANGUAGES["parity"].automaton, norm="post")
    found = regular.clusters(chosen, machine.model, machine.parameters, np.random.default_rng(0), 3, 60)
    assert found["purity"] == 1 and 0.5 <= found["most frequent"] < 0.9
    with pytest.raises(ValueError, match="attention is 'rnn', which has no levels; allowed: sliding_dilated"):
        regular.clusters(recipe("parity", "quick", attention="rnn"), None, None, None)


@pytest.mark.parametrize("attention", ["rnn", "softmax"])
def test_what_is_read_of_a_regular_gpt_is_asked_of_no_other_model(attention):
    model, tokens = recipe("parity", "quick", attention=attention).build(), np.array([[0, 1, 1]])
    for call in (lambda: regular.layer_outputs(model, None, LANGUAGES["parity"].automaton, tokens[0]),
                 lambda: regular.receptive_field(model, None, tokens, np.array([0]))):
        with pytest.raises(ValueError, match=f"model is '{type(model).__name__}'; allowed: RegularGPT"):
            call()


@pytest.mark.parametrize("answer", [lambda tokens: tokens, lambda tokens: 0, lambda tokens: tokens[:, :1]])
def test_an_answer_is_not_stretched(answer):
    with pytest.raises(ValueError, match=r"answer has shape .*; allowed: \(8,\)"):
        regular.probability_shift(answer, [8], words=8)


@pytest.mark.parametrize("call, words", [
    (lambda: regular.pairs(5, 2, 1.5), "thickness is 1.5"), (lambda: regular.crossing(5, 1, False), "chunk is 1"),
    (lambda: regular.crossing(1, 2, False), "length is 1; allowed: whole numbers of at least 2"),
    (lambda: regular.probability_shift(lambda tokens: 0, []), "number of lengths is 0")])
def test_costs_and_accuracies_of_nothing_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_pairs_of_unknown_keys_out_of_range_are_refused():
    """They were counted as masked ones."""
    with pytest.raises(ValueError, match="out_of_range is 'padding'; allowed: mask, pad"):
        regular.pairs(8, 2, out_of_range="padding")
