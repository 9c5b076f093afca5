"""Transformer-XL's relative attention, as a position layer of `MultiHead`.

    s[h, i, j] = ((q_i + u_h) . k_j + (q_i + v_h) . (R_{i-j} W_h)) / sqrt(d)
    R_p        = [sin(p w_0), sin(p w_1), ..., cos(p w_0), cos(p w_1), ...],   w_c = 10000^(-2c / m)

Source: Dai et al. 2019, section 3.3; the baseline of R, authors' code.  Differs, as R's code does: u and v belong to
the layer, not to the model; nothing is causal (R's text: Transformers are always causal), so i - j can be negative.
The first product is q + u for the page to take; the second is a bias, made from one product with each distance and a
shift of its rows (`by_key`), without an array of (query, key, head, feature).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..checks import check_choice, check_integers
from ..contract import contract
from ..layers.positions import check_at, room
from ..params import Parameter
from ..xp import array_module, read_only

__all__ = ["TransformerXL"]


class Saved(NamedTuple):
    q: Any                     # as it came, (b, q, h, d)
    table: Any                 # R, (w, m): one row for each distance, the greatest first
    relative: Any              # R W, (w, h, d)


@lru_cache(maxsize=32)
def _table(xp, most: int, width: int, dtype: str):
    """(2 most, m): R of the distances most - 1, ..., -most."""
    angle = np.arange(most - 1, -most - 1, -1)[:, None] * 10000.0 ** (-np.arange(0, width, 2) / width)
    return read_only(xp.asarray(np.concatenate([np.sin(angle), np.cos(angle)], axis=1).astype(dtype)))


def by_key(s, keys: int):
    """x[..., q, k] = s[..., q, k - q + (queries - 1)]: row q of s (..., q, queries + keys) shifted to its own keys."""
    *axes, queries, rows = s.shape
    flat = s.reshape(*axes, queries * rows)[..., queries - 1: queries - 1 + queries * (rows - 1)]
    return flat.reshape(*axes, queries, rows - 1)[..., :keys]


def by_distance(x):
    """The transpose of `by_key`: s (..., q, queries + keys), 0 where no key has the distance."""
    *axes, queries, keys = x.shape
    rows, xp = max(1, queries) + keys, array_module(x)
    flat = xp.zeros((*axes, queries * rows), dtype=x.dtype)
    shifted = flat[..., queries - 1: queries - 1 + queries * (rows - 1)]
    shifted.reshape(*axes, queries, rows - 1)[..., :keys] = x           # an axis cut in two is a view
    return flat.reshape(*axes, queries, rows)


@dataclass(frozen=True)
class TransformerXL:
    """Relative scores for the layer `MultiHead(width, heads, head_width)`; width even.  Raises ValueError otherwise."""
    width: int
    heads: int
    head_width: int

    def __post_init__(self):
        check_integers(vars(self), "width", "heads", "head_width")
        if self.width % 2:
            raise ValueError(f"width is {self.width}; allowed: even numbers, since sines and cosines come in pairs")

    def parameters(self) -> dict:
        """u (h, d) and v (h, d), added to the query; wr (m, h, d), the map of distances."""
        m, h, d = self.width, self.heads, self.head_width
        return {"u": Parameter("hd", (h, d), d, "vector"), "v": Parameter("hd", (h, d), d, "vector"),
                "wr": Parameter("mhd", (m, h, d), m, "weight")}

    def forward(self, p, q, k, at=None) -> tuple:
        """q + u, k as it is, the bias (b, h, q, k), and Saved; the queries stand at the range `at`, in steps of 1."""
        (xp, at), queries, keys = check_at(q, k, at), q.shape[1], k.shape[1]
        check_choice("step of the queries", at.step, (1,))
        rows = max(1, queries) + keys           # distances at.stop - 1, ..., at.stop - rows, of most - 1, ..., -most
        most = room(max(at.stop, rows - at.stop))
        table = _table(xp, most, self.width, q.dtype.char.lower())[most - at.stop:][:rows]
        relative = ops.linear(table, p.wr)                                              # (1)
        s = contract("bqhd,whd->bhqw", (q + p.v) * q.shape[-1] ** -0.5, relative)       # (2)
        return q + p.u, k, by_key(s, keys), Saved(q, table, relative)                   # (3)

    def backward(self, p, saved, dq, dk, dbias, grads) -> tuple:
        """dq and dk of the inputs from those of the outputs; parameter gradients are added into `grads`."""
        q, table, relative = saved
        grads.u += dq.sum(axis=(0, 1))                                                  # (3)
        ds = by_distance(dbias)                                                         # (3)
        ds *= q.shape[-1] ** -0.5                                                       # (2)
        dqv = contract("bhqw,whd->bqhd", ds, relative)                                  # (2)
        grads.v += dqv.sum(axis=(0, 1))                                                 # (2)
        drelative = contract("bhqw,bqhd->whd", ds, q + p.v)                             # (2)
        grads.wr += contract("wm,whd->mhd", table, drelative)                           # (1)
        return dq + dqv, dk
