"""Models that say one token after the other: equal to their forwards; greedily, rows ending at different steps."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from refattn import check
from refattn.attention import masks
from refattn.attention.compositional import Compositional
from refattn.attention.layer import MultiHead
from refattn.layers.block import Block
from refattn.layers.embedding import Embedding, Readout
from refattn.layers.feed_forward import FeedForward
from refattn.layers.positions import T5
from refattn.layers.stack import Stack
from refattn.models.encoder_decoder import EncoderDecoder
from refattn.models.transformer import Transformer, decoder
from refattn.train.decoding import greedy
from refattn.verification.theorems.statement import filled
from tests import strict_cupy
from tests.refusals import refused

END = 4


def stack(attention, cross=None, **options):
    norm = options.pop("norm", "post")
    block = Block(attention, FeedForward(8, 9, "relu"), options.pop("position", None), norm, cross, epsilon=1e-5)
    return Stack(block, 2, **options)


def searches(scoring):
    return Compositional(8, 2, 3, 4, 4, 5, scoring, biases=False, selector_biases=True)


def encoder_decoder(layer, **options):
    return EncoderDecoder(Embedding(8, vocabulary=6, table="interleaved"), stack(layer, **options),
                          Embedding(8, vocabulary=5, table="interleaved"), stack(layer, layer, **options),
                          Readout(8, 5, tied=True, bias=True, scale=False))


MODELS = {
    "own blocks, post": encoder_decoder(MultiHead(8, 2, 4)),
    "one block, linear scoring": encoder_decoder(searches("linear"), shared=True),
    "one block, dot scoring, pre": encoder_decoder(searches("dot"), shared=True, norm="pre", final_norm=True),
}
DECODERS = {
    "T5": decoder(MultiHead(8, 2, 4, variant="hyla"), hidden=9, layers=2, buckets=6, vocabulary=5, tied=True,
                  causal=True),
    "T5 shared": Transformer(Embedding(8, vocabulary=5), stack(MultiHead(8, 2, 4), position=T5(2, 6, 6), shared=True),
                             Readout(8, 5), causal=True),
    "table": Transformer(Embedding(8, vocabulary=5, scale=True, table="halves"), stack(searches("dot"), norm="pre"),
                         Readout(8, 5), causal=True),
}


@pytest.mark.parametrize(("changes", "message"), [
    ({"decoder": stack(MultiHead(8, 2, 4))}, "the decoder's block has no cross"),
    ({"readout": Readout(8, 6, tied=True)}, "tied is True, but outputs are 6 and the vocabulary 5"),
    ({"readout": Readout(9, 5)}, "readout has width 9, the stack 8; allowed: one width"),
    ({"target": Embedding(9, vocabulary=5)}, "embedding has width 9, the stack 8; allowed: one width"),
])
def test_parts_of_the_decoder_that_do_not_fit_are_refused(changes, message):
    refused(message, replace, encoder_decoder(MultiHead(8, 2, 4)), **changes)


def asked(model, seed=0):
    """Random parameters, five commands of different lengths, their paddings."""
    rng = np.random.default_rng(seed)
    lengths = np.array([7, 2, 5, 7, 1])
    return filled(model, rng), rng.integers(6, size=(5, 7)), masks.padding(lengths, 7)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_pieces_of_the_target_equal_the_whole(model):
    p, source, keep = asked(model)
    target = np.random.default_rng(1).integers(5, size=(5, 9))
    whole, _ = model.forward(p, source, target=target, source_keep=keep)
    for cuts in (1, 3, 4), range(1, 9), ():
        state = model.begin(p, source, keep)
        for start, stop in zip((0, *cuts), (*cuts, 9), strict=True):
            y, state = model.extend(p, target[:, start:stop], state)
            assert check.deviation("y", y, whole[:, start:stop]) <= 1e-12


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_target_token_is_seen_from_then_on(model):
    """Another token at position 4 moves what stands there and after it, and nothing before."""
    p, source, _ = asked(model)
    target = np.random.default_rng(1).integers(5, size=(5, 9))
    other = target.copy()
    other[:, 4] = (other[:, 4] + 1) % 5
    one, two = (model.forward(p, source, target=x)[0] for x in (target, other))
    assert (np.abs(one - two).max(axis=(0, 2)) > 1e-6).tolist() == [n >= 4 for n in range(9)]


@pytest.mark.parametrize("model", DECODERS.values(), ids=DECODERS)
def test_pieces_of_a_text_equal_the_whole(model):
    p, tokens = filled(model, np.random.default_rng(0)), np.random.default_rng(1).integers(5, size=(3, 9))
    whole, _ = model.forward(p, tokens)
    for cuts in (2, 3, 7), range(1, 9):
        state = model.begin(p)
        for start, stop in zip((0, *cuts), (*cuts, 9), strict=True):
            y, state = model.extend(p, tokens[:, start:stop], state)
            assert check.deviation("y", y, whole[:, start:stop]) <= 1e-12


def by_recomputing(model, p, source, keep, steps, wish):
    """Greedy decoding, a row at a time, the whole target again at every step; `wish` (b, steps) is added to the end."""
    rows = []
    for n in range(len(source)):
        said = [END]
        while len(said) <= steps and (len(said) == 1 or said[-1] != END):
            y, _ = model.forward(p, source[n:n + 1], target=np.array([said]), source_keep=keep[n:n + 1])
            y[0, -1, END] += wish[n, len(said) - 1]
            said.append(int(y[0, -1].argmax()))
        rows.append(said[1:] + [END] * (steps + 1 - len(said)))
    return np.array(rows)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_greedy_equals_recomputing_whenever_a_row_ends(model):
    def extend(tokens, state):
        y, inner = model.extend(p, tokens, state[0])
        y[:, 0, END] += wish[:, state[1]]
        return y, (inner, state[1] + 1)

    ends = set()
    for seed in range(4):
        p, source, keep = asked(model, seed)
        wish = 4 * np.random.default_rng(seed).standard_normal((5, 12)) - 5     # untrained, models end at once or never
        first = np.full((5, 1), END)
        said = greedy(extend, (model.begin(p, source, keep), 0), first, 12, END)
        expected = by_recomputing(model, p, source, keep, 12, wish)
        longest = min(12, (expected != END).sum(axis=1).max() + 1)  # it stops when all have ended, not before or later
        assert said.shape == (5, longest) and said.dtype == first.dtype
        np.testing.assert_array_equal(said, expected[:, :longest])
        ends |= set((expected != END).sum(axis=1).tolist())
    assert len(ends) >= 5, ends


def test_without_an_end_it_says_as_many_tokens_as_asked():
    model = DECODERS["T5"]
    p = filled(model, np.random.default_rng(0))
    said = greedy(partial(model.extend, p), model.begin(p), np.array([[1, 2, 3], [0, 4, 4]]), 5)
    text = np.array([[1, 2, 3], [0, 4, 4]])
    for _ in range(5):
        text = np.concatenate([text, model.forward(p, text)[0][:, -1:].argmax(axis=-1)], axis=1)
    np.testing.assert_array_equal(said, text[:, 3:])


def test_a_device_is_asked_once_in_eight_tokens_whether_all_rows_have_ended():
    def extend(tokens, state):
        y = strict_cupy.zeros((2, 1, 3), dtype="float32")
        y[:, :, 2 if state >= 3 else 0] = 1                         # both rows end at the fourth token
        return y, state + 1

    first = strict_cupy.zeros((2, 1), dtype="int32")
    with strict_cupy.count() as counted:
        said = greedy(extend, 0, first, 30, end=2)
    assert counted.sync == counted.d2h == 1
    assert said.get().tolist() == [[0, 0, 0, 2, 2, 2, 2, 2]] * 2


def test_refusals():
    with pytest.raises(ValueError, match="causal is False; allowed: True, to say one token after the other"):
        model = decoder(MultiHead(8, 2, 4), hidden=9, layers=1, vocabulary=5)
        model.begin(filled(model, np.random.default_rng(0)))
    first = np.zeros((2, 1), int)
    for message, *arguments in (("steps is -1", first, -1), ("tokens of first is 0; allowed", first[:, :0], 3),
                                ("first has shape (2,); allowed: 2 axes (b, n)", first[:, 0], 3),
                                ("end is 'a'", first, 3, "a"), ("end is 0.5", first, 3, 0.5)):
        refused(message, greedy, None, 0, *arguments)
