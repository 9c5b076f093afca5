"""Weight-shared transformer: one block applied several times, pre-LN or post-LN, around any attention layer.

    pre     y = x + attention(LN1(x));    z = y + feed_forward(LN2(y))
    post    y = LN1(x + attention(x));    z = LN2(y + feed_forward(y))

Source: C, section 4 and released code; Dehghani et al. 2018.  Differs from the latter as C's code does: no halting and
no code for the step, positions are added once, at the input.  Gradients add up in the one `p.block`.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .. import ops, positions
from ..params import Parameter, check_integers
from ..xp import array_module
from .transformer import Block, BlockSaved, LayerNorm, Saved

TABLES = {"image": positions.image_table, "interleaved": positions.sinusoidal, "halves": positions.halves_table}


@lru_cache(maxsize=32)
def _table(xp, name, length, width, dtype):
    return xp.asarray(TABLES[name](length, width).astype(dtype))


@dataclass(frozen=True)
class PostBlock:
    """LN(x + attention(x)), then LN of it + feed_forward."""
    attention: Any
    feed_forward: Any
    epsilon: float = 1e-5

    def parameters(self):
        norm = LayerNorm(self.attention.width, self.epsilon).parameters()
        return {"attention": self.attention.parameters(), "norm1": norm,
                "feed_forward": self.feed_forward.parameters(), "norm2": norm}

    def forward(self, p, x, *, keep=None, dropout=None, read=None):
        """y (b, t, m) from x (b, t, m); with `read` only y[:, read] is computed.  Returns y and BlockSaved."""
        norm = LayerNorm(self.attention.width, self.epsilon)
        a, attention = self.attention.forward(p.attention, x, keep=keep, dropout=dropout, read=read)        # (1)
        a += x if read is None else x[:, read]                                                  # (2)
        n, norm1 = norm.forward(p.norm1, a)                                                     # (3)
        f, feed_forward = self.feed_forward.forward(p.feed_forward, n)                          # (4)
        f += n                                                                                  # (5)
        y, norm2 = norm.forward(p.norm2, f)                                                     # (6)
        return y, BlockSaved(norm1, attention, norm2, feed_forward, None, x.shape, read)

    def backward(self, p, saved, dy, grads):
        """dx (b, t, m); parameter gradients are added into `grads`."""
        norm = LayerNorm(self.attention.width, self.epsilon)
        df = norm.backward(p.norm2, saved.norm2, dy, grads.norm2)                               # (6)
        dn = self.feed_forward.backward(p.feed_forward, saved.feed_forward, df, grads.feed_forward)         # (4)
        dn += df                                                                                # (5)
        da = norm.backward(p.norm1, saved.norm1, dn, grads.norm1)                               # (3)
        dx = self.attention.backward(p.attention, saved.attention, da, grads.attention).x       # (1)
        if saved.read is None:
            dx += da                                                                            # (2)
        else:
            dx[:, saved.read] += da                                                             # (2)
        return dx


@dataclass(frozen=True)
class Universal:
    """Embedding, position table, the block `layers` times, a LayerNorm if wanted, read-out.

    norm       : "pre" (C: images, language) or "post" (SCAN, ESBN)
    table      : "none", "image" (C: image tasks), "interleaved" (ESBN, SCAN), "halves" (language)
    final_norm : a LayerNorm before the read-out (C: ESBN and language)
    """
    attention: Any
    feed_forward: Any
    layers: int
    inputs: int
    outputs: int = 1
    norm: str = "pre"
    table: str = "none"
    final_norm: bool = False
    epsilon: float = 1e-5

    def __post_init__(self):
        for name, allowed in ("norm", ("pre", "post")), ("table", ("none", *TABLES)):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; allowed: {', '.join(allowed)}")
        check_integers(vars(self), "layers", "inputs", "outputs")
        if self.table != "none":
            TABLES[self.table](1, self.attention.width)

    @property
    def block(self):
        """The block that is applied."""
        if self.norm == "pre":
            return Block(self.attention, self.feed_forward, epsilon=self.epsilon)
        return PostBlock(self.attention, self.feed_forward, self.epsilon)

    def parameters(self):
        m, i, o = self.attention.width, self.inputs, self.outputs
        names = {"embed": {"w": Parameter("im", (i, m), i, "weight"), "b": Parameter("m", (m,), i, "bias")},
                 "block": self.block.parameters()}
        if self.final_norm:
            names["norm"] = LayerNorm(m).parameters()
        return {**names, "readout": {"w": Parameter("mo", (m, o), m, "weight"), "b": Parameter("o", (o,), m, "bias")}}

    def forward(self, p, x, *, keep=None, dropout=None, read=None):
        """y (b, q, o) from x (b, t, i).  Returns y and Saved, whose `blocks` has one entry for each application.

        `dropout` is None or one array for each application; `read`, a slice of positions, gives y[:, read].
        """
        h = ops.linear(x, p.embed.w, p.embed.b)                                                 # (1)
        if self.table != "none":
            h += _table(array_module(h), self.table, *h.shape[1:], h.dtype.char.lower())        # (2)
        blocks = []
        for n in range(self.layers):                                                            # (3)
            h, saved = self.block.forward(p.block, h, keep=keep, dropout=None if dropout is None else dropout[n],
                                          read=read if n == self.layers - 1 else None)
            blocks.append(saved)
        norm = None
        if self.final_norm:
            h, norm = LayerNorm(h.shape[-1], self.epsilon).forward(p.norm, h)                   # (4)
        return ops.linear(h, p.readout.w, p.readout.b), Saved(x, tuple(blocks), norm, h, read)  # (5)

    def backward(self, p, saved, dy, grads):
        """dx (b, t, i); parameter gradients are added into `grads`, the block's once for each application."""
        dh, dw, db = ops.linear_backward(saved.h, p.readout.w, dy)                              # (5)
        grads.readout.w += dw
        grads.readout.b += db
        if self.final_norm:
            dh = LayerNorm(dh.shape[-1], self.epsilon).backward(p.norm, saved.norm, dh, grads.norm)         # (4)
        for each in reversed(saved.blocks):                                                     # (3)
            dh = self.block.backward(p.block, each, dh, grads.block)
        dx, dw, db = ops.linear_backward(saved.x, p.embed.w, dh)                                # (1)
        grads.embed.w += dw
        grads.embed.b += db
        return dx
