"""Second lot, written after the first run, lines again written down before running."""
from functools import partial
import numpy as np
from .kernels import bf16, fit, bc, up, flash, hyla as hyla1
from . import kernels as K1
RIGHT, WRONG = [], []
def right(name, f, page, **s): RIGHT.append((name, f, page, s))
def wrong(name, f, page, lines, what, **s): WRONG.append((name, f, page, lines, what, s))
def tf32(x): return ((np.ascontiguousarray(x, np.float32).view(np.uint32) + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32)
f16 = lambda x: x.astype(np.float16).astype(np.float32)

# --- softmax as FA2 stores things: everything that a real half-precision kernel rounds, is rounded
def fa_half(q, k, v, do, bias=None, dropout=None, *, rnd, causal=False, poly=False):
    kind = q.dtype; q, k, v, do = up(q, k, v, do); r = q.shape[-1] ** -0.5; T, S = q.shape[1], k.shape[1]
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * np.float32(r)
    if bias is not None: s = s + bias.astype(np.float32)
    if causal: s = np.where(np.arange(S) <= np.arange(T)[:, None] + S - T, s, np.float32(-1e30))
    def exp(x):
        if not poly: return np.exp(x)
        y = np.maximum(x * np.float32(1.4426950408889634), np.float32(-126)); n = np.floor(y); f = y - n   # FA4's degree 3 polynomial
        return (((np.float32(0.077119089) * f + np.float32(0.227564394)) * f + np.float32(0.695146143)) * f + np.float32(1)) * np.exp2(n)
    m = s.max(-1, keepdims=True); x = exp(s - m); l = x.sum(-1, keepdims=True)
    dr = np.float32(1) if dropout is None else dropout.astype(np.float32)
    o = rnd(np.einsum("bhqk,bkhe->bqhe", rnd(x * dr), v) / l[..., 0].transpose(0, 2, 1)[..., None])
    lse = m + np.log(l); p = exp(s - lse); delta = np.einsum("bqhe,bqhe->bhq", do, o)[..., None]    # from the stored o
    dp = np.einsum("bqhe,bkhe->bhqk", do, v) * dr; ds = rnd(p * (dp - delta))
    out = [o, rnd(np.einsum("bhqk,bkhd->bqhd", ds, k) * np.float32(r)), rnd(np.einsum("bhqk,bqhd->bkhd", ds, q) * np.float32(r)), rnd(np.einsum("bhqk,bqhe->bkhe", rnd(p * dr), do))]
    if bias is not None: out.append(rnd(fit(ds, bias.shape)))
    return [x.astype(kind) for x in out]
right("fa_bf16_stored_o", partial(fa_half, rnd=bf16), "softmax", dtype="bfloat16", bias="hqk", dropout="bhqk")
right("fa_f16_stored_o", partial(fa_half, rnd=f16, causal=True), "softmax", dtype="float16", causal=True)
right("fa_bf16_stored_o_tiles", partial(fa_half, rnd=bf16, causal=True), "softmax", dtype="bfloat16", causal=True, sizes={"b": 1, "h": 2, "q": 129, "k": 191, "d": 64, "e": 64})
right("fa_f16_stored_o_64", partial(fa_half, rnd=f16), "softmax", dtype="float16", bias="h1k", sizes={"b": 1, "h": 2, "q": 64, "k": 64, "d": 64, "e": 64})
right("fa4_poly_exp_bf16", partial(fa_half, rnd=bf16, poly=True), "softmax", dtype="bfloat16")
right("fa_tf32_as_f16", partial(fa_half, rnd=tf32), "softmax", dtype="bfloat16")

def hyla_half(q, k, v, do, bias=None, *, rnd):        # a, g, dz, dS rounded before they enter a matmul
    kind = q.dtype; q, k, v, do = up(q, k, v, do); r = np.float32(q.shape[-1] ** -0.5)
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * r + (0 if bias is None else bias.astype(np.float32))
    rho = 1 / np.sqrt((s * s).mean(1, keepdims=True) + np.float32(1e-6)); a = s * rho; A = rnd(a)
    z = np.einsum("bhqk,bkhe->bqke", A, v); g = rnd(np.maximum(z, 0)); o = np.einsum("bhqk,bqke->bqhe", A, g)
    dz = rnd(np.einsum("bhqk,bqhe->bqke", A, do) * (z > 0)); da = np.einsum("bqhe,bqke->bhqk", do, g) + np.einsum("bqke,bkhe->bhqk", dz, v)
    ds = rho * (da - a * (a * da).mean(1, keepdims=True)); D = rnd(ds)
    out = [o, np.einsum("bhqk,bkhd->bqhd", D, k) * r, np.einsum("bhqk,bqhd->bkhd", D, q) * r, np.einsum("bhqk,bqke->bkhe", A, dz)] + ([] if bias is None else [fit(ds, bias.shape)])
    return [rnd(x).astype(kind) for x in out]
right("hyla_bf16_mma", partial(hyla_half, rnd=bf16), "hyla", dtype="bfloat16", bias="hqk")
right("hyla_f16_mma", partial(hyla_half, rnd=f16), "hyla", dtype="float16")
right("hyla_bf16_mma_64", partial(hyla_half, rnd=bf16), "hyla", dtype="bfloat16", sizes={"b": 1, "h": 8, "q": 33, "k": 48, "d": 64, "e": 32})

def nomax(q, k, v, do):                                # no max subtracted; sums in reversed order, float64 inside
    q, k, v, do = (x.astype(np.float64) for x in (q, k, v, do)); r = q.shape[-1] ** -0.5
    x = np.exp(np.einsum("bqhd,bkhd->bhqk", q[..., ::-1], k[..., ::-1]) * r); p = x / np.add.reduce(x[..., ::-1], -1, keepdims=True)
    o = np.einsum("bhqk,bkhe->bqhe", p, v); da = np.einsum("bqhe,bkhe->bhqk", do, v); J = p * da - p * (p * da).sum(-1, keepdims=True)
    return [y.astype(np.float32) for y in (o, np.einsum("bhqk,bkhd->bqhd", J, k) * r, np.einsum("bhqk,bqhd->bkhd", J, q) * r, np.einsum("bhqk,bqhe->bkhe", p, do))]
right("nomax", nomax, "softmax")
def jacobian(q, k, v, do):                             # softmax Jacobian written out, head by head, "hbtd" layout
    o, dq, dk, dv = np.zeros_like(do), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v); r = np.float32(q.shape[-1] ** -0.5)
    for h in range(q.shape[0]):
        for b in range(q.shape[1]):
            for i in range(q.shape[2]):
                s = k[h, b] @ q[h, b, i] * r; p = np.exp(s - s.max()); p /= p.sum(); o[h, b, i] = p @ v[h, b]
                g = v[h, b] @ do[h, b, i]; ds = (np.diag(p) - np.outer(p, p)) @ g * r
                dq[h, b, i] = ds @ k[h, b]; dk[h, b] += np.outer(ds, q[h, b, i]); dv[h, b] += np.outer(p, do[h, b, i])
    return {"o": o, "dv": dv, "dk": dk, "dq": dq}
right("jacobian_hbtd", jacobian, "softmax", layout="hbtd")
right("atomics", lambda q, k, v, do: [x * np.float32(1 + 6e-8 * np.random.default_rng().integers(-1, 2)) for x in nomax(q, k, v, do)], "softmax")
right("o_only", lambda q, k, v: nomax(q, k, v, np.zeros((*q.shape[:3], v.shape[3])))[0], "softmax")
right("partial_map", lambda q, k, v, do: dict(zip(("o", "dq"), nomax(q, k, v, do))), "softmax")

# --- softmax, wrong
def flash2(q, k, v, do, bias=None, keep=None, dropout=None, *, causal=False, bug="", C=4):
    """tiles over keys only, bthd; the ends of tiles and what a real launch does there"""
    B, T, H, D = q.shape; S = k.shape[1]; full = (B, H, T, S); r = D ** -0.5; P = -(-S // C) * C
    bias_, keep, drop = bc(bias, full), bc(keep, full), bc(dropout, full)
    def tile(j0):
        idx = np.arange(j0, j0 + C)
        if bug not in ("zeros_in", "clamped"): idx = idx[idx < S]
        ok = idx < S; at = np.minimum(idx, S - 1); kj, vj = k[:, at], v[:, at]
        if bug == "zeros_in": kj, vj = kj * ok[:, None, None], vj * ok[:, None, None]
        s = np.einsum("bqhd,bkhd->bhqk", q, kj) * r
        if bias is not None: s = s + (bias_[:1] if bug == "bias_b0" else -bias_ if bug == "bias_neg" else bias_[:, :, ::-1] if bug == "bias_rev" else bias_)[..., at]
        if causal: s = np.where(at <= np.arange(T)[:, None] + S - T, s, -np.inf).astype(q.dtype)
        if keep is not None: s = np.where((keep.swapaxes(2, 3) if bug == "keep_T" else keep)[..., at], s, -np.inf).astype(q.dtype)
        return s, kj, vj, at, ok
    m = np.full((B, H, T, 1), 0 if bug == "quiet" else -np.inf, q.dtype); l = np.ones_like(m) if bug == "quiet" else np.zeros_like(m); acc = 0; ls = []
    for j0 in range(0, S, C):
        if bug == "skip" and causal and False: continue
        s, kj, vj, at, ok = tile(j0)
        if bug == "skip": # a tile is left out for a query whose last key is in it
            s = np.where((np.arange(T)[:, None] + S - T >= j0 + C) | (j0 == 0), s, -np.inf).astype(q.dtype)
        mn = np.maximum(m, s.max(-1, keepdims=True)); ms = np.where(np.isinf(mn), 0, mn).astype(q.dtype); x = np.exp(s - ms); al = np.exp(m - ms)
        l = l * al + x.sum(-1, keepdims=True)
        d_ = 1 if drop is None else (drop[:, :1] if bug == "drop_h0" else drop)[..., at]
        acc = acc * al.astype(q.dtype) + np.einsum("bhqk,bkhe->bhqe", x * d_, vj); m = mn
    with np.errstate(all="ignore"): o = np.where(l > 0, acc / l, 0); lse = np.where(l > 0, m + np.log(l), np.inf)
    o = o.transpose(0, 2, 1, 3); dq, dk, dv, dS = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v), np.zeros(full, q.dtype)
    delta = np.einsum("bqhe,bqhe->bhq", do, acc.transpose(0, 2, 1, 3) if bug == "delta_acc" else o)[..., None]
    for j0 in range(0, S, C):
        s, kj, vj, at, ok = tile(j0); p = np.exp(s - (m if bug == "p_m" else lse))
        if bug == "skip": p = np.where((np.arange(T)[:, None] + S - T >= j0 + C) | (j0 == 0), p, 0)
        d_ = 1 if drop is None else (np.roll(drop, 1, 2) if bug == "drop_seed" else drop[:, :1] if bug == "drop_h0" else drop)[..., at]
        dp = np.einsum("bqhe,bkhe->bhqk", do, vj) * d_; ds = p * (dp - delta)
        new = np.einsum("bhqk,bkhd->bqhd", ds, kj) * (v.shape[-1] ** -0.5 if bug == "scale_e" else r)
        dq = new if bug == "dq_over" else dq + new
        for n, (c, good) in enumerate(zip(at, ok)):
            if good or bug == "clamped":
                dk[:, c] += np.einsum("bhq,bqhd->bqhd", ds[..., n], q).sum(1) * r; dv[:, c] += np.einsum("bhq,bqhe->bkhe".replace("k", "q"), (p * d_)[..., n], do).sum(1); dS[..., c] += ds[..., n] * (-1 if bug == "bias_neg" else 1)
    if bug == "dk_shift": dk = np.roll(dk, 1, 1)
    if bug == "bias_rev": dS = dS[:, :, ::-1]
    out = [o, dq, dk, dv] + ([] if bias is None else [fit(dS, bias.shape)])
    return [x.astype(q.dtype) for x in out]
right("flash2_all", flash2, "softmax", bias="bhqk", keep="bhqk", dropout="bhqk")
right("flash2_causal", partial(flash2, causal=True, C=2), "softmax", causal=True)
def w2(bug, lines, what, **s): wrong("f2_" + bug, partial(flash2, bug=bug, causal=s.get("causal", False)), "softmax", lines, what, **s)
w2("zeros_in", "f2", "keys of the last tile's padding are zeros and not masked (score 0 counts), both passes")
w2("clamped", "f2 f1", "loads beyond the end are clamped: the last key counts twice, both passes")
w2("quiet", "f2", "l starts at 1, m at 0: softmax with a 1 in the denominator, both passes")
w2("skip", "f2", "the tile on the diagonal is skipped, both passes", causal=True)
w2("bias_b0", "f1", "bias of batch 0 for all (dbias as if right)", bias="bhqk")
w2("bias_neg", "f1", "bias is subtracted, both passes", bias="bhqk")
w2("bias_rev", "f1", "bias rows in reversed order, both passes", bias="bhqk")
w2("keep_T", "f2", "keep is transposed, both passes", keep="bhqk", sizes={"q": 6, "k": 6})
w2("drop_h0", "f3", "dropout mask of head 0 for all heads, both passes", dropout="bhqk")
w2("drop_seed", "b3", "backward draws the dropout of another query row", dropout="bhqk")
w2("delta_acc", "b2", "delta from o before the division by l")
w2("p_m", "b3 b2 again2", "backward's P = exp(s - m), not exp(s - lse)")
w2("scale_e", "b1", "dq scaled by 1/sqrt(e)")
w2("dq_over", "b1", "dq overwritten by every key tile, not added to")
w2("dk_shift", "b1", "dk written one row too far")
_cache = {}
def cached(q, k, v, do):
    r = K1.splitk(q, k, v, do); key = q.shape
    if key not in _cache: _cache[key] = r[3]
    r[3] = _cache[key]; return r
wrong("cached", cached, "softmax", "b4 none", "dv is kept from the first call of a shape")
def inout(q, k, v, do): q *= 0.5; return K1.splitk(q, k, v, do)
wrong("changes_q", inout, "softmax", "none", "scales its input in place (ValueError expected)")
_n = [0]
def racy(q, k, v, do):
    r = K1.splitk(q, k, v, do); _n[0] += 1
    if _n[0] % 2 == 0: r[1][:, -1] = 0
    return r
wrong("racy", racy, "softmax", "none b1", "every second call loses dq's last row")
wrong("forgot_causal", partial(flash, causal=True), "softmax", "none", "right, but causal not said (docs: the diagnosis says so)", layout="bhtd")
wrong("out_hd", lambda q, k, v, do: [x if i else x.swapaxes(1, 2).reshape(x.shape) for i, x in enumerate(K1.splitk(q, k, v, do))], "softmax", "f4", "output written (b,h,t,e) and viewed as (b,t,h,e)")
# the same mistakes in half precision
wrong("half_nodelta", partial(flash, bug="no_delta", causal=True), "softmax", "b2", "no row sum, float16", layout="bhtd", dtype="float16", causal=True)
wrong("half_acc", partial(flash, bug="acc_rescale", causal=True), "softmax", "f2 f4", "acc not rescaled, bfloat16", layout="bhtd", dtype="bfloat16", causal=True)
wrong("half_scale", partial(flash, bug="scale_d"), "softmax", "f1", "1/d, bfloat16", layout="bhtd", dtype="bfloat16")
wrong("half_hyla_rho", partial(hyla1, bug="rho_only"), "hyla", "b3", "RMSHead's gradient without the mean, float16", dtype="float16", bias="bhqk")
wrong("half_hyla_one", partial(hyla1, bug="one_use"), "hyla", "b7 b5", "outer use missing, bfloat16", dtype="bfloat16", bias="bhqk")

# --- HYLA, wrong
def hy(q, k, v, do, bias=None, *, bug=""):             # bhtd, plain
    B, H, T, D = q.shape; r = D ** -0.5; s = q @ k.swapaxes(2, 3) * r + (0 if bias is None else bias)
    n = 8 if bug == "pad8" else H; eps = 1e-5 if bug == "eps5" else 1e-6; rho = 1 / np.sqrt((s * s).sum(1, keepdims=True) / n + eps); a = s * rho
    if bug == "detach_g": pass
    z = np.einsum("bhqk,bhke->bqke", a, v); g = np.minimum(np.maximum(z, 0), 1) if bug == "relu1" else z * (z > 0) if bug != "gelu" else z / (1 + np.exp(-1.702 * z))
    go = g if bug != "perm" else g[:, :, np.r_[1:g.shape[2], 0]]
    o = np.einsum("bhqk,bqke->bhqe", a, go)
    dg = np.einsum("bhqk,bhqe->bqke", a, do); dz = dg * ((z > 0) & (z < 1) if bug == "relu1" else z > 0)
    da = np.einsum("bhqe,bqke->bhqk", do, z if bug == "z_for_g" else g) + (0 if bug == "inner" else np.einsum("bqke,bhke->bhqk", dz, v))
    if bug == "vhead": da = np.einsum("bhqe,bqke->bhqk", do, g) + np.einsum("bqke,bhke->bhqk", dz, v[:, ::-1])
    ds = rho * (da - a * (a * da).sum(1, keepdims=True) / (1 if bug == "rms_sum" else n))
    if bug == "rms_k": ds = rho * (da - a * (a * da).mean(3, keepdims=True))
    if bug == "s_for_a": ds = rho * (da - s * (a * da).mean(1, keepdims=True))
    if bug == "norho": ds = da - a * (a * da).mean(1, keepdims=True)
    return [o, ds @ k * r, ds.swapaxes(2, 3) @ q * r, np.einsum("bhqk,bqke->bhke", np.abs(a) if bug == "absdv" else a, dz)] + ([] if bias is None else [fit(ds, bias.shape)])
right("hy", hy, "hyla", layout="bhtd", bias="bhqk")
def w3(bug, lines, what): wrong("hy_" + bug, partial(hy, bug=bug), "hyla", lines, what, layout="bhtd", bias="bhqk")
w3("pad8", "f3", "mean over 8 padded heads instead of 5, both passes")
w3("eps5", "f3", "epsilon 1e-5, both passes")
w3("relu1", "f6", "relu clipped at 1, both passes")
w3("gelu", "f6", "quick gelu for relu, forward only")
w3("perm", "f7", "g of the next key, forward only")
w3("z_for_g", "b7", "z for relu(z) in dc's outer use")
w3("inner", "b5", "dc lacks the inner use")
w3("vhead", "b5", "v's heads in reversed order in dc")
w3("rms_sum", "b3", "sum for mean in RMSHead's gradient")
w3("rms_k", "b3", "mean over keys in RMSHead's gradient")
w3("s_for_a", "b3", "s for a in RMSHead's gradient")
w3("norho", "b3", "RMSHead's gradient not multiplied by rho")

# --- linear, chunked with more mistakes; compositional; sliding
def lin(q, k, v, do, *, C=3, bug=""):                  # causal, bthd, equal lengths
    B, T, H, d = q.shape; r = d ** -0.5; ev = [slice(t, min(T, t + C)) for t in range(0, T, C)]; Z = np.zeros((B, H, d, v.shape[-1]), q.dtype); S = Z; o = np.zeros_like(do); hist = []
    tri = lambda n: np.tril(np.ones((n, n), q.dtype), -1 if bug == "diag" else 0)
    for c in ev:
        n = c.stop - c.start; a = np.einsum("bqhd,bkhd->bhqk", q[:, c], k[:, c]) * r * tri(n); hist.append(S)
        o[:, c] = np.einsum("bhqk,bkhe->bqhe", a, v[:, c]) + np.einsum("bqhd,bhde->bqhe", q[:, c], S) * (1 if bug == "noscale" else r)
        new = np.einsum("bkhd,bkhe->bhde", k[:, c], v[:, c]); S = new if bug == "reset" else S + new
    dS = Z; dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for c, S in zip(ev[::-1], hist[::-1]):
        n = c.stop - c.start; m = np.tril(np.ones((n, n), q.dtype)); a = np.einsum("bqhd,bkhd->bhqk", q[:, c], k[:, c]) * r * m; da = np.einsum("bqhe,bkhe->bhqk", do[:, c], v[:, c]) * r * (1 if bug == "da_nomask" else m)
        up_ = np.einsum("bqhd,bqhe->bhde", q[:, c], do[:, c]) * r
        if bug == "dS_early": dS = dS + up_
        dq[:, c] = np.einsum("bhqk,bkhd->bqhd", da, k[:, c]) + (0 if bug == "dq_nostate" else np.einsum("bqhe,bhde->bqhd", do[:, c], S) * r)
        dk[:, c] = np.einsum("bhqk,bqhd->bkhd", da, q[:, c]) + np.einsum("bkhe,bhde->bkhd", v[:, c], dS)
        dv[:, c] = np.einsum("bhqk,bqhe->bkhe", a, do[:, c]) + (0 if bug == "dv_nostate" else np.einsum("bkhd,bhde->bkhe", k[:, c], dS))
        if bug != "dS_early": dS = dS + up_
    return o, dq, dk, dv
L = dict(causal=True, sizes={"q": 7, "k": 7})
right("lin3", lin, "linear", **L)
right("lin3_f64", lin, "linear", dtype="float64", **L)
def w4(bug, lines, what): wrong("lin_" + bug, partial(lin, bug=bug), "linear", lines, what, **L)
w4("diag", "f2", "own key left out inside a chunk, forward only")
w4("noscale", "f1 f4", "state part of o without 1/sqrt(d), forward only")
w4("reset", "f2 f4", "state replaced, not added to: only the chunk before, forward only")
w4("da_nomask", "b2", "causal mask inside a chunk forgotten for da")
w4("dS_early", "b4 b2 b3", "dS updated before it is read: own chunk twice in dk and dv")
w4("dq_nostate", "b1 b2 b4", "dq lacks the state's part")
w4("dv_nostate", "b4 b3", "dv lacks the state's part")
def cp(q, k, v, sel, wr, do, keep=None, *, bug=""):    # layout bhtd: q (b,s,q,d), v (b,r,k,e), sel (b,s,q,c)
    r, rc = q.shape[-1] ** -0.5, sel.shape[-1] ** -0.5; s = q @ k.swapaxes(2, 3) * r
    if keep is not None: s = np.where(keep, s, -np.inf).astype(s.dtype)
    m = s.max(-1, keepdims=True); p = np.exp(s - np.where(np.isinf(m), 0, m).astype(s.dtype)); l = p.sum(-1, keepdims=True); p = p / np.where(l == 0, 1, l).astype(s.dtype)
    t = np.einsum("bsqk,brke->bsrqe", p, v); u = np.einsum("bsqc,ec->bsqe", sel, wr) * rc; x = np.einsum("bsqe,bsrqe->bsqr", u, t)
    if bug == "noexpmax": pass
    g = np.exp(x - x.max(-1, keepdims=True)); g = g / g.sum(-1, keepdims=True) if bug != "sigmoid" else 1 / (1 + np.exp(-x))
    o = np.einsum("bsqr,bsrqe->bsqe", g, t); dg = np.einsum("bsqe,bsrqe->bsqr", do, t); dx = g * (1 - g) * dg if bug == "sigmoid" else g * (dg - (g * dg).sum(-1, keepdims=True))
    du = np.einsum("bsqr,bsrqe->bsqe", dx, t) * rc; dt = np.einsum("bsqr,bsqe->bsrqe", dx, u * (rc if bug == "u_scale2" else 1)) + np.einsum("bsqr,bsqe->bsrqe", g if bug != "g_u" else np.ones_like(g) / g.shape[-1], do)
    dp = np.einsum("bsrqe,brke->bsqk", dt, v if bug != "dp_r0" else v * (np.arange(v.shape[1]) == 0)[:, None, None]); dv = np.einsum("bsqk,bsrqe->brke", p[:, :1] if bug == "dv_s0" else p, dt)
    if bug == "dv_lasts": dv = np.einsum("bqk,brqe->brke", p[:, -1], dt[:, -1])
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    if bug == "delta_o": ds = p * (dp - (do * o).sum(-1, keepdims=True))
    return o, ds @ k * r, ds.swapaxes(2, 3) @ q * r, dv, np.einsum("bsqe,ec->bsqc", du, wr), np.einsum("bsqe,bsqc->ec", du, sel)
right("cp", cp, "compositional", layout="bhtd", keep="bhqk")
def w5(bug, lines, what): wrong("cp_" + bug, partial(cp, bug=bug), "compositional", lines, what, layout="bhtd", keep="bhqk")
w5("sigmoid", "f6", "sigmoid for the value softmax, both passes")
w5("u_scale2", "b5", "dt's value-score part scaled twice")
w5("g_u", "b7", "dt's output part with uniform g")
w5("dp_r0", "b4", "dp of retrieval 0 only")
w5("dv_lasts", "b4", "dv of the last search only")
w5("dv_s0", "b4", "dv with search 0's weights for all")
w5("delta_o", "b2", "FlashAttention's delta = sum(do o), which lacks the value scores' path here")
def sd(q, k, v, ob, do, keep=None, *, bug=""):         # shifted slices, W passes
    B, T, H, D = q.shape; S = k.shape[1]; W = ob.shape[1]; r = D ** -0.5; s = np.full((B, H, T, W), -np.inf, q.dtype)
    rng = [(max(0, 2 * w - (S - T)), w) for w in range(W)]           # first query with a key
    key = lambda i0, w, x=0: slice(S - T + i0 - 2 * w + x, S - 2 * w + x)
    for i0, w in rng: s[:, :, i0:, w] = np.einsum("bqhd,bqhd->bhq", q[:, i0:], k[:, key(i0, w)]) * r + ob[None, :, None, w]
    if keep is not None: s = np.where(keep, s, -np.inf).astype(q.dtype)
    m = s.max(-1, keepdims=True); x = np.exp(s - np.where(np.isinf(m), 0, m).astype(q.dtype)); l = x.sum(-1, keepdims=True); p = x / np.where(l == 0, 1, l).astype(q.dtype)
    o = np.zeros_like(do); dp = np.zeros_like(p); dv, dk, dq = np.zeros_like(v), np.zeros_like(k), np.zeros_like(q)
    for i0, w in rng:
        if bug == "o_last" and w == W - 1: continue
        wv = max(w - 1, 0) if bug == "v_off" else w
        jv = max(0, 2 * wv - (S - T)); jv = max(i0, jv)
        o[:, jv:] += np.einsum("bhq,bqhe->bqhe", p[:, :, jv:, w], v[:, key(jv, wv)])
    for i0, w in rng:
        dp[:, :, i0:, w] = np.einsum("bqhe,bqhe->bhq", do[:, i0:], v[:, key(i0, w)])
        t = np.einsum("bhq,bqhe->bqhe", p[:, :, i0:, w], do[:, i0:])
        if bug == "dv_fwd":                          # scatters towards later keys
            ks = S - T + i0 + 2 * w; n = max(0, min(t.shape[1], S - ks)); dv[:, ks:ks + n] += t[:, :n]
        elif bug == "dv_w0" and w: pass
        else: dv[:, key(i0, w)] += t
    ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    if bug == "one_max": ds = p * (dp - (p * dp).sum(2, keepdims=True))
    for i0, w in rng:
        dq[:, i0:] += np.einsum("bhq,bqhd->bqhd", ds[:, :, i0:, w], k[:, key(i0, 0) if bug == "dq_own" else key(i0, w)]) * r; dk[:, key(i0, w)] += np.einsum("bhq,bqhd->bqhd", ds[:, :, i0:, w], q[:, i0:]) * (1 if bug == "dk_ns" else r)
    dob = ds.sum((0, 2)); return o, dq, dk, dv, (p * dp).sum((0, 2)) if bug == "dob_p" else dob
right("sd", sd, "sliding_dilated", keep="bhqw")
right("sd_bf16", sd, "sliding_dilated", dtype="bfloat16")
def w6(bug, lines, what): wrong("sd_" + bug, partial(sd, bug=bug), "sliding_dilated", lines, what, keep="hqw")
w6("o_last", "f6", "last offset left out of o, forward only")
w6("v_off", "f6", "values one offset later than keys, forward only")
w6("dv_fwd", "b6", "dv scattered towards later keys")
w6("dv_w0", "b6", "dv of offset 0 only")
w6("one_max", "b4", "row sum of the softmax gradient over queries")
w6("dq_own", "b1", "dq reads the query's own key at every offset")
w6("dk_ns", "b1", "dk without 1/sqrt(d)")
w6("dob_p", "b2", "doffset_bias = sum(p dp), the row sum forgotten for it alone")
