"""The networks of Compositional Attention's image tasks, whole, as the authors' code has them."""

import numpy as np

from . import positions
from .arguments import exact
from .convolution import convolution
from .feed_forward import layer as feed_forward
from .layer import affine
from .universal import stack


def class_token(p, x, *, question=None, size, layers, scoring=None, residual=None, hidden=None):
    """y of one class token before the patches; a question, made as wide as a patch, stands beside every token.

    Source: Compositional Attention, appendix C.2 and C.3, and the authors' code.

    Shapes
    ------
    x        : (b, g, j, i) images, cut into patches of `size` pixels a side
    question : (b, q) or None
    p        : patch.k .b  token (1, e)  question.w .b  join.w .b (both with questions only)  block  readout.w .b
    returns  : (b, 1, o)
    """
    h = convolution(x, p.patch.k, p.patch.b, stride=size)
    h = h.reshape(len(h), -1, h.shape[-1])
    h = h + positions.image_table(*h.shape[1:])
    h = np.stack([np.concatenate([exact(p.token), each]) for each in h])
    if question is not None:
        asked = affine(p.question, question)
        h = np.stack([[np.concatenate([token, words]) for token in each] for each, words in zip(h, asked, strict=True)])
        h = affine(p.join, h)
    return affine(p.readout, stack(p, h, layers, scoring, residual=residual, hidden=hidden)[:, :1])


def task_tokens(p, x, *, task, size, layers, scoring=None, residual=None, hidden=None):
    """y of each image at the token of its task; tokens are patches that are learned.

    Source: Compositional Attention, appendix C.4, and the authors' code.

    Shapes
    ------
    x       : (b, g, j, i) images, cut into patches of `size` pixels a side, read row by row, channels fastest
    task    : (b, tasks), one-hot
    p       : encoder.w1 .b1 .w2 .b2  tokens (tasks, size size i)  block  heads.w1 .b1 .w2 .b2
    returns : (b, o)
    """
    x, task = exact(x), np.asarray(task)
    corners = [(g, j) for g in range(0, x.shape[1], size) for j in range(0, x.shape[2], size)]
    rows = np.stack([[each[g:g + size, j:j + size].ravel() for g, j in corners] for each in x])
    rows = np.stack([np.concatenate([exact(p.tokens), each]) for each in rows])
    h = feed_forward(p.encoder, rows, "relu")
    learned = task.shape[1]
    h[:, learned:] = h[:, learned:] + positions.image_table(len(corners), h.shape[2])
    h = stack(p, h, layers, scoring, residual=residual, hidden=hidden)
    own = np.stack([each[list(which).index(1)] for each, which in zip(h, task, strict=True)])
    return feed_forward(p.heads, own, "relu")
