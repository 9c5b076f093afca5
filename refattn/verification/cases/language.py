"""Rows for what language models add: biases by distance, a learned table, the loss over a vocabulary, a state."""

from functools import partial

import numpy as np

from ...attention import VARIANTS
from ...attention.compositional import Compositional
from ...attention.layer import MultiHead
from ...attention.linear_state import linear_state, linear_state_backward
from ...attention.sliding_dilated import SlidingDilated
from ...layers.block import Block
from ...layers.embedding import Embedding
from ...layers.feed_forward import FeedForward
from ...layers.next_token import next_token, next_token_backward
from ...layers.positions import Rotary
from ...layers.stack import Stack
from ...layers.text_positions import ALiBi, Kerple, LearnedTable
from ...models.language import Language
from ...tasks.text_windows import windows
from ...xp import array_module
from ..naive import compositional as naive_compositional
from ..naive import language as naive_language
from ..naive import layer as naive_layer
from ..naive import linear_state as naive_state
from ..naive import next_token as naive_next_token
from ..naive import text as naive_text
from ..naive import text_positions as naive_positions
from ..naive.positions import rotary as naive_rotary
from .attention import loops
from .case import Case, dropped, shape, sizes
from .layers import attending, of_parameters, only_x, random_parameters, row
from .operations import op, tokens
from .routines import in_pieces, table


def biased(variant, position, bias, read=None) -> Case:
    """MultiHead with a bias by distance; `bias(p, queries, keys)` gives it by loops."""
    layer = MultiHead(8, 3, 4, 2, variant=variant, position=position)

    def naive(p, x, **given):
        given["bias"] = bias(p, x.shape[1], x.shape[1]) + (0 if given["bias"] is None else given["bias"])
        return naive_layer.multi_head(p, x, page=loops(VARIANTS[variant]), **given)

    words = f"layers/MultiHead {variant}, {type(position).__name__} {getattr(position, 'kernel', '')}".strip()
    return attending(words, layer, "layers/text_positions.py", naive,
                     "Press et al. 2022; Chi et al. 2022; R's baselines", ordered=True, read=read)


def kerple(p, queries, keys, kernel):
    """KERPLE's bias (h, q, k) of a layer's parameters, by loops."""
    return naive_positions.kerple(p.position.a, p.position.p, queries, keys, kernel)


def learned_table() -> Case:
    """The table, read from its third row on."""
    def naive(p, x):
        return np.array([[x[b, t] + p.table[2 + t] for t in range(x.shape[1])] for b in range(len(x))])

    return row("layers/LearnedTable", LearnedTable(10, 8), "layers/text_positions.py", only_x, naive,
               source="Radford et al. 2019", fixed={"start": 2}, axes={"x": "btm", "output": "btm"})


def loss(rows, scale) -> Case:
    """The loss of tokens, `rows` at a time."""
    return op(f"layers/next_token, {rows or 'all'} at a time", partial(next_token, scale=scale, rows=rows),
              next_token_backward, partial(naive_next_token.next_token, scale=scale), "bt",
              source="H, C and R, language models", file="layers/next_token.py", h="btm", table="vm",
              target=("bt", tokens), independent="bt", symmetric="btm", smallest=3)


def state(given) -> Case:
    """Linear attention over a piece, with or without a state before it."""
    def forward(**inputs):
        o, after, saved = linear_state(**inputs)
        return (o, after), saved

    return op(f"attention/linear_state{' after others' if given else ''}", forward,
              lambda saved, dy: linear_state_backward(saved, *dy), naive_state.linear_state, ("bthe", "bhde"),
              source="H, eq. (1)-(3); Katharopoulos et al. 2020", file="attention/linear_state.py", q="bthd", k="bthd",
              v="bthe", **({"state": "bhde"} if given else {}), independent="bh", symmetric="bhde")


def model(name, stack, *, embedding=None, read=None, target=True, fields=None, **options) -> Case:
    """A language model of 6 token ids, its loss or its scores; dropout in three places, or none."""
    one = Language(Embedding(8, vocabulary=6, **(embedding or {})), stack, **(fields or {}))

    def make(rng):
        size = sizes(rng, "bt", 4) | {"m": 8}
        size |= {"a": len(list(one.applications(size["t"]))), "s": 2, "w": getattr(stack.block.attention, "chunk", 0)}
        ids = {x: rng.integers(6, size=(size["b"], size["t"])) for x in (("x", "target") if target else ("x",))}
        drop = {"embedding_dropout": "btm", "residual": "asbtm", "dropout": "ab1tw" if one.sliding else "ab1tt"}
        return ids | {x: dropped(rng, *shape(form, size)) for x, form in drop.items()}

    return row(f"models/Language {name}", one, "models/language.py", make, partial(naive_language.language, **options),
               read=read, source="H, section 5; C, section 4.7; R, section 6",
               constants=("embedding_dropout", "residual", "dropout"),
               axes={"x": "bt", "target": "bt", "embedding_dropout": "btm", "residual": "asbtm", "dropout": "abhtt",
                     "output": "bt" if target else "btv"})


def block(attention, feed_forward=None, norm="pre"):
    """A block of width 8."""
    return Block(attention, feed_forward or FeedForward(8, 9), norm=norm, epsilon=1e-5)


def language_models():
    """H's decoder, C's, R's; scores and losses."""
    yield model("tied, scaled", Stack(block(MultiHead(8, 2, 4, variant="hyla")), 2, final_norm=True), scale=True,
                attention=partial(naive_layer.multi_head, page=loops(VARIANTS["hyla"])), fields={"scale": True})
    yield model("learned table, own read-out, read", Stack(block(MultiHead(8, 2, 4)), 1), read=slice(2, None),
                fields={"learned": 7, "tied": False})
    shared = block(Compositional(8, 2, 2, 4, 3, 5), FeedForward(8, 9, "relu"))
    yield model("shared, halves, scores", Stack(shared, 2, True, True), target=False, layers=2, activation="relu",
                halves=True, attention=naive_compositional.layer, embedding={"scale": True, "table": "halves"},
                embedding_scale=True)
    yield model("regular, two sub-layers", Stack(block(SlidingDilated(8, 2, 4, 2, out_of_range="mask")), 2,
                                                 final_norm=True), chunk=2, least=9, fields={"length": 9})


def scored(every_window):
    """Windows of texts of 2 to 12 tokens, with and without context."""
    return tuple(np.concatenate([np.stack(every_window(np.arange(1, n + 1), 4, context))
                                 for n in range(2, 13)], axis=1) for context in (0, 1, 3))


def extended(name, layer, *, fields=None, **options) -> Case:
    """A model that reads seven tokens in pieces, keeping what it must, beside the loops over all that it has read.

    The output is the scores after each, and the loss of the last.
    """
    pieces = slice(0, 2), slice(2, 3), slice(3, 5), slice(5, 7)
    one = Language(Embedding(8, vocabulary=6), Stack(block(layer), 2, final_norm=True), **(fields or {}))

    def make(rng):
        return {"parameters": random_parameters(rng, one), **{x: rng.integers(6, size=(2, 7)) for x in ("x", "target")}}

    def forward(p, x, target):
        scores = in_pieces(lambda now, kept: one.extend(p, x[:, now], kept), pieces)
        last, _ = one.last(p, x, target, piece=3)
        return (array_module(last).concatenate(scores, axis=1), last), None

    def naive(p, x, target):
        read = partial(naive_language.language, p, **options)
        scores = [read(x[:, :now.stop])[:, now] for now in pieces]
        return np.concatenate(scores, axis=1), read(x, target=target)[:, -1:]

    return Case(f"models/Language extended, {name}", "R, section 6; Katharopoulos et al. 2020", "models/language.py",
                make, of_parameters(one, forward), None, of_parameters(one, naive))


def routines():
    """The rows without a backward."""
    yield extended("kept keys, a learned table", MultiHead(8, 2, 4), fields={"learned": 7})
    yield extended("a state, rotary", MultiHead(8, 2, 4, variant="linear", position=Rotary(100.0)), attention=partial(
        naive_layer.multi_head, page=loops(VARIANTS["linear"]), position=partial(naive_rotary, base=100.0)))
    yield extended("growing levels", SlidingDilated(8, 2, 4, 2), chunk=2, least=3, fields={"length": 3})
    yield table("tasks/text windows", "tasks/text_windows.py", lambda: scored(windows),
                lambda: scored(naive_text.windows), "C, released code: windows of 400 + 112")


def rows():
    """The rows with a backward."""
    yield biased("softmax", ALiBi(3), lambda p, *lengths: naive_positions.alibi(3, *lengths))
    yield biased("linear", ALiBi(3), lambda p, *lengths: naive_positions.alibi(3, *lengths), slice(None, 1, -2))
    yield biased("softmax", Kerple(3), partial(kerple, kernel="log"))
    yield biased("hyla", Kerple(3, "power"), partial(kerple, kernel="power"), slice(2, None))
    yield learned_table()
    yield from (state(given) for given in (False, True))
    yield loss(None, 0.5)
    yield loss(4, 1.0)
    yield from language_models()
