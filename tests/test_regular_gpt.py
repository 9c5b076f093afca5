"""RegularGPT: depth in integers, published parameter counts, initial values, what it refuses."""

from dataclasses import replace

import numpy as np
import pytest

from refattn import params
from refattn.attention.layer import MultiHead
from refattn.attention.sliding_dilated import SlidingDilated
from refattn.attention.transformer_xl import TransformerXL
from refattn.layers.feed_forward import FeedForward
from refattn.models.regular_gpt import RegularGPT, levels
from refattn.models.transformer import post_norm


def released(width=64, vocabulary=2, outputs=2, **fields) -> RegularGPT:
    attention = SlidingDilated(width, 8, width // 8, 2)
    return RegularGPT(attention, FeedForward(width, 4 * width, "relu"), vocabulary, outputs, **fields)


def test_depth_is_counted_in_integers():
    for chunk in 2, 3, 5, 6, 128:
        for length in range(1, 1300):
            n = levels(length, chunk)
            assert n >= 1 and chunk**n >= length and (n == 1 or chunk**(n - 1) < length)
    assert levels(125, 5) == 3 and levels(216, 6) == 3 and levels(3**40 + 1, 3) == 41


@pytest.mark.parametrize(("width", "expected"), [(256, 790_290), (64, 50_130)])
def test_parameters_of_the_released_model(width, expected):
    """Its embedding has a row more than the language has symbols."""
    assert params.count(released(width, vocabulary=3).parameters()) == expected


@pytest.mark.parametrize(("width", "vocabulary", "outputs", "expected"), [(256, 2, 2, 4_275_202), (64, 3, 5, 270_341)])
def test_parameters_of_the_released_transformer(width, vocabulary, outputs, expected):
    """4.3 million in R's table 4 is this baseline; five blocks of 13 m^2 + 11 m."""
    heads = MultiHead(width, 8, width // 8, position=TransformerXL(width, 8, width // 8), biases=False)
    model = post_norm(heads, 4 * width, 5, vocabulary=vocabulary + 1, outputs=outputs)
    assert params.count(model.parameters()) == expected
    assert expected == 5 * (13 * width**2 + 11 * width) + (vocabulary + 1) * width + (width + 1) * outputs


def test_initial_values_as_released():
    model = released(256, vocabulary=64)
    flat, p = params.allocate(model.parameters())
    params.initialise(flat, model.parameters(), np.random.default_rng(0), "haiku")
    block = p.blocks[0]
    for x, deviation in (block.attention.wq, 1 / 16), (block.feed_forward.w2, 1 / 32), (p.embed.table, 0.02):
        assert np.abs(x).max() <= 2 * deviation and abs(x.std() / deviation - 0.8796) < 0.02
    assert abs(block.attention.pad.std() / 0.02 - 1) < 0.15 and not block.feed_forward.b1.any()
    assert (block.norm1.scale == 1).all() and not p.readout.b.any() and block.attention.offset_bias.any()


def test_initial_values_of_gpt2():
    model = released(128, norm="pre", thickness=2)
    flat, p = params.allocate(model.parameters())
    params.initialise(flat, model.parameters(), np.random.default_rng(0), "gpt2")
    for x, deviation in ((p.blocks[1].attention.wo, 0.01), (p.blocks[0].feed_forward.w2, 0.01),
                         (p.blocks[0].attention.wv, 0.02), (p.blocks[0].feed_forward.w1, 0.02)):
        assert abs(x.std() / deviation - 1) < 0.02


def test_any_length_takes_the_same_weights():
    model = released()
    flat, p = params.allocate(model.parameters(), np.float64)
    params.initialise(flat, model.parameters(), np.random.default_rng(0), "haiku")
    x = np.random.default_rng(1).integers(2, size=(2, 200))
    for length in 1, 2, 3, 4, 5, 31, 32, 33, 64, 200:
        tree, saved = model.forward(p, x[:, :length], tree=True)
        dense, _ = model.forward(p, x[:, :length])
        np.testing.assert_allclose(tree, dense[:, -1:], rtol=0, atol=1e-12)
        assert len(saved.blocks) == levels(length, 2)
        applied = [each.attention.attention.code.shape[2] for each in saved.blocks]
        assert applied == [-(-length // 2**n) for n in range(1, len(applied) + 1)]


def test_refusals():
    model = released()
    _, p = params.allocate(model.parameters())
    with pytest.raises(ValueError, match=r"has shape \(2, 0\); allowed: \(b, t\) or \(b, t, m\) with at least one"):
        model.forward(p, np.zeros((2, 0), int))
    with pytest.raises(ValueError, match="read is .*, but a tree has the last position only"):
        model.forward(p, np.zeros((2, 3), int), tree=True, read=slice(1))
    for number in 0, -1:
        with pytest.raises(ValueError, match=f"levels is {number}; allowed: whole numbers of at least 1"):
            model.forward(p, np.zeros((2, 3), int), levels=number)
    with pytest.raises(ValueError, match="norm is 'middle'; allowed: pre, post, none"):
        replace(model, norm="middle")
    with pytest.raises(ValueError, match="thickness is 0; allowed: whole numbers of at least 1"):
        replace(model, thickness=0)
