"""Finite automata: running, composing, minimising, monoids, tables and regular expressions, and what is refused."""

import re
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from refattn.automata.expressions import from_regex
from refattn.automata.finite import Automaton, compose, random_automaton
from refattn.automata.reading import from_table, read_table
from refattn.automata.walks import reached, words
from tests.refusals import refused

PARITY = "state output 0 1\neven 0 even odd  # the start\n\nodd 1 odd even\n"


def some(seed, classes=2):
    rng = np.random.default_rng(seed)
    return random_automaton(rng, int(rng.integers(1, 7)), int(rng.integers(1, 4)), classes), rng


@pytest.mark.parametrize("seed", range(20))
def test_running_is_one_step_after_the_other(seed):
    automaton, rng = some(seed)
    words = rng.integers(automaton.vocabulary, size=(3, 4, 9))
    states = automaton.run(words)
    for place in np.ndindex(3, 4):
        state = automaton.start
        for i, token in enumerate(words[place]):
            state = automaton.transition[state, token]
            assert states[(*place, i)] == state
    np.testing.assert_array_equal(automaton.outputs(words), automaton.output[states])


@pytest.mark.parametrize(("output", "classes"), [([0, 0], 2), ([0, 1], 2), ([2, 0], 3)])
def test_there_are_as_many_classes_as_outputs_and_at_least_two(output, classes):
    assert Automaton([[0], [1]], output).classes == classes


@pytest.mark.parametrize("seed", range(20))
def test_maps_of_words_compose_with_the_earlier_word_first(seed):
    automaton, rng = some(seed)
    first, then = (tuple(rng.integers(automaton.vocabulary, size=n)) for n in (3, 4))
    whole = automaton.word_map(first + then)
    np.testing.assert_array_equal(whole, compose(automaton.word_map(first), automaton.word_map(then)))
    a = automaton.matrices(int)
    np.testing.assert_array_equal(np.eye(automaton.states, dtype=int)[whole],
                                  np.linalg.multi_dot([a[x] for x in first + then]))
    assert automaton.run(np.array(first + then))[-1] == whole[automaton.start]


@pytest.mark.parametrize("seed", range(60))
def test_minimal_automata_say_the_same_and_have_only_states_that_some_word_tells_apart(seed):
    automaton, rng = some(seed, classes=1 + seed % 3)
    small = automaton.minimal()
    words = rng.integers(automaton.vocabulary, size=(40, 12))
    np.testing.assert_array_equal(small.outputs(words), automaton.outputs(words))
    futures = [np.eye(small.states, dtype=int)[[small.word_map(w)[q] for w in words_up_to(small)]] @ small.output
               for q in range(small.states)]
    assert len({tuple(f) for f in futures}) == small.states
    again = permuted(automaton, rng).minimal()
    np.testing.assert_array_equal(again.transition, small.transition)
    np.testing.assert_array_equal(again.output, small.output)


def words_up_to(automaton):
    """Words that tell any two states apart, if any words do: as long as there are states; () first."""
    longest = min(automaton.states, 6)
    return [w for n in range(longest) for w in product(range(automaton.vocabulary), repeat=n)]


def permuted(automaton, rng):
    """The same automaton with its states renamed, and one that no word reaches."""
    n = automaton.states
    order = rng.permutation(n)
    table = np.empty_like(automaton.transition)
    table[order] = order[automaton.transition]
    output = np.empty_like(automaton.output)
    output[order] = automaton.output
    return Automaton(np.vstack([table, np.zeros_like(table[:1])]), [*output, 0], order[automaton.start])


@pytest.mark.parametrize("seed", range(20))
def test_the_monoid_is_closed_and_its_words_are_right(seed):
    rng = np.random.default_rng(seed)
    automaton = random_automaton(rng, int(rng.integers(1, 5)), int(rng.integers(1, 4)))
    monoid = automaton.monoid()
    maps = {tuple(m) for m in monoid.maps.tolist()}
    assert len(maps) == len(monoid.maps) == len(monoid.words)
    for map_, word in zip(monoid.maps, monoid.words, strict=True):
        np.testing.assert_array_equal(automaton.word_map(word), map_)
        assert {tuple(compose(map_, other).tolist()) for other in monoid.maps} <= maps
    np.testing.assert_array_equal(monoid.maps[monoid.generators], automaton.transition.T)
    lengths = [len(word) for word in monoid.words]
    assert lengths == sorted(lengths)


def test_a_monoid_may_be_too_large():
    with pytest.raises(ValueError, match="the monoid has more than 10 state maps; allowed: a larger most"):
        Automaton([[1, 1], [2, 0], [3, 2], [0, 3]], [0, 0, 0, 1]).monoid(most=10)


# ---------------------------------------------------------------- tables

def test_a_table_is_read(tmp_path):
    path = tmp_path / "parity.txt"
    path.write_text(PARITY)
    automaton = read_table(path)
    assert automaton.transition.tolist() == [[0, 1], [1, 0]] and automaton.output.tolist() == [0, 1]
    assert automaton.start == 0 and automaton.symbols == ("0", "1")
    assert automaton.outputs(automaton.encode("0 11 1")).tolist() == [0, 1, 0, 1]
    words = from_table("state output go stop\na 0 b a\nb 1 b a")
    assert words.encode("go stop go").tolist() == [0, 1, 0]


@pytest.mark.parametrize(("text", "message"), [
    ("", "the table is empty; allowed: a first line 'state output', then the symbols"),
    ("state output\n", "the table begins with 'state output'"),
    ("even 0 even odd", "the table begins with 'even 0 even odd'"),
    ("state output a", "the table has no states"),
    ("state output a a\nx 0 x x", "has the symbols a a; allowed: different ones"),
    ("state output a b\nx 0 x", "line 2: state 'x' has 1 next states; allowed: 2, for the symbols a b"),
    ("state output a b\n\nx 0 x x x", "line 3: state 'x' has 3 next states; allowed: 2"),
    ("state output a\nx", "line 2: state 'x' has 0 next states"),
    ("state output a\nx 0 y", "line 2: state 'y' has no line; allowed: x"),
    ("state output a\nx yes x", "line 2: output is 'yes'; allowed: 0, 1"),
    ("state output a\nx -1 x", "line 2: output is '-1'"),
    ("state output a\nx 0 x\nx 1 x", "line 3: state 'x' has a line already"),
])
def test_tables_are_refused_in_one_line(text, message):
    refused(message, from_table, text)


def test_files_that_are_no_tables_are_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="x is no text in UTF-8"):
        read_table(tmp_path / "x")
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "absent")


@pytest.mark.parametrize(("fields", "message"), [
    (([[0, 1]], [0]), "transition has the state 1; allowed: states from 0 to 0"),
    (([[0, -1]], [0]), "transition has the state -1"),
    (([[0]], [0], 3), "start has the state 3"),
    (([[0]], [0], 0.5), "start is 0.5; allowed: states from 0 to 0"),
    (([[0.0]], [0]), "transition has shape (1, 1) and dtype float64"),
    (([], []), "transition has shape (0,)"),
    (([[0]], [0, 1]), "output is [0, 1]; allowed: 1 whole numbers from 0"),
    (([[0]], [-1]), "allowed: 1 whole numbers from 0"),
    (([[0, 0]], [0], 0, "aa"), "symbols are a, a; allowed: 2 different names"),
    (([[0, 0]], [0], 0, ("", "b")), "symbols are , b; allowed: 2 different names without blanks"),
    (([[0, 0]], [0], 0, ("a c", "b")), "symbols are a c, b; allowed: 2 different names without blanks"),
])
def test_automata_are_refused(fields, message):
    refused(message, Automaton, *fields)


def test_unknown_symbols_are_refused():
    parity = from_table(PARITY)
    with pytest.raises(ValueError, match="symbol '2' is unknown; allowed: 0, 1"):
        parity.encode("0120")
    with pytest.raises(ValueError, match="tokens are int64 from 0 to 2; allowed: integers from 0 to 1"):
        parity.run(np.array([0, 2]))
    for word in [-1], [0, 2]:
        with pytest.raises(ValueError, match="allowed: integers from 0 to 1"):
            parity.word_map(word)
    refused("first has shape (2, 2) and states from -1 to 1; allowed: 2 axes as of then, 2 states from 0 to 1", compose,
            [[0, 1], [1, -1]], [[1, 0], [1, 0]])                        # it counted from the end


@pytest.mark.parametrize(("make", "message"), [
    (lambda: compose([0, 2], [0, 1]), "first has shape (2,) and states from 0 to 2"),
    (lambda: compose([0, 1], [0, 1, 2]), "first has shape (2,) and states from 0 to 1; allowed: 1 axes as of then, 3"),
    (lambda: from_table(PARITY).word_map([[1, 0]]), "allowed: 2 axes as of then, 2 states from 0 to 1"),
    (lambda: compose([0, 1], [1.5, 0]), "then has shape (2,) and states from 0.0 to 1.5; allowed: 1 axes as"),
    (lambda: compose([True, False], [1, 0]), "first has shape (2,) and states from False to True"),
    (lambda: compose(np.zeros((3, 2), int), np.zeros((2, 2), int)), "arg 1 with shape (3, 2)"),
    (lambda: reached(from_table(PARITY), -1), "longest is -1; allowed: whole numbers of at least 0"),
])
def test_maps_and_lengths_that_cannot_be_are_refused(make, message):
    refused(message, make)


@pytest.mark.parametrize(("count", "lengths", "message"), [
    (2, [(3, 2)], "longest is 2; allowed: whole numbers of at least 3"),
    (2, [(-1, 2)], "shortest is -1; allowed: whole numbers of at least 0"),
    (2, [(0, 2), ("a", 3)], "shortest is 'a'; allowed: whole numbers of at least 0"),
    (2, [(0, 2), (1, None)], "longest is None; allowed: whole numbers of at least 1"),
    (2, [], "number of lengths is 0; allowed: whole numbers of at least 1"),
    (-1, [(0, 2)], "count is -1; allowed: whole numbers of at least 0")])
def test_walks_that_cannot_be_are_refused(count, lengths, message):
    refused(message, words, from_table(PARITY), np.random.default_rng(0), count, lengths)


@pytest.mark.parametrize(("numbers", "message"), [
    ((0, 2), "states is 0; allowed: whole numbers of at least 1"),
    ((2, 2.5), "symbols is 2.5; allowed: whole numbers of at least 1"),
    ((2, 2, -1), "classes is -1; allowed: whole numbers of at least 1")])
def test_random_automata_that_cannot_be_are_refused(numbers, message):
    refused(message, random_automaton, np.random.default_rng(0), *numbers)


# ---------------------------------------------------------------- regular expressions

@pytest.mark.parametrize(("expression", "alphabet"), [
    ("(01|10)*1?", "01"), ("(0|1(01*0)*1)*", "01"), ("a{2,3}[^a]+", "abc"), (".*abab", "ab"), ("", "a"),
    ("a+b?c*", "cab"), ("^(ab)*$", "ab"), ("(a|^b|b$)*", "ab"), ("a^b|b$a", "ab"), (r"(a|\b|\.\B)*", "ab."),
    (r"\B", "a"), (r"(?a:\w)é?|(?i:É)", "aé"), (r"(?x) a \d +  # a comment", "a1٣"), ("(a|(|b)*){2}", "ab"),
    ("a{,3}|[]b]+", "ab]"), (r"a\-b|[]a]\u0061", "ab-]"),
    (r"(^|\b){2}a*(\b){3}(){0,4}", "a.")])
def test_regular_expressions_accept_what_pythons_accept(expression, alphabet):
    automaton, python = from_regex(expression, alphabet), re.compile(expression)
    assert automaton.symbols == tuple(alphabet)
    np.testing.assert_array_equal(automaton.minimal().transition, automaton.transition)
    assert automaton.output[automaton.start] == bool(python.fullmatch(""))
    for n in range(1, 8 if len(alphabet) < 3 else 6):
        for word in product(alphabet, repeat=n):
            word = "".join(word)
            assert automaton.outputs(automaton.encode(word))[-1] == bool(python.fullmatch(word)), word


@pytest.mark.parametrize(("often", "once"), [
    ("(){4294967294}a", "a"), (r"(\b|){9,4294967294}a*", "a*"), ("((^){99999}){0,99999}a", "a"), (r"a(\b){9}", r"a\b")])
def test_what_reads_nothing_takes_no_time_however_often_it_stands_there(often, once):
    """It was written out: hours for an empty group, and more than the 20,000 characters allowed for a condition."""
    many, one = from_regex(often, "a."), from_regex(once, "a.")
    np.testing.assert_array_equal(many.transition, one.transition)
    np.testing.assert_array_equal(many.output, one.output)


@pytest.mark.parametrize(("expression", "alphabet", "message"), [
    ("(ab", "ab", "regular expression '(ab' cannot be read: missing )"), ("*", "ab", "nothing to repeat"),
    ("[z-a]", "ab", "bad character range z-a"), ("a{2,1}", "ab", "min repeat greater than max repeat"),
    ("(ab)*", "01", "it names 'a', 'b', to which no symbol of the alphabet '01' belongs; allowed: an alphabet"),
    ("[^c]", "ab", "it names 'c'"), (r"\d[x-z]", "ab", r"it names \d, [x-z], to which"), (r"a\s", "ab", r"it names \s"),
    ("(?<!a)b", "ab", "it has a lookahead or lookbehind"), ("(a)(?(1)a|b)", "ab", "it has a choice by a group"),
    ("((a{99}){99}){99}", "a", "longer than 20,000 characters with its repetitions written out"),
    ("(0|1)*1(0|1){14}", "01", "its automaton has more than 10,000 states before they are minimised"),
    ("a#", "a#", "symbol '#' fits no table; allowed: names without blanks and #"),
    ("a", "", "alphabet is ''"), ("a", "aa", "alphabet is 'aa'; allowed: one or more different characters")])
def test_regular_expressions_are_refused(expression, alphabet, message):
    refused(message, from_regex, expression, alphabet)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="syntax of a later Python")
@pytest.mark.parametrize(("expression", "message"), [("a*+", "a possessive repetition"), ("(?>a)b", "an atomic group")])
def test_what_later_pythons_read_is_refused_by_its_name(expression, message):
    refused(message, from_regex, expression, "ab")


def somebodys_expressions():
    text = Path(__file__).with_name("regular_expressions.txt").read_text(encoding="utf-8")
    lines = [line.split(None, 1) for line in text.splitlines() if not line.startswith("#")]
    return [(alphabet, *map(str.strip, rest.partition("refused:")[::2])) for alphabet, rest in lines]


def test_there_are_twenty_and_twenty_four_of_them():
    assert len(somebodys_expressions()) == 20 + 24


@pytest.mark.parametrize(("alphabet", "expression", "refusal"), somebodys_expressions())
def test_they_agree_with_python_on_2000_words_each(alphabet, expression, refusal):
    """Half of the words are uniformly random, of up to 12 symbols, half are walks of up to 40 through all states."""
    if refusal:
        return refused(refusal, from_regex, expression, alphabet)
    automaton, python, rng = from_regex(expression, alphabet), re.compile(expression), np.random.default_rng(0)
    asked = [rng.integers(len(alphabet), size=(84, n)) for n in range(1, 13)]
    asked += words(automaton, rng, 25, [(n, n) for n in range(1, 41)])
    theirs = [python.fullmatch("".join(alphabet[i] for i in word)) is not None for rows in asked for word in rows]
    ours = [bool(output) for rows in asked for output in automaton.outputs(rows)[:, -1]]
    assert ours == theirs and len(ours) == 2008
    assert bool(automaton.output[automaton.start]) == (python.fullmatch("") is not None)
    assert {False, True} == set(theirs) or automaton.states == 1


# ---------------------------------------------------------------- words that ask everything

@pytest.mark.parametrize("seed", range(20))
def test_walks_visit_every_state_that_words_of_their_lengths_reach(seed):
    automaton, rng = some(seed)
    there = reached(automaton, 40)
    exact = {tuple(automaton.run(np.array(word))[-1:]) for word in product(range(automaton.vocabulary), repeat=5)}
    assert set(np.flatnonzero(there[5])) == {state for state, in exact}
    (tokens,) = words(automaton, rng, automaton.states, [(20, 40)])
    assert tokens.shape == (automaton.states, 40)
    visited = automaton.run(tokens)[:, 19:]
    assert set(visited.ravel()) == set(np.flatnonzero(there[20:].any(axis=0)))


def test_walks_that_cannot_leave_a_state_are_shared_out_evenly():
    """The first symbol is remembered for good, so that every word has a state of its own to visit."""
    automaton = Automaton([list(range(1, 7))] + [[state] * 6 for state in range(1, 7)], [0] * 7)
    (tokens,) = words(automaton, np.random.default_rng(0), 6, [(1, 5)])
    assert sorted(automaton.run(tokens)[:, -1]) == [1, 2, 3, 4, 5, 6]


def test_a_walk_is_as_often_inside_the_language_as_a_random_word_is_not():
    """(01)* is left for good by half of all symbols."""
    automaton = from_regex("(01)*", "01")
    (tokens,) = words(automaton, np.random.default_rng(0), 8, [(100, 200)])
    assert 0.1 < automaton.outputs(tokens)[:, 99:].mean() < 0.5
    assert automaton.outputs(np.random.default_rng(0).integers(2, size=(8, 200)))[:, 99:].mean() == 0


@pytest.mark.parametrize("name, given", [
    ("transition", ([[0, 1], [1]], [0, 1])), ("output", ([[0, 1], [1, 0]], [0, [1]])), ("transition", (None, [0, 1]))])
def test_rows_of_several_lengths_are_refused_by_name(name, given):
    with pytest.raises(ValueError, match=f"^{name} is .*; allowed: rows of integers, as many in each$"):
        Automaton(*given)


@pytest.mark.parametrize("tokens", [1, [[1], [1, 0]], None])
def test_words_have_positions(tokens):
    parity = Automaton([[0, 1], [1, 0]], [0, 1])
    for ask in parity.run, parity.outputs, parity.word_map:
        with pytest.raises(ValueError, match="^tokens is .*; allowed: rows of integers, as many in each$"):
            ask(tokens)
