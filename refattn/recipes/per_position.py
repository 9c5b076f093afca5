"""Protocol "per_position" of the regular languages: members only, two sigmoids at every position, all must be right.

Three sets of different strings are drawn once: lengths 2 .. train_length, of which `strings` are trained on and the
rest is split train; train_length + 1 .. max_length, split longer; max_length .. far, split far.  The loss is the mean
square error of sigmoids over all positions inside the strings; a string counts as right if every one of its sigmoids
is on the right side of 1/2.  Models see a position's past only: dense form, and a causal mask for Transformers.
Source: Bhattamishra et al. 2020 and the authors' code: 10,000 strings, 500 of each set asked about, batches
of 32, 25 epochs, lengths 2 .. 50, 51 .. 100, 100 .. 150.
Differs: the models are those of R; Adam at 0.0005 (theirs: RMSprop at 0.005, among others that were tried); batches are
drawn with replacement, not epoch by epoch; the last parameters are asked, not the best of all epochs.  Strings of D_n
may repeat (tasks/per_position.py says why), so that split train of D_n has strings that were trained on.
"""

from typing import NamedTuple

import numpy as np

from ..tasks.per_position import Strings, strings
from ..tasks.splits import SPLIT
from .published import Published

SETTINGS = {"batch": 32, "rate": 5e-4, "train_length": 50, "max_length": 100, "far": 150, "evaluation": 500}
PAPER = {"steps": 25 * 10_000 // 32}
PUBLISHED = Published("none", "Bhattamishra et al. 2020 trained other models. With protocol per_position an accuracy "
                      "is of strings right at every position, so many in each window, not per length", {}, {})


class Judged(NamedTuple):
    target: np.ndarray         # (b, t, 2)
    weight: np.ndarray         # (b, t), 0 after the end


def windows(recipe) -> dict:
    """{split: (shortest, longest)}."""
    return {"train": (2, recipe.train_length), "longer": (recipe.train_length + 1, recipe.max_length),
            "far": (recipe.max_length, recipe.far)}


def check(recipe) -> None:
    """Raises ValueError naming the field when a window of lengths is empty."""
    for name, least in ("train_length", 2), ("far", recipe.max_length):
        if getattr(recipe, name) < least:
            raise ValueError(f"{name} is {getattr(recipe, name)}, allowed with protocol per_position are numbers from "
                             f"{least} on")


def asked(recipe) -> int:
    """How many strings of each split there are."""
    return max(recipe.evaluation, recipe.probe)


def corpora(recipe) -> dict:
    """{split: Strings}; of train the first `strings` are trained on."""
    return {split: strings(np.random.default_rng((recipe.seed, SPLIT, number)), recipe.language,
                           asked(recipe) + (recipe.strings if split == "train" else 0), *window)
            for number, (split, window) in enumerate(windows(recipe).items())}


def sample(recipe, rng, split, size, start) -> Strings:
    """Strings drawn at random, as wide as the longest of them; or those from `start` on, which are asked about."""
    if start is None:
        chosen = rng.integers(recipe.strings if split == "train" else asked(recipe), size=size)
        width = int(recipe.corpora[split].weight[chosen].sum(axis=1).max())
    else:
        chosen, width = slice(start, start + size), windows(recipe)[split][1]
    return Strings(*(x[chosen, :width] for x in recipe.corpora[split]))


def batches(recipe, split, tasks):
    """(size, {"start": first string}) of each batch.  Raises ValueError for more tasks than there are strings."""
    if split not in recipe.SPLITS:
        raise ValueError(f"split is {split!r}, allowed are {', '.join(recipe.SPLITS)}")
    if tasks > asked(recipe):
        raise ValueError(f"tasks is {tasks:,}, allowed are numbers up to {asked(recipe):,}, of the strings drawn")
    first = recipe.strings if split == "train" else 0
    size = recipe.fitting(windows(recipe)[split][1])
    for start in range(0, tasks, size):
        yield min(size, tasks - start), {"start": first + start}


def accuracy(y, target, weight) -> float:
    """The fraction of strings with every sigmoid of every position on the right side of 1/2."""
    right = ((y >= 0) == (target > 0.5)).all(axis=-1)
    return float((right | (weight == 0)).all(axis=1).mean())
