"""The same attention, key tile by key tile: no T x T array, O(T tile) memory beyond inputs and results.

Without a normaliser over keys the tiles simply add up, forward and backward:

    o = sum over tiles of page(q, k_tile, v_tile);  dq adds up, dk and dv are each tile's own    (linear, HYLA)

Softmax needs its denominator over all keys, so what has been summed is rescaled whenever the running maximum m grows:

    m' = max(m, max_k s_k);  l' = exp(m - m') l + sum_k exp(s_k - m');  o' = exp(m - m') o + sum_k exp(s_k - m') v_k

and o / l at the end.  Source: Rabe & Staats 2021; Dao et al. 2022; for HYLA, H section 2.2: "no communication across
keys".  The backward repeats each tile's scores from q, k and log l + m.
"""

from typing import Any, NamedTuple

from .. import ops
from ..contract import contract
from ..xp import array_module
from . import VARIANTS, variant
from .shapes import check_inputs


class Saved(NamedTuple):
    q: Any
    k: Any
    v: Any
    bias: Any
    keep: Any
    dropout: Any
    o: Any                     # softmax only
    log_total: Any             # softmax only: (b, h, q, 1), log sum_k exp(s_k), 0 where nothing is kept
    page: str
    tile: int


def _along(x, keys):
    """The part of a broadcasting array that belongs to a tile of keys."""
    return x if x is None or x.shape[-1] == 1 else x[..., keys]


def _tiles(saved):
    count = saved.k.shape[1]
    for start in range(0, count, saved.tile):
        keys = slice(start, min(start + saved.tile, count))
        yield keys, saved.k[:, keys], saved.v[:, keys], *(_along(x, keys) for x in saved[3:6])


def tiled(q, k, v, *, page="hyla", tile=128, bias=None, keep=None, dropout=None):
    """o[b, q, h, e] of the named page, `tile` keys at a time.  Returns o and Saved.  Shapes as in the page.

    Raises ValueError for a tile below 1, and for a variant that normalises over keys other than softmax itself.
    """
    check_inputs(q, k, v, bias, keep, dropout)
    if tile < 1:
        raise ValueError(f"tile is {tile}; at least 1 key is needed")
    if page != "softmax" and "softmax" in variant(page).knobs.normaliser or variant(page).extras:
        allowed = [n for n, row in VARIANTS.items() if "softmax" not in row.knobs.normaliser and not row.extras]
        raise ValueError(f"page {page!r} cannot be tiled over keys; allowed: softmax, {', '.join(allowed)}")
    saved = Saved(q, k, v, bias, keep, dropout, None, None, page, tile)
    if page == "softmax":
        return _softmax(saved)
    o = array_module(q).zeros(q.shape[:3] + v.shape[3:], dtype=q.dtype)
    for _, k_tile, v_tile, bias_tile, keep_tile, dropout_tile in _tiles(saved):
        o += variant(page).forward(q, k_tile, v_tile, bias=bias_tile, keep=keep_tile, dropout=dropout_tile)[0]
    return o, saved


def tiled_backward(saved, do):
    """dq, dk, dv, dbias from do (b, q, h, e); each tile's forward is repeated."""
    q, k, v, bias = saved[:4]
    xp = array_module(q)
    dq, dk, dv = xp.zeros_like(q), xp.empty_like(k), xp.empty_like(v)
    dbias = None if bias is None else xp.zeros_like(bias)
    one = _softmax_tile_backward(saved, do) if saved.page == "softmax" else _page_tile_backward(saved, do)
    for keys, k_tile, v_tile, bias_tile, keep_tile, dropout_tile in _tiles(saved):
        dq_tile, dk[:, keys], dv[:, keys], dbias_tile = one(k_tile, v_tile, bias_tile, keep_tile, dropout_tile)
        dq += dq_tile
        if bias is not None:
            part = _along(dbias, keys)
            part += dbias_tile
    return dq, dk, dv, dbias


def _page_tile_backward(saved, do):
    page = variant(saved.page)

    def one(k, v, bias, keep, dropout):
        return page.backward(page.forward(saved.q, k, v, bias=bias, keep=keep, dropout=dropout)[1], do)[:4]

    return one


def _softmax(saved):
    q, v, xp = saved.q, saved.v, array_module(saved.q)
    b, t, h, _ = q.shape
    top = xp.full((b, h, t, 1), -xp.inf, dtype=q.real.dtype)                    # m
    total = xp.zeros((b, h, t, 1), dtype=q.dtype)                               # l
    o = xp.zeros((b, h, t, v.shape[3]), dtype=q.dtype)
    for _, k, v, bias, keep, dropout in _tiles(saved):
        s = ops.scores(q, k, bias)                                              # (1) eq. 1
        if keep is not None:
            s = xp.where(keep, s, -xp.inf)
        new = xp.maximum(top, s.real.max(axis=-1, keepdims=True))               # (2) m'
        new = xp.where(new == -xp.inf, 0, new)              # nothing kept so far
        a = xp.exp(s - new)
        rescale = xp.exp(top - new)
        total = rescale * total + a.sum(axis=-1, keepdims=True)                 # (3) l'
        o = rescale * o + contract("bhqk,bkhe->bhqe", ops.drop(a, dropout), v)  # (4) o'
        top = xp.where(total == 0, -xp.inf, new)
    empty = total == 0
    total = xp.where(empty, 1, total)
    o = (o / total).transpose(0, 2, 1, 3)                                       # (5)
    return o, saved._replace(o=o, log_total=xp.where(empty, 0, top) + xp.log(total))


def _softmax_tile_backward(saved, do):
    xp = array_module(saved.q)
    mean = contract("bqhe,bqhe->bhq", do, saved.o)[..., None]                   # sum_k a_k da_k, without any a

    def one(k, v, bias, keep, dropout):
        s = ops.scores(saved.q, k, bias)                                        # (1) again
        a = xp.exp((s if keep is None else xp.where(keep, s, -xp.inf)) - saved.log_total)       # (2)-(5) again
        dv = contract("bhqk,bqhe->bkhe", ops.drop(a, dropout), do)              # (4)
        da = ops.drop(contract("bqhe,bkhe->bhqk", do, v), dropout)              # (4)
        ds = a * (da - mean)                                                    # (2), (3), (5)
        dq, dk, dbias = ops.scores_backward(saved.q, k, bias, ds)               # (1)
        return dq, dk, dv, dbias

    return one
