"""The theorems that every variant of attention obeys, whatever its equation."""

import numpy as np

from ... import ops
from ...attention import VARIANTS, masks
from ...attention.layer import MultiHead
from ...attention.tiled import tiled, tiled_backward
from ...layers.recompute import Recompute
from ...models.transformer import decoder
from ..cases.case import normal
from .hypernetwork import inputs, layer_of
from .statement import deviation, deviations, filled, joined, largest, masked, passes, theorem


def extras(rng, row, q, v):
    """The extra arrays of a variant, by its axes."""
    size = dict(zip("bqhd", q.shape, strict=True)) | dict(zip("bkhe", v.shape, strict=True))
    return [normal(rng, axes, size) for axes in row.extras.values()]


@theorem("self-attention of every variant is equivariant under permutations of the positions; without positional "
         "bias or mask", "this library", over=VARIANTS)
def every_variant_is_permutation_equivariant(rng, name):
    layer, p, x = layer_of(rng, name)
    order = rng.permutation(x.shape[1])
    return deviation(layer.forward(p, x[:, order])[0], layer.forward(p, x)[0][:, order])


@theorem("with a causal mask, no output depends on a later input: exactly, for every variant, and for a whole "
         "decoder", "Vaswani et al. 2017, section 3.2.3", 0.0, VARIANTS)
def causality(rng, name):
    layer, p, x = layer_of(rng, name)
    t, last = x.shape[1], int(rng.integers(1, x.shape[1]))
    other = x.copy()
    other[:, last:] = rng.standard_normal(x[:, last:].shape)
    keep = masks.causal(t)
    changed, y = layer.forward(p, other, keep=keep)[0], layer.forward(p, x, keep=keep)[0]
    model = decoder(MultiHead(6, 2, 3, variant=name), hidden=5, layers=2, buckets=4, inputs=x.shape[2], causal=True)
    p = filled(model, rng)
    changed2, y2 = model.forward(p, other)[0], model.forward(p, x)[0]
    return deviations([changed[:, :last], changed2[:, :last]], [y[:, :last], y2[:, :last]])


@theorem("a query that keeps nothing: attention contributes exactly zero (y = bo), no gradient to its q, and none "
         "from it to k and v; every variant", "this library", 0.0, over=VARIANTS.values())
def a_fully_masked_query_contributes_nothing(rng, row):
    q, k, v = inputs(rng)
    keep = rng.random((q.shape[0], 1, q.shape[1], k.shape[1])) < 0.6
    keep[:, :, 0] = False
    bias = rng.standard_normal((q.shape[2], q.shape[1], k.shape[1]))
    o, saved = row.forward(q, k, v, *extras(rng, row, q, v), keep=keep, bias=bias)
    do = rng.standard_normal(o.shape)
    dq, _, _, dbias, *_ = row.backward(saved, do)
    only = np.zeros_like(do)
    only[:, 0] = do[:, 0]
    alone = row.backward(saved, only)
    layer, p, x = layer_of(rng, row.name)
    y = layer.forward(p, x, keep=np.zeros((1, 1), dtype=bool))[0]
    return largest(o[:, 0], dq[:, 0], dbias[:, 0], *(x for x in alone if x is not None), y - p.bo)


@theorem("attention summed key tile by key tile, softmax with a running maximum, equals the whole, forward and "
         "backward, with bias, keep, dropout and any tile size; to 1e-10, as near zero RMSHead magnifies rounding",
         "Rabe & Staats 2021; H, section 2.2", 1e-10, [row for row in VARIANTS.values() if row.tiles])
def tiles_equal_the_whole(rng, row):
    q, k, v = inputs(rng)
    arrays, options = (q, k, v, *extras(rng, row, q, v)), masked(rng, q, k)
    o, saved = row.forward(*arrays, **options)
    do = rng.standard_normal(o.shape)
    whole, found = [o, *row.backward(saved, do)[:4 + len(row.extras)]], []
    for tile in 1, 2, k.shape[1], k.shape[1] + 1:
        o2, saved2 = tiled(*arrays, page=row.name, tile=tile, **options)
        found.append(deviations([o2, *tiled_backward(saved2, do)], whole))
    return max(found)


@theorem("a layer that repeats its forward in the backward has bitwise the same output and gradients; with bias, keep "
         "and dropout", "Chen et al. 2016", 0.0, over=VARIANTS)
def recomputation_changes_no_bit(rng, name):
    layer, p, x = layer_of(rng, name)
    dy, like = rng.standard_normal(x.shape), np.empty((*x.shape[:2], layer.heads, 1))
    options = masked(rng, like, like)
    (y, g, dx), (y2, g2, dx2) = (passes(each, p, x, dy, **options) for each in (layer, Recompute(layer)))
    return deviations([y2, dx2, joined(g2)], [y, dx, joined(g)])


@theorem("`read` gives the slice y[:, read] of the whole output and, for a gradient that is zero elsewhere, the "
         "same gradients; a decoder with T5 bias and dropout", "this library")
def reading_one_position_equals_slicing(rng):
    b, t, i = 3, 5, 4
    model = decoder(MultiHead(6, 2, 3, variant="hyla"), hidden=7, layers=2, buckets=t, inputs=i)
    p = filled(model, rng)
    x, dropout = rng.standard_normal((b, t, i)), (rng.random((2, 1, 1, t, t)) < 0.9) / 0.9
    read = slice(t - 2, t - 1)
    dpart = rng.standard_normal((b, 1, 1))
    y, g, dx = passes(model, p, x, ops.scatter_slice(dpart, (b, t, 1), read, axis=1), dropout=dropout)
    y2, g2, dx2 = passes(model, p, x, dpart, dropout=dropout, read=read)
    return deviations([y2, dx2, joined(g2)], [y[:, read], dx, joined(g)])
