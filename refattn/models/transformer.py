"""The decoder of H: pre-LN blocks, a final LayerNorm and a linear read-out, around any attention layer.

    x1 = x + attention(LN1(x), bias);   x2 = x1 + feed_forward(LN2(x1));   y = read_out(LN(x2 of the last block))

Source: H, appendix C and released code.  Differs from H's text: the final LayerNorm and one T5 table per block (code);
no causal mask unless asked for (code: none for fuzzy logic and SRAVEN, although the text says decoder).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import masks, ops
from ..attention.layer import MultiHead
from ..feed_forward import FeedForward
from ..params import Parameter
from ..positions import T5
from ..xp import array_module


@dataclass(frozen=True)
class LayerNorm:
    """y = scale (x - mean) / sqrt(var + epsilon) + shift over the last axis."""
    width: int
    epsilon: float = 1e-6

    def parameters(self):
        m = self.width
        return {"scale": Parameter("m", (m,), m, "scale"), "shift": Parameter("m", (m,), m, "shift")}

    def forward(self, p, x):
        """y like x.  Returns y and what the backward needs."""
        y, *saved = ops.layer_norm(x, p.scale, p.shift, self.epsilon)
        return y, saved

    def backward(self, p, saved, dy, grads):
        """dx; parameter gradients are added into `grads`."""
        dx, dscale, dshift = ops.layer_norm_backward(*saved, p.scale, dy)
        grads.scale += dscale
        grads.shift += dshift
        return dx


class BlockSaved(NamedTuple):
    norm1: Any
    attention: Any             # a MultiHead's Saved: `.attention.code` is the latent code
    norm2: Any
    feed_forward: Any
    position: Any
    shape: tuple               # of the block's input
    read: slice | None


@dataclass(frozen=True)
class Block:
    """x + attention(LN(x)), then x + feed_forward(LN(x)); `position` makes the attention's additive bias."""
    attention: Any
    feed_forward: Any
    position: T5 | None = None
    epsilon: float = 1e-6

    def parameters(self):
        norm = LayerNorm(self.attention.width, self.epsilon).parameters()
        names = {"norm1": norm, "attention": self.attention.parameters()}
        if self.position is not None:
            names["position"] = self.position.parameters()
        return {**names, "norm2": norm, "feed_forward": self.feed_forward.parameters()}

    def forward(self, p, x, *, keep=None, dropout=None, read=None):
        """y (b, t, m) from x (b, t, m); with `read` only y[:, read] is computed.  Returns y and BlockSaved."""
        norm = LayerNorm(self.attention.width, self.epsilon)
        bias = at = None
        if self.position is not None:
            bias, at = self.position.forward(p.position, x.shape[1], x.shape[1])
        n1, norm1 = norm.forward(p.norm1, x)                                                    # (1)
        a, attention = self.attention.forward(p.attention, n1, bias=bias, keep=keep, dropout=dropout, read=read)  # (2)
        a += x if read is None else x[:, read]                                                  # (3)
        n2, norm2 = norm.forward(p.norm2, a)                                                    # (4)
        y, feed_forward = self.feed_forward.forward(p.feed_forward, n2)                         # (5)
        y += a                                                                                  # (6)
        return y, BlockSaved(norm1, attention, norm2, feed_forward, at, x.shape, read)

    def backward(self, p, saved, dy, grads):
        """dx (b, t, m); parameter gradients are added into `grads`."""
        norm = LayerNorm(self.attention.width, self.epsilon)
        dn2 = self.feed_forward.backward(p.feed_forward, saved.feed_forward, dy, grads.feed_forward)        # (5)
        da = norm.backward(p.norm2, saved.norm2, dn2, grads.norm2)                              # (4)
        da += dy                                                                                # (6)
        dn1, _, dbias = self.attention.backward(p.attention, saved.attention, da, grads.attention)          # (2)
        dx = norm.backward(p.norm1, saved.norm1, dn1, grads.norm1)                              # (1)
        if saved.read is None:
            dx += da                                                                            # (3)
        else:
            dx[:, saved.read] += da                                                             # (3)
        if self.position is not None:
            self.position.backward(p.position, saved.position, dbias, grads.position)
        return dx


class Saved(NamedTuple):
    x: Any
    blocks: tuple              # one BlockSaved per application
    norm: Any
    h: Any                     # (b, t, m), what the read-out sees
    read: slice | None


@dataclass(frozen=True)
class Transformer:
    """Embedding, blocks, final LayerNorm, read-out.

    `inputs` is the width of continuous tokens, or `vocabulary` the number of token ids.  `tied` reads out with the
    transposed embedding over sqrt(width) (H's language model; without bias); otherwise `outputs` is the width.
    The baseline of R has no `final_norm`, its blocks end in one, and embeddings times sqrt(width), `embedding_scale`.
    """
    block: Block
    layers: int
    outputs: int = 1
    inputs: int | None = None
    vocabulary: int | None = None
    tied: bool = False
    causal: bool = False
    final_norm: bool = True
    embedding_scale: bool = False

    def __post_init__(self):
        if (self.inputs is None) == (self.vocabulary is None):
            raise ValueError("exactly one of inputs (width of continuous tokens) and vocabulary must be given; "
                             f"inputs is {self.inputs}, vocabulary {self.vocabulary}")
        if self.tied and self.vocabulary is None:
            raise ValueError("tied is True but there is no vocabulary; a read-out is tied to a table of token ids")
        if self.layers < 1:
            raise ValueError(f"layers is {self.layers}; at least 1 is needed")

    @property
    def width(self) -> int:
        return self.block.attention.width

    def parameters(self):
        m, i, o = self.width, self.inputs, self.outputs
        embed = {"table": Parameter("vm", (self.vocabulary, m), m, "table")} if i is None else {
            "w": Parameter("im", (i, m), i, "weight"), "b": Parameter("m", (m,), i, "bias")}
        names = {"embed": embed, "blocks": tuple(self.block.parameters() for _ in range(self.layers))}
        if self.final_norm:
            names["norm"] = LayerNorm(m).parameters()
        if not self.tied:
            names["readout"] = {"w": Parameter("mo", (m, o), m, "weight"), "b": Parameter("o", (o,), m, "bias")}
        return names

    def forward(self, p, x, *, keep=None, dropout=None, read=None):
        """y (b, t, o) from x (b, t, i) or token ids (b, t).  Returns y and Saved.

        `dropout` is None or one array per block; with `read`, a slice of positions, y[:, read] is computed, and of the
        last block nothing else.
        """
        h = ops.linear(x, p.embed.w, p.embed.b) if self.vocabulary is None else ops.embedding(p.embed.table, x)  # (1)
        if self.embedding_scale:
            h *= self.width ** 0.5                                                              # (1)
        if self.causal:
            c = masks.causal(x.shape[1], xp=array_module(h))
            keep = c if keep is None else keep & c
        blocks = []
        for layer in range(self.layers):                                                        # (2)
            h, saved = self.block.forward(p.blocks[layer], h, keep=keep, dropout=None if dropout is None else
                                          dropout[layer], read=read if layer == self.layers - 1 else None)
            blocks.append(saved)
        norm = None
        if self.final_norm:
            h, norm = LayerNorm(self.width, self.block.epsilon).forward(p.norm, h)              # (3)
        if self.tied:
            y = ops.linear(h, p.embed.table.T) * self.width ** -0.5                             # (4)
        else:
            y = ops.linear(h, p.readout.w, p.readout.b)                                         # (4)
        return y, Saved(x, tuple(blocks), norm, h, read)

    def backward(self, p, saved, dy, grads):
        """dx (b, t, i), or None for token ids; parameter gradients are added into `grads`."""
        if self.tied:
            dh, dw, _ = ops.linear_backward(saved.h, p.embed.table.T, dy * self.width ** -0.5)  # (4)
            grads.embed.table += dw.T
        else:
            dh, dw, db = ops.linear_backward(saved.h, p.readout.w, dy)                          # (4)
            grads.readout.w += dw
            grads.readout.b += db
        if self.final_norm:
            dh = LayerNorm(self.width, self.block.epsilon).backward(p.norm, saved.norm, dh, grads.norm)     # (3)
        for layer in reversed(range(self.layers)):                                              # (2)
            dh = self.block.backward(p.blocks[layer], saved.blocks[layer], dh, grads.blocks[layer])
        if self.embedding_scale:
            dh *= self.width ** 0.5                                                             # (1)
        if self.vocabulary is not None:
            grads.embed.table += ops.embedding_backward(p.embed.table, saved.x, dh)             # (1)
            return None
        dx, dw, db = ops.linear_backward(saved.x, p.embed.w, dh)                                # (1)
        grads.embed.w += dw
        grads.embed.b += db
        return dx


def decoder(attention: MultiHead, *, hidden: int, layers: int, buckets: int | None = None, feed_forward=None,
            **options) -> Transformer:
    """The paper's model around an attention layer: GELU MLP of width `hidden`, T5 tables of `buckets` buckets."""
    position = None if buckets is None else T5(attention.heads, buckets, buckets)
    block = Block(attention, feed_forward or FeedForward(attention.width, hidden), position)
    return Transformer(block, layers, **options)
