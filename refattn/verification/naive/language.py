"""Language models whole, by loops: causal blocks, or RegularGPT's levels, between a table and its transpose."""

from functools import partial

import numpy as np

from .arguments import exact
from .block import block, normed
from .layer import multi_head
from .next_token import next_token
from .ops import linear
from .positions import halves_table
from .regular_gpt import depth, embedded
from .sliding_dilated import layer as sliding


def language(p, x, *, target=None, layers=None, chunk=None, least=1, attention=multi_head, norm="pre",
             activation="gelu", halves=False, embedding_scale=False, scale=False, embedding_dropout=None, dropout=None,
             residual=None):
    """z_v = h . table_v, over sqrt(m) with `scale`, and with a target the loss -log softmax(z)_target of each token.

    layers    : how often p.block is applied; p.blocks, one after the other, if there are several
    chunk     : of RegularGPT: the blocks stand in levels, level l at dilation chunk^l, for max(t, least) tokens
    attention : a function (p, x, keep, dropout), as in `block.block`; not with chunk
    Shapes: x, target (b, t) integers; p.embed.table (v, m), p.positions.table (t, m) or none, p.readout.table or none,
    p.norm or none; embedding_dropout broadcasts to (b, t, m), dropout and residual to one entry for each application;
    returns (b, t, v), with a target (b, t).
    """
    h, steps = embedded(p, x, embedding_scale), np.shape(x)[1]
    if halves:
        h = h + halves_table(steps, h.shape[-1])
    if hasattr(p, "positions"):
        h = h + exact(p.positions.table)[:steps]
    if embedding_dropout is not None:
        h = h * embedding_dropout
    before = np.array([[j <= i for j in range(steps)] for i in range(steps)])
    blocks = (p.block,) * layers if hasattr(p, "block") else p.blocks
    levels = 1 if chunk is None else depth(max(steps, least), chunk)
    for number in range(levels * len(blocks)):
        look = partial(attention, keep=before)
        if chunk is not None:
            look = partial(sliding, dilation=chunk ** (number // len(blocks)))
        drop, factors = (None if x is None else x[number] for x in (dropout, residual))
        h = block(blocks[number % len(blocks)], h, partial(look, dropout=drop), norm=norm, activation=activation,
                  residual=factors)
    h = normed(getattr(p, "norm", None), h)
    table = (p.readout if hasattr(p, "readout") else p.embed).table
    factor = h.shape[-1] ** -0.5 if scale else 1.0
    if target is not None:
        return next_token(h, table, target, factor)
    return factor * linear(h, exact(table).T)
