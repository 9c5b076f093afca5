"""Right kernels by name, and their mistakes with the lines that were written down before the first run."""

GELU, SCORES, DROP, ZERO = "ops/gelu_exact", "ops/scores over k", "ops/drop", "ops/dropped_to_zero"
MSE, MAE, SQUARE, BCE = (f"losses/{name}" for name in (
    "mse", "mean_absolute_error", "sigmoid_mse", "binary_cross_entropy"))
TOKEN = {"all": ("layers/next_token, all at a time", {"scale": 0.5}),
         "4": ("layers/next_token, 4 at a time", {"scale": 1.0})}
EXPERTS = {f"{k} of {n}": (f"layers/MixtureOfExperts, {k} of {n}", {"k": k, "act": act}) for k, n, act in (
    (2, 5, "gelu"), (1, 3, "relu"), (4, 4, "gelu_exact"))}
WEIGHTS, NETWORK = "attention/generated weights", "attention/generated nonlinear network"

FUNCTIONS = {                  # page: right kernels
    GELU: "gelu_plain gelu_with_slope gelu_entries gelu_tiles",
    SCORES: "scores_einsum scores_matmul scores_queries scores_features",
    DROP: "drop_product drop_where drop_rows drop_einsum",
    ZERO: "zero_product zero_where zero_filled zero_picked",
    MSE: "mse_mean mse_dot mse_running mse_tiles",
    MAE: "mae_mean mae_where mae_sequences mae_root",
    SQUARE: "square_plain square_tanh square_positions square_fused square_tiles square_means",
    BCE: "bce_stable bce_logaddexp bce_logs bce_two_sides bce_entries bce_tiles",
    WEIGHTS: "weights_letters weights_heads weights_matmul weights_pairs",
    NETWORK: "network_letters network_factored network_queries network_pairs",
}
TOKEN_FUNCTIONS = ("token_log_softmax token_vocabulary token_tiles token_fused token_scatter token_by_token "
                   "token_base_2 token_shards")
EXPERTS_FUNCTIONS = ("experts_dense experts_gathered experts_loop experts_sorted experts_dispatched experts_tokens "
                     "experts_renormalised")


def named(prefix, page, functions, fixed):
    """{name: (page, function, arguments that are fixed, options)}."""
    return {f"{prefix}, {f.partition('_')[2].replace('_', ' ')}": (page, f, fixed, {}) for f in functions.split()}


RIGHT = {}                     # name: page, function, arguments that are fixed, options
for page, functions in FUNCTIONS.items():
    RIGHT |= named(page.partition("/")[2], page, functions, {})
for which, (page, fixed) in TOKEN.items():
    RIGHT |= named(f"next token, {which}", page, TOKEN_FUNCTIONS, fixed)
for which, (page, fixed) in EXPERTS.items():
    RIGHT |= named(f"experts, {which}", page, EXPERTS_FUNCTIONS, fixed)

# right kernel: (what, lines, *patches)
WRONG = {
    "gelu_exact, plain": [
        ("p lacks the half", "1", (".astype(x.dtype)) / 2", ".astype(x.dtype))")),
        ("erf without the root of 2", "1", ("ERF(x / sqrt(2))", "ERF(x)")),
        ("tanh in place of erf", "1", ("ERF(x / sqrt(2)).astype(x.dtype)",
                                       "np.tanh(one(sqrt(2 / pi)) * (x + one(0.044715) * x ** 3))")),
        ("dx lacks the density", "2b", ("(p + x * density)", "p")),
        ("dx lacks p", "2b", ("(p + x * density)", "(x * density)")),
        ("the density lacks the root of 2 pi", "2b", (" / one(sqrt(2 * pi))", "")),
        ("the density is that of variance 1/2", "2b", ("np.exp(-x * x / 2)", "np.exp(-x * x)")),
        ("the density is not multiplied by x", "2b", ("p + x * density", "p + density")),
    ],
    "gelu_exact, with slope": [
        ("erfc of x", "1", ("ERFC(-wide", "ERFC(wide")),
        ("do is forgotten", "2b", ("(do * slope)", "slope")),
        ("the density is subtracted", "2b", ("p + wide", "p - wide")),
    ],
    "gelu_exact, entries": [
        ("the forward has a logistic function of 1.702 x", "1",
         ("o[at] = v * normal.cdf(v)", "o[at] = v / (1 + np.exp(-1.702 * v))")),
        ("the gradient is that of tanh", "2b", ("(normal.cdf(v) + v * normal.pdf(v))", "phi_tanh(np.float64(v))[1]")),
    ],
    "gelu_exact, tiles": [
        ("the gradient lacks the last tile, which is partial", "2b",
         ("len(flat), tile):\n        piece = flat[start:start + tile]\n        slope",
          "len(flat) - tile, tile):\n        piece = flat[start:start + tile]\n        slope")),
    ],
    "scores over k, einsum": [
        ("the scale is 1 / d", "1 1b", ("q.shape[-1] ** -0.5", "1 / q.shape[-1]")),
        ("the scale is that of the number of heads", "1 1b", ("q.shape[-1] ** -0.5", "q.shape[-2] ** -0.5")),
        ("dq lacks the scale", "1b", ("do, k) * scale", "do, k)")),
        ("dk has the scale twice", "1b", ("do, q) * scale", "do, q) * scale * scale")),
        ("the bias is scaled too", "1", ("o = o + bias", "o = o + bias * scale")),
        ("the bias is subtracted", "1", ("o = o + bias", "o = o - bias")),
        ("dbias is a mean where the bias is stretched", "1b",
         ("dbias.sum(axis, keepdims=True)", "dbias.mean(axis, keepdims=True)")),
    ],
    "scores over k, matmul": [
        ("dk is divided by the root again", "1b",
         ("reshape(b, h, nk, d).transpose(0, 2, 1, 3)", "reshape(b, h, nk, d).transpose(0, 2, 1, 3) / sqrt(d)")),
        ("dq has its heads joined without a transpose", "1b",
         ("(g @ keys).reshape(b, h, nq, d).transpose(0, 2, 1, 3)", "(g @ keys).reshape(b, nq, h, d)")),
        ("keys have their heads split without a transpose", "1 1b",
         ("k.transpose(0, 2, 1, 3).reshape(b * h", "k.reshape(b * h")),
        ("dbias has the other sign", "1b", ("dk, do.sum(", "dk, -do.sum(")),
    ],
    "scores over k, queries": [
        ("dk is that of the last query", "1b", ("dk[n, :, i] += ", "dk[n, :, i] = ")),
        ("keys of the first sequence go for all", "1 1b", ("k[n, :, i].astype", "k[0, :, i].astype")),
    ],
    "scores over k, features": [
        ("o lacks the last feature", "1", ("o = o + left * right", "o = o + left * right * (d + 1 < q.shape[3])")),
    ],
    "drop, product": [
        ("da forgets dropout", "1b", ("do * dropout", "do.copy()")),
        ("o forgets dropout", "1", ("a * dropout", "a.copy()")),
        ("da is multiplied twice", "1b", ("do * dropout", "do * dropout * dropout")),
        ("o is multiplied twice", "1", ("a * dropout", "a * dropout * dropout")),
        ("da is the gradient of dropout", "1b", ("do * dropout", "do * a")),
    ],
    "drop, where": [
        ("o is not divided by what is kept", "1", ("a / kept_share", "a")),
        ("neither is divided by what is kept", "1 1b", ("type(0.75)", "type(1)")),
        ("what is dropped is kept", "1 1b", ("!= 0", "== 0")),
        ("da is multiplied by what is kept", "1b", ("do / kept_share", "do * kept_share")),
    ],
    "drop, rows": [
        ("the last row is lost", "1 1b", ("range(len(x))", "range(len(x) - 1)")),
        ("dropout of the first row goes for all", "1", ("x[n] * factor[n]", "x[n] * factor[0]")),
    ],
    "drop, einsum": [
        ("da has the other sign", "1b", ("wide, do)", "wide, -do)")),
        ("dropout of o counts keys from the last", "1", ("a, wide)", "a, wide[..., ::-1])")),
    ],
    "dropped_to_zero, product": [
        ("the mask is inverted", "1 1b", ("keep.astype", "(~keep).astype")),
        ("ds forgets the mask", "1b", ("do * factor", "do.copy()")),
        ("o forgets the mask", "1", ("s * factor", "s.copy()")),
    ],
    "dropped_to_zero, where": [
        ("what is left out is -10,000", "1", ("np.where(keep, s, 0)", "np.where(keep, s, -10_000)")),
        ("negative ones are 0 too", "1", ("np.where(keep, s, 0)", "np.where(keep & (s > 0), s, 0)")),
        ("ds is 0 for negative ones too", "1b", ("np.where(keep, do, 0)", "np.where(keep & (s > 0), do, 0)")),
        ("ds has the mask inverted", "1b", ("np.where(keep, do, 0)", "np.where(keep, 0, do)")),
    ],
    "dropped_to_zero, filled": [
        ("the mask of the first key goes for all", "1 1b", ("to(keep, s", "to(keep[..., :1], s")),
        ("ds is filled with 1", "1b", ("ds[out] = 0", "ds[out] = 1")),
    ],
    "dropped_to_zero, picked": [
        ("o is divided by the share of what is kept, as in dropout", "1", ("= s[at]", "= s[at] / s.dtype.type(0.7)")),
        ("ds is doubled", "1b", ("= do[at]", "= 2 * do[at]")),
    ],
    "mse, mean": [
        ("o is the sum", "2", ("np.mean(e ** 2)", "np.sum(e ** 2)")),
        ("o is half of the mean", "2", ("np.mean(e ** 2)", "np.mean(e ** 2) / 2")),
        ("o is the root", "2", ("np.mean(e ** 2)", "np.sqrt(np.mean(e ** 2))")),
        ("o is the mean of absolute errors", "2", ("np.mean(e ** 2)", "np.mean(np.abs(e))")),
        ("the target is added", "1", ("y - target", "y + target")),
        ("dy lacks the 2", "2b", ("do * 2 * e", "do * e")),
        ("dy is that of the sum", "2b", ("2 * e / e.size", "2 * e")),
        ("dy is divided by the number of sequences", "2b", ("2 * e / e.size", "2 * e / len(e)")),
        ("do is forgotten", "2b", ("do * 2 * e", "2 * e")),
    ],
    "mse, dot": [
        ("dy has the other sign", "1 2b", ("(-2 * do", "(2 * do")),
        ("o is divided by one less", "2", ("e.dtype.type(len(e))", "e.dtype.type(len(e) - 1)")),
        ("dy takes y for the error", "2b", ("dy = e *", "dy = -y.reshape(-1) *")),
    ],
    "mse, tiles": [
        ("o lacks the last tile, which is partial", "2",
         ("y.size, tile):\n        e =", "y.size - tile, tile):\n        e =")),
        ("dy lacks the last tile, which is partial", "2b",
         ("y.size, tile):\n        piece", "y.size - tile, tile):\n        piece")),
    ],
    "mean_absolute_error, mean": [
        ("o is the sum", "3", ("np.abs(e).mean()", "np.abs(e).sum()")),
        ("o is the mean of errors", "3", ("np.abs(e).mean()", "e.mean()")),
        ("o is divided by the number of sequences", "3",
         ("np.abs(e).mean()", "np.abs(e).sum() / e.dtype.type(len(e))")),
        ("the target is added", "1", ("y - target", "y + target")),
        ("dy is that of the sum", "3b", ("do * s / y.dtype.type(e.size)", "do * s")),
        ("dy has the error for its sign", "2 3b", ("do * s /", "do * e /")),
        ("do is forgotten", "3b", ("do * s /", "s /")),
        ("the sign is that of y", "2 2b 3b", ("np.sign(e)", "np.sign(y)")),
    ],
    "mean_absolute_error, where": [
        ("what is behind has gradient 0", "2 3b", (" - np.where(behind, step, 0)", "")),
        ("signs are exchanged", "1 2 3b",
         ("(ahead, step, 0) - np.where(behind, step", "(behind, step, 0) - np.where(ahead, step")),
        ("dy is divided by the last axis alone", "3b", ("do / y.dtype.type(y.size)", "do / y.dtype.type(y.shape[-1])")),
    ],
    "mean_absolute_error, sequences": [
        ("means of sequences are added up", "3", ("sum(means) / len(means)", "sum(means)")),
        ("dy lacks the number of sequences", "3b", ("(len(y) * e.size)", "e.size")),
    ],
    "mean_absolute_error, root": [
        ("small errors are squared, as Huber's", "3",
         ("size.sum()", "np.where(size < 1, size ** 2 / 2, size - 0.5).sum()")),
    ],
    "sigmoid_mse, plain": [
        ("weights are divided by their count", "3", ("w / w.sum()", "w / w.size")),
        ("weights are forgotten in o", "4", ("(share * (e * e).mean(-1)).sum()", "(e * e).mean()")),
        ("weights are forgotten in the gradient", "4b", ("2 * e * share[..., None]", "2 * e / share.size")),
        ("squares are summed over features", "4", ("(e * e).mean(-1)", "(e * e).sum(-1)")),
        ("the gradient is not divided by the number of features", "4b 1b",
         (" / logits.dtype.type(logits.shape[-1])", "")),
        ("the gradient lacks the 2", "4b 1b", ("2 * e * share", "e * share")),
        ("the slope of the sigmoid is forgotten", "1b", ("de * p * (1 - p)", "de")),
        ("the slope is that of tanh", "1b", ("de * p * (1 - p)", "de * (1 - p * p)")),
        ("the sigmoid of -x", "1", ("np.exp(-logits)", "np.exp(logits)")),
    ],
    "sigmoid_mse, tanh": [
        ("tanh of x, not of half of it", "1", ("np.tanh(logits * one(0.5))", "np.tanh(logits)")),
        ("the gradient has the other sign", "2 4b 1b", ("do * w * e", "-do * w * e")),
    ],
    "sigmoid_mse, positions": [
        ("weights are divided by the sum of their squares", "3", ("below += w[n]", "below += w[n] ** 2")),
    ],
    "sigmoid_mse, fused": [
        ("do is forgotten", "4b 1b", ("unit * do", "unit")),
    ],
    "sigmoid_mse, tiles": [
        ("the sum of weights is that of the last tile", "3", ("below += w[at].sum()", "below = w[at].sum()")),
    ],
    "binary_cross_entropy, stable": [
        ("the target's term has the other sign", "2", ("- logits * target", "+ logits * target")),
        ("the exponent has the other sign", "2", ("np.exp(-np.abs(logits))", "np.exp(np.abs(logits))")),
        ("weights are not divided by their sum", "3", ("w / w.sum()", "w")),
        ("weights are forgotten in o", "4", ("(loss * share).sum()", "loss.mean()")),
        ("weights are forgotten in the gradient", "4b",
         ("(p - target) * share", "(p - target) / logits.dtype.type(w.size)")),
        ("the slope of the sigmoid once more", "4b", ("(p - target) * share", "(p - target) * p * (1 - p) * share")),
        ("the sigmoid of -x in the gradient", "1 4b", ("np.exp(-logits)", "np.exp(logits)")),
    ],
    "binary_cross_entropy, logaddexp": [
        ("the gradient is not divided by the sum of weights", "3b 4b", ("(do / total)", "do")),
    ],
    "binary_cross_entropy, logs": [
        ("the side of 1 - target is forgotten", "2", (" + (1 - target) * np.log(1 - p)", "")),
        ("the gradient is that of p", "4b", ("dlogits = dp * (p * (1 - p))", "dlogits = dp")),
        ("the gradient lacks the side of 1 - target", "4b", ("((1 - target) / (1 - p) - target / p)", "(-target / p)")),
    ],
    "binary_cross_entropy, two sides": [
        ("sides are exchanged in the gradient", "4b",
         ("(1 - target) * p - target * (1 - p)", "target * p - (1 - target) * (1 - p)")),
    ],
    "binary_cross_entropy, entries": [
        ("targets are rounded in the gradient", "4b", (" - b))", " - round(b)))")),
    ],
    "binary_cross_entropy, tiles": [
        ("the sum of weights is that of the last tile", "3", ("below += w[at].sum()", "below = w[at].sum()")),
    ],
    "next token, all, log softmax": [
        ("dh lacks the scale", "1b", ("dz, table) * one(scale)", "dz, table)")),
        ("dtable lacks the scale", "1b", ("dz, h) * one(scale)", "dz, h)")),
        ("both gradients lack the scale", "1b 4b",
         ("dz, table) * one(scale)", "dz, table)"), ("dz, h) * one(scale)", "dz, h)")),
        ("scores lack the scale", "1 1b", ("h, table) * one(scale)", "h, table)")),
        ("the target is one further", "2", ("logp, target[..., None]", "logp, (target[..., None] + 1) % len(table)")),
        ("the target is not subtracted", "4b", ("(p - hit)", "p")),
        ("gradients are those of the mean", "4b 1b", ("do[..., None]", "do[..., None] / one(do.size)")),
    ],
    "next token, all, vocabulary": [
        ("the sum is not rescaled", "3", ("total * np.exp(top - new)", "total")),
        ("the sum is that of the last chunk", "3", ("total = total * np.exp(top - new) + np", "total = np")),
        ("the log-sum-exp has the last chunk's maximum", "3", ("lse = top + np", "lse = z.max(1) + np")),
        ("the target's score lacks the scale", "2",
         ("t[here] - start]\n    lse", "t[here] - start] / one(scale)\n    lse")),
        ("scores of the backward lack the scale", "1b", ("z = x @ part.T * one(scale)", "z = x @ part.T")),
        ("the backward lacks the last chunk", "1b 4b",
         ("len(table), chunk):\n        part", "len(table) - chunk, chunk):\n        part")),
    ],
    "next token, all, tiles": [
        ("dtable has the scale twice", "1b", ("dtable += dz.T @ x[at]", "dtable += dz.T @ x[at] * one(scale)")),
        ("the log-sum-exp lacks the maximum", "3 4", ("lse[at] = top + np", "lse[at] = np")),
    ],
    "next token, all, fused": [
        ("exponentials are not divided by their sum", "3b", ("(e / total - hit)", "(e - hit)")),
        ("dh has the scale twice", "1b", ("dx[at] = dz @ table", "dx[at] = dz @ table * one(scale)")),
    ],
    "next token, all, scatter": [
        ("of tokens with the same target one is subtracted", "1b 4b",
         ("np.subtract.at(dtable, target, h * (do * one(scale))[..., None])",
          "dtable[target] -= h * (do * one(scale))[..., None]")),
        ("dh lacks the target's row", "4b", (" - table[target] * (do * one(scale))[..., None]", "")),
    ],
    "next token, all, base 2": [
        ("the loss is in bits", "4", ("(lse - mine) * ln2", "lse - mine")),
        ("scores lack log2 e", "1 1b", ("scale / log(2)", "scale")),
        ("gradients have ln 2", "4b 1b", ("(do[..., None] * one(scale))", "(do[..., None] * one(scale) * ln2)")),
    ],
    "next token, all, shards": [
        ("the sum is that of the first shard", "3", ("np.sum(sums, 0)", "sums[0]")),
    ],
    "next token, 4, log softmax": [
        ("do is forgotten", "4b", ("(p - hit) * do[..., None]", "p - hit")),
        ("the target of the gradient is one before", "4b", ("[target]\n", "[target - 1]\n")),
        ("the loss has the other sign", "4", ("o = -np", "o = np")),
        ("scores are divided by the root of the width", "1 1b",
         ("h, table) * one(scale)", "h, table) * one(scale / sqrt(h.shape[-1]))")),
        ("the softmax sums over tokens", "3", ("np.exp(z).sum(-1,", "np.exp(z).sum(1,")),
        ("the gradient smooths the target", "4b", ("(p - hit)", "(p - one(0.9) * hit - one(0.1 / len(table)))")),
    ],
    "next token, 4, vocabulary": [
        ("dh is that of the last chunk", "1b", ("dx += dz", "dx[:] = dz")),
        ("targets of the first chunk alone are subtracted", "4b",
         ("(t < start + chunk)\n        p[", "(t < chunk)\n        p[")),
        ("the sum is not rescaled", "3", ("total * np.exp(top - new)", "total")),
    ],
    "next token, 4, tiles": [
        ("dtable is that of the last tile", "1b", ("dtable += dz", "dtable[:] = dz")),
        ("do of the first tile goes for all", "4b", ("g[at, None]", "g[:len(z), None]")),
        ("the target is added", "4b", ("t[at]] -= 1", "t[at]] += 1")),
        ("the backward lacks the last tile", "1b 4b",
         ("(table)\n    for start in range(0, n, rows)", "(table)\n    for start in range(0, n - rows, rows)")),
    ],
    "next token, 4, fused": [
        ("the maximum is not added again", "4", (" + z.max(1) - mine", " - mine")),
        ("the gradient is multiplied by p", "4b", ("(e / total - hit)", "(e / total - hit) * (e / total)")),
    ],
    "next token, 4, scatter": [
        ("the target's row in dh lacks do", "4b",
         ("- table[target] * (do * one(scale))[..., None]", "- table[target]")),
    ],
    "next token, 4, by token": [
        ("the target's gradient lacks do", "4b", ("dz[y] -= float(do[b, t])", "dz[y] -= 1")),
        ("the logarithm is missing", "4", ("log(e.sum())", "e.sum()")),
    ],
    "next token, 4, base 2": [
        ("the log-sum-exp has a natural logarithm", "3", ("np.log2(", "np.log(")),
    ],
    "next token, 4, shards": [
        ("the backward takes each shard's own maximum", "3b",
         ("z - top[:, None]) / total", "z - z.max(1)[:, None]) / total")),
        ("the target is counted from the shard's start", "4b",
         ("start + np.arange(len(part))", "np.arange(len(part))")),
        ("dh is that of the last shard", "1b", ("dx = dx + dz", "dx = dz")),
        ("each shard gives a target's score", "2",
         ("mine + np.where(own, z[np.arange(len(x)), np.where(own, t - start, 0)], 0)",
         "mine + z[np.arange(len(x)), np.where(own, t - start, 0)]")),
    ],
    "experts, 2 of 5, dense": [
        ("the smallest are chosen", "2", ("np.argsort(-logits", "np.argsort(logits")),
        ("one more is chosen", "2", ("order[..., :k]", "order[..., :k + 1]")),
        ("a softmax over all is masked", "2",
         ("gate = gate / gate.sum(-1,", "gate = gate / np.exp(logits - masked.max(-1, keepdims=True)).sum(-1,")),
        ("b2 is outside the gate", "7", ('xm->btm", gate, b2)', 'xm->btm", chosen.astype(x.dtype), b2)')),
        ("db2 lacks the gate", "7b", ('btm->xm", gate, do)', 'btm->xm", chosen.astype(x.dtype), do)')),
        ("dgate lacks what comes through b2", "5b", ('dgate = dgate + np.einsum("btm,xm->btx", do, b2)', "pass")),
        ("dgate lacks what comes through the experts", "5b", ("dgate = (dweighted * a).sum(-1)", "dgate = 0")),
        ("the gate is not differentiated", "2b 5b", ("dlogits = gate *", "dlogits = 0 * gate *")),
        ("the softmax's backward lacks the sum", "2b", ("(dgate - (gate * dgate).sum(-1, keepdims=True))", "dgate")),
        ("dx lacks what comes through the gate", "1b", ('dx = dx + np.einsum("btx,mx->btm", dlogits, wg)', "pass")),
        ("da lacks the gate", "5b", ("dweighted * gate[..., None] * slope", "dweighted * slope")),
        ("dw2 takes activations before the gate", "6b", ('xfm", weighted, do)', 'xfm", a, do)')),
        ("erf in place of tanh", "4 4b", ("PHI[act]", 'PHI["gelu_exact"]')),
        ("b1 is forgotten", "3", ("x, w1) + b1", "x, w1)")),
        ("the slope is taken at the activation", "4b",
         ("a, slope = PHI[act](h)", "a = PHI[act](h)[0]\n    slope = PHI[act](a)[1]")),
    ],
    "experts, 2 of 5, gathered": [
        ("db1 is that of an expert's last token", "3b", ("np.add.at(db1, pick, dh)", "db1[pick] = dh")),
        ("dx is that of the first choice", "3b", ('nm", dh, up[pick])', 'nm", dh[:, :1], up[pick[:, :1]])')),
        ("the gates of the two are exchanged", "2",
         ("gate /= gate.sum(1, keepdims=True)", "gate = (gate / gate.sum(1, keepdims=True))[:, ::-1]")),
        ("the gradient of logits goes to the first experts", "2b",
         ("np.put_along_axis(dlogits, pick, dbest, 1)", "dlogits[:, :k] = dbest")),
    ],
    "experts, 2 of 5, loop": [
        ("dx is that of the last expert", "3b", ("dx[at] += dh", "dx[at] = dh")),
    ],
    "experts, 2 of 5, sorted": [
        ("dgate stays sorted by expert", "5b", ("dgate[order] = dshare", "dgate[:] = dshare")),
    ],
    "experts, 2 of 5, dispatched": [
        ("an expert's buffer is too small", "2", ("capacity = len(rows)", "capacity = k * len(rows) // wg.shape[1]")),
    ],
    "experts, 2 of 5, renormalised": [
        ("the sum of what is chosen is not differentiated", "2b",
         ("(dgate - (dgate * gate).sum(1, keepdims=True)) / some", "dgate / some")),
    ],
    "experts, 2 of 5, tokens": [
        ("logits are divided by the root of the width", "1", ("row @ wg", "row @ wg / sqrt(len(row))")),
    ],
    "experts, 1 of 3, dense": [
        ("the smallest is chosen", "2", ("order[..., :k]", "order[..., -k:]")),
        ("two are chosen", "2", ("order[..., :k]", "order[..., :2]")),
        ("the gate is a sigmoid", "2",
         ("gate = gate / gate.sum(-1, keepdims=True)", "gate = chosen / (1 + np.exp(-logits))")),
        ("relu is left out", "4 4b", ("PHI[act](h)", "h, np.ones_like(h)")),
        ("relu leaks a tenth", "4 4b",
         ("PHI[act](h)", "np.where(h > 0, h, h / 10), np.where(h > 0, 1, 0.1).astype(h.dtype)")),
        ("gelu in place of relu", "4 4b", ("PHI[act]", 'PHI["gelu"]')),
        ("the slope of relu is forgotten", "4b", ("gate[..., None] * slope", "gate[..., None]")),
        ("the slope of relu asks the gradient", "4b", ("gate[..., None] * slope", "gate[..., None] * (dweighted > 0)")),
    ],
    "experts, 1 of 3, gathered": [
        ("b1 of the first expert goes for all", "3", ("+ b1[pick]", "+ b1[pick * 0]")),
        ("b2 is left out", "7", (" + b2[pick]", "")),
        ("dw2 is that of an expert's last token", "6b", ("np.add.at(dw2, pick, a[..., None] * dout[:, :, None])",
                                                        "dw2[pick] = a[..., None] * dout[:, :, None]")),
    ],
    "experts, 1 of 3, loop": [
        ("db1 is a mean over tokens", "3b", ("dh.sum(0)", "dh.mean(0)")),
        ("w2 of the expert before", "6", ("a @ w2[e]", "a @ w2[e - 1]")),
        ("the last expert is left out", "2", ("range(wg.shape[1])", "range(wg.shape[1] - 1)")),
    ],
    "experts, 1 of 3, sorted": [
        ("dw1 takes tokens that are not sorted", "3b", ("sent[at].T @ dh[at]", "rows[at].T @ dh[at]")),
        ("dw2 takes do that is not sorted", "6b", ("a[at].T @ dout[at]", "a[at].T @ g[at]")),
        ("dx stays sorted by expert", "3b", ("np.add.at(dx, token, np.concatenate([dh[at] @ w1[:, e].T for e, at in "
         "enumerate(blocks)]))", "dx += np.concatenate([dh[at] @ w1[:, e].T for e, at in enumerate(blocks)])")),
    ],
    "experts, 1 of 3, dispatched": [
        ("an expert's buffer is too small", "2", ("capacity = len(rows)", "capacity = len(rows) // 3")),
    ],
    "experts, 1 of 3, renormalised": [
        ("the gate is the probability among all experts", "2", ("gate = p * chosen / some", "gate = p * chosen")),
        ("dw1 is a mean over tokens", "3b", ("(rows.T @ dh)", "(rows.T @ dh / rows.dtype.type(n))")),
        ("dx lacks what comes through the experts", "1b 3b", ("dx = dh @ w1.reshape(m, -1).T + ", "dx = ")),
    ],
    "experts, 1 of 3, tokens": [
        ("db2 is that of an expert's last token", "7b", ('d["db2"][e] += ', 'd["db2"][e] = ')),
        ("w2 is transposed by a reshape in the backward", "6b",
         ("(w2[e] @ g)", "(w2[e].reshape(w2.shape[:0:-1]).T @ g)")),
    ],
    "experts, 4 of 4, dense": [
        ("tanh in place of erf", "4 4b", ("PHI[act]", 'PHI["gelu"]')),
        ("the slope is that of tanh", "4b",
         ("a, slope = PHI[act](h)", 'a = PHI[act](h)[0]\n    slope = PHI["gelu"](h)[1]')),
        ("gates are equal", "2", ("gate = gate / gate.sum(-1, keepdims=True)", "gate = chosen.astype(x.dtype) / k")),
        ("the least is left out", "2", ("order[..., :k]", "order[..., :k - 1]")),
        ("the gate is squared where it weighs", "5", ("a * gate[..., None]", "a * gate[..., None] ** 2")),
        ("the softmax sums over tokens", "2", ("gate = gate / gate.sum(-1,", "gate = gate / gate.sum(1,")),
        ("the gate is not differentiated", "2b 5b", ("dlogits = gate *", "dlogits = 0 * gate *")),
    ],
    "experts, 4 of 4, gathered": [
        ("w2 is in the order of numbers, not of choice", "6", ("a, w2[pick]) + b2", "a, w2[np.sort(pick, 1)]) + b2")),
        ("the gradient of logits is in the order of choice", "2b",
         ("np.put_along_axis(dlogits, pick, dbest, 1)", "dlogits[:] = dbest")),
        ("da lacks the gate", "5b", ('"nkm,nkfm->nkf", dout,', '"nm,nkfm->nkf", g,')),
        ("db2 lacks the gate", "7b", ("np.add.at(db2, pick, dout)", "np.add.at(db2, pick, g[:, None] + 0 * dout)")),
    ],
    "experts, 4 of 4, loop": [
        ("dx is that of the last expert", "3b", ("dx[at] += dh", "dx[at] = dh")),
        ("dgate lacks what comes through b2", "5b", ("(g[at] * out)", "(g[at] * (out - b2[e]))")),
        ("b2 is outside the gate", "7", ("share * out", "share * (a @ w2[e]) + b2[e]")),
        ("the softmax's backward subtracts a mean", "2b",
         ("dlogits -= gate * dlogits.sum(1, keepdims=True)", "dlogits -= dlogits.mean(1, keepdims=True)")),
    ],
    "experts, 4 of 4, dispatched": [
        ("dx lacks what comes through the gate", "1b", ("dx = dx + dlogits @ wg.T", "pass")),
    ],
    "experts, 4 of 4, renormalised": [
        ("dw2 takes activations before the gate", "6b", ("(weighted.T @ g)", "(a.reshape(n, -1).T @ g)")),
        ("dgate lacks what comes through the experts", "5b", ('np.einsum("nxf,nxf->nx", dweighted, a) + g', "g")),
        ("the gate is applied twice in the backward", "5b",
         ("(dweighted * gate[..., None] * slope)", "(dweighted * gate[..., None] ** 2 * slope)")),
    ],
    "experts, 4 of 4, tokens": [
        ("dwg is that of the last token", "1b", ('d["dwg"] += ', 'd["dwg"] = ')),
        ("the softmax's backward adds the sum", "2b", ("np.diag(gate) - np", "np.diag(gate) + np")),
        ("logits have a temperature of 2", "1", ("row @ wg", "row @ wg / 2")),
    ],
    "generated weights, letters": [
        ("heads are averaged", "2", ("code, operation)\n    o", "code, operation) / code.dtype.type(len(wo))\n    o")),
        ("o is a mean over keys", "3", ("w, x)", "w, x) / x.dtype.type(x.shape[1])")),
        ("dx is a mean over queries", "3b", ("w, do)", "w, do) / x.dtype.type(do.shape[1])")),
        ("dcode has the other sign", "2b", ("dcode = np", "dcode = -np")),
        ("the gradient of operations lacks the code", "2b", ("code, dw)", "np.ones_like(code), dw)")),
        ("operations are divided by the root of their width", "1",
         ("wv, wo)", "wv, wo) / wv.dtype.type(sqrt(wv.shape[2]))")),
    ],
    "generated weights, heads": [
        ("dx is that of the last head", "3b", ("dx += dv", "dx = dv")),
        ("dwv is that of the first sequence", "1b 3b", ("x, dv)", "x[:1], dv[:1])")),
        ("dwo is a mean over sequences", "1b", ("mixed, do)", "mixed, do) / x.dtype.type(len(x))")),
    ],
    "generated weights, matmul": [
        ("wv is reshaped, not transposed", "1", ("wv.transpose(1, 0, 2) @", "wv.reshape(heads, i, -1) @")),
        ("dwv is reshaped, not transposed", "1b",
         ("swapaxes(1, 2)).transpose(1, 0, 2)", "swapaxes(1, 2)).reshape(wv.shape)")),
        ("dcode is reshaped, not transposed", "2b",
         ("reshape(b, nq, nk, heads).transpose(0, 3, 1, 2)", "reshape(code.shape)")),
    ],
    "generated weights, pairs": [
        ("the gradient of operations is that of the last pair", "2b", ("doperation += c", "doperation = c")),
        ("o is that of the last key", "3", ("o[b, q] += ", "o[b, q] = ")),
    ],
    "generated nonlinear network, letters": [
        ("relu is left out", "4 4b", ("np.maximum(z, 0)", "z")),
        ("the absolute value in place of relu", "4 4b", ("np.maximum(z, 0)", "np.abs(z)")),
        ("o is a mean over keys", "4", ("outer, r)", "outer, r) / r.dtype.type(x.shape[1])")),
        ("the slope of relu is forgotten", "4b", ("dr * (z > 0)", "dr")),
        ("the slope of relu asks the gradient", "4b", ("dr * (z > 0)", "dr * (dr > 0)")),
        ("the outer layer's gradient takes what is before relu", "4b", ('bqkem", r, do)', 'bqkem", z, do)')),
        ("dcode lacks the inner layer", "1b", ('dcode = dcode + np.einsum("bqkie,ihe->bhqk", dinner, wv)', "pass")),
        ("dcode of the inner layer overwrites that of the outer", "1b 2b", ("dcode = dcode + np", "dcode = np")),
        ("dx lacks the slope of relu", "3b", ("inner, dz)", "inner, dr)")),
    ],
    "generated nonlinear network, queries": [
        ("dwo is that of the last query", "2b", ("dwo += np", "dwo = np")),
        ("dx is that of the last query", "3b", ("dx[b] += ", "dx[b] = ")),
        ("the inner layer takes the first query's code", "1",
         ("inner = np.tensordot(c.T", "inner = np.tensordot(code[b, :, 0].T")),
    ],
    "generated nonlinear network, pairs": [
        ("the outer layer takes codes of other heads", "2", ('hem->em", c, out)', 'hem->em", np.roll(c, 1), out)')),
        ("dwv lacks the code", "1b",
         ("dwv += c[:, None] * np.outer(row, dz)[:, None]", "dwv += np.outer(row, dz)[:, None]")),
    ],
}
