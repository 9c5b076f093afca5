"""The weight-shared transformer of Compositional Attention, whole."""

from functools import partial

from . import compositional, positions
from .block import block, normed
from .layer import affine, multi_head, part

TABLES = {"image": positions.image_table, "interleaved": positions.sinusoidal, "halves": positions.halves_table}


def attention(p, x, scoring, keep, dropout):
    """Compositional attention with a scoring, softmax attention where it is None."""
    if scoring is None:
        return multi_head(p, x, keep=keep, dropout=dropout)
    return compositional.layer(p, x, scoring=scoring, keep=keep, dropout=dropout)


def universal(p, x, *, layers, scoring=None, norm="pre", table="none", keep=None, dropout=None):
    """y = readout(block(... block(x w + b + table))), always the same block.

    Source: Compositional Attention, section 4, and the authors' code.

    norm     : pre, y = x + attention(norm1(x)) and y + feed_forward(norm2(y)); or
               post, y = norm1(x + attention(x)) and norm2(y + feed_forward(y)); every epsilon is 1e-5
    scoring  : of compositional attention; None is softmax attention

    Shapes
    ------
    x        : (b, t, i);  keep broadcasts to (b, s, t, t), dropout has one such array for each application
    p        : embed.w (i, m) .b (m)   block.norm1 .norm2 .attention .feed_forward   norm, or none   readout.w .b
    returns  : (b, t, o)
    """
    x = affine(part(p, "embed"), x)
    if table != "none":
        x = x + TABLES[table](*x.shape[1:])
    for number in range(layers):
        factors = None if dropout is None else dropout[number]
        x = block(part(p, "block"), x, partial(attention, scoring=scoring, keep=keep, dropout=factors), norm=norm)
    return affine(part(p, "readout"), normed(part(p, "norm"), x))
