"""Language models on any text: attention variants, compositional attention and RegularGPT, and their positions.

Source: H, section 5 and figure 6; C, section 4.7 and figure 7; R, section 6 and table 3; nanoGPT's example for a CPU.
Differs: the corpora are other ones (C4, WikiText-103 and OpenWebText2 are not at hand) and tokens are bytes, characters
or words, not subwords; float32, where the papers mix in half precision or bfloat16; all blocks of nanoGPT's scale
have biases in feed-forward and LayerNorm, which that example leaves out.  H does not say the length, nor R the dropout,
the biases, what keys before the first are (here they do not exist, "mask"), how many layers its baselines have (6 at
scale paper_r), and of the optimiser more than Adam, rate and steps: the rest (decay, betas, clipping, warm-up, cosine)
is nanoGPT's.  Grid of H: rate 1e-3, 3e-3; decay 0.1, 0.03; which one figure 6 had is not recorded.
At scale quick, small and lengths nothing is the papers'.  Scale paper is H's, paper_c and paper_r are C's and R's.
"""

import math
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import numpy as np

from ..checks import check_choice
from ..tasks import text as task
from ..tasks import text_windows
from ..train.writing import streamed, written
from ..xp import array_module
from .base import setting
from .language import LanguageRecipe

__all__ = ["TextRecipe"]

NANO = {"unit": "characters", "text": "tiny_shakespeare.txt", "steps": 2_000, "batch": 12, "rate": 1e-3, "warmup": 100,
        "beta2": 0.99, "clip": 1.0, "evaluate_every": 500, "checkpoint_every": 500}


@dataclass(frozen=True, kw_only=True)
class TextRecipe(LanguageRecipe):
    """A causal model reads a text and predicts every next token."""

    TASK = "text"
    SOURCE = "Schug et al. 2025, section 5; Mittal et al. 2022, section 4.7; Chi et al. 2023, section 6"
    SPLITS: ClassVar = ("validation", "test")
    COMPARED = "softmax", "linear", "hyla"
    COUNTED = "windows per split"
    LABELS: ClassVar = {"bits": "bits per token", "perplexity": "perplexity", "accuracy": "accuracy",
                        "unknown": "share of tokens that are <unk>, or have no id"}
    TABLE = (("bits per token", "test", "bits"), ("perplexity", "test", "perplexity"),
             ("accuracy", "test", "accuracy"), ("validation bits", "validation", "bits"))
    CHOSEN_BY = "validation", "bits", "least"
    SCALES: ClassVar = {
        "quick": {"steps": 1_000, "batch": 16, "rate": 2e-3, "warmup": 50, "clip": 1.0, "layers": 2, "width": 64,
                  "evaluate_every": 500, "probe": 100},
        "small": NANO,
        "lengths": {**NANO, "attention": "regular_gpt", "length": 128, "longest": 4_096},
        "paper": {"layers": 6, "width": 512, "heads": 8, "batch": 256, "length": 512, "activation": "gelu",
                  "position": "rotary", "scaled": True, "schedule_length": "released", "warmup": 1_000,
                  "steps": 991_821, "initialise": "lecun_normal", "beta2": 0.999},
        "paper_c": {"layers": 6, "shared": True, "width": 512, "heads": 8, "batch": 64, "length": 512, "context": 400,
                    "activation": "relu", "position": "halves", "embedding_scale": True, "unit": "words",
                    "steps": 50_000, "rate": 2e-3, "warmup": 4_000, "schedule": "inverse_root", "decay": 0.01,
                    "dropout": 0.1, "beta2": 0.98, "epsilon_first": True, "decay_rule": "all",
                    "initialise": "pytorch", "hidden": 2_048},
        "paper_r": {"layers": 6, "width": 768, "heads": 12, "batch": 32, "length": 512, "chunk": 128, "rate": 6e-4,
                    "attention": "regular_gpt", "steps": 50_000, "warmup": 2_000, "clip": 1.0, "beta2": 0.95,
                    "biases": False, "longest": 8_192, "chunks": 1_000},
    }

    batch: int = setting(16, "windows per step", least=1, most=2**20)
    schedule_length: str = setting("text", "cosine over steps - 2 warmup (released) or steps - warmup (text)",
                                   choices=("released", "text"))
    decay_rule: str = setting("released", "which arrays decay; released: what is no vector; all: C",
                              choices=("released", "text", "all", "none"))
    schedule: str = setting("cosine", "of the rate after warm-up; C: inverse_root", choices=("cosine", "inverse_root"))
    initialise: str = setting("gpt2", "scheme of initial weights", choices=("gpt2", "lecun_normal", "pytorch", "haiku"))
    evaluation: int = setting(10**9, "windows per split at the end, as far as there are", least=1, most=10**9)
    probe: int = setting(64, "windows per split during training", least=1, most=10**9)
    beta2: float = setting(0.99, "of Adam; H's code 0.999, C 0.98, nanoGPT 0.95 and 0.99", least=0.0, most=0.999999)
    epsilon_first: bool = setting(False, "Adam adds epsilon before it corrects the moments (C)")
    text: str = setting("documentation", "documentation, library (of this Python), or a file or directory")
    test: str = setting("", "another file or directory as the test split")
    unit: str = setting("bytes", "what a token is; tokens: of a file of numpy.save", choices=task.UNITS)
    vocabulary: int = setting(0, "words at most, 0 for all of the training text", least=0, most=10**8)
    length: int = setting(64, "tokens of a window", least=1, most=1_000_000)
    context: int = setting(0, "of them not scored in evaluation, but for the first window's; C: 400 of 512", least=0,
                           most=1_000_000)
    longest: int = setting(0, "score the last token of windows of length, twice that, ... up to this; 0: do not",
                           least=0, most=1_000_000)
    chunks: int = setting(100, "windows of the longest, two for each of half it; R: 1,000 of each", least=1, most=10**9)

    @classmethod
    def scale(cls, name: str, changes: dict) -> dict:
        """The settings of a scale; of C's rates 0.004 was the best for compositional attention, 0.002 for softmax."""
        if name == "paper_c" and changes.get("attention") == "compositional":
            return cls.SCALES[name] | {"rate": 4e-3}
        return cls.SCALES[name]

    def __post_init__(self):
        super().__post_init__()
        if self.context >= self.length:
            raise ValueError(f"context is {self.context:,}; allowed: numbers below length, {self.length:,}")
        if 0 < self.longest < self.length:
            raise ValueError(f"longest is {self.longest:,}; allowed: 0, and numbers from length, {self.length:,}")
        if self.longest and self.position == "learned" and self.attention != "regular_gpt":
            raise ValueError(f"longest is {self.longest:,}, but a learned table ends at {self.length:,}; allowed: "
                             f"other positions")
        object.__setattr__(self, "SPLITS", (*self.SPLITS, *self.lengths))

    @property
    def lengths(self) -> dict:
        """{split: length} of those in which the last token is scored, as R does: once, twice, ... the length."""
        powers = (self.longest // self.length).bit_length()         # 0 where longest is 0
        return {f"times_{1 << n}": self.length << n for n in range(powers)}

    @property
    def name(self) -> str:
        kind = "" if self.unit == "bytes" else f"{self.unit}-"
        return f"{kind}{'shared-' if self.shared else ''}{super().name}"

    @property
    def ADAM(self) -> dict:                             # type: ignore[override]
        return {"beta2": self.beta2, "epsilon_first": self.epsilon_first}

    def rate_at(self, step: int) -> float:
        """C: warm-up from 1e-7, then the rate times sqrt(warmup / step); otherwise a cosine."""
        if self.schedule == "cosine":
            return super().rate_at(step)
        if step < self.warmup:
            return 1e-7 + (self.rate - 1e-7) * step / self.warmup
        return self.rate * math.sqrt(max(1, self.warmup) / max(1, step))

    def symbols(self) -> int:
        """How many different tokens there are."""
        return self.corpus().vocabulary

    def data_read(self, resuming=True):
        needed = resuming or self.unit in ("characters", "words")
        return f"text {self.text!r} of checksum {self.corpus().checksum[:16]}" if needed else None

    def chance(self):
        """Bits of a token when all are equally likely."""
        return math.log2(self.symbols())

    def corpus(self) -> task.Corpus:
        """The tokens of the text.  Raises ValueError where a split of it is too short for what is asked of it."""
        made = task.corpus(self.text, self.unit, self.test, self.vocabulary)
        needed = {"train": self.length, "validation": 1, "test": max(self.lengths.values(), default=1)}
        for split, window in needed.items():
            if len(made.ids[split]) <= window:
                raise ValueError(f"text is {self.text!r}, but its {split} split has {len(made.ids[split]):,} tokens; "
                                 f"allowed: more than the {window:,} of a window")
        return made

    def _ids(self, split):
        """The tokens of a split, of one of `lengths` the test's.  Raises ValueError for an unknown one."""
        check_choice("split", split, (*task.SPLITS, *self.lengths))
        return self.corpus().ids["test" if split in self.lengths else split]

    def sample(self, rng, split="train", size=None, first=None) -> text_windows.Windows:
        """Windows at random places; those from number `first` on, which are asked about; or of a longer length."""
        ids, size = self._ids(split), self.drawn(size)
        if first is not None:
            return text_windows.windows(ids, self.length, self.context, first, size)
        drawn = text_windows.sample(rng, ids, size, self.lengths.get(split, self.length))
        if split not in self.lengths:
            return drawn
        last = np.zeros_like(drawn.weight)
        last[:, -1] = 1
        return drawn._replace(weight=last)

    def batches(self, split: str, tasks: int):
        """(size, further arguments of `sample`) of each batch: the text in order, or windows of a longer length.

        The latter all or none, none in a probe of fewer than `chunks`; of shorter ones as many as cost the same.
        """
        size, longer = self.evaluation_batch or self.batch, self.lengths.get(split)
        if longer:
            probe = tasks < min(self.chunks, self.evaluation)
            many = 0 if probe else self.chunks * (max(self.lengths.values()) // longer)
            size = max(1, size * self.length // longer)
        else:
            many = min(tasks, text_windows.windows_of(len(self._ids(split)), self.length, self.context))
        for n in range(0, many, size):
            yield min(size, many - n), {} if longer else {"first": n}

    def predict(self, model, p, batch):
        """(b, q, 2): the loss of each token in nats, and whether it has the greatest score; of a long text the last."""
        tokens, options = self.inputs(batch)
        if "read" in options and not model.sliding:         # RegularGPT has no pairs of all tokens
            y, loss = model.last(p, tokens, batch.target)
        else:
            y, saved = model.forward(p, tokens, **options)
            loss = saved.loss
        return array_module(y).stack([y, loss.hit.astype(y.dtype)], axis=-1)

    def write(self, model, p, prompt, tokens=500, temperature=1.0, top_k=0, seed=0, stop=""):
        """The prompt, then its continuation piece by piece.  Raises ValueError for what cannot be."""
        corpus = self.corpus()
        ids = corpus.encode(prompt)
        said = written(model, p, ids, tokens, temperature=temperature, top_k=top_k, seed=seed,
                       stop=corpus.encode(stop)[:1])
        return streamed(corpus, chain(ids.tolist(), said))

    def loss(self, y, batch):
        """Cross-entropy of the next token in nats, mean over all tokens."""
        share = batch.weight / batch.weight.sum()
        return (y * share).sum(), share

    def loss_terms(self, batch):
        return batch.weight.sum()

    def score(self, y, batch) -> dict:
        """Sums over each window: nats, right answers, unknown tokens, tokens."""
        weight, target = (x[:, -y.shape[1]:] for x in (batch.weight, batch.target))
        unknown = (target == 0) & (self.unit in ("characters", "words"))
        weighed = {"nats": y[..., 0], "right": y[..., 1], "unknown": unknown, "tokens": 1}
        return {name: (x * weight).sum(axis=1) for name, x in weighed.items()}

    def summary(self, scores) -> dict:
        total = {name: float(x.sum(dtype=np.float64)) for name, x in scores.items()}
        nats, accuracy, unknown = (total[name] / total["tokens"] for name in ("nats", "right", "unknown"))
        return {"bits": nats / math.log(2), "perplexity": math.exp(min(nats, 700)),         # exp(710) overflows
                "accuracy": accuracy, "unknown": unknown}

