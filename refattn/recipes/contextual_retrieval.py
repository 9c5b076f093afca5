"""Contextual retrieval with compositional attention or any attention variant: the thirty-two settings of table 6.

A setting of table 6 is a scale (task and width, its eight cells) and an attention: `compositional` with as many
searches and retrievals as the task has, or `softmax` with `heads` heads.  The total widths of queries, keys and values
are the model's: head width is width / heads or / searches, value width is width / heads or / retrievals.
Source: C, section 4.1, table 6, and the released code: Adam at a constant rate, no decay or clipping, batches of 256.
Differs: not at the scales of table 6, each cell of which is two trainings, in-distribution (held_out False) and
held-out (True); the paper does not say so, nor how many seeds it took.  Scale quick has fewer steps at a higher rate.
"""

from dataclasses import dataclass

import numpy as np

from ..attention import VARIANTS
from ..attention.compositional import Compositional
from ..attention.layer import MultiHead
from ..attention.value_scores import SCORINGS
from ..losses import mean_absolute_error
from ..models.contextual_retrieval import RetrievalNetwork
from ..tasks import contextual_retrieval as task
from .base import ConstantRateRecipe, check_multiple, setting

PAPER = {"steps": 100_000, "log_every": 500, "evaluate_every": 5_000, "checkpoint_every": 5_000}


def cell(searches: int, retrievals: int, width: int) -> dict:
    """A cell of table 6 as published."""
    return {**PAPER, "searches": searches, "retrievals": retrievals, "width": width}


@dataclass(frozen=True, kw_only=True)
class ContextualRetrievalRecipe(ConstantRateRecipe):
    """Each object of a set finds its nearest neighbour in S features and reports the features that it prefers."""

    TASK = "contextual_retrieval"
    SOURCE = "Mittal et al. 2022, section 4.1"
    SPLITS = "train", "held_out"
    COMPARED = "softmax", "compositional"
    LABELS = {"loss": "mean absolute error"}
    TABLE = (("loss", "train", "loss"), ("held-out loss", "held_out", "loss"))
    SCALES = {
        "quick": {"steps": 5_000, "batch": 64, "rate": 2e-3, "width": 32, "evaluation": 12_800, "probe": 1_280},
        "paper": cell(2, 4, 64),                            # as 2s4r-64, the smallest cell of table 6
        "2s4r-64": cell(2, 4, 64), "2s4r-128": cell(2, 4, 128),
        "4s8r-128": cell(4, 8, 128), "4s8r-256": cell(4, 8, 256), "4s8r-512": cell(4, 8, 512),
        "4s16r-128": cell(4, 16, 128), "4s16r-256": cell(4, 16, 256), "4s16r-512": cell(4, 16, 512),
    }

    batch: int = setting(256, "sets per step", least=1, most=2**20)
    rate: float = setting(1e-4, "learning rate, constant", least=0.0, most=1e3)
    initialise: str = setting("pytorch", "scheme of the initial weights", choices=("pytorch", "lecun_normal"))
    evaluation: int = setting(25_600, "sets per split at the end", least=1, most=10**9)
    probe: int = setting(25_600, "sets per split during training", least=1, most=10**9)

    attention: str = setting("compositional", "variant", choices=("compositional", *VARIANTS))
    searches: int = setting(2, "features to search by; C: 2, 4, 4", least=1, most=len(task.ALPHA))
    retrievals: int = setting(4, "features to retrieve; C: 4, 8, 16", least=1, most=1_024)
    objects: int = setting(10, "in a set", least=2, most=1_024)
    held_out: bool = setting(True, "train without the held-out tuples of preferences, or on all (in-distribution)")
    width: int = setting(64, "of the model; C: 64, 128, 256, 512", least=1, most=16_384)
    heads: int = setting(4, "of other attention than compositional; C: 2 to 64", least=1, most=1_024)
    scoring: str = setting("dot", "how compositional attention scores retrievals", choices=tuple(SCORINGS))

    def __post_init__(self):
        super().__post_init__()
        for split in ("train", "held_out") if self.held_out else ("all",):
            self.data().size(split)
        for parts in ("searches", "retrievals") if self.attention == "compositional" else ("heads",):
            check_multiple(self, "width", parts)

    @property
    def name(self) -> str:
        return f"{self.attention}-{'held-out' if self.held_out else 'all'}-seed{self.seed}"

    def chance(self):
        """Of answering 0 always."""
        return self.data().zero_predictor

    def data(self) -> task.ContextualRetrieval:
        """The task with these settings."""
        return task.ContextualRetrieval(self.searches, self.retrievals, self.objects)

    def build(self):
        m, s, r = self.width, self.searches, self.retrievals
        if self.attention == "compositional":
            own, attention = m // r, Compositional(m, s, r, m // s, m // r, m // s, self.scoring)
        else:
            own = m // self.heads
            attention = MultiHead(m, self.heads, own, variant=self.attention)
        return RetrievalNetwork(self.data().width, attention, own)

    def sample(self, rng, split="train", size=None):
        return self.data().sample(rng, self.drawn(size), "all" if split == "train" and not self.held_out else split)

    def inputs(self, batch):
        return batch.tokens, {}

    def loss(self, y, batch):
        """Mean absolute error over sets and objects."""
        value, dy = mean_absolute_error(y[..., 0], batch.target)
        return value, dy[..., None]

    def score(self, y, batch):
        return {"loss": np.abs(y[..., 0] - batch.target).mean(axis=1)}
