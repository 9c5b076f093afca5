"""Theorems about states: which variants of attention read any number of tokens with a fixed memory."""

import numpy as np

from ...attention import VARIANTS, masks
from ...attention.linear import linear, linear_backward
from ...attention.linear_state import linear_state, linear_state_backward
from ...layers.text_positions import slopes
from .statement import deviation, deviations, theorem
from .variants import extras


def drawn(rng, t=7, h=3, d=4, e=5):
    """q, k, v of two sequences."""
    return [rng.standard_normal((2, t, h, x)) for x in (d, d, e)]


@theorem("linear attention under a causal mask is a recurrence: pieces of any lengths that hand on a d x e state for "
         "each head give its outputs, and handing the state's gradient back gives its gradients",
         "Katharopoulos et al. 2020, section 3.4")
def a_state_carries_linear_attention(rng):
    q, k, v = drawn(rng)
    o, saved = linear(q, k, v, keep=masks.causal(7))
    do = rng.standard_normal(o.shape)
    cuts = [0, *sorted(rng.permutation(range(1, 7))[:2]), 7]
    state, pieces = None, []
    for start, stop in zip(cuts, cuts[1:], strict=False):
        at = slice(start, stop)
        piece, state, kept = linear_state(q[:, at], k[:, at], v[:, at], state)
        pieces.append((at, piece, kept))
    whole, dstate = [np.zeros_like(x) for x in (o, q, k, v)], np.zeros_like(state)
    for at, piece, kept in reversed(pieces):
        *found, dstate = linear_state_backward(kept, do[:, at], dstate)
        for into, x in zip(whole, (piece, *found), strict=True):
            into[:, at] = x
    return deviations(whole, [o, *linear_backward(saved, do)[:3]])


@theorem("an additive bias that factorises, u_q . w_k, is further features of q and k: linear attention with ALiBi "
         "under a causal mask has a state of d + 2 rows", "this library")
def alibi_is_two_more_features(rng):
    q, k, v = drawn(rng)
    _, t, h, d = q.shape
    slope, n = slopes(h)[:, None], np.arange(1.0 * t)[:, None, None]
    bias = -slope[:, None] * np.abs(n - n.T)[:, 0]
    o, _ = linear(q, k, v, bias=bias, keep=masks.causal(t))
    scale = np.sqrt((d + 2) / d), np.sqrt(d + 2)                        # as the page divides by sqrt(d + 2)
    fill = np.broadcast_to(np.ones((t, h, 1)), (2, t, h, 1))
    wide_q = np.concatenate([q * scale[0], -slope * n * fill * scale[1], slope * fill * scale[1]], axis=-1)
    wide_k = np.concatenate([k, fill, n * fill], axis=-1)
    return deviation(linear_state(wide_q, wide_k, v)[0], o)


@theorem("of the variants of table A1 that do not normalise over keys, those with neither RMSHead nor a nonlinearity "
         "have a state: what keys add, as functions of the query, spans d dimensions (linear) or (h - 1) d^2 + "
         "d (d + 1) / 2 (HYLA without both); for the others n keys span n dimensions: no sum of fixed size will do",
         "this library", 0.0, over=[row for row in VARIANTS.values() if row.knobs is not None and row.tiles == "sum"])
def which_variants_have_a_state(rng, row):
    h, d = map(int, rng.integers(2, 4, size=2))
    expected = {"linear": d, "hyla_no_nonlinearity_no_rms_head": (h - 1) * d * d + d * (d + 1) // 2}
    n = max(expected.values()) + 7
    q, k, v = (rng.standard_normal((1, length, h, d)) for length in (400, n, n))
    more = [np.abs(x) for x in extras(rng, row, q, v)]
    each = [row.forward(q, k[:, i:i + 1], np.abs(v[:, i:i + 1]), *more)[0][0, :, 0, 0] for i in range(n)]
    return abs(float(np.linalg.matrix_rank(np.stack(each), rtol=1e-9)) - expected.get(row.name, n))
