"""The weight-shared transformer of Compositional Attention, whole."""

from functools import partial

from . import compositional, positions
from .block import block, read_out
from .layer import affine, multi_head

TABLES = {"image": positions.image_table, "interleaved": positions.sinusoidal, "halves": positions.halves_table}


def attention(p, x, scoring, dropout=None):
    """Compositional attention with a scoring, softmax attention where it is None."""
    if scoring is None:
        return multi_head(p, x, dropout=dropout)
    return compositional.layer(p, x, scoring=scoring, dropout=dropout)


def stack(p, h, layers, scoring, norm="pre", **factors):
    """The block p.block applied `layers` times; dropout, residual, hidden have one array for each time, or are None."""
    for n in range(layers):
        now = {name: None if x is None else x[n] for name, x in factors.items()}
        look = partial(attention, scoring=scoring, dropout=now.pop("dropout", None))
        h = block(p.block, h, look, norm=norm, **now)
    return h


def universal(p, x, *, layers, scoring=None, norm="pre", table="none", dropout=None):
    """y = readout(block(... block(x w + b + table))), always the same block.

    Source: Compositional Attention, section 4, and the authors' code.

    norm     : pre, y = x + attention(norm1(x)) and y + feed_forward(norm2(y)); or
               post, y = norm1(x + attention(x)) and norm2(y + feed_forward(y)); every epsilon is 1e-5
    scoring  : of compositional attention; None is softmax attention

    Shapes
    ------
    x        : (b, t, i);  dropout has one array that broadcasts to (b, s, t, t) for each application
    p        : embed.w (i, m) .b (m)   block.norm1 .norm2 .attention .feed_forward   norm, or none   readout.w .b
    returns  : (b, t, o)
    """
    x = affine(p.embed, x)
    if table != "none":
        x = x + TABLES[table](*x.shape[1:])
    return read_out(p, stack(p, x, layers, scoring, norm, dropout=dropout))
