"""Kernels with a mistake, which `bug` names, or a part that the page does not have."""

import math

import numpy as np

from .kernels import back, into, rot, state_chunked, torch_


def fold(db, bias):
    sh = (1,) * (4 - bias.ndim) + bias.shape
    return db.sum(tuple(a for a in range(4) if sh[a] == 1), keepdims=True).reshape(bias.shape)


def soft(q, k, v, do, bias=None, keep=None, dropout=None, bug=None, causal=False):
    f = q.dtype.type
    sc = f(q.shape[-1] ** -0.5)
    Q, K = q.shape[1], k.shape[1]
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * sc
    if bias is not None:
        s = s + (bias * sc if bug == "bias_scaled" else bias)
    if causal:
        tri = np.arange(K)[None] <= np.arange(Q)[:, None] + K - Q - (bug == "strict")
        keep = tri if keep is None else keep & tri
    late = bug == "mask_after"
    if keep is not None and not late:
        s = np.where(keep, s, f(-1e30))
    ax = {"over_q": 2, "over_h": 1}.get(bug, -1)
    a = np.exp(s - s.max(ax, keepdims=True))
    if keep is not None and not late and bug != "nothing_kept":
        a = a * keep
    t = a.sum(ax, keepdims=True)
    a = a / np.where(t == 0, f(1), t)
    a0 = a
    if late and keep is not None:
        a = a * keep
    c = a if dropout is None else a * dropout
    o = np.einsum("bhqk,bkhe->bqhe", c, v)
    dc = np.einsum("bqhe,bkhe->bhqk", do, v)
    dv = np.einsum("bhqk,bqhe->bkhe", a if bug == "dv_undropped" else c, do)
    da = dc if dropout is None or bug == "da_undropped" else dc * dropout
    if late and keep is not None:
        da = da * keep
        a = a0
    delta = (a * (dc if bug == "delta_undropped" else da)).sum(ax, keepdims=True)
    ds = a * da - delta if bug == "paren" else a * (da - delta)
    if bug == "no_delta":
        ds = a * da
    if bug == "delta_mean":
        ds = a * (da - (a * da).mean(ax, keepdims=True))
    dq = np.einsum("bhqk,bkhd->bqhd", ds, k) * sc
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q) * {"dk_unscaled": f(1), "dk_twice": sc * sc}.get(bug, sc)
    out = [o, dq, dk, dv]
    if bug == "swapped":
        out = [o, dq, dv, dk]
    if bias is not None:
        db = fold(ds, bias)
        if bug == "dbias_mean":
            db = db / f(ds.size / bias.size)
        if bug == "dbias_first":
            db = ds[0].reshape(bias.shape)
        if bug == "dbias_scaled":
            db = db * sc
        out.append(db)
    if bug == "o_reshape":
        out[0] = o.transpose(0, 2, 1, 3).reshape(o.shape)
    return tuple(out)


def causal_backward(q, k, v, do):
    o = soft(q, k, v, do, causal=True)[0]
    _, dq, dk, dv = soft(q, k, v, do)
    return o, dq, dk, dv


def torch_min_tie(q, k, v, do):
    torch = torch_()
    q, k, v = (torch.tensor(x, requires_grad=True) for x in (q, k, v))
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    x = torch.exp(torch.minimum(s - s.amax(-1, keepdim=True).detach(), torch.zeros(())))
    o = torch.einsum("bhqk,bkhe->bqhe", x / x.sum(-1, keepdim=True), v)
    o.backward(torch.tensor(do))
    return o, q.grad, k.grad, v.grad


def gqa(q, k, v, do):
    """Heads of keys tiled instead of repeated: head i of queries uses head i % n of keys."""
    n = k.shape[2]
    o, dq, dk, dv = soft(into(q), np.tile(k, (1, 1, 2, 1)), np.tile(v, (1, 1, 2, 1)), into(do))

    def red(x):
        return x[:, :, :n] + x[:, :, n:]

    return back(o), back(dq), red(dk), red(dv)


def flash(q, k, v, do, dropout=None, bug=None, causal=False, bq=2, bk=3, lse_out=False):
    q, k, v, do = (x.transpose(0, 2, 1, 3) for x in (q, k, v, do))
    f = q.dtype.type
    B, H, Q, D = q.shape
    K = k.shape[2]
    sc = f(D**-0.5)
    o = np.zeros(q.shape[:3] + v.shape[-1:], q.dtype)
    raw, lse = np.zeros_like(o), np.zeros((B, H, Q), q.dtype)
    tiles = [slice(j, min(K, j + bk)) for j in range(0, K, bk)]
    full = (B, H, Q, K)
    dr = None if dropout is None else np.broadcast_to(dropout, full)
    mask = np.arange(K)[None] <= np.arange(Q)[:, None] + K - Q
    fw = [t for t in tiles if t.stop - t.start == bk] if bug == "last_tile" else tiles
    qt = [slice(i, min(Q, i + bq)) for i in range(0, Q, bq)]

    def score(I, J):
        s = q[:, :, I] @ k[:, :, J].swapaxes(2, 3) * sc
        return np.where(mask[I, J], s, f(-1e30)) if causal else s

    for I in qt:
        m = np.full(q[:, :, I].shape[:3], f(-1e30), q.dtype)
        l, acc = np.zeros_like(m), np.zeros_like(o[:, :, I])
        for J in fw:
            if causal and bug == "tile_skip" and J.stop - 1 > I.start + K - Q:
                continue
            s = score(I, J)
            mn = np.maximum(m, s.max(-1))
            al = np.exp(m - mn)
            p = np.exp(s - (np.where(m < -1e29, mn, m) if bug == "stale_max" else mn)[..., None])
            pd = p if dr is None else p * dr[:, :, I, J]
            l = (l if bug == "l_not_rescaled" else l * al) + (pd if bug == "l_dropped" else p).sum(-1)
            acc = (acc if bug == "acc_not_rescaled" else acc * al[..., None]) + pd @ v[:, :, J]
            m = mn
        o[:, :, I] = acc / l[..., None]
        raw[:, :, I] = acc
        lse[:, :, I] = m + np.log(l)
    delta = (do * (raw if bug == "delta_unnormalised" else o)).sum(-1)
    if bug == "delta_no_do":
        delta = o.sum(-1)
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    L = lse if bug != "lse_base" else lse / f(math.log(2))
    for J in tiles:
        for I in qt[:-1] if bug == "last_query_tile" else qt:
            p = np.exp(score(I, J) - L[:, :, I, None])
            pd = p if dr is None else p * dr[:, :, I, J]
            dp = do[:, :, I] @ v[:, :, J].swapaxes(2, 3)
            if dr is not None:
                dp = dp * dr[:, :, I, J]
            ds = p * (dp - delta[:, :, I, None]) * sc
            if bug == "dq_overwritten":
                dq[:, :, I] = ds @ k[:, :, J]
            else:
                dq[:, :, I] += ds @ k[:, :, J]
            if bug == "dk_first_tile_twice" and I.start == 0:
                dk[:, :, J] += ds.swapaxes(2, 3) @ q[:, :, I]
            dk[:, :, J] += ds.swapaxes(2, 3) @ q[:, :, I]
            dv[:, :, J] += pd.swapaxes(2, 3) @ do[:, :, I]
    if bug == "last_query_tile":
        I = qt[-1]
        p = np.exp(score(I, slice(0, K)) - L[:, :, I, None])
        dq[:, :, I] = (p * (do[:, :, I] @ v.swapaxes(2, 3) - delta[:, :, I, None]) * sc) @ k
    out = tuple(x.transpose(0, 2, 1, 3) for x in (o, dq, dk, dv))
    if lse_out:
        return dict(zip(("o", "dq", "dk", "dv"), out, strict=True), lse=lse / f(math.log(2)))
    return out


def lin(q, k, v, do, bias=None, keep=None, dropout=None, bug=None):
    f = q.dtype.type
    sc = f(1) if bug == "no_scale" else f(q.shape[-1] ** -0.5)
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * sc
    s = s if bias is None else s + bias
    a = s if keep is None else s * keep
    drop = None if bug == "no_dropout" else dropout
    c = a if drop is None else a * drop
    o = np.einsum("bhqk,bkhe->bqhe", c, v)
    dc = np.einsum("bqhe,bkhe->bhqk", do, v)
    dv = np.einsum("bhqk,bqhe->bkhe", s * (1 if dropout is None else dropout) if bug == "dv_unmasked" else c, do)
    da = dc if drop is None else dc * drop
    ds = da if keep is None or bug == "ds_unmasked" else da * keep
    out = (o, np.einsum("bhqk,bkhd->bqhd", ds, k) * sc, np.einsum("bhqk,bqhd->bkhd", ds, q) * sc, dv)
    return out if bias is None else out + (fold(ds, bias),)


def lin_state(q, k, v, do, bug=None):
    B, T, H, D = q.shape
    c = np.asarray(D**-0.5, q.dtype)
    S = np.zeros((B, H, D, v.shape[-1]), q.dtype)
    o, dq, dk, dv = np.empty_like(v), np.empty_like(q), np.empty_like(k), np.empty_like(v)
    for t in range(T):
        new = S + k[:, t, :, :, None] * v[:, t, :, None, :]
        S_ = S if bug == "exclusive" else new
        S = new
        o[:, t] = np.einsum("bhd,bhde->bhe", q[:, t], S_) * c
        dq[:, t] = np.einsum("bhe,bhde->bhd", do[:, t], S_) * c
    R = np.zeros_like(S)
    for t in reversed(range(T)):
        new = R + q[:, t, :, :, None] * do[:, t, :, None, :] * c
        R_ = R if bug in ("exclusive", "dk_exclusive") else new
        R = new
        dk[:, t] = np.einsum("bhde,bhe->bhd", R_, v[:, t])
        dv[:, t] = np.einsum("bhde,bhd->bhe", new if bug == "dk_exclusive" else R_, k[:, t])
    return o, dq, dk, dv


def hy(q, k, v, do, bias=None, keep=None, dropout=None, bug=None):
    f = q.dtype.type
    H = q.shape[2]
    sc = f(q.shape[-1] ** -0.5)
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * sc
    late_bias = bug == "bias_after"
    if bias is not None and not late_bias:
        s = s + bias
    if keep is not None and bug != "keep_after":
        s = s * keep
    eps = f({"eps5": 1e-5, "eps0": 1e-30}.get(bug, 1e-6))
    ax = -1 if bug == "mean_over_k" else 1
    n = f(1) if bug == "sum_heads" else f(s.shape[ax])
    ms = (s * s).sum(ax, keepdims=True) / n
    rho = 1 / np.sqrt(ms + eps)
    if bug == "eps_outside":
        rho = 1 / (np.sqrt(ms) + eps)
    a = s * rho
    if late_bias and bias is not None:
        a = a + bias
    if keep is not None and bug == "keep_after":
        a = a * keep
    c = a if dropout is None else a * dropout
    c2 = a if bug == "second_undropped" else c
    z = np.einsum("bhqk,bkhe->bqke", c, v)
    g = np.maximum(z, 0)
    if bug == "gelu":
        t = np.tanh(f(math.sqrt(2 / math.pi)) * (z + f(0.044715) * z**3))
        g = z * (1 + t) / 2
    o = np.einsum("bhqk,bqke->bqhe", c2, g)
    dg = np.einsum("bhqk,bqhe->bqke", c2, do)
    dz = dg * ((dg > 0) if bug == "relu_at_dg" else (z > 0))
    if bug == "no_relu_backward":
        dz = dg
    if bug == "gelu":
        dz = dg * ((1 + t) / 2 + z * (1 - t * t) / 2 * f(math.sqrt(2 / math.pi)) * (1 + f(3 * 0.044715) * z * z))
    dc2, dc1 = np.einsum("bqhe,bqke->bhqk", do, g), np.einsum("bqke,bkhe->bhqk", dz, v)
    dv = np.einsum("bhqk,bqke->bkhe", c, dg if bug == "dv_from_dg" else g if bug == "dv_from_g" else dz)
    w = f(1) if dropout is None else dropout
    da = dc1 * w + dc2 * (f(1) if bug == "second_undropped" else w)
    if bug == "no_second_use":
        da = dc1 * w
    if keep is not None and bug == "keep_after":
        da = da * keep
    base = a - bias if late_bias and bias is not None else s * rho
    A = {"proj_c": c}.get(bug, base)
    if bug == "no_projection":
        ds = rho * da
    elif bug == "rho2":
        ds = rho * da - s * rho**2 * (s * da).sum(1, keepdims=True) / f(H)
    elif bug == "proj_sum":
        ds = rho * (da - A * (A * da).sum(1, keepdims=True))
    elif bug == "no_rho":
        ds = da - A * (A * da).mean(1, keepdims=True)
    else:
        ds = rho * (da - A * (A * da).sum(ax, keepdims=True) / n)
    if keep is not None and bug not in ("keep_after", "ds_unmasked"):
        ds = ds * keep
    scq = f(v.shape[-1] ** -0.5) if bug == "dq_scale_e" else sc
    out = (o, np.einsum("bhqk,bkhd->bqhd", ds, k) * scq, np.einsum("bhqk,bqhd->bkhd", ds, q) * sc, dv)
    return out if bias is None else out + (fold(da if late_bias else ds, bias),)


def abl(q, k, v, wv2=None, do=None, norm=("rms",), uses=2, relu=True, bug=None):
    torch = torch_()
    ins = [torch.tensor(x, requires_grad=True) for x in (q, k, v) + (() if wv2 is None else (wv2,))]
    q, k, v = ins[:3]
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    for n in norm:
        s = torch.softmax(s, -1) if n == "soft" else s * torch.rsqrt(s.pow(2).mean(1, keepdim=True) + 1e-6)
    act = torch.relu if relu else (lambda x: x)
    if uses == 1:
        o = torch.einsum("bhqk,bkhe->bqhe", s, act(v))
    else:
        z = act(torch.einsum("bhqk,bkhe->bqke", s.detach() if bug == "detach1" else s, v))
        if uses == 3:
            w2 = ins[3]
            z = torch.einsum("bhqk,bqke,hef->bqkf" if bug != "w2_transposed" else "bhqk,bqke,hfe->bqkf", s, z, w2)
            z = z if bug == "no_relu2" else act(z)
        o = torch.einsum("bhqk,bqke->bqhe", s, z)
    o.backward(torch.tensor(do))
    g = [x.grad for x in ins]
    if bug == "dw2_transposed":
        g[3] = g[3].mT
    if bug == "values_slope":
        with torch.no_grad():
            g[2] = torch.einsum("bhqk,bqhe->bkhe", s, torch.tensor(do))
    return (o, *g)


def comp(q, k, v, selector, wr, do, bug=None):
    torch = torch_()
    ins = [torch.tensor(x, requires_grad=True) for x in (q, k, v, selector, wr)]
    q, k, v, sel, w = ins
    a = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5, -1)
    t = torch.einsum("bhqk,bkre->bqhre", a, v)
    tk = t.detach() if bug == "key_detached" else t
    sc = {"scale_d": q.shape[-1], "scale_e": v.shape[-1]}.get(bug, sel.shape[-1]) ** -0.5
    l = torch.einsum("bqhc,bqhre,ec->bqhr", sel, tk, w) * sc
    g = torch.softmax(l, 2 if bug == "over_searches" else -1)
    if bug == "g_detached":
        g = g.detach()
    o = torch.einsum("bqhr,bqhre->bqhe", g, t)
    if bug == "g_detached":
        o.backward(torch.tensor(do))
        gr = [x.grad if x.grad is not None else torch.zeros_like(x) for x in ins]
        return (o, *gr)
    o.backward(torch.tensor(do))
    gr = [x.grad for x in ins]
    if bug == "dwr_unscaled":
        gr[4] = gr[4] / sc
    return (o, *gr)


def comp_nl(q, k, v, selector, wr, wc, br, w2, b2, do, bug=None):
    torch = torch_()
    ins = [torch.tensor(x, requires_grad=True) for x in (q, k, v, selector, wr, wc, br, w2, b2)]
    q, k, v, sel, wr, wc, br, w2, b2 = ins
    a = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5, -1)
    t = torch.einsum("bhqk,bkre->bqhre", a, v)
    z = (sel @ wc + (0 if bug == "no_br" else br))[..., None, :] + t @ wr
    h = torch.tanh(z) if bug == "tanh" else torch.relu(z)
    g = torch.softmax(h @ w2 + b2, -1)
    o = torch.einsum("bqhr,bqhre->bqhe", g, t)
    o.backward(torch.tensor(do))
    gr = [x.grad if x.grad is not None else torch.zeros_like(x) for x in ins]
    if bug == "dbr_mean":
        gr[6] = gr[6] / t.shape[3]
    return (o, *gr)


def slide(q, k, v, ob, pk=None, pv=None, do=None, bug=None):
    torch = torch_()
    dil = 1 if bug == "dilation" else 2
    ins = [torch.tensor(x, requires_grad=True) for x in (q, k, v, ob) + (() if pk is None else (pk, pv))]
    q, k, v, r = ins[:4]
    Q, Tn, W = q.shape[1], k.shape[1], r.shape[1]
    P = W * 2 + 2
    padk = torch.zeros(q.shape[0], P, *k.shape[2:]) if pk is None else ins[4].expand(q.shape[0], P, *k.shape[2:])
    padv = (
        torch.zeros(q.shape[0], P, *v.shape[2:])
        if pk is None or bug == "pad_v_zero"
        else ins[5].expand(q.shape[0], P, *v.shape[2:])
    )
    K, V = torch.cat([padk, k], 1), torch.cat([padv, v], 1)
    pos = torch.arange(Tn - Q, Tn)[:, None] - dil * torch.arange(W)
    if bug == "window_off_by_one":
        pos = pos - dil
    if bug == "queries_first":
        pos = torch.arange(Q)[:, None] - dil * torch.arange(W)
    rr = r.flip(1) if bug == "bias_flipped" else r
    s = torch.einsum("bqhd,bqwhd->bhqw", q, K[:, pos + P]) * q.shape[-1] ** -0.5 + rr[:, None] * (
        q.shape[-1] ** -0.5 if bug == "bias_scaled" else 1
    )
    if pk is None and bug != "zero_keys":
        s = s.masked_fill(pos < 0, -1e30)
    a = torch.softmax(s, -1)
    if pk is None and bug != "zero_keys":
        a = a * (pos >= 0)
    o = torch.einsum("bhqw,bqwhe->bqhe", a, V[:, pos + P])
    o.backward(torch.tensor(do))
    g = [x.grad if x.grad is not None else torch.zeros_like(x) for x in ins]
    if bug == "dbias_batch_mean":
        g[3] = g[3] / q.shape[0]
    if bug == "dpad_first":
        with torch.no_grad():
            g[4] = g[4] / q.shape[0]
    return (o, *g)


def ln(x, scale, shift, do, bug=None):
    f = x.dtype.type
    m = x.mean(-1, keepdims=True)
    n_ = x.shape[-1] - (bug == "unbiased")
    var = np.square(x - m).sum(-1, keepdims=True) / f(n_)
    r = 1 / (np.sqrt(var) + f(1e-6)) if bug == "eps_outside" else 1 / np.sqrt(var + f(1e-5 if bug == "eps5" else 1e-6))
    n = (x - m) * r
    dn = scale * do
    c1 = (n * dn).sum(-1, keepdims=True) / f(n_)
    dx = r * (dn - (0 if bug == "no_mean" else dn.mean(-1, keepdims=True)) - (0 if bug == "no_proj" else n * c1))
    if bug == "dn_unscaled":
        dx = r * (do - do.mean(-1, keepdims=True) - n * (n * do).mean(-1, keepdims=True))
    ax = tuple(range(x.ndim - 1))
    return (
        n * scale + shift,
        dx,
        (do * ((x - m) if bug == "dscale_x" else n)).sum(ax),
        (do.mean(ax) if bug == "dshift_mean" else do.sum(ax)),
    )


def xent(logits, target, do, weight=None, bug=None):
    z = logits - logits.max(-1, keepdims=True)
    p = np.exp(z)
    p /= p.sum(-1, keepdims=True)
    w = np.ones(target.shape, logits.dtype) if weight is None else weight
    den = np.asarray(target.size, logits.dtype) if bug == "mean_over_n" else w.sum()
    hot = np.eye(p.shape[-1], dtype=p.dtype)[target.astype(int)]
    loss = (-(hot * np.log(p)).sum(-1) * w).sum() / den
    return loss, (do if bug != "no_do" else 1) * (p - hot) * (1 if bug == "grad_unweighted" else w[..., None]) / den


def rot_half_on_inter(x, do):
    D = x.shape[-1]
    perm = np.concatenate([np.arange(0, D, 2), np.arange(1, D, 2)])
    y, dx = rot(x[..., np.argsort(perm)], do[..., np.argsort(perm)], np.complex64)
    return y[..., perm], dx[..., perm]


def rot_base(x, do):
    T, D = x.shape[1], x.shape[-1]
    ph = np.exp(1j * np.arange(T)[:, None] * 10000.0 ** (-np.arange(D // 2) / D)).astype(np.complex64)[:, None]
    return (np.ascontiguousarray(x).view(np.complex64) * ph).view(x.dtype), (
        np.ascontiguousarray(do).view(np.complex64) * ph.conj()
    ).view(x.dtype)


def gelu(x, do, exact=False):
    torch = torch_()
    x = torch.tensor(x, requires_grad=True)
    y = torch.nn.functional.gelu(x) if exact else x * torch.sigmoid(1.702 * x)
    y.backward(torch.tensor(do))
    return y, x.grad


def swiglu(x, wg, wu, wd, do, bug=None):
    torch = torch_()
    ins = [torch.tensor(a, requires_grad=True) for a in (x, wg, wu, wd)]
    x, wg, wu, wd = ins
    g, u = x @ wg, x @ wu
    h = (
        torch.nn.functional.silu(u) * g
        if bug == "exchanged"
        else torch.sigmoid(g) * u
        if bug == "glu"
        else torch.nn.functional.silu(g) * u
    )
    y = h @ wd
    y.backward(torch.tensor(do))
    return (y, *(a.grad for a in ins))


def moe(x, wg, w1, b1, w2, b2, do, bug=None):
    torch = torch_()
    ins = [torch.tensor(a, requires_grad=True) for a in (x, wg, w1, b1, w2, b2)]
    x, wg, w1, b1, w2, b2 = ins
    z = x @ wg
    top = z.topk(2, -1)
    if bug == "softmax_before":
        g = torch.softmax(z, -1).gather(-1, top.indices)
    else:
        g = torch.softmax(top.values, -1)
    if bug == "gate_detached":
        g = g.detach()
    h = torch.nn.functional.gelu(torch.einsum("btm,mxf->btxf", x, w1) + b1, approximate="tanh")
    y = torch.einsum("btxf,xfm->btxm", h, w2) + b2
    G = torch.zeros_like(z).scatter(-1, top.indices, g)
    y = (y * G[..., None]).sum(-2)
    y.backward(torch.tensor(do))
    return (y, *(a.grad if a.grad is not None else torch.zeros_like(a) for a in ins))


def conv(x, k, b, do, bug=None):
    B, G, J, I = x.shape
    xp, dp = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), np.pad(do, ((0, 0), (1, 1), (1, 1), (0, 0)))
    y, dx, dk = b + np.zeros_like(do), np.zeros_like(x), np.zeros_like(k)
    for u in range(3):
        for w in range(3):
            win = xp[:, u : u + G, w : w + J]
            y = y + win @ (k[2 - u, 2 - w] if bug == "flipped" else k[u, w])
            dk[u, w] = np.einsum("bgji,bgjo->io", win, do)
            dx += (
                dp[:, 2 - u : 2 - u + G, 2 - w : 2 - w + J] @ (k[2 - u, 2 - w] if bug == "dx_unflipped" else k[u, w]).T
            )
    return y, dx, dk, do.sum((0, 1, 2)) if bug != "db_mean" else do.mean((0, 1, 2))


def ctx(x, scale, shift, do, bug=None):
    torch = torch_()
    ins = [torch.tensor(a, requires_grad=True) for a in (x, scale, shift)]
    x, sc, sh = ins
    y = x.reshape(x.shape[0], 2, -1, x.shape[-1]) if bug != "one_segment" else x[:, None]
    m = y.mean(2, keepdim=True)
    n = (y - m) / torch.sqrt(y.var(2, keepdim=True, unbiased=bug != "biased") + 1e-8)
    o = (n * sc + sh).reshape(x.shape)
    o.backward(torch.tensor(do))
    return (o, *(a.grad for a in ins))


def multi_head(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bug=None, pos=None):
    torch = torch_()
    given = dict(x=x, wq=wq, bq=bq, wk=wk, bk=bk, wv=wv, bv=bv, wo=wo, bo=bo)
    p = {n: torch.tensor(v, requires_grad=True) for n, v in given.items()}
    x = p["x"]
    q, k, v = (torch.einsum("btm,mhd->bhtd", x, p["w" + n]) + p["b" + n][:, None] for n in "qkv")
    Tn, H = x.shape[1], q.shape[1]
    if pos == "rope_half":
        D = q.shape[-1]
        fr = torch.outer(torch.arange(Tn).float(), 1 / 10000 ** (torch.arange(0, D, 2).float() / D))
        emb = torch.cat([fr, fr], -1)

        def ro(z):
            return z * emb.cos() + torch.cat([-z[..., D // 2 :], z[..., : D // 2]], -1) * emb.sin()

        q, k = ro(q), ro(k)
    if pos == "rope_q_only":
        D = q.shape[-1]
        ang = torch.outer(torch.arange(Tn).double(), 10000.0 ** (-torch.arange(0, D, 2).double() / D))
        ph = torch.polar(torch.ones_like(ang), ang).to(torch.complex64)

        def ro(z):
            pairs = torch.view_as_complex(z.reshape(*z.shape[:-1], -1, 2).contiguous())
            return torch.view_as_real(pairs * ph).flatten(-2)

        q = ro(q)
    s = q @ k.mT / q.shape[-1] ** 0.5
    if pos == "alibi":
        n = torch.arange(Tn)
        sl = 2.0 ** (-8 * torch.arange(0 if bug == "slope0" else 1, H + (bug != "slope0")) / H)
        d = n[None] - n[:, None]
        s = s - sl[:, None, None] * d.abs()
    am = torch.softmax(s, -1)
    o = torch.einsum("bhqe,hem->bqm", am @ v, p["wo"]) + p["bo"]
    o.backward(torch.tensor(do))
    out = {"o": o, **{"d" + n: t.grad for n, t in p.items()}}
    if bug == "dbo_batch":
        out["dbo"] = torch.tensor(do).sum((0, 1)) / do.shape[1]
    if bug == "dbv_missing":
        out["dbv"] = torch.zeros_like(p["bv"])
    if bug == "dx_no_q":
        with torch.enable_grad():
            x2 = x.detach().requires_grad_()
            kk, vv = (
                torch.einsum("btm,mhd->bhtd", x2, p["w" + n].detach()) + p["b" + n].detach()[:, None] for n in "kv"
            )
            y = torch.einsum(
                "bhqe,hem->bqm", torch.softmax(q.detach() @ kk.mT / q.shape[-1] ** 0.5, -1) @ vv, p["wo"].detach()
            )
            out["dx"] = torch.autograd.grad(y, x2, torch.tensor(do))[0]
    return out


def full_block(do, keep=None, dropout=None, residual=None, hidden=None, bug=None, **a):
    torch = torch_()
    Fn = torch.nn.functional
    p = {n: torch.tensor(v, requires_grad=True) for n, v in a.items()}
    keep, dropout, residual, hidden = (
        None if v is None else torch.tensor(v) for v in (keep, dropout, residual, hidden)
    )

    def lnorm(x, n):
        return Fn.layer_norm(x, x.shape[-1:], p[n + ".scale"], p[n + ".shift"], 1e-6 if bug == "eps" else 1e-5)

    def att(x):
        P = {n[10:]: v for n, v in p.items() if n.startswith("attention.")}
        q, k, v = (torch.einsum("btm,mhd->bhtd", x, P["w" + n]) + P["b" + n][:, None] for n in "qkv")
        s = q @ k.mT / q.shape[-1] ** 0.5
        s = s if keep is None else s.masked_fill(~keep, -1e30)
        w = torch.softmax(s, -1)
        w = w if keep is None else w * keep
        w = w if dropout is None else w * dropout
        y = torch.einsum("bhqe,hem->bqm", w @ v, P["wo"]) + P["bo"]
        return y if residual is None else y * residual[0]

    def ff(x):
        z = x @ p["feed_forward.w1"] + p["feed_forward.b1"]
        h = Fn.gelu(z) if bug == "gelu" else torch.relu(z)
        h = h if hidden is None else h * hidden
        y = h @ p["feed_forward.w2"] + p["feed_forward.b2"]
        return y if residual is None or bug == "residual_dropout_missing" else y * residual[1]

    x = p["x"]
    if bug == "post":
        x = lnorm(x + att(x), "norm1")
        y = lnorm(x + ff(x), "norm2")
    elif bug == "residual_of_norm":
        n = lnorm(x, "norm1")
        x = n + att(n)
        y = x + ff(lnorm(x, "norm2"))
    elif bug == "parallel":
        y = x + att(lnorm(x, "norm1")) + ff(lnorm(x, "norm2"))
    elif bug == "norm2_missing":
        x = x + att(lnorm(x, "norm1"))
        y = x + ff(x)
    elif bug == "dx_no_skip":
        x = x + att(lnorm(x, "norm1"))
        y = x.detach() + ff(lnorm(x, "norm2"))
    else:
        x = x + att(lnorm(x, "norm1"))
        y = x + ff(lnorm(x, "norm2"))
    y.backward(torch.tensor(do))
    return {"o": y, **{"d" + n: torch.zeros_like(v) if v.grad is None else v.grad for n, v in p.items()}}


def next_tok(h, table, target, do, bug=None):
    f = h.dtype.type
    z = h @ table.T * (f(h.shape[-1] ** -0.5) if bug == "scaled" else f(1))
    p = np.exp(z - z.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    hot = np.eye(len(table), dtype=h.dtype)[target]
    y = -np.log((p * hot).sum(-1))
    dz = (p - hot) * do[..., None]
    dzt = p * do[..., None] if bug == "dtable_no_target" else dz
    sc = f(h.shape[-1] ** -0.5) if bug == "scaled" else f(1)
    return y, dz @ table * sc, np.einsum("btv,btm->vm", dzt, h) * sc


def emb(table, index, do):
    d = np.zeros_like(table)
    d[index] = do
    return table[index], d


def padded_keys(q, k, v, do):
    """The tail of the last key tile is not masked: keys of zero take part in the sum."""
    pad = (-k.shape[1]) % 4

    def z(x):
        return np.concatenate([x, np.zeros((x.shape[0], pad) + x.shape[2:], x.dtype)], 1)

    o, dq, dk, dv = soft(q, z(k), z(v), do)
    return o, dq, dk[:, : k.shape[1]], dv[:, : k.shape[1]]


def hyla_padded_heads(q, k, v, do):
    """Mean over a block of 8 heads, of which 5 are there."""
    torch = torch_()
    q, k, v = (torch.tensor(x, requires_grad=True) for x in (q, k, v))
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    s = torch.cat([s, torch.zeros_like(s)[:, : 8 - s.shape[1]]], 1)
    a = s * torch.rsqrt(s.pow(2).mean(1, keepdim=True) + 1e-6)
    a = a[:, : q.shape[2]]
    o = torch.einsum("bhqk,bqke->bqhe", a, torch.einsum("bhqk,bkhe->bqke", a, v).relu())
    o.backward(torch.tensor(do))
    return o, q.grad, k.grad, v.grad


def ln_padded(x, scale, shift, do):
    """Variance over a padded block of 8 columns: (0 - mean)^2 of the padding is in the sum."""
    f = x.dtype.type
    M = x.shape[-1]
    m = x.mean(-1, keepdims=True)
    var = (np.square(x - m).sum(-1, keepdims=True) + (8 - M) * m * m) / f(M)
    r = 1 / np.sqrt(var + f(1e-6))
    n = (x - m) * r
    dn = scale * do
    dx = r * (dn - dn.mean(-1, keepdims=True) - n * (n * dn).mean(-1, keepdims=True))
    return n * scale + shift, dx, (do * n).sum((0, 1)), do.sum((0, 1))


def tril(q, k, v, do):
    keep = np.tril(np.ones((q.shape[1], k.shape[1]), bool))
    return soft(q, k, v, do, keep=keep)


def weights(q, k):
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * np.asarray(q.shape[-1] ** -0.5, q.dtype)
    a = np.exp(s - s.max(-1, keepdims=True))
    return a / a.sum(-1, keepdims=True)


def drop_other_backward(q, k, v, do, dropout):
    o = soft(q, k, v, do, dropout=dropout)[0]
    return (o,) + soft(q, k, v, do, dropout=np.roll(dropout, 1, 0))[1:]


def tf32(x):
    return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def tf32_kernel(q, k, v, do):
    if q.dtype != np.float32:
        return soft(q, k, v, do)
    return soft(tf32(np.ascontiguousarray(q)), tf32(np.ascontiguousarray(k)), tf32(np.ascontiguousarray(v)), do)


_cache = {}


def cached(q, k, v, do):
    key = q.shape
    if key not in _cache:
        _cache[key] = soft(q, k, v, do)
    return _cache[key]


def window(q, k, v, do, n=4):
    Q, K = q.shape[1], k.shape[1]
    d = np.arange(Q)[:, None] + K - Q - np.arange(K)
    return soft(q, k, v, do, keep=(d >= 0) & (d < n))


def gqa2(q, k, v, do, how):
    o, dq, dk, dv = soft(into(q), np.repeat(k, 2, 2), np.repeat(v, 2, 2), into(do))
    red = (lambda x: x[:, :, ::2]) if how == "first" else (lambda x: (x[:, :, ::2] + x[:, :, 1::2]) / 2)
    return back(o), back(dq), red(dk), red(dv)


def exp2_backward(q, k, v, do):
    """lse kept in base 2, used with exp in the backward; q not multiplied by log2(e) there."""
    o, _, _, _ = soft(q, k, v, do)
    f = q.dtype.type
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * f(q.shape[-1] ** -0.5)
    lse2 = np.logaddexp.reduce(s, -1, keepdims=True) / f(math.log(2))
    p = np.exp2(s - lse2)
    ds = p * (np.einsum("bqhe,bkhe->bhqk", do, v) - np.einsum("bqhe,bqhe->bhq", do, o)[..., None])
    c = f(q.shape[-1] ** -0.5)
    return (
        o,
        np.einsum("bhqk,bkhd->bqhd", ds, k) * c,
        np.einsum("bhqk,bqhd->bkhd", ds, q) * c,
        np.einsum("bhqk,bqhe->bkhe", p, do),
    )


def exp2_dk(q, k, v, do):
    o, dq, dk, dv = soft(q, k, v, do)
    return o, dq, dk * np.asarray(math.log2(math.e), dk.dtype), dv


def soft1(s, do, keep=None):
    if keep is not None:
        s = np.where(keep, s, -1e30).astype(s.dtype)
    p = np.exp(s - s.max(1, keepdims=True))
    if keep is not None:
        p = p * keep
    t = p.sum(1, keepdims=True)
    p = p / np.where(t == 0, 1, t).astype(s.dtype)
    return p, p * (do - (p * do).sum(-1, keepdims=True))


def ff(x, w1, b1, w2, b2, do, bug=None):
    c = np.asarray(math.sqrt(2 / math.pi), x.dtype)
    z = x @ w1 + b1
    t = np.tanh(c * (z + np.asarray(0.044715, x.dtype) * z**3))
    h = z * (1 + t) / 2
    at = h if bug == "slope_at_h" else z
    t2 = np.tanh(c * (at + np.asarray(0.044715, x.dtype) * at**3))
    slope = (1 + t2) / 2 + at * (1 - t2 * t2) / 2 * c * (
        1 + np.asarray(3 * 0.044715 if bug != "no3" else 0.044715, x.dtype) * at * at
    )
    dh = do @ w2.T
    dz = dh * slope

    def tot(a, b):
        return np.einsum("btm,btf->mf", a, b)

    db1 = dh.sum((0, 1)) if bug == "db1_from_dh" else dz.sum((0, 1))
    return h @ w2 + b2, dz @ w1.T, tot(x, dz), db1, tot(z if bug == "dw2_from_z" else h, do), do.sum((0, 1))


def t5(table, do, bug=None):
    H, Bk = table.shape
    Q, K, mx = do.shape[1], do.shape[2], 16
    n = np.maximum(
        np.arange(Q)[:, None] - np.arange(K)[None] if bug != "swapped" else np.arange(K)[None] - np.arange(Q)[:, None],
        0,
    )
    m = Bk // 2
    big = m + np.floor((Bk - m) * np.log(np.maximum(n, 1) / m + 1.19e-7) / math.log(mx / m)).astype(int)
    b = np.where(n < m, n, np.minimum(Bk - 1, big))
    d = np.zeros_like(table)
    for h in range(H):
        np.add.at(d[h], b, do[h])
    if bug == "counted":
        d /= np.maximum(np.bincount(b.reshape(-1), minlength=Bk), 1).astype(d.dtype)
    return table[:, b], d


def shifted(x, do):
    def pad(a):
        return np.concatenate([np.zeros_like(a[:, :1]), a], 1)

    y, dx = rot(pad(x), pad(do), np.complex64)
    return y[:, 1:], dx[:, 1:]


def mhh(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bug=None):
    torch = torch_()
    names = "x wq bq wk bk wv bv wo bo".split()
    given = zip(names, (x, wq, bq, wk, bk, wv, bv, wo, bo), strict=True)
    p = {n: torch.tensor(t, requires_grad=True) for n, t in given}
    x = p["x"]
    q, k, v = (
        torch.einsum("btm,mhd->bthd", x, p["w" + n]) + (0 if bug == "no_bv" and n == "v" else p["b" + n]) for n in "qkv"
    )
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    if bug == "scale_width":
        s = s * (q.shape[-1] / x.shape[-1]) ** 0.5
    r = torch.rsqrt(s.pow(2).mean(1, keepdim=True) + 1e-6)
    a = s * (r.detach() if bug == "rho_detached" else r)
    z = torch.einsum("bhqk,bkhe->bqke", a, v)
    o = torch.einsum("bhqk,bqke->bqhe", a, z if bug == "no_relu" else z.relu())
    y = torch.einsum("bqhe,hem->bqm", o.flip(2) if bug == "heads_reversed" else o, p["wo"]) + p["bo"]
    y.backward(torch.tensor(do))
    return {"o": y, **{"d" + n: torch.zeros_like(t) if t.grad is None else t.grad for n, t in p.items()}}


def state2(q, k, v, state, do, dend):
    o, end, dq, dk, dv, dstate = state_chunked(q, k, v, state, do, dend)
    c = np.asarray(q.shape[-1] ** -0.5, q.dtype)
    return o, end, dq, dk, dv, np.einsum("bqhd,bqhe->bhde", q * c, do)


def nt_shift(h, table, target, do):
    return next_tok(h, table, np.roll(target, -1, 1), do)


def conv_pad_side(x, k, b, do):
    def pad(a):
        return np.pad(a, ((0, 0), (2, 0), (2, 0), (0, 0)))

    B, G, J, I = x.shape
    xp = pad(x)
    y, dk, dxp = b + np.zeros_like(do), np.zeros_like(k), np.zeros_like(xp)
    for u in range(3):
        for w in range(3):
            win = xp[:, u : u + G, w : w + J]
            y = y + win @ k[u, w]
            dk[u, w] = np.einsum("bgji,bgjo->io", win, do)
            dxp[:, u : u + G, w : w + J] += do @ k[u, w].T
    return y, dxp[:, 2:, 2:], dk, do.sum((0, 1, 2))


def cap(q, k, v, do, c=2.0):
    torch = torch_()
    q, k, v = (torch.tensor(x, requires_grad=True) for x in (q, k, v))
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    o = torch.einsum("bhqk,bkhe->bqhe", torch.softmax(c * torch.tanh(s / c), -1), v)
    o.backward(torch.tensor(do))
    return o, q.grad, k.grad, v.grad


def heads(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bug=None):
    torch = torch_()
    names = "x wq bq wk bk wv bv wo bo".split()
    given = zip(names, (x, wq, bq, wk, bk, wv, bv, wo, bo), strict=True)
    p = {n: torch.tensor(t, requires_grad=True) for n, t in given}
    x = p["x"]
    q, k, v = (torch.einsum("btm,mhd->bthd", x, p["w" + n]) + p["b" + n] for n in "qkv")
    if bug == "qk_norm":

        def n_(z):
            return z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-6)

        q, k = n_(q), n_(k)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    if bug == "softcap":
        s = 2 * torch.tanh(s / 2)
    a = torch.softmax(s, -1)
    if bug == "stale":
        a = torch.softmax(s.roll(1, 1), -1)
    y = torch.einsum("bqhe,hem->bqm", torch.einsum("bhqk,bkhe->bqhe", a, v), p["wo"]) + p["bo"]
    y.backward(torch.tensor(do))
    return {"o": y, **{"d" + n: t.grad for n, t in p.items()}}


def rel(x, wq, bq, wk, bk, wv, bv, wo, bo, do, keep=None, dropout=None, bias=None, bug=None, kind="txl", **pp):
    torch = torch_()
    p = {
        n: torch.tensor(t, requires_grad=True)
        for n, t in list(zip("x wq bq wk bk wv bv wo bo".split(), (x, wq, bq, wk, bk, wv, bv, wo, bo), strict=True))
        + list(pp.items())
    }
    b0 = None if bias is None else torch.tensor(bias, requires_grad=True)
    x = p["x"]
    q, k, v = (torch.einsum("btm,mhd->bthd", x, p["w" + n]) + p["b" + n] for n in "qkv")
    T, M = x.shape[1], x.shape[2]
    i = torch.arange(T)
    sc = q.shape[-1] ** -0.5
    if kind == "kerple":
        n = (i[:, None] - i[None]).abs()
        s = torch.einsum("bihd,bjhd->bhij", q, k) * sc - p["position.p"][:, None, None] * torch.log(
            1 + p["position.a"][:, None, None] * n
        ) * (sc if bug == "scaled" else 1)
    else:
        dist = i[:, None] - i[None]
        dist = -dist if bug == "sign" else dist
        ang = dist[..., None].double() * 10000.0 ** (-2 * torch.arange(M // 2).double() / M)
        R = (
            torch.stack([ang.sin(), ang.cos()], -1).flatten(-2)
            if bug == "interleaved"
            else torch.cat([ang.cos(), ang.sin()] if bug == "cos_first" else [ang.sin(), ang.cos()], -1)
        )
        r = torch.einsum("ijm,mhd->ijhd", R.float(), p["position.wr"])
        u, w = p["position.u"], p["position.v"]
        if bug == "uv":
            u, w = w, u
        s = torch.einsum("bihd,bjhd->bhij", q + u, k) * sc + torch.einsum(
            "bihd,ijhd->bhij", q if bug == "no_v" else q + w, r
        ) * (1 if bug == "unscaled" else sc)
    if b0 is not None:
        s = s + b0
    if keep is not None:
        s = s.masked_fill(~torch.tensor(keep), -1e30)
    a = torch.softmax(s, -1)
    if keep is not None:
        a = a * torch.tensor(keep)
    if dropout is not None:
        a = a * torch.tensor(dropout)
    y = torch.einsum("bhij,bjhe,hem->bim", a, v, p["wo"]) + p["bo"]
    y.backward(torch.tensor(do))
    out = {"o": y, **{"d" + n: torch.zeros_like(t) if t.grad is None else t.grad for n, t in p.items()}}
    return out if b0 is None else out | {"dbias": b0.grad}


def rotary_forwards(x, do):
    return rot(x, do, np.complex64)[0], rot(do, do, np.complex64)[0]


def keep_inverted(q, k, v, do, keep):
    return soft(q, k, v, do, keep=~keep)


def bias_subtracted(q, k, v, do, bias):
    *others, dbias = soft(q, k, v, do, bias=-bias)
    return *others, -dbias


def bias_transposed(q, k, v, do, bias):
    *others, dbias = soft(q, k, v, do, bias=bias.swapaxes(2, 3))
    return *others, dbias.swapaxes(2, 3)


def dbias_head0(q, k, v, do, bias):
    full = np.broadcast_to(bias, (q.shape[0], q.shape[2], q.shape[1], k.shape[1]))
    return *soft(q, k, v, do, bias=bias)[:4], soft(q, k, v, do, bias=full)[4][:, :1]


def dv_untransposed(q, k, v, do):
    return *soft(q, k, v, do)[:3], np.einsum("bhqk,bkhe->bqhe", weights(q, k), do)


def dropout_unscaled(q, k, v, do, dropout):
    return soft(q, k, v, do, dropout=(dropout > 0).astype(q.dtype))


def last_head(q, k, v, do):
    return tuple(np.concatenate([x[:, :, :-1], 0 * x[:, :, -1:]], 2) for x in soft(q, k, v, do))
