"""Transformers: an embedding, a stack of blocks, a read-out.

    h = embedding(x);   h <- stack(h);   y = read_out(h)

`decoder` is H's: pre-LN blocks with a T5 table each, a final LayerNorm; `universal` is C's: one block applied several
times; `post_norm` is R's baseline.  Source: H, appendix C; C, section 4; R, section 5; and the released codes.  Differs
from H's text: the final LayerNorm and one T5 table per block (code); no causal mask unless asked for (code: none for
fuzzy logic and SRAVEN, although the text says decoder).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from ..attention import masks
from ..checks import check_switch
from ..layers.block import Block
from ..layers.embedding import Embedding, Readout
from ..layers.feed_forward import FeedForward
from ..layers.positions import T5
from ..layers.stack import Stack, StackSaved
from ..params import check_views
from ..xp import array_module

__all__ = ["Transformer", "decoder", "post_norm", "universal"]


class Saved(NamedTuple):
    embedding: Any
    stack: StackSaved

    @property
    def blocks(self) -> tuple:
        """What each application of a block saved: `.attention.attention.code` is its latent code."""
        return self.stack.blocks

    @property
    def h(self):
        """(b, q, m), what the read-out sees."""
        return self.stack.h


@dataclass(frozen=True)
class Transformer:
    """y (b, t, o) from token ids (b, t) or continuous tokens (b, t, i); `causal`: no position sees a later one.

    Raises ValueError for widths that do not agree, or a read-out tied to an embedding of continuous tokens.
    """
    embedding: Embedding
    stack: Stack
    readout: Readout
    causal: bool = False

    def __post_init__(self):
        check_switch("causal", self.causal)
        for name, part in ("embedding", self.embedding), ("readout", self.readout):
            if part.width != self.stack.width:
                raise ValueError(f"{name} has width {part.width}, the stack {self.stack.width}; allowed: one width")
        if self.readout.tied and self.readout.outputs != self.embedding.vocabulary:
            raise ValueError(f"tied is True, but outputs are {self.readout.outputs} and the vocabulary "
                             f"{self.embedding.vocabulary}; allowed: as many of both")

    def parameters(self) -> dict:
        """Those of `embed`, of the stack, of `readout`."""
        return {"embed": self.embedding.parameters(), **self.stack.parameters(), "readout": self.readout.parameters()}

    def forward(self, p, x, *, keep=None, dropout=None, residual=None, read=None):
        """y (b, q, o).  Returns y and Saved.

        `dropout` and `residual` are None or have one entry for each application of a block; with `read`, a slice of
        positions, y[:, read] is computed, and of the last application nothing else.
        """
        check_views(p)
        h, embedding = self.embedding.forward(p.embed, x)                                       # (1)
        if self.causal and not self.stack.block.slides:            # which looks back anyway
            c = masks.causal(x.shape[1], xp=array_module(h))
            keep = c if keep is None else keep & c
        h, stack = self.stack.forward(p, h, keep=keep, dropout=dropout, residual=residual, read=read)       # (2)
        y, _ = self.readout.forward(p.readout, h, getattr(p.embed, "table", None))              # (3)
        return y, Saved(embedding, stack)

    def begin(self, p) -> tuple:
        """What `extend` needs before the first token.  Raises ValueError unless `causal`, whatever the attention."""
        if not self.causal:
            raise ValueError("causal is False; allowed: True, to say one token after the other")
        return self.stack.keep_context(p), 0

    def extend(self, p, x, state):
        """y (b, n, o) of n further tokens, and the state after them: `forward` of a causal model piece by piece."""
        kept, start = state
        h, _ = self.embedding.forward(p.embed, x, start=start)
        h, kept = self.stack.extend(p, h, kept)
        y, _ = self.readout.forward(p.readout, h, getattr(p.embed, "table", None))
        return y, (kept, start + x.shape[1])

    def backward(self, p, saved, dy, grads):
        """dx (b, t, i), or None for token ids; parameter gradients are added into `grads`."""
        check_views(grads, "grads")
        table, dtable = (getattr(each.embed, "table", None) for each in (p, grads))
        dh = self.readout.backward(p.readout, saved.h, dy, grads.readout, table, dtable)        # (3)
        dh = self.stack.backward(p, saved.stack, dh, grads).x                                   # (2)
        return self.embedding.backward(p.embed, saved.embedding, dh, grads.embed)               # (1)


def decoder(attention, *, hidden: int, layers: int, buckets: int | None = None, feed_forward=None, outputs: int = 1,
            inputs: int | None = None, vocabulary: int | None = None, tied: bool = False,
            causal: bool = False) -> Transformer:
    """H's model around an attention layer, with a GELU MLP of width `hidden` unless `feed_forward` is another layer.

    buckets : of each block's T5 table, and its max_distance in tokens; None for no table
    tied    : with a vocabulary, the read-out is the transposed embedding over sqrt(m), as in H's code (the text does
              not divide), and `outputs` says nothing
    """
    m, rows = attention.width, vocabulary if tied and vocabulary is not None else outputs
    position = None if buckets is None else T5(attention.heads, buckets, buckets)
    block = Block(attention, feed_forward or FeedForward(m, hidden), position, epsilon=1e-6)
    return Transformer(Embedding(m, inputs, vocabulary), Stack(block, layers, final_norm=True),
                       Readout(m, rows, tied), causal)


def universal(attention, feed_forward, layers: int, *, inputs: int, outputs: int = 1, norm: str = "pre",
              table: str = "none", final_norm: bool = False) -> Transformer:
    """C's block in its plainest model: applied `layers` times to continuous tokens, positions added once, at the input.

    norm  : "pre" or "post"
    table : of positions, "none", "image", "interleaved" or "halves"

    No recipe uses it: C's networks are in contextual_retrieval, esbn, vision, encoder_decoder and language.
    """
    m = attention.width
    block = Block(attention, feed_forward, norm=norm, epsilon=1e-5)
    return Transformer(Embedding(m, inputs, table=table), Stack(block, layers, True, final_norm), Readout(m, outputs))


def post_norm(attention, hidden: int, layers: int, *, vocabulary: int, outputs: int,
              causal: bool = False) -> Transformer:
    """R's baseline: post-LN blocks with a relu MLP, embeddings times sqrt(m), no norm after the last block."""
    m = attention.width
    stack = Stack(Block(attention, FeedForward(m, hidden, "relu"), norm="post", epsilon=1e-5), layers)
    return Transformer(Embedding(m, vocabulary=vocabulary, scale=True), stack, Readout(m, outputs), causal)
