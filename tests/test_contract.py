"""contract: every spec the library uses, every order in memory, and its error messages."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refattn import ops
from refattn.contract import agree, contract, laid_out_like, multiply_adds, plan
from refattn.verification.changed_source import ROOT

SPECS = sorted({spec for path in ROOT.rglob("*.py") for spec in re.findall(
    r'contract\("([a-z]+,[a-z]+->[a-z]+)"', path.read_text(encoding="utf-8")) if "cases" not in path.parts})


def operands(spec, rng):
    a, b, _ = re.split(",|->", spec)
    size = {x: n for x, n in zip(dict.fromkeys(a + b), rng.permutation(range(2, 11)), strict=False)}
    return (rng.standard_normal([size[x] for x in letters]) for letters in (a, b))


@pytest.mark.parametrize("spec", SPECS)
def test_every_spec_in_the_library_is_einsum(spec):
    rng = np.random.default_rng(0)
    a, b = operands(spec, rng)
    c = contract(spec, a, b)
    assert np.allclose(c, np.einsum(spec, a, b), rtol=1e-12, atol=1e-13)
    out = np.empty_like(c)
    assert contract(spec, a, b, out=out) is out and np.allclose(out, c, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("spec", [*SPECS, "bqhd,bqhd->h", "bqhd,bqhd->bqh", "bqh,bqh->bqh"])
def test_any_axis_may_be_empty(spec):
    a, b, _ = re.split(",|->", spec)
    for empty in dict.fromkeys(a + b):
        x, y = (np.ones([0 if letter == empty else 2 for letter in letters]) for letters in (a, b))
        expected, found = np.einsum(spec, x, y), contract(spec, x, y)
        assert found.shape == expected.shape and np.array_equal(found, expected)


@given(st.sampled_from(SPECS), st.randoms(use_true_random=False))
def test_order_sets_memory_only(spec, random):
    a, b = operands(spec, np.random.default_rng(random.randrange(1000)))
    result = spec.split("->")[1]
    order = "".join(random.sample(result, len(result)))
    plain, ordered = contract(spec, a, b), contract(spec, a, b, order=order)
    assert ordered.shape == plain.shape and np.allclose(ordered, plain, rtol=1e-12, atol=1e-13)
    assert np.array_equal(contract(spec, a, b, order=ordered), ordered)


def test_order_is_the_order_in_memory():
    a, b = np.ones((2, 3, 4, 5)), np.ones((2, 6, 4, 5))
    s = contract("bqhd,bkhd->bhqk", a, b, order="kbhq")
    assert s.shape == (2, 4, 3, 6) and np.argsort(s.strides)[::-1].tolist() == [3, 0, 1, 2]
    assert contract("bqhd,bkhd->bhqk", a, b, order=s).strides == s.strides


def test_laid_out_like_changes_memory_only_strip_by_strip(monkeypatch):
    a, x = np.empty((50, 2, 3, 20)).transpose(1, 2, 3, 0), np.arange(3 * 20 * 50).reshape(3, 20, 50)
    whole = laid_out_like(x, a)
    for size in 0, 3 * 20 * 50, 3 * 20 * 50 + 1:
        monkeypatch.setattr("refattn.contract.STRIPED", size)
        found = laid_out_like(x, a)
        assert np.array_equal(found, x) and found.strides == whole.strides == (160, 8, 480)
        assert np.array_equal(laid_out_like(x[:1], a), x[:1])


@pytest.mark.parametrize("order", ["kbhq", "hbqk", "qkhb", "bkqh"])
def test_laid_out_like_copies_large_arrays_piece_by_piece(order):
    """Of every memory order, of views with gaps and with turned axes, of one axis; more than one piece of each."""
    shape = dict(zip("bhqk", (5, 3, 130, 150), strict=True))
    a = np.empty([shape[x] for x in order]).transpose([order.index(x) for x in "bhqk"])
    whole = np.arange(5 * 3 * 140 * 160, dtype=np.float32).reshape(5, 3, 140, 160)
    for x in (whole[:, :, 3:133, :150], whole[:, ::-1, :130, 10:], whole.transpose(0, 1, 3, 2)[:, :, :130, :140]):
        found = laid_out_like(x, a[..., :x.shape[3]])
        assert np.array_equal(found, x) and found.transpose(["bhqk".index(x) for x in order]).flags.c_contiguous
    assert np.array_equal(laid_out_like(np.arange(600_000)[::-2], a), np.arange(600_000)[::-2])


def test_scores_lie_in_memory_by_what_they_are_normalised_over():
    q, k = np.ones((2, 3, 4, 5)), np.ones((2, 6, 4, 5))
    for over, order in ops.MEMORY.items():
        s = ops.scores(q, k, over=over)
        assert s.shape == (2, 4, 3, 6) and s.transpose(["bhqk".index(x) for x in order]).flags.c_contiguous


def test_laid_out_like_changes_memory_only():
    a = np.zeros((2, 3, 4, 5)).transpose(3, 0, 1, 2)
    x = np.random.default_rng(0).standard_normal((3, 4))
    assert np.array_equal(laid_out_like(x, a), x)


@pytest.mark.parametrize("spec, order, words", [
    ("ab,bc", None, "contract spec is 'ab,bc'; allowed: letters in the form 'ab,bc->ac'"),
    ("aab,bc->ac", None, "contract spec is 'aab,bc->ac'; allowed: different letters in 'aab'"),
    ("ab,bc->abd", None, "allowed: a letter 'c' in two or three of the three places"),
    ("ab,bc->ac", "ab", "contract order is 'ab'; allowed: the letters of the result, 'ac'"),
])
def test_bad_specs(spec, order, words):
    with pytest.raises(ValueError, match=re.escape(words).replace("'c'", "'[acd]'")):
        plan(spec, order)


def test_bad_sizes_name_the_axis():
    a, b = np.ones((2, 3)), np.ones((4, 5))
    with pytest.raises(ValueError, match="axis b is 3 in the first, 4 in the second; allowed: one size"):
        contract("ab,bc->ac", a, b)
    with pytest.raises(ValueError, match=r"'abc' is of shape \(2, 3\); allowed: 3 axes"):
        contract("abc,cd->abd", a, b)
    with pytest.raises(ValueError, match=r"out has shape \(5, 2\); allowed: \(2, 5\)"):
        contract("ab,bc->ac", a, np.ones((3, 5)), out=np.ones((5, 2)))
    with pytest.raises(ValueError, match=r"'ab,bc->ac': order is of shape \(2, 3, 1\); allowed: 2 axes"):
        contract("ab,bc->ac", a, np.ones((3, 5)), order=np.ones((2, 3, 1)))
    with pytest.raises(TypeError, match="Cannot cast"):         # fractions were cut off
        contract("ab,bc->ac", a, np.ones((3, 5)), out=np.ones((2, 5), int))
    with pytest.raises(ValueError, match="axis d is 3 in q but 5 in k; allowed: one size"):
        agree(q=(a, "qd"), k=(b, "kd"))
    with pytest.raises(ValueError, match=r"q has shape \(2, 3\); allowed: 3 axes \(b, q, d\)"):
        agree(q=(a, "bqd"))


def test_work_is_the_product_of_all_sizes():
    assert multiply_adds("ab,bc->ac", (2, 3), (3, 5)) == 30
