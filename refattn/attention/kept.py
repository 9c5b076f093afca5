"""The KV cache: keys and values of the tokens so far are kept, so that a further token is projected alone.

    k = [kept k, x W^key + b],  v = [kept v, x W^value + b];    y = attention(x W^query + b; k, v), nothing later seen

This is the causal layer, piece by piece: `extend` gives y[:, start:] of a forward over all tokens so far.  For
cross-attention the context is projected once, by `project_context`, and `attend` asks it as often as needed.
Source: common to all decoders; Shazeer 2019 names its cost.  No gradients: training sees whole sequences.
"""

from typing import Any, NamedTuple

from ..layers.protocol import check_tokens
from ..xp import array_module, check_alike
from . import masks
from .projections import AttentionLayer, mapped, out
from .shapes import check_pairs


class Kept(NamedTuple):
    arrays: dict               # "k" (b, room, h, d), "v" and whatever else the variant makes of keys: tokens, then room
    length: int                # tokens
    written: Any = ()          # [number of tokens in the arrays], one list shared by every Kept of these

    def seen(self) -> dict:
        """The arrays without the room after the tokens; keys as they are before any position layer."""
        return {name: x[:, :self.length] for name, x in self.arrays.items()}

    def rows(self, index):
        """What is kept of some rows of the batch, in that order; `index` is an array of numbers, no slice: a copy."""
        return Kept({name: x[index] for name, x in self.arrays.items()}, self.length)


def check_kept(kept, *types) -> None:
    """Nothing, or a TypeError for what no layer of this kind returned."""
    if not isinstance(kept, types):
        raise TypeError(f"kept is a {type(kept).__name__}; allowed: the {types[0].__name__} of such a layer")


def appended(kept, new: dict) -> Kept:
    """What is kept (None: nothing yet) and further arrays (b, n, ...) after it.

    Written into the room after what is kept; into a copy with twice as much where it is full, or has other tokens.
    """
    if kept is None:
        return Kept(new, new["k"].shape[1])
    check_kept(kept, Kept)
    stop, arrays = kept.length + new["k"].shape[1], {}
    # empty where the arrays are full, or hold other tokens: then they are copied
    written = kept.written if kept.written == [kept.length] and stop <= kept.arrays["k"].shape[1] else []
    for name, x in new.items():
        old = kept.arrays[name]
        check_alike(kept=old, tokens=x)
        if len(old) != len(x) or old.shape[2:] != x.shape[2:]:
            raise ValueError(f"kept has {len(old)} rows of {old.shape[2:]}, the further tokens {len(x)} of "
                             f"{x.shape[2:]}; allowed: as many (Kept.rows), of one shape")
        if not written:
            full, old = old, array_module(x).empty((len(x), 2 * stop, *x.shape[2:]), dtype=x.dtype)
            old[:, :kept.length] = full[:, :kept.length]
        old[:, kept.length:stop] = x
        arrays[name] = old
    written[:] = [stop]
    return Kept(arrays, stop, written)


class Keeping(AttentionLayer):
    """An attention layer with a KV cache: every key may be needed again, so all are kept."""

    def extend(self, p, x, kept=None, *, bias=None, keep=None):
        """y (b, n, m) of n further tokens x (b, n, m), and the Kept that includes them; `kept` is None at the start.

        `bias` and `keep` broadcast to (b, h, n, length), the new queries and all keys; no query sees later tokens.
        One Kept may be continued many times, in any order.  Raises ValueError or TypeError for what does not fit.
        """
        check_tokens(self.width, x=x)
        of_queries, of_keys = self.maps()
        arrays = mapped(p, x, of_queries + of_keys)
        kept = appended(kept, {name: arrays[name] for name in of_keys})
        n = x.shape[1]
        if keep is not None:
            size = dict(zip("bqhk", (*arrays["q"].shape[:3], kept.length), strict=True))
            check_pairs(array_module(x), size, "bhqk", keep=keep)
        if n > 1:                                       # one token sees all
            causal = masks.causal(n, kept.length, array_module(x))
            keep = causal if keep is None else keep & causal
        at = range(kept.length - n, kept.length)
        return out(p, self.page(p, arrays | kept.seen(), at, bias, keep, None)[0]), kept

    def project_context(self, p, context) -> Kept:
        """The keys and values of a context (b, k, m), for `attend`."""
        check_tokens(self.width, context=context)
        return Kept(mapped(p, context, self.maps()[1]), context.shape[1])

    def attend(self, p, x, kept, *, bias=None, keep=None):
        """y (b, q, m) of tokens x (b, q, m) that all see the whole context that is kept, but for `keep`.

        Raises ValueError for a layer with positions, which would have to know where the tokens stand.
        """
        check_tokens(self.width, x=x)
        check_kept(kept, Kept)
        if getattr(self, "position", None) is not None:
            raise ValueError(f"position is {self.position!r}, but tokens do not say where they stand; allowed: None")
        return out(p, self.page(p, mapped(p, x, self.maps()[0]) | kept.seen(), None, bias, keep, None)[0])
