"""ESBN's tasks: all trials written down, (pictures, answer) for given objects; the network, a picture at a time."""

from functools import partial
from itertools import permutations, product

import numpy as np

from . import feed_forward, positions
from .block import block, normed
from .context_norm import context_norm
from .convolution import convolution
from .ops import relu
from .universal import attention


def same_different(objects):
    """Any two pictures: 0 for the same one, 1 for different ones."""
    for a, b in product(objects, repeat=2):
        yield (a, b), int(a != b)


def rmts(objects):
    """Any source pair, then a pair of each relation of objects that are not in it: which has the source's relation?"""
    for a, b in product(objects, repeat=2):
        others = [x for x in objects if x not in (a, b)]
        for same, c, d in permutations(others, 3):
            right, wrong = ((same, same), (c, d)) if a == b else ((c, d), (same, same))
            yield (a, b, *right, *wrong), 0
            yield (a, b, *wrong, *right), 1


def distribution_of_three(objects):
    """A row and two of another row of the same three; the third is to be found among the three and one other."""
    for row in permutations(objects, 3):
        for first, second, third in permutations(row):
            for other in objects:
                if other not in row:
                    for choices in permutations((*row, other)):
                        yield (*row, first, second, *choices), choices.index(third)


def identity_rules(objects):
    """Rows AAA, ABA or ABB, begun again with other objects, and four choices that hold all objects shown."""
    for choices in permutations(objects, 4):
        for a, b, c, d in permutations(choices):
            yield (a, b, a, c, d, *choices), choices.index(c)
            yield (a, b, b, c, d, *choices), choices.index(d)
        for a, c in permutations(choices, 2):
            yield (a, a, a, c, c, *choices), choices.index(c)


TASKS = {f.__name__: f for f in (same_different, rmts, distribution_of_three, identity_rules)}


def renamed(pictures):
    """The pictures called 0, 1, 2, ... in the order in which they first appear.

    >>> renamed((7, 3, 7, 9))
    (0, 1, 0, 2)
    """
    names = {}
    return tuple(names.setdefault(x, len(names)) for x in pictures)


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
            for conv in p.convs:
                image = relu(convolution(image, conv.k, conv.b, stride=2, padding=1))
            z.append(relu(feed_forward.layer(p.encoder, image.reshape(1, -1), "relu"))[0])
    z = np.array(z).reshape(*np.shape(place), -1)
    h = context_norm(z, p.context.scale, p.context.shift, segments)
    h = h + positions.sinusoidal(*h.shape[1:])
    h = block(p.block, h, partial(attention, scoring=scoring, dropout=dropout), norm="post")
    h = normed(p.norm, h)
    return feed_forward.layer(p.readout, sum(h[:, t] for t in range(h.shape[1])) / h.shape[1], "relu")
