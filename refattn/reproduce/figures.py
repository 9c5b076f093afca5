"""Published figures as grids of runs, as curves over steps, and as counts."""

from dataclasses import dataclass, replace
from pathlib import Path

from ..recipes import recipe
from ..tasks.fuzzy_logic import FRACTIONS, LENGTHS
from ..tasks.sraven_ambiguity import instances, tasks
from . import drawing, records
from .codes import POWERS
from .sheet import NEVER, Sheet, chosen, shown
from .statistics import mean
from .table import PAPERS, Column, Exhibit, Row, Table, homogeneous, matches

CURVES = ": curves without numbers"
THREE = "softmax", "linear", "hyla"


def grid(rows: dict) -> tuple:
    """Rows of {label: recipe fields} for which the paper prints no numbers."""
    return tuple(Row(label, fields) for label, fields in rows.items())


def variants(*names: str) -> tuple:
    """Rows of attention variants without a mixture of experts."""
    return grid({name: {"attention": name, "experts": 0} for name in names})


def over(field: str, headings: dict, split: str, metric: str) -> tuple:
    """Columns of {heading: value of a recipe's field}."""
    return tuple(Column(heading, split, metric, ((field, value),)) for heading, value in headings.items())


def figure(number: str, task: str, what: str, columns, rows, records, printed=CURVES, **more) -> Table:
    """A figure of H, in which nothing is printed as a number."""
    return Table(f"figure-{number.lower()}", f"Figure {number} of H, {what}",
                 f"{PAPERS['H']}, figure {number}{printed}", task, columns, rows, records, **more)


LOGIC = {f"{name}, {held_out:.0%} held out": {"attention": name, "held_out": held_out, "experts": 0}
         for name in THREE for held_out in FRACTIONS}
ACCURACY = "held_out", "panel_accuracy"
SIZES = {"width x 1": {}, "width x 2": {"wider": 2}, "width x 4": {"wider": 4}, "depth 8": {"layers": 8},
         "depth 16": {"layers": 16}}
FIGURE_2C = figure(
    "2C", "fuzzy_logic", "fuzzy logic: held-out R² by examples and fraction held out",
    over("length", {f"{n}": n for n in LENGTHS}, "held_out", "r2_per_task"), grid(LOGIC),
    ("fuzzy_logic_short", "fuzzy_logic_grid"), axes=("examples in the context, the query included", "held-out R²"),
    default_scale="short")
FIGURE_A3 = figure(
    "A3", "fuzzy_logic", "fuzzy logic, T = 32: other measures",
    (Column("R², held out", "held_out", "r2_per_task"), Column("R², trained", "train", "r2_per_task"),
     Column("R², unknown terms", "unseen_terms", "r2_per_task"), Column("training MSE", "train", "mse")),
    grid({label: {**fields, "length": 32} for label, fields in LOGIC.items()}), FIGURE_2C.records,
    default_scale="short")
FIGURE_2B = figure(
    "2B", "fuzzy_logic", "fuzzy logic: macro-F1 of the terms from the code, context fixed",
    tuple(Column(f"{kind}layer {n}", f"fixed context, layer {n}", f"{kind}any term")
          for kind in ("", "shuffled ") for n in (1, 2)),
    variants("softmax", "hyla"), ("fuzzy_logic_codes",), ": bars without numbers", default_scale="short",
    remarks=("shuffled: regressions on shuffled labels.",))
FIGURE_5F = figure(
    "5F", "sraven", "SRAVEN: macro-F1 of the rule from the code of the second panel, by layer",
    tuple(Column(f"{n}", f"second panel, layer {n}", "rule") for n in (1, 2, 3, 4)), variants("softmax", "hyla"),
    ("sraven_codes",), axes=("layer", "macro-F1 of the rule"))
FIGURE_4 = figure(
    "4", "sraven", "SRAVEN: held-out accuracy by instances, width and depth",
    over("steps", {f"{n} million": n * 1_000_000 // 128 for n in (10, 20, 40)}, *ACCURACY),
    grid({f"{name}, {size}": {"attention": name, "wider": 1, "layers": 4, **fields, "experts": 0} for name in THREE
          for size, fields in SIZES.items()}), ("sraven_sizes",), default_scale="paper",
    axes=("instances of training", "held-out accuracy"),
    remarks=('Each axis at small sizes: refattn reproduce claims --row "H, section 4.4, figure 4"',))
FIGURE_A4 = replace(
    FIGURE_4, name="figure-a4", title="Figure A4 of H, SRAVEN: training loss by instances, width and depth",
    source=f"{PAPERS['H']}, figure A4{CURVES}", axes=("instances of training", "training loss"),
    columns=tuple(column._replace(split="train", metric="loss") for column in FIGURE_4.columns))
FIGURE_5D = figure(
    "5D", "sraven", "SRAVEN: held-out accuracy by the number of features",
    over("features", {f"{n}": n for n in (2, 3, 4)}, *ACCURACY), variants(*THREE),
    ("sraven_quick", "sraven_features"), axes=("features M", "held-out accuracy"))
FIGURE_A5 = figure(
    "A5", "sraven", "SRAVEN: held-out accuracy by the fraction held out",
    over("held_out", {f"{x:.0%}": x for x in (0.25, 0.5, 0.75)}, *ACCURACY), variants(*THREE),
    ("sraven_quick", "sraven_fractions"), axes=("rule combinations held out", "held-out accuracy"))
COLLAPSE = Table(
    "collapse", "D_3 beyond the trained lengths: by how much the right answer leads for members, by length",
    "", "regular_languages",
    (*(Column(str(n), "member margin", str(n)) for n in POWERS),
     Column("512, float64", "float64 member margin", "512")),
    grid({f"trained to {n} symbols": {"language": "d3", "attention": "sliding_dilated", "train_length": n}
          for n in (40, 160)}),
    ("regular_languages_collapse_codes", "regular_languages_collapse_160_codes"),
    axes=("symbols of the member", "lead of the right answer (logits)"),
    remarks=("Logit of the right answer minus that of the other, members of powers of 2, at which no level has a pad. "
             "Below 0 a member is said to be none.",))


@dataclass(frozen=True)
class Curves(Exhibit):
    """A published figure of a measure over steps: of recorded runs, their histories."""
    name: str
    title: str
    source: str
    task: str
    split: str
    metric: str
    rows: tuple                # Rows
    records: tuple

    def recipes(self, scale: str, seeds, only=(), **changes) -> dict:
        """{directory below OUT: recipe} of all runs."""
        made = [recipe(self.task, scale, **{**row.fields, **changes}, seed=seed)
                for row in self.chosen(only) for seed in seeds]
        return {Path(one.name): one for one in made}

    def after(self, outcomes, only=()) -> list[dict]:
        """Finished fresh runs with their histories."""
        return records.with_histories(outcomes)

    def sheet(self, runs, only=()) -> Sheet:
        """A row for each model, a column for each quarter of the steps: the last evaluation until then."""
        texts, data = [], []
        for row in self.chosen(only):
            mine = [run for run in runs if matches(run, self.task, row.fields)]
            homogeneous(mine, row.label)
            measured = [dict(zip(run["history"].get("step", ()), run["history"].get(f"{self.split}.{self.metric}", ()),
                                 strict=True)) for run in mine]
            steps = sorted(set(measured[0]).intersection(*measured)) if mine else []
            found = [mean(values[step] for values in measured) for step in steps]
            data.append({"label": row.label, "ours": steps if mine else None, "steps": steps, "n": len(mine),
                         "mean": [x.mean for x in found], "standard_error": [x.standard_error for x in found]})
            until = [sum(4 * step <= part * mine[0]["step"] for step in steps) for part in (1, 2, 3, 4) if mine]
            cells = [shown(found[n - 1].mean, found[n - 1].standard_error) if n else "not evaluated" for n in until]
            texts.append([row.label, *(cells or [NEVER] * 4), str(len(mine))])
        return Sheet(self.name, self.title, self.source, ["", "1/4 of the steps", "1/2", "3/4", "all", "n"], texts,
                     data, [f"Ours: {self.metric} of split {self.split}, mean ± standard error over seeds."],
                     sum(row["n"] for row in data))

    def plot(self, sheet):
        """One line for each model."""
        return drawing.curves(sheet, f"{self.metric} ({self.split})")


FIGURE_10 = Curves(
    "figure-10", "Figure 10 of C, contextual retrieval: convergence", f"{PAPERS['C']}, figure 10{CURVES}",
    "contextual_retrieval", "train", "loss",
    grid({name: {"attention": name, "held_out": False} for name in ("softmax", "compositional")}),
    ("contextual_retrieval_quick",))


class Counts(Exhibit):
    """Figure A9 of H: numbers of tasks and instances of SRAVEN, counted."""
    name = "figure-a9"
    title = "Figure A9 of H, SRAVEN: numbers of tasks and of problem instances"
    source = f"{PAPERS['H']}, figure A9 and appendix B.1{CURVES}"

    def fresh(self, *_) -> list:
        """Nothing is trained."""
        return []

    def sheet(self, runs, only=()) -> Sheet:
        """A row for each number of features."""
        asked = chosen({f"M = {m}": m for m in range(1, 7)}, only).values()
        data = [{"features": m, "ours": tasks(m), "tasks": tasks(m), "paper": tasks(m, "paper"),
                 "instances": {k: instances(m, k) for k in (4, 8, 16)}} for m in asked]
        rows = [[f"M = {row['features']}", f"{row['tasks']:,}", f"{row['paper']:,}",
                 *(f"{n:.3g}" for n in row["instances"].values())] for row in data]
        return Sheet(self.name, self.title, self.source,
                     ["", "tasks", "by the paper's formula", "instances, K = 4", "K = 8", "K = 16"], rows, data,
                     ["The paper's formula takes off M permutations, unexplained, and leaves no task at M = 1."], 0)

    plot = staticmethod(drawing.counts)                     # both numbers by M, on a logarithmic scale


FIGURES = (FIGURE_2B, FIGURE_2C, FIGURE_A3, FIGURE_4, FIGURE_A4, FIGURE_5D, FIGURE_5F, FIGURE_A5, FIGURE_10, COLLAPSE,
           Counts())
