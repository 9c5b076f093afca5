"""What is recorded was made by the recipes as they stand, and says what its own numbers say."""

import json
from pathlib import Path

import numpy as np
import pytest

from refattn import params
from refattn.recipes import RECIPES, recipe
from refattn.rewrite import ROOT

FILES = sorted((ROOT / "recipes" / "results").glob("*.json"))
README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def record(name):
    return json.loads((ROOT / "recipes" / "results" / f"contextual_retrieval_{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_record_has_settings_that_its_recipe_takes(path):
    said = json.loads(path.read_text(encoding="utf-8"))
    RECIPES[said["task"]](**said["fields"])


def test_the_runs_of_table_6_are_its_first_cell_and_the_readme_counts_them():
    said = record("2s4r_64")
    for run in said["runs"]:
        chosen = {name: run[name] for name in ("attention", "held_out", "seed")}
        made = recipe("contextual_retrieval", "2s4r-64", **chosen)
        assert {name: getattr(made, name) for name in said["fields"]} == said["fields"]
        assert made.name == run["name"] and params.count(made.build().parameters()) == run["parameters"]
        assert run["step"] == made.steps and run["seconds"] > 0 and run["versions"]
    assert len({run["name"] for run in said["runs"]}) == len(said["runs"])
    assert len(said["runs"]) == 12 or f"{len(said['runs'])} of 12 runs" in README


def test_the_interval_of_the_separation_is_that_of_its_seeds():
    said = record("separation")
    made, found = recipe("contextual_retrieval", "quick"), said["result"]
    assert {name: getattr(made, name) for name in said["fields"]} == said["fields"]
    difference = np.subtract(found["softmax"], found["compositional"])
    assert len(difference) == found["n"] == len(found["seeds"]) == 8
    half = 2.364624 * difference.std(ddof=1) / 8**0.5                           # Student t, 7 degrees of freedom
    np.testing.assert_allclose(found["interval_95"], difference.mean() + np.array([-half, half]), atol=2e-4)
    assert ("is clear of zero" in said["verdict"]) == (found["interval_95"][0] > 0)
    assert f"{found['mean_difference']:.3f} on average" in README
