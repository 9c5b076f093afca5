"""Rows for networks of width 8 and two blocks, f 9: a decoder, h 3, d 4, e 2, and an encoder with its decoder."""

from functools import partial

from ...attention import VARIANTS
from ...attention.layer import MultiHead
from ...layers.block import Block
from ...layers.embedding import Embedding, Readout
from ...layers.feed_forward import FeedForward
from ...layers.stack import Stack
from ...models.encoder_decoder import EncoderDecoder
from ...models.transformer import decoder
from ..naive import block as naive_block
from ..naive import transformer as naive_transformer
from .attention import loops
from .case import Case, dropped, normal, sizes
from .layers import row

LAYERS = 2


def dropout_for(rng, size):
    """One array for each block, or None."""
    return dropped(rng, LAYERS, size["b"], 3, size["t"], size["t"])


def tokens(rng, vocabulary=None):
    """Continuous tokens of width 4, or token ids; dropout for each block, or None."""
    size = sizes(rng, "bt", 5) | {"i": 4}
    x = rng.integers(vocabulary, size=(size["b"], size["t"])) if vocabulary else normal(rng, "bti", size)
    return {"x": x, "dropout": dropout_for(rng, size)}


def transformer(name, variant, *, vocabulary=None, tied=False, causal=False, read=None, activation="gelu") -> Case:
    """A model around any variant, with T5 tables; tokens are continuous unless a vocabulary is given."""
    model = decoder(MultiHead(8, 3, 4, 2, variant=variant), hidden=9, layers=LAYERS, buckets=10, outputs=2,
                    feed_forward=FeedForward(8, 9, activation), inputs=None if vocabulary else 4,
                    vocabulary=vocabulary, tied=tied, causal=causal)
    naive = partial(naive_transformer.transformer, page=loops(VARIANTS[variant]), causal=causal, activation=activation)
    return row(f"models/Transformer {name}", model, "models/transformer.py", partial(tokens, vocabulary=vocabulary),
               naive, read=read, source="H, appendix C", constants=("dropout",),
               axes={"x": "bt" if vocabulary else "bti", "dropout": "bhtt", "output": "bto"})


def encoder_decoder(name, *, tied=False, read=None, **norms) -> Case:
    """Two stacks of two blocks, the second one attending to the first one's output."""
    def stack(norm, cross=None):
        block = Block(MultiHead(8, 2, 4), FeedForward(8, 9, "relu"), norm=norm, cross=cross, epsilon=1e-5)
        return Stack(block, 2, final_norm=norm == "pre")

    model = EncoderDecoder(Embedding(8, vocabulary=5), stack(norms["encoder_norm"]), Embedding(8, vocabulary=6),
                           stack(norms["decoder_norm"], MultiHead(8, 3, 4)), Readout(8, 6 if tied else 3, tied))

    def make(rng):
        size = sizes(rng, "bst", 4)
        keep = rng.random((size["b"], 1, 1, size["s"])) < 0.7
        source, target = (rng.integers(n, size=(size["b"], size[t])) for n, t in ((5, "s"), (6, "t")))
        drop = {"source_dropout": dropped(rng, *source.shape, 8), "target_dropout": dropped(rng, *target.shape, 8)}
        return {"x": source, "target": target, "source_keep": keep if rng.random() < 0.7 else None, **drop}

    naive = partial(naive_block.encoder_decoder, **norms)
    return row(f"models/EncoderDecoder {name}", model, "models/encoder_decoder.py", make, naive, read=read,
               source="Vaswani et al. 2017, section 3", constants=("source_dropout", "target_dropout"),
               axes={"x": "bs", "target": "bt", "source_keep": "bhts", "source_dropout": "bsm", "target_dropout": "btm",
                     "output": "bto"})


def rows():
    """All rows of this file."""
    yield transformer("softmax", "softmax")
    yield transformer("linear, causal", "linear", causal=True)
    yield transformer("hyla, read", "hyla", read=slice(-1, None))
    yield transformer("hyla, token ids", "hyla", vocabulary=10)
    yield transformer("softmax, token ids, tied, causal", "softmax", vocabulary=10, tied=True, causal=True)
    yield transformer("hyla, relu, read of a part", "hyla", activation="relu", read=slice(1, 3))
    yield encoder_decoder("post", encoder_norm="post", decoder_norm="post")
    yield encoder_decoder("pre, tied, read", encoder_norm="none", decoder_norm="pre", tied=True, read=slice(2, None))
