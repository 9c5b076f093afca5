"""A published table of trained models: the runs that each cell is made of, the paper's figure, and ours beside it."""

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

from ..recipes import recipe
from . import drawing, records
from .codes import with_codes
from .sheet import NEVER, Sheet, chosen, shown
from .statistics import mean

PAPERS = {"H": "Schug et al. 2025, Attention as a Hypernetwork", "C": "Mittal et al. 2022, Compositional Attention",
          "R": "Chi et al. 2023, RegularGPT"}
# Fields that do not change what a run ends with, or that tell runs of one cell apart.
ASIDE = "seed", "log_every", "evaluate_every", "checkpoint_every", "probe", "read"


class Column(NamedTuple):
    heading: str
    split: str
    metric: str
    fields: tuple = ()         # (recipe field, value) pairs beside the row's
    extreme: Callable | None = None    # max or min of all runs, instead of the mean


class Row(NamedTuple):
    label: str
    fields: dict               # of the recipe
    paper: tuple = ()          # (mean, standard error or None) of the first columns; None where the paper has nothing


class Exhibit:
    """A table or a figure that `refattn reproduce` knows by its name: what all have in common unless they say so."""
    rows: tuple = ()
    records: tuple = ()                # where our runs are
    default_scale: str | None = "quick"        # of fresh runs
    whole = False                      # whether its text has the rows too of which nothing was run
    fresh: Any = None                  # seed -> rows, where they are counted, not trained
    plot: Any = None                   # sheet -> a matplotlib Figure, where it has one

    def recorded(self) -> list[dict]:
        """All recorded runs."""
        return records.recorded(self.records)

    def chosen(self, only=()):
        """The rows whose label contains one of `only`; all without any."""
        return chosen({row.label: row for row in self.rows}, only).values()

    def after(self, outcomes, only=()) -> list[dict]:
        """What finished fresh runs add to it: themselves."""
        return outcomes


@dataclass(frozen=True)
class Table(Exhibit):
    """One published table.  `scale` is the recipe's scale with the paper's settings, `records` where our runs are."""
    name: str
    title: str
    source: str
    task: str
    columns: tuple
    rows: tuple
    records: tuple
    scale: str = "paper"
    digits: int = 3                    # of the paper's figures
    remarks: tuple = ()
    default_scale: str = "quick"       # of fresh runs
    axes: tuple = ()                   # what goes from column to column, where that is a quantity, and what is measured
    units: bool = False                # whether rows have several units, which stand before the label's colon

    def cells(self, only=()):
        """(row, column, recipe fields) of every cell; of rows whose label contains one of `only`."""
        for row in self.chosen(only):
            for column in self.columns:
                yield row, column, {**row.fields, **dict(column.fields)}

    def recipes(self, scale: str, seeds, only=(), **changes) -> dict:
        """{directory below OUT: recipe} of all runs that the table is made of."""
        jobs: dict = {}
        for row, _, fields in self.cells(only):
            for seed in seeds:
                one = recipe(self.task, scale, **{**changes, **fields}, seed=seed)
                if not self.of_codes and not {column.split for column in self.columns} & {*one.SPLITS, "chosen"}:
                    raise ValueError(f"scale is {scale}, which asks about no column of {self.name}; allowed: "
                                     f"{self.default_scale}, {self.scale}")
                slug = re.sub(r"[^a-z0-9]+", "-", row.label.lower()).strip("-")
                put(jobs, Path(slug), "again", one)
        return jobs

    def after(self, outcomes, only=()) -> list[dict]:
        """What fresh runs add to the table: themselves, or, where it is about codes, what those say."""
        return with_codes(outcomes) if self.of_codes else outcomes

    @property
    def of_codes(self) -> bool:
        """Whether its numbers are read off trained networks."""
        return any(name.endswith("_codes") for name in self.records)

    def sheet(self, runs, only=()) -> Sheet:
        """The table made of these runs; of their fields, every one that is not the paper's is noted."""
        cells: dict[str, list] = {}                         # of each row, by its label
        used, apart = {}, {}
        for row, column, fields in self.cells(only):
            mine = [run for run in runs if matches(run, self.task, fields)]
            homogeneous(mine, f"{row.label}, {column.heading}")
            used.update({id(run): run for run in mine})
            if mine:
                reference = asdict(recipe(self.task, self.scale, **fields))
                apart.setdefault(differing(mine[0]["fields"], reference), []).append(row.label)
            theirs = self.theirs(row, column)
            cells.setdefault(row.label, []).append({
                "heading": column.heading, "ours": measured(mine, column),
                "paper": theirs and {"mean": theirs[0], "standard_error": theirs[1]}})
        headings, texts = [""], [[label] for label in cells]
        for at, column in enumerate(self.columns):
            headings += [column.heading, "paper"] if self.prints(column) else [column.heading]
            for text, found in zip(texts, cells.values(), strict=True):
                text += self.texts(column, found[at])
        made = (f"Ours: mean ± standard error over seeds, number of runs in brackets; {made_of(used.values())}."
                if used else f"No run is there: every cell of ours is {NEVER}.")
        return Sheet(self.name, self.title, self.source, headings, texts,
                     [{"label": label, "cells": found} for label, found in cells.items()],
                     [made, *self.apart_notes(apart), *self.remarks], len(used))

    def plot(self, sheet):
        """The table as a picture: lines over the columns where they are one quantity, else a panel for each."""
        made = drawing.lines(sheet, *self.axes) if self.axes else drawing.dots(sheet, self.units)
        settings = fill(" ".join(note for note in sheet.notes if note.startswith("Settings")),
                        int(18 * made.get_figwidth()))
        made.set_figheight(made.get_figheight() + 0.13 * len(settings.splitlines()))
        made.supxlabel(settings, fontsize=7)
        return made

    def theirs(self, row, column) -> tuple | None:
        """The paper's figure for a cell, where it has one."""
        return dict(zip(self.columns, row.paper, strict=False)).get(column)

    def prints(self, column) -> bool:
        """Whether the paper has figures for a column."""
        return any(self.theirs(row, column) for row in self.rows)

    def texts(self, column, cell) -> list[str]:
        """The texts of a cell: ours with n, and the paper's where the column has any."""
        ours, theirs = cell["ours"], cell["paper"]
        text = NEVER if ours is None else f"{shown(ours['mean'], ours['standard_error'])} ({ours['n']})"
        paper = shown(theirs["mean"], theirs["standard_error"], self.digits) if theirs else "not given"
        return [text, paper] if self.prints(column) else [text]

    def apart_notes(self, apart) -> list[str]:
        """Which settings are not those of `scale`, and for which rows."""
        if set(apart) == {()}:
            return [f"Settings are those of scale {self.scale}."]
        parts = []
        for fields, labels in apart.items():
            what = ", ".join(f"{name} {value(ours)} ({value(theirs)})" for name, ours, theirs in fields) or "none"
            which = "all rows that were run" if len(apart) == 1 else listing(labels)
            parts.append(f"{what} for {which}")
        head = f"Settings other than those of scale {self.scale}, which are in brackets: "
        return [head + "; ".join(parts) + "."] if parts else []


def listing(labels) -> str:
    """Labels in a row, those that end alike named once.

    >>> listing(["d2: rnn", "d3: rnn", "d3: rnn", "d2: softmax"])
    'd2, d3: rnn and d2: softmax'
    """
    fronts = {}
    for label in dict.fromkeys(labels):
        front, colon, end = label.partition(": ")
        fronts.setdefault(colon + end, []).append(front)
    return " and ".join(", ".join(names) + end for end, names in fronts.items())


def value(x) -> str:
    """A setting as text, whole numbers with commas."""
    return f"{x:,}" if isinstance(x, int) and not isinstance(x, bool) else str(x)


def matches(run: dict, task: str, fields: dict) -> bool:
    """Whether it is a run of that task with those fields."""
    return run["task"] == task and all(run["fields"].get(name) == wanted for name, wanted in fields.items())


def homogeneous(runs, cell: str) -> None:
    """Raises ValueError unless the runs of a cell differ in nothing but the seed."""
    for run in runs[1:]:
        for name, ours, theirs in differing(run["fields"], runs[0]["fields"]):
            raise ValueError(f"the runs of {cell} have {name} {ours!r} and {theirs!r}; allowed: runs that differ in "
                             f"the seed alone")
    seeds = [run["fields"]["seed"] for run in runs]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"the runs of {cell} have a seed twice: {seeds}; allowed: one run for each")


def put(jobs: dict, parent: Path, apart: str, one) -> None:
    """Add a recipe, unless it is there, below `parent`; where another has its name, below `parent` / apart-0, ..."""
    place, number = parent / one.name, 0
    while place in jobs:
        place, number = parent / f"{apart}-{number}" / one.name, number + 1
    if one not in jobs.values():
        jobs[place] = one


def differing(fields: dict, reference: dict) -> tuple:
    """((field, value, value in the reference), ...) where they differ in what a run ends with."""
    return tuple((name, fields[name], reference[name]) for name in reference
                 if name not in ASIDE and fields[name] != reference[name])


def measured(runs, column) -> dict | None:
    """Mean (or extreme), standard error, n and seeds of a metric; None without runs that were asked about the split."""
    runs = [run for run in runs if column.metric in run["metrics"].get(column.split, ())]
    if not runs:
        return None
    values = [run["metrics"][column.split][column.metric] for run in runs]
    found = mean(values)
    if column.extreme and found.mean is not None:
        found = found._replace(mean=column.extreme(values), standard_error=None)
    return {**found._asdict(), "seeds": [run["fields"]["seed"] for run in runs]}


def made_of(runs) -> str:
    """How many runs there are, their seeds, and what they took of one core."""
    seeds = ", ".join(map(str, sorted({run["fields"]["seed"] for run in runs})))
    took = sum(run.get("cpu_seconds", run["seconds"]) for run in runs)
    time = f"{took / 3600:.1f} core-hours" if took >= 3600 else f"{took:,.0f} core-seconds"
    by_wall_clock = sum("cpu_seconds" not in run for run in runs)
    told = f"; runs timed by wall clock: {by_wall_clock}" if by_wall_clock else ""
    return f"{len(runs)} runs, seeds {seeds}, {time} of training in all{told}"
