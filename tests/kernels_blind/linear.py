"""Linear attention in many hands."""

import math

import torch

from . import Case, autograd, leaves, tensors

TILE = 4


# ------------------------------------------------------------------------------------------------------------ correct


def einsum(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    a = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    a = a if bias is None else a + bias
    for factor in (keep, dropout):
        a = a if factor is None else a * factor
    return autograd(torch.einsum("bhqk,bkhe->bqhe", a, v), do, q, k, v, bias)


def state_first(q, k, v, *, do, bias=None, keep=None, dropout=None):
    """q (k^T v) wherever nothing stands between, the pairs of query and key only for what needs them; by hand."""
    q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
    q, k, v, do = (x.transpose(1, 2) for x in (q, k, v, do))
    scale, pairs = q.shape[-1] ** -0.5, (*q.shape[:3], k.shape[2])
    dbias = None
    if keep is None and dropout is None:
        state, dstate = k.mT @ v, q.mT @ do
        o, dq, dk, dv = q @ state * scale, do @ state.mT * scale, v @ dstate.mT * scale, k @ dstate * scale
        if bias is not None:
            o, dv, dbias = o + bias.expand(pairs) @ v, dv + bias.expand(pairs).mT @ do, do @ v.mT
    else:
        weight = (1 if keep is None else keep) * (torch.ones(pairs, dtype=q.dtype) if dropout is None else dropout)
        a = (q @ k.mT * scale + (0 if bias is None else bias)) * weight
        dbias = ds = do @ v.mT * weight
        o, dq, dk, dv = a @ v, ds @ k * scale, ds.mT @ q * scale, a.mT @ do
    dbias = None if bias is None else dbias.sum_to_size(bias.shape)
    return *(x.transpose(1, 2) for x in (o, dq, dk, dv)), dbias


# ----------------------------------------------------------------------------------------------------------- mistaken


def scaled_bias(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k)
    s = s if bias is None else s + bias
    a = s * q.shape[-1] ** -0.5
    a = a if keep is None else a.masked_fill(~keep, 0)
    a = a if dropout is None else a * dropout
    return autograd(torch.einsum("bhqk,bkhe->bqhe", a, v), do, q, k, v, bias)


def divided_by_the_kept(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    a = torch.matmul(q.transpose(1, 2), k.permute(0, 2, 3, 1)) / q.shape[-1] ** 0.5
    if bias is not None:
        a = a + bias
    if keep is not None:
        a = a * keep
        a = a / keep.expand(a.shape).sum(-1, keepdim=True).clamp(min=1)
    if dropout is not None:
        a = a * dropout
    return autograd(torch.matmul(a, v.transpose(1, 2)).transpose(1, 2), do, q, k, v, bias)


def value_gradient_of_masked_keys(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    s = s if bias is None else s + bias
    s = s if dropout is None else s * dropout
    o = torch.einsum("bhqk,bkhe->bqhe", s if keep is None else s * keep, v)
    dv = torch.einsum("bhqk,bqhe->bkhe", s, do)
    ds = torch.einsum("bqhe,bkhe->bhqk", do, v)
    for factor in (keep, dropout):
        ds = ds if factor is None else ds * factor
    dq = torch.einsum("bhqk,bkhd->bqhd", ds, k) * q.shape[-1] ** -0.5
    dk = torch.einsum("bhqk,bqhd->bkhd", ds, q) * q.shape[-1] ** -0.5
    return o, dq, dk, dv, None if bias is None else ds.sum_to_size(bias.shape)


def query_gradient_unscaled(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
    q, k, v, do = (x.permute(0, 2, 1, 3) for x in (q, k, v, do))
    q = q / math.sqrt(q.shape[-1])
    a = q @ k.mT
    a = a if bias is None else a + bias
    da = do @ v.mT
    for factor in (keep, dropout):
        a, da = (a, da) if factor is None else (a * factor, da * factor)
    o, dq, dk, dv = a @ v, da @ k, da.mT @ q, a.mT @ do
    return *(x.permute(0, 2, 1, 3) for x in (o, dq, dk, dv)), None if bias is None else da.sum_to_size(bias.shape)


def last_tile_skipped(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias = leaves(q, k, v, bias)
    do, keep, dropout = tensors(do, keep, dropout)
    pairs = q.shape[0], q.shape[2], q.shape[1], k.shape[1]
    add, there, drop = (None if x is None else x.expand(pairs) for x in (bias, keep, dropout))
    o = torch.zeros_like(do)
    for j in range(0, k.shape[1] // TILE * TILE or TILE, TILE):
        a = torch.einsum("bqhd,bkhd->bhqk", q, k[:, j:j + TILE]) * q.shape[-1] ** -0.5
        a = a if add is None else a + add[..., j:j + TILE]
        a = a if there is None else a * there[..., j:j + TILE]
        a = a if drop is None else a * drop[..., j:j + TILE]
        o = o + torch.einsum("bhqk,bkhe->bqhe", a, v[:, j:j + TILE])
    return autograd(o, do, q, k, v, bias)


def bias_gradient_before_dropout(q, k, v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
    keep = torch.ones((), dtype=torch.bool) if keep is None else keep
    drop = torch.ones((), dtype=q.dtype) if dropout is None else dropout
    s = torch.einsum("bqhd,bkhd->bhqk", q, k).div(math.sqrt(q.shape[-1])).add(0 if bias is None else bias)
    c = torch.where(keep, s, 0) * drop
    o, dv = torch.einsum("bhqk,bkhe->bqhe", c, v), torch.einsum("bhqk,bqhe->bkhe", c, do)
    dc = torch.einsum("bqhe,bkhe->bhqk", do, v).masked_fill(~keep, 0)
    ds = dc * drop * q.shape[-1] ** -0.5
    dq, dk = torch.einsum("bhqk,bkhd->bqhd", ds, k), torch.einsum("bhqk,bqhd->bkhd", ds, q)
    return o, dq, dk, dv, None if bias is None else dc.sum_to_size(bias.shape)


CASES = [
    Case("einsum", "linear", einsum, "", "Correct: einsum and autograd."),
    Case("state_first", "linear", state_first, "", "Correct: keys times values first where it can be, by hand."),
    Case("scaled_bias", "linear", scaled_bias, "forward (1)", "The bias is divided by sqrt(d) too (with bias)."),
    Case("divided_by_the_kept", "linear", divided_by_the_kept, "forward (2)",
         "The weights are divided by the number of kept keys (with keep)."),
    Case("value_gradient_of_masked_keys", "linear", value_gradient_of_masked_keys, "backward (4)",
         "dv is made with the weights before the mask (with keep)."),
    Case("query_gradient_unscaled", "linear", query_gradient_unscaled, "backward (1)",
         "The scale sits in the queries; dq is their gradient, not multiplied by it."),
    Case("last_tile_skipped", "linear", last_tile_skipped, "forward (4)",
         "The loop over tiles of keys leaves out the last one where it is not full."),
    Case("bias_gradient_before_dropout", "linear", bias_gradient_before_dropout, "backward (3)",
         "dbias sums the gradient that the dropout has not been multiplied into (with bias and dropout)."),
]
