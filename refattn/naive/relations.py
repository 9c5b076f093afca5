"""The network of ESBN's tasks, written as the authors' code has it: every picture of every trial is encoded."""

from functools import partial

import numpy as np

from . import feed_forward, positions
from .block import block, normed
from .context_norm import context_norm
from .convolution import convolution
from .layer import part
from .ops import relu
from .universal import attention


def network(p, x, *, place, segments=1, scoring=None, dropout=None):
    """y = mlp(mean of LN(block(context_norm(relu(encoder(pictures))) + positions))), a picture at a time.

    Source: Compositional Attention, section 4.5, and the authors' code.

    scoring  : of compositional attention; None is softmax attention

    Shapes
    ------
    x        : (n, g, g, 1);  place (b, t), the picture of each place of each trial
    p        : convs[i].k .b   encoder, readout (w1, b1, w2, b2)   context (scale, shift)   block   norm
    returns  : (b, o)
    """
    z = []
    for row in np.asarray(place):
        for picture in row:
            image = np.asarray(x)[picture:picture + 1]
            for conv in part(p, "convs"):
                image = relu(convolution(image, part(conv, "k"), part(conv, "b"), stride=2, padding=1))
            z.append(relu(feed_forward.layer(part(p, "encoder"), image.reshape(1, -1), "relu"))[0])
    z = np.array(z).reshape(*np.shape(place), -1)
    context = part(p, "context")
    h = context_norm(z, part(context, "scale"), part(context, "shift"), segments)
    h = h + positions.sinusoidal(*h.shape[1:])
    h = block(part(p, "block"), h, partial(attention, scoring=scoring, keep=None, dropout=dropout), norm="post")
    h = normed(part(p, "norm"), h)
    return feed_forward.layer(part(p, "readout"), sum(h[:, t] for t in range(h.shape[1])) / h.shape[1], "relu")
