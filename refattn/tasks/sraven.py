"""SRAVEN: symbolic Raven matrices.  Eight panels of M features each are given, and the ninth is asked for.

The three rows of a 3 x 3 matrix are made by the same rules, one for each feature; every rule makes three symbols out of
0 ... K - 1 for each row.  Then the features of each column are shuffled, by one permutation for each of the three
columns, so that the solver has to find out which features belong together.

    0 constant            x, x, x                   5 addition          x, y, x + y
    1 progression +1      x, x + 1, x + 2           6 subtraction       x, y, x - y
    2 progression +2      x, x + 2, x + 4           7 distribute three  three different symbols, drawn once, in an
    3 progression -1      x, x - 1, x - 2                               order of its own in each row
    4 progression -2      x, x - 2, x - 4                               (x, y uniform in each row; all modulo K)

A task is a multiset of M rules, and held-out tasks ask for new combinations of known rules.

Source: Attention as a Hypernetwork, section 4, appendix B, and the authors' code.
Differs: from the paper as the code does (constants run over 0 ... K - 1 instead of 1 ... K; the symbols of "distribute
three" are different).  From the code: other random numbers, except for `released` splits; training and evaluation do
not share their instances unless the caller's generators do.
Symbols: features is M, symbols is K.
Units: held_out is a fraction of the rule combinations.
"""

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..checks import check_choice, check_integer, check_number, check_numbers, check_switch
from .accuracies import feature_accuracy, panel_accuracy
from .released_splits import SRAVEN, check_released
from .splits import frozen, hold_out

RULES = ("constant", "progression +1", "progression +2", "progression -1", "progression -2", "addition", "subtraction",
         "distribute three")
STEP = np.array([0, 1, 2, -1, -2, 0, 0, 0])             # of the first five rules, from column to column
ADDITION, SUBTRACTION, THREE = 5, 6, 7
ORDERS = np.array(list(itertools.permutations(range(3))))
SPLITS = "all", "train", "held_out"
METRICS = {"panel_accuracy": panel_accuracy, "feature_accuracy": feature_accuracy}


class Batch(NamedTuple):
    tokens: np.ndarray      # (b, 9 M, K) float32: a one-hot vector for each feature of each panel, zero in the ninth
    target: np.ndarray      # (b, M) integers: the ninth panel as it is shown
    panels: np.ndarray      # (b, 3, 3, M) integers: all panels as they are shown, by row and column
    rules: np.ndarray       # (b, M) integers: rule of each feature before the shuffle, in non-decreasing order
    permutation: np.ndarray     # (b, 3, M) integers: feature j of column c shows what was feature permutation[c, j]


@dataclass(frozen=True)
class Sraven:
    """The settings of the task; samples come from `sample`, the rule combinations of a split from `combinations`.

    features : M, 1 to 20
    symbols  : K, 3 to 1,024: "distribute three" needs three different ones
    held_out : fraction of the rule combinations that is held out, 0 <= held_out < 1, rounded down
    seed     : of the split
    released : the authors' own splits, for 4 features, a quarter held out and the seeds 0, 1, 2, 2024

    Raises: ValueError naming the field, what was given and what is allowed.

    >>> task = Sraven()
    >>> [len(task.combinations(split)) for split in SPLITS]
    [330, 248, 82]
    >>> tokens, target, panels, rules, permutation = task.sample(np.random.default_rng(0), 128, "train")
    >>> tokens.shape, target.shape, panels.shape
    ((128, 36, 8), (128, 4), (128, 3, 3, 4))
    >>> bool((truth(tokens, rules, permutation) == target).all())        # every target can be recomputed
    True
    >>> Sraven(symbols=2)
    Traceback (most recent call last):
    ValueError: symbols is 2, but "distribute three" takes 3 different ones; allowed: whole numbers from 3 to 1,024
    """

    features: int = 4
    symbols: int = 8
    held_out: float = 0.25
    seed: int = 0
    released: bool = False

    def __post_init__(self):
        vars(self)["features"] = check_integer("features", self.features, 1)
        if (count := math.comb(len(RULES) + self.features - 1, self.features)) > 1_000_000:
            raise ValueError(f"features is {self.features}, which makes {count:,} rule combinations; allowed: at most "
                             f"1,000,000: 1 to 20 features")
        reason = '"distribute three" takes 3 different ones'
        vars(self)["symbols"] = check_integer("symbols", self.symbols, 3, 1024, reason)
        vars(self)["seed"] = check_integer("seed", self.seed, 0)
        check_number("held_out", self.held_out, below=1)
        check_switch("released", self.released)
        check_released(self, features=(4,), held_out=(0.25,), seed=SRAVEN)

    def combinations(self, split):
        """The rule combinations of a split, (n, M) integers, each row non-decreasing; read-only.

        >>> Sraven(features=1).combinations("all").ravel().tolist()
        [0, 1, 2, 3, 4, 5, 6, 7]
        """
        check_choice("split", split, SPLITS)
        return divide(self)[split]

    def split_of(self, rules):
        """Which of `train` and `held_out` has this combination, (M) integers in any order.  Raises ValueError."""
        if np.shape(rules) != (self.features,):
            raise ValueError(f"rules have shape {np.shape(rules)}; allowed: ({self.features},)")
        if np.asarray(rules).dtype.kind not in "iu":
            raise ValueError(f"rules are {rules}; allowed: whole numbers")
        check_numbers("rules", rules, len(RULES))
        return "train" if (self.combinations("train") == np.sort(rules)).all(axis=1).any() else "held_out"

    def sample(self, rng, batch, split="train", *, shuffled=True):
        """A Batch of instances; the rule combination is drawn uniformly, with replacement, from the split.

        Rules are drawn last: one generator state gives the same symbols and permutations in every split.  Without
        `shuffled` the same instances are shown with their features in order: `permutation` is the identity.

        Raises: ValueError for an unknown or empty split, or a batch below 1.
        """
        combinations = self.combinations(split)
        batch = check_integer("batch", batch, 1)
        if not len(combinations):
            raise ValueError(f"split {split!r} of {self} has no rule combination; allowed: splits that have some")
        m, k = self.features, self.symbols
        x, y = rng.integers(k, size=(2, batch, 3, m))
        three = different(rng, k, (batch, m))
        order = ORDERS[rng.integers(len(ORDERS), size=(batch, 3, m))]
        permutation = rng.permuted(np.broadcast_to(np.arange(m), (batch, 3, m)), axis=-1)
        rules = combinations[rng.integers(len(combinations), size=batch)]
        if not shuffled:
            permutation = np.broadcast_to(np.arange(m), (batch, 3, m)).copy()
        panels = np.take_along_axis(matrices(rules, x, y, three, order, k), permutation[:, None], axis=-1)
        return Batch(one_hot(panels, k), panels[:, 2, 2].copy(), panels, rules, permutation)


def different(rng, symbols, shape):
    """Three different symbols for each place, uniform over all ordered choices: (*shape, 3) integers."""
    a, b, c = (rng.integers(symbols - n, size=shape) for n in range(3))
    b += b >= a                                         # a is skipped, then both
    low, high = np.minimum(a, b), np.maximum(a, b)
    c += c >= low
    c += c >= high
    return np.stack([a, b, c], axis=-1)


def matrices(rules, x, y, three, order, symbols):
    """The panels before the shuffle, (b, 3, 3, M) by row and column, from what was drawn for them.

    Shapes: rules (b, M), x and y (b, 3, M), three (b, M, 3), order (b, 3, M, 3).
    """
    rules = rules[:, None]
    own = np.take_along_axis(np.broadcast_to(three[:, None], order.shape), order, axis=-1)
    first = np.where(rules == THREE, own[..., 0], x)
    second = np.where(rules == THREE, own[..., 1], np.where(rules < ADDITION, (x + STEP[rules]) % symbols, y))
    third = completion(rules, first, second, three.sum(axis=-1)[:, None], symbols)
    return np.stack([first, second, third], axis=2)


def completion(rules, first, second, total, symbols):
    """The third symbol of a row from the others; total is the sum of the symbols of "distribute three"."""
    sign = np.where(rules == ADDITION, 1, -1)
    third = np.where(rules < ADDITION, second + STEP[rules], first + sign * second) % symbols
    return np.where(rules == THREE, total - first - second, third)


def one_hot(panels, symbols):
    """(b, 9 M, K) float32 from panels (b, 3, 3, M): row by row, panel by panel, feature by feature; the ninth is 0."""
    batch, m = len(panels), panels.shape[-1]
    tokens = np.zeros((batch, 9 * m, symbols), dtype=np.float32)
    np.put_along_axis(tokens[:, :8 * m], panels.reshape(batch, 9 * m, 1)[:, :8 * m], 1, axis=-1)
    return tokens


def truth(tokens, rules, permutation):
    """The targets (b, M) from the given tokens, the rules and the permutations."""
    batch, length, symbols = tokens.shape
    shown = tokens.argmax(axis=-1).reshape(batch, 3, 3, length // 9)
    features = np.take_along_axis(shown, np.argsort(permutation, axis=-1)[:, None], axis=-1)
    first, second = features[:, 2, 0], features[:, 2, 1]
    third = completion(rules, first, second, features[:, 0].sum(axis=1), symbols)
    return np.take_along_axis(third, permutation[:, 2], axis=-1)


@lru_cache(maxsize=64)
def divide(task):
    """{split: its combinations}: all n of them permuted, the first floor(n held_out) held out."""
    every = np.array(list(itertools.combinations_with_replacement(range(len(RULES)), task.features)), dtype=np.int64)
    if task.released:
        held_out = SRAVEN[task.seed]
        train = every[~(every[:, None] == held_out).all(axis=-1).any(axis=-1)]
    else:
        held_out, train = hold_out(every, task.held_out, task.seed)
    return frozen(dict(zip(SPLITS, (every, train, held_out), strict=True)))
