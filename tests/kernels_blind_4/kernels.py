"""Attention kernels in PyTorch: right ones, and ones with exactly one mistake each.

Each is called as kernel(q, k, v, *more, do=do[, bias=, keep=, dropout=]) with NumPy arrays and returns torch tensors
o, dq, dk, dv[, dbias], *d_more.  Every family of kernels is a function that takes the name of a mistake and makes a
kernel; with the empty name it makes the right one.  `ROWS` lists them with the options under which the mistake shows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F

__all__ = ["ROWS", "Row"]

EPSILON = 1e-6
INF = float("inf")


@dataclass(frozen=True)
class Row:
    name: str
    variant: str
    kernel: Callable
    options: dict = field(default_factory=dict)
    right: bool = True
    side: str = ""
    where: str = ""
    also: str = ""
    what: str = ""


# ------------------------------------------------------------------------------------------------------------ helpers


def tensor(x):
    """A tensor of its own memory, or None."""
    return None if x is None else torch.from_numpy(np.array(x, order="C"))


def tensors(*arrays):
    return [tensor(x) for x in arrays]


def causal_keep(queries, keys):
    """(q, k) booleans: query i sees keys up to i + k - q."""
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)


def with_causal(keep, queries, keys):
    seen = causal_keep(queries, keys)
    return seen if keep is None else keep & seen


def masked_softmax(s, keep=None, dim=-1):
    """Softmax over what is kept; exactly 0 where nothing is."""
    if keep is None:
        return torch.softmax(s, dim)
    s = s.masked_fill(~keep, -INF)
    top = s.detach().amax(dim, keepdim=True)
    p = torch.exp(s - top.masked_fill(top == -INF, 0.0))
    total = p.sum(dim, keepdim=True)
    return p / torch.where(total == 0, torch.ones_like(total), total)


def sum_to(x, shape):
    """x summed down to a shape that broadcasts to it."""
    while x.ndim > len(shape):
        x = x.sum(0)
    for axis, n in enumerate(shape):
        if n == 1 and x.shape[axis] != 1:
            x = x.sum(axis, keepdim=True)
    return x


def by_autograd(forward):
    """A kernel from a forward alone."""
    def kernel(q, k, v, *more, do, bias=None, keep=None, dropout=None):
        inputs = tensors(q, k, v) + tensors(*([] if bias is None else [bias])) + tensors(*more)
        for x in inputs:
            x.requires_grad_()
        q, k, v, *more = inputs
        if bias is not None:
            bias, *more = more
        o = forward(q, k, v, *more, bias=bias, keep=tensor(keep), dropout=tensor(dropout))
        o.backward(tensor(do))
        return (o.detach(), *(torch.zeros_like(x) if x.grad is None else x.grad for x in inputs))
    return kernel


def full(x, shape):
    """x stretched to the shape, or None."""
    return None if x is None else x.expand(shape)


# ------------------------------------------------------------------------------------------------------------ softmax


def softmax_einsum(mistake="", causal=False):
    """Two einsums, (b, t, h, d), gradients by autograd."""
    def forward(q, k, v, bias, keep, dropout):
        if causal:
            keep = with_causal(keep, q.shape[1], k.shape[1])
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        if bias is not None:
            s = s + bias
        if mistake == "dropout before softmax" and dropout is not None:
            s, dropout = s * dropout, None
        if mistake == "mask after softmax" and keep is not None:
            a = torch.softmax(s, -1) * keep
        else:
            a = masked_softmax(s, keep)
        if dropout is not None:
            a = a * dropout
        o = torch.einsum("bhqk,bkhe->bhqe", a, v)
        if mistake == "reshape for transpose":
            return o.reshape(q.shape[0], q.shape[1], q.shape[2], v.shape[-1])
        return o.transpose(1, 2)
    return by_autograd(forward)


def softmax_sdpa(mistake="", causal=False):
    """torch's scaled_dot_product_attention, (b, h, t, d); bias and keep as one additive mask."""
    def forward(q, k, v, bias, keep, dropout):
        shape = *q.shape[:3], k.shape[2]
        if causal:
            seen = torch.ones(shape[2:], dtype=torch.bool)
            seen = seen.tril() if mistake == "causal from the top left" else seen.tril(shape[3] - shape[2])
            keep = seen if keep is None else keep & seen
        mask = full(bias, shape)
        empty = None
        if keep is not None:
            keep = keep.expand(shape)
            empty = ~keep.any(-1, keepdim=True)
            mask = torch.zeros(shape, dtype=q.dtype) if mask is None else mask
            mask = mask.masked_fill(~(keep | empty), -INF)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return o if empty is None else o.masked_fill(empty, 0.0)
    return by_autograd(forward)


def softmax_by_hand(mistake=""):
    """Matrix products, (b, h, t, d), and the backward in closed form."""
    def kernel(q, k, v, *, do, bias=None, keep=None, dropout=None):
        q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
        scale = q.shape[-1] ** -0.5
        s = (q @ k.mT).mul_(scale)
        if bias is not None:
            s = s + bias
        p = masked_softmax(s, keep)
        pd = p if dropout is None else p * dropout
        o = pd @ v

        delta = (o * do).sum(-1, keepdim=True)
        dv = (p if mistake == "dv without dropout" else pd).mT @ do
        dp = do @ v.mT
        if dropout is not None:
            dp = dp * dropout
        ds = (pd if mistake == "dropped weights in softmax backward" else p) * (dp - delta)
        dq, dk = ds @ k * scale, ds.mT @ q * scale
        return o, dq, dk, dv, *(() if bias is None else (sum_to(ds, bias.shape),))
    return kernel


def softmax_flash(mistake="", causal=False, rows=4, columns=3):
    """Online softmax over tiles, the log-sum-exp saved, weights recomputed in the backward; (b, t, h, d)."""
    def kernel(q, k, v, *, do, bias=None, keep=None, dropout=None):
        q, k, v, do = (x.transpose(1, 2) for x in tensors(q, k, v, do))
        bias, keep, dropout = tensors(bias, keep, dropout)
        shape = *q.shape[:3], k.shape[2]
        if causal:
            keep = with_causal(keep, shape[2], shape[3])
        wide_bias, wide_keep, wide_dropout = (full(x, shape) for x in (bias, keep, dropout))
        scale = q.shape[-1] ** -0.5
        tiles_q = [slice(i, min(i + rows, shape[2])) for i in range(0, shape[2], rows)]
        tiles_k = [slice(j, min(j + columns, shape[3])) for j in range(0, shape[3], columns)]

        def scores(i, j):
            s = q[:, :, i] @ k[:, :, j].mT * scale
            if bias is not None:
                s = s + wide_bias[:, :, i, j]
            if keep is not None:
                s = s.masked_fill(~wide_keep[:, :, i, j], -INF)
            return s

        o = torch.empty(*q.shape[:3], v.shape[-1], dtype=q.dtype)
        lse = torch.empty(*q.shape[:3], 1, dtype=q.dtype)
        for i in tiles_q:
            top = torch.full_like(lse[:, :, i], -INF)
            total = torch.zeros_like(top)
            acc = torch.zeros_like(o[:, :, i])
            for j in tiles_k:
                s = scores(i, j)
                new = torch.maximum(top, s.amax(-1, keepdim=True))
                safe = new.masked_fill(new == -INF, 0.0)
                p, shrink = torch.exp(s - safe), torch.exp(top - safe)
                total = total * shrink + p.sum(-1, keepdim=True)
                if dropout is not None:
                    p = p * wide_dropout[:, :, i, j]
                if mistake != "accumulator not rescaled":
                    acc = acc * shrink
                acc = acc + p @ v[:, :, j]
                top = new
            empty = total == 0
            o[:, :, i] = acc / total.masked_fill(empty, 1.0)
            lse[:, :, i] = torch.where(empty, torch.full_like(top, INF), top + total.log())

        delta = (o * do).sum(-1, keepdim=True)
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        wide_dbias = None if bias is None else torch.zeros(shape, dtype=q.dtype)
        for j in tiles_k:
            for i in tiles_q:
                p = torch.exp(scores(i, j) - lse[:, :, i])
                dp = do[:, :, i] @ v[:, :, j].mT
                pd = p
                if dropout is not None:
                    pd, dp = p * wide_dropout[:, :, i, j], dp * wide_dropout[:, :, i, j]
                dv[:, :, j] += pd.mT @ do[:, :, i]
                if mistake == "delta of the tile":
                    ds = p * (dp - (p * dp).sum(-1, keepdim=True))
                else:
                    ds = p * (dp - delta[:, :, i])
                if mistake == "dq stored, not added":
                    dq[:, :, i] = ds @ k[:, :, j] * scale
                else:
                    dq[:, :, i] += ds @ k[:, :, j] * scale
                dk[:, :, j] += ds.mT @ q[:, :, i] * scale
                if bias is not None:
                    wide_dbias[:, :, i, j] = ds
        results = [x.transpose(1, 2) for x in (o, dq, dk, dv)]
        return *results, *(() if bias is None else (sum_to(wide_dbias, bias.shape),))
    return kernel


# ------------------------------------------------------------------------------------------------------------- linear


def linear_matmul(mistake=""):
    """Two matrix products, (b, h, t, d), gradients by autograd."""
    def forward(q, k, v, bias, keep, dropout):
        width = q.shape[2] if mistake == "length for width" else q.shape[3]
        s = q * width ** -0.5 @ k.mT
        if mistake == "mask before bias" and keep is not None:
            s, keep = s * keep, None
        if bias is not None:
            s = s + bias
        if keep is not None:
            s = s * keep
        if dropout is not None:
            s = s * dropout
        return s @ v
    return by_autograd(forward)


def linear_batch_by_batch(mistake=""):
    """One batch entry after the other, (b, t, h, d), the backward by hand."""
    def kernel(q, k, v, *, do, bias=None, keep=None, dropout=None):
        q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
        shape = q.shape[0], q.shape[2], q.shape[1], k.shape[1]
        bias4 = None if bias is None else bias.reshape((1,) * (4 - bias.ndim) + bias.shape)
        wide_bias, wide_keep, wide_dropout = (full(x, shape) for x in (bias, keep, dropout))
        scale = q.shape[-1] ** -0.5
        o = torch.empty(*q.shape[:3], v.shape[-1], dtype=q.dtype)
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        dbias = None if bias is None else torch.zeros_like(bias4)
        for n in range(shape[0]):
            a = torch.einsum("qhd,khd->hqk", q[n], k[n]) * scale
            if bias is not None:
                a = a + wide_bias[n]
            if keep is not None:
                a = a * wide_keep[n]
            if dropout is not None:
                a = a * wide_dropout[n]
            o[n] = torch.einsum("hqk,khe->qhe", a, v[n])

            dv[n] = torch.einsum("hqk,qhe->khe", a, do[n])
            ds = torch.einsum("qhe,khe->hqk", do[n], v[n])
            if dropout is not None:
                ds = ds * wide_dropout[n]
            if keep is not None and mistake != "no mask in the backward":
                ds = ds * wide_keep[n]
            dq[n] = torch.einsum("hqk,khd->qhd", ds, k[n]) * scale
            dk[n] = torch.einsum("hqk,qhd->khd", ds, q[n]) * scale
            if bias is not None:
                row = n if bias4.shape[0] > 1 else 0
                piece = sum_to(ds, bias4.shape[1:])
                if mistake == "dbias stored, not added":
                    dbias[row] = piece
                else:
                    dbias[row] += piece
        return o, dq, dk, dv, *(() if bias is None else (dbias.reshape(bias.shape),))
    return kernel


def linear_chunked(mistake="", chunk=4):
    """Causal, a state (d, e) carried from chunk to chunk, (b, t, h, d); neither bias, keep nor dropout."""
    def kernel(q, k, v, *, do):
        q, k, v, do = (x.transpose(1, 2) for x in tensors(q, k, v, do))
        scale = q.shape[-1] ** -0.5
        ahead = k.shape[2] - q.shape[2]                 # keys that the first query already sees, itself not counted
        first_q, first_k = max(0, -ahead), max(0, ahead)
        count = min(q.shape[2], k.shape[2])
        pieces = [(slice(first_q + i, first_q + min(i + chunk, count)), slice(first_k + i, first_k + min(i + chunk, count)))
                  for i in range(0, count, chunk)]
        before = slice(0, first_k)

        o = torch.zeros(*q.shape[:3], v.shape[-1], dtype=q.dtype)
        state = k[:, :, before].mT @ v[:, :, before]
        for i, j in pieces:
            qi, kj, vj = q[:, :, i] * scale, k[:, :, j], v[:, :, j]
            if mistake == "state of the chunk's end":
                state = state + kj.mT @ vj
            o[:, :, i] = qi @ state + (qi @ kj.mT).tril() @ vj
            if mistake != "state of the chunk's end":
                state = state + kj.mT @ vj

        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        state = k[:, :, before].mT @ v[:, :, before]
        for i, j in pieces:
            kj, vj, doi = k[:, :, j], v[:, :, j], do[:, :, i]
            dq[:, :, i] = (doi @ state.mT + (doi @ vj.mT).tril() @ kj) * scale
            state = state + kj.mT @ vj
        later = torch.zeros_like(state)
        for i, j in reversed(pieces):
            qi, kj, vj, doi = q[:, :, i] * scale, k[:, :, j], v[:, :, j], do[:, :, i]
            dk[:, :, j] = (doi @ vj.mT).tril().mT @ qi
            if mistake != "dk of the own chunk only":
                dk[:, :, j] += vj @ later.mT
            dv[:, :, j] = (qi @ kj.mT).tril().mT @ doi + kj @ later
            later = later + qi.mT @ doi
        dk[:, :, before] = v[:, :, before] @ later.mT
        dv[:, :, before] = k[:, :, before] @ later
        return [x.transpose(1, 2) for x in (o, dq, dk, dv)]
    return kernel


# --------------------------------------------------------------------------------------------------------------- hyla


def hyla_einsum(mistake=""):
    """Einsums, (b, t, h, d), gradients by autograd."""
    def forward(q, k, v, bias, keep, dropout):
        s = torch.einsum("bqhd,bkhd->bhqk", q * q.shape[-1] ** -0.5, k)
        if bias is not None:
            s = s + bias
        if keep is not None and mistake != "mask after rms":
            s = s * keep
        if mistake == "epsilon outside the root":
            a = s / (s.square().mean(1, keepdim=True).sqrt() + EPSILON)
        elif mistake == "rms over keys":
            a = s * torch.rsqrt(s.square().mean(-1, keepdim=True) + EPSILON)
        elif mistake == "rms without gradient":
            with torch.no_grad():
                rho = torch.rsqrt(s.square().mean(1, keepdim=True) + EPSILON)
            a = s * rho
        else:
            a = s * torch.rsqrt(s.square().mean(1, keepdim=True) + EPSILON)
        if keep is not None and mistake == "mask after rms":
            a = a * keep
        c = a if dropout is None else a * dropout
        z = torch.einsum("bhqk,bkhe->bqke", c, v)
        g = F.gelu(z) if mistake == "gelu" else torch.relu(z)
        if mistake == "dropout in the first use only":
            c = a
        if mistake == "raw scores in the second use":
            c = s if dropout is None else s * dropout
        return torch.einsum("bhqk,bqke->bqhe", c, g)
    return by_autograd(forward)


def hyla_by_hand(mistake=""):
    """Matrix products over flattened axes, (b, h, t, d), and the backward in closed form."""
    def kernel(q, k, v, *, do, bias=None, keep=None, dropout=None):
        q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
        h, scale = q.shape[1], q.shape[-1] ** -0.5
        s = q @ k.mT * scale
        if bias is not None:
            s = s + bias
        if keep is not None:
            s = s * keep
        rho = torch.rsqrt(s.square().mean(1, keepdim=True) + EPSILON)
        a = s * rho
        c = a if dropout is None else a * dropout
        by_pair = c.permute(0, 3, 2, 1)                                             # b k q h
        z = by_pair @ v.transpose(1, 2)                                             # b k q e
        g = z.clamp_min(0)
        o = (c.permute(0, 2, 1, 3) @ g.transpose(1, 2)).transpose(1, 2)             # b q h k, b q k e

        dog = do.transpose(1, 2)                                                    # b q h e
        dg = (c.permute(0, 2, 3, 1) @ dog).transpose(1, 2)                          # b k q e
        second = z if mistake == "z for relu of z" else g
        dc = (dog @ second.permute(0, 2, 3, 1)).transpose(1, 2)                     # b h q k
        dz = torch.where(z > 0, dg, torch.zeros_like(dg))
        dc = dc + (dz @ v.permute(0, 2, 3, 1)).permute(0, 3, 2, 1)
        dv = (by_pair.mT @ dz).transpose(1, 2)
        da = dc if dropout is None else dc * dropout
        ds = rho * (da - a * ((a * da).sum(1, keepdim=True) / h))
        if keep is not None:
            ds = ds * keep
        dq, dk = ds @ k * scale, ds.mT @ q * scale
        return o, dq, dk, dv, *(() if bias is None else (sum_to(ds, bias.shape),))
    return kernel


def hyla_tiled(mistake="", rows=4, group=2):
    """Tiles of queries, groups of heads, the code recomputed in the backward; (b, t, h, d)."""
    def kernel(q, k, v, *, do, bias=None, keep=None, dropout=None):
        q, k, v, do = (x.transpose(1, 2) for x in tensors(q, k, v, do))
        bias, keep, dropout = tensors(bias, keep, dropout)
        h, scale = q.shape[1], q.shape[-1] ** -0.5
        shape = *q.shape[:3], k.shape[2]
        wide_bias, wide_keep, wide_dropout = (full(x, shape) for x in (bias, keep, dropout))
        groups = [slice(n, min(n + group, h)) for n in range(0, h, group)]

        def scores(n, i):
            s = q[:, n, i] @ k[:, n].mT * scale
            if bias is not None:
                s = s + wide_bias[:, n, i]
            return s if keep is None else s * wide_keep[:, n, i]

        def code(i):
            """The code of a tile in two passes over the groups, the reciprocal root, and the code after dropout."""
            squares = 0
            for n in groups:
                if mistake == "squares of the last group":
                    squares = scores(n, i).square().sum(1, keepdim=True)
                else:
                    squares = squares + scores(n, i).square().sum(1, keepdim=True)
            rho = torch.rsqrt(squares / h + EPSILON)
            a = torch.cat([scores(n, i) * rho for n in groups], 1)
            return a, rho, a if dropout is None else a * wide_dropout[:, :, i]

        def hidden(c):
            return sum(torch.einsum("bhqk,bhke->bqke", c[:, n], v[:, n]) for n in groups)

        o = torch.empty(*q.shape[:3], v.shape[-1], dtype=q.dtype)
        for start in range(0, shape[2], rows):
            i = slice(start, min(start + rows, shape[2]))
            _, _, c = code(i)
            g = torch.relu(hidden(c))
            for n in groups:
                o[:, n, i] = torch.einsum("bhqk,bqke->bhqe", c[:, n], g)

        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        wide_ds = torch.zeros(shape, dtype=q.dtype)
        end = shape[2] // rows * rows if mistake == "last tile of queries lost" else shape[2]
        for start in range(0, end, rows):
            i = slice(start, min(start + rows, shape[2]))
            a, rho, c = code(i)
            z = hidden(c)
            g, doi = torch.relu(z), do[:, :, i]
            dg = sum(torch.einsum("bhqk,bhqe->bqke", c[:, n], doi[:, n]) for n in groups)
            dz = dg * (z > 0)
            da = torch.empty_like(a)
            for n in groups:
                da[:, n] = torch.einsum("bhqe,bqke->bhqk", doi[:, n], g) + torch.einsum("bqke,bhke->bhqk", dz, v[:, n])
                dv[:, n] += torch.einsum("bhqk,bqke->bhke", c[:, n], dz)
            if dropout is not None:
                da = da * wide_dropout[:, :, i]
            mean = sum((a[:, n] * da[:, n]).sum(1, keepdim=True) for n in groups) / h
            for n in groups:
                if mistake == "mean within the group":
                    mean = (a[:, n] * da[:, n]).mean(1, keepdim=True)
                ds = rho * (da[:, n] - a[:, n] * mean)
                if keep is not None:
                    ds = ds * wide_keep[:, n, i]
                dq[:, n, i] = ds @ k[:, n] * scale
                dk[:, n] += ds.mT @ q[:, n, i] * scale
                wide_ds[:, n, i] = ds
        results = [x.transpose(1, 2) for x in (o, dq, dk, dv)]
        return *results, *(() if bias is None else (sum_to(wide_ds, bias.shape),))
    return kernel


# ---------------------------------------------------------------------------------------------------------- ablations


def ablation_einsum(normaliser, uses, mistake=""):
    """The ablations with relu and two or three uses, (b, t, h, d), gradients by autograd."""
    def forward(q, k, v, *more, bias, keep, dropout):
        a = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        if bias is not None:
            a = a + bias
        if normaliser == "softmax":
            a = masked_softmax(a, keep, dim=1 if mistake == "softmax over heads" else -1)
        else:
            a = a if keep is None else a * keep
            a = a * torch.rsqrt(a.square().mean(1, keepdim=True) + EPSILON)
        if dropout is not None:
            a = a * dropout
        g = torch.relu(torch.einsum("bhqk,bkhe->bqke", a, v))
        if uses == 3:
            letters = "bqke,hfe->bqkhf" if mistake == "second layer transposed" else "bqke,hef->bqkhf"
            g = torch.relu(torch.einsum("bhqk,bqkhf->bqkf", a, torch.einsum(letters, g, more[0])))
        return torch.einsum("bhqk,bqke->bqhe", a, g)
    return by_autograd(forward)


def hyla_and_softmax_by_hand(mistake=""):
    """Softmax over keys, then the root mean square over heads; (b, h, t, d), the backward in closed form."""
    def kernel(q, k, v, *, do, bias=None, keep=None, dropout=None):
        q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
        scale = q.shape[-1] ** -0.5
        s = q @ k.mT * scale
        if bias is not None:
            s = s + bias
        p = masked_softmax(s, keep)
        rho = torch.rsqrt(p.square().mean(1, keepdim=True) + EPSILON)
        a = p * rho
        c = a if dropout is None else a * dropout
        z = torch.einsum("bhqk,bhke->bqke", c, v)
        g = torch.relu(z)
        o = torch.einsum("bhqk,bqke->bhqe", c, g)

        def through_softmax(d):
            return p * (d - (p * d).sum(-1, keepdim=True))

        def through_rms(d):
            return rho * (d - a * (a * d).mean(1, keepdim=True))

        dz = torch.einsum("bhqk,bhqe->bqke", c, do) * (z > 0)
        d = torch.einsum("bhqe,bqke->bhqk", do, g) + torch.einsum("bqke,bhke->bhqk", dz, v)
        dv = torch.einsum("bhqk,bqke->bhke", c, dz)
        if dropout is not None:
            d = d * dropout
        ds = through_rms(through_softmax(d)) if mistake == "undone in the order of the forward" else \
            through_softmax(through_rms(d))
        dq, dk = ds @ k * scale, ds.mT @ q * scale
        return o, dq, dk, dv, *(() if bias is None else (sum_to(ds, bias.shape),))
    return kernel


# ------------------------------------------------------------------------------------------------------ compositional


def compositional_einsum(scoring, mistake=""):
    """All searches and retrievals at once, gradients by autograd."""
    def forward(q, k, v, selector, *score, bias, keep, dropout):
        s = torch.einsum("bqsd,bksd->bsqk", q, k) * q.shape[-1] ** -0.5
        if bias is not None:
            s = s + bias
        if mistake == "mask added as a number" and keep is not None:
            a = torch.softmax(s + keep.to(s.dtype), -1)
        else:
            a = masked_softmax(s, keep)
        if dropout is not None:
            a = a * dropout
        t = torch.einsum("bsqk,bkre->bqsre", a, v)
        if scoring == "dot":
            width = t.shape[-1] if mistake == "width of the value" else selector.shape[-1]
            l = torch.einsum("bqsc,bqsrc->bqsr", selector, t @ score[0]) / width ** 0.5
        elif scoring == "linear":
            w, w_query, b = score
            l = t @ w + (selector @ w_query)[..., None] + b
        else:
            w, w_query, b, w2, b2 = score
            query = (selector @ w_query + b)[..., None, :]
            if mistake == "relu before the sum":
                inner = torch.relu(t @ w) + query
            else:
                inner = torch.relu(t @ w + query)
            l = inner @ w2 + b2
        g = torch.softmax(l, 2 if mistake == "softmax over searches" else -1)
        if mistake == "value scores detached":
            g = g.detach()
        return (g[..., None] * t).sum(3)
    return by_autograd(forward)


def compositional_search_by_search(mistake=""):
    """Scoring "dot", one search after the other, the backward by hand and in the same loop."""
    def kernel(q, k, v, selector, wr, *, do, bias=None, keep=None, dropout=None):
        q, k, v, selector, wr, do, bias, keep, dropout = tensors(q, k, v, selector, wr, do, bias, keep, dropout)
        shape = q.shape[0], q.shape[2], q.shape[1], k.shape[1]
        wide_bias, wide_keep, wide_dropout = (full(x, shape) for x in (bias, keep, dropout))
        scale, scale_c = q.shape[-1] ** -0.5, selector.shape[-1] ** -0.5
        o = torch.empty_like(do)
        dq, dk, dselector = torch.empty_like(q), torch.empty_like(k), torch.empty_like(selector)
        dv, dwr = torch.zeros_like(v), torch.zeros_like(wr)
        wide_ds = torch.empty(shape, dtype=q.dtype)
        for n in range(shape[1]):
            s = q[:, :, n] @ k[:, :, n].mT * scale
            if bias is not None:
                s = s + wide_bias[:, n]
            a = masked_softmax(s, None if keep is None else wide_keep[:, n])
            c = a if dropout is None else a * wide_dropout[:, n]
            t = torch.einsum("bqk,bkre->bqre", c, v)
            u = selector[:, :, n] @ wr.T * scale_c
            g = torch.softmax(torch.einsum("bqre,bqe->bqr", t, u), -1)
            o[:, :, n] = torch.einsum("bqr,bqre->bqe", g, t)

            dg = torch.einsum("bqe,bqre->bqr", do[:, :, n], t)
            dl = g * (dg - (g * dg).sum(1 if mistake == "sum over queries" else -1, keepdim=True))
            du = torch.einsum("bqr,bqre->bqe", dl, t) * scale_c
            dselector[:, :, n] = du @ wr
            dwr += torch.einsum("bqe,bqc->ec", du, selector[:, :, n])
            dt = torch.einsum("bqr,bqe->bqre", g, do[:, :, n])
            if mistake != "one use of the retrievals":
                dt = dt + torch.einsum("bqr,bqe->bqre", dl, u)
            dvn = torch.einsum("bqk,bqre->bkre", c, dt)
            if mistake == "dv stored, not added":
                dv = dvn
            else:
                dv = dv + dvn
            da = torch.einsum("bqre,bkre->bqk", dt, v)
            if dropout is not None:
                da = da * wide_dropout[:, n]
            ds = a * (da - (a * da).sum(-1, keepdim=True))
            dq[:, :, n], dk[:, :, n] = ds @ k[:, :, n] * scale, ds.mT @ q[:, :, n] * scale
            wide_ds[:, n] = ds
        return o, dq, dk, dv, *(() if bias is None else (sum_to(wide_ds, bias.shape),)), dselector, dwr
    return kernel


# ---------------------------------------------------------------------------------------------------- sliding, dilated

DILATION = 2


def looked_at(queries, keys, chunk):
    """(q, w): the position of the key at each offset, negative before the first."""
    return (torch.arange(queries) + keys - queries)[:, None] - DILATION * torch.arange(chunk)


def sliding_gather(mistake=""):
    """Keys and values gathered by index, (b, t, h, d), gradients by autograd; with pads and without."""
    def forward(q, k, v, offset_bias, pad_k=None, pad_v=None, *, bias, keep, dropout):
        at = looked_at(q.shape[1], k.shape[1], offset_bias.shape[1])
        there = at >= 0
        at = at.clamp_min(0)
        at_v = at
        if mistake == "values without dilation":
            at_v = (at[:, :1] - torch.arange(at.shape[1])).clamp_min(0)
        kn, vn = k[:, at], v[:, at_v]                                               # b q w h d
        if pad_k is not None:
            kn = torch.where(there[..., None, None], kn, pad_k)
            vn = torch.where(there[..., None, None], vn, pad_v)
        s = torch.einsum("bqhd,bqwhd->bhqw", q, kn)
        if mistake == "offset bias scaled":
            s = (s + offset_bias[:, None]) / q.shape[-1] ** 0.5
        elif mistake == "offsets reversed":
            s = s / q.shape[-1] ** 0.5 + offset_bias.flip(-1)[:, None]
        else:
            s = s / q.shape[-1] ** 0.5 + offset_bias[:, None]
        if bias is not None:
            s = s + bias
        if pad_k is None or mistake == "pads masked":
            keep = there if keep is None else keep & there
        a = masked_softmax(s, keep)
        if dropout is not None:
            a = a * dropout
        return torch.einsum("bhqw,bqwhe->bqhe", a, vn)
    return by_autograd(forward)


def sliding_scatter(mistake=""):
    """Rows of padding in front of keys and values, offset by offset, the backward by hand; with pads and without."""
    def kernel(q, k, v, offset_bias, *pads, do, bias=None, keep=None, dropout=None):
        q, k, v, offset_bias, do, bias, keep, dropout = tensors(q, k, v, offset_bias, do, bias, keep, dropout)
        chunk, scale = offset_bias.shape[1], q.shape[-1] ** -0.5
        at = looked_at(q.shape[1], k.shape[1], chunk)
        front = DILATION * (chunk - 1)
        pad_k, pad_v = tensors(*pads) if pads else (torch.zeros_like(k[0, 0]), torch.zeros_like(v[0, 0]))
        kp = torch.cat([pad_k.expand(k.shape[0], front, *pad_k.shape), k], 1)
        vp = torch.cat([pad_v.expand(v.shape[0], front, *pad_v.shape), v], 1)
        if not pads:
            keep = at >= 0 if keep is None else keep & (at >= 0)
        rows = (at + front).T                                                       # w q

        s = torch.stack([torch.einsum("bqhd,bqhd->bhq", q, kp[:, row]) for row in rows], -1) * scale
        s = s + offset_bias[:, None]
        if bias is not None:
            s = s + bias
        a = masked_softmax(s, keep)
        c = a if dropout is None else a * dropout
        o = sum(c[..., w].transpose(1, 2)[..., None] * vp[:, row] for w, row in enumerate(rows))

        da = torch.stack([torch.einsum("bqhe,bqhe->bhq", do, vp[:, row]) for row in rows], -1)
        if dropout is not None:
            da = da * dropout
        ds = a * (da - (a * da).sum(-1, keepdim=True))
        dq, dkp, dvp = torch.zeros_like(q), torch.zeros_like(kp), torch.zeros_like(vp)
        for w, row in enumerate(rows):
            weight, dscore = (x[..., w].transpose(1, 2)[..., None] for x in (c, ds))
            dq += dscore * kp[:, row] * scale
            dvp.index_add_(1, row, weight * do)
            if mistake == "scatter overwrites":
                dkp[:, row] = dscore * q * scale
            else:
                dkp.index_add_(1, row, dscore * q * scale)
        dpad_v = dvp[:, :front].sum((0, 1))
        if mistake == "one row of padding":
            dpad_k = dkp[:, max(front - 1, 0):front].sum((0, 1))
        else:
            dpad_k = dkp[:, :front].sum((0, 1))
        dbias = () if bias is None else (sum_to(ds, bias.shape),)
        return o, dq, dkp[:, front:], dvp[:, front:], *dbias, ds.sum((0, 2)), *((dpad_k, dpad_v) if pads else ())
    return kernel


def sliding_tiled(mistake="", rows=2):
    """Tiles of queries, each with the block of keys that it can reach, (b, h, t, d), gradients by autograd."""
    def forward(q, k, v, offset_bias, *, bias, keep, dropout):
        chunk, ahead = offset_bias.shape[1], k.shape[2] - q.shape[2]
        shape = *q.shape[:3], chunk
        bias, keep, dropout = (full(x, shape) for x in (bias, keep, dropout))
        reach = chunk - 1 if mistake == "halo without dilation" else (chunk - 1) * DILATION
        pieces = []
        for start in range(0, q.shape[2], rows):
            i = slice(start, min(start + rows, q.shape[2]))
            low, high = max(0, i.start + ahead - reach), i.stop + ahead
            block_k, block_v = k[:, :, low:high], v[:, :, low:high]
            local = looked_at(q.shape[2], k.shape[2], chunk)[i] - low
            there = local >= 0
            if keep is not None:
                there = there & keep[:, :, i]
            local = local.clamp_min(0)
            s = (q[:, :, i, None] * block_k[:, :, local]).sum(-1) * q.shape[-1] ** -0.5 + offset_bias[:, None]
            if bias is not None:
                s = s + bias[:, :, i]
            a = masked_softmax(s, there)
            if dropout is not None:
                a = a * dropout[:, :, i]
            pieces.append((a[..., None] * block_v[:, :, local]).sum(3))
        return torch.cat(pieces, 2)
    return by_autograd(forward)


# --------------------------------------------------------------------------------------------------------------- rows

ALL = {"bias": "hqk", "keep": "qk", "dropout": "bhqk"}
ALL_W = {"bias": "hqw", "keep": "bhqw", "dropout": "bhqw"}
BHTD = {"layout": "bhtd"}

RIGHT = [
    Row("softmax_einsum", "softmax", softmax_einsum(), ALL),
    Row("softmax_sdpa", "softmax", softmax_sdpa(causal=True), BHTD | {"bias": "bhqk", "keep": "qk", "causal": True}),
    Row("softmax_by_hand", "softmax", softmax_by_hand(), BHTD | ALL | {"bias": "h1k"}),
    Row("softmax_flash", "softmax", softmax_flash(causal=True), ALL | {"causal": True}),
    Row("linear_batch_by_batch", "linear", linear_batch_by_batch(), ALL),
    Row("linear_chunked", "linear", linear_chunked(), {"causal": True}),
    Row("hyla_einsum", "hyla", hyla_einsum(), ALL | {"keep": "bhqk"}),
    Row("hyla_by_hand", "hyla", hyla_by_hand(), BHTD | ALL | {"bias": "b1qk"}),
    Row("hyla_tiled", "hyla", hyla_tiled(), ALL),
    Row("hyla_deep_einsum", "hyla_deep", ablation_einsum("rms_head", 3), ALL),
    Row("hyla_and_softmax_by_hand", "hyla_and_softmax", hyla_and_softmax_by_hand(), BHTD | ALL),
    Row("compositional_search_by_search", "compositional", compositional_search_by_search(), ALL),
    Row("compositional_nonlinear_einsum", "compositional_nonlinear", compositional_einsum("nonlinear"),
        ALL | {"keep": "bhqk"}),
    Row("sliding_gather", "sliding_dilated", sliding_gather(), ALL_W),
    Row("sliding_tiled", "sliding_dilated", sliding_tiled(), BHTD | ALL_W),
    Row("sliding_scatter_pad", "sliding_dilated_pad", sliding_scatter(), ALL_W),
]


def wrong(name, variant, kernel, options, side, where, also, what):
    return Row(name, variant, kernel, options, False, side, where, also, what)


WRONG = [
    # softmax
    wrong("softmax_mask_after", "softmax", softmax_einsum("mask after softmax"), {"keep": "bhqk"},
          "forward", "forward (2)", "",
          "keep multiplies the weights after the softmax, so the sum of exponentials runs over all keys and what is kept "
          "is not normalised"),
    wrong("softmax_reshape", "softmax", softmax_einsum("reshape for transpose"), {},
          "forward", "forward (4)", "",
          "the output (b, h, q, e) is reshaped, not transposed, to (b, q, h, e): heads and positions of o are scrambled"),
    wrong("softmax_dropout_on_scores", "softmax", softmax_einsum("dropout before softmax"), {"dropout": "bhqk"},
          "forward", "forward (2) forward (3)", "forward (1)",
          "dropout multiplies the scores before the softmax instead of the weights after it"),
    wrong("softmax_causal_top_left", "softmax", softmax_sdpa("causal from the top left", causal=True),
          BHTD | {"causal": True},
          "forward", "forward (2)", "",
          "the causal mask is aligned to the first key and not to the last: query i sees keys up to i, not i + k - q"),
    wrong("softmax_hand_dropped_weights", "softmax", softmax_by_hand("dropped weights in softmax backward"),
          BHTD | {"dropout": "bhqk", "bias": "hqk"},
          "backward", "backward (2)", "backward (1)",
          "the softmax backward multiplies by the weights after dropout, c in place of a: ds = c (da - sum(a da))"),
    wrong("softmax_hand_dv_no_dropout", "softmax", softmax_by_hand("dv without dropout"), BHTD | {"dropout": "bhqk"},
          "backward", "backward (4)", "backward (3)",
          "dv is made from the weights before dropout, a in place of c"),
    wrong("softmax_flash_no_rescale", "softmax", softmax_flash("accumulator not rescaled"), {},
          "forward", "forward (4)", "forward (2)",
          "online softmax: when a tile raises the maximum, the sum of exponentials is rescaled but the accumulated output "
          "is not; o is wrong, and with it delta = sum(o do), so dq and dk, while dv is right"),
    wrong("softmax_flash_dq_last_tile", "softmax", softmax_flash("dq stored, not added", columns=4), {},
          "backward", "backward (1)", "",
          "dq is stored and not added over tiles of four keys: only the last tile's share (three keys where k = 7) is left"),
    wrong("softmax_flash_tile_delta", "softmax", softmax_flash("delta of the tile"), {"bias": "h1k"},
          "backward", "backward (2)", "",
          "the softmax backward subtracts sum(a da) over the keys of the tile (3 keys) instead of over all keys"),

    # linear
    wrong("linear_mask_before_bias", "linear", linear_matmul("mask before bias"), BHTD | {"bias": "hqk", "keep": "bhqk"},
          "forward", "forward (1) forward (2)", "",
          "keep multiplies q.k before the bias is added, so a masked key still weighs its bias"),
    wrong("linear_wrong_width", "linear", linear_matmul("length for width"), BHTD | {"bias": "bhqk"},
          "forward", "forward (1)", "",
          "q.k is divided by the square root of the wrong size: the number of queries (axis 2 in this layout) in place of d"),
    wrong("linear_no_mask_in_backward", "linear", linear_batch_by_batch("no mask in the backward"), {"keep": "bhqk"},
          "backward", "backward (2)", "",
          "ds is not multiplied by keep: masked pairs send gradients to q and k"),
    wrong("linear_dbias_last_batch", "linear", linear_batch_by_batch("dbias stored, not added"), {"bias": "hqk"},
          "backward", "backward (1)", "",
          "dbias of a bias without a batch axis is stored and not added: only the last batch entry's share is left"),
    wrong("linear_chunk_state_too_late", "linear", linear_chunked("state of the chunk's end"), {"causal": True},
          "forward", "forward (2) forward (4)", "forward (1) forward (3)",
          "the state already holds the query's own chunk (of four keys) when it is read: in o these keys count twice, "
          "later ones of the chunk once instead of not at all; the gradients are right"),
    wrong("linear_chunk_dk_own_chunk", "linear", linear_chunked("dk of the own chunk only"), {"causal": True},
          "backward", "backward (1)", "",
          "dk lacks the queries of later chunks (the reverse state): only those of the key's own chunk count"),

    # hyla
    wrong("hyla_epsilon_outside", "hyla", hyla_einsum("epsilon outside the root"), {},
          "forward", "forward (3)", "",
          "RMSHead divides by sqrt(mean(s^2)) + epsilon: epsilon is outside the root"),
    wrong("hyla_rms_over_keys", "hyla", hyla_einsum("rms over keys"), {"bias": "bhqk"},
          "forward", "forward (3)", "",
          "the root mean square is taken over keys instead of heads"),
    wrong("hyla_mask_after_rms", "hyla", hyla_einsum("mask after rms"), {"keep": "bhqk"},
          "forward", "forward (2) forward (3)", "forward (4)",
          "keep is applied after RMSHead: the scores of masked heads still count in the root mean square"),
    wrong("hyla_dropout_once", "hyla", hyla_einsum("dropout in the first use only"), {"dropout": "bhqk"},
          "forward", "forward (7)", "forward (4)",
          "the second use of the code, the sum over keys, takes the code before dropout"),
    wrong("hyla_gelu", "hyla", hyla_einsum("gelu"), {"dropout": "hqk"},
          "forward", "forward (6)", "",
          "gelu in place of relu"),
    wrong("hyla_raw_scores_outside", "hyla", hyla_einsum("raw scores in the second use"), {},
          "forward", "forward (7)", "",
          "the second use of the code takes the scores s before RMSHead in place of the code"),
    wrong("hyla_rms_no_grad", "hyla", hyla_einsum("rms without gradient"), {"bias": "hqk", "keep": "bhqk"},
          "backward", "backward (3)", "",
          "the root mean square is a constant to autograd: the term - a mean(a da) of the RMSHead backward is missing"),
    wrong("hyla_hand_z_for_g", "hyla", hyla_by_hand("z for relu of z"), BHTD | {"dropout": "bhqk"},
          "backward", "backward (7)", "backward (6)",
          "dc's term from the second use takes z in place of relu(z)"),
    wrong("hyla_tiled_last_group_squares", "hyla", hyla_tiled("squares of the last group", group=3),
          {"bias": "bhqk"},
          "forward", "forward (3)", "",
          "two-pass RMSHead: the sum of squares is stored and not added over groups of three heads, so only the last "
          "group (two heads where h = 5) counts, still divided by h; forward, and the code recomputed in the backward"),
    wrong("hyla_tiled_group_mean", "hyla", hyla_tiled("mean within the group"), {"keep": "bhqk"},
          "backward", "backward (3)", "",
          "the RMSHead backward takes mean(a da) over the heads of a group (two heads) instead of over all heads"),
    wrong("hyla_tiled_last_queries", "hyla", hyla_tiled("last tile of queries lost"), {"bias": "h1k"},
          "backward", "backward (7)", "",
          "the backward runs over whole tiles of four queries: the incomplete last tile is left out, as if do were 0 there"),

    # ablations
    wrong("hyla_softmax_over_heads", "hyla_softmax_for_rms_head", ablation_einsum("softmax", 2, "softmax over heads"),
          {"bias": "bhqk"},
          "forward", "forward (2)", "",
          "the softmax runs over heads instead of keys"),
    wrong("hyla_deep_transposed", "hyla_deep", ablation_einsum("rms_head", 3, "second layer transposed"),
          {"dropout": "bhqk"},
          "forward", "forward (6)", "",
          "the second layer's weights wv2 are transposed: input and output features exchanged"),
    wrong("hyla_and_softmax_order", "hyla_and_softmax",
          hyla_and_softmax_by_hand("undone in the order of the forward"), BHTD | {"keep": "hqk"},
          "backward", "backward (2)", "",
          "the normaliser's steps are undone in the order of the forward: softmax's backward first, then RMSHead's"),

    # compositional
    wrong("compositional_over_searches", "compositional", compositional_einsum("dot", "softmax over searches"),
          {"keep": "qk"},
          "forward", "forward (6)", "",
          "the value scores' softmax runs over searches instead of retrievals"),
    wrong("compositional_wrong_width", "compositional", compositional_einsum("dot", "width of the value"), {},
          "forward", "forward (5)", "forward (6)",
          "the value scores are divided by sqrt(e), the width of the values, instead of sqrt(c), that of the selector; "
          "value_scores.py dot (1) or (2)"),
    wrong("compositional_linear_number_mask", "compositional_linear",
          compositional_einsum("linear", "mask added as a number"), {"keep": "bhqk"},
          "forward", "forward (2)", "forward (1)",
          "keep is added to the scores as 0 and 1 instead of removing keys"),
    wrong("compositional_nonlinear_relu_early", "compositional_nonlinear",
          compositional_einsum("nonlinear", "relu before the sum"), {"dropout": "bhqk"},
          "forward", "forward (5)", "",
          "relu acts on the retrieval's term alone, before the selector's term and the bias are added, which are then "
          "the same for all retrievals: as good as missing; value_scores.py nonlinear (2) or (3)"),
    wrong("compositional_linear_detached", "compositional_linear", compositional_einsum("linear", "value scores detached"),
          {"bias": "hqk"},
          "backward", "backward (7)", "backward (6) backward (5)",
          "the value scores are detached: dg is 0, so the scoring's arrays and the selector get no gradient and the "
          "retrievals only that of the weighted sum"),
    wrong("compositional_one_use", "compositional", compositional_search_by_search("one use of the retrievals"),
          {"bias": "bhqk"},
          "backward", "backward (5)", "backward (7)",
          "dt lacks the retrievals' gradient from the value scores: dt is g do alone; value_scores.py dot (2)"),
    wrong("compositional_sum_over_queries", "compositional", compositional_search_by_search("sum over queries"),
          {"dropout": "bhqk"},
          "backward", "backward (6)", "",
          "the backward of the value scores' softmax sums g dg over queries instead of retrievals"),
    wrong("compositional_dv_last_search", "compositional", compositional_search_by_search("dv stored, not added"),
          {"keep": "bhqk"},
          "backward", "backward (4)", "",
          "dv is stored and not added over searches: only the last search's share is left"),

    # sliding, dilated
    wrong("sliding_values_no_dilation", "sliding_dilated", sliding_gather("values without dilation"), {},
          "forward", "forward (6)", "",
          "values are read at position - w, keys at position - 2 w: the dilation is forgotten for the values"),
    wrong("sliding_offsets_reversed", "sliding_dilated", sliding_gather("offsets reversed"), {"bias": "hqw"},
          "forward", "forward (2)", "",
          "offset_bias is read in reverse order, the oldest offset first"),
    wrong("sliding_offset_bias_scaled", "sliding_dilated", sliding_gather("offset bias scaled"), {"keep": "hqw"},
          "forward", "forward (2)", "forward (1)",
          "offset_bias is added before the division by sqrt(d), so it is divided too"),
    wrong("sliding_pads_masked", "sliding_dilated_pad", sliding_gather("pads masked"), {"dropout": "bhqw"},
          "forward", "forward (4)", "",
          "positions before the first are masked although a pad stands there: the semantics of the other page"),
    wrong("sliding_scatter_overwrites", "sliding_dilated", sliding_scatter("scatter overwrites"), {"keep": "bhqw"},
          "backward", "backward (1)", "",
          "dk's scatter overwrites instead of adding: of the offsets that reach a key only the last is left"),
    wrong("sliding_one_pad_row", "sliding_dilated_pad", sliding_scatter("one row of padding"), {},
          "backward", "backward (1)", "",
          "dpad_k takes the gradient of the last row of padding (position -1) alone instead of the sum over all rows"),
    wrong("sliding_halo_too_short", "sliding_dilated", sliding_tiled("halo without dilation"), BHTD,
          "forward", "forward (4)", "forward (1) forward (6)",
          "a tile of two queries loads too few keys before it, w - 1 instead of 2 (w - 1); what it did not load counts "
          "as out of range and is masked"),
]

ROWS = RIGHT + WRONG
