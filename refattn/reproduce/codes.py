"""What the latent codes of finished runs say about terms or rules, recorded like the runs themselves.

    refattn reproduce --codes --record FILE DIR...

adds one entry for each finished run at or right below each DIR: as in `records`, but its metrics are
{"fixed context, layer 1": {"term 1": macro-F1, "shuffled term 1": ..., "answer term 1": ...}, ...}, as
`latent_code.report` has them, on COUNT codes of training tasks, scored on as many codes of held-out tasks.
Fuzzy logic: the context or the query is drawn DRAWS times for each seed, the same for all tasks, and scores are means
over the draws; the paper fixes the context, the released code saves codes of both kinds.
SRAVEN: {"second panel, layer 1": {"rule": ...}, ...} for each key that the last query token attends to.
Regular languages: {"layer outputs": {"purity": ..., "most frequent": ...}}, how far the outputs of all levels fall into
one cluster for each map of words; means over WORDS words of LENGTH symbols.
"""

from pathlib import Path

from ..analysis import latent_code, regular
from ..train import load, runs, stream
from . import records

COUNT, DRAWS, WORDS, LENGTH = 2_000, 4, 4, 500
WHAT = (f"logistic regression from {COUNT:,} latent codes of training tasks, scored on {COUNT:,} of held-out tasks by "
        "macro-F1")


def read_codes(path, count: int = COUNT) -> dict:
    """The scores of one run directory, {inputs or key, and layer: {label: score}}.

    Raises ValueError for a run of another task.
    """
    recipe, model, parameters = load(path)
    rng = stream(recipe.seed, "evaluation", 1_000_000)      # beyond every batch of an evaluation
    if recipe.TASK == "regular_languages":
        return {"layer outputs": regular.clusters(recipe, model, parameters, rng, WORDS, LENGTH)}

    def pair(**fixed):
        return [latent_code.observe(recipe, model, parameters, rng, split, count, **fixed)
                for split in ("train", "held_out")]
    if recipe.TASK != "fuzzy_logic":
        train, test = pair()
        return {f"{name}, {layer}": scores for at, name in enumerate(train.pairs)
                for layer, scores in latent_code.report(train, test, at).items()}
    drawn = []
    for _ in range(DRAWS):
        context, query = rng.random((recipe.length - 1, recipe.variables)), rng.random(recipe.variables)
        scores = {}
        for name, fixed in (("fixed context", {"context": context}), ("fixed query", {"query": query})):
            train, test = pair(**fixed)
            scores |= {f"{name}, {layer}": part for layer, part in latent_code.report(train, test).items()}
        drawn.append({**scores, "all layers": {"probe": latent_code.probe(train, recipe.variables)}})
    return {part: {label: sum(scores[part][label] for scores in drawn) / DRAWS for label in drawn[0][part]}
            for part in drawn[0]}


def collect(file, sources, count: int = COUNT) -> int:
    """Add the finished runs at or right below each source to a record of codes; returns how many."""
    file = Path(file)
    record = records.load(file) if file.exists() else {"what": WHAT}
    found = []
    for path in (path for source in sources for path in runs.find(source)):
        run = records.read_run(path)
        if run is not None:
            found.append({**run, "metrics": read_codes(path, count), "history": {}})
    if found:
        records.write(file, records.merged(record, found))
    return len(found)
