import math

import numpy as np
import torch
import torch.nn.functional as F

from .right import T, flash, hyla_f, layer, leaf, outm, qkv, soft

W = []  # (name, fn, variant, kw, cause)


def add(name, f, variant, cause, **kw):
    f.__name__ = name
    W.append((name, f, variant, kw, cause))


E_ = np.einsum


def ub(g, like):
    while g.ndim > like.ndim:
        g = g.sum(0)
    ax = tuple(i for i, n in enumerate(like.shape) if n == 1)
    return g.sum(ax, keepdims=True) if ax else g


# ============ softmax, hand-written in numpy, bhtd
def sm(bug):
    def kernel(q, k, v, do, bias=None, keep=None, dropout=None):
        dt = q.dtype.type
        b, h, n, d = q.shape
        m = k.shape[2]
        sc = dt(1 / math.sqrt(d))
        if bug == "scale_d":
            sc = dt(1 / d)
        if bug == "scale_e":
            sc = dt(1 / math.sqrt(v.shape[-1]))
        if bug == "scale_none":
            sc = dt(1)
        if bug == "scale_total":
            sc = dt(1 / math.sqrt(d * h))
        Q, K, V = q, k, v
        if bug == "head_roll":
            K = np.roll(k, 1, axis=1)
        s = E_("bhqd,bhkd->bhqk", Q, K) * sc
        if bias is not None:
            if bug == "bias_before_scale":
                s = (E_("bhqd,bhkd->bhqk", Q, K) + bias) * sc
            elif bug not in ("bias_after",):
                s = s + bias
        kp = np.ones_like(s, dtype=bool) if keep is None else np.broadcast_to(keep, s.shape)
        if bug == "keep_inverted_q":
            kp = kp[:, :, ::-1]
        if bug == "keep_off_by_one":
            kp = np.roll(kp, 1, axis=-1)
        if bug == "axis":
            p = np.exp(s - s.max(-2, keepdims=True)) * kp
            z = p.sum(-2, keepdims=True)
        elif bug == "no_max":
            p = np.exp(s) * kp
            z = p.sum(-1, keepdims=True)
        elif bug == "max_global":
            p = np.exp(s - s.max()) * kp
            z = p.sum(-1, keepdims=True)
        elif bug == "keep_after":
            p = np.exp(s - s.max(-1, keepdims=True))
            z = p.sum(-1, keepdims=True)
            p = p * kp
        elif bug == "softmax1":
            p = np.exp(s - s.max(-1, keepdims=True)) * kp
            z = p.sum(-1, keepdims=True) + np.exp(-s.max(-1, keepdims=True))
        elif bug == "eps_denominator":
            p = np.exp(s - s.max(-1, keepdims=True)) * kp
            z = p.sum(-1, keepdims=True) + dt(1e-4)
        elif bug == "keep_as_score0":
            p = np.exp(np.where(kp, s, 0) - s.max(-1, keepdims=True))
            z = p.sum(-1, keepdims=True)
        else:
            p = np.exp(s - s.max(-1, keepdims=True)) * kp
            z = p.sum(-1, keepdims=True)
        a = np.where(z > 0, p / np.where(z > 0, z, 1), 0).astype(q.dtype)
        if bug == "dead_uniform":
            a = np.where(z > 0, a, dt(1 / m))
        if bug == "bias_after" and bias is not None:
            a = a + bias
        r = np.ones_like(a) if dropout is None else np.broadcast_to(dropout, a.shape)
        if bug == "dropout_renorm":
            c = a * r
            c = c / c.sum(-1, keepdims=True)
        elif bug == "dropout_rescaled":
            c = a * r * (r > 0).mean()
        elif bug == "dropout_before":
            a = p * r
            a = a / np.where(a.sum(-1, keepdims=True) != 0, a.sum(-1, keepdims=True), 1)
            c = a
        else:
            c = a * r
        if bug == "dropout_bool":
            c = a * (r != 0)
        o = E_("bhqk,bhke->bhqe", c, V)
        if bug == "merge":
            o = o.swapaxes(1, 2).reshape(b, n, h, -1).reshape(b, h, n, -1)
        g = do
        dc = E_("bhqe,bhke->bhqk", g, V)
        dv = E_("bhqk,bhqe->bhke", a if bug == "dv_no_dropout" else c, g)
        da = dc if bug == "da_no_dropout" else dc * r
        if bug == "no_D":
            ds = a * da
        elif bug == "D_mean":
            ds = a * (da - (a * da).mean(-1, keepdims=True))
        elif bug == "D_no_a":
            ds = a * (da - da.sum(-1, keepdims=True))
        elif bug == "D_c":
            ds = a * (da - (c * da).sum(-1, keepdims=True))
        elif bug == "D_before_dropout":
            ds = a * (da - (a * dc).sum(-1, keepdims=True))
        elif bug == "D_axis_q":
            ds = a * (da - (a * da).sum(-2, keepdims=True))
        elif bug == "c_for_a":
            ds = c * (da - (c * da).sum(-1, keepdims=True))
        else:
            ds = a * (da - (a * da).sum(-1, keepdims=True))
        dq = E_("bhqk,bhkd->bhqd", ds, k) * (1 if bug == "dq_unscaled" else sc)
        dk = E_("bhqk,bhqd->bhkd", ds, q) * (1 if bug == "dk_unscaled" else sc * (sc if bug == "dk_twice" else 1))
        if bug == "dk_last_tile_lost":
            dk[:, :, -1] = 0
        if bug == "dk_last_query_lost":
            dk = E_("bhqk,bhqd->bhkd", ds[:, :, :-1], q[:, :, :-1]) * sc
        if bug == "dv_prev_head":
            dv = np.roll(dv, 1, axis=1)
        if bias is None:
            return o, dq, dk, dv
        db = ds if bug != "dbias_scaled" else ds * sc
        if bug == "dbias_a":
            db = da
        if bias.ndim < 4:
            db = db.mean(0) if bug == "dbias_mean" else db[0] if bug == "dbias_first" else db.sum(0)
        ax = tuple(i for i, nn in enumerate(bias.shape) if nn == 1)
        db = db.sum(ax, keepdims=True) if bug != "dbias_mean_q" else db.mean(ax, keepdims=True)
        if bug == "dbias_h":
            db = np.broadcast_to(db.sum(0, keepdims=True), db.shape)
        return o, dq, dk, dv, db

    return kernel


L = dict(layout="bhtd")
FULL = dict(layout="bhtd", bias="bhqk", keep="bhqk", dropout="bhqk")
for bug, cause, kw in [
    ("scale_d", "scale 1/d for 1/sqrt d (line 1)", L),
    ("scale_e", "scale from value width (1)", L),
    ("scale_none", "no scale (1)", L),
    ("scale_total", "scale sqrt(h d) (1)", L),
    ("head_roll", "keys of another head in scores (1); backward of right forward", L),
    ("bias_before_scale", "bias scaled too (1), dbias unscaled", FULL),
    ("bias_after", "bias added to weights, not to scores (1)/(2)", dict(L, bias="bhqk")),
    ("axis", "softmax over queries (2), backward over keys", L),
    ("no_max", "no max subtraction (right at these inputs: overflow)", L),
    ("max_global", "global max: underflow only (right here)", L),
    ("keep_off_by_one", "keep shifted by one key (2)", dict(L, keep="bhqk")),
    ("keep_after", "mask after softmax without renormalising (2)", dict(L, keep="bhqk")),
    ("keep_as_score0", "masked keys get score 0 (2)", dict(L, keep="bhqk")),
    ("dead_uniform", "dead query gives mean of v (2)", dict(L, keep="bhqk")),
    ("softmax1", "softmax off by one: +1 in denominator (2)", L),
    ("eps_denominator", "1e-4 in denominator (2)", L),
    ("dropout_renorm", "renormalised after dropout (3)", FULL),
    ("dropout_rescaled", "dropout scaled again (3)", FULL),
    ("dropout_before", "dropout before normalising (2)/(3)", dict(L, dropout="bhqk")),
    ("dropout_bool", "dropout's 1/(1-p) lost (3), forward only", FULL),
    ("merge", "heads merged in the wrong order (o)", L),
    ("dv_no_dropout", "dv without dropout (4)", FULL),
    ("da_no_dropout", "dropout missing in da (3)", FULL),
    ("no_D", "row sum missing in softmax backward (2)", FULL),
    ("D_mean", "mean for sum (2)", FULL),
    ("D_no_a", "sum of da not a*da (2)", L),
    ("D_c", "dropout twice in D (2)", FULL),
    ("D_before_dropout", "D from dc before dropout (2)", FULL),
    ("D_axis_q", "D summed over queries (2)", L),
    ("c_for_a", "dropped c for a in softmax backward (2)", FULL),
    ("dq_unscaled", "dq unscaled (1)", L),
    ("dk_unscaled", "dk unscaled (1)", FULL),
    ("dk_twice", "dk scaled twice (1)", FULL),
    ("dk_last_tile_lost", "last key of dk lost (1)", L),
    ("dk_last_query_lost", "last query missing in dk (1)", L),
    ("dv_prev_head", "dv written to next head (4)", L),
    ("dbias_scaled", "dbias scaled (1)", FULL),
    ("dbias_a", "dbias from da instead of ds (1)", FULL),
    ("dbias_mean", "dbias mean over batch (1)", dict(L, bias="hqk")),
    ("dbias_first", "dbias only of batch 0 (1)", dict(L, bias="hqk")),
    ("dbias_mean_q", "dbias mean over queries (1)", dict(L, bias="h1k")),
]:
    add("sm_" + bug, sm(bug), "softmax", cause, **kw)


def sdpa_causal_lower_left(q, k, v, do):
    q, k, v = leaf(q, k, v)
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    o.backward(T(do))
    return o, q.grad, k.grad, v.grad


add(
    "sdpa_causal_top_left_cross",
    sdpa_causal_lower_left,
    "softmax",
    "torch's is_causal is aligned top left; should be bottom right (causal)",
    layout="bhtd",
    causal=True,
)


def caus(off):
    def f(q, k, v, do):
        q, k, v = leaf(q, k, v)
        n, m = q.shape[2], k.shape[2]
        mask = torch.ones(n, m, dtype=bool).tril(m - n + off)
        s = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, float("-inf"))
        a = s.softmax(-1).nan_to_num(0)
        o = a @ v
        o.backward(T(do))
        return o, q.grad, k.grad, v.grad

    return f


add("causal_excludes_diagonal", caus(-1), "softmax", "strictly causal", layout="bhtd", causal=True)
add("causal_one_too_many", caus(1), "softmax", "sees one later key", layout="bhtd", causal=True)


def lse_wrong(q, k, v, do):
    r = flash(q, k, v, do, base2=True)
    r["lse"] = r["lse"] / np.log(2)
    return r


add("flash_lse_in_base2", lse_wrong, "softmax", "lse returned in log2", layout="bhtd")


def flash_norescale(q, k, v, do):
    B = 3
    d = q.shape[-1]
    s = q @ k.swapaxes(-1, -2) / np.sqrt(d).astype(q.dtype)
    o = 0
    l = 0
    mx = np.full(s.shape[:3] + (1,), -np.inf, q.dtype)
    for j in range(0, k.shape[2], B):
        t = s[..., j : j + B]
        new = np.maximum(mx, t.max(-1, keepdims=True))
        p = np.exp(t - new)
        l = l * np.exp(mx - new) + p.sum(-1, keepdims=True)
        o = o + p @ v[:, :, j : j + B]
        mx = new
    o = o / l
    p = np.exp(s - mx) / l
    D = (o * do).sum(-1, keepdims=True)
    ds = p * (do @ v.swapaxes(-1, -2) - D) / np.sqrt(d).astype(q.dtype)
    return o, ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ do


add(
    "flash_acc_not_rescaled",
    flash_norescale,
    "softmax",
    "accumulator not rescaled by the new max (2)/(4)",
    layout="bhtd",
)


def flash_tail(q, k, v, do):
    # the last partial tile is padded with zero keys that are not masked out
    P = (-k.shape[2]) % 4
    kk = np.pad(k, ((0, 0), (0, 0), (0, P), (0, 0)))
    vv = np.pad(v, ((0, 0), (0, 0), (0, P), (0, 0)))
    r = flash(q, kk, vv, do, BQ=4, BK=4)
    return r["o"], r["dq"], r["dk"][:, :, : k.shape[2]], r["dv"][:, :, : k.shape[2]]


add("flash_pad_keys_unmasked", flash_tail, "softmax", "padding keys with score 0 take part (2)", layout="bhtd")


def tied_max(q, k, v, do):
    # gradient through the max as well (detach forgotten in a hand backward)
    f = sm("none")(q, k, v, do)
    return f[0], f[1], f[2], f[3] * 1.001


add("dv_off_by_a_thousandth", tied_max, "softmax", "dv times 1.001", layout="bhtd")


def stopgrad_q(q, k, v, do):
    q, k, v = leaf(q, k, v)
    a = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    o = a @ v
    o.backward(T(do))
    return o, q.grad.clamp(-3, 3), k.grad, v.grad


add("dq_clipped_at_3", stopgrad_q, "softmax", "dq clipped to [-3, 3]", layout="bhtd")


def in_half(q, k, v, do):
    q, k, v = [x.detach().half().requires_grad_() for x in leaf(q, k, v)]
    o = F.scaled_dot_product_attention(q, k, v)
    o.backward(T(do).half())
    return [x.float() for x in (o, q.grad, k.grad, v.grad)]


add("computes_in_float16_for_float32", in_half, "softmax", "computes in half precision", layout="bhtd")


# ============ linear
def lin(bug):
    def f(q, k, v, do, bias=None, keep=None, dropout=None):
        sc = q.dtype.type(q.shape[-1] ** -0.5)
        s = E_("bqhd,bkhd->bhqk", q, k) * sc + (0 if bias is None else bias)
        kp = np.ones(s.shape, bool) if keep is None else np.broadcast_to(keep, s.shape)
        r = np.ones_like(s) if dropout is None else np.broadcast_to(dropout, s.shape)
        a = s * kp
        if bug == "elu":
            a = np.where(s > 0, s + 1, np.exp(s)) * kp
        if bug == "normalised":
            a = a / (np.abs(a).sum(-1, keepdims=True) + 1e-6)
        if bug == "neg_inf":
            a = np.where(kp, s, -1e9)
        if bug == "div_keys":
            a = a / s.shape[-1]
        c = a * r
        if bug == "keep_before_bias":
            a = (s - bias) * kp + bias
            c = a * r
        o = E_("bhqk,bkhe->bqhe", c, v)
        dv = E_("bhqk,bqhe->bkhe", c, do)
        ds = E_("bqhe,bkhe->bhqk", do, v) * r
        if bug != "ds_no_keep":
            ds = ds * kp
        if bug == "relu_gate":
            ds = ds * (s > 0)
        out = [o, E_("bhqk,bkhd->bqhd", ds, k) * sc, E_("bhqk,bqhd->bkhd", ds, q) * sc, dv]
        if bias is not None:
            out.append(ub(ds * sc if bug == "dbias_scaled" else ds, bias))
        return out

    return f


LF = dict(bias="bhqk", keep="bhqk", dropout="bhqk")
for bug, cause in [
    ("elu", "feature map on scores (1)/(2)"),
    ("normalised", "normaliser (2)"),
    ("neg_inf", "mask value -1e9 in linear attention (2)"),
    ("div_keys", "divided by number of keys"),
    ("ds_no_keep", "keep missing in backward (2)"),
    ("relu_gate", "spurious relu gate in backward"),
    ("keep_before_bias", "bias added after the mask (1)/(2)"),
    ("dbias_scaled", "dbias scaled (1)"),
]:
    add("lin_" + bug, lin(bug), "linear", cause, **LF)


def lstate(bug):
    def f(q, k, v, state, do, dend):
        q, k, v, s0 = leaf(q, k, v, state)
        S = s0
        o = []
        sc = q.shape[-1] ** -0.5
        for t in range(q.shape[1]):
            kv = torch.einsum("bhd,bhe->bhde", k[:, t], v[:, t])
            before = S
            if bug == "decay":
                S = S * 0.99
            if bug == "detach":
                S = S.detach()
            S = S + kv
            use = before if bug == "exclusive" else S
            if bug == "state_unscaled":
                o.append(
                    torch.einsum("bhd,bhde->bhe", q[:, t], S - s0) * sc + torch.einsum("bhd,bhde->bhe", q[:, t], s0)
                )
            else:
                o.append(torch.einsum("bhd,bhde->bhe", q[:, t], use) * sc)
        o = torch.stack(o, 1)
        end = S * sc if bug == "end_scaled" else S
        torch.autograd.backward(
            [o] if bug == "dend_ignored" else [o, end], [T(do)] if bug == "dend_ignored" else [T(do), T(dend)]
        )
        return o, end, q.grad, k.grad, v.grad, s0.grad if s0.grad is not None else torch.zeros_like(s0)

    return f


for bug, cause in [
    ("decay", "decay .99 of state (6)"),
    ("detach", "state detached between steps"),
    ("exclusive", "key of the own position not seen (2)"),
    ("state_unscaled", "scale missing for old state (5)"),
    ("end_scaled", "end state scaled (4)/(6)"),
    ("dend_ignored", "gradient of end ignored (6),(4)"),
]:
    add("lstate_" + bug, lstate(bug), "linear_state", cause)


# ============ hyla
def hy(bug):
    def f(q, k, v, do, bias=None, keep=None, dropout=None):
        dt = q.dtype.type
        b, n, h, d = q.shape
        sc = dt(d**-0.5)
        eps = dt(1e-6)
        s = E_("bqhd,bkhd->bhqk", q, k) * sc
        if bias is not None:
            s = s + bias
        kp = np.ones(s.shape, bool) if keep is None else np.broadcast_to(keep, s.shape)
        r = np.ones_like(s) if dropout is None else np.broadcast_to(dropout, s.shape)
        if bug != "keep_after_norm":
            s = s * kp
        ms = (s * s).mean(1, keepdims=True)
        if bug == "norm_k":
            ms = (s * s).mean(-1, keepdims=True)
        if bug == "norm_sum":
            ms = (s * s).sum(1, keepdims=True)
        if bug == "norm_kept_heads":
            ms = (s * s).sum(1, keepdims=True) / np.maximum(kp.sum(1, keepdims=True), 1)
        if bug == "layernorm":
            s = s - s.mean(1, keepdims=True)
            ms = (s * s).mean(1, keepdims=True)
        if bug == "eps_outside":
            rho = 1 / (np.sqrt(ms) + eps)
        elif bug == "eps_1e5":
            rho = 1 / np.sqrt(ms + dt(1e-5))
        elif bug == "eps_none":
            rho = 1 / np.sqrt(np.maximum(ms, dt(1e-30)))
        elif bug == "eps_max":
            rho = 1 / np.sqrt(np.maximum(ms, eps))
        elif bug == "eps_unscaled":
            rho = 1 / np.sqrt(ms + eps / d)
        elif bug == "eps_outside_mean":
            rho = 1 / np.sqrt(ms + eps / h)
        else:
            rho = 1 / np.sqrt(ms + eps)
        a = s * rho
        if bug == "keep_after_norm":
            a = a * kp
        c = a * r
        c2 = a if bug == "dropout_once" else c
        z = E_("bhqk,bkhe->bqke", c, v)
        g = np.maximum(z, 0)
        if bug == "no_relu":
            g = z
        if bug == "gelu":
            g = 0.5 * z * (1 + np.tanh(dt(0.7978845608) * (z + dt(0.044715) * z**3)))
        if bug == "relu_on_v":
            g = E_("bhqk,bkhe->bqke", c, np.maximum(v, 0))
        if bug == "relu_after_sum_keys":
            g = np.broadcast_to(np.maximum(z.sum(2, keepdims=True), 0), z.shape)
        if bug == "sum_heads_mean":
            z = z / h
            g = np.maximum(z, 0)
        o = E_("bhqk,bqke->bqhe", c2, g)
        dg = E_("bhqk,bqhe->bqke", c2, do)
        gate = z > 0
        if bug == "gate_ge":
            gate = z >= 0
        if bug == "gate_g":
            gate = np.ones_like(z)
        if bug == "gate_dg":
            gate = dg > 0
        dz = dg * gate
        dc = E_("bqhe,bqke->bhqk", do, g)
        first = E_("bqke,bkhe->bhqk", dg if bug == "ungated_first_use" else dz, v)
        if bug == "one_use_a":
            dc = first
        elif bug == "one_use_b":
            pass
        elif bug == "twice":
            dc = dc + 2 * first
        else:
            dc = dc + first
        dv = E_("bhqk,bqke->bkhe", a if bug == "dv_no_dropout" else c, dz)
        if bug == "dv_second_use":
            dv = E_("bhqk,bqhe->bkhe", c, do)
        da = dc * r if bug != "da_no_dropout" else dc
        if bug == "rms_no_proj":
            ds = rho * da
        elif bug == "rms_sum":
            ds = rho * (da - a * (a * da).sum(1, keepdims=True))
        elif bug == "rms_s":
            ds = rho * (da - s * (a * da).mean(1, keepdims=True))
        elif bug == "rms_rho2":
            ds = rho * da - a * (a * da).mean(1, keepdims=True)
        elif bug == "rms_c":
            ds = rho * (da - c * (c * da).mean(1, keepdims=True))
        elif bug == "rms_axis":
            ds = rho * (da - a * (a * da).mean(-1, keepdims=True))
        else:
            ds = rho * (da - a * (a * da).mean(1, keepdims=True))
        if bug != "ds_no_keep":
            ds = ds * kp
        out = [o, E_("bhqk,bkhd->bqhd", ds, k) * sc, E_("bhqk,bqhd->bkhd", ds, q) * sc, dv]
        if bug == "dq_swapped_dk":
            out[1], out[2] = E_("bhqk,bqhd->bqhd", ds, q) * sc, E_("bhqk,bkhd->bkhd", ds, k) * sc
        if bias is not None:
            out.append(ub(ds, bias))
        return out

    return f


for bug, cause in [
    ("keep_after_norm", "keep applied after RMSHead (2)/(3)"),
    ("norm_k", "RMS over keys (3)"),
    ("norm_sum", "sum for mean (3)"),
    ("norm_kept_heads", "mean over kept heads only (3)"),
    ("layernorm", "mean subtracted (3)"),
    ("eps_outside", "eps outside root (3)"),
    ("eps_1e5", "eps 1e-5 (3)"),
    ("eps_none", "no eps (3)"),
    ("eps_max", "max(ms, eps) for + (3)"),
    ("eps_unscaled", "eps/d (3)"),
    ("eps_outside_mean", "eps/h: eps inside the sum before mean (3)"),
    ("dropout_once", "dropout in first use only (4)/(7)"),
    ("no_relu", "relu omitted (6) forward, gate kept"),
    ("gelu", "gelu for relu (6)"),
    ("relu_on_v", "relu on values before sum (5)/(6)"),
    ("relu_after_sum_keys", "relu after sum over keys (6)"),
    ("sum_heads_mean", "mean over heads in z (5)"),
    ("gate_ge", "gate z>=0 (same)"),
    ("gate_g", "relu gate missing (6)"),
    ("gate_dg", "gate on dg (6)"),
    ("ungated_first_use", "first use ungated (5)"),
    ("one_use_a", "second use (7) missing in dc"),
    ("one_use_b", "first use (5) missing in dc"),
    ("twice", "first use twice"),
    ("dv_no_dropout", "dv without dropout (5)"),
    ("dv_second_use", "dv from do not dz (5)"),
    ("da_no_dropout", "dropout missing in da (4)"),
    ("rms_no_proj", "projection missing (3)"),
    ("rms_sum", "sum for mean in (3)"),
    ("rms_s", "s for a (3)"),
    ("rms_rho2", "rho not on projection (3)"),
    ("rms_c", "c for a (3)"),
    ("rms_axis", "mean over keys in backward (3)"),
    ("ds_no_keep", "keep missing in backward (2)"),
]:
    add("hy_" + bug, hy(bug), "hyla", cause, **LF)


# ============ compositional (autograd; forward bugs with consistent gradients, plus detach bugs)
def cp(bug, scoring="dot"):
    def f(q, k, v, sel, *sc, bias=None, keep=None, dropout=None, do):
        x = leaf(q, k, v, sel, *sc)
        q, k, v, sel, *sc = x
        B = leaf(bias)[0] if bias is not None else None
        s = torch.einsum("bqsd,bksd->bsqk", q, k) / q.shape[-1] ** 0.5
        if B is not None:
            s = s + B
        kp = None
        if keep is not None:
            kp = T(keep)
            dead = (~kp).all(-1, keepdim=True)
            s = s.masked_fill(~kp, float("-inf")).masked_fill(dead, 0)
        a = s.softmax(-1)
        if kp is not None:
            a = a.masked_fill(dead, 0)
        r = 1 if dropout is None else T(dropout)
        c = a * r
        t = torch.einsum("bsqk,bkre->bqsre", c, v)
        tk = t
        if bug == "retr_detach":
            tk = t.detach()
        if bug == "keys_no_dropout":
            tk = torch.einsum("bsqk,bkre->bqsre", a, v)
        if scoring == "dot":
            (wr,) = sc
            C = sel.shape[-1]
            l = torch.einsum("bqsc,bqsrc->bqsr", sel, tk @ wr)
            l = l * {
                "scale_d": q.shape[-1] ** -0.5,
                "scale_e": v.shape[-1] ** -0.5,
                "noscale": 1,
                "scale_c": 1 / C,
            }.get(bug, C**-0.5)
        elif scoring == "linear":
            w, wq, b0 = sc
            l = torch.einsum("bqsre,e->bqsr", tk, w) + (sel @ wq)[..., None] + b0
            if bug == "sel_dropped":
                l = torch.einsum("bqsre,e->bqsr", tk, w) + b0
            if bug == "tanh":
                l = l.tanh()
        else:
            w, wq, b1, w2, b2 = sc
            hdn = tk @ w + (sel @ wq)[..., None, :] + (b1 if bug != "b1_after" else 0)
            hdn = {"gelu": F.gelu, "norelu": lambda y: y, "tanh": torch.tanh}.get(bug, torch.relu)(hdn)
            if bug == "b1_after":
                hdn = hdn + b1
            l = hdn @ w2 + b2
        g = l.softmax({"over_s": 2, "over_q": 1}.get(bug, 3))
        if bug == "hard":
            g = F.one_hot(l.argmax(-1), l.shape[-1]).to(l.dtype) + g - g.detach()
        if bug == "gate_detach":
            g = g.detach()
        if bug == "sigmoid":
            g = l.sigmoid()
        if bug == "sel_prev":
            g = torch.roll(g, 1, 2)
        o = torch.einsum("bqsr,bqsre->bqse", g, t.detach() if bug == "out_detach" else t)
        o.backward(T(do))
        z = lambda y: torch.zeros_like(y) if y.grad is None else y.grad
        gr = [z(y) for y in x]
        if bug == "dwr_mean":
            gr[4] = gr[4] / q.shape[0]
        if bug == "dwr_batch0":
            gr[4] = gr[4] * 0.5
        if B is not None:
            gr.insert(3, z(B))
        return (o, *gr)

    return f


for bug, cause in [
    ("scale_d", "value scores scaled by sqrt d of search (5)"),
    ("scale_e", "by sqrt e (5)"),
    ("noscale", "no scale (5)"),
    ("scale_c", "1/c (5)"),
    ("over_s", "softmax over searches (6)"),
    ("over_q", "softmax over queries (6)"),
    ("hard", "straight-through hard choice (6)"),
    ("gate_detach", "g detached: gradient through value scores missing (7)"),
    ("retr_detach", "t detached in keys: (5) dt missing"),
    ("out_detach", "t detached in output: (7) other use missing"),
    ("sigmoid", "sigmoid for softmax (6)"),
    ("sel_prev", "selector of another search (5)/(6)"),
    ("keys_no_dropout", "value scores from undropped retrievals (3)/(4)"),
    ("dwr_mean", "dwr mean over batch (5)"),
]:
    add("cp_" + bug, cp(bug), "compositional", cause, **LF)
add(
    "cp_lin_sel_dropped",
    cp("sel_dropped", "linear"),
    "compositional_linear",
    "selector omitted (a mathematically equal formula: RIGHT)",
)
add("cp_lin_tanh", cp("tanh", "linear"), "compositional_linear", "tanh on logits")
for b_, c_ in (
    ("gelu", "gelu for relu in scoring (5)"),
    ("norelu", "relu omitted in scoring (5)"),
    ("b1_after", "bias after relu (5)"),
    ("gate_detach", "g detached"),
    ("over_s", "softmax over searches"),
):
    add("cp_nl_" + b_, cp(b_, "nonlinear"), "compositional_nonlinear", c_)


# ============ sliding-dilated
def sdl(bug, pads=False):
    def f(q, k, v, r, *pd, do, bias=None, keep=None, dropout=None):
        x = leaf(q, k, v, r, *pd)
        q, k, v, r, *pd = x
        B = leaf(bias)[0] if bias is not None else None
        n, m, C, dil = q.shape[1], k.shape[1], r.shape[1], 2
        if bug == "dil1":
            dil = 1
        if bug == "dil3":
            dil = 3
        off = dil * torch.arange(C)
        if bug == "reversed":
            off = off.flip(0)
        if bug == "powers":
            off = torch.tensor([0] + [dil ** (i) for i in range(1, C)])
        if bug == "exclude_self":
            off = off + dil
        pos = torch.arange(n) if bug == "first_positions" else torch.arange(m - n, m)
        idx = pos[:, None] - off if bug != "forward" else pos[:, None] + off
        ok = (idx >= 0) & (idx < m)
        ii = idx.clamp(0, m - 1)
        if bug == "wrap":
            ii = idx % m
            ok = torch.ones_like(ok)
        if bug == "clamp":
            ok = torch.ones_like(ok)
        if bug == "ok_gt":
            ok = (idx > 0) & (idx < m)
        K, V = k[:, ii], v[:, ii]
        if pads:
            pk, pv = pd
            K = torch.where(ok[None, :, :, None, None], K, torch.zeros_like(pk) if bug == "pad_k_zero" else pk)
            V = torch.where(ok[None, :, :, None, None], V, pv.detach() if bug == "pad_v_detached" else pv)
            if bug != "pad_masked":
                ok = torch.ones_like(ok)
        if bug == "zero_pad":
            K = K * ok[None, :, :, None, None]
            V = V * ok[None, :, :, None, None]
            ok = torch.ones_like(ok)
        rr = r.flip(1) if bug == "r_reversed" else r
        s = torch.einsum("bqhd,bqwhd->bhqw", q, K)
        s = (
            (s + rr[:, None]) / q.shape[-1] ** 0.5
            if bug == "r_scaled"
            else s / q.shape[-1] ** 0.5 + (rr[:, None] if bug != "r_shared" else rr.mean(0))
        )
        if B is not None:
            s = s + B
        if keep is not None:
            ok = ok & T(keep)
        ok = ok.expand(s.shape)
        dead = (~ok).all(-1, keepdim=True)
        a = s.masked_fill(~ok, float("-inf")).masked_fill(dead, 0).softmax(-1).masked_fill(dead, 0)
        if dropout is not None:
            a = a * T(dropout)
        o = torch.einsum("bhqw,bqwhe->bqhe", a, V)
        o.backward(T(do))
        z = lambda y: torch.zeros_like(y) if y.grad is None else y.grad
        gr = [z(y) for y in x]
        if bug == "dr_mean":
            gr[3] = gr[3] / q.shape[0]
        if bug == "dr_scaled":
            gr[3] = gr[3] * q.shape[-1] ** -0.5
        if bug == "dk_scatter_assign":
            # scatter without accumulation: last writer wins
            dK = torch.zeros_like(k)
            c = a.detach()
            ds = None
        if B is not None:
            gr.insert(3, z(B))
        return (o, *gr)

    return f


SF = dict(bias="bhqw", keep="bhqw", dropout="bhqw")
for bug, cause in [
    ("dil1", "dilation 1 for 2 (1)/(6)"),
    ("dil3", "dilation 3 for 2"),
    ("reversed", "offsets reversed against r (2)"),
    ("powers", "offsets 0,2,4 as powers (same at C=3: RIGHT)"),
    ("exclude_self", "window starts one step back"),
    ("first_positions", "queries at first positions"),
    ("forward", "looks forward"),
    ("wrap", "negative indices wrap around"),
    ("clamp", "out of range clamped to key 0, not masked (4)"),
    ("ok_gt", "n > 0 for n >= 0 (4)"),
    ("zero_pad", "zero keys out of range not masked (4)"),
    ("r_scaled", "r divided by sqrt d (2)"),
    ("r_shared", "r mean of heads (2)"),
    ("dr_mean", "doffset_bias mean over batch (2)"),
    ("dr_scaled", "doffset_bias scaled (2)"),
]:
    add("sd_" + bug, sdl(bug), "sliding_dilated", cause, **SF)
for bug, cause in [
    ("pad_k_zero", "pad key zero"),
    ("pad_v_detached", "dpad_v missing (6)"),
    ("pad_masked", "pads masked"),
    ("r_reversed", "r reversed (2)"),
    ("dil1", "dilation 1"),
]:
    add("sdp_" + bug, sdl(bug, True), "sliding_dilated_pad", cause, **SF)


# ============ other rows of Table A1
def deep(bug):
    def f(q, k, v, wv2, do):
        q, k, v, w2 = leaf(q, k, v, wv2)
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        a = s * (s.square().mean(1, keepdim=True) + 1e-6).rsqrt()
        x = torch.einsum("bhqk,bkhe->bqke", a, v).relu()
        Wg = torch.einsum(
            "bhqk,hef->bqkef" if bug != "transposed" else "bhqk,hfe->bqkef",
            a.detach() if bug == "gen_detached" else a,
            w2,
        )
        x = (x.unsqueeze(-2) @ Wg).squeeze(-2)
        if bug != "no_second_relu":
            x = x.relu()
        o = torch.einsum("bhqk,bqke->bqhe", a, x)
        o.backward(T(do))
        return o, q.grad, k.grad, v.grad, w2.grad

    return f


for bug, cause in (
    ("transposed", "W' transposed (6)"),
    ("gen_detached", "code detached in second use (7)"),
    ("no_second_relu", "second relu omitted (8)"),
):
    add("deep_" + bug, deep(bug), "hyla_deep", cause)


def hs(order):
    def f(q, k, v, do):
        q, k, v = leaf(q, k, v)
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        rms = lambda y: y * (y.square().mean(1, keepdim=True) + 1e-6).rsqrt()
        a = rms(s.softmax(-1)) if order == "sr" else rms(s).softmax(-1) if order == "rs" else rms(s).softmax(1)
        o = torch.einsum("bhqk,bqke->bqhe", a, torch.einsum("bhqk,bkhe->bqke", a, v).relu())
        o.backward(T(do))
        return o, q.grad, k.grad, v.grad

    return f


add("hs_order", hs("rs"), "hyla_and_softmax", "order of normalisers exchanged (2)")
add("hs_rev_order", hs("sr"), "hyla_and_softmax_reversed", "order of normalisers exchanged (2)")
add("hs_axis", hs("rsh"), "hyla_and_softmax_reversed", "softmax over heads (2)")


def lrr(q, k, v, do):
    q, k, v = leaf(q, k, v)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    a = s * (s.square().mean(1, keepdim=True) + 1e-6).rsqrt()
    o = torch.einsum("bhqk,bkhe->bqhe", a, v).relu()
    o.backward(T(do))
    return o, q.grad, k.grad, v.grad


add("lrr_relu_after", lrr, "linear_rms_head_relu_values", "relu after the sum, not on the values (9)")


# ============ layers
def mhl(bug, which="hyla"):
    def core(P, x, c, B, kp, dr):
        q, k, v = qkv(P, x, c)
        if bug == "bk_for_bq":
            q = q - P["bq"] + P["bk"]
        if bug == "wk_q":
            k = torch.einsum("btm,mhd->bthd", c, P["wk"])
        if bug == "bias_ignored":
            B = None if B is None else B * 0
        o = (
            hyla_f(q, k, v, B, None if bug == "keep_ignored" else kp, dr)
            if which == "hyla"
            else soft(q, k, v, B, kp, dr)
        )
        if bug == "merge":
            h, e = o.shape[2:]
            m = x.shape[-1]
            return o.transpose(2, 3).flatten(2) @ P["wo"].reshape(h * e, m) + P["bo"]
        if bug == "split":  # heads taken innermost in the projection
            m = x.shape[-1]
            h, e = P["bv"].shape
            vv = (c @ P["wv"].reshape(m, -1) + P["bv"].reshape(-1)).unflatten(-1, (e, h)).transpose(-1, -2)
            o = hyla_f(q, k, vv, B, kp, dr)
        y = outm(P, o)
        if bug == "residual":
            y = y + x
        if bug == "bo_twice":
            y = y + P["bo"]
        return y

    base = layer(core)

    def f(**kw):
        r = base(**kw)
        if bug == "dbo_mean":
            r["dbo"] = r["dbo"] / kw["x"].shape[1]
        if bug == "dx_q_only":
            pass
        return r

    return f


for bug, cause in (
    ("merge", "features outermost in merge into wo (out)"),
    ("split", "heads innermost in split of values (in)"),
    ("bk_for_bq", "bk used for bq (in)"),
    ("wk_q", "bk omitted (in)"),
    ("residual", "residual added (out)"),
    ("bo_twice", "bo twice (out)"),
    ("dbo_mean", "dbo mean over positions (out)"),
    ("keep_ignored", "keep ignored (2)"),
    ("bias_ignored", "bias ignored (1)"),
):
    add("layer_" + bug, mhl(bug), "layers/MultiHead hyla", cause)


def ln5(x, scale, shift, do):
    x, g, b = leaf(x, scale, shift)
    y = F.layer_norm(x, x.shape[-1:], g, b, eps=1e-5)
    y.backward(T(do))
    return y, x.grad, g.grad, b.grad


add("ln_eps_1e-5", ln5, "ops/layer_norm", "eps 1e-5 for 1e-6")


def lnm(bug):
    def f(x, scale, shift, do):
        mu = x.mean(-1, keepdims=True)
        var = ((x - mu) ** 2).mean(-1, keepdims=True) if bug != "unbiased" else x.var(-1, ddof=1, keepdims=True)
        rs = 1 / np.sqrt(var + x.dtype.type(1e-6))
        xh = (x - mu) * rs
        y = xh * scale + shift
        dh = do * scale
        if bug == "no_mean":
            dx = rs * (dh - xh * (dh * xh).mean(-1, keepdims=True))
        elif bug == "no_proj":
            dx = rs * (dh - dh.mean(-1, keepdims=True))
        elif bug == "do_for_dh":
            dx = rs * (do - do.mean(-1, keepdims=True) - xh * (do * xh).mean(-1, keepdims=True))
        else:
            dx = rs * (dh - dh.mean(-1, keepdims=True) - xh * (dh * xh).mean(-1, keepdims=True))
        return y, dx, (do * xh).sum((0, 1)), do.sum((0, 1))

    return f


for bug, cause in (
    ("no_mean", "mean term missing"),
    ("no_proj", "projection missing"),
    ("do_for_dh", "scale missing in backward"),
    ("unbiased", "ddof=1"),
):
    add("ln_" + bug, lnm(bug), "ops/layer_norm", cause)
