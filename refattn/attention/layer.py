"""MultiHead: the projections around any page.

    q = x W^query + b,  k = x W^key + b,  v = x W^value + b;   o = page(q, k, v);   y = sum_h o_h W_h^out + b

Source: H, section 2.1 and released code; Vaswani et al. 2017.  Differs from H's text: biases on every map (code), and
head widths that are free, not width / heads (code: 2 for fuzzy logic, 4 for SRAVEN).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import ops
from ..contract import contract
from ..layers.protocol import Gradients
from ..params import Parameter, check_integers
from . import variant
from .ablations import Knobs
from .projections import input_maps, output_map, project, project_backward, queries, queries_backward


class Saved(NamedTuple):
    x: Any                     # the whole input, also where only `read` of it asks
    context: Any
    bias: Any
    read: slice | None
    position: Any              # what the position layer saved
    attention: Any             # what the page saved: q, k, v, code, ...
    o: Any                     # (b, q, h, e)


def check_tokens(width, **inputs):
    """Nothing, or a ValueError naming an input that is not (b, t, m) with the layer's m."""
    for name, x in inputs.items():
        if x is not None and (x.ndim != 3 or x.shape[-1] != width):
            raise ValueError(f"{name} has shape {x.shape}; (b, t, m) with m = {width} is needed")


@dataclass(frozen=True)
class MultiHead:
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
        variant(self.variant)

    def parameters(self):
        m, h, d, e = self.width, self.heads, self.head_width, self.value_width
        names = input_maps(m, self.biases, q=("hd", (h, d)), k=("hd", (h, d)), v=("he", (h, e)))
        if "wv2" in variant(self.variant).extras:
            names["wv2"] = Parameter("hef", (h, e, e), e, "weight")
        names |= output_map(m, self.biases, "he", (h, e))
        if self.position is not None and self.position.parameters():
            names["position"] = self.position.parameters()
        return names

    def forward(self, p, x, *, context=None, bias=None, keep=None, dropout=None, read=None):
        """y (b, q, m) from x (b, t, m).  Returns y and Saved.

        Keys and values come from `context` (b, k, m) where given.  `bias`, `keep`, `dropout` broadcast to (b, h, q, k)
        of the whole x; `read`, a slice of query positions, gives y[:, read] at the cost of those queries only.
        """
        check_tokens(self.width, x=x, context=context)
        q, k, v = project(p, x, context, read, "q", "kv")
        bias_q, keep, dropout = queries(bias, read), queries(keep, read), queries(dropout, read)
        at = None
        if self.position is not None:
            q, k, relative, at = self.position.forward(getattr(p, "position", None), q, k,
                                                       range(x.shape[1])[read or slice(None)])
            bias_q = relative if bias is None else bias_q if relative is None else relative + bias_q
        page = variant(self.variant)
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
            grads[name] += extra
        if self.position is not None:
            dq, dk = self.position.backward(getattr(p, "position", None), at, dq, dk, dbias,
                                            getattr(grads, "position", None))
            dbias = None if bias is None else ops.unbroadcast(dbias, queries(bias, read).shape)
        dx, dcontext = project_backward(p, x, context, read, "q", "kv", (dq, dk, dv), grads)
        return Gradients(dx, dcontext, queries_backward(dbias, bias, read))
