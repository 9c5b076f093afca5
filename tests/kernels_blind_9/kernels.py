"""Kernels as their author wrote them, but for the layout of the text.

CASES: list of Case(name, subject, settings, kernel, expect, note, subtle).  expect None = right.
expect is a set of symbolic steps, 'F.x' a step of the forward, 'B.x' one of the backward; the step is the quantity made there:
  softmax family: F.s scores (scale, bias), F.a the softmax with its mask, F.drop, F.o;  B.dv, B.dc (d of dropped code),
                  B.drop, B.ds (softmax jacobian), B.dbias, B.dq, B.dk, lse
  linear: F.s, F.mask, F.drop, F.o; B.dv, B.dc, B.drop, B.mask, B.dbias, B.dq, B.dk
  hyla: F.s, F.mask, F.a (RMSHead), F.drop, F.z, F.relu, F.o; B.dr (d relu(z)), B.dc7 (code's gradient by the last use), B.dz (relu),
        B.dv, B.dc (by the first use), B.drop, B.ds0 (RMSHead), B.mask, B.dbias, B.dq, B.dk;  deep: F.y2 (wv2), F.z2, B.dwv2, ...
  compositional: F.s F.a F.drop F.t F.l F.g F.o; B.dg B.dtd (direct) B.dl B.dsel B.dtl (through logits) B.dwr ... B.dv B.dc B.drop B.ds B.dq B.dk
  sliding: F.s F.a F.drop F.o; B.* as softmax, B.doffset, B.dpad_k, B.dpad_v
  layers: F.in F.out B.out B.in and those of the page;  ff: F.in (x w1 + b1) F.act F.out, B.out, B.act, B.in
  CALLS: not a function of its inputs; NOTSEARCHED: a row whose lines are not searched.
"""

import math
from collections import namedtuple
from functools import partial

import numpy as np

Case = namedtuple("Case", "name subject settings kernel expect note subtle")
CASES = []


def right(name, subject, kernel, note="", **settings):
    CASES.append(Case(name, subject, settings, kernel, None, note, False))


def wrong(name, subject, kernel, expect, note, subtle=False, **settings):
    CASES.append(Case(name, subject, settings, kernel, frozenset(expect.split()), note, subtle))


def unb(g, like):
    """Reduce a gradient over the axes that were broadcast."""
    extra = g.ndim - like.ndim
    if extra:
        g = g.sum(axis=tuple(range(extra)))
    axes = tuple(i for i, n in enumerate(like.shape) if n == 1 and g.shape[i] != 1)
    return g.sum(axis=axes, keepdims=True) if axes else g


ALL = dict(bias="bhqk", keep="bhqk", dropout="bhqk")

# ------------------------------------------------------------------------------------------------- softmax, dense einsum


def sm_einsum(q, k, v, do=None, bias=None, keep=None, dropout=None, bug=None):
    d, e = q.shape[-1], v.shape[-1]
    sc = np.asarray(1 / math.sqrt(d), q.dtype)
    if bug == "no_scale":
        sc = np.asarray(1, q.dtype)
    if bug == "scale_twice":
        sc = sc * sc
    if bug == "scale_e":
        sc = np.asarray(1 / math.sqrt(e), q.dtype)
    if bug == "scale_heads":
        sc = np.asarray(1 / math.sqrt(d * q.shape[2]), q.dtype)
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * sc
    if bias is not None:
        if bug == "bias_before_scale":
            s = s + bias * sc
        elif bug == "bias_twice":
            s = s + bias + bias
        elif bug == "bias_sub":
            s = s - bias
        else:
            s = s + bias
    if dropout is not None and bug == "drop_scores":
        s = s * dropout
    hide = None
    if keep is not None:
        kp = keep
        if bug == "keep_inverted":
            kp = ~keep
        hide = np.broadcast_to(~kp, s.shape)
        if bug == "mask_1e9":
            s = np.where(hide, np.asarray(-1e9, s.dtype), s)
        elif bug == "mask_small":
            s = np.where(hide, s - 10, s)
        elif bug == "mask_zero_score":
            s = np.where(hide, 0, s).astype(s.dtype)
        elif bug != "mask_after":
            s = np.where(hide, -np.inf, s).astype(s.dtype)
    ax = 2 if bug == "axis_q" else 1 if bug == "axis_h" else 3
    m = s.max(ax, keepdims=True)
    m = np.where(np.isfinite(m), m, 0).astype(s.dtype)
    p = np.exp(s - m)
    l = p.sum(ax, keepdims=True)
    a = p / np.where(l == 0, 1, l)
    am = a
    if bug == "mask_after" and hide is not None:
        am = np.where(hide, 0, a).astype(a.dtype)
    c = am
    if dropout is not None and bug not in ("drop_scores", "drop_fwd_missing"):
        c = am * dropout
    if bug == "drop_renorm" and dropout is not None:
        n = c.sum(3, keepdims=True)
        c = c / np.where(n == 0, 1, n)
        return np.einsum("bhqk,bkhe->bqhe", c, v)
    o = np.einsum("bhqk,bkhe->bqhe", c, v)
    if bug == "o_reshape":
        return np.einsum("bhqk,bkhe->bhqe", c, v).reshape(o.shape)
    if do is None:
        return o
    dv = np.einsum("bhqk,bqhe->bkhe", a if bug == "dv_undropped" else c, o if bug == "dv_o" else do)
    dc = np.einsum("bqhe,bkhe->bhqk", o if bug == "dc_o" else do, v)
    da = dc
    if dropout is not None and bug not in ("drop_scores", "drop_fwd_missing", "drop_bwd_missing"):
        da = dc * dropout
    if bug == "drop_bwd_binary" and dropout is not None:
        da = dc * (dropout > 0)
    if bug == "drop_bwd_twice" and dropout is not None:
        da = da * dropout
    if bug == "mask_after" and hide is not None:
        da = np.where(hide, 0, da)
    if bug == "no_delta":
        ds = a * da
    elif bug == "delta_mean":
        ds = a * (da - (a * da).mean(ax, keepdims=True))
    elif bug == "delta_q":
        ds = a * (da - (a * da).sum(2, keepdims=True))
    elif bug == "delta_dc":
        ds = a * (da - (a * dc).sum(ax, keepdims=True))
    elif bug == "delta_noa":
        ds = a * (da - da.sum(ax, keepdims=True))
    elif bug == "ds_sign":
        ds = a * ((a * da).sum(ax, keepdims=True) - da)
    elif bug == "ds_c":
        ds = c * (da - (a * da).sum(ax, keepdims=True))
    elif bug == "ds_sigmoid":
        ds = a * (1 - a) * da
    else:
        ds = a * (da - (a * da).sum(ax, keepdims=True))
    if bug in ("mask_zero_score",) and hide is not None:
        ds = np.where(hide, 0, ds)
    if bug == "drop_scores" and dropout is not None:
        ds = ds * dropout
    db = ds
    if bug == "bias_before_scale" or bug == "dbias_scaled":
        db = ds * sc
    if bug == "bias_twice":
        db = ds * 2
    if bug == "bias_sub":
        db = -ds
    if bug == "dbias_da":
        db = a * da
    dq = np.einsum("bhqk,bkhd->bqhd", ds, k)
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q)
    if bug not in ("dq_unscaled", "dqk_unscaled"):
        dq = dq * sc
    if bug not in ("dk_unscaled", "dqk_unscaled"):
        dk = dk * sc
    if bug == "dk_scale_twice":
        dk = dk * sc
    if bug == "dq_dk_swapscale":
        dq = dq * math.sqrt(d)
    if bias is None:
        return o, dq, dk, dv
    if bug == "dbias_mean":
        n = db.size / bias.size
        return o, dq, dk, dv, unb(db, bias) / np.asarray(n, db.dtype)
    if bug == "dbias_batchmean":
        return o, dq, dk, dv, unb(db, bias) / np.asarray(db.shape[0], db.dtype)
    if bug == "dbias_last":
        return o, dq, dk, dv, unb(db[-1:], bias)
    if bug == "dbias_neg":
        return o, dq, dk, dv, -unb(db, bias)
    return o, dq, dk, dv, unb(db, bias)


right("sm_einsum_all_f32", "softmax", sm_einsum, "dense, -inf masks, rows without keys", dtype="float32", **ALL)
right("sm_einsum_none_f64", "softmax", sm_einsum, "no option at all", dtype="float64")
right(
    "sm_einsum_1hqk",
    "softmax",
    sm_einsum,
    "bias and mask reduced over broadcast axes",
    dtype="float64",
    bias="h1k",
    keep="b1qk",
    dropout="hqk",
)
right("sm_einsum_11", "softmax", sm_einsum, "bias b11k", dtype="float32", bias="b11k", keep="k")


def smw(bug, expect, note, subtle=False, **s):
    wrong("sm_" + bug, "softmax", partial(sm_einsum, bug=bug), expect, note, subtle, **s)


smw("no_scale", "F.s", "no 1/sqrt(d), forward and backward consistent", dtype="float32", **ALL)
smw("scale_twice", "F.s", "scale on scores twice, consistent", dtype="float64", bias="hqk")
smw("scale_e", "F.s", "1/sqrt(e) in place of 1/sqrt(d)", True, dtype="float32", **ALL)
smw("scale_heads", "F.s", "1/sqrt(d h): the model's width", True, dtype="float64", keep="b1qk")
smw("bias_before_scale", "F.s", "(q.k + bias)/sqrt(d), consistent", True, dtype="float32", bias="hqk")
smw("bias_twice", "F.s", "bias added twice, consistent", dtype="float64", bias="bhqk", keep="b1qk")
smw("bias_sub", "F.s", "bias subtracted, consistent", dtype="float32", bias="h1k")
smw("drop_scores", "F.drop F.a F.s", "dropout on the scores before the softmax", dtype="float32", **ALL)
smw("keep_inverted", "F.a", "True read as masked", dtype="float32", bias="bhqk", keep="bhqk")
smw("mask_1e9", "F.a", "-1e9 in place of -inf: a row without keys becomes uniform", True, dtype="float32", **ALL)
smw("mask_small", "F.a", "-10 added in place of -inf", True, dtype="float64", keep="b1qk")
smw("mask_zero_score", "F.a", "masked score 0 in place of -inf", dtype="float32", keep="bhqk", bias="bhqk")
smw("mask_after", "F.a", "mask after the softmax, not renormalised, consistent", dtype="float32", **ALL)
smw("axis_q", "F.a", "softmax over queries, consistent", dtype="float32", bias="bhqk")
smw("axis_h", "F.a", "softmax over heads, consistent", dtype="float64", bias="bhqk", dropout="bhqk")
smw("drop_fwd_missing", "F.drop", "dropout forgotten, forward and backward", dtype="float32", **ALL)
smw(
    "drop_renorm",
    "F.drop F.o",
    "dropped weights renormalised, o alone",
    True,
    dtype="float32",
    dropout="bhqk",
    keep="b1qk",
)
smw("o_reshape", "F.o", "(b,h,q,e) reshaped, not transposed, o alone", dtype="float32", bias="bhqk")
smw("dv_undropped", "B.dv", "dv from the weights before dropout", True, dtype="float32", **ALL)
smw("dv_o", "B.dv", "dv from o in place of do", dtype="float64", bias="bhqk")
smw("dc_o", "B.dc", "da from o in place of do", dtype="float32", bias="bhqk", keep="b1qk")
smw("drop_bwd_missing", "B.drop", "backward forgets dropout on da", dtype="float32", **ALL)
smw("drop_bwd_binary", "B.drop", "backward uses the mask without 1/(1-p)", True, dtype="float64", **ALL)
smw("drop_bwd_twice", "B.drop", "dropout twice on da", dtype="float32", bias="bhqk", dropout="b1qk")
smw("no_delta", "B.ds", "delta missing", dtype="float32", **ALL)
smw("delta_mean", "B.ds", "delta as mean over keys", True, dtype="float64", bias="bhqk")
smw("delta_q", "B.ds", "delta summed over queries", dtype="float32", keep="bhqk", bias="bhqk")
smw("delta_dc", "B.ds", "delta from da before dropout", True, dtype="float32", **ALL)
smw("delta_noa", "B.ds", "delta without the weights", dtype="float64")
smw("ds_sign", "B.ds", "sign of the jacobian", dtype="float32", bias="hqk")
smw("ds_c", "B.ds", "dropped weights in front of the jacobian", True, dtype="float64", **ALL)
smw("ds_sigmoid", "B.ds", "a(1-a)da, the diagonal of the jacobian", True, dtype="float32", bias="bhqk", keep="b1qk")
smw("dbias_scaled", "B.dbias", "dbias times 1/sqrt(d)", True, dtype="float32", **ALL)
smw("dbias_da", "B.dbias", "dbias without delta", dtype="float64", bias="bhqk")
smw("dbias_mean", "B.dbias", "mean over stretched axes", True, dtype="float32", bias="h1k", keep="b1qk")
smw(
    "dbias_last",
    "B.dbias",
    "overwritten over batches: last batch alone",
    True,
    dtype="float64",
    bias="hqk",
    dropout="bhqk",
)
smw("dq_unscaled", "B.dq", "dq without 1/sqrt(d)", dtype="float32", **ALL)
smw("dqk_unscaled", "B.dq B.dk", "dq and dk without 1/sqrt(d)", dtype="float64", bias="bhqk")
smw("dk_scale_twice", "B.dk", "dk scaled twice (q was scaled already)", True, dtype="float32", keep="bhqk", bias="bhqk")

# --------------------------------------------------------------------------------- softmax, flash: online, tiles, lse, delta


def sm_flash(q, k, v, do=None, *, bias=None, keep=None, dropout=None, causal=False, T=3, bug=None, with_lse=True):
    """Tiled over keys and queries; (b,h,t,d) inside; lse = log sum exp; recomputes p = exp(s - lse)."""
    dt = np.float32 if q.dtype == np.float16 else q.dtype
    Q, K, V = (np.ascontiguousarray(x.transpose(0, 2, 1, 3)).astype(dt) for x in (q, k, v))
    B, H, N, D = Q.shape
    M, E = K.shape[2], V.shape[3]
    sc = dt.type(D**-0.5) if isinstance(dt, np.dtype) else dt(D**-0.5)
    Qs = Q * sc

    def full(x):
        return None if x is None else np.broadcast_to(x, (B, H, N, M))

    bias_, keep_, drop_ = full(bias), full(keep), full(dropout)

    def scores(i, j, mask=True):
        s = Qs[:, :, i] @ K[:, :, j].swapaxes(-1, -2)
        if bias_ is not None:
            s = s + bias_[:, :, i, j]
        if keep_ is not None and not (bug == "bwd_no_mask" and not mask):
            s = np.where(keep_[:, :, i, j], s, -np.inf)
        if causal and not (bug == "causal_bwd_missing" and not mask):
            qi = np.arange(i.start, min(i.stop, N))[:, None]
            kj = np.arange(j.start, min(j.stop, M))[None, :]
            off = M - N
            if bug == "causal_first":
                off = 0
            if bug == "causal_strict":
                s = np.where(kj < qi + off, s, -np.inf)
            elif bug == "causal_plus1":
                s = np.where(kj <= qi + off + 1, s, -np.inf)
            else:
                s = np.where(kj <= qi + off, s, -np.inf)
        return s.astype(dt)

    ktiles = [slice(j, min(j + T, M)) for j in range(0, M, T)]
    qtiles = [slice(i, min(i + T, N)) for i in range(0, N, T)]
    if bug == "last_tile":
        ktiles = [slice(j * T, j * T + T) for j in range(M // T)]
    O = np.zeros((B, H, N, E), dt)
    L = np.zeros((B, H, N), dt)
    un = np.zeros((B, H, N, E), dt)
    for i in qtiles:
        n = i.stop - i.start
        m = np.full((B, H, n), -np.inf, dt)
        l = np.zeros((B, H, n), dt)
        acc = np.zeros((B, H, n, E), dt)
        for j in ktiles:
            s = scores(i, j)
            new = np.maximum(m, s.max(-1))
            safe = np.where(np.isfinite(new), new, 0)
            al = np.exp(np.where(np.isfinite(m), m - safe, -np.inf))
            p = np.exp(s - safe[..., None])
            l = (l if bug == "l_not_rescaled" else l * al) + p.sum(-1)
            pd = p if drop_ is None else p * drop_[:, :, i, j]
            acc = (acc if bug == "acc_not_rescaled" else acc * al[..., None]) + (pd @ V[:, :, j]).astype(dt)
            if bug == "l_dropped" and drop_ is not None:
                l = l + (pd - p).sum(-1)
            m = new
        un[:, :, i] = acc
        if bug == "no_l":
            O[:, :, i] = acc
        else:
            O[:, :, i] = acc / np.where(l > 0, l, 1)[..., None]
        with np.errstate(divide="ignore"):
            if bug == "lse_no_max":
                L[:, :, i] = np.log(l)
            elif bug == "lse_base2":
                L[:, :, i] = (m + np.log(l)) / math.log(2)
            else:
                L[:, :, i] = m + np.log(l)
    o = O.transpose(0, 2, 1, 3)
    out = {"o": o.astype(q.dtype)}
    if with_lse:
        out["lse"] = L
    if do is None:
        return out
    DO = do.transpose(0, 2, 1, 3).astype(dt)
    if bug in ("lse_no_max", "lse_base2"):
        Lb = None
    Lb = L
    if bug in ("lse_no_max", "lse_base2"):  # the backward has its own, right lse
        Lb = sm_flash(q, k, v, bias=bias, keep=keep, dropout=dropout, causal=causal, T=T)["lse"]
    delta = (DO * (un if bug == "delta_unnormalised" else O)).sum(-1)
    if bug == "delta_head0":
        delta = np.broadcast_to(delta[:, :1], delta.shape)
    dQ, dK, dV = np.zeros_like(Q), np.zeros_like(K), np.zeros_like(V)
    dB = None if bias is None else np.zeros((B, H, N, M), dt)
    for j in ktiles:
        for i in qtiles[:-1] if bug == "dkv_last_q" else qtiles:
            s = scores(i, j, mask=False)
            lse = np.where(np.isfinite(Lb[:, :, i]), Lb[:, :, i], np.inf)[..., None]
            p = np.exp(s - lse)
            pd = p if drop_ is None else p * drop_[:, :, i, j]
            dV[:, :, j] += pd.swapaxes(-1, -2) @ DO[:, :, i]
            dp = DO[:, :, i] @ V[:, :, j].swapaxes(-1, -2)
            if drop_ is not None:
                dp = dp * drop_[:, :, i, j]
            ds = p * (dp - delta[:, :, i, None])
            if bug == "dk_q_scaled_twice":
                dK[:, :, j] += ds.swapaxes(-1, -2) @ Qs[:, :, i] * sc
            else:
                dK[:, :, j] += ds.swapaxes(-1, -2) @ Qs[:, :, i]
    for i in qtiles:
        for j in ktiles:
            s = scores(i, j, mask=bug != "bwd_no_mask")
            lse = np.where(np.isfinite(Lb[:, :, i]), Lb[:, :, i], np.inf)[..., None]
            p = np.exp(s - lse)
            dp = DO[:, :, i] @ V[:, :, j].swapaxes(-1, -2)
            if drop_ is not None:
                dp = dp * drop_[:, :, i, j]
            if bug == "delta_missing_dq":
                ds = p * dp
            else:
                ds = p * (dp - delta[:, :, i, None])
            if bug == "dq_overwritten":
                dQ[:, :, i] = ds @ K[:, :, j] * sc
            else:
                dQ[:, :, i] += ds @ K[:, :, j] * sc
            if dB is not None:
                dB[:, :, i, j] = ds
    out.update(
        dq=dQ.transpose(0, 2, 1, 3).astype(q.dtype),
        dk=dK.transpose(0, 2, 1, 3).astype(q.dtype),
        dv=dV.transpose(0, 2, 1, 3).astype(q.dtype),
    )
    if bias is not None:
        out["dbias"] = unb(dB, bias).astype(q.dtype)
    return out


right("flash_all", "softmax", sm_flash, "online softmax, tiles of 3, delta, lse, mapping", dtype="float32", **ALL)
right(
    "flash_causal",
    "softmax",
    partial(sm_flash, causal=True),
    "masks by itself",
    dtype="float64",
    causal=True,
    bias="hqk",
    dropout="bhqk",
)
right(
    "flash_f16",
    "softmax",
    partial(sm_flash, T=4),
    "half in, float32 inside, half out",
    dtype="float16",
    bias="bhqk",
    keep="b1qk",
)
right(
    "flash_tiles",
    "softmax",
    partial(sm_flash, T=64, causal=True),
    "sizes of tiles",
    dtype="float32",
    causal=True,
    sizes="tiles",
)
right(
    "flash_bf16",
    "softmax",
    partial(sm_flash, T=2),
    "bfloat16 values in float32",
    dtype="bfloat16",
    dropout="bhqk",
    keep="bhqk",
)


def fw(bug, expect, note, subtle=False, **s):
    wrong(
        "flash_" + bug,
        "softmax",
        partial(sm_flash, bug=bug, causal=s.get("causal", False), T=s.pop("T", 3)),
        expect,
        note,
        subtle,
        **s,
    )


fw(
    "last_tile",
    "F.s F.a F.o",
    "last, incomplete key tile dropped, forward and backward",
    True,
    dtype="float32",
    bias="bhqk",
)
fw("acc_not_rescaled", "F.a F.o", "accumulator not rescaled as the maximum grows", True, dtype="float32", bias="bhqk")
fw("l_not_rescaled", "F.a", "denominator not rescaled", True, dtype="float64", bias="bhqk")
fw("l_dropped", "F.drop F.a", "denominator sums dropped weights", True, dtype="float32", dropout="bhqk", bias="bhqk")
fw("no_l", "F.a F.o", "never divided by the sum (o, and delta from it)", dtype="float32", bias="bhqk")
fw("lse_no_max", "lse", "lse without the maximum, the rest right", True, dtype="float32", bias="bhqk")
fw("lse_base2", "lse", "lse in base 2", True, dtype="float64", keep="b1qk")
fw("causal_first", "F.a F.s", "causal counted from the first key", dtype="float32", causal=True, bias="bhqk")
fw("causal_strict", "F.a F.s", "a query does not see its own key", True, dtype="float32", causal=True)
fw("causal_plus1", "F.a F.s", "a query sees one key too many", True, dtype="float64", causal=True, bias="hqk")
fw(
    "causal_bwd_missing",
    "B.dv B.ds",
    "backward recomputes p without the causal mask",
    True,
    dtype="float32",
    causal=True,
    bias="bhqk",
)
fw(
    "bwd_no_mask",
    "B.dv B.ds B.dk",
    "dk dv pass recomputes p without keep",
    True,
    dtype="float32",
    keep="b1qk",
    bias="bhqk",
)
fw("delta_unnormalised", "B.ds", "delta from the unnormalised accumulator", True, dtype="float64", bias="bhqk")
fw("delta_head0", "B.ds", "delta of head 0 for all", dtype="float32", bias="bhqk", keep="bhqk")
fw("delta_missing_dq", "B.ds B.dq", "the dq pass (dq, dbias) forgets delta", dtype="float32", bias="bhqk")
fw("dkv_last_q", "B.dk B.dv", "dk dv pass loses the last query tile", True, dtype="float32", keep="bhqk", T=4)
fw("dk_q_scaled_twice", "B.dk", "scaled q, then scaled again", dtype="float16", bias="bhqk")
fw("dq_overwritten", "B.dq", "dq = in place of += over key tiles", True, dtype="float32", bias="bhqk")


# ---------------------------------------------------------------------- softmax, loops over batch and head, log space, class


def sm_loops(q, k, v, **kw):
    """One (batch, head) at a time, float64 inside, float32 out, list returned."""
    do, bias, keep, drop = (kw.get(n) for n in ("do", "bias", "keep", "dropout"))
    bug = kw.get("bug")
    B, N, H, D = q.shape
    M = k.shape[1]
    def bc(x):
        return None if x is None else np.broadcast_to(x, (B, H, N, M))
    b_, k_, d_ = bc(bias), bc(keep), bc(drop)
    o = np.zeros(q.shape[:3] + (v.shape[-1],))
    dq, dk, dv = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    db = np.zeros((B, H, N, M))
    for b in range(B):
        for h in range(H):
            hk = (h + 1) % H if bug == "v_head" else h
            x, y, z = (t.astype(np.float64) for t in (q[b, :, h], k[b, :, h], v[b, :, hk]))
            s = x.dot(y.T) / np.sqrt(D)
            if b_ is not None:
                s += b_[b, 0 if bug == "bias_head0" else h]
            w = np.exp(s - s.mean(1, keepdims=True))  # mean, not max: sizes are moderate
            if k_ is not None:
                w = w * k_[b, h]
            t = w.sum(1, keepdims=True)
            if bug == "eps_den":
                a = w / (t + 1e-2)
            else:
                a = np.divide(w, t, out=np.zeros_like(w), where=t > 0)
            c = a if d_ is None else a * d_[b, h]
            o[b, :, h] = c @ z
            if do is None:
                continue
            g = do[b, :, h].astype(np.float64)
            dv[b, :, hk] = c.T @ g
            da = g @ z.T
            if d_ is not None:
                da = da * d_[b, h]
            ds = a * da - a * np.sum(a * da, 1)[:, None]
            if bug == "db_first_head":
                db[b, 0] += ds
            else:
                db[b, h] = ds
            dq[b, :, h] = ds @ y / np.sqrt(D)
            dk[b, :, h] = ds.T @ x / np.sqrt(D)
    dt = np.float64 if q.dtype == np.float64 else np.float32
    if do is None:
        return [o.astype(dt)]
    r = [o, dq, dk, dv] + ([] if bias is None else [unb(db, bias)])
    return [t.astype(dt) for t in r]


right(
    "sm_loops_all",
    "softmax",
    sm_loops,
    "loops, float64 inside, **kwargs, mean subtracted, list",
    dtype="float32",
    **ALL,
)
right("sm_loops_keep", "softmax", sm_loops, "mask k only", dtype="float64", keep="b11k", bias="1hqk")
wrong(
    "loops_v_head",
    "softmax",
    partial(sm_loops, bug="v_head"),
    "F.o",
    "v of the next head, consistent",
    dtype="float32",
    bias="bhqk",
)
wrong(
    "loops_bias_head0",
    "softmax",
    partial(sm_loops, bug="bias_head0"),
    "F.s",
    "bias of head 0 for every head, dbias as if right",
    True,
    dtype="float32",
    bias="bhqk",
)
wrong(
    "loops_eps_den",
    "softmax",
    partial(sm_loops, bug="eps_den"),
    "F.a",
    "1e-2 added to the denominator (backward takes a as a softmax)",
    True,
    dtype="float64",
    bias="bhqk",
)


class LogSpace:
    """Forward keeps log a only; the backward recomputes; layout bhtd."""

    def __init__(self, bug=None):
        self.bug = bug
        self.calls = 0

    def __call__(self, q, k, v, do=None, bias=None, keep=None, dropout=None):
        self.calls += 1
        logits = np.matmul(q, np.swapaxes(k, 2, 3)) / q.dtype.type(np.sqrt(q.shape[3]))
        if bias is not None:
            logits += bias
        if keep is not None:
            logits[~np.broadcast_to(keep, logits.shape)] = -np.inf
        with np.errstate(invalid="ignore", divide="ignore"):
            top = np.max(logits, axis=-1, keepdims=True)
            lse = top + np.log(np.exp(logits - top).sum(-1, keepdims=True))
            loga = logits - lse
        loga = np.where(np.isnan(loga), -np.inf, loga)
        w = np.exp(loga)
        if dropout is not None:
            w = w * dropout
        o = w @ v
        if do is None:
            return o
        a = np.exp(loga)
        da = do @ np.swapaxes(v, 2, 3)
        if dropout is not None:
            da *= dropout
        dlog = a * da  # d loga, then through log-softmax
        if self.bug == "logsm":
            ds = dlog - a * dlog.mean(-1, keepdims=True)
        elif self.bug == "logsm_noa":
            ds = dlog - dlog.sum(-1, keepdims=True) / a.shape[-1]
        else:
            ds = dlog - a * dlog.sum(-1, keepdims=True)
        dv = np.swapaxes(w, 2, 3) @ do
        r = q.dtype.type(q.shape[3] ** 0.5)
        dq = ds @ k / r
        dk = np.swapaxes(ds, 2, 3) @ q / r
        if self.bug == "dk_do":
            dv = np.swapaxes(w, 2, 3) @ (do * 0.5)
        res = dict(o=o, dq=dq, dk=dk, dv=dv)
        if bias is not None:
            res["dbias"] = unb(ds, bias)
        return res


right("logspace_bhtd", "softmax", LogSpace(), "class, log space, bhtd, dict", dtype="float32", layout="bhtd", **ALL)
right("logspace_f64", "softmax", LogSpace(), "class, log space, bhtd", dtype="float64", layout="bhtd", keep="qk")
wrong(
    "logspace_jac_mean",
    "softmax",
    LogSpace("logsm"),
    "B.ds",
    "mean in place of sum in the log-softmax's backward",
    True,
    dtype="float32",
    layout="bhtd",
    bias="bhqk",
)
wrong(
    "logspace_jac_noa",
    "softmax",
    LogSpace("logsm_noa"),
    "B.ds",
    "centred gradient in place of the projection",
    True,
    dtype="float64",
    layout="bhtd",
    bias="bhqk",
    keep="b1qk",
)
wrong("logspace_dv_half", "softmax", LogSpace("dk_do"), "B.dv", "dv half", dtype="float32", layout="bhtd")

# one-liners and odd packaging
right(
    "sm_lambda_fwd",
    "softmax",
    lambda q, k, v: (lambda w: np.einsum("bhqk,bkhe->bqhe", w / w.sum(-1, keepdims=True), v))(
        np.exp(np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1]))
    ),
    "lambda, forward only, no max",
    dtype="float64",
)


def sm_backward_only(q, k, v, do):
    """Backward alone, in odd order: dk before dq, from transposed probabilities."""
    qt, kt, vt, dt = (np.moveaxis(x, 2, 1) for x in (q, k, v, do))
    sT = np.matmul(kt, np.moveaxis(qt, -1, -2)) * np.float32(q.shape[-1] ** -0.5)  # (b,h,k,q)
    pT = np.exp(sT - sT.max(axis=(2, 3), keepdims=True))
    pT /= pT.sum(2, keepdims=True)
    gT = np.matmul(vt, np.moveaxis(dt, -1, -2))
    gT -= (pT * gT).sum(2, keepdims=True)
    gT *= pT
    gT *= np.float32(q.shape[-1] ** -0.5)
    dk = gT @ qt
    dq = np.moveaxis(gT, -1, -2) @ kt
    dv = pT @ dt
    return {n: np.moveaxis(x, 1, 2) for n, x in zip(("dk", "dq", "dv"), (dk, dq, dv), strict=False)}


right("sm_backward_only", "softmax", sm_backward_only, "gradients alone, global maximum, in place", dtype="float32")


def sm_1e9(q, k, v, do=None, keep=None):
    s = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(np.float32(q.shape[-1])) + (
        1 - keep.astype(np.float32)
    ) * np.float32(-1e9)
    s -= s.max(-1, keepdims=True)
    np.exp(s, out=s)
    s /= s.sum(-1, keepdims=True)
    o = np.einsum("bhqk,bkhe->bqhe", s, v)
    dv = np.einsum("bhqk,bqhe->bkhe", s, do)
    ds = np.einsum("bqhe,bkhe->bhqk", do, v)
    ds -= np.einsum("bhqk,bhqk->bhq", ds, s)[..., None]
    ds *= s
    ds /= np.sqrt(np.float32(q.shape[-1]))
    return o, np.einsum("bhqk,bkhd->bqhd", ds, k), np.einsum("bhqk,bqhd->bkhd", ds, q), dv


right("sm_1e9", "softmax", sm_1e9, "-1e9 where every query keeps a key, in place", dtype="float32", keep="b11k")

_cache = {}


def sm_cached(q, k, v, do=None, bias=None, key="all"):
    """The forward's weights kept in a global by content."""
    parts = (q, k, bias) if key == "all" else (q, k)
    name = key, tuple((x.shape, x.tobytes()) for x in parts if x is not None)
    if name not in _cache:
        s = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1]).astype(q.dtype)
        if bias is not None:
            s = s + bias
        p = np.exp(s - s.max(-1, keepdims=True))
        _cache[name] = p / p.sum(-1, keepdims=True)
    a = _cache[name]
    o = np.einsum("bhqk,bkhe->bqhe", a, v)
    dv = np.einsum("bhqk,bqhe->bkhe", a, do)
    da = np.einsum("bqhe,bkhe->bhqk", do, v)
    ds = a * (da - np.einsum("bqhe,bqhe->bhq", do, o)[..., None])
    r = q.dtype.type(q.shape[-1] ** 0.5)
    res = o, np.einsum("bhqk,bkhd->bqhd", ds, k) / r, np.einsum("bhqk,bqhd->bkhd", ds, q) / r, dv
    return res if bias is None else (*res, unb(ds, bias))


right("sm_cached", "softmax", sm_cached, "global cache, keyed by all that matters", dtype="float32", bias="hqk")
wrong(
    "sm_stale_shape",
    "softmax",
    None,
    "CALLS",
    "cache of the weights by shape: stale as soon as inputs change",
    dtype="float32",
    bias="hqk",
)


class Stale:
    def __init__(self):
        self.w = {}

    def __call__(self, q, k, v, do=None, bias=None):
        if q.shape not in self.w:
            s = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1]).astype(q.dtype)
            s = s if bias is None else s + bias
            p = np.exp(s - s.max(-1, keepdims=True))
            self.w[q.shape] = p / p.sum(-1, keepdims=True)
        a = self.w[q.shape]
        o = np.einsum("bhqk,bkhe->bqhe", a, v)
        dv = np.einsum("bhqk,bqhe->bkhe", a, do)
        da = np.einsum("bqhe,bkhe->bhqk", do, v)
        ds = a * (da - (a * da).sum(-1, keepdims=True))
        r = q.dtype.type(q.shape[-1] ** 0.5)
        res = o, np.einsum("bhqk,bkhd->bqhd", ds, k) / r, np.einsum("bhqk,bqhd->bkhd", ds, q) / r, dv
        return res if bias is None else (*res, unb(ds, bias))


CASES[-1] = CASES[-1]._replace(kernel=Stale())


class Buffers:
    """Gradient buffers allocated once and never cleared."""

    def __init__(self):
        self.g = {}

    def __call__(self, q, k, v, do=None):
        if q.shape not in self.g:
            self.g[q.shape] = [np.zeros_like(x) for x in (q, k, v)]
        o, dq, dk, dv = sm_einsum(q, k, v, do)
        g = self.g[q.shape]
        g[0][...] = dq
        g[1] += dk
        g[2][...] = dv
        return o, g[0].copy(), g[1].copy(), g[2].copy()


wrong(
    "sm_buffer_not_cleared",
    "softmax",
    Buffers(),
    "CALLS",
    "dk accumulated into a buffer that is never zeroed",
    dtype="float32",
)

# -------------------------------------------------------------------------------------------------------------------- linear


def lin(q, k, v, do=None, bias=None, keep=None, dropout=None, causal=False, bug=None):
    """matmul with transposes, bhtd inside, one scale on q."""
    Q, K, V = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
    r = q.dtype.type(1 / np.sqrt(q.shape[-1]))
    N, M = q.shape[1], k.shape[1]
    s = (Q * r) @ K.transpose(0, 1, 3, 2)
    keep_ = np.ones((1, 1, N, M), bool) if keep is None else keep
    if causal:
        tri = np.arange(M)[None] <= np.arange(N)[:, None] + M - N
        if bug == "causal_off":
            tri = np.arange(M)[None] <= np.arange(N)[:, None] + M - N - 1
        keep_ = keep_ & tri
    if bug == "keep_before_bias":
        s = s * keep_
        s = s if bias is None else s + bias
        a = s
    else:
        s = s if bias is None else s + bias
        a = s * keep_
    if bug == "mean_keys":
        a = a / q.dtype.type(M)
    if bug == "relu_scores":
        a = np.maximum(a, 0)
    if bug == "norm_keys":
        a = a / (np.abs(a).sum(-1, keepdims=True) + q.dtype.type(1e-6))
        c = a if dropout is None else a * dropout
        return (c @ V).transpose(0, 2, 1, 3)
    c = a if dropout is None else a * dropout
    o = c @ V
    if do is None:
        return o.transpose(0, 2, 1, 3)
    G = do.transpose(0, 2, 1, 3)
    if bug == "dv_nodrop":
        dV = a.transpose(0, 1, 3, 2) @ G
    elif bug == "dv_s":
        dV = (s if dropout is None else s * dropout).transpose(0, 1, 3, 2) @ G
    else:
        dV = c.transpose(0, 1, 3, 2) @ G
    da = G @ V.transpose(0, 1, 3, 2)
    if dropout is not None and bug != "drop_bwd":
        da = da * dropout
    ds = da if bug == "keep_bwd" else da * keep_
    if bug == "keep_before_bias":
        db, ds = da, da * keep_
    else:
        db = ds
    if bug == "mean_keys":
        ds = ds / q.dtype.type(M)
        db = ds
    if bug == "relu_scores":
        ds = ds * (a > 0)
        db = ds
    if bug == "dbias_unmasked":
        db = da
    dQ = ds @ K * r
    dK = ds.transpose(0, 1, 3, 2) @ (Q if bug == "dk_unscaled" else Q * r)
    if bug == "dq_neg":
        dQ = -dQ
    def back(x):
        return x.transpose(0, 2, 1, 3)
    res = back(o), back(dQ), back(dK), back(dV)
    if bias is None:
        return res
    if bug == "dbias_qmean":
        return *res, (unb(db, bias) / q.dtype.type(N))
    return *res, unb(db, bias)


right("lin_all", "linear", lin, "matmul with transposes", dtype="float32", **ALL)
right(
    "lin_causal",
    "linear",
    partial(lin, causal=True),
    "tril by hand",
    dtype="float64",
    causal=True,
    bias="h1k",
    keep="b11k",
)
right(
    "lin_assoc",
    "linear",
    lambda q, k, v, do: (
        lambda F, r: (
            np.einsum("bqhd,bhde->bqhe", q, F) * r,
            np.einsum("bqhe,bhde->bqhd", do, F) * r,
            np.einsum("bkhe,bhde->bkhd", v, np.einsum("bqhd,bqhe->bhde", q, do)) * r,
            np.einsum("bkhd,bhde->bkhe", k, np.einsum("bqhd,bqhe->bhde", q, do)) * r,
        )
    )(np.einsum("bkhd,bkhe->bhde", k, v), np.float32(q.shape[-1] ** -0.5)),
    "q (k^T v), other order of sums",
    dtype="float32",
)


def lin_masked_assoc(q, k, v, do=None, keep=None, dropout=None):
    """keep and dropout k-wise, folded into k."""
    w = np.broadcast_to(keep, (q.shape[0], q.shape[2], 1, k.shape[1])).astype(q.dtype) * dropout
    wk = np.moveaxis(w[:, :, 0], 1, 2)[..., None]  # b k h 1
    r = q.dtype.type(q.shape[-1]) ** -0.5
    F = np.einsum("bkhd,bkhe->bhde", k * wk, v)
    G = np.einsum("bqhd,bqhe->bhde", q, do)
    return {
        "o": np.einsum("bqhd,bhde->bqhe", q, F) * r,
        "dv": r * wk * np.einsum("bkhd,bhde->bkhe", k, G),
        "dk": r * wk * np.einsum("bkhe,bhde->bkhd", v, G),
        "dq": r * np.einsum("bqhe,bhde->bqhd", do, F),
    }


right(
    "lin_masked_assoc",
    "linear",
    lin_masked_assoc,
    "mask and dropout folded into the keys",
    dtype="float64",
    keep="b11k",
    dropout="bh1k",
)


def lw(bug, expect, note, subtle=False, **s):
    wrong("lin_" + bug, "linear", partial(lin, bug=bug, causal=s.get("causal", False)), expect, note, subtle, **s)


lw("causal_off", "F.mask", "causal without the diagonal", True, dtype="float32", causal=True, bias="bhqk")
lw(
    "keep_before_bias",
    "F.mask F.s",
    "bias added after the mask: leaks into what is not attended to",
    True,
    dtype="float32",
    **ALL,
)
lw("mean_keys", "F.s F.o F.mask", "divided by the number of keys, consistent", dtype="float64", bias="bhqk")
lw(
    "relu_scores",
    "F.s F.mask F.o",
    "a relu feature on the scores, consistent",
    dtype="float32",
    bias="bhqk",
    keep="b1qk",
)
lw("norm_keys", "F.s F.mask F.o", "normalised over keys by sum |a|, o alone", dtype="float64", bias="bhqk")
lw("dv_nodrop", "B.dv", "dv without dropout", dtype="float32", **ALL)
lw("dv_s", "B.dv", "dv from the scores before the mask", True, dtype="float32", **ALL)
lw("drop_bwd", "B.drop", "da without dropout", True, dtype="float64", **ALL)
lw("keep_bwd", "B.mask", "ds not masked", dtype="float32", **ALL)
lw("dbias_unmasked", "B.dbias", "dbias before the mask, dq dk right", True, dtype="float32", bias="hqk", keep="bhqk")
lw("dk_unscaled", "B.dk", "dk from q, not scaled q", dtype="float32", keep="b1qk")
lw("dq_neg", "B.dq", "sign of dq", dtype="float64")
lw("dbias_qmean", "B.dbias", "mean over queries in place of sum", True, dtype="float32", bias="bh1k", keep="b1qk")

# -------------------------------------------------------------------------------------------------------------- linear_state


def ls_recurrent(q, k, v, state, do=None, dend=None, bug=None):
    """Token by token, state in and out, reverse scan for the gradients."""
    r = q.dtype.type(1 / np.sqrt(q.shape[-1]))
    S = state.copy()
    o = np.zeros(q.shape[:3] + v.shape[-1:], q.dtype)
    kept = []
    T = q.shape[1]
    for t in range(T):
        kv = k[:, t, :, :, None] * v[:, t, :, None, :]
        if bug == "use_before_update":
            kept.append(S.copy())
            o[:, t] = np.einsum("bhd,bhde->bhe", q[:, t], S) * r
            S = S + kv
        else:
            S = S + kv
            kept.append(S.copy())
            o[:, t] = np.einsum("bhd,bhde->bhe", q[:, t], S) * (1 if bug == "o_unscaled" else r)
    end = S
    if bug == "end_scaled":
        end = S * r
    if bug == "end_short":
        end = kept[-2]
    if do is None:
        return o, end
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    R = np.zeros_like(state) if bug == "dend_ignored" else dend.copy()
    for t in reversed(range(T)):
        dq[:, t] = np.einsum("bhe,bhde->bhd", do[:, t], kept[t - 1] if bug == "dq_state_before" and t else kept[t]) * r
        g = q[:, t, :, :, None] * do[:, t, :, None, :]
        if bug == "reverse_late":
            dk[:, t] = np.einsum("bhe,bhde->bhd", v[:, t], R)
            dv[:, t] = np.einsum("bhd,bhde->bhe", k[:, t], R)
            R = R + g * r
        else:
            if bug != "use_before_update":
                R = R + (g if bug == "R_unscaled" else g * r)
            dk[:, t] = np.einsum("bhe,bhde->bhd", v[:, t], R)
            dv[:, t] = np.einsum("bhd,bhde->bhe", k[:, t], R)
            if bug == "use_before_update":
                R = R + g * r
            if bug == "dv_no_end":
                dv[:, t] = np.einsum("bhd,bhde->bhe", k[:, t], R - dend)
    if bug == "dstate_no_dend":
        R = R - dend
    if bug == "dstate_scaled":
        R = R * r
    return o, end, dq, dk, dv, R


def ls_chunk(q, k, v, state, do=None, dend=None, C=4, bug=None):
    """Chunks: masked scores inside, state between."""
    r = q.dtype.type(q.shape[-1] ** -0.5)
    T = q.shape[1]
    S, states, os_ = state, [], []
    cuts = [(i, min(i + C, T)) for i in range(0, T, C)]
    for i, j in cuts:
        states.append(S)
        A = np.tril(np.einsum("bqhd,bkhd->bhqk", q[:, i:j], k[:, i:j]), -1 if bug == "intra_strict" else 0)
        os_.append(r * (np.einsum("bhqk,bkhe->bqhe", A, v[:, i:j]) + np.einsum("bqhd,bhde->bqhe", q[:, i:j], S)))
        S = (np.einsum("bkhd,bkhe->bhde", k[:, i:j], v[:, i:j]) + (0 if bug == "state_reset" else S)).astype(q.dtype)
    o = np.concatenate(os_, 1)
    if do is None:
        return {"o": o, "end": S}
    dS = dend
    dq, dk, dv = np.empty_like(q), np.empty_like(k), np.empty_like(v)
    for (i, j), S0 in zip(cuts[::-1], states[::-1], strict=False):
        Q, K, V, G = q[:, i:j], k[:, i:j], v[:, i:j], do[:, i:j] * r
        lo = -1 if bug == "intra_strict" else 0
        A = np.tril(np.einsum("bqhd,bkhd->bhqk", Q, K), lo)
        dA = np.tril(np.einsum("bqhe,bkhe->bhqk", G, V), lo)
        if bug == "dA_full":
            dA = np.einsum("bqhe,bkhe->bhqk", G, V)
        dq[:, i:j] = np.einsum("bhqk,bkhd->bqhd", dA, K) + (
            0 if bug == "dq_no_state" else np.einsum("bqhe,bhde->bqhd", G, S0)
        )
        dk[:, i:j] = np.einsum("bhqk,bqhd->bkhd", dA, Q) + np.einsum("bkhe,bhde->bkhd", V, dS)
        dv[:, i:j] = np.einsum("bhqk,bqhe->bkhe", A, G) + np.einsum("bkhd,bhde->bkhe", K, dS)
        if bug == "state_reset":
            dS = np.einsum("bqhd,bqhe->bhde", Q, G)
        else:
            dS = dS + np.einsum("bqhd,bqhe->bhde", Q, G)
    return {"o": o, "end": S, "dq": dq, "dk": dk, "dv": dv, "dstate": dS}


right("ls_recurrent", "linear_state", ls_recurrent, "token by token", dtype="float32")
right("ls_chunk", "linear_state", ls_chunk, "chunks of 4, mapping", dtype="float64")
right(
    "ls_chunk_tiles",
    "linear_state",
    partial(ls_chunk, C=16),
    "chunks of 16",
    dtype="float32",
    sizes={"q": 40, "d": 16, "e": 8},
)
for _f, _bug, _e, _n, _s, _d in (
    (
        ls_recurrent,
        "use_before_update",
        "F.o F.s F.mask F.a",
        "state read before this token is added, consistent",
        True,
        "float32",
    ),
    (ls_recurrent, "o_unscaled", "F.o F.s", "o without 1/sqrt(d), gradients as if right", False, "float64"),
    (ls_recurrent, "end_scaled", "F.end", "the state handed on is scaled", False, "float32"),
    (ls_recurrent, "end_short", "F.end", "the state handed on lacks the last token", True, "float32"),
    (ls_recurrent, "dend_ignored", "B.dk B.dv B.dstate", "dend is not used at all", False, "float32"),
    (ls_recurrent, "dq_state_before", "B.dq", "dq from the state before this token", True, "float64"),
    (ls_recurrent, "reverse_late", "B.dk B.dv B.mask", "reverse scan adds this token too late", True, "float32"),
    (ls_recurrent, "dv_no_end", "B.dv", "dv lacks dend's part", True, "float64"),
    (ls_recurrent, "dstate_no_dend", "B.dstate", "dstate lacks dend", True, "float32"),
    (ls_recurrent, "dstate_scaled", "B.dstate", "dstate scaled once more", False, "float64"),
    (
        ls_chunk,
        "intra_strict",
        "F.o F.s F.mask F.a",
        "inside a chunk without the diagonal, consistent",
        True,
        "float32",
    ),
    (ls_chunk, "state_reset", "F.o F.end F.s", "the state is overwritten at each chunk, consistent", True, "float64"),
    (ls_chunk, "dA_full", "B.dq B.dk B.mask B.ds", "gradient of the scores not masked", True, "float32"),
    (ls_chunk, "dq_no_state", "B.dq", "dq lacks the state's part", True, "float32"),
):
    wrong("ls_" + _bug, "linear_state", partial(_f, bug=_bug), _e, _n, _s, dtype=_d)

# ---------------------------------------------------------------------------------------------------------------------- hyla


def rms_bwd(s, a, rho, da, bug=None):
    if bug == "rms_no_proj":
        return rho * da
    if bug == "rms_proj_sum":
        return rho * (da - a * (a * da).sum(1, keepdims=True))
    if bug == "rms_proj_noa":
        return rho * (da - (a * da).mean(1, keepdims=True))
    if bug == "rms_proj_sign":
        return rho * (da + a * (a * da).mean(1, keepdims=True))
    if bug == "rms_no_rho":
        return da - a * (a * da).mean(1, keepdims=True)
    if bug == "rms_proj_s":
        return rho * (da - a * (s * da).mean(1, keepdims=True))
    if bug == "rms_rho2":
        return rho * da - rho * rho * a * (a * da).mean(1, keepdims=True)
    if bug == "rms_axis":
        return rho * (da - a * (a * da).mean(3, keepdims=True))
    return rho * (da - a * (a * da).mean(1, keepdims=True))


def hyla(q, k, v, do=None, bias=None, keep=None, dropout=None, causal=False, bug=None):
    f = q.dtype.type
    s = np.einsum("bqhd,bkhd->bhqk", q, k, optimize=True) / f(np.sqrt(q.shape[-1]))
    if bug == "no_scale":
        s = s * f(np.sqrt(q.shape[-1]))
    if bias is not None:
        s = s + bias
    if keep is not None and bug != "keep_after":
        s = s * keep
    tri = None
    if causal:
        N, M = s.shape[2:]
        tri = np.tril(np.ones((N, M), bool), M - N)
        s = s * tri
    ax = 3 if bug == "rms_over_keys" else 1
    ms = np.mean(s * s, ax, keepdims=True)
    if bug == "rms_sum":
        ms = np.sum(s * s, ax, keepdims=True)
    if bug == "rms_kept":
        n = np.broadcast_to(keep, s.shape).sum(1, keepdims=True)
        ms = np.sum(s * s, 1, keepdims=True) / np.maximum(n, 1).astype(s.dtype)
    eps = {"eps5": 1e-5, "eps8": 1e-8, "eps0": 1e-12}.get(bug, 1e-6)
    if bug == "eps_outside":
        rho = 1 / (np.sqrt(ms) + f(1e-6))
    elif bug == "layer_norm":
        mu = s.mean(1, keepdims=True)
        rho = 1 / np.sqrt(((s - mu) ** 2).mean(1, keepdims=True) + f(1e-6))
        s = s - mu
    elif bug == "abs":
        rho = 1 / (np.abs(s).mean(1, keepdims=True) + f(1e-6))
    else:
        rho = 1 / np.sqrt(ms + f(eps))
    a = s * rho
    a_all = a
    if keep is not None and bug == "keep_after":
        a = a * keep
    c = a if dropout is None or bug == "drop_none" else a * dropout
    c1 = a if bug == "drop_second_only" else c
    c2 = a if bug == "drop_first_only" else c
    z = np.einsum("bhqk,bkhe->bqke", c1, v, optimize=True)
    if bug == "mean_heads":
        z = z / f(v.shape[2])
    y = np.maximum(z, 0)
    if bug == "gelu":
        y = z * f(0.5) * (1 + np.tanh(f(np.sqrt(2 / np.pi)) * (z + f(0.044715) * z**3)))
    if bug == "leaky":
        y = np.where(z > 0, z, f(0.01) * z)
    if bug == "no_relu":
        y = z
    if bug == "relu_values":
        y = np.einsum("bhqk,bkhe->bqke", c, np.maximum(v, 0), optimize=True)
    if bug == "relu2":
        y = y * y
    o = np.einsum("bhqk,bqke->bqhe", c2, y, optimize=True)
    if bug == "relu_out":
        o = np.maximum(np.einsum("bhqk,bqke->bqhe", c2, z), 0)
    if do is None or bug in (
        "layer_norm",
        "abs",
        "gelu",
        "relu_values",
        "relu2",
        "relu_out",
        "drop_second_only",
        "drop_first_only",
        "rms_kept",
        "eps_outside",
    ):
        return o
    dc = np.einsum("bqhe,bqke->bhqk", do, z if bug == "dc_z" else y, optimize=True)
    dy = np.einsum("bhqk,bqhe->bqke", a if bug == "dy_undropped" else c2, do, optimize=True)
    if bug == "dy_mean":
        dy = dy / f(v.shape[2])
    dz = dy * (z > 0)
    if bug == "no_relu_bwd" or bug == "no_relu":
        dz = dy
    if bug == "relu_bwd_dy":
        dz = dy * (dy > 0)
    if bug == "leaky" or bug == "leaky_bwd":
        dz = dy * np.where(z > 0, f(1), f(0.01))
    if bug == "mean_heads":
        dz = dz / f(v.shape[2])
    dv = np.einsum("bhqk,bqke->bkhe", a if bug == "dv_undropped" else c1, dy if bug == "dv_dy" else dz, optimize=True)
    if bug == "detach_second":
        dc = np.einsum("bqke,bkhe->bhqk", dz, v, optimize=True)
    elif bug != "detach_first":
        dc = dc + np.einsum("bqke,bkhe->bhqk", dz, v, optimize=True)
    da = dc if dropout is None or bug in ("drop_bwd", "drop_none") else dc * dropout
    if keep is not None and bug == "keep_after":
        da = da * keep
    if bug == "rms_sum":
        ds = rho * (da - a * (a * da).sum(1, keepdims=True))
    elif bug == "rms_over_keys":
        ds = rho * (da - a * (a * da).mean(3, keepdims=True))
    else:
        ds = rms_bwd(s, a_all, rho, da, bug)
    if keep is not None and bug not in ("keep_bwd", "keep_after"):
        ds = ds * keep
    if tri is not None and bug != "causal_bwd":
        ds = ds * tri
    r = f(1) if bug == "no_scale" else f(1 / np.sqrt(q.shape[-1]))
    dq = np.einsum("bhqk,bkhd->bqhd", ds, k, optimize=True) * r
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q, optimize=True) * r
    if bug == "dk_unscaled":
        dk = dk / r
    if bias is None:
        return o, dq, dk, dv
    return o, dq, dk, dv, unb(ds * r if bug == "dbias_scaled" else ds, bias)


def hyla_loops(q, k, v, do=None, bias=None, keep=None, dropout=None):
    """Query by query, everything of it recomputed; float64 in, out as came; closures."""
    B, N, H, D = q.shape
    M, E = k.shape[1], v.shape[3]
    def g(x):
        return None if x is None else np.broadcast_to(x, (B, H, N, M))
    bi, ke, dr = g(bias), g(keep), g(dropout)
    o, dq, dk, dv = np.zeros((B, N, H, E)), np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    db = np.zeros((B, H, N, M))

    def one(b, i):
        s = (k[b].astype(float) * q[b, i].astype(float)).sum(-1) / D**0.5  # k h
        if bi is not None:
            s = s + bi[b, :, i].T
        if ke is not None:
            s = s * ke[b, :, i].T
        rho = (np.mean(s**2, -1, keepdims=True) + 1e-6) ** -0.5
        m = np.ones_like(s) if dr is None else dr[b, :, i].T.astype(float)
        c = s * rho * m
        z = (c[..., None] * v[b]).sum(1)  # k e
        return s, rho, m, c, z

    for b in range(B):
        for i in range(N):
            s, rho, m, c, z = one(b, i)
            o[b, i] = c.T @ (z * (z > 0))
    if do is None:
        return o.astype(q.dtype)
    for b in range(B):
        for i in range(N):
            s, rho, m, c, z = one(b, i)
            G = do[b, i].astype(float)
            dz = (c @ G) * (z > 0)
            dv[b] += c[..., None] * dz[:, None]
            dc = np.maximum(z, 0) @ G.T + (v[b] * dz[:, None]).sum(-1)
            da = dc * m
            ds = rho * da - rho**3 * s * (s * da).mean(-1, keepdims=True)
            if ke is not None:
                ds = ds * ke[b, :, i].T
            db[b, :, i] = ds.T
            dq[b, i] = (ds[..., None] * k[b]).sum(0) / D**0.5
            dk[b] += ds[..., None] * q[b, i] / D**0.5
    r = [o, dq, dk, dv] + ([] if bias is None else [unb(db, bias)])
    return tuple(x.astype(q.dtype) for x in r)


def hyla_tiled(q, k, v, do=None, bias=None, T=4, bug=None):
    """Keys by tiles: HYLA needs no sum over keys before o."""
    o = np.zeros(q.shape[:3] + v.shape[3:], q.dtype)
    dq, dk, dv, db = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v), None
    if bias is not None:
        db = np.zeros((q.shape[0], q.shape[2], q.shape[1], k.shape[1]), q.dtype)
        bias_ = np.broadcast_to(bias, db.shape)
    starts = range(0, k.shape[1] - (T - 1 if bug == "last_tile" else 0), T)
    for j in starts:
        sl = slice(j, j + T)
        r = hyla(q, k[:, sl], v[:, sl], do, None if bias is None else bias_[..., sl])
        if do is None:
            o += r
            continue
        o += r[0]
        if bug == "dq_last_tile":
            dq = r[1]
        else:
            dq += r[1]
        dk[:, sl], dv[:, sl] = r[2], r[3]
        if bias is not None:
            db[..., sl] = r[4]
    if do is None:
        return o
    return (o, dq, dk, dv) if bias is None else (o, dq, dk, dv, unb(db, bias))


def hyla_f16(q, k, v, do=None, bias=None, keep=None, dropout=None, bug=None):
    def up(x):
        return None if x is None or x.dtype == bool else x.astype(np.float32)
    r = hyla(up(q), up(k), up(v), up(do), up(bias), keep, up(dropout), bug=bug)
    return r.astype(np.float16) if isinstance(r, np.ndarray) else tuple(x.astype(np.float16) for x in r)


right("hyla_all", "hyla", hyla, "einsum", dtype="float32", **ALL)
right("hyla_all64", "hyla", hyla, "einsum", dtype="float64", bias="hqk", keep="b1qk", dropout="b1qk")
right("hyla_causal", "hyla", partial(hyla, causal=True), "causal", dtype="float32", causal=True, bias="h1k")
right("hyla_loops", "hyla", hyla_loops, "query by query, float64 inside, rho cubed", dtype="float32", **ALL)
right("hyla_tiled", "hyla", hyla_tiled, "tiles of keys", dtype="float32", bias="bhqk")
right("hyla_f16", "hyla", hyla_f16, "half in and out", dtype="float16", bias="bhqk", keep="b1qk")


def hw(bug, expect, note, subtle=False, **s):
    wrong("hyla_" + bug, "hyla", partial(hyla, bug=bug, causal=s.get("causal", False)), expect, note, subtle, **s)


hw("no_scale", "F.s", "no 1/sqrt(d), consistent (RMSHead nearly absorbs it without a bias)", True, dtype="float32")
hw(
    "keep_after",
    "F.mask F.a",
    "mask after RMSHead, consistent: differs as heads are masked apart",
    True,
    dtype="float32",
    **ALL,
)
hw("rms_over_keys", "F.a", "RMS over keys, consistent", dtype="float32", bias="bhqk")
hw("rms_sum", "F.a", "sum in place of mean: L2 norm, consistent", dtype="float64", bias="bhqk")
hw("rms_kept", "F.a", "mean over kept heads only, o alone", True, dtype="float32", keep="bhqk", bias="bhqk")
hw("eps5", "F.a", "epsilon 1e-5, consistent", True, dtype="float32", bias="bhqk")
hw("eps8", "F.a", "epsilon 1e-8, consistent", True, dtype="float64")
hw("eps_outside", "F.a", "epsilon outside the root, o alone", True, dtype="float32")
hw("layer_norm", "F.a", "LayerNorm in place of RMS, o alone", dtype="float64", bias="bhqk")
hw("abs", "F.a", "mean |s| in place of RMS, o alone", dtype="float32")
hw("drop_second_only", "F.z F.drop", "first use without dropout, o alone", True, dtype="float32", dropout="bhqk")
hw("drop_first_only", "F.o F.drop", "second use without dropout, o alone", True, dtype="float64", **ALL)
hw("mean_heads", "F.z", "mean over heads in z, consistent", dtype="float32", bias="bhqk")
hw("gelu", "F.relu F.o", "gelu in place of relu, o alone", dtype="float32", bias="bhqk")
hw("leaky", "F.relu F.o", "leaky relu, consistent", True, dtype="float64", bias="bhqk")
hw("no_relu", "F.relu F.o", "no nonlinearity, consistent: another page", dtype="float32", bias="bhqk", keep="b1qk")
hw("relu_values", "F.z F.relu F.o", "relu on v, not on z, o alone", dtype="float64", bias="bhqk")
hw("relu2", "F.relu F.o", "relu squared, o alone", dtype="float32")
hw("relu_out", "F.o", "relu on o, none on z, o alone", dtype="float32", keep="b1qk")
hw("dc_z", "B.dc7", "code's gradient from z, not relu(z)", True, dtype="float32", bias="bhqk")
hw("dy_undropped", "B.dr B.dz", "dz from the code before dropout", True, dtype="float64", **ALL)
hw("dy_mean", "B.dr B.dz", "mean over heads in dz", dtype="float32", bias="bhqk")
hw("no_relu_bwd", "B.dz", "relu's derivative missing", dtype="float32", **ALL)
hw("relu_bwd_dy", "B.dz", "relu's derivative at dy", True, dtype="float32", bias="bhqk")
hw("leaky_bwd", "B.dz", "slope 0.01 below 0 in the backward", True, dtype="float64", bias="bhqk")
hw("dv_undropped", "B.dv", "dv from the code before dropout", True, dtype="float32", **ALL)
hw("dv_dy", "B.dv", "dv from dy before relu's derivative", True, dtype="float32", bias="bhqk", keep="b1qk")
hw("detach_second", "B.dc7 B.dc", "the second use is detached", dtype="float32", bias="bhqk")
hw("detach_first", "B.dc", "the first use is detached", dtype="float64", **ALL)
hw("drop_bwd", "B.drop", "dropout missing on da", True, dtype="float32", **ALL)
hw("rms_no_proj", "B.ds0", "projection missing", dtype="float32", bias="bhqk", keep="b1qk")
hw("rms_proj_sum", "B.ds0", "sum over heads in the projection", dtype="float64", bias="bhqk")
hw("rms_proj_noa", "B.ds0", "projection without a", True, dtype="float32", bias="hqk")
hw("rms_proj_sign", "B.ds0", "sign of the projection", dtype="float32")
hw("rms_no_rho", "B.ds0", "rho missing", dtype="float32", bias="bhqk")
hw("rms_proj_s", "B.ds0", "s in place of a in the projection's mean", True, dtype="float64", bias="bhqk")
hw("rms_rho2", "B.ds0", "one rho too many in the projection", True, dtype="float32", **ALL)
hw("rms_axis", "B.ds0", "projection's mean over keys", dtype="float32", bias="bhqk")
hw("keep_bwd", "B.mask", "ds not masked", True, dtype="float32", **ALL)
hw("causal_bwd", "B.mask", "ds not masked causally", True, dtype="float32", causal=True, bias="bhqk")
hw("dk_unscaled", "B.dk", "dk without 1/sqrt(d)", dtype="float64", keep="b1qk")
hw("dbias_scaled", "B.dbias", "dbias times 1/sqrt(d)", True, dtype="float32", bias="h1k", keep="b1qk")
wrong(
    "hyla_tiled_last",
    "hyla",
    partial(hyla_tiled, bug="last_tile"),
    "F.s F.a F.z F.o",
    "last tile of keys lost, consistent",
    True,
    dtype="float32",
    bias="bhqk",
)
wrong(
    "hyla_tiled_dq",
    "hyla",
    partial(hyla_tiled, bug="dq_last_tile"),
    "B.dq",
    "dq of the last tile only",
    True,
    dtype="float32",
    bias="bhqk",
)
wrong(
    "hyla_f16_no_proj",
    "hyla",
    partial(hyla_f16, bug="rms_no_proj"),
    "B.ds0",
    "projection missing, half precision",
    dtype="float16",
    bias="bhqk",
)
wrong(
    "hyla_f16_dc_z",
    "hyla",
    partial(hyla_f16, bug="dc_z"),
    "B.dc7",
    "z in place of relu(z), half precision",
    True,
    dtype="float16",
    bias="bhqk",
    dropout="bhqk",
)

# ----------------------------------------------------------------------------------------------------------------- ablations


def smax(s, keep, ax=3):
    if keep is not None:
        s = np.where(keep, s, -np.inf)
    m = s.max(ax, keepdims=True)
    p = np.exp(s - np.where(np.isfinite(m), m, 0))
    l = p.sum(ax, keepdims=True)
    return p / np.where(l > 0, l, 1)


def knobs(q, k, v, *extra, do=None, bias=None, keep=None, dropout=None, norm="rms", uses=2, phi="relu", bug=None):
    """norm in none, rms, softmax, softmax_rms, rms_softmax; written once, gradients step by step from a list of steps."""
    f = q.dtype.type
    wv2 = extra[0] if extra else None
    act = (lambda x: np.maximum(x, 0)) if phi == "relu" else (lambda x: x)
    slope = (lambda x: (x > 0).astype(q.dtype)) if phi == "relu" else (lambda x: np.ones_like(x))
    r = f(q.shape[-1] ** -0.5)
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * r
    if bias is not None:
        s = s + bias
    eps = f(1e-6)
    if bug == "eps4":
        eps = f(1e-4)
    tape = []

    def rms_f(x):
        rho = 1 / np.sqrt((x * x).mean(1, keepdims=True) + eps)
        a = x * rho
        tape.append(lambda g: rho * g if bug == "no_proj" else rho * (g - a * (a * g).mean(1, keepdims=True)))
        return a

    def soft_f(x, kp):
        ax = 1 if bug == "softmax_heads" else 3
        a = smax(x, kp, ax)
        tape.append(lambda g: a * g if bug == "no_delta" else a * (g - (a * g).sum(ax, keepdims=True)))
        return a

    def mask_f(x):
        if keep is None:
            return x
        tape.append(lambda g: g if bug == "keep_bwd" else g * keep)
        return x * keep

    if norm == "none":
        a = mask_f(s)
    elif norm == "rms":
        a = rms_f(mask_f(s))
    elif norm == "softmax":
        a = soft_f(s, keep)
    elif norm == "softmax_rms":
        a = rms_f(soft_f(s, keep))
    elif norm == "rms_softmax":
        a = soft_f(rms_f(mask_f(s)), keep)
    c = a if dropout is None else a * dropout
    if uses == 1:
        y = np.broadcast_to(np.moveaxis(act(v), 2, 1)[:, :, None], (*s.shape, v.shape[-1]))  # b h q k e
        if bug == "relu_out":
            return np.maximum(np.einsum("bhqk,bkhe->bqhe", c, v), 0)
        o = np.einsum("bhqk,bkhe->bqhe", c, act(v))
        if do is None:
            return o
        dc = np.einsum("bqhe,bkhe->bhqk", do, v if bug == "dc_v" else act(v))
        dv = np.einsum("bhqk,bqhe->bkhe", c, do) * (1 if bug == "no_slope" else slope(v))
        dw = None
    else:
        z = np.einsum("bhqk,bkhe->bqke", c, v)
        if uses == 2:
            o = np.einsum("bhqk,bqke->bqhe", c, act(z))
            if do is None:
                return o
            dc = np.einsum("bqhe,bqke->bhqk", do, act(z))
            dz = np.einsum("bhqk,bqhe->bqke", c, do) * slope(z)
            dw = None
        else:
            y = act(z)
            w = wv2.transpose(0, 2, 1) if bug == "wv2_T" else wv2
            u = np.einsum("bqke,hef->bqkhf", y, w)
            z2 = np.einsum("bhqk,bqkhf->bqkf", c, u)
            y2 = z2 if bug == "no_second_relu" else act(z2)
            o = np.einsum("bhqk,bqkf->bqhf", c, y2)
            if do is None:
                return o
            dc = np.einsum("bqhf,bqkf->bhqk", do, y2)
            dy2 = np.einsum("bhqk,bqhf->bqkf", c, do)
            dz2 = dy2 if bug in ("no_second_relu", "second_slope") else dy2 * slope(z2)
            if bug != "no_middle":
                dc = dc + np.einsum("bqkf,bqkhf->bhqk", dz2, u)
            yy = z if bug == "dw_z" else y
            dw = np.einsum("bqke,bhqk,bqkf->hef", yy, c, dz2)
            if bug == "dw_last_batch":
                dw = np.einsum("bqke,bhqk,bqkf->hef", yy[-1:], c[-1:], dz2[-1:])
            if bug == "dw_T" or bug == "wv2_T":
                dw = dw.transpose(0, 2, 1)
            dy = np.einsum("bhqk,hef,bqkf->bqke", c, wv2.transpose(0, 2, 1) if bug in ("dy_T", "wv2_T") else wv2, dz2)
            dz = dy * slope(z)
        dv = np.einsum("bhqk,bqke->bkhe", c, dz)
        if bug != "no_first":
            dc = dc + np.einsum("bqke,bkhe->bhqk", dz, v)
    g = dc if dropout is None else dc * dropout
    for back in reversed(tape):
        g = back(g)
    res = {"o": o, "dq": np.einsum("bhqk,bkhd->bqhd", g, k) * r, "dk": np.einsum("bhqk,bqhd->bkhd", g, q) * r, "dv": dv}
    if bias is not None:
        res["dbias"] = unb(g, bias)
    if dw is not None:
        res["dwv2"] = dw
    return res


KN = {
    "linear_rms_head": dict(norm="rms", uses=1, phi="id"),
    "linear_rms_head_relu_values": dict(norm="rms", uses=1),
    "hyla_no_rms_head": dict(norm="none"),
    "hyla_no_nonlinearity": dict(phi="id"),
    "hyla_no_nonlinearity_no_rms_head": dict(norm="none", phi="id"),
    "hyla_softmax_for_rms_head": dict(norm="softmax"),
    "hyla_deep": dict(uses=3),
    "hyla_and_softmax": dict(norm="softmax_rms"),
    "hyla_and_softmax_reversed": dict(norm="rms_softmax"),
}
for _i, (_n, _k) in enumerate(KN.items()):
    _dt = ("float32", "float64")[_i % 2]
    right(
        "knobs_" + _n,
        _n,
        partial(knobs, **_k),
        "closures on a tape",
        dtype=_dt,
        bias="bhqk",
        keep="b1qk",
        dropout="bhqk",
    )


def kw(subject, bug, expect, note, subtle=False, **s):
    args = {**KN[subject], **s.pop("args", {})}
    wrong(subject + "__" + bug, subject, partial(knobs, bug=bug, **args), expect, note, subtle, **s)


kw("hyla_softmax_for_rms_head", "softmax_heads", "F.a", "softmax over heads, consistent", dtype="float32", bias="bhqk")
kw(
    "hyla_softmax_for_rms_head",
    "no_delta",
    "B.ds0",
    "delta missing in the softmax",
    dtype="float64",
    bias="bhqk",
    keep="b1qk",
)
kw(
    "hyla_and_softmax",
    "order",
    "F.a",
    "RMSHead first, softmax last: the other page",
    dtype="float32",
    bias="bhqk",
    args=dict(norm="rms_softmax"),
)
kw("hyla_and_softmax", "eps4", "F.a", "epsilon 1e-4", True, dtype="float32", bias="bhqk")
kw("hyla_and_softmax_reversed", "no_proj", "B.ds0", "RMSHead's projection missing", True, dtype="float32", bias="bhqk")
kw(
    "linear_rms_head_relu_values",
    "relu_out",
    "F.o F.relu",
    "relu on o in place of v, o alone",
    dtype="float32",
    bias="bhqk",
)
kw(
    "linear_rms_head_relu_values",
    "no_slope",
    "B.dv B.dz",
    "relu's derivative missing in dv",
    dtype="float64",
    dropout="bhqk",
    bias="bhqk",
)
kw("linear_rms_head_relu_values", "dc_v", "B.dc", "da from v, not relu(v)", True, dtype="float32", bias="bhqk")
kw("linear_rms_head", "no_proj", "B.ds0", "projection missing", dtype="float32", keep="bhqk", bias="bhqk")
kw("hyla_no_rms_head", "no_first", "B.dc", "first use's part missing", dtype="float32", bias="bhqk", dropout="bhqk")
kw("hyla_no_rms_head", "keep_bwd", "B.mask", "ds not masked", dtype="float32", bias="hqk", keep="b1qk")
kw(
    "hyla_no_nonlinearity",
    "relu",
    "F.relu F.o",
    "a relu that should not be: hyla's page",
    dtype="float64",
    bias="bhqk",
    args=dict(phi="relu"),
)
kw("hyla_deep", "wv2_T", "F.u F.z2", "wv2 transposed, consistent", True, dtype="float32", bias="bhqk")
kw("hyla_deep", "dw_T", "B.dwv2", "dwv2 transposed", True, dtype="float64", bias="bhqk")
kw("hyla_deep", "no_second_relu", "F.relu2 F.o", "second relu missing, consistent", dtype="float32", bias="bhqk")
kw("hyla_deep", "second_slope", "B.dz2", "second relu's derivative missing", dtype="float32", bias="bhqk", keep="b1qk")
kw("hyla_deep", "no_middle", "B.dc2", "the middle use is detached", True, dtype="float32", bias="bhqk", dropout="bhqk")
kw("hyla_deep", "dw_z", "B.dwv2", "dwv2 from z, not relu(z)", True, dtype="float32", bias="bhqk")
kw("hyla_deep", "dw_last_batch", "B.dwv2", "dwv2 of the last batch only", True, dtype="float32")
kw("hyla_deep", "dy_T", "B.dy", "gradient through wv2 with wv2 not transposed", True, dtype="float64", bias="bhqk")

# ------------------------------------------------------------------------------------------------------------- compositional


def comp(q, k, v, sel, *score, do=None, bias=None, keep=None, dropout=None, kind="dot", bug=None):
    f = q.dtype.type
    r = f(q.shape[-1] ** -0.5)
    s = np.einsum("bqsd,bksd->bsqk", q, k) * r
    if bias is not None:
        s = s + bias
    a = smax(s, keep).astype(q.dtype)
    ca = a if dropout is None or bug == "drop_g" else a * dropout
    t = np.einsum("bsqk,bkre->bqsre", ca, v)
    if kind == "dot":
        (wr,) = score
        kk = t @ wr
        rc = f((t.shape[-1] if bug == "scale_e" else sel.shape[-1]) ** -0.5)
        if bug == "no_scale_c":
            rc = f(1)
        l = np.einsum("bqsc,bqsrc->bqsr", sel, kk) * rc
    elif kind == "linear":
        wr, wc, br = score
        l = t @ wr + (sel @ wc)[..., None] + br
    else:
        wr, wc, br, w2, b2 = score
        z = t @ wr + (sel @ wc)[..., None, :] + br
        y = np.tanh(z) if bug == "tanh" else np.maximum(z, 0)
        if bug == "no_br":
            z = t @ wr + (sel @ wc)[..., None, :]
            y = np.maximum(z, 0)
        l = y @ w2 + b2
    gax = 2 if bug == "g_axis" else 3
    g = np.exp(l - l.max(gax, keepdims=True))
    g = g / g.sum(gax, keepdims=True)
    if bug == "g_argmax":
        g = (l == l.max(3, keepdims=True)).astype(q.dtype)
    if bug == "g_uniform":
        g = np.full_like(g, 1 / g.shape[3])
    o = np.einsum("bqsr,bqsre->bqse", g, t)
    if bug == "o_mean":
        o = o / f(v.shape[2])
    if do is None or bug in ("tanh", "g_argmax", "g_uniform", "drop_g", "o_mean"):
        return o
    dg = np.einsum("bqse,bqsre->bqsr", do, t)
    dt = np.einsum("bqsr,bqse->bqsre", g, do)
    if bug == "no_direct":
        dt = np.zeros_like(dt)
    dl = g * (dg - (g * dg).sum(gax, keepdims=True))
    if bug == "g_no_delta":
        dl = g * dg
    if bug == "g_delta_s":
        dl = g * (dg - (g * dg).sum(2, keepdims=True))
    if kind == "dot":
        dl_ = dl * rc
        dsel = np.einsum("bqsr,bqsrc->bqsc", dl if bug == "dsel_unscaled" else dl_, kk)
        dkk = dl_[..., None] * sel[:, :, :, None]
        dwr = np.einsum("bqsre,bqsrc->ec", t, dkk)
        if bug == "dwr_o":
            dwr = np.einsum("bqse,bqsrc->ec", o, dkk)
        if bug == "dwr_mean":
            dwr = dwr / f(q.shape[0])
        dtl = dkk @ wr.T
        ds_ = [dwr]
    elif kind == "linear":
        dsel = dl.sum(-1, keepdims=True) * wc
        dtl = dl[..., None] * wr
        ds_ = [np.einsum("bqsr,bqsre->e", dl, t), np.einsum("bqsr,bqsc->c", dl, sel), dl.sum().reshape(1)]
        if bug == "dwr_g":
            ds_[0] = np.einsum("bqsr,bqsre->e", g * dg, t)
    else:
        dw2 = np.einsum("bqsr,bqsrf->f", dl, z if bug == "dw2_z" else y)
        dz = dl[..., None] * w2 * (1 if bug == "nl_slope" else (z > 0))
        dzz = dl[..., None] * w2 if bug == "dwc_slope" else dz
        dsel = np.einsum("bqsrf,cf->bqsc", dz, wc)
        if bug == "dsel_mean":
            dsel = dsel / f(v.shape[2])
        dtl = dz @ wr.T
        ds_ = [
            np.einsum("bqsre,bqsrf->ef", t, dz),
            np.einsum("bqsc,bqsrf->cf", sel, dzz),
            dz.sum((0, 1, 2, 3)) / (f(v.shape[2]) if bug == "dbr_mean" else 1),
            dw2,
            dl.sum().reshape(1),
        ]
    if bug != "no_score_path":
        dt = dt + dtl
    dv = np.einsum("bsqk,bqsre->bkre", a if bug == "dv_undropped" else ca, dt)
    if bug == "dv_mean_s":
        dv = dv / f(q.shape[2])
    if bug == "dv_direct":
        dv = np.einsum("bsqk,bqsre->bkre", ca, dt - dtl)
    da = np.einsum("bqsre,bkre->bsqk", dt, v)
    if bug == "da_direct":
        da = np.einsum("bqsre,bkre->bsqk", dt - dtl, v)
    if dropout is not None and bug != "drop_bwd":
        da = da * dropout
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    if bug == "delta_o":  # flash's shortcut, false here: o is not sum of a and v alone
        ds = a * (da - np.einsum("bqse,bqse->bsq", do, o)[..., None])
    if bug == "a_no_delta":
        ds = a * da
    dq, dk = np.einsum("bsqk,bksd->bqsd", ds, k) * r, np.einsum("bsqk,bqsd->bksd", ds, q) * r
    if bug == "dq_unscaled":
        dq = dq / r
    return (o, dq, dk, dv, *([] if bias is None else [unb(ds, bias)]), dsel, *ds_)


def comp_loops(q, k, v, selector, wr, do=None, bias=None, keep=None, dropout=None):
    """Search by search; the key map moved into the selector; delta of a from the retrievals."""
    B, N, S, D = q.shape
    M, R, E = v.shape[1:]
    C = selector.shape[-1]
    def bb(x, u):
        return np.full((B, S, N, M), u) if x is None else np.broadcast_to(x, (B, S, N, M))
    bi, ke, dr = bb(bias, 0.0), bb(keep, True), bb(dropout, 1.0)
    o = np.zeros((B, N, S, E))
    dq, dk, dv, dsel, dwr, db = (
        np.zeros(x) for x in (q.shape, k.shape, v.shape, selector.shape, wr.shape, (B, S, N, M))
    )
    for b in range(B):
        V = v[b].astype(float).reshape(M, R * E)
        for s in range(S):
            x = np.exp(q[b, :, s].astype(float) @ k[b, :, s].T / D**0.5 + bi[b, s]) * ke[b, s]
            n = x.sum(1, keepdims=True)
            a = x / np.where(n == 0, 1, n)
            t = ((a * dr[b, s]) @ V).reshape(N, R, E)
            u = selector[b, :, s].astype(float) @ wr.T / C**0.5  # N E
            l = (t * u[:, None]).sum(-1)
            g = np.exp(l) / np.exp(l).sum(1, keepdims=True)
            o[b, :, s] = (g[..., None] * t).sum(1)
            if do is None:
                continue
            G = do[b, :, s].astype(float)
            dg = t @ G[..., None]
            dl = g * (dg[..., 0] - (G * o[b, :, s]).sum(-1, keepdims=True))  # sum_r g dg = do . o
            dt = g[..., None] * G[:, None] + dl[..., None] * u[:, None]
            du = (dl[..., None] * t).sum(1) / C**0.5
            dsel[b, :, s] = du @ wr
            dwr += du.T @ selector[b, :, s]
            flat = dt.reshape(N, R * E)
            dv[b] += ((a * dr[b, s]).T @ flat).reshape(M, R, E)
            da = flat @ V.T * dr[b, s]
            ds = a * (da - (dt * t).sum((1, 2))[:, None])
            db[b, s] = ds
            dq[b, :, s] = ds @ k[b, :, s] / D**0.5
            dk[b, :, s] = ds.T @ q[b, :, s] / D**0.5
    if do is None:
        return o
    out = {"o": o, "dq": dq, "dk": dk, "dv": dv, "dselector": dsel, "dwr": dwr}
    if bias is not None:
        out["dbias"] = unb(db, bias)
    return {n: x.astype(q.dtype) for n, x in out.items()}


right("comp_dot", "compositional", comp, "einsum", dtype="float32", **ALL)
right("comp_loops", "compositional", comp_loops, "loops, no max, key map into the selector", dtype="float32", **ALL)
right(
    "comp_linear",
    "compositional_linear",
    partial(comp, kind="linear"),
    "zero gradients of rounding size",
    dtype="float64",
    bias="bhqk",
    keep="b1qk",
)
right(
    "comp_nonlinear",
    "compositional_nonlinear",
    partial(comp, kind="nonlinear"),
    "",
    dtype="float32",
    bias="hqk",
    dropout="bhqk",
)


def cw(kind, bug, expect, note, subtle=False, **s):
    sub = "compositional" + ("" if kind == "dot" else "_" + kind)
    wrong("comp_" + kind + "_" + bug, sub, partial(comp, kind=kind, bug=bug), expect, note, subtle, **s)


cw("dot", "scale_e", "F.l", "1/sqrt(e) in place of 1/sqrt(c), consistent", True, dtype="float32", bias="bhqk")
cw("dot", "no_scale_c", "F.l", "no 1/sqrt(c), consistent", dtype="float64")
cw("dot", "g_axis", "F.g", "value softmax over searches, consistent", dtype="float32", bias="bhqk")
cw("dot", "g_argmax", "F.g", "hard choice, o alone", dtype="float64")
cw("dot", "g_uniform", "F.g", "retrievals averaged, o alone", dtype="float32", bias="bhqk")
cw("dot", "drop_g", "F.drop", "dropout never applied, o alone", dtype="float32", dropout="bhqk", bias="bhqk")
cw("dot", "no_direct", "B.dtd B.dtl", "retrievals' gradient lacks the direct path", True, dtype="float32", bias="bhqk")
cw(
    "dot",
    "no_score_path",
    "B.dtl",
    "retrievals' gradient lacks the path through the scores",
    True,
    dtype="float32",
    bias="bhqk",
    keep="b1qk",
)
cw("dot", "g_no_delta", "B.dl", "delta missing in the value softmax", dtype="float64", bias="bhqk")
cw("dot", "g_delta_s", "B.dl", "value softmax's delta over searches", True, dtype="float32", bias="bhqk")
cw("dot", "dsel_unscaled", "B.dsel B.dtl", "dselector without 1/sqrt(c)", dtype="float32", bias="bhqk")
cw("dot", "dwr_mean", "B.dwr B.dtl", "dwr divided by the batch", True, dtype="float32", bias="bhqk")
cw("dot", "dwr_o", "B.dwr B.dtl", "dwr from o in place of the retrievals", True, dtype="float64")
cw("dot", "dv_undropped", "B.dv", "dv from weights before dropout", True, dtype="float32", **ALL)
cw("dot", "dv_mean_s", "B.dv", "dv mean over searches", dtype="float32", bias="bhqk")
cw("dot", "dv_direct", "B.dv", "dv without the path through the scores; da has it", True, dtype="float64", bias="bhqk")
cw("dot", "da_direct", "B.dc", "da without the path through the scores; dv has it", True, dtype="float32", bias="bhqk")
cw("dot", "drop_bwd", "B.drop", "dropout missing on da", True, dtype="float32", **ALL)
cw("dot", "delta_o", "B.ds", "delta = do.o, as in plain attention", True, dtype="float32", bias="bhqk")
cw("dot", "a_no_delta", "B.ds", "delta missing in the search softmax", dtype="float64", keep="b1qk", bias="bhqk")
cw("linear", "dwr_g", "B.dwr B.dtl", "dwr from g dg, without delta", True, dtype="float32", bias="bhqk")
cw(
    "linear",
    "no_score_path",
    "B.dtl",
    "retrievals' gradient lacks the scores' path",
    True,
    dtype="float64",
    bias="bhqk",
)
cw("nonlinear", "tanh", "F.l", "tanh in place of relu, o alone", dtype="float32", bias="bhqk")
cw("nonlinear", "dw2_z", "B.dw2 B.dtl", "dw2 from z before relu", True, dtype="float32", bias="bhqk")
cw("nonlinear", "nl_slope", "B.dzl B.dtl", "relu's derivative missing", dtype="float64", bias="bhqk")
cw("nonlinear", "dwc_slope", "B.dwc B.dtl", "relu's derivative missing in dwc only", True, dtype="float32", bias="bhqk")
cw("nonlinear", "dbr_mean", "B.dbr B.dtl", "dbr a mean over retrievals", True, dtype="float32")
cw("nonlinear", "dsel_mean", "B.dsel B.dtl", "dselector a mean over retrievals", dtype="float32", bias="bhqk")

# ----------------------------------------------------------------------------------------------------------- sliding dilated


def slide(q, k, v, ob, pad_k=None, pad_v=None, *, do=None, bias=None, keep=None, dropout=None, bug=None, dil=2):
    """By index: a table n[q, w], gathers, np.add.at."""
    f = q.dtype.type
    B, N, H, D = q.shape
    M, W = k.shape[1], ob.shape[1]
    if bug == "dilation1":
        dil = 1
    first = 0 if bug == "queries_first" else M - N
    n = np.arange(N)[:, None] + first - dil * np.arange(W)[None]
    if bug == "shift1":
        n = n - 1
    if bug == "future":
        n = np.minimum(np.arange(N)[:, None] + first + dil * np.arange(W)[None], M + 10)
    out = n < 0
    if bug == "future":
        out = n >= M
    idx = np.where(out, 0, n)
    K, V = k[:, idx], v[:, idx]  # b q w h d
    if pad_k is not None:
        K = np.where(out[None, :, :, None, None], pad_k, K)
        V = np.where(out[None, :, :, None, None], pad_v, V)
    if bug == "pad_v_zero":
        V = np.where(out[None, :, :, None, None], 0, V)
    r = f(D**-0.5)
    s = np.einsum("bqhd,bqwhd->bhqw", q, K) * r
    obx = ob[:, ::-1] if bug == "ob_reversed" else ob
    s = s + (obx[:, None] * r if bug == "ob_scaled" else obx[:, None])
    if bias is not None:
        s = s + bias
    kp = np.ones((1, 1, N, W), bool) if keep is None else keep
    if pad_k is None and bug != "clamp":
        kp = kp & ~out
    if pad_k is not None and bug == "pad_masked":
        kp = kp & ~out
    a = smax(s, np.broadcast_to(kp, s.shape)).astype(q.dtype)
    c = a if dropout is None else a * dropout
    o = np.einsum("bhqw,bqwhe->bqhe", c, V)
    if do is None:
        return o
    dV = np.einsum("bhqw,bqhe->bqwhe", c, do)
    da = np.einsum("bqhe,bqwhe->bhqw", do, V)
    if dropout is not None:
        da = da * dropout
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    if bug == "no_delta":
        ds = a * da
    dq = np.einsum("bhqw,bqwhd->bqhd", ds, K) * r
    if bug == "dq_unscaled":
        dq = dq / r
    dK = np.einsum("bhqw,bqhd->bqwhd", ds, q) * r
    dk, dv = np.zeros_like(k), np.zeros_like(v)
    inside = ~out
    wK = np.where(inside[None, :, :, None, None], dK, 0).astype(q.dtype)
    wV = np.where(inside[None, :, :, None, None], dV, 0).astype(q.dtype)
    if bug == "clamp":
        wK, wV = dK, dV
    if bug == "scatter_assign":  # dk[:, n] += ...: duplicates are lost
        dk[:, idx] += wK
        dv[:, idx] += wV
    elif bug == "scatter_dk":
        dk[:, idx] += wK
        np.add.at(dv, (slice(None), idx), wV)
    else:
        np.add.at(dk, (slice(None), idx), wK)
        np.add.at(dv, (slice(None), idx), wV)
    if bug == "pad_leak":  # pads' gradients go into key 0
        dk[:, 0] += np.where(out[None, :, :, None, None], dK, 0).sum((1, 2))
        dv[:, 0] += np.where(out[None, :, :, None, None], dV, 0).sum((1, 2))
    dob = ds.sum((0, 2))
    if bug == "dob_mean":
        dob = ds.mean(0).sum(1)
    if bug == "dob_scaled":
        dob = dob * r
    if bug == "dob_da":
        dob = (a * da).sum((0, 2))
    if bug == "ob_reversed":
        dob = dob[:, ::-1]
    if bug == "ob_scaled":
        dob = dob * r
    res = {"o": o, "dq": dq, "dk": dk, "dv": dv, "doffset_bias": dob}
    if bias is not None:
        res["dbias"] = unb(ds, bias)
    if pad_k is not None:
        res["dpad_k"] = np.where(out[None, :, :, None, None], dK, 0).sum((0, 1, 2))
        res["dpad_v"] = np.where(out[None, :, :, None, None], dV, 0).sum((0, 1, 2))
        if bug == "pad_v_zero":
            res["dpad_v"] = np.zeros_like(pad_v)
        if bug == "dpad_k_unscaled":
            res["dpad_k"] = res["dpad_k"] / r
        if bug == "dpad_v_da":
            res["dpad_v"] = np.where(out[None, :, :, None, None], np.einsum("bhqw,bqhe->bqwhe", a, do), 0).sum(
                (0, 1, 2)
            )
        if bug == "dpad_first":
            res["dpad_k"] = np.where(out[None, :, :, None, None], dK, 0)[:, 0].sum((0, 1))
        if bug == "dpad_mean":
            res["dpad_v"] = res["dpad_v"] / f(B)
    return res


def slide_shift(q, k, v, ob, pad_k=None, pad_v=None, *, do, bias=None, keep=None, dropout=None):
    """Shifts: pads (or NaN-free zeros and a mask) put in front, one slice for each offset."""
    B, N, H, D = q.shape
    M, W = k.shape[1], ob.shape[1]
    P = 2 * (W - 1)
    zk = np.zeros((H, D), k.dtype) if pad_k is None else pad_k
    zv = np.zeros((H, v.shape[-1]), v.dtype) if pad_v is None else pad_v
    kk = np.concatenate([np.broadcast_to(zk, (B, P, H, D)), k], 1)
    vv = np.concatenate([np.broadcast_to(zv, (B, P, *zv.shape)), v], 1)
    at = [slice(P + M - N - 2 * w, P + M - 2 * w) for w in range(W)]
    s = (
        np.stack([(q * kk[:, x]).sum(-1).swapaxes(1, 2) for x in at], -1) / np.sqrt(D).astype(q.dtype)
        + ob[None, :, None]
    )
    if bias is not None:
        s = s + bias
    if keep is not None:
        s = np.where(keep, s, -np.inf)
    if pad_k is None:
        for w, x in enumerate(at):
            s[:, :, np.arange(x.start, x.stop) < P, w] = -np.inf
    a = smax(s, None).astype(q.dtype)
    c = a if dropout is None else a * dropout
    o = sum(np.swapaxes(c[..., w], 1, 2)[..., None] * vv[:, x] for w, x in enumerate(at))
    dkk, dvv = np.zeros(kk.shape, q.dtype), np.zeros(vv.shape, q.dtype)
    da = np.stack([(do * vv[:, x]).sum(-1).swapaxes(1, 2) for x in at], -1)
    da = da if dropout is None else da * dropout
    ds = a * (da - np.sum(a * da, -1, keepdims=True))
    dq = np.zeros_like(q)
    for w, x in enumerate(at):
        g = np.swapaxes(ds[..., w], 1, 2)[..., None] / np.sqrt(D).astype(q.dtype)
        dq += g * kk[:, x]
        dkk[:, x] += g * q
        dvv[:, x] += np.swapaxes(c[..., w], 1, 2)[..., None] * do
    out = [o, dq, dkk[:, P:], dvv[:, P:]] + ([] if bias is None else [unb(ds, bias)]) + [ds.sum((0, 2))]
    return out if pad_k is None else out + [dkk[:, :P].sum((0, 1)), dvv[:, :P].sum((0, 1))]


SL = dict(bias="bhqw", keep="bhqw", dropout="bhqw")
right("slide_mask", "sliding_dilated", slide, "gather and add.at", dtype="float32", **SL)
right("slide_pad", "sliding_dilated_pad", slide, "gather and add.at", dtype="float64", **SL)
right("slide_shift", "sliding_dilated", slide_shift, "shifted slices", dtype="float64", bias="hqw")
right(
    "slide_shift_pad", "sliding_dilated_pad", slide_shift, "pads in front", dtype="float32", keep="b1qw", dropout="bhqw"
)


def sw(subject, bug, expect, note, subtle=False, **s):
    wrong("slide_" + bug, "sliding_dilated" + subject, partial(slide, bug=bug), expect, note, subtle, **s)


sw("", "dilation1", "F.s F.o", "dilation 1 in place of 2, consistent", dtype="float32", bias="bhqw")
sw("", "queries_first", "F.s F.o", "queries at the first positions, consistent", True, dtype="float32")
sw("", "shift1", "F.s F.o", "window begins one key earlier, consistent", True, dtype="float64", bias="bhqw")
sw("", "future", "F.s F.o", "offsets count forward, consistent", dtype="float32")
sw(
    "",
    "clamp",
    "F.a F.s F.o",
    "offsets before the first key read key 0, consistent",
    True,
    dtype="float32",
    bias="bhqw",
)
sw("", "ob_reversed", "F.s", "offset_bias read backwards, consistent", True, dtype="float32")
sw("", "ob_scaled", "F.s", "offset_bias divided by sqrt(d), consistent", True, dtype="float64", bias="bhqw")
sw("", "no_delta", "B.ds", "delta missing", dtype="float32", bias="bhqw", keep="b1qw")
sw("", "scatter_assign", "B.dk B.dv", "dk[:, n] += ...: duplicates lost", True, dtype="float32", bias="bhqw")
sw("", "scatter_dk", "B.dk", "dk[:, n] += ..., dv with add.at", True, dtype="float64", **SL)
sw("", "dob_mean", "B.doffset", "doffset_bias mean over the batch", True, dtype="float32", bias="bhqw")
sw("", "dob_scaled", "B.doffset", "doffset_bias times 1/sqrt(d)", True, dtype="float32", dropout="bhqw")
sw("", "dob_da", "B.doffset", "doffset_bias without delta", True, dtype="float64")
sw("_pad", "pad_masked", "F.a F.s", "pads are masked (the other page), their gradients 0", dtype="float32", bias="bhqw")
sw("_pad", "pad_v_zero", "F.o", "pad_v taken as 0, consistent", True, dtype="float32", bias="bhqw")
sw("_pad", "dpad_k_unscaled", "B.dpad_k B.dk", "dpad_k without 1/sqrt(d)", True, dtype="float32", bias="bhqw")
sw("_pad", "dpad_v_da", "B.dpad_v B.dv", "dpad_v from weights before dropout", True, dtype="float64", **SL)
sw("_pad", "dpad_first", "B.dpad_k B.dk", "dpad_k of the first query only", True, dtype="float32", bias="bhqw")
sw("_pad", "dpad_mean", "B.dpad_v B.dv", "dpad_v divided by the batch", True, dtype="float32")
sw("_pad", "pad_leak", "B.dk B.dv", "pads' gradients also added to key 0", True, dtype="float32", bias="bhqw")

# -------------------------------------------------------------------------------------------------------------------- layers


def mha(
    x,
    wq,
    wk,
    wv,
    wo,
    do=None,
    bq=None,
    bk=None,
    bv=None,
    bo=None,
    bias=None,
    keep=None,
    dropout=None,
    context=None,
    page="softmax",
    bug=None,
):
    y = x if context is None else context
    def z0(b):
        return 0 if b is None else b
    q = np.einsum("btm,mhd->bthd", x, wq) + (0 if bug == "no_bq" else z0(bq))
    k = np.einsum("btm,mhd->bthd", y, wk) + z0(bq if bug == "bk_is_bq" else bk)
    v = np.einsum("btm,mhe->bthe", y, wv) + z0(bv)
    fn = {"softmax": sm_einsum, "linear": lin, "hyla": hyla}[page]
    kw = dict(bias=bias, keep=keep, dropout=dropout)
    if bug == "scale_model":
        q = q * x.dtype.type(np.sqrt(wq.shape[2]) / np.sqrt(wq.shape[0]))
    mix = wo
    if bug == "wo_mix":  # concatenated (e, h), not (h, e)
        mix = wo.reshape(-1, wo.shape[2]).reshape(wo.shape[1], wo.shape[0], -1).transpose(1, 0, 2)
    if do is None:
        return fn(q, k, v, **kw).reshape(*x.shape[:2], -1) @ mix.reshape(-1, wo.shape[-1]) + z0(bo)
    doo = np.einsum("btm,hem->bthe", do, mix)
    if bug == "drop_out":
        pass
    g = fn(q, k, v, doo, bug=bug if bug in ("no_delta", "rms_no_proj", "keep_bwd", "dv_undropped") else None, **kw)
    o, dq, dk, dv = g[:4]
    if bug == "scale_model":
        dq = dq * x.dtype.type(np.sqrt(wq.shape[2]) / np.sqrt(wq.shape[0]))
    out = {"o": np.einsum("bthe,hem->btm", o, mix) + z0(bo)}
    if bug == "no_bo":
        out["o"] = np.einsum("bthe,hem->btm", o, mix)
    if bug == "bo_heads":
        out["o"] = np.einsum("bthe,hem->btm", o, mix) + wo.shape[0] * bo
    dmix = np.einsum("bthe,btm->hem", o, do)
    if bug == "wo_mix":
        dmix = dmix.transpose(1, 0, 2).reshape(wo.shape)
    out["dwo"] = dmix
    if bug == "dwo_v" and context is None:
        out["dwo"] = np.einsum("bthe,btm->hem", v, do)
    if bo is not None:
        out["dbo"] = do.sum((0, 1))
        if bug == "bo_heads":
            out["dbo"] = out["dbo"] * wo.shape[0]
        if bug == "no_bo":
            out["dbo"] = np.zeros_like(bo)
        if bug == "dbo_mean":
            out["dbo"] = do.mean((0, 1))
    dx = np.einsum("bthd,mhd->btm", dq, wq)
    dyk = np.einsum("bthd,mhd->btm", dk, wk)
    dyv = np.einsum("bthe,mhe->btm", dv, wv)
    if bug == "dx_no_k":
        dy = dyv
    elif bug == "dx_no_v":
        dy = dyk
    else:
        dy = dyk + dyv
    if context is None:
        out["dx"] = dy if bug == "dx_no_q" else dx + dy
    else:
        out["dx"], out["dcontext"] = dx, dy
    out["dwq"] = np.einsum("btm,bthd->mhd", x, dq)
    out["dwk"] = np.einsum("btm,bthd->mhd", y, dq if bug == "dwk_dq" else dk)
    out["dwv"] = np.einsum("btm,bthe->mhe", y, dv)
    if bug == "dwq_batch0":
        out["dwq"] = np.einsum("tm,thd->mhd", x[0], dq[0])
    if bq is not None:
        out["dbq"], out["dbk"], out["dbv"] = dq.sum((0, 1)), dk.sum((0, 1)), dv.sum((0, 1))
        if bug == "no_bq":
            out["dbq"] = np.zeros_like(bq)
        if bug == "bk_is_bq":
            out["dbq"], out["dbk"] = out["dbq"] + out["dbk"], np.zeros_like(bk)
        if bug == "dbv_t":
            out["dbv"] = dv.sum(0).mean(0)
    if bias is not None:
        out["dbias"] = g[4]
    return out


right("mha_softmax", "layers/MultiHead softmax", partial(mha, page="softmax"), "", dtype="float32")
right("mha_hyla", "layers/MultiHead hyla", partial(mha, page="hyla"), "", dtype="float64")
right("mha_hyla_across", "layers/MultiHead hyla across", partial(mha, page="hyla"), "with a context", dtype="float32")
right("mha_linear", "layers/MultiHead linear without biases", partial(mha, page="linear"), "", dtype="float32")


def mw(page, bug, expect, note, subtle=False, row="", **s):
    wrong(
        "mha_" + page + "_" + bug,
        "layers/MultiHead " + page + row,
        partial(mha, page=page, bug=bug),
        expect,
        note,
        subtle,
        **s,
    )


mw("softmax", "no_bq", "F.in", "bias of the queries forgotten, its gradient 0", True, dtype="float32")
mw("softmax", "scale_model", "F.s", "scores over sqrt(m), consistent", True, dtype="float32")
mw("softmax", "wo_mix", "F.out", "output map reads (e, h), consistent", dtype="float32")
mw("softmax", "no_delta", "B.ds", "delta missing", dtype="float64")
mw("softmax", "dx_no_k", "B.in", "dx lacks the keys' part", True, dtype="float32")
mw("softmax", "dwk_dq", "B.in", "dwk from dq", dtype="float32")
mw("linear", "bk_is_bq", "F.in", "queries' bias used for keys, consistent", True, dtype="float64")
mw("linear", "bo_heads", "F.out", "output bias added once per head, consistent", True, dtype="float32")
mw("linear", "dbo_mean", "B.out", "dbo mean", dtype="float32")
mw("hyla", "rms_no_proj", "B.ds0", "projection missing inside the layer", dtype="float32")
mw("hyla", "dx_no_v", "B.in", "dx lacks the values' part", dtype="float32")
mw("hyla", "dx_no_q", "B.in", "dx lacks the queries' part", dtype="float64")
mw("hyla", "dwq_batch0", "B.in", "dwq of the first sequence only", True, dtype="float32")
mw("hyla", "dwo_v", "B.out", "dwo from v in place of o", dtype="float32")
mw("hyla", "dbv_t", "B.in", "dbv mean over positions", True, dtype="float32")


def erf_(x):
    return np.vectorize(math.erf)(x.astype(float)).astype(x.dtype)


def ff(x, w1, b1, w2, b2, do=None, act="gelu", bug=None):
    f = x.dtype.type
    h = x @ w1 + (0 if bug == "no_b1" else b1)
    c0 = f(math.sqrt(2 / math.pi))
    cub = f(0.44715 if bug == "gelu_const" else 0.044715)
    if act == "relu":
        y, sl = np.maximum(h, 0), (h > 0).astype(h.dtype)
        if bug == "slope_x":
            sl = np.ones_like(h)
    elif act == "gelu":
        t = np.tanh(c0 * (h + cub * h**3))
        y = h * (1 + t) / 2
        sl = (1 + t) / 2 + h * (1 - t * t) / 2 * c0 * (1 + 3 * cub * h * h)
        if bug == "slope_chain":
            sl = (1 + t) / 2 + h * (1 - t * t) / 2 * c0
        if bug == "slope_first":
            sl = (1 + t) / 2
        if bug == "slope_exact":
            sl = (1 + erf_(h / f(math.sqrt(2)))) / 2 + h * np.exp(-h * h / 2) / f(math.sqrt(2 * math.pi))
        if bug == "sigmoid":
            t = 1 / (1 + np.exp(-f(1.702) * h))
            y, sl = h * t, t + f(1.702) * h * t * (1 - t)
    else:
        t = erf_(h / f(math.sqrt(2)))
        y = h * (1 + t) / 2
        sl = (1 + t) / 2 + h * np.exp(-h * h / 2) / f(math.sqrt(2 * math.pi))
        if bug == "slope_2pi":
            sl = (1 + t) / 2 + h * np.exp(-h * h / 2) * f(math.sqrt(2 / math.pi))
        if bug == "slope_h2":
            sl = (1 + t) / 2 + h * np.exp(-h * h) / f(math.sqrt(2 * math.pi))
    o = y @ w2 + b2
    if bug == "residual":
        o = o + x
    if do is None:
        return o
    dy = do @ w2.T
    dh = dy * sl
    dx = dh @ w1.T + (do if bug == "residual" else 0)
    X, H_, Y, G = (u.reshape(-1, u.shape[-1]) for u in (x, dh, y, do))
    dw2 = (h.reshape(Y.shape) if bug == "dw2_h" else Y).T @ G
    dw1 = X.T @ (dy.reshape(H_.shape) if bug == "dw1_dy" else H_)
    db1 = H_.mean(0) if bug == "db1_mean" else H_.sum(0)
    if bug == "no_b1":
        db1 = np.zeros_like(b1)
    db2 = do[0].sum(0) if bug == "db2_batch0" else G.sum(0)
    return o, dx, dw1, db1, dw2, db2


right("ff_gelu", "layers/FeedForward gelu", ff, "flattened", dtype="float32")
right("ff_relu", "layers/FeedForward relu", partial(ff, act="relu"), "", dtype="float64")
right("ff_exact", "layers/FeedForward gelu_exact", partial(ff, act="exact"), "math.erf", dtype="float32")


def fz(act, bug, expect, note, subtle=False, kact=None, **s):
    wrong(
        "ff_" + act + "_" + bug,
        "layers/FeedForward " + act,
        partial(ff, act=kact or {"gelu_exact": "exact"}.get(act, act), bug=bug),
        expect,
        note,
        subtle,
        **s,
    )


fz("gelu", "erf", "F.act", "erf-gelu in place of the tanh form, consistent", True, kact="exact", dtype="float64")
fz("gelu_exact", "tanh", "F.act", "tanh form in place of erf, consistent", True, kact="gelu", dtype="float32")
fz("gelu", "gelu_const", "F.act", "0.44715 in place of 0.044715, consistent", True, dtype="float32")
fz("gelu", "sigmoid", "F.act", "x sigmoid(1.702 x), consistent", True, dtype="float32")
fz("gelu", "slope_chain", "B.act", "derivative lacks the cubic's part", True, dtype="float64")
fz("gelu", "slope_first", "B.act", "derivative lacks its second term", dtype="float32")
fz("gelu", "slope_exact", "B.act", "derivative of the erf form", True, dtype="float32")
fz("gelu_exact", "slope_2pi", "B.act", "sqrt(2/pi) in place of 1/sqrt(2 pi) in the density", True, dtype="float32")
fz("gelu_exact", "slope_h2", "B.act", "exp(-h^2) in place of exp(-h^2/2)", True, dtype="float64")
fz("relu", "slope_x", "B.act", "relu's derivative missing", dtype="float32")
fz("relu", "no_b1", "F.in", "b1 forgotten, db1 0", dtype="float32")
fz("relu", "residual", "F.out", "a residual inside, consistent", dtype="float64")
fz("relu", "dw2_h", "B.out", "dw2 from h before relu", True, dtype="float32")
fz("relu", "dw1_dy", "B.in", "dw1 from dy before the derivative", True, dtype="float32")
fz("gelu", "db1_mean", "B.in", "db1 mean", dtype="float32")
fz("gelu", "db2_batch0", "B.out", "db2 of the first sequence only", True, dtype="float64")


def swiglu(x, wg, wu, wd, do=None, bug=None):
    g, u = x @ wg, x @ wu
    s = 1 / (1 + np.exp(-g))
    o = (g * s * u) @ wd
    dh = do @ wd.T
    sl = s + g * s * (1 - s)
    if bug == "slope":
        sl = s
    dg, du = dh * u * sl, dh * g * s
    def r(a):
        return a.reshape(-1, a.shape[-1])
    return dict(o=o, dx=dg @ wg.T + du @ wu.T, dwg=r(x).T @ r(dg), dwu=r(x).T @ r(du), dwd=r(g * s * u).T @ r(do))


def layernorm(x, scale, shift, do=None, bug=None):
    n = x.shape[-1]
    c = x - x.mean(-1, keepdims=True)
    var = (c * c).sum(-1, keepdims=True) / (n - 1 if bug == "unbiased" else n)
    r = 1 / np.sqrt(var + x.dtype.type(1e-6))
    h = c * r
    g = do * scale
    dx = r * (g - g.mean(-1, keepdims=True) - h * (g * h).mean(-1, keepdims=True))
    if bug == "no_mean":
        dx = r * (g - h * (g * h).mean(-1, keepdims=True))
    red = tuple(range(x.ndim - 1))
    return h * scale + shift, dx, (do * h).sum(red), do.sum(red)


right("swiglu", "layers/SwiGLU", swiglu, "", dtype="float64")
right("layernorm", "layers/LayerNorm", layernorm, "", dtype="float32")
wrong(
    "swiglu_slope",
    "layers/SwiGLU",
    partial(swiglu, bug="slope"),
    "B.act NOTSEARCHED",
    "silu's derivative lacks its second term",
    dtype="float32",
)
wrong(
    "layernorm_no_mean",
    "layers/LayerNorm",
    partial(layernorm, bug="no_mean"),
    "NOTSEARCHED",
    "mean of the gradient not subtracted",
    dtype="float32",
)


def block_pre(x, do=None, keep=None, dropout=None, residual=None, hidden=None, bug=None, **p):
    """Pre-LN block around softmax attention and a gelu feed-forward layer."""
    def ln(x, n):
        return layernorm(x, p[n + ".scale"], p[n + ".shift"], np.zeros_like(x))[0]
    at = {n.split(".")[1]: w for n, w in p.items() if n.startswith("attention.")}
    h1 = ln(x, "norm1")
    opt = {n: w for n, w in dict(keep=keep, dropout=dropout).items() if w is not None}
    mha(h1, **at, do=None, page="softmax", **opt) if do is None else None
    raise NotImplementedError


def comp_layer(
    x,
    wq,
    wk,
    wv,
    ws,
    wr,
    wo,
    do,
    bq=None,
    bk=None,
    bv=None,
    bs=None,
    br=None,
    bo=None,
    bias=None,
    keep=None,
    dropout=None,
    bug=None,
):
    q, k = np.einsum("btm,msd->btsd", x, wq) + bq, np.einsum("btm,msd->btsd", x, wk) + bk
    v, s = np.einsum("btm,mre->btre", x, wv) + bv, np.einsum("btm,msc->btsc", x, ws) + bs
    do_ = np.einsum("btm,sem->btse", do, wo)
    g = comp(q, k, v, s, wr, do=do_, bias=bias, keep=keep, dropout=dropout, bug=bug)
    o, dq, dk, dv = g[:4]
    dsel, dwr = g[-2:]
    dx = np.zeros_like(x)
    out = dict(
        o=np.einsum("btse,sem->btm", o, wo) + bo,
        dwo=np.einsum("btse,btm->sem", o, do),
        dbo=do.sum((0, 1)),
        dwr=dwr,
        dbr=np.zeros_like(br),
    )
    for n, d, w in (("q", dq, wq), ("k", dk, wk), ("v", dv, wv), ("s", dsel, ws)):
        if not (bug == "dx_no_sel" and n == "s"):
            dx += np.einsum("btij,mij->btm", d, w)
        out["dw" + n] = np.einsum("btm,btij->mij", x, d)
        out["db" + n] = d.sum((0, 1))
    out["dx"] = dx
    if bias is not None:
        out["dbias"] = g[4]
    return out


right("comp_layer", "layers/Compositional dot", comp_layer, "", dtype="float32")
wrong(
    "comp_layer_dx_no_sel",
    "layers/Compositional dot",
    partial(comp_layer, bug="dx_no_sel"),
    "B.in",
    "dx lacks the selector's part",
    True,
    dtype="float32",
)
wrong(
    "comp_layer_no_score_path",
    "layers/Compositional dot",
    partial(comp_layer, bug="no_score_path"),
    "B.dtl",
    "scores' path missing inside the layer",
    True,
    dtype="float64",
)


def slide_layer(x, wq, wk, wv, wo, offset_bias, pad, do, bias=None, keep=None, dropout=None, bug=None):
    def P(w):
        return np.einsum("btm,mhd->bthd", x, w)
    pk, pv = np.einsum("m,mhd->hd", pad, wk), np.einsum("m,mhd->hd", pad, wv)
    do_ = np.einsum("btm,hem->bthe", do, wo)
    g = slide(P(wq), P(wk), P(wv), offset_bias, pk, pv, do=do_, bias=bias, keep=keep, dropout=dropout)
    dx = sum(np.einsum("bthd,mhd->btm", g["d" + n], w) for n, w in (("q", wq), ("k", wk), ("v", wv)))
    def W(d):
        return np.einsum("btm,bthd->mhd", x, d)
    dwk, dwv = W(g["dk"]), W(g["dv"])
    if bug != "dwk_no_pad":
        dwk = dwk + pad[:, None, None] * g["dpad_k"]
    dwv = dwv + pad[:, None, None] * g["dpad_v"]
    dpad = np.einsum("hd,mhd->m", g["dpad_k"], wk) + (
        0 if bug == "dpad_no_v" else np.einsum("hd,mhd->m", g["dpad_v"], wv)
    )
    out = dict(
        o=np.einsum("bthe,hem->btm", g["o"], wo),
        dx=dx,
        dwq=W(g["dq"]),
        dwk=dwk,
        dwv=dwv,
        doffset_bias=g["doffset_bias"],
        dpad=dpad,
        dwo=np.einsum("bthe,btm->hem", g["o"], do),
    )
    if bias is not None:
        out["dbias"] = g["dbias"]
    return out


right("slide_layer", "layers/SlidingDilated pad", slide_layer, "", dtype="float64")
wrong(
    "slide_layer_dwk_no_pad",
    "layers/SlidingDilated pad",
    partial(slide_layer, bug="dwk_no_pad"),
    "B.in",
    "dwk lacks the pad's part",
    True,
    dtype="float32",
)
wrong(
    "slide_layer_dpad_no_v",
    "layers/SlidingDilated pad",
    partial(slide_layer, bug="dpad_no_v"),
    "B.in",
    "dpad lacks the values' part",
    True,
    dtype="float64",
)


def block(x, do, keep=None, dropout=None, residual=None, hidden=None, bug=None, **p):
    """Pre-LN block, whole, forward and backward; residual (2, b, t, m) multiplies what a sub-layer gives."""
    def sub(pre):
        return {n[len(pre) :]: w for n, w in p.items() if n.startswith(pre)}
    at, f1 = sub("attention."), sub("feed_forward.")
    opt = dict(keep=keep, dropout=dropout)
    res = (1, 1) if residual is None else residual
    hid = 1 if hidden is None else hidden
    z = np.zeros_like(x)
    h1 = layernorm(x, p["norm1.scale"], p["norm1.shift"], z)[0]
    y = x * (0 if bug == "no_residual" else 1) + res[0] * mha(h1, do=z, page="softmax", **at, **opt)["o"]
    h2 = layernorm(y, p["norm2.scale"], p["norm2.shift"], z)[0]
    c0, cub = x.dtype.type(math.sqrt(2 / math.pi)), x.dtype.type(0.044715)
    u = h2 @ f1["w1"] + f1["b1"]
    t = np.tanh(c0 * (u + cub * u**3))
    act = u * (1 + t) / 2 * hid
    o = y + res[1] * (act @ f1["w2"] + f1["b2"])
    d2 = res[1] * do
    def flat(a):
        return a.reshape(-1, a.shape[-1])
    out = {"o": o, "dfeed_forward.w2": flat(act).T @ flat(d2), "dfeed_forward.b2": flat(d2).sum(0)}
    du = d2 @ f1["w2"].T * hid * ((1 + t) / 2 + u * (1 - t * t) / 2 * c0 * (1 + 3 * cub * u * u))
    out["dfeed_forward.w1"], out["dfeed_forward.b1"] = flat(h2).T @ flat(du), flat(du).sum(0)
    _, dy, out["dnorm2.scale"], out["dnorm2.shift"] = layernorm(y, p["norm2.scale"], p["norm2.shift"], du @ f1["w1"].T)
    dy = dy + do
    g = mha(h1, do=res[0] * dy, page="softmax", **at, **opt)
    out.update({"dattention." + n[1:]: w for n, w in g.items() if n not in ("o", "dx")})
    _, dx, out["dnorm1.scale"], out["dnorm1.shift"] = layernorm(x, p["norm1.scale"], p["norm1.shift"], g["dx"])
    out["dx"] = dx + (0 if bug in ("no_residual", "no_residual_bwd") else dy)
    return out


right("block_pre", "layers/Block pre", block, "a whole block", dtype="float32")
wrong(
    "block_no_residual",
    "layers/Block pre",
    partial(block, bug="no_residual"),
    "NOTSEARCHED",
    "first residual forgotten, consistent",
    dtype="float32",
)
wrong(
    "block_no_residual_bwd",
    "layers/Block pre",
    partial(block, bug="no_residual_bwd"),
    "NOTSEARCHED",
    "first residual forgotten in the backward",
    dtype="float64",
)
del block_pre
