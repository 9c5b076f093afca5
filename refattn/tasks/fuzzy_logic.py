"""Fuzzy logic: learn y = f(x_1, ..., x_L) from examples in the context, f a disjunction of K conjunctions.

A term is a conjunction of all L variables, each as it is (x_l) or negated (1 - x_l); conjunction is min, disjunction
is max.  A task is a set of K terms, so held-out tasks ask for new combinations of known parts.

Source: Attention as a Hypernetwork, section 3, and the authors' code.
Differs: from the paper as the code does (a quarter of the terms is set aside entirely; R2 is a mean of per-task
ratios; nothing makes every known term occur in training).  From the code: other random numbers, except for `released`
splits; the switch `cover_terms`; training and evaluation do not share their inputs unless the caller's generators do.
Symbols: variables is L, terms is K, length is N with the query, which is the last token.
Units: x and y in [0, 1]; length in tokens; held_out a fraction of the combinations.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ..checks import check_choice, check_integer, check_number, check_switches
from .released_splits import FUZZY_LOGIC, check_released
from .splits import frozen, hold_out, subsets

SPLITS = "train", "held_out", "unseen_terms"
LENGTHS = 16, 32, 64, 96                    # of the paper's sweep
FRACTIONS = 0.3, 0.5, 0.7                   # of the combinations held out, in the paper's sweep


class Batch(NamedTuple):
    tokens: np.ndarray      # (b, t, L + 1) float32: inputs and target side by side, the last target replaced by 0.0
    target: np.ndarray      # (b) float32: the target of the last token
    terms: np.ndarray       # (b, K) integers: the numbers of the terms of each task
    values: np.ndarray      # (b, t) float32: the targets of all tokens, the last one included


@dataclass(frozen=True)
class FuzzyLogic:
    """The settings of the task; samples come from `sample`, the tasks of a split from `combinations`.

    variables   : L, 2 to 10
    terms       : K, 1 to the number of known terms, at most 16, with at most 1,000,000 combinations
    length      : tokens, the query included, 2 to 65,536
    held_out    : fraction of the combinations of known terms that is held out, 0 <= held_out < 1, rounded down
    cover_terms : draw the split again until every known term occurs in training (the paper says so, the code does not)
    seed        : of the split
    released    : the authors' own splits, for 4 variables, 2 terms and the seeds 0, 1, 2, 2024

    Raises: ValueError naming the field, what was given and what is allowed.

    >>> task = FuzzyLogic()
    >>> [len(task.combinations(split)) for split in SPLITS]
    [20, 46, 6]
    >>> tokens, target, terms, values = task.sample(np.random.default_rng(0), 128, "train")
    >>> tokens.shape, target.shape, terms.shape, values.shape
    ((128, 32, 5), (128,), (128, 2), (128, 32))
    >>> bool((truth(tokens[..., :4], terms) == values).all())            # every target can be recomputed
    True
    >>> FuzzyLogic(held_out=1.5)
    Traceback (most recent call last):
    ValueError: held_out is 1.5; allowed: numbers from 0 up to, but not including, 1
    """

    variables: int = 4
    terms: int = 2
    length: int = 32
    held_out: float = 0.7
    cover_terms: bool = False
    seed: int = 0
    released: bool = False

    def __post_init__(self):
        vars(self)["variables"] = check_integer("variables", self.variables, 2, 10)
        vars(self)["terms"] = check_integer("terms", self.terms, 1, min(self.known_terms, 16))
        vars(self)["length"] = check_integer("length", self.length, 2, 65_536)
        vars(self)["seed"] = check_integer("seed", self.seed, 0)
        check_number("held_out", self.held_out, below=1)
        check_switches(vars(self), "cover_terms", "released")
        count = math.comb(self.known_terms, self.terms)
        if count > 1_000_000:
            raise ValueError(f"terms is {self.terms}, which makes {count:,} combinations of the {self.known_terms} "
                             f"known terms; allowed: at most 1,000,000")
        train = count - int(count * float(self.held_out))
        if self.cover_terms and train * self.terms < self.known_terms:
            raise ValueError(f"held_out is {self.held_out}, which leaves {train} combinations to train on; allowed "
                             f"with cover_terms: fractions that leave enough for {self.known_terms} known terms")
        check_released(self, variables=(4,), terms=(2,), seed=FUZZY_LOGIC, cover_terms=(False,))

    @property
    def known_terms(self):
        """Training may use the terms 0 to known_terms - 1, three quarters of all 2^L.

        >>> FuzzyLogic().known_terms
        12
        """
        return 2**self.variables - 2**self.variables // 4

    def combinations(self, split):
        """The tasks of a split, (n, K) integers, each row increasing; read-only.

        `train` and `held_out` divide the K-subsets of the known terms, `unseen_terms` has those of the other terms.

        >>> FuzzyLogic().combinations("unseen_terms").tolist()
        [[12, 13], [12, 14], [12, 15], [13, 14], [13, 15], [14, 15]]
        """
        check_choice("split", split, SPLITS)
        return divide(self)[split]

    def untrained_terms(self):
        """The known terms that are in no training combination, increasing.

        >>> FuzzyLogic(released=True, seed=2).untrained_terms().tolist()         # missing from the authors' third run
        [5, 6]
        """
        return np.setdiff1d(np.arange(self.known_terms), self.combinations("train"))

    def sample(self, rng, batch, split="train", *, context=None, query=None):
        """A Batch of tasks drawn uniformly, with replacement, from the split, with inputs uniform in [0, 1).

        The inputs are drawn first: one generator state gives the same inputs in every split.  For the analysis of
        latent codes `context` (t - 1, L) fixes the inputs of all tokens before the query and `query` (L) those of the
        query, the same for every task, without changing what is drawn for the rest.

        Raises: ValueError for an unknown or empty split, a batch below 1, or fixed inputs of another shape or range.

        >>> batch = FuzzyLogic().sample(np.random.default_rng(0), 2, "held_out", query=[0.25, 0.25, 0.25, 0.25])
        >>> batch.tokens[:, -1].tolist()
        [[0.25, 0.25, 0.25, 0.25, 0.0], [0.25, 0.25, 0.25, 0.25, 0.0]]
        >>> batch.target.tolist()
        [0.25, 0.25]
        """
        tasks = self.combinations(split)
        batch = check_integer("batch", batch, 1)
        if not len(tasks):
            raise ValueError(f"split {split!r} of {self} has no combinations; allowed: splits that have some")
        x = rng.random((batch, self.length, self.variables), dtype=np.float32)
        terms = tasks[rng.integers(len(tasks), size=batch)]
        if context is not None:
            x[:, :-1] = given("context", context, (self.length - 1, self.variables))
        if query is not None:
            x[:, -1] = given("query", query, (self.variables,))
        values = truth(x, terms)
        tokens = np.concatenate([x, values[..., None]], axis=-1)
        tokens[:, -1, -1] = 0.0
        return Batch(tokens, values[:, -1].copy(), terms, values)


def given(name, x, shape):
    """x in float32, or a ValueError unless it has that shape and lies in [0, 1]."""
    x = np.asarray(x, dtype=np.float32)
    if x.shape != shape:
        raise ValueError(f"{name} has shape {x.shape}; allowed: {shape}")
    if not ((x >= 0) & (x <= 1)).all():
        raise ValueError(f"{name} has entries from {x.min()} to {x.max()}; allowed: entries from 0 to 1")
    return x


def truth(x, terms):
    """y = max over the terms of min over the variables of x_l, or of 1 - x_l where the term negates it.

    A term is the number whose binary digits say which variables stay as they are, the first variable's digit first.
    With the digit s in {0, 1} the literal is |x_l - (1 - s)|, in float32 exactly for the inputs that `sample` draws.

    Shapes: x (b, t, L), terms (b, K), returns (b, t) in the dtype of x.

    Equation 9 has the terms 1111 and 0101, here at x = (0.875, 0.75, 0.25, 0.625):

    >>> truth(np.array([[[0.875, 0.75, 0.25, 0.625]]]), np.array([[0b1111, 0b0101]]))
    array([[0.25]])
    """
    place = np.arange(x.shape[-1])[::-1, None, None]
    negated = 1 - (terms.T >> place & 1).astype(x.dtype)                         # (L, K, b)
    literals = np.ascontiguousarray(np.moveaxis(x, -1, 0))[:, None] - negated[..., None]
    return np.abs(literals, out=literals).min(axis=0).max(axis=0)


@lru_cache(maxsize=64)
def divide(task):
    """{split: its combinations}: the n K-subsets of the known terms permuted, the first floor(n held_out) held out."""
    if task.released:
        permuted = FUZZY_LOGIC[task.seed]
        held_out, train = np.split(permuted, [int(len(permuted) * float(task.held_out))])
    else:
        known = subsets(range(task.known_terms), task.terms)
        must_have = task.known_terms if task.cover_terms else 0
        held_out, train = hold_out(known, task.held_out, task.seed, must_have)
    unseen = subsets(range(task.known_terms, 2**task.variables), task.terms)
    return frozen(dict(zip(SPLITS, (train, held_out, unseen), strict=True)))
