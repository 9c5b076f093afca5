"""Keys and values that are kept while tokens are decoded: a new token is projected alone and attends to all before it.

    k = [kept k, x W^key + b],  v = [kept v, x W^value + b];    y = attention(x W^query + b; k, v), nothing later seen

Which is the causal layer, piece by piece: `extend` gives y[:, start:] of a forward over all tokens so far.  For
cross-attention the context is projected once, by `project_context`, and `attend` asks it as often as needed.
Source: common to all decoders; Shazeer 2019 names its cost.  No gradients: training sees whole sequences.
"""

from typing import Any, NamedTuple

from .. import masks, ops
from ..xp import array_module
from .projections import maps, project
from .shapes import check_tokens


class Kept(NamedTuple):
    k: Any                     # (b, room, h, d): `length` tokens, then room; before any position layer
    v: Any                     # (b, room, h, e)
    length: int

    def rows(self, index):
        """The same of some rows of the batch, in that order."""
        return Kept(self.k[index], self.v[index], self.length)


def appended(kept, k, v) -> Kept:
    """What is kept (None: nothing yet) and further k (b, n, h, d), v (b, n, h, e).

    Written into the room behind what is kept, twice as much of it whenever it is full: two continuations of one Kept
    may follow each other, not alternate.
    """
    if kept is None:
        return Kept(k, v, k.shape[1])
    stop = kept.length + k.shape[1]
    rooms = []
    for old, new in (kept.k, k), (kept.v, v):
        if stop > old.shape[1]:
            old, full = array_module(k).empty((len(old), 2 * stop, *old.shape[2:]), dtype=old.dtype), old
            old[:, :kept.length] = full[:, :kept.length]
        old[:, kept.length:stop] = new
        rooms.append(old)
    return Kept(*rooms, stop)


class Keeping:
    """What an attention layer gains from two members of its own:

    OF_QUERIES                                                 the letters of the maps that queries go through
    asked(p, of_queries, k, v, at, bias, keep, dropout)        y, and what a backward needs; queries stand at `at`
    """

    def extend(self, p, x, kept=None, *, bias=None, keep=None):
        """y (b, n, m) of n further tokens x (b, n, m), and the Kept that includes them; `kept` is None at the start.

        `bias` and `keep` broadcast to (b, h, n, length), the new queries and all keys; no query sees later tokens.
        """
        check_tokens(self.width, x=x)
        *of_queries, k, v = project(p, x, None, None, self.OF_QUERIES, "kv")
        kept = appended(kept, k, v)
        n = x.shape[1]
        if n > 1:                                       # one token sees all
            causal = masks.causal(n, kept.length, array_module(x))
            keep = causal if keep is None else keep & causal
        at = range(kept.length - n, kept.length)
        k, v = kept.k[:, :kept.length], kept.v[:, :kept.length]
        return self.asked(p, of_queries, k, v, at, bias, keep, None)[0], kept

    def project_context(self, p, context) -> Kept:
        """The keys and values of a context (b, k, m), for `attend`."""
        check_tokens(self.width, context=context)
        return Kept(*ops.linears(context, *maps(p, "kv")), context.shape[1])

    def attend(self, p, x, kept, *, bias=None, keep=None):
        """y (b, q, m) of tokens x (b, q, m) that all see the whole context that is kept, but for `keep`.

        Raises ValueError for a layer with positions, which would have to know where the tokens stand.
        """
        check_tokens(self.width, x=x)
        if getattr(self, "position", None) is not None:
            raise ValueError(f"position is {self.position!r}; attending to a kept context needs a layer without one")
        of_queries = ops.linears(x, *maps(p, self.OF_QUERIES))
        return self.asked(p, of_queries, kept.k[:, :kept.length], kept.v[:, :kept.length], None, bias, keep, None)[0]
