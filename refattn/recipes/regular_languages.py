"""Regular languages: RegularGPT, the ReLU network and Transformers, trained on short words and asked about long ones.

The protocol says what is drawn, asked and scored: one answer for each word (`per_word.py`, as released), or two at
every position of members (`per_position.py`).
Source: R, section 5, table 4, and the released code, whose launch script has the settings of scale paper: Adam at a
constant rate, gradients clipped to norm 1, float32; models as in models/regular_gpt.py, models/recurrent.py.
Differs: scale caption has the lengths of table 1's caption where the script has others.  Seeds are of data and weights;
the code's of weights only.  Scale quick has 2,000 steps, and asks about every 20th length.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..attention.layer import MultiHead
from ..attention.sliding_dilated import OUT_OF_RANGE, SlidingDilated
from ..attention.transformer_xl import TransformerXL
from ..checks import check_choice
from ..layers.block import NORMS
from ..layers.feed_forward import FeedForward
from ..models.recurrent import Recurrent
from ..models.regular_gpt import RegularGPT
from ..models.transformer import post_norm
from ..tasks import regular_languages as task
from ..tasks.languages import LANGUAGES
from . import per_position
from .base import ConstantRateRecipe, check_multiple, setting
from .per_position import PerPosition
from .per_word import OneAnswer, Words

PROTOCOLS: dict[str, Any] = {"released": OneAnswer, "per_position": PerPosition}
ATTENTIONS = "sliding_dilated", "rnn", "transformer_xl", "softmax"
RELEASED = {                   # launch script: fields that are not 100,000 steps, width 64, lengths 40 and 500
    "parity": {"rate": 3e-4}, "d2": {"rate": 5e-4}, "d3": {"rate": 1e-4}, "d4": {"rate": 1e-4},
    "cycle": {"rate": 5e-4, "width": 256, "steps": 10_000}, "even_pairs": {"rate": 3e-5, "width": 256, "steps": 10_000},
    "modular_arithmetic": {"rate": 1e-4, "width": 256, "steps": 1_000_000},
    "d12": {"rate": 1e-4, "steps": 50_000, "train_length": 80},
    **{f"tomita{n}": {"rate": rate, "max_length": 100} for n, rate in ((3, 5e-4), (4, 5e-4), (5, 1e-4), (6, 5e-4))}}
CAPTION = {name: {"train_length": 50, "max_length": 100} for name, row in LANGUAGES.items() if row.members}
PAPER = {"steps": 100_000, "log_every": 500, "evaluate_every": 5_000, "checkpoint_every": 1_000, "probe": 16}
TOKENS, PAIRS = 1 << 15, 1 << 22       # of a batch at evaluation, at most: it must fit in memory


@dataclass(frozen=True, kw_only=True)
class RegularLanguagesRecipe(ConstantRateRecipe):
    """Words of a regular language, one answer after the last symbol; trained on short words, asked about long ones."""

    TASK = "regular_languages"
    SOURCE = "Chi et al. 2023, section 5"
    SPLITS = "train", "longer", "far"
    COMPARED = ("sliding_dilated",)
    COUNTED = "words per length"
    LABELS = {"accuracy": "accuracy", "corrected": "accuracy, the first longer length included",
              "to_100": "accuracy at lengths to 100", "worst": "accuracy at the worst length",
              "last": "accuracy at the greatest length"}
    TABLE = (("longer words", "longer", "accuracy"), ("from train + 1", "longer", "corrected"),
             ("of these to 100", "longer", "to_100"), ("worst length", "longer", "worst"),
             ("at max length", "longer", "last"), ("far", "far", "accuracy"), ("trained lengths", "train", "accuracy"))
    SCALES = {
        "quick": {"steps": 2_000, "rate": 3e-4, "width": 64, "stride": 20, "evaluation": 256, "probe": 16},
        "paper": PAPER, "caption": PAPER,
    }

    clip: float = setting(1.0, "largest global norm of the gradient; 0 for no clipping", least=0.0, most=1e30)
    rate: float = setting(3e-4, "learning rate, constant; R: 0.0001, 0.0003, 0.0005", least=0.0, most=1e3)
    initialise: str = setting("haiku", "scheme of the initial weights: as released, or as the text says",
                              choices=("haiku", "gpt2", "lecun_normal", "pytorch"))
    evaluation: int = setting(512, "words of each length at the end", least=1, most=10**9)
    probe: int = setting(64, "words of each length during training", least=1, most=10**9)

    language: str = setting("parity", "which language", choices=tuple(LANGUAGES))
    protocol: str = setting("released", "one answer for each word (released), or two at every position of members, D_n "
                            "and Tomita only, with a batch, rate and lengths of its own (Bhattamishra et al. 2020)",
                            choices=tuple(PROTOCOLS))
    strings: int = setting(10_000, "members to train on, of per_position", least=1, most=10**7)
    attention: str = setting("sliding_dilated", "model", choices=ATTENTIONS)
    train_length: int = setting(40, "the longest words of training; R: 40, 50, 80", least=1, most=100_000)
    max_length: int = setting(500, "the longest words of split longer; R: 500, 100", least=2, most=100_000)
    stride: int = setting(1, "of the lengths asked about; R: 1", least=1, most=100_000)
    far: int = setting(5_000, "the one length of split far, for sliding_dilated and rnn; of per_position the longest",
                       least=1, most=1_000_000)
    ones: float = setting(0.5, "probability of a 1, parity only", least=0.0, most=1.0)
    leading_plus: bool = setting(True, "modular arithmetic begins with a +, as released")
    width: int = setting(64, "of the model; R: 64, 256", least=1, most=16_384)
    heads: int = setting(8, "of each attention layer", least=1, most=1_024)
    layers: int = setting(5, "blocks of transformer_xl and softmax", least=1, most=1_024)
    states: int = setting(256, "width of rnn", least=1, most=16_384)
    chunk: int = setting(2, "keys of each query, of sliding_dilated; R: 2, 3", least=2, most=1_024)
    thickness: int = setting(1, "sub-layers of a level, of sliding_dilated", least=1, most=1_024)
    norm: str = setting("post", "of sliding_dilated: as released, or pre, as the text says", choices=NORMS)
    activation: str = setting("relu", "of sliding_dilated: as released, or gelu, as the text says",
                              choices=("relu", "gelu", "gelu_exact"))
    out_of_range: str = setting("pad", "keys before the first: a learned vector (released) or none (eq. 1)",
                                choices=OUT_OF_RANGE)

    def __post_init__(self):
        super().__post_init__()
        self.data()
        if self.attention != "rnn":
            check_multiple(self, "width", "heads")
        if self.max_length < self.train_length + 2:
            raise ValueError(f"max_length is {self.max_length}; allowed: train_length + 2 = {self.train_length + 2} on")
        if self.protocol == "per_position":
            self.by_protocol.check()

    @classmethod
    def scale(cls, name: str, changes: dict) -> dict:
        """The settings of a scale, which in paper and caption depend on the language."""
        settings, language = dict(cls.SCALES[name]), changes.get("language", "parity")
        if changes.get("protocol") == "per_position":
            settings |= per_position.SETTINGS
            return settings if name == "quick" else settings | per_position.PAPER
        if name != "quick":
            settings |= RELEASED.get(language, {})
        if name == "caption":
            settings |= CAPTION.get(language, {})
        return settings

    @property
    def name(self) -> str:
        chunk = f"-chunk{self.chunk}" if self.attention == "sliding_dilated" and self.chunk != 2 else ""
        protocol = "" if self.protocol == "released" else f"-{self.protocol}"
        return f"{self.language}-{self.attention}{chunk}{protocol}-seed{self.seed}"

    def least_bytes(self) -> int:
        """With the activations of a shard that its backward needs."""
        tokens = self.largest_shard * self.train_length
        kept = {"rnn": 2 * self.states * tokens, "sliding_dilated": 12 * self.width * tokens * self.thickness}
        square = self.layers * tokens * self.heads * self.train_length
        return super().least_bytes() + 4 * kept.get(self.attention, square)

    def data_read(self, resuming=True):
        """None; too few strings of per_position are refused here, before a run begins."""
        if resuming and self.protocol == "per_position":
            _ = self.by_protocol.corpora

    def chance(self):
        """Of a random answer, where there is one for each word and each length from 3 on has several."""
        return 1 / self.data().classes if self.protocol == "released" and self.data().row.has_members(3) else None

    def data(self) -> task.RegularLanguages:
        """The task with these settings."""
        return task.RegularLanguages(self.language, self.leading_plus, self.ones)

    def build(self):
        data, m, d = self.data(), self.width, self.width // self.heads
        if self.attention == "rnn":
            return Recurrent(self.states, data.vocabulary, data.classes)
        feed_forward = FeedForward(m, 4 * m, self.activation)
        if self.attention == "sliding_dilated":
            layer = SlidingDilated(m, self.heads, d, self.chunk, out_of_range=self.out_of_range)
            return RegularGPT(layer, feed_forward, data.vocabulary, data.classes, self.thickness, self.norm)
        position = TransformerXL(m, self.heads, d) if self.attention == "transformer_xl" else None
        return post_norm(MultiHead(m, self.heads, d, position=position, biases=False), 4 * m, self.layers,
                         vocabulary=data.vocabulary, outputs=data.classes, causal=self.protocol == "per_position")

    @cached_property
    def by_protocol(self) -> OneAnswer | PerPosition:
        """What is drawn, asked and scored."""
        return PROTOCOLS[self.protocol](self)

    def sample(self, rng, split="train", size=None, length=None, **further):
        """Words of one length if that is given, in either protocol; without it as the protocol draws them."""
        check_choice("split", split, self.SPLITS)
        if length is None:
            return self.by_protocol.sample(rng, split, self.drawn(size), **further)
        words = self.data().sample(rng, self.drawn(size), length)
        return Words(*words, np.full(len(words.tokens), length))

    def batches(self, split: str, tasks: int):
        check_choice("split", split, self.SPLITS)
        return self.by_protocol.batches(split, tasks)

    def fitting(self, length: int) -> int:
        """How many words of this length make a batch that fits in memory."""
        most = TOKENS // length
        if self.attention in ("transformer_xl", "softmax"):
            most = min(most, PAIRS // (self.heads * length**2))
        return max(1, min(self.evaluation_batch or self.batch, most))

    def inputs(self, batch):
        return self.by_protocol.inputs(batch)

    def loss_terms(self, batch):
        return self.by_protocol.loss_terms(batch)

    def loss(self, y, batch):
        """Cross-entropy of the answer; by position: mean square error of the sigmoids."""
        return self.by_protocol.loss(y, batch)

    def score(self, y, batch):
        return self.by_protocol.score(y, batch)

    def summary(self, scores):
        return self.by_protocol.summary(scores)
