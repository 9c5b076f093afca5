"""Protocol "per_position" of the regular languages: members only, two sigmoids at every position, all must be right.

Three sets of different strings are drawn once: lengths 2 .. train_length, of which `strings` are trained on and the
rest is split train; train_length + 1 .. max_length, split longer; max_length .. far, split far.  The loss is the mean
square error of sigmoids over all positions inside the strings; a string counts as right if every one of its sigmoids
is on the right side of 1/2.  Models see a position's past only: dense form, and a causal mask for Transformers.
Source: Bhattamishra et al. 2020 and the authors' code: 10,000 strings, 500 of each set asked about, batches
of 32, 25 epochs, lengths 2 .. 50, 51 .. 100, 100 .. 150.
Differs: the models are those of R; Adam at 0.0005 (theirs: RMSprop at 0.005, among others that were tried), clipped to
norm 1 (theirs: not clipped); batches are drawn with replacement, not epoch by epoch; all steps are made, and the last
parameters are asked (theirs: until 0.999 of the validation are right, and the best of all epochs).  Strings of D_n may
repeat (tasks/per_position.py says why), so that split train of D_n has strings that were trained on.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..losses import sigmoid_mse
from ..tasks.languages import LANGUAGES
from ..tasks.per_position import Strings, strings
from ..tasks.splits import SPLIT

SETTINGS = {"batch": 32, "rate": 5e-4, "train_length": 50, "max_length": 100, "far": 150, "evaluation": 500}
PAPER = {"steps": 25 * 10_000 // 32}


@dataclass(frozen=True)
class PerPosition:
    """What a recipe of regular languages draws, asks and scores."""

    recipe: Any

    def check(self) -> None:
        """Raises ValueError naming the field for a language without members, or an empty window of lengths."""
        if not LANGUAGES[self.recipe.language].members:
            raise ValueError(f"protocol is 'per_position'; allowed for {self.recipe.language}: 'released'")
        for name, least in ("train_length", 2), ("far", self.recipe.max_length):
            if getattr(self.recipe, name) < least:
                raise ValueError(f"{name} is {getattr(self.recipe, name)}; allowed with protocol per_position: "
                                 f"numbers from {least} on")

    @property
    def windows(self) -> dict:
        """{split: (shortest, longest)}."""
        short, long, far = (getattr(self.recipe, name) for name in ("train_length", "max_length", "far"))
        return {"train": (2, short), "longer": (short + 1, long), "far": (long, far)}

    @property
    def asked(self) -> int:
        """How many strings of each split are asked about at most."""
        return max(self.recipe.evaluation, self.recipe.probe)

    @cached_property
    def corpora(self) -> dict:
        """{split: Strings}; of train the first `strings` are trained on: which, depends on how many are asked about."""
        r = self.recipe
        many = {**dict.fromkeys(self.windows, self.asked), "train": self.asked + r.strings}
        return {split: strings(np.random.default_rng((r.seed, SPLIT, number)), r.language, many[split], *window)
                for number, (split, window) in enumerate(self.windows.items())}

    def sample(self, rng, split, size, start=None) -> Strings:
        """Strings drawn at random, as wide as the longest of them; or those from `start` on, which are asked about."""
        if start is None:
            chosen = rng.integers(self.recipe.strings if split == "train" else self.asked, size=size)
            width = int(self.corpora[split].weight[chosen].sum(axis=1).max())
        else:
            chosen, width = slice(start, start + size), self.windows[split][1]
        return Strings(*(x[chosen, :width] for x in self.corpora[split]))

    def batches(self, split, tasks):
        """(size, {"start": first string}) of each batch.  Raises ValueError for more tasks than there are strings."""
        if tasks > self.asked:
            raise ValueError(f"tasks is {tasks:,}; allowed: numbers up to {self.asked:,}, of the strings drawn")
        first = self.recipe.strings if split == "train" else 0
        size = self.recipe.fitting(self.windows[split][1])
        for start in range(0, tasks, size):
            yield min(size, tasks - start), {"start": first + start}

    def inputs(self, batch):
        return batch.tokens, {}

    def loss(self, y, batch):
        """Mean square error of sigmoids inside the strings."""
        return sigmoid_mse(y, batch.target, batch.weight)

    def loss_terms(self, batch):
        return batch.weight.sum()

    def score(self, y, batch) -> dict:
        """Whether every sigmoid of every position of a string is on the right side of 1/2."""
        right = ((y >= 0) == (batch.target > 0.5)).all(axis=-1)
        return {"accuracy": (right | (batch.weight == 0)).all(axis=1)}

    def summary(self, scores) -> dict:
        """The fraction of strings; no figures by length."""
        return {**dict.fromkeys(self.recipe.LABELS), "accuracy": float(scores["accuracy"].mean())}
