"""The twelve regular languages: what is drawn, what the answer is, and the minimal automaton of each.

    Even Pairs, Modular Arithmetic, Parity Check, Cycle Navigation     uniformly random words, answered by a number
    D_2, D_3, D_4, D_12 and Tomita 3, 4, 5, 6                          member (1) or not (0), half and half

Source: R, section 5.1 and the authors' code (Delétang et al. 2023 for the first four; Bhattamishra et al. 2020).
Every row has the answer twice, by a formula and by an automaton; the tests hold them together.  Words are arrays (b, t)
of integers, and nothing loops over the batch.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..automata.finite import Automaton

PLUS, MINUS, TIMES, BLANK = 5, 6, 7, 8                  # symbols of modular arithmetic, after the digits
VAIN = 100_000                                          # words that are drawn for nothing, at most


class Language(NamedTuple):
    label: str
    answer: Callable           # tokens (b, t) -> class (b)
    draw: Callable             # rng, b, t -> tokens (b, t): any words, or members where members are asked for
    automaton: Automaton
    members: bool = False      # is membership asked for?
    has_members: Callable = lambda t: True              # of this length?
    has_others: Callable = lambda t: True
    next_symbols: tuple = ()   # for each state the two targets of Bhattamishra et al.
    depth: int = 0             # n of D_n
    source: str = "-"          # where it is published


# -------------------------------------------------------------------------------------- numbers out of random words

def bits(rng, b, t, ones=0.5):
    """Independent symbols, 1 with probability `ones`."""
    return rng.integers(2, size=(b, t)) if ones == 0.5 else (rng.random((b, t)) < ones).astype(np.int64)


def arithmetic(rng, b, t):
    """number operator number ... number, uniform, for odd t; behind a leading + for even t."""
    tokens = np.empty((b, t), dtype=np.int64)
    first = (t + 1) % 2
    tokens[:, first::2] = rng.integers(5, size=(b, (t + 1) // 2))
    tokens[:, 1 - first::2] = rng.integers(PLUS, BLANK, size=(b, t // 2))
    tokens[:, :first] = PLUS
    return tokens


def value(tokens):
    """The expression's value mod 5: * before + and -, these from left to right; a blank is a 0, between numbers a +."""
    rows = np.ascontiguousarray(tokens.T)                               # positions outermost
    if len(rows) % 2:
        rows = np.concatenate([np.full_like(rows[:1], PLUS), rows])
    closed = term = np.zeros_like(rows[0])
    for operator, number in zip(rows[::2], rows[1::2], strict=True):
        times = operator == TIMES
        closed = closed + np.where(times, 0, term)
        term = np.where(times, term, np.where(operator == MINUS, 4, 1)) * np.where(number == BLANK, 0, number) % 5
    return (closed + term) % 5


def modular_arithmetic(leading_plus=True) -> Automaton:
    """25 states (a, c), a the closed sum, c the signed product that is still open, both mod 5; legal words are meant.

    The blank, which is never drawn, does nothing: to read it as `value` does takes the parity of its place, 50 states.
    """
    a, c = np.divmod(np.arange(25), 5)
    digits = [a * 5 + c * k % 5 for k in range(5)]
    closed = (a + c) % 5
    table = np.stack([*digits, closed * 5 + 1, closed * 5 + 4, a * 5 + c, a * 5 + c], axis=1)
    return Automaton(table, closed, 0 if leading_plus else 1, (*"01234", *"+-*_"))


# ------------------------------------------------------------------------------------------------------- membership

def drawn_until(wanted, draw, rng, b, t):
    """b independent words of draw, given that they are wanted.  Raises ValueError where VAIN in a row are not."""
    parts, missing, vain = [], b, 0
    while missing:
        tokens = draw(rng, 3 * missing, t)
        parts.append(tokens[wanted(tokens)][:missing])
        missing -= len(parts[-1])
        vain = 0 if len(parts[-1]) else vain + len(tokens)
        if vain >= VAIN:
            raise ValueError(f"length is {t}, at which none of {vain:,} words was of the class that is asked for; "
                             f"allowed: a row of the language that says so, by has_members or has_others")
    return np.concatenate(parts) if parts else np.empty((0, t), dtype=np.int64)


def part(rng, room):
    """A length for what is nested in each of these rooms: about 3/4 of it (+- 7.5 %), cut to an integer."""
    return ((0.75 + 0.075 * rng.standard_normal(len(room))) * room).astype(np.int64)


def dyck(n: int) -> Language:
    """Balanced words of 0 (opens) and 1 (closes), nested n deep at most: D_0 = {empty}, D_n = (0 D_(n-1) 1)*.

    A member of length m is drawn as 0 w 1 and the rest, w from D_(n-1) of an even length, a `part` of m - 2, the rest
    in the same way.  All such parts of the batch are drawn at once, round by round: the same draws as by
    recursion, in another order.  Level 1 is (01)*, whatever lengths are drawn for its empty words.
    """
    def draw(rng, b, t):
        tokens = np.empty((b, t), dtype=np.int64)
        tokens[...] = (np.arange(t) + n - 1) % 2                        # level 1 begins n - 1 deep, at this parity
        flat, start, room, level = tokens.reshape(-1), np.arange(b) * t, np.full(b, t), np.full(b, n)
        while start.size:
            rest = room - 2
            inner = np.minimum(part(rng, rest) // 2 * 2, rest)
            flat[start], flat[start + inner + 1] = 0, 1
            start, room, level = (np.concatenate(pair) for pair in (
                (start + 1, start + inner + 2), (inner, rest - inner), (level - 1, level)))
            alive = (room > 0) & (level > 1)
            start, room, level = start[alive], room[alive], level[alive]
        return tokens

    def answer(tokens):
        depth = np.cumsum(1 - 2 * tokens, axis=1)
        return ((depth.min(axis=1) >= 0) & (depth.max(axis=1) <= n) & (depth[:, -1] == 0)).astype(np.int64)

    dead = n + 1
    table = [[depth + 1, depth - 1 if depth else dead] for depth in range(n + 1)] + [[dead, dead]]
    may = [[1, 0], *[[1, 1]] * (n - 1), [0, 1], [0, 0]]                 # open, close
    return Language(f"D_{n}", answer, draw, Automaton(table, [1] + [0] * dead), True,
                    lambda t: t % 2 == 0, next_symbols=tuple(may), depth=n)


def tomita_3() -> Language:
    """No odd block of 1s directly followed by an odd block of 0s."""
    def draw(rng, b, t):
        """Blocks of a fair symbol and uniform length (0 too), even for 0s behind an odd block of 1s; row by row."""
        left, ones, after_zeros = np.full(b, t), np.zeros(b, dtype=np.int64), np.zeros(b, dtype=bool)
        symbols, counts = [], []                # `ones` is the last run of 1s; two blocks of one symbol make one run
        while left.any() or not symbols:                                # of no words, too
            symbol = rng.integers(2, size=b)
            step = 1 + ((symbol == 0) & (ones % 2 == 1))
            count = (rng.random(b) * (left // step + 1)).astype(np.int64) * step
            grown = np.where(after_zeros & (count > 0), count, ones + count)
            ones, after_zeros = np.where(symbol == 1, grown, ones), np.where(count > 0, symbol == 0, after_zeros)
            left = left - count
            symbols.append(symbol)
            counts.append(count)
        return np.repeat(np.stack(symbols, axis=1).ravel(), np.stack(counts, axis=1).ravel()).reshape(b, t)

    def answer(tokens):
        i = np.arange(tokens.shape[1])
        begin = np.maximum.accumulate(np.where(np.diff(tokens, axis=1, prepend=0) != 0, i, 0), axis=1)  # of i's block
        odd = (i - begin) % 2 == 0                                      # the block as far as i
        after_odd = (begin > 0) & np.take_along_axis(odd, begin - 1, axis=1)            # the whole block before it
        zeros_end = np.diff(tokens, axis=1, append=1) == 1              # i is the last of a block of 0s
        return (~(zeros_end & odd & after_odd).any(axis=1)).astype(np.int64)

    table, next_symbols = [[0, 1], [3, 0], [3, 1], [2, 4], [4, 4]], ([1, 1], [0, 1], [0, 1], [1, 0], [0, 0])
    return Language("Tomita 3", answer, draw, Automaton(table, [1, 1, 1, 0, 0]), True,
                    has_others=lambda t: t > 1, next_symbols=next_symbols)


def tomita_4() -> Language:
    """No 000."""
    def draw(rng, b, t):
        """Fair bits; a third 0 in a row is drawn again, until it is a 1."""
        rows = rng.integers(2, size=(t, b), dtype=np.int8)
        for i in range(2, t):
            rows[i] |= 1 - (rows[i - 1] | rows[i - 2])
        return np.ascontiguousarray(rows.T, dtype=np.int64)

    def answer(tokens):
        x = tokens != 0
        return (x[:, 2:] | x[:, 1:-1] | x[:, :-2]).all(axis=1).astype(np.int64)

    return Language("Tomita 4", answer, draw, Automaton([[1, 0], [2, 0], [3, 0], [3, 3]], [1, 1, 1, 0]), True,
                    has_others=lambda t: t > 2, next_symbols=([1, 1], [1, 1], [0, 1], [0, 0]))


def counting(label, answer, automaton, has_members) -> Language:
    """A row for a language of counts, whose members are random words that happen to be ones."""
    def draw(rng, b, t):
        return drawn_until(lambda tokens: answer(tokens) == 1, bits, rng, b, t)

    next_symbols = tuple([1 - y, y] for y in automaton.output.tolist())
    return Language(label, answer, draw, automaton, True, has_members, next_symbols=next_symbols)


def tomita_5() -> Language:
    """An even number of 0s and an even number of 1s."""
    return counting("Tomita 5", lambda tokens: ((tokens.sum(axis=1) % 2 == 0) & (tokens.shape[1] % 2 == 0)).astype(
        np.int64), Automaton([[1, 2], [0, 3], [3, 0], [2, 1]], [1, 0, 0, 0]), lambda t: t % 2 == 0)


def tomita_6() -> Language:
    """The number of 0s minus the number of 1s is a multiple of 3."""
    return counting("Tomita 6", lambda tokens: ((tokens.shape[1] - 2 * tokens.sum(axis=1)) % 3 == 0).astype(np.int64),
                    Automaton([[1, 2], [2, 0], [0, 1]], [1, 0, 0]), lambda t: t > 1)


LANGUAGES: dict[str, Language] = {name: row._replace(source="Chi et al. 2023, table 1") for name, row in {
    "parity": Language("Parity Check", lambda tokens: tokens.sum(axis=1) % 2, bits,
                       Automaton([[0, 1], [1, 0]], [0, 1])),
    # states: nothing read; first and last symbol 00, 11 (even), 01, 10 (odd number of changes)
    "even_pairs": Language("Even Pairs", lambda tokens: (tokens[:, 0] != tokens[:, -1]).astype(np.int64), bits,
                           Automaton([[1, 2], [1, 3], [4, 2], [1, 3], [4, 2]], [0, 0, 0, 1, 1])),
    "modular_arithmetic": Language("Modular Arithmetic", value, arithmetic, modular_arithmetic()),
    # symbol 0 goes one back, 1 stays, 2 goes one on, on a circle of five
    "cycle": Language("Cycle Navigation", lambda tokens: (tokens - 1).sum(axis=1) % 5,
                      lambda rng, b, t: rng.integers(3, size=(b, t)),
                      Automaton((np.arange(5)[:, None] + np.arange(3) - 1) % 5, np.arange(5))),
    **{f"d{n}": dyck(n) for n in (2, 3, 4, 12)},
    "tomita3": tomita_3(), "tomita4": tomita_4(), "tomita5": tomita_5(), "tomita6": tomita_6(),
}.items()}
