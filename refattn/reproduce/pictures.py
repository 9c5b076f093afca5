"""Published figures that are drawn from a trained network: codes, value scores, layer outputs, receptive fields."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..analysis import images, latent_code, latent_code_figures, regular, searches
from ..recipes import recipe
from ..tasks.sraven import RULES
from ..train import load, progress_bar
from . import drawing
from .codes import again
from .sheet import NEVER, Sheet, chosen
from .table import PAPERS, Exhibit

HELD_OUT = "samples of held-out tasks, code of the last token with itself"


@dataclass(frozen=True)
class Picture(Exhibit):
    """A published figure that is drawn from a trained network, not from a record; the network is trained in `--out`."""
    name: str
    title: str                 # FIGURE of PAPER, TASK: WHAT
    task: str
    draw: Callable             # recipe, model, parameters, rng -> a matplotlib Figure, whose title says of what
    fields: dict

    @property
    def source(self) -> str:
        """Where it is published, as the title begins."""
        figure, _, paper = self.title.partition(":")[0].rpartition(",")[0].rpartition(" of ")
        return f"{PAPERS[paper]}, {figure.replace('Fig', 'fig')}"

    def recipes(self, scale: str, seeds, only=(), **changes) -> dict:
        """{directory below OUT: recipe} of the one run, of the first seed."""
        one = recipe(self.task, scale, **{**self.fields, **changes}, seed=next(iter(seeds)))
        return {Path(name): one for name in chosen({one.name: one}, only)}

    def sheet(self, runs, only=()) -> Sheet:
        """What was drawn."""
        chosen({run["name"]: run for run in runs} or {self.name: None}, only)
        rows = [[run["name"], f"{run['step']:,}", f"{run['seconds']:,.0f}"] for run in runs]
        return Sheet(self.name, self.title, self.source, ["network", "steps", "seconds"], rows or [[NEVER, "–", "–"]],
                     [{"name": run["name"], "ours": run["step"], "seconds": run["seconds"], "path": str(run["path"])}
                      for run in runs],
                     ["Drawn from a trained network: --fresh --plot FILE trains it below --out, or takes it there."],
                     len(runs))

    def plot(self, sheet):
        """Of the first network."""
        if not sheet.data:
            raise ValueError(f"{self.name} is drawn from a trained network; allowed: --fresh --plot FILE")
        run, model, parameters = load(sheet.data[0]["path"])
        made = self.draw(run, model, parameters, again(run))
        made.suptitle(f"{self.title.partition(':')[0]}\n{run.name} after {sheet.data[0]['ours']:,} steps, "
                      f"{made.get_suptitle()}", fontsize=9)
        return made


def codes(run, model, parameters, rng, by, words=None, **fixed):
    """Codes of 1,500 samples of held-out tasks in two dimensions: a row for each layer, a column for each of by."""
    seen = latent_code.observe(run, model, parameters, rng, "held_out", 1_500, **fixed)
    layers = progress_bar(range(seen.code.shape[1]), progress=True, desc="t-SNE", unit="layer", delay=2, leave=False)
    found = [(n, latent_code.embed(seen.at(n))) for n in layers]
    return latent_code_figures.points({f"layer {n + 1}" + ", all alike" * (not places.any()): places
                                       for n, places in found}, by(seen), f"1,500 {HELD_OUT}", words)


def codes_of_terms(run, model, parameters, rng):
    """The codes of fuzzy logic, of one context, by target, function and term."""
    return codes(run, model, parameters, rng, lambda seen: {
        "target": seen.target, "function": np.unique(seen.terms, axis=0, return_inverse=True)[1].ravel(),
        "first term": seen.terms[:, 0], "second term": seen.terms[:, 1]},
        context=rng.random((run.length - 1, run.variables)))


def codes_of_rules(run, model, parameters, rng):
    """The codes of SRAVEN, by target and by rule."""
    return codes(run, model, parameters, rng, lambda seen: {"target": seen.target, "rule": seen.labels["rule"]},
                 {"rule": RULES})


def means_of_rules(run, model, parameters, rng):
    """Codes of the last layer, their means by rule, and the cosines of two rules' means."""
    seen = latent_code.observe(run, model, parameters, rng, "held_out", 4_000)
    return latent_code_figures.by_label(seen.at(-1), seen.labels["rule"], RULES, f"4,000 {HELD_OUT}")


def scores(what, matrices, xlabel="retrieval", ylabel="search"):
    """Maps of value scores, and what was asked."""
    made = searches.figure(matrices, xlabel, ylabel)
    made.set_figheight(made.get_figheight() + 0.6)
    made.suptitle(what)
    return made


def pairings(run, model, parameters, rng):
    """Searches and retrievals where all tuples are asked for, those of training, and those held out."""
    asked = {"all tuples": (replace(run, held_out=False), "train"), "of training": (run, "train"),
             "held out": (run, "held_out")}
    return scores("2,000 sets each", {
        title: searches.pairing(searches.observe(one, model, parameters, rng, split=split))
        for title, (one, split) in asked.items()})


def specialisations(run, model, parameters, rng):
    """Retrievals by the true one, of the search that finds what is asked for and of all."""
    seen = searches.observe(run, model, parameters, rng)
    return scores("2,000 sets", {"the search that finds it": searches.specialisation(seen),
                                 "all searches": searches.specialisation(seen, matched=False)},
                  "learned retrieval", "true retrieval")


def kinds_of_questions(run, model, parameters, rng):
    """Searches and retrievals of Sort-of-CLEVR by kind of question, mean over applications."""
    found = images.by_kind(run, model, parameters)
    return scores("1,984 test questions of each type", {kind: x.mean(axis=0) for kind, x in found.items()})


def pairs_of_triangles(run, model, parameters, rng):
    """Searches and retrievals over tokens and applications."""
    return scores("1,000 test images", {"triangles": images.pairing(run, model, parameters)})


def clusters(run, model, parameters, rng):
    """Layer outputs of one word of 500 in two dimensions, by the automaton's map."""
    word, = run.sample(rng, "longer", 1, 500).tokens
    seen = regular.layer_outputs(model, parameters, run.data().automaton, word)
    made = latent_code_figures.points({"501 vectors": regular.principal(seen.vectors)},
                                      {"map": seen.element, "level": seen.level}, "one word of 500 symbols")
    for axes in made.axes[:2]:
        axes.set(xlabel="principal component 1", ylabel="principal component 2")
    return made


def field(run, model, parameters, rng):
    """Cumulated share of the gradient, from the last token backwards, on words of 500."""
    drawn = run.sample(rng, "longer", 64, 500)
    made = drawing.field(regular.receptive_field(model, parameters, drawn.tokens, drawn.target), run.name)
    made.suptitle("64 words of 500 symbols")
    return made


def specialised(figures, searches, retrievals) -> Picture:
    """A picture of who retrieves what in contextual retrieval, every tuple being trained."""
    return Picture(f"figure-11-{searches}s{retrievals}r", f"{figures} of C, contextual retrieval: specialisation, "
                   f"S = {searches}, R = {retrievals}", "contextual_retrieval", specialisations,
                   {**SEARCHING, "held_out": False, "searches": searches, "retrievals": retrievals})


HYLA, SOFTMAX, SEARCHING, SLIDING = ({"attention": name} for name in ("hyla", "softmax", "compositional",
                                                                      "sliding_dilated"))
PICTURES = (
    Picture("figure-2d", "Figures 2D and A2 of H, fuzzy logic: codes by layer, target, function and terms",
            "fuzzy_logic", codes_of_terms, HYLA),
    Picture("figure-5ab", "Figures 5A, 5B and A6 of H, SRAVEN: codes by layer, target and rule", "sraven",
            codes_of_rules, HYLA),
    Picture("figure-5e", "Figure 5E of H, SRAVEN: cosines of the rules' codes, HYLA", "sraven", means_of_rules, HYLA),
    Picture("figure-a7", "Figure A7 of H, SRAVEN: codes of softmax attention of depth 16", "sraven", codes_of_rules,
            {**SOFTMAX, "layers": 16}),
    Picture("figure-a8", "Figure A8 of H, SRAVEN: codes, and cosines of the rules' codes, softmax attention", "sraven",
            means_of_rules, SOFTMAX),
    Picture("figure-4-pairings", "Figure 4 of C, contextual retrieval: searches and retrievals by what is asked for",
            "contextual_retrieval", pairings, SEARCHING),
    specialised("Figure 11", 1, 2), specialised("Figures 11 and 12", 1, 4), specialised("Figures 5 and 11", 2, 4),
    Picture("figure-14", "Figure 14 of C, Sort-of-CLEVR: searches and retrievals by kind of question", "sort_of_clevr",
            kinds_of_questions, SEARCHING),
    Picture("figure-15", "Figure 15 of C, equilateral triangles: searches and retrievals", "triangles",
            pairs_of_triangles, SEARCHING),
    Picture("figure-3-parity", "Figure 3 of R, PARITY: clusters of layer outputs", "regular_languages", clusters,
            {**SLIDING, "language": "parity"}),
    Picture("figure-3-cycle", "Figure 3 of R, Cycle Navigation: clusters of layer outputs", "regular_languages",
            clusters, {**SLIDING, "language": "cycle"}),
    Picture("figure-4a", "Figure 4a of R, PARITY: receptive field", "regular_languages", field,
            {**SLIDING, "language": "parity"}))
