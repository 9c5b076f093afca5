"""Rows for sliding-dilated attention: the page, the layer (m 8, h 3, d 4, e 2, w 3) and the models around it."""

from functools import partial

from ...attention.layer import MultiHead
from ...attention.pages import PAGES
from ...attention.sliding_dilated import SlidingDilated
from ...attention.transformer_xl import TransformerXL
from ...layers.feed_forward import FeedForward
from ...models.recurrent import Recurrent, linear_scan, linear_scan_backward
from ...models.regular_gpt import RegularGPT
from ...models.transformer import post_norm
from ..naive import recurrent
from ..naive import regular_gpt as whole
from ..naive import sliding_dilated as loops
from ..naive import transformer_xl as xl
from .case import Case, maybe, named, normal, of_page, sizes
from .layers import attending, row

PAIRS = dict.fromkeys(("bias", "keep", "dropout"), "bhqw")


def page(name, row, **fixed) -> Case:
    """The row of one semantics of what is out of range, at a dilation; the queries at `read` or at the last keys."""
    letters = {x: row.axes[x] for x in ("q", "k", "v", *row.extras)}

    def make(rng):
        size = sizes(rng, "bhdew") | dict(zip("qk", sorted(rng.permutation(range(2, 9))[:2]), strict=True))
        if "read" in fixed:
            size |= {"k": 7, "q": len(range(7)[fixed["read"]])}
        drawn = {x: normal(rng, letters[x], size) for x in letters}
        drawn["offset_bias"][:, 1] = drawn["q"][:, 1] = 0           # legal values: neither is a mask
        return {**drawn, **maybe(rng, size | {"k": size["w"]})}

    forward, backward = of_page(row.forward, row.backward, row.extras, **fixed)
    return Case(f"attention/{name}", "R, eq. (1)", "attention/sliding_dilated.py", make, forward, backward,
                lambda inputs: loops.sliding_dilated(**inputs, **fixed), constants=("dropout",),
                axes={**letters, **PAIRS, "output": "bqhe"}, independent="b", symmetric="bhde", masked="zero")


def pages():
    """Both semantics at dilation 2 as in the table; and undilated as in the tree, far apart, at some positions only."""
    for name in "sliding_dilated", "sliding_dilated_pad":
        yield page(name, PAGES[name], dilation=2)
        for dilation, read in (1, slice(1, None, 3)), (3, slice(2, 5)):
            words = f"{name}, dilation {dilation}, {'every third' if read.step else 'some'} query"
            yield page(words, PAGES[name], dilation=dilation, read=read)


def layer(name, *, read=None, **fields) -> Case:
    """SlidingDilated: with and without pad and biases, some queries only."""
    one = SlidingDilated(8, 3, 4, 3, value_width=2, **fields)

    def make(rng):
        size = sizes(rng, "bt", 5) | {"m": 8, "h": 3, "k": 3}
        return {"x": normal(rng, "btm", size), **maybe(rng, size | {"q": size["t"]})}

    return attending(f"layers/SlidingDilated {name}", one, "attention/sliding_dilated.py",
                     partial(loops.layer, dilation=one.dilation), "R, section 3.1", make, ordered=True, read=read,
                     pairs="bhtw")


def regular_gpt(name, activation="relu", *, released=False, chunk=3, steps=(4, 5, 6, 7), out_of_range="pad",
                fields=None, embedded=False, read=None, **options):
    """RegularGPT: the dense form and the tree, each against loops; `released` loops are the code's tree."""
    attention = SlidingDilated(8, 2, 4, chunk, out_of_range=out_of_range)
    model = RegularGPT(attention, FeedForward(8, 9, activation), 5, 2, **(fields or {}))
    settings = {"chunk": chunk, "norm": model.norm, "activation": activation, "scale": model.embedding_scale}

    def make(rng):
        size = {"b": int(rng.integers(2, 4)), "t": int(rng.choice(steps)), "m": 8}
        ids = rng.integers(5, size=(size["b"], size["t"]))
        return {"x": normal(rng, "btm", size) if embedded else ids}

    def naive(p, x):
        if released:
            return whole.tree(p, x, **settings)
        y = whole.regular_gpt(p, x, **settings, levels=options.get("levels"))
        return y[:, -1:] if options.get("tree") else y

    return row(f"models/RegularGPT {name}", model, "models/regular_gpt.py", make, naive, source="R, section 3",
               read=read, fixed=options, axes={"x": "btm" if embedded else "bt", "output": "bto"})


def regular_gpts():
    """Dense and tree, the released style and GPT-2's, thick and thin, with more levels than needed."""
    pre = {"norm": "pre", "embedding_scale": False}
    yield regular_gpt("dense, released")
    yield regular_gpt("dense, chunk 2", chunk=2, steps=(4, 9))
    yield regular_gpt("dense, mask, pre, two sub-layers, embeddings", "gelu", embedded=True, out_of_range="mask",
                      fields={"thickness": 2, **pre})
    yield regular_gpt("dense, read, recomputed, one level more", read=slice(1, 3), levels=3, fields={"recompute": True})
    yield regular_gpt("dense, no norm, two sub-layers", fields={"norm": "none", "thickness": 2})
    yield regular_gpt("tree, released", released=True, tree=True)
    yield regular_gpt("tree, pre, embeddings", "gelu", tree=True, embedded=True, fields=pre)
    yield regular_gpt("tree, two sub-layers, one level more", tree=True, levels=3, fields={"thickness": 2})
    yield regular_gpt("tree, mask, three sub-layers, no norm", tree=True, out_of_range="mask",
                      fields={"thickness": 3, "norm": "none"})
    yield regular_gpt("tree, one token", tree=True, released=True, steps=(1,))


def relative(name, *, read=None) -> Case:
    """MultiHead with Transformer-XL's scores."""
    one = MultiHead(8, 3, 4, 5, position=TransformerXL(8, 3, 4), biases=read is None)
    return attending(f"layers/MultiHead {name}", one, "attention/transformer_xl.py", xl.layer,
                     "Dai et al. 2019, section 3.3", ordered=True, read=read)


def token_model(name, model, file, naive, source, *, read=None) -> Case:
    """A model of token ids 0 to 4, read at some positions."""
    def make(rng):
        size = sizes(rng, "bt", 4)
        return {"x": rng.integers(5, size=(size["b"], size["t"]))}

    return row(f"models/{name}", model, file, make, naive, read=read, source=source, axes={"x": "bt", "output": "bto"})


def baselines():
    """The networks that RegularGPT is compared with, and the linear recurrence."""
    heads = MultiHead(8, 2, 4, position=TransformerXL(8, 2, 4), biases=False)
    transformer = post_norm(heads, 9, 2, vocabulary=5, outputs=2)
    for words, read in ("", None), (", read", slice(-1, None)):
        yield relative(f"Transformer-XL{words}", read=read and slice(2, 4))
        yield token_model(f"Transformer of R{words}", transformer, "models/transformer.py", xl.baseline,
                          "R, released code", read=read)
        yield token_model(f"Recurrent{words}", Recurrent(6, 5, 2), "models/recurrent.py", recurrent.recurrent,
                          "R, released code; Delétang et al. 2023", read=read)

    def make(rng):
        size = sizes(rng, "bn") | {"t": int(rng.integers(1, 10))}
        return {"a": normal(rng, "btnn", size), "u": normal(rng, "btn", size)}

    yield Case("models/linear_scan", "Martin & Cundy 2018", "models/recurrent.py", make, lambda x: linear_scan(**x),
               lambda saved, dh: named("au", linear_scan_backward(saved, dh)),
               lambda x: recurrent.linear_recurrence(**x), axes={"a": "btnn", "u": "btn", "output": "btn"},
               independent="b", symmetric="bn")


def rows():
    """All rows of this file."""
    yield from baselines()
    yield from regular_gpts()
    yield from pages()
    yield layer("pad", dilation=2)
    yield layer("mask, biases", out_of_range="mask", dilation=2, biases=True)
    yield layer("pad, biases, read", biases=True, read=slice(1, None, 3))
    yield layer("mask, read", out_of_range="mask", dilation=4, read=slice(-1, None))
