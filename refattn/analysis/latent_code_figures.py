"""Figures of latent codes: points by label, scores by layer, similarity of labels.  Needs the extra `plots`."""

import numpy as np

COLOURS = "#0072B2", "#E69F00", "#009E73", "#666666", "#CC79A7", "#D55E00", "#56B4E9"   # Okabe & Ito


def points(places, colourings: dict, title: str = ""):
    """Points (n, 2), once for each {heading: values (n)}: whole numbers as classes, others on a scale."""
    from matplotlib.figure import Figure
    made = Figure(figsize=(0.6 + 3.6 * len(colourings), 3.4), layout="constrained")
    for axes, (heading, values) in zip(made.subplots(1, len(colourings), squeeze=False)[0], colourings.items(),
                                       strict=True):
        classes = np.asarray(values).dtype.kind in "iu"
        drawn = axes.scatter(*places.T, c=values, s=6, cmap="tab20" if classes else "cividis", linewidths=0)
        axes.set(title=heading, xticks=[], yticks=[], xlabel="t-SNE 1", ylabel="t-SNE 2")
        bar = made.colorbar(drawn, ax=axes, shrink=0.85)
        if classes:
            bar.set_ticks(np.unique(values).tolist())
    made.suptitle(title)
    return made


def scores(reports: dict, label: str, *, ylabel: str = "macro-F1 on held-out tasks"):
    """Score of a label by layer, for each {name: [report of each seed]} as `latent_code.report` makes them.

    Lines are means over seeds, points the seeds; dotted lines are shuffled labels.
    """
    from matplotlib.figure import Figure
    made = Figure(figsize=(5.6, 3.6), layout="constrained")
    axes = made.subplots()
    for colour, (name, found) in zip(COLOURS, reports.items(), strict=False):
        layers = np.arange(len(found[0])) + 1
        for key, style in ((label, "-"), (f"shuffled {label}", ":")):
            values = np.array([[layer[key] for layer in seed.values()] for seed in found if key in seed["layer 1"]])
            if len(values):
                axes.plot(layers, values.mean(axis=0), style, color=colour, linewidth=2,
                          label=name if style == "-" else f"{name}, shuffled labels")
                for seed in values if style == "-" else ():
                    axes.plot(layers, seed, "o", color=colour, markersize=4)
    axes.set(xlabel="layer", ylabel=ylabel, title=label, xticks=layers, ylim=(0, 1))
    axes.legend(fontsize=8)
    return made


def heat_map(names, cosines, *, title: str = "cosine of mean latent codes", label: str = "rule"):
    """`latent_code.similarity` as a map from -1 to 1."""
    from matplotlib.figure import Figure
    made = Figure(figsize=(4.6, 4), layout="constrained")
    axes = made.subplots()
    image = axes.imshow(cosines, vmin=-1, vmax=1, cmap="RdBu_r")
    axes.set(title=title, xlabel=label, ylabel=label)
    axes.set_xticks(range(len(names)), names, rotation=90)
    axes.set_yticks(range(len(names)), names)
    made.colorbar(image, ax=axes, label="cosine", shrink=0.85)
    return made
