"""The protocol of Bhattamishra et al.: its strings, its targets, its score, and a training that learns."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest

from refattn import cli
from refattn.automata.finite import Automaton
from refattn.cli import options, training
from refattn.recipes import recipe
from refattn.recipes.regular_languages import ATTENTIONS
from refattn.reproduce.published import figures_for
from refattn.tasks import languages, per_position
from refattn.tasks.languages import LANGUAGES
from refattn.tasks.per_position import dyck, strings
from refattn.train import evaluate, fit, load, stream
from tests.refusals import refused
from tests.steps import never_waits_nor_transfers_nor_widens

MEMBERSHIP = [name for name, row in LANGUAGES.items() if row.members]
EACH = pytest.mark.parametrize("name", MEMBERSHIP)
TINY = {"protocol": "per_position", "steps": 12, "batch": 8, "width": 16, "states": 16, "train_length": 8,
        "max_length": 12, "far": 16, "strings": 40, "evaluation": 10, "probe": 6, "log_every": 3, "evaluate_every": 6,
        "checkpoint_every": 4}


def tiny(language="tomita4", **changes):
    return recipe(language, "quick", **{**TINY, **changes})


# ---------------------------------------------------------------- strings

@EACH
@pytest.mark.parametrize("window", [(2, 50), (51, 100), (100, 150)])
def test_strings_are_members_in_their_window_with_the_targets_of_the_automaton(name, window):
    shortest, longest = window
    tokens, target, weight = strings(np.random.default_rng(0), name, 300, shortest, longest)
    length, row = weight.sum(axis=1).astype(int), LANGUAGES[name]
    assert tokens.shape == weight.shape == (300, longest) and target.dtype == weight.dtype == np.float32
    assert shortest <= length.min() and length.max() <= longest
    for i, m in enumerate(length):
        word = tokens[i, :m]
        assert row.answer(word[None])[0] and not tokens[i, m:].any() and not target[i, m:].any()
        np.testing.assert_array_equal(weight[i], np.arange(longest) < m)
        states = [row.automaton.run(word[:j + 1])[-1] for j in range(m)] if i < 20 else row.automaton.run(word)
        np.testing.assert_array_equal(target[i, :m], [row.next_symbols[state] for state in states])
    if name[0] != "d":
        assert len({(m, word.tobytes()) for m, word in zip(length, tokens, strict=True)}) == 300


def test_a_language_that_the_paper_has_not_is_drawn_as_its_row_says(monkeypatch):
    """Tomita 2, (10)*, has members of even lengths alone: fair symbols would find none of 51 symbols or more."""
    row = languages.Language("Tomita 2", lambda tokens: 1, lambda rng, b, t: np.tile([1, 0], (b, t // 2)), Automaton(
        [[2, 1], [0, 2], [2, 2]], [1, 0, 0]), True, lambda t: t % 2 == 0, next_symbols=([0, 1], [1, 0], [0, 0]))
    monkeypatch.setitem(LANGUAGES, "tomita2", row)
    tokens, target, weight = strings(np.random.default_rng(0), "tomita2", 4, 53, 60)
    assert sorted(weight.sum(axis=1).tolist()) == [54, 56, 58, 60]
    assert (tokens[:, :54] == np.arange(1, 55) % 2).all() and target[0, :2].tolist() == [[1, 0], [0, 1]]


def test_what_a_language_is_called_does_not_say_how_it_is_drawn(monkeypatch):
    for name, row in ("doubled", LANGUAGES["tomita4"]), ("balanced", LANGUAGES["d2"]):
        monkeypatch.setitem(LANGUAGES, name, row)
        published = next(x for x in ("tomita4", "d2") if LANGUAGES[x] is row)
        a, b = (strings(np.random.default_rng(0), x, 30, 5, 9) for x in (name, published))
        assert all((x == y).all() for x, y in zip(a, b, strict=True))


def dyck_by_the_source(rng, n, room):
    """0 w 1, w from one level below, until `room` is reached; the target of w is a part of `room` itself."""
    word = ""
    while n and room > 0 and len(word) < room:
        word += f"0{dyck_by_the_source(rng, n - 1, int(0.1 * 0.75 * room * rng.standard_normal() + 0.75 * room))}1"
    return word


@pytest.mark.parametrize(("n", "room"), [(1, 7), (2, 12), (3, 9), (4, 20), (12, 14)])
def test_dyck_strings_are_distributed_as_by_one_recursion_each(n, room):
    """Counts of all words in two samples of 4,000: Pearson's statistic within 5 deviations of its mean."""
    number, rng, counts = 4_000, np.random.default_rng(1), {}
    for side, words in enumerate((dyck(rng, n, np.full(number, room)),
                                  [dyck_by_the_source(rng, n, room) for _ in range(number)])):
        for word in words:
            counts.setdefault(word, [0, 0])[side] += 1
    statistic, free = sum((a - b) ** 2 / (a + b) for a, b in counts.values()), len(counts) - 1
    assert abs(statistic - free) <= 5 * math.sqrt(2 * free)
    assert n == 1 or any(len(word) > room + 1 for word in counts)           # longer than asked for


def test_lengths_are_uniform_in_tomita_3_and_4_and_stop_in_tomita_5_and_6():
    number, rng = 20_000, np.random.default_rng(2)
    for name in "tomita3", "tomita4":
        _, length = per_position.draw(rng, name, number, 11, 30)
        counts = np.bincount(length, minlength=31)[11:]
        assert len(length) == number and ((counts - 1000) ** 2 / 1000).sum() < 19 + 5 * math.sqrt(38)
    for name, share in ("tomita5", lambda m: (m % 2 == 0) / 2), ("tomita6", lambda m: 1 / 3):
        _, length = per_position.draw(rng, name, number, 9, 31)             # stop with probability 1 / 21
        survive = (20 / 21) ** np.arange(32)
        expected = np.array([survive[m] * (1 if m == 31 else 1 / 21) * share(m) for m in range(32)]) * number
        counts = np.bincount(length, minlength=32)
        assert np.abs(counts - expected)[9:].max() < 6 * math.sqrt(expected.max()) and not counts[:9].any()


def test_too_few_strings_and_other_languages_are_refused(tmp_path):
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="9 strings are asked for, but 101,000 tries found 2 of Tomita 5 with 2 to 3"):
        strings(rng, "tomita5", 9, 2, 3)
    words = "tomita5 --protocol per_position --train-length 4 --out"
    with pytest.raises(options.Usage, match="10,500 strings are asked for, but"):         # before a run begins
        training.plan([*words.split(), str(tmp_path / "run")])
    with pytest.raises(ValueError, match="language is 'parity'; allowed: d2, d3, d4, d12, tomita3"):
        strings(rng, "parity", 9, 2, 10)
    with pytest.raises(ValueError, match="longest is 3; allowed: whole numbers of at least 4"):
        strings(rng, "d2", 9, 4, 3)
    with pytest.raises(ValueError, match="strings is 0; allowed: whole numbers of at least 1"):
        strings(rng, "d2", 0, 2, 3)


# ---------------------------------------------------------------- the recipe

def test_settings_of_the_source_and_of_the_other_protocol():
    r = recipe("d3", "paper", protocol="per_position")
    assert (r.batch, r.steps, r.strings, r.evaluation) == (32, 7_812, 10_000, 500)
    assert (r.train_length, r.max_length, r.far) == (50, 100, 150)
    assert recipe("d3", "paper").protocol == "released" and "per_position" not in recipe("d3").name
    assert r.name == "d3-sliding_dilated-per_position-seed0"
    assert figures_for("regular_languages", asdict(r)).figures == {}
    assert recipe("tomita5", "quick", protocol="per_position", steps=7).steps == 7


def test_test_strings_are_not_among_those_trained_on_and_batches_are_as_wide_as_needed():
    r = tiny()
    everything = r.by_protocol.corpora["train"]
    keys = {(w.sum(), t.tobytes()) for t, w in zip(everything.tokens, everything.weight, strict=True)}
    assert len(keys) == len(everything.tokens) == 50
    trained = {t.tobytes() for t in everything.tokens[:40]}
    for step in range(20):
        tokens, target, weight = r.sample(stream(0, "data", step))
        assert tokens.shape[1] == weight.sum(axis=1).max() and target.shape == (*tokens.shape, 2)
        padded = np.pad(tokens, ((0, 0), (0, 8 - tokens.shape[1])))
        assert {t.tobytes() for t in padded} <= trained
    for split, longest in ("train", 8), ("longer", 12), ("far", 16):
        asked = [r.sample(None, split, size, **more) for size, more in r.batches(split, 10)]
        assert [b.tokens.shape for b in asked] == [(8, longest), (2, longest)]
        first = 40 if split == "train" else 0
        whole = r.by_protocol.corpora[split].tokens[first:first + 10]
        np.testing.assert_array_equal(np.concatenate([b.tokens for b in asked]), whole)
    assert r.sample(np.random.default_rng(0), "far").tokens.shape[0] == 8
    assert r.sample(np.random.default_rng(0), "far", 3, 20).tokens.shape == (3, 20)         # of one length: analyses


def test_a_string_counts_only_if_every_position_is_right():
    r = tiny("tomita5")
    batch = r.sample(None, "longer", 4, start=0)
    y = (batch.target * 2 - 1) * batch.weight[..., None] + 5 * (1 - batch.weight[..., None])
    assert r.summary(r.score(y, batch)) == {**dict.fromkeys(r.LABELS), "accuracy": 1}
    y[1, 0, 0] *= -1
    y[3, int(batch.weight[3].sum()) - 1, 1] *= -1
    assert r.summary(r.score(y, batch))["accuracy"] == 0.5


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_outputs_see_the_past_only_and_padding_has_no_gradient(attention):
    r = tiny("tomita6", attention=attention)
    f = fit(r, progress=False)
    batch = r.sample(None, "far", 5, start=0)
    other = batch._replace(tokens=np.where(batch.weight == 0, 1, batch.tokens))
    a, b = (f.model.forward(f.parameters, *r.inputs(x)[:1])[0] for x in (batch, other))
    inside = batch.weight == 1
    np.testing.assert_allclose(a[inside], b[inside], rtol=1e-5, atol=1e-6)
    _, dy = r.loss(a, batch)
    assert dy.dtype == np.float32 and not dy[~inside].any() and np.abs(dy[inside]).min() > 0


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_step_never_waits_nor_transfers_nor_widens(attention):
    r = tiny("d2", attention=attention)
    never_waits_nor_transfers_nor_widens(r, r.sample(np.random.default_rng(0)))


def test_it_learns_tomita_4_and_reads_it_back(tmp_path):
    """Every position of every string, of lengths three times those of training too."""
    r = tiny(steps=300, rate=3e-3, batch=32, width=32, heads=4, train_length=16, max_length=32, far=48, strings=1_000,
             evaluation=100, probe=10, log_every=50, evaluate_every=150, checkpoint_every=150)
    untrained = fit(replace(r, steps=1, warmup=0), progress=False).metrics["longer"]
    done = fit(r, tmp_path / "run", progress=False)
    assert untrained["accuracy"] < 0.1 and min(m["accuracy"] for m in done.metrics.values()) > 0.95
    assert evaluate(*load(tmp_path / "run"), "far") == done.metrics["far"]


@pytest.mark.parametrize(("language", "changes", "message"), [
    ("parity", {}, "protocol is 'per_position'; allowed for parity: 'released'"),
    ("cycle", {}, "protocol is 'per_position'; allowed for cycle: 'released'"),
    ("d2", {"far": 11}, "far is 11; allowed with protocol per_position: numbers from 12 on"),
    ("d2", {"train_length": 1}, "train_length is 1; allowed with protocol per_position: numbers from 2 on"),
    ("d2", {"protocol": "all"}, "protocol is 'all'; allowed: released, per_position"),
])
def test_settings_are_refused(language, changes, message):
    refused(message, tiny, language, **changes)


def test_samples_are_refused():
    r = tiny()
    with pytest.raises(ValueError, match="tasks is 11; allowed: numbers up to 10"):
        list(r.batches("far", 11))
    with pytest.raises(ValueError, match="split is 'held_out'; allowed: train, longer, far"):
        list(r.batches("held_out", 1))


def test_the_command_line(tmp_path, capsys):
    flags = [text for name, value in TINY.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    words = ["train", "tomita5", "--attention", *ATTENTIONS, "--seed", "0", *flags, "--json", "--out", str(tmp_path)]
    assert cli.main(words) == 0
    said = json.loads(capsys.readouterr().out)
    assert [row["attention"] for row in said["table"]] == [*ATTENTIONS]
    for row in said["table"]:
        means = {m["heading"]: m["mean"] for m in row["metrics"]}
        assert means["longer words"] is not None and means["far"] is not None and means["worst length"] is None
        assert row["published"] is None
    assert cli.main(["train", "parity", "--protocol", "per_position", "--out", str(tmp_path / "no")]) == 2
    error = capsys.readouterr().err.strip()
    assert error.endswith("protocol is 'per_position'; allowed for parity: 'released'") and "\n" not in error


@pytest.mark.parametrize("name", ["tomita3", "tomita4", "tomita5", "tomita6"])
def test_the_first_strings_are_distributed_as_the_last(name):
    """Those trained on, and those asked about: in the order in which they are found short ones lead."""
    length = strings(np.random.default_rng(4), name, 4_000, 2, 30).weight.sum(axis=1)
    first, last = length[:3_000], length[3_000:]
    assert abs(first.mean() - last.mean()) < 4 * length.std() * math.sqrt(1 / 3_000 + 1 / 1_000)
    assert set(np.flatnonzero(length < 7) // 1_000) == {0, 1, 2, 3}
