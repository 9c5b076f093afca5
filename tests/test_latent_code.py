"""Analyses of latent codes on codes whose answer is known, and on a model whose code can be computed by hand."""

import importlib.util

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refattn import params
from refattn.analysis import latent_code, latent_code_figures
from refattn.recipes import RECIPES
from refattn.train import stream
from tests.tiny import tiny

sklearn = pytest.mark.skipif(not importlib.util.find_spec("sklearn"), reason="scikit-learn is not installed")
matplotlib = pytest.mark.skipif(not importlib.util.find_spec("matplotlib"), reason="matplotlib is not installed")


def made(n=600, says=True, seed=0, layers=2, terms=None):
    """Codes whose last layer says which terms the task has, or says nothing; the first layer never does."""
    rng = np.random.default_rng(seed)
    terms = np.sort(np.array([rng.choice(6, 2, replace=False) for _ in range(n)]), axis=1) if terms is None else terms
    code = rng.standard_normal((n, layers, 12, 1))
    if says:
        code[:, -1, :6, 0] += 6 * (terms[:, :, None] == np.arange(6)).any(axis=1)
    labels = {"term 1": terms[:, 0], "term 2": terms[:, 1]}
    return latent_code.Codes(code, ("itself",), labels, terms, np.zeros(n), np.zeros(n), np.zeros((n, 4)))


@pytest.fixture(scope="module", params=["softmax", "linear", "hyla", "hyla_deep"])
def seen(request):
    recipe = tiny(attention=request.param, layers=2, heads=4, length=8)
    model = recipe.build()
    flat, p = params.allocate(model.parameters())
    params.initialise(flat, model.parameters(), stream(0, "init"))
    return recipe, model, p


def test_codes_are_those_of_the_last_token_with_itself(seen):
    recipe, model, p = seen
    codes = latent_code.observe(recipe, model, p, np.random.default_rng(3), "held_out", 7)
    rng, start = np.random.default_rng(3), 0
    for size in 4, 3:                                                       # batches of the recipe's size
        batch = recipe.data().sample(rng, size, "held_out")
        y, saved = model.forward(p, batch.tokens)                           # all positions, nothing read
        for layer, block in enumerate(saved.blocks):
            part = codes.code[start:start + size, layer, :, 0]
            np.testing.assert_allclose(part, block.attention.attention.code[:, :, -1, -1], atol=1e-6)
        np.testing.assert_allclose(codes.prediction[start:start + size], y[:, -1, 0], atol=1e-6)
        assert np.array_equal(codes.terms[start:start + size], np.sort(batch.terms, axis=1))
        assert np.array_equal(codes.inputs[start:start + size], batch.tokens[:, -1, :-1])
        assert np.array_equal(codes.target[start:start + size], batch.target)
        start += size
    assert codes.code.shape == (7, 2, 4, 1) and np.array_equal(codes.labels["term 2"], codes.terms[:, 1])


def test_context_and_query_can_be_fixed(seen):
    recipe, model, p = seen
    query, context = [0.1, 0.2, 0.3, 0.4], np.random.default_rng(0).random((7, 4))
    codes = latent_code.observe(recipe, model, p, np.random.default_rng(0), count=5, query=query, context=context)
    np.testing.assert_allclose(codes.inputs, np.tile(np.float32(query), (5, 1)))
    if recipe.attention in ("linear", "hyla"):             # their first layer sees no other token
        np.testing.assert_allclose(codes.at(0), np.tile(codes.at(0)[:1], (5, 1)), atol=1e-6)


def test_another_task_is_refused():
    with pytest.raises(ValueError, match="task of the recipe is 'contextual_retrieval'; allowed: fuzzy_logic, sraven"):
        latent_code.observe(RECIPES["contextual_retrieval"](), None, None, None)
    with pytest.raises(ValueError, match="task of the recipe is 'sraven'; allowed: fuzzy_logic"):
        latent_code.observe(RECIPES["sraven"](), None, None, None, query=[0.5])        # a TypeError of its sampler


def test_sraven_looks_at_the_given_panels_of_the_row():
    recipe = RECIPES["sraven"](features=3, symbols=4, width=8, heads=2, hidden=8, layers=1, batch=5, steps=3, warmup=0)
    model = recipe.build()
    flat, p = params.allocate(model.parameters())
    params.initialise(flat, model.parameters(), stream(0, "init"))
    codes = latent_code.observe(recipe, model, p, np.random.default_rng(1), "held_out", 5)
    batch = recipe.data().sample(np.random.default_rng(1), 5, "held_out", shuffled=False)
    code = model.forward(p, batch.tokens)[1].blocks[0].attention.attention.code
    assert codes.pairs == ("first panel", "second panel", "itself")
    for pair, key in enumerate((20, 23, 26)):                               # 27 tokens; the query is the last
        np.testing.assert_allclose(codes.code[:, 0, :, pair], code[:, :, 26, key], atol=1e-6)
        if pair < 2:                                                        # the keys are the symbols of `inputs`
            assert np.array_equal(batch.tokens[:, key].argmax(axis=-1), codes.inputs[:, pair])
    assert np.array_equal(codes.labels["rule"], batch.rules[:, 2])
    assert np.array_equal(codes.target, batch.target[:, 2]) and codes.terms is None


@sklearn
def test_what_a_code_says_is_read_and_what_it_does_not_say_is_not():
    found = latent_code.report(made(seed=0), made(seed=1))
    for name in "term 1", "term 2", "any term":
        chance = found["layer 2"][f"shuffled {name}"]
        assert found["layer 2"][name] > 0.95 > 0.6 > chance
        assert abs(found["layer 1"][name] - found["layer 1"][f"shuffled {name}"]) < 0.1
    assert found["layer 2"]["both explain"] > 0.5 > 0.1 > abs(found["layer 1"]["both explain"])
    nothing = latent_code.report(made(says=False, seed=2), made(says=False, seed=3))["layer 2"]
    assert all(abs(nothing[name] - nothing[f"shuffled {name}"]) < 0.1 for name in ("term 1", "any term"))


@sklearn
def test_a_code_that_says_the_answer_alone_scores_what_the_answer_scores():
    rng = np.random.default_rng(0)
    train, test = made(says=False, seed=4), made(says=False, seed=5)
    for codes in train, test:
        answer = codes.terms[:, 0] % 3
        codes.code[:, 1, 0, 0], codes.code[:, 1, 1, 0] = answer == 0, answer == 1
        codes.code[:, 1, 2:, 0] = 0
        codes.target[:] = answer + 1e-9 * rng.random(len(answer))
    found = latent_code.report(train, test)["layer 2"]
    assert found["answer explains"] > 0.85                                  # ranges mix answers a little
    for codes in train, test:
        codes.target[:] = codes.target.round()
    assert latent_code.report(train, test)["layer 2"]["answer explains"] > 1 - 1e-6
    for codes in train, test:                               # an answer beside noise: functions explain no more
        codes.code[:, 1, 2:, 0] = 0.2 * rng.standard_normal(codes.code[:, 1, 2:, 0].shape)
    share = latent_code.report(train, test)["layer 2"]
    assert abs(share["both explain"] - share["answer explains"]) < 0.03 < 0.1 < share["answer explains"] < 0.9
    for name in "term 1", "any term":
        assert abs(found[name] - found[f"answer {name}"]) < 0.05 and found[name] > found[f"shuffled {name}"] + 0.1
    says = latent_code.report(made(seed=0), made(seed=1))["layer 2"]
    assert says["any term"] > says["answer any term"] + 0.3


@sklearn
@pytest.mark.parametrize("answers, apart", [(16, True), (17, False)])
def test_as_many_answers_as_there_may_be_ranges_are_told_apart(answers, apart):
    codes = made(60)
    codes.target[:answers] = np.arange(answers)             # quantiles put the rare ones together
    codes.code[:, :, :, 0] = codes.target[:, None, None]
    assert (latent_code.report(codes, codes)["layer 1"]["answer explains"] > 1 - 1e-6) == apart


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 12), columns=st.integers(0, 2))
def test_what_a_grouping_explains_is_the_variance_between_its_groups(seed, n, columns):
    rng = np.random.default_rng(seed)
    code, groups = rng.standard_normal((n, 3)), rng.integers(0, 3, (n, columns) if columns else n)
    members: dict = {}
    for i in range(n):
        members.setdefault(str(groups[i]), []).append(i)
    within = sum(np.sum((code[i] - np.mean([code[j] for j in mine], axis=0)) ** 2)
                 for mine in members.values() for i in mine)
    free = n - len(members)
    expected = 1 - within / free / (np.var(code, axis=0, ddof=1).sum()) if free else 0.0
    np.testing.assert_allclose(latent_code.explained(code, groups), expected, rtol=0, atol=1e-12)


def test_what_chance_explains_is_nothing_and_neither_is_a_constant_code_explained():
    rng = np.random.default_rng(0)
    found = [latent_code.explained(rng.standard_normal((300, 4)), rng.integers(0, 60, 300)) for _ in range(200)]
    assert abs(np.mean(found)) < 3 * np.std(found) / 200**0.5 and np.std(found) < 0.05
    assert latent_code.explained(np.ones((4, 2)), np.arange(4) % 2) == 0
    with pytest.raises(ValueError, match="groups has shape"):
        latent_code.explained(np.ones((4, 2)), np.arange(3))


def test_an_answer_is_one_of_some_ranges():
    first, second = latent_code.binned(np.array([1.0, 1.0, 2.0, 3.0]), np.array([0.0, 2.5]), bins=4)
    assert (first.sum(axis=1) == 1).all() and (first[0] == first[1]).all() and len(np.unique(first, axis=0)) >= 2
    assert second.shape == (2, first.shape[1])
    assert latent_code.binned(np.arange(64.0))[0].sum(axis=0).tolist() == [4] * 16


@sklearn
def test_terms_of_no_training_task_are_never_said():
    few, others = np.array([[0, 1]] * 30 + [[0, 2]] * 30), np.array([[1, 3]] * 40)
    train, test = made(60, terms=few), made(40, terms=others, seed=1)
    score = latent_code.decode_terms(train.at(1), few, test.at(1), others)
    assert 0.4 < score <= 0.5                                               # term 1 is found, term 3 never


def test_a_column_that_is_constant_in_training_becomes_zero():
    """The mean of a thousand times 0.1 is another number, and the deviation from it 1e-17."""
    for column in latent_code.standardised(np.full((1_000, 1), 0.1), np.full((2, 1), 0.2)):
        assert not column.any()


def test_macro_f1_is_the_mean_over_labels():
    truth, guess = np.array([0, 0, 0, 1, 2]), np.array([0, 0, 1, 1, 1])
    np.testing.assert_allclose(latent_code.macro_f1(truth, guess), (0.8 + 0.5 + 0) / 3)


def test_the_probe_reads_signs_that_are_there_and_only_those():
    rng = np.random.default_rng(0)
    terms = np.array([[3, 12], [5, 10], [6, 9], [0, 15]])[rng.integers(4, size=4_000)]
    codes = made(4_000, says=False, terms=terms)._replace(terms=terms)
    assert abs(latent_code.probe(codes, 4)) < 0.05
    signs = (terms[:, :, None] >> np.arange(4)[::-1] & 1).reshape(-1, 8)
    codes.code[:, 0, :8, 0] = signs - 0.5
    assert latent_code.probe(codes, 4) > 0.99


def test_the_probe_fits_no_intercept_to_a_code_with_a_zero():
    """As released: where every code has one, what is said is 0, whose R2 of fair signs is 1 - 0.5 / 0.25."""
    terms = np.random.default_rng(0).integers(16, size=(4_000, 2))
    codes = made(4_000, says=False, terms=terms)
    codes.code[...] = 0
    assert abs(latent_code.probe(codes, 4) + 1) < 0.05


def test_conjugate_gradient_is_exact_after_as_many_steps_as_there_are_numbers():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((5, 5))
    a, b = a @ a.T + np.eye(5), rng.standard_normal(5)
    np.testing.assert_allclose(a @ latent_code.conjugate_gradient(a, b, 5, 0.0), b, rtol=0, atol=1e-9)
    assert not latent_code.conjugate_gradient(a, np.zeros(5), 3).any()


def test_conjugate_gradient_stops_at_the_first_residual_that_is_small_enough():
    """Eigenvalues 1 and 1 + 1e-4: the residual after one step is about 1e-5 / 4 of b, after two it is rounding."""
    a, b = np.diag([1.0, 1.0001]), np.ones(2)
    one, both = (latent_code.conjugate_gradient(a, b, steps, 0.0) for steps in (1, 2))
    left = np.linalg.norm(b - a @ one) / np.linalg.norm(b)
    assert 1e-6 < left and not np.array_equal(one, both)
    for tolerance, expected in (1.01 * left, one), (0.99 * left, both):
        np.testing.assert_array_equal(latent_code.conjugate_gradient(a, b, 10, tolerance), expected)
    a = np.diag([1.0, 1.00001])
    np.testing.assert_array_equal(latent_code.conjugate_gradient(a, b, 10), latent_code.conjugate_gradient(a, b, 1))


def test_similarity_is_of_mean_codes():
    code = np.array([[1.0, 1.0], [3.0, -1.0], [0.0, 5.0], [-2.0, 0.0]])
    names, cosines = latent_code.similarity(code, np.array([4, 4, 2, 7]))
    assert names.tolist() == [2, 4, 7]
    np.testing.assert_allclose(cosines, [[1, 0, 0], [0, 1, -1], [0, -1, 1]], rtol=0, atol=1e-12)


@sklearn
def test_embedding_keeps_groups_together():
    rng = np.random.default_rng(0)
    label = np.repeat([0, 1], 60)
    places = latent_code.embed(rng.standard_normal((120, 8)) + 20 * label[:, None], perplexity=20)
    middle = [places[label == name].mean(axis=0) for name in (0, 1)]
    own = [np.linalg.norm(places - m, axis=1) for m in middle]
    assert np.array_equal(own[1] < own[0], label == 1)


@matplotlib
def test_figures_show_what_they_are_given():
    code = np.random.default_rng(0).standard_normal((60, 3))
    many, few = np.arange(60) % 30, np.arange(60) % 2 * 5
    made = latent_code_figures.points({"layer 1": code[:, :2], "layer 2": code[:, 1:]},
                                      {"term": few, "function": many, "target": code[:, 2]})
    drawn, bars = made.axes[:6], made.axes[6:]
    assert [axes.get_title() for axes in drawn[3:]] == ["layer 2: term", "layer 2: function", "layer 2: target"]
    for axes, x in zip(drawn, [code[:, :2]] * 3 + [code[:, 1:]] * 3, strict=True):
        assert np.array_equal(axes.collections[0].get_offsets(), x)
    colours = [axes.collections[0].to_rgba(axes.collections[0].get_array()) for axes in drawn[:3]]
    assert [len(np.unique(c, axis=0)) for c in colours[:2]] == [2, 30]
    assert [[t.get_text() for t in bar.get_yticklabels()] for bar in bars[:2]] == [["0", "5"], [
        str(n) for n in range(0, 30, 2)]]
    first, second = (np.array(x) for x in ([0, 1, 2], [1, 2, 3]))          # one colour for a term, whichever it is
    made = latent_code_figures.points({"": code[:3, :2]}, {"first term": first, "second term": second})
    drawn = [axes.collections[0] for axes in made.axes[:2]]
    assert np.array_equal(drawn[0].to_rgba(first)[1:], drawn[1].to_rgba(second)[:2])
    made = latent_code_figures.by_label(code, few, list("abcdef"), sample=10)
    maps = [axes.images[0] for axes in made.axes[:3]]
    assert [axes.get_label() for axes in made.axes] == [""] * 3 + ["<colorbar>"] * 3
    assert np.array_equal(maps[0].get_array(), code[:10])
    means = np.stack([code[few == 0].mean(axis=0), code[few == 5].mean(axis=0)])
    np.testing.assert_allclose(maps[1].get_array(), means)
    np.testing.assert_allclose(maps[2].get_array(), latent_code.similarity(code, few)[1])
    assert all(image.get_clim()[0] == -image.get_clim()[1] for image in maps)
    assert maps[2].get_clim() == pytest.approx((-1, 1))
    assert [t.get_text() for t in made.axes[1].get_yticklabels()] == ["a", "f"]


def test_a_guess_is_not_stretched():
    with pytest.raises(ValueError, match=r"guess has shape \(1,\); allowed: \(3,\)"):
        latent_code.macro_f1(np.array([0, 0, 1]), np.array([1]))


def test_the_intercept_is_asked_of_every_code_that_is_scored():
    rng = np.random.default_rng(0)
    terms = rng.integers(8, size=(4_000, 2)) | np.where(rng.random((4_000, 2)) < 0.8, 8, 0)
    code = rng.standard_normal((4_000, 1, 2, 1))
    code[2_000:, 0, 0] = 0                                      # of the half that is scored alone
    codes = latent_code.Codes(code, ("itself",), {}, terms, *np.zeros((2, 4_000)), np.zeros((4_000, 4)))
    assert abs(latent_code.probe(codes, 4)) < 0.05
