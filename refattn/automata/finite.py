"""Finite automata as tables: running, composing, minimising, and the monoid of their words.

    q_0 = start;    q_i = transition[q_(i-1), x_i];    y_i = output[q_i]

A word acts on states as a map, q -> where the word leads from q.  The map of a word is that of its parts, the earlier
one first (`compose`); as 0/1 matrices with A(x)[q, q'] = 1 where transition[q, x] = q' the earlier factor is the left
one: A(x_1) A(x_2) ... A(x_T).  Nothing is added to this: a RegularGPT computes the same product as a tree.

Source: R, section 7.1; Moore 1956 for the minimal automaton.
Symbols: n states, v symbols, t position, b batch; tokens are the numbers 0 to v - 1 of the symbols.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..checks import check_integers

__all__ = ["Automaton", "Monoid", "compose", "random_automaton"]


class Monoid(NamedTuple):
    """What all non-empty words do to the states of an automaton."""
    maps: np.ndarray                       # (k, n): the distinct state maps of non-empty words, shortest words first
    words: tuple[tuple[int, ...], ...]     # (k): for each map the first of its shortest words
    generators: np.ndarray                 # (v): the place in `maps` of each symbol's map


@dataclass(frozen=True, eq=False)
class Automaton:
    """A complete deterministic automaton whose states have classes as outputs; an acceptor has the classes 0 and 1.

    transition : (n, v) integers, the next state
    output     : (n) integers from 0, the class
    start      : the first state
    symbols    : (v) names without blanks; None for 0, 1, ...

    Raises: ValueError that names the field, what was given and what is allowed.

    >>> parity = Automaton([[0, 1], [1, 0]], [0, 1])
    >>> parity.outputs([1, 0, 1, 1]).tolist()
    [1, 1, 0, 1]
    >>> Automaton([[0, 1], [1, 2]], [0, 1])
    Traceback (most recent call last):
    ValueError: transition has the state 2; allowed: states from 0 to 1
    """

    transition: Any
    output: Any
    start: int = 0
    symbols: Any = None

    def __post_init__(self):
        table, output = _array("transition", self.transition), _array("output", self.output)
        if table.ndim != 2 or not table.size or table.dtype.kind not in "iu":
            raise ValueError(f"transition has shape {table.shape} and dtype {table.dtype}; allowed: integers "
                             f"(states, symbols), at least one of each")
        n, v = table.shape
        if output.shape != (n,) or output.dtype.kind not in "iu" or output.min() < 0:
            raise ValueError(f"output is {self.output!r}; allowed: {n} whole numbers from 0, one for each state")
        start = _array("start", [self.start])
        if start.shape != (1,) or start.dtype.kind not in "iu":
            raise ValueError(f"start is {self.start!r}; allowed: states from 0 to {n - 1}")
        for name, states in ("transition", table), ("start", start):
            wrong = states[(states < 0) | (states >= n)]
            if wrong.size:
                raise ValueError(f"{name} has the state {wrong[0]}; allowed: states from 0 to {n - 1}")
        given = range(v) if self.symbols is None else self.symbols
        names = tuple(map(str, given if hasattr(given, "__iter__") else [given]))
        if len(set(names)) != v or len(names) != v or any(name.split() != [name] for name in names):
            raise ValueError(f"symbols are {', '.join(names)}; allowed: {v} different names without blanks")
        table, output = table.astype(np.int64), output.astype(np.int64)     # products of small integers would overflow
        table.flags.writeable = output.flags.writeable = False
        vars(self).update(transition=table, output=output, start=int(self.start), symbols=names)

    @property
    def states(self) -> int:
        """n, how many states there are."""
        return self.transition.shape[0]

    @property
    def vocabulary(self) -> int:
        """v, how many symbols there are."""
        return self.transition.shape[1]

    @property
    def classes(self) -> int:
        """At least 2: an acceptor whose every answer is the same has two answers still."""
        return max(2, int(self.output.max()) + 1)

    def run(self, tokens):
        """The state after each token: (..., t) integers from (..., t) integers.

        Raises ValueError for a token that is no symbol's number.
        """
        tokens = _array("tokens", tokens)
        if tokens.size and (tokens.dtype.kind not in "iu" or not 0 <= tokens.min() <= tokens.max() < self.vocabulary):
            found = np.unique(tokens)
            raise ValueError(f"tokens are {tokens.dtype} from {found[0]} to {found[-1]}; allowed: integers from 0 to "
                             f"{self.vocabulary - 1}")
        tokens = tokens.astype(np.int64, copy=False)
        flat, next_state = self.transition.ravel(), np.full(tokens.shape[:-1], self.start)
        states = np.empty((tokens.shape[-1], *tokens.shape[:-1]), dtype=np.int64)      # positions outermost
        for i in range(len(states)):
            next_state = flat[next_state * self.vocabulary + tokens[..., i]]
            states[i] = next_state
        return np.moveaxis(states, 0, -1)

    def outputs(self, tokens):
        """The class after each token, (..., t) from (..., t)."""
        return self.output[self.run(tokens)]

    def word_map(self, word):
        """(n): where the word (t), a sequence of tokens, leads from each state.

        Raises ValueError as `run` and `compose` do.
        """
        self.run(word)
        place = np.arange(self.states)
        for token in word:
            place = compose(place, self.transition[:, token])
        return place

    def matrices(self, dtype=np.float64):
        """(v, n, n): the 0/1 transition matrix of each symbol, A(x)[q, q'] = 1 where x leads from q to q'."""
        return np.eye(self.states, dtype=dtype)[self.transition.T]

    def encode(self, text: str):
        """(t) tokens from the symbols' names: character by character, or word by word where a name is longer.

        Raises ValueError for an unknown symbol, TypeError for what is no text.
        """
        if not isinstance(text, str):
            raise TypeError(f"text is a {type(text).__name__}; allowed: a str")
        names = {name: token for token, name in enumerate(self.symbols)}
        parts = text.split() if max(map(len, names)) > 1 else "".join(text.split())
        for part in parts:
            if part not in names:
                raise ValueError(f"symbol {part!r} is unknown; allowed: {', '.join(names)}")
        return np.array([names[part] for part in parts], dtype=np.int64)

    def minimal(self) -> "Automaton":
        """The smallest automaton with the same output after every word, the empty one too; states as words reach them.

        Two automata have the same outputs on every word exactly if their minimal ones have the same tables.
        """
        block, finer = None, np.unique(self.output, return_inverse=True)[1].reshape(-1)
        while block is None or finer.max() > block.max():
            block = finer
            signature = np.column_stack([block, block[self.transition]])
            finer = np.unique(signature, axis=0, return_inverse=True)[1].reshape(-1)
        first = np.unique(block, return_index=True)[1]      # a state of each block
        small, output = block[self.transition[first]], self.output[first]
        order = _reached(small, block[self.start])
        place = np.zeros(len(small), dtype=np.int64)        # of each block that words reach
        place[order] = np.arange(len(order))
        return Automaton(place[small[order]], output[order], 0, self.symbols)

    def monoid(self, most: int = 100_000) -> Monoid:
        """The distinct state maps of non-empty words.  Raises ValueError when there are more than `most`."""
        place: dict[bytes, int] = {}
        queue: list[tuple] = [(np.arange(self.states), ())]     # behind the empty word all that have a map of their own
        for map_, word in queue:
            for token in range(self.vocabulary):
                longer = self.transition[map_, token]
                if longer.tobytes() not in place:
                    place[longer.tobytes()] = len(place)
                    queue.append((longer, (*word, token)))
            if len(place) > most:
                raise ValueError(f"the monoid has more than {most:,} state maps; allowed: a larger most")
        maps, words = zip(*queue[1:], strict=True)
        return Monoid(np.array(maps), words, np.array([place[map_.tobytes()] for map_ in self.transition.T]))


def _array(name, given):
    try:
        found = np.asarray(given)
    except ValueError:                                      # rows of several lengths
        found = np.array(0)
    if not found.ndim:
        raise ValueError(f"{name} is {given!r}; allowed: rows of integers, as many in each")
    return found


def compose(first, then):
    """The map of two words in a row from theirs, the earlier word's first: q -> then[first[q]]; (..., n) each.

    >>> compose([1, 1], [1, 0])
    array([0, 0])

    Raises ValueError for what is no integer, a state that is none of the n, and maps of several numbers of axes or
    states, or that do not broadcast.
    """
    first, then = _array("first", first), _array("then", then)
    n = then.shape[-1]
    for name, states in ("first", first), ("then", then):
        least, most = states.min(initial=0), states.max(initial=0)
        whole = states.dtype.kind in "iu" and 0 <= least <= most < n
        if not whole or states.ndim != then.ndim or states.shape[-1] != n:
            raise ValueError(f"{name} has shape {states.shape} and states from {least} to {most}; allowed: {then.ndim} "
                             f"axes as of then, {n} states from 0 to {n - 1}, integers")
    return np.take_along_axis(*np.broadcast_arrays(then, first), axis=-1)


def _reached(transition, start):
    """The states that words reach, in breadth-first order."""
    order, seen = [start], {int(start)}
    for state in order:
        for other in transition[state].tolist():
            if other not in seen:
                seen.add(other)
                order.append(other)
    return np.array(order)


def random_automaton(rng, states: int, symbols: int, classes: int = 2) -> Automaton:
    """Uniformly random tables, every next state and every output; a random start.

    Raises ValueError for numbers that are not whole or below 1.
    """
    check_integers({"states": states, "symbols": symbols, "classes": classes})
    return Automaton(rng.integers(states, size=(states, symbols)), rng.integers(classes, size=states),
                     int(rng.integers(states)))
