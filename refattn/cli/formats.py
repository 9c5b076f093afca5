"""Tables of `refattn reproduce` as text, Markdown and JSON."""

import json

from .comparison import columns, lines, room


def below(sheet) -> list[str]:
    """The sentences below a table."""
    return [*sheet.notes, *([f"Paper: {sheet.source}."] if sheet.source else [])]


def text(sheet) -> str:
    """For a terminal."""
    limit = room()
    right = set(range(1, len(sheet.headings)))
    aligned = columns([sheet.headings, *sheet.rows], right, limit) if sheet.rows else "No row was run."
    title, notes = lines(sheet.title, limit), [line for note in below(sheet) for line in lines(note, limit)]
    return "\n".join([*title, "", aligned, "", *notes])


def markdown(sheet) -> str:
    """For documents: a heading line, the table, the notes as one paragraph."""
    lines = [sheet.headings, ["---"] + ["---:"] * (len(sheet.headings) - 1), *sheet.rows]
    table = "\n".join(f"| {' | '.join(texts)} |" for texts in lines)
    return f"**{sheet.title}**\n\n{table}\n\n{' '.join(below(sheet))}"


def as_json(sheet) -> str:
    """Numbers unrounded."""
    return json.dumps({"name": sheet.name, "title": sheet.title, "source": sheet.source, "rows": sheet.data,
                       "notes": sheet.notes}, indent=1, ensure_ascii=False)


FORMATS = {"text": text, "markdown": markdown, "json": as_json}
