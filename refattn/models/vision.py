"""Networks for images: patches as tokens, learned tokens before them, one block applied again and again.

    h = [class token; conv(x) + table];   h <- [h, question W^q + b] W + b;   y = read_out(stack(h) at the class token)
    h = encoder([task tokens; patches of x]) + [0; table];                    y = heads(stack(h) at the image's token)

The first is `ClassToken`, for Sort-of-CLEVR (with questions) and triangles (without); the second `TaskTokens`, for
several sets of images at a time.  Learned tokens have no position.
Source: C, section 4.2 to 4.4, appendix C.2 to C.4, and the authors' code.
Differs in form only.  The question's half of the map that joins it to every token is computed once for each image, and
so are task tokens for all images together; the heads of all tasks are one map, of which a loss looks at some columns.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from .. import ops
from ..checks import check_choice, check_integers
from ..contract import contract
from ..layers.convolution import Conv, check_image, image_of, patches
from ..layers.embedding import Embedding, Readout, add_positions
from ..layers.feed_forward import FeedForward
from ..layers.stack import Stack
from ..params import Parameter
from ..xp import array_module, check_alike, fitted

__all__ = ["ClassToken", "TaskTokens"]


def with_tokens(tokens, h):
    """(b, n + t, m): the tokens (n, m) before every h (b, t, m)."""
    xp = array_module(tokens, h)
    return xp.concatenate([xp.broadcast_to(tokens, (h.shape[0], *tokens.shape)), h], axis=1)


def _need(name, value, expected):
    if (value is None) != (expected is None):
        raise ValueError(f"{name} is {'None' if value is None else 'given'}; allowed: {expected}")
    fitted(value, name, expected)


class Saved(NamedTuple):
    patch: Any
    tokens: Any                # (b, t, e), class token and patches, before the question
    question: Any              # (b, i) and, made of it, (b, e); None without questions
    stack: Any                 # `.blocks` has what each application saved
    h: Any                     # (b, 1, m), what the read-out sees
    pixels: bool               # whether the backward gives dx


@dataclass(frozen=True)
class ClassToken:
    """y (b, 1, o) from images (b, g, j, i) and, where `question` is its number of bits, questions (b, question).

    With questions the patches are half as wide as the stack.  Raises ValueError for widths that do not agree.
    """
    patch: Conv
    stack: Stack
    outputs: int
    question: int = 0

    def __post_init__(self):
        check_integers(vars(self), "outputs")
        check_integers(vars(self), "question", least=0)
        check_choice("cross of the stack's block", self.stack.block.cross, (None,))
        if self.patch.outputs * (2 if self.question else 1) != self.stack.width:
            raise ValueError(f"patches have width {self.patch.outputs}, the stack {self.stack.width}; "
                             f"allowed: {'half of it' if self.question else 'one width'}")

    @property
    def readout(self) -> Readout:
        """The map from the class token to the outputs."""
        return Readout(self.stack.width, self.outputs)

    def parameters(self) -> dict:
        """Those of `patch`, `token`, with questions `question` and `join`, of the stack, of `readout`."""
        m, e = self.stack.width, self.patch.outputs
        names = {"patch": self.patch.parameters(), "token": Parameter("tm", (1, e), e, "table")}
        if self.question:
            names |= {"question": Embedding(e, self.question).parameters(), "join": Readout(m, m).parameters()}
        return names | self.stack.parameters() | {"readout": self.readout.parameters()}

    def forward(self, p, x, *, question=None, pixels=True, **dropout):
        """y (b, 1, o); `dropout` is the stack's: residual and hidden; `pixels` asks for dx.  Returns y and Saved."""
        _need("question", question, (len(x), self.question) if self.question else None)
        h, patch = self.patch.forward(p.patch, x)                                               # (1)
        e = h.shape[3]
        tokens = h = with_tokens(p.token, add_positions(h.reshape(len(x), prod(h.shape[1:3]), e), "image"))  # (2)
        if self.question:
            check_alike(question=question, w=p.question.w)
            asked = ops.linear(question, p.question.w, p.question.b)                            # (3)
            h = ops.linear(tokens, p.join.w[:e])                                                # (4)
            h += ops.linear(asked, p.join.w[e:], p.join.b)[:, None]                             # (5)
            question = question, asked
        h, stack = self.stack.forward(p, h, read=slice(0, 1), **dropout)                        # (6)
        y, _ = self.readout.forward(p.readout, h)                                               # (7)
        return y, Saved(patch, tokens, question, stack, h, pixels)

    def backward(self, p, saved, dy, grads):
        """dx (b, g, j, i), or None without `pixels`; parameter gradients are added into `grads`."""
        dh = self.readout.backward(p.readout, saved.h, dy, grads.readout)                       # (7)
        dh = self.stack.backward(p, saved.stack, dh, grads).x                                   # (6)
        if self.question:
            (question, asked), e = saved.question, saved.tokens.shape[2]
            dasked, dw, db = ops.linear_backward(asked, p.join.w[e:], dh.sum(axis=1))           # (5)
            grads.join.w[e:] += dw
            grads.join.b += db
            dh, dw, _ = ops.linear_backward(saved.tokens, p.join.w[:e], dh)                     # (4)
            grads.join.w[:e] += dw
            _, dw, db = ops.linear_backward(question, p.question.w, dasked)                     # (3)
            grads.question.w += dw
            grads.question.b += db
        grads.token += dh[:, :1].sum(axis=0)                                                    # (2)
        dh = dh[:, 1:].reshape(saved.patch.patches.shape[:3] + dh.shape[2:])
        return self.patch.backward(p.patch, saved.patch, dh, grads.patch, pixels=saved.pixels)  # (1)


class TaskSaved(NamedTuple):
    shape: tuple               # of x
    task: Any
    encoder: Any               # of the patches
    encoder_of_tokens: Any
    stack: Any                 # `.blocks` has what each application saved
    h: Any                     # (b, tasks, m)
    heads: Any
    pixels: bool               # whether the backward gives dx


@dataclass(frozen=True)
class TaskTokens:
    """y (b, o), the heads of all tasks side by side, from images (b, g, j, channels) and one-hot tasks (b, tasks).

    size    : of a patch; the encoder is a relu MLP of the patch's numbers (row, column, channel)
    tokens  : live among patches, pass the encoder, stand before every image, all of them
    outputs : of all heads together; hidden: of the read-out, whose first map all tasks share
    """
    size: int
    channels: int
    stack: Stack
    tasks: int
    outputs: int
    hidden: int = 128

    def __post_init__(self):
        check_integers(vars(self), "size", "channels", "tasks", "outputs", "hidden")
        check_choice("cross of the stack's block", self.stack.block.cross, (None,))

    @property
    def encoder(self) -> FeedForward:
        """The MLP that makes a token of a patch or a task token, of the stack's width."""
        m = self.stack.width
        return FeedForward(self.size * self.size * self.channels, m, "relu", m)

    @property
    def heads(self) -> FeedForward:
        """The MLP from an image's task token to the outputs of all tasks."""
        return FeedForward(self.stack.width, self.hidden, "relu", self.outputs)

    def parameters(self) -> dict:
        """Those of `encoder`, `tokens`, of the stack, of `heads`."""
        i = self.encoder.width
        return {"encoder": self.encoder.parameters(), "tokens": Parameter("ti", (self.tasks, i), i, "table"),
                **self.stack.parameters(), "heads": self.heads.parameters()}

    def forward(self, p, x, *, task, pixels=True, **dropout):
        """y (b, o); `dropout` is the stack's: residual and hidden; `pixels` asks for dx.  Returns y and TaskSaved."""
        _need("task", task, (len(x), self.tasks))
        check_image(x, self.channels, tokens=p.tokens)
        check_alike(tokens=p.tokens, task=task)
        cut = patches(x, self.size, self.size)                                                  # (1)
        h, of_cut = self.encoder.forward(p.encoder, cut.reshape(len(x), prod(cut.shape[1:3]), p.tokens.shape[1]))  # (2)
        tokens, of_tokens = self.encoder.forward(p.encoder, p.tokens)                           # (3)
        h = with_tokens(tokens, add_positions(h, "image"))                                      # (4)
        h, stack = self.stack.forward(p, h, read=slice(0, self.tasks), **dropout)               # (5)
        y, heads = self.heads.forward(p.heads, contract("bq,bqm->bm", task, h))                 # (6)
        return y, TaskSaved(x.shape, task, of_cut, of_tokens, stack, h, heads, pixels)

    def backward(self, p, saved, dy, grads):
        """dx (b, g, j, i), or None without `pixels`; parameter gradients are added into `grads`."""
        down = self.heads.backward(p.heads, saved.heads, dy, grads.heads)                       # (6)
        dh = self.stack.backward(p, saved.stack, contract("bq,bm->bqm", saved.task, down), grads).x         # (5)
        dtokens = dh[:, :self.tasks].sum(axis=0)                                                # (4)
        grads.tokens += self.encoder.backward(p.encoder, saved.encoder_of_tokens, dtokens, grads.encoder)   # (3)
        drows = self.encoder.backward(p.encoder, saved.encoder, dh[:, self.tasks:], grads.encoder)          # (2)
        if not saved.pixels:
            return None
        (b, high, wide, i), size = saved.shape, self.size
        return image_of(drows.reshape(b, high // size, wide // size, size, size, i))            # (1)
