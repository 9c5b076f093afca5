"""Own NumPy kernels, right and wrong. Each entry of RIGHT / WRONG: name, function, page, settings[, lines]."""
from functools import partial
import numpy as np

LN2, LOG2E = float(np.log(2.0)), float(1 / np.log(2.0))
RIGHT, WRONG = [], []
def right(name, f, page, **s): RIGHT.append((name, f, page, s))
def wrong(name, f, page, lines, what, **s): WRONG.append((name, f, page, lines, what, s))

def up(*xs): return [x if x is None or x.dtype == np.float64 else x.astype(np.float32) for x in xs]
def bf16(x):
    u = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
def fit(x, shape):                               # reduce a (b,h,q,k) gradient to a broadcast shape
    x = x.reshape((1,) * 0 + x.shape)
    for ax in range(x.ndim):
        ish = ((1,) * (x.ndim - len(shape)) + tuple(shape))[ax]
        if ish == 1 and x.shape[ax] != 1: x = x.sum(ax, keepdims=True)
    return x.reshape(shape)
def bc(x, shape): return None if x is None else np.broadcast_to(x, shape)

# ---------------------------------------------------------------- A. FlashAttention style, layout bhtd
def flash(q, k, v, do=None, bias=None, keep=None, dropout=None, *, causal=False, bug="", bq=4, bk=3, mid=None, lse_out=False):
    kind = q.dtype; bshape = None if bias is None else bias.shape
    q, k, v, do = up(q, k, v, do); B, H, T, D = q.shape; S = k.shape[2]; E = v.shape[3]; full = (B, H, T, S)
    rnd = mid or (lambda x: x)
    bias, keep, drop = bc(bias, full), bc(keep, full), bc(dropout, full)
    scale = 1 / D if bug == "scale_d" else D ** -0.5
    shift = 0 if bug == "topleft" else S - T
    o = np.zeros((B, H, T, E), q.dtype); lse = np.zeros((B, H, T, 1), q.dtype)
    def tile(i, j, bwd=False):
        s = q[:, :, i] @ k[:, :, j].swapaxes(2, 3) * scale
        if bug == "clip": s = np.clip(s, -0.5, 0.5)
        if bias is not None: s = s + bias[:, :, i, j]
        if causal and not (bwd and bug == "bwd_nomask"):
            rows, cols = np.arange(T)[i][:, None] + shift, np.arange(S)[j]
            ok = cols < rows if bug == "strict" else cols <= rows
            s = np.where(ok, s, -np.inf).astype(s.dtype)
        if keep is not None: s = np.where(keep[:, :, i, j], s, -np.inf).astype(s.dtype)
        return s
    for i0 in range(0, T, bq):
        i = slice(i0, min(T, i0 + bq)); n = i.stop - i0
        m = np.full((B, H, n, 1), -np.inf, q.dtype); l = np.zeros_like(m); acc = np.zeros((B, H, n, E), q.dtype)
        for j0 in range(0, S // bk * bk if bug == "tail_k" else S, bk):
            j = slice(j0, min(S, j0 + bk))
            if causal and j0 > i.stop - 1 + shift: continue
            s = tile(i, j); mn = np.maximum(m, s.max(-1, keepdims=True)); ms = np.where(np.isinf(mn), 0, mn).astype(q.dtype)
            p = np.exp(s - ms); al = np.exp(m - ms)
            l = (l if bug == "l_rescale" else l * al) + p.sum(-1, keepdims=True)
            pd = p if drop is None else p * drop[:, :, i, j]
            acc = (acc if bug == "acc_rescale" else acc * al) + rnd(pd) @ v[:, :, j]; m = mn
        with np.errstate(divide="ignore", invalid="ignore"):
            o[:, :, i] = np.where(l > 0, acc / l, 0); lse[:, :, i] = np.where(l > 0, ms + np.log(l), np.inf)
    if do is None: return o.astype(kind)
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    db = None if bias is None else np.zeros(full, q.dtype)
    delta = (do * o).sum(-1, keepdims=True)
    dkj = 0
    for j0 in range(0, S, bk):
        j = slice(j0, min(S, j0 + bk))
        if bug != "stale_dk": dkj = 0
        if bug == "stale_dk" and (j0 == 0 or j.stop - j0 != bk): dkj = 0
        for i0 in range(0, T // bq * bq if bug == "tail_q" else T, bq):
            i = slice(i0, min(T, i0 + bq))
            if causal and j0 > i.stop - 1 + shift and bug != "bwd_nomask": continue
            p = np.exp(tile(i, j, True) - lse[:, :, i])
            dp = do[:, :, i] @ v[:, :, j].swapaxes(2, 3)
            d_ = None if drop is None else drop[:, :, i, j]
            pd = p if d_ is None or bug == "dv_nodrop" else p * d_
            if bug == "dv_unnorm": pd = pd * np.exp(lse[:, :, i] - s_max(tile, i, S))
            dv[:, :, j] += rnd(pd).swapaxes(2, 3) @ do[:, :, i]
            if d_ is not None: dp = dp * d_
            ds = p * (dp if bug == "no_delta" else dp - delta[:, :, i])
            if db is not None: db[:, :, i, j] = ds
            dq[:, :, i] += rnd(ds) @ k[:, :, j] * (1 if bug == "dq_noscale" else scale)
            dkj = dkj + rnd(ds).swapaxes(2, 3) @ (q[:, :, i] * scale) * (scale if bug == "dk_scale2" else 1)
        dk[:, :, j] = dkj
    out = [x.astype(kind) for x in (o, dq, dk, dv)]
    if mid: out = [mid(x) for x in out] if kind == np.float32 else out
    if db is not None: out.append((fit(db[:1], bshape) if bug == "dbias_b0" else fit(db, bshape) / (T if bug == "dbias_mean" else 1)).astype(kind))
    if lse_out: return dict(zip(["o", "dq", "dk", "dv", "dbias"], out)) | {"lse": lse[..., 0]}
    return tuple(out)
def s_max(tile, i, S): return tile(i, slice(0, S), True).max(-1, keepdims=True)

right("flash_causal", partial(flash, causal=True), "softmax", layout="bhtd", causal=True)
right("flash_causal_tile1", partial(flash, causal=True, bq=1, bk=1), "softmax", layout="bhtd", causal=True, bias="b1qk")
right("flash_all", partial(flash, bq=5, bk=2), "softmax", layout="bhtd", bias="hqk", keep="bhqk", dropout="bhqk")
right("flash_lse", partial(flash, lse_out=True), "softmax", layout="bhtd", keep="qk")
right("flash_f16", partial(flash, causal=True, mid=lambda x: x.astype(np.float16).astype(np.float32)), "softmax", layout="bhtd", dtype="float16", causal=True)
right("flash_bf16", partial(flash, mid=bf16), "softmax", layout="bhtd", dtype="bfloat16", bias="hqk", dropout="bhqk")
right("flash_bf16_tiles", partial(flash, mid=bf16, causal=True, bq=64, bk=64), "softmax", layout="bhtd", dtype="bfloat16", causal=True, sizes="tiles")
C = dict(layout="bhtd", causal=True)
def wf(bug, lines, what, **s):
    s = s or C; wrong("flash_" + bug, partial(flash, bug=bug, **({"causal": True} if s.get("causal") else {})), "softmax", lines, what, **s)
wf("acc_rescale", "f2 f4", "acc is not rescaled when the max grows")
wf("l_rescale", "f2", "l is not rescaled when the max grows")
wf("scale_d", "f1", "1/d for 1/sqrt(d)")
wf("strict", "f2", "k < q instead of k <= q")
wf("topleft", "f2", "causal counted from the first key")
wf("tail_k", "f2", "last key tile ignored in the forward (the backward sees all keys)")
wf("clip", "f1", "scores clipped at +-0.5, backward does not know", layout="bhtd", bias="bhqk")
wf("bwd_nomask", "b2 b3 b4 again2", "backward recomputes P without the causal mask")
wf("no_delta", "b2", "softmax gradient without the row sum")
wf("dq_noscale", "b1", "dq without 1/sqrt(d)")
wf("dk_scale2", "b1", "dk scaled twice")
wf("stale_dk", "b1", "dk accumulator is not cleared between key tiles")
wf("tail_q", "b4 b3", "last query tile ignored in the backward")
wf("dv_unnorm", "b4 b3", "dv with P not divided by l")
wf("dv_nodrop", "b4 b3", "dv without the dropout", layout="bhtd", dropout="bhqk")
wf("dbias_b0", "b1", "dbias of batch 0 only", layout="bhtd", bias="hqk")
wf("dbias_mean", "b1", "dbias is a mean over queries, not a sum", layout="bhtd", bias="h1k")

# ---------------------------------------------------------------- B. split-k with log-sum-exp merging, bthd, einsum
def splitk(q, k, v, do, keep=None, *, bug="", parts=3):
    d = q.shape[-1]; S = k.shape[1]
    s = np.einsum("bqhd,bkhd->bhqk", q, k, optimize=True) * d ** -0.5
    if keep is not None: s = np.where(keep, s, np.asarray(-1e30, s.dtype))
    cuts = np.array_split(np.arange(S), parts)
    os, ls = [], []
    for c in cuts:
        m = s[..., c].max(-1, keepdims=True); p = np.exp(s[..., c] - m); l = p.sum(-1, keepdims=True)
        os.append(np.einsum("bhqk,bkhe->bhqe", p / l, v[:, c])); ls.append((m + np.log(l))[..., 0])
    L = np.stack(ls); lse = np.logaddexp.reduce(L, axis=0)
    w = np.exp2(L - lse) if bug == "base" else np.full_like(L, 1 / parts) if bug == "mean" else np.exp(L - lse)
    o = np.einsum("nbhq,nbhqe->bqhe", w, np.stack(os))
    p = np.exp(s - lse[..., None])
    dv = np.einsum("bhqk,bqhe->bkhe", p, do); dp = np.einsum("bqhe,bkhe->bhqk", do, v)
    ds = p * (dp - np.einsum("bqhe,bqhe->bhq", do, o)[..., None]) * d ** -0.5
    return [o, np.einsum("bhqk,bkhd->bqhd", ds, k), np.einsum("bhqk,bqhd->bkhd", ds, q), dv]
right("splitk", splitk, "softmax", keep="b11k")
right("splitk7", partial(splitk, parts=7), "softmax")
right("splitk_f64", splitk, "softmax", dtype="float64", keep="b11k")
wrong("splitk_base", partial(splitk, bug="base"), "softmax", "f2 f4", "parts merged with 2**(lse_i - lse), lse being natural", keep="b11k")
wrong("splitk_mean", partial(splitk, bug="mean"), "softmax", "f2 f4", "parts averaged", keep="b11k")

# ---------------------------------------------------------------- C. log2-domain softmax with bias
def log2dom(q, k, v, do, bias=None, *, causal=False, bug=""):
    d = q.shape[-1]; c2 = d ** -0.5 * LOG2E; T, S = q.shape[1], k.shape[1]
    s = np.einsum("bqhd,bkhd->bhqk", q * c2, k)
    if bias is not None: s += bias * (1 if bug == "bias_base" else LOG2E)
    if causal: s[..., np.triu(np.ones((T, S), bool), S - T + 1)] = -1e30
    m = s.max(-1, keepdims=True); s -= m; p = np.exp2(s, out=s); l = p.sum(-1, keepdims=True); p /= l
    lse = ((m + np.log2(l)) * (1 if bug == "lse_log2" else LN2))[..., 0]
    o = np.einsum("bhqk,bkhe->bqhe", p, v)
    dp = np.einsum("bqhe,bkhe->bhqk", do, v)
    dp -= (p * dp).sum(-1, keepdims=True); dp *= p
    if bug == "ds_ln2": dp *= LN2
    r = dict(o=o, dq=np.einsum("bhqk,bkhd->bqhd", dp, k) * d ** -0.5, dk=np.einsum("bhqk,bqhd->bkhd", dp, q * c2) * LN2,
             dv=np.einsum("bhqk,bqhe->bkhe", p, do), lse=lse)
    if bias is not None: r["dbias"] = fit(dp, bias.shape)
    return r
right("log2_bias", partial(log2dom, causal=True), "softmax", bias="hqk", causal=True)
right("log2_bias_b11k", log2dom, "softmax", bias="b11k")
wrong("log2_bias_base", partial(log2dom, bug="bias_base"), "softmax", "f1", "bias added in the log2 domain without log2(e)", bias="bhqk")
wrong("log2_ds_ln2", partial(log2dom, bug="ds_ln2"), "softmax", "b2 b1", "ds multiplied by ln 2 once too often", bias="hqk")
wrong("log2_lse", partial(log2dom, bug="lse_log2"), "softmax", "lse", "lse returned in base 2 (no line; lse alone)", bias="hqk")

# ---------------------------------------------------------------- D. plain with dropout, fused qkv, GQA, in place
def plain_drop(q, k, v, do, dropout=None, keep=None, *, bug=""):
    q, k, v, do = (x.transpose(0, 2, 1, 3) for x in (q, k, v, do)); r = q.shape[-1] ** -0.5
    s = q @ k.swapaxes(2, 3) * r
    if keep is not None: s = np.where(keep, s, -np.inf).astype(s.dtype)
    m = s.max(-1, keepdims=True); m[np.isinf(m)] = 0
    p = np.exp(s - m); l = p.sum(-1, keepdims=True); p = p / np.where(l == 0, 1, l)
    dr = np.ones((), q.dtype) if dropout is None else (dropout > 0).astype(q.dtype) if bug == "noscale" else dropout
    if bug == "before": # dropout before the softmax is normalised
        pd = p * dr; pd = pd / np.maximum(pd.sum(-1, keepdims=True), 1e-20)
    else: pd = p * dr
    o = pd @ v; dc = do @ v.swapaxes(2, 3); dp = dc * dr
    row = (p * dc).sum(-1, keepdims=True) if bug == "delta_nodrop" else (do * o).sum(-1, keepdims=True)
    ds = p * (dp - row) * r
    if bug == "dp_nodrop": ds = p * (dc - row) * r
    return tuple(x.transpose(0, 2, 1, 3) for x in (o, ds @ k, ds.swapaxes(2, 3) @ q, pd.swapaxes(2, 3) @ do))
right("plain_drop", plain_drop, "softmax", dropout="bhqk", keep="bhqk")
right("plain_drop_1", plain_drop, "softmax", dropout="b1qk", keep="b1qk", dtype="float64")
wrong("drop_noscale", partial(plain_drop, bug="noscale"), "softmax", "f3", "dropout without its 1/(1-p), in both passes", dropout="bhqk")
wrong("drop_delta", partial(plain_drop, bug="delta_nodrop"), "softmax", "b2", "row sum of the softmax gradient without dropout", dropout="bhqk")
wrong("drop_dp", partial(plain_drop, bug="dp_nodrop"), "softmax", "b3", "dropout missing in da", dropout="bhqk")

def fused_qkv(q, k, v, do, *, causal=False, bug=""):
    n = q.shape[-1]; x = np.concatenate([q, k, v], -1)                       # (b, t, h, 3d), like a packed projection
    out = np.empty(q.shape, q.dtype); dx = np.zeros_like(x)
    for b in range(x.shape[0]):
        for h in range(x.shape[2]):
            Q, K, V = (x[b, :, h, i * n:(i + 1) * n] for i in range(3)); G = do[b, :, h]
            s = Q @ K.T / np.sqrt(np.float32(n)); s = np.where(np.tri(len(s), dtype=bool), s, -np.inf) if causal else s
            s = s - s.max(1, keepdims=True); p = np.exp(s); p /= p.sum(0 if bug == "axis" else 1, keepdims=True)
            out[b, :, h] = p @ V; dP = G @ V.T
            dS = p * (dP - np.sum(p * dP, 0 if bug in ("axis", "baxis") else 1, keepdims=True)) / np.sqrt(np.float32(n))
            g = (dS @ K, (dS if bug == "dk_T" else dS.T) @ Q, p.T @ G)
            if bug == "slots": g = (g[1], g[0], g[2])
            for i in range(3): dx[b, :, h, i * n:(i + 1) * n] = g[i]
    return (out, *np.split(dx, 3, -1))
SQ = dict(sizes={"q": 6, "k": 6, "d": 4, "e": 4})
right("fused_qkv", partial(fused_qkv, causal=True), "softmax", causal=True, **SQ)
wrong("fused_axis", partial(fused_qkv, bug="axis"), "softmax", "f2", "softmax normalised over queries", **SQ)
wrong("fused_baxis", partial(fused_qkv, bug="baxis"), "softmax", "b2", "row sum of the softmax gradient over queries", **SQ)
wrong("fused_dkT", partial(fused_qkv, causal=True, bug="dk_T"), "softmax", "b1", "dk = ds q, transpose forgotten", causal=True, **SQ)
wrong("fused_slots", partial(fused_qkv, bug="slots"), "softmax", "none b1", "dq and dk packed in each other's slot", **SQ)

def gqa_core(q, k, v, do, bug):                  # q (b,t,H,d), k (b,s,Hk,d): H = Hk * G
    G = q.shape[2] // k.shape[2]; Hk = k.shape[2]
    idx = np.arange(q.shape[2]) % Hk if bug == "map" else np.arange(q.shape[2]) // G
    kk, vv = k[:, :, idx], v[:, :, idx]
    s = np.einsum("bqhd,bkhd->bhqk", q, kk) * q.shape[-1] ** -0.5
    p = np.exp(s - s.max(-1, keepdims=True)); p /= p.sum(-1, keepdims=True)
    o = np.einsum("bhqk,bkhe->bqhe", p, vv); dp = np.einsum("bqhe,bkhe->bhqk", do, vv)
    ds = p * (dp - (do * o).sum(-1).transpose(0, 2, 1)[..., None]) * q.shape[-1] ** -0.5
    dkk, dvv = np.einsum("bhqk,bqhd->bkhd", ds, q), np.einsum("bhqk,bqhe->bkhe", p, do)
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    if bug == "nosum": dk[:, :, idx] = dkk; np.add.at(dv, (slice(None), slice(None), idx), dvv)
    elif bug == "mean": dk, dv = (x.reshape(*x.shape[:2], Hk, G, -1).mean(3) for x in (dkk, dvv))
    else: np.add.at(dk, (slice(None), slice(None), idx), dkk); np.add.at(dv, (slice(None), slice(None), idx), dvv)
    return o, np.einsum("bhqk,bkhd->bqhd", ds, kk), dk, dv
def gqa(q, k, v, do, *, bug=""):                 # the page's queries are (position, group): folded into heads here
    G = 2; b, T, h, d = q.shape
    fold = lambda x: x.reshape(b, T // G, G, h, -1).transpose(0, 1, 3, 2, 4).reshape(b, T // G, h * G, -1)
    back = lambda x: x.reshape(b, T // G, h, G, -1).transpose(0, 1, 3, 2, 4).reshape(b, T, h, -1)
    o, dq, dk, dv = gqa_core(fold(q), k, v, fold(do), bug)
    return back(o), back(dq), dk, dv
right("gqa", gqa, "softmax", sizes={"q": 8})
wrong("gqa_nosum", partial(gqa, bug="nosum"), "softmax", "b1", "dk of the last query head of a group only", sizes={"q": 8})
wrong("gqa_mean", partial(gqa, bug="mean"), "softmax", "b1 b4", "dk and dv are means over the group", sizes={"q": 8})
wrong("gqa_map", partial(gqa, bug="map"), "softmax", "f1", "query head h reads key head h % Hk, not h // G", sizes={"q": 8})

def inplace(q, k, v, do, bias=None, keep=None):  # own buffer for everything, -1e30 mask with a guard
    b, T, h, d = q.shape; S = k.shape[1]; buf = np.empty((b, h, T, S), q.dtype)
    np.matmul(q.transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1), out=buf); buf /= np.asarray(d, q.dtype) ** 0.5
    if bias is not None: buf += bias
    if keep is not None: np.copyto(buf, -1e30, where=~np.broadcast_to(keep, buf.shape))
    buf -= buf.max(-1, keepdims=True); np.exp(buf, out=buf); buf /= buf.sum(-1, keepdims=True)
    if keep is not None: buf *= np.broadcast_to(keep, buf.shape)            # all-masked rows were uniform
    o = (buf @ v.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    dv = np.einsum("bhqk,bqhe->bkhe", buf, do)
    dp = np.einsum("bqhe,bkhe->bhqk", do, v); dp -= np.einsum("bhqk,bhqk->bhq", buf, dp)[..., None]; buf *= dp
    db = None if bias is None else fit(buf, bias.shape)
    buf *= d ** -0.5
    r = (o, np.einsum("bhqk,bkhd->bqhd", buf, k), np.einsum("bhqk,bqhd->bkhd", buf, q), dv)
    return r if db is None else (*r, db)
right("inplace", inplace, "softmax", bias="b1qk", keep="bhqk")
right("inplace_h1k", inplace, "softmax", bias="h1k", keep="b11k")

def padded_heads(q, k, v, do):                   # d and e padded up to 16 with zeros, as tensor cores want
    d, e = q.shape[-1], v.shape[-1]; pad = lambda x: np.pad(x, [(0, 0)] * 3 + [(0, 16 - x.shape[-1])])
    q, k, v, do = map(pad, (q, k, v, do)); r = d ** -0.5
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * r; p = np.exp(s - s.max(-1, keepdims=True)); p /= p.sum(-1, keepdims=True)
    o = np.einsum("bhqk,bkhe->bqhe", p, v); dp = np.einsum("bqhe,bkhe->bhqk", do, v)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * r
    return o[..., :e], np.einsum("bhqk,bkhd->bqhd", ds, k)[..., :d], np.einsum("bhqk,bqhd->bkhd", ds, q)[..., :d], np.einsum("bhqk,bqhe->bkhe", p, do)[..., :e]
right("padded_heads", padded_heads, "softmax")

# ---------------------------------------------------------------- E. linear attention
def chunked(q, k, v, do, *, C=4, bug=""):        # causal, equal lengths, state passing; layout bhtd
    B, H, T, d = q.shape; r = d ** -0.5
    S = np.zeros((B, H, d, v.shape[-1]), q.dtype); o = np.empty(do.shape, q.dtype); states = []
    for t in range(0, T, C):
        qc, kc, vc = (x[:, :, t:t + C] for x in (q, k, v)); states.append(S)
        if bug == "early": S = S + kc.swapaxes(2, 3) @ vc
        a = np.tril(qc @ kc.swapaxes(2, 3)) * r
        o[:, :, t:t + C] = a @ vc + (qc * r) @ S
        if bug != "early": S = S + kc.swapaxes(2, 3) @ vc
    dS = np.zeros_like(S); dq, dk, dv = np.empty_like(q), np.empty_like(k), np.empty_like(v)
    for n in range(len(states) - 1, -1, -1):
        c = slice(n * C, n * C + C); qc, kc, vc, g = q[:, :, c], k[:, :, c], v[:, :, c], do[:, :, c]
        a, da = np.tril(qc @ kc.swapaxes(2, 3)) * r, np.tril(g @ vc.swapaxes(2, 3)) * r
        dq[:, :, c] = da @ kc + g @ states[n].swapaxes(2, 3) * r
        if bug == "nodS": dS = dS * 0
        dk[:, :, c] = da.swapaxes(2, 3) @ qc + vc @ dS.swapaxes(2, 3) * (r if bug == "dk_scale" else 1)
        dv[:, :, c] = a.swapaxes(2, 3) @ g + kc @ dS
        dS = dS + qc.swapaxes(2, 3) @ g * r
    return o, dq, dk, dv
LQ = dict(layout="bhtd", causal=True, sizes={"q": 7, "k": 7})
right("chunked", chunked, "linear", **LQ)
right("chunked_1", partial(chunked, C=1), "linear", **LQ)
wrong("chunked_early", partial(chunked, bug="early"), "linear", "f2 f4", "state updated before it is read: own chunk twice, and later keys", **LQ)
wrong("chunked_dkscale", partial(chunked, bug="dk_scale"), "linear", "b1", "state part of dk scaled twice", **LQ)
wrong("chunked_nodS", partial(chunked, bug="nodS"), "linear", "b4 b2 b3", "state's gradient not handed to earlier chunks (dk and dv see their own chunk only)", **LQ)

def linear_free(q, k, v, do):                    # q (K^T V), no T x T
    r = q.shape[-1] ** -0.5; kv = np.einsum("bkhd,bkhe->bhde", k, v); g = np.einsum("bqhd,bqhe->bhde", q * r, do)
    return (np.einsum("bqhd,bhde->bqhe", q, kv * r), np.einsum("bqhe,bhde->bqhd", do, kv) * r,
            np.einsum("bkhe,bhde->bkhd", v, g), np.einsum("bkhd,bhde->bkhe", k, g))
right("linear_free", linear_free, "linear")
right("linear_free_f64", linear_free, "linear", dtype="float64")

def linear_masked(q, k, v, do, bias=None, keep=None, dropout=None, *, bug=""):
    B, T, H, D = q.shape; S = k.shape[1]; full = (B, H, T, S); r = D ** -0.5
    m = np.ones(full, q.dtype) if keep is None else np.broadcast_to(keep, full).astype(q.dtype)
    dr = np.ones((), q.dtype) if dropout is None else dropout
    o, dq, dk, dv = np.zeros_like(do), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v); dS = np.zeros(full, q.dtype)
    for h in range(H):
        a = np.matmul(q[:, :, h], k[:, :, h].swapaxes(1, 2)) * r
        if bias is not None: a = a + np.broadcast_to(bias, full)[:, h]
        a = a * m[:, h]; c = a * np.broadcast_to(dr, full)[:, h]
        o[:, :, h] = c @ v[:, :, h] / (S if bug == "mean" else 1)
        ds = do[:, :, h] @ v[:, :, (h + 1) % H if bug == "head" else h].swapaxes(1, 2) * np.broadcast_to(dr, full)[:, h]
        if bug != "ds_nomask": ds = ds * m[:, h]
        dS[:, h] = ds
        dq[:, :, h] = ds @ k[:, :, h] * r; dk[:, :, h] = ds.swapaxes(1, 2) @ q[:, :, h] * r; dv[:, :, h] = c.swapaxes(1, 2) @ do[:, :, h]
    return (o, dq, dk, dv) if bias is None else (o, dq, dk, dv, fit(dS, bias.shape))
LA = dict(bias="bhqk", keep="bhqk", dropout="bhqk")
right("linear_masked", linear_masked, "linear", **LA)
right("linear_masked_2", linear_masked, "linear", bias="h1k", keep="qk", dropout="b1qk")
wrong("linear_mean", partial(linear_masked, bug="mean"), "linear", "f4", "output divided by the number of keys, backward not", **LA)
wrong("linear_dsmask", partial(linear_masked, bug="ds_nomask"), "linear", "b2", "keep forgotten in ds", **LA)
wrong("linear_head", partial(linear_masked, bug="head"), "linear", "b4", "dp reads the next head's v", **LA)

def recurrent(q, k, v, state, do, dend, *, bug=""):   # linear_state token by token
    B, T, H, d = q.shape; r = d ** -0.5; S = state.copy(); o = np.empty_like(do); hist = []
    for t in range(T):
        if bug == "after": o[:, t] = np.einsum("bhd,bhde->bhe", q[:, t] * r, S)
        S = S + k[:, t, :, :, None] * v[:, t, :, None]; hist.append(S)
        if bug != "after": o[:, t] = np.einsum("bhd,bhde->bhe", q[:, t] * r, S)
    end = S - state if bug == "end_lost" else S
    dS = np.zeros_like(dend) if bug == "nodend" else dend.copy(); dq, dk, dv = np.empty_like(q), np.empty_like(k), np.empty_like(v)
    for t in reversed(range(T)):
        dS = dS + q[:, t, :, :, None] * r * do[:, t, :, None]
        dq[:, t] = np.einsum("bhe,bhde->bhd", do[:, t], hist[t]) * r
        dk[:, t] = np.einsum("bhe,bhde->bhd", v[:, t], dS); dv[:, t] = np.einsum("bhd,bhde->bhe", k[:, t], dS)
    return o, end, dq, dk, dv, dS
right("recurrent", recurrent, "linear_state")
wrong("recurrent_after", partial(recurrent, bug="after"), "linear_state", "f2", "o is read before the token's own key is added (k < q)")
wrong("recurrent_end", partial(recurrent, bug="end_lost"), "linear_state", "f6", "end lacks the state that came in")
wrong("recurrent_dend", partial(recurrent, bug="nodend"), "linear_state", "b6 b4", "dend ignored: dk, dv and dstate lack it")

# ---------------------------------------------------------------- F. HYLA
def hyla(q, k, v, do, bias=None, keep=None, dropout=None, *, causal=False, bug="", eps=1e-6, tk=3):
    """bthd; tiles over keys; a and z are made again in the backward."""
    kind = q.dtype; bs = None if bias is None else bias.shape
    q, k, v, do = up(q, k, v, do); B, T, H, D = q.shape; S = k.shape[1]; full = (B, H, T, S); r = D ** -0.5
    bias, keep, drop = bc(bias, full), bc(keep, full), bc(dropout, full)
    if causal:
        tri = np.arange(S) <= np.arange(T)[:, None] + S - T; keep = bc(tri, full) if keep is None else keep & tri
    def code(j):
        s = np.einsum("bqhd,bkhd->bhqk", q, k[:, j]) * r
        if bias is not None: s += bias[..., j]
        if keep is not None: s *= keep[..., j]
        ax = 3 if bug == "axis" else 1
        if bug == "eps_out": rho = 1 / (np.sqrt((s * s).mean(1, keepdims=True)) + eps)
        else: rho = 1 / np.sqrt((s * s).sum(1, keepdims=True) + eps) if bug == "sum" else 1 / np.sqrt((s * s).mean(ax, keepdims=True) + eps)
        if bug == "eps0": rho = 1 / np.sqrt(np.maximum((s * s).mean(1, keepdims=True), 1e-30))
        a = s * rho; c = a if drop is None else a * drop[..., j]
        return a, rho, c, (a if bug == "z_nodrop" else c)
    act = (lambda z: z) if bug == "norelu" else (lambda z: np.maximum(z, 0))
    o = np.zeros(do.shape, q.dtype); z0 = 0
    for t in range(0, S, tk):
        j = slice(t, min(S, t + tk)); a, rho, c, c1 = code(j); z = np.einsum("bhqk,bkhe->bqke", c1, v[:, j])
        if bug == "stale_z": z[:, :, 1:] += z[:, :, :-1]               # the register of the previous key is not cleared
        o += np.einsum("bhqk,bqke->bqhe", c, act(z))
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v); dS = np.zeros(full, q.dtype)
    for t in range(0, S, tk):
        j = slice(t, min(S, t + tk)); a, rho, c, c1 = code(j); z = np.einsum("bhqk,bkhe->bqke", c1, v[:, j]); g = act(z)
        dg = np.einsum("bhqk,bqhe->bqke", c, do)
        dz = dg if bug == "norelu" else dg * (dg > 0) if bug == "relu_dg" else dg * (z > 0)
        dc = 0 if bug == "one_use" else np.einsum("bqhe,bqke->bhqk", do, g)
        d5 = np.einsum("bqke,bkhe->bhqk", dz, v[:, j])
        dv[:, j] = np.einsum("bhqk,bqke->bkhe", c1, dg if bug == "dv_dg" else dz)
        da = (dc + d5) if drop is None else dc * drop[..., j] + d5 * (1 if bug == "z_nodrop" else drop[..., j])
        n = 3 if bug == "axis" else 1
        mean = (a * da).sum(n, keepdims=True) if bug == "sum" else (a * da).mean(n, keepdims=True)
        ds = rho * da if bug == "rho_only" else rho * (da - a * mean)
        if bug == "nokeep_b": pass
        elif keep is not None: ds = ds * keep[..., j]
        dS[..., j] = ds
        dq += np.einsum("bhqk,bkhd->bqhd", ds, k[:, j]) * r; dk[:, j] = np.einsum("bhqk,bqhd->bkhd", ds, q) * r
    out = [x.astype(kind) for x in (o, dq, dk, dv)]
    return out if bias is None else out + [fit(dS, bs).astype(kind)]
HA = dict(bias="bhqk", keep="bhqk", dropout="bhqk")
right("hyla_tiles", hyla, "hyla", **HA)
right("hyla_causal", partial(hyla, causal=True), "hyla", causal=True, bias="hqk")
right("hyla_f16", hyla, "hyla", dtype="float16", bias="hqk")
right("hyla_f64", partial(hyla, tk=1), "hyla", dtype="float64", **HA)
def hyla2(q, k, v, do):                          # bhtd, loops over queries, rms gradient in the scores' own terms
    B, H, T, D = q.shape; S = k.shape[2]; r = D ** -0.5
    o, dq, dk, dv = np.zeros_like(do), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for b in range(B):
        for t in range(T):
            s = (k[b] @ (q[b, :, t] * r)[..., None])[..., 0].T                 # (k, h)
            ms = (s ** 2).mean(1, keepdims=True) + np.float32(1e-6); a = s / np.sqrt(ms)
            z = np.einsum("kh,hke->ke", a, v[b]); g = np.where(z > 0, z, 0).astype(z.dtype)
            o[b, :, t] = a.T @ g
            dz = np.where(z > 0, a @ do[b, :, t], 0).astype(z.dtype)
            dv[b] += a.T[..., None] * dz
            da = g @ do[b, :, t].T + np.einsum("ke,hke->kh", dz, v[b])
            ds = da / np.sqrt(ms) - s * (s * da).mean(1, keepdims=True) / ms ** 1.5
            dq[b, :, t] = np.einsum("kh,hkd->hd", ds, k[b]) * r; dk[b] += np.einsum("kh,hd->hkd", ds, q[b, :, t] * r)
    return o, dq, dk, dv
right("hyla_loops", hyla2, "hyla", layout="bhtd")
def wh(bug, lines, what, **s): wrong("hyla_" + bug, partial(hyla, bug=bug, tk=99 if bug == "axis" else 3), "hyla", lines, what, **(s or HA))
wh("axis", "f3", "RMS over keys instead of heads, backward consistent")
wh("eps0", "f3", "epsilon forgotten (keep not used, so that 0/0 does not arise)", bias="bhqk")
wh("eps_out", "f3", "epsilon outside the root", bias="bhqk")
wh("sum", "f3", "sum of squares for mean of squares, backward consistent")
wh("rho_only", "b3", "RMSHead's gradient without the mean term")
wh("one_use", "b7", "dc lacks the outer use of the code")
wh("norelu", "f6", "relu forgotten, both passes")
wh("relu_dg", "b6", "relu's gradient gated by dg > 0, not z > 0")
wh("dv_dg", "b5", "dv from dg, not gated by the relu")
wh("stale_z", "f5", "z of the previous key in the tile leaks in, forward only")
wh("z_nodrop", "f5 f4", "inner use of the code without dropout, backward consistent")
wh("nokeep_b", "b2", "keep forgotten in ds")

# ---------------------------------------------------------------- G. compositional
def comp(q, k, v, selector, wr, do, bias=None, keep=None, dropout=None, *, bug=""):
    """bthd; retrieval keys made first, as the paper has it; loops over searches."""
    B, T, Sn, D = q.shape; R, E = v.shape[2:]; K = k.shape[1]; Cw = selector.shape[-1]; full = (B, Sn, T, K)
    r, rc = D ** -0.5, (D if bug == "scale" else Cw) ** -0.5
    bias_, keep, drop = bc(bias, full), bc(keep, full), bc(dropout, full)
    P, Tt, Kt, L = [], [], [], []
    for s in range(Sn):
        x = q[:, :, s] @ k[:, :, s].swapaxes(1, 2) * r
        if bias is not None: x = x + bias_[:, s]
        if keep is not None: x = np.where(keep[:, s], x, -np.inf).astype(x.dtype)
        m = x.max(-1, keepdims=True); x = np.exp(x - np.where(np.isinf(m), 0, m).astype(x.dtype)); l = x.sum(-1, keepdims=True); p = x / np.where(l == 0, 1, l).astype(x.dtype)
        c = p if drop is None else p * drop[:, s]
        t = np.einsum("bqk,bkre->bqre", c, v); kt = t @ wr; P.append(p); Tt.append(t); Kt.append(kt)
        L.append(np.einsum("bqc,bqrc->bqr", selector[:, :, s], kt) * rc)
    P, Tt, Kt, L = np.stack(P, 1), np.stack(Tt, 2), np.stack(Kt, 2), np.stack(L, 2)      # Tt (b,q,s,r,e)
    ax = 2 if bug == "over_s" else 3
    g = np.exp(L - L.max(ax, keepdims=True)); g /= g.sum(ax, keepdims=True)
    if bug == "swap": o = np.einsum("bqsr,bqsre->bqse", g[:, :, ::-1], Tt)
    else: o = np.einsum("bqsr,bqsre->bqse", g, Tt)
    dg = np.einsum("bqse,bqsre->bqsr", do, Tt)
    dl = g * dg if bug == "g_norow" else g * (dg - (g * dg).sum(ax, keepdims=True))
    dsel = np.einsum("bqsr,bqsrc->bqsc", dl, Kt) * (1 if bug == "dsel" else rc)
    dkt = np.einsum("bqsr,bqsc->bqsrc", dl, selector) * rc
    if bug == "wr_last":                          # dwr overwritten by every query instead of added to
        for i in range(T): dwr = np.einsum("bsre,bsrc->ec", Tt[:, i], dkt[:, i])
    elif bug == "wr_s0": dwr = np.einsum("bqre,bqrc->ec", Tt[:, :, 0], dkt[:, :, 0])
    else: dwr = np.tensordot(Tt, dkt, ([0, 1, 2, 3], [0, 1, 2, 3]))
    dt = dkt @ wr.T
    if bug != "dt_g": dt = dt + g[..., None] * do[:, :, :, None]
    dc = np.einsum("bqsre,bkre->bsqk", dt, v)
    cc = P if drop is None else P * drop
    dv = np.einsum("bsqk,bqsre->bkre", cc, dt) if bug != "dv_dt" else np.einsum("bsqk,bqsr,bqse->bkre", cc, g, do)
    da = dc if drop is None else dc * drop
    ds = P * (da - (P * da).sum(-1, keepdims=True))
    dq, dk = np.einsum("bsqk,bksd->bqsd", ds, k) * r, np.einsum("bsqk,bqsd->bksd", ds, q) * r
    return (o, dq, dk, dv, *(() if bias is None else (fit(ds, bias.shape),)), dsel, dwr)
CA = dict(bias="bhqk", keep="bhqk", dropout="bhqk")
right("comp", comp, "compositional", **CA)
right("comp_plain", comp, "compositional", dtype="float64", bias="hqk")
def wc(bug, lines, what, **s): wrong("comp_" + bug, partial(comp, bug=bug), "compositional", lines, what, **(s or CA))
wc("scale", "f5", "value scores divided by sqrt(d), not sqrt(c), both passes")
wc("over_s", "f6", "value softmax over searches, both passes")
wc("swap", "f7", "output pairs search s with the value scores of search S-1-s, forward only")
wc("g_norow", "b6", "gradient of the value softmax without its row sum")
wc("dsel", "b5", "dselector without 1/sqrt(c)")
wc("wr_last", "b5", "dwr of the last query only")
wc("wr_s0", "b5", "dwr of search 0 only")
wc("dt_g", "b7", "dt without g do")
wc("dv_dt", "b4", "dv lacks the value-score path")

def comp_mlp(q, k, v, selector, wr, wc_, br, w2, b2, do, *, bug=""):   # nonlinear, concatenated input, layout bthd
    r = q.shape[-1] ** -0.5; R = v.shape[2]; E = v.shape[3]
    s = np.einsum("bqsd,bksd->bsqk", q, k) * r; p = np.exp(s - s.max(-1, keepdims=True)); p /= p.sum(-1, keepdims=True)
    t = np.einsum("bsqk,bkre->bqsre", p, v)
    x = np.concatenate([t, np.broadcast_to(selector[:, :, :, None], (*t.shape[:4], selector.shape[-1]))], -1); W = np.concatenate([wr, wc_])
    z = x @ W + (0 if bug == "late_b" else br); y = np.maximum(z, 0) + (br if bug == "late_b" else 0)
    l = y @ w2 + b2; l = l - l.max(-1, keepdims=True); g = np.exp(l); g /= g.sum(-1, keepdims=True)
    o = np.einsum("bqsr,bqsre->bqse", g, t); dg = np.einsum("bqse,bqsre->bqsr", do, t); dl = g * (dg - (g * dg).sum(-1, keepdims=True))
    dy = dl[..., None] * w2; dz = dy * (z > 0); dx = dz @ W.T
    dW = np.einsum("bqsrx,bqsrf->xf", x, dz); dbr = (dy if bug == "late_b" else dz).sum((0, 1, 2, 3))
    dt = dx[..., :E] + g[..., None] * do[:, :, :, None]; dsel = dx[..., E:].sum(3)
    if bug == "dsel_r0": dsel = dx[:, :, :, 0, E:]
    dp = np.einsum("bqsre,bkre->bsqk", dt, v); ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * r
    return (o, np.einsum("bsqk,bksd->bqsd", ds, k), np.einsum("bsqk,bqsd->bksd", ds, q), np.einsum("bsqk,bqsre->bkre", p, dt),
            dsel, dW[:E], dW[E:], dbr, np.einsum("bqsr,bqsrf->f", dl, y), dl.sum().reshape(1))
right("comp_mlp", comp_mlp, "compositional_nonlinear")
wrong("comp_mlp_late", partial(comp_mlp, bug="late_b"), "compositional_nonlinear", "f5", "br added behind the relu, both passes")
wrong("comp_mlp_dsel", partial(comp_mlp, bug="dsel_r0"), "compositional_nonlinear", "b5", "dselector of retrieval 0 only")

# ---------------------------------------------------------------- H. sliding-dilated
def sliding(q, k, v, offset_bias, pad_k=None, pad_v=None, do=None, bias=None, *, bug=""):
    """bthd; gathers. With pads they are put in front of k and v."""
    B, T, H, D = q.shape; S = k.shape[1]; W = offset_bias.shape[1]; r = D ** -0.5; dil = 1 if bug == "dil1" else 2
    n0 = 0
    if pad_k is not None:
        n0 = (W - 1) * 2; k = np.concatenate([np.broadcast_to(pad_k, (B, n0, H, D)), k], 1)
        v = np.concatenate([np.broadcast_to(pad_v * (0 if bug == "pad_v0" else 1), (B, n0, H, pad_v.shape[1])), v], 1)
    pos = np.arange(T)[:, None] + (0 if bug == "first" else S - T) + n0 - dil * (np.arange(W) + (1 if bug == "from1" else 0))   # (q, w)
    ok = pos >= 0; at = np.where(ok, pos, 0)
    ob = offset_bias[:, ::-1] if bug == "rev" else offset_bias
    s = np.einsum("bqhd,bqwhd->bhqw", q, k[:, at]) * r + ob[:, None] * (r if bug == "ob_scale" else 1)
    if bias is not None: s = s + bias
    if bug != "clamp": s = np.where(ok, s, -np.inf).astype(q.dtype)
    m = s.max(-1, keepdims=True); m = np.where(np.isinf(m), 0, m).astype(q.dtype)
    p = np.exp(s - m); l = p.sum(-1, keepdims=True); p = p / np.where(l == 0, 1, l).astype(q.dtype)
    o = np.einsum("bhqw,bqwhe->bqhe", p, v[:, at]); dp = np.einsum("bqhe,bqwhe->bhqw", do, v[:, at])
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    gk = np.einsum("bhqw,bqhd->bqwhd", ds * r, q)
    if bug == "fancy": dk[:, at] += gk
    else: np.add.at(dk, (slice(None), at), gk)
    np.add.at(dv, (slice(None), at), np.einsum("bhqw,bqhe->bqwhe", p, do))
    dob = ds.sum((0, 2)) * (r if bug == "ob_scale" else 1)
    if bug == "rev": dob = dob[:, ::-1]
    if bug == "dob_mean": dob = ds.mean(0).sum(1)
    out = [o, np.einsum("bhqw,bqwhd->bqhd", ds, k[:, at]) * r, dk[:, n0:], dv[:, n0:]] + ([] if bias is None else [fit(ds, bias.shape)]) + [dob]
    if pad_k is not None:
        out += [dk[:, :n0].sum((0, 1)), dv[0 if bug == "dpad_b0" else slice(None), :n0].sum((0) if bug == "dpad_b0" else (0, 1)) * (0 if bug == "pad_v0" else 1)]
    return out
right("sliding", sliding, "sliding_dilated", bias="bhqw")
right("sliding_f64", sliding, "sliding_dilated", dtype="float64")
right("sliding_pad", sliding, "sliding_dilated_pad", bias="hqw")
def sliding_dense(q, k, v, offset_bias, do):     # T x T mask, as the text has it
    B, T, H, D = q.shape; S = k.shape[1]; r = D ** -0.5; dist = (np.arange(T) + S - T)[:, None] - np.arange(S)
    w = dist // 2; ok = (dist >= 0) & (dist % 2 == 0) & (w < offset_bias.shape[1]); w = np.where(ok, w, 0)
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * r + offset_bias[:, w]
    s = np.where(ok, s, np.asarray(-1e30, s.dtype)); p = np.exp(s - s.max(-1, keepdims=True)); p /= p.sum(-1, keepdims=True)
    o = np.einsum("bhqk,bkhe->bqhe", p, v); dp = np.einsum("bqhe,bkhe->bhqk", do, v); ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    dob = np.stack([(ds.sum(0) * (ok & (w == j))).sum((1, 2)) for j in range(offset_bias.shape[1])], 1)
    return o, np.einsum("bhqk,bkhd->bqhd", ds, k) * r, np.einsum("bhqk,bqhd->bkhd", ds, q) * r, np.einsum("bhqk,bqhe->bkhe", p, do), dob
right("sliding_dense", sliding_dense, "sliding_dilated")
def ws(bug, lines, what, page="sliding_dilated", **s): wrong("sliding_" + bug, partial(sliding, bug=bug), page, lines, what, **s)
ws("dil1", "f1", "dilation 1 instead of 2, both passes", bias="bhqw")
ws("from1", "f1", "offsets 1..C instead of 0..C-1 (the own position left out), both passes", bias="bhqw")
ws("first", "f1", "queries placed at the first positions, not the last, both passes")
ws("rev", "f2", "offset bias in reversed order, both passes", bias="bhqw")
ws("ob_scale", "f2", "offset bias divided by sqrt(d) too, both passes", bias="bhqw")
ws("clamp", "f4 f1", "index clamped to 0 where there is no key, nothing masked, both passes", bias="bhqw")
ws("fancy", "b1", "dk[idx] += loses repeated indices", bias="bhqw")
ws("dob_mean", "b2", "doffset_bias is a mean over the batch")
ws("pad_v0", "f6", "pad's value taken as zero, both passes", page="sliding_dilated_pad")
ws("dpad_b0", "b6", "dpad_v of sequence 0 only", page="sliding_dilated_pad")

# ---------------------------------------------------------------- I. ablations
def deep(q, k, v, wv2, do, *, bug=""):
    r = q.shape[-1] ** -0.5; s = np.einsum("bqhd,bkhd->bhqk", q, k) * r; rho = 1 / np.sqrt((s * s).mean(1, keepdims=True) + 1e-6); a = s * rho
    z = np.einsum("bhqk,bkhe->bqke", a, v); g = np.maximum(z, 0); Wg = np.einsum("bhqk,hef->bqkef", a, wv2)     # weights generated first
    z2 = np.einsum("bqke,bqkef->bqkf", g, Wg); g2 = np.maximum(z2, 0); o = np.einsum("bhqk,bqkf->bqhf", a, g2)
    dg2 = np.einsum("bhqk,bqhf->bqkf", a, do); dz2 = dg2 * (z2 > 0); dWg = np.einsum("bqke,bqkf->bqkef", z if bug == "z" else g, dz2)
    dz = np.einsum("bqkf,bqkef->bqke", dz2, Wg) * (z > 0)
    da = np.einsum("bqhf,bqkf->bhqk", do, g2) + np.einsum("bqkef,hef->bhqk", np.einsum("bqke,bqkf->bqkef", g, dz2), wv2) + np.einsum("bqke,bkhe->bhqk", dz, v)
    if bug == "mid": da = da - np.einsum("bqkef,hef->bhqk", dWg, wv2)
    ds = rho * (da - a * (a * da).mean(1, keepdims=True)) * r
    return (o, np.einsum("bhqk,bkhd->bqhd", ds, k), np.einsum("bhqk,bqhd->bkhd", ds, q), np.einsum("bhqk,bqke->bkhe", a, dz), np.einsum("bhqk,bqkef->hef", a, dWg))
right("deep", deep, "hyla_deep")
wrong("deep_z", partial(deep, bug="z"), "hyla_deep", "b6", "dwv2 from z before the relu")
wrong("deep_mid", partial(deep, bug="mid"), "hyla_deep", "b7", "the code's middle use missing in dc")
def linrms(q, k, v, do, bias=None, *, bug=""):
    r = q.shape[-1] ** -0.5; s = np.einsum("bqhd,bkhd->bhqk", q, k) * r + (0 if bias is None else bias)
    rho = ((s * s).mean(1, keepdims=True) + 1e-6) ** -0.5; a = s * rho; o = np.einsum("bhqk,bkhe->bqhe", s if bug == "skip" else a, v)
    da = np.einsum("bqhe,bkhe->bhqk", do, v); ds = rho * (da - a * (a * da).mean(1, keepdims=True))
    if bug == "skip": ds = da
    if bug == "rho_in": ds = da * rho - a * (a * da).mean(1, keepdims=True)
    return (o, np.einsum("bhqk,bkhd->bqhd", ds, k) * r, np.einsum("bhqk,bqhd->bkhd", ds, q) * r, np.einsum("bhqk,bqhe->bkhe", s if bug == "skip" else a, do), *(() if bias is None else (fit(ds, bias.shape),)))
right("linrms", linrms, "linear_rms_head", bias="hqk")
wrong("linrms_skip", partial(linrms, bug="skip"), "linear_rms_head", "f2", "RMSHead forgotten, both passes", bias="bhqk")
wrong("linrms_rho", partial(linrms, bug="rho_in"), "linear_rms_head", "b2", "rho misses the second term of RMSHead's gradient", bias="bhqk")
