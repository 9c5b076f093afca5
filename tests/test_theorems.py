"""The theorems hold for many seeds, are stated with a source, and can fail."""

import numpy as np
import pytest

from refattn.verification import theorems
from refattn.verification.changed_source import rewritten
from refattn.verification.theorems import statement, variants


@pytest.mark.parametrize("name", theorems.THEOREMS)
def test_holds(name):
    for seed in range(5):
        result, = (r for r in theorems.verify([name], seed) if r.name == name)
        assert result.ok, f"{name}: error {result.error:.1e} exceeds {result.tolerance:.0e} at seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("name", theorems.THEOREMS)
def test_holds_for_many_seeds(name):
    for seed in range(5, 30):
        assert all(r.ok for r in theorems.verify([name], seed))


def test_every_statement_has_words_and_a_source():
    for t in theorems.every().values():
        assert len(t.statement) > 40 and t.source and t.tolerance <= 1e-6


def test_a_wrong_statement_fails(monkeypatch):
    """The machinery can say no: an error above the tolerance, a NaN and a wrong shape are all refused."""
    import numpy as np
    wrong = theorems.Theorem("wrong", "one is two, whatever the seed may be; unconditionally", "nobody", 1e-12,
                             lambda rng: theorems.deviation(np.ones(3), 2 * np.ones(3)))
    monkeypatch.setitem(theorems.THEOREMS, "wrong", wrong)
    assert not next(theorems.verify(["wrong"])).ok
    assert theorems.deviation(np.array([np.nan]), np.array([1.0])) == np.inf
    assert theorems.deviation(np.ones((1, 3)), np.ones(3)) == np.inf
    assert theorems.deviations([None], [np.ones(2)]) == np.inf


def test_a_check_that_raises_or_says_nothing_is_a_failed_line(monkeypatch):
    def broken(rng):
        raise ZeroDivisionError("one over\nnothing")
    for f, words in (broken, "ZeroDivisionError: one over"), (lambda rng: None, "TypeError"):
        monkeypatch.setitem(theorems.THEOREMS, "wrong", theorems.Theorem("wrong", "", "nobody", 1e-12, f))
        result, = theorems.verify(["wrong"])
        assert not result.ok and result.error == float("inf") and result.raised.startswith(words)


def test_of_several_the_worst_counts_and_says_where_it_is(monkeypatch):
    monkeypatch.setattr(statement, "THEOREMS", {})
    for worst in 4.0, np.nan:
        theorems.theorem("no number is one", "nobody", over=(1.0, worst, 3.0))(
            lambda rng, x: theorems.deviation(np.array([1.0, x]), np.ones(2)))
        error = statement.THEOREMS["<lambda>"].error(None)
        assert error.where == f"the difference[1] is {worst}, not 1.0"


def test_what_a_theorem_draws_depends_on_seed_and_name_alone(monkeypatch):
    drawn = []
    for name in "one", "two":
        monkeypatch.setitem(theorems.THEOREMS, name,
                            theorems.Theorem(name, "", "", 1, lambda rng: drawn.append(rng.random()) or 0.0))
    monkeypatch.setattr(theorems, "every", lambda: {name: theorems.THEOREMS[name] for name in ("one", "two")})
    for names, seed in ((), 3), (["two"], 3), (["one"], 3), (["one"], 4):
        list(theorems.verify(names, seed))
    one, two, *again, other = drawn
    assert again == [two, one] and len({one, two, other}) == 3


def test_what_forward_and_backward_both_have_wrong_is_found_by_the_definition():
    """relu(-z) is a function like any other, whose derivative is right; it is not HYLA."""
    package = rewritten({"attention/hyla.py": lambda source: source.replace("ops.relu(z)", "ops.relu(-z)").replace(
        "ops.relu_backward(z, dg)", "-ops.relu_backward(-z, dg)"), "verification/theorems/__init__.py": str})
    found = {result.name: result.ok for result in package.verification.theorems.verify(["attention/hyla"])}
    assert found["gradient of attention/hyla"] and not found["definition of attention/hyla"]
    assert found["definition of attention/hyla_deep"]


def test_a_name_is_no_list_of_letters():
    assert [t.name for t in theorems.chosen("lemma_1")] == [t.name for t in theorems.chosen(["lemma_1"])]
    with pytest.raises(ValueError, match="no theorem is called 'fermat'"):
        next(theorems.verify("fermat"))


def test_an_unknown_name_is_refused():
    for name in "fermat", "":                               # an empty one would be part of every name
        words = f"no theorem is called {name!r}; allowed: parts of names of theorems and rows"
        with pytest.raises(ValueError, match=words):
            next(theorems.verify([name]))


def test_a_nan_in_what_must_be_zero_is_no_zero(monkeypatch):
    assert statement.largest(np.zeros(2), np.array([-3.0])) == 3
    assert np.isnan(statement.largest(np.array([np.nan, 0.0]), np.zeros(3)))
    of_all = theorems.THEOREMS["a_fully_masked_query_contributes_nothing"].error
    assert of_all(np.random.default_rng(0)) == 0
    monkeypatch.setattr(variants, "largest", lambda *x: np.nan)
    assert np.isnan(of_all(np.random.default_rng(0)))
