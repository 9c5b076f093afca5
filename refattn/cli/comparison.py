"""Results as text tables, as wide as the terminal is, and as JSON."""

import json
import os
import re
import shutil
import sys
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from ..recipes import SHORT, recipe
from ..reproduce.published import figures_for
from ..reproduce.sheet import shown
from ..reproduce.statistics import mean
from ..reproduce.table import differing, value
from ..train.runs import describe

SAID = "evaluation", "shards"  # of settings, before a table
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


def wrapped(text: str) -> str:
    """A text of many lines, as wide as there is room."""
    return "\n".join(line for long in text.splitlines() for line in lines(long, room()))


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


def summary(kind, outcomes) -> list[dict]:
    """One row for each value that is compared: mean and standard error over seeds of the columns `kind.TABLE`; the
    paper's."""
    rows, field = [], kind.COMPARES
    for name in dict.fromkeys(outcome["fields"][field] for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome["fields"][field] == name]
        done = [outcome for outcome in mine if outcome["finished"]]
        row = {field: name, "runs": len(mine), "finished": len(done), "seeds": [x["fields"]["seed"] for x in done],
               "minutes": mean(x["seconds"] / 60 for x in done).mean, "metrics": []}
        for heading, split, metric in kind.TABLE:
            found = mean(outcome["metrics"].get(split, {}).get(metric) for outcome in done)
            row["metrics"].append({"heading": heading, "split": split, "metric": metric, "mean": found.mean,
                                   "standard_error": found.standard_error})
        theirs = figures_for(kind.TASK, mine[0]["fields"])
        figure = theirs.figures.get(name)
        row["published"] = figure and {"metric": theirs.metric, "mean": figure[0], "standard_error": figure[1]}
        rows.append(row)
    return rows


def titled(task: str, fields: dict) -> str:
    """A task, and where it has several, such as languages, which one."""
    names = (name for name, (of, own) in SHORT.items() if of == task and own.items() <= fields.items())
    return ", ".join([task, *names])


def table(kind, outcomes) -> str:
    """The comparison as text, with the paper's figures marked as such."""
    rows, limit = summary(kind, outcomes), room()
    beside = any(row["published"] for row in rows)
    texts = [[kind.COMPARES.replace("_", " "), *(word for word, _, _ in kind.TABLE), "minutes", *beside * ["paper*"]]]
    for row in rows:
        figure = row["published"] or {"mean": None, "standard_error": None}
        cells = [shown(m["mean"], m["standard_error"], 4 if m["metric"] == "mse" else 3, without="-")
                 for m in row["metrics"]]
        texts.append([str(row[kind.COMPARES]), *cells, shown(row["minutes"], digits=1, without="-"),
                      *beside * [shown(figure["mean"], figure["standard_error"], without="-")]])
    fields, seeds = outcomes[0]["fields"], sorted({outcome["fields"]["seed"] for outcome in outcomes})
    shards = f" in {fields['shards']} shards" if fields.get("shards", 1) > 1 else ""
    clipped = f"clipped to norm {fields['clip']:g}, " if fields["clip"] else ""
    asked = "all" if fields["evaluation"] == 10**9 else f"{fields['evaluation']:,}"
    counted = "strings per split" if fields.get("protocol") == "per_position" else kind.COUNTED
    of_seeds = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(map(str, seeds))}: mean ± standard error"
    notes = [f"{titled(outcomes[0]['task'], fields)}: {fields['steps']:,} steps of {fields['batch']} samples{shards}, "
             f"rate {fields['rate']:g}, decay {fields['decay']:g}, {clipped}{asked} {counted}; {of_seeds}"]
    theirs = figures_for(kind.TASK, outcomes[0]["fields"])
    ends = [f"* {theirs.metric}, not measured here. {theirs.source}{otherwise(kind, fields, theirs.by)}" if beside else
            f"No paper's figure is set beside: {theirs.source}"]
    for outcome in outcomes:
        if not outcome["finished"]:
            reason = outcome.get("error") or f"stopped at step {outcome['step']:,} of {outcome['fields']['steps']:,}"
            ends.append(f"{outcome['name']} is not complete: {reason}")
    notes, ends = (["\n".join(lines(text, limit)) for text in part] for part in (notes, ends))
    return "\n".join([*notes, "", columns(texts, right=set(range(1, len(texts[0]))), limit=limit), "", *ends])


def otherwise(kind, fields: dict, by) -> str:
    """A sentence on what differs from the paper's settings, those of fields `by` chosen as here."""
    same = {name: fields[name] for name in (kind.COMPARES, "seed", *by)}
    paper = asdict(recipe(kind.TASK, "paper", **same))
    apart = differing(paper | fields, paper)                # an old run lacks what came in later
    return "; settings other than the paper's, which are in brackets: " * bool(apart) + ", ".join(
        f"{name} {value(ours)} ({value(theirs)})" for name, ours, theirs in apart if name not in SAID)


class Found(NamedTuple):
    path: Path
    recipe: Any
    outcome: dict              # as a comparison has it


def compared(found) -> dict[str, list[Found]]:
    """{title: runs that differ in nothing but what is compared and the seed}.

    A title is the task, and the fields that tell these runs from the others of the task.  Of copies of a run there is
    one, a finished one if there is any.
    """
    made: dict[str, dict] = {}
    for one in found:
        fields = describe(one.recipe)["fields"]
        of = {"task": one.recipe.TASK, **fields, one.recipe.COMPARES: None, "seed": None}
        group, place = made.setdefault(json.dumps(of), {}), (fields[one.recipe.COMPARES], fields["seed"])
        group[place] = one if one.outcome["finished"] else group.get(place, one)
    settings, groups = [json.loads(of) for of in made], {}
    for of, group in zip(settings, made.values(), strict=True):
        others = [other for other in settings if other["task"] == of["task"]]
        own = [name for name in of if any(other[name] != of[name] for other in others)]
        groups[", ".join([of["task"], *(f"{name.replace('_', ' ')} {of[name]}" for name in own)])] = [*group.values()]
    return groups


def of_group(group) -> tuple:
    """(kind, outcomes) of runs that are compared, as `summary` and `table` take them."""
    return type(group[0].recipe), [one.outcome for one in group]


def tables(made) -> list[str]:
    """The table of each list of `compared`, below its title where there are several."""
    return [(f"{wrapped(title)}\n" if len(made) > 1 else "") + table(*of_group(group)) for title, group in made.items()]
