"""Language models: writing on from what is kept, biases by distance, the loss in tiles, recipes."""

from dataclasses import replace

import numpy as np
import pytest

from refattn.analysis.text import bits_by_position, receptive_field
from refattn.layers.text_positions import ALiBi, Kerple, LearnedTable, slopes
from refattn.recipes import recipe
from refattn.tasks.text import corpus, sample
from refattn.theorems.statement import filled
from refattn.train.writing import streamed, written

SIZES = {"text": "documentation", "width": 16, "heads": 2, "layers": 2, "length": 9, "chunk": 2, "selector": 3}
MODELS = [("softmax", "learned"), ("softmax", "t5"), ("linear", "interleaved"), ("linear", "rotary"),
          ("linear", "alibi"), ("hyla", "kerple_log"), ("hyla", "none"), ("compositional", "halves"),
          ("regular_gpt", "none")]


def built(attention, position, **fields):
    """A small model of the recipe with random parameters in float64, and token ids."""
    model = recipe("text", attention=attention, position=position, **SIZES, **fields).build()
    return model, filled(model, np.random.default_rng(0)), np.random.default_rng(1).integers(256, size=(2, 9))


@pytest.mark.parametrize("attention, position", MODELS)
def test_kept_keys_and_states_equal_reading_all_again(attention, position):
    model, p, x = built(attention, position)
    whole, _ = model.forward(p, x)
    for cuts in ([0, 9], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [0, 4, 5, 9]):
        kept, pieces = None, []
        for start, stop in zip(cuts, cuts[1:], strict=False):
            y, kept = model.extend(p, x[:, start:stop], kept)
            pieces.append(y)
        assert np.abs(np.concatenate(pieces, axis=1) - whole).max() <= 1e-12 * np.abs(whole).max()


def test_regular_gpt_writes_beyond_the_levels_that_it_was_trained_with():
    model, p, x = built("regular_gpt", "none")
    model = replace(model, length=3)
    kept = None
    for stop in range(1, 10):
        y, kept = model.extend(p, x[:, stop - 1:stop], kept)
        assert np.abs(y[:, -1] - model.forward(p, x[:, :stop])[0][:, -1]).max() <= 1e-12 * np.abs(y).max()
    assert len(kept.applied) == 2 * 4                       # levels of 9 tokens at chunk 2


def test_linear_attention_keeps_as_much_after_any_number_of_tokens():
    model, p, x = built("linear", "rotary")
    sizes = set()
    kept = None
    for _ in range(3):
        _, kept = model.extend(p, x, kept)
        sizes.add(sum(own.state.size for own, _ in kept.applied))
    assert len(sizes) == 1


def test_slopes_are_those_of_the_paper():
    assert slopes(8).tolist() == [2.0 ** -n for n in range(1, 9)]
    assert slopes(12).tolist() == [*(2.0 ** -n for n in range(1, 9)), *(2.0 ** -(n + 0.5) for n in range(4))]


@pytest.mark.parametrize("make, words", [
    (lambda: ALiBi(0), "heads is 0"), (lambda: Kerple(2, "cubic"), "kernel is 'cubic', allowed are 'log', 'power'"),
    (lambda: LearnedTable(3, 2).forward(None, np.zeros((1, 2, 2)), 2), "position 3 is beyond the learned table"),
    (lambda: recipe("text", width=30), "width is 30, allowed are multiples of heads, 4"),
    (lambda: recipe("text", context=64), "context is 64, allowed are numbers below length, 64"),
    (lambda: recipe("text", attention="compositional", position="alibi"), "position is 'alibi', allowed with"),
    (lambda: recipe("text", longest=128), "longest is 128, but a learned table ends at 64"),
    (lambda: recipe("text", text="nowhere").build(), "text is 'nowhere', allowed are documentation, library"),
    (lambda: recipe("text", length=10**6).sample(np.random.default_rng(0)), "length is 1,000,000, allowed are numbers"),
])
def test_bad_input_gets_one_line(make, words):
    with pytest.raises(ValueError) as error:
        make()
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("attention, position", [("softmax", "learned"), ("linear", "rotary"), ("regular_gpt", "none")])
def test_text_is_the_same_for_the_same_seed_and_greedy_is_the_greatest(attention, position):
    model, p, x = built(attention, position)
    one, again, other = (list(written(model, p, x[0, :4], 30, top_k=5, seed=seed)) for seed in (3, 3, 4))
    assert one == again != other and len(one) == 30
    likeliest, ids = list(written(model, p, x[0, :4], 5, temperature=0)), list(x[0, :4])
    for token in likeliest:
        assert token == model.forward(p, np.array([ids]))[0][0, -1].argmax()
        ids.append(token)
    before = likeliest[:likeliest.index(likeliest[-1])]
    assert list(written(model, p, x[0, :4], 5, temperature=0, stop=likeliest[-1:])) == before


def test_half_a_character_waits_for_its_other_half():
    bytes_ = corpus("documentation")
    ids = list("a – b é".encode())
    pieces = list(streamed(bytes_, ids))
    assert "".join(pieces) == "a – b é" and "–" in pieces and "\ufffd" not in "".join(pieces)


def test_bits_by_position_are_the_losses_and_a_window_is_all_that_a_small_chunk_sees():
    chosen = recipe("text", attention="regular_gpt", **SIZES | {"length": 4})
    model, p = chosen.build(), filled(chosen.build(), np.random.default_rng(0))
    bits = bits_by_position(chosen, model, p, 7, windows=2, seed=5)
    rng = np.random.default_rng(5)
    losses = []
    for _ in range(2):
        batch = sample(rng, chosen.corpus().ids["test"], 1, 7)
        losses.append(model.forward(p, batch.tokens, target=batch.target)[0][0])
    np.testing.assert_allclose(bits, np.mean(losses, axis=0) / np.log(2), rtol=1e-12)
    field = receptive_field(replace(model, stack=replace(model.stack, layers=1)), p, batch.tokens, batch.target)
    assert field.shape == (7,) and (np.diff(field) >= 0).all() and field[-1] == pytest.approx(1)
    wide = replace(model, length=1, stack=replace(model.stack, layers=1))
    assert receptive_field(wide, p, batch.tokens[:, :2], batch.target[:, :2])[0] < 1
