"""Combinations of parts, divided into those to train on and those held out."""

import itertools

import numpy as np

SPLIT = 3                   # marks the random numbers of splits: default_rng((seed, SPLIT, attempt))
MOST_ATTEMPTS = 1_000


def subsets(parts, size):
    """All subsets of the parts with that size, (n, size) integers in increasing order.

    >>> subsets(range(3), 2).tolist()
    [[0, 1], [0, 2], [1, 2]]
    """
    return np.array(list(itertools.combinations(parts, size)), dtype=np.int64).reshape(-1, size)


def hold_out(items, fraction, seed, must_have=0):
    """(held_out, train): the items permuted by the seed, the first floor(n fraction), in float64, and the others.

    The permutation is drawn again until the training items contain `must_have` different parts.

    Shapes: items (n, size) integers, returns (n_1, size), (n - n_1, size).

    Raises: ValueError if that does not happen in 1,000 permutations.
    """
    count = int(len(items) * float(fraction))
    for attempt in range(MOST_ATTEMPTS):
        permuted = np.random.default_rng((seed, SPLIT, attempt)).permutation(items)
        if not must_have or len(np.unique(permuted[count:])) >= must_have:
            return permuted[:count], permuted[count:]
    raise ValueError(f"held_out is {fraction}, and {MOST_ATTEMPTS:,} random splits never left all {must_have} known "
                     f"terms to train on; allowed with cover_terms: smaller fractions")


def frozen(arrays):
    """The same dict or tuple of arrays, which nobody can write: one of them serves every caller."""
    for x in arrays.values() if isinstance(arrays, dict) else arrays:
        x.flags.writeable = False
    return arrays
