"""Compositional attention: values by hand, parameter counts of table 6, and what page, layer and networks refuse."""

import numpy as np
import pytest

from refattn import check, params
from refattn.attention.compositional import Compositional, compositional, compositional_backward
from refattn.attention.layer import MultiHead
from refattn.attention.pages import PAGES, page
from refattn.layers.feed_forward import FeedForward
from refattn.models.contextual_retrieval import RetrievalNetwork
from refattn.models.transformer import universal
from refattn.recipes import recipe
from tests.pages import check_tags
from tests.refusals import refused

CELLS = {                # table 6: scale -> {heads, or None for the compositional model: parameters}
    "2s4r-64": {2: 30_113, 4: 28_049, 8: 27_017, None: 30_705},
    "2s4r-128": {2: 117_569, 4: 109_345, 8: 105_233, None: 119_777},
    "4s8r-128": {4: 113_185, 8: 109_073, 32: 105_989, None: 117_937},
    "4s8r-256": {4: 439_361, 8: 422_945, 32: 410_633, None: 458_081},
    "4s8r-512": {4: 1_730_689, 8: 1_665_089, 32: 1_615_889, None: 1_804_993},
    "4s16r-128": {4: 118_305, 16: 112_137, 64: 110_595, None: 116_649},
    "4s16r-256": {4: 449_601, 16: 424_977, 64: 418_821, None: 442_705},
    "4s16r-512": {4: 1_751_169, 16: 1_652_769, 64: 1_628_169, None: 1_723_041},
}


def arrays(rng, b=2, q=3, k=5, s=2, r=4, d=3, e=6, c=7):
    shapes = (b, q, s, d), (b, k, s, d), (b, k, r, e), (b, q, s, c), (e, c)
    return [rng.standard_normal(shape) for shape in shapes]


def test_tags_are_answered_in_reverse():
    check_tags(compositional, compositional_backward)


def test_one_query_by_hand():
    """Two keys of equal score, so the retrievals are means: 2, 3 and 10; the selector prefers the third e to one."""
    q, k = np.zeros((1, 1, 1, 1)), np.ones((1, 2, 1, 1))
    v = np.array([[[[1.0], [3.0], [10.0]], [[3.0], [3.0], [10.0]]]])
    o, saved = compositional(q, k, v, np.full((1, 1, 1, 4), 0.5), np.full((1, 4), 1 / 7))
    np.testing.assert_allclose(saved.retrievals.ravel(), [2, 3, 10])
    weights = np.exp(np.array([2, 3, 10]) / 7)              # selector . key / sqrt(4) = 4 x 0.5 x t / 7 / 2
    np.testing.assert_allclose(saved.value_scores.ravel(), weights / weights.sum())
    np.testing.assert_allclose(o.item(), (weights * [2, 3, 10]).sum() / weights.sum())


def test_saved_names_what_the_paper_names():
    o, saved = compositional(*arrays(np.random.default_rng(0)))
    assert saved.search_scores.shape == (2, 2, 3, 5) and saved.retrievals.shape == (2, 3, 2, 4, 6)
    assert saved.value_scores.shape == (2, 3, 2, 4) and o.shape == (2, 3, 2, 6)
    np.testing.assert_allclose(saved.search_scores.sum(-1), 1)
    np.testing.assert_allclose(saved.value_scores.sum(-1), 1)


@pytest.mark.parametrize(("scale", "heads"), [(scale, heads) for scale, row in CELLS.items() for heads in row])
def test_parameters_of_table_6(scale, heads):
    setting = {"attention": "compositional"} if heads is None else {"attention": "softmax", "heads": heads}
    built = recipe("contextual_retrieval", scale, **setting).build()
    assert params.count(built.parameters()) == CELLS[scale][heads]


@pytest.mark.parametrize(("held_out", "split", "drawn"), [
    (True, "train", "train"), (False, "train", "all"), (True, "held_out", "held_out"), (False, "held_out", "held_out")])
def test_training_sees_all_tuples_where_none_is_held_out(held_out, split, drawn):
    chosen = recipe("contextual_retrieval", "paper", held_out=held_out)
    found = chosen.sample(np.random.default_rng(0), split, 9)
    expected = chosen.data().sample(np.random.default_rng(0), 9, drawn)
    assert all(np.array_equal(x, y) for x, y in zip(found, expected, strict=True))


def test_the_two_conventions_of_retrieval_width():
    def count(retrievals, retrieval_width):
        layer = Compositional(64, 4, retrievals, 16, retrieval_width, 8)
        return params.count({name: p for name, p in layer.parameters().items() if name in ("wv", "bv")})

    assert count(2, 64 // 4) * 4 == count(8, 64 // 4)        # d/S: more retrievals, more parameters
    assert count(2, 64 // 2) == count(8, 64 // 8)            # D/R: as many, thinner


def test_by_the_equations_alone_and_at_one_width_multi_head_attention_is_not_inside():
    """About x = 0 value scores are even: the derivative has the rank of one value map, that of h heads h times that."""
    rng, ranks = np.random.default_rng(0), []
    for layer in Compositional(9, 3, 5, 2, 2, 4, biases=False), MultiHead(9, 3, 2, biases=False):
        flat, p = params.allocate(layer.parameters(), np.float64)
        params.initialise(flat, layer.parameters(), rng, "random")
        y, _ = layer.forward(p, 1e-8 * np.eye(9)[:, None])                      # nine batches of one token
        ranks.append(np.linalg.matrix_rank(y[:, 0] * 1e8, tol=1e-6))
    assert ranks == [2, 6]


def test_norms_stand_where_the_released_code_has_them():
    def stands(stack):
        return stack.block.norm, stack.final_norm, stack.block.feed_forward.activation

    for task in "sort_of_clevr", "triangles", "multitask_images":
        assert stands(recipe(task, "paper").build().stack) == ("pre", False, "relu")
    assert stands(recipe("text", "paper_c", unit="bytes").build().stack) == ("pre", True, "relu")
    scan = recipe("scan", "paper").build()
    assert stands(scan.encoder) == stands(scan.decoder) == ("post", False, "relu")
    assert {name.split(".")[0] for name, _ in params.entries(recipe("esbn", "paper").build().parameters())} >= {"norm"}
    assert not any("norm" in name for name, _ in params.entries(recipe(
        "contextual_retrieval", "paper").build().parameters()))


def test_initial_values_have_the_fan_in_of_the_concatenated_output_map():
    network = RetrievalNetwork(14, MultiHead(64, 4, 16), 16)
    fan_in = {name: p.fan_in for name, p in params.entries(network.parameters())}
    assert fan_in["attention.wo"] == fan_in["attention.bo"] == fan_in["own.wo"] == 80
    flat, p = params.allocate(network.parameters())
    params.initialise(flat, network.parameters(), np.random.default_rng(0), "pytorch")
    assert 0.98 * 80**-0.5 < np.abs(p.attention.wo).max() <= 80**-0.5 and np.abs(p.encoder.b1).max() <= 14**-0.5
    norm = universal(MultiHead(8, 2, 4), FeedForward(8, 9, "relu"), 1, inputs=3)
    flat, p = params.allocate(norm.parameters())
    params.initialise(flat, norm.parameters(), np.random.default_rng(0), "pytorch")
    assert (p.block.norm1.scale == 1).all() and (p.block.norm1.shift == 0).all()


# ---------------------------------------------------------------- refusals

LAYER = {"width": 8, "searches": 2, "retrievals": 4, "search_width": 3, "retrieval_width": 5, "selector_width": 6}


@pytest.mark.parametrize(("change", "message"), [
    ({"searches": 0}, "searches is 0; allowed: whole numbers of at least 1"),
    ({"retrievals": 0}, "retrievals is 0; allowed: whole numbers"),
    ({"retrievals": 1.5}, "retrievals is 1.5; allowed: whole numbers"),
    ({"selector_width": -1}, "selector_width is -1; allowed: whole numbers"),
    ({"scoring": "mlp"}, "scoring is 'mlp'; allowed: dot, linear, nonlinear"),
])
def test_layers_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Compositional(**{**LAYER, **change})


@pytest.mark.parametrize(("place", "shape", "message"), [
    (1, (2, 5, 3, 3), "axis s is 2 in q but 3 in k"),
    (2, (2, 4, 4, 6), "axis k is 5 in k but 4 in v"),
    (3, (2, 3, 4, 7), "axis s is 2 in q but 4 in selector"),
    (4, (5, 7), "axis e is 6 in v but 5 in wr"),
    (4, (6, 7, 1), "wr has shape"),
])
def test_pages_refuse_arrays_that_do_not_fit(place, shape, message):
    given = arrays(np.random.default_rng(0))
    given[place] = np.ones(shape)
    with pytest.raises(ValueError, match=message):
        compositional(*given)


def test_pages_refuse_masks_scorings_and_dtypes():
    given = arrays(np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"bias has shape \(4, 3, 5\); allowed: what broadcasts"):
        compositional(*given, bias=np.zeros((4, 3, 5)))
    with pytest.raises(TypeError, match="keep .* booleans"):
        compositional(*given, keep=np.ones((3, 5)))
    with pytest.raises(ValueError, match="scoring 'linear' got 1 arrays; allowed: wr, wc, br"):
        compositional(*given, scoring="linear")
    with pytest.raises(ValueError, match=r"^number of entries of br \(scoring 'linear'\) is 2; allowed: 1$"):
        compositional(*given[:4], np.ones(6), np.ones(7), np.ones(2), scoring="linear")
    given[3] = given[3].astype(np.float32)
    with pytest.raises(TypeError, match="q is float64 but selector is float32"):
        compositional(*given)


@pytest.mark.parametrize(("change", "message"), [
    ({"attention": "softmax", "heads": 5}, "width is 64; allowed: multiples of heads, 5"),
    ({"searches": 3}, "width is 64; allowed: multiples of searches, 3"),
    ({"retrievals": 5}, "width is 64; allowed: multiples of retrievals, 5"),
    ({"retrievals": 1}, "leaves 0 to train on"),
    ({"searches": 26}, "searches is 26; allowed: whole numbers from 1 to 25"),
    ({"searches": 0}, "searches is 0; allowed: whole numbers from 1 to 25"),
    ({"attention": "soft"}, "attention is 'soft', did you mean softmax? allowed: compositional, softmax"),
    ({"scoring": "mlp"}, "scoring is 'mlp'; allowed: dot, linear, nonlinear"),
    ({"initialise": "random"}, "initialise is 'random'; allowed: pytorch, lecun_normal"),
])
def test_recipes_are_refused(change, message):
    refused(message, recipe, "contextual_retrieval", "paper", **change)


@pytest.mark.parametrize(("change", "message"), [
    ({"norm": "sandwich"}, "norm is 'sandwich'; allowed: pre, post, none"),
    ({"table": "rotary"}, "table is 'rotary'; allowed: none, image, interleaved, halves"),
    ({"layers": 0}, "layers is 0; allowed: whole numbers of at least 1"),
])
def test_universal_transformers_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        universal(MultiHead(8, 2, 4), FeedForward(8, 9, "relu"), **{"layers": 2, "inputs": 3, **change})


def test_networks_are_refused():
    with pytest.raises(ValueError, match="inputs is 0; allowed: whole numbers of at least 1"):
        RetrievalNetwork(0, MultiHead(8, 2, 4), 4)
    with pytest.raises(ValueError, match="own_width is -1; allowed: whole numbers of at least 0"):
        RetrievalNetwork(3, MultiHead(8, 2, 4), -1)


# ---------------------------------------------------------------- other people's kernels

def kernel(row, wrong=()):
    """A kernel that is ours, the named gradients three times too large."""
    def theirs(q, k, v, *extras, do, **options):
        o, saved = row.forward(q, k, v, *extras, **options)
        names = ["q", "k", "v", "bias", *row.extras]
        gradients = dict(zip(names, row.backward(saved, do), strict=True))
        return o, *(3 * g if name in wrong else g for name, g in gradients.items() if g is not None)
    return theirs


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("compositional")])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_right_kernels_agree(name, dtype):
    """Also where theory says zero and rounding leaves something: the selector of linear scoring, b2."""
    for seed in range(3):
        assert check.compare(kernel(page(name)), name, dtype=dtype, bias="hqk", keep="bhqk", seed=seed).ok


def test_a_wrong_kernel_is_told_its_mistake():
    """The selector's gradient and the key map's are multiplied by 3."""
    found = check.diagnose(kernel(page("compositional"), wrong=("selector", "wr")), "compositional", bias="hqk")
    assert found.sentences[0].startswith("line (5) of compositional_backward") and "3 times" in found.sentences[0]
    found = check.diagnose(kernel(page("compositional"), wrong=("v",)), "compositional")
    assert "compositional_backward" in found.sentences[0] and "3 times" in found.sentences[0]


@pytest.mark.parametrize("name", [name for name in PAGES if name.startswith("compositional")])
def test_the_shapes_table_is_executed_with_primes(name):
    row = PAGES[name]
    size = dict(zip("bqkhrdecf1", (2, 3, 5, 7, 11, 13, 17, 19, 23, 1), strict=True))
    letters = {name: row.axes[name] for name in ("q", "k", "v", *row.extras)}
    given = [np.random.default_rng(0).standard_normal([size[x] for x in axes]) for axes in letters.values()]
    o, saved = row.forward(*given, bias=np.zeros((7, 1, 5)), keep=np.ones((2, 1, 1, 5), bool))
    assert o.shape == (2, 3, 7, 17)
    dq, dk, dv, dbias, *rest = row.backward(saved, o)
    assert dbias.shape == (7, 1, 5) and [g.shape for g in (dq, dk, dv, *rest)] == [x.shape for x in given]
