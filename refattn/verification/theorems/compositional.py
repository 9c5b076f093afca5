"""The theorems of compositional attention."""

from dataclasses import replace

import numpy as np

from ... import ops, params
from ...attention.compositional import Compositional, compositional, compositional_backward
from ...attention.layer import MultiHead
from ...attention.softmax import softmax, softmax_backward
from ...attention.value_scores import SCORINGS
from ...layers.feed_forward import FeedForward
from ...models.transformer import universal
from ..naive import compositional as loops
from .statement import deviation, deviations, filled, joined, largest, masked, passes, sizes, theorem

SATURATED = 1000.0             # exp(-1000) is 0 in float64


def random_layer(rng, **fields):
    """A layer of random small sizes with random parameters, and an input x (b, t, m)."""
    b, t, m, s, r, d = sizes(rng, 6)
    layer = Compositional(m, s, r, d, retrieval_width=8, selector_width=9, **fields)
    return layer, filled(layer, rng), rng.standard_normal((b, t, m))


def as_compositional(heads: MultiHead, p, wv, bv, pairing):
    """A compositional attention whose search s is head s, with the value map pairing[s] of wv (m, r, e), bv (r, e).

    Each retrieval has r more value features: 1 in its own place by `bv`, 0 elsewhere.  `wr` reads these alone, and
    `bs` asks for the right one so loudly that the others get exactly 0.  Returns the layer and its parameters.
    """
    m, r, e = wv.shape
    layer = Compositional(m, heads.heads, r, heads.head_width, e + r, r)
    _, c = params.allocate(layer.parameters(), np.float64)
    for name in "wq", "bq", "wk", "bk", "bo":
        getattr(c, name)[...] = getattr(p, name)
    c.wv[..., :e], c.bv[:, :e], c.bv[:, e:] = wv, bv, np.eye(r)
    c.wr[e:], c.bs[...] = np.eye(r), SATURATED * r**0.5 * np.eye(r)[list(pairing)]
    c.wo[:, :e] = p.wo
    return layer, c


def masks(rng, x, s):
    """bias and keep for self-attention, every query keeping itself."""
    b, t, _ = x.shape
    keep = rng.random((b, 1, t, t)) < 0.6
    keep[:, :, np.arange(t), np.arange(t)] = True
    return {"bias": rng.standard_normal((s, t, t)), "keep": keep}


def both(rng, heads, p, layer, c, x):
    """Output, parameter gradients and dx of two layers, under the same masks, for the same upstream gradient."""
    options, dy = masks(rng, x, heads.heads), rng.standard_normal(x.shape)
    return passes(heads, p, x, dy, **options), passes(layer, c, x, dy, **options)


@theorem("multi-head attention is a compositional attention: s = r = heads, one-hot value features made by bv, read by "
         "wr and asked for by a saturating bs; forward and backward, with biases in both; every query keeps a key, no "
         "dropout", "C, appendix B.1")
def multi_head_attention_is_compositional(rng):
    b, t, m, h, d, e = sizes(rng, 6)
    heads = MultiHead(m, h, d, e)
    p, x = filled(heads, rng), rng.standard_normal((b, t, m))
    layer, c = as_compositional(heads, p, p.wv, p.bv, range(h))
    (y, g, dx), (y2, g2, dx2) = both(rng, heads, p, layer, c, x)
    ours = [y2, dx2, g2.wq, g2.bq, g2.wk, g2.wv[..., :e], g2.bv[:, :e], g2.wo[:, :e], g2.bo]
    none = largest(g2.ws, g2.bs, g2.wr, g2.wv[..., e:])
    return largest(none, deviations(ours, [y, dx, g.wq, g.bq, g.wk, g.wv, g.bv, g.wo, g.bo]))


@theorem("any fixed pairing of s searches with r retrievals is a multi-head attention with s heads, which repeats the "
         "value map of a retrieval for every search that takes it: there the maps are redundant; every query keeps a "
         "key, no dropout", "C, figure 1, section 2.3")
def a_fixed_pairing_is_a_multi_head_attention_with_copies(rng):
    b, t, m, s, d, e = sizes(rng, 6)
    r = s - 1
    heads, pairing = MultiHead(m, s, d, e), rng.integers(r, size=s)
    p, x = filled(heads, rng), rng.standard_normal((b, t, m))
    wv, bv = rng.standard_normal((m, r, e)), rng.standard_normal((r, e))
    p.wv[...], p.bv[...] = wv[:, pairing], bv[pairing]
    layer, c = as_compositional(heads, p, wv, bv, pairing)
    (y, g, dx), (y2, g2, dx2) = both(rng, heads, p, layer, c, x)
    summed = np.zeros_like(wv)
    np.add.at(summed, (slice(None), pairing), g.wv)
    return deviations([y2, dx2, g2.wv[..., :e]], [y, dx, summed])


@theorem("with one retrieval compositional attention is softmax attention whose heads share one value (multi-query "
         "attention shares keys, too), whatever the scoring, and selector and scoring get exactly no gradient; with "
         "bias, keep and dropout", "C, section 3; Shazeer 2019", over=SCORINGS)
def one_retrieval_is_one_value_for_all_heads(rng, name):
    b, t, k, s, d, e = sizes(rng, 6)
    q, keys, v = (rng.standard_normal(shape) for shape in ((b, t, s, d), (b, k, s, d), (b, k, 1, e)))
    options = masked(rng, q, keys)
    size = {"c": d, "e": e, "f": d, "1": 1}
    score = [rng.standard_normal([size[x] for x in axes]) for axes in SCORINGS[name].axes]
    o, saved = compositional(q, keys, v, rng.standard_normal((b, t, s, d)), *score, scoring=name, **options)
    o2, saved2 = softmax(q, keys, np.repeat(v, s, axis=2), **options)
    do = rng.standard_normal(o.shape)
    dq, dk, dv, dbias, *rest = compositional_backward(saved, do)
    dq2, dk2, dv2, dbias2 = softmax_backward(saved2, do)
    return max(deviations([o, dq, dk, dv, dbias], [o2, dq2, dk2, dv2.sum(axis=2, keepdims=True), dbias2]),
               np.inf if any(x.any() for x in rest) else 0.0)


@theorem("linear scoring, the released code's MLP, cannot see the query: its half adds one number to all r logits, so "
         "the output is the same for every selector, and selector, its half of the scoring and the bias get gradients "
         "of rounding size only", "C, appendix B.7, released code")
def linear_scoring_cannot_see_the_query(rng):
    layer, p, x = random_layer(rng, scoring="linear")
    dy = rng.standard_normal(x.shape)
    y, g, _ = passes(layer, p, x, dy)
    blind = largest(g.ws, g.bs, g.wc, g.br) / largest(g.wr)
    for z in p.ws, p.bs, p.wc, p.br:
        z[...] = rng.standard_normal(z.shape)
    return largest(blind, deviation(passes(layer, p, x, dy)[0], y))


@theorem("retrievals have no order: permuting them in wv and bv permutes the value scores and changes no output; every "
         "scoring", "C, eq. (10)-(13)", over=SCORINGS)
def retrievals_can_be_permuted(rng, name):
    layer, p, x = random_layer(rng, scoring=name)
    y, saved = layer.forward(p, x)
    order = rng.permutation(layer.retrievals)
    p.wv[...], p.bv[...] = p.wv[:, order], p.bv[order]
    y2, saved2 = layer.forward(p, x)
    return max(deviation(y2, y), deviation(saved2.attention.value_scores, saved.attention.value_scores[..., order]))


@theorem("searches have no order: permuting them in the maps of queries, keys and selector and in the rows of the "
         "output map changes no output; every scoring", "C, eq. (7)-(14)", over=SCORINGS)
def searches_can_be_permuted(rng, name):
    layer, p, x = random_layer(rng, scoring=name)
    y, _ = layer.forward(p, x)
    order = rng.permutation(layer.searches)
    for each in "qks":
        w, b = getattr(p, f"w{each}"), getattr(p, f"b{each}")
        w[...], b[...] = w[:, order], b[order]
    p.wo[...] = p.wo[order]
    return deviation(layer.forward(p, x)[0], y)


@theorem("the biases of keys have no gradient: bk adds one number to all scores of a search, to rounding in every "
         "scoring; br to all logits of a query under dot scoring, exactly, and no loop sees it either; any mask",
         "C, eq. (8), (11)-(13)", over=SCORINGS)
def key_biases_have_no_gradient(rng, name):
    layer, p, x = random_layer(rng, scoring=name)
    _, g, _ = passes(layer, p, x, rng.standard_normal(x.shape), **masks(rng, x, layer.searches))
    of_keys = float(np.abs(g.bk).max() / np.abs(g.wk).max())
    if name != "dot":
        return of_keys
    before = loops.layer(p, x)
    p.br[...] += 1
    return max(of_keys, np.inf if g.br.any() else 0.0, deviation(loops.layer(p, x), before))


@theorem("the key map can move into the selector: (selector W^key^T) . t = selector . (t W^key), eq. (11)-(13) as "
         "printed", "C, eq. (11)-(13)")
def the_key_map_moves_into_the_selector(rng):
    b, q, s, r, e, c = sizes(rng, 6)
    selector, ret, key_map = (rng.standard_normal(shape) for shape in ((b, q, s, c), (b, q, s, r, e), (e, c)))
    printed = (ops.linear(ret, key_map) * selector[..., None, :]).sum(axis=-1) / c**0.5
    return deviation(SCORINGS["dot"].forward(selector, ret, key_map)[0], printed)


@theorem("a weight-shared transformer is a transformer whose blocks have equal weights, and its gradient is the sum of "
         "theirs; pre-LN, with a final norm and without a position table", "C, section 4; Dehghani et al. 2018")
def a_shared_block_gets_the_sum_of_the_gradients(rng):
    b, t, i, s, r, n = sizes(rng, 6)
    attention, feed_forward = Compositional(8, s, r, 3, 4, 5), FeedForward(8, 9, "relu")
    shared = universal(attention, feed_forward, n, inputs=i, final_norm=True)
    whole = replace(shared, stack=replace(shared.stack, shared=False))
    p, x = filled(shared, rng), rng.standard_normal((b, t, i))
    embed, block, norm, readout = map(joined, (p.embed, p.block, p.norm, p.readout))
    q = params.view(np.concatenate([embed, *[block] * n, norm, readout]), whole.parameters())
    dy = rng.standard_normal((b, t, 1))
    y, g, dx = passes(shared, p, x, dy)
    y2, g2, dx2 = passes(whole, q, x, dy)
    return deviations([y, dx, joined(g.block)], [y2, dx2, sum(map(joined, g2.blocks))])
