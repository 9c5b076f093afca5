"""Runs that are compared: what tells them apart, and their results as rows and as a table."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from ..recipes import SHORT, recipe
from ..reproduce.published import figures_for
from ..reproduce.sheet import shown
from ..reproduce.statistics import mean
from ..reproduce.table import differing, value
from ..train.runs import describe
from .layout import columns, room, wrapped

SAID = "evaluation", "shards"  # of settings, before a table


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


def settings(kind, outcomes) -> str:
    """What was trained how and asked what, in a sentence."""
    fields, seeds = outcomes[0]["fields"], sorted({outcome["fields"]["seed"] for outcome in outcomes})
    which = [name for name, (task, own) in SHORT.items() if task == kind.TASK and own.items() <= fields.items()]
    shards = f" in {fields['shards']} shards" if fields["shards"] > 1 else ""
    clipped = f"clipped to norm {fields['clip']:g}, " if fields["clip"] else ""
    counted = "strings per split" if fields.get("protocol") == "per_position" else kind.COUNTED
    n = fields["evaluation"]
    asked = f"all {counted}" if n == 10**9 else f"{n:,} {counted}" + " at most" * kind.FINITE
    of_seeds = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {', '.join(map(str, seeds))}: mean ± standard error"
    return (f"{', '.join([kind.TASK, *which])}: {fields['steps']:,} steps of {fields['batch']} samples{shards}, "
            f"rate {fields['rate']:g}, decay {fields['decay']:g}, {clipped}{asked}; {of_seeds}")


def table(kind, outcomes) -> str:
    """The comparison as text, with the paper's figures marked as such."""
    rows = summary(kind, outcomes)
    beside = any(row["published"] for row in rows)
    texts = [[kind.COMPARES.replace("_", " "), *(word for word, _, _ in kind.TABLE), "minutes", *beside * ["paper*"]]]
    for row in rows:
        cells = [shown(m["mean"], m["standard_error"], 4 if m["metric"] == "mse" else 3, without="-")
                 for m in row["metrics"]]
        texts.append([str(row[kind.COMPARES]), *cells, shown(row["minutes"], digits=1, without="-")])
        if beside:
            figure = row["published"]
            texts[-1].append(shown(figure["mean"], figure["standard_error"]) if figure else "-")
    fields = outcomes[0]["fields"]
    theirs = figures_for(kind.TASK, fields)
    none = f"{theirs.source.partition(':')[0]} has none of these" if theirs.figures else theirs.source
    notes = [f"* {theirs.metric}, not measured here. {theirs.source}{otherwise(kind, fields, theirs.by)}" if beside else
             f"No paper's figure is set beside: {none}"]
    for outcome in outcomes:
        if not outcome["finished"]:
            reason = outcome.get("error") or f"stopped at step {outcome['step']:,} of {outcome['fields']['steps']:,}"
            notes.append(f"{outcome['name']} is not complete: {reason}")
    aligned = columns(texts, right=set(range(1, len(texts[0]))), limit=room())
    return "\n".join([wrapped(settings(kind, outcomes)), "", aligned, "", *map(wrapped, notes)])


def otherwise(kind, fields: dict, by) -> str:
    """A sentence on what differs from the paper's settings, those of fields `by` chosen as here.

    Where a caption has others than the released code, the paper's are those of which fewer differ.
    """
    same = {name: fields[name] for name in (kind.COMPARES, "seed", *by)}
    papers = [asdict(recipe(kind.TASK, scale, **same)) for scale in ("paper", "caption") if scale in kind.SCALES]
    apart = min((differing(fields, paper) for paper in papers), key=len)
    told = [f"{name} {value(ours)} ({value(theirs)})" for name, ours, theirs in apart if name not in SAID]
    return "; settings other than the paper's, which are in brackets: " * bool(told) + ", ".join(told)


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
