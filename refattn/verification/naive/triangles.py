"""Triangles of dots by loops: pictures pixel by pixel, and what a batch must satisfy."""

import math
from collections import Counter


def lit(dots, x, y):
    """Whether the pixel (x, y) belongs to a dot.

    >>> [lit([[10, 10]], x, 10) for x in (7, 8, 10, 12, 13)], lit([[10, 10]], 9, 8)
    ([False, True, True, True, False], False)
    """
    return any(abs(x - u) + abs(y - v) <= 2 for u, v in dots)


def apex(one, two):
    """The third corner, not yet whole pixels: as far from the first as the second is, 60 degrees from its direction."""
    length = math.dist(one, two)
    turn = math.atan2(two[1] - one[1], two[0] - one[0]) - math.pi / 3
    return [one[0] + length * math.cos(turn), one[1] + length * math.sin(turn)]


def faults(batch):
    """What is wrong with a batch, as `tasks.triangles.Batch` has it: {what: how often}, empty for a right one."""
    found = Counter()
    size = batch.image.shape[1]
    for image, target, corner, dots in zip(*(x.tolist() for x in batch), strict=True):
        found["a centre lies outside"] += any(not 1 <= x < size for point in corner for x in point)
        if target == 0:
            exact = apex(*corner[:2])
            found["an equilateral third corner is elsewhere"] += any(
                not (-1e-9 <= value - x < 1 + 1e-9) for value, x in zip(exact, corner[2], strict=True))
        for n, centre in enumerate(corner):
            cluster = [tuple(dot) for dot in dots[8 * n:8 * n + 8]]
            mirrored = [(2 * centre[0] - x, 2 * centre[1] - y) for x, y in cluster]
            found["dots do not mirror each other"] += Counter(cluster) != Counter(mirrored)
            found["a dot is far from its centre"] += any(abs(x - centre[0]) > 1 or abs(y - centre[1]) > 1
                                                         for x, y in cluster)
        found["a pixel is wrong"] += any(image[y][x] != [255 * lit(dots, x, y)]
                                         for y in range(size) for x in range(size))
    return +found
