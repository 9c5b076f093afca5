"""A table as it is printed, the paper's figures beside ours: texts for people, the same as data for programs."""

from itertools import compress
from typing import NamedTuple

from ..refusals import guess


class Sheet(NamedTuple):
    name: str
    title: str
    source: str                # of the paper's figures
    headings: list[str]
    rows: list[list[str]]      # texts below the headings
    data: list[dict]           # one for each row
    notes: list[str]           # sentences below the table
    runs: int                  # that it is made of

    def without_empty_rows(self) -> "Sheet":
        """Without the rows of which nothing was run; a note counts them."""
        some = [any(cell.get(name) not in (None, {}) for cell in row.get("cells", [row]) for name in ("ours", "effect"))
                for row in self.data]
        if all(some):
            return self
        note = f"{some.count(False)} of {len(some)} rows were never run and are left out."
        return self._replace(rows=list(compress(self.rows, some)), data=list(compress(self.data, some)),
                             notes=[*self.notes, note])

    def unfinished(self) -> "Sheet":
        """Of fresh runs, all of which were begun: what is missing is not complete."""
        rows = [["not complete" if text == NEVER else text for text in row] for row in self.rows]
        return self._replace(rows=rows, notes=[note.replace(NEVER, "not complete") for note in self.notes])


NEVER = "never run"            # a cell without a run is neither blank nor 0


def chosen(rows: dict, only=()) -> dict:
    """Of {label: row} those whose label contains one of `only`, in any case; all when there are none.

    Raises ValueError where no label does.
    """
    found = {label: x for label, x in rows.items() if not only or any(part.lower() in label.lower() for part in only)}
    if not found:
        some = [*rows][:30]
        more = f"; and of {len(rows) - len(some)} more" if len(rows) > len(some) else ""
        raise ValueError(f"row is {', '.join(only)!r}{guess(only[0], rows)} allowed: parts of: {'; '.join(some)}{more}")
    return found


def shown(mean: float | None, error: float | None = None, digits: int = 3, without: str = "not finite") -> str:
    """0.412 ± 0.013; `without` where there is no number."""
    if mean is None:
        return without
    return f"{mean:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")
