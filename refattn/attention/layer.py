"""MultiHead: the projections around any page.

    q = x W^query + b,  k = x W^key + b,  v = x W^value + b;   o = page(q, k, v);   y = sum_h o_h W_h^out + b

Source: H, section 2.1 and released code; Vaswani et al. 2017.  Differs from H's text: biases on every map (code), and
head widths that are free, not width / heads (code: 2 for fuzzy logic, 4 for SRAVEN).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import ops
from ..checks import check_integers, check_switch
from ..layers.positions import Rotary, takes
from ..layers.protocol import Gradients, check_tokens
from ..params import Parameter
from . import variant
from .ablations import Knobs
from .kept import Keeping, Kept, check_kept, named
from .linear_state import KeptState, linear_state
from .projections import in_maps, out, out_backward, out_map, project, project_backward

__all__ = ["MultiHead"]


class Saved(NamedTuple):
    x: Any                     # the whole input, also where only `read` of it asks
    context: Any
    bias: Any
    read: slice | None
    position: Any              # what the position layer saved
    attention: Any             # what the page saved: q, k, v, code, ...
    o: Any                     # (b, q, h, e)


@dataclass(frozen=True)
class MultiHead(Keeping):
    """Multi-head attention of any variant; `head_width` is d, `value_width` is e, per head."""
    width: int
    heads: int
    head_width: int
    value_width: int | None = None
    variant: str | Knobs = "softmax"
    position: Any = None       # a position layer, which changes q and k (Rotary) or adds a bias too (TransformerXL)
    biases: bool = True

    def __post_init__(self):
        if self.value_width is None:
            object.__setattr__(self, "value_width", self.head_width)
        check_integers(vars(self), "width", "heads", "head_width", "value_width")
        check_switch("biases", self.biases)
        if self.position is not None and not takes(self.position, "k"):
            raise ValueError(f"position is {self.position}; allowed: what takes q and k, as Rotary (T5 is a block's)")
        for name in "heads", "head_width":
            if (theirs := getattr(self.position, name, None)) not in (None, own := getattr(self, name)):
                raise ValueError(f"{name} of position is {theirs}, but of the layer {own}; allowed: the same")
        variant(self.variant)

    def maps(self):
        """The names of what the queries' x is projected to, and of what the keys' is."""
        row = variant(self.variant)
        return ("q", *row.projected("q")), ("k", "v", *row.projected("k"))

    def parameters(self) -> dict:
        """wq bq wk bk wv bv, what the variant's extras need, wo bo, what the position layer has."""
        size: dict = {"h": self.heads, "d": self.head_width, "e": self.value_width}
        row = variant(self.variant)
        (q, *of_queries), of_keys = self.maps()
        shapes = {name: tuple(size[x] for x in axes if x in size) for name, axes in row.axes.items()}
        names = in_maps(self.width, self.biases, **{
            name: (row.axes[name][2:], shapes[name]) for name in (q, *of_keys, *of_queries)})
        for name in row.parameters():                   # one letter, one axis: a square map has e and f
            shape = shapes[name]                        # the fan-in of a map is its last axis but one
            own = (shape[-2], "weight") if shape[1:] else (shape[0], "vector")
            names[name] = Parameter(row.axes[name].replace("ee", "ef"), shape, *own)
        names |= out_map(self.width, self.biases, "he", (self.heads, self.value_width))
        if self.position is not None and self.position.parameters():
            names["position"] = self.position.parameters()
        return names

    def forward(self, p, x, *, context=None, bias=None, keep=None, dropout=None, read=None) -> tuple[Any, Saved]:
        """y (b, q, m) from x (b, t, m).  Returns y and Saved.

        Keys and values come from `context` (b, k, m) where given.  `bias`, `keep`, `dropout` broadcast to (b, h, q, k)
        of the whole x; `read`, a slice of query positions, gives y[:, read] at the cost of those queries only.
        """
        check_tokens(self.width, read, p, (bias, keep, dropout), x=x, context=context)
        of_queries, of_keys = self.maps()
        arrays = named(of_queries + of_keys, project(p, x, context, read, of_queries, of_keys))
        y, inner = self.asked(p, arrays, range(x.shape[1])[read or slice(None)],
                              *(ops.queries(each, read) for each in (bias, keep, dropout)))
        return y, Saved(x, context, bias, read, *inner)

    def asked(self, p, arrays, at, bias, keep, dropout):
        """y (b, q, m), and the rest of Saved, from q (b, q, h, d), k, v, ... ; the queries stand at the range `at`."""
        q, k, v = (arrays[name] for name in "qkv")
        row, position = variant(self.variant), None
        if self.position is not None:
            q, k, relative, position = self.position.forward(getattr(p, "position", None), q, k, at)
            bias = relative if bias is None else bias if relative is None else relative + bias
        arrays = arrays | {name: p[name] for name in row.parameters()}
        o, saved = row.forward(q, k, v, *(arrays[name] for name in row.extras), bias=bias, keep=keep, dropout=dropout)
        return out(p, o), (position, saved, o)

    def extend(self, p, x, kept=None, *, bias=None, keep=None):
        """As of any layer that keeps keys; linear attention keeps its state instead, unless scores have a bias or keep.

        What was begun with keys goes on with them.  Raises ValueError for a bias or keep after a state.
        """
        stateful = self.variant == "linear" and (self.position is None or isinstance(self.position, Rotary))
        if isinstance(kept, KeptState) and not (bias is keep is None):
            raise ValueError("kept is a state, of which no key can be left out; allowed: neither bias nor keep")
        if not stateful or bias is not None or keep is not None or isinstance(kept, Kept):
            return super().extend(p, x, kept, bias=bias, keep=keep)
        check_tokens(self.width, x=x)
        check_kept(kept, KeptState, type(None))
        q, k, v = project(p, x, None, None, *self.maps())
        before, start = kept or (None, 0)
        stop = start + x.shape[1]
        if self.position is not None:
            q, k = (self.position.forward(None, each, k[:, :0], range(start, stop))[0] for each in (q, k))
        o, state, _ = linear_state(q, k, v, before)
        return out(p, o), KeptState(state, stop)

    def backward(self, p, saved, dy, grads) -> Gradients:
        """Gradients(x, context, bias) from dy (b, q, m); parameter gradients are added into `grads`."""
        x, context, bias, read, position, inner, o = saved
        row = variant(self.variant)
        dq, dk, dv, dbias, *extras = row.backward(inner, out_backward(p, o, dy, grads))
        gradients = dict(zip(row.extras, extras, strict=False))
        for name in row.parameters():
            grads[name] += gradients[name]
        if self.position is not None:
            dq, dk = self.position.backward(getattr(p, "position", None), position, dq, dk, dbias,
                                            getattr(grads, "position", None))
            dbias = None if bias is None else ops.unbroadcast(dbias, ops.queries(bias, read).shape)
        gradients |= {"q": dq, "k": dk, "v": dv}
        of_queries, of_keys = self.maps()
        dx, dcontext = project_backward(p, x, context, read, of_queries, of_keys,
                                        [gradients[name] for name in of_queries + of_keys], grads)
        return Gradients(dx, dcontext, ops.queries_backward(dbias, bias, read))
