"""HYLA in many hands."""

import math

import torch
import torch.nn.functional as F

from . import Case, autograd, leaves, tensors

EPSILON = 1e-6
TILE = 4


# ------------------------------------------------------------------------------------------------------------ correct


def einsum(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    s = s if bias is None else s + bias
    s = s if keep is None else s.masked_fill(~keep, 0)
    a = s * torch.rsqrt(s.square().mean(1, keepdim=True) + EPSILON)
    a = a if dropout is None else a * dropout
    z = torch.einsum("bhqk,bkhe->bqke", a, v)
    return autograd(torch.einsum("bhqk,bqke->bqhe", a, F.relu(z)), do, q, k, v, bias)


class Pairs(torch.autograd.Function):
    """The code as one small matrix (heads) for each query and key: products over heads are batched matmuls."""

    @staticmethod
    def forward(ctx, q, k, v, bias, keep, dropout):
        scale = q.shape[-1] ** -0.5
        s = torch.matmul(q.permute(0, 2, 1, 3), k.permute(0, 2, 3, 1)) * scale
        if bias is not None:
            s += bias
        if keep is not None:
            s *= keep
        s = s.permute(0, 2, 3, 1)                                       # b q k h
        rho = torch.rsqrt(s.pow(2).mean(-1, keepdim=True) + EPSILON)
        a = s * rho
        drop = None if dropout is None else dropout.expand(q.shape[0], q.shape[2], q.shape[1], k.shape[1])
        c = a if drop is None else a * drop.permute(0, 2, 3, 1)
        hidden = torch.matmul(c.unsqueeze(-2), v.unsqueeze(1)).squeeze(-2).clamp(min=0)    # b q k e
        ctx.save_for_backward(q, k, v, bias, keep, drop, a, rho, hidden)
        return torch.matmul(c.transpose(-1, -2), hidden)

    @staticmethod
    def backward(ctx, do):
        q, k, v, bias, keep, drop, a, rho, hidden = ctx.saved_tensors
        c = a if drop is None else a * drop.permute(0, 2, 3, 1)
        dz = torch.matmul(c, do) * (hidden > 0)
        dc = torch.matmul(hidden, do.transpose(-1, -2)) + torch.einsum("bqke,bkhe->bqkh", dz, v)
        dv = torch.einsum("bqkh,bqke->bkhe", c, dz)
        da = dc if drop is None else dc * drop.permute(0, 2, 3, 1)
        ds = (rho * (da - a * (a * da).mean(-1, keepdim=True))).permute(0, 3, 1, 2)
        ds = ds if keep is None else ds * keep
        dq = torch.matmul(ds, k.transpose(1, 2)).transpose(1, 2) * q.shape[-1] ** -0.5
        dk = torch.matmul(ds.mT, q.transpose(1, 2)).transpose(1, 2) * q.shape[-1] ** -0.5
        return dq, dk, dv, None if bias is None else ds.sum_to_size(bias.shape), None, None


def pairs(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    return autograd(Pairs.apply(q, k, v, bias, keep, dropout), do, q, k, v, bias)


def tiled(q, k, v, *, do, bias=None, keep=None, dropout=None):
    """One pass over tiles of keys, float32 inside whatever comes in; the backward recomputes."""
    q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
    small, wide = q.dtype, torch.promote_types(q.dtype, torch.float32)
    given = None if bias is None else bias.shape
    full = q.shape[0], q.shape[2], q.shape[1], k.shape[1]
    bias, keep, dropout = (None if x is None else x.expand(full) for x in (bias, keep, dropout))
    qs, k, v, do = q.to(wide) * q.shape[-1] ** -0.5, k.to(wide), v.to(wide), do.to(wide)
    o, dq, dk, dv = torch.zeros_like(do), torch.zeros_like(qs), torch.zeros_like(k), torch.zeros_like(v)
    dbias = None if bias is None else torch.zeros(full, dtype=wide)
    for j in range(0, k.shape[1], TILE):
        cut = slice(j, j + TILE)
        s = torch.einsum("bqhd,bkhd->bhqk", qs, k[:, cut])
        s = s if bias is None else s + bias[..., cut].to(wide)
        s = s if keep is None else torch.where(keep[..., cut], s, 0)
        drop = 1 if dropout is None else dropout[..., cut].to(wide)
        rho = 1 / torch.sqrt((s * s).sum(1, keepdim=True) / s.shape[1] + EPSILON)
        c = s * rho * drop
        z = torch.einsum("bhqk,bkhe->bqke", c, v[:, cut])
        o += torch.einsum("bhqk,bqke->bqhe", c, z.relu())
        dz = torch.einsum("bhqk,bqhe->bqke", c, do).masked_fill(z <= 0, 0)
        dv[:, cut] = torch.einsum("bhqk,bqke->bkhe", c, dz)
        da = drop * (torch.einsum("bqhe,bqke->bhqk", do, z.relu()) + torch.einsum("bqke,bkhe->bhqk", dz, v[:, cut]))
        ds = rho * da - rho ** 3 * s * (s * da).mean(1, keepdim=True)
        ds = ds if keep is None else torch.where(keep[..., cut], ds, 0)
        dq += torch.einsum("bhqk,bkhd->bqhd", ds, k[:, cut]) * q.shape[-1] ** -0.5
        dk[:, cut] = torch.einsum("bhqk,bqhd->bkhd", ds, qs)
        if bias is not None:
            dbias[..., cut] = ds
    dbias = None if bias is None else dbias.sum_to_size(given).to(small)
    return *(x.to(small) for x in (o, dq, dk, dv)), dbias


# ----------------------------------------------------------------------------------------------------------- mistaken


def epsilon_outside_the_root(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    s = s if bias is None else s + bias
    s = s if keep is None else s.masked_fill(~keep, 0)
    a = s / (torch.linalg.vector_norm(s, dim=1, keepdim=True) / s.shape[1] ** 0.5 + EPSILON)
    a = a if dropout is None else a * dropout
    z = torch.einsum("bhqk,bkhe->bqke", a, v)
    return autograd(torch.einsum("bhqk,bqke->bqhe", a, torch.relu(z)), do, q, k, v, bias)


def normalised_over_keys(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    s = (q.transpose(1, 2) @ k.permute(0, 2, 3, 1)) * q.shape[-1] ** -0.5
    s = s if bias is None else s + bias
    s = s if keep is None else s * keep
    a = F.rms_norm(s, s.shape[-1:], eps=EPSILON)
    a = a if dropout is None else a * dropout
    hidden = torch.einsum("bhqk,bkhe->bqke", a, v).relu()
    return autograd(torch.einsum("bhqk,bqke->bqhe", a, hidden), do, q, k, v, bias)


def unit_length_code(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    s = torch.einsum("bqhd,bkhd->bqkh", q, k).mul(q.shape[-1] ** -0.5)
    if bias is not None:
        s = s + bias.expand(s.shape[0], s.shape[3], s.shape[1], s.shape[2]).permute(0, 2, 3, 1)
    if keep is not None:
        s = s * keep.expand(s.shape[0], s.shape[3], s.shape[1], s.shape[2]).permute(0, 2, 3, 1)
    a = s * torch.rsqrt(s.square().sum(-1, keepdim=True) + EPSILON)
    if dropout is not None:
        a = a * dropout.expand(s.shape[0], s.shape[3], s.shape[1], s.shape[2]).permute(0, 2, 3, 1)
    hidden = torch.einsum("bqkh,bkhe->bqke", a, v).relu()
    return autograd(torch.einsum("bqkh,bqke->bqhe", a, hidden), do, q, k, v, bias)


def root_held_constant(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    s = s if bias is None else s + bias
    s = s if keep is None else s.masked_fill(~keep, 0)
    with torch.no_grad():
        rho = torch.rsqrt(s.pow(2).mean(1, keepdim=True) + EPSILON)
    a = s * rho
    a = a if dropout is None else a * dropout
    z = torch.einsum("bhqk,bkhe->bqke", a, v)
    return autograd(torch.einsum("bhqk,bqke->bqhe", a, F.relu(z)), do, q, k, v, bias)


def mean_over_kept_heads(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    s = s if bias is None else s + bias
    there = torch.ones_like(s) if keep is None else keep.expand(s.shape).to(s.dtype)
    s = s * there
    mean = s.square().sum(1, keepdim=True) / there.sum(1, keepdim=True).clamp(min=1)
    a = s / torch.sqrt(mean + EPSILON)
    a = a if dropout is None else a * dropout
    z = torch.einsum("bhqk,bkhe->bqke", a, v)
    return autograd(torch.einsum("bhqk,bqke->bqhe", a, z.clamp_min(0)), do, q, k, v, bias)


def forward_pass(q, k, v, bias, keep, dropout):
    """What the hand-written backwards below keep: c, a, rho, z and o, heads before positions in the codes."""
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    s = s if bias is None else s + bias
    s = s if keep is None else s * keep
    rho = torch.rsqrt((s * s).mean(1, keepdim=True) + EPSILON)
    a = s * rho
    c = a if dropout is None else a * dropout
    z = torch.einsum("bhqk,bkhe->bqke", c, v)
    return c, a, rho, z, torch.einsum("bhqk,bqke->bqhe", c, z.relu())


def outer_use_forgotten(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
    c, a, rho, z, o = forward_pass(q, k, v, bias, keep, dropout)
    dz = torch.einsum("bhqk,bqhe->bqke", c, do) * (z > 0)
    dv = torch.einsum("bhqk,bqke->bkhe", c, dz)
    da = torch.einsum("bqke,bkhe->bhqk", dz, v)
    da = da if dropout is None else da * dropout
    ds = rho * (da - a * (a * da).mean(1, keepdim=True))
    ds = ds if keep is None else ds * keep
    dq = torch.einsum("bhqk,bkhd->bqhd", ds, k) / math.sqrt(q.shape[-1])
    dk = torch.einsum("bhqk,bqhd->bkhd", ds, q) / math.sqrt(q.shape[-1])
    return o, dq, dk, dv, None if bias is None else ds.sum_to_size(bias.shape)


def relu_mask_of_the_gradient(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
    c, a, rho, z, o = forward_pass(q, k, v, bias, keep, dropout)
    dg = torch.einsum("bhqk,bqhe->bqke", c, do)
    dz = torch.where(dg > 0, dg, 0)
    dv = torch.einsum("bhqk,bqke->bkhe", c, dz)
    da = torch.einsum("bqke,bkhe->bhqk", dz, v) + torch.einsum("bqhe,bqke->bhqk", do, z.relu())
    if dropout is not None:
        da *= dropout
    ds = rho * (da - a * (a * da).mean(1, keepdim=True))
    if keep is not None:
        ds *= keep
    dq = torch.einsum("bhqk,bkhd->bqhd", ds, k) * q.shape[-1] ** -0.5
    dk = torch.einsum("bhqk,bqhd->bkhd", ds, q) * q.shape[-1] ** -0.5
    return o, dq, dk, dv, None if bias is None else ds.sum_to_size(bias.shape)


def dropout_on_the_first_use(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    s = s if bias is None else s + bias
    s = s if keep is None else s.masked_fill(~keep, 0)
    code = s * torch.rsqrt(s.square().mean(1, keepdim=True) + EPSILON)
    dropped = code if dropout is None else code * dropout
    hidden = F.relu(torch.einsum("bhqk,bkhe->bqke", dropped, v))
    return autograd(torch.einsum("bhqk,bqke->bqhe", code, hidden), do, q, k, v, bias)


def masked_after_normalising(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    s = torch.matmul(q.transpose(1, 2), k.transpose(1, 2).mT) / math.sqrt(q.shape[-1])
    if bias is not None:
        s = s + bias
    code = s / torch.sqrt(s.pow(2).mean(dim=1, keepdim=True) + EPSILON)
    for factor in (keep, dropout):
        code = code if factor is None else code * factor
    hidden = torch.einsum("bhqk,bkhe->bqke", code, v).relu()
    return autograd(torch.einsum("bhqk,bqke->bqhe", code, hidden), do, q, k, v, bias)


def last_head_skipped(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    heads = q.shape[2]
    s = torch.stack([q[:, :, h] @ k[:, :, h].mT for h in range(heads)], 1) / math.sqrt(q.shape[-1])
    s = s if bias is None else s + bias
    s = s if keep is None else s.masked_fill(~keep, 0)
    a = s * torch.rsqrt(s.square().mean(1, keepdim=True) + EPSILON)
    a = a if dropout is None else a * dropout
    z = a[:, 0, :, :, None] * v[:, None, :, 0]
    for h in range(1, heads - 1):
        z = z + a[:, h, :, :, None] * v[:, None, :, h]
    o = torch.stack([(a[:, h, :, :, None] * z.relu()).sum(2) for h in range(heads)], 2)
    return autograd(o, do, q, k, v, bias)


def scale_squared(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    scale = q.shape[-1] ** -0.5
    s = torch.einsum("bqhd,bkhd->bhqk", q * scale, k * scale)
    s = s if bias is None else s + bias
    s = s if keep is None else s.masked_fill(~keep, 0)
    a = s * torch.rsqrt(s.square().mean(1, keepdim=True) + EPSILON)
    a = a if dropout is None else a * dropout
    z = torch.einsum("bhqk,bkhe->bqke", a, v)
    return autograd(torch.einsum("bhqk,bqke->bqhe", a, F.relu(z)), do, q, k, v, bias)


def query_gradient_of_the_last_tile(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
    full, scale = (q.shape[0], q.shape[2], q.shape[1], k.shape[1]), q.shape[-1] ** -0.5
    wide = [None if x is None else x.expand(full) for x in (bias, keep, dropout)]
    o, dq, dk, dv = torch.zeros_like(do), torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    dbias = q.new_zeros(full)
    for j in range(0, k.shape[1], TILE):
        kt, vt = k[:, j:j + TILE], v[:, j:j + TILE]
        add, there, drop = (None if x is None else x[..., j:j + TILE] for x in wide)
        c, a, rho, z, part = forward_pass(q, kt, vt, add, there, drop)
        o += part
        dz = torch.einsum("bhqk,bqhe->bqke", c, do) * (z > 0)
        dv[:, j:j + TILE] = torch.einsum("bhqk,bqke->bkhe", c, dz)
        da = torch.einsum("bqke,bkhe->bhqk", dz, vt) + torch.einsum("bqhe,bqke->bhqk", do, z.relu())
        da = da if drop is None else da * drop
        ds = rho * (da - a * (a * da).mean(1, keepdim=True))
        ds = ds if there is None else ds * there
        dq = torch.einsum("bhqk,bkhd->bqhd", ds, kt) * scale
        dk[:, j:j + TILE] = torch.einsum("bhqk,bqhd->bkhd", ds, q) * scale
        dbias[..., j:j + TILE] = ds
    return o, dq, dk, dv, None if bias is None else dbias.sum_to_size(bias.shape)


def dropout_not_undone(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
    c, a, rho, z, o = forward_pass(q, k, v, bias, keep, dropout)
    dz = torch.einsum("bhqk,bqhe->bqke", c, do) * z.gt(0)
    dv = torch.einsum("bhqk,bqke->bkhe", c, dz)
    da = torch.einsum("bqhe,bqke->bhqk", do, z.clamp(min=0)) + torch.einsum("bqke,bkhe->bhqk", dz, v)
    ds = rho * (da - a * (a * da).mean(1, keepdim=True))
    ds = ds if keep is None else ds.masked_fill(~keep, 0)
    dq = torch.einsum("bhqk,bkhd->bqhd", ds, k) * q.shape[-1] ** -0.5
    dk = torch.einsum("bhqk,bqhd->bkhd", ds, q) * q.shape[-1] ** -0.5
    return o, dq, dk, dv, None if bias is None else ds.sum_to_size(bias.shape)


class Unmasked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, bias, keep, dropout):
        c, a, rho, z, o = forward_pass(q, k, v, bias, keep, dropout)
        ctx.save_for_backward(q, k, v, bias, dropout, c, a, rho, z)
        return o

    @staticmethod
    def backward(ctx, do):
        q, k, v, bias, dropout, c, a, rho, z = ctx.saved_tensors
        dz = torch.einsum("bhqk,bqhe->bqke", c, do) * (z > 0)
        dc = torch.einsum("bqhe,bqke->bhqk", do, z.relu()) + torch.einsum("bqke,bkhe->bhqk", dz, v)
        da = dc if dropout is None else dc * dropout
        ds = rho * (da - a * (a * da).mean(1, keepdim=True))
        dq, dk = torch.einsum("bhqk,bkhd->bqhd", ds, k), torch.einsum("bhqk,bqhd->bkhd", ds, q)
        dq, dk = dq * q.shape[-1] ** -0.5, dk * q.shape[-1] ** -0.5
        dbias = None if bias is None else ds.sum_to_size(bias.shape)
        return dq, dk, torch.einsum("bhqk,bqke->bkhe", c, dz), dbias, None, None


def gradient_through_the_mask(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    return autograd(Unmasked.apply(q, k, v, bias, keep, dropout), do, q, k, v, bias)


def relu_before_the_sum(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    s = s if bias is None else s + bias
    s = s if keep is None else s * keep
    a = s / (s.square().mean(1, keepdim=True) + EPSILON).sqrt()
    a = a if dropout is None else a * dropout
    hidden = F.relu(a.unsqueeze(-1) * v.transpose(1, 2).unsqueeze(2)).sum(1)        # b h q k e, summed over h
    return autograd(torch.einsum("bhqk,bqke->bqhe", a, hidden), do, q, k, v, bias)


def rounded_root(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    s = s if bias is None else s + bias
    s = s if keep is None else s.masked_fill(~keep, 0)
    rho = torch.rsqrt(s.square().mean(1, keepdim=True) + EPSILON).to(torch.bfloat16)
    a = s * rho
    a = a if dropout is None else a * dropout
    z = torch.einsum("bhqk,bkhe->bqke", a, v)
    return autograd(torch.einsum("bhqk,bqke->bqhe", a, F.relu(z)), do, q, k, v, bias)


CASES = [
    Case("einsum", "hyla", einsum, "", "Correct: einsum and autograd."),
    Case("pairs", "hyla", pairs, "", "Correct: one small matmul for each query and key, backward by hand."),
    Case("tiled", "hyla", tiled, "", "Correct: tiles of keys, float32 inside, backward by hand from recomputed codes."),
    Case("epsilon_outside_the_root", "hyla", epsilon_outside_the_root, "forward (3)",
         "Epsilon is added to the root mean square, not below the root."),
    Case("normalised_over_keys", "hyla", normalised_over_keys, "forward (3)",
         "The root mean square runs over keys, not over heads."),
    Case("unit_length_code", "hyla", unit_length_code, "forward (3)",
         "The squares are summed over heads, not averaged."),
    Case("root_held_constant", "hyla", root_held_constant, "backward (3)",
         "The root is detached, so the second term of the normalisation's gradient is missing."),
    Case("mean_over_kept_heads", "hyla", mean_over_kept_heads, "forward (3)",
         "The mean divides by the number of kept heads (with keep for each head)."),
    Case("outer_use_forgotten", "hyla", outer_use_forgotten, "backward (7)",
         "The code's gradient lacks its use in the outer sum."),
    Case("relu_mask_of_the_gradient", "hyla", relu_mask_of_the_gradient, "backward (6)",
         "The relu's backward asks whether the gradient is positive, not whether z is."),
    Case("dropout_on_the_first_use", "hyla", dropout_on_the_first_use, "forward (7)",
         "The outer sum takes the code before the dropout (with dropout)."),
    Case("masked_after_normalising", "hyla", masked_after_normalising, "forward (2)",
         "Keep is applied after the normalisation, so masked heads count in the mean (with keep for each head)."),
    Case("last_head_skipped", "hyla", last_head_skipped, "forward (5)", "The hidden layer lacks the last head."),
    Case("scale_squared", "hyla", scale_squared, "forward (1)", "Queries and keys are both divided by sqrt(d)."),
    Case("query_gradient_of_the_last_tile", "hyla", query_gradient_of_the_last_tile, "backward (1)",
         "Each tile of keys overwrites dq, which should be a sum over tiles."),
    Case("dropout_not_undone", "hyla", dropout_not_undone, "backward (4)",
         "The code's gradient is not multiplied by the dropout (with dropout)."),
    Case("gradient_through_the_mask", "hyla", gradient_through_the_mask, "backward (2)",
         "The backward ignores keep: masked scores get a gradient (with keep for each head)."),
    Case("relu_before_the_sum", "hyla", relu_before_the_sum, "forward (6)",
         "The relu acts on each head's term, not on their sum."),
    Case("rounded_root", "hyla", rounded_root, "forward (3)", "The root is rounded to bfloat16 at every precision."),
]
