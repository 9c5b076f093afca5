"""A blind bank of attention kernels, right ones and ones with a single mistake.  PyTorch, and JAX for about a fifth.

Written from the papers, the fact sheets and the README's signatures only; no code or test of refattn was read, and no
mistake was chosen or changed after asking `check.diagnose`.

The table is `ROWS`, a list of `Row`:

    name      unique; also a module-level function
    variant   what to pass as `variant`: softmax, hyla, compositional, compositional_linear, compositional_nonlinear,
              sliding_dilated, sliding_dilated_pad, linear
    kernel    theirs(q, k, v, *more, do=do[, bias=, keep=, dropout=]) -> (o, dq, dk, dv[, dbias], *dmore), the results
              being arrays of PyTorch or JAX.  It takes every subset of bias, keep, dropout of any broadcasting shape,
              unless `needs` says otherwise.
    options   keywords of `check.compare` / `check.diagnose` with which the mistake shows: layout, bias, keep, dropout,
              causal, sizes.  The layout (and causal) belong to the kernel; the rest may be varied where it still shows.
    side      "" (right), "forward" or "backward": where the mistake is
    where     its true place in words of the paper's equations
    what      the mistake in one sentence
    wrong     the results that it changes (o, dq, dk, dv, dbias, dmore...) at these options
    gradients how they are made: "autograd" (of the forward as it stands, so a forward mistake shows in the gradients
              too), "handwritten" (for the right forward unless the mistake is in the backward), "tiled" (handwritten,
              recomputing from what the forward saved, so that a forward mistake goes on into the gradients)
    backend   "torch" or "jax"
    dtypes    all rows: float64, float32, bfloat16, by casting the arguments: a kernel computes in the precision of the
              arrays that it gets (float32 for bfloat16, as fused kernels do); `row.cast("bfloat16")` is the kernel with
              its results rounded to bfloat16, `row.cast("float32")` is the kernel itself.
    right     True for kernels without a mistake: one for each variant, and others by different algorithms

Sliding-dilated kernels have `check.compare`'s dilation, 2, built in.  Tiled kernels have tiles of 4 keys.
"""

from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import torch

jax.config.update("jax_enable_x64", True)      # float64 arguments stay float64; float32 ones stay float32
torch.set_num_threads(1)

TILE = 4
DILATION = 2
EPSILON = 1e-6


# ------------------------------------------------------------------------------------------------------- plumbing

def _torch(x):
    return None if x is None else torch.from_numpy(np.array(x, copy=True, order="C"))


def _jnp(x):
    return None if x is None else jnp.asarray(np.asarray(x))


def _unbroadcast(x, shape):
    """The sum of x over all axes along which `shape` was stretched."""
    x = x.sum(tuple(range(x.ndim - len(shape)))) if x.ndim > len(shape) else x
    axes = tuple(i for i, n in enumerate(shape) if n == 1 and x.shape[i] != 1)
    return x.sum(axes, keepdim=True) if axes else x


class Autograd:
    """A kernel from a forward in PyTorch, its gradients by autograd."""

    def __init__(self, forward, **settings):
        self.forward = partial(forward, **settings)

    def __call__(self, q, k, v, *more, do, bias=None, keep=None, dropout=None):
        leaves = [_torch(x).requires_grad_() for x in (q, k, v) + ((bias,) if bias is not None else ()) + more]
        q, k, v, *rest = leaves
        b = rest.pop(0) if bias is not None else None
        o = self.forward(q, k, v, *rest, bias=b, keep=_torch(keep), dropout=_torch(dropout))
        grads = torch.autograd.grad(o, leaves, _torch(do), allow_unused=True)
        return (o.detach(), *(torch.zeros_like(x) if g is None else g for x, g in zip(leaves, grads, strict=False)))


class Manual:
    """A kernel from a function of tensors that computes o and all gradients itself."""

    def __init__(self, function, **settings):
        self.function = partial(function, **settings)

    def __call__(self, q, k, v, *more, do, bias=None, keep=None, dropout=None):
        out = self.function(*map(_torch, (q, k, v) + more), do=_torch(do), bias=_torch(bias), keep=_torch(keep),
                            dropout=_torch(dropout))
        return tuple(x for x in out if x is not None)


class Vjp:
    """A kernel from a forward in JAX, compiled, its gradients by jax.vjp."""

    def __init__(self, forward, **settings):
        def run(inputs, fixed, do):
            def of(inputs):
                q, k, v, bias, *more = inputs
                return forward(q, k, v, *more, bias=bias, **fixed, **settings)
            o, back = jax.vjp(of, inputs)
            return o, back(do)[0]
        self.run = jax.jit(run)

    def __call__(self, q, k, v, *more, do, bias=None, keep=None, dropout=None):
        inputs = [_jnp(x) for x in (q, k, v, bias) + more]
        o, grads = self.run(inputs, dict(keep=_jnp(keep), dropout=_jnp(dropout)), _jnp(do))
        return (o, *(g for g in grads if g is not None))


class JaxManual:
    """A kernel from a JAX function that computes o and all gradients itself, compiled."""

    def __init__(self, function, **settings):
        self.function = jax.jit(partial(function, **settings))

    def __call__(self, q, k, v, *more, do, bias=None, keep=None, dropout=None):
        out = self.function(*map(_jnp, (q, k, v) + more), do=_jnp(do), bias=_jnp(bias), keep=_jnp(keep),
                            dropout=_jnp(dropout))
        return tuple(x for x in out if x is not None)


# -------------------------------------------------------------------------------------------------------- softmax

def _masked_softmax(s, keep, dim=-1, detach_sum=False):
    """Softmax in which a row that keeps nothing is zero."""
    if keep is not None:
        s = s.masked_fill(~keep, -torch.inf)
    m = s.detach().amax(dim, keepdim=True).clamp(min=torch.finfo(s.dtype).min)
    e = (s - m).exp()
    l = e.sum(dim, keepdim=True)
    return e / torch.where(l > 0, l, torch.ones_like(l))


def softmax_torch(q, k, v, *, bias, keep, dropout, bug=""):
    """Layout bhtd."""
    scale = (v if bug == "width of v" else q).shape[-1] ** -0.5
    s = q @ k.mT
    if bug == "bias before scale":
        s = (s if bias is None else s + bias) * scale
    else:
        s = s * scale if bias is None else s * scale + bias
    if bug == "finite fill":
        p = (s if keep is None else s.masked_fill(~keep, -1e9)).softmax(-1)
    elif bug == "mask after":
        p = s.softmax(-1)
        p = p if keep is None else p * keep
    elif bug == "dropout in sum":
        e = (s - s.detach().amax(-1, keepdim=True)).exp()
        e = e if keep is None else e * keep
        e = e if dropout is None else e * dropout
        l = e.sum(-1, keepdim=True)
        return e / torch.where(l > 0, l, torch.ones_like(l)) @ v
    else:
        p = _masked_softmax(s, keep)
    return (p if dropout is None else p * dropout) @ v


def softmax_by_hand(q, k, v, *, do, bias, keep, dropout, bug=""):
    """Layout bhtd.  c = p dropout, o = c v; dc = do vT, dp = dc dropout, ds = p (dp - sum p dp)."""
    scale = q.shape[-1] ** -0.5
    s = q @ k.mT * scale
    s = s if bias is None else s + bias
    p = _masked_softmax(s, keep)
    c = p if dropout is None else p * dropout
    o = c @ v

    dv = (p if bug == "dv without dropout" else c).mT @ do
    dc = do @ v.mT
    dp = dc if dropout is None or bug == "dp without dropout" else dc * dropout
    inner = (dp if bug == "sum of dp" else p * dp).sum(-2 if bug == "sum over queries" else -1, keepdim=True)
    ds = p * (dp - inner)
    dq = ds @ k * scale
    dk = ds.mT @ (q if bug == "dk unscaled" else q * scale)
    dbias = None
    if bias is not None:
        dbias = _unbroadcast(ds, bias.shape)
        if bug == "dbias mean over batch":
            dbias = dbias / ds.shape[0]
    return o, dq, dk, dv, dbias


def softmax_tiles(q, k, v, *, do, bias, keep, dropout, causal=False, bug=""):
    """Layout bhtd.  Online softmax forward over tiles of keys, backward recomputing p from the log-sum-exp."""
    *_, Q, D = q.shape
    K, scale = k.shape[2], q.shape[-1] ** -0.5
    full = (*q.shape[:3], K)
    if causal:
        rows, columns = torch.arange(Q)[:, None], torch.arange(K)
        last = rows + (K - Q)
        seen = columns <= (rows if bug == "causal from the top left" else last)
        seen = columns < last if bug == "causal without itself" else seen
        keep = seen if keep is None else keep & seen
    bias_, keep_, dropout_ = (None if x is None else x.expand(full) for x in (bias, keep, dropout))
    ends = range(0, K // TILE * TILE if bug == "tail lost" else K, TILE)

    def scores(at, with_bias=True):
        s = q @ k[:, :, at].mT * scale
        s = s + bias_[..., at] if bias is not None and with_bias else s
        return s if keep is None else s.masked_fill(~keep_[..., at], -torch.inf)

    m = torch.full((*q.shape[:3], 1), -torch.inf, dtype=q.dtype)
    l = torch.zeros_like(m)
    o = torch.zeros_like(do)
    for start in ends:
        at = slice(start, min(start + TILE, K))
        s = scores(at)
        new = torch.maximum(m, s.amax(-1, keepdim=True))
        safe = torch.where(torch.isinf(new), torch.zeros_like(new), new)
        p, shrink = (s - safe).exp(), (m - safe).exp()
        l = l * shrink + p.sum(-1, keepdim=True)
        o = (o if bug == "accumulator not rescaled" else o * shrink) + (
            p if dropout is None else p * dropout_[..., at]) @ v[:, :, at]
        m = new
    o = o / torch.where(l > 0, l, torch.ones_like(l))
    lse = m + l.log()
    if bug == "base 2":
        lse = lse / np.log(2)
    lse = torch.where(l > 0, lse, torch.full_like(lse, torch.inf))

    delta = (do * o).sum(-1, keepdim=True)
    dq, dk, dv, ds_all = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v), q.new_zeros(full)
    for start in ends:
        at = slice(start, min(start + TILE, K))
        p = (scores(at, bug != "recomputed without bias") - lse).exp()
        c = p if dropout is None else p * dropout_[..., at]
        dv[:, :, at] = c.mT @ do
        dc = do @ v[:, :, at].mT
        ds = p * ((dc if dropout is None else dc * dropout_[..., at]) - delta)
        if bug == "dq of the last tile only":
            dq = ds @ k[:, :, at] * scale
        else:
            dq = dq + ds @ k[:, :, at] * scale
        dk[:, :, at] = ds.mT @ q * scale
        ds_all[..., at] = ds
    return o, dq, dk, dv, None if bias is None else _unbroadcast(ds_all, bias.shape)


def softmax_jax(q, k, v, *, bias, keep, dropout, bug=""):
    """Layout bthd.  p = exp(s - maximum) / sum.  One mistake pads the keys to whole tiles."""
    if bug == "padded keys":
        more = -k.shape[1] % TILE
        k, v = (jnp.pad(x, ((0, 0), (0, more), (0, 0), (0, 0))) for x in (k, v))
        def grow(x, fill):
            return x if x is None or x.shape[-1] == 1 else jnp.pad(
                    x, ((0, 0),) * (x.ndim - 1) + ((0, more),), constant_values=fill)
        bias, keep, dropout = grow(bias, 0), grow(keep, True), grow(dropout, 1)
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    s = s if bias is None else s + bias
    keep = jnp.ones((), bool) if keep is None else keep
    low = jnp.finfo(s.dtype).min
    m = jax.lax.stop_gradient(jnp.max(jnp.where(keep, s, low), -2 if bug == "maximum over queries" else -1, keepdims=True))
    if bug == "maximum over queries":                               # the sum is shifted by the row's own maximum
        row = jax.lax.stop_gradient(jnp.max(jnp.where(keep, s, low), -1, keepdims=True))
    else:
        row = m
    e = jnp.where(keep, jnp.exp(jnp.where(keep, s - m, 0)), 0)
    l = jnp.where(keep, jnp.exp(jnp.where(keep, s - row, 0)), 0).sum(-1, keepdims=True)
    l = jax.lax.stop_gradient(l) if bug == "sum detached" else l
    p = e / jnp.where(l > 0, l, 1)
    p = p if dropout is None else p * dropout
    return jnp.einsum("bhqk,bkhe->bqhe", p, v)


# ----------------------------------------------------------------------------------------------------------- hyla

def hyla_torch(q, k, v, *, bias, keep, dropout, bug=""):
    """Layout bhtd.  s = q.k/sqrt(d) + bias, a = s / rms over heads, o_h = sum_k c_h relu(sum_j c_j v_j), c = a dropout."""
    if bug == "heads of v":                                         # (h e) read as (e h)
        B, H, K, E = v.shape
        v = v.transpose(1, 2).reshape(B, K, E, H).permute(0, 3, 1, 2)
    s = q @ k.mT
    if bug == "bias before scale":
        s = (s if bias is None else s + bias) / q.shape[-1] ** 0.5
    elif bug == "no scale":
        s = s if bias is None else s + bias
    elif bug == "bias after norm":
        s = s / q.shape[-1] ** 0.5
    else:
        s = s / q.shape[-1] ** 0.5
        s = s if bias is None else s + bias
    H = s.shape[1]
    kept = torch.ones((), dtype=torch.bool) if keep is None else keep
    if bug != "mask after norm":
        s = s * kept
    if bug == "sum over heads":
        a = s * (s.square().sum(1, keepdim=True) + EPSILON).rsqrt()
    elif bug == "epsilon outside":
        square = s.square().mean(1, keepdim=True)
        a = s / (torch.where(square > 0, square, torch.ones_like(square)).sqrt() + EPSILON)
    elif bug == "rms over keys":
        a = s * (s.square().mean(-1, keepdim=True) + EPSILON).rsqrt()
    elif bug == "mean over kept heads":
        n = kept.expand(s.shape).sum(1, keepdim=True).clamp(min=1)
        a = s * (s.square().sum(1, keepdim=True) / n + EPSILON).rsqrt()
    else:
        a = s * (s.square().mean(1, keepdim=True) + EPSILON).rsqrt()
    if bug == "bias after norm":
        a = a if bias is None else a + bias
    if bug in ("mask after norm", "bias after norm"):
        a = a * kept
    c = a if dropout is None else a * dropout
    if bug == "relu of values":
        z = torch.einsum("bhqk,bhke->bqke", c, v.relu())
    elif bug == "relu per head":
        z = (c[..., None] * v[:, :, None]).relu().sum(1)
    else:
        z = torch.einsum("bhqk,bhke->bqke", c, v).relu()
    return torch.einsum("bhqk,bqke->bhqe", a if bug == "second use without dropout" else c, z)


def hyla_by_hand(q, k, v, *, do, bias, keep, dropout, bug=""):
    """Layout bhtd."""
    scale = q.shape[-1] ** -0.5
    s = q @ k.mT * scale
    s = s if bias is None else s + bias
    s = s if keep is None else torch.where(keep, s, torch.zeros_like(s))
    square = s.square().mean(1, keepdim=True)
    rho = (square + EPSILON).rsqrt()
    a = s * rho
    c = a if dropout is None else a * dropout
    z = torch.einsum("bhqk,bhke->bqke", c, v)
    g = z.relu()
    o = torch.einsum("bhqk,bqke->bhqe", c, z if bug == "o without relu" else g)

    dg = torch.einsum("bhqk,bhqe->bqke", c, do)
    dc = torch.einsum("bhqe,bqke->bhqk", do, g)
    if bug == "dz not gated":
        dz = dg
    elif bug == "dz gated by dg":
        dz = dg * (dg > 0)
    else:
        dz = dg * (z > 0)
    second = torch.einsum("bqke,bhke->bhqk", dz, v)
    dc = second if bug == "first use only" else dc + second
    dv = torch.einsum("bhqk,bqke->bhke", a if bug == "dv without dropout" else c, dg if bug == "dv from dg" else dz)
    da = dc if dropout is None or bug == "da without dropout" else dc * dropout
    if bug == "rho without epsilon":
        rho = torch.where(square > 0, square, torch.full_like(square, EPSILON)).rsqrt()
    inner = a * da
    inner = inner.sum(1, keepdim=True) if bug == "sum over heads" else inner.mean(1, keepdim=True)
    if bug == "rms detached":
        ds = rho * da
    elif bug == "s for a":
        ds = rho * (da - s * inner)
    else:
        ds = rho * (da - a * inner)
    if keep is not None and bug != "ds not masked":
        ds = torch.where(keep, ds, torch.zeros_like(ds))
    dbias = None
    if bias is not None:
        dbias = _unbroadcast(ds, bias.shape)
        dbias = dbias * scale if bug == "dbias scaled" else dbias
    dq = ds @ k * scale
    dk = ds.mT @ q * scale
    if bug == "dk of the next head":
        dk = dk.roll(1, 1)
    return o, dq, dk, dv, dbias


def hyla_tiles(q, k, v, *, do, bias, keep, dropout, bug=""):
    """Layout bhtd.  Tiles of keys; nothing is saved, the backward computes each tile again."""
    K, scale = k.shape[2], q.shape[-1] ** -0.5
    full = (*q.shape[:3], K)
    bias_, keep_, dropout_ = (None if x is None else x.expand(full) for x in (bias, keep, dropout))

    def tile(at):
        s = q @ k[:, :, at].mT * scale
        s = s if bias is None else s + bias_[..., at]
        s = s if keep is None else s * keep_[..., at]
        rho = 1 / (s.square().mean(1, keepdim=True) + EPSILON).sqrt()
        c = s * rho if dropout is None else s * rho * dropout_[..., at]
        return rho, s * rho, c, torch.einsum("bhqk,bhke->bqke", c, v[:, :, at])

    tiles = [slice(start, min(start + TILE, K)) for start in range(0, K, TILE)]
    o = torch.zeros_like(do)
    for at in tiles:
        *_, c, z = tile(at)
        part = torch.einsum("bhqk,bqke->bhqe", c, z.clamp(min=0))
        o = o + part

    dq, dk, dv, ds_all = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v), q.new_zeros(full)
    first = None
    for at in tiles:
        rho, a, c, z = tile(at)
        first = rho if first is None else first
        dz = torch.where(z > 0, torch.einsum("bhqk,bhqe->bqke", c, do), 0)
        da = torch.einsum("bhqe,bqke->bhqk", do, z.clamp(min=0)) + torch.einsum("bqke,bhke->bhqk", dz, v[:, :, at])
        da = da if dropout is None else da * dropout_[..., at]
        used = first[..., :rho.shape[-1]] if bug == "rho of the first tile" else rho
        ds = used * (da - a * (a * da).mean(1, keepdim=True))
        ds = ds if keep is None else ds * keep_[..., at]
        ds_all[..., at] = ds
        dq += ds @ k[:, :, at] * scale
        dk[:, :, at] = ds.mT @ q * scale
        dv[:, :, at] = torch.einsum("bhqk,bqke->bhke", c, dz)
    return o, dq, dk, dv, None if bias is None else _unbroadcast(ds_all, bias.shape)


def hyla_loops(q, k, v, *, bias, keep, dropout):
    """Layout bthd.  Heads and keys in loops, with the generated value network of every pair written out."""
    B, Q, H, D = q.shape
    K = k.shape[1]
    full = (B, H, Q, K)
    bias, keep, dropout = (None if x is None else x.expand(full) for x in (bias, keep, dropout))
    o = [0] * H
    for key in range(K):
        s = []
        for h in range(H):
            one = (q[:, :, h] * k[:, key, None, h]).sum(-1) / D ** 0.5
            one = one if bias is None else one + bias[:, h, :, key]
            s.append(one if keep is None else one * keep[:, h, :, key])
        root = (sum(x * x for x in s) / H + EPSILON).sqrt()
        a = [x / root if dropout is None else x / root * dropout[:, h, :, key] for h, x in enumerate(s)]
        g = sum(a[h][..., None] * v[:, key, None, h] for h in range(H)).relu()
        for h in range(H):
            o[h] = o[h] + a[h][..., None] * g
    return torch.stack(o, 2)


def hyla_jax(q, k, v, *, bias, keep, dropout, bug=""):
    """Layout bthd."""
    s = jnp.einsum("bqhd,bkhd->bqkh", q, k) / q.shape[-1] ** 0.5
    def move(x):
        return jnp.moveaxis(jnp.broadcast_to(x, (q.shape[0], q.shape[2], q.shape[1], k.shape[1])), 1, -1)
    s = s if bias is None else s + move(bias)
    s = s if keep is None else jnp.where(move(keep), s, 0)
    mean = jnp.mean(s * s, -1, keepdims=True)
    if bug == "variance":
        mean = jnp.var(s, -1, keepdims=True)
    a = s * jax.lax.rsqrt(mean + EPSILON)
    a = a if dropout is None else a * move(dropout)
    z = jnp.einsum("bqkh,bkhe->bqke", a, v)
    z = jax.nn.gelu(z) if bug == "gelu" else jax.nn.relu(z)
    return jnp.einsum("bqkh,bqke->bqhe", a, jax.lax.stop_gradient(z) if bug == "value network detached" else z)


# -------------------------------------------------------------------------------------------------- compositional

def compositional_torch(q, k, v, selector, key_map, *, bias, keep, dropout, bug=""):
    """Layout bhtd, of the selector too.  Search, retrieve all S x R, select by dot products."""
    s = q @ k.mT
    if bug == "bias before scale":
        s = (s if bias is None else s + bias) / q.shape[-1] ** 0.5
    else:
        s = s / q.shape[-1] ** 0.5
        s = s if bias is None else s + bias
    p = _masked_softmax(s, keep)
    c = p if dropout is None else p * dropout
    retrieved = torch.einsum("bsqk,brke->bqsre", c, v)
    judged = torch.einsum("bsqk,brke->bqsre", p, v) if bug == "selected without dropout" else retrieved
    keys = judged @ key_map
    width = {"width of search": q, "width of v": v}.get(bug, selector).shape[-1]
    logits = torch.einsum("bsqc,bqsrc->bqsr", selector, keys) / width ** 0.5
    g = logits.softmax(2 if bug == "softmax over searches" else 3)
    if bug == "selected once for all searches":
        g = logits.mean(2, keepdim=True).softmax(3).expand(logits.shape)
    return torch.einsum("bqsr,bqsre->bsqe", g, retrieved)


def compositional_by_hand(q, k, v, selector, key_map, *, do, bias, keep, dropout, bug=""):
    """Layout bhtd, of the selector too."""
    scale, thin = q.shape[-1] ** -0.5, selector.shape[-1] ** -0.5
    s = q @ k.mT * scale
    s = s if bias is None else s + bias
    p = _masked_softmax(s, keep)
    c = p if dropout is None else p * dropout
    y = torch.einsum("bsqk,brke->bqsre", c, v)                      # retrievals
    x = y @ key_map                                                 # their keys
    g = (torch.einsum("bsqc,bqsrc->bqsr", selector, x) * thin).softmax(-1)
    o = torch.einsum("bqsr,bqsre->bsqe", g, y)
    if bug == "o not weighted":                                     # forward only
        o = y.mean(3).transpose(1, 2)

    dg = torch.einsum("bsqe,bqsre->bqsr", do, y)
    dl = g * dg if bug == "softmax of g without its sum" else g * (dg - (g * dg).sum(-1, keepdim=True))
    dx = torch.einsum("bqsr,bsqc->bqsrc", dl, selector) * thin
    dselector = torch.einsum("bqsr,bqsrc->bsqc", dl, x) * thin
    dmap = torch.einsum("bqsre,bqsrc->ec", y, dx)
    if bug == "dmap unscaled":
        dmap = dmap / thin
    dy = torch.einsum("bqsr,bsqe->bqsre", g, do)
    if bug != "dy by the answer only":
        dy = dy + dx @ key_map.mT
    if bug == "dv of the last search":
        dv = torch.zeros_like(v)
        for search in range(c.shape[1]):
            dv = torch.einsum("bqk,bqre->brke", c[:, search], dy[:, :, search])
    else:
        dv = torch.einsum("bsqk,bqsre->brke", c, dy)
    dc = torch.einsum("bqsre,brke->bsqk", dy, v)
    if bug == "dc mean over retrievals":
        dc = dc / v.shape[1]
    dp = dc if dropout is None else dc * dropout
    ds = p * (dp - (p * dp).sum(-1, keepdim=True))
    return (o, ds @ k * scale, ds.mT @ q * scale, dv, None if bias is None else _unbroadcast(ds, bias.shape), dselector,
            dmap)


def compositional_jax(q, k, v, selector, *score, bias, keep, dropout, scoring="dot", bug=""):
    """Layout bthd."""
    s = jnp.einsum("bqsd,bksd->bsqk", q, k) / q.shape[-1] ** 0.5
    s = s if bias is None else s + bias
    keep = jnp.ones(s.shape, bool) if keep is None else jnp.broadcast_to(keep, s.shape)
    s = jnp.where(keep.any(-1, keepdims=True), jnp.where(keep, s, -jnp.inf), 0)
    p = jnp.where(keep, jax.nn.softmax(s, -1), 0)
    p = p if dropout is None else p * dropout
    y = jnp.einsum("bsqk,bkre->bqsre", p, v)
    if scoring == "dot":
        logits = jnp.einsum("bqsc,bqsre,ec->bqsr", selector, y, score[0]) / selector.shape[-1] ** 0.5
    elif scoring == "linear":
        w_e, w_c, b = score
        logits = y @ w_e + (selector @ w_c)[..., None] + b
    else:
        w_e, w_c, b, w, last = score
        if bug == "selector left out":
            hidden = y @ w_e + b
        else:
            hidden = y @ w_e + (selector @ w_c)[..., None, :] + b
        logits = jax.nn.relu(hidden) @ w + last
    return jnp.einsum("bqsr,bqsre->bqse", jax.nn.softmax(logits, -1), y)


def compositional_loops(q, k, v, selector, key_map, *, bias, keep, dropout):
    """Layout bthd.  One search and one retrieval at a time, the selection by an online softmax over retrievals."""
    B, Q, S, D = q.shape
    K, R = k.shape[1], v.shape[2]
    full = (B, S, Q, K)
    bias, keep, dropout = (None if x is None else x.expand(full) for x in (bias, keep, dropout))
    out = []
    for search in range(S):
        s = q[:, :, search] @ k[:, :, search].mT / D ** 0.5
        s = s if bias is None else s + bias[:, search]
        p = _masked_softmax(s, None if keep is None else keep[:, search])
        p = p if dropout is None else p * dropout[:, search]
        asked = selector[:, :, search] @ key_map.mT / selector.shape[-1] ** 0.5        # b q e
        m = l = acc = None
        for r in range(R):
            y = p @ v[:, :, r]
            logit = (asked * y).sum(-1, keepdim=True)
            new = logit.detach() if m is None else torch.maximum(m, logit.detach())
            e = (logit - new).exp()
            if m is None:
                l, acc = e, e * y
            else:
                shrink = (m - new).exp()
                l, acc = l * shrink + e, acc * shrink + e * y
            m = new
        out.append(acc / l)
    return torch.stack(out, 2)


# ------------------------------------------------------------------------------------------------ sliding, dilated

def sliding_torch(q, k, v, offset_bias, pad_k=None, pad_v=None, *, bias, keep, dropout, bug=""):
    """Layout bhtd.  Gathers keys n = position - w dilation; the queries stand at the last positions."""
    B, H, Q, D = q.shape
    K, W = k.shape[2], offset_bias.shape[1]
    position = torch.arange(Q) if bug == "queries at the first positions" else torch.arange(K - Q, K)
    offset = torch.arange(W)
    if bug == "window begins at the neighbour":
        offset = offset + 1
    n = position[:, None] - offset * DILATION
    inside = n >= 0
    if bug == "position 0 taken for outside":
        inside = n > 0
    kn, vn = k[:, :, n.clamp(min=0)], v[:, :, n.clamp(min=0)]       # b h q w d
    if pad_k is not None:
        kn = torch.where(inside[..., None], kn, pad_k[:, None, None])
        vn = torch.where(inside[..., None], vn, pad_v[:, None, None])
    r = offset_bias.flip(1) if bug == "r in the other order" else offset_bias
    s = torch.einsum("bhqd,bhqwd->bhqw", q, kn)
    if bug == "r scaled too":
        s = (s + r[:, None]) / D ** 0.5
    else:
        s = s / D ** 0.5 + r[:, None]
    s = s if bias is None else s + bias
    kept = torch.ones_like(s, dtype=torch.bool) if keep is None else keep.expand(s.shape)
    if pad_k is None and bug != "outside clamped to key 0":
        kept = kept & inside
    p = _masked_softmax(s, kept)
    if bug == "outside scores zero":                                # left in the sum, with score 0
        s = torch.where(inside, s, 0)
        p = _masked_softmax(s, keep) * inside
    p = p if dropout is None else p * dropout
    return torch.einsum("bhqw,bhqwe->bhqe", p, vn)


def sliding_by_hand(q, k, v, offset_bias, pad_k=None, pad_v=None, *, do, bias, keep, dropout, bug=""):
    """Layout bhtd.  One offset after the other, each a shift of the keys by w dilation; scatters are slice-adds."""
    B, H, Q, D = q.shape
    K, W, scale = k.shape[2], offset_bias.shape[1], q.shape[-1] ** -0.5
    first = K - Q                                                   # position of the first query

    def spans(w):                                                   # queries with a key at offset w, and these keys
        lost = min(max(w * DILATION - first, 0), Q)                 # queries whose key would come before the first
        begin = first + lost - w * DILATION
        return lost, slice(lost, Q), slice(begin, begin + Q - lost)

    s = q.new_full((B, H, Q, W), -torch.inf)
    for w in range(W):
        lost, at, keys = spans(w)
        s[:, :, at, w] = (q[:, :, at] * k[:, :, keys]).sum(-1) * scale + offset_bias[:, w, None]
        if pad_k is not None:
            s[:, :, :lost, w] = (q[:, :, :lost] * pad_k[:, None]).sum(-1) * scale + offset_bias[:, w, None]
    s = s if bias is None else s + bias
    p = _masked_softmax(s, keep)
    c = p if dropout is None else p * dropout
    o = torch.zeros_like(do)
    dc = torch.zeros_like(s)
    dv, dk, dq = torch.zeros_like(v), torch.zeros_like(k), torch.zeros_like(q)
    dpad_k, dpad_v = (None, None) if pad_k is None else (torch.zeros_like(pad_k), torch.zeros_like(pad_v))
    for w in range(W):
        lost, at, keys = spans(w)
        o[:, :, at] += c[:, :, at, w, None] * v[:, :, keys]
        dc[:, :, at, w] = (do[:, :, at] * v[:, :, keys]).sum(-1)
        if bug == "dv overwritten where offsets meet":
            dv[:, :, keys] = c[:, :, at, w, None] * do[:, :, at]
        else:
            dv[:, :, keys] += c[:, :, at, w, None] * do[:, :, at]
        if pad_k is not None:
            o[:, :, :lost] += c[:, :, :lost, w, None] * pad_v[:, None]
            dc[:, :, :lost, w] = (do[:, :, :lost] * pad_v[:, None]).sum(-1)
            dpad_v += (c[:, :, :lost, w, None] * do[:, :, :lost]).sum((0, 2))
    dp = dc if dropout is None else dc * dropout
    ds = p * (dp - (p * dp).sum(-1, keepdim=True))
    for w in range(W):
        lost, at, keys = spans(w)
        part = ds[:, :, at, w, None] * scale
        dq[:, :, at] += part * k[:, :, keys]
        if bug == "dk scattered without dilation" and K > 1:
            to = [max(i - w, 0) for i in range(first + lost, K)]
            dk.index_add_(2, torch.tensor(to, dtype=torch.long), part * q[:, :, at])
        else:
            dk[:, :, keys] += part * q[:, :, at]
        if pad_k is not None:
            part = ds[:, :, :lost, w, None] * scale
            if bug != "dq without pads":
                dq[:, :, :lost] += part * pad_k[:, None]
            if bug == "pad's gradient into key 0":
                dk[:, :, 0] += (part * q[:, :, :lost]).sum(2)
            else:
                dpad_k += (part * q[:, :, :lost]).sum((0, 2))
    dr = (ds.mean(0).sum(1) if bug == "dr mean over batch" else ds.sum((0, 2)))
    return o, dq, dk, dv, None if bias is None else _unbroadcast(ds, bias.shape), dr, dpad_k, dpad_v


def sliding_dense(q, k, v, offset_bias, pad_k=None, pad_v=None, *, bias, keep, dropout):
    """Layout bthd.  Equation (1) as it stands, a T x T score matrix with -inf off the offsets; pads are keys in front."""
    B, Q, H, D = q.shape
    W = offset_bias.shape[1]
    front = 0
    if pad_k is not None:
        front = (W - 1) * DILATION
        k = torch.cat([pad_k.expand(B, front, *pad_k.shape), k], 1)
        v = torch.cat([pad_v.expand(B, front, *pad_v.shape), v], 1)
    K = k.shape[1]
    distance = torch.arange(K - Q, K)[:, None] - torch.arange(K)
    is_offset = distance[..., None] == torch.arange(W) * DILATION             # q k w
    one_hot = is_offset.to(q.dtype)
    def spread(x):
        return torch.einsum("bhqw,qkw->bhqk", x.expand(B, H, Q, W), one_hot)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / D ** 0.5 + torch.einsum("hw,qkw->hqk", offset_bias, one_hot)
    s = s if bias is None else s + spread(bias)
    kept = is_offset.any(-1)
    kept = kept if keep is None else kept & (spread(keep.to(q.dtype)) > 0)
    p = _masked_softmax(s, kept.expand(s.shape))
    p = p if dropout is None else p * spread(dropout)
    return torch.einsum("bhqk,bkhe->bqhe", p, v)


def sliding_jax(q, k, v, offset_bias, pad_k=None, pad_v=None, *, bias, keep, dropout, bug=""):
    """Layout bthd.  Keys and values with room in front, one slice an offset."""
    B, Q, H, D = q.shape
    K, W = k.shape[1], offset_bias.shape[1]
    room = (W - 1) * DILATION
    def front(x, pad):
        return jnp.concatenate(
            [jnp.broadcast_to(jnp.zeros(x.shape[2:], x.dtype) if pad is None else pad, (B, room, *x.shape[2:])), x], 1)
    k, v = front(k, jax.lax.stop_gradient(pad_k) if bug == "pad_k detached" else pad_k), front(v, pad_v)
    begin = [room + K - Q - w * DILATION for w in range(W)]
    s = jnp.stack([jnp.einsum("bqhd,bqhd->bhq", q, k[:, i:i + Q]) for i in begin], -1) / D ** 0.5
    s = s + offset_bias[:, None]
    s = s if bias is None else s + bias
    kept = jnp.ones(s.shape, bool) if keep is None else jnp.broadcast_to(keep, s.shape)
    if pad_k is None:
        kept = kept & (jnp.arange(K - Q, K)[:, None] >= jnp.arange(W) * DILATION)
    s = jnp.where(kept.any(-1, keepdims=True), jnp.where(kept, s, -jnp.inf), 0)
    p = jnp.where(kept, jax.nn.softmax(s, -1), 0)
    p = p if dropout is None else p * dropout
    return sum(jnp.moveaxis(p[..., w], 1, 2)[..., None] * v[:, i:i + Q] for w, i in enumerate(begin))


# --------------------------------------------------------------------------------------------------------- linear

def linear_torch(q, k, v, *, bias, keep, dropout, bug=""):
    """Layout bhtd.  o = (q.k/sqrt(d) + bias) v, no normaliser."""
    s = q @ k.mT / q.shape[-1] ** 0.5
    if bug == "mask before bias":
        s = s if keep is None else s * keep
        s = s if bias is None else s + bias
    else:
        s = s if bias is None else s + bias
        s = s if keep is None else s * keep
    if bug == "divided by the number of keys":
        s = s / k.shape[2]
    if bug == "divided by the sum":
        s = s / (s.sum(-1, keepdim=True) + EPSILON)
    return (s if dropout is None else s * dropout) @ v


def linear_by_hand(q, k, v, *, do, bias, keep, dropout, bug=""):
    """Layout bhtd."""
    scale = q.shape[-1] ** -0.5
    s = q @ k.mT * scale
    s = s if bias is None else s + bias
    a = s if keep is None else torch.where(keep, s, torch.zeros_like(s))
    c = a if dropout is None else a * dropout
    dc = do @ v.mT
    ds = dc if dropout is None else dc * dropout
    dbias = None if bias is None else _unbroadcast(ds if keep is None or bug == "dbias not masked" else ds * keep,
                                                   bias.shape)
    ds = ds if keep is None else ds * keep
    return c @ v, ds @ k * scale, ds.mT @ q * scale, c.mT @ do, dbias


def linear_scan(q, k, v, *, do, bias, keep, dropout, bug=""):
    """Layout bthd, without bias, keep, dropout, causal.  jax.lax.scan over chunks of 2 keys and queries with a state k vT;
    the backward scans the other way with the state's gradient.  Queries are the last positions of the keys."""
    assert bias is None and keep is None and dropout is None
    B, Q, H, D = q.shape
    K, E, scale, n = k.shape[1], v.shape[-1], q.shape[-1] ** -0.5, 2
    def front(x, to):
        return jnp.pad(x, ((0, 0), (to - x.shape[1], 0), (0, 0), (0, 0)))
    length = -(-K // n) * n
    def chunks(x):
        return jnp.moveaxis(front(x, length).reshape(B, length // n, n, *x.shape[2:]), 1, 0)
    qs, ks, vs, dos = chunks(q * scale), chunks(k), chunks(v), chunks(do)
    seen = jnp.tril(jnp.ones((n, n), q.dtype))

    def ahead(state, at):
        q, k, v = at
        a = jnp.einsum("bqhd,bkhd->bhqk", q, k) * seen
        o = jnp.einsum("bqhd,bhde->bqhe", q, state) + jnp.einsum("bhqk,bkhe->bqhe", a, v)
        return state + jnp.einsum("bkhd,bkhe->bhde", k, v), (o, state)

    _, (o, states) = jax.lax.scan(ahead, jnp.zeros((B, H, D, E), q.dtype), (qs, ks, vs))

    def back(dstate, at):
        q, k, v, do, state = at
        a = jnp.einsum("bqhd,bkhd->bhqk", q, k) * seen
        da = jnp.einsum("bqhe,bkhe->bhqk", do, v) * seen
        dq = jnp.einsum("bqhe,bhde->bqhd", do, state) + jnp.einsum("bhqk,bkhd->bqhd", da, k)
        dk = jnp.einsum("bhqk,bqhd->bkhd", da, q)
        dv = jnp.einsum("bhqk,bqhe->bkhe", a, do) + jnp.einsum("bkhd,bhde->bkhe", k, dstate)
        if bug != "dk within its chunk only":
            dk = dk + jnp.einsum("bkhe,bhde->bkhd", v, dstate)
        return dstate + jnp.einsum("bqhd,bqhe->bhde", q, do), (dq, dk, dv)

    _, (dq, dk, dv) = jax.lax.scan(back, jnp.zeros((B, H, D, E), q.dtype), (qs, ks, vs, dos, states), reverse=True)
    def whole(x, size):
        return jnp.moveaxis(x, 0, 1).reshape(B, length, *x.shape[3:])[:, length - size:]
    return whole(o, Q), whole(dq, Q) * scale, whole(dk, K), whole(dv, K)


def linear_state_form(q, k, v, *, do, bias, keep, dropout):
    """Layout bhtd, without bias, keep, dropout.  o = q (kT v) / sqrt(d), never a T x T matrix."""
    assert bias is None and keep is None and dropout is None
    scale = q.shape[-1] ** -0.5
    state = k.mT @ v * scale
    dstate = q.mT @ do * scale
    return q @ state, do @ state.mT, v @ dstate.mT, k @ dstate, None


# ------------------------------------------------------------------------------------------------------ the table

@dataclass
class Row:
    name: str
    variant: str
    kernel: object
    options: dict
    side: str = ""
    where: str = ""
    what: str = ""
    right: bool = False
    wrong: tuple = ()
    dtypes: tuple = field(default=("float64", "float32", "bfloat16"))

    @property
    def gradients(self):
        inner = getattr(self.kernel, "function", None)
        inner = getattr(inner, "func", None)
        if inner in (softmax_tiles, hyla_tiles):
            return "tiled"
        return "autograd" if isinstance(self.kernel, (Autograd, Vjp)) else "handwritten"

    @property
    def backend(self):
        return "jax" if isinstance(self.kernel, (Vjp, JaxManual)) else "torch"

    def cast(self, dtype):
        """The kernel, its results rounded to dtype (torch.bfloat16 arrays as float32: NumPy has none)."""
        if dtype != "bfloat16":
            return self.kernel

        def rounded(*inputs, **named):
            return tuple(torch.from_numpy(np.array(x)).to(torch.bfloat16).float() for x in self.kernel(*inputs, **named))
        return rounded


ROWS = []


def row(name, variant, kernel, options, side="", where="", what=""):
    ROWS.append(Row(name, variant, kernel, options, side, where, what, right=not side))
    globals()[name] = kernel


BHTD = dict(layout="bhtd")
BTHD = dict(layout="bthd")
FULL = dict(bias="bhqk", keep="bhqk", dropout="bhqk")
W_FULL = dict(bias="bhqw", keep="bhqw", dropout="bhqw")

# one right kernel for each variant
row("softmax_right", "softmax", Autograd(softmax_torch), BHTD | FULL)
row("hyla_right", "hyla", Manual(hyla_by_hand), BHTD | FULL)
row("compositional_right", "compositional", Manual(compositional_by_hand), BHTD | FULL)
row("sliding_right", "sliding_dilated", Autograd(sliding_torch), BHTD | W_FULL)
row("linear_right", "linear", Manual(linear_by_hand), BHTD | FULL)
# right kernels by other algorithms
row("softmax_right_by_hand", "softmax", Manual(softmax_by_hand), BHTD | FULL)
row("softmax_right_tiles", "softmax", Manual(softmax_tiles), BHTD | FULL)
row("softmax_right_tiles_causal", "softmax", Manual(softmax_tiles, causal=True), BHTD | dict(causal=True, bias="hqk"))
row("softmax_right_jax", "softmax", Vjp(softmax_jax), BTHD | FULL)
row("hyla_right_autograd", "hyla", Autograd(hyla_torch), BHTD | FULL)
row("hyla_right_tiles", "hyla", Manual(hyla_tiles), BHTD | FULL)
row("hyla_right_loops", "hyla", Autograd(hyla_loops), BTHD | FULL)
row("hyla_right_jax", "hyla", Vjp(hyla_jax), BTHD | FULL)
row("compositional_right_autograd", "compositional", Autograd(compositional_torch), BHTD | FULL)
row("compositional_right_loops", "compositional", Autograd(compositional_loops), BTHD | FULL)
row("compositional_right_jax", "compositional", Vjp(compositional_jax), BTHD | FULL)
row("compositional_linear_right_jax", "compositional_linear", Vjp(compositional_jax, scoring="linear"), BTHD | FULL)
row("compositional_nonlinear_right_jax", "compositional_nonlinear", Vjp(compositional_jax, scoring="nonlinear"),
    BTHD | FULL)
row("sliding_right_by_hand", "sliding_dilated", Manual(sliding_by_hand), BHTD | W_FULL)
row("sliding_pad_right_by_hand", "sliding_dilated_pad", Manual(sliding_by_hand), BHTD | W_FULL)
row("sliding_right_dense", "sliding_dilated", Autograd(sliding_dense), BTHD | W_FULL)
row("sliding_pad_right_dense", "sliding_dilated_pad", Autograd(sliding_dense), BTHD | W_FULL)
row("sliding_pad_right_jax", "sliding_dilated_pad", Vjp(sliding_jax), BTHD | W_FULL)
row("linear_right_autograd", "linear", Autograd(linear_torch), BHTD | FULL)
row("linear_right_state", "linear", Manual(linear_state_form), BHTD)
row("linear_right_scan_causal", "linear", JaxManual(linear_scan), BTHD | dict(causal=True))

# softmax, forward
row("softmax_width_of_v", "softmax", Autograd(softmax_torch, bug="width of v"), BHTD | FULL, "forward",
    "scores q·k/√d", "Divides the scores by the root of the values' width e instead of the queries' width d.")
row("softmax_bias_before_scale", "softmax", Autograd(softmax_torch, bug="bias before scale"), BHTD | dict(bias="hqk"),
    "forward", "scores q·k/√d + bias", "Adds the bias before the division by √d, so that it is divided too.")
row("softmax_finite_fill", "softmax", Autograd(softmax_torch, bug="finite fill"), BHTD | dict(keep="bhqk"), "forward",
    "mask before the softmax, at queries that keep nothing",
    "Fills masked scores with -1e9, so that a query that keeps nothing gets the mean of all values instead of zero.")
row("softmax_mask_after", "softmax", Autograd(softmax_torch, bug="mask after"), BHTD | FULL, "forward",
    "mask before the softmax", "Masks the weights after the softmax, so that masked keys stay in its denominator.")
row("softmax_dropout_in_sum", "softmax", Autograd(softmax_torch, bug="dropout in sum"), BHTD | FULL, "forward",
    "dropout on the softmax's weights",
    "Applies dropout to exp(s) before the sum of the denominator instead of to the normalised weights.")
row("softmax_not_rescaled", "softmax", Manual(softmax_tiles, bug="accumulator not rescaled"), BHTD | dict(bias="bhqk"),
    "forward", "o = sum_k p v, accumulated over tiles of keys",
    "Does not multiply the accumulated o by exp(m_old - m_new) when a later tile has a larger maximum.")
row("softmax_causal_top_left", "softmax", Manual(softmax_tiles, causal=True, bug="causal from the top left"),
    BHTD | dict(causal=True), "forward", "causal mask",
    "Aligns the causal mask at the first key (key <= query) instead of the last (key <= query + K - Q).")
row("softmax_causal_without_itself", "softmax", Manual(softmax_tiles, causal=True, bug="causal without itself"),
    BHTD | dict(causal=True), "forward", "causal mask", "Masks the query's own position too (< instead of <=).")
row("softmax_tail_lost", "softmax", Manual(softmax_tiles, bug="tail lost"), BHTD | FULL, "forward",
    "sums over keys, by tiles",
    "Runs over whole tiles of keys only, forward and backward, so that the keys of the last, partial tile are lost.")
row("softmax_base_2", "softmax", Manual(softmax_tiles, bug="base 2"), BHTD | dict(bias="hqk"), "backward",
    "weights p recomputed in the backward from scores and lse",
    "Saves the log-sum-exp to base 2 and recomputes the weights with the natural exponential.")
row("softmax_padded_keys", "softmax", Vjp(softmax_jax, bug="padded keys"), BTHD | dict(bias="hqk"), "forward",
    "sum over keys in the softmax's denominator",
    "Pads keys with zeros to a whole tile and leaves them in the softmax with score 0.")
row("softmax_maximum_over_queries", "softmax", Vjp(softmax_jax, bug="maximum over queries"), BTHD | dict(bias="bhqk"),
    "forward", "numerator of the softmax",
    "Subtracts in the numerator the maximum over queries instead of over keys (the denominator is right).")
# softmax, backward
row("softmax_sum_of_dp", "softmax", Manual(softmax_by_hand, bug="sum of dp"), BHTD | FULL, "backward",
    "backward of the softmax: ds = p (dp - sum_k p dp)", "Subtracts sum_k dp instead of sum_k p dp.")
row("softmax_sum_over_queries", "softmax", Manual(softmax_by_hand, bug="sum over queries"), BHTD | FULL, "backward",
    "backward of the softmax: ds = p (dp - sum_k p dp)", "Sums p dp over queries instead of keys.")
row("softmax_dk_unscaled", "softmax", Manual(softmax_by_hand, bug="dk unscaled"), BHTD | FULL, "backward",
    "dk = dsT q / √d", "Forgets 1/√d in dk.")
row("softmax_dp_without_dropout", "softmax", Manual(softmax_by_hand, bug="dp without dropout"), BHTD | FULL, "backward",
    "backward of dropout: dp = dc dropout", "Does not apply the dropout mask to the gradient of the weights.")
row("softmax_dv_without_dropout", "softmax", Manual(softmax_by_hand, bug="dv without dropout"), BHTD | FULL, "backward",
    "dv = cT do", "Takes the weights before dropout for dv.")
row("softmax_dbias_mean", "softmax", Manual(softmax_by_hand, bug="dbias mean over batch"), BHTD | dict(bias="hqk"),
    "backward", "dbias = sum over batch of ds",
    "Averages the gradient of a bias that is shared over the batch instead of summing it.")
row("softmax_recomputed_without_bias", "softmax", Manual(softmax_tiles, bug="recomputed without bias"),
    BHTD | dict(bias="hqk", dropout="bhqk"), "backward", "weights p recomputed in the backward from scores and lse",
    "Forgets the bias when the backward recomputes the scores.")
row("softmax_dq_last_tile", "softmax", Manual(softmax_tiles, bug="dq of the last tile only"), BHTD | FULL, "backward",
    "dq = ds k / √d, accumulated over tiles of keys",
    "Assigns dq in every tile of keys instead of adding, so that only the last tile counts.")
row("softmax_sum_detached", "softmax", Vjp(softmax_jax, bug="sum detached"), BTHD | dict(bias="hqk"), "backward",
    "backward of the softmax: ds = p (dp - sum_k p dp)",
    "Treats the softmax's denominator as a constant, so that the term sum_k p dp is missing.")

# hyla, forward
row("hyla_sum_over_heads", "hyla", Autograd(hyla_torch, bug="sum over heads"), BHTD | FULL, "forward",
    "RMSHead: a = s / sqrt(mean_h s² + eps)", "Sums the squares over heads instead of averaging.")
row("hyla_epsilon_outside", "hyla", Autograd(hyla_torch, bug="epsilon outside"), BHTD, "forward",
    "RMSHead: a = s / sqrt(mean_h s² + eps)", "Adds epsilon to the root instead of inside it.")
row("hyla_variance", "hyla", Vjp(hyla_jax, bug="variance"), BTHD | dict(bias="hqk"), "forward",
    "RMSHead: a = s / sqrt(mean_h s² + eps)", "Takes the variance over heads instead of the mean of squares.")
row("hyla_rms_over_keys", "hyla", Autograd(hyla_torch, bug="rms over keys"), BHTD | FULL, "forward",
    "RMSHead: a = s / sqrt(mean_h s² + eps)", "Normalises over keys instead of heads.")
row("hyla_mask_after_norm", "hyla", Autograd(hyla_torch, bug="mask after norm"), BHTD | dict(keep="bhqk", bias="hqk"),
    "forward", "mask before RMSHead",
    "Masks after RMSHead, so that masked heads' scores stay in the mean of squares.")
row("hyla_mean_over_kept_heads", "hyla", Autograd(hyla_torch, bug="mean over kept heads"),
    BHTD | dict(keep="bhqk", bias="hqk"), "forward", "RMSHead: a = s / sqrt(mean_h s² + eps)",
    "Divides the sum of squares by the number of heads that are kept instead of by all heads.")
row("hyla_bias_after_norm", "hyla", Autograd(hyla_torch, bug="bias after norm"), BHTD | dict(bias="bhqk"), "forward",
    "scores q·k/√d + bias", "Adds the bias to the latent code after RMSHead instead of to the scores before it.")
row("hyla_no_scale", "hyla", Autograd(hyla_torch, bug="no scale"), BHTD | FULL, "forward", "scores q·k/√d + bias",
    "Leaves out 1/√d, since the normaliser divides it out again (which the bias prevents).")
row("hyla_relu_per_head", "hyla", Autograd(hyla_torch, bug="relu per head"), BHTD | FULL, "forward",
    "hidden layer of the value network: relu(sum_h a_h v_h)", "Applies the relu to each head's term before the sum over heads.")
row("hyla_second_use_without_dropout", "hyla", Autograd(hyla_torch, bug="second use without dropout"), BHTD | FULL,
    "forward", "output layer of the value network: o_h = sum_k a_h relu(z)",
    "Takes the latent code before dropout in its second use, the output layer.")
row("hyla_heads_of_v", "hyla", Autograd(hyla_torch, bug="heads of v"), BHTD | FULL, "forward",
    "hidden layer of the value network: z = sum_h a_h v_h",
    "Reads the values' last axis (h e) as (e h), so that features and heads are exchanged.")
row("hyla_gelu", "hyla", Vjp(hyla_jax, bug="gelu"), BTHD | FULL, "forward",
    "nonlinearity of the value network: relu(z)", "Takes GELU for relu.")
row("hyla_o_without_relu", "hyla", Manual(hyla_by_hand, bug="o without relu"), BHTD | FULL, "forward",
    "output layer of the value network: o_h = sum_k a_h relu(z)",
    "Uses z before the relu in the output; the handwritten backward is for the right forward.")
# hyla, backward
row("hyla_ds_sum_over_heads", "hyla", Manual(hyla_by_hand, bug="sum over heads"), BHTD | FULL, "backward",
    "backward of RMSHead: ds = rho (da - a mean_h a da)", "Sums a da over heads instead of averaging.")
row("hyla_rms_detached", "hyla", Manual(hyla_by_hand, bug="rms detached"), BHTD | FULL, "backward",
    "backward of RMSHead: ds = rho (da - a mean_h a da)", "Treats rho as a constant: ds = rho da.")
row("hyla_s_for_a", "hyla", Manual(hyla_by_hand, bug="s for a"), BHTD | FULL, "backward",
    "backward of RMSHead: ds = rho (da - a mean_h a da)", "Multiplies the mean by the scores s instead of the code a.")
row("hyla_first_use_forgotten", "hyla", Manual(hyla_by_hand, bug="first use only"), BHTD | FULL, "backward",
    "gradient of the code: dc = do·relu(z) + dz·v",
    "Leaves out the gradient through the code's use in the output layer, do·relu(z).")
row("hyla_value_network_detached", "hyla", Vjp(hyla_jax, bug="value network detached"), BTHD | FULL, "backward",
    "backward of the value network: dg = sum_h c_h do_h",
    "Treats relu(z) as a constant in the output layer, so that dv is zero and dc lacks dz·v.")
row("hyla_dz_not_gated", "hyla", Manual(hyla_by_hand, bug="dz not gated"), BHTD | FULL, "backward",
    "backward of the relu: dz = dg 1[z > 0]", "Forgets the relu's derivative.")
row("hyla_dz_gated_by_dg", "hyla", Manual(hyla_by_hand, bug="dz gated by dg"), BHTD | dict(bias="hqk"), "backward",
    "backward of the relu: dz = dg 1[z > 0]", "Takes the sign of dg instead of z, that is relu(dg).")
row("hyla_dv_from_dg", "hyla", Manual(hyla_by_hand, bug="dv from dg"), BHTD | FULL, "backward",
    "dv_h = sum_q c_h dz", "Takes the gradient after the relu, dg, instead of dz for dv.")
row("hyla_dv_without_dropout", "hyla", Manual(hyla_by_hand, bug="dv without dropout"), BHTD | FULL, "backward",
    "dv_h = sum_q c_h dz", "Takes the code before dropout for dv.")
row("hyla_ds_not_masked", "hyla", Manual(hyla_by_hand, bug="ds not masked"), BHTD | FULL, "backward",
    "backward of the mask: ds = 0 where not kept", "Lets gradient flow into the scores of masked pairs.")
row("hyla_dbias_scaled", "hyla", Manual(hyla_by_hand, bug="dbias scaled"), BHTD | dict(bias="hqk"), "backward",
    "dbias = sum over batch of ds", "Multiplies the bias's gradient by 1/√d as if it had been added before the scale.")
row("hyla_rho_without_epsilon", "hyla", Manual(hyla_by_hand, bug="rho without epsilon"), BHTD, "backward",
    "backward of RMSHead: ds = rho (da - a mean_h a da)", "Recomputes rho without epsilon in the backward.")
row("hyla_rho_of_the_first_tile", "hyla", Manual(hyla_tiles, bug="rho of the first tile"), BHTD | dict(bias="bhqk"),
    "backward", "backward of RMSHead: ds = rho (da - a mean_h a da), by tiles of keys",
    "Uses rho of the first tile of keys for all tiles.")
row("hyla_dk_of_the_next_head", "hyla", Manual(hyla_by_hand, bug="dk of the next head"), BHTD | FULL, "backward",
    "dk = dsT q / √d", "Writes each head's dk to the head after it.")

# compositional, forward
row("compositional_width_of_search", "compositional", Autograd(compositional_torch, bug="width of search"), BHTD | FULL,
    "forward", "retrieval scores q̄·k̄/√d_r", "Divides the retrieval scores by the root of the search width d instead of the selector's width.")
row("compositional_softmax_over_searches", "compositional", Autograd(compositional_torch, bug="softmax over searches"),
    BHTD | FULL, "forward", "softmax over retrievals", "Takes the selecting softmax over searches instead of retrievals.")
row("compositional_selected_without_dropout", "compositional", Autograd(compositional_torch, bug="selected without dropout"),
    BHTD | FULL, "forward", "retrieval keys k̄ = Ret W̄_k",
    "Makes the retrieval keys from retrievals without dropout, while the answer uses those with dropout.")
row("compositional_o_not_weighted", "compositional", Manual(compositional_by_hand, bug="o not weighted"), BHTD | FULL,
    "forward", "o = sum_r g Ret", "Averages the retrievals instead of weighting them; the handwritten backward is for the right forward.")
row("compositional_nonlinear_without_selector", "compositional_nonlinear",
    Vjp(compositional_jax, scoring="nonlinear", bug="selector left out"), BTHD | dict(bias="hqk"), "forward",
    "hidden layer of the nonlinear scores: relu(Ret W_e + q̄ W_c + b)", "Leaves the retrieval query's term out of the hidden layer.")
# compositional, backward
row("compositional_g_without_its_sum", "compositional", Manual(compositional_by_hand, bug="softmax of g without its sum"),
    BHTD | FULL, "backward", "backward of the softmax over retrievals: dl = g (dg - sum_r g dg)",
    "Leaves out sum_r g dg.")
row("compositional_dmap_unscaled", "compositional", Manual(compositional_by_hand, bug="dmap unscaled"), BHTD | FULL,
    "backward", "gradient of the key map W̄_k", "Forgets 1/√d_r in the gradient of the retrieval key map.")
row("compositional_dy_by_the_answer_only", "compositional", Manual(compositional_by_hand, bug="dy by the answer only"),
    BHTD | FULL, "backward", "gradient of the retrievals: dRet = g do + dk̄ W̄_kT",
    "Leaves out the gradient through the retrieval keys.")
row("compositional_dv_of_the_last_search", "compositional", Manual(compositional_by_hand, bug="dv of the last search"),
    BHTD | FULL, "backward", "dv_r = sum over searches and queries of c dRet",
    "Overwrites dv in the loop over searches, so that only the last search counts.")
row("compositional_dc_mean", "compositional", Manual(compositional_by_hand, bug="dc mean over retrievals"), BHTD | FULL,
    "backward", "dc = sum_r dRet·v_r", "Averages over retrievals instead of summing.")

# sliding, dilated: forward
row("sliding_begins_at_the_neighbour", "sliding_dilated", Autograd(sliding_torch, bug="window begins at the neighbour"),
    BHTD | W_FULL, "forward", "offsets: key n = position - w dilation, w = 0 .. C-1",
    "Counts offsets from 1 to C instead of 0 to C-1, so that a token does not see itself.")
row("sliding_r_in_the_other_order", "sliding_dilated", Autograd(sliding_torch, bug="r in the other order"), BHTD | W_FULL,
    "forward", "scores q·k/√d + r_w", "Reads the learned offsets r from the oldest key to the newest.")
row("sliding_queries_first", "sliding_dilated", Autograd(sliding_torch, bug="queries at the first positions"),
    BHTD | W_FULL, "forward", "positions of the queries", "Puts the queries at the first positions of the keys instead of the last.")
row("sliding_outside_clamped", "sliding_dilated", Autograd(sliding_torch, bug="outside clamped to key 0"), BHTD | W_FULL,
    "forward", "keys before the first (M = -inf)", "Clamps indices before the first key to key 0 and does not mask them.")
row("sliding_outside_scores_zero", "sliding_dilated", Autograd(sliding_torch, bug="outside scores zero"),
    BHTD | dict(dropout="bhqw"), "forward", "keys before the first (M = -inf)",
    "Gives keys before the first the score 0 instead of -inf, so that they stay in the softmax's denominator.")
row("sliding_position_0_outside", "sliding_dilated", Autograd(sliding_torch, bug="position 0 taken for outside"),
    BHTD | W_FULL, "forward", "keys before the first (M = -inf)", "Tests n > 0 for n >= 0, so that the very first key is masked.")
# sliding, dilated: backward
row("sliding_dk_without_dilation", "sliding_dilated", Manual(sliding_by_hand, bug="dk scattered without dilation"),
    BHTD | W_FULL, "backward", "dk_n = sum_w ds q at position n + w dilation",
    "Scatters dk to position - w instead of position - w dilation.")
row("sliding_dv_overwritten", "sliding_dilated", Manual(sliding_by_hand, bug="dv overwritten where offsets meet"),
    BHTD | W_FULL, "backward", "dv_n = sum_w c do at position n + w dilation",
    "Assigns instead of adds where several offsets reach the same key.")
row("sliding_dr_mean", "sliding_dilated", Manual(sliding_by_hand, bug="dr mean over batch"), BHTD | W_FULL, "backward",
    "dr_w = sum over batch and positions of ds", "Averages the offsets' gradient over the batch instead of summing.")
row("sliding_pad_into_key_0", "sliding_dilated_pad", Manual(sliding_by_hand, bug="pad's gradient into key 0"),
    BHTD | W_FULL, "backward", "gradient of the pad's key", "Adds the pad's share of dk to key 0 and leaves dpad_k zero.")
row("sliding_pad_k_detached", "sliding_dilated_pad", Vjp(sliding_jax, bug="pad_k detached"), BTHD | W_FULL, "backward",
    "gradient of the pad's key", "Puts a detached copy of the pad's key in front, so that dpad_k is zero.")
row("sliding_dq_without_pads", "sliding_dilated_pad", Manual(sliding_by_hand, bug="dq without pads"), BHTD | W_FULL,
    "backward", "dq = sum_w ds k_n / √d, at offsets before the first key", "Leaves out the pads' share of dq.")

# linear
row("linear_divided_by_keys", "linear", Autograd(linear_torch, bug="divided by the number of keys"), BHTD | FULL,
    "forward", "weights q·k/√d + bias (no normaliser)", "Divides the weights by the number of keys.")
row("linear_mask_before_bias", "linear", Autograd(linear_torch, bug="mask before bias"), BHTD | FULL, "forward",
    "mask after the bias: weight 0", "Masks q·k before the bias is added, so that masked pairs keep the bias as weight.")
row("linear_dbias_not_masked", "linear", Manual(linear_by_hand, bug="dbias not masked"), BHTD | dict(keep="bhqk", bias="hqk"),
    "backward", "dbias = ds, 0 where not kept", "Takes the bias's gradient before the mask is applied to ds.")
row("linear_dk_within_chunk", "linear", JaxManual(linear_scan, bug="dk within its chunk only"), BTHD | dict(causal=True),
    "backward", "dk = dsT q / √d, by chunks: within the chunk + through the state",
    "Leaves out the part of dk that comes from later chunks through the state.")

BY_NAME = {r.name: r for r in ROWS}
assert len(BY_NAME) == len(ROWS)
RIGHT = [r for r in ROWS if r.right]
MISTAKES = [r for r in ROWS if not r.right]

# which results each mistake changes by more than 1e-6 of their largest entry --wrong
WRONG = dict(
    softmax_width_of_v="o dq dk dv dbias",
    softmax_bias_before_scale="o dq dk dv dbias",
    softmax_finite_fill="o dv",
    softmax_mask_after="o dq dk dv dbias",
    softmax_dropout_in_sum="o dq dk dv dbias",
    softmax_not_rescaled="o dq dk dbias",
    softmax_causal_top_left="o dq dk dv",
    softmax_causal_without_itself="o dq dk dv",
    softmax_tail_lost="o dq dk dv dbias",
    softmax_base_2="dq dk dv dbias",
    softmax_padded_keys="o dq dk dv dbias",
    softmax_maximum_over_queries="o dq dk dv dbias",
    softmax_sum_of_dp="dq dk dbias",
    softmax_sum_over_queries="dq dk dbias",
    softmax_dk_unscaled="dk",
    softmax_dp_without_dropout="dq dk dbias",
    softmax_dv_without_dropout="dv",
    softmax_dbias_mean="dbias",
    softmax_recomputed_without_bias="dq dk dv dbias",
    softmax_dq_last_tile="dq",
    softmax_sum_detached="dq dk dbias",
    hyla_sum_over_heads="o dq dk dv dbias",
    hyla_epsilon_outside="o dq dk dv",
    hyla_variance="o dq dk dv dbias",
    hyla_rms_over_keys="o dq dk dv dbias",
    hyla_mask_after_norm="o dq dk dv dbias",
    hyla_mean_over_kept_heads="o dq dk dv dbias",
    hyla_bias_after_norm="o dq dk dv dbias",
    hyla_no_scale="o dq dk dv dbias",
    hyla_relu_per_head="o dq dk dv dbias",
    hyla_second_use_without_dropout="o dq dk dv dbias",
    hyla_heads_of_v="o dq dk dv dbias",
    hyla_gelu="o dq dk dv dbias",
    hyla_o_without_relu="o",
    hyla_ds_sum_over_heads="dq dk dbias",
    hyla_rms_detached="dq dk dbias",
    hyla_s_for_a="dq dk dbias",
    hyla_first_use_forgotten="dq dk dbias",
    hyla_value_network_detached="dq dk dv dbias",
    hyla_dz_not_gated="dq dk dv dbias",
    hyla_dz_gated_by_dg="dq dk dv dbias",
    hyla_dv_from_dg="dv",
    hyla_dv_without_dropout="dv",
    hyla_ds_not_masked="dq dk dbias",
    hyla_dbias_scaled="dbias",
    hyla_rho_without_epsilon="dq dk",
    hyla_rho_of_the_first_tile="dq dk dbias",
    hyla_dk_of_the_next_head="dk",
    compositional_width_of_search="o dq dk dv dbias dselector dmap",
    compositional_softmax_over_searches="o dq dk dv dbias dselector dmap",
    compositional_selected_without_dropout="o dq dk dv dbias dselector dmap",
    compositional_o_not_weighted="o",
    compositional_nonlinear_without_selector="o dq dk dv dbias dselector dwe dwc db dw",
    compositional_g_without_its_sum="dq dk dv dbias dselector dmap",
    compositional_dmap_unscaled="dmap",
    compositional_dy_by_the_answer_only="dq dk dv dbias",
    compositional_dv_of_the_last_search="dv",
    compositional_dc_mean="dq dk dbias",
    sliding_begins_at_the_neighbour="o dq dk dv dbias doffset_bias",
    sliding_r_in_the_other_order="o dq dk dv dbias doffset_bias",
    sliding_queries_first="o dq dk dv dbias doffset_bias",
    sliding_outside_clamped="o dq dk dv dbias doffset_bias",
    sliding_outside_scores_zero="o dq dk dv doffset_bias",
    sliding_position_0_outside="o dq dk dv dbias doffset_bias",
    sliding_dk_without_dilation="dk",
    sliding_dv_overwritten="dv",
    sliding_dr_mean="doffset_bias",
    sliding_pad_into_key_0="dk dpad_k",
    sliding_pad_k_detached="dpad_k",
    sliding_dq_without_pads="dq",
    linear_divided_by_keys="o dq dk dv dbias",
    linear_mask_before_bias="o dv dbias",
    linear_dbias_not_masked="dbias",
    linear_dk_within_chunk="dk",
)
for _row in MISTAKES:
    _row.wrong = tuple(WRONG[_row.name].split())

if __name__ == "__main__":
    for _row in ROWS:
        print(f"{_row.name:42} {_row.variant:24} {_row.side or 'right':8} {_row.gradients:11} {_row.backend:5} "
              f"{' '.join(_row.wrong):40} {_row.options}")
