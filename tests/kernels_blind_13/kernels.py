"""Right kernels in the manners of real ones, in NumPy: none looks at a page of the library.

`half` names the precision in which a kernel keeps what it stores on the way; sums are in float32.
"""

from math import erf, pi, sqrt

import numpy as np
from numpy import einsum

from ..kernels_blind_8.kernels import LOG2E, fused, sum_to, with_bias


def stored(x, half):
    """As it is read again after it was stored in half precision."""
    if half is None:
        return x
    if half == "float16":
        return x.astype(np.float16).astype(np.float32)
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32)


def full(x, shape):
    return None if x is None else np.broadcast_to(x, shape)


def seen_by(shape, keep, causal=False):
    """Which keys a query sees: the last query is at the last key."""
    seen = np.ones(shape, bool) if keep is None else np.broadcast_to(keep, shape)
    return seen & np.tri(*shape[2:], shape[3] - shape[2], dtype=bool) if causal else seen


def softmax(s, seen, axis=-1):
    """Shares of what is seen, and zero where nothing is."""
    s = np.where(seen, s, -1e30)
    e = np.exp(s - s.max(axis, keepdims=True)) * seen
    total = e.sum(axis, keepdims=True)
    return e / np.where(total == 0, 1, total)


def gradients(ds, c, q, k, do, scale):
    """Of q, k and v by the scores' gradient and the weights."""
    return (einsum("bhqk,bkhd->bqhd", ds, k) * scale, einsum("bhqk,bqhd->bkhd", ds, q) * scale,
            einsum("bhqk,bqhe->bkhe", c, do))


# ----------------------------------------------------------------------------------------------------------- softmax


@fused
def flash(q, k, v, do, bias=None, keep=None, dropout=None, causal=False, rows=4, cols=3, two=False, prescaled=False,
          half=None, low=False, hidden=-np.inf, skip=False, backwards=False, lse_too=False):
    """Tiles of queries and keys and an online softmax; the backward makes weights again from the log-sum-exps.

    `two`: powers of two; `prescaled`: q meets the scale first; `low`: factors of products are stored in half precision;
    `hidden`: the score of what is masked; `skip`: tiles after the diagonal are; `backwards`: the last key tile first.
    """
    B, Q, H, D = q.shape
    K, E = v.shape[1], v.shape[3]
    shape = B, H, Q, K
    scale = D ** -0.5
    log2e, exp, log = (LOG2E, np.exp2, np.log2) if two else (1.0, np.exp, np.log)
    biases, kept, drops = (full(x, shape) for x in (bias, keep, dropout))
    qh, kh, vh, doh = (x.transpose(0, 2, 1, 3) for x in (q, k, v, do))
    qs, rest = (stored(qh * scale, half), 1) if prescaled else (qh, scale)

    def tile(i, j):
        s = qs[:, :, i] @ kh[:, :, j].swapaxes(2, 3) * (rest * log2e)
        if bias is not None:
            s = s + biases[:, :, i, j] * log2e
        seen = True if keep is None else kept[:, :, i, j]
        if causal:
            seen = seen & (np.arange(K)[j] <= np.arange(Q)[i, None] + K - Q)
        return np.where(seen, s, hidden), seen

    def factor(x):
        return stored(x, half) if low else x

    query_tiles = [slice(n, min(n + rows, Q)) for n in range(0, Q, rows)]
    key_tiles = [slice(n, min(n + cols, K)) for n in range(0, K, cols)][::-1 if backwards else 1]
    o, lse = np.zeros((B, H, Q, E), q.dtype), np.zeros((B, H, Q, 1), q.dtype)
    for i in query_tiles:
        m = np.full((B, H, i.stop - i.start, 1), -np.inf, q.dtype)
        l, acc = np.zeros_like(m), np.zeros((*m.shape[:3], E), q.dtype)
        for j in key_tiles:
            if skip and causal and j.start >= i.stop + K - Q:
                continue
            s, seen = tile(i, j)
            m_new = np.maximum(m, s.max(-1, keepdims=True))
            safe = np.where(np.isinf(m_new), 0, m_new)
            p = np.where(seen, exp(s - safe), 0)
            alpha = exp(m - safe)
            l = l * alpha + p.sum(-1, keepdims=True)
            c = p if dropout is None else p * drops[:, :, i, j]
            acc = acc * alpha + factor(c) @ vh[:, :, j]
            m = m_new
        o[:, :, i] = acc / np.where(l == 0, 1, l)
        with np.errstate(divide="ignore"):
            lse[:, :, i] = np.where(np.isinf(m), 0, m) + log(l)

    delta = (doh * stored(o, half)).sum(-1, keepdims=True)
    shift = np.where(np.isinf(lse), 0, lse)
    dq, dk, dv, dbias = np.zeros_like(qh), np.zeros_like(kh), np.zeros_like(vh), np.zeros(shape, q.dtype)
    for j in key_tiles:
        for i in query_tiles:
            s, seen = tile(i, j)
            p = np.where(seen, exp(s - shift[:, :, i]), 0)
            c = p if dropout is None else p * drops[:, :, i, j]
            dv[:, :, j] += factor(c).swapaxes(2, 3) @ doh[:, :, i]
            dp = doh[:, :, i] @ vh[:, :, j].swapaxes(2, 3)
            if dropout is not None:
                dp = dp * drops[:, :, i, j]
            ds = p * (dp - delta[:, :, i])
            dbias[:, :, i, j] = ds
            ds = factor(ds)
            dq[:, :, i] += ds @ kh[:, :, j] * scale
            dk[:, :, j] += ds.swapaxes(2, 3) @ qs[:, :, i] * rest
    found = with_bias(tuple(x.transpose(0, 2, 1, 3) for x in (o, dq, dk, dv)), dbias, bias)
    if not lse_too:
        return found
    return dict(zip(("o", "dq", "dk", "dv", "dbias"), found, strict=False)) | {"lse": lse[..., 0] / log2e}


@fused
def split_keys(q, k, v, do, bias=None, keep=None, dropout=None, causal=False, parts=3):
    """Parts of the keys merged by their log-sum-exps."""
    scale = q.shape[3] ** -0.5
    s = einsum("bqhd,bkhd->bhqk", q, k) * scale
    if bias is not None:
        s = s + bias
    s = np.where(seen_by(s.shape, keep, causal), s, -np.inf)
    drops = np.ones(s.shape, q.dtype) if dropout is None else np.broadcast_to(dropout, s.shape)
    outputs, sums = [], []
    pieces = [j for j in np.array_split(np.arange(s.shape[3]), parts) if len(j)]
    for j in pieces:
        top = s[..., j].max(-1, keepdims=True)
        top = np.where(np.isinf(top), 0, top)
        e = np.exp(s[..., j] - top)
        l = e.sum(-1, keepdims=True)
        outputs.append((e * drops[..., j] / np.where(l == 0, 1, l)) @ v[:, j].swapaxes(1, 2))
        with np.errstate(divide="ignore"):
            sums.append(top + np.log(l))
    top = np.max(sums, 0)
    top = np.where(np.isinf(top), 0, top)
    share = np.exp(np.stack(sums) - top)
    total = share.sum(0)
    with np.errstate(divide="ignore"):
        lse = top + np.log(total)
    share = share / np.where(total == 0, 1, total)
    o = (np.stack(outputs) * share).sum(0).swapaxes(1, 2)
    a = np.exp(s - np.where(np.isinf(lse), 0, lse))
    da = einsum("bqhe,bkhe->bhqk", do, v) * drops
    ds = a * (da - einsum("bqhe,bqhe->bhq", do, o)[..., None])
    return with_bias((o, *gradients(ds, a * drops, q, k, do, scale)), ds, bias)


def wide(q, k, v, do, bias=None, keep=None, dropout=None, causal=False):
    """In float64 inside, without subtraction of the largest score."""
    kind = q.dtype
    q, k, v, do, bias, dropout = (None if x is None else x.astype(np.float64) for x in (q, k, v, do, bias, dropout))
    scale = q.shape[3] ** -0.5
    s = einsum("bqhd,bkhd->bhqk", q, k) * scale
    if bias is not None:
        s = s + bias
    e = np.exp(s) * seen_by(s.shape, keep, causal)
    total = e.sum(-1, keepdims=True)
    a = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
    c = a if dropout is None else a * dropout
    o = einsum("bhqk,bkhe->bqhe", c, v)
    dc = einsum("bqhe,bkhe->bhqk", do, v)
    da = dc if dropout is None else dc * dropout
    ds = a * da - a * (a * da).sum(-1, keepdims=True)
    found = with_bias((o, *gradients(ds, c, q, k, do, scale)), ds, bias)
    return tuple(x.astype(kind) for x in found)


@fused
def row_by_row(q, k, v, do, causal=False):
    """One query at a time, a causal mask as a slice of the keys."""
    o, dq, dk, dv = np.zeros_like(do), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    scale = q.shape[3] ** -0.5
    for b, i, h in np.ndindex(*q.shape[:3]):
        n = i + k.shape[1] - q.shape[1] + 1 if causal else k.shape[1]
        keys, values = k[b, :n, h], v[b, :n, h]
        x = keys @ (q[b, i, h] * scale)
        x = np.exp(x - x.max())
        p = x / x.sum()
        o[b, i, h] = p @ values
        dv[b, :n, h] += np.outer(p, do[b, i, h])
        dp = values @ do[b, i, h]
        ds = p * (dp - p @ dp) * scale
        dq[b, i, h] = ds @ keys
        dk[b, :n, h] += np.outer(ds, q[b, i, h])
    return o, dq, dk, dv


def in_layout(q, k, v, do, order="bthd", core=flash, **options):
    """A kernel of another layout."""
    there, back = [order.index(c) for c in "bthd"], ["bthd".index(c) for c in order]
    found = core(*(x.transpose(there) for x in (q, k, v)), do=do.transpose(there), **options)
    return tuple(x.transpose(back) if n < 4 else x for n, x in enumerate(found))


@fused
def output_only(q, k, v, bias=None):
    """No backward; "bhtd"."""
    s = q @ k.swapaxes(2, 3) / sqrt(q.shape[3]) + bias
    p = np.exp(s - s.max(3, keepdims=True))
    return {"o": p @ v / p.sum(3, keepdims=True)}


@fused
def no_maximum(q, k, v, do):
    """Without subtraction of the largest score, delta from the output; a list."""
    scale = q.shape[3] ** -0.5
    a = np.exp(einsum("bqhd,bkhd->bhqk", q, k) * scale)
    a /= a.sum(3, keepdims=True)
    o = einsum("bhqk,bkhe->bqhe", a, v)
    ds = a * (einsum("bqhe,bkhe->bhqk", do, v) - einsum("bqhe,bqhe->bhq", do, o)[..., None])
    return [o, *gradients(ds, a, q, k, do, scale)]


@fused
def log_softmax(q, k, v, do, bias=None):
    """By logarithms of the weights; the bias is scaled up with the scores and down again."""
    root = sqrt(q.shape[3])
    s = einsum("bqhd,bkhd->bhqk", q, k)
    if bias is not None:
        s = s + bias * root
    s = s / root
    s = s - s.max(3, keepdims=True)
    a = np.exp(s - np.log(np.exp(s).sum(3, keepdims=True)))
    dlog = a * einsum("bqhe,bkhe->bhqk", do, v)
    ds = dlog - a * dlog.sum(3, keepdims=True)
    return with_bias((einsum("bhqk,bkhe->bqhe", a, v), *gradients(ds, a, q, k, do, 1 / root)), ds, bias)


@fused
def dropout_in_values(q, k, v, do, dropout):
    """A dropout of keys is a factor of values."""
    w = np.broadcast_to(dropout, (len(q), q.shape[2], 1, k.shape[1]))[:, :, 0].transpose(0, 2, 1)[..., None]
    o, dq, dk, dv = flash(q, k, v * w, do)
    return o, dq, dk, dv * w


@fused
def compressed(q, k, v, do, keep, bias=None):
    """Padding as sequences of their own lengths: keys that are masked are left out."""
    shape = (len(q), q.shape[2], q.shape[1], k.shape[1])
    found = [np.zeros_like(x) for x in (do, q, k, v)]
    dbias = np.zeros(shape, q.dtype)
    for b in range(len(q)):
        j, s = np.flatnonzero(keep[b, 0, 0]), slice(b, b + 1)
        if len(j):
            own = {} if bias is None else {"bias": np.broadcast_to(bias, shape)[s][..., j]}
            o, dq, dk, dv, *rest = flash(q[s], k[s][:, j], v[s][:, j], do[s], **own)
            found[0][s], found[1][s], found[2][b, j], found[3][b, j] = o, dq, dk[0], dv[0]
            if rest:
                dbias[s, ..., j] = rest[0]
    return with_bias(tuple(found), dbias, bias)


@fused
def grouped(q, k, v, do):
    """Two heads of queries share one of keys: in the page's shapes every second position is another head's."""
    def heads(x):
        b, t, h, d = x.shape
        return x.reshape(b, t // 2, 2, h, d).swapaxes(2, 3).reshape(b, t // 2, 2 * h, d)

    def back(x):
        b, t, h, d = x.shape
        return x.reshape(b, t, h // 2, 2, d).swapaxes(2, 3).reshape(b, 2 * t, h // 2, d)

    def group(x):
        return x.reshape(*x.shape[:2], -1, 2, x.shape[3]).sum(3)

    o, dq, dk, dv = flash(heads(q), k.repeat(2, 2), v.repeat(2, 2), heads(do))
    return back(o), back(dq), group(dk), group(dv)


def plain(q, k, v, bias=0, keep=True, dropout=1):
    e = np.exp(einsum("bqhd,bkhd->bhqk", q, k) / sqrt(q.shape[3]) + bias) * keep
    total = e.sum(3, keepdims=True)
    return einsum("bhqk,bkhe->bqhe", e / np.where(total == 0, 1, total) * dropout, v)


def complex_step(q, k, v, do, bias=None, keep=True, dropout=1):
    """Gradients as imaginary parts."""
    inputs = {"q": q, "k": k, "v": v, "bias": bias}
    found = [plain(**inputs, keep=keep, dropout=dropout)]
    for name, x in inputs.items():
        found.append(np.zeros(x.shape))
        for at in np.ndindex(*x.shape):
            y = x.astype(complex)
            y[at] += 1e-30j
            found[-1][at] = (plain(**inputs | {name: y}, keep=keep, dropout=dropout).imag * 1e30 * do).sum()
    return found


def differences(q, k, v, do):
    """Gradients as differences in float64, of the fourth order."""
    inputs = [x.astype(float) for x in (q, k, v)]
    found = [plain(*inputs)]
    for n, x in enumerate(inputs):
        found.append(np.zeros(x.shape))
        for at in np.ndindex(*x.shape):
            slopes = []
            for step in (1e-3, 5e-4):
                moved = [[y.copy() for y in inputs] for _ in range(2)]
                moved[0][n][at] += step
                moved[1][n][at] -= step
                slopes.append(((plain(*moved[0]) - plain(*moved[1])) * do).sum() / (2 * step))
            found[-1][at] = (4 * slopes[1] - slopes[0]) / 3
    return [x.astype(np.float32) for x in found]


def naive_float16(q, k, v, do, bias=None, keep=None, dropout=None, causal=False):
    """Everything in the precision of the inputs, sums too."""
    scale = q.dtype.type(q.shape[3] ** -0.5)
    s = einsum("bqhd,bkhd->bhqk", q, k) * scale
    if bias is not None:
        s = s + bias
    seen = seen_by(s.shape, keep, causal)
    s = np.where(seen, s, q.dtype.type(-60000))
    e = np.exp(s - s.max(3, keepdims=True)) * seen
    total = e.sum(3, keepdims=True)
    a = e / np.where(total == 0, q.dtype.type(1), total)
    c = a if dropout is None else a * dropout
    dc = einsum("bqhe,bkhe->bhqk", do, v)
    da = dc if dropout is None else dc * dropout
    ds = a * (da - (a * da).sum(3, keepdims=True))
    return with_bias((einsum("bhqk,bkhe->bqhe", c, v), *gradients(ds, c, q, k, do, scale)), ds, bias)


def naive_bfloat16(q, k, v, do, bias=None):
    """Every operation rounds, sums too."""
    def low(x):
        return stored(x, "bfloat16")

    def total(x):
        t = np.zeros_like(x[..., :1])
        for j in range(x.shape[3]):
            t = low(t + x[..., j:j + 1])
        return t

    scale = low(np.full(1, q.shape[3] ** -0.5))
    s = low(einsum("bqhd,bkhd->bhqk", low(q * scale), k))
    s = s if bias is None else low(s + bias)
    e = low(np.exp(low(s - s.max(3, keepdims=True))))
    a = low(e / total(e))
    x = low(a * low(einsum("bqhe,bkhe->bhqk", do, v)))
    ds = low(x - low(a * total(x)))
    dq, dk, dv = gradients(ds, a, q, k, do, 1)
    found = with_bias((einsum("bhqk,bkhe->bqhe", a, v), low(dq) * scale, low(dk) * scale, dv), ds, bias)
    return tuple(low(x) for x in found)


@fused
def unfused(q, k, v, do, bias=None, keep=None, half=None):
    """Scores, weights and their gradients are each stored in half precision."""
    qs = stored(q * q.shape[3] ** -0.5, half)
    s = stored(einsum("bqhd,bkhd->bhqk", qs, k), half)
    s = s if bias is None else stored(s + bias, half)
    a = stored(softmax(s, seen_by(s.shape, keep)), half)
    da = stored(einsum("bqhe,bkhe->bhqk", do, v), half)
    ds = stored(a * (da - (a * da).sum(3, keepdims=True)), half)
    dq, dk, dv = gradients(ds, a, qs, k, do, 1)
    return with_bias((einsum("bhqk,bkhe->bqhe", a, v), stored(dq, half) * q.shape[3] ** -0.5, dk, dv), ds, bias)


@fused
def two_passes(q, k, v, do):
    """The largest and the sum first; powers of two, the scale and log2(e) in the keys."""
    keys = k * (LOG2E * q.shape[3] ** -0.5)
    s = einsum("bqhd,bkhd->bhqk", q, keys)
    top = s.max(3, keepdims=True)
    a = np.exp2(s - top - np.log2(np.exp2(s - top).sum(3, keepdims=True)))
    da = einsum("bqhe,bkhe->bhqk", do, v)
    ds = a * (da - (a * da).sum(3, keepdims=True))
    dq, dk, dv = gradients(ds, a, q, keys, do, 1)
    return einsum("bhqk,bkhe->bqhe", a, v), dq / LOG2E, dk * q.shape[3] ** -0.5, dv


@fused
def sequential(q, k, v, do):
    """Sums one term after the other."""
    def terms(x, y, axis, along):
        return sum(x.take([n], axis) * y.take([n], along) for n in range(x.shape[axis]))

    scale = q.shape[3] ** -0.5
    qh, kt, v, do = q.swapaxes(1, 2), k.transpose(0, 2, 3, 1), v.swapaxes(1, 2), do.swapaxes(1, 2)
    s = terms(qh, kt, 3, 2) * scale
    e = np.exp(s - s.max(3, keepdims=True))
    a = e / np.add.accumulate(e, 3)[..., -1:]
    o = terms(a, v, 3, 2)
    ds = a * (do @ v.swapaxes(2, 3) - (do * o).sum(3, keepdims=True)) * scale
    found = o, terms(ds, kt.swapaxes(2, 3), 3, 2), terms(ds.swapaxes(2, 3), qh, 3, 2), terms(a.swapaxes(2, 3), do, 3, 2)
    return tuple(x.swapaxes(1, 2) for x in found)


# ------------------------------------------------------------------------------------------------------------ linear


@fused
def linear(q, k, v, do, bias=None, keep=None, dropout=None, causal=False, scaled_keys=False, apart=False, half=None):
    """Weights are scores; `apart`: the bias in a product of its own; `half`: weights and ds are stored in it."""
    scale = q.shape[3] ** -0.5
    keys, rest = (k * scale, 1) if scaled_keys else (k, scale)
    s = einsum("bqhd,bkhd->bhqk", q, keys) * rest
    w = seen_by(s.shape, keep, causal).astype(q.dtype)
    if dropout is not None:
        w = w * dropout
    c = stored((s if bias is None else s + bias) * w, half)
    o = einsum("bhqk,bkhe->bqhe", c, v)
    if apart and bias is not None:
        o = einsum("bhqk,bkhe->bqhe", s * w, v) + einsum("bhqk,bkhe->bqhe", bias * w, v)
    ds = einsum("bqhe,bkhe->bhqk", do, v) * w
    low = stored(ds, half)
    dq = einsum("bhqk,bkhd->bqhd", low, keys) * rest
    dk = einsum("bhqk,bqhd->bkhd", low, q) * scale
    return with_bias((o, dq, dk, einsum("bhqk,bqhe->bkhe", c, do)), ds, bias)


@fused
def products(q, k, v, do):
    """Keys and values first."""
    scale = q.shape[3] ** -0.5
    state, dstate = einsum("bkhd,bkhe->bhde", k, v) * scale, einsum("bqhd,bqhe->bhde", q, do) * scale
    return (einsum("bqhd,bhde->bqhe", q, state), einsum("bqhe,bhde->bqhd", do, state),
            einsum("bhde,bkhe->bkhd", dstate, v), einsum("bhde,bkhd->bkhe", dstate, k))


@fused
def chunks(q, k, v, do, causal=True, size=4):
    """Causal, by chunks of queries and a state of all keys before them."""
    Q, before = q.shape[1], k.shape[1] - q.shape[1]
    scale = q.shape[3] ** -0.5
    q = q * scale
    o, dq, dk, dv = np.zeros_like(do), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    places = [(slice(n, n + size), slice(before + n, before + min(n + size, Q))) for n in range(0, Q, size)]
    S = einsum("bkhd,bkhe->bhde", k[:, :before], v[:, :before])
    for i, j in places:
        mask = np.tri(j.stop - j.start, dtype=q.dtype)
        a = einsum("bqhd,bkhd->bhqk", q[:, i], k[:, j]) * mask
        da = einsum("bqhe,bkhe->bhqk", do[:, i], v[:, j]) * mask
        o[:, i] = einsum("bqhd,bhde->bqhe", q[:, i], S) + einsum("bhqk,bkhe->bqhe", a, v[:, j])
        dq[:, i] = einsum("bqhe,bhde->bqhd", do[:, i], S) + einsum("bhqk,bkhd->bqhd", da, k[:, j])
        dk[:, j] = einsum("bhqk,bqhd->bkhd", da, q[:, i])
        dv[:, j] = einsum("bhqk,bqhe->bkhe", a, do[:, i])
        S = S + einsum("bkhd,bkhe->bhde", k[:, j], v[:, j])
    G = np.zeros_like(S)
    for i, j in places[::-1]:
        dk[:, j] += einsum("bkhe,bhde->bkhd", v[:, j], G)
        dv[:, j] += einsum("bkhd,bhde->bkhe", k[:, j], G)
        G = G + einsum("bqhd,bqhe->bhde", q[:, i], do[:, i])
    dk[:, :before] = einsum("bkhe,bhde->bkhd", v[:, :before], G)
    dv[:, :before] = einsum("bkhd,bhde->bkhe", k[:, :before], G)
    return o, dq * scale, dk, dv


@fused
def running_sums(q, k, v, do, causal=True, less_before=False):
    """Causal, by running sums of all products; `less_before`: those from the end as the total less what is before."""
    scale = q.shape[3] ** -0.5
    kv, qdo = einsum("bkhd,bkhe->bkhde", k, v) * scale, einsum("bqhd,bqhe->bqhde", q, do) * scale
    S = np.cumsum(kv, 1)
    G = qdo.sum(1, keepdims=True) - np.cumsum(qdo, 1) + qdo if less_before else np.cumsum(qdo[:, ::-1], 1)[:, ::-1]
    return (einsum("bqhd,bqhde->bqhe", q, S), einsum("bqhe,bqhde->bqhd", do, S),
            einsum("bkhde,bkhe->bkhd", G, v), einsum("bkhde,bkhd->bkhe", G, k))


@fused
def state_chunks(q, k, v, state, do=None, dend=None, size=2, mapping=False):
    """A state that comes in and goes out, by chunks; `mapping`: a dictionary.  Without do no gradients."""
    T = q.shape[1]
    scale = q.shape[3] ** -0.5
    qs = q * scale
    places = [slice(n, min(n + size, T)) for n in range(0, T, size)]
    o, S, states = np.zeros_like(v), state, []

    def mask(i):
        return np.tri(i.stop - i.start, dtype=q.dtype)

    for i in places:
        states.append(S)
        a = einsum("bqhd,bkhd->bhqk", qs[:, i], k[:, i]) * mask(i)
        o[:, i] = einsum("bqhd,bhde->bqhe", qs[:, i], S) + einsum("bhqk,bkhe->bqhe", a, v[:, i])
        S = S + einsum("bkhd,bkhe->bhde", k[:, i], v[:, i])
    if do is None:
        return {"o": o, "end": S}
    dq, dk, dv, G = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v), dend
    for i, before in zip(places[::-1], states[::-1], strict=True):
        a = einsum("bqhd,bkhd->bhqk", qs[:, i], k[:, i]) * mask(i)
        da = einsum("bqhe,bkhe->bhqk", do[:, i], v[:, i]) * mask(i)
        dk[:, i] = einsum("bhde,bkhe->bkhd", G, v[:, i]) + einsum("bhqk,bqhd->bkhd", da, qs[:, i])
        dv[:, i] = einsum("bhde,bkhd->bkhe", G, k[:, i]) + einsum("bhqk,bqhe->bkhe", a, do[:, i])
        dq[:, i] = (einsum("bqhe,bhde->bqhd", do[:, i], before) + einsum("bhqk,bkhd->bqhd", da, k[:, i])) * scale
        G = G + einsum("bqhd,bqhe->bhde", qs[:, i], do[:, i])
    found = o, S, dq, dk, dv, G
    return dict(zip(("o", "end", "dq", "dk", "dv", "dstate"), found, strict=True)) if mapping else found


def output_and_end(q, k, v, state):
    return state_chunks(q, k, v, state, size=4)


# -------------------------------------------------------------------------------------------------- HYLA, its variants


def rms(s, eps=1e-6):
    """Divided by the root mean square over heads, and the factor."""
    rho = sqrt(s.shape[1]) / np.sqrt((s * s).sum(1, keepdims=True) + s.shape[1] * eps)
    return s * rho, rho


def rms_backward(a, rho, da):
    return rho * da - a * (rho * (a * da).sum(1, keepdims=True) / a.shape[1])


@fused
def codes(q, k, v, wv2=None, do=None, bias=None, keep=None, dropout=None, causal=False, norms=("rms",), uses=2,
          relu=True, half=None):
    """Heads concatenated, so that every use of the code is a matrix product; `norms` in the order they are applied."""
    scale = q.shape[3] ** -0.5
    s = q.swapaxes(1, 2) @ k.transpose(0, 2, 3, 1) * scale
    if bias is not None:
        s = s + bias
    seen = seen_by(s.shape, keep, causal)
    a, kept = np.where(seen, s, 0), []
    for norm in norms:
        a, factor = (softmax(a, seen), None) if norm == "softmax" else rms(np.where(seen, a, 0))
        kept.append((a, factor))

    def phi(x):
        return np.maximum(x, 0) if relu else x

    def phi_backward(x, dy):
        return np.where(x > 0, dy, 0) if relu else dy

    c = stored(a if dropout is None else a * dropout, half)
    A = c.transpose(0, 2, 3, 1)
    dwv2 = None
    if uses == 1:
        values = phi(v)
        o = einsum("bhqk,bkhe->bqhe", c, values)
        dc = einsum("bqhe,bkhe->bhqk", do, values)
        dv = phi_backward(v, einsum("bhqk,bqhe->bkhe", c, do))
    else:
        z = (A.swapaxes(1, 2) @ v).swapaxes(1, 2)
        g = phi(z)
        last = g
        if uses == 3:
            z2 = einsum("bqkhe,hef->bqkf", A[..., None] * g[:, :, :, None, :], wv2)
            last = phi(z2)
        last = stored(last, half)
        o = A.swapaxes(2, 3) @ last
        dA = last @ do.swapaxes(2, 3)
        dg = A @ do
        if uses == 3:
            dz2 = phi_backward(z2, dg)
            t = einsum("bqkf,hef->bqkhe", dz2, wv2)
            dA = dA + (t * g[:, :, :, None, :]).sum(-1)
            dwv2 = einsum("bqkhe,bqkf->hef", A[..., None] * g[:, :, :, None, :], dz2)
            dg = (t * A[..., None]).sum(3)
        dz = stored(phi_backward(z, dg), half)
        dA = dA + einsum("bqke,bkhe->bqkh", dz, v)
        dv = einsum("bqkh,bqke->bkhe", A, dz)
        dc = dA.transpose(0, 3, 1, 2)
    ds = dc if dropout is None else dc * dropout
    for norm, (a, factor) in zip(norms[::-1], kept[::-1], strict=True):
        ds = a * (ds - (a * ds).sum(-1, keepdims=True)) if norm == "softmax" else rms_backward(a, factor, ds)
        ds = np.where(seen, ds, 0)
    ds = np.where(seen, ds, 0)
    dq, dk, _ = gradients(stored(ds, half), c, q, k, do[..., :1], scale)
    found = with_bias((o, dq, dk, dv), ds, bias)
    return found if dwv2 is None else (*found, dwv2)


@fused
def matrix_for_each_pair(q, k, v, do, keep=None, dropout=None, causal=False):
    """A hypernetwork: the code makes two weight matrices for every pair of query and key."""
    o, dq, dk, dv = np.zeros_like(do), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    root = sqrt(q.shape[3])
    shape = len(q), q.shape[2], q.shape[1], k.shape[1]
    seen = seen_by(shape, keep, causal)
    drops = np.broadcast_to(np.ones(1, q.dtype) if dropout is None else dropout, shape)
    for b, i, j in np.ndindex(shape[0], *shape[2:]):
        s = (q[b, i] * k[b, j]).sum(1) / root * seen[b, :, i, j]
        norm = np.sqrt((s ** 2).mean() + q.dtype.type(1e-6))
        a = s / norm
        c = a * drops[b, :, i, j]
        z = c @ v[b, j]
        y = np.maximum(z, 0)
        o[b, i] += np.outer(c, y)
        dz = (c @ do[b, i]) * (z > 0)
        dc = do[b, i] @ y + v[b, j] @ dz
        dv[b, j] += np.outer(c, dz)
        da = dc * drops[b, :, i, j]
        ds = (da - a * (a * da).mean()) / norm * seen[b, :, i, j] / root
        dq[b, i] += ds[:, None] * k[b, j]
        dk[b, j] += ds[:, None] * q[b, i]
    return o, dq, dk, dv


@fused
def unscaled(q, k, v, do, keep=None):
    """RMSHead undoes the scale, which remains in epsilon alone."""
    s = einsum("bqhd,bkhd->bhqk", q, k)
    if keep is not None:
        s = s * keep
    rho = 1 / np.sqrt((s * s).mean(1, keepdims=True) + 1e-6 * q.shape[3])
    a = s * rho
    z = einsum("bhqk,bkhe->bqke", a, v)
    g = (z + np.abs(z)) / 2
    o = einsum("bhqk,bqke->bqhe", a, g)
    dz = einsum("bhqk,bqhe->bqke", a, do) * np.heaviside(z, 0)
    da = einsum("bqhe,bqke->bhqk", do, g) + einsum("bqke,bkhe->bhqk", dz, v)
    ds = rho * (da - a * (a * da).mean(1, keepdims=True))
    if keep is not None:
        ds = ds * keep
    dq, dk, _ = gradients(ds, a, q, k, do, 1)
    return o, dq, dk, einsum("bhqk,bqke->bkhe", a, dz)


@fused
def key_tiles_of_hyla(q, k, v, do, bias=None, keep=None, dropout=None):
    """Two keys at a time, the last first; RMSHead's backward by the cube of rho."""
    scale = q.shape[3] ** -0.5
    o, dq, dk, dv = np.zeros_like(do), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    dbias = np.zeros((len(q), q.shape[2], q.shape[1], k.shape[1]), q.dtype)
    for n in reversed(range(0, k.shape[1], 2)):
        j = slice(n, n + 2)
        s = einsum("bqhd,bkhd->bhqk", q, k[:, j]) * scale
        if bias is not None:
            s = s + bias[..., j]
        seen = True if keep is None else keep[..., j]
        s = np.where(seen, s, 0)
        rho = ((s * s).mean(1, keepdims=True) + 1e-6) ** -0.5
        drops = 1 if dropout is None else dropout[..., j]
        c = s * rho * drops
        z = einsum("bhqk,bkhe->bqke", c, v[:, j])
        g = np.where(z > 0, z, 0)
        o += einsum("bhqk,bqke->bqhe", c, g)
        dz = einsum("bhqk,bqhe->bqke", c, do)
        dz[z <= 0] = 0
        da = (einsum("bqhe,bqke->bhqk", do, g) + einsum("bqke,bkhe->bhqk", dz, v[:, j])) * drops
        ds = (rho * da - s * rho ** 3 * (s * da).mean(1, keepdims=True)) * seen
        dbias[..., j] = ds
        dq += einsum("bhqk,bkhd->bqhd", ds, k[:, j]) * scale
        dk[:, j] += einsum("bhqk,bqhd->bkhd", ds, q) * scale
        dv[:, j] += einsum("bhqk,bqke->bkhe", c, dz)
    return with_bias((o, dq, dk, dv), dbias, bias)


@fused
def products_of_codes(q, k, v, do, bias=None):
    """Without a nonlinearity both uses are one matrix over pairs of heads."""
    scale = q.shape[3] ** -0.5
    s = einsum("bqhd,bkhd->bhqk", q, k) * scale
    s = s if bias is None else s + bias
    pairs = einsum("bhqk,bjqk->bqkhj", s, s)
    dpairs = einsum("bqhe,bkje->bqkhj", do, v)
    ds = einsum("bqkhj,bjqk->bhqk", dpairs + dpairs.swapaxes(3, 4), s)
    dq, dk, _ = gradients(ds, s, q, k, do, scale)
    dv = einsum("bqkhj,bqhe->bkje", pairs, do)
    return with_bias((einsum("bqkhj,bkje->bqhe", pairs, v), dq, dk, dv), ds, bias)


@fused
def hyla_stored(q, k, v, do, bias=None, half=None):
    """Each value is stored in half precision."""
    def low(x):
        return stored(x, half)

    scale = q.shape[3] ** -0.5
    s = low(low(einsum("bqhd,bkhd->bhqk", q, k)) * scale)
    s = s if bias is None else low(s + bias)
    rho = low(1 / np.sqrt(low(low(low(s * s).mean(1, keepdims=True)) + 1e-6)))
    a = low(s * rho)
    z = low(einsum("bhqk,bkhe->bqke", a, v))
    g = np.maximum(z, 0)
    dz = low(einsum("bhqk,bqhe->bqke", a, do)) * (z > 0)
    da = low(low(einsum("bqhe,bqke->bhqk", do, g)) + low(einsum("bqke,bkhe->bhqk", dz, v)))
    ds = low(rho * low(da - low(a * low(low(a * da).mean(1, keepdims=True)))))
    dq, dk, _ = gradients(ds, a, q, k, do, scale)
    found = einsum("bhqk,bqke->bqhe", a, g), dq, dk, einsum("bhqk,bqke->bkhe", a, dz)
    return with_bias(found, ds, bias)


# ----------------------------------------------------------------------------------------------------- compositional


@fused
def compositional(q, k, v, selector, *weights, do=None, bias=None, keep=None, dropout=None, causal=False, scoring="dot",
                  loops=False, half=None):
    """Retrievals of every search; delta of the softmax over them from the output."""
    scale, root = q.shape[3] ** -0.5, sqrt(selector.shape[3])
    s = einsum("bqsd,bksd->bsqk", q, k) * scale
    if bias is not None:
        s = s + bias
    a = softmax(s, seen_by(s.shape, keep, causal))
    c = stored(a if dropout is None else a * dropout, half)
    if loops:
        t = np.zeros((*q.shape[:3], *v.shape[2:]), q.dtype)
        for n, r in np.ndindex(*t.shape[2:4]):
            t[:, :, n, r] = c[:, n] @ v[:, :, r]
    else:
        t = einsum("bsqk,bkre->bqsre", c, v)
    if scoring == "dot":
        wr, = weights
        key = t @ wr
        l = einsum("bqsc,bqsrc->bqsr", selector, key) / root
    else:
        wr, wc, br, *second = weights
        z = np.concatenate([full(selector[:, :, :, None], (*t.shape[:4], selector.shape[3])), t], 4)
        z = z @ np.concatenate([wc, wr]) + br
        inside = np.maximum(z, 0)
        l = z if scoring == "linear" else inside @ second[0] + second[1]
    e = np.exp(l - l.max(-1, keepdims=True))
    g = e / e.sum(-1, keepdims=True)
    o = (g[..., None] * t).sum(3)
    dg = (do[:, :, :, None] * t).sum(-1)
    dl = g * (dg - (do * o).sum(-1)[..., None])
    dt = g[..., None] * do[:, :, :, None]
    if scoring == "dot":
        dkey = einsum("bqsr,bqsc->bqsrc", dl, selector) / root
        dselector = einsum("bqsr,bqsrc->bqsc", dl, key) / root
        dt = dt + dkey @ wr.T
        dweights = einsum("bqsre,bqsrc->ec", t, dkey),
    elif scoring == "linear":
        dt = dt + dl[..., None] * wr
        dselector = dl.sum(-1)[..., None] * wc
        dweights = einsum("bqsr,bqsre->e", dl, t), einsum("bqsr,bqsc->c", dl, selector), dl.sum().reshape(1)
    else:
        dz = dl[..., None] * second[0] * (z > 0)
        dt = dt + dz @ wr.T
        dselector = einsum("bqsrf,cf->bqsc", dz, wc)
        dweights = (einsum("bqsre,bqsrf->ef", t, dz), einsum("bqsc,bqsrf->cf", selector, dz), dz.sum((0, 1, 2, 3)),
                    einsum("bqsr,bqsrf->f", dl, inside), dl.sum().reshape(1))
    dt = stored(dt, half)
    dc = einsum("bqsre,bkre->bsqk", dt, v)
    dv = einsum("bsqk,bqsre->bkre", c, dt)
    da = dc if dropout is None else dc * dropout
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    low = stored(ds, half)
    dq, dk = einsum("bsqk,bksd->bqsd", low, k) * scale, einsum("bsqk,bqsd->bksd", low, q) * scale
    return (*with_bias((o, dq, dk, dv), ds, bias), dselector, *dweights)


def compositional_bhtd(q, k, v, selector, wr, do, **options):
    q, k, v, selector, do = (x.swapaxes(1, 2) for x in (q, k, v, selector, do))
    o, dq, dk, dv, *dbias, dselector, dwr = compositional(q, k, v, selector, wr, do=do, **options)
    o, dq, dk, dv, dselector = (x.swapaxes(1, 2) for x in (o, dq, dk, dv, dselector))
    return o, dq, dk, dv, *dbias, dselector, dwr


# --------------------------------------------------------------------------------------------------- sliding-dilated


@fused
def gathered(q, k, v, offset_bias, pad_k=None, pad_v=None, do=None, bias=None, keep=None, dropout=None, half=None):
    """Keys of a window are gathered, their gradients are added where they came from; pads stand in front."""
    (B, Q, H, D), W, pad = q.shape, offset_bias.shape[1], pad_k is not None
    scale = D ** -0.5
    at = np.arange(Q)[:, None] + k.shape[1] - Q - 2 * np.arange(W)
    front = 2 * (W - 1) if pad else 0
    keys, values, index = k, v, np.maximum(at, 0)
    if pad:
        keys = np.concatenate([np.broadcast_to(pad_k, (B, front, H, D)), k], 1)
        values = np.concatenate([np.broadcast_to(pad_v, (B, front, *v.shape[2:])), v], 1)
        index = at + front
    seen = seen_by((B, H, Q, W), None if pad else at >= 0)
    kn, vn = keys[:, index], values[:, index]
    s = einsum("bqhd,bqwhd->bhqw", q, kn) * scale + offset_bias[:, None]
    if bias is not None:
        s = s + bias
    if keep is not None:
        seen = seen & keep
    a = softmax(s, seen)
    c = stored(a if dropout is None else a * dropout, half)
    o = einsum("bhqw,bqwhe->bqhe", c, vn)
    dc = einsum("bqhe,bqwhe->bhqw", do, vn)
    da = dc if dropout is None else dc * dropout
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    doffset_bias = ds.sum((0, 2))
    low = stored(ds, half)
    dq = einsum("bhqw,bqwhd->bqhd", low, kn) * scale
    dk, dv = np.zeros_like(keys), np.zeros_like(values)
    np.add.at(dk, (slice(None), index), einsum("bhqw,bqhd->bqwhd", low, q) * scale)
    np.add.at(dv, (slice(None), index), einsum("bhqw,bqhe->bqwhe", c, do))
    found = (*with_bias((o, dq, dk[:, front:], dv[:, front:]), ds, bias), doffset_bias)
    return (*found, dk[:, :front].sum((0, 1)), dv[:, :front].sum((0, 1))) if pad else found


@fused
def dense_windows(q, k, v, offset_bias, pad_k=None, pad_v=None, do=None, bias=None, keep=None, dropout=None):
    """All scores, of which only those of a window are finite."""
    (B, Q, H, D), W = q.shape, offset_bias.shape[1]
    scale, front = D ** -0.5, 0
    if pad_k is not None:
        front = 2 * (W - 1)
        k = np.concatenate([np.broadcast_to(pad_k, (B, front, H, D)), k], 1)
        v = np.concatenate([np.broadcast_to(pad_v, (B, front, *v.shape[2:])), v], 1)
    scores = einsum("bqhd,bkhd->bhqk", q * scale, k)
    s, drops = np.full_like(scores, -np.inf), np.zeros_like(scores)
    added = offset_bias[:, None] + np.zeros((B, H, Q, W), q.dtype) + (0 if bias is None else bias)
    added = np.where(True if keep is None else keep, added, -np.inf)
    given = np.broadcast_to(np.ones(1, q.dtype) if dropout is None else dropout, added.shape)
    pairs = [(i, w, i + k.shape[1] - Q - 2 * w) for i, w in np.ndindex(Q, W) if i + k.shape[1] - Q >= 2 * w]
    for i, w, j in pairs:
        s[:, :, i, j], drops[:, :, i, j] = scores[:, :, i, j] + added[:, :, i, w], given[:, :, i, w]
    a = softmax(s, np.isfinite(s))
    da = einsum("bqhe,bkhe->bhqk", do, v) * drops
    dense = a * (da - (a * da).sum(-1, keepdims=True))
    dq, dk, dv = gradients(dense, a * drops, q, k, do, scale)
    ds = np.zeros_like(added)
    for i, w, j in pairs:
        ds[:, :, i, w] = dense[:, :, i, j]
    found = with_bias((einsum("bhqk,bkhe->bqhe", a * drops, v), dq, dk[:, front:], dv[:, front:]), ds, bias)
    pads = () if pad_k is None else (dk[:, :front].sum((0, 1)), dv[:, :front].sum((0, 1)))
    return (*found, ds.sum((0, 2)), *pads)


# ------------------------------------------------------------------------------------------- operations, layers, losses


@fused
def layer_norm(x, scale, shift, do, form="running"):
    """Moments by a running mean, in one pass over x and its square, or with the mean in float64 and one product."""
    M, axes = x.shape[-1], tuple(range(x.ndim - 1))
    mean = x.astype(np.float64 if form == "one product" else x.dtype).mean(-1, keepdims=True).astype(x.dtype)
    var = ((x - mean) ** 2).sum(-1, keepdims=True) / M
    if form == "one pass":
        var = np.maximum((x * x).mean(-1, keepdims=True) - mean * mean, 0)
    elif form == "running":
        mean, squares = np.zeros((2, *x.shape[:-1]), x.dtype)
        for n in range(M):
            step = x[..., n] - mean
            mean = mean + step / (n + 1)
            squares = squares + step * (x[..., n] - mean)
        mean, var = mean[..., None], squares[..., None] / M
    r = 1 / np.sqrt(var + 1e-6)
    n = (x - mean) * r
    y = x * (r * scale) + (shift - mean * r * scale) if form == "one product" else n * scale + shift
    dn = do * scale
    dx = (M * dn - dn.sum(-1, keepdims=True) - n * (dn * n).sum(-1, keepdims=True)) * r / M
    return y, dx, (do * n).sum(axes), do.sum(axes)


@fused
def rms_alone(s, do):
    a, rho = rms(s)
    return a, rms_backward(a, rho, do)


@fused
def softmax_by_lse(s, do, keep=None, axis=-1):
    """exp(s - logsumexp(s)), as SciPy had it."""
    s = s if keep is None else np.where(keep, s, -np.inf)
    top = s.max(axis, keepdims=True)
    top = np.where(np.isinf(top), 0, top)
    lse = top + np.log(np.maximum(np.exp(s - top).sum(axis, keepdims=True), 1e-30))
    a = np.exp(s - lse)
    return a, a * do - a * (a * do).sum(axis, keepdims=True)


def tanh_gelu(x):
    """GELU by tanh, and its slope."""
    u = sqrt(2 / pi) * (x + 0.044715 * x ** 3)
    t = np.tanh(u)
    return 0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / pi) * (1 + 0.134145 * x * x)


def activation(x, kind):
    """Of x, and its slope."""
    if kind == "relu":
        return np.maximum(x, 0), (x > 0).astype(x.dtype)
    if kind == "gelu":
        return tanh_gelu(x)
    c = (0.5 * (1 + np.vectorize(erf)(x.astype(float) / sqrt(2)))).astype(x.dtype)
    return x * c, c + x * np.exp(-x * x / 2) / sqrt(2 * pi)


@fused
def gelu(x, do):
    """By a sigmoid."""
    slope = sqrt(8 / pi)
    s = 1 / (1 + np.exp(-slope * x * (1 + 0.044715 * x * x)))
    return x * s, do * (s + x * s * (1 - s) * slope * (1 + 3 * 0.044715 * x * x))


@fused
def silu(x, do):
    """By tanh."""
    g = (1 + np.tanh(x / 2)) / 2
    return x * g, do * (g + x * g * (1 - g))


@fused
def dense(x, w, do, b=None):
    n = x.ndim - 1
    axes = tuple(range(n))
    y, dx = np.tensordot(x, w, 1), np.tensordot(do, w, (tuple(range(n, do.ndim)), tuple(range(1, w.ndim))))
    found = y if b is None else y + b, dx, np.tensordot(x, do, (axes, axes))
    return found if b is None else (*found, do.sum(axes))


@fused
def embedding(table, index, do):
    dtable = np.zeros_like(table)
    for at in np.ndindex(*index.shape):
        dtable[index[at]] += do[at]
    return table[index], dtable


@fused
def scores(q, k, do, bias=None):
    root = sqrt(q.shape[3])
    s = einsum("bqhd,bkhd->bhqk", q / root, k)
    found = (s if bias is None else s + bias, einsum("bhqk,bkhd->bqhd", do, k / root),
             einsum("bhqk,bqhd->bkhd", do, q / root))
    return found if bias is None else (*found, sum_to(do, bias.shape))


@fused
def feed_forward(x, w1, b1, w2, b2, do, dropout=None, kind="gelu"):
    X, DO = x.reshape(-1, x.shape[-1]), do.reshape(-1, do.shape[-1])
    h = X @ w1 + b1
    a, slope = activation(h, kind)
    drops = 1 if dropout is None else np.broadcast_to(dropout, (*x.shape[:-1], h.shape[1])).reshape(h.shape)
    y = (a * drops) @ w2 + b2
    da = DO @ w2.T * drops
    dh = da * slope
    return y.reshape(do.shape), (dh @ w1.T).reshape(x.shape), X.T @ dh, dh.sum(0), (a * drops).T @ DO, DO.sum(0)


@fused
def swiglu(x, wg, wu, wd, do):
    """Gate and up in one product."""
    F, both = wg.shape[1], np.concatenate([wg, wu], 1)
    g, u = np.split(x @ both, 2, -1)
    s = 1 / (1 + np.exp(-g))
    a = g * s * u
    da = do @ wd.T
    d = np.concatenate([da * u * (s + g * s * (1 - s)), da * g * s], -1)
    dw = np.tensordot(x, d, ((0, 1), (0, 1)))
    return a @ wd, d @ both.T, dw[:, :F], dw[:, F:], np.tensordot(a, do, ((0, 1), (0, 1)))


@fused
def experts(x, wg, w1, b1, w2, b2, do, top=2, kind="gelu"):
    """One token after the other."""
    X, DO = x.reshape(-1, x.shape[-1]), do.reshape(-1, x.shape[-1])
    y, dx = np.zeros_like(X), np.zeros_like(X)
    dwg, dw1, db1, dw2, db2 = (np.zeros_like(w) for w in (wg, w1, b1, w2, b2))
    for n, logits in enumerate(X @ wg):
        chosen = np.argsort(-logits, kind="stable")[:top]
        e = np.exp(logits[chosen] - logits[chosen].max())
        g = e / e.sum()
        dg = np.zeros(top, x.dtype)
        for m, i in enumerate(chosen):
            a, slope = activation(X[n] @ w1[:, i] + b1[i], kind)
            given = a @ w2[i] + b2[i]
            y[n] += g[m] * given
            dg[m] = given @ DO[n]
            dw2[i] += np.outer(a, g[m] * DO[n])
            db2[i] += g[m] * DO[n]
            dh = w2[i] @ (g[m] * DO[n]) * slope
            dw1[:, i] += np.outer(X[n], dh)
            db1[i] += dh
            dx[n] += w1[:, i] @ dh
        dl = g * (dg - g @ dg)
        dwg[:, chosen] += np.outer(X[n], dl)
        dx[n] += wg[:, chosen] @ dl
    return y.reshape(x.shape), dx.reshape(x.shape), dwg, dw1, db1, dw2, db2


@fused
def context_norm(x, scale, shift, do, segments=1):
    X = x.reshape(len(x), segments, -1, x.shape[2])
    DO, n = do.reshape(X.shape), X.shape[2]
    root = np.sqrt(X.var(2, ddof=1, keepdims=True) + 1e-8)
    y = (X - X.mean(2, keepdims=True)) / root
    dy = DO * scale
    dx = (dy - dy.mean(2, keepdims=True) - y * (dy * y).sum(2, keepdims=True) / (n - 1)) / root
    return (y * scale + shift).reshape(x.shape), dx.reshape(x.shape), (DO * y).sum((0, 1, 2)), DO.sum((0, 1, 2))


@fused
def packed(x, wq, bq, wk, bk, wv, bv, wo, bo, do, bias=None, keep=None, dropout=None, core=flash):
    """A layer whose queries, keys and values are one product."""
    (B, T, M), (H, D), E = x.shape, bq.shape, bv.shape[1]
    X, DO, Wo = x.reshape(-1, M), do.reshape(-1, M), wo.reshape(-1, M)
    W = np.concatenate([w.reshape(M, -1) for w in (wq, wk, wv)], 1)
    P = X @ W + np.concatenate([b.ravel() for b in (bq, bk, bv)])
    cuts = [H * D, 2 * H * D]
    q, k, v = (x.reshape(B, T, H, -1) for x in np.split(P, cuts, 1))
    options = {"bias": bias, "keep": keep, "dropout": dropout}
    o, dq, dk, dv, *dbias = core(q, k, v, do=(DO @ Wo.T).reshape(B, T, H, E),
                                 **{name: x for name, x in options.items() if x is not None})
    y = o.reshape(B * T, -1) @ Wo + bo
    dP = np.concatenate([g.reshape(B * T, -1) for g in (dq, dk, dv)], 1)
    dx = dP @ W.T
    dW, db = X.T @ dP, dP.sum(0)
    found = [y.reshape(x.shape), dx.reshape(x.shape), *dbias]
    for dw, d, w, b in zip(np.split(dW, cuts, 1), np.split(db, cuts), (wq, wk, wv), (bq, bk, bv), strict=True):
        found += [dw.reshape(w.shape), d.reshape(b.shape)]
    return (*found, (o.reshape(B * T, -1).T @ DO).reshape(wo.shape), DO.sum(0))


def turned(x, sign=1):
    """Rotary positions by complex numbers: neighbouring features are one."""
    angle = sign * np.arange(x.shape[1])[:, None] * 10000.0 ** (-np.arange(0, x.shape[3], 2) / x.shape[3])
    z = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)[:, None]
    return np.stack([z.real, z.imag], -1).reshape(x.shape).astype(x.dtype)


def rotary(q, k, v, do, **options):
    o, dq, dk, *rest = flash(turned(q), turned(k), v, do, **options)
    return o, turned(dq, -1), turned(dk, -1), *rest


@fused
def compositional_layer(x, wq, bq, wk, bk, wv, bv, ws, bs, wr, br, wo, bo, do, **options):
    maps = (wq, bq), (wk, bk), (wv, bv), (ws, bs)
    inner = compositional(*(np.tensordot(x, w, 1) + b for w, b in maps), wr, do=einsum("bqm,hem->bqhe", do, wo),
                          loops=True, **options)
    o, dq, dk, dv, *dbias, dselector, dwr = inner
    given = list(zip((wq, wk, wv, ws), (dq, dk, dv, dselector), strict=True))
    dx = sum(einsum("bthd,mhd->btm", g, w) for w, g in given)
    dmaps = [y for _, g in given for y in (einsum("btm,bthd->mhd", x, g), g.sum((0, 1)))]
    return (einsum("bqhe,hem->bqm", o, wo) + bo, dx, *dbias, *dmaps, dwr, np.zeros_like(br),
            einsum("bqhe,bqm->hem", o, do), do.sum((0, 1)))


@fused
def sliding_layer(x, wq, wk, wv, offset_bias, pad, wo, do, **options):
    q, k, v = (np.tensordot(x, w, 1) for w in (wq, wk, wv))
    inner = gathered(q, k, v, offset_bias, np.tensordot(pad, wk, 1), np.tensordot(pad, wv, 1),
                     do=einsum("bqm,hem->bqhe", do, wo), **options)
    o, dq, dk, dv, *dbias, doffset_bias, dpad_k, dpad_v = inner
    given = (wq, dq), (wk, dk), (wv, dv)
    dx = sum(einsum("bthd,mhd->btm", g, w) for w, g in given)
    dwq, dwk, dwv = (einsum("btm,bthd->mhd", x, g) for _, g in given)
    dwk, dwv = dwk + pad[:, None, None] * dpad_k, dwv + pad[:, None, None] * dpad_v
    dpad = einsum("hd,mhd->m", dpad_k, wk) + einsum("he,mhe->m", dpad_v, wv)
    return (einsum("bqhe,hem->bqm", o, wo), dx, *dbias, dwq, dwk, dwv, doffset_bias, dpad,
            einsum("bqhe,bqm->hem", o, do))


@fused
def cross_entropy(logits, target, do, weight=None):
    """By the log-sum-exp."""
    X, at = logits.reshape(-1, logits.shape[-1]), (np.arange(target.size), target.ravel())
    w = np.ones(len(X), X.dtype) if weight is None else weight.ravel()
    top = X.max(1)
    lse = top + np.log(np.exp(X - top[:, None]).sum(1))
    loss = ((lse - X[at]) * w).sum() / w.sum()
    g = np.exp(X - lse[:, None])
    g[at] -= 1
    g *= (w / w.sum())[:, None] * do
    return loss, g.reshape(logits.shape)


@fused
def cross_entropy_online(logits, target, do, weight=None):
    """One word after the other, and a matrix of ones and zeros."""
    w = np.ones(target.shape, logits.dtype) if weight is None else weight
    top, total = np.full(target.shape, -np.inf, logits.dtype), np.zeros(target.shape, logits.dtype)
    for n in range(logits.shape[-1]):
        new = np.maximum(top, logits[..., n])
        top, total = new, total * np.exp(top - new) + np.exp(logits[..., n] - new)
    logs = logits - (top + np.log(total))[..., None]
    hit = np.eye(logits.shape[-1], dtype=logits.dtype)[target]
    return {"o": -((hit * logs).sum(-1) * w).sum() / w.sum(),
            "dlogits": (np.exp(logs) - hit) * w[..., None] / w.sum() * do}


@fused
def binary_cross_entropy(logits, target, do, weight=None):
    w = np.ones_like(logits) if weight is None else weight
    yes, no = -np.logaddexp(0, -logits), -np.logaddexp(0, logits)
    loss = -(w * (target * yes + (1 - target) * no)).sum() / w.sum()
    return loss, (np.exp(yes) - target) * w / w.sum() * do


@fused
def mse(y, target, do):
    e = (y - target).ravel()
    return e @ e / e.size, 2 * (y - target) * do / e.size


@fused
def mean_absolute_error(y, target, do):
    return np.abs(y - target).mean(), np.sign(y - target) / y.size * do


@fused
def sigmoid_mse(logits, target, do, weight=None):
    p = (np.tanh(logits / 2) + 1) / 2
    w = np.ones(p.shape[:-1], p.dtype) if weight is None else weight
    loss = (((p - target) ** 2).mean(-1) * w).sum() / w.sum()
    return loss, 2 * (p - target) * p * (1 - p) / p.shape[-1] * (w / w.sum())[..., None] * do
