"""Right kernels in NumPy of rows that are not attention pages; `rows.py` has their mistakes."""

from math import erf, erfc, log, pi, prod, sqrt
from statistics import NormalDist

import numpy as np

ERF, ERFC = (np.vectorize(f, otypes=[float]) for f in (erf, erfc))


def phi_exact(h):
    """gelu and its slope by the error function."""
    p = (0.5 * ERFC(-h * sqrt(0.5))).astype(h.dtype)
    return h * p, p + h * np.exp(-0.5 * h * h) * h.dtype.type(1 / sqrt(2 * pi))


def phi_tanh(h):
    """gelu and its slope by tanh."""
    one = h.dtype.type
    t = np.tanh(one(sqrt(2 / pi)) * (h + one(0.044715) * h ** 3))
    rise = one(sqrt(2 / pi)) * (1 + one(3 * 0.044715) * h ** 2)
    return one(0.5) * h * (1 + t), one(0.5) * (1 + t + h * (1 - t * t) * rise)


def phi_relu(h):
    """relu and its slope."""
    return np.maximum(h, 0), (h > 0).astype(h.dtype)


PHI = {"gelu": phi_tanh, "gelu_exact": phi_exact, "relu": phi_relu}


# -------------------------------------------------------------------------------------------------------- operations

def gelu_plain(x, do):
    """By erf, in the precision of x."""
    one = x.dtype.type
    p = (1 + ERF(x / sqrt(2)).astype(x.dtype)) / 2
    density = np.exp(-x * x / 2) / one(sqrt(2 * pi))
    return x * p, do * (p + x * density)


def gelu_with_slope(x, do):
    """By erfc in float64, the slope made in the forward."""
    wide = x.astype(np.float64)
    p = ERFC(-wide / sqrt(2)) / 2
    o = wide * p
    slope = p + wide * np.exp(-0.5 * wide ** 2) * (1 / sqrt(2 * pi))
    return o.astype(x.dtype), (do * slope).astype(x.dtype)


def gelu_entries(x, do):
    """Entry by entry."""
    o, dx, normal = np.empty_like(x), np.empty_like(x), NormalDist()
    for at in np.ndindex(x.shape):
        v = float(x[at])
        o[at] = v * normal.cdf(v)
        dx[at] = do[at] * (normal.cdf(v) + v * normal.pdf(v))
    return o, dx


def gelu_tiles(x, do, tile=5):
    """Tiles of the flat array; a second pass goes over them for the gradient."""
    flat, g, one = x.reshape(-1), do.reshape(-1), x.dtype.type
    o, dx = np.zeros_like(flat), np.zeros_like(flat)
    for start in range(0, len(flat), tile):
        piece = flat[start:start + tile]
        o[start:start + tile] = piece * (one(0.5) + one(0.5) * ERF(piece * sqrt(0.5)).astype(x.dtype))
    for start in range(0, len(flat), tile):
        piece = flat[start:start + tile]
        slope = one(0.5) * ERFC(-piece * sqrt(0.5)).astype(x.dtype)
        slope += piece * np.exp(one(-0.5) * piece * piece) * one((2 * pi) ** -0.5)
        dx[start:start + tile] = g[start:start + tile] * slope
    return o.reshape(x.shape), dx.reshape(x.shape)


def scores_einsum(q, k, do, bias=None):
    """Two letters at a time."""
    scale = q.dtype.type(q.shape[-1] ** -0.5)
    o = np.einsum("bqhd,bkhd->bhqk", q, k) * scale
    dq = np.einsum("bhqk,bkhd->bqhd", do, k) * scale
    dk = np.einsum("bhqk,bqhd->bkhd", do, q) * scale
    if bias is None:
        return o, dq, dk
    o = o + bias
    dbias = do
    while dbias.ndim > bias.ndim:
        dbias = dbias.sum(0)
    for axis, n in enumerate(bias.shape):
        if n == 1:
            dbias = dbias.sum(axis, keepdims=True)
    return o, dq, dk, dbias


def scores_matmul(q, k, do, bias=None):
    """Queries are scaled before the product; sequences and heads are one axis."""
    b, nq, h, d = q.shape
    nk = k.shape[1]
    scaled = q / q.dtype.type(sqrt(d))
    rows = scaled.transpose(0, 2, 1, 3).reshape(b * h, nq, d)
    keys = k.transpose(0, 2, 1, 3).reshape(b * h, nk, d)
    g = do.reshape(b * h, nq, nk)
    o = (rows @ keys.swapaxes(1, 2)).reshape(b, h, nq, nk)
    dq = (g @ keys).reshape(b, h, nq, d).transpose(0, 2, 1, 3) / q.dtype.type(sqrt(d))
    dk = (g.swapaxes(1, 2) @ rows).reshape(b, h, nk, d).transpose(0, 2, 1, 3)
    if bias is None:
        return o, dq, dk
    padded = (1,) * (4 - bias.ndim) + bias.shape
    stretched = tuple(axis for axis in range(4) if padded[axis] == 1)
    return o + bias, dq, dk, do.sum(stretched, keepdims=True).reshape(bias.shape)


def scores_queries(q, k, do, bias=None):
    """Query by query in float64, the keys' gradient being added up."""
    b, nq, h, d = q.shape
    o = np.zeros((b, h, nq, k.shape[1]))
    dq, dk = np.zeros(q.shape), np.zeros(k.shape)
    for n, i, t in np.ndindex(b, h, nq):
        row, keys, g = q[n, t, i].astype(float), k[n, :, i].astype(float), do[n, i, t].astype(float)
        o[n, i, t] = keys @ row * d ** -0.5
        dq[n, t, i] = g @ keys * d ** -0.5
        dk[n, :, i] += np.outer(g, row) / sqrt(d)
    found = [dq, dk]
    if bias is not None:
        whole = np.broadcast_to(bias, o.shape)
        o = o + whole
        dbias, number = np.zeros(bias.size), np.arange(bias.size).reshape(bias.shape)
        np.add.at(dbias, np.broadcast_to(number, o.shape).reshape(-1), do.reshape(-1))
        found.append(dbias.reshape(bias.shape))
    return [x.astype(q.dtype) for x in (o, *found)]


def scores_features(q, k, do, bias=None):
    """Feature by feature, as outer products."""
    o = 0 if bias is None else np.broadcast_to(bias, do.shape)
    dq, dk = np.empty_like(q), np.empty_like(k)
    root = q.dtype.type(sqrt(q.shape[3]))
    for d in range(q.shape[3]):
        left = q[..., d].swapaxes(1, 2)[..., :, None] / root
        right = k[..., d].swapaxes(1, 2)[..., None, :]
        o = o + left * right
        dq[..., d] = ((do * right).sum(3) / root).swapaxes(1, 2)
        dk[..., d] = (do * left).sum(2).swapaxes(1, 2)
    if bias is None:
        return o, dq, dk
    shape = (1,) * (4 - bias.ndim) + bias.shape
    dbias = do
    for axis in range(4):
        dbias = dbias if shape[axis] == do.shape[axis] else dbias.sum(axis, keepdims=True)
    return o, dq, dk, dbias.reshape(bias.shape)


def drop_product(a, dropout, do):
    """Two products."""
    return a * dropout, do * dropout


def drop_where(a, dropout, do):
    """What is dropped is written as 0, what is not is divided by what is kept, 3/4."""
    kept = np.broadcast_to(dropout, a.shape) != 0
    kept_share = a.dtype.type(0.75)
    o = np.where(kept, a / kept_share, 0)
    return o, np.where(kept, do / kept_share, 0)


def drop_rows(a, dropout, do):
    """Row by row of a dropout that is stretched first."""
    factor = np.broadcast_to(dropout, a.shape).reshape(-1, a.shape[-1])
    x, g = a.reshape(factor.shape), do.reshape(factor.shape)
    o, da = np.zeros_like(x), np.zeros_like(x)
    for n in range(len(x)):
        o[n] = x[n] * factor[n]
        da[n] = g[n] * factor[n]
    return o.reshape(a.shape), da.reshape(a.shape)


def drop_einsum(a, dropout, do):
    """Letters, in float64."""
    wide = np.broadcast_to(dropout, a.shape).astype(float)
    o = np.einsum("bhqk,bhqk->bhqk", a, wide)
    da = np.einsum("bhqk,bhqk->bhqk", wide, do)
    return o.astype(a.dtype), da.astype(a.dtype)


def zero_product(s, keep, do):
    """Booleans as numbers."""
    factor = keep.astype(s.dtype)
    return s * factor, do * factor


def zero_where(s, keep, do):
    """A choice between s and 0."""
    o = np.where(keep, s, 0)
    ds = np.where(keep, do, 0)
    return o.astype(s.dtype), ds.astype(s.dtype)


def zero_filled(s, keep, do):
    """Copies, in which what is left out is overwritten."""
    out = ~np.broadcast_to(keep, s.shape)
    o, ds = s.copy(), do.copy()
    o[out] = 0
    ds[out] = 0
    return o, ds


def zero_picked(s, keep, do):
    """Zeros, into which what is kept is put."""
    at = np.nonzero(np.broadcast_to(keep, s.shape))
    o, ds = np.zeros_like(s), np.zeros_like(s)
    o[at] = s[at]
    ds[at] = do[at]
    return o, ds


# ------------------------------------------------------------------------------------------------------------ losses

def mse_mean(y, target, do):
    """The mean, and its gradient."""
    e = y - target
    o = np.mean(e ** 2)
    return o, do * 2 * e / e.size


def mse_dot(y, target, do):
    """The flat error times itself."""
    e = (target - y).reshape(-1)
    o = e @ e / e.dtype.type(len(e))
    dy = e * (-2 * do / len(e))
    return o, dy.reshape(y.shape).astype(y.dtype)


def mse_running(y, target, do):
    """A mean that moves with each entry, in float64; the gradient in the same pass."""
    mean, dy = 0.0, np.empty_like(y)
    for n, at in enumerate(np.ndindex(y.shape)):
        e = float(y[at]) - float(target[at])
        mean += (e * e - mean) / (n + 1)
        dy[at] = 2 * e / y.size * float(do)
    return y.dtype.type(mean), dy


def mse_tiles(y, target, do, tile=7):
    """Tiles add to a sum, then to the gradient."""
    flat, aim, total = y.reshape(-1), target.reshape(-1), y.dtype.type(0)
    for start in range(0, y.size, tile):
        e = flat[start:start + tile] - aim[start:start + tile]
        total += (e * e).sum()
    dy = np.zeros_like(flat)
    for start in range(0, y.size, tile):
        piece = slice(start, start + tile)
        dy[piece] = (flat[piece] - aim[piece]) * (2 * do / y.dtype.type(y.size))
    return total / y.dtype.type(y.size), dy.reshape(y.shape)


def mae_mean(y, target, do):
    """The mean of absolute errors, and signs."""
    e = y - target
    s = np.sign(e)
    o = np.abs(e).mean()
    return o, do * s / y.dtype.type(e.size)


def mae_where(y, target, do):
    """The greater less the smaller."""
    ahead, behind = y > target, y < target
    o = (np.maximum(y, target) - np.minimum(y, target)).sum() / y.dtype.type(y.size)
    step = do / y.dtype.type(y.size)
    dy = np.where(ahead, step, 0) - np.where(behind, step, 0)
    return o, dy.astype(y.dtype)


def mae_sequences(y, target, do):
    """Sequence by sequence in float64, then the mean of means."""
    means, dy = [], np.empty_like(y)
    for n in range(len(y)):
        e = y[n].astype(float) - target[n]
        s = np.copysign(1, e) * (e != 0)
        means.append((e * s).mean())
        dy[n] = s * (float(do) / (len(y) * e.size))
    return y.dtype.type(sum(means) / len(means)), dy


def mae_root(y, target, do):
    """Roots of squares: the gradient is the error over its root."""
    e = (y - target).astype(float)
    size = np.sqrt(e * e)
    o = size.sum() / size.size
    dy = do * (e / np.where(size == 0, 1, size)) / size.size
    return y.dtype.type(o), dy.astype(y.dtype)


def square_plain(logits, target, do, weight=None):
    """Shares of the entries, and the chain rule step by step."""
    p = 1 / (1 + np.exp(-logits))
    e = p - target
    w = np.ones(logits.shape[:-1], logits.dtype) if weight is None else weight
    share = w / w.sum()
    o = (share * (e * e).mean(-1)).sum()
    de = 2 * e * share[..., None] / logits.dtype.type(logits.shape[-1]) * do
    return o, de * p * (1 - p)


def square_tanh(logits, target, do, weight=None):
    """The sigmoid by tanh, weights of every number, one sum divided by another."""
    one = logits.dtype.type
    t = np.tanh(logits * one(0.5))
    e = one(0.5) * (1 + t) - target
    w = np.ones_like(logits) if weight is None else np.repeat(weight[..., None], logits.shape[-1], -1)
    total = w.sum()
    o = np.vdot(w, e * e) / total
    dlogits = do * w * e * (1 - t * t) / (2 * total)
    return o, dlogits


def square_positions(logits, target, do, weight=None):
    """Position by position in float64; sums of weighted errors and of weights, then the gradient is divided."""
    rows, v = prod(logits.shape[:-1]), logits.shape[-1]
    x, t = logits.reshape(rows, v).astype(float), target.reshape(rows, v)
    w = [1.0] * rows if weight is None else weight.reshape(-1).tolist()
    above, below, g = 0.0, 0.0, np.zeros((rows, v))
    for n in range(rows):
        p = 1 / (1 + np.exp(-x[n]))
        e = p - t[n]
        above += w[n] * (e @ e) / v
        below += w[n]
        g[n] = w[n] * 2 * e / v * p * (1 - p)
    return logits.dtype.type(above / below), (g * (float(do) / below)).astype(logits.dtype).reshape(logits.shape)


def square_fused(logits, target, do, weight=None):
    """The gradient for 1 is made beside the loss, and multiplied by do afterwards."""
    one, v = logits.dtype.type, logits.shape[-1]
    small = np.exp(-np.abs(logits))
    p = np.where(logits < 0, small, 1) / (1 + small)
    e = p - target
    if weight is None:
        share = np.full(logits.shape[:-1], one(v) / one(logits.size))
    else:
        share = weight / weight.sum()
    o = np.einsum("bt,btv,btv->", share, e, e) / one(v)
    unit = np.einsum("bt,btv->btv", share * one(2 / v), e) * (p - p * p)
    return o, unit * do


def square_tiles(logits, target, do, weight=None, tile=4):
    """Tiles of positions; the second pass makes p again."""
    v, one = logits.shape[-1], logits.dtype.type
    x, t = logits.reshape(-1, v), target.reshape(-1, v)
    w = np.ones(len(x), x.dtype) if weight is None else weight.reshape(-1)
    above, below = one(0), one(0)
    for start in range(0, len(x), tile):
        at = slice(start, start + tile)
        p = 1 / (1 + np.exp(-x[at]))
        above += (w[at] * np.square(p - t[at]).sum(-1)).sum()
        below += w[at].sum()
    o = above / (below * one(v))
    g = np.zeros_like(x)
    for start in range(0, len(x), tile):
        at = slice(start, start + tile)
        p = 1 / (1 + np.exp(-x[at]))
        g[at] = (p - t[at]) * (p * (1 - p)) * w[at, None] * (2 * do / (below * one(v)))
    return o, g.reshape(logits.shape)


def square_means(logits, target, do, weight=None):
    """Means over features by a product with 1 / v, and an average that NumPy weights."""
    v = logits.shape[-1]
    p = np.exp(-np.logaddexp(0, -logits))
    e = p - target
    each = np.square(e) @ np.full(v, 1 / v, logits.dtype)
    o = np.average(each, weights=weight)
    scale = 1 / each.size if weight is None else (weight / weight.sum())[..., None]
    dlogits = e * p * (1 - p) * scale * (2 / v) * do
    return o, dlogits.astype(logits.dtype)


def bce_stable(logits, target, do, weight=None):
    """max(x, 0) - x t + log(1 + exp(-|x|))."""
    loss = np.maximum(logits, 0) - logits * target + np.log1p(np.exp(-np.abs(logits)))
    p = 1 / (1 + np.exp(-logits))
    w = np.ones_like(logits) if weight is None else weight
    share = w / w.sum()
    o = (loss * share).sum()
    return o, (p - target) * share * do


def bce_logaddexp(logits, target, do, weight=None):
    """log(1 + exp(x)) by logaddexp, and the weighted mean as one sum over another."""
    loss = np.logaddexp(0, logits) - target * logits
    p = np.exp(-np.logaddexp(0, -logits))
    if weight is None:
        return loss.mean(), (p - target) * (do / logits.dtype.type(loss.size))
    total = weight.sum()
    o = np.vdot(weight, loss) / total
    dlogits = weight * (p - target) * (do / total)
    return o, dlogits


def bce_logs(logits, target, do, weight=None):
    """From probabilities in float64, through the gradient of p."""
    p = 1 / (1 + np.exp(-logits.astype(float)))
    w = np.ones(logits.shape) if weight is None else weight.astype(float)
    share = w / w.sum()
    o = -(share * (target * np.log(p) + (1 - target) * np.log(1 - p))).sum()
    dp = (share * do) * ((1 - target) / (1 - p) - target / p)
    dlogits = dp * (p * (1 - p))
    return logits.dtype.type(o), dlogits.astype(logits.dtype)


def bce_two_sides(logits, target, do, weight=None):
    """t softplus(-x) + (1 - t) softplus(x); the gradient by sides too."""
    minus, plus = np.log1p(np.exp(-logits)), np.log1p(np.exp(logits))
    loss = target * minus + (1 - target) * plus
    p = 1 / (1 + np.exp(-logits))
    n = logits.dtype.type(logits.size)
    share = 1 / n if weight is None else weight / weight.sum()
    o = (share * loss).sum()
    dlogits = (1 - target) * p - target * (1 - p)
    return o, dlogits * share * do


def bce_entries(logits, target, do, weight=None):
    """Entry by entry, by sums that run."""
    dtype = logits.dtype.type
    x, t = logits.reshape(-1).tolist(), target.reshape(-1).tolist()
    w = [1.0] * len(x) if weight is None else weight.reshape(-1).tolist()
    above = below = 0.0
    g = []
    for a, b, c in zip(x, t, w, strict=True):
        loss = (a if a > 0 else 0) + float(np.log1p(np.exp(-abs(a)))) - a * b
        above += c * loss
        below += c
        g.append(c * (1 / (1 + float(np.exp(-a))) - b))
    dlogits = np.array(g) / below * float(do)
    return dtype(above / below), dlogits.astype(dtype).reshape(logits.shape)


def bce_tiles(logits, target, do, weight=None, tile=7):
    """Tiles in one pass, which keep the gradient before it is divided."""
    x, t, one = logits.reshape(-1), target.reshape(-1), logits.dtype.type
    w = np.ones_like(x) if weight is None else weight.reshape(-1)
    above, below, g = one(0), one(0), np.zeros_like(x)
    for start in range(0, len(x), tile):
        at = slice(start, start + tile)
        small = np.exp(-np.abs(x[at]))
        above += (w[at] * (np.log1p(small) + np.where(x[at] > 0, x[at], 0) - x[at] * t[at])).sum()
        below += w[at].sum()
        p = np.where(x[at] < 0, small, 1) / (1 + small)
        g[at] = w[at] * (p - t[at])
    return above / below, (g * (do / below)).reshape(logits.shape)


# -------------------------------------------------------------------------------------------------------- next token

def token_log_softmax(h, table, target, do, scale):
    """All scores at once, log-softmax, one-hot rows."""
    one = h.dtype.type
    z = np.einsum("btm,vm->btv", h, table) * one(scale)
    z = z - z.max(-1, keepdims=True)
    logp = z - np.log(np.exp(z).sum(-1, keepdims=True))
    o = -np.take_along_axis(logp, target[..., None], -1)[..., 0]
    p = np.exp(logp)
    hit = np.eye(len(table), dtype=h.dtype)[target]
    dz = (p - hit) * do[..., None]
    dh = np.einsum("btv,vm->btm", dz, table) * one(scale)
    dtable = np.einsum("btv,btm->vm", dz, h) * one(scale)
    return o, dh, dtable


def token_vocabulary(h, table, target, do, scale, chunk=2):
    """Chunks of the vocabulary: maximum and sum run, the backward makes each chunk's scores again."""
    one, m = h.dtype.type, h.shape[-1]
    x, t, g = h.reshape(-1, m), target.reshape(-1), do.reshape(-1)
    rows = np.arange(len(x))
    top, total, mine = np.full(len(x), -np.inf, h.dtype), np.zeros(len(x), h.dtype), np.zeros(len(x), h.dtype)
    for start in range(0, len(table), chunk):
        z = x @ table[start:start + chunk].T * one(scale)
        new = np.maximum(top, z.max(1))
        total = total * np.exp(top - new) + np.exp(z - new[:, None]).sum(1)
        top = new
        here = (t >= start) & (t < start + chunk)
        mine[here] = z[rows[here], t[here] - start]
    lse = top + np.log(total)
    o = lse - mine
    dx, dtable = np.zeros_like(x), np.zeros_like(table)
    for start in range(0, len(table), chunk):
        part = table[start:start + chunk]
        z = x @ part.T * one(scale)
        p = np.exp(z - lse[:, None])
        here = (t >= start) & (t < start + chunk)
        p[rows[here], t[here] - start] -= 1
        dz = p * g[:, None]
        dx += dz @ part * one(scale)
        dtable[start:start + chunk] = dz.T @ x * one(scale)
    return o.reshape(do.shape), dx.reshape(h.shape), dtable


def token_tiles(h, table, target, do, scale, rows=4):
    """Tiles of tokens, h being scaled before the product; log-sum-exp is kept."""
    one, m = h.dtype.type, h.shape[-1]
    x, t, g = (h * one(scale)).reshape(-1, m), target.reshape(-1), do.reshape(-1)
    n = len(x)
    o, lse = np.zeros(n, h.dtype), np.zeros(n, h.dtype)
    for start in range(0, n, rows):
        at = slice(start, start + rows)
        z = x[at] @ table.T
        top = z.max(1)
        lse[at] = top + np.log(np.exp(z - top[:, None]).sum(1))
        o[at] = lse[at] - z[np.arange(len(z)), t[at]]
    dx, dtable = np.zeros_like(x), np.zeros_like(table)
    for start in range(0, n, rows):
        at = slice(start, start + rows)
        z = x[at] @ table.T
        dz = np.exp(z - lse[at, None])
        dz[np.arange(len(z)), t[at]] -= 1
        dz *= g[at, None]
        dx[at] = dz @ table * one(scale)
        dtable += dz.T @ x[at]
    return o.reshape(do.shape), dx.reshape(h.shape), dtable


def token_fused(h, table, target, do, scale, rows=5):
    """One pass: each tile's loss and gradients while its scores are at hand."""
    one, v = h.dtype.type, len(table)
    x, t, g = h.reshape(-1, h.shape[-1]), target.reshape(-1), do.reshape(-1, 1)
    o, dx, dtable = np.zeros(len(x), h.dtype), np.zeros_like(x), np.zeros_like(table)
    for start in range(0, len(x), rows):
        at = slice(start, start + rows)
        z = one(scale) * (x[at] @ table.T)
        hit = t[at, None] == np.arange(v)
        mine = (z * hit).sum(1)
        e = np.exp(z - z.max(1, keepdims=True))
        total = e.sum(1, keepdims=True)
        o[at] = np.log(total[:, 0]) + z.max(1) - mine
        dz = one(scale) * g[at] * (e / total - hit)
        dx[at] = dz @ table
        dtable += dz.T @ x[at]
    return o.reshape(do.shape), dx.reshape(h.shape), dtable


def token_scatter(h, table, target, do, scale):
    """What comes from the target is gathered and scattered apart from what comes from all."""
    one = h.dtype.type
    z = np.tensordot(h, table.T, 1) * one(scale)
    lse = np.logaddexp.reduce(z, axis=-1)
    mine = (h * table[target]).sum(-1) * one(scale)
    o = lse - mine
    p = np.exp(z - lse[..., None]) * (do * one(scale))[..., None]
    dh = p @ table - table[target] * (do * one(scale))[..., None]
    dtable = np.tensordot(p, h, ((0, 1), (0, 1)))
    np.subtract.at(dtable, target, h * (do * one(scale))[..., None])
    return o, dh, dtable


def token_by_token(h, table, target, do, scale):
    """One token after another, in float64."""
    words = table.astype(float)
    o, dh, dtable = np.zeros(do.shape), np.zeros(h.shape), np.zeros(table.shape)
    for b, t in np.ndindex(target.shape):
        x, y = h[b, t].astype(float), target[b, t]
        z = scale * (words @ x)
        e = np.exp(z - z.max())
        o[b, t] = log(e.sum()) + z.max() - z[y]
        dz = e / e.sum() * float(do[b, t])
        dz[y] -= float(do[b, t])
        dh[b, t] = scale * (dz @ words)
        dtable += scale * np.outer(dz, x)
    return [a.astype(h.dtype) for a in (o, dh, dtable)]


def token_base_2(h, table, target, do, scale):
    """Powers of two: log2 e stands in the scale."""
    one = h.dtype.type
    ln2 = one(log(2))
    z = h @ table.T * one(scale / log(2))
    top = z.max(-1)
    lse = top + np.log2(np.exp2(z - top[..., None]).sum(-1))
    mine = np.take_along_axis(z, target[..., None], -1)[..., 0]
    o = (lse - mine) * ln2
    dz = np.exp2(z - lse[..., None])
    np.put_along_axis(dz, target[..., None], np.take_along_axis(dz, target[..., None], -1) - 1, -1)
    dz = dz * (do[..., None] * one(scale))
    rows = dz.reshape(-1, len(table))
    return o, dz @ table, rows.T @ h.reshape(len(rows), -1)


def token_shards(h, table, target, do, scale, shards=2):
    """The vocabulary is split between devices, which exchange maxima and sums."""
    one, m = h.dtype.type, h.shape[-1]
    x, t, g = h.reshape(-1, m), target.reshape(-1), do.reshape(-1, 1)
    parts = np.array_split(table, shards)
    first = np.cumsum([0] + [len(part) for part in parts])
    zs = [x @ part.T * one(scale) for part in parts]
    top = np.max([z.max(1) for z in zs], 0)
    sums = [np.exp(z - top[:, None]).sum(1) for z in zs]
    total = np.sum(sums, 0)
    mine = np.zeros(len(x), h.dtype)
    for z, start, stop in zip(zs, first, first[1:], strict=False):
        own = (t >= start) & (t < stop)
        mine = mine + np.where(own, z[np.arange(len(x)), np.where(own, t - start, 0)], 0)
    o = np.log(total) + top - mine
    dx, dparts = np.zeros_like(x), []
    for z, part, start in zip(zs, parts, first, strict=False):
        p = np.exp(z - top[:, None]) / total[:, None]
        hit = t[:, None] == start + np.arange(len(part))
        dz = (p - hit) * g * one(scale)
        dx = dx + dz @ part
        dparts.append(dz.T @ x)
    return o.reshape(do.shape), dx.reshape(h.shape), np.concatenate(dparts)


# ------------------------------------------------------------------------------------------------------------ experts

def experts_dense(x, wg, w1, b1, w2, b2, do, k, act):
    """Every expert at every position, letters."""
    logits = np.einsum("btm,mx->btx", x, wg)
    order = np.argsort(-logits, axis=-1, kind="stable")
    chosen = np.zeros(logits.shape, bool)
    np.put_along_axis(chosen, order[..., :k], True, -1)
    masked = np.where(chosen, logits, -np.inf)
    gate = np.exp(masked - masked.max(-1, keepdims=True))
    gate = gate / gate.sum(-1, keepdims=True)
    h = np.einsum("btm,mxf->btxf", x, w1) + b1
    a, slope = PHI[act](h)
    weighted = a * gate[..., None]
    y = np.einsum("btxf,xfm->btm", weighted, w2)
    y = y + np.einsum("btx,xm->btm", gate, b2)
    db2 = np.einsum("btx,btm->xm", gate, do)
    dw2 = np.einsum("btxf,btm->xfm", weighted, do)
    dweighted = np.einsum("btm,xfm->btxf", do, w2)
    dgate = (dweighted * a).sum(-1)
    dgate = dgate + np.einsum("btm,xm->btx", do, b2)
    dh = dweighted * gate[..., None] * slope
    dw1, db1 = np.einsum("btm,btxf->mxf", x, dh), dh.sum((0, 1))
    dx = np.einsum("btxf,mxf->btm", dh, w1)
    dlogits = gate * (dgate - (gate * dgate).sum(-1, keepdims=True))
    dwg = np.einsum("btm,btx->mx", x, dlogits)
    dx = dx + np.einsum("btx,mx->btm", dlogits, wg)
    return {"o": y, "dx": dx, "dwg": dwg, "dw1": dw1, "db1": db1, "dw2": dw2, "db2": db2}


def experts_gathered(x, wg, w1, b1, w2, b2, do, k, act):
    """The chosen experts' weights are gathered for each token, their gradients scattered."""
    m = x.shape[-1]
    rows, g = x.reshape(-1, m), do.reshape(-1, m)
    logits = rows @ wg
    pick = np.argsort(-logits, 1, kind="stable")[:, :k]
    best = np.take_along_axis(logits, pick, 1)
    gate = np.exp(best - best[:, :1])
    gate /= gate.sum(1, keepdims=True)
    up = w1.transpose(1, 0, 2)
    h = np.einsum("nm,nkmf->nkf", rows, up[pick]) + b1[pick]
    a, slope = PHI[act](h)
    out = np.einsum("nkf,nkfm->nkm", a, w2[pick]) + b2[pick]
    y = (gate[..., None] * out).sum(1)
    dgate = np.einsum("nm,nkm->nk", g, out)
    dout = gate[..., None] * g[:, None]
    dup, dw2, db1, db2 = np.zeros_like(up), np.zeros_like(w2), np.zeros_like(b1), np.zeros_like(b2)
    np.add.at(db2, pick, dout)
    np.add.at(dw2, pick, a[..., None] * dout[:, :, None])
    da = np.einsum("nkm,nkfm->nkf", dout, w2[pick])
    dh = da * slope
    np.add.at(db1, pick, dh)
    np.add.at(dup, pick, rows[:, None, :, None] * dh[:, :, None])
    dx = np.einsum("nkf,nkmf->nm", dh, up[pick])
    dbest = gate * (dgate - (gate * dgate).sum(1, keepdims=True))
    dlogits = np.zeros_like(logits)
    np.put_along_axis(dlogits, pick, dbest, 1)
    dx = dx + dlogits @ wg.T
    return {"o": y.reshape(x.shape), "dx": dx.reshape(x.shape), "dwg": rows.T @ dlogits, "dw1": dup.transpose(1, 0, 2),
            "db1": db1, "dw2": dw2, "db2": db2}


def experts_loop(x, wg, w1, b1, w2, b2, do, k, act):
    """Expert by expert, the tokens that chose it."""
    m = x.shape[-1]
    rows, g = x.reshape(-1, m), do.reshape(-1, m)
    logits = rows @ wg
    rank = np.argsort(np.argsort(-logits, 1, kind="stable"), 1)
    chosen = rank < k
    raised = np.exp(logits - logits.max(1, keepdims=True)) * chosen
    gate = raised / raised.sum(1, keepdims=True)
    y, dx, dgate = np.zeros_like(rows), np.zeros_like(rows), np.zeros_like(gate)
    dw1, db1, dw2, db2 = (np.zeros_like(w) for w in (w1, b1, w2, b2))
    for e in range(wg.shape[1]):
        at = np.flatnonzero(chosen[:, e])
        share = gate[at, e, None]
        h = rows[at] @ w1[:, e] + b1[e]
        a, slope = PHI[act](h)
        out = a @ w2[e] + b2[e]
        y[at] += share * out
        dgate[at, e] = (g[at] * out).sum(1)
        dout = share * g[at]
        db2[e] = dout.sum(0)
        dw2[e] = a.T @ dout
        dh = dout @ w2[e].T * slope
        db1[e] = dh.sum(0)
        dw1[:, e] = rows[at].T @ dh
        dx[at] += dh @ w1[:, e].T
    dlogits = gate * dgate
    dlogits -= gate * dlogits.sum(1, keepdims=True)
    dx += dlogits @ wg.T
    return {"o": y.reshape(x.shape), "dx": dx.reshape(x.shape), "dwg": rows.T @ dlogits, "dw1": dw1, "db1": db1,
            "dw2": dw2, "db2": db2}


def experts_sorted(x, wg, w1, b1, w2, b2, do, k, act):
    """Pairs of token and expert, sorted by expert, so that each expert has a block of rows."""
    m, experts = x.shape[-1], wg.shape[1]
    rows, g = x.reshape(-1, m), do.reshape(-1, m)
    logits = rows @ wg
    pick = np.argsort(-logits, 1, kind="stable")[:, :k]
    best = np.take_along_axis(logits, pick, 1)
    gate = np.exp(best - np.log(np.exp(best).sum(1, keepdims=True)))
    order = np.argsort(pick.reshape(-1), kind="stable")
    token = order // k
    share = gate.reshape(-1)[order, None]
    stops = np.cumsum(np.bincount(pick.reshape(-1), minlength=experts))
    blocks = [slice(stop - n, stop) for stop, n in zip(stops, np.diff(stops, prepend=0), strict=True)]
    sent, back = rows[token], g[token]
    h = np.concatenate([sent[at] @ w1[:, e] + b1[e] for e, at in enumerate(blocks)])
    a, slope = PHI[act](h)
    out = np.concatenate([a[at] @ w2[e] + b2[e] for e, at in enumerate(blocks)])
    y = np.zeros_like(rows)
    np.add.at(y, token, share * out)
    dout = share * back
    dshare = (back * out).sum(1)
    da = np.concatenate([dout[at] @ w2[e].T for e, at in enumerate(blocks)])
    dw2 = np.stack([a[at].T @ dout[at] for at in blocks])
    db2 = np.stack([dout[at].sum(0) for at in blocks])
    dh = da * slope
    dw1 = np.stack([sent[at].T @ dh[at] for at in blocks], 1)
    db1 = np.stack([dh[at].sum(0) for at in blocks])
    dx = np.zeros_like(rows)
    np.add.at(dx, token, np.concatenate([dh[at] @ w1[:, e].T for e, at in enumerate(blocks)]))
    dgate = np.zeros(gate.size, gate.dtype)
    dgate[order] = dshare
    dgate = dgate.reshape(gate.shape)
    dbest = gate * (dgate - (gate * dgate).sum(1, keepdims=True))
    dlogits = np.zeros_like(logits)
    np.put_along_axis(dlogits, pick, dbest, 1)
    dx = dx + dlogits @ wg.T
    return {"o": y.reshape(x.shape), "dx": dx.reshape(x.shape), "dwg": rows.T @ dlogits, "dw1": dw1, "db1": db1,
            "dw2": dw2, "db2": db2}


def experts_dispatched(x, wg, w1, b1, w2, b2, do, k, act):
    """Tensors of token, expert and place send the tokens to buffers and bring them back."""
    m = x.shape[-1]
    rows, g = x.reshape(-1, m), do.reshape(-1, m)
    capacity = len(rows)
    logits = rows @ wg
    other, mine = logits[:, None, :], logits[:, :, None]
    earlier = np.tri(logits.shape[1], k=-1, dtype=bool)
    chosen = ((other > mine) | ((other == mine) & earlier)).sum(-1) < k
    e = np.where(chosen, np.exp(logits - logits.max(1, keepdims=True)), 0)
    gate = e / e.sum(1, keepdims=True)
    place = np.cumsum(chosen, 0) - 1
    send = (chosen[..., None] & (place[..., None] == np.arange(capacity))).astype(x.dtype)
    combine = send * gate[..., None]
    held = np.einsum("nxc,nm->xcm", send, rows)
    h = np.einsum("xcm,mxf->xcf", held, w1) + b1[:, None]
    a, slope = PHI[act](h)
    out = np.einsum("xcf,xfm->xcm", a, w2) + b2[:, None]
    y = np.einsum("nxc,xcm->nm", combine, out)
    dcombine = np.einsum("nm,xcm->nxc", g, out)
    dout = np.einsum("nxc,nm->xcm", combine, g)
    dgate = (dcombine * send).sum(-1)
    db2 = dout.sum(1)
    dw2 = np.einsum("xcf,xcm->xfm", a, dout)
    dh = np.einsum("xcm,xfm->xcf", dout, w2) * slope
    db1 = dh.sum(1)
    dw1 = np.einsum("xcm,xcf->mxf", held, dh)
    dheld = np.einsum("xcf,mxf->xcm", dh, w1)
    dx = np.einsum("nxc,xcm->nm", send, dheld)
    dlogits = gate * (dgate - np.einsum("nx,nx->n", gate, dgate)[:, None])
    dx = dx + dlogits @ wg.T
    return {"o": y.reshape(x.shape), "dx": dx.reshape(x.shape), "dwg": rows.T @ dlogits, "dw1": dw1, "db1": db1,
            "dw2": dw2, "db2": db2}


def experts_tokens(x, wg, w1, b1, w2, b2, do, k, act):
    """Token by token and expert by expert, in float64."""
    parameters = {"wg": wg, "w1": w1, "b1": b1, "w2": w2, "b2": b2}
    wg, w1, b1, w2, b2 = (w.astype(float) for w in parameters.values())
    d = {f"d{name}": np.zeros(w.shape) for name, w in parameters.items()}
    y, dx = np.zeros(x.shape), np.zeros(x.shape)
    for at in np.ndindex(x.shape[:-1]):
        row, g = x[at].astype(float), do[at].astype(float)
        logits = row @ wg
        picked = sorted(range(len(logits)), key=lambda e, logits=logits: -logits[e])[:k]
        raised = np.exp(logits[picked] - logits[picked].max())
        gate = raised / raised.sum()
        dgate = np.zeros(k)
        for n, e in enumerate(picked):
            h = row @ w1[:, e] + b1[e]
            a, slope = PHI[act](h)
            y[at] += gate[n] * (a @ w2[e]) + gate[n] * b2[e]
            dgate[n] = g @ (a @ w2[e]) + g @ b2[e]
            d["db2"][e] += gate[n] * g
            d["dw2"][e] += np.outer(gate[n] * a, g)
            dh = gate[n] * (w2[e] @ g) * slope
            d["db1"][e] += dh
            d["dw1"][:, e] += np.outer(row, dh)
            dx[at] += w1[:, e] @ dh
        dlogits = np.zeros(len(logits))
        dlogits[picked] = (np.diag(gate) - np.outer(gate, gate)) @ dgate
        d["dwg"] += np.outer(row, dlogits)
        dx[at] += wg @ dlogits
    return {name: a.astype(x.dtype) for name, a in {"o": y, "dx": dx, **d}.items()}


def experts_renormalised(x, wg, w1, b1, w2, b2, do, k, act):
    """The softmax over all experts, divided by the sum of what is chosen; joined maps."""
    m, experts = x.shape[-1], wg.shape[1]
    rows, g = x.reshape(-1, m), do.reshape(-1, m)
    n, f = len(rows), w1.shape[-1]
    logits = rows @ wg
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    chosen = np.zeros(p.shape, p.dtype)
    chosen[np.arange(n)[:, None], np.argsort(-logits, 1, kind="stable")[:, :k]] = 1
    some = (p * chosen).sum(1, keepdims=True)
    gate = p * chosen / some
    h = (rows @ w1.reshape(m, -1)).reshape(n, experts, f) + b1
    a, slope = PHI[act](h)
    weighted = (a * gate[..., None]).reshape(n, -1)
    y = weighted @ w2.reshape(-1, m) + gate @ b2
    dweighted = (g @ w2.reshape(-1, m).T).reshape(n, experts, f)
    dgate = np.einsum("nxf,nxf->nx", dweighted, a) + g @ b2.T
    dh = (dweighted * gate[..., None] * slope).reshape(n, -1)
    dpart = (dgate - (dgate * gate).sum(1, keepdims=True)) / some
    dp = dpart * chosen
    dlogits = p * (dp - (p * dp).sum(1, keepdims=True))
    dx = dh @ w1.reshape(m, -1).T + dlogits @ wg.T
    return {"o": y.reshape(x.shape), "dx": dx.reshape(x.shape), "dwg": rows.T @ dlogits,
            "dw1": (rows.T @ dh).reshape(w1.shape), "db1": dh.sum(0).reshape(b1.shape),
            "dw2": (weighted.T @ g).reshape(w2.shape), "db2": gate.T @ g}


# -------------------------------------------------------------------------------------------------- generated networks

def weights_letters(code, x, wv, wo, do):
    """The weights of every pair, letters."""
    operation = np.einsum("ihe,hem->him", wv, wo)
    w = np.einsum("bhqk,him->bqkim", code, operation)
    o = np.einsum("bqkim,bki->bqm", w, x)
    dw = np.einsum("bqm,bki->bqkim", do, x)
    dx = np.einsum("bqkim,bqm->bki", w, do)
    dcode = np.einsum("bqkim,him->bhqk", dw, operation)
    doperation = np.einsum("bhqk,bqkim->him", code, dw)
    dwv = np.einsum("him,hem->ihe", doperation, wo)
    dwo = np.einsum("ihe,him->hem", wv, doperation)
    return o, dcode, dx, dwv, dwo


def weights_heads(code, x, wv, wo, do):
    """Head by head, without the weights: values, then their mixture, then the map out."""
    o, dx = np.zeros_like(do), np.zeros_like(x)
    dcode, dwv, dwo = np.zeros_like(code), np.zeros_like(wv), np.zeros_like(wo)
    for h in range(len(wo)):
        v = x @ wv[:, h]
        mixed = code[:, h] @ v
        o += mixed @ wo[h]
        dmixed = do @ wo[h].T
        dwo[h] = np.einsum("bqe,bqm->em", mixed, do)
        dcode[:, h] = dmixed @ v.swapaxes(1, 2)
        dv = code[:, h].swapaxes(1, 2) @ dmixed
        dwv[:, h] = np.einsum("bki,bke->ie", x, dv)
        dx += dv @ wv[:, h].T
    return o, dcode, dx, dwv, dwo


def weights_matmul(code, x, wv, wo, do):
    """Products of reshaped arrays."""
    b, heads, nq, nk = code.shape
    i, m = wv.shape[0], wo.shape[2]
    operation = wv.transpose(1, 0, 2) @ wo
    flat = operation.reshape(heads, i * m)
    codes = code.transpose(0, 2, 3, 1).reshape(-1, heads)
    w = (codes @ flat).reshape(b, nq, nk * i, m)
    o = (x.reshape(b, 1, 1, nk * i) @ w)[:, :, 0]
    dw = (x.reshape(b, 1, nk, i, 1) * do[:, :, None, None, :]).reshape(-1, i * m)
    dx = (w @ do[..., None]).sum(1).reshape(x.shape)
    dcode = (dw @ flat.T).reshape(b, nq, nk, heads).transpose(0, 3, 1, 2)
    doperation = (codes.T @ dw).reshape(operation.shape)
    dwv = (doperation @ wo.swapaxes(1, 2)).transpose(1, 0, 2)
    dwo = wv.transpose(1, 2, 0) @ doperation
    return o, dcode, dx, dwv, dwo


def weights_pairs(code, x, wv, wo, do):
    """Pair by pair of query and key, in float64; one matrix at a time."""
    operation = np.stack([wv[:, h].astype(float) @ wo[h] for h in range(len(wo))])
    o, dcode, dx = np.zeros(do.shape), np.zeros(code.shape), np.zeros(x.shape)
    doperation = np.zeros(operation.shape)
    for b, q, k in np.ndindex(len(x), code.shape[2], code.shape[3]):
        c = code[b, :, q, k].astype(float)
        matrix = np.tensordot(c, operation, 1)
        o[b, q] += x[b, k] @ matrix
        dx[b, k] += matrix @ do[b, q]
        dmatrix = np.outer(x[b, k].astype(float), do[b, q])
        dcode[b, :, q, k] = (operation * dmatrix).sum((1, 2))
        doperation += c[:, None, None] * dmatrix
    dwv = np.stack([doperation[h] @ wo[h].T for h in range(len(wo))], 1)
    dwo = np.stack([wv[:, h].T @ doperation[h] for h in range(len(wo))])
    return [a.astype(x.dtype) for a in (o, dcode, dx, dwv, dwo)]


def network_letters(code, x, wv, wo, do):
    """Both generated layers of every pair, letters."""
    inner = np.einsum("bhqk,ihe->bqkie", code, wv)
    outer = np.einsum("bhqk,hem->bqkem", code, wo)
    z = np.einsum("bqkie,bki->bqke", inner, x)
    r = np.maximum(z, 0)
    o = np.einsum("bqkem,bqke->bqm", outer, r)
    douter = np.einsum("bqke,bqm->bqkem", r, do)
    dr = np.einsum("bqkem,bqm->bqke", outer, do)
    dz = dr * (z > 0)
    dinner = np.einsum("bqke,bki->bqkie", dz, x)
    dx = np.einsum("bqkie,bqke->bki", inner, dz)
    dcode = np.einsum("bqkem,hem->bhqk", douter, wo)
    dwo = np.einsum("bhqk,bqkem->hem", code, douter)
    dcode = dcode + np.einsum("bqkie,ihe->bhqk", dinner, wv)
    dwv = np.einsum("bhqk,bqkie->ihe", code, dinner)
    return o, dcode, dx, dwv, dwo


def network_factored(code, x, wv, wo, do):
    """Neither layer is made: values of heads are mixed before relu, and mixed again after it."""
    v = np.einsum("bki,ihe->bhke", x, wv)
    z = np.einsum("bhqk,bhke->bqke", code, v)
    alive = z > 0
    r = z * alive
    mixed = np.einsum("bhqk,bqke->bqhe", code, r)
    o = np.einsum("bqhe,hem->bqm", mixed, wo)
    dmixed = np.einsum("bqm,hem->bqhe", do, wo)
    dwo = np.einsum("bqhe,bqm->hem", mixed, do)
    dr = np.einsum("bhqk,bqhe->bqke", code, dmixed)
    dz = dr * alive
    dcode = np.einsum("bqhe,bqke->bhqk", dmixed, r)
    dcode += np.einsum("bqke,bhke->bhqk", dz, v)
    dv = np.einsum("bhqk,bqke->bhke", code, dz)
    dwv = np.einsum("bki,bhke->ihe", x, dv)
    dx = np.einsum("bhke,ihe->bki", dv, wv)
    return o, dcode, dx, dwv, dwo


def network_queries(code, x, wv, wo, do):
    """Query by query, products of the query's own layers."""
    o, dcode, dx = np.zeros_like(do), np.zeros_like(code), np.zeros_like(x)
    dwv, dwo = np.zeros_like(wv), np.zeros_like(wo)
    for b, q in np.ndindex(do.shape[:2]):
        c = code[b, :, q]
        inner = np.tensordot(c.T, wv.swapaxes(0, 1), 1)
        outer = np.tensordot(c.T, wo, 1)
        z = (x[b][:, None] @ inner)[:, 0]
        r = np.where(z > 0, z, 0)
        o[b, q] = (r[:, None] @ outer)[:, 0].sum(0)
        douter = r[:, :, None] * do[b, q]
        dz = (outer @ do[b, q]) * (z > 0)
        dinner = x[b][:, :, None] * dz[:, None]
        dx[b] += (inner @ dz[:, :, None])[..., 0]
        dcode[b, :, q] = wo.reshape(len(wo), -1) @ douter.reshape(len(c.T), -1).T
        dwo += np.tensordot(c, douter, 1)
        dcode[b, :, q] += np.einsum("kie,ihe->hk", dinner, wv)
        dwv += np.tensordot(c, dinner, 1).swapaxes(0, 1)
    return o, dcode, dx, dwv, dwo


def network_pairs(code, x, wv, wo, do):
    """Pair by pair, in float64."""
    o, dcode, dx, dwv, dwo = (np.zeros(a.shape) for a in (do, code, x, wv, wo))
    into, out = wv.astype(float), wo.astype(float)
    for b, q, k in np.ndindex(len(x), code.shape[2], code.shape[3]):
        c, row, g = (a.astype(float) for a in (code[b, :, q, k], x[b, k], do[b, q]))
        inner = np.einsum("h,ihe->ie", c, into)
        outer = np.einsum("h,hem->em", c, out)
        z = row @ inner
        r = np.maximum(z, 0)
        o[b, q] += r @ outer
        dz = np.where(z > 0, outer @ g, 0)
        dx[b, k] += inner @ dz
        dcode[b, :, q, k] = [r @ each @ g for each in out]
        dcode[b, :, q, k] += [row @ into[:, h] @ dz for h in range(len(c))]
        dwo += c[:, None, None] * np.outer(r, g)
        dwv += c[:, None] * np.outer(row, dz)[:, None]
    return [a.astype(x.dtype) for a in (o, dcode, dx, dwv, dwo)]
