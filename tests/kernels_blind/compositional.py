"""Compositional attention in many hands; s = search, r = retrieval, c = width of the selector."""

import math

import torch

from . import Case, autograd, leaves, tensors

INF = float("inf")


def search_scores(q, k, bias, keep):
    """a (b, s, q, k), of autograd where the inputs ask for it."""
    s = torch.einsum("bqsd,bksd->bsqk", q, k) / math.sqrt(q.shape[-1])
    s = s if bias is None else s + bias
    if keep is None:
        return s.softmax(-1)
    return s.masked_fill(~keep, -INF).softmax(-1).masked_fill(~keep, 0)


def jacobian(a, da, axis=-1):
    """The softmax's backward."""
    return a * (da - (a * da).sum(axis, keepdim=True))


def search_backward(q, k, bias, a, da):
    """dq, dk, dbias."""
    ds, scale = jacobian(a, da), q.shape[-1] ** -0.5
    dq, dk = torch.einsum("bsqk,bksd->bqsd", ds, k) * scale, torch.einsum("bsqk,bqsd->bksd", ds, q) * scale
    return dq, dk, None if bias is None else ds.sum_to_size(bias.shape)


# ------------------------------------------------------------------------------------------------------------ correct


def einsum(q, k, v, selector, key_map, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias, selector, key_map = leaves(q, k, v, bias, selector, key_map)
    do, keep, dropout = tensors(do, keep, dropout)
    a = search_scores(q, k, bias, keep)
    a = a if dropout is None else a * dropout
    t = torch.einsum("bsqk,bkre->bqsre", a, v)
    keys = torch.einsum("bqsre,ec->bqsrc", t, key_map)
    g = torch.softmax(torch.einsum("bqsc,bqsrc->bqsr", selector, keys) / math.sqrt(selector.shape[-1]), -1)
    return autograd(torch.einsum("bqsr,bqsre->bqse", g, t), do, q, k, v, bias, selector, key_map)


def search_by_search(q, k, v, selector, key_map, *, do, bias=None, keep=None, dropout=None):
    """Matmuls for one search after the other, by hand; the keys' map moves into the selector."""
    q, k, v, do, bias, selector, key_map = tensors(q, k, v, do, bias, selector, key_map)
    keep, dropout = tensors(keep, dropout)
    a, scale = search_scores(q, k, bias, keep), selector.shape[-1] ** -0.5
    drop = torch.ones_like(a) if dropout is None else dropout.expand(a.shape)
    flat = v.flatten(2)                                                             # b k re
    o, dselector, da = torch.empty_like(do), torch.empty_like(selector), torch.empty_like(a)
    dv, dkey_map = torch.zeros_like(flat), torch.zeros_like(key_map)
    for s in range(q.shape[2]):
        c = a[:, s] * drop[:, s]
        t = (c @ flat).unflatten(2, v.shape[2:])                                    # b q r e
        u = selector[:, :, s] @ key_map.T * scale                                   # b q e
        g = torch.softmax((t @ u[..., None])[..., 0], -1)
        o[:, :, s] = (g[:, :, None] @ t)[:, :, 0]
        dl = jacobian(g, (t @ do[:, :, s, :, None])[..., 0])
        du = (dl[:, :, None] @ t)[:, :, 0] * scale
        dt = (g[..., None] * do[:, :, s, None] + dl[..., None] * u[:, :, None]).flatten(2)
        dselector[:, :, s], da[:, s] = du @ key_map, dt @ flat.mT * drop[:, s]
        dkey_map += du.flatten(0, 1).T @ selector[:, :, s].flatten(0, 1)
        dv += c.mT @ dt
    dq, dk, dbias = search_backward(q, k, bias, a, da)
    return o, dq, dk, dv.view(v.shape), dbias, dselector, dkey_map


def online_over_retrievals(q, k, v, selector, key_map, *, do, bias=None, keep=None, dropout=None):
    """The softmax over retrievals as a running sum, so that one retrieval is in memory at a time."""
    q, k, v, bias, selector, key_map = leaves(q, k, v, bias, selector, key_map)
    do, keep, dropout = tensors(do, keep, dropout)
    a = search_scores(q, k, bias, keep)
    a = a if dropout is None else a * dropout
    u = torch.tensordot(selector * selector.shape[-1] ** -0.5, key_map, dims=([3], [1])).transpose(1, 2)    # b s q e
    top, total, acc = torch.full(u.shape[:3], -INF, dtype=u.dtype)[..., None], 0, 0
    for r in range(v.shape[2]):
        t = a @ v[:, None, :, r]                                                    # b s q e
        l = (u * t).sum(-1, keepdim=True)
        new = torch.maximum(top, l.detach())
        p, alpha = torch.exp(l - new), torch.exp(top - new)
        total, acc, top = total * alpha + p, acc * alpha + p * t, new
    return autograd((acc / total).transpose(1, 2), do, q, k, v, bias, selector, key_map)


def nonlinear_scoring(q, k, v, selector, w, w_query, b, w2, b2, *, do, bias=None, keep=None, dropout=None):
    """The perceptron on selector and retrieval side by side, as its text has it."""
    q, k, v, bias, *score = leaves(q, k, v, bias, selector, w, w_query, b, w2, b2)
    do, keep, dropout = tensors(do, keep, dropout)
    selector, w, w_query, b, w2, b2 = score
    a = search_scores(q, k, bias, keep)
    t = torch.einsum("bsqk,bkre->bqsre", a if dropout is None else a * dropout, v)
    both = torch.cat([selector.unsqueeze(3).expand(*t.shape[:4], -1), t], -1)
    hidden = torch.relu(both @ torch.cat([w_query, w]) + b)
    g = (hidden @ w2 + b2).softmax(-1)
    return autograd((g.unsqueeze(-1) * t).sum(3), do, q, k, v, bias, *score)


# ----------------------------------------------------------------------------------------------------------- mistaken


def value_scores_over_searches(q, k, v, selector, key_map, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias, selector, key_map = leaves(q, k, v, bias, selector, key_map)
    do, keep, dropout = tensors(do, keep, dropout)
    a = search_scores(q, k, bias, keep)
    a = a if dropout is None else a * dropout
    t = torch.einsum("bsqk,bkre->bqsre", a, v)
    keys = t @ key_map
    l = (keys @ selector.unsqueeze(-1)).squeeze(-1) * selector.shape[-1] ** -0.5
    g = torch.softmax(l, dim=2)
    return autograd((g.unsqueeze(3) @ t).squeeze(3), do, q, k, v, bias, selector, key_map)


def scale_of_the_search(q, k, v, selector, key_map, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias, selector, key_map = leaves(q, k, v, bias, selector, key_map)
    do, keep, dropout = tensors(do, keep, dropout)
    scale = q.shape[-1] ** -0.5
    s = torch.einsum("bqsd,bksd->bsqk", q, k) * scale + (0 if bias is None else bias)
    there = torch.ones_like(s, dtype=torch.bool) if keep is None else keep.expand(s.shape)
    a = torch.softmax(s.masked_fill(~there, -INF), -1).masked_fill(~there, 0)
    a = a if dropout is None else a * dropout
    t = torch.einsum("bsqk,bkre->bqsre", a, v)
    l = torch.einsum("bqsc,ec,bqsre->bqsr", selector, key_map, t) * scale
    return autograd(torch.einsum("bqsr,bqsre->bqse", l.softmax(-1), t), do, q, k, v, bias, selector, key_map)


def scores_from_detached_retrievals(q, k, v, selector, key_map, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias, selector, key_map = leaves(q, k, v, bias, selector, key_map)
    do, keep, dropout = tensors(do, keep, dropout)
    a = search_scores(q, k, bias, keep)
    a = a if dropout is None else a * dropout
    t = torch.einsum("bsqk,bkre->bqsre", a, v)
    keys = torch.einsum("bqsre,ec->bqsrc", t.detach(), key_map)
    g = torch.einsum("bqsc,bqsrc->bqsr", selector, keys).div(math.sqrt(selector.shape[-1])).softmax(-1)
    return autograd(torch.einsum("bqsr,bqsre->bqse", g, t), do, q, k, v, bias, selector, key_map)


def forward_pass(q, k, v, selector, key_map, bias, keep, dropout):
    """What the hand-written backwards below keep: a, c, u, t, g and o."""
    a = search_scores(q, k, bias, keep)
    c = a if dropout is None else a * dropout
    t = torch.einsum("bsqk,bkre->bqsre", c, v)
    u = torch.einsum("bqsc,ec->bqse", selector, key_map) * selector.shape[-1] ** -0.5
    g = torch.einsum("bqse,bqsre->bqsr", u, t).softmax(-1)
    return a, c, u, t, g, torch.einsum("bqsr,bqsre->bqse", g, t)


def retrievals_only_scored(q, k, v, selector, key_map, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, selector, key_map = tensors(q, k, v, do, bias, selector, key_map)
    keep, dropout = tensors(keep, dropout)
    a, c, u, t, g, o = forward_pass(q, k, v, selector, key_map, bias, keep, dropout)
    dl = jacobian(g, torch.einsum("bqse,bqsre->bqsr", do, t))
    dt = torch.einsum("bqsr,bqse->bqsre", dl, u)
    du = torch.einsum("bqsr,bqsre->bqse", dl, t) * selector.shape[-1] ** -0.5
    da = torch.einsum("bqsre,bkre->bsqk", dt, v)
    dq, dk, dbias = search_backward(q, k, bias, a, da if dropout is None else da * dropout)
    dv = torch.einsum("bsqk,bqsre->bkre", c, dt)
    return o, dq, dk, dv, dbias, du @ key_map, torch.einsum("bqse,bqsc->ec", du, selector)


def key_map_gradient_unscaled(q, k, v, selector, key_map, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, selector, key_map = tensors(q, k, v, do, bias, selector, key_map)
    keep, dropout = tensors(keep, dropout)
    a, c, u, t, g, o = forward_pass(q, k, v, selector, key_map, bias, keep, dropout)
    dl = jacobian(g, torch.einsum("bqse,bqsre->bqsr", do, t))
    dkeys = torch.einsum("bqsr,bqsc->bqsrc", dl, selector)
    dkey_map = torch.einsum("bqsre,bqsrc->ec", t, dkeys)
    dselector = torch.einsum("bqsr,bqsre,ec->bqsc", dl, t, key_map) * selector.shape[-1] ** -0.5
    dt = g.unsqueeze(-1) * do.unsqueeze(3) + dl.unsqueeze(-1) * u.unsqueeze(3)
    da = torch.einsum("bqsre,bkre->bsqk", dt, v)
    dq, dk, dbias = search_backward(q, k, bias, a, da if dropout is None else da * dropout)
    return o, dq, dk, torch.einsum("bsqk,bqsre->bkre", c, dt), dbias, dselector, dkey_map


def value_gradient_of_the_last_search(q, k, v, selector, key_map, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, selector, key_map = tensors(q, k, v, do, bias, selector, key_map)
    keep, dropout = tensors(keep, dropout)
    a, c, u, t, g, o = forward_pass(q, k, v, selector, key_map, bias, keep, dropout)
    dl = jacobian(g, torch.einsum("bqse,bqsre->bqsr", do, t))
    du = torch.einsum("bqsr,bqsre->bqse", dl, t) * selector.shape[-1] ** -0.5
    da, dv = torch.empty_like(a), torch.zeros_like(v)
    for s in range(q.shape[2]):
        dt = g[:, :, s, :, None] * do[:, :, s, None] + dl[:, :, s, :, None] * u[:, :, s, None]
        da[:, s] = torch.einsum("bqre,bkre->bqk", dt, v)
        dv = torch.einsum("bqk,bqre->bkre", c[:, s], dt)
    dq, dk, dbias = search_backward(q, k, bias, a, da if dropout is None else da * dropout)
    return o, dq, dk, dv, dbias, du @ key_map, torch.einsum("bqse,bqsc->ec", du, selector)


def scored_before_dropout(q, k, v, selector, key_map, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias, selector, key_map = leaves(q, k, v, bias, selector, key_map)
    do, keep, dropout = tensors(do, keep, dropout)
    a = search_scores(q, k, bias, keep)
    t = torch.einsum("bsqk,bkre->bqsre", a, v)
    l = torch.einsum("bqsc,bqsrc->bqsr", selector, t @ key_map) / selector.shape[-1] ** 0.5
    if dropout is not None:
        t = torch.einsum("bsqk,bkre->bqsre", a * dropout, v)
    return autograd(torch.einsum("bqsr,bqsre->bqse", l.softmax(-1), t), do, q, k, v, bias, selector, key_map)


def value_scores_without_jacobian(q, k, v, selector, key_map, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, selector, key_map = tensors(q, k, v, do, bias, selector, key_map)
    keep, dropout = tensors(keep, dropout)
    a, c, u, t, g, o = forward_pass(q, k, v, selector, key_map, bias, keep, dropout)
    dl = g * torch.einsum("bqse,bqsre->bqsr", do, t)
    du = torch.einsum("bqsr,bqsre->bqse", dl, t) * selector.shape[-1] ** -0.5
    dt = g.unsqueeze(-1) * do.unsqueeze(3) + dl.unsqueeze(-1) * u.unsqueeze(3)
    dc = torch.einsum("bqsre,bkre->bsqk", dt, v)
    dq, dk, dbias = search_backward(q, k, bias, a, dc if dropout is None else dc * dropout)
    dv = torch.einsum("bsqk,bqsre->bkre", c, dt)
    return o, dq, dk, dv, dbias, du @ key_map, torch.einsum("bqse,bqsc->ec", du, selector)


def mask_of_the_first_query(q, k, v, selector, key_map, *, do, bias=None, keep=None, dropout=None):
    q, k, v, bias, selector, key_map = leaves(q, k, v, bias, selector, key_map)
    do, keep, dropout = tensors(do, keep, dropout)
    s = torch.matmul(q.transpose(1, 2), k.permute(0, 2, 3, 1)) / math.sqrt(q.shape[-1])
    s = s if bias is None else s + bias
    if keep is not None:
        s = s.masked_fill(~keep[..., :1, :] if keep.shape[-2] > 1 else ~keep, -INF)
    a = torch.nan_to_num(s.softmax(-1))
    a = a if dropout is None else a * dropout
    t = torch.einsum("bsqk,bkre->bqsre", a, v)
    l = torch.einsum("bqsc,ec,bqsre->bqsr", selector, key_map, t) / math.sqrt(selector.shape[-1])
    return autograd(torch.einsum("bqsr,bqsre->bqse", l.softmax(-1), t), do, q, k, v, bias, selector, key_map)


def inactive_units_in_w2(q, k, v, selector, w, w_query, b, w2, b2, *, do, bias=None, keep=None, dropout=None):
    q, k, v, do, bias, keep, dropout = tensors(q, k, v, do, bias, keep, dropout)
    selector, w, w_query, b, w2, b2 = tensors(selector, w, w_query, b, w2, b2)
    a = search_scores(q, k, bias, keep)
    c = a if dropout is None else a * dropout
    t = torch.einsum("bsqk,bkre->bqsre", c, v)
    z = t @ w + (selector @ w_query + b).unsqueeze(3)
    g = (z.relu() @ w2 + b2).softmax(-1)
    o = torch.einsum("bqsr,bqsre->bqse", g, t)
    dl = jacobian(g, torch.einsum("bqse,bqsre->bqsr", do, t))
    dw2, db2 = torch.einsum("bqsr,bqsrf->f", dl, z), dl.sum().reshape(1)
    dz = dl.unsqueeze(-1) * w2 * (z > 0)
    same = dz.sum(3)
    dw, dw_query = torch.einsum("bqsre,bqsrf->ef", t, dz), torch.einsum("bqsc,bqsf->cf", selector, same)
    dt = dz @ w.T + g.unsqueeze(-1) * do.unsqueeze(3)
    dc, dv = torch.einsum("bqsre,bkre->bsqk", dt, v), torch.einsum("bsqk,bqsre->bkre", c, dt)
    dq, dk, dbias = search_backward(q, k, bias, a, dc if dropout is None else dc * dropout)
    return o, dq, dk, dv, dbias, same @ w_query.T, dw, dw_query, same.sum((0, 1, 2)), dw2, db2


CASES = [
    Case("einsum", "compositional", einsum, "", "Correct: einsum and autograd, with retrieval keys."),
    Case("search_by_search", "compositional", search_by_search, "", "Correct: matmuls for each search, by hand."),
    Case("online_over_retrievals", "compositional", online_over_retrievals, "",
         "Correct: a running softmax over retrievals, autograd."),
    Case("nonlinear_scoring", "compositional_nonlinear", nonlinear_scoring, "",
         "Correct: the perceptron on selector and retrieval side by side, autograd."),
    Case("value_scores_over_searches", "compositional", value_scores_over_searches, "forward (6)",
         "The softmax of the value scores runs over searches."),
    Case("scale_of_the_search", "compositional", scale_of_the_search, "forward (5)",
         "The value scores are divided by the root of the search's width, not of the selector's."),
    Case("scores_from_detached_retrievals", "compositional", scores_from_detached_retrievals, "backward (5)",
         "The retrievals are detached where they are scored, so their gradient lacks that use."),
    Case("retrievals_only_scored", "compositional", retrievals_only_scored, "backward (7)",
         "The retrievals' gradient lacks their use in the output."),
    Case("key_map_gradient_unscaled", "compositional", key_map_gradient_unscaled, "backward (5)",
         "The key map's gradient is not divided by sqrt(c)."),
    Case("value_gradient_of_the_last_search", "compositional", value_gradient_of_the_last_search, "backward (4)",
         "Each search overwrites dv, which should be a sum over searches."),
    Case("scored_before_dropout", "compositional", scored_before_dropout, "forward (5)",
         "The value scores are made from retrievals without dropout (with dropout)."),
    Case("value_scores_without_jacobian", "compositional", value_scores_without_jacobian, "backward (6)",
         "The derivative of the softmax over retrievals lacks its sum."),
    Case("mask_of_the_first_query", "compositional", mask_of_the_first_query, "forward (2)",
         "The mask is cut to its first query, as if it were one of padding (with a keep that differs by query)."),
    Case("inactive_units_in_w2", "compositional_nonlinear", inactive_units_in_w2, "backward (5)",
         "dw2 is made from the hidden layer before the relu."),
]
