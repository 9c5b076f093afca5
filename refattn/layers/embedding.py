"""Into the residual stream and out of it: embedding of tokens, read-out.

    h = E[x] or x W + b,  times sqrt(m) where scaled,  plus a table of positions where wanted
    y = h W + b  or  h E^T

Source: Vaswani et al. 2017, section 3.4 and 3.5; the papers' codes.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from .. import ops
from ..checks import check_choice, check_integer, check_integers, check_switch, check_switches
from ..params import Parameter, check_views
from ..xp import array_module, check_alike, fitted, read_only
from . import positions
from .protocol import check_tokens

__all__ = ["Embedding", "Readout"]

TABLES = {"image": positions.image_table, "interleaved": positions.sinusoidal, "halves": positions.halves_table}


@lru_cache(maxsize=32)
def position_table(xp, name: str, length: int, width: int, dtype: str):
    """The table of a name, (length, width), in the module `xp`."""
    return read_only(xp.asarray(TABLES[name](length, width).astype(dtype)))


def add_positions(h, name: str, start: int = 0):
    """h (b, t, m) plus the table of a name, in place; the first token stands at position `start`."""
    stop = start + h.shape[1]
    length = positions.room(stop) if start else stop
    h += position_table(array_module(h), name, length, h.shape[2], h.dtype.char.lower())[start:stop]
    return h


class EmbeddingSaved(NamedTuple):
    x: Any
    dropout: Any


@dataclass(frozen=True)
class Embedding:
    """h (b, t, m) from token ids (b, t), where a `vocabulary` is given, or from continuous tokens (b, t, i).

    scale : the embedding times sqrt(width)
    table : of positions, added after that: "none", "image", "interleaved", "halves"
    """
    width: int
    inputs: int | None = None
    vocabulary: int | None = None
    scale: bool = False
    table: str = "none"

    def __post_init__(self):
        if (self.inputs is None) == (self.vocabulary is None):
            raise ValueError(f"inputs (width of continuous tokens) is {self.inputs}, and vocabulary {self.vocabulary}; "
                             f"allowed: one of the two, None for the other")
        check_integers(vars(self), "width", "vocabulary" if self.inputs is None else "inputs")
        check_switch("scale", self.scale)
        check_choice("table", self.table, ("none", *TABLES))
        if self.table != "none":
            TABLES[self.table](1, self.width)

    def parameters(self):
        """table (v, m) of a vocabulary, else w (i, m) and b (m)."""
        m, i, v = self.width, self.inputs, self.vocabulary
        if i is None:
            return {"table": Parameter("vm", (v, m), m, "table")}
        return {"w": Parameter("im", (i, m), i, "weight"), "b": Parameter("m", (m,), i, "bias")}

    def forward(self, p, x, *, dropout=None, start=0) -> tuple[Any, EmbeddingSaved]:
        """h (b, t, m); ids whose embeddings are given, (b, t, m), are taken as they are.  Returns h and EmbeddingSaved.

        `dropout`, already divided by 1 - p, multiplies the sum, to which it broadcasts; `start` is the position of the
        first token.  Raises ValueError for a start below 0, and for ids or a dropout that do not fit, TypeError for
        dtypes that do not.
        """
        check_views(p)
        start = check_integer("start", start, 0)
        array_module(x)
        if self.vocabulary is None:
            check_tokens(self.inputs, x=x)
            h = ops.linear(x, p.w, p.b)                                                         # (1)
        elif x.ndim != 2 and x.shape[2:] != (self.width,):
            raise ValueError(f"x has shape {x.shape}; allowed: ids (b, t), or (b, t, m) with m = {self.width}")
        else:
            check_alike(table=p.table, x=x if x.ndim == 3 else None)
            h = ops.embedding(p.table, x) if x.ndim == 2 else x.copy()                          # (1)
        ops.check_dropout(h, dropout)
        if self.scale:
            h = h * self.width ** 0.5                                                           # (2)
        if self.table != "none":
            h = add_positions(h, self.table, start)                                             # (3)
        return ops.drop(h, dropout), EmbeddingSaved(x, dropout)                                 # (4)

    def backward(self, p, saved, dh, grads):
        """dx like x, (b, t, i) or (b, t, m), or None for token ids; parameter gradients are added into `grads`."""
        x, dropout = saved
        check_alike(**dict(p), dh=dh)
        dh = ops.drop(fitted(dh, "dh", (*x.shape[:2], self.width)), dropout)        # (4), (3): the table is constant
        if self.scale:
            dh = dh * self.width ** 0.5                                                         # (2)
        if self.vocabulary is None:
            dx, dw, db = ops.linear_backward(x, p.w, dh)                                        # (1)
            grads.w += dw
            grads.b += db
            return dx
        if x.ndim == 3:
            return dh.copy()                                                                    # (1)
        grads.table += ops.embedding_backward(p.table, x, dh)                                   # (1)
        return None


@dataclass(frozen=True)
class Readout:
    """y = h w + b; or, `tied`, y = h E^T m^-1/2 + b with the table E of an embedding.

    scale : the factor m^-1/2 of a tied one (H); without it 1
    bias  : by default where not tied; tied: none in H and C's language model, b in SCAN
    """
    width: int
    outputs: int
    tied: bool = False
    bias: bool | None = None
    scale: bool = True

    def __post_init__(self):
        vars(self)["bias"] = not self.tied if self.bias is None else self.bias
        check_integers(vars(self), "width", "outputs")
        check_switches(vars(self), "tied", "bias", "scale")

    @property
    def factor(self) -> float:
        """m^-1/2 where tied and scaled."""
        return self.width ** -0.5 if self.tied and self.scale else 1.0

    def parameters(self) -> dict:
        """w (m, o) unless tied, b (o) where there is one."""
        m, o = self.width, self.outputs
        names = {} if self.tied else {"w": Parameter("mo", (m, o), m, "weight")}
        return names | ({"b": Parameter("o", (o,), m, "bias")} if self.bias else {})

    def forward(self, p, h, table=None) -> tuple:
        """y (b, q, o) from h (b, q, m) and, if tied, the table (o, m), else unused.  Returns y and h."""
        check_views(p)
        if self.tied and table is None:
            raise ValueError("table is None, but tied is True; allowed: the table (o, m) of an embedding")
        if self.tied:
            check_alike(h=h, table=fitted(table, "table", (self.outputs, self.width)))
        y = ops.linear(h, table.T if self.tied else p.w)                                        # (1)
        if self.factor != 1:
            y *= self.factor                                                                    # (2)
        if self.bias:
            y += p.b                                                                            # (3)
        return y, h

    def backward(self, p, saved, dy, grads, table=None, dtable=None):
        """dh (b, q, m); parameter gradients are added into `grads`, the table's into `dtable`."""
        dh, dw, db = ops.linear_backward(saved, table.T if self.tied else p.w, dy)              # (1)
        if self.bias:
            grads.b += db                                                                       # (3)
        if not self.tied:
            grads.w += dw                                                                       # (1)
            return dh
        dtable += self.factor * dw.T                                                            # (2), (1)
        return dh * self.factor                                                                 # (2)
