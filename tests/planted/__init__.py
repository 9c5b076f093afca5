"""Planted bugs: plausible mistakes, one row each, that the checks must catch.

A row is a file, a text that stands in it exactly once, the text to put there, and one sentence that says what is wrong.
`python -m tests.planted.caught` prints which check catches which row.
"""

from functools import cache
from types import ModuleType
from typing import NamedTuple

from refattn.verification.changed_source import rewritten

from . import automata, compositional, hypernetwork, images, language, regular, sequences, sraven


class Bug(NamedTuple):
    file: str                  # below refattn/
    old: str                   # occurs exactly once
    new: str
    sentence: str


@cache
def load(bug: Bug) -> ModuleType:
    """The package with this bug, beside the real one; each is loaded once.

    Raises ValueError naming file and text when the text does not stand in the file exactly once.
    """
    def edit(source):
        if source.count(bug.old) != 1:
            raise ValueError(f"{bug.file} has {source.count(bug.old)} times, not once, the text {bug.old!r}")
        return source.replace(bug.old, bug.new)

    return rewritten({bug.file: edit})


BUGS: tuple[Bug, ...] = tuple(Bug._make(row) for part in (
    hypernetwork, compositional, automata, regular, images, sraven, sequences, language) for row in part.ROWS)
