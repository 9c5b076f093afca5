"""The decoder of Attention as a Hypernetwork, whole."""

from functools import partial

import numpy as np

from .block import block as residual_block
from .block import read_out
from .layer import affine, multi_head
from .ops import embedding
from .positions import t5_bias
from .softmax import softmax

EPSILON = 1e-6


def block(p, x, *, page, keep=None, dropout=None, bidirectional=False, activation="gelu"):
    """x1 = x + attention(norm1(x)) and x1 + feed_forward(norm2(x1)), the scores biased by the block's own T5 table.

    Shapes: x (b, t, m), keep and dropout broadcast to (b, h, t, t), returns (b, t, m).
    """
    bias = t5_bias(p.position.table, x.shape[1], x.shape[1], bidirectional=bidirectional)
    attention = partial(multi_head, page=page, bias=bias, keep=keep, dropout=dropout)
    return residual_block(p, x, attention, norm="pre", activation=activation, epsilon=EPSILON)


def transformer(p, x, *, page=softmax, causal=False, dropout=None, activation="gelu"):
    """y = norm(block_L(... block_1(x w + b))) readout.w + readout.b.

    Source: Attention as a Hypernetwork, appendix C and the authors' code: pre-norm blocks, a norm after the last one,
    T5 biases that are unidirectional even without a causal mask, one table per block, as many buckets as tokens.

    page     : as in `layer.multi_head`
    dropout  : None, or for each block an array that broadcasts to (b, h, t, t)

    Shapes
    ------
    x        : (b, t, i) numbers, or (b, t) integer tokens
    p        : embed.w (i, m)  embed.b (m), or for tokens embed.table (v, m)
               blocks[l].norm1.scale (m)  .norm1.shift (m)  .norm2 alike  .attention as in `layer.multi_head`
               blocks[l].position.table (h, w)  .feed_forward.w1 (m, f)  .b1 (f)  .w2 (f, m)  .b2 (m)
               norm.scale (m)  norm.shift (m)
               readout.w (m, o)  readout.b (o), or without readout.w the tied one, y_v = x . table_v / sqrt(m)
    returns  : (b, t, o)
    """
    x = embedding(p.embed.table, x) if np.asarray(x).ndim == 2 else affine(p.embed, x)
    steps = x.shape[1]
    keep = np.array([[j <= i for j in range(steps)] for i in range(steps)]) if causal else None
    for number, each in enumerate(p.blocks):
        factors = None if dropout is None else dropout[number]
        x = block(each, x, page=page, keep=keep, dropout=factors, activation=activation)
    return read_out(p, x, getattr(p.embed, "table", None), EPSILON)
