"""Automata from a table in a text file, and the table of an automaton.

The table's first line says `state`, `output`, and the names of the symbols; each other line is a state: its name, its
class (a whole number from 0 to 999; 0 and 1 for an acceptor), and for each symbol the name of the next state.  The
first state is the start.  Words are separated by blanks; `#` begins a comment.  Parity of the ones:

    state  output  0     1
    even   0       even  odd
    odd    1       odd   even
"""

from pathlib import Path

from .finite import Automaton

__all__ = ["check_name", "from_table", "read_table", "to_table"]

MOST_CLASSES = 1_000


def from_table(text: str, source: str = "the table") -> Automaton:
    """The automaton that a table describes.

    Raises ValueError, one line with the source and, where a state's line is at fault, its number, for a table that is
    not complete or has other classes.

    >>> from_table("state output a b\\n even 0 even odd\\n odd 1 odd even").encode("ba").tolist()
    [1, 0]
    """
    lines = [(number, line.partition("#")[0].split()) for number, line in enumerate(text.splitlines(), start=1)]
    lines = [(number, words) for number, words in lines if words]
    if not lines or lines[0][1][:2] != ["state", "output"] or len(lines[0][1]) < 3:
        given = f"begins with {' '.join(lines[0][1])[:60]!r}" if lines else "is empty"
        raise ValueError(f"{source} {given}; allowed: a first line 'state output', then the symbols")
    (_, (_, _, *symbols)), *rows = lines
    if not rows:
        raise ValueError(f"{source} has no states; allowed: a line for each, the start first")
    if len(set(symbols)) != len(symbols):
        raise ValueError(f"{source} has the symbols {' '.join(symbols)}; allowed: different ones")
    place = {}
    for number, (name, *_) in rows:
        if name in place:
            raise ValueError(f"{source}, line {number}: state {name!r} has a line already; allowed: one for each")
        place[name] = len(place)
    table, output = [], []
    for number, (name, *rest) in rows:
        if len(rest) != len(symbols) + 1:
            raise ValueError(f"{source}, line {number}: state {name!r} has {max(len(rest) - 1, 0)} next states; "
                             f"allowed: {len(symbols)}, for the symbols {' '.join(symbols)}")
        if not rest[0].isdecimal() or len(rest[0]) > 9 or int(rest[0]) >= MOST_CLASSES:     # int refuses 4,301 digits
            raise ValueError(f"{source}, line {number}: output is {rest[0]!r}; allowed: 0, 1, ... {MOST_CLASSES - 1}")
        for other in rest[1:]:
            if other not in place:
                raise ValueError(f"{source}, line {number}: state {other!r} has no line; allowed: {', '.join(place)}")
        output.append(int(rest[0]))
        table.append([place[other] for other in rest[1:]])
    return Automaton(table, output, 0, tuple(symbols))


def read_table(path) -> Automaton:
    """`from_table` of a file.  Raises ValueError, one line, also for one that is no text; OSError without one."""
    try:
        return from_table(Path(path).read_text(encoding="utf-8-sig"), str(path))    # with a byte order mark or not
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text in UTF-8 ({error.reason} at byte {error.start})") from error


def to_table(automaton: Automaton) -> str:
    """The table of an automaton whose start is state 0, as `from_table` reads it; states are called q0, q1, ...

    Raises ValueError for another start, or for classes or symbols that a table cannot name.

    >>> print(to_table(Automaton([[0, 1], [1, 0]], [0, 1])))
    state output 0 1
    q0 0 q0 q1
    q1 1 q1 q0
    """
    if automaton.start != 0:
        raise ValueError(f"start is {automaton.start}; allowed in a table: 0, where `minimal()` has it")
    if automaton.output.max() >= MOST_CLASSES:
        raise ValueError(f"output has the class {automaton.output.max()}; allowed in a table: 0 to {MOST_CLASSES - 1}")
    for name in automaton.symbols:
        check_name(name)
    rows = [("state", "output", *automaton.symbols)]
    for state, (output, following) in enumerate(zip(automaton.output, automaton.transition, strict=True)):
        rows.append((f"q{state}", str(output), *(f"q{other}" for other in following)))
    return "\n".join(map(" ".join, rows))


def check_name(name: str) -> None:
    """Nothing, or a ValueError for a symbol that no table can name."""
    if not name or name.split() != [name] or "#" in name:
        raise ValueError(f"symbol {name!r} fits no table; allowed: names without blanks and #")
