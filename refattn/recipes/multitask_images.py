"""Four sets of images at a time, with softmax or compositional attention: three to classify, and triangles.

Source: C, section 4.4, table 2, appendix C.4, and the released code: CIFAR-10, Fashion-MNIST, SVHN and triangles of
32 x 32 pixels; a step is one update for 32 images of each, by the sum of three cross-entropies and one binary one;
an epoch is a pass over the largest set; accuracies after the last epoch.
Differs: images of the smaller sets come again after the remainder of a number, not in passes of their own.  Test
triangles are the same at every evaluation, as many as the largest test set has images (code: 10,000).  Scale quick is
C's model at width 64 on sets that need no archive: its figures stand beside none of C's.
"""

import os
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..losses import binary_cross_entropy, cross_entropy
from ..models.vision import TaskTokens
from ..tasks import natural_images
from ..tasks.triangles import Triangles
from ..xp import array_module
from .base import FiniteRecipe, setting
from .vision import VisionRecipe

SETS = "first", "second", "third"
COLUMNS = {"first": slice(0, 10), "second": slice(10, 20), "third": slice(20, 30), "triangles": slice(30, 31)}


class Batch(NamedTuple):
    image: np.ndarray          # (b, 4, 32, 32, 3) uint8: of the three sets, and triangles
    target: np.ndarray         # (b, 4) integers; -1 where a test set has no more images


@dataclass(frozen=True, kw_only=True)
class MultitaskImagesRecipe(VisionRecipe, FiniteRecipe):
    """Three sets of pictures to classify, and triangles, by one network with a token for each."""

    TASK = "multitask_images"
    DATA = "natural_images"
    SOURCE = "Mittal et al. 2022, section 4.4"
    SPLITS = "train", "test"
    LABELS = {name: f"accuracy, {name} set" for name in SETS} | {"triangles": "accuracy, triangles"}
    TABLE = tuple((name, "test", name) for name in COLUMNS) + tuple((f"train {x}", "train", x) for x in COLUMNS)
    SCALES = {
        "quick": {"width": 64, "rate": 1e-3, "steps": 4_000, "evaluate_every": 1_000, "evaluation": 1_000,
                  "probe": 300},
        "paper": {"first": "cifar10", "second": "fashion_mnist", "third": "svhn", "steps": 229_000, "log_every": 229,
                  "evaluate_every": 2_290, "checkpoint_every": 2_290},
    }

    batch: int = setting(32, "images of each set per step", least=1, most=2**20)
    selector_width: int = setting(16, "of the retrieval query", least=1, most=16_384)
    layers: int = setting(2, "applications of the block", least=1, most=1_000)
    evaluation: int = setting(30_000, "images of a set and split at the end, as far as there are", least=1, most=10**9)
    first: str = setting("shapes", "set of images; C: cifar10", choices=tuple(natural_images.SETS))
    second: str = setting("gratings", "set of images; C: fashion_mnist", choices=tuple(natural_images.SETS))
    third: str = setting("digits", "set of images; C: svhn", choices=tuple(natural_images.SETS))
    data: str = setting("", "directory of the archives, for folders a zip; REFATTN_DATA where it is not given")

    @property
    def where(self) -> str:
        """The directory of the archives, or the zip."""
        return self.data or os.environ.get("REFATTN_DATA", "")

    def images(self, split: str) -> list:
        """The Images of the three sets."""
        return [natural_images.load(getattr(self, name), split, self.where) for name in SETS]

    def size(self, split):
        """Images of the largest set in a split."""
        return max(len(each.label) for each in self.images(split))

    def least_bytes(self):
        return super().least_bytes() + sum(each.image.nbytes for each in self.images("test"))

    def data_read(self, resuming=True):
        """Of a zip, which may hold anything; archives are known by theirs.  Raises ValueError where one is missing."""
        if not resuming:
            return None
        self.images("test")
        zipped = "folders" in (self.first, self.second, self.third)
        return f"a zip of checksum {natural_images.checksum(self.where)[:16]}" if zipped else None

    def build(self):
        return TaskTokens(4, 3, self.stack(), len(COLUMNS), COLUMNS["triangles"].stop)

    def take(self, split, index):
        """One image of each set for every number; the generator that cuts out and mirrors training images, and draws
        triangles, is of seed, split and numbers."""
        index, training, images, targets = np.asarray(index), split == "train", [], []
        rng = np.random.default_rng([self.seed, training, *index.tolist()])
        for each in self.images(split):
            image, label = (x[index % len(each.label)] for x in each)
            images.append(natural_images.augment(rng, image) if training else image)
            targets.append(np.where(training | (index < len(each.label)), label, -1))
        fresh = Triangles(natural_images.SIZE).sample(rng, len(index))
        images.append(np.repeat(fresh.image, 3, axis=3))
        return Batch(np.stack(images, axis=1), np.stack([*targets, fresh.target.astype(np.int64)], axis=1))

    def inputs(self, batch):
        xp, (b, sets) = array_module(batch.image), batch.image.shape[:2]
        x = batch.image.reshape(-1, *batch.image.shape[2:]).astype(np.float32) * np.float32(1 / 127.5) - np.float32(1)
        task = xp.broadcast_to(xp.eye(sets, dtype=np.float32), (b, sets, sets)).reshape(-1, sets)
        return x, {"pixels": False, "task": task}

    def dropouts(self, batch, rng, xp):
        return self.dropped(rng, xp, batch.target.size, len(COLUMNS) + 8 * 8, len(COLUMNS))    # tasks, and patches

    def loss(self, y, batch):
        """The sum over the four sets of their cross entropies."""
        y = y.reshape(*batch.target.shape, -1)
        total, dy = 0, array_module(y).zeros_like(y)
        for t, columns in enumerate(COLUMNS.values()):
            logits, target = y[:, t, columns], batch.target[:, t]
            if t < len(SETS):
                value, dy[:, t, columns] = cross_entropy(logits, target)
            else:
                value, dy[:, t, columns] = binary_cross_entropy(logits, target.astype(y.dtype)[:, None])
            total = total + value
        return total, dy.reshape(-1, dy.shape[2])

    def score(self, y, batch):
        """For every set whether the class is right, NaN where there was no image."""
        y, found = y.reshape(*batch.target.shape, -1), {}
        for t, (name, columns) in enumerate(COLUMNS.items()):
            logits, target = y[:, t, columns], batch.target[:, t]
            guess = logits.argmax(axis=-1) if t < len(SETS) else logits[:, 0] >= 0
            found[name] = np.where(target < 0, np.nan, guess == target)
        return found

    def summary(self, scores):
        return {name: float(np.nanmean(x)) for name, x in scores.items()}
