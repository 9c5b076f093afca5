"""Costs counted by the stand-in, and matrices of value scores on observations whose answer is known."""

import numpy as np
import pytest

from refattn import params
from refattn.analysis import complexity, images, latent_code, searches
from refattn.attention.compositional import Compositional
from refattn.attention.layer import MultiHead
from refattn.recipes import recipe
from refattn.train.record import State
from tests import strict_cupy
from tests.tiny import tiny

LAYERS = [MultiHead(12, 2, 3, 5), MultiHead(12, 3, 4, variant="linear"), Compositional(12, 2, 5, 3, 4, 7),
          Compositional(12, 3, 1, 4, 6, 2)]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("cross", [False, True])
def test_lines_are_the_products_of_the_forward(layer, cross):
    flat, p = params.allocate(layer.parameters(), np.float32, strict_cupy)
    params.initialise(flat, layer.parameters(), np.random.default_rng(0), "random")
    x, context = (strict_cupy.asarray(np.ones((3, t, 12), np.float32)) for t in (5, 7))
    with strict_cupy.count() as counted:
        layer.forward(p, x, context=context if cross else None)
    assert counted.multiply_adds == sum(complexity.lines(layer, 3, 5, 7 if cross else None).values())


def test_weights_are_those_of_the_layer():
    assert sum(complexity.maps(LAYERS[2]).values()) == 12 * (2 * 3 * 2 + 5 * 4 + 2 * 7) + 4 * 7 + 2 * 4 * 12


@pytest.mark.parametrize(("s", "r"), [(1, 1), (2, 4), (4, 4), (8, 2)])
def test_the_papers_terms_are_ours_under_its_assumptions(s, r):
    """One width w for all parts: (3h, 2h) and (2s + r, s (1 + r)) exactly; what the selector adds falls as 1 / N."""
    w, m = 16, 64
    with pytest.raises(ValueError, match="width is 0; allowed: whole numbers of at least 1"):
        complexity.in_units(MultiHead(m, s, w), 0, 50)
    heads = complexity.in_units(MultiHead(m, s, w), w, 50)
    assert complexity.leading_terms(heads=s) == (heads["parameters"], heads["work"])
    assert heads["selector_parameters"] == heads["selector_work"] == 0
    ours = complexity.in_units(Compositional(m, s, r, w, w, w), w, 50)
    assert complexity.leading_terms(searches=s, retrievals=r) == (ours["parameters"], ours["work"])
    assert (ours["work"] > heads["work"]) == (r > 1)    # C: strictly higher; not with one retrieval
    assert ours["selector_parameters"] == s + w / m
    assert np.isclose(ours["selector_work"], s * (m + w + 2 * r) / 50)


def test_costs_are_refused():
    with pytest.raises(ValueError, match="has no line count; allowed: MultiHead softmax or linear"):
        complexity.lines(MultiHead(8, 2, 4, variant="hyla"), 1, 2)
    with pytest.raises(ValueError, match="heads is None, searches 2, .*; allowed: heads or the other"):
        complexity.leading_terms(searches=2)
    with pytest.raises(ValueError, match="heads is 4, searches 3, .*; allowed: heads or the other"):
        complexity.leading_terms(heads=4, searches=3)
    for words, count in (("batch is -1", lambda: complexity.lines(LAYERS[0], -1, 4)),
                         ("queries is 4.5", lambda: complexity.lines(LAYERS[0], 1, 4.5)),
                         ("keys is 0", lambda: complexity.lines(LAYERS[0], 1, 4, 0)),
                         ("heads is -2", lambda: complexity.leading_terms(heads=-2)),
                         ("retrievals is 1.5", lambda: complexity.leading_terms(searches=2, retrievals=1.5))):
        with pytest.raises(ValueError, match=f"{words}; allowed: whole numbers of at least 1"):
            count()


# ---------------------------------------------------------------- value scores

def an_observation(rng, order_of_searches=(1, 0), order_of_retrievals=(2, 0, 3, 1), b=50, t=6):
    """A network that does what the task asks, its searches and retrievals numbered differently."""
    s, r = len(order_of_searches), len(order_of_retrievals)
    preference, winner = rng.integers(r, size=(b, t, s)), rng.integers(t, size=(b, t, s))
    value_scores, search_scores = np.zeros((b, t, s, r)), np.zeros((b, s, t, t))
    for i, j, true in np.ndindex(b, t, s):
        value_scores[i, j, order_of_searches[true], order_of_retrievals[preference[i, j, true]]] = 1
        search_scores[i, order_of_searches[true], j, winner[i, j, true]] = 1
    return searches.Observed(value_scores, search_scores, preference, winner)


def test_a_perfect_network_is_recognised_behind_its_permutations():
    seen = an_observation(np.random.default_rng(0))
    assert searches.best_order(searches.searches_found(seen)) == (1, 0)
    np.testing.assert_array_equal(searches.specialisation(seen), np.eye(4))
    np.testing.assert_array_equal(searches.specialisation(seen, aligned=False), np.eye(4)[:, [1, 3, 0, 2]])
    pooled = searches.specialisation(seen, matched=False)
    assert 0.5 < searches.diagonality(pooled) < 0.7           # half of each row is what the other search asks for
    np.testing.assert_allclose(searches.pairing(seen).sum(axis=1), 1)
    np.testing.assert_allclose(pooled.sum(axis=1), 1)


def test_a_retrieval_that_nobody_asks_for_has_a_row_of_zeros():
    seen = an_observation(np.random.default_rng(0))
    seen.value_scores[seen.preference == 0] = 0.25
    seen.preference[seen.preference == 0] = 1
    matrix = searches.specialisation(seen)
    assert not matrix[0].any() and (matrix[1:].sum(axis=1) > 0.99).all()
    assert np.isclose(searches.diagonality(matrix), np.diagonal(matrix)[1:].mean())


def test_the_last_retrieval_that_nobody_asks_for_has_its_row_too():
    seen = an_observation(np.random.default_rng(0))
    seen.preference[seen.preference == 3] = 2
    matrix = searches.specialisation(seen, aligned=False)
    assert matrix.shape == (4, 4) and not matrix[3].any() and matrix[2].any()


def test_a_network_of_fewer_retrievals_has_a_row_for_each_that_is_asked_for():
    seen = an_observation(np.random.default_rng(0))
    matrix = searches.specialisation(seen._replace(value_scores=seen.value_scores[..., :3]))
    assert matrix.shape == (4, 3) and matrix.any(axis=1).tolist() == [True, True, False, True]
    assert searches.diagonality(matrix) == (matrix[0, 0] + matrix[1, 1]) / 2
    assert searches.diagonality(np.eye(3)[[0, 2, 2, 1]]) == 2 / 3


@pytest.mark.parametrize("shape", [(3, 2), (9, 2)])
def test_more_rows_than_columns_have_no_order(shape):
    with pytest.raises(ValueError, match=f"score has {shape[0]} rows and 2 columns; allowed: as many columns as rows"):
        searches.best_order(np.ones(shape))


def test_an_order_is_of_numbers():
    with pytest.raises(ValueError, match="score has 2 rows and 2 columns; allowed: .* and no NaN"):
        searches.best_order([[0.1, np.nan], [0.3, 0.2]])
    assert searches.best_order([[0.1, 0.9], [0.2, 0.8]]) == (1, 0)


def test_large_alignments_are_greedy():
    order = np.random.default_rng(0).permutation(16)
    assert searches.best_order(np.eye(16)[order] + 0.01) == tuple(order)


def test_scores_of_a_network_are_read_off_its_saved_tuple():
    one = recipe("contextual_retrieval", "quick", width=8, retrievals=4)
    model = one.build()
    flat, p = params.allocate(model.parameters())
    params.initialise(flat, model.parameters(), np.random.default_rng(0), "pytorch")
    seen = searches.observe(one, model, p, np.random.default_rng(1), sets=30)
    assert seen.value_scores.shape == (30, 10, 2, 4) and seen.search_scores.shape == (30, 2, 10, 10)
    assert (np.diagonal(seen.search_scores, axis1=2, axis2=3) == 0).all()
    assert abs(searches.diagonality(searches.specialisation(seen)) - 0.25) < 0.05
    other = recipe("contextual_retrieval", "quick", width=8, attention="softmax")
    with pytest.raises(ValueError, match="attention is 'softmax', which has no value scores; allowed: compositional"):
        searches.observe(other, other.build(), params.allocate(other.build().parameters())[1], np.random.default_rng(0))


def test_figures_are_drawn():
    pytest.importorskip("matplotlib")
    made = searches.figure({"matched": np.eye(4), "pooled": np.full((4, 4), 0.25)})
    assert [axes.get_title() for axes in made.axes[:2]] == ["matched", "pooled"]


def test_the_error_by_tuple_is_that_of_a_network_that_ignores_one_tuple():
    """Errors of 1 planted at the tuple (1, 2) come out there and nowhere else; tuples that never occur are NaN."""
    chosen = recipe("contextual_retrieval", "quick", attention="softmax")
    drawn = []

    class Planted:
        def forward(self, parameters, x):
            wrong = (drawn[-1].preference == (1, 2)).all(axis=-1)
            return (drawn[-1].target + wrong)[..., None], None

    class Spy:
        TASK, searches, retrievals, inputs = chosen.TASK, chosen.searches, chosen.retrievals, chosen.inputs

        def sample(self, *arguments):
            drawn.append(chosen.sample(*arguments))
            return drawn[-1]

    error = searches.error_by_tuple(Spy(), Planted(), np.zeros(1), np.random.default_rng(0), 50)
    held = [tuple(row) for row in chosen.data().tuples("held_out")]
    assert error[1, 2] == pytest.approx(1, abs=1e-6)
    assert sorted(map(tuple, np.argwhere(np.isnan(error)))) == sorted(held)
    assert np.nansum(error) == pytest.approx(error[1, 2])


SMALL = {"width": 8, "heads": 2, "searches": 2, "retrievals": 2, "selector_width": 4}
ON_ANY_DEVICE = {
    "codes": (tiny(), lambda *network: latent_code.observe(*network, np.random.default_rng(0), count=6).code),
    "searches": (recipe("contextual_retrieval", width=8),
                 lambda *network: searches.observe(*network, np.random.default_rng(0), sets=6).value_scores),
    "errors": (recipe("contextual_retrieval", width=8),
               lambda *network: searches.error_by_tuple(*network, np.random.default_rng(0), sets=400)),
    "images": (recipe("sort_of_clevr", scenes=5, layers=2, **SMALL),
               lambda *network: images.pairing(*network, "test", 12)),
}


@pytest.mark.parametrize("name", ON_ANY_DEVICE)
def test_a_network_on_a_device_is_read_as_on_the_host(name):
    settings, read = ON_ANY_DEVICE[name]
    model = settings.build()
    here, there = (read(settings, model, State(settings, model.parameters(), xp).parameters)
                   for xp in (np, strict_cupy))
    assert type(there) is np.ndarray and np.isfinite(here).any()
    np.testing.assert_allclose(there, here, rtol=1e-5, atol=1e-6)


def test_few_rows_of_many_columns_are_ordered_greedily():
    score = np.zeros((2, 9))
    score[0, :2], score[1, 0] = (0.9, 0.8), 0.85                # greedy: 0.9 + 0; the largest sum: 0.8 + 0.85
    assert searches.best_order(score) == (0, 1)
