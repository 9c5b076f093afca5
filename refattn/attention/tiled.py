"""The same attention, key tile by key tile: no T x T array, O(T tile) memory beyond inputs and results.

Without a normaliser over keys the tiles simply add up, forward and backward (`tiles` of the row is "sum"):

    o = sum over tiles of page(q, k_tile, v_tile);  dq adds up, dk and dv are each tile's own    (linear, HYLA)

Softmax (`tiles` is "softmax") needs its denominator over all keys, so what has been summed is rescaled whenever the
running maximum m grows:

    m' = max(m, max_k s_k);  l' = exp(m - m') l + sum_k exp(s_k - m');  o' = exp(m - m') o + sum_k exp(s_k - m') v_k

and o / l at the end.  Source: Rabe & Staats 2021; Dao et al. 2022; for HYLA, H section 2.2: "no communication across
keys".  The backward repeats each tile's scores from q and k, and its weights from m and l.  Differs: m and l are
kept, not m + log l, whose rounding at large scores would reach the weights through exp.
"""

from typing import Any, NamedTuple

from .. import ops
from ..checks import check_choice, check_integer
from ..contract import contract
from ..xp import array_module
from . import VARIANTS, variant
from .shapes import check_inputs

__all__ = ["tiled", "tiled_backward"]


class Saved(NamedTuple):
    q: Any
    k: Any
    v: Any
    extras: tuple
    bias: Any
    keep: Any
    dropout: Any
    o: Any                     # softmax only: the returned array itself, not to be written into
    top: Any                   # softmax only: (b, h, q, 1), m after the last tile, 0 where nothing is kept
    total: Any                 # softmax only: (b, h, q, 1), l after the last tile, 1 where nothing is kept
    page: str
    tile: int


def _along(x, axes, keys):
    """The part of an array that belongs to a tile of keys: all of it without an axis k, or where that broadcasts."""
    _, k, behind = axes.partition("k")
    if x is None or not k or not x.ndim or x.shape[-1 - len(behind)] == 1:
        return x
    return x[(..., keys, *(slice(None) for _ in behind))]


def _tiles(saved):
    """(keys, arrays, options) of each tile: q, k, v and extras by name; bias, keep and dropout by name."""
    row, count = variant(saved.page), saved.k.shape[1]
    arrays = dict(zip(("q", "k", "v", *row.extras), (*saved[:3], *saved.extras), strict=True))
    options = {"bias": saved.bias, "keep": saved.keep, "dropout": saved.dropout}
    for start in range(0, count, saved.tile):
        keys = slice(start, min(start + saved.tile, count))
        yield keys, *({n: _along(x, row.axes[n], keys) for n, x in given.items()} for given in (arrays, options))


def tiled(q, k, v, *extras, page="hyla", tile=128, bias=None, keep=None, dropout=None):
    """o[b, q, h, e] of the named page, `tile` keys at a time.  Returns o and Saved.  Shapes as in the page.

    Raises ValueError for a tile that is no integer of at least 1, and for a variant whose row says that its tiles do
    not add up.
    """
    check_inputs(q, k, v, bias, keep, dropout)
    check_integer("tile", tile)
    row = variant(page)
    if not row.tiles:
        allowed = ", ".join(name for name, each in VARIANTS.items() if each.tiles)
        raise ValueError(f"page {page!r} cannot be tiled over keys; allowed: {allowed}")
    check_choice("number of extras", len(extras), (len(row.extras),))
    saved = Saved(q, k, v, extras, bias, keep, dropout, None, None, None, page, tile)
    if row.tiles == "softmax":
        return _softmax(saved)
    o = array_module(q).zeros(q.shape[:3] + v.shape[3:], dtype=q.dtype)
    for _, arrays, options in _tiles(saved):
        o = o + row.forward(*arrays.values(), **options)[0]
    return o, saved


def tiled_backward(saved, do):
    """dq, dk, dv, dbias, *dextras from do (b, q, h, e); each tile's forward is repeated."""
    row, xp = variant(saved.page), array_module(saved.q)
    names = "q", "k", "v", "bias", *row.extras
    gradients = [None if x is None else xp.zeros_like(x) for x in (*saved[:3], saved.bias, *saved.extras)]
    mean = None if saved.o is None else contract("bqhe,bqhe->bhq", do, saved.o)[..., None]      # sum_k a_k da_k
    for keys, arrays, options in _tiles(saved):
        parts = (row.backward(row.forward(*arrays.values(), **options)[1], do) if mean is None else
                 _softmax_tile_backward(saved, do, mean, arrays, options))
        for name, whole, part in zip(names, gradients, parts, strict=False):
            if whole is not None:
                view = _along(whole, row.axes[name], keys)
                view += part
    return tuple(gradients)


def _softmax(saved):
    q, v, xp = saved.q, saved.v, array_module(saved.q)
    b, t, h, _ = q.shape
    top = xp.full((b, h, t, 1), -xp.inf, dtype=q.real.dtype)                    # m
    total = xp.zeros((b, h, t, 1), dtype=q.dtype)                               # l
    o = xp.zeros((b, h, t, v.shape[3]), dtype=q.dtype)
    for _, arrays, options in _tiles(saved):
        (_, k, v), (bias, keep, dropout) = arrays.values(), options.values()
        s = ops.scores(q, k, bias)                                              # (1) eq. 1
        if keep is not None:
            s = xp.where(keep, s, -xp.inf)
        new = xp.maximum(top, s.real.max(axis=-1, keepdims=True))               # (2) m'
        finite = xp.where(new == -xp.inf, 0, new)           # where nothing is kept so far
        a, rescale, top = xp.exp(s - finite), xp.exp(top - finite), new
        total = rescale * total + a.sum(axis=-1, keepdims=True)                 # (3) l'
        o = rescale * o + contract("bhqk,bkhe->bhqe", ops.drop(a, dropout), v)  # (4) o'
    empty = top == -xp.inf
    total = xp.where(empty, 1, total)
    o = (o / total).transpose(0, 2, 1, 3)                                       # (5)
    return o, saved._replace(o=o, top=xp.where(empty, 0, top), total=total)


def _softmax_tile_backward(saved, do, mean, arrays, options):
    (q, k, v), (bias, keep, dropout), xp = arrays.values(), options.values(), array_module(saved.q)
    s = ops.scores(q, k, bias)                                                  # (1) again
    a = xp.exp((s if keep is None else xp.where(keep, s, -xp.inf)) - saved.top) / saved.total           # (2)-(5) again
    dv = contract("bhqk,bqhe->bkhe", ops.drop(a, dropout), do)                  # (4)
    da = ops.drop(contract("bqhe,bkhe->bhqk", do, v), dropout)                  # (4)
    ds = a * (da - mean)                                                        # (2), (3), (5)
    dq, dk, dbias = ops.scores_backward(q, k, bias, ds)                         # (1)
    return dq, dk, dv, dbias
