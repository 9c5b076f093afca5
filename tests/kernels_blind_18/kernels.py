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
