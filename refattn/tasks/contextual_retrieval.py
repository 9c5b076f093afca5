"""Contextual retrieval: for each object of a set, find the nearest others and report what the object itself prefers.

An object has S search features z, R retrieval features, and for each search a preference, one of the R retrievals as a
one-hot vector.  Search s of object i wins the object j /= i with the nearest z_s; the answer is

    y_i = sum_s alpha_s (retrieval feature number preference_s of object i, read off winner_s)        eq. (15)-(18)

Source: Compositional Attention, section 4.1, appendix C.1, table 5, and the authors' code.
Differs: from the paper as the code does (alpha is its fixed list, of which the first S entries are used; the tuples
held out follow from their numbers, see `division`).  From the code: other random numbers, in float32; `alpha_seed`
draws other weights; `share` is the code's 0.8 unless given.
Symbols: searches is S, retrievals is R, objects is N; a tuple is the preferences of one object, one for each search.
Units: features are standard normal; share is a fraction of the R^S tuples.
"""

from dataclasses import dataclass
from math import pi, sqrt
from typing import NamedTuple

import numpy as np

from ..checks import check_choice, check_integer, check_integers

ALPHA = (                                                        # the authors' list, from U(-1, 1)
    -0.71347752, -0.6062312, 0.66062073, -0.61213017, -0.82631877, 0.75908621, -0.36274866, 0.84383333, -0.37908235,
    0.46539368, 0.98675292, 0.20388434, -0.78718797, -0.74316581, 0.11539548, 0.35559215, 0.32584524, 0.58590426,
    0.95284985, -0.77999937, -0.660806, -0.35542737, 0.93532822, 0.75049373, -0.27825577)
SPLITS = "all", "train", "held_out"


class Batch(NamedTuple):
    tokens: np.ndarray      # (b, t, S + R + S R) float32: search features, retrieval features, one-hot preferences
    target: np.ndarray      # (b, t) float32
    preference: np.ndarray  # (b, t, S) integers: the retrieval that each search of each object asks for
    winner: np.ndarray      # (b, t, S) integers: the object that each search finds


@dataclass(frozen=True)
class ContextualRetrieval:
    """The settings of the task; samples come from `sample`, the tuples of a split from `tuples`.

    searches   : S, 1 to 64, at most 25 with the published alpha
    retrievals : R, 1 to 1,024; R^S at most 2^53
    objects    : N, 2 to 1,024
    share      : fraction of the tuples in split `train`, 0 < share < 1, rounded down; `held_out` has the others
    alpha_seed : None for the published alpha, or the seed of a fresh one

    Raises: ValueError naming the field, what was given and what is allowed.

    >>> task = ContextualRetrieval()
    >>> task.tuples("held_out").tolist()                                        # table 5
    [[2, 1], [2, 3], [3, 1], [3, 3]]
    >>> tokens, target, preference, winner = task.sample(np.random.default_rng(0), 256, "train")
    >>> tokens.shape, target.shape, preference.shape, winner.shape
    ((256, 10, 14), (256, 10), (256, 10, 2), (256, 10, 2))
    >>> bool((truth(tokens, task.alpha, task.retrievals) == target).all())      # every target can be recomputed
    True
    >>> ContextualRetrieval(searches=26)
    Traceback (most recent call last):
    ValueError: searches is 26; allowed with the published alpha: whole numbers from 1 to 25; or give an alpha_seed
    """

    searches: int = 2
    retrievals: int = 4
    objects: int = 10
    share: float = 0.8
    alpha_seed: int | None = None

    def __post_init__(self):
        for name, least, most in ("searches", 1, 64), ("retrievals", 1, 1024), ("objects", 2, 1024):
            vars(self)[name] = check_integer(name, getattr(self, name), least, most)
        if not (isinstance(self.share, (int, float, np.integer, np.floating)) and 0 < self.share < 1):
            raise ValueError(f"share is {self.share!r}; allowed: numbers above 0 and below 1")
        if self.alpha_seed is not None:
            check_integers(vars(self), "alpha_seed", least=0)
        elif self.searches > len(ALPHA):
            raise ValueError(f"searches is {self.searches}; allowed with the published alpha: whole numbers from 1 "
                             f"to {len(ALPHA)}; or give an alpha_seed")
        if self.retrievals**self.searches > 2**53:
            raise ValueError(f"retrievals is {self.retrievals}, which makes {self.retrievals}^{self.searches} tuples; "
                             f"allowed: at most 2^53")

    @property
    def width(self):
        """Features of a token, S + R + S R."""
        return self.searches + self.retrievals + self.searches * self.retrievals

    @property
    def alpha(self):
        """(S) float32: the weights of the searches."""
        if self.alpha_seed is None:
            return np.array(ALPHA[:self.searches], dtype=np.float32)
        return np.random.default_rng(self.alpha_seed).uniform(-1, 1, self.searches).astype(np.float32)

    @property
    def zero_predictor(self):
        """E |y|, the loss of answering 0, were the answers of the searches independent: sqrt(2 / pi) |alpha|."""
        return sqrt(2 / pi) * float(np.sqrt((self.alpha.astype(float) ** 2).sum()))

    def division(self):
        """(number of all tuples, of those in train).

        The tuples in lexicographic order, last search fastest, are numbered from 0; train takes the even numbers in
        order, then the odd ones, until it has floor(share R^S); held_out has the others.

        >>> [ContextualRetrieval(4, r).division() for r in (8, 16)]
        [(4096, 3276), (65536, 52428)]
        """
        count = self.retrievals**self.searches
        return count, int(float(self.share) * count)

    def numbers(self, split, index):
        """The number of each tuple from its index, 0 to size(split) - 1, in the split."""
        count, train = self.division()
        if split == "all":
            return index
        even = (count + 1) // 2
        place = index + (train if split == "held_out" else 0)
        return np.where(place < even, 2 * place, 2 * (place - even) + 1)

    def size(self, split):
        """How many tuples a split has.  Raises ValueError for an unknown or empty one."""
        check_choice("split", split, SPLITS)
        count, train = self.division()
        size = {"all": count, "train": train, "held_out": count - train}[split]
        if not size:
            raise ValueError(f"split {split!r} has no tuple: share {self.share} of {count} leaves {train} to train on; "
                             f"allowed: shares and retrievals that leave at least 1 on each side")
        return size

    def tuples(self, split):
        """The tuples of a split in lexicographic order, (n, S) integers.  Raises ValueError for more than a million.

        >>> ContextualRetrieval(2, 2).tuples("train").tolist()
        [[0, 0], [0, 1], [1, 0]]
        """
        if self.size(split) > 1_000_000:
            raise ValueError(f"split {split!r} has {self.size(split):,} tuples; allowed: at most 1,000,000")
        return self.digits(np.sort(self.numbers(split, np.arange(self.size(split)))))

    def digits(self, numbers):
        """(..., S): the preferences of the numbered tuples."""
        place = self.retrievals ** np.arange(self.searches)[::-1]
        return numbers[..., None] // place % self.retrievals

    def sample(self, rng, batch, split="all"):
        """A Batch of sets; each object's tuple is drawn uniformly, with replacement, from the split.

        The features are drawn first: one generator state gives the same features in every split.  Raises ValueError
        for an unknown or empty split, or a batch below 1.
        """
        size = self.size(split)
        batch = check_integer("batch", batch, 1)
        s, r = self.searches, self.retrievals
        tokens = np.zeros((batch, self.objects, self.width), dtype=np.float32)
        tokens[..., :s + r] = rng.standard_normal((batch, self.objects, s + r), dtype=np.float32)
        preference = self.digits(self.numbers(split, rng.integers(size, size=(batch, self.objects))))
        np.put_along_axis(tokens, s + r + np.arange(s) * r + preference, 1, axis=-1)
        winner = nearest(tokens[..., :s])
        return Batch(tokens, answers(tokens, self.alpha, preference, winner), preference, winner)


def nearest(z):
    """The j /= i with the smallest |z_js - z_is|, the first of equals.

    Shapes: z (b, t, S), returns (b, t, S) integers.

    >>> nearest(np.array([[[0.0], [2.0], [3.0]]])).tolist()
    [[[1], [2], [1]]]
    """
    z = np.ascontiguousarray(z.transpose(1, 0, 2))                              # objects outermost: long inner loops
    best = np.full(z.shape, np.inf, dtype=z.dtype)
    winner = np.zeros(z.shape, dtype=np.int64)
    for j in range(len(z)):
        distance = np.abs(z - z[j])
        distance[j] = np.inf
        nearer = distance < best
        np.copyto(best, distance, where=nearer)
        np.copyto(winner, j, where=nearer)
    return winner.transpose(1, 0, 2)


def answers(tokens, alpha, preference, winner):
    """y_i = sum_s alpha_s (retrieval feature preference_is of object winner_is), eq. (15) and (18).

    Shapes: tokens (b, t, width), alpha (S), preference and winner (b, t, S), returns (b, t).
    """
    values = tokens[np.arange(len(tokens))[:, None, None], winner, len(alpha) + preference]
    return (values * alpha).sum(axis=-1)


def truth(tokens, alpha, retrievals):
    """The targets (b, t) from the tokens alone: preferences and winners are read off them."""
    s = len(alpha)
    preference = tokens[..., s + retrievals:].reshape(*tokens.shape[:2], s, retrievals).argmax(axis=-1)
    return answers(tokens, alpha, preference, nearest(tokens[..., :s]))
