"""A finished table: texts for people, the same as data for programs."""

from typing import NamedTuple


class Sheet(NamedTuple):
    name: str
    title: str
    source: str                # of the paper's figures
    headings: list[str]
    rows: list[list[str]]      # texts below the headings
    data: list[dict]           # one for each row
    notes: list[str]           # sentences below the table


NEVER = "never run"            # a cell without a run is neither blank nor 0


def chosen(rows: dict, only=()) -> dict:
    """Of {label: row} those whose label contains one of `only`, in any case; all when there are none.

    Raises ValueError where no label does.
    """
    found = {label: row for label, row in rows.items()
             if not only or any(part.lower() in label.lower() for part in only)}
    if not found:
        raise ValueError(f"row is {', '.join(only)!r}, allowed are parts of: {'; '.join(rows)}")
    return found


def shown(mean: float | None, error: float | None = None, digits: int = 3) -> str:
    """0.412 ± 0.013."""
    if mean is None:
        return "not finite"
    return f"{mean:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")
