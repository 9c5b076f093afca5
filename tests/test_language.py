"""Language models: writing on from what is kept, biases by distance, the loss in tiles, recipes."""

from dataclasses import replace

import numpy as np
import pytest

from refattn import cli, optim, params
from refattn.analysis.text import bits_by_position, receptive_field
from refattn.attention.layer import MultiHead
from refattn.layers.block import Block
from refattn.layers.embedding import Embedding
from refattn.layers.feed_forward import FeedForward
from refattn.layers.next_token import next_token, next_token_backward
from refattn.layers.stack import Stack
from refattn.layers.text_positions import ALiBi, Kerple, LearnedTable, slopes
from refattn.models.language import Language
from refattn.recipes import recipe
from refattn.recipes.text import TextRecipe
from refattn.tasks.text import corpus
from refattn.tasks.text_windows import sample
from refattn.train import fit, runs
from refattn.train.evaluation import moved
from refattn.train.record import State
from refattn.train.writing import drawn, streamed, written
from refattn.verification.theorems.statement import filled
from tests import strict_cupy
from tests.tiny import tiny

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
    for cuts in range(10), (0, 1, 9), (0, 3, 4, 9):         # one level more, or two at a time
        kept = None
        for start, stop in zip(cuts, cuts[1:], strict=False):
            y, kept = model.extend(p, x[:, start:stop], kept)
            assert np.abs(y - model.forward(p, x[:, :stop])[0][:, start:]).max() <= 1e-12 * np.abs(y).max()
        assert len(kept.applied) == 2 * 4                   # levels of 9 tokens at chunk 2


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
    (lambda: ALiBi(0), "heads is 0"), (lambda: Kerple(2, "cubic"), "kernel is 'cubic'; allowed: log, power"),
    (lambda: LearnedTable(3, 2).forward(None, np.zeros((1, 2, 2)), 2), "x has positions 2 to 3; allowed: 0 to 2"),
    (lambda: recipe("text", width=30), "width is 30; allowed: multiples of heads, 4"),
    (lambda: recipe("text", attention="compositional", retrievals=3),
     "width is 64; allowed: multiples of retrievals, 3"),
    (lambda: recipe("text", context=64), "context is 64; allowed: numbers below length, 64"),
    (lambda: recipe("text", attention="compositional", position="alibi"), "position is 'alibi'; allowed with"),
    (lambda: recipe("text", position="alibi", longest=32), "longest is 32; allowed: 0, and numbers from length, 64"),
    (lambda: recipe("text", longest=128), "longest is 128, but a learned table ends at 64"),
    (lambda: recipe("text").sample(None, "times_1"), "split is 'times_1'; allowed: train, validation, test"),
    (lambda: [*recipe("text").batches("tests", 3)], "split is 'tests'; allowed: train, validation, test"),
    (lambda: recipe("text", text="nowhere").build(), "text is 'nowhere'; allowed: documentation, library"),
    (lambda: recipe("text", length=10**6).build(), "tokens; allowed: more than the 1,000,000 of a window"),
    (lambda: recipe("text", longest=2**19, position="none").build(), "text is 'documentation', but its test split has"),
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
    there = params.view(strict_cupy.asarray(np.zeros(params.count(model.parameters()))), model.parameters())
    for views in p, there:                              # where an index beyond the table would count from its start
        for prompt in [1, 1.5], [-1], ["a"], [1, len(p.embed.table)]:
            with pytest.raises(ValueError, match="a token of the prompt is .*; allowed: whole numbers from 0 to "):
                written(model, views, prompt, 2)


def test_words_come_with_spaces_and_lines(tmp_path):
    (tmp_path / "a.txt").write_text("one two\nthree one\n" * 40)
    words = corpus(str(tmp_path / "a.txt"), "words")
    ids = words.encode("one two\nthree\n\none")
    pieces = list(streamed(words, ids))
    assert "".join(pieces) == words.decode(ids) == "one two\nthree\n\none" and len(pieces) > 4
    many = words.ids["train"][:200]
    assert "".join(streamed(words, many)) == words.decode(many)


def test_what_has_been_said_is_decoded_once():
    class Counted:
        unit, asked = "bytes", 0

        def decode(self, ids):
            self.asked += len(ids)
            return bytes(ids).decode()
    asked = Counted()
    assert "".join(streamed(asked, b"x" * 1_000)) == "x" * 1_000 and asked.asked < 40_000         # 500,000 all anew


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
    low = replace(model, stack=replace(model.stack, layers=1))
    p = filled(low, np.random.default_rng(0))
    field = receptive_field(low, p, batch.tokens, batch.target)
    assert field.shape == (7,) and (np.diff(field) >= 0).all() and field[-1] == pytest.approx(1)
    assert receptive_field(replace(low, length=1), p, batch.tokens[:, :2], batch.target[:, :2])[0] < 1
    others = np.where(np.arange(7) < 6, 0, batch.target)
    assert np.array_equal(receptive_field(low, p, batch.tokens, others), field)     # the last token's loss alone


def test_every_update_leaves_kerples_numbers_where_they_may_be():
    for kernel, most in ("log", np.inf), ("power", 2.0):
        done = fit(recipe("text", position=f"kerple_{kernel}", steps=4, warmup=0, rate=3.0, **SIZES), progress=False)
        found = np.concatenate([np.concatenate([block.attention.position.a, block.attention.position.p])
                                for block in done.parameters.blocks])
        assert found.min() == np.float32(0.01) and max(block.attention.position.p.max()
                                                       for block in done.parameters.blocks) <= most
    assert params.bounds(recipe("text", **SIZES).build().parameters()) is None


def test_t5_has_the_sizes_of_its_paper():
    t5 = recipe("text", position="t5", **SIZES).build().stack.block.position
    assert (t5.heads, t5.buckets, t5.max_distance) == (2, 32, 128)


def test_kerples_numbers_begin_between_a_hundredth_and_one_or_two():
    for attention in "softmax", "hyla":
        chosen = recipe("text", attention=attention, position="kerple_power", **SIZES | {"heads": 16})
        listed = chosen.build().parameters()
        flat, p = params.allocate(listed)
        params.initialise(flat, listed, np.random.default_rng(0), "gpt2", chosen.INITIAL)
        for name, most in ("a", 1), ("p", 2):
            found = np.concatenate([getattr(block.attention.position, name) for block in p.blocks])
            assert 0.01 <= found.min() < 0.3 * most and 0.8 * most < found.max() <= most


def test_beyond_a_learned_table_the_later_half_is_read_again():
    model, p, _ = built("softmax", "learned")
    prompt = np.random.default_rng(4).integers(256, size=9).tolist()
    first, second = written(model, p, prompt, tokens=2, temperature=0.0)
    half = [*prompt, first][-4:]
    after, alone = (list(written(model, p, ids, tokens=1, temperature=0.0)) for ids in (half, half[-1:]))
    assert [second] == after != alone


def test_adam_of_c_adds_epsilon_before_it_corrects():
    p, g, b1, b2, eps = np.array([2.0]), np.array([0.3]), 0.9, 0.98, 0.1
    state = optim.moments(p)
    for step in (1, 2):
        optim.adamw_step(p, g, state, step=step, rate=0.01, beta1=b1, beta2=b2, epsilon=eps, epsilon_first=True)
    q, m, v = 2.0, 0.0, 0.0
    for step in (1, 2):
        m, v = b1 * m + (1 - b1) * 0.3, b2 * v + (1 - b2) * 0.09
        q -= 0.01 * (1 - b2 ** step) ** 0.5 / (1 - b1 ** step) * m / (v ** 0.5 + eps)
    assert p[0] == pytest.approx(q, rel=1e-13)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of two steps, with last tokens of longer windows."""
    out = tmp_path_factory.mktemp("text") / "run"
    fields = {"position": "alibi", "longest": 20, "chunks": 2, "steps": 2, "log_every": 1, "evaluate_every": 1}
    fit(recipe("text", **SIZES, **fields, probe=1), out, progress=False)
    return out


def test_a_run_scores_lengths_keeps_its_best_and_writes(run, capsys):
    assert (run / "best.npz").exists()
    assert cli.main(["write", str(run), "The for", "--tokens", "20", "--seed", "3"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("The for") and len(said) > 10
    assert cli.main(["write", str(run), "The for", "--tokens", "20", "--seed", "3"]) == 0
    assert capsys.readouterr().out == said


@pytest.mark.parametrize("words, piece", [
    (["nowhere", "x"], "'nowhere' holds no run"), (["RUN", ""], "the prompt is empty"),
    (["RUN"], "PROMPT is missing; allowed: what refattn write --help lists"),
    (["RUN", "x", "--temperature", "-1"], "--temperature is -1.0; allowed: numbers of at least 0"),
    (["RUN", "x", "--tokens", "-1"], "write: --tokens is -1; allowed: whole numbers of at least 0"),
    (["RUN", "x", "--top-k", "-1"], "write: --top-k is -1; allowed: whole numbers of at least 0"),
    (["OTHER", "x"], "RUN is of fuzzy_logic, which says nothing; allowed: runs of scan, text"),
    (["RUN", "x", "--temperatur", "1"], "did you mean --temperature?"),
    (["RUN", "x", "--top-k", "many"], "--top-k is 'many'; allowed: whole numbers")])
def test_write_answers_bad_input_in_one_line(run, words, piece, tmp_path, capsys):
    paths = {"RUN": str(run), "OTHER": str(tmp_path)}
    if "OTHER" in words:
        fit(tiny(steps=1), tmp_path, progress=False)
    assert cli.main(["write", *(paths.get(word, word) for word in words)]) == 2
    said = capsys.readouterr()
    assert piece in said.err and said.err.count("\n") == 1 and not said.out


@pytest.mark.parametrize("attention, position", [("softmax", "kerple_power"), ("hyla", "alibi"), ("linear", "rotary"),
                                                 ("regular_gpt", "none"), ("compositional", "halves")])
def test_a_step_on_a_device_never_waits_nor_transfers_nor_widens(attention, position):
    chosen = recipe("text", attention=attention, position=position, **SIZES)
    model, batch = chosen.build(), moved(chosen.sample(np.random.default_rng(0), size=2), strict_cupy)
    listed = model.parameters()
    (flat, p), (gradient, grads) = (params.allocate(listed, xp=strict_cupy) for _ in range(2))
    params.initialise(flat, listed, np.random.default_rng(0), "gpt2", chosen.INITIAL)
    state, bounds = optim.moments(flat), params.bounds(listed, xp=strict_cupy)

    def step(number):
        tokens, options = chosen.inputs(batch)
        y, saved = model.forward(p, tokens, **options)
        loss, dy = chosen.loss(y, batch)
        gradient.fill(0)
        model.backward(p, saved, dy, grads)
        optim.adamw_step(flat, gradient, state, step=number, rate=1e-3, **chosen.ADAM)
        if bounds is not None:
            strict_cupy.clip(flat, *bounds, out=flat)
        return loss

    step(1)                                                 # distances and tables are uploaded once per length
    with strict_cupy.forbid(), strict_cupy.no_float64(), strict_cupy.count() as c:
        step(2)
    assert c.sync == c.h2d == c.d2h == c.einsum == c.dispatches == c.pointer_gemms == 0


def test_of_every_length_the_last_token_alone_is_scored():
    chosen = recipe("text", position="alibi", longest=36, chunks=3, **SIZES)
    assert chosen.lengths == {"times_1": 9, "times_2": 18, "times_4": 36}
    assert chosen.SPLITS == ("validation", "test", *chosen.lengths)
    assert recipe("text", position="alibi", longest=9, **SIZES).lengths == {"times_1": 9}
    assert [len(batch.tokens) for batch in chosen.asked("validation", 20)] == [16, 4]
    assert [[len(batch.tokens) for batch in chosen.asked(split, 3)] for split in chosen.lengths] == [[12], [6], [3]]
    for split, (length, windows) in {"times_1": (9, 12), "times_2": (18, 6), "times_4": (36, 3)}.items():
        batches = list(chosen.asked(split, 10**9))
        assert sum(len(batch.tokens) for batch in batches) == windows and not list(chosen.asked(split, 2))
        for batch in batches:
            assert batch.tokens.shape[1] == length and (batch.weight == (np.arange(length) == length - 1)).all()
    few = replace(chosen, evaluation=2)                     # an evaluation asks, however few windows it has of others
    assert [len(batch.tokens) for batch in few.asked("times_4", 2)] == [3] and not list(few.asked("times_4", 1))
    model = chosen.build()
    p, batch = filled(model, np.random.default_rng(0)), next(iter(chosen.asked("times_4", 10**9)))
    read = chosen.predict(model, p, batch)
    assert read.shape == (3, 1, 2)
    found = chosen.summary(chosen.score(read, batch))["bits"]
    assert found == pytest.approx(model.forward(p, batch.tokens, target=batch.target)[0][:, -1].mean() / np.log(2))


@pytest.mark.parametrize("attention, position", [
    ("softmax", "alibi"), ("softmax", "t5"), ("softmax", "kerple_log"), ("softmax", "rotary"), ("hyla", "interleaved"),
    ("linear", "rotary"), ("linear", "alibi"), ("compositional", "t5"), ("regular_gpt", "none")])
@pytest.mark.parametrize("piece", [4, 7, 40])
def test_the_last_token_is_the_same_piece_by_piece(attention, position, piece):
    chosen = recipe("text", attention=attention, position=position, longest=36, chunks=3, **SIZES)
    model = chosen.build()
    p, batch = filled(model, np.random.default_rng(0)), next(iter(chosen.asked("times_4", 10**9)))
    whole, saved = model.forward(p, batch.tokens, target=batch.target)
    y, loss = model.last(p, batch.tokens, batch.target, piece)
    np.testing.assert_allclose(y, whole[:, -1:], rtol=1e-12)
    assert np.array_equal(loss.hit, saved.loss.hit[:, -1:])
    with pytest.raises(ValueError, match=r"target has shape \(3, 36\); allowed: \(3, 34\)"):
        model.last(p, batch.tokens[:, :-2], batch.target, piece)
    with pytest.raises(ValueError, match=r"target has shape \(3, 1\); allowed: \(3, 36\)"):
        model.last(p, batch.tokens, batch.target[:, -1:], piece)
    with pytest.raises(ValueError, match=r"target has shape \(3, 36\); allowed: \(3, 35\)"):    # it would be late
        model.forward(p, batch.tokens[:, :-1], target=batch.target, read=slice(-1, None))
    np.testing.assert_allclose(chosen.predict(model, p, batch)[..., 0], y, rtol=1e-12)


def test_scores_are_sums_over_what_is_asked(tmp_path):
    (tmp_path / "a.txt").write_text("one two three\n" * 60 + "one four\n" * 6)
    chosen = recipe("text", unit="words", **SIZES | {"text": str(tmp_path / "a.txt")})
    model = chosen.build()
    p, batch = filled(model, np.random.default_rng(7)), next(iter(chosen.asked("test", 4)))
    sums = chosen.score(chosen.predict(model, p, batch), batch)
    assert {x.shape for x in sums.values()} == {(len(batch.tokens),)}
    found = chosen.summary(sums)
    z, _ = model.forward(p, batch.tokens)
    losses = np.log(np.exp(z).sum(-1)) - np.take_along_axis(z, batch.target[..., None], -1)[..., 0]
    inside = batch.weight > 0
    assert found["bits"] == pytest.approx(losses[inside].mean() / np.log(2))
    assert found["perplexity"] == pytest.approx(np.exp(losses[inside].mean()))
    assert found["accuracy"] == (z.argmax(-1) == batch.target)[inside].mean() > 0
    assert found["unknown"] == (batch.target == 0)[inside].mean() > 0


def test_a_tile_has_two_million_scores_and_128_tokens_at_least():
    for words, rows in (2 ** 10, 2 ** 11), (2 ** 13, 2 ** 8), (2 ** 15, 2 ** 7):
        h, table, target = np.zeros((1, 2, 1)), np.zeros((words, 1)), np.zeros((1, 2), int)
        assert next_token(h, table, target)[1].rows == rows
    for rows in 0, -5, 1.5:
        with pytest.raises(ValueError, match=f"rows is {rows}; allowed: whole numbers of at least 1"):
            next_token(h, table, target, rows=rows)


def test_rates_are_nanogpts_and_cs():
    nano, c = recipe("text", "small"), recipe("text", "paper_c")
    assert nano.rate_at(50) == 5e-4 and nano.rate_at(100) == 1e-3 and nano.rate_at(2_000) == pytest.approx(1e-4)
    assert c.rate_at(0) == 1e-7 and c.rate_at(2_000) == pytest.approx(1e-3, rel=1e-4) and c.rate_at(4_000) == 2e-3
    assert c.rate_at(16_000) == 1e-3
    assert recipe("text", "paper_c", attention="compositional").rate == 4e-3        # each its best of five
    assert recipe("text", "paper_c", attention="compositional", rate=1e-3).rate == 1e-3


def test_sizes_of_cs_models_are_the_papers():
    """Of C's released code: the layer that is shared; the rest is the tied table and the last norm."""
    for attention, expected in ("softmax", 3_152_384), ("compositional", 3_285_792):
        chosen = recipe("text", "paper_c", attention=attention, unit="bytes")
        model = chosen.build()
        assert params.count(model.stack.block.parameters()) == expected
        assert params.count(model.parameters()) == expected + 256 * 512 + 1_024
        assert round((expected + 267_744 * 512 + 1_024) / 1e6) == 140       # with WikiText-103's words: the text's 140M


def test_sizes_of_rs_models_are_the_papers(monkeypatch):
    """Table 5: 81M at K = 6, 123M at K = 12, with nanoGPT's vocabulary.  Baselines have as many layers as 128/6."""
    monkeypatch.setattr(TextRecipe, "symbols", lambda self: 50_304)
    for thickness, millions in (6, 81), (12, 123):
        chosen = recipe("text", "paper_r", layers=thickness)
        assert (chosen.heads, chosen.width, chosen.length, chosen.batch, chosen.steps) == (12, 768, 512, 32, 50_000)
        model = chosen.build()
        assert (model.stack.layers, model.stack.block.attention.chunk) == (thickness, 128)
        assert params.count(model.parameters()) // 1_000_000 == millions
    for position in "kerple_log", "t5", "alibi":
        model = recipe("text", "paper_r", attention="softmax", position=position).build()
        assert model.stack.layers == 6 and params.count(model.parameters()) // 1_000_000 == 81


@pytest.mark.parametrize("files, words", [
    (["ab\n" * 40], None), (["ab\n" * 5], "validation split has 1 tokens; allowed: more than the 1 of a window"),
    (["ab\n" * 40, "c"], "but its test split has 1 tokens")])
def test_every_split_has_a_token_to_predict_or_no_run_begins(files, words, tmp_path):
    names = [tmp_path / str(n) for n in range(len(files))]
    for name, content in zip(names, files, strict=True):
        name.write_text(content)
    one = recipe("text", text=str(names[0]), test=str(names[1]) if len(names) > 1 else "", length=4, width=8, heads=2,
                 layers=1, steps=1, batch=2)
    if words is None:
        assert fit(one, progress=False).metrics["test"]["bits"] > 0
        return
    with pytest.raises(ValueError) as error:
        one.build()
    assert words in str(error.value)


def test_maps_of_attention_begin_as_cs_code_has_them():
    """q, k, v and the selector's Xavier at gain 1 / sqrt(2), their biases as PyTorch's; of the output map 1, and 0."""
    chosen = recipe("text", "paper_c", attention="compositional", unit="bytes", width=64, layers=1)
    listed = chosen.build().parameters()
    flat, p = params.allocate(listed)
    params.initialise(flat, listed, np.random.default_rng(0), chosen.initialise, chosen.INITIAL)
    own = p.block.attention
    assert not own.bo.any() and own.bq.any() and own.bs.any()
    assert np.abs(own.wo).max() == pytest.approx((6 / 128) ** 0.5, rel=0.02)
    assert np.abs(own.wq).max() == pytest.approx((3 / 128) ** 0.5, rel=0.02)


def test_memory_is_estimated_before_a_run():
    chosen = recipe("text", "small", text="documentation", unit="bytes")
    kept = 4 * 12 * 64 * (10 * 128 + 4 * 64)                # blocks, tokens, features and pairs of each
    assert chosen.least_bytes() == 4 * (5 * params.count(chosen.build().parameters()) + kept)
    assert replace(chosen, shards=5).least_bytes() == chosen.least_bytes() - 4 * kept * 9 // 12      # 3 of 12 texts


@pytest.mark.parametrize("attention, keys", [("compositional", 64), ("regular_gpt", 16)])
def test_dropout_is_over_what_stays_and_only_in_training(attention, keys):
    chosen = recipe("text", attention=attention, dropout=0.25, attention_dropout=0.5)
    batch = chosen.sample(np.random.default_rng(0))
    options = chosen.dropouts(batch, np.random.default_rng(1), np)
    many = len(list(chosen.build().applications(64)))
    assert [x.shape for x in options["dropout"]] == [(16, 4, 64, keys)] * many
    assert [[x.shape for x in pair] for pair in options["residual"]] == [[(16, 64, 64)] * 2] * many
    for x, values in (options["dropout"][-1], [0, 2]), (options["residual"][0][1], [0, 4 / 3]), (
            options["embedding_dropout"], [0, 4 / 3]):
        np.testing.assert_allclose(np.unique(x), values, rtol=1e-6)
        assert x.mean() == pytest.approx(1, abs=0.02)
    assert set(chosen.inputs(batch)[1]) == {"target"}


def test_compositional_attention_has_the_parameters_of_softmax():
    for fields in {}, {"shared": True}, {"activation": "swiglu"}, {"selector": 64}:
        one, other = (params.count(recipe("text", attention=name, **fields).build().parameters())
                      for name in ("softmax", "compositional"))
        assert abs(one - other) < 0.01 * one


def test_a_tiny_temperature_draws_the_greatest():
    z, found = np.array([1, 5, 2, -3], np.float32), set()
    for seed in range(20):
        found |= {drawn(z, np.random.default_rng(seed), temperature) for temperature in (5e-324, 1e-308, 1e-3)}
    assert found == {1}


def test_of_many_tokens_only_the_top_k_are_drawn():
    z = np.random.default_rng(0).standard_normal(1_000)
    assert {drawn(z, np.random.default_rng(seed), 1.0, 5) for seed in range(100)} == set(z.argsort()[-5:])


@pytest.mark.parametrize("temperature", [0, 1.0])
@pytest.mark.parametrize("scores", [[0, np.nan, 1], [-np.inf] * 3, [0, np.inf, 1]])
def test_no_token_is_drawn_by_scores_that_are_not_finite(scores, temperature):
    """The answer was a number that no token has: as many as there are tokens."""
    with pytest.raises(ValueError, match=r"the greatest score is -?(nan|inf), temperature \S+; allowed: finite"):
        drawn(np.array(scores), np.random.default_rng(0), temperature)
    assert drawn(np.array([-np.inf, 0, -np.inf]), np.random.default_rng(0), temperature) == 1


@pytest.mark.parametrize("temperature", [0, 1.0])
def test_a_token_is_drawn_by_one_row_of_scores(temperature):
    """Of several the answer was a place in all of them, which no token has."""
    with pytest.raises(ValueError, match=r"z has shape \(3, 5\); allowed: \(5,\)"):
        drawn(np.arange(15.0).reshape(3, 5), np.random.default_rng(0), temperature)
    with pytest.raises(TypeError, match="z is a list; allowed: an array of NumPy or CuPy"):
        drawn([0.0, 1.0], np.random.default_rng(0), temperature)


@pytest.mark.parametrize("name", ["tokens", "top_k", "seed"])
def test_numbers_of_what_is_written_are_not_negative(name):
    """A negative `top_k` was taken for 0, a negative number of tokens for none."""
    with pytest.raises(ValueError, match=f"{name} is -1; allowed: whole numbers of at least 0"):
        written(None, None, [1], **{"tokens": 3, name: -1})
    with pytest.raises(ValueError, match="temperature -1"):
        drawn(np.zeros(3), np.random.default_rng(0), -1)


@pytest.mark.parametrize("shape, start, words", [
    ((1, 2, 1), 0, r"x has shape \(1, 2, 1\); allowed: \(b, t, m\) with m = 4"),
    ((1, 2, 4), -1, "x has positions -1 to 0; allowed: 0 to 4"), ((1, 2, 4), -3, "x has positions -3 to -2; allowed")])
def test_a_learned_table_does_not_stretch_and_has_no_position_before_the_first(shape, start, words):
    table = LearnedTable(5, 4)
    with pytest.raises(ValueError, match=words):
        table.forward(filled(table, np.random.default_rng(0)), np.ones(shape), start)


def test_a_table_of_several_slabs_has_a_gradient_in_every_row():
    m, v = 1 << 13, 2_050                                       # slabs of 2,048 rows
    h, table = np.ones((1, 1, m), np.float32), np.zeros((v, m), np.float32)
    _, saved = next_token(h, table, np.array([[0]]))
    assert next_token_backward(saved, np.ones((1, 1), np.float32))[1].any(axis=1).all()


def test_a_run_updates_with_the_settings_of_adam_that_its_recipe_has():
    fields = {"text": "documentation", "width": 8, "heads": 2, "layers": 1, "length": 9, "batch": 2, "steps": 3,
              "warmup": 0, "evaluation": 2, "probe": 2}
    for changes in {"beta2": 0.9}, {"epsilon_first": True}:
        base = recipe("text", attention="softmax", **fields)
        one, two = (fit(each, progress=False).parameters for each in (base, replace(base, **changes)))
        assert (one.embed.table != two.embed.table).any(), changes


def test_a_checkpoint_that_says_nothing_of_its_data_is_taken_as_it_is(tmp_path):
    r = recipe("text", attention="softmax", text="documentation", width=8, heads=2, layers=1, length=9)
    listed = r.build().parameters()
    state = State(r, listed, np)
    params.save(tmp_path / "checkpoint.npz", listed, state.arrays(), step=0, seconds=0.0, recipe=runs.describe(r))
    assert runs.load_checkpoint(tmp_path, r, listed)[1]["step"] == 0


def test_those_equal_to_the_last_of_the_top_k_may_be_drawn_too():
    z = np.array([3.0, 2.0, 2.0, 1.0])
    assert {drawn(z, np.random.default_rng(n), 1.0, 2) for n in range(60)} == {0, 1, 2}


def test_a_learned_table_of_one_position_writes():
    model = Language(Embedding(4, vocabulary=3), Stack(Block(MultiHead(4, 1, 4), FeedForward(4, 4), epsilon=1e-5), 1),
                     learned=1)
    _, p = params.allocate(model.parameters())
    assert list(written(model, p, [1], 3, temperature=0)) == [0, 0, 0]
