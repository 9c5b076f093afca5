"""Sliding-dilated attention in many hands; dilation 2, the queries at the last positions."""

import math

import torch
import torch.nn.functional as F

from . import Case, autograd, leaves, tensors

DILATION = 2
INF = float("inf")


def places(q, k, chunk, dilation=DILATION):
    """n (q, w), the position of each query's keys; negative before the first."""
    position = torch.arange(k.shape[1] - q.shape[1], k.shape[1])
    return position[:, None] - dilation * torch.arange(chunk)


def masked_softmax(s, keep):
    return s.masked_fill(~keep, -INF).softmax(-1).masked_fill(~keep, 0)


# ------------------------------------------------------------------------------------------------------------ correct


def gathered(q, k, v, offset_bias, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias, offset_bias = leaves(q, k, v, bias, offset_bias)
    do, keep, dropout = tensors(do, keep, dropout)
    n = places(q, k, offset_bias.shape[1])
    there = n >= 0 if keep is None else keep & (n >= 0)
    kn, vn = k[:, n.clamp(min=0)], v[:, n.clamp(min=0)]                             # b q w h d
    s = torch.einsum("bqhd,bqwhd->bhqw", q, kn) / math.sqrt(q.shape[-1]) + offset_bias[:, None]
    a = masked_softmax(s if bias is None else s + bias, there)
    a = a if dropout is None else a * dropout
    return autograd(torch.einsum("bhqw,bqwhe->bqhe", a, vn), do, q, k, v, bias, offset_bias)


def dense(q, k, v, offset_bias, *, do, bias=None, keep=None, dropout=None):
    """All pairs of query and key, the additions scattered to where the offsets are."""
    q, k, v, bias, offset_bias = leaves(q, k, v, bias, offset_bias)
    do, keep, dropout = tensors(do, keep, dropout)
    n = places(q, k, offset_bias.shape[1])
    offsets = q.shape[0], q.shape[2], *n.shape
    s = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    hit = (n[..., None] == torch.arange(k.shape[1])).to(q.dtype)                    # q w k
    add = (offset_bias[:, None] + (0 if bias is None else bias)).expand(offsets)
    there = torch.ones(offsets, dtype=torch.bool) if keep is None else keep.expand(offsets)
    s = s + torch.einsum("bhqw,qwk->bhqk", add, hit)
    a = masked_softmax(s, torch.einsum("bhqw,qwk->bhqk", there.to(q.dtype), hit) > 0)
    if dropout is not None:
        a = a * torch.einsum("bhqw,qwk->bhqk", dropout.expand(offsets), hit)
    return autograd(torch.einsum("bhqk,bkhe->bqhe", a, v), do, q, k, v, bias, offset_bias)


def shifted(x, q, j):
    """The keys of offset j, zeros before the first."""
    end = x.shape[1] - j * DILATION
    return F.pad(x[:, :max(end, 0)], (0, 0, 0, 0, min(j * DILATION, x.shape[1]), 0))[:, x.shape[1] - q:]


def shifts_by_hand(q, k, v, offset_bias, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, keep, dropout, offset_bias = tensors(q, k, v, do, bias, keep, dropout, offset_bias)
    chunk, t, scale = offset_bias.shape[1], q.shape[1], q.shape[-1] ** -0.5
    there = places(q, k, chunk) >= 0 if keep is None else keep & (places(q, k, chunk) >= 0)
    s = torch.stack([(q * shifted(k, t, j)).sum(-1) for j in range(chunk)], -1).transpose(1, 2) * scale
    s += offset_bias[:, None] + (0 if bias is None else bias)
    a = masked_softmax(s, there)
    c = a if dropout is None else a * dropout
    rows = c.transpose(1, 2).unsqueeze(-1)                                          # b q h w 1
    o = sum(rows[:, :, :, j] * shifted(v, t, j) for j in range(chunk))
    dc = torch.stack([(do * shifted(v, t, j)).sum(-1) for j in range(chunk)], -1).transpose(1, 2)
    da = dc if dropout is None else dc * dropout
    ds = a * (da - (a * da).sum(-1, keepdim=True))
    drows = ds.transpose(1, 2).unsqueeze(-1) * scale
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    first = k.shape[1] - t
    for j in range(chunk):
        lost = max(0, j * DILATION - first)                                         # queries without this key
        to = slice(max(0, first - j * DILATION), max(0, k.shape[1] - j * DILATION))
        dq += drows[:, :, :, j] * shifted(k, t, j)
        dk[:, to] += (drows[:, :, :, j] * q)[:, lost:]
        dv[:, to] += (rows[:, :, :, j] * do)[:, lost:]
    return o, dq, dk, dv, None if bias is None else ds.sum_to_size(bias.shape), ds.sum((0, 2))


def padded(q, k, v, offset_bias, pad_k, pad_v, *, do, bias=None, keep=None, dropout=None):
    """The learned pad written in front of keys and values."""
    q, k, v, bias, offset_bias, pad_k, pad_v = leaves(q, k, v, bias, offset_bias, pad_k, pad_v)
    do, keep, dropout = tensors(do, keep, dropout)
    front = (offset_bias.shape[1] - 1) * DILATION
    n = places(q, k, offset_bias.shape[1]) + front
    kn = torch.cat([pad_k.expand(k.shape[0], front, -1, -1), k], 1)[:, n]
    vn = torch.cat([pad_v.expand(v.shape[0], front, -1, -1), v], 1)[:, n]
    s = torch.einsum("bqhd,bqwhd->bhqw", q / math.sqrt(q.shape[-1]), kn) + offset_bias[:, None]
    s = s if bias is None else s + bias
    a = s.softmax(-1) if keep is None else masked_softmax(s, keep)
    a = a if dropout is None else a * dropout
    return autograd(torch.einsum("bhqw,bqwhe->bqhe", a, vn), do, q, k, v, bias, offset_bias, pad_k, pad_v)


# ----------------------------------------------------------------------------------------------------------- mistaken


def queries_at_the_first_positions(q, k, v, offset_bias, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias, offset_bias = leaves(q, k, v, bias, offset_bias)
    do, keep, dropout = tensors(do, keep, dropout)
    n = torch.arange(q.shape[1])[:, None] - DILATION * torch.arange(offset_bias.shape[1])
    there = n >= 0 if keep is None else keep & (n >= 0)
    n = n.clamp(0, k.shape[1] - 1)
    s = torch.einsum("bqhd,bqwhd->bhqw", q, k[:, n]) / math.sqrt(q.shape[-1]) + offset_bias[:, None]
    a = masked_softmax(s if bias is None else s + bias, there)
    a = a if dropout is None else a * dropout
    return autograd(torch.einsum("bhqw,bqwhe->bqhe", a, v[:, n]), do, q, k, v, bias, offset_bias)


def clamped_to_the_first_key(q, k, v, offset_bias, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias, offset_bias = leaves(q, k, v, bias, offset_bias)
    do, keep, dropout = tensors(do, keep, dropout)
    n = places(q, k, offset_bias.shape[1]).clamp(min=0)
    kn, vn = (x.index_select(1, n.flatten()).unflatten(1, n.shape) for x in (k, v))
    s = torch.einsum("bqhd,bqwhd->bhqw", q, kn) * q.shape[-1] ** -0.5
    s = s + offset_bias[:, None] + (0 if bias is None else bias)
    a = s.softmax(-1) if keep is None else masked_softmax(s, keep)
    a = a if dropout is None else a * dropout
    return autograd(torch.einsum("bhqw,bqwhe->bqhe", a, vn), do, q, k, v, bias, offset_bias)


def scaled_offset_bias(q, k, v, offset_bias, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias, offset_bias = leaves(q, k, v, bias, offset_bias)
    do, keep, dropout = tensors(do, keep, dropout)
    n = places(q, k, offset_bias.shape[1])
    there = n >= 0 if keep is None else keep & (n >= 0)
    kn, vn = k[:, n.clamp(min=0)], v[:, n.clamp(min=0)]
    s = (torch.einsum("bqhd,bqwhd->bhqw", q, kn) + offset_bias.unsqueeze(1)) / math.sqrt(q.shape[-1])
    a = masked_softmax(s if bias is None else s + bias, there)
    a = a if dropout is None else a * dropout
    return autograd(torch.einsum("bhqw,bqwhe->bqhe", a, vn), do, q, k, v, bias, offset_bias)


def offset_bias_reversed(q, k, v, offset_bias, *, do, bias=None, keep=None, dropout=None):
    """Windows by `unfold`, whose entries run from the oldest key to the newest."""
    q, k, v, bias, offset_bias = leaves(q, k, v, bias, offset_bias)
    do, keep, dropout = tensors(do, keep, dropout)
    chunk, t = offset_bias.shape[1], q.shape[1]
    reach = (chunk - 1) * DILATION
    kn, vn = (F.pad(x, (0, 0, 0, 0, reach, 0)).unfold(1, reach + 1, 1)[:, -t:, ..., ::DILATION] for x in (k, v))
    s = torch.einsum("bqhd,bqhdw->bhqw", q, kn) * q.shape[-1] ** -0.5 + offset_bias[:, None]
    keep = torch.ones((), dtype=torch.bool) if keep is None else keep
    there = (keep & (places(q, k, chunk) >= 0)).flip(-1)
    a = masked_softmax(s if bias is None else s + bias.expand(*bias.shape[:-1], chunk).flip(-1), there)
    a = a if dropout is None else a * dropout.expand(*dropout.shape[:-1], chunk).flip(-1)
    return autograd(torch.einsum("bhqw,bqhew->bqhe", a, vn), do, q, k, v, bias, offset_bias)


def backward_pass(q, k, v, offset_bias, do, bias, keep, dropout):
    """o, and ds, c, the positions n, the keys' scale and dq: what the scattering ends below start from."""
    n, scale = places(q, k, offset_bias.shape[1]), q.shape[-1] ** -0.5
    there = n >= 0 if keep is None else keep & (n >= 0)
    n = n.clamp(min=0)
    s = torch.einsum("bqhd,bqwhd->bhqw", q, k[:, n]) * scale + offset_bias[:, None]
    a = masked_softmax(s if bias is None else s + bias, there)
    c = a if dropout is None else a * dropout
    da = torch.einsum("bqhe,bqwhe->bhqw", do, v[:, n]) * (1 if dropout is None else dropout)
    ds = a * (da - (a * da).sum(-1, keepdim=True))
    dq = torch.einsum("bhqw,bqwhd->bqhd", ds, k[:, n]) * scale
    return torch.einsum("bhqw,bqwhe->bqhe", c, v[:, n]), ds, c, n, scale, dq


def key_gradient_overwritten(q, k, v, offset_bias, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, keep, dropout, offset_bias = tensors(q, k, v, do, bias, keep, dropout, offset_bias)
    o, ds, c, n, scale, dq = backward_pass(q, k, v, offset_bias, do, bias, keep, dropout)
    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
    for j, to in enumerate(places(q, k, offset_bias.shape[1]).T):
        inside = to >= 0
        to = to[inside]
        dk[:, to] = (ds[..., j].mT.unsqueeze(-1) * q * scale)[:, inside]
        dv.index_add_(1, to, (c[..., j].mT.unsqueeze(-1) * do)[:, inside])
    return o, dq, dk, dv, None if bias is None else ds.sum_to_size(bias.shape), ds.sum((0, 2))


def first_key_never_seen(q, k, v, offset_bias, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias, offset_bias = leaves(q, k, v, bias, offset_bias)
    do, keep, dropout = tensors(do, keep, dropout)
    n = places(q, k, offset_bias.shape[1])
    there = (n > 0) if keep is None else keep & (n > 0)
    kn, vn = k[:, n.clamp(min=0)], v[:, n.clamp(min=0)]
    s = torch.einsum("bqhd,bqwhd->bhqw", q, kn) * q.shape[-1] ** -0.5 + offset_bias[:, None]
    a = masked_softmax(s if bias is None else s + bias, there)
    a = a if dropout is None else a * dropout
    return autograd(torch.einsum("bhqw,bqwhe->bqhe", a, vn), do, q, k, v, bias, offset_bias)


def dilation_as_gap(q, k, v, offset_bias, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias, offset_bias = leaves(q, k, v, bias, offset_bias)
    do, keep, dropout = tensors(do, keep, dropout)
    n = places(q, k, offset_bias.shape[1], dilation=DILATION + 1)
    there = n >= 0 if keep is None else keep & (n >= 0)
    kn, vn = k[:, n.clamp(min=0)], v[:, n.clamp(min=0)]
    s = torch.einsum("bqhd,bqwhd->bhqw", q, kn) / math.sqrt(q.shape[-1]) + offset_bias[:, None]
    a = masked_softmax(s if bias is None else s + bias, there)
    a = a if dropout is None else a * dropout
    return autograd(torch.einsum("bhqw,bqwhe->bqhe", a, vn), do, q, k, v, bias, offset_bias)


def offset_bias_gradient_averaged(q, k, v, offset_bias, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, keep, dropout, offset_bias = tensors(q, k, v, do, bias, keep, dropout, offset_bias)
    o, ds, c, n, scale, dq = backward_pass(q, k, v, offset_bias, do, bias, keep, dropout)
    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
    for j in range(n.shape[1]):                     # a missing key has weight and gradient 0, wherever it is added
        dk.index_add_(1, n[:, j], ds[..., j].mT.unsqueeze(-1) * q * scale)
        dv.index_add_(1, n[:, j], c[..., j].mT.unsqueeze(-1) * do)
    return o, dq, dk, dv, None if bias is None else ds.sum_to_size(bias.shape), ds.mean(0).sum(1)


def keys_wrapped_around(q, k, v, offset_bias, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias, offset_bias = leaves(q, k, v, bias, offset_bias)
    do, keep, dropout = tensors(do, keep, dropout)
    t, chunk = q.shape[1], offset_bias.shape[1]
    kn, vn = (torch.stack([x.roll(j * DILATION, 1)[:, -t:] for j in range(chunk)], 2) for x in (k, v))
    s = torch.einsum("bqhd,bqwhd->bhqw", q, kn) / math.sqrt(q.shape[-1]) + offset_bias[:, None]
    s = s if bias is None else s + bias
    a = torch.softmax(s, -1) if keep is None else masked_softmax(s, keep)
    a = a if dropout is None else a * dropout
    return autograd(torch.einsum("bhqw,bqwhe->bqhe", a, vn), do, q, k, v, bias, offset_bias)


def pad_key_gradient_unscaled(q, k, v, offset_bias, pad_k, pad_v, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
    offset_bias, pad_k, pad_v = tensors(offset_bias, pad_k, pad_v)
    n, scale = places(q, k, offset_bias.shape[1]), q.shape[-1] ** -0.5
    out = (n < 0)[None, :, :, None, None]
    kn, vn = torch.where(out, pad_k, k[:, n.clamp(min=0)]), torch.where(out, pad_v, v[:, n.clamp(min=0)])
    s = torch.einsum("bqhd,bqwhd->bhqw", q, kn) * scale + offset_bias[:, None] + (0 if bias is None else bias)
    a = s.softmax(-1) if keep is None else masked_softmax(s, keep)
    c = a if dropout is None else a * dropout
    da = torch.einsum("bqhe,bqwhe->bhqw", do, vn) * (1 if dropout is None else dropout)
    ds = a * (da - (a * da).sum(-1, keepdim=True))
    dkn, dvn = torch.einsum("bhqw,bqhd->bqwhd", ds, q), torch.einsum("bhqw,bqhe->bqwhe", c, do)
    dpad_k, dpad_v = (dkn * out).sum((0, 1, 2)), (dvn * out).sum((0, 1, 2))
    flat = n.clamp(min=0).flatten()
    dk = torch.zeros_like(k).index_add_(1, flat, (dkn * ~out).flatten(1, 2)) * scale
    dv = torch.zeros_like(v).index_add_(1, flat, (dvn * ~out).flatten(1, 2))
    dq = torch.einsum("bhqw,bqwhd->bqhd", ds, kn) * scale
    dbias = None if bias is None else ds.sum_to_size(bias.shape)
    return torch.einsum("bhqw,bqwhe->bqhe", c, vn), dq, dk, dv, dbias, ds.sum((0, 2)), dpad_k, dpad_v


CASES = [
    Case("gathered", "sliding_dilated", gathered, "", "Correct: keys gathered by position, autograd."),
    Case("dense", "sliding_dilated", dense, "", "Correct: all pairs of query and key under a mask, autograd."),
    Case("shifts_by_hand", "sliding_dilated", shifts_by_hand, "", "Correct: shifted keys, backward by hand."),
    Case("padded", "sliding_dilated_pad", padded, "", "Correct: pads written in front of the keys, autograd."),
    Case("queries_at_the_first_positions", "sliding_dilated", queries_at_the_first_positions, "forward (1)",
         "Query i is taken to stand at position i, not at the end of the keys (with fewer queries than keys)."),
    Case("clamped_to_the_first_key", "sliding_dilated", clamped_to_the_first_key, "forward (4)",
         "An offset before the first key reads the first key, and no mask removes it."),
    Case("scaled_offset_bias", "sliding_dilated", scaled_offset_bias, "forward (2)",
         "The bias of the offsets is divided by sqrt(d) too."),
    Case("offset_bias_reversed", "sliding_dilated", offset_bias_reversed, "forward (2)",
         "The windows run from the oldest key to the newest, the bias of the offsets the other way."),
    Case("key_gradient_overwritten", "sliding_dilated", key_gradient_overwritten, "backward (1)",
         "Each offset overwrites dk where it should add to it."),
    Case("first_key_never_seen", "sliding_dilated", first_key_never_seen, "forward (4)",
         "The mask keeps positions above 0, not from 0 on."),
    Case("dilation_as_gap", "sliding_dilated", dilation_as_gap, "forward (1)",
         "Offsets are dilation + 1 tokens apart: the dilation is taken for the number of tokens between."),
    Case("offset_bias_gradient_averaged", "sliding_dilated", offset_bias_gradient_averaged, "backward (2)",
         "The gradient of the offsets' bias is a mean over the batch, not a sum."),
    Case("keys_wrapped_around", "sliding_dilated", keys_wrapped_around, "forward (4)",
         "Keys are shifted by a roll, so offsets before the first key read the last ones."),
    Case("pad_key_gradient_unscaled", "sliding_dilated_pad", pad_key_gradient_unscaled, "backward (1)",
         "The gradient of the pad's key is not divided by sqrt(d)."),
]
