"""ESBN's four tasks: what is the relation between pictures that were never seen in training?

    same_different           [a, b]                                  are the two the same (0) or different (1)?
    rmts                     source pair, pair 0, pair 1             which pair has the source pair's relation?
    distribution_of_three    [a, b, c], the first two of a permutation of them, four choices       which one is missing?
    identity_rules           [A, A, A], [A, B, A] or [A, B, B], the first two of another such row, four choices

Source: C, section 4.5, appendix C.5 and the authors' code; Webb et al. 2021.
Differs: from the text as the code does (`same` pairs are repeated; three rules for identity_rules, where the text has
ABA; the unbalanced RMTS of many held-out objects, below).  From the code: other random numbers and other pictures.
A trial is a number: every task counts its trials of each kind, and unfolds numbers into pictures.  A data set is
numbers drawn without replacement: of all kinds alike, as far as there are (sampled; with no object held out, in both
splits together), or of all trials together once held-out objects are so many that the code lists all trials (listed,
from 85 on), where only a kind that is too rare is repeated.  So RMTS at 85 trains on 65,520 + 720,720 trials of which
10,000 are drawn: 8.3 % of its sources are the same picture twice.  same_different has more than 10,000 trials in a
split with 2 to 28 objects held out, and with 72 to 75: the code cuts only where both splits, cut, have fewer than the
whole test.  With none held out it is never cut: 18,810 and 990.
Symbols: n = objects that a split has.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import perm
from typing import NamedTuple

import numpy as np

from ..checks import check_choice, check_integers, check_numbers
from .glyphs import COUNT
from .splits import SPLIT

SPLITS = "train", "held_out"
LARGEST = 10_000               # trials of a split
LISTED = 85                    # held-out objects from which on all training trials are listed


class Batch(NamedTuple):
    pictures: np.ndarray       # (n) integers: the different pictures of the batch
    place: np.ndarray          # (b, t) integers: where in `pictures` each picture of a trial is
    target: np.ndarray         # (b) integers


class Trials(NamedTuple):
    pictures: np.ndarray       # (trials, t) integers, 0 to 99
    target: np.ndarray         # (trials) integers
    kind: np.ndarray           # (trials) integers: of the task's kinds


class Kind(NamedTuple):
    """One kind of trial: how many there are for n objects, and number -> (objects (trials, t), target)."""
    count: Callable            # n -> trials
    unfold: Callable           # (numbers, n, rng) -> objects, target


def of_the_rest(numbers, taken):
    """(b): the objects with these numbers among those that are not taken; `taken` is (b, size), all different in a row.

    >>> of_the_rest(np.arange(3), np.array([[3, 1]] * 3)).tolist()
    [0, 2, 4]
    """
    for each in np.sort(taken, axis=1).T:
        numbers = numbers + (numbers >= each)
    return numbers


def arrangements(numbers, n, size):
    """The numbered ordered choices of `size` different ones of 0 to n - 1: (numbers, size).

    >>> arrangements(np.arange(6), 3, 2).tolist()
    [[0, 1], [0, 2], [1, 0], [1, 2], [2, 0], [2, 1]]
    """
    chosen = np.zeros((len(numbers), 0), dtype=np.int64)
    for place in range(size):
        rest = perm(n - place - 1, size - place - 1)
        chosen = np.concatenate([chosen, of_the_rest(numbers // rest, chosen)[:, None]], axis=1)
        numbers = numbers % rest
    return chosen


def pair(same):
    """Two pictures, the same one or different ones."""
    second = 0 if same else 1                                       # which object it is, and the answer

    def unfold(numbers, n, rng):
        return arrangements(numbers, n, second + 1)[:, [0, second]], np.full(len(numbers), second)

    return Kind(lambda n: n if same else perm(n, 2), unfold)


def match(same):
    """RMTS: a source pair, and in either order a pair with its relation and one without."""
    size, source, right, wrong = (4, [0, 0], [1, 1], [2, 3]) if same else (5, [0, 1], [2, 3], [4, 4])

    def unfold(numbers, n, rng):
        target = numbers % 2
        objects = arrangements(numbers // 2, n, size)
        orders = np.array([[*source, *right, *wrong], [*source, *wrong, *right]])
        return np.take_along_axis(objects, orders[target], axis=1), target

    return Kind(lambda n: 2 * perm(n, size), unfold)


def three():
    """A row of three, another permutation of it without its last, and the three among four choices."""
    def unfold(numbers, n, rng):
        row, other = arrangements(numbers // 6, n, 3), arrangements(numbers % 6, 3, 3)
        second = np.take_along_axis(row, other, axis=1)
        fourth = of_the_rest(rng.integers(n - 3, size=len(numbers)), row)
        choices = rng.permuted(np.concatenate([row, fourth[:, None]], axis=1), axis=1)
        return np.concatenate([row, second[:, :2], choices], axis=1), (choices == second[:, 2:]).argmax(axis=1)

    return Kind(lambda n: 6 * perm(n, 3), unfold)


def rule(row):
    """An identity rule, such as ABA: row and half a second one in which C and D stand for A and B, then four choices.

    Trials are the ordered four choices and which of them A, B, C and D are; AAA has only A and, in the second row, C.
    """
    names = "AC" if row == "AAA" else "ABCD"
    shown = [names.index(x) for x in row + row.translate(str.maketrans("AB", "CD"))]

    def unfold(numbers, n, rng):
        choices = arrangements(numbers // perm(4, len(names)), n, 4)
        places = arrangements(numbers % perm(4, len(names)), 4, len(names))
        objects = np.take_along_axis(choices, places[:, shown[:5]], axis=1)
        return np.concatenate([objects, choices], axis=1), places[:, shown[5]]

    return Kind(lambda n: perm(n, 4) * perm(4, len(names)), unfold)


class Row(NamedTuple):
    kinds: tuple[Kind, ...]
    length: int                # pictures of a trial
    answers: int
    objects: int               # the fewest that trials need
    segments: int = 1          # parts of a trial that the authors normalise apart
    listed: bool = False       # whether all trials are listed, whatever is held out
    half: bool = False         # whether a rare kind is repeated up to half of the trials only


TASKS = {
    "same_different": Row((pair(True), pair(False)), 2, 2, 2, listed=True),
    "rmts": Row((match(True), match(False)), 6, 2, 5, 3, half=True),
    "distribution_of_three": Row((three(),), 9, 4, 4),
    "identity_rules": Row(tuple(map(rule, ("AAA", "ABA", "ABB"))), 9, 4, 4),
}


@dataclass(frozen=True)
class Esbn:
    """One of TASKS with `hold_out` of the hundred objects kept for the test; batches come from `take`.

    hold_out : the objects of split `held_out`, which `train` never sees; with 0 both have all objects, but no trial in
               common
    seed     : of the objects held out and the trials

    Raises: ValueError naming the field, what was given and what is allowed.

    >>> task = Esbn("rmts", 95)
    >>> [task.size(split) for split in SPLITS]
    [480, 10000]
    >>> pictures, place, target = task.take("train", [0, 1, 2])
    >>> (pictures[place] == task.trials("train").pictures[:3]).all().item()
    True
    >>> Esbn("rmts", 96)
    Traceback (most recent call last):
    ValueError: hold_out is 96; allowed for rmts: 0 and whole numbers from 5 to 95
    """

    task: str = "same_different"
    hold_out: int = 50
    seed: int = 0

    def __post_init__(self):
        check_choice("task", self.task, tuple(TASKS))
        check_integers(vars(self), "seed", least=0)
        least = self.row.objects
        whole = isinstance(self.hold_out, (int, np.integer)) and not isinstance(self.hold_out, bool)
        if not whole or not (self.hold_out == 0 or least <= self.hold_out <= COUNT - least):
            raise ValueError(f"hold_out is {self.hold_out!r}; allowed for {self.task}: 0 and whole numbers from "
                             f"{least} to {COUNT - least}")
        vars(self)["hold_out"] = int(self.hold_out)

    @property
    def row(self) -> Row:
        """What the table `TASKS` has of this task."""
        return TASKS[self.task]

    def trials(self, split) -> Trials:
        """All trials of a split, in random order.  Raises ValueError for an unknown split."""
        check_choice("split", split, SPLITS)
        return _trials(self)[split]

    def size(self, split) -> int:
        """How many trials a split has."""
        return len(self.trials(split).target)

    def take(self, split, chosen) -> Batch:
        """The trials of a split with these numbers, 0 to size(split) - 1, and the different pictures in them."""
        trials = self.trials(split)
        check_numbers("chosen", chosen, len(trials.target))
        shown = trials.pictures[chosen]
        pictures, place = np.unique(shown, return_inverse=True)
        return Batch(pictures, place.reshape(shown.shape), trials.target[chosen])


@cache
def _trials(task) -> dict:
    """{split: its Trials}: the objects divided at random, and trials of each part."""
    row, m = task.row, task.hold_out
    rng = np.random.default_rng((task.seed, SPLIT))
    objects = rng.permutation(COUNT)
    if m:
        train, held_out = _pools(row, COUNT - m, row.listed or m >= LISTED, rng), _pools(row, m, row.listed, rng)
        rest, test = (sum(map(len, pools)) for pools in (train, held_out))
        size = LARGEST if not row.listed or min(rest, LARGEST) + LARGEST < test else None   # both cut, against the test
        return {"train": _unfolded(row, train, objects[m:], rng, size),
                "held_out": _unfolded(row, held_out, objects[:m], rng, size)}
    if row.listed:                                                  # 95 % of each kind, then repeated
        kinds = [rng.permutation(kind.count(COUNT)) for kind in row.kinds]
        parts = [np.split(x, [round(0.95 * len(x))]) for x in kinds]
        return {split: _unfolded(row, _repeated(row, pools, rng), objects, rng, None)
                for split, pools in zip(SPLITS, zip(*parts, strict=True), strict=True)}
    both = _unfolded(row, _pools(row, COUNT, False, rng, 2 * LARGEST), objects, rng, 2 * LARGEST)
    return {"train": Trials(*(x[:LARGEST] for x in both)), "held_out": Trials(*(x[LARGEST:] for x in both))}


def _pools(row, n, listed, rng, size=LARGEST):
    """The numbers of the trials of each kind, from which at most `size` are taken."""
    counts = [kind.count(n) for kind in row.kinds]
    if listed:
        return _repeated(row, [np.arange(count) for count in counts], rng)
    each = -(-size // len(counts))
    return [rng.choice(count, min(count, each), replace=False) for count in counts]


def _repeated(row, pools, rng):
    """Pools that are as large as the largest, or half of LARGEST (rmts): what is missing is drawn again.

    A pool of same_different that is too small is drawn as a whole, with replacement: of few pairs one can be missing.
    """
    most = max(map(len, pools))
    wanted = min(most, LARGEST // 2) if row.half else most

    def filled(pool):
        missing = wanted - len(pool)
        if missing <= 0:
            return pool
        return rng.choice(pool, wanted) if row.listed else np.concatenate([pool, rng.choice(pool, missing)])

    return [filled(pool) for pool in pools]


def _unfolded(row, pools, objects, rng, size) -> Trials:
    """At most `size` of all numbered trials, or all for None, in random order."""
    kind = np.repeat(np.arange(len(pools)), [len(pool) for pool in pools])
    order = rng.permutation(len(kind))[:size]
    kind, numbers = kind[order], np.concatenate(pools)[order]
    shown, target = np.zeros((len(kind), row.length), dtype=np.int64), np.zeros(len(kind), dtype=np.int64)
    for k, each in enumerate(row.kinds):
        here = kind == k
        shown[here], target[here] = each.unfold(numbers[here], len(objects), rng)
    return Trials(objects[shown], target, kind)
