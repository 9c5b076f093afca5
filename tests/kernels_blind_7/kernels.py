"""Kernels with their backwards in NumPy; `rows` says of which page each is, and which mistakes are put into them."""

import numpy as np
from numpy import einsum, exp, sqrt


def widened(*arrays):
    """Half precision as float32, in which these kernels compute."""
    return [x.astype(np.float32) if x is not None and x.dtype == np.float16 else x for x in arrays]


def folded(ds, shape):
    """The gradient of what was broadcast from `shape`."""
    extra = ds.ndim - len(shape)
    ds = ds.sum(axis=tuple(range(extra)))
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and ds.shape[i] > 1)
    return ds.sum(axis=axes, keepdims=True) if axes else ds


# softmax


def softmax_plain(q, k, v, do=None, bias=None, keep=None, dropout=None, causal=False):
    """Softmax attention line by line, with every option."""
    q, k, v, do, bias, dropout = widened(q, k, v, do, bias, dropout)
    scale = 1 / q.shape[-1] ** 0.5
    s = einsum("bqhd,bkhd->bhqk", q, k) * scale
    if bias is not None:
        s = s + bias
    mask = np.ones(s.shape, bool)
    if keep is not None:
        mask &= keep
    if causal:
        mask &= np.tril(np.ones(s.shape[2:], bool), s.shape[3] - s.shape[2])
    s = np.where(mask, s, -np.inf)
    m = s.max(-1, keepdims=True)
    m = np.where(np.isfinite(m), m, 0)
    e = exp(s - m)
    l = e.sum(-1, keepdims=True)
    p = e / np.where(l == 0, 1, l)
    pd = p if dropout is None else p * dropout
    o = einsum("bhqk,bkhe->bqhe", pd, v)
    dv = einsum("bhqk,bqhe->bkhe", pd, do)
    dpd = einsum("bqhe,bkhe->bhqk", do, v)
    dp = dpd if dropout is None else dpd * dropout
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    dq = einsum("bhqk,bkhd->bqhd", ds, k) * scale
    dk = einsum("bhqk,bqhd->bkhd", ds, q) * scale
    if bias is None:
        return o, dq, dk, dv
    return o, dq, dk, dv, folded(ds, bias.shape)


def softmax_flash(q, k, v, do=None, bias=None, keep=None, dropout=None, BQ=2, BK=3, lse_out=False):
    """By tiles with a running maximum; the backward has the logarithm of the sum and D = rowsum(do * o)."""
    q, k, v, do, bias, dropout = widened(q, k, v, do, bias, dropout)
    B, Q, H, d = q.shape
    K, e = k.shape[1], v.shape[3]
    scale = 1.0 / float(np.sqrt(d))
    full = (B, H, Q, K)
    bb = None if bias is None else np.broadcast_to(bias, full)
    kk = None if keep is None else np.broadcast_to(keep, full)
    dd = None if dropout is None else np.broadcast_to(dropout, full)
    o = np.zeros((B, Q, H, e), q.dtype)
    lse = np.zeros((B, H, Q), q.dtype)
    for b in range(B):
        for h in range(H):
            for i in range(0, Q, BQ):
                qi = q[b, i:i + BQ, h] * scale
                m = np.full(len(qi), -np.inf, q.dtype)
                l = np.zeros(len(qi), q.dtype)
                acc = np.zeros((len(qi), e), q.dtype)
                for j in range(0, K, BK):
                    s = qi @ k[b, j:j + BK, h].T
                    if bb is not None:
                        s = s + bb[b, h, i:i + BQ, j:j + BK]
                    if kk is not None:
                        s = np.where(kk[b, h, i:i + BQ, j:j + BK], s, -np.inf)
                    m_new = np.maximum(m, s.max(1))
                    m_safe = np.where(np.isinf(m_new), 0, m_new).astype(q.dtype)
                    alpha = exp(m - m_safe)
                    p = exp(s - m_safe[:, None])
                    l = l * alpha + p.sum(1)
                    acc = acc * alpha[:, None]
                    if dd is not None:
                        p = p * dd[b, h, i:i + BQ, j:j + BK]
                    acc = acc + p @ v[b, j:j + BK, h]
                    m = m_new
                l_safe = np.where(l == 0, 1, l)
                o[b, i:i + BQ, h] = acc / l_safe[:, None]
                lse[b, h, i:i + BQ] = np.where(l == 0, -np.inf, np.where(np.isinf(m), 0, m) + np.log(l_safe))
    D = (do * o).sum(-1).transpose(0, 2, 1)
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    dbias = None if bias is None else np.zeros(full, q.dtype)
    for b in range(B):
        for h in range(H):
            for j in range(0, K, BK):
                kj, vj = k[b, j:j + BK, h], v[b, j:j + BK, h]
                dkj, dvj = np.zeros_like(kj), np.zeros_like(vj)
                for i in range(0, Q, BQ):
                    qi, doi = q[b, i:i + BQ, h], do[b, i:i + BQ, h]
                    s = qi @ kj.T * scale
                    if bb is not None:
                        s = s + bb[b, h, i:i + BQ, j:j + BK]
                    li = lse[b, h, i:i + BQ]
                    p = exp(s - np.where(np.isinf(li), 0, li)[:, None])
                    if kk is not None:
                        p = np.where(kk[b, h, i:i + BQ, j:j + BK], p, 0)
                    dp = doi @ vj.T
                    if dd is None:
                        dvj += p.T @ doi
                    else:
                        z = dd[b, h, i:i + BQ, j:j + BK]
                        dvj += (p * z).T @ doi
                        dp = dp * z
                    ds = p * (dp - D[b, h, i:i + BQ, None])
                    dq[b, i:i + BQ, h] += ds @ kj * scale
                    dkj += ds.T @ qi * scale
                    if dbias is not None:
                        dbias[b, h, i:i + BQ, j:j + BK] = ds
                dk[b, j:j + BK, h] = dkj
                dv[b, j:j + BK, h] = dvj
    if lse_out:
        return {"o": o, "dq": dq, "dk": dk, "dv": dv, "lse": lse}
    if bias is not None:
        return o, dq, dk, dv, folded(dbias, bias.shape)
    return o, dq, dk, dv


def softmax_exp2(q, k, v, do=None, bias=None):
    """Products of matrices and powers of 2, layout bhtd."""
    q, k, v, do, bias = widened(q, k, v, do, bias)
    LOG2E = 1.4426950408889634
    sm = q.shape[-1] ** -0.5
    s = (q @ np.swapaxes(k, -1, -2)) * (sm * LOG2E)
    if bias is not None:
        s = s + bias * LOG2E
    p = np.exp2(s - s.max(axis=-1, keepdims=True))
    p = p / p.sum(axis=-1, keepdims=True)
    o = p @ v
    dv = np.swapaxes(p, -1, -2) @ do
    dp = do @ np.swapaxes(v, -1, -2)
    delta = (o * do).sum(axis=-1, keepdims=True)
    ds = p * (dp - delta)
    dq = sm * (ds @ k)
    dk = sm * (np.swapaxes(ds, -1, -2) @ q)
    if bias is None:
        return o, dq, dk, dv
    return o, dq, dk, dv, folded(ds, bias.shape)


def softmax_packed(q, k, v, do=None):
    """Heads side by side in the feature axis, (b, t, h * d), as linear layers leave them; arrays changed in place."""
    q, k, v, do = widened(q, k, v, do)
    B, Q, H, d = q.shape
    K, e = k.shape[1], v.shape[-1]
    qp, kp, vp, dop = q.reshape(B, Q, H * d), k.reshape(B, K, H * d), v.reshape(B, K, H * e), do.reshape(B, Q, H * e)
    o, dq, dk, dv = np.empty_like(dop), np.empty_like(qp), np.empty_like(kp), np.empty_like(vp)
    for h in range(H):
        a, c = slice(h * d, (h + 1) * d), slice(h * e, (h + 1) * e)
        s = np.matmul(qp[..., a], kp[..., a].transpose(0, 2, 1)) / float(sqrt(d))
        s -= s.max(2, keepdims=True)
        exp(s, out=s)
        s /= s.sum(2, keepdims=True)
        o[..., c] = s @ vp[..., c]
        dv[..., c] = s.transpose(0, 2, 1) @ dop[..., c]
        g = dop[..., c] @ vp[..., c].transpose(0, 2, 1)
        g -= (g * s).sum(2, keepdims=True)
        g *= s
        g /= float(sqrt(d))
        dq[..., a] = g @ kp[..., a]
        dk[..., a] = g.transpose(0, 2, 1) @ qp[..., a]
    return o.reshape(do.shape), dq.reshape(q.shape), dk.reshape(k.shape), dv.reshape(v.shape)


def softmax_split_keys(q, k, v, do=None, SPLITS=3):
    """Keys in splits, each with its logarithm of the sum, merged; the backward by splits from the merged one."""
    q, k, v, do = widened(q, k, v, do)
    scale = float(q.shape[-1] ** -0.5)
    parts = np.array_split(np.arange(k.shape[1]), SPLITS)
    os, ls = [], []
    for part in parts:
        s = einsum("bqhd,bkhd->bqhk", q, k[:, part]) * scale
        m = s.max(-1)
        p = exp(s - m[..., None])
        z = p.sum(-1)
        os.append(einsum("bqhk,bkhe->bqhe", p, v[:, part]) / z[..., None])
        ls.append(m + np.log(z))
    ls = np.stack(ls)
    top = ls.max(0)
    lse = top + np.log(exp(ls - top).sum(0))
    w = exp(ls - lse)
    o = sum(w[i][..., None] * os[i] for i in range(SPLITS))
    delta = (o * do).sum(-1)
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for part in parts:
        p = exp(einsum("bqhd,bkhd->bqhk", q, k[:, part]) * scale - lse[..., None])
        dv[:, part] = einsum("bqhk,bqhe->bkhe", p, do)
        ds = p * (einsum("bqhe,bkhe->bqhk", do, v[:, part]) - delta[..., None]) * scale
        dq += einsum("bqhk,bkhd->bqhd", ds, k[:, part])
        dk[:, part] = einsum("bqhk,bqhd->bkhd", ds, q)
    return o, dq, dk, dv


def softmax_strided(q, k, v, do=None):
    """Answers in Fortran's order or with a negative stride."""
    o, dq, dk, dv = softmax_plain(q, k, v, do)
    return np.asfortranarray(o), dq[:, ::-1].copy()[:, ::-1], np.asfortranarray(dk), dv.astype(v.dtype)


# linear


def linear_plain(q, k, v, do=None, bias=None, keep=None, dropout=None, causal=False):
    """Linear attention line by line, with every option."""
    q, k, v, do, bias, dropout = widened(q, k, v, do, bias, dropout)
    c = float(q.shape[-1] ** -0.5)
    s = einsum("bqhd,bkhd->bhqk", q, k) * c
    if bias is not None:
        s = s + bias
    w = np.ones((), q.dtype)
    if keep is not None:
        w = w * keep.astype(q.dtype)
    if causal:
        w = w * np.tril(np.ones(s.shape[2:], q.dtype), s.shape[3] - s.shape[2])
    if dropout is not None:
        w = w * dropout
    a = s * w
    o = einsum("bhqk,bkhe->bqhe", a, v)
    dv = einsum("bhqk,bqhe->bkhe", a, do)
    ds = einsum("bqhe,bkhe->bhqk", do, v) * w
    dq = einsum("bhqk,bkhd->bqhd", ds, k) * c
    dk = einsum("bhqk,bqhd->bkhd", ds, q) * c
    return (o, dq, dk, dv) if bias is None else (o, dq, dk, dv, folded(ds, bias.shape))


def linear_kv_first(q, k, v, do=None):
    """Without a mask: keys times values first."""
    q, k, v, do = widened(q, k, v, do)
    c = float(q.shape[-1] ** -0.5)
    kv = einsum("bkhd,bkhe->bhde", k, v)
    o = einsum("bqhd,bhde->bqhe", q, kv) * c
    dq = einsum("bqhe,bhde->bqhd", do, kv) * c
    dkv = einsum("bqhd,bqhe->bhde", q, do) * c
    dk = einsum("bkhe,bhde->bkhd", v, dkv)
    dv = einsum("bkhd,bhde->bkhe", k, dkv)
    return o, dq, dk, dv


def linear_chunked(q, k, v, do=None, C=2):
    """Causal, in chunks of C with a state: query i sees the keys up to i + K - Q."""
    q, k, v, do = widened(q, k, v, do)
    B, Q, H, d = q.shape
    K = k.shape[1]
    off = K - Q
    c = float(d ** -0.5)
    S = einsum("bkhd,bkhe->bhde", k[:, :off], v[:, :off])
    o = np.zeros(do.shape, q.dtype)
    dq = np.zeros_like(q)
    for i in range(0, Q, C):
        qi, doi = q[:, i:i + C], do[:, i:i + C]
        ki, vi = k[:, off + i:off + i + C], v[:, off + i:off + i + C]
        M = np.tril(np.ones((qi.shape[1], qi.shape[1]), q.dtype))
        A = einsum("bqhd,bkhd->bhqk", qi, ki) * M
        o[:, i:i + C] = c * (einsum("bqhd,bhde->bqhe", qi, S) + einsum("bhqk,bkhe->bqhe", A, vi))
        G = einsum("bqhe,bkhe->bhqk", doi, vi) * M
        dq[:, i:i + C] = c * (einsum("bqhe,bhde->bqhd", doi, S) + einsum("bhqk,bkhd->bqhd", G, ki))
        S = S + einsum("bkhd,bkhe->bhde", ki, vi)
    dS = np.zeros_like(S)
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    for i in reversed(range(0, Q, C)):
        qi, doi = q[:, i:i + C], do[:, i:i + C]
        ki, vi = k[:, off + i:off + i + C], v[:, off + i:off + i + C]
        M = np.tril(np.ones((qi.shape[1], qi.shape[1]), q.dtype))
        A = einsum("bqhd,bkhd->bhqk", qi, ki) * M
        G = einsum("bqhe,bkhe->bhqk", doi, vi) * M
        dk[:, off + i:off + i + C] = einsum("bkhe,bhde->bkhd", vi, dS) + c * einsum("bhqk,bqhd->bkhd", G, qi)
        dv[:, off + i:off + i + C] = einsum("bkhd,bhde->bkhe", ki, dS) + c * einsum("bhqk,bqhe->bkhe", A, doi)
        dS = dS + c * einsum("bqhd,bqhe->bhde", qi, doi)
    dk[:, :off] = einsum("bkhe,bhde->bkhd", v[:, :off], dS)
    dv[:, :off] = einsum("bkhd,bhde->bkhe", k[:, :off], dS)
    return o, dq, dk, dv


def linear_recurrent(q, k, v, state, do=None, dend=None):
    """From a state, token by token."""
    q, k, v, state, do, dend = widened(q, k, v, state, do, dend)
    c = float(q.shape[-1] ** -0.5)
    T = q.shape[1]
    S = state.copy()
    states = []
    o = np.zeros(do.shape, q.dtype)
    for t in range(T):
        S = S + einsum("bhd,bhe->bhde", k[:, t], v[:, t])
        states.append(S)
        o[:, t] = einsum("bhd,bhde->bhe", q[:, t] * c, S)
    end = S
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    dS = dend.copy()
    for t in reversed(range(T)):
        dq[:, t] = c * einsum("bhe,bhde->bhd", do[:, t], states[t])
        dS += c * einsum("bhd,bhe->bhde", q[:, t], do[:, t])
        dk[:, t] = einsum("bhde,bhe->bhd", dS, v[:, t])
        dv[:, t] = einsum("bhde,bhd->bhe", dS, k[:, t])
    return o, end, dq, dk, dv, dS


# hyla


def hyla_plain(q, k, v, do=None, bias=None, keep=None, dropout=None, causal=False):
    """HYLA line by line, with every option."""
    q, k, v, do, bias, dropout = widened(q, k, v, do, bias, dropout)
    scale = float(q.shape[-1] ** -0.5)
    s = einsum("bqhd,bkhd->bhqk", q, k) * scale
    if bias is not None:
        s = s + bias
    if causal:
        tri = np.tril(np.ones(s.shape[2:], bool), s.shape[3] - s.shape[2])
        keep = tri if keep is None else keep & tri
    if keep is not None:
        s = np.where(keep, s, 0)
    r = 1 / sqrt((s * s).mean(1, keepdims=True) + 1e-6)
    a = s * r
    c = a if dropout is None else a * dropout
    z = einsum("bhqk,bkhe->bqke", c, v)
    g = np.maximum(z, 0)
    o = einsum("bhqk,bqke->bqhe", c, g)
    dg = einsum("bhqk,bqhe->bqke", c, do)
    dc = einsum("bqhe,bqke->bhqk", do, g)
    dz = np.where(z > 0, dg, 0)
    dc = dc + einsum("bqke,bkhe->bhqk", dz, v)
    dv = einsum("bhqk,bqke->bkhe", c, dz)
    da = dc if dropout is None else dc * dropout
    ds = r * (da - a * (a * da).mean(1, keepdims=True))
    if keep is not None:
        ds = np.where(keep, ds, 0)
    dq = einsum("bhqk,bkhd->bqhd", ds, k) * scale
    dk = einsum("bhqk,bqhd->bkhd", ds, q) * scale
    return (o, dq, dk, dv) if bias is None else (o, dq, dk, dv, folded(ds, bias.shape))


def hyla_tiled(q, k, v, do=None, bias=None, BQ=4, BK=2):
    """A tile of queries and keys with all heads at a time, made again in the backward; RMSHead's backward unfolded."""
    q, k, v, do, bias = widened(q, k, v, do, bias)
    B, H, Q, d = q.shape
    K = k.shape[2]
    scale = float(d) ** -0.5
    bb = None if bias is None else np.broadcast_to(bias, (B, H, Q, K))
    o, dq, dk, dv = np.zeros(do.shape, q.dtype), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    db = np.zeros((B, H, Q, K), q.dtype)
    for i in range(0, Q, BQ):
        I = slice(i, i + BQ)
        for j in range(0, K, BK):
            J = slice(j, j + BK)
            s = q[:, :, I] @ k[:, :, J].swapaxes(2, 3) * scale
            if bb is not None:
                s = s + bb[:, :, I, J]
            rho = (np.square(s).sum(1, keepdims=True) / H + 1e-6) ** -0.5
            a = s * rho
            z = (a[..., None] * v[:, :, None, J]).sum(1)
            relu = np.where(z > 0, z, 0)
            o[:, :, I] += einsum("bhqk,bqke->bhqe", a, relu)
    for i in range(0, Q, BQ):
        I = slice(i, i + BQ)
        for j in range(0, K, BK):
            J = slice(j, j + BK)
            s = q[:, :, I] @ k[:, :, J].swapaxes(2, 3) * scale
            if bb is not None:
                s = s + bb[:, :, I, J]
            rho = (np.square(s).sum(1, keepdims=True) / H + 1e-6) ** -0.5
            a = s * rho
            z = (a[..., None] * v[:, :, None, J]).sum(1)
            dgate = (a[..., None] * do[:, :, I, None]).sum(1) * (z > 0)
            da = einsum("bhqe,bqke->bhqk", do[:, :, I], np.where(z > 0, z, 0))
            da += einsum("bqke,bhke->bhqk", dgate, v[:, :, J])
            dv[:, :, J] += einsum("bhqk,bqke->bhke", a, dgate)
            ds = da * rho - s * rho ** 3 * (s * da).sum(1, keepdims=True) / H
            db[:, :, I, J] = ds
            dq[:, :, I] += ds @ k[:, :, J] * scale
            dk[:, :, J] += ds.swapaxes(2, 3) @ q[:, :, I] * scale
    return (o, dq, dk, dv) if bias is None else (o, dq, dk, dv, folded(db, bias.shape))


def hyla_per_query(q, k, v, do=None, keep=None):
    """One query at a time: codes (k, h) times values (k, h, e) as products of vectors and matrices."""
    q, k, v, do = widened(q, k, v, do)
    B, Q, H, d = q.shape
    K = k.shape[1]
    f = d ** -0.5
    kp = None if keep is None else np.broadcast_to(keep, (B, H, Q, K))
    o, dq, dk, dv = np.zeros(do.shape, q.dtype), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for b in range(B):
        for i in range(Q):
            s = (k[b] * (q[b, i] * f)).sum(-1)
            if kp is not None:
                s = s * kp[b, :, i].T
            n = sqrt((s ** 2).mean(1, keepdims=True) + 1e-6)
            a = s / n
            z = (a[:, None, :] @ v[b])[:, 0]
            g = z * (z > 0)
            o[b, i] = a.T @ g
            dg = a @ do[b, i]
            da = g @ do[b, i].T
            dz = dg * (z > 0)
            da = da + (v[b] @ dz[:, :, None])[..., 0]
            dv[b] += a[:, :, None] * dz[:, None, :]
            ds = (da - a * (a * da).mean(1, keepdims=True)) / n
            if kp is not None:
                ds = ds * kp[b, :, i].T
            dq[b, i] = (ds[..., None] * k[b]).sum(0) * f
            dk[b] += ds[..., None] * q[b, i] * f
    return o, dq, dk, dv


# ablations


def rms_and_back(s):
    """RMSHead and its backward."""
    r = (np.mean(s * s, axis=1, keepdims=True) + 1e-6) ** -0.5
    a = s * r
    return a, lambda da: r * (da - a * np.mean(a * da, axis=1, keepdims=True))


def softmax_and_back(s, axis=-1):
    """Softmax and its backward."""
    p = exp(s - s.max(axis, keepdims=True))
    p = p / p.sum(axis, keepdims=True)
    return p, lambda dp: p * (dp - (p * dp).sum(axis, keepdims=True))


def linear_rms(q, k, v, do=None, bias=None):
    """Linear attention with RMSHead."""
    q, k, v, do, bias = widened(q, k, v, do, bias)
    f = float(q.shape[-1] ** -0.5)
    s = einsum("bqhd,bkhd->bhqk", q, k) * f
    s = s if bias is None else s + bias
    a, back = rms_and_back(s)
    o = einsum("bhqk,bkhe->bqhe", a, v)
    dv = einsum("bhqk,bqhe->bkhe", a, do)
    ds = back(einsum("bqhe,bkhe->bhqk", do, v))
    dq, dk = einsum("bhqk,bkhd->bqhd", ds, k) * f, einsum("bhqk,bqhd->bkhd", ds, q) * f
    return (o, dq, dk, dv) if bias is None else (o, dq, dk, dv, folded(ds, bias.shape))


def linear_rms_relu_values(q, k, v, do=None):
    """Linear attention with RMSHead and a relu on the values."""
    q, k, v, do = widened(q, k, v, do)
    f = float(q.shape[-1] ** -0.5)
    a, back = rms_and_back(einsum("bqhd,bkhd->bhqk", q, k) * f)
    rv = np.maximum(v, 0)
    o = einsum("bhqk,bkhe->bqhe", a, rv)
    dv = einsum("bhqk,bqhe->bkhe", a, do) * (v > 0)
    ds = back(einsum("bqhe,bkhe->bhqk", do, rv))
    return o, einsum("bhqk,bkhd->bqhd", ds, k) * f, einsum("bhqk,bqhd->bkhd", ds, q) * f, dv


def hyla_ablation(q, k, v, do=None, norm="softmax", relu=True):
    """HYLA with other normalisers, one after another, and with or without its relu."""
    q, k, v, do = widened(q, k, v, do)
    f = float(q.shape[-1] ** -0.5)
    s = einsum("bqhd,bkhd->bhqk", q, k) * f
    backs = []
    a = s
    for step in norm.split("+"):
        if step == "softmax":
            a, back = softmax_and_back(a)
            backs.append(back)
        if step == "rms":
            a, back = rms_and_back(a)
            backs.append(back)
    z = einsum("bhqk,bkhe->bqke", a, v)
    g = np.maximum(z, 0) if relu else z
    o = einsum("bhqk,bqke->bqhe", a, g)
    dz = einsum("bhqk,bqhe->bqke", a, do)
    dz = dz * (z > 0) if relu else dz
    da = einsum("bqhe,bqke->bhqk", do, g) + einsum("bqke,bkhe->bhqk", dz, v)
    dv = einsum("bhqk,bqke->bkhe", a, dz)
    for back in reversed(backs):
        da = back(da)
    return o, einsum("bhqk,bkhd->bqhd", da, k) * f, einsum("bhqk,bqhd->bkhd", da, q) * f, dv


def hyla_deep(q, k, v, wv2, do=None):
    """HYLA whose network has a second layer of generated weights."""
    q, k, v, wv2, do = widened(q, k, v, wv2, do)
    f = float(q.shape[-1] ** -0.5)
    a, back = rms_and_back(einsum("bqhd,bkhd->bhqk", q, k) * f)
    z1 = einsum("bhqk,bkhe->bqke", a, v)
    g1 = np.maximum(z1, 0)
    W = einsum("bhqk,hef->bqkef", a, wv2)          # generated weights of the second layer
    z2 = (g1[..., None, :] @ W)[..., 0, :]
    g2 = np.maximum(z2, 0)
    o = einsum("bhqk,bqkf->bqhf", a, g2)
    dz2 = einsum("bhqk,bqhf->bqkf", a, do) * (z2 > 0)
    da = einsum("bqhf,bqkf->bhqk", do, g2)
    dW = g1[..., :, None] * dz2[..., None, :]
    da += einsum("bqkef,hef->bhqk", dW, wv2)
    dwv2 = einsum("bqkef,bhqk->hef", dW, a)
    dz1 = (W @ dz2[..., None])[..., 0] * (z1 > 0)
    da += einsum("bqke,bkhe->bhqk", dz1, v)
    dv = einsum("bhqk,bqke->bkhe", a, dz1)
    ds = back(da)
    return o, einsum("bhqk,bkhd->bqhd", ds, k) * f, einsum("bhqk,bqhd->bkhd", ds, q) * f, dv, dwv2


# compositional


def compositional_key_map(q, k, v, selector, wr, do=None, bias=None, keep=None, dropout=None):
    """As the paper has it: keys of the retrievals, then their product with the selector."""
    q, k, v, selector, wr, do, bias, dropout = widened(q, k, v, selector, wr, do, bias, dropout)
    f, cf = float(q.shape[-1] ** -0.5), float(selector.shape[-1] ** -0.5)
    s = einsum("bqsd,bksd->bsqk", q, k) * f
    s = s if bias is None else s + bias
    if keep is not None:
        s = np.where(keep, s, -np.inf)
    m = s.max(-1, keepdims=True)
    m = np.where(np.isinf(m), 0, m)
    p = exp(s - m)
    t = p.sum(-1, keepdims=True)
    p = p / np.where(t == 0, 1, t)
    c = p if dropout is None else p * dropout
    ret = einsum("bsqk,bkre->bqsre", c, v)
    key = ret @ wr
    l = einsum("bqsc,bqsrc->bqsr", selector, key) * cf
    g, gback = softmax_and_back(l)
    o = (g[..., None] * ret).sum(3)
    dg = (do[..., None, :] * ret).sum(-1)
    dret = g[..., None] * do[..., None, :]
    dl = gback(dg) * cf
    dselector = einsum("bqsr,bqsrc->bqsc", dl, key)
    dkey = dl[..., None] * selector[..., None, :]
    dret = dret + dkey @ wr.T
    dwr = einsum("bqsre,bqsrc->ec", ret, dkey)
    dv = einsum("bsqk,bqsre->bkre", c, dret)
    dc = einsum("bqsre,bkre->bsqk", dret, v)
    dp = dc if dropout is None else dc * dropout
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    dq = einsum("bsqk,bksd->bqsd", ds, k) * f
    dk = einsum("bsqk,bqsd->bksd", ds, q) * f
    return (o, dq, dk, dv, *(() if bias is None else (folded(ds, bias.shape),)), dselector, dwr)


def compositional_absorbed(q, k, v, selector, wr, do=None):
    """The key map in the selector, values of all retrievals side by side."""
    q, k, v, selector, wr, do = widened(q, k, v, selector, wr, do)
    B, K, R, e = v.shape
    f, cf = float(q.shape[-1] ** -0.5), float(selector.shape[-1] ** -0.5)
    p, pback = softmax_and_back(einsum("bqsd,bksd->bsqk", q, k) * f)
    vp = v.reshape(B, 1, K, R * e)
    ret = (p @ vp).reshape(*p.shape[:3], R, e).transpose(0, 2, 1, 3, 4)
    u = selector @ wr.T * cf
    l = (ret @ u[..., None])[..., 0]
    g, gback = softmax_and_back(l)
    o = (g[..., None, :] @ ret)[..., 0, :]
    dl = gback((ret @ do[..., None])[..., 0])
    du = (dl[..., None, :] @ ret)[..., 0, :] * cf
    dret = dl[..., None] * u[..., None, :] + g[..., None] * do[..., None, :]
    dselector = du @ wr
    dwr = einsum("bqse,bqsc->ec", du, selector)
    flat = dret.transpose(0, 2, 1, 3, 4).reshape(*p.shape[:3], R * e)
    dv = (p.swapaxes(2, 3) @ flat).sum(1).reshape(v.shape)
    ds = pback(flat @ vp.swapaxes(2, 3))
    return (o, einsum("bsqk,bksd->bqsd", ds, k) * f, einsum("bsqk,bqsd->bksd", ds, q) * f, dv, dselector, dwr)


def compositional_linear(q, k, v, selector, wr, wc, br, do=None):
    """Value scores by a linear map."""
    q, k, v, selector, wr, wc, br, do = widened(q, k, v, selector, wr, wc, br, do)
    f = float(q.shape[-1] ** -0.5)
    p, pback = softmax_and_back(einsum("bqsd,bksd->bsqk", q, k) * f)
    ret = einsum("bsqk,bkre->bqsre", p, v)
    l = ret @ wr + (selector @ wc)[..., None] + br
    g, gback = softmax_and_back(l)
    o = (g[..., None] * ret).sum(3)
    dl = gback((do[..., None, :] * ret).sum(-1))
    dret = g[..., None] * do[..., None, :] + dl[..., None] * wr
    dwr = einsum("bqsr,bqsre->e", dl, ret)
    dwc = einsum("bqsr,bqsc->c", dl, selector)
    dsel = dl.sum(-1)[..., None] * wc
    dbr = dl.sum().reshape(1)
    ds = pback(einsum("bqsre,bkre->bsqk", dret, v))
    return (o, einsum("bsqk,bksd->bqsd", ds, k) * f, einsum("bsqk,bqsd->bksd", ds, q) * f,
            einsum("bsqk,bqsre->bkre", p, dret), dsel, dwr, dwc, dbr)


def compositional_nonlinear(q, k, v, selector, wr, wc, br, w2, b2, do=None):
    """Value scores by a network of two layers."""
    q, k, v, selector, wr, wc, br, w2, b2, do = widened(q, k, v, selector, wr, wc, br, w2, b2, do)
    f = float(q.shape[-1] ** -0.5)
    p, pback = softmax_and_back(einsum("bqsd,bksd->bsqk", q, k) * f)
    ret = einsum("bsqk,bkre->bqsre", p, v)
    z = ret @ wr + (selector @ wc)[..., None, :] + br
    y = np.maximum(z, 0)
    g, gback = softmax_and_back(y @ w2 + b2)
    o = (g[..., None] * ret).sum(3)
    dl = gback((do[..., None, :] * ret).sum(-1))
    dz = dl[..., None] * w2 * (z > 0)
    dret = g[..., None] * do[..., None, :] + dz @ wr.T
    ds = pback(einsum("bqsre,bkre->bsqk", dret, v))
    return (o, einsum("bsqk,bksd->bqsd", ds, k) * f, einsum("bsqk,bqsd->bksd", ds, q) * f,
            einsum("bsqk,bqsre->bkre", p, dret), dz.sum(3) @ wc.T, einsum("bqsre,bqsrf->ef", ret, dz),
            einsum("bqsc,bqsrf->cf", selector, dz), dz.sum((0, 1, 2, 3)), einsum("bqsr,bqsrf->f", dl, y),
            dl.sum().reshape(1))


# sliding dilated, dilation 2


def sliding_gather(q, k, v, offset_bias, do=None, bias=None, keep=None, dropout=None, dilation=2):
    """Keys of each window gathered, gradients scattered."""
    q, k, v, offset_bias, do, bias, dropout = widened(q, k, v, offset_bias, do, bias, dropout)
    Q, K, W = q.shape[1], k.shape[1], offset_bias.shape[1]
    f = float(q.shape[-1] ** -0.5)
    idx = (np.arange(Q) + K - Q)[:, None] - dilation * np.arange(W)
    ok = idx >= 0
    at = np.clip(idx, 0, None)
    kw, vw = k[:, at], v[:, at]                        # b q w h d
    s = einsum("bqhd,bqwhd->bhqw", q, kw) * f + offset_bias[:, None]
    if bias is not None:
        s = s + bias
    mask = np.broadcast_to(ok if keep is None else ok & keep, s.shape)
    s = np.where(mask, s, -np.inf)
    top = s.max(-1, keepdims=True)
    p = exp(s - np.where(np.isinf(top), 0, top))
    tot = p.sum(-1, keepdims=True)
    p = p / np.where(tot == 0, 1, tot)
    c = p if dropout is None else p * dropout
    o = einsum("bhqw,bqwhe->bqhe", c, vw)
    dvw = einsum("bhqw,bqhe->bqwhe", c, do)
    dp = einsum("bqhe,bqwhe->bhqw", do, vw)
    dp = dp if dropout is None else dp * dropout
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    dq = einsum("bhqw,bqwhd->bqhd", ds, kw) * f
    dkw = einsum("bhqw,bqhd->bqwhd", ds, q) * f
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    for w in range(W):
        np.add.at(dk, (slice(None), at[:, w]), dkw[:, :, w])
        np.add.at(dv, (slice(None), at[:, w]), dvw[:, :, w])
    dob = ds.sum((0, 2))
    return (o, dq, dk, dv, *(() if bias is None else (folded(ds, bias.shape),)), dob)


def sliding_dense(q, k, v, offset_bias, do=None, dilation=2):
    """A mask and a bias over all pairs of positions."""
    q, k, v, offset_bias, do = widened(q, k, v, offset_bias, do)
    Q, K, W = q.shape[1], k.shape[1], offset_bias.shape[1]
    f = float(q.shape[-1] ** -0.5)
    back = (np.arange(Q) + K - Q)[:, None] - np.arange(K)
    off = back // dilation
    seen = (back >= 0) & (back % dilation == 0) & (off < W)
    s = einsum("bqhd,bkhd->bhqk", q, k) * f + offset_bias[:, np.clip(off, 0, W - 1)]
    s = np.where(seen, s, -np.inf)
    p, pback = softmax_and_back(s)
    o = einsum("bhqk,bkhe->bqhe", p, v)
    dv = einsum("bhqk,bqhe->bkhe", p, do)
    ds = pback(einsum("bqhe,bkhe->bhqk", do, v))
    dob = np.zeros_like(offset_bias)
    np.add.at(dob, (slice(None), off[seen]), ds.sum(0)[:, seen])
    return o, einsum("bhqk,bkhd->bqhd", ds, k) * f, einsum("bhqk,bqhd->bkhd", ds, q) * f, dv, dob


def sliding_pad(q, k, v, offset_bias, pad_k, pad_v, do=None, dilation=2):
    """Pads in front, windows as strided views, gradients by slices."""
    q, k, v, offset_bias, pad_k, pad_v, do = widened(q, k, v, offset_bias, pad_k, pad_v, do)
    Q, K, W = q.shape[1], k.shape[1], offset_bias.shape[1]
    n = dilation * (W - 1)
    f = float(q.shape[-1] ** -0.5)
    B = len(q)
    kp = np.concatenate([np.broadcast_to(pad_k, (B, n, *pad_k.shape)), k], 1)
    vp = np.concatenate([np.broadcast_to(pad_v, (B, n, *pad_v.shape)), v], 1)

    def windows(x):                                    # b q h d w
        return np.lib.stride_tricks.sliding_window_view(x, n + 1, axis=1)[:, K - Q:, ..., ::-dilation]
    kw, vw = windows(kp), windows(vp)
    s = einsum("bqhd,bqhdw->bhqw", q, kw) * f + offset_bias[:, None]
    p, pback = softmax_and_back(s)
    o = einsum("bhqw,bqhew->bqhe", p, vw)
    ds = pback(einsum("bqhe,bqhew->bhqw", do, vw))
    dkp, dvp = np.zeros_like(kp), np.zeros_like(vp)
    for w in range(W):
        lo = n + K - Q - w * dilation
        dkp[:, lo:lo + Q] += einsum("bhq,bqhd->bqhd", ds[..., w], q) * f
        dvp[:, lo:lo + Q] += einsum("bhq,bqhe->bqhe", p[..., w], do)
    return (o, einsum("bhqw,bqhdw->bqhd", ds, kw) * f, dkp[:, n:], dvp[:, n:], ds.sum((0, 2)),
            dkp[:, :n].sum((0, 1)), dvp[:, :n].sum((0, 1)))


# ops


def layer_norm(x, scale, shift, do):
    """LayerNorm with the short form of its backward."""
    x, scale, shift, do = widened(x, scale, shift, do)
    mu = x.mean(-1, keepdims=True)
    var = x.var(-1, keepdims=True)
    rstd = 1 / sqrt(var + 1e-6)
    xhat = (x - mu) * rstd
    o = xhat * scale + shift
    dxhat = do * scale
    dx = rstd * (dxhat - dxhat.mean(-1, keepdims=True) - xhat * (dxhat * xhat).mean(-1, keepdims=True))
    axes = tuple(range(x.ndim - 1))
    return {"o": o, "dx": dx, "dscale": (do * xhat).sum(axes), "dshift": do.sum(axes)}


def layer_norm_chain(x, scale, shift, do):
    """LayerNorm's backward step by step through variance and mean."""
    x, scale, shift, do = widened(x, scale, shift, do)
    N = x.shape[-1]
    mu = x.sum(-1, keepdims=True) / N
    xc = x - mu
    var = (xc ** 2).sum(-1, keepdims=True) / N
    std = sqrt(var + 1e-6)
    ivar = 1 / std
    xhat = xc * ivar
    o = scale * xhat + shift
    dxhat = do * scale
    divar = (dxhat * xc).sum(-1, keepdims=True)
    dvar = -0.5 * ivar ** 3 * divar
    dxc = dxhat * ivar + 2 * xc * dvar / N
    dmu = -dxc.sum(-1, keepdims=True)
    dx = dxc + dmu / N
    return {"o": o, "dx": dx, "dscale": (do * xhat).reshape(-1, N).sum(0), "dshift": do.reshape(-1, N).sum(0)}


def gelu(x, do):
    """GELU by tanh."""
    x, do = widened(x, do)
    k0 = float(sqrt(2 / np.pi))
    t = np.tanh(k0 * (x + 0.044715 * x ** 3))
    o = 0.5 * x * (1 + t)
    dx = do * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k0 * (1 + 3 * 0.044715 * x ** 2))
    return {"o": o, "dx": dx}


def silu(x, do):
    """SiLU."""
    x, do = widened(x, do)
    s = 1 / (1 + exp(-x))
    return {"o": x * s, "dx": do * (s + x * s * (1 - s))}


def rms_head(s, do):
    """RMSHead alone."""
    s, do = widened(s, do)
    a, back = rms_and_back(s)
    return {"o": a, "ds": back(do)}


def embedding(table, index, do):
    """Rows of a table."""
    dt = np.zeros(table.shape, np.float64 if table.dtype == np.float64 else np.float32)
    np.add.at(dt, index, do)
    return {"o": table[index], "dtable": dt}


def cross_entropy(logits, target, do, weight=None):
    """The weighted mean of the cross entropies."""
    logits, do, weight = widened(logits, do, weight)
    w = np.ones(target.shape, logits.dtype) if weight is None else weight
    m = logits.max(-1, keepdims=True)
    e = exp(logits - m)
    p = e / e.sum(-1, keepdims=True)
    logp = logits - m - np.log(e.sum(-1, keepdims=True))
    nll = -np.take_along_axis(logp, target[..., None], -1)[..., 0]
    total = w.sum()
    one = np.eye(logits.shape[-1], dtype=logits.dtype)[target]
    return {"o": (w * nll).sum() / total, "dlogits": do * (p - one) * (w / total)[..., None]}


# layers


def activation_and_back(x, kind):
    """ReLU or GELU, and its backward."""
    if kind == "relu":
        return np.maximum(x, 0), lambda d: d * (x > 0)
    k0 = float(sqrt(2 / np.pi))
    t = np.tanh(k0 * (x + 0.044715 * x ** 3))
    return 0.5 * x * (1 + t), lambda d: d * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k0 * (1 + 3 * 0.044715 * x ** 2))


def feed_forward(x, w1, b1, w2, b2, do, dropout=None, kind="gelu"):
    """Two maps with an activation between."""
    x, w1, b1, w2, b2, do, dropout = widened(x, w1, b1, w2, b2, do, dropout)
    h = x @ w1 + b1
    a, back = activation_and_back(h, kind)
    a = a if dropout is None else a * dropout
    o = a @ w2 + b2
    dw2 = einsum("btf,btm->fm", a, do)
    db2 = do.sum((0, 1))
    da = do @ w2.T
    da = da if dropout is None else da * dropout
    dh = back(da)
    dw1 = einsum("btm,btf->mf", x, dh)
    db1 = dh.sum((0, 1))
    return {"o": o, "dx": dh @ w1.T, "dw1": dw1, "db1": db1, "dw2": dw2, "db2": db2}


def multi_head(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None, kind="softmax"):
    """Maps into and out of softmax attention or HYLA."""
    x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias, dropout = widened(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias, dropout)
    q = einsum("btm,mhd->bthd", x, wq) + bq
    k = einsum("btm,mhd->bthd", x, wk) + bk
    v = einsum("btm,mhe->bthe", x, wv) + bv
    att = softmax_plain if kind == "softmax" else hyla_plain
    dctx = einsum("btm,hem->bthe", do, wo)
    ctx, dq, dk, dv, *dbias = att(q, k, v, dctx, bias=bias, keep=keep, dropout=dropout)
    o = einsum("bthe,hem->btm", ctx, wo) + bo
    g = {"o": o, "dwo": einsum("bthe,btm->hem", ctx, do), "dbo": do.sum((0, 1))}
    g["dwq"], g["dbq"] = einsum("btm,bthd->mhd", x, dq), dq.sum((0, 1))
    g["dwk"], g["dbk"] = einsum("btm,bthd->mhd", x, dk), dk.sum((0, 1))
    g["dwv"], g["dbv"] = einsum("btm,bthe->mhe", x, dv), dv.sum((0, 1))
    g["dx"] = (einsum("bthd,mhd->btm", dq, wq) + einsum("bthd,mhd->btm", dk, wk)
               + einsum("bthe,mhe->btm", dv, wv))
    if dbias:
        g["dbias"] = dbias[0]
    return g


def block(do, x, keep=None, dropout=None, residual=None, hidden=None, **p):
    """A pre-norm block: attention and feed-forward, each after a LayerNorm, with residuals."""
    p = {n.replace(".", "_"): widened(y)[0] for n, y in p.items()}
    x, do, dropout, hidden = widened(x, do, dropout, hidden)
    residual = (None, None) if residual is None else widened(*residual)
    A = {n[10:]: y for n, y in p.items() if n.startswith("attention_")}
    F = {n[13:]: y for n, y in p.items() if n.startswith("feed_forward_")}

    def norm(x, n):
        r = 1 / sqrt(x.var(-1, keepdims=True) + 1e-5)
        xh = (x - x.mean(-1, keepdims=True)) * r

        def back(dy):
            dn = dy * p[n + "_scale"]
            dx = r * (dn - dn.mean(-1, keepdims=True) - xh * (dn * xh).mean(-1, keepdims=True))
            return dx, (dy * xh).sum((0, 1)), dy.sum((0, 1))
        return xh * p[n + "_scale"] + p[n + "_shift"], back

    n1, back1 = norm(x, "norm1")
    zero = np.zeros_like(x)
    y = multi_head(n1, **A, do=zero, keep=keep, dropout=dropout)["o"]
    y = y if residual[0] is None else y * residual[0]
    x1 = x + y
    n2, back2 = norm(x1, "norm2")
    f = feed_forward(n2, **F, do=zero, dropout=hidden, kind="relu")["o"]
    f = f if residual[1] is None else f * residual[1]
    o = x1 + f
    df = do if residual[1] is None else do * residual[1]
    gf = feed_forward(n2, **F, do=df, dropout=hidden, kind="relu")
    dx1, dscale2, dshift2 = back2(gf["dx"])
    dx1 = dx1 + do
    dy = dx1 if residual[0] is None else dx1 * residual[0]
    ga = multi_head(n1, **A, do=dy, keep=keep, dropout=dropout)
    dx, dscale1, dshift1 = back1(ga["dx"])
    dx = dx + dx1
    out = {"o": o, "dx": dx, "dnorm1.scale": dscale1, "dnorm1.shift": dshift1, "dnorm2.scale": dscale2,
           "dnorm2.shift": dshift2}
    out |= {"dattention." + n[1:]: y for n, y in ga.items() if n not in ("o", "dx")}
    out |= {"dfeed_forward." + n[1:]: y for n, y in gf.items() if n not in ("o", "dx")}
    return out


def swiglu(x, wg, wu, wd, do, dropout=None):
    """A gated feed-forward layer."""
    x, wg, wu, wd, do, dropout = widened(x, wg, wu, wd, do, dropout)
    g, u = x @ wg, x @ wu
    s = 1 / (1 + exp(-g))
    a = g * s
    h = a * u
    hd = h if dropout is None else h * dropout
    o = hd @ wd
    dh = do @ wd.T
    dh = dh if dropout is None else dh * dropout
    du = dh * a
    dg = dh * u * (s + a * (1 - s))

    def flat(y):
        return y.reshape(-1, y.shape[-1])
    return {"o": o, "dwd": flat(hd).T @ flat(do), "dwu": flat(x).T @ flat(du), "dwg": flat(x).T @ flat(dg),
            "dx": du @ wu.T + dg @ wg.T}


def sliding_layer(x, wq, wk, wv, offset_bias, pad, wo, do):
    """Maps into and out of sliding dilated attention, with a pad."""
    x, wq, wk, wv, offset_bias, pad, wo, do = widened(x, wq, wk, wv, offset_bias, pad, wo, do)
    q, k, v = (einsum("btm,mhd->bthd", x, w) for w in (wq, wk, wv))
    pk, pv = einsum("m,mhd->hd", pad, wk), einsum("m,mhe->he", pad, wv)
    dctx = einsum("btm,hem->bthe", do, wo)
    ctx, dq, dk, dv, dob, dpk, dpv = sliding_pad(q, k, v, offset_bias, pk, pv, dctx)
    return {"o": einsum("bthe,hem->btm", ctx, wo), "dwo": einsum("bthe,btm->hem", ctx, do),
            "dwq": einsum("btm,bthd->mhd", x, dq),
            "dwk": einsum("btm,bthd->mhd", x, dk) + pad[:, None, None] * dpk,
            "dwv": einsum("btm,bthe->mhe", x, dv) + pad[:, None, None] * dpv,
            "dx": einsum("bthd,mhd->btm", dq, wq) + einsum("bthd,mhd->btm", dk, wk) + einsum("bthe,mhe->btm", dv, wv),
            "doffset_bias": dob, "dpad": einsum("mhd,hd->m", wk, dpk) + einsum("mhe,he->m", wv, dpv)}


def compositional_layer(x, wq, bq, wk, bk, wv, bv, ws, bs, wr, br, wo, bo, do, bias=None, keep=None, dropout=None):
    """Maps into and out of compositional attention."""
    x, wq, bq, wk, bk, wv, bv, do = widened(x, wq, bq, wk, bk, wv, bv, do)
    ws, bs, wr, br, wo, bo = widened(ws, bs, wr, br, wo, bo)
    q, k, v, sel = (einsum("btm,mhd->bthd", x, w) + b for w, b in ((wq, bq), (wk, bk), (wv, bv), (ws, bs)))
    dctx = einsum("btm,hem->bthe", do, wo)
    r = compositional_key_map(q, k, v, sel, wr, dctx, bias=bias, keep=keep, dropout=dropout)
    ctx, dq, dk, dv = r[:4]
    dsel, dwr = r[-2:]
    g = {"o": einsum("bthe,hem->btm", ctx, wo) + bo, "dwo": einsum("bthe,btm->hem", ctx, do), "dbo": do.sum((0, 1))}
    for n, d in (("q", dq), ("k", dk), ("v", dv), ("s", dsel)):
        g["dw" + n], g["db" + n] = einsum("btm,bthd->mhd", x, d), d.sum((0, 1))
    g["dx"] = sum(einsum("bthd,mhd->btm", d, w) for d, w in ((dq, wq), (dk, wk), (dv, wv), (dsel, ws)))
    g["dwr"], g["dbr"] = dwr, np.zeros_like(br)
    if bias is not None:
        g["dbias"] = r[4]
    return g


def multi_head_rotary(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None):
    """Softmax attention with rotary positions, pairs side by side."""
    x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias, dropout = widened(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias, dropout)
    d = wq.shape[-1]
    ang = np.arange(x.shape[1])[:, None, None] * 10000.0 ** (-np.arange(0, d, 2) / d)
    C, S = np.cos(ang).astype(x.dtype), np.sin(ang).astype(x.dtype)

    def rot(y, S=S):
        out = np.empty_like(y)
        a, b = y[..., ::2], y[..., 1::2]
        out[..., ::2], out[..., 1::2] = a * C - b * S, a * S + b * C
        return out

    q = einsum("btm,mhd->bthd", x, wq) + bq
    k = einsum("btm,mhd->bthd", x, wk) + bk
    v = einsum("btm,mhe->bthe", x, wv) + bv
    dctx = einsum("btm,hem->bthe", do, wo)
    ctx, dq, dk, dv, *dbias = softmax_plain(rot(q), rot(k), v, dctx, bias=bias, keep=keep, dropout=dropout)
    dq, dk = rot(dq, -S), rot(dk, -S)
    g = {"o": einsum("bthe,hem->btm", ctx, wo) + bo, "dwo": einsum("bthe,btm->hem", ctx, do), "dbo": do.sum((0, 1))}
    g["dwq"], g["dbq"] = einsum("btm,bthd->mhd", x, dq), dq.sum((0, 1))
    g["dwk"], g["dbk"] = einsum("btm,bthd->mhd", x, dk), dk.sum((0, 1))
    g["dwv"], g["dbv"] = einsum("btm,bthe->mhe", x, dv), dv.sum((0, 1))
    g["dx"] = (einsum("bthd,mhd->btm", dq, wq) + einsum("bthd,mhd->btm", dk, wk) + einsum("bthe,mhe->btm", dv, wv))
    if dbias:
        g["dbias"] = dbias[0]
    return g
