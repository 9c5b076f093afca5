"""Every attention layer: the maps before and after its page, with the forward and the backward through all three.

    q = x[:, read] W^query + b,   k, v = context W + b,   the context being x where there is none
    o = page(q, k, v, ...);       y = sum_h o_h W_h^out + b
"""

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from .. import ops
from ..contract import contract
from ..layers.protocol import Gradients, check_tokens
from ..params import Parameter, check_views
from ..xp import check_alike, fitted


def in_maps(m, biases, size, **maps):
    """The parameters of maps of m features: wq (m, h, d) and bq (h, d) for q="hd"; `size` is that of each letter."""
    names = {}
    for name, axes in maps.items():
        shape = tuple(size[x] for x in axes)
        names[f"w{name}"] = Parameter(f"m{axes}", (m, *shape), m, "weight")
        if biases:
            names[f"b{name}"] = Parameter(axes, shape, m, "bias")
    return names


def out_map(m, biases, size, axes):
    """The parameters of the map to m features: wo (h, e, m) and bo (m) for "he"."""
    shape = tuple(size[x] for x in axes)
    names = {"wo": Parameter(f"{axes}m", (*shape, m), prod(shape), "weight")}
    return names | {"bo": Parameter("m", (m,), prod(shape), "bias")} if biases else names


def weights(p, names):
    """The weight and bias (None where the layer has none) of each map: wq and bq for "q"."""
    return [(getattr(p, f"w{n}"), getattr(p, f"b{n}", None)) for n in names]


def mapped(p, x, names) -> dict:
    """{name: x W + b} of the named maps, as one product."""
    return dict(zip(names, ops.linears(x, *weights(p, names)), strict=True))


def mapped_backward(p, x, names, dys: dict, grads):
    """dx of `mapped` from {name: gradient}; the maps' gradients are added into `grads`."""
    dx, pairs = ops.linears_backward(x, [w for w, _ in weights(p, names)], [dys[name] for name in names])
    for (w, b), (dw, db) in zip(weights(grads, names), pairs, strict=True):
        w += dw
        if b is not None:
            b += db
    return dx


def project(p, x, context, read, of_queries, of_keys) -> dict:
    """The maps `of_queries` of x[:, read] and `of_keys` of the context (x where None), one product where possible."""
    if context is None and read is None:
        return mapped(p, x, of_queries + of_keys)
    return (mapped(p, x if read is None else x[:, read], of_queries)
            | mapped(p, x if context is None else context, of_keys))


def project_backward(p, x, context, read, of_queries, of_keys, dys: dict, grads):
    """dx, dcontext of `project` from {name: gradient}; the maps' gradients are added into `grads`."""
    if context is None and read is None:
        return mapped_backward(p, x, of_queries + of_keys, dys, grads), None
    dx = mapped_backward(p, x if read is None else x[:, read], of_queries, dys, grads)
    source = mapped_backward(p, x if context is None else context, of_keys, dys, grads)
    if context is None:
        source[:, read] += dx
        return source, None
    return dx if read is None else ops.scatter_slice(dx, x.shape, read, axis=1), source


def out(p, o):
    """y (b, q, m) = sum_he o[h, e] wo[h, e] + bo, the heads h being searches where a layer has those."""
    y = contract("bqhe,hem->bqm", o, p.wo)
    if hasattr(p, "bo"):
        y += p.bo
    return y


def out_backward(p, o, dy, grads):
    """do (b, q, h, e); gradients of wo and bo are added into `grads`.  Raises ValueError for dy of another shape."""
    check_views(grads, "grads")
    check_alike(dy=fitted(dy, "dy", o.shape[:2] + p.wo.shape[2:]), wo=p.wo)
    if hasattr(p, "bo"):
        grads.bo += dy.sum(axis=(0, 1))
    grads.wo += contract("bqhe,bqm->hem", o, dy)
    return contract("bqm,hem->bqhe", dy, p.wo)


class Saved(NamedTuple):
    x: Any                     # the whole input, even if only its positions `read` are queries
    context: Any
    bias: Any
    read: slice | None
    position: Any              # what the position layer saved, None without one
    attention: Any             # what the page saved: q, k, v, code, ...
    o: Any                     # (b, q, h, e)


class AttentionLayer:
    """What attention layers have in common.  Each adds `parameters` and two methods around its page:

    page(p, arrays, at, bias, keep, dropout)    o, what the position layer saves, what the page saves; `arrays` are
                                                those of `maps` by name, the queries stand at the range `at`
    page_backward(p, saved, do, grads)          the gradients of the arrays by name, and dbias
    """
    width: int
    page: Callable[..., tuple]
    page_backward: Callable[..., tuple]

    def maps(self) -> tuple[Any, Any]:
        """The names of what the queries' x is projected to, and of what the keys' is."""
        return "q", "kv"

    def forward(self, p, x, *, context=None, bias=None, keep=None, dropout=None, read=None) -> tuple[Any, Saved]:
        """y (b, q, m) from x (b, t, m).  Returns y and Saved.

        Keys and values come from `context` (b, k, m) where given.  `bias`, `keep`, `dropout` broadcast to (b, h, q, k)
        of the whole x; `read`, a slice of query positions, gives y[:, read] at the cost of those queries only.
        """
        check_tokens(self.width, read, p, {"bias": bias, "keep": keep, "dropout": dropout}, x=x, context=context)
        arrays = project(p, x, context, read, *self.maps())
        o, position, inner = self.page(p, arrays, range(x.shape[1])[read or slice(None)],
                                       *(ops.queries(each, read) for each in (bias, keep, dropout)))
        return out(p, o), Saved(x, context, bias, read, position, inner, o)

    def backward(self, p, saved, dy, grads) -> Gradients:
        """Gradients(x, context, bias) from dy (b, q, m); parameter gradients are added into `grads`."""
        gradients, dbias = self.page_backward(p, saved, out_backward(p, saved.o, dy, grads), grads)
        dx, dcontext = project_backward(p, saved.x, saved.context, saved.read, *self.maps(), gradients, grads)
        return Gradients(dx, dcontext, ops.queries_backward(dbias, saved.bias, saved.read))
