"""Text in lines and in columns, as wide as the terminal is, and JSON."""

import json
import os
import re
import shutil
import sys
from itertools import zip_longest

from ..train.json_files import plain

LABEL = 28                     # characters of the first column, at least, beside the others
FIRST = 40                     # of them that it keeps until no other column can give any
PART = "(?:± )?[^ _/]*[ _/]*"  # what no line is broken in


def room() -> int | None:
    """Columns to print in: COLUMNS where that is set, or the terminal's; None for a file or pipe, which takes all."""
    return shutil.get_terminal_size().columns if os.environ.get("COLUMNS") or sys.stdout.isatty() else None


def lines(text: str, limit: int | None, hang: int = 2) -> list[str]:
    """A text in lines of at most `limit` characters, broken behind blanks, _ and /; all but the first are indented.

    >>> lines("refattn/attention/hyla.py is a page", 18)
    ['refattn/attention/', '  hyla.py is a', '  page']
    """
    found = [""]
    for part in re.findall(PART, text) if limit and len(text) > limit else [text]:
        while limit and len(found[-1]) + len(part.rstrip()) > limit:
            start = " " * min(hang, limit // 2)
            keep = len(part) if found[-1].strip() else limit - len(found[-1])
            if keep < len(part):                            # no line is long enough for it
                found[-1], part = found[-1] + part[:keep], part[keep:]
            found.append(start)
        found[-1] += part
    return [line.rstrip() for line in found]


def wrapped(text: str, hang: int = 2) -> str:
    """A text of many lines, as wide as there is room."""
    return "\n".join(line for long in text.splitlines() for line in lines(long, room(), hang))


def as_json(document) -> str:
    """A document as JSON text, an entry a line, no letter escaped; numbers that are not finite are null."""
    return json.dumps(plain(document), indent=1, ensure_ascii=False)


def longest_part(rows, i: int) -> int:
    """Characters of the longest part of a column that no line is broken in."""
    return max((len(part.rstrip()) for row in rows for part in re.findall(PART, row[i])), default=0)


def fitted(rows, right, limit: int | None, apart=True) -> list[list[str]]:
    """The lines of each row: of the heading first, then of a rule, as `columns` says."""
    places = range(len(rows[0]))
    widths = [max(len(row[i]) for row in rows) for i in places]
    hang = [2 if apart and i not in right else 0 for i in places]
    word = [longest_part(rows, i) for i in places]

    def least_of(i):
        if i in right:                                      # numbers are not broken, their headings may be
            return max([longest_part(rows[:1], i), *(len(row[i]) for row in rows[1:])])
        return min(widths[i], max(word[i] + 2, FIRST if i == 0 else 0))

    body = [least_of(i) for i in places]
    gaps = 2 * len(places) - 2
    if apart and limit and right and 0 not in right and widths[0] > LABEL > limit - gaps - sum(body[1:]):
        below = fitted([row[1:] for row in rows], {i - 1 for i in right}, limit - 2, apart=False)
        labels = [[], [], *(lines(row[0], limit) for row in rows[1:])]
        return [[*label, *(f"  {line}" for line in part)] for label, part in zip(labels, below, strict=True)]
    for least in body, word, [longest_part(rows[1:], i) if i in right else 5 for i in places]:  # breaks words at last
        while limit and sum(widths) + gaps > limit:
            if not (wide := [i for i in places if widths[i] > least[i]]):
                break
            widths[max(wide, key=widths.__getitem__)] -= 1

    def aligned(line):
        return "  ".join(text.rjust(width) if i in right else text.ljust(width)
                         for i, (text, width) in enumerate(zip(line, widths, strict=True))).rstrip()

    def broken(row):
        return [aligned(line) for line in zip_longest(*map(lines, row, widths, hang), fillvalue="")]

    return [broken(row) for row in (rows[0], ["-" * width for width in widths], *rows[1:])]


def columns(rows, right=(), limit: int | None = None) -> str:
    """Rows of texts as aligned columns, the first row being the heading; columns in `right` end flush.

    Where they are wider than `limit` together, headings are broken into lines first, then the widest columns; where
    little would be left of the first column, it stands above the others, and where there is no room for the numbers
    side by side, they stand below one another.

    >>> print(columns([["a", "n"], ["bc", "10"]], right={1}))
    a    n
    --  --
    bc  10
    >>> print(columns([["", "n"], ["hyla with four heads of width two", "10,000,000"]], right={1}, limit=34))
               n
      ----------
    hyla with four heads of width two
      10,000,000
    """
    if limit and right and limit < sum(
            2 + longest_part(rows[1:] if i in right else rows, i) for i in range(len(rows[0]))) - 2:
        return "\n".join(line for row in rows[1:] for i, (name, text) in enumerate(zip(rows[0], row, strict=True))
                         for line in lines(f"  {name}: {text}" if i else text, limit, hang=4))
    return "\n".join(line for row in fitted(rows, right, limit) for line in row)
