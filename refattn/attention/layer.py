"""MultiHead: the projections around any page.

    q = x W^query + b,  k = x W^key + b,  v = x W^value + b;   o = page(q, k, v);   y = sum_h o_h W_h^out + b

Source: H, section 2.1 and released code; Vaswani et al. 2017.  Differs from H's text: biases on every map (code), and
head widths that are free, not width / heads (code: 2 for fuzzy logic, 4 for SRAVEN).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import ops
from ..contract import contract
from ..params import Parameter
from . import variant
from .ablations import Knobs


class Gradients(NamedTuple):
    """Of an attention layer's inputs; None for what was not given."""
    x: Any
    context: Any = None
    bias: Any = None


class Saved(NamedTuple):
    x: Any                     # the whole input, also where only `read` of it asks
    context: Any
    bias: Any
    read: slice | None
    position: Any              # what the position layer saved
    attention: Any             # what the page saved: q, k, v, code, ...
    o: Any                     # (b, q, h, e)


def queries(x, read):
    """The part of an array that broadcasts to (b, h, q, k) which belongs to the queries in `read`."""
    return x if x is None or read is None or x.ndim < 2 or x.shape[-2] == 1 else x[..., read, :]


@dataclass(frozen=True)
class MultiHead:
    """Multi-head attention of any variant; `head_width` is d, `value_width` is e, per head."""
    width: int
    heads: int
    head_width: int
    value_width: int | None = None
    variant: str | Knobs = "softmax"
    position: Any = None       # a position layer that acts on q and k (rotary, say)
    biases: bool = True

    def __post_init__(self):
        if self.value_width is None:
            object.__setattr__(self, "value_width", self.head_width)
        for name in ("width", "heads", "head_width", "value_width"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}; an integer of at least 1 is needed")
        variant(self.variant)

    def parameters(self):
        m, h, d, e = self.width, self.heads, self.head_width, self.value_width
        names = {}
        for name, width, letter in ("q", d, "d"), ("k", d, "d"), ("v", e, "e"):
            names[f"w{name}"] = Parameter(f"mh{letter}", (m, h, width), m, "weight")
            if self.biases:
                names[f"b{name}"] = Parameter(f"h{letter}", (h, width), m, "bias")
        if "wv2" in variant(self.variant).extras:
            names["wv2"] = Parameter("hef", (h, e, e), e, "weight")
        names["wo"] = Parameter("hem", (h, e, m), h * e, "weight")
        if self.biases:
            names["bo"] = Parameter("m", (m,), h * e, "bias")
        if self.position is not None and self.position.parameters():
            names["position"] = self.position.parameters()
        return names

    def _maps(self, p, names):
        return [(getattr(p, f"w{n}"), getattr(p, f"b{n}") if self.biases else None) for n in names]

    def _check(self, **inputs):
        for name, x in inputs.items():
            if x is not None and (x.ndim != 3 or x.shape[-1] != self.width):
                raise ValueError(f"{name} has shape {x.shape}; (b, t, m) with m = {self.width} is needed")

    def forward(self, p, x, *, context=None, bias=None, keep=None, dropout=None, read=None):
        """y (b, q, m) from x (b, t, m).  Returns y and Saved.

        Keys and values come from `context` (b, k, m) where given.  `bias`, `keep`, `dropout` broadcast to (b, h, q, k)
        of the whole x; `read`, a slice of query positions, gives y[:, read] at the cost of those queries only.
        """
        self._check(x=x, context=context)
        xq = x if read is None else x[:, read]
        if context is None and read is None:
            q, k, v = ops.linears(x, *self._maps(p, "qkv"))
        else:
            q, = ops.linears(xq, *self._maps(p, "q"))
            k, v = ops.linears(x if context is None else context, *self._maps(p, "kv"))
        at = None
        if self.position is not None:
            q, k, at = self.position.forward(getattr(p, "position", None), q, k, read)
        page = variant(self.variant)
        bias_q, keep, dropout = queries(bias, read), queries(keep, read), queries(dropout, read)
        o, saved = page.forward(q, k, v, *(getattr(p, n) for n in page.extras), bias=bias_q, keep=keep,
                                dropout=dropout)
        y = contract("bqhe,hem->bqm", o, p.wo)
        if self.biases:
            y += p.bo
        return y, Saved(x, context, bias, read, at, saved, o)

    def backward(self, p, saved, dy, grads):
        """Gradients(x, context, bias) from dy (b, q, m); parameter gradients are added into `grads`."""
        x, context, bias, read, at, inner, o = saved
        if self.biases:
            grads.bo += dy.sum(axis=(0, 1))
        grads.wo += contract("bqhe,bqm->hem", o, dy)
        page = variant(self.variant)
        dq, dk, dv, dbias, *extras = page.backward(inner, contract("bqm,hem->bqhe", dy, p.wo))
        for name, extra in zip(page.extras, extras, strict=False):
            view = getattr(grads, name)
            view += extra
        if self.position is not None:
            dq, dk = self.position.backward(getattr(p, "position", None), at, dq, dk, getattr(grads, "position", None))
        dcontext = None
        if context is None and read is None:
            dx = self._linears_backward(p, x, "qkv", (dq, dk, dv), grads)
        else:
            dx = self._linears_backward(p, x if read is None else x[:, read], "q", (dq,), grads)
            source = self._linears_backward(p, x if context is None else context, "kv", (dk, dv), grads)
            if context is None:
                source[:, read] += dx
                dx = source
            else:
                dcontext = source
                dx = dx if read is None else ops.scatter_slice(dx, x.shape, read, axis=1)
        if dbias is not None and dbias.shape != bias.shape:
            dbias = ops.scatter_slice(dbias, bias.shape, read, axis=-2)
        return Gradients(dx, dcontext, dbias)

    def _linears_backward(self, p, x, names, dys, grads):
        dx, pairs = ops.linears_backward(x, [w for w, _ in self._maps(p, names)], dys)
        for name, (dw, db) in zip(names, pairs, strict=True):
            for kind, value in (("w", dw), ("b", db))[: 1 + self.biases]:
                view = getattr(grads, f"{kind}{name}")
                view += value
        return dx
