"""Rows for sequences: context normalisation; layers that keep keys and values, extended piece by piece."""

from functools import partial

import numpy as np

from ...attention.compositional import Compositional
from ...attention.layer import MultiHead
from ...attention.masks import padding
from ...layers.block import Block
from ...layers.context_norm import ContextNorm
from ...layers.embedding import Embedding, Readout
from ...layers.feed_forward import FeedForward
from ...layers.positions import Rotary
from ...layers.stack import Stack
from ...models.encoder_decoder import EncoderDecoder
from ...models.esbn import RelationNetwork
from ...models.transformer import decoder
from ...params import view
from ..naive import block as naive_block
from ..naive import compositional as naive_compositional
from ..naive import context_norm as naive_context_norm
from ..naive import esbn as naive_esbn
from ..naive import layer as naive_layer
from ..naive import positions as naive_positions
from ..naive import transformer as naive_transformer
from ..naive.hyla import hyla as naive_hyla
from ..naive.softmax import softmax as naive_softmax
from .case import DRAWS, Case, normal, sizes
from .layers import of_parameters, random_parameters, row
from .routines import in_pieces, pairs

PIECES = slice(0, 2), slice(2, 3), slice(3, 4), slice(4, 7)            # tokens that come together; the room grows twice


def decoding(name, layer, naive) -> Case:
    """The row of a layer whose loops are naive(p, x, context=, bias=, keep=); every token may attend to itself.

    The outputs of tokens that come in pieces; then, of a layer without positions, what they find in the context.
    """
    def make(rng):
        size = sizes(rng, "bk", 3) | {"m": 8, "q": 7, "h": 3}
        keep = (rng.random((size["b"], 1, 7, 7)) < 0.7) | np.eye(7, dtype=bool)
        return {"parameters": random_parameters(rng, layer), "x": normal(rng, "bqm", size),
                "context": normal(rng, "bkm", size), "bias": rng.standard_normal((3, 7, 7)), "keep": keep}

    def forward(p, x, context, bias, keep):
        def extend(now, kept):
            seen = ..., now, slice(now.stop)
            return layer.extend(p, x[:, now], kept, bias=bias[seen], keep=keep[seen])

        found = in_pieces(extend, PIECES)
        if getattr(layer, "position", None) is None:
            kept = layer.project_context(p, context)
            found += [layer.attend(p, x[:, now], kept) for now in PIECES]
        return tuple(found), None

    def loops(p, x, context, bias, keep):
        found = [naive(p, x, bias=bias, keep=keep & pairs(lambda q, k: k <= q, 7, 7))]
        if getattr(layer, "position", None) is None:
            found.append(naive(p, x, context=context))
        return tuple(y[:, now] for y in found for now in PIECES)

    return Case(f"decoding/{name}", "common practice", "attention/kept.py", make, of_parameters(layer, forward), None,
                of_parameters(layer, loops))


def models_decoding(name, model, make, naive) -> Case:
    """The row of a model that is extended piece by piece; `make(rng)` gives the inputs, naive(p, **inputs) its output.

    What comes in pieces is the input `target`; the others, in their order, are what it begins from.
    """
    def forward(p, target, **given):
        begun = model.begin(p, *given.values())
        return tuple(in_pieces(lambda now, state: model.extend(p, target[:, now], state), PIECES, begun)), None

    def loops(p, **given):
        y = naive(p, **given)
        return tuple(y[:, now] for now in PIECES)

    return Case(f"decoding/{name}", "common practice", "layers/block.py", lambda rng: {
        "parameters": random_parameters(rng, model), **make(rng)}, of_parameters(model, forward), None,
        of_parameters(model, loops))


def whole_models():
    """H's decoder with its biases by distance, and two stacks of post-LN blocks."""
    yield models_decoding("Transformer", decoder(
        MultiHead(8, 3, 4, 2, variant="hyla"), hidden=9, layers=2, buckets=10, outputs=2, vocabulary=5, causal=True),
        lambda rng: {"target": rng.integers(5, size=(3, 7))}, lambda p, target: naive_transformer.transformer(
            p, target, page=naive_hyla, causal=True))
    blocks = [Stack(Block(MultiHead(8, 2, 4), FeedForward(8, 9, "relu"), norm="post", cross=cross, epsilon=1e-5), 2)
              for cross in (None, MultiHead(8, 3, 4))]
    table = {"source": Embedding(8, vocabulary=5), "target": Embedding(8, vocabulary=6, table="interleaved")}
    model = EncoderDecoder(table["source"], blocks[0], table["target"], blocks[1], Readout(8, 6))
    yield models_decoding("EncoderDecoder", model, lambda rng: {
        "x": rng.integers(5, size=(3, 4)), "source_keep": padding(rng.integers(1, 5, size=3), 4),
        "target": rng.integers(6, size=(3, 7))}, partial(naive_block.encoder_decoder, positions=True))


def context_norm(segments) -> Case:
    """ContextNorm of segments of three positions or six; of pairs dx is zero but for epsilon, and else rounding."""
    return row(f"layers/ContextNorm in {segments}", ContextNorm(8, segments), "layers/context_norm.py", lambda rng: {
        "x": normal(rng, "btm", {"b": int(rng.integers(3, 6)), "t": max(6, 3 * segments), "m": 8})}, lambda p, x:
        naive_context_norm.context_norm(x, p.scale, p.shift, segments), source="Webb et al. 2020",
        symmetric="bt" if segments == 1 else "b", axes={"x": "btm", "output": "btm"})


def relations(name, attention, scoring, segments) -> Case:
    """The network of ESBN's tasks.  Its convolutions are alive: the slopes of constant features magnify rounding."""
    def make(rng):
        size, flat = {"b": 3, "h": 3, "q": 6, "k": 6}, random_parameters(rng, network)
        for each in view(flat, network.parameters()).convs:
            each.b[...] += 1
        return {"parameters": flat, "x": 4 * rng.standard_normal((8, 8, 8, 1)),
                "place": np.array([rng.permutation(8)[:6] for _ in range(3)]),
                "dropout": DRAWS["dropout"](rng, size) if rng.random() < 0.7 else None}

    network = RelationNetwork(attention, 2, segments, hidden=9, features=16, channels=3, size=8)
    return row(f"models/RelationNetwork {name}", network, "models/esbn.py", make, partial(
        naive_esbn.network, scoring=scoring, segments=segments), source="C, section 4.5", constants=("dropout",),
        independent="", axes={"place": "bt", "dropout": "bhtt", "output": "bo"})


def rows():
    """The rows that have a backward."""
    yield from (context_norm(segments) for segments in (1, 2, 3))
    yield relations("softmax", MultiHead(8, 3, 4, 2), None, 1)
    yield relations("dot, two segments", Compositional(8, 3, 4, 4, 2, 5), "dot", 2)


def routines():
    """The rows of decoding."""
    yield from whole_models()
    for name, page in ("softmax", naive_softmax), ("hyla", naive_hyla):
        yield decoding(name, MultiHead(8, 3, 4, 2, variant=name), partial(naive_layer.multi_head, page=page))
    yield decoding("softmax rotary", MultiHead(8, 3, 4, 2, position=Rotary(base=100.0)), partial(
        naive_layer.multi_head, position=partial(naive_positions.rotary, pairing="interleaved", base=100.0)))
    for scoring in "dot", "linear":
        yield decoding(f"compositional {scoring}", Compositional(8, 3, 4, 4, 2, 5, scoring),
                       partial(naive_compositional.layer, scoring=scoring))
