"""Recipes of ESBN's tasks and of SCAN: published sizes, initial values, losses, dropout, decoding, refusals."""

from functools import partial
from math import sqrt

import numpy as np
import pytest

from refattn import cli, optim, params
from refattn.recipes import recipe
from refattn.recipes.scan import dropouts
from refattn.reproduce.published import TABLE_4, figures_for
from refattn.tasks import scan as task
from refattn.train import evaluate, fit
from refattn.train.evaluation import moved, stream
from refattn.train.record import State
from refattn.verification.theorems.statement import filled
from refattn.xp import to_host
from tests import strict_cupy
from tests.refusals import refused

TINY = {"steps": 2, "log_every": 1, "evaluate_every": 2, "evaluation": 8, "probe": 8}
SMALL_SCAN = {**TINY, "width": 16, "hidden": 8, "heads": 2, "batch": 4, "evaluation_batch": 4}


@pytest.mark.parametrize(("problem", "hold_out", "epochs", "steps"), [
    ("same_different", 50, 50, 154), ("same_different", 95, 100, 2), ("same_different", 98, 100, 1),
    ("rmts", 0, 50, 313), ("rmts", 85, 50, 313), ("rmts", 95, 200, 15), ("distribution_of_three", 95, 150, 12),
    ("identity_rules", 50, 50, 313), ("identity_rules", 95, 50, 270)])
def test_epochs_are_the_published_ones_and_keep_the_last_batch(problem, hold_out, epochs, steps):
    one = recipe(problem, "paper", hold_out=hold_out)
    assert (one.steps_per_epoch, one.steps, one.batch, one.rate) == (steps, epochs * steps, 32, 5e-4)
    assert recipe(problem, "quick", hold_out=hold_out).steps == epochs // 10 * steps
    assert len(one.draw(steps - 1).target) == one.size("train") - 32 * (steps - 1)


@pytest.mark.parametrize(("attention", "retrievals", "count"), [
    ("softmax", 1, 429_922), ("compositional", 1, 432_258), ("compositional", 2, 434_322),
    ("compositional", 4, 438_450), ("compositional", 6, 442_578), ("compositional", 8, 446_706)])
def test_parameters_of_esbn(attention, retrievals, count):
    for problem, more in ("rmts", 0), ("identity_rules", 514):
        one = recipe(problem, "paper", attention=attention, retrievals=retrievals)
        assert params.count(one.build().parameters()) == count + more


@pytest.mark.parametrize(("fields", "count"), [
    ({"attention": "softmax"}, 332_551), ({"retrievals": 1}, 339_178), ({"retrievals": 2}, 345_322),
    ({"retrievals": 4}, 357_610), ({"retrievals": 8}, 382_186), ({"retrievals": 2, "selector_width": 32}, 394_906)])
def test_parameters_of_scan(fields, count):
    assert params.count(recipe("scan", "paper", **fields).build().parameters()) == count


def initial(one):
    state = State(one, one.build().parameters(), np)
    return state.parameters


def test_initial_values_of_esbn_are_those_of_the_code():
    for attention in "softmax", "compositional":
        p = initial(recipe("rmts", "paper", attention=attention))
        expected = [(p.convs[1].k, sqrt(2 / 512)), (p.encoder.w1, sqrt(2 / 512)), (p.encoder.w2, sqrt(2 / 256)),
                    (p.block.attention.wq, sqrt(1 / 256)), (p.block.attention.wo, sqrt(2 / 256)),
                    (p.block.feed_forward.w1, sqrt(2 / 128)), (p.readout.w1, sqrt(2 / 128)),
                    (p.readout.w2, sqrt(2 / 258))]
        if attention == "compositional":
            expected += [(p.block.attention.wv, sqrt(1 / (128 + 16))), (p.block.attention.wr, sqrt(1 / 32))]
        for x, deviation in expected:
            assert abs(x.std() / deviation - 1) < 4 / sqrt(x.size)
        assert not p.encoder.b1.any() and not p.block.attention.bq.any() and (p.context.scale == 1).all()


def test_initial_values_of_scan_are_those_of_the_code():
    p = initial(recipe("scan", "paper", retrievals=2))
    block = p.decoder.block
    for x, bound in ((block.attention.wq, sqrt(6 / 256)), (block.cross.wv, sqrt(6 / 160)), (block.cross.wo,
                     sqrt(6 / 256)), (block.feed_forward.w1, sqrt(2) * sqrt(6 / 384)), (block.feed_forward.w2,
                     sqrt(6 / 384)), (block.attention.ws, sqrt(1 / 128)), (block.feed_forward.b1, sqrt(1 / 128))):
        assert 0.95 * bound < np.abs(x).max() <= bound * (1 + 1e-6)
    assert abs(p.source.table.std() - 1) < 0.1 and not p.readout.b.any()


def test_scan_clips_as_its_code_does(monkeypatch):
    """PyTorch adds 1e-6 to the norm; the other codes nothing."""
    asked = []
    monkeypatch.setattr(optim, "clip_by_global_norm", lambda *given: asked.append(given[1:]))
    for name, changes in ("scan", {"width": 8, "heads": 2, "hidden": 8, "layers": 1}), ("parity", {"width": 8}):
        fit(recipe(name, steps=1, batch=2, evaluation=2, probe=2, **changes), progress=False)
    assert asked == [(5.0, 1e-6), (1.0, 0.0)]


@pytest.mark.parametrize("fields", [{"attention": "softmax"}, {"retrievals": 2, "scoring": "dot"}])
def test_what_is_asked_of_scan_is_the_next_action(fields):
    """The decoder sees END and all actions but the last, and no padding counts in the loss."""
    one = recipe("scan", "quick", **SMALL_SCAN, **fields)
    batch = one.draw(0)
    x, options = one.inputs(batch)
    np.testing.assert_array_equal(options["target"][:, 1:], batch.target[:, :-1])
    assert (options["target"][:, 0] == task.END).all() and (options["source_keep"].sum(axis=-1).ravel()
                                                            == batch.source_length).all()
    y = np.random.default_rng(0).standard_normal((4, 27, 7))
    loss, dy = one.loss(y, batch)
    terms = [np.log(np.exp(y[b, t]).sum()) - y[b, t, batch.target[b, t]] for b in range(4)
             for t in range(batch.length[b] + 1)]
    assert np.isclose(loss, np.mean(terms)) and len(terms) == one.loss_terms(batch)
    for b in range(4):
        assert not dy[b, batch.length[b] + 1:].any() and dy[b, :batch.length[b] + 1].any(axis=-1).all()


@pytest.mark.parametrize(("fields", "pairs"), [({"attention": "softmax"}, True), ({}, False),
                                               ({"attention": "softmax", "attention_dropout": False}, False)])
def test_scan_drops_pairs_of_softmax_attention_alone(fields, pairs):
    one = recipe("scan", "paper", **fields)
    batch = one.draw(0)
    options = one.dropouts(batch, stream(0, "dropout"), np)
    assert ("dropout" in options["encoder"]) == ("context_dropout" in options["decoder"]) == pairs
    found = [options["source_dropout"], options["target_dropout"], *map(np.array, options["encoder"].values()),
             *map(np.array, options["decoder"].values())]
    for x in found:
        assert set(np.unique(x)) == {0, np.float32(65_536 / 58_982)}
        assert abs((x == 0).mean() - 0.1) < 5 * sqrt(0.09 / x.size)
    assert np.shape(options["decoder"]["residual"]) == (3, 3, 256, 27, 128) and len(options["encoder"]["hidden"]) == 3
    assert "encoder" not in one.inputs(batch)[1]


def test_dropouts_come_from_one_draw():
    one, two = dropouts(np.random.default_rng(0), 0.5, [(2, 3), (4,)], np)
    whole, = dropouts(np.random.default_rng(0), 0.5, [(10,)], np)
    np.testing.assert_array_equal(np.concatenate([one.ravel(), two]), whole)
    bits = np.random.default_rng(0).integers(65_536, size=10, dtype=np.uint16)      # bit for bit what it always was
    np.testing.assert_array_equal(whole, np.where(bits >= 32_768, np.float32(2), 0))


def test_scan_is_scored_on_whole_splits_by_what_is_decoded():
    one = recipe("scan", "quick", **SMALL_SCAN, cutoff=47)
    model, p = one.build(), initial(one)
    batches = list(one.asked("longer", 10_000))
    assert sum(len(batch.target) for batch in batches) == one.size("longer") and batches[0].target.shape[1] == 49
    said = [one.predict(model, p, batch) for batch in batches[:2]]
    assert all(x.shape[1] <= 49 for x in said)
    assert one.score(batches[0].target, batches[0])["accuracy"].all()
    assert set(evaluate(one, model, p, "held_out", tasks=8)) == {"accuracy"}


DEVICE = {"rmts": partial(recipe, "rmts", "paper", hold_out=95, width=16, heads=2, batch=4),
          "scan, softmax": partial(recipe, "scan", "paper", width=16, hidden=8, heads=2, batch=4, attention="softmax"),
          "scan, dot": partial(recipe, "scan", "paper", width=16, hidden=8, heads=2, batch=4, scoring="dot")}


@pytest.mark.parametrize("make", DEVICE.values(), ids=DEVICE)
def test_a_step_on_a_device_is_that_of_the_host_and_does_not_wait(make):
    one = make()
    model, results = one.build(), []
    listed = model.parameters()
    for module in np, strict_cupy:
        (flat, p), (total, grads) = (params.allocate(listed, np.float32, module) for _ in range(2))
        params.initialise(flat, listed, np.random.default_rng(0), one.initialise, one.INITIAL)
        for _ in range(2):                               # tables are uploaded in the first
            batch = moved(one.draw(0), module)
            total[...] = 0
            with strict_cupy.count() as counted:
                x, options = one.inputs(batch)
                options |= one.dropouts(batch, stream(0, "dropout"), module)
                y, saved = model.forward(p, x, **options)
                loss, dy = one.loss(y, batch)
                model.backward(p, saved, dy, grads)
        assert counted.sync == counted.d2h == 0 and counted.h2d <= 1            # the dropout
        said = one.predict(model, p, batch)
        results.append((float(loss), to_host(total), to_host(said)))
    host, device = results
    assert np.isclose(host[0], device[0], rtol=1e-5) and host[2].shape[0] == device[2].shape[0] == 4
    if one.TASK == "scan":                                  # slopes of constant features are rounding: gradients differ
        assert np.abs(host[1] - device[1]).max() < 1e-4 * np.abs(host[1]).max()
        np.testing.assert_array_equal(host[2], device[2][:, :host[2].shape[1]])


@pytest.mark.parametrize("make", [
    partial(recipe, "rmts", "quick", hold_out=95, **TINY), partial(recipe, "scan", "quick", **SMALL_SCAN),
    partial(recipe, "scan", "quick", **SMALL_SCAN, attention="softmax", dropout=0.1)])
def test_runs_are_repeatable(make):
    one, two = fit(make(), progress=False), fit(make(), progress=False)
    assert one.finished and one.metrics == two.metrics and set(one.metrics) == set(make().SPLITS)


def test_a_run_writes_the_actions_of_a_command(tmp_path, capsys):
    fit(recipe("scan", "quick", **SMALL_SCAN), tmp_path / "run", progress=False)
    assert cli.main(["write", str(tmp_path / "run"), "jump twice", "--tokens", "5"]) == 0
    said = capsys.readouterr().out.split()
    assert len(said) <= 5 and set(said) <= set(task.ACTIONS)
    for prompt, words in ("jump twce", "'twce', did you mean twice? allowed: after"), ("", "0 words; allowed: 1 to 9"):
        assert cli.main(["write", str(tmp_path / "run"), prompt]) == 2
        assert words in capsys.readouterr().err
    assert cli.main(["write", str(tmp_path / "run"), "jump", "--tokens", "0"]) == 0
    assert capsys.readouterr() == ("\n", "refattn write: the model says nothing after that\n")
    assert cli.main(["write", str(tmp_path / "run"), "jump", "--tokens", "-1"]) == 2
    assert "tokens is -1; allowed: whole numbers from 0" in capsys.readouterr().err
    assert cli.main(["write", str(tmp_path / "run"), "jump", "--temperature", "2"]) == 2
    assert "--temperature cannot go with scan; allowed: --tokens" in capsys.readouterr().err


def test_what_is_written_is_what_is_predicted():
    one = recipe("scan", "quick", **SMALL_SCAN)
    model = one.build()
    p, batch, differ = filled(model, np.random.default_rng(3)), one.take("train", np.arange(12)), set()
    for x in (p.source.table, p.target.table, p.decoder.block.cross.wo):
        x *= 8                                              # so that answers differ
    for row, said in zip(batch.source, one.predict(model, p, batch), strict=True):
        prompt = " ".join(task.WORDS[n] for n in row[1:row.tolist().index(task.STOP)])
        whole, = one.write(model, p, prompt, len(said))
        assert whole == task.spoken(said.tolist())
        differ.add(whole)
    assert len(differ) > 2


def test_the_published_figures():
    assert figures_for("scan", {"cutoff": 27, "retrievals": 2}).figures == {
        "softmax": (0.22, 0.08 / sqrt(5)), "compositional": (0.49, 0.09 / sqrt(5))}
    assert [n for n in range(49) if figures_for("scan", {"cutoff": n, "retrievals": 2}).figures] == [
        22, 24, 25, 26, 27, 28, 29, 30]
    assert all(len(row) == 8 for row in TABLE_4.values()) and not figures_for("esbn", {}).figures


def test_refusals():
    refused("hold_out is 98; allowed for rmts: 0 and whole numbers from 5 to 95", recipe, "rmts", hold_out=98)
    refused("hold_out is 100; allowed: whole numbers from 0 to 98", recipe, "rmts", hold_out=100)
    refused("cutoff is 48; allowed: whole numbers from 2 to 47", recipe, "scan", cutoff=48)
    for name in "scan", "rmts":
        refused("width is 100; allowed: even numbers that are multiples of heads, 8", recipe, name, width=100)
    refused("problem is 'x'; allowed: same_different", recipe, "esbn", problem="x")
    refused("did you mean same_different?", recipe, "same_diferent")
