"""The theorems hold for many seeds, are stated with a source, and can fail."""

import pytest

from refattn import theorems


@pytest.mark.parametrize("name", theorems.THEOREMS)
def test_holds(name):
    for seed in range(5):
        result, = (r for r in theorems.verify([name], seed) if r.name == name)
        assert result.ok, f"{name}: error {result.error:.1e} exceeds {result.tolerance:.0e} at seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("name", theorems.THEOREMS)
def test_holds_for_a_hundred_seeds(name):
    for seed in range(100):
        assert all(r.ok for r in theorems.verify([name], seed))


def test_every_statement_has_words_and_a_source():
    for t in theorems.every().values():
        assert len(t.statement) > 40 and t.source and t.tolerance <= 1e-6


def test_a_wrong_statement_fails(monkeypatch):
    """The machinery can say no: an error above the tolerance, a NaN and a wrong shape are all refused."""
    import numpy as np
    wrong = theorems.Theorem("wrong", "one is two, whatever the seed may be; unconditionally", "nobody", 1e-12,
                             lambda rng: theorems.gap(np.ones(3), 2 * np.ones(3)))
    monkeypatch.setitem(theorems.THEOREMS, "wrong", wrong)
    assert not next(theorems.verify(["wrong"])).ok
    assert theorems.gap(np.array([np.nan]), np.array([1.0])) == np.inf
    assert theorems.gap(np.ones((1, 3)), np.ones(3)) == np.inf
    assert theorems.gaps([None], [np.ones(2)]) == np.inf


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="no theorem is called 'fermat'; `refattn list` names them all"):
        next(theorems.verify(["fermat"]))
