"""The network of the contextual retrieval task, written as the authors' code has it."""

import numpy as np

from . import feed_forward
from .arguments import exact
from .compositional import projected
from .layer import affine
from .ops import linear
from .softmax import softmax


def network(p, x, *, scoring=None, dropout=None):
    """y = decoder(concatenate(attention outputs, own value) W + b) with h = encoder(x), no object seeing itself.

    Source: Compositional Attention, appendix C.1 and the authors' code.

    scoring  : of compositional attention, or None for softmax attention

    Shapes
    ------
    x        : (b, t, i)
    p        : encoder.w1 (i, m) .b1 (m) .w2 (m, m) .b2 (m)   decoder.w1 (m, m) .b1 (m) .w2 (m, 1) .b2 (1)
               attention as in `layer.multi_head` or `compositional.layer`   own.wv (m, e) .bv (e) .wo (e, m), or no own
    returns  : (b, t, 1)
    """
    inner = p.attention
    h = feed_forward.layer(p.encoder, x, "relu")
    objects = range(h.shape[1])
    keep = np.array([[i != j for j in objects] for i in objects])
    if scoring is None:
        o = softmax(*(affine(inner, h, name) for name in "qkv"), keep=keep, dropout=dropout)
    else:
        o = projected(inner, h, scoring=scoring, keep=keep, dropout=dropout)
    wo = exact(inner.wo)
    joined, w = o.reshape(*o.shape[:2], -1), wo.reshape(-1, wo.shape[2])
    if hasattr(p, "own"):
        joined = np.concatenate([joined, affine(p.own, h, "v")], axis=-1)
        w = np.concatenate([w, exact(p.own.wo)])
    return feed_forward.layer(p.decoder, linear(joined, w, inner.bo), "relu")
