"""A hundred pictures of 32 x 32 pixels, black on white, the same on every machine: the objects of ESBN's tasks.

A picture is the exclusive or of one to three primitives (ellipse, ring, filled box, outline, bar), each turned; it is
taken when at least 4 % of it is ink.  From this seed no two are alike: all squared distances are above 47.
Source: C, section 4.5; Webb et al. 2021, whose pictures are Unicode symbols.
Differs: fonts look different from version to version; these are drawn with whole numbers alone, so that no rounding
depends on a machine, from a generator whose numbers NumPy has frozen.
Symbols: u, v = a pixel's place along and across the primitive, in eighths of a pixel times the turn's length.
"""

from functools import cache
from zlib import crc32

import numpy as np

from .splits import frozen

SIZE, COUNT, SEED = 32, 100, 1
FINE = 4                                        # each pixel is the mean of 4 x 4 points
CHECKSUM = 1078569423


def primitive(rng, x, y):
    """Where (boolean, like x and y) a random primitive is; x and y are integers, eight for each pixel."""
    kind = rng.randint(5)
    centre = rng.randint(9 * 8, 23 * 8 + 1, size=2)
    a, b = rng.randint(4 * 8, 11 * 8 + 1, size=2)                   # radii
    stroke = rng.randint(10, 25)                                    # 1.25 to 3 pixels
    c, s = rng.randint(-12, 13, size=2)
    c = int(c) if c or s else 1
    length = c * c + s * s                                          # of the turn, squared
    x, y = x - centre[0], y - centre[1]
    u, v = c * x + s * y, c * y - s * x                             # turned, and longer by the root of `length`

    def ellipse(a, b):
        return u * u * (b * b) + v * v * (a * a) <= length * (a * a) * (b * b)

    def box(a, b):
        return (u * u <= length * a * a) & (v * v <= length * b * b)

    if kind == 0:
        return ellipse(a, b)
    if kind == 1:
        return ellipse(a, a) & ~ellipse(a - stroke, a - stroke)
    if kind == 2:
        return box(a, b)
    return box(a, b) & ~box(a - stroke, b - stroke) if kind == 3 else box(a, stroke)


@cache
def glyphs() -> np.ndarray:
    """(100, 32, 32) float32 from 0, ink, to 1, paper, in sixteenths.  Raises RuntimeError if they are other ones.

    >>> glyphs().shape, float(glyphs().min()), float(glyphs().max())
    ((100, 32, 32), 0.0, 1.0)
    """
    rng = np.random.RandomState(SEED)
    points = 2 * np.arange(SIZE * FINE) + 1                         # eighths of a pixel: the middle of each quarter
    x, y = points[None, :].astype(np.int64), points[:, None].astype(np.int64)
    found = np.zeros((0, SIZE, SIZE), dtype=np.int64)               # ink, 0 to 16
    while len(found) < COUNT:
        shape = np.zeros((SIZE * FINE, SIZE * FINE), dtype=bool)
        for _ in range(rng.randint(1, 4)):
            shape ^= primitive(rng, x, y)
        ink = shape.reshape(SIZE, FINE, SIZE, FINE).sum(axis=(1, 3))
        if (ink > FINE * FINE // 2).mean() >= 0.04:                 # of its pixels are dark
            found = np.concatenate([found, ink[None]])
    if (checksum := crc32(found.astype(np.uint8).tobytes())) != CHECKSUM:
        raise RuntimeError(f"the pictures have the checksum {checksum}, not {CHECKSUM}")
    return frozen([(1 - found / FINE**2).astype(np.float32)])[0]
