"""Tables as pictures: `refattn reproduce NAME --plot FILE`.  Needs the extra `plots`."""

from itertools import groupby, product
from textwrap import fill

import numpy as np

from ..train.curves import COLOURS

MARKS, STYLES = "osD^v", ("-", "--", ":", "-.")


def blank(title: str, size=(7.2, 4.4)):
    """A figure with one panel and a title."""
    from matplotlib.figure import Figure
    made = Figure(figsize=size, layout="constrained")
    axes = made.subplots()
    axes.set_title(title, fontsize=10)
    return made, axes


def looks(labels):
    """How each is drawn: colour by what stands before its first comma, line and mark by the rest."""
    parts = [label.partition(", ")[::2] for label in labels]
    fronts, backs = (list(dict.fromkeys(side)) for side in zip(*parts, strict=True))
    return [{"color": COLOURS[fronts.index(front) % len(COLOURS)], "linestyle": STYLES[backs.index(back) % len(STYLES)],
             "marker": MARKS[backs.index(back) % len(MARKS)]} for front, back in parts]


def seeds(ns) -> str:
    """How many seeds there are, for a legend or an axis.

    >>> seeds([3, 3]), seeds([3, 8])
    ('n = 3', 'n = 3 to 8')
    """
    return f"n = {min(ns)}" if min(ns) == max(ns) else f"n = {min(ns)} to {max(ns)}"


def known(cells, name: str) -> list:
    """(place, numbers) of the cells that have a mean of that name, ours or the paper's."""
    return [(place, cell[name]) for place, cell in enumerate(cells) if cell[name] and cell[name]["mean"] is not None]


def bar(cell) -> float:
    """The standard error of a cell; NaN, which draws nothing, where there is none."""
    return np.nan if cell["standard_error"] is None else cell["standard_error"]


def lines(sheet, axis: str, measure: str):
    """One line for each row over the columns of which something was run, with standard errors, side by side."""
    made, axes = blank(sheet.title, (9.6, 4.4))
    labels = [row["label"] for row in sheet.data]
    found = [known(row["cells"], "ours") for row in sheet.data]
    columns = sorted({n for cells in found for n, _ in cells})
    for at, (label, look, cells) in enumerate(zip(labels, looks(labels), found, strict=True)):
        shift = 0.24 * ((at + 0.5) / len(labels) - 0.5)     # of rows that share a column
        if cells:
            axes.errorbar([columns.index(n) + shift for n, _ in cells], [ours["mean"] for _, ours in cells],
                          [bar(ours) for _, ours in cells], markersize=4, capsize=3, **look,
                          label=f"{label} ({seeds([ours['n'] for _, ours in cells])})")
    least, most = axes.dataLim.intervaly
    if 0 < least < most / 30:                               # orders of magnitude
        axes.set_yscale("log")
    axes.set_xticks(range(len(columns)), [sheet.data[0]["cells"][n]["heading"] for n in columns])
    axes.set(xlabel=axis, ylabel=f"{measure}\nmean ± standard error", xlim=(-0.5, max(len(columns), 1) - 0.5))
    legend(axes, loc="upper left", bbox_to_anchor=(1, 1))
    return made


def legend(axes, **place):
    """One, or a word where nothing was run."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, **place)
    else:
        axes.text(0.5, 0.5, "never run", transform=axes.transAxes, ha="center")


def dots(sheet, units: bool = False):
    """A panel for each column, rows with anything in them downwards: ours with standard errors, the paper's beside.

    `units`: rows of several units, which stand before a colon, have panels of their own.
    """
    from matplotlib.figure import Figure
    from matplotlib.transforms import ScaledTranslation
    data = [row for row in sheet.data if any(cell["ours"] or cell["paper"] for cell in row["cells"])] or sheet.data
    headings = [cell["heading"] for cell in data[0]["cells"]]
    groups = [list(rows) for _, rows in groupby(data, lambda row: units and row["label"].partition(": ")[0])]
    made = Figure(figsize=(2.6 + 2.4 * len(headings), 0.6 + len(groups) + 0.24 * len(data)), layout="constrained")
    lower = ScaledTranslation(0, -0.55, made.dpi_scale_trans)        # inches, below the words of the axis
    alike = not units and not any(other in heading for heading in headings for other in ("perplexity", "MSE"))
    panels = made.subplots(len(groups), len(headings), sharex=alike, sharey="row", squeeze=False)
    for (line, rows), (number, heading) in product(zip(panels, groups, strict=True), enumerate(headings)):
        axes, cells = line[number], [row["cells"][number] for row in rows]
        for name, colour, mark, shift in (("ours", COLOURS[0], "o", -0.12), ("paper", COLOURS[1], "x", 0.12)):
            if found := known(cells, name):
                told = f"ours ({seeds([x['n'] for _, x in found])})" if name == "ours" else name
                axes.errorbar([x["mean"] for _, x in found], [at + shift for at, _ in found], fmt=mark, color=colour,
                              xerr=[bar(x) for _, x in found], markersize=4, capsize=2, label=told)
        axes.set_yticks(range(len(rows)), [row["label"] for row in rows], fontsize=7)
        errors = any((cell["ours"] or {}).get("standard_error") for cell in cells)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xlabel(heading + ("\nmean ± standard error" if errors else ""), fontsize=8)
        axes.grid(axis="x", alpha=0.3)
        legend(axes, loc="upper center", bbox_to_anchor=(0.5, 0), bbox_transform=axes.transAxes + lower)
    made.suptitle(sheet.title, fontsize=10)
    return made


def forest(sheet):
    """Effects of claims with their 95 % intervals, in the order of the table; colours say the verdict."""
    rows = [row for row in sheet.data if row.get("differences") and row["interval_95"] is not None]
    made, axes = blank(sheet.title, (11, 1.6 + 0.27 * len(rows)))
    for name, colour in zip(dict.fromkeys(row["verdict"] for row in rows), COLOURS, strict=False):
        mine = [(at, row) for at, row in enumerate(rows) if row["verdict"] == name]
        middle, low, high = np.array([(row["effect"], *row["interval_95"]) for _, row in mine]).T
        axes.errorbar(middle, [at for at, _ in mine], xerr=[middle - low, high - middle], fmt="o", color=colour,
                      markersize=4, capsize=2, label=name)
    words = [row["words"] for row in rows]                  # and, where several rows have them, what was measured
    told = [f"{x}, {row['measured']}" if words.count(x) > 1 else x for x, row in zip(words, rows, strict=True)]
    axes.set_yticks(range(len(rows)), [fill(f"{x} ({row['source'][0]};\xa0n\xa0=\xa0{len(row['differences'])})", 120)
                                       for x, row in zip(told, rows, strict=True)], fontsize=6)
    axes.axvline(0, color="0.5", linewidth=1)
    axes.set_xlabel("effect with its 95 % interval, positive as claimed (each in its own unit)")
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    legend(axes)
    return made


def curves(sheet, measure: str):
    """Means over seeds by step, shaded by one standard error."""
    made, axes = blank(sheet.title)
    for row, colour in zip(sheet.data, COLOURS, strict=False):
        if row["n"]:
            middle = np.array(row["mean"], float)           # None, of what is not finite, is a gap
            error = np.array([x or 0 for x in row["standard_error"]])
            axes.plot(row["steps"], middle, color=colour, label=f"{row['label']} (n = {row['n']})")
            axes.fill_between(row["steps"], middle - error, middle + error, color=colour, alpha=0.25, linewidth=0)
    axes.set(xlabel="steps", ylabel=f"{measure}\nmean ± standard error")
    legend(axes)
    return made


def field(share, name: str):
    """The cumulated share of the gradient from the last token backwards, beside a straight line."""
    made, axes = blank(f"Receptive field of {name}")
    back = np.arange(1, len(share) + 1)
    axes.plot(back, share, color=COLOURS[0], label="trained network (n = 1 seed, 64 words)")
    axes.plot(back, back / len(share), "--", color=COLOURS[-1], label="straight line")
    axes.set(xlabel="tokens, from the last one backwards", ylabel="cumulated share of the gradient", ylim=(0, 1.02))
    axes.legend(fontsize=8)
    return made


def counts(sheet):
    """Numbers by features, on a logarithmic scale."""
    made, axes = blank(sheet.title)
    m = [row["features"] for row in sheet.data]
    named = {"tasks": [row["tasks"] for row in sheet.data],
             **{f"instances, K = {k}": [row["instances"][k] for row in sheet.data] for k in (4, 8, 16)}}
    for (name, numbers), colour, mark in zip(named.items(), COLOURS, MARKS, strict=False):
        axes.plot(m, [float(x) for x in numbers], color=colour, marker=mark, label=name)
    axes.set(xlabel="features M", ylabel="number", yscale="log", xticks=m)
    axes.legend(fontsize=8)
    return made
