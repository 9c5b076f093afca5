"""Tables of `refattn reproduce` as text, Markdown and JSON."""

import re

from .layout import as_json, columns, room, wrapped

NUMBER = re.compile(r"[-+<–]|\d|not given|never run|$")      # how the cells of a column of numbers begin


def numbers(sheet) -> set[int]:
    """The columns of numbers, which stand to the right; what is no number stands to the left."""
    return {i for i in range(1, len(sheet.headings)) if all(NUMBER.match(row[i]) for row in sheet.rows)}


def below(sheet) -> list[str]:
    """The sentences below a table."""
    return [*sheet.notes, *([f"Paper: {sheet.source}."] if sheet.source else [])]


def text(sheet) -> str:
    """For a terminal."""
    aligned = columns([sheet.headings, *sheet.rows], numbers(sheet), room()) if sheet.rows else "No run is complete."
    return "\n".join([wrapped(sheet.title), "", aligned, "", *map(wrapped, below(sheet))])


def markdown(sheet) -> str:
    """For documents: a heading line, the table, the notes as one paragraph."""
    right = numbers(sheet)
    rule = ["---:" if i in right else "---" for i in range(len(sheet.headings))]
    table = "\n".join(f"| {' | '.join(texts)} |" for texts in (sheet.headings, rule, *sheet.rows))
    return f"**{sheet.title}**\n\n{table}\n\n{' '.join(below(sheet))}"


def in_json(sheet) -> str:
    """Numbers unrounded."""
    return as_json({"name": sheet.name, "title": sheet.title, "source": sheet.source, "rows": sheet.data,
                    "notes": sheet.notes})


FORMATS = {"text": text, "markdown": markdown, "json": in_json}
