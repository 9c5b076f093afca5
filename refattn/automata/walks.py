"""Words that reach every state of an automaton, and that end like words which reach another.

A uniformly random word soon is in a state that it never leaves, and answers the same ever after; whoever has forgotten
how the word began is then as good as whoever has not.  So a word here is walked backwards from the state that was asked
about least, at one of the lengths in question, and goes on as a word of its own, one that begins at the start: a reader
who remembers that part alone takes it for the whole.
"""

import numpy as np

from ..checks import check_integer
from .finite import Automaton

__all__ = ["reached", "words"]


def reached(automaton: Automaton, longest: int) -> np.ndarray:
    """(longest + 1, n) booleans: the states that words of 0, 1, ..., longest symbols lead to.  Raises ValueError."""
    check_integer("longest", longest, 0)
    found = np.zeros((longest + 1, automaton.states), dtype=bool)
    found[0, automaton.start] = True
    for t in range(longest):
        found[t + 1, automaton.transition[found[t]]] = True
    return found


class _Walker:
    """Walks backwards along the arrows that lead somewhere, every other time along one that was used least."""

    def __init__(self, automaton: Automaton, longest: int, rng):
        self.rng, self.reached = rng, reached(automaton, longest)
        self.into = [np.argwhere(automaton.transition == state) for state in range(automaton.states)]
        self.used = np.zeros(automaton.transition.shape, dtype=np.int64)

    def word(self, state: int, length: int) -> np.ndarray:
        """So many tokens that lead from the start to the state, one of `reached[length]`."""
        tokens = np.zeros(length, dtype=np.int64)
        for t in range(length - 1, -1, -1):
            arrows = self.into[state]
            arrows = arrows[self.reached[t, arrows[:, 0]]]
            weight = self.rng.random(len(arrows))
            if t % 2:
                weight += self.used[arrows[:, 0], arrows[:, 1]]
            state, tokens[t] = arrows[weight.argmin()]
            self.used[state, tokens[t]] += 1
        return tokens

    def anywhere(self, length: int) -> np.ndarray:
        """So many tokens that lead from the start to a random state."""
        return self.word(int(self.rng.choice(np.flatnonzero(self.reached[length]))), length)


def words(automaton: Automaton, rng, count: int, lengths) -> list[np.ndarray]:
    """For each (shortest, longest) of `lengths` words (count, longest) that visit the states between these lengths.

    Raises ValueError for lengths that are no whole numbers from 0 on, the longer one second, for none of them, and for
    a count below 0.
    """
    lengths = [(check_integer("shortest", shortest, 0), check_integer("longest", longest, shortest))
               for shortest, longest in lengths]
    check_integer("number of lengths", len(lengths))
    check_integer("count", count, 0)
    walker, found = _Walker(automaton, max(longest for _, longest in lengths), rng), []
    for shortest, longest in lengths:
        there, asked = walker.reached[shortest:longest + 1], np.zeros(automaton.states)
        tokens = np.empty((count, longest), dtype=np.int64)
        for row in tokens:
            state = int(np.where(there.any(axis=0), asked + rng.random(len(asked)), np.inf).argmin())
            t = shortest + int(rng.choice(np.flatnonzero(there[:, state])))
            row[:t], row[t:] = walker.word(state, t), walker.anywhere(longest - t)
            asked += np.bincount(automaton.run(row)[max(shortest, 1) - 1:], minlength=len(asked))
        found.append(tokens)
    return found
