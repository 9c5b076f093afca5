"""RegularGPT: a weight-shared transformer whose depth grows with the logarithm of the length.

    h <- block_k(h), k = 0 .. K - 1, at dilation C^l, for the levels l = 0 .. L - 1;   L = the least with C^L >= T, >= 1

After level l a position has seen the last C^(l+1) tokens (of K sub-layers: 1 + K (C^(l+1) - 1)), so L levels see all of
them, and any length is read with the same weights.  Source: R, section 3, and the authors' code.
Two forms of one function.  Dense: every position, at every level.  Tree: the last position only; what level l then
reads stands C^l apart, so each level computes, undilated, every C-th position of what it reads, and all levels
together read T C / (C - 1) tokens and compute T / (C - 1), instead of T L (K = 1).  The code trains the tree.
Differs: the code's tree puts copies of `pad` before the tokens and lets K > 1 sub-layers change them; here a pad is
one vector for good, as at K = 1, so that both forms agree for every K.  Each of K sub-layers has its own pad (the
code trains K = 1 only); under norm "pre" it is not normalised.  The code's embedding has one more row, of a symbol that
never occurs: vocabulary V + 1 counts its parameters.  Switches: norm "post" with relu (code) or "pre" with gelu and a
last norm (text: "GPT-2"); embeddings times sqrt(D) (code) or not.
"""

from dataclasses import dataclass
from typing import Any

from ..attention.sliding_dilated import SlidingDilated
from ..checks import check_choice, check_integer, check_integers, check_switches
from ..layers.block import Block
from ..layers.embedding import Embedding, Readout
from ..layers.recompute import replaced
from ..layers.stack import Stack
from ..params import check_views
from ..xp import array_module
from .transformer import Saved

__all__ = ["RegularGPT", "levels"]


def levels(length: int, chunk: int) -> int:
    """The least L >= 1 with chunk^L >= length, in integers: floating-point logarithms say 4 for 125 and 5.

    >>> [levels(n, 2) for n in (1, 2, 3, 40, 500)], levels(125, 5)
    ([1, 1, 2, 6, 9], 3)
    """
    chunk, length = check_integer("chunk", chunk, 2), check_integer("length", length, 0)
    number, reach = 1, chunk
    while reach < length:
        number, reach = number + 1, reach * chunk
    return number


def schedule(stack: Stack, length: int, tree: bool = False, read=None, number=None):
    """(block, sub-layer, read) of each application, in order: the dilation goes by level, the weights by sub-layer."""
    chunk, n = stack.block.attention.chunk, length
    number = levels(length, chunk) if number is None else check_integer("levels", number)
    for level in range(number):
        block = replaced(stack.block, attention=replaced(stack.block.attention, dilation=1 if tree else chunk**level))
        at = read if level == number - 1 else None
        if tree:
            at = slice((n - 1) % chunk if level < number - 1 else n - 1, None, chunk)       # the last one included
            n = len(range(n)[at])
        for k in range(stack.layers):
            yield block, k, at if k == stack.layers - 1 else None


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
        check_integers(vars(self), "vocabulary", "outputs", "thickness")
        check_switches(vars(self), "embedding_scale", "recompute")
        check_choice("dilation of attention", getattr(self.attention, "dilation", None), (1,))
        self.block()

    def block(self) -> Block:
        """The block that all sub-layers are made of, at dilation 1."""
        return Block(self.attention, self.feed_forward, norm=self.norm, epsilon=self.epsilon)

    @property
    def embedding(self) -> Embedding:
        """The embedding of token ids."""
        return Embedding(self.attention.width, vocabulary=self.vocabulary, scale=self.embedding_scale)

    @property
    def stack(self) -> Stack:
        """The sub-layers of one level; levels share them."""
        return Stack(self.block(), self.thickness, final_norm=self.norm == "pre", recompute=self.recompute)

    @property
    def readout(self) -> Readout:
        """The map from what the last block gives to the outputs."""
        return Readout(self.attention.width, self.outputs)

    def parameters(self) -> dict:
        """Those of `embed`, of the stack, of `readout`."""
        return {"embed": self.embedding.parameters(), **self.stack.parameters(), "readout": self.readout.parameters()}

    def forward(self, p, x, *, tree=False, read=None, levels=None) -> tuple:
        """y (b, q, o) from token ids (b, t), or from their embeddings (b, t, m).  Returns y and Saved.

        tree   : compute the last position only, y (b, 1, o), by the tree
        read   : a slice of positions, its step at least 1, gives y[:, read]; of the last block nothing else is computed
        levels : other than those that the length needs, say one more

        Raises ValueError for an empty sequence, for no levels, and for `read` beside `tree`.
        """
        check_views(p)
        array_module(x)
        if x.ndim not in (2, 3) or x.shape[1] == 0:
            raise ValueError(f"x has shape {x.shape}; allowed: (b, t) or (b, t, m) with at least one token")
        if tree and read is not None:
            raise ValueError(f"read is {read}, but a tree has the last position only; allowed: None")
        h, embedding = self.embedding.forward(p.embed, x)                                       # (1)
        h, stack = self.stack.forward(p, h, schedule=self.schedule(x.shape[1], tree, read, levels))         # (2)
        return self.readout.forward(p.readout, h)[0], Saved(embedding, stack)                   # (3)

    def backward(self, p, saved, dy, grads):
        """None for token ids, dx (b, t, m) for embeddings; parameter gradients are added into `grads`."""
        dh = self.readout.backward(p.readout, saved.h, dy, grads.readout)                       # (3)
        dh = self.stack.backward(p, saved.stack, dh, grads).x                                   # (2)
        return self.embedding.backward(p.embed, saved.embedding, dh, grads.embed)               # (1)

    def schedule(self, length: int, tree: bool, read=None, number=None):
        """(block, sub-layer, read) of each application, in order."""
        return schedule(self.stack, length, tree, read, number)
