"""RegularGPT, whole: at every position, and as the tree that the authors' code computes."""

from functools import partial

import numpy as np

from .arguments import exact
from .block import block, read_out
from .ops import embedding
from .sliding_dilated import layer


def depth(length, chunk):
    """The least L >= 1 with chunk^L >= length.

    >>> depth(1, 2), depth(4, 2), depth(5, 2)
    (1, 2, 3)
    """
    number = 1
    while chunk**number < length:
        number += 1
    return number


def embedded(p, x, scale):
    """x (b, t, m) of tokens, or x itself where it has features; times sqrt(m) with `scale`."""
    x = exact(x) if np.ndim(x) == 3 else embedding(p.embed.table, x)
    return x * np.sqrt(x.shape[-1]) if scale else x


def regular_gpt(p, x, *, chunk, norm="post", activation="relu", scale=True, levels=None):
    """y = read-out of the blocks 0 .. K - 1, at dilation chunk^l, for l = 0 .. depth - 1.

    Source: RegularGPT, section 3, and the authors' code for norm post, relu and the scale.

    Shapes
    ------
    x       : (b, t) integer tokens, or (b, t, m) embeddings
    p       : embed.table (v, m)  blocks[k].attention, .feed_forward, and .norm1, .norm2 unless norm is none
              norm, where there is a last one  readout.w (m, o)  .b (o)
    returns : (b, t, o)
    """
    h = embedded(p, x, scale)
    for level in range(depth(h.shape[1], chunk) if levels is None else levels):
        for each in p.blocks:
            h = block(each, h, partial(layer, dilation=chunk**level), norm=norm, activation=activation)
    return read_out(p, h)


def tree(p, x, *, chunk, norm="post", activation="relu", scale=True):
    """The last position as the authors' code has it: pads in front until chunks are whole, undilated blocks, the last
    of each chunk kept; as often as the depth says.  With one block this is `regular_gpt` at the last position.

    Source: the authors' code, norm post.  Differs for more than one block, which change the pads that stand in front,
    and for norm pre, which would normalise them.
    Shapes: as `regular_gpt`, returns (b, 1, o).
    """
    h = embedded(p, x, scale)
    for _ in range(depth(h.shape[1], chunk)):
        pads = -h.shape[1] % chunk
        pad = exact(p.blocks[0].attention.pad)
        h = np.concatenate([np.broadcast_to(pad, (len(h), pads, len(pad))), h], axis=1)
        for each in p.blocks:
            h = block(each, h, layer, norm=norm, activation=activation)
        h = h[:, chunk - 1::chunk]
    return read_out(p, h)
