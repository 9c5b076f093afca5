"""Right kernels in NumPy, each in a manner in which real ones differ from the pages; `rows.py` has their mistakes."""

from collections import namedtuple
from math import erf, log2, pi, prod, sqrt

import numpy as np

Results = namedtuple("Results", "o dq dk dv dbias", defaults=(None,))


# ------------------------------------------------------------------------------------------------------------- parts

def up(*arrays):
    """Sums of half precision are float32."""
    return [x.astype(np.float32) if x is not None and x.dtype == np.float16 else x for x in arrays]


def bf16(x):
    """Rounded to bfloat16, ties to even, as float32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + (((bits >> 16) & 1) + 0x7FFF)) & 0xFFFF0000).astype(np.uint32).view(np.float32).reshape(x.shape)


def put(x, store):
    """What is left of x where it is kept in half precision."""
    if store == "bfloat16":
        return bf16(x)
    return x.astype(np.float16).astype(np.float32) if store == "float16" else x


def pairwise(x):
    while x.shape[-1] > 1:
        if x.shape[-1] % 2:
            x = np.concatenate([x, np.zeros_like(x[..., :1])], -1)
        x = x[..., 0::2] + x[..., 1::2]
    return x[..., 0]


def kahan(x):
    total, lost = np.zeros_like(x[..., 0]), np.zeros_like(x[..., 0])
    for i in range(x.shape[-1]):
        y = x[..., i] - lost
        new = total + y
        lost = (new - total) - y
        total = new
    return total


def serial(x):
    total = np.zeros(x.shape[:-1], x.dtype)
    for i in range(x.shape[-1]):
        total = total + x[..., i]
    return total


def backwards(x):
    return serial(x[..., ::-1])


def lanes(x):
    """A warp: 32 lanes take every 32nd number, then a butterfly."""
    n = -x.shape[-1] % 32
    x = np.concatenate([x, np.zeros((*x.shape[:-1], n), x.dtype)], -1)
    x = serial(np.moveaxis(x.reshape(*x.shape[:-1], -1, 32), -2, -1))
    for width in (16, 8, 4, 2, 1):
        x = x[..., :width] + x[..., width:2 * width]
    return x[..., 0]


def split(x):
    """Three parts of unequal length, each in its order."""
    n = x.shape[-1]
    return serial(x[..., :n // 5]) + (serial(x[..., n // 5:n // 2]) + serial(x[..., n // 2:]))


def atomic(x):
    """In an order that changes from call to call."""
    return serial(x[..., np.random.default_rng().permutation(x.shape[-1])])


def double(x):
    return x.astype(np.float64).sum(-1).astype(x.dtype)


def tf32(x):
    """Rounded to ten bits behind the point."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x1000) & 0xFFFFE000).view(np.float32).reshape(x.shape)


def parts_of(x, how):
    """x as a sum of numbers that a tensor core takes: two of TF32, three of bfloat16."""
    found = []
    for _ in range(2 if how == "tf32x3" else 3):
        found.append(tf32(x) if how == "tf32x3" else bf16(x))
        x = x - found[-1]
    return found


SUMS = {f.__name__: f for f in (pairwise, kahan, serial, backwards, lanes, split, atomic, double)}


def dot(spec, a, b, how="serial"):
    """The contraction, its products summed in that order; "fma" rounds product and sum at once."""
    inputs, to = spec.split("->")
    one, two = inputs.split(",")
    inner = "".join(x for x in dict.fromkeys(one + two) if x not in to)
    a, b = (spread(x, letters, to + inner) for x, letters in ((a, one), (b, two)))
    if how == "fma":
        a, b = (x.reshape(*x.shape[:len(to)], -1) for x in np.broadcast_arrays(a, b))
        total = np.zeros(a.shape[:-1], a.dtype)
        for i in range(a.shape[-1]):
            total = (total + a[..., i].astype(np.float64) * b[..., i].astype(np.float64)).astype(a.dtype)
        return total
    if how in ("tf32x3", "bf16x6") and a.dtype == np.float32:
        one, two = parts_of(a, how), parts_of(b, how)
        pairs = [(x, y) for i, x in enumerate(one) for j, y in enumerate(two) if i + j < len(one)]
        shape = np.broadcast_shapes(a.shape, b.shape)[:len(to)]
        sums = [serial((x * y).reshape(*shape, -1)) for x, y in reversed(pairs)]
        return serial(np.stack(sums, -1))
    x = a * b
    return SUMS.get(how, serial)(x.reshape(*x.shape[:len(to)], -1))


def spread(x, letters, to):
    order = [c for c in to if c in letters]
    x = x.transpose([letters.index(c) for c in order])
    return x.reshape([x.shape[order.index(c)] if c in letters else 1 for c in to])


def fit(dx, shape):
    """dx summed to a shape that was stretched."""
    dx = dx.sum(tuple(range(dx.ndim - len(shape))))
    return dx.sum(tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True) if shape else dx


def later(nq, nk):
    """Keys that a query must not see."""
    return np.arange(nk) > np.arange(nq)[:, None] + nk - nq


def answers(o, dq, dk, dv, bias=None, dbias=None, *more):
    """What a kernel returns."""
    return (o, dq, dk, dv, *(() if bias is None else (fit(dbias, bias.shape),)), *more)


# ----------------------------------------------------------------------------------------------------------- softmax

def ordered(q, k, v, do, bias=None, keep=None, dropout=None, causal=False, how="serial", out=None):
    """Every sum in one order."""
    q, k, v, do, bias, dropout = up(q, k, v, do, bias, dropout)
    scale = q.dtype.type(1 / sqrt(q.shape[-1]))
    s = dot("bqhd,bkhd->bhqk", q, k, how) * scale
    if bias is not None:
        s = s + bias
    there = np.ones(s.shape, bool) if keep is None else np.broadcast_to(keep, s.shape)
    if causal:
        there = there & ~later(*s.shape[2:])
    s = np.where(there, s, -np.inf)
    top = s.max(-1, keepdims=True)
    p = np.where(there, np.exp(s - np.where(np.isinf(top), 0, top)), 0)
    total = SUMS.get(how, serial)(p)[..., None]
    p = p / np.where(total == 0, 1, total)
    r = 1 if dropout is None else dropout
    o = dot("bhqk,bkhe->bqhe", p * r, v, how)
    dp = dot("bqhe,bkhe->bhqk", do, v, how) * r
    dv = dot("bhqk,bqhe->bkhe", p * r, do, how)
    ds = p * (dp - SUMS.get(how, serial)(p * dp)[..., None])
    dq = dot("bhqk,bkhd->bqhd", ds, k, how) * scale
    dk = dot("bhqk,bqhd->bkhd", ds, q, how) * scale
    found = answers(o, dq, dk, dv, bias, ds)
    return found if out is None else OUT[out](found)


def reversed_memory(x):
    return np.ascontiguousarray(x[..., ::-1])[..., ::-1]


OUT = {
    "list": list,
    "named tuple": lambda xs: Results(*xs),
    "mapping": lambda xs: dict(zip(Results._fields, xs, strict=False)),
    "Fortran": lambda xs: tuple(np.asfortranarray(x) for x in xs),
    "negative strides": lambda xs: tuple(reversed_memory(x) for x in xs),
    "read only": lambda xs: tuple(np.broadcast_to(x, x.shape) for x in xs),
    "float64": lambda xs: tuple(x.astype(np.float64) for x in xs),
    "views of a buffer": lambda xs: tuple(np.stack([x, x])[1] for x in xs),
}


def exp2_by_cubic(x):
    """As FlashAttention-4 has it for half precision: a polynomial of degree 3, and the exponent's bits."""
    x = np.maximum(x, -127).astype(np.float32)
    whole = np.floor(x)
    f = x - whole
    return np.ldexp(1 + f * (np.float32(0.695146) + f * (np.float32(0.227564) + f * np.float32(0.077119))),
                    whole.astype(int))


def cubic(q, k, v, do, bias=None, keep=None, dropout=None, store="bfloat16", tile=3):
    """Half precision with exp2 by a polynomial, stale maxima and weights that are kept in half precision."""
    q, k, v, do, bias, dropout = up(q, k, v, do, bias, dropout)
    log2e = np.float32(log2(np.e))
    scale = np.float32(q.shape[-1] ** -0.5)
    shape = q.shape[0], q.shape[2], q.shape[1], k.shape[1]
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * (scale * log2e)
    s = s if bias is None else s + bias * log2e
    there = np.broadcast_to(True if keep is None else keep, shape)
    r = np.broadcast_to(np.float32(1) if dropout is None else dropout, shape)
    stale = np.where(there, s, -np.inf)[..., :tile].max(-1, keepdims=True)
    stale = np.where(np.isinf(stale), 0, stale)
    p = np.where(there, exp2_by_cubic(s - stale), 0).astype(np.float32)
    total = p.sum(-1, keepdims=True)
    some = np.where(total == 0, 1, total)
    o = np.einsum("bhqk,bkhe->bqhe", put(p * r, store), v) / some.transpose(0, 2, 1, 3)
    lse = stale + np.log2(some)
    a = np.where(there, exp2_by_cubic(s - lse), 0).astype(np.float32)
    c = put(a * r, store)
    dv = np.einsum("bhqk,bqhe->bkhe", c, do)
    ds = a * (np.einsum("bqhe,bkhe->bhqk", do, v) * r - np.einsum("bqhe,bqhe->bhq", do, o)[..., None])
    low = put(ds, store)
    dq = np.einsum("bhqk,bkhd->bqhd", low, k) * scale
    dk = np.einsum("bhqk,bqhd->bkhd", low, q) * scale
    return answers(o, dq, dk, dv, bias, ds)


def lazy(q, k, v, do, bias=None, keep=None, dropout=None, tile=2, threshold=8.0):
    """As FlashAttention-4: what was summed is rescaled only where the maximum has grown by more than a threshold."""
    q, k, v, do, bias, dropout = up(q, k, v, do, bias, dropout)
    one = q.dtype.type
    scale, log2e = one(q.shape[-1] ** -0.5), one(log2(np.e))
    nk, shape = k.shape[1], (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    was, keep, dropout = (None if x is None else np.broadcast_to(x, shape) for x in (bias, keep, dropout))

    def scores(at):
        s = np.einsum("bqhd,bkhd->bhqk", q, k[:, at]) * (scale * log2e)
        s = s if was is None else s + was[..., at] * log2e
        return s if keep is None else np.where(keep[..., at], s, -np.inf)

    stale = np.full((*shape[:3], 1), -np.inf, q.dtype)
    total, o = np.zeros_like(stale), np.zeros((*shape[:3], v.shape[3]), q.dtype)
    for start in range(0, nk, tile):
        at = slice(start, start + tile)
        s = scores(at)
        new = np.maximum(stale, s.max(-1, keepdims=True))
        new = np.where(np.isinf(stale) | (new - np.where(np.isinf(stale), 0, stale) > one(threshold)), new, stale)
        calm = np.where(np.isinf(new), 0, new)
        factor = np.exp2(np.where(np.isinf(stale), -np.inf, stale) - calm)
        p = np.exp2(s - calm)
        total = factor * total + p.sum(-1, keepdims=True)
        o = factor * o + np.einsum("bhqk,bkhe->bhqe", p if dropout is None else p * dropout[..., at], v[:, at])
        stale = new
    empty = total == 0
    o = (o / np.where(empty, 1, total)).transpose(0, 2, 1, 3)
    lse = np.where(empty, np.inf, np.where(np.isinf(stale), 0, stale) + np.log2(np.where(empty, 1, total)))
    delta = np.einsum("bqhe,bqhe->bhq", do, o)[..., None]
    dq, dk, dv, ds_all = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v), np.zeros(shape, q.dtype)
    for start in range(0, nk, tile):
        at = slice(start, start + tile)
        p = np.exp2(scores(at) - lse)
        dp = np.einsum("bqhe,bkhe->bhqk", do, v[:, at])
        pd = p
        if dropout is not None:
            pd, dp = p * dropout[..., at], dp * dropout[..., at]
        dv[:, at] = np.einsum("bhqk,bqhe->bkhe", pd, do)
        ds = p * (dp - delta)
        ds_all[..., at] = ds
        dq += np.einsum("bhqk,bkhd->bqhd", ds, k[:, at]) * scale
        dk[:, at] = np.einsum("bhqk,bqhd->bkhd", ds, q) * scale
    return answers(o, dq, dk, dv, bias, ds_all)


def bounded(q, k, v, do, bias=None, keep=None, dropout=None, use="cauchy"):
    """What is subtracted is no maximum, but a bound |q| |k| / sqrt d + max bias, or nothing."""
    q, k, v, do, bias, dropout = up(q, k, v, do, bias, dropout)
    root = q.dtype.type(sqrt(q.shape[-1]))
    s = np.einsum("bqhd,bkhd->bhqk", q, k) / root
    bound = np.zeros((), q.dtype)
    if use == "cauchy":
        size_q = np.sqrt(np.einsum("bqhd,bqhd->bhq", q, q))
        size_k = np.sqrt(np.einsum("bkhd,bkhd->bhk", k, k)).max(-1)
        bound = (size_q * size_k[..., None] / root)[..., None]
    if bias is not None:
        s = s + bias
        bound = bound + (bias.max() if use == "cauchy" else 0)
    p = np.exp(s - bound)
    if keep is not None:
        p = p * keep
    total = p.sum(-1, keepdims=True)
    inverse = np.where(total > 0, 1 / np.where(total > 0, total, 1), 0)
    c = p if dropout is None else p * dropout
    o = np.einsum("bhqk,bkhe->bhqe", c, v) * inverse
    o = o.transpose(0, 2, 1, 3)
    a = p * inverse
    g = np.einsum("bqhe,bkhe->bhqk", do, v)
    dv = np.einsum("bhqk,bqhe->bkhe", c * inverse, do)
    g = g if dropout is None else g * dropout
    ds = a * g - a * np.einsum("bhqk,bhqk->bhq", a, g)[..., None]
    dq = np.einsum("bhqk,bkhd->bqhd", ds, k) / root
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q) / root
    return answers(o, dq, dk, dv, bias, ds)


def columns(q, k, v, do, bias, keep=None):
    """A bias of keys as one more feature of q and k; delta as one more of do and v."""
    q, k, v, do, bias = up(q, k, v, do, bias)
    d = q.shape[-1]
    root = q.dtype.type(sqrt(d))
    row = np.broadcast_to(bias, (k.shape[0], k.shape[2], 1, k.shape[1]))[:, :, 0].transpose(0, 2, 1)
    qq = np.concatenate([q, np.full_like(q[..., :1], root)], -1)
    kk = np.concatenate([k, row[..., None]], -1)
    s = np.einsum("bqhd,bkhd->bhqk", qq, kk) / root
    if keep is not None:
        s = s + np.where(keep, 0, -np.inf).astype(q.dtype)
    with np.errstate(invalid="ignore"):
        p = np.nan_to_num(np.exp(s - s.max(-1, keepdims=True)))
    total = p.sum(-1, keepdims=True)
    p = np.divide(p, total, out=np.zeros_like(p), where=total != 0)
    o = np.einsum("bhqk,bkhe->bqhe", p, v)
    delta = (do * o).sum(-1, keepdims=True)
    dov = np.einsum("bqhe,bkhe->bhqk", np.concatenate([do, -delta], -1),
                    np.concatenate([v, np.ones_like(v[..., :1])], -1))
    ds = p * dov
    dqq = np.einsum("bhqk,bkhd->bqhd", ds, kk) / root
    dkk = np.einsum("bhqk,bqhd->bkhd", ds, qq) / root
    dv = np.einsum("bhqk,bqhe->bkhe", p, do)
    dbias = dkk[..., d].transpose(0, 2, 1)[:, :, None]
    return o, dqq[..., :d], dkk[..., :d], dv, fit(dbias, bias.shape)


def smooth(q, k, v, do, bias=None, dropout=None, jacobian=False):
    """Keys less their mean, as in SageAttention: no softmax sees it; the backward by the whole Jacobian, or not."""
    q, k, v, do, bias, dropout = up(q, k, v, do, bias, dropout)
    scale = q.dtype.type(q.shape[-1] ** -0.5)
    near = k - k.mean(1, keepdims=True)
    s = np.einsum("bqhd,bkhd->bhqk", q * scale, near)
    s = s if bias is None else s + bias
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    c = p if dropout is None else p * dropout
    o = np.einsum("bhqk,bkhe->bqhe", c, v)
    dv = np.einsum("bhqk,bqhe->bkhe", c, do)
    dp = np.einsum("bqhe,bkhe->bhqk", do, v)
    dp = dp if dropout is None else dp * dropout
    if jacobian:
        slope = p[..., None] * np.eye(p.shape[-1], dtype=p.dtype) - p[..., None] * p[..., None, :]
        ds = np.einsum("bhqkj,bhqj->bhqk", slope, dp)
    else:
        ds = p * (dp - (p * dp).sum(-1, keepdims=True))
    dq = np.einsum("bhqk,bkhd->bqhd", ds, near) * scale
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q) * scale
    return answers(o, dq, dk, dv, bias, ds)


def merged(q, k, v, do, bias=None, keep=None, dropout=None, parts=3, tree=False, base2=False):
    """Flash decoding: parts of the keys by themselves, put together by their log-sum-exps, as a chain or a tree."""
    q, k, v, do, bias, dropout = up(q, k, v, do, bias, dropout)
    scale = q.dtype.type(1 / sqrt(q.shape[-1]))
    shape = q.shape[0], q.shape[2], q.shape[1], k.shape[1]
    wide = [None if x is None else np.broadcast_to(x, shape) for x in (bias, keep, dropout)]

    def scores(at):
        s = np.einsum("bqhd,bkhd->bhqk", q, k[:, at]) * scale
        if bias is not None:
            s = s + wide[0][..., at]
        return s if keep is None else np.where(wide[1][..., at], s, -np.inf)

    def part(at):
        s = scores(at)
        top = s.max(-1, keepdims=True)
        calm = np.where(np.isinf(top), 0, top)
        p = np.exp(s - calm)
        total = p.sum(-1, keepdims=True)
        some = np.where(total == 0, 1, total)
        if dropout is not None:
            p = p * wide[2][..., at]
        return np.einsum("bhqk,bkhe->bhqe", p, v[:, at]) / some, np.where(total == 0, -np.inf, calm + np.log(some))

    def both(one, two):
        top = np.maximum(one[1], two[1])
        calm = np.where(np.isinf(top), 0, top)
        w1, w2 = np.exp(one[1] - calm), np.exp(two[1] - calm)
        some = np.where(w1 + w2 == 0, 1, w1 + w2)
        return (w1 * one[0] + w2 * two[0]) / some, np.where(w1 + w2 == 0, -np.inf, calm + np.log(some))

    edges = np.linspace(0, shape[3], parts + 1).astype(int)
    slices = [slice(i, j) for i, j in zip(edges, edges[1:], strict=False) if i < j]
    found = [part(at) for at in slices]
    while len(found) > 1:
        if tree:
            found = [both(*found[i:i + 2]) if i + 1 < len(found) else found[i] for i in range(0, len(found), 2)]
        else:
            found = [both(found[0], found[1]), *found[2:]]
    (o, lse), = found
    safe = np.where(np.isinf(lse), np.inf, lse)
    o = o.transpose(0, 2, 1, 3)
    dq, dk, dv, ds_all = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v), np.zeros(shape, q.dtype)
    delta = (o * do).sum(-1).transpose(0, 2, 1)[..., None]
    for at in reversed(slices):
        p = np.exp2((scores(at) - safe) * q.dtype.type(log2(np.e))) if base2 else np.exp(scores(at) - safe)
        r = 1 if dropout is None else wide[2][..., at]
        dv[:, at] = np.einsum("bhqk,bqhe->bkhe", p * r, do)
        ds = p * (r * np.einsum("bqhe,bkhe->bhqk", do, v[:, at]) - delta)
        dk[:, at] = np.einsum("bhqk,bqhd->bkhd", ds, q * scale)
        dq = dq + np.einsum("bhqk,bkhd->bqhd", ds, k[:, at] * scale)
        ds_all[..., at] = ds
    found = {"o": o, "dq": dq, "dk": dk, "dv": dv, "lse": np.where(np.isinf(lse), 0, lse)[..., 0]}
    return found if bias is None else found | {"dbias": fit(ds_all, bias.shape)}


def by_queries(q, k, v, do, bias=None, keep=None, dropout=None, tile=4, seed=0):
    """Tiles of queries in an order drawn by chance; dk and dv, and the bias's, add up over them."""
    q, k, v, do, bias, dropout = up(q, k, v, do, bias, dropout)
    scale = q.dtype.type(q.shape[-1] ** -0.5)
    shape = q.shape[0], q.shape[2], q.shape[1], k.shape[1]
    wide = [None if x is None else np.broadcast_to(x, shape) for x in (bias, keep, dropout)]
    o, dq, dk, dv = np.empty((*q.shape[:3], v.shape[3]), q.dtype), np.empty_like(q), np.zeros_like(k), np.zeros_like(v)
    dbias = np.zeros(shape, q.dtype)
    starts = np.random.default_rng(seed).permutation(range(0, q.shape[1], tile))
    for start in starts:
        at = slice(start, start + tile)
        s = np.matmul(q[:, at].transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1)) * scale
        if bias is not None:
            s += wide[0][:, :, at]
        low = np.finfo(s.dtype).min
        if keep is not None:
            s = np.where(wide[1][:, :, at], s, low)
        p = np.exp(s - s.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        if keep is not None:
            p *= wide[1][:, :, at]
        z = p if dropout is None else p * wide[2][:, :, at]
        o[:, at] = np.matmul(z, v.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
        g = do[:, at].transpose(0, 2, 1, 3)
        dv += np.matmul(z.swapaxes(2, 3), g).transpose(0, 2, 1, 3)
        dp = np.matmul(g, v.transpose(0, 2, 3, 1))
        if dropout is not None:
            dp *= wide[2][:, :, at]
        ds = p * (dp - np.sum(p * dp, -1, keepdims=True))
        dbias[:, :, at] = ds
        dq[:, at] = np.matmul(ds, k.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) * scale
        dk += np.matmul(ds.swapaxes(2, 3), q[:, at].transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) * scale
    return answers(o, dq, dk, dv, bias, dbias)


def stored(q, k, v, do, bias=None, keep=None, dropout=None, store="bfloat16", what="p ds", delta="p"):
    """As fused kernels in half precision: sums in float32, p, ds or o kept in half precision for the next product."""
    kind = q.dtype
    q, k, v, do, bias, dropout = up(q, k, v, do, bias, dropout)
    scale = q.dtype.type(q.shape[-1] ** -0.5)
    if "split" in what:
        quarter = np.float32(q.shape[-1] ** -0.25)
        s = np.einsum("bqhd,bkhd->bhqk", put(q * quarter, store), put(k * quarter, store))
    else:
        s = np.einsum("bqhd,bkhd->bhqk", q, k) * scale
    s = s if bias is None else s + bias
    s = s if keep is None else np.where(keep, s, np.float32(-1e9))
    p = np.exp(s - s.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    p = p if keep is None else np.where(keep, p, np.float32(0))
    r = np.float32(1) if dropout is None else dropout
    c = put(p * r, store) if "p" in what.split() else p * r
    o = np.einsum("bhqk,bkhe->bqhe", c, v)
    dv = np.einsum("bhqk,bqhe->bkhe", c, do)
    dp = np.einsum("bqhe,bkhe->bhqk", do, v)
    kept = put(o, store) if delta == "stored" else o
    total = (c * dp).sum(-1, keepdims=True) if delta == "p" else np.einsum("bqhe,bqhe->bhq", do, kept)[..., None]
    ds = p * (dp * r - total)
    low = put(ds, store) if "ds" in what.split() else ds
    dq = np.einsum("bhqk,bkhd->bqhd", low, k) * scale
    dk = np.einsum("bhqk,bqhd->bkhd", low, q) * scale
    found = answers(o, dq, dk, dv, bias, ds)
    return tuple(put(x, store).astype(kind) for x in found) if "out" in what else found


def heads_apart(q, k, v, do, bias=None, keep=None, dropout=None):
    """A loop over batch and heads, matrices of one head in it; its own copies are overwritten."""
    q, k, v, do, bias, dropout = up(q, k, v, do, bias, dropout)
    nb, nq, nh, d = q.shape
    o, dq, dk, dv = np.zeros((nb, nq, nh, v.shape[3]), q.dtype), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    shape = nb, nh, nq, k.shape[1]
    wide = [None if x is None else np.broadcast_to(x, shape) for x in (bias, keep, dropout)]
    dbias = np.zeros(shape, q.dtype)
    for b in range(nb):
        for h in range(nh):
            mine = q[b, :, h].copy()
            mine /= q.dtype.type(sqrt(d))
            a = mine @ k[b, :, h].T
            if bias is not None:
                a += wide[0][b, h]
            if keep is not None:
                a[~wide[1][b, h]] = -np.inf
            gone = np.isinf(a).all(1)
            a[gone] = 0
            a -= a.max(1, keepdims=True)
            np.exp(a, out=a)
            a /= a.sum(1, keepdims=True)
            a[gone] = 0
            used = a.copy()
            g = do[b, :, h] @ v[b, :, h].T
            if dropout is not None:
                used *= wide[2][b, h]
                g *= wide[2][b, h]
            o[b, :, h] = used @ v[b, :, h]
            dv[b, :, h] = used.T @ do[b, :, h]
            g -= (a * g).sum(1)[:, None]
            g *= a
            dbias[b, h] = g
            dq[b, :, h] = g @ k[b, :, h] / q.dtype.type(sqrt(d))
            dk[b, :, h] = g.T @ mine
    return answers(o, dq, dk, dv, bias, dbias)


def packed(q, k, v, do, keep=None):
    """All sequences as one, which sees its own keys alone; q, k, v in one array."""
    nb, nt, nh, d = q.shape
    qkv = np.stack([x.reshape(nb * nt, nh, d) for x in up(q, k, v)], 1)
    g = up(do)[0].reshape(nb * nt, nh, d)
    own = np.repeat(np.arange(nb), nt)
    there = np.broadcast_to((own[:, None] == own)[None], (nh, nb * nt, nb * nt))
    if keep is not None:
        inside = np.broadcast_to(keep, (nb, nh, nt, nt))
        there = there.copy()
        for b in range(nb):
            at = slice(b * nt, (b + 1) * nt)
            there[:, at, at] &= inside[b]
    scale = qkv.dtype.type(d ** -0.5)
    s = np.einsum("qhd,khd->hqk", qkv[:, 0], qkv[:, 1]) * scale
    low = np.where(there, s, -np.inf)
    top = low.max(-1, keepdims=True)
    p = np.exp(low - np.where(np.isinf(top), 0, top))
    total = p.sum(-1, keepdims=True)
    p = p / np.where(total, total, 1)
    o = np.einsum("hqk,khe->qhe", p, qkv[:, 2])
    dp = np.einsum("qhe,khe->hqk", g, qkv[:, 2])
    ds = p * (dp - (g * o).sum(-1).T[..., None]) * scale
    dqkv = np.stack([np.einsum("hqk,khd->qhd", ds, qkv[:, 1]), np.einsum("hqk,qhd->khd", ds, qkv[:, 0]),
                     np.einsum("hqk,qhe->khe", p, g)], 1)
    return (o.reshape(nb, nt, nh, d), *(dqkv[:, i].reshape(nb, nt, nh, d) for i in range(3)))


def causal_tiles(q, k, v, do, dropout=None, tile=3, layout="bhtd"):
    """A causal mask whose tiles above the diagonal are never visited; layouts of its own."""
    order = [layout.index(x) for x in "bhtd"]
    q, k, v, do, dropout = up(*(x.transpose(order) for x in (q, k, v, do)), dropout)
    nq, nk, one = q.shape[2], k.shape[2], q.dtype.type
    scale = one(q.shape[-1] ** -0.5)
    wide = np.ones((), q.dtype) if dropout is None else dropout
    wide = np.broadcast_to(wide, (*q.shape[:3], nk))
    o, dq, dk, dv = np.zeros((*q.shape[:3], v.shape[3]), q.dtype), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    for i in range(0, nq, tile):
        rows = np.arange(i, min(i + tile, nq))
        stop = max(0, min(nk, rows[-1] + nk - nq + 1))
        if stop == 0:
            continue
        s = q[:, :, rows] @ k[:, :, :stop].swapaxes(2, 3) * scale
        hidden = np.arange(stop) > rows[:, None] + nk - nq
        s = np.where(hidden, -np.inf, s)
        top = s.max(-1, keepdims=True)
        p = np.exp(s - np.where(np.isinf(top), 0, top))
        total = p.sum(-1, keepdims=True)
        p = p / np.where(total, total, 1)
        r = wide[:, :, rows, :stop]
        o[:, :, rows] = (p * r) @ v[:, :, :stop]
        g = do[:, :, rows]
        dp = g @ v[:, :, :stop].swapaxes(2, 3) * r
        dv[:, :, :stop] += (p * r).swapaxes(2, 3) @ g
        ds = p * (dp - (g * o[:, :, rows]).sum(-1, keepdims=True)) * scale
        dq[:, :, rows] = ds @ k[:, :, :stop]
        dk[:, :, :stop] += ds.swapaxes(2, 3) @ q[:, :, rows]
    back = ["bhtd".index(x) for x in layout]
    return tuple(x.transpose(back) for x in (o, dq, dk, dv))


def grouped(q, k, v, do):
    """Two heads of queries to one of keys, asked as two positions of one head."""
    def into(x):
        b, t, h, d = x.shape
        return x.reshape(b, t // 2, 2, h, d).swapaxes(2, 3).reshape(b, t // 2, 2 * h, d)

    def back(x):
        b, t, h, d = x.shape
        return x.reshape(b, t, h // 2, 2, d).swapaxes(2, 3).reshape(b, 2 * t, h // 2, d)

    q, k, v, do = up(q, k, v, do)
    q, do, scale = into(q), into(do), q.dtype.type(q.shape[-1] ** -0.5)
    o, dq, dk, dv = np.empty_like(do), np.empty_like(q), np.zeros_like(k), np.zeros_like(v)
    for h in range(q.shape[2]):
        mine, keys, values, g = q[:, :, h], k[:, :, h // 2], v[:, :, h // 2], do[:, :, h]
        s = mine @ keys.swapaxes(1, 2) * scale
        p = np.exp(s - s.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        o[:, :, h] = p @ values
        dv[:, :, h // 2] += p.swapaxes(1, 2) @ g
        ds = p * (g @ values.swapaxes(1, 2) - (g * o[:, :, h]).sum(-1, keepdims=True))
        dq[:, :, h] = ds @ keys * scale
        dk[:, :, h // 2] += ds.swapaxes(1, 2) @ mine * scale
    return back(o), back(dq), dk, dv


# ------------------------------------------------------------------------------------------------------------ linear

def lin_state(q, k, v, do):
    """q (k^T v): the products in the other order."""
    q, k, v, do = up(q, k, v, do)
    scale = q.dtype.type(q.shape[-1] ** -0.5)
    state = np.einsum("bkhd,bkhe->bhde", k, v) * scale
    o = np.einsum("bqhd,bhde->bqhe", q, state)
    dstate = np.einsum("bqhd,bqhe->bhde", q, do) * scale
    dq = np.einsum("bqhe,bhde->bqhd", do, state)
    dk = np.einsum("bkhe,bhde->bkhd", v, dstate)
    dv = np.einsum("bkhd,bhde->bkhe", k, dstate)
    return o, dq, dk, dv


def lin_chunks(q, k, v, state=None, *, do, dend=None, chunk=3):
    """Chunk by chunk with a state, and back with the state's gradient; keys in front of the first query at once."""
    q, k, v, do, state, dend = up(q, k, v, do, state, dend)
    scale, more = q.dtype.type(q.shape[-1] ** -0.5), k.shape[1] - q.shape[1]
    start = np.zeros((q.shape[0], q.shape[2], q.shape[3], v.shape[3]), q.dtype) if state is None else state
    first = start + np.einsum("bkhd,bkhe->bhde", k[:, :more], v[:, :more])
    o, dq, dk, dv = np.empty((*q.shape[:3], v.shape[3]), q.dtype), np.empty_like(q), np.empty_like(k), np.empty_like(v)
    before, memory = [], first
    places = [(slice(i, i + chunk), slice(more + i, more + i + chunk)) for i in range(0, q.shape[1], chunk)]
    for mine, keys in places:
        before.append(memory)
        s = np.einsum("bqhd,bkhd->bhqk", q[:, mine], k[:, keys])
        s = np.tril(s)
        before_it = np.einsum("bqhd,bhde->bqhe", q[:, mine], memory)
        o[:, mine] = (np.einsum("bhqk,bkhe->bqhe", s, v[:, keys]) + before_it) * scale
        memory = memory + np.einsum("bkhd,bkhe->bhde", k[:, keys], v[:, keys])
    g = np.zeros_like(first) if dend is None else dend
    for (mine, keys), memory_then in zip(reversed(places), reversed(before), strict=True):
        s = np.tril(np.einsum("bqhd,bkhd->bhqk", q[:, mine], k[:, keys])) * scale
        ds = np.tril(np.einsum("bqhe,bkhe->bhqk", do[:, mine], v[:, keys])) * scale
        dq[:, mine] = np.einsum("bhqk,bkhd->bqhd", ds, k[:, keys]) \
            + np.einsum("bqhe,bhde->bqhd", do[:, mine], memory_then) * scale
        dk[:, keys] = np.einsum("bhqk,bqhd->bkhd", ds, q[:, mine]) + np.einsum("bkhe,bhde->bkhd", v[:, keys], g)
        dv[:, keys] = np.einsum("bhqk,bqhe->bkhe", s, do[:, mine]) + np.einsum("bkhd,bhde->bkhe", k[:, keys], g)
        g = g + np.einsum("bqhd,bqhe->bhde", q[:, mine], do[:, mine]) * scale
    dk[:, :more] = np.einsum("bkhe,bhde->bkhd", v[:, :more], g)
    dv[:, :more] = np.einsum("bkhd,bhde->bkhe", k[:, :more], g)
    return (o, dq, dk, dv) if state is None else (o, memory, dq, dk, dv, g)


def lin_recurrent(q, k, v, state, do, dend):
    """Position by position, one state that is written over; backward by taking keys out of it again."""
    q, k, v, state, do, dend = up(q, k, v, state, do, dend)
    scale = q.dtype.type(q.shape[-1] ** -0.5)
    memory, o = state.copy(), np.empty((*q.shape[:3], v.shape[3]), q.dtype)
    for t in range(q.shape[1]):
        memory += k[:, t, :, :, None] * v[:, t, :, None]
        o[:, t] = (q[:, t, :, :, None] * memory).sum(2) * scale
    end = memory.copy()
    dq, dk, dv = np.empty_like(q), np.empty_like(k), np.empty_like(v)
    g = dend.copy()
    for t in reversed(range(q.shape[1])):
        dq[:, t] = (memory * do[:, t, :, None]).sum(3) * scale
        memory -= k[:, t, :, :, None] * v[:, t, :, None]
        g += q[:, t, :, :, None] * do[:, t, :, None] * scale
        dk[:, t] = (g * v[:, t, :, None]).sum(3)
        dv[:, t] = (g * k[:, t, :, :, None]).sum(2)
    return o, end, dq, dk, dv, g


def lin_parts(q, k, v, do, bias=None, keep=None, dropout=None, how="lanes", store=None):
    """Scores and bias apart: one matrix of weights from keep and dropout multiplies both."""
    q, k, v, do, bias, dropout = up(q, k, v, do, bias, dropout)
    scale = q.dtype.type(1 / sqrt(q.shape[-1]))
    w = np.ones((), q.dtype)
    w = w if keep is None else w * keep
    w = w if dropout is None else w * dropout
    c = dot("bqhd,bkhd->bhqk", q, k, how) * scale * w
    c = put(c, store)
    o = dot("bhqk,bkhe->bqhe", c, v, how)
    dv = dot("bhqk,bqhe->bkhe", c, do, how)
    ds = dot("bqhe,bkhe->bhqk", do, v, how) * w
    if bias is not None:
        flat = np.broadcast_to(bias * w, ds.shape)
        o = o + dot("bhqk,bkhe->bqhe", flat, v, how)
        dv = dv + dot("bhqk,bqhe->bkhe", flat, do, how)
    dq = dot("bhqk,bkhd->bqhd", ds, k * scale, how)
    dk = dot("bhqk,bqhd->bkhd", ds, q * scale, how)
    return answers(o, dq, dk, dv, bias, ds)


# -------------------------------------------------------------------------------------------------------------- HYLA

def hyla_heads(q, k, v, do, bias=None, keep=None, dropout=None, how="fma", eps=1e-6, store=None):
    """Value networks head by head; RMSHead of unscaled scores, whose epsilon is d times as large."""
    q, k, v, do, bias, dropout = up(q, k, v, do, bias, dropout)
    d, nh, one = q.shape[-1], q.shape[2], q.dtype.type
    s = dot("bqhd,bkhd->bhqk", q, k, how)
    if bias is not None:
        s = s + bias * one(sqrt(d))
    if keep is not None:
        s = np.where(keep, s, one(0))
    rho = one(sqrt(nh)) / np.sqrt((s * s).sum(1, keepdims=True) + one(nh * d * eps))
    a = s * rho
    r = one(1) if dropout is None else dropout
    c = put(a * r, store)
    z = np.zeros((q.shape[0], q.shape[1], k.shape[1], v.shape[3]), q.dtype)
    for h in range(nh):
        z += c[:, h, :, :, None] * v[:, None, :, h]
    g = (z + np.abs(z)) / 2
    g = put(g, store)
    o = np.stack([np.einsum("bqk,bqke->bqe", c[:, h], g) for h in range(nh)], 2)
    dz = np.zeros_like(z)
    for h in reversed(range(nh)):
        dz += c[:, h, :, :, None] * do[:, :, None, h]
    dz = np.where(z > 0, dz, 0)
    dc, dv = np.empty_like(a), np.empty_like(v)
    for h in range(nh):
        dc[:, h] = (do[:, :, None, h] * g).sum(-1) + (dz * v[:, None, :, h]).sum(-1)
        dv[:, :, h] = (c[:, h, :, :, None] * dz).sum(1)
    da = put(dc * r, store)
    ds = rho * da - a * rho * (a * da).sum(1, keepdims=True) / one(nh)
    if keep is not None:
        ds = np.where(keep, ds, one(0))
    dq = dot("bhqk,bkhd->bqhd", ds, k, how)
    dk = dot("bhqk,bqhd->bkhd", ds, q, how)
    return answers(o, dq, dk, dv, bias, ds * one(sqrt(d)))


def hyla_pairs(q, k, v, do, bias=None, keep=None, dropout=None, tile=4, cube=False, store=None):
    """Codes with heads last, so that mixing is one product for each pair; queries in tiles; d rho by itself."""
    q, k, v, do, bias, dropout = up(q, k, v, do, bias, dropout)
    one, nh = q.dtype.type, q.shape[2]
    scale = one(q.shape[-1] ** -0.5)
    shape = q.shape[0], nh, q.shape[1], k.shape[1]
    wide = [None if x is None else np.broadcast_to(x, shape).transpose(0, 2, 3, 1) for x in (bias, keep, dropout)]
    o, dq = np.empty((*q.shape[:3], v.shape[3]), q.dtype), np.empty_like(q)
    dk, dv, dbias = np.zeros_like(k), np.zeros_like(v), np.zeros(shape, q.dtype)
    for start in range(0, q.shape[1], tile):
        at = slice(start, min(start + tile, q.shape[1]))
        s = np.einsum("bqhd,bkhd->bqkh", q[:, at] * scale, k)
        if bias is not None:
            s = s + wide[0][:, at]
        if keep is not None:
            s = s * wide[1][:, at]
        mean = np.square(s).mean(-1, keepdims=True)
        rho = (mean + one(1e-6)) ** one(-0.5)
        a = s * rho
        c = a if dropout is None else a * wide[2][:, at]
        c = put(c, store)
        z = (c[..., None, :] @ v[:, None])[..., 0, :]
        g = put(z * (z > 0), store)
        g_o = do[:, at]
        o[:, at] = np.einsum("bqkh,bqke->bqhe", c, g)
        dc = np.einsum("bqhe,bqke->bqkh", g_o, g)
        dz = np.einsum("bqkh,bqhe->bqke", c, g_o) * (z > 0)
        dc = dc + (v[:, None] @ dz[..., None])[..., 0]
        dv += np.einsum("bqkh,bqke->bkhe", c, dz)
        da = dc if dropout is None else dc * wide[2][:, at]
        if cube:
            drho = (da * s).sum(-1, keepdims=True)
            ds = da * rho - s * (drho * rho ** 3 / one(nh))
        else:
            ds = rho * (da - a * (a * da).mean(-1, keepdims=True))
        if keep is not None:
            ds = ds * wide[1][:, at]
        dbias[:, :, at] = ds.transpose(0, 3, 1, 2)
        dq[:, at] = np.einsum("bqkh,bkhd->bqhd", ds, k) * scale
        dk += np.einsum("bqkh,bqhd->bkhd", ds, q[:, at]) * scale
    return answers(o, dq, dk, dv, bias, dbias)


def table(q, k, v, wv2=None, *, do, bias=None, keep=None, dropout=None, steps=("rms",), uses=2, act=True,
          how="pairwise", named=False, store=None):
    """A row of table A1, in one order of sums: steps of the normaliser, uses of the code, relu or none."""
    q, k, v, do, bias, dropout = up(q, k, v, do, bias, dropout)
    wv2 = None if wv2 is None else up(wv2)[0]
    one, nh = q.dtype.type, q.shape[2]
    scale = one(1 / sqrt(q.shape[-1]))
    total = SUMS.get(how, serial)
    s = dot("bqhd,bkhd->bhqk", q * scale, k, how)
    s = s if bias is None else s + bias
    there = np.ones(s.shape, bool) if keep is None else np.broadcast_to(keep, s.shape)
    undo, a = [], s
    for step in steps or ("none",):
        if step == "softmax":
            low = np.where(there, a, -np.inf)
            top = low.max(-1, keepdims=True)
            e = np.exp(low - np.where(np.isinf(top), 0, top))
            full = total(e)[..., None]
            a = e / np.where(full == 0, 1, full)
            undo.append((step, a, None))
        else:
            a = np.where(there, a, 0)
            if step == "rms":
                rho = 1 / np.sqrt(total(np.moveaxis(a * a, 1, -1))[:, None] / one(nh) + one(1e-6))
                a = a * rho
                undo.append((step, a, rho))
            else:
                undo.append((step, a, None))
    r = one(1) if dropout is None else dropout
    c = put(a * r, store)

    def phi(x):
        return np.maximum(x, 0) if act else x

    def slope(x, dx):
        return np.where(x > 0, dx, 0) if act else dx

    dwv2 = None
    if uses == 1:
        o = dot("bhqk,bkhe->bqhe", c, phi(v), how)
        dc = dot("bqhe,bkhe->bhqk", do, phi(v), how)
        dv = slope(v, dot("bhqk,bqhe->bkhe", c, do, how))
    else:
        z = dot("bhqk,bkhe->bqke", c, v, how)
        g = put(phi(z), store)
        if uses == 3:
            mixed = np.einsum("bhqk,hef->bqkef", c, wv2)
            z2 = np.einsum("bqke,bqkef->bqkf", g, mixed)
            last = phi(z2)
        else:
            last = g
        o = dot("bhqk,bqke->bqhe", c, last, how)
        dc = dot("bqhe,bqke->bhqk", do, last, how)
        dlast = dot("bhqk,bqhe->bqke", c, do, how)
        if uses == 3:
            dz2 = slope(z2, dlast)
            dmixed = g[..., None] * dz2[..., None, :]
            dwv2 = np.einsum("bqkef,bhqk->hef", dmixed, c)
            dc = dc + np.einsum("bqkef,hef->bhqk", dmixed, wv2)
            dlast = np.einsum("bqkf,bqkef->bqke", dz2, mixed)
        dz = slope(z, dlast)
        dc = dc + dot("bqke,bkhe->bhqk", dz, v, how)
        dv = dot("bhqk,bqke->bkhe", c, dz, how)
    ds = dc * r
    for step, a, rho in reversed(undo):
        if step == "softmax":
            ds = a * (ds - total(a * ds)[..., None])
        elif step == "rms":
            ds = np.where(there, rho * (ds - a * (total(np.moveaxis(a * ds, 1, -1)) / one(nh))[:, None]), 0)
        else:
            ds = np.where(there, ds, 0)
    dq = dot("bhqk,bkhd->bqhd", ds, k, how) * scale
    dk = dot("bhqk,bqhd->bkhd", ds, q, how) * scale
    found = answers(o, dq, dk, dv, bias, ds, *(() if dwv2 is None else (dwv2,)))
    names = "o", "dq", "dk", "dv", *(() if bias is None else ("dbias",)), "dwv2"
    return dict(zip(names, found, strict=False)) if named else found


# ----------------------------------------------------------------------------------------------------- compositional

def comp_loops(q, k, v, selector, *score, do, bias=None, keep=None, dropout=None, scoring="dot", sums="weights"):
    """Loops over searches and retrievals; retrieval keys are made, and concatenated features where a map scores."""
    q, k, v, selector, do, bias, dropout = up(q, k, v, selector, do, bias, dropout)
    score = up(*score)
    one = q.dtype.type
    nb, nq, ns, d = q.shape
    nk, nr, e = v.shape[1:]
    width = selector.shape[-1]
    root = one(sqrt(d))
    shape = nb, ns, nq, nk
    wide = [None if x is None else np.broadcast_to(x, shape) for x in (bias, keep, dropout)]
    o, dq, dk, dv = np.zeros((nb, nq, ns, e), q.dtype), np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    dsel, dscore, ds_all = np.zeros_like(selector), [np.zeros_like(x) for x in score], np.zeros(shape, q.dtype)
    for n in range(ns):
        s = np.einsum("bqd,bkd->bqk", q[:, :, n], k[:, :, n]) / root
        s = s if bias is None else s + wide[0][:, n]
        s = s if keep is None else np.where(wide[1][:, n], s, -np.inf)
        top = s.max(-1, keepdims=True)
        a = np.exp(s - np.where(np.isinf(top), 0, top))
        total = a.sum(-1, keepdims=True)
        a = a / np.where(total == 0, 1, total)
        c = a if dropout is None else a * wide[2][:, n]
        t = [np.einsum("bqk,bke->bqe", c, v[:, :, r]) for r in range(nr)]
        mine, logits, hidden = selector[:, :, n], [], []
        for r in range(nr):
            if scoring == "dot":
                hidden.append(t[r] @ score[0])
                logits.append((mine * hidden[r]).sum(-1) / one(sqrt(width)))
            elif scoring == "linear":
                both = np.concatenate([mine, t[r]], -1)
                logits.append(both @ np.concatenate([score[1], score[0]]) + score[2][0])
            else:
                both = np.concatenate([mine, t[r]], -1)
                hidden.append(both @ np.concatenate([score[1], score[0]]) + score[2])
                logits.append(np.maximum(hidden[r], 0) @ score[3] + score[4][0])
        l = np.stack(logits, -1)
        g = np.exp(l - l.max(-1, keepdims=True))
        g /= g.sum(-1, keepdims=True)
        for r in range(nr):
            o[:, :, n] += g[..., r, None] * t[r]
        go = do[:, :, n]
        dg = np.stack([(go * t[r]).sum(-1) for r in range(nr)], -1)
        delta = (g * dg).sum(-1, keepdims=True) if sums == "weights" else (go * o[:, :, n]).sum(-1, keepdims=True)
        dl = g * (dg - delta)
        dc = np.zeros_like(c)
        for r in range(nr):
            dt = g[..., r, None] * go
            x = dl[..., r, None]
            if scoring == "dot":
                x = x / one(sqrt(width))
                dsel[:, :, n] += x * hidden[r]
                dscore[0] += np.einsum("bqe,bqc->ec", t[r], x * mine)
                dt = dt + (x * mine) @ score[0].T
            elif scoring == "linear":
                dsel[:, :, n] += x * score[1]
                dscore[0] += (x * t[r]).sum((0, 1))
                dscore[1] += (x * mine).sum((0, 1))
                dscore[2] += x.sum()
                dt = dt + x * score[0]
            else:
                y = np.where(hidden[r] > 0, x * score[3], 0)
                dsel[:, :, n] += y @ score[1].T
                dscore[0] += np.einsum("bqe,bqf->ef", t[r], y)
                dscore[1] += np.einsum("bqc,bqf->cf", mine, y)
                dscore[2] += y.sum((0, 1))
                dscore[3] += (x * np.maximum(hidden[r], 0)).sum((0, 1))
                dscore[4] += x.sum()
                dt = dt + y @ score[0].T
            dv[:, :, r] += np.einsum("bqk,bqe->bke", c, dt)
            dc += np.einsum("bqe,bke->bqk", dt, v[:, :, r])
        da = dc if dropout is None else dc * wide[2][:, n]
        ds = a * (da - (a * da).sum(-1, keepdims=True))
        ds_all[:, n] = ds
        dq[:, :, n] = np.einsum("bqk,bkd->bqd", ds, k[:, :, n]) / root
        dk[:, :, n] = np.einsum("bqk,bqd->bkd", ds, q[:, :, n]) / root
    return answers(o, dq, dk, dv, bias, ds_all, dsel, *dscore)


def comp_whole(q, k, v, selector, *score, do, bias=None, keep=None, dropout=None, scoring="dot", how="backwards",
               store=None, lse=False):
    """Everything as one contraction each, in one order of sums; the key map goes with the selector."""
    q, k, v, selector, do, bias, dropout = up(q, k, v, selector, do, bias, dropout)
    score = up(*score)
    one, total = q.dtype.type, SUMS.get(how, serial)
    scale, small = one(1 / sqrt(q.shape[-1])), one(1 / sqrt(selector.shape[-1]))
    s = dot("bqsd,bksd->bsqk", q * scale, k, how)
    s = s if bias is None else s + bias
    low = s if keep is None else np.where(keep, s, -np.inf)
    top = low.max(-1, keepdims=True)
    a = np.exp(low - np.where(np.isinf(top), 0, top))
    a = a / np.maximum(total(a)[..., None], np.finfo(a.dtype).tiny)
    rest = one(1) if dropout is None else dropout
    if lse:
        a = np.exp(low - (np.where(np.isinf(top), 0, top) + np.log(np.maximum(total(np.exp(low - np.where(
            np.isinf(top), 0, top)))[..., None], np.finfo(a.dtype).tiny))))
    c = put(a * rest, store)
    t = put(dot("bsqk,bkre->bqsre", c, v, how), store)
    if scoring == "dot":
        u = dot("bqsc,ec->bqse", selector, score[0], how) * small
        l = dot("bqse,bqsre->bqsr", u, t, how)
    elif scoring == "linear":
        l = dot("bqsre,e->bqsr", t, score[0], how) + dot("bqsc,c->bqs", selector, score[1], how)[..., None] + score[2]
    else:
        same = dot("bqsc,cf->bqsf", selector, score[1], how)[..., None, :]
        z = dot("bqsre,ef->bqsrf", t, score[0], how) + same + score[2]
        l = dot("bqsrf,f->bqsr", np.maximum(z, 0), score[3], how) + score[4]
    g = np.exp(l - l.max(-1, keepdims=True))
    g = np.exp(l - l.max(-1, keepdims=True) - np.log(total(g)[..., None])) if lse else g * (1 / total(g)[..., None])
    o = dot("bqsr,bqsre->bqse", g, t, how)
    dg = dot("bqse,bqsre->bqsr", do, t, how)
    dt = g[..., None] * do[..., None, :]
    dl = g * (dg - total(g * dg)[..., None])
    if scoring == "dot":
        du = dot("bqsr,bqsre->bqse", dl, t, how) * small
        dt = dt + dl[..., None] * u[..., None, :]
        dsel, more = dot("bqse,ec->bqsc", du, score[0], how), [dot("bqse,bqsc->ec", du, selector, how)]
    elif scoring == "linear":
        same = total(dl)
        dt = dt + dl[..., None] * score[0]
        dsel = same[..., None] * score[1]
        more = [dot("bqsr,bqsre->e", dl, t, how), dot("bqs,bqsc->c", same, selector, how), same.sum().reshape(1)]
    else:
        dz = np.where(z > 0, dl[..., None] * score[3], 0)
        same = dz.sum(-2)
        dt = dt + dot("bqsrf,ef->bqsre", dz, score[0], how)
        dsel = dot("bqsf,cf->bqsc", same, score[1], how)
        more = [dot("bqsre,bqsrf->ef", t, dz, how), dot("bqsc,bqsf->cf", selector, same, how), same.sum((0, 1, 2)),
                dot("bqsr,bqsrf->f", dl, np.maximum(z, 0), how), dl.sum().reshape(1)]
    dt = put(dt, store)
    dc = dot("bqsre,bkre->bsqk", dt, v, how)
    dv = dot("bsqk,bqsre->bkre", c, dt, how)
    da = dc * rest
    ds = a * (da - total(a * da)[..., None])
    dq = dot("bsqk,bksd->bqsd", ds, k, how) * scale
    dk = dot("bsqk,bqsd->bksd", ds, q, how) * scale
    return answers(o, dq, dk, dv, bias, ds, dsel, *more)


# --------------------------------------------------------------------------------------------------- sliding-dilated

def slide_gather(q, k, v, offset_bias, pad_k=None, pad_v=None, *, do, bias=None, keep=None, dropout=None, dilation=2,
                 store=None):
    """Keys by gathering, the pad standing in front of the first; gradients by scattering."""
    q, k, v, offset_bias, do, bias, dropout = up(q, k, v, offset_bias, do, bias, dropout)
    pads = pad_k is not None
    one, nw = q.dtype.type, offset_bias.shape[1]
    front = np.zeros((k.shape[0], 1, *k.shape[2:]), k.dtype) if not pads else np.broadcast_to(
        up(pad_k)[0], (k.shape[0], 1, *k.shape[2:]))
    front_v = np.zeros((v.shape[0], 1, *v.shape[2:]), v.dtype) if not pads else np.broadcast_to(
        up(pad_v)[0], (v.shape[0], 1, *v.shape[2:]))
    keys, values = np.concatenate([front, k], 1), np.concatenate([front_v, v], 1)
    place = np.arange(k.shape[1] - q.shape[1], k.shape[1])[:, None] - dilation * np.arange(nw) + 1
    outside = place < 1
    place = np.maximum(place, 0)
    scale = one(q.shape[-1] ** -0.5)
    kk, vv = keys[:, place], values[:, place]
    s = np.einsum("bqhd,bqwhd->bhqw", q, kk) * scale + offset_bias[:, None]
    s = s if bias is None else s + bias
    there = np.ones(s.shape, bool) if pads else np.broadcast_to(~outside, s.shape)
    there = there if keep is None else there & keep
    s = np.where(there, s, -np.inf)
    top = s.max(-1, keepdims=True)
    a = np.exp(s - np.where(np.isinf(top), 0, top))
    total = a.sum(-1, keepdims=True)
    a /= np.where(total, total, 1)
    c = put(a if dropout is None else a * dropout, store)
    o = np.einsum("bhqw,bqwhe->bqhe", c, vv)
    dc = np.einsum("bqhe,bqwhe->bhqw", do, vv)
    dvv = np.einsum("bhqw,bqhe->bqwhe", c, do)
    da = dc if dropout is None else dc * dropout
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    low = put(ds, store)
    dq = np.einsum("bhqw,bqwhd->bqhd", low, kk) * scale
    dkk = np.einsum("bhqw,bqhd->bqwhd", low, q) * scale
    dkeys, dvalues = np.zeros_like(keys), np.zeros_like(values)
    np.add.at(dkeys, (slice(None), place), dkk)
    np.add.at(dvalues, (slice(None), place), dvv)
    more = (dkeys[:, 0].sum(0), dvalues[:, 0].sum(0)) if pads else ()
    return answers(o, dq, dkeys[:, 1:], dvalues[:, 1:], bias, ds, ds.sum((0, 2)), *more)


def slide_dense(q, k, v, offset_bias, pad_k=None, pad_v=None, *, do, bias=None, keep=None, dropout=None, dilation=2,
                lse=False):
    """The whole matrix of scores of queries and keys, with as many pads in front as offsets reach."""
    q, k, v, offset_bias, do, bias, dropout = up(q, k, v, offset_bias, do, bias, dropout)
    one, (nb, nk, nh, d), nq, nw = q.dtype.type, k.shape, q.shape[1], offset_bias.shape[1]
    more, pads = (nw - 1) * dilation, pad_k is not None
    front = np.zeros((nh, d), k.dtype) if not pads else up(pad_k)[0]
    front_v = np.zeros((nh, v.shape[3]), v.dtype) if not pads else up(pad_v)[0]
    keys = np.concatenate([np.broadcast_to(front, (nb, more, nh, d)), k], 1)
    values = np.concatenate([np.broadcast_to(front_v, (nb, more, nh, v.shape[3])), v], 1)
    back = np.arange(nk - nq, nk)[:, None] + more - np.arange(nk + more)
    seen = (back >= 0) & (back % dilation == 0) & (back < nw * dilation)
    if not pads:
        seen = seen & (np.arange(nk + more) >= more)
    offset = np.where(seen, back // dilation, 0)
    scale = one(1 / sqrt(d))
    shape = nb, nh, nq, nw
    row = np.arange(nq)[:, None]

    def dense(x):
        return np.broadcast_to(x, shape)[:, :, row, offset]

    def offsets(x):
        found = np.zeros(shape, x.dtype)
        for w in range(nw):
            found[..., w] = (x * (seen & (offset == w))).sum(-1)
        return found

    s = np.einsum("bqhd,bkhd->bhqk", q, keys) * scale + dense(offset_bias[:, None])
    s = s if bias is None else s + dense(bias)
    there = np.broadcast_to(seen, s.shape)
    there = there if keep is None else there & dense(keep)
    s = np.where(there, s, -np.inf)
    top = s.max(-1, keepdims=True)
    a = np.exp(s - np.where(np.isinf(top), 0, top))
    total = a.sum(-1, keepdims=True)
    a = a / np.where(total > 0, total, 1)
    if lse:
        a = np.exp(s - np.where(total > 0, np.where(np.isinf(top), 0, top) + np.log(np.where(total > 0, total, 1)),
                                np.inf))
    c = a if dropout is None else a * dense(dropout)
    o = np.einsum("bhqk,bkhe->bqhe", c, values)
    da = np.einsum("bqhe,bkhe->bhqk", do, values)
    da = da if dropout is None else da * dense(dropout)
    dvalues = np.einsum("bhqk,bqhe->bkhe", c, do)
    ds = a * (da - (do * o).sum(-1).transpose(0, 2, 1)[..., None])
    dq = np.einsum("bhqk,bkhd->bqhd", ds, keys) * scale
    dkeys = np.einsum("bhqk,bqhd->bkhd", ds, q) * scale
    by_offset = offsets(ds)
    extra = (dkeys[:, :more].sum((0, 1)), dvalues[:, :more].sum((0, 1))) if pads else ()
    return answers(o, dq, dkeys[:, more:], dvalues[:, more:], bias, by_offset, by_offset.sum((0, 2)), *extra)


def slide_rolled(q, k, v, offset_bias, *, do, bias=None, keep=None, dropout=None, dilation=2):
    """Keys rolled by each offset; an online softmax over offsets, the farthest first; what is rolled is hidden."""
    q, k, v, offset_bias, do, bias, dropout = up(q, k, v, offset_bias, do, bias, dropout)
    one, nk, nq, nw = q.dtype.type, k.shape[1], q.shape[1], offset_bias.shape[1]
    shape = q.shape[0], q.shape[2], nq, nw
    wide = [None if x is None else np.broadcast_to(x, shape) for x in (bias, keep, dropout)]
    scale, place = one(q.shape[-1] ** -0.5), np.arange(nk - nq, nk)

    def rolled(x, w):
        return np.roll(x, w * dilation, 1)[:, nk - nq:]

    def score(w):
        s = (q * rolled(k, w)).sum(-1).transpose(0, 2, 1) * scale + offset_bias[:, w, None]
        s = s if bias is None else s + wide[0][..., w]
        there = np.broadcast_to(place >= w * dilation, s.shape)
        return np.where(there if keep is None else there & wide[1][..., w], s, -np.inf)

    top, total = np.full(shape[:3], -np.inf, q.dtype), np.zeros(shape[:3], q.dtype)
    o = np.zeros((*q.shape[:3], v.shape[3]), q.dtype)
    for w in reversed(range(nw)):
        s = score(w)
        new = np.maximum(top, s)
        calm = np.where(np.isinf(new), 0, new)
        shrink, e = np.exp(top - calm), np.exp(s - calm)
        total = total * shrink + e
        e = e if dropout is None else e * wide[2][..., w]
        o = o * shrink.transpose(0, 2, 1)[..., None] + e.transpose(0, 2, 1)[..., None] * rolled(v, w)
        top = new
    some = np.where(total == 0, 1, total)
    o = o / some.transpose(0, 2, 1)[..., None]
    calm = np.where(np.isinf(top), 0, top)
    delta = (o * do).sum(-1).transpose(0, 2, 1)
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
    ds_all = np.zeros(shape, q.dtype)
    for w in range(nw):
        a = np.exp(score(w) - calm) / some
        r = one(1) if dropout is None else wide[2][..., w]
        da = (do * rolled(v, w)).sum(-1).transpose(0, 2, 1) * r
        ds = a * (da - delta)
        ds_all[..., w] = ds
        last, weights = ds.transpose(0, 2, 1)[..., None], (a * r).transpose(0, 2, 1)[..., None]
        dq += last * rolled(k, w) * scale
        for gradient, part in (dk, last * q * scale), (dv, weights * do):
            whole = np.zeros_like(gradient)
            whole[:, nk - nq:] = part
            gradient += np.roll(whole, -w * dilation, 1)
    return answers(o, dq, dk, dv, bias, ds_all, ds_all.sum((0, 2)))


# -------------------------------------------------------------------------------------------------------- operations

def op_gelu(x, do, form="sigmoid"):
    """The tanh form as x sigmoid(2 u), or by tanh with its slope by the chain rule."""
    kind = x.dtype
    x, do = up(x, do)
    one = x.dtype.type
    root = one(sqrt(2 / pi))
    u = root * x * (1 + one(0.044715) * x * x)
    du = root * (1 + one(3 * 0.044715) * x * x)
    if form == "sigmoid":
        gate = 1 / (1 + np.exp(-2 * u))
        y = x * gate
        dx = do * (gate + 2 * x * gate * (1 - gate) * du)
    else:
        t = np.tanh(u)
        y = x / 2 * (1 + t)
        dx = do * ((1 + t) / 2 + x / 2 * (1 - t) * (1 + t) * du)
    return y.astype(kind), dx.astype(kind)


def op_gelu_exact(x, do):
    """By math.erf, entry by entry in float64."""
    cdf = np.vectorize(lambda z: (1 + erf(z / sqrt(2))) / 2)(x.astype(np.float64))
    pdf = np.exp(-x.astype(np.float64) ** 2 / 2) / sqrt(2 * pi)
    return (x * cdf).astype(x.dtype), (do * (cdf + x * pdf)).astype(x.dtype)


def op_gelu_stegun(x, do):
    """erf by Abramowitz and Stegun 7.1.26, whose error is 1.5e-7."""
    kind = x.dtype
    x, do = up(x, do)
    one = x.dtype.type
    z = np.abs(x) / one(sqrt(2))
    t = 1 / (1 + one(0.3275911) * z)
    fall = np.exp(-z * z)
    series = t * (one(0.254829592) + t * (one(-0.284496736) + t * (one(1.421413741) + t * (one(-1.453152027)
                                                                                       + t * one(1.061405429)))))
    cdf = np.where(x > 0, 1 - series * fall / 2, series * fall / 2)
    return (x * cdf).astype(kind), (do * (cdf + x * fall / one(sqrt(2 * pi)))).astype(kind)


def op_silu(x, do):
    """By tanh."""
    x, do = up(x, do)
    half = x.dtype.type(0.5)
    gate = half * (1 + np.tanh(half * x))
    y = x * gate
    return y, do * (gate + y * (1 - gate))


def op_relu(x, do):
    """As a mask."""
    on = x > 0
    return np.where(on, x, 0), do * on


def op_softmax(s, do, keep=None, axis=-1, how="pairwise", form="divide"):
    """By an inverse, a division, or the log of the softmax."""
    s, do = up(s, do)
    there = np.ones(s.shape, bool) if keep is None else np.broadcast_to(keep, s.shape)
    s, there, g = (np.moveaxis(x, axis, -1) for x in (s, there, do))
    low = np.where(there, s, -np.inf)
    top = low.max(-1, keepdims=True)
    e = np.exp(low - np.where(np.isinf(top), 0, top))
    total = SUMS[how](e)[..., None]
    some = np.where(total == 0, 1, total)
    if form == "log":
        a = np.exp((low - np.where(np.isinf(top), 0, top)) - np.log(some))
    else:
        a = e / some if form == "divide" else e * (1 / some)
    ds = a * (g - SUMS[how](a * g)[..., None])
    return np.moveaxis(a, -1, axis), np.moveaxis(ds, -1, axis)


def op_rms_head(s, do, form="rsqrt"):
    """The norm of a vector by hypot, or one root."""
    s, do = up(s, do)
    one, n = s.dtype.type, s.shape[1]
    if form == "hypot":
        norm = np.hypot(np.sqrt((s * s).sum(1, keepdims=True)), one(sqrt(n * 1e-6)))
        a = s * (one(sqrt(n)) / norm)
        ds = (do - s * ((s * do).sum(1, keepdims=True) / norm / norm)) * (one(sqrt(n)) / norm)
    else:
        rho = 1 / np.sqrt((s * s).sum(1, keepdims=True) / n + one(1e-6))
        a = s * rho
        ds = rho * do - rho * a * ((a * do).sum(1, keepdims=True) / n)
    return a, ds


def op_norm(x, scale, shift, do, way="welford", eps=1e-6, store=None):
    """LayerNorm by Welford's updates, in two passes, or in one pass in float64."""
    kind = x.dtype
    x, scale, shift, do = up(x, scale, shift, do)
    one, m = x.dtype.type, x.shape[-1]
    if way == "welford":
        mean, spread = np.zeros_like(x[..., :1]), np.zeros_like(x[..., :1])
        for i in range(m):
            step = x[..., i:i + 1] - mean
            mean = mean + step / (i + 1)
            spread = spread + step * (x[..., i:i + 1] - mean)
        var = spread / m
    elif way == "one pass":
        wide = x.astype(np.float64)
        mean = wide.mean(-1, keepdims=True)
        var = ((wide * wide).mean(-1, keepdims=True) - mean * mean).astype(x.dtype)
        mean = mean.astype(x.dtype)
    elif way == "one pass of its own":
        mean = x.mean(-1, keepdims=True)
        var = np.maximum((x * x).mean(-1, keepdims=True) - mean * mean, 0)
    else:
        mean = serial(x)[..., None] / m
        var = kahan((x - mean) ** 2)[..., None] / m
    r = (var + one(eps)) ** one(-0.5)
    n = put((x - mean) * r, store)
    y = n * scale + shift
    dn = do * scale
    dx = (m * dn - dn.sum(-1, keepdims=True) - n * (dn * n).sum(-1, keepdims=True)) * (r / m)
    ds = (do * n).reshape(-1, m).sum(0)
    db = do.reshape(-1, m).sum(0)
    return tuple(z.astype(kind) for z in (y, dx, ds, db))


def op_linear(x, w, do, b=None, how="kahan"):
    """Dot products in one order."""
    x, w, do = up(x, w, do)
    rows, flat, g = x.reshape(-1, x.shape[-1]), w.reshape(w.shape[0], -1), do.reshape(-1, prod(w.shape[1:]))
    y = dot("tm,mo->to", rows, flat, how)
    if b is not None:
        y = y + up(b)[0].reshape(-1)
    dx = dot("to,mo->tm", g, flat, how)
    dw = dot("tm,to->mo", rows, g, how)
    found = y.reshape(do.shape), dx.reshape(x.shape), dw.reshape(w.shape)
    return found if b is None else (*found, SUMS[how](g.T).reshape(b.shape))


def op_embedding(table, index, do):
    """Sorted indices and segment sums."""
    order = np.argsort(index.reshape(-1), kind="stable")
    rows, g = index.reshape(-1)[order], up(do)[0].reshape(-1, table.shape[1])[order]
    dtable = np.zeros(table.shape, g.dtype)
    first = np.flatnonzero(np.r_[True, rows[1:] != rows[:-1]])
    dtable[rows[first]] = np.add.reduceat(g, first, 0)
    return table[index], dtable


def op_scores(q, k, do, bias=None):
    """Scale behind the product; the gradient of the bias summed axis by axis."""
    q, k, do = up(q, k, do)
    root = q.dtype.type(sqrt(q.shape[-1]))
    s = np.einsum("bqhd,bkhd->bhqk", q, k) / root
    if bias is not None:
        s = s + bias
    dq = np.einsum("bhqk,bkhd->bqhd", do, k) / root
    dk = np.einsum("bhqk,bqhd->bkhd", do, q) / root
    return (s, dq, dk) if bias is None else (s, dq, dk, fit(do, bias.shape))


def op_masked(do, s=None, keep=None, a=None, dropout=None):
    """Zeros by choice; a dropout by its own mask and one factor."""
    x = s if a is None else a
    if keep is not None:
        return np.where(keep, x, 0), np.where(keep, do, 0)
    if dropout is None:
        return x, do
    return np.where(dropout > 0, x * dropout, 0), np.where(dropout > 0, do * dropout, 0)


# ------------------------------------------------------------------------------------------------------------ losses

def loss_ce(logits, target, do, weight=None, form="log_softmax", store=None):
    """By the log of the softmax, or the vocabulary in parts with a running log of the sum."""
    kind = logits.dtype
    x, = up(logits)
    w = np.ones(target.shape, x.dtype) if weight is None else weight.astype(x.dtype)
    if form == "parts":
        lse = np.full(target.shape, -np.inf, x.dtype)
        for i in range(0, x.shape[-1], 2):
            lse = np.logaddexp(lse, np.logaddexp.reduce(x[..., i:i + 2], -1))
        logp = x - lse[..., None]
    elif form == "no maximum":
        logp = x - np.log(np.exp(x).sum(-1, keepdims=True))
    else:
        top = x.max(-1, keepdims=True)
        logp = x - top - np.log(np.exp(x - top).sum(-1, keepdims=True))
    terms = -np.take_along_axis(logp, target[..., None], -1)[..., 0]
    total = w.sum()
    loss = (terms * w).sum() / total
    p = put(np.exp(logp), store)
    g = p.copy()
    np.put_along_axis(g, target[..., None], np.take_along_axis(p, target[..., None], -1) - 1, -1)
    return loss.astype(kind), (g * (w / total)[..., None] * do).astype(kind)


def loss_bce(logits, target, do, weight=None):
    """By softplus, that is logaddexp(0, x)."""
    x, t, do = up(logits, target, do)
    w = np.ones(x.shape, x.dtype) if weight is None else up(weight)[0]
    share = w / w.sum()
    loss = ((np.logaddexp(x.dtype.type(0), x) - t * x) * share).sum()
    p = x.dtype.type(0.5) * (1 + np.tanh(x / 2))
    return loss, do * (p - t) * share


def loss_bce_logs(logits, target, do, weight=None):
    """By logs of both probabilities, as it stands in textbooks."""
    x, t, do = up(logits, target, do)
    w = np.ones(x.shape, x.dtype) if weight is None else up(weight)[0]
    p = 1 / (1 + np.exp(-x))
    loss = -((t * np.log(p) + (1 - t) * np.log(1 - p)) * w).sum() / w.sum()
    return loss, do * (p * (1 - t) - t * (1 - p)) * w / w.sum()


def loss_sigmoid_mse(logits, target, do, weight=None):
    """Means of rows, then a weighted mean of these."""
    x, t, do = up(logits, target, do)
    w = np.ones(x.shape[:-1], x.dtype) if weight is None else up(weight)[0]
    p = 1 / (1 + np.exp(-x))
    rows = np.square(p - t).mean(-1)
    loss = (rows * w).sum() / w.sum()
    g = 2 * (p - t) * p * (1 - p) / x.shape[-1]
    return loss, do * g * (w / w.sum())[..., None]


def loss_mse(y, target, do):
    """A mean of means."""
    y, target, do = up(y, target, do)
    error = y - target
    return np.square(error).mean(-1).mean(-1).mean(-1), do * 2 * error / error.size


def loss_mae(y, target, do):
    """By where."""
    y, target, do = up(y, target, do)
    error = y - target
    return np.abs(error).mean(), do / error.size * np.where(error > 0, 1, np.where(error < 0, -1, 0)).astype(y.dtype)


# ------------------------------------------------------------------------------------------------------------ layers

def ff(x, w1, b1, w2, b2, do, dropout=None, act="gelu", how="lanes", store=None):
    """Two maps, their sums in one order."""
    x, w1, b1, w2, b2, do = up(x, w1, b1, w2, b2, do)
    shape, one = x.shape, x.dtype.type
    x, g = x.reshape(-1, shape[-1]), do.reshape(-1, do.shape[-1])
    hidden = put(dot("tm,mf->tf", x, w1, how) + b1, store)
    if act == "gelu":
        u = one(sqrt(2 / pi)) * (hidden + one(0.044715) * hidden ** 3)
        gate = 1 / (1 + np.exp(-2 * u))
        active = hidden * gate
        slope = gate + 2 * hidden * gate * (1 - gate) * one(sqrt(2 / pi)) * (1 + one(3 * 0.044715) * hidden ** 2)
    else:
        active = hidden * (hidden > 0)
        slope = (hidden > 0).astype(x.dtype)
    r = one(1) if dropout is None else dropout.reshape(-1, dropout.shape[-1])
    used = put(active * r, store)
    y = dot("tf,fm->tm", used, w2, how) + b2
    dw2 = dot("tf,tm->fm", used, g, how)
    db2 = SUMS[how](g.T)
    dhidden = dot("tm,fm->tf", g, w2, how) * r * slope
    dhidden = put(dhidden, store)
    dw1 = dot("tm,tf->mf", x, dhidden, how)
    db1 = SUMS[how](dhidden.T)
    dx = dot("tf,mf->tm", dhidden, w1, how)
    return y.reshape(do.shape), dx.reshape(shape), dw1, db1, dw2, db2


def swiglu(x, wg, wu, wd, do, store=None):
    """Gate and up in one product of joined maps."""
    x, wg, wu, wd, do = up(x, wg, wu, wd, do)
    f = wg.shape[1]
    both = np.concatenate([wg, wu], 1)
    pre = put(x @ both, store)
    gate, rise = pre[..., :f], pre[..., f:]
    sig = np.where(gate > 0, 1 / (1 + np.exp(-np.abs(gate))), np.exp(-np.abs(gate)) / (1 + np.exp(-np.abs(gate))))
    act = gate * sig
    hidden = put(act * rise, store)
    y = hidden @ wd
    dhidden = do @ wd.T
    dwd = np.einsum("btf,btm->fm", hidden, do)
    dgate = dhidden * rise * (sig + act * (1 - sig))
    drise = dhidden * act
    dpre = put(np.concatenate([dgate, drise], -1), store)
    dboth = np.einsum("btm,btf->mf", x, dpre)
    dx = dpre @ both.T
    return y, dx, dboth[:, :f], dboth[:, f:], dwd


def experts(x, wg, w1, b1, w2, b2, do, chosen=2, act="gelu", store=None):
    """Tokens gathered for each expert, its answers scattered back; the gate's softmax over the chosen alone."""
    x, wg, w1, b1, w2, b2, do = up(x, wg, w1, b1, w2, b2, do)
    shape, one = x.shape, x.dtype.type
    x, go = x.reshape(-1, shape[-1]), do.reshape(-1, shape[-1])
    logits = x @ wg
    best = np.argsort(-logits, -1, kind="stable")[:, :chosen]
    top = np.take_along_axis(logits, best, -1)
    e = np.exp(top - top[:, :1])
    weights = e / e.sum(-1, keepdims=True)
    y, dx, dweights = np.zeros_like(x), np.zeros_like(x), np.zeros_like(weights)
    dw1, db1, dw2, db2, dwg = (np.zeros_like(w) for w in (w1, b1, w2, b2, wg))
    for i in range(wg.shape[1]):
        row, slot = np.nonzero(best == i)
        if not len(row):
            continue
        mine, g, w = x[row], go[row], weights[row, slot][:, None]
        h = put(mine @ w1[:, i] + b1[i], store)
        if act == "gelu":
            t = np.tanh(one(sqrt(2 / pi)) * (h + one(0.044715) * h ** 3))
            a = h * (1 + t) / 2
            slope = (1 + t) / 2 + h / 2 * (1 - t * t) * one(sqrt(2 / pi)) * (1 + one(3 * 0.044715) * h * h)
        elif act == "erf":
            a, slope = op_gelu_exact(h, np.ones_like(h))
        else:
            a, slope = np.maximum(h, 0), (h > 0).astype(h.dtype)
        out = put(a @ w2[i] + b2[i], store)
        np.add.at(y, row, w * out)
        dweights[row, slot] = (g * out).sum(-1)
        gw = g * w
        dw2[i] = a.T @ gw
        db2[i] = gw.sum(0)
        dh = gw @ w2[i].T * slope
        dw1[:, i] = mine.T @ dh
        db1[i] = dh.sum(0)
        np.add.at(dx, row, dh @ w1[:, i].T)
    dtop = weights * (dweights - (weights * dweights).sum(-1, keepdims=True))
    dlogits = np.zeros_like(logits)
    np.put_along_axis(dlogits, best, dtop, -1)
    dwg = x.T @ dlogits
    dx += dlogits @ wg.T
    return y.reshape(shape), dx.reshape(shape), dwg, dw1, db1, dw2, db2


def conv(x, k, b, do, stride=1, padding=0, way="taps"):
    """Tap by tap of the window, or rows of windows and their image again; no FFT."""
    x, k, b, do = up(x, k, b, do)
    size, (rows, cols) = k.shape[0], do.shape[1:3]
    wide = np.pad(x, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    dwide, dk, y = np.zeros_like(wide), np.zeros_like(k), np.zeros_like(do)
    if way == "taps":
        for u in range(size):
            for w in range(size):
                at = np.s_[:, u:u + stride * rows:stride, w:w + stride * cols:stride]
                y += wide[at] @ k[u, w]
                dk[u, w] = np.einsum("bgji,bgjo->io", wide[at], do)
                dwide[at] += do @ k[u, w].T
    else:
        flat = k.reshape(-1, k.shape[3])
        for g in range(rows):
            for j in range(cols):
                at = np.s_[:, g * stride:g * stride + size, j * stride:j * stride + size]
                window = wide[at].reshape(len(x), -1)
                y[:, g, j] = window @ flat
                dk += (window.T @ do[:, g, j]).reshape(k.shape)
                dwide[at] += (do[:, g, j] @ flat.T).reshape(len(x), size, size, -1)
    y += b
    inner = np.s_[:, padding:padding + x.shape[1], padding:padding + x.shape[2]]
    return y, dwide[inner], dk, do.sum((0, 1, 2))


def winograd(x, k, b, do):
    """F(2 x 2, 3 x 3): sixteen products for four pixels; the gradient of x likewise, with the kernel turned around."""
    x, k, b, do = up(x, k, b, do)
    one = x.dtype.type
    to = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], x.dtype)
    of = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], x.dtype)
    back = np.array([[1, 1, 1, 0], [0, 1, -1, -1]], x.dtype)

    def convolved(x, k):
        rows, cols = x.shape[1:3]
        wide = np.pad(x, ((0, 0), (1, 1 + rows % 2), (1, 1 + cols % 2), (0, 0)))
        y = np.zeros((len(x), rows + rows % 2, cols + cols % 2, k.shape[3]), x.dtype)
        kernel = np.einsum("pu,uwio,rw->prio", of, k, of)
        for g in range(0, rows, 2):
            for j in range(0, cols, 2):
                tile = np.einsum("pu,buwi,rw->bpri", to, wide[:, g:g + 4, j:j + 4], to)
                y[:, g:g + 2, j:j + 2] = np.einsum("gp,bpro,jr->bgjo", back,
                                                   np.einsum("bpri,prio->bpro", tile, kernel), back)
        return y[:, :rows, :cols]

    wide = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    dk = np.zeros_like(k)
    for u in range(3):
        for w in range(3):
            dk[u, w] = np.einsum("bgji,bgjo->io", wide[:, u:u + x.shape[1], w:w + x.shape[2]], do) * one(1)
    return convolved(x, k) + b, convolved(do, k[::-1, ::-1].swapaxes(2, 3)), dk, do.sum((0, 1, 2))


def context_norm(x, scale, shift, do, segments=1, way="var"):
    """Over positions: by np.var with ddof 1, or Welford."""
    kind = x.dtype
    x, scale, shift, do = up(x, scale, shift, do)
    b, t, m = x.shape
    n = t // segments
    parts, g = x.reshape(b, segments, n, m), do.reshape(b, segments, n, m)
    if way == "var":
        mean = np.mean(parts, 2, keepdims=True)
        var = np.var(parts, 2, ddof=1, keepdims=True)
    elif way == "one pass":
        mean = np.mean(parts, 2, keepdims=True)
        var = ((parts * parts).sum(2, keepdims=True) - n * mean * mean) / (n - 1)
    else:
        mean, spread = np.zeros_like(parts[:, :, :1]), np.zeros_like(parts[:, :, :1])
        for i in range(n):
            step = parts[:, :, i:i + 1] - mean
            mean = mean + step / (i + 1)
            spread = spread + step * (parts[:, :, i:i + 1] - mean)
        var = spread / (n - 1)
    r = 1 / np.sqrt(var + x.dtype.type(1e-8))
    z = (parts - mean) * r
    y = z * scale + shift
    dz = g * scale
    dvar = (dz * (parts - mean)).sum(2, keepdims=True) * r ** 3 * -0.5
    dx = dz * r - (dz * r).mean(2, keepdims=True) + 2 * dvar * (parts - mean) / (n - 1)
    found = y.reshape(x.shape), dx.reshape(x.shape), (g * z).sum((0, 1, 2)), g.sum((0, 1, 2))
    return tuple(f.astype(kind) for f in found)


def layer(x, wq, wk, wv, wo, do, context=None, bq=None, bk=None, bv=None, bo=None, bias=None, keep=None, dropout=None,
          kind="softmax", read=None, slopes=None, store=None, how=None, lse=False):
    """A whole attention layer: one joined map where queries and keys have one source, head by head inside."""
    x, wq, wk, wv, wo, do, context, bias, dropout = up(x, wq, wk, wv, wo, do, context, bias, dropout)
    one, nh, d, e = x.dtype.type, wq.shape[1], wq.shape[2], wv.shape[2]
    source = x if context is None else context
    rows = x if read is None else x[:, read]
    zero = one(0)
    q = np.einsum("btm,mhd->bthd", rows, wq) + (zero if bq is None else bq)
    k = np.einsum("btm,mhd->bthd", source, wk) + (zero if bk is None else bk)
    v = np.einsum("btm,mhe->bthe", source, wv) + (zero if bv is None else bv)
    q, k, v = (put(z, store) for z in (q, k, v))
    scale = one(d ** -0.5)
    shape = x.shape[0], nh, x.shape[1], source.shape[1]

    def wide(z):
        z = np.broadcast_to(z, shape)
        return z if read is None else z[:, :, read]

    s = np.einsum("bqhd,bkhd->bhqk", q * scale, k)
    if bias is not None:
        s = s + wide(bias)
    if slopes is not None:
        far = np.abs(np.arange(shape[2])[:, None] - np.arange(shape[3]))
        s = s - wide(np.asarray(slopes, x.dtype)[:, None, None] * far.astype(x.dtype))
    if kind == "softmax":
        s = s if keep is None else np.where(wide(keep), s, -np.inf)
        top = s.max(-1, keepdims=True)
        a = np.exp(s - np.where(np.isinf(top), 0, top))
        total = a.sum(-1, keepdims=True)
        a = a / np.where(total == 0, 1, total)
        if lse:
            a = np.exp(s - np.where(total == 0, np.inf,
                                    np.where(np.isinf(top), 0, top) + np.log(np.where(total == 0, 1, total))))
    else:
        a = s if keep is None else s * wide(keep)
        if kind == "hyla":
            rho = 1 / np.sqrt((a * a).mean(1, keepdims=True) + one(1e-6))
            a = a * rho
    r = one(1) if dropout is None else wide(dropout)
    c = put(a * r, store)
    if kind == "hyla":
        z = np.einsum("bhqk,bkhe->bqke", c, v)
        g = np.maximum(z, 0)
        o = np.einsum("bhqk,bqke->bqhe", c, g)
    else:
        o = np.einsum("bhqk,bkhe->bqhe", c, v)
    o = put(o, store)
    flat = wo.reshape(nh * e, -1)
    y = o.reshape(*o.shape[:2], -1) @ flat
    if bo is not None:
        y = y + bo
    dwo = np.einsum("bqhe,bqm->hem", o, do)
    go = (do @ flat.T).reshape(o.shape)
    if kind == "hyla":
        dc = np.einsum("bqhe,bqke->bhqk", go, g)
        dz = np.einsum("bhqk,bqhe->bqke", c, go) * (z > 0)
        dc = dc + np.einsum("bqke,bkhe->bhqk", dz, v)
        dv = np.einsum("bhqk,bqke->bkhe", c, dz)
    else:
        dc = np.einsum("bqhe,bkhe->bhqk", go, v)
        dv = np.einsum("bhqk,bqhe->bkhe", c, go)
    ds = dc * r
    if kind == "softmax":
        ds = a * (ds - (a * ds).sum(-1, keepdims=True))
    else:
        if kind == "hyla":
            ds = rho * (ds - a * (a * ds).mean(1, keepdims=True))
        ds = ds if keep is None else ds * wide(keep)
    dq = np.einsum("bhqk,bkhd->bqhd", ds, k) * scale
    dk = np.einsum("bhqk,bqhd->bkhd", ds, q) * scale
    dq, dk, dv = (put(z, store) for z in (dq, dk, dv))
    found = {"o": y, "dwo": dwo}
    mine = np.einsum("bqhd,mhd->bqm", dq, wq)
    theirs = np.einsum("bkhd,mhd->bkm", dk, wk) + np.einsum("bkhe,mhe->bkm", dv, wv)
    if context is not None:
        found["dcontext"], found["dx"] = theirs, mine
    elif read is None:
        found["dx"] = mine + theirs
    else:
        found["dx"] = theirs.copy()
        found["dx"][:, read] += mine
    for name, g, at in ("q", dq, rows), ("k", dk, source), ("v", dv, source):
        found[f"dw{name}"] = np.einsum("btm,bthd->mhd", at, g)
        if bq is not None:
            flat = g.reshape(-1, *g.shape[2:])
            found[f"db{name}"] = g.sum((0, 1)) if how is None else SUMS[how](np.moveaxis(flat, 0, -1))
    if bo is not None:
        found["dbo"] = do.sum((0, 1))
    if bias is not None:
        whole = np.zeros(shape, x.dtype)
        whole[:, :, slice(None) if read is None else read] = ds
        found["dbias"] = fit(whole, bias.shape)
    return found


def layer_compositional(x, wq, wk, wv, ws, wr, wo, do, bq=None, bk=None, bv=None, bs=None, br=None, bo=None, bias=None,
                        keep=None, dropout=None):
    """A whole layer of dot scoring whose retrieval keys have their bias."""
    x, wq, wk, wv, ws, wr, wo, do = up(x, wq, wk, wv, ws, wr, wo, do)
    one = x.dtype.type
    q, k, v, sel = (np.tensordot(x, w, 1) + (one(0) if b is None else b)
                    for w, b in ((wq, bq), (wk, bk), (wv, bv), (ws, bs)))
    small = one(sel.shape[-1] ** -0.5)
    s = np.einsum("bqsd,bksd->bsqk", q, k) * one(q.shape[-1] ** -0.5)
    s = s if bias is None else s + bias
    s = s if keep is None else np.where(keep, s, -np.inf)
    top = s.max(-1, keepdims=True)
    a = np.exp(s - np.where(np.isinf(top), 0, top))
    total = a.sum(-1, keepdims=True)
    a = a / np.where(total == 0, 1, total)
    r = one(1) if dropout is None else dropout
    t = np.einsum("bsqk,bkre->bqsre", a * r, v)
    keys = t @ wr + (one(0) if br is None else br)
    l = np.einsum("bqsc,bqsrc->bqsr", sel, keys) * small
    g = np.exp(l - l.max(-1, keepdims=True))
    g = g / g.sum(-1, keepdims=True)
    o = np.einsum("bqsr,bqsre->bqse", g, t)
    y = np.einsum("bqse,sem->bqm", o, wo) + (one(0) if bo is None else bo)
    go = np.einsum("bqm,sem->bqse", do, wo)
    dg = np.einsum("bqse,bqsre->bqsr", go, t)
    dl = g * (dg - (g * dg).sum(-1, keepdims=True))
    dkeys = dl[..., None] * sel[..., None, :] * small
    dt = g[..., None] * go[..., None, :] + dkeys @ wr.T
    dsel = np.einsum("bqsr,bqsrc->bqsc", dl, keys) * small
    dc = np.einsum("bqsre,bkre->bsqk", dt, v)
    dv = np.einsum("bsqk,bqsre->bkre", a * r, dt)
    da = dc * r
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dq = np.einsum("bsqk,bksd->bqsd", ds, k) * one(q.shape[-1] ** -0.5)
    dk = np.einsum("bsqk,bqsd->bksd", ds, q) * one(q.shape[-1] ** -0.5)
    found = {"o": y, "dwo": np.einsum("bqse,bqm->sem", o, do), "dwr": np.einsum("bqsre,bqsrc->ec", t, dkeys)}
    found["dx"] = sum(np.einsum("btse,mse->btm", gz, w) for gz, w in ((dq, wq), (dk, wk), (dv, wv), (dsel, ws)))
    for name, gz in ("q", dq), ("k", dk), ("v", dv), ("s", dsel):
        found[f"dw{name}"] = np.einsum("btm,btse->mse", x, gz)
        if bq is not None:
            found[f"db{name}"] = gz.sum((0, 1))
    if bq is not None:
        found |= {"dbo": do.sum((0, 1)), "dbr": dkeys.sum((0, 1, 2, 3))}
    return found if bias is None else found | {"dbias": fit(ds, bias.shape)}


def generated(code, x, wv, wo, do, relu=False):
    """The value network as its generated weights would have it, without making them."""
    code, x, wv, wo, do = up(code, x, wv, wo, do)
    v = np.einsum("bki,ihe->bkhe", x, wv)
    g_o = np.einsum("bqm,hem->bqhe", do, wo)
    if relu:
        z = np.einsum("bhqk,bkhe->bqke", code, v)
        on = z > 0
        h = z * on
        o = np.einsum("bhqk,bqke->bqhe", code, h)
        dcode = np.einsum("bqhe,bqke->bhqk", g_o, h)
        dz = np.einsum("bhqk,bqhe->bqke", code, g_o) * on
        dcode = dcode + np.einsum("bqke,bkhe->bhqk", dz, v)
        dv = np.einsum("bhqk,bqke->bkhe", code, dz)
    else:
        o = np.einsum("bhqk,bkhe->bqhe", code, v)
        dcode = np.einsum("bqhe,bkhe->bhqk", g_o, v)
        dv = np.einsum("bhqk,bqhe->bkhe", code, g_o)
    y = np.einsum("bqhe,hem->bqm", o, wo)
    dwo = np.einsum("bqhe,bqm->hem", o, do)
    dwv = np.einsum("bki,bkhe->ihe", x, dv)
    dx = np.einsum("bkhe,ihe->bki", dv, wv)
    return y, dcode, dx, dwv, dwo


def scan(a, u, do):
    """h_t = h_{t-1} A_t + u_t, one step after the other."""
    a, u, do = up(a, u, do)
    h, states = np.zeros_like(u[:, 0]), []
    for t in range(u.shape[1]):
        states.append(h)
        h = np.einsum("bn,bnm->bm", h, a[:, t]) + u[:, t]
        states[-1] = (states[-1], h)
    da, du, g = np.zeros_like(a), np.zeros_like(u), np.zeros_like(h)
    for t in reversed(range(u.shape[1])):
        g = g + do[:, t]
        du[:, t] = g
        da[:, t] = states[t][0][:, :, None] * g[:, None, :]
        g = np.einsum("bnm,bm->bn", a[:, t], g)
    return np.stack([h for _, h in states], 1), da, du


def next_token(h, table, target, do):
    """The loss of each token, the vocabulary in two parts, logits never kept."""
    h, table, do = up(h, table, do)
    half = len(table) // 2
    parts = [h @ table[:half].T, h @ table[half:].T]
    top = np.maximum(parts[0].max(-1), parts[1].max(-1))
    total = sum(np.exp(p - top[..., None]).sum(-1) for p in parts)
    own = (h * table[target]).sum(-1)
    loss = np.log(total) - (own - top)
    dh, dtable = -do[..., None] * table[target], np.zeros_like(table)
    np.add.at(dtable, target, -do[..., None] * h)
    for at, p in zip((slice(None, half), slice(half, None)), parts, strict=True):
        g = np.exp(p - top[..., None]) / total[..., None] * do[..., None]
        dh = dh + g @ table[at]
        dtable[at] += np.einsum("btv,btm->vm", g, h)
    return loss, dh, dtable




def learned(x, table, do, start=2):
    """Rows of a table added; one product with ones sums over the batch."""
    x, table, do = up(x, table, do)
    n = x.shape[1]
    dtable = np.zeros_like(table)
    dtable[start:start + n] = np.tensordot(np.ones(len(x), x.dtype), do, (0, 0))
    return x + table[start:start + n], do.copy(), dtable


def spread_buckets(table, do, both=False, buckets=8, far=16):
    """T5's table as a product with one-hot buckets."""
    table, do = up(table, do)
    n = np.arange(do.shape[1])[:, None] - np.arange(do.shape[2])
    side = np.zeros_like(n)
    half = buckets
    if both:
        half = buckets // 2
        side, n = np.where(n < 0, half, 0), np.abs(n)
    n = np.maximum(n, 0)
    exact = half // 2
    large = exact + (np.log(np.maximum(n, exact) / exact + 1.19e-7) / np.log(far / exact) * (half - exact)).astype(int)
    bucket = side + np.where(n < exact, n, np.minimum(large, half - 1))
    hot = (bucket[..., None] == np.arange(table.shape[1])).astype(table.dtype)
    return np.einsum("qkw,hw->hqk", hot, table), np.einsum("qkw,hqk->hw", hot, do)
