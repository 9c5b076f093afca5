"""The curves of runs, one or many, where matplotlib is installed.

Left the training loss, right the first column of the task's table, or that which the paper has figures for.  A colour
is one value of what is compared; a thin line is one seed, a thick one the mean over seeds at the steps that all of them
have.  Lines on the right are probes, evaluations of few samples while training; diamonds behind them are the final
figures, of all samples.
"""

import sys
from contextlib import suppress
from inspect import getdoc
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ..files import whole_file
from . import runs

COLOURS = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#666666"      # Okabe & Ito's, grey last
STYLES = "-", "--", ":"                                     # of the first seven values, the next, the last


class Curve(NamedTuple):
    recipe: Any
    lines: list                # of metrics.jsonl
    metrics: dict              # the final ones; none while the run is not complete


def shown_column(recipe, wanted: str = "") -> tuple[str, str, str]:
    """(heading, split, metric) of the column of that heading, or of the first one, that is evaluated in training."""
    known = [column for column in recipe.TABLE if column[1] in recipe.SPLITS] or recipe.TABLE
    return next((column for column in known if column[0] == wanted), known[0])


def by_value(curves) -> dict:
    """{value of what is compared: (its number, its curves)}; the number is the same in every figure of a task."""
    kind = type(curves[0].recipe)
    choices = kind.__dataclass_fields__[kind.COMPARES].metadata.get("choices", ())
    numbers = {value: number for number, value in enumerate(dict.fromkeys((*kind.compared(), *choices)))}
    found: dict[str, tuple] = {}
    for curve in curves:
        value = getattr(curve.recipe, kind.COMPARES)
        found.setdefault(str(value), (numbers.get(value, len(numbers)), []))[1].append(curve)
    return found


def with_mean(axes, series: list[dict], label: str, **style) -> bool:
    """Of several {step: value} each as a thin line, and the mean as a thick one; whether any has a value."""
    series = [values for values in series if values]
    if not series:
        return False
    if len(series) > 1:
        for values in series:
            axes.plot(*zip(*sorted(values.items()), strict=True), alpha=0.35, linewidth=0.8, **style)
    steps = sorted(set.intersection(*map(set, series)))
    if len(steps) == 1:                                     # a line of one point is not seen
        style = {"marker": "."} | style
    axes.plot(steps, [sum(values[step] for values in series) / len(series) for step in steps], label=label,
              linewidth=1.8, **style)
    return True


def panel(left, right, curves, theirs=None) -> None:
    """The two axes of runs of one task and setting."""
    recipe = curves[0].recipe
    heading, split, metric = shown_column(recipe, theirs.metric if theirs else "")
    for place, (value, (number, mine)) in enumerate(by_value(curves).items()):
        colour, dashes = COLOURS[number % len(COLOURS)], STYLES[number // len(COLOURS) % len(STYLES)]
        label = f"{value}, seed{'s' if len(mine) > 1 else ''} {', '.join(str(curve.recipe.seed) for curve in mine)}"
        logged = [{line["step"]: line["loss"] for line in curve.lines} for curve in mine]
        with_mean(left, logged, label, color=colour, linestyle=dashes)
        probes = [runs.measured(curve.lines, split, metric) for curve in mine]
        probed = with_mean(right, probes, label, marker=".", color=colour, linestyle=dashes)
        ends = [curve.metrics[split][metric] for curve in mine if curve.metrics.get(split, {}).get(metric) is not None]
        right.plot([recipe.steps * (1.03 + 0.02 * place)] * len(ends), ends, "D", color=colour, markersize=5,
                   markeredgecolor="black", markeredgewidth=0.5, clip_on=not ends,
                   label=None if probed or not ends else label)
        if theirs and heading == theirs.metric and value in theirs.figures:
            figure, _ = theirs.figures[value]
            right.axhline(figure, color=colour, linestyle=(0, (1, 2)), label=f"paper, {value}: {figure:g}")
    if len(curves) == 1:
        for other, line in zip((x for x in recipe.SPLITS if x != split), ("--", ":", "-."), strict=False):
            if values := runs.measured(curves[0].lines, other, metric):
                right.plot(*zip(*values.items(), strict=True), color=COLOURS[-1], linestyle=line,
                           label=other.replace("_", " "))
    with suppress(ValueError):                              # of a text that is not there any more
        if metric == recipe.TABLE[0][2] and (chance := recipe.chance()) is not None:
            right.axhline(chance, color="black", linewidth=0.8, label=f"chance: {chance:.3g}")
    described(left, right, curves, heading, metric)


def described(left, right, curves, heading: str, metric: str) -> None:
    """Gives the two axes their words and limits, and one legend."""
    recipe = curves[0].recipe
    name = " ".join((getdoc(recipe.loss) or "").split()).rstrip(".")
    thick = "; thick: mean over seeds" if len(curves) > len(by_value(curves)) else ""
    left.set(xlabel="steps", ylabel="training loss", xlim=(0, None),
             title=f"{name}\nn = {recipe.batch:,} a step{thick}")
    least, most = left.dataLim.intervaly
    if 0 < 5 * least < most:
        left.set_yscale("log")
    n = "n ≤" if recipe.FINITE else "n ="                   # of a finite set there may be fewer
    final = "all there are" if recipe.evaluation == 10**9 else f"{n} {recipe.evaluation:,}"
    right.set(xlabel="steps", ylabel=recipe.LABELS[metric], xlim=(0, max(x.get_xlim()[1] for x in (left, right))),
              title=f"{heading}\nlines: probes, {n} {recipe.probe:,}; diamonds: final, {final}")
    for axes in left, right:
        axes.title.set_fontsize(9)
    named = {label: line for axes in (left, right)
             for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if named:
        right.legend(named.values(), named, loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8)


def figure(groups: dict, papers=MappingProxyType({})):
    """A matplotlib Figure of {title: curves of one task and setting}, a row for each.

    papers : {title: what the paper has, its `metric` a heading of the table, its `figures` {value: (mean, ...)}}
    """
    from matplotlib.figure import Figure
    made = Figure(figsize=(11.5, 3.7 * len(groups)), layout="constrained")
    for row, (title, curves) in zip(made.subfigures(len(groups), squeeze=False)[:, 0], groups.items(), strict=True):
        row.suptitle(title)
        left, right = row.subplots(1, 2)
        panel(left, right, curves, papers.get(title))
    return made


def draw(path, recipe) -> None:
    """Draw curves.png from metrics.jsonl and result.json, unless it is there or matplotlib is not installed."""
    file = Path(path, "curves.png")
    if not file.exists():
        curve = Curve(recipe, runs.lines(path), (runs.result(path) or {}).get("metrics", {}))
        try:
            with suppress(ImportError):
                made = figure({f"{recipe.TASK}, {recipe.name}": [curve]})
                with whole_file(file, "wb") as opened:
                    made.savefig(opened, format="png", dpi=120)
        except OSError as error:
            print(f"refattn: {error}", file=sys.stderr)
