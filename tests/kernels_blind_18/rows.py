"""Right kernels by name, and their mistakes with the lines that were written down before the first run."""

ALL = {"bias": "bhqk", "keep": "bhqk", "dropout": "bhqk"}
FIRST = {**ALL, "layout": "bhtd"}
HEADS = {"bias": "hqk", "keep": "bhqk", "dropout": "bhqk"}
STRETCHED = {"bias": "b1qk", "keep": "b1qk", "dropout": "hqk"}
NO_RMS, RMS, SOFT = "hyla_no_rms_head", "linear_rms_head", "hyla_softmax_for_rms_head"

RIGHT = {                      # name: page, function, arguments that are fixed, options
    "softmax, online": ("softmax", "softmax_online", {}, FIRST),
    "softmax, base 2": ("softmax", "softmax_base_2", {}, HEADS),
    "softmax, compacted": ("softmax", "softmax_compacted", {}, ALL),
    "softmax, packed": ("softmax", "softmax_packed", {}, ALL),
    "softmax, quotient": ("softmax", "softmax_quotient", {}, STRETCHED),
    "linear, loops": ("linear", "linear_loops", {}, ALL),
    "linear, tiles": ("linear", "linear_tiles", {}, FIRST),
    "linear, states": ("linear", "linear_states", {}, HEADS),
    "linear, augmented": ("linear", "linear_augmented", {}, FIRST),
    "linear, sparse": ("linear", "linear_sparse", {}, STRETCHED),
    "hyla, folded": ("hyla", "hyla_folded", {}, ALL),
    "hyla, projections": ("hyla", "hyla_projections", {}, ALL),
    "hyla, recomputed": ("hyla", "hyla_recomputed", {}, FIRST),
    "hyla, heads last": ("hyla", "hyla_heads_last", {}, HEADS),
    "hyla, generated": ("hyla", "hyla_generated", {}, {"bias": "b1qk", "keep": "hqk", "dropout": "hqk"}),
    "plain hyla, letters": (NO_RMS, "plain_hyla_letters", {}, ALL),
    "plain hyla, key by key": (NO_RMS, "plain_hyla_key_by_key", {}, HEADS),
    "plain hyla, tiles of queries": (NO_RMS, "plain_hyla_query_tiles", {}, FIRST),
    "plain hyla, pairs": (NO_RMS, "plain_hyla_pairs", {}, ALL),
    "plain hyla, gram": (NO_RMS, "plain_hyla_gram", {}, STRETCHED),
    "rms, tiles": (RMS, "rms_tiles", {}, FIRST),
    "rms, rows": (RMS, "rms_rows", {}, ALL),
    "rms, query by query": (RMS, "rms_query_by_query", {}, HEADS),
    "rms, two passes": (RMS, "rms_two_passes", {}, FIRST),
    "rms, double": (RMS, "rms_double", {}, ALL),
    "soft hyla, two passes": (SOFT, "soft_hyla_two_passes", {}, FIRST),
    "soft hyla, base 2": (SOFT, "soft_hyla_base_2", {}, ALL),
    "soft hyla, loops": (SOFT, "soft_hyla_loops", {}, HEADS),
    "soft hyla, heads last": (SOFT, "soft_hyla_heads_last", {}, ALL),
    "soft hyla, unnormalised": (SOFT, "soft_hyla_unnormalised", {}, FIRST),
    "deep, letters": ("hyla_deep", "deep_letters", {}, ALL),
    "deep, query by query": ("hyla_deep", "deep_query_by_query", {}, ALL),
    "deep, tiles": ("hyla_deep", "deep_tiles", {}, FIRST),
    "deep, generated": ("hyla_deep", "deep_generated", {}, HEADS),
    "deep, rows": ("hyla_deep", "deep_rows", {}, ALL),
}

WRONG = {                      # name: what, lines, patches
    "softmax, online": [
        ("what was summed before a new maximum is not rescaled", "2 4",
         ("acc = acc * shrink + (p", "acc = acc + (p")),
        ("the forward loses the last tile", "2 4",
         ("for at in range(0, t, 3):\n        w = slice(at, at + 3)\n        s =",
          "for at in range(0, t - 2, 3):\n        w = slice(at, at + 3)\n        s =")),
        ("dk without 1 / sqrt(d)", "1b", ("tr(ds) @ q * scale", "tr(ds) @ q"))],
    "softmax, base 2": [
        ("the bias is not multiplied by log2(e)", "1",
         ("(qi @ tr(kt) * d ** -0.5 + add[:, :, rows]) * LOG2E",
          "qi @ tr(kt) * (d ** -0.5 * LOG2E) + add[:, :, rows]")),
        ("the exponentials in place of the weights in the softmax's backward", "2b",
         ("ds = a * da - a *", "ds = p * da - a *")),
        ("no dropout in the output", "3 4", ("(c @ vt)", "(a @ vt)"))],
    "softmax, compacted": [
        ("the diagonal of the softmax's Jacobian alone", "2b", ("np.diag(w) - np.outer(w, w)", "np.diag(w * (1 - w))")),
        ("dropout is read by the place among the kept keys", "3 3b 4 4b",
         ("drop[x, y, i, seen]", "drop[x, y, i, :len(seen)]")),
        ("dv is overwritten by the last query", "4b", ("dv[x, seen, y] +=", "dv[x, seen, y] ="))],
    "softmax, packed": [
        ("the bias is packed as (h b)", "1",
         ("kp) + add +", "kp) + add.reshape(b, h, n, t).swapaxes(0, 1).reshape(b * h, n, t) +")),
        ("no dropout in the weights' gradient", "3b",
         ('np.einsum("zne,zte,znt->znt", dop, vp, drop)', 'np.einsum("zne,zte->znt", dop, vp)')),
        ("the softmax's sum in the backward runs over queries", "2b",
         ('np.einsum("znt,znt->zn", a, inner)[..., None]', 'np.einsum("znt,znt->zt", a, inner)[:, None]'))],
    "softmax, quotient": [
        ("the normaliser's gradient has the wrong sign", "2b", ("dbelow = -(do", "dbelow = (do")),
        ("the weights are normalised after dropout", "2 3",
         ("below = x.sum(-1).tr", "below = (x * drop).sum(-1).tr")),
        ("dv is not divided by the normaliser", "4b",
         ('"bhqk,bqhe->bkhe", x * drop, dabove', '"bhqk,bqhe->bkhe", x * drop, do'))],
    "linear, loops": [
        ("the bias is divided by sqrt(d) too", "1",
         ("qs @ ks.T / sqrt(d) + add[x, y]", "(qs @ ks.T + add[x, y]) / sqrt(d)")),
        ("no mask in the backward", "2b", ("g @ vs.T * weight", "g @ vs.T * drop[x, y]")),
        ("dv without dropout", "3b 4b", ("(s * weight).T @ g", "(s * on[x, y]).T @ g"))],
    "linear, tiles": [
        ("the bias is added behind the mask", "1 2",
         ("np.where(mine, q @ tr(kt) + add[..., at:at + 2], 0)",
          "(np.where(mine, q @ tr(kt), 0) + add[..., at:at + 2])")),
        ("dq without 1 / sqrt(d)", "1b", ("    dq *= d ** -0.5\n", "")),
        ("dk has 1 / sqrt(d) twice", "1b", ("dk=np.concatenate(dks, 2)", "dk=np.concatenate(dks, 2) * d ** -0.5"))],
    "linear, states": [
        ("dv without the bias's part", "4b", (' + np.einsum("bhqk,bhqk,bqhe->bkhe", weight, add, do)', "")),
        ("neither mask nor dropout in dk", "1b 2b 3b",
         ('np.einsum("bhqk,bqhde,bkhe->bkhd", weight, dstate, v)', 'np.einsum("bqhde,bkhe->bkhd", dstate, v)')),
        ("the state of one query goes on from the last one's", "1 2 4",
         ('state = np.einsum("bhqk,bkhd,bkhe->bqhde", weight, k, v)',
          'state = np.einsum("bhqk,bkhd,bkhe->bqhde", weight, k, v).cumsum(1)'))],
    "linear, augmented": [
        ("no dropout in the code's gradient", "3b", ("do @ tr(v) * gate", "do @ tr(v) * on")),
        ("dbias is divided by sqrt(d)", "1b", ("dleft[..., d:]", "dleft[..., d:] / sqrt(d)")),
        ("what is masked is only spared the dropout", "2 2b 3 3b",
         ("on.astype(q.dtype) * drop", "np.where(on, drop, 1)"))],
    "linear, sparse": [
        ("dk is made of keys", "1b", ("ds * qs / sqrt(d)", "ds * ks.mean(0) / sqrt(d)")),
        ("a fancy += keeps one of several keys of a query", "4",
         ("np.add.at(o, (x, i, y), s * factor * vs)", "o[x, i, y] += s * factor * vs")),
        ("dropout is not rescaled", "3 3b 4b", ("drop[x, y, i, j][:, None]", "(drop[x, y, i, j][:, None] > 0)"))],
    "hyla, folded": [
        ("epsilon outside the root", "3",
         ("(np.square(s).mean(1, keepdims=True) + 1e-6) ** -0.5",
          "1 / (np.square(s).mean(1, keepdims=True) ** 0.5 + 1e-6)")),
        ("a sum in place of the mean in the norm's backward", "3b",
         ("(s * da).mean(1, keepdims=True)", "(s * da).sum(1, keepdims=True)")),
        ("the relu's backward looks at the gradient", "6b",
         ('np.einsum("bhqk,bqhe->bqke", c, do) * (z > 0)', 'np.einsum("bhqk,bqhe->bqke", c, do).clip(0)'))],
    "hyla, projections": [
        ("the projection is made of scores", "3b", ("np.outer(a, a) / h", "np.outer(s, s) / h")),
        ("the mean divides by the heads that are kept", "3", ("s @ s / h + 1e-6", "s @ s / max(mask.sum(), 1) + 1e-6")),
        ("dk is overwritten by the last query", "1b", ("dk[x, j] += ds", "dk[x, j] = ds"))],
    "hyla, recomputed": [
        ("no dropout in the code's gradient", "4b", ("da = dc * drop[..., w]", "da = dc")),
        ("the code's first use has no gradient", "5b",
         ('        dc += np.einsum("bqke,bhke->bhqk", dz, v[:, :, w])\n', "")),
        ("the outer use sees no dropout", "4 7", ("_, _, c, z = tile(", "c, _, _, z = tile("))],
    "hyla, heads last": [
        ("the norm's backward means over keys", "3b",
         ("(a * da).mean(-1, keepdims=True)", "(a * da).mean(-2, keepdims=True)")),
        ("dv without the relu", "5b 6b", ("->bkhe\", c, dz)", "->bkhe\", c, c @ do)")),
        ("a leaky relu", "6 6b", ("(z > 0).astype(q.dtype)", "np.where(z > 0, 1, 0.01).astype(q.dtype)"))],
    "hyla, generated": [
        ("the inner use sees no dropout", "4 5", ('"hij,jhe->ije", code, vs', '"hij,jhe->ije", s / norm, vs')),
        ("no mask in the backward", "2b", ("        ds = np.where(on[x], ds, 0)\n", "")),
        ("the norm is detached", "3b", (" - s * (s * dcode).mean(0) / norm ** 3", ""))],
    "plain hyla, letters": [
        ("dk has 1 / sqrt(d) twice", "1b", ("ds, q) * d ** -0.5", "ds, q) / d")),
        ("the outer use's gradient is made of what stands before the relu", "5b 9b",
         ('np.einsum("bqhe,bqke,bqke->bhqk", do, z, open_)', 'np.einsum("bqhe,bqke->bhqk", do, z)')),
        ("dropout is not rescaled in the backward", "3b", ("ds * drop, 0", "ds * (drop > 0), 0"))],
    "plain hyla, key by key": [
        ("dv is made of the hidden layer, not of its gradient", "4b", ("c.T @ dz", "c.T @ hot")),
        ("the values of the key before in the code's gradient", "4b", ("dz @ v[x, j].T", "dz @ v[x, j - 1].T")),
        ("dk is a mean over queries", "1b", ("* q[x]).sum(0)", "* q[x]).mean(0)"))],
    "plain hyla, tiles of queries": [
        ("dk is that of the last tile", "1b", ("dk += tr(ds)", "dk = tr(ds)")),
        ("the relu's backward looks at the gradient of the output", "5b",
         ("sum(1, keepdims=True) * (z > 0)", "sum(1, keepdims=True) * (upstream.sum(1, keepdims=True) > 0)")),
        ("the bias is added behind mask and dropout", "1 2 3",
         ("(q[:, :, r] @ tr(k) / sqrt(d) + add[:, :, r]) * gate",
          "q[:, :, r] @ tr(k) / sqrt(d) * gate + add[:, :, r]"))],
    "plain hyla, pairs": [
        ("the relu as |z| + z, not halved", "5", ("(np.abs(z) + z) / 2", "np.abs(z) + z")),
        ("no mask in the backward", "2b", ("vs, dz)) * live", "vs, dz)) * drop[x, i, j]")),
        ("a fancy += keeps one of several keys of a query in dq", "1b",
         ("np.add.at(dq, (x, i), ds[..., None] * ks / sqrt(d))", "dq[x, i] += ds[..., None] * ks / sqrt(d)"))],
    "plain hyla, gram": [
        ("the code's first use has no gradient", "4b", ("(dgram + tr(dgram))", "dgram")),
        ("the step is that of values, not of the hidden layer", "5",
         ('np.heaviside(np.einsum("bqkh,bkhe->bqke", c, v), 0)',
          "np.broadcast_to(np.heaviside(v.sum(2)[:, None], 0), (b, n, *v.sum(2).shape[1:]))")),
        ("no dropout in the code's gradient", "3b",
         ("dc.transpose(0, 3, 1, 2) * weight", "dc.transpose(0, 3, 1, 2) * on"))],
    "rms, tiles": [
        ("the norm runs over the keys of a tile", "2",
         ("np.mean(s * s, axis=1, keepdims=True)", "np.mean(s * s, axis=3, keepdims=True)")),
        ("the norm's backward takes away the mean of the gradient", "2b",
         ("np.mean(a * da, axis=1", "np.mean(da, axis=1")),
        ("no mask in the backward", "2b", ("(da - a * along) * on[..., w]", "(da - a * along)"))],
    "rms, rows": [
        ("the keys of a sequence begin at as many rows as there are queries", "1 9 1b 9b",
         ("(n * t)) * t +", "(n * t)) * n +")),
        ("the mean divides by the width of a head", "2", ("keepdims=True) / h + 1e-6", "keepdims=True) / d + 1e-6")),
        ("the projection is not divided by the mean square", "2b", ("da - s / square *", "da - s *"))],
    "rms, query by query": [
        ("an epsilon of 1e-4", "2", ("/ h + 1e-6", "/ h + 1e-4")),
        ("the norm's Jacobian without rho", "2b", ("rho[:, None, None] * (np.eye", "(np.eye")),
        ("no dropout in the code's gradient", "3b", ("da = factor * np", "da = np"))],
    "rms, two passes": [
        ("the statistics are those of the last head", "2", ("squares += score(y) ** 2", "squares = score(y) ** 2")),
        ("no dropout in what the norm's backward sums", "2b 3b",
         ("inner += score(y) * drop[:, y] * (do", "inner += score(y) * (do")),
        ("rho squared in place of cubed", "2b", ("r ** 3 / h", "r ** 2 / h"))],
    "rms, double": [
        ("no mask in the forward", "2", ("/ sqrt(d) + add) * on\n", "/ sqrt(d) + add)\n")),
        ("the root of the sum of squares", "2", ("np.hypot(norm / sqrt(h), 1e-3)", "np.hypot(norm, 1e-3)")),
        ("dv without dropout", "3b 9b",
         ('np.einsum("bhqk,bhqk,bqhe->bkhe", code, drop, up)', 'np.einsum("bhqk,bqhe->bkhe", code, up)'))],
    "soft hyla, two passes": [
        ("the sum is not rescaled for a new maximum", "2", ("total = total * np.exp(m - new) +", "total = total +")),
        ("D is rowsum(do o), as in softmax attention", "2b",
         ('delta += np.einsum("bhqk,bqke,bhke->bhq", c, dz, v[:, :, w])[..., None]', "pass")),
        ("dv without dropout", "3b 4b",
         ('np.einsum("bhqk,bqke->bhke", c, dz)', 'np.einsum("bhqk,bqke->bhke", a, dz)'))],
    "soft hyla, base 2": [
        ("the products are not multiplied by log2(e)", "1", ("(LOG2E * d ** -0.5)", "d ** -0.5")),
        ("a query that keeps nothing gets equal weights", "2",
         ("np.exp2(x - x.max(-1, keepdims=True)) * on[:, :, r]", "np.exp2(x - x.max(-1, keepdims=True))")),
        ("dk is that of the last tile of queries", "1b", ("dk += np.einsum", "dk = np.einsum"))],
    "soft hyla, loops": [
        ("the softmax's Jacobian is made of dropped weights", "2b",
         ("(np.diag(a[y]) - np.outer(a[y], a[y]))", "(np.diag(c[y]) - np.outer(c[y], c[y]))")),
        ("the relu's backward looks at the gradient", "5b", ("(z > 0) * (c.T @ do[x, i])", "(c.T @ do[x, i]).clip(0)")),
        ("dropout in the gradient of the first use alone", "3b 9b",
         ("(do[x, i] @ np.maximum(z, 0).T + np.einsum(\"khe,ke->hk\", v[x], dz)) *",
          "do[x, i] @ np.maximum(z, 0).T + np.einsum(\"khe,ke->hk\", v[x], dz) *"))],
    "soft hyla, heads last": [
        ("the weights are divided by their sum over heads", "2",
         ("below = a.sum(axis=2, keepdims=True)", "below = a.sum(axis=3, keepdims=True)")),
        ("the softmax's sum in the backward has dropout twice", "2b 3b",
         ("(a * da).sum(axis=2", "(c * da).sum(axis=2")),
        ("the outer use sees no dropout", "3 9", ("o=tr(c) @ hot", "o=tr(a) @ hot"))],
    "soft hyla, unnormalised": [
        ("1 / sum to the first power in the gradient of the sum", "2b", ("dr * r ** 2", "dr * r")),
        ("the hidden layer's gradient has weights that are not normalised", "2b 4b 5b 9b", ("up = do * r", "up = do")),
        ("one more in the sum, as in softmax-one", "2",
         ("total = x.sum(axis=-1, keepdims=True)", "total = x.sum(axis=-1, keepdims=True) + 1"))],
    "deep, letters": [
        ("wv2 is transposed in the backward", "6b 7b", ('"bhqk,hef,bqkf->bqke", c', '"bhqk,hfe,bqkf->bqke", c')),
        ("no relu on the first hidden layer", "5", ('->bqkf", c, z * (z > 0), wv2', '->bqkf", c, z, wv2')),
        ("the code's second use has no gradient", "7b",
         ('    dc += np.einsum("bqke,hef,bqkf->bhqk", z * (z > 0), wv2, dz2)\n', ""))],
    "deep, query by query": [
        ("dwv2 is that of the last query", "6b", ("dwv2 += np", "dwv2 = np")),
        ("the first relu's backward looks at the second hidden layer", "5b",
         ("du, wv2) * (z > 0)", "du, wv2) * (z2 > 0)")),
        ("epsilon outside the root", "2",
         ("np.sqrt(np.square(s).sum(1, keepdims=True) / h + 1e-6)",
          "(np.sqrt(np.square(s).sum(1, keepdims=True) / h) + 1e-6)"))],
    "deep, tiles": [
        ("a power of the mean square that is too low in the norm's backward", "2b",
         ("s * second ** -1.5", "s * second ** -1")),
        ("dwv2 without dropout", "3b 6b 7b", ("g, c, dz2)", "g, s * second ** -0.5, dz2)")),
        ("forward and backward lose the last tile", "1 2 3 9", ("range(0, t, 2)", "range(0, t - 1, 2)"))],
    "deep, generated": [
        ("the gradient of the generated matrix is transposed", "6b 7b",
         ("g[..., :, None] * dz2[..., None, :]", "dz2[..., :, None] * g[..., None, :]")),
        ("the root of the sum of squares", "2", ("a = sqrt(h) * s / norm", "a = s / norm")),
        ("the generated matrix is transposed in the backward", "6b 7b", ("(w @ dz2", "(tr(w) @ dz2"))],
    "deep, rows": [
        ("the second use's gradient is made of what stands before the relu", "5b 6b 7b",
         ("dmixed, np.maximum(z, 0))", "dmixed, z)")),
        ("no relu on the second hidden layer", "8", ('"ph,pf->phf", c, np.maximum(z2, 0)', '"ph,pf->phf", c, z2')),
        ("the projection is added", "2b", ("da / root - s *", "da / root + s *"))],
}
