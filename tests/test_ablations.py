"""What is particular to Table A1 as three knobs: values by hand, the named rows, bad knobs."""

import re

import numpy as np
import pytest

from refattn.attention import VARIANTS, variant
from refattn.attention.ablations import Knobs, ablation
from refattn.verification.naive.ablations import ablation as definition
from tests.pages import inputs


def by_hand(normaliser, uses, phi, wv2=None):
    """One pair with the scores (1, -7) and values (12, 1): the output."""
    q, k, v = np.ones((1, 1, 2, 1)), np.array([[[[1.0], [-7.0]]]]), np.array([[[[12.0], [1.0]]]])
    return ablation(q, k, v, *([] if wv2 is None else [wv2]), knobs=Knobs(normaliser, uses, phi))[0].ravel()


def test_one_pair_by_hand():
    assert np.allclose(by_hand("none", 1, "identity"), [12, -7])
    assert np.allclose(by_hand("softmax", 1, "identity"), [12, 1])          # a single key has all the weight
    assert np.allclose(by_hand("rms_head", 1, "relu"), [2.4, -1.4])
    assert np.allclose(by_hand("none", 2, "identity"), [5, -35])            # z = 12 - 7
    assert np.allclose(by_hand("softmax", 2, "relu"), [13, 13])
    assert np.allclose(by_hand("softmax_rms_head", 2, "relu"), [13, 13])    # two equal weights have the mean square 1
    assert np.allclose(by_hand("rms_head", 3, "relu", np.array([[[10.0]], [[-1.0]]])), [0.2 * 3.4, -1.4 * 3.4])


TABLE_A1 = {                   # name of a row, normaliser of the scores, uses of the code, phi
    "softmax": ("Softmax attention", "softmax", 1, "identity"),
    "linear": ("Linear attention", "none", 1, "identity"),
    "hyla": ("HYLA", "rms_head", 2, "relu"),
    "linear_rms_head": ("Linear attention + RMSHead", "rms_head", 1, "identity"),
    "linear_rms_head_relu_values": ("Linear attention + RMSHead + nonlinear value", "rms_head", 1, "relu"),
    "hyla_no_rms_head": ("HYLA - RMSHead", "none", 2, "relu"),
    "hyla_no_nonlinearity": ("HYLA - nonlinearity", "rms_head", 2, "identity"),
    "hyla_no_nonlinearity_no_rms_head": ("HYLA - nonlinearity - RMSHead", "none", 2, "identity"),
    "hyla_softmax_for_rms_head": ("HYLA - RMSHead + softmax", "softmax", 2, "relu"),
    "hyla_deep": ("HYLA + deep value network", "rms_head", 3, "relu"),
    "hyla_and_softmax": ("HYLA + softmax", "softmax_rms_head", 2, "relu"),
    "hyla_and_softmax_reversed": ("HYLA + softmax", "rms_head_softmax", 2, "relu"),
}


@pytest.mark.parametrize("name, row", TABLE_A1.items())
def test_a_row_of_table_a1_is_what_the_paper_prints(name, row):
    printed, normaliser, uses, phi = row
    assert VARIANTS[name].knobs == (normaliser, uses, phi) and printed in VARIANTS[name].row
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, t, 3, 4)) for t in (5, 6, 6))
    wv2 = rng.standard_normal((3, 4, 4)) if uses == 3 else None
    o, _ = VARIANTS[name].forward(q, k, v, *([] if wv2 is None else [wv2]))
    expected = definition(q, k, v, normaliser=normaliser, code_uses=uses, phi=phi, wv2=wv2)
    assert np.allclose(o, expected, rtol=0, atol=1e-12)


def test_table_a1_is_whole():
    assert TABLE_A1.keys() <= VARIANTS.keys() and len({row[1:] for row in TABLE_A1.values()}) == 12


@pytest.mark.parametrize("name", ["softmax", "linear", "hyla"])
def test_the_pages_are_special_cases(name):
    q, k, v = inputs()
    bias, keep = np.linspace(-1, 1, 12).reshape(3, 4), np.arange(12).reshape(3, 4) % 5 > 0
    page, knobs = VARIANTS[name], variant(VARIANTS[name].knobs)
    (o, saved), (o2, saved2) = (row.forward(q, k, v, bias=bias, keep=keep) for row in (page, knobs))
    assert np.allclose(o, o2, rtol=1e-13, atol=0)
    for one, two in zip(page.backward(saved, o), knobs.backward(saved2, o), strict=False):
        assert np.allclose(one, two, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("knobs, words", [
    (("layer_norm", 2, "relu"), "normaliser is 'layer_norm'; allowed: softmax, none, rms_head, softmax_rms_head"),
    (("none", 4, "relu"), "code_uses is 4; allowed: whole numbers from 1 to 3"),
    (("none", True, "relu"), "code_uses is True; allowed: whole numbers from 1 to 3"),
    (("none", 2, "gelu"), "phi is 'gelu'; allowed: identity, relu"),
    (("none", 3, "relu"), "wv2 is missing, but code_uses is 3; allowed: wv2 with 3"),
])
def test_bad_knobs(knobs, words):
    with pytest.raises(ValueError, match=words):
        ablation(*inputs(), knobs=Knobs(*knobs))
    if "wv2" not in words:
        with pytest.raises(ValueError, match=words):
            variant(Knobs(*knobs))


def test_wv2_where_it_is_not_used_and_an_unknown_name():
    with pytest.raises(ValueError, match="wv2 is given, but code_uses is 2; allowed: wv2 with 3, None"):
        ablation(*inputs(), np.zeros((5, 7, 7)), knobs=Knobs("none", 2, "relu"))
    with pytest.raises(ValueError, match="axis e is 7 in v but 6 in wv2"):
        ablation(*inputs(), np.zeros((5, 6, 6)), knobs=Knobs("none", 3, "relu"))
    for name in ["a/b", ["hyla"], 3]:
        with pytest.raises(ValueError, match=f"variant {re.escape(repr(name))} is unknown.* allowed: softmax"):
            variant(name)
    with pytest.raises(ValueError, match=r"'hayla' is unknown, did you mean hyla\? allowed: softmax, linear, hyla"):
        variant("hayla")
