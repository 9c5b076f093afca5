"""Transformer-XL's relative scores, one pair at a time, and the baseline of RegularGPT around them."""

import math

import numpy as np

from .arguments import exact
from .block import block, read_out
from .layer import affine, multi_head
from .regular_gpt import embedded


def distance_code(p, width):
    """[sin(p w_0), sin(p w_1), ..., cos(p w_0), cos(p w_1), ...] with w_c = 10000^(-2 c / width).

    >>> [round(float(x), 4) for x in distance_code(-1, 4)]
    [-0.8415, -0.01, 0.5403, 1.0]
    """
    angles = [p * 10000 ** (-2 * c / width) for c in range(width // 2)]
    return np.array([math.sin(a) for a in angles] + [math.cos(a) for a in angles])


def relative_bias(p, q, k):
    """bias_hij = (u_h . k_j + (q_i + v_h) . (R_{i-j} wr_h)) / sqrt(d), what comes to q_i . k_j / sqrt(d).

    Source: Dai et al. 2019, section 3.3, as in RegularGPT's code: i - j may be negative.
    Shapes: q (b, q, h, d), k (b, k, h, d), p.u (h, d), .v (h, d), .wr (m, h, d), returns (b, h, q, k).
    """
    q, k = exact(q), exact(k)
    u, v, wr = map(exact, (p.u, p.v, p.wr))
    bias = np.zeros((q.shape[0], q.shape[2], q.shape[1], k.shape[1]), np.result_type(q, k, u, v, wr))
    for b, h, i, j in np.ndindex(bias.shape):
        r = sum(c * w for c, w in zip(distance_code(i - j, wr.shape[0]), wr[:, h], strict=True))
        bias[b, h, i, j] = (np.dot(u[h], k[b, j, h]) + np.dot(q[b, i, h] + v[h], r)) / np.sqrt(q.shape[3])
    return bias


def layer(p, x, *, bias=None, **options):
    """Multi-head attention with these scores; p.position has u, v and wr.  Shapes: as `layer.multi_head`."""
    given = relative_bias(p.position, affine(p, x, "q"), affine(p, x, "k")) + (0 if bias is None else bias)
    return multi_head(p, x, bias=given, **options)


def baseline(p, x):
    """Embeddings times sqrt(m), blocks norm1(x + attention(x)), norm2(y + mlp(y)) with relu, read-out.

    Source: RegularGPT's code.  Shapes: x (b, t) integer, returns (b, t, o).
    """
    x = embedded(p, x, True)
    for each in p.blocks:
        x = block(each, x, layer, norm="post")
    return read_out(p, x)
