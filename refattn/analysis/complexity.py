"""What attention layers cost: parameters and multiply-adds, line by line, against the paper's leading terms.

    multi-head       parameters ~ 3 h          work ~ 2 h N^2
    compositional    parameters ~ 2 s + r      work ~ s (1 + r) N^2

Source: C, appendix B.6, which assumes one width everywhere and N so long that N^2 decides.  It leaves out the output
map, which both have, and what the selector costs: its own map and, for each token and search, e c products of the key
map and 2 r e of value logits and instantiation; `lines` counts them.
"""

from math import prod

from ..attention.compositional import Compositional
from ..attention.layer import MultiHead
from ..checks import check_integer, check_integers
from ..contract import multiply_adds

__all__ = ["in_units", "leading_terms", "lines", "maps"]

LINES = {                      # of the forward: what it is -> the contraction; d, e, c as in the layers
    "queries": "bqm,mhd->bqhd", "keys": "bkm,mhd->bkhd", "scores": "bqhd,bkhd->bhqk", "output": "bqhe,hem->bqm"}
HEADS = {**LINES, "values": "bkm,mhe->bkhe", "mixtures": "bhqk,bkhe->bqhe"}
SEARCHES = {**LINES, "values": "bkm,mre->bkre", "mixtures": "bhqk,bkre->bqhre", "selector": "bqm,mhc->bqhc",
            "key map": "bqhc,ec->bqhe", "value logits": "bqhe,bqhre->bqhr", "instantiation": "bqhr,bqhre->bqhe"}
SELECTOR = "selector", "key map", "value logits", "instantiation"       # what the paper's count leaves out
QUADRATIC = "scores", "mixtures"                                        # the lines with N^2


def lines(layer, batch: int, queries: int, keys: int | None = None) -> dict[str, int]:
    """Multiply-adds of each line of the forward: {"queries": ..., "mixtures": ..., ...}.

    Raises ValueError for a layer that is not softmax, linear or compositional attention with dot scoring, and for
    numbers that are not whole or below 1.

    >>> lines(MultiHead(8, 2, 4), 1, 10)["scores"]
    800
    """
    size = {"b": batch, "q": queries, "k": queries if keys is None else keys, "m": layer.width}
    check_integers({"batch": batch, "queries": queries, "keys": size["k"]})
    if isinstance(layer, Compositional) and layer.scoring == "dot":
        size |= {"h": layer.searches, "r": layer.retrievals, "d": layer.search_width, "e": layer.retrieval_width,
                 "c": layer.selector_width}
        specs = SEARCHES
    elif isinstance(layer, MultiHead) and layer.variant in ("softmax", "linear"):
        size |= {"h": layer.heads, "d": layer.head_width, "e": layer.value_width}
        specs = HEADS
    else:
        raise ValueError(f"{layer} has no line count; allowed: MultiHead softmax or linear, Compositional dot")

    def shape(letters):
        return tuple(size[x] for x in letters)

    return {name: multiply_adds(spec, *map(shape, spec.partition("->")[0].split(","))) for name, spec in specs.items()}


def maps(layer) -> dict[str, int]:
    """Entries of each weight, biases left out: {"wq": ..., ...}."""
    return {name: prod(p.shape) for name, p in layer.parameters().items() if p.role == "weight"}


def in_units(layer, width: int, tokens: int) -> dict[str, float]:
    """The paper's two numbers and what it leaves out, in its units, for a layer all of whose parts have that width.

    parameters : weights of queries, keys and values by m width         work : N^2 lines by N^2 width
    selector_parameters, selector_work : the same units, what the selector adds; both 0 for multi-head attention

    Raises ValueError as `lines` does, and for a width that is not whole or below 1.

    >>> in_units(MultiHead(64, 4, 16), 16, 100)["work"]
    8.0
    """
    weights, work = maps(layer), lines(layer, 1, tokens)
    unit = layer.width * check_integer("width", width)
    return {"parameters": sum(weights[name] for name in ("wq", "wk", "wv")) / unit,
            "selector_parameters": sum(weights.get(name, 0) for name in ("ws", "wr")) / unit,
            "work": sum(work[name] for name in QUADRATIC) / (tokens**2 * width),
            "selector_work": sum(work.get(name, 0) for name in SELECTOR) / (tokens**2 * width)}


def leading_terms(*, heads: int | None = None, searches: int | None = None, retrievals: int | None = None):
    """(parameters, work) as the paper prints them: (3h, 2h) or (2s + r, s (1 + r)).

    To pair each of h searches with each of h retrievals, multi-head attention needs h^2 heads:

    >>> leading_terms(heads=4**2), leading_terms(searches=4, retrievals=4)
    ((48, 32), (12, 20))

    Raises ValueError unless either heads, or searches and retrievals, are given, as whole numbers of at least 1.
    """
    if heads is not None and searches is retrievals is None:
        return 3 * check_integer("heads", heads), 2 * heads
    if heads is None and searches is not None and retrievals is not None:
        return (2 * check_integer("searches", searches) + check_integer("retrievals", retrievals),
                searches * (1 + retrievals))
    raise ValueError(f"heads is {heads}, searches {searches}, retrievals {retrievals}; allowed: heads or the others")
