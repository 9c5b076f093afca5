"""Published figures as grids of runs, as curves over steps, and as pictures of trained networks."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..analysis import images, latent_code, latent_code_figures, regular, searches
from ..recipes import recipe
from ..tasks.fuzzy_logic import FRACTIONS, LENGTHS
from ..tasks.sraven import RULES
from ..tasks.sraven_ambiguity import instances, tasks
from ..train import load, progress_bar, stream
from ..train.evaluation import BEYOND
from . import drawing, records
from .codes import POWERS
from .sheet import NEVER, Sheet, chosen, shown
from .statistics import mean
from .table import Column, Exhibit, Row, Table, homogeneous, matches

SCHUG, MITTAL, CHI = ("Schug et al. 2025, Attention as a Hypernetwork, {}", "Mittal et al. 2022, Compositional "
                      "Attention, {}", "Chi et al. 2023, RegularGPT, {}")
CURVES = ": curves without numbers"
THREE = "softmax", "linear", "hyla"


def grid(rows: dict, columns: int) -> tuple:
    """Rows of {label: recipe fields} for which the paper prints no numbers."""
    return tuple(Row(label, fields, (None,) * columns) for label, fields in rows.items())


LOGIC = {f"{name}, {held_out:.0%} held out": {"attention": name, "held_out": held_out, "experts": 0}
         for name in THREE for held_out in FRACTIONS}
FIGURE_2C = Table(
    "figure-2c", "Figure 2C of H, fuzzy logic: held-out R² by examples and fraction held out",
    SCHUG.format("figure 2C") + CURVES, "fuzzy_logic",
    tuple(Column(f"{n}", "held_out", "r2_per_task", (("length", n),)) for n in LENGTHS),
    grid(LOGIC, len(LENGTHS)), ("fuzzy_logic_short", "fuzzy_logic_grid"),
    axes=("examples in the context, the query included", "held-out R²"), default_scale="short")
FIGURE_A3 = Table(
    "figure-a3", "Figure A3 of H, fuzzy logic, T = 32: other measures", SCHUG.format("figure A3") + CURVES,
    "fuzzy_logic", (Column("R², held out", "held_out", "r2_per_task"), Column("R², trained", "train", "r2_per_task"),
                    Column("R², unknown terms", "unseen_terms", "r2_per_task"), Column("training MSE", "train", "mse")),
    grid({label: {**fields, "length": 32} for label, fields in LOGIC.items()}, 4), FIGURE_2C.records,
    default_scale="short")
FIGURE_2B = Table(
    "figure-2b", "Figure 2B of H, fuzzy logic: macro-F1 of the terms from the code, context fixed",
    SCHUG.format("figure 2B") + ": bars without numbers", "fuzzy_logic",
    tuple(Column(f"{kind}layer {n}", f"fixed context, layer {n}", f"{kind}any term")
          for kind in ("", "shuffled ") for n in (1, 2)),
    grid({name: {"attention": name, "experts": 0} for name in ("softmax", "hyla")}, 4), ("fuzzy_logic_codes",),
    default_scale="short", remarks=("shuffled: regressions on shuffled labels.",))
FIGURE_5F = Table(
    "figure-5f", "Figure 5F of H, SRAVEN: macro-F1 of the rule from the code of the second panel, by layer",
    SCHUG.format("figure 5F") + CURVES, "sraven",
    tuple(Column(f"{n}", f"second panel, layer {n}", "rule") for n in (1, 2, 3, 4)),
    grid({name: {"attention": name, "experts": 0} for name in ("softmax", "hyla")}, 4), ("sraven_codes",),
    axes=("layer", "macro-F1 of the rule"))
ACCURACY = "held_out", "panel_accuracy"
SIZES = {"width x 1": {}, "width x 2": {"wider": 2}, "width x 4": {"wider": 4}, "depth 8": {"layers": 8},
         "depth 16": {"layers": 16}}
FIGURE_4 = Table(
    "figure-4", "Figure 4 of H, SRAVEN: held-out accuracy by instances, width and depth",
    SCHUG.format("figure 4") + CURVES, "sraven",
    tuple(Column(f"{n} million", *ACCURACY, (("steps", n * 1_000_000 // 128),)) for n in (10, 20, 40)),
    grid({f"{name}, {size}": {"attention": name, "wider": 1, "layers": 4, **fields, "experts": 0} for name in THREE
          for size, fields in SIZES.items()}, 3), ("sraven_sizes",), default_scale="paper",
    axes=("instances of training", "held-out accuracy"))
FIGURE_A4 = replace(
    FIGURE_4, name="figure-a4", title="Figure A4 of H, SRAVEN: training loss by instances, width and depth",
    source=SCHUG.format("figure A4") + CURVES, axes=("instances of training", "training loss"),
    columns=tuple(column._replace(split="train", metric="loss") for column in FIGURE_4.columns))
FIGURE_5D = Table(
    "figure-5d", "Figure 5D of H, SRAVEN: held-out accuracy by the number of features",
    SCHUG.format("figure 5D") + CURVES, "sraven",
    tuple(Column(f"{n}", *ACCURACY, (("features", n),)) for n in (2, 3, 4)),
    grid({name: {"attention": name, "experts": 0} for name in THREE}, 3), ("sraven_quick", "sraven_features"),
    axes=("features M", "held-out accuracy"))
FIGURE_A5 = Table(
    "figure-a5", "Figure A5 of H, SRAVEN: held-out accuracy by the fraction held out",
    SCHUG.format("figure A5") + CURVES, "sraven",
    tuple(Column(f"{x:.0%}", *ACCURACY, (("held_out", x),)) for x in (0.25, 0.5, 0.75)),
    grid({name: {"attention": name, "experts": 0} for name in THREE}, 3), ("sraven_quick", "sraven_fractions"),
    axes=("rule combinations held out", "held-out accuracy"))


COLLAPSE = Table(
    "collapse", "D_3 beyond the trained lengths: by how much the right answer leads for members, by length",
    "", "regular_languages",
    (*(Column(str(n), "member margin", str(n)) for n in POWERS),
     Column("512, float64", "float64 member margin", "512")),
    grid({f"trained to {n} symbols": {"language": "d3", "attention": "sliding_dilated", "train_length": n}
          for n in (40, 160)}, len(POWERS) + 1),
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
                for row in chosen({row.label: row for row in self.rows}, only).values() for seed in seeds]
        return {Path(one.name): one for one in made}

    def after(self, outcomes, only=()) -> list[dict]:
        """Finished fresh runs with their histories."""
        return records.with_histories(outcomes)

    def sheet(self, runs, only=()) -> Sheet:
        """A row for each model, a column for each quarter of the steps: the last evaluation until then."""
        texts, data = [], []
        for row in chosen({row.label: row for row in self.rows}, only).values():
            mine = [run for run in runs if matches(run, self.task, row.fields)]
            homogeneous(mine, row.label)
            steps, name = mine[0]["history"].get("step", []) if mine else [], f"{self.split}.{self.metric}"
            found = [mean(column) for column in zip(*(run["history"].get(name, ()) for run in mine), strict=True)]
            data.append({"label": row.label, "ours": steps if mine else None, "steps": steps, "n": len(mine),
                         "mean": [x.mean for x in found], "standard_error": [x.standard_error for x in found]})
            at = [sum(4 * step <= part * run["step"] for step in steps) for run in mine[:1] for part in (1, 2, 3, 4)]
            cells = [shown(found[i - 1].mean, found[i - 1].standard_error) if i else "not evaluated" for i in at]
            texts.append([row.label, *(cells or [NEVER] * 4), str(len(mine))])
        headings = ["", "1/4 of the steps", "1/2", "3/4", "all", "n"]
        return Sheet(self.name, self.title, self.source, headings, texts, data,
                     [f"Ours: {self.metric} of split {self.split}, mean ± standard error over seeds."],
                     sum(row["n"] for row in data))

    def plot(self, sheet):
        """One line for each model."""
        return drawing.curves(sheet, f"{self.metric} ({self.split})")


FIGURE_10 = Curves(
    "figure-10", "Figure 10 of C, contextual retrieval: convergence", MITTAL.format("figure 10") + CURVES,
    "contextual_retrieval", "train", "loss",
    grid({name: {"attention": name, "held_out": False} for name in ("softmax", "compositional")}, 1),
    ("contextual_retrieval_quick",))


@dataclass(frozen=True)
class Picture(Exhibit):
    """A published figure that is drawn from a trained network, not from a record; the network is trained in `--out`."""
    name: str
    title: str
    source: str
    task: str
    fields: dict
    draw: Callable             # recipe, model, parameters, rng -> a matplotlib Figure

    def recipes(self, scale: str, seeds, only=(), **changes) -> dict:
        """{directory below OUT: recipe} of the one run, of the first seed."""
        one = recipe(self.task, scale, **{**self.fields, **changes}, seed=next(iter(seeds)))
        return {Path(name): one for name in chosen({one.name: one}, only)}

    def sheet(self, runs, only=()) -> Sheet:
        """What was drawn."""
        chosen({run["name"]: run for run in runs} or {self.name: None}, only)
        rows = [[run["name"], f"{run['step']:,}", f"{run['seconds']:,.0f}"] for run in runs]
        return Sheet(self.name, self.title, self.source, ["network", "steps", "seconds"], rows or [[NEVER, "–", "–"]],
                     [{"name": run["name"], "ours": run["step"], "path": str(run["path"])} for run in runs],
                     ["Drawn from a trained network: --fresh --plot FILE trains it below --out, or takes it there."],
                     len(runs))

    def plot(self, sheet):
        """Of the first network."""
        if not sheet.data:
            raise ValueError(f"{self.name} is drawn from a trained network; allowed: --fresh --plot FILE")
        run, model, parameters = load(sheet.data[0]["path"])
        return self.draw(run, model, parameters, stream(run.seed, "evaluation", BEYOND))


def codes(run, model, parameters, rng, by, **fixed):
    """Codes of 1,500 samples of held-out tasks in two dimensions: a row for each layer, a column for each of by."""
    seen = latent_code.observe(run, model, parameters, rng, "held_out", 1_500, **fixed)
    layers = progress_bar(range(seen.code.shape[1]), progress=True, desc="t-SNE", unit="layer", delay=2, leave=False)
    return latent_code_figures.points({f"layer {n + 1}": latent_code.embed(seen.at(n)) for n in layers}, by(seen),
                                      f"{run.name}, 1,500 samples of held-out tasks")


def codes_of_terms(run, model, parameters, rng):
    """The codes of fuzzy logic, of one context, by target, function and term."""
    return codes(run, model, parameters, rng, lambda seen: {
        "target": seen.target, "function": np.unique(seen.terms, axis=0, return_inverse=True)[1].ravel(),
        "first term": seen.terms[:, 0], "second term": seen.terms[:, 1]},
        context=rng.random((run.length - 1, run.variables)))


def codes_of_rules(run, model, parameters, rng):
    """The codes of SRAVEN, by target and by rule."""
    return codes(run, model, parameters, rng, lambda seen: {"target": seen.target, "rule": seen.labels["rule"]})


def means_of_rules(run, model, parameters, rng):
    """Codes of the last layer, their means by rule, and the cosines of two rules' means."""
    seen = latent_code.observe(run, model, parameters, rng, "held_out", 4_000)
    return latent_code_figures.by_label(seen.at(-1), seen.labels["rule"], RULES, f"{run.name}, held-out tasks")


def scores(run, what, matrices, xlabel="retrieval", ylabel="search"):
    """Maps of value scores, of a run on what it was asked."""
    made = searches.figure(matrices, xlabel, ylabel)
    made.suptitle(f"{run.name}, {what}", fontsize=9)
    return made


def pairings(run, model, parameters, rng):
    """Searches and retrievals where all tuples are asked for, those of training, and those held out."""
    asked = {"all tuples": (replace(run, held_out=False), "train"), "of training": (run, "train"),
             "held out": (run, "held_out")}
    return scores(run, "2,000 sets each", {
        title: searches.pairing(searches.observe(one, model, parameters, rng, split=split))
        for title, (one, split) in asked.items()})


def specialisations(run, model, parameters, rng):
    """Retrievals by the true one, of the search that finds what is asked for and of all."""
    seen = searches.observe(run, model, parameters, rng)
    return scores(run, "2,000 sets", {"the search that finds it": searches.specialisation(seen),
                                      "all searches": searches.specialisation(seen, matched=False)},
                  "learned retrieval", "true retrieval")


def kinds_of_questions(run, model, parameters, rng):
    """Searches and retrievals of Sort-of-CLEVR by kind of question, mean over applications."""
    found = images.by_kind(run, model, parameters)
    return scores(run, "1,984 test questions", {kind: x.mean(axis=0) for kind, x in found.items()})


def pairs_of_triangles(run, model, parameters, rng):
    """Searches and retrievals over tokens and applications."""
    return scores(run, "1,000 test images", {"triangles": images.pairing(run, model, parameters)})


def clusters(run, model, parameters, rng):
    """Layer outputs of one word of 500 in two dimensions, by the automaton's map."""
    word, = run.sample(rng, "longer", 1, 500).tokens
    seen = regular.layer_outputs(model, parameters, run.data().automaton, word)
    made = latent_code_figures.points({"501 vectors": regular.principal(seen.vectors)},
                                      {"map": seen.element, "level": seen.level}, run.language)
    for axes in made.axes[:2]:
        axes.set(xlabel="principal component 1", ylabel="principal component 2")
    return made


def field(run, model, parameters, rng):
    """Cumulated share of the gradient, from the last token backwards, on words of 500."""
    drawn = run.sample(rng, "longer", 64, 500)
    return drawing.field(regular.receptive_field(model, parameters, drawn.tokens, drawn.target), run.name)


def of_sraven(name, title, draw, attention="hyla", **more) -> Picture:
    """A picture of SRAVEN's codes."""
    return Picture(name, title, SCHUG.format(f"figure {name[7:].upper()}"), "sraven",
                   {"attention": attention, **more}, draw)


def specialised(setup, title, **fields) -> Picture:
    """A picture of who retrieves what in contextual retrieval, every tuple being trained."""
    return Picture(f"figure-11-{setup}", f"{title} of C, contextual retrieval: specialisation of retrievals, {setup}",
                   MITTAL.format(title.lower()), "contextual_retrieval",
                   {"attention": "compositional", "held_out": False, **fields}, specialisations)


def of_regular(name, title, language, draw) -> Picture:
    """A picture of a RegularGPT."""
    return Picture(name, title, CHI.format(name.replace("-", " ")), "regular_languages",
                   {"language": language, "attention": "sliding_dilated"}, draw)


PICTURES = (
    Picture("figure-2d", "Figures 2D and A2 of H, fuzzy logic: codes by layer, target, function and terms",
            SCHUG.format("figures 2D and A2"), "fuzzy_logic", {"attention": "hyla"}, codes_of_terms),
    of_sraven("figure-5ab", "Figures 5A, 5B and A6 of H, SRAVEN: codes by layer, target and rule", codes_of_rules),
    of_sraven("figure-5e", "Figure 5E of H, SRAVEN: cosines of the rules' codes, HYLA", means_of_rules),
    of_sraven("figure-a7", "Figure A7 of H, SRAVEN: codes of softmax attention of depth 16", codes_of_rules, "softmax",
              layers=16),
    of_sraven("figure-a8", "Figure A8 of H, SRAVEN: codes, and cosines of the rules' codes, softmax attention",
              means_of_rules, "softmax"),
    Picture("figure-4-pairings", "Figure 4 of C, contextual retrieval: searches and retrievals by what is asked for",
            MITTAL.format("figure 4"), "contextual_retrieval", {"attention": "compositional"}, pairings),
    specialised("1s2r", "Figure 11", searches=1, retrievals=2),
    specialised("1s4r", "Figures 11 and 12", searches=1, retrievals=4),
    specialised("2s4r", "Figures 5 and 11", searches=2, retrievals=4),
    Picture("figure-14", "Figure 14 of C, Sort-of-CLEVR: searches and retrievals by kind of question",
            MITTAL.format("figure 14"), "sort_of_clevr", {"attention": "compositional"}, kinds_of_questions),
    Picture("figure-15", "Figure 15 of C, equilateral triangles: searches and retrievals", MITTAL.format("figure 15"),
            "triangles", {"attention": "compositional"}, pairs_of_triangles),
    of_regular("figure-3-parity", "Figure 3 of R, PARITY: clusters of layer outputs", "parity", clusters),
    of_regular("figure-3-cycle", "Figure 3 of R, Cycle Navigation: clusters of layer outputs", "cycle", clusters),
    of_regular("figure-4a", "Figure 4a of R, PARITY: receptive field", "parity", field))


class Counts(Exhibit):
    """Figure A9 of H: numbers of tasks and instances of SRAVEN, counted."""
    name = "figure-a9"
    title = "Figure A9 of H, SRAVEN: numbers of tasks and of problem instances"
    source = SCHUG.format("figure A9 and appendix B.1") + CURVES

    def fresh(self, *_) -> list:
        """Nothing is trained."""
        return []

    def sheet(self, runs, only=()) -> Sheet:
        """A row for each number of features."""
        data = [{"features": m, "ours": tasks(m), "tasks": tasks(m), "paper": tasks(m, "paper"),
                 "instances": {k: instances(m, k) for k in (4, 8, 16)}}
                for m in chosen({f"M = {m}": m for m in range(1, 7)}, only).values()]
        rows = [[f"M = {row['features']}", f"{row['tasks']:,}", f"{row['paper']:,}",
                 *(f"{n:.3g}" for n in row["instances"].values())] for row in data]
        headings = ["", "tasks", "by the paper's formula", "instances, K = 4", "K = 8", "K = 16"]
        return Sheet(self.name, self.title, self.source, headings, rows, data,
                     ["The paper's formula takes off M permutations, unexplained, and leaves no task at M = 1."], 0)

    plot = staticmethod(drawing.counts)                     # both numbers by M, on a logarithmic scale


FIGURES = (FIGURE_2B, FIGURE_2C, FIGURE_A3, FIGURE_4, FIGURE_A4, FIGURE_5D, FIGURE_5F, FIGURE_A5, FIGURE_10, COLLAPSE,
           *PICTURES, Counts())
