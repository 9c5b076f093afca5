"""Pairs of forward and backward as a kernel author, a teacher or a student writes them. Each function returns a pair;
`slip` names the one mistake that its backward makes. rows.py has their inputs and the sizes of the mistakes."""

import math
from typing import NamedTuple

import numpy as np


def T(x):
    return np.swapaxes(x, -1, -2)


def softmax(s, axis=-1):
    e = np.exp(s - s.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def softmax_grad(a, da):
    return a * (da - (da * a).sum(-1, keepdims=True))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# ---- attention

def attention(slip=""):
    def forward(p):
        q, k, v = p["q"], p["k"], p["v"]
        scale = q.shape[-1] ** -0.5
        a = softmax(q @ T(k) * scale)
        return a @ v, (q, k, v, a, scale)

    def backward(saved, do):
        q, k, v, a, scale = saved
        da = do @ T(v)
        if slip == "no row sum":
            ds = a * da
        elif slip == "row sum over queries":
            ds = a * (da - (da * a).sum(-2, keepdims=True))
        else:
            ds = softmax_grad(a, da)
        dq = ds @ k * scale
        dk = T(ds) @ q * (1 if slip == "dk not scaled" else scale)
        return {"q": dq, "k": dk, "v": T(a) @ do}
    return forward, backward


def causal_attention(slip=""):
    """Recomputes the probabilities in backward, as memory-saving kernels do."""
    def probabilities(q, k, masked=True):
        s = q @ T(k) / np.sqrt(q.shape[-1])
        if masked:
            s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
        return softmax(s)

    def forward(p):
        return probabilities(p["q"], p["k"]) @ p["v"], p

    def backward(p, do):
        a = probabilities(p["q"], p["k"], slip != "mask forgotten")
        ds = softmax_grad(a, do @ T(p["v"])) / np.sqrt(p["q"].shape[-1])
        if slip == "last key of dk":
            dk = T(ds) @ p["q"]
            dk[..., -1, :] = 0
        else:
            dk = T(ds) @ p["q"]
        return {"q": ds @ p["k"], "k": dk, "v": T(a) @ do}
    return forward, backward


def padded_attention(slip=""):
    """lengths: how many keys are real, per sequence. Masks by adding -1e9."""
    def forward(p):
        q, k, v, n = p["q"], p["k"], p["v"], p["lengths"]
        real = np.arange(k.shape[-2]) < n[:, None, None]
        a = softmax(q @ T(k) / math.sqrt(q.shape[-1]) + np.where(real, 0, -1e9))
        return a @ v, (q, k, v, a, real)

    def backward(saved, do):
        q, k, v, a, real = saved
        da = do @ T(v)
        if slip == "mask after the sum":     # the padding takes part in the row's sum
            ds = a * (da - da.mean(-1, keepdims=True)) * real
        else:
            ds = softmax_grad(a, da)
        ds = ds / math.sqrt(q.shape[-1])
        return {"q": ds @ k, "k": T(ds) @ q, "v": T(a) @ do}
    return forward, backward


def alibi(slip=""):
    def forward(p):
        q, k, v, m = p["q"], p["k"], p["v"], p["slopes"]
        t = np.arange(q.shape[-2])
        far = np.abs(t[:, None] - t)
        a = softmax(q @ T(k) * q.shape[-1] ** -0.5 - m[:, None, None] * far)
        return a @ v, (q, k, v, a, far, t)

    def backward(saved, do):
        q, k, v, a, far, t = saved
        ds = softmax_grad(a, do @ T(v))
        way = t[:, None] - t if slip == "signed distance" else far
        dm = -(ds * way).sum((0, 2, 3))
        ds = ds * q.shape[-1] ** -0.5
        return {"q": ds @ k, "k": T(ds) @ q, "v": T(a) @ do, "slopes": -dm if slip == "sign of slopes" else dm}
    return forward, backward


def rotary(slip=""):
    def turn(x, cos, sin):
        a, b = x[..., ::2], x[..., 1::2]
        out = np.empty_like(x)
        out[..., ::2] = a * cos - b * sin
        out[..., 1::2] = a * sin + b * cos
        return out

    def forward(p):
        q, k = p["q"], p["k"]
        n, d = q.shape[-2:]
        angle = np.arange(n)[:, None] * 10000.0 ** (-np.arange(0, d, 2) / d)
        cos, sin = np.cos(angle), np.sin(angle)
        rq, rk = turn(q, cos, sin), turn(k, cos, sin)
        return rq @ T(rk), (rq, rk, cos, sin)

    def backward(saved, do):
        rq, rk, cos, sin = saved
        if slip == "turned the same way":
            return {"q": turn(do @ rk, cos, sin), "k": turn(T(do) @ rq, cos, sin)}
        if slip == "angle one position late":
            cos, sin = np.roll(cos, 1, 0), np.roll(sin, 1, 0)
        return {"q": turn(do @ rk, cos, -sin), "k": turn(T(do) @ rq, cos, -sin)}
    return forward, backward


def grouped_query(slip=""):
    def forward(p):
        q, k, v = p["q"], p["k"], p["v"]
        r = q.shape[1] // k.shape[1]
        kk, vv = np.repeat(k, r, 1), np.repeat(v, r, 1)
        a = softmax(q @ T(kk) / np.sqrt(q.shape[-1]))
        return a @ vv, dict(q=q, k=kk, v=vv, a=a, r=r)

    def backward(s, do):
        ds = softmax_grad(s["a"], do @ T(s["v"])) / np.sqrt(s["q"].shape[-1])
        dk, dv = T(ds) @ s["q"], T(s["a"]) @ do
        b, h, n, d = dk.shape
        if slip == "one head of each group":
            return {"q": ds @ s["k"], "k": dk[:, ::s["r"]], "v": dv[:, ::s["r"]]}
        if slip == "heads interleaved":
            return {"q": ds @ s["k"], "k": dk.reshape(b, s["r"], -1, n, d).sum(1),
                    "v": dv.reshape(b, s["r"], -1, n, d).sum(1)}
        return {"q": ds @ s["k"], "k": dk.reshape(b, -1, s["r"], n, d).sum(2),
                "v": dv.reshape(b, -1, s["r"], n, d).sum(2)}
    return forward, backward


def linear_attention(slip=""):
    """Causal, features elu + 1, with a normaliser."""
    def feature(x):
        return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))

    def feature_grad(x):
        return np.where(x > 0, 1.0, np.exp(np.minimum(x, 0)))

    def forward(p):
        q, k, v = feature(p["q"]), feature(p["k"]), p["v"]
        state = np.cumsum(k[..., :, None] * v[..., None, :], -3)
        norm = np.cumsum(k, -2)
        z = (q * norm).sum(-1, keepdims=True)
        y = (q[..., None, :] @ state)[..., 0, :] / z
        return y, (p, q, k, v, state, norm, z, y)

    def backward(saved, dy):
        p, q, k, v, state, norm, z, y = saved
        du = dy / z
        dz = -(dy * y).sum(-1, keepdims=True) / z
        if slip == "normaliser constant":
            dz = 0 * dz
        dq = (state @ du[..., None])[..., 0] + dz * norm
        dstate = q[..., :, None] * du[..., None, :]
        dstate = np.flip(np.cumsum(np.flip(dstate, -3), -3), -3)
        dnorm = dz * q
        dnorm = np.flip(np.cumsum(np.flip(dnorm, -2), -2), -2)
        if slip == "sum excludes its own step":
            dnorm = dnorm - dz * q
        dk = (dstate @ v[..., None])[..., 0] + dnorm
        dv = (k[..., None, :] @ dstate)[..., 0, :]
        return {"q": dq * feature_grad(p["q"]), "k": dk * feature_grad(p["k"]), "v": dv}
    return forward, backward


def gated_attention(slip=""):
    def forward(p):
        a = softmax(p["q"] @ T(p["k"]) / np.sqrt(p["q"].shape[-1]))
        o = a @ p["v"]
        g = sigmoid(p["gate"])
        return g * o, (p, a, o, g)

    def backward(saved, dy):
        p, a, o, g = saved
        do = dy if slip == "gate not applied" else g * dy
        dg = dy * o * (g if slip == "gate without 1 - g" else g * (1 - g))
        ds = softmax_grad(a, do @ T(p["v"])) / np.sqrt(p["q"].shape[-1])
        return {"q": ds @ p["k"], "k": T(ds) @ p["q"], "v": T(a) @ do, "gate": dg}
    return forward, backward


def sliding_window(slip=""):
    window = 3

    def forward(p):
        q, k, v = p["q"], p["k"], p["v"]
        t = np.arange(q.shape[-2])
        ok = (t[:, None] >= t) & (t[:, None] - t < window)
        s = q @ T(k) / np.sqrt(q.shape[-1])
        s = np.where(ok, s, -1e30)
        m = s.max(-1, keepdims=True)
        e = np.exp(s - m) * ok
        a = e / e.sum(-1, keepdims=True)
        return a @ v, [q, k, v, a, t]

    def backward(saved, do):
        q, k, v, a, t = saved
        if slip == "window one short":
            a = a * (t[:, None] - t < window - 1)
        ds = softmax_grad(a, do @ T(v)) / np.sqrt(q.shape[-1])
        return {"q": ds @ k, "k": T(ds) @ q, "v": T(a) @ do}
    return forward, backward


def flash(slip=""):
    """Tiles of keys, a running maximum and sum; saves only the logarithm of the sum."""
    tile = 4

    def forward(p):
        q, k, v = p["q"], p["k"], p["v"]
        scale = 1 / math.sqrt(q.shape[-1])
        out = np.zeros_like(q)
        m = np.full(q.shape[:-1], -np.inf, q.dtype)
        z = np.zeros(q.shape[:-1], q.dtype)
        for start in range(0, k.shape[-2], tile):
            kt, vt = k[..., start:start + tile, :], v[..., start:start + tile, :]
            s = q @ T(kt) * scale
            new = np.maximum(m, s.max(-1))
            w = np.exp(s - new[..., None])
            keep = np.exp(m - new)
            z = z * keep + w.sum(-1)
            out = out * keep[..., None] + w @ vt
            if slip == "lse without the last tile" and start + tile < k.shape[-2]:
                early = new + np.log(z)
            m = new
        out = out / z[..., None]
        lse = m + np.log(z)
        return out, (q, k, v, out, early if slip == "lse without the last tile" else lse, scale)

    def backward(saved, do):
        q, k, v, out, lse, scale = saved
        delta = (do * out).sum(-1, keepdims=True)
        dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
        n = k.shape[-2]
        end = n - n % tile if slip == "partial tile skipped" else n
        for start in range(0, end, tile):
            at = (..., slice(start, start + tile), slice(None))
            a = np.exp(q @ T(k[at]) * scale - lse[..., None])
            dv[at] = T(a) @ do
            ds = a * (do @ T(v[at]) - delta) * scale
            if slip == "dq of the last tile only":
                dq = ds @ k[at]
            else:
                dq += ds @ k[at]
            dk[at] = T(ds) @ q
        return {"q": dq, "k": dk, "v": dv}
    return forward, backward


def sinks(slip=""):
    """A learned logit for each head takes part in the softmax and has no value."""
    def forward(p):
        q, k, v, sink = p["q"], p["k"], p["v"], p["sink"]
        s = q @ T(k) / np.sqrt(q.shape[-1])
        extra = np.broadcast_to(sink[:, None, None], s.shape[:-1] + (1,))
        full = softmax(np.concatenate([s, extra], -1))
        return full[..., :-1] @ v, (q, k, v, full)

    def backward(saved, do):
        q, k, v, full = saved
        a, rest = full[..., :-1], full[..., -1]
        da = do @ T(v)
        row = (da * a).sum(-1)
        dsink = -rest * row
        if slip == "sink's sign":
            dsink = -dsink
        ds = a * (da - row[..., None]) / np.sqrt(q.shape[-1])
        return {"q": ds @ k, "k": T(ds) @ q, "v": T(a) @ do,
                "sink": dsink[0].sum(-1) if slip == "sink of the first batch" else dsink.sum((0, 2))}
    return forward, backward


def qk_norm(slip=""):
    eps = 1e-6

    def norm(x):
        r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
        return x * r, r

    def norm_grad(x, r, dy):
        if slip == "no projection":
            return dy * r
        cube = r ** 3 / (1 - eps * r * r) if slip == "eps outside" else r ** 3
        return dy * r - x * cube * (dy * x).mean(-1, keepdims=True)

    def forward(p):
        nq, rq = norm(p["q"])
        nk, rk = norm(p["k"])
        a = softmax(nq @ T(nk) * p["scale"])
        return a @ p["v"], (p, nq, rq, nk, rk, a)

    def backward(saved, do):
        p, nq, rq, nk, rk, a = saved
        ds = softmax_grad(a, do @ T(p["v"]))
        dscale = (ds * (nq @ T(nk))).sum()
        ds = ds * p["scale"]
        return {"q": norm_grad(p["q"], rq, ds @ nk), "k": norm_grad(p["k"], rk, T(ds) @ nq), "v": T(a) @ do,
                "scale": dscale}
    return forward, backward


def soft_cap(slip=""):
    cap = 5.0

    def forward(p):
        raw = p["q"] @ T(p["k"]) / np.sqrt(p["q"].shape[-1])
        t = np.tanh(raw / cap)
        a = softmax(cap * t)
        return a @ p["v"], (p, t, a)

    def backward(saved, do):
        p, t, a = saved
        ds = softmax_grad(a, do @ T(p["v"]))
        if slip == "cap passed through":
            pass
        elif slip == "1 - t":
            ds = ds * (1 - np.abs(t))
        else:
            ds = ds * (1 - t * t)
        ds = ds / np.sqrt(p["q"].shape[-1])
        return {"q": ds @ p["k"], "k": T(ds) @ p["q"], "v": T(a) @ do}
    return forward, backward


def mixture(slip=""):
    """Searches share retrievals: a second softmax mixes the retrievals of each search."""
    def forward(p):
        a = softmax(p["q"] @ T(p["k"]))                                  # (search, n, n)
        o = np.einsum("snm,rmd->snrd", a, p["v"])
        mix = softmax(np.einsum("sne,re->snr", p["query"], p["key"]))
        return np.einsum("snr,snrd->snd", mix, o), (p, a, o, mix)

    def backward(saved, dy):
        p, a, o, mix = saved
        dmix = np.einsum("snd,snrd->snr", dy, o)
        dl = mix * dmix if slip == "mixture's row sum" else softmax_grad(mix, dmix)
        do = np.einsum("snr,snd->snrd", mix, dy)
        ds = softmax_grad(a, np.einsum("snrd,rmd->snm", do, p["v"]))
        key = "sne,snr->re"
        dkey = np.einsum(key, p["query"], dl)
        if slip == "key of the first search":
            dkey = np.einsum(key, p["query"][:1], dl[:1])
        return {"q": ds @ p["k"], "k": T(ds) @ p["q"], "v": np.einsum("snm,snrd->rmd", a, do),
                "query": np.einsum("snr,re->sne", dl, p["key"]), "key": dkey}
    return forward, backward


def top_k(slip=""):
    keep = 3

    def forward(p):
        s = p["q"] @ T(p["k"])
        order = np.argsort(s, -1)
        chosen = np.zeros(s.shape, bool)
        np.put_along_axis(chosen, order[..., -keep:], True, -1)
        a = softmax(np.where(chosen, s, -np.inf))
        return a @ p["v"], (p, s, a, chosen)

    def backward(saved, do):
        p, s, a, chosen = saved
        if slip == "softmax of all":
            a = softmax(s)
        ds = softmax_grad(a, do @ T(p["v"]))
        return {"q": ds @ p["k"], "k": T(ds) @ p["q"], "v": T(a) @ do}
    return forward, backward


def differential(slip=""):
    def forward(p):
        a1, a2 = softmax(p["q1"] @ T(p["k1"])), softmax(p["q2"] @ T(p["k2"]))
        return (a1 - p["lam"] * a2) @ p["v"], (p, a1, a2)

    def backward(saved, do):
        p, a1, a2 = saved
        da = do @ T(p["v"])
        d1 = softmax_grad(a1, da)
        d2 = softmax_grad(a2, da if slip == "second map's sign" else -da) * p["lam"]
        dlam = -(da * a2).sum()
        if slip == "lam in dv":
            dv = T(a1 - a2) @ do
        else:
            dv = T(a1 - p["lam"] * a2) @ do
        return {"q1": d1 @ p["k1"], "k1": T(d1) @ p["q1"], "q2": d2 @ p["k2"], "k2": T(d2) @ p["q2"], "v": dv,
                "lam": dlam}
    return forward, backward


def relative_bias(slip=""):
    """A table of biases for each clipped distance, used by many entries of the scores."""
    reach = 2

    def forward(p):
        n = p["q"].shape[-2]
        index = np.clip(np.arange(n)[:, None] - np.arange(n), -reach, reach) + reach
        a = softmax(p["q"] @ T(p["k"]) + p["table"][:, index])
        return a @ p["v"], (p, a, index)

    def backward(saved, do):
        p, a, index = saved
        ds = softmax_grad(a, do @ T(p["v"]))
        dtable = np.zeros_like(p["table"])
        if slip == "repeated entries lost":
            dtable[:, index] = ds.sum(0)
        elif slip == "clipped entries lost":
            inside = np.abs(np.arange(len(index))[:, None] - np.arange(len(index))) <= reach
            np.add.at(dtable, (slice(None), index), ds.sum(0) * inside)
        else:
            np.add.at(dtable, (slice(None), index), ds.sum(0))
        return {"q": ds @ p["k"], "k": T(ds) @ p["q"], "v": T(a) @ do, "table": dtable}
    return forward, backward


def sigmoid_attention(slip=""):
    def forward(p):
        n = p["k"].shape[-2]
        a = sigmoid(p["q"] @ T(p["k"]) - math.log(n))
        return a @ p["v"], (p, a)

    def backward(saved, do):
        p, a = saved
        da = do @ T(p["v"])
        ds = da * a * (1 - a) if slip != "softmax's gradient" else softmax_grad(a, da)
        return {"q": ds @ p["k"], "k": T(ds) @ p["q"], "v": T(a) @ do}
    return forward, backward


def attention_dropout(slip=""):
    """keep: the mask that was drawn, a boolean array."""
    rate = 0.2

    def forward(p):
        a = softmax(p["q"] @ T(p["k"]))
        d = a * p["keep"] / (1 - rate)
        return d @ p["v"], (p, a, d)

    def backward(saved, do):
        p, a, d = saved
        da = (do @ T(p["v"])) * p["keep"]
        if slip != "scale forgotten":
            da = da / (1 - rate)
        ds = softmax_grad(d if slip == "dropped map in the softmax" else a, da)
        return {"q": ds @ p["k"], "k": T(ds) @ p["q"], "v": T(d) @ do}
    return forward, backward


def biased_attention(slip=""):
    """A bias (heads, n, n) for all of a batch."""
    def forward(p):
        a = softmax(p["q"] @ T(p["k"]) + p["bias"])
        return a @ p["v"], (p, a)

    def backward(saved, do):
        p, a = saved
        ds = softmax_grad(a, do @ T(p["v"]))
        dbias = ds.sum(0)
        if slip == "bias not summed":
            dbias = ds
        elif slip == "bias as a mean":
            dbias = ds.mean(0)
        elif slip == "bias of one row":
            dbias = ds.sum((0, 2), keepdims=True)[0]
        return {"q": ds @ p["k"], "k": T(ds) @ p["q"], "v": T(a) @ do, "bias": dbias}
    return forward, backward


def attention_block(slip=""):
    """Projections wq, wk, wv, wo, all square, and heads."""
    heads = 2

    def split(x):
        b, n, d = x.shape
        return x.reshape(b, n, heads, d // heads).swapaxes(1, 2)

    def join(x):
        b, h, n, d = x.shape
        return x.swapaxes(1, 2).reshape(b, n, h * d)

    def forward(p):
        x = p["x"]
        q, k, v = split(x @ p["wq"]), split(x @ p["wk"]), split(x @ p["wv"])
        a = softmax(q @ T(k) / math.sqrt(q.shape[-1]))
        o = join(a @ v)
        return o @ p["wo"] + p["bo"], (p, q, k, v, a, o)

    def backward(saved, dy):
        p, q, k, v, a, o = saved
        x = p["x"]
        dwo = np.einsum("bni,bnj->ij", o, dy)
        do = split(dy @ p["wo"].T)
        dv = T(a) @ do
        ds = softmax_grad(a, do @ T(v)) / math.sqrt(q.shape[-1])
        dq, dk, dv = join(ds @ k), join(T(ds) @ q), join(dv)
        g = {"wo": dwo.T if slip == "wo transposed" else dwo, "bo": dy.sum((0, 1))}
        g["x"] = dq @ p["wq"].T + dk @ p["wk"].T
        if slip != "x without its values":
            g["x"] = g["x"] + dv @ p["wv"].T
        for name, d in (("wq", dq), ("wk", dk), ("wv", dv)):
            g[name] = np.einsum("bni,bnj->ij", x, d)
        if slip == "wk gets dq":
            g["wk"] = g["wq"]
        return g
    return forward, backward


def delta_rule(slip=""):
    """DeltaNet: S_t = S_{t-1} + b_t k_t (v_t - S_{t-1}^T k_t)^T; o_t = S_t^T q_t."""
    def forward(p):
        q, k, v, b = p["q"], p["k"], p["v"], p["b"]
        n, d = k.shape
        state = np.zeros((d, v.shape[-1]), k.dtype)
        states, errors, out = [state], [], []
        for t in range(n):
            e = v[t] - k[t] @ state
            state = state + b[t] * np.outer(k[t], e)
            states.append(state)
            errors.append(e)
            out.append(q[t] @ state)
        return np.stack(out), (p, states, errors)

    def backward(saved, do):
        p, states, errors = saved
        q, k, b = p["q"], p["k"], p["b"]
        g = {name: np.zeros_like(p[name]) for name in "qkvb"}
        ds = np.zeros_like(states[0])
        for t in reversed(range(len(k))):
            g["q"][t] = states[t + 1] @ do[t]
            ds = ds + np.outer(q[t], do[t])
            de = b[t] * (k[t] @ ds)
            g["b"][t] = k[t] @ ds @ errors[t]
            old = states[t + 1] if slip == "stale state" else states[t]
            g["k"][t] = b[t] * (ds @ errors[t]) - old @ de
            g["v"][t] = de
            if slip != "state not corrected":
                ds = ds - np.outer(k[t], de)
        return g
    return forward, backward


def retention(slip=""):
    """A learned decay, gamma = sigmoid(raw), to the power of the distance."""
    def forward(p):
        n = p["q"].shape[-2]
        far = np.arange(n)[:, None] - np.arange(n)
        gamma = 1 / (1 + np.exp(-p["raw"]))
        decay = np.where(far >= 0, gamma ** np.maximum(far, 0), 0)
        s = p["q"] @ T(p["k"])
        return (s * decay) @ p["v"], (p, far, gamma, decay, s)

    def backward(saved, do):
        p, far, gamma, decay, s = saved
        dw = do @ T(p["v"])
        ds = dw * decay
        slope = np.where(far > 0, far * gamma ** np.maximum(far - 1, 0), 0)
        if slip == "power not lowered":
            slope = far * decay
        draw = (dw * s * slope).sum() * gamma * (1 - gamma)
        return {"q": ds @ p["k"], "k": T(ds) @ p["q"], "v": T(s * decay) @ do, "raw": draw}
    return forward, backward


def masked_rows(slip=""):
    """Rows that see nothing give zeros."""
    def forward(p):
        s = np.where(p["mask"], p["q"] @ T(p["k"]), -np.inf)
        top = np.where(p["mask"].any(-1, keepdims=True), s.max(-1, keepdims=True), 0)
        e = np.exp(s - top)
        z = e.sum(-1, keepdims=True)
        a = e / np.where(z == 0, 1, z)
        return a @ p["v"], (p, a)

    def backward(saved, do):
        p, a = saved
        ds = softmax_grad(a, do @ T(p["v"]))
        if slip == "NaN in empty rows":
            with np.errstate(invalid="ignore"):
                ds = ds / a.sum(-1, keepdims=True)
        return {"q": ds @ p["k"], "k": T(ds) @ p["q"], "v": T(a) @ do}
    return forward, backward


def attention_and_entropy(slip=""):
    """Two outputs: what is retrieved and the entropy of each row."""
    def forward(p):
        a = softmax(p["q"] @ T(p["k"]))
        h = -(a * np.log(a)).sum(-1)
        return (a @ p["v"], h), (p, a)

    def backward(saved, grads):
        do, dh = grads
        p, a = saved
        da = do @ T(p["v"])
        if slip != "entropy ignored":
            dlog = np.log(a) + (0 if slip == "no +1" else 1)      # a constant: the softmax's gradient drops it
            da = da + dh[..., None] * (dlog if slip == "entropy's sign" else -dlog)
        ds = softmax_grad(a, da)
        return {"q": ds @ p["k"], "k": T(ds) @ p["q"], "v": T(a) @ do}
    return forward, backward


def attention_and_choice(slip=""):
    """The second output is the key that each query looks at most, an integer array."""
    def forward(p):
        a = softmax(p["q"] @ T(p["k"]))
        return (a @ p["v"], a.argmax(-1)), (p, a)

    def backward(saved, grads):
        p, a = saved
        do = grads[0]
        ds = softmax_grad(a, do @ T(p["v"]))
        return {"q": ds @ p["k"], "k": (T(ds) if slip != "ds not transposed" else ds) @ p["q"], "v": T(a) @ do}
    return forward, backward


def hypernetwork_attention(slip=""):
    """Linear attention over heads, normalised across heads by its root mean square."""
    eps = 1e-6

    def forward(p):
        s = np.einsum("bhnd,bhmd->bhnm", p["q"], p["k"]) * p["q"].shape[-1] ** -0.5
        r = 1 / np.sqrt((s ** 2).mean(1, keepdims=True) + eps)
        a = np.tril(s * r)
        return np.einsum("bhnm,bhmd->bhnd", a, p["v"]), (p, s, r, a)

    def backward(saved, do):
        p, s, r, a = saved
        da = np.tril(np.einsum("bhnd,bhmd->bhnm", do, p["v"]))
        axis = -1 if slip == "mean over keys" else 1
        ds = r * da - s * r ** 3 * (s * da).mean(axis, keepdims=True)
        ds = ds * p["q"].shape[-1] ** -0.5
        return {"q": np.einsum("bhnm,bhmd->bhnd", ds, p["k"]), "k": np.einsum("bhnm,bhnd->bhmd", ds, p["q"]),
                "v": np.einsum("bhnm,bhnd->bhmd", a, do)}
    return forward, backward


def single_precision_attention(slip=""):
    """The forward and the backward cast to float32, as a kernel for a GPU does."""
    def forward(p):
        q, k, v = (p[name].astype(np.float32) for name in "qkv")
        a = softmax(q @ T(k))
        return a @ v, (q, k, v, a)

    def backward(saved, do):
        q, k, v, a = saved
        do = do.astype(np.float32)
        ds = softmax_grad(a, do @ T(v))
        dk = T(ds) @ q
        if slip == "one in a thousand":
            dk = dk * np.float32(1.001)
        return {"q": ds @ k, "k": dk, "v": T(a) @ do}
    return forward, backward


# ---- norms

def layer_norm(slip="", eps=1e-5):
    def forward(p):
        x = p["x"]
        mean = x.mean(-1, keepdims=True)
        var = x.var(-1, keepdims=True)
        r = 1 / np.sqrt(var + eps)
        xh = (x - mean) * r
        return xh * p["gamma"] + p["beta"], (xh, r, p["gamma"])

    def backward(saved, dy):
        xh, r, gamma = saved
        dxh = dy * gamma
        dx = dxh - xh * (dxh * xh).mean(-1, keepdims=True)
        if slip != "no mean":
            dx = dx - dxh.mean(-1, keepdims=True)
        axes = tuple(range(dy.ndim - 1))
        dgamma = (dy * (xh if slip != "gamma without the normalised" else 1)).sum(axes)
        if slip == "gamma over the last axis":
            dgamma = (dy * xh).sum(-1)
        return {"x": dx * r, "gamma": dgamma, "beta": dy.sum(axes)}
    return forward, backward


def layer_norm_by_abs2(slip=""):
    """np.var of a complex array is that of absolute values, and np.abs is used for the mean here."""
    def forward(p):
        x = p["x"]
        mad = np.abs(x - x.mean(-1, keepdims=True)).mean(-1, keepdims=True)
        return (x - x.mean(-1, keepdims=True)) / mad, (x, mad)

    def backward(saved, dy):
        x, mad = saved
        c = x - x.mean(-1, keepdims=True)
        dc = dy / mad - np.sign(c) * (dy * c).sum(-1, keepdims=True) / (mad * mad) / x.shape[-1]
        return {"x": dc if slip == "not centred" else dc - dc.mean(-1, keepdims=True)}
    return forward, backward


def rms_norm(slip="", eps=1e-6):
    def forward(p):
        ms = np.mean(np.square(p["x"]), -1, keepdims=True)
        r = 1 / np.sqrt(ms + eps)
        return p["x"] * r * p["gain"], (p["x"], p["gain"], ms, r)

    def backward(saved, dy):
        x, gain, ms, r = saved
        d = dy * gain
        inner = (d * x).mean(-1, keepdims=True)
        dx = r * (d - x * inner / ms) if slip == "eps forgotten" else r * d - x * r ** 3 * inner
        dgain = (dy * x * r).reshape(-1, x.shape[-1])
        return {"x": dx, "gain": dgain[-1] if slip == "gain of the last row" else dgain.sum(0)}
    return forward, backward


def group_norm(slip=""):
    groups, eps = 2, 1e-5

    def forward(p):
        x = p["x"]
        n, c, h, w = x.shape
        g = x.reshape(n, groups, -1)
        mu = g.mean(-1, keepdims=True)
        r = ((g - mu) ** 2).mean(-1, keepdims=True) + eps
        r = r ** -0.5
        xh = ((g - mu) * r).reshape(x.shape)
        return xh * p["w"][:, None, None] + p["b"][:, None, None], (xh, r, p["w"])

    def backward(saved, dy):
        xh, r, w = saved
        n = dy.shape[0]
        d = (dy * w[:, None, None]).reshape(n, groups, -1)
        h = xh.reshape(n, groups, -1)
        m = d.shape[-1] * (groups if slip == "count of all channels" else 1)
        dx = r * (d - d.sum(-1, keepdims=True) / m - h * (d * h).sum(-1, keepdims=True) / m)
        return {"x": dx.reshape(dy.shape), "w": (dy * xh).sum((0, 2, 3)),
                "b": dy.sum((0, 2)).sum(-1) if slip != "b over the batch" else dy.sum((1, 2, 3))}
    return forward, backward


def weight_norm(slip=""):
    def forward(p):
        norm = np.linalg.norm(p["v"], axis=1, keepdims=True)
        w = p["g"][:, None] * p["v"] / norm
        return p["x"] @ w.T, (p, w, norm)

    def backward(saved, dy):
        p, w, norm = saved
        dw = dy.T @ p["x"]
        dg = (dw * p["v"]).sum(1) / norm[:, 0]
        dv = p["g"][:, None] / norm * dw
        if slip != "no projection":
            dv = dv - (p["g"] * dg)[:, None] * p["v"] / norm ** 2
        return {"x": dy @ w, "g": dg, "v": dv}
    return forward, backward


def batch_norm(slip=""):
    """Saves its running averages, too."""
    def forward(p):
        x = p["x"]
        mean, var = x.mean(0), ((x - x.mean(0)) ** 2).mean(0)
        running = {"mean": 0.9 * p["running_mean"] + 0.1 * mean, "var": 0.9 * p["running_var"] + 0.1 * var}
        xh = (x - mean) / np.sqrt(var + 1e-5)
        return xh * p["w"] + p["b"], (xh, var, running, p["w"])

    def backward(saved, dy):
        xh, var, running, w = saved
        if slip == "running variance":
            var = running["var"]
        n = len(dy)
        m = n - 1 if slip == "n - 1" else n
        d = dy * w
        dx = (d - d.sum(0) / n - xh * (d * xh).sum(0) / m) / np.sqrt(var + 1e-5)
        if slip == "statistics constant":
            dx = d / np.sqrt(var + 1e-5)
        return {"x": dx, "w": (dy * xh).sum(0), "b": dy.sum(0)}
    return forward, backward


def unit_rows(slip=""):
    """x / max(|x|, eps), as F.normalize does."""
    def forward(p):
        n = np.sqrt((p["x"] ** 2).sum(-1, keepdims=True))
        c = np.maximum(n, 1e-3)
        return p["x"] / c, (p["x"], n, c)

    def backward(saved, dy):
        x, n, c = saved
        if slip == "no projection":
            return {"x": dy / c}
        inner = (dy * x).sum(-1, keepdims=True) / c ** 3
        if slip == "clipped rows projected":
            return {"x": dy / c - x * inner}
        return {"x": dy / c - np.where(n > 1e-3, x * inner, 0)}
    return forward, backward


def spectral_norm(slip=""):
    """One step of the power iteration from a fixed u; u and v are constants for the gradient of sigma by convention,
    but here they are differentiated, because the forward computes them from w."""
    def forward(p):
        v = p["w"].T @ p["u"]
        sigma = np.sqrt((v ** 2).sum())
        return p["w"] / sigma, (p, v, sigma)

    def backward(saved, dy):
        p, v, sigma = saved
        inner = (dy * p["w"]).sum()
        dsigma = -inner / sigma ** 2
        dv = dsigma * v / sigma
        dw = dy / sigma + np.outer(p["u"], dv)
        du = p["w"] @ dv
        if slip == "sigma constant":
            dw = dy / sigma
        return {"w": dw, "u": du}
    return forward, backward


# ---- activations and kinks

def elementwise(f, df):
    def forward(p):
        return f(p["x"]), p["x"]

    def backward(x, dy):
        return {"x": dy * df(x)}
    return forward, backward


def relu(slip=""):
    at_zero = {"": 0.0, "half at zero": 0.5, "one at zero": 1.0, "two at zero": 2.0}.get(slip, 0.0)

    def slope(x):
        if slip == "mask of the absolute":
            return np.where(np.abs(x) > 0, 1.0, 0.0)
        return np.where(x > 0, 1.0, np.where(x == 0, at_zero, 0.0))
    return elementwise(lambda x: np.maximum(x, 0), slope)


def relu_by_mask(slip=""):
    """x * (x > 0), with the output saved in place of the input."""
    def forward(p):
        y = p["x"] * (p["x"] > 0)
        return y, y

    def backward(y, dy):
        return {"x": dy * (y > 0 if slip != "not masked" else 1)}
    return forward, backward


def leaky(slip=""):
    a = 0.01
    return elementwise(lambda x: np.where(x > 0, x, a * x),
                       lambda x: np.where(x > 0, 1, {"": a, "zero below": 0, "sign below": -a}[slip]))


def hard_swish(slip=""):
    def slope(x):
        inner = (x + 3) / 6 if slip == "x constant" else (2 * x + 3) / 6
        return np.where(x <= -3, 0, np.where(x >= 3, 1, inner))
    return elementwise(lambda x: x * np.clip(x + 3, 0, 6) / 6, slope)


def gelu_tanh(slip=""):
    c = math.sqrt(2 / math.pi)

    def slope(x):
        t = np.tanh(c * (x + 0.044715 * x ** 3))
        inner = c * (1 + (1 if slip == "factor 3" else 3) * 0.044715 * x * x)
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner
    return elementwise(lambda x: 0.5 * x * (1 + np.tanh(c * (x + 0.044715 * x ** 3))), slope)


def gelu_erf(slip=""):
    from scipy.special import erf

    def slope(x):
        if slip == "slope of the approximation":
            t = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))
            return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
        return 0.5 * (1 + erf(x / math.sqrt(2))) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return elementwise(lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))), slope)


def absolute(slip=""):
    return elementwise(np.abs, lambda x: np.sign(x) if slip == "" else np.ones_like(x))


def clip(slip=""):
    low, high = -0.5, 0.8

    def slope(x):
        if slip == "passed through":
            return np.ones_like(x)
        return ((x > low) & (x < high)) if slip == "" else (np.abs(x) < high)
    return elementwise(lambda x: np.clip(x, low, high), slope)


def softplus(slip=""):
    return elementwise(lambda x: np.logaddexp(0, x), lambda x: sigmoid(-x if slip == "sign" else x))


def softsign(slip=""):
    return elementwise(lambda x: x / (1 + abs(x)), lambda x: 1 / (1 + abs(x)) ** (1 if slip == "power" else 2))


def mish(slip=""):
    def slope(x):
        sp = np.log1p(np.exp(x))
        t = np.tanh(sp)
        return t + x * (1 - t * t) * (1 if slip == "inner slope" else sigmoid(x))
    return elementwise(lambda x: x * np.tanh(np.log1p(np.exp(x))), slope)


def selu(slip=""):
    a, s = 1.6732632423543772, 1.0507009873554805
    return elementwise(lambda x: s * np.where(x > 0, x, a * np.expm1(x)),
                       lambda x: np.where(x > 0, s, (1 if slip == "scale below" else s) * a * np.exp(x)))


def hard_sigmoid(slip=""):
    return elementwise(lambda x: np.minimum(np.maximum(x / 6 + 0.5, 0), 1),
                       lambda x: (np.abs(x) < (2.5 if slip == "other bound" else 3)) / 6)


def hard_tanh_float32(slip=""):
    """Gradients in float32 from inputs in float64."""
    return elementwise(lambda x: np.clip(x, -1, 1), lambda x: (np.abs(x) <= 1).astype(np.float32))


def rounded_gradient(slip="", dtype=np.float16):
    """tanh whose backward returns its gradient in half precision."""
    def forward(p):
        y = np.tanh(p["x"])
        return y, y

    def backward(y, dy):
        return {"x": (dy * (1 - y * y) * (1.05 if slip == "one in twenty" else 1)).astype(dtype)}
    return forward, backward


def straight_through(slip=""):
    return elementwise(lambda x: np.round(x * 4) / 4, lambda x: np.ones_like(x))


def prelu(slip=""):
    def forward(p):
        return np.where(p["x"] >= 0, p["x"], p["alpha"] * p["x"]), p

    def backward(p, dy):
        below = p["x"] < 0
        if slip == "alpha of the positive":
            dalpha = (dy * np.where(below, 0, p["x"])).sum(0)
        else:
            dalpha = (dy * np.where(below, p["x"], 0)).sum(0)
        if slip == "alpha keeps the batch":
            dalpha = dy * np.where(below, p["x"], 0)
        return {"x": dy * np.where(below, p["alpha"], 1), "alpha": dalpha}
    return forward, backward


def swiglu(slip=""):
    def forward(p):
        u, g = p["x"] @ p["w1"], p["x"] @ p["w2"]
        s = sigmoid(g)
        return (u * g * s) @ p["w3"], (p, u, g, s)

    def backward(saved, dy):
        p, u, g, s = saved
        h = u * g * s
        dh = dy @ p["w3"].T
        du = dh * g * s
        dg = dh * u * (s * (1 - s) if slip == "sigmoid's slope" else s * (1 + g * (1 - s)))
        return {"x": du @ p["w1"].T + dg @ p["w2"].T, "w1": p["x"].T @ du, "w2": p["x"].T @ dg, "w3": h.T @ dy}
    return forward, backward


def row_max(slip=""):
    def forward(p):
        return p["x"].max(-1), p["x"]

    def backward(x, dy):
        if slip == "the first of ties":
            g = np.zeros_like(x)
            np.put_along_axis(g, x.argmax(-1)[:, None], dy[:, None], -1)
            return {"x": g}
        hit = x == x.max(-1, keepdims=True)
        if slip != "ones for all ties":
            hit = hit / hit.sum(-1, keepdims=True)
        if slip == "the smallest":
            hit = x == x.min(-1, keepdims=True)
        return {"x": dy[:, None] * hit}
    return forward, backward


def max_pool(slip=""):
    """Windows of 3 with step 2: they overlap."""
    def forward(p):
        x = p["x"]
        starts = np.arange(0, x.shape[-1] - 2, 2)
        windows = np.stack([x[:, s:s + 3] for s in starts], 1)
        return windows.max(-1), (x.shape, starts + windows.argmax(-1))

    def backward(saved, dy):
        shape, index = saved
        g = np.zeros(shape)
        rows = np.arange(shape[0])[:, None]
        if slip == "assigned":
            g[rows, index] = dy
        else:
            np.add.at(g, (rows, index), dy)
        return {"x": g}
    return forward, backward


def weighted_sort(slip=""):
    def forward(p):
        order = np.argsort(p["x"])
        return np.sort(p["x"]) * np.arange(1, len(order) + 1), order

    def backward(order, dy):
        d = dy * np.arange(1, len(order) + 1)
        if slip == "the order itself":
            return {"x": d[order]}
        g = np.empty_like(d)
        g[order] = d
        return {"x": g}
    return forward, backward


def median(slip=""):
    def forward(p):
        return np.median(p["x"], axis=-1), p["x"]

    def backward(x, dy):
        order = np.argsort(x, -1)
        n = x.shape[-1]
        g = np.zeros_like(x)
        for i in range(len(x)):
            if n % 2 or slip == "one of two":
                g[i, order[i, n // 2]] = dy[i]
            else:
                g[i, order[i, n // 2 - 1:n // 2 + 1]] = dy[i] / 2
        return {"x": g}
    return forward, backward


# ---- losses

def cross_entropy(slip="", smoothing=0.0):
    def forward(p):
        z, y = p["logits"], p["labels"]
        n, c = z.shape
        top = z.max(1, keepdims=True)
        logp = z - top - np.log(np.exp(z - top).sum(1, keepdims=True))
        target = np.full((n, c), smoothing / c)
        target[np.arange(n), y] += 1 - smoothing
        return -(target * logp).sum() / n, (logp, target, y)

    def backward(saved, dloss):
        logp, target, y = saved
        n, c = logp.shape
        if slip == "not a mean":
            n = 1
        if slip == "smoothing over the others":
            target = np.full(logp.shape, smoothing / (c - 1))
            target[np.arange(len(y)), y] = 1 - smoothing
        if slip == "smoothing forgotten":
            target = np.eye(c)[y]
        if slip == "the next label":
            target = np.roll(target, 1, 1)
        return {"logits": dloss * (np.exp(logp) - target) / n}
    return forward, backward


def ignored_labels(slip=""):
    """Rows of label -100 do not count."""
    def forward(p):
        z, y = p["logits"], p["labels"]
        real = y != -100
        a = softmax(z)
        picked = a[np.arange(len(y)), np.where(real, y, 0)]
        return -(np.log(picked) * real).sum() / real.sum(), (a, y, real)

    def backward(saved, dloss):
        a, y, real = saved
        g = a.copy()
        g[np.arange(len(y)), np.where(real, y, 0)] -= 1
        n = len(y) if slip == "mean over all" else real.sum()
        return {"logits": dloss * g * (1 if slip == "ignored rows counted" else real[:, None]) / n}
    return forward, backward


def focal(slip=""):
    gamma = 2.0

    def forward(p):
        a = softmax(p["logits"])
        pt = a[np.arange(len(a)), p["labels"]]
        return (-(1 - pt) ** gamma * np.log(pt)).mean(), (a, pt, p["labels"])

    def backward(saved, d):
        a, pt, y = saved
        dpt = -(1 - pt) ** gamma / pt
        if slip != "factor constant":
            dpt = dpt + gamma * (1 - pt) ** (gamma - 1) * np.log(pt)
        dz = -a * pt[:, None]
        dz[np.arange(len(y)), y] += pt
        return {"logits": d * dpt[:, None] * dz / len(y)}
    return forward, backward


def huber(slip=""):
    delta = 0.7

    def forward(p):
        r = p["x"] - p["y"]
        a = np.abs(r)
        return np.where(a <= delta, 0.5 * r * r, delta * (a - 0.5 * delta)).sum(), r

    def backward(r, d):
        outer = np.sign(r) * (1 if slip == "delta forgotten" else delta)
        g = d * np.where(np.abs(r) <= delta, r, outer)
        return {"x": g, "y": g if slip == "sign of y" else -g}
    return forward, backward


def distillation(slip=""):
    """T^2 KL(teacher || student) with temperature T; the teacher gets no gradient: it is a constant."""
    t = 2.0

    def forward(p):
        s, r = softmax(p["student"] / t), softmax(p["teacher"] / t)
        return t * t * (r * (np.log(r) - np.log(s))).sum() / len(s), (s, r)

    def backward(saved, d):
        s, r = saved
        return {"student": d * (s - r) * {"": t, "T squared": t * t, "no T": 1.0}[slip] / len(s)}
    return forward, backward


def kl_both(slip=""):
    """KL(p || q) of two given distributions, differentiated by both."""
    def forward(p):
        return (p["p"] * np.log(p["p"] / p["q"])).sum(), p

    def backward(p, d):
        dp = np.log(p["p"] / p["q"]) + (0 if slip == "no + 1" else 1)
        return {"p": d * dp, "q": -d * p["p"] / p["q"]}
    return forward, backward


def log_sum_exp(slip=""):
    def forward(p):
        x = p["x"]
        m = x.max(-1, keepdims=True)
        return (m + np.log(np.exp(x - m).sum(-1, keepdims=True)))[..., 0], x

    def backward(x, dy):
        e = np.exp(x - x.max(-1, keepdims=True))
        if slip == "not normalised":
            return {"x": dy[:, None] * e}
        return {"x": dy[:, None] * e / e.sum(-1, keepdims=True)}
    return forward, backward


def z_loss(slip=""):
    def forward(p):
        m = p["x"].max(-1)
        z = m + np.log(np.exp(p["x"] - m[:, None]).sum(-1))
        return (z ** 2).mean(), (p["x"], z)

    def backward(saved, d):
        x, z = saved
        g = 2 * d * z / (1 if slip == "mean" else len(z))
        return {"x": g[:, None] * np.exp(x - z[:, None])}
    return forward, backward


def cosine(slip=""):
    def forward(p):
        a, b = p["a"], p["b"]
        na, nb = np.sqrt((a * a).sum(-1)), np.sqrt((b * b).sum(-1))
        c = (a * b).sum(-1) / (na * nb)
        return 1 - c, (a, b, na, nb, c)

    def backward(saved, d):
        a, b, na, nb, c = (np.asarray(s)[..., None] if s.ndim < 2 else s for s in saved)
        d = d[..., None]
        da = -d * (b / (na * nb) - c * a / na ** 2)
        db = -d * (a / (na * nb) - c * b / nb ** 2)
        if slip == "no projection":
            db = -d * a / (na * nb)
        return {"a": da, "b": db}
    return forward, backward


def bce_with_logits(slip=""):
    weight = 3.0

    def forward(p):
        x, y = p["x"], p["y"]
        w = 1 + (weight - 1) * y
        return ((1 - y) * x + w * (np.log1p(np.exp(-np.abs(x))) + np.maximum(-x, 0))).mean(), (x, y, w)

    def backward(saved, d):
        x, y, w = saved
        s = 1 / (1 + np.exp(-x))
        if slip == "positive weight":
            w = 1
        return {"x": d * ((1 - y) - w * (1 - s)) / x.size}
    return forward, backward


def masked_mse(slip=""):
    def forward(p):
        r = (p["x"] - p["y"]) * p["mask"]
        return (r * r).sum() / p["mask"].sum(), (r, p["mask"])

    def backward(saved, d):
        r, mask = saved
        n = mask.size if slip == "mean over all" else mask.sum()
        g = (1 if slip == "factor 2" else 2) * d * r / n
        return {"x": g, "y": -g}
    return forward, backward


def info_nce(slip=""):
    """Both directions, with a learned temperature."""
    def forward(p):
        s = p["a"] @ p["b"].T * np.exp(p["t"])
        rows, cols = softmax(s), softmax(s.T)
        i = np.arange(len(s))
        return -(np.log(rows[i, i]) + np.log(cols[i, i])).mean() / 2, (p, s, rows, cols)

    def backward(saved, d):
        p, s, rows, cols = saved
        one = np.eye(len(s))
        back = cols - one
        ds = (rows - one) + (back if slip == "second half not transposed" else back.T)
        if slip == "one direction":
            ds = 2 * (rows - one)
        ds = d * ds / (2 * len(s))
        dt = (ds * s).sum()
        ds = ds * np.exp(p["t"])
        return {"a": ds @ p["b"], "b": ds.T @ p["a"], "t": float(dt)}
    return forward, backward


def gaussian_nll(slip=""):
    def forward(p):
        v = np.exp(p["logvar"])
        r = p["y"] - p["mean"]
        return 0.5 * (p["logvar"] + r ** 2 / v).sum(), (r, v)

    def backward(saved, d):
        r, v = saved
        dl = 0.5 * (1 - r ** 2 / v)
        if slip == "half":
            dl = 1 - 0.5 * r ** 2 / v
        return {"mean": -d * r / v, "y": d * r / v, "logvar": d * dl}
    return forward, backward


def triplet(slip=""):
    def forward(p):
        dp = ((p["a"] - p["pos"]) ** 2).sum(-1)
        dn = ((p["a"] - p["neg"]) ** 2).sum(-1)
        h = dp - dn + 1.0
        return np.maximum(h, 0).mean(), (p, h)

    def backward(saved, d):
        p, h = saved
        w = 2 * d * (h > 0)[:, None] / len(h)
        if slip == "margin forgotten":
            w = 2 * d * (h > 1)[:, None] / len(h)
        return {"a": w * (p["neg"] - p["pos"]), "pos": -w * (p["a"] - p["pos"]), "neg": w * (p["a"] - p["neg"])}
    return forward, backward


def hmm(slip=""):
    """The logarithm of a sequence's probability by the forward algorithm, in logarithms; backward by the posteriors."""
    def lse(x, axis):
        m = x.max(axis, keepdims=True)
        return np.squeeze(m, axis) + np.log(np.exp(x - m).sum(axis))

    def forward(p):
        e, a = p["emit"], p["trans"]
        alpha = [e[0]]
        for t in range(1, len(e)):
            alpha.append(lse(alpha[-1][:, None] + a, 0) + e[t])
        return lse(alpha[-1], 0), (e, a, alpha)

    def backward(saved, d):
        e, a, alpha = saved
        de, da = np.zeros_like(e), np.zeros_like(a)
        g = softmax(alpha[-1]) * d
        for t in range(len(e) - 1, 0, -1):
            de[t] = g
            w = softmax(alpha[t - 1][:, None] + a, 0) * g
            da += w
            g = w.sum(1)
        if slip != "first step":
            de[0] = g
        if slip == "last transition only":
            da = softmax(alpha[-2][:, None] + a, 0) * de[-1]
        return {"emit": de, "trans": da}
    return forward, backward


def variance_of_moments(slip=""):
    """E[x^2] - E[x]^2 far from zero: a difference of great numbers."""
    def forward(p):
        x = p["x"]
        return (x * x).mean(-1) - x.mean(-1) ** 2, x

    def backward(x, d):
        n = x.shape[-1]
        if slip == "first term only":
            return {"x": 2 * d[:, None] * x / n}
        return {"x": 2 * d[:, None] * (x - x.mean(-1, keepdims=True)) / (n - 1 if slip == "n - 1" else n)}
    return forward, backward


# ---- recurrent

def lstm(slip=""):
    """Buffers are made by np.zeros, in float64."""
    def forward(p):
        x, w, u, b = p["x"], p["w"], p["u"], p["b"]
        n, bs, _ = x.shape
        hid = u.shape[0]
        h, c = np.zeros((n + 1, bs, hid)), np.zeros((n + 1, bs, hid))
        gates = []
        for t in range(n):
            z = x[t] @ w + h[t] @ u + b
            i, f, o = (sigmoid(z[:, j * hid:(j + 1) * hid]) for j in range(3))
            g = np.tanh(z[:, 3 * hid:])
            c[t + 1] = f * c[t] + i * g
            h[t + 1] = o * np.tanh(c[t + 1])
            gates.append((i, f, o, g))
        return h[1:], (p, h, c, gates)

    def backward(saved, dy):
        p, h, c, gates = saved
        x, w, u = p["x"], p["w"], p["u"]
        dx, dw, du, db = np.zeros_like(x), np.zeros_like(w), np.zeros_like(u), np.zeros_like(p["b"])
        dh, dc = np.zeros_like(h[0]), np.zeros_like(c[0])
        for t in reversed(range(len(x))):
            i, f, o, g = gates[t]
            dh = dh + dy[t]
            th = np.tanh(c[t + 1])
            do = dh * th * o * (1 - o)
            dc = dc + dh * o * (1 - th * th)
            old = c[t + 1] if slip == "stale cell" else c[t]
            dz = np.concatenate([dc * g * i * (1 - i), dc * old * f * (1 - f), do, dc * i * (1 - g * g)], -1)
            dx[t] = dz @ w.T
            dw += x[t].T @ dz
            du += h[t].T @ dz
            db += dz.sum(0)
            dh = dz @ u.T
            dc = dc * (0 if slip == "cell not carried" else f)
        return {"x": dx, "w": dw, "u": du, "b": db}
    return forward, backward


def gru(slip=""):
    def forward(p):
        h = p["h0"]
        steps = []
        for x in p["x"]:
            r, z = sigmoid(x @ p["wr"] + h @ p["ur"]), sigmoid(x @ p["wz"] + h @ p["uz"])
            n = np.tanh(x @ p["wn"] + (r * h) @ p["un"])
            steps.append((x, h, r, z, n))
            h = (1 - z) * n + z * h
        return h, (p, steps)

    def backward(saved, dh):
        p, steps = saved
        g = {k: np.zeros_like(v) for k, v in p.items()}
        for t in reversed(range(len(steps))):
            x, h, r, z, n = steps[t]
            dn = dh * (1 - z) * (1 - n * n)
            dz = dh * (h - n) * z * (1 - z)
            drh = dn @ p["un"].T
            dr = drh * h * r * (1 - r)
            g["un"] += (h if slip == "reset forgotten" else r * h).T @ dn
            g["wn"] += x.T @ dn
            g["ur"] += h.T @ dr
            g["wr"] += x.T @ dr
            g["uz"] += h.T @ dz
            g["wz"] += x.T @ dz
            g["x"][t] = dn @ p["wn"].T + dr @ p["wr"].T + dz @ p["wz"].T
            dh = dh * z + drh * r + dr @ p["ur"].T + dz @ p["uz"].T
        g["h0"] = dh
        return g
    return forward, backward


def scan(slip=""):
    """h_t = a_t h_{t-1} + x_t."""
    def forward(p):
        a, x = p["a"], p["x"]
        h = np.empty_like(x)
        last = p["h0"]
        for t in range(len(x)):
            last = a[t] * last + x[t]
            h[t] = last
        return h, (a, h, p["h0"])

    def backward(saved, dy):
        a, h, h0 = saved
        da, dx = np.empty_like(a), np.empty_like(h)
        g = np.zeros_like(h0)
        for t in range(len(a) - 1, -1, -1):
            g = g + dy[t]
            dx[t] = g
            da[t] = g * (h[t - 1] if t else h0)
            if slip == "wraps around":
                da[t] = g * h[t - 1]
            g = g * a[t - 1 if slip == "decay of the step before" else t]
        return {"a": da, "x": dx, "h0": g}
    return forward, backward


def state_space(slip=""):
    """A diagonal state-space model with a step for each position: h = exp(dt A) h + dt B x; y = C h + D x."""
    def forward(p):
        dt = np.log1p(np.exp(p["raw"]))                       # (n, d)
        a = -np.exp(p["log_a"])                               # (d, s)
        h = np.zeros(a.shape, dt.dtype)
        hs, out = [h], []
        for t in range(len(dt)):
            h = np.exp(dt[t][:, None] * a) * h + (dt[t] * p["x"][t])[:, None] * p["b"][t]
            hs.append(h)
            out.append(h @ p["c"][t] + p["skip"] * p["x"][t])
        return np.stack(out), (p, dt, a, hs)

    def backward(saved, dy):
        p, dt, a, hs = saved
        g = {k: np.zeros_like(v) for k, v in p.items()}
        dh, da = np.zeros_like(hs[0]), np.zeros_like(a)
        for t in reversed(range(len(dt))):
            g["c"][t] = dy[t] @ hs[t + 1]
            g["skip"] += dy[t] * p["x"][t]
            dh = dh + dy[t][:, None] * p["c"][t]
            decay = np.exp(dt[t][:, None] * a)
            into = dh @ p["b"][t]
            g["x"][t] = dt[t] * into + p["skip"] * dy[t]
            g["b"][t] = (dt[t] * p["x"][t]) @ dh
            ddecay = dh * hs[t] * decay
            ddt = into * p["x"][t] + (0 if slip == "step in the decay" else (ddecay * a).sum(1))
            da += ddecay * dt[t][:, None]
            g["raw"][t] = ddt * (1 if slip == "softplus" else sigmoid(p["raw"][t]))
            dh = dh * decay
        g["log_a"] = da * a * (-1 if slip == "sign of log a" else 1)
        return g
    return forward, backward


def rnn(slip=""):
    def forward(p):
        h, hs = np.zeros((len(p["x"][0]), len(p["u"])), p["u"].dtype), []
        for x in p["x"]:
            h = np.tanh(x @ p["w"] + h @ p["u"])
            hs.append(h)
        return h @ p["out"], (p, hs)

    def backward(saved, dy):
        p, hs = saved
        g = {k: np.zeros_like(v) for k, v in p.items()}
        g["out"] = hs[-1].T @ dy
        dh = dy @ p["out"].T
        for t in reversed(range(len(hs))):
            dz = dh * (1 - hs[t] ** 2)
            g["x"][t] = dz @ p["w"].T
            g["w"] += p["x"][t].T @ dz
            if t:
                g["u"] += hs[t - 1].T @ dz
            dh = dz @ (p["u"] if slip == "u not transposed" else p["u"].T)
            if slip == "truncated" and len(hs) - t == 4:
                break
        return g
    return forward, backward


def complex_recurrence(slip=""):
    """A linear recurrent unit: complex decays inside, a real output, real parameters."""
    def forward(p):
        lam = np.exp(-np.exp(p["nu"]) + 1j * p["theta"])
        h = np.zeros(lam.shape, complex)
        hs = [h]
        for x in p["x"]:
            h = lam * h + x
            hs.append(h)
        hs = np.array(hs)
        return (hs[1:] * (p["cr"] + 1j * p["ci"])).real, (p, lam, hs)

    def backward(saved, dy):
        p, lam, hs = saved
        c = p["cr"] + 1j * p["ci"]
        g = {k: np.zeros_like(v) for k, v in p.items()}
        dh, dlam = np.zeros_like(lam), np.zeros_like(lam)     # the gradient is dre + i dim
        for t in reversed(range(len(dy))):
            dh = dh + dy[t] * np.conj(c)
            g["x"][t] = dh.real
            dlam += dh * np.conj(hs[t])
            dh = dh * (lam if slip == "not conjugated" else np.conj(lam))
        dlog = dlam * np.conj(lam)
        g["nu"] = -np.exp(p["nu"]) * dlog.real
        g["theta"] = dlog.imag * (-1 if slip == "sign of theta" else 1)
        g["cr"], g["ci"] = (dy * hs[1:].real).sum(0), -(dy * hs[1:].imag).sum(0)
        return g
    return forward, backward


# ---- convolutions and resampling

def conv1d(slip=""):
    """Padded to the same length; x (batch, channels, n), w (out, channels, 3)."""
    def forward(p):
        x, w = p["x"], p["w"]
        xp = np.pad(x, ((0, 0), (0, 0), (1, 1)))
        y = sum(np.einsum("bcn,oc->bon", xp[:, :, j:j + x.shape[-1]], w[:, :, j]) for j in range(3))
        return y + p["b"][:, None], (xp, w)

    def backward(saved, dy):
        xp, w = saved
        n = dy.shape[-1]
        dxp, dw = np.zeros_like(xp), np.zeros_like(w)
        for j in range(3):
            dw[:, :, j] = np.einsum("bcn,bon->oc", xp[:, :, j:j + n], dy)
            at = 2 - j if slip == "kernel not flipped" else j
            dxp[:, :, at:at + n] += np.einsum("bon,oc->bcn", dy, w[:, :, j])
        return {"x": dxp[:, :, 1:-1], "w": dw, "b": dy.sum((0, 2)) if slip != "b over positions" else dy[0].sum(-1)}
    return forward, backward


def conv2d(slip=""):
    """Step 2 by columns."""
    k, step = 3, 2

    def forward(p):
        x = p["x"]
        n, c, h, w = x.shape
        oh, ow = (h - k) // step + 1, (w - k) // step + 1
        cols = np.empty((n, oh, ow, c, k, k), x.dtype)
        for i in range(oh):
            for j in range(ow):
                cols[:, i, j] = x[:, :, i * step:i * step + k, j * step:j * step + k]
        y = cols.reshape(n, oh, ow, -1) @ p["w"].reshape(len(p["w"]), -1).T
        return y.transpose(0, 3, 1, 2), (x.shape, cols, p["w"])

    def backward(saved, dy):
        shape, cols, w = saved
        d = dy.transpose(0, 2, 3, 1)
        dw = np.tensordot(d, cols, ((0, 1, 2), (0, 1, 2)))
        dcols = np.tensordot(d, w, (3, 0))
        dx = np.zeros(shape)
        for i in range(d.shape[1]):
            for j in range(d.shape[2]):
                at = (slice(None), slice(None), slice(i * step, i * step + k), slice(j * step, j * step + k))
                if slip == "assigned":
                    dx[at] = dcols[:, i, j]
                else:
                    dx[at] += dcols[:, i, j]
        return {"x": dx, "w": dw if slip != "w turned" else dw.swapaxes(-1, -2)}
    return forward, backward


def causal_depthwise(slip=""):
    def forward(p):
        x, w = p["x"], p["w"]                     # (n, d), (width, d)
        y = np.zeros_like(x)
        for j in range(len(w)):
            y[j:] += w[j] * x[:len(x) - j]
        return y, (x, w)

    def backward(saved, dy):
        x, w = saved
        dx, dw = np.zeros_like(x), np.zeros_like(w)
        for j in range(len(w)):
            dx[:len(x) - j] += w[j] * dy[j:]
            dw[j] = (x[:len(x) - j] * dy[j:]).sum(0)
        if slip == "last tap":
            dw[-1] = 0
        if slip == "last position":
            dx[-1] = 0
        return {"x": dx, "w": dw}
    return forward, backward


def average_pool(slip=""):
    """Windows of 3 with one of padding; the padding does not count."""
    def forward(p):
        n = p["x"].shape[-1]
        xp = np.pad(p["x"], ((0, 0), (1, 1)))
        count = np.convolve(np.ones(n), np.ones(3), "same")
        return (xp[:, :-2] + xp[:, 1:-1] + xp[:, 2:]) / count, count

    def backward(count, dy):
        d = np.pad(dy / (3 if slip == "padding counted" else count), ((0, 0), (1, 1)))
        return {"x": d[:, :-2] + d[:, 1:-1] + d[:, 2:]}
    return forward, backward


def interpolate(slip=""):
    """A signal read at real positions, linearly between its samples."""
    def forward(p):
        at, x = p["at"], p["x"]
        i = np.clip(np.floor(at).astype(int), 0, len(x) - 2)
        f = at - i
        return (1 - f) * x[i] + f * x[i + 1], (x, i, f)

    def backward(saved, dy):
        x, i, f = saved
        g = np.zeros_like(x)
        np.add.at(g, i, (1 - f) * dy)
        np.add.at(g, i + 1, (1 - f if slip == "both weights the same" else f) * dy)
        return {"x": g, "at": dy * (x[i + 1] - x[i]) * (-1 if slip == "sign of the position" else 1)}
    return forward, backward


# ---- gather and scatter

def embedding(slip=""):
    def forward(p):
        return p["table"][p["tokens"]] * math.sqrt(p["table"].shape[1]), (p["tokens"], p["table"].shape)

    def backward(saved, dy):
        tokens, shape = saved
        g = np.zeros(shape)
        d = dy if slip == "scale" else dy * math.sqrt(shape[1])
        if slip == "repeated tokens lost":
            g[tokens] += d
        else:
            np.add.at(g, tokens, d)
        return {"table": g, "tokens": None}
    return forward, backward


def tied_embedding(slip=""):
    def forward(p):
        x = np.tanh(p["table"][p["tokens"]])
        return x @ p["table"].T, (p["table"], p["tokens"], x)

    def backward(saved, dy):
        table, tokens, x = saved
        g = np.einsum("nv,nd->vd", dy, x)
        if slip != "output only":
            np.add.at(g, tokens, dy @ table * (1 - x * x))
        return {"table": g}
    return forward, backward


def segment_mean(slip=""):
    def forward(p):
        n = p["segment"].max() + 1
        out = np.zeros((n, p["x"].shape[1]), p["x"].dtype)
        np.add.at(out, p["segment"], p["x"])
        count = np.bincount(p["segment"], minlength=n)[:, None]
        return out / count, (p["segment"], count)

    def backward(saved, dy):
        segment, count = saved
        return {"x": (dy if slip == "count" else dy / count)[segment]}
    return forward, backward


def gather_columns(slip=""):
    def forward(p):
        return np.take_along_axis(p["x"], p["index"], 1), (p["x"].shape, p["index"])

    def backward(saved, dy):
        shape, index = saved
        g = np.zeros(shape)
        if slip == "put":
            np.put_along_axis(g, index, dy, 1)
        else:
            np.add.at(g, (np.arange(shape[0])[:, None], index), dy)
        return {"x": g}
    return forward, backward


def experts(slip=""):
    """Each row goes to its best expert, scaled by the router's probability."""
    def forward(p):
        r = softmax(p["x"] @ p["router"])
        e = r.argmax(-1)
        y = np.empty((len(e), p["w"].shape[-1]), r.dtype)
        for j in range(len(p["w"])):
            y[e == j] = p["x"][e == j] @ p["w"][j]
        gate = r[np.arange(len(e)), e]
        return y * gate[:, None], (p, r, e, y, gate)

    def backward(saved, do):
        p, r, e, y, gate = saved
        dy = do * gate[:, None]
        dx, dw = np.zeros_like(p["x"]), np.zeros_like(p["w"])
        for j in range(len(p["w"])):
            dx[e == j] = dy[e == j] @ p["w"][j].T
            dw[j] = p["x"][e == j].T @ dy[e == j]
        dr = np.zeros_like(r)
        dr[np.arange(len(e)), e] = (do * y).sum(-1)
        dl = softmax_grad(r, dr)
        if slip == "gate constant":
            dl = 0 * dl
        if slip != "x without its router":
            dx = dx + dl @ p["router"].T
        return {"x": dx, "w": dw, "router": p["x"].T @ dl}
    return forward, backward


# ---- matrices

def inverse(slip=""):
    def forward(p):
        y = np.linalg.inv(p["a"])
        return y, y

    def backward(y, d):
        return {"a": -(y @ d @ y) if slip == "not transposed" else -(T(y) @ d @ T(y)) * (-1 if slip == "sign" else 1)}
    return forward, backward


def solve(slip=""):
    def forward(p):
        x = np.linalg.solve(p["a"], p["b"])
        return x, (p["a"], x)

    def backward(saved, d):
        a, x = saved
        db = np.linalg.solve(a if slip == "a not transposed" else a.T, d)
        return {"a": db @ x.T if slip == "sign" else -db @ x.T, "b": db}
    return forward, backward


def cholesky(slip=""):
    """Of x x^T + n I."""
    def forward(p):
        x = p["x"]
        low = np.linalg.cholesky(x @ x.T + len(x) * np.eye(len(x)))
        return low, (x, low)

    def backward(saved, d):
        x, low = saved
        phi = np.tril(low.T @ np.tril(d))
        if slip != "diagonal not halved":
            phi[np.diag_indices(len(phi))] /= 2
        inv = np.linalg.inv(low)
        s = inv.T @ phi @ inv
        return {"x": (2 * s if slip == "not symmetric" else s + s.T) @ x}
    return forward, backward


def determinant(slip=""):
    def forward(p):
        return np.linalg.det(p["a"]), p["a"]

    def backward(a, d):
        inv = np.linalg.inv(a)
        return {"a": d * np.linalg.det(a) * (inv if slip == "not transposed" else inv.T)}
    return forward, backward


def log_determinant(slip=""):
    def forward(p):
        return np.linalg.slogdet(p["a"])[1], p["a"]

    def backward(a, d):
        return {"a": d * np.linalg.inv(a).T * (2 if slip == "factor" else 1)}
    return forward, backward


def matrix_exponential(slip=""):
    from scipy.linalg import expm

    def forward(p):
        e = expm(p["a"])
        return e, (p["a"], e)

    def backward(saved, d):
        a, e = saved
        if slip == "as if it commuted":
            return {"a": e.T @ d}
        n = len(a)
        block = np.block([[a.T, d], [np.zeros((n, n)), a.T]])
        return {"a": expm(block)[:n, n:]}
    return forward, backward


def frobenius(slip=""):
    def forward(p):
        n = np.linalg.norm(p["a"])
        return n, (p["a"], n)

    def backward(saved, d):
        a, n = saved
        return {"a": d * a / (n * n if slip == "square" else n)}
    return forward, backward


def quadratic(slip=""):
    def forward(p):
        return p["x"] @ p["a"] @ p["x"], p

    def backward(p, d):
        x, a = p["x"], p["a"]
        return {"x": d * (2 * a @ x if slip == "as if symmetric" else (a + a.T) @ x), "a": d * np.outer(x, x)}
    return forward, backward


def largest_eigenvalue(slip=""):
    def forward(p):
        s = (p["a"] + p["a"].T) / 2
        w, v = np.linalg.eigh(s)
        return w[-1], v[:, -1]

    def backward(v, d):
        return {"a": d * np.outer(v, v) * (0.5 if slip == "half" else 1)}
    return forward, backward


def nuclear_norm(slip=""):
    def forward(p):
        u, s, vt = np.linalg.svd(p["a"], full_matrices=False)
        return s.sum(), (u, vt)

    def backward(saved, d):
        u, vt = saved
        return {"a": d * (u @ vt if slip == "" else vt.T @ u.T)}
    return forward, backward


def sinkhorn(slip=""):
    rounds = 3

    def forward(p):
        s = p["s"]
        steps = []
        for _ in range(rounds):
            for axis in (1, 0):
                m = s.max(axis, keepdims=True)
                s = s - m - np.log(np.exp(s - m).sum(axis, keepdims=True))
                steps.append((axis, np.exp(s)))
        return np.exp(s), steps

    def backward(steps, d):
        d = d * steps[-1][1]
        for i, (axis, a) in enumerate(reversed(steps)):
            if slip == "last round only" and i == 2:
                break
            if slip == "stale map":
                a = steps[-1][1]
            d = d - a * d.sum(axis, keepdims=True)
        return {"s": d}
    return forward, backward


def batched_matmul(slip=""):
    """Weights (k, k) against a batch: both are square, so that every transpose fits."""
    def forward(p):
        return p["x"] @ p["w"], (p["x"], p["w"])

    def backward(saved, dy):
        x, w = saved
        dw = np.einsum("bni,bnj->ij", x, dy)
        if slip == "w's gradient transposed":
            dw = dw.T
        return {"x": dy @ (w if slip == "w not transposed" else w.T), "w": dw}
    return forward, backward


def low_rank(slip=""):
    """x (w + s b a) with a given scale s, a 0-d array."""
    def forward(p):
        xb = p["x"] @ p["b"]
        return p["x"] @ p["w"] + p["s"] * (xb @ p["a"]), (p, xb)

    def backward(saved, dy):
        p, xb = saved
        dxb = p["s"] * dy @ p["a"].T
        da = p["s"] * xb.T @ dy
        if slip == "scale of a":
            da = xb.T @ dy
        return {"x": dy @ p["w"].T + dxb @ p["b"].T, "w": p["x"].T @ dy, "a": da, "b": p["x"].T @ dxb,
                "s": (dy * (xb @ p["a"])).sum()}
    return forward, backward


# ---- Fourier transforms

def fourier_mixing(slip=""):
    """The real part of a 2-D transform, as FNet's."""
    def forward(p):
        return np.fft.fft2(p["x"]).real, None

    def backward(_, dy):
        if slip == "inverse transform":
            return {"x": np.fft.ifft2(dy).real}
        return {"x": np.fft.fft2(dy).real}
    return forward, backward


def long_convolution(slip=""):
    """A causal convolution by transforms of twice the length."""
    def forward(p):
        n = p["x"].shape[-1]
        fx, fh = np.fft.rfft(p["x"], 2 * n), np.fft.rfft(p["h"], 2 * n)
        return np.fft.irfft(fx * fh, 2 * n)[..., :n], (fx, fh, n)

    def backward(saved, dy):
        fx, fh, n = saved
        fd = np.fft.rfft(dy, 2 * n)
        dh = np.fft.irfft(fd * (fx if slip == "not conjugated" else np.conj(fx)), 2 * n)[..., :n]
        return {"x": np.fft.irfft(fd * np.conj(fh), 2 * n)[..., :n],
                "h": dh.sum(0) if slip != "batch of h" else dh.mean(0)}
    return forward, backward


def power_spectrum(slip=""):
    def forward(p):
        f = np.fft.fft(p["x"])
        return np.abs(f) ** 2, f

    def backward(f, dy):
        n = f.shape[-1]
        return {"x": (1 if slip == "factor 2" else 2) * n * np.fft.ifft(dy * f).real}
    return forward, backward


# ---- shapes, types, objects

def cube_of_scalar(slip=""):
    def forward(p):
        return p["x"] ** 3, p["x"]

    def backward(x, dy):
        return {"x": dy * (2 if slip == "factor" else 3) * x ** 2}
    return forward, backward


def square(slip=""):
    return elementwise(lambda x: x * x, lambda x: x if slip == "factor 2" else 2 * x)


def log_of_one_plus(slip=""):
    return elementwise(np.log1p, lambda x: 1 / x if slip == "of log" else 1 / (1 + x))


def reciprocal(slip=""):
    return elementwise(lambda x: 1 / x, lambda x: -1 / x if slip == "power" else -1 / x ** 2)


def square_root(slip=""):
    return elementwise(np.sqrt, lambda x: (1 if slip == "half" else 0.5) / np.sqrt(x))


def add_bias(slip=""):
    """A bias of one entry per column, optional. `other` may be None."""
    def forward(p):
        y = p["x"] + p["b"]
        return (y if p["other"] is None else y + p["other"]), p["b"].shape

    def backward(shape, dy):
        db = dy.sum(0)
        if slip == "keeps an axis":
            db = dy[:1] + dy[1:].sum(0)
        if slip == "a scalar":
            db = dy.sum() / dy.shape[1]
        if slip == "the first row":
            db = dy[0]
        return {"x": dy, "b": db}
    return forward, backward


def identity_view(slip=""):
    """Outputs that are its input and a view of it; a bool array as third output."""
    def forward(p):
        x = p["x"]
        return (x, x.T, x > 0), None

    def backward(_, grads):
        if slip == "view not transposed":
            return {"x": grads[0] + grads[1]}
        return {"x": grads[0] + grads[1].T}
    return forward, backward


def same_twice(slip=""):
    """Returns one array as two gradients, and a gradient of something that is no input."""
    def forward(p):
        return p["a"] + p["b"], ()

    def backward(_, dy):
        return {"a": dy, "b": -dy if slip == "sign" else dy, "hidden": dy.sum()}
    return forward, backward


class Saved(NamedTuple):
    x: np.ndarray
    w: np.ndarray
    pre: np.ndarray


def named_saved(slip=""):
    def forward(p):
        pre = p["x"] @ p["w"]
        return np.sin(pre), Saved(p["x"], p["w"], pre)

    def backward(saved, dy):
        d = dy * (np.sin if slip == "sine" else np.cos)(saved.pre)
        return {"x": d @ saved.w.T, "w": saved.x.T @ d}
    return forward, backward


def closure_saved(slip=""):
    """forward returns the backward itself as what it saves."""
    def forward(p):
        x, w = p["x"], p["w"]
        h = np.tanh(x @ w)

        def pull(dy):
            d = dy * (1 - (h if slip == "no square" else h * h))
            return {"x": d @ w.T, "w": x.T @ d}
        return h, pull

    def backward(pull, dy):
        return pull(dy)
    return forward, backward


class Layer:
    """A teacher's layer: it keeps what the last forward saw."""

    def __init__(self, slip):
        self.slip = slip

    def forward(self, p):
        self.x, self.w = p["x"], p["w"]
        self.h = np.exp(self.x @ self.w)
        return self.h, self

    @staticmethod
    def backward(self, dy):
        d = dy * (1 if self.slip == "no slope" else self.h)
        return {"x": d @ self.w.T, "w": self.x.T @ d}


def layer_object(slip=""):
    layer = Layer(slip)
    return layer.forward, layer.backward


def in_place_backward(slip=""):
    """backward writes into the gradient that it is given."""
    def forward(p):
        mask = p["x"] > 0
        return 3 * p["x"] * mask, mask

    def backward(mask, dy):
        dy *= mask
        if slip != "factor":
            dy *= 3
        return {"x": dy}
    return forward, backward


def accumulating(slip=""):
    """backward adds to a buffer; the slip forgets to clear it."""
    buffer = {}

    def forward(p):
        if slip == "":
            buffer.clear()
        return p["x"] @ p["w"], p

    def backward(p, dy):
        for name, g in (("x", dy @ p["w"].T), ("w", p["x"].T @ dy)):
            buffer[name] = buffer.get(name, 0) + g
        return {name: buffer[name].copy() for name in "xw"}
    return forward, backward


def forgotten_gradient(slip=""):
    def forward(p):
        return p["x"] * p["scale"], p

    def backward(p, dy):
        return {"x": dy * p["scale"]} if slip else {"x": dy * p["scale"], "scale": (dy * p["x"]).sum()}
    return forward, backward


def list_gradient(slip=""):
    """A gradient as a list of Python numbers."""
    def forward(p):
        return float((p["x"] ** 2).sum()) if p["x"].dtype == float else (p["x"] ** 2).sum(), p["x"]

    def backward(x, d):
        return {"x": [(3 if slip == "last entry" and i == len(x) - 1 else 2) * float(d) * float(v)
                      for i, v in enumerate(x)]}
    return forward, backward


def product(slip=""):
    """The product of a row by dividing the whole by each entry."""
    def forward(p):
        return p["x"].prod(-1), p["x"]

    def backward(x, dy):
        whole = x.prod(-1, keepdims=True)
        return {"x": dy[:, None] * (whole if slip == "not divided" else whole / x)}
    return forward, backward


def one_late_entry(slip=""):
    """A cumulative sum of squares; the slip is in one entry of many."""
    def forward(p):
        return np.cumsum(p["x"] ** 2), p["x"]

    def backward(x, dy):
        g = 2 * x * np.cumsum(dy[::-1])[::-1]
        if slip == "one entry by 1e-4":
            g[-3] *= 1 + 1e-4
        if slip == "one entry by 1e-7":
            g[-3] *= 1 + 1e-7
        if slip == "one entry":
            g[-1] = 0
        return {"x": g}
    return forward, backward


def dropout_and_residual(slip=""):
    """x + dropout(x w); keep is a boolean array."""
    rate = 0.1

    def forward(p):
        return p["x"] + p["keep"] * (p["x"] @ p["w"]) / (1 - rate), p

    def backward(p, dy):
        d = dy * p["keep"] / (1 - rate)
        if slip == "mask forgotten":
            d = dy / (1 - rate)
        if slip == "scale":
            d = dy * p["keep"]
        dx = d @ p["w"].T
        return {"x": dx if slip == "residual" else dy + dx, "w": p["x"].T @ d}
    return forward, backward


def distances(slip=""):
    """Euclidean distances of all pairs of rows; that of a row to itself is 0."""
    def forward(p):
        x = p["x"]
        d = np.sqrt(((x[:, None] - x) ** 2).sum(-1))
        return d * (1 - np.eye(len(x))), (x, d)

    def backward(saved, dy):
        x, d = saved
        w = dy / np.where(d == 0, 1, d) * (1 - np.eye(len(x)))
        if slip != "one side":
            w = w + w.T
        return {"x": w.sum(1)[:, None] * x - w @ x}
    return forward, backward


def softmax_float16_inside(slip=""):
    """The forward rounds its logits to half precision."""
    def forward(p):
        a = softmax(p["x"].astype(np.float16).astype(np.float32))
        return a, a

    def backward(a, da):
        return {"x": softmax_grad(a, da)}
    return forward, backward


def random_forward(slip=""):
    """Dropout that draws anew at each call: no function of its inputs."""
    rng = np.random.default_rng(7)

    def forward(p):
        keep = rng.random(p["x"].shape) > 0.5
        return p["x"] * keep * 2, keep

    def backward(keep, dy):
        return {"x": dy * keep * 2}
    return forward, backward
