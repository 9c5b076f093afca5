"""What the latent codes of finished runs say about terms or rules, recorded like the runs themselves.

    refattn reproduce --codes --record FILE DIR... [--what TEXT]

adds one entry for each finished run at or right below each DIR: as in `records`, but its metrics are
{"fixed context, layer 1": {"term 1": macro-F1, "shuffled term 1": ..., "answer term 1": ...}, ...}, as
`latent_code.report` has them, on COUNT codes of training tasks, scored on as many codes of held-out tasks.
Fuzzy logic: the context or the query is drawn DRAWS times for each seed, the same for all tasks, and scores are means
over the draws; the paper fixes the context, the released code saves codes of both kinds.
SRAVEN: {"second panel, layer 1": {"rule": ..., "related cosine", "other cosine"}, ...} for each key that the last query
token attends to; cosines are of the mean codes of addition and subtraction, and of all other pairs of rules.
Regular languages but D_n: {"layer outputs": {"purity", "count", "most frequent"}}, how far outputs of all levels are a
cluster for each map of words, means over WORDS words of LENGTH symbols; of PARITY also {"receptive field": {"first
half"}}, its share of the gradient, and {"probability": {"ones 0.1"}}, accuracies where ones have that probability,
which is all that is read off a Transformer or an RNN, at its trained lengths.
D_n: {"member margin": {"64": ...}}, by how much the right answer leads, of members of so many symbols.
Contextual retrieval: {"specialisation": {"trained"}}, the value score of the retrieval that is asked for, and
{"pairing": {"asked", "all"}}, how unequal value scores are given what is asked, and over all tuples, held-out ones too.
Text: {"receptive field": {"last 1", "even last 1", ...}}, the share of the gradient that the last tokens of a window
get, twice as long as the trained ones where the recipe has such, and what they would get if all got as much.
"untrained" stands before the same number of the network as it was initialised.
"""

import numpy as np

from .. import params
from ..analysis import latent_code, regular, searches, text
from ..checks import check_choice
from ..recipes.per_word import Words
from ..tasks import text_windows
from ..tasks.sraven import ADDITION, SUBTRACTION
from ..train import load, stream
from ..train.evaluation import BEYOND
from ..train.record import State
from . import records

COUNT, DRAWS, WORDS, LENGTH, FIELD_WORDS = 2_000, 4, 4, 500, 64
POWERS = 16, 32, 64, 128, 256, 512
LAST = 1, 2, 4, 8, 16, 32, 64, 128


def initial(recipe, model):
    """The parameters that training began with."""
    return State(recipe, model.parameters(), np).parameters


def again(recipe):
    """The random numbers of what is read off a network: the same every time."""
    return stream(recipe.seed, "evaluation", BEYOND)


def both(read, recipe, model, trained) -> dict:
    """What is read off the trained network, and off the untrained one, from the same random numbers."""
    return {**read(trained), **{f"untrained {name}": x for name, x in read(initial(recipe, model)).items()}}


def regular_codes(recipe, model, trained) -> dict:
    """Of a RegularGPT the clusters of its outputs, of PARITY its receptive field too, of D_n margins alone; of PARITY
    other probabilities, of any model.

    Raises ValueError for a Transformer or an RNN of another language, and for protocol per_position, which has no right
    answer after a word.
    """
    check_choice("protocol", recipe.protocol, ("released",), "allowed for codes")
    if recipe.attention != "sliding_dilated":
        if recipe.language != "parity":
            raise ValueError(f"nothing is read off {recipe.attention} trained on {recipe.language}; allowed: parity")
        return shifts(recipe, model, trained, range(1, recipe.train_length + 1), words=512)
    if recipe.data().row.depth:
        wide = params.view(trained.readout.w.base.astype(np.float64), model.parameters())      # base: all of them
        return {"member margin": margins(recipe, model, trained), "float64 member margin": margins(recipe, model, wide)}
    found = {"layer outputs": both(lambda p: regular.clusters(recipe, model, p, again(recipe), WORDS, LENGTH),
                                   recipe, model, trained)}
    if recipe.language == "parity":
        half = both(lambda p: first_half(recipe, model, p), recipe, model, trained)
        found |= {"receptive field": {**half, "one half": 0.5},
                  **shifts(recipe, model, trained, range(20, LENGTH + 1, 40), words=128)}
    return found


def first_half(recipe, model, p) -> dict:
    """The share of the gradient that the first half of a word of LENGTH symbols gets, mean over FIELD_WORDS words."""
    drawn = recipe.sample(again(recipe), "longer", FIELD_WORDS, LENGTH)
    share = regular.receptive_field(model, p, drawn.tokens, drawn.target)
    return {"first half": float(1 - share[LENGTH // 2 - 1])}


def shifts(recipe, model, p, lengths, words: int) -> dict:
    """{"probability": {"ones 0.1": ...}}: accuracies on PARITY where ones have that probability."""
    def answer(tokens):
        tokens, last = recipe.inputs(Words(tokens, None, None))
        return model.forward(p, tokens, **last)[0][:, 0].argmax(-1)

    found = regular.probability_shift(answer, lengths, words=words, seed=recipe.seed)
    return {"probability": {f"ones {ones:g}": x for ones, x in found.items()}}


def margins(recipe, model, p) -> dict:
    """{length: by how much the right answer leads, mean over 64 members}, at powers of 2, where a tree needs no pad."""
    rng, found = again(recipe), {}
    for length in POWERS:
        tokens, member = recipe.data().sample(rng, 128, length)
        y = model.forward(p, tokens[member == 1], tree=True)[0][:, 0]
        found[str(length)] = float((y[:, 1] - y[:, 0]).mean())
    return found


def retrieval_codes(recipe, model, trained) -> dict:
    """Of compositional attention; spread is the standard deviation over retrievals, mean over the rows."""
    def observed(p, split="train"):
        return searches.observe(recipe, model, p, again(recipe), split=split)
    seen, over_all = observed(trained), observed(trained, "all")
    return {"specialisation": {name: searches.diagonality(searches.specialisation(each)) for name, each in (
                ("trained", seen), ("untrained", observed(initial(recipe, model))))},
            "pairing": {"asked": float(searches.specialisation(seen, aligned=False).std(axis=1).mean()),
                        "all": float(searches.pairing(over_all).std(axis=1).mean())}}


def text_codes(recipe, model, trained) -> dict:
    """Of any language model: how much of the gradient the last tokens get, where it would be even, and untrained."""
    length = recipe.lengths.get("times_2", recipe.length)
    drawn = text_windows.sample(again(recipe), recipe.corpus().ids["test"], FIELD_WORDS, length)

    def shares(p):
        field = text.receptive_field(model, p, drawn.tokens, drawn.target)
        return {f"last {n}": float(field[min(n, length) - 1]) for n in LAST}
    return {"receptive field": {**both(shares, recipe, model, trained),
                                **{f"even last {n}": min(1.0, n / length) for n in LAST}}}


def observed(recipe, model, p, rng, **fixed) -> list:
    """COUNT latent codes of training tasks, and of held-out ones."""
    return [latent_code.observe(recipe, model, p, rng, split, COUNT, **fixed) for split in ("train", "held_out")]


def fuzzy_logic_codes(recipe, model, trained) -> dict:
    """Means over DRAWS contexts and queries."""
    rng, drawn = again(recipe), []
    for _ in range(DRAWS):
        context, query = rng.random((recipe.length - 1, recipe.variables)), rng.random(recipe.variables)
        scores = {}
        for name, fixed in (("fixed context", {"context": context}), ("fixed query", {"query": query})):
            train, test = observed(recipe, model, trained, rng, **fixed)
            scores |= {f"{name}, {layer}": part for layer, part in latent_code.report(train, test).items()}
        drawn.append({**scores, "all layers": {"probe": latent_code.probe(train, recipe.variables)}})
    return {part: {label: sum(scores[part][label] for scores in drawn) / DRAWS for label in drawn[0][part]}
            for part in drawn[0]}


def sraven_codes(recipe, model, trained) -> dict:
    """Of each key that the last query token attends to, and of each layer."""
    train, test = observed(recipe, model, trained, again(recipe))
    return {f"{name}, {layer}": {**scores, **cosines(train, test, number, at)}
            for at, name in enumerate(train.pairs)
            for number, (layer, scores) in enumerate(latent_code.report(train, test, at).items())}


def cosines(train, test, layer: int, at: int) -> dict:
    """Of the mean codes of addition and subtraction, and mean over all other pairs of rules; over all tasks."""
    code = np.concatenate([train.at(layer, at), test.at(layer, at)])
    rules, cosine = latent_code.similarity(code, np.concatenate([train.labels["rule"], test.labels["rule"]]))
    a, b = np.triu_indices(len(rules), 1)
    related = (rules[a] == ADDITION) & (rules[b] == SUBTRACTION)
    return {"related cosine": float(cosine[a, b][related].mean()), "other cosine": float(cosine[a, b][~related].mean())}


READERS = {"fuzzy_logic": fuzzy_logic_codes, "sraven": sraven_codes, "regular_languages": regular_codes,
           "contextual_retrieval": retrieval_codes, "text": text_codes}


def read_codes(path) -> dict:
    """The scores of one run directory, {inputs or key, and layer: {label: score}}.

    Raises ValueError for a run of another task.
    """
    recipe, model, parameters = load(path)
    check_choice("task of the recipe", recipe.TASK, READERS)
    return READERS[recipe.TASK](recipe, model, parameters)


def with_codes(outcomes) -> list[dict]:
    """Finished fresh runs with what their codes say as their metrics, as in a record of codes."""
    return [{**run, "metrics": read_codes(run["path"]), "history": {}} for run in outcomes]


def collect(file, sources, what: str | None = None) -> tuple[int, list[str]]:
    """`records.collect` of codes."""
    def read(path):
        run = records.read_run(path)
        return run and {**run, "metrics": read_codes(path), "history": {}}

    return records.collect(file, sources, what, read)
