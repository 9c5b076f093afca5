"""Regular languages: one word, one answer after its last symbol; twelve languages in `languages.py`.

Source: R, section 5.1 and the authors' code; Delétang et al. 2023; Bhattamishra et al. 2020.
Differs: from the paper as the code does: D_n and Tomita are membership of whole words, negatives are uniformly random
words, Modular Arithmetic has a leading + (`leading_plus`).  From the code: other random numbers, members before the
others in a batch of any size, and split `corrupted`, members with one symbol changed: the published negatives are
easy.  The protocol of Bhattamishra et al., targets at every position of members, is in `per_position.py`.
Symbols: b batch, t position; 0 and 1 are symbols 0 and 1, in D_n opening and closing.
Units: lengths in symbols; `ones` is a probability.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from ..checks import check_choice, check_integer, check_switch
from . import languages
from .languages import LANGUAGES

SPLITS = "released", "corrupted"


class Batch(NamedTuple):
    tokens: np.ndarray         # (b, t) integers
    target: np.ndarray         # (b) integers, the class after the last token


@dataclass(frozen=True)
class RegularLanguages:
    """The settings of the task; samples come from `sample`, all of one length.

    language     : a name of LANGUAGES
    leading_plus : Modular Arithmetic begins with +, as released; otherwise with a number
    ones         : probability of a 1; other than 0.5 in parity only

    Raises: ValueError naming the field, what was given and what is allowed.

    >>> task = RegularLanguages("d2")
    >>> tokens, target = task.sample(np.random.default_rng(0), 4, 6)
    >>> tokens.tolist(), target.tolist()
    ([[0, 0, 1, 1, 0, 1], [0, 0, 1, 1, 0, 1], [0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]], [1, 1, 0, 0])
    >>> task.automaton.outputs(tokens)[0].tolist()                              # of every prefix
    [0, 0, 0, 1, 0, 1]
    >>> RegularLanguages("dyck")                                                # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: language is 'dyck'; allowed: parity, even_pairs, modular_arithmetic, cycle, d2, d3, ...
    """

    language: str = "parity"
    leading_plus: bool = True
    ones: float = 0.5

    def __post_init__(self):
        check_choice("language", self.language, LANGUAGES)
        check_switch("leading_plus", self.leading_plus)
        number = isinstance(self.ones, float | int | np.number) and not isinstance(self.ones, bool)
        if not (number and 0 <= self.ones <= 1) or (self.ones != 0.5 and self.language != "parity"):
            raise ValueError(f"ones is {self.ones!r}; allowed: 0.5, and for parity numbers from 0 to 1")

    @property
    def row(self) -> languages.Language:
        return LANGUAGES[self.language]

    @property
    def label(self) -> str:
        """The language's name in the paper."""
        return self.row.label

    @cached_property
    def automaton(self):
        """The minimal automaton, whose output after the last token is the target."""
        if self.language == "modular_arithmetic" and not self.leading_plus:
            return languages.modular_arithmetic(leading_plus=False)
        return self.row.automaton

    @property
    def vocabulary(self) -> int:
        """Number of symbols."""
        return self.automaton.vocabulary

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.automaton.classes

    def tokens_at(self, length: int) -> int:
        """How many tokens a word of this length has: `length`, but for Modular Arithmetic, where words are odd.

        >>> [RegularLanguages("modular_arithmetic", plus).tokens_at(n) for plus in (True, False) for n in (7, 8)]
        [8, 8, 7, 7]
        """
        if self.language != "modular_arithmetic":
            return length
        return length - (length % 2 == 0) + self.leading_plus

    def sample(self, rng, batch, length, split="released") -> Batch:
        """A Batch of words of one length, members first, half of them unless one class is impossible.

        Raises ValueError for a batch or length below 1, or a split that the language does not have.
        """
        batch = check_integer("batch", batch, 1)
        length = check_integer("length", length, 1)
        row, t = self.row, self.tokens_at(length)
        check_choice(f"split of {self.language}", split, SPLITS if row.members else SPLITS[:1])
        if not row.members:
            draw = partial(languages.bits, ones=self.ones) if self.language == "parity" else row.draw
            tokens = draw(rng, batch, t)
            return Batch(tokens, row.answer(tokens))
        members = (batch + 1) // 2 if row.has_others(t) else batch
        members = members if row.has_members(t) else 0
        others = self.corrupted if split == "corrupted" and row.has_members(t) else languages.bits
        right = row.draw(rng, members, t)
        wrong = languages.drawn_until(lambda x: row.answer(x) == 0, others, rng, batch - members, t)
        return Batch(np.concatenate([right, wrong]), (np.arange(batch) < members).astype(np.int64))

    def corrupted(self, rng, b, t):
        """Members with one symbol changed, which may be members still; position and member are drawn anew each time."""
        tokens = self.row.draw(rng, b, t)
        tokens[np.arange(b), rng.integers(t, size=b)] ^= 1
        return tokens


PRESETS = {name: RegularLanguages(name) for name in LANGUAGES}
