"""Numbers that the papers and their code fix, as literals: defaults, sizes of models, warm-up, estimates of memory."""

import importlib
import inspect
import json
import re
from dataclasses import asdict, make_dataclass

import numpy as np
import pytest

from refattn import ops, optim, params
from refattn.analysis import latent_code
from refattn.attention import VARIANTS
from refattn.attention.hyla import hyla
from refattn.attention.layer import MultiHead
from refattn.cli.options import Usage
from refattn.cli.training import train_parser
from refattn.contract import contract
from refattn.layers import positions
from refattn.layers.context_norm import ContextNorm
from refattn.models.recurrent import Recurrent
from refattn.models.transformer import universal
from refattn.recipes import RECIPES as ALL
from refattn.recipes import base, recipe
from refattn.reproduce.published import figures_for
from refattn.tasks.contextual_retrieval import ContextualRetrieval
from refattn.tasks.esbn import Esbn
from refattn.tasks.fuzzy_logic import FuzzyLogic
from refattn.tasks.scan import Scan
from refattn.tasks.sort_of_clevr import SortOfClevr
from refattn.tasks.sraven import Sraven
from refattn.tasks.text_windows import windows
from refattn.tasks.triangles import Triangles
from refattn.train.writing import drawn
from refattn.verification.theorems.statement import filled
from tests import recipe_settings

DEFAULTS = [
    (hyla, {"epsilon": 1e-6}), (ops.rms_head, {"axis": 1, "epsilon": 1e-6}), (ops.layer_norm, {"epsilon": 1e-6}),
    (optim.adamw_step, {"decay": 0.0, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}),
    (optim.clip_by_global_norm, {"epsilon": 0.0}), (optim.warmup_cosine, {"floor": 0.1, "length": "released"}),
    (positions.Rotary, {"base": 10_000.0}), (positions.sinusoidal, {"base": 10_000.0}),
    (FuzzyLogic, {"variables": 4, "terms": 2, "length": 32, "held_out": 0.7}),
    (Esbn, {"task": "same_different", "hold_out": 50, "seed": 0}), (windows, {"context": 0, "first": 0, "size": None}),
    (ContextNorm, {"segments": 1, "epsilon": 1e-8}),
    (Sraven, {"features": 4, "symbols": 8, "held_out": 0.25}),
    (ContextualRetrieval, {"searches": 2, "retrievals": 4, "objects": 10, "share": 0.8}),
    (latent_code.probe, {"penalty": 1.0, "steps": 10}), (latent_code.conjugate_gradient, {"tolerance": 1e-5}),
    (latent_code.embed, {"perplexity": 30.0}), (latent_code.binned, {"bins": 16}), (Scan, {"cutoff": 26}),
    (SortOfClevr, {"test": 200, "validation": 200, "train": 9_800, "questions": 10, "nearest": "released"}),
    (Triangles, {"size": 64}), (universal, {"norm": "pre", "table": "none", "final_norm": False}),
    (drawn, {"temperature": 1.0, "top_k": 0}),
]
DECODER = {"batch": 128, "rate": 1e-3, "decay": 0.1, "decay_rule": "released", "schedule_length": "released", "clip": 0,
           "initialise": "lecun_normal", "width": 128, "hidden": 256, "attention_dropout": 0.1, "experts": 0}
ADAM = {"decay": 0, "warmup": 0}
RECIPES = [
    ("fuzzy_logic", "paper", {**DECODER, "rate": 3e-3, "steps": 50_000, "warmup": 100, "heads": 8,
                              "head_width": 2, "layers": 2, "length": 32, "held_out": 0.7, "variables": 4, "terms": 2}),
    ("sraven", "paper", {**DECODER, "warmup": 1_000, "heads": 16, "head_width": 4, "layers": 4, "features": 4,
                         "symbols": 8, "held_out": 0.25}),
    ("contextual_retrieval", "paper", {**ADAM, "steps": 100_000, "batch": 256, "rate": 1e-4, "clip": 0, "objects": 10,
                                       "initialise": "pytorch", "width": 64, "searches": 2, "retrievals": 4, "heads": 4,
                                       "held_out": True, "scoring": "dot", "evaluation": 25_600}),
    ("parity", "paper", {**ADAM, "steps": 100_000, "batch": 128, "rate": 3e-4, "clip": 1, "initialise": "haiku",
                         "width": 64, "heads": 8, "layers": 5, "states": 256, "chunk": 2, "thickness": 1,
                         "norm": "post", "activation": "relu", "out_of_range": "pad", "train_length": 40,
                         "max_length": 500, "evaluation": 512, "stride": 1, "ones": 0.5, "leading_plus": True}),
]


KEPT = json.loads(recipe_settings.FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize("part", KEPT)
def test_recipes_fix_what_they_fixed(part):
    meant = "where the change is meant, run: python -m tests.recipe_settings"
    found = json.loads(json.dumps(recipe_settings.table()[part]))
    assert list(found) == list(KEPT[part]), meant
    for title, row in found.items():
        kept = KEPT[part][title]
        if part == "scales" and row["parameters"] is None:          # a corpus that is not at hand
            kept = kept | {"parameters": None}
        assert row == kept, f"{title}: {meant}"


@pytest.mark.parametrize("name", ALL)
def test_recipes_are_made_by_name_alone(name):
    with pytest.raises(TypeError, match="positional"):
        ALL[name](1)


@pytest.mark.parametrize("made, settings", DEFAULTS, ids=[made.__name__ for made, _ in DEFAULTS])
def test_defaults_are_the_published_ones(made, settings):
    found = inspect.signature(made).parameters
    assert {name: found[name].default for name in settings} == settings


@pytest.mark.parametrize("task, scale, settings", RECIPES, ids=[task for task, *_ in RECIPES])
def test_recipes_of_scale_paper_have_the_published_settings(task, scale, settings):
    found = recipe(task, scale)
    assert {name: getattr(found, name) for name in settings} == settings


def test_the_baseline_of_contextual_retrieval_has_as_many_heads_as_it_says():
    model = recipe("contextual_retrieval", "paper", attention="softmax", heads=2, width=64).build()
    shapes = {name: p.shape for name, p in model.attention.parameters().items()}
    assert shapes["wq"] == shapes["wk"] == shapes["wv"] == (64, 2, 32) and shapes["wo"] == (2, 32, 64)


def test_compositional_attention_of_contextual_retrieval_has_the_widths_of_its_parts():
    model = recipe("contextual_retrieval", "paper", searches=4, retrievals=16, width=128).build()
    shapes = {name: p.shape for name, p in model.attention.parameters().items()}
    assert shapes["wq"] == shapes["wk"] == (128, 4, 32) and shapes["wv"] == (128, 16, 8)
    assert shapes["ws"] == (128, 4, 32) and shapes["wr"] == (8, 32) and shapes["wo"] == (4, 8, 128)


def test_the_warm_up_step_by_step():
    constant = recipe("parity", "quick", rate=0.5, warmup=4, steps=40)
    assert [constant.rate_at(step) for step in range(6)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.5], rel=1e-12)
    cosine = recipe("fuzzy_logic", "quick", rate=0.5, warmup=4, steps=40)
    assert [cosine.rate_at(step) for step in range(5)] == pytest.approx([0, 0.125, 0.25, 0.375, 0.5], rel=1e-12)
    assert cosine.rate_at(5) < 0.5 and cosine.rate_at(36) == cosine.rate_at(39) == pytest.approx(0.05, rel=1e-12)
    epochs = recipe("triangles", rate=0.5, warmup=4, steps=40, epoch=10)
    assert [epochs.rate_at(step) for step in (0, 3, 9, 10, 39)] == pytest.approx(
        [0.1, 0.4, 0.5, 0.25 * (1 + 0.5 ** 0.5), 0.25 * (1 - 0.5 ** 0.5)], rel=1e-12)


def test_numbers_of_numpy_make_the_recipe_that_pythons_make():
    """Where a scale or the warm-up depends on them, too."""
    one, steps = {"hold_out": 95, "batch": 7}, np.int64(30)
    assert recipe("rmts", **{name: np.int64(x) for name, x in one.items()}) == recipe("rmts", **one)
    assert recipe("fuzzy_logic", steps=steps) == recipe("fuzzy_logic", steps=np.array(30)) == recipe(
        "fuzzy_logic", steps=30)


def test_a_warm_up_is_refused_only_where_a_cosine_has_no_step_left():
    assert recipe("parity", steps=10, warmup=9).rate_at(9) == recipe("parity").rate
    assert recipe("text", steps=10, warmup=9, schedule="inverse_root").rate_at(9) == recipe("text").rate
    with pytest.raises(ValueError, match="warmup is 5, which leaves no step of 10; allowed: steps above 10"):
        recipe("fuzzy_logic", steps=10, warmup=5)
    assert recipe("fuzzy_logic", steps=10, warmup=5, schedule_length="text").warmup == 5


@pytest.mark.parametrize("task, fields, numbers", [
    ("parity", {"attention": "sliding_dilated", "width": 24}, 12 * 24 * 3 * 7),
    ("parity", {"attention": "sliding_dilated", "width": 24, "thickness": 2}, 12 * 24 * 3 * 7 * 2),
    ("parity", {"attention": "rnn", "states": 5}, 2 * 5 * 3 * 7),
    ("parity", {"attention": "softmax", "width": 24, "layers": 2}, 2 * 3 * 8 * 7 * 7),
    ("fuzzy_logic", {"layers": 3, "heads": 5, "width": 6, "hidden": 11}, 3 * (5 * 7 * 7 + 7 * (6 + 11)) * 2),
    ("fuzzy_logic", {"layers": 3, "heads": 5, "width": 6, "hidden": 11, "experts": 4, "read": False},
     3 * (5 * 7 * 7 + 7 * (6 + 4 * 11)) * 3),
])
@pytest.mark.parametrize("shards", [1, 2, 5])
def test_memory_is_five_copies_of_the_parameters_and_what_a_shard_of_3_at_length_7_keeps(task, fields, numbers, shards):
    """Of the whole batch before, so that a run of many shards was refused that fits."""
    size = {"train_length" if task == "parity" else "length": 7, "shards": shards, "batch": 3 * shards - shards // 2}
    chosen = recipe(task, "quick", **size, **fields)
    stored = sum(int(np.prod(p.shape)) for p in all_parameters(chosen.build().parameters()))
    assert chosen.least_bytes() == 4 * (5 * stored + numbers)


def all_parameters(tree):
    if hasattr(tree, "shape"):
        return [tree]
    return [p for child in (tree.values() if isinstance(tree, dict) else tree) for p in all_parameters(child)]


@pytest.mark.parametrize("spec", ["ab,bc->ac", "ab,cb->ca", "abc,bcd->bda", "ab,ac->abc", "ab,ab->a"])
@pytest.mark.parametrize("left, right", [("float32", "float64"), ("float64", "float32"), ("float64", "complex128")])
def test_a_contraction_of_mixed_dtypes_has_the_wider_one(spec, left, right):
    sizes, rng = dict(zip("abcd", (2, 3, 4, 5), strict=True)), np.random.default_rng(0)
    a, b = (rng.standard_normal([sizes[x] for x in letters]) for letters in re.split("[,-]", spec)[:2])
    a, b = a.astype(left), b.astype(right) * (1 + 1j if right == "complex128" else 1)
    found, expected = contract(spec, a, b), np.einsum(spec, a, b)
    assert found.dtype == expected.dtype == np.result_type(a, b)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_recurrent_network_needs_a_token():
    model = Recurrent(6, 5, 2)
    p = filled(model, np.random.default_rng(0))
    for shape in (2, 0), (2, 3, 1), (2,):
        with pytest.raises(ValueError, match=re.escape(f"has shape {shape}; allowed: (b, t) with at least one")):
            model.forward(p, np.zeros(shape, int))
    assert model.forward(p, np.zeros((0, 3), int))[0].shape == (0, 3, 2)


def test_sizes_of_numpy_are_those_of_python():
    four = np.int64(4)
    layer = MultiHead(np.int32(8), four, np.uint8(2))
    assert layer == MultiHead(8, 4, 2) and params.layout(layer.parameters()) == params.layout(MultiHead(
        8, 4, 2).parameters())
    made = recipe(layers=np.int64(3), held_out=np.float64(0.5), rate=np.float32(0.5), read=np.bool_(False))
    assert made == recipe(layers=3, held_out=0.5, rate=0.5, read=False)
    assert json.dumps([asdict(made), params.layout(made.build().parameters()), params.layout(layer.parameters())])


OWN = """
from __future__ import annotations
from dataclasses import dataclass
from refattn.recipes import RECIPES

@dataclass(frozen=True, kw_only=True)
class Steeper(RECIPES["fuzzy_logic"]):
    "Fuzzy logic with a loss that is multiplied."
    TASK = "steeper"
    factor: float = 10.0
    times: int = 1
    words: str = "none"
    twice: bool = False
"""


def test_a_recipe_of_ones_own_may_put_its_annotations_off(monkeypatch, tmp_path):
    """As `from __future__ import annotations` does: the types of fields are then words."""
    (tmp_path / "steeper_recipe.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    kind = importlib.import_module("steeper_recipe").Steeper
    monkeypatch.setitem(ALL, "steeper", kind)
    made = recipe("steeper", steps=20, factor=5, times=2, words="some", twice=True)
    assert (made.factor, made.times, made.words, made.twice) == (5, 2, "some", True)
    for name, value, kinds in ("factor", "5", "numbers"), ("times", 1.5, "whole numbers"), ("twice", 1, "True and"):
        with pytest.raises(ValueError, match=f"{name} is {value!r}; allowed: {kinds}"):
            recipe("steeper", **{name: value})
    parser = train_parser(kind, {})
    assert parser.parse("--factor 2 --times 3 --words 4 --twice --rate 1".split()) == {
        "factor": 2.0, "times": 3, "words": "4", "twice": True, "rate": 1.0}
    with pytest.raises(Usage, match="--times is '1.5'; allowed: whole numbers"):
        parser.parse(["--times", "1.5"])


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_number_without_ends_is_finite(value):
    with pytest.raises(ValueError, match=f"slope is {value}; allowed: numbers from -inf to inf"):
        base.check_fields(make_dataclass("Line", [("slope", float)])(value))
    base.check_fields(make_dataclass("Line", [("slope", float)])(-1e300))


@pytest.mark.parametrize("name", ["evaluation", "probe", "batch", "steps", "log_every"])
def test_counts_begin_at_one(name):
    with pytest.raises(ValueError, match=f"{name} is 0; allowed: whole numbers from 1 to"):
        recipe(**{name: 0, "warmup": 0})
    assert getattr(recipe(**{name: 1, "warmup": 0, "schedule_length": "text"}), name) == 1


def test_every_variant_is_compared_with_the_papers_figure_of_its_own_row():
    figures = figures_for("fuzzy_logic", {"length": 32, "held_out": 0.7, "variables": 4, "terms": 2}).figures
    assert figures["softmax"] == (0.6328, 0.0231) and figures["hyla"] == (0.8113, 0.0777)
    assert figures["linear"] == (0.5989, 0.0522) and set(figures) <= set(VARIANTS)
