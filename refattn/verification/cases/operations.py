"""Rows for contractions, the pairs of `ops`, losses and rotary positions."""

from functools import partial

import numpy as np

from ... import losses, ops
from ...contract import contract
from ...layers.positions import Rotary
from ..naive import losses as naive_losses
from ..naive import ops as naive_ops
from ..naive import positions as naive_positions
from .case import DRAWS, Case, named, normal, shape, sizes, told


def op(name, forward, backward, naive, output, *, source="", file="ops.py", constants=(), independent="", symmetric="",
       analytic=True, smallest=2, **inputs) -> Case:
    """A row for a function of arrays.  `inputs` maps name -> letters, or (letters, draw) with draw(rng, size) -> array.

    `forward` and `naive` take the inputs as keywords; `backward(saved, doutput)` returns gradients in their order.
    """
    letters = {n: x if isinstance(x, str) else x[0] for n, x in inputs.items()}

    def make(rng):
        size = sizes(rng, "".join(dict.fromkeys("".join(letters.values()))), smallest)
        return {n: normal(rng, x, size) if isinstance(x, str) else x[1](rng, size) for n, x in inputs.items()}

    return Case(name, source, file, make, lambda x: forward(**x),
                lambda saved, dy: named(inputs, backward(saved, dy)), lambda x: naive(**x), constants=constants,
                axes={**letters, "output": output}, independent=independent, symmetric=symmetric, analytic=analytic,
                settings=told(**forward.keywords) if isinstance(forward, partial) else "")


def maybe(probability, draw):
    """A draw that gives None now and then."""
    return lambda rng, size: draw(rng, size) if rng.random() < probability else None


def elementwise(name) -> Case:
    """A row for f(x) and f_backward(x, dy)."""
    f, f_backward = getattr(ops, name), getattr(ops, f"{name}_backward")
    return op(f"ops/{name}", lambda x: (f(x), x), lambda x, dy: [f_backward(x, dy)], getattr(naive_ops, name), "btm",
              x="btm", independent="btm", symmetric="btm", analytic=name != "gelu_exact")


def contraction(spec, order=None) -> Case:
    """A row for contract(spec, a, b), whose backward is the same letters rearranged."""
    a_letters, b_letters, y = spec.replace("->", ",").split(",")

    def backward(saved, dy):
        a, b = saved
        return contract(f"{y},{b_letters}->{a_letters}", dy, b), contract(f"{a_letters},{y}->{b_letters}", a, dy)

    def loops(a, b):
        size = dict(zip(a_letters + b_letters, a.shape + b.shape, strict=True))
        result = np.zeros([size[x] for x in y], dtype=np.result_type(a, b))
        for place in np.ndindex(*size.values()):
            at = dict(zip(size, place, strict=True))
            result[tuple(at[x] for x in y)] += (a[tuple(at[x] for x in a_letters)] * b[tuple(at[x] for x in b_letters)])
        return result

    def forward(a, b):
        return contract(spec, a, b, order=order), (a, b)

    return op(f"contract/{spec}" + (f" as {order}" if order else ""), forward, backward, loops, y,
              file="contract.py", a=a_letters, b=b_letters, symmetric="".join(dict.fromkeys(a_letters + b_letters)),
              independent="".join(x for x in y if x in a_letters and x in b_letters))


def softmax(axis, **inputs) -> Case:
    """A row for softmax along one axis of (b, h, q, k)."""
    def forward(s, keep=None):
        a = ops.softmax(s, keep, axis)
        return a, a

    def naive(s, keep=None):
        return np.moveaxis(naive_ops.softmax(np.moveaxis(s, axis, -1), keep), -1, axis)

    others = "".join(x for x in "bhqk" if x != "bhqk"[axis])
    return op(f"ops/softmax of axis {axis}", forward, lambda a, da: [ops.softmax_backward(a, da, axis)], naive, "bhqk",
              s=beside(1000, "bhqk"), **inputs, independent=others, symmetric="bhqk")


def rms_head(s, epsilon):
    """a, and what the backward needs."""
    a, rho = ops.rms_head(s, epsilon=epsilon)
    return a, (a, rho)


def beside(number, form):
    """Numbers beside 1,000, whose exponentials overflow, or 30, of which E[x^2] - E[x]^2 loses three digits."""
    return form, lambda rng, size: normal(rng, form, size) + number


def layer_norm(x, scale, shift, epsilon):
    """y, and what the backward needs."""
    y, n, r = ops.layer_norm(x, scale, shift, epsilon)
    return y, (n, r, scale)


def linears_backward(saved, dys):
    """dx, dw, db, du of two maps, the second without a bias."""
    x, w, u = saved
    dx, ((dw, db), (du, _)) = ops.linears_backward(x, (w, u), dys)
    return dx, dw, db, du


def scores(over) -> Case:
    """A row for the scaled and biased scores, in each order of memory."""
    def naive(q, k, bias):
        s = np.array([[[[sum(x * y) for y in k[b, :, h]] for x in q[b, :, h]] for h in range(q.shape[2])]
                      for b in range(len(q))]) / np.sqrt(q.shape[3])
        return s if bias is None else s + bias

    return op(f"ops/scores over {over}", lambda q, k, bias: (ops.scores(q, k, bias, over=over), (q, k, bias)),
              lambda saved, ds: ops.scores_backward(*saved, ds), naive, "bhqk", source="H, eq. (1)", q="bqhd", k="bkhd",
              bias=("bhqk", maybe(0.8, DRAWS["bias"])), independent="b", symmetric="bqkhd")


def tokens(rng, size):
    """Indices into a table of `v` rows, with repetitions."""
    return rng.integers(size["v"], size=(size["b"], size["t"]))


def rows():
    """All rows of this file."""
    specs = "bqhd,bkhd->bhqk", "bhqk,bqke->bqhe", "bqke,hef->bqkhf", "bqkf,bqkhf->bhqk", "bqe,hem->bqhm"
    dots = "bqhd,qbhd->bqh"
    yield from (contraction(spec) for spec in (*specs, dots))
    yield from (contraction(specs[0], order) for order in ("kbhq", "hbqk"))
    yield contraction(dots, "hbq")
    yield from (elementwise(name) for name in ("relu", "gelu", "gelu_exact", "silu"))
    yield softmax(-1, keep=("bhqk", maybe(0.7, DRAWS["keep"])))
    yield softmax(1)
    yield op("ops/rms_head", partial(rms_head, epsilon=1e-6), lambda saved, da: [ops.rms_head_backward(*saved, da)],
             naive_ops.rms_head, "bhqk", s="bhqk", source="H, section 2.2", independent="bqk", symmetric="bhqk")
    yield op("ops/layer_norm", partial(layer_norm, epsilon=1e-6), lambda saved, dy: ops.layer_norm_backward(*saved, dy),
             naive_ops.layer_norm, "btm", x=beside(30, "btm"), scale="m", shift="m", source="Ba et al. 2016",
             independent="bt", symmetric="btm", smallest=4)
    yield op("ops/linear", lambda x, w, b: (ops.linear(x, w, b), (x, w)), lambda saved, dy: ops.linear_backward(
        *saved, dy), naive_ops.linear, "bthd", x="btm", w="mhd", b="hd", independent="bt", symmetric="btmhd")
    yield op("ops/linears", lambda x, w, b, u: (tuple(ops.linears(x, (w, b), (u, None))), (x, w, u)), linears_backward,
             lambda x, w, b, u: (naive_ops.linear(x, w, b), naive_ops.linear(x, u)), ("bthd", "bthe"),
             x="btm", w="mhd", b="hd", u="mhe", independent="bt", symmetric="btmhde")
    for name, table in ("", "vm"), (" in a large table", ("vm", lambda rng, size: normal(rng, "vm", size | {"v": 70}))):
        yield op(f"ops/embedding{name}", lambda table, index: (ops.embedding(table, index), (table, index)),
                 lambda saved, dy: [ops.embedding_backward(*saved, dy)],
                 lambda table, index: naive_ops.embedding(table, index), "btm", table=table,
                 index=("bt", tokens), independent="bt", symmetric="btm")
    yield from (scores(over) for over in ops.MEMORY)
    yield op("ops/drop", lambda a, dropout: (ops.drop(a, dropout), dropout), lambda dropout, dc: [
        ops.drop(dc, dropout)], lambda a, dropout: a * dropout, "bhqk", a="bhqk",
        dropout=("bhqk", DRAWS["dropout"]), constants=("dropout",), independent="bhqk", symmetric="bhqk")
    yield op("ops/dropped_to_zero", lambda s, keep: (ops.dropped_to_zero(s, keep), keep), lambda keep, ds: [
        ops.dropped_to_zero(ds, keep)], lambda s, keep: np.where(keep, s, 0), "bhqk", s="bhqk",
        keep=("bhqk", DRAWS["keep"]), independent="bhqk", symmetric="bhqk")
    yield op("ops/scatter_slice", lambda x: (x[:, 1:3] * 1, x.shape), lambda shape, dy: [ops.scatter_slice(
        dy, shape, slice(1, 3), axis=1)], lambda x: x[:, 1:3], "bqm", x="btm", independent="b", symmetric="bm")
    yield from loss_rows()
    for pairing in "interleaved", "half":
        yield rotary(pairing)
        yield op(f"positions/rotary of x, {pairing}", partial(turned, pairing=pairing), turned_backward,
                 partial(naive_positions.rotary, pairing=pairing), "bthd", source="Su et al. 2024",
                 file="layers/positions.py", x=("bthd", lambda rng, size: normal(rng, "bthd", size | {"d": 8})),
                 independent="bh", symmetric="bh")


def loss(name, symmetric, **inputs) -> Case:
    """A row for a loss, which returns its value and the gradient of its first input; upstream is a factor on both."""
    return op(f"losses/{name}", getattr(losses, name), lambda dy, dl: [dy * dl], getattr(naive_losses, name), "",
              file="losses.py", constants=tuple(inputs)[1:], symmetric=symmetric, **inputs)


def uniform(form):
    """A draw of numbers from 0 to 1."""
    return lambda rng, size: rng.random(shape(form, size))


def loss_rows():
    """All losses."""
    weight = ("bt", maybe(0.7, uniform("bt")))
    yield from (loss(name, "btm", y="btm", target="btm") for name in ("mse", "mean_absolute_error"))
    yield loss("sigmoid_mse", "btv", logits="btv", target="btv", weight=weight)
    yield loss("binary_cross_entropy", "btv", logits="btv", target=("btv", uniform("btv")),
               weight=("btv", maybe(0.7, uniform("btv"))))
    yield loss("cross_entropy", "bt", logits="btv", target=("bt", tokens), weight=weight)


def turned(x, pairing):
    """x turned as queries are, and what the backward needs."""
    layer = Rotary(pairing=pairing)
    y, _, _, saved = layer.forward(None, x, x)
    return y, (layer, saved)


def turned_backward(saved, dy):
    """dx of `turned`."""
    layer, inner = saved
    return layer.backward(None, inner, dy, dy, None, None)[:1]


def rotary(pairing) -> Case:
    """A row for rotated queries and keys; head width even, so its sizes are drawn here."""
    layer = Rotary(pairing=pairing)

    def make(rng):
        size = sizes(rng, "bqkh") | {"d": 6 if rng.random() < 0.5 else 8}
        return {"q": normal(rng, "bqhd", size), "k": normal(rng, "bkhd", size)}

    def forward(inputs):
        q, k, _, saved = layer.forward(None, inputs["q"], inputs["k"])
        return (q, k), saved

    def naive(inputs):
        return tuple(naive_positions.rotary(inputs[x], pairing) for x in "qk")

    return Case(f"positions/rotary {pairing}", "Su et al. 2024", "layers/positions.py", make, forward,
                lambda saved, dy: named("qk", layer.backward(None, saved, *dy, None, None)), naive, axes={
                    "q": "bqhd", "k": "bkhd", "output": ("bqhd", "bkhd")}, independent="bh", symmetric="bh")
