"""Which page each kernel of `kernels` is, and which mistakes are put into which kernel.

RIGHT: {name: (page or row, function, arguments that are fixed, options)}; ONLY: the precisions that one is right in.
WRONG: (name of the right kernel, options, its mistakes), a mistake being what is wrong, the lines of which one should
be reported ("2" of the forward, "2b" of the backward, "in" and "out" a layer's maps) and patches of the source text.
HALF: mistakes that were asked in half precision.
"""

from functools import partial

from . import kernels

CAUSAL, BHTD = {"causal": True}, {"layout": "bhtd"}
B, BW, K, D = {"bias": "bhqk"}, {"bias": "bhqw"}, {"keep": "bhqk"}, {"dropout": "bhqk"}
ALL = {"bias": "bhqk", "keep": "b1qk", "dropout": "bhqk"}
STRETCHED = {"bias": "h1k", "keep": "b11k", "dropout": "b1q1", "seed": 3}
CAUSAL_BIAS = {"causal": True, "bias": "b11k", "seed": 5}
HALVES = "bfloat16", "float16"
EQUAL = {"sizes": {"q": 6, "k": 6}}
CHUNKED = {"causal": True, "sizes": {"q": 9, "k": 12}}
TOGETHER = CAUSAL | {"sizes": {"q": 12, "k": 12}}

VARIANTS = {                       # norms, uses of the code, whether there is a relu
    "hyla": (("rms",), 2, True), "linear_rms_head": (("rms",), 1, False),
    "linear_rms_head_relu_values": (("rms",), 1, True), "hyla_no_rms_head": ((), 2, True),
    "hyla_no_nonlinearity": (("rms",), 2, False), "hyla_no_nonlinearity_no_rms_head": ((), 2, False),
    "hyla_softmax_for_rms_head": (("softmax",), 2, True), "hyla_deep": (("rms",), 3, True),
    "hyla_and_softmax": (("softmax", "rms"), 2, True), "hyla_and_softmax_reversed": (("rms", "softmax"), 2, True)}
VARIANTS = {name: dict(zip(("norms", "uses", "relu"), one, strict=True)) for name, one in VARIANTS.items()}
CORES = {"softmax": kernels.flash, "linear": kernels.linear,
         **{name: partial(kernels.codes, **VARIANTS[name]) for name in ("hyla", "hyla_and_softmax", "linear_rms_head")}}
ONES = {"b": 1, "q": 1, "k": 1, "h": 1, "d": 1, "e": 1}
SMALL = {"b": 2, "q": 3, "k": 4, "h": 2, "d": 3, "e": 2}

RIGHT = {
    "tiles": ("softmax", "flash", {}, {}),
    "tiles, all": ("softmax", "flash", {}, ALL),
    "tiles, stretched": ("softmax", "flash", {}, STRETCHED),
    "tiles, causal": ("softmax", "flash", CAUSAL, CAUSAL),
    "powers of two, lse": ("softmax", "flash", {"two": True}, {"bias": "hqk"}),
    "q first scaled": ("softmax", "flash", {"prescaled": True}, ALL),
    "a large negative score": ("softmax", "flash", {"hidden": -1e30, "cols": 2}, {"keep": "qk"}),
    "the smallest number": ("softmax", "flash", {"hidden": -3.4028235e38, "cols": 7},
                            {"keep": "1hqk", "dropout": "h1k"}),
    "later tiles skipped": ("softmax", "flash", CAUSAL | {"skip": True}, CAUSAL | {"keep": "bhqk", "bias": "hqk"}),
    "tiles backwards": ("softmax", "flash", {"backwards": True, "rows": 1, "cols": 2}, {"bias": "b11k", "seed": 5}),
    "a mapping": ("softmax", "flash", {"lse_too": True, "two": True}, {"bias": "q1", "keep": "bhqk"}),
    "300": ("softmax", "flash", {"rows": 128, "cols": 128},
            {"sizes": {"q": 300, "k": 300, "b": 1, "h": 2, "d": 64, "e": 64}}),
    "ones": ("softmax", "flash", {"rows": 2, "cols": 2}, {"sizes": ONES}),
    "one query": ("softmax", "flash", CAUSAL | {"rows": 2, "cols": 2}, CAUSAL | {"sizes": {"q": 1, "k": 7}}),
    "split keys": ("softmax", "split_keys", {}, ALL),
    "split keys, causal": ("softmax", "split_keys", CAUSAL, CAUSAL_BIAS),
    "wide": ("softmax", "wide", {}, ALL),
    "row by row": ("softmax", "row_by_row", CAUSAL, CAUSAL),
    **{f"layout {order}": ("softmax", "in_layout", {"order": order}, {"layout": order, "bias": "hqk", "keep": "qk"})
       for order in ("bhtd", "tbhd", "hbtd", "bhdt", "dthb", "htbd", "btdh")},
    "output only": ("softmax", "output_only", {}, BHTD | B),
    "no maximum": ("softmax", "no_maximum", {}, {}),
    "log-softmax": ("softmax", "log_softmax", {}, {"bias": "hqk"}),
    "dropout in values": ("softmax", "dropout_in_values", {}, {"dropout": "bh1k"}),
    "compressed": ("softmax", "compressed", {}, {"keep": "b11k", "bias": "hqk", "seed": 7}),
    "grouped": ("softmax", "grouped", {}, {"sizes": {"q": 8}}),
    "complex step": ("softmax", "complex_step", {}, {"sizes": SMALL, "bias": "h1k", "keep": "qk", "dropout": "bhqk"}),
    "differences": ("softmax", "differences", {}, {"sizes": SMALL}),
    "naive float16": ("softmax", "naive_float16", {}, ALL | {"naive": True}),
    "naive bfloat16": ("softmax", "naive_bfloat16", {}, {"naive": True, "bias": "hqk"}),
    "two passes": ("softmax", "two_passes", {}, {"sizes": {"d": 64, "e": 64}}),
    "sequential sums": ("softmax", "sequential", {}, {"sizes": {"b": 1, "q": 64, "k": 500, "h": 1, "d": 64, "e": 16}}),
    "linear": ("linear", "linear", {"scaled_keys": True}, ALL),
    "linear, bias apart": ("linear", "linear", {"apart": True}, ALL),
    "linear, thbd": ("linear", "in_layout", {"order": "thbd", "core": kernels.linear},
                     {"layout": "thbd", "bias": "hqk", "keep": "qk"}),
    "keys and values first": ("linear", "products", {}, {"sizes": {"q": 40, "k": 50, "h": 2}}),
    "chunks": ("linear", "chunks", CAUSAL, CAUSAL),
    "chunks, tiles": ("linear", "chunks", CAUSAL, CAUSAL | {"sizes": "tiles"}),
    "running sums": ("linear", "running_sums", CAUSAL, CAUSAL | EQUAL),
    "total less what is before": ("linear", "running_sums", CAUSAL | {"less_before": True},
                                  CAUSAL | {"sizes": {"q": 30, "k": 30, "h": 2, "b": 1}}),
    "chunks with a state": ("linear_state", "state_chunks", {}, {}),
    "chunks with a state, token by token": ("linear_state", "state_chunks", {"size": 1, "mapping": True}, {}),
    "chunks with a state, 8": ("linear_state", "state_chunks", {"size": 8}, {}),
    "output and end": ("linear_state", "output_and_end", {}, {}),
    "chunks with a state, tiles": ("linear_state", "state_chunks", {"size": 32}, {"sizes": "tiles"}),
    **{name: (name, "codes", fixed, ALL) for name, fixed in VARIANTS.items()},
    "hyla, causal": ("hyla", "codes", CAUSAL | VARIANTS["hyla"], CAUSAL_BIAS),
    "hyla, one head": ("hyla", "codes", VARIANTS["hyla"], {"sizes": {"h": 1, "d": 1}, "keep": "qk", "bias": "hqk"}),
    "hyla, 300 heads": ("hyla", "codes", VARIANTS["hyla"], {"sizes": {"h": 300, "d": 2, "e": 2, "b": 1}}),
    "hyla, tiles": ("hyla", "codes", VARIANTS["hyla"], {"sizes": "tiles"}),
    "a matrix for each pair": ("hyla", "matrix_for_each_pair", CAUSAL, D | CAUSAL),
    "unscaled": ("hyla", "unscaled", {}, {"keep": "qk"}),
    "hyla, key tiles": ("hyla", "key_tiles_of_hyla", {}, B | D),
    "products of codes": ("hyla_no_nonlinearity_no_rms_head", "products_of_codes", {}, B),
    "dot": ("compositional", "compositional", {"loops": True}, {}),
    "dot, causal": ("compositional", "compositional", CAUSAL | {"loops": True}, CAUSAL),
    "dot, all": ("compositional", "compositional", {}, ALL),
    "dot, one of each": ("compositional", "compositional", {}, {"sizes": {"c": 1, "d": 1, "e": 1}}),
    "dot, one key": ("compositional", "compositional", {"loops": True}, {"sizes": {"k": 1, "e": 33}}),
    "dot, bhtd": ("compositional", "compositional_bhtd", {}, {"layout": "bhtd", "keep": "qk", "bias": "hqk"}),
    "joined": ("compositional_linear", "compositional", {"scoring": "linear"}, {}),
    "joined, causal": ("compositional_linear", "compositional", CAUSAL | {"scoring": "linear"},
                       CAUSAL_BIAS | {"seed": 257734}),
    "two maps": ("compositional_nonlinear", "compositional", {"scoring": "nonlinear"}, {"seed": 20}),
    "two maps, all": ("compositional_nonlinear", "compositional", {"scoring": "nonlinear"}, ALL),
    "gathered": ("sliding_dilated", "gathered", {}, {"bias": "bhqw", "keep": "b1qw", "dropout": "h1w"}),
    "gathered, one query": ("sliding_dilated", "gathered", {}, {"sizes": {"q": 1}}),
    "dense windows": ("sliding_dilated", "dense_windows", {}, {"bias": "bhqw", "keep": "b1qw", "dropout": "h1w"}),
    "pads": ("sliding_dilated_pad", "gathered", {}, {"bias": "hqw"}),
    "pads, dense": ("sliding_dilated_pad", "dense_windows", {}, {"keep": "qw"}),
    "pads, tiles": ("sliding_dilated_pad", "gathered", {}, {"sizes": "tiles"}),
    **{f"layer norm, {form}{', layer' * layer}": ("layers/LayerNorm" if layer else "ops/layer_norm", "layer_norm",
                                                 {"form": form}, {})
       for form in ("running", "one pass", "one product") for layer in (False, True)},
    "rms_head": ("ops/rms_head", "rms_alone", {}, {}),
    "exp(s - lse) of keys": ("ops/softmax of axis -1", "softmax_by_lse", {}, {}),
    "exp(s - lse) of heads": ("ops/softmax of axis 1", "softmax_by_lse", {"axis": 1}, {}),
    "gelu": ("ops/gelu", "gelu", {}, {}), "silu": ("ops/silu", "silu", {}, {}),
    "dense": ("ops/linear", "dense", {}, {}), "embedding": ("ops/embedding", "embedding", {}, {}),
    "scores": ("ops/scores over k", "scores", {}, {}),
    **{f"feed forward, {kind}": (f"layers/FeedForward {kind}", "feed_forward", {"kind": kind}, {})
       for kind in ("gelu", "gelu_exact", "relu")},
    "swiglu": ("layers/SwiGLU", "swiglu", {}, {}),
    **{f"experts, {name}": (f"layers/MixtureOfExperts, {name}", "experts", {"top": int(name[0]), "kind": kind}, {})
       for name, kind in (("2 of 5", "gelu"), ("1 of 3", "relu"), ("4 of 4", "exact"))},
    **{f"context norm {n}": (f"layers/ContextNorm in {n}", "context_norm", {"segments": n}, {}) for n in (1, 2, 3)},
    **{f"packed, {name}": (f"layers/MultiHead {name}", "packed", {"core": core}, {}) for name, core in CORES.items()},
    "packed, rotary": ("layers/MultiHead softmax rotary", "packed", {"core": kernels.rotary}, {}),
    "compositional layer": ("layers/Compositional dot", "compositional_layer", {}, {}),
    "sliding layer": ("layers/SlidingDilated pad", "sliding_layer", {}, {}),
    "cross-entropy": ("losses/cross_entropy", "cross_entropy", {}, {}),
    "cross-entropy, online": ("losses/cross_entropy", "cross_entropy_online", {}, {}),
    "bce": ("losses/binary_cross_entropy", "binary_cross_entropy", {}, {}),
    "mse": ("losses/mse", "mse", {}, {}), "mae": ("losses/mean_absolute_error", "mean_absolute_error", {}, {}),
    "sigmoid mse": ("losses/sigmoid_mse", "sigmoid_mse", {}, {}),
}
ONLY = {"complex step": ("float64",), "differences": ("float32",), "naive float16": ("float16",),
        "naive bfloat16": ("bfloat16",)}
ONLY |= dict.fromkeys(("no maximum", "the smallest number", "total less what is before", "a matrix for each pair"),
                      ("float64", "float32"))
for half in HALVES:                # what is stored in half precision on the way
    kept = {
        "q": ("softmax", "flash", {"prescaled": True}, ALL), "weights": ("softmax", "flash", {"low": True}, ALL),
        "weights, causal": ("softmax", "flash", {"low": True} | CAUSAL, CAUSAL),
        "all of it": ("softmax", "flash", {"low": True, "prescaled": True, "two": True}, STRETCHED),
        "weights, tiles": ("softmax", "flash", {"low": True, "two": True, "rows": 64, "cols": 64}, {"sizes": "tiles"}),
        "o": ("softmax", "flash", {"lse_too": True, "two": True}, {"bias": "q1", "keep": "bhqk", "seed": 318624}
              if half == "bfloat16" else {"bias": "bhq1", "keep": "bhqk", "seed": 1}),
        "every product": ("softmax", "unfused", {}, {"bias": "hqk", "keep": "qk"}),
        "linear": ("linear", "linear", {}, ALL),
        "naive linear": ("linear", "linear", CAUSAL, CAUSAL_BIAS | {"naive": True}),
        "code": ("hyla", "codes", VARIANTS["hyla"], ALL),
        "every value of hyla": ("hyla", "hyla_stored", {}, {"naive": True, "bias": "hqk"}),
        "compositional": ("compositional", "compositional", {}, ALL),
        "windows": ("sliding_dilated", "gathered", {}, {"bias": "bhqw", "keep": "b1qw", "dropout": "h1w"})}
    RIGHT |= {f"{name} in {half}": (page, function, fixed | {"half": half}, options)
              for name, (page, function, fixed, options) in kept.items()}
    ONLY |= {f"{name} in {half}": (half,) for name in kept}



def then(*lines):
    """A patch: `lines` after flash has its options in full."""
    old = "    qs, rest ="
    return old, "".join(f"    {line}\n" for line in lines) + old


def factor(text):
    """A patch: RMSHead of the codes by a factor of its own."""
    old = "        kept.append((a, factor))"
    return old, f"        x = np.where(seen, s, 0)\n        factor = {text}\n        a = x * factor\n{old}"


DK = "dk[:, :, j] += ds.swapaxes(2, 3) @ qs[:, :, i] * rest"
SCALE = "scale = D ** -0.5"
AGAIN = "s, seen = tile(i, j)\n            p = np.where(seen, exp(s - shift[:, :, i]), 0)"
DS = "ds = p * (dp - delta[:, :, i])"
STRICT = "the causal mask without the query's own key", "2", ("<= np.arange", "< np.arange")
DBIAS = "(o, dq, dk, dv)), dbias, bias)"
NO_DELTA = "delta missing", "2b", (DS, "ds = p * dp")
NO_RESCALE = "the accumulator is not rescaled", "2 4", ("acc * alpha", "acc")
DK_UNSCALED = "dk not scaled", "1b", (DK, DK.replace(" * rest", ""))
RHO, RMS = "rms_backward(a, factor, ds)", "rms(np.where(seen, a, 0))\n"
DETACHED = "rho detached", "3b", (RHO, "factor * ds")
EPSILON = "epsilon 1e-5", "3", (RMS, RMS.replace("))", "), 1e-5)"))
KEY = '"bqsc,bqsrc->bqsr", selector, key) / root'
KEY_UNSCALED = "no 1 / sqrt(c) in the forward", "5", (KEY, KEY.replace(" / root", ""))
BIASED = "(s if bias is None else s + bias)"
UNMASKED = f"{BIASED} * (1 if dropout is None else dropout)"
DV_UNMASKED = "dv from weights that are not masked", ('einsum("bhqk,bqhe->bkhe", c, do)',
                                                     f'einsum("bhqk,bqhe->bkhe", {UNMASKED}, do)')
DSELECTOR = "dselector not scaled", "5b", ('"bqsr,bqsrc->bqsc", dl, key) / root', '"bqsr,bqsrc->bqsc", dl, key)')
NO_DROPOUT = "dropout missing in da", "3b", ("da = dc if dropout is None else dc * dropout", "da = dc")
DT, DWR = "        dt = dt + dkey @ wr.T\n", 'einsum("bqsre,bqsrc->ec", t, dkey),'
NEW, OLD = 'S = S + einsum("bkhd,bkhe->bhde", k[:, j], v[:, j])', 'G = G + einsum("bqhd,bqhe->bhde", q[:, i], do[:, i])'
NEW_I, STARTS = NEW.replace("j]", "i]"), "    for i, j in places[::-1]:\n"
SEEN, DPADS = "None if pad else at >= 0", "{}[:, :front].sum((0, 1))"
READ = '"bqhd,bhde->bqhe", qs[:, i], S)'
NORM = [
    ("epsilon outside the root", "1", ("1 / np.sqrt(var + 1e-6)", "1 / (np.sqrt(var) + 1e-6)")),
    ("the term n mean(dn n) missing", "1b", (" - n * (dn * n).sum(-1, keepdims=True)", "")),
    ("dscale from x in place of n", "2b", ("(do * n).sum(axes)", "(do * x).sum(axes)"))]
UNBIASED = [("the variance divided by one less", "1", ("True) / M\n    if", "True) / (M - 1)\n    if"))]
BIASES = "the means of dbq, dbk and dbv over tokens", "in", ("dP.sum(0)", "dP.mean(0)")
LN, BY_COUNT = "layer norm, running", "the gradient divided by the count, not the weights' sum"

WRONG = [
    ("tiles", B, [
        NO_RESCALE, NO_DELTA, DK_UNSCALED,
        ("the denominator is not rescaled", "2", ("l = l * alpha +", "l = l +")),
        ("the lse lacks the logarithm of the sum", "2b", ("+ log(l)", "+ 0 * l")),
        ("dq not scaled", "1b", ("kh[:, :, j] * scale", "kh[:, :, j]")),
        ("the last partial tile of keys is ignored in all passes", "2 4", ("(0, K, cols)", "(0, K - K % cols, cols)")),
        ("the last tile of keys is ignored in the backward", "1b 4b 2b", (
            "    for j in key_tiles:\n        for i in", "    for j in key_tiles[:-1]:\n        for i in")),
        ("dk is set, not added to", "1b", ("dk[:, :, j] +=", "dk[:, :, j] =")),
        ("dq is set, not added to", "1b", ("dq[:, :, i] +=", "dq[:, :, i] =")),
        ("dv is set, not added to", "4b", ("dv[:, :, j] +=", "dv[:, :, j] =")),
        ("the bias is scaled too", "1", ("biases[:, :, i, j] * log2e", "biases[:, :, i, j] * scale")),
        ("the sign of delta", "2b", (DS, "ds = p * (dp + delta[:, :, i])")),
        ("delta is a mean over features", "2b", ("stored(o, half)).sum(", "stored(o, half)).mean(")),
        ("the output is reshaped, not transposed", "4", (
            "    delta =", "    o = o.reshape(B, Q, H, E).swapaxes(1, 2)\n    delta =")),
        ("1 / d for 1 / sqrt(d)", "1", (SCALE, "scale = 1 / D")),
        ("1 / sqrt(e) for 1 / sqrt(d)", "1", (SCALE, "scale = E ** -0.5")),
        ("the last partial tile of queries is ignored in all passes", "2 3 4", (
            "(0, Q, rows)", "(0, Q - Q % rows, rows)")),
        ("all gradients half as large", "4b 2b", then("doh = doh * 0.5")),
        ("the bias's heads in reverse", "1", then("biases = biases[:, ::-1]")),
        ("the bias of the first head for all", "1", then("biases = np.broadcast_to(biases[:, :1], shape)")),
        ("the bias of the first sequence for all", "1", then("biases = np.broadcast_to(biases[:1], shape)")),
        ("keys of the sequence before", "1", then("kh = np.roll(kh, 1, 0)")),
        ("values of the neighbouring head", "4", then("vh = np.roll(vh, 1, 1)")),
        ("dk summed over the batch", "1b", (
            DK, f"{DK.replace('ds.swap', '(ds.swap')}).sum(0, keepdims=True)")),
        ("dk of the query before", "1b", ("ds.swapaxes(2, 3) @ qs[", "ds.swapaxes(2, 3) @ np.roll(qs, 1, 2)[")),
        ("the backward's scores lack the bias", "1b 2b", (
            "exp(s - shift[:, :, i])", "exp(s - biases[:, :, i, j] - shift[:, :, i])")),
        ("powers of two of natural scores", "2", ("(1.0, np.exp, np.log)", "(1.0, np.exp2, np.log2)")),
        ("never divided by the sum", "2", ("acc / np.where(l == 0, 1, l)", "acc")),
    ]),
    ("powers of two, lse", B, [
        ("a natural logarithm beside powers of two", "2b", ("(LOG2E, np.exp2, np.log2)", "(LOG2E, np.exp2, np.log)")),
        ("log2(e) left in dk", "1b", (DK, f"{DK} * log2e")),
    ]),
    ("q first scaled", B, [("dk scaled twice", "1b", (DK, DK.replace("rest", "scale")))]),
    ("tiles", ALL, [
        ("dropout forgotten in the forward", "3", ("factor(c) @ vh", "factor(p) @ vh")),
        ("dv from weights before the dropout", "4b 3b", ("factor(c).swapaxes", "factor(p).swapaxes")),
        ("dropout missing in dp", "3b", ("dp = dp * drops[:, :, i, j]", "pass")),
        ("the dropout is not divided by what is kept", "3", then("drops = (drops > 0).astype(q.dtype)")),
        ("the dropout of the first head for all", "3", then("drops = np.broadcast_to(drops[:, :1], shape)")),
    ]),
    ("tiles, causal", CAUSAL, [
        STRICT,
        ("the causal mask counts from the first key", "2 1", ("[i, None] + K - Q)", "[i, None])")),
        ("no causal mask in the backward", "2b", (
            AGAIN, "p = exp(qs[:, :, i] @ kh[:, :, j].swapaxes(2, 3) * rest - shift[:, :, i])")),
    ]),
    ("tiles", {"bias": "h1k"}, [("dbias is a mean over what it is stretched over", "1b", (
        DBIAS, "(o, dq, dk, dv)), dbias / (B * Q), bias)"))]),
    ("tiles", {"bias": "hqk"}, [("dbias of the first sequence", "1b", (
        DBIAS, "(o, dq, dk, dv)), dbias[:1], bias)"))]),
    ("a large negative score", {"keep": "qk"}, [("a query that keeps nothing gets a mean of v in the forward", "2", (
        "p = np.where(seen, exp(s - safe), 0)", "p = exp(s - safe)"))]),
    ("tiles", EQUAL | B, [("dq and dk are exchanged", "1b", (DBIAS, "(o, dk, dq, dv)), dbias, bias)"))]),
    ("tiles", EQUAL | B | D, [("the dropout is transposed", "3", then("drops = drops.swapaxes(2, 3)"))]),
    ("tiles", EQUAL | B | K, [("keep is transposed", "2", then("kept = kept.swapaxes(2, 3)"))]),
    ("tiles", B | K, [
        ("keep is added to the scores", "2", (
            "seen = True if keep is None else kept[:, :, i, j]", "seen, s = True, s + kept[:, :, i, j]")),
        ("keep is inverted", "2", then("kept = ~kept")),
    ]),
    ("split keys", B, [
        ("a plain mean of the parts", "2", (
            "share / np.where(total == 0, 1, total)", "np.ones_like(share) / len(share)")),
        ("the lse is the largest part's", "2b", ("lse = top + np.log(total)", "lse = top + 0 * total")),
        ("the last part is lost in the forward", "2", ("if len(j)]", "if len(j)][:-1]")),
    ]),
    ("wide", ALL, [("delta from what is before the dropout", "2b", ("(a * da).sum(", "(a * dc).sum("))]),
    ("wide", B, [
        ("softmax over queries", "2", ("e.sum(-1, keepdims=True)", "e.sum(-2, keepdims=True)")),
        ("dv from the scores without bias", "4b", (
            "gradients(ds, c, q, k, do, scale)",
            'gradients(ds, einsum("bqhd,bkhd->bhqk", q, k) * scale, q, k, do, scale)')),
        ("scores capped softly at 30 in the forward", "1 2", (
            "    e = np.exp(s)", "    s = np.tanh(s / 30) * 30\n    e = np.exp(s)")),
        ("1 is added to the denominator", "2", ("e.sum(-1, keepdims=True)", "e.sum(-1, keepdims=True) + 1")),
    ]),
    ("wide", D, [("made to sum to 1 again after the dropout", "3 4", (
        'o = einsum("bhqk,bkhe->bqhe", c, v)',
        'kept = c.sum(-1, keepdims=True)\n    o = einsum("bhqk,bkhe->bqhe", c / np.where(kept == 0, 1, kept), v)'))]),
    ("grouped", {"sizes": {"q": 8}}, [("heads of queries go round the heads of keys", "1 4 1b 4b", (
        "k.repeat(2, 2), v.repeat(2, 2)", "np.concatenate([k, k], 2), np.concatenate([v, v], 2)"))]),
    ("chunks", CHUNKED, [
        ("the state is never carried on", "2 4", (f"        {NEW}\n", "")),
        ("the mask of a chunk lacks the query's own key", "2", ("j.start, dtype", "j.start, k=-1, dtype")),
        ("dq without what the state gives", "1b 2b", (
            'dq[:, i] = einsum("bqhe,bhde->bqhd", do[:, i], S) + ', "dq[:, i] = ")),
        ("the gradient of the state is never carried back", "1b 4b", (f"        {OLD}\n", "")),
        ("the gradient of the state is added to before it is read", "1b 4b", (f"        {OLD}\n", ""), (
            STARTS, f"{STARTS}        {OLD}\n")),
    ]),
    ("chunks", CAUSAL, [
        ("scores and dk not scaled", "1", ("    q = q * scale\n", "")),
        ("keys before the first query are not in the state", "2", (
            'S = einsum("bkhd,bkhe->bhde", k[:, :before]', 'S = 0 * einsum("bkhd,bkhe->bhde", k[:, :before]')),
    ]),
    ("chunks", TOGETHER, [("the state is set, not added to", "2", (NEW, NEW.replace("S + ", "")))]),
    ("running sums", CAUSAL | EQUAL, [
        ("running sums without the query's own key", "2", ("S = np.cumsum(kv, 1)", "S = np.cumsum(kv, 1) - kv")),
        ("the backward's sums run forwards", "1b 4b 2b", ("np.cumsum(qdo[:, ::-1], 1)[:, ::-1]", "np.cumsum(qdo, 1)")),
        ("the backward's sums lack the key's own query", "1b 4b 2b", (
            "np.cumsum(qdo[:, ::-1], 1)[:, ::-1]", "np.cumsum(qdo[:, ::-1], 1)[:, ::-1] - qdo")),
    ]),
    ("linear", ALL, [
        ("keep missing in the backward", "2b", (
            "do, v) * w\n", "do, v) * (1 if dropout is None else dropout)\n")),
        (DV_UNMASKED[0], "4b", DV_UNMASKED[1]),
    ]),
    ("linear", B, [
        ("weights divided by a sum in the forward", "2 3", (
            '    o = einsum("bhqk,bkhe->bqhe", c, v)\n', '    c = c / (np.abs(c).sum(3, keepdims=True) + 1)\n'
            '    o = einsum("bhqk,bkhe->bqhe", c, v)\n')),
        ("nothing is scaled", "1", ("scale = q.shape[3] ** -0.5", "scale = 1.0")),
        ("dbias is scaled", "1b", (", ds, bias)", ", ds * scale, bias)")),
        ("relu of the scores", "2", (f"{BIASED} * w", f"np.maximum({BIASED}, 0) * w")),
    ]),
    ("hyla", B, [
        DETACHED, EPSILON,
        ("epsilon outside the root", "3", factor("1 / (np.sqrt((x * x).mean(1, keepdims=True)) + 1e-6)")),
        ("no epsilon", "3", (RMS, RMS.replace("))", "), 1e-12)"))),
        ("a sum over heads for the mean", "3", factor("1 / np.sqrt((x * x).sum(1, keepdims=True) + 1e-6)")),
        ("a mean over keys for that over heads", "3", factor("1 / np.sqrt((x * x).mean(3, keepdims=True) + 1e-6)")),
        ("RMSHead's backward with a sum for the mean", "3b", (
            RHO, "factor * (ds - a * (a * ds).sum(1, keepdims=True))")),
        ("rho missing in the backward", "3b", (RHO, "rms_backward(a, 1, ds)")),
        ("the first use of the code detached", "5b", ('dA = dA + einsum("bqke,bkhe->bqkh", dz, v)', "pass")),
        ("the second use of the code detached", "5b 7b", ("dA = dA + einsum", "dA = einsum")),
        ("the backward without relu", "6b", ("stored(phi_backward(z, dg), half)", "dg")),
        ("dv from what is before relu's backward", "5b", ('"bqkh,bqke->bkhe", A, dz', '"bqkh,bqke->bkhe", A, dg')),
        ("relu's backward by the sign of its gradient", "6b", ("phi_backward(z, dg)", "phi_backward(dg, dg)")),
        ("relu forgotten in the forward and in dc", "6 7", ("last = g\n", "last = z\n")),
        ("silu for relu in the forward", "6", ("np.maximum(x, 0) if relu", "x / (1 + np.exp(-x)) if relu")),
        ("dg is a mean over heads", "7b", ("dg = A @ do\n", "dg = A @ do / A.shape[3]\n")),
        ("the bias is added before the scale", "1", ("0, 2, 3, 1) * scale", "0, 2, 3, 1)"), (
            "    seen = seen_by", "    s = s * scale\n    seen = seen_by")),
    ]),
    ("hyla", ALL, [("dropout in the first use of the code only", "7", (
        "o = A.swapaxes(2, 3) @ last", "o = a.swapaxes(1, 2) @ last"))]),
    ("hyla", B | K, [
        ("keep after RMSHead in the forward", "2 3", ("a, kept = np.where(seen, s, 0), []", "a, kept = s, []"), (
            RMS, "rms(a)\n        a = np.where(seen, a, 0)\n")),
        ("keep missing in the backward", "2b", (
            "        ds = np.where(seen, ds, 0)\n    ds = np.where(seen, ds, 0)\n", "")),
    ]),
    ("unscaled", {}, [
        ("epsilon not scaled", "3", ("1e-6 * q.shape[3]", "1e-6")),
        ("no epsilon", "3", ("1e-6 * q.shape[3]", "0")),
        ("the absolute value for relu in the forward", "6", ("(z + np.abs(z)) / 2", "np.abs(z)")),
    ]),
    ("hyla_deep", B, [
        ("wv2 is transposed in the forward", "6", ("bqkhe,hef->bqkf", "bqkhe,hfe->bqkf")),
        ("dwv2 is transposed", "6b", ("(*found, dwv2)", "(*found, dwv2.swapaxes(1, 2))")),
        ("the middle use of the code detached", "7b", ("dA = dA + (t * g[:, :, :, None, :]).sum(-1)", "pass")),
        ("the second relu forgotten", "8", ("last = phi(z2)", "last = z2")),
        ("dg without the code", "7b 6b", ("dg = (t * A[..., None]).sum(3)", "dg = t.sum(3)")),
    ]),
    ("linear_rms_head_relu_values", B, [("dv without relu's backward", "9b", (
        'phi_backward(v, einsum("bhqk,bqhe->bkhe", c, do))', 'einsum("bhqk,bqhe->bkhe", c, do)'))]),
    ("hyla_softmax_for_rms_head", B, [("softmax over heads in the forward", "2", (
        "softmax(a, seen)", "softmax(a, seen, 1)"))]),
    ("dot, all", B, [
        KEY_UNSCALED, DSELECTOR,
        ("softmax over searches in place of retrievals", "6", ("l.max(-1,", "l.max(-2,"), ("e.sum(-1,", "e.sum(-2,")),
        ("1 / sqrt(e) for 1 / sqrt(c)", "5", ("sqrt(selector.shape[3])", "sqrt(v.shape[3])")),
        ("value scores detached from the retrievals", "5b", (DT, "")),
        ("dt without its second use", "7b", ("dt = g[..., None]", "dt = 0 * g[..., None]")),
        ("dwr of the first search", "5b", (DWR, DWR.replace("t, dkey", "t[:, :, :1], dkey[:, :, :1]"))),
        ("delta of the softmax over retrievals missing", "6b", ("dg - (do * o).sum(-1)[..., None]", "dg")),
        ("a mean over retrievals in place of their sum", "7", ("* t).sum(3)", "* t).mean(3)")),
    ]),
    ("dot, all", {}, [
        ("gradients of retrievals and of wr not scaled", "5b", ("dl, selector) / root", "dl, selector)")),
        ("dwr not scaled", "5b", (DWR, DWR.replace(")", ") * root"))),
    ]),
    ("dot, all", ALL, [NO_DROPOUT]),
    ("dot, all", B | {"sizes": {"q": 5, "h": 5}}, [("the selector with searches for queries", "5", (
        "    s = einsum", "    selector = selector.swapaxes(1, 2)\n    s = einsum"))]),
    ("joined", B, [("the joined weights in the wrong order", "5", ("[wc, wr]", "[wr, wc]"))]),
    ("joined", {}, [("value scores detached from the retrievals", "5b", ("dt = dt + dl[..., None] * wr", "pass"))]),
    ("joined", D, [NO_DROPOUT]),
    ("two maps", B, [
        ("the backward of the value scores without relu", "5b", ("second[0] * (z > 0)", "second[0]")),
        ("tanh for relu in the forward", "5", ("np.maximum(z, 0)", "np.tanh(z)")),
        ("dw2 from what is before relu", "5b", ('"bqsr,bqsrf->f", dl, inside', '"bqsr,bqsrf->f", dl, z')),
    ]),
    ("two maps", {}, [("value scores detached from the retrievals", "5b", ("dt = dt + dz @ wr.T", "pass"))]),
    ("gathered", BW, [
        ("offsets from 1", "1", ("2 * np.arange(W)", "2 * (np.arange(W) + 1)")),
        ("dilation 1", "1", ("2 * np.arange(W)", "np.arange(W)")),
        ("offset_bias in reverse in the forward", "2", ("offset_bias[:, None]", "offset_bias[:, None, ::-1]")),
        ("offset_bias is scaled in the forward", "2", ("offset_bias[:, None]", "offset_bias[:, None] * scale")),
        ("what is before the first key reads it", "4", (SEEN, "None")),
        ("queries at the first positions", "1", (" + k.shape[1] - Q", "")),
        ("of several uses of one key dk has one", "1b", (
            "np.add.at(dk, (slice(None), index), einsum(", "dk[:, index] += (einsum(")),
        ("doffset_bias is scaled", "2b", ("ds.sum((0, 2))", "ds.sum((0, 2)) * scale")),
        ("negative places count from the end", "4 1 6", ("np.maximum(at, 0)", "at"), (SEEN, "None")),
    ]),
    ("gathered", {}, [("dk not scaled", "1b", ("low, q) * scale", "low, q)"))]),
    ("pads", BW, [
        ("pad_k is taken as zero", "1", ("np.broadcast_to(pad_k", "0 * np.broadcast_to(pad_k")),
        ("pad_v is taken as zero", "6", ("np.broadcast_to(pad_v", "0 * np.broadcast_to(pad_v")),
        ("dpad_v is a mean over the batch", "6b", (DPADS.format("dv"), "dv[:, :front].sum(1).mean(0)")),
        ("dpad_k of the nearest pads", "1b", (DPADS.format("dk"), "dk[:, front - 2:front].sum((0, 1))")),
        ("pads are masked", "4", (SEEN, "at >= 0")),
    ]),
    ("chunks with a state, 8", {}, [
        ("the state is read without the scale", "5", (READ, READ.replace("qs", "q"))),
        ("the end without the state that came in", "6", (NEW_I, NEW_I.replace("S + ", ""))),
    ]),
    ("chunks with a state, token by token", {}, [("the state is added to before it is read", "2 5", (
        READ, READ.replace("S)", 'S + einsum("bkhd,bkhe->bhde", k[:, i], v[:, i]))')))]),
    ("chunks with a state", {}, [
        ("the gradient of the end is ignored", "4b 6b", ("np.zeros_like(v), dend", "np.zeros_like(v), 0 * dend")),
        ("dstate without dend", "6b", ("dk, dv, G\n", 'dk, dv, einsum("bqhd,bqhe->bhde", qs, do)\n')),
        ("dk without what comes by the state", "4b", ('einsum("bhde,bkhe->bkhd", G, v[:, i]) + ', "")),
        ("the state is set, not added to", "4 6", (NEW_I, NEW_I.replace("S + ", ""))),
        ("no causal mask within a chunk in the forward", "2", ("* mask(i)\n        o[", "\n        o[")),
    ]),
    (LN, {}, [*NORM, ("the mean is not subtracted", "1", ("n = (x - mean) * r", "n = x * r")),
              ("mean(dn) missing", "1b", ("M * dn - dn.sum(-1, keepdims=True)", "M * dn"))]),
    (f"{LN}, layer", {}, [*NORM, ("the shift is scaled too", "2", ("n * scale + shift\n", "(n + shift) * scale\n")),
                          ("dscale is not summed over positions", "2b", ("(do * n).sum(axes)", "(do * n).sum(0)"))]),
    ("layer norm, one product", {}, UNBIASED), ("layer norm, one product, layer", {}, UNBIASED),
    ("cross-entropy", {}, [
        (BY_COUNT, "3b 1b", ("g *= (w / w.sum())", "g *= (w / w.size)")),
        ("the loss is a mean over all, not over the weights", "3", ("* w).sum() / w.sum()", "* w).mean()")),
        ("the sign of the target", "1b", ("g[at] -= 1", "g[at] += 1")),
        ("do is ignored", "1b", ("[:, None] * do", "[:, None]")),
        ("the largest logit is not added back", "2", ("lse - X[at]", "lse - top - X[at]")),
    ]),
    ("feed forward, gelu", {}, [
        ("GELU's slope without that of tanh", "2b", ("dh = da * slope", "dh = da * a / drops / h")),
        ("db1 from what is before the slope", "1b", ("dh.sum(0)", "da.sum(0)")),
    ]),
    ("feed forward, relu", {}, [("b1 is forgotten", "1", ("X @ w1 + b1", "X @ w1"))]),
    ("swiglu", {}, [("gate and up are exchanged", "1 2", ("g, u = np.split", "u, g = np.split"))]),
    ("packed, softmax", {}, [
        BIASES,
        ("q and k are exchanged where the product is split", "in 1", ("q, k, v = (x", "k, q, v = (x")),
        ("dwo with features for heads", "out", ("(o.reshape(B * T, -1).T", "(o.swapaxes(2, 3).reshape(B * T, -1).T")),
        ("bo is added for every head", "out", ("@ Wo + bo", "@ Wo + H * bo")),
        ("dx without the way by the values", "in", ("dx = dP @ W.T", "dx = dP[:, :2 * H * D] @ W.T[:2 * H * D]")),
        ("dbo is a mean over tokens", "out", ("DO.sum(0))", "DO.mean(0))")),
        ("dwq, dwk and dwv are means over tokens", "in", ("X.T @ dP, dP", "X.T @ dP / len(dP), dP")),
    ]),
    ("packed, linear", {}, [BIASES]),
    ("packed, hyla", {}, [("bv is forgotten in the forward", "in", ("(bq, bk, bv)]", "(bq, bk, 0 * bv)]"))]),
    ("embedding", {}, [("of several uses of one row the last", "1b", (
        "for at in np.ndindex(*index.shape):\n        dtable[index[at]] += do[at]", "dtable[index] += do"))]),
    # rows whose lines are not searched
    ("context norm 1", {}, [("the variance divided by the number, not one less", "2", ("ddof=1, ", ""))]),
    ("experts, 2 of 5", {}, [
        ("softmax before the choice", "2", (
            "g = e / e.sum()", "g = e / np.exp(logits - logits[chosen].max()).sum()")),
        ("the gate detached", "2b 1b 5b", ("dl = g *", "dl = 0 * g *")),
    ]),
    ("bce", {}, [(BY_COUNT, "3b 4b", ("* w / w.sum() * do", "* w / w.size * do"))]),
    ("mse", {}, [("the gradient lacks its 2", "2b", ("2 * (y", "(y"))]),
    ("mae", {}, [("the gradient of the sum", "3b", (" / y.size * do", " * do"))]),
    ("sigmoid mse", {}, [
        ("the sigmoid's slope missing", "1b", ("(p - target) * p * (1 - p)", "(p - target)")),
        ("the gradient is not divided by the number of logits", "4b", (" / p.shape[-1]", "")),
    ]),
]

HALF = [
    ("weights", B, [DK_UNSCALED, NO_RESCALE, NO_DELTA]), ("weights, causal", CAUSAL, [STRICT]),
    ("code", B, [DETACHED, EPSILON]), ("compositional", B, [KEY_UNSCALED]),
    ("linear", ALL, [(DV_UNMASKED[0], "4b 2b 3b", DV_UNMASKED[1])]),
]

GIVEN_AS = [                       # right kernels of another page: what is said of them, page, kernel, options, lines
    ("softmax for RMSHead", "hyla", "hyla_softmax_for_rms_head", B, "2 3"),
    ("RMSHead before softmax", "hyla_and_softmax", "hyla_and_softmax_reversed", B, "2"),
    ("RMSHead where there is none", "hyla_no_rms_head", "hyla", B, "3 4"),
    ("GELU by tanh", "layers/FeedForward gelu_exact", "feed forward, gelu", {}, "2"),
    ("linear attention", "layers/MultiHead softmax", "packed, linear", {}, "2"),
]
