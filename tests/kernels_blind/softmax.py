"""Softmax attention in many hands."""

import math

import torch
import torch.nn.functional as F

from . import Case, autograd, leaves, tensors

TILE = 4
INF = float("inf")


# ------------------------------------------------------------------------------------------------------------ correct


def einsum(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    if bias is not None:
        s = s + bias
    if keep is not None:
        s = s.masked_fill(~keep, -INF)
    a = torch.softmax(s, dim=-1)
    if keep is not None:
        a = a.masked_fill(~keep, 0)
    if dropout is not None:
        a = a * dropout
    return autograd(torch.einsum("bhqk,bkhe->bqhe", a, v), do, q, k, v, bias)


def library_call(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    mask = bias
    if keep is not None:
        hidden = torch.zeros(keep.shape, dtype=q.dtype).masked_fill(~keep, -INF)
        mask = hidden if bias is None else bias + hidden
    if mask is not None:
        mask = mask.expand(q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    qt, kt, vt = (x.transpose(1, 2) for x in (q, k, v))
    if dropout is None:
        o = F.scaled_dot_product_attention(qt, kt, vt, attn_mask=mask)
    else:                                   # the weights themselves, with the unit vectors as values
        unit = torch.eye(k.shape[1], dtype=q.dtype).expand(*kt.shape[:3], -1)
        o = (F.scaled_dot_product_attention(qt, kt, unit, attn_mask=mask) * dropout) @ vt
    return autograd(o.transpose(1, 2), do, q, k, v, bias)


class Flash(torch.autograd.Function):
    """Online softmax over tiles of keys; the backward recomputes each tile from the log of the sum."""

    @staticmethod
    def scores(q, k, bias, keep, cut):
        s = q @ k[:, :, cut].mT * q.shape[-1] ** -0.5
        s = s if bias is None else s + bias[..., cut]
        return s if keep is None else s.masked_fill(~keep[..., cut], -INF)

    @staticmethod
    def forward(ctx, q, k, v, bias, keep, dropout):
        top = torch.full(q.shape[:3], -INF, dtype=q.dtype)[..., None]
        total, acc = torch.zeros_like(top), q.new_zeros(*q.shape[:3], v.shape[-1])
        for start in range(0, k.shape[2], TILE):
            cut = slice(start, start + TILE)
            s = Flash.scores(q, k, bias, keep, cut)
            new = torch.maximum(top, s.amax(-1, keepdim=True))
            safe = new.masked_fill(new == -INF, 0)
            p, rescale = torch.exp(s - safe), torch.exp(top - safe)
            total = total * rescale + p.sum(-1, keepdim=True)
            acc = acc * rescale + (p if dropout is None else p * dropout[..., cut]) @ v[:, :, cut]
            top = new
        o = acc / total.masked_fill(total == 0, 1)
        lse = torch.where(total == 0, torch.zeros_like(top), top + torch.log(total))
        ctx.save_for_backward(q, k, v, bias, keep, dropout, o, lse)
        return o

    @staticmethod
    def backward(ctx, do):
        q, k, v, bias, keep, dropout, o, lse = ctx.saved_tensors
        delta, scale = (do * o).sum(-1, keepdim=True), q.shape[-1] ** -0.5
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        dbias = None if bias is None else torch.zeros_like(bias)
        for start in range(0, k.shape[2], TILE):
            cut = slice(start, start + TILE)
            p, dp = torch.exp(Flash.scores(q, k, bias, keep, cut) - lse), do @ v[:, :, cut].mT
            if dropout is not None:
                dp = dp * dropout[..., cut]
            dv[:, :, cut] = (p if dropout is None else p * dropout[..., cut]).mT @ do
            ds = p * (dp - delta)
            dq += ds @ k[:, :, cut] * scale
            dk[:, :, cut] = ds.mT @ q * scale
            if bias is not None:
                dbias[..., cut] = ds
        return dq, dk, dv, dbias, None, None


def flash(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    pairs = q.shape[0], q.shape[2], q.shape[1], k.shape[1]
    wide = (None if x is None else x.expand(pairs) for x in (bias, keep, dropout))
    o = Flash.apply(*(x.transpose(1, 2) for x in (q, k, v)), *wide)
    return autograd(o.transpose(1, 2), do, q, k, v, bias)


def mixed_precision(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
    small, wide = q.dtype, torch.promote_types(q.dtype, torch.float32)
    q, k, v, do = (x.transpose(1, 2).to(wide) for x in (q, k, v, do))
    drop = (lambda x: x) if dropout is None else (lambda x: x * dropout.to(wide))
    s = (q @ k.mT) * q.shape[-1] ** -0.5
    if bias is not None:
        s += bias.to(wide)
    there = torch.ones_like(s, dtype=torch.bool) if keep is None else keep.expand(s.shape)
    top = s.masked_fill(~there, -INF).amax(-1, keepdim=True).clamp(min=torch.finfo(wide).min)
    p = torch.where(there, torch.exp(torch.where(there, s - top, 0)), 0)
    p /= p.sum(-1, keepdim=True).clamp(min=torch.finfo(wide).tiny)
    o = drop(p) @ v
    dp = drop(do @ v.mT)
    ds = p * (dp - (p * dp).sum(-1, keepdim=True))
    dq, dk, dv = ds @ k * q.shape[-1] ** -0.5, ds.mT @ q * q.shape[-1] ** -0.5, drop(p).mT @ do
    dbias = None if bias is None else ds.sum_to_size(bias.shape).to(small)
    return *(x.transpose(1, 2).to(small) for x in (o, dq, dk, dv)), dbias


# ----------------------------------------------------------------------------------------------------------- mistaken


def scale_of_the_values(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    scale = v.shape[-1] ** -0.5
    s = torch.einsum("bqhd,bkhd->bhqk", q * scale, k)
    s = s if bias is None else s + bias
    if keep is not None:
        s = torch.where(keep, s, -INF)
    a = torch.nan_to_num(F.softmax(s, dim=-1))
    a = a if dropout is None else a * dropout
    return autograd(torch.einsum("bhqk,bkhe->bqhe", a, v), do, q, k, v, bias)


def over_queries(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    s = torch.matmul(q.permute(0, 2, 1, 3), k.permute(0, 2, 3, 1)).div(q.size(-1) ** 0.5)
    if bias is not None:
        s = s + bias
    if keep is not None:
        s = s.masked_fill(keep.logical_not(), torch.finfo(s.dtype).min)
    a = s.softmax(-2)
    if keep is not None:
        a = a.masked_fill(keep.logical_not(), 0.0)
    if dropout is not None:
        a = a * dropout
    o = torch.matmul(a, v.permute(0, 2, 1, 3)).permute(0, 2, 1, 3)
    return autograd(o, do, q, k, v, bias)


def mask_after_softmax(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    if bias is not None:
        s = s + bias
    p = torch.exp(s - s.amax(-1, keepdim=True).detach())
    a = p / p.sum(-1, keepdim=True)
    for mask in (keep, dropout):
        if mask is not None:
            a = a * mask
    return autograd(torch.einsum("bhqk,bkhe->bqhe", a, v), do, q, k, v, bias)


def finite_penalty(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    s = (q.transpose(1, 2) @ k.permute(0, 2, 3, 1)) / math.sqrt(q.shape[-1])
    if bias is not None:
        s = s + bias
    if keep is not None:
        s = s.masked_fill(~keep, -1e9)
    a = torch.softmax(s, -1)
    if dropout is not None:
        a = a * dropout
    return autograd((a @ v.transpose(1, 2)).transpose(1, 2), do, q, k, v, bias)


def stale_sum(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    b, t, h, d = q.shape
    n = k.shape[1]
    wide = [None if x is None else x.expand(b, h, t, n) for x in (bias, keep, dropout)]
    top, total, acc = torch.full((b, h, t, 1), -INF, dtype=q.dtype), 0, 0
    for j in range(0, n, TILE):
        add, there, drop = (None if x is None else x[..., j:j + TILE] for x in wide)
        s = torch.einsum("bqhd,bkhd->bhqk", q, k[:, j:j + TILE]) / d ** 0.5
        s = s if add is None else s + add
        s = s if there is None else s.masked_fill(~there, -INF)
        new = torch.maximum(top, s.detach().amax(-1, keepdim=True))
        safe = new.clamp(min=torch.finfo(q.dtype).min)
        p, alpha = torch.exp(s - safe), torch.exp(top - safe)
        total = total + p.sum(-1, keepdim=True)
        acc = acc * alpha + torch.einsum("bhqk,bkhe->bhqe", p if drop is None else p * drop, v[:, j:j + TILE])
        top = new
    o = acc / total.masked_fill(total == 0, 1)
    return autograd(o.transpose(1, 2), do, q, k, v, bias)


def last_attended_key_skipped(q, k, v, *, do, bias=None, keep=None, dropout=None):
    """Causal attention in one: the keys after the last one that a query attends to are never touched."""
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    pairs = q.shape[0], q.shape[2], q.shape[1], k.shape[1]
    there = torch.ones(pairs, dtype=torch.bool) if keep is None else keep.expand(pairs)
    rows = []
    for i in range(q.shape[1]):
        used = there[:, :, i].any(0).any(0).nonzero().flatten().tolist()
        n = used[-1] if used else 0
        s = torch.einsum("bhd,bkhd->bhk", q[:, i], k[:, :n]) * q.shape[-1] ** -0.5
        s = s if bias is None else s + bias.expand(pairs)[:, :, i, :n]
        s = s.masked_fill(~there[:, :, i, :n], -INF)
        a = s.softmax(-1).masked_fill(~there[:, :, i, :n], 0)
        a = a if dropout is None else a * dropout.expand(pairs)[:, :, i, :n]
        rows.append(torch.einsum("bhk,bkhe->bhe", a, v[:, :n]))
    return autograd(torch.stack(rows, 1), do, q, k, v, bias)


def weights(q, k, bias, keep):
    """a (b, h, q, k) and the scaled queries, all with heads before positions."""
    q = q * q.shape[-1] ** -0.5
    s = q @ k.mT
    if bias is not None:
        s = s + bias
    if keep is not None:
        s = s.masked_fill(~keep, -INF)
    a = torch.softmax(s, -1)
    return (a if keep is None else a.masked_fill(~keep, 0)), q


class ScaledTwice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, bias, keep, dropout):
        a, scaled = weights(q, k, bias, keep)
        ctx.save_for_backward(scaled, k, v, bias, a, dropout)
        return (a if dropout is None else a * dropout) @ v

    @staticmethod
    def backward(ctx, do):
        q, k, v, bias, a, dropout = ctx.saved_tensors
        dc, c = do @ v.mT, a
        if dropout is not None:
            dc, c = dc * dropout, a * dropout
        ds = a * (dc - (a * dc).sum(-1, keepdim=True))
        scale = q.shape[-1] ** -0.5
        dq, dk = (ds @ k) * scale, (ds.mT @ q) * scale
        return dq, dk, c.mT @ do, None if bias is None else ds.sum_to_size(bias.shape), None, None


def key_gradient_scaled_twice(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    o = ScaledTwice.apply(*(x.transpose(1, 2) for x in (q, k, v)), bias, keep, dropout)
    return autograd(o.transpose(1, 2), do, q, k, v, bias)


def dropped_weights_in_the_jacobian(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
    q, k, v, do = (x.transpose(1, 2) for x in (q, k, v, do))
    a, scaled = weights(q, k, bias, keep)
    p = a if dropout is None else a * dropout
    o = p @ v
    delta = (do * o).sum(-1, keepdim=True)
    ds = p * (do @ v.mT - delta)
    dq, dk, dv = ds @ k * q.shape[-1] ** -0.5, ds.mT @ scaled, p.mT @ do
    return *(x.transpose(1, 2) for x in (o, dq, dk, dv)), None if bias is None else ds.sum_to_size(bias.shape)


def mask_forgotten_in_recomputation(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
    scale = q.shape[-1] ** -0.5
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) * scale + (0 if bias is None else bias)
    masked = s if keep is None else s.masked_fill(~keep, -INF)
    lse = torch.logsumexp(masked, -1, keepdim=True)
    lse = torch.where(lse == -INF, INF, lse)                    # nothing kept: every weight is 0
    c = torch.exp(masked - lse) * (1 if dropout is None else dropout)
    o = torch.einsum("bhqk,bkhe->bqhe", c, v)
    dv = torch.einsum("bhqk,bqhe->bkhe", c, do)
    p = torch.exp(s - lse)
    da = torch.einsum("bqhe,bkhe->bhqk", do, v) * (1 if dropout is None else dropout)
    ds = p * (da - torch.einsum("bqhe,bqhe->bhq", do, o)[..., None])
    dq = torch.einsum("bhqk,bkhd->bqhd", ds, k) * scale
    dk = torch.einsum("bhqk,bqhd->bkhd", ds, q) * scale
    return o, dq, dk, dv, None if bias is None else ds.sum_to_size(bias.shape)


def value_gradient_without_dropout(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
    q, k, v, do = (x.transpose(1, 2) for x in (q, k, v, do))
    a, scaled = weights(q, k, bias, keep)
    o = (a if dropout is None else a * dropout) @ v
    dv = a.mT @ do
    da = do @ v.mT
    da = da if dropout is None else da * dropout
    ds = torch._softmax_backward_data(da, a, -1, a.dtype)
    dq, dk = ds @ k * q.shape[-1] ** -0.5, ds.mT @ scaled
    return *(x.transpose(1, 2) for x in (o, dq, dk, dv)), None if bias is None else ds.sum_to_size(bias.shape)


def bias_gradient_stored(q, k, v, *, do, bias=None, keep=None, dropout=None):
    """One sample after the other, as a grid of blocks would do it."""
    q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
    pairs = q.shape[0], q.shape[2], q.shape[1], k.shape[1]
    o, dq, dk, dv = torch.empty_like(do), torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    dbias = None if bias is None else torch.zeros_like(bias)
    for n in range(q.shape[0]):
        qn, kn, vn, don = (x[n].transpose(0, 1) for x in (q, k, v, do))
        add, there, drop = (None if x is None else x.expand(pairs)[n] for x in (bias, keep, dropout))
        a, scaled = weights(qn, kn, add, there)
        c = a if drop is None else a * drop
        da = don @ vn.mT if drop is None else don @ vn.mT * drop
        ds = a * (da - (a * da).sum(-1, keepdim=True))
        o[n], dv[n] = (c @ vn).transpose(0, 1), (c.mT @ don).transpose(0, 1)
        dq[n], dk[n] = (ds @ kn).transpose(0, 1) * q.shape[-1] ** -0.5, (ds.mT @ scaled).transpose(0, 1)
        if bias is not None:
            place = dbias if bias.dim() < 4 else dbias[n % bias.shape[0]]
            place.copy_(ds.sum_to_size(place.shape))
    return o, dq, dk, dv, dbias


def reshaped_for_transposed(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    a, _ = weights(q.transpose(1, 2), k.transpose(1, 2), bias, keep)
    a = a if dropout is None else a * dropout
    o = torch.matmul(a, v.transpose(1, 2)).contiguous()
    return autograd(o.view(q.shape[0], q.shape[1], q.shape[2], v.shape[-1]), do, q, k, v, bias)


def tail_of_value_gradient(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
    q, k, v, do = (x.transpose(1, 2) for x in (q, k, v, do))
    a, scaled = weights(q, k, bias, keep)
    drop = torch.ones_like(a) if dropout is None else dropout.expand(a.shape)
    o, dv = torch.zeros_like(do), torch.zeros_like(v)
    da = torch.empty_like(a)
    for j in range(math.ceil(k.shape[2] / TILE)):
        cut = slice(j * TILE, (j + 1) * TILE)
        o += (a * drop)[..., cut] @ v[:, :, cut]
        da[..., cut] = do @ v[:, :, cut].mT * drop[..., cut]
    for j in range(k.shape[2] // TILE):
        cut = slice(j * TILE, (j + 1) * TILE)
        dv[:, :, cut] = (a * drop)[..., cut].mT @ do
    ds = a * (da - (da * a).sum(-1, keepdim=True))
    dq, dk = ds @ k * q.shape[-1] ** -0.5, ds.mT @ scaled
    return *(x.transpose(1, 2) for x in (o, dq, dk, dv)), None if bias is None else ds.sum_to_size(bias.shape)


CASES = [
    Case("einsum", "softmax", einsum, "", "Correct: einsum and autograd."),
    Case("library_call", "softmax", library_call, "", "Correct: scaled_dot_product_attention and autograd."),
    Case("flash", "softmax", flash, "", "Correct: online softmax over tiles of keys, backward by hand."),
    Case("mixed_precision", "softmax", mixed_precision, "", "Correct: half precision in and out, float32 inside."),
    Case("scale_of_the_values", "softmax", scale_of_the_values, "forward (1)",
         "The scores are divided by the root of the values' width, not of the keys'."),
    Case("over_queries", "softmax", over_queries, "forward (2)", "The softmax runs over queries."),
    Case("mask_after_softmax", "softmax", mask_after_softmax, "forward (2)",
         "Keep multiplies the weights after the softmax, so that they no longer sum to 1 (with keep)."),
    Case("finite_penalty", "softmax", finite_penalty, "forward (2)",
         "Masked scores are -1e9, so a query that keeps nothing gets the mean of the values (with keep)."),
    Case("stale_sum", "softmax", stale_sum, "forward (2)",
         "The online softmax does not rescale its sum when a later tile has a larger maximum."),
    Case("last_attended_key_skipped", "softmax", last_attended_key_skipped, "forward (2)",
         "The bound of the keys that a query attends to is one too small."),
    Case("key_gradient_scaled_twice", "softmax", key_gradient_scaled_twice, "backward (1)",
         "dk is made from the queries already scaled, and scaled again."),
    Case("dropped_weights_in_the_jacobian", "softmax", dropped_weights_in_the_jacobian, "backward (2)",
         "The softmax's derivative takes the weights after the dropout for those before it (with dropout)."),
    Case("mask_forgotten_in_recomputation", "softmax", mask_forgotten_in_recomputation, "backward (2)",
         "The backward recomputes the weights from unmasked scores (with keep)."),
    Case("value_gradient_without_dropout", "softmax", value_gradient_without_dropout, "backward (4)",
         "dv is made with the weights before the dropout (with dropout)."),
    Case("bias_gradient_stored", "softmax", bias_gradient_stored, "backward (1)",
         "Each sample overwrites the gradient of a bias that samples share (with a bias without batch axis)."),
    Case("reshaped_for_transposed", "softmax", reshaped_for_transposed, "forward (4)",
         "The output's heads and positions are exchanged by a view instead of a transposition."),
    Case("tail_of_value_gradient", "softmax", tail_of_value_gradient, "backward (4)",
         "The loop for dv leaves out the last tile of keys where it is not full."),
]
