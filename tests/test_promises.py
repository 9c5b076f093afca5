"""Promises of docstrings that somebody found broken who tried them without a look at the code or at the tests."""

import re
from dataclasses import fields, is_dataclass, replace
from functools import partial

import numpy as np
import pytest

from refattn import losses, ops, optim, params
from refattn.analysis import latent_code, searches
from refattn.analysis.images import picture
from refattn.analysis.text import bits_by_position
from refattn.attention import masks
from refattn.attention.as_hypernetwork import eq_2
from refattn.attention.layer import MultiHead
from refattn.attention.transformer_xl import TransformerXL
from refattn.automata.compiled import WithReset, compiled
from refattn.automata.finite import Automaton, compose
from refattn.automata.reading import from_table, to_table
from refattn.contract import contract
from refattn.layers.context_norm import ContextNorm
from refattn.layers.convolution import patches
from refattn.layers.embedding import Embedding, Readout
from refattn.layers.next_token import next_token
from refattn.layers.norm import LayerNorm
from refattn.layers.text_positions import slopes
from refattn.models.contextual_retrieval import RetrievalNetwork
from refattn.models.recurrent import linear_scan
from refattn.models.regular_gpt import levels
from refattn.recipes import base
from refattn.tasks import accuracies, scan, sort_of_clevr, text_windows
from refattn.tasks.contextual_retrieval import ContextualRetrieval
from refattn.tasks.esbn import Esbn
from refattn.tasks.glyphs import glyphs
from refattn.tasks.natural_images import load
from refattn.tasks.sraven import Sraven
from refattn.tasks.text import corpus
from refattn.train.groups import check as check_workers
from refattn.train.writing import drawn
from refattn.verification.cases import CASES
from refattn.verification.theorems.statement import filled
from tests.refusals import refused

ONES = np.ones
F32 = np.float32
REFUSED = [
    ("contract order is ''; allowed: the letters of the result, 'ac'",
     partial(contract, "ab,bc->ac", ONES((2, 3)), ONES((3, 4)), order="")),
    ("width of position is 6, but of the layer 8", partial(MultiHead, 8, 2, 4, position=TransformerXL(6, 2, 4))),
    ("text is 'documentation'; allowed: a file or directory", partial(corpus, "documentation", "tokens")),
    ("line 2: output is '1", partial(from_table, f"state output a\n s {'1' * 5000} s")),
    ("temperature inf", partial(drawn, np.array([0.0, -np.inf]), None, np.inf)),
    ("top_k is -2", partial(drawn, np.zeros(3), None, 1.0, -2)),
    ("a loss of shape (2, 0) has no terms", partial(losses.sigmoid_mse, ONES((2, 0)), ONES((2, 0)), ONES(2))),
    ("steps is 10.5", partial(optim.warmup_cosine, 3, rate=1.0, steps=10.5, warmup=1)),
    ("axis h is 3 in code but 2 in wo", partial(eq_2, ONES((1, 3, 2, 2)), ONES((1, 2, 4)), ONES((4, 3, 2)),
                                                ONES((2, 3, 5)))),
    ("b has shape (1,); allowed: (3,)", partial(ops.linear, ONES((1, 2)), ONES((2, 3)), ONES(1))),
    ("x has shape (1, 2); allowed: (..., m) with m = 3",
     partial(ops.linears, ONES((1, 2)), (ONES((2, 3)), None), (ONES((3, 3)), None))),
    ("shift has shape (1,); allowed: (2,)", partial(ops.layer_norm, ONES((1, 2)), ONES(2), ONES(1))),
    ("width is -3", partial(LayerNorm, -3)),
    ("epsilon is -1.0", partial(LayerNorm, 3, -1.0)),
    ("share is 0; allowed: numbers above 0 and below 1", partial(ContextualRetrieval, share=0)),
    ("output has the class 1000; allowed in a table: 0 to 999", partial(to_table, Automaton([[0]], [1000]))),
    ("then has shape (2,) and states from -1 to 0", partial(compose, [0, 1], [-1, 0])),
    ("start is [0]", partial(Automaton, [[0]], [0], [0])),
    ("start is [[[0], [0, 0]]]", partial(Automaton, [[0]], [0], [[0], [0, 0]])),
    ("windows is 0", partial(bits_by_position, None, None, None, 5, windows=0)),
    ("actions has -1 to -1; allowed: 0 to 6", partial(scan.spoken, [-1])),
    ("split is 'nonsense'", partial(scan.Scan().size, "nonsense")),
    ("index has -1 to -1", lambda: sort_of_clevr.take(
        sort_of_clevr.SortOfClevr(questions=2).one(np.random.default_rng(0), 3), 1, [-1])),
    ("rules has 9 to 9; allowed: 0 to 7", partial(Sraven().split_of, [9, 9, 9, 9])),
    ("rules have shape (1,); allowed: (4,)", partial(Sraven().split_of, [0])),
    ("size is -1", partial(text_windows.windows, np.arange(9), 4, size=-1)),
    ("prediction has shape (2, 2); allowed: (1, 2)", partial(accuracies.panel_accuracy, [[1, 2], [3, 4]], [[1, 2]])),
    ("a has shape (1, 1, 4, 4)", partial(linear_scan, ONES((1, 1, 4, 4)), ONES((1, 1, 3)))),
    ("queries is 2.5", partial(masks.causal, 2.5)),
    ("shape (2, 1); allowed: integers (b,)", partial(masks.padding, np.array([[1], [2]]), 3)),
    ("heads is -1", partial(slopes, -1)),
    ("length is nan", partial(levels, np.nan, 2)),
    ("stride is 0", partial(patches, ONES((1, 4, 4, 1)), 2, 0)),
    ("task is ['rmts']", partial(Esbn, ["rmts"])),
]


@pytest.mark.parametrize(("message", "make"), REFUSED, ids=[message for message, _ in REFUSED])
def test_what_was_taken_without_a_word_is_refused(message, make):
    refused(message, make)


@pytest.mark.parametrize(("message", "make"), [
    ("x is float32 but w is float64", partial(ops.linears, ONES((1, 2), F32), (ONES((2, 3), F32), None),
                                              (ONES((2, 3)), None))),
    ("b is float64", partial(
        ops.linear, ONES((1, 2), F32), ONES((2, 3), F32), ONES(3))),
    ("shift is float64", partial(ops.layer_norm, ONES((1, 2), F32), ONES(2, F32), ONES(2))),
    ("table is float64", partial(next_token, ONES((1, 2, 3), F32), ONES((5, 3)), np.zeros((1, 2), int))),
])
def test_several_dtypes_are_refused(message, make):
    with pytest.raises(TypeError, match=message):
        make()


def test_a_refused_step_of_adam_has_changed_nothing():
    flat, grads = np.ones(3), np.ones(3)
    for wrong in {"grads": grads, "mask": np.ones(2)}, {"grads": np.ones(1), "mask": None}:
        moments = optim.moments(flat)
        for decay in 0.0, 0.1:
            refused("allowed: (3,)", optim.adamw_step, flat, state=moments, step=1, rate=0.1, decay=decay, **wrong)
        assert not moments.first.any() and not moments.second.any() and (flat == 1).all()


@pytest.mark.parametrize("array", [np.array(["x"]), np.array("abc"), np.array(["2026-01-01"], "datetime64[D]")])
def test_what_is_no_number_is_not_saved(tmp_path, array):
    refused("allowed: numbers", params.save, tmp_path / "a.npz", {}, {"a": array})
    assert not list(tmp_path.iterdir())


def test_relu_of_minus_infinity_is_0():
    x = np.array([-np.inf, -1.0, 0.0, 2.0, np.inf])
    assert ops.relu(x).tolist() == [0, 0, 0, 2, np.inf]
    assert ops.relu_backward(x, np.ones(5)).tolist() == [0, 0, 0, 1, 1]
    assert ops.relu(x.astype(F32)).dtype == F32


def test_codes_that_are_all_the_same_explain_nothing():
    assert [latent_code.explained(np.full((n, 2), 0.1), np.arange(n) % 2) for n in (3, 6, 7, 10)] == [0] * 4


def test_an_order_has_no_column_twice_where_nothing_tells_them_apart():
    score = np.full((9, 9), -np.inf)
    score[0, 0] = 1
    assert sorted(searches.best_order(score)) == list(range(9))


def test_empty_axes_have_values():
    assert ops.linear(np.ones((2, 0)), np.ones((0, 3)), np.arange(3.0)).tolist() == [[0, 1, 2]] * 2
    dx, dw, db = ops.linear_backward(np.ones((2, 3)), np.ones((3, 0)), np.ones((2, 0)))
    assert dx.tolist() == [[0] * 3] * 2 and dw.shape == (3, 0) and db.shape == (0,)


def test_gradients_of_another_shape_are_refused_by_the_context_norm():
    layer = ContextNorm(4)
    p, x = filled(layer, np.random.default_rng(0)), np.random.default_rng(1).standard_normal((2, 6, 4))
    _, saved = layer.forward(p, x)
    refused("dy has shape (3, 4, 4); allowed: (2, 6, 4)", layer.backward, p, saved, np.ones((3, 4, 4)), p)


@pytest.mark.parametrize("array", [glyphs, lambda: load("gratings", "test").label, lambda: scan.examples().target,
                                   lambda: base.order(0, 0, 9), lambda: ops.constant(1, 5, np.dtype(F32), np)])
def test_what_is_handed_out_again_cannot_be_written(array):
    with pytest.raises(ValueError, match="read-only"):
        array()[...] = 0


def test_integers_of_numpy_are_integers():
    check_workers(np.int64(2), "cpu")
    assert Esbn("rmts", np.int64(50)).size("train") == Esbn("rmts", 50).size("train")
    assert slopes(np.int64(4)).tolist() == slopes(4).tolist()


WRONG = {int: (1.5, -1, True), bool: (2, "yes"), float: (-1.0, np.nan, "x", True), str: ("nonsense", None)}


def settings(layer):
    """(layer, name, value) of a layer and of those that it is made of."""
    for f in fields(layer):
        value = getattr(layer, f.name)
        yield from settings(value) if is_dataclass(value) else [(layer, f.name, value)]


def test_every_setting_of_a_layer_is_checked_when_it_is_made():
    seen = {setting for case in CASES if case.layer is not None for setting in settings(case.layer)}
    assert {"RelationNetwork", "RegularGPT", "MultiHead"} < {type(layer).__name__ for layer, _, _ in seen}
    for layer, name, value in seen:
        for wrong in WRONG.get(type(value), ()):
            with pytest.raises(ValueError, match="allowed: "):
                replace(layer, **{name: wrong})


@pytest.mark.parametrize("make, shapes, words", [
    (partial(Embedding, 8, vocabulary=7), {"x": (2, 3, 8)}, "table is float32 but x is float64"),
    (partial(RetrievalNetwork, 5, MultiHead(8, 2, 4), 4), {"x": (2, 3)},
     "x has shape (2, 3); allowed: (b, t, m) with m = 5"),
])
def test_what_does_not_fit_is_named_as_it_was_given(make, shapes, words):
    layer = make()
    _, p = params.allocate(layer.parameters(), F32)
    with pytest.raises((TypeError, ValueError), match=re.escape(words)):
        layer.forward(p, *map(ONES, shapes.values()))


def test_what_numpy_says_of_a_foreign_file_is_one_line(tmp_path):
    header = np.array('{"format": "refattn-1", "layout": [], "meta": {}}')
    np.savez(tmp_path / "foreign.npz", header=header, w=np.zeros(1, [(f"name{i:05}", "f4") for i in range(2000)]))
    refused("not a complete refattn checkpoint (ValueError: Header info length", params.load, tmp_path / "foreign.npz")


def test_a_picture_of_too_many_pixels_is_no_picture(tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (75, 75)).save(tmp_path / "huge.png")
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", 10)
    refused("cannot be read as a picture", picture, tmp_path / "huge.png")


def test_a_tied_table_of_another_dtype_is_named():
    with pytest.raises(TypeError, match="h is float64 but table is float32"):
        Readout(8, 7, tied=True).forward({}, ONES((1, 2, 8)), ONES((7, 8), F32))


def test_a_network_with_a_reset_reads_slices_only():
    machine = compiled(Automaton([[0, 1], [1, 0]], [0, 1]), out_of_range="mask")
    model = WithReset(**{f.name: getattr(machine.model, f.name) for f in fields(WithReset)})
    refused("read is 0; allowed: None and slices", model.forward, machine.parameters, np.array([[1, 0]]), read=0)
