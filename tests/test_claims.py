"""Statements of the papers: known numbers, the rule from intervals to verdicts, the recorded runs, and fresh ones."""

import importlib.util
import json
import os
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from refattn import cli
from refattn.recipes import RECIPES, recipe
from refattn.reproduce import claims, codes, published, records, statements, verdicts
from refattn.reproduce.all_tables import TABLES
from refattn.reproduce.claims import Claims, differences
from refattn.reproduce.statements import QUOTES, STATEMENTS, Comparison, Computed, Counted, Exact, Side, Statement
from refattn.reproduce.statements.evidence import sides
from refattn.reproduce.statistics import mean, quantile, student_t
from refattn.reproduce.table import differing, matches
from refattn.train import fit, runs
from refattn.verification.theorems import every
from tests.tiny import tiny

sklearn = pytest.mark.skipif(not importlib.util.find_spec("sklearn"), reason="scikit-learn is not installed")

VERDICTS = Path(__file__).parents[1] / "docs" / "verdicts.md"


def made(attention, seed, value, scale="short", **fields):
    one = recipe("fuzzy_logic", scale, attention=attention, seed=seed, **fields)
    return {"task": "fuzzy_logic", "name": one.name, "fields": runs.describe(one)["fields"], "seconds": 10.0,
            "metrics": {"train": {"r2_per_task": value - 1}, "held_out": {"r2_per_task": value}},
            "history": {"step": [1, 2, 3], "train.mse": [0.5, 0.3, 0.2], "held_out.mse": [value, value + 1, value + 2]}}


def compared(*pairs, **more):
    """A comparison of held-out R2 of these pairs of variants."""
    return Comparison("R2", "fuzzy_logic", sides(pairs, "held_out", "r2_per_task"), ("a",), "short", **more)


PAIRED = compared(("hyla", "softmax"), ("hyla_deep", "linear"))
ONE = compared(("hyla", "softmax"))


def table(*evidence) -> Claims:
    return Claims(statements=tuple(Statement(f"statement {n}", "H, figure 1", x) for n, x in enumerate(evidence)))


def test_differences_are_paired_by_seed_and_averaged_over_pairs():
    given = {"hyla": [5, 6, 7], "softmax": [1, 3, 5], "hyla_deep": [2, 2, 2], "linear": [2, 1, 0]}
    found = [made(name, seed, float(x)) for name, row in given.items() for seed, x in enumerate(row)]
    assert differences(found, PAIRED) == {0: 2.0, 1: 2.0, 2: 2.0}
    assert differences(found[1:], PAIRED) == {1: 2.0, 2: 2.0}               # seed 0 lacks a side
    assert differences(found, PAIRED._replace(less=True)) == {0: -2.0, 1: -2.0, 2: -2.0}
    assert differences(found, ONE._replace(beside=PAIRED.pairs[1:])) == {0: 4.0, 1: 2.0, 2: 0.0}
    assert differences(found, compared(("softmax", "hyla"), sizes=True, beside=PAIRED.pairs[1:])) == {
        0: 4.0, 1: 2.0, 2: 0.0}                                             # whichever is ahead
    assert differences(found, compared(("softmax", "hyla"), sizes=True), PAIRED.pairs[0][::-1]) == {
        0: -4.0, 1: -3.0, 2: -2.0}                                          # a pair alone has its sign
    with pytest.raises(ValueError, match="have steps 9 and 3000; allowed: runs that differ in the seed"):
        differences([run | {"record": "a"} for run in (*found, made("hyla", 3, 0.0, steps=9, warmup=1))], PAIRED)


def test_only_seeds_that_learned_what_is_given_count():
    found = [made(name, seed, x) for name, row in (("hyla", (5.0, 6.0)), ("softmax", (1.0, 3.0)))
             for seed, x in enumerate(row)]
    given = ONE._replace(given=("train", "r2_per_task", 1.0))
    assert differences(found, given) == {1: 3.0}
    found[1]["metrics"]["train"]["r2_per_task"] = None      # not finite
    assert differences(found, given) == {}
    found[0]["metrics"]["held_out"]["r2_per_task"] = None
    left = differences(found, ONE)      # a seed that failed counts: without it the claim looks better
    assert np.isnan(left[0]) and left[1] == 3.0
    row = table(ONE).sheet(found).data[0]
    assert row["verdict"] == verdicts.OPEN and row["effect"] is None and row["differences"] == {"0": None, "1": 3.0}
    assert "not finite" in table(ONE).sheet(found).rows[0]


def test_a_number_can_be_that_of_an_earlier_step_or_of_an_equal_training_loss():
    found = [made("hyla", 0, 5.0), made("softmax", 0, 1.0)]
    for at, index in (("step", 2), 1), (("train.mse", 0.3), 1), (("train.mse", 0.25), 2), (("step", 1), 0):
        pair = tuple(Side({"attention": name}, "held_out", "mse", at) for name in ("hyla", "softmax"))
        assert claims.reached(found[0]["history"], pair[0], *at) == 5.0 + index
        assert differences(found, ONE._replace(pairs=(pair,))) == {0: 4.0}
    never = tuple(side._replace(at=("train.mse", 0.1)) for side in pair)
    assert differences(found, ONE._replace(pairs=(never,))) == {}
    history = found[0]["history"]
    history["held_out.mse"][0] = history["train.mse"][0] = None         # not finite: the seed counts
    assert np.isnan(differences(found, ONE._replace(pairs=(pair,)))[0])
    assert claims.reached(history, pair[0], "train.mse", 1e9) == 6.0


# --- the rule --------------------------------------------------------------------------------------------------------

def test_p_values_are_those_of_students_t():
    """A sample whose t is the tabulated quantile has just that p."""
    for n, level in (3, 0.95), (8, 0.99):
        values = np.random.default_rng(n).standard_normal(n)
        values = (values - values.mean()) / values.std(ddof=1) * n**0.5 / quantile(level, n - 1) + 1      # mean 1
        assert np.isclose(verdicts.p_value(mean(values)), 1 - level, rtol=1e-6)
        assert np.isclose(verdicts.p_value(mean(-values)), 1 - level, rtol=1e-6)
        assert np.isclose(verdicts.p_value(mean(values - 1), margin=1.0), 1 - level, rtol=1e-6)
    assert verdicts.p_value(mean([1.0])) is None
    for n in 2, 8:                                          # as many tosses that fall alike, whichever side
        assert verdicts.p_value(mean([1.0] * n)) == verdicts.p_value(mean([-0.3] * n)) == 2 * 0.5**n
        assert verdicts.p_value(mean([0.1] * n), margin=0.2) == 2 * 0.5**n
    assert verdicts.p_value(mean([0.0, 0.0])) == 1
    for values in [0.998] * 3, [0.3 - 0.2, 0.2 - 0.1, 0.9 - 0.8]:           # the same but for rounding
        assert verdicts.p_value(mean(values)) == verdicts.p_value(mean(values), margin=1.0) == 0.25


def test_holms_adjustment_is_that_of_its_definition():
    rng = np.random.default_rng(0)
    for _ in range(20):
        p = rng.uniform(0, 0.1, 6)
        ordered = np.sort(p)
        slow = [min(1.0, max((6 - j) * ordered[j] for j in range(6) if ordered[j] <= x)) for x in p]
        np.testing.assert_allclose(verdicts.holm([*p, None])[:-1], slow)


@pytest.mark.parametrize("differ, scale, margin, said", [
    ([0.20, 0.21, 0.22], "short", 0, verdicts.SMALLER), ([0.20, 0.21, 0.22], "paper", 0, verdicts.SHOWN),
    ([-0.20, -0.21, -0.22], "short", 0, verdicts.AGAINST), ([-0.20, -0.21, -0.22], "paper", 0, verdicts.REFUTED),
    ([0.1, 0.2, 0.3], "short", 0, verdicts.OPEN), ([0.1], "short", 0, verdicts.ONE), ([], "short", 0, verdicts.NEVER),
    ([0.20, 0.21, 0.22], "short", 0.5, verdicts.SMALLER), ([0.20, 0.21, 0.22], "short", 0.1, verdicts.AGAINST)])
def test_the_verdict_is_that_of_the_interval(differ, scale, margin, said):
    found = [made(name, seed, x, scale) for seed, x in enumerate(differ)
             for name, x in (("hyla", 1 + x), ("softmax", 1.0))]
    sheet = table(ONE._replace(scale=scale, margin=margin)).sheet(found)
    row = dict(zip(sheet.headings, sheet.rows[0], strict=True))
    assert row["verdict"] == said and row["n"] == (str(len(differ)) if differ else "–")
    if len(differ) == 3:
        half = 4.302653 * np.std(differ, ddof=1) / 3**0.5
        low, high = np.mean(differ) - half, np.mean(differ) + half
        assert row["95 % interval"] == f"{low:+.3f} to {high:+.3f}" and row["effect"] == f"{np.mean(differ):+.3f}"
        assert row["seconds a run"] == "10"


def test_many_comparisons_of_one_paper_are_harder_to_pass():
    found = [made(name, seed, x) for seed, x in enumerate([0.20, 0.23, 0.26])
             for name, x in (("hyla", 1 + x), ("softmax", 1.0))]
    alone, = table(ONE).judged(found).values()
    many = list(table(*(ONE._replace(measured=f"R2 {n}") for n in range(20))).judged(found).values())
    assert alone["verdict"] == verdicts.SMALLER and {row["verdict"] for row in many} == {verdicts.SUGGESTED}
    assert np.isclose(many[0]["adjusted_p"], 20 * alone["p"])
    apart = Claims(statements=(*(Statement("s", "C, figure 1", ONE._replace(measured=f"R2 {n}")) for n in range(20)),
                               Statement("s", "R, figure 1", ONE)))
    assert list(apart.judged(found).values())[-1]["verdict"] == verdicts.SMALLER       # a family for each paper


def test_chosen_statements_are_adjusted_for_all_that_there_are():
    found = [made(name, seed, x) for seed, x in enumerate([0.20, 0.23, 0.26])
             for name, x in (("hyla", 1 + x), ("softmax", 1.0))]
    many = table(*(ONE._replace(measured=f"R2 {n}") for n in range(20)))
    one, = many.judged(found, ["statement 7"]).values()
    assert np.isclose(one["adjusted_p"], 20 * one["p"]) and one["verdict"] == verdicts.SUGGESTED


def test_counts_are_held_against_what_is_allowed():
    assert [verdicts.limited(x, 0.01, 0.5) for x in (0.4, 0.49, 0.51, 0.6)] == [
        verdicts.SHOWN, verdicts.OPEN, verdicts.OPEN, verdicts.REFUTED]
    assert verdicts.limited(0.5, 0.0, 0.5) == verdicts.SHOWN and verdicts.limited(0.51, 0.0, 0.5) == verdicts.REFUTED


# --- the statements --------------------------------------------------------------------------------------------------

def test_statements_name_runs_theorems_and_counts_that_there_are():
    names = {theorem for theorem in every() if "/" not in theorem}
    labels = Claims().labelled()
    assert len(labels) == len(STATEMENTS) and len({one.words for one in STATEMENTS}) >= 50
    assert {one.paper for one in STATEMENTS} == set("HCR")
    for one in STATEMENTS:
        assert one.evidence is not None or one.cost
        if isinstance(one.evidence, Exact):
            assert set(one.evidence.theorems) <= names
        if isinstance(one.evidence, Counted):
            assert (records.RECORDS / f"{one.evidence.record}.json").exists()


def test_comparisons_differ_in_what_they_are_about():
    for one in Claims().comparisons():
        assert one.scale in RECIPES[one.task].SCALES and one.pairs
        assert not one.margin or f"the same within {one.margin:g}" in one.measured
        for better, worse in one.all_pairs:
            others = {"states", "layers", "heads", "retrievals"}
            assert better != worse and better.fields.keys() >= worse.fields.keys() - others
            for side in better, worse:
                recipe(one.task, one.scale, **side.fields)
    jobs = Claims().recipes(None, [0, 1])
    assert {made for made in jobs.values()} == {recipe(one.task, one.scale, **side.fields, seed=seed)
                                                for one in Claims().comparisons() for side in one.every_side
                                                for seed in (0, 1)}


def test_multiply_adds_of_triangles_are_those_of_a_count_by_hand():
    """A token of width 256, 4 heads or searches of 64, selector 32, feed-forward 512; eq. (11) has r keys a search."""
    base, (whole, moved, printed) = 4 * 256**2 + 2 * 256 * 512, (
        one.evidence.number() for one in STATEMENTS if "multiply-adds" in one.words and one.paper == "C")

    def block(r, keys):
        return 3 * 256**2 + 256 * 64 * r + 256 * 4 * 32 + 4 * keys * 64 * 32 + 2 * 256 * 512

    assert moved == pytest.approx(max(abs(block(r, 1) / base - 1) for r in (1, 2, 4)))
    assert printed == pytest.approx(max(abs(block(r, r) / base - 1) for r in (1, 2, 4))) == 0.125
    between = 257 * 256                                                     # scores, and as many for a mixture
    assert whole == pytest.approx((block(4, 1) + 5 * between + 2 * 4 * 4 * 64) / (base + 2 * between) - 1)


def by_hand(one: Comparison, pairs) -> list[float]:
    """The differences of a comparison from the files, not with the code that rendered them."""
    numbers = {}
    for name in one.records:
        file = records.RECORDS / f"{name}.json"
        document = json.loads(file.read_text()) if file.exists() else {"runs": (), "fields": {}}
        for run in document["runs"]:
            fields = {**document["fields"], **run["fields"]}
            if one.given and run["metrics"][one.given[0]][one.given[1]] < one.given[2]:
                continue
            for at, pair in enumerate(pairs):
                for side, sign in zip(pair, (1, -1), strict=True):
                    if all(fields.get(key) == x for key, x in side.fields.items()):
                        history, number = run["history"], run["metrics"].get(side.split, {}).get(side.metric)
                        if side.at is not None:
                            column, level = np.array(history[side.at[0]]), side.at[1]
                            ahead = np.flatnonzero(column >= level if side.at[0] == "step" else column <= level)
                            number = history[f"{side.split}.{side.metric}"][ahead[0]] if len(ahead) else None
                        if number is not None:
                            numbers.setdefault(fields["seed"], {})[at, sign] = sign * number
    sign, whole = -1 if one.less else 1, [part for _, part in sorted(numbers.items()) if len(part) == 2 * len(pairs)]
    apart = np.array([[sign * (part[at, 1] + part[at, -1]) for at in range(len(pairs))] for part in whole])
    if len(pairs) < 2 or not whole:
        return [] if not whole else list(apart[:, 0])
    apart, own = abs(apart) if one.sizes else apart, len(one.pairs)
    return list(apart[:, :own].mean(axis=1) - (apart[:, own:].mean(axis=1) if one.beside else 0))


def test_no_p_is_below_zero():
    """P(|t| < level) may be rounded to more than 1 where the level is high."""
    assert 0 <= verdicts.p_value(mean([1 + 0.001 * (-1) ** i for i in range(9)])) < 1e-15


def test_the_note_below_the_table_says_how_each_p_is_computed(capsys):
    assert cli.main(["reproduce", "claims", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert any("against 0, or of its size against the margin of" in note for note in told["notes"])
    margins = 0
    for row in told["rows"]:
        x = np.array(list(row.get("differences", {}).values()), dtype=float)
        if len(x) < 2 or np.ptp(x) == 0:
            continue
        number, (margin,) = x.mean(), re.findall(r"the same within ([\d.]+)", row["measured"]) or [None]
        if margin is not None:
            number, margins = float(margin) - abs(number), margins + 1
        p = 1 - student_t(abs(number) / (x.std(ddof=1) / len(x)**0.5), len(x) - 1)
        assert row["p"] == pytest.approx(p, rel=1e-6, abs=1e-12)
    assert margins >= 6


def test_every_number_is_recomputed_from_its_record(capsys):
    assert cli.main(["reproduce", "claims", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == len(STATEMENTS)
    for one, row in zip(STATEMENTS, rows, strict=True):
        assert row["verdict"] in verdicts.ALL
        if isinstance(one.evidence, Computed):
            assert row["effect"] == one.evidence.number()
        if not isinstance(one.evidence, Comparison):
            continue
        lines = [(row, one.evidence.all_pairs)]
        if len(one.evidence.all_pairs) > 1:
            lines += zip(row["pairs"], ((pair,) for pair in one.evidence.all_pairs), strict=True)
        for line, pairs in lines:
            whole = by_hand(one.evidence, pairs)
            np.testing.assert_allclose(list(line["differences"].values()), whole, rtol=1e-9, atol=1e-12)
            if len(whole) > 1:
                half = quantile(0.95, len(whole) - 1) * np.std(whole, ddof=1) / len(whole)**0.5
                span = np.mean(whole) - half, np.mean(whole) + half
                np.testing.assert_allclose(line["interval_95"], span, rtol=0, atol=1e-9)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("codes")
    fit(tiny(layers=2, batch=32), out / "hyla-seed0", progress=False)
    fit(tiny(layers=2, batch=32, attention="linear"), out / "linear-seed0", max_seconds=1e-6, progress=False)
    return out


@sklearn
def test_codes_of_finished_runs_are_recorded(finished, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(codes, "COUNT", 200)
    file = tmp_path / "codes.json"
    assert codes.collect(file, [finished], "few codes") == (1, [str(finished / "linear-seed0")])
    assert records.load(file)["what"] == "few codes"
    run, = records.load(file)["runs"]
    assert set(run["metrics"]) == {f"fixed {what}, layer {layer}" for what in ("context", "query") for layer in (1, 2)
                                   } | {"all layers"}
    assert set(run["metrics"]["fixed query, layer 2"]) == {
        f"{kind}{name}" for kind in ("", "shuffled ", "answer ") for name in ("term 1", "term 2", "any term")} | {
        "answer explains", "both explain"}
    again = tmp_path / "again.json"
    codes.collect(again, [finished], "few codes")
    assert again.read_bytes() == file.read_bytes()
    for words in [], ["x.json"], [str(file), str(tmp_path / "nowhere")]:
        assert cli.main(["reproduce", "--codes", "--record", *words]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_run_of_which_no_codes_are_read_is_refused_with_all_tasks_of_which_some_are(tmp_path, capsys):
    fit(recipe("triangles", width=8, heads=2, searches=2, steps=1, batch=2, evaluation=2, probe=2), tmp_path / "run",
        progress=False)
    assert cli.main(["reproduce", "--codes", "--record", str(tmp_path / "new.json"), str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        "refattn reproduce: --record: task of the recipe is 'triangles'; allowed: fuzzy_logic, sraven, "
        "regular_languages, contextual_retrieval, text\n")


@sklearn
def test_fresh_claims_train_and_read_the_codes(monkeypatch, tmp_path, capsys):
    side = Side({"attention": "hyla"}, "fixed query, layer 2", "any term")
    few = table(ONE, ONE._replace(measured="codes", records=("some_codes",),
                                  pairs=((side, side._replace(metric="shuffled any term")),)),
                ONE._replace(measured="first evaluation", pairs=tuple(tuple(
                    x._replace(metric="mse", at=("step", 1)) for x in pair) for pair in ONE.pairs)))
    monkeypatch.setitem(TABLES, "claims", few)
    small = {name: value for name, value in tiny(layers=2).__dict__.items() if name not in ("attention", "seed")}
    monkeypatch.setitem(RECIPES["fuzzy_logic"].SCALES, "short", small)
    monkeypatch.setattr(codes, "COUNT", 200)
    assert cli.main(["reproduce", "claims", "--fresh", "--seed", "0", "1", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "never run" not in said
    assert {path.name for path in tmp_path.glob("fuzzy_logic/*")} == {f"{a}-seed{s}" for a in ("hyla", "softmax")
                                                                      for s in (0, 1)}


def test_fresh_runs_have_the_settings_of_those_recorded():
    table = Claims()
    runs, compared = table.recorded(), 0
    for one in table.comparisons():
        for side in one.every_side:
            for run in runs:
                if run["record"] in one.records and matches(run, one.task, side.fields):
                    fresh = asdict(recipe(one.task, one.scale, **side.fields, seed=run["fields"]["seed"]))
                    apart = [x for x in differing(run["fields"], fresh) if x[0] not in claims.ASKED]
                    assert not apart, f"{one.measured}: the fields of its sides lack what the runs have, {apart}"
                    compared += 1
    assert compared > 1_000


@pytest.mark.parametrize("changes", [{}, {"decay": 0.05}])
def test_fresh_runs_of_each_comparison_are_those_that_it_is_made_of(changes):
    """Also where another comparison, asked for or not, has runs that differ in what this one does not name."""
    table, rng = Claims(), np.random.default_rng(0)
    labels = [label for label, one in table.labelled().items() if isinstance(one.evidence, Comparison)]
    for only in [*([label] for label in labels[::5 if changes else 1]), ["HYLA generalises"], ["table 6"], ["PARITY"]]:
        made = table.recipes(None, (0, 1), only, **changes)
        wanted = table.comparisons(only)
        numbers = {(side.split, side.metric) for one in wanted for side in one.every_side}
        found = []
        for one in made.values():
            metrics = {split: {m: 0.9 + 0.1 * rng.random() for at, m in numbers if at == split} for split, _ in numbers}
            metrics.setdefault("train", {}).setdefault("accuracy", 1.0)
            found.append({"task": one.TASK, "name": one.name, "seconds": 1.0, "metrics": metrics,
                          "fields": runs.describe(one)["fields"],
                          "history": {"step": [1, 10**9], "train.loss": [0.5, 0.4], "held_out.loss": [0.5, 0.4]}})
        sheet = table.sheet(found, only)
        assert any("not the statement's: decay 0.05 (0.1)" in x or "not the statement's: decay 0.05 (0.0" in x
                   for x in sheet.notes) == bool(changes), sheet.notes[-1]
        for row in sheet.data:
            if "differences" in row:
                assert sorted(row["differences"]) == ["0", "1"], (only, row["measured"])


def test_rows_of_the_picture_can_be_told_apart():
    pytest.importorskip("matplotlib")
    table = Claims()
    axes = table.plot(table.sheet(table.recorded())).axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(labels) > 20 and len(set(labels)) == len(labels)
    assert axes.get_ylim() == (len(labels) - 0.5, -0.5)                     # every row is seen, the first one on top


def test_pairs_of_two_splits_say_which_and_those_that_are_taken_off_say_so():
    found = [made(name, seed, 5.0 + (name == "hyla")) for name in ("hyla", "softmax") for seed in range(2)]
    beside = sides([("hyla", "softmax")], "train", "r2_per_task")
    row, = table(ONE._replace(beside=beside)).judged(found).values()
    assert [pair["measured"] for pair in row["pairs"]] == ["hyla − softmax, held_out", "less hyla − softmax, train"]


def test_every_pair_of_a_statement_has_words_of_its_own():
    claims = TABLES["claims"]
    for label, row in claims.judged(claims.recorded()).items():
        words = [pair["measured"] for pair in row.get("pairs", ())]
        assert len(set(words)) == len(words), (label, words)


def test_codes_are_read_of_runs_of_chosen_statements_alone(monkeypatch):
    side, asked = Side({"attention": "hyla"}, "fixed query, layer 2", "any term"), []
    codes_of = ONE._replace(measured="codes", records=("some_codes",), pairs=((side, side),))
    monkeypatch.setattr(claims.records, "read_run", lambda path: None)
    monkeypatch.setattr(claims, "with_codes", lambda runs: asked.append([run["name"] for run in runs]) or [])
    found = [{**made(name, 0, 1.0), "path": "nowhere", "name": name} for name in ("hyla", "softmax")]
    for only in ["statement 0"], ["statement 1"], []:
        table(ONE, codes_of).after(found, only)
    assert asked == [[], ["hyla"], ["hyla"]]


def test_a_run_and_what_its_codes_say_are_one_run():
    claims = TABLES["claims"]
    sheet = claims.sheet(claims.recorded(), ["HYLA generalises better than softmax attention", "figure 2B"])
    assert sheet.runs == len({(run["fields"]["attention"], run["fields"]["seed"], run["step"], run["seconds"])
                              for run in claims.recorded() if run["record"].startswith("fuzzy_logic")
                              and run["fields"]["experts"] == 0
                              and run["fields"]["attention"] in ("hyla", "softmax")})


def test_what_papers_say_is_said_in_their_words():
    """Every statement has a quotation, or none where figures alone say it; all stand in the papers, where these are."""
    assert set(QUOTES) == {one.words for one in STATEMENTS} and sum(quote is None for quote in QUOTES.values()) == 7
    assert set(statements.PASSAGES) <= set(QUOTES)
    folder = Path(os.environ.get("REFATTN_DATA", ".")).parent / "papers"
    if not (files := {file.name[0]: file for file in folder.glob("[HCR]_*.txt")}):
        pytest.skip("the papers' texts are not beside the data")
    texts = {name: " ".join(file.read_text(encoding="utf-8").translate({ord("*"): None, ord("$"): None}).split())
             for name, file in files.items()}
    texts["H"] = texts["H"].replace("HYL A", "HYLA")                     # small capitals, read as two words
    for one in STATEMENTS:
        assert (QUOTES[one.words] or "") in texts[one.paper], one.words


def test_the_words_on_both_columns_of_table_a1_are_its_figures():
    hyla, no_nonlinearity, softmax = (published.TABLE_A1[n] for n in (3, 7, 9))
    words = " ".join(VERDICTS.read_text(encoding="utf-8").split())
    raven, logic = ([f"{100 * getattr(row, task)[0]:.2f}" for row in (softmax, hyla, no_nonlinearity)]
                    for task in ("sraven", "fuzzy_logic"))
    assert f'"performs poorly", {raven[0]} beside HYLA\'s {raven[1]}, and that the nonlinearity helps, ' in words
    assert (f"helps, {raven[2]} without it; on fuzzy logic the paper itself has {logic[0]} and {logic[2]} beside "
            f"{logic[1]}.") in words
    assert {run["fields"]["attention"] for run in records.load("sraven_quick")["runs"]} == {"softmax", "linear", "hyla"}


def test_what_is_said_of_two_models_is_asked_of_both():
    """Where a passage names linear and softmax attention, each has its line, and no quotation has a split name."""
    said = {quote: {words for words, other in QUOTES.items() if other == quote} for quote in QUOTES.values() if quote}
    both = [lines for quote, lines in said.items() if re.search("both linear and softmax|softmax and linear", quote)]
    assert len(both) == 2
    for lines in both:
        assert len(lines) == 2 and all(any(name in x for x in lines) for name in ("linear", "softmax")), lines
    assert not any("HYL A" in quote for quote in said)
