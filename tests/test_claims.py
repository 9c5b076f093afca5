"""Claims as paired differences: known numbers, the recorded runs, fresh runs, and what latent codes say."""

import importlib.util
import json

import numpy as np
import pytest

from refattn import cli
from refattn.recipes import RECIPES, recipe
from refattn.reproduce import codes, records
from refattn.reproduce.all_tables import TABLES
from refattn.reproduce.claims import CLAIMS, CODES, Claim, Claims, Side, attention, differences
from refattn.train import fit, runs
from tests.tiny import tiny

sklearn = pytest.mark.skipif(not importlib.util.find_spec("sklearn"), reason="scikit-learn is not installed")


def made(attention, seed, value, **fields):
    one = recipe("fuzzy_logic", "short", attention=attention, seed=seed, **fields)
    return {"task": "fuzzy_logic", "name": one.name, "fields": runs.describe(one)["fields"], "seconds": 10.0,
            "metrics": {"held_out": {"r2_per_task": value}}}


PAIRED = Claim("one", "H", "fuzzy_logic", attention((("hyla", "softmax"), ("hyla_deep", "linear"))), ("a",), "short")


def test_differences_are_paired_by_seed_and_averaged_over_pairs():
    given = {"hyla": [5, 6, 7], "softmax": [1, 3, 5], "hyla_deep": [2, 2, 2], "linear": [2, 1, 0]}
    found = [made(name, seed, float(x)) for name, row in given.items() for seed, x in enumerate(row)]
    assert differences(found, PAIRED) == {0: 2.0, 1: 2.0, 2: 2.0}
    assert differences(found[1:], PAIRED) == {1: 2.0, 2: 2.0}               # seed 0 lacks a side
    assert differences(found, PAIRED._replace(less=True)) == {0: -2.0, 1: -2.0, 2: -2.0}
    with pytest.raises(ValueError, match="one: hyla have steps 9 and 3000; allowed are runs that differ in the seed"):
        differences([*found, made("hyla", 3, 0.0, steps=9, warmup=1)], PAIRED)


@pytest.mark.parametrize("differ, verdict", [
    ([0.1, 0.2, 0.3], "no"), ([0.2, 0.21, 0.22], "yes"), ([-0.2, -0.21, -0.22], "yes, against the claim"),
    ([0.1], "one seed"), ([], "never run")])
def test_the_verdict_is_that_of_the_interval(differ, verdict):
    claim = PAIRED._replace(pairs=PAIRED.pairs[:1])
    found = [made(name, seed, x) for seed, x in enumerate(differ) for name, x in (("hyla", 1 + x), ("softmax", 1.0))]
    sheet = Claims(claims=(claim,)).sheet(found)
    row = dict(zip(sheet.headings, sheet.rows[0], strict=True))
    assert row["clear of zero"] == verdict and row["seeds"] == str(len(differ))
    if len(differ) == 3:
        half = 4.302653 * np.std(differ, ddof=1) / 3**0.5
        low, high = np.mean(differ) - half, np.mean(differ) + half
        assert row["95 % interval"] == f"{low:+.3f} to {high:+.3f}" and row["effect"] == f"{np.mean(differ):+.3f}"
        assert sheet.data[0]["clear_of_zero"] == (low > 0 or high < 0) and row["seconds a run"] == "10"
        assert "scale short): 3,000 steps of 128 samples, rate 0.003" in " ".join(sheet.notes)


def test_claims_name_runs_that_can_be_made_and_differ_in_what_they_are_about():
    for claim in CLAIMS:
        assert claim.scale in RECIPES[claim.task].SCALES
        for better, worse in claim.pairs:
            assert better != worse and set(better.fields) == set(worse.fields)
            for side in better, worse:
                recipe(claim.task, claim.scale, **side.fields)
    jobs = Claims().recipes(None, [0, 1])
    assert len(jobs) == len(set(jobs.values())) and {one.seed for one in jobs.values()} == {0, 1}


def test_the_sheet_is_recomputed_from_the_records(capsys):
    assert cli.main(["reproduce", "claims", "--json"]) == 0
    rows = {row["words"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    for claim in CLAIMS:
        known = [run for name in claim.records if name in records.names() for run in records.load(name)["runs"]]
        numbers = {}
        for better, worse in claim.pairs:
            for side, sign in (better, 1), (worse, -1):
                for run in known:
                    if all(run["fields"][name] == x for name, x in side.fields.items()):
                        numbers.setdefault(run["fields"]["seed"], []).append(
                            sign * run["metrics"][side.split][side.metric])
        whole = [sum(part) for part in numbers.values() if len(part) == 2 * len(claim.pairs)]
        found = rows[claim.words]
        assert len(found["differences"]) == len(whole)
        if whole:
            expected = np.mean(whole) / len(claim.pairs) * (-1 if claim.less else 1)
            np.testing.assert_allclose(found["effect"], expected, rtol=1e-9)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("codes")
    fit(tiny(layers=2, batch=32), out / "hyla-seed0", progress=False)
    fit(tiny(layers=2, batch=32, attention="linear"), out / "linear-seed0", max_seconds=1e-6, progress=False)
    return out


@sklearn
def test_codes_of_finished_runs_are_recorded(finished, tmp_path, capsys):
    file = tmp_path / "codes.json"
    assert codes.collect(file, [finished], count=200) == 1                  # the other run is not finished
    run, = records.load(file)["runs"]
    assert set(run["metrics"]) == {f"fixed {what}, layer {layer}" for what in ("context", "query") for layer in (1, 2)
                                   } | {"all layers"}
    assert set(run["metrics"]["fixed query, layer 2"]) == {
        f"{kind}{name}" for kind in ("", "shuffled ", "answer ") for name in ("term 1", "term 2", "any term")}
    again = tmp_path / "again.json"
    codes.collect(again, [finished], count=200)
    assert again.read_bytes() == file.read_bytes()
    for words in [], ["x.json"], [str(file), str(tmp_path / "nowhere")]:
        assert cli.main(["reproduce", "--codes", "--record", *words]) == 2
        assert capsys.readouterr().err.count("\n") == 1


@sklearn
def test_fresh_claims_train_and_read_the_codes(monkeypatch, tmp_path, capsys):
    side = Side({"attention": "hyla"}, "fixed query, layer 2", "any term")
    says = Claim("codes", "H", "fuzzy_logic", ((side, side._replace(metric="shuffled any term")),), CODES, "short")
    few = Claims(claims=(PAIRED._replace(pairs=PAIRED.pairs[:1]), says))
    monkeypatch.setitem(TABLES, "claims", few)
    small = {name: value for name, value in tiny(layers=2).__dict__.items() if name not in ("attention", "seed")}
    monkeypatch.setitem(RECIPES["fuzzy_logic"].SCALES, "short", small)
    assert cli.main(["reproduce", "claims", "--fresh", "--seed", "0", "1", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "never run" not in said
    assert {path.name for path in tmp_path.glob("fuzzy_logic/*")} == {f"{a}-seed{s}" for a in ("hyla", "softmax")
                                                                      for s in (0, 1)}
