"""Every function of the library as one row of one table: what the checks, planted bugs and reference vectors run over.

Attention rows are read from `attention.VARIANTS` and the three knobs, so a new variant is one row there and one loop in
`naive`.  Layers and models have all parameters as one flat input, `parameters`.
"""

from importlib import import_module

from ...refusals import choices
from .case import Case

__all__ = ["CASES", "ROUTINES", "Case", "find"]

PARTS = [import_module(f".{name}", __name__) for name in (              # in this order
    "operations", "attention", "layers", "models", "compositional", "automata", "regular", "routines", "tasks",
    "images", "sequences", "language")]


def rows(kind: str) -> tuple[Case, ...]:
    """The rows of all parts that have some: of their function `rows` or `routines`."""
    return tuple(case for part in PARTS if hasattr(part, kind) for case in getattr(part, kind)())


CASES, ROUTINES = rows("rows"), rows("routines")                        # with a backward, and without


def find(name: str) -> Case:
    """The row of that name.  Raises ValueError for an unknown one, listing those of its folder, or the folders."""
    rows = {case.name: case for case in CASES + ROUTINES}
    if name not in rows:
        beside = [row for row in rows if row.partition("/")[0] == name.partition("/")[0]]
        folders = dict.fromkeys(row.partition("/")[0] + "/..." for row in rows if "/" in row)
        raise ValueError(f"no case is called {name!r}{choices(name, beside or folders)}")
    return rows[name]
