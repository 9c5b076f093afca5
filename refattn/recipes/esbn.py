"""ESBN's four tasks with softmax or compositional attention: figures 6 and 17.

`hold_out` is m: as many of the hundred objects are kept for the test.  Scale paper has the code's epochs, which depend
on the task and on m; quick has a tenth of them.
Source: C, section 4.5, appendix C.5, and the released code: Adam at a constant rate, batches of 32, the last one kept.
Differs: rate 5e-4 as the code has it, not the text's 1e-4; other pictures, trials and random numbers.  The paper has
curves, no numbers.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np

from ..attention import VARIANTS
from ..attention.value_scores import SCORINGS
from ..losses import cross_entropy
from ..models.esbn import RelationNetwork
from ..params import KAIMING_NORMAL, XAVIER_NORMAL, Init
from ..tasks import esbn as task
from ..tasks.glyphs import glyphs
from ..xp import array_module
from .attention import attention_of
from .base import ConstantRateRecipe, FiniteRecipe, check_multiple, setting

EPOCHS = {"same_different": (50, 100), "rmts": (50, 200), "distribution_of_three": (50, 150),
          "identity_rules": (50, 50)}           # of hold_out up to 85, and beyond


@lru_cache(maxsize=4)
def pictures(xp):
    """The hundred pictures (100, 32, 32, 1) in a module."""
    return xp.asarray(glyphs()[..., None])


@dataclass(frozen=True, kw_only=True)
class EsbnRecipe(ConstantRateRecipe, FiniteRecipe):
    """Relations between pictures that were never seen in training: four tasks, of which `problem` says one."""

    TASK = "esbn"
    SOURCE = "Mittal et al. 2022, section 4.5"
    SPLITS = "train", "held_out"
    COMPARED = "softmax", "compositional"
    LABELS = {"accuracy": "accuracy"}
    TABLE = (("accuracy", "train", "accuracy"), ("held-out accuracy", "held_out", "accuracy"))
    SCALES = {"quick": {}, "paper": {}}
    INITIAL = {"convs.*.k": KAIMING_NORMAL, "encoder.w?": KAIMING_NORMAL, "block.feed_forward.w?": KAIMING_NORMAL,
               "readout.w1": KAIMING_NORMAL, "readout.w2": XAVIER_NORMAL, "block.attention.wo": XAVIER_NORMAL,
               "block.attention.w?": Init("normal", "mean", sqrt(0.5))}

    steps: int = setting(2_000, "of training; the default is that of problem, hold_out and batch", least=1, most=10**9)
    batch: int = setting(32, "trials per step", least=1, most=2**20)
    rate: float = setting(5e-4, "learning rate, constant; text: 1e-4", least=0.0, most=1e3)
    evaluation: int = setting(20_000, "trials per split at the end, as far as there are", least=1, most=10**9)
    evaluation_batch: int = setting(100, "trials at a time in an evaluation; 0: as in training", least=0, most=2**20)
    probe: int = setting(1_000, "trials per split during training", least=1, most=10**9)
    log_every: int = setting(100, "steps per log line", least=1, most=10**9)
    evaluate_every: int = setting(1_000, "steps per evaluation; a multiple of log_every", least=1, most=10**9)
    checkpoint_every: int = setting(500, "steps per checkpoint", least=1, most=10**9)

    problem: str = setting("same_different", "the task", choices=tuple(task.TASKS))
    hold_out: int = setting(50, "m, objects of the test alone; C: 0, 50, 85, 95, same_different 98", least=0, most=98)
    attention: str = setting("compositional", "variant", choices=("compositional", *VARIANTS))
    width: int = setting(128, "of the model", least=2, most=16_384)
    heads: int = setting(8, "heads or searches", least=1, most=1_024)
    retrievals: int = setting(1, "of compositional attention; C: 1, 2, 4, 6, 8", least=1, most=1_024)
    selector_width: int = setting(16, "of retrieval queries and keys", least=1, most=1_024)
    scoring: str = setting("dot", "how compositional attention scores retrievals", choices=tuple(SCORINGS))

    def __post_init__(self):
        super().__post_init__()
        check_multiple(self, "width", "heads", even=True)
        self.data()

    @classmethod
    def scale(cls, name: str, changes: dict) -> dict:
        """The steps of the code's epochs, or of a tenth of them (quick), for the problem, hold_out and batch."""
        known = {x: changes[x] for x in ("problem", "hold_out", "batch", "last_batch") if x in changes}
        try:
            made = cls(**known)
            one_epoch = made.steps_per_epoch
        except (TypeError, ValueError):
            return {}                                       # what is wrong is said where the recipe is made
        few, many = EPOCHS[made.problem]
        epochs = many if made.hold_out > 85 else few
        return {"steps": (epochs if name == "paper" else epochs // 10) * one_epoch}

    @property
    def name(self) -> str:
        attention = self.attention + (f"-{self.retrievals}" if self.attention == "compositional" else "")
        return f"{self.problem}-{self.hold_out}-{attention}-seed{self.seed}"

    def chance(self):
        """Of a random answer."""
        return 1 / task.TASKS[self.problem].answers

    def data(self) -> task.Esbn:
        """The task with these settings."""
        return task.Esbn(self.problem, self.hold_out, self.seed)

    def build(self):
        row = task.TASKS[self.problem]
        return RelationNetwork(attention_of(self, self.heads), row.answers, row.segments)

    def cut(self, batch, rows):
        """With the pictures of these trials alone."""
        seen, place = np.unique(batch.place[rows], return_inverse=True)
        return type(batch)(batch.pictures[seen], place.reshape(batch.place[rows].shape), batch.target[rows])

    def inputs(self, batch):
        return pictures(array_module(batch.place))[batch.pictures], {"place": batch.place, "pixels": False}

    def loss(self, y, batch):
        """Cross-entropy of the answer, mean over trials."""
        return cross_entropy(y, batch.target)

    def score(self, y, batch):
        return {"accuracy": y.argmax(axis=-1) == batch.target}
