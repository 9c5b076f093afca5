"""Which page each kernel of `kernels` is, and which mistakes are put into which kernel.

RIGHT: {name: (page or row, function, arguments that are fixed, options)}.
WRONG: (name of the right kernel, what is wrong, lines, output, words, patches of the source text).  Lines, output and
words were written before the first run: the lines of which one should be reported, "2" of the forward and "2b" of the
backward, "in" and "out" being a layer's maps; the output that differs first; and a pattern of the words that name the
mistake.  The package's docstring says what of them was corrected since.
ONLY: the precisions in which a mistake is one.
"""

ALL = {"bias": "bhqk", "keep": "bhqk", "dropout": "bhqk"}
CAUSAL = {"causal": True}
BHTD = {"layout": "bhtd"}
FACTOR = r"factor|scale|sqrt|\* ?\d|/ ?\d|\*\* ?-?0?\.5"

A1 = {"linear_rms_head": ("rms", 1, "identity"), "linear_rms_head_relu_values": ("rms", 1, "relu"),
      "hyla_no_rms_head": ("none", 2, "relu"), "hyla_no_nonlinearity": ("rms", 2, "identity"),
      "hyla_no_nonlinearity_no_rms_head": ("none", 2, "identity"), "hyla_softmax_for_rms_head": ("softmax", 2, "relu"),
      "hyla_deep": ("rms", 3, "relu"), "hyla_and_softmax": ("softmax, rms", 2, "relu"),
      "hyla_and_softmax_reversed": ("rms, softmax", 2, "relu")}
A1 = {name: dict(zip(("sigma", "uses", "phi"), knobs, strict=True)) for name, knobs in A1.items()}

RIGHT = {
    "loops": ("softmax", "mha_loops", {}, {}),
    "loops, all": ("softmax", "mha_loops", {}, ALL),
    "loops, bias hqk": ("softmax", "mha_loops", {}, {"bias": "hqk"}),
    "loops, bias b1q1": ("softmax", "mha_loops", {}, {"bias": "b1q1", "dropout": "h1k"}),
    "loops, keep qk": ("softmax", "mha_loops", {}, {"keep": "qk"}),
    "loops, causal": ("softmax", "mha_loops", CAUSAL, CAUSAL),
    "loops, causal, all": ("softmax", "mha_loops", CAUSAL, CAUSAL | ALL),
    "flash": ("softmax", "flash2", {}, {}),
    "flash, lse": ("softmax", "flash2", {"lse_out": True}, {}),
    "flash, all": ("softmax", "flash2", {"lse_out": True}, ALL),
    "flash, bias hqk": ("softmax", "flash2", {}, {"bias": "hqk", "dropout": "bhqk"}),
    "flash, causal": ("softmax", "flash2", CAUSAL, CAUSAL),
    "flash, causal, 2 x 5": ("softmax", "flash2", {"BM": 2, "BN": 5, **CAUSAL}, CAUSAL | {"bias": "h1k"}),
    "flash, large tiles": ("softmax", "flash2", {"BM": 64, "BN": 48}, {"sizes": "tiles"}),
    "flash 1": ("softmax", "flash1", {}, BHTD),
    "flash 1, causal, 3": ("softmax", "flash1", {"BC": 3, **CAUSAL}, BHTD | CAUSAL),
    "packed": ("softmax", "kv_packed", {}, {"layout": "tbhd"}),
    "packed, keep, dropout": ("softmax", "kv_packed", {}, {"layout": "tbhd", "keep": "qk", "dropout": "bhqk"}),
    "bmm": ("softmax", "bmm", {}, BHTD),
    "bmm, all": ("softmax", "bmm", {}, BHTD | {"bias": "hqk", "keep": "b1qk", "dropout": "bhqk"}),
    "bmm, causal": ("softmax", "bmm", CAUSAL, BHTD | CAUSAL),
    "grouped": ("softmax", "grouped", {}, {}),
    "grouped, causal": ("softmax", "grouped", CAUSAL, CAUSAL),
    "feature-major": ("softmax", "feature_major", {}, {"layout": "bhdt"}),
    "feature-major, bias": ("softmax", "feature_major", {}, {"layout": "bhdt", "bias": "b1qk"}),
    "tensor cores": ("softmax", "tensor_cores", {}, {}),
    "tensor cores, bias": ("softmax", "tensor_cores", {}, {"bias": "bhqk"}),
    "merged": ("softmax", "merged_halves", {}, {}),
    "merged, keep, 4": ("softmax", "merged_halves", {"parts": 4}, {"keep": "bhqk"}),
    "decoder": ("softmax", "forward_only", {}, {}),
    "decoder, all": ("softmax", "forward_only", {}, ALL),
    "kv first": ("linear", "linear_products", {}, BHTD),
    "linear tiles": ("linear", "linear_tiles", {}, {}),
    "linear tiles, all": ("linear", "linear_tiles", {}, ALL),
    "linear tiles, broadcast": ("linear", "linear_tiles", {"step": 2}, {"bias": "1h1k", "keep": "b11k",
                                                                       "dropout": "qk"}),
    "linear tiles, causal": ("linear", "linear_tiles", CAUSAL, CAUSAL),
    "linear scan": ("linear", "linear_scan", {}, CAUSAL),
    "state": ("linear_state", "state_chunks", {}, {}),
    "state, one chunk": ("linear_state", "state_chunks", {"size": 64}, {}),
    "state, token by token": ("linear_state", "state_chunks", {"size": 1}, {}),
    "hyla": ("hyla", "hyla_rows", {}, {}),
    "hyla, all": ("hyla", "hyla_rows", {}, ALL),
    "hyla, bias hqk, keep qk": ("hyla", "hyla_rows", {}, {"bias": "hqk", "keep": "qk"}),
    "hyla, causal": ("hyla", "hyla_rows", CAUSAL, CAUSAL),
    "hyla matmul": ("hyla", "hyla_matmul", {}, BHTD),
    "hyla matmul, all": ("hyla", "hyla_matmul", {}, BHTD | ALL),
    "hyla chunks": ("hyla", "hyla_chunks", {}, {}),
    "hyla chunks, all": ("hyla", "hyla_chunks", {"CQ": 5, "CK": 4}, ALL),
    "hyla chunks, bias h1k": ("hyla", "hyla_chunks", {}, {"bias": "h1k", "dropout": "b1qk"}),
    "hyla chunks, causal": ("hyla", "hyla_chunks", CAUSAL, CAUSAL),
    "hyla chunks, large": ("hyla", "hyla_chunks", {"CQ": 32, "CK": 64}, {"sizes": "tiles"}),
    "two passes": ("hyla", "hyla_two_pass", {}, {"layout": "hbtd"}),
    **{f"a1 {name}": (name, "table_a1", fixed, {}) for name, fixed in A1.items()},
    **{f"a1 {name}, all": (name, "table_a1", fixed, ALL) for name, fixed in A1.items()},
    "a1 softmax, all": ("softmax", "table_a1", {"sigma": "softmax", "uses": 1, "phi": "identity"}, ALL),
    "a1 linear, all": ("linear", "table_a1", {"sigma": "none", "uses": 1, "phi": "identity"}, ALL),
    "a1 hyla, all": ("hyla", "table_a1", {"sigma": "rms", "uses": 2, "phi": "relu"}, ALL),
    "rms tiles": ("linear_rms_head", "linear_rms_tiles", {}, {}),
    "rms tiles, relu": ("linear_rms_head_relu_values", "linear_rms_tiles", {"relu_values": True, "tile": 3}, {}),
    "deep heads": ("hyla_deep", "deep_heads", {}, BHTD),
    "softmax code": ("hyla_softmax_for_rms_head", "softmax_code_tiles", {}, {}),
    "softmax code, keep": ("hyla_softmax_for_rms_head", "softmax_code_tiles", {"step": 4}, {"keep": "qk"}),
    "compositional": ("compositional", "comp_paper", {}, {}),
    "compositional, all": ("compositional", "comp_paper", {}, ALL),
    "compositional, values first": ("compositional", "comp_values_first", {}, BHTD),
    "compositional, mlp": ("compositional_linear", "comp_mlp", {}, {}),
    "compositional, mlp, bias": ("compositional_linear", "comp_mlp", {}, {"bias": "hqk"}),
    "compositional, two maps": ("compositional_nonlinear", "comp_mlp", {}, {}),
    "compositional, two maps, bias": ("compositional_nonlinear", "comp_mlp", {}, {"bias": "bhqk"}),
    "compositional, blind": ("compositional_linear", "comp_linear_blind", {}, {}),
    "gather": ("sliding_dilated", "slide_gather", {}, {}),
    "gather, all": ("sliding_dilated", "slide_gather", {}, {"bias": "bhqw", "keep": "bhqw", "dropout": "bhqw"}),
    "front": ("sliding_dilated_pad", "slide_front", {}, {}),
    "front, all": ("sliding_dilated_pad", "slide_front", {}, {"bias": "hqw", "keep": "qw", "dropout": "bhqw"}),
    "dense": ("sliding_dilated", "slide_dense", {}, BHTD),
    "queries": ("sliding_dilated", "slide_queries", {}, {}),
    "layer norm": ("layers/LayerNorm", "layer_norm", {}, {}),
    "layer norm, op": ("ops/layer_norm", "layer_norm", {}, {}),
    "mlp relu": ("layers/FeedForward relu", "feed_forward", {"act": "relu"}, {}),
    "mlp gelu": ("layers/FeedForward gelu", "feed_forward", {"act": "gelu"}, {}),
    "mlp gelu_exact": ("layers/FeedForward gelu_exact", "feed_forward", {"act": "exact"}, {}),
    "swiglu": ("layers/SwiGLU", "swiglu", {}, {}),
    "layer softmax": ("layers/MultiHead softmax", "mh_layer", {}, {}),
    "layer hyla": ("layers/MultiHead hyla", "mh_layer", {"kind": "hyla"}, {}),
    "layer softmax across": ("layers/MultiHead softmax across", "mh_layer", {}, {}),
    "layer hyla across": ("layers/MultiHead hyla across", "mh_layer", {"kind": "hyla"}, {}),
    "layer compositional": ("layers/Compositional dot", "comp_layer", {}, {}),
    "layer sliding": ("layers/SlidingDilated pad", "slide_layer", {}, {}),
    "cross entropy": ("losses/cross_entropy", "cross_entropy", {}, {}),
    "rms head": ("ops/rms_head", "rms_head", {}, {}),
    "softmax alone": ("ops/softmax of axis -1", "masked_softmax", {}, {}),
    "embedding": ("ops/embedding", "embedding", {}, {}),
}

RIGHT_TOO = [
    ("hyla matmul, all", "the slope of relu at 0 is 1", ("dZ = dR * (Z > 0)", "dZ = dR * (Z >= 0)")),
    ("hyla chunks, all", "the gate before the backward of RMSHead", (
        "g = inv * (g - a * np.mean(a * g, axis=1, keepdims=True)) * gate",
        "g = inv * (g * gate - a * np.mean(a * g * gate, axis=1, keepdims=True))")),
    ("flash", "the largest of each tile for the running one", (
        "m_new = np.maximum(m, s.max(-1))", "m_new = s.max(-1)")),
    ("packed", "sums of the row from o", (
        'dx -= np.einsum("bhij,bhij->bhi", dx, x)[..., None]', 'dx -= np.einsum("ibhe,ibhe->bhi", do, o)[..., None]')),
    ("hyla", "no gradient of v", ("with_bias((o, dq, dk, dv), dbias, bias)", '{"o": o, "dq": dq, "dk": dk}')),
    ("hyla, all", "no gradient of the bias", (
        "with_bias((o, dq, dk, dv), dbias, bias)", '{"o": o, "dq": dq, "dk": dk, "dv": dv}')),
    ("layer softmax", "the gradient of the keys' bias, exactly zero", (
        '"dbk": dk.sum((0, 1))', '"dbk": np.zeros_like(bk)')),
    ("layer softmax across", "keys without their bias, which adds the same to all scores of a query", (
        "np.concatenate([bk.ravel(), bv.ravel()])", "np.concatenate([0 * bk.ravel(), bv.ravel()])")),
    ("a1 hyla_and_softmax, all", "no keep in RMSHead's backward, since softmax's follows", (
        "np.where(see, g / r - a * np.mean(a * g, axis=1, keepdims=True) / r, 0)",
        "g / r - a * np.mean(a * g, axis=1, keepdims=True) / r")),
]

WRONG = [
    ("loops", "dq is not scaled", "1b", "dq", FACTOR, ("dS @ Km * scale", "dS @ Km")),
    ("loops, all", "dropout left out of dP", "3b", "dq", "dropout", ("dP = G @ Vm.T * M", "dP = G @ Vm.T")),
    ("loops, all", "dropout left out of dv", "4b 3b", "dv", r"dropout|\ba in place of c|c: a\b",
     ("(P * M).T @ G", "P.T @ G")),
    ("loops, all", "the normaliser sums what dropout leaves", "2", "o", "dropout", (
        "den = E.sum(1, keepdims=True)",
        "den = (E if dropout is None else E * np.broadcast_to(dropout, full)[b, h]).sum(1, keepdims=True)")),
    ("loops, bias hqk", "dbias of the last batch entry only", "1b", "dbias", r"batch|\bb\b|sum|last",
     ("dS_all[b, h] = dS", "dS_all[0, h] = dS")),
    ("loops, bias hqk", "the bias is scaled too", "1", "o", "bias", (
        "S += np.broadcast_to(bias, full)[b, h]", "S += np.broadcast_to(bias, full)[b, h] * scale")),
    ("loops, causal", "the causal mask starts one key early", "2", "o", "causal|mask|keep|later|diagonal",
     ("np.arange(Q)[:, None] + K - Q)", "np.arange(Q)[:, None] + K - Q - 1)")),
    ("loops, causal", "the causal mask is aligned at the first key", "2", "o", "causal|mask|keep|later|diagonal",
     ("np.arange(Q)[:, None] + K - Q)", "np.arange(Q)[:, None])")),
    ("loops, keep qk", "a query that keeps nothing sees the mean of all values", "2", "o", "nothing|keep",
     ("S[~visible] = -np.inf", "S[~visible] = -1e9")),
    ("loops", "the backward of softmax subtracts a mean of dP", "2b", "dq", "mean|sum|place",
     ("(dP * P).sum(1, keepdims=True)", "dP.mean(1, keepdims=True)")),
    ("flash", "the normaliser is not rescaled", "2", "o", "tile|max|rescal",
     ("l = l * alpha + p.sum(-1)", "l = l + p.sum(-1)")),
    ("flash", "the accumulator is not rescaled", "2 4", "o", "tile|max|rescal",
     ("acc = acc * alpha[..., None] + p", "acc = acc + p")),
    ("flash", "probabilities of a tile by the maximum before it", "2", "o", "tile|max|rescal",
     ("p = np.exp(s - safe[..., None])\n", "p = np.exp(s - np.where(np.isinf(m), 0, m)[..., None])\n")),
    ("flash", "the last key tile is dropped in the forward", "2 4", "o", "tile|last|key",
     ("for j in range(key_tiles(i)):", "for j in range(min(key_tiles(i), Tk // BN)):")),
    ("flash", "keys of the padding are not masked", "2", "o", "pad|zero|keys",
     ("ok = (r < Tq) & (c < Tk)", "ok = (r < Tq) & (c < nk * BN)")),
    ("flash, all", "ds from the probabilities after dropout", "2b", "dq", r"dropout|\bc in place of a|a: c\b",
     ("ds = p * (dp - delta", "ds = kept * (dp - delta")),
    ("flash, lse", "lse to base 2", "2", "lse", "base|log2|log 2|ln|1.44", (
        'found["lse"] = lse[:, :, :Tq]', 'found["lse"] = lse[:, :, :Tq] * LOG2E')),
    ("flash", "dq overwritten by every key tile", "1b", "dq", "tile|last|key", (
        "dQ[:, :, rows[i]] += ds", "dQ[:, :, rows[i]] = ds")),
    ("flash", "dv overwritten by every query tile", "4b", "dv", "tile|last|quer", (
        "dV[:, :, cols[j]] += kept", "dV[:, :, cols[j]] = kept")),
    ("flash, causal", "the tile on the diagonal is skipped", "2", "o", "tile|key|causal|mask|keep", (
        "(i * BM + BM - 1 + Tk - Tq) // BN + 1)", "(i * BM + BM - 1 + Tk - Tq) // BN)")),
    ("flash, all", "dropout before the normaliser", "2", "o", "dropout", (
        "            l = l * alpha + p.sum(-1)\n            if dropout is not None:\n"
        "                p = p * tile(dropout, i, j, 0)\n",
        "            if dropout is not None:\n                p = p * tile(dropout, i, j, 0)\n"
        "            l = l * alpha + p.sum(-1)\n")),
    ("flash, bias hqk", "dbias is a mean over the batch", "1b", "dbias", f"mean|{FACTOR}", (
        "sum_to(dS[:, :, :Tq, :Tk], bias.shape)", "sum_to(dS[:, :, :Tq, :Tk], bias.shape) / B")),
    ("flash, bias hqk", "dbias is scaled", "1b", "dbias", FACTOR, (
        "sum_to(dS[:, :, :Tq, :Tk], bias.shape)", "sum_to(dS[:, :, :Tq, :Tk], bias.shape) * scale")),
    ("flash 1", "dk scaled twice", "1b", "dk", FACTOR, (
        "dk.append(ds.swapaxes(-1, -2) @ q)", "dk.append(ds.swapaxes(-1, -2) @ (tau * q))")),
    ("flash 1", "what was summed before is not rescaled", "2", "o", "tile|max|rescal", (
        "old = np.exp(m - shift) * l", "old = l")),
    ("flash 1", "the row's sum is not subtracted", "2b", "dq", "missing",
     ("ds = p * (dp - D_i) * tau", "ds = p * dp * tau")),
    ("packed, keep, dropout", "dv without dropout", "4b 3b", "dv", r"dropout|\ba in place of c|c: a\b", (
        'dkv[..., d:] = np.einsum("bhij,ibhe->jbhe", w, do)', 'dkv[..., d:] = np.einsum("bhij,ibhe->jbhe", x, do)')),
    ("packed", "in place, in the wrong order", "2b", "dq", "place|twice|missing", (
        '    dx -= np.einsum("bhij,bhij->bhi", dx, x)[..., None]\n    dx *= x\n',
        '    dx *= x\n    dx -= np.einsum("bhij,bhij->bhi", dx, x)[..., None]\n')),
    ("packed", "dk read from the other end of the buffer", "1b", "dk", "order|feature|shift", (
        '"dk": dkv[..., :d]', '"dk": dkv[..., -d:]')),
    ("packed", "divided by d", "1", "o", FACTOR, ("    x /= sqrt(d)\n", "    x /= d\n")),
    ("packed, keep, dropout", "the mask after the softmax", "2", "o", "keep|mask", (
        "x[np.broadcast_to(~keep, x.shape)] = -np.inf", "pass"), (
        "    w = x if", "    x = x if keep is None else x * keep\n    w = x if")),
    ("bmm, all", "the bias without log2 e", "1", "o", "bias", ("LOG2E * np.broadcast_to(bias", "np.broadcast_to(bias")),
    ("bmm", "exponentials of 2 without log2 e", "1 2", "o", f"base|log|power|{FACTOR}",
     ("(LOG2E / sqrt(D))", "(1 / sqrt(D))")),
    ("bmm", "exponentials of e with log2 e", "1 2", "o", f"base|log|power|{FACTOR}", ("np.exp2(t", "np.exp(t")),
    ("bmm, all", "a query that keeps nothing is not zeroed", "2", "o", "nothing|keep", ("    a = a * see\n", "")),
    ("bmm", "the row's sum not weighted", "2b", "dq", "place|missing|factor",
     ("gs = a * (ga - row)", "gs = a * ga - row")),
    ("bmm, causal", "the triangle starts at the first key", "2", "o", "causal|mask|keep|later|diagonal", (
        "np.tri(Tq, Tk, Tk - Tq, dtype=bool)", "np.tri(Tq, Tk, dtype=bool)")),
    ("grouped, causal", "no query sees its own key", "2", "o", "causal|mask|keep|later|diagonal", (
        "> place[:, None]", ">= place[:, None]")),
    ("grouped", "the row's sum not weighted", "2b", "dq", "place|missing|factor", (
        "ds = p * dp - p * (p * dp).sum", "ds = p * dp - (p * dp).sum")),
    ("feature-major", "softmax over queries", "2", "o", "axis|quer|over", ("p = e / e.sum(2", "p = e / e.sum(3")),
    ("feature-major", "dv from what is not normalised", "4b", "dv", "place|normal|exp", (
        'np.einsum("bheq,bhkq->bhek", do, p)', 'np.einsum("bheq,bhkq->bhek", do, e)')),
    ("tensor cores", "factors of the scores in half precision", "1", "o", "precision|round|half|float16", (
        'mma("bqhd,bkhd->bhqk", q, k)', 'mma("bqhd,bkhd->bhqk", q.astype(np.float16), k.astype(np.float16))')),
    ("tensor cores", "exponentials in float32", "2", "o", "precision|round|float32", (
        "p = np.exp(s - m)", "p = np.exp((s - m).astype(np.float32)).astype(acc)")),
    ("tensor cores", "o is rounded to bfloat16 before delta", "2b", "dq", "precision|round", (
        "do.astype(acc), o)", "do.astype(acc), (o.astype(np.float32).view(np.int32) & -65536).view(np.float32))")),
    ("merged", "log-sum-exps merged by their maximum", "2", "o", "max|log|sum|tile", (
        "l = np.logaddexp(l1, l2)", "l = np.maximum(l1, l2)")),
    ("merged", "dk is not scaled", "1b", "dk", FACTOR, (
        'np.einsum("bqhk,bqhd->bkhd", ds, q) * c', 'np.einsum("bqhk,bqhd->bkhd", ds, q)')),
    ("merged", "parts overlap by one key", "2 4", "o", "twice|key|tile", (
        "np.array_split(np.arange(k.shape[1]), parts)",
        "[np.arange(max(0, x[0] - 1), x[-1] + 1) for x in np.array_split(np.arange(k.shape[1]), parts)]")),
    ("decoder", "divided by d", "1", "o", FACTOR, ("/ sqrt(D)", "/ D")),
    ("decoder", "an epsilon in the normaliser", "2", "o", "epsilon|normal", (
        "w = e / np.where(total > 0, total, 1)", "w = e / (total + 1e-4)")),
    ("decoder, all", "the mask of head 0 for all heads", "2", "o", "keep|head", (
        "e = e * np.broadcast_to(keep, full)[:, :, i]", "e = e * np.broadcast_to(keep, full)[:, :1, i]")),
    ("decoder, all", "the bias of the query before", "1", "o", "bias|shift|quer", (
        "np.broadcast_to(bias, full)[:, :, i]\n", "np.broadcast_to(bias, full)[:, :, i - 1]\n")),
    ("kv first", "dq is not scaled", "1b", "dq", FACTOR, ("do @ kv.swapaxes(2, 3) * c", "do @ kv.swapaxes(2, 3)")),
    ("kv first", "dv is not scaled", "4b", "dv", FACTOR, ("k @ qg * c", "k @ qg")),
    ("linear tiles, all", "keep not in the backward", "2b", "dq", "keep", (
        'do, v[:, at]) * gate', 'do, v[:, at]) * (1 if dropout is None else cut(dropout, at))')),
    ("linear tiles, all", "dv from scores without keep and dropout", "4b", "dv", "place|keep|dropout", (
        'dv[:, at] = np.einsum("bhqk,bqhe->bkhe", w, do)', 'dv[:, at] = np.einsum("bhqk,bqhe->bkhe", s, do)')),
    ("linear tiles, broadcast", "dbias is scaled", "1b", "dbias", FACTOR,
     ("dbias[..., at] = ds", "dbias[..., at] = ds * scale")),
    ("linear tiles, all", "the bias is scaled too", "1", "o", "bias", (
        "s += cut(bias, at)", "s += cut(bias, at) * scale")),
    ("linear tiles", "dq of the last tile only", "1b", "dq", "tile|last|key", (
        'dq += np.einsum(', 'dq = np.einsum(')),
    ("linear tiles, all", "the bias after keep and dropout", "1 2 3", "o", "bias", (
        "            s += cut(bias, at)\n", "            pass\n"), (
        "w = s * gate", "w = s * gate + (0 if bias is None else cut(bias, at))")),
    ("linear tiles, broadcast", "dropout squared in the backward", "3b", "dq", "dropout", (
        'do, v[:, at]) * gate', 'do, v[:, at]) * gate * (1 if dropout is None else cut(dropout, at))')),
    ("linear scan", "no query sees its own key", "2", "o", "causal|mask|keep|later|diagonal", (
        "taken <= i + ahead", "taken < i + ahead")),
    ("linear scan", "no key sees its own query in the backward", "2b", "dk",
     "causal|mask|keep|later|diagonal|key|quer", (
        "left + ahead >= j", "left + ahead > j")),
    ("linear scan", "dk and dv from a state that does not run back", "2b 3b", "dk", "causal|mask|keep|later", (
        "    left = Q - 1\n", "    left = Q - 1\n    state += np.einsum('bqhd,bqhe->bhde', q, do)\n    left = -1\n")),
    ("state", "the state after has no gradient", "4b", "dk", "missing|dafter|dend", (
        "dS = dend.copy()", "dS = np.zeros_like(dend)")),
    ("state", "the state after lacks the state before", "6", "end", "missing|state",
     ('"end": S,', '"end": S - state,')),
    ("state", "the state's gradient not scaled", "5b", "dk", FACTOR, (
        'dS = dS + c * np.einsum("bihd,bihe->bhde", q[:, at], do[:, at])',
        'dS = dS + np.einsum("bihd,bihe->bhde", q[:, at], do[:, at])')),
    ("state, one chunk", "the state's gradient not scaled, one chunk", "5b", "dstate", FACTOR, (
        'dS = dS + c * np.einsum("bihd,bihe->bhde", q[:, at], do[:, at])',
        'dS = dS + np.einsum("bihd,bihe->bhde", q[:, at], do[:, at])')),
    ("state, one chunk", "dq lacks the state's part", "5b", "dq", "missing", (
        ' + c * np.einsum("bihe,bhde->bihd", do[:, at], S0)', "")),
    ("state", "no token sees itself", "2", "o", "causal|mask|diagonal", (
        'k[:, at]) * np.tri(n, dtype=q.dtype)', 'k[:, at]) * np.tri(n, k=-1, dtype=q.dtype)')),
    ("state, one chunk", "the state is not divided by the root", "5", "o", FACTOR, (
        'o[:, at] = c * (np.einsum("bhij,bjhe->bihe", A, v[:, at]) + np.einsum("bihd,bhde->bihe", q[:, at], S))',
        'o[:, at] = c * np.einsum("bhij,bjhe->bihe", A, v[:, at]) + np.einsum("bihd,bhde->bihe", q[:, at], S)')),
    ("hyla", "epsilon outside the root", "3", "o", "epsilon", (
        "1 / np.sqrt((s ** 2).mean(0) + eps)", "1 / (np.sqrt((s ** 2).mean(0)) + eps)")),
    ("hyla, all", "a sum for the mean", "3", "o", "mean|sum", ("(s ** 2).mean(0) + eps", "(s ** 2).sum(0) + eps")),
    ("hyla", "the root mean square over keys", "3", "o", "axis|over|key", (
        "(s ** 2).mean(0) + eps", "(s ** 2).mean(1, keepdims=True) + eps")),
    ("hyla, all", "relu's slope by the gradient's sign", "6b", "dq", "relu|dg|sign|place", (
        "np.where(z > 0, dhidden, 0)", "np.where(dhidden > 0, dhidden, 0)")),
    ("hyla", "relu's slope forgotten", "6b", "dq", "relu|slope|place|missing",
     ("np.where(z > 0, dhidden, 0)", "dhidden")),
    ("hyla, all", "the code's first use has no gradient", "5b", "dq", "missing", (
        '            dc += np.einsum("ke,khe->hk", dz, v[b])\n', "")),
    ("hyla", "dv overwritten by every query", "5b", "dv", "quer|last|tile", ("dv[b] += ", "dv[b] = ")),
    ("hyla, all", "dropout in the first use only", "7", "o", r"dropout|\ba in place of c", (
        "o[b, i] = c_ @ hidden", "o[b, i] = a @ hidden")),
    ("hyla, all", "keep after RMSHead", "2 3", "o", "keep", (
        "            s = s * see\n", ""), ("a = s * rho", "a = s * rho * see")),
    ("hyla", "RMSHead's backward sums for a mean", "3b", "dq", "mean|sum", ("(a * da).mean(0)", "(a * da).sum(0)")),
    ("hyla, all", "keep not in the backward", "2b", "dq", "keep", ("            ds = ds * see\n", "")),
    ("hyla, bias hqk, keep qk", "the bias after RMSHead", "1 3", "o", "bias", (
        "s = s + np.broadcast_to(bias, dbias.shape)[b, :, i]", "pass"), (
        "a = s * rho", "a = s * rho + np.broadcast_to(0 if bias is None else bias, dbias.shape)[b, :, i]")),
    ("hyla, causal", "a causal mask of one key less", "2", "o", "causal|mask|keep|later|diagonal", (
        "<= i + K - Q", "< i + K - Q")),
    ("hyla matmul", "relu left out", "6", "o", "relu", ("R = Z * (Z > 0)", "R = Z")),
    ("hyla matmul, all", "the code's second use has no gradient", "7b", "dq", "missing", (
        'np.einsum("bqhe,bkqe->bkqh", Gq, R) + dZ', "dZ")),
    ("hyla matmul, all", "dropout not in the backward", "4b", "dq", "dropout", (
        "dA = dC if dropout is None else dC * heads_last(dropout)", "dA = dC")),
    ("hyla matmul", "divided by one head less", "3", "o", rf"h - 1|mean|{FACTOR}", (
        "var = np.square(S).sum(-1, keepdims=True) / H", "var = np.square(S).sum(-1, keepdims=True) / (H - 1)")),
    ("hyla matmul, all", "dk is not scaled", "1b", "dk", FACTOR, (
        "dk = np.matmul(dS.swapaxes(-1, -2), q) / float(np.sqrt(D))", "dk = np.matmul(dS.swapaxes(-1, -2), q)")),
    ("hyla matmul", "epsilon of 1e-5", "3", "o", "epsilon", ("np.sqrt(var + 1e-6)", "np.sqrt(var + 1e-5)")),
    ("hyla matmul", "epsilon left out", "3", "o", "epsilon", ("np.sqrt(var + 1e-6)", "np.sqrt(var)")),
    ("hyla chunks", "o of the last key tile only", "7", "o", "tile|last|key", (
        'acc += np.einsum(', 'acc = np.einsum(')),
    ("hyla chunks, causal", "a tile on the diagonal skipped in the backward", "2b 3b 4b 5b", "dq",
     "tile|causal|key|keep", (
        "j.start > i.stop - 1 + K - Q:\n                continue",
        "j.start >= i.stop - 1 + K - Q:\n                continue")),
    ("hyla chunks", "dk is not scaled", "1b", "dk", FACTOR, ("g, q[:, i] * scale)", "g, q[:, i])")),
    ("hyla chunks, all", "dv without dropout", "5b", "dv", r"dropout|\ba in place of c", (
        'dv[:, j] += np.einsum("bhqk,bqke->bkhe", a * drop, up)', 'dv[:, j] += np.einsum("bhqk,bqke->bkhe", a, up)')),
    ("hyla chunks, bias h1k", "dbias of the first query only", "1b", "dbias", r"quer|\bq\b|sum", (
        "sum_to(dbias, bias.shape)", "dbias.sum(0)[:, :1]")),
    ("hyla chunks, all", "dv lacks the last tile of queries", "5b", "dv", "quer|last|tile", (
        'dv[:, j] += np.einsum("bhqk,bqke->bkhe", a * drop, up)',
        'dv[:, j] += np.einsum("bhqk,bqke->bkhe", a * drop, up) * (i.stop < Q)')),
    ("two passes", "the square of the last head only", "3", "o", "head|sum|mean|last", (
        "squares += score(h) ** 2", "squares = score(h) ** 2")),
    ("two passes", "RMSHead's backward with scores for the code", "3b", "dq", r"\bs in place of a|rho|place", (
        "score(h) * inv * dot / H", "score(h) * dot / H")),
    ("two passes", "relu left out of the output", "6 7", "o", "relu", (
        "o[h] = (a[..., None] * np.where(on, z, 0)).sum(2)", "o[h] = (a[..., None] * z).sum(2)")),
    ("two passes", "epsilon divided by the heads", "3", "o", r"epsilon|sqrt\(h\)", (
        "squares / H + eps", "(squares + eps) / H")),
    ("a1 linear_rms_head, all", "RMSHead's backward is a division", "2b", "dq", "missing", (
        "g / r - a * np.mean(a * g, axis=1, keepdims=True) / r", "g / r")),
    ("a1 hyla_no_rms_head, all", "the code's first use has no gradient", "4b", "dq", "missing", (
        '        dw = dw + np.einsum("bqke,bkhe->bhqk", dlast, v)\n', "")),
    ("a1 hyla_deep", "the code's second use has no gradient", "7b", "dq", "missing", (
        '            dw = dw + np.einsum("bqkf,bhqkf->bhqk", dlast, mapped)\n', "")),
    ("a1 hyla_deep, all", "wv2 transposed in the backward", "6b", "dq", "transpos|wv2", (
        '"bhqkf,hef->bqke", dmapped, wv2', '"bhqkf,hfe->bqke", dmapped, wv2')),
    ("a1 hyla_and_softmax", "RMSHead before softmax", "2", "o", "order|softmax|rms", (
        '"softmax, rms": [softmax, rms]', '"softmax, rms": [rms, softmax]')),
    ("a1 hyla_and_softmax_reversed", "undone in the order of the forward", "2b", "dq", "order|softmax|rms", (
        "in reversed(undo)", "in undo")),
    ("a1 linear_rms_head_relu_values", "relu's slope forgotten for v", "9b", "dv", "relu|slope|place|missing", (
        'dv = np.where(on1, np.einsum("bhqk,bqhe->bkhe", w, do), 0)', 'dv = np.einsum("bhqk,bqhe->bkhe", w, do)')),
    ("a1 hyla_softmax_for_rms_head", "softmax's backward sums over queries", "2b", "dq", "axis|over|quer", (
        "a * (g - np.sum(a * g, axis=3, keepdims=True))", "a * (g - np.sum(a * g, axis=2, keepdims=True))")),
    ("a1 hyla_no_nonlinearity", "a relu that is not there", "5", "o", "relu", (
        '(np.maximum(x, 0), x > 0) if phi == "relu" else (x, True)', "(np.maximum(x, 0), x > 0)")),
    ("a1 hyla_no_nonlinearity_no_rms_head, all", "dk is not scaled", "1b", "dk", FACTOR, (
        'np.einsum("bhqk,bqhd->bkhd", ds, q) * c', 'np.einsum("bhqk,bqhd->bkhd", ds, q)')),
    ("a1 hyla_no_rms_head, all", "dropout not in the backward", "3b", "dq", "dropout", ("ds = dw * drop", "ds = dw")),
    ("a1 linear, all", "keep not in the backward", "2b", "dq", "keep",
     ("lambda g: np.where(see, g, 0)\n", "lambda g: g\n")),
    ("a1 linear_rms_head, all", "RMSHead's keep left out of the backward", "2b", "dq", "keep", (
        "np.where(see, g / r - a * np.mean(a * g, axis=1, keepdims=True) / r, 0)",
        "g / r - a * np.mean(a * g, axis=1, keepdims=True) / r")),
    ("rms tiles, relu", "relu's slope by the gradient's sign", "9b", "dv", "relu|sign|place", (
        "df * (vt > 0)", "df * (df > 0)")),
    ("rms tiles", "epsilon outside the root", "2", "o", "epsilon", (
        "np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)", "np.sqrt((x * x).mean(-1, keepdims=True)) + 1e-6")),
    ("rms tiles", "the root mean square over keys of a tile", "2", "o", "axis|over|key|tile", (
        "norm = np.sqrt((x * x).mean(-1, keepdims=True)", "norm = np.sqrt((x * x).mean(2, keepdims=True)")),
    ("deep heads", "dwv2 from before relu", "6b", "dwv2", r"relu|\bz\b|place", (
        'np.einsum("bqke,bqkf->ef", y1, du[h])', 'np.einsum("bqke,bqkf->ef", z1, du[h])')),
    ("deep heads", "the second layer without the code", "7", "o", "code|missing|place", (
        "z2 = sum(a[h][..., None] * u[h] for", "z2 = sum(u[h] for")),
    ("deep heads", "the second relu's slope forgotten", "8b", "dq", "relu|slope|place|missing", (
        " for h in range(H)) * (z2 > 0)", " for h in range(H))")),
    ("deep heads", "the first relu left out", "5", "o", "relu", ("y1 = np.maximum(z1, 0)", "y1 = z1")),
    ("softmax code", "the row's sum of the last tile only", "2b", "dq", "tile|last|key|sum", (
        "row += (p * dp)", "row = (p * dp)")),
    ("softmax code, keep", "the row's sum is that of the output", "2b", "dq", "place|output|first", (
        "    for at, p, dp in kept:\n", "    row = np.einsum('bqhe,bqhe->bhq', do, o)[..., None]\n"
        "    for at, p, dp in kept:\n")),
    ("compositional", "the value scores are not scaled", "5", "o", FACTOR, (
        'np.einsum("bqsc,bqsrc->bqsr", selector, key) / sqrt(C)', 'np.einsum("bqsc,bqsrc->bqsr", selector, key)')),
    ("compositional", "the value scores' softmax over searches", "6", "o", "axis|over|search|retriev", (
        "g = g / g.sum(-1, keepdims=True)", "g = g / g.sum(-2, keepdims=True)")),
    ("compositional, all", "the retrievals' other use has no gradient", "7b", "dq", "missing", (
        '    dt += np.einsum("bqsr,bqse->bqsre", g, do)\n', "")),
    ("compositional", "the keys' use of the retrievals has no gradient", "5b", "dq", "missing", (
        'dt = np.einsum("bqsrc,ec->bqsre", dkey, wr)', "dt = np.zeros_like(t)")),
    ("compositional, all", "dselector is not scaled", "5b", "dselector", FACTOR, (
        'np.einsum("bqsr,bqsrc->bqsc", dl, key)', 'np.einsum("bqsr,bqsrc->bqsc", dl, key) * sqrt(C)')),
    ("compositional, all", "the value scores see no dropout", "5 3 4", "o", "dropout", (
        'np.einsum("bqsre,ec->bqsrc", t, wr)',
        'np.einsum("bqsre,ec->bqsrc", np.einsum("bsqk,bkre->bqsre", a, v), wr)')),
    ("compositional, all", "dropout not in the backward", "3b", "dq", "dropout", ("da = da * dropout", "pass")),
    ("compositional", "the value scores are constants", "6b 7b", "dq", "missing|constant|zero|0", (
        "dl = g * (dg - (g * dg).sum(-1, keepdims=True)) / sqrt(C)", "dl = np.zeros_like(g)")),
    ("compositional", "dwr from the output", "5b", "dwr", "place|0 times", (
        'np.einsum("bqsre,bqsrc->ec", t, dkey)', 'np.einsum("bqse,bqsrc->ec", o, dkey)')),
    ("compositional, values first", "dv lacks what comes from the keys", "4b 5b 6b 7b", "dv", "missing", (
        "dv = dboth[..., :E] + dboth[..., E:] @ wr.T", "dv = dboth[..., :E].copy()")),
    ("compositional, values first", "the values' gradient of the last search only", "4b 7b", "dv",
     "search|sum|last|head", (
        "dboth += a", "dboth = a")),
    ("compositional, values first", "the root of e for that of c", "5", "o", FACTOR, (
        "selector[:, s]) * C ** -0.5", "selector[:, s]) * E ** -0.5")),
    ("compositional, values first", "dq and dk are not scaled", "1b 2b", "dq", FACTOR, (
        "np.sum(da * a, -1, keepdims=True)) / sqrt(D)", "np.sum(da * a, -1, keepdims=True))")),
    ("compositional, mlp", "maps of selector and retrieval side by side in the other order", "5", "o",
     "order|selector|wr", (
        "np.concatenate([wc, wr], 0)", "np.concatenate([wr, wc], 0)")),
    ("compositional, mlp", "a relu that is not there", "5", "o", "relu", ("l = z if w2", "l = np.maximum(z, 0) if w2")),
    ("compositional, two maps", "dbr of the first retrieval only", "5b", "dbr", "retriev|sum|first|r", (
        "dbr = dz.sum((0, 1, 2, 3))", "dbr = dz[:, :, :, 0].sum((0, 1, 2))")),
    ("compositional, two maps", "relu's slope forgotten", "5b", "dq", "relu|slope|place|missing", (
        "dl[..., None] * w2 * (z > 0)", "dl[..., None] * w2 * np.ones_like(z)")),
    ("compositional, two maps", "dw2 from before relu", "5b", "dw2", r"relu|\bz\b|place", (
        'np.einsum("bqsr,bqsrf->f", dl, np.maximum(z, 0))', 'np.einsum("bqsr,bqsrf->f", dl, z)')),
    ("compositional, two maps", "dselector a mean over retrievals", "5b", "dselector", "mean|1/r", (
        "dpair[..., :C].sum(3)", "dpair[..., :C].mean(3)")),
    ("compositional, two maps", "no relu in the value scores", "5", "o", "relu", (
        "else np.maximum(z, 0) @ w2", "else z @ w2")),
    ("compositional, blind", "dv lacks what comes from the value scores", "4b 5b 6b 7b", "dv", "missing", (
        "optimize=True) + dvw[..., None] * wr", "optimize=True)")),
    ("gather", "the offsets' biases are scaled", "2", "o", f"offset_bias|{FACTOR}", (
        's = np.einsum("bqhd,bqwhd->bhqw", q, kw) / sqrt(D) + offset_bias[:, None]',
        's = (np.einsum("bqhd,bqwhd->bhqw", q, kw) + offset_bias[:, None]) / sqrt(D)')),
    ("gather", "the window begins one key before the query", "1", "o", "offset|window|shift|dilation|early|late", (
        "dilation * np.arange(W)", "dilation * np.arange(1, W + 1)")),
    ("gather", "dk of one of the queries only", "1b", "dk", "add|sum|last|offset", (
        'np.add.at(dk, (slice(None), index), np.einsum("bhqw,bqhd->bqwhd", ds, q) / sqrt(D))',
        'dk[:, index] += np.einsum("bhqw,bqhd->bqwhd", ds, q) / sqrt(D)')),
    ("gather", "the first key stands before the first", "4 1", "o", "missing|keep|before|range|mask", (
        "see = there if keep is None else there & keep", "see = np.ones_like(there) if keep is None else keep")),
    ("gather, all", "dropout not in the backward", "5b", "dq", "dropout", (
        "da = dw if dropout is None else dw * dropout", "da = dw")),
    ("gather", "the offsets' gradient a mean over the batch", "2b", "doffset_bias", f"mean|{FACTOR}", (
        "ds.sum((0, 2)))", "ds.sum(2).mean(0))")),
    ("gather", "queries at the first positions", "1", "o", "position|shift|quer|first", (
        "np.arange(K - Q, K)[:, None]", "np.arange(Q)[:, None]")),
    ("gather", "key 0 is never seen", "4 1", "o", "keep|mask|key|first|range",
     ("there = where >= 0", "there = where > 0")),
    ("front", "the pad's gradient of the row beside the first key only", "1b", "dpad_k", "pad|sum|last", (
        '"dpad_k": dkk[:, :n].sum((0, 1))', '"dpad_k": dkk[:, n - 1:n].sum((0, 1))')),
    ("front", "dk cut at the wrong end", "1b", "dk", "shift|pad|key", ('"dk": dkk[:, n:]', '"dk": dkk[:, :-n]')),
    ("front", "dilation 1", "1", "o", "dilation|offset", (
        "slice(first - w * dilation, first - w * dilation + Q)", "slice(first - w, first - w + Q)")),
    ("front, all", "zeros for the pad's key", "1", "o", "pad", (
        "np.broadcast_to(pad_k, (B, n, H, D))", "np.zeros((B, n, H, D), k.dtype)")),
    ("front", "dq of the last offset only", "1b", "dq", "offset|last|sum|w", (
        "dq += dsq[..., w, None]", "dq = dsq[..., w, None]")),
    ("front, all", "dropout left out of dv", "6b 5b", "dv", r"dropout|\ba in place of c", (
        "dvv[:, x] += cq[..., w, None] * do", "dvv[:, x] += a.transpose(0, 2, 1, 3)[..., w, None] * do")),
    ("dense", "one offset more, with the bias of the last", "1 4", "o", "offset|chunk|key",
     ("(step < W)", "(step <= W)")),
    ("dense", "every key of the window is seen", "1 4", "o", "dilation|offset|key", ("(gap % dilation == 0) & ", "")),
    ("dense", "dk is not scaled", "1b", "dk", FACTOR, ("ds.swapaxes(2, 3) @ q * D ** -0.5", "ds.swapaxes(2, 3) @ q")),
    ("queries", "the farthest key is lost near the start", "4 1", "o", "keep|key|range|mask|first", (
        "p // dilation + 1)", "max(1, p // dilation))")),
    ("layer norm", "epsilon outside the root", "1", "o", "epsilon", (
        "1 / np.sqrt((centred ** 2).mean(1, keepdims=True) + eps)",
        "1 / (np.sqrt((centred ** 2).mean(1, keepdims=True)) + eps)")),
    ("layer norm", "the mean's term of dx left out", "1b", "dx", "mean|missing", ("(hat * c1 + c2)", "(hat * c1)")),
    ("layer norm", "dscale from the output", "2b", "dscale", "place", ("(g * hat).sum(0)", "(g * y).sum(0)")),
    ("layer norm", "variance divided by one less", "1", "o", f"mean|{FACTOR}", (
        "(centred ** 2).mean(1, keepdims=True)", "centred.var(1, ddof=1, keepdims=True)")),
    ("mlp relu", "relu's slope forgotten", "2b", "dx", "relu|slope|place|missing", (
        "dh = g @ w2.T * slope.astype(h.dtype)", "dh = g @ w2.T")),
    ("mlp gelu", "a 3 left out of the slope", "2b", "dx", "gelu|slope|3", ("(1 + 3 * 0.044715", "(1 + 0.044715")),
    ("mlp gelu", "the exact gelu", "2", "o", "erf|exact", ('elif act == "gelu":', 'elif act == "tanh":')),
    ("mlp relu", "db1 is a mean", "1b", "db1", f"mean|{FACTOR}", ('"db1": dh.sum(0)', '"db1": dh.mean(0)')),
    ("mlp relu", "dw2 from before relu", "4b", "dw2", "relu|place", ('"dw2": y.T @ g', '"dw2": h.T @ g')),
    ("swiglu", "the gate's slope is its sigmoid", "2b", "dx", "silu|slope|missing|sigmoid", (
        "dy * up * (sig + gate * sig * (1 - sig))", "dy * up * sig")),
    ("swiglu", "the sigmoid for silu in the gradient of up", "2b", "dx", "silu|sigmoid|gate|factor g", (
        "dy * gate * sig]", "dy * sig]")),
    ("layer softmax", "no bias of the output", "out", "o", "bo|bias",
     (" @ wo.reshape(H * E, M) + bo", " @ wo.reshape(H * E, M)")),
    ("layer softmax", "dx lacks what comes from the values", "in", "dx", "missing", (
        ' + np.einsum("bkhe,mhe->bkm", dv, wv)', "")),
    ("layer hyla", "dbv of the first batch entry only", "in", "dbv", r"batch|\bb\b|sum|first", (
        '"dbv": dv.sum((0, 1))', '"dbv": dv[0].sum(0)')),
    ("layer hyla", "the code's first use has no gradient", "5b", "dwq", "missing", (
        'np.maximum(z, 0)) + np.einsum("bqke,bkhe->bhqk", dz, v)) * m', 'np.maximum(z, 0))) * m')),
    ("layer softmax across", "values lack their bias", "in", "o", "bias|bv", (
        "np.concatenate([bk.ravel(), bv.ravel()])", "np.concatenate([bk.ravel(), 0 * bv.ravel()])")),
    ("layer compositional", "the value scores are not scaled", "5", "o", FACTOR, (
        'np.einsum("bqsc,bqsrc->bqsr", sel, key) / sqrt(C)', 'np.einsum("bqsc,bqsrc->bqsr", sel, key)')),
    ("layer compositional", "dx lacks what comes from the selector", "in", "dx", "missing", (
        'dx = dx + np.einsum("bthd,mhd->btm", d, w)', 'dx = dx + np.einsum("bthd,mhd->btm", d, w) * (name != "s")')),
    ("layer sliding", "the pad's gradient from keys only", "in", "dpad", "missing|pad", (
        '"dpad": dlong[:, :n]', '"dpad": np.einsum("bthd,mhd->btm", dk, wk)[:, :n]')),
    ("cross entropy", "the mean over all, not over the weights", "3 4", "o", f"mean|weight|{FACTOR}", (
        "* w).sum() / w.sum()", "* w).mean()")),
    ("cross entropy", "the gradient without weights", "1b", "dlogits", "weight|share", (
        "g *= (w / w.sum())[:, None] * do", "g *= do / len(w)")),
    ("rms head", "the projection left out", "2b", "ds", "missing", (
        '"ds": do / r - s * (s * do).sum(1, keepdims=True) / (n * r ** 3)', '"ds": do / r')),
    ("softmax alone", "the mask after the division", "1 2", "o", "keep|mask", (
        "        e = e * keep\n", "        pass\n"), (
        'return {"o": a,', 'a = a if keep is None else a * keep\n    return {"o": a,')),
    ("embedding", "the last of equal tokens only", "1b", "dtable", "last|sum|add", (
        "np.add.at(dtable, index, do)", "dtable[index] = do")),
]

ONLY = {
    "factors of the scores in half precision": ("float64", "float32"),
    "exponentials in float32": ("float64",),
    "o is rounded to bfloat16 before delta": ("float64", "float32"),
}
