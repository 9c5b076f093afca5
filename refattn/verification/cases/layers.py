"""Rows for layers.  Their widths are fixed (m 8, h 3, d 4, e 5 or 2, f 9); batch and lengths are drawn from 5, 6, 7."""

from functools import partial

from ... import params
from ...attention import VARIANTS
from ...attention.layer import MultiHead
from ...layers.block import NORMS, Block
from ...layers.feed_forward import FeedForward, SwiGLU
from ...layers.mixture_of_experts import MixtureOfExperts
from ...layers.norm import LayerNorm
from ...layers.positions import T5, Rotary
from ...layers.recompute import recompute
from ...params import view
from ...xp import array_module
from ..naive import block as naive_block
from ..naive import feed_forward as naive_feed_forward
from ..naive import layer as naive_layer
from ..naive import ops as naive_ops
from ..naive import positions as naive_positions
from ..naive import transformer as naive_transformer
from .attention import loops as definition
from .case import Case, dropped, maybe, normal, sizes, told

MASKS = {"bias": "bhtt", "keep": "bhtt", "dropout": "bhtt"}


def pair(layer, **fixed):
    """(forward, backward) of a layer as functions of a dict of inputs; `fixed` options go into every forward.

    backward takes `start`, a flat array that the parameter gradients are added to (zeros when None).
    """
    def forward(inputs):
        arrays = dict(inputs)
        flat = arrays.pop("parameters")
        p = view(flat, layer.parameters())
        y, saved = layer.forward(p, *([arrays.pop("x")] if "x" in arrays else []), **arrays, **fixed)
        return y, (flat, p, saved)

    def backward(saved, dy, start=None):
        flat, p, inner = saved
        total, grads = params.allocate(layer.parameters(), flat.dtype, array_module(flat))
        if start is not None:
            total += start
        dx = layer.backward(p, inner, dy, grads)
        found = dx._asdict() if hasattr(dx, "_asdict") else {"x": dx}
        return {"parameters": total, **{name: g for name, g in found.items() if g is not None}}

    return forward, backward


def of_parameters(layer, f):
    """f(p, **inputs) as a function of a dict of inputs, among them the layer's `parameters`, which are flat."""
    def run(inputs):
        arrays = dict(inputs)
        return f(view(arrays.pop("parameters"), layer.parameters()), **arrays)

    return run


def random_parameters(rng, layer):
    """Random values for every parameter, biases and scales too."""
    flat, _ = params.allocate(layer.parameters(), "float64")
    params.initialise(flat, layer.parameters(), rng, scheme="random")
    return flat


def row(name, layer, file, make, naive, *, source="H, released code", read=None, fixed=None, constants=(),
        independent="b", symmetric="b", **facts) -> Case:
    """The row of a layer: `make(rng)` gives its inputs without parameters, `naive(p, **inputs)` its output.

    `read` goes into the forward; the loops compute the whole output, of which the same slice is taken.  Entries of the
    batch are independent and can be permuted, and nothing else is or can, unless told.
    """
    fixed = (fixed or {}) | ({} if read is None else {"read": read})

    def everything(rng):
        return {"parameters": random_parameters(rng, layer), **make(rng)}

    def views(flat):
        return view(flat, layer.parameters())

    def loops(p, **arrays):
        y = naive(p, **arrays)
        return y if read is None else y[:, read]

    forward, backward = pair(layer, **fixed)
    return Case(name, source, file, everything, forward, backward, of_parameters(layer, loops), constants,
                independent=independent, symmetric=symmetric, layer=layer, settings=told(layer, **fixed), views=views,
                read=read, recomputed=pair(recompute(layer), **fixed), **facts)


def attention_inputs(cross=False):
    """rng -> x, a context where `cross`, and perhaps bias, keep and dropout, for three heads."""
    def make(rng):
        size = sizes(rng, "btk", 5) | {"m": 8, "h": 3}
        size |= {"q": size["t"], "k": size["k" if cross else "t"]}
        context = {"context": normal(rng, "bkm", size)} if cross else {}
        return {"x": normal(rng, "btm", size), **context, **maybe(rng, size)}

    return make


def attending(name, layer, file, naive, source, make=None, *, cross=False, read=None, ordered=False,
              pairs=None) -> Case:
    """The row of an attention layer, `ordered` where it tells positions apart; `pairs` are the axes of its masks."""
    symmetric = "b" if read or ordered else "btk" if cross else "bt"
    masks = dict.fromkeys(MASKS, pairs or ("bhtk" if cross else "bhtt")) | ({"context": "bkm"} if cross else {})
    return row(name, layer, file, make or attention_inputs(cross), naive, source=source, read=read,
               constants=("dropout",), masked="" if read else "gradient", symmetric=symmetric,
               axes={"x": "btm", "output": "btm", **masks})


def multi_head(name, variant, *, cross=False, read=None, pairing=None, biases=True) -> Case:
    """MultiHead around a page: self- or cross-attention, some queries only, rotary positions, no biases."""
    position = None if pairing is None else Rotary(pairing=pairing)
    layer = MultiHead(8, 3, 4, 5 if pairing is None else 2, variant=variant, position=position, biases=biases)
    loops, extras = definition(VARIANTS[variant]), VARIANTS[variant].extras
    turn = None if pairing is None else partial(naive_positions.rotary, pairing=pairing)
    naive = partial(naive_layer.multi_head, page=loops, extras=extras, position=turn)
    return attending(f"layers/MultiHead {name}", layer, "attention/layer.py", naive, "H, section 2.1", cross=cross,
                     read=read, ordered=bool(pairing))


def only_x(rng):
    """x, and nothing beside it."""
    return {"x": normal(rng, "btm", sizes(rng, "bt", 5) | {"m": 8})}


def position_wise(name, layer, file, naive, **facts) -> Case:
    """A layer that acts at every position alone; `facts` are those of `row`, such as its source."""
    return row(f"layers/{name}", layer, file, only_x, naive, independent="bt", symmetric="bt",
               axes={"x": "btm", "output": "btm"}, analytic=getattr(layer, "activation", "") != "gelu_exact", **facts)


def t5(bidirectional) -> Case:
    """The bias table: no input but its parameters."""
    layer = T5(3, 8, 16, bidirectional)
    return row(f"positions/T5{' in both directions' * bidirectional}", layer, "layers/positions.py", lambda rng: {},
               lambda p: naive_positions.t5_bias(p.table, 5, 21, 16, bidirectional),
               source="H, released code; Raffel et al. 2020", fixed={"queries": 5, "keys": 21}, independent="",
               symmetric="")


def block(name, variant, bidirectional=False) -> Case:
    """One pre-LN block with a T5 table."""
    layer = Block(MultiHead(8, 3, 4, 2, variant=variant), FeedForward(8, 9), T5(3, 10, 10, bidirectional), epsilon=1e-6)

    def make(rng):
        size = sizes(rng, "bt", 5) | {"m": 8, "h": 3}
        size |= {"q": size["t"], "k": size["t"]}
        return {"x": normal(rng, "btm", size), **maybe(rng, size, ("keep", "dropout"))}

    naive = partial(naive_transformer.block, page=definition(VARIANTS[variant]), bidirectional=bidirectional)
    return row(f"layers/Block {name}", layer, "layers/block.py", make, naive, constants=("dropout",),
               axes={"x": "btm", "output": "btm", **MASKS})


def block_of(norm, *, cross=False, read=None) -> Case:
    """One block under each norm, with attention to a context, dropout of the residual stream, queries that are read."""
    layer = Block(MultiHead(8, 3, 4, 2), FeedForward(8, 9, "relu"), norm=norm, epsilon=1e-5,
                  cross=MultiHead(8, 2, 3) if cross else None)

    def make(rng):
        size = sizes(rng, "btk", 5) | {"m": 8, "h": 3}
        given = maybe(rng, size | {"q": size["t"], "k": size["t"]}, ("keep", "dropout"))
        if cross:
            keep = rng.random((size["b"], 1, 1, size["k"])) < 0.8
            drop = (rng.random((size["b"], 2, size["t"], size["k"])) < 0.75) / 0.75
            given |= {"context": normal(rng, "bkm", size), "context_keep": keep, "context_dropout": drop}
        return {"x": normal(rng, "btm", size), **given, "residual": dropped(rng, 2 + cross, size["b"], size["t"], 8),
                "hidden": dropped(rng, size["b"], size["t"], 9)}

    def naive(p, x, *, keep, dropout, context=None, context_keep=None, context_dropout=None, **factors):
        own = partial(naive_layer.multi_head, keep=keep, dropout=dropout)
        other = partial(naive_layer.multi_head, context=context, keep=context_keep, dropout=context_dropout)
        return naive_block.block(p, x, own, norm=norm, cross=other if cross else None, **factors)

    name = f"layers/Block {norm}{', across' if cross else ''}{'' if read is None else ', read'}"
    return row(name, layer, "layers/block.py", make, naive, read=read, source="Vaswani et al. 2017, section 3",
               constants=("dropout", "context_dropout", "residual", "hidden"),
               axes={"x": "btm", "output": "btm", **MASKS, "residual": "btm", "hidden": "btf",
                     **({"context": "bkm", "context_keep": "bhtk", "context_dropout": "bhtk"} if cross else {})})


def rows():
    """All rows of this file."""
    yield from (t5(bidirectional) for bidirectional in (False, True))
    yield position_wise("LayerNorm", LayerNorm(8), "layers/norm.py", lambda p, x: naive_ops.layer_norm(
        x, p.scale, p.shift), source="Ba et al. 2016")
    for activation in "gelu", "gelu_exact", "relu":
        yield position_wise(f"FeedForward {activation}", FeedForward(8, 9, activation), "layers/feed_forward.py",
                            partial(naive_feed_forward.layer, activation=activation))
    yield position_wise("SwiGLU", SwiGLU(8, 9), "layers/feed_forward.py", lambda p, x: naive_feed_forward.swiglu(
        x, p.wu, p.wg, p.wd))
    for chosen, experts, activation in (2, 5, "gelu"), (1, 3, "relu"), (4, 4, "gelu_exact"):
        yield position_wise(f"MixtureOfExperts, {chosen} of {experts}", MixtureOfExperts(
            8, 9, experts, chosen, activation), "layers/mixture_of_experts.py", partial(
                lambda p, x, k, phi: naive_feed_forward.mixture_of_experts(x, p.wg, p.w1, p.b1, p.w2, p.b2, k, phi),
                k=chosen, phi=activation))
    yield from (multi_head(name, name) for name in VARIANTS)
    yield multi_head("softmax across", "softmax", cross=True)
    yield multi_head("hyla across", "hyla", cross=True)
    yield multi_head("softmax read", "softmax", read=slice(1, 3))
    yield multi_head("softmax read backwards", "softmax", read=slice(None, None, -1))
    yield multi_head("hyla across, read", "hyla", cross=True, read=slice(2, None))
    yield multi_head("softmax rotary", "softmax", pairing="interleaved")
    yield multi_head("hyla rotary read", "hyla", pairing="half", read=slice(2, None))
    yield multi_head("linear without biases", "linear", biases=False)
    yield block("softmax", "softmax")
    yield block("hyla, T5 in both directions", "hyla", bidirectional=True)
    yield from (block_of(norm, cross=cross) for norm in NORMS for cross in (False, True))
    yield block_of("pre", cross=True, read=slice(2, None))
    yield block_of("post", cross=True, read=slice(1, 3))
