"""A fuzzy-logic recipe that trains in a blink, and ways to make it fail at a chosen step."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from refattn.recipes import FuzzyLogicRecipe, recipe

FIELDS = {"steps": 30, "batch": 4, "length": 8, "width": 8, "heads": 2, "hidden": 8, "evaluation": 40, "probe": 8,
          "log_every": 5, "evaluate_every": 10, "checkpoint_every": 4, "shards": 1}
OF_R = ("parity", "even_pairs", "modular_arithmetic", "cycle", "d2", "d3", "d4", "d12", "tomita3", "tomita4", "tomita5",
        "tomita6")             # the languages of R, of which there are published settings and records
FLAGS = [text for name, value in FIELDS.items() for text in (f"--{name.replace('_', '-')}", str(value))]


def tiny(**changes) -> FuzzyLogicRecipe:
    return recipe("fuzzy_logic", "quick", **{**FIELDS, **changes})


@dataclass(frozen=True, kw_only=True)
class Disturbed(FuzzyLogicRecipe):
    """Calls `disturb(step, batch)` in every training step, in a way that leaves the recipe's fields alone."""

    def turns(self, batch):
        if hasattr(self, "disturb"):
            self.__dict__["calls"] = self.__dict__.get("calls", -1) + 1
            batch = self.disturb(self.calls, batch) or batch
        return super().turns(batch)


def disturbed(disturb, **changes) -> Disturbed:
    made = Disturbed(**{**tiny(**changes).__dict__})
    made.__dict__["disturb"] = disturb
    return made


def final(path) -> dict:
    """The bytes that two runs must share: every array of the checkpoint, and metrics.jsonl."""
    with np.load(Path(path, "checkpoint.npz")) as file:
        arrays = {name: file[name].tobytes() for name in file.files if name != "header"}
    return {**arrays, "metrics.jsonl": Path(path, "metrics.jsonl").read_bytes()}
