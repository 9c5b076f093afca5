"""What an instance of SRAVEN can have been: every rule for every track, and every way to join tracks to a matrix.

A **track** (i, j, k) takes feature i of the first column, j of the second and k of the third to be one feature.  A
**hypothesis** is a rule that fits the eight given cells of a track, and what it says about the ninth.  A matrix is
explained by M hypotheses whose tracks use every feature of every column once: a perfect 3-dimensional matching.  The
naive search visits (M!)^3 permutations; here features of the third column are taken in turn, and what has been used of
the other two is all that is remembered, so that equal partial explanations are counted once, for all instances at once.

Source: Attention as a Hypernetwork, appendix B.2, and the authors' code (rule by rule the same, see `hypotheses`).
"""

from typing import NamedTuple

import numpy as np

from .sraven import ADDITION, STEP, SUBTRACTION, THREE


class Hypotheses(NamedTuple):
    """One entry for each rule that fits a track, ordered by k, then by instance."""
    instance: np.ndarray
    i: np.ndarray
    j: np.ndarray
    k: np.ndarray
    rule: np.ndarray
    answer: np.ndarray


def hypotheses(panels, symbols, strict=True) -> Hypotheses:
    """Every rule that fits the eight given cells of every track; panels (b, 3, 3, M), of which the ninth is not read.

    Strictly, "distribute three" has three different symbols and none of them twice in the last row, as `Sraven` makes
    it.  The authors' test for ambiguity takes any symbols in the first two rows, if both rows have the same, and
    answers with the smallest of them that is least often in the last row: `strict` False.
    """
    x, y, z = given_cells(panels)
    found = [*steps_and_sums(x, y, z, symbols), (THREE, *distribute_three(x, y, z, strict))]
    return gathered(found, panels.shape)


def third_row(panels, symbols) -> Hypotheses:
    """The same from the two given panels of the last row alone, which no rule can be inferred from."""
    x, y, z = given_cells(panels[:, 2:])
    found = [*steps_and_sums(x, y, z, symbols)]
    found += [(THREE, (x[0] != y[0]) & (x[0] != symbol) & (y[0] != symbol), symbol) for symbol in range(symbols)]
    return gathered(found, panels.shape)


def given_cells(panels):
    """x, y and z, what the columns show, z without the last row: they broadcast to (row, i, j, k, instance)."""
    cells = np.moveaxis(np.asarray(panels, dtype=np.int16), 0, -1)              # (row, column, feature, instance)
    return cells[:, 0, :, None, None], cells[:, 1, None, :, None], cells[:-1, 2, None, None]


def steps_and_sums(x, y, z, symbols):
    """(rule, where it fits, its answer) for every rule but "distribute three"."""
    ahead, further = (y - x) % symbols, (z - y[:-1]) % symbols                  # from column to column
    for rule in range(ADDITION):
        step = STEP[rule] % symbols
        fits = (ahead == step).all(axis=0) & (further == step).all(axis=0)
        yield rule, fits, (y[-1] + step) % symbols
    for rule, sign in (ADDITION, 1), (SUBTRACTION, -1):
        result = (x + sign * y) % symbols
        yield rule, (result[:-1] == z).all(axis=0), result[-1]


def distribute_three(x, y, z, strict):
    """Where "distribute three" fits, and its answer.  Smallest, largest and sum say which three symbols a row has."""
    low, high = np.minimum(np.minimum(x[:2], y[:2]), z), np.maximum(np.maximum(x[:2], y[:2]), z)
    total = x[:2] + y[:2] + z
    same = (low[0] == low[1]) & (high[0] == high[1]) & (total[0] == total[1])
    low, high, middle = low[0], high[0], (total - low - high)[0]
    fits = same & ((x[2] == low) | (x[2] == middle) | (x[2] == high)) & (
        (y[2] == low) | (y[2] == middle) | (y[2] == high))
    if strict:
        return fits & (low < middle) & (middle < high) & (x[2] != y[2]), total[0] - x[2] - y[2]
    times = [(x[2] == symbol).astype(np.int8) + (y[2] == symbol) for symbol in (low, middle, high)]
    return fits, np.where((times[0] <= times[1]) & (times[0] <= times[2]), low,
                          np.where(times[1] <= times[2], middle, high))


def gathered(found, shape) -> Hypotheses:
    """Hypotheses from (rule, where it fits, its answer) for each rule, which broadcast to (i, j, k, instance)."""
    shape = (shape[-1],) * 3 + shape[:1]
    parts = []
    for rule, fits, answer in found:
        where = np.nonzero(np.broadcast_to(fits, shape))
        parts.append((*where, np.full(len(where[0]), rule), np.broadcast_to(answer, shape)[where]))
    i, j, k, instance, rule, answer = (np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True))
    order = np.lexsort((instance, k))
    return Hypotheses(*(column[order] for column in (instance, i, j, k, rule, answer)))


def matchings(found: Hypotheses, features, batch, code, weight):
    """Sums over all perfect matchings of the product of their hypotheses' weights, apart for every sum of their codes.

    code, weight : one for each hypothesis, integers and floats
    returns      : (instance, code, weight), one entry for each instance and sum of codes that occurs, in that order
    """
    taken = (1 << found.i) | (1 << features + found.j)          # a bit for each i, then for each j
    begins = np.searchsorted(found.k * batch + found.instance, np.arange(features * batch + 1))     # of k and instance
    place, total, product = np.arange(batch) << 2 * features, np.zeros(batch, dtype=np.int64), np.ones(batch)
    for k in range(features):                   # `place` is the instance, then a bit for each i and j that is used
        at = k * batch + (place >> 2 * features)
        first, count = begins[at], begins[at + 1] - begins[at]
        old = np.repeat(np.arange(len(place)), count)           # each explanation so far, once for each hypothesis,
        new = np.repeat(first - np.cumsum(count) + count, count) + np.arange(len(old))      # which are neighbours
        free = place[old] & taken[new] == 0
        old, new = old[free], new[free]
        place, total, product = merged(place[old] | taken[new], total[old] + code[new], product[old] * weight[new])
    return place >> 2 * features, total, product


def merged(place, code, weight):
    """Entries with equal place and code made one, their weights added; sorted by place, then code."""
    order = np.lexsort((code, place))
    place, code, weight = place[order], code[order], weight[order]
    first = np.flatnonzero(np.diff(place, prepend=-1) | np.diff(code, prepend=-1))
    return place[first], code[first], np.add.reduceat(weight, first) if len(first) else weight


def chunks(batch, features, cells=1 << 18):
    """Slices of the batch whose M^3 tracks stay in cache."""
    step = max(1, cells // features**3)
    return [slice(start, min(start + step, batch)) for start in range(0, max(batch, 1), step)]
