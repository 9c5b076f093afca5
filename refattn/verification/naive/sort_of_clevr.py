"""Sort-of-CLEVR by loops: pictures pixel by pixel, and answers object by object."""

import math

RED_TO_YELLOW = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 156, 0), (128, 128, 128), (255, 255, 0)
WIDTHS = 1, 7, 9, 9, 9, 11, 9, 9, 9, 7, 1                           # of the rows of a circle


def pixel(centre, shape, x, y):
    """The colour at (x, y) of a picture of objects at these centres, shape 1 being a circle.

    >>> pixel([[10, 10], [20, 10]], [0, 1], 15, 10), pixel([[10, 10], [20, 10]], [0, 1], 15, 6)
    ((0, 255, 0), (255, 0, 0))
    """
    colour = 255, 255, 255
    for n, ((cx, cy), circle) in enumerate(zip(centre, shape, strict=True)):
        if abs(y - cy) <= 5 and 2 * abs(x - cx) < (WIDTHS[y - cy + 5] if circle else 11):
            colour = RED_TO_YELLOW[n]
    return colour


def angle(p, q, r):
    """The angle at q, in degrees, by the law of cosines; NaN where rounding leaves none."""
    a, b, c = math.dist(p, r), math.dist(p, q), math.dist(q, r)
    cosine = (b**2 + c**2 - a**2) / (2 * b * c)
    return math.degrees(math.acos(cosine)) if -1 <= cosine <= 1 else math.nan


def answer(centre, shape, bits, nearest="released"):
    """The answer in words to a question of 18 bits: yes, no, rectangle, circle or a count.

    Source: Compositional Attention, appendix C.2, and the authors' generator.
    """
    hot = [n for n, bit in enumerate(bits) if bit]
    a, rule = hot[0], tuple(n - 12 for n in hot[-2:])
    others = [n for n in range(6) if n != a]
    words = "rectangle", "circle"
    far = {n: (centre[n][0] - centre[a][0]) ** 2 + (centre[n][1] - centre[a][1]) ** 2 for n in others}
    if rule == (0, 3):
        return words[shape[a]]
    if rule in ((0, 4), (0, 5)):
        return "yes" if centre[a][rule[1] - 4] < 37.5 else "no"
    if rule == (1, 3):
        own = {} if nearest == "text" else {a: 999}
        each = {n: {**far, **own}[n] for n in sorted({**far, **own})}
        return words[shape[min(each, key=each.get)]]
    if rule == (1, 4):
        return words[shape[max(far, key=far.get)]]
    if rule == (1, 5):
        return str(sum(shape[n] == shape[a] for n in others))
    b = hot[1] - 6
    (ax, ay), (bx, by), rest = centre[a], centre[b], [centre[n] for n in others if n != b]
    if rule == (2, 3):
        return str(sum(min(ax, bx) <= x <= max(ax, bx) and min(ay, by) <= y <= max(ay, by) for x, y in rest))
    if rule == (2, 4):
        slope = (by - ay) / (bx - ax + 1e-10)
        return "yes" if any(abs(slope * x + (ay - slope * ax) - y) <= 12 for x, y in rest) else "no"
    found = 0
    for c in rest:
        angles = angle(centre[b], centre[a], c), angle(centre[a], centre[b], c), angle(centre[a], c, centre[b])
        found += 90 <= max(angles) < 180                # no number is greater than a first one that is NaN
    return str(found)
