"""Regular expressions in Python's meaning: the words for which `re.fullmatch` finds a match.

Python's own parser reads the expression, and Python's own matcher says which symbols a character, a class, \\w or .
stands for, and between which symbols ^, $, \\b and the like hold.  So only the rest is done here: an automaton with
several arrows for a symbol (Thompson 1968), and sets of its places as the states of one that has a single arrow
(Rabin and Scott 1959).  What needs memory or looks ahead is refused by its name.
"""

import re
import warnings
from collections import defaultdict

from .finite import Automaton
from .reading import check_name

try:
    from re import _compiler, _parser  # type: ignore[attr-defined]
except ImportError:            # Python 3.10
    import sre_compile as _compiler
    import sre_parse as _parser

__all__ = ["from_regex"]

MOST_PLACES, MOST_STATES = 20_000, 10_000
REFUSED = {"ASSERT": "a lookahead or lookbehind, (?=...) or (?<=...)",
           "ASSERT_NOT": "a lookahead or lookbehind, (?!...) or (?<!...)", "GROUPREF": "a reference to a group",
           "GROUPREF_EXISTS": "a choice by a group, (?(1)...)", "ATOMIC_GROUP": "an atomic group, (?>...)",
           "POSSESSIVE_REPEAT": "a possessive repetition such as *+"}
CATEGORIES = {"DIGIT": r"\d", "NOT_DIGIT": r"\D", "SPACE": r"\s", "NOT_SPACE": r"\S", "WORD": r"\w", "NOT_WORD": r"\W"}


class Places:
    """The expression as places between characters: `edges` read a symbol, `jumps` none, some where a condition holds.

    `conditions` has for each ^, $, \\b ... its answers, [symbol before][symbol after]; the last of each is "no symbol".
    """

    def __init__(self, expression: str, alphabet: str):
        self.symbols, self.tree = [*alphabet, ""], _parser.parse(expression)
        self.edges: dict[int, list] = defaultdict(list)         # place -> (symbols, next place)
        self.jumps: dict[int, list] = defaultdict(list)         # place -> (condition or None, next place)
        self.conditions: list[list[list[bool]]] = []
        self.foreign: dict[str, None] = {}                      # what the expression names and no symbol is
        self.count = 1
        self.end = self.add(self.tree, 0, ())

    def new(self) -> int:
        """One place more.  Raises ValueError where there are too many."""
        if self.count == MOST_PLACES:
            raise ValueError(f"it is longer than {MOST_PLACES:,} characters with its repetitions written out")
        self.count += 1
        return self.count - 1

    def matcher(self, item, flags):
        """The `match` of one item of the tree, inside the flags of its groups."""
        for add, remove in reversed(flags):
            item = _parser.SUBPATTERN, (None, add, remove, _parser.SubPattern(self.tree.state, [item]))
        return _compiler.compile(_parser.SubPattern(self.tree.state, [item])).match

    def read(self, item, flags) -> list[int]:
        """The symbols that one character of the expression stands for; notes what it names and no symbol is."""
        operation, argument = item
        for kind, value in {_parser.IN: argument, _parser.ANY: []}.get(operation, [item]):      # . names nothing
            single = (_parser.LITERAL if kind is _parser.NOT_LITERAL else kind), value
            bracketed = _parser.IN, [single]                # where ranges and categories stand
            if kind is not _parser.NEGATE and not any(map(self.matcher(bracketed, flags), self.symbols[:-1])):
                self.foreign[named(single)] = None
        match = self.matcher(item, flags)
        return [i for i, symbol in enumerate(self.symbols[:-1]) if match(symbol)]

    def add(self, items, start: int, flags) -> int:
        """Adds a sequence of items from a place on; returns the place behind it."""
        for operation, argument in items:
            match str(operation), argument:
                case ("LITERAL" | "NOT_LITERAL" | "ANY" | "IN"), _:
                    end = self.new()
                    self.edges[start].append((self.read((operation, argument), flags), end))
                case "AT", _:
                    end = self.new()
                    holds = self.matcher((operation, argument), flags)
                    self.jumps[start].append((len(self.conditions), end))
                    self.conditions.append([[bool(holds(before + after, len(before))) for after in self.symbols]
                                            for before in self.symbols])
                case "SUBPATTERN", (_, add, remove, inner):
                    end = self.add(inner, start, (*flags, (add, remove)))
                case "BRANCH", (_, branches):
                    end = self.new()
                    for inner in branches:
                        self.jumps[self.add(inner, start, flags)].append((None, end))
                case ("MAX_REPEAT" | "MIN_REPEAT"), (least, most, inner):
                    some = most if inner.getwidth()[1] else 1           # what reads nothing need not be read again
                    end = self.repeat(min(least, some), min(most, some), inner, start, flags)
                case name, _:
                    raise ValueError(f"it has {REFUSED.get(name, name)}, which no automaton is made of here")
            start = end
        return start

    def repeat(self, least, most, inner, start: int, flags) -> int:
        """Adds a part again and again, as `add` adds it once."""
        for _ in range(least):
            start = self.add(inner, start, flags)
        end = self.new()
        self.jumps[start].append((None, end))
        if most is _parser.MAXREPEAT:
            self.jumps[self.add(inner, end, flags)].append((None, end))
            return end
        for _ in range(most - least):
            start = self.add(inner, start, flags)
            self.jumps[start].append((None, end))
        return end

    def reached(self, places, before: int, after: int) -> set[int]:
        """The places that jumps lead to, themselves included, between two symbols."""
        found, queue = set(places), [*places]
        for place in queue:
            for condition, end in self.jumps[place]:
                if end not in found and (condition is None or self.conditions[condition][before][after]):
                    found.add(end)
                    queue.append(end)
        return found


def named(item) -> str:
    """A part of an expression as people write it."""
    kind, value = item
    if kind is _parser.CATEGORY:
        return CATEGORIES.get(str(value).removeprefix("CATEGORY_"), str(value))
    return f"[{chr(value[0])}-{chr(value[1])}]" if kind is _parser.RANGE else repr(chr(value))


def from_regex(expression: str, alphabet: str) -> Automaton:
    """The minimal acceptor (outputs 0 and 1) of the words over `alphabet`, one character a symbol, that match whole.

    Raises ValueError, one line: where Python's `re` refuses the expression or it has more than repetition, choice and
    conditions on neighbours; where it names a character, range or category that no symbol belongs to; for an alphabet
    that is empty, repeats itself or has blanks or #.

    >>> from_regex("^(ab)*$", "ab").outputs([[0, 1, 0, 1], [0, 1, 1, 0]]).tolist()      # after each symbol
    [[0, 1, 0, 1], [0, 1, 0, 0]]
    """
    if not alphabet or len(set(alphabet)) != len(alphabet):
        raise ValueError(f"alphabet is {alphabet!r}; allowed: one or more different characters")
    for symbol in alphabet:
        check_name(symbol)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")                 # of a later Python's meaning of [[ or --
            places = Places(expression, alphabet)
        if places.foreign:
            raise ValueError(f"it names {', '.join(places.foreign)}, to which no symbol of the alphabet {alphabet!r} "
                             f"belongs; allowed: an alphabet that has them")
        return determined(places, alphabet).minimal()
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"regular expression {expression!r} cannot be read: {error}") from error


def determined(places: Places, alphabet: str) -> Automaton:
    """The automaton whose states are sets of places, and what conditions need to know of the symbol before."""
    v = len(alphabet)                                       # symbols that no condition tells apart are one
    rows = [tuple(tuple(condition[before]) for condition in places.conditions) for before in range(v + 1)]
    place_of = {(frozenset([0]), rows.index(rows[v])): 0}
    table: list[list[int]] = []
    output: list[int] = []
    queue = list(place_of)
    for states, before in queue:                            # which grows
        output.append(int(places.end in places.reached(states, before, v)))
        table.append([])
        for symbol in range(v):
            here = places.reached(states, before, symbol)
            ends = frozenset(end for place in here for symbols, end in places.edges[place] if symbol in symbols)
            key = ends, rows.index(rows[symbol])
            if key not in place_of:
                if len(place_of) == MOST_STATES:
                    raise ValueError(f"its automaton has more than {MOST_STATES:,} states before they are minimised")
                place_of[key] = len(place_of)
                queue.append(key)
            table[-1].append(place_of[key])
    return Automaton(table, output, 0, tuple(alphabet))
