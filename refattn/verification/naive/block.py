"""One residual block around any attention, as Compositional Attention and RegularGPT have it; networks made of it."""

from functools import partial

import numpy as np

from .arguments import exact
from .feed_forward import layer as feed_forward
from .layer import affine, multi_head
from .ops import embedding, layer_norm, linear
from .positions import sinusoidal


def normed(p, x, epsilon=1e-5):
    """LayerNorm with the parameters p.scale, p.shift.  x as it is where p is None."""
    return x if p is None else layer_norm(x, p.scale, p.shift, epsilon)


def read_out(p, h, table=None, epsilon=1e-5):
    """norm(h) w + b with p.readout and p.norm, where there is one; without p.readout.w norm(h) . table_v / sqrt(m)."""
    h = normed(getattr(p, "norm", None), h, epsilon)
    if hasattr(p.readout, "w"):
        return affine(p.readout, h)
    table = exact(table)
    return linear(h, table.T) / np.sqrt(table.shape[1])


def block(p, x, attention, *, norm, activation="relu", cross=None, residual=None, hidden=None, epsilon=1e-5):
    """post: norm1(x + attention(x)), norm2(y + mlp(y));  pre: the norms inside the sums;  none: neither.

    With `cross`, cross(p.cross, y) is a sub-layer of the same kind between the two, and its norm is p.norm_cross.
    `residual` has an array for each sub-layer, by which its output is multiplied; `hidden` multiplies what is active in
    the feed-forward layer.

    Shapes: x (b, t, m), p.attention for attention(p.attention, x), p.feed_forward, and p.norm1, p.norm2 unless norm is
    none; returns (b, t, m).
    """
    mlp = partial(feed_forward, activation=activation, dropout=hidden)
    layers = [("attention", attention, "norm1"), ("cross", cross, "norm_cross"), ("feed_forward", mlp, "norm2")]
    for number, (name, layer, its_norm) in enumerate(each for each in layers if each[1] is not None):
        y = layer(getattr(p, name), normed(getattr(p, its_norm), x, epsilon) if norm == "pre" else x)
        x = x + (y if residual is None else y * np.broadcast_to(exact(residual[number]), y.shape))
        x = normed(getattr(p, its_norm), x, epsilon) if norm == "post" else x
    return x


def encoder_decoder(p, x, *, target, source_keep=None, encoder_norm="post", decoder_norm="post",
                    positions=False, source_dropout=None, target_dropout=None):
    """y of the next target token from the source and the target so far; softmax attention, relu, own blocks.

    Source: Attention Is All You Need, section 3.

    Shapes: x (b, s), the source, and target (b, t) integer tokens, source_keep (b, 1, 1, s), dropout (b, s, m) and
    (b, t, m); p.source.table, p.encoder.blocks, .norm where there is one, p.target.table (`positions`: sines and
    cosines are added), p.decoder alike, p.readout.w .b or a tied one; returns (b, t, o).
    """
    h = embedding(p.source.table, x) * exact(1 if source_dropout is None else source_dropout)
    for each in p.encoder.blocks:
        h = block(each, h, partial(multi_head, keep=source_keep), norm=encoder_norm)
    context = normed(getattr(p.encoder, "norm", None), h)
    steps = np.asarray(target).shape[1]
    before = np.array([[j <= i for j in range(steps)] for i in range(steps)])
    h = embedding(p.target.table, target)
    h = h + sinusoidal(*h.shape[1:]) if positions else h
    h = h * exact(1 if target_dropout is None else target_dropout)
    for each in p.decoder.blocks:
        h = block(each, h, partial(multi_head, keep=before), norm=decoder_norm,
                  cross=partial(multi_head, context=context, keep=source_keep))
    return read_out(p, normed(getattr(p.decoder, "norm", None), h), p.target.table)
