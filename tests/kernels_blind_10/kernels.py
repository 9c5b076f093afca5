"""A blind bank: attention kernels as people write them, right ones and ones with a single mistake each.

Written from the pages `refattn/attention/*.py` (and `refattn/ops.py`, which they call) and docs/kernels.md, before any run
of `check`.  A kernel is a factory: `flash(bug)` gives the function; `bug` None is the right kernel, any other word plants
the mistake that the case of that name describes.  `lines` are tags of the page: "forward (2)", "backward (2)"; where a
helper is shared by both passes, both are listed.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Callable

import numpy as np

LOG2E = 1.4426950408889634
CASES = []


@dataclass
class Case:
    name: str
    build: Callable            # () -> kernel
    variant: str
    options: dict
    mistake: str               # "" for a right kernel
    lines: str                 # "" for a right kernel


def right(name, build, variant, **options):
    CASES.append(Case(name, build, variant, options, "", ""))


def wrongs(factory, prefix, variant, options, table, **settings):
    """Cases of one factory with the same options: rows (bug, mistake, lines[, other options])."""
    for bug, mistake, lines, *other in table:
        CASES.append(Case(f"{prefix}/{bug}", partial(factory, bug, **settings), variant, {**options, **(other[0] if other else {})},
                          mistake, lines))


def sum_to(dx, shape):
    """The gradient of a broadcast."""
    while dx.ndim > len(shape):
        dx = dx.sum(0)
    for axis, n in enumerate(shape):
        if n == 1 and dx.shape[axis] != 1:
            dx = dx.sum(axis, keepdims=True)
    return dx


def low(dtype):
    """The precision one step below."""
    return np.float32 if dtype == np.float64 else np.float16


# =================================================================================================== softmax attention
# 1. FlashAttention as in the Triton tutorial: exp2, base-2 log-sum-exp kept, a kernel for dk dv and one for dq

def triton_flash(bug=None, bq=4, bk=3, causal=True):
    def kernel(q, k, v, do):                                            # (b, h, t, d)
        B, H, N, D = q.shape
        M, E = k.shape[2], v.shape[3]
        sm = 1 / math.sqrt(D)
        if bug == "scale_of_value_width":
            sm = 1 / math.sqrt(E)
        scale2 = sm * LOG2E
        off = M - N
        if bug == "causal_top_left":
            off = 0
        o, lse = np.zeros((B, H, N, E), q.dtype), np.zeros((B, H, N), q.dtype)
        for b in range(B):
            for h in range(H):
                l_buf, m_buf, acc_buf = np.zeros(bq, q.dtype), np.full(bq, -np.inf, q.dtype), np.zeros((bq, E), q.dtype)
                for i0 in range(0, N, bq):
                    rows = np.arange(i0, min(i0 + bq, N))
                    n = len(rows)
                    if bug != "state_kept_between_blocks":
                        l_buf, m_buf, acc_buf = np.zeros(bq, q.dtype), np.full(bq, -np.inf, q.dtype), np.zeros((bq, E), q.dtype)
                    l, m, acc = l_buf[:n], m_buf[:n], acc_buf[:n]
                    qi = q[b, h, rows] * scale2
                    stop = M if not causal else max(0, min(M, rows[-1] + 1 + off))
                    if bug == "last_partial_tile_dropped":
                        stop = stop // bk * bk if stop >= bk else stop
                    if bug == "causal_stop_one_short":
                        stop = max(stop - 1, 1)
                    for j0 in range(0, stop, bk):
                        cols = np.arange(j0, min(j0 + bk, M))
                        if bug == "last_tile_overlaps":                 # a clamped load reads the end of the tile before
                            cols = np.arange(min(j0, max(M - bk, 0)), min(j0 + bk, M))
                        s = qi @ k[b, h, cols].T
                        if causal:
                            seen = rows[:, None] + off >= cols
                            if bug == "causal_strict":
                                seen = (rows[:, None] + off > cols) | (cols == 0)
                            if bug == "causal_one_ahead":
                                seen = rows[:, None] + off + 1 >= cols
                            s = np.where(seen, s, -np.inf)
                        new = np.maximum(m, s.max(1))
                        safe = np.where(new == -np.inf, 0, new)
                        p = np.exp2(s - safe[:, None])
                        alpha = np.exp2(m - safe)
                        if bug == "alpha_natural_base":
                            alpha = np.exp(m - safe)
                        if bug == "no_rescale_of_l":
                            l = l + p.sum(1)
                        else:
                            l = l * alpha + p.sum(1)
                        if bug == "acc_rescaled_after_add":
                            acc = (acc + p @ v[b, h, cols]) * alpha[:, None] if j0 else p @ v[b, h, cols]
                        elif bug == "no_rescale_of_acc":
                            acc = acc + p @ v[b, h, cols]
                        else:
                            acc = acc * alpha[:, None] + p @ v[b, h, cols]
                        if bug == "max_of_tile_only":                   # the running maximum is overwritten by the tile's
                            m = np.where(s.max(1) == -np.inf, m, s.max(1))
                        else:
                            m = new
                    total = np.where(l == 0, 1, l)
                    o[b, h, rows] = acc / total[:, None]
                    lse[b, h, rows] = np.where(l == 0, np.inf, m + np.log2(total))
                    if bug == "lse_natural_log":
                        lse[b, h, rows] = np.where(l == 0, np.inf, m + np.log(total))
                    l_buf[:n], m_buf[:n], acc_buf[:n] = l, m, acc
        delta = (o * do).sum(-1)
        if bug == "delta_mean":
            delta = (o * do).mean(-1)
        dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)

        def probabilities(b, h, rows, cols):
            s = (q[b, h, rows] * scale2) @ k[b, h, cols].T
            if causal and bug != "backward_unmasked":
                s = np.where(rows[:, None] + off >= cols, s, -np.inf)
            if bug == "backward_exp":
                return np.exp(s - lse[b, h, rows, None])
            return np.exp2(s - lse[b, h, rows, None])

        for b in range(B):
            for h in range(H):
                for j0 in range(0, M, bk):                              # dk, dv
                    cols = np.arange(j0, min(j0 + bk, M))
                    first = max(0, j0 - off) // bq * bq if causal else 0
                    if bug == "dkdv_starts_behind_diagonal":
                        first = (max(0, j0 - off) // bq + (1 if max(0, j0 - off) % bq else 0)) * bq if causal else 0
                    last = N if bug != "dkdv_last_queries_dropped" else N // bq * bq
                    for i0 in range(first, last, bq):
                        rows = np.arange(i0, min(i0 + bq, N))
                        p = probabilities(b, h, rows, cols)
                        dv[b, h, cols] += p.T @ do[b, h, rows]
                        dp = do[b, h, rows] @ v[b, h, cols].T
                        ds = p * (dp - delta[b, h, rows, None])
                        if bug == "delta_missing_in_dk":
                            ds = p * dp
                        if bug == "delta_of_first_block":
                            ds = p * (dp - delta[b, h, :len(rows), None])
                        dk[b, h, cols] += ds.T @ q[b, h, rows]
                    if bug != "dk_unscaled":
                        dk[b, h, cols] *= sm if bug != "dk_scale2" else scale2
                for i0 in range(0, N, bq):                              # dq
                    rows = np.arange(i0, min(i0 + bq, N))
                    stop = M if not causal else max(0, min(M, rows[-1] + 1 + off))
                    if bug == "dq_one_tile_short":
                        stop = max(bk, stop - bk)
                    for j0 in range(0, stop, bk):
                        cols = np.arange(j0, min(j0 + bk, M))
                        p = probabilities(b, h, rows, cols)
                        dp = do[b, h, rows] @ v[b, h, cols].T
                        ds = p * (dp - delta[b, h, rows, None])
                        if bug == "dq_overwritten":
                            dq[b, h, rows] = ds @ k[b, h, cols] * sm
                        else:
                            dq[b, h, rows] += ds @ k[b, h, cols] * sm
        return o, dq, dk, dv
    return kernel


right("triton_flash causal", triton_flash, "softmax", layout="bhtd", causal=True)
right("triton_flash", partial(triton_flash, causal=False, bq=2, bk=4), "softmax", layout="bhtd")
wrongs(triton_flash, "triton_flash", "softmax", dict(layout="bhtd", causal=True), [
    ("scale_of_value_width", "scores are divided by sqrt(e), the width of the values, in both passes", "forward (1), backward (1)"),
    ("causal_top_left", "the causal mask counts from the first key (no offset k - q)", "forward (2), backward (2)"),
    ("state_kept_between_blocks", "maximum, sum and accumulator are cleared per head, not per block of queries", "forward (2), forward (4)"),
    ("last_partial_tile_dropped", "the loop over keys runs over whole tiles only, the last partial tile is lost in the forward",
     "forward (2), forward (4)"),
    ("causal_stop_one_short", "the loop's end of a block's keys is one key short (the tile that starts there is lost)",
     "forward (2), forward (4)"),
    ("causal_strict", "the causal mask is strict: no query sees the key beside it (but key 0 stays)", "forward (2)"),
    ("causal_one_ahead", "the causal mask lets each query see one key too many, forward only", "forward (2)"),
    ("alpha_natural_base", "the rescaling factor of the online softmax uses exp, everything else exp2", "forward (2), forward (4)"),
    ("no_rescale_of_l", "the running denominator is not rescaled to the new maximum", "forward (2)"),
    ("no_rescale_of_acc", "the output accumulator is not rescaled to the new maximum", "forward (4), forward (2)"),
    ("acc_rescaled_after_add", "the accumulator is rescaled after the tile's product was added, not before",
     "forward (4), forward (2)"),
    ("max_of_tile_only", "the maximum kept for the next tile is the tile's own, not the running one", "forward (2)"),
    ("lse_natural_log", "log-sum-exp kept as m + ln l although m is in base 2", "backward (2)"),
    ("delta_mean", "delta is a mean over features of o do, not a sum", "backward (2)"),
    ("backward_unmasked", "the backward recomputes the weights without the causal mask", "backward (2)"),
    ("backward_exp", "the backward recomputes the weights with exp from scores in base 2", "backward (2)"),
    ("dkdv_starts_behind_diagonal", "dk dv loop starts at the block of queries after the diagonal one", "backward (4), backward (1)"),
    ("dkdv_last_queries_dropped", "dk dv loop leaves out the last partial block of queries", "backward (4), backward (1)"),
    ("delta_missing_in_dk", "delta is not subtracted in the kernel of dk", "backward (2)"),
    ("delta_of_first_block", "in the kernel of dk each block of queries subtracts the delta of the first block", "backward (2)"),
    ("dk_unscaled", "dk lacks 1 / sqrt(d)", "backward (1)"),
    ("dk_scale2", "dk is multiplied by the scale with log2(e) in it", "backward (1)"),
    ("dq_one_tile_short", "the kernel of dq leaves out the last tile of keys", "backward (1)"),
    ("dq_overwritten", "dq is assigned per tile of keys, not accumulated", "backward (1)"),
])
wrongs(triton_flash, "triton_flash_full", "softmax", dict(layout="bhtd"), [
    ("last_tile_overlaps", "the last partial tile is loaded from a clamped start, so some keys count twice in the forward",
     "forward (2), forward (4)"),
], causal=False)


# 2. two passes over whole rows, head by head, with bias, keep and dropout; weights kept

def rowwise(bug=None, order="C"):
    def kernel(q, k, v, do, bias=None, keep=None, dropout=None):        # (b, t, h, d)
        B, N, H, D = q.shape
        M, E = v.shape[1], v.shape[3]
        scale = D ** -0.5
        o = np.zeros((B, N, H, E), q.dtype, order=order)
        dq, dk, dv = (np.zeros(x.shape, x.dtype, order=order) for x in (q, k, v))
        full = (B, H, N, M)
        dbias = None if bias is None else np.zeros(full, q.dtype)
        wide = lambda x: None if x is None else np.broadcast_to(x, full)
        B4, K4, P4 = wide(bias), wide(keep), wide(dropout)
        for b in range(B):
            for h in range(H):
                Q, K, V, G = q[b, :, h], k[b, :, h], v[b, :, h], do[b, :, h]
                S = Q @ K.T
                if bug == "bias_before_scale" and bias is not None:
                    S = (S + B4[b, h]) * scale
                else:
                    S = S * scale
                    if bias is not None:
                        S = S + B4[b, h if bug != "bias_of_next_head" else (h + 1) % H]
                        if bug == "bias_subtracted":
                            S = S - 2 * B4[b, h]
                if keep is not None:
                    if bug == "masked_score_zero":
                        S = np.where(K4[b, h], S, 0)
                    elif bug != "masked_after_softmax":
                        S = np.where(K4[b, h] if bug != "keep_inverted" else ~K4[b, h], S, -np.inf)
                top = S.max(1, keepdims=True)
                top = np.where(np.isfinite(top), top, 0)
                A = np.exp(S - top)
                total = A.sum(1, keepdims=True)
                A = A / np.where(total == 0, 1, total)
                if keep is not None and bug == "masked_after_softmax":
                    A = np.where(K4[b, h], A, 0)
                if bug == "epsilon_in_denominator":
                    A = A * total / (total + 1e-2)
                P = 1 if dropout is None else P4[b, h]
                C = A * P
                if bug == "renormalised_after_dropout":
                    norm = C.sum(1, keepdims=True)
                    C = C / np.where(norm == 0, 1, norm)
                o[b, :, h] = C @ V
                # backward
                dC = G @ V.T
                dv[b, :, h] = (A if bug == "dv_without_dropout" else C).T @ G
                dA = dC if bug == "dropout_missing_in_da" else dC * P
                if bug == "dropout_of_head_0" and dropout is not None:
                    dA = dC * P4[b, 0]
                if bug == "delta_before_dropout":
                    dS = A * (dA - (A * dC).sum(1, keepdims=True))
                elif bug == "delta_from_dropped_weights":
                    dS = A * (dA - (C * dA).sum(1, keepdims=True))
                elif bug == "outer_weights_dropped":
                    dS = C * (dA - (A * dA).sum(1, keepdims=True))
                elif bug == "delta_over_queries":
                    dS = A * (dA - (A * dA).sum(0, keepdims=True))
                elif bug == "delta_unweighted":
                    dS = A * (dA - dA.mean(1, keepdims=True))
                elif bug == "diagonal_jacobian":
                    dS = A * (1 - A) * dA
                elif bug == "delta_added":
                    dS = A * (dA + (A * dA).sum(1, keepdims=True))
                elif bug == "outer_weights_missing":
                    dS = dA - (A * dA).sum(1, keepdims=True)
                elif bug == "dropout_twice":
                    dS = A * (dA * P - (A * dA * P).sum(1, keepdims=True))
                else:
                    dS = A * (dA - (A * dA).sum(1, keepdims=True))
                dq[b, :, h] = dS @ K * scale
                dk[b, :, h] = dS.T @ (Q if bug == "dk_unscaled" else Q * scale)
                if bug == "dk_from_keys" and N == M:
                    dk[b, :, h] = dS.T @ K * scale
                if bug == "dk_untransposed" and N == M:
                    dk[b, :, h] = dS @ Q * scale
                if bias is not None:
                    dbias[b, h] = dS * scale if bug == "dbias_scaled" else dS
                    if bug == "dbias_before_softmax":
                        dbias[b, h] = dA
        if bias is None:
            return o, dq, dk, dv
        if bug == "dbias_of_last_batch" and bias.ndim == 3:
            return o, dq, dk, dv, sum_to(dbias[-1], bias.shape)
        if bug == "dbias_mean_of_batch":
            return o, dq, dk, dv, sum_to(dbias, bias.shape) / B
        return o, dq, dk, dv, sum_to(dbias, bias.shape)
    return kernel


right("rowwise all options", rowwise, "softmax", bias="bhqk", keep="bhqk", dropout="bhqk")
right("rowwise Fortran order, head bias", partial(rowwise, order="F"), "softmax", bias="h1k", keep="qk")
right("rowwise one head", rowwise, "softmax", bias="hqk", dropout="bhqk", sizes={"h": 1})
ALL = dict(bias="bhqk", keep="bhqk", dropout="bhqk")
wrongs(rowwise, "rowwise", "softmax", ALL, [
    ("bias_before_scale", "the bias is added before the scores are scaled, so it is scaled too", "forward (1)"),
    ("bias_of_next_head", "each head takes the bias of the next head", "forward (1)"),
    ("bias_subtracted", "the bias is subtracted (ALiBi's sign) in the forward", "forward (1)"),
    ("masked_score_zero", "a masked score becomes 0, not -inf", "forward (2)"),
    ("masked_after_softmax", "keep is multiplied into the weights after the softmax, which has summed over all keys", "forward (2)"),
    ("keep_inverted", "keep is read the other way round: True is removed", "forward (2)"),
    ("epsilon_in_denominator", "0.01 is added to the softmax's denominator", "forward (2)"),
    ("renormalised_after_dropout", "the dropped weights are normalised again", "forward (3)"),
    ("dv_without_dropout", "dv is made from the weights before dropout", "backward (4), backward (3)"),
    ("dropout_missing_in_da", "the gradient of the weights is not multiplied by dropout", "backward (3)"),
    ("dropout_of_head_0", "the gradient of the weights is multiplied by the dropout of head 0 in every head", "backward (3)"),
    ("delta_before_dropout", "delta is made from the gradient before dropout", "backward (2)"),
    ("delta_from_dropped_weights", "delta uses the dropped weights on the dropped gradient: dropout twice", "backward (2)"),
    ("outer_weights_dropped", "the outer factor of the softmax backward is the dropped weights", "backward (2)"),
    ("delta_over_queries", "delta is summed over queries, not keys", "backward (2)"),
    ("delta_unweighted", "delta is the mean of da over keys, without the weights", "backward (2)"),
    ("diagonal_jacobian", "only the diagonal of the softmax's Jacobian, a (1 - a)", "backward (2)"),
    ("delta_added", "delta is added, not subtracted", "backward (2)"),
    ("outer_weights_missing", "the outer factor a of the softmax backward is missing", "backward (2)"),
    ("dropout_twice", "dropout is multiplied into the gradient of the weights twice", "backward (3)"),
    ("dk_unscaled", "dk lacks 1 / sqrt(d)", "backward (1)"),
    ("dk_from_keys", "dk is made from the keys in place of the queries (fits at as many queries as keys, d equal)", "backward (1)",
     dict(sizes={"q": 7, "k": 7})),
    ("dk_untransposed", "ds is not transposed in dk (fits at as many queries as keys)", "backward (1)",
     dict(sizes={"q": 7, "k": 7})),
    ("dbias_scaled", "dbias is multiplied by 1 / sqrt(d)", "backward (1)"),
    ("dbias_before_softmax", "dbias is the gradient of the weights, before the softmax backward", "backward (1), backward (2)"),
    ("dbias_of_last_batch", "dbias of a bias without batch is that of the last sequence only", "backward (1)", dict(bias="hqk")),
    ("dbias_mean_of_batch", "dbias is averaged over the batch, not summed", "backward (1)", dict(bias="hqk")),
])


# 3. decoding with a key-value cache, one query at a time; the backward walks the steps backwards

def kv_decode(bug=None):
    def kernel(q, k, v, do):                                            # (b, t, h, d), causal
        B, N, H, D = q.shape
        M, E = v.shape[1], v.shape[3]
        cache_k, cache_v = np.zeros((B, H, M, D), q.dtype), np.zeros((B, H, M, E), q.dtype)
        prompt = max(M - N, 0)
        cache_k[:, :, :prompt] = k[:, :prompt].transpose(0, 2, 1, 3)
        cache_v[:, :, :prompt] = v[:, :prompt].transpose(0, 2, 1, 3)
        o, tape = np.zeros((B, N, H, E), q.dtype), []
        for t in range(N):
            n = t + 1 + M - N
            if n > 0:
                at = n - 1
                if bug == "cache_slot_behind" and at > 0:
                    at = at - 1
                cache_k[:, :, n - 1] = k[:, n - 1]
                cache_v[:, :, at] = v[:, n - 1]
            n = max(n, 0)
            if bug == "length_before_append":
                n = max(n - 1, 1)
            if bug == "whole_cache":
                n = M
            s = np.einsum("bhd,bhnd->bhn", q[:, t], cache_k[:, :, :n]) / math.sqrt(D)
            if bug == "scale_by_length":
                s = s * math.sqrt(D) / math.sqrt(max(n, 1))
            if n:
                a = np.exp(s - s.max(-1, keepdims=True))
                a /= a.sum(-1, keepdims=True)
            else:
                a = s
            o[:, t] = np.einsum("bhn,bhne->bhe", a, cache_v[:, :, :n])
            tape.append((n, a))
        dq, dk, dv = np.zeros_like(q), np.zeros((B, H, M, D), q.dtype), np.zeros((B, H, M, E), q.dtype)
        vt, kt = v.transpose(0, 2, 1, 3), k.transpose(0, 2, 1, 3)
        for t in reversed(range(N)):
            n, a = tape[t]
            g = do[:, t]
            if bug == "do_of_mirrored_step":
                g = do[:, N - 1 - t]
            da = np.einsum("bhe,bhne->bhn", g, vt[:, :, :n])
            ds = a * (da - (a * da).sum(-1, keepdims=True)) / math.sqrt(D)
            dq[:, t] = np.einsum("bhn,bhnd->bhd", ds, kt[:, :, :n])
            if bug == "dk_overwritten":
                dk[:, :, :n] = ds[..., None] * q[:, t, :, None]
            elif bug == "dk_only_own_token":
                dk[:, :, n - 1:n] += (ds[..., None] * q[:, t, :, None])[:, :, n - 1:]
            else:
                dk[:, :, :n] += ds[..., None] * q[:, t, :, None]
            if bug == "dv_one_short":
                dv[:, :, :max(n - 1, 0)] += (a[..., None] * g[:, :, None])[:, :, :max(n - 1, 0)]
            else:
                dv[:, :, :n] += a[..., None] * g[:, :, None]
        return {"o": o, "dq": dq, "dk": dk.transpose(0, 2, 1, 3), "dv": dv.transpose(0, 2, 1, 3)}
    return kernel


right("kv_decode", kv_decode, "softmax", causal=True)
right("kv_decode single query", kv_decode, "softmax", causal=True, sizes={"q": 1})
wrongs(kv_decode, "kv_decode", "softmax", dict(causal=True), [
    ("length_before_append", "the length is taken before the token is appended: no query sees its own key", "forward (2)"),
    ("whole_cache", "each step attends to the whole cache, also to slots not yet written (zeros)", "forward (2), forward (1)"),
    ("cache_slot_behind", "the value of a token is written one slot too early", "forward (4)"),
    ("scale_by_length", "scores are divided by the root of the cache's length, not of d", "forward (1)"),
    ("do_of_mirrored_step", "walking backwards, the gradient of the mirrored step is read", "backward (4)"),
    ("dk_overwritten", "dk is assigned at every step, so that only the first step's is left", "backward (1)"),
    ("dk_only_own_token", "dk is added for the newest token of each step only", "backward (1)"),
    ("dv_one_short", "dv leaves out the newest token of each step", "backward (4)"),
])


# 4. eager einsum as in a PyTorch module, masks by large negative numbers

def eager(bug=None, negative=-1e30, up=False, folded="s"):
    def kernel(q, k, v, do, bias=None, keep=None, dropout=None):
        dtype = q.dtype
        if up:
            q, k, v, do = (x.astype(np.float64) for x in (q, k, v, do))
        d = q.shape[-1]
        r = d ** -0.5
        if folded == "q":
            s = np.einsum("bqhd,bkhd->bhqk", q * r, k)
        elif folded == "k":
            s = np.einsum("bqhd,bkhd->bhqk", q, k * r)
        elif folded == "both":
            r4 = d ** -0.25
            qs, ks = q * r4, k * (d ** -0.5 if bug == "k_scaled_fully" else r4)
            s = np.einsum("bqhd,bkhd->bhqk", qs, ks)
        else:
            s = np.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(d if bug != "sqrt_of_all_heads" else d * q.shape[2])
        if bug == "scale_by_d":
            s = s / math.sqrt(d)
        if bias is not None:
            s = s + bias
        if keep is not None:
            s = np.where(keep, s, negative)
        axis = -1
        if bug == "softmax_over_queries":
            axis = -2
        if bug == "softmax_over_heads":
            axis = 1
        a = np.exp(s - s.max(axis, keepdims=True))
        a = a / a.sum(axis, keepdims=True)
        if keep is not None and bug != "empty_row_uniform":
            a = a * np.broadcast_to(keep, a.shape).any(-1, keepdims=True)
        c = a if dropout is None else a * dropout
        o = np.einsum("bhqk,bkhe->bqhe", c, v)
        if bug == "weights_truncated":
            o = np.einsum("bhqk,bkhe->bqhe", c.astype(low(dtype)).astype(dtype), v)
        dv = np.einsum("bhqk,bqhe->bkhe", c, do)
        if bug == "dv_sum_over_heads":
            dv = np.broadcast_to(np.einsum("bhqk,bqhe->bke", c, do)[:, :, None], v.shape)
        da = np.einsum("bqhe,bkhe->bhqk", do, v)
        if bug == "da_heads_mixed":
            da = np.broadcast_to(np.einsum("bqhe,bkhe->bqk", do, v)[:, None], a.shape)
        if dropout is not None:
            da = da * dropout
            if bug == "dropout_as_mask":
                da = np.einsum("bqhe,bkhe->bhqk", do, v) * (dropout != 0)
        ds = a * (da - (a * da).sum(-1, keepdims=True))
        if bug == "delta_truncated":
            ds = a * (da - (a * da).sum(-1, keepdims=True).astype(low(dtype)).astype(dtype))
        if bug == "delta_keeps_batch_sum":
            ds = a * (da - (a * da).sum((0, -1), keepdims=True))
        if bug == "delta_divided_by_keys":
            ds = a * (da - (a * da).mean(-1, keepdims=True))
        if folded == "both":
            dq = np.einsum("bhqk,bkhd->bqhd", ds, ks) * r4
            dk = np.einsum("bhqk,bqhd->bkhd", ds, qs) * r4
            if bug == "dk_without_own_factor":
                dk = np.einsum("bhqk,bqhd->bkhd", ds, qs)
            if bug == "dq_scaled_by_whole":
                dq = np.einsum("bhqk,bkhd->bqhd", ds, ks) * d ** -0.5
        elif folded == "q":
            dq = np.einsum("bhqk,bkhd->bqhd", ds, k) * r
            dk = np.einsum("bhqk,bqhd->bkhd", ds, q * r)
            if bug == "dk_scaled_twice":
                dk = dk * r
            if bug == "dq_unscaled":
                dq = np.einsum("bhqk,bkhd->bqhd", ds, k)
        else:
            dq, dk = np.einsum("bhqk,bkhd->bqhd", ds * r, k), np.einsum("bhqk,bqhd->bkhd", ds * r, q)
            if bug == "dq_of_reversed_keys":
                dq = np.einsum("bhqk,bkhd->bqhd", ds * r, k[:, ::-1])
        out = [o, dq, dk, dv]
        if bias is not None:
            out.append(sum_to(ds, bias.shape))
            if bug == "dbias_sum_over_last":                            # a bias h1k: summed over the wrong of two axes
                out[-1] = np.broadcast_to(ds.sum((0, 3))[:, None, :1], bias.shape)
            if bug == "dbias_mean":
                out[-1] = sum_to(ds, bias.shape) / ds.shape[2]
        return [x.astype(dtype) for x in out]
    return kernel


right("eager large negative", eager, "softmax", bias="hqk", keep="bhqk", dropout="bhqk")
right("eager folded into q, bhtd", lambda: swapped(eager(folded="q")), "softmax", layout="bhtd", bias="h1k")
right("eager folded into k", partial(eager, folded="k", negative=-np.finfo(np.float32).max), "softmax", keep="b11k")
right("eager sqrt into both, upcast", partial(eager, folded="both", up=True), "softmax", bias="b11k", dropout="bhqk")
right("eager many keys", eager, "softmax", bias="hqk", sizes={"q": 3, "k": 70, "d": 16})


def swapped(inner):
    """A kernel of (b, t, h, d) as one of (b, h, t, d): what comes back is not contiguous."""
    def kernel(q, k, v, do, **options):
        t = lambda x: x.transpose(0, 2, 1, 3)
        out = inner(t(q), t(k), t(v), t(do), **options)
        return (*map(t, out[:4]), *out[4:])
    return kernel


wrongs(eager, "eager", "softmax", ALL, [
    ("sqrt_of_all_heads", "scores are divided by sqrt(h d), the width of all heads, in the forward", "forward (1)"),
    ("scale_by_d", "scores are divided by d, not by its root, in the forward", "forward (1)"),
    ("softmax_over_queries", "the softmax runs over queries, in the forward", "forward (2)", dict(keep=None)),
    ("softmax_over_heads", "the softmax runs over heads, in the forward", "forward (2)", dict(keep=None)),
    ("empty_row_uniform", "a query that keeps nothing gets uniform weights (large negative mask)", "forward (2)"),
    ("weights_truncated", "the weights are rounded to the next lower precision before the product with v", "forward (4)"),
    ("dv_sum_over_heads", "dv is summed over heads and given to each", "backward (4)"),
    ("da_heads_mixed", "the gradient of the weights is summed over heads and given to each", "backward (4)"),
    ("dropout_as_mask", "the backward uses dropout as a mask, without 1 / (1 - p)", "backward (3)"),
    ("delta_truncated", "delta is rounded to the next lower precision", "backward (2)"),
    ("delta_keeps_batch_sum", "delta is summed over the batch too", "backward (2)"),
    ("delta_divided_by_keys", "delta is a mean over keys, not a sum", "backward (2)"),
    ("dq_of_reversed_keys", "dq takes the keys in reversed order", "backward (1)"),
    ("dbias_sum_over_last", "dbias of h1k: summed over keys, and the first query's given to every key", "backward (1)",
     dict(bias="h1k", keep=None)),
    ("dbias_mean", "dbias of h1k is a mean over queries", "backward (1)", dict(bias="h1k")),
])
wrongs(eager, "eager_both", "softmax", dict(bias="bhqk"), [
    ("k_scaled_fully", "d^-1/4 in q but d^-1/2 in k; both passes use the scaled arrays", "forward (1), backward (1)"),
    ("dk_without_own_factor", "dk lacks the factor d^-1/4 of k's own scaling", "backward (1)"),
    ("dq_scaled_by_whole", "dq is multiplied by d^-1/2 although the scaled keys already have d^-1/4", "backward (1)"),
], folded="both")
wrongs(eager, "eager_q", "softmax", dict(bias="bhqk"), [
    ("dk_scaled_twice", "dk is scaled again although q is scaled already", "backward (1)"),
    ("dq_unscaled", "dq lacks 1 / sqrt(d), which was folded into q", "backward (1)"),
], folded="q")


# 5. packed qkv (b, t, 3, h, d), as flash_attn_qkvpacked_func; self-attention, equal widths

def packed(bug=None):
    def kernel(q, k, v, do, keep=None):
        qkv = np.stack([q, k, v], axis=2)
        dqkv = np.zeros_like(qkv)
        B, T, _, H, D = qkv.shape
        flat = qkv.reshape(B, T, 3 * H * D)
        if bug == "heads_innermost":                                    # value unpacked as (d, h)
            vv = flat[..., 2 * H * D:].reshape(B, T, D, H).transpose(0, 3, 1, 2)
        else:
            vv = flat[..., 2 * H * D:].reshape(B, T, H, D).transpose(0, 2, 1, 3)
        qq = flat[..., :H * D].reshape(B, T, H, D).transpose(0, 2, 1, 3)
        kk = flat[..., H * D:2 * H * D].reshape(B, T, H, D).transpose(0, 2, 1, 3)
        if bug == "scores_transposed":
            s = kk @ qq.swapaxes(-1, -2) / math.sqrt(D)
        else:
            s = qq @ kk.swapaxes(-1, -2) / math.sqrt(D)
        if keep is not None:
            s = s + np.where(keep, 0, -np.inf).astype(s.dtype)
        top = s.max(-1, keepdims=True)
        a = np.exp(s - np.where(top == -np.inf, 0, top))
        n = a.sum(-1, keepdims=True)
        a /= np.where(n == 0, 1, n)
        oo = a @ vv
        o = np.ascontiguousarray(oo.transpose(0, 2, 1, 3))
        if bug == "heads_not_moved_back":                               # reshaped, not transposed
            o = oo.reshape(B, T, H, D)
        g = do.transpose(0, 2, 1, 3)
        dvv = a.swapaxes(-1, -2) @ g
        if bug == "dv_weights_untransposed":
            dvv = a @ g
        da = g @ vv.swapaxes(-1, -2)
        ds = a * (da - (g * oo).sum(-1, keepdims=True)) / math.sqrt(D)
        dqq, dkk = ds @ kk, ds.swapaxes(-1, -2) @ qq
        if bug == "dq_from_queries":
            dqq = ds @ qq
        if bug == "ds_transposed_in_dq":
            dqq = ds.swapaxes(-1, -2) @ kk
        parts = [dqq, dkk, dvv]
        if bug == "dk_dv_slots_swapped":
            parts = [dqq, dvv, dkk]
        if bug == "dq_dk_slots_swapped":
            parts = [dkk, dqq, dvv]
        for i, part in enumerate(parts):
            dqkv[:, :, i] = part.transpose(0, 2, 1, 3)
        if bug == "dk_added_to_dq":
            dqkv[:, :, 0] += dqkv[:, :, 1]
        return o, dqkv[:, :, 0], dqkv[:, :, 1], dqkv[:, :, 2]
    return kernel


SELF = dict(sizes={"q": 7, "k": 7, "d": 8, "e": 8})
right("packed qkv", packed, "softmax", **SELF)
right("packed qkv with keep", packed, "softmax", keep="qk", **SELF)
wrongs(packed, "packed", "softmax", SELF, [
    ("heads_innermost", "the value is unpacked as (feature, head), not (head, feature)", "forward (4)"),
    ("scores_transposed", "scores are k q^T, not q k^T, in the forward", "forward (1)"),
    ("heads_not_moved_back", "the output is reshaped from (b, h, t, d), not transposed", "forward (4)"),
    ("dv_weights_untransposed", "dv is a do, not a^T do", "backward (4)"),
    ("dq_from_queries", "dq is ds q, not ds k", "backward (1)"),
    ("ds_transposed_in_dq", "dq is ds^T k", "backward (1)"),
    ("dk_dv_slots_swapped", "dk and dv are written to each other's slot", "backward (1), backward (4)"),
    ("dq_dk_slots_swapped", "dq and dk are written to each other's slot", "backward (1)"),
    ("dk_added_to_dq", "dk is added to dq as well", "backward (1)"),
])


# 6. chunks of queries (memory-efficient), recomputed in the backward

def query_chunks(bug=None, chunk=4):
    def kernel(q, k, v, do, bias=None, keep=None, dropout=None):
        B, N, H, D = q.shape
        M = k.shape[1]
        wide = lambda x: None if x is None else np.broadcast_to(x, (B, H, N, M))
        B4, K4, P4 = wide(bias), wide(keep), wide(dropout)

        def starts():
            if bug == "clamped_slices":                                 # lax.dynamic_slice moves the last chunk back
                return [slice(max(0, min(i, N - chunk)), max(0, min(i, N - chunk)) + min(chunk, N)) for i in range(0, N, chunk)]
            return [slice(i, min(i + chunk, N)) for i in range(0, N, chunk)]

        def weights(at, backward=False):
            s = np.einsum("bqhd,bkhd->bhqk", q[:, at], k) * D ** -0.5
            if bias is not None and not (backward and bug == "bias_not_recomputed"):
                s = s + B4[:, :, at]
            if keep is not None and not (backward and bug == "keep_not_recomputed"):
                here = at
                if bug == "keep_of_first_chunk":
                    here = slice(0, at.stop - at.start)
                s = np.where(K4[:, :, here], s, -np.inf)
            top = s.max(-1, keepdims=True)
            a = np.exp(s - np.where(top == -np.inf, 0, top))
            total = a.sum(-1, keepdims=True)
            return a / np.where(total == 0, 1, total)

        o = np.zeros((B, N, H, v.shape[3]), q.dtype)
        for at in starts():
            a = weights(at)
            o[:, at] = np.einsum("bhqk,bkhe->bqhe", a if dropout is None else a * P4[:, :, at], v)
        dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
        db = None if bias is None else np.zeros((B, H, N, M), q.dtype)
        for at in starts():
            a, g = weights(at, True), do[:, at]
            p = 1 if dropout is None else P4[:, :, at]
            if bug == "dropout_of_first_chunk" and dropout is not None:
                p = P4[:, :, :at.stop - at.start]
            da = np.einsum("bqhe,bkhe->bhqk", g, v) * p
            if bug == "dv_assigned":
                dv = np.einsum("bhqk,bqhe->bkhe", a * p, g)
            else:
                dv += np.einsum("bhqk,bqhe->bkhe", a * p, g)
            ds = a * (da - np.einsum("bqhe,bqhe->bhq", g, o[:, at])[..., None])
            dq[:, at] = np.einsum("bhqk,bkhd->bqhd", ds, k) * D ** -0.5
            if bug == "dk_rescaled_each_chunk":
                dk += np.einsum("bhqk,bqhd->bkhd", ds, q[:, at])
                dk *= D ** -0.5
            else:
                dk += np.einsum("bhqk,bqhd->bkhd", ds, q[:, at]) * D ** -0.5
            if bias is not None:
                db[:, :, at] = ds
        if bug == "dbias_of_last_chunk" and bias is not None:
            db[:, :, :starts()[-1].start] = 0
        return (o, dq, dk, dv) if bias is None else (o, dq, dk, dv, sum_to(db, bias.shape))
    return kernel


right("query_chunks", query_chunks, "softmax", bias="bhqk", keep="bhqk", dropout="bhqk")
right("query_chunks of one", partial(query_chunks, chunk=1), "softmax", bias="hqk", keep="qk")
wrongs(query_chunks, "query_chunks", "softmax", ALL, [
    ("clamped_slices", "the last partial chunk of queries is moved back, its overlap counts twice in dk and dv",
     "backward (4), backward (1)"),
    ("bias_not_recomputed", "the recomputation in the backward forgets the bias", "backward (2)"),
    ("keep_not_recomputed", "the recomputation in the backward forgets keep", "backward (2)"),
    ("keep_of_first_chunk", "every chunk of queries uses the first chunk's keep", "forward (2), backward (2)"),
    ("dropout_of_first_chunk", "every chunk of the backward uses the first chunk's dropout", "backward (3)"),
    ("dv_assigned", "dv is assigned per chunk of queries: the last one's is left", "backward (4)"),
    ("dk_rescaled_each_chunk", "dk is scaled inside the loop over chunks, so that early chunks are scaled again and again", "backward (1)"),
    ("dbias_of_last_chunk", "a stretched bias's gradient has the last chunk of queries only", "backward (1)", dict(bias="h1k")),
])


# 7. flash-decoding: parts of the keys by themselves, then joined by their log-sum-exps; lse given out

def split_keys(bug=None, parts=3):
    def kernel(q, k, v, do, bias=None, keep=None):
        B, N, H, D = q.shape
        M = k.shape[1]
        cuts = np.array_split(np.arange(M), min(parts, M))
        if bug == "fixed_split":
            cuts = [np.arange(i * (M // parts), (i + 1) * (M // parts)) for i in range(parts)]
        outs, lses = [], []
        for cut in cuts:
            s = np.einsum("bqhd,bkhd->bhqk", q, k[:, cut]) / math.sqrt(D)
            if bias is not None:
                s = s + (bias if bias.shape[-1] == 1 else bias[..., cut])
            if keep is not None:
                s = np.where(keep if keep.shape[-1] == 1 else keep[..., cut], s, -np.inf)
            top = s.max(-1, keepdims=True)
            top = np.where(top == -np.inf, 0, top)
            p = np.exp(s - top)
            l = p.sum(-1, keepdims=True)
            outs.append(np.einsum("bhqk,bkhe->bhqe", p / np.where(l == 0, 1, l), v[:, cut]))
            with np.errstate(divide="ignore"):
                lses.append(np.log(l) + (0 if bug == "lse_without_max" else top))
                if bug == "lse_log2":
                    lses[-1] = np.log2(l) + top
        lses, outs = np.stack(lses), np.stack(outs)
        highest = lses.max(0)
        w = np.exp(lses - np.where(highest == -np.inf, 0, highest))
        total = w.sum(0)
        w = w / np.where(total == 0, 1, total)
        if bug == "parts_averaged":
            w = np.ones_like(w) / len(w)
        o = (w * outs).sum(0)
        with np.errstate(divide="ignore"):
            lse = np.where(total == 0, 0, highest + np.log(np.where(total == 0, 1, total)))
        if bug == "lse_of_last_part":
            lse = np.where(np.isfinite(lses[-1]), lses[-1], 0)
        s = np.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(D)
        if bias is not None:
            s = s + bias
        if keep is not None:
            s = np.where(keep, s, -np.inf)
        a = np.exp(s - lse)
        g = do.transpose(0, 2, 1, 3)
        da = np.einsum("bhqe,bkhe->bhqk", g, v)
        ds = a * (da - (g * o).sum(-1, keepdims=True))
        out = {"o": o.transpose(0, 2, 1, 3), "lse": lse[..., 0], "dq": np.einsum("bhqk,bkhd->bqhd", ds, k) / math.sqrt(D),
               "dk": np.einsum("bhqk,bqhd->bkhd", ds, q) / math.sqrt(D), "dv": np.einsum("bhqk,bhqe->bkhe", a, g)}
        if bug == "lse_base_2_out":
            out["lse"] = out["lse"] * LOG2E
        if bias is not None:
            out["dbias"] = sum_to(ds, bias.shape)
        return out
    return kernel


right("split_keys with lse", split_keys, "softmax", bias="bhqk", keep="qk")
right("split_keys one head, one query", split_keys, "softmax", sizes={"h": 1, "q": 1, "k": 11})
wrongs(split_keys, "split_keys", "softmax", dict(bias="bhqk", keep="qk"), [
    ("fixed_split", "the keys are cut into equal parts, a rest of k mod 3 is lost (forward)", "forward (2), forward (4)"),
    ("lse_without_max", "a part's log-sum-exp lacks its maximum, so the parts are joined with wrong weights", "forward (2)"),
    ("lse_log2", "a part's log-sum-exp is m + log2 l with m and exp natural", "forward (2)"),
    ("parts_averaged", "the parts are averaged, not weighted by their log-sum-exps", "forward (2), forward (4)"),
    ("lse_of_last_part", "the log-sum-exp that is kept is the last part's; the backward uses it", "backward (2)"),
    ("lse_base_2_out", "right throughout, but the log-sum-exp is given out in base 2", "forward (2)"),
])


# 8. the softmax's full Jacobian, row by row, as a textbook has it

def jacobian(bug=None):
    def kernel(q, k, v, do, bias=None, dropout=None):
        B, N, H, D = q.shape
        M = k.shape[1]
        wide = lambda x: None if x is None else np.broadcast_to(x, (B, H, N, M))
        B4, P4 = wide(bias), wide(dropout)
        o = np.zeros((B, N, H, v.shape[3]), q.dtype)
        dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
        db = np.zeros((B, H, N, M), q.dtype)
        for b, i, h in np.ndindex(B, N, H):
            s = k[b, :, h] @ q[b, i, h] / math.sqrt(D)
            if bias is not None:
                s = s + B4[b, h, i]
            e = np.exp(s - s.max())
            a = e / e.sum()
            c = a if dropout is None else a * P4[b, h, i]
            o[b, i, h] = c @ v[b, :, h]
            g = do[b, i, h]
            J = np.diag(a) - np.outer(a, a)
            if bug == "jacobian_plus":
                J = np.diag(a) + np.outer(a, a)
            if bug == "jacobian_dropped":
                J = np.diag(c) - np.outer(c, c)
            if bug == "jacobian_from_exponentials":
                J = np.diag(e) - np.outer(e, e)
            if bug == "jacobian_a_squared_diagonal":
                J = np.diag(a * a) - np.outer(a, a)
            dc = v[b, :, h] @ g
            da = dc if dropout is None else dc * P4[b, h, i]
            if bug == "da_divided_by_dropout" and dropout is not None:
                keep = P4[b, h, i] != 0
                da = np.where(keep, dc / np.where(keep, P4[b, h, i], 1), 0)
            ds = J @ da
            dv[b, :, h] += np.outer(c, g)
            db[b, h, i] = ds
            dq[b, i, h] = ds @ k[b, :, h] / math.sqrt(D)
            if bug == "dk_to_first_head":
                dk[b, :, 0] += np.outer(ds, q[b, i, h]) / math.sqrt(D)
            else:
                dk[b, :, h] += np.outer(ds, q[b, i, h]) / math.sqrt(D)
            if bug == "dv_with_query":
                dv[b, :, h] += np.outer(ds, g) - np.outer(c, g)
        return (o, dq, dk, dv) if bias is None else (o, dq, dk, dv, sum_to(db, bias.shape))
    return kernel


right("jacobian", jacobian, "softmax", bias="hqk", dropout="bhqk")
wrongs(jacobian, "jacobian", "softmax", dict(bias="bhqk", dropout="bhqk"), [
    ("jacobian_plus", "the Jacobian is diag(a) + a a^T", "backward (2)"),
    ("jacobian_dropped", "the Jacobian is made from the dropped weights", "backward (2)"),
    ("jacobian_from_exponentials", "the Jacobian is made from exp(s - max), not divided by their sum", "backward (2)"),
    ("jacobian_a_squared_diagonal", "the Jacobian's diagonal is a^2 - a^2: diag(a a) - a a^T", "backward (2)"),
    ("da_divided_by_dropout", "the gradient is divided by dropout, not multiplied", "backward (3)"),
    ("dk_to_first_head", "dk of every head is added into head 0", "backward (1)"),
    ("dv_with_query", "dv is made from ds in place of the weights", "backward (4)"),
])


# 9. in place: one T x T buffer that is scores, weights, then gradients; log-softmax

def in_place(bug=None):
    def kernel(q, k, v, do, bias=None, keep=None):
        D = q.shape[3]
        x = np.matmul(q.transpose(0, 2, 1, 3), k.transpose(0, 2, 3, 1))
        x *= 1 / math.sqrt(D)
        if bias is not None:
            x += bias
        if keep is not None:
            np.copyto(x, -np.inf, where=~np.broadcast_to(keep, x.shape))
        top = x.max(-1, keepdims=True)
        top[top == -np.inf] = 0
        x -= top
        lse = np.exp(x).sum(-1, keepdims=True)
        lse[lse == 0] = 1
        x -= np.log(lse)                                                # log-softmax
        a = np.exp(x, out=x)
        vt, gt = v.transpose(0, 2, 1, 3), do.transpose(0, 2, 1, 3)
        o = np.matmul(a, vt).transpose(0, 2, 1, 3)
        dlog = np.matmul(gt, vt.swapaxes(-1, -2))
        if bug == "buffer_overwritten":                                 # dv comes one line too late
            dlog *= a
            dv = np.matmul(dlog.swapaxes(-1, -2), gt)
            ds = dlog
            ds -= a * ds.sum(-1, keepdims=True)
        else:
            dv = np.matmul(a.swapaxes(-1, -2), gt)
            dlog *= a
            if bug == "sum_of_log_gradient_missing_weights":
                dlog -= dlog.sum(-1, keepdims=True)
            elif bug == "weights_updated_first":
                a *= dlog
                dlog -= a * dlog.sum(-1, keepdims=True)
            elif bug == "log_gradient_without_weights":
                dlog = np.matmul(gt, vt.swapaxes(-1, -2))
                dlog -= a * dlog.sum(-1, keepdims=True)
            else:
                dlog -= a * dlog.sum(-1, keepdims=True)
            ds = dlog
        if bug == "scale_in_place_before_dbias":
            ds *= 1 / math.sqrt(D)
            db = ds
        else:
            db = ds.copy()
            ds *= 1 / math.sqrt(D)
        dq = np.matmul(ds, k.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
        dk = np.matmul(ds.swapaxes(-1, -2), q.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
        return (o, dq, dk, dv.transpose(0, 2, 1, 3)) + (() if bias is None else (sum_to(db, bias.shape),))
    return kernel


right("in_place", in_place, "softmax", bias="bhqk", keep="bhqk")
right("in_place no options", in_place, "softmax")
wrongs(in_place, "in_place", "softmax", dict(bias="bhqk", keep="bhqk"), [
    ("buffer_overwritten", "dv is made from the buffer that holds a da by then, not from the weights", "backward (4)"),
    ("sum_of_log_gradient_missing_weights", "the sum of the softmax backward is subtracted without the factor a", "backward (2)"),
    ("weights_updated_first", "the weights are multiplied by a da in place before they scale the sum", "backward (2)"),
    ("log_gradient_without_weights", "log-softmax backward applied to da, not a da: da - a sum(da)", "backward (2)"),
    ("scale_in_place_before_dbias", "ds is scaled in place before dbias is taken from it", "backward (1)"),
])


# 10. padded to whole blocks, keys outermost, all heads at once; keep as padding mask

def padded_blocks(bug=None, block=4):
    def kernel(q, k, v, do, keep=None):
        B, N, H, D = q.shape
        M = k.shape[1]
        pad = -M % block
        kp = np.concatenate([k, np.zeros((B, pad, H, D), k.dtype)], 1)
        vp = np.concatenate([v, np.zeros((B, pad, H, v.shape[3]), v.dtype)], 1)
        real = np.arange(M + pad) < M
        if bug == "padding_counted":
            real = np.ones(M + pad, bool)
        if bug == "last_key_padded":
            real = np.arange(M + pad) < M - 1
        full = np.broadcast_to(True if keep is None else keep, (B, H, N, M))
        full = np.concatenate([full, np.broadcast_to(bug == "padding_counted", (B, H, N, pad))], 3) & real

        def tile(j, fwd):
            s = np.einsum("bqhd,bkhd->bhqk", q * D ** -0.5, kp[:, j:j + block])
            return np.where(full[..., j:j + block], s, -np.inf)

        m = np.full((B, H, N, 1), -np.inf, q.dtype)
        for j in range(0, M + pad, block):                              # first pass: the maximum
            m = np.maximum(m, tile(j, True).max(-1, keepdims=True))
        m = np.where(m == -np.inf, 0, m)
        if bug == "max_of_all_queries":
            m = m.max(2, keepdims=True) * 0 + m.max(2, keepdims=True)   # still right in exact arithmetic
        l, acc = np.zeros((B, H, N, 1), q.dtype), np.zeros((B, H, N, v.shape[3]), q.dtype)
        for j in range(0, M + pad, block):                              # second pass
            p = np.exp(tile(j, True) - m)
            l += p.sum(-1, keepdims=True)
            acc += np.einsum("bhqk,bkhe->bhqe", p, vp[:, j:j + block])
            if bug == "normalised_in_loop":
                acc = acc / np.where(l == 0, 1, l)
        l = np.where(l == 0, 1, l)
        oo = acc if bug == "normalised_in_loop" else acc / l
        g = do.transpose(0, 2, 1, 3)
        delta = (g * oo).sum(-1, keepdims=True)
        if bug == "delta_unnormalised":
            delta = (g * acc).sum(-1, keepdims=True)
        dq, dk, dv = np.zeros_like(q), np.zeros_like(kp), np.zeros_like(vp)
        for j in range(0, M + pad, block):
            p = np.exp(tile(j, False) - m)
            if bug != "backward_unnormalised":
                p = p / l
            dv[:, j:j + block] = np.einsum("bhqk,bhqe->bkhe", p, g)
            ds = p * (np.einsum("bhqe,bkhe->bhqk", g, vp[:, j:j + block]) - delta) * D ** -0.5
            dq += np.einsum("bhqk,bkhd->bqhd", ds, kp[:, j:j + block])
            dk[:, j:j + block] = np.einsum("bhqk,bqhd->bkhd", ds, q)
            if bug == "dk_next_block":
                dk = np.roll(dk, 1, axis=1) if j + block >= M + pad else dk
            if bug == "delta_of_tile":
                dp = np.einsum("bhqe,bkhe->bhqk", g, vp[:, j:j + block])
                ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * D ** -0.5
                dk[:, j:j + block] = np.einsum("bhqk,bqhd->bkhd", ds, q)
        return o_of(oo), dq, dk[:, :M], dv[:, :M]
    o_of = lambda x: np.asfortranarray(x.transpose(0, 2, 1, 3))
    return kernel


right("padded_blocks", padded_blocks, "softmax", keep="b11k")
right("padded_blocks full keep", padded_blocks, "softmax", keep="bhqk")
right("padded_blocks one maximum for all queries", partial(padded_blocks, "max_of_all_queries"), "softmax")
wrongs(padded_blocks, "padded_blocks", "softmax", dict(keep="bhqk"), [
    ("padding_counted", "the padding keys (zeros) are not masked: exp(0) is in the denominator", "forward (2), backward (2)",
     dict(keep=None)),
    ("last_key_padded", "the last real key is masked as padding", "forward (2), backward (2)", dict(keep=None)),
    ("normalised_in_loop", "the accumulator is divided by the running sum inside the loop too", "forward (2), forward (4)"),
    ("delta_unnormalised", "delta is made from the accumulator before it is divided by the sum", "backward (2)"),
    ("backward_unnormalised", "the recomputed weights are not divided by the sum", "backward (2)"),
    ("dk_next_block", "dk is stored one key too late", "backward (1)", dict(keep=None)),
    ("delta_of_tile", "dk's delta is summed over its own tile of keys, not all", "backward (2)"),
])


# 11. variable lengths: kept keys of each sequence gathered, no mask

def gathered(bug=None):
    def kernel(q, k, v, do, keep):                                      # keep (b, 1, 1, k)
        o = np.zeros((*q.shape[:3], v.shape[3]), q.dtype)
        dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
        r = 1 / math.sqrt(q.shape[3])
        for b in range(len(q)):
            at = np.flatnonzero(keep[b, 0, 0])
            if bug == "first_keys":                                     # takes the mask for a length
                at = np.arange(len(at))
            if bug == "keep_of_first_sequence":
                at = np.flatnonzero(keep[0, 0, 0])
            if not len(at):
                continue
            for h in range(q.shape[2]):
                K, V = k[b, at, h], v[b, at, h]
                s = q[b, :, h] @ K.T * r
                a = np.exp(s - s.max(1, keepdims=True))
                a /= a.sum(1, keepdims=True)
                o[b, :, h] = a @ V
                G = do[b, :, h]
                da = G @ V.T
                ds = a * (da - (G * o[b, :, h]).sum(1, keepdims=True)) * r
                dq[b, :, h] = ds @ K
                to = np.arange(len(at)) if bug == "gradients_not_scattered" else at
                dk[b, to, h] += ds.T @ q[b, :, h]
                dv[b, to, h] += a.T @ G
                if bug == "dv_summed_twice":
                    dv[b, to, h] += a.T @ G
        return o, dq, dk, dv
    return kernel


right("gathered", gathered, "softmax", keep="b11k")
wrongs(gathered, "gathered", "softmax", dict(keep="b11k"), [
    ("first_keys", "the mask is taken for a length: the first n keys are used", "forward (2), backward (2)"),
    ("keep_of_first_sequence", "every sequence uses the first one's mask", "forward (2), backward (2)"),
    ("gradients_not_scattered", "dk and dv of the gathered keys are written to the first places", "backward (4), backward (1)"),
    ("dv_summed_twice", "dv is accumulated twice", "backward (4)"),
])


# ==================================================================================================== linear attention
# 12. eager, all options

def linear_eager(bug=None, dictionary=False):
    def kernel(q, k, v, do, bias=None, keep=None, dropout=None):
        D = q.shape[-1]
        s = np.einsum("bqhd,bkhd->bhqk", q, k) * D ** -0.5
        if bug == "masked_minus_inf_like":                              # a softmax's habit
            s = s if keep is None else np.where(keep, s, -1e4)
        if bias is not None and bug != "bias_forgotten":
            s = s + bias
        if keep is not None and bug != "masked_minus_inf_like":
            if bug == "masked_before_bias":
                s = (s - bias) * keep + bias
            else:
                s = s * keep
        if bug == "softmax_left_in":
            s = np.exp(s - s.max(-1, keepdims=True))
            s = s / s.sum(-1, keepdims=True)
        if bug == "divided_by_keys":
            s = s / s.shape[-1]
        c = s if dropout is None else s * dropout
        if bug == "dropout_squared":
            c = c * dropout
        o = np.einsum("bhqk,bkhe->bqhe", c, v)
        g = do
        if bug == "negative_gradient_clipped":
            g = np.maximum(do, 0)
        dv = np.einsum("bhqk,bqhe->bkhe", s if bug == "dv_without_dropout" else c, do)
        dc = np.einsum("bqhe,bkhe->bhqk", g, v)
        ds = dc if dropout is None or bug == "da_without_dropout" else dc * dropout
        if keep is not None and bug != "keep_missing_backward":
            ds = ds * keep
        if bug == "softmax_backward_left_in":
            ds = s * (ds - (s * ds).sum(-1, keepdims=True))
        dq = np.einsum("bhqk,bkhd->bqhd", ds, k) * D ** -0.5
        dk = np.einsum("bhqk,bqhd->bkhd", ds, q) * D ** -0.5
        if bug == "dq_scale_inverse":
            dq = np.einsum("bhqk,bkhd->bqhd", ds, k) * D ** 0.5
        out = [o, dq, dk, dv]
        if bias is not None:
            db = ds if bug != "dbias_before_keep" or keep is None else dc if dropout is None else dc * dropout
            out.append(sum_to(db, bias.shape))
            if bug == "dbias_of_first_query":
                out[-1] = db.sum(0)[:, :1]
            if bug == "dbias_with_scores":
                out[-1] = sum_to(db * s, bias.shape)
        return dict(zip(("o", "dq", "dk", "dv", "dbias"), out)) if dictionary else tuple(out)
    return kernel


right("linear_eager", linear_eager, "linear", **ALL)
right("linear_eager mapping", partial(linear_eager, dictionary=True), "linear", bias="h1k", keep="qk")
wrongs(linear_eager, "linear_eager", "linear", ALL, [
    ("masked_minus_inf_like", "a masked score is set to -10^4 before the bias, as for a softmax, not to 0", "forward (2)"),
    ("bias_forgotten", "the bias is not added in the forward", "forward (1)"),
    ("masked_before_bias", "keep is applied before the bias is added", "forward (2), forward (1)"),
    ("softmax_left_in", "the softmax was left in, in the forward", "forward (2)"),
    ("divided_by_keys", "the weights are divided by the number of keys in the forward", "forward (2), forward (1), forward (4)"),
    ("dropout_squared", "dropout is applied twice in the forward and in dv", "forward (3)"),
    ("negative_gradient_clipped", "the gradient is clipped at 0 before that of the weights", "backward (4)"),
    ("dv_without_dropout", "dv is made from the weights before dropout", "backward (4), backward (3)"),
    ("da_without_dropout", "the gradient of the weights is not multiplied by dropout", "backward (3)"),
    ("keep_missing_backward", "ds is not masked", "backward (2)"),
    ("softmax_backward_left_in", "the softmax's backward was left in", "backward (2)"),
    ("dq_scale_inverse", "dq is multiplied by sqrt(d), not divided", "backward (1)"),
    ("dbias_before_keep", "dbias is not masked", "backward (1), backward (2)"),
    ("dbias_of_first_query", "dbias of h1k has the first query only", "backward (1)", dict(bias="h1k")),
    ("dbias_with_scores", "dbias is multiplied by the scores", "backward (1)"),
])


# 13. q (k^T v): the products in the other order; a bias as a further product

def associative(bug=None):
    def kernel(q, k, v, do, bias=None):
        B, N, H, D = q.shape
        r = 1 / math.sqrt(D)
        Q, K, V, G = (x.transpose(0, 2, 1, 3) for x in (q, k, v, do))
        state = K.swapaxes(-1, -2) @ V                                  # (b, h, d, e)
        if bug == "state_summed_over_batch":
            state = np.broadcast_to(state.sum(0, keepdims=True), state.shape)
        if bug == "state_of_one_key_less":
            state = K[:, :, :-1].swapaxes(-1, -2) @ V[:, :, :-1]
        o = (Q * r) @ state
        if bias is not None:
            full = np.broadcast_to(bias, (B, H, N, k.shape[1]))
            o = o + full @ V * (r if bug == "bias_product_scaled" else 1)
        dstate = (Q * r).swapaxes(-1, -2) @ G
        if bug == "dstate_unscaled":
            dstate = Q.swapaxes(-1, -2) @ G
        dq = G @ state.swapaxes(-1, -2) * r
        dk = V @ dstate.swapaxes(-1, -2)
        dv = K @ dstate
        if bug == "dq_from_dstate":
            dq = G @ dstate.swapaxes(-1, -2) * r
        if bug == "dk_from_state":
            dk = V @ state.swapaxes(-1, -2)
        out = [x.transpose(0, 2, 1, 3) for x in (o, dq, dk, dv)]
        if bias is not None:
            if bug != "dv_without_bias_product":
                out[3] = out[3] + (full.swapaxes(-1, -2) @ G).transpose(0, 2, 1, 3)
            out.append(sum_to(G @ V.swapaxes(-1, -2), bias.shape))
        return out
    return kernel


right("associative", associative, "linear")
right("associative with bias", associative, "linear", bias="hqk")
wrongs(associative, "associative", "linear", dict(bias="bhqk"), [
    ("state_summed_over_batch", "the state k^T v is summed over the batch", "forward (4), backward (1)"),
    ("state_of_one_key_less", "the state leaves out the last key", "forward (4), backward (1)"),
    ("bias_product_scaled", "the bias's product is scaled by 1 / sqrt(d) too, in the forward", "forward (1)"),
    ("dstate_unscaled", "the gradient of the state lacks 1 / sqrt(d): dk and (the scores' part of) dv", "backward (1), backward (4)"),
    ("dq_from_dstate", "dq is made from the state's gradient", "backward (1)"),
    ("dk_from_state", "dk is made from the state, not from its gradient", "backward (1)"),
    ("dv_without_bias_product", "dv lacks the bias's part", "backward (4), backward (3)"),
])


# 14. causal, chunk by chunk, with a running state; queries stand at the last positions

def chunkwise(bug=None, chunk=3):
    def kernel(q, k, v, do):
        B, N, H, D = q.shape
        M, E = k.shape[1], v.shape[3]
        r, off = D ** -0.5, M - N
        o, dq, dk, dv = (np.zeros(s, q.dtype) for s in ((B, N, H, E), q.shape, k.shape, v.shape))
        S = np.zeros((B, H, D, E), q.dtype)
        spans = [(a, min(a + chunk, M)) for a in range(0, M, chunk)]
        for n, (a, z) in enumerate(spans):                              # keys a .. z, queries at the same positions
            if bug == "state_reset_each_chunk":
                S = np.zeros_like(S)
            rows = np.arange(max(a, off), z) - off
            K, V = k[:, a:z], v[:, a:z]
            if len(rows):
                s = np.einsum("bqhd,bkhd->bhqk", q[:, rows] * r, K)
                seen = np.arange(a, z) <= rows[:, None] + off
                if bug == "intra_strict":
                    seen = np.arange(a, z) < rows[:, None] + off
                if bug == "intra_full":
                    seen = np.ones_like(seen)
                o[:, rows] = np.einsum("bhqk,bkhe->bqhe", s * seen, V)
                if bug == "state_before_read":
                    S = S + np.einsum("bkhd,bkhe->bhde", K, V)
                if bug == "inter_unscaled":
                    o[:, rows] += np.einsum("bqhd,bhde->bqhe", q[:, rows], S)
                elif bug != "inter_missing":
                    o[:, rows] += np.einsum("bqhd,bhde->bqhe", q[:, rows] * r, S)
                G = do[:, rows]
                da = np.einsum("bqhe,bkhe->bhqk", G, V) * (np.arange(a, z) <= rows[:, None] + off)
                dq[:, rows] = (np.einsum("bhqk,bkhd->bqhd", da, K) + np.einsum("bqhe,bhde->bqhd", G, S)) * r
                if bug == "dq_state_part_unscaled":
                    dq[:, rows] = np.einsum("bhqk,bkhd->bqhd", da, K) * r + np.einsum("bqhe,bhde->bqhd", G, S)
                if bug == "dq_state_part_missing":
                    dq[:, rows] = np.einsum("bhqk,bkhd->bqhd", da, K) * r
            if bug != "state_before_read" or not len(rows):
                S = S + np.einsum("bkhd,bkhe->bhde", K, V)
            if bug == "state_decays":
                S = S * 0.9
        dS = np.zeros_like(S)
        for a, z in reversed(spans):
            rows = np.arange(max(a, off), z) - off
            K, V = k[:, a:z], v[:, a:z]
            if bug == "dstate_after_update" and len(rows):
                dS = dS + np.einsum("bqhd,bqhe->bhde", q[:, rows] * r, do[:, rows])
            dk[:, a:z] = np.einsum("bkhe,bhde->bkhd", V, dS)
            dv[:, a:z] = np.einsum("bkhd,bhde->bkhe", K, dS)
            if bug == "dv_state_part_missing":
                dv[:, a:z] = 0
            if len(rows):
                seen = np.arange(a, z) <= rows[:, None] + off
                if bug == "backward_intra_strict":
                    seen = np.arange(a, z) < rows[:, None] + off
                G = do[:, rows]
                s = np.einsum("bqhd,bkhd->bhqk", q[:, rows] * r, K) * seen
                da = np.einsum("bqhe,bkhe->bhqk", G, V) * seen
                dv[:, a:z] += np.einsum("bhqk,bqhe->bkhe", s, G)
                dk[:, a:z] += np.einsum("bhqk,bqhd->bkhd", da, q[:, rows]) * r
                if bug != "dstate_after_update":
                    dS = dS + np.einsum("bqhd,bqhe->bhde", q[:, rows] * r, G)
        return o, dq, dk, dv
    return kernel


right("chunkwise", chunkwise, "linear", causal=True)
right("recurrent: chunks of one", partial(chunkwise, chunk=1), "linear", causal=True)
right("chunkwise, as many queries as keys", partial(chunkwise, chunk=4), "linear", causal=True, sizes={"q": 9, "k": 9})
wrongs(chunkwise, "chunkwise", "linear", dict(causal=True), [
    ("state_reset_each_chunk", "the state is cleared at every chunk (also for dq)", "forward (2), forward (4)"),
    ("intra_strict", "inside a chunk no query sees its own key", "forward (2)"),
    ("intra_full", "inside a chunk there is no causal mask, in the forward", "forward (2)"),
    ("state_before_read", "the state takes in the chunk before it is read: the chunk counts twice", "forward (2), forward (4)"),
    ("inter_unscaled", "the state's part of the output lacks 1 / sqrt(d)", "forward (1)"),
    ("inter_missing", "the state's part is not added to the output", "forward (2), forward (4)"),
    ("dq_state_part_unscaled", "the state's part of dq lacks 1 / sqrt(d)", "backward (1)"),
    ("dq_state_part_missing", "dq lacks the state's part", "backward (1), backward (2)"),
    ("state_decays", "the state decays by 0.9 per chunk (a factor of another model left in)", "forward (1), forward (2), forward (4)"),
    ("dstate_after_update", "walking backwards, the state's gradient takes in the chunk before it is read",
     "backward (2), backward (1), backward (4)"),
    ("dv_state_part_missing", "dv lacks the part of later chunks", "backward (4)"),
    ("backward_intra_strict", "inside a chunk the backward's mask of dk and dv is strict", "backward (2), backward (4)"),
])


# 15. tiles of keys with bias, keep, dropout

def linear_tiles(bug=None, tile=2):
    def kernel(q, k, v, do, bias=None, keep=None, dropout=None):
        B, N, H, D = q.shape
        M = k.shape[1]
        cut = lambda x, j: x if x is None or x.shape[-1] == 1 else x[..., j]
        o = np.zeros((B, N, H, v.shape[3]), q.dtype)
        dq, dk, dv = np.zeros_like(q), np.empty_like(k), np.empty_like(v)
        db = None if bias is None else np.zeros_like(bias)
        count = -(-M // tile)
        for n in range(count):
            j = slice(n * tile, min((n + 1) * tile, M))
            s = np.einsum("bqhd,bkhd->bhqk", q, k[:, j]) / math.sqrt(D)
            if bias is not None:
                s += cut(bias, j if bug != "bias_of_first_tile" or j.stop - j.start < tile else slice(0, tile))
            mask, drop = cut(keep, j), cut(dropout, j)
            if mask is not None:
                s = np.where(mask, s, 0)
            c = s if drop is None else s * drop
            part = np.einsum("bhqk,bkhe->bqhe", c, v[:, j])
            if bug == "output_of_last_tile":
                o = part
            else:
                o += part
            dv[:, j] = np.einsum("bhqk,bqhe->bkhe", c, do)
            ds = np.einsum("bqhe,bkhe->bhqk", do, v[:, j])
            ds = ds if drop is None else ds * drop
            ds = ds if mask is None else np.where(mask, ds, 0)
            if bug == "dq_averaged_over_tiles":
                dq += np.einsum("bhqk,bkhd->bqhd", ds, k[:, j]) / math.sqrt(D) / count
            else:
                dq += np.einsum("bhqk,bkhd->bqhd", ds, k[:, j]) / math.sqrt(D)
            dk[:, j] = np.einsum("bhqk,bqhd->bkhd", ds, q) / math.sqrt(D)
            if bias is not None:
                whole = db if db.shape[-1] == 1 else db[..., j]
                if bug == "dbias_of_last_tile":
                    whole[...] = sum_to(ds, whole.shape)
                else:
                    whole += sum_to(ds, whole.shape)
        return (o, dq, dk, dv) + (() if bias is None else (db,))
    return kernel


right("linear_tiles", linear_tiles, "linear", **ALL)
right("linear_tiles stretched bias", partial(linear_tiles, tile=3), "linear", bias="hq1", keep="b11k")
wrongs(linear_tiles, "linear_tiles", "linear", ALL, [
    ("bias_of_first_tile", "every whole tile takes the first tile's bias", "forward (1)"),
    ("output_of_last_tile", "the output is assigned per tile: the last tile's is left", "forward (4)"),
    ("dq_averaged_over_tiles", "dq is averaged over tiles, not summed", "backward (1)"),
    ("dbias_of_last_tile", "dbias of a bias stretched over keys is the last tile's", "backward (1)", dict(bias="hq1")),
])


# 16. with a state in and out

def stateful(bug=None):
    def kernel(q, k, v, state, do, dend):
        B, T, H, D = q.shape
        S, r = state.copy(), D ** -0.5
        o, seen = np.zeros(v.shape, q.dtype), []
        for t in range(T):
            kv = k[:, t, :, :, None] * v[:, t, :, None, :]
            if bug == "read_before_update":
                o[:, t] = np.einsum("bhd,bhde->bhe", q[:, t] * r, S)
                S = S + kv
            else:
                S = S + kv * (r if bug == "end_scaled" else 1)
                o[:, t] = np.einsum("bhd,bhde->bhe", q[:, t] * (1 if bug == "end_scaled" else r), S)
            seen.append(S)
        end = S - state if bug == "end_without_start" else S
        dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
        dS = np.zeros_like(dend) if bug == "dend_ignored" else dend.copy()
        for t in reversed(range(T)):
            dq[:, t] = np.einsum("bhe,bhde->bhd", do[:, t], seen[t if bug != "dq_of_state_before" else t - 1] if t or bug != "dq_of_state_before" else state) * r
            if bug == "dk_before_update":
                dk[:, t] = np.einsum("bhe,bhde->bhd", v[:, t], dS)
            dS = dS + (q[:, t] * r)[..., None] * do[:, t, :, None, :]
            if bug != "dk_before_update":
                dk[:, t] = np.einsum("bhe,bhde->bhd", v[:, t], dS)
            dv[:, t] = np.einsum("bhd,bhde->bhe", k[:, t], dS)
        if bug == "dstate_without_dend":
            dS = dS - dend
        return o, end, dq, dk, dv, dS
    return kernel


def stateful_parallel(q, k, v, state, do, dend):
    T, r = q.shape[1], 1 / math.sqrt(q.shape[3])
    tri = np.tril(np.ones((T, T), bool))
    a = np.einsum("bqhd,bkhd->bhqk", q, k) * r * tri
    da = np.einsum("bqhe,bkhe->bhqk", do, v) * tri
    return {"o": np.einsum("bhqk,bkhe->bqhe", a, v) + np.einsum("bqhd,bhde->bqhe", q, state) * r,
            "end": state + np.einsum("bkhd,bkhe->bhde", k, v),
            "dq": (np.einsum("bhqk,bkhd->bqhd", da, k) + np.einsum("bqhe,bhde->bqhd", do, state)) * r,
            "dk": np.einsum("bhqk,bqhd->bkhd", da, q) * r + np.einsum("bkhe,bhde->bkhd", v, dend),
            "dv": np.einsum("bhqk,bqhe->bkhe", a, do) + np.einsum("bkhd,bhde->bkhe", k, dend),
            "dstate": np.einsum("bqhd,bqhe->bhde", q, do) * r + dend}


right("stateful", stateful, "linear_state")
right("stateful_parallel", lambda: stateful_parallel, "linear_state")
wrongs(stateful, "stateful", "linear_state", {}, [
    ("read_before_update", "the state is read before the token is added", "forward (2)"),
    ("end_scaled", "the scale is in k v^T, so the state after has it too", "forward (4)"),
    ("end_without_start", "the state after lacks the state before", "forward (6)"),
    ("dend_ignored", "the gradient of the state after is ignored", "backward (4), backward (6)"),
    ("dq_of_state_before", "dq is made from the state before the token", "backward (2), backward (1)"),
    ("dk_before_update", "dk is made before the token's own gradient is in the state's", "backward (2), backward (1)"),
    ("dstate_without_dend", "dstate lacks the gradient of the state after", "backward (6)"),
])


# ================================================================================================================ HYLA
# 17. eager with every option

def hyla_eager(bug=None, root="rsqrt"):
    def kernel(q, k, v, do, bias=None, keep=None, dropout=None):
        B, N, H, D = q.shape
        eps = 1e-6
        if bug == "epsilon_1e_8":
            eps = 1e-8
        if bug == "epsilon_1e_5":
            eps = 1e-5
        s = np.einsum("bqhd,bkhd->bhqk", q, k) * (1 if bug == "scale_missing" else D ** -0.5)
        if bias is not None:
            s = s + bias
        if keep is not None and bug != "keep_after_rms":
            s = s * keep
        ms = np.mean(s * s, axis=1, keepdims=True)
        if bug == "sum_of_squares":
            ms = ms * H
        if bug == "rms_over_keys":
            ms = np.mean(s * s, axis=-1, keepdims=True)
        if bug == "unbiased_mean":
            ms = ms * H / (H - 1)
        if bug == "variance_for_mean_square":
            ms = np.var(s, axis=1, keepdims=True)
        if bug == "mean_of_kept_heads":
            n = np.broadcast_to(keep, s.shape).sum(1, keepdims=True)
            ms = (s * s).sum(1, keepdims=True) / np.maximum(n, 1)
        if root == "division":
            rho = 1 / np.sqrt(ms + eps)
        elif root == "power":
            rho = (ms + eps) ** -0.5
        else:
            rho = 1.0 / np.sqrt(ms + eps)
        if bug == "epsilon_outside_root":
            rho = 1 / (np.sqrt(ms) + eps)
        if bug == "epsilon_added_after":
            rho = 1 / np.maximum(np.sqrt(ms), 1e-12)
        if bug == "root_missing":
            rho = 1 / (ms + eps)
        a = s * rho
        if bug == "keep_after_rms":
            a = a * keep
        c = a if dropout is None else a * dropout
        z = np.einsum("bhqk,bkhe->bqke", a if bug == "inner_use_not_dropped" else c, v)
        if bug == "inner_sum_is_mean":
            z = z / H
        g = np.maximum(z, 0)
        if bug == "leaky":
            g = np.where(z > 0, z, 0.01 * z)
        o = np.einsum("bhqk,bqke->bqhe", a if bug == "outer_use_not_dropped" else c, g)
        # backward
        dg = np.einsum("bhqk,bqhe->bqke", c, do)
        dz = dg * (z > 0)
        if bug == "relu_backward_missing":
            dz = dg
        if bug == "relu_mask_of_gradient":
            dz = dg * (dg > 0)
        if bug == "relu_value_for_slope":
            dz = dg * g
        dc_outer = np.einsum("bqhe,bqke->bhqk", do, z if bug == "outer_use_before_relu" else g)
        dc_inner = np.einsum("bqke,bkhe->bhqk", dg if bug == "inner_use_without_relu" else dz, v)
        dc = dc_outer + dc_inner
        if bug == "outer_use_missing":
            dc = dc_inner
        if bug == "inner_use_missing":
            dc = dc_outer
        if bug == "inner_use_twice":
            dc = dc_outer + 2 * dc_inner
        if bug == "uses_subtracted":
            dc = dc_outer - dc_inner
        dv = np.einsum("bhqk,bqke->bkhe", a if bug == "dv_without_dropout" else c, dz)
        if bug == "dv_without_relu":
            dv = np.einsum("bhqk,bqke->bkhe", c, dg)
        if bug == "dv_as_softmax":
            dv = np.einsum("bhqk,bqhe->bkhe", c, do)
        da = dc if dropout is None else dc * dropout
        if bug == "only_outer_use_dropped":
            da = dc_outer * dropout + dc_inner
        if bug == "da_without_dropout":
            da = dc
        if bug == "rms_backward_without_mean":
            ds = rho * da
        elif bug == "rms_backward_sum":
            ds = rho * (da - a * (a * da).sum(1, keepdims=True))
        elif bug == "rms_backward_with_scores":
            ds = rho * (da - s * (s * da).mean(1, keepdims=True))
        elif bug == "rms_backward_rho_missing":
            ds = da - a * (a * da).mean(1, keepdims=True)
        elif bug == "rms_backward_rho_cubed":
            ds = rho * da - rho ** 3 * a * (a * da).mean(1, keepdims=True)
        elif bug == "rms_backward_dropped_code":
            ds = rho * (da - c * (c * da).mean(1, keepdims=True))
        elif bug == "rms_backward_over_keys":
            ds = rho * (da - a * (a * da).mean(-1, keepdims=True))
        elif bug == "rms_backward_layer_norm":
            ds = rho * (da - da.mean(1, keepdims=True) - a * (a * da).mean(1, keepdims=True))
        elif bug == "rms_backward_one_a":
            ds = rho * (da - (a * da).mean(1, keepdims=True))
        else:
            ds = rho * (da - a * (a * da).mean(1, keepdims=True))
        if keep is not None and bug != "keep_missing_backward":
            ds = ds * keep
        dq = np.einsum("bhqk,bkhd->bqhd", ds, k) * D ** -0.5
        dk = np.einsum("bhqk,bqhd->bkhd", ds, q) * D ** -0.5
        if bug == "dq_scaled_by_mean":
            dq = np.einsum("bhqk,bkhd->bqhd", ds, k) / D
        out = (o, dq, dk, dv)
        if bias is not None:
            out += (sum_to(ds * rho if bug == "dbias_with_rho" else ds, bias.shape),)
        return out
    return kernel


right("hyla_eager", hyla_eager, "hyla", **ALL)
right("hyla_eager division, shared keep", partial(hyla_eager, root="division"), "hyla", bias="hqk", keep="qk")
right("hyla_eager power, one query", partial(hyla_eager, root="power"), "hyla", dropout="bhqk", sizes={"q": 1})
wrongs(hyla_eager, "hyla_eager", "hyla", ALL, [
    ("epsilon_1e_8", "epsilon of RMSHead is 1e-8, not 1e-6", "forward (3)"),
    ("epsilon_1e_5", "epsilon of RMSHead is 1e-5, not 1e-6", "forward (3)"),
    ("scale_missing", "scores lack 1 / sqrt(d) in the forward", "forward (1)"),
    ("keep_after_rms", "keep is applied behind RMSHead, so masked heads count in its mean", "forward (2)"),
    ("sum_of_squares", "RMSHead divides by the root of the sum of squares, not of their mean", "forward (3)"),
    ("rms_over_keys", "the root mean square is over keys, not heads", "forward (3)"),
    ("unbiased_mean", "the mean of squares divides by h - 1", "forward (3)"),
    ("variance_for_mean_square", "the variance over heads, not the mean square", "forward (3)"),
    ("mean_of_kept_heads", "the mean of squares divides by the number of kept heads, not by h", "forward (3), forward (2)"),
    ("epsilon_outside_root", "epsilon is added outside the root", "forward (3)"),
    ("epsilon_added_after", "no epsilon but a clamp of the root at 1e-12", "forward (3)"),
    ("root_missing", "divided by the mean square, without its root", "forward (3)"),
    ("inner_use_not_dropped", "the inner sum's code is not dropped (forward)", "forward (5), forward (4)"),
    ("outer_use_not_dropped", "the outer sum's code is not dropped (forward)", "forward (7), forward (4)"),
    ("inner_sum_is_mean", "the inner sum over heads is a mean", "forward (5)"),
    ("leaky", "a leaky relu with slope 0.01 in the forward", "forward (6)"),
    ("relu_backward_missing", "the backward has no relu", "backward (6)"),
    ("relu_mask_of_gradient", "the relu's backward masks by the sign of the gradient (guided), not of z", "backward (6)"),
    ("relu_value_for_slope", "the relu's backward multiplies by relu(z), not by its slope", "backward (6)"),
    ("outer_use_before_relu", "the code's gradient at the outer use is made from z before relu", "backward (7)"),
    ("inner_use_without_relu", "the code's gradient at the inner use is made from dg, not dz", "backward (5)"),
    ("outer_use_missing", "the code's gradient lacks its outer use", "backward (7), backward (5)"),
    ("inner_use_missing", "the code's gradient lacks its inner use", "backward (5)"),
    ("inner_use_twice", "the code's gradient has its inner use twice", "backward (5)"),
    ("uses_subtracted", "the two uses' gradients are subtracted", "backward (5)"),
    ("dv_without_dropout", "dv is made from the code before dropout", "backward (5), backward (4)"),
    ("dv_without_relu", "dv is made from dg, without relu's slope", "backward (5), backward (6)"),
    ("dv_as_softmax", "dv is c do, as in one-use attention", "backward (5)"),
    ("only_outer_use_dropped", "dropout's backward acts on the outer use's gradient only", "backward (4)"),
    ("da_without_dropout", "the code's gradient is not multiplied by dropout", "backward (4)"),
    ("rms_backward_without_mean", "RMSHead's backward is rho da, rho taken as constant", "backward (3)"),
    ("rms_backward_sum", "a sum in place of the mean in RMSHead's backward", "backward (3)"),
    ("rms_backward_with_scores", "RMSHead's backward uses s in place of a", "backward (3)"),
    ("rms_backward_rho_missing", "rho is missing in RMSHead's backward", "backward (3)"),
    ("rms_backward_rho_cubed", "rho^3 with a, which has one rho already, in RMSHead's backward", "backward (3)"),
    ("rms_backward_dropped_code", "RMSHead's backward uses the dropped code", "backward (3)"),
    ("rms_backward_over_keys", "the mean of RMSHead's backward is over keys", "backward (3)"),
    ("rms_backward_layer_norm", "LayerNorm's backward: the mean of da is subtracted too", "backward (3)"),
    ("rms_backward_one_a", "the factor a before the mean is missing", "backward (3)"),
    ("keep_missing_backward", "ds is not masked", "backward (2)"),
    ("dq_scaled_by_mean", "dq is divided by d, not by its root", "backward (1)"),
    ("dbias_with_rho", "dbias is multiplied by rho once more", "backward (1)"),
])


# 18. fused: the normaliser is deferred, o = sum_k rho^2 s relu(sum_j s_j v_j), tile by tile, recomputed

def hyla_deferred(bug=None, tile=3):
    def kernel(q, k, v, do, bias=None):                                 # (b, h, t, d)
        B, H, N, D = q.shape
        M, r = k.shape[2], 1 / math.sqrt(D)
        o = np.zeros((B, H, N, v.shape[3]), q.dtype)
        dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
        db = None if bias is None else np.zeros((B, H, N, M), q.dtype)
        wide = None if bias is None else np.broadcast_to(bias, (B, H, N, M))
        for j in range(0, M, tile):
            K, V = k[:, :, j:j + tile], v[:, :, j:j + tile]
            s = q @ K.swapaxes(-1, -2) * r
            if bias is not None:
                s = s + wide[..., j:j + tile]
            w = 1 / ((s * s).mean(1, keepdims=True) + 1e-6)             # rho^2 (b, 1, q, k)
            y = np.einsum("bhqk,bhke->bqke", s, V)
            g = np.maximum(y, 0)
            if bug == "rho_once":
                o += np.einsum("bhqk,bqke->bhqe", np.sqrt(w) * s, g)
            elif bug == "last_tile_only":
                o = np.einsum("bhqk,bqke->bhqe", w * s, g)
            else:
                o += np.einsum("bhqk,bqke->bhqe", w * s, g)
            # backward of o = w s g
            dws = np.einsum("bhqe,bqke->bhqk", do, g)                   # gradient of (w s)
            dg = np.einsum("bhqk,bhqe->bqke", w * s, do)
            if bug == "dg_without_normaliser":
                dg = np.einsum("bhqk,bhqe->bqke", s, do)
            dy = dg * (y > 0)
            dv[:, :, j:j + tile] = np.einsum("bhqk,bqke->bhke", s, dy)
            if bug == "dv_normalised_again":
                dv[:, :, j:j + tile] = np.einsum("bhqk,bqke->bhke", np.sqrt(w) * s, dy)
            ds = w * dws + np.einsum("bqke,bhke->bhqk", dy, V)
            dw = (dws * s).sum(1, keepdims=True)
            if bug == "normaliser_half":                                # the backward of one rho, not of rho^2
                dw = dw / 2
            if bug == "normaliser_constant":
                dw = dw * 0
            ds = ds - dw * w * w * 2 * s / (1 if bug == "normaliser_sum" else H)
            if bias is not None:
                db[..., j:j + tile] = ds
            dq += ds @ K * r
            dk[:, :, j:j + tile] = ds.swapaxes(-1, -2) @ q * r
        return (o, dq, dk, dv) + (() if bias is None else (sum_to(db, bias.shape),))
    return kernel


right("hyla_deferred", hyla_deferred, "hyla", layout="bhtd", bias="bhqk")
right("hyla_deferred small tile", partial(hyla_deferred, tile=2), "hyla", layout="bhtd", bias="h11")
wrongs(hyla_deferred, "hyla_deferred", "hyla", dict(layout="bhtd", bias="bhqk"), [
    ("rho_once", "the deferred normaliser is rho, but both uses of the code need it: rho^2", "forward (3), forward (5), forward (7)"),
    ("last_tile_only", "the output is assigned per tile of keys", "forward (7)"),
    ("dg_without_normaliser", "dg lacks the deferred normaliser", "backward (7)"),
    ("dv_normalised_again", "dv has rho once too often", "backward (5)"),
    ("normaliser_half", "the deferred normaliser's backward is that of rho, not of rho^2: half its term", "backward (3)"),
    ("normaliser_constant", "the deferred normaliser is taken as a constant", "backward (3)"),
    ("normaliser_sum", "the normaliser's term is not divided by h", "backward (3)"),
])


# 19. pair by pair, as a hypernetwork: a loop over queries and keys, matrices over heads

def hyla_pairs(bug=None):
    def kernel(q, k, v, do, keep=None):
        B, N, H, D = q.shape
        M, E = k.shape[1], v.shape[3]
        o = np.zeros((B, N, H, E), q.dtype)
        dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
        K4 = np.broadcast_to(True if keep is None else keep, (B, H, N, M))
        hidden = np.zeros((B, E), q.dtype)
        for i in range(N):
            for j in range(M):
                m = K4[:, :, i, j]
                s = (q[:, i] * k[:, j]).sum(-1) / math.sqrt(D) * m      # (b, h)
                norm = np.sqrt((s * s).mean(-1, keepdims=True) + 1e-6)
                if bug == "norm_over_batch":
                    norm = np.sqrt((s * s).mean(keepdims=True) + 1e-6)
                a = s / norm
                if bug == "hidden_not_cleared":                         # within one query
                    hidden = (hidden if j else 0) + np.einsum("bh,bhe->be", a, v[:, j])
                else:
                    hidden = np.einsum("bh,bhe->be", a, v[:, j])
                g = np.maximum(hidden, 0)
                if bug == "relu_behind_outer":
                    o[:, i] += np.maximum(a[:, :, None] * hidden[:, None], 0)
                else:
                    o[:, i] += a[:, :, None] * g[:, None]
                dg = np.einsum("bh,bhe->be", a, do[:, i])
                dz = np.where(hidden > 0, dg, 0)
                da = np.einsum("bhe,be->bh", do[:, i], g) + np.einsum("be,bhe->bh", dz, v[:, j])
                if bug == "inner_use_value_of_query" and i < M:
                    da = np.einsum("bhe,be->bh", do[:, i], g) + np.einsum("be,bhe->bh", dz, v[:, i])
                dv[:, j] += a[:, :, None] * dz[:, None]
                ds = (da - a * (a * da).mean(-1, keepdims=True)) / norm * m
                dq[:, i] += ds[..., None] * k[:, j] / math.sqrt(D)
                if bug == "dk_first_query_wins":
                    dk[:, j] = dk[:, j] if i else ds[..., None] * q[:, i] / math.sqrt(D)
                elif bug == "dk_to_query_slot" and i < M:
                    dk[:, i] += ds[..., None] * q[:, i] / math.sqrt(D)
                else:
                    dk[:, j] += ds[..., None] * q[:, i] / math.sqrt(D)
        return o, dq, dk, dv
    return kernel


right("hyla_pairs", hyla_pairs, "hyla", keep="bhqk")
right("hyla_pairs one head", hyla_pairs, "hyla", sizes={"h": 1})
wrongs(hyla_pairs, "hyla_pairs", "hyla", dict(keep="bhqk"), [
    ("norm_over_batch", "the mean of squares is over the batch too (both passes)", "forward (3), backward (3)"),
    ("hidden_not_cleared", "the hidden layer is not cleared between keys", "forward (5)"),
    ("relu_behind_outer", "relu is applied to a z, not to z", "forward (6), forward (7)"),
    ("inner_use_value_of_query", "the inner use's gradient takes the value at the query's place", "backward (5)"),
    ("dk_first_query_wins", "dk has the first query only", "backward (1)"),
    ("dk_to_query_slot", "dk is added at the query's place, not the key's", "backward (1)"),
])


# 20. bhtd, matmul style: the hidden layer as (b, q, k, e) from one batched product over heads; recomputed in the backward

def hyla_matmul(bug=None):
    def kernel(q, k, v, do, bias=None, keep=None, dropout=None):        # (b, h, t, d)
        D, H = q.shape[-1], q.shape[1]

        def forward():
            s = (q / D ** 0.5) @ k.swapaxes(-1, -2)
            if bias is not None:
                s = s + bias
            if keep is not None:
                s = np.where(keep, s, 0)
            rho = ((s ** 2).mean(1, keepdims=True) + 1e-6) ** -0.5
            a = s * rho
            c = a if dropout is None else a * dropout
            # (b, k, q, h) @ (b, k, h, e)
            hidden = c.transpose(0, 3, 2, 1) @ v.transpose(0, 2, 1, 3)
            return a, rho, c, hidden
        a, rho, c, hidden = forward()
        act = np.maximum(hidden, 0)
        o = (c.transpose(0, 2, 1, 3) @ act.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)     # (b, q, h, k) @ (b, q, k, e)
        a, rho, c, hidden = forward()
        act = np.maximum(hidden, 0)
        if bug == "recomputed_before_dropout":
            c = a
        dact = np.einsum("bhqk,bhqe->bkqe", c, do)
        dhid = dact * (act > 0)
        dc = np.einsum("bhqe,bkqe->bhqk", do, act)
        dc += (dhid @ v.transpose(0, 2, 3, 1)).transpose(0, 3, 2, 1)
        dv = (c.transpose(0, 3, 1, 2) @ dhid).transpose(0, 2, 1, 3)
        if bug == "dv_of_activation":
            dv = (c.transpose(0, 3, 1, 2) @ act).transpose(0, 2, 1, 3)
        if dropout is not None:
            dc *= dropout
        ds = rho * (dc - a * (a * dc).sum(1, keepdims=True) / (H if bug != "mean_over_features" else D))
        if keep is not None:
            ds = np.where(keep, ds, 0)
        dq = ds @ k / D ** 0.5
        dk = ds.swapaxes(-1, -2) @ (q / D ** 0.5)
        if bug == "dk_scaled_in_place":                                 # q was scaled, and is scaled again
            dk = dk / D ** 0.5
        return (o, dq, dk, dv) + (() if bias is None else (sum_to(ds, bias.shape),))
    return kernel


right("hyla_matmul", hyla_matmul, "hyla", layout="bhtd", **ALL)
wrongs(hyla_matmul, "hyla_matmul", "hyla", dict(layout="bhtd", **ALL), [
    ("recomputed_before_dropout", "the recomputation in the backward leaves out dropout", "backward (4)"),
    ("dv_of_activation", "dv is made from the activation, not from its gradient", "backward (5)"),
    ("mean_over_features", "RMSHead's backward divides the sum by d, not by h", "backward (3)"),
    ("dk_scaled_in_place", "dk is scaled twice, as q is scaled already", "backward (1)"),
])


# ======================================================================================================= ablations of HYLA
# 21. one use of the code: Linear + RMSHead, with and without relu on the values

def one_use(bug=None, relu=True):
    def kernel(q, k, v, do, bias=None, keep=None, dropout=None):
        B, N, H, D = q.shape
        M = k.shape[1]
        act = (lambda x: np.maximum(x, 0)) if relu else (lambda x: x)
        s = np.zeros((B, H, N, M), q.dtype)
        for h in range(H):
            s[:, h] = q[:, :, h] @ k[:, :, h].swapaxes(1, 2) / math.sqrt(D)
        if bias is not None:
            s += bias
        if keep is not None:
            s *= keep
        norm = np.sqrt(np.square(s).sum(1, keepdims=True) / H + 1e-6)
        if bug == "norm_after_each_head":
            norm = np.sqrt(np.cumsum(np.square(s), 1) / H + 1e-6)
        a = s / norm
        c = a if dropout is None else a * dropout
        values = act(v)
        if bug == "relu_forgotten":
            values = v
        o = np.einsum("bhqk,bkhe->bqhe", c, values)
        if bug == "relu_on_output":
            o = act(np.einsum("bhqk,bkhe->bqhe", c, v))
        dval = np.einsum("bhqk,bqhe->bkhe", c, do)
        dv = dval * (v > 0) if relu else dval
        if bug == "relu_backward_forgotten":
            dv = dval
        if bug == "relu_backward_by_gradient":
            dv = dval * (dval > 0)
        da = np.einsum("bqhe,bkhe->bhqk", do, v if bug == "da_from_raw_values" else act(v))
        if dropout is not None:
            da = da * dropout
        ds = (da - a * (a * da).sum(1, keepdims=True) / H) / norm
        if bug == "norm_squared":
            ds = (da - a * (a * da).sum(1, keepdims=True) / H) / norm ** 2
        if bug == "rms_backward_skipped":
            ds = da
        if keep is not None:
            ds *= keep
        dq, dk = np.zeros_like(q), np.zeros_like(k)
        for h in range(H):
            dq[:, :, h] = ds[:, h] @ k[:, :, h] / math.sqrt(D)
            dk[:, :, h if bug != "heads_reversed_in_dk" else H - 1 - h] = ds[:, h].swapaxes(1, 2) @ q[:, :, h] / math.sqrt(D)
        return (o, dq, dk, dv) + (() if bias is None else (sum_to(ds, bias.shape),))
    return kernel


right("one_use relu values", one_use, "linear_rms_head_relu_values", **ALL)
right("one_use", partial(one_use, relu=False), "linear_rms_head", bias="hqk", keep="bhqk")
wrongs(one_use, "one_use", "linear_rms_head_relu_values", ALL, [
    ("norm_after_each_head", "the sum of squares runs over the heads so far only (a prefix sum)", "forward (2)"),
    ("relu_forgotten", "no relu on the values in the forward", "forward (9)"),
    ("relu_on_output", "relu acts on the output, not on the values", "forward (9)"),
    ("relu_backward_forgotten", "dv lacks relu's slope", "backward (9)"),
    ("relu_backward_by_gradient", "dv is masked by its own sign, not by that of v", "backward (9)"),
    ("da_from_raw_values", "the code's gradient is made from the values before relu", "backward (9)"),
    ("norm_squared", "RMSHead's backward divides by the norm twice", "backward (2)"),
    ("rms_backward_skipped", "RMSHead has no backward", "backward (2)"),
    ("heads_reversed_in_dk", "dk's heads are in reversed order", "backward (1)"),
])


# 22. two uses, any normaliser: tiles where keys are independent, whole rows under a softmax

def two_uses(bug=None, normaliser="none", relu=True):
    def kernel(q, k, v, do, bias=None, keep=None, dropout=None):
        B, N, H, D = q.shape
        s = np.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(D)
        if bias is not None:
            s = s + bias
        order = normaliser.split("+")
        if bug == "order_swapped":
            order = order[::-1]
        tape, x = [], s
        K = None if keep is None else np.broadcast_to(keep, s.shape)
        for step in order:
            if step == "softmax":
                x = x if K is None or bug == "softmax_sees_masked" else np.where(K, x, -np.inf)
                axis = 1 if bug == "softmax_over_heads" else -1
                top = x.max(axis, keepdims=True)
                e = np.exp(x - np.where(top == -np.inf, 0, top))
                t = e.sum(axis, keepdims=True)
                x = e / np.where(t == 0, 1, t)
                if bug == "softmax_sees_masked" and K is not None:
                    x = x * K
                tape.append((x,))
            elif step == "rms":
                x = x if K is None else x * K
                rho = 1 / np.sqrt((x * x).mean(1, keepdims=True) + (1e-5 if bug == "other_epsilon" else 1e-6))
                if bug == "rms_over_all_keys":
                    rho = 1 / np.sqrt((x * x).mean((1, 3), keepdims=True) + 1e-6)
                x = x * rho
                tape.append((x, rho))
            else:
                x = x if K is None else x * K
                tape.append(())
        a = x
        c = a if dropout is None else a * dropout
        z = np.einsum("bhqk,bkhe->bqke", c, v)
        g = np.maximum(z, 0) if relu else z
        if bug == "absolute_value":
            g = np.abs(z)
        if bug == "relu_left_in":
            g = np.maximum(z, 0)
        o = np.einsum("bhqk,bqke->bqhe", c, g)
        gg = np.maximum(z, 0) if relu else z
        dg = np.einsum("bhqk,bqhe->bqke", c, do)
        dz = dg * (z > 0) if relu or bug == "relu_backward_left_in" else dg
        if bug == "slope_of_output":
            dz = dg * (np.einsum("bqhe->bqe", o)[:, :, None] > 0)
        dc = np.einsum("bqhe,bqke->bhqk", do, gg) + np.einsum("bqke,bkhe->bhqk", dz, v)
        if bug == "inner_use_times_two":
            dc = 2 * np.einsum("bqhe,bqke->bhqk", do, gg)
        dv = np.einsum("bhqk,bqke->bkhe", c, dz)
        da = dc if dropout is None else dc * dropout
        for step, saved in zip(order[::-1], tape[::-1]):
            if step == "softmax":
                p = saved[0]
                if bug == "softmax_backward_of_final_code":
                    p = a
                da = p * (da - (p * da).sum(-1, keepdims=True))
                if bug == "softmax_backward_twice":
                    da = p * (da - (p * da).sum(-1, keepdims=True))
            elif step == "rms":
                y, rho = saved
                if bug == "rms_backward_of_final_code":
                    y = a
                da = rho * (da - y * (y * da).mean(1, keepdims=True))
                da = da if K is None or bug == "rms_keep_missing" else da * K
            else:
                da = da if K is None or bug == "keep_missing_backward" else da * K
            if bug == "first_step_only":
                break
        dq = np.einsum("bhqk,bkhd->bqhd", da, k) / math.sqrt(D)
        dk = np.einsum("bhqk,bqhd->bkhd", da, q) / math.sqrt(D)
        if bug == "dk_mean_over_queries":
            dk = dk / N
        return (o, dq, dk, dv) + (() if bias is None else (sum_to(da, bias.shape),))
    return kernel


right("two_uses none", two_uses, "hyla_no_rms_head", **ALL)
right("two_uses none identity", partial(two_uses, relu=False), "hyla_no_nonlinearity_no_rms_head", bias="hqk", keep="bhqk")
right("two_uses rms identity", partial(two_uses, normaliser="rms", relu=False), "hyla_no_nonlinearity", **ALL)
right("two_uses softmax", partial(two_uses, normaliser="softmax"), "hyla_softmax_for_rms_head", **ALL)
right("two_uses softmax rms", partial(two_uses, normaliser="softmax+rms"), "hyla_and_softmax", **ALL)
right("two_uses rms softmax", partial(two_uses, normaliser="rms+softmax"), "hyla_and_softmax_reversed", **ALL)
wrongs(two_uses, "two_uses_none", "hyla_no_rms_head", ALL, [
    ("absolute_value", "the absolute value in place of relu (forward)", "forward (5)"),
    ("keep_missing_backward", "ds is not masked", "backward (2)"),
    ("slope_of_output", "relu's slope is taken from the output's sign, not from z", "backward (5)"),
    ("dk_mean_over_queries", "dk is a mean over queries", "backward (1)"),
])
wrongs(two_uses, "two_uses_identity", "hyla_no_nonlinearity_no_rms_head", ALL, [
    ("relu_left_in", "relu was left in the forward", "forward (5)"),
    ("relu_backward_left_in", "relu's slope was left in the backward", "backward (5)"),
    ("inner_use_times_two", "twice the outer use's gradient, as if both uses were the same", "backward (4)"),
], relu=False)
wrongs(two_uses, "two_uses_rms_identity", "hyla_no_nonlinearity", ALL, [
    ("other_epsilon", "epsilon of RMSHead is 1e-5", "forward (2)"),
    ("rms_keep_missing", "ds is not masked", "backward (2)"),
], normaliser="rms", relu=False)
wrongs(two_uses, "two_uses_softmax", "hyla_softmax_for_rms_head", ALL, [
    ("softmax_sees_masked", "masked keys are in the softmax's sum, and set to 0 behind it", "forward (2)"),
    ("softmax_over_heads", "the softmax runs over heads, as RMSHead does", "forward (2)", dict(keep=None)),
    ("softmax_backward_twice", "the softmax's backward is applied twice", "backward (2)"),
], normaliser="softmax")
wrongs(two_uses, "two_uses_softmax_rms", "hyla_and_softmax", ALL, [
    ("order_swapped", "RMSHead before softmax, in both passes", "forward (2), backward (2)"),
    ("softmax_backward_of_final_code", "the softmax's backward uses the code behind RMSHead, not the softmax's output", "backward (2)"),
    ("first_step_only", "the backward undoes RMSHead but not the softmax", "backward (2)"),
    ("rms_over_all_keys", "the mean of squares is over heads and keys (forward)", "forward (2)"),
], normaliser="softmax+rms")
wrongs(two_uses, "two_uses_rms_softmax", "hyla_and_softmax_reversed", ALL, [
    ("order_swapped", "softmax before RMSHead, in both passes", "forward (2), backward (2)"),
    ("rms_backward_of_final_code", "RMSHead's backward uses the final code, not its own output", "backward (2)"),
], normaliser="rms+softmax")


# 23. deep value network, head by head

def deep(bug=None):
    def kernel(q, k, v, wv2, do, bias=None, keep=None, dropout=None):
        B, N, H, D = q.shape
        s = np.einsum("bqhd,bkhd->bhqk", q / math.sqrt(D), k)
        s = s if bias is None else s + bias
        s = s if keep is None else s * keep
        rho = 1 / np.sqrt((s * s).mean(1, keepdims=True) + 1e-6)
        a = s * rho
        c = a if dropout is None else a * dropout
        z = sum(c[:, h, :, :, None] * v[:, None, :, h] for h in range(H))
        g = np.maximum(z, 0)
        w = wv2.swapaxes(1, 2) if bug == "wv2_transposed" else wv2
        z2 = sum(c[:, h, :, :, None] * (g @ w[h]) for h in range(H))
        if bug == "second_layer_uncoded":
            z2 = g @ w.sum(0)
        if bug == "second_layer_from_z":
            z2 = sum(c[:, h, :, :, None] * (z @ w[h]) for h in range(H))
        if bug == "second_layer_undropped":
            z2 = sum(a[:, h, :, :, None] * (g @ w[h]) for h in range(H))
        g2 = z2 if bug == "second_relu_missing" else np.maximum(z2, 0)
        if bug == "residual":
            g2 = g2 + g
        o = np.stack([np.einsum("bqk,bqke->bqe", c[:, h], g2) for h in range(H)], 2)
        g2 = np.maximum(z2, 0)
        dg2 = sum(c[:, h, :, :, None] * do[:, :, h, None] for h in range(H))
        dz2 = dg2 * (z2 > 0)
        if bug == "second_slope_missing":
            dz2 = dg2
        dg, dc, dw = 0, np.zeros_like(a), np.zeros_like(wv2)
        for h in range(H):
            dc[:, h] += np.einsum("bqe,bqke->bqk", do[:, :, h], g2)
            if bug != "middle_use_missing":
                dc[:, h] += np.einsum("bqkf,bqkf->bqk", dz2, g @ wv2[h])
            dg = dg + c[:, h, :, :, None] * (dz2 @ (wv2[h] if bug == "dg_untransposed" else wv2[h].T))
            dw[h] = np.einsum("bqke,bqkf->ef", g * c[:, h, :, :, None], dz2)
            if bug == "dw_uncoded":
                dw[h] = np.einsum("bqke,bqkf->ef", g, dz2)
            if bug == "dw_from_z":
                dw[h] = np.einsum("bqke,bqkf->ef", z * c[:, h, :, :, None], dz2)
            if bug == "dw_transposed":
                dw[h] = dw[h].T
            if bug == "dw_undropped":
                dw[h] = np.einsum("bqke,bqkf->ef", g * a[:, h, :, :, None], dz2)
        if bug == "dw_mean_over_batch":
            dw /= B
        dz = dg * (z > 0)
        if bug == "first_slope_of_second":
            dz = dg * (z2 > 0)
        dv = np.zeros_like(v)
        for h in range(H):
            dc[:, h] += np.einsum("bqke,bke->bqk", dz, v[:, :, h])
            dv[:, :, h] = np.einsum("bqk,bqke->bke", c[:, h], dz)
        da = dc if dropout is None else dc * dropout
        ds = rho * (da - a * (a * da).mean(1, keepdims=True))
        ds = ds if keep is None else ds * keep
        dq = np.einsum("bhqk,bkhd->bqhd", ds, k) / math.sqrt(D)
        dk = np.einsum("bhqk,bqhd->bkhd", ds, q) / math.sqrt(D)
        return (o, dq, dk, dv) + (() if bias is None else (sum_to(ds, bias.shape),)) + (dw,)
    return kernel


right("deep", deep, "hyla_deep", **ALL)
right("deep no options", deep, "hyla_deep")
wrongs(deep, "deep", "hyla_deep", ALL, [
    ("wv2_transposed", "wv2 is used transposed in the forward", "forward (6)"),
    ("second_layer_uncoded", "the second layer's maps are summed without the code", "forward (7)"),
    ("second_layer_from_z", "the second layer takes z before relu", "forward (5), forward (6)"),
    ("second_layer_undropped", "the second layer's code is not dropped (forward)", "forward (7), forward (3)"),
    ("second_relu_missing", "the second relu is missing in the forward", "forward (8)"),
    ("residual", "the first hidden layer is added to the second (a residual)", "forward (8), forward (9)"),
    ("second_slope_missing", "the second relu's slope is missing in the backward", "backward (8)"),
    ("middle_use_missing", "the code's gradient lacks its middle use", "backward (7)"),
    ("dg_untransposed", "dg is made with wv2, not its transpose", "backward (6)"),
    ("dw_uncoded", "dwv2 lacks the code", "backward (7), backward (6)"),
    ("dw_from_z", "dwv2 is made from z before relu", "backward (6), backward (5)"),
    ("dw_transposed", "dwv2 is transposed", "backward (6)"),
    ("dw_undropped", "dwv2 is made with the code before dropout", "backward (7), backward (6), backward (3)"),
    ("dw_mean_over_batch", "dwv2 is averaged over the batch", "backward (6)"),
    ("first_slope_of_second", "the first relu's slope is taken at z2", "backward (5)"),
])


# ============================================================================================== compositional attention
# 24. eager, dot scoring, the retrieval keys written out as in the paper

def compose(bug=None):
    def kernel(q, k, v, selector, wr, do, bias=None, keep=None, dropout=None):
        D, C, E = q.shape[-1], selector.shape[-1], v.shape[-1]
        s = np.einsum("bqsd,bksd->bsqk", q, k) / math.sqrt(D)
        if bias is not None:
            s = s + bias
        if keep is not None:
            s = np.where(keep, s, -np.inf)
        top = s.max(-1, keepdims=True)
        a = np.exp(s - np.where(top == -np.inf, 0, top))
        n = a.sum(-1, keepdims=True)
        a = a / np.where(n == 0, 1, n)
        c = a if dropout is None else a * dropout
        t = np.einsum("bsqk,bkre->bqsre", c, v)
        rk = t @ wr                                                     # (b, q, s, r, c)
        scale = 1 / math.sqrt(C)
        if bug == "score_scale_of_values":
            scale = 1 / math.sqrt(E)
        if bug == "score_scale_of_search":
            scale = 1 / math.sqrt(D)
        if bug == "score_unscaled":
            scale = 1
        if bug == "keys_from_undropped":
            rk = np.einsum("bsqk,bkre->bqsre", a, v) @ wr
        if bug == "keys_from_mean_over_searches":
            rk = np.broadcast_to(rk.mean(2, keepdims=True), rk.shape)
        logits = np.einsum("bqsc,bqsrc->bqsr", selector, rk) * scale
        axis = 2 if bug == "softmax_over_searches" else -1
        g = np.exp(logits - logits.max(axis, keepdims=True))
        g /= g.sum(axis, keepdims=True)
        o = np.einsum("bqsr,bqsre->bqse", g, t)
        if bug == "value_scores_sigmoid":
            g2 = 1 / (1 + np.exp(-logits))
            o = np.einsum("bqsr,bqsre->bqse", g2, t)
        # backward
        dg = np.einsum("bqse,bqsre->bqsr", do, t)
        dl = g * (dg - (g * dg).sum(-1, keepdims=True))
        if bug == "value_softmax_without_sum":
            dl = g * dg
        if bug == "value_softmax_sum_over_searches":
            dl = g * (dg - (g * dg).sum(2, keepdims=True))
        if bug == "value_softmax_mean":
            dl = g * (dg - (g * dg).mean(-1, keepdims=True))
        dl = dl * scale
        dsel = np.einsum("bqsr,bqsrc->bqsc", dl, t @ wr)
        if bug == "dselector_unscaled":
            dsel = dsel / scale
        drk = np.einsum("bqsr,bqsc->bqsrc", dl, selector)
        dwr = np.einsum("bqsre,bqsrc->ec", t, drk)
        if bug == "dwr_unscaled":
            dwr = dwr / scale
        if bug == "dwr_gated":
            dwr = np.einsum("bqsre,bqsrc->ec", t * g[..., None], drk)
        if bug == "dwr_of_first_search":
            dwr = np.einsum("bqre,bqrc->ec", t[:, :, 0], drk[:, :, 0])
        dt = drk @ wr.T + g[..., None] * do[..., None, :]
        if bug == "dt_without_scores":
            dt = g[..., None] * do[..., None, :]
        if bug == "dt_without_output":
            dt = drk @ wr.T
        if bug == "dt_ungated":
            dt = drk @ wr.T + np.broadcast_to(do[..., None, :], t.shape)
        dv = np.einsum("bsqk,bqsre->bkre", c, dt)
        if bug == "dv_without_scores":
            dv = np.einsum("bsqk,bqsre->bkre", c, g[..., None] * do[..., None, :])
        if bug == "dv_undropped":
            dv = np.einsum("bsqk,bqsre->bkre", a, dt)
        da = np.einsum("bqsre,bkre->bsqk", dt, v)
        if bug == "da_of_first_retrieval":
            da = np.einsum("bqse,bke->bsqk", dt[:, :, :, 0], v[:, :, 0])
        if bug == "da_mean_over_retrievals":
            da = da / v.shape[2]
        da = da if dropout is None or bug == "da_undropped" else da * dropout
        ds = a * (da - (a * da).sum(-1, keepdims=True))
        if bug == "delta_from_output":                                  # FlashAttention's delta: fails with two softmaxes
            ds = a * (da - (do * o).sum(-1).transpose(0, 2, 1)[..., None])
        dq = np.einsum("bsqk,bksd->bqsd", ds, k) / math.sqrt(D)
        dk = np.einsum("bsqk,bqsd->bksd", ds, q) / math.sqrt(D)
        return (o, dq, dk, dv) + (() if bias is None else (sum_to(ds, bias.shape),)) + (dsel, dwr)
    return kernel


right("compose", compose, "compositional", **ALL)
right("compose one search", compose, "compositional", bias="hqk", sizes={"h": 1})
right("compose self, equal widths", compose, "compositional", keep="qk", sizes={"q": 7, "k": 7, "e": 8, "c": 8})
wrongs(compose, "compose", "compositional", ALL, [
    ("score_scale_of_values", "value scores are divided by sqrt(e), not sqrt(c), in both passes", "forward (5), backward (5)"),
    ("score_scale_of_search", "value scores are divided by sqrt(d), in both passes", "forward (5), backward (5)"),
    ("score_unscaled", "value scores are not scaled, in both passes", "forward (5), backward (5)"),
    ("keys_from_undropped", "the retrieval keys are made from retrievals without dropout (forward)", "forward (5), forward (3)"),
    ("keys_from_mean_over_searches", "the retrieval keys are averaged over searches (forward)", "forward (5)"),
    ("softmax_over_searches", "the value scores' softmax runs over searches, not retrievals (forward)", "forward (6)"),
    ("value_scores_sigmoid", "a sigmoid for the softmax of the value scores (output only)", "forward (6)"),
    ("value_softmax_without_sum", "the value softmax's backward lacks its sum", "backward (6)"),
    ("value_softmax_sum_over_searches", "the value softmax's backward sums over searches", "backward (6)"),
    ("value_softmax_mean", "the value softmax's backward has a mean, not a sum", "backward (6)"),
    ("dselector_unscaled", "dselector lacks 1 / sqrt(c)", "backward (5)"),
    ("dwr_unscaled", "dwr lacks 1 / sqrt(c)", "backward (5)"),
    ("dwr_gated", "dwr is made from the gated retrievals g t", "backward (5)"),
    ("dwr_of_first_search", "dwr has the first search only", "backward (5)"),
    ("dt_without_scores", "the retrievals' gradient lacks the path through the value scores", "backward (5)"),
    ("dt_without_output", "the retrievals' gradient lacks the path of the output", "backward (7)"),
    ("dt_ungated", "the output's path is not multiplied by the value scores", "backward (7)"),
    ("dv_without_scores", "dv lacks the path through the value scores", "backward (4)"),
    ("dv_undropped", "dv is made from the weights before dropout", "backward (4), backward (3)"),
    ("da_of_first_retrieval", "the search weights' gradient has the first retrieval only", "backward (4)"),
    ("da_mean_over_retrievals", "the search weights' gradient is a mean over retrievals", "backward (4)"),
    ("da_undropped", "the search weights' gradient is not multiplied by dropout", "backward (3)"),
    ("delta_from_output", "the search softmax's delta is made from o do, which leaves out the value scores' path", "backward (2)"),
])


# 25. search by search with tiles of keys, online softmax; the selector is mapped first (as the page does)

def compose_tiles(bug=None, tile=3):
    def kernel(q, k, v, selector, wr, do):                              # q, k, o, selector (b, s, t, .); v (b, r, t, e)
        B, S, N, D = q.shape
        R, M, E = v.shape[1], v.shape[2], v.shape[3]
        C = selector.shape[-1]
        o, dq, dk = np.zeros((B, S, N, E), q.dtype), np.zeros_like(q), np.zeros_like(k)
        dv, dsel, dwr = np.zeros_like(v), np.zeros_like(selector), np.zeros_like(wr)
        for b in range(B):
            for s in range(S):
                m = np.full((N, 1), -np.inf, q.dtype)
                l, acc = np.zeros((N, 1), q.dtype), np.zeros((R, N, E), q.dtype)
                for j in range(0, M, tile):
                    x = q[b, s] @ k[b, s, j:j + tile].T * D ** -0.5
                    new = np.maximum(m, x.max(1, keepdims=True))
                    p, alpha = np.exp(x - new), np.exp(m - new)
                    l = l * alpha + p.sum(1, keepdims=True)
                    if bug == "rescale_first_retrieval":
                        acc[0] *= alpha
                        acc = acc + p @ v[b, :, j:j + tile]
                    else:
                        acc = acc * alpha + p @ v[b, :, j:j + tile]
                    m = new
                t = acc / l                                             # (r, q, e)
                if bug == "scores_before_division":
                    raw = acc
                else:
                    raw = t
                u = selector[b, s] @ wr.T * C ** -0.5                   # (q, e)
                if bug == "selector_of_search_0":
                    u = selector[b, 0] @ wr.T * C ** -0.5
                logits = np.einsum("qe,rqe->qr", u, raw)
                g = np.exp(logits - logits.max(1, keepdims=True))
                g /= g.sum(1, keepdims=True)
                o[b, s] = np.einsum("qr,rqe->qe", g, t)
                G = do[b, s]
                dg = np.einsum("qe,rqe->qr", G, t)
                dl = g * (dg - (G * o[b, s]).sum(1, keepdims=True))     # sum_r g dg = do . o
                if bug == "sum_taken_from_selector":
                    dl = g * (dg - (u * o[b, s]).sum(1, keepdims=True))
                du = np.einsum("qr,rqe->qe", dl, t) * C ** -0.5
                dsel[b, s] = du @ wr
                if bug == "dwr_per_search":
                    dwr = dwr if s < S - 1 else dwr + du.T @ selector[b, s]
                else:
                    dwr += du.T @ selector[b, s]
                dt = dl.T[:, :, None] * u + g.T[:, :, None] * G
                if bug == "dt_with_raw_selector" and C == E:
                    dt = dl.T[:, :, None] * selector[b, s] * C ** -0.5 + g.T[:, :, None] * G
                delta = (dt * t).sum((0, 2))[:, None]
                if bug == "delta_per_retrieval":
                    delta = (dt[0] * t[0]).sum(1)[:, None]
                for j in range(0, M, tile):
                    a = np.exp(q[b, s] @ k[b, s, j:j + tile].T * D ** -0.5 - m) / l
                    dv[b, :, j:j + tile] += np.einsum("qk,rqe->rke", a, dt)
                    da = np.einsum("rqe,rke->qk", dt, v[b, :, j:j + tile])
                    ds = a * (da - delta) * D ** -0.5
                    dq[b, s] += ds @ k[b, s, j:j + tile]
                    dk[b, s, j:j + tile] += ds.T @ q[b, s]
                if bug == "dv_of_last_search" and s < S - 1:
                    dv[b] = 0
        return {"o": o, "dq": dq, "dk": dk, "dv": dv, "dselector": dsel, "dwr": dwr}
    return kernel


right("compose_tiles", compose_tiles, "compositional", layout="bhtd")
wrongs(compose_tiles, "compose_tiles", "compositional", dict(layout="bhtd"), [
    ("rescale_first_retrieval", "the online softmax rescales the first retrieval's accumulator only", "forward (4), forward (2)"),
    ("scores_before_division", "the value scores are made from retrievals before they are divided by the softmax's sum", "forward (5)"),
    ("selector_of_search_0", "every search uses the selector of search 0 (forward, and where u is used again)", "forward (5), backward (5)"),
    ("sum_taken_from_selector", "the value softmax's sum is made from the selector, not from do", "backward (6)"),
    ("dwr_per_search", "dwr has the last search only", "backward (5)"),
    ("dt_with_raw_selector", "the retrievals' gradient takes the selector without wr (fits at c = e)", "backward (5)",
     dict(sizes={"c": 8, "e": 8})),
    ("delta_per_retrieval", "the search softmax's delta is the first retrieval's alone", "backward (2)"),
    ("dv_of_last_search", "dv has the last search only", "backward (4)"),
])


# 26. linear and nonlinear scoring

def compose_mlp(bug=None, hidden=True):
    def kernel(q, k, v, selector, *score, do, bias=None, keep=None):
        D = q.shape[-1]
        s = np.einsum("bqsd,bksd->bsqk", q * D ** -0.5, k)
        s = s if bias is None else s + bias
        s = s if keep is None else np.where(keep, s, -np.inf)
        top = s.max(-1, keepdims=True)
        e = np.exp(s - np.where(top == -np.inf, 0, top))
        n = e.sum(-1, keepdims=True)
        a = e / np.where(n == 0, 1, n)
        t = np.einsum("bsqk,bkre->bqsre", a, v)
        if hidden:
            wr, wc, br, w2, b2 = score
            z = t @ wr + (selector @ wc)[:, :, :, None] + br
            if bug == "br_missing":
                z = z - br
            if bug == "selector_map_missing":
                z = t @ wr + br
            h = np.maximum(z, 0)
            if bug == "tanh_for_relu":
                h = np.tanh(z)
            logits = h @ w2 + b2
            if bug == "logits_scaled":
                logits = logits / math.sqrt(w2.shape[0])
        else:
            wr, wc, br = score
            logits = t @ wr + (selector @ wc)[..., None] + br
            if bug == "logits_scaled":
                logits = logits / math.sqrt(wr.shape[0])
        g = np.exp(logits - logits.max(-1, keepdims=True))
        g = g / g.sum(-1, keepdims=True)
        o = np.einsum("bqsr,bqsre->bqse", g, t)
        dg = np.einsum("bqse,bqsre->bqsr", do, t)
        dl = g * (dg - (g * dg).sum(-1, keepdims=True))
        if hidden:
            db2 = dl.sum().reshape(1)
            dw2 = np.einsum("bqsrf,bqsr->f", z if bug == "dw2_from_z" else h, dl)
            dz = dl[..., None] * w2 * (z > 0)
            if bug == "slope_missing":
                dz = dl[..., None] * w2
            if bug == "w2_missing_in_dz":
                dz = dl[..., None] * (z > 0)
            dsel = dz.sum(3) @ wc.T
            if bug == "dselector_of_first_retrieval":
                dsel = dz[:, :, :, 0] @ wc.T
            dwr = np.einsum("bqsre,bqsrf->ef", t, dz)
            dwc = np.einsum("bqsc,bqsrf->cf", selector, dz)
            dbr = dz.sum((0, 1, 2, 3))
            if bug == "dbr_mean":
                dbr = dz.mean(3).sum((0, 1, 2))
            if bug == "dbr_with_activation":
                dbr = (dl[..., None] * h).sum((0, 1, 2, 3))
            dt = dz @ wr.T
            dscore = (dwr, dwc, dbr, dw2, db2)
        else:
            d = dl
            if bug == "dwc_before_softmax":
                d = dg
            dsel = d.sum(-1)[..., None] * wc
            dwr = np.einsum("bqsre,bqsr->e", t, dl)
            dwc = np.einsum("bqsc,bqs->c", selector, d.sum(-1))
            dt = dl[..., None] * wr
            if bug == "dwr_from_values":
                dwr = np.einsum("bkre,bqsr->e", v, dl)
            if bug == "dt_from_dg":
                dt = dg[..., None] * wr
            if bug == "dselector_of_output":
                dsel = np.einsum("bqsr,bqsr->bqs", g, dl)[..., None] * wc
            dscore = (dwr, dwc, d.sum().reshape(1))
        dt = dt + g[..., None] * do[..., None, :]
        dv = np.einsum("bsqk,bqsre->bkre", a, dt)
        da = np.einsum("bqsre,bkre->bsqk", dt, v)
        ds = a * (da - (a * da).sum(-1, keepdims=True))
        dq = np.einsum("bsqk,bksd->bqsd", ds, k) * D ** -0.5
        dk = np.einsum("bsqk,bqsd->bksd", ds, q) * D ** -0.5
        return (o, dq, dk, dv) + (() if bias is None else (sum_to(ds, bias.shape),)) + (dsel, *dscore)
    return kernel


right("compose_mlp nonlinear", compose_mlp, "compositional_nonlinear", bias="bhqk", keep="bhqk")
right("compose_mlp linear", partial(compose_mlp, hidden=False), "compositional_linear", bias="hqk")
wrongs(compose_mlp, "compose_nonlinear", "compositional_nonlinear", dict(bias="bhqk"), [
    ("br_missing", "the hidden layer lacks br in the forward", "forward (5)"),
    ("selector_map_missing", "the hidden layer lacks the selector's part (forward, and where z is used again)", "forward (5)"),
    ("tanh_for_relu", "tanh in place of relu (forward, and in dw2)", "forward (5)"),
    ("logits_scaled", "the logits are divided by sqrt(f)", "forward (5)"),
    ("dw2_from_z", "dw2 is made from z before relu", "backward (5)"),
    ("slope_missing", "relu's slope is missing", "backward (5)"),
    ("w2_missing_in_dz", "dz lacks w2", "backward (5)"),
    ("dselector_of_first_retrieval", "dselector has the first retrieval's part only", "backward (5)"),
    ("dbr_mean", "dbr is a mean over retrievals", "backward (5)"),
    ("dbr_with_activation", "dbr is made from h dl (as dw2), not from dz", "backward (5)"),
])
wrongs(compose_mlp, "compose_linear", "compositional_linear", dict(bias="bhqk"), [
    ("logits_scaled", "the logits are divided by sqrt(e)", "forward (5)"),
    ("dwc_before_softmax", "dwc, dselector and dbr are made from the gradient before the value softmax's backward", "backward (5), backward (6)"),
    ("dwr_from_values", "dwr is made from the values of all keys, not from the retrievals", "backward (5)"),
    ("dt_from_dg", "the retrievals' gradient through the scores is made from dg, not dl", "backward (5), backward (6)"),
    ("dselector_of_output", "dselector sums g dl over retrievals, not dl", "backward (5)"),
], hidden=False)


# ============================================================================================ sliding-dilated attention
# 27. keys gathered by an index (b, q, w), scattered with add.at

def gather(bug=None):
    def kernel(q, k, v, offset_bias, do, bias=None, keep=None, dropout=None):
        B, N, H, D = q.shape
        M, W = k.shape[1], offset_bias.shape[1]
        step = 1 if bug == "dilation_1" else 3 if bug == "dilation_3" else 2
        pos = np.arange(N) + M - N
        if bug == "queries_first":
            pos = np.arange(N)
        w = np.arange(W)
        if bug == "window_behind_itself":
            w = w + 1
        if bug == "offsets_reversed":
            w = w[::-1]
        n = pos[:, None] - step * w                                     # (q, w)
        there = n >= 0
        if bug == "first_key_unreachable":
            there = n > 0
        at = np.where(there, n, 0)
        if bug == "wraps_around":                                       # a negative index of NumPy is one from the end
            there, at = np.ones_like(there), n % M
        if bug == "clamped":
            there, at = np.ones_like(there), np.maximum(n, 0)
        kk, vv = k[:, at], v[:, at]                                     # (b, q, w, h, d)
        s = np.einsum("bqhd,bqwhd->bhqw", q, kk) / math.sqrt(D)
        if bug == "offset_bias_scaled":
            s = s + offset_bias[:, None] / math.sqrt(D)
        elif bug == "offset_bias_reversed":
            s = s + offset_bias[:, None, ::-1]
        elif bug == "offset_bias_of_head_0":
            s = s + offset_bias[:1, None]
        elif bug != "offset_bias_missing":
            s = s + offset_bias[:, None]
        if bias is not None:
            s = s + bias
        seen = np.broadcast_to(there if keep is None else there & keep, s.shape)
        if bug == "missing_key_scores_zero":                            # a hole scores 0 and gives a zero value
            hole = np.broadcast_to(~there, s.shape)
            s = np.where(hole, 0, s)
            seen = np.broadcast_to(True if keep is None else keep, s.shape)
            vv = vv * there[:, :, None, None]
        s = np.where(seen, s, -np.inf)
        top = s.max(-1, keepdims=True)
        e = np.exp(s - np.where(top == -np.inf, 0, top))
        t = e.sum(-1, keepdims=True)
        a = e / np.where(t == 0, 1, t)
        c = a if dropout is None else a * dropout
        o = np.einsum("bhqw,bqwhe->bqhe", c, vv)
        da = np.einsum("bqhe,bqwhe->bhqw", do, vv)
        if bug == "missing_key_scores_zero":
            vv = v[:, at]
        da = da if dropout is None or bug == "da_undropped" else da * dropout
        ds = a * (da - (a * da).sum(-1, keepdims=True))
        if bug == "delta_over_heads":
            ds = a * (da - (a * da).sum((1, 3), keepdims=True))
        dkk = np.einsum("bhqw,bqhd->bqwhd", ds, q) / math.sqrt(D)
        dvv = np.einsum("bhqw,bqhe->bqwhe", c, do)
        dk, dv = np.zeros_like(k), np.zeros_like(v)
        if bug == "scatter_without_accumulation":                       # dk[:, at] += ... keeps one of several
            dk[:, at] += dkk
            dv[:, at] += dvv
        else:
            for j in range(W):
                np.add.at(dk, (slice(None), at[:, j]), dkk[:, :, j] * there[:, j, None, None])
                to = at[:, j] if bug != "dv_to_query_place" else np.where(there[:, j], pos, 0)
                np.add.at(dv, (slice(None), to), dvv[:, :, j] * there[:, j, None, None])
        if bug == "dk_of_first_offset_only":
            dk = np.zeros_like(k)
            np.add.at(dk, (slice(None), at[:, 0]), dkk[:, :, 0])
        dq = np.einsum("bhqw,bqwhd->bqhd", ds, kk) / math.sqrt(D)
        dr = ds.sum((0, 2))
        if bug == "doffset_mean_over_queries":
            dr = ds.mean(2).sum(0)
        if bug == "doffset_of_first_sequence":
            dr = ds[0].sum(1)
        if bug == "doffset_scaled":
            dr = dr / math.sqrt(D)
        if bug == "doffset_reversed":
            dr = dr[:, ::-1]
        return (o, dq, dk, dv) + (() if bias is None else (sum_to(ds, bias.shape),)) + (dr,)
    return kernel


SALL = dict(bias="bhqw", keep="bhqw", dropout="bhqw")
right("gather", gather, "sliding_dilated", **SALL)
right("gather as many queries as keys", gather, "sliding_dilated", sizes={"q": 9, "k": 9, "w": 4})
wrongs(gather, "gather", "sliding_dilated", SALL, [
    ("dilation_1", "the keys are 1 apart, not 2 (both passes)", "forward (1), forward (6)"),
    ("dilation_3", "the keys are 3 apart, not 2 (both passes)", "forward (1), forward (6)"),
    ("queries_first", "queries stand at the first positions, not the last (both passes)", "forward (1), forward (6)"),
    ("window_behind_itself", "offsets start at 1: no query sees itself (both passes)", "forward (1), forward (6)"),
    ("offsets_reversed", "offset j is the farthest first (both passes)", "forward (1), forward (6), forward (2)"),
    ("first_key_unreachable", "key 0 counts as missing (n > 0)", "forward (1), forward (4), forward (6)"),
    ("wraps_around", "missing keys wrap around to the last ones (both passes)", "forward (1), forward (4), forward (6)"),
    ("clamped", "missing keys are clamped to key 0 (both passes)", "forward (1), forward (4), forward (6)"),
    ("offset_bias_scaled", "the offset bias is divided by sqrt(d) too (forward)", "forward (2)"),
    ("offset_bias_reversed", "the offset bias is applied in reversed order (forward)", "forward (2)"),
    ("offset_bias_of_head_0", "every head takes the offset bias of head 0 (forward)", "forward (2)"),
    ("offset_bias_missing", "the offset bias is not added (forward)", "forward (2)"),
    ("missing_key_scores_zero", "a missing key scores 0 and counts in the softmax, its value being 0", "forward (4), forward (1)"),
    ("da_undropped", "the gradient of the weights is not multiplied by dropout", "backward (5)"),
    ("delta_over_heads", "delta is summed over heads too", "backward (4)"),
    ("scatter_without_accumulation", "dk and dv are scattered with fancy-index +=, which keeps one of several", "backward (6), backward (1)"),
    ("dv_to_query_place", "dv is added at the query's own place", "backward (6)"),
    ("dk_of_first_offset_only", "dk has offset 0 only", "backward (1)"),
    ("doffset_mean_over_queries", "doffset_bias is a mean over queries", "backward (2)"),
    ("doffset_of_first_sequence", "doffset_bias has the first sequence only", "backward (2)"),
    ("doffset_scaled", "doffset_bias is divided by sqrt(d)", "backward (2)"),
    ("doffset_reversed", "doffset_bias is in reversed order of offsets", "backward (2)"),
])


# 28. T x T with a banded mask; the offset bias spread over the band

def dense_band(q, k, v, offset_bias, do, keep=None):
    B, N, H, D = q.shape
    M, W = k.shape[1], offset_bias.shape[1]
    dist = (np.arange(N) + M - N)[:, None] - np.arange(M)
    inside = (dist >= 0) & (dist % 2 == 0) & (dist < 2 * W)
    w = np.where(inside, dist // 2, 0)
    s = q.transpose(0, 2, 1, 3) @ k.transpose(0, 2, 3, 1) / math.sqrt(D) + offset_bias[:, w]
    if keep is not None:
        wide = np.broadcast_to(keep, (B, H, N, W))
        inside = inside & np.take_along_axis(wide, np.broadcast_to(w, (B, H, N, M)), 3)
    s = np.where(inside, s, -np.inf)
    top = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(top == -np.inf, 0, top))
    t = e.sum(-1, keepdims=True)
    a = e / np.where(t == 0, 1, t)
    V, G = v.transpose(0, 2, 1, 3), do.transpose(0, 2, 1, 3)
    o = a @ V
    ds = a * (G @ V.swapaxes(-1, -2) - (G * o).sum(-1, keepdims=True))
    dr = np.stack([np.where((dist == 2 * j), ds, 0).sum((0, 2, 3)) for j in range(W)], 1)
    back = lambda x: x.transpose(0, 2, 1, 3)
    return {"o": back(o), "dq": back(ds @ k.transpose(0, 2, 1, 3)) / math.sqrt(D),
            "dk": back(ds.swapaxes(-1, -2) @ q.transpose(0, 2, 1, 3)) / math.sqrt(D),
            "dv": back(a.swapaxes(-1, -2) @ G), "doffset_bias": dr}


right("dense_band", lambda: dense_band, "sliding_dilated")
right("dense_band keep", lambda: dense_band, "sliding_dilated", keep="qw")


# 29. pads written in front of the keys; query by query

def padded_front(bug=None):
    def kernel(q, k, v, offset_bias, pad_k, pad_v, do, bias=None, dropout=None):
        B, N, H, D = q.shape
        M, W, E = k.shape[1], offset_bias.shape[1], v.shape[3]
        front = 2 * (W - 1)
        pk, pv = np.broadcast_to(pad_k, (B, front, H, D)), np.broadcast_to(pad_v, (B, front, H, E))
        if bug == "pads_zero":
            pk, pv = np.zeros_like(pk), np.zeros_like(pv)
        if bug == "pad_value_zero":
            pv = np.zeros_like(pv)
        kk, vv = np.concatenate([pk, k], 1), np.concatenate([pv, v], 1)
        if bug == "one_pad_short":
            kk, vv = np.concatenate([pk, k[:, :1], k], 1)[:, 1:], np.concatenate([pv, v[:, :1], v], 1)[:, 1:]
        o, dq = np.zeros((B, N, H, E), q.dtype), np.zeros_like(q)
        dkk, dvv, dr = np.zeros_like(kk), np.zeros_like(vv), np.zeros_like(offset_bias)
        db = None if bias is None else np.zeros((B, H, N, W), q.dtype)
        wide = lambda x: np.broadcast_to(x, (B, H, N, W))
        for i in range(N):
            last = front + M - N + i
            at = last - 2 * np.arange(W)
            x = np.einsum("bhd,bwhd->bhw", q[:, i], kk[:, at]) * D ** -0.5
            if bug == "pad_score_zero":                                 # the released code's bias of exactly 0 for a mask
                x = np.where(at < front, 0, x)
            x = x + offset_bias
            if bug == "pad_score_without_offset_bias":
                x = np.where(at < front, x - offset_bias, x)
            if bias is not None:
                x = x + wide(bias)[:, :, i]
            if bug == "pads_masked":
                x = np.where(at < front, -np.inf, x)
            e = np.exp(x - x.max(-1, keepdims=True))
            a = e / e.sum(-1, keepdims=True)
            p = 1 if dropout is None else wide(dropout)[:, :, i]
            o[:, i] = np.einsum("bhw,bwhe->bhe", a * p, vv[:, at])
            da = np.einsum("bhe,bwhe->bhw", do[:, i], vv[:, at]) * p
            ds = a * (da - (a * da).sum(-1, keepdims=True))
            if bug == "pads_outside_delta":
                ds = a * (da - (a * da * (at >= front)).sum(-1, keepdims=True))
            dr += ds.sum(0) if bug != "dr_without_pads" else (ds * (at >= front)).sum(0)
            if db is not None:
                db[:, :, i] = ds
            dq[:, i] = np.einsum("bhw,bwhd->bhd", ds * (at >= front) if bug == "dq_without_pads" else ds, kk[:, at]) * D ** -0.5
            dkk[:, at] += np.einsum("bhw,bhd->bwhd", ds, q[:, i]) * D ** -0.5
            if bug == "dv_assigned":
                dvv[:, at] = np.einsum("bhw,bhe->bwhe", a * p, do[:, i])
            else:
                dvv[:, at] += np.einsum("bhw,bhe->bwhe", a * p, do[:, i])
        dpk, dpv = dkk[:, :front].sum((0, 1)), dvv[:, :front].sum((0, 1))
        if bug == "dpad_k_mean":
            dpk = dkk[:, :front].mean(1).sum(0)
        if bug == "dpad_k_unscaled":
            dpk = dpk * D ** 0.5
        if bug == "dpad_of_nearest":
            dpk, dpv = dkk[:, front - 1].sum(0), dvv[:, front - 1].sum(0)
        if bug == "dpad_v_of_first_sequence":
            dpv = dvv[0, :front].sum(0)
        if bug == "gradients_shifted":                                  # cut at the wrong place
            return (o, dq, dkk[:, front - 1:-1], dvv[:, front - 1:-1], *(() if bias is None else (sum_to(db, bias.shape),)), dr, dpk, dpv)
        return (o, dq, dkk[:, front:], dvv[:, front:], *(() if bias is None else (sum_to(db, bias.shape),)), dr, dpk, dpv)
    return kernel


right("padded_front", padded_front, "sliding_dilated_pad", bias="bhqw", dropout="bhqw")
right("padded_front queries at all positions", padded_front, "sliding_dilated_pad", sizes={"q": 7, "k": 7}, bias="h1w")
wrongs(padded_front, "padded_front", "sliding_dilated_pad", dict(bias="bhqw", dropout="bhqw"), [
    ("pads_zero", "zeros stand in front, not the pads (forward, dq)", "forward (1), forward (6)"),
    ("pad_value_zero", "the pad's value is 0 (forward, and the weights' gradient)", "forward (6)"),
    ("one_pad_short", "the place before the first key holds the first key, not the pad", "forward (1), forward (6)"),
    ("pad_score_zero", "a pad's score is 0 before the biases", "forward (1)"),
    ("pad_score_without_offset_bias", "pads have no offset bias (forward)", "forward (2)"),
    ("pads_masked", "pads are masked in the forward", "forward (4)"),
    ("pads_outside_delta", "delta leaves out the pads", "backward (4)"),
    ("dr_without_pads", "doffset_bias leaves out the pads", "backward (2)"),
    ("dq_without_pads", "dq leaves out the pads", "backward (1)"),
    ("dv_assigned", "dv is assigned at each query, not accumulated", "backward (6)"),
    ("dpad_k_mean", "dpad_k is a mean over the places in front", "backward (1)"),
    ("dpad_k_unscaled", "dpad_k lacks 1 / sqrt(d)", "backward (1)"),
    ("dpad_of_nearest", "dpad_k and dpad_v have the nearest place only", "backward (1), backward (6)"),
    ("dpad_v_of_first_sequence", "dpad_v has the first sequence only", "backward (6)"),
    ("gradients_shifted", "dk and dv are cut out one place too early", "backward (1), backward (6)"),
])


# 30. offset by offset with an online softmax, no gather at all; missing keys as slices

def shifted(bug=None):
    def kernel(q, k, v, offset_bias, do, keep=None):                    # bhtd
        B, H, N, D = q.shape
        M, W, E = k.shape[2], offset_bias.shape[1], v.shape[3]
        first = M - N
        m = np.full((B, H, N), -np.inf, q.dtype)
        l, acc = np.zeros((B, H, N), q.dtype), np.zeros((B, H, N, E), q.dtype)
        spans = []
        for j in range(W):
            lo = max(0, 2 * j - first)                                  # first query that has the key
            if bug == "slice_one_short":
                lo = max(0, 2 * j - first + 1) if j else 0
            if lo >= N:
                break
            spans.append((j, slice(lo, N), slice(first + lo - 2 * j, M - 2 * j)))

        def score(j, to, frm):
            s = (q[:, :, to] * k[:, :, frm]).sum(-1) / math.sqrt(D) + offset_bias[:, j, None]
            if keep is not None:
                s = np.where(np.broadcast_to(keep, (B, H, N, W))[:, :, to, j], s, -np.inf)
            return s
        for j, to, frm in spans:
            s = score(j, to, frm)
            new = np.maximum(m[:, :, to], s)
            safe = np.where(new == -np.inf, 0, new)
            alpha, p = np.exp(m[:, :, to] - safe), np.exp(s - safe)
            l[:, :, to] = l[:, :, to] * alpha + p
            if bug == "rescale_missing":
                alpha = np.ones_like(alpha)
            acc[:, :, to] = acc[:, :, to] * alpha[..., None] + p[..., None] * v[:, :, frm]
            m[:, :, to] = new
        total = np.where(l == 0, 1, l)
        o = acc / total[..., None]
        top = np.where(m == -np.inf, 0, m)
        delta = (o * do).sum(-1)
        dq, dk, dv, dr = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v), np.zeros_like(offset_bias)
        for j, to, frm in spans:
            a = np.exp(score(j, to, frm) - top[:, :, to]) / total[:, :, to]
            if bug == "recomputed_without_offset_bias":
                a = np.exp(score(j, to, frm) - offset_bias[:, j, None] - top[:, :, to]) / total[:, :, to]
            ds = a * ((do[:, :, to] * v[:, :, frm]).sum(-1) - delta[:, :, to if bug != "delta_misaligned" else slice(0, to.stop - to.start)])
            dq[:, :, to] += ds[..., None] * k[:, :, frm] / math.sqrt(D)
            if bug == "dk_misaligned":
                frm2 = slice(frm.start - 1, frm.stop - 1) if frm.start else frm
                dk[:, :, frm2] += ds[..., None] * q[:, :, to] / math.sqrt(D)
            else:
                dk[:, :, frm] += ds[..., None] * q[:, :, to] / math.sqrt(D)
            dv[:, :, frm] += a[..., None] * do[:, :, to]
            dr[:, j] = ds.sum((0, 2))
        return o, dq, dk, dv, dr
    return kernel


right("shifted", shifted, "sliding_dilated", layout="bhtd", keep="bhqw")
right("shifted one query", shifted, "sliding_dilated", layout="bhtd", sizes={"q": 1})
wrongs(shifted, "shifted", "sliding_dilated", dict(layout="bhtd"), [
    ("slice_one_short", "each farther offset's slice starts one query late: a query that just reaches key 0 does not (both passes)",
     "forward (1), forward (4), forward (6)"),
    ("rescale_missing", "the accumulator is not rescaled to the new maximum", "forward (6), forward (4)"),
    ("recomputed_without_offset_bias", "the recomputed weights lack the offset bias", "backward (4), backward (2)"),
    ("delta_misaligned", "delta is read from the first queries, not from those of the slice", "backward (4)"),
    ("dk_misaligned", "dk is added one key too early", "backward (1)"),
])
