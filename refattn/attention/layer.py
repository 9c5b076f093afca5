"""MultiHead: the projections around any page.

    q = x W^query + b,  k = x W^key + b,  v = x W^value + b;   o = page(q, k, v);   y = sum_h o_h W_h^out + b

`forward` and `backward` are those of every attention layer, in `projections`; here is what lies between the maps.
Source: H, section 2.1 and released code; Vaswani et al. 2017.  Differs from H's text: biases on every map (code), and
head widths that are free, not width / heads (code: 2 for fuzzy logic, 4 for SRAVEN).
"""

from dataclasses import dataclass
from typing import Any

from .. import ops
from ..checks import check_integers, check_switch
from ..layers.positions import Rotary, takes
from ..layers.protocol import check_tokens
from ..params import Parameter
from . import variant
from .ablations import Knobs
from .kept import Keeping, Kept, check_kept
from .linear_state import KeptState, linear_state
from .projections import in_maps, mapped, out, out_map
from .shapes import check_inputs

__all__ = ["MultiHead"]


@dataclass(frozen=True)
class MultiHead(Keeping):
    """Multi-head attention of any variant; `head_width` is d, `value_width` is e, per head."""
    width: int
    heads: int
    head_width: int
    value_width: int | None = None
    variant: str | Knobs = "softmax"
    position: Any = None       # turns q and k (Rotary), adds a bias (ALiBi, Kerple), or both (TransformerXL)
    biases: bool = True

    def __post_init__(self):
        vars(self)["value_width"] = self.head_width if self.value_width is None else self.value_width
        check_integers(vars(self), "width", "heads", "head_width", "value_width")
        check_switch("biases", self.biases)
        if self.position is not None and not takes(self.position, "k"):
            raise ValueError(f"position is {self.position}; allowed: what takes q and k, as Rotary (T5 is a block's)")
        for name in "width", "heads", "head_width":
            if (theirs := getattr(self.position, name, None)) not in (None, own := getattr(self, name)):
                raise ValueError(f"{name} of position is {theirs}, but of the layer {own}; allowed: the same")
        if isinstance(self.position, Rotary) and self.head_width % 2:
            raise ValueError(f"head_width is {self.head_width}; allowed with Rotary: even numbers, to turn pairs")
        variant(self.variant)

    def maps(self) -> tuple:
        """The names of what the queries' x is projected to, and of what the keys' is."""
        row = variant(self.variant)
        return ("q", *row.projected("q")), ("k", "v", *row.projected("k"))

    def parameters(self) -> dict:
        """wq bq wk bk wv bv, what the variant's extras need, wo bo, what the position layer has."""
        size: dict = {"h": self.heads, "d": self.head_width, "e": self.value_width}
        row = variant(self.variant)
        projected = "q", "k", "v", *row.projected("k"), *row.projected("q")
        names = in_maps(self.width, self.biases, size, **{name: row.axes[name][2:] for name in projected})
        for name in row.parameters():
            axes = row.axes[name].replace("ee", "ef")               # one letter, one axis: a square map has e and f
            shape = tuple(size[x] for x in row.axes[name])
            fan_in, role = (shape[-2], "weight") if len(axes) > 1 else (shape[0], "vector")
            names[name] = Parameter(axes, shape, fan_in, role)
        names |= out_map(self.width, self.biases, size, "he")
        if self.position is not None and self.position.parameters():
            names["position"] = self.position.parameters()
        return names

    def page(self, p, arrays, at, bias, keep, dropout):
        """o (b, q, h, e) from q (b, q, h, d), k, v, ..., and what position layer and page save."""
        q, k, v = (arrays[name] for name in "qkv")
        row, position = variant(self.variant), None
        if self.position is not None:
            if bias is not None:                            # before it is added to
                check_inputs(q, k, v, bias)
            q, k, relative, position = self.position.forward(getattr(p, "position", None), q, k, at)
            bias = relative if bias is None else bias if relative is None else relative + bias
        arrays = arrays | {name: p[name] for name in row.parameters()}
        o, saved = row.forward(q, k, v, *(arrays[name] for name in row.extras), bias=bias, keep=keep, dropout=dropout)
        return o, position, saved

    def page_backward(self, p, saved, do, grads):
        """The gradients of q, k, v, ... by name, and dbias; those of the layer's own arrays are added into `grads`."""
        row = variant(self.variant)
        dq, dk, dv, dbias, *extras = row.backward(saved.attention, do)
        gradients = dict(zip(row.extras, extras, strict=False))
        for name in row.parameters():
            grads[name] += gradients[name]
        if self.position is not None:
            dq, dk = self.position.backward(getattr(p, "position", None), saved.position, dq, dk, dbias,
                                            getattr(grads, "position", None))
            dbias = None if saved.bias is None else ops.unbroadcast(dbias, ops.queries(saved.bias, saved.read).shape)
        return gradients | {"q": dq, "k": dk, "v": dv}, dbias

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
        q, k, v = mapped(p, x, "qkv").values()
        before, start = kept or (None, 0)
        stop = start + x.shape[1]
        if self.position is not None:
            # a key is turned as a query is, by its own position: hence as a query, beside no keys
            q, k = (self.position.forward(None, each, k[:, :0], range(start, stop))[0] for each in (q, k))
        o, state, _ = linear_state(q, k, v, before)
        return out(p, o), KeptState(state, stop)
