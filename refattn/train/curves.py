"""The curves of a run, where matplotlib is installed."""

from pathlib import Path

from ..params import whole_file
from . import runs


def draw(path, recipe) -> bool:
    """Draw curves.png from metrics.jsonl and result.json; False where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    history = runs.lines(path)
    final = {"step": recipe.steps, **(runs.result(path) or {}).get("metrics", {})}
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    logged = [line for line in history if line.get("loss") is not None]
    left.semilogy([line["step"] for line in logged], [line["loss"] for line in logged], label="training loss")
    left.set(xlabel="steps", ylabel="loss", title=f"n = {recipe.batch} samples a step")
    metric = recipe.TABLE[0][2]
    for split in recipe.SPLITS:
        measured = [line for line in [*history, final] if split in line]
        right.plot([line["step"] for line in measured], [line[split][metric] for line in measured], marker="o",
                   markersize=3, label=split.replace("_", " "))
    right.set(xlabel="steps", ylabel=recipe.LABELS[metric],
              title=f"n = {recipe.evaluation:,} {recipe.COUNTED} at the end")
    for axes in left, right:
        axes.legend()
    figure.suptitle(f"{recipe.TASK}, {recipe.name} (seed {recipe.seed})")
    with whole_file(Path(path, "curves.png"), "wb") as file:
        figure.savefig(file, format="png", dpi=120)
    return True
