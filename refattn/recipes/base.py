"""Recipe: what training needs to know about an experiment, with the settings that all experiments share."""

import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, ClassVar, get_type_hints

import numpy as np

from .. import refusals
from ..checks import check_integer, check_switch
from ..optim import warmup_cosine
from ..params import SCHEMES, count
from ..train.evaluation import stream
from ..xp import read_only, to_device

LEVELS = 1 << 16               # of the two random bytes that decide whether a factor stays


def setting(default, text: str, *, least=-math.inf, most=math.inf, choices: tuple = ()):
    """A field with its help text and what is allowed: one list for checks, flags and `--help`."""
    return field(default=default, metadata={"help": text, "least": least, "most": most, "choices": choices})


def check_multiple(made, name: str, of: str, even: bool = False) -> None:
    """Raises ValueError unless the field `name` is a multiple of the field `of`, and an even number if asked for."""
    value, part = getattr(made, name), getattr(made, of)
    if value % part or (even and value % 2):
        raise ValueError(f"{name} is {value}; allowed: {'even numbers that are ' * even}multiples of {of}, {part}")


types_of: Callable[[Any], dict] = lru_cache(get_type_hints)     # evaluates annotations that are strings


def check_fields(made) -> None:
    """Raises ValueError unless each field of a dataclass is as `setting` or its type says; NumPy's become Python's."""
    for f in fields(made):
        if hasattr(value := getattr(made, f.name), "dtype"):
            object.__setattr__(made, f.name, value := value.tolist())
        kind, choices = types_of(type(made))[f.name], f.metadata.get("choices")
        least, most = f.metadata.get("least", -math.inf), f.metadata.get("most", math.inf)
        if kind is bool:
            check_switch(f.name, value)
        elif kind is int:
            check_integer(f.name, value, least, most)
        elif kind is str:
            if not (value in choices if choices else isinstance(value, str)):
                raise ValueError(f"{f.name} is {reprlib.repr(value)}{refusals.choices(value, choices or ['text'])}")
        elif type(value) not in (int, float) or not (-math.inf < value < math.inf and least <= value <= most):
            raise ValueError(f"{f.name} is {reprlib.repr(value)}; allowed: numbers from {least:g} to {most:g}")


def dropout(rng, probability: float, shape, xp):
    """float32 factors in the module `xp`, drawn on the host: 0 with this probability, else 1 / (1 - probability)."""
    return to_device((rng.random(shape, np.float32) >= probability) * np.float32(1 / (1 - probability)), xp)


def dropout_mask(rng, probability: float, shape):
    """Booleans on the host, False with probability round(65,536 p) / 65,536: of two random bytes each, so in half the
    time of `dropout`."""
    return rng.integers(LEVELS, size=shape, dtype=np.uint16) >= round(LEVELS * probability)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One experiment: a task, a model, a loss, and how to train.  A subclass binds them with five methods:

    build()                       -> model with parameters(), forward(p, x, **options) and backward(p, saved, dy, grads)
    sample(rng, split, size)      -> a named tuple of host arrays, one row per sample; refuses a split it does not know
    inputs(batch)                 -> x, options of the model's forward
    loss(y, batch)                -> value, dy
    score(y, batch)               -> {name: numbers, one row for each sample or token} of one batch of an evaluation,
                                     from host arrays

    and says in capitals: TASK (its name in the registry), SOURCE, SPLITS, LABELS (metric -> words), TABLE (heading,
    split, metric of each column of results), SCALES (the first one is the default), and what a comparison varies:
    COMPARES (a field), COMPARED (its values when nobody says; none where there is nothing to compare).  What the other
    class variables and the methods below say holds for most; a subclass may say otherwise.

    A field of every batch is one row for each sample (`cut` may know better), the last one always.
    """

    build: ClassVar[Callable[..., Any]]
    sample: ClassVar[Callable[..., Any]]
    TASK: ClassVar[str]
    SOURCE: ClassVar[str]
    SPLITS: ClassVar[tuple[str, ...]]
    LABELS: ClassVar[dict[str, str]]
    TABLE: ClassVar[tuple]
    SCALES: ClassVar[dict[str, dict]]
    COUNTED = "samples per split"      # what `evaluation` counts
    FINITE = False                     # whether a split may have fewer of them
    DATA = ""                          # the module in `tasks`, where it has another name
    COMPARES = "attention"
    COMPARED: ClassVar[tuple] = ()
    TURNS = 1                          # updates of a step, each of its own part of the batch
    INITIAL: ClassVar[Mapping] = {}    # pattern of a parameter's name -> params.Init, where `initialise` does not hold
    CLIP_EPSILON: ClassVar[float] = 0.0            # what is added to the norm of a gradient that is clipped
    ADAM: ClassVar[Mapping] = {}       # beta1, beta2, epsilon where they are not the usual ones
    CHOSEN_BY: ClassVar[tuple | None] = None       # (split, metric, "least" or "most") of the parameters in best.npz

    seed: int = setting(0, "of split, initial weights, data and dropout", least=0, most=2**32 - 1)
    steps: int = setting(2_000, "steps of training", least=1, most=10**9)
    batch: int = setting(128, "samples per step", least=1, most=2**20)
    rate: float = setting(1e-3, "peak learning rate", least=0.0, most=1e3)
    decay: float = setting(0.1, "weight decay, times the scheduled rate", least=0.0, most=1e3)
    decay_rule: str = setting("released", "which arrays decay: as the released code, or as the text says",
                              choices=("released", "text", "none"))
    warmup: int = setting(100, "steps of linear warm-up; where --steps is given and this is not, at most a tenth",
                          least=0, most=10**9)
    schedule_length: str = setting("released", "cosine over steps - 2 warmup (released) or steps - warmup (text)",
                                   choices=("released", "text"))
    clip: float = setting(0.0, "largest global norm of the gradient; 0 for no clipping", least=0.0, most=1e30)
    initialise: str = setting("lecun_normal", "scheme of the initial weights",
                              choices=tuple(name for name in SCHEMES if name != "random"))
    evaluation: int = setting(16_000, "samples per split at the end", least=1, most=10**9)
    evaluation_batch: int = setting(0, "samples at a time in an evaluation, on which it depends which are drawn; 0: "
                                    "as in training", least=0, most=2**20)
    probe: int = setting(1_280, "samples per split during training", least=1, most=10**9)
    log_every: int = setting(20, "steps per log line", least=1, most=10**9)
    evaluate_every: int = setting(500, "steps per evaluation; a multiple of log_every", least=1, most=10**9)
    checkpoint_every: int = setting(100, "steps per checkpoint", least=1, most=10**9)
    shards: int = setting(1, "parts of an update's batch, whose gradients are summed in order: as many cores can share "
                          "it, and the last bits of a result depend on it", least=1, most=4_096)

    def __post_init__(self):
        check_fields(self)
        check_multiple(self, "evaluate_every", "log_every")
        self.rate_at(0)                                     # refuses a warm-up that leaves no step for a cosine

    @property
    def largest_shard(self) -> int:
        """Samples in the largest part of a batch: one process holds the activations of one part at a time."""
        return -(-self.batch // self.shards)

    def least_bytes(self) -> int:
        """Memory that training surely needs, in bytes: parameters, gradients, both moments, one temporary.

        A subclass adds activations of the largest shard.
        """
        return 5 * 4 * count(self.build().parameters())

    def data_read(self, resuming: bool = True) -> str | None:
        """What is read from files, with a checksum, so that a run goes on with nothing else; None: nothing.

        resuming : False asks for what gives the tokens of a trained network their meaning
        Raises ValueError where it is not there.
        """
        return None

    def chance(self) -> float | None:
        """What answers that ignore the question get, in the metric of TABLE's first column; None where nobody says."""
        return None

    @classmethod
    def first_scale(cls) -> str:
        """The scale when nobody says one."""
        return next(iter(cls.SCALES))

    @classmethod
    def compared(cls) -> tuple:
        """The values of the field that a comparison varies, when nobody says any: at least one."""
        default = cls.__dataclass_fields__[cls.COMPARES].default
        return cls.COMPARED or (cls.SCALES[cls.first_scale()].get(cls.COMPARES, default),)

    @classmethod
    def scale(cls, name: str, changes: dict) -> dict:
        """The settings of a scale; they may depend on what is changed."""
        return cls.SCALES[name]

    def drawn(self, size: int | None) -> int:
        """How many samples `sample` draws: `batch` unless given.  Raises ValueError for less than one."""
        return self.batch if size is None else check_integer("size", size)

    def draw(self, step: int):
        """The batch of a step, on the host: a function of seed and step alone."""
        return self.sample(stream(self.seed, "data", step), "train", self.batch)

    def turns(self, batch) -> list:
        """The TURNS parts of a step's batch, each of which makes an update, in order."""
        return [batch]

    def cut(self, batch, rows: slice):
        """These samples of a batch."""
        return type(batch)(*(x[rows] for x in batch))

    def loss_terms(self, batch) -> float:
        """What a part of a batch weighs in the loss of the whole: how many terms its mean is over."""
        return len(batch[-1])

    def dropouts(self, batch, rng, xp) -> dict:
        """Further options of the model's forward in training: what drops, drawn for the whole batch.

        Arrays of `xp`, also in lists, tuples and dicts; the first axis of each is that of the samples, of several rows
        for every sample, or has size 1 and serves them all.
        """
        return {}

    def batches(self, split: str, tasks: int):
        """(size, further arguments of `sample`) of each batch of an evaluation over so many samples."""
        size = self.evaluation_batch or self.batch
        for start in range(0, tasks, size):
            yield min(size, tasks - start), {}

    def asked(self, split: str, tasks: int):
        """The batches of an evaluation over so many samples, one after the other, on the host."""
        for number, (size, further) in enumerate(self.batches(split, tasks)):
            yield self.sample(stream(self.seed, "evaluation", number), split, size, **further)

    def predict(self, model, p, batch):
        """What is scored: the model's output, without dropout."""
        x, options = self.inputs(batch)
        return model.forward(p, x, **options)[0]

    def summary(self, scores: dict) -> dict:
        """{metric: number} from the scores of all batches joined: the mean of each; None for what has no score."""
        return {**dict.fromkeys(self.LABELS), **{name: float(np.mean(x, dtype=float)) for name, x in scores.items()}}

    def read_off(self, lines: list) -> dict:
        """{split: metrics}, beside those of SPLITS, that are read off all evaluations of a run, the last one included.

        `lines` are those of metrics.jsonl.
        """
        return {}

    @property
    def name(self) -> str:
        """Of the run and its directory."""
        return f"{getattr(self, self.COMPARES, self.TASK)}-seed{self.seed}"

    def rate_at(self, step: int) -> float:
        """The learning rate of step number `step`, from 0."""
        return warmup_cosine(step, rate=self.rate, steps=self.steps, warmup=self.warmup, length=self.schedule_length)


@dataclass(frozen=True, kw_only=True)
class ConstantRateRecipe(Recipe):
    """Without schedule and decay unless they are asked for, as C and R train."""

    decay: float = setting(0.0, "weight decay, times the rate", least=0.0, most=1e3)
    warmup: int = setting(0, "steps of linear warm-up", least=0, most=10**9)
    schedule_length: str = setting("released", "without effect here", choices=("released",))

    def rate_at(self, step: int) -> float:
        """The same at every step, after the warm-up."""
        return self.rate * min(1.0, (step + 1) / (self.warmup + 1))


@dataclass(frozen=True, kw_only=True)
class FiniteRecipe(Recipe):
    """Trained on a finite set, epoch by epoch; a subclass has a data() that knows, or has itself,

    size(split)           -> how many samples a split has
    take(split, index)    -> a named tuple of host arrays, the samples with these numbers

    and `sample` is not needed.  The order of epoch e is a permutation from stream(seed, "data", e), a step is a slice
    of it: nothing but the step is ever stored.  Evaluations read the first samples of a split, in order.
    """

    FINITE = True
    last_batch: str = setting("keep", "an epoch's last batch, if smaller: keep or drop it", choices=("keep", "drop"))

    @property
    def steps_per_epoch(self) -> int:
        """At least 1.  Raises ValueError where the batch is dropped that is the only one."""
        whole, rest = divmod(self.size("train"), self.batch)
        number = whole + (rest > 0 and self.last_batch == "keep")
        if not number:
            raise ValueError(f"batch is {self.batch}; allowed with last_batch drop: numbers up to the "
                             f"{self.size('train'):,} samples there are")
        return number

    def size(self, split):
        """How many samples a split has."""
        return self.data().size(split)

    def take(self, split, index):
        """The samples with these numbers."""
        return self.data().take(split, index)

    def draw(self, step: int):
        epoch, place = divmod(step, self.steps_per_epoch)
        return self.take("train", order(self.seed, epoch, self.size("train"))[place * self.batch:][:self.batch])

    def batches(self, split: str, tasks: int):
        return super().batches(split, min(tasks, self.size(split)))

    def asked(self, split: str, tasks: int):
        start = 0
        for size, _ in self.batches(split, tasks):
            yield self.take(split, np.arange(start, start + size))
            start += size


@lru_cache(maxsize=4)
def order(seed: int, epoch: int, size: int) -> np.ndarray:
    """The permutation of so many samples in an epoch."""
    return read_only(stream(seed, "data", epoch).permutation(size))
