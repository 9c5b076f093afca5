"""Rows for compositional attention: the page, the layer (m 8, s 3, r 4, d 4, e 2, c 5) and the networks around it."""

from functools import partial

from ...attention.compositional import Compositional
from ...attention.layer import MultiHead
from ...attention.pages import PAGES
from ...attention.value_scores import SCORINGS
from ...layers.feed_forward import FeedForward
from ...models.contextual_retrieval import RetrievalNetwork
from ...models.transformer import universal
from ..naive import compositional as loops
from ..naive import universal as naive_universal
from ..naive.contextual_retrieval import network
from .case import Case, maybe, normal, of_page, sizes
from .layers import attending, row
from .models import dropout_for, tokens

PAIRS = dict.fromkeys(("bias", "keep", "dropout"), "bsqk")


def page(name) -> Case:
    """The row of one scoring."""
    row, scoring = PAGES[name], name.partition("_")[2] or "dot"
    letters = {x: row.axes[x].replace("h", "s") for x in ("q", "k", "v", *row.extras)}

    def make(rng):
        size = sizes(rng, "bqksrdec" + "f" * (scoring == "nonlinear")) | {"1": 1}
        return {**{x: normal(rng, letters[x], size) for x in letters}, **maybe(rng, size | {"h": size["s"]})}

    forward, backward = of_page(row.forward, row.backward, row.extras)
    naive, _ = of_page(loops.compositional, None, row.extras, scoring=scoring)
    return Case(f"attention/{name}", "C, eq. (7)-(13)", "attention/compositional.py", make, forward, backward, naive,
                constants=("dropout",), axes={**letters, **PAIRS, "output": "bqse"}, independent="bq",
                symmetric="bqksrdec", masked="zero")


def layer(name, scoring, *, cross=False, read=None, **fields) -> Case:
    """Compositional: self- or cross-attention, some queries only, without biases."""
    one = Compositional(8, 3, 4, 4, 2, 5, scoring, **fields)
    return attending(f"layers/Compositional {name}", one, "attention/compositional.py",
                     partial(loops.layer, scoring=scoring), "C, eq. (7)-(14)", cross=cross, read=read,
                     pairs="bstk" if cross else "bstt")


def attention(scoring):
    """The layer of a network and its heads or searches; softmax attention where scoring is None."""
    return MultiHead(8, 3, 4, 2) if scoring is None else Compositional(8, 3, 4, 4, 2, 5, scoring)


def retrieval_network(name, scoring, own=2, read=None) -> Case:
    """The one-layer network, with and without its own value."""
    def make(rng):
        size = sizes(rng, "bt", 5) | {"i": 4}
        dropout = dropout_for(rng, size)
        return {"x": normal(rng, "bti", size), "dropout": None if dropout is None else dropout[0]}

    return row(f"models/RetrievalNetwork {name}", RetrievalNetwork(4, attention(scoring), own),
               "models/contextual_retrieval.py", make, partial(network, scoring=scoring), read=read,
               source="C, appendix C.1", constants=("dropout",), symmetric="b" if read else "bt",
               axes={"x": "bti", "dropout": "bstt", "output": "bto"})


def shared(name, scoring, *, read=None, **fields) -> Case:
    """The weight-shared transformer, two applications."""
    model = universal(attention(scoring), FeedForward(8, 9, "relu"), 2, inputs=4, outputs=2, **fields)
    naive = partial(naive_universal.universal, scoring=scoring, layers=2, norm=model.stack.block.norm,
                    table=model.embedding.table)
    return row(f"models/Universal {name}", model, "models/transformer.py", tokens, naive, read=read,
               source="C, section 4", constants=("dropout",),
               symmetric="b" if read or model.embedding.table != "none" else "bt",
               axes={"x": "bti", "dropout": "bstt", "output": "bto"})


def rows():
    """All rows of this file."""
    yield from (page(name) for name in PAGES if name.startswith("compositional"))
    yield from (layer(scoring, scoring) for scoring in SCORINGS)
    yield layer("dot across", "dot", cross=True)
    yield layer("dot read", "dot", read=slice(1, 3))
    yield layer("nonlinear across, read", "nonlinear", cross=True, read=slice(2, None))
    yield layer("dot without biases", "dot", biases=False)
    yield layer("linear, biases of the selector only", "linear", biases=False, selector_biases=True)
    yield retrieval_network("dot", "dot")
    yield retrieval_network("softmax", None)
    yield retrieval_network("dot read, without own value", "dot", own=0, read=slice(1, 3))
    yield shared("dot, pre, image table", "dot", table="image")
    yield shared("softmax, post, interleaved table, norm", None, norm="post", table="interleaved", final_norm=True)
    yield shared("nonlinear, pre, halves, read", "nonlinear", table="halves", read=slice(-1, None))
    yield shared("dot, post, read", "dot", norm="post", read=slice(1, 3))
