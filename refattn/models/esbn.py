"""The network of ESBN's tasks: every picture is encoded alone, then one block looks at the trial.

    z = relu(mlp(relu conv x 3 (picture)));   h = LN(block(context_norm(z) + positions));   y = mlp(mean over t of h)

Source: C, section 4.5, and the authors' code.  Differs: not from the code, which has the second LayerNorm and the relu
of z; features of a picture are (row, column, channel), a permutation of the first map's rows; a picture that stands
in a batch several times is encoded once, and its gradients are summed.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import ops
from ..checks import check_integers
from ..contract import agree
from ..layers.block import Block
from ..layers.context_norm import ContextNorm
from ..layers.convolution import Conv
from ..layers.embedding import Embedding, add_positions
from ..layers.feed_forward import FeedForward
from ..layers.stack import Stack
from ..xp import array_module, fitted

__all__ = ["RelationNetwork"]


class Saved(NamedTuple):
    convs: list                # (what the convolution saved, its output before the relu) of each of the three
    shape: tuple               # of the last one's output
    encoder: Any
    z: Any                     # (n, m) before the relu
    place: Any
    norm: Any                  # what the context normalisation saved
    stack: Any
    h: Any                     # (b, t, m)
    readout: Any
    pixels: bool               # whether the backward gives dx


@dataclass(frozen=True)
class RelationNetwork:
    """y (b, answers) from pictures (n, g, g, 1) and their places in trials (b, t), around any attention layer.

    segments : of the context normalisation
    hidden   : of the block's mlp; `features` that of encoder and read-out, `channels` of each convolution
    size     : rows and columns of a picture, a multiple of 8
    """
    attention: Any
    answers: int
    segments: int = 1
    hidden: int = 512
    features: int = 256
    channels: int = 32
    size: int = 32

    def __post_init__(self):
        check_integers(vars(self), "answers", "segments", "hidden", "features", "channels", "size")
        if self.size % 8:
            raise ValueError(f"size is {self.size}; allowed: multiples of 8: each of three convolutions halves it")
        Embedding(self.attention.width, 1, table="interleaved")             # knows which widths have positions

    @property
    def _parts(self):
        m, c, n = self.attention.width, self.channels, self.size // 8
        return ([Conv(1, c, 4, 2, 1), Conv(c, c, 4, 2, 1), Conv(c, c, 4, 2, 1)],
                FeedForward(n * n * c, self.features, "relu", m), ContextNorm(m, self.segments),
                Stack(Block(self.attention, FeedForward(m, self.hidden, "relu"), norm="post", epsilon=1e-5), 1, True,
                      final_norm=True), FeedForward(m, self.features, "relu", self.answers))

    def parameters(self) -> dict:
        """Those of `convs`, `encoder`, `context`, of the stack, of `readout`."""
        convs, encoder, norm, stack, readout = self._parts
        return {"convs": tuple(each.parameters() for each in convs), "encoder": encoder.parameters(),
                "context": norm.parameters(), **stack.parameters(), "readout": readout.parameters()}

    def forward(self, p, x, *, place, pixels=True, dropout=None):
        """y (b, answers) from x (n, g, g, 1) and `place` (b, t), indices of x; `pixels` asks for dx.

        `dropout` is that of the attention, already divided by 1 - p.  Returns y and Saved.  Raises ValueError for
        pictures of another size and places of other axes.
        """
        array_module(x, place)                              # lists have none
        agree(place=(place, "bt"))
        fitted(x, "x", (*x.shape[:1], self.size, self.size, 1))
        convs, encoder, context, stack, readout = self._parts
        kept = []
        for layer, own in zip(convs, p.convs, strict=True):
            a, saved = layer.forward(own, x)                                                    # (1)
            kept.append((saved, a))
            x = ops.relu(a)                                                                     # (2)
        z, encoded = encoder.forward(p.encoder, x.reshape(len(x), encoder.width))               # (3)
        h = ops.embedding(ops.relu(z), place)                                                   # (4)
        h, norm = context.forward(p.context, h)                                                 # (5)
        h = add_positions(h, "interleaved")
        h, blocks = stack.forward(p, h, dropout=None if dropout is None else [dropout])         # (6)
        y, saved = readout.forward(p.readout, h.mean(axis=1))                                   # (7)
        return y, Saved(kept, x.shape, encoded, z, place, norm, blocks, h, saved, pixels)

    def backward(self, p, saved, dy, grads):
        """dx (n, g, g, 1), or None without `pixels`; parameter gradients are added into `grads`."""
        convs, encoder, context, stack, readout = self._parts
        dmean = readout.backward(p.readout, saved.readout, dy, grads.readout)                   # (7)
        dh = dmean[:, None].repeat(t := saved.h.shape[1], axis=1) * (1 / t)                     # (7)
        dh = stack.backward(p, saved.stack, dh, grads).x                                        # (6)
        dh = context.backward(p.context, saved.norm, dh, grads.context)                         # (5)
        dz = ops.relu_backward(saved.z, ops.embedding_backward(saved.z, saved.place, dh))       # (4)
        dx = encoder.backward(p.encoder, saved.encoder, dz, grads.encoder).reshape(saved.shape)             # (3)
        for n, (kept, a) in reversed(list(enumerate(saved.convs))):
            da = ops.relu_backward(a, dx)                                                       # (2)
            dx = convs[n].backward(p.convs[n], kept, da, grads.convs[n], pixels=n > 0 or saved.pixels)          # (1)
        return dx
