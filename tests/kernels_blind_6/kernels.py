"""A: right kernels, B: wrong kernels, in many styles.  ROWS: (name, function, variant, options, right, place[, precisions])."""

import math

import numpy as np
import torch
import torch.nn.functional as F

ROWS = []


def row(variant, place="", prec="both", **options):
    def add(f):
        ROWS.append((f.__name__, f, variant, options, f.__name__.startswith("a"), place, prec))
        return f

    return add


def leaf(*xs):
    return [torch.from_numpy(np.array(x)).requires_grad_() for x in xs]


def ndt(x):
    return torch.from_numpy(np.array(x))


E_ = np.einsum


def unb(g, shape):  # numpy unbroadcast
    while g.ndim > len(shape):
        g = g.sum(0)
    for i, n in enumerate(shape):
        if n == 1 and g.shape[i] != 1:
            g = g.sum(i, keepdims=True)
    return g


# ------------------------------------------------------------------ A, pages
@row("softmax", layout="bhtd", causal=True)
def a01_flash_numpy(q, k, v, do):
    """FlashAttention-2 with key tiles of 2, online softmax, delta from o; lse too."""
    b, h, t, d = q.shape
    n = k.shape[2]
    sc = np.asarray(d**-0.5, q.dtype)
    m = np.full((b, h, t, 1), -np.inf, q.dtype)
    l = np.zeros_like(m)
    acc = np.zeros((b, h, t, v.shape[3]), q.dtype)
    keep = np.arange(n) <= np.arange(t)[:, None] + n - t
    for j in range(0, n, 2):
        s = np.where(keep[:, j : j + 2], (q @ k[:, :, j : j + 2].swapaxes(2, 3)) * sc, -np.inf)
        mn = np.maximum(m, s.max(-1, keepdims=True))
        safe = np.where(np.isinf(mn), 0, mn)
        p = np.exp(s - safe)
        al = np.exp(m - safe)
        l = l * al + p.sum(-1, keepdims=True)
        acc = acc * al + p @ v[:, :, j : j + 2]
        m = mn
    o = acc / l
    lse = m + np.log(l)
    delta = (do * o).sum(-1, keepdims=True)
    dq = np.zeros_like(q)
    dk = np.zeros_like(k)
    dv = np.zeros_like(v)
    for j in range(0, n, 2):
        s = np.where(keep[:, j : j + 2], (q @ k[:, :, j : j + 2].swapaxes(2, 3)) * sc, -np.inf)
        p = np.exp(s - lse)
        dv[:, :, j : j + 2] = p.swapaxes(2, 3) @ do
        ds = p * (do @ v[:, :, j : j + 2].swapaxes(2, 3) - delta) * sc
        dq += ds @ k[:, :, j : j + 2]
        dk[:, :, j : j + 2] = ds.swapaxes(2, 3) @ q
    return {"o": o, "dq": dq, "dk": dk, "dv": dv, "lse": lse[..., 0]}


@row("softmax", bias="bhqk", keep="bhqk", dropout="bhqk")
def a02_lse_torch(q, k, v, do, bias, keep, dropout):
    q, k, v, bias = leaf(q, k, v, bias)
    keep = ndt(keep)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1]) + bias
    s = s.masked_fill(~keep, -1e30)
    p = torch.exp(s - torch.logsumexp(s, -1, keepdim=True)) * keep
    o = torch.einsum("bhqk,bkhe->bqhe", p * ndt(dropout), v)
    return [o.detach(), *torch.autograd.grad(o, (q, k, v, bias), ndt(do))]


@row("softmax", bias="h1k")
def a03_exp2(q, k, v, do, bias):
    q, k, v, bias = leaf(q, k, v, bias)
    L = math.log2(math.e)
    s = torch.einsum("bqhd,bkhd->bhqk", q * (L / math.sqrt(q.shape[-1])), k) + bias * L
    p = torch.exp2(s - s.amax(-1, keepdim=True).detach())
    o = torch.einsum("bhqk,bkhe->bhqe", p, v) / p.sum(-1, keepdim=True)
    o = o.transpose(1, 2)
    return [o.detach(), *torch.autograd.grad(o, (q, k, v, bias), ndt(do))]


@row("softmax", bias="hqk", layout="bhtd")
def a04_sdpa(q, k, v, do, bias):
    q, k, v, bias = leaf(q, k, v, bias)
    o = F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None].expand(q.shape[0], -1, -1, -1))
    return [o.detach(), *torch.autograd.grad(o, (q, k, v, bias), ndt(do))]


@row("softmax", bias="1", keep="b11k", layout="tbhd")
def a05_quarter_scale(q, k, v, do, bias, keep):
    q, k, v, bias = leaf(q, k, v, bias)
    r = q.shape[-1] ** -0.25
    s = torch.einsum("qbhd,kbhd->bhqk", q * r, k * r) + bias
    s = torch.where(ndt(keep), s, torch.full_like(s, -torch.inf))
    p = torch.softmax(s, -1).nan_to_num(0.0)
    o = torch.einsum("bhqk,kbhe->qbhe", p, v)
    return [o.detach(), *torch.autograd.grad(o, (q, k, v, bias), ndt(do))]


@row("linear", sizes="tiles")
def a06_linear_reassociated(q, k, v, do):
    sc = np.asarray(q.shape[-1] ** -0.5, q.dtype)
    S = E_("bkhd,bkhe->bhde", k, v)
    o = E_("bqhd,bhde->bqhe", q, S) * sc
    dS = E_("bqhd,bqhe->bhde", q, do) * sc
    return o, E_("bqhe,bhde->bqhd", do, S) * sc, E_("bhde,bkhe->bkhd", dS, v), E_("bhde,bkhd->bkhe", dS, k)


@row("linear", causal=True)
def a07_linear_causal_cumsum(q, k, v, do):
    q, k, v = leaf(q, k, v)
    off = k.shape[1] - q.shape[1]
    S = torch.einsum("bkhd,bkhe->bkhde", k, v).cumsum(1)[:, off:]
    o = torch.einsum("bqhd,bqhde->bqhe", q, S) / q.shape[-1] ** 0.5
    return [o.detach(), *torch.autograd.grad(o, (q, k, v), ndt(do))]


@row("linear", bias="hqk", keep="bhqk", dropout="bhqk", layout="bhtd")
def a08_linear_heads(q, k, v, do, bias, keep, dropout):
    b, h, t, d = q.shape
    dt = q.dtype
    sc = dt.type(1 / np.sqrt(d))
    o = np.zeros((b, h, t, v.shape[3]), dt)
    dq, dk, dv, db = map(np.zeros_like, (q, k, v, bias))
    for i in range(b):
        for j in range(h):
            w = keep[i, j] * dropout[i, j]
            a = (q[i, j] @ k[i, j].T * sc + bias[j]) * w
            o[i, j] = a @ v[i, j]
            dv[i, j] = a.T @ do[i, j]
            ds = do[i, j] @ v[i, j].T * w
            db[j] += ds
            dq[i, j] = ds @ (k[i, j] * sc)
            dk[i, j] = (ds.T @ q[i, j]) * sc
    return o, dq, dk, dv, db


def rms(s, dim=1, eps=1e-6):
    return s * torch.rsqrt(s.square().mean(dim, keepdim=True) + eps)


@row("hyla", bias="bhqk", keep="bhqk", dropout="bhqk")
def a09_hyla_torch(q, k, v, do, bias, keep, dropout):
    q, k, v, bias = leaf(q, k, v, bias)
    s = (torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1]) + bias) * ndt(keep)
    c = rms(s) * ndt(dropout)
    z = torch.clamp_min(torch.einsum("bhqk,bkhe->bqke", c, v), 0)
    o = torch.einsum("bhqk,bqke->bqhe", c, z)
    return [o.detach(), *torch.autograd.grad(o, (q, k, v, bias), ndt(do))]


@row("hyla", bias="h1k", causal=True)
def a10_hyla_key_tiles(q, k, v, do, bias):
    b, t, h, d = q.shape
    n = k.shape[1]
    dt = q.dtype
    sc = dt.type(d**-0.5)
    keep = np.arange(n) <= np.arange(t)[:, None] + n - t
    o = np.zeros((b, t, h, v.shape[3]), dt)
    dq, dk, dv, db = map(np.zeros_like, (q, k, v, bias))
    for j in range(n):  # one key at a time
        s = (E_("bqhd,bhd->bqh", q, k[:, j]) * sc + bias[:, 0, j]) * keep[:, j][None, :, None]
        norm = np.sqrt((s * s).sum(2, keepdims=True) + dt.type(h * 1e-6))
        rh = dt.type(np.sqrt(h))
        a = s * rh / norm
        z = E_("bqh,bhe->bqe", a, v[:, j])
        g = np.maximum(z, 0)
        o += a[..., None] * g[:, :, None]
        dz = np.where(z > 0, E_("bqh,bqhe->bqe", a, do), 0)
        da = E_("bqhe,bqe->bqh", do, g) + E_("bqe,bhe->bqh", dz, v[:, j])
        dv[:, j] = E_("bqh,bqe->bhe", a, dz)
        ds = rh * (da / norm - s * (s * da).sum(2, keepdims=True) / norm**3) * keep[:, j][None, :, None]
        dq += ds[..., None] * k[:, None, j] * sc
        dk[:, j] = E_("bqh,bqhd->bhd", ds, q) * sc
        db[:, 0, j] = ds.sum((0, 1))
    return o, dq, dk, dv, db


@row("hyla", bias="1", layout="bhtd", dropout="h1k")
def a11_hyla_heads_functional(q, k, v, do, bias, dropout):
    q, k, v, bias = leaf(q, k, v, bias)
    H = q.shape[1]
    s = torch.stack([q[:, i] @ k[:, i].mT for i in range(H)], -1) / q.shape[-1] ** 0.5 + bias  # b q k h
    a = (
        s
        * H**0.5
        / torch.linalg.vector_norm(
            torch.cat([s, torch.full_like(s[..., :1], (H * 1e-6) ** 0.5)], -1), dim=-1, keepdim=True
        )
    )
    a = a * ndt(dropout)[:, 0].T
    z = sum(a[..., i, None] * v[:, i, None] for i in range(H)).relu()  # b q k e
    o = torch.stack([(a[..., i, None] * z).sum(2) for i in range(H)], 1)
    return [o.detach(), *torch.autograd.grad(o, (q, k, v, bias), ndt(do))]


@row("hyla", sizes="tiles")
def a12_hyla_gate_by_half(q, k, v, do):
    """relu(z) = (z + |z|) / 2, tiles of queries."""
    q, k, v = leaf(q, k, v)
    os = []
    for qq in q.split(32, 1):
        a = rms(torch.einsum("bqhd,bkhd->bhqk", qq * q.shape[-1] ** -0.5, k))
        z = torch.einsum("bhqk,bkhe->bqke", a, v)
        os.append(torch.einsum("bhqk,bqke->bqhe", a, (z + z.abs()) / 2))
    o = torch.cat(os, 1)
    return [o.detach(), *torch.autograd.grad(o, (q, k, v), ndt(do))]


@row("hyla_deep", bias="hqk", keep="bhqk", dropout="bhqk")
def a13_deep_generated_matrix(q, k, v, wv2, do, bias, keep, dropout):
    q, k, v, wv2, bias = leaf(q, k, v, wv2, bias)
    s = (torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1]) + bias) * ndt(keep)
    c = rms(s) * ndt(dropout)
    W = torch.einsum("bhqk,hef->bqkef", c, wv2)
    z = torch.einsum("bhqk,bkhe->bqke", c, v).relu()
    z = (z[..., None, :] @ W)[..., 0, :].relu()
    o = torch.einsum("bhqk,bqke->bqhe", c, z)
    g = torch.autograd.grad(o, (q, k, v, bias, wv2), ndt(do))
    return [o.detach(), *g]


@row("hyla_and_softmax", keep="bhqk", dropout="bhqk")
def a14_hyla_and_softmax(q, k, v, do, keep, dropout):
    q, k, v = leaf(q, k, v)
    keep = ndt(keep)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    e = torch.exp(s) * keep
    a = e / e.sum(-1, keepdim=True).clamp_min(1e-30)
    c = rms(a) * ndt(dropout)
    o = torch.einsum("bhqk,bqke->bqhe", c, torch.einsum("bhqk,bkhe->bqke", c, v).relu())
    return [o.detach(), *torch.autograd.grad(o, (q, k, v), ndt(do))]


@row("linear_rms_head_relu_values", bias="hqk")
def a15_rms_relu_values(q, k, v, do, bias):
    q, k, v, bias = leaf(q, k, v, bias)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1]) + bias
    a = s / (s.pow(2).mean(1, keepdim=True) + 1e-6).sqrt()
    o = (a @ v.relu().transpose(1, 2)).transpose(1, 2)
    return [o.detach(), *torch.autograd.grad(o, (q, k, v, bias), ndt(do))]


@row("compositional", bias="hqk", keep="bhqk", dropout="bhqk")
def a16_comp_paper_order(q, k, v, selector, wr, do, bias, keep, dropout):
    L = q, k, v, selector, wr, bias = leaf(q, k, v, selector, wr, bias)
    keep = ndt(keep)
    s = torch.einsum("bqsd,bksd->bsqk", q, k) / math.sqrt(q.shape[-1]) + bias
    p = torch.softmax(s.masked_fill(~keep, -1e30), -1) * keep * ndt(dropout)
    t = torch.einsum("bsqk,bkre->bqsre", p, v)
    l = torch.einsum("bqsc,bqsrc->bqsr", selector, t @ wr) / wr.shape[1] ** 0.5
    o = (torch.softmax(l, -1)[..., None] * t).sum(3)
    return [o.detach(), *torch.autograd.grad(o, (q, k, v, bias, selector, wr), ndt(do))]


@row("compositional_linear", bias="h1k", layout="bhtd")
def a17_comp_linear_dropped(q, k, v, selector, wr, wc, br, do, bias):
    """the same for every r: left out, its gradients are zeros"""
    L = q, k, v, wr, bias = leaf(q, k, v, wr, bias)
    p = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]) + bias, -1)
    t = torch.einsum("bsqk,brke->bsqre", p, v)
    o = (torch.softmax(t @ wr, -1)[..., None] * t).sum(3)
    dq, dk, dv, dwr, db = torch.autograd.grad(o, L, ndt(do))
    return dict(
        o=o.detach(),
        dq=dq,
        dk=dk,
        dv=dv,
        dbias=db,
        dselector=np.zeros_like(selector),
        dwr=dwr,
        dwc=np.zeros_like(wc),
        dbr=np.zeros_like(br),
    )


@row("compositional_nonlinear", keep="qk", dropout="bhqk")
def a18_comp_nonlinear_map_first(q, k, v, selector, wr, wc, br, w2, b2, do, keep, dropout):
    L = q, k, v, selector, wr, wc, br, w2, b2 = leaf(q, k, v, selector, wr, wc, br, w2, b2)
    keep = ndt(keep)
    s = torch.einsum("bqsd,bksd->bsqk", q, k) / math.sqrt(q.shape[-1])
    p = torch.softmax(s.masked_fill(~keep, -1e30), -1) * keep * ndt(dropout)
    t = torch.einsum("bsqk,bkre->bqsre", p, v)
    z = torch.einsum("bsqk,bkrf->bqsrf", p, v @ wr) + (selector @ wc)[..., None, :] + br
    o = (torch.softmax(z.relu() @ w2 + b2, -1)[..., None] * t).sum(3)
    return [o.detach(), *torch.autograd.grad(o, L, ndt(do))]


@row("compositional", causal=True)
def a19_comp_weights_first(q, k, v, selector, wr, do):
    """G A as one weight (b, s, q, k, r), then one product with v; hand-written softmaxes by logsumexp"""
    L = q, k, v, selector, wr = leaf(q, k, v, selector, wr)
    t_, n = q.shape[1], k.shape[1]
    keep = torch.arange(n) <= torch.arange(t_)[:, None] + n - t_
    s = torch.einsum("bqsd,bksd->bsqk", q, k) * q.shape[-1] ** -0.5
    s = s.masked_fill(~keep, -torch.inf)
    p = (s - s.logsumexp(-1, True)).exp()
    vk = torch.einsum("bkre,ec->bkrc", v, wr)
    l = torch.einsum("bqsc,bsqk,bkrc->bqsr", selector, p, vk) / wr.shape[1] ** 0.5
    g = (l - l.logsumexp(-1, True)).exp()
    o = torch.einsum("bqsr,bsqk,bkre->bqse", g, p, v)
    return [o.detach(), *torch.autograd.grad(o, L, ndt(do))]


def sd_index(t, n, w, dil=2):
    p = np.arange(t) + n - t
    return p[:, None] - dil * np.arange(w)


@row("sliding_dilated", bias="bhqw", keep="bhqw", dropout="bhqw")
def a20_sliding_dense(q, k, v, offset_bias, do, bias, keep, dropout):
    """a dense T x T mask: (q, w) pairs scattered into (q, k)"""
    L = q, k, v, offset_bias, bias = leaf(q, k, v, offset_bias, bias)
    b, t, h, d = q.shape
    n = k.shape[1]
    w = offset_bias.shape[1]
    idx = torch.from_numpy(sd_index(t, n, w))
    ok = idx >= 0
    onehot = F.one_hot(idx.clamp_min(0), n).to(q.dtype) * ok[..., None]  # q w k
    full = torch.einsum("bqhd,bkhd->bhqk", q, k) / d**0.5
    add = torch.einsum("bhqw,qwk->bhqk", (offset_bias[:, None] + bias).expand(b, h, t, w), onehot)
    kp = torch.einsum("bhqw,qwk->bhqk", ndt(keep).to(q.dtype).expand(b, h, t, w), onehot) > 0
    dr = torch.einsum("bhqw,qwk->bhqk", ndt(dropout).expand(b, h, t, w), onehot)
    p = torch.softmax((full + add).masked_fill(~kp, -1e30), -1) * kp * dr
    o = torch.einsum("bhqk,bkhe->bqhe", p, v)
    g = torch.autograd.grad(o, (q, k, v, bias, offset_bias), ndt(do))
    return [o.detach(), *g]


@row("sliding_dilated_pad", keep="bhqw", dropout="bhqw")
def a21_sliding_pad_gather(q, k, v, offset_bias, pad_k, pad_v, do, keep, dropout):
    """numpy; pads put before the keys, gather, scatter by add.at"""
    b, t, h, d = q.shape
    n = k.shape[1]
    w = offset_bias.shape[1]
    sc = q.dtype.type(d**-0.5)
    P = 2 * w
    K = np.concatenate([np.broadcast_to(pad_k, (b, P, *pad_k.shape)), k], 1)
    V = np.concatenate([np.broadcast_to(pad_v, (b, P, *pad_v.shape)), v], 1)
    idx = sd_index(t, n, w) + P
    kg, vg = K[:, idx], V[:, idx]  # b q w h d
    s = E_("bqhd,bqwhd->bhqw", q, kg) * sc + offset_bias[:, None]
    s = np.where(keep, s, -np.inf)
    m = s.max(-1, keepdims=True)
    m = np.where(np.isinf(m), 0, m)
    e = np.exp(s - m)
    a = e / np.maximum(e.sum(-1, keepdims=True), q.dtype.type(1e-30))
    c = a * dropout
    o = E_("bhqw,bqwhe->bqhe", c, vg)
    dc = E_("bqhe,bqwhe->bhqw", do, vg) * dropout
    ds = a * (dc - (a * dc).sum(-1, keepdims=True))
    dq = E_("bhqw,bqwhd->bqhd", ds, kg) * sc
    dK, dV = np.zeros_like(K), np.zeros_like(V)
    np.add.at(dK, (slice(None), idx), E_("bhqw,bqhd->bqwhd", ds, q) * sc)
    np.add.at(dV, (slice(None), idx), E_("bhqw,bqhe->bqwhe", c, do))
    return dict(
        o=o,
        dq=dq,
        dk=dK[:, P:],
        dv=dV[:, P:],
        doffset_bias=ds.sum((0, 2)),
        dpad_k=dK[:, :P].sum((0, 1)),
        dpad_v=dV[:, :P].sum((0, 1)),
    )


@row("linear_state")
def a22_state_tokens(q, k, v, state, do, dend):
    L = q, k, v, state = leaf(q, k, v, state)
    S = state
    os = []
    for t in range(q.shape[1]):
        S = S + k[:, t, :, :, None] * v[:, t, :, None, :]
        os.append((q[:, t, :, None, :] @ S)[:, :, 0] / q.shape[-1] ** 0.5)
    o = torch.stack(os, 1)
    return [o.detach(), S.detach(), *torch.autograd.grad((o, S), L, (ndt(do), ndt(dend)))]


@row("linear_state")
def a23_state_chunks(q, k, v, state, do, dend, C=2):
    """numpy chunkwise, both ways by hand"""
    sc = q.dtype.type(q.shape[-1] ** -0.5)
    S = state.copy()
    o = np.zeros_like(do)
    Ss = []
    tri = np.tril(np.ones((C, C), q.dtype))
    T = q.shape[1]
    for i in range(0, T, C):
        Q, K, V = (x[:, i : i + C] for x in (q, k, v))
        Ss.append(S)
        M = tri[: Q.shape[1], : Q.shape[1]]
        o[:, i : i + C] = sc * (E_("bqhd,bhde->bqhe", Q, S) + E_("bhqk,bkhe->bqhe", E_("bqhd,bkhd->bhqk", Q, K) * M, V))
        S = S + E_("bkhd,bkhe->bhde", K, V)
    dS = dend.copy()
    dq, dk, dv = map(np.zeros_like, (q, k, v))
    for i in reversed(range(0, T, C)):
        Q, K, V = (x[:, i : i + C] for x in (q, k, v))
        D = do[:, i : i + C] * sc
        M = tri[: Q.shape[1], : Q.shape[1]]
        W = E_("bqhe,bkhe->bhqk", D, V) * M
        dq[:, i : i + C] = E_("bqhe,bhde->bqhd", D, Ss[i // C]) + E_("bhqk,bkhd->bqhd", W, K)
        dk[:, i : i + C] = E_("bhde,bkhe->bkhd", dS, V) + E_("bhqk,bqhd->bkhd", W, Q)
        dv[:, i : i + C] = E_("bhde,bkhd->bkhe", dS, K) + E_("bhqk,bqhe->bkhe", E_("bqhd,bkhd->bhqk", Q, K) * M, D)
        dS = dS + E_("bqhd,bqhe->bhde", Q, D)
    return o, S, dq, dk, dv, dS


# ------------------------------------------------------------------ A, rows
def grads_of(o, do, named):
    names = list(named)
    g = torch.autograd.grad(o, [named[n] for n in names], do, allow_unused=True)
    return {"o": o.detach()} | {"d" + n: (torch.zeros_like(named[n]) if x is None else x) for n, x in zip(names, g)}


def prep(kw):
    """(leaves of floats, the rest)"""
    do = ndt(kw.pop("do"))
    fixed = {n: ndt(kw.pop(n)) for n in ("keep", "dropout", "target", "weight", "index") if n in kw}
    return {n: ndt(x).requires_grad_() for n, x in kw.items()}, fixed, do


def heads(p, x, n):
    w = p["w" + n]
    y = (x.reshape(-1, x.shape[-1]) @ w.reshape(w.shape[0], -1)).reshape(*x.shape[:2], *w.shape[1:])
    return y + p["b" + n] if "b" + n in p else y


def soft(s, fixed):
    if "keep" in fixed:
        kp = fixed["keep"]
        s = s.masked_fill(~kp, -1e30)
        a = torch.softmax(s, -1) * kp
    else:
        a = torch.softmax(s, -1)
    return a * fixed["dropout"] if "dropout" in fixed else a


@row("layers/MultiHead softmax")
def a24_mha_fused_qkv(**kw):
    p, f, do = prep(kw)
    x = p["x"]
    m, h, d = p["wq"].shape
    e = p["wv"].shape[2]
    W = torch.cat([p[w].flatten(1) for w in ("wq", "wk", "wv")], 1)
    B = torch.cat([p[w].flatten() for w in ("bq", "bk", "bv")])
    q, k, v = (x @ W + B).split([h * d, h * d, h * e], -1)
    q, k, v = (y.unflatten(-1, (h, -1)).transpose(1, 2) for y in (q, k, v))
    s = torch.baddbmm(
        torch.zeros((), dtype=x.dtype), q.flatten(0, 1), k.flatten(0, 1).mT, beta=0, alpha=d**-0.5
    ).unflatten(0, (-1, h))
    if "bias" in p:
        s = s + p["bias"]
    o = (soft(s, f) @ v).transpose(1, 2).flatten(2)
    return grads_of(F.linear(o, p["wo"].flatten(0, 1).T, p["bo"]), do, p)


@row("layers/MultiHead softmax rotary")
def a25_mha_rotary_complex(**kw):
    p, f, do = prep(kw)
    x = p["x"]
    d = p["wq"].shape[2]
    q, k, v = (heads(p, x, n) for n in "qkv")
    ang = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * 10000.0 ** (
        -torch.arange(0, d, 2, dtype=torch.float64) / d
    )
    rot = torch.polar(torch.ones_like(ang), ang).to(torch.complex64 if x.dtype == torch.float32 else torch.complex128)[
        :, None
    ]
    q, k = (
        torch.view_as_real(torch.view_as_complex(y.unflatten(-1, (-1, 2)).contiguous()) * rot).flatten(-2)
        for y in (q, k)
    )
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / d**0.5
    if "bias" in p:
        s = s + p["bias"]
    o = torch.einsum("bhqk,bkhe->bqhe", soft(s, f), v)
    return grads_of(torch.einsum("bqhe,hem->bqm", o, p["wo"]) + p["bo"], do, p)


@row("layers/MultiHead hyla")
def a26_hyla_layer_hypernet(**kw):
    """W_qk = sum_h a_h W_h^v; W'_qk = sum_h a_h W_h^out: generated weights, as eq. 7 says"""
    p, f, do = prep(kw)
    x = p["x"]
    q, k = heads(p, x, "q"), heads(p, x, "k")
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    if "bias" in p:
        s = s + p["bias"]
    if "keep" in f:
        s = torch.where(f["keep"], s, 0)
    a = rms(s)
    if "dropout" in f:
        a = a * f["dropout"]
    W1 = torch.einsum("bhqk,mhe->bqkme", a, p["wv"])
    b1 = torch.einsum("bhqk,he->bqke", a, p["bv"])
    W2 = torch.einsum("bhqk,hem->bqkem", a, p["wo"])
    y = torch.einsum("bqke,bqkem->bqm", (torch.einsum("bkm,bqkme->bqke", x, W1) + b1).relu(), W2) + p["bo"]
    return grads_of(y, do, p)


@row("layers/Compositional dot")
def a27_comp_layer_dot(**kw):
    p, f, do = prep(kw)
    x = p["x"]
    q, k, v, sel = (heads(p, x, n) for n in "qkvs")
    s = torch.einsum("bqsd,bksd->bsqk", q, k) / q.shape[-1] ** 0.5
    if "bias" in p:
        s = s + p["bias"]
    t = torch.einsum("bsqk,bkre->bqsre", soft(s, f), v)
    key = t @ p["wr"] + p["br"]
    g = torch.softmax((sel[..., None, :] * key).sum(-1) / key.shape[-1] ** 0.5, -1)
    return grads_of(torch.einsum("bqsr,bqsre,sem->bqm", g, t, p["wo"]) + p["bo"], do, p)


@row("layers/Compositional linear")
def a28_comp_layer_linear(**kw):
    """one map of selector and retrieval side by side, concatenated"""
    p, f, do = prep(kw)
    x = p["x"]
    q, k, v, sel = (heads(p, x, n) for n in "qkvs")
    s = torch.einsum("bqsd,bksd->bsqk", q, k) / q.shape[-1] ** 0.5
    if "bias" in p:
        s = s + p["bias"]
    t = torch.einsum("bsqk,bkre->bqsre", soft(s, f), v)
    both = torch.cat([sel[..., None, :].expand(*t.shape[:4], -1), t], -1)
    g = torch.softmax(both @ torch.cat([p["wc"], p["wr"]]) + p["br"], -1)
    return grads_of(torch.einsum("bqsre,sem->bqm", g[..., None] * t, p["wo"]) + p["bo"], do, p)


@row("layers/FeedForward gelu")
def a29_ff_gelu(**kw):
    p, f, do = prep(kw)
    y = F.gelu(F.linear(p["x"], p["w1"].T, p["b1"]), approximate="tanh")
    if "dropout" in f:
        y = y * f["dropout"]
    return grads_of(F.linear(y, p["w2"].T, p["b2"]), do, p)


@row("layers/SwiGLU")
def a30_swiglu_numpy(x, wg, wu, wd, do):
    x2, d2 = x.reshape(-1, x.shape[-1]), do.reshape(-1, do.shape[-1])
    gu = x2 @ np.concatenate([wg, wu], 1)
    g, u = np.split(gu, 2, 1)
    sg = (1 + np.tanh(g / 2)) / 2
    y = g * sg * u
    dy = d2 @ wd.T
    dg = dy * u * (sg + g * sg * (1 - sg))
    du = dy * g * sg
    dx = dg @ wg.T + du @ wu.T
    return (y @ wd).reshape(do.shape), dx.reshape(x.shape), x2.T @ dg, x2.T @ du, y.T @ d2


def sd_layer(kw, dil):
    p, f, do = prep(kw)
    x = p["x"]
    q, k, v = (heads(p, x, n) for n in "qkv")
    T, w = x.shape[1], p["offset_bias"].shape[1]
    P = dil * (w - 1)
    pk, pv = (torch.einsum("m,mhd->hd", p["pad"], p["w" + n]) for n in "kv")
    K, V = (torch.cat([y.expand(x.shape[0], P, *y.shape), z], 1) for y, z in ((pk, k), (pv, v)))
    # unfold shifts
    s = (
        torch.stack([(q * K[:, P - dil * j : P - dil * j + T]).sum(-1) for j in range(w)], -1).transpose(1, 2)
        / q.shape[-1] ** 0.5
        + p["offset_bias"][:, None]
    )
    if "bias" in p:
        s = s + p["bias"]
    a = soft(s, f).transpose(1, 2)
    o = sum(a[..., j, None] * V[:, P - dil * j : P - dil * j + T] for j in range(w))
    return grads_of(torch.einsum("bqhe,hem->bqm", o, p["wo"]), do, p)


@row("layers/SlidingDilated pad")
def a31_sliding_layer(**kw):
    return sd_layer(kw, 2)


@row("ops/layer_norm")
def a32_layer_norm_torch(**kw):
    p, f, do = prep(kw)
    return grads_of(F.layer_norm(p["x"], p["x"].shape[-1:], p["scale"], p["shift"], 1e-6), do, p)


@row("ops/layer_norm")
def a33_layer_norm_one_pass(x, scale, shift, do):
    """variance as E x^2 - mean^2, like fused kernels of old"""
    m = x.mean(-1, keepdims=True)
    var = (x * x).mean(-1, keepdims=True) - m * m
    r = 1 / np.sqrt(np.maximum(var, 0) + x.dtype.type(1e-6))
    n = (x - m) * r
    dn = do * scale
    dx = r * (dn - dn.mean(-1, keepdims=True) - n * (dn * n).mean(-1, keepdims=True))
    ax = tuple(range(x.ndim - 1))
    return n * scale + shift, dx, (do * n).sum(ax), do.sum(ax)


@row("ops/gelu")
def a34_gelu_sigmoid(x, do):
    c = np.sqrt(8 / np.pi).astype(x.dtype)
    a = x.dtype.type(0.044715)
    u = c * (x + a * x**3)
    s = 1 / (1 + np.exp(-u))
    return x * s, do * (s + x * s * (1 - s) * c * (1 + 3 * a * x * x))


@row("losses/cross_entropy")
def a35_cross_entropy(logits, target, do, weight=None):
    (L,) = leaf(logits)
    w = torch.ones(target.shape, dtype=L.dtype) if weight is None else ndt(weight)
    each = F.cross_entropy(L.flatten(0, -2), ndt(target).flatten(), reduction="none")
    o = (each * w.flatten()).sum() / w.sum()
    return [o.detach(), *torch.autograd.grad(o, (L,), ndt(do))]


@row("layers/Conv of overlapping windows")
def a36_conv2d(**kw):
    p, f, do = prep(kw)
    y = F.conv2d(p["x"].permute(0, 3, 1, 2), p["k"].permute(3, 2, 0, 1), p["b"], stride=2, padding=1).permute(
        0, 2, 3, 1
    )
    return grads_of(y, do, p)


@row("layers/ContextNorm in 2")
def a37_context_norm(**kw):
    p, f, do = prep(kw)
    x = p["x"].unflatten(1, (2, -1))
    y = (x - x.mean(2, True)) / (x.var(2, keepdim=True, unbiased=True) + 1e-8).sqrt() * p["scale"] + p["shift"]
    return grads_of(y.flatten(1, 2), do, p)


@row("layers/MixtureOfExperts, 2 of 5")
def a38_moe_gather(**kw):
    p, f, do = prep(kw)
    x = p["x"]
    B, T, m = x.shape
    top, idx = (x @ p["wg"]).topk(2, -1)
    gate = torch.softmax(top, -1)
    y = 0
    for j in range(2):
        i = idx[..., j]
        h = F.gelu(torch.einsum("btm,btmf->btf", x, p["w1"].transpose(0, 1)[i]) + p["b1"][i], approximate="tanh")
        y = y + gate[..., j, None] * (torch.einsum("btf,btfm->btm", h, p["w2"][i]) + p["b2"][i])
    return grads_of(y, do, p)


@row("layers/next_token, all at a time")
def a39_next_token(**kw):
    p, f, do = prep(kw)
    lp = torch.log_softmax(0.5 * p["h"] @ p["table"].T, -1)
    return grads_of(-lp.gather(-1, f["target"][..., None])[..., 0], do, p)


@row("layers/MultiHead softmax, ALiBi")
def a40_alibi(**kw):
    p, f, do = prep(kw)
    x = p["x"]
    q, k, v = (heads(p, x, n) for n in "qkv")
    T = x.shape[1]
    pos = torch.arange(T, dtype=x.dtype)
    sl = torch.tensor([2**-4.0, 2**-8.0, 2**-2.0], dtype=x.dtype)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5 - sl[:, None, None] * (pos[:, None] - pos).abs()
    if "bias" in p:
        s = s + p["bias"]
    return grads_of(torch.einsum("bhqk,bkhe,hem->bqm", soft(s, f), v, p["wo"]) + p["bo"], do, p)


@row("layers/LayerNorm")
def a41_layer_norm_hand(**kw):
    p, f, do = prep(kw)
    x = p["x"]
    c = x - x.mean(-1, True)
    return grads_of(c * (c.square().mean(-1, True) + 1e-6).rsqrt() * p["scale"] + p["shift"], do, p)


@row("layers/MultiHead softmax across")
def a42_cross_attention(**kw):
    p, f, do = prep(kw)
    x, c = p["x"], p["context"]
    q, k, v = heads(p, x, "q"), heads(p, c, "k"), heads(p, c, "v")
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    if "bias" in p:
        s = s + p["bias"]
    return grads_of(torch.einsum("bhqk,bkhe,hem->bqm", soft(s, f), v, p["wo"]) + p["bo"], do, p)


# ------------------------------------------------------------------ A, half precision (flash-like roundings)
def half(dt):
    d = torch.bfloat16 if dt == "bfloat16" else torch.float16

    def r(x):
        return x.to(d).float()  # round to half, go on in float32

    return r


def flash_half(dt, r0=lambda x: x):
    r = half(dt)

    def kernel(q, k, v, do, bias=None, keep=None, dropout=None):
        q, k, v, do = (ndt(x).float() for x in (q, k, v, do))
        sc = q.shape[-1] ** -0.5  # b h t d
        s = q @ k.mT * sc
        if bias is not None:
            s = s + ndt(bias).float()
        if keep is not None:
            s = s.masked_fill(~ndt(keep), -torch.inf)
        m = s.amax(-1, True)
        m = torch.where(m == -torch.inf, 0, m)
        e = (s - m).exp()
        l = e.sum(-1, True).clamp_min(1e-30)
        dr = 1 if dropout is None else ndt(dropout).float()
        o = r((r(e * dr) @ v) / l)  # P unnormalised in half, as FA2 does
        p = e / l
        delta = (do * o).sum(-1, True)
        dp = do @ v.mT * dr
        ds = p * (dp - delta)
        dv = r(p * dr).mT @ do
        dq = r(ds) @ k * sc
        dk = r(ds).mT @ q * sc
        out = [o, r(dq), r(dk), r(dv)]
        if bias is not None:
            out.append(r(torch.from_numpy(unb(ds.numpy(), bias.shape))))
        return out

    return kernel


def linear_half(dt):
    r = half(dt)

    def kernel(q, k, v, do):
        q, k, v, do = (ndt(x).float() for x in (q, k, v, do))
        sc = q.shape[-1] ** -0.5
        a = r(torch.einsum("bqhd,bkhd->bhqk", q, k) * sc)
        da = r(torch.einsum("bqhe,bkhe->bhqk", do, v))
        return [
            r(x)
            for x in (
                torch.einsum("bhqk,bkhe->bqhe", a, v),
                torch.einsum("bhqk,bkhd->bqhd", da, k) * sc,
                torch.einsum("bhqk,bqhd->bkhd", da, q) * sc,
                torch.einsum("bhqk,bqhe->bkhe", a, do),
            )
        ]

    return kernel


def hyla_half(dt):
    r = half(dt)

    def kernel(q, k, v, do, bias, dropout):
        q, k, v, do, bias, dr = (ndt(x).float() for x in (q, k, v, do, bias, dropout))
        sc = q.shape[-1] ** -0.5
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) * sc + bias
        rho = (s.square().mean(1, True) + 1e-6).rsqrt()
        a = s * rho
        c = r(a * dr)
        z = torch.einsum("bhqk,bkhe->bqke", c, v)
        g = r(z.relu())
        o = torch.einsum("bhqk,bqke->bqhe", c, g)
        dz = r(torch.where(z > 0, torch.einsum("bhqk,bqhe->bqke", c, do), 0))
        da = (torch.einsum("bqhe,bqke->bhqk", do, g) + torch.einsum("bqke,bkhe->bhqk", dz, v)) * dr
        ds = rho * (da - a * (a * da).mean(1, True))
        dsh = r(ds)
        return [
            r(x)
            for x in (
                o,
                torch.einsum("bhqk,bkhd->bqhd", dsh, k) * sc,
                torch.einsum("bhqk,bqhd->bkhd", dsh, q) * sc,
                torch.einsum("bhqk,bqke->bkhe", c, dz),
                torch.from_numpy(unb(ds.numpy(), bias.shape)),
            )
        ]

    return kernel


def up_and_round(dt, f):
    """float32 all through, results rounded"""
    r = half(dt)

    def kernel(*a, **kw):
        up = lambda x: x if x.dtype == bool else np.asarray(x, np.float32)
        out = f(*map(up, a), **{n: up(x) for n, x in kw.items()})
        g = lambda x: r(torch.as_tensor(np.asarray(x)))
        return {n: g(x) for n, x in out.items()} if isinstance(out, dict) else [g(x) for x in out]

    return kernel


HALF = []
for dt in ("bfloat16", "float16"):
    HALF += [
        ("h01_flash", flash_half(dt), "softmax", dict(layout="bhtd"), dt),
        ("h02_flash_all", flash_half(dt), "softmax", dict(layout="bhtd", bias="hqk", keep="b11k", dropout="bhqk"), dt),
        ("h03_flash_h1k_keepq", flash_half(dt), "softmax", dict(layout="bhtd", bias="h1k", keep="bhqk"), dt),
        ("h04_flash_tiles", flash_half(dt), "softmax", dict(layout="bhtd", sizes="tiles"), dt),
        ("h05_linear", linear_half(dt), "linear", {}, dt),
        ("h06_hyla", hyla_half(dt), "hyla", dict(bias="hqk", dropout="bhqk"), dt),
    ]
    HALF += [
        ("h_" + n, up_and_round(dt, f), var, opt, dt)
        for n, f, var, opt, *_ in ROWS
        if "/" not in var
        and n[:3] in ("a01", "a03", "a07", "a10", "a13", "a14", "a16", "a17", "a18", "a20", "a21", "a23")
    ]


# ================================================================== B, wrong kernels; `place` = line and direction, and the mistake
def sc_(q, r=0.5):
    return q.dtype.type(q.shape[-1] ** -r)


def np_softmax(bug=None, causal=False):
    def kernel(q, k, v, do, bias=None, keep=None, dropout=None):
        sc = sc_(q, 1.0) if bug == "scale_d" else sc_(q)
        B = 0 if bias is None else bias * (sc if bug == "bias_scaled" else 1)
        s = E_("bqhd,bkhd->bhqk", q, k) * sc + B
        T, N = s.shape[2:]
        if causal:
            kp = np.arange(N) <= np.arange(T)[:, None] + (0 if bug == "top_left" else N - T)
        else:
            kp = np.ones(s.shape, bool) if keep is None else np.broadcast_to(keep, s.shape)
        if bug == "mask_after":
            a = np.exp(s - s.max(-1, keepdims=True))
            a = a / a.sum(-1, keepdims=True) * kp
            full = a
        else:
            s = np.where(kp, s, -np.inf)
            m = s.max(-1, keepdims=True)
            e = np.exp(s - np.where(np.isinf(m), 0, m))
            a = e / np.maximum(e.sum(-1, keepdims=True), q.dtype.type(1e-30))
        dr = 1 if dropout is None else dropout
        c = a * dr
        o = E_("bhqk,bkhe->bqhe", c, v)
        dc = E_("bqhe,bkhe->bhqk", do, v)
        dv = E_("bhqk,bqhe->bkhe", a if bug == "dv_undropped" else c, do)
        da = dc if bug == "no_dropout_bwd" else dc * dr
        if bug == "mask_after":  # consistent derivative of softmax * keep
            full = np.exp(s - s.max(-1, keepdims=True))
            full /= full.sum(-1, keepdims=True)
            da = da * kp
            ds = full * (da - (full * da).sum(-1, keepdims=True))
        else:
            delta = (a * (dc if bug == "delta_undropped" else da)).sum(-1, keepdims=True)
            if bug == "delta_mean":
                delta = delta / N
            if bug == "delta_query_axis":
                delta = (a * da).sum(2, keepdims=True)
            ds = a * (da - delta)
        dsb = ds * sc if bug == "bias_scaled" else ds
        out = [
            o,
            E_("bhqk,bkhd->bqhd", ds, k) * (1 if bug == "dq_unscaled" else sc),
            E_("bhqk,bqhd->bkhd", ds, q) * sc,
            dv,
        ]
        if bias is not None:
            g = unb(dsb, bias.shape)
            if bug == "dbias_mean":
                g = g / T
            if bug == "dbias_b0":
                g = unb(dsb[:1], bias.shape)
            out.append(g)
        return out

    return kernel


def add(name, f, variant, place, **opt):
    ROWS.append((name, f, variant, opt, False, place, "both"))


add("b01", np_softmax("scale_d"), "softmax", "1 both: 1/d for 1/sqrt d", bias="bhqk")
add("b02", np_softmax("dq_unscaled"), "softmax", "1 bwd: dq lacks the scale", bias="hqk")
add("b03", np_softmax("delta_mean"), "softmax", "2 bwd: mean for sum over k in delta")
add("b04", np_softmax("no_dropout_bwd"), "softmax", "3 bwd: da lacks dropout", dropout="bhqk", bias="bhqk")
add(
    "b05",
    np_softmax("mask_after"),
    "softmax",
    "2 both: keep after the softmax, not normalised again",
    keep="bhqk",
    bias="bhqk",
)
add("b06", np_softmax("dbias_mean"), "softmax", "1 bwd: dbias mean over q", bias="h1k")
add("b07", np_softmax("top_left", True), "softmax", "2 both: causal mask aligned top left", causal=True)
add("b08", np_softmax("delta_undropped"), "softmax", "2 bwd: delta from dc, not da (dropout)", dropout="bhqk")
add("b09", np_softmax("bias_scaled"), "softmax", "1 both: bias scaled too", bias="hqk")
add("b10", np_softmax("dbias_b0"), "softmax", "1 bwd: dbias of first batch only", bias="hqk")


def np_linear(bug):
    def kernel(q, k, v, do, bias=None, keep=None, dropout=None):
        sc = sc_(q)
        kp = 1 if keep is None else keep
        dr = 1 if dropout is None else dropout
        N = k.shape[1]
        s = E_("bqhd,bkhd->bhqk", q, k) * sc + (0 if bias is None else bias)
        a = s * kp
        c = a * dr
        if bug == "lost_tile":
            c = np.where(np.arange(N) < N // 4 * 4, c, 0).astype(q.dtype)
        o = E_("bhqk,bkhe->bqhe", c, v)
        dc = E_("bqhe,bkhe->bhqk", do, v)
        if bug == "lost_tile":
            dc = np.where(np.arange(N) < N // 4 * 4, dc, 0).astype(q.dtype)
        dv = E_("bhqk,bqhe->bkhe", a if bug == "dv_undropped" else c, do)
        da = dc * dr
        ds = da if bug == "no_keep_bwd" else da * kp
        out = [
            o,
            E_("bhqk,bkhd->bqhd", ds, k) * sc,
            E_("bhqk,bqhd->bkhd", ds, k[:, : q.shape[1]] if bug == "dk_from_k" else q) * sc,
            dv,
        ]
        return out + ([unb(ds, bias.shape)] if bias is not None else [])

    return kernel


add("b11", np_linear("no_keep_bwd"), "linear", "2 bwd: keep missing in ds", keep="bhqk", bias="bhqk")
add("b12", np_linear("dv_undropped"), "linear", "4 bwd: dv from a instead of c", dropout="bhqk", bias="bhqk")
add("b13", np_linear("lost_tile"), "linear", "4 both: last keys (not a whole tile of 4) lost", bias="bhqk")
add("b14", np_linear("dk_from_k"), "linear", "1 bwd: dk from k instead of q")


def np_hyla(bug):
    def kernel(q, k, v, do, bias=None, keep=None, dropout=None):
        f = q.dtype.type
        sc = sc_(q)
        kp = 1 if keep is None else keep
        dr = 1 if dropout is None else dropout
        eps = f(1e-5 if bug == "eps" else 1e-6)
        ax = 3 if bug == "over_k" else 1
        red = (lambda x: x.sum(ax, keepdims=True)) if bug == "sum" else (lambda x: x.mean(ax, keepdims=True))
        s = (E_("bqhd,bkhd->bhqk", q, k) * sc + (0 if bias is None else bias)) * kp
        if bug == "eps_outside":
            n = np.sqrt(red(s * s)) + eps
            rho = 1 / n
        else:
            rho = 1 / np.sqrt(red(s * s) + eps)
        a = s * rho
        c = a * dr
        z = E_("bhqk,bkhe->bqke", a if bug == "z_undropped" else c, v)
        g = np.maximum(z, 0)
        leak = f(0.01)
        if bug == "leaky":
            g = np.where(z > 0, z, leak * z)
        o = E_("bhqk,bqke->bqhe", c, g)
        dg = E_("bhqk,bqhe->bqke", c, do)
        dc = E_("bqhe,bqke->bhqk", do, z if bug == "z_for_g" else g)
        dz = dg * ((dg if bug == "mask_dg" else z) > 0)
        if bug == "leaky":
            dz = np.where(z > 0, dg, leak * dg)
        first = E_("bqke,bkhe->bhqk", dz, v)
        dv = E_("bhqk,bqke->bkhe", a if bug == "z_undropped" else c, dz)
        if bug == "first_halved":
            first = first / 2
        da = dc * dr + first if bug == "z_undropped" else (dc + first) * dr
        if bug == "rho_detached":
            ds = rho * da
        elif bug == "a_unnormalised":
            ds = rho * (da - s * red(s * da))
        elif bug == "eps_outside":
            ds = rho * da - s * red(s * da) * rho**2 / np.maximum(n - eps, f(1e-30))
        else:
            ds = rho * (da - a * red(a * da))
        ds = ds * kp
        if bug == "keep_in_mean_bwd":
            pass
        out = [o, E_("bhqk,bkhd->bqhd", ds, k) * sc, E_("bhqk,bqhd->bkhd", ds, q) * sc, dv]
        return out + ([unb(ds, bias.shape)] if bias is not None else [])

    return kernel


add("b15", np_hyla("eps"), "hyla", "3 both: epsilon 1e-5", bias="bhqk")
add("b16", np_hyla("over_k"), "hyla", "3 both: root mean square over keys", bias="bhqk")
add("b17", np_hyla("leaky"), "hyla", "6 both: leaky relu .01", bias="bhqk")
add("b18", np_hyla("mask_dg"), "hyla", "6 bwd: relu's mask from dg", bias="hqk")
add("b19", np_hyla("z_for_g"), "hyla", "7 bwd: z instead of g in dc", bias="hqk")
add("b20", np_hyla("z_undropped"), "hyla", "5 both: first use of code without dropout", dropout="bhqk", bias="bhqk")
add("b21", np_hyla("rho_detached"), "hyla", "3 bwd: rho taken for a constant", bias="bhqk")
add("b22", np_hyla("sum"), "hyla", "3 both: sum for mean", bias="bhqk")
add("b23", np_hyla("a_unnormalised"), "hyla", "3 bwd: s for a in rms backward", bias="bhqk")
add("b24", np_hyla("eps_outside"), "hyla", "3 both: epsilon outside the root", bias="bhqk")
add("b25", np_hyla("first_halved"), "hyla", "5 bwd: half of first use")


def np_state(bug):
    def kernel(q, k, v, state, do, dend):
        sc = sc_(q)
        T = q.shape[1]
        tri = np.tril(np.ones((T, T), q.dtype), -1 if bug == "exclusive" else 0)
        a = E_("bqhd,bkhd->bhqk", q, k) * sc * tri
        ks = k * sc if bug == "state_scaled" else k
        if bug == "end_overwrites":
            end = E_("bkhd,bkhe->bhde", ks, v)
        else:
            end = E_("bkhd,bkhe->bhde", ks, v) + state
        o = E_("bhqk,bkhe->bqhe", a, v) + E_("bqhd,bhde->bqhe", q * sc, state)
        ds = E_("bqhe,bkhe->bhqk", do, v) * tri
        dstate = E_("bqhd,bqhe->bhde", q * sc, do) + (0 if bug in ("dstate_no_dend", "end_overwrites") else dend)
        dq = E_("bhqk,bkhd->bqhd", ds, k) * sc + (0 if bug == "dq_no_state" else E_("bqhe,bhde->bqhd", do, state) * sc)
        g = sc if bug == "state_scaled" else 1
        dk = E_("bhqk,bqhd->bkhd", ds, q) * sc + (0 if bug == "dk_no_dend" else E_("bkhe,bhde->bkhd", v, dend) * g)
        dv = E_("bhqk,bqhe->bkhe", a, do) + E_("bkhd,bhde->bkhe", ks, dend)
        return o, end, dq, dk, dv, dstate

    return kernel


add("b26", np_state("dstate_no_dend"), "linear_state", "6 bwd: dstate without dend")
add("b27", np_state("state_scaled"), "linear_state", "4 both: k / sqrt d in the state")
add("b28", np_state("exclusive"), "linear_state", "2 both: k < q")
add("b29", np_state("dk_no_dend"), "linear_state", "4 bwd: dk without dend")
add("b30", np_state("dq_no_state"), "linear_state", "5 bwd: dq without the state")


def th_comp(bug, kind):
    def kernel(q, k, v, selector, *score, do, bias=None, dropout=None, keep=None):
        q, k, v, selector = leaf(q, k, v, selector)
        score = leaf(*score)
        b = [] if bias is None else leaf(bias)
        s = torch.einsum("bqsd,bksd->bsqk", q, k) / q.shape[-1] ** 0.5
        if b:
            s = s + b[0]
        c = torch.softmax(s, -1)
        if dropout is not None:
            c = c * ndt(dropout)
        t = torch.einsum("bsqk,bkre->bqsre", c, v)
        tl = t.detach() if bug == "t_detached" else t
        if kind == "dot":
            sc = selector.shape[-1] ** -0.5
            if bug == "sqrt_e":
                sc = t.shape[-1] ** -0.5
            if bug == "no_scale":
                sc = 1
            l = torch.einsum("bqsc,bqsrc->bqsr", selector, tl @ score[0]) * sc
        elif kind == "linear":
            wr, wc, br = score
            w = wr
            if bug == "dwr_mean":
                w = wr.detach() + (wr - wr.detach()) / q.shape[0]
            l = tl @ w + (selector @ wc)[..., None] + br
        else:
            wr, wc, br, w2, b2 = score
            if bug == "b_after_relu":
                z = (tl @ wr + (selector @ wc)[..., None, :]).relu() + br
            elif bug == "gelu":
                z = F.gelu(tl @ wr + (selector @ wc)[..., None, :] + br)
            elif bug == "relu_ste":
                y = tl @ wr + (selector @ wc)[..., None, :] + br
                z = y + (y.relu() - y).detach()
            elif bug == "no_selector_grad":
                z = (tl @ wr + (selector.detach() @ wc)[..., None, :] + br).relu()
            else:
                z = (tl @ wr + (selector @ wc)[..., None, :] + br).relu()
            l = z @ w2 + b2
        g = torch.softmax(l, 2 if bug == "over_s" else 3)
        if bug == "sm_bwd_no_sum":  # dl = g * dg
            lw = l.detach()
            g = g.detach() * (1 + l - lw)
        to = t.detach() if bug == "t_value_detached" else t
        o = (g[..., None] * to).sum(3)
        L = [q, k, v, *b, selector, *score]
        gr = [
            torch.zeros_like(x) if y is None else y
            for x, y in zip(L, torch.autograd.grad(o, L, ndt(do), allow_unused=True))
        ]
        return [o.detach(), *gr]

    return kernel


add("b31", th_comp("sqrt_e", "dot"), "compositional", "5 both (value scores 1): sqrt e for sqrt c", bias="bhqk")
add(
    "b32",
    th_comp("t_detached", "dot"),
    "compositional",
    "5 bwd: retrievals' gradient through the value scores missing",
    bias="bhqk",
)
add("b33", th_comp("over_s", "dot"), "compositional", "6 both: softmax over searches", bias="bhqk")
add(
    "b34",
    th_comp("sm_bwd_no_sum", "linear"),
    "compositional_linear",
    "6 bwd: softmax backward without its sum",
    bias="bhqk",
)
add("b35", th_comp("dwr_mean", "linear"), "compositional_linear", "5 bwd (value scores 2): dwr divided by batch")
add(
    "b36",
    th_comp("relu_ste", "nonlinear"),
    "compositional_nonlinear",
    "5 bwd (value scores 3): relu's mask missing",
    bias="bhqk",
)
add(
    "b37",
    th_comp("b_after_relu", "nonlinear"),
    "compositional_nonlinear",
    "5 both (value scores 2): br after the relu",
    bias="bhqk",
)
add("b38", th_comp("t_value_detached", "dot"), "compositional", "7 bwd: the retrievals' other use missing", bias="hqk")
add(
    "b39",
    th_comp("no_selector_grad", "nonlinear"),
    "compositional_nonlinear",
    "5 bwd (value scores 1/2): dselector is 0",
)


def np_slide(bug, pad):
    def kernel(q, k, v, offset_bias, *pads, do, bias=None, keep=None, dropout=None):
        b, t, h, d = q.shape
        n = k.shape[1]
        w = offset_bias.shape[1]
        sc = sc_(q)
        P = 2 * w
        pk, pv = pads if pad else (np.zeros((h, d), q.dtype), np.zeros((h, v.shape[3]), q.dtype))
        K = np.concatenate([np.broadcast_to(pk, (b, P, h, d)), k], 1)
        V = np.concatenate([np.broadcast_to(pv, (b, P, *pv.shape)), v], 1)
        raw = sd_index(t, n, w, 1 if bug == "dilation1" else 2)
        if bug == "first_queries":
            raw = np.arange(t)[:, None] - 2 * np.arange(w)
        idx = (np.maximum(raw, 0) if bug == "clamp" else raw) + P
        ok = np.ones(raw.shape, bool) if pad or bug in ("clamp", "zeros_pad") else raw >= 0
        if keep is not None:
            ok = ok & keep
        kg, vg = K[:, idx], V[:, idx]
        r = offset_bias[:, ::-1] if bug == "r_flipped" else offset_bias
        r = r * sc if bug == "r_scaled" else r
        s = E_("bqhd,bqwhd->bhqw", q, kg) * sc + r[:, None] + (0 if bias is None else bias)
        s = np.where(ok, s, -np.inf)
        m = s.max(-1, keepdims=True)
        e = np.exp(s - np.where(np.isinf(m), 0, m))
        a = e / np.maximum(e.sum(-1, keepdims=True), q.dtype.type(1e-30))
        dr = 1 if dropout is None else dropout
        c = a * dr
        o = E_("bhqw,bqwhe->bqhe", c, vg)
        da = E_("bqhe,bqwhe->bhqw", do, vg) * dr
        ds = a * (da - (a * da).sum(-1, keepdims=True))
        dK, dV = np.zeros_like(K), np.zeros_like(V)
        G = E_("bhqw,bqhd->bqwhd", ds, q) * sc
        H = E_("bhqw,bqhe->bqwhe", c, do)
        if bug == "scatter_assign":
            dK[:, idx] = G
        else:
            np.add.at(dK, (slice(None), idx), G)
        np.add.at(dV, (slice(None), idx), H)
        dr_ = ds.sum((0, 2)) * (sc if bug == "r_scaled" else 1)
        out = [o, E_("bhqw,bqwhd->bqhd", ds, kg) * sc, dK[:, P:], dV[:, P:]] + (
            [unb(ds, bias.shape)] if bias is not None else []
        )
        out.append(dr_[:, ::-1] if bug == "r_flipped" else dr_)
        if pad:
            dpk = dK[:, :P].sum((0, 1))
            dpv = dV[:, :P].mean(0).sum(0) if bug == "dpad_v_mean" else dV[:, :P].sum((0, 1))
            out += [dpk * 0 if bug == "dpad_k_0" else dpk, dpv]
        return out

    return kernel


add("b40", np_slide("dilation1", False), "sliding_dilated", "1 or 6 both: dilation 1", bias="bhqw")
add("b41", np_slide("clamp", False), "sliding_dilated", "4 (1, 6) both: key 0 stands before the first", bias="bhqw")
add("b42", np_slide("zeros_pad", False), "sliding_dilated", "4 both: keys out of range not masked", bias="bhqw")
add("b43", np_slide("dpad_v_mean", True), "sliding_dilated_pad", "6 bwd: dpad_v mean over batch", bias="bhqw")
add(
    "b44", np_slide("r_flipped", True), "sliding_dilated_pad", "2 both: offset_bias in the other direction", bias="bhqw"
)
add("b45", np_slide("scatter_assign", True), "sliding_dilated_pad", "1 bwd: dk = instead of += (scatter)", bias="bhqw")
add("b46", np_slide("r_scaled", False), "sliding_dilated", "2 both: r divided by sqrt d", bias="hqw")
add(
    "b47",
    np_slide("first_queries", False),
    "sliding_dilated",
    "1 or 6 both: queries at the first positions",
    bias="bhqw",
)


# ---- rows
class Turn(torch.autograd.Function):  # rotary whose backward turns the same way as its forward
    @staticmethod
    def forward(ctx, y, rot):
        ctx.rot = rot
        return torch.view_as_real(torch.view_as_complex(y.unflatten(-1, (-1, 2)).contiguous()) * rot).flatten(-2)

    @staticmethod
    def backward(ctx, g):
        return torch.view_as_real(torch.view_as_complex(g.unflatten(-1, (-1, 2)).contiguous()) * ctx.rot).flatten(
            -2
        ), None


def mha(bug):
    def kernel(**kw):
        p, f, do = prep(kw)
        x = p["x"]
        d = p["wq"].shape[2]
        xq = x.detach() if bug == "dx_no_q" else x
        q, k, v = heads(p, xq, "q"), heads(p, x, "k"), heads(p, x, "v")
        if bug == "bq_twice":
            q = q + p["bq"]
        if bug.startswith("rot"):
            ang = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * 10000.0 ** (
                -torch.arange(0, d, 2, dtype=torch.float64) / d
            )
            if bug == "rot_from_1":
                ang = ang * 2
            rot = torch.polar(torch.ones_like(ang), ang).to(
                torch.complex64 if x.dtype == torch.float32 else torch.complex128
            )[:, None]
            if bug == "rot_half":
                tr = lambda y: torch.cat(
                    [
                        y[..., : d // 2] * rot.real - y[..., d // 2 :] * rot.imag,
                        y[..., : d // 2] * rot.imag + y[..., d // 2 :] * rot.real,
                    ],
                    -1,
                )
                q, k = tr(q), tr(k)
            else:
                q, k = Turn.apply(q, rot), Turn.apply(k, rot)
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) / d**0.5
        if "bias" in p:
            s = s + p["bias"]
        o = torch.einsum("bhqk,bkhe->bqhe", soft(s, f), v)
        bo = p["bo"]
        if bug == "bo_per_head":
            bo = bo * p["wo"].shape[0]
        if bug == "dbo_batch":
            bo = bo.detach() + (bo - bo.detach()) / x.shape[0]
        return grads_of(torch.einsum("bqhe,hem->bqm", o, p["wo"]) + bo, do, p)

    return kernel


add("b48", mha("dx_no_q"), "layers/MultiHead softmax", "(in) bwd: dx lacks the queries' part")
add("b49", mha("bo_per_head"), "layers/MultiHead softmax", "(out) both: bo added once for each head")
add("b50", mha("dbo_batch"), "layers/MultiHead softmax", "(out) bwd: dbo mean over batch")
add("b51", mha("rot_bwd"), "layers/MultiHead softmax rotary", "(position) bwd: turned the wrong way")
add("b52", mha("rot_half"), "layers/MultiHead softmax rotary", "(position) both: half pairing for interleaved")


def ff(bug):
    def kernel(**kw):
        p, f, do = prep(kw)
        x = p["x"]
        if bug == "silu_bwd":
            g, u = x @ p["wg"], x @ p["wu"]
            sg = torch.sigmoid(g).detach()
            return grads_of((g * sg * u) @ p["wd"], do, p)
        if bug == "swap":
            return grads_of((x @ p["wg"] * F.silu(x @ p["wu"])) @ p["wd"], do, p)
        y = F.gelu(x @ p["w1"] + p["b1"], approximate="none" if bug == "exact" else "tanh")
        if "dropout" in f and bug != "nodrop":
            y = y * f["dropout"]
        if bug == "db1":
            b = p["b1"]
            y = F.gelu(x @ p["w1"] + b.detach() + (b - b.detach()) / x.shape[1], approximate="tanh") * (
                f["dropout"] if "dropout" in f else 1
            )
        return grads_of(y @ p["w2"] + p["b2"], do, p)

    return kernel


add("b53", ff("exact"), "layers/FeedForward gelu", "2 both: erf form")
add("b54", ff("silu_bwd"), "layers/SwiGLU", "2 bwd: sigmoid taken for a constant")
add("b55", ff("swap"), "layers/SwiGLU", "2 both: silu on up instead of the gate")
add("b56", ff("db1"), "layers/FeedForward gelu", "1 bwd: db1 divided by positions")


def ln_unbiased(**kw):
    p, f, do = prep(kw)
    x = p["x"]
    return grads_of((x - x.mean(-1, True)) / (x.var(-1, keepdim=True) + 1e-6).sqrt() * p["scale"] + p["shift"], do, p)


add("b57", ln_unbiased, "ops/layer_norm", "1 both: unbiased variance")


def ce_mean(logits, target, do, weight=None):
    (L,) = leaf(logits)
    w = torch.ones(target.shape, dtype=L.dtype) if weight is None else ndt(weight)
    o = (F.cross_entropy(L.flatten(0, -2), ndt(target).flatten(), reduction="none") * w.flatten()).mean()
    return [o.detach(), *torch.autograd.grad(o, (L,), ndt(do))]


add("b58", ce_mean, "losses/cross_entropy", "3 both: divided by the count, not the weights")


def comp_layer(bug):
    def kernel(**kw):
        p, f, do = prep(kw)
        x = p["x"]
        q, k, v = (heads(p, x, n) for n in "qkv")
        sel = heads(p, x.detach() if bug == "dx_no_sel" else x, "s")
        s = torch.einsum("bqsd,bksd->bsqk", q, k) / q.shape[-1] ** 0.5
        if "bias" in p:
            s = s + p["bias"]
        t = torch.einsum("bsqk,bkre->bqsre", soft(s, f), v)
        key = t @ p["wr"] + p["br"]
        g = torch.softmax((sel[..., None, :] * key).sum(-1) / key.shape[-1] ** 0.5, -1)
        if bug == "hard":
            g = torch.softmax((sel[..., None, :] * key).sum(-1) / (key.shape[-1] * 1.0), -1)
        return grads_of(torch.einsum("bqsr,bqsre,sem->bqm", g, t, p["wo"]) + p["bo"], do, p)

    return kernel


add("b59", comp_layer("dx_no_sel"), "layers/Compositional dot", "(in) bwd: dx lacks the selector's part")
add("b60", comp_layer("hard"), "layers/Compositional dot", "5 both: 1/c for 1/sqrt c")


# ------------------------------------------------------------------ B, second batch: verdicts
def twice(x, n=2):
    return n * x


def fwd_only(f, change, grads_too=False):
    pass


def mha2(bug):
    def kernel(**kw):
        p, f, do = prep(kw)
        x = p["x"]
        d = p["wq"].shape[2]
        q, k, v = heads(p, x, "q"), heads(p, x, "k"), heads(p, x, "v")
        if bug == "no_bv":
            v = v - p["bv"]
        if bug == "bv_twice":
            v = v + p["bv"]
        if bug == "bk_twice":
            k = k + p["bk"]
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) / d**0.5
        if "bias" in p:
            s = s + p["bias"]
        o = torch.einsum("bhqk,bkhe->bqhe", soft(s, f), v)
        y = torch.einsum("bqhe,hem->bqm", o, p["wo"])
        if bug == "no_bo":
            y = y
        elif bug == "bo_twice":
            y = y + 2 * p["bo"]
        elif bug == "bo_twice_fwd":
            y = y + p["bo"] + p["bo"].detach()
        elif bug == "residual":
            y = y + p["bo"] + x
        elif bug == "residual_fwd":
            y = y + p["bo"] + x.detach()
        else:
            y = y + p["bo"]
        return grads_of(y, do, p)

    return kernel


for i, (bug, place) in enumerate(
    [
        ("no_bo", "(out) both: bo missing"),
        ("bo_twice", "(out) both: bo twice, dbo twice"),
        ("bo_twice_fwd", "(out) fwd only: bo twice"),
        ("bv_twice", "(in) both: bv twice"),
        ("residual", "(out) both: x added"),
        ("residual_fwd", "(out) fwd only: x added"),
    ]
):
    add(f"b{61 + i}", mha2(bug), "layers/MultiHead softmax", place)


def ff2(bug):
    def kernel(**kw):
        p, f, do = prep(kw)
        x = p["x"]
        y = F.gelu(x @ p["w1"] + p["b1"], approximate="tanh") * f.get("dropout", 1)
        return grads_of(y @ p["w2"] + 2 * p["b2"], do, p)

    return kernel


add("b67", ff2("b2"), "layers/FeedForward gelu", "4 both: b2 twice, db2 twice")


def ln_shift(**kw):
    p, f, do = prep(kw)
    return grads_of(F.layer_norm(p["x"], p["x"].shape[-1:], p["scale"], p["shift"] * 2, 1e-6), do, p)


add("b68", ln_shift, "ops/layer_norm", "2 both: shift twice, dshift twice")
add("b69", np_state("end_overwrites"), "linear_state", "6 both: end without state, dstate without dend")


def lin2(q, k, v, do, bias):
    q, k, v, bias = leaf(q, k, v, bias)
    a = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5 + 2 * bias
    o = torch.einsum("bhqk,bkhe->bqhe", a, v)
    return [o.detach(), *torch.autograd.grad(o, (q, k, v, bias), ndt(do))]


add("b70", lin2, "linear", "1 both: bias twice", bias="hqk")


def conv_bug(bug):
    def kernel(**kw):
        p, f, do = prep(kw)
        k = p["k"]
        if bug == "transposed":
            k = k.transpose(0, 1)
        if bug == "flipped":
            k = k.flip(0, 1)
        y = F.conv2d(
            p["x"].permute(0, 3, 1, 2), k.permute(3, 2, 0, 1), p["b"] * (2 if bug == "b2" else 1), stride=2, padding=1
        ).permute(0, 2, 3, 1)
        return grads_of(y, do, p)

    return kernel


add("b71", conv_bug("flipped"), "layers/Conv of overlapping windows", "2 both: kernel flipped")
add("b72", conv_bug("b2"), "layers/Conv of overlapping windows", "3 both: b twice")


def cn_bug(**kw):
    p, f, do = prep(kw)
    x = p["x"].unflatten(1, (2, -1))
    return grads_of(
        (
            (x - x.mean(2, True)) / (x.var(2, keepdim=True, unbiased=False) + 1e-8).sqrt() * p["scale"] + p["shift"]
        ).flatten(1, 2),
        do,
        p,
    )


add("b73", cn_bug, "layers/ContextNorm in 2", "2 both: biased variance")


def moe_bug(bug):
    def kernel(**kw):
        p, f, do = prep(kw)
        x = p["x"]
        logits = x @ p["wg"]
        kth = logits.topk(2, -1).values[..., -1:]
        on = logits >= kth
        if bug == "soft_all":
            g = torch.softmax(logits, -1) * on
        else:
            g = torch.softmax(logits.masked_fill(~on, -1e30), -1)
        h = F.gelu(torch.einsum("btm,mxf->btxf", x, p["w1"]) + p["b1"], approximate="tanh")
        y = torch.einsum("btx,btxf,xfm->btm", g, h, p["w2"]) + (
            p["b2"].sum(0) if bug == "b2_ungated" else torch.einsum("btx,xm->btm", g, p["b2"])
        )
        return grads_of(y, do, p)

    return kernel


add("b74", moe_bug("soft_all"), "layers/MixtureOfExperts, 2 of 5", "2 both: not normalised over the chosen")
add("b75", moe_bug("b2_ungated"), "layers/MixtureOfExperts, 2 of 5", "7 both: b2 ungated")


def half_right(q, k, v, do, bias):
    """forward with 1/d, backward by formulas with 1/sqrt d on the saved a of the wrong forward"""
    s = E_("bqhd,bkhd->bhqk", q, k) * sc_(q, 1.0) + bias
    a = np.exp(s - s.max(-1, keepdims=True))
    a /= a.sum(-1, keepdims=True)
    da = E_("bqhe,bkhe->bhqk", do, v)
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    sc = sc_(q)
    return (
        E_("bhqk,bkhe->bqhe", a, v),
        E_("bhqk,bkhd->bqhd", ds, k) * sc,
        E_("bhqk,bqhd->bkhd", ds, q) * sc,
        E_("bhqk,bqhe->bkhe", a, do),
        unb(ds, bias.shape),
    )


add("b76", half_right, "softmax", "1 fwd only, a saved: 1/d; backward formula right", bias="bhqk")


def relu_out(q, k, v, do, bias):
    r = a09_plain(q, k, v, do, bias)
    return [np.maximum(np.asarray(r[0]), 0), *r[1:]]


def a09_plain(q, k, v, do, bias):
    q, k, v, bias = leaf(q, k, v, bias)
    c = rms(torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1]) + bias)
    o = torch.einsum("bhqk,bqke->bqhe", c, torch.einsum("bhqk,bkhe->bqke", c, v).relu())
    return [o.detach(), *torch.autograd.grad(o, (q, k, v, bias), ndt(do))]


add("b77", relu_out, "hyla", "7 fwd only: relu on the output, gradients of the right forward", bias="bhqk")


def sm_o_nodrop(q, k, v, do, bias, dropout):
    o = np_softmax()(q, k, v, do, bias)[0]
    return [o, *np_softmax()(q, k, v, do, bias, None, dropout)[1:]]


add(
    "b78",
    sm_o_nodrop,
    "softmax",
    "3 fwd only: dropout missing in the forward, gradients right",
    bias="bhqk",
    dropout="bhqk",
)


def comp_bug(q, k, v, selector, wr, do, bias):
    q, k, v, selector, wr, bias = leaf(q, k, v, selector, wr, bias)
    p = torch.softmax(torch.einsum("bqsd,bksd->bsqk", q, k) / q.shape[-1] ** 0.5 + bias, -1)
    t = torch.einsum("bsqk,bkre->bqsre", p, v)
    l = torch.einsum("bqsc,bqsrc->bqsr", selector, t @ wr) / wr.shape[1] ** 0.5
    g = torch.sigmoid(l)
    o = (g[..., None] * t).sum(3)
    return [o.detach(), *torch.autograd.grad(o, (q, k, v, bias, selector, wr), ndt(do))]


add("b79", comp_bug, "compositional", "6 both: sigmoid for softmax", bias="bhqk")
