"""A blind bank of self-attention kernels at equal sizes.

Written from the pages and docs/kernels.md before any run of check.  As many queries as keys, and one width for
queries, keys and values: no mistake here shows in a shape.  Each factory gives a right kernel, and with the name of a
mistake the same kernel with that mistake.  `lines` are the tags of the variant's page.  Where a kernel computes its
weights again in the backward, a mistake in that is put down as backward (3), the weights after dropout, and backward
(2), those of the softmax.
"""
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

CASES = []


@dataclass
class Case:
    name: str
    build: Callable            # () -> kernel
    variant: str               # "softmax", "linear", "hyla", "compositional"
    options: dict              # keyword arguments of diagnose beside dtype: layout, bias, keep, dropout, causal, sizes
    mistake: str               # one plain sentence saying what is wrong; "" for a right kernel
    lines: str                 # tags of the page where it is wrong, e.g. "forward (1)"; "" for a right kernel


def right(name, build, variant, **options):
    CASES.append(Case(name, build, variant, options, "", ""))


def wrongs(factory, prefix, variant, options, table, **settings):
    """One case for each row (bug, mistake, lines[, other options])."""
    for bug, mistake, lines, *other in table:
        CASES.append(Case(f"{prefix}_{bug}", partial(factory, bug, **settings), variant,
                          options | (other[0] if other else {}), mistake, lines))


def sizes(b, t, h, d, **more):
    """Sizes of self-attention: t queries and keys, d features of queries, keys and values."""
    return {"b": b, "q": t, "k": t, "h": h, "d": d, "e": d} | more


def at(b, t, h, d):
    """Other sizes, as a row of a table takes them."""
    return {"sizes": sizes(b, t, h, d)}


def mt(x):
    """The matrix transpose."""
    return x.swapaxes(-1, -2)


def heads(x):
    """(b, t, h, d) <-> (b, h, t, d)."""
    return x.transpose(0, 2, 1, 3)


def times(x, y):
    """x * y, y being an option that may not be given."""
    return x if y is None else x * y


def softmax(s, keep=None, axis=-1):
    """Weights along an axis; 0 where nothing is kept."""
    s = s if keep is None else np.where(keep, s, -np.inf)
    top = s.max(axis=axis, keepdims=True)
    p = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = p.sum(axis=axis, keepdims=True)
    return p / np.where(total == 0, 1, total)


def softmax_backward(a, da, axis=-1):
    return a * (da - (a * da).sum(axis=axis, keepdims=True))


# ---------------------------------------------------------------------------------------- qkv packed as (b, t, 3, h, d)


def packed(bug=None):
    """q, k and v in one array (b, t, 3, h, d), their gradients in another."""
    order = {"unpacked_as_kqv": (1, 0, 2), "unpacked_as_qvk": (0, 2, 1)}.get(bug, (0, 1, 2))
    slots = {"dq_dk_exchanged": (1, 0, 2), "dk_dv_exchanged": (0, 2, 1), "rotated": (1, 2, 0),
             "dv_over_dk": (0, 1, 1)}.get(bug, (0, 1, 2))

    def kernel(q, k, v, do, dropout=None):
        qkv = np.stack([q, k, v], axis=2)
        b, t, _, h, d = qkv.shape
        q, k, v = (heads(qkv[:, :, i]) for i in order)
        do = heads(do)
        a = softmax(q @ mt(k) * d ** -0.5)
        c = times(a, dropout)
        o = c @ v
        ds = softmax_backward(a, times(do @ mt(v), dropout)) * d ** -0.5
        dqkv = np.zeros_like(qkv)
        for slot, grad in zip(slots, (ds @ k, mt(ds) @ q, mt(c) @ do), strict=True):
            dqkv[:, :, slot] = heads(grad)
        if bug == "dv_added_into_dk":
            dqkv[:, :, 1] += heads(mt(c) @ do)
        if bug == "heads_before_three":
            dqkv = np.stack([dqkv[:, :, i] for i in range(3)], axis=3).reshape(b, t, 3, h, d)
        return heads(o), dqkv[:, :, 0], dqkv[:, :, 1], dqkv[:, :, 2]

    return kernel


right("packed_right", packed, "softmax", layout="bthd", sizes=sizes(3, 6, 3, 4))
right("packed_right_dropout", packed, "softmax", layout="bthd", dropout="bhqk", sizes=sizes(2, 7, 3, 5))
wrongs(packed, "packed", "softmax", {"layout": "bthd", "sizes": sizes(2, 6, 3, 4)}, [
    ("unpacked_as_kqv", "The packed array is unpacked as k, q, v, throughout.", "forward (1), backward (1)"),
    ("unpacked_as_qvk", "The packed array is unpacked as q, v, k, throughout.",
     "forward (1), forward (4), backward (4), backward (1)"),
    ("dq_dk_exchanged", "dq is written into the slot of k and dk into the slot of q.", "backward (1)", at(3, 6, 3, 4)),
    ("dk_dv_exchanged", "dk is written into the slot of v and dv into the slot of k.", "backward (1), backward (4)"),
    ("rotated", "dq, dk, dv are written one slot further: dq comes back as dk, dk as dv, dv as dq.",
     "backward (1), backward (4)", {"dropout": "bhqk"}),
    ("dv_over_dk", "dv is written over dk in the slot of k; the slot of v stays zero.", "backward (1), backward (4)"),
    ("dv_added_into_dk", "dv is added into the slot of k too, so dk is dk + dv.", "backward (1)"),
    ("heads_before_three", "The gradients are stacked as (b, t, h, 3, d) and read as (b, t, 3, h, d).",
     "backward (1), backward (4)", at(2, 5, 4, 3)),
])


# ---------------------------------------------------------------------------------------- qkv packed as (3, b, h, t, d)


def packed_first(bug=None):
    """Matrix products written straight into the slots of dqkv (3, b, h, t, d); the scale put on at the end."""
    def kernel(q, k, v, do, keep=None, dropout=None):
        qkv = np.stack([q, k, v])
        q, k, v = qkv
        scale = 1 / math.sqrt(qkv.shape[-1])
        s = q @ mt(k) * scale
        a = softmax(s, keep)
        c = times(a, dropout)
        o = c @ v
        da = do @ mt(v)
        da = times(da, dropout)
        if bug == "one_buffer_for_da_and_a":
            np.multiply(a, da, out=a)
            ds = a * (da - a.sum(-1, keepdims=True))
        else:
            ds = softmax_backward(a, da)
        dqkv = np.zeros_like(qkv)
        np.matmul(ds, k, out=dqkv[0])
        np.matmul(mt(ds), q, out=dqkv[1].copy() if bug == "dk_into_copy" else dqkv[1])
        np.matmul(mt(c), do, out=dqkv[2])
        dqkv[{"scale_on_all": slice(None), "scale_on_dq_alone": slice(0, 1), "scale_on_last_two": slice(1, None)}
             .get(bug, slice(0, 2))] *= scale
        return o, *dqkv

    return kernel


right("packed_first_right", packed_first, "softmax", layout="bhtd", keep="bhqk", dropout="bhqk",
      sizes=sizes(2, 7, 3, 4))
wrongs(packed_first, "packed_first", "softmax", {"layout": "bhtd", "sizes": sizes(3, 7, 3, 4)}, [
    ("one_buffer_for_da_and_a", "a is overwritten by a * da before ds takes its factor a.", "backward (2)"),
    ("dk_into_copy", "dk is written into a copy of its slot, and the slot stays zero.", "backward (1)",
     {"dropout": "bhqk"}),
    ("scale_on_all", "1 / sqrt(d) is put on all three slots, dv too.", "backward (4)"),
    ("scale_on_dq_alone", "1 / sqrt(d) is put on dq and not on dk.", "backward (1)"),
    ("scale_on_last_two", "1 / sqrt(d) is put on dk and dv in place of dq and dk.", "backward (1), backward (4)"),
])


# --------------------------------------------------------------------------------- a module on (b, t, channels), causal


def module(bug=None):
    """A causal module with forward and backward on (b, t, channels)."""
    class SelfAttention:
        def __init__(self, h):
            self.h = h

        def split(self, x, mixed=False):
            b, t, c = x.shape
            if mixed:
                return x.reshape(b, self.h, t, c // self.h)
            return x.reshape(b, t, self.h, c // self.h).transpose(0, 2, 1, 3)

        def join(self, x, mixed=False):
            b, h, t, d = x.shape
            return (x if mixed else x.transpose(0, 2, 1, 3)).reshape(b, t, h * d)

        def forward(self, x):
            q, k, v = np.split(x, 3, axis=-1)
            q, v, k = self.split(q), self.split(v), self.split(k, bug == "k_split_mixed")
            t, d = q.shape[-2:]
            mask = np.tril(np.ones((t, t), dtype=bool), 1 if bug == "one_later_key" else 0)
            if bug == "upper_triangle":
                mask = np.triu(np.ones((t, t), dtype=bool))
            att = (q @ mt(k)) * (1.0 / math.sqrt(d))
            att = softmax(np.where(mask, att, -np.inf))
            self.saved = q, k, v, att, mask
            return self.join(att @ v, bug == "y_join_mixed")

        def backward(self, dy):
            q, k, v, att, mask = self.saved
            dy = self.split(dy, bug == "dy_split_mixed")
            datt = dy @ mt(v)
            dv = mt(att) @ dy
            ds = softmax_backward(att, datt)
            if bug == "backward_mask_strict":
                mask = np.tril(mask, -1)
            if bug == "backward_mask_transposed":
                mask = mask.T
            ds = np.where(mask, ds, 0) * (1.0 / math.sqrt(q.shape[-1]))
            return np.concatenate([self.join(x) for x in (ds @ k, mt(ds) @ q, dv)], axis=-1)

    def kernel(q, k, v, do):
        b, t, h, d = q.shape
        layer = SelfAttention(h)
        y = layer.forward(np.concatenate([x.reshape(b, t, h * d) for x in (q, k, v)], axis=-1))
        dx = layer.backward(do.reshape(b, t, h * d))
        return y.reshape(b, t, h, d), *(x.reshape(b, t, h, d) for x in np.split(dx, 3, axis=-1))

    return kernel


right("module_right", module, "softmax", layout="bthd", causal=True, sizes=sizes(2, 8, 3, 4))
wrongs(module, "module", "softmax", {"layout": "bthd", "causal": True, "sizes": sizes(2, 6, 3, 4)}, [
    ("k_split_mixed", "k is reshaped to (b, h, t, d) without a transpose, which mixes heads and positions.",
     "forward (1), backward (1)"),
    ("y_join_mixed", "The output is reshaped from (b, h, t, d) without a transpose.", "forward (4)", at(2, 6, 2, 5)),
    ("dy_split_mixed", "do is reshaped to (b, h, t, d) without a transpose.", "backward (4)", at(3, 7, 3, 4)),
    ("upper_triangle", "The upper triangle is kept in place of the lower one.", "forward (2)"),
    ("one_later_key", "The triangle is one too wide: each query sees the next key too.", "forward (2)", at(2, 5, 2, 3)),
    ("backward_mask_strict", "The triangle of the backward leaves out the diagonal.", "backward (2)"),
    ("backward_mask_transposed", "ds is masked by the transposed triangle.", "backward (2)", at(2, 8, 4, 3)),
])


# ------------------------------------------------------------------------------------------------- einsum, every option


def einsums(bug=None):
    """One einsum a line, with every option."""
    def either(wrong, x, y):
        return x if bug == wrong else y

    def kernel(q, k, v, do, bias=None, keep=None, dropout=None):
        scale = q.shape[-1] ** -0.5
        s = np.einsum(either("s_transposed", "bihd,bjhd->bhji", "bihd,bjhd->bhij"), q, either("q_with_q", q, k)) * scale
        if bias is not None:
            s = s + either("bias_transposed", mt(bias), bias)
        a = softmax(s, keep, axis=either("softmax_over_queries", -2, -1))
        c = a if dropout is None else a * either("dropout_transposed", mt(dropout), dropout)
        o = np.einsum(either("weights_transposed", "bhji,bjhe->bihe", "bhij,bjhe->bihe"), c, either("o_of_k", k, v))
        dc = np.einsum(either("dc_transposed", "bihe,bjhe->bhji", "bihe,bjhe->bhij"), either("dc_of_o", o, do), v)
        dv = np.einsum(either("dv_not_transposed", "bhij,bjhe->bihe", "bhij,bihe->bjhe"), c, either("dv_of_v", v, do))
        ds = softmax_backward(a, times(dc, dropout))
        dq = np.einsum(either("dq_transposed", "bhij,bihd->bjhd", "bhij,bjhd->bihd"), ds, either("dq_of_q", q, k))
        dk = np.einsum(either("dk_not_transposed", "bhij,bjhd->bihd", "bhij,bihd->bjhd"), ds, q)
        dq, dk = dq * scale, dk * scale
        if bias is None:
            return o, dq, dk, dv
        dbias = ds.sum(axis=0) if bias.ndim == 3 else ds
        return o, dq, dk, dv, either("dbias_transposed", mt(dbias), dbias)

    return kernel


right("einsum_right", einsums, "softmax", layout="bthd", bias="bhqk", keep="bhqk", dropout="bhqk",
      sizes=sizes(3, 6, 3, 4))
right("einsum_right_shared", einsums, "softmax", layout="bthd", bias="hqk", keep="qk", sizes=sizes(2, 5, 4, 3))
wrongs(einsums, "einsum", "softmax", {"layout": "bthd", "sizes": sizes(3, 6, 3, 4)}, [
    ("s_transposed", "The scores are transposed before the softmax.", "forward (1)"),
    ("q_with_q", "The scores are those of queries with queries, q in place of k.", "forward (1)", at(2, 7, 2, 5)),
    ("bias_transposed", "The bias is added transposed.", "forward (1)", {"bias": "hqk"}),
    ("softmax_over_queries", "The softmax of the forward runs over the queries.", "forward (2)", {"keep": "qk"}),
    ("dropout_transposed", "The dropout of the forward is transposed.", "forward (3)", {"dropout": "bhqk"}),
    ("weights_transposed", "The weights are transposed in the product with v.", "forward (4)", at(2, 9, 2, 3)),
    ("o_of_k", "The output is a mixture of the keys, k in place of v.", "forward (4)"),
    ("dc_transposed", "dc comes out transposed.", "backward (4)", {"bias": "bhqk", "keep": "qk"}),
    ("dc_of_o", "dc is made of o in place of do.", "backward (4)", at(2, 6, 3, 5)),
    ("dv_not_transposed", "The weights are not transposed in dv.", "backward (4)"),
    ("dv_of_v", "dv is made of v in place of do.", "backward (4)", {"keep": "bhqk"}),
    ("dq_transposed", "ds is transposed in dq.", "backward (1)", {"bias": "bhqk"} | at(2, 5, 2, 4)),
    ("dq_of_q", "dq is made of q in place of k.", "backward (1)"),
    ("dk_not_transposed", "ds is not transposed in dk.", "backward (1)", {"bias": "hqk"} | at(2, 8, 3, 4)),
    ("dbias_transposed", "dbias comes out transposed.", "backward (1)", {"bias": "hqk", "dropout": "bhqk"}),
])


# -------------------------------------------------------------------------------------------------- plain loops, causal


def loops(bug=None):
    """Plain loops over batch, head, query and key, as a compiler of loops would take them; causal by their bounds."""
    def kernel(q, k, v, do):
        b, h, t, d = q.shape
        scale = d ** -0.5
        w = np.zeros((b, h, t, t), dtype=q.dtype)
        o, dq, dk, dv = (np.zeros_like(q) for _ in range(4))
        for n, g in np.ndindex(b, h):
            Q, K, V, W = q[n, g], k[n, g], v[n, g], w[n, g]
            for i in range(t):
                for j in range(i + 1):
                    W[i, j] = Q[i] @ K[j] * scale
                W[i, :i + 1] = np.exp(W[i, :i + 1] - W[i, :i + 1].max())
                W[i, :i + 1] /= W[i, :i + 1].sum()
                for j in range(i + 1):
                    o[n, g, i] += W[i, j] * V[j]
        for n, g in np.ndindex(b, h):
            Q, K, V, W, D = q[n, g], k[n, g], v[n, g], w[n, g], do[n, g]
            dp = np.zeros(t, dtype=q.dtype)
            delta = 0
            for i in range(t):
                delta = delta if bug == "delta_not_reset" else 0
                for j in range(i + 1):
                    dp[j] = D[j] @ V[j] if bug == "dp_of_do_j" else D[i] @ V[j]
                    delta = delta + W[i, j] * dp[j]
                for j in range(i if bug == "backward_without_diagonal" else i + 1):
                    ds = (W[j, i] if bug == "ds_of_w_ji" else W[i, j]) * (dp[j] - delta) * scale
                    dq[n, g, i] += ds * K[j]
                    dk[n, g, i if bug == "dk_at_i" else j] += ds * (Q[j] if bug == "dk_of_q_j" else Q[i])
                    dv[n, g, j] += W[i, j] * D[i]
        return o, dq, dk, dv

    return kernel


right("loops_right", loops, "softmax", layout="bhtd", causal=True, sizes=sizes(2, 6, 2, 4))
wrongs(loops, "loops", "softmax", {"layout": "bhtd", "causal": True, "sizes": sizes(2, 5, 2, 4)}, [
    ("delta_not_reset", "The sum of w * dp is not set back to 0 for each query.", "backward (2)", at(2, 6, 2, 3)),
    ("dp_of_do_j", "dp is made of do at the key's position.", "backward (4)"),
    ("backward_without_diagonal", "The last loop of the backward ends before the diagonal.",
     "backward (2), backward (4)"),
    ("ds_of_w_ji", "ds takes the weight w[j, i] in place of w[i, j].", "backward (2)"),
    ("dk_at_i", "dk is added at the query's position.", "backward (1)", at(3, 5, 3, 3)),
    ("dk_of_q_j", "dk is made of q at the key's position.", "backward (1)"),
])


# ------------------------------------------------------------------------------------------- matrices, a head at a time


def per_head(bug=None):
    """A head at a time, with T x T matrices and their .T."""
    def kernel(q, k, v, do, bias=None, dropout=None):
        b, t, h, d = q.shape
        scale = 1 / math.sqrt(d)
        o, dq, dk, dv = (np.empty_like(q) for _ in range(4))
        dbias = np.zeros((b, h, t, t), dtype=q.dtype)
        saved = {}
        for n in range(b):
            for g in range(h):
                Q, K, V = q[n, :, g], k[n, :, g // 2 if bug == "shared_key_head" else g], v[n, :, g]
                if bug == "v_of_last_head":
                    V = v[n, :, g - 1]
                S = Q @ K.T * scale
                if bias is not None:
                    S = S + bias[n, g - 1 if bug == "bias_of_last_head" else g]
                A = np.exp(S - S.max(axis=0 if bug == "max_over_queries" else 1, keepdims=True))
                A = A / A.sum(axis=1, keepdims=True)
                C = A if dropout is None else A * dropout[n, g]
                o[n, :, g] = C @ V
                saved[n, g] = Q, K, V, A, C
        for n in range(b):
            for g in range(h):
                Q, K, V, _, _ = saved[n, g]
                if bug != "weights_of_last_head":
                    _, _, _, A, C = saved[n, g]
                dO = do[n, :, g]
                dA = dO @ V.T
                if dropout is not None:
                    dA *= dropout[n, g].T if bug == "da_dropout_transposed" else dropout[n, g]
                dS = A * (dA - (A * dA).sum(axis=0 if bug == "delta_over_queries" else 1, keepdims=True))
                if bug == "ds_transposed":
                    dS = dS.T
                dq[n, :, g] = dS @ K * scale
                dk[n, :, g] = dS.T @ (Q * scale) * (scale if bug == "dk_scaled_twice" else 1)
                dv[n, :, g] = C.T @ dO
                dbias[n, g] = dS
        return (o, dq, dk, dv) if bias is None else (o, dq, dk, dv, dbias)

    return kernel


right("per_head_right", per_head, "softmax", layout="bthd", bias="bhqk", dropout="bhqk", sizes=sizes(3, 5, 3, 4))
wrongs(per_head, "per_head", "softmax", {"layout": "bthd", "sizes": sizes(2, 6, 4, 3)}, [
    ("shared_key_head", "Two heads share a head of the keys, throughout.", "forward (1), backward (1)"),
    ("v_of_last_head", "A head takes the values of the head before it, throughout.", "forward (4), backward (4)",
     at(3, 6, 3, 4)),
    ("bias_of_last_head", "A head takes the bias of the head before it.", "forward (1)", {"bias": "bhqk"}),
    ("max_over_queries", "The largest score that is subtracted is that over the queries.", "forward (2)"),
    ("weights_of_last_head", "The backward takes the weights of the very last head for all heads.",
     "backward (3), backward (2)"),
    ("da_dropout_transposed", "The dropout of the backward is transposed.", "backward (3)",
     {"dropout": "bhqk", "bias": "bhqk"}),
    ("delta_over_queries", "The sum in the softmax's backward runs over the queries.", "backward (2)",
     {"dropout": "bhqk"}),
    ("ds_transposed", "ds is transposed before all that is made of it.", "backward (2)", {"bias": "bhqk"}),
    ("dk_scaled_twice", "1 / sqrt(d) is in dk twice.", "backward (1)"),
])


# ----------------------------------------------------------------------------------------------------- buffers in place


def in_place(bug=None):
    """Few buffers, each written over as soon as it is not needed."""
    def kernel(q, k, v, do, dropout=None):
        b, h, t, d = q.shape
        scale = d ** -0.5
        work = np.empty(b * h * t * max(t, d), dtype=q.dtype)
        a = q * scale @ mt(k)
        a -= a.max(axis=-1, keepdims=True)
        np.exp(a, out=a)
        a /= a.sum(axis=-1, keepdims=True)
        c = a
        if dropout is not None:
            c = np.multiply(a, dropout, out=a if bug == "dropout_into_a" else None)
        o = c @ v
        grad = work[:b * h * t * t].reshape(b, h, t, t)
        if bug == "dc_into_c":
            grad = c = c.copy()
        np.matmul(do, mt(v), out=grad)
        dv = mt(c) @ do
        if dropout is not None:
            grad *= dropout
        grad *= a
        grad -= a * grad.sum(axis=-1, keepdims=True)
        grad *= scale
        dq, dk = np.empty_like(q), np.empty_like(k)
        if bug == "dq_over_ds":
            dq = work[:b * h * t * d].reshape(b, h, t, d)
        if bug == "dq_dk_one_buffer":
            dk = dq
        np.matmul(grad, k, out=dq)
        np.matmul(mt(grad), q, out=dk)
        return o, dq, dk, dv

    return kernel


right("in_place_right", in_place, "softmax", layout="bhtd", dropout="bhqk", sizes=sizes(3, 6, 3, 5))
wrongs(in_place, "in_place", "softmax", {"layout": "bhtd", "sizes": sizes(2, 7, 3, 4)}, [
    ("dropout_into_a", "The dropout is multiplied into a in place, so the softmax's backward has c in place of a.",
     "backward (2)", {"dropout": "bhqk"}),
    ("dc_into_c", "dc is written over c before dv is made of c.", "backward (4)", {"dropout": "bhqk"}),
    ("dq_over_ds", "dq is written into the workspace that still holds ds, of which dk is made next.", "backward (1)",
     at(2, 8, 2, 4)),
    ("dq_dk_one_buffer", "dq and dk are one buffer, so dq is dk.", "backward (1)"),
])


# ------------------------------------------------------------------------------- weights computed again in the backward


def recomputed(bug=None):
    """Saves o and the log-sum-exp; the backward computes the weights again and takes delta from o."""
    def kernel(q, k, v, do, bias=None, keep=None):
        scale = q.shape[-1] ** -0.5
        s = q @ mt(k) * scale
        s = s if bias is None else s + bias
        a = softmax(s, keep)
        o = a @ v
        masked = s if keep is None else np.where(keep, s, -np.inf)
        top = masked.max(axis=-1)
        top = np.where(np.isfinite(top), top, 0)
        total = np.exp(masked - top[..., None]).sum(axis=-1)
        lse = top + np.log(np.where(total == 0, 1, total))

        s = (k @ mt(q) if bug == "again_k_with_q" else q @ mt(k)) * scale
        if bias is not None:
            s = s + (mt(bias) if bug == "again_bias_transposed" else bias)
        p = np.exp(s - (lse[..., None, :] if bug == "lse_per_key" else lse[..., None]))
        if keep is not None:
            p = np.where(mt(keep) if bug == "again_keep_transposed" else keep, p, 0)
        dp = do @ mt(v)
        delta = (do * (v if bug == "delta_of_v" else o)).sum(axis=-1)
        ds = p * (dp - (delta[..., None, :] if bug == "delta_per_key" else delta[..., None]))
        dv = mt(p) @ do
        dq, dk = ds @ k * scale, mt(ds) @ q * scale
        if bias is None:
            return o, dq, dk, dv
        return o, dq, dk, dv, ds if bias.ndim == 4 else ds.sum(axis=0)

    return kernel


right("recomputed_right", recomputed, "softmax", layout="bhtd", bias="bhqk", keep="qk", sizes=sizes(3, 7, 3, 4))
wrongs(recomputed, "recomputed", "softmax", {"layout": "bhtd", "sizes": sizes(3, 6, 3, 4)}, [
    ("again_k_with_q", "The scores computed again in the backward are transposed.", "backward (3), backward (2)"),
    ("again_bias_transposed", "The bias is transposed where the backward computes the scores again.",
     "backward (3), backward (2)", {"bias": "hqk"}),
    ("lse_per_key", "The backward subtracts the log-sum-exp by key in place of by query.", "backward (3), backward (2)",
     at(2, 5, 3, 3)),
    ("again_keep_transposed", "The mask of the backward is transposed.", "backward (3), backward (2)",
     {"keep": "bhqk"}),
    ("delta_of_v", "delta is the sum of do * v in place of do * o.", "backward (2)", at(2, 8, 2, 5)),
    ("delta_per_key", "delta is subtracted by key in place of by query.", "backward (2)", {"keep": "qk"}),
])


# ------------------------------------------------------------------------------------------------------- blocks, causal


def blocks(bug=None, size=3):
    """Blocks of queries and keys with a running maximum; causal."""
    def kernel(q, k, v, do):
        b, h, t, d = q.shape
        scale = d ** -0.5
        position = np.arange(t)
        tiles = [slice(start, min(start + size, t)) for start in range(0, t, size)]

        def scores(I, J, mask):
            return np.where(mask, q[:, :, I] @ mt(k[:, :, J]) * scale, -np.inf)

        def lower(I, J):
            return position[I, None] >= position[None, J]

        o, lse = np.empty_like(q), np.empty((b, h, t, 1), dtype=q.dtype)
        for I in tiles:
            n = I.stop - I.start
            top = np.full((b, h, n, 1), -np.inf, dtype=q.dtype)
            total, acc = np.zeros((b, h, n, 1), dtype=q.dtype), np.zeros((b, h, n, d), dtype=q.dtype)
            for J in tiles[:I.start // size + 1]:
                mask = np.tri(n, J.stop - J.start, dtype=bool) if bug == "triangle_in_every_block" else lower(I, J)
                s = scores(I, J, mask)
                new = np.maximum(top, s.max(axis=-1, keepdims=True))
                p = np.exp(s - new)
                total = total * np.exp(top - new) + p.sum(axis=-1, keepdims=True)
                acc = acc * np.exp(top - new) + p @ v[:, :, J]
                top = new
            o[:, :, I] = acc / total
            lse[:, :, I] = top + np.log(total)
        delta = (do * o).sum(axis=-1, keepdims=True)
        dq, dk, dv = (np.zeros_like(q) for _ in range(3))
        for J in tiles:
            for I in tiles[J.start // size + (bug == "backward_below_diagonal"):]:
                p = np.exp(scores(I, J, lower(I, J)) - lse[:, :, I])
                dv[:, :, J] += mt(p) @ do[:, :, I]
                ds = p * (do[:, :, I] @ mt(v[:, :, J]) - delta[:, :, I]) * scale
                if bug == "dq_not_added":
                    dq[:, :, I] = ds @ k[:, :, J]
                else:
                    dq[:, :, I] += ds @ k[:, :, J]
                dk[:, :, J] += mt(ds) @ q[:, :, I]
        return o, dq, dk, dv

    return kernel


right("blocks_right", blocks, "softmax", layout="bhtd", causal=True, sizes=sizes(2, 8, 3, 4))
wrongs(blocks, "blocks", "softmax", {"layout": "bhtd", "causal": True, "sizes": sizes(2, 8, 2, 4)}, [
    ("triangle_in_every_block", "The forward cuts a triangle out of every block, not of those on the diagonal alone.",
     "forward (2)"),
    ("backward_below_diagonal", "The backward leaves out the blocks on the diagonal.", "backward (3), backward (2)",
     at(3, 7, 3, 4)),
    ("dq_not_added", "dq is written over by each block of keys in place of added.", "backward (1)"),
])


# ------------------------------------------------------------------------------------------ batch and heads as one axis


def folded(bug=None):
    """Batch and heads folded into one axis for three-dimensional matrix products."""
    def kernel(q, k, v, do, bias=None, dropout=None):
        b, t, h, d = q.shape
        scale = d ** -0.5

        def fold(x, name):
            return (x if bug == f"{name}_straight" else x.transpose(0, 2, 1, 3)).reshape(b * h, t, d)

        def unfold(x, name):
            if bug == f"{name}_straight":
                return x.reshape(b, t, h, d)
            if bug == f"{name}_heads_first":
                return x.reshape(h, b, t, d).transpose(1, 2, 0, 3)
            return x.reshape(b, h, t, d).transpose(0, 2, 1, 3)

        q, k, v, do = (fold(x, name) for x, name in ((q, "q"), (k, "k"), (v, "v"), (do, "do")))
        s = q @ mt(k) * scale
        if bias is not None:
            s += np.repeat(bias, b, axis=0) if bug == "bias_repeated" else np.tile(bias, (b, 1, 1))
        a = softmax(s)
        if dropout is not None:
            dropout = (dropout.swapaxes(0, 1) if bug == "dropout_heads_first" else dropout).reshape(b * h, t, t)
        c = times(a, dropout)
        o = c @ v
        dv = mt(c) @ do
        ds = softmax_backward(a, times(do @ mt(v), dropout))
        dq, dk = ds @ k * scale, mt(ds) @ q * scale
        results = tuple(unfold(x, name) for x, name in ((o, "o"), (dq, "dq"), (dk, "dk"), (dv, "dv")))
        if bias is None:
            return results
        dbias = ds.reshape(h, b, t, t).sum(axis=1) if bug == "dbias_heads_first" else ds.reshape(b, h, t, t).sum(axis=0)
        return *results, dbias

    return kernel


right("folded_right", folded, "softmax", layout="bthd", bias="hqk", dropout="bhqk", sizes=sizes(2, 6, 3, 4))
wrongs(folded, "folded", "softmax", {"layout": "bthd", "sizes": sizes(3, 6, 3, 4)}, [
    ("v_straight", "v is folded without a transpose, which mixes heads and positions.", "forward (4), backward (4)"),
    ("o_heads_first", "The output is unfolded with heads before the batch.", "forward (4)"),
    ("dv_straight", "dv is unfolded without a transpose, which mixes heads and positions.", "backward (4)",
     at(2, 5, 4, 3)),
    ("bias_repeated", "The bias is repeated head by head and so meets the wrong heads.", "forward (1)",
     {"bias": "hqk"}),
    ("dbias_heads_first", "dbias is summed over what is taken for the batch, and is the heads.", "backward (1)",
     {"bias": "hqk"}),
    ("dropout_heads_first", "The dropout is folded with heads before the batch, throughout.",
     "forward (3), backward (3)", {"dropout": "bhqk"}),
])


# --------------------------------------------------------------------------------------------------------------- a tape


def tape(bug=None):
    """Each step returns its result and its vector-Jacobian product."""
    def matmul(x, y):
        return x @ y, lambda g: (g @ mt(y), mt(x) @ g)

    def normalise(s):
        a = softmax(s)
        if bug == "vjp_of_scores":
            return a, lambda g: softmax_backward(s, g)
        if bug == "vjp_of_sigmoid":
            return a, lambda g: g * a * (1 - a)
        return a, partial(softmax_backward, a)

    def kernel(q, k, v, do, dropout=None):
        b, h, t, d = k.shape
        scale = d ** -0.5
        k_t = k.reshape(b, h, d, t) if bug == "k_reshaped" else mt(k)
        s, of_scores = matmul(q * scale, k_t)
        a, of_weights = normalise(s)
        o, of_output = matmul(times(a, dropout), v)
        dc, dv = of_output(o if bug == "pulled_from_o" else do)
        ds = of_weights(times(dc, dropout))
        dq, dk_t = of_scores(ds)
        dk = dk_t.reshape(b, h, t, d) if bug == "dk_reshaped" else mt(dk_t)
        return o, dq * scale, dk, dv

    return kernel


right("tape_right", tape, "softmax", layout="bhtd", dropout="bhqk", sizes=sizes(2, 7, 2, 5))
wrongs(tape, "tape", "softmax", {"layout": "bhtd", "sizes": sizes(3, 7, 3, 4)}, [
    ("k_reshaped", "k is reshaped to (d, t) in place of transposed; dk is transposed back.",
     "forward (1), backward (1)"),
    ("dk_reshaped", "dk is reshaped from (d, t) in place of transposed.", "backward (1)", at(2, 6, 2, 3)),
    ("vjp_of_scores", "The softmax's backward has the scores in place of the weights.", "backward (2)"),
    ("vjp_of_sigmoid", "The softmax's backward is that of the sigmoid, entry by entry.", "backward (2)"),
    ("pulled_from_o", "The backward starts from o in place of do.", "backward (4)", {"dropout": "bhqk"}),
])


# ------------------------------------------------------------------------------------------- two products in one matmul


def paired(bug=None):
    """Products of one shape done as one: s and dc, then dq and dk."""
    def kernel(q, k, v, do, keep=None):
        scale = q.shape[-1] ** -0.5
        left, turned = np.stack([q, do]), np.stack([v, k] if bug == "k_v_exchanged" else [k, v])
        s, dc = left @ mt(turned)
        if bug == "s_dc_exchanged":
            s, dc = dc, s
        a = softmax(s * scale, keep)
        o, dv = np.stack([a, mt(a)]) @ np.stack([v, do])
        ds = softmax_backward(a, dc) * scale
        if bug == "ds_symmetric":
            ds = (ds + mt(ds)) / 2
        qk = np.stack([q, k])
        dqk = np.stack([ds, mt(ds)]) @ (qk if bug == "qk_not_reversed" else qk[::-1])
        return o, *dqk, dv

    return kernel


right("paired_right", paired, "softmax", layout="bhtd", keep="qk", sizes=sizes(3, 9, 3, 3))
wrongs(paired, "paired", "softmax", {"layout": "bhtd", "keep": "qk", "sizes": sizes(2, 6, 3, 4)}, [
    ("k_v_exchanged", "k and v are stacked in the wrong order: scores of q and v, dc of do and k.",
     "forward (1), backward (4)"),
    ("s_dc_exchanged", "s and dc are exchanged when the joint product is unpacked.", "forward (1), backward (4)"),
    ("ds_symmetric", "ds is made symmetric.", "backward (2)"),
    ("qk_not_reversed", "dq is made of q and dk of k.", "backward (1)", at(3, 7, 3, 4)),
])


# ------------------------------------------------------------------------------------------- scores stored key by query


def key_major(bug=None):
    """Scores and weights are stored as (k, q), so the softmax runs over the rows and all options are transposed."""
    def kernel(q, k, v, do, bias=None, keep=None, dropout=None):
        scale = q.shape[-1] ** -0.5
        axis = -1 if bug == "softmax_over_last" else -2
        st = k @ mt(q) * scale
        if bias is not None:
            st += mt(bias)
        if keep is not None and bug != "keep_not_transposed":
            keep = mt(keep)
        at = softmax(st, keep, axis=axis)
        dropout = None if dropout is None else mt(dropout)
        ct = times(at, dropout)
        o = mt(ct) @ v
        dct = do @ mt(v) if bug == "dc_not_transposed" else v @ mt(do)
        dv = ct @ do
        dst = softmax_backward(at, times(dct, dropout), axis=axis)
        dq = (dst if bug == "dq_not_transposed" else mt(dst)) @ k * scale
        dk = dst @ q * scale
        if bias is None:
            return o, dq, dk, dv
        return o, dq, dk, dv, mt(dst if bias.ndim == 4 else dst.sum(axis=0))

    return kernel


right("key_major_right", key_major, "softmax", layout="bhtd", bias="bhqk", keep="qk", dropout="bhqk",
      sizes=sizes(2, 6, 3, 4))
wrongs(key_major, "key_major", "softmax", {"layout": "bhtd", "sizes": sizes(2, 6, 2, 4)}, [
    ("keep_not_transposed", "The mask is not transposed to the order of the scores.", "forward (2)", {"keep": "bhqk"}),
    ("softmax_over_last", "The softmax runs over the last axis, which is that of the queries; its backward too.",
     "forward (2), backward (2)"),
    ("dc_not_transposed", "dc is not in the order of the weights.", "backward (4)", {"keep": "qk"}),
    ("dq_not_transposed", "ds is not transposed back in dq.", "backward (1)", {"bias": "hqk"}),
])


# ---------------------------------------------------------------------------------------- the softmax's Jacobian itself


def jacobian(bug=None):
    """The Jacobian of the softmax of each query as a matrix."""
    def kernel(q, k, v, do):
        b, t, h, d = q.shape
        scale = d ** -0.5
        q, k, v, do = map(heads, (q, k, v, do))
        a = softmax(q @ mt(k) * scale)
        da = do @ mt(v)
        ds = np.empty_like(a)
        for n, g, i in np.ndindex(b, h, t):
            p = a[n, g, :, i] if bug == "column_of_weights" else a[n, g, i]
            row = (np.diag(p) - np.outer(p, p)) @ (da[n, g, :, i] if bug == "column_of_da" else da[n, g, i])
            if bug == "into_column":
                ds[n, g, :, i] = row
            else:
                ds[n, g, i] = row
        return tuple(map(heads, (a @ v, ds @ k * scale, mt(ds) @ q * scale, mt(a) @ do)))

    return kernel


right("jacobian_right", jacobian, "softmax", layout="bthd", sizes=sizes(2, 5, 3, 6))
wrongs(jacobian, "jacobian", "softmax", {"layout": "bthd", "sizes": sizes(2, 5, 3, 4)}, [
    ("column_of_weights", "The Jacobian of query i is made of column i of the weights.", "backward (2)"),
    ("column_of_da", "The Jacobian of query i is applied to column i of da.", "backward (2)", at(3, 6, 3, 4)),
    ("into_column", "What the Jacobian of query i gives is written into column i of ds.", "backward (2)"),
])


# ----------------------------------------------------------------------------------------------------- time comes first


def time_first(bug=None):
    """(t, b h, d) as older sequence models have it."""
    def kernel(q, k, v, do, keep=None):
        b, t, h, d = q.shape

        def enter(x, exchanged=False):
            x = x.transpose((1, 2, 0, 3) if exchanged else (1, 0, 2, 3))
            return x.reshape(t, b * h, d).transpose(1, 0, 2)

        def leave(x):
            return x.transpose(1, 0, 2).reshape(t, b, h, d).transpose(1, 0, 2, 3)

        q, v = enter(q) * d ** -0.5, enter(v)
        k, do = enter(k, bug == "k_batch_and_head"), enter(do, bug == "do_batch_and_head")
        a = softmax(np.einsum("nid,njd->nij", q, k), keep)
        ds = softmax_backward(a, do @ mt(v))
        return leave(a @ v), leave(ds @ k * d ** -0.5), leave(mt(ds) @ q), leave(mt(a) @ do)

    return kernel


right("time_first_right", time_first, "softmax", layout="bthd", keep="qk", sizes=sizes(3, 7, 2, 4))
wrongs(time_first, "time_first", "softmax", {"layout": "bthd", "keep": "qk", "sizes": sizes(3, 6, 3, 4)}, [
    ("k_batch_and_head", "Batch and head of k are exchanged, throughout.", "forward (1), backward (1)"),
    ("do_batch_and_head", "Batch and head of do are exchanged.", "backward (4)"),
])


# ----------------------------------------------------------------------------------------------------- linear attention


def linear_square(bug=None):
    """Linear attention with the code written down."""
    def kernel(q, k, v, do, bias=None, keep=None, dropout=None):
        scale = q.shape[-1] ** -0.5
        q, k, v, do = map(heads, (q, k, v, do))
        s = q @ mt(k) * scale
        s = s if bias is None else s + bias
        a = times(s, keep)
        c = times(a, dropout)
        o = c @ v
        dc = do @ mt(v)
        ds = times(dc, dropout)
        if keep is not None:
            ds = ds * (mt(keep) if bug == "backward_keep_transposed" else keep)
        dv = mt(c) @ do
        dq, dk = ds @ k * scale, mt(dc if bug == "dk_of_dc" else ds) @ q * scale
        grads = tuple(map(heads, (o, dq, dk, dv)))
        return grads if bias is None else (*grads, ds.sum(axis=0) if bias.ndim == 3 else ds)

    return kernel


right("linear_square_right", linear_square, "linear", layout="bthd", bias="hqk", keep="qk", dropout="bhqk",
      sizes=sizes(3, 6, 3, 4))
wrongs(linear_square, "linear_square", "linear", {"layout": "bthd", "keep": "qk", "sizes": sizes(3, 6, 3, 4)}, [
    ("backward_keep_transposed", "The mask of the backward is transposed.", "backward (2)"),
    ("dk_of_dc", "dk is made of dc in place of ds, before dropout and mask.", "backward (1)", {"dropout": "bhqk"}),
])


def linear_state(bug=None):
    """q (k^T v): the state is d x d here."""
    def kernel(q, k, v, do):
        scale = q.shape[-1] ** -0.5
        state = mt(k) @ v * scale
        o = q @ (mt(state) if bug == "state_transposed" else state)
        dq = do @ (state if bug == "dq_state_not_transposed" else mt(state))
        dstate = (mt(do) @ q if bug == "dstate_transposed" else mt(q) @ do) * scale
        dk = v @ (dstate if bug == "dk_dstate_not_transposed" else mt(dstate))
        dv = k @ dstate
        return o, dq, dk, dv

    return kernel


right("linear_state_right", linear_state, "linear", layout="bhtd", sizes=sizes(2, 7, 3, 4))
wrongs(linear_state, "linear_state", "linear", {"layout": "bhtd", "sizes": sizes(2, 6, 3, 5)}, [
    ("state_transposed", "The state k^T v is transposed in the output, as if it were v^T k.",
     "forward (1), forward (4)"),
    ("dq_state_not_transposed", "The state is not transposed in dq: keys and values are exchanged there.",
     "backward (4), backward (1)"),
    ("dstate_transposed", "The state's gradient is do^T q in place of q^T do, in dk and dv.",
     "backward (4), backward (1)"),
    ("dk_dstate_not_transposed", "The state's gradient is not transposed in dk.", "backward (1)"),
])


def linear_running(bug=None):
    """Causal linear attention with a state that runs forwards, and its gradient backwards."""
    def kernel(q, k, v, do):
        b, t, h, d = q.shape
        scale = d ** -0.5
        o, dq, dk, dv = (np.empty_like(q) for _ in range(4))
        state = np.zeros((b, h, d, d), dtype=q.dtype)
        for i in range(t):
            if bug == "read_before_added":
                o[:, i] = np.einsum("bhd,bhde->bhe", q[:, i], state) * scale
            state += k[:, i, :, :, None] * v[:, i, :, None, :]
            if bug != "read_before_added":
                o[:, i] = np.einsum("bhd,bhde->bhe", q[:, i], state) * scale
            dq[:, i] = np.einsum("bhe,bhde->bhd", do[:, i], state) * scale
        dstate = np.zeros_like(state)
        for i in range(t) if bug == "dstate_forwards" else reversed(range(t)):
            if bug == "dv_before_added":
                dv[:, i] = np.einsum("bhd,bhde->bhe", k[:, i], dstate)
            dstate += q[:, i, :, :, None] * do[:, i, :, None, :] * scale
            dk[:, i] = np.einsum("bhe,bhde->bhd", v[:, i], dstate)
            if bug != "dv_before_added":
                dv[:, i] = np.einsum("bhd,bhde->bhe", k[:, i], dstate)
        return o, dq, dk, dv

    return kernel


right("linear_running_right", linear_running, "linear", layout="bthd", causal=True, sizes=sizes(2, 6, 2, 4))
wrongs(linear_running, "linear_running", "linear", {"layout": "bthd", "causal": True, "sizes": sizes(2, 6, 3, 4)}, [
    ("read_before_added", "The output reads the state before the query's own key is added.", "forward (2)"),
    ("dstate_forwards", "The state's gradient runs forwards, so a key has its gradient from earlier queries.",
     "backward (2), backward (4)"),
    ("dv_before_added", "dv reads the state's gradient before that of its own position is added.", "backward (4)"),
])


# ----------------------------------------------------------------------------------------------------------------- HYLA


def hyla(bug=None):
    """HYLA, one einsum a line."""
    def either(wrong, x, y):
        return x if bug == wrong else y

    def kernel(q, k, v, do, bias=None, keep=None, dropout=None):
        scale = q.shape[-1] ** -0.5
        s = np.einsum("bihd,bjhd->bhij", q, k) * scale
        s = s if bias is None else s + bias
        s = times(s, keep)
        axis = either("mean_over_batch", 0, 1)
        rho = 1 / np.sqrt((s * s).mean(axis=axis, keepdims=True) + 1e-6)
        a = s * rho
        c = times(a, dropout)
        z = np.einsum(either("z_of_v_i", "bhij,bihe->bije", "bhij,bjhe->bije"), c, v)
        g = np.maximum(z, 0)
        o = np.einsum(either("hidden_transposed", "bhij,bjie->bihe", "bhij,bije->bihe"), c, g)
        dg = np.einsum("bhij,bihe->bije", c, do)
        dc = np.einsum("bihe,bije->bhij", do, g)
        dz = dg * (either("slope_transposed", z.swapaxes(1, 2), z) > 0)
        dc = dc + np.einsum(either("dc_transposed", "bije,bjhe->bhji", "bije,bjhe->bhij"), dz, v)
        dv = np.einsum(either("dv_at_i", "bhij,bije->bihe", "bhij,bije->bjhe"), c, dz)
        da = times(dc, dropout)
        ds = rho * (da - a * (a * da).mean(axis=either("backward_mean_over_keys", -1, axis), keepdims=True))
        ds = times(ds, keep)
        dq = np.einsum("bhij,bjhd->bihd", ds, k) * scale
        dk = np.einsum("bhij,bihd->bjhd", ds, q) * scale
        return (o, dq, dk, dv) if bias is None else (o, dq, dk, dv, ds.sum(axis=0) if bias.ndim == 3 else ds)

    return kernel


right("hyla_right", hyla, "hyla", layout="bthd", bias="hqk", keep="qk", dropout="bhqk", sizes=sizes(3, 6, 3, 4))
wrongs(hyla, "hyla", "hyla", {"layout": "bthd", "sizes": sizes(3, 6, 3, 4)}, [
    ("mean_over_batch", "RMSHead takes the mean over the batch in place of the heads; its backward too.",
     "forward (3), backward (3)"),
    ("z_of_v_i", "The hidden layer is made of the values at the query's position.", "forward (5)", at(2, 5, 3, 3)),
    ("hidden_transposed", "The hidden layer is transposed in the output.", "forward (7)"),
    ("slope_transposed", "The slope of the relu is that of query and key exchanged.", "backward (6)", at(2, 7, 2, 4)),
    ("dc_transposed", "The gradient of the code's first use is added transposed.", "backward (5)", {"dropout": "bhqk"}),
    ("dv_at_i", "dv is summed over the keys and stands at the query's position.", "backward (5)"),
    ("backward_mean_over_keys", "The mean in RMSHead's backward runs over the keys.", "backward (3)", {"bias": "hqk"}),
])


# -------------------------------------------------------------------------------------------------------- compositional


def compositional(bug=None):
    """Compositional attention with as many retrievals as searches, and one width for all."""
    def either(wrong, x, y):
        return x if bug == wrong else y

    def kernel(q, k, v, selector, wr, do, keep=None, dropout=None):
        scale, narrow = q.shape[-1] ** -0.5, selector.shape[-1] ** -0.5
        a = softmax(np.einsum("bisd,bjsd->bsij", q, k) * scale, keep)
        c = times(a, dropout)
        t = np.einsum(either("retrievals_exchanged", "bsij,bjre->birse", "bsij,bjre->bisre"), c, v)
        u = selector @ either("key_map_not_transposed", wr, wr.T) * narrow
        value_scores = np.einsum("bise,bisre->bisr", u, t)
        g = softmax(value_scores, axis=either("softmax_over_searches", 2, 3))
        o = np.einsum("bisr,bisre->bise", g, t)
        dg = np.einsum("bise,bisre->bisr", do, t)
        dl = softmax_backward(g, dg, axis=either("softmax_over_searches", 2, 3))
        du = np.einsum("bisr,bisre->bise", dl, t) * narrow
        dselector = du @ wr
        dwr = np.einsum(either("dkey_map_transposed", "bise,bisc->ce", "bise,bisc->ec"), du, selector)
        dt = dl[..., None] * u[..., None, :] + either("g_exchanged", mt(g), g)[..., None] * do[..., None, :]
        dc = np.einsum("bisre,bjre->bsij", dt, v)
        dv = np.einsum(either("dv_of_searches", "bsij,bisre->bjse", "bsij,bisre->bjre"), c, dt)
        ds = softmax_backward(a, times(dc, dropout))
        dq = np.einsum("bsij,bjsd->bisd", ds, k) * scale
        dk = np.einsum("bsij,bisd->bjsd", ds, q) * scale
        return o, either("dq_dselector_exchanged", dselector, dq), dk, dv, \
            either("dq_dselector_exchanged", dq, dselector), dwr

    return kernel


ALIKE = {"layout": "bthd", "sizes": sizes(2, 6, 3, 4, r=3, c=4)}
right("compositional_right", compositional, "compositional", **ALIKE, keep="qk", dropout="bhqk")
wrongs(compositional, "compositional", "compositional", ALIKE, [
    ("retrievals_exchanged", "Search and retrieval are exchanged in the retrievals.", "forward (4)"),
    ("key_map_not_transposed", "The key map is not transposed where it meets the selector, in the forward alone.",
     "forward (5)"),
    ("softmax_over_searches", "The value scores are normalised over the searches; the backward too.",
     "forward (6), backward (6)", {"sizes": sizes(3, 6, 3, 4, r=3, c=4)}),
    ("dkey_map_transposed", "The gradient of the key map comes out transposed.", "backward (5)"),
    ("g_exchanged", "The value scores are transposed, search and retrieval, where dt is made of do.", "backward (7)",
     {"keep": "qk"}),
    ("dv_of_searches", "dv is summed over the retrievals and keeps the searches.", "backward (4)",
     {"sizes": sizes(2, 5, 4, 3, r=4, c=3)}),
    ("dq_dselector_exchanged", "dq and dselector come back in each other's place.", "backward (1), backward (5)"),
])
