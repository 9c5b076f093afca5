"""The loss of every token over a large vocabulary, without an array of batch x time x vocabulary.

    z[i, v] = scale h_i . table_v;      y_i = ln sum_v exp(z[i, v]) - z[i, target_i]
    dz[i, v] = (exp(z[i, v]) / sum - [v = target_i]) dy_i;      dh = scale dz table;      dtable = scale dz^T h

Some tokens at a time: a tile's scores are made, used, and forgotten; the backward makes them again: four matrix
products in all instead of three.  Source: R, C and H read out with the embedding's table; the scale is 1/sqrt(m) in
H's code, 1 in its text and in the others'.
Units: nats for each token, so that bits are y / ln 2 and the perplexity exp of their mean.
"""

from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..checks import check_integer
from ..losses import check_classes
from ..ops import rows_of
from ..xp import array_module, check_alike, fitted

__all__ = ["next_token", "next_token_backward"]


class Saved(NamedTuple):
    h: Any                     # (n, m), the tokens of all texts, one a row
    table: Any                 # (v, m)
    target: Any                # (n)
    top: Any                   # (n), max over v of z
    total: Any                 # (n), sum_v exp(z - top); exp(z - ln of the whole sum) would lose digits
    hit: Any                   # bool, like the targets: whether the target has the greatest score
    scale: float
    rows: int


def _tiles(saved):
    """For each tile: its rows, its scores, and where the targets stand in them, counted in the order of memory."""
    n, v = saved.h.shape[0], saved.table.shape[0]
    for start in range(0, n, saved.rows):
        tile = slice(start, min(start + saved.rows, n))
        z = saved.h[tile] @ saved.table.T
        if saved.scale != 1:
            z *= saved.scale
        yield tile, z, array_module(z).arange(0, z.size, v) + saved.target[tile]


def next_token(h, table, target, scale: float = 1.0, rows: int | None = None) -> tuple:
    """y[b, t] = -ln softmax_v(scale h . table_v)[target], `rows` tokens at a time.  Returns y and Saved.

    Shapes
    ------
    h       : b t m
    table   : v m
    target  : b t          (integers in 0 .. v - 1)
    returns : b t

    Unless `rows` is given, a tile has about two million scores, and 128 tokens at least.  Raises ValueError for rows
    below 1, h or a target of another shape and, in host memory, a target outside 0 .. v - 1 (a device is not waited
    for), TypeError for what is no array, for h and table of several dtypes, and for arrays of several modules.
    """
    xp, (v, n) = check_alike(h=h, table=table), (table.shape[0], prod(h.shape[:-1]))
    fitted(h, "h", (*h.shape[:-1], table.shape[1]))
    check_classes(target, h.shape[:-1], v, xp)
    rows = check_integer("rows", max(128, (1 << 21) // max(1, v)) if rows is None else rows)
    saved = Saved(rows_of(h), table, target.reshape(-1).astype(np.int64, copy=False), xp.empty(n, dtype=h.dtype),
                  xp.empty(n, dtype=h.dtype), xp.empty(target.shape, dtype=bool), scale, rows)
    y = xp.empty(target.shape, dtype=h.dtype)
    flat, hit = y.reshape(-1), saved.hit.reshape(-1)
    for tile, z, at in _tiles(saved):                                           # (1)
        top, mine = z.real.max(axis=-1), z.reshape(-1)[at]                      # (2)
        hit[tile] = mine.real == top
        z -= top[:, None]
        saved.top[tile], saved.total[tile] = top, xp.exp(z, out=z).sum(axis=-1)                 # (3)
        flat[tile] = xp.log(saved.total[tile]) - (mine - top)                   # (4) small losses keep their digits
    return y, saved


def next_token_backward(saved, dy) -> tuple:
    """dh (b, t, m) and dtable (v, m) from dy (b, t); each tile's scores are made again."""
    h, table, target, top, total, hit, scale, rows = saved
    xp, dy = check_alike(h=h, dy=fitted(dy, "dy", hit.shape)), dy.reshape(-1, 1)
    dh, dtable, slab = xp.empty_like(h), xp.zeros_like(table), max(1, (1 << 24) // max(1, table.shape[1]))
    for tile, z, at in _tiles(saved):                                           # (1) again
        z -= top[tile, None]
        xp.exp(z, out=z)                                                        # (3)
        z.reshape(-1)[at] -= total[tile]                                        # (4), (2)
        z *= dy[tile] * scale / total[tile, None]                               # (4), (3), (1)
        dh[tile] = z @ table                                                    # (1)
        for start in range(0, table.shape[0], slab):        # the product itself would be a second table
            part = slice(start, start + slab)
            dtable[part] += z[:, part].T @ h[tile]                              # (1)
    return dh.reshape(*hit.shape, h.shape[1]), dtable
