"""Recipe: what training needs to know about an experiment, with the settings that all experiments share."""

import math
import reprlib
from dataclasses import dataclass, field, fields
from difflib import get_close_matches

from ..optim import warmup_cosine
from ..params import SCHEMES, count


def setting(default, text: str, *, least=-math.inf, most=math.inf, choices: tuple = ()):
    """A field with its help text and what is allowed: one list for checks, flags and `--help`."""
    return field(default=default, metadata={"help": text, "least": least, "most": most, "choices": choices})


def check(name: str, value, kind: type, *, least=-math.inf, most=math.inf, choices=()) -> None:
    """Raises ValueError naming the setting, its value and what is allowed."""
    if kind is bool:
        ok, allowed = isinstance(value, bool), "True and False"
    elif kind is str:
        ok, allowed = value in choices if choices else isinstance(value, str), ", ".join(choices) or "text"
        near = get_close_matches(str(value), choices, n=1)
        allowed += f"; did you mean {near[0]}?" if near else ""
    else:
        number = isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
        ok = number and -math.inf < value < math.inf and least <= value <= most
        span = f"from {least:g} to {most:g}" if kind is float else f"from {least:,} to {most:,}"
        allowed = f"{'whole ' if kind is int else ''}numbers {span}"
    if not ok:
        raise ValueError(f"{name} is {reprlib.repr(value)}, allowed are {allowed}")


def check_fields(made) -> None:
    """`check` of every field of a dataclass whose fields are made by `setting`; NumPy's numbers become Python's."""
    for f in fields(made):
        if hasattr(getattr(made, f.name), "dtype"):
            object.__setattr__(made, f.name, getattr(made, f.name).tolist())
        allowed = {name: f.metadata[name] for name in ("least", "most", "choices")}
        check(f.name, getattr(made, f.name), f.type, **allowed)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One experiment: a task, a model, a loss, and how to train.  A subclass binds them with five methods:

    build()                       -> model with parameters(), forward(p, x, **options) and backward(p, saved, dy, grads)
    sample(rng, split, size)      -> a named tuple of host arrays, one row per sample
    inputs(batch, rng=None)       -> x, options of the model's forward; dropout is drawn from rng, absent at evaluation
    loss(y, batch)                -> value, dy
    metrics(y, batch)             -> {metric: number} from all outputs and the joined batches of an evaluation (host)

    and says in capitals: TASK (its name in the registry), SOURCE, SPLITS, LABELS (metric -> words), TABLE (heading,
    split, metric of each column of results), COMPARED (what is compared when nobody says), SCALES.
    """

    COUNTED = "samples per split"      # what `evaluation` counts

    seed: int = setting(0, "of split, initial weights, data and dropout", least=0, most=2**63 - 1)
    steps: int = setting(2_000, "updates", least=1, most=10**9)
    batch: int = setting(128, "samples per step", least=1, most=2**20)
    rate: float = setting(1e-3, "peak learning rate", least=0.0, most=1e3)
    decay: float = setting(0.1, "weight decay, times the scheduled rate", least=0.0, most=1e3)
    decay_rule: str = setting("released", "which arrays decay: as the released code, or as the text says",
                              choices=("released", "text", "none"))
    warmup: int = setting(100, "steps of linear warm-up; with --steps at most a tenth of them", least=0, most=10**9)
    schedule_length: str = setting("released", "cosine over steps - 2 warmup (released) or steps - warmup (text)",
                                   choices=("released", "text"))
    clip: float = setting(0.0, "largest global norm of the gradient; 0 for no clipping", least=0.0, most=1e30)
    initialise: str = setting("lecun_normal", "scheme of the initial weights",
                              choices=tuple(name for name in SCHEMES if name != "random"))
    evaluation: int = setting(16_000, "samples per split at the end", least=1, most=10**9)
    probe: int = setting(1_280, "samples per split during training", least=1, most=10**9)
    log_every: int = setting(20, "steps per log line", least=1, most=10**9)
    evaluate_every: int = setting(500, "steps per evaluation; a multiple of log_every", least=1, most=10**9)
    checkpoint_every: int = setting(100, "steps per checkpoint", least=1, most=10**9)

    def __post_init__(self):
        check_fields(self)
        if self.evaluate_every % self.log_every:
            raise ValueError(f"evaluate_every is {self.evaluate_every}, allowed are multiples of log_every, "
                             f"{self.log_every}")
        least = (2 if self.schedule_length == "released" else 1) * self.warmup + 1
        if self.steps < least:
            raise ValueError(f"warmup is {self.warmup}, which leaves no step of {self.steps} for the cosine; allowed "
                             f"are numbers up to {(self.steps - 1) * self.warmup // (least - 1)}")

    def least_bytes(self) -> int:
        """Memory that training surely needs, in bytes: parameters, gradients, both moments, one temporary."""
        return 5 * 4 * count(self.build().parameters())

    @classmethod
    def published(cls, settings: dict):
        """What the paper prints for runs with these fields, as far as it does; never measured here."""
        return cls.PUBLISHED

    @classmethod
    def scale(cls, name: str, changes: dict) -> dict:
        """The settings of a scale; they may depend on what is changed."""
        return cls.SCALES[name]

    def batches(self, split: str, tasks: int):
        """(size, further arguments of `sample`) of each batch of an evaluation over so many samples."""
        for start in range(0, tasks, self.batch):
            yield min(self.batch, tasks - start), {}

    def kept(self, batch):
        """What `metrics` needs of a batch, as a named tuple whose arrays can be joined."""
        return batch

    @property
    def name(self) -> str:
        """Of the run and its directory."""
        return f"seed{self.seed}"

    def rate_at(self, step: int) -> float:
        """The learning rate of update number `step`, from 0."""
        return warmup_cosine(step, rate=self.rate, steps=self.steps, warmup=self.warmup, length=self.schedule_length)


@dataclass(frozen=True, kw_only=True)
class ConstantRateRecipe(Recipe):
    """Without schedule and decay unless they are asked for, as C and R train."""

    decay: float = setting(0.0, "weight decay, times the rate", least=0.0, most=1e3)
    warmup: int = setting(0, "steps of linear warm-up", least=0, most=10**9)

    def rate_at(self, step: int) -> float:
        """The same at every step, after the warm-up."""
        return self.rate * min(1.0, (step + 1) / (self.warmup + 1))
