"""Kernels as their authors write them, in NumPy: none looks at a page of the library."""

from functools import wraps
from math import erf, pi, sqrt

import numpy as np

LOG2E = 1.4426950408889634


def fused(kernel):
    """As on a GPU: half precision is read into float32, and written back where a result leaves."""
    @wraps(kernel)
    def run(*args, **options):
        def wide(x):
            return x.astype(np.float32) if isinstance(x, np.ndarray) and x.dtype == np.float16 else x

        half = any(wide(x) is not x for x in (*args, *options.values()))
        given = kernel(*(wide(x) for x in args), **{name: wide(x) for name, x in options.items()})
        if not half:
            return given
        with np.errstate(over="ignore"):                    # of a mistake
            if isinstance(given, dict):
                return {name: x if name == "lse" else np.asarray(x, np.float16) for name, x in given.items()}
            return tuple(np.asarray(x, np.float16) for x in given)

    return run


def sum_to(g, shape):
    g = g.sum(axis=tuple(range(g.ndim - len(shape))))
    for axis, n in enumerate(shape):
        if n == 1 and g.shape[axis] > 1:
            g = g.sum(axis=axis, keepdims=True)
    return g


def with_bias(results, dbias, bias):
    """The results, and the bias's gradient in its own shape where there is a bias."""
    return results if bias is None else (*results, sum_to(dbias, bias.shape))


# ----------------------------------------------------------------------------------------------------------- softmax


@fused
def mha_loops(q, k, v, do, bias=None, keep=None, dropout=None, causal=False):
    """One batch entry and head at a time; a dictionary of buffers filled in place."""
    B, Q, H, D = q.shape
    K = k.shape[1]
    full = (B, H, Q, K)
    out = {"o": np.zeros_like(do), "dq": np.zeros_like(q), "dk": np.zeros_like(k), "dv": np.zeros_like(v)}
    dS_all = np.zeros(full, q.dtype)
    scale = 1 / sqrt(D)
    for b in range(B):
        for h in range(H):
            Qm, Km, Vm, G = q[b, :, h], k[b, :, h], v[b, :, h], do[b, :, h]
            S = Qm @ Km.T * scale
            if bias is not None:
                S += np.broadcast_to(bias, full)[b, h]
            visible = np.ones((Q, K), bool) if keep is None else np.broadcast_to(keep, full)[b, h]
            if causal:
                visible = visible & (np.arange(K)[None] <= np.arange(Q)[:, None] + K - Q)
            S[~visible] = -np.inf
            top = S.max(1, keepdims=True)
            top[np.isneginf(top)] = 0
            E = np.exp(S - top)
            den = E.sum(1, keepdims=True)
            P = E / np.where(den == 0, 1, den)
            M = 1.0 if dropout is None else np.broadcast_to(dropout, full)[b, h]
            out["o"][b, :, h] = (P * M) @ Vm
            out["dv"][b, :, h] = (P * M).T @ G
            dP = G @ Vm.T * M
            dS = P * (dP - (dP * P).sum(1, keepdims=True))
            out["dq"][b, :, h] = dS @ Km * scale
            out["dk"][b, :, h] = dS.T @ Qm * scale
            dS_all[b, h] = dS
    if bias is not None:
        out["dbias"] = sum_to(dS_all, bias.shape)
    return out


@fused
def flash2(q, k, v, do, bias=None, keep=None, dropout=None, causal=False, BM=4, BN=3, lse_out=False):
    """FlashAttention-2 with padded tiles: query tiles outside in the forward, key tiles outside in the backward."""
    B, Tq, H, D = q.shape
    Tk, E = k.shape[1], v.shape[3]
    nq, nk = -(-Tq // BM), -(-Tk // BN)
    scale = D ** -0.5

    def padded(x, n):
        return np.concatenate([x, np.zeros((B, n - x.shape[1], *x.shape[2:]), x.dtype)], 1).transpose(0, 2, 1, 3)

    def tile(x, i, j, fill):
        whole = np.full((B, H, BM, BN), fill, x.dtype)
        piece = np.broadcast_to(x, (B, H, Tq, Tk))[:, :, i * BM:i * BM + BM, j * BN:j * BN + BN]
        whole[:, :, :piece.shape[2], :piece.shape[3]] = piece
        return whole

    Q, G, K, V = padded(q, nq * BM), padded(do, nq * BM), padded(k, nk * BN), padded(v, nk * BN)
    rows = [slice(i * BM, i * BM + BM) for i in range(nq)]
    cols = [slice(j * BN, j * BN + BN) for j in range(nk)]

    def scores(i, j):
        s = Q[:, :, rows[i]] @ K[:, :, cols[j]].swapaxes(2, 3) * scale
        if bias is not None:
            s += tile(bias, i, j, 0)
        r, c = np.arange(i * BM, i * BM + BM)[:, None], np.arange(j * BN, j * BN + BN)
        ok = (r < Tq) & (c < Tk)
        if causal:
            ok = ok & (c <= r + (Tk - Tq))
        if keep is not None:
            ok = ok & tile(keep, i, j, False)
        return np.where(ok, s, -np.inf)

    def key_tiles(i):
        return nk if not causal else min(nk, (i * BM + BM - 1 + Tk - Tq) // BN + 1)

    O = np.zeros((B, H, nq * BM, E), q.dtype)
    lse = np.full((B, H, nq * BM), -np.inf, q.dtype)
    for i in range(nq):
        m = np.full((B, H, BM), -np.inf, q.dtype)
        l = np.zeros((B, H, BM), q.dtype)
        acc = np.zeros((B, H, BM, E), q.dtype)
        for j in range(key_tiles(i)):
            s = scores(i, j)
            m_new = np.maximum(m, s.max(-1))
            safe = np.where(np.isinf(m_new), 0, m_new)
            p = np.exp(s - safe[..., None])
            alpha = np.exp(m - safe)
            l = l * alpha + p.sum(-1)
            if dropout is not None:
                p = p * tile(dropout, i, j, 0)
            acc = acc * alpha[..., None] + p @ V[:, :, cols[j]]
            m = m_new
        some = l > 0
        O[:, :, rows[i]] = acc / np.where(some, l, 1)[..., None]
        lse[:, :, rows[i]] = np.where(some, m + np.log(np.where(some, l, 1)), -np.inf)

    delta = (G * O).sum(-1)
    at = np.where(np.isinf(lse), 0, lse)
    dQ, dK, dV = np.zeros_like(Q), np.zeros_like(K), np.zeros_like(V)
    dS = np.zeros((B, H, nq * BM, nk * BN), q.dtype)
    for j in range(nk):
        for i in range(nq):
            if j >= key_tiles(i):
                continue
            p = np.exp(scores(i, j) - at[:, :, rows[i], None])
            dp = G[:, :, rows[i]] @ V[:, :, cols[j]].swapaxes(2, 3)
            kept = p
            if dropout is not None:
                mask = tile(dropout, i, j, 0)
                kept = p * mask
                dp = dp * mask
            dV[:, :, cols[j]] += kept.swapaxes(2, 3) @ G[:, :, rows[i]]
            ds = p * (dp - delta[:, :, rows[i], None])
            dS[:, :, rows[i], cols[j]] = ds
            dQ[:, :, rows[i]] += ds @ K[:, :, cols[j]]
            dK[:, :, cols[j]] += ds.swapaxes(2, 3) @ Q[:, :, rows[i]]
    dQ *= scale
    dK *= scale

    def back(x, n):
        return x.transpose(0, 2, 1, 3)[:, :n]

    found = {"o": back(O, Tq), "dq": back(dQ, Tq), "dk": back(dK, Tk), "dv": back(dV, Tk)}
    if bias is not None:
        found["dbias"] = sum_to(dS[:, :, :Tq, :Tk], bias.shape)
    if lse_out:
        found["lse"] = lse[:, :, :Tq]
    return found


@fused
def flash1(q, k, v, do, causal=False, BC=2):
    """The first FlashAttention: key tiles outside, the output divided anew at every step; "bhtd"."""
    B, H, N, D = q.shape
    M = k.shape[2]
    tau = 1 / float(np.sqrt(D))
    o = np.zeros(do.shape, q.dtype)
    m, l = np.full((B, H, N, 1), -np.inf, q.dtype), np.zeros((B, H, N, 1), q.dtype)

    def block(start):
        s = tau * np.einsum("bhid,bhjd->bhij", q, k[:, :, start:start + BC])
        if causal:
            j = np.arange(start, min(start + BC, M))
            s = np.where(j - (M - N) > np.arange(N)[:, None], -np.inf, s)
        return s

    for start in range(0, M, BC):
        s = block(start)
        m_new = np.maximum(m, s.max(-1, keepdims=True))
        shift = np.where(m_new == -np.inf, 0, m_new)
        old = np.exp(m - shift) * l
        p = np.exp(s - shift)
        l = old + p.sum(-1, keepdims=True)
        o = (o * old + p @ v[:, :, start:start + BC]) / np.where(l == 0, 1, l)
        m = m_new

    dq = np.zeros_like(q)
    dk, dv = [], []
    D_i = np.einsum("bhie,bhie->bhi", do, o)[..., None]
    inv = 1 / np.where(l == 0, 1, l)
    for start in range(0, M, BC):
        p = np.exp(block(start) - np.where(m == -np.inf, 0, m)) * inv
        dv.append(p.swapaxes(-1, -2) @ do)
        dp = np.einsum("bhie,bhje->bhij", do, v[:, :, start:start + BC])
        ds = p * (dp - D_i) * tau
        dq += ds @ k[:, :, start:start + BC]
        dk.append(ds.swapaxes(-1, -2) @ q)
    return o, dq, np.concatenate(dk, 2), np.concatenate(dv, 2)


@fused
def kv_packed(q, k, v, do, keep=None, dropout=None):
    """Keys and values in one buffer, as a cache has them, and so their gradients; probabilities in place; "tbhd"."""
    d = q.shape[-1]
    kv = np.concatenate([k, v], axis=-1)
    x = np.einsum("ibhd,jbhd->bhij", q, kv[..., :d])
    x /= sqrt(d)
    if keep is not None:
        x[np.broadcast_to(~keep, x.shape)] = -np.inf
    x -= np.maximum(x.max(-1, keepdims=True), np.finfo(x.dtype).min)
    np.exp(x, out=x)
    x /= np.maximum(x.sum(-1, keepdims=True), np.finfo(x.dtype).tiny)
    w = x if dropout is None else x * dropout
    o = np.einsum("bhij,jbhe->ibhe", w, kv[..., d:])
    dkv = np.empty_like(kv)
    dkv[..., d:] = np.einsum("bhij,ibhe->jbhe", w, do)
    dx = np.einsum("ibhe,jbhe->bhij", do, kv[..., d:])
    if dropout is not None:
        dx *= dropout
    dx -= np.einsum("bhij,bhij->bhi", dx, x)[..., None]
    dx *= x
    dx /= sqrt(d)
    dq = np.einsum("bhij,jbhd->ibhd", dx, kv[..., :d])
    dkv[..., :d] = np.einsum("bhij,ibhd->jbhd", dx, q)
    return {"o": o, "dq": dq, "dk": dkv[..., :d], "dv": dkv[..., d:]}


@fused
def bmm(q, k, v, do, bias=None, keep=None, dropout=None, causal=False):
    """Batch and heads as one axis, powers of two, a large negative number for what is masked; "bhtd"."""
    B, H, Tq, D = q.shape
    Tk, E = k.shape[2], v.shape[3]
    q3, k3, v3, g3 = q.reshape(B * H, Tq, D), k.reshape(B * H, Tk, D), v.reshape(B * H, Tk, E), do.reshape(B * H, Tq, E)
    see = np.tri(Tq, Tk, Tk - Tq, dtype=bool) if causal else np.ones((Tq, Tk), bool)
    see = np.broadcast_to(see if keep is None else see & keep, (B, H, Tq, Tk)).reshape(B * H, Tq, Tk)
    t = np.matmul(q3, k3.transpose(0, 2, 1)) * (LOG2E / sqrt(D))
    if bias is not None:
        t = t + LOG2E * np.broadcast_to(bias, (B, H, Tq, Tk)).reshape(B * H, Tq, Tk)
    t = np.where(see, t, -1e30)
    e = np.exp2(t - t.max(2)[:, :, None])
    a = e / e.sum(2)[:, :, None]
    a = a * see
    r = np.ones_like(a) if dropout is None else np.broadcast_to(dropout, (B, H, Tq, Tk)).reshape(B * H, Tq, Tk)
    y = np.matmul(a * r, v3)
    gv = np.matmul((a * r).transpose(0, 2, 1), g3)
    ga = np.matmul(g3, v3.transpose(0, 2, 1)) * r
    row = (g3 * y).sum(2)[:, :, None]
    gs = a * (ga - row)
    gq = np.matmul(gs, k3) / sqrt(D)
    gk = np.matmul(gs.transpose(0, 2, 1), q3) / sqrt(D)
    found = y.reshape(do.shape), gq.reshape(q.shape), gk.reshape(k.shape), gv.reshape(v.shape)
    return with_bias(found, gs.reshape(B, H, Tq, Tk), bias)


@fused
def grouped(q, k, v, do, causal=False, rep=1):
    """Grouped queries: `rep` heads of q share one of k and v, and their queries are stacked; a row knows its place."""
    B, T, H, D = q.shape
    S, G, E = k.shape[1], k.shape[2] // rep, v.shape[3]
    k, v = k[:, :, ::rep], v[:, :, ::rep]
    qg = np.moveaxis(q.reshape(B, T, G, rep, D), 1, 3).reshape(B, G, rep * T, D)
    gg = np.moveaxis(do.reshape(B, T, G, rep, E), 1, 3).reshape(B, G, rep * T, E)
    kt, vt = k.transpose(0, 2, 1, 3), v.transpose(0, 2, 1, 3)
    s = (qg * D ** -0.5) @ kt.swapaxes(2, 3)
    if causal:
        place = np.arange(rep * T) % T + (S - T)
        s[:, :, np.arange(S)[None] > place[:, None]] = -np.inf
    top = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(np.isfinite(top), top, 0))
    z = e.sum(-1, keepdims=True)
    p = np.divide(e, z, out=np.zeros_like(e), where=z > 0)
    y = p @ vt
    dv = p.swapaxes(2, 3) @ gg
    dp = gg @ vt.swapaxes(2, 3)
    ds = p * dp - p * (p * dp).sum(-1, keepdims=True)
    dqg = ds @ kt * D ** -0.5
    dk = ds.swapaxes(2, 3) @ qg * D ** -0.5

    def ungroup(x, n):
        return np.moveaxis(x.reshape(B, G, rep, T, n), 3, 1).reshape(B, T, H, n)

    return ungroup(y, E), ungroup(dqg, D), dk.transpose(0, 2, 1, 3), dv.transpose(0, 2, 1, 3)


@fused
def feature_major(q, k, v, do, bias=None):
    """Features before positions, keys before queries, no subtraction of the largest score; "bhdt"."""
    c = q.shape[2] ** -0.5
    st = np.einsum("bhdk,bhdq->bhkq", k, q) * c
    if bias is not None:
        st += np.swapaxes(np.broadcast_to(bias, (*st.shape[:2], st.shape[3], st.shape[2])), 2, 3)
    e = np.exp(st)
    p = e / e.sum(2, keepdims=True)
    o = np.einsum("bhek,bhkq->bheq", v, p)
    dv = np.einsum("bheq,bhkq->bhek", do, p)
    dp = np.einsum("bhek,bheq->bhkq", v, do)
    ds = p * (dp - np.einsum("bheq,bheq->bhq", do, o)[:, :, None])
    dq = c * np.einsum("bhdk,bhkq->bhdq", k, ds)
    dk = c * np.einsum("bhdq,bhkq->bhdk", q, ds)
    return with_bias((o, dq, dk, dv), ds.swapaxes(2, 3), bias)


def tensor_cores(q, k, v, do, bias=None):
    """Products of half-precision factors with sums in float32: probabilities and ds are rounded before a product."""
    low, acc = q.dtype, np.float64 if q.dtype == np.float64 else np.float32

    def mma(spec, x, y):
        return np.einsum(spec, x.astype(low).astype(acc), y.astype(low).astype(acc))

    s = mma("bqhd,bkhd->bhqk", q, k) * acc(1 / sqrt(q.shape[3]))
    if bias is not None:
        s = s + bias.astype(acc)
    m = s.max(3, keepdims=True)
    p = np.exp(s - m)
    l = p.sum(3, keepdims=True)
    o = mma("bhqk,bkhe->bqhe", p, v) / l.transpose(0, 2, 1, 3)
    p = p / l
    dv = mma("bhqk,bqhe->bkhe", p, do)
    dp = mma("bqhe,bkhe->bhqk", do, v)
    delta = np.einsum("bqhe,bqhe->bhq", do.astype(acc), o)[..., None]
    ds = p * (dp - delta)
    dq = mma("bhqk,bkhd->bqhd", ds, k) * acc(1 / sqrt(q.shape[3]))
    dk = mma("bhqk,bqhd->bkhd", ds, q) * acc(1 / sqrt(q.shape[3]))
    return with_bias(tuple(x.astype(low) for x in (o, dq, dk, dv)), ds, bias)


@fused
def merged_halves(q, k, v, do, keep=None, parts=3):
    """Keys in parts, each with its own log-sum-exp, merged two by two; the backward from lse and o."""
    c = q.shape[-1] ** -0.5
    cuts = np.array_split(np.arange(k.shape[1]), parts)
    tiny = np.finfo(q.dtype).min / 4

    def part(at):
        s = np.einsum("bqhd,bkhd->bqhk", q, k[:, at]) * c
        if keep is not None:
            s = np.where(np.broadcast_to(keep, (q.shape[0], q.shape[2], q.shape[1], k.shape[1])).transpose(
                0, 2, 1, 3)[..., at], s, tiny)
        return s

    def merge(one, two):
        (o1, l1), (o2, l2) = one, two
        l = np.logaddexp(l1, l2)
        return o1 * np.exp(l1 - l)[..., None] + o2 * np.exp(l2 - l)[..., None], l

    merged = None
    for at in cuts:
        if not len(at):
            continue
        s = part(at)
        top = s.max(-1)
        e = np.exp(s - top[..., None]) * (s > tiny)
        n = e.sum(-1)
        piece = (np.einsum("bqhk,bkhe->bqhe", e, v[:, at]) / np.maximum(n, 1e-30)[..., None],
                 np.where(n > 0, top + np.log(np.maximum(n, 1e-30)), tiny))
        merged = piece if merged is None else merge(merged, piece)
    o, lse = merged
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    row = (do * o).sum(-1, keepdims=True)
    for at in cuts:
        s = part(at)
        p = np.where(s > tiny, np.exp(s - lse[..., None]), 0)
        dv[:, at] = np.einsum("bqhk,bqhe->bkhe", p, do)
        ds = p * (np.einsum("bqhe,bkhe->bqhk", do, v[:, at]) - row)
        dq += np.einsum("bqhk,bkhd->bqhd", ds, k[:, at]) * c
        dk[:, at] = np.einsum("bqhk,bqhd->bkhd", ds, q) * c
    return {"o": o, "lse": lse.transpose(0, 2, 1), "dq": dq, "dk": dk, "dv": dv}


@fused
def forward_only(q, k, v, do=None, bias=None, keep=None, dropout=None):
    """A decoder's kernel, one query at a time; no gradients."""
    B, Q, H, D = q.shape
    o = np.zeros((B, Q, H, v.shape[3]), q.dtype)
    full = (B, H, Q, k.shape[1])
    for i in range(Q):
        s = np.einsum("bhd,bkhd->bhk", q[:, i], k) / sqrt(D)
        if bias is not None:
            s = s + np.broadcast_to(bias, full)[:, :, i]
        e = np.exp(s - s.max(2, keepdims=True))
        if keep is not None:
            e = e * np.broadcast_to(keep, full)[:, :, i]
        total = e.sum(2, keepdims=True)
        w = e / np.where(total > 0, total, 1)
        if dropout is not None:
            w = w * np.broadcast_to(dropout, full)[:, :, i]
        o[:, i] = np.einsum("bhk,bkhe->bhe", w, v)
    return {"o": o}


# ------------------------------------------------------------------------------------------------------------ linear


@fused
def linear_products(q, k, v, do):
    """The product of keys and values first: no score is ever made; "bhtd"."""
    c = q.shape[-1] ** -0.5
    kv = k.swapaxes(2, 3) @ v
    qg = q.swapaxes(2, 3) @ do
    return q @ kv * c, do @ kv.swapaxes(2, 3) * c, v @ qg.swapaxes(2, 3) * c, k @ qg * c


@fused
def linear_tiles(q, k, v, do, bias=None, keep=None, dropout=None, causal=False, step=3):
    """Key tiles that add up; all options by slices of what broadcasts."""
    B, Q, H, D = q.shape
    K = k.shape[1]
    scale = 1 / sqrt(D)

    def cut(x, at):
        return np.broadcast_to(x, (B, H, Q, K))[..., at]

    o, dq = np.zeros_like(do), np.zeros_like(q)
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    dbias = np.zeros((B, H, Q, K), q.dtype)
    for start in range(0, K, step):
        at = slice(start, min(start + step, K))
        s = np.einsum("bqhd,bkhd->bhqk", q, k[:, at]) * scale
        if bias is not None:
            s += cut(bias, at)
        gate = np.ones(s.shape, q.dtype)
        if keep is not None:
            gate = gate * cut(keep, at)
        if causal:
            gate = gate * (np.arange(at.start, at.stop) <= np.arange(Q)[:, None] + K - Q)
        if dropout is not None:
            gate = gate * cut(dropout, at)
        w = s * gate
        o += np.einsum("bhqk,bkhe->bqhe", w, v[:, at])
        dv[:, at] = np.einsum("bhqk,bqhe->bkhe", w, do)
        ds = np.einsum("bqhe,bkhe->bhqk", do, v[:, at]) * gate
        dbias[..., at] = ds
        dq += np.einsum("bhqk,bkhd->bqhd", ds, k[:, at])
        dk[:, at] = np.einsum("bhqk,bqhd->bkhd", ds, q)
    dq *= scale
    dk *= scale
    return with_bias((o, dq, dk, dv), dbias, bias)


@fused
def linear_scan(q, k, v, do, causal=True):
    """A state that runs over the tokens, forward for o and dq, backward for dk and dv."""
    B, Q, H, D = q.shape
    K, E = k.shape[1], v.shape[3]
    c, ahead = 1 / sqrt(D), K - Q
    o, dq, dk, dv = np.zeros_like(do), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    state = np.zeros((B, H, D, E), q.dtype)
    taken = 0
    for i in range(Q):
        while taken < K and taken <= i + ahead:
            state += k[:, taken, :, :, None] * v[:, taken, :, None, :]
            taken += 1
        o[:, i] = c * np.einsum("bhd,bhde->bhe", q[:, i], state)
        dq[:, i] = c * np.einsum("bhe,bhde->bhd", do[:, i], state)
    state = np.zeros((B, H, D, E), q.dtype)
    left = Q - 1
    for j in range(K - 1, -1, -1):
        while left >= 0 and left + ahead >= j:
            state += q[:, left, :, :, None] * do[:, left, :, None, :]
            left -= 1
        dk[:, j] = c * np.einsum("bhde,bhe->bhd", state, v[:, j])
        dv[:, j] = c * np.einsum("bhde,bhd->bhe", state, k[:, j])
    return o, dq, dk, dv


@fused
def state_chunks(q, k, v, state, do, dend, size=4):
    """Chunks of a sequence: inside a chunk by a triangle, from before it by the state."""
    T, c = q.shape[1], q.shape[-1] ** -0.5
    chunks = [slice(t, min(t + size, T)) for t in range(0, T, size)]
    o, dq, dk, dv = np.empty_like(do), np.empty_like(q), np.empty_like(k), np.empty_like(v)
    before, S = [], state.copy()
    for at in chunks:
        n = len(range(*at.indices(T)))
        before.append(S)
        A = np.einsum("bihd,bjhd->bhij", q[:, at], k[:, at]) * np.tri(n, dtype=q.dtype)
        o[:, at] = c * (np.einsum("bhij,bjhe->bihe", A, v[:, at]) + np.einsum("bihd,bhde->bihe", q[:, at], S))
        S = S + np.einsum("bjhd,bjhe->bhde", k[:, at], v[:, at])
    dS = dend.copy()
    for at, S0 in zip(chunks[::-1], before[::-1], strict=True):
        n = len(range(*at.indices(T)))
        tri = np.tri(n, dtype=q.dtype)
        A = np.einsum("bihd,bjhd->bhij", q[:, at], k[:, at]) * tri * c
        dA = np.einsum("bihe,bjhe->bhij", do[:, at], v[:, at]) * tri * c
        dq[:, at] = np.einsum("bhij,bjhd->bihd", dA, k[:, at]) + c * np.einsum("bihe,bhde->bihd", do[:, at], S0)
        dk[:, at] = np.einsum("bhij,bihd->bjhd", dA, q[:, at]) + np.einsum("bjhe,bhde->bjhd", v[:, at], dS)
        dv[:, at] = np.einsum("bhij,bihe->bjhe", A, do[:, at]) + np.einsum("bjhd,bhde->bjhe", k[:, at], dS)
        dS = dS + c * np.einsum("bihd,bihe->bhde", q[:, at], do[:, at])
    return {"o": o, "end": S, "dq": dq, "dk": dk, "dv": dv, "dstate": dS}


# -------------------------------------------------------------------------------------------------------------- HYLA


@fused
def hyla_rows(q, k, v, do, bias=None, keep=None, dropout=None, causal=False, eps=1e-6):
    """One query at a time: its scores are a matrix of heads and keys."""
    B, Q, H, D = q.shape
    K = k.shape[1]
    c = 1 / sqrt(D)
    o, dq, dk, dv = np.zeros_like(do), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    dbias = np.zeros((B, H, Q, K), q.dtype)
    for b in range(B):
        for i in range(Q):
            s = np.einsum("hd,khd->hk", q[b, i], k[b]) * c
            if bias is not None:
                s = s + np.broadcast_to(bias, dbias.shape)[b, :, i]
            see = np.ones((H, K), q.dtype)
            if keep is not None:
                see = see * np.broadcast_to(keep, dbias.shape)[b, :, i]
            if causal:
                see = see * (np.arange(K) <= i + K - Q)
            s = s * see
            rho = 1 / np.sqrt((s ** 2).mean(0) + eps)
            a = s * rho
            m = np.ones((H, K), q.dtype) if dropout is None else np.broadcast_to(dropout, dbias.shape)[b, :, i]
            c_ = a * m
            z = np.einsum("hk,khe->ke", c_, v[b])
            hidden = np.maximum(z, 0)
            o[b, i] = c_ @ hidden
            g = do[b, i]
            dhidden = c_.T @ g
            dz = np.where(z > 0, dhidden, 0)
            dc = g @ hidden.T
            dc += np.einsum("ke,khe->hk", dz, v[b])
            dv[b] += np.einsum("hk,ke->khe", c_, dz)
            da = dc * m
            ds = rho * (da - a * (a * da).mean(0))
            ds = ds * see
            dbias[b, :, i] = ds
            dq[b, i] = np.einsum("hk,khd->hd", ds, k[b]) * c
            dk[b] += np.einsum("hk,hd->khd", ds, q[b, i]) * c
    return with_bias((o, dq, dk, dv), dbias, bias)


@fused
def hyla_matmul(q, k, v, do, bias=None, keep=None, dropout=None):
    """Heads innermost, so that both sums over heads are batched matrix products; "bhtd"."""
    B, H, Q, D = q.shape
    full = (B, H, Q, k.shape[2])

    def heads_last(x):                                      # (B, H, Q, K) -> (B, K, Q, H)
        return np.broadcast_to(x, full).transpose(0, 3, 2, 1)

    S = np.matmul(q, k.swapaxes(-1, -2)) / float(np.sqrt(D))
    if bias is not None:
        S = S + bias
    S = heads_last(S)
    if keep is not None:
        S = np.where(heads_last(keep), S, 0)
    var = np.square(S).sum(-1, keepdims=True) / H
    inv = 1 / np.sqrt(var + 1e-6)
    A = S * inv
    C = A if dropout is None else A * heads_last(dropout)
    Vk = v.transpose(0, 2, 1, 3)                            # (B, K, H, E)
    Gq = do.transpose(0, 2, 1, 3)                           # (B, Q, H, E)
    Z = C @ Vk                                              # (B, K, Q, E)
    R = Z * (Z > 0)
    out = np.einsum("bkqh,bkqe->bhqe", C, R)
    dR = np.einsum("bkqh,bqhe->bkqe", C, Gq)
    dZ = dR * (Z > 0)
    dC = np.einsum("bqhe,bkqe->bkqh", Gq, R) + dZ @ Vk.swapaxes(-1, -2)
    dV = C.swapaxes(-1, -2) @ dZ
    dA = dC if dropout is None else dC * heads_last(dropout)
    dS = (dA - A * (dA * A).sum(-1, keepdims=True) / H) * inv
    if keep is not None:
        dS = np.where(heads_last(keep), dS, 0)
    dS = dS.transpose(0, 3, 2, 1)                           # (B, H, Q, K)
    dq = np.matmul(dS, k) / float(np.sqrt(D))
    dk = np.matmul(dS.swapaxes(-1, -2), q) / float(np.sqrt(D))
    return with_bias((out, dq, dk, dV.transpose(0, 2, 1, 3)), dS, bias)


@fused
def hyla_chunks(q, k, v, do, bias=None, keep=None, dropout=None, causal=False, CQ=4, CK=3):
    """Tiles of queries and keys; nothing of the size of q times k is kept: the backward makes each tile anew."""
    B, Q, H, D = q.shape
    K = k.shape[1]
    scale = D ** -0.5

    def piece(x, i, j):
        return np.broadcast_to(x, (B, H, Q, K))[:, :, i, j]

    def code(i, j):
        s = np.einsum("bqhd,bkhd->bhqk", q[:, i] * scale, k[:, j])
        if bias is not None:
            s = s + piece(bias, i, j)
        gate = np.ones(s.shape, bool)
        if keep is not None:
            gate = gate & piece(keep, i, j)
        if causal:
            gate = gate & (np.arange(K)[j] <= np.arange(Q)[i, None] + K - Q)
        s = s * gate
        inv = ((s * s).mean(1, keepdims=True) + 1e-6) ** -0.5
        drop = piece(dropout, i, j) if dropout is not None else 1
        return s * inv, inv, gate, drop

    tiles_q = [slice(x, min(Q, x + CQ)) for x in range(0, Q, CQ)]
    tiles_k = [slice(x, min(K, x + CK)) for x in range(0, K, CK)]
    o = np.zeros_like(do)
    for i in tiles_q:
        acc = np.zeros_like(do[:, i])
        for j in tiles_k:
            if causal and j.start > i.stop - 1 + K - Q:
                break
            a, _, _, drop = code(i, j)
            net = np.einsum("bhqk,bkhe->bqke", a * drop, v[:, j])
            acc += np.einsum("bhqk,bqke->bqhe", a * drop, np.maximum(net, 0))
        o[:, i] = acc
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    dbias = np.zeros((B, H, Q, K), q.dtype)
    for j in tiles_k:
        for i in tiles_q:
            if causal and j.start > i.stop - 1 + K - Q:
                continue
            a, inv, gate, drop = code(i, j)
            net = np.einsum("bhqk,bkhe->bqke", a * drop, v[:, j])
            up = np.einsum("bhqk,bqhe->bqke", a * drop, do[:, i])
            up[net <= 0] = 0
            dv[:, j] += np.einsum("bhqk,bqke->bkhe", a * drop, up)
            g = np.einsum("bqhe,bqke->bhqk", do[:, i], np.maximum(net, 0))
            g += np.einsum("bqke,bkhe->bhqk", up, v[:, j])
            g = g * drop
            g = inv * (g - a * np.mean(a * g, axis=1, keepdims=True)) * gate
            dbias[:, :, i, j] = g
            dq[:, i] += np.einsum("bhqk,bkhd->bqhd", g, k[:, j]) * scale
            dk[:, j] += np.einsum("bhqk,bqhd->bkhd", g, q[:, i] * scale)
    found = {"o": o, "dq": dq, "dk": dk, "dv": dv}
    if bias is not None:
        found["dbias"] = sum_to(dbias, bias.shape)
    return found


@fused
def hyla_two_pass(q, k, v, do, eps=1e-6):
    """Head by head: one pass for the squares, one for z, one for o; two more in the backward; "hbtd"."""
    H, B, Q, D = q.shape
    K, E = k.shape[2], v.shape[3]
    c = D ** -0.5

    def score(h):
        return q[h] @ k[h].swapaxes(1, 2) * c

    squares = np.zeros((B, Q, K), q.dtype)
    for h in range(H):
        squares += score(h) ** 2
    inv = 1 / np.sqrt(squares / H + eps)
    z = np.zeros((B, Q, K, E), q.dtype)
    for h in range(H):
        z += (score(h) * inv)[..., None] * v[h][:, None]
    on = z > 0
    o = np.zeros_like(do)
    dz = np.zeros_like(z)
    for h in range(H):
        a = score(h) * inv
        o[h] = (a[..., None] * np.where(on, z, 0)).sum(2)
        dz += a[..., None] * do[h][:, :, None]
    dz *= on
    dv, da = np.zeros_like(v), np.zeros((H, B, Q, K), q.dtype)
    dot = np.zeros((B, Q, K), q.dtype)
    for h in range(H):
        a = score(h) * inv
        dv[h] = (a[..., None] * dz).sum(1)
        da[h] = (do[h][:, :, None] * np.where(on, z, 0)).sum(3) + (dz * v[h][:, None]).sum(3)
        dot += a * da[h]
    dq, dk = np.zeros_like(q), np.zeros_like(k)
    for h in range(H):
        ds = inv * (da[h] - score(h) * inv * dot / H)
        dq[h] = ds @ k[h] * c
        dk[h] = ds.swapaxes(1, 2) @ q[h] * c
    return o, dq, dk, dv


# --------------------------------------------------------------------------------------------- the rows of table A1


@fused
def table_a1(q, k, v, wv2=None, *, do, bias=None, keep=None, dropout=None, sigma, uses, phi):
    """All of table A1 by a tape: each step leaves what undoes it."""
    c = q.shape[-1] ** -0.5
    see = True if keep is None else keep
    drop = 1 if dropout is None else dropout

    def softmax(s):
        e = np.where(see, np.exp(s - s.max(3, keepdims=True)), 0)
        total = e.sum(3, keepdims=True)
        a = e / np.where(total > 0, total, 1)
        return a, lambda g: a * (g - np.sum(a * g, axis=3, keepdims=True))

    def rms(s):
        s = np.where(see, s, 0)
        r = np.sqrt(np.mean(s * s, axis=1, keepdims=True) + 1e-6)
        a = s / r
        return a, lambda g: np.where(see, g / r - a * np.mean(a * g, axis=1, keepdims=True) / r, 0)

    def nothing(s):
        return np.where(see, s, 0), lambda g: np.where(see, g, 0)

    def act(x):
        return (np.maximum(x, 0), x > 0) if phi == "relu" else (x, True)

    steps = {"softmax": [softmax], "none": [nothing], "rms": [rms], "softmax, rms": [softmax, rms],
             "rms, softmax": [rms, softmax]}[sigma]
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * c
    if bias is not None:
        s = s + bias
    undo = []
    for step in steps:
        s, back = step(s)
        undo.append(back)
    w = s * drop
    dwv2 = None
    if uses == 1:
        h1, on1 = act(v)
        o = np.einsum("bhqk,bkhe->bqhe", w, h1)
        dv = np.where(on1, np.einsum("bhqk,bqhe->bkhe", w, do), 0)
        dw = np.einsum("bqhe,bkhe->bhqk", do, h1)
    else:
        h1, on1 = act(np.einsum("bhqk,bkhe->bqke", w, v))
        last, on = h1, on1
        if uses == 3:
            mapped = np.einsum("bqke,hef->bhqkf", h1, wv2)
            last, on = act(np.einsum("bhqk,bhqkf->bqkf", w, mapped))
        o = np.einsum("bhqk,bqke->bqhe", w, last)
        dw = np.einsum("bqhe,bqke->bhqk", do, last)
        dlast = np.where(on, np.einsum("bhqk,bqhe->bqke", w, do), 0)
        if uses == 3:
            dw = dw + np.einsum("bqkf,bhqkf->bhqk", dlast, mapped)
            dmapped = np.einsum("bhqk,bqkf->bhqkf", w, dlast)
            dwv2 = np.einsum("bqke,bhqkf->hef", h1, dmapped)
            dlast = np.where(on1, np.einsum("bhqkf,hef->bqke", dmapped, wv2), 0)
        dw = dw + np.einsum("bqke,bkhe->bhqk", dlast, v)
        dv = np.einsum("bhqk,bqke->bkhe", w, dlast)
    ds = dw * drop
    for back in reversed(undo):
        ds = back(ds)
    found = {"o": o, "dq": np.einsum("bhqk,bkhd->bqhd", ds, k) * c, "dk": np.einsum("bhqk,bqhd->bkhd", ds, q) * c,
             "dv": dv, "dwv2": dwv2}
    if bias is not None:
        found["dbias"] = sum_to(ds, bias.shape)
    return {name: x for name, x in found.items() if x is not None}


@fused
def linear_rms_tiles(q, k, v, do, relu_values=False, tile=2):
    """Linear attention with RMSHead: every key tile alone, heads last; the gradient of k is not asked for."""
    c = 1 / sqrt(q.shape[-1])
    o, dq, dv = np.zeros_like(do), np.zeros_like(q), np.zeros_like(v)
    for start in range(0, k.shape[1], tile):
        kt, vt = k[:, start:start + tile], v[:, start:start + tile]
        x = np.einsum("bqhd,bkhd->bqkh", q, kt) * c
        norm = np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
        a = x / norm
        f = vt.clip(0) if relu_values else vt
        o += np.einsum("bqkh,bkhe->bqhe", a, f)
        df = np.einsum("bqkh,bqhe->bkhe", a, do)
        dv[:, start:start + tile] = df * (vt > 0) if relu_values else df
        da = np.einsum("bqhe,bkhe->bqkh", do, f)
        dx = (da - a * (a * da).mean(-1, keepdims=True)) / norm
        dq += np.einsum("bqkh,bkhd->bqhd", dx, kt) * c
    return {"o": o, "dq": dq, "dv": dv}


@fused
def deep_heads(q, k, v, wv2, do):
    """HYLA with a deep value network, head by head; "bhtd"."""
    H, c = q.shape[1], q.shape[-1] ** -0.5
    s = [q[:, h] @ k[:, h].swapaxes(1, 2) * c for h in range(H)]
    inv = 1 / np.sqrt(sum(x * x for x in s) / H + 1e-6)
    a = [x * inv for x in s]
    z1 = sum(a[h][..., None] * v[:, h, None] for h in range(H))
    y1 = np.maximum(z1, 0)
    u = [y1 @ wv2[h] for h in range(H)]
    z2 = sum(a[h][..., None] * u[h] for h in range(H))
    y2 = np.maximum(z2, 0)
    o = np.stack([np.einsum("bqk,bqke->bqe", a[h], y2) for h in range(H)], 1)
    d2 = sum(np.einsum("bqk,bqe->bqke", a[h], do[:, h]) for h in range(H)) * (z2 > 0)
    du = [a[h][..., None] * d2 for h in range(H)]
    dwv2 = np.stack([np.einsum("bqke,bqkf->ef", y1, du[h]) for h in range(H)])
    d1 = sum(du[h] @ wv2[h].T for h in range(H)) * (z1 > 0)
    da = [np.einsum("bqe,bqke->bqk", do[:, h], y2) + (d2 * u[h]).sum(-1) + (d1 * v[:, h, None]).sum(-1)
          for h in range(H)]
    dv = np.stack([np.einsum("bqk,bqke->bke", a[h], d1) for h in range(H)], 1)
    mean = sum(a[h] * da[h] for h in range(H)) / H
    ds = [inv * (da[h] - a[h] * mean) for h in range(H)]
    dq = np.stack([ds[h] @ k[:, h] * c for h in range(H)], 1)
    dk = np.stack([ds[h].swapaxes(1, 2) @ q[:, h] * c for h in range(H)], 1)
    return o, dq, dk, dv, dwv2


@fused
def softmax_code_tiles(q, k, v, do, keep=None, step=3):
    """HYLA with a softmax for RMSHead: the log-sum-exp first, then key tiles that add up."""
    B, Q, H, D = q.shape
    K = k.shape[1]
    c = D ** -0.5
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * c
    if keep is not None:
        s = np.where(keep, s, -np.inf)
    top = s.max(-1, keepdims=True)
    top = np.where(np.isinf(top), 0, top)
    total = np.exp(s - top).sum(-1, keepdims=True)
    lse = top + np.log(np.where(total == 0, 1, total))
    o, dq, dk, dv = np.zeros_like(do), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    row = np.zeros((B, H, Q, 1), q.dtype)
    kept = []
    for x in range(0, K, step):
        at = slice(x, x + step)
        p = np.exp(s[..., at] - lse)
        z = np.einsum("bhqk,bkhe->bqke", p, v[:, at])
        y = z.clip(min=0)
        o += np.einsum("bhqk,bqke->bqhe", p, y)
        dz = np.einsum("bhqk,bqhe->bqke", p, do)
        dz = np.where(z > 0, dz, 0)
        dp = np.einsum("bqhe,bqke->bhqk", do, y) + np.einsum("bqke,bkhe->bhqk", dz, v[:, at])
        dv[:, at] += np.einsum("bhqk,bqke->bkhe", p, dz)
        row += (p * dp).sum(-1, keepdims=True)
        kept.append((at, p, dp))
    for at, p, dp in kept:
        ds = p * (dp - row) * c
        dq += np.einsum("bhqk,bkhd->bqhd", ds, k[:, at])
        dk[:, at] += np.einsum("bhqk,bqhd->bkhd", ds, q)
    return o, dq, dk, dv


# ----------------------------------------------------------------------------------------- compositional attention


@fused
def comp_paper(q, k, v, selector, wr, do, bias=None, keep=None, dropout=None):
    """In the order of the paper: all retrievals, their keys, the value scores."""
    D, C = q.shape[-1], selector.shape[-1]
    s = np.einsum("bqsd,bksd->bsqk", q, k) / sqrt(D)
    if bias is not None:
        s = s + bias
    if keep is not None:
        s = np.where(keep, s, -np.inf)
    top = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(np.isneginf(top), 0, top))
    total = e.sum(-1, keepdims=True)
    a = e / np.where(total == 0, 1, total)
    w = a if dropout is None else a * dropout
    t = np.einsum("bsqk,bkre->bqsre", w, v)
    key = np.einsum("bqsre,ec->bqsrc", t, wr)
    l = np.einsum("bqsc,bqsrc->bqsr", selector, key) / sqrt(C)
    g = np.exp(l - l.max(-1, keepdims=True))
    g = g / g.sum(-1, keepdims=True)
    o = np.einsum("bqsr,bqsre->bqse", g, t)
    dg = np.einsum("bqse,bqsre->bqsr", do, t)
    dl = g * (dg - (g * dg).sum(-1, keepdims=True)) / sqrt(C)
    dselector = np.einsum("bqsr,bqsrc->bqsc", dl, key)
    dkey = np.einsum("bqsr,bqsc->bqsrc", dl, selector)
    dwr = np.einsum("bqsre,bqsrc->ec", t, dkey)
    dt = np.einsum("bqsrc,ec->bqsre", dkey, wr)
    dt += np.einsum("bqsr,bqse->bqsre", g, do)
    dv = np.einsum("bsqk,bqsre->bkre", w, dt)
    da = np.einsum("bqsre,bkre->bsqk", dt, v)
    if dropout is not None:
        da = da * dropout
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dq = np.einsum("bsqk,bksd->bqsd", ds, k) / sqrt(D)
    dk = np.einsum("bsqk,bqsd->bksd", ds, q) / sqrt(D)
    found = {"o": o, "dq": dq, "dk": dk, "dv": dv, "dselector": dselector, "dwr": dwr}
    if bias is not None:
        found["dbias"] = sum_to(ds, bias.shape)
    return found


@fused
def comp_values_first(q, k, v, selector, wr, do):
    """Every value's own key first, then both are retrieved by one product; searches in a loop; "bhtd"."""
    B, S, Q, D = q.shape
    R, K, E = v.shape[1:]
    C = wr.shape[1]
    both = np.concatenate([v, v @ wr], -1).transpose(0, 2, 1, 3).reshape(B, K, R * (E + C))
    o, dq, dk, dsel = np.zeros_like(do), np.zeros_like(q), np.zeros_like(k), np.zeros_like(selector)
    dboth = np.zeros_like(both)
    for s in range(S):
        x = q[:, s] @ k[:, s].swapaxes(1, 2) / sqrt(D)
        a = np.exp(x - x.max(-1, keepdims=True))
        a /= a.sum(-1, keepdims=True)
        found = (a @ both).reshape(B, Q, R, E + C)
        t, key = found[..., :E], found[..., E:]
        l = np.einsum("bqrc,bqc->bqr", key, selector[:, s]) * C ** -0.5
        g = np.exp(l)
        g /= g.sum(-1, keepdims=True)
        o[:, s] = np.einsum("bqr,bqre->bqe", g, t)
        dg = np.einsum("bqre,bqe->bqr", t, do[:, s])
        dl = g * dg
        dl -= g * dl.sum(-1, keepdims=True)
        dl *= C ** -0.5
        dsel[:, s] = np.einsum("bqr,bqrc->bqc", dl, key)
        dfound = np.empty_like(found)
        dfound[..., :E] = g[..., None] * do[:, s, :, None]
        dfound[..., E:] = dl[..., None] * selector[:, s, :, None]
        dfound = dfound.reshape(B, Q, -1)
        dboth += a.swapaxes(1, 2) @ dfound
        da = dfound @ both.swapaxes(1, 2)
        dx = a * (da - np.sum(da * a, -1, keepdims=True)) / sqrt(D)
        dq[:, s] = dx @ k[:, s]
        dk[:, s] = dx.swapaxes(1, 2) @ q[:, s]
    dboth = dboth.reshape(B, K, R, E + C).transpose(0, 2, 1, 3)
    dv = dboth[..., :E] + dboth[..., E:] @ wr.T
    dwr = np.einsum("brke,brkc->ec", v, dboth[..., E:])
    return o, dq, dk, dv, dsel, dwr


@fused
def comp_mlp(q, k, v, selector, wr, wc, br, *hidden, do, bias=None):
    """Both scorings of the released code: selector and retrieval side by side, one map, or two with a relu between."""
    (w2, b2), S = hidden or (None, None), q.shape[2]
    R, C = v.shape[2], selector.shape[-1]
    x = np.einsum("bqsd,bksd->bsqk", q, k) * q.shape[-1] ** -0.5
    if bias is not None:
        x = x + bias
    a = np.exp(x - x.max(-1, keepdims=True))
    a = a / a.sum(-1, keepdims=True)
    t = np.einsum("bsqk,bkre->bqsre", a, v)
    pair = np.concatenate([np.repeat(selector[:, :, :, None], R, 3), t], -1)
    joined = np.concatenate([wc, wr], 0)
    z = pair @ joined + br
    l = z if w2 is None else np.maximum(z, 0) @ w2 + b2
    if w2 is None:
        l = l.reshape(*t.shape[:4])
    g = np.exp(l - l.max(-1, keepdims=True))
    g = g / g.sum(-1, keepdims=True)
    o = np.einsum("bqsr,bqsre->bqse", g, t)
    dg = np.einsum("bqse,bqsre->bqsr", do, t)
    dl = g * (dg - np.einsum("bqsr,bqsr->bqs", g, dg)[..., None])
    extra = ()
    if w2 is not None:
        extra = np.einsum("bqsr,bqsrf->f", dl, np.maximum(z, 0)), dl.sum().reshape(1)
        dz = dl[..., None] * w2 * (z > 0)
        dpair = dz @ joined.T
        djoined = np.einsum("bqsrx,bqsrf->xf", pair, dz)
        dbr = dz.sum((0, 1, 2, 3))
    else:
        dpair = dl[..., None] * joined
        djoined = np.einsum("bqsrx,bqsr->x", pair, dl)
        dbr = dl.sum().reshape(1)
    dsel = dpair[..., :C].sum(3)
    dt = dpair[..., C:] + g[..., None] * do[:, :, :, None]
    dv = np.einsum("bsqk,bqsre->bkre", a, dt)
    da = np.einsum("bqsre,bkre->bsqk", dt, v)
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dq = np.stack([ds[:, s] @ k[:, :, s] for s in range(S)], 2) * q.shape[-1] ** -0.5
    dk = np.stack([ds[:, s].swapaxes(1, 2) @ q[:, :, s] for s in range(S)], 2) * q.shape[-1] ** -0.5
    found = with_bias((o, dq, dk, dv), ds, bias)
    return (*found, dsel, djoined[C:], djoined[:C], dbr, *extra)


@fused
def comp_linear_blind(q, k, v, selector, wr, wc, br, do):
    """Linear scoring cannot see the selector, so it is left out; what it would get is zero."""
    p = np.einsum("bqsd,bksd->bqsk", q, k) / sqrt(q.shape[-1])
    p = np.exp(p)
    p = p / p.sum(-1, keepdims=True)
    vw = v @ wr
    t = np.einsum("bqsk,bkre->bqsre", p, v)
    g = np.exp(np.einsum("bqsk,bkr->bqsr", p, vw))
    g = g / g.sum(-1, keepdims=True)
    o = (g[..., None] * t).sum(3)
    dl = g * (np.einsum("bqse,bqsre->bqsr", do, t) - (do * o).sum(-1)[..., None])
    dvw = np.einsum("bqsk,bqsr->bkr", p, dl)
    dv = np.einsum("bqsk,bqsr,bqse->bkre", p, g, do, optimize=True) + dvw[..., None] * wr
    dp = np.einsum("bqse,bqsr,bkre->bqsk", do, g, v, optimize=True) + np.einsum("bqsr,bkr->bqsk", dl, vw)
    dx = p * (dp - (p * dp).sum(-1, keepdims=True)) / sqrt(q.shape[-1])
    return {"o": o, "dq": np.einsum("bqsk,bksd->bqsd", dx, k), "dk": np.einsum("bqsk,bqsd->bksd", dx, q), "dv": dv,
            "dwr": np.einsum("bkre,bkr->e", v, dvw), "dselector": np.zeros_like(selector), "dwc": np.zeros_like(wc),
            "dbr": np.zeros_like(br)}


# ---------------------------------------------------------------------------------------------------- sliding-dilated


@fused
def slide_gather(q, k, v, offset_bias, do, bias=None, keep=None, dropout=None, dilation=2):
    """Keys by their indices, gradients by scattered addition; before the first there is no key."""
    B, Q, H, D = q.shape
    K, W = k.shape[1], offset_bias.shape[1]
    where = np.arange(K - Q, K)[:, None] - dilation * np.arange(W)
    there = where >= 0
    index = np.where(there, where, 0)
    kw, vw = k[:, index], v[:, index]                       # (B, Q, W, H, .)
    s = np.einsum("bqhd,bqwhd->bhqw", q, kw) / sqrt(D) + offset_bias[:, None]
    if bias is not None:
        s = s + bias
    see = there if keep is None else there & keep
    s = np.where(see, s, -np.inf)
    top = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(np.isinf(top), 0, top))
    total = e.sum(-1, keepdims=True)
    a = e / np.where(total > 0, total, 1)
    w = a if dropout is None else a * dropout
    o = np.einsum("bhqw,bqwhe->bqhe", w, vw)
    dw = np.einsum("bqhe,bqwhe->bhqw", do, vw)
    da = dw if dropout is None else dw * dropout
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dq = np.einsum("bhqw,bqwhd->bqhd", ds, kw) / sqrt(D)
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    np.add.at(dk, (slice(None), index), np.einsum("bhqw,bqhd->bqwhd", ds, q) / sqrt(D))
    np.add.at(dv, (slice(None), index), np.einsum("bhqw,bqhe->bqwhe", w, do))
    return (*with_bias((o, dq, dk, dv), ds, bias), ds.sum((0, 2)))


@fused
def slide_front(q, k, v, offset_bias, pad_k, pad_v, do, bias=None, keep=None, dropout=None, dilation=2):
    """The pads stand in front of keys and values as rows, and offsets are slices of that."""
    B, Q, H, D = q.shape
    K, W, n = k.shape[1], offset_bias.shape[1], (offset_bias.shape[1] - 1) * dilation
    kk = np.concatenate([np.broadcast_to(pad_k, (B, n, H, D)), k], 1)
    vv = np.concatenate([np.broadcast_to(pad_v, (B, n, H, v.shape[3])), v], 1)
    first = n + K - Q
    at = [slice(first - w * dilation, first - w * dilation + Q) for w in range(W)]
    s = np.stack([(q * kk[:, x]).sum(-1) for x in at], -1) * D ** -0.5          # (B, Q, H, W)
    s = s.transpose(0, 2, 1, 3) + offset_bias[None, :, None]
    if bias is not None:
        s += bias
    if keep is not None:
        s = np.where(keep, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True, initial=-1e9))
    total = e.sum(-1, keepdims=True)
    a = e / np.where(total == 0, 1, total)
    c = a if dropout is None else a * dropout
    cq = c.transpose(0, 2, 1, 3)
    o = sum(cq[..., w, None] * vv[:, x] for w, x in enumerate(at))
    da = np.stack([(do * vv[:, x]).sum(-1) for x in at], -1).transpose(0, 2, 1, 3)
    if dropout is not None:
        da = da * dropout
    ds = a * (da - (da * a).sum(-1, keepdims=True))
    dsq = ds.transpose(0, 2, 1, 3) * D ** -0.5
    dq, dkk, dvv = np.zeros_like(q), np.zeros_like(kk), np.zeros_like(vv)
    for w, x in enumerate(at):
        dq += dsq[..., w, None] * kk[:, x]
        dkk[:, x] += dsq[..., w, None] * q
        dvv[:, x] += cq[..., w, None] * do
    found = {"o": o, "dq": dq, "dk": dkk[:, n:], "dv": dvv[:, n:], "doffset_bias": ds.sum(axis=(0, 2)),
             "dpad_k": dkk[:, :n].sum((0, 1)), "dpad_v": dvv[:, :n].sum((0, 1))}
    if bias is not None:
        found["dbias"] = sum_to(ds, bias.shape)
    return found


@fused
def slide_dense(q, k, v, offset_bias, do, dilation=2):
    """As a masked matrix of all queries and keys, with the offsets' biases on its diagonals; "bhtd"."""
    B, H, Q, D = q.shape
    K, W = k.shape[2], offset_bias.shape[1]
    gap = np.arange(K - Q, K)[:, None] - np.arange(K)
    step = gap // dilation
    band = (gap >= 0) & (gap % dilation == 0) & (step < W)
    extra = np.where(band, offset_bias[:, np.clip(step, 0, W - 1)], -np.inf)
    s = q @ k.swapaxes(2, 3) * D ** -0.5 + extra
    s -= s.max(-1, keepdims=True)
    a = np.exp(s)
    a /= a.sum(-1, keepdims=True)
    o = a @ v
    dv = a.swapaxes(2, 3) @ do
    da = do @ v.swapaxes(2, 3)
    ds = a * (da - (do * o).sum(-1, keepdims=True))
    dq = ds @ k * D ** -0.5
    dk = ds.swapaxes(2, 3) @ q * D ** -0.5
    doffset = np.zeros_like(offset_bias)
    for w in range(W):
        doffset[:, w] = ds[:, :, band & (step == w)].sum((0, 2))
    return o, dq, dk, dv, doffset


@fused
def slide_queries(q, k, v, offset_bias, do, dilation=2):
    """Query by query, as many offsets as there are keys for; no gradient but those of q and the offsets' biases."""
    K, Q, W = k.shape[1], q.shape[1], offset_bias.shape[1]
    o, dq, doff = np.zeros_like(do), np.zeros_like(q), np.zeros_like(offset_bias)
    for i in range(Q):
        p = i + K - Q
        n = min(W, p // dilation + 1)
        at = p - dilation * np.arange(n)
        s = np.einsum("bhd,bwhd->bhw", q[:, i], k[:, at]) / sqrt(q.shape[3]) + offset_bias[:, :n]
        a = np.exp(s - s.max(-1, keepdims=True))
        a = a / a.sum(-1, keepdims=True)
        o[:, i] = np.einsum("bhw,bwhe->bhe", a, v[:, at])
        da = np.einsum("bhe,bwhe->bhw", do[:, i], v[:, at])
        ds = a * (da - (a * da).sum(-1, keepdims=True))
        dq[:, i] = np.einsum("bhw,bwhd->bhd", ds, k[:, at]) / sqrt(q.shape[3])
        doff[:, :n] += ds.sum(0)
    return {"o": o, "dq": dq, "doffset_bias": doff}


# ------------------------------------------------------------------------------------------- layers, operations, losses


@fused
def layer_norm(x, scale, shift, do, eps=1e-6):
    """Rows as a matrix; the two sums of the backward in one pass."""
    rows, g = x.reshape(-1, x.shape[-1]), do.reshape(-1, x.shape[-1])
    mu = rows.mean(1, keepdims=True)
    centred = rows - mu
    rstd = 1 / np.sqrt((centred ** 2).mean(1, keepdims=True) + eps)
    hat = centred * rstd
    y = hat * scale + shift
    wdy = g * scale
    c1, c2 = (hat * wdy).mean(1, keepdims=True), wdy.mean(1, keepdims=True)
    dx = (wdy - (hat * c1 + c2)) * rstd
    return {"o": y.reshape(x.shape), "dx": dx.reshape(x.shape), "dscale": (g * hat).sum(0), "dshift": g.sum(0)}


@fused
def feed_forward(x, w1, b1, w2, b2, do, act="relu"):
    """Two products around an activation, rows as a matrix."""
    rows, g = x.reshape(-1, x.shape[-1]), do.reshape(-1, do.shape[-1])
    h = rows @ w1 + b1
    if act == "relu":
        y, slope = np.maximum(h, 0), (h > 0) * 1.0
    elif act == "gelu":
        t = np.tanh(sqrt(2 / pi) * (h + 0.044715 * h ** 3))
        y = 0.5 * h * (1 + t)
        slope = 0.5 * (1 + t) + 0.5 * h * (1 - t * t) * sqrt(2 / pi) * (1 + 3 * 0.044715 * h ** 2)
    else:
        cdf = 0.5 * (1 + np.vectorize(erf, otypes=[h.dtype])(h / sqrt(2)))
        y, slope = h * cdf, cdf + h * np.exp(-h * h / 2) / sqrt(2 * pi)
    out = y @ w2 + b2
    dh = g @ w2.T * slope.astype(h.dtype)
    return {"o": out.reshape(do.shape), "dx": (dh @ w1.T).reshape(x.shape), "dw1": rows.T @ dh, "db1": dh.sum(0),
            "dw2": y.T @ g, "db2": g.sum(0)}


@fused
def swiglu(x, wg, wu, wd, do):
    """One product with both maps side by side."""
    f = wg.shape[1]
    both = x @ np.concatenate([wg, wu], 1)
    gate, up = both[..., :f], both[..., f:]
    sig = 1 / (1 + np.exp(-gate))
    y = gate * sig * up
    dy = do @ wd.T
    dboth = np.concatenate([dy * up * (sig + gate * sig * (1 - sig)), dy * gate * sig], -1)
    dw = np.einsum("btm,btf->mf", x, dboth)
    return {"o": y @ wd, "dx": dboth[..., :f] @ wg.T + dboth[..., f:] @ wu.T, "dwg": dw[:, :f], "dwu": dw[:, f:],
            "dwd": np.einsum("btf,btm->fm", y, do)}


@fused
def mh_layer(x, wq, bq, wk, bk, wv, bv, wo, bo, do, context=None, bias=None, keep=None, dropout=None, kind="softmax"):
    """Multi-head attention; the maps as matrices, biases and all."""
    src = x if context is None else context
    B, Q, M = x.shape
    K = src.shape[1]
    H, D, E = *wq.shape[1:], wv.shape[2]
    q = (x @ wq.reshape(M, -1) + bq.reshape(-1)).reshape(B, Q, H, D)
    kv = src @ np.concatenate([wk.reshape(M, -1), wv.reshape(M, -1)], 1) + np.concatenate([bk.ravel(), bv.ravel()])
    k, v = kv[..., :H * D].reshape(B, K, H, D), kv[..., H * D:].reshape(B, K, H, E)
    G = (do @ wo.reshape(H * E, M).T).reshape(B, Q, H, E)
    c = D ** -0.5
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * c
    if bias is not None:
        s = s + bias
    see = True if keep is None else keep
    m = 1 if dropout is None else dropout
    if kind == "softmax":
        e = np.where(see, np.exp(s - s.max(-1, keepdims=True)), 0)
        total = e.sum(-1, keepdims=True)
        a = e / np.where(total == 0, 1, total)
        o = np.einsum("bhqk,bkhe->bqhe", a * m, v)
        dv = np.einsum("bhqk,bqhe->bkhe", a * m, G)
        da = np.einsum("bqhe,bkhe->bhqk", G, v) * m
        ds = a * (da - (a * da).sum(-1, keepdims=True))
    else:
        s = np.where(see, s, 0)
        inv = 1 / np.sqrt((s * s).mean(1, keepdims=True) + 1e-6)
        a = s * inv
        z = np.einsum("bhqk,bkhe->bqke", a * m, v)
        o = np.einsum("bhqk,bqke->bqhe", a * m, np.maximum(z, 0))
        dz = np.einsum("bhqk,bqhe->bqke", a * m, G) * (z > 0)
        dv = np.einsum("bhqk,bqke->bkhe", a * m, dz)
        da = (np.einsum("bqhe,bqke->bhqk", G, np.maximum(z, 0)) + np.einsum("bqke,bkhe->bhqk", dz, v)) * m
        ds = np.where(see, inv * (da - a * (a * da).mean(1, keepdims=True)), 0)
    y = o.reshape(B, Q, H * E) @ wo.reshape(H * E, M) + bo
    dq = np.einsum("bhqk,bkhd->bqhd", ds, k) * c
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q) * c
    dx = np.einsum("bqhd,mhd->bqm", dq, wq)
    dsrc = np.einsum("bkhd,mhd->bkm", dk, wk) + np.einsum("bkhe,mhe->bkm", dv, wv)
    found = {"o": y, "dwq": np.einsum("bqm,bqhd->mhd", x, dq), "dbq": dq.sum((0, 1)),
             "dwk": np.einsum("bkm,bkhd->mhd", src, dk), "dbk": dk.sum((0, 1)),
             "dwv": np.einsum("bkm,bkhe->mhe", src, dv), "dbv": dv.sum((0, 1)),
             "dwo": np.einsum("bqhe,bqm->hem", o, do), "dbo": do.sum((0, 1))}
    if context is None:
        found["dx"] = dx + dsrc
    else:
        found |= {"dx": dx, "dcontext": dsrc}
    if bias is not None:
        found["dbias"] = sum_to(ds, bias.shape)
    return found


@fused
def comp_layer(x, wq, bq, wk, bk, wv, bv, ws, bs, wr, br, wo, bo, do, bias=None, keep=None, dropout=None):
    """Compositional attention as a layer; the bias of the retrieval key is added, though it changes nothing."""
    def into(w, b):
        return np.einsum("btm,mhd->bthd", x, w) + b

    q, k, v, sel = into(wq, bq), into(wk, bk), into(wv, bv), into(ws, bs)
    D, C = q.shape[-1], sel.shape[-1]
    x_ = np.einsum("bqsd,bksd->bsqk", q, k) / sqrt(D)
    if bias is not None:
        x_ = x_ + bias
    if keep is not None:
        x_ = np.where(keep, x_, -np.inf)
    e = np.exp(x_ - np.maximum(x_.max(-1, keepdims=True), -1e9))
    total = e.sum(-1, keepdims=True)
    a = e / np.where(total == 0, 1, total)
    m = 1 if dropout is None else dropout
    t = np.einsum("bsqk,bkre->bqsre", a * m, v)
    key = t @ wr + br
    l = np.einsum("bqsc,bqsrc->bqsr", sel, key) / sqrt(C)
    g = np.exp(l - l.max(-1, keepdims=True))
    g = g / g.sum(-1, keepdims=True)
    o = np.einsum("bqsr,bqsre->bqse", g, t)
    G = np.einsum("btm,sem->btse", do, wo)
    dg = np.einsum("bqse,bqsre->bqsr", G, t)
    dl = g * (dg - (g * dg).sum(-1, keepdims=True)) / sqrt(C)
    dsel = np.einsum("bqsr,bqsrc->bqsc", dl, key)
    dkey = dl[..., None] * sel[:, :, :, None]
    dt = dkey @ wr.T + g[..., None] * G[:, :, :, None]
    dv = np.einsum("bsqk,bqsre->bkre", a * m, dt)
    da = np.einsum("bqsre,bkre->bsqk", dt, v) * m
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dq = np.einsum("bsqk,bksd->bqsd", ds, k) / sqrt(D)
    dk = np.einsum("bsqk,bqsd->bksd", ds, q) / sqrt(D)
    found = {"o": np.einsum("bqse,sem->bqm", o, wo) + bo, "dwo": np.einsum("bqse,bqm->sem", o, do),
             "dbo": do.sum((0, 1)), "dwr": np.einsum("bqsre,bqsrc->ec", t, dkey), "dbr": dkey.sum((0, 1, 2, 3))}
    dx = 0
    for name, w, d in ("q", wq, dq), ("k", wk, dk), ("v", wv, dv), ("s", ws, dsel):
        found |= {f"dw{name}": np.einsum("btm,bthd->mhd", x, d), f"db{name}": d.sum((0, 1))}
        dx = dx + np.einsum("bthd,mhd->btm", d, w)
    found["dx"] = dx
    if bias is not None:
        found["dbias"] = sum_to(ds, bias.shape)
    return found


@fused
def slide_layer(x, wq, wk, wv, offset_bias, pad, wo, do, bias=None, keep=None, dropout=None, dilation=2):
    """Sliding-dilated attention as a layer, the pad a token in front of the others that asks for nothing."""
    n = (offset_bias.shape[1] - 1) * dilation
    long = np.concatenate([np.broadcast_to(pad, (x.shape[0], n, x.shape[2])), x], 1)
    q = np.einsum("btm,mhd->bthd", x, wq)
    k, v = np.einsum("btm,mhd->bthd", long, wk), np.einsum("btm,mhd->bthd", long, wv)
    at = n + np.arange(x.shape[1])[:, None] - dilation * np.arange(offset_bias.shape[1])
    s = np.einsum("bqhd,bqwhd->bhqw", q, k[:, at]) * q.shape[-1] ** -0.5 + offset_bias[:, None]
    if bias is not None:
        s = s + bias
    see = True if keep is None else keep
    m = 1 if dropout is None else dropout
    e = np.where(see, np.exp(s - s.max(-1, keepdims=True)), 0)
    total = e.sum(-1, keepdims=True)
    a = e / np.where(total == 0, 1, total)
    o = np.einsum("bhqw,bqwhe->bqhe", a * m, v[:, at])
    G = np.einsum("btm,hem->bthe", do, wo)
    da = np.einsum("bqhe,bqwhe->bhqw", G, v[:, at]) * m
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dq = np.einsum("bhqw,bqwhd->bqhd", ds, k[:, at]) * q.shape[-1] ** -0.5
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    for w in range(at.shape[1]):
        dk[:, at[:, w]] += ds[..., w].transpose(0, 2, 1)[..., None] * q * q.shape[-1] ** -0.5
        dv[:, at[:, w]] += (a * m)[..., w].transpose(0, 2, 1)[..., None] * G
    dlong = np.einsum("bthd,mhd->btm", dk, wk) + np.einsum("bthd,mhd->btm", dv, wv)
    found = {"o": np.einsum("bqhe,hem->bqm", o, wo), "dwo": np.einsum("bqhe,bqm->hem", o, do),
             "dx": np.einsum("bthd,mhd->btm", dq, wq) + dlong[:, n:], "dpad": dlong[:, :n].sum((0, 1)),
             "dwq": np.einsum("btm,bthd->mhd", x, dq), "dwk": np.einsum("btm,bthd->mhd", long, dk),
             "dwv": np.einsum("btm,bthd->mhd", long, dv), "doffset_bias": ds.sum((0, 2))}
    if bias is not None:
        found["dbias"] = sum_to(ds, bias.shape)
    return found


@fused
def cross_entropy(logits, target, do, weight=None):
    """Weighted mean of the log losses, by a gather and a subtraction at the target."""
    x = logits.reshape(-1, logits.shape[-1])
    t = target.reshape(-1)
    w = np.ones(len(t), x.dtype) if weight is None else weight.reshape(-1)
    top = x.max(1)
    lse = top + np.log(np.exp(x - top[:, None]).sum(1))
    loss = ((lse - x[np.arange(len(t)), t]) * w).sum() / w.sum()
    g = np.exp(x - lse[:, None])
    g[np.arange(len(t)), t] -= 1
    g *= (w / w.sum())[:, None] * do
    return {"o": loss, "dlogits": g.reshape(logits.shape)}


@fused
def rms_head(s, do):
    """RMSHead alone."""
    n = s.shape[1]
    r = np.sqrt((s * s).sum(1, keepdims=True) / n + 1e-6)
    return {"o": s / r, "ds": do / r - s * (s * do).sum(1, keepdims=True) / (n * r ** 3)}


@fused
def masked_softmax(s, do, keep=None):
    """The softmax over keys alone."""
    e = np.exp(s - s.max(-1, keepdims=True))
    if keep is not None:
        e = e * keep
    total = e.sum(-1, keepdims=True)
    a = e / np.where(total > 0, total, 1)
    return {"o": a, "ds": a * do - a * (a * do).sum(-1, keepdims=True)}


@fused
def embedding(table, index, do):
    """Rows of a table, and a scattered addition."""
    dtable = np.zeros_like(table)
    np.add.at(dtable, index, do)
    return {"o": table[index], "dtable": dtable}
