"""Training on regular languages: published settings, lengths asked about, averages, and what every recipe promises."""

import json
from dataclasses import asdict

import numpy as np
import pytest

import refattn
from refattn import cli, params, train
from refattn.cli.comparison import otherwise
from refattn.recipes import SHORT, recipe
from refattn.recipes.per_word import Words
from refattn.recipes.regular_languages import ATTENTIONS
from refattn.reproduce.published import figures_for
from refattn.tasks.languages import LANGUAGES
from refattn.train import evaluate, fit, stop
from tests.steps import never_waits_nor_transfers_nor_widens
from tests.tiny import OF_R, final

TINY = {"steps": 12, "batch": 4, "width": 16, "states": 8, "train_length": 5, "max_length": 9, "far": 20,
        "evaluation": 6, "probe": 3, "log_every": 3, "evaluate_every": 6, "checkpoint_every": 4, "stride": 1}


def tiny(language="parity", **changes):
    return recipe(language, "quick", **{**TINY, **changes})


def test_every_language_is_a_task_and_has_published_settings():
    """Those of R; another language has no published ones."""
    assert set(LANGUAGES) <= set(SHORT)
    rows = {name: recipe(name, "paper") for name in OF_R}
    assert set(OF_R) <= set(LANGUAGES)
    assert {name for name, r in rows.items() if r.width == 256} == {"cycle", "even_pairs", "modular_arithmetic"}
    assert {name for name, r in rows.items() if r.max_length == 100} == {f"tomita{n}" for n in (3, 4, 5, 6)}
    steps = {name: r.steps for name, r in rows.items() if r.steps != 100_000}
    assert steps == {"cycle": 10_000, "even_pairs": 10_000, "modular_arithmetic": 1_000_000, "d12": 50_000}
    assert rows["d12"].train_length == 80 and rows["d3"].train_length == 40
    assert {r.rate for r in rows.values()} == {3e-5, 1e-4, 3e-4, 5e-4}
    caption = recipe("d3", "caption")
    assert (caption.train_length, caption.max_length, caption.rate) == (50, 100, 1e-4)
    assert asdict(recipe("cycle", "caption")) == asdict(rows["cycle"])
    for name, r in rows.items():
        assert (r.batch, r.clip, r.decay, r.initialise, r.rate_at(99), r.stride) == (128, 1, 0, "haiku", r.rate, 1)
        assert recipe("regular_languages", "paper", language=name) == r
        found, said = figures_for("regular_languages", {**asdict(r)}), recipe(name, "caption")
        assert found.figures["rnn"] and f"at {said.train_length + 1} to {said.max_length} symbols" in found.source


@pytest.mark.parametrize(("scale", "change", "words"), [
    ("paper", {}, ""), ("caption", {}, ""), ("paper", {"evaluation": 99}, ""), ("paper", {"stride": 5}, "stride 5 (1)"),
    ("caption", {"steps": 9}, "steps 9 (100,000)"), ("quick", {"train_length": 50, "max_length": 100}, "steps 2,000")])
def test_neither_the_scripts_nor_the_captions_settings_are_other_than_the_papers(scale, change, words):
    r = recipe("d2", scale, **change)
    said = otherwise(type(r), asdict(r), figures_for("regular_languages", asdict(r)).by)
    assert words in said and bool(said) == bool(words) and "length" not in said


def test_parameters_of_the_published_models():
    """The released ones have a row more in the embedding, which never occurs: 790,290, 50,130 and 4,275,202."""
    count = {name: params.count(recipe("parity", "paper", attention=name, width=width).build().parameters())
             for name, width in (("sliding_dilated", 64), ("transformer_xl", 256))}
    assert count == {"sliding_dilated": 50_130 - 64, "transformer_xl": 4_275_202 - 256}
    assert params.count(recipe("parity", "paper", width=256).build().parameters()) == 790_290 - 256


def test_a_step_has_one_length_and_all_lengths_come():
    r, seen = tiny(batch=2), set()
    for step in range(200):
        tokens, target, length = r.sample(np.random.default_rng(step))
        assert tokens.shape == (2, length[0]) and len(set(length)) == 1 and target.shape == (2,)
        seen.add(int(length[0]))
    assert seen == {1, 2, 3, 4, 5}


def test_the_two_averages_and_the_worst():
    """Lengths 6, 7, 100, 101 have 0, 1/2, 1, 1: published from 7 on, corrected from 6; each length counts once."""
    length = np.array([6, 6, 7, 7, 7, 7, 100, 101])
    right = np.array([0, 0, 1, 0, 1, 0, 1, 1])
    y = np.zeros((8, 1, 2))
    y[:, 0, 1] = right
    def metrics(recipe, n=slice(None)):
        return recipe.summary(recipe.score(y[n], Words(None, np.ones(8, int)[n], length[n])))

    found = metrics(tiny())
    assert found == {"accuracy": 2.5 / 3, "corrected": 2.5 / 4, "to_100": 0.5, "worst": 0.0, "last": 1.0}
    found = metrics(tiny(far=6), slice(2))             # split far, of length 6 alone
    assert found == {"accuracy": 0.0, "corrected": 0.0, "to_100": 0.0, "worst": 0.0, "last": 0.0}
    assert metrics(tiny(), slice(7, None))["to_100"] is None


def test_lengths_asked_about():
    r = tiny(max_length=30, stride=10)
    lengths = r.by_protocol.lengths
    assert [*lengths("longer")] == [10, 20, 30] and [*lengths("train")] == [5] and [*lengths("far")] == [20]
    asked = [(size, more["length"]) for size, more in r.batches("longer", 6)]
    assert asked == [(n, length) for length in (6, 7, 10, 20, 30) for n in (4, 2)]
    assert not [*tiny(attention="softmax").batches("far", 6)]
    wide = recipe("parity", "quick", attention="transformer_xl")
    assert max(size * 8 * more["length"]**2 for size, more in wide.batches("longer", 512)) <= 1 << 22
    with pytest.raises(ValueError, match="split is 'held_out'; allowed: train, longer, far"):
        r.sample(np.random.default_rng(0), "held_out")
    with pytest.raises(ValueError, match="split is 'held_out'; allowed: train, longer, far"):
        r.batches("held_out", 1)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_run_that_stops_resumes_to_the_same_bits(attention, tmp_path, monkeypatch):
    class StopAt(stop.Stop):
        left = 7

        def __call__(self):
            self.left -= 1
            return self.left < 0

    r = tiny(attention=attention)
    whole = fit(r, tmp_path / "whole", progress=False)
    monkeypatch.setattr(train, "Stop", lambda *_: StopAt())
    assert fit(r, tmp_path / "run", progress=False).step == 7
    monkeypatch.undo()
    resumed = fit(r, tmp_path / "run", resume=True, progress=False)
    assert final(tmp_path / "run") == final(tmp_path / "whole") and resumed.metrics == whole.metrics
    again, model, p = refattn.load(tmp_path / "run")
    assert again == r and evaluate(again, model, p, "longer") == whole.metrics["longer"]
    assert (whole.metrics["far"]["accuracy"] is None) == (attention in ("softmax", "transformer_xl"))


@pytest.mark.parametrize("changes", [{}, {"chunk": 3}, {"out_of_range": "mask"}, {"attention": "rnn"},
                                     {"attention": "transformer_xl"}, {"norm": "pre", "activation": "gelu"}])
def test_a_step_never_waits_nor_transfers_nor_widens(changes):
    r = tiny(**changes)
    never_waits_nor_transfers_nor_widens(r, r.sample(np.random.default_rng(0), length=5))


def test_the_command_line_compares_models_of_a_language(tmp_path, capsys):
    flags = [text for name, value in TINY.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    words = ["train", "even-pairs", "--attention", "sliding_dilated", "softmax", "--seed", "0", "1", *flags, "--json"]
    assert cli.main([*words, "--out", str(tmp_path / "runs")]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [row["attention"] for row in said["table"]] == ["sliding_dilated", "softmax"]
    assert said["table"][0]["published"]["mean"] == 0.893 and said["table"][1]["metrics"][5]["mean"] is None
    names = {path.name for path in (tmp_path / "runs").iterdir()}
    assert names == {f"even_pairs-{a}-seed{s}" for a in ("sliding_dilated", "softmax") for s in (0, 1)}


def test_there_is_no_chance_where_one_answer_is_right_at_some_lengths():
    """No string of odd length is a member of D_n or Tomita 5, so "no member" is right more often than half the time."""
    found = {name: recipe(name).chance() for name in LANGUAGES}
    assert {name for name, x in found.items() if x is None} == {"d2", "d3", "d4", "d12", "tomita5"}
    assert found["parity"] == found["tomita6"] == 0.5 and found["cycle"] == 0.2
