"""Equilateral triangles with softmax or compositional attention.

Source: C, section 4.3, tables 3 and 9, and the released code: 200 epochs of 50,000 fresh images in batches of 64, Adam
whose rate follows half a cosine, epoch by epoch; pixels of 0 or 255 as they are; accuracy on 10,000 after the last.
Differs: from the text as the code does (one convolution for patches, not an MLP; raw pixels; fresh data).  Every batch
is whole, and every evaluation asks about the same images.  Scales small and quick have images of 32 x 32, width 64, 2
applications, pixels divided by 255, rate 0.001, and fewer steps.
"""

from dataclasses import dataclass
from math import cos, pi

import numpy as np

from ..layers.convolution import Conv
from ..losses import binary_cross_entropy
from ..models.vision import ClassToken
from ..tasks import triangles as task
from .base import check_multiple, setting
from .vision import VisionRecipe


@dataclass(frozen=True, kw_only=True)
class TrianglesRecipe(VisionRecipe):
    """Whether three clusters of dots make an equilateral triangle."""

    TASK = "triangles"
    SOURCE = "Mittal et al. 2022, section 4.3"
    SPLITS = ("test",)                  # fresh images all: those of training are no others
    LABELS = {"accuracy": "accuracy"}
    TABLE = (("test accuracy", "test", "accuracy"),)
    SMALL = {"size": 32, "width": 64, "layers": 2, "retrievals": 4, "divisor": 255.0, "rate": 1e-3}
    SCALES = {
        "quick": {**SMALL, "steps": 3_000, "epoch": 100, "evaluation": 3_200, "probe": 640},
        "small": {**SMALL, "steps": 31_280, "log_every": 391, "evaluate_every": 1_564, "checkpoint_every": 1_564},
        "paper": {"steps": 156_400, "log_every": 391, "evaluate_every": 3_910, "checkpoint_every": 782},
    }

    evaluation: int = setting(10_000, "images per split at the end", least=1, most=10**9)
    probe: int = setting(1_280, "images per split during training", least=1, most=10**9)
    size: int = setting(64, "pixels of a side", least=8, most=1_024)
    patch: int = setting(4, "pixels of a patch's side", least=1, most=1_024)
    divisor: float = setting(1.0, "of pixels of 0 and 255; C: 1", least=1e-6, most=1e6)
    epoch: int = setting(782, "steps that share a rate; the cosine falls from one to the next", least=1, most=10**9)

    def __post_init__(self):
        super().__post_init__()
        check_multiple(self, "size", "patch")

    def chance(self):
        """Of a random answer."""
        return 0.5

    def build(self):
        return ClassToken(Conv(1, self.width, self.patch, self.patch), self.stack(), 1)

    def sample(self, rng, split="train", size=None):
        return task.Triangles(self.size).sample(rng, self.drawn(size), split)

    def inputs(self, batch):
        return batch.image.astype(np.float32) * np.float32(1 / self.divisor), {"pixels": False}

    def dropouts(self, batch, rng, xp):
        return self.dropped(rng, xp, len(batch.image), 1 + (self.size // self.patch) ** 2, 1)

    def loss(self, y, batch):
        """Binary cross-entropy of "not equilateral"."""
        value, dy = binary_cross_entropy(y[:, 0, 0], batch.target)
        return value, dy[:, None, None]

    def score(self, y, batch):
        """Whether the answer is right, which is 1 from a probability of 1/2 on (code)."""
        return {"accuracy": (y[:, 0, 0] >= 0) == (batch.target > 0.5)}

    def rate_at(self, step: int) -> float:
        """Half a cosine from `rate` to 0, the same for all steps of an epoch, or of a run of one, after the warm-up."""
        return super().rate_at(step) * 0.5 * (1 + cos(pi * (step // self.epoch) * self.epoch / self.steps))
