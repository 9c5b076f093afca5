"""Protocol "released" of the regular languages: one answer for each word, after its last symbol.

A step draws one length from 1 .. train_length and a batch of fresh words of exactly that length; the loss is the cross
entropy of the answer.  Asked about are `evaluation` fresh words of each length, of `longer` up to max_length, and of
the one length `far`.
Source: R, section 5, and the released code.
Differs: `accuracy` of longer words begins at train_length + 2, as the code's slice does; `corrected` at
train_length + 1, as the caption of table 1 says, and `to_100` ends at 100, where the caption does for D_n.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..losses import cross_entropy


class Words(NamedTuple):
    tokens: np.ndarray         # (b, t) integers
    target: np.ndarray         # (b) integers
    length: np.ndarray         # (b) integers, all the same: what was asked for; tokens can be one more, or fewer


@dataclass(frozen=True)
class OneAnswer:
    """What a recipe of regular languages draws, asks and scores."""

    recipe: Any

    def sample(self, rng, split, size) -> Words:
        """Words of one length, which is drawn too."""
        return self.recipe.sample(rng, split, size, length=int(rng.integers(1, self.recipe.train_length + 1)))

    def lengths(self, split: str) -> range:
        """Which lengths a split asks about: the greatest of them always, of the others every `stride`-th."""
        r = self.recipe
        first, last = {"train": (1, r.train_length), "longer": (r.train_length + 1, r.max_length),
                       "far": (r.far, r.far if r.attention in ("sliding_dilated", "rnn") else 0)}[split]
        return range(last, first - 1, -r.stride)[::-1]

    def batches(self, split: str, tasks: int):
        """`tasks` words of each length, in batches that fit in memory; of longer words the first two lengths too."""
        n, more = self.recipe.train_length, split == "longer"
        for length in sorted({*self.lengths(split), *([n + 1, n + 2] if more else [])}):
            size = self.recipe.fitting(length)
            for start in range(0, tasks, size):
                yield min(size, tasks - start), {"length": length}

    def inputs(self, batch):
        """Only the last position is computed, or read."""
        last = {"tree": True} if self.recipe.attention == "sliding_dilated" else {"read": slice(-1, None)}
        return batch.tokens, last

    def loss(self, y, batch):
        """Cross entropy of the answer."""
        value, dy = cross_entropy(y[:, 0], batch.target)
        return value, dy[:, None]

    def loss_terms(self, batch):
        return len(batch.target)

    def score(self, y, batch) -> dict:
        """Whether each answer is right, and of which length."""
        return {"right": y[:, 0].argmax(axis=-1) == batch.target, "length": batch.length}

    def by_length(self, scores) -> dict[int, float]:
        """{length: accuracy}, from the scores of an evaluation."""
        lengths, index = np.unique(scores["length"], return_inverse=True)
        means = np.bincount(index, scores["right"]) / np.bincount(index)
        return dict(zip(lengths.tolist(), means.tolist(), strict=True))

    def summary(self, scores) -> dict:
        """Means over lengths, every length weighing the same."""
        found = self.by_length(scores)
        first = self.recipe.train_length + 1
        as_released = [accuracy for length, accuracy in found.items() if length != first or len(found) == 1]
        to_100 = [accuracy for length, accuracy in found.items() if length <= 100]
        return {"accuracy": float(np.mean(as_released)), "corrected": float(np.mean(list(found.values()))),
                "to_100": float(np.mean(to_100)) if to_100 else None,
                "worst": min(found.values()), "last": found[max(found)]}
