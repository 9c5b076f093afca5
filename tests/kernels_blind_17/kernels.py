"""Right kernels in NumPy of attention layers, positions, blocks and convolutions; `rows.py` has their mistakes."""

from math import log, sqrt

import numpy as np


def at_pairs(x, shape, read=None):
    """What is given for pairs of query and key, or stretched over them, at the queries that are read."""
    x = np.broadcast_to(x, shape)
    return x if read is None else x[:, :, read]


def of_pairs(g, given, shape, read=None):
    """The gradient of what was given from that at the pairs of the queries that are read."""
    every = g
    if read is not None:
        every = np.zeros(shape, g.dtype)
        every[:, :, read] = g
    while every.ndim > given.ndim:
        every = every.sum(0)
    for axis, n in enumerate(given.shape):
        if n == 1:
            every = every.sum(axis, keepdims=True)
    return every


def softmax(s, keep=True):
    """Over the last axis; 0 where nothing is kept."""
    s = np.where(keep, s, -np.inf)
    top = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(np.isinf(top), 0, top))
    total = e.sum(-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


def map_back(x, w, dy):
    """The gradients of x, w and the bias of x w + b, for any axes behind m."""
    m, rows = w.shape[0], dy.reshape(-1, w[0].size)
    return ((rows @ w.reshape(m, -1).T).reshape(x.shape), (x.reshape(-1, m).T @ rows).reshape(w.shape),
            rows.sum(0).reshape(w.shape[1:]))


# ------------------------------------------------------------------------------------------------------------- rotary

def rotary_heads(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None):
    """Head by head; neighbouring features are a complex number."""
    (b, t, _), (_, heads, d) = x.shape, wq.shape
    shape = b, heads, t, t
    turn = np.exp(1j * np.outer(np.arange(t), 10000.0 ** (-np.arange(0, d, 2) / d)))
    turn = turn.astype(np.result_type(x, np.complex64))
    scale = x.dtype.type(d ** -0.5)
    keep = np.broadcast_to(True if keep is None else keep, shape)
    factor = np.broadcast_to(np.ones((), x.dtype) if dropout is None else dropout, shape)
    o, dx, dscores = np.zeros_like(x) + bo, np.zeros_like(x), np.zeros(shape, x.dtype)
    dwq, dbq, dwk, dbk, dwv, dbv, dwo = (np.zeros_like(w) for w in (wq, bq, wk, bk, wv, bv, wo))
    for i in range(heads):
        q, k, v = x @ wq[:, i] + bq[i], x @ wk[:, i] + bk[i], x @ wv[:, i] + bv[i]
        q = (q.view(turn.dtype) * turn).view(x.dtype)
        k = (k.view(turn.dtype) * turn).view(x.dtype)
        s = q @ k.swapaxes(1, 2) * scale
        if bias is not None:
            s = s + np.broadcast_to(bias, shape)[:, i]
        a = softmax(s, keep[:, i])
        c = a * factor[:, i]
        head = c @ v
        o += head @ wo[i]
        dhead = do @ wo[i].T
        dwo[i] = np.einsum("bte,btm->em", head, do)
        dv = c.swapaxes(1, 2) @ dhead
        da = dhead @ v.swapaxes(1, 2) * factor[:, i]
        ds = a * (da - (a * da).sum(-1, keepdims=True))
        dscores[:, i] = ds
        dq, dk = ds @ k * scale, ds.swapaxes(1, 2) @ q * scale
        dq = (dq.view(turn.dtype) * turn.conj()).view(x.dtype)
        dk = (dk.view(turn.dtype) * turn.conj()).view(x.dtype)
        for w, dw, db, g in (wq, dwq, dbq, dq), (wk, dwk, dbk, dk), (wv, dwv, dbv, dv):
            dw[:, i] = np.einsum("btm,btd->md", x, g)
            db[i] = g.sum((0, 1))
            dx += g @ w[:, i].T
    found = {"o": o, "dx": dx, "dwq": dwq, "dbq": dbq, "dwk": dwk, "dbk": dbk, "dwv": dwv, "dbv": dbv, "dwo": dwo,
             "dbo": do.sum((0, 1))}
    return found if bias is None else found | {"dbias": of_pairs(dscores, bias, shape)}


def rotary_fused(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None):
    """One product makes q, k and v; sines and cosines are tables, used with the other sign on the way back."""
    b, t, m = x.shape
    h, d, e = *wq.shape[1:], wv.shape[2]
    shape, cuts, rows = (b, h, t, t), (h * d, 2 * h * d), x.reshape(-1, m)
    w = np.concatenate([y.reshape(m, -1) for y in (wq, wk, wv)], 1)
    joined = rows @ w + np.concatenate([bq.ravel(), bk.ravel(), bv.ravel()])
    q, k, v = (y.reshape(b, t, h, -1) for y in np.split(joined, cuts, 1))
    inverse = 1.0 / 10000 ** (np.arange(0, d, 2) / d)
    angle = np.arange(t)[:, None, None] * inverse
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)

    def turned(y, sin):
        even, odd = y[..., ::2], y[..., 1::2]
        return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(y.shape)

    q, k = turned(q, sin), turned(k, sin)
    s = np.einsum("bqhd,bkhd->bhqk", q, k) / sqrt(d)
    s = s if bias is None else s + bias
    a = softmax(s, True if keep is None else keep)
    c = a if dropout is None else a * dropout
    inner = np.einsum("bhqk,bkhe->bqhe", c, v)
    o = inner.reshape(b, t, h * e) @ wo.reshape(h * e, m) + bo
    dinner = (do @ wo.reshape(h * e, m).T).reshape(inner.shape)
    dwo = np.tensordot(inner, do, ((0, 1), (0, 1)))
    dc = np.einsum("bqhe,bkhe->bhqk", dinner, v)
    dv = np.einsum("bhqk,bqhe->bkhe", c, dinner)
    da = dc if dropout is None else dc * dropout
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dq = np.einsum("bhqk,bkhd->bqhd", ds, k) / sqrt(d)
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q) / sqrt(d)
    dq, dk = turned(dq, -sin), turned(dk, -sin)
    djoined = np.concatenate([y.reshape(b * t, -1) for y in (dq, dk, dv)], 1)
    dws, dbs = np.split(rows.T @ djoined, cuts, 1), np.split(djoined.sum(0), cuts)
    found = {"o": o, "dx": (djoined @ w.T).reshape(x.shape), "dwo": dwo, "dbo": do.sum((0, 1))}
    for name, like, dw, db in zip("qkv", (bq, bk, bv), dws, dbs, strict=True):
        found |= {f"dw{name}": dw.reshape(m, *like.shape), f"db{name}": db.reshape(like.shape)}
    return found if bias is None else found | {"dbias": of_pairs(ds, bias, shape)}


def rotary_tiles(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None, tile=2):
    """Tiles of queries with heads first; the backward makes the weights again from the log of their sum."""
    (b, t, _), (h, d) = x.shape, wq.shape[1:]
    shape = b, h, t, t
    place = np.arange(t)
    angle = np.repeat(place[:, None] * np.exp(np.arange(0, d, 2) * (-log(10000) / d)), 2, -1)
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)

    def quarter(y):
        return np.stack([-y[..., 1::2], y[..., ::2]], -1).reshape(y.shape)

    q, k, v = (np.einsum("btm,mhd->bhtd", x, w) + y[:, None] for w, y in ((wq, bq), (wk, bk), (wv, bv)))
    q, k = (y * cos + quarter(y) * sin for y in (q, k))
    add = np.broadcast_to(np.zeros((), x.dtype) if bias is None else bias, shape)
    seen = np.broadcast_to(True if keep is None else keep, shape)
    factor = np.broadcast_to(np.ones((), x.dtype) if dropout is None else dropout, shape)
    inner, lse = np.zeros_like(v), np.zeros((b, h, t), x.dtype)
    for start in range(0, t, tile):
        at = slice(start, start + tile)
        s = q[:, :, at] @ k.swapaxes(2, 3) / sqrt(d) + add[:, :, at]
        e = np.exp(s) * seen[:, :, at]
        total = e.sum(-1)
        lse[:, :, at] = np.where(total == 0, np.inf, np.log(np.where(total == 0, 1, total)))
        inner[:, :, at] = (e * factor[:, :, at]) @ v / np.where(total == 0, 1, total)[..., None]
    o = np.einsum("bhte,hem->btm", inner, wo) + bo
    dinner = np.einsum("btm,hem->bhte", do, wo)
    delta = (dinner * inner).sum(-1)
    dq, dk, dv, dscores = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v), np.zeros(shape, x.dtype)
    for start in range(0, t, tile):
        at = slice(start, start + tile)
        s = q[:, :, at] @ k.swapaxes(2, 3) / sqrt(d) + add[:, :, at]
        a = np.exp(np.where(seen[:, :, at], s, -np.inf) - lse[:, :, at, None])
        da = dinner[:, :, at] @ v.swapaxes(2, 3) * factor[:, :, at]
        ds = a * (da - delta[:, :, at, None])
        dv += (a * factor[:, :, at]).swapaxes(2, 3) @ dinner[:, :, at]
        dk += ds.swapaxes(2, 3) @ q[:, :, at] / sqrt(d)
        dq[:, :, at] = ds @ k / sqrt(d)
        dscores[:, :, at] = ds
    dq, dk = (y * cos - quarter(y) * sin for y in (dq, dk))
    found = {"o": o, "dx": np.zeros_like(x), "dwo": np.einsum("bhte,btm->hem", inner, do), "dbo": do.sum((0, 1))}
    for name, w, g in ("q", wq, dq), ("k", wk, dk), ("v", wv, dv):
        found["dx"] += np.einsum("bhtd,mhd->btm", g, w)
        found[f"dw{name}"] = np.einsum("btm,bhtd->mhd", x, g)
        found[f"db{name}"] = g.sum((0, 2))
    return found if bias is None else found | {"dbias": of_pairs(dscores, bias, shape)}


def hyla_turned(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None, read=slice(2, None)):
    """Letters; halves of the features are turned, the queries by their places in the whole sequence."""
    (b, t, _), (h, d) = x.shape, wq.shape[1:]
    shape, half, asking = (b, h, t, t), d // 2, x[:, read]
    theta = 10000.0 ** (-2.0 * np.arange(half) / d)
    place = np.arange(t)
    angle = np.concatenate([place[:, None] * theta] * 2, 1)[:, None]
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)

    def crossed(y):
        return np.concatenate([-y[..., half:], y[..., :half]], -1)

    q = np.einsum("btm,mhd->bthd", asking, wq) + bq
    k, v = np.einsum("btm,mhd->bthd", x, wk) + bk, np.einsum("btm,mhe->bthe", x, wv) + bv
    q = q * cos[read] + crossed(q) * sin[read]
    k = k * cos + crossed(k) * sin
    s = np.einsum("bqhd,bkhd->bhqk", q, k) / sqrt(d)
    s = s if bias is None else s + at_pairs(bias, shape, read)
    seen = 1 if keep is None else at_pairs(keep, shape, read).astype(x.dtype)
    factor = 1 if dropout is None else at_pairs(dropout, shape, read)
    s = s * seen
    rho = 1 / np.sqrt((s * s).mean(1, keepdims=True) + x.dtype.type(1e-6))
    a = s * rho
    c = a * factor
    z = np.einsum("bhqk,bkhe->bqke", c, v)
    inner = np.einsum("bhqk,bqke->bqhe", c, np.maximum(z, 0))
    o = np.einsum("bqhe,hem->bqm", inner, wo) + bo
    dinner = np.einsum("bqm,hem->bqhe", do, wo)
    dz = np.einsum("bhqk,bqhe->bqke", c, dinner) * (z > 0)
    dc = np.einsum("bqhe,bqke->bhqk", dinner, np.maximum(z, 0))
    dc = dc + np.einsum("bqke,bkhe->bhqk", dz, v)
    dv = np.einsum("bhqk,bqke->bkhe", c, dz)
    da = dc * factor
    ds = rho * (da - a * (a * da).mean(1, keepdims=True)) * seen
    dq = np.einsum("bhqk,bkhd->bqhd", ds, k) / sqrt(d)
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q) / sqrt(d)
    dq = dq * cos[read] - crossed(dq) * sin[read]
    dk = dk * cos - crossed(dk) * sin
    dx = np.einsum("bthd,mhd->btm", dk, wk) + np.einsum("bthe,mhe->btm", dv, wv)
    dx[:, read] += np.einsum("bthd,mhd->btm", dq, wq)
    found = {"o": o, "dx": dx, "dwq": np.einsum("btm,bthd->mhd", asking, dq), "dbq": dq.sum((0, 1)),
             "dwk": np.einsum("btm,bthd->mhd", x, dk), "dbk": dk.sum((0, 1)),
             "dwv": np.einsum("btm,bthe->mhe", x, dv), "dbv": dv.sum((0, 1)),
             "dwo": np.einsum("bqhe,bqm->hem", inner, do), "dbo": do.sum((0, 1))}
    return found if bias is None else found | {"dbias": of_pairs(ds, bias, shape, read)}


def hyla_turned_queries(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None, first=2):
    """Query by query in one pass, forward and backward; halves are real and imaginary parts."""
    (b, t, _), (h, d), half = x.shape, wq.shape[1:], wq.shape[2] // 2
    shape, kind = (b, h, t, t), np.result_type(x, np.complex64)
    turn = np.exp(1j * np.outer(np.arange(t), 10000.0 ** (-np.arange(half) / half)))[:, None].astype(kind)

    def turned(y, by):
        z = (y[..., :half] + 1j * y[..., half:]) * by
        return np.concatenate([z.real, z.imag], -1).astype(x.dtype)

    k, v = np.tensordot(x, wk, 1) + bk, np.tensordot(x, wv, 1) + bv
    k = turned(k, turn)
    o, dx, dk, dv = np.zeros_like(do), np.zeros_like(x), np.zeros_like(k), np.zeros_like(v)
    dwq, dbq, dwo, dscores = np.zeros_like(wq), np.zeros_like(bq), np.zeros_like(wo), np.zeros(shape, x.dtype)
    add, seen, factor = (np.broadcast_to(np.asarray(default, x.dtype) if y is None else y, shape)
                         for y, default in ((bias, 0), (keep, 1), (dropout, 1)))
    for n, i in np.ndindex(b, t - first):
        p = first + i
        q = turned(np.tensordot(x[n, p], wq, 1) + bq, turn[p])
        s = (np.einsum("hd,khd->hk", q, k[n]) / sqrt(d) + add[n, :, p]) * seen[n, :, p]
        rho = 1 / np.sqrt((s ** 2).sum(0) / h + x.dtype.type(1e-6))
        a = s * rho
        c = a * factor[n, :, p]
        z = np.einsum("hk,khe->ke", c, v[n])
        inner = c @ np.maximum(z, 0)
        o[n, i] = np.einsum("he,hem->m", inner, wo) + bo
        dinner = wo @ do[n, i]
        dwo += inner[..., None] * do[n, i]
        dz = np.where(z > 0, c.T @ dinner, 0)
        dc = dinner @ np.maximum(z, 0).T
        dc = dc + np.einsum("ke,khe->hk", dz, v[n])
        dv[n] += c.T[..., None] * dz[:, None]
        da = dc * factor[n, :, p]
        ds = rho * (da - a * (a * da).sum(0) / h) * seen[n, :, p]
        dscores[n, :, p] = ds
        dk[n] += ds.T[..., None] * q / sqrt(d)
        dq = turned(np.einsum("hk,khd->hd", ds, k[n]) / sqrt(d), turn[p].conj())
        dbq += dq
        dwq += x[n, p][:, None, None] * dq
        dx[n, p] += np.tensordot(wq, dq, 2)
    dk = turned(dk, turn.conj())
    by_key, dwk, dbk = map_back(x, wk, dk)
    by_value, dwv, dbv = map_back(x, wv, dv)
    dx += by_key + by_value
    found = {"o": o, "dx": dx, "dwq": dwq, "dbq": dbq, "dwk": dwk, "dbk": dbk, "dwv": dwv, "dbv": dbv, "dwo": dwo,
             "dbo": do.sum((0, 1))}
    return found if bias is None else found | {"dbias": of_pairs(dscores, bias, shape)}


# --------------------------------------------------------------------------------------------------- ALiBi and KERPLE

def alibi_letters(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None):
    """Slopes as Press et al. make them for heads that are no power of two; letters."""
    (b, t, _), (h, d) = x.shape, wq.shape[1:]
    shape, power = (b, h, t, t), 2 ** int(np.log2(h))
    first = 2.0 ** (-8 / power)
    slope = [first ** (n + 1) for n in range(power)]
    more = 2.0 ** (-4 / power)
    slope += [more ** (2 * n + 1) for n in range(h - power)]
    far = np.abs(np.arange(t)[:, None] - np.arange(t))
    penalty = (np.array(slope)[:, None, None] * far).astype(x.dtype)
    q, k = np.einsum("btm,mhd->bthd", x, wq) + bq, np.einsum("btm,mhd->bthd", x, wk) + bk
    v = np.einsum("btm,mhe->bthe", x, wv) + bv
    s = np.einsum("bqhd,bkhd->bhqk", q, k) / sqrt(d) - penalty
    if bias is not None:
        s = s + bias
    a = softmax(s, True if keep is None else keep)
    c = a if dropout is None else a * dropout
    inner = np.einsum("bhqk,bkhe->bqhe", c, v)
    o = np.einsum("bqhe,hem->bqm", inner, wo) + bo
    dinner = np.einsum("bqm,hem->bqhe", do, wo)
    dv = np.einsum("bhqk,bqhe->bkhe", c, dinner)
    da = np.einsum("bqhe,bkhe->bhqk", dinner, v)
    da = da if dropout is None else da * dropout
    ds = a * (da - np.einsum("bhqk,bhqk->bhq", a, da)[..., None])
    dq = np.einsum("bhqk,bkhd->bqhd", ds, k) / sqrt(d)
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q) / sqrt(d)
    found = {"o": o, "dwo": np.einsum("bqhe,bqm->hem", inner, do), "dbo": do.sum((0, 1)), "dx": 0}
    for name, w, g in ("q", wq, dq), ("k", wk, dk), ("v", wv, dv):
        found[f"dw{name}"], found[f"db{name}"] = np.einsum("btm,bthd->mhd", x, g), g.sum((0, 1))
        found["dx"] = found["dx"] + np.einsum("bthd,mhd->btm", g, w)
    return found if bias is None else found | {"dbias": of_pairs(ds, bias, shape)}


def alibi_online(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None, tile=2):
    """Tiles of keys with a running largest score, as flash attention's; the bias by distance is made in each tile."""
    (b, t, _), (h, d) = x.shape, wq.shape[1:]
    shape = b, h, t, t
    slope = np.array([2.0 ** -4, 2.0 ** -8, 2.0 ** -2], x.dtype)[:, None, None]
    q, k, v = (np.einsum("btm,mhd->bhtd", x, w) + y[:, None] for w, y in ((wq, bq), (wk, bk), (wv, bv)))
    add, seen, factor = (np.broadcast_to(np.asarray(default) if y is None else y, shape)
                         for y, default in ((bias, x.dtype.type(0)), (keep, True), (dropout, x.dtype.type(1))))

    def scores(at):
        far = np.abs(np.arange(t)[:, None] - np.arange(t)[at]).astype(x.dtype)
        s = q @ k[:, :, at].swapaxes(2, 3) * x.dtype.type(d ** -0.5) - slope * far + add[..., at]
        return np.where(seen[..., at], s, -np.inf)

    top, total = np.full((b, h, t, 1), -np.inf, x.dtype), np.zeros((b, h, t, 1), x.dtype)
    inner = np.zeros_like(v)
    for start in range(0, t, tile):
        at = slice(start, start + tile)
        s = scores(at)
        higher = np.maximum(top, s.max(-1, keepdims=True))
        safe = np.where(np.isinf(higher), 0, higher)
        shrink, e = np.exp(top - safe), np.exp(s - safe)
        total = total * shrink + e.sum(-1, keepdims=True)
        inner = inner * shrink + (e * factor[..., at]) @ v[:, :, at]
        top = higher
    inner = inner / np.where(total == 0, 1, total)
    lse = np.where(total == 0, np.inf, np.log(np.where(total == 0, 1, total)) + np.where(total == 0, 0, top))
    o = np.einsum("bhte,hem->btm", inner, wo) + bo
    dinner = np.einsum("btm,hem->bhte", do, wo)
    delta = (dinner * inner).sum(-1, keepdims=True)
    dq, dk, dv, dscores = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v), np.zeros(shape, x.dtype)
    for start in range(0, t, tile):
        at = slice(start, start + tile)
        a = np.exp(scores(at) - lse)
        ds = a * (dinner @ v[:, :, at].swapaxes(2, 3) * factor[..., at] - delta)
        dv[:, :, at] = (a * factor[..., at]).swapaxes(2, 3) @ dinner
        dk[:, :, at] = ds.swapaxes(2, 3) @ q * x.dtype.type(d ** -0.5)
        dq += ds @ k[:, :, at] * x.dtype.type(d ** -0.5)
        dscores[..., at] = ds
    found = {"o": o, "dx": np.zeros_like(x), "dwo": np.einsum("bhte,btm->hem", inner, do), "dbo": do.sum((0, 1))}
    for name, w, g in ("q", wq, dq), ("k", wk, dk), ("v", wv, dv):
        back, found[f"dw{name}"], found[f"db{name}"] = map_back(x, w, np.ascontiguousarray(g.swapaxes(1, 2)))
        found["dx"] += back
    return found if bias is None else found | {"dbias": of_pairs(dscores, bias, shape)}


def alibi_linear(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None, read=slice(None, 1, -2)):
    """Linear attention of some queries, head by head; the bias by distance is no parameter."""
    (b, t, _), (heads, d) = x.shape, wq.shape[1:]
    shape, places = (b, heads, t, t), np.arange(t)[read]
    slopes = 2.0 ** -4, 2.0 ** -8, 2.0 ** -2
    asking = x[:, read]
    o, dx = np.zeros_like(do) + bo, np.zeros_like(x)
    dwq, dbq, dwk, dbk, dwv, dbv, dwo = (np.zeros_like(w) for w in (wq, bq, wk, bk, wv, bv, wo))
    dscores = np.zeros((b, heads, len(places), t), x.dtype)
    for i, slope in zip(range(heads), slopes, strict=True):
        q, k, v = asking @ wq[:, i] + bq[i], x @ wk[:, i] + bk[i], x @ wv[:, i] + bv[i]
        far = np.abs(places[:, None] - np.arange(t)).astype(x.dtype)
        a = q @ k.swapaxes(1, 2) / sqrt(d) - x.dtype.type(slope) * far
        if bias is not None:
            a = a + at_pairs(bias, shape, read)[:, i]
        seen = 1 if keep is None else at_pairs(keep, shape, read)[:, i]
        factor = 1 if dropout is None else at_pairs(dropout, shape, read)[:, i]
        a = a * seen
        c = a * factor
        head = c @ v
        o += head @ wo[i]
        dwo[i] = np.tensordot(head, do, ((0, 1), (0, 1)))
        dhead = do @ wo[i].T
        dv = c.swapaxes(1, 2) @ dhead
        ds = dhead @ v.swapaxes(1, 2) * factor * seen
        dscores[:, i] = ds
        dq = ds @ k / sqrt(d)
        dk = ds.swapaxes(1, 2) @ q / sqrt(d)
        for w, dw, db, g in (wk, dwk, dbk, dk), (wv, dwv, dbv, dv):
            dw[:, i], db[i] = np.tensordot(x, g, ((0, 1), (0, 1))), g.sum((0, 1))
            dx += g @ w[:, i].T
        dwq[:, i], dbq[i] = np.tensordot(asking, dq, ((0, 1), (0, 1))), dq.sum((0, 1))
        dx[:, read] += dq @ wq[:, i].T
    found = {"o": o, "dx": dx, "dwq": dwq, "dbq": dbq, "dwk": dwk, "dbk": dbk, "dwv": dwv, "dbv": dbv, "dwo": dwo,
             "dbo": do.sum((0, 1))}
    return found if bias is None else found | {"dbias": of_pairs(dscores, bias, shape, read)}


def alibi_linear_whole(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None):
    """All queries are computed, and those that are read are taken from the answers; gradients of the others are 0."""
    (b, t, m), (h, d), e = x.shape, wq.shape[1:], wv.shape[2]
    places = list(range(t - 1, 1, -2))
    shape = b, h, t, t
    g = np.zeros_like(x)
    for row, place in enumerate(places):
        g[:, place] = do[:, row]
    rows = x.reshape(b * t, m)
    q, k, v = ((rows @ w.reshape(m, -1)).reshape(b, t, *y.shape).transpose(0, 2, 1, 3) + y[:, None]
               for w, y in ((wq, bq), (wk, bk), (wv, bv)))
    slope = np.array([2.0 ** -(8 * n / 2) for n in (1, 2, 0.5)], x.dtype)
    far = np.array([[abs(i - j) for j in range(t)] for i in range(t)], x.dtype)
    s = q @ k.transpose(0, 1, 3, 2) / sqrt(d)
    s -= slope[:, None, None] * far
    s = s if bias is None else s + bias
    mask = np.ones(shape, x.dtype) if keep is None else np.broadcast_to(keep, shape).astype(x.dtype)
    mixed = mask if dropout is None else mask * dropout
    c = s * mixed
    inner = c @ v
    y = inner.transpose(0, 2, 1, 3).reshape(b * t, h * e) @ wo.reshape(h * e, m) + bo
    o = y.reshape(b, t, m)[:, places]
    flat = g.reshape(b * t, m)
    dinner = (flat @ wo.reshape(h * e, m).T).reshape(b, t, h, e).transpose(0, 2, 1, 3)
    dwo = (inner.transpose(0, 2, 1, 3).reshape(b * t, h * e).T @ flat).reshape(wo.shape)
    ds = dinner @ v.transpose(0, 1, 3, 2) * mixed
    dv = c.transpose(0, 1, 3, 2) @ dinner
    dq, dk = ds @ k / sqrt(d), ds.transpose(0, 1, 3, 2) @ q / sqrt(d)
    found = {"o": o, "dx": np.zeros_like(x), "dwo": dwo, "dbo": flat.sum(0)}
    for name, w, dy in ("q", wq, dq), ("k", wk, dk), ("v", wv, dv):
        dy = dy.transpose(0, 2, 1, 3).reshape(b * t, -1)
        found[f"dw{name}"], found[f"db{name}"] = (rows.T @ dy).reshape(w.shape), dy.sum(0).reshape(w.shape[1:])
        found["dx"] += (dy @ w.reshape(m, -1).T).reshape(x.shape)
    return found if bias is None else found | {"dbias": of_pairs(ds, bias, shape)}


def kerple_log(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None, **position):
    """Letters; -p log(1 + a n) is differentiated term by term."""
    r1, r2 = position["position.p"][:, None, None], position["position.a"][:, None, None]
    (b, t, _), (h, d) = x.shape, wq.shape[1:]
    shape = b, h, t, t
    far = np.abs(np.arange(t)[:, None] - np.arange(t)).astype(x.dtype)
    inside = 1 + r2 * far
    q, k = np.einsum("btm,mhd->bthd", x, wq) + bq, np.einsum("btm,mhd->bthd", x, wk) + bk
    v = np.einsum("btm,mhe->bthe", x, wv) + bv
    s = np.einsum("bqhd,bkhd->bhqk", q, k) / sqrt(d) - r1 * np.log(inside)
    s = s if bias is None else s + bias
    a = softmax(s, True if keep is None else keep)
    c = a if dropout is None else a * dropout
    inner = np.einsum("bhqk,bkhe->bqhe", c, v)
    o = np.einsum("bqhe,hem->bqm", inner, wo) + bo
    dinner = np.einsum("bqm,hem->bqhe", do, wo)
    dv = np.einsum("bhqk,bqhe->bkhe", c, dinner)
    da = np.einsum("bqhe,bkhe->bhqk", dinner, v)
    da = da if dropout is None else da * dropout
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dkernel = ds.sum(0)
    dp = -(dkernel * np.log(inside)).sum((1, 2))
    dslope = -(dkernel * r1 * far / inside).sum((1, 2))
    dq = np.einsum("bhqk,bkhd->bqhd", ds, k) / sqrt(d)
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q) / sqrt(d)
    (by_q, dwq, dbq), (by_k, dwk, dbk), (by_v, dwv, dbv) = (
        map_back(x, w, g) for w, g in ((wq, dq), (wk, dk), (wv, dv)))
    found = {"o": o, "dx": by_q + by_k + by_v, "dwq": dwq, "dbq": dbq, "dwk": dwk, "dbk": dbk, "dwv": dwv, "dbv": dbv,
             "dwo": np.einsum("bqhe,bqm->hem", inner, do), "dbo": do.sum((0, 1)), "dposition.a": dslope,
             "dposition.p": dp}
    return found if bias is None else found | {"dbias": of_pairs(ds, bias, shape)}


def kerple_log_distances(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None, **position):
    """A table of t distances for each head, from which rows are cut; sequences and heads in loops."""
    p, scale = position["position.p"], position["position.a"]
    (b, t, _), (heads, d) = x.shape, wq.shape[1:]
    shape = b, heads, t, t
    n = np.arange(t).astype(x.dtype)
    table = -p[:, None] * np.log1p(scale[:, None] * n)
    dtable, dscores = np.zeros_like(table), np.zeros(shape, x.dtype)
    index = np.array([[abs(i - j) for j in range(t)] for i in range(t)])
    add, seen, factor = (np.broadcast_to(np.asarray(default) if y is None else y, shape)
                         for y, default in ((bias, x.dtype.type(0)), (keep, True), (dropout, x.dtype.type(1))))
    o, dx = np.tile(bo, (b, t, 1)), np.zeros_like(x)
    dwq, dbq, dwk, dbk, dwv, dbv, dwo = (np.zeros_like(w) for w in (wq, bq, wk, bk, wv, bv, wo))
    for s, i in np.ndindex(b, heads):
        q, k, v = (x[s] @ w[:, i] + y[i] for w, y in ((wq, bq), (wk, bk), (wv, bv)))
        a = softmax(q @ k.T / sqrt(d) + table[i][index] + add[s, i], seen[s, i])
        head = (a * factor[s, i]) @ v
        o[s] += head @ wo[i]
        dhead = do[s] @ wo[i].T
        dwo[i] += head.T @ do[s]
        da = dhead @ v.T * factor[s, i]
        ds = a * (da - (dhead * head).sum(-1, keepdims=True))
        np.add.at(dtable[i], index, ds)
        dscores[s, i] = ds
        dv = (a * factor[s, i]).T @ dhead
        for w, dw, db, g in (wq, dwq, dbq, ds @ k / sqrt(d)), (wk, dwk, dbk, ds.T @ q / sqrt(d)), (wv, dwv, dbv, dv):
            dw[:, i] += x[s].T @ g
            db[i] += g.sum(0)
            dx[s] += g @ w[:, i].T
    dp = (dtable * table).sum(1) / p
    dscale = -p * (dtable * (n / (1 + scale[:, None] * n))).sum(1)
    found = {"o": o, "dx": dx, "dwq": dwq, "dbq": dbq, "dwk": dwk, "dbk": dbk, "dwv": dwv, "dbv": dbv, "dwo": dwo,
             "dbo": do.sum((0, 1)), "dposition.a": dscale, "dposition.p": dp}
    return found if bias is None else found | {"dbias": of_pairs(dscores, bias, shape)}


def kerple_power(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None, read=slice(2, None),
                 **position):
    """HYLA of some queries in letters, with -a n^p added to its scores."""
    slope, power = (position[f"position.{name}"][:, None, None] for name in "ap")
    (b, t, _), (h, d) = x.shape, wq.shape[1:]
    shape, asking = (b, h, t, t), x[:, read]
    far = np.abs(np.arange(t)[read][:, None] - np.arange(t)).astype(x.dtype)
    raised = np.where(far > 0, far ** power, 0)
    logs = np.log(np.where(far > 0, far, 1))
    q = np.einsum("btm,mhd->bthd", asking, wq) + bq
    k, v = np.einsum("btm,mhd->bthd", x, wk) + bk, np.einsum("btm,mhe->bthe", x, wv) + bv
    s = np.einsum("bqhd,bkhd->bhqk", q, k) / sqrt(d) - slope * raised
    s = s if bias is None else s + at_pairs(bias, shape, read)
    seen = 1 if keep is None else at_pairs(keep, shape, read).astype(x.dtype)
    factor = 1 if dropout is None else at_pairs(dropout, shape, read)
    s = s * seen
    rho = 1 / np.sqrt((s * s).mean(1, keepdims=True) + x.dtype.type(1e-6))
    a = s * rho
    c = a * factor
    z = np.einsum("bhqk,bkhe->bqke", c, v)
    g = np.maximum(z, 0)
    inner = np.einsum("bhqk,bqke->bqhe", c, g)
    o = np.einsum("bqhe,hem->bqm", inner, wo) + bo
    dinner = np.einsum("bqm,hem->bqhe", do, wo)
    dz = np.einsum("bhqk,bqhe->bqke", c, dinner) * (z > 0)
    dc = np.einsum("bqhe,bqke->bhqk", dinner, g) + np.einsum("bqke,bkhe->bhqk", dz, v)
    dv = np.einsum("bhqk,bqke->bkhe", c, dz)
    da = dc * factor
    ds = rho * (da - a * (a * da).mean(1, keepdims=True)) * seen
    dslope = -(ds * raised).sum((0, 2, 3))
    dpower = -(ds * slope * raised * logs).sum((0, 2, 3))
    dq = np.einsum("bhqk,bkhd->bqhd", ds, k) / sqrt(d)
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q) / sqrt(d)
    dx = np.einsum("bthd,mhd->btm", dk, wk) + np.einsum("bthe,mhe->btm", dv, wv)
    dx[:, read] += np.einsum("bthd,mhd->btm", dq, wq)
    found = {"o": o, "dx": dx, "dwq": np.einsum("btm,bthd->mhd", asking, dq), "dbq": dq.sum((0, 1)),
             "dwk": np.einsum("btm,bthd->mhd", x, dk), "dbk": dk.sum((0, 1)),
             "dwv": np.einsum("btm,bthe->mhe", x, dv), "dbv": dv.sum((0, 1)),
             "dwo": np.einsum("bqhe,bqm->hem", inner, do), "dbo": do.sum((0, 1)), "dposition.a": dslope,
             "dposition.p": dpower}
    return found if bias is None else found | {"dbias": of_pairs(ds, bias, shape, read)}


def kerple_power_tiles(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None, first=2, tile=2,
                       **position):
    """Tiles of the queries that are read; each tile's code is made again in the backward."""
    slope, power = position["position.a"], position["position.p"]
    (b, t, _), (h, d) = x.shape, wq.shape[1:]
    shape = b, h, t, t
    add, seen, factor = (np.broadcast_to(np.asarray(default, x.dtype) if y is None else y, shape)
                         for y, default in ((bias, 0), (keep, 1), (dropout, 1)))
    q = np.tensordot(x[:, first:], wq, 1) + bq
    k, v = np.tensordot(x, wk, 1) + bk, np.tensordot(x, wv, 1) + bv
    spans = [(start, min(start + tile, t)) for start in range(first, t, tile)]

    def code(start, stop):
        far = np.abs(np.arange(start, stop)[:, None] - np.arange(t)).astype(x.dtype)
        with np.errstate(divide="ignore"):
            raised = np.exp(power[:, None, None] * np.log(far))
        s = np.einsum("bqhd,bkhd->bhqk", q[:, start - first:stop - first], k) / sqrt(d)
        s = (s - slope[:, None, None] * raised + add[:, :, start:stop]) * seen[:, :, start:stop]
        rho = 1 / np.sqrt(np.square(s).sum(1, keepdims=True) / h + x.dtype.type(1e-6))
        z = np.einsum("bhqk,bkhe->bqke", s * rho * factor[:, :, start:stop], v)
        return far, raised, s * rho, rho, z

    inner = np.zeros((b, t - first, h, v.shape[3]), x.dtype)
    for start, stop in spans:
        _, _, a, _, z = code(start, stop)
        inner[:, start - first:stop - first] = np.einsum(
            "bhqk,bqke->bqhe", a * factor[:, :, start:stop], z * (z > 0))
    o = np.tensordot(inner, wo, 2) + bo
    dinner = np.tensordot(do, wo, (2, 2))
    dq, dk, dv, dscores = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v), np.zeros(shape, x.dtype)
    dslope, dpower = np.zeros_like(slope), np.zeros_like(power)
    for start, stop in spans:
        far, raised, a, rho, z = code(start, stop)
        rows, c = slice(start - first, stop - first), a * factor[:, :, start:stop]
        dg = np.einsum("bhqk,bqhe->bqke", c, dinner[:, rows])
        dz = np.where(z > 0, dg, 0)
        dc = np.einsum("bqhe,bqke->bhqk", dinner[:, rows], np.where(z > 0, z, 0))
        dc += np.einsum("bqke,bkhe->bhqk", dz, v)
        dv += np.einsum("bhqk,bqke->bkhe", c, dz)
        da = dc * factor[:, :, start:stop]
        ds = rho * (da - a * (a * da).mean(1, keepdims=True)) * seen[:, :, start:stop]
        dscores[:, :, start:stop] = ds
        dslope -= np.einsum("bhqk,hqk->h", ds, raised)
        dpower -= slope * np.einsum("bhqk,hqk,qk->h", ds, raised, np.log(np.maximum(far, 1)))
        dq[:, rows] = np.einsum("bhqk,bkhd->bqhd", ds, k) / sqrt(d)
        dk += np.einsum("bhqk,bqhd->bkhd", ds, q[:, rows]) / sqrt(d)
    found = {"o": o, "dx": np.zeros_like(x), "dwo": np.tensordot(inner, do, ((0, 1), (0, 1))), "dbo": do.sum((0, 1)),
             "dposition.a": dslope, "dposition.p": dpower}
    for name, w, g, source in ("q", wq, dq, slice(first, None)), ("k", wk, dk, slice(None)), ("v", wv, dv, slice(None)):
        back, found[f"dw{name}"], found[f"db{name}"] = map_back(np.ascontiguousarray(x[:, source]), w, g)
        found["dx"][:, source] += back
    return found if bias is None else found | {"dbias": of_pairs(dscores, bias, shape)}


# ------------------------------------------------------------------------------------- layers that read some queries

def read_letters(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None, read=None):
    """Softmax attention of the queries that are read, in letters."""
    (b, t, _), (h, d) = x.shape, wq.shape[1:]
    shape = b, h, t, t
    q = np.einsum("btm,mhd->bthd", x[:, read], wq) + bq
    k, v = np.einsum("btm,mhd->bthd", x, wk) + bk, np.einsum("btm,mhe->bthe", x, wv) + bv
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * x.dtype.type(d ** -0.5)
    if bias is not None:
        s += at_pairs(bias, shape, read)
    a = softmax(s, True if keep is None else at_pairs(keep, shape, read))
    factor = 1 if dropout is None else at_pairs(dropout, shape, read)
    c = a * factor
    inner = np.einsum("bhqk,bkhe->bqhe", c, v)
    o = np.einsum("bqhe,hem->bqm", inner, wo) + bo
    dinner = np.einsum("bqm,hem->bqhe", do, wo)
    dv = np.einsum("bhqk,bqhe->bkhe", c, dinner)
    da = np.einsum("bqhe,bkhe->bhqk", dinner, v) * factor
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dq = np.einsum("bhqk,bkhd->bqhd", ds, k) * x.dtype.type(d ** -0.5)
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q) * x.dtype.type(d ** -0.5)
    dx = np.einsum("bthd,mhd->btm", dk, wk) + np.einsum("bthe,mhe->btm", dv, wv)
    dx[:, read] += np.einsum("bqhd,mhd->bqm", dq, wq)
    found = {"o": o, "dx": dx, "dwq": np.einsum("bqm,bqhd->mhd", x[:, read], dq), "dbq": dq.sum((0, 1)),
             "dwk": np.einsum("btm,bthd->mhd", x, dk), "dbk": dk.sum((0, 1)),
             "dwv": np.einsum("btm,bthe->mhe", x, dv), "dbv": dv.sum((0, 1)),
             "dwo": np.einsum("bqhe,bqm->hem", inner, do), "dbo": do.sum((0, 1))}
    if bias is not None:
        found["dbias"] = of_pairs(ds, bias, shape, read)
    return found


def read_rows(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None, read=None):
    """One query of one sequence at a time, all heads at once; softmax's whole Jacobian is never made."""
    (b, t, m), (h, d) = x.shape, wq.shape[1:]
    shape = b, h, t, t
    keys = (x.reshape(-1, m) @ wk.reshape(m, -1)).reshape(b, t, h, d) + bk
    values = (x.reshape(-1, m) @ wv.reshape(m, -1)).reshape(b, t, h, -1) + bv
    add, seen, factor = (np.broadcast_to(np.asarray(default) if y is None else y, shape)
                         for y, default in ((bias, x.dtype.type(0)), (keep, True), (dropout, x.dtype.type(1))))
    o, dx = np.zeros_like(do), np.zeros_like(x)
    dkeys, dvalues, dscores = np.zeros_like(keys), np.zeros_like(values), np.zeros(shape, x.dtype)
    dwq, dbq, dwo = np.zeros_like(wq), np.zeros_like(bq), np.zeros_like(wo)
    for n in range(b):
        for row, place in enumerate(range(t)[read]):
            q = np.einsum("m,mhd->hd", x[n, place], wq) + bq
            s = np.einsum("hd,khd->hk", q, keys[n]) / sqrt(d) + add[n, :, place]
            a = softmax(s, seen[n, :, place])
            c = a * factor[n, :, place]
            inner = np.einsum("hk,khe->he", c, values[n])
            o[n, row] = np.tensordot(inner, wo, 2) + bo
            dwo += np.multiply.outer(inner, do[n, row])
            dinner = wo @ do[n, row]
            dvalues[n] += np.einsum("hk,he->khe", c, dinner)
            da = np.einsum("khe,he->hk", values[n], dinner) * factor[n, :, place]
            ds = a * da - a * (a * da).sum(1)[:, None]
            dscores[n, :, place] = ds
            dkeys[n] += np.einsum("hk,hd->khd", ds, q) / sqrt(d)
            dq = np.einsum("hk,khd->hd", ds, keys[n]) / sqrt(d)
            dbq += dq
            dwq += np.multiply.outer(x[n, place], dq)
            dx[n, place] += np.einsum("mhd,hd->m", wq, dq)
    by_key, dwk, dbk = map_back(x, wk, dkeys)
    by_value, dwv, dbv = map_back(x, wv, dvalues)
    found = {"o": o, "dx": dx + by_key + by_value, "dwq": dwq, "dbq": dbq, "dwk": dwk, "dbk": dbk, "dwv": dwv,
             "dbv": dbv, "dwo": dwo, "dbo": do.sum((0, 1))}
    return found if bias is None else found | {"dbias": of_pairs(dscores, bias, shape)}


def read_backwards(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None):
    """Self-attention of the whole sequence, whose answers are turned round; so is their gradient at first."""
    (b, t, m), (h, d), e = x.shape, wq.shape[1:], wv.shape[2]
    shape, rows, g = (b, h, t, t), x.reshape(-1, m), do[:, ::-1].reshape(-1, m)
    joined = np.concatenate([wq.reshape(m, -1), wk.reshape(m, -1), wv.reshape(m, -1)], 1)
    every = rows @ joined + np.concatenate([bq.ravel(), bk.ravel(), bv.ravel()])
    q = every[:, :h * d].reshape(b, t, h, d).transpose(0, 2, 1, 3)
    k = every[:, h * d:2 * h * d].reshape(b, t, h, d).transpose(0, 2, 1, 3)
    v = every[:, 2 * h * d:].reshape(b, t, h, e).transpose(0, 2, 1, 3)
    s = q @ k.swapaxes(2, 3)
    s /= x.dtype.type(sqrt(d))
    s = s if bias is None else s + bias
    a = softmax(s, True if keep is None else keep)
    c = a if dropout is None else a * dropout
    inner = (c @ v).transpose(0, 2, 1, 3).reshape(b * t, h * e)
    o = (inner @ wo.reshape(h * e, m) + bo).reshape(b, t, m)[:, ::-1]
    dinner = (g @ wo.reshape(h * e, m).T).reshape(b, t, h, e).transpose(0, 2, 1, 3)
    dv = c.swapaxes(2, 3) @ dinner
    da = dinner @ v.swapaxes(2, 3)
    da = da if dropout is None else da * dropout
    ds = a * (da - np.einsum("bhqk,bhqk->bhq", a, da)[..., None])
    dq = ds @ k / sqrt(d)
    dk = ds.swapaxes(2, 3) @ q / sqrt(d)
    dy = np.concatenate([y.transpose(0, 2, 1, 3).reshape(b * t, -1) for y in (dq, dk, dv)], 1)
    dw, db = rows.T @ dy, dy.sum(0)
    found = {"o": o, "dx": (dy @ joined.T).reshape(x.shape), "dwo": (inner.T @ g).reshape(wo.shape), "dbo": g.sum(0)}
    start = 0
    for name, w in ("q", wq), ("k", wk), ("v", wv):
        stop = start + w[0].size
        found |= {f"dw{name}": dw[:, start:stop].reshape(w.shape), f"db{name}": db[start:stop].reshape(w.shape[1:])}
        start = stop
    return found if bias is None else found | {"dbias": of_pairs(ds, bias, shape)}


def hyla_context(x, context, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None,
                 read=slice(2, None)):
    """HYLA of some queries over a context, in letters; heads are the last axis of the code."""
    (b, t, _), n, (h, d) = x.shape, context.shape[1], wq.shape[1:]
    shape, asking = (b, h, t, n), x[:, read]
    q = np.einsum("btm,mhd->bthd", asking, wq) + bq
    k, v = np.einsum("bkm,mhd->bkhd", context, wk) + bk, np.einsum("bkm,mhe->bkhe", context, wv) + bv
    s = np.einsum("bqhd,bkhd->bqkh", q / sqrt(d), k)
    if bias is not None:
        s = s + at_pairs(bias, shape, read).transpose(0, 2, 3, 1)
    seen = 1 if keep is None else at_pairs(keep, shape, read).transpose(0, 2, 3, 1)
    factor = 1 if dropout is None else at_pairs(dropout, shape, read).transpose(0, 2, 3, 1)
    s = s * seen
    rho = (np.square(s).mean(-1, keepdims=True) + x.dtype.type(1e-6)) ** -0.5
    a = rho * s
    c = a * factor
    z = np.einsum("bqkh,bkhe->bqke", c, v)
    g = np.where(z > 0, z, 0)
    inner = np.einsum("bqkh,bqke->bqhe", c, g)
    o = np.einsum("bqhe,hem->bqm", inner, wo) + bo
    dinner = np.einsum("bqm,hem->bqhe", do, wo)
    dg = np.einsum("bqkh,bqhe->bqke", c, dinner)
    dz = np.where(z > 0, dg, 0)
    dc = np.einsum("bqhe,bqke->bqkh", dinner, g) + np.einsum("bqke,bkhe->bqkh", dz, v)
    dv = np.einsum("bqkh,bqke->bkhe", c, dz)
    da = dc * factor
    ds = rho * (da - a * (a * da).mean(-1, keepdims=True)) * seen
    dq = np.einsum("bqkh,bkhd->bqhd", ds, k) / sqrt(d)
    dk = np.einsum("bqkh,bqhd->bkhd", ds, q) / sqrt(d)
    dx = np.zeros_like(x)
    dx[:, read] = np.einsum("bqhd,mhd->bqm", dq, wq)
    dcontext = np.einsum("bkhd,mhd->bkm", dk, wk) + np.einsum("bkhe,mhe->bkm", dv, wv)
    found = {"o": o, "dx": dx, "dcontext": dcontext,
             "dwq": np.einsum("bqm,bqhd->mhd", asking, dq), "dbq": dq.sum((0, 1)),
             "dwk": np.einsum("bkm,bkhd->mhd", context, dk), "dbk": dk.sum((0, 1)),
             "dwv": np.einsum("bkm,bkhe->mhe", context, dv), "dbv": dv.sum((0, 1)),
             "dwo": np.einsum("bqhe,bqm->hem", inner, do), "dbo": do.sum((0, 1))}
    if bias is not None:
        found["dbias"] = of_pairs(np.ascontiguousarray(ds.transpose(0, 3, 1, 2)), bias, shape, read)
    return found


def hyla_context_keys(x, context, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None, first=2):
    """Key by key: o and dq add up over the keys, dk and dv of a key are made in one go."""
    (b, t, _), n, (h, d), e = x.shape, context.shape[1], wq.shape[1:], wv.shape[2]
    shape, asking = (b, h, t, n), np.ascontiguousarray(x[:, first:])
    add, seen, factor = (np.broadcast_to(np.asarray(default, x.dtype) if y is None else y, shape)[:, :, first:]
                         for y, default in ((bias, 0), (keep, 1), (dropout, 1)))
    q = np.tensordot(asking, wq, 1) + bq
    k, v = np.tensordot(context, wk, 1) + bk, np.tensordot(context, wv, 1) + bv
    inner = np.zeros((b, t - first, h, e), x.dtype)
    dinner = np.tensordot(do, wo, (2, 2))
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    dscores = np.zeros(shape, x.dtype)
    for j in range(n):
        s = ((q * k[:, None, j]).sum(-1) / sqrt(d) + add[..., j].swapaxes(1, 2)) * seen[..., j].swapaxes(1, 2)
        rho = 1 / np.sqrt((s ** 2).mean(2, keepdims=True) + x.dtype.type(1e-6))
        a = s * rho
        c = a * factor[..., j].swapaxes(1, 2)
        z = (c[..., None] * v[:, None, j]).sum(2)
        active = z * (z > 0)
        inner += c[..., None] * active[:, :, None]
        dz = (c[..., None] * dinner).sum(2) * (z > 0)
        dc = (dinner * active[:, :, None]).sum(-1)
        dc += (dz[:, :, None] * v[:, None, j]).sum(-1)
        dv[:, j] = (c[..., None] * dz[:, :, None]).sum(1)
        da = dc * factor[..., j].swapaxes(1, 2)
        ds = rho * (da - a * (a * da).sum(2, keepdims=True) / h) * seen[..., j].swapaxes(1, 2)
        dscores[:, :, first:, j] = ds.swapaxes(1, 2)
        dq += ds[..., None] * k[:, None, j] / sqrt(d)
        dk[:, j] = (ds[..., None] * q).sum(1) / sqrt(d)
    found = {"o": np.tensordot(inner, wo, 2) + bo, "dwo": np.tensordot(inner, do, ((0, 1), (0, 1))),
             "dbo": do.sum((0, 1)), "dx": np.zeros_like(x)}
    found["dx"][:, first:], found["dwq"], found["dbq"] = map_back(asking, wq, dq)
    by_key, found["dwk"], found["dbk"] = map_back(context, wk, dk)
    by_value, found["dwv"], found["dbv"] = map_back(context, wv, dv)
    found["dcontext"] = by_key + by_value
    return found if bias is None else found | {"dbias": of_pairs(dscores, bias, shape)}


# ------------------------------------------------------------------------------------------------------ compositional

def searches_letters(x, wq, bq, wk, bk, wv, bv, ws, bs, wr, br, wo, bo, do, bias=None, keep=None, dropout=None,
                     read=slice(1, 3)):
    """The retrievals are made and their keys too, as C's code does; letters."""
    (b, t, _), (n, d), c = x.shape, wq.shape[1:], ws.shape[2]
    shape, asking = (b, n, t, t), x[:, read]
    q, selector = np.einsum("btm,msd->btsd", asking, wq) + bq, np.einsum("btm,msc->btsc", asking, ws) + bs
    k, v = np.einsum("btm,msd->btsd", x, wk) + bk, np.einsum("btm,mre->btre", x, wv) + bv
    s = np.einsum("bqsd,bksd->bsqk", q, k) / sqrt(d)
    s = s if bias is None else s + at_pairs(bias, shape, read)
    a = softmax(s, True if keep is None else at_pairs(keep, shape, read))
    factor = 1 if dropout is None else at_pairs(dropout, shape, read)
    ret = np.einsum("bsqk,bkre->bqsre", a * factor, v)
    label = ret @ wr + br
    logits = np.einsum("bqsc,bqsrc->bqsr", selector, label) / sqrt(c)
    g = softmax(logits)
    inner = np.einsum("bqsr,bqsre->bqse", g, ret)
    o = np.einsum("bqse,sem->bqm", inner, wo) + bo
    dinner = np.einsum("bqm,sem->bqse", do, wo)
    dg = np.einsum("bqse,bqsre->bqsr", dinner, ret)
    dlogits = g * (dg - (g * dg).sum(-1, keepdims=True))
    dselector = np.einsum("bqsr,bqsrc->bqsc", dlogits, label) / sqrt(c)
    dlabel = np.einsum("bqsr,bqsc->bqsrc", dlogits, selector) / sqrt(c)
    dret = np.einsum("bqsr,bqse->bqsre", g, dinner)
    dret = dret + np.einsum("bqsrc,ec->bqsre", dlabel, wr)
    dwr = np.einsum("bqsre,bqsrc->ec", ret, dlabel)
    dv = np.einsum("bsqk,bqsre->bkre", a * factor, dret)
    da = np.einsum("bqsre,bkre->bsqk", dret, v) * factor
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dq = np.einsum("bsqk,bksd->bqsd", ds, k) / sqrt(d)
    dk = np.einsum("bsqk,bqsd->bksd", ds, q) / sqrt(d)
    found = {"o": o, "dx": np.zeros_like(x), "dwr": dwr, "dbr": np.zeros_like(br),
             "dwo": np.einsum("bqse,bqm->sem", inner, do), "dbo": do.sum((0, 1))}
    for name, w, at, dy in ("k", wk, slice(None), dk), ("v", wv, slice(None), dv), ("q", wq, read, dq), (
            "s", ws, read, dselector):
        found[f"dw{name}"], found[f"db{name}"] = np.einsum("btm,btxy->mxy", x[:, at], dy), dy.sum((0, 1))
        found["dx"][:, at] += np.einsum("btxy,mxy->btm", dy, w)
    return found if bias is None else found | {"dbias": of_pairs(ds, bias, shape, read)}


def searches_loop(x, wq, bq, wk, bk, wv, bv, ws, bs, wr, br, wo, bo, do, bias=None, keep=None, dropout=None,
                  read=slice(1, 3)):
    """Search by search; the key map is moved into the selector, and retrievals are made again in the backward."""
    (b, t, _), (searches, d), c = x.shape, wq.shape[1:], ws.shape[2]
    shape, asking = (b, searches, t, t), x[:, read]
    root = x.dtype.type(c ** -0.5)
    add, seen, factor = (at_pairs(np.asarray(default) if y is None else y, shape, read)
                         for y, default in ((bias, x.dtype.type(0)), (keep, True), (dropout, x.dtype.type(1))))
    v = np.einsum("btm,mre->btre", x, wv) + bv
    parts, o = [], np.zeros_like(do)
    for i in range(searches):
        q, k = asking @ wq[:, i] + bq[i], x @ wk[:, i] + bk[i]
        selector = asking @ ws[:, i] + bs[i]
        a = softmax(q @ k.swapaxes(1, 2) / sqrt(d) + add[:, i], seen[:, i])
        ret = np.einsum("bqk,bkre->bqre", a * factor[:, i], v)
        g = softmax(np.einsum("bqe,bqre->bqr", selector @ wr.T * root, ret))
        o += np.einsum("bqr,bqre->bqe", g, ret) @ wo[i]
        parts.append((q, k, selector, a, g))
    o += bo
    names = {"wq": wq, "bq": bq, "wk": wk, "bk": bk, "wv": wv, "bv": bv, "ws": ws, "bs": bs, "wr": wr, "br": br,
             "wo": wo}
    found = {f"d{name}": np.zeros_like(w) for name, w in names.items()}
    found |= {"o": o, "dx": np.zeros_like(x), "dbo": do.sum((0, 1))}
    dv, dscores = np.zeros_like(v), np.zeros((b, searches, do.shape[1], t), x.dtype)
    for i, (q, k, selector, a, g) in enumerate(parts):
        weights = a * factor[:, i]
        ret = np.einsum("bqk,bkre->bqre", weights, v)
        found["dwo"][i] = np.einsum("bqr,bqre,bqm->em", g, ret, do)
        dinner = do @ wo[i].T
        dg = (ret @ dinner[..., None])[..., 0]
        dl = g * (dg - (g * dg).sum(-1, keepdims=True))
        mixed = np.einsum("bqr,bqre->bqe", dl, ret) * root
        dselector = mixed @ wr
        found["dwr"] += np.tensordot(mixed, selector, ((0, 1), (0, 1)))
        dret = g[..., None] * dinner[:, :, None]
        dret += dl[..., None] * (selector @ wr.T * root)[:, :, None]
        dv += np.einsum("bqk,bqre->bkre", weights, dret)
        da = np.einsum("bqre,bkre->bqk", dret, v) * factor[:, i]
        ds = a * (da - (a * da).sum(-1, keepdims=True))
        dscores[:, i] = ds
        dq, dk = ds @ k / sqrt(d), ds.swapaxes(1, 2) @ q / sqrt(d)
        for name, w, dy in ("q", wq, dq), ("s", ws, dselector):
            found[f"dw{name}"][:, i] = np.tensordot(asking, dy, ((0, 1), (0, 1)))
            found[f"db{name}"][i] = dy.sum((0, 1))
            found["dx"][:, read] += dy @ w[:, i].T
        found["dwk"][:, i], found["dbk"][i] = np.tensordot(x, dk, ((0, 1), (0, 1))), dk.sum((0, 1))
        found["dx"] += dk @ wk[:, i].T
    back, found["dwv"], found["dbv"] = map_back(x, wv, dv)
    found["dx"] += back
    return found if bias is None else found | {"dbias": of_pairs(dscores, bias, shape, read)}


def scorer_letters(x, context, wq, bq, wk, bk, wv, bv, ws, bs, wr, wc, br, w2, b2, wo, bo, do, bias=None, keep=None,
                   dropout=None, read=slice(2, None)):
    """Value scores by a network of one hidden layer, on selector and retrieval side by side; letters."""
    (b, t, _), n, (searches, d) = x.shape, context.shape[1], wq.shape[1:]
    shape, asking, (e, f) = (b, searches, t, n), x[:, read], wr.shape
    q, selector = np.einsum("btm,msd->btsd", asking, wq) + bq, np.einsum("btm,msc->btsc", asking, ws) + bs
    k, v = np.einsum("btm,msd->btsd", context, wk) + bk, np.einsum("btm,mre->btre", context, wv) + bv
    s = np.einsum("bqsd,bksd->bsqk", q, k) / sqrt(d)
    s = s if bias is None else s + at_pairs(bias, shape, read)
    a = softmax(s, True if keep is None else at_pairs(keep, shape, read))
    factor = 1 if dropout is None else at_pairs(dropout, shape, read)
    weights = a * factor
    ret = np.einsum("bsqk,bkre->bqsre", weights, v)
    both = np.concatenate([ret, np.repeat(selector[:, :, :, None], ret.shape[3], 3)], -1)
    w1 = np.concatenate([wr, wc])
    hidden = both @ w1 + br
    active = np.maximum(hidden, 0)
    g = softmax(active @ w2 + b2)
    inner = (g[..., None] * ret).sum(3)
    o = np.einsum("bqse,sem->bqm", inner, wo) + bo
    dinner = np.einsum("bqm,sem->bqse", do, wo)
    dg = np.einsum("bqse,bqsre->bqsr", dinner, ret)
    dret = g[..., None] * dinner[:, :, :, None]
    dl = g * (dg - (g * dg).sum(-1, keepdims=True))
    dw2, db2 = np.einsum("bqsr,bqsrf->f", dl, active), dl.sum().reshape(1)
    dhidden = dl[..., None] * w2 * (hidden > 0)
    dbr = dhidden.sum((0, 1, 2, 3))
    dw1 = both.reshape(-1, len(w1)).T @ dhidden.reshape(-1, f)
    dboth = dhidden @ w1.T
    dret = dret + dboth[..., :e]
    dselector = dboth[..., e:].sum(3)
    dv = np.einsum("bsqk,bqsre->bkre", weights, dret)
    da = np.einsum("bqsre,bkre->bsqk", dret, v) * factor
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dq = np.einsum("bsqk,bksd->bqsd", ds, k) / sqrt(d)
    dk = np.einsum("bsqk,bqsd->bksd", ds, q) / sqrt(d)
    dx = np.zeros_like(x)
    dx[:, read] = np.einsum("btsd,msd->btm", dq, wq) + np.einsum("btsc,msc->btm", dselector, ws)
    dcontext = np.einsum("btsd,msd->btm", dk, wk) + np.einsum("btre,mre->btm", dv, wv)
    found = {"o": o, "dx": dx, "dcontext": dcontext, "dwr": dw1[:e], "dwc": dw1[e:], "dbr": dbr, "dw2": dw2,
             "db2": db2, "dwo": np.einsum("bqse,bqm->sem", inner, do), "dbo": do.sum((0, 1))}
    for name, source, dy in ("q", asking, dq), ("s", asking, dselector), ("k", context, dk), ("v", context, dv):
        found |= {f"dw{name}": np.einsum("btm,btxy->mxy", source, dy), f"db{name}": dy.sum((0, 1))}
    return found if bias is None else found | {"dbias": of_pairs(ds, bias, shape, read)}


def scorer_queries(x, context, wq, bq, wk, bk, wv, bv, ws, bs, wr, wc, br, w2, b2, wo, bo, do, bias=None, keep=None,
                   dropout=None, first=2):
    """Query by query and search by search, forward and backward in one pass."""
    (b, t, _), n, (searches, d) = x.shape, context.shape[1], wq.shape[1:]
    shape = b, searches, t, n
    add, seen, factor = (np.broadcast_to(np.asarray(default) if y is None else y, shape)
                         for y, default in ((bias, x.dtype.type(0)), (keep, True), (dropout, x.dtype.type(1))))
    k, v = np.tensordot(context, wk, 1) + bk, np.tensordot(context, wv, 1) + bv
    given = {"wq": wq, "bq": bq, "ws": ws, "bs": bs, "wr": wr, "wc": wc, "br": br, "w2": w2, "b2": b2, "wo": wo}
    found = {f"d{name}": np.zeros_like(w) for name, w in given.items()}
    o, dx, dscores = np.zeros_like(do), np.zeros_like(x), np.zeros(shape, x.dtype)
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    for j, row, i in np.ndindex(b, t - first, searches):
        place = row + first
        q, selector = x[j, place] @ wq[:, i] + bq[i], x[j, place] @ ws[:, i] + bs[i]
        a = softmax(k[j, :, i] @ q / sqrt(d) + add[j, i, place], seen[j, i, place])
        weights = a * factor[j, i, place]
        ret = np.tensordot(weights, v[j], 1)
        hidden = ret @ wr + selector @ wc + br
        g = softmax(np.maximum(hidden, 0) @ w2 + b2)
        o[j, row] += g @ ret @ wo[i]
        found["dwo"][i] += np.outer(g @ ret, do[j, row])
        dinner = wo[i] @ do[j, row]
        dg = ret @ dinner
        dl = g * (dg - g @ dg)
        found["dw2"] += dl @ np.maximum(hidden, 0)
        found["db2"] += dl.sum()
        dhidden = np.outer(dl, w2) * (hidden > 0)
        found["dbr"] += dhidden.sum(0)
        found["dwr"] += ret.T @ dhidden
        found["dwc"] += np.outer(selector, dhidden.sum(0))
        dselector = wc @ dhidden.sum(0)
        dret = np.outer(g, dinner) + dhidden @ wr.T
        dv[j] += np.multiply.outer(weights, dret)
        da = np.tensordot(v[j], dret, 2) * factor[j, i, place]
        ds = a * (da - a @ da)
        dscores[j, i, place] = ds
        dk[j, :, i] += np.outer(ds, q) / sqrt(d)
        dq = ds @ k[j, :, i] / sqrt(d)
        found["dwq"][:, i] += np.outer(x[j, place], dq)
        found["dws"][:, i] += np.outer(x[j, place], dselector)
        found["dbq"][i] += dq
        found["dbs"][i] += dselector
        dx[j, place] += wq[:, i] @ dq + ws[:, i] @ dselector
    by_key, found["dwk"], found["dbk"] = map_back(context, wk, dk)
    by_value, found["dwv"], found["dbv"] = map_back(context, wv, dv)
    found |= {"o": o + bo, "dx": dx, "dcontext": by_key + by_value, "dbo": do.sum((0, 1))}
    return found if bias is None else found | {"dbias": of_pairs(dscores, bias, shape)}


# ---------------------------------------------------------------------------------------------------- sliding-dilated

def last_gathered(x, wq, wk, wv, offset_bias, wo, do, bias=None, keep=None, dropout=None, dilation=4):
    """The last position alone: its keys are gathered, and those before the first are masked."""
    (b, t, _), (h, d), chunk = x.shape, wq.shape[1:], offset_bias.shape[1]
    shape = b, h, t, chunk
    places = t - 1 - dilation * np.arange(chunk)
    there, index = places >= 0, np.maximum(places, 0)
    q = np.einsum("bm,mhd->bhd", x[:, -1], wq)
    k, v = np.einsum("btm,mhd->bthd", x, wk)[:, index], np.einsum("btm,mhe->bthe", x, wv)[:, index]
    s = np.einsum("bhd,bwhd->bhw", q, k) / sqrt(d) + offset_bias
    s = s if bias is None else s + at_pairs(bias, shape)[:, :, -1]
    a = softmax(s, there if keep is None else there & at_pairs(keep, shape)[:, :, -1])
    factor = 1 if dropout is None else at_pairs(dropout, shape)[:, :, -1]
    inner = np.einsum("bhw,bwhe->bhe", a * factor, v)
    o = np.einsum("bhe,hem->bm", inner, wo)[:, None]
    dinner = np.einsum("bm,hem->bhe", do[:, 0], wo)
    da = np.einsum("bhe,bwhe->bhw", dinner, v) * factor
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dq = np.einsum("bhw,bwhd->bhd", ds, k) / sqrt(d)
    dkeys = np.einsum("bhw,bhd->bwhd", ds, q) / sqrt(d)
    dvalues = np.einsum("bhw,bhe->bwhe", a * factor, dinner)
    dk, dv = np.zeros((b, t, h, d), x.dtype), np.zeros((b, t, *wv.shape[1:]), x.dtype)
    np.add.at(dk, (slice(None), index), dkeys)
    np.add.at(dv, (slice(None), index), dvalues)
    dx = np.einsum("bthd,mhd->btm", dk, wk) + np.einsum("bthe,mhe->btm", dv, wv)
    dx[:, -1] += np.einsum("bhd,mhd->bm", dq, wq)
    found = {"o": o, "dx": dx, "dwq": np.einsum("bm,bhd->mhd", x[:, -1], dq),
             "dwk": np.einsum("btm,bthd->mhd", x, dk), "dwv": np.einsum("btm,bthe->mhe", x, dv),
             "doffset_bias": ds.sum(0), "dwo": np.einsum("bhe,bm->hem", inner, do[:, 0])}
    return found if bias is None else found | {"dbias": of_pairs(ds[:, :, None], bias, shape, slice(-1, None))}


def last_loop(x, wq, wk, wv, offset_bias, wo, do, bias=None, keep=None, dropout=None, dilation=4):
    """The last position alone, sequence by sequence and head by head, over the keys that are there."""
    (b, t, _), (heads, d), chunk = x.shape, wq.shape[1:], offset_bias.shape[1]
    shape, last = (b, heads, t, chunk), t - 1
    names = {"wq": wq, "wk": wk, "wv": wv, "offset_bias": offset_bias, "wo": wo, "x": x}
    found = {f"d{name}": np.zeros_like(w) for name, w in names.items()}
    o, dscores = np.zeros_like(do), np.zeros(shape, x.dtype)
    for n, i in np.ndindex(b, heads):
        offsets = [w for w in range(chunk) if last - w * dilation >= 0
                   and (keep is None or np.broadcast_to(keep, shape)[n, i, last, w])]
        if not offsets:
            continue
        seen = x[n, [last - w * dilation for w in offsets]]
        q, k, v = x[n, last] @ wq[:, i], seen @ wk[:, i], seen @ wv[:, i]
        s = k @ q / sqrt(d) + offset_bias[i, offsets]
        if bias is not None:
            s = s + np.broadcast_to(bias, shape)[n, i, last, offsets]
        e = np.exp(s - s.max())
        a = e / e.sum()
        factor = np.ones_like(a) if dropout is None else np.broadcast_to(dropout, shape)[n, i, last, offsets]
        inner = (a * factor) @ v
        o[n, 0] += inner @ wo[i]
        found["dwo"][i] += np.outer(inner, do[n, 0])
        dinner = wo[i] @ do[n, 0]
        da = v @ dinner * factor
        ds = a * (da - a @ da)
        found["doffset_bias"][i, offsets] += ds
        dscores[n, i, last, offsets] = ds
        dq, dk, dv = ds @ k / sqrt(d), np.outer(ds, q) / sqrt(d), np.outer(a * factor, dinner)
        found["dwq"][:, i] += np.outer(x[n, last], dq)
        found["dwk"][:, i] += seen.T @ dk
        found["dwv"][:, i] += seen.T @ dv
        found["dx"][n, last] += wq[:, i] @ dq
        for w, row in zip(offsets, dk @ wk[:, i].T + dv @ wv[:, i].T, strict=True):
            found["dx"][n, last - w * dilation] += row
    found |= {"o": o}
    return found if bias is None else found | {"dbias": of_pairs(dscores, bias, shape)}


def padded_gathered(x, wq, bq, wk, bk, wv, bv, offset_bias, pad, wo, bo, do, bias=None, keep=None, dropout=None,
                    read=slice(1, None, 3)):
    """The pad stands before the tokens as often as needed and is projected with them; keys are gathered."""
    (b, t, m), (h, d), chunk = x.shape, wq.shape[1:], offset_bias.shape[1]
    shape, asking = (b, h, t, chunk), x[:, read]
    n = chunk - 1
    longer = np.concatenate([np.broadcast_to(pad, (b, n, m)), x], 1)
    index = np.arange(t)[read][:, None] - np.arange(chunk) + n
    q = np.einsum("bqm,mhd->bqhd", asking, wq) + bq
    k = (np.einsum("btm,mhd->bthd", longer, wk) + bk)[:, index]
    v = (np.einsum("btm,mhe->bthe", longer, wv) + bv)[:, index]
    s = np.einsum("bqhd,bqwhd->bhqw", q, k) / sqrt(d) + offset_bias[:, None]
    s = s if bias is None else s + at_pairs(bias, shape, read)
    a = softmax(s, True if keep is None else at_pairs(keep, shape, read))
    factor = 1 if dropout is None else at_pairs(dropout, shape, read)
    c = a * factor
    inner = np.einsum("bhqw,bqwhe->bqhe", c, v)
    o = np.einsum("bqhe,hem->bqm", inner, wo) + bo
    dinner = np.einsum("bqm,hem->bqhe", do, wo)
    da = np.einsum("bqhe,bqwhe->bhqw", dinner, v) * factor
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dq = np.einsum("bhqw,bqwhd->bqhd", ds, k) / sqrt(d)
    dk, dv = np.zeros((b, n + t, h, d), x.dtype), np.zeros((b, n + t, *wv.shape[1:]), x.dtype)
    np.add.at(dk, (slice(None), index), np.einsum("bhqw,bqhd->bqwhd", ds, q) / sqrt(d))
    np.add.at(dv, (slice(None), index), np.einsum("bhqw,bqhe->bqwhe", c, dinner))
    dlonger = np.einsum("bthd,mhd->btm", dk, wk) + np.einsum("bthe,mhe->btm", dv, wv)
    dx = dlonger[:, n:].copy()
    dx[:, read] += np.einsum("bqhd,mhd->bqm", dq, wq)
    found = {"o": o, "dx": dx, "dpad": dlonger[:, :n].sum((0, 1)), "doffset_bias": ds.sum((0, 2)),
             "dwq": np.einsum("bqm,bqhd->mhd", asking, dq), "dbq": dq.sum((0, 1)),
             "dwk": np.einsum("btm,bthd->mhd", longer, dk), "dbk": dk.sum((0, 1)),
             "dwv": np.einsum("btm,bthe->mhe", longer, dv), "dbv": dv.sum((0, 1)),
             "dwo": np.einsum("bqhe,bqm->hem", inner, do), "dbo": do.sum((0, 1))}
    return found if bias is None else found | {"dbias": of_pairs(ds, bias, shape, read)}


def padded_offsets(x, wq, bq, wk, bk, wv, bv, offset_bias, pad, wo, bo, do, bias=None, keep=None, dropout=None, step=3):
    """Offset by offset: a loop over the places that are read; the pad's key and value are made once."""
    (b, t, _), (h, d), (_, _, e), chunk = x.shape, wq.shape[1:], wv.shape, offset_bias.shape[1]
    shape, places = (b, h, t, chunk), list(range(1, t, step))
    add, seen, factor = (at_pairs(np.asarray(default) if y is None else y, shape)[:, :, places]
                         for y, default in ((bias, x.dtype.type(0)), (keep, True), (dropout, x.dtype.type(1))))
    q = np.tensordot(x[:, places], wq, 1) + bq
    k, v = np.tensordot(x, wk, 1) + bk, np.tensordot(x, wv, 1) + bv
    pad_k, pad_v = np.tensordot(pad, wk, 1) + bk, np.tensordot(pad, wv, 1) + bv
    s = np.zeros((b, h, len(places), chunk), x.dtype)
    for w in range(chunk):
        for row, place in enumerate(places):
            key = k[:, place - w] if place >= w else pad_k
            s[:, :, row, w] = (q[:, row] * key).sum(-1) / sqrt(d) + offset_bias[:, w]
    a = softmax(s + add, seen)
    c = a * factor
    inner = np.zeros((b, len(places), h, e), x.dtype)
    dinner, dc = np.tensordot(do, wo, (2, 2)), np.zeros_like(c)
    dv, dpad_v = np.zeros_like(v), np.zeros_like(pad_v)
    for w in range(chunk):
        for row, place in enumerate(places):
            value = v[:, place - w] if place >= w else pad_v
            inner[:, row] += c[:, :, row, w, None] * value
            dc[:, :, row, w] = (dinner[:, row] * value).sum(-1)
            dvalue = c[:, :, row, w, None] * dinner[:, row]
            if place >= w:
                dv[:, place - w] += dvalue
            else:
                dpad_v += dvalue.sum(0)
    da = dc * factor
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dq, dk, dpad_k = np.zeros_like(q), np.zeros_like(k), np.zeros_like(pad_k)
    for w in range(chunk):
        for row, place in enumerate(places):
            key = k[:, place - w] if place >= w else pad_k
            dq[:, row] += ds[:, :, row, w, None] * key / sqrt(d)
            dkey = ds[:, :, row, w, None] * q[:, row] / sqrt(d)
            if place >= w:
                dk[:, place - w] += dkey
            else:
                dpad_k += dkey.sum(0)
    found = {"o": np.tensordot(inner, wo, 2) + bo, "dwo": np.tensordot(inner, do, ((0, 1), (0, 1))),
             "dbo": do.sum((0, 1)), "doffset_bias": ds.sum((0, 2)),
             "dpad": np.tensordot(wk, dpad_k, 2) + np.tensordot(wv, dpad_v, 2)}
    back, found["dwq"], found["dbq"] = map_back(x[:, places], wq, dq)
    by_key, dwk, dbk = map_back(x, wk, dk)
    by_value, dwv, dbv = map_back(x, wv, dv)
    found |= {"dwk": dwk + np.multiply.outer(pad, dpad_k), "dbk": dbk + dpad_k,
              "dwv": dwv + np.multiply.outer(pad, dpad_v), "dbv": dbv + dpad_v, "dx": by_key + by_value}
    found["dx"][:, places] += back
    if bias is None:
        return found
    dscores = np.zeros(shape, x.dtype)
    dscores[:, :, places] = ds
    return found | {"dbias": of_pairs(dscores, bias, shape)}


# ------------------------------------------------------------------------------------------------------------- tables

def t5_scattered(table, do, both=False):
    """As in T5's code: the position of the key less that of the query, buckets as integers, gradients scattered."""
    heads, buckets = table.shape
    n = -(np.arange(do.shape[2])[None, :] - np.arange(do.shape[1])[:, None])
    ret = np.zeros_like(n)
    if both:
        buckets //= 2
        ret += (n < 0) * buckets
        n = np.abs(n)
    else:
        n = np.maximum(n, np.zeros_like(n))
    exact = buckets // 2
    large = exact + (np.log(np.maximum(n, 1) / exact + 1e-7) / np.log(16 / exact) * (buckets - exact)).astype(int)
    large = np.minimum(large, buckets - 1)
    ret += np.where(n < exact, n, large)
    dtable = np.zeros_like(table)
    np.add.at(dtable, (slice(None), ret), do)
    return table[:, ret], dtable


def t5_one_hot(table, do, both=False, far=16):
    """A product with one-hot buckets, whose edges are searched in a list of distances."""
    queries, keys, width = do.shape[1], do.shape[2], table.shape[1]
    side = width // 2 if both else width
    exact = side // 2
    edges = [*range(1, exact + 1)]
    edges += [exact * (far / exact) ** (j / (side - exact)) for j in range(1, side - exact)]
    distance = np.arange(queries)[:, None] - np.arange(keys)
    size = np.abs(distance) if both else np.maximum(distance, 0)
    bucket = np.searchsorted(np.array(edges) - 1e-6, size, side="right")
    if both:
        bucket = bucket + side * (distance < 0)
    hot = np.eye(width, dtype=table.dtype)[bucket]
    return np.einsum("hw,qkw->hqk", table, hot), np.einsum("hqk,qkw->hw", do, hot)


def t5_loops(table, do, both=False, far=16):
    """Pair by pair."""
    o, dtable, width = np.zeros_like(do), np.zeros_like(table), table.shape[1]
    side = width // 2 if both else width
    exact = side // 2
    for q, k in np.ndindex(do.shape[1:]):
        bucket = 0
        n = q - k
        if both and n < 0:
            bucket, n = side, -n
        n = max(n, 0)
        if n < exact:
            bucket += n
        else:
            grown = log(n / exact) / log(far / exact)
            bucket += min(exact + int(grown * (side - exact) + 1e-6), side - 1)
        o[:, q, k] = table[:, bucket]
        dtable[:, bucket] += do[:, q, k]
    return o, dtable


def table_slice(x, table, do, start=2):
    """Rows of the table are added; a sum over the batch goes into these rows."""
    stop = start + x.shape[1]
    o = x + table[start:stop]
    dtable = np.zeros_like(table)
    dtable[start:stop] += do.sum(0)
    return o, do.copy(), dtable


def table_gathered(x, table, do, start=2):
    """Position ids of all sequences pick rows, and their gradients are added one after another."""
    b, t, m = x.shape
    ids = np.broadcast_to(np.arange(start, start + t), (b, t))
    o = x + table[ids]
    dtable = np.zeros_like(table)
    np.add.at(dtable, ids.reshape(-1), do.reshape(b * t, m))
    return {"o": o, "dx": 1 * do, "dtable": dtable}


def table_one_hot(x, table, do, start=2):
    """A product with a matrix of ones, which is transposed in the backward."""
    pick = np.eye(len(table), dtype=x.dtype)[start:start + x.shape[1]]
    o = x + pick @ table
    dtable = np.einsum("tp,btm->pm", pick, do)
    return o, do + 0, dtable


# ------------------------------------------------------------------------------------------------------------- blocks

def attended(x, source, p, keep, dropout):
    """Softmax attention with maps p, and what gives dx, dsource and the maps' gradients from dy."""
    scale = x.dtype.type(p["wq"].shape[2] ** -0.5)
    q, k = np.tensordot(x, p["wq"], 1) + p["bq"], np.tensordot(source, p["wk"], 1) + p["bk"]
    v = np.tensordot(source, p["wv"], 1) + p["bv"]
    a = softmax(np.einsum("bqhd,bkhd->bhqk", q, k) * scale, True if keep is None else keep)
    c = a if dropout is None else a * dropout
    inner = np.einsum("bhqk,bkhe->bqhe", c, v)

    def back(dy):
        dinner = np.tensordot(dy, p["wo"], (2, 2))
        da = np.einsum("bqhe,bkhe->bhqk", dinner, v)
        da = da if dropout is None else da * dropout
        ds = a * (da - (a * da).sum(-1, keepdims=True)) * scale
        dx, dwq, dbq = map_back(x, p["wq"], np.einsum("bhqk,bkhd->bqhd", ds, k))
        by_key, dwk, dbk = map_back(source, p["wk"], np.einsum("bhqk,bqhd->bkhd", ds, q))
        by_value, dwv, dbv = map_back(source, p["wv"], np.einsum("bhqk,bqhe->bkhe", c, dinner))
        return dx, by_key + by_value, {
            "wq": dwq, "bq": dbq, "wk": dwk, "bk": dbk, "wv": dwv, "bv": dbv,
            "wo": np.tensordot(inner, dy, ((0, 1), (0, 1))), "bo": dy.sum((0, 1))}

    return np.tensordot(inner, p["wo"], 2) + p["bo"], back


def below(p, name):
    """What stands below a name: {"wq": ...} of {"attention.wq": ...}."""
    return {key[len(name) + 1:]: w for key, w in p.items() if key.startswith(name + ".")}


def block_written_out(x, do, keep=None, dropout=None, residual=None, hidden=None, **p):
    """A pre-norm block, line by line in letters."""
    shape, one = (len(x), 3, x.shape[1], x.shape[1]), x.dtype.type
    wq, wk, wv, wo = (p[f"attention.w{name}"] for name in "qkvo")
    w1, w2 = p["feed_forward.w1"], p["feed_forward.w2"]
    drop1, drop2 = (1, 1) if residual is None else residual
    factor = 1 if dropout is None else dropout
    mu1 = x.mean(-1, keepdims=True)
    r1 = 1 / np.sqrt(((x - mu1) ** 2).mean(-1, keepdims=True) + one(1e-5))
    n1 = (x - mu1) * r1
    h = n1 * p["norm1.scale"] + p["norm1.shift"]
    q, k = np.einsum("btm,mhd->bthd", h, wq) + p["attention.bq"], np.einsum("btm,mhd->bthd", h, wk) + p["attention.bk"]
    v = np.einsum("btm,mhe->bthe", h, wv) + p["attention.bv"]
    a = softmax(np.einsum("bqhd,bkhd->bhqk", q, k) / sqrt(wq.shape[2]), np.broadcast_to(
        True if keep is None else keep, shape))
    c = a * factor
    inner = np.einsum("bhqk,bkhe->bqhe", c, v)
    y = x + (np.einsum("bqhe,hem->bqm", inner, wo) + p["attention.bo"]) * drop1
    mu2 = y.mean(-1, keepdims=True)
    r2 = 1 / np.sqrt(((y - mu2) ** 2).mean(-1, keepdims=True) + one(1e-5))
    n2 = (y - mu2) * r2
    f = n2 * p["norm2.scale"] + p["norm2.shift"]
    u = f @ w1 + p["feed_forward.b1"]
    active = np.maximum(u, 0) * (1 if hidden is None else hidden)
    o = y + (active @ w2 + p["feed_forward.b2"]) * drop2

    dff = do * drop2
    dw2, db2 = np.einsum("btf,btm->fm", active, dff), dff.sum((0, 1))
    dactive = np.einsum("btm,fm->btf", dff, w2)
    du = dactive * (u > 0) * (1 if hidden is None else hidden)
    dw1, db1 = np.einsum("btm,btf->mf", f, du), du.sum((0, 1))
    df = np.einsum("btf,mf->btm", du, w1)
    dscale2, dshift2 = (df * n2).sum((0, 1)), df.sum((0, 1))
    g2 = df * p["norm2.scale"]
    dy = do + r2 * (g2 - g2.mean(-1, keepdims=True) - n2 * (g2 * n2).mean(-1, keepdims=True))
    dattention = dy * drop1
    dinner = np.einsum("bqm,hem->bqhe", dattention, wo)
    dwo, dbo = np.einsum("bqhe,bqm->hem", inner, dattention), dattention.sum((0, 1))
    dv = np.einsum("bhqk,bqhe->bkhe", c, dinner)
    da = np.einsum("bqhe,bkhe->bhqk", dinner, v) * factor
    ds = a * (da - (a * da).sum(-1, keepdims=True)) / one(sqrt(wq.shape[2]))
    dq, dk = np.einsum("bhqk,bkhd->bqhd", ds, k), np.einsum("bhqk,bqhd->bkhd", ds, q)
    found = {"dattention.wo": dwo, "dattention.bo": dbo}
    dh = np.zeros_like(h)
    for name, w, g in ("q", wq, dq), ("k", wk, dk), ("v", wv, dv):
        dh += np.einsum("bthd,mhd->btm", g, w)
        found[f"dattention.w{name}"] = np.einsum("btm,bthd->mhd", h, g)
        found[f"dattention.b{name}"] = g.sum((0, 1))
    dscale1, dshift1 = (dh * n1).sum((0, 1)), dh.sum((0, 1))
    g1 = dh * p["norm1.scale"]
    dx = dy + r1 * (g1 - g1.mean(-1, keepdims=True) - n1 * (g1 * n1).mean(-1, keepdims=True))
    return found | {"o": o, "dx": dx, "dnorm1.scale": dscale1, "dnorm1.shift": dshift1, "dnorm2.scale": dscale2,
                    "dnorm2.shift": dshift2, "dfeed_forward.w1": dw1, "dfeed_forward.b1": db1, "dfeed_forward.w2": dw2,
                    "dfeed_forward.b2": db2}


def block_tape(x, do, keep=None, dropout=None, residual=None, hidden=None, context=None, context_keep=None,
               context_dropout=None, order="pre", **p):
    """Sub-layers put what undoes them on a tape, which is run from its end."""
    tape, found, parts = [], {}, ["attention", "feed_forward"]
    if context is not None:
        parts.insert(1, "cross")
        found["dcontext"] = np.zeros_like(context)

    def norm(x, name):
        own = "norm_cross" if name == "cross" else "norm1" if name == "attention" else "norm2"
        centred = x - x.mean(-1, keepdims=True)
        r = 1 / np.sqrt(np.square(centred).mean(-1, keepdims=True) + x.dtype.type(1e-5))
        n = centred * r

        def undo(dy):
            found[f"d{own}.scale"], found[f"d{own}.shift"] = (dy * n).sum((0, 1)), dy.sum((0, 1))
            g = dy * p[f"{own}.scale"]
            return r * (g - g.mean(-1, keepdims=True) - n * (n * g).mean(-1, keepdims=True))

        return n * p[f"{own}.scale"] + p[f"{own}.shift"], undo

    def layer(x, name):
        w = below(p, name)
        if name == "feed_forward":
            u = x @ w["w1"] + w["b1"]
            mask = (u > 0) if hidden is None else (u > 0) * hidden
            active = u * mask

            def undo(dy):
                du = dy @ w["w2"].T * mask
                dx, dw1, db1 = map_back(x, w["w1"], du)
                _, dw2, db2 = map_back(active, w["w2"], dy)
                found.update({f"d{name}.w1": dw1, f"d{name}.b1": db1, f"d{name}.w2": dw2, f"d{name}.b2": db2})
                return dx

            return active @ w["w2"] + w["b2"], undo
        across = name == "cross"
        y, back = attended(x, context if across else x, w, *((context_keep, context_dropout) if across else
                                                             (keep, dropout)))

        def undo(dy):
            dx, dsource, grads = back(dy)
            found.update({f"d{name}.{key}": g for key, g in grads.items()})
            if across:
                found["dcontext"] += dsource
                return dx
            return dx + dsource

        return y, undo

    for i, name in enumerate(parts):
        drop = 1 if residual is None else residual[i]
        inside, undo_norm = norm(x, name) if order == "pre" else (x, None)
        y, undo_layer = layer(inside, name)
        x = x + y * drop
        if order == "post":
            x, undo_norm = norm(x, name)
        tape.append((undo_norm, undo_layer, drop))
    g = do
    while tape:
        undo_norm, undo_layer, drop = tape.pop()
        if order == "post":
            g = undo_norm(g)
        dinside = undo_layer(g * drop)
        if order == "pre":
            dinside = undo_norm(dinside)
        g = g + dinside
    return found | {"o": x, "dx": g}


def block_post(x, do, keep=None, dropout=None, residual=None, hidden=None, **p):
    """A post-norm block on rows of all sequences; LayerNorm's variance as the mean of squares less that of the mean."""
    m = x.shape[2]
    scale1, scale2, one = p["norm1.scale"], p["norm2.scale"], x.dtype.type
    w1, w2 = p["feed_forward.w1"], p["feed_forward.w2"]
    drop1, drop2 = (one(1), one(1)) if residual is None else residual
    attention, undo = attended(x, x, below(p, "attention"), keep, dropout)
    y1 = (x + attention * drop1).reshape(-1, m)
    mean1 = y1.mean(1, keepdims=True)
    root1 = np.sqrt((y1 * y1).mean(1, keepdims=True) - mean1 * mean1 + one(1e-5))
    n1 = (y1 - mean1) / root1
    h = n1 * scale1 + p["norm1.shift"]
    u = h @ w1 + p["feed_forward.b1"]
    mask = (u > 0).astype(x.dtype)
    if hidden is not None:
        mask = mask * hidden.reshape(u.shape)
    y2 = h + ((u * mask) @ w2 + p["feed_forward.b2"]) * (drop2 if residual is None else drop2.reshape(-1, m))
    mean2 = y2.mean(1, keepdims=True)
    root2 = np.sqrt((y2 * y2).mean(1, keepdims=True) - mean2 * mean2 + one(1e-5))
    n2 = (y2 - mean2) / root2
    o = n2 * scale2 + p["norm2.shift"]

    g = do.reshape(-1, m)
    dn2 = g * scale2
    dy2 = (m * dn2 - dn2.sum(1, keepdims=True) - n2 * (dn2 * n2).sum(1, keepdims=True)) / (m * root2)
    dff = dy2 * (drop2 if residual is None else drop2.reshape(-1, m))
    du = dff @ w2.T * mask
    dh = dy2 + du @ w1.T
    dn1 = dh * scale1
    dy1 = (m * dn1 - dn1.sum(1, keepdims=True) - n1 * (dn1 * n1).sum(1, keepdims=True)) / (m * root1)
    dy1 = dy1.reshape(x.shape)
    dasking, dsource, grads = undo(dy1 * drop1)
    return {"o": o.reshape(x.shape), "dx": dy1 + dasking + dsource,
            **{f"dattention.{name}": w for name, w in grads.items()},
            "dnorm1.scale": (dh * n1).sum(0), "dnorm1.shift": dh.sum(0),
            "dnorm2.scale": (g * n2).sum(0), "dnorm2.shift": g.sum(0),
            "dfeed_forward.w1": h.T @ du, "dfeed_forward.b1": du.sum(0), "dfeed_forward.w2": (u * mask).T @ dff,
            "dfeed_forward.b2": dff.sum(0)}


def block_bare(x, do, keep=None, dropout=None, residual=None, hidden=None, **p):
    """A block without norms, in place: one stream for x, and one for its gradient."""
    drops = (None, None) if residual is None else residual
    stream = x.copy()
    y, undo = attended(x, x, below(p, "attention"), keep, dropout)
    if drops[0] is not None:
        y *= drops[0]
    stream += y
    middle = stream.copy()
    u = middle @ p["feed_forward.w1"] + p["feed_forward.b1"]
    active = np.where(u > 0, u, 0)
    if hidden is not None:
        active *= hidden
    y = active @ p["feed_forward.w2"] + p["feed_forward.b2"]
    if drops[1] is not None:
        y *= drops[1]
    stream += y
    dstream = do.copy()
    dy = dstream.copy()
    if drops[1] is not None:
        dy *= drops[1]
    found = {"o": stream, "dfeed_forward.w2": np.einsum("btf,btm->fm", active, dy),
             "dfeed_forward.b2": dy.sum((0, 1))}
    du = dy @ p["feed_forward.w2"].T
    if hidden is not None:
        du *= hidden
    du[u <= 0] = 0
    found["dfeed_forward.w1"] = np.einsum("btm,btf->mf", middle, du)
    found["dfeed_forward.b1"] = du.sum((0, 1))
    dstream += du @ p["feed_forward.w1"].T
    dy = dstream.copy()
    if drops[0] is not None:
        dy *= drops[0]
    dasking, dsource, grads = undo(dy)
    dstream += dasking
    dstream += dsource
    return found | {f"dattention.{name}": w for name, w in grads.items()} | {"dx": dstream}


def block_across(x, context, do, keep=None, dropout=None, context_keep=None, context_dropout=None, residual=None,
                 hidden=None, **p):
    """A pre-norm block with attention to a context, its backward as one program in reverse."""
    found, drops = {}, (1, 1, 1) if residual is None else residual
    norms = {}
    stream, kept = x, {}
    for i, (name, own) in enumerate((("attention", "norm1"), ("cross", "norm_cross"), ("feed_forward", "norm2"))):
        r = (stream.var(-1, keepdims=True) + x.dtype.type(1e-5)) ** -0.5
        n = (stream - stream.mean(-1, keepdims=True)) * r
        norms[own] = r, n
        inside = n * p[f"{own}.scale"] + p[f"{own}.shift"]
        if name == "attention":
            y, kept[name] = attended(inside, inside, below(p, name), keep, dropout)
        elif name == "cross":
            y, kept[name] = attended(inside, context, below(p, name), context_keep, context_dropout)
        else:
            u = inside @ p["feed_forward.w1"] + p["feed_forward.b1"]
            active = np.maximum(u, 0)
            active = active if hidden is None else active * hidden
            y = active @ p["feed_forward.w2"] + p["feed_forward.b2"]
            kept[name] = inside, u, active
        stream = stream + y * drops[i]

    def through_norm(own, dy):
        r, n = norms[own]
        found[f"d{own}.scale"], found[f"d{own}.shift"] = (dy * n).sum((0, 1)), dy.sum((0, 1))
        g = dy * p[f"{own}.scale"]
        return r * (g - g.mean(-1, keepdims=True) - n * (g * n).mean(-1, keepdims=True))

    inside, u, active = kept["feed_forward"]
    dff = do * drops[2]
    _, found["dfeed_forward.w2"], found["dfeed_forward.b2"] = map_back(active, p["feed_forward.w2"], dff)
    du = dff @ p["feed_forward.w2"].T * (u > 0)
    du = du if hidden is None else du * hidden
    dinside, found["dfeed_forward.w1"], found["dfeed_forward.b1"] = map_back(inside, p["feed_forward.w1"], du)
    d2 = do + through_norm("norm2", dinside)
    dinside, dcontext, grads = kept["cross"](d2 * drops[1])
    found |= {f"dcross.{name}": w for name, w in grads.items()}
    d1 = d2 + through_norm("norm_cross", dinside)
    dasking, dsource, grads = kept["attention"](d1 * drops[0])
    found |= {f"dattention.{name}": w for name, w in grads.items()}
    dx = d1 + through_norm("norm1", dasking + dsource)
    return found | {"o": stream, "dx": dx, "dcontext": dcontext}


# ------------------------------------------------------------------------------------------------------- convolutions

def conv_columns(x, k, b, do, stride=1, padding=0):
    """im2col, one product, and col2im by additions of strided slices."""
    size, (n, high, wide, i), o = len(k), x.shape, k.shape[3]
    padded = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (1, 2))[:, ::stride, ::stride]
    g, j = windows.shape[1:3]
    columns = windows.transpose(0, 1, 2, 4, 5, 3).reshape(n * g * j, size * size * i)
    y = (columns @ k.reshape(-1, o) + b).reshape(n, g, j, o)
    rows = do.reshape(-1, o)
    dk, db = (columns.T @ rows).reshape(k.shape), rows.sum(0)
    dcolumns = (rows @ k.reshape(-1, o).T).reshape(n, g, j, size, size, i)
    dpadded = np.zeros_like(padded)
    for u, w in np.ndindex(size, size):
        dpadded[:, u:u + stride * g:stride, w:w + stride * j:stride] += dcolumns[:, :, :, u, w]
    dx = dpadded[:, padding:padding + high, padding:padding + wide]
    return {"o": y, "dx": dx, "dk": dk, "db": db}


def conv_direct(x, k, b, do, stride=1, padding=0):
    """Output pixel by output pixel; what lies outside the image is skipped."""
    size, (_, high, wide, _) = len(k), x.shape
    y, dx, dk, db = np.zeros_like(do), np.zeros_like(x), np.zeros_like(k), np.zeros_like(b)
    for g, j in np.ndindex(do.shape[1:3]):
        y[:, g, j] = b
        db += do[:, g, j].sum(0)
        for u, w in np.ndindex(size, size):
            row, column = stride * g + u - padding, stride * j + w - padding
            if not (0 <= row < high and 0 <= column < wide):
                continue
            y[:, g, j] += x[:, row, column] @ k[u, w]
            dk[u, w] += x[:, row, column].T @ do[:, g, j]
            dx[:, row, column] += do[:, g, j] @ k[u, w].T
    return {"o": y, "dx": dx, "dk": dk, "db": db}


def conv_taps(x, k, b, do, stride=1, padding=0):
    """One product of whole images for each place in the window."""
    size, (n, high, wide, i) = len(k), x.shape
    g, j = do.shape[1:3]
    padded = np.zeros((n, high + 2 * padding, wide + 2 * padding, i), x.dtype)
    padded[:, padding:padding + high, padding:padding + wide] = x
    y, dpadded, dk = np.zeros_like(do), np.zeros_like(padded), np.zeros_like(k)
    for u in range(size):
        rows = slice(u, u + (g - 1) * stride + 1, stride)
        for w in range(size):
            columns = slice(w, w + (j - 1) * stride + 1, stride)
            seen = padded[:, rows, columns]
            y += seen @ k[u, w]
            dk[u, w] = np.tensordot(seen, do, ((0, 1, 2), (0, 1, 2)))
            dpadded[:, rows, columns] += do @ k[u, w].T
    y += b
    return {"o": y, "dx": dpadded[:, padding:padding + high, padding:padding + wide], "dk": dk,
            "db": np.einsum("ngjo->o", do)}


def conv_transposed(x, k, b, do, stride=1, padding=0):
    """The gradient of x as a correlation of dy, spread by the stride, with the kernel turned by half a turn."""
    size, (n, high, wide, _) = len(k), x.shape
    g, j, o = do.shape[1:]

    def correlated(image, kernel, step):
        views = np.lib.stride_tricks.sliding_window_view(image, (size, size), (1, 2))[:, ::step, ::step]
        return np.einsum("ngjiuw,uwio->ngjo", views, kernel), views

    border = (0, 0), (padding, padding), (padding, padding), (0, 0)
    y, views = correlated(np.pad(x, border), k, stride)
    dk = np.einsum("ngjiuw,ngjo->uwio", views, do)
    spread = np.zeros((n, (g - 1) * stride + 1, (j - 1) * stride + 1, o), x.dtype)
    spread[:, ::stride, ::stride] = do
    room = (0, 0), (size - 1, size - 1), (size - 1, size - 1), (0, 0)
    turned = k[::-1, ::-1].swapaxes(2, 3)
    dpadded, _ = correlated(np.pad(spread, room), turned, 1)
    return {"o": y + b, "dx": dpadded[:, padding:padding + high, padding:padding + wide], "dk": dk,
            "db": do.sum((0, 1, 2))}


def conv_dense(x, k, b, do, stride=1, padding=0):
    """The convolution as a matrix from all pixels to all windows, made by loops."""
    size, (n, high, wide, i), (g, j, o) = len(k), x.shape, do.shape[1:]
    places = []
    for at in np.ndindex(g, j, size, size):
        row, column = (stride * at[c] + at[2 + c] - padding for c in (0, 1))
        if 0 <= row < high and 0 <= column < wide:
            places.append(((row, column), at))
    matrix = np.zeros((high, wide, i, g, j, o), x.dtype)
    for (row, column), (p, q, u, w) in places:
        matrix[row, column, :, p, q] = k[u, w]
    flat = matrix.reshape(high * wide * i, g * j * o)
    y = (x.reshape(n, -1) @ flat).reshape(do.shape) + b
    dx = (do.reshape(n, -1) @ flat.T).reshape(x.shape)
    dmatrix = (x.reshape(n, -1).T @ do.reshape(n, -1)).reshape(matrix.shape)
    dk = np.zeros_like(k)
    for (row, column), (p, q, u, w) in places:
        dk[u, w] += dmatrix[row, column, :, p, q]
    return {"o": y, "dx": dx, "dk": dk, "db": do.reshape(-1, o).sum(0)}


def conv_of_tiles(x, k, b, do):
    """Patch embedding: tiles are cut by a reshape, since windows neither overlap nor leave gaps."""
    size, (n, high, wide, i), o = len(k), x.shape, k.shape[3]
    g, j = high // size, wide // size
    tiles = x.reshape(n, g, size, j, size, i).transpose(0, 1, 3, 2, 4, 5).reshape(n, g * j, -1)
    weight = k.reshape(-1, o)
    y = (tiles @ weight + b).reshape(n, g, j, o)
    rows = do.reshape(n, g * j, o)
    dk = np.einsum("npc,npo->co", tiles, rows).reshape(k.shape)
    dtiles = (rows @ weight.T).reshape(n, g, j, size, size, i)
    dx = dtiles.transpose(0, 1, 3, 2, 4, 5).reshape(x.shape)
    return {"o": y, "dx": dx, "dk": dk, "db": rows.sum((0, 1))}
