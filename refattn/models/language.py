"""Language models: an embedding, a causal stack, and the read-out through which each next token is predicted.

    h = E[x] (+ a table of positions);   h <- stack(h), nothing later seen;   z = scale h E^T;   p(next) = softmax(z)

With `target` the output is the loss of every token, z being made a tile at a time; without it, z itself.  `extend`
computes z of further tokens from the keys and values kept so far, `last` the loss at the end of a long text, by pieces.
Of RegularGPT all positions are read, each level at dilation C^l; at least the levels of the training `length` are
applied, whatever the length, so that a short prompt meets the depth that was trained.
Source: H, section 5; C, section 4.7; R, section 6; nanoGPT (a learned table, embeddings not scaled).  Differs: R does
not say how its models generate.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import ops
from ..attention import masks
from ..checks import check_choice, check_integers, check_switches
from ..layers.embedding import Embedding, Readout
from ..layers.next_token import next_token, next_token_backward
from ..layers.stack import Stack, StackSaved
from ..layers.text_positions import LearnedTable
from ..xp import array_module, fitted
from .regular_gpt import schedule

__all__ = ["KeptText", "Language"]


class Saved(NamedTuple):
    embedding: Any
    at: Any                    # of the learned table
    dropout: Any
    stack: StackSaved
    loss: Any                  # what `next_token` saved: `.hit`; None without a target


class KeptText(NamedTuple):
    """What `Language.extend` keeps of the tokens so far."""
    applied: tuple             # what each application of a block keeps
    h: Any                     # (b, t, m) before the last norm, where a longer text may need a further level
    length: int


@dataclass(frozen=True)
class Language:
    """y (b, q, v), scores of the next token, from token ids (b, t); with `target` (b, t) its loss y (b, q), in nats.

    tied    : read out with the embedding's table, else with one of its own
    scale   : scores times m^-1/2 (H)
    learned : length of a learned table of positions, 0 for none
    length  : of RegularGPT: the length that it is trained at
    """
    embedding: Embedding
    stack: Stack
    tied: bool = True
    scale: bool = False
    learned: int = 0
    length: int = 1

    def __post_init__(self):
        check_integers(vars(self), "learned", least=0)
        check_integers(vars(self), "length")
        check_switches(vars(self), "tied", "scale")
        check_choice("cross of the stack's block", self.stack.block.cross, (None,))
        if self.sliding:
            check_choice("dilation of attention", self.stack.block.attention.dilation, (1,))
        if self.embedding.vocabulary is None or self.embedding.width != self.stack.width:
            raise ValueError(f"the embedding has vocabulary {self.embedding.vocabulary} and width "
                             f"{self.embedding.width}; allowed: token ids, and the stack's width {self.stack.width}")

    @property
    def positions(self) -> LearnedTable:
        """The learned table of positions; there is one where `learned` is not 0."""
        return LearnedTable(self.learned, self.stack.width)

    @property
    def sliding(self) -> bool:
        """Whether this is RegularGPT."""
        return self.stack.block.slides

    @property
    def readout(self):
        """Of a table that is given: the embedding's, or one of its own."""
        return Readout(self.stack.width, self.embedding.vocabulary, tied=True, scale=self.scale)

    def parameters(self):
        """Those of `embed`, `positions` where they are learned, of the stack, and `readout` unless tied."""
        names = {"embed": self.embedding.parameters()}
        if self.learned:
            names["positions"] = self.positions.parameters()
        names |= self.stack.parameters()
        return names if self.tied else names | {"readout": names["embed"]}

    def applications(self, length: int, read=None):
        """(block, number of its parameters, read) of each application for a text of this length, in order."""
        if self.sliding:
            return schedule(self.stack, max(length, self.length), read=read)
        return self.stack.applications(read)

    def forward(self, p, x, *, target=None, embedding_dropout=None, dropout=None, residual=None, read=None) -> tuple:
        """y (b, q, v) or (b, q), and Saved.  With `read`, a slice of positions, y[:, read] is computed.

        `embedding_dropout`, (b, t, m), already divided by 1 - p, multiplies the embeddings with their positions;
        `dropout` and `residual` have one entry for each application of a block, as in `Stack`.  Raises ValueError for a
        target of another shape than (b, t).
        """
        h, embedding = self.embedding.forward(p.embed, x)                                       # (1)
        at = None
        if self.learned:
            h, at = self.positions.forward(p.positions, h)                                      # (2)
        ops.check_dropout(h, embedding_dropout, "embedding_dropout")
        h = ops.drop(h, embedding_dropout)                                                      # (3)
        keep = {} if self.sliding else {"keep": masks.causal(x.shape[1], xp=array_module(h))}
        h, stack = self.stack.forward(p, h, dropout=dropout, residual=residual,
                                      schedule=self.applications(x.shape[1], read), **keep)     # (4)
        saved, table = Saved(embedding, at, embedding_dropout, stack, None), self._table(p)
        if target is None:
            return self.readout.forward(None, h, table)[0], saved                               # (5)
        asked = fitted(target, "target", x.shape[:2])[:, read or slice(None)]
        y, loss = next_token(h, table, asked, self.readout.factor)                              # (5)
        return y, saved._replace(loss=loss)

    def backward(self, p, saved, dy, grads):
        """None; parameter gradients are added into `grads`."""
        table, dtable = self._table(p), self._table(grads)
        if saved.loss is not None:
            dh, d = next_token_backward(saved.loss, dy)                                         # (5)
            dtable += d
        else:
            dh = self.readout.backward(None, saved.stack.h, dy, None, table, dtable)            # (5)
        dh = self.stack.backward(p, saved.stack, dh, grads).x                                   # (4)
        dh = ops.drop(dh, saved.dropout)                                                        # (3)
        if self.learned:
            dh = self.positions.backward(p.positions, saved.at, dh, grads.positions)            # (2)
        return self.embedding.backward(p.embed, saved.embedding, dh, grads.embed)               # (1)

    def extend(self, p, x, kept: KeptText | None = None):
        """Scores y (b, n, v) after each of n further tokens x (b, n), and the KeptText that includes them.

        They are `forward`'s of all tokens up to the last of x.  Of RegularGPT, whose levels grow with the length, those
        of a longer text are others.
        """
        h, kept = self._extended(p, x, kept)
        return self.readout.forward(None, h, self._table(p))[0], kept

    def last(self, p, x, target, piece: int = 256) -> tuple:
        """The loss (b, 1) of what follows x (b, t), and what `next_token` saved, `piece` tokens at a time.

        `target` (b, t) is as in `forward`.  No array is t x t; of the pairs that a causal mask takes away only those
        within a piece are made.  Raises ValueError for a target of another shape.
        """
        kept = None
        check_integers({"piece": piece, "tokens of x": x.shape[1]})
        for start in range(0, x.shape[1], piece):
            h, kept = self._extended(p, x[:, start:start + piece], kept)
        return next_token(h[:, -1:], self._table(p), fitted(target, "target", x.shape[:2])[:, -1:], self.readout.factor)

    def _extended(self, p, x, kept):
        """h (b, n, m) after the last norm, and what is kept now."""
        applied, before, start = kept or ((), None, 0)
        h, _ = self.embedding.forward(p.embed, x, start=start)
        if self.learned:
            h, _ = self.positions.forward(p.positions, h, start)
        stop = start + x.shape[1]
        h, applied, before = self.stack.grow(p, h, self.applications(stop), applied, before)
        return h, KeptText(applied, before if self.sliding else None, stop)

    def _table(self, p):
        return p.embed.table if self.tied else p.readout.table
