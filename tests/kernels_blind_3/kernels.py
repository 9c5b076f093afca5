"""A third blind bank of attention kernels: right ones, and ones with a single mistake.  PyTorch.

Written from the README, docs/kernels.md, the pages refattn/attention/*.py and nothing else: no code of refattn.check, no
test and no planted mistake was read, and `check.compare` and `check.diagnose` were never asked about a wrong kernel.

The table is `ROWS`, a list of `Row`:

    name      unique; also a module-level function
    variant   what to pass as `variant`
    kernel    theirs(q, k, v, *more, do=do[, bias=, keep=, dropout=]) -> o, dq, dk, dv[, dbias], *dmore as torch arrays.
              Each takes every subset of bias, keep, dropout, of any shape that broadcasts.
    options   keywords of `check.compare` / `check.diagnose` with which the mistake shows: layout, bias, keep, dropout,
              causal.  Layout and causal belong to the kernel; the rest may be varied where it still shows.
    side      "" (right), "forward" or "backward": where the mistake is
    where     the line of the page as the page tags it, "forward (1)"; with several, the mistake is in each of them or
              words cannot tell which ("forward (2) forward (4)")
    inside    the line of a part of the page, value_scores.py, as that file tags it: "dot (2)", "nonlinear_backward (2)"
    also      other lines whose mistake would explain the same answers equally well, as far as its author can tell
    what      the mistake in words: what a good diagnosis names
    wrong     the results that it changes at these options
    gradients "autograd" (of the forward as it stands), "handwritten" (for the right forward, unless the mistake is in
              the backward), "tiled" (handwritten from what the forward saved, so that a mistake there goes on)
    backend   "torch"
    dtypes    all rows: float64, float32, bfloat16, float16.  Half precision is computed in float32 and the results
              rounded; arrays of float32 that hold bfloat16 are float32 to a kernel: `row.cast("bfloat16")` rounds.
    right     True for kernels without a mistake

A mistake is a flag of a kernel that is otherwise right (`bug`): `grep '"NAME"'` leads to it.  The functions that make kernels
are called with bug=None among the right ones.  Sliding-dilated kernels have `check.compare`'s dilation, 2, built in.
"""

from dataclasses import dataclass, field
from functools import wraps
from math import log, sqrt

import numpy as np
import torch

ein = torch.einsum
DILATION = 2


# ---------------------------------------------------------------------------------------------------- what all share


def tensor(x):
    """A copy as a PyTorch array: kernels leave their inputs as they are."""
    if isinstance(x, torch.Tensor):
        return x.detach().clone()
    if str(x.dtype) == "bfloat16":
        return torch.from_numpy(np.array(x, dtype=np.float32)).to(torch.bfloat16)
    return torch.from_numpy(np.array(x, order="C"))


def outer(f):
    """The kernel around f(q, k, v, *more, do, bias, keep, dropout) -> o, dq, dk, dv, dbias or None, *dmore."""
    @wraps(f)
    def kernel(*arrays, do, bias=None, keep=None, dropout=None):
        arrays = [tensor(x) for x in arrays]
        do, bias, keep, dropout = (None if x is None else tensor(x) for x in (do, bias, keep, dropout))
        stored = arrays[0].dtype
        inner = stored if stored in (torch.float32, torch.float64) else torch.float32
        arrays = [x.to(inner) for x in arrays]
        do, bias, dropout = (None if x is None else x.to(inner) for x in (do, bias, dropout))
        results = f(*arrays, do=do, bias=bias, keep=keep, dropout=dropout)
        return tuple(x.detach().to(stored).contiguous() for x in results if x is not None)
    return kernel


def reduced(dx, like):
    """Gradient of a broadcast."""
    return dx.sum_to_size(like.shape)


def four(x):
    """Broadcasting arrays with all four axes."""
    return x.reshape((1,) * (4 - x.ndim) + tuple(x.shape))


def visible(q_count, k_count, keep, causal, slack=0):
    """The mask as booleans, or None."""
    if not causal:
        return keep
    later = torch.arange(k_count)[None, :] <= torch.arange(q_count)[:, None] + (k_count - q_count) + slack
    return later if keep is None else keep & later


def safe_softmax(s, keep=None, dim=-1):
    if keep is not None:
        s = torch.where(keep, s, torch.full_like(s, -torch.inf))
    top = s.detach().amax(dim, keepdim=True)
    top = torch.where(torch.isinf(top), torch.zeros_like(top), top)
    e = (s - top).exp()
    total = e.sum(dim, keepdim=True)
    return e / torch.where(total == 0, torch.ones_like(total), total)


def times(a, m):
    return a if m is None else a * m


def by_autograd(forward, inputs, bias, do):
    """o and gradients of forward(*inputs, bias)."""
    inputs = [x.requires_grad_() for x in inputs]
    wanted = inputs + ([] if bias is None else [bias.requires_grad_()])
    o = forward(*inputs, bias)
    grads = torch.autograd.grad(o, wanted, do, allow_unused=True)
    grads = [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, grads, strict=True)]
    dbias = grads.pop() if bias is not None else None
    return o, *grads[:3], dbias, *grads[3:]


def part(x, axis, piece):
    """A slice of a broadcasting array of four axes."""
    if x is None or x.shape[axis] == 1:
        return x
    return x[(slice(None),) * (axis % 4) + (piece,)]


# ---------------------------------------------------------------------------------------------------------- softmax


def softmax_autograd(bug=None, causal=False):
    def f(q, k, v, *, do, bias, keep, dropout):
        def forward(q, k, v, bias):
            s = q @ k.mT * q.shape[-1] ** -0.5
            if bias is not None:
                # exponentials are powers of two: the scores are multiplied by log2 e, the bias is not
                s = s + (bias * log(2) if bug == "sm_bias_in_base_2" else bias)
            slack = 1 if bug == "sm_causal_one_too_many" else 0
            a = safe_softmax(s, visible(s.shape[2], s.shape[3], keep, causal, slack))
            o = times(a, dropout) @ v
            if bug == "sm_heads_reshaped":
                b, h, t, e = o.shape
                o = o.transpose(1, 2).contiguous().view(b, h, t, e)
            return o
        return by_autograd(forward, (q, k, v), bias, do)
    return outer(f)


def softmax_dense(bug=None, causal=False):
    def f(q, k, v, *, do, bias, keep, dropout):
        scale = q.shape[-1] ** -0.5
        qs = q * scale
        s = qs @ k.mT
        s = s if bias is None else s + bias
        see = visible(s.shape[2], s.shape[3], keep, causal)
        a = safe_softmax(s, see)
        c = times(a, dropout)
        o = c @ v
        shown = o
        if bug == "sm_masked_scores_are_0":
            shown = times(safe_softmax(times(s, see)), dropout) @ v
        if bug == "sm_dropout_unscaled":
            shown = times(a, None if dropout is None else (dropout != 0).to(a.dtype)) @ v
        dv = c.mT @ do
        dc = do @ v.mT
        delta = (do * o).sum(-1, keepdim=True)
        if bug == "sm_delta_of_head_0":
            delta = delta[:, :1]
        if bug == "sm_delta_dropped":
            ds = c * (dc - delta)
        else:
            ds = a * (times(dc, dropout) - delta)
        dq = ds @ k * scale
        dk = ds.mT @ qs
        if bug == "sm_dk_scaled_twice":
            dk = dk * scale
        dbias = None
        if bias is not None:
            dbias = reduced(ds[:1] if bug == "sm_dbias_first_batch" and four(bias).shape[0] == 1 else ds, bias)
        return shown, dq, dk, dv, dbias
    return outer(f)


def softmax_flash(bug=None, causal=False, rows=4, columns=2):
    """Tiles of queries and keys, forward and backward; the backward from q, k, v, o and the log-sum-exp."""
    def f(q, k, v, *, do, bias, keep, dropout):
        (b, h, n, d), m = q.shape, k.shape[2]
        scale, shift = d ** -0.5, m - n
        bias4, keep4, drop4 = (None if x is None else four(x) for x in (bias, keep, dropout))
        zero, low = q.new_zeros(()), q.new_full((), -torch.inf)

        def scores(i, j):
            s = q[:, :, i] @ k[:, :, j].mT * scale
            if bias4 is not None:
                s = s + part(part(bias4, 2, i), 3, j)
            if keep4 is not None:
                s = torch.where(part(part(keep4, 2, i), 3, j), s, low)
            if causal:
                at = torch.arange(n)[i, None] + shift
                s = torch.where(torch.arange(m)[j] <= at, s, low)
            return s

        def dropped(x, i, j):
            return times(x, None if drop4 is None else part(part(drop4, 2, i), 3, j))

        o = torch.zeros_like(do)
        lse = q.new_zeros(b, h, n, 1)
        for i0 in range(0, n, rows):
            i = slice(i0, min(i0 + rows, n))
            top, total, acc = q.new_full((b, h, i.stop - i0, 1), -torch.inf), 0, 0
            end = m
            if causal:                                      # tiles past the diagonal have nothing
                end = max(0, min(m, i.stop + shift))
                if bug == "sm_loop_ends_at_first_row":
                    end = max(0, min(m, i0 + 1 + shift))
            for j0 in range(0, end, columns):
                j = slice(j0, min(j0 + columns, m))
                s = scores(i, j)
                new = torch.maximum(top, s.amax(-1, keepdim=True))
                safe = torch.where(torch.isinf(new), zero, new)
                p, alpha = (s - safe).exp(), (top - safe).exp()
                total = (total if bug == "sm_sum_not_rescaled" else total * alpha) + p.sum(-1, keepdim=True)
                acc = acc * alpha + dropped(p, i, j) @ v[:, :, j]
                top = new
            if isinstance(total, int):
                continue
            safe = torch.where(torch.isinf(top), zero, top)
            total = torch.where(total == 0, torch.ones_like(total), total)
            o[:, :, i] = acc / total
            lse[:, :, i] = safe if bug == "sm_lse_without_log_sum" else safe + total.log()

        delta = (do * o).sum(-1, keepdim=True)
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        dbias = None if bias is None else torch.zeros_like(bias4)
        for j0 in range(0, m, columns):
            j = slice(j0, min(j0 + columns, m))
            first = 0
            if causal:                                      # the first query that sees a key of this tile
                first = min(n, j0 if bug == "sm_dkv_starts_late" else max(0, j0 - shift))
            for i0 in range(0, n, rows):
                i = slice(i0, min(i0 + rows, n))
                p = (scores(i, j) - lse[:, :, i]).exp()
                dv_rows = (torch.arange(n)[i, None] >= first).to(p.dtype)
                dv[:, :, j] += dropped(p * dv_rows, i, j).mT @ do[:, :, i]
                ds = p * (dropped(do[:, :, i] @ v[:, :, j].mT, i, j) - delta[:, :, i])
                dk[:, :, j] += (ds * dv_rows).mT @ q[:, :, i] * scale
                dq[:, :, i] += ds @ k[:, :, j] * scale
                if bias is not None:
                    view = part(part(dbias, 2, i), 3, j)
                    view += reduced(ds, view)
        return o, dq, dk, dv, None if bias is None else dbias.reshape(bias.shape)
    return outer(f)


# ------------------------------------------------------------------------------------------------------------- hyla

EPSILON = 1e-6


def hyla_autograd(bug=None, causal=False):
    def f(q, k, v, *, do, bias, keep, dropout):
        def forward(q, k, v, bias):
            s = ein("bhqd,bhkd->bhqk", q, k) / sqrt(q.shape[-1])
            if bias is not None:
                s = s + (four(bias)[:, :1] if bug == "hy_bias_of_head_0" else bias)
            see = visible(s.shape[2], s.shape[3], keep, causal)
            s = times(s, see)
            if bug == "hy_dropout_before_rms":
                s = times(s, dropout)
            eps = torch.finfo(s.dtype).eps if bug == "hy_epsilon_of_rms_norm" else EPSILON
            a = s * (s.square().mean(1, keepdim=True) + eps).rsqrt()
            c = a if bug == "hy_dropout_before_rms" else times(a, dropout)
            z = ein("bhqk,bhke->bqke", c, v)
            g = torch.nn.functional.leaky_relu(z) if bug == "hy_leaky_relu" else z.relu()
            return ein("bhqk,bqke->bhqe", c, g)
        return by_autograd(forward, (q, k, v), bias, do)
    return outer(f)


def hyla_dense(bug=None, causal=False):
    def f(q, k, v, *, do, bias, keep, dropout):
        heads, scale = q.shape[1], q.shape[-1] ** -0.5
        raw = q @ k.mT * scale
        raw = raw if bias is None else raw + bias
        see = visible(raw.shape[2], raw.shape[3], keep, causal)
        s = times(raw, see)
        count = heads
        if bug == "hy_mean_over_padded_heads":
            count = 1 << (heads - 1).bit_length()           # the block of heads is a power of two
        rho = (s.square().sum(1, keepdim=True) / count + EPSILON).rsqrt()
        a = s * rho
        c = times(a, dropout)
        z = ein("bhqk,bhke->bqke", c, v)
        g = z.relu()
        shown = o = ein("bhqk,bqke->bhqe", c, g)
        if bug == "hy_second_use_unmasked":
            shown = ein("bhqk,bqke->bhqe", times(raw * rho, dropout), g)
        if bug == "hy_second_use_dropped_twice":
            shown = ein("bhqk,bqke->bhqe", times(c, dropout), g)
        if bug == "hy_last_queries_not_written":
            shown = o.clone()
            shown[:, :, o.shape[2] // 4 * 4:] = 0

        dg = ein("bhqk,bhqe->bqke", a if bug == "hy_dg_without_dropout" else c, do)
        dc = ein("bhqe,bqke->bhqk", do, z if bug == "hy_dc_from_z" else g)
        gate = z > 0
        if bug == "hy_gate_without_dropout":
            gate = ein("bhqk,bhke->bqke", a, v) > 0
        dz = dg * gate
        first = ein("bqke,bhke->bhqk", dz, v)
        if bug == "hy_dv_last_tile":                        # over tiles of 4 queries, = for +=
            for i in range(0, dz.shape[1], 4):
                dv = ein("bhqk,bqke->bhke", c[:, :, i:i + 4], dz[:, i:i + 4])
        else:
            dv = ein("bhqk,bqke->bhke", c, dz)
        if bug == "hy_first_use_without_dropout":
            da = times(dc, dropout) + first
        else:
            da = times(dc + first, dropout)
        if bug == "hy_rms_one_rho_short":
            ds0 = rho * da - s * rho ** 2 * (s * da).mean(1, keepdim=True)
        else:
            ds0 = rho * (da - a * (a * da).sum(1, keepdim=True) / count)
        ds = times(ds0, see)
        dq, dk = ds @ k * scale, ds.mT @ q * scale
        dbias = None if bias is None else reduced(ds0 if bug == "hy_dbias_unmasked" else ds, bias)
        return shown, dq, dk, dv, dbias
    return outer(f)


# ----------------------------------------------------------------------------------------------------------- linear


def linear_autograd(bug=None, causal=False):
    def f(q, k, v, *, do, bias, keep, dropout):
        def forward(q, k, v, bias):
            s = ein("bqhd,bkhd->bhqk", q, k)
            if bug == "li_bias_before_scale":
                s = (s if bias is None else s + bias) / sqrt(q.shape[-1])
            else:
                s = s / sqrt(q.shape[-1])
                s = s if bias is None else s + bias
            s = times(times(s, visible(s.shape[2], s.shape[3], keep, causal)), dropout)
            return ein("bhqk,bkhe->bqhe", s, v)
        return by_autograd(forward, (q, k, v), bias, do)
    return outer(f)


def linear_dense(bug=None, causal=False, chunk=2):
    def f(q, k, v, *, do, bias, keep, dropout):
        scale = q.shape[-1] ** -0.5
        s = q @ k.mT * scale
        s = s if bias is None else s + bias
        n, m = s.shape[2:]
        see = visible(n, m, keep, causal)
        c = times(times(s, see), dropout)
        dv = (times(s, dropout) if bug == "li_dv_unmasked" else c).mT @ do
        dc = do @ v.mT
        ds = times(times(dc, dropout), see)
        dq = ds @ k * scale
        if bug == "li_dk_earlier_chunks_unscaled":          # what comes through the state and what is in the chunk
            own = (torch.arange(n)[:, None] + m - n) // chunk == torch.arange(m) // chunk
            dk = (ds * own).mT @ q * scale + (ds * ~own).mT @ q
        else:
            dk = ds.mT @ q * scale
        dbias = None
        if bias is not None:
            dbias = reduced(times(dc, see) if bug == "li_dbias_without_dropout" else ds, bias)
        return c @ v, dq, dk, dv, dbias
    return outer(f)


def linear_chunked(bug=None, chunk=2, gradients="autograd"):
    """Causal, chunk by chunk, what came before a chunk being a state (h, d, e); pairs where there are options."""
    def with_state(q, k, v):
        (b, h, n, d), m = q.shape, k.shape[2]
        state, outputs = q.new_zeros(b, h, d, v.shape[3]), [q.new_zeros(b, h, max(0, n - m), v.shape[3])]
        q = q * d ** -0.5
        for j0 in range(0, m, chunk):
            j = slice(j0, min(j0 + chunk, m))
            i = slice(max(0, j0 + n - m), max(0, j.stop + n - m))
            kj, vj = k[:, :, j], v[:, :, j]
            add = kj.mT @ vj
            if bug == "li_state_before_output":
                state = state + add
            inside = torch.arange(j0, j.stop) <= torch.arange(n)[i, None] + m - n
            outputs.append(q[:, :, i] @ state + (q[:, :, i] @ kj.mT * inside) @ vj)
            if bug == "li_state_overwritten":
                state = add
            elif bug != "li_state_before_output":
                state = state + add
        return torch.cat(outputs, 2)

    def with_pairs(q, k, v, bias, keep, dropout):
        n, m = q.shape[2], k.shape[2]
        s = q @ k.mT * q.shape[-1] ** -0.5
        s = times(times(s if bias is None else s + bias, keep), dropout)
        at = torch.arange(n)[:, None] + m - n
        other = torch.arange(m)
        inside = (at // chunk == other // chunk) & (other <= at)
        before = other // chunk < at // chunk
        if bug == "li_state_before_output":
            before = other // chunk <= at // chunk
        if bug == "li_state_overwritten":
            before = other // chunk == at // chunk - 1
        return (s * inside) @ v + (s * before) @ v

    def f(q, k, v, *, do, bias, keep, dropout):
        def forward(q, k, v, bias):
            if bias is keep is dropout:
                return with_state(q, k, v)
            return with_pairs(q, k, v, bias, keep, dropout)
        if gradients == "autograd":
            return by_autograd(forward, (q, k, v), bias, do)
        scale = q.shape[-1] ** -0.5
        s = q @ k.mT * scale
        see = visible(*s.shape[2:], keep, True)
        ds = times(times(do @ v.mT, dropout), see)
        c = times(times(s if bias is None else s + bias, see), dropout)
        return (forward(q, k, v, bias), ds @ k * scale, ds.mT @ q * scale, c.mT @ do,
                None if bias is None else reduced(ds, bias))
    return outer(f)


# ---------------------------------------------------------------------------------------------------- compositional


def logits(scoring, selector, t, score, bug=None):
    if scoring == "dot":
        width = t.shape[-1] if bug == "co_scaled_by_value_width" else selector.shape[-1]
        return ein("bqsc,bqsrc->bqsr", selector, t @ score[0]) / sqrt(width)
    if scoring == "linear":
        w, w_query, b = score
        l = ein("bqsre,e->bqsr", t, w)
        if bug == "co_linear_scaled":
            l = l / sqrt(selector.shape[-1])
        return l + (selector @ w_query)[..., None] + b
    w, w_query, b, w2, b2 = score
    z = t @ w + (selector @ w_query)[..., None, :]
    hidden = z.relu() + b if bug == "co_bias_after_relu" else (z + b).relu()
    return hidden @ w2 + b2


def compositional_autograd(bug=None, scoring="dot", causal=False):
    def f(q, k, v, selector, *score, do, bias, keep, dropout):
        def forward(q, k, v, selector, *rest):
            *score, bias = rest
            s = ein("bqsd,bksd->bsqk", q, k) * q.shape[-1] ** -0.5
            s = s if bias is None else s + bias
            c = times(safe_softmax(s, visible(s.shape[2], s.shape[3], keep, causal)), dropout)
            if bug == "co_gate_per_tile":                   # of 4 keys
                o = 0
                for j in range(0, k.shape[1], 4):
                    t = ein("bsqk,bkre->bqsre", c[..., j:j + 4], v[:, j:j + 4])
                    o = o + ein("bqsr,bqsre->bqse", logits(scoring, selector, t, score).softmax(-1), t)
                return o
            t = ein("bsqk,bkre->bqsre", c, v)
            g = logits(scoring, selector, t, score, bug).softmax(-1)
            return (g[..., None] * t).sum(3)
        return by_autograd(forward, (q, k, v, selector, *score), bias, do)
    return outer(f)


def compositional_dense(bug=None, scoring="dot", causal=False):
    def f(q, k, v, selector, *score, do, bias, keep, dropout):
        scale = q.shape[-1] ** -0.5
        s = ein("bqsd,bksd->bsqk", q, k) * scale
        s = s if bias is None else s + bias
        a = safe_softmax(s, visible(s.shape[2], s.shape[3], keep, causal))
        c = times(a, dropout)
        t = ein("bsqk,bkre->bqsre", c, v)
        g = safe_softmax(logits(scoring, selector, t, score))
        shown = o = ein("bqsr,bqsre->bqse", g, t)
        if bug == "co_retrievals_reshaped":
            other = t.transpose(2, 3).contiguous().view(t.shape)
            shown = ein("bqsr,bqsre->bqse", safe_softmax(logits(scoring, selector, other, score)), other)
        if bug == "co_gate_of_search_0":
            shown = ein("bqsr,bqsre->bqse", g[:, :, :1].expand_as(g), t)
        if bug in ("co_linear_scaled", "co_bias_after_relu"):
            shown = ein("bqsr,bqsre->bqse", safe_softmax(logits(scoring, selector, t, score, bug)), t)

        dg = ein("bqse,bqsre->bqsr", do, t)
        inner = (g * dg).sum((2, 3) if bug == "co_gate_sum_over_searches" else 3, keepdim=True)
        dl = g * (dg - inner)
        if scoring == "dot":
            cs = selector.shape[-1] ** -0.5
            y = t @ score[0]
            dselector = ein("bqsr,bqsrc->bqsc", dl, y) * cs
            dy = ein("bqsr,bqsc->bqsrc", dl, selector) * cs
            dscore = [ein("bqsre,bqsrc->ec", t, dy)]
            through = dy @ score[0].T
        elif scoring == "linear":
            w, w_query, _ = score
            same = dl.sum(-1)
            dselector = same[..., None] * w_query
            dscore = [ein("bqsr,bqsre->e", dl, t), ein("bqs,bqsc->c", same, selector), same.sum().reshape(1)]
            through = dl[..., None] * w
        else:
            w, w_query, b, w2, b2 = score
            z = t @ w + (selector @ w_query + b)[..., None, :]
            dz = dl[..., None] * w2 * (z > 0)
            same = dz[..., 0, :] if bug == "co_selector_of_retrieval_0" else dz.sum(-2)
            dselector = same @ w_query.T
            dscore = [ein("bqsre,bqsrf->ef", t, dz), ein("bqsc,bqsf->cf", selector, same), same.sum((0, 1, 2)),
                      ein("bqsr,bqsrf->f", dl, z.relu()), dl.sum().reshape(1)]
            through = dz @ w.T
        mixed = ein("bqsr,bqse->bqsre", g, do)
        dt = mixed if bug == "co_dt_without_gate" else mixed + through
        dv = ein("bsqk,bqsre->bkre", c, mixed if bug == "co_dv_without_gate" else dt)
        da = times(ein("bqsre,bkre->bsqk", dt, v), dropout)
        delta = (do * o).sum(-1).transpose(1, 2)[..., None] if bug == "co_delta_from_output" else (
            (a * da).sum(-1, keepdim=True))
        ds = a * (da - delta)
        return (shown, ein("bsqk,bksd->bqsd", ds, k) * scale, ein("bsqk,bqsd->bksd", ds, q) * scale, dv,
                None if bias is None else reduced(ds, bias), dselector, *dscore)
    return outer(f)


# -------------------------------------------------------------------------------------------------- sliding-dilated


def offsets(queries, keys, chunk, dilation=DILATION, shift=None):
    """n[q, w], the key of each query and offset; negative where there is none."""
    at = torch.arange(queries) + (keys - queries if shift is None else shift)
    return at[:, None] - dilation * torch.arange(chunk)


def gathered(x, n, pad=None):
    """x (b, k, h, d) at n (q, w): (b, q, w, h, d), with pad (h, d), or 0, where n < 0."""
    found = x[:, n.clamp(min=0)]
    there = (n >= 0)[None, :, :, None, None]
    return torch.where(there, found, torch.zeros_like(found) if pad is None else pad.expand_as(found))


def sliding_autograd(bug=None):
    def f(q, k, v, r, *pads, do, bias, keep, dropout):
        n = offsets(q.shape[1], k.shape[1], r.shape[1])

        def forward(q, k, v, r, *rest):
            *pads, bias = rest
            pad_k, pad_v = pads or (None, None)
            if bug == "sl_values_not_padded":
                pad_v = None
            s = ein("bqhd,bqwhd->bhqw", q, gathered(k, n, pad_k)) / sqrt(q.shape[-1])
            s = s + (r.flip(1) if bug == "sl_offsets_oldest_first" else r)[:, None]
            s = s if bias is None else s + bias
            see = keep
            if not pads:
                there = n > 0 if bug == "sl_first_key_lost" else n >= 0
                see = there if keep is None else keep & there
            return ein("bhqw,bqwhe->bqhe", times(safe_softmax(s, see), dropout), gathered(v, n, pad_v))
        return by_autograd(forward, (q, k, v, r, *pads), bias, do)
    return outer(f)


def sliding_dense(bug=None):
    def f(q, k, v, r, *pads, do, bias, keep, dropout):
        pad_k, pad_v = pads or (None, None)
        scale, chunk = q.shape[-1] ** -0.5, r.shape[1]
        n = offsets(q.shape[1], k.shape[1], chunk)
        there = n >= 0

        def forward(n, absent=True):
            kn, vn = gathered(k, n, pad_k), gathered(v, n, pad_v)
            s = ein("bqhd,bqwhd->bhqw", q, kn) * scale + r[:, None]
            s = s if bias is None else s + bias
            see = keep
            if not pads and absent:
                see = n >= 0 if keep is None else keep & (n >= 0)
            a = safe_softmax(s, see)
            return kn, vn, a, ein("bhqw,bqwhe->bqhe", times(a, dropout), vn)

        kn, vn, a, o = forward(n)
        if bug == "sl_queries_at_the_first_keys":
            o = forward(offsets(q.shape[1], k.shape[1], chunk, shift=0))[3]
        if bug == "sl_absent_keys_score_0":
            o = forward(n, absent=False)[3]

        c = times(a, dropout)
        dvn = ein("bhqw,bqhe->bqwhe", c, do)
        dc = ein("bqhe,bqwhe->bhqw", do, vn)
        da = times(dc, dropout)
        ds = a * (da - (a * da).sum(-1, keepdim=True))
        if bug == "sl_dq_dilation_1":
            kn = gathered(k, offsets(q.shape[1], k.shape[1], chunk, dilation=1), pad_k)
        dq = ein("bhqw,bqwhd->bqhd", ds, kn) * scale
        dkn = ein("bhqw,bqhd->bqwhd", ds, q) * scale
        dk, dv = torch.zeros_like(k), torch.zeros_like(v)
        for w in range(chunk):
            inside = there[:, w]
            if bug == "sl_dk_last_offset_wins":
                dk[:, n[inside, w]] = dkn[:, inside, w]
            else:
                dk[:, n[inside, w]] += dkn[:, inside, w]
            if bug == "sl_dv_clamped":
                dv.index_add_(1, n[:, w].clamp(min=0), dvn[:, :, w])
            else:
                dv[:, n[inside, w]] += dvn[:, inside, w]
        dr = ds.sum((0, 2)) * (scale if bug == "sl_dr_scaled" else 1)
        dpads = [x[:, ~there].sum((0, 1)) for x in (dkn, dvn)] if pads else []
        return o, dq, dk, dv, None if bias is None else reduced(ds, bias), dr, *dpads
    return outer(f)


# ------------------------------------------------------------------------------- right kernels in styles of their own


@outer
def right_softmax_logsumexp(q, k, v, *, do, bias, keep, dropout):
    def forward(q, k, v, bias):
        s = torch.matmul(q / sqrt(sqrt(q.shape[-1])), (k / sqrt(sqrt(q.shape[-1]))).transpose(-1, -2))
        s = s if bias is None else s + bias
        if keep is not None:
            s = s.masked_fill(~keep, -1e30)
        a = (s - torch.logsumexp(s, -1, keepdim=True)).exp()
        a = times(a, keep)                                  # a row that keeps nothing is uniform before this
        return times(a, dropout) @ v
    return by_autograd(forward, (q, k, v), bias, do)


@outer
def right_softmax_base_2(q, k, v, *, do, bias, keep, dropout):
    """Powers of two, sums divided last, one product of joined gradients; bthd."""
    scale = q.shape[-1] ** -0.5 / log(2)
    s = ein("bqhd,bkhd->bhqk", q, k * scale)
    s = s if bias is None else s + bias / log(2)
    p = torch.exp2(s - s.amax(-1, keepdim=True))
    if keep is not None:
        masked = s.masked_fill(~keep, -1e30)
        p = torch.exp2(masked - masked.amax(-1, keepdim=True)) * keep
    total = p.sum(-1)
    inverse = torch.where(total > 0, 1 / total, torch.zeros_like(total))[..., None]     # (b, h, q, 1)
    o = ein("bhqk,bkhe->bqhe", times(p, dropout), v) * inverse[..., 0].transpose(1, 2)[..., None]
    dop = do * inverse[..., 0].transpose(1, 2)[..., None]   # the division moved into do
    dv = ein("bhqk,bqhe->bkhe", times(p, dropout), dop)
    dp = times(ein("bqhe,bkhe->bhqk", dop, v), dropout)
    ds = p * (dp - (p * dp).sum(-1, keepdim=True) * inverse)
    return (o, ein("bhqk,bkhd->bqhd", ds, k) / sqrt(q.shape[-1]), ein("bhqk,bqhd->bkhd", ds, q) / sqrt(q.shape[-1]),
            dv, None if bias is None else reduced(ds, bias))


@outer
def right_softmax_each_head(q, k, v, *, do, bias, keep, dropout):
    """A loop over sequences and heads, torch.addmm with beta and alpha, the Jacobian written out; causal."""
    b, h, n, d = q.shape
    m = k.shape[2]
    see = visible(n, m, keep, True).expand(b, h, n, m)
    add = None if bias is None else bias.expand(b, h, n, m)
    drop = torch.ones(b, h, n, m, dtype=q.dtype) if dropout is None else dropout.expand(b, h, n, m)
    o, dq, dk, dv = torch.zeros_like(do), torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    ds = q.new_zeros(b, h, n, m)
    for x in range(b):
        for y in range(h):
            base = q.new_zeros(n, m) if add is None else add[x, y]
            s = torch.addmm(base, q[x, y], k[x, y].T, beta=1, alpha=d ** -0.5)
            a = safe_softmax(s, see[x, y])
            c = a * drop[x, y]
            o[x, y] = c @ v[x, y]
            dv[x, y] = c.T @ do[x, y]
            da = (do[x, y] @ v[x, y].T) * drop[x, y]
            ds[x, y] = a * da - a * torch.bmm(a[:, None], da[:, :, None])[:, 0]
            dq[x, y] = (ds[x, y] @ k[x, y]) / sqrt(d)
            dk[x, y] = (ds[x, y].T @ q[x, y]) / sqrt(d)
    return o, dq, dk, dv, None if bias is None else reduced(ds, bias)


@outer
def right_hyla_rms_norm(q, k, v, *, do, bias, keep, dropout):
    """Heads last, torch.nn.functional.rms_norm, batched products over pairs; bthd, autograd."""
    def forward(q, k, v, bias):
        s = ein("bqhd,bkhd->bqkh", q, k) * q.shape[-1] ** -0.5
        s = s if bias is None else s + four(bias).permute(0, 2, 3, 1)
        if keep is not None:
            s = s.masked_fill(~four(keep).permute(0, 2, 3, 1), 0)
        c = torch.nn.functional.rms_norm(s, s.shape[-1:], eps=1e-6)
        c = times(c, None if dropout is None else four(dropout).permute(0, 2, 3, 1))
        z = (c[..., None, :] @ v[:, None])[..., 0, :]       # (b, q, k, 1, h) (b, 1, k, h, e)
        return ein("bqkh,bqke->bqhe", c, torch.clamp_min(z, 0))
    return by_autograd(forward, (q, k, v), bias, do)


@outer
def right_hyla_tiles(q, k, v, *, do, bias, keep, dropout):
    """Key tiles of 3, scores made again in the backward, gradients of a tile by hand; the norm as a vector norm; bhtd."""
    b, h, n, d = q.shape
    given = bias
    bias, keep, dropout = (None if x is None else four(x) for x in (bias, keep, dropout))
    o, dq, dk, dv = torch.zeros_like(do), torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    dbias = None if bias is None else torch.zeros_like(bias)

    def tile(j):
        s = (q @ k[:, :, j].mT) / sqrt(d)
        s = s if bias is None else s + part(bias, 3, j)
        s = times(s, part(keep, 3, j))
        size = torch.linalg.vector_norm(s, dim=1, keepdim=True)
        rho = sqrt(h) / (size.square() + h * 1e-6).sqrt()
        drop = part(dropout, 3, j)
        c = times(s * rho, drop)
        return s, rho, drop, c, ein("bhqk,bhke->bqke", c, v[:, :, j])

    for j0 in range(0, k.shape[2], 3):
        *_, c, z = tile(slice(j0, j0 + 3))
        o += ein("bhqk,bqke->bhqe", c, z.relu())
    for j0 in range(0, k.shape[2], 3):
        j = slice(j0, j0 + 3)
        s, rho, drop, c, z = tile(j)
        dz = torch.where(z > 0, ein("bhqk,bhqe->bqke", c, do), torch.zeros_like(z))
        dv[:, :, j] = ein("bhqk,bqke->bhke", c, dz)
        both = do[:, :, :, None] * z.relu()[:, None] + dz[:, None] * v[:, :, None, j]
        da = times(both.sum(-1), drop)
        ds = times(rho * da - s * rho ** 3 * (s * da).mean(1, keepdim=True), part(keep, 3, j))
        dq += ds @ k[:, :, j] / sqrt(d)
        dk[:, :, j] = ds.mT @ q / sqrt(d)
        if bias is not None:
            view = part(dbias, 3, j)
            view += reduced(ds, view)
    return o, dq, dk, dv, None if bias is None else dbias.reshape(given.shape)


@outer
def right_hyla_sequential(q, k, v, *, do, bias, keep, dropout):
    """One head after the other into accumulators, twice; causal; bhtd; autograd."""
    def forward(q, k, v, bias):
        h, n, m = q.shape[1], q.shape[2], k.shape[2]
        see = four(visible(n, m, keep, True))
        scores, power = [], 1e-6
        for x in range(h):
            s = (q[:, x] * q.shape[-1] ** -0.5) @ k[:, x].mT
            s = s if bias is None else s + part(four(bias), 1, slice(x, x + 1))[:, 0]
            s = s * part(see, 1, slice(x, x + 1))[:, 0]
            scores.append(s)
            power = power + s ** 2 / h
        codes = [s / power.sqrt() for s in scores]
        if dropout is not None:
            codes = [c * part(four(dropout), 1, slice(x, x + 1))[:, 0] for x, c in enumerate(codes)]
        z = sum(c[..., None] * v[:, x, None] for x, c in enumerate(codes))
        g = (z + z.abs()) / 2
        return torch.stack([ein("bqk,bqke->bqe", c, g) for c in codes], 1)
    return by_autograd(forward, (q, k, v), bias, do)


@outer
def right_linear_keys_first(q, k, v, *, do, bias, keep, dropout):
    """q (k^T v) where no option forbids; gradients in the same order of products; bthd."""
    scale = q.shape[-1] ** -0.5
    if bias is keep is dropout:
        state = ein("bkhd,bkhe->bhde", k, v) * scale
        dstate = ein("bqhd,bqhe->bhde", q, do) * scale
        return (ein("bqhd,bhde->bqhe", q, state), ein("bqhe,bhde->bqhd", do, state),
                ein("bkhe,bhde->bkhd", v, dstate), ein("bkhd,bhde->bkhe", k, dstate), None)
    gate = times(torch.ones((), dtype=q.dtype) if dropout is None else dropout, keep)
    s = ein("bqhd,bkhd->bhqk", q, k) * scale
    c = (s if bias is None else s + bias) * gate
    ds = ein("bqhe,bkhe->bhqk", do, v) * gate
    return (ein("bhqk,bkhe->bqhe", c, v), ein("bhqk,bkhd->bqhd", ds * scale, k), ein("bhqk,bqhd->bkhd", ds * scale, q),
            ein("bhqk,bqhe->bkhe", c, do), None if bias is None else reduced(ds, bias))


@outer
def right_linear_two_scans(q, k, v, *, do, bias, keep, dropout):
    """Causal, chunks of 3: a scan forwards for o and dq, one backwards for dk and dv; pairs where there are options."""
    (b, h, n, d), m, scale = q.shape, k.shape[2], q.shape[-1] ** -0.5
    see = visible(n, m, None, True)
    if not (bias is keep is dropout):
        gate = times(times(see.to(q.dtype), keep), dropout)
        s = (q * scale) @ k.mT
        c, ds = (s if bias is None else s + bias) * gate, (do @ v.mT) * gate
        return c @ v, ds @ (k * scale), ds.mT @ (q * scale), c.mT @ do, None if bias is None else reduced(ds, bias)
    o, dq, dk, dv = torch.zeros_like(do), torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    chunks = []
    for j0 in range(0, m, 3):
        j1 = min(j0 + 3, m)
        chunks.append((slice(max(0, j0 + n - m), max(0, j1 + n - m)), slice(j0, j1)))
    q = q * scale
    state = q.new_zeros(b, h, d, v.shape[3])
    for i, j in chunks:
        o[:, :, i] = q[:, :, i] @ state + (q[:, :, i] @ k[:, :, j].mT * see[i, j]) @ v[:, :, j]
        dq[:, :, i] = (do[:, :, i] @ state.mT + (do[:, :, i] @ v[:, :, j].mT * see[i, j]) @ k[:, :, j]) * scale
        state = state + k[:, :, j].mT @ v[:, :, j]
    dstate = torch.zeros_like(state)
    for i, j in reversed(chunks):
        dk[:, :, j] = v[:, :, j] @ dstate.mT + (do[:, :, i] @ v[:, :, j].mT * see[i, j]).mT @ q[:, :, i]
        dv[:, :, j] = k[:, :, j] @ dstate + (q[:, :, i] @ k[:, :, j].mT * see[i, j]).mT @ do[:, :, i]
        dstate = dstate + q[:, :, i].mT @ do[:, :, i]
    return o, dq, dk, dv, None


@outer
def right_compositional_map_to_selector(q, k, v, selector, wr, *, do, bias, keep, dropout):
    """The key map in the selector, all (search, retrieval) pairs as one axis of a product; bhtd, autograd."""
    def forward(q, k, v, selector, wr, bias):
        s = q @ k.mT / sqrt(q.shape[-1])
        c = times(safe_softmax(s if bias is None else s + bias, keep), dropout)
        b, r, m, e = v.shape
        t = c @ v.permute(0, 2, 1, 3).reshape(b, 1, m, r * e)
        t = t.reshape(*c.shape[:3], r, e)                   # (b, s, q, r, e)
        u = selector @ wr.T
        l = (t @ u[..., None])[..., 0] * selector.shape[-1] ** -0.5
        return (l.softmax(-1)[..., None, :] @ t)[..., 0, :]
    return by_autograd(forward, (q, k, v, selector, wr), bias, do)


@outer
def right_compositional_linear_joined(q, k, v, selector, w, w_query, b, *, do, bias, keep, dropout):
    """[t, selector] as one vector and one map; causal; bthd; autograd."""
    def forward(q, k, v, selector, w, w_query, b, bias):
        s = ein("bqsd,bksd->bsqk", q * q.shape[-1] ** -0.5, k)
        s = s if bias is None else s + bias
        c = times(safe_softmax(s, visible(s.shape[2], s.shape[3], keep, True)), dropout)
        t = ein("bsqk,bkre->bqsre", c, v)
        joined = torch.cat([t, selector[..., None, :].expand(*t.shape[:4], -1)], -1)
        l = joined @ torch.cat([w, w_query]) + b
        return ein("bqsr,bqsre->bqse", torch.softmax(l, 3), t)
    return by_autograd(forward, (q, k, v, selector, w, w_query, b), bias, do)


@outer
def right_sliding_as_mask(q, k, v, r, *, do, bias, keep, dropout):
    """A T x T mask and biases scattered onto it; bhtd, autograd."""
    (b, h, n, d), m, w = q.shape, k.shape[2], r.shape[1]
    to = offsets(n, m, w)                                   # (q, w)
    hot = torch.zeros(n, w, m, dtype=q.dtype)
    i, j = torch.nonzero(to >= 0, as_tuple=True)
    hot[i, j, to[i, j]] = 1

    def forward(q, k, v, r, bias):
        s = q @ k.mT / sqrt(d) + ein("hw,qwk->hqk", r, hot)
        if bias is not None:
            s = s + ein("bhqw,qwk->bhqk", four(bias).expand(-1, -1, n, w), hot)
        see = hot.sum(1) > 0
        if keep is not None:
            see = ein("bhqw,qwk->bhqk", four(keep).expand(-1, -1, n, w).to(q.dtype), hot) > 0
        a = safe_softmax(s, see)
        if dropout is not None:
            a = a * ein("bhqw,qwk->bhqk", four(dropout).expand(-1, -1, n, w), hot)
        return a @ v
    return by_autograd(forward, (q, k, v, r), bias, do)


@outer
def right_sliding_shifts(q, k, v, r, pad_k, pad_v, *, do, bias, keep, dropout):
    """Pads in front of keys and values, one shifted slice for each offset, by hand; bthd."""
    n, m, chunk, scale = q.shape[1], k.shape[1], r.shape[1], q.shape[-1] ** -0.5
    front = DILATION * (chunk - 1) + max(0, n - m)
    kk = torch.cat([pad_k.expand(k.shape[0], front, *pad_k.shape), k], 1)
    vv = torch.cat([pad_v.expand(v.shape[0], front, *pad_v.shape), v], 1)
    at = [slice(front + m - n - w * DILATION, front + m - w * DILATION) for w in range(chunk)]
    s = torch.stack([(q * kk[:, x]).sum(-1).transpose(1, 2) for x in at], -1) * scale + r[:, None]
    a = safe_softmax(s if bias is None else s + bias, keep)
    c = times(a, dropout)
    weight = [c[..., w].transpose(1, 2)[..., None] for w in range(chunk)]
    o = sum(weight[w] * vv[:, at[w]] for w in range(chunk))
    dkk, dvv, dq = torch.zeros_like(kk), torch.zeros_like(vv), 0
    da = times(torch.stack([(do * vv[:, x]).sum(-1).transpose(1, 2) for x in at], -1), dropout)
    ds = a * (da - (do * o).sum(-1).transpose(1, 2)[..., None])
    for w in range(chunk):
        g = ds[..., w].transpose(1, 2)[..., None] * scale
        dq = dq + g * kk[:, at[w]]
        dkk[:, at[w]] += g * q
        dvv[:, at[w]] += weight[w] * do
    return (o, dq, dkk[:, front:], dvv[:, front:], None if bias is None else reduced(ds, bias), ds.sum((0, 2)),
            dkk[:, :front].sum((0, 1)), dvv[:, :front].sum((0, 1)))


# ------------------------------------------------------------------------------------------------------------- rows


@dataclass(frozen=True)
class Row:
    name: str
    variant: str
    kernel: object
    options: dict
    side: str = ""
    where: str = ""
    what: str = ""
    wrong: tuple = ()
    gradients: str = "handwritten"
    also: str = ""
    backend: str = "torch"
    dtypes: tuple = ("float64", "float32", "bfloat16", "float16")
    inside: str = ""
    needs: tuple = field(default=())

    @property
    def right(self):
        return not self.side

    def cast(self, dtype):
        """The kernel with its results rounded to half precision; the kernel itself otherwise."""
        if dtype not in ("bfloat16", "float16"):
            return self.kernel

        @wraps(self.kernel)
        def rounded(*arrays, **more):
            return tuple(x.to(getattr(torch, dtype)) for x in self.kernel(*arrays, **more))
        return rounded


ROWS = []


def wrong(name, variant, make, side, where, what, results, gradients, also="", **options):
    settings = {k: options.pop(k) for k in ("scoring", "chunk") if k in options}
    inside = options.pop("inside", "")
    if options.get("causal") and make is not linear_chunked:
        settings["causal"] = True
    if make is linear_chunked:
        settings["gradients"] = gradients
    kernel = make(name, **settings)
    kernel.__name__ = kernel.__qualname__ = name
    globals()[name] = kernel
    ROWS.append(Row(name, variant, kernel, options, side, where, what, tuple(results.split()), gradients, also,
                    inside=inside))


def right(name, variant, kernel, gradients, **options):
    kernel.__name__ = kernel.__qualname__ = name
    globals()[name] = kernel
    ROWS.append(Row(name, variant, kernel, options, gradients=gradients))


F, B = "forward", "backward"
BH = {"layout": "bhtd"}
ALL = {"bias": "hqk", "keep": "qk", "dropout": "bhqk"}
ALLW = {"bias": "hqw", "keep": "qw", "dropout": "bhqw"}

# softmax

wrong("sm_bias_in_base_2", "softmax", softmax_autograd, F, "forward (1)",
      "the bias is multiplied by ln 2 (scores times log2 e for powers of two, the bias not); dbias too has a factor ln 2",
      "o dq dk dv dbias", "autograd", **BH, bias="hqk")
wrong("sm_causal_one_too_many", "softmax", softmax_autograd, F, "forward (2)",
      "causal mask off by one: each query also sees the next key, k <= q + 1", "o dq dk dv", "autograd", **BH, causal=True)
wrong("sm_heads_reshaped", "softmax", softmax_autograd, F, "forward (4)",
      "o is transposed to (b, q, h, e) in memory and then viewed as (b, h, q, e): entries of the output are permuted",
      "o dq dk dv", "autograd", **BH)
wrong("sm_sum_not_rescaled", "softmax", softmax_flash, F, "forward (2)",
      "online softmax: the running sum is not multiplied by exp(m - m') when the maximum grows (the running o is); the "
      "log-sum-exp that it gives goes on into the backward", "o dq dk dv", "tiled", "forward (4)", **BH)
wrong("sm_loop_ends_at_first_row", "softmax", softmax_flash, F, "forward (2)",
      "causal: the loop over key tiles ends where the first query of the query tile ends, later queries of the tile lose "
      "keys; the backward sees all keys but takes o and the log-sum-exp from this forward", "o dq dk dv", "tiled",
      "forward (4)", **BH, causal=True)
wrong("sm_masked_scores_are_0", "softmax", softmax_dense, F, "forward (2)",
      "masked scores are multiplied by keep and become 0, not minus infinity: masked keys take part with exp(0)",
      "o", "handwritten", **BH, keep="qk")
wrong("sm_dropout_unscaled", "softmax", softmax_dense, F, "forward (3)",
      "dropout as a mask of 0 and 1: the factor 1 / (1 - p) is missing in the forward", "o", "handwritten",
      "forward (4)", **BH, dropout="bhqk")
wrong("sm_delta_of_head_0", "softmax", softmax_dense, B, "backward (2)",
      "D = sum_k a da (from do . o) is that of head 0 for every head", "dq dk", "handwritten", **BH)
wrong("sm_delta_dropped", "softmax", softmax_dense, B, "backward (2)",
      "ds = c (dc - D) with c after dropout: the term a D is multiplied by dropout too, ds = a (dropout dc - dropout D)",
      "dq dk", "handwritten", **BH, dropout="bhqk")
wrong("sm_dk_scaled_twice", "softmax", softmax_dense, B, "backward (1)",
      "dk has the factor 1/sqrt(d) twice (q was scaled already)", "dk", "handwritten", **BH)
wrong("sm_dbias_first_batch", "softmax", softmax_dense, B, "backward (1)",
      "dbias is that of the first sequence: no sum over b, to which the bias is stretched", "dbias", "handwritten",
      **BH, bias="hqk", keep="qk")
wrong("sm_dkv_starts_late", "softmax", softmax_flash, B, "backward (4) backward (1)",
      "causal, more keys than queries: dk and dv of a key tile start at query k instead of k - (keys - queries), pairs of "
      "query and key are lost in dk and dv (dq is right)", "dk dv", "tiled", **BH, causal=True)
wrong("sm_lse_without_log_sum", "softmax", softmax_flash, B, "backward (3) backward (4) backward (2)",
      "the saved log-sum-exp is the maximum only: the weights of the backward are exp(s - m), not divided by their sum "
      "(D = do . o is right)", "dq dk dv dbias", "tiled", "forward (2), saved", **BH, bias="bhqk")

# hyla

wrong("hy_epsilon_of_rms_norm", "hyla", hyla_autograd, F, "forward (3)",
      "epsilon is that of the floating-point format (1.2e-7; 2.2e-16 in float64), the default of rms_norm, not 1e-6: shows "
      "only where scores are small", "o dq dk dv", "autograd", **BH)
wrong("hy_bias_of_head_0", "hyla", hyla_autograd, F, "forward (1)",
      "the bias of head 0 is added to every head; dbias is 0 in the other heads", "o dq dk dv dbias", "autograd",
      **BH, bias="hqk")
wrong("hy_dropout_before_rms", "hyla", hyla_autograd, F, "forward (3)",
      "dropout multiplies the scores before RMSHead, not the code after it", "o dq dk dv", "autograd", "forward (4)",
      **BH, dropout="bhqk")
wrong("hy_leaky_relu", "hyla", hyla_autograd, F, "forward (6)",
      "leaky relu (slope 0.01 below 0) for relu", "o dq dk dv", "autograd", **BH)
wrong("hy_mean_over_padded_heads", "hyla", hyla_dense, F, "forward (3)",
      "the mean of RMSHead divides by the heads padded to a power of two (8 for 5): rho and a have a factor sqrt(8/5); it "
      "is in the backward as in the forward", "o dq dk dv", "tiled", "", **BH)
wrong("hy_second_use_unmasked", "hyla", hyla_dense, F, "forward (7)",
      "keep is ignored in the second use of the code (outer sum over keys): the scores before the mask times rho",
      "o", "handwritten", "", **BH, keep="bhqk")
wrong("hy_second_use_dropped_twice", "hyla", hyla_dense, F, "forward (7)",
      "dropout is applied twice to the code in its second use (squared)", "o", "handwritten", **BH, dropout="bhqk")
wrong("hy_last_queries_not_written", "hyla", hyla_dense, F, "forward (7)",
      "the last, partial tile of queries (4 each) of o is not written and stays 0", "o", "handwritten",
      "forward (1) to (6), for these queries", **BH)
wrong("hy_dg_without_dropout", "hyla", hyla_dense, B, "backward (7)",
      "dg is made of the code before dropout, a for c", "dq dk dv", "handwritten", "", **BH, dropout="bhqk")
wrong("hy_dc_from_z", "hyla", hyla_dense, B, "backward (7)",
      "the second use's dc takes z before relu, z for g", "dq dk", "handwritten", **BH)
wrong("hy_gate_without_dropout", "hyla", hyla_dense, B, "backward (6)",
      "relu's gate is made of z without dropout: z > 0 of sum_h a v for sum_h c v", "dq dk dv", "handwritten",
      **BH, dropout="bhqk")
wrong("hy_dv_last_tile", "hyla", hyla_dense, B, "backward (5)",
      "dv is that of the last tile of queries (queries 4 and 5): overwritten, not added, over tiles of 4 queries",
      "dv", "handwritten", **BH)
wrong("hy_first_use_without_dropout", "hyla", hyla_dense, B, "backward (4)",
      "dropout is missing in the first use's term of da: da = dropout dc7 + dc5", "dq dk", "handwritten",
      "backward (5)", **BH, dropout="bhqk")
wrong("hy_rms_one_rho_short", "hyla", hyla_dense, B, "backward (3)",
      "a factor rho is missing in the second term of RMSHead's backward: rho da - rho a mean(s da), s for a in one place "
      "(rho^2 for rho^3)", "dq dk", "handwritten", "", **BH)
wrong("hy_dbias_unmasked", "hyla", hyla_dense, B, "backward (1)",
      "dbias takes ds before the mask: keep is ignored in dbias", "dbias", "handwritten", "", **BH, bias="bhqk", keep="hqk")

# linear

wrong("li_bias_before_scale", "linear", linear_autograd, F, "forward (1)",
      "the bias is added before the scale, and so divided by sqrt(d); dbias too", "o dv dbias",
      "autograd", bias="hqk")
wrong("li_state_before_output", "linear", linear_chunked, F, "forward (2)",
      "causal, chunks of 2 keys: the state is updated before the output reads it, so keys of the query's own chunk count "
      "once too often, later ones included", "o dq dk dv", "autograd", "forward (4)", **BH, causal=True)
wrong("li_state_overwritten", "linear", linear_chunked, F, "forward (4)",
      "causal, chunks of 2 keys: the state is that of the chunk before only (= for +=); earlier keys are lost", "o",
      "handwritten", "forward (2)", **BH, causal=True)
wrong("li_dk_earlier_chunks_unscaled", "linear", linear_dense, B, "backward (1)",
      "causal, chunks of 2 keys: the part of dk from queries of later chunks (through the state) lacks 1/sqrt(d)", "dk",
      "handwritten", **BH, causal=True)
wrong("li_dv_unmasked", "linear", linear_dense, B, "backward (4)",
      "dv takes the scores before keep: the mask is missing in dv", "dv", "handwritten", "backward (3)", **BH, keep="qk",
      bias="hqk")
wrong("li_dbias_without_dropout", "linear", linear_dense, B, "backward (1)",
      "dbias takes dc for da: dropout is missing in dbias", "dbias", "handwritten", "", **BH, bias="h1k", dropout="bhqk")

# compositional

wrong("co_scaled_by_value_width", "compositional", compositional_autograd, F, "forward (5)",
      "value scores are divided by sqrt(e), the width of the values, not sqrt(c)",
      "o dq dk dv dselector dwr", "autograd", inside="dot (1)")
wrong("co_retrievals_reshaped", "compositional", compositional_dense, F, "forward (4)",
      "retrievals are laid out (b, q, r, s, e) in memory and viewed as (b, q, s, r, e): pairs of search and retrieval are "
      "permuted", "o", "handwritten")
wrong("co_linear_scaled", "compositional_linear", compositional_dense, F, "forward (5)",
      "linear scoring's t . w is divided by sqrt(c), a factor that belongs to dot scoring", "o", "handwritten",
      scoring="linear", inside="linear (2)")
wrong("co_bias_after_relu", "compositional_nonlinear", compositional_dense, F, "forward (5)",
      "nonlinear scoring adds b after the relu, relu(z) + b, where it changes nothing", "o", "handwritten",
      "", scoring="nonlinear", inside="nonlinear (2)")
wrong("co_gate_per_tile", "compositional", compositional_autograd, F, "forward (5)",
      "value scores and their softmax are made in each tile of 4 keys from that tile's retrievals, and the tiles' outputs "
      "added: gates of partial retrievals", "o dq dk dv dselector dwr", "autograd", "forward (6) forward (7)")
wrong("co_gate_of_search_0", "compositional", compositional_dense, F, "forward (7)",
      "the value scores of search 0 weigh the retrievals of every search", "o", "handwritten", "forward (6)")
wrong("co_dt_without_gate", "compositional", compositional_dense, B, "backward (5)",
      "dt lacks the term of the value scores: dt = g do only", "dq dk dv", "handwritten", "backward (7)")
wrong("co_gate_sum_over_searches", "compositional", compositional_dense, B, "backward (6)",
      "softmax backward of the value scores sums g dg over searches and retrievals, not over retrievals",
      "dq dk dv dselector dwr", "handwritten", dropout="bhqk")
wrong("co_dv_without_gate", "compositional_linear", compositional_dense, B, "backward (4)",
      "dv lacks the term of the value scores: it is made of g do, not of the whole dt", "dv", "handwritten", "",
      scoring="linear", keep="qk")
wrong("co_selector_of_retrieval_0", "compositional_nonlinear", compositional_dense, B, "backward (5)",
      "nonlinear scoring: what goes to selector, its map and b is that of retrieval 0, not the sum over retrievals",
      "dselector dwc dbr", "handwritten", scoring="nonlinear", inside="nonlinear_backward (2)")
wrong("co_delta_from_output", "compositional", compositional_dense, B, "backward (2)",
      "softmax backward of the search scores takes D = do . o, as in softmax attention, for sum_k a da: wrong, since o "
      "depends on a through the gates too", "dq dk dbias", "handwritten", "", bias="hqk")

# sliding-dilated

wrong("sl_first_key_lost", "sliding_dilated", sliding_autograd, F, "forward (4)",
      "keys are there where n > 0, not n >= 0: key 0 is masked", "o dq dk dv doffset_bias", "autograd")
wrong("sl_offsets_oldest_first", "sliding_dilated", sliding_autograd, F, "forward (2)",
      "offset_bias is taken in reverse order of the offsets (oldest key first)", "o dq dk dv doffset_bias", "autograd",
      keep="qw")
wrong("sl_values_not_padded", "sliding_dilated_pad", sliding_autograd, F, "forward (6)",
      "0 stands for pad_v before the first position (pad_k is used); dpad_v is 0",
      "o dq dk doffset_bias dpad_k dpad_v", "autograd")
wrong("sl_queries_at_the_first_keys", "sliding_dilated", sliding_dense, F, "forward (1) forward (6)",
      "queries stand at the first positions, n = q - 2 w without keys - queries: windows one key too early, for keys, "
      "values and mask", "o", "handwritten")
wrong("sl_absent_keys_score_0", "sliding_dilated", sliding_dense, F, "forward (4)",
      "keys before the first take part in the softmax with score offset_bias (+ bias) and value 0 instead of not at all",
      "o", "handwritten", bias="hqw")
wrong("sl_dk_last_offset_wins", "sliding_dilated", sliding_dense, B, "backward (1)",
      "dk of a key is that of the largest offset that reaches it: assigned, not added, over the offsets", "dk",
      "handwritten")
wrong("sl_dv_clamped", "sliding_dilated_pad", sliding_dense, B, "backward (6)",
      "dv: positions before the first are clamped to 0, key 0 also gets what belongs to the pad (dpad_v is right)", "dv",
      "handwritten")
wrong("sl_dr_scaled", "sliding_dilated", sliding_dense, B, "backward (2)",
      "doffset_bias is multiplied by 1/sqrt(d)", "doffset_bias", "handwritten", dropout="bhqw")
wrong("sl_dq_dilation_1", "sliding_dilated_pad", sliding_dense, B, "backward (1)",
      "dq takes keys at dilation 1, not 2", "dq", "handwritten")

# right

right("right_softmax_autograd", "softmax", softmax_autograd(causal=True), "autograd", **BH, **ALL, causal=True)
right("right_softmax_dense", "softmax", softmax_dense(), "handwritten", **BH, **ALL)
right("right_softmax_flash", "softmax", softmax_flash(causal=True), "tiled", **BH, **ALL, causal=True)
right("right_softmax_flash_wide", "softmax", softmax_flash(rows=3, columns=16), "tiled", **BH, bias="h1k")
right("right_softmax_logsumexp", "softmax", right_softmax_logsumexp, "autograd", **BH, **ALL)
right("right_softmax_base_2", "softmax", right_softmax_base_2, "handwritten", **ALL)
right("right_softmax_each_head", "softmax", right_softmax_each_head, "handwritten", **BH, bias="hqk", causal=True)
right("right_hyla_autograd", "hyla", hyla_autograd(), "autograd", **BH, **ALL)
right("right_hyla_dense", "hyla", hyla_dense(causal=True), "handwritten", **BH, **ALL, causal=True)
right("right_hyla_rms_norm", "hyla", right_hyla_rms_norm, "autograd", bias="hqk", dropout="bhqk")
right("right_hyla_tiles", "hyla", right_hyla_tiles, "tiled", **BH, **ALL)
right("right_hyla_sequential", "hyla", right_hyla_sequential, "autograd", **BH, keep="hqk", causal=True)
right("right_linear_autograd", "linear", linear_autograd(), "autograd", **ALL)
right("right_linear_chunked", "linear", linear_chunked(), "autograd", **BH, causal=True)
right("right_linear_keys_first", "linear", right_linear_keys_first, "handwritten")
right("right_linear_two_scans", "linear", right_linear_two_scans, "handwritten", **BH, causal=True)
right("right_compositional_dense", "compositional", compositional_dense(), "handwritten", **ALL)
right("right_compositional_map_to_selector", "compositional", right_compositional_map_to_selector, "autograd", **BH, **ALL)
right("right_compositional_linear_joined", "compositional_linear", right_compositional_linear_joined, "autograd",
      bias="hqk", dropout="bhqk", causal=True)
right("right_compositional_nonlinear_dense", "compositional_nonlinear",
      compositional_dense(scoring="nonlinear", causal=True), "handwritten", keep="qk", causal=True)
right("right_sliding_autograd", "sliding_dilated", sliding_autograd(), "autograd", **ALLW)
right("right_sliding_as_mask", "sliding_dilated", right_sliding_as_mask, "autograd", **BH, **ALLW)
right("right_sliding_pad_dense", "sliding_dilated_pad", sliding_dense(), "handwritten", **ALLW)
right("right_sliding_shifts", "sliding_dilated_pad", right_sliding_shifts, "handwritten", **ALLW)
