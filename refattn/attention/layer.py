"""MultiHead: the projections around any page.

    q = x W^query + b,  k = x W^key + b,  v = x W^value + b;   o = page(q, k, v);   y = sum_h o_h W_h^out + b

Source: H, section 2.1 and released code; Vaswani et al. 2017.  Differs from H's text: biases on every map (code), and
head widths that are free, not width / heads (code: 2 for fuzzy logic, 4 for SRAVEN).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import ops
from ..contract import contract
from ..params import Parameter, check_integers
from . import variant
from .ablations import Knobs
from .kept import Keeping
from .projections import input_maps, output_map, project, project_backward, queries, queries_backward
from .shapes import check_tokens


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


@dataclass(frozen=True)
class MultiHead(Keeping):
    """Multi-head attention of any variant; `head_width` is d, `value_width` is e, per head."""
    OF_QUERIES = "q"

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
        q, k, v = project(p, x, context, read, self.OF_QUERIES, "kv")
        y, inner = self.asked(p, (q,), k, v, range(x.shape[1])[read or slice(None)], queries(bias, read),
                              queries(keep, read), queries(dropout, read))
        return y, Saved(x, context, bias, read, *inner)

    def asked(self, p, of_queries, k, v, at, bias, keep, dropout):
        """y (b, q, m), and the rest of Saved, from q (b, q, h, d), k, v; the queries stand at the range `at`."""
        (q,), turned = of_queries, None
        if self.position is not None:
            q, k, relative, turned = self.position.forward(getattr(p, "position", None), q, k, at)
            bias = relative if bias is None else bias if relative is None else relative + bias
        page = variant(self.variant)
        o, saved = page.forward(q, k, v, *(getattr(p, n) for n in page.extras), bias=bias, keep=keep, dropout=dropout)
        y = contract("bqhe,hem->bqm", o, p.wo)
        if self.biases:
            y += p.bo
        return y, (turned, saved, o)

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
            dq, dk = self.position.backward(getattr(p, "position", None), at, dq, dk, dbias,
                                            getattr(grads, "position", None))
            dbias = None if bias is None else ops.unbroadcast(dbias, queries(bias, read).shape)
        dx, dcontext = project_backward(p, x, context, read, "q", "kv", (dq, dk, dv), grads)
        return Gradients(dx, dcontext, queries_backward(dbias, bias, read))
