"""`refattn list`: variants, tasks, recipes and theorems, and where they come from."""

import os
import sys
from dataclasses import asdict

from ..attention.pages import PAGES
from ..check.subjects import STATE
from ..recipes import RECIPES, SHORT, kind_of, recipe
from ..reproduce.published import figures_for
from ..tasks.languages import LANGUAGES
from ..verification import theorems
from ..verification.cases import CASES, find
from .layout import as_json, columns, room, wrapped
from .options import Parser


def file_of(kind, ours: str) -> str:
    """That of a recipe of this package, or where one of somebody's own is defined."""
    return ours if kind.__module__.startswith("refattn.") else getattr(sys.modules[kind.__module__], "__file__", "-")


def sections() -> dict:
    """{section: rows}, the first row being the heading."""
    kinds = {name: kind_of(name)[0] for name in RECIPES}
    tasks = [(name, kind.SOURCE, file_of(kind, f"refattn/tasks/{kind.DATA or name}.py"))
             for name, kind in kinds.items()]
    for name, (task, _) in SHORT.items():
        source = LANGUAGES[name].source if name in LANGUAGES else kinds[task].SOURCE
        tasks.append((name, source, f"refattn/tasks/{task}.py"))
    scales = []
    for name, kind in kinds.items():
        for scale in kind.SCALES:
            one = recipe(name, scale)
            figures = figures_for(name, asdict(one)).source.split(":")[0]
            scales.append((name, scale, f"{one.steps:,}", figures, file_of(kind, f"refattn/recipes/{name}.py")))
    state = STATE.name, find(f"attention/{STATE.name}").source, f"refattn/attention/{STATE.file}"
    return {
        "variants": [("name", "paper", "equation", "row of table A1", "file")] + [
            (name, v.paper, v.equation, v.row or "-", f"refattn/attention/{v.file}") for name, v in PAGES.items()],
        "tasks": [("name", "paper", "file"), *tasks],
        "recipes": [("name", "scale", "steps", "figures", "file"), *scales],
        "theorems": [("name", "source", "file", "statement")] + [
            (t.name, t.source, f"{t.error.__module__.replace('.', '/')}.py", t.statement)
            for t in theorems.THEOREMS.values()],
        "checked": [("name", "source", "file"), state] + [      # rows with one output
            (x.name, x.source, f"refattn/{x.file}") for x in CASES if not isinstance(x.axes.get("output"), tuple)],
    }


def merged(rows) -> list[tuple]:
    """The rows of recipes with a line for all scales of one."""
    found: dict[tuple, list] = {}
    for name, scale, steps, figures, file in rows[1:]:
        found.setdefault((name, figures, file), []).append(f"{scale} {steps}")
    return [("name", "scales and their steps", "figures", "file"),
            *((name, "; ".join(scales), figures, file) for (name, figures, file), scales in found.items())]


def table(rows) -> str:
    """Rows as columns; the folder of all files of this package is said once, in the heading."""
    folder = os.path.commonpath([row[-1] for row in rows[1:] if row[-1].startswith("refattn/")])
    rows = [(*rows[0][:-1], f"file in {folder}"),
            *((*row[:-1], row[-1].removeprefix(f"{folder}/")) for row in rows[1:])]
    return columns([[text.replace(" et al.", "") for text in row] for row in rows], limit=room())


def run(argv) -> int:
    """What there is, and where it comes from."""
    parser = Parser("refattn list", "Variants, tasks, recipes and theorems, with paper, equation or table, and file; "
                    "rows of refattn check.")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    options, found = parser.parse(argv), sections()
    if "json" in options:
        print(as_json({name: [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
                       for name, rows in found.items()}))
        return 0
    for name, rows in ("variants", found["variants"]), ("tasks", found["tasks"]), ("recipes", merged(found["recipes"])):
        print(f"{name.upper()}\n{table(rows)}\n")
    print("THEOREMS")
    for name, source, file, statement in found["theorems"][1:]:
        print(wrapped(f"{name}: {statement} [{source}; {file}]", hang=4))
    print("\nWHAT refattn check --as KNOWS BESIDE THE VARIANTS")
    checked: dict[str, list] = {}
    for name, *_ in found["checked"][1:]:
        checked.setdefault(name.partition("/")[0], []).append(name)
    for names in checked.values():
        print(wrapped("; ".join(names), hang=4))
    return 0
