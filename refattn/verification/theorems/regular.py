"""The theorems of sliding-dilated attention and RegularGPT."""

from dataclasses import replace

import numpy as np

from ... import ops
from ...attention.sliding_dilated import SlidingDilated, sliding_dilated, sliding_dilated_backward
from ...attention.softmax import softmax, softmax_backward
from ...contract import contract
from ...layers.feed_forward import FeedForward
from ...models.recurrent import linear_scan, linear_scan_backward
from ...models.regular_gpt import RegularGPT, levels
from .statement import deviation, deviations, filled, joined, passes, sizes, theorem

STYLES = ({"norm": "post"}, {"norm": "pre", "embedding_scale": False}, {"norm": "none"})


def model(rng, chunk=2, thickness=1, out_of_range="pad", **fields):
    """A RegularGPT of small sizes with random parameters."""
    attention = SlidingDilated(6, 2, 3, chunk, out_of_range=out_of_range)
    made = RegularGPT(attention, FeedForward(6, 7, "relu"), 4, 3, thickness, **fields)
    return made, filled(made, rng)


@theorem("the C shifted sums are softmax attention under the dense T x T matrix of eq. (1), forward and every "
         "gradient, the offset biases' being the sum along its diagonals; any dilation, without pads", "R, eq. (1)",
         over=(1, 2, 5, 40))
def shifted_sums_are_the_dense_mask(rng, dilation):
    b, t, h, d, e, c = sizes(rng, 6)
    t += 4
    q, k, v, r = (rng.standard_normal(shape) for shape in ((b, t, h, d), (b, t, h, d), (b, t, h, e), (h, c)))
    offset = np.subtract.outer(np.arange(t), np.arange(t))
    keep = (offset >= 0) & (offset % dilation == 0) & (offset // dilation < c)
    j = np.where(keep, offset // dilation, 0)
    o, saved = sliding_dilated(q, k, v, r, dilation=dilation)
    o2, saved2 = softmax(q, k, v, bias=np.where(keep, r[:, j], 0), keep=keep)
    do = rng.standard_normal(o.shape)
    dq, dk, dv, _, dr = sliding_dilated_backward(saved, do)
    dq2, dk2, dv2, dm = softmax_backward(saved2, do)
    dr2 = np.stack([dm[:, keep & (j == n)].sum(axis=1) for n in range(c)], axis=1)
    return deviations([o, dq, dk, dv, dr], [o2, dq2, dk2, dv2, dr2])


@theorem("the tree is the dense form at the last position, and has the same parameter gradients; every norm, any "
         "number of sub-layers and of tokens, both semantics of what is out of range, also with a level more or less",
         "R, section 3, released code for K = 1 with pads", over=range(6))
def the_tree_is_the_last_position(rng, number):
    chunk, thickness = int(rng.integers(2, 4)), int(rng.integers(1, 4))
    made, p = model(rng, chunk, thickness, ("pad", "mask")[number % 2], **STYLES[number % 3])
    x = rng.integers(4, size=(2, int(rng.integers(1, 20))))
    depth = max(1, levels(x.shape[1], chunk) + number // 2 - 1)
    dlast = rng.standard_normal((2, 1, 3))
    y, grads, _ = passes(made, p, x, dlast, tree=True, levels=depth)
    dy = ops.scatter_slice(dlast, (*x.shape, 3), slice(-1, None), axis=1)
    y2, grads2, _ = passes(made, p, x, dy, levels=depth)
    return deviations([y, joined(grads)], [y2[:, -1:], joined(grads2)])


@theorem("the released tree, whose pads are tokens in front, is the same for one sub-layer only: with two, which "
         "change the pads, it differs from eq. (1) by more than a hundred-thousandth",
         "R, released code")
def pads_as_tokens_agree_for_one_sub_layer_only(rng):
    one, two = (literal_gap(rng, thickness) for thickness in (1, 2))
    return one if two > 1e-5 else np.inf


def literal_gap(rng, thickness):
    """How far pads that are put before the tokens lead from `tree=True`, at a length that needs them."""
    made, p = model(rng, 2, thickness)
    x = rng.integers(4, size=(2, 5))
    h = p.embed.table[x] * made.attention.width ** 0.5
    block = replace(made, attention=replace(made.attention, out_of_range="mask")).block()
    for _ in range(levels(5, 2)):
        pads = np.broadcast_to(p.blocks[0].attention.pad, (len(x), h.shape[1] % 2, h.shape[2]))
        h = np.concatenate([pads, h], axis=1)
        for k in range(thickness):
            h, _ = block.forward(p.blocks[k], h)
        h = h[:, 1::2]
    return deviation(made.forward(p, x, tree=True)[0], h @ p.readout.w + p.readout.b)


@theorem("with L levels the last position depends on exactly the last min(T, C^L) tokens: not at all on any before, "
         "and on each of these; K sub-layers look back K (C^L - 1) tokens; 0 where both hold", "R, section 3.2", 0.0,
         over=((2, 1, 1, 5), (2, 3, 1, 11), (3, 2, 1, 7), (3, 2, 1, 12), (2, 2, 2, 11)))
def the_last_position_sees_exactly_the_last_tokens(rng, numbers):
    chunk, depth, thickness, steps = numbers
    made, p = model(rng, chunk, thickness, str(rng.choice(["pad", "mask"])))
    x = rng.standard_normal((1, steps, 6))
    dy = ops.scatter_slice(rng.standard_normal((1, 1, 3)), (1, steps, 3), slice(-1, None), axis=1)
    seen = passes(made, p, x, dy, levels=depth)[2][0].any(axis=1)
    reach = thickness * (chunk**depth - 1) + 1
    return 0.0 if seen.tolist() == [i >= steps - reach for i in range(steps)] else np.inf


@theorem("heads have no order, and adding one number to all offset biases of a head changes nothing: only their "
         "differences count, so their gradients add up to 0; both semantics", "R, eq. (1)", over=("pad", "mask"))
def only_differences_of_offset_biases_count(rng, out_of_range):
    layer = SlidingDilated(7, 3, 4, 3, 2, out_of_range, biases=True)
    p, x = filled(layer, rng), rng.standard_normal((2, 6, 7))
    y, grads, _ = passes(layer, p, x, rng.standard_normal(x.shape))
    of_biases = float(np.abs(grads.offset_bias.sum(axis=1)).max() / np.abs(grads.offset_bias).max())
    p.offset_bias[...] += rng.standard_normal((3, 1))
    moved, order = layer.forward(p, x)[0], rng.permutation(3)
    for name in "wq", "wk", "wv":
        getattr(p, name)[...] = getattr(p, name)[:, order]
    for name in "bq", "bk", "bv", "offset_bias", "wo":
        getattr(p, name)[...] = getattr(p, name)[order]
    return max(of_biases, deviation(moved, y), deviation(layer.forward(p, x)[0], y))


@theorem("a linear recurrence h_t = h_{t-1} A_t + u_t as a parallel scan is the sequential one, forward and backward, "
         "for any matrices A_t (R has one) and any length", "R, section 4; Martin & Cundy 2018", over=(1, 2, 3, 8, 21))
def the_parallel_scan_is_the_recurrence(rng, t):
    b, n, *_ = sizes(rng, 2)
    a, u, dh = rng.standard_normal((b, t, n, n)) / n, rng.standard_normal((b, t, n)), rng.standard_normal((b, t, n))
    h, du, da = np.zeros_like(u), np.zeros_like(u), np.zeros_like(a)
    for i in range(t):
        h[:, i] = u[:, i] + (contract("bn,bno->bo", h[:, i - 1], a[:, i]) if i else 0)
    for i in reversed(range(t)):
        du[:, i] = dh[:, i] + (contract("bo,bno->bn", du[:, i + 1], a[:, i + 1]) if i + 1 < t else 0)
        da[:, i] = contract("bn,bo->bno", h[:, i - 1], du[:, i]) if i else 0
    ours, saved = linear_scan(a, u)
    return deviations([ours, *linear_scan_backward(saved, dh)], [h, da, du])
