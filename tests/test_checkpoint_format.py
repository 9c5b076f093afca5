"""docs/checkpoint_format.md lists what is in the files of a run, no more and no less (its example: test_readme)."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from refattn import params
from refattn.train import fit
from tests.tiny import tiny

TEXT = (Path(__file__).parents[1] / "docs" / "checkpoint_format.md").read_text(encoding="utf-8")
SECTIONS = dict(part.split("\n", 1) for part in TEXT.split("\n## ")[1:])


def keys(section: str) -> set[str]:
    """The names in the first column of a section's tables."""
    firsts = re.findall(r"^\| (`[^|]*) \|", SECTIONS[section] if section else TEXT.split("\n## ")[0], re.M)
    return set(re.findall(r"`([\w.]+)`", " ".join(firsts)))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("run")
    fit(tiny(), path, progress=False)
    return path


def test_files(run):
    assert {path.name for path in run.iterdir()} | {"best.npz", "curves.png", "error.txt"} == keys("")


def test_the_checkpoint(run):
    with np.load(run / "checkpoint.npz", allow_pickle=False) as file:
        assert {*file.files, "format", "layout", "meta"} == keys("checkpoint.npz")
        header, shapes = json.loads(str(file["header"])), {name: file[name].shape for name in file.files}
    assert header.keys() == {"format", "layout", "meta"} and header["format"] == params.FORMAT
    n = params.count(tiny().build().parameters())
    assert shapes == {"header": (), "parameters": (n,), "first": (n,), "second": (n,), "loss_sum": ()}
    assert {len(row) for row in header["layout"]} == {4} and f'"{params.FORMAT}"' in TEXT
    said = set(re.findall(r"`(\w+)`", next(line for line in TEXT.splitlines() if line.startswith("| `meta`"))))
    assert header["meta"].keys() | {"meta"} == said
    roles = next(line for line in TEXT.splitlines() if line.startswith("| `layout`")).rsplit("`role` is")[1]
    assert set(re.findall(r"`(\w+)`", roles)) == set(params.SCHEMES["random"])


def test_recipe_metrics_and_result(run):
    recipe, result = (json.loads((run / name).read_text()) for name in ("recipe.json", "result.json"))
    assert recipe.keys() == keys("recipe.json")
    assert result.keys() | {"best"} == keys("recipe.json") | keys("result.json") | set()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    splits = {"train", "held_out", "unseen_terms"}
    assert {name for line in lines for name in line} - splits == keys("metrics.jsonl") - splits
    assert set(result["versions"]) == {"refattn", "numpy", "python"} and set(result["metrics"]) == splits
