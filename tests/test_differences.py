"""docs/differences.md: what its rows on H name is there, and draws what they say."""

import inspect
import re
from pathlib import Path

import numpy as np

from refattn.layers.block import Block
from refattn.layers.stack import Stack
from refattn.params import DECAY, decay_mask
from refattn.recipes.fuzzy_logic import FuzzyLogicRecipe
from refattn.recipes.text import TextRecipe

TEXT, _ = (Path(__file__).parents[1] / "docs/differences.md").read_text(encoding="utf-8").split("| what | text of C")
ROWS = {cells[1]: cells[2:-1] for line in TEXT.splitlines() if len(cells := re.split(r" *(?<!\\)\| *", line)) > 4}
THERE = {"Stack": Stack, "Block.forward": Block.forward, "params.decay_mask": decay_mask}


def test_options_that_the_released_code_leaves_off_are_where_the_row_says():
    calls = re.findall(r"`([\w.]+)\(([^)]*)\)`", ROWS["options that are off"][2])
    assert [name for name, _ in calls] == list(THERE)
    for name, options in calls:
        assert set(re.findall(r"(\w+)=", options)) <= set(inspect.signature(THERE[name]).parameters), name
    assert "all" in DECAY


def test_dropout_of_pairs_is_shared_by_heads_and_samples_but_of_language_models():
    rng = np.random.default_rng(0)
    logic = FuzzyLogicRecipe(length=8)
    assert "shared over batch and heads" in ROWS["attention dropout"][1]
    assert {x.shape for x in logic.dropouts(logic.sample(rng), rng, np)["dropout"]} == {(1, 1, 8, 8)}
    text = TextRecipe(length=8, batch=3, heads=2, width=8, layers=1, attention_dropout=0.1)
    assert "a matrix for each head of each window" in ROWS["language modelling: dropout, length, steps"][2]
    assert {x.shape for x in text.dropouts(text.sample(rng), rng, np)["dropout"]} == {(3, 2, 8, 8)}
