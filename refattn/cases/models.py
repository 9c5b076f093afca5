"""Rows for whole networks: m 8, h 3, d 4, e 2, f 9, two blocks; continuous tokens of width 4, or 10 token ids."""

from functools import partial

from ..attention.layer import MultiHead
from ..feed_forward import FeedForward
from ..models.transformer import Block, Transformer
from ..naive import transformer as naive_transformer
from ..positions import T5
from .case import Case, normal, sizes
from .layers import row

LAYERS = 2


def dropout_for(rng, size):
    """One array for each block, or None."""
    shape = LAYERS, size["b"], size["h"], size["t"], size["t"]
    return (rng.random(shape) < 0.75) / 0.75 if rng.random() < 0.7 else None


def transformer(name, variant, *, vocabulary=None, tied=False, causal=False, read=None, activation="gelu") -> Case:
    """A model around any variant, with T5 tables; tokens are continuous unless a vocabulary is given."""
    block = Block(MultiHead(8, 3, 4, 2, variant=variant), FeedForward(8, 9, activation), T5(3, 10, 10))
    model = Transformer(block, LAYERS, outputs=2, inputs=None if vocabulary else 4, vocabulary=vocabulary, tied=tied,
                        causal=causal)

    def make(rng):
        size = sizes(rng, "bt", 5) | {"i": 4, "h": 3}
        x = rng.integers(vocabulary, size=(size["b"], size["t"])) if vocabulary else normal(rng, "bti", size)
        return {"x": x, "dropout": dropout_for(rng, size)}

    naive = partial(naive_transformer.transformer, variant=variant, causal=causal, activation=activation)
    return row(f"models/Transformer {name}", model, "models/transformer.py", make, naive, read=read,
               source="H, appendix C", constants=("dropout",), independent="b", symmetric="b",
               axes={"x": "bt" if vocabulary else "bti", "dropout": "bhtt", "output": "bto"},
               analytic=activation != "gelu_exact")


def rows():
    """All rows of this file."""
    yield transformer("softmax", "softmax")
    yield transformer("linear, causal", "linear", causal=True)
    yield transformer("hyla, read", "hyla", read=slice(-1, None))
    yield transformer("hyla, token ids", "hyla", vocabulary=10)
    yield transformer("softmax, token ids, tied, causal", "softmax", vocabulary=10, tied=True, causal=True)
    yield transformer("hyla, relu, read of a part", "hyla", activation="relu", read=slice(1, 3))
