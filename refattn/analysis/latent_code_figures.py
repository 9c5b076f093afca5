"""Figures of latent codes: points by label, means by label.  Needs the extra `plots`."""

from itertools import product

import numpy as np

from .latent_code import mean_codes, similarity


def points(places: dict, colourings: dict, title: str = "", words=None):
    """A row of axes for each {heading: points (n, 2)}, in each row one for each {heading: values (n)}.

    Whole numbers from 0 are classes, of which each has its colour in all axes, and {heading: names} in `words`; others
    lie on a scale.  More than six rows stand side by side.
    """
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    columns = len(colourings) * -(-len(places) // 6)
    rows = -(-len(places) * len(colourings) // columns)
    made = Figure(figsize=(0.6 + 3.6 * columns, 0.4 + 3 * rows), layout="constrained")
    room = iter(made.subplots(rows, columns, squeeze=False).flat)
    for (row, at), (heading, values) in product(places.items(), colourings.items()):
        axes, names = next(room), np.unique(values)
        n = names[-1] + 1 if names.dtype.kind in "iu" else 0
        colours = colormaps["turbo"].resampled(n) if n > 20 else ListedColormap(colormaps["tab20"](range(n or 1)))
        look: dict = {"cmap": colours, "vmin": -0.5, "vmax": n - 0.5} if n else {"cmap": "cividis"}
        drawn = axes.scatter(*at.T, c=values, s=6, linewidths=0, **look)
        axes.set(title=f"{row}: {heading}", xticks=[], yticks=[], xlabel="t-SNE 1", ylabel="t-SNE 2")
        bar, shown = made.colorbar(drawn, ax=axes, shrink=0.85), names[::1 + (len(names) - 1) // 20].tolist()
        if n:
            bar.set_ticks(shown, labels=[words[heading][i] for i in shown] if words and heading in words else shown)
    for axes in room:
        axes.remove()
    made.suptitle(title)
    return made


def by_label(code, labels, words, title: str = "", *, sample: int = 40):
    """Codes (n, h) of the first `sample`, the mean code of each rule, and cosines of these means.

    `labels` (n) are the rules, whole numbers; `words[n]` says rule n.
    """
    from matplotlib.figure import Figure
    names, means = mean_codes(code, labels)
    made = Figure(figsize=(14, 4), layout="constrained")
    for axes, (heading, values, rows, columns) in zip(made.subplots(1, 3), (
            (f"latent codes of {len(code[:sample])} samples", code[:sample], "sample", "head"),
            ("mean latent code of each rule", means, "rule", "head"),
            ("cosine of mean latent codes", similarity(code, labels)[1], "rule", "rule")), strict=True):
        limit = np.abs(values).max()
        drawn = axes.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
        axes.set(title=heading, xlabel=columns, ylabel=rows)
        if rows == "rule":
            axes.set_yticks(range(len(names)), [words[name] for name in names])
        if columns == "rule":
            axes.set_xticks(range(len(names)), [words[name] for name in names], rotation=90)
        made.colorbar(drawn, ax=axes, shrink=0.85)
    made.suptitle(title)
    return made
