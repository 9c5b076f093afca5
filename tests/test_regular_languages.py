"""The languages: two answers agree, members are drawn as released, and what the task refuses."""

import math
from itertools import product
from time import perf_counter

import numpy as np
import pytest

from refattn.tasks import languages
from refattn.tasks.languages import LANGUAGES, drawn_until, modular_arithmetic, value
from refattn.tasks.regular_languages import PRESETS, SPLITS, RegularLanguages
from tests.refusals import refused

SIZES = {"parity": (2, 2), "even_pairs": (5, 4), "modular_arithmetic": (25, 129), "cycle": (5, 5), "d2": (4, 14),
         "d3": (5, 30), "d4": (6, 55), "d12": (14, 819), "tomita3": (5, 25), "tomita4": (4, 11), "tomita5": (4, 4),
         "tomita6": (3, 3)}
LENGTHS = *range(1, 61), 99, 100, 500
EACH = pytest.mark.parametrize("name", LANGUAGES)
MEMBERSHIP = [name for name, row in LANGUAGES.items() if row.members]


# ---------------------------------------------------------------- answers

@pytest.mark.parametrize("name", MEMBERSHIP)
def test_a_row_says_of_which_lengths_there_are_members_and_others(name):
    """Else a batch is drawn without end; this stands first.  The counts are the automaton's, of lengths 1 to 12."""
    row = LANGUAGES[name]
    automaton, reached = row.automaton, np.eye(row.automaton.states)[row.automaton.start]
    for length in range(1, 13):
        reached = sum(np.bincount(automaton.transition[:, symbol], reached, automaton.states) for symbol in range(2))
        for field, output in ("has_members", 1), ("has_others", 0):
            there = bool(reached @ (automaton.output == output))
            assert getattr(row, field)(length) == there, f"{name}: {field}({length}) has to be {there}"


@EACH
def test_formula_automaton_and_batch_agree_at_every_length(name):
    task, rng = PRESETS[name], np.random.default_rng(0)
    for length in LENGTHS:
        for split in SPLITS[:1 + task.row.members]:
            tokens, target = task.sample(rng, 80, length, split)
            assert tokens.shape == (80, task.tokens_at(length)) and target.shape == (80,)
            np.testing.assert_array_equal(target, task.row.answer(tokens))
            np.testing.assert_array_equal(target, task.targets(tokens)[:, -1])


@pytest.mark.parametrize("name", [name for name in LANGUAGES if name != "modular_arithmetic"])
def test_formula_and_automaton_agree_on_any_word(name):
    """Of modular arithmetic not every word is legal."""
    task, rng = PRESETS[name], np.random.default_rng(1)
    for length in LENGTHS:
        tokens = rng.integers(task.vocabulary, size=(50, length))
        np.testing.assert_array_equal(task.targets(tokens)[:, -1], task.row.answer(tokens))


@EACH
def test_automata_are_minimal_and_their_monoids_have_the_known_sizes(name):
    automaton = LANGUAGES[name].automaton
    assert automaton.minimal().states == automaton.states, f"the automaton of {name} has more states than it needs"
    found = automaton.states, len(automaton.monoid().maps)
    assert SIZES.get(name) == found, f"states and maps of {name} are {found}; once checked, enter them into SIZES here"


@pytest.mark.parametrize("name", [name for name in MEMBERSHIP if name != "tomita3"])
def test_targets_at_every_position_are_what_may_come_next_or_what_was_read(name):
    """Symbols that leave a member within reach, or no member and member; Tomita 3 has the authors' mistake."""
    automaton, said = LANGUAGES[name].automaton, [list(x) for x in LANGUAGES[name].next_symbols]
    alive = automaton.output > 0
    for _ in range(automaton.states):
        alive = alive | alive[automaton.transition].any(axis=1)
    may, read = alive[automaton.transition].astype(int).tolist(), [[1 - y, y] for y in automaton.output.tolist()]
    assert said in (may, read), f"next_symbols of {name} are {said}; allowed: {may}, {read}"


@pytest.mark.parametrize(("name", "word", "answer"), [
    ("parity", "10110", 1), ("even_pairs", "0100", 0), ("even_pairs", "0", 0), ("even_pairs", "1110", 1),
    ("cycle", "0", 4), ("cycle", "2212", 3), ("modular_arithmetic", "+1-1-1", 4), ("modular_arithmetic", "+1+2*3", 2),
    ("modular_arithmetic", "+0*1+4*3-2", 0), ("d2", "001101", 1), ("d2", "000111", 0), ("d3", "000111", 1),
    ("d2", "10", 0), ("tomita3", "11000", 1), ("tomita3", "1000", 0), ("tomita3", "1001", 1), ("tomita3", "10", 0),
    ("tomita4", "1001001", 1), ("tomita4", "10001", 0), ("tomita5", "0011", 1), ("tomita5", "01", 0),
    ("tomita6", "000", 1), ("tomita6", "0011", 1), ("tomita6", "001", 0),
])
def test_words_by_hand(name, word, answer):
    tokens = LANGUAGES[name].automaton.encode(word)
    assert PRESETS[name].targets(tokens)[-1] == LANGUAGES[name].answer(tokens[None]).item() == answer


def test_the_examples_of_section_5_1():
    """a is 0, b is 1; of Cycle Navigation 0, 1, 2 are R's STAY, INCREASE, DECREASE."""
    for name, word, answer in (("even_pairs", "00110", 0), ("parity", "000110", 0), ("modular_arithmetic", "+1+2-4", 4),
                               ("cycle", "010211".translate(str.maketrans("012", "120")), 2)):
        tokens = LANGUAGES[name].automaton.encode(word)
        assert LANGUAGES[name].answer(tokens[None]).item() == PRESETS[name].targets(tokens)[-1] == answer


def test_two_symbols_of_cycle_navigation_have_all_its_maps():
    """R's footnote 5 has five of them from five symbols on."""
    automaton = LANGUAGES["cycle"].automaton
    assert [len({tuple(automaton.word_map(word)) for word in product(range(3), repeat=n)})
            for n in (1, 2, 3, 5)] == [3, 5, 5, 5]


def test_modular_arithmetic_is_pythons_arithmetic_with_and_without_the_plus():
    for plus in True, False:
        task = RegularLanguages("modular_arithmetic", leading_plus=plus)
        for length in 1, 2, 7, 8, 31:
            tokens, target = task.sample(np.random.default_rng(length), 40, length)
            words = ["".join(task.automaton.symbols[x] for x in row) for row in tokens]
            assert target.tolist() == [eval(word) % 5 for word in words]
            np.testing.assert_array_equal(task.targets(tokens)[:, -1], target)
            assert all(word[0] == "+" for word in words) == plus and "_" not in "".join(words)
    assert modular_arithmetic(False).minimal().states == 25
    for word, answer in ("_", 0), ("1_2", 3), ("3*_", 0), ("2-_*3", 2), ("1_2*3", 2), ("+4_3", 2):     # a blank: 0 or +
        assert value(np.array([["01234+-*_".index(x) for x in word]])).tolist() == [answer]


# ---------------------------------------------------------------- distributions

def dyck_by_recursion(rng, n, m):
    """The released recursion, in words: fill m with 0 w 1, w of a random even length."""
    if n == 0 or m == 0:
        return ""
    word = ""
    while len(word) < m:
        rest = m - len(word) - 2
        inner = int(0.1 * 0.75 * rest * rng.standard_normal() + 0.75 * rest)
        word += f"0{dyck_by_recursion(rng, n - 1, min(rest, inner // 2 * 2))}1"
    return word


def tomita_3_by_blocks(rng, m):
    word, last, ones = "", None, 0
    while len(word) < m:
        symbol, left = rng.integers(2), m - len(word)
        if symbol == 0 and ones % 2:
            count = 2 * rng.integers(left // 2 + 1)
        else:
            count = rng.integers(left + 1)
        if symbol:
            ones = count if last == 0 and count else ones + count
        word += str(symbol) * count
        last = symbol if count else last
    return word


def tomita_4_by_redrawing(rng, m):
    word = ""
    while len(word) < m:
        symbol = str(rng.integers(2))
        word += "" if (word[-2:] + symbol) == "000" else symbol
    return word


def members_by_rejection(name):
    def draw(rng, m):
        while True:
            tokens = rng.integers(2, size=m)
            if LANGUAGES[name].answer(tokens[None])[0]:
                return "".join(map(str, tokens))
    return draw


RELEASED = {**{f"d{n}": lambda rng, m, n=n: dyck_by_recursion(rng, n, m) for n in (2, 3, 4, 12)},
            "tomita3": tomita_3_by_blocks, "tomita4": tomita_4_by_redrawing,
            "tomita5": members_by_rejection("tomita5"), "tomita6": members_by_rejection("tomita6")}


@pytest.mark.parametrize(("name", "length"), [("d2", 26), ("d3", 16), ("d4", 14), ("d12", 14), ("tomita3", 6),
                                              ("tomita4", 6), ("tomita5", 6), ("tomita6", 6)])
def test_members_are_distributed_as_by_the_released_procedure(name, length):
    """Counts of all words in two samples of 20,000: Pearson's statistic within 5 deviations of its mean."""
    n, rng = 20_000, np.random.default_rng(2)
    theirs = {}
    for _ in range(n):
        word = RELEASED[name](rng, length)
        theirs[word] = theirs.get(word, 0) + 1
    words, counts = np.unique(LANGUAGES[name].draw(rng, n, length), axis=0, return_counts=True)
    ours = dict(zip(("".join(map(str, word)) for word in words), counts.tolist(), strict=True))
    statistic = sum((ours.get(w, 0) - theirs.get(w, 0)) ** 2 / (ours.get(w, 0) + theirs.get(w, 0))
                    for w in ours.keys() | theirs.keys())
    free = len(ours.keys() | theirs.keys()) - 1
    assert free >= 5 and abs(statistic - free) < 5 * math.sqrt(2 * free) + 5


@pytest.mark.parametrize("name", ["d2", "d4", "d12", "tomita3"])
def test_long_members_are_as_deep_and_as_changeable_as_the_released_ones(name):
    """Mean number of symbol changes and mean depth at length 60, where words hardly repeat."""
    n, rng = 1500, np.random.default_rng(3)
    theirs = np.array([[int(x) for x in RELEASED[name](rng, 60)] for _ in range(n)])
    for statistic in (lambda x: (x[:, 1:] != x[:, :-1]).sum(axis=1), lambda x: np.cumsum(1 - 2 * x, axis=1).max(axis=1),
                      lambda x: np.cumsum(1 - 2 * x, axis=1)[:, 30]):
        a, b = statistic(LANGUAGES[name].draw(rng, n, 60)), statistic(theirs)
        assert abs(a.mean() - b.mean()) < 5 * math.sqrt((a.var() + b.var()) / n) + 1e-9


def test_batches_are_balanced_where_both_classes_exist():
    for name in MEMBERSHIP:
        for length in range(1, 13):
            row, batch = LANGUAGES[name], PRESETS[name].sample(np.random.default_rng(4), 8, length)
            expected = {(True, True): 4, (True, False): 8, (False, True): 0}
            assert batch.target.sum() == expected[row.has_members(length), row.has_others(length)]
            every = (np.arange(2**length)[:, None] >> np.arange(length)) & 1
            answers = row.answer(every)
            assert (bool(answers.any()), bool((1 - answers).any())) == (row.has_members(length), row.has_others(length))


@pytest.mark.parametrize("batch", [1, 3])
def test_small_batches_are_members_as_often_as_not(batch):
    """An evaluation of long words has batches of 3 words or 1, which were two thirds members, or all."""
    task, rng = RegularLanguages("d3"), np.random.default_rng(0)
    drawn = [int(task.sample(rng, batch, 20).target.sum()) for _ in range(400)]
    assert set(drawn) == {batch // 2, batch // 2 + 1} and abs(np.mean(drawn) - batch / 2) < 0.1
    assert not any(task.sample(rng, batch, 21).target.any() for _ in range(20))             # no member is of odd length


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_batch_may_be_one_word_that_is_a_member_or_not(name):
    drawn = [RegularLanguages(name).sample(np.random.default_rng(seed), 1, 6) for seed in range(20)]
    assert {batch.tokens.shape[0] for batch in drawn} == {1}
    if LANGUAGES[name].draw:
        assert LANGUAGES[name].draw(np.random.default_rng(0), 0, 6).shape == (0, 6)


def test_corrupted_words_are_one_symbol_from_a_member():
    for name in MEMBERSHIP:
        task, length = PRESETS[name], 10
        tokens, target = task.sample(np.random.default_rng(5), 60, length, "corrupted")
        flipped = tokens[target == 0][:, None] ^ np.eye(length, dtype=int)
        assert task.row.answer(flipped.reshape(-1, length)).reshape(30, length).any(axis=1).all()
        assert target.sum() == 30


def test_the_probability_of_a_one_and_uniform_symbols():
    tokens = RegularLanguages("parity", ones=0.9).sample(np.random.default_rng(6), 500, 40).tokens
    assert abs(tokens.mean() - 0.9) < 5 * math.sqrt(0.09 / tokens.size)
    for name, start, kinds in ("parity", 0, range(2)), ("cycle", 0, range(3)), ("modular_arithmetic", 1, range(5)), (
            "modular_arithmetic", 2, range(5, 8)):
        tokens = PRESETS[name].sample(np.random.default_rng(7), 2000, 40).tokens[:, start::2]
        counts = np.bincount(tokens.ravel(), minlength=9)[list(kinds)] / tokens.size
        assert abs(counts.sum() - 1) < 1e-9 and np.abs(counts * len(kinds) - 1).max() < 0.03


# ---------------------------------------------------------------- every position

def test_per_position_targets_are_those_of_the_source():
    """What may come next, judged by trying; Tomita 3 calls q3 dead though it is not, as the source does."""
    for name in MEMBERSHIP:
        row = LANGUAGES[name]
        tokens = row.draw(np.random.default_rng(8), 20, 12)
        target = np.array(row.next_symbols)[row.automaton.run(tokens)]
        assert target.shape == (20, 12, 2)
        for b, i in np.ndindex(tokens.shape):
            prefix = tokens[b, :i + 1]
            if name in ("tomita5", "tomita6"):
                inside = row.answer(prefix[None])[0]
                expected = [1 - inside, inside]
            elif name == "tomita3":
                expected = [int(row.automaton.run([*prefix, x])[-1] not in (3, 4)) for x in (0, 1)]
                if row.automaton.run(prefix)[-1] == 3:
                    expected = [1, 0]
            else:
                dead = row.automaton.states - 1
                expected = [int(row.automaton.run([*prefix, x])[-1] != dead) for x in (0, 1)]
            assert target[b, i].tolist() == expected
        assert row.answer(tokens).all()


# ---------------------------------------------------------------- cost, refusals

def test_a_batch_is_drawn_in_a_millisecond_or_so():
    for task in PRESETS.values():
        seconds = []
        for seed in range(7):
            start = perf_counter()
            task.sample(np.random.default_rng(seed), 128, 40)
            seconds.append(perf_counter() - start)
        assert sorted(seconds)[1] < 5e-3                # measured: 0.02 to 0.6 ms


@pytest.mark.parametrize(("change", "message"), [
    ({"language": "d5"}, "language is 'd5'; allowed: parity, even_pairs"),
    ({"leading_plus": 1}, "leading_plus is 1; allowed: True and False"),
    ({"ones": 1.5}, "ones is 1.5; allowed: 0.5, and for parity numbers from 0 to 1"),
    ({"language": "d2", "ones": 0.4}, "ones is 0.4; allowed: 0.5"),
])
def test_settings_are_refused(change, message):
    refused(message, RegularLanguages, **change)


def test_samples_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="length is 0; allowed: whole numbers of at least 1"):
        PRESETS["d2"].sample(rng, 4, 0)
    with pytest.raises(ValueError, match="batch is 0; allowed"):
        PRESETS["d2"].sample(rng, 0, 4)
    with pytest.raises(ValueError, match="split of parity is 'corrupted'; allowed: released"):
        PRESETS["parity"].sample(rng, 4, 4, "corrupted")


def test_drawing_until_wanted_keeps_the_number_and_the_wish():
    words = drawn_until(lambda x: x[:, 0] == 1, LANGUAGES["parity"].draw, np.random.default_rng(0), 33, 5)
    assert words.shape == (33, 5) and (words[:, 0] == 1).all()


def test_a_row_that_promises_words_that_there_are_not_is_an_error_and_no_endless_search(monkeypatch):
    """Both words of one symbol are members of Tomita 3."""
    row = LANGUAGES["tomita3"]._replace(has_others=lambda t: True)
    monkeypatch.setitem(LANGUAGES, "always", row)
    with pytest.raises(ValueError, match="length is 1, at which none of 100,00. words .* has_members or has_others"):
        RegularLanguages("always").sample(np.random.default_rng(0), 4, 1)


def test_the_probability_of_ones_is_a_number_of_any_library():
    for ones in np.float32(0.25), np.int64(1), 1:
        assert RegularLanguages("parity", ones=ones).ones == ones
    with pytest.raises(ValueError, match="ones is True; allowed: 0.5, and for parity numbers from 0 to 1"):
        RegularLanguages("parity", ones=True)


def test_a_part_is_no_longer_than_its_room(monkeypatch):
    monkeypatch.setattr(languages, "part", lambda rng, room: room + 2)      # of a deviation of more than 3 it is so
    row = languages.LANGUAGES["d3"]
    assert row.answer(row.draw(np.random.default_rng(0), 5, 12)).all()


def test_many_members_may_take_more_words_than_may_be_drawn_in_vain():
    assert len(RegularLanguages("tomita6").sample(np.random.default_rng(0), 80_000, 3).tokens) == 80_000
