"""The maps around a page: their parameters, x through them, all of it or the queries that are read, and o to y.

    q = x[:, read] W^query + b,   k, v = context W + b,   the context being x where there is none
    y = sum_h o_h W_h^out + b
"""

from math import prod

from .. import ops
from ..contract import contract
from ..params import Parameter, check_views
from ..xp import check_alike, fitted


def in_maps(m, biases, **maps):
    """The parameters of maps of m features: wq (m, h, d) and bq (h, d) for q=("hd", (h, d))."""
    names = {}
    for name, (axes, shape) in maps.items():
        names[f"w{name}"] = Parameter(f"m{axes}", (m, *shape), m, "weight")
        if biases:
            names[f"b{name}"] = Parameter(axes, shape, m, "bias")
    return names


def out_map(m, biases, axes, shape):
    """The parameters of the map to m features: wo (h, e, m) and bo (m) for "he", (h, e)."""
    names = {"wo": Parameter(f"{axes}m", (*shape, m), prod(shape), "weight")}
    return names | {"bo": Parameter("m", (m,), prod(shape), "bias")} if biases else names


def maps(p, names):
    """The weight and bias (None where the layer has none) of each map: wq and bq for "q"."""
    return [(getattr(p, f"w{n}"), getattr(p, f"b{n}", None)) for n in names]


def project(p, x, context, read, of_queries, of_keys):
    """The maps `of_queries` of x[:, read] and `of_keys` of the context (x where None), one product where possible."""
    if context is None and read is None:
        return ops.linears(x, *maps(p, of_queries + of_keys))
    return (ops.linears(x if read is None else x[:, read], *maps(p, of_queries))
            + ops.linears(x if context is None else context, *maps(p, of_keys)))


def project_backward(p, x, context, read, of_queries, of_keys, dys, grads):
    """dx, dcontext of `project`; the maps' gradients are added into `grads`."""
    if context is None and read is None:
        return _maps_backward(p, x, of_queries + of_keys, dys, grads), None
    n = len(of_queries)
    dx = _maps_backward(p, x if read is None else x[:, read], of_queries, dys[:n], grads)
    source = _maps_backward(p, x if context is None else context, of_keys, dys[n:], grads)
    if context is None:
        source[:, read] += dx
        return source, None
    return dx if read is None else ops.scatter_slice(dx, x.shape, read, axis=1), source


def _maps_backward(p, x, names, dys, grads):
    dx, pairs = ops.linears_backward(x, [w for w, _ in maps(p, names)], dys)
    for (w, b), (dw, db) in zip(maps(grads, names), pairs, strict=True):
        w += dw
        if b is not None:
            b += db
    return dx


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
