"""docs/differences.md: what its rows on H and R name is there, and draws, or is set to, what they say."""

import inspect
import re
from pathlib import Path

import numpy as np

from refattn.layers.block import Block
from refattn.layers.stack import Stack
from refattn.models.regular_gpt import RegularGPT
from refattn.params import DECAY, decay_mask
from refattn.recipes.fuzzy_logic import FuzzyLogicRecipe
from refattn.recipes.regular_languages import RegularLanguagesRecipe
from refattn.recipes.text import TextRecipe
from refattn.tasks.languages import LANGUAGES

TABLES = re.split(r"\| what \| text of (?=[HCR])", (Path(__file__).parents[1] / "docs/differences.md").read_text(
    encoding="utf-8"))[1:]


def rows_of(paper):
    """{what: its other cells} of the table on a paper."""
    text = next(table for table in TABLES if table.startswith(paper))
    return {cells[1]: cells[2:-1] for line in text.splitlines() if len(cells := re.split(r" *(?<!\\)\| *", line)) > 4}


ROWS = rows_of("H")
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


def test_what_the_rows_on_r_say_of_the_launch_script_is_what_scale_paper_has():
    said = rows_of("R")
    recipes = [RegularLanguagesRecipe(**RegularLanguagesRecipe.scale("paper", {"language": name}), language=name)
               for name in LANGUAGES]
    numbers = [float(x.replace(",", "")) for x in re.findall(r"\d[\d,.]*\d", said["steps, rates"][1])]
    steps, rates = {r.steps for r in recipes}, {r.rate for r in recipes}
    assert numbers == [min(steps), max(steps), min(rates), max(rates)] and {r.chunk for r in recipes} == {2}
    assert {r.width for r in recipes} == {64, 256} and {r.evaluation for r in recipes} == {512}
    assert "512 words" in said["lengths of training and test"][1]
    for name, field in ("Transformer: blocks, steps, rate", "layers"), ("RNN: width, steps, rate", "states"):
        assert {str(getattr(r, field)) for r in recipes} == {re.match(r"\d+", said[name][2])[0]}, name
    assert said["options that are off"][2].startswith("`RegularGPT.forward(levels=)`")
    assert "levels" in inspect.signature(RegularGPT.forward).parameters
    assert said["languages"][0] == "the twelve of table 1" and len(LANGUAGES) == 12
