"""The SRAVEN recipe, and all 14 rows of table A1 on both tasks."""

import dataclasses

import numpy as np
import pytest

from refattn import cli, params
from refattn.recipes import RECIPES, recipe
from refattn.reproduce import published
from refattn.reproduce.published import figures_for
from refattn.tasks.sraven_bayes import best_answers
from refattn.train import evaluate, fit
from refattn.verification.naive import losses as naive_losses
from tests.refusals import refused
from tests.steps import never_waits_nor_transfers_nor_widens

COUNTS = {(1, 4): 402_824, (1, 8): 803_208, (1, 16): 1_603_976, (2, 4): 1_592_072, (2, 8): 3_179_272,
          (2, 16): 6_353_672, (4, 4): 6_329_864, (4, 8): 12_649_992, (4, 16): 25_290_248}      # of the released code
SMALL = {"steps": 6, "batch": 4, "width": 8, "heads": 2, "hidden": 8, "evaluation": 16, "probe": 8, "log_every": 2,
         "evaluate_every": 2, "checkpoint_every": 2, "layers": 2}


def small(**changes):
    return recipe("sraven", "quick", **{**SMALL, **changes})


@pytest.mark.parametrize(("wider", "layers"), COUNTS)
def test_parameter_counts_are_those_of_the_released_code(wider, layers):
    made = recipe("sraven", "paper", wider=wider, layers=layers)
    assert params.count(made.build().parameters()) == COUNTS[wider, layers]


def test_the_width_factor_by_code_and_by_text():
    by_code, by_text = (recipe("sraven", "paper", wider=2, wider_rule=rule).build() for rule in ("released", "text"))
    code, text = by_code.stack.block.attention, by_text.stack.block.attention
    assert (code.width, code.heads, code.head_width, by_code.stack.block.feed_forward.hidden) == (256, 32, 4, 512)
    assert (text.width, text.heads, text.head_width, by_text.stack.block.feed_forward.hidden) == (256, 16, 8, 512)


def test_paper_scales_are_the_published_numbers_of_instances():
    steps = {scale: recipe("sraven", scale).steps for scale in RECIPES["sraven"].SCALES}
    assert steps == {"quick": 12_000, "paper-10m": 78_125, "paper": 156_250, "paper-40m": 312_500}
    made = recipe("sraven", "paper")
    rates = [made.rate_at(step) for step in (0, 1, 1_000, 78_125, 155_250, 156_249)]
    np.testing.assert_allclose(rates, [0, 1e-6, 1e-3, 5.5e-4, 1e-4, 1e-4])
    assert (made.features, made.symbols, made.heads, made.head_width, made.attention_dropout) == (4, 8, 16, 4, 0.1)


@pytest.mark.parametrize("read", [True, False])
def test_loss_and_its_gradient_are_those_of_the_query_alone(read):
    made = small(read=read)
    batch = made.sample(np.random.default_rng(0))
    _, p = params.allocate((model := made.build()).parameters())
    x, options = made.inputs(batch)
    y, _ = model.forward(p, x, **options)
    assert y.shape == (4, 2 if read else 18, 4)
    y = np.random.default_rng(1).standard_normal(y.shape).astype(np.float32)
    value, dy = made.loss(y, batch)
    assert abs(value - naive_losses.cross_entropy(y[:, -2:], batch.target)) < 1e-6
    assert dy[:, -2:].all() and not dy[:, :-2].any()


def test_reading_the_query_alone_trains_the_same_model():
    one, two = (fit(small(read=read), progress=False) for read in (True, False))
    for split in one.metrics:
        np.testing.assert_allclose(*([fitted.metrics[split]["loss"]] for fitted in (one, two)), rtol=1e-4)


def test_metrics_know_the_split_and_its_best_answers():
    made = small(attention="softmax")
    task, model = made.data(), made.build()
    for split in made.SPLITS:
        batch = task.sample(np.random.default_rng(2), 500, split)
        assert {task.split_of(rules) for rules in batch.rules} == {split}
        best = best_answers(batch.panels, 4, task.combinations(split)).answer
        y = (best[..., None] == np.arange(4)).astype(np.float32)
        found = made.summary(made.score(y, batch))
        assert found["best_answers"] == 1 and found["panel_accuracy"] == found["ceiling"] > 0.9
        assert set(found) == set(made.LABELS)
    _, p = params.allocate(model.parameters())
    plain = dataclasses.replace(made, ceiling=False)
    found = evaluate(plain, model, p, "held_out")
    assert {name for name, value in found.items() if value is None} == {"best_answers", "ceiling"}
    assert found.keys() == made.LABELS.keys()


def test_the_command_line_trains_it(tmp_path, capsys):
    words = [text for name, value in SMALL.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    words += ["--attention", "softmax", "--experts", "3", "--no-ceiling", "--out", str(tmp_path)]
    assert cli.main(["train", "sraven", *words]) == 0
    printed = capsys.readouterr().out
    assert "held-out accuracy" in printed and "0.577" in printed                        # of table A1, row 12
    assert (tmp_path / "softmax-3experts-seed0" / "result.json").exists()


# ---------------------------------------------------------------- table A1

@pytest.mark.parametrize("scale", ["paper", "quick"])
@pytest.mark.parametrize("task", ["fuzzy_logic", "sraven"])
def test_all_14_rows_of_table_a1_have_a_recipe(task, scale):
    made = [recipe(task, scale, **row.settings) for row in published.TABLE_A1.values()]
    counts = [params.count(one.build().parameters()) for one in made]
    assert len({one.name for one in made}) == 14
    plain = counts[0]
    for row, count in zip(published.TABLE_A1.values(), counts, strict=True):
        assert (count > plain) == (row.experts or row.attention == "hyla_deep"), row.words
    for one, row in zip(made, published.TABLE_A1.values(), strict=True):
        assert figures_for(one.TASK, dataclasses.asdict(one)).figures[row.attention] == getattr(row, task)


@pytest.mark.parametrize("number", published.TABLE_A1)
@pytest.mark.parametrize("task", ["fuzzy_logic", "sraven"])
def test_every_row_trains(task, number):
    sizes = SMALL if task == "sraven" else {**SMALL, "length": 8}
    fitted = fit(recipe(task, "quick", **sizes, **published.TABLE_A1[number].settings), progress=False)
    assert fitted.finished and all(np.isfinite(value) for value in fitted.metrics["train"].values())


def test_a_step_with_experts_never_waits_nor_transfers_nor_widens():
    made = small(experts=3)
    batch = made.sample(np.random.default_rng(0))
    assert never_waits_nor_transfers_nor_widens(made, batch, np.random.default_rng(1)).get().any()


# ---------------------------------------------------------------- refusals

@pytest.mark.parametrize(("change", "message"), [
    ({"symbols": 2}, "symbols is 2; allowed: whole numbers from 3 to 1,024"),
    ({"features": 21}, "features is 21; allowed: whole numbers from 1 to 20"),
    ({"held_out": 0.0}, "held_out is 0.0, which leaves no combination in split 'held_out'"),
    ({"held_out": 0.01}, "held_out is 0.01, which leaves no combination"),
    ({"released_split": True}, "features is 2; allowed with released splits: 4"),
    ({"features": 12, "symbols": 8}, "features is 12 with 8 symbols, which is too many for the best answers"),
    ({"experts": 1, "chosen": 2}, "chosen is 2; allowed: whole numbers from 1 to 1"),
    ({"experts": -1}, "experts is -1; allowed:"),
    ({"wider_rule": "code"}, "wider_rule is 'code'; allowed: released, text"),
])
def test_settings_that_are_refused(change, message):
    refused(message, small, **change)
