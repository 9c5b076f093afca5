"""Right kernels as people port them to NumPy: in tiles, in base 2, by pairs, by loops, with Jacobians, recomputing."""

from math import e, log2, sqrt

import numpy as np

LOG2E = log2(e)


def given(**arrays):
    """Those that are not None."""
    return {name: x for name, x in arrays.items() if x is not None}


def full(shape, dtype, bias, keep, dropout):
    """The three options at full size, as zeros, True and ones where they are not given."""
    return (np.zeros(shape, dtype) + (0 if bias is None else bias), np.ones(shape, bool) & (keep is None or keep),
            np.ones(shape, dtype) * (1 if dropout is None else dropout))


def fold(dx, x):
    """dx summed to the shape of x, which was stretched; None without x."""
    if x is None:
        return None
    dx = dx.sum(axis=tuple(range(dx.ndim - x.ndim)))
    return dx.sum(axis=tuple(i for i, n in enumerate(x.shape) if n == 1 != dx.shape[i]), keepdims=True)


def tr(x):
    """The last two axes exchanged."""
    return x.swapaxes(-1, -2)


def heads_first(*arrays):
    """(b, t, h, d) as (b, h, t, d)."""
    return [x.transpose(0, 2, 1, 3) for x in arrays]


# ------------------------------------------------------------------------------------------------------------ softmax


def softmax_online(q, k, v, do, bias=None, keep=None, dropout=None):
    b, h, n, d = q.shape
    t, scale = k.shape[2], d ** -0.5
    add, on, drop = full((b, h, n, t), q.dtype, bias, keep, dropout)
    m = np.full((b, h, n, 1), -np.inf, q.dtype)
    total, acc = np.zeros_like(m), np.zeros_like(do)
    for at in range(0, t, 3):
        w = slice(at, at + 3)
        s = np.where(on[..., w], q @ tr(k[:, :, w]) * scale + add[..., w], -np.inf)
        new = np.maximum(m, s.max(-1, keepdims=True))
        safe = np.where(new == -np.inf, 0, new)
        p, shrink = np.exp(s - safe), np.exp(m - safe)
        total = total * shrink + p.sum(-1, keepdims=True)
        acc = acc * shrink + (p * drop[..., w]) @ v[:, :, w]
        m = new
    total = np.where(total == 0, 1, total)
    o, lse = acc / total, safe + np.log(total)
    delta = (do * o).sum(-1, keepdims=True)
    dq, dk, dv, dadd = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v), np.zeros_like(add)
    for at in range(0, t, 3):
        w = slice(at, at + 3)
        p = np.exp(q @ tr(k[:, :, w]) * scale + add[..., w] - lse) * on[..., w]
        dv[:, :, w] = tr(p * drop[..., w]) @ do
        dp = do @ tr(v[:, :, w]) * drop[..., w]
        ds = dadd[..., w] = p * (dp - delta)
        dq += ds @ k[:, :, w] * scale
        dk[:, :, w] = tr(ds) @ q * scale
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias))


def softmax_base_2(q, k, v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    add, on, drop = full((b, h, n, k.shape[1]), q.dtype, bias, keep, dropout)
    kt, vt = heads_first(k, v)
    o, dq, dadd = np.empty_like(do), np.empty_like(q), np.empty_like(add)
    dk, dv = np.zeros_like(kt), np.zeros_like(vt)
    for i in range(0, n, 4):
        rows = slice(i, i + 4)
        qi, doi = heads_first(q[:, rows], do[:, rows])
        x = (qi @ tr(kt) * d ** -0.5 + add[:, :, rows]) * LOG2E
        x = np.where(on[:, :, rows], x, -1e9)
        p = np.exp2(x - x.max(-1, keepdims=True))
        a = p / p.sum(-1, keepdims=True) * on[:, :, rows].any(-1, keepdims=True)
        c = a * drop[:, :, rows]
        o[:, rows] = (c @ vt).transpose(0, 2, 1, 3)
        dv += tr(c) @ doi
        da = doi @ tr(vt) * drop[:, :, rows]
        ds = a * da - a * (a * da).sum(-1, keepdims=True)
        dadd[:, :, rows] = ds
        dq[:, rows] = (ds @ kt).transpose(0, 2, 1, 3) * d ** -0.5
        dk += tr(ds) @ qi * d ** -0.5
    dk, dv = heads_first(dk, dv)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias))


def softmax_compacted(q, k, v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    add, on, drop = full((b, h, n, k.shape[1]), q.dtype, bias, keep, dropout)
    o, dadd = np.zeros_like(do), np.zeros_like(add)
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for x, y, i in np.ndindex(b, h, n):
        seen = np.flatnonzero(on[x, y, i])
        if not len(seen):
            continue
        keys, values, factor = k[x, seen, y], v[x, seen, y], drop[x, y, i, seen]
        s = keys @ q[x, i, y] / sqrt(d) + add[x, y, i, seen]
        w = np.exp(s - s.max())
        w /= w.sum()
        jacobian = np.diag(w) - np.outer(w, w)
        o[x, i, y] = (w * factor) @ values
        ds = jacobian @ (factor * (values @ do[x, i, y]))
        dadd[x, y, i, seen] = ds
        dq[x, i, y] = ds @ keys / sqrt(d)
        dk[x, seen, y] += np.outer(ds, q[x, i, y]) / sqrt(d)
        dv[x, seen, y] += np.outer(w * factor, do[x, i, y])
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias))


def softmax_packed(q, k, v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    t, dtype = k.shape[1], q.dtype
    add, on, drop = (x.reshape(b * h, n, t) for x in full((b, h, n, t), np.float64, bias, keep, dropout))
    qp, kp, vp, dop = (x.transpose(0, 2, 1, 3).reshape(b * h, x.shape[1], -1).astype(np.float64) for x in (q, k, v, do))
    s = np.einsum("znd,ztd->znt", qp / sqrt(d), kp) + add + np.where(on, 0, -np.inf)
    top = s.max(-1, initial=-1e30)[..., None]
    p = np.exp(s - top)
    rest = 1 / np.maximum(p.sum(-1), 1e-300)
    a = np.einsum("znt,zn->znt", p, rest)
    o, dv = np.einsum("znt,znt,zte->zne", a, drop, vp), np.einsum("znt,znt,zne->zte", a, drop, dop)
    inner = np.einsum("zne,zte,znt->znt", dop, vp, drop)
    ds = a * (inner - np.einsum("znt,znt->zn", a, inner)[..., None])
    dq, dk = np.einsum("znt,ztd->znd", ds, kp) / sqrt(d), np.einsum("znt,znd->ztd", ds, qp) / sqrt(d)
    o, dq, dk, dv = (x.reshape(b, h, x.shape[1], -1).transpose(0, 2, 1, 3).astype(dtype) for x in (o, dq, dk, dv))
    dbias = None if bias is None else fold(ds.reshape(b, h, n, t), bias).astype(dtype)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=dbias)


def softmax_quotient(q, k, v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    add, on, drop = full((b, h, n, k.shape[1]), q.dtype, bias, keep, dropout)
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * d ** -0.5 + add
    x = np.exp(s - s.max(axis=(2, 3), keepdims=True)) * on
    below = x.sum(-1).transpose(0, 2, 1)[..., None]
    below = np.where(below == 0, 1, below)
    above = np.einsum("bhqk,bkhe->bqhe", x * drop, v)
    o = above / below
    dabove = do / below
    dbelow = -(do * o).sum(-1, keepdims=True) / below
    dx = np.einsum("bqhe,bkhe->bhqk", dabove, v) * drop + dbelow.transpose(0, 2, 1, 3)
    dv = np.einsum("bhqk,bqhe->bkhe", x * drop, dabove)
    ds = x * dx
    dq = np.einsum("bhqk,bkhd->bqhd", ds, k * d ** -0.5)
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q * d ** -0.5)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(ds, bias))


# ------------------------------------------------------------------------------------------------------------- linear


def linear_loops(q, k, v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    add, on, drop = full((b, h, n, k.shape[1]), q.dtype, bias, keep, dropout)
    o, dq, dk, dv, dadd = (np.empty_like(x) for x in (do, q, k, v, add))
    for x in range(b):
        for y in range(h):
            qs, ks, vs, g = q[x, :, y], k[x, :, y], v[x, :, y], do[x, :, y]
            weight = on[x, y] * drop[x, y]
            s = qs @ ks.T / sqrt(d) + add[x, y]
            o[x, :, y] = (s * weight) @ vs
            dv[x, :, y] = (s * weight).T @ g
            ds = g @ vs.T * weight
            dadd[x, y] = ds
            dq[x, :, y] = ds @ ks / sqrt(d)
            dk[x, :, y] = ds.T @ qs / sqrt(d)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias))


def linear_tiles(q, k, v, do, bias=None, keep=None, dropout=None):
    b, h, n, d = q.shape
    t = k.shape[2]
    add, on, drop = full((b, h, n, t), q.dtype, bias, keep, dropout)
    o, dq, dadd = np.zeros_like(do), np.zeros_like(q), np.zeros_like(add)
    dks, dvs = [], []
    q = q * d ** -0.5
    for at in range(0, t, 2):
        kt, vt = k[:, :, at:at + 2], v[:, :, at:at + 2]
        mine, factor = on[..., at:at + 2], drop[..., at:at + 2]
        code = np.where(mine, q @ tr(kt) + add[..., at:at + 2], 0) * factor
        o += code @ vt
        dvs.append(tr(code) @ do)
        dcode = np.where(mine, do @ tr(vt) * factor, 0)
        dadd[..., at:at + 2] = dcode
        dq += dcode @ kt
        dks.append(tr(dcode) @ q)
    dq *= d ** -0.5
    return given(o=o, dq=dq, dk=np.concatenate(dks, 2), dv=np.concatenate(dvs, 2), dbias=fold(dadd, bias))


def linear_states(q, k, v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    add, on, drop = full((b, h, n, k.shape[1]), q.dtype, bias, keep, dropout)
    weight, scale = on * drop, d ** -0.5
    state = np.einsum("bhqk,bkhd,bkhe->bqhde", weight, k, v)
    o = np.einsum("bqhd,bqhde->bqhe", q, state) * scale + np.einsum("bhqk,bhqk,bkhe->bqhe", weight, add, v)
    dq = np.einsum("bqhde,bqhe->bqhd", state, do) * scale
    dstate = np.einsum("bqhd,bqhe->bqhde", q, do) * scale
    dk = np.einsum("bhqk,bqhde,bkhe->bkhd", weight, dstate, v)
    dv = np.einsum("bhqk,bqhde,bkhd->bkhe", weight, dstate, k) + np.einsum("bhqk,bhqk,bqhe->bkhe", weight, add, do)
    dadd = weight * np.einsum("bqhe,bkhe->bhqk", do, v)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias))


def linear_augmented(q, k, v, do, bias=None, keep=None, dropout=None):
    b, h, n, d = q.shape
    t = k.shape[2]
    add, on, drop = full((b, h, n, t), q.dtype, bias, keep, dropout)
    eye = np.broadcast_to(np.eye(t, dtype=q.dtype), (b, h, t, t))
    left, right = np.concatenate([q / sqrt(d), add], -1), np.concatenate([k, eye], -1)
    gate = on.astype(q.dtype) * drop
    code = left @ tr(right) * gate
    o, dv = code @ v, tr(code) @ do
    dcode = do @ tr(v) * gate
    dleft, dright = dcode @ right, tr(dcode) @ left
    dq, dadd = dleft[..., :d] / sqrt(d), dleft[..., d:]
    return given(o=o, dq=dq, dk=dright[..., :d], dv=dv, dbias=fold(dadd, bias))


def linear_sparse(q, k, v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    add, on, drop = full((b, h, n, k.shape[1]), q.dtype, bias, keep, dropout)
    x, y, i, j = np.nonzero(on)
    qs, ks, vs, gs, factor = q[x, i, y], k[x, j, y], v[x, j, y], do[x, i, y], drop[x, y, i, j][:, None]
    s = ((qs * ks).sum(1) / sqrt(d) + add[x, y, i, j])[:, None]
    ds = (gs * vs).sum(1, keepdims=True) * factor
    o, dq, dk, dv, dadd = (np.zeros_like(each) for each in (do, q, k, v, add))
    np.add.at(o, (x, i, y), s * factor * vs)
    np.add.at(dv, (x, j, y), s * factor * gs)
    np.add.at(dq, (x, i, y), ds * ks / sqrt(d))
    np.add.at(dk, (x, j, y), ds * qs / sqrt(d))
    dadd[x, y, i, j] = ds[:, 0]
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias))


# --------------------------------------------------------------------------------------------------------------- hyla


def hyla_folded(q, k, v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    add, on, drop = full((b, h, n, k.shape[1]), q.dtype, bias, keep, dropout)
    s = (np.einsum("bqhd,bkhd->bhqk", q, k) * d ** -0.5 + add) * on
    r = (np.square(s).mean(1, keepdims=True) + 1e-6) ** -0.5
    c = s * r * drop
    z = np.einsum("bhqk,bkhe->bqke", c, v)
    o = np.einsum("bhqk,bqke->bqhe", c, np.maximum(z, 0))
    dz = np.einsum("bhqk,bqhe->bqke", c, do) * (z > 0)
    dv = np.einsum("bhqk,bqke->bkhe", c, dz)
    dc = np.einsum("bqhe,bqke->bhqk", do, np.maximum(z, 0)) + np.einsum("bqke,bkhe->bhqk", dz, v)
    da = dc * drop
    ds = (r * da - s * r ** 3 * (s * da).mean(1, keepdims=True)) * on
    dq = np.einsum("bhqk,bkhd->bqhd", ds, k) * d ** -0.5
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q) * d ** -0.5
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(ds, bias))


def hyla_projections(q, k, v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    t = k.shape[1]
    add, on, drop = full((b, h, n, t), q.dtype, bias, keep, dropout)
    o, dq, dk, dv, dadd = (np.zeros_like(x) for x in (do, q, k, v, add))
    eye = np.eye(h, dtype=q.dtype)
    for x, i, j in np.ndindex(b, n, t):
        mask, factor = on[x, :, i, j], drop[x, :, i, j]
        s = mask * ((q[x, i] * k[x, j]).sum(-1) / sqrt(d) + add[x, :, i, j])
        root = sqrt(s @ s / h + 1e-6)
        a = s / root
        hidden = (a * factor) @ v[x, j]
        g = np.where(hidden > 0, hidden, 0)
        o[x, i] += np.outer(a * factor, g)
        dhidden = np.where(hidden > 0, (a * factor) @ do[x, i], 0)
        dv[x, j] += np.outer(a * factor, dhidden)
        da = factor * (do[x, i] @ g + v[x, j] @ dhidden)
        ds = mask * (((eye - np.outer(a, a) / h) / root) @ da)
        dadd[x, :, i, j] = ds
        dq[x, i] += ds[:, None] * k[x, j] / sqrt(d)
        dk[x, j] += ds[:, None] * q[x, i] / sqrt(d)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias))


def hyla_recomputed(q, k, v, do, bias=None, keep=None, dropout=None):
    b, h, n, d = q.shape
    t, scale = k.shape[2], d ** -0.5
    add, on, drop = full((b, h, n, t), q.dtype, bias, keep, dropout)

    def tile(w):
        s = np.where(on[..., w], scale * (q @ tr(k[:, :, w])) + add[..., w], 0)
        rho = 1 / np.sqrt((s * s).sum(1, keepdims=True) / h + 1e-6)
        c = s * rho * drop[..., w]
        return s * rho, rho, c, (c[..., None] * v[:, :, None, w]).sum(1)

    o, dq, dadd = np.zeros_like(do), np.zeros_like(q), np.zeros_like(add)
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    for at in range(0, t, 4):
        _, _, c, z = tile(slice(at, at + 4))
        o += np.einsum("bhqk,bqke->bhqe", c, z * (z > 0))
    for at in range(0, t, 4):
        w = slice(at, at + 4)
        a, rho, c, z = tile(w)
        dz = np.einsum("bhqk,bhqe->bqke", c, do)
        dz[z <= 0] = 0
        dc = np.einsum("bhqe,bqke->bhqk", do, z.clip(0))
        dc += np.einsum("bqke,bhke->bhqk", dz, v[:, :, w])
        dv[:, :, w] = np.einsum("bhqk,bqke->bhke", c, dz)
        da = dc * drop[..., w]
        ds = on[..., w] * rho * (da - a * (a * da).sum(1, keepdims=True) / h)
        dadd[..., w] = ds
        dq += scale * (ds @ k[:, :, w])
        dk[:, :, w] += scale * (tr(ds) @ q)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias))


def hyla_heads_last(q, k, v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    add, on, drop = (x.transpose(0, 2, 3, 1) for x in full((b, h, n, k.shape[1]), q.dtype, bias, keep, dropout))
    s = ((q[:, :, None] * k[:, None]).sum(-1) / sqrt(d) + add) * on
    length = np.sqrt((s * s).sum(-1, keepdims=True) + 1e-6 * h)
    a = s / length * sqrt(h)
    c = a * drop
    z = (c[..., None, :] @ v[:, None])[..., 0, :]
    gate = (z > 0).astype(q.dtype)
    o = (tr(c) @ (z * gate))
    dz = (c @ do) * gate
    dc = (z * gate) @ tr(do) + (v[:, None] @ dz[..., None])[..., 0]
    dv = np.einsum("bqkh,bqke->bkhe", c, dz)
    da = dc * drop
    ds = sqrt(h) / length * (da - a * (a * da).mean(-1, keepdims=True)) * on
    dq = (ds[..., None] * k[:, None]).sum(2) / sqrt(d)
    dk = (ds[..., None] * q[:, :, None]).sum(1) / sqrt(d)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(ds.transpose(0, 3, 1, 2), bias))


def hyla_generated(q, k, v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    add, on, drop = full((b, h, n, k.shape[1]), np.float64, bias, keep, dropout)
    rows = []
    for x in range(b):
        qs, ks, vs, gs = (each[x].astype(np.float64) for each in (q, k, v, do))
        s = np.where(on[x], np.einsum("ihd,jhd->hij", qs, ks) / np.sqrt(d) + add[x], 0)
        norm = np.sqrt((s ** 2).mean(0) + 1e-6)
        code = s / norm * drop[x]
        inner = np.einsum("hij,jhe->ije", code, vs)
        outer = np.where(inner > 0, inner, 0)
        back = np.einsum("hij,ihe->ije", code, gs) * np.sign(outer)
        dcode = (np.einsum("ihe,ije->hij", gs, outer) + np.einsum("jhe,ije->hij", vs, back)) * drop[x]
        ds = dcode / norm - s * (s * dcode).mean(0) / norm ** 3
        ds = np.where(on[x], ds, 0)
        rows.append((np.einsum("hij,ije->ihe", code, outer), np.einsum("hij,jhd->ihd", ds, ks) / np.sqrt(d),
                     np.einsum("hij,ihd->jhd", ds, qs) / np.sqrt(d), np.einsum("hij,ije->jhe", code, back), ds))
    o, dq, dk, dv, dadd = (np.stack(each).astype(q.dtype) for each in zip(*rows, strict=True))
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias))


# --------------------------------------------------------------------------------------------------- hyla_no_rms_head


def plain_hyla_letters(q, k, v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    add, on, drop = full((b, h, n, k.shape[1]), q.dtype, bias, keep, dropout)
    c = drop * np.where(on, np.einsum("bqhd,bkhd,->bhqk", q, k, q.dtype.type(d ** -0.5)) + add, 0)
    z = np.einsum("bgqk,bkge->bqke", c, v)
    open_ = (z > 0).astype(z.dtype)
    o = np.einsum("bhqk,bqke,bqke->bqhe", c, z, open_)
    dz = np.einsum("bhqk,bqhe,bqke->bqke", c, do, open_)
    ds = np.einsum("bqhe,bqke,bqke->bhqk", do, z, open_) + np.einsum("bqke,bkhe->bhqk", dz, v)
    ds = np.where(on, ds * drop, 0)
    dq = np.einsum("bhqk,bkhd->bqhd", ds, k) * d ** -0.5
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q) * d ** -0.5
    return given(o=o, dq=dq, dk=dk, dv=np.einsum("bhqk,bqke->bkhe", c, dz), dbias=fold(ds, bias))


def plain_hyla_key_by_key(q, k, v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    add, on, drop = full((b, h, n, k.shape[1]), q.dtype, bias, keep, dropout)
    o, dq, dk, dv, dadd = (np.zeros_like(x) for x in (do, q, k, v, add))
    for x, j in np.ndindex(k.shape[:2]):
        weight = (on[x, :, :, j] * drop[x, :, :, j]).T
        c = ((q[x] * k[x, j]).sum(-1) / sqrt(d) + add[x, :, :, j].T) * weight
        z = c @ v[x, j]
        hot = z.clip(min=0)
        o[x] += c[:, :, None] * hot[:, None]
        dz = np.where(z > 0, (c[:, :, None] * do[x]).sum(1), 0)
        dv[x, j] = c.T @ dz
        ds = ((do[x] * hot[:, None]).sum(-1) + dz @ v[x, j].T) * weight
        dadd[x, :, :, j] = ds.T
        dq[x] += ds[:, :, None] * k[x, j] / sqrt(d)
        dk[x, j] = (ds[:, :, None] * q[x]).sum(0) / sqrt(d)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias))


def plain_hyla_query_tiles(q, k, v, do, bias=None, keep=None, dropout=None):
    b, h, n, d = q.shape
    add, on, drop = full((b, h, n, k.shape[2]), q.dtype, bias, keep, dropout)
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    outs, dqs, dadds = [], [], []
    for at in range(0, n, 4):
        r = slice(at, at + 4)
        gate = on[:, :, r] * drop[:, :, r]
        c = (q[:, :, r] @ tr(k) / sqrt(d) + add[:, :, r]) * gate
        z = (c[..., None] * v[:, :, None]).sum(1, keepdims=True)
        hot = np.where(z < 0, 0, z)
        outs.append((c[..., None] * hot).sum(3))
        upstream = do[:, :, r, None]
        dz = (c[..., None] * upstream).sum(1, keepdims=True) * (z > 0)
        ds = (upstream * hot + dz * v[:, :, None]).sum(-1) * gate
        dv += (c[..., None] * dz).sum(2)
        dk += tr(ds) @ q[:, :, r] / sqrt(d)
        dqs.append(ds @ k / sqrt(d))
        dadds.append(ds)
    o, dq, dadd = (np.concatenate(x, axis=2) for x in (outs, dqs, dadds))
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias))


def plain_hyla_pairs(q, k, v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    add, on, drop = (x.transpose(0, 2, 3, 1) for x in full((b, h, n, k.shape[1]), q.dtype, bias, keep, dropout))
    x, i, j = np.nonzero(on.any(-1))                # pairs of which some head is kept
    qs, ks, vs, gs, live = q[x, i], k[x, j], v[x, j], do[x, i], on[x, i, j] * drop[x, i, j]
    c = ((qs * ks).sum(-1) / sqrt(d) + add[x, i, j]) * live
    z = np.einsum("ph,phe->pe", c, vs)
    hot = (np.abs(z) + z) / 2
    o, dq, dk, dv, dadd = (np.zeros_like(each) for each in (do, q, k, v, add))
    np.add.at(o, (x, i), c[..., None] * hot[:, None])
    dz = np.einsum("ph,phe->pe", c, gs) * (hot > 0)
    ds = (np.einsum("phe,pe->ph", gs, hot) + np.einsum("phe,pe->ph", vs, dz)) * live
    np.add.at(dv, (x, j), c[..., None] * dz[:, None])
    np.add.at(dq, (x, i), ds[..., None] * ks / sqrt(d))
    np.add.at(dk, (x, j), ds[..., None] * qs / sqrt(d))
    dadd[x, i, j] = ds
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd.transpose(0, 3, 1, 2), bias))


def plain_hyla_gram(q, k, v, do, bias=None, keep=None, dropout=None):
    """The value network as a matrix over heads: o_h = sum_kg c_h c_g (phi' v)_g."""
    b, n, h, d = q.shape
    add, on, drop = full((b, h, n, k.shape[1]), q.dtype, bias, keep, dropout)
    scale, weight = d ** -0.5, on * drop
    c = (np.einsum("bqhd,bkhd->bqkh", scale * q, k) + add.transpose(0, 2, 3, 1)) * weight.transpose(0, 2, 3, 1)
    step = np.heaviside(np.einsum("bqkh,bkhe->bqke", c, v), 0)
    gram = c[..., :, None] * c[..., None, :]
    o = np.einsum("bqkhg,bqke,bkge->bqhe", gram, step, v)
    dgram = np.einsum("bqhe,bqke,bkge->bqkhg", do, step, v)
    dv = np.einsum("bqkhg,bqke,bqhe->bkge", gram, step, do)
    dc = ((dgram + tr(dgram)) @ c[..., None])[..., 0]
    ds = dc.transpose(0, 3, 1, 2) * weight
    dq = np.einsum("bhqk,bkhd->bqhd", scale * ds, k)
    dk = np.einsum("bhqk,bqhd->bkhd", scale * ds, q)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(ds, bias))


# ---------------------------------------------------------------------------------------------------- linear_rms_head


def rms_tiles(q, k, v, do, bias=None, keep=None, dropout=None):
    b, h, n, d = q.shape
    add, on, drop = full((b, h, n, k.shape[2]), q.dtype, bias, keep, dropout)
    o, dq, dadd = np.zeros_like(do), np.zeros_like(q), np.zeros_like(add)
    dk, dv = np.empty_like(k), np.empty_like(v)
    for at in range(0, k.shape[2], 3):
        w = slice(at, at + 3)
        s = (q @ tr(k[:, :, w]) * d ** -0.5 + add[..., w]) * on[..., w]
        inverse = 1 / np.sqrt(np.mean(s * s, axis=1, keepdims=True) + 1e-6)
        a = s * inverse
        o += (a * drop[..., w]) @ v[:, :, w]
        dv[:, :, w] = tr(a * drop[..., w]) @ do
        da = do @ tr(v[:, :, w]) * drop[..., w]
        along = np.mean(a * da, axis=1, keepdims=True)
        ds = inverse * (da - a * along) * on[..., w]
        dadd[..., w] = ds
        dq += ds @ k[:, :, w] * d ** -0.5
        dk[:, :, w] = tr(ds) @ q * d ** -0.5
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias))


def rms_rows(q, k, v, do, bias=None, keep=None, dropout=None):
    """Every pair of a query and a key as one row of h scores."""
    b, n, h, d = q.shape
    t = k.shape[1]
    add, on, drop = (x.transpose(0, 2, 3, 1).reshape(-1, h)
                     for x in full((b, h, n, t), q.dtype, bias, keep, dropout))
    i, j = np.repeat(np.arange(b * n), t), (np.arange(b * n * t) // (n * t)) * t + np.arange(b * n * t) % t
    qs, ks = q.reshape(b * n, h, d)[i], k.reshape(b * t, h, d)[j]
    vs, gs = v.reshape(b * t, h, -1)[j], do.reshape(b * n, h, -1)[i]
    s = np.where(on, (qs * ks).sum(2) / sqrt(d) + add, 0)
    square = (s ** 2).sum(1, keepdims=True) / h + 1e-6
    weight = s / np.sqrt(square) * drop
    o = (weight[..., None] * vs).reshape(b, n, t, h, -1).sum(2)
    dv = (weight[..., None] * gs).reshape(b, n, t, h, -1).sum(1)
    da = (gs * vs).sum(2) * drop
    ds = np.where(on, (da - s / square * (s * da).mean(1, keepdims=True)) / np.sqrt(square), 0)
    dq = (ds[..., None] * ks).reshape(b, n, t, h, d).sum(2) / sqrt(d)
    dk = (ds[..., None] * qs).reshape(b, n, t, h, d).sum(1) / sqrt(d)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(ds.reshape(b, n, t, h).transpose(0, 3, 1, 2), bias))


def rms_query_by_query(q, k, v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    add, on, drop = full((b, h, n, k.shape[1]), q.dtype, bias, keep, dropout)
    o, dq, dk, dv, dadd = (np.zeros_like(x) for x in (do, q, k, v, add))
    for x, i in np.ndindex(b, n):
        mask, factor = on[x, :, i].T, drop[x, :, i].T
        s = mask * (np.einsum("hd,khd->kh", q[x, i], k[x]) / sqrt(d) + add[x, :, i].T)
        rho = 1 / np.sqrt(np.einsum("kh,kh->k", s, s) / h + 1e-6)
        a = s * rho[:, None]
        o[x, i] = np.einsum("kh,kh,khe->he", a, factor, v[x])
        dv[x] += np.einsum("kh,kh,he->khe", a, factor, do[x, i])
        da = factor * np.einsum("he,khe->kh", do[x, i], v[x])
        jacobian = rho[:, None, None] * (np.eye(h, dtype=q.dtype) - a[:, :, None] * a[:, None] / h)
        ds = mask * np.einsum("khg,kg->kh", jacobian, da)
        dadd[x, :, i] = ds.T
        dq[x, i] = np.einsum("kh,khd->hd", ds, k[x]) / sqrt(d)
        dk[x] += np.einsum("kh,hd->khd", ds, q[x, i]) / sqrt(d)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias))


def rms_two_passes(q, k, v, do, bias=None, keep=None, dropout=None):
    """First the statistics of all pairs, then linear attention head by head, whose weights hold them."""
    b, h, n, d = q.shape
    add, on, drop = full((b, h, n, k.shape[2]), q.dtype, bias, keep, dropout)

    def score(y):
        return (q[:, y] @ tr(k[:, y]) / sqrt(d) + add[:, y]) * on[:, y]

    squares = np.zeros_like(add[:, 0])
    for y in range(h):
        squares += score(y) ** 2
    r = 1 / np.sqrt(squares / h + 1e-6)
    o, dv, inner = np.empty_like(do), np.empty_like(v), np.zeros_like(r)
    for y in range(h):
        weight = score(y) * r * drop[:, y]
        o[:, y], dv[:, y] = weight @ v[:, y], tr(weight) @ do[:, y]
        inner += score(y) * drop[:, y] * (do[:, y] @ tr(v[:, y]))
    dq, dk, dadd = np.empty_like(q), np.empty_like(k), np.empty_like(add)
    for y in range(h):
        ds = (r * drop[:, y] * (do[:, y] @ tr(v[:, y])) - r ** 3 / h * inner * score(y)) * on[:, y]
        dadd[:, y], dq[:, y], dk[:, y] = ds, ds @ k[:, y] / sqrt(d), tr(ds) @ q[:, y] / sqrt(d)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias))


def rms_double(q, k, v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    add, on, drop = full((b, h, n, k.shape[1]), np.float64, bias, keep, dropout)
    left, right, values, up = (x.astype(np.float64) for x in (q, k, v, do))
    s = (np.einsum("bqhd,bkhd->bhqk", left, right) / sqrt(d) + add) * on
    norm = np.linalg.norm(s, axis=1, keepdims=True)
    root = np.hypot(norm / sqrt(h), 1e-3)
    code = s / root
    dcode = np.einsum("bqhe,bkhe,bhqk->bhqk", up, values, drop)
    droot = -(s * dcode).sum(1, keepdims=True) / root ** 2
    ds = (dcode / root + droot * s / (h * root)) * on
    found = {"o": np.einsum("bhqk,bhqk,bkhe->bqhe", code, drop, values),
             "dq": np.einsum("bhqk,bkhd->bqhd", ds, right) / sqrt(d),
             "dk": np.einsum("bhqk,bqhd->bkhd", ds, left) / sqrt(d),
             "dv": np.einsum("bhqk,bhqk,bqhe->bkhe", code, drop, up)}
    if bias is not None:
        found["dbias"] = fold(ds, bias)
    return {name: x.astype(q.dtype) for name, x in found.items()}


# ------------------------------------------------------------------------------------------ hyla_softmax_for_rms_head


def soft_hyla_two_passes(q, k, v, do, bias=None, keep=None, dropout=None):
    """The log-sum-exp by tiles of keys first, then values and gradients by tiles, with D made of both uses."""
    b, h, n, d = q.shape
    t, scale = k.shape[2], d ** -0.5
    add, on, drop = full((b, h, n, t), q.dtype, bias, keep, dropout)
    tiles = [slice(at, at + 3) for at in range(0, t, 3)]
    m, total = np.full((b, h, n, 1), -1e30, q.dtype), np.zeros((b, h, n, 1), q.dtype)
    for w in tiles:
        s = np.where(on[..., w], q @ tr(k[:, :, w]) * scale + add[..., w], -np.inf)
        new = np.maximum(m, s.max(-1, keepdims=True))
        total = total * np.exp(m - new) + np.exp(s - new).sum(-1, keepdims=True)
        m = new
    lse = m + np.log(np.where(total == 0, 1, total))

    def weights(w):
        s = np.where(on[..., w], q @ tr(k[:, :, w]) * scale + add[..., w], -np.inf)
        a = np.exp(s - lse)
        c = a * drop[..., w]
        return a, c, np.einsum("bhqk,bhke->bqke", c, v[:, :, w])

    o, delta = np.zeros_like(do), np.zeros_like(m)
    for w in tiles:
        a, c, z = weights(w)
        o += np.einsum("bhqk,bqke->bhqe", c, np.maximum(z, 0))
        dz = np.where(z > 0, np.einsum("bhqk,bhqe->bqke", c, do), 0)
        delta += np.einsum("bhqk,bqke,bhke->bhq", c, dz, v[:, :, w])[..., None]
    delta += (do * o).sum(-1, keepdims=True)
    dq, dk, dv, dadd = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v), np.zeros_like(add)
    for w in tiles:
        a, c, z = weights(w)
        dz = np.where(z > 0, np.einsum("bhqk,bhqe->bqke", c, do), 0)
        dc = np.einsum("bhqe,bqke->bhqk", do, np.maximum(z, 0)) + np.einsum("bqke,bhke->bhqk", dz, v[:, :, w])
        dv[:, :, w] = np.einsum("bhqk,bqke->bhke", c, dz)
        ds = a * (dc * drop[..., w] - delta)
        dadd[..., w] = ds
        dq += ds @ k[:, :, w] * scale
        dk[:, :, w] = tr(ds) @ q * scale
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias))


def soft_hyla_base_2(q, k, v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    add, on, drop = full((b, h, n, k.shape[1]), q.dtype, bias, keep, dropout)
    o, dq, dk, dv, dadd = (np.zeros_like(x) for x in (do, q, k, v, add))
    for at in range(0, n, 2):
        r = slice(at, at + 2)
        x = np.einsum("bqhd,bkhd->bhqk", q[:, r], k) * (LOG2E * d ** -0.5) + LOG2E * add[:, :, r]
        x = np.where(on[:, :, r], x, -1e9)
        p = np.exp2(x - x.max(-1, keepdims=True)) * on[:, :, r]
        a = p / np.maximum(p.sum(-1, keepdims=True), 1e-30)
        c = a * drop[:, :, r]
        z = np.einsum("bhqk,bkhe->bqke", c, v)
        gate = z > 0
        o[:, r] = np.einsum("bhqk,bqke->bqhe", c, z * gate)
        dz = gate * np.einsum("bhqk,bqhe->bqke", c, do[:, r])
        dv += np.einsum("bhqk,bqke->bkhe", c, dz)
        da = np.einsum("bqhe,bqke->bhqk", do[:, r], z * gate)
        da = (da + np.einsum("bkhe,bqke->bhqk", v, dz)) * drop[:, :, r]
        ds = a * (da - np.einsum("bhqk,bhqk->bhq", a, da)[..., None])
        dadd[:, :, r] = ds
        dq[:, r] = np.einsum("bhqk,bkhd->bqhd", ds, k) / sqrt(d)
        dk += np.einsum("bhqk,bqhd->bkhd", ds, q[:, r]) / sqrt(d)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias))


def soft_hyla_loops(q, k, v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    add, on, drop = full((b, h, n, k.shape[1]), q.dtype, bias, keep, dropout)
    o, dq, dk, dv, dadd = (np.zeros_like(x) for x in (do, q, k, v, add))
    for x, i in np.ndindex(b, n):
        a = np.zeros((h, k.shape[1]), q.dtype)
        for y in range(h):
            seen = np.flatnonzero(on[x, y, i])
            if len(seen):
                s = k[x, seen, y] @ q[x, i, y] / sqrt(d) + add[x, y, i, seen]
                a[y, seen] = np.exp(s - s.max())
                a[y] /= a[y].sum()
        c = a * drop[x, :, i]
        z = np.einsum("hk,khe->ke", c, v[x])
        o[x, i] = c @ np.maximum(z, 0)
        dz = (z > 0) * (c.T @ do[x, i])
        dv[x] += np.einsum("hk,ke->khe", c, dz)
        da = (do[x, i] @ np.maximum(z, 0).T + np.einsum("khe,ke->hk", v[x], dz)) * drop[x, :, i]
        for y in range(h):
            ds = (np.diag(a[y]) - np.outer(a[y], a[y])) @ da[y]
            dadd[x, y, i] = ds
            dq[x, i, y] = ds @ k[x, :, y] / sqrt(d)
            dk[x, :, y] += np.outer(ds, q[x, i, y]) / sqrt(d)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias))


def soft_hyla_heads_last(q, k, v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    add, on, drop = (x.transpose(0, 2, 3, 1) for x in full((b, h, n, k.shape[1]), q.dtype, bias, keep, dropout))
    s = np.einsum("bqhd,bkhd->bqkh", q, k) / sqrt(d) + add - 1e9 * (~on).astype(q.dtype)
    a = np.exp(s - s.max(axis=2, keepdims=True)) * on
    below = a.sum(axis=2, keepdims=True)
    a = np.divide(a, below, out=np.zeros_like(a), where=below > 0)
    c = a * drop
    z = np.einsum("bqkh,bkhe->bqke", c, v)
    hot = np.where(z > 0, z, 0)
    dhot = c @ do
    dz = np.where(z > 0, dhot, 0)
    dc = hot @ tr(do) + np.einsum("bqke,bkhe->bqkh", dz, v)
    da = dc * drop
    ds = a * (da - (a * da).sum(axis=2, keepdims=True))
    dq = np.einsum("bqkh,bkhd->bqhd", ds, k) / sqrt(d)
    dk = np.einsum("bqkh,bqhd->bkhd", ds, q) / sqrt(d)
    dv = np.einsum("bqkh,bqke->bkhe", c, dz)
    return given(o=tr(c) @ hot, dq=dq, dk=dk, dv=dv, dbias=fold(ds.transpose(0, 3, 1, 2), bias))


def soft_hyla_unnormalised(q, k, v, do, bias=None, keep=None, dropout=None):
    """exp(s) times what stands for the weights, 1 / sum, as two arrays of which each has its gradient."""
    b, h, n, d = q.shape
    add, on, drop = full((b, h, n, k.shape[2]), q.dtype, bias, keep, dropout)
    s = q @ tr(k) / sqrt(d) + add
    x = np.where(on, np.exp(s - s.max(axis=-1, keepdims=True)), 0)
    total = x.sum(axis=-1, keepdims=True)
    r = 1 / np.where(total > 0, total, 1)
    y = x * drop
    z = np.einsum("bhqk,bhq,bhke->bqke", y, r[..., 0], v)
    hot = np.maximum(z, 0)
    up = do * r
    o = np.einsum("bhqk,bqke->bhqe", y, hot) * r
    dz = np.einsum("bhqk,bhqe->bqke", y, up) * (z > 0)
    dcode = np.einsum("bhqe,bqke->bhqk", do, hot) + np.einsum("bqke,bhke->bhqk", dz, v)
    dr = (y * dcode).sum(axis=-1, keepdims=True)
    dx = dcode * r * drop - dr * r ** 2
    ds = x * dx
    dq, dk, dv = ds @ k / sqrt(d), tr(ds) @ q / sqrt(d), np.einsum("bhqk,bhq,bqke->bhke", y, r[..., 0], dz)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(ds, bias))


# ---------------------------------------------------------------------------------------------------------- hyla_deep


def deep_letters(q, k, v, wv2, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    add, on, drop = full((b, h, n, k.shape[1]), q.dtype, bias, keep, dropout)
    s = on * (np.einsum("bqhd,bkhd->bhqk", q, k) / sqrt(d) + add)
    rho = 1 / np.sqrt((s * s).mean(1, keepdims=True) + 1e-6)
    c = s * rho * drop
    z = np.einsum("bhqk,bkhe->bqke", c, v)
    z2 = np.einsum("bhqk,bqke,hef->bqkf", c, z * (z > 0), wv2)
    o = np.einsum("bhqk,bqkf->bqhf", c, z2 * (z2 > 0))
    dz2 = np.einsum("bhqk,bqhf->bqkf", c, do) * (z2 > 0)
    dwv2 = np.einsum("bhqk,bqke,bqkf->hef", c, z * (z > 0), dz2)
    dz = np.einsum("bhqk,hef,bqkf->bqke", c, wv2, dz2) * (z > 0)
    dv = np.einsum("bhqk,bqke->bkhe", c, dz)
    dc = np.einsum("bqhf,bqkf->bhqk", do, z2 * (z2 > 0))
    dc += np.einsum("bqke,hef,bqkf->bhqk", z * (z > 0), wv2, dz2)
    dc += np.einsum("bqke,bkhe->bhqk", dz, v)
    da, a = dc * drop, s * rho
    ds = on * rho * (da - a * (a * da).mean(1, keepdims=True))
    dq, dk = np.einsum("bhqk,bkhd->bqhd", ds, k) / sqrt(d), np.einsum("bhqk,bqhd->bkhd", ds, q) / sqrt(d)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(ds, bias), dwv2=dwv2)


def deep_query_by_query(q, k, v, wv2, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    add, on, drop = full((b, h, n, k.shape[1]), q.dtype, bias, keep, dropout)
    o, dq, dk, dv, dadd, dwv2 = (np.zeros_like(x) for x in (do, q, k, v, add, wv2))
    for x, i in np.ndindex(b, n):
        mask, factor = on[x, :, i].T, drop[x, :, i].T
        s = np.where(mask, (k[x] * q[x, i]).sum(-1) / sqrt(d) + add[x, :, i].T, 0)
        root = np.sqrt(np.square(s).sum(1, keepdims=True) / h + 1e-6)
        a = s / root
        c = a * factor
        z = np.einsum("kh,khe->ke", c, v[x])
        first = z.clip(0)
        u = np.einsum("ke,hef->khf", first, wv2)
        z2 = np.einsum("kh,khf->kf", c, u)
        second = z2.clip(0)
        o[x, i] = c.T @ second
        dz2 = (c @ do[x, i]) * (z2 > 0)
        du = c[..., None] * dz2[:, None]
        dwv2 += np.einsum("ke,khf->hef", first, du)
        dz = np.einsum("khf,hef->ke", du, wv2) * (z > 0)
        dv[x] += c[..., None] * dz[:, None]
        dc = second @ do[x, i].T + np.einsum("khf,kf->kh", u, dz2) + np.einsum("khe,ke->kh", v[x], dz)
        da = dc * factor
        ds = np.where(mask, (da - a * (a * da).mean(1, keepdims=True)) / root, 0)
        dadd[x, :, i] = ds.T
        dq[x, i] = (ds[..., None] * k[x]).sum(0) / sqrt(d)
        dk[x] += ds[..., None] * q[x, i] / sqrt(d)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias), dwv2=dwv2)


def deep_tiles(q, k, v, wv2, do, bias=None, keep=None, dropout=None):
    b, h, n, d = q.shape
    t, scale = k.shape[2], d ** -0.5
    add, on, drop = full((b, h, n, t), q.dtype, bias, keep, dropout)
    o, dq, dadd, dwv2 = np.zeros_like(do), np.zeros_like(q), np.zeros_like(add), np.zeros_like(wv2)
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    for at in range(0, t, 2):
        w = slice(at, at + 2)
        s = np.where(on[..., w], q @ tr(k[:, :, w]) * scale + add[..., w], 0)
        second = (s ** 2).mean(1, keepdims=True) + 1e-6
        c = s * second ** -0.5 * drop[..., w]
        z = np.einsum("bhqk,bhke->bqke", c, v[:, :, w])
        g = np.maximum(z, 0)
        u = np.einsum("bqke,hef->bhqkf", g, wv2)
        z2 = (c[..., None] * u).sum(1)
        o += np.einsum("bhqk,bqkf->bhqf", c, np.maximum(z2, 0))
        dz2 = np.where(z2 > 0, np.einsum("bhqk,bhqf->bqkf", c, do), 0)
        dwv2 += np.einsum("bqke,bhqk,bqkf->hef", g, c, dz2)
        dz = np.where(z > 0, np.einsum("bhqk,bqkf,hef->bqke", c, dz2, wv2), 0)
        dv[:, :, w] += np.einsum("bhqk,bqke->bhke", c, dz)
        dc = np.einsum("bhqf,bqkf->bhqk", do, np.maximum(z2, 0))
        dc += (u * dz2[:, None]).sum(-1) + np.einsum("bqke,bhke->bhqk", dz, v[:, :, w])
        da = dc * drop[..., w]
        ds = on[..., w] * (second ** -0.5 * da - s * second ** -1.5 * (s * da).mean(1, keepdims=True))
        dadd[..., w] = ds
        dq += ds @ k[:, :, w] * scale
        dk[:, :, w] += tr(ds) @ q * scale
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias), dwv2=dwv2)


def deep_generated(q, k, v, wv2, do, bias=None, keep=None, dropout=None):
    """The second layer as one generated matrix W' (e, f) for every pair of a query and a key."""
    b, n, h, d = q.shape
    add, on, drop = (x.transpose(0, 2, 3, 1) for x in full((b, h, n, k.shape[1]), q.dtype, bias, keep, dropout))
    s = (np.einsum("bqhd,bkhd->bqkh", q, k) / sqrt(d) + add) * on
    norm = np.sqrt((s * s).sum(-1, keepdims=True) + 1e-6 * h)
    a = sqrt(h) * s / norm
    c = a * drop
    w = np.einsum("bqkh,hef->bqkef", c, wv2)
    z = np.einsum("bqkh,bkhe->bqke", c, v)
    g = z * (z > 0)
    z2 = (g[..., None, :] @ w)[..., 0, :]
    g2 = z2 * (z2 > 0)
    o = tr(c) @ g2
    dz2 = (c @ do) * (z2 > 0)
    dw = g[..., :, None] * dz2[..., None, :]
    dz = (w @ dz2[..., None])[..., 0] * (z > 0)
    dwv2 = np.tensordot(c, dw, axes=((0, 1, 2), (0, 1, 2)))
    dv = np.einsum("bqkh,bqke->bkhe", c, dz)
    dc = g2 @ tr(do) + np.einsum("bqkef,hef->bqkh", dw, wv2) + np.einsum("bqke,bkhe->bqkh", dz, v)
    da = dc * drop
    ds = sqrt(h) / norm * (da - a * (a * da).mean(-1, keepdims=True)) * on
    dq, dk = np.einsum("bqkh,bkhd->bqhd", ds, k) / sqrt(d), np.einsum("bqkh,bqhd->bkhd", ds, q) / sqrt(d)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(ds.transpose(0, 3, 1, 2), bias), dwv2=dwv2)


def deep_rows(q, k, v, wv2, do, bias=None, keep=None, dropout=None):
    """Pairs that some head keeps as rows, in float64."""
    b, n, h, d = q.shape
    add, on, drop = (x.transpose(0, 2, 3, 1) for x in full((b, h, n, k.shape[1]), np.float64, bias, keep, dropout))
    x, i, j = np.nonzero(on.any(-1))
    mask, factor, wide = on[x, i, j], drop[x, i, j], wv2.astype(np.float64)
    qs, ks, vs, gs = (each.astype(np.float64) for each in (q[x, i], k[x, j], v[x, j], do[x, i]))
    s = ((qs * ks).sum(-1) / sqrt(d) + add[x, i, j]) * mask
    root = np.sqrt(np.einsum("ph,ph->p", s, s) / h + 1e-6)[:, None]
    c = s / root * factor
    z = np.einsum("ph,phe->pe", c, vs)
    mixed = np.einsum("ph,pe->phe", c, np.maximum(z, 0))
    z2 = np.einsum("phe,hef->pf", mixed, wide)
    dz2 = np.einsum("ph,phf->pf", c, gs) * (z2 > 0)
    dmixed = np.einsum("pf,hef->phe", dz2, wide)
    dz = np.einsum("ph,phe->pe", c, dmixed) * (z > 0)
    dc = np.einsum("phf,pf->ph", gs, np.maximum(z2, 0)) + np.einsum("phe,pe->ph", dmixed, np.maximum(z, 0))
    dc += np.einsum("phe,pe->ph", vs, dz)
    da = dc * factor
    ds = mask * (da / root - s * (s * da).mean(1, keepdims=True) / root ** 3)
    o, dq, dk, dv, dadd = (np.zeros(each.shape) for each in (do, q, k, v, add))
    np.add.at(o, (x, i), np.einsum("ph,pf->phf", c, np.maximum(z2, 0)))
    np.add.at(dq, (x, i), ds[..., None] * ks / sqrt(d))
    np.add.at(dk, (x, j), ds[..., None] * qs / sqrt(d))
    np.add.at(dv, (x, j), np.einsum("ph,pe->phe", c, dz))
    dadd[x, i, j] = ds
    found = given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd.transpose(0, 3, 1, 2), bias),
                  dwv2=np.einsum("phe,pf->hef", mixed, dz2))
    return {name: each.astype(q.dtype) for name, each in found.items()}


# ------------------------------------------------------------------------------------------------------ compositional


def comp_loops(q, k, v, selector, wr, do, bias=None, keep=None, dropout=None):
    b, n, s, d = q.shape
    width = sqrt(selector.shape[-1])
    add, on, drop = full((b, s, n, k.shape[1]), q.dtype, bias, keep, dropout)
    o, dq, dk, dv, dadd, dsel, dwr = (np.zeros_like(x) for x in (do, q, k, v, add, selector, wr))
    for x in range(b):
        for y in range(s):
            e_ = np.where(on[x, y], q[x, :, y] @ k[x, :, y].T / sqrt(d) + add[x, y], -1e9)
            a = np.exp(e_ - e_.max(1, keepdims=True)) * on[x, y]
            a /= np.maximum(a.sum(1, keepdims=True), 1e-30)
            c, sel, up = a * drop[x, y], selector[x, :, y], do[x, :, y]
            t = np.einsum("qk,kre->qre", c, v[x])
            key = t @ wr
            l = np.einsum("qc,qrc->qr", sel, key) / width
            g = np.exp(l - l.max(1, keepdims=True))
            g /= g.sum(1, keepdims=True)
            o[x, :, y] = np.einsum("qr,qre->qe", g, t)
            dg = np.einsum("qe,qre->qr", up, t)
            dl = g * (dg - (g * dg).sum(1, keepdims=True)) / width
            dsel[x, :, y] = np.einsum("qr,qrc->qc", dl, key)
            dkey = np.einsum("qr,qc->qrc", dl, sel)
            dwr += np.einsum("qre,qrc->ec", t, dkey)
            dt = np.einsum("qr,qe->qre", g, up) + dkey @ wr.T
            dv[x] += np.einsum("qk,qre->kre", c, dt)
            da = np.einsum("qre,kre->qk", dt, v[x]) * drop[x, y]
            ds = a * (da - (a * da).sum(1, keepdims=True))
            dadd[x, y] = ds
            dq[x, :, y], dk[x, :, y] = ds @ k[x, :, y] / sqrt(d), ds.T @ q[x, :, y] / sqrt(d)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias), dselector=dsel, dwr=dwr)


def comp_merged(q, k, v, selector, wr, do, bias=None, keep=None, dropout=None):
    """One weight for a query, search, key and retrieval; values are mapped to retrieval keys before they are mixed."""
    b, n, s, d = q.shape
    add, on, drop = full((b, s, n, k.shape[1]), q.dtype, bias, keep, dropout)
    x = np.einsum("bqsd,bksd->bsqk", q, k) * d ** -0.5 + add + np.where(on, 0, -np.inf).astype(q.dtype)
    a = np.exp(x - x.max(-1, initial=-1e30, keepdims=True))
    a /= np.maximum(a.sum(-1, keepdims=True), 1e-30)
    c = a * drop
    sel = selector * selector.shape[-1] ** -0.5
    keys = np.einsum("bkre,ec->bkrc", v, wr)
    match = np.einsum("bqsc,bkrc->bsqkr", sel, keys)
    l = np.einsum("bsqk,bsqkr->bsqr", c, match)
    g = np.exp(l - l.max(-1, keepdims=True))
    g /= g.sum(-1, keepdims=True)
    weight = c[..., None] * g[..., None, :]
    o = np.einsum("bsqkr,bkre->bqse", weight, v)
    dweight = np.einsum("bqse,bkre->bsqkr", do, v)
    dg = np.einsum("bsqkr,bsqk->bsqr", dweight, c)
    dl = g * (dg - (g * dg).sum(-1, keepdims=True))
    dc = np.einsum("bsqkr,bsqr->bsqk", dweight, g) + np.einsum("bsqr,bsqkr->bsqk", dl, match)
    dmatch = c[..., None] * dl[..., None, :]
    dkeys = np.einsum("bsqkr,bqsc->bkrc", dmatch, sel)
    dv = np.einsum("bsqkr,bqse->bkre", weight, do) + dkeys @ wr.T
    dwr = np.einsum("bkre,bkrc->ec", v, dkeys)
    dsel = np.einsum("bsqkr,bkrc->bqsc", dmatch, keys) * selector.shape[-1] ** -0.5
    da = dc * drop
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dq = np.einsum("bsqk,bksd->bqsd", ds, k) * d ** -0.5
    dk = np.einsum("bsqk,bqsd->bksd", ds, q) * d ** -0.5
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(ds, bias), dselector=dsel, dwr=dwr)


def comp_online(q, k, v, selector, wr, do, bias=None, keep=None, dropout=None):
    b, s, n, d = q.shape
    kt, r, width = k.shape[2], v.shape[1], v.shape[3]
    add, on, drop = full((b, s, n, kt), q.dtype, bias, keep, dropout)
    flat = v.transpose(0, 2, 1, 3).reshape(b, 1, kt, r * width)
    m, total = np.full((b, s, n, 1), -1e30, q.dtype), np.zeros((b, s, n, 1), q.dtype)
    acc = np.zeros((b, s, n, r * width), q.dtype)
    for at in range(0, kt, 4):
        w = slice(at, at + 4)
        x = np.where(on[..., w], q @ tr(k[:, :, w]) * d ** -0.5 + add[..., w], -np.inf)
        new = np.maximum(m, x.max(-1, keepdims=True))
        p, shrink = np.exp(x - new), np.exp(m - new)
        acc = acc * shrink + (p * drop[..., w]) @ flat[:, :, w]
        total = total * shrink + p.sum(-1, keepdims=True)
        m = new
    lse = m + np.log(np.where(total == 0, 1, total))
    t = (acc / np.where(total == 0, 1, total)).reshape(b, s, n, r, width)
    u = selector @ wr.T / sqrt(wr.shape[1])
    l = (t @ u[..., None])[..., 0]
    g = np.exp(l - l.max(-1, keepdims=True))
    g = g / g.sum(-1, keepdims=True)
    o = (g[..., None, :] @ t)[..., 0, :]
    dl = g * ((t @ do[..., None])[..., 0] - (do * o).sum(-1, keepdims=True))
    dt = g[..., None] * do[..., None, :] + dl[..., None] * u[..., None, :]
    du = (dl[..., None, :] @ t)[..., 0, :] / sqrt(wr.shape[1])
    delta = (dt * t).sum((-1, -2))[..., None]
    back = dt.reshape(b, s, n, r * width)
    dq, dk, dadd, dflat = np.zeros_like(q), np.zeros_like(k), np.zeros_like(add), np.zeros_like(flat)
    for at in range(0, kt, 4):
        w = slice(at, at + 4)
        p = np.exp(np.where(on[..., w], q @ tr(k[:, :, w]) * d ** -0.5 + add[..., w] - lse, -np.inf))
        dflat[:, :, w] = (tr(p * drop[..., w]) @ back).sum(1, keepdims=True)
        ds = p * (back @ tr(flat[:, :, w]) * drop[..., w] - delta)
        dadd[..., w] = ds
        dq += ds @ k[:, :, w] * d ** -0.5
        dk[:, :, w] = tr(ds) @ q * d ** -0.5
    dv = dflat.reshape(b, kt, r, width).transpose(0, 2, 1, 3)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias), dselector=du @ wr,
                 dwr=np.einsum("bsqe,bsqc->ec", du, selector))


def comp_query_tiles(q, k, v, selector, wr, do, bias=None, keep=None, dropout=None):
    b, n, s, d = q.shape
    add, on, drop = full((b, s, n, k.shape[1]), q.dtype, bias, keep, dropout)
    o, dq, dk, dv, dadd, dsel, dwr = (np.zeros_like(x) for x in (do, q, k, v, add, selector, wr))
    root = selector.shape[-1] ** -0.5
    for at in range(0, n, 4):
        i = slice(at, at + 4)
        x = LOG2E * (np.einsum("bqsd,bksd->bsqk", q[:, i], k) * d ** -0.5 + add[:, :, i])
        x = np.where(on[:, :, i], x, -1e9)
        a = np.exp2(x - x.max(-1, keepdims=True))
        a = a / a.sum(-1, keepdims=True) * on[:, :, i].any(-1, keepdims=True)
        c = a * drop[:, :, i]
        t = np.einsum("bsqk,bkre->bqsre", c, v)
        l = np.einsum("bqsc,bqsre,ec->bqsr", selector[:, i], t, wr) * (root * LOG2E)
        g = np.exp2(l - l.max(-1, keepdims=True))
        g /= g.sum(-1, keepdims=True)
        o[:, i] = np.einsum("bqsr,bqsre->bqse", g, t)
        dg = np.einsum("bqse,bqsre->bqsr", do[:, i], t)
        dl = g * (dg - (do[:, i] * o[:, i]).sum(-1, keepdims=True)) * root
        dsel[:, i] = np.einsum("bqsr,bqsre,ec->bqsc", dl, t, wr)
        dwr += np.einsum("bqsr,bqsre,bqsc->ec", dl, t, selector[:, i])
        dt = np.einsum("bqsr,bqse->bqsre", g, do[:, i]) + np.einsum("bqsr,bqsc,ec->bqsre", dl, selector[:, i], wr)
        dv += np.einsum("bsqk,bqsre->bkre", c, dt)
        da = np.einsum("bqsre,bkre->bsqk", dt, v) * drop[:, :, i]
        ds = a * (da - (a * da).sum(-1, keepdims=True))
        dadd[:, :, i] = ds
        dq[:, i] = np.einsum("bsqk,bksd->bqsd", ds, k) * d ** -0.5
        dk += np.einsum("bsqk,bqsd->bksd", ds, q[:, i]) * d ** -0.5
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias), dselector=dsel, dwr=dwr)


def comp_jacobians(q, k, v, selector, wr, do, bias=None, keep=None, dropout=None):
    """Query by query and search by search, both softmaxes through their whole Jacobians, in float64."""
    b, n, s, d = q.shape
    add, on, drop = full((b, s, n, k.shape[1]), np.float64, bias, keep, dropout)
    wide = [x.astype(np.float64) for x in (q, k, v, selector, wr, do)]
    dq, dk, dv, dsel, dwr, o = (np.zeros_like(x) for x in wide)
    dadd, (q64, k64, v64, sel64, wr64, do64) = np.zeros_like(add), wide
    for x, i, y in np.ndindex(b, n, s):
        seen = np.flatnonzero(on[x, y, i])
        keys, values, factor = k64[x, seen, y], v64[x, seen], drop[x, y, i, seen]
        logits = keys @ q64[x, i, y] / sqrt(d) + add[x, y, i, seen]
        a = np.exp(logits - logits.max(initial=-1e30))
        a = a / a.sum() if len(seen) else a
        t = np.einsum("k,kre->re", a * factor, values)
        key = wr64 @ sel64[x, i, y] / sqrt(wr.shape[1])
        g = np.exp(t @ key - (t @ key).max())
        g /= g.sum()
        o[x, i, y] = g @ t
        dl = (np.diag(g) - np.outer(g, g)) @ (t @ do64[x, i, y])
        dsel[x, i, y] = (dl @ t) @ wr64 / sqrt(wr.shape[1])
        dwr += np.outer(dl @ t, sel64[x, i, y]) / sqrt(wr.shape[1])
        dt = np.outer(g, do64[x, i, y]) + np.outer(dl, key)
        dv[x, seen] += np.multiply.outer(a * factor, dt)
        ds = (np.diag(a) - np.outer(a, a)) @ (factor * np.einsum("re,kre->k", dt, values))
        dadd[x, y, i, seen] = ds
        dq[x, i, y] = ds @ keys / sqrt(d)
        dk[x, seen, y] += np.outer(ds, q64[x, i, y]) / sqrt(d)
    found = given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias), dselector=dsel, dwr=dwr)
    return {name: each.astype(q.dtype) for name, each in found.items()}


# -------------------------------------------------------------------------------------------- compositional_nonlinear


def scorer_loops(q, k, v, selector, wr, wc, br, w2, b2, do, bias=None, keep=None, dropout=None):
    b, n, s, d = q.shape
    add, on, drop = full((b, s, n, k.shape[1]), q.dtype, bias, keep, dropout)
    o, dq, dk, dv, dadd, dsel = (np.zeros_like(x) for x in (do, q, k, v, add, selector))
    dwr, dwc, dbr, dw2, db2 = (np.zeros_like(x) for x in (wr, wc, br, w2, b2))
    for x, y in np.ndindex(b, s):
        e_ = np.where(on[x, y], q[x, :, y] @ k[x, :, y].T / sqrt(d) + add[x, y], -1e9)
        a = np.exp(e_ - e_.max(1, keepdims=True)) * on[x, y]
        a /= np.maximum(a.sum(1, keepdims=True), 1e-30)
        c, sel, up = a * drop[x, y], selector[x, :, y], do[x, :, y]
        t = np.tensordot(c, v[x], 1)
        z = t @ wr + (sel @ wc + br)[:, None]
        hidden = np.maximum(z, 0)
        l = hidden @ w2 + b2
        g = np.exp(l - l.max(1, keepdims=True))
        g /= g.sum(1, keepdims=True)
        o[x, :, y] = (g[..., None] * t).sum(1)
        dg = (up[:, None] * t).sum(2)
        dl = g * (dg - (g * dg).sum(1, keepdims=True))
        dw2 += np.tensordot(dl, hidden, 2)
        db2 += dl.sum()
        dz = dl[..., None] * w2 * (z > 0)
        dwr += np.tensordot(t, dz, ((0, 1), (0, 1)))
        shared = dz.sum(1)
        dwc += sel.T @ shared
        dbr += shared.sum(0)
        dsel[x, :, y] = shared @ wc.T
        dt = g[..., None] * up[:, None] + dz @ wr.T
        dv[x] += np.tensordot(c.T, dt, 1)
        da = np.tensordot(dt, v[x], ((1, 2), (1, 2))) * drop[x, y]
        ds = a * (da - (a * da).sum(1, keepdims=True))
        dadd[x, y] = ds
        dq[x, :, y], dk[x, :, y] = ds @ k[x, :, y] / sqrt(d), ds.T @ q[x, :, y] / sqrt(d)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias), dselector=dsel, dwr=dwr, dwc=dwc, dbr=dbr, dw2=dw2,
                 db2=db2)


def scorer_concatenated(q, k, v, selector, wr, wc, br, w2, b2, do, bias=None, keep=None, dropout=None):
    """Selector, retrieval and a one side by side, times one matrix."""
    b, n, s, d = q.shape
    e_, c_ = wr.shape[0], wc.shape[0]
    add, on, drop = full((b, s, n, k.shape[1]), q.dtype, bias, keep, dropout)
    x = np.where(on, np.einsum("bqsd,bksd->bsqk", q, k) / sqrt(d) + add, -np.inf)
    p = np.exp(x - np.maximum(x.max(-1, keepdims=True), -1e30))
    below = p.sum(-1, keepdims=True)
    a = p / np.where(below == 0, 1, below)
    t = np.einsum("bsqk,bsqk,bkre->bqsre", a, drop, v)
    sel = np.broadcast_to(selector[..., None, :], (*t.shape[:-1], c_))
    joined = np.concatenate([t, sel, np.ones_like(t[..., :1])], -1)
    matrix = np.concatenate([wr, wc, br[None]])
    z = joined @ matrix
    l = np.where(z > 0, z, 0) @ w2 + b2
    g = np.exp(l - l.max(-1, keepdims=True))
    g /= g.sum(-1, keepdims=True)
    o = (g[..., None] * t).sum(-2)
    dl = g * ((do[..., None, :] * t).sum(-1) - (do * o).sum(-1, keepdims=True))
    dz = np.where(z > 0, dl[..., None] * w2, 0)
    dmatrix = np.einsum("bqsrj,bqsrf->jf", joined, dz)
    djoined = dz @ matrix.T
    dt = g[..., None] * do[..., None, :] + djoined[..., :e_]
    da = np.einsum("bqsre,bkre,bsqk->bsqk", dt, v, drop)
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dq, dk = np.einsum("bsqk,bksd->bqsd", ds, k) / sqrt(d), np.einsum("bsqk,bqsd->bksd", ds, q) / sqrt(d)
    return given(o=o, dq=dq, dk=dk, dv=np.einsum("bsqk,bsqk,bqsre->bkre", a, drop, dt), dbias=fold(ds, bias),
                 dselector=djoined[..., e_:e_ + c_].sum(-2), dwr=dmatrix[:e_], dwc=dmatrix[e_:-1], dbr=dmatrix[-1],
                 dw2=np.einsum("bqsr,bqsrf->f", dl, np.where(z > 0, z, 0)), db2=dl.sum().reshape(1))


def scorer_rows(q, k, v, selector, wr, wc, br, w2, b2, do, bias=None, keep=None, dropout=None):
    """A row for each query and search, in float64; the search scores' softmax through its log-sum-exp."""
    b, n, s, d = q.shape
    rows, kt = b * n * s, k.shape[1]
    add, on, drop = (x.transpose(0, 2, 1, 3).reshape(rows, kt)
                     for x in full((b, s, n, kt), np.float64, bias, keep, dropout))
    batch, search = np.repeat(np.arange(b), n * s), np.tile(np.arange(s), b * n)
    qs, sel, up = (x.reshape(rows, -1).astype(np.float64) for x in (q, selector, do))
    ks, vs = k.astype(np.float64)[batch, :, search], v.astype(np.float64)[batch]
    x = np.einsum("pd,pkd->pk", qs, ks) / sqrt(d) + add
    top = x.max(1, where=on, initial=-1e30, keepdims=True)
    lse = top + np.log(np.maximum((np.exp(np.minimum(x - top, 0)) * on).sum(1, keepdims=True), 1e-300))
    a = np.where(on, np.exp(np.minimum(x - lse, 0)), 0)
    t = np.einsum("pk,pk,pkre->pre", a, drop, vs)
    z = np.einsum("pre,ef->prf", t, wr.astype(np.float64)) + (sel @ wc + br)[:, None]
    l = np.einsum("prf,f->pr", z * (z > 0), w2.astype(np.float64)) + b2
    l -= l.max(1, keepdims=True)
    g = np.exp(l - np.log(np.exp(l).sum(1, keepdims=True)))
    dl = np.einsum("prq,pq->pr", g[..., None] * np.eye(g.shape[1]) - g[:, :, None] * g[:, None],
                   np.einsum("pre,pe->pr", t, up))
    dz = np.einsum("pr,f->prf", dl, w2.astype(np.float64)) * (z > 0)
    dt = np.einsum("pr,pe->pre", g, up) + np.einsum("prf,ef->pre", dz, wr)
    da = np.einsum("pre,pkre->pk", dt, vs) * drop
    ds = a * (da - np.einsum("pk,pk->p", a, da)[:, None])
    dk, dv = np.zeros(k.shape), np.zeros(v.shape)
    np.add.at(dk.transpose(0, 2, 1, 3), (batch, search), ds[..., None] * qs[:, None] / sqrt(d))
    np.add.at(dv, batch, np.einsum("pk,pk,pre->pkre", a, drop, dt))
    dadd = ds.reshape(b, n, s, kt).transpose(0, 2, 1, 3)
    found = given(o=np.einsum("pr,pre->pe", g, t).reshape(do.shape), dk=dk, dv=dv, dbias=fold(dadd, bias),
                  dq=(np.einsum("pk,pkd->pd", ds, ks) / sqrt(d)).reshape(q.shape),
                  dselector=(dz.sum(1) @ wc.T).reshape(selector.shape), dwr=np.einsum("pre,prf->ef", t, dz),
                  dwc=sel.T @ dz.sum(1), dbr=dz.sum((0, 1)), dw2=np.einsum("pr,prf->f", dl, z * (z > 0)),
                  db2=dl.sum((0, 1))[None])
    return {name: each.astype(q.dtype) for name, each in found.items()}


def scorer_online(q, k, v, selector, wr, wc, br, w2, b2, do, bias=None, keep=None, dropout=None):
    b, s, n, d = q.shape
    kt, r, width = k.shape[2], v.shape[1], v.shape[3]
    add, on, drop = full((b, s, n, kt), q.dtype, bias, keep, dropout)
    flat = v.transpose(0, 2, 1, 3).reshape(b, 1, kt, r * width)
    m, total = np.full((b, s, n, 1), -1e30, q.dtype), np.zeros((b, s, n, 1), q.dtype)
    acc = np.zeros((b, s, n, r * width), q.dtype)
    for at in range(0, kt, 2):
        w = slice(at, at + 2)
        x = np.where(on[..., w], q @ tr(k[:, :, w]) / sqrt(d) + add[..., w], -np.inf)
        new = np.maximum(m, x.max(-1, keepdims=True))
        p = np.exp(x - new)
        total = np.exp(m - new) * total + p.sum(-1, keepdims=True)
        acc = np.exp(m - new) * acc + (p * drop[..., w]) @ flat[:, :, w]
        m = new
    total = np.where(total == 0, 1, total)
    t = (acc / total).reshape(b, s, n, r, width)
    z = t @ wr + (selector @ wc + br)[..., None, :]
    l = (z * (z > 0)) @ w2                          # b2 adds the same to all retrievals
    g = np.exp(l - l.max(-1, keepdims=True))
    g = g / g.sum(-1, keepdims=True)
    o = (g[..., None] * t).sum(-2)
    dl = g * ((t * do[..., None, :]).sum(-1) - (o * do).sum(-1, keepdims=True))
    dz = dl[..., None] * w2 * (z > 0)
    dt = g[..., None] * do[..., None, :] + dz @ wr.T
    back, delta = dt.reshape(b, s, n, r * width), (dt * t).sum((-1, -2))[..., None]
    dq, dks, dvs, dadds = np.zeros_like(q), [], [], []
    for w in (slice(at, at + 2) for at in range(0, kt, 2)):
        x = np.where(on[..., w], q @ tr(k[:, :, w]) / sqrt(d) + add[..., w], -np.inf)
        a = np.exp(x - m) / total
        dvs.append((tr(a * drop[..., w]) @ back).sum(1))
        ds = a * ((back @ tr(flat[:, :, w])) * drop[..., w] - delta)
        dadds.append(ds)
        dq += ds @ k[:, :, w] / sqrt(d)
        dks.append(tr(ds) @ q / sqrt(d))
    dv = np.concatenate(dvs, 1).reshape(b, kt, r, width).transpose(0, 2, 1, 3)
    dshared = dz.sum(-2)
    return given(o=o, dq=dq, dk=np.concatenate(dks, 2), dv=dv, dbias=fold(np.concatenate(dadds, 3), bias),
                 dselector=dshared @ wc.T, dwr=np.einsum("bsqre,bsqrf->ef", t, dz),
                 dwc=np.einsum("bsqc,bsqf->cf", selector, dshared), dbr=dshared.sum((0, 1, 2)),
                 dw2=np.einsum("bsqr,bsqrf->f", dl, z * (z > 0)), db2=np.zeros_like(b2))


def scorer_query_tiles(q, k, v, selector, wr, wc, br, w2, b2, do, bias=None, keep=None, dropout=None):
    b, n, s, d = q.shape
    add, on, drop = full((b, s, n, k.shape[1]), q.dtype, bias, keep, dropout)
    o, dq, dk, dv, dadd, dsel = (np.zeros_like(x) for x in (do, q, k, v, add, selector))
    dwr, dwc, dbr, dw2, db2 = (np.zeros_like(x) for x in (wr, wc, br, w2, b2))
    for at in range(0, n, 3):
        i = slice(at, at + 3)
        x = np.einsum("bqsd,bksd->bsqk", q[:, i], k) * (LOG2E / sqrt(d)) + LOG2E * add[:, :, i]
        x = np.where(on[:, :, i], x, -1e9)
        p = np.exp2(x - x.max(-1, keepdims=True)) * on[:, :, i]
        a = p / (p.sum(-1, keepdims=True) + (p.sum(-1, keepdims=True) == 0))
        c = a * drop[:, :, i]
        t = np.einsum("bsqk,bkre->bqsre", c, v)
        same = np.einsum("bqsc,cf->bqsf", selector[:, i], wc)
        z = np.einsum("bqsre,ef->bqsrf", t, wr) + same[..., None, :] + br
        step = np.heaviside(z, 0)
        l = np.einsum("bqsrf,bqsrf,f->bqsr", z, step, w2) + b2
        g = np.exp2(LOG2E * (l - l.max(-1, keepdims=True)))
        g /= g.sum(-1, keepdims=True)
        o[:, i] = np.einsum("bqsr,bqsre->bqse", g, t)
        dg = np.einsum("bqse,bqsre->bqsr", do[:, i], t)
        dl = g * dg - g * (g * dg).sum(-1, keepdims=True)
        dw2 += np.einsum("bqsr,bqsrf,bqsrf->f", dl, z, step)
        db2 += dl.sum()
        dz = np.einsum("bqsr,f,bqsrf->bqsrf", dl, w2, step)
        dbr += np.einsum("bqsrf->f", dz)
        dwc += np.einsum("bqsc,bqsrf->cf", selector[:, i], dz)
        dwr += np.einsum("bqsre,bqsrf->ef", t, dz)
        dsel[:, i] = np.einsum("bqsrf,cf->bqsc", dz, wc)
        dt = np.einsum("bqsr,bqse->bqsre", g, do[:, i]) + np.einsum("bqsrf,ef->bqsre", dz, wr)
        dv += np.einsum("bsqk,bqsre->bkre", c, dt)
        da = np.einsum("bqsre,bkre->bsqk", dt, v) * drop[:, :, i]
        ds = a * (da - (a * da).sum(-1, keepdims=True))
        dadd[:, :, i] = ds
        dq[:, i] = np.einsum("bsqk,bksd->bqsd", ds, k) / sqrt(d)
        dk += np.einsum("bsqk,bqsd->bksd", ds, q[:, i]) / sqrt(d)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias), dselector=dsel, dwr=dwr, dwc=dwc, dbr=dbr, dw2=dw2,
                 db2=db2)


# ---------------------------------------------------------------------------------------------------- sliding_dilated


def sliding_gathered(q, k, v, offset_bias, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    t, chunk = k.shape[1], offset_bias.shape[1]
    add, on, drop = full((b, h, n, chunk), q.dtype, bias, keep, dropout)
    at = np.arange(t - n, t)[:, None] - 2 * np.arange(chunk)
    on = on & (at >= 0)
    near = at.clip(0)
    s = np.einsum("bqhd,bqwhd->bhqw", q, k[:, near]) / sqrt(d) + offset_bias[:, None] + add
    s = np.where(on, s, -np.inf)
    a = np.exp(s - np.maximum(s.max(-1, keepdims=True), -1e30))
    a /= np.maximum(a.sum(-1, keepdims=True), 1e-30)
    o = np.einsum("bhqw,bhqw,bqwhe->bqhe", a, drop, v[:, near])
    da = np.einsum("bqhe,bqwhe->bhqw", do, v[:, near]) * drop
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    np.add.at(dk, (slice(None), near), np.einsum("bhqw,bqhd->bqwhd", ds, q) / sqrt(d))
    np.add.at(dv, (slice(None), near), np.einsum("bhqw,bhqw,bqhe->bqwhe", a, drop, do))
    dq = np.einsum("bhqw,bqwhd->bqhd", ds, k[:, near]) / sqrt(d)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(ds, bias), doffset_bias=ds.sum((0, 2)))


def sliding_matrix(q, k, v, offset_bias, do, bias=None, keep=None, dropout=None):
    """All queries against all keys under a mask, as the paper prints it; `hit` says which offset a key is."""
    b, n, h, d = q.shape
    t, chunk = k.shape[1], offset_bias.shape[1]
    add, on, drop = full((b, h, n, chunk), q.dtype, bias, keep, dropout)
    back = np.arange(t - n, t)[:, None] - np.arange(t)
    hit = (back[:, None] == 2 * np.arange(chunk)[:, None]).astype(q.dtype)
    m = np.einsum("bhqw,qwk->bhqk", add + offset_bias[:, None], hit)
    seen = np.einsum("bhqw,qwk->bhqk", on.astype(q.dtype), hit)
    factor = np.einsum("bhqw,qwk->bhqk", drop, hit)
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * d ** -0.5 + m
    p = np.exp(s - s.max(-1, keepdims=True)) * seen
    a = p / np.where(p.sum(-1, keepdims=True) == 0, 1, p.sum(-1, keepdims=True))
    o = np.einsum("bhqk,bkhe->bqhe", a * factor, v)
    dv = np.einsum("bhqk,bqhe->bkhe", a * factor, do)
    da = np.einsum("bqhe,bkhe->bhqk", do, v) * factor
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dadd = np.einsum("bhqk,qwk->bhqw", ds, hit)
    dq = np.einsum("bhqk,bkhd->bqhd", ds, k) * d ** -0.5
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q) * d ** -0.5
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias), doffset_bias=dadd.sum(axis=(0, 2)))


def sliding_loops(q, k, v, offset_bias, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    chunk = offset_bias.shape[1]
    add, on, drop = full((b, h, n, chunk), q.dtype, bias, keep, dropout)
    o, dq, dk, dv, dadd, dr = (np.zeros_like(x) for x in (do, q, k, v, add, offset_bias))
    for x, y, i in np.ndindex(b, h, n):
        here = k.shape[1] - n + i
        js = [j for j in range(chunk) if here - 2 * j >= 0 and on[x, y, i, j]]
        if not js:
            continue
        keys = [here - 2 * j for j in js]
        s = k[x, keys, y] @ q[x, i, y] / sqrt(d) + offset_bias[y, js] + add[x, y, i, js]
        a = np.exp(s - s.max())
        a /= a.sum()
        c = a * drop[x, y, i, js]
        o[x, i, y] = c @ v[x, keys, y]
        dv[x, keys, y] += np.outer(c, do[x, i, y])
        da = v[x, keys, y] @ do[x, i, y] * drop[x, y, i, js]
        ds = a * (da - a @ da)
        dadd[x, y, i, js] = ds
        dr[y, js] += ds
        dq[x, i, y] = ds @ k[x, keys, y] / sqrt(d)
        dk[x, keys, y] += np.outer(ds, q[x, i, y]) / sqrt(d)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias), doffset_bias=dr)


def sliding_padded(q, k, v, offset_bias, do, bias=None, keep=None, dropout=None):
    """Zeros before the first key, a slice of the longer arrays for each offset."""
    b, n, h, d = q.shape
    t, chunk = k.shape[1], offset_bias.shape[1]
    add, on, drop = (np.moveaxis(x, 3, 0).transpose(0, 1, 3, 2)
                     for x in full((b, h, n, chunk), q.dtype, bias, keep, dropout))
    front = 2 * (chunk - 1)
    kp, vp, real = (np.concatenate([np.zeros((b, front, *x.shape[2:]), x.dtype), x], 1)
                    for x in (k, v, np.ones((b, t, h), bool)))
    slices = [slice(front + t - n - 2 * j, front + t - 2 * j) for j in range(chunk)]
    s = np.stack([(q * kp[:, at]).sum(-1) / sqrt(d) + offset_bias[:, j] for j, at in enumerate(slices)]) + add
    there = np.stack([real[:, at] for at in slices]) & on
    s = np.where(there, s, -np.inf)
    a = np.exp(s - np.maximum(s.max(0), -1e30))
    a = a / np.maximum(a.sum(0), 1e-30)
    o = sum(((a[j] * drop[j])[..., None] * vp[:, at] for j, at in enumerate(slices)), np.zeros_like(do))
    da = np.stack([(do * vp[:, at]).sum(-1) for at in slices]) * drop
    ds = a * (da - (a * da).sum(0))
    dq, dkp, dvp = np.zeros_like(q), np.zeros_like(kp), np.zeros_like(vp)
    for j, at in enumerate(slices):
        dq += ds[j][..., None] * kp[:, at] / sqrt(d)
        dkp[:, at] += ds[j][..., None] * q / sqrt(d)
        dvp[:, at] += (a[j] * drop[j])[..., None] * do
    dadd = ds.transpose(1, 3, 2, 0)
    return given(o=o, dq=dq, dk=dkp[:, front:], dv=dvp[:, front:], dbias=fold(dadd, bias),
                 doffset_bias=dadd.sum(0).sum(1))


def sliding_online(q, k, v, offset_bias, do, bias=None, keep=None, dropout=None):
    """One offset after another with a running maximum, then back with D = rowsum(do o)."""
    b, h, n, d = q.shape
    t, chunk = k.shape[2], offset_bias.shape[1]
    add, on, drop = full((b, h, n, chunk), q.dtype, bias, keep, dropout)
    m, total, acc = np.full((b, h, n), -1e30, q.dtype), np.zeros((b, h, n), q.dtype), np.zeros_like(do)

    def keys(x, j):
        return x[:, :, (np.arange(t - n, t) - 2 * j).clip(0)]

    def score(j):
        s = (q * keys(k, j)).sum(-1) * d ** -0.5 + offset_bias[:, j, None] + add[..., j]
        return np.where(on[..., j] & (np.arange(t - n, t) >= 2 * j), s, -np.inf)

    for j in range(chunk):
        s = score(j)
        new = np.maximum(m, s)
        p, shrink = np.exp(s - new), np.exp(m - new)
        total = total * shrink + p
        acc = acc * shrink[..., None] + (p * drop[..., j])[..., None] * keys(v, j)
        m = new
    total = np.where(total == 0, 1, total)
    o = acc / total[..., None]
    lse, delta = m + np.log(total), (do * o).sum(-1)
    dq, dk, dv, dadd = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v), np.zeros_like(add)
    for j in range(chunk):
        a = np.exp(score(j) - lse)
        ds = a * ((do * keys(v, j)).sum(-1) * drop[..., j] - delta)
        dadd[..., j] = ds
        dq += ds[..., None] * keys(k, j) * d ** -0.5
        for i in range(n):
            place = t - n + i - 2 * j
            if place >= 0:
                dk[:, :, place] += ds[:, :, i, None] * q[:, :, i] * d ** -0.5
                dv[:, :, place] += (a * drop[..., j])[:, :, i, None] * do[:, :, i]
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias), doffset_bias=dadd.sum((0, 2)))


# ------------------------------------------------------------------------------------------------ sliding_dilated_pad


def pads_in_front(q, k, v, offset_bias, pad_k, pad_v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    t, chunk = k.shape[1], offset_bias.shape[1]
    add, on, drop = full((b, h, n, chunk), q.dtype, bias, keep, dropout)
    front = 2 * (chunk - 1)
    kp = np.concatenate([np.broadcast_to(pad_k, (b, front, *pad_k.shape)), k], 1)
    vp = np.concatenate([np.broadcast_to(pad_v, (b, front, *pad_v.shape)), v], 1)
    at = front + np.arange(t - n, t)[:, None] - 2 * np.arange(chunk)
    s = np.einsum("bqhd,bqwhd->bhqw", q, kp[:, at]) / sqrt(d) + offset_bias[:, None] + add
    s = np.where(on, s, -1e9)
    a = np.exp(s - s.max(-1, keepdims=True)) * on
    a = a / np.maximum(a.sum(-1, keepdims=True), 1e-30)
    c = a * drop
    o = np.einsum("bhqw,bqwhe->bqhe", c, vp[:, at])
    da = np.einsum("bqhe,bqwhe->bhqw", do, vp[:, at]) * drop
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dq = np.einsum("bhqw,bqwhd->bqhd", ds, kp[:, at]) / sqrt(d)
    dkp, dvp = np.zeros_like(kp), np.zeros_like(vp)
    for j in range(chunk):
        dkp[:, at[:, j]] += np.einsum("bhq,bqhd->bqhd", ds[..., j], q) / sqrt(d)
        dvp[:, at[:, j]] += np.einsum("bhq,bqhe->bqhe", c[..., j], do)
    return given(o=o, dq=dq, dk=dkp[:, front:], dv=dvp[:, front:], dbias=fold(ds, bias), doffset_bias=ds.sum((0, 2)),
                 dpad_k=dkp[:, :front].sum((0, 1)), dpad_v=dvp[:, :front].sum((0, 1)))


def pads_behind(q, k, v, offset_bias, pad_k, pad_v, do, bias=None, keep=None, dropout=None):
    """The pad as one more row behind the last key, to which all that lies before the first points."""
    b, h, n, d = q.shape
    t, chunk = k.shape[2], offset_bias.shape[1]
    add, on, drop = full((b, h, n, chunk), q.dtype, bias, keep, dropout)
    ks = np.concatenate([k, np.broadcast_to(pad_k[:, None], (b, h, 1, d))], 2)
    vs = np.concatenate([v, np.broadcast_to(pad_v[:, None], (b, h, 1, v.shape[3]))], 2)
    at = np.arange(t - n, t)[:, None] - 2 * np.arange(chunk)
    at = np.where(at < 0, t, at)
    kw, vw = ks[:, :, at], vs[:, :, at]
    s = (kw @ q[..., None])[..., 0] * d ** -0.5 + offset_bias[:, None] + add
    p = np.exp(s - s.max(-1, keepdims=True)) * on
    below = p.sum(-1, keepdims=True)
    a = p / np.where(below == 0, 1, below)
    o = ((a * drop)[..., None, :] @ vw)[..., 0, :]
    da = (vw @ do[..., None])[..., 0] * drop
    ds = a * (da - (do * o).sum(-1, keepdims=True))
    dq = (ds[..., None, :] @ kw)[..., 0, :] * d ** -0.5
    place = (at[..., None] == np.arange(t + 1)).astype(q.dtype)
    dks = np.einsum("bhqw,qwk,bhqd->bhkd", ds, place, q) * d ** -0.5
    dvs = np.einsum("bhqw,bhqw,qwk,bhqe->bhke", a, drop, place, do)
    return given(o=o, dq=dq, dk=dks[:, :, :t], dv=dvs[:, :, :t], dbias=fold(ds, bias), doffset_bias=ds.sum((0, 2)),
                 dpad_k=dks[:, :, t].sum(0), dpad_v=dvs[:, :, t].sum(0))


def pads_loops(q, k, v, offset_bias, pad_k, pad_v, do, bias=None, keep=None, dropout=None):
    b, n, h, d = q.shape
    chunk, shift = offset_bias.shape[1], k.shape[1] - n
    add, on, drop = full((b, h, n, chunk), q.dtype, bias, keep, dropout)
    o, dq, dk, dv, dadd, dr, dpk, dpv = (np.zeros_like(x) for x in (do, q, k, v, add, offset_bias, pad_k, pad_v))
    for x, y, i in np.ndindex(b, h, n):
        places = [i + shift - 2 * j for j in range(chunk)]
        keys = np.stack([k[x, p, y] if p >= 0 else pad_k[y] for p in places])
        values = np.stack([v[x, p, y] if p >= 0 else pad_v[y] for p in places])
        s = keys @ q[x, i, y] / sqrt(d) + offset_bias[y] + add[x, y, i]
        a = np.exp(s - s.max()) * on[x, y, i]
        a = a / max(a.sum(), 1e-30)
        c = a * drop[x, y, i]
        o[x, i, y] = c @ values
        ds = (np.diag(a) - np.outer(a, a)) @ (drop[x, y, i] * (values @ do[x, i, y]))
        dadd[x, y, i] = ds
        dr[y] += ds
        dq[x, i, y] = ds @ keys / sqrt(d)
        for j, p in enumerate(places):
            if p >= 0:
                dk[x, p, y] += ds[j] * q[x, i, y] / sqrt(d)
                dv[x, p, y] += c[j] * do[x, i, y]
            else:
                dpk[y] += ds[j] * q[x, i, y] / sqrt(d)
                dpv[y] += c[j] * do[x, i, y]
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias), doffset_bias=dr, dpad_k=dpk, dpad_v=dpv)


def pads_by_offset(q, k, v, offset_bias, pad_k, pad_v, do, bias=None, keep=None, dropout=None):
    """Products with the rolled keys and with the pad, of which a mask chooses."""
    b, n, h, d = q.shape
    t, chunk = k.shape[1], offset_bias.shape[1]
    add, on, drop = (x.transpose(3, 0, 2, 1) for x in full((b, h, n, chunk), q.dtype, bias, keep, dropout))
    inside = [(np.arange(t - n, t) >= 2 * j)[:, None, None] for j in range(chunk)]
    ks = [np.where(inside[j], np.roll(k, 2 * j, 1)[:, t - n:], pad_k) for j in range(chunk)]
    vs = [np.where(inside[j], np.roll(v, 2 * j, 1)[:, t - n:], pad_v) for j in range(chunk)]
    s = np.stack([(q * each).sum(-1) for each in ks]) * d ** -0.5 + offset_bias.T[:, None, None] + add
    x = np.exp2(LOG2E * (s - s.max(0))) * on
    a = x / np.maximum(x.sum(0), 1e-30)
    o = np.einsum("wbqh,wbqhe->bqhe", a * drop, np.stack(vs))
    da = np.einsum("bqhe,wbqhe->wbqh", do, np.stack(vs)) * drop
    ds = a * (da - np.einsum("wbqh,wbqh->bqh", a, da))
    dq = np.einsum("wbqh,wbqhd->bqhd", ds, np.stack(ks)) * d ** -0.5
    dk, dv, dpk, dpv = np.zeros_like(k), np.zeros_like(v), np.zeros_like(pad_k), np.zeros_like(pad_v)
    for j in range(chunk):
        gk, gv = ds[j][..., None] * q * d ** -0.5, (a * drop)[j][..., None] * do
        for i, place in enumerate(range(t - n - 2 * j, t - 2 * j)):
            if place < 0:
                dpk += gk[:, i].sum(0)
                dpv += gv[:, i].sum(0)
            else:
                dk[:, place] += gk[:, i]
                dv[:, place] += gv[:, i]
    dadd = ds.transpose(1, 3, 2, 0)
    return given(o=o, dq=dq, dk=dk, dv=dv, dbias=fold(dadd, bias), doffset_bias=dadd.sum((0, 2)), dpad_k=dpk,
                 dpad_v=dpv)


def pads_matrix(q, k, v, offset_bias, pad_k, pad_v, do, bias=None, keep=None, dropout=None):
    """All queries against (C - 1) dilation pads and all keys, in float64."""
    b, n, h, d = q.shape
    t, chunk = k.shape[1], offset_bias.shape[1]
    add, on, drop = full((b, h, n, chunk), np.float64, bias, keep, dropout)
    front = 2 * chunk - 2
    kp, vp = (np.concatenate([np.tile(pad, (b, front, 1, 1)), x], 1).astype(np.float64)
              for pad, x in ((pad_k, k), (pad_v, v)))
    back = np.arange(t - n, t)[:, None] - np.arange(-front, t)
    inside = (back >= 0) & (back <= front) & (back % 2 == 0)
    j = (back // 2).clip(0, chunk - 1)
    rows = np.arange(n)[:, None]
    seen, factor = on[:, :, rows, j] & inside, drop[:, :, rows, j]
    s = np.einsum("bqhd,bkhd->bhqk", q, kp) / sqrt(d) + add[:, :, rows, j] + offset_bias[:, j]
    s = np.where(seen, s, -np.inf)
    a = np.exp(s - s.max(-1, initial=-1e300, keepdims=True))
    a /= np.maximum(a.sum(-1, keepdims=True), 1e-300)
    g = do.astype(np.float64)
    o = (a * factor) @ vp.transpose(0, 2, 1, 3)
    da = np.einsum("bqhe,bkhe->bhqk", g, vp) * factor
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dkp, dvp = np.einsum("bhqk,bqhd->bkhd", ds, q) / sqrt(d), np.einsum("bhqk,bqhe->bkhe", a * factor, g)
    dadd = np.stack([np.where(inside & (j == w), ds, 0).sum(-1) for w in range(chunk)], -1)
    found = given(o=o.transpose(0, 2, 1, 3), dq=np.einsum("bhqk,bkhd->bqhd", ds, kp) / sqrt(d), dk=dkp[:, front:],
                  dv=dvp[:, front:], dbias=fold(dadd, bias), doffset_bias=dadd.sum((0, 2)),
                  dpad_k=dkp[:, :front].sum((0, 1)), dpad_v=dvp[:, :front].sum((0, 1)))
    return {name: each.astype(q.dtype) for name, each in found.items()}


# ------------------------------------------------------------------------------------------ layers/MultiHead, softmax


def layer_joined(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None):
    """q, k and v as one product, heads in the batch, D = rowsum(do o)."""
    b, t, m = x.shape
    h, d, e_ = *wq.shape[1:], wv.shape[2]
    add, on, drop = full((b, h, t, t), x.dtype, bias, keep, dropout)
    w = np.concatenate([wq.reshape(m, -1), wk.reshape(m, -1), wv.reshape(m, -1)], 1)
    qkv = x @ w + np.concatenate([bq.ravel(), bk.ravel(), bv.ravel()])
    q, k, v = (each.reshape(b, t, h, -1).transpose(0, 2, 1, 3) for each in np.split(qkv, [h * d, 2 * h * d], -1))
    s = np.where(on, q @ tr(k) / sqrt(d) + add, -1e9)
    a = np.exp(s - s.max(-1, keepdims=True)) * on
    a = a / np.maximum(a.sum(-1, keepdims=True), 1e-30)
    o = ((a * drop) @ v).transpose(0, 2, 1, 3).reshape(b, t, h * e_)
    y = o @ wo.reshape(h * e_, m) + bo
    back = do @ wo.reshape(h * e_, m).T
    delta = (back * o).reshape(b, t, h, e_).sum(-1).transpose(0, 2, 1)[..., None]
    back = back.reshape(b, t, h, e_).transpose(0, 2, 1, 3)
    ds = a * ((back @ tr(v)) * drop - delta)
    dv = tr(a * drop) @ back
    dqkv = np.concatenate([each.transpose(0, 2, 1, 3).reshape(b, t, -1)
                           for each in (ds @ k / sqrt(d), tr(ds) @ q / sqrt(d), dv)], -1)
    dw = np.tensordot(x, dqkv, ((0, 1), (0, 1)))
    dwq, dwk, dwv = np.split(dw, [h * d, 2 * h * d], 1)
    dbq, dbk, dbv = np.split(dqkv.sum((0, 1)), [h * d, 2 * h * d])
    return given(o=y, dx=dqkv @ w.T, dbias=fold(ds, bias), dwq=dwq.reshape(wq.shape), dbq=dbq.reshape(bq.shape),
                 dwk=dwk.reshape(wk.shape), dbk=dbk.reshape(bk.shape), dwv=dwv.reshape(wv.shape),
                 dbv=dbv.reshape(bv.shape), dwo=np.tensordot(o, do, ((0, 1), (0, 1))).reshape(wo.shape),
                 dbo=do.sum((0, 1)))


def layer_by_head(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None):
    b, t, m = x.shape
    h, d = bq.shape
    add, on, drop = full((b, h, t, t), x.dtype, bias, keep, dropout)
    y, dx, dadd = np.zeros_like(x) + bo, np.zeros_like(x), np.zeros_like(add)
    dwq, dbq, dwk, dbk, dwv, dbv, dwo = (np.zeros_like(w) for w in (wq, bq, wk, bk, wv, bv, wo))
    rows, up = x.reshape(-1, m), do.reshape(-1, m)
    for i in range(h):
        q, k, v = x @ wq[:, i] + bq[i], x @ wk[:, i] + bk[i], x @ wv[:, i] + bv[i]
        s = q @ tr(k) * d ** -0.5 + add[:, i] + np.where(on[:, i], 0, -np.inf).astype(x.dtype)
        a = np.exp(s - s.max(-1, initial=-1e30, keepdims=True))
        a /= np.maximum(a.sum(-1, keepdims=True), 1e-30)
        c = a * drop[:, i]
        o = c @ v
        y += o @ wo[i]
        dwo[i] = o.reshape(len(rows), -1).T @ up
        g = do @ wo[i].T
        dv = tr(c) @ g
        da = g @ tr(v) * drop[:, i]
        ds = dadd[:, i] = a * (da - (a * da).sum(-1, keepdims=True))
        dq, dk = ds @ k * d ** -0.5, tr(ds) @ q * d ** -0.5
        for grad, dw, db, w in (dq, dwq, dbq, wq), (dk, dwk, dbk, wk), (dv, dwv, dbv, wv):
            dx += grad @ w[:, i].T
            dw[:, i] = rows.T @ grad.reshape(len(rows), -1)
            db[i] = grad.sum((0, 1))
    return given(o=y, dx=dx, dbias=fold(dadd, bias), dwq=dwq, dbq=dbq, dwk=dwk, dbk=dbk, dwv=dwv, dbv=dbv, dwo=dwo,
                 dbo=up.sum(0))


def layer_absorbed(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None):
    """[x, 1] (Wq Wk^T / sqrt(d)) [x, 1]^T for the scores, [x, 1] (Wv Wo) for the values: no q, k, v at all."""
    b, t, m = x.shape
    h, d = bq.shape
    add, on, drop = full((b, h, t, t), x.dtype, bias, keep, dropout)
    one = np.concatenate([x, np.ones_like(x[..., :1])], -1)
    q1, k1, v1 = (np.concatenate([w, c[None]]) for w, c in ((wq, bq), (wk, bk), (wv, bv)))
    form, value = np.einsum("ihd,jhd->hij", q1, k1) / sqrt(d), np.einsum("ihe,hem->him", v1, wo)
    s = np.einsum("bqi,hij,bkj->bhqk", one, form, one) + add
    p = np.where(on, np.exp(s - s.max(-1, keepdims=True)), 0)
    below = p.sum(-1, keepdims=True)
    a = p / np.where(below == 0, 1, below)
    c = a * drop
    mixed = np.einsum("bhqk,bki->bhqi", c, one)
    y = np.einsum("bhqi,him->bqm", mixed, value) + bo
    dvalue = np.einsum("bhqi,bqm->him", mixed, do)
    dmixed = np.einsum("bqm,him->bhqi", do, value)
    da = np.einsum("bhqi,bki->bhqk", dmixed, one) * drop
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dform = np.einsum("bqi,bhqk,bkj->hij", one, ds, one) / sqrt(d)
    dq1, dk1 = np.einsum("hij,jhd->ihd", dform, k1), np.einsum("hij,ihd->jhd", dform, q1)
    dv1, dwo = np.einsum("him,hem->ihe", dvalue, wo), np.einsum("him,ihe->hem", dvalue, v1)
    done = np.einsum("bhqk,hij,bkj->bqi", ds, form, one) + np.einsum("bhqk,hij,bqi->bkj", ds, form, one)
    done += np.einsum("bhqk,bhqi->bki", c, dmixed)
    return given(o=y, dx=done[..., :m], dbias=fold(ds, bias), dwq=dq1[:m], dbq=dq1[m], dwk=dk1[:m], dbk=dk1[m],
                 dwv=dv1[:m], dbv=dv1[m], dwo=dwo, dbo=np.einsum("bqm->m", do))


def layer_recomputed(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None):
    """Tiles of keys, projected anew in every pass."""
    b, t, m = x.shape
    h, d = bq.shape
    add, on, drop = full((b, h, t, t), x.dtype, bias, keep, dropout)
    q = np.einsum("btm,mhd->bhtd", x, wq) + bq[:, None]

    def tile(w):
        k = np.einsum("btm,mhd->bhtd", x[:, w], wk) + bk[:, None]
        v = np.einsum("btm,mhe->bhte", x[:, w], wv) + bv[:, None]
        return k, v, np.where(on[..., w], q @ tr(k) / sqrt(d) + add[..., w], -np.inf)

    top, total = np.full((b, h, t, 1), -1e30, x.dtype), np.zeros((b, h, t, 1), x.dtype)
    o = np.zeros((b, h, t, wv.shape[2]), x.dtype)
    tiles = [slice(at, at + 2) for at in range(0, t, 2)]
    for w in tiles:
        k, v, s = tile(w)
        new = np.maximum(top, s.max(-1, keepdims=True))
        p = np.exp(s - new)
        o = o * np.exp(top - new) + (p * drop[..., w]) @ v
        total = total * np.exp(top - new) + p.sum(-1, keepdims=True)
        top = new
    total = np.where(total == 0, 1, total)
    o /= total
    y = np.einsum("bhte,hem->btm", o, wo) + bo
    g = np.einsum("btm,hem->bhte", do, wo)
    delta = (g * o).sum(-1, keepdims=True)
    dq, dadd, dx = np.zeros_like(q), np.zeros_like(add), np.zeros_like(x)
    dwk, dbk, dwv, dbv = (np.zeros_like(w) for w in (wk, bk, wv, bv))
    for w in tiles:
        k, v, s = tile(w)
        a = np.exp(s - top) / total
        ds = a * (g @ tr(v) * drop[..., w] - delta)
        dk, dv = tr(ds) @ q / sqrt(d), tr(a * drop[..., w]) @ g
        dadd[..., w] = ds
        dq += ds @ k / sqrt(d)
        dwk += np.einsum("btm,bhtd->mhd", x[:, w], dk)
        dwv += np.einsum("btm,bhte->mhe", x[:, w], dv)
        dbk += dk.sum((0, 2))
        dbv += dv.sum((0, 2))
        dx[:, w] += np.einsum("bhtd,mhd->btm", dk, wk) + np.einsum("bhte,mhe->btm", dv, wv)
    dx += np.einsum("bhtd,mhd->btm", dq, wq)
    return given(o=y, dx=dx, dbias=fold(dadd, bias), dwq=np.einsum("btm,bhtd->mhd", x, dq), dbq=dq.sum((0, 2)),
                 dwk=dwk, dbk=dbk, dwv=dwv, dbv=dbv, dwo=np.einsum("bhte,btm->hem", o, do), dbo=do.sum((0, 1)))


def layer_double(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None):
    """Sequence by sequence in float64, the softmax through its Jacobian."""
    b, t, m = x.shape
    h, d = bq.shape
    add, on, drop = full((b, h, t, t), np.float64, bias, keep, dropout)
    wide = [w.astype(np.float64) for w in (wq, bq, wk, bk, wv, bv, wo, bo)]
    grads = [np.zeros_like(w) for w in wide]
    y, dx, dadd = np.zeros(x.shape), np.zeros(x.shape), np.zeros(add.shape)
    for i in range(b):
        z, g = x[i].astype(np.float64), do[i].astype(np.float64)
        q, k, v = (np.tensordot(z, wide[j], 1) + wide[j + 1] for j in (0, 2, 4))
        s = np.einsum("qhd,khd->hqk", q, k) / sqrt(d) + add[i]
        p = np.exp(s - s.max()) * on[i]
        a = p / np.where(p.any(-1), p.sum(-1), 1)[..., None]
        c = a * drop[i]
        o = np.einsum("hqk,khe->qhe", c, v)
        y[i] = np.tensordot(o, wide[6], 2) + wide[7]
        do_ = np.tensordot(g, wide[6], (1, 2))
        jacobian = a[..., None] * (np.eye(t) - a[..., None, :])
        ds = np.einsum("hqkj,hqj->hqk", jacobian, np.einsum("qhe,khe->hqk", do_, v) * drop[i])
        found = (np.einsum("hqk,khd->qhd", ds, k) / sqrt(d), np.einsum("hqk,qhd->khd", ds, q) / sqrt(d),
                 np.einsum("hqk,qhe->khe", c, do_))
        for j, each in zip((0, 2, 4), found, strict=True):
            grads[j] += np.tensordot(z.T, each, 1)
            grads[j + 1] += each.sum(0)
            dx[i] += np.tensordot(each, wide[j], ((1, 2), (1, 2)))
        grads[6] += np.einsum("qhe,qm->hem", o, g)
        grads[7] += g.sum(0)
        dadd[i] = ds
    names = "dwq", "dbq", "dwk", "dbk", "dwv", "dbv", "dwo", "dbo"
    every = given(o=y, dx=dx, dbias=fold(dadd, bias), **dict(zip(names, grads, strict=True)))
    return {name: each.astype(x.dtype) for name, each in every.items()}


# --------------------------------------------------------------------------------------------- layers/MultiHead, hyla


def hyla_layer_joined(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None):
    b, t, m = x.shape
    h, d = bq.shape
    add, on, drop = full((b, h, t, t), x.dtype, bias, keep, dropout)
    w, c0 = np.concatenate([wq, wk, wv], -1), np.concatenate([bq, bk, bv], -1)
    q, k, v = np.split(np.tensordot(x, w, 1) + c0, [d, 2 * d], -1)
    s = on * (np.einsum("bqhd,bkhd->bhqk", q, k) * d ** -0.5 + add)
    rho = (np.square(s).sum(1, keepdims=True) / h + 1e-6) ** -0.5
    a = s * rho
    c = a * drop
    z = np.einsum("bhqk,bkhe->bqke", c, v)
    hot = np.maximum(z, 0)
    o = np.einsum("bhqk,bqke->bqhe", c, hot)
    y = np.tensordot(o, wo, 2) + bo
    g = np.tensordot(do, wo, (2, 2))
    dz = np.einsum("bhqk,bqhe->bqke", c, g) * (z > 0)
    dc = np.einsum("bqhe,bqke->bhqk", g, hot) + np.einsum("bqke,bkhe->bhqk", dz, v)
    da = dc * drop
    ds = on * rho * (da - a * np.einsum("bhqk,bhqk->bqk", a, da)[:, None] / h)
    dqkv = np.concatenate([np.einsum("bhqk,bkhd->bqhd", ds, k) * d ** -0.5,
                           np.einsum("bhqk,bqhd->bkhd", ds, q) * d ** -0.5,
                           np.einsum("bhqk,bqke->bkhe", c, dz)], -1)
    dwq, dwk, dwv = np.split(np.einsum("btm,bthx->mhx", x, dqkv), [d, 2 * d], -1)
    dbq, dbk, dbv = np.split(dqkv.sum((0, 1)), [d, 2 * d], -1)
    return given(o=y, dx=np.einsum("bthx,mhx->btm", dqkv, w), dbias=fold(ds, bias), dwq=dwq, dbq=dbq, dwk=dwk,
                 dbk=dbk, dwv=dwv, dbv=dbv, dwo=np.einsum("bqhe,bqm->hem", o, do), dbo=do.sum((0, 1)))


def hyla_layer_generated(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None):
    """Both layers of the value network as matrices for every pair: W (m + 1, e) and W' (e, m)."""
    b, t, m = x.shape
    h, d = bq.shape
    add, on, drop = full((b, h, t, t), x.dtype, bias, keep, dropout)
    one = np.concatenate([x, np.ones_like(x[..., :1])], -1)
    q1, k1, v1 = (np.concatenate([w, c[None]]) for w, c in ((wq, bq), (wk, bk), (wv, bv)))
    q, k = np.einsum("bti,ihd->bthd", one, q1), np.einsum("bti,ihd->bthd", one, k1)
    s = np.where(on, np.einsum("bqhd,bkhd->bhqk", q, k) / sqrt(d) + add, 0)
    norm = np.sqrt((s * s).mean(1, keepdims=True) + 1e-6)
    code = s / norm * drop
    inner, outer = np.einsum("bhqk,ihe->bqkie", code, v1), np.einsum("bhqk,hem->bqkem", code, wo)
    z = np.einsum("bqkie,bki->bqke", inner, one)
    hot = z * (z > 0)
    y = np.einsum("bqkem,bqke->bqm", outer, hot) + bo
    douter = np.einsum("bqke,bqm->bqkem", hot, do)
    dz = np.einsum("bqkem,bqm->bqke", outer, do) * (z > 0)
    dinner = np.einsum("bqke,bki->bqkie", dz, one)
    dcode = np.einsum("bqkem,hem->bhqk", douter, wo) + np.einsum("bqkie,ihe->bhqk", dinner, v1)
    dwo, dv1 = np.einsum("bhqk,bqkem->hem", code, douter), np.einsum("bhqk,bqkie->ihe", code, dinner)
    da = dcode * drop
    ds = np.where(on, da / norm - s * (s * da).mean(1, keepdims=True) / norm ** 3, 0)
    dq, dk = np.einsum("bhqk,bkhd->bqhd", ds, k) / sqrt(d), np.einsum("bhqk,bqhd->bkhd", ds, q) / sqrt(d)
    dq1, dk1 = np.einsum("bti,bthd->ihd", one, dq), np.einsum("bti,bthd->ihd", one, dk)
    done = np.einsum("bqkie,bqke->bki", inner, dz)
    done += np.einsum("bthd,ihd->bti", dq, q1) + np.einsum("bthd,ihd->bti", dk, k1)
    return given(o=y, dx=done[..., :m], dbias=fold(ds, bias), dwq=dq1[:-1], dbq=dq1[-1], dwk=dk1[:-1], dbk=dk1[-1],
                 dwv=dv1[:-1], dbv=dv1[-1], dwo=dwo, dbo=do.sum((0, 1)))


def hyla_layer_query_by_query(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None):
    b, t, m = x.shape
    h, d = bq.shape
    add, on, drop = full((b, h, t, t), x.dtype, bias, keep, dropout)
    q, k, v = (np.tensordot(x, w, 1) + c for w, c in ((wq, bq), (wk, bk), (wv, bv)))
    y, dadd, dwo = np.empty_like(x), np.zeros_like(add), np.zeros_like(wo)
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    eye = np.eye(h, dtype=x.dtype)
    for i, j in np.ndindex(b, t):
        s = np.where(on[i, :, j], (k[i] * q[i, j]).sum(-1).T / sqrt(d) + add[i, :, j], 0)
        root = np.sqrt((s * s).mean(0) + 1e-6)
        a = s / root
        c = a * drop[i, :, j]
        z = np.einsum("hk,khe->ke", c, v[i])
        o = c @ z.clip(0)
        y[i, j] = np.tensordot(o, wo, 2) + bo
        g = wo @ do[i, j]
        dwo += np.multiply.outer(o, do[i, j])
        dz = np.where(z > 0, c.T @ g, 0)
        dv[i] += np.einsum("hk,ke->khe", c, dz)
        da = (g @ z.clip(0).T + np.einsum("khe,ke->hk", v[i], dz)) * drop[i, :, j]
        jacobian = (eye[..., None] - a[:, None] * a / h) / root
        ds = np.where(on[i, :, j], np.einsum("hgk,gk->hk", jacobian, da), 0)
        dadd[i, :, j] = ds
        dq[i, j] = np.einsum("hk,khd->hd", ds, k[i]) / sqrt(d)
        dk[i] += np.einsum("hk,hd->khd", ds, q[i, j]) / sqrt(d)
    found = {}
    for name, grad in ("q", dq), ("k", dk), ("v", dv):
        found["dw" + name], found["db" + name] = np.tensordot(x, grad, ((0, 1), (0, 1))), grad.sum((0, 1))
    dx = np.tensordot(dq, wq, ((2, 3), (1, 2))) + np.tensordot(dk, wk, ((2, 3), (1, 2)))
    dx += np.tensordot(dv, wv, ((2, 3), (1, 2)))
    return given(o=y, dx=dx, dbias=fold(dadd, bias), **found, dwo=dwo, dbo=do.sum((0, 1)))


def hyla_layer_tiles(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None):
    """Tiles of keys, whose part of y is added at once; the backward recomputes every tile."""
    b, t, m = x.shape
    h, d = bq.shape
    add, on, drop = (each.transpose(0, 2, 3, 1) for each in full((b, h, t, t), x.dtype, bias, keep, dropout))
    q, k, v = (np.einsum("btm,mhd->bthd", x, w) + c for w, c in ((wq, bq), (wk, bk), (wv, bv)))
    y, g = np.zeros_like(x) + bo, np.einsum("btm,hem->bthe", do, wo)
    o, dq, dk, dv = np.zeros_like(g), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    dadd = np.zeros_like(add)
    for at in range(0, t, 3):
        w = slice(at, at + 3)
        s = ((q[:, :, None] * k[:, None, w]).sum(-1) * d ** -0.5 + add[:, :, w]) * on[:, :, w]
        length = np.sqrt((s ** 2).sum(-1, keepdims=True) + h * 1e-6)
        a = s * sqrt(h) / length
        c = a * drop[:, :, w]
        z = (c[..., None] * v[:, None, w]).sum(3)
        gate = np.sign(np.maximum(z, 0))
        part = tr(c) @ (z * gate)
        o += part
        y += np.einsum("bqhe,hem->bqm", part, wo)
        dz = (c @ g) * gate
        dc = (z * gate) @ tr(g) + (v[:, None, w] * dz[:, :, :, None]).sum(-1)
        dv[:, w] = (c[..., None] * dz[:, :, :, None]).sum(1)
        da = dc * drop[:, :, w]
        ds = (da - a * (a * da).mean(-1, keepdims=True)) * sqrt(h) / length * on[:, :, w]
        dadd[:, :, w] = ds
        dq += (ds[..., None] * k[:, None, w]).sum(2) * d ** -0.5
        dk[:, w] = (ds[..., None] * q[:, :, None]).sum(1) * d ** -0.5
    dx = sum(np.einsum("bthd,mhd->btm", grad, w) for grad, w in ((dq, wq), (dk, wk), (dv, wv)))
    dwq, dwk, dwv = (np.einsum("btm,bthd->mhd", x, grad) for grad in (dq, dk, dv))
    dbq, dbk, dbv = (np.einsum("bthd->hd", grad) for grad in (dq, dk, dv))
    return given(o=y, dx=dx, dbias=fold(dadd.transpose(0, 3, 1, 2), bias), dwq=dwq, dbq=dbq, dwk=dwk, dbk=dbk, dwv=dwv,
                 dbv=dbv, dwo=np.einsum("bthe,btm->hem", o, do), dbo=np.einsum("btm->m", do))


def hyla_layer_double(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None):
    """Pairs that some head keeps as rows, in float64, gathered and scattered by one-hot matrices."""
    b, t, m = x.shape
    h, d = bq.shape
    dtype = x.dtype
    add, on, drop = (each.transpose(0, 2, 3, 1) for each in full((b, h, t, t), np.float64, bias, keep, dropout))
    x, wq, bq, wk, bk, wv, bv, wo, bo, do = (each.astype(float) for each in (x, wq, bq, wk, bk, wv, bv, wo, bo, do))
    rows, up = x.reshape(b * t, m), do.reshape(b * t, m)
    i, j, l = np.nonzero(on.any(-1))
    query, key = np.eye(b * t)[i * t + j], np.eye(b * t)[i * t + l]
    mask, factor = on[i, j, l], drop[i, j, l]
    q, k, v = (np.tensordot(rows, w, 1) + c for w, c in ((wq, bq), (wk, bk), (wv, bv)))
    g = np.tensordot(up, wo, (1, 2))
    qs, ks, vs, gs = (np.tensordot(hit, each, 1) for hit, each in ((query, q), (key, k), (key, v), (query, g)))
    s = mask * ((qs * ks).sum(-1) / sqrt(d) + add[i, j, l])
    square = (s * s).mean(1, keepdims=True) + 1e-6
    c = s / np.sqrt(square) * factor
    z = np.einsum("ph,phe->pe", c, vs)
    o = np.tensordot(query.T, np.einsum("ph,pe->phe", c, np.maximum(z, 0)), 1)
    dz = np.einsum("ph,phe->pe", c, gs) * (z > 0)
    da = (np.einsum("phe,pe->ph", gs, np.maximum(z, 0)) + np.einsum("phe,pe->ph", vs, dz)) * factor
    ds = mask * (da - s / square * (s * da).mean(1, keepdims=True)) / np.sqrt(square)
    dq = np.tensordot(query.T, ds[..., None] * ks, 1) / sqrt(d)
    dk = np.tensordot(key.T, ds[..., None] * qs, 1) / sqrt(d)
    dv = np.tensordot(key.T, np.einsum("ph,pe->phe", c, dz), 1)
    dadd = np.zeros(add.shape)
    dadd[i, j, l] = ds
    dx = sum(np.tensordot(grad, w, ((1, 2), (1, 2))) for grad, w in ((dq, wq), (dk, wk), (dv, wv)))
    found = given(o=(np.tensordot(o, wo, 2) + bo).reshape(x.shape), dx=dx.reshape(x.shape),
                  dbias=fold(dadd.transpose(0, 3, 1, 2), bias), dwq=np.tensordot(rows.T, dq, 1), dbq=dq.sum(0),
                  dwk=np.tensordot(rows.T, dk, 1), dbk=dk.sum(0), dwv=np.tensordot(rows.T, dv, 1), dbv=dv.sum(0),
                  dwo=np.einsum("phe,pm->hem", o, up), dbo=up.sum(0))
    return {name: each.astype(dtype) for name, each in found.items()}


# ------------------------------------------------------------------------------------------- layers/Compositional dot


def searches_letters(x, wq, bq, wk, bk, wv, bv, ws, bs, wr, br, wo, bo, do, bias=None, keep=None, dropout=None):
    b, t, m = x.shape
    s, d = bq.shape
    add, on, drop = full((b, s, t, t), x.dtype, bias, keep, dropout)
    q, k, sel = (np.einsum("btm,msd->btsd", x, w) + c for w, c in ((wq, bq), (wk, bk), (ws, bs)))
    v = np.einsum("btm,mre->btre", x, wv) + bv
    root = sel.shape[-1] ** -0.5
    l1 = np.where(on, np.einsum("bqsd,bksd->bsqk", q, k) * d ** -0.5 + add, -1e9)
    a = np.exp(l1 - l1.max(-1, keepdims=True)) * on
    a /= np.maximum(a.sum(-1, keepdims=True), 1e-30)
    c = a * drop
    ret = np.einsum("bsqk,bkre->bqsre", c, v)
    key = np.einsum("bqsre,ec->bqsrc", ret, wr) + br
    l2 = np.einsum("bqsc,bqsrc->bqsr", sel, key) * root
    g = np.exp(l2 - l2.max(-1, keepdims=True))
    g /= g.sum(-1, keepdims=True)
    o = np.einsum("bqsr,bqsre->bqse", g, ret)
    y = np.einsum("bqse,sem->bqm", o, wo) + bo
    up = np.einsum("bqm,sem->bqse", do, wo)
    dg = np.einsum("bqse,bqsre->bqsr", up, ret)
    dl = g * (dg - np.einsum("bqsr,bqsr->bqs", g, dg)[..., None]) * root
    dsel = np.einsum("bqsr,bqsrc->bqsc", dl, key)
    dkey = np.einsum("bqsr,bqsc->bqsrc", dl, sel)
    dret = np.einsum("bqsr,bqse->bqsre", g, up) + np.einsum("bqsrc,ec->bqsre", dkey, wr)
    dv = np.einsum("bsqk,bqsre->bkre", c, dret)
    da = np.einsum("bqsre,bkre->bsqk", dret, v) * drop
    ds = a * (da - np.einsum("bsqk,bsqk->bsq", a, da)[..., None])
    dq = np.einsum("bsqk,bksd->bqsd", ds, k) * d ** -0.5
    dk = np.einsum("bsqk,bqsd->bksd", ds, q) * d ** -0.5
    dx = sum(np.einsum("btsd,msd->btm", grad, w) for grad, w in ((dq, wq), (dk, wk), (dv, wv), (dsel, ws)))
    found = {}
    for name, grad in ("q", dq), ("k", dk), ("v", dv), ("s", dsel):
        found["dw" + name], found["db" + name] = np.einsum("btm,btsd->msd", x, grad), grad.sum((0, 1))
    return given(o=y, dx=dx, dbias=fold(ds, bias), **found, dwr=np.einsum("bqsre,bqsrc->ec", ret, dkey),
                 dbr=dkey.sum((0, 1, 2, 3)), dwo=np.einsum("bqse,bqm->sem", o, do), dbo=do.sum((0, 1)))


def searches_loop(x, wq, bq, wk, bk, wv, bv, ws, bs, wr, br, wo, bo, do, bias=None, keep=None, dropout=None):
    """Search by search; the key map is taken into the selector, the key's bias left out."""
    b, t, m = x.shape
    s, d = bq.shape
    r, e_ = bv.shape
    add, on, drop = full((b, s, t, t), x.dtype, bias, keep, dropout)
    flat, up = x.reshape(b * t, m), do.reshape(b * t, m)
    v = (x @ wv.reshape(m, -1) + bv.ravel())
    y, dx, dv, dadd = np.zeros_like(x), np.zeros_like(x), np.zeros_like(v), np.zeros_like(add)
    dwq, dbq, dwk, dbk, dws, dbs, dwr, dwo = (np.zeros_like(w) for w in (wq, bq, wk, bk, ws, bs, wr, wo))
    for i in range(s):
        q, k, sel = x @ wq[:, i] + bq[i], x @ wk[:, i] + bk[i], x @ ws[:, i] + bs[i]
        l1 = np.where(on[:, i], q @ tr(k) / sqrt(d) + add[:, i], -np.inf)
        a = np.exp(l1 - np.maximum(l1.max(-1, keepdims=True), -1e30))
        a = a / np.maximum(a.sum(-1, keepdims=True), 1e-30)
        c = a * drop[:, i]
        ret = (c @ v).reshape(b, t, r, e_)
        u = sel @ wr.T / sqrt(wr.shape[1])
        l2 = (ret @ u[..., None])[..., 0]
        g = np.exp(l2 - l2.max(-1, keepdims=True))
        g = g / g.sum(-1, keepdims=True)
        o = (g[..., None, :] @ ret)[..., 0, :]
        y += o @ wo[i]
        dwo[i] = tr(o.reshape(b * t, e_)) @ up
        back = do @ wo[i].T
        dl = g * ((ret @ back[..., None])[..., 0] - (back * o).sum(-1, keepdims=True))
        dret = g[..., None] * back[..., None, :] + dl[..., None] * u[..., None, :]
        du = (dl[..., None, :] @ ret)[..., 0, :] / sqrt(wr.shape[1])
        dwr += np.tensordot(du, sel, ((0, 1), (0, 1)))
        dret = dret.reshape(b, t, r * e_)
        dv += tr(c) @ dret
        da = dret @ tr(v) * drop[:, i]
        ds = a * (da - (a * da).sum(-1, keepdims=True))
        dadd[:, i] = ds
        for grad, w, dw, db in ((ds @ k / sqrt(d), wq, dwq, dbq), (tr(ds) @ q / sqrt(d), wk, dwk, dbk),
                                (du @ wr, ws, dws, dbs)):
            dx += grad @ w[:, i].T
            dw[:, i], db[i] = flat.T @ grad.reshape(b * t, -1), grad.sum((0, 1))
    dx += dv @ wv.reshape(m, -1).T
    return given(o=y + bo, dx=dx, dbias=fold(dadd, bias), dwq=dwq, dbq=dbq, dwk=dwk, dbk=dbk, dws=dws, dbs=dbs, dwr=dwr,
                 dbr=np.zeros_like(br), dwv=(flat.T @ dv.reshape(b * t, -1)).reshape(wv.shape),
                 dbv=dv.sum((0, 1)).reshape(bv.shape), dwo=dwo, dbo=up.sum(0))


def searches_merged(x, wq, bq, wk, bk, wv, bv, ws, bs, wr, br, wo, bo, do, bias=None, keep=None, dropout=None):
    """All maps of x as one product; a weight for every query, search, key and retrieval, and keys of the values."""
    b, t, m = x.shape
    (s, d), (r, e_), c_ = bq.shape, bv.shape, bs.shape[1]
    add, on, drop = full((b, s, t, t), x.dtype, bias, keep, dropout)
    shapes = (s, d), (s, d), (r, e_), (s, c_)
    cuts = np.cumsum([i * j for i, j in shapes])[:3]
    w = np.concatenate([each.reshape(m, -1) for each in (wq, wk, wv, ws)], 1)
    p = x @ w + np.concatenate([each.ravel() for each in (bq, bk, bv, bs)])
    q, k, v, sel = (each.reshape(b, t, *shape) for each, shape in zip(np.split(p, cuts, -1), shapes, strict=True))
    l1 = np.einsum("bqsd,bksd->bsqk", q, k) / sqrt(d) + add
    a = np.where(on, np.exp(l1 - l1.max(-1, keepdims=True)), 0)
    below = a.sum(-1, keepdims=True)
    a = a / np.where(below == 0, 1, below)
    c = a * drop
    keys = v @ wr
    match = np.einsum("bqsc,bkrc->bsqkr", sel, keys) / sqrt(c_)
    l2 = (c[..., None] * match).sum(3)
    g = np.exp(l2 - l2.max(-1, keepdims=True))
    g /= g.sum(-1, keepdims=True)
    both = c[..., None] * g[..., None, :]
    o = np.einsum("bsqkr,bkre->bqse", both, v)
    y = o.reshape(b, t, -1) @ wo.reshape(-1, m) + bo
    up = (do @ wo.reshape(-1, m).T).reshape(b, t, s, e_)
    dboth = np.einsum("bqse,bkre->bsqkr", up, v)
    dg = (dboth * c[..., None]).sum(3)
    dl = g * (dg - (g * dg).sum(-1, keepdims=True))
    dc = (dboth * g[..., None, :] + match * dl[..., None, :]).sum(-1)
    dmatch = c[..., None] * dl[..., None, :] / sqrt(c_)
    dkeys = np.einsum("bsqkr,bqsc->bkrc", dmatch, sel)
    dv = np.einsum("bsqkr,bqse->bkre", both, up) + dkeys @ wr.T
    dsel = np.einsum("bsqkr,bkrc->bqsc", dmatch, keys)
    ds = a * (dc * drop - (c * dc).sum(-1, keepdims=True))
    dq, dk = np.einsum("bsqk,bksd->bqsd", ds, k) / sqrt(d), np.einsum("bsqk,bqsd->bksd", ds, q) / sqrt(d)
    dp = np.concatenate([each.reshape(b, t, -1) for each in (dq, dk, dv, dsel)], -1)
    dw, db = np.split(np.tensordot(x, dp, 2 * [[0, 1]]), cuts, 1), np.split(dp.sum((0, 1)), cuts)
    found = {}
    for name, each, c0, shape in zip("qkvs", dw, db, shapes, strict=True):
        found["dw" + name], found["db" + name] = each.reshape(m, *shape), c0.reshape(shape)
    return given(o=y, dx=dp @ w.T, dbias=fold(ds, bias), **found, dwr=np.tensordot(v, dkeys, 2 * [[0, 1, 2]]),
                 dbr=np.zeros_like(br), dwo=np.tensordot(o, do, 2 * [[0, 1]]), dbo=do.sum((0, 1)))


def searches_tiles(x, wq, bq, wk, bk, wv, bv, ws, bs, wr, br, wo, bo, do, bias=None, keep=None, dropout=None):
    """Tiles of queries in base 2, whose gradients of all maps are added up tile by tile."""
    b, t, m = x.shape
    s, d = bq.shape
    add, on, drop = full((b, s, t, t), x.dtype, bias, keep, dropout)
    k, v = np.tensordot(x, wk, 1) + bk, np.tensordot(x, wv, 1) + bv
    y, dx, dk, dv, dadd = (np.zeros_like(each) for each in (x, x, k, v, add))
    dwq, dbq, dws, dbs, dwr, dwo, dbo = (np.zeros_like(w) for w in (wq, bq, ws, bs, wr, wo, bo))
    root = wr.shape[1] ** -0.5
    for at in range(0, t, 3):
        i = slice(at, at + 3)
        xi, up = x[:, i], do[:, i]
        q, sel = np.tensordot(xi, wq, 1) + bq, np.tensordot(xi, ws, 1) + bs
        l1 = LOG2E * (np.einsum("bqsd,bksd->bsqk", q, k) / sqrt(d) + add[:, :, i])
        l1 = np.where(on[:, :, i], l1, -1e9)
        p = np.exp2(l1 - l1.max(-1, keepdims=True)) * on[:, :, i]
        a = p / np.maximum(p.sum(-1, keepdims=True), 1e-30)
        ret = np.einsum("bsqk,bkre->bqsre", a * drop[:, :, i], v)
        l2 = LOG2E * root * np.einsum("bqsre,ec,bqsc->bqsr", ret, wr, sel)
        g = np.exp2(l2 - l2.max(-1, keepdims=True))
        g /= g.sum(-1, keepdims=True)
        o = np.einsum("bqsr,bqsre->bqse", g, ret)
        y[:, i] = np.tensordot(o, wo, 2) + bo
        dwo += np.einsum("bqse,bqm->sem", o, up)
        dbo += up.sum((0, 1))
        back = np.tensordot(up, wo, (2, 2))
        dg = np.einsum("bqse,bqsre->bqsr", back, ret)
        dl = root * g * (dg - (g * dg).sum(-1, keepdims=True))
        dsel = np.einsum("bqsr,bqsre,ec->bqsc", dl, ret, wr)
        dwr += np.einsum("bqsr,bqsre,bqsc->ec", dl, ret, sel)
        dret = np.einsum("bqsr,bqse->bqsre", g, back) + np.einsum("bqsr,bqsc,ec->bqsre", dl, sel, wr)
        dv += np.einsum("bsqk,bqsre->bkre", a * drop[:, :, i], dret)
        da = np.einsum("bqsre,bkre->bsqk", dret, v) * drop[:, :, i]
        ds = a * (da - (a * da).sum(-1, keepdims=True))
        dadd[:, :, i] = ds
        dq = np.einsum("bsqk,bksd->bqsd", ds, k) / sqrt(d)
        dk += np.einsum("bsqk,bqsd->bksd", ds, q) / sqrt(d)
        dwq += np.tensordot(xi, dq, 2 * [[0, 1]])
        dws += np.tensordot(xi, dsel, 2 * [[0, 1]])
        dbq += dq.sum((0, 1))
        dbs += dsel.sum((0, 1))
        dx[:, i] = np.tensordot(dq, wq, 2 * [[-1, -2]]) + np.tensordot(dsel, ws, 2 * [[-1, -2]])
    dx += np.einsum("bksd,msd->bkm", dk, wk) + np.einsum("bkre,mre->bkm", dv, wv)
    return given(o=y, dx=dx, dbias=fold(dadd, bias), dwq=dwq, dbq=dbq, dwk=np.tensordot(x, dk, 2 * [[0, 1]]),
                 dbk=dk.sum((0, 1)), dwv=np.tensordot(x, dv, 2 * [[0, 1]]), dbv=dv.sum((0, 1)), dws=dws, dbs=dbs,
                 dwr=dwr, dbr=np.zeros_like(br), dwo=dwo, dbo=dbo)


def searches_double(x, wq, bq, wk, bk, wv, bv, ws, bs, wr, br, wo, bo, do, bias=None, keep=None, dropout=None):
    """Sequence by sequence in float64, both softmaxes through Jacobians."""
    b, t, m = x.shape
    s, d = bq.shape
    add, on, drop = full((b, s, t, t), np.float64, bias, keep, dropout)
    names, given_ = "qkvs", {"q": (wq, bq), "k": (wk, bk), "v": (wv, bv), "s": (ws, bs)}
    w = {name: pair[0].astype(float) for name, pair in given_.items()}
    r64, o64 = wr.astype(float), wo.astype(float)
    found = {"o": np.zeros(x.shape), "dx": np.zeros(x.shape), "dwr": 0, "dbr": np.zeros(br.shape), "dwo": 0,
             "dbo": do.sum((0, 1)), **{f"d{kind}{name}": 0 for kind in "wb" for name in names}}
    dadd = np.zeros(add.shape)
    for i in range(b):
        z, up = x[i].astype(float), np.tensordot(do[i].astype(float), o64, (1, 2))
        q, k, v, sel = (np.tensordot(z, w[name], 1) + given_[name][1] for name in names)
        l1 = np.einsum("qsd,ksd->sqk", q, k) / sqrt(d) + add[i] + np.where(on[i], 0, -np.inf)
        a = np.exp(l1 - l1.max(-1, initial=-1e300, keepdims=True))
        a /= np.maximum(a.sum(-1, keepdims=True), 1e-300)
        ret = np.einsum("sqk,kre->qsre", a * drop[i], v)
        u = sel @ r64.T / sqrt(wr.shape[1])
        l2 = np.einsum("qse,qsre->qsr", u, ret)
        g = np.exp(l2 - l2.max(-1, keepdims=True))
        g /= g.sum(-1, keepdims=True)
        o = np.einsum("qsr,qsre->qse", g, ret)
        dg = np.einsum("qse,qsre->qsr", up, ret)
        dl = np.einsum("qsrt,qst->qsr", g[..., None] * (np.eye(g.shape[-1]) - g[..., None, :]), dg)
        du = np.einsum("qsr,qsre->qse", dl, ret) / sqrt(wr.shape[1])
        dret = g[..., None] * up[..., None, :] + dl[..., None] * u[..., None, :]
        da = np.einsum("qsre,kre->sqk", dret, v) * drop[i]
        ds = dadd[i] = np.einsum("sqkj,sqj->sqk", a[..., None] * (np.eye(t) - a[..., None, :]), da)
        grads = (np.einsum("sqk,ksd->qsd", ds, k) / sqrt(d), np.einsum("sqk,qsd->ksd", ds, q) / sqrt(d),
                 np.einsum("sqk,qsre->kre", a * drop[i], dret), du @ r64)
        for name, grad in zip(names, grads, strict=True):
            found["dw" + name] = found["dw" + name] + np.tensordot(z.T, grad, 1)
            found["db" + name] = found["db" + name] + grad.sum(0)
            found["dx"][i] += np.tensordot(grad, w[name], 2 * [[1, 2]])
        found["dwr"] = found["dwr"] + np.einsum("qse,qsc->ec", du, sel)
        found["dwo"] = found["dwo"] + np.einsum("qse,qm->sem", o, do[i])
        found["o"][i] = np.tensordot(o, o64, 2) + bo
    return {name: each.astype(x.dtype) for name, each in given(**found, dbias=fold(dadd, bias)).items()}


# ---------------------------------------------------------------------------------------------- layers/SlidingDilated


def pad_as_token(x, wq, wk, wv, offset_bias, pad, wo, do, bias=None, keep=None, dropout=None):
    """The pad as four tokens before the first, projected with the others."""
    b, t, m = x.shape
    h, d, chunk = *wq.shape[1:], offset_bias.shape[1]
    add, on, drop = full((b, h, t, chunk), x.dtype, bias, keep, dropout)
    front = 2 * (chunk - 1)
    xp = np.concatenate([np.broadcast_to(pad, (b, front, m)), x], 1)
    q, k, v = np.tensordot(x, wq, 1), np.tensordot(xp, wk, 1), np.tensordot(xp, wv, 1)
    at = front + np.arange(t)[:, None] - 2 * np.arange(chunk)
    s = np.einsum("bqhd,bqwhd->bhqw", q, k[:, at]) / sqrt(d) + offset_bias[:, None] + add
    a = np.exp(s - s.max(-1, keepdims=True)) * on
    a = a / np.maximum(a.sum(-1, keepdims=True), 1e-30)
    c = a * drop
    o = np.einsum("bhqw,bqwhe->bqhe", c, v[:, at])
    g = np.tensordot(do, wo, (2, 2))
    da = np.einsum("bqhe,bqwhe->bhqw", g, v[:, at]) * drop
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dq = np.einsum("bhqw,bqwhd->bqhd", ds, k[:, at]) / sqrt(d)
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    np.add.at(dk, (slice(None), at), np.einsum("bhqw,bqhd->bqwhd", ds, q) / sqrt(d))
    np.add.at(dv, (slice(None), at), np.einsum("bhqw,bqhe->bqwhe", c, g))
    dxp = np.einsum("bthd,mhd->btm", dk, wk) + np.einsum("bthe,mhe->btm", dv, wv)
    dx = dxp[:, front:] + np.einsum("bthd,mhd->btm", dq, wq)
    return given(o=np.tensordot(o, wo, 2), dx=dx, dbias=fold(ds, bias), dwq=np.tensordot(x, dq, 2 * [[0, 1]]),
                 dwk=np.tensordot(xp, dk, 2 * [[0, 1]]), dwv=np.tensordot(xp, dv, 2 * [[0, 1]]),
                 doffset_bias=ds.sum((0, 2)), dpad=dxp[:, :front].sum((0, 1)),
                 dwo=np.einsum("bqhe,bqm->hem", o, do))


def pad_by_offset(x, wq, wk, wv, offset_bias, pad, wo, do, bias=None, keep=None, dropout=None):
    """Offset by offset with running statistics; the pad's key and value are made once."""
    b, t, m = x.shape
    h, d, chunk = *wq.shape[1:], offset_bias.shape[1]
    add, on, drop = full((b, h, t, chunk), x.dtype, bias, keep, dropout)
    q, k, v = heads_first(*(np.einsum("btm,mhd->bthd", x, w) for w in (wq, wk, wv)))
    pk, pv = np.einsum("m,mhd->hd", pad, wk), np.einsum("m,mhe->he", pad, wv)

    def shifted(each, front, j):
        first = np.broadcast_to(front[:, None], (b, h, min(2 * j, t), front.shape[1]))
        return np.concatenate([first, each[:, :, :t - 2 * j]], 2)

    top, total, acc = np.full((b, h, t, 1), -1e30, x.dtype), np.zeros((b, h, t, 1), x.dtype), np.zeros_like(v)
    scores = []
    for j in range(chunk):
        s = (q * shifted(k, pk, j)).sum(-1, keepdims=True) * d ** -0.5 + offset_bias[:, j, None, None]
        s = np.where(on[..., j, None], s + add[..., j, None], -np.inf)
        new = np.maximum(top, s)
        acc = acc * np.exp(top - new) + np.exp(s - new) * drop[..., j, None] * shifted(v, pv, j)
        total = total * np.exp(top - new) + np.exp(s - new)
        top = new
        scores.append(s)
    total = np.where(total == 0, 1, total)
    o = acc / total
    y = np.einsum("bhte,hem->btm", o, wo)
    g = np.einsum("btm,hem->bhte", do, wo)
    delta = (g * o).sum(-1, keepdims=True)
    dq, dk, dv, dadd = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v), np.zeros_like(add)
    dpk, dpv, dr = np.zeros_like(pk), np.zeros_like(pv), np.zeros_like(offset_bias)
    for j in range(chunk):
        a = np.exp(scores[j] - top) / total
        ds = a * ((g * shifted(v, pv, j)).sum(-1, keepdims=True) * drop[..., j, None] - delta)
        dadd[..., j], dr[:, j] = ds[..., 0], ds.sum((0, 2, 3))
        dq += ds * shifted(k, pk, j) * d ** -0.5
        gk, gv = ds * q * d ** -0.5, a * drop[..., j, None] * g
        dk[:, :, :t - 2 * j] += gk[:, :, 2 * j:]
        dv[:, :, :t - 2 * j] += gv[:, :, 2 * j:]
        dpk += gk[:, :, :2 * j].sum((0, 2))
        dpv += gv[:, :, :2 * j].sum((0, 2))
    dx = sum(np.einsum("bhtd,mhd->btm", grad, w) for grad, w in ((dq, wq), (dk, wk), (dv, wv)))
    dwq, dwk, dwv = (np.einsum("btm,bhtd->mhd", x, grad) for grad in (dq, dk, dv))
    return given(o=y, dx=dx, dbias=fold(dadd, bias), dwq=dwq, dwk=dwk + np.einsum("m,hd->mhd", pad, dpk),
                 dwv=dwv + np.einsum("m,he->mhe", pad, dpv), doffset_bias=dr,
                 dpad=np.einsum("hd,mhd->m", dpk, wk) + np.einsum("he,mhe->m", dpv, wv),
                 dwo=np.einsum("bhte,btm->hem", o, do))


def pad_loops(x, wq, wk, wv, offset_bias, pad, wo, do, bias=None, keep=None, dropout=None):
    """Query by query in float64; the rows that a query sees are gathered from x and the pad before they are mapped."""
    b, t, m = x.shape
    h, d, chunk = *wq.shape[1:], offset_bias.shape[1]
    add, on, drop = full((b, h, t, chunk), np.float64, bias, keep, dropout)
    q_, k_, v_, r_, o_ = (w.astype(float) for w in (wq, wk, wv, offset_bias, wo))
    y, dx, dpad, dadd = np.zeros(x.shape), np.zeros(x.shape), np.zeros(m), np.zeros(add.shape)
    dwq, dwk, dwv, dr, dwo = (np.zeros_like(w) for w in (q_, k_, v_, r_, o_))
    for i, j in np.ndindex(b, t):
        places = [j - 2 * w for w in range(chunk)]
        seen = np.stack([x[i, p] if p >= 0 else pad for p in places]).astype(float)
        q, k, v = np.tensordot(x[i, j], q_, 1), np.tensordot(seen, k_, 1), np.tensordot(seen, v_, 1)
        s = np.einsum("hd,whd->hw", q, k) / sqrt(d) + r_ + add[i, :, j]
        a = np.exp(s - s.max(-1, keepdims=True)) * on[i, :, j]
        a /= np.maximum(a.sum(-1, keepdims=True), 1e-300)
        c = a * drop[i, :, j]
        o = np.einsum("hw,whe->he", c, v)
        y[i, j] = np.tensordot(o, o_, 2)
        dwo += np.multiply.outer(o, do[i, j])
        g = o_ @ do[i, j]
        da = np.einsum("he,whe->hw", g, v) * drop[i, :, j]
        ds = a * (da - (a * da).sum(-1, keepdims=True))
        dadd[i, :, j] = ds
        dr += ds
        dq, dk = np.einsum("hw,whd->hd", ds, k) / sqrt(d), np.einsum("hw,hd->whd", ds, q) / sqrt(d)
        dv = np.einsum("hw,he->whe", c, g)
        dwq += np.multiply.outer(x[i, j], dq)
        dwk += np.tensordot(seen.T, dk, 1)
        dwv += np.tensordot(seen.T, dv, 1)
        dx[i, j] += np.tensordot(q_, dq, 2)
        dseen = np.tensordot(dk, k_, 2 * [[1, 2]]) + np.tensordot(dv, v_, 2 * [[1, 2]])
        for w, p in enumerate(places):
            if p >= 0:
                dx[i, p] += dseen[w]
            else:
                dpad += dseen[w]
    found = given(o=y, dx=dx, dbias=fold(dadd, bias), dwq=dwq, dwk=dwk, dwv=dwv, doffset_bias=dr, dpad=dpad, dwo=dwo)
    return {name: each.astype(x.dtype) for name, each in found.items()}


def sliding_layer_matrix(x, wq, bq, wk, bk, wv, bv, offset_bias, wo, bo, do, bias=None, keep=None, dropout=None):
    """All positions against all under a mask."""
    b, t, m = x.shape
    h, d = bq.shape
    chunk = offset_bias.shape[1]
    add, on, drop = full((b, h, t, chunk), x.dtype, bias, keep, dropout)
    q, k, v = (np.einsum("btm,mhd->bthd", x, w) + c for w, c in ((wq, bq), (wk, bk), (wv, bv)))
    back = np.arange(t)[:, None] - np.arange(t)
    allowed = (back >= 0) & (back < 2 * chunk) & (back % 2 == 0)
    j, rows = (back // 2).clip(0, chunk - 1), np.arange(t)[:, None]
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * d ** -0.5 + offset_bias[:, j] + add[:, :, rows, j]
    s = np.where(allowed & on[:, :, rows, j], s, -np.inf)
    a = np.exp(s - np.maximum(s.max(-1, keepdims=True), -1e30))
    a = a / np.maximum(a.sum(-1, keepdims=True), 1e-30)
    factor = drop[:, :, rows, j]
    o = np.einsum("bhqk,bkhe->bqhe", a * factor, v)
    y = np.einsum("bqhe,hem->bqm", o, wo) + bo
    g = np.einsum("bqm,hem->bqhe", do, wo)
    dv = np.einsum("bhqk,bqhe->bkhe", a * factor, g)
    da = np.einsum("bqhe,bkhe->bhqk", g, v) * factor
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    hit = (allowed[..., None] & (j[..., None] == np.arange(chunk))).astype(x.dtype)
    dadd = np.einsum("bhqk,qkw->bhqw", ds, hit)
    dq, dk = np.einsum("bhqk,bkhd->bqhd", ds, k) * d ** -0.5, np.einsum("bhqk,bqhd->bkhd", ds, q) * d ** -0.5
    dx = sum(np.einsum("bthd,mhd->btm", grad, w) for grad, w in ((dq, wq), (dk, wk), (dv, wv)))
    dwq, dwk, dwv = (np.einsum("btm,bthd->mhd", x, grad) for grad in (dq, dk, dv))
    return given(o=y, dx=dx, dbias=fold(dadd, bias), dwq=dwq, dbq=dq.sum((0, 1)), dwk=dwk, dbk=dk.sum((0, 1)), dwv=dwv,
                 dbv=dv.sum((0, 1)), doffset_bias=dadd.sum((0, 2)), dwo=np.einsum("bqhe,bqm->hem", o, do),
                 dbo=do.sum((0, 1)))


def sliding_layer_heads(x, wq, bq, wk, bk, wv, bv, offset_bias, wo, bo, do, bias=None, keep=None, dropout=None):
    """Head by head, with the even and the odd positions as two sequences in which a window is dense."""
    b, t, m = x.shape
    h, d = bq.shape
    chunk = offset_bias.shape[1]
    add, on, drop = full((b, h, t, chunk), x.dtype, bias, keep, dropout)
    y, dx, dadd = np.zeros_like(x) + bo, np.zeros_like(x), np.zeros_like(add)
    dwq, dbq, dwk, dbk, dwv, dbv, dr, dwo = (np.zeros_like(w) for w in (wq, bq, wk, bk, wv, bv, offset_bias, wo))
    for i in range(h):
        for parity in range(2):
            z, up = x[:, parity::2], do[:, parity::2]
            q, k, v = (z @ w[:, i] + c[i] for w, c in ((wq, bq), (wk, bk), (wv, bv)))
            n = z.shape[1]
            plus, live, factor = add[:, i, parity::2], on[:, i, parity::2], drop[:, i, parity::2]
            at = np.arange(n)[:, None] - np.arange(chunk)
            near = np.maximum(at, 0)
            s = np.einsum("bqd,bqwd->bqw", q, k[:, near]) / sqrt(d) + offset_bias[i] + plus
            s = np.where((at >= 0) & live, s, -1e9)
            a = np.exp(s - s.max(-1, keepdims=True)) * ((at >= 0) & live)
            a = a / np.maximum(a.sum(-1, keepdims=True), 1e-30)
            o = np.einsum("bqw,bqwe->bqe", a * factor, v[:, near])
            y[:, parity::2] += o @ wo[i]
            dwo[i] += np.einsum("bqe,bqm->em", o, up)
            g = up @ wo[i].T
            da = np.einsum("bqe,bqwe->bqw", g, v[:, near]) * factor
            ds = a * (da - (a * da).sum(-1, keepdims=True))
            dadd[:, i, parity::2] = ds
            dr[i] += ds.sum((0, 1))
            dq, dk, dv = np.einsum("bqw,bqwd->bqd", ds, k[:, near]) / sqrt(d), np.zeros_like(k), np.zeros_like(v)
            for j in range(chunk):
                dk[:, :max(n - j, 0)] += ds[:, j:, j, None] * q[:, j:] / sqrt(d)
                dv[:, :max(n - j, 0)] += (a * factor)[:, j:, j, None] * g[:, j:]
            for grad, w, dw, db in (dq, wq, dwq, dbq), (dk, wk, dwk, dbk), (dv, wv, dwv, dbv):
                dx[:, parity::2] += grad @ w[:, i].T
                dw[:, i] += np.einsum("btm,btd->md", z, grad)
                db[i] += grad.sum((0, 1))
    return given(o=y, dx=dx, dbias=fold(dadd, bias), dwq=dwq, dbq=dbq, dwk=dwk, dbk=dbk, dwv=dwv, dbv=dbv,
                 doffset_bias=dr, dwo=dwo, dbo=do.sum((0, 1)))
