"""Right kernels, those in PyTorch and JAX with their imports inside."""

import math

import numpy as np


def torch_():
    import torch

    return torch


def mask_block(keep, bias, drop, shape, qs, ks):
    def cut(x):
        return None if x is None else np.broadcast_to(x, shape)[:, :, qs, ks]

    return cut(bias), cut(keep), cut(drop)


def flash(q, k, v, do, bias, keep, dropout, causal, bq=3, bk=2):
    q, k, v, do = (x.transpose(0, 2, 1, 3) for x in (q, k, v, do))
    B, H, Q, D = q.shape
    K, E = v.shape[2:]
    f = q.dtype.type
    full = (B, H, Q, K)
    scale = f(1 / math.sqrt(D))
    if causal:
        tri = np.arange(K)[None] <= np.arange(Q)[:, None] + K - Q
        keep = tri if keep is None else keep & tri

    def scored(qs, ks):
        """The scores of a tile, and its dropout."""
        b, kp, dr = mask_block(keep, bias, dropout, full, qs, ks)
        s = q[:, :, qs] @ k[:, :, ks].swapaxes(-1, -2) * scale
        s = s if b is None else s + b
        return (s if kp is None else np.where(kp, s, f(-np.inf))), dr

    o = np.zeros((B, H, Q, E), q.dtype)
    lse = np.zeros((B, H, Q), q.dtype)
    for i in range(0, Q, bq):
        qs = slice(i, i + bq)
        m = np.full(q[:, :, qs].shape[:3], -np.inf, q.dtype)
        l = np.zeros_like(m)
        acc = np.zeros_like(o[:, :, qs])
        for j in range(0, K, bk):
            ks = slice(j, j + bk)
            s, dr = scored(qs, ks)
            mn = np.maximum(m, s.max(-1))
            safe = np.where(np.isinf(mn), f(0), mn)
            p = np.exp(s - safe[..., None])
            alpha = np.exp(m - safe)
            l = l * alpha + p.sum(-1)
            acc *= alpha[..., None]
            acc += (p if dr is None else p * dr) @ v[:, :, ks]
            m = mn
        ok = l > 0
        inv = np.where(ok, f(1) / np.where(ok, l, f(1)), f(0))
        o[:, :, qs] = acc * inv[..., None]
        lse[:, :, qs] = np.where(ok, np.where(ok, m, 0) + np.log(np.where(ok, l, 1)), np.inf)
    delta = (do * o).sum(-1)
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    db = None if bias is None else np.zeros(full, q.dtype)
    for j in range(0, K, bk):
        ks = slice(j, j + bk)
        for i in range(0, Q, bq):
            qs = slice(i, i + bq)
            s, dr = scored(qs, ks)
            p = np.exp(s - lse[:, :, qs, None])
            pd = p if dr is None else p * dr
            dv[:, :, ks] += pd.swapaxes(-1, -2) @ do[:, :, qs]
            dp = do[:, :, qs] @ v[:, :, ks].swapaxes(-1, -2)
            if dr is not None:
                dp = dp * dr
            ds = p * (dp - delta[:, :, qs, None])
            if db is not None:
                db[:, :, qs, ks] = ds
            dq[:, :, qs] += ds @ k[:, :, ks] * scale
            dk[:, :, ks] += ds.swapaxes(-1, -2) @ q[:, :, qs] * scale
    out = [x.transpose(0, 2, 1, 3) for x in (o, dq, dk, dv)]
    if bias is not None:
        shape = (1,) * (4 - bias.ndim) + bias.shape
        for ax in range(4):
            if shape[ax] == 1:
                db = db.sum(ax, keepdims=True)
        out.append(db.reshape(bias.shape))
    return tuple(out), lse


def flash_numpy(q, k, v, do, bias=None, keep=None, dropout=None):
    return flash(q, k, v, do, bias, keep, dropout, False)[0]


def flash_numpy_causal(q, k, v, do, bias=None, keep=None, dropout=None):
    return flash(q, k, v, do, bias, keep, dropout, True)[0]


def flash_with_lse(q, k, v, do, bias=None):
    got, lse = flash(q, k, v, do, bias, None, None, False, 4, 5)
    names = ["o", "dq", "dk", "dv", "dbias"][: len(got)]
    return dict(reversed(list(zip(names, got, strict=True))), lse=lse)


def split_k(q, k, v, do, S=3):
    K = k.shape[-2]
    q = q * np.asarray(k.shape[-1] ** -0.25, q.dtype)
    ks = k * np.asarray(k.shape[-1] ** -0.25, q.dtype)
    parts = []
    for idx in np.array_split(np.arange(K), min(S, K)):
        s = q @ ks[..., idx, :].swapaxes(-1, -2)
        m = s.max(-1, keepdims=True)
        p = np.exp(s - m)
        l = p.sum(-1, keepdims=True)
        parts.append((m + np.log(l), p @ v[..., idx, :] / l))
    lses = np.stack([x[0] for x in parts])
    big = lses.max(0)
    w = np.exp(lses - big)
    w /= w.sum(0)
    o = sum(wi * oi for wi, (_, oi) in zip(w, parts, strict=True))
    lse = big + np.log(np.exp(lses - big).sum(0))
    p = np.exp(q @ ks.swapaxes(-1, -2) - lse)
    dv = p.swapaxes(-1, -2) @ do
    ds = p * (do @ v.swapaxes(-1, -2) - np.einsum("...e,...e->...", do, o)[..., None])
    c = np.asarray(k.shape[-1] ** -0.25, q.dtype)
    return o, ds @ ks * c, ds.swapaxes(-1, -2) @ q * c, dv


def split_k_bthd(q, k, v, do):
    def t(x):
        return x.swapaxes(1, 2)

    return tuple(map(t, split_k(*map(t, (q, k, v, do)))))


def exp2_domain(q, k, v, do, bias=None, keep=None):
    f = q.dtype.type
    L = f(math.log2(math.e))
    qs = q * f(q.shape[-1] ** -0.5) * L
    s = np.einsum("bqhd,bkhd->bhqk", qs, k)
    if bias is not None:
        s = s + bias * L
    if keep is not None:
        s = np.where(keep, s, f(-1e30))
    m = s.max(-1, keepdims=True)
    p = np.exp2(s - m)
    if keep is not None:
        p = p * keep
    l = p.sum(-1, keepdims=True)
    lse2 = m + np.log2(np.where(l == 0, f(1), l))
    p = np.exp2(s - lse2)
    if keep is not None:
        p = p * keep
    o = np.einsum("bhqk,bkhe->bqhe", p, v)
    delta = (do * o).sum(-1).transpose(0, 2, 1)[..., None]
    ds = p * (np.einsum("bqhe,bkhe->bhqk", do, v) - delta)
    dq = np.einsum("bhqk,bkhd->bqhd", ds, k) * f(q.shape[-1] ** -0.5)
    dk = np.einsum("bhqk,bqhd->bkhd", ds, qs) / L
    dv = np.einsum("bhqk,bqhe->bkhe", p, do)
    if bias is None:
        return o, dq, dk, dv
    db = ds if bias.ndim == 4 else ds.sum(0)
    return o, dq, dk, dv, db.reshape(bias.shape)


def torch_sdpa(q, k, v, do, bias=None, keep=None):
    torch = torch_()
    q, k, v = (torch.tensor(x, requires_grad=True) for x in (q, k, v))
    mask = None
    if bias is not None:
        bias = torch.tensor(bias, requires_grad=True)
        mask = bias
    if keep is not None:
        mask = torch.from_numpy(np.array(keep))
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    o.backward(torch.from_numpy(do))
    return [o, q.grad, k.grad, v.grad] + ([] if bias is None else [bias.grad])


def torch_sdpa_causal(q, k, v, do):
    torch = torch_()
    q, k, v = (torch.tensor(x, requires_grad=True) for x in (q, k, v))
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    o.backward(torch.from_numpy(do))
    return o.detach(), q.grad, k.grad, v.grad


def torch_sdpa_half(q, k, v, do):
    torch = torch_()
    dt = torch.float16 if q.dtype == np.float16 else torch.bfloat16
    q, k, v, do = (torch.tensor(x).to(dt) for x in (q, k, v, do))
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    o.backward(do)
    return o.detach(), q.grad, k.grad, v.grad


def half_with_float32_accumulators(q, k, v, do):
    """Inputs in half, products accumulated in float32, P rounded to half before P V (as FlashAttention does)."""
    torch = torch_()
    dt = torch.float16 if q.dtype == np.float16 else torch.bfloat16
    q, k, v, do = (torch.tensor(x).to(dt).transpose(1, 2) for x in (q, k, v, do))

    def mm(a, b):
        return a.to(dt).float() @ b.to(dt).float()

    sc = q.shape[-1] ** -0.5
    s = mm(q, k.mT) * sc
    lse = torch.logsumexp(s, -1, keepdim=True)
    p = (s - lse).exp()
    o = mm(p, v).to(dt)
    delta = (do.float() * o.float()).sum(-1, keepdim=True)
    ds = p * (mm(do, v.mT) - delta)
    dq, dk, dv = mm(ds, k) * sc, mm(ds.mT, q) * sc, mm(p.mT, do)
    return tuple(x.to(dt).transpose(1, 2) for x in (o, dq, dk, dv))


def autograd_function(q, k, v, do, dropout=None, keep=None):
    torch = torch_()

    class F(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v, mask, drop):
            s = torch.einsum("bqhd,bkhd->hbqk", q, k).div_(math.sqrt(q.shape[-1]))
            if mask is not None:
                s.masked_fill_(~mask, float("-inf"))
            p = torch.nan_to_num(torch.softmax(s, -1))
            pd = p if drop is None else p * drop
            o = torch.einsum("hbqk,bkhe->bqhe", pd, v)
            ctx.save_for_backward(q, k, v, p, drop, o)
            return o

        @staticmethod
        def backward(ctx, do):
            q, k, v, p, drop, o = ctx.saved_tensors
            dp = torch.einsum("bqhe,bkhe->hbqk", do, v)
            pd = p
            if drop is not None:
                dp.mul_(drop)
                pd = p * drop
            dv = torch.einsum("hbqk,bqhe->bkhe", pd, do)
            delta = (do * o).sum(-1).permute(2, 0, 1)
            ds = dp.sub_(delta.unsqueeze(-1)).mul_(p).mul_(q.shape[-1] ** -0.5)
            return torch.einsum("hbqk,bkhd->bqhd", ds, k), torch.einsum("hbqk,bqhd->bkhd", ds, q), dv, None, None

    B, Q, H, _ = q.shape
    full = (B, H, Q, k.shape[1])

    def hb(x):
        return None if x is None else torch.from_numpy(np.array(np.broadcast_to(x, full))).transpose(0, 1)

    q, k, v = (torch.tensor(x, requires_grad=True) for x in (q, k, v))
    o = F.apply(q, k, v, hb(keep), hb(dropout))
    return (o, *torch.autograd.grad(o, (q, k, v), torch.tensor(do)))


_compiled = {}


def torch_compiled(q, k, v, do):
    torch = torch_()
    if "f" not in _compiled:
        _compiled["f"] = torch.compile(lambda q, k, v: torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v)
    q, k, v = (torch.tensor(x, requires_grad=True) for x in (q, k, v))
    o = _compiled["f"](q, k, v)
    o.backward(torch.tensor(do))
    return o, q.grad, k.grad, v.grad


def jax_scan(q, k, v, do, bias=None, keep=None):
    """Rabe & Staats: lax.scan over keys one by one, differentiated by JAX."""
    import jax
    import jax.numpy as jnp

    full = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    b0 = jnp.zeros(full, q.dtype) if bias is None else jnp.asarray(bias)
    kp = jnp.ones(full, bool) if keep is None else jnp.broadcast_to(keep, full)

    def f(q, k, v, b):
        s = jnp.einsum("bqhd,bkhd->kbhq", q, k) * q.shape[-1] ** -0.5 + b.transpose(3, 0, 1, 2)
        m = jax.lax.stop_gradient(jnp.max(jnp.where(kp.transpose(3, 0, 1, 2), s, -1e30), 0))

        def body(c, x):
            num, den = c
            s, vv, kk = x
            w = jnp.where(kk, jnp.exp(jnp.where(kk, s - m, 0.0)), 0.0)
            return (num + w[..., None] * vv[:, :, None], den + w), None

        (num, den), _ = jax.lax.scan(
            body,
            (jnp.zeros(m.shape + (v.shape[-1],), q.dtype), jnp.zeros(m.shape, q.dtype)),
            (s, v.transpose(1, 0, 2, 3), kp.transpose(3, 0, 1, 2)),
        )
        return (num / jnp.where(den == 0, 1, den)[..., None]).transpose(0, 2, 1, 3)

    o, vjp = jax.vjp(f, *map(jnp.asarray, (q, k, v)), b0)
    dq, dk, dv, db = vjp(jnp.asarray(do))
    return {"o": o, "dq": dq, "dk": dk, "dv": dv} | ({} if bias is None else {"dbias": db})


def packed_qkv(q, k, v, do, keep=None):
    """One (b, t, 3, h, d) array, gradients are views of one packed array; also negative strides."""
    qkv = np.stack([q, k, v], 2)[:, ::-1]
    rev = np.arange(q.shape[1])[::-1]
    s = np.einsum("bihd,bjhd->bhij", qkv[:, :, 0], qkv[:, :, 1])
    s *= np.asarray(q.shape[-1] ** -0.5, s.dtype)
    if keep is not None:
        s[..., ~np.ascontiguousarray(keep[rev][:, rev])] = -np.inf
    with np.errstate(invalid="ignore"):
        s -= np.maximum(s.max(-1, keepdims=True), np.asarray(-1e30, s.dtype))
    np.exp(s, out=s)
    s /= np.maximum(s.sum(-1, keepdims=True), np.asarray(1e-30, s.dtype))
    dqkv = np.empty_like(np.stack([q, k, v], 2))
    g = do[:, ::-1]
    o = np.einsum("bhij,bjhe->bihe", s, qkv[:, :, 2])
    dqkv[:, :, 2] = np.einsum("bhij,bihe->bjhe", s, g)
    dp = np.einsum("bihe,bjhe->bhij", g, qkv[:, :, 2])
    dp -= np.einsum("bhij,bhij->bhi", dp, s)[..., None]
    dp *= s
    dp *= np.asarray(q.shape[-1] ** -0.5, s.dtype)
    dqkv[:, :, 0] = np.einsum("bhij,bjhd->bihd", dp, qkv[:, :, 1])
    dqkv[:, :, 1] = np.einsum("bhij,bihd->bjhd", dp, qkv[:, :, 0])
    dqkv = dqkv[:, ::-1]
    return o[:, ::-1], dqkv[:, :, 0], dqkv[:, :, 1], dqkv[:, :, 2]


def kahan_loops(q, k, v, do, bias=None):
    """Plain loops with Kahan sums, float32 throughout."""
    f = q.dtype.type
    B, Q, H, D = q.shape
    K, E = k.shape[1], v.shape[3]

    def ksum(xs):
        s, c = f(0) * xs[0], f(0) * xs[0]
        for x in xs:
            y = x - c
            t = s + y
            c = (t - s) - y
            s = t
        return s

    s = ksum([q[:, :, None, :, d] * k[:, None, :, :, d] for d in range(D)]) * f(D**-0.5)  # b q k h
    if bias is not None:
        s = s + np.moveaxis(bias, 1, 3)
    e = np.exp(s - s.max(2, keepdims=True))
    p = e / ksum([e[:, :, j : j + 1] for j in range(K)])
    o = ksum([p[:, :, j, :, None] * v[:, None, j] for j in range(K)])
    dv = ksum([p[:, i, :, :, None] * do[:, i, None] for i in range(Q)])
    dp = ksum([do[:, :, None, :, x] * v[:, None, :, :, x] for x in range(E)])
    ds = p * (dp - ksum([(p * dp)[:, :, j : j + 1] for j in range(K)]))
    dq = ksum([ds[:, :, j, :, None] * k[:, None, j] for j in range(K)]) * f(D**-0.5)
    dk = ksum([ds[:, i, :, :, None] * q[:, i, None] for i in range(Q)]) * f(D**-0.5)
    out = (o, dq, dk, dv)
    return out if bias is None else out + (ksum([ds[..., h] for h in range(H)])[:, None],)


def into(x):
    """(b, t, h, d) with every other position as a further head of its group."""
    b, t, h, d = x.shape
    return x.reshape(b, t // 2, 2, h, d).swapaxes(2, 3).reshape(b, t // 2, 2 * h, d)


def back(x):
    """The opposite of `into`."""
    b, t, h, d = x.shape
    return x.reshape(b, t, h // 2, 2, d).swapaxes(2, 3).reshape(b, 2 * t, h // 2, d)


def grouped_query(q, k, v, do):
    G = 2
    Q, dO = into(q), into(do)
    b, t, h, d = Q.shape
    Qg, dOg = Q.reshape(b, t, h // G, G, d), dO.reshape(b, t, h // G, G, -1)
    sc = np.asarray(d**-0.5, q.dtype)
    s = np.einsum("btngd,bsnd->bngts", Qg, k) * sc
    p = np.exp(s - np.logaddexp.reduce(s, -1, keepdims=True))
    o = np.einsum("bngts,bsne->btnge", p, v)
    dv = np.einsum("bngts,btnge->bsne", p, dOg)
    ds = p * (np.einsum("btnge,bsne->bngts", dOg, v) - np.einsum("btnge,btnge->bngt", dOg, o)[..., None])
    dq = np.einsum("bngts,bsnd->btngd", ds, k) * sc
    dk = np.einsum("bngts,btngd->bsnd", ds, Qg) * sc
    return back(o.reshape(b, t, h, -1)), back(dq.reshape(b, t, h, d)), dk, dv


def no_max_subtraction(q, k, v, do, keep=None):
    """exp without a maximum, ratio at the end; masked through multiplication."""
    f = q.dtype.type
    w = np.exp(np.einsum("bqhd,bkhd->bhqk", q, k) * f(q.shape[-1] ** -0.5))
    if keep is not None:
        w = w * keep
    den = w.sum(-1, keepdims=True)
    den = np.where(den == 0, f(1), den)
    num = np.einsum("bhqk,bkhe->bhqe", w, v)
    o = num / den
    g = do.transpose(0, 2, 1, 3)
    dnum = g / den
    dden = -(g * num).sum(-1, keepdims=True) / den**2
    dw = np.einsum("bhqe,bkhe->bhqk", dnum, v) + dden
    dv = np.einsum("bhqk,bhqe->bkhe", w, dnum)
    ds = dw * w * f(q.shape[-1] ** -0.5)
    return o.transpose(0, 2, 1, 3), np.einsum("bhqk,bkhd->bqhd", ds, k), np.einsum("bhqk,bqhd->bkhd", ds, q), dv


def linear_matrix_form(q, k, v, do):
    S = np.einsum("bkhd,bkhe->hbde", k, v) / np.sqrt(q.shape[-1]).astype(q.dtype)
    dS = np.einsum("bqhd,bqhe->hbde", q, do) / np.sqrt(q.shape[-1]).astype(q.dtype)
    return (
        np.einsum("bqhd,hbde->bqhe", q, S),
        np.einsum("bqhe,hbde->bqhd", do, S),
        np.einsum("bkhe,hbde->bkhd", v, dS),
        np.einsum("bkhd,hbde->bkhe", k, dS),
    )


def linear_running_state(q, k, v, do):
    """Token-by-token state forward and backward, causal."""
    B, T, H, D = q.shape
    c = np.asarray(D**-0.5, q.dtype)
    S = np.zeros((B, H, D, v.shape[-1]), q.dtype)
    o, dq, dk, dv = np.empty_like(v), np.empty_like(q), np.empty_like(k), np.empty_like(v)
    for t in range(T):
        S += k[:, t, :, :, None] * v[:, t, :, None, :]
        o[:, t] = np.einsum("bhd,bhde->bhe", q[:, t], S) * c
        dq[:, t] = np.einsum("bhe,bhde->bhd", do[:, t], S) * c
    R = np.zeros_like(S)
    for t in reversed(range(T)):
        R += q[:, t, :, :, None] * do[:, t, :, None, :] * c
        dk[:, t] = np.einsum("bhde,bhe->bhd", R, v[:, t])
        dv[:, t] = np.einsum("bhde,bhd->bhe", R, k[:, t])
    return o, dq, dk, dv


def linear_jax(q, k, v, do, bias=None, keep=None, dropout=None):
    import jax
    import jax.numpy as jnp

    def f(q, k, v, b):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(q.shape[-1])
        if b is not None:
            s = s + b
        if keep is not None:
            s = jnp.where(keep, s, 0)
        if dropout is not None:
            s = s * dropout
        return jnp.einsum("bhqk,bkhe->bqhe", s, v)

    o, vjp = jax.vjp(
        jax.jit(f), jnp.asarray(q), jnp.asarray(k), jnp.asarray(v), None if bias is None else jnp.asarray(bias)
    )
    g = vjp(jnp.asarray(do))
    return (o,) + tuple(x for x in g if x is not None)


def state_chunked(q, k, v, state, do, dend, bug=None, C=2):
    f = q.dtype.type
    T, c = q.shape[1], f(q.shape[-1] ** -0.5)
    S, states, o = state.copy(), [], np.zeros_like(v)

    def tri(n):
        return np.tril(np.ones((n, n), q.dtype))

    for i in range(0, T, C):
        Q, K, V = q[:, i : i + C], k[:, i : i + C], v[:, i : i + C]
        states.append(S.copy())
        A = np.einsum("bihd,bjhd->bhij", Q * c, K) * tri(Q.shape[1])
        o[:, i : i + C] = np.einsum("bhij,bjhe->bihe", A, V) + np.einsum(
            "bihd,bhde->bihe", Q * (f(1) if bug == "inter_unscaled" else c), S
        )
        S = S + np.einsum("bjhd,bjhe->bhde", K * (c if bug == "end_scaled" else f(1)), V)
    R = np.zeros_like(dend) if bug == "dend_ignored" else dend.copy()
    dq, dk, dv = np.empty_like(q), np.empty_like(k), np.empty_like(v)
    for n, i in reversed(list(enumerate(range(0, T, C)))):
        Q, K, V, G = q[:, i : i + C] * c, k[:, i : i + C], v[:, i : i + C], do[:, i : i + C]
        A = np.einsum("bihd,bjhd->bhij", Q, K) * tri(Q.shape[1])
        dA = np.einsum("bihe,bjhe->bhij", G, V) * tri(Q.shape[1])
        dq[:, i : i + C] = c * (np.einsum("bhij,bjhd->bihd", dA, K) + np.einsum("bihe,bhde->bihd", G, states[n]))
        dk[:, i : i + C] = np.einsum("bhij,bihd->bjhd", dA, Q) + (
            0 if bug == "dk_intra_only" else np.einsum("bjhe,bhde->bjhd", V, R)
        )
        dv[:, i : i + C] = np.einsum("bhij,bihe->bjhe", A, G) + np.einsum("bjhd,bhde->bjhe", K, R)
        R = R + np.einsum("bihd,bihe->bhde", Q, G)
    dstate = R - dend if bug == "dstate_no_dend" else R
    return o, S, dq, dk, dv, dstate


def state_cumsum_torch(q, k, v, state, do, dend):
    torch = torch_()
    q, k, v, state = (torch.tensor(x, requires_grad=True) for x in (q, k, v, state))
    S = state[:, None] + torch.cumsum(k[..., :, None] * v[..., None, :], 1)
    o = (q[..., None] * S).sum(-2) / q.shape[-1] ** 0.5
    end = S[:, -1]
    g = torch.autograd.grad((o, end), (q, k, v, state), (torch.tensor(do), torch.tensor(dend)))
    return dict(zip(("end", "o", "dq", "dk", "dv", "dstate"), (end, o, *g), strict=True))


def hyla_tiled(q, k, v, do, bias=None, keep=None, dropout=None, B_=2):
    """Tiles over (q, k), recompute in backward; rho folded into s (never a); everything head-last in a tile."""
    f = q.dtype.type
    B, Q, H, D = q.shape
    K = k.shape[1]
    full = (B, H, Q, K)
    sc = f(D**-0.5)
    o, dq, dk, dv = np.zeros(q.shape[:3] + v.shape[-1:], q.dtype), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    db = np.zeros(full, q.dtype)

    def nb(x):
        return None if x is None else np.broadcast_to(x, full)

    bias_, keep_, drop_ = nb(bias), nb(keep), nb(dropout)
    for i in range(0, Q, B_):
        for j in range(0, K, 3):
            I, J = slice(i, i + B_), slice(j, j + 3)

            def last(x, I=I, J=J):
                return x[:, :, I, J].transpose(0, 2, 3, 1)

            s = np.einsum("bqhd,bkhd->bqkh", q[:, I], k[:, J]) * sc
            if bias is not None:
                s += last(bias_)
            if keep is not None:
                s *= last(keep_)
            r = 1 / np.sqrt((s * s).sum(-1, keepdims=True) / f(H) + f(1e-6))
            c = s * r
            w = last(drop_) if dropout is not None else f(1)
            c = c * w
            z = np.einsum("bqkh,bkhe->bqke", c, v[:, J])
            g = np.where(z > 0, z, 0)
            o[:, I] += np.einsum("bqkh,bqke->bqhe", c, g)
            dg = np.einsum("bqkh,bqhe->bqke", c, do[:, I])
            dc = np.einsum("bqhe,bqke->bqkh", do[:, I], g)
            dg *= z > 0
            dc += np.einsum("bqke,bkhe->bqkh", dg, v[:, J])
            dv[:, J] += np.einsum("bqkh,bqke->bkhe", c, dg)
            da = dc * w
            ds = r * da - s * r**3 * (s * da).sum(-1, keepdims=True) / f(H)
            if keep is not None:
                ds = ds * last(keep_)
            db[:, :, I, J] = ds.transpose(0, 3, 1, 2)
            dq[:, I] += np.einsum("bqkh,bkhd->bqhd", ds, k[:, J]) * sc
            dk[:, J] += np.einsum("bqkh,bqhd->bkhd", ds, q[:, I]) * sc
    out = (o, dq, dk, dv)
    if bias is None:
        return out
    sh = (1,) * (4 - bias.ndim) + bias.shape
    return out + (db.sum(tuple(a for a in range(4) if sh[a] == 1), keepdims=True).reshape(bias.shape),)


def hyla_torch(q, k, v, do, bias=None, keep=None, dropout=None):
    torch = torch_()
    q, k, v = (torch.tensor(x, requires_grad=True) for x in (q, k, v))
    b = None if bias is None else torch.tensor(bias, requires_grad=True)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    if b is not None:
        s = s + b
    if keep is not None:
        s = s.masked_fill(~torch.from_numpy(np.array(keep)), 0)
    a = s * torch.rsqrt(s.pow(2).mean(1, keepdim=True) + 1e-6)
    if dropout is not None:
        a = a * torch.tensor(dropout)
    z = torch.nn.functional.relu(torch.einsum("bhqk,bkhe->bqke", a, v))
    o = torch.einsum("bhqk,bqke->bqhe", a, z)
    o.backward(torch.tensor(do))
    return (o, q.grad, k.grad, v.grad) + (() if b is None else (b.grad,))


def hyla_half(q, k, v, do, bias=None, keep=None):
    """float32 inside, half outside."""
    half = q.dtype

    def up(x):
        return None if x is None else x.astype(np.float32)

    got = hyla_tiled(up(q), up(k), up(v), up(do), up(bias), keep)
    if half == np.float16:
        return tuple(x.astype(half) for x in got)
    torch = torch_()
    return tuple(torch.tensor(x).to(torch.bfloat16) for x in got)


def hyla_o_alone(q, k, v, order):
    a, b = order.replace("t", "q"), order.replace("t", "k")
    s = np.einsum(f"{a},{b}->bhqk", q, k) * np.asarray(q.shape[-1] ** -0.5, q.dtype)
    s *= (np.square(s).mean(1) + np.asarray(1e-6, q.dtype))[:, None] ** np.asarray(-0.5, q.dtype)
    z = np.maximum(np.einsum(f"bhqk,{b.replace('d', 'e')}->bqke", s, v), 0)
    return np.einsum(f"bhqk,bqke->{a.replace('d', 'e')}", s, z)


def jax_ablation(q, k, v, wv2=None, *, do, bias=None, keep=None, dropout=None, norm, uses, relu):
    import jax
    import jax.numpy as jnp

    def soft(s):
        if keep is not None:
            s = jnp.where(keep, s, -1e9)
        p = jax.nn.softmax(s, -1)
        return p if keep is None else jnp.where(keep, p, 0)

    def rms(s):
        if keep is not None:
            s = jnp.where(keep, s, 0)
        return s / jnp.sqrt(jnp.mean(s * s, 1, keepdims=True) + 1e-6)

    def f(q, k, v, w2, b):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
        s = s if b is None else s + b
        for n in norm:
            s = {"soft": soft, "rms": rms, "none": lambda s: s if keep is None else jnp.where(keep, s, 0)}[n](s)
        s = s if dropout is None else s * dropout
        act = jax.nn.relu if relu else (lambda x: x)
        if uses == 1:
            return jnp.einsum("bhqk,bkhe->bqhe", s, act(v))
        z = act(jnp.einsum("bhqk,bkhe->bqke", s, v))
        if uses == 3:
            z = act(jnp.einsum("bhqk,hef,bqke->bqkf", s, w2, z))
        return jnp.einsum("bhqk,bqke->bqhe", s, z)

    o, vjp = jax.vjp(f, *(None if x is None else jnp.asarray(x) for x in (q, k, v, wv2, bias)))
    dq, dk, dv, dw, db = vjp(jnp.asarray(do))
    return {n: x for n, x in dict(o=o, dq=dq, dk=dk, dv=dv, dbias=db, dwv2=dw).items() if x is not None}


def compositional_fused(q, k, v, selector, wr, do, bias=None, keep=None, dropout=None):
    """One retrieval at a time with an online softmax over retrievals; keys of retrievals made explicitly."""
    f = q.dtype.type
    D, C, R = q.shape[-1], selector.shape[-1], v.shape[2]
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * f(D**-0.5)
    if bias is not None:
        s = s + bias
    if keep is not None:
        s = np.where(keep, s, f(-1e30))
    a = np.exp(s - s.max(-1, keepdims=True))
    a /= a.sum(-1, keepdims=True)
    c = a if dropout is None else a * dropout
    m = np.full(q.shape[:3], -np.inf, q.dtype)
    l, acc, ts, ls = np.zeros_like(m), 0, [], []
    for r in range(R):
        t = np.einsum("bhqk,bke->bqhe", c, v[:, :, r])
        g = np.einsum("bqhc,bqhc->bqh", selector, t @ wr) * f(C**-0.5)
        mn = np.maximum(m, g)
        al, p = np.exp(m - mn), np.exp(g - mn)
        l, acc, m = l * al + p, acc * al[..., None] + p[..., None] * t, mn
        ts.append(t)
        ls.append(g)
    o = acc / l[..., None]
    lse = m + np.log(l)
    delta = (o * do).sum(-1)
    dsel, dwr, dc, dv = 0, 0, 0, np.empty_like(v)
    for r in range(R):
        p = np.exp(ls[r] - lse)
        dl = p * ((do * ts[r]).sum(-1) - delta) * f(C**-0.5)
        key = ts[r] @ wr
        dsel = dsel + dl[..., None] * key
        dkey = dl[..., None] * selector
        dwr = dwr + np.einsum("bqhe,bqhc->ec", ts[r], dkey)
        dt = p[..., None] * do + dkey @ wr.T
        dc = dc + np.einsum("bqhe,bke->bhqk", dt, v[:, :, r])
        dv[:, :, r] = np.einsum("bhqk,bqhe->bke", c, dt)
    da = dc if dropout is None else dc * dropout
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dq = np.einsum("bhqk,bkhd->bqhd", ds, k) * f(D**-0.5)
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q) * f(D**-0.5)
    out = dict(o=o, dq=dq, dk=dk, dv=dv, dselector=dsel, dwr=dwr)
    return out if bias is None else out | {"dbias": ds}


def compositional_nonlinear_torch(q, k, v, selector, wr, wc, br, w2, b2, do, bias=None, dropout=None):
    torch = torch_()
    ins = [torch.tensor(x, requires_grad=True) for x in (q, k, v, selector, wr, wc, br, w2, b2)]
    q, k, v, sel, wr, wc, br, w2, b2 = ins
    b = None if bias is None else torch.tensor(bias, requires_grad=True)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    a = torch.softmax(s if b is None else s + b, -1)
    a = a if dropout is None else a * torch.tensor(dropout)
    t = torch.einsum("bhqk,bkre->bqhre", a, v)
    both = torch.cat([sel[..., None, :].expand(*t.shape[:-1], -1), t], -1) @ torch.cat([wc, wr], 0) + br
    g = torch.softmax((torch.relu(both) * w2).sum(-1) + b2, -1)
    o = (g[..., None] * t).sum(-2)
    o.backward(torch.tensor(do))
    g = [x.grad for x in ins]
    return o, *g[:3], *(() if b is None else (b.grad,)), *g[3:]


def compositional_linear_jax(q, k, v, selector, wr, wc, br, do, keep=None):
    """The selector's part and br drop out of the softmax, so they are left out, with gradients of exactly zero."""
    import jax
    import jax.numpy as jnp

    def f(q, k, v, wr):
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        a = jax.nn.softmax(s, -1, where=None if keep is None else jnp.broadcast_to(keep, s.shape))
        t = jnp.einsum("bhqk,bkre->bqhre", a, v)
        return jnp.einsum("bqhr,bqhre->bqhe", jax.nn.softmax(t @ wr, -1), t)

    o, vjp = jax.vjp(f, *map(jnp.asarray, (q, k, v, wr)))
    dq, dk, dv, dwr = vjp(jnp.asarray(do))
    return o, dq, dk, dv, np.zeros_like(selector), dwr, np.zeros_like(wc), np.zeros_like(br)


def slide(q, k, v, ob, pk, pv, do, bias=None, keep=None, dropout=None, dil=2):
    """Pads prepended, strided view of keys (negative stride over offsets), backward by scatter add on padded arrays."""
    f = q.dtype.type
    B, Q, H, D = q.shape
    T, W = k.shape[1], ob.shape[1]
    P = (W - 1) * dil
    padded = pk is not None

    def zeros(n):
        return np.zeros((B, P, H, n), q.dtype)

    def front(x, p, n):
        return np.concatenate([zeros(n) if p is None else np.broadcast_to(p, (B, P) + p.shape), x], 1)

    K, V = np.ascontiguousarray(front(k, pk, D)), np.ascontiguousarray(front(v, pv, v.shape[-1]))

    def win(x):
        st = x.strides
        return np.lib.stride_tricks.as_strided(
            x[:, P + T - Q :], (B, Q, W) + x.shape[2:], (st[0], st[1], -dil * st[1]) + st[2:]
        )

    s = np.einsum("bqhd,bqwhd->bhqw", q, win(K)) * f(D**-0.5) + ob[:, None]
    if bias is not None:
        s = s + bias
    pos = np.arange(T - Q, T)[:, None] - dil * np.arange(W)
    ok = np.broadcast_to(True if padded else pos >= 0, (Q, W))
    if keep is not None:
        ok = ok & keep
    s = np.where(ok, s, f(-6e4))
    a = np.exp(s - s.max(-1, keepdims=True)) * ok
    z = a.sum(-1, keepdims=True)
    a = a / np.where(z == 0, f(1), z)
    c = a if dropout is None else a * dropout
    o = np.einsum("bhqw,bqwhe->bqhe", c, win(V))
    dc = np.einsum("bqhe,bqwhe->bhqw", do, win(V))
    da = dc if dropout is None else dc * dropout
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dob = ds.sum((0, 2))
    dq = np.einsum("bhqw,bqwhd->bqhd", ds, win(K)) * f(D**-0.5)
    dK, dV = np.zeros_like(K), np.zeros_like(V)
    for w in range(W):
        at = slice(P + T - Q - dil * w, P + T - dil * w)
        dK[:, at] += ds[:, :, :, w].transpose(0, 2, 1)[..., None] * q * f(D**-0.5)
        dV[:, at] += c[:, :, :, w].transpose(0, 2, 1)[..., None] * do
    out = dict(o=o, dq=dq, dk=dK[:, P:], dv=dV[:, P:], doffset_bias=dob)
    if bias is not None:
        sh = (1,) * (4 - bias.ndim) + bias.shape
        out["dbias"] = ds.sum(tuple(x for x in range(4) if sh[x] == 1), keepdims=True).reshape(bias.shape)
    if padded:
        out |= dict(dpad_k=dK[:, :P].sum((0, 1)), dpad_v=dV[:, :P].sum((0, 1)))
    return out


def sliding_strided(q, k, v, offset_bias, do, **o):
    return slide(q, k, v, offset_bias, None, None, do, **o)


def sliding_pad_strided(q, k, v, offset_bias, pad_k, pad_v, do, **o):
    return slide(q, k, v, offset_bias, pad_k, pad_v, do, **o)


def sliding_dense_mask(q, k, v, offset_bias, do):
    """As R writes it: a T x T additive mask, torch autograd."""
    torch = torch_()
    q, k, v, r = (torch.tensor(x, requires_grad=True) for x in (q, k, v, offset_bias))
    Q, T, W = q.shape[1], k.shape[1], r.shape[1]
    n = torch.arange(T - Q, T)[:, None] - torch.arange(T)[None]
    hit = (n >= 0) & (n % 2 == 0) & (n < 2 * W)
    m = torch.where(hit, r[:, (n // 2).clamp(0, W - 1)], float("-inf"))
    a = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5 + m, -1)
    o = torch.einsum("bhqk,bkhe->bqhe", a, v)
    o.backward(torch.tensor(do))
    return o, q.grad, k.grad, v.grad, r.grad


def layer_norm_one_pass(x, scale, shift, do):
    half = x.dtype
    x, scale, shift, do = (a.astype(np.float32) if half == np.float16 else a for a in (x, scale, shift, do))
    m = x.mean(-1, keepdims=True)
    var = np.maximum((x * x).mean(-1, keepdims=True) - m * m, 0)
    r = 1 / np.sqrt(var + x.dtype.type(1e-6))
    n = (x - m) * r
    wdy = scale * do
    c1, c2 = (n * wdy).mean(-1, keepdims=True), wdy.mean(-1, keepdims=True)
    got = n * scale + shift, (wdy - (n * c1 + c2)) * r, np.einsum("abm,abm->m", do, n), do.sum((0, 1))
    return tuple(g.astype(half) for g in got)


def layer_norm_torch(x, scale, shift, do):
    torch = torch_()
    x, scale, shift = (torch.tensor(a, requires_grad=True) for a in (x, scale, shift))
    y = torch.nn.functional.layer_norm(x, x.shape[-1:], scale, shift, 1e-6)
    y.backward(torch.tensor(do))
    return y, x.grad, scale.grad, shift.grad


def rms_head_hypot(s, do):
    a = s / np.sqrt((s * s).mean(1, keepdims=True) + s.dtype.type(1e-6))
    r = np.sqrt((s * s).mean(1, keepdims=True) + s.dtype.type(1e-6))
    return a, (do - a * np.einsum("bhqk,bhqk->bqk", a, do)[:, None] / s.shape[1]) / r


def softmax_axis1(s, do, keep=None):
    half = s.dtype
    s, do = s.astype(np.float32), do.astype(np.float32)
    if keep is not None:
        s = np.where(keep, s, -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.exp(s - np.logaddexp.reduce(s, 1, keepdims=True))
    p = np.nan_to_num(p)
    return p.astype(half), (p * (do - (p * do).sum(1, keepdims=True))).astype(half)


def conv_fft(x, k, b, do):
    """Convolution through the FFT in the input's own precision."""
    B, G, J, I = x.shape
    s = (G + 4, J + 4)
    X = np.fft.rfft2(np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), s, axes=(1, 2))
    Kf = np.fft.rfft2(k, s, axes=(0, 1))
    D = np.fft.rfft2(do, s, axes=(1, 2))

    def inv(F, ax):
        return np.fft.irfft2(F, s, axes=ax).astype(x.dtype)

    y = inv(np.einsum("bgji,gjio->bgjo", X, Kf.conj()), (1, 2))[:, :G, :J] + b
    dx = inv(np.einsum("bgjo,gjio->bgji", D, Kf), (1, 2))[:, 1 : G + 1, 1 : J + 1]
    dk = inv(np.einsum("bgji,bgjo->gjio", X, D.conj()), (0, 1))[:3, :3]
    return y, dx, dk, do.sum((0, 1, 2))


def conv_torch(x, k, b, do):
    torch = torch_()
    x, k, b = (torch.tensor(a, requires_grad=True) for a in (x, k, b))
    g = do.shape[1]
    n, K = x.shape[1], k.shape[0]
    best = next(
        (st, p)
        for st in range(1, K + 1)
        for p in range(K)
        if (n + 2 * p - K) == st * (g - 1) and (x.shape[2] + 2 * p - K) == st * (do.shape[2] - 1)
    )
    y = torch.nn.functional.conv2d(
        x.permute(0, 3, 1, 2), k.permute(3, 2, 0, 1), b, stride=best[0], padding=best[1]
    ).permute(0, 2, 3, 1)
    y.backward(torch.tensor(do))
    return y, x.grad, k.grad, b.grad


def cross_entropy_online(logits, target, do, weight=None):
    m = np.full(target.shape, -np.inf, logits.dtype)
    l = np.zeros_like(m)
    for v in range(logits.shape[-1]):
        x = logits[..., v]
        mn = np.maximum(m, x)
        l = l * np.exp(m - mn) + np.exp(x - mn)
        m = mn
    lse = m + np.log(l)
    w = np.ones(target.shape, logits.dtype) if weight is None else weight
    w = w / w.sum()
    hot = np.eye(logits.shape[-1], dtype=logits.dtype)[target.astype(int)]
    loss = ((lse - (hot * logits).sum(-1)) * w).sum()
    return loss, do * w[..., None] * (np.exp(logits - lse[..., None]) - hot)


def next_token_vocabulary_tiles(h, table, target, do):
    V, C = len(table), 4
    x, t = h.reshape(-1, h.shape[-1]), target.reshape(-1)
    m, l, mine = np.full(len(x), -np.inf, h.dtype), np.zeros(len(x), h.dtype), np.zeros(len(x), h.dtype)
    for i in range(0, V, C):
        z = x @ table[i : i + C].T
        mn = np.maximum(m, z.max(1))
        l = l * np.exp(m - mn) + np.exp(z - mn[:, None]).sum(1)
        m = mn
        inside = (t >= i) & (t < i + C)
        mine[inside] = z[inside, t[inside] - i]
    lse = m + np.log(l)
    dh, dt = np.zeros_like(x), np.zeros_like(table)
    for i in range(0, V, C):
        z = x @ table[i : i + C].T
        p = np.exp(z - lse[:, None])
        p[np.arange(len(x))[(t >= i) & (t < i + C)], t[(t >= i) & (t < i + C)] - i] -= 1
        p *= do.reshape(-1, 1)
        dh += p @ table[i : i + C]
        dt[i : i + C] = p.T @ x
    return (lse - mine).reshape(target.shape), dh.reshape(h.shape), dt


def rotary_complex(x, do):
    """View as complex; float64 angles."""
    c = np.complex128 if x.dtype == np.float64 else np.complex64
    return rot(x, do, c)


def rot(x, do, c):
    T, D = x.shape[1], x.shape[-1]
    ang = np.arange(T)[:, None] * 10000.0 ** (-2 * np.arange(D // 2) / D)
    ph = np.exp(1j * ang).astype(c)[:, None]
    return (np.ascontiguousarray(x).view(c) * ph).view(x.dtype), (np.ascontiguousarray(do).view(c) * ph.conj()).view(
        x.dtype
    )


def rotary_rotate_half(x, do):
    torch = torch_()
    x = torch.tensor(x, requires_grad=True)
    D, T = x.shape[-1], x.shape[1]
    inv = 1 / 10000 ** (torch.arange(0, D, 2).float() / D)
    fr = torch.outer(torch.arange(T).float(), inv)
    emb = torch.cat([fr, fr], -1)[:, None]
    half = torch.cat([-x[..., D // 2 :], x[..., : D // 2]], -1)
    y = x * emb.cos() + half * emb.sin()
    y.backward(torch.tensor(do))
    return y, x.grad


def gelu_by_sigmoid(x, do):
    half = x.dtype
    x, do = x.astype(np.float32), do.astype(np.float32)
    c = np.float32(2 * math.sqrt(2 / math.pi))
    u = c * x * (1 + np.float32(0.044715) * x * x)
    g = 1 / (1 + np.exp(-u))
    return (x * g).astype(half), (do * (g + x * g * (1 - g) * c * (1 + np.float32(3 * 0.044715) * x * x))).astype(half)


def swiglu_in_place(x, wg, wu, wd, do):
    a, b = np.split(x @ np.concatenate([wg, wu], 1), 2, -1)
    sg = 0.5 * (1 + np.tanh(a / 2))
    h = a * sg
    y = (h * b) @ wd
    dm = do @ wd.T
    dwd = np.tensordot(h * b, do, ([0, 1], [0, 1]))
    db = dm * h
    dm *= b
    dm *= sg * (1 + a * (1 - sg))
    dwg, dwu = np.tensordot(x, dm, 2 * [[0, 1]]), np.tensordot(x, db, 2 * [[0, 1]])
    return y, dm @ wg.T + db @ wu.T, dwg, dwu, dwd


def moe_dispatch(x, wg, w1, b1, w2, b2, do):
    """Tokens sorted by expert, gathered, computed and scattered; torch autograd."""
    torch = torch_()
    ins = [torch.tensor(a, requires_grad=True) for a in (x, wg, w1, b1, w2, b2)]
    x, wg, w1, b1, w2, b2 = ins
    t = x.reshape(-1, x.shape[-1])
    top, idx = (t @ wg).topk(2, -1)
    g = torch.softmax(top, -1)
    y = torch.zeros_like(t)
    for e in range(wg.shape[1]):
        r, c = (idx == e).nonzero(as_tuple=True)
        h = torch.nn.functional.gelu(t[r] @ w1[:, e] + b1[e], approximate="tanh")
        y = y.index_add(0, r, (h @ w2[e] + b2[e]) * g[r, c, None])
    y = y.reshape(x.shape)
    return (y, *torch.autograd.grad(y, ins, torch.tensor(do)))


def mh(x, p, position=None, bias=None, keep=None, dropout=None, rope=None):
    torch = torch_()
    q, k, v = (torch.einsum("btm,mhd->bhtd", x, p["w" + n]) + p["b" + n][:, None] for n in "qkv")
    if rope is not None:
        q, k = rope(q), rope(k)
    s = q @ k.mT / q.shape[-1] ** 0.5
    if position is not None:
        s = s + position
    if bias is not None:
        s = s + bias
    if keep is not None:
        s = s.masked_fill(~keep, -1e30)
    a = torch.softmax(s, -1)
    if keep is not None:
        a = a * keep
    if dropout is not None:
        a = a * dropout
    return torch.einsum("bhqe,hem->bqm", a @ v, p["wo"]) + p["bo"]


def multi_head(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None):
    torch = torch_()
    names = ["x", "wq", "bq", "wk", "bk", "wv", "bv", "wo", "bo"]
    given = zip(names, (x, wq, bq, wk, bk, wv, bv, wo, bo), strict=True)
    p = {n: torch.tensor(a, requires_grad=True) for n, a in given}
    b = None if bias is None else torch.tensor(bias, requires_grad=True)
    y = mh(
        p["x"],
        p,
        bias=b,
        keep=None if keep is None else torch.tensor(keep),
        dropout=None if dropout is None else torch.tensor(dropout),
    )
    y.backward(torch.tensor(do))
    return {"o": y, **{"d" + n: a.grad for n, a in p.items()}, **({} if b is None else {"dbias": b.grad})}


def multi_head_rotary(x, wq, bq, wk, bk, wv, bv, wo, bo, do):
    torch = torch_()
    names = ["x", "wq", "bq", "wk", "bk", "wv", "bv", "wo", "bo"]
    given = zip(names, (x, wq, bq, wk, bk, wv, bv, wo, bo), strict=True)
    p = {n: torch.tensor(a, requires_grad=True) for n, a in given}

    def rope(q):
        T, D = q.shape[-2:]
        ang = torch.outer(torch.arange(T).double(), 10000.0 ** (-torch.arange(0, D, 2).double() / D))
        ph = torch.polar(torch.ones_like(ang), ang).to(torch.complex64)
        return torch.view_as_real(torch.view_as_complex(q.reshape(*q.shape[:-1], -1, 2).contiguous()) * ph).flatten(-2)

    y = mh(p["x"], p, rope=rope)
    y.backward(torch.tensor(do))
    return {"o": y, **{"d" + n: a.grad for n, a in p.items()}}


def block(do, a, keep=None, dropout=None, residual=None, hidden=None):
    torch = torch_()
    F = torch.nn.functional
    p = {n: torch.tensor(v, requires_grad=True) for n, v in a.items()}

    def tt(v):
        return None if v is None else torch.tensor(v)

    keep, dropout, residual, hidden = map(tt, (keep, dropout, residual, hidden))
    att = {n[10:]: v for n, v in p.items() if n.startswith("attention.")}

    def ln(x, n):
        return F.layer_norm(x, x.shape[-1:], p[n + ".scale"], p[n + ".shift"], 1e-5)

    x = p["x"]
    y = mh(ln(x, "norm1"), att, keep=keep, dropout=dropout)
    x1 = x + (y if residual is None else y * residual[0])
    h = torch.relu(ln(x1, "norm2") @ p["feed_forward.w1"] + p["feed_forward.b1"])
    h = h if hidden is None else h * hidden
    y = h @ p["feed_forward.w2"] + p["feed_forward.b2"]
    x2 = x1 + (y if residual is None else y * residual[1])
    x2.backward(torch.tensor(do))
    return {"o": x2, **{"d" + n: v.grad for n, v in p.items()}}


def block_pre(do, keep=None, dropout=None, residual=None, hidden=None, **a):
    return block(do, a, keep, dropout, residual, hidden)


def context_norm_one_pass(x, scale, shift, do):
    B, T, M = x.shape
    y = x.reshape(B, 2, T // 2, M)
    n = T // 2
    mean = y.mean(2, keepdims=True)
    var = (np.square(y).sum(2, keepdims=True) - n * mean * mean) / (n - 1)
    r = 1 / np.sqrt(np.maximum(var, 0) + x.dtype.type(1e-8))
    xh = (y - mean) * r
    g = do.reshape(y.shape) * scale
    dx = r * (g - g.mean(2, keepdims=True) - xh * (g * xh).sum(2, keepdims=True) / (n - 1))
    return (
        (xh * scale + shift).reshape(x.shape),
        dx.reshape(x.shape),
        (do.reshape(y.shape) * xh).sum((0, 1, 2)),
        do.sum((0, 1)),
    )


def embedding_sorted(table, index, do):
    flat, g = index.reshape(-1), do.reshape(-1, do.shape[-1])
    order = np.argsort(flat, kind="stable")
    rows, starts = np.unique(flat[order], return_index=True)
    d = np.zeros_like(table)
    d[rows] = np.add.reduceat(g[order], starts, 0)
    return np.take(table, index, 0), d


def scan_torch(a, u, do):
    torch = torch_()
    a, u = torch.tensor(a, requires_grad=True), torch.tensor(u, requires_grad=True)
    h, ys = torch.zeros_like(u[:, 0]), []
    for t in range(u.shape[1]):
        h = (h[:, None] @ a[:, t])[:, 0] + u[:, t]
        ys.append(h)
    y = torch.stack(ys, 1)
    y.backward(torch.tensor(do))
    return y, a.grad, u.grad


def sigmoid_mse_tanh(logits, target, do, weight=None):
    p = 0.5 * (1 + np.tanh(0.5 * logits))
    w = np.ones(logits.shape[:-1], logits.dtype) if weight is None else weight
    sh = (w / w.sum())[..., None] / logits.shape[-1]
    return ((p - target) ** 2 * sh).sum(), do * 2 * (p - target) * p * (1 - p) * sh


def bce_logaddexp(logits, target, do, weight=None):
    w = np.full(logits.shape, 1 / logits.size, logits.dtype) if weight is None else weight / weight.sum()
    return (w * (np.logaddexp(0, logits) - target * logits)).sum(), do * w * (1 / (1 + np.exp(-logits)) - target)


def scores_matmul(q, k, do, bias=None):
    f = q.dtype.type
    s = np.matmul(q.transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1)) * f(q.shape[-1] ** -0.5)
    dq = (do @ k.transpose(0, 2, 1, 3) * f(q.shape[-1] ** -0.5)).transpose(0, 2, 1, 3)
    dk = (do.swapaxes(2, 3) @ q.transpose(0, 2, 1, 3) * f(q.shape[-1] ** -0.5)).transpose(0, 2, 1, 3)
    if bias is None:
        return s, dq, dk
    sh = (1,) * (4 - bias.ndim) + bias.shape
    return s + bias, dq, dk, do.sum(tuple(a for a in range(4) if sh[a] == 1), keepdims=True).reshape(bias.shape)
