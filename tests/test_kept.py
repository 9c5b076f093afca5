"""Tokens decoded with kept keys and values: equal to the causal layer over all of them, whatever the pieces."""

import numpy as np
import pytest

from refattn import check
from refattn.attention import VARIANTS, masks
from refattn.attention.compositional import Compositional
from refattn.attention.layer import MultiHead
from refattn.attention.sliding_dilated import SlidingDilated
from refattn.attention.transformer_xl import TransformerXL
from refattn.attention.value_scores import SCORINGS
from refattn.layers.positions import Rotary
from refattn.verification.theorems.statement import filled

LAYERS = {name: MultiHead(8, 3, 4, 2, variant=name) for name in VARIANTS}
LAYERS |= {f"compositional, {scoring}": Compositional(8, 3, 4, 4, 2, 5, scoring) for scoring in SCORINGS}
LAYERS |= {"rotary": MultiHead(8, 3, 4, 2, position=Rotary(pairing="half")), "no biases": MultiHead(8, 3, 4,
           biases=False), "Transformer-XL": MultiHead(8, 3, 4, position=TransformerXL(8, 3, 4))}
T = 11


def pieces(rng):
    """Slices that cut T tokens at random places."""
    cuts = np.unique([0, T, *rng.integers(1, T, 4)]).tolist()
    return [slice(*pair) for pair in zip(cuts, cuts[1:], strict=False)]


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_pieces_equal_the_whole(layer):
    rng = np.random.default_rng(0)
    p, x, bias = filled(layer, rng), rng.standard_normal((2, T, 8)), rng.standard_normal((3, T, T))
    keep = (rng.random((2, 1, T, T)) < 0.7) | np.eye(T, dtype=bool)
    whole, _ = layer.forward(p, x, bias=bias, keep=keep & masks.causal(T))
    for cuts in pieces(rng), pieces(rng), [slice(t, t + 1) for t in range(T)], [slice(0, T)]:
        kept = None
        for now in cuts:
            seen = ..., now, slice(now.stop)
            y, kept = layer.extend(p, x[:, now], kept, bias=bias[seen], keep=keep[seen])
            assert check.deviation("y", y, whole[:, now]) <= 1e-12 and kept.length == now.stop


@pytest.mark.parametrize("name", ["hyla", "compositional, dot", "compositional, linear"])
def test_a_kept_context_equals_cross_attention(name):
    layer, rng = LAYERS[name], np.random.default_rng(0)
    p, x, context = filled(layer, rng), rng.standard_normal((2, 4, 8)), rng.standard_normal((2, 6, 8))
    keep = masks.padding(np.array([6, 2]), 6)
    whole, _ = layer.forward(p, x, context=context, keep=keep)
    kept = layer.project_context(p, context)
    for now in slice(0, 1), slice(1, 4):
        assert check.deviation("y", layer.attend(p, x[:, now], kept, keep=keep), whole[:, now]) <= 1e-12


def test_what_is_kept_stays_and_rows_can_be_dropped():
    layer, rng = LAYERS["softmax"], np.random.default_rng(0)
    p, x = filled(layer, rng), rng.standard_normal((3, T, 8))
    y, first = layer.extend(p, x[:, :5])
    before = first.arrays["k"][:, :5].copy()
    for other in x, -x:                                     # two continuations of one prompt, one after the other
        kept, outputs = first, []
        for t in range(5, T):
            y, kept = layer.extend(p, other[:, t:t + 1], kept)
            outputs.append(y)
        whole, _ = layer.forward(p, np.concatenate([x[:, :5], other[:, 5:]], axis=1), keep=masks.causal(T))
        assert check.deviation("y", np.concatenate(outputs, axis=1), whole[:, 5:]) <= 1e-12
    np.testing.assert_array_equal(first.arrays["k"][:, :5], before)
    rows = np.array([2, 0])
    fewer, _ = layer.extend(p, x[rows, 5:6], first.rows(rows))
    assert check.deviation("y", fewer, layer.extend(p, x[:, 5:6], first)[0][rows]) <= 1e-12


@pytest.mark.parametrize("name", ["softmax", "linear", "compositional, dot", "sliding dilated"])
def test_two_continuations_of_one_prompt_may_alternate(name):
    """The second was written over the first, which then read its keys."""
    layer, rng = LAYERS.get(name, SlidingDilated(8, 3, 4, 3)), np.random.default_rng(0)
    p, x = filled(layer, rng), rng.standard_normal((2, 2, T, 8))
    x[1, :, :4] = x[0, :, :4]
    causal = {} if name == "sliding dilated" else {"keep": masks.causal(T)}
    _, kept = layer.extend(p, x[0, :, :3])
    _, kept = layer.extend(p, x[0, :, 3:4], kept)           # there is room behind it now
    both = [kept, kept]
    for t in range(4, T):
        for n in 0, 1:
            y, both[n] = layer.extend(p, x[n, :, t:t + 1], both[n])
            assert check.deviation("y", y, layer.forward(p, x[n], **causal)[0][:, t:t + 1]) <= 1e-12


def test_refusals():
    layer = LAYERS["rotary"]
    p = filled(layer, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"position is Rotary\(.*; allowed: None"):
        layer.attend(p, np.ones((1, 1, 8)), layer.project_context(p, np.ones((1, 2, 8))))
    with pytest.raises(ValueError, match=r"x has shape \(1, 1, 7\); allowed: \(b, t, m\) with m = 8"):
        layer.extend(p, np.ones((1, 1, 7)))
    plain = LAYERS["softmax"]
    p = filled(plain, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"x has shape \(1, 7\); allowed: \(b, t, m\) with m = 8"):
        plain.attend(p, np.ones((1, 7)), plain.project_context(p, np.ones((1, 2, 8))))
    with pytest.raises(ValueError, match="context has shape"):
        layer.project_context(p, np.ones((1, 8)))
