import math

import numpy as np
import torch
import torch.nn.functional as F


def T(x):
    return torch.from_numpy(x.astype(np.float32) if UP and x.dtype == np.float16 else x)


R = []  # (name, fn, variant, kwargs, dtypes)
ALL = ("float32", "float64", "bfloat16", "float16")
F32 = ("float32", "float64")


def right(variant, dtypes=F32, **kw):
    def deco(f):
        R.append((f.__name__, f, variant, kw, dtypes))
        return f

    return deco


UP = True


def leaf(*xs):
    return [
        T(np.ascontiguousarray(x.astype(np.float32) if UP and x.dtype == np.float16 else x)).requires_grad_()
        for x in xs
    ]


# ---------- softmax
@right("softmax", ALL, layout="bhtd", bias="bhqk", keep="bhqk")
def sdpa(q, k, v, bias, do, keep):
    q, k, v, bias = leaf(q, k, v, bias)
    m = bias.masked_fill(~T(keep), float("-inf"))
    dead = (~T(keep)).all(-1, keepdim=True)
    m = m.masked_fill(dead, 0)
    o = F.scaled_dot_product_attention(q, k, v, attn_mask=m).masked_fill(dead, 0)
    o.backward(T(do))
    return o, q.grad, k.grad, v.grad, bias.grad


@right("softmax", ALL, layout="bhtd")
def sdpa_plain(q, k, v, do):
    q, k, v = leaf(q, k, v)
    o = F.scaled_dot_product_attention(q, k, v)
    o.backward(T(do))
    return o, q.grad, k.grad, v.grad


@right("softmax", ALL, layout="bhtd", causal=True, sizes={"q": 9, "k": 9})
def sdpa_causal(q, k, v, do):
    q, k, v = leaf(q, k, v)
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    o.backward(T(do))
    return o, q.grad, k.grad, v.grad


def flash(q, k, v, do, bias=None, BQ=16, BK=16, base2=False, causal=False):
    # bhtd, numpy, Dao 2022 alg; q prescaled
    dt = q.dtype
    b, h, n, d = q.shape
    m = k.shape[2]
    e = v.shape[3]
    sc = dt.type(1 / math.sqrt(d))
    L2 = dt.type(math.log2(math.e))
    qs = q * sc
    if base2:
        qs = qs * L2
    ex = np.exp2 if base2 else np.exp
    o = np.zeros((b, h, n, e), dt)
    lse = np.zeros((b, h, n), dt)

    def sij(i, j):
        s = qs[:, :, i : i + BQ] @ k[:, :, j : j + BK].swapaxes(-1, -2)
        if bias is not None:
            bb = bias[..., i : i + BQ, j : j + BK]
            s = s + (bb * L2 if base2 else bb)
        if causal:
            qi = np.arange(i, min(i + BQ, n))[:, None] + m - n
            kj = np.arange(j, min(j + BK, m))
            s = np.where(kj <= qi, s, -np.inf)
        return s

    for i in range(0, n, BQ):
        nq = min(BQ, n - i)
        mx = np.full((b, h, nq, 1), -np.inf, dt)
        l = np.zeros((b, h, nq, 1), dt)
        acc = np.zeros((b, h, nq, e), dt)
        for j in range(0, m, BK):
            s = sij(i, j)
            new = np.maximum(mx, s.max(-1, keepdims=True))
            safe = np.where(np.isfinite(new), new, 0).astype(dt)
            p = ex(s - safe)
            a = np.where(np.isfinite(mx), ex(np.where(np.isfinite(mx), mx, 0) - safe), 0).astype(dt)
            l = l * a + p.sum(-1, keepdims=True)
            acc = acc * a + p @ v[:, :, j : j + BK]
            mx = new
        o[:, :, i : i + BQ] = acc / l
        ls = (mx + (np.log2(l) if base2 else np.log(l)))[..., 0]
        lse[:, :, i : i + BQ] = ls
    D = (o * do).sum(-1, keepdims=True)
    dq = np.zeros_like(q)
    dk = np.zeros_like(k)
    dv = np.zeros_like(v)
    db = None if bias is None else np.zeros(np.broadcast_shapes(bias.shape, (1, 1, n, m)), dt)
    full = None if bias is None else np.zeros((b, h, n, m), dt)
    for j in range(0, m, BK):
        for i in range(0, n, BQ):
            p = ex(sij(i, j) - lse[:, :, i : i + BQ, None])
            g = do[:, :, i : i + BQ]
            dv[:, :, j : j + BK] += p.swapaxes(-1, -2) @ g
            ds = p * (g @ v[:, :, j : j + BK].swapaxes(-1, -2) - D[:, :, i : i + BQ])
            dq[:, :, i : i + BQ] += ds @ k[:, :, j : j + BK] * sc
            dk[:, :, j : j + BK] += ds.swapaxes(-1, -2) @ q[:, :, i : i + BQ] * sc
            if full is not None:
                full[:, :, i : i + BQ, j : j + BK] = ds
    nat = lse * dt.type(math.log(2)) if base2 else lse
    if bias is None:
        return dict(o=o, dq=dq, dk=dk, dv=dv, lse=nat)
    axes = tuple(x for x in range(4) if ([1] * (4 - bias.ndim) + list(bias.shape))[x] == 1)
    return dict(o=o, dq=dq, dk=dk, dv=dv, dbias=full.sum(axes, keepdims=True).reshape(bias.shape), lse=nat)


@right("softmax", ALL, layout="bhtd", sizes="tiles")
def flash_np(q, k, v, do):
    return flash(q, k, v, do)


@right("softmax", ALL, layout="bhtd", sizes="tiles")
def flash_np_base2(q, k, v, do):
    return flash(q, k, v, do, base2=True)


@right("softmax", ALL, layout="bhtd", bias="h1k")
def flash_bias_h1k(q, k, v, do, bias):
    full = np.ascontiguousarray(np.broadcast_to(bias, (q.shape[0], q.shape[1], q.shape[2], k.shape[2])))
    r = flash(q, k, v, do, bias=full, BQ=4, BK=3)
    r["dbias"] = r["dbias"].sum((0, 2), keepdims=True)[0]
    return r


@right("softmax", ALL, layout="bhtd", causal=True, sizes="tiles")
def flash_causal(q, k, v, do):
    return flash(q, k, v, do, causal=True, base2=True)


@right("softmax", F32, keep="bhqk", bias="h1k")
def minus_1e9_with_zeroed_rows(q, k, v, bias, do, keep):
    # additive -1e9 then dead rows multiplied to 0
    q, k, v, bias = leaf(q, k, v, bias)
    kp = T(keep)
    s = torch.einsum("bqhd,bkhd->bhqk", q / math.sqrt(q.shape[-1]), k) + bias + (~kp).to(q.dtype) * -1e9
    a = s.softmax(-1) * kp.any(-1, keepdim=True)
    o = torch.einsum("bhqk,bkhe->bqhe", a, v)
    o.backward(T(do))
    return o, q.grad, k.grad, v.grad, bias.grad


@right("softmax", F32, keep="1k")
def masked_fill_1e4_keys(q, k, v, do, keep):
    q, k, v = leaf(q, k, v)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    a = s.masked_fill(~T(keep), -1e4).softmax(-1)
    o = torch.einsum("bhqk,bkhe->bqhe", a, v)
    o.backward(T(do))
    return o, q.grad, k.grad, v.grad


@right("softmax", ALL, keep="bhqk", dropout="bhqk", bias="hqk")
def manual_np_lse_global_max(q, k, v, bias, do, keep, dropout):
    # stabilised with row max clipped at a constant: logsumexp differently; backward by D from dO.O
    d = q.dtype.type
    sc = d(1 / np.sqrt(q.shape[-1]))
    s = np.einsum("bqhd,bkhd->bhqk", q * sc, k, optimize=True) + bias
    m = np.max(s, axis=-1, keepdims=True)  # max over all keys, dropped included
    p = np.exp(s - m) * keep
    z = p.sum(-1, keepdims=True)
    a = np.where(z > 0, p / np.where(z > 0, z, 1), 0).astype(q.dtype)
    c = a * dropout
    o = np.einsum("bhqk,bkhe->bqhe", c, v)
    dc = np.einsum("bqhe,bkhe->bhqk", do, v)
    D = np.einsum("bqhe,bqhe->bhq", do, o)[..., None]
    ds = a * (dc * dropout - D)
    return (
        o,
        np.einsum("bhqk,bkhd->bqhd", ds, k) * sc,
        np.einsum("bhqk,bqhd->bkhd", ds, q) * sc,
        np.einsum("bhqk,bqhe->bkhe", c, do),
        ds.sum(0),
    )


@right("softmax", ALL, dropout="bhqk")
def loop_over_heads_chunked_queries(q, k, v, do, dropout):
    b, n, h, d = q.shape
    o = np.zeros(q.shape[:3] + v.shape[3:], q.dtype)
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    sc = d**-0.25
    for bi in range(b):
        for hi in range(h):
            for i in range(0, n, 2):
                Q, K, V, G = (
                    q[bi, i : i + 2, hi] * q.dtype.type(sc),
                    k[bi, :, hi] * q.dtype.type(sc),
                    v[bi, :, hi],
                    do[bi, i : i + 2, hi],
                )
                s = Q @ K.T
                s -= s.max(1, keepdims=True)
                p = np.exp(s)
                p /= p.sum(1, keepdims=True)
                r = dropout[bi, hi, i : i + 2]
                c = p * r
                o[bi, i : i + 2, hi] = c @ V
                dv[bi, :, hi] += c.T @ G
                dp = (G @ V.T) * r
                ds = p * dp - p * (p * dp).sum(1, keepdims=True)
                dq[bi, i : i + 2, hi] = ds @ K * q.dtype.type(sc)
                dk[bi, :, hi] += ds.T @ Q * q.dtype.type(sc)
    return o, dq, dk, dv


@right("softmax", F32, layout="thbd")
def tbhd_fortran_order(q, k, v, do):
    Q, K, V, G = (np.asfortranarray(x.transpose(2, 1, 0, 3)) for x in (q, k, v, do))
    s = Q @ K.swapaxes(2, 3) / np.sqrt(Q.shape[-1]).astype(q.dtype)
    a = np.exp(s - np.logaddexp.reduce(s, axis=-1, keepdims=True))
    dp = G @ V.swapaxes(2, 3)
    ds = a * (dp - (a * dp).sum(-1, keepdims=True)) / np.sqrt(Q.shape[-1]).astype(q.dtype)
    back = lambda x: x.transpose(2, 1, 0, 3)
    return back(a @ V), back(ds @ K), back(ds.swapaxes(2, 3) @ Q), back(a.swapaxes(2, 3) @ G)


@right("softmax", ("bfloat16",), layout="bhtd", naive=True)
def torch_bf16_everywhere(q, k, v, do):
    q, k, v = [T(x).bfloat16().requires_grad_() for x in (q, k, v)]
    a = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
    o = a @ v
    o.backward(T(do).bfloat16())
    return o, q.grad, k.grad, v.grad


@right("softmax", ("bfloat16",), layout="bhtd")
def torch_bf16_fused_like(q, k, v, do):
    # inputs bf16, matmuls with f32 accumulation, P rounded to bf16 before PV, as flash attention does on tensor cores
    Q, K, V, G = (T(x) for x in (q, k, v, do))
    sc = Q.shape[-1] ** -0.5
    r = lambda x: x.bfloat16().float()
    s = Q @ K.mT * sc
    lse = s.logsumexp(-1, keepdim=True)
    p = (s - lse).exp()
    o = r(r(p) @ V)
    D = (o * G).sum(-1, keepdim=True)
    ds = r(p * (G @ V.mT - D))
    return o.bfloat16(), (ds @ K * sc).bfloat16(), (ds.mT @ Q * sc).bfloat16(), (r(p).mT @ G).bfloat16()


@right("softmax", ("float16",), layout="bhtd")
def np_f16_fused_like(q, k, v, do):
    f = np.float32
    Q, K, V, G = (x.astype(f) for x in (q, k, v, do))
    sc = f(Q.shape[-1] ** -0.5)
    r = lambda x: x.astype(np.float16).astype(f)
    s = Q @ K.swapaxes(-1, -2) * sc
    p = np.exp(s - s.max(-1, keepdims=True))
    l = p.sum(-1, keepdims=True)
    o = (r(p) @ V) / l
    p = p / l
    D = (o * G).sum(-1, keepdims=True)
    ds = r(p * (G @ V.swapaxes(-1, -2) - D))
    h = np.float16
    return (
        o.astype(h),
        (ds @ K * sc).astype(h),
        (ds.swapaxes(-1, -2) @ Q * sc).astype(h),
        (r(p).swapaxes(-1, -2) @ G).astype(h),
    )


# ---------- linear
@right("linear", ALL, layout="bhtd")
def linear_kv_first(q, k, v, do):
    q, k, v = leaf(q, k, v)
    o = (q * q.shape[-1] ** -0.5) @ (k.mT @ v)
    o.backward(T(do))
    return o, q.grad, k.grad, v.grad


@right("linear", F32, layout="bhtd", causal=True, sizes={"q": 10, "k": 10})
def linear_causal_cumsum(q, k, v, do):
    q, k, v = leaf(q, k, v)
    S = torch.einsum("bhtd,bhte->bhtde", k, v).cumsum(2)
    o = torch.einsum("bhtd,bhtde->bhte", q, S) / math.sqrt(q.shape[-1])
    o.backward(T(do))
    return o, q.grad, k.grad, v.grad


@right("linear_state", ALL)
def linear_state_recurrent(q, k, v, state, do, dend):
    q, k, v, state = leaf(q, k, v, state)
    S = state
    o = []
    for t in range(q.shape[1]):
        S = S + torch.einsum("bhd,bhe->bhde", k[:, t], v[:, t])
        o.append(torch.einsum("bhd,bhde->bhe", q[:, t], S) * q.shape[-1] ** -0.5)
    o = torch.stack(o, 1)
    torch.autograd.backward([o, S], [T(do), T(dend)])
    return o, S, q.grad, k.grad, v.grad, state.grad


@right("linear_state", F32)
def linear_state_chunkwise(q, k, v, state, do, dend):
    C = 4
    q_, k_, v_, s_ = q, k, v, state
    q, k, v, state = leaf(q, k, v, state)
    S = state
    o = []
    sc = q.shape[-1] ** -0.5
    for i in range(0, q.shape[1], C):
        Q, K, V = q[:, i : i + C] * sc, k[:, i : i + C], v[:, i : i + C]
        a = torch.einsum("bqhd,bkhd->bhqk", Q, K).tril()
        o.append(torch.einsum("bqhd,bhde->bqhe", Q, S) + torch.einsum("bhqk,bkhe->bqhe", a, V))
        S = S + torch.einsum("bkhd,bkhe->bhde", K, V)
    o = torch.cat(o, 1)
    torch.autograd.backward([o, S], [T(do), T(dend)])
    return dict(o=o, end=S, dq=q.grad, dk=k.grad, dv=v.grad, dstate=state.grad)


# ---------- hyla
def hyla_f(q, k, v, bias=None, keep=None, drop=None, eps=1e-6, relu=torch.relu, norm=None):
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    if bias is not None:
        s = s + bias
    if keep is not None:
        s = s.masked_fill(~keep, 0)
    a = s / torch.sqrt(s.pow(2).mean(1, keepdim=True) + eps)
    if drop is not None:
        a = a * drop
    return torch.einsum("bhqk,bqke->bqhe", a, relu(torch.einsum("bhqk,bkhe->bqke", a, v)))


@right("hyla", ALL, bias="bhqk", keep="bhqk", dropout="bhqk")
def hyla_torch(q, k, v, bias, do, keep, dropout):
    q, k, v, bias = leaf(q, k, v, bias)
    o = hyla_f(q, k, v, bias, T(keep), T(dropout))
    o.backward(T(do))
    return o, q.grad, k.grad, v.grad, bias.grad


@right("hyla", F32, layout="bhtd", keep="qk")
def hyla_per_pair_loop(q, k, v, do, keep):
    # value network generated for each pair explicitly; F.rms_norm over heads
    q, k, v = leaf(q, k, v)
    kp = T(keep)
    b, h, n, d = q.shape
    out = []
    for i in range(n):
        acc = 0
        for j in range(k.shape[2]):
            s = (q[:, :, i] * k[:, :, j]).sum(-1) / d**0.5 * kp[i, j]
            a = F.rms_norm(s, (h,), eps=1e-6)
            z = torch.einsum("bh,bhe->be", a, v[:, :, j])
            acc = acc + a[:, :, None] * F.relu(z)[:, None]
        out.append(acc)
    o = torch.stack(out, 2)
    o.backward(T(do))
    return o, q.grad, k.grad, v.grad


@right("hyla", ALL, bias="h1k")
def hyla_manual_tiled_keys(q, k, v, bias, do):
    dt = q.dtype.type
    b, n, h, d = q.shape
    sc = dt(1 / np.sqrt(d))
    TK = 3
    o = np.zeros(q.shape[:3] + v.shape[3:], q.dtype)
    dq = np.zeros_like(q)
    dk = np.zeros_like(k)
    dv = np.zeros_like(v)
    db = np.zeros_like(bias)
    for j in range(0, k.shape[1], TK):
        K, V = k[:, j : j + TK], v[:, j : j + TK]
        s = np.einsum("bqhd,bkhd->bqkh", q, K) * sc + bias[:, 0, j : j + TK].T
        r = 1 / np.sqrt(np.mean(s * s, -1, keepdims=True) + dt(1e-6))
        a = s * r
        z = np.einsum("bqkh,bkhe->bqke", a, V)
        g = np.maximum(z, 0)
        o += np.einsum("bqkh,bqke->bqhe", a, g)
        dz = np.einsum("bqkh,bqhe->bqke", a, do) * (z > 0)
        da = np.einsum("bqhe,bqke->bqkh", do, g) + np.einsum("bqke,bkhe->bqkh", dz, V)
        dv[:, j : j + TK] = np.einsum("bqkh,bqke->bkhe", a, dz)
        ds = r * (da - a * np.mean(da * a, -1, keepdims=True))
        dq += np.einsum("bqkh,bkhd->bqhd", ds, K) * sc
        dk[:, j : j + TK] = np.einsum("bqkh,bqhd->bkhd", ds, q) * sc
        db[:, 0, j : j + TK] = ds.sum((0, 1)).T
    return o, dq, dk, dv, db


@right("hyla", F32)
def hyla_unscaled_with_eps_times_d(q, k, v, do):
    # algorithm 2: no 1/sqrt(d), epsilon * d absorbs it
    q, k, v = leaf(q, k, v)
    d = q.shape[-1]
    s = torch.einsum("bqhd,bkhd->bhqk", q, k)
    a = s * (s.square().mean(1, keepdim=True) + 1e-6 * d).rsqrt()
    z = torch.einsum("bhqk,bkhe->bqke", a, v).clamp(min=0)
    o = torch.einsum("bhqk,bqke->bqhe", a, z)
    o.backward(T(do))
    return o, q.grad, k.grad, v.grad


@right("hyla_no_rms_head", F32, keep="bhqk", dropout="bhqk")
def hyla_no_rms(q, k, v, do, keep, dropout):
    q, k, v = leaf(q, k, v)
    a = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5 * T(keep) * T(dropout)
    o = torch.einsum("bhqk,bqke->bqhe", a, torch.einsum("bhqk,bkhe->bqke", a, v).relu())
    o.backward(T(do))
    return o, q.grad, k.grad, v.grad


@right("hyla_deep", F32, bias="hqk")
def hyla_deep(q, k, v, wv2, bias, do):
    q, k, v, wv2, bias = leaf(q, k, v, wv2, bias)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5 + bias
    a = s * (s.square().mean(1, keepdim=True) + 1e-6).rsqrt()
    x = torch.einsum("bhqk,bkhe->bqke", a, v).relu()
    W = torch.einsum("bhqk,hef->bqkef", a, wv2)
    x = (x.unsqueeze(-2) @ W).squeeze(-2).relu()
    o = torch.einsum("bhqk,bqke->bqhe", a, x)
    o.backward(T(do))
    return o, q.grad, k.grad, v.grad, bias.grad, wv2.grad


@right("hyla_and_softmax", F32)
def hyla_softmax_then_rms(q, k, v, do):
    q, k, v = leaf(q, k, v)
    s = (torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5).softmax(-1)
    a = s / (s.square().mean(1, keepdim=True) + 1e-6).sqrt()
    o = torch.einsum("bhqk,bqke->bqhe", a, torch.einsum("bhqk,bkhe->bqke", a, v).relu())
    o.backward(T(do))
    return o, q.grad, k.grad, v.grad


@right("hyla_and_softmax_reversed", F32)
def hyla_rms_then_softmax(q, k, v, do):
    q, k, v = leaf(q, k, v)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    a = (s / (s.square().mean(1, keepdim=True) + 1e-6).sqrt()).softmax(-1)
    o = torch.einsum("bhqk,bqke->bqhe", a, torch.einsum("bhqk,bkhe->bqke", a, v).relu())
    o.backward(T(do))
    return o, q.grad, k.grad, v.grad


@right("linear_rms_head_relu_values", F32, keep="bhqk")
def lin_rms_relu(q, k, v, do, keep):
    q, k, v = leaf(q, k, v)
    s = (torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5) * T(keep)
    a = (
        F.normalize(torch.cat([s, torch.full_like(s[:, :1], math.sqrt(1e-6 * s.shape[1]))], 1), dim=1)[:, :-1]
        * s.shape[1] ** 0.5
    )
    o = torch.einsum("bhqk,bkhe->bqhe", a, v.relu())
    o.backward(T(do))
    return o, q.grad, k.grad, v.grad


# ---------- compositional
def comp(q, k, v, sel, score, bias=None, keep=None, drop=None):
    s = torch.einsum("bqsd,bksd->bsqk", q, k) / q.shape[-1] ** 0.5
    if bias is not None:
        s = s + bias
    if keep is not None:
        s = s.masked_fill(~keep, float("-inf"))
        dead = (~keep).all(-1, keepdim=True)
        s = s.masked_fill(dead, 0)
    a = s.softmax(-1)
    if keep is not None:
        a = a.masked_fill(dead, 0)
    if drop is not None:
        a = a * drop
    t = torch.einsum("bsqk,bkre->bqsre", a, v)
    return torch.einsum("bqsr,bqsre->bqse", score(sel, t).softmax(-1), t)


@right("compositional", ALL, bias="hqk", keep="bhqk", dropout="bhqk")
def comp_dot(q, k, v, sel, wr, bias, do, keep, dropout):
    x = leaf(q, k, v, bias, sel, wr)
    q, k, v, bias, sel, wr = x
    o = comp(
        q,
        k,
        v,
        sel,
        lambda S, t: torch.einsum("bqsc,bqsrc->bqsr", S, t @ wr) / S.shape[-1] ** 0.5,
        bias,
        T(keep),
        T(dropout),
    )
    o.backward(T(do))
    return (o, *(y.grad for y in x))


@right("compositional", F32)
def comp_dot_key_map_projected_values(q, k, v, sel, wr, do):
    # keys of retrieval made from values first: a (v wr), merged projection
    x = leaf(q, k, v, sel, wr)
    q, k, v, sel, wr = x
    a = (torch.einsum("bqsd,bksd->bsqk", q, k) / q.shape[-1] ** 0.5).softmax(-1)
    vv = torch.cat([v, v @ wr], -1)
    e = v.shape[-1]
    tt = torch.einsum("bsqk,bkrx->bqsrx", a, vv)
    t, kk = tt[..., :e], tt[..., e:]
    g = (torch.einsum("bqsc,bqsrc->bqsr", sel, kk) * sel.shape[-1] ** -0.5).softmax(-1)
    o = (g.unsqueeze(-2) @ t).squeeze(-2)
    o.backward(T(do))
    return (o, *(y.grad for y in x))


@right("compositional_linear", F32)
def comp_linear_cat(q, k, v, sel, w, wq, b, do):
    x = leaf(q, k, v, sel, w, wq, b)
    q, k, v, sel, w, wq, b = x

    def sc(S, t):
        return torch.cat([S.unsqueeze(3).expand(*t.shape[:4], -1), t], -1) @ torch.cat([wq, w]) + b

    o = comp(q, k, v, sel, sc)
    o.backward(T(do))
    return (o, *(y.grad for y in x))


@right("compositional_nonlinear", ALL)
def comp_nonlinear(q, k, v, sel, w, wq, b, w2, b2, do):
    x = leaf(q, k, v, sel, w, wq, b, w2, b2)
    q, k, v, sel, w, wq, b, w2, b2 = x
    o = comp(q, k, v, sel, lambda S, t: (S.unsqueeze(3) @ wq + t @ w + b).relu() @ w2 + b2)
    o.backward(T(do))
    return (o, *(y.grad for y in x))


# ---------- sliding-dilated
def sd(q, k, v, r, pk=None, pv=None, dil=2, bias=None, keep=None, drop=None):
    b, n, h, d = q.shape
    m = k.shape[1]
    C = r.shape[1]
    pos = torch.arange(m - n, m)
    idx = pos[:, None] - dil * torch.arange(C)
    ok = idx >= 0
    ii = idx.clamp(min=0)
    K, V = k[:, ii], v[:, ii]  # b q w h d
    if pk is not None:
        K = torch.where(ok[None, :, :, None, None], K, pk)
        V = torch.where(ok[None, :, :, None, None], V, pv)
        ok = torch.ones_like(ok)
    s = torch.einsum("bqhd,bqwhd->bhqw", q, K) / d**0.5 + r[:, None]
    if bias is not None:
        s = s + bias
    if keep is not None:
        ok = ok & keep
    s = s.masked_fill(~ok, float("-inf"))
    dead = (~ok).all(-1, keepdim=True)
    a = s.masked_fill(dead, 0).softmax(-1).masked_fill(dead, 0)
    if drop is not None:
        a = a * drop
    return torch.einsum("bhqw,bqwhe->bqhe", a, V)


@right("sliding_dilated", ALL, bias="bhqw", keep="bhqw", dropout="bhqw")
def sd_gather(q, k, v, r, bias, do, keep, dropout):
    x = leaf(q, k, v, bias, r)
    q, k, v, bias, r = x
    o = sd(q, k, v, r, None, None, 2, bias, T(keep), T(dropout))
    o.backward(T(do))
    return (o, *(y.grad for y in x))


@right("sliding_dilated_pad", F32)
def sd_pad_concat(q, k, v, r, pk, pv, do):
    x = leaf(q, k, v, r, pk, pv)
    q, k, v, r, pk, pv = x
    C = r.shape[1]
    P = 2 * (C - 1)
    b, n, h, d = q.shape
    m = k.shape[1]
    K = torch.cat([pk.expand(b, P, -1, -1), k], 1)
    V = torch.cat([pv.expand(b, P, -1, -1), v], 1)
    s = (
        torch.stack([(q * K[:, P + m - n - 2 * w : P + m - 2 * w]).sum(-1) for w in range(C)], -1).transpose(1, 2)
        / d**0.5
        + r[:, None]
    )
    a = s.softmax(-1)
    o = sum(a[..., w].transpose(1, 2)[..., None] * V[:, P + m - n - 2 * w : P + m - 2 * w] for w in range(C))
    o.backward(T(do))
    return (o, *(y.grad for y in x))


@right("sliding_dilated", F32)
def sd_dense_mask(q, k, v, r, do):
    x = leaf(q, k, v, r)
    q, k, v, r = x
    n, m, C = q.shape[1], k.shape[1], r.shape[1]
    dist = torch.arange(m - n, m)[:, None] - torch.arange(m)
    w = dist // 2
    ok = (dist >= 0) & (dist % 2 == 0) & (w < C)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5 + r[:, w.clamp(0, C - 1)]
    a = s.masked_fill(~ok, -1e30).softmax(-1)
    o = torch.einsum("bhqk,bkhe->bqhe", a, v)
    o.backward(T(do))
    return (o, *(y.grad for y in x))


# ---------- layers & ops
def opt(x):
    return None if x is None else T(x)


def layer(core):
    def f(x, do, dropout=None, keep=None, bias=None, context=None, **p):
        names = list(p)
        x, *ps = leaf(x, *p.values())
        P = dict(zip(names, ps))
        m = x.shape[-1]
        B = None if bias is None else leaf(bias)[0]
        C = None if context is None else leaf(context)[0]
        out = core(P, x, x if C is None else C, B, opt(keep), opt(dropout))
        out.backward(T(do))
        r = {
            "o": out,
            "dx": x.grad,
            **{"d" + n: (P[n].grad if P[n].grad is not None else np.zeros(p[n].shape)) for n in names},
        }
        if B is not None:
            r["dbias"] = B.grad
        if C is not None:
            r["dcontext"] = C.grad
        return r

    return f


def soft(q, k, v, bias=None, keep=None, drop=None):
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    if bias is not None:
        s = s + bias
    if keep is not None:
        kp = keep.expand(s.shape)
        dead = (~kp).all(-1, keepdim=True)
        s = s.masked_fill(~kp, float("-inf")).masked_fill(dead, 0)
    a = s.softmax(-1)
    if keep is not None:
        a = a.masked_fill(dead, 0)
    if drop is not None:
        a = a * drop
    return torch.einsum("bhqk,bkhe->bqhe", a, v)


def qkv(P, x, c):
    pr = lambda y, n: torch.einsum("btm,mhd->bthd", y, P["w" + n]) + P.get("b" + n, 0)
    return pr(x, "q"), pr(c, "k"), pr(c, "v")


def outm(P, o):
    return torch.einsum("bqhe,hem->bqm", o, P["wo"]) + P.get("bo", 0)


mh_h = lambda P, x, c, B, kp, dr: outm(P, hyla_f(*qkv(P, x, c), B, kp, dr))
mh_s = lambda P, x, c, B, kp, dr: outm(P, soft(*qkv(P, x, c), B, kp, dr))


def merged(P, x, c, B, kp, dr):
    m = x.shape[-1]
    h, d = P["bq"].shape
    e = P["bv"].shape[1]
    W = torch.cat([P[n].reshape(m, -1) for n in ("wq", "wk", "wv")], 1)
    bb = torch.cat([P[n].reshape(-1) for n in ("bq", "bk", "bv")])
    q, k, v = (x @ W + bb).split([h * d, h * d, h * e], -1)
    o = hyla_f(q.unflatten(-1, (h, d)), k.unflatten(-1, (h, d)), v.unflatten(-1, (h, e)), B, kp, dr)
    return o.flatten(2) @ P["wo"].reshape(h * e, m) + P["bo"]


def comp_layer(P, x, c, B, kp, dr):
    q = torch.einsum("btm,msd->btsd", x, P["wq"]) + P["bq"]
    k = torch.einsum("btm,msd->btsd", c, P["wk"]) + P["bk"]
    v = torch.einsum("btm,mre->btre", c, P["wv"]) + P["bv"]
    sel = torch.einsum("btm,msc->btsc", x, P["ws"]) + P["bs"]
    s = torch.einsum("bqsd,bksd->bsqk", q, k) / q.shape[-1] ** 0.5
    if B is not None:
        s = s + B
    if kp is not None:
        kk = kp.expand(s.shape)
        dead = (~kk).all(-1, keepdim=True)
        s = s.masked_fill(~kk, float("-inf")).masked_fill(dead, 0)
    a = s.softmax(-1)
    if kp is not None:
        a = a.masked_fill(dead, 0)
    if dr is not None:
        a = a * dr
    t = torch.einsum("bsqk,bkre->bqsre", a, v)
    K = t @ P["wr"] + P["br"]
    g = (torch.einsum("bqsc,bqsrc->bqsr", sel, K) / sel.shape[-1] ** 0.5).softmax(-1)
    return outm(P, torch.einsum("bqsr,bqsre->bqse", g, t))


for nm, var, core in (
    ("layer_hyla", "layers/MultiHead hyla", mh_h),
    ("layer_hyla_merged", "layers/MultiHead hyla", merged),
    ("layer_soft", "layers/MultiHead softmax", mh_s),
    ("layer_soft_across", "layers/MultiHead softmax across", mh_s),
    ("layer_hyla_across", "layers/MultiHead hyla across", mh_h),
    ("layer_comp", "layers/Compositional dot", comp_layer),
    ("layer_comp_across", "layers/Compositional dot across", comp_layer),
):
    f = layer(core)
    f.__name__ = nm
    R.append((nm, f, var, {}, F32))


def sw(P, x, c, B, kp, dr):
    return (F.silu(x @ P["wg"]) * (x @ P["wu"])) @ P["wd"]


f = layer(sw)
R.append(("swiglu", f, "layers/SwiGLU", {}, F32))


def rot(P, x, c, B, kp, dr):
    q, k, v = qkv(P, x, c)

    def r(y):
        d = y.shape[-1]
        th = torch.arange(y.shape[1], dtype=y.dtype)[:, None] * 10000.0 ** (-torch.arange(0, d, 2, dtype=y.dtype) / d)
        co, si = th.cos()[:, None], th.sin()[:, None]
        a, b = y[..., ::2], y[..., 1::2]
        return torch.stack([a * co - b * si, a * si + b * co], -1).flatten(-2)

    return outm(P, soft(r(q), r(k), v, B, kp, dr))


f = layer(rot)
R.append(("rotary_interleaved", f, "layers/MultiHead softmax rotary", {}, F32))


def xl(P, x, c, B, kp, dr):
    raise NotImplementedError


@right("losses/cross_entropy")
def ce(logits, target, weight, do):
    (l,) = leaf(logits)
    w = T(weight)
    y = (F.cross_entropy(l.flatten(0, 1), T(target).flatten(), reduction="none") * w.flatten()).sum() / w.sum()
    y.backward(T(do))
    return y, l.grad


@right("models/linear_scan")
def lscan(a, u, do):
    A, U = leaf(a, u)
    h = torch.zeros_like(U[:, 0])
    o = []
    for t in range(U.shape[1]):
        h = torch.einsum("bi,bij->bj", h, A[:, t]) + U[:, t]
        o.append(h)
    o = torch.stack(o, 1)
    o.backward(T(do))
    return o, A.grad, U.grad


@right("ops/layer_norm")
def ln(x, scale, shift, do):
    x, g, b = leaf(x, scale, shift)
    y = F.layer_norm(x, x.shape[-1:], g, b, eps=1e-6)
    y.backward(T(do))
    return y, x.grad, g.grad, b.grad


# naive half precision: all in float16 / bfloat16
def naive(f, variant, dt, **kw):
    def g(*a, **k):
        global UP
        UP = False
        try:
            if dt == "float16":
                return f(*a, **k)
        finally:
            UP = True

    g.__name__ = f.__name__ + "_naive"
    R.append((g.__name__, g, variant, dict(kw, naive=True), (dt,)))


naive(sdpa_plain, "softmax", "float16", layout="bhtd")
naive(flash_np, "softmax", "float16", layout="bhtd", sizes="tiles")
naive(flash_np_base2, "softmax", "float16", layout="bhtd", sizes="tiles")
naive(comp_dot, "compositional", "float16", bias="hqk", keep="bhqk", dropout="bhqk")
naive(comp_nonlinear, "compositional_nonlinear", "float16")
naive(linear_state_recurrent, "linear_state", "float16")
naive(loop_over_heads_chunked_queries, "softmax", "float16", dropout="bhqk")
