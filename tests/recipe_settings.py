"""Every number that the recipes fix, written down once more: `python -m tests.recipe_settings` writes the file anew.

What a recipe fixes is part of what a recorded run means, so a change of it is to be seen, and meant.
"""

import json
from dataclasses import asdict, fields, replace
from pathlib import Path

from refattn.attention import VARIANTS
from refattn.params import count
from refattn.recipes import RECIPES, SHORT, recipe

FILE = Path(__file__).with_suffix(".json")


def ranges(kind) -> dict:
    """{field: [smallest, largest, choices]} of a recipe; an open end is null, all of H's variants are one choice."""
    def choices(f):
        names = list(f.metadata["choices"])
        others = [x for x in names if x not in VARIANTS]
        return ["every variant of H", *others] if set(VARIANTS) <= set(names) else names
    return {f.name: [None if abs(x) == float("inf") else x for x in (f.metadata["least"], f.metadata["most"])]
            + [choices(f)] for f in fields(kind)}


def parameters(made) -> int | None:
    """How many there are; None where they depend on words that this Python's help has, or on a corpus not at hand."""
    own = getattr(made, "text", "") == "documentation"      # in some Pythons too short for the longest windows
    if own and made.unit == "words":
        return None
    try:
        return count((replace(made, text="library") if own else made).build().parameters())
    except ValueError as error:
        if "REFATTN_DATA" not in str(error):
            raise
        return None


def row(made) -> dict:
    """What one recipe fixes."""
    return {"fields": asdict(made), "name": made.name, "parameters": parameters(made),
            "rates": [made.rate_at(step) for step in (0, 1, made.steps // 2)]}


def table() -> dict:
    """{"ranges": {task: ranges}, "names": {task: those of the runs of a comparison}, "scales": {title: row}}."""
    return {"ranges": {task: ranges(kind) for task, kind in RECIPES.items()},
            "names": {task: [recipe(task, **{kind.COMPARES: value}).name for value in kind.compared()]
                      for task, kind in RECIPES.items()},
            "scales": {f"{task} {scale}": row(recipe(task, scale)) for task in (*RECIPES, *SHORT)
                       for scale in RECIPES[SHORT.get(task, (task,))[0]].SCALES}}


def text() -> str:
    """The table as JSON, a line for each recipe and scale."""
    found = table()
    return "{" + ",\n".join(f'"{part}": {{\n' + ",\n".join(
        f'"{title}": {json.dumps(row)}' for title, row in rows.items()) + "}" for part, rows in found.items()) + "}\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
