"""RegularGPT: a weight-shared transformer whose depth grows with the logarithm of the length.

    h <- block_k(h), k = 0 .. K - 1, at dilation C^l, for the levels l = 0 .. L - 1;   L = the least with C^L >= T, >= 1

After level l a position has seen the last C^(l+1) tokens, so L levels see all of them, and any length is read with the
same weights.  Source: R, section 4, and the authors' code.
Two forms of one function.  Dense: every position, at every level.  Tree: the last position only; what it needs of
level l stands C^l apart, so each level reads, undilated, every C-th position of the one before it, and all levels
together cost T C / (C - 1) tokens instead of T L.  The tree is the form that the code trains.
Differs: the code's tree puts copies of `pad` before the tokens and lets K > 1 sub-layers change them; here a pad is
one vector for good, as at K = 1, so that both forms agree for every K.  Each of K sub-layers has its own pad (the
code trains K = 1 only); under norm "pre" it is not normalised.  The code's embedding has one more row, of a symbol that
never occurs: vocabulary V + 1 counts its parameters.  Switches: norm "post" with relu (code) or "pre" with gelu and a
last norm (text: "GPT-2"); embeddings times sqrt(D) (code) or not.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .. import ops
from ..attention.sliding_dilated import SlidingDilated
from ..params import Parameter, check_integers
from ..recompute import recompute
from .transformer import Block, BlockSaved, LayerNorm
from .universal import PostBlock

NORMS = "post", "pre", "none"


def levels(length: int, chunk: int) -> int:
    """The least L >= 1 with chunk^L >= length, in integers: floating-point logarithms say 4 for 125 and 5.

    >>> [levels(n, 2) for n in (1, 2, 3, 40, 500)], levels(125, 5)
    ([1, 1, 2, 6, 9], 3)
    """
    number, reach = 1, chunk
    while reach < length:
        number, reach = number + 1, reach * chunk
    return number


@dataclass(frozen=True)
class PlainBlock:
    """x + attention(x), then that + feed_forward of it: no normalisation, for weights that are set by hand."""
    attention: Any
    feed_forward: Any

    def parameters(self):
        return {"attention": self.attention.parameters(), "feed_forward": self.feed_forward.parameters()}

    def forward(self, p, x, *, keep=None, dropout=None, read=None):
        """y (b, t, m) from x (b, t, m); with `read` only y[:, read] is computed.  Returns y and BlockSaved."""
        a, attention = self.attention.forward(p.attention, x, keep=keep, dropout=dropout, read=read)        # (1)
        a += x if read is None else x[:, read]                                                  # (2)
        y, feed_forward = self.feed_forward.forward(p.feed_forward, a)                          # (3)
        y += a                                                                                  # (4)
        return y, BlockSaved(None, attention, None, feed_forward, None, x.shape, read)

    def backward(self, p, saved, dy, grads):
        """dx (b, t, m); parameter gradients are added into `grads`."""
        da = self.feed_forward.backward(p.feed_forward, saved.feed_forward, dy, grads.feed_forward)         # (3)
        da += dy                                                                                # (4)
        dx = self.attention.backward(p.attention, saved.attention, da, grads.attention).x       # (1)
        dx[:, slice(None) if saved.read is None else saved.read] += da                          # (2)
        return dx


class Saved(NamedTuple):
    x: Any
    tree: bool
    blocks: tuple              # one entry for each application: `.attention.attention.code` is the C weights
    norm: Any
    h: Any                     # (b, q, m), what the read-out sees


@dataclass(frozen=True)
class RegularGPT:
    """y (b, q, o) from token ids (b, t); `thickness` is K, `attention.chunk` C; parameters do not depend on lengths.

    norm            : "post" (code), "pre" with a last norm (text), or "none"
    embedding_scale : embeddings times sqrt(width) (code)
    recompute       : keep of each block its input only, and repeat its forward in the backward
    """
    attention: SlidingDilated
    feed_forward: Any
    vocabulary: int
    outputs: int
    thickness: int = 1
    norm: str = "post"
    embedding_scale: bool = True
    epsilon: float = 1e-5
    recompute: bool = False

    def __post_init__(self):
        if self.norm not in NORMS:
            raise ValueError(f"norm is {self.norm!r}; allowed: {', '.join(NORMS)}")
        check_integers(vars(self), "vocabulary", "outputs", "thickness")

    def block(self, dilation: int = 1):
        """The block that all sub-layers are made of, at one dilation."""
        attention, rest = replace(self.attention, dilation=dilation), self.feed_forward
        block = PlainBlock(attention, rest) if self.norm == "none" else (
            PostBlock if self.norm == "post" else Block)(attention, rest, epsilon=self.epsilon)
        return recompute(block) if self.recompute else block

    def parameters(self):
        m, v, o = self.attention.width, self.vocabulary, self.outputs
        block = self.block().parameters()
        for part, name in ("attention", "wo"), ("feed_forward", "w2"):
            block[part] = {**block[part], name: block[part][name]._replace(residuals=2 * self.thickness)}
        names = {"embed": {"table": Parameter("vm", (v, m), m, "table")}, "blocks": (block,) * self.thickness}
        if self.norm == "pre":
            names["norm"] = LayerNorm(m).parameters()
        return {**names, "readout": {"w": Parameter("mo", (m, o), m, "weight"), "b": Parameter("o", (o,), m, "bias")}}

    def forward(self, p, x, *, tree=False, read=None, levels=None):
        """y (b, q, o) from token ids (b, t), or from their embeddings (b, t, m).  Returns y and Saved.

        tree   : compute the last position only, y (b, 1, o), by the tree
        read   : a slice of positions, gives y[:, read]; of the last block nothing else is computed
        levels : other than those that the length needs, say one more

        Raises ValueError for an empty sequence, for no levels, and for `read` beside `tree`.
        """
        if x.ndim not in (2, 3) or x.shape[1] == 0:
            raise ValueError(f"x has shape {x.shape}; (b, t) or (b, t, m) with at least one token is needed")
        if tree and read is not None:
            raise ValueError(f"read is {read}, but a tree has the last position only; allowed: None")
        h = ops.embedding(p.embed.table, x) if x.ndim == 2 else x                               # (1)
        if self.embedding_scale:
            h = h * self.attention.width ** 0.5                                                 # (2)
        blocks = []
        for block, k, at in self.schedule(x.shape[1], tree, read, levels):                      # (3)
            h, saved = block.forward(p.blocks[k], h, read=at)
            blocks.append(saved)
        norm = None
        if self.norm == "pre":
            h, norm = LayerNorm(h.shape[-1], self.epsilon).forward(p.norm, h)                   # (4)
        return ops.linear(h, p.readout.w, p.readout.b), Saved(x, tree, tuple(blocks), norm, h)  # (5)

    def backward(self, p, saved, dy, grads):
        """None for token ids, dx (b, t, m) for embeddings; parameter gradients are added into `grads`."""
        dh, dw, db = ops.linear_backward(saved.h, p.readout.w, dy)                              # (5)
        grads.readout.w += dw
        grads.readout.b += db
        if self.norm == "pre":
            dh = LayerNorm(dh.shape[-1], self.epsilon).backward(p.norm, saved.norm, dh, grads.norm)         # (4)
        applied = self.schedule(saved.x.shape[1], saved.tree, None, len(saved.blocks) // self.thickness)
        for each, (block, k, _) in zip(reversed(saved.blocks), reversed(list(applied)), strict=True):       # (3)
            dh = block.backward(p.blocks[k], each, dh, grads.blocks[k])
        if self.embedding_scale:
            dh = dh * self.attention.width ** 0.5                                               # (2)
        if saved.x.ndim == 3:
            return dh                                                                           # (1)
        grads.embed.table += ops.embedding_backward(p.embed.table, saved.x, dh)                 # (1)
        return None

    def schedule(self, length: int, tree: bool, read=None, number=None):
        """(block, k, read) of each application, in order: the dilation goes by level, the weights by sub-layer."""
        chunk, n = self.attention.chunk, length
        number = levels(length, chunk) if number is None else number
        check_integers({"levels": number}, "levels")
        for level in range(number):
            block = self.block(1 if tree else chunk ** level)
            for k in range(self.thickness):
                last = k == self.thickness - 1
                at = read if last and level == number - 1 else None
                if tree and last:
                    at = slice((n - 1) % chunk if level < number - 1 else n - 1, None, chunk)   # the last one included
                    n = len(range(n)[at])
                yield block, k, at
