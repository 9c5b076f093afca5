"""Rows of a blind trial of refattn.check.derivative: each is a pair, inputs for it and whether it is right. They were
written from the documentation alone, before the function was run or its code was read."""

from typing import Any, NamedTuple

import numpy as np

from . import pairs


class Row(NamedTuple):
    name: str
    build: Any               # gives a new forward and backward
    make: Any                # make(rng) gives inputs
    constants: tuple
    right: bool
    size: float              # how far the worst gradient is off at seed 0, relative to its greatest entry; 0 if right


def normal(scale=1.0, shift=0.0, dtype=float, **shapes):
    return lambda rng: {k: (shift + scale * rng.standard_normal(s)).astype(dtype) for k, s in shapes.items()}


def uniform(low, high, **shapes):
    return lambda rng: {k: rng.uniform(low, high, s) for k, s in shapes.items()}


def both(*makes, **drawn):
    """Several makes in one, and inputs drawn(rng)."""
    def make(rng):
        out = {}
        for m in makes:
            out.update(m(rng))
        out.update({k: d(rng) for k, d in drawn.items()})
        return out
    return make


def given(**arrays):
    return lambda rng: {k: np.array(a) for k, a in arrays.items()}


def integers(high, *shape):
    return lambda rng: rng.integers(0, high, shape)


def bools(rate, *shape):
    return lambda rng: rng.random(shape) < rate


def same(a):
    return lambda rng: np.array(a)


def distribution(*shape):
    return lambda rng: pairs.softmax(rng.standard_normal(shape))


def well_conditioned(*shape):
    return lambda rng: rng.standard_normal(shape) + 3 * np.eye(shape[-1])


def with_zeros(*shape):
    def draw(rng):
        x = rng.standard_normal(shape)
        x[rng.random(shape) < 0.3] = 0
        return x
    return draw


def with_ties(*shape):
    return lambda rng: rng.integers(-2, 3, shape) * 0.5


def empty_rows(*shape):
    def draw(rng):
        mask = rng.random(shape) < 0.6
        mask[..., 1, :] = False
        return mask
    return draw


def sure(n, c, gap):
    """Logits whose row is won by its label by about `gap`."""
    def make(rng):
        z, y = rng.standard_normal((n, c)), rng.integers(0, c, n)
        z[np.arange(n), y] += gap
        return {"logits": z, "labels": y}
    return make


ROWS: list[Row] = []


def add(label, factory, make, slips=(), constants=(), right=True, **options):
    for slip in ([""] if right else []) + list(slips):
        name = f"{label}: {slip}" if slip else label
        ROWS.append(Row(name, lambda f=factory, s=slip, o=options: f(s, **o), make, tuple(constants), not slip,
                        SIZES.get(name, float("nan")) if slip else 0.0))


SIZES: dict[str, float] = {    # measured by JAX in float64 or differences in long double; by algebra where they cannot
    "attention: no row sum": 1.8, "attention: row sum over queries": 3.2, "attention: dk not scaled": 1,
    "attention, great logits: no row sum": 39, "causal attention: mask forgotten": 1.1,
    "causal attention: last key of dk": 0.056, "padded attention: mask after the sum": 0.92,
    "ALiBi: signed distance": 3.8, "ALiBi: sign of slopes": 2, "rotary: turned the same way": 1.1,
    "rotary: angle one position late": 0.87, "grouped queries: one head of each group": 0.84,
    "grouped queries: heads interleaved": 0.92, "linear attention: normaliser constant": 12,
    "linear attention: sum excludes its own step": 7, "gated attention: gate not applied": 0.74,
    "gated attention: gate without 1 - g": 3.6, "sliding window: window one short": 0.92,
    "flash: lse without the last tile": 0.59, "flash: partial tile skipped": 1,
    "flash: dq of the last tile only": 0.93, "sinks: sink's sign": 2, "sinks: sink of the first batch": 0.23,
    "QK norm: no projection": 0.42, "QK norm, small inputs: eps outside": 0.071,
    "soft-capping: cap passed through": 0.8, "soft-capping: 1 - t": 0.32, "mixture: mixture's row sum": 4.5,
    "mixture: key of the first search": 0.68, "top-k: softmax of all": 0.76,
    "differential attention: second map's sign": 2, "differential attention: lam in dv": 0.7,
    "relative bias: repeated entries lost": 0.96, "relative bias: clipped entries lost": 0.7,
    "sigmoid attention: softmax's gradient": 1.1, "attention dropout: scale forgotten": 0.2,
    "attention dropout: dropped map in the softmax": 2.8, "biased attention: bias not summed": 1,
    "biased attention: bias as a mean": 0.67, "biased attention: bias of one row": 1.4,
    "attention block: wo transposed": 1.2, "attention block: x without its values": 0.5,
    "attention block: wk gets dq": 1.9, "delta rule: stale state": 0.16, "delta rule: state not corrected": 0.19,
    "retention: power not lowered": 0.18, "rows that see nothing: NaN in empty rows": float("inf"),
    "attention and entropy: entropy ignored": 1.2, "attention and entropy: entropy's sign": 1.8,
    "attention and choice: ds not transposed": 2.1, "hypernetwork attention: mean over keys": 3.7,
    "attention in float32, wrong: one in a thousand": 0.001, "layer norm: no mean": 0.32,
    "layer norm: gamma without the normalised": 1.9, "layer norm, square: gamma over the last axis": 1,
    "layer norm, far from zero: no mean": 0.41, "mean absolute deviation norm: not centred": 0.11,
    "RMS norm: gain of the last row": 0.98, "RMS norm, 1e-8: eps forgotten": 0.29,
    "RMS norm, 1e+6: gain of the last row": 0.68, "RMS norm, ordinary inputs: eps forgotten": 8.7e-06,
    "group norm: count of all channels": 0.37, "weight norm: no projection": 0.46,
    "batch norm: running variance": 0.4, "batch norm: n - 1": 0.2, "batch norm: statistics constant": 1.6,
    "unit rows: no projection": 1.5, "unit rows, some tiny: clipped rows projected": 0.005,
    "spectral norm: sigma constant": 0.82, "relu: mask of the absolute": 0.97, "relu at zeros: two at zero": 1.5,
    "relu by mask: not masked": 0.97, "leaky relu: zero below": 0.0097, "leaky relu: sign below": 0.019,
    "hard swish: x constant": 0.37, "hard swish at its kinks: x constant": 0.53, "gelu by tanh: factor 3": 0.023,
    "gelu by erf: slope of the approximation": 0.00036, "absolute: no sign": 1.9, "clip: passed through": 0.97,
    "clip: one bound": 0.7, "softplus: sign": 0.98, "softsign: power": 0.46, "mish: inner slope": 0.79,
    "selu: scale below": 0.048, "hard sigmoid: other bound": 0.97, "gradient in float16: one in twenty": 0.05,
    "tanh's gradient in float32: one in twenty": 0.05, "rounding: straight through": 2,
    "prelu: alpha of the positive": 0.45, "prelu: alpha keeps the batch": 1, "swiglu: sigmoid's slope": 0.73,
    "row maximum: the smallest": 1, "row maximum with ties: ones for all ties": 0.12, "max-pool: assigned": 1,
    "sort: the order itself": 1.4, "median, even: one of two": 1, "cross-entropy: not a mean": 5,
    "cross-entropy: the next label": 1, "cross-entropy, smoothed: smoothing over the others": 0.022,
    "cross-entropy, smoothed: smoothing forgotten": 0.088, "cross-entropy, sure rows: not a mean": 3,
    "ignored labels: mean over all": 0.33, "ignored labels: ignored rows counted": 0.98,
    "focal: factor constant": 0.35, "huber: delta forgotten": 0.43, "huber: sign of y": 2,
    "huber at its kink: sign of y": 2, "distillation: T squared": 1, "distillation: no T": 0.5,
    "KL of two: no + 1": 0.36, "logsumexp near 1000: not normalised": 1.7, "logsumexp, 1e+6: not normalised": 1.7,
    "z-loss: mean": 3, "cosine: no projection": 0.19, "BCE with logits: positive weight": 0.67,
    "masked MSE: mean over all": 0.25, "masked MSE: factor 2": 0.5, "MSE, 1e+6: factor 2": 0.5,
    "InfoNCE: second half not transposed": 0.58, "InfoNCE: one direction": 0.32, "Gaussian likelihood: half": 0.076,
    "triplet: margin forgotten": 0.99, "hidden Markov model: first step": 0.58,
    "hidden Markov model: last transition only": 0.92, "variance of moments: n - 1": 0.2,
    "variance of moments: first term only": 700, "LSTM: cell not carried": 0.71, "LSTM: stale cell": 0.51,
    "GRU: reset forgotten": 0.98, "scan: wraps around": 1.6, "scan: decay of the step before": 0.74,
    "state space: step in the decay": 0.31, "state space: softplus": 1.4, "state space: sign of log a": 2,
    "RNN: u not transposed": 1.6, "RNN: truncated": 0.93, "complex recurrence: not conjugated": 0.4,
    "complex recurrence: sign of theta": 2, "conv1d: kernel not flipped": 1.2, "conv1d: b over positions": 0.45,
    "conv2d: assigned": 0.94, "conv2d: w turned": 0.93, "causal depthwise: last tap": 0.22,
    "causal depthwise: last position": 0.36, "average pool: padding counted": 0.15,
    "interpolation: both weights the same": 0.25, "interpolation: sign of the position": 2,
    "embedding: repeated tokens lost": 1.1, "embedding: scale": 0.5, "tied embedding: output only": 1.1,
    "segment mean: count": 1, "gather: put": 0.48, "experts: gate constant": 1, "experts: x without its router": 0.65,
    "inverse: not transposed": 1.2, "inverse: sign": 2, "inverse, batched: not transposed": 0.76,
    "solve: a not transposed": 0.77, "solve: sign": 2, "Cholesky: diagonal not halved": 0.73,
    "Cholesky: not symmetric": 1.3, "determinant: not transposed": 0.83, "log-determinant: factor": 1,
    "matrix exponential: as if it commuted": 0.51, "Frobenius norm: square": 0.74,
    "quadratic form: as if symmetric": 1.4, "largest eigenvalue: half": 0.5, "nuclear norm: transposed": 1.6,
    "Sinkhorn: last round only": 0.11, "Sinkhorn: stale map": 0.0028, "matrix product: w not transposed": 0.8,
    "matrix product: w's gradient transposed": 0.8, "low rank: scale of a": 3,
    "Fourier mixing: inverse transform": 0.95, "long convolution: not conjugated": 1,
    "long convolution: batch of h": 0.67, "power spectrum: factor 2": 0.5, "cube of a 0-d array: factor": 0.33,
    "cube of one entry: factor": 0.33, "square, 1e-8: factor 2": 0.5, "square, 1e+6: factor 2": 0.5,
    "square, great and small: factor 2": 0.5, "log1p, 1e-8: of log": 9.6e+07, "reciprocal, 1e-4: power": 1,
    "square root, 1e-6: half": 1, "product of rows: not divided": 0.96, "added bias: keeps an axis": 0,
    "added bias: a scalar": 0.82, "added bias: the first row": 0.94, "identity and views: view not transposed": 0.64,
    "one array for two gradients: sign": 2, "saved as a NamedTuple: sine": 1.2, "saved as a closure: no square": 2.7,
    "saved as the layer: no slope": 0.47, "in-place backward: factor": 0.67, "accumulating: not cleared": 1,
    "forgotten gradient: scale": 1, "gradient as a list: last entry": 0.42, "one late entry: one entry": 0.096,
    "one late entry: one entry by 1e-4": 5.3e-07, "one late entry: one entry by 1e-7": 5.3e-10,
    "dropout and residual: mask forgotten": 1.5, "dropout and residual: scale": 0.1,
    "dropout and residual: residual": 0.81, "distances: one side": 0.93,
    "inputs in float16: gain of the last row": 0.98, "inputs in float32: no mean": 0.41,
    "inputs in float32, lse: partial tile skipped": 1,
}

qkv = normal(q=(2, 3, 6, 4), k=(2, 3, 6, 4), v=(2, 3, 6, 4))
small = normal(q=(2, 5, 3), k=(2, 5, 3), v=(2, 5, 3))

# ---- attention
add("attention", pairs.attention, qkv, ["no row sum", "row sum over queries", "dk not scaled"])
add("attention, great logits", pairs.attention, normal(6.0, q=(2, 5, 4), k=(2, 5, 4), v=(2, 5, 4)), ["no row sum"])
add("attention, one token", pairs.attention, normal(q=(1, 1, 4), k=(1, 1, 4), v=(1, 1, 4)))
add("attention, no tokens", pairs.attention, normal(q=(2, 0, 4), k=(2, 3, 4), v=(2, 3, 4)))
add("causal attention", pairs.causal_attention, qkv, ["mask forgotten", "last key of dk"])
add("padded attention", pairs.padded_attention, both(small, lengths=same([3, 5])), ["mask after the sum"])
add("ALiBi", pairs.alibi, both(normal(q=(2, 2, 5, 3), k=(2, 2, 5, 3), v=(2, 2, 5, 3)), slopes=same([0.5, 0.25])),
    ["signed distance", "sign of slopes"])
add("rotary", pairs.rotary, normal(q=(2, 6, 4), k=(2, 6, 4)), ["turned the same way", "angle one position late"])
add("grouped queries", pairs.grouped_query, normal(q=(2, 4, 5, 3), k=(2, 2, 5, 3), v=(2, 2, 5, 3)),
    ["one head of each group", "heads interleaved"])
add("linear attention", pairs.linear_attention, normal(q=(2, 5, 3), k=(2, 5, 3), v=(2, 5, 4)),
    ["normaliser constant", "sum excludes its own step"])
add("gated attention", pairs.gated_attention, normal(q=(5, 4), k=(5, 4), v=(5, 4), gate=(5, 4)),
    ["gate not applied", "gate without 1 - g"])
add("sliding window", pairs.sliding_window, qkv, ["window one short"])
add("flash", pairs.flash, normal(q=(2, 10, 4), k=(2, 10, 4), v=(2, 10, 4)),
    ["lse without the last tile", "partial tile skipped", "dq of the last tile only"])
add("sinks", pairs.sinks, both(normal(q=(2, 3, 5, 4), k=(2, 3, 5, 4), v=(2, 3, 5, 4), sink=(3,))),
    ["sink's sign", "sink of the first batch"])
add("QK norm", pairs.qk_norm, both(small, scale=same(2.5)), ["no projection"])
add("QK norm, small inputs", pairs.qk_norm, both(normal(1e-2, q=(4, 3), k=(4, 3)), normal(v=(4, 3)), scale=same(2.5)),
    ["eps outside"])
add("soft-capping", pairs.soft_cap, normal(2.0, q=(2, 5, 3), k=(2, 5, 3), v=(2, 5, 3)), ["cap passed through", "1 - t"])
add("mixture", pairs.mixture, normal(q=(2, 4, 3), k=(2, 4, 3), v=(3, 4, 5), query=(2, 4, 3), key=(3, 3)),
    ["mixture's row sum", "key of the first search"])
add("top-k", pairs.top_k, normal(q=(2, 5, 4), k=(2, 6, 4), v=(2, 6, 4)), ["softmax of all"])
add("differential attention", pairs.differential,
    both(normal(q1=(4, 3), k1=(4, 3), q2=(4, 3), k2=(4, 3), v=(4, 6)), lam=same(0.4)),
    ["second map's sign", "lam in dv"])
add("relative bias", pairs.relative_bias, normal(q=(2, 2, 6, 3), k=(2, 2, 6, 3), v=(2, 2, 6, 3), table=(2, 5)),
    ["repeated entries lost", "clipped entries lost"])
add("sigmoid attention", pairs.sigmoid_attention, small, ["softmax's gradient"])
add("attention dropout", pairs.attention_dropout, both(small, keep=bools(0.8, 2, 5, 5)),
    ["scale forgotten", "dropped map in the softmax"])
add("biased attention", pairs.biased_attention, both(normal(q=(3, 2, 4, 3), k=(3, 2, 4, 3), v=(3, 2, 4, 3),
    bias=(2, 4, 4))),
    ["bias not summed", "bias as a mean", "bias of one row"])
add("attention block", pairs.attention_block,
    both(normal(x=(2, 5, 4)), normal(0.5, wq=(4, 4), wk=(4, 4), wv=(4, 4), wo=(4, 4), bo=(4,))),
    ["wo transposed", "x without its values", "wk gets dq"])
add("delta rule", pairs.delta_rule, both(normal(0.5, q=(6, 3), k=(6, 3), v=(6, 3)), uniform(0.2, 0.9, b=(6,))),
    ["stale state", "state not corrected"])
add("retention", pairs.retention, both(normal(q=(5, 3), k=(5, 3), v=(5, 3)), raw=same(1.5)), ["power not lowered"])
add("rows that see nothing", pairs.masked_rows, both(small, mask=empty_rows(2, 5, 5)), ["NaN in empty rows"])
add("attention and entropy", pairs.attention_and_entropy, small, ["entropy ignored", "entropy's sign"])
ROWS.append(Row("attention and entropy, no +1", lambda: pairs.attention_and_entropy("no +1"), small, (), True, 0.0))
add("attention and choice", pairs.attention_and_choice, small, ["ds not transposed"])
add("hypernetwork attention", pairs.hypernetwork_attention, normal(q=(2, 3, 4, 5), k=(2, 3, 4, 5), v=(2, 3, 4, 5)),
    ["mean over keys"])
add("attention in float32", pairs.single_precision_attention, small)
add("attention in float32, wrong", pairs.single_precision_attention, small, ["one in a thousand"], right=False)

# ---- norms
add("layer norm", pairs.layer_norm, normal(x=(4, 3, 6), gamma=(6,), beta=(6,)),
    ["no mean", "gamma without the normalised"])
add("layer norm, square", pairs.layer_norm, normal(x=(5, 5), gamma=(5,), beta=(5,)), ["gamma over the last axis"])
add("layer norm, far from zero", pairs.layer_norm, both(normal(1.0, 1000.0, x=(4, 6)), normal(gamma=(6,), beta=(6,))),
    ["no mean"])
add("layer norm, one feature", pairs.layer_norm, normal(x=(4, 1), gamma=(1,), beta=(1,)))
add("layer norm, constant rows", pairs.layer_norm, both(normal(gamma=(6,), beta=(6,)), x=same(np.full((3, 6), 0.7))))
add("mean absolute deviation norm", pairs.layer_norm_by_abs2, normal(x=(4, 6)), ["not centred"])
add("RMS norm", pairs.rms_norm, normal(x=(4, 6), gain=(6,)), ["gain of the last row"])
add("RMS norm, 1e-8", pairs.rms_norm, both(normal(1e-8, x=(3, 6)), normal(gain=(6,))), ["eps forgotten"])
add("RMS norm, 1e+6", pairs.rms_norm, both(normal(1e6, x=(3, 6)), normal(gain=(6,))), ["gain of the last row"])
add("RMS norm, ordinary inputs", pairs.rms_norm, normal(x=(4, 6), gain=(6,)), ["eps forgotten"], right=False)
add("group norm", pairs.group_norm, normal(x=(2, 4, 3, 3), w=(4,), b=(4,)), ["count of all channels"])
add("weight norm", pairs.weight_norm, normal(x=(5, 4), v=(3, 4), g=(3,)), ["no projection"])
add("batch norm", pairs.batch_norm,
    both(normal(x=(8, 3), w=(3,), b=(3,)), running_mean=same(np.zeros(3)), running_var=same(np.ones(3))),
    ["running variance", "n - 1", "statistics constant"], constants=("running_mean", "running_var"))
add("unit rows", pairs.unit_rows, normal(x=(5, 4)), ["no projection"])
add("unit rows, some tiny", pairs.unit_rows, both(x=lambda rng: rng.standard_normal((4, 3)) * [[1], [1e-5], [1],
    [1e-4]]),
    ["clipped rows projected"])
add("unit rows, some zero", pairs.unit_rows, both(x=lambda rng: rng.standard_normal((4, 3)) * [[1], [0], [1], [0]]))
add("spectral norm", pairs.spectral_norm, normal(w=(4, 3), u=(4,)), ["sigma constant"])

# ---- activations and kinks
add("relu", pairs.relu, normal(x=(5, 7)), ["mask of the absolute"])
add("relu at zeros", pairs.relu, both(x=with_zeros(5, 7)), ["two at zero"])
for slope in ("half at zero", "one at zero"):
    ROWS.append(Row(f"relu at zeros, {slope}", lambda s=slope: pairs.relu(s), both(x=with_zeros(5, 7)), (), True, 0.0))
add("relu by mask", pairs.relu_by_mask, normal(x=(5, 7)), ["not masked"])
add("leaky relu", pairs.leaky, normal(x=(5, 7)), ["zero below", "sign below"])
add("hard swish", pairs.hard_swish, normal(3.0, x=(5, 7)), ["x constant"])
add("hard swish at its kinks", pairs.hard_swish, given(x=[-4.0, -3.0, -1.0, 0.0, 2.0, 3.0, 5.0]), ["x constant"])
add("gelu by tanh", pairs.gelu_tanh, normal(x=(5, 7)), ["factor 3"])
add("gelu by erf", pairs.gelu_erf, normal(x=(5, 7)), ["slope of the approximation"])
add("absolute", pairs.absolute, normal(x=(5, 7)), ["no sign"])
add("absolute at zeros", pairs.absolute, both(x=with_zeros(5, 7)))
add("clip", pairs.clip, normal(x=(5, 7)), ["passed through", "one bound"])
add("clip at its bounds", pairs.clip, given(x=[-0.5, -0.2, 0.8, 1.2, 0.0, -0.7]))
add("softplus", pairs.softplus, normal(3.0, x=(5, 7)), ["sign"])
add("softsign", pairs.softsign, normal(x=(5, 7)), ["power"])
add("softsign at zeros", pairs.softsign, both(x=with_zeros(5, 7)))
add("mish", pairs.mish, normal(x=(5, 7)), ["inner slope"])
add("selu", pairs.selu, normal(x=(5, 7)), ["scale below"])
add("hard sigmoid", pairs.hard_sigmoid, normal(3.0, x=(5, 7)), ["other bound"])
add("gradient in float32", pairs.hard_tanh_float32, normal(x=(5, 7)))
add("gradient in float16", pairs.rounded_gradient, normal(x=(5, 7)), ["one in twenty"])
add("tanh's gradient in float32", pairs.rounded_gradient, normal(x=(5, 7)), ["one in twenty"], dtype=np.float32)
add("rounding", pairs.straight_through, normal(x=(5, 7)), ["straight through"], right=False)
add("prelu", pairs.prelu, normal(x=(6, 3), alpha=(3,)), ["alpha of the positive", "alpha keeps the batch"])
add("swiglu", pairs.swiglu, normal(x=(4, 3), w1=(3, 5), w2=(3, 5), w3=(5, 3)), ["sigmoid's slope"])
add("row maximum", pairs.row_max, normal(x=(4, 6)), ["the smallest"])
add("row maximum with ties", pairs.row_max, both(x=with_ties(4, 6)), ["ones for all ties"])
ROWS.append(Row("row maximum with ties, the first", lambda: pairs.row_max("the first of ties"), both(x=with_ties(4, 6)),
                (), True, 0.0))
add("max-pool", pairs.max_pool, normal(x=(3, 11)), ["assigned"])
add("max-pool with ties", pairs.max_pool, both(x=with_ties(3, 11)))
add("sort", pairs.weighted_sort, normal(x=(7,)), ["the order itself"])
add("median, even", pairs.median, normal(x=(3, 6)), ["one of two"])
add("median, odd", pairs.median, normal(x=(3, 5)))

# ---- losses
labelled = both(normal(2.0, logits=(6, 5)), labels=integers(5, 6))
add("cross-entropy", pairs.cross_entropy, labelled, ["not a mean", "the next label"])
add("cross-entropy, smoothed", pairs.cross_entropy, labelled, ["smoothing over the others", "smoothing forgotten"],
    smoothing=0.1)
add("cross-entropy, sure rows", pairs.cross_entropy, sure(4, 5, 25), ["not a mean"])
add("cross-entropy, very sure rows", pairs.cross_entropy, sure(4, 5, 40))
add("ignored labels", pairs.ignored_labels, both(normal(logits=(6, 5)), labels=same([1, -100, 3, 0, -100, 4])),
    ["mean over all", "ignored rows counted"])
add("focal", pairs.focal, labelled, ["factor constant"])
add("huber", pairs.huber, normal(x=(12,), y=(12,)), ["delta forgotten", "sign of y"])
add("huber at its kink", pairs.huber, given(x=[0.7, -0.7, 0.0, 2.0], y=[0.0, 0.0, 0.0, 0.0]), ["sign of y"])
add("distillation", pairs.distillation, normal(student=(4, 5), teacher=(4, 5)), ["T squared", "no T"],
    constants=("teacher",))
add("KL of two", pairs.kl_both, both(p=distribution(4, 5), q=distribution(4, 5)), ["no + 1"])
add("logsumexp near 1000", pairs.log_sum_exp, normal(1.0, 1000.0, x=(4, 5)), ["not normalised"])
add("logsumexp, 1e+6", pairs.log_sum_exp, normal(1.0, 1e6, x=(4, 5)), ["not normalised"])
add("z-loss", pairs.z_loss, normal(x=(4, 5)), ["mean"])
add("cosine", pairs.cosine, normal(a=(4, 5), b=(4, 5)), ["no projection"])
add("BCE with logits", pairs.bce_with_logits, both(normal(2.0, x=(8,)), y=lambda rng: (rng.random(8) > 0.5) * 1.0),
    ["positive weight"], constants=("y",))
add("masked MSE", pairs.masked_mse, both(normal(x=(4, 5), y=(4, 5)), mask=bools(0.7, 4, 5)),
    ["mean over all", "factor 2"])
add("MSE, 1e+6", pairs.masked_mse, both(normal(1e6, x=(4, 5), y=(4, 5)), mask=bools(0.7, 4, 5)), ["factor 2"])
add("InfoNCE", pairs.info_nce, both(normal(a=(5, 3), b=(5, 3)), t=same(0.3)),
    ["second half not transposed", "one direction"])
add("Gaussian likelihood", pairs.gaussian_nll, normal(mean=(6,), y=(6,), logvar=(6,)), ["half"])
add("triplet", pairs.triplet, normal(0.7, a=(6, 3), pos=(6, 3), neg=(6, 3)), ["margin forgotten"])
add("hidden Markov model", pairs.hmm, normal(emit=(6, 3), trans=(3, 3)), ["first step", "last transition only"])
add("variance of moments", pairs.variance_of_moments, normal(1.0, 1000.0, x=(3, 6)), ["n - 1", "first term only"])

# ---- recurrent
add("LSTM", pairs.lstm, normal(0.5, x=(4, 2, 3), w=(3, 16), u=(4, 16), b=(16,)), ["cell not carried", "stale cell"])
add("GRU", pairs.gru, normal(0.5, x=(4, 2, 3), h0=(2, 4), wr=(3, 4), wz=(3, 4), wn=(3, 4), ur=(4, 4), uz=(4, 4),
    un=(4, 4)),
    ["reset forgotten"])
add("scan", pairs.scan, both(uniform(0.3, 1.0, a=(7, 3)), normal(x=(7, 3), h0=(3,))),
    ["wraps around", "decay of the step before"])
add("state space", pairs.state_space, both(normal(0.5, x=(5, 3), raw=(5, 3), log_a=(3, 2), b=(5, 2), c=(5, 2),
    skip=(3,))),
    ["step in the decay", "softplus", "sign of log a"])
add("RNN", pairs.rnn, normal(0.5, x=(7, 2, 3), w=(3, 4), u=(4, 4), out=(4, 2)), ["u not transposed", "truncated"])
add("complex recurrence", pairs.complex_recurrence, normal(0.5, x=(6, 3), nu=(3,), theta=(3,), cr=(3,), ci=(3,)),
    ["not conjugated", "sign of theta"])

# ---- convolutions and resampling
add("conv1d", pairs.conv1d, normal(x=(2, 3, 7), w=(4, 3, 3), b=(4,)), ["kernel not flipped", "b over positions"])
add("conv2d", pairs.conv2d, normal(x=(2, 2, 7, 7), w=(3, 2, 3, 3)), ["assigned", "w turned"])
add("causal depthwise", pairs.causal_depthwise, normal(x=(7, 3), w=(4, 3)), ["last tap", "last position"])
add("average pool", pairs.average_pool, normal(x=(3, 8)), ["padding counted"])
add("interpolation", pairs.interpolate, both(normal(x=(7,)), uniform(0.1, 5.9, at=(9,))),
    ["both weights the same", "sign of the position"])

# ---- gather and scatter
add("embedding", pairs.embedding, both(normal(table=(5, 4)), tokens=same([[0, 3, 3], [1, 0, 3]])),
    ["repeated tokens lost", "scale"])
add("tied embedding", pairs.tied_embedding, both(normal(table=(5, 4)), tokens=same([0, 3, 3, 1])), ["output only"])
add("segment mean", pairs.segment_mean, both(normal(x=(7, 3)), segment=same([0, 2, 1, 0, 2, 2, 1])), ["count"])
add("gather", pairs.gather_columns, both(normal(x=(3, 5)), index=same([[0, 0, 4], [1, 2, 3], [2, 2, 2]])), ["put"])
add("experts", pairs.experts, normal(x=(8, 3), w=(3, 3, 4), router=(3, 3)), ["gate constant", "x without its router"])

# ---- matrices
add("inverse", pairs.inverse, both(a=well_conditioned(4, 4)), ["not transposed", "sign"])
add("inverse, batched", pairs.inverse, both(a=well_conditioned(3, 4, 4)), ["not transposed"])
add("solve", pairs.solve, both(normal(b=(4, 3)), a=well_conditioned(4, 4)), ["a not transposed", "sign"])
add("Cholesky", pairs.cholesky, normal(x=(4, 4)), ["diagonal not halved", "not symmetric"])
add("determinant", pairs.determinant, both(a=well_conditioned(4, 4)), ["not transposed"])
add("log-determinant", pairs.log_determinant, both(a=well_conditioned(4, 4)), ["factor"])
add("matrix exponential", pairs.matrix_exponential, normal(0.5, a=(4, 4)), ["as if it commuted"])
add("Frobenius norm", pairs.frobenius, normal(a=(4, 5)), ["square"])
add("quadratic form", pairs.quadratic, normal(x=(4,), a=(4, 4)), ["as if symmetric"])
add("largest eigenvalue", pairs.largest_eigenvalue, normal(a=(4, 4)), ["half"])
add("nuclear norm", pairs.nuclear_norm, normal(a=(4, 4)), ["transposed"])
add("Sinkhorn", pairs.sinkhorn, normal(s=(4, 4)), ["last round only", "stale map"])
add("matrix product", pairs.batched_matmul, normal(x=(4, 3, 3), w=(3, 3)),
    ["w not transposed", "w's gradient transposed"])
add("low rank", pairs.low_rank, both(normal(x=(5, 4), w=(4, 3), a=(2, 3), b=(4, 2)), s=same(0.25)), ["scale of a"])
add("low rank, b = 0", pairs.low_rank, both(normal(x=(5, 4), w=(4, 3), a=(2, 3)), b=same(np.zeros((4, 2))),
    s=same(0.25)))

# ---- Fourier transforms
add("Fourier mixing", pairs.fourier_mixing, normal(x=(3, 4, 5)), ["inverse transform"])
add("long convolution", pairs.long_convolution, normal(x=(3, 8), h=(8,)), ["not conjugated", "batch of h"])
add("power spectrum", pairs.power_spectrum, normal(x=(3, 8)), ["factor 2"])

# ---- shapes, scales, types, objects
add("cube of a 0-d array", pairs.cube_of_scalar, both(x=lambda rng: np.array(rng.uniform(0.5, 2))), ["factor"])
add("cube of one entry", pairs.cube_of_scalar, uniform(0.5, 2, x=(1,)), ["factor"])
add("square of nothing", pairs.square, normal(x=(0, 3)))
add("square, 1e-8", pairs.square, normal(1e-8, x=(3, 4)), ["factor 2"])
add("square, 1e+6", pairs.square, normal(1e6, x=(3, 4)), ["factor 2"])
add("square at zero", pairs.square, given(x=[0.0, 0.0, 0.0]))
add("square, great and small", pairs.square, both(x=lambda rng: rng.standard_normal(6) * 10.0 ** np.arange(-8, 10, 3)),
    ["factor 2"])
add("log1p, 1e-8", pairs.log_of_one_plus, uniform(1e-8, 2e-8, x=(5,)), ["of log"])
add("reciprocal, 1e-4", pairs.reciprocal, uniform(1e-4, 2e-4, x=(5,)), ["power"])
add("square root, 1e-6", pairs.square_root, uniform(1e-6, 2e-6, x=(5,)), ["half"])
add("product of rows", pairs.product, normal(x=(3, 5)), ["not divided"])
add("added bias", pairs.add_bias, both(normal(x=(4, 3), b=(3,)), other=lambda rng: None),
    ["keeps an axis", "a scalar", "the first row"])
add("identity and views", pairs.identity_view, normal(x=(4, 4)), ["view not transposed"])
add("one array for two gradients", pairs.same_twice, normal(a=(3, 4), b=(3, 4)), ["sign"])
add("saved as a NamedTuple", pairs.named_saved, normal(x=(4, 3), w=(3, 5)), ["sine"])
add("saved as a closure", pairs.closure_saved, normal(x=(4, 3), w=(3, 5)), ["no square"])
add("saved as the layer", pairs.layer_object, normal(0.5, x=(4, 3), w=(3, 5)), ["no slope"])
add("in-place backward", pairs.in_place_backward, normal(x=(4, 3)), ["factor"])
add("accumulating", pairs.accumulating, normal(x=(4, 3), w=(3, 5)), ["not cleared"])
add("forgotten gradient", pairs.forgotten_gradient, both(normal(x=(4, 3)), scale=same(1.5)), ["scale"])
add("gradient as a list", pairs.list_gradient, normal(x=(5,)), ["last entry"])
add("one late entry", pairs.one_late_entry, normal(x=(40,)),
    ["one entry", "one entry by 1e-4", "one entry by 1e-7"])
add("dropout and residual", pairs.dropout_and_residual, both(normal(x=(5, 3), w=(3, 3)), keep=bools(0.8, 5, 3)),
    ["mask forgotten", "scale", "residual"])
add("distances", pairs.distances, normal(x=(5, 3)), ["one side"])
add("logits in half precision", pairs.softmax_float16_inside, normal(x=(4, 5)))
add("random forward", pairs.random_forward, normal(x=(5, 7)))
add("inputs in float16", pairs.rms_norm, normal(dtype=np.float16, x=(4, 6), gain=(6,)), ["gain of the last row"])
add("inputs in float32", pairs.layer_norm, normal(dtype=np.float32, x=(4, 6), gamma=(6,), beta=(6,)), ["no mean"])
add("inputs in float32, lse", pairs.flash, normal(dtype=np.float32, q=(2, 7, 4), k=(2, 7, 4), v=(2, 7, 4)),
    ["partial tile skipped"])
