"""Equilateral triangles: three clusters of dots, whose centres make an equilateral triangle or lie anywhere.

    equilateral   P3 = P1 + (P2 - P1) turned by 60 degrees, both coordinates truncated towards 0; drawn again until it
                  lies inside; P1 = P2 = P3 is not excluded
    anywhere      P3 uniform like P1 and P2: by chance it can be equilateral too, or P1 = P2

A cluster is four pairs of dots: one at most a pixel from the centre in x and y, and its mirror image through it.
Drawing the dots and rendering them are separate functions.
Source: C, section 4.3, and the authors' code; the task is that of Ahmad & Omohundro 2009.
Differs: as the code (label 1 is *not* equilateral; pixels are 0 or 255; fresh images for every epoch).  From the code:
other random numbers; the last batch of an epoch is a whole one.
Units: pixels, x to the right, y downwards.
"""

from dataclasses import dataclass
from math import cos, pi, sin
from typing import NamedTuple

import numpy as np

from ..checks import check_choice, check_integer

PAIRS, RADIUS = 4, 2                    # of dots in a cluster; a dot is all pixels with |dx| + |dy| <= RADIUS
MARGIN = RADIUS + 2                     # dots reach less far beyond the picture, and are cut off there
SPLITS = "train", "test"


class Batch(NamedTuple):
    image: np.ndarray          # (b, size, size, 1) uint8, 0 or 255
    target: np.ndarray         # (b) float32, 0 equilateral, 1 other
    corner: np.ndarray         # (b, 3, 2) integers, x and y of the centres
    dot: np.ndarray            # (b, 24, 2) integers


def third(one, two):
    """one + (two - one) turned by 60 degrees, truncated towards 0.

    The cosine is not 1/2 exactly: where a coordinate is a whole number, rounding may take a pixel off, as in the code.

    Shapes: one, two (b, 2), returns (b, 2) integers.

    >>> third(np.array([[10, 10]]), np.array([[30, 10]])).tolist()              # half of 20, and the height upwards
    [[20, -7]]
    """
    dx, dy = (two - one).T
    c, s = cos(pi / 3), sin(pi / 3)
    return np.stack([one[:, 0] + c * dx + s * dy, one[:, 1] - s * dx + c * dy], axis=1).astype(np.int64)


def draw_corners(rng, equilateral, size):
    """Centres (b, 3, 2) between 1 and size - 1, equilateral where (b) that says so."""
    corner = rng.integers(1, size, size=(len(equilateral), 3, 2))
    again = np.flatnonzero(equilateral)
    while again.size:
        corner[again, :2] = rng.integers(1, size, size=(again.size, 2, 2))
        corner[again, 2] = third(corner[again, 0], corner[again, 1])
        again = again[((corner[again, 2] < 1) | (corner[again, 2] >= size)).any(axis=-1)]
    return corner


def draw_dots(rng, corner):
    """Dots (b, 24, 2) around centres (b, 3, 2): four pairs that mirror each other through each centre."""
    offset = rng.integers(-1, 2, size=(len(corner), 3, PAIRS, 2))
    return (corner[:, :, None] + np.concatenate([offset, -offset], axis=2)).reshape(len(corner), -1, 2)


def render(dot, size):
    """(b, size, size, 1) uint8: 255 in every pixel of a dot, 0 elsewhere."""
    wide = size + 2 * MARGIN
    image = np.zeros((len(dot), wide, wide, 1), dtype=np.uint8)
    place = (np.arange(len(dot))[:, None] * wide + dot[..., 1] + MARGIN) * wide + dot[..., 0] + MARGIN
    flat, reach = image.reshape(-1), range(-RADIUS, RADIUS + 1)
    for shift in [y * wide + x for y in reach for x in reach if abs(x) + abs(y) <= RADIUS]:
        flat[place + shift] = 255
    return np.ascontiguousarray(image[:, MARGIN:-MARGIN, MARGIN:-MARGIN])


@dataclass(frozen=True)
class Triangles:
    """Images of size x size pixels, half of them equilateral on average; `size` is 8 to 1,024.

    >>> batch = Triangles(32).sample(np.random.default_rng(0), 4)
    >>> batch.image.shape, batch.dot.shape, batch.target.tolist()
    ((4, 32, 32, 1), (4, 24, 2), [1.0, 1.0, 1.0, 0.0])
    """

    size: int = 64

    def __post_init__(self):
        vars(self)["size"] = check_integer("size", self.size, 8, 1024)

    def sample(self, rng, batch, split="train"):
        """A Batch of fresh images; every split is drawn alike.  Raises ValueError for an unknown split, or no batch."""
        check_choice("split", split, SPLITS)
        batch = check_integer("batch", batch, 1)
        target = rng.integers(2, size=batch)
        corner = draw_corners(rng, target == 0, self.size)
        dot = draw_dots(rng, corner)
        return Batch(render(dot, self.size), target.astype(np.float32), corner, dot)
