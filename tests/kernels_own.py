"""Kernels with one mistake each, as somebody writes them: `check.diagnose` must find the line.

A kernel is a text that runs on PyTorch and on NumPy (`xp`), and a row says what stands in it instead of what.  Rows
whose line is in the forward come twice: with the right backward of the page, and, on PyTorch, with autograd through
what was written.  The bank was written before the grammar of mistakes; names were not tuned to single rows.
"""

from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    name: str
    as_: str
    function: Any
    line: str                  # "forward (3)", "backward (5)"; "" for a right kernel
    what: str


HYLA = """
def forward(q, k, v, bias, keep, dropout):
    s = xp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    s = s + bias
    s = xp.where(keep, s, 0 * s)
    mean = (s ** 2).mean(1, keepdims=True)
    a = s / (mean + 1e-6) ** 0.5
    c = a * dropout
    z = xp.einsum("bhqk,bkhe->bqke", c, v)
    g = z * (z > 0)
    o = xp.einsum("bhqk,bqke->bqhe", c, g)
    return o, (mean, a, z)

def backward(q, k, v, bias, keep, dropout, o, saved, do):
    mean, a, z = saved
    c = a * dropout
    g = z * (z > 0)
    rho = (mean + 1e-6) ** -0.5
    dg = xp.einsum("bhqk,bqhe->bqke", c, do)
    dc_out = xp.einsum("bqhe,bqke->bhqk", do, g)
    dz = dg * (z > 0)
    dc_in = xp.einsum("bqke,bkhe->bhqk", dz, v)
    dc = dc_out + dc_in
    dv = xp.einsum("bhqk,bqke->bkhe", c, dz)
    da = dc * dropout
    dot = (a * da).mean(1, keepdims=True)
    ds = rho * (da - a * dot)
    ds = xp.where(keep, ds, 0 * ds)
    dq = xp.einsum("bhqk,bkhd->bqhd", ds, k) / q.shape[-1] ** 0.5
    dk = xp.einsum("bhqk,bqhd->bkhd", ds, q) / q.shape[-1] ** 0.5
    return dq, dk, dv, ds
"""
SOFTMAX = """
def forward(q, k, v, bias, keep, dropout):
    s = xp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5 + bias
    s = xp.where(keep, s, -30000.0 + 0 * s)
    e = xp.exp(s) * keep
    total = e.sum(-1, keepdims=True)
    a = e / xp.where(total == 0, 1 + 0 * total, total)
    c = a * dropout
    o = xp.einsum("bhqk,bkhe->bqhe", c, v)
    return o, (a,)

def backward(q, k, v, bias, keep, dropout, o, saved, do):
    a, = saved
    c = a * dropout
    dc = xp.einsum("bqhe,bkhe->bhqk", do, v)
    dv = xp.einsum("bhqk,bqhe->bkhe", c, do)
    da = dc * dropout
    delta = xp.einsum("bqhe,bqhe->bhq", do, o)[:, :, :, None]
    ds = a * (da - delta)
    dq = xp.einsum("bhqk,bkhd->bqhd", ds, k) * q.shape[-1] ** -0.5
    dk = xp.einsum("bhqk,bqhd->bkhd", ds, q) * q.shape[-1] ** -0.5
    return dq, dk, dv, ds
"""
LINEAR = """
def forward(q, k, v, bias, keep, dropout):
    s = xp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5 + bias
    a = s * keep
    c = a * dropout
    o = xp.einsum("bhqk,bkhe->bqhe", c, v)
    return o, (a,)

def backward(q, k, v, bias, keep, dropout, o, saved, do):
    a, = saved
    dc = xp.einsum("bqhe,bkhe->bhqk", do, v)
    dv = xp.einsum("bhqk,bqhe->bkhe", a * dropout, do)
    ds = dc * dropout * keep
    dq = xp.einsum("bhqk,bkhd->bqhd", ds, k) * q.shape[-1] ** -0.5
    dk = xp.einsum("bhqk,bqhd->bkhd", ds, q) * q.shape[-1] ** -0.5
    return dq, dk, dv, ds
"""
COMPOSITIONAL = """
def forward(q, k, v, selector, wr, bias, keep, dropout):
    s = xp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5 + bias
    e = xp.exp(s) * keep
    total = e.sum(-1, keepdims=True)
    a = e / xp.where(total == 0, 1 + 0 * total, total)
    c = a * dropout
    t = xp.einsum("bhqk,bkre->bqhre", c, v)
    key = xp.einsum("bqhre,ec->bqhrc", t, wr)
    l = xp.einsum("bqhc,bqhrc->bqhr", selector, key) * selector.shape[-1] ** -0.5
    g = xp.exp(l)
    g = g / g.sum(-1, keepdims=True)
    o = xp.einsum("bqhr,bqhre->bqhe", g, t)
    return o, (a, t, key, g)

def backward(q, k, v, selector, wr, bias, keep, dropout, o, saved, do):
    a, t, key, g = saved
    c = a * dropout
    dg = xp.einsum("bqhe,bqhre->bqhr", do, t)
    dl = g * (dg - (g * dg).sum(-1, keepdims=True)) * selector.shape[-1] ** -0.5
    dselector = xp.einsum("bqhr,bqhrc->bqhc", dl, key)
    dkey = xp.einsum("bqhr,bqhc->bqhrc", dl, selector)
    dwr = xp.einsum("bqhre,bqhrc->ec", t, dkey)
    dt = xp.einsum("bqhrc,ec->bqhre", dkey, wr)
    dt = dt + xp.einsum("bqhr,bqhe->bqhre", g, do)
    dc = xp.einsum("bqhre,bkre->bhqk", dt, v)
    dv = xp.einsum("bhqk,bqhre->bkre", c, dt)
    da = dc * dropout
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dq = xp.einsum("bhqk,bkhd->bqhd", ds, k) * q.shape[-1] ** -0.5
    dk = xp.einsum("bhqk,bqhd->bkhd", ds, q) * q.shape[-1] ** -0.5
    return dq, dk, dv, ds, dselector, dwr
"""
SLIDING = """
def places(q, k, w):
    n = xp.arange(q)[:, None] + k - q - 2 * xp.arange(w)
    return n, n >= 0

def forward(q, k, v, r, bias, keep, dropout):
    n, there = places(q.shape[1], k.shape[1], r.shape[1])
    kn, vn = k[:, n * there], v[:, n * there]
    s = xp.einsum("bqhd,bqwhd->bhqw", q, kn) * q.shape[-1] ** -0.5
    s = s + r[:, None, :] + bias
    e = xp.exp(s) * (keep & there)
    total = e.sum(-1, keepdims=True)
    a = e / xp.where(total == 0, 1 + 0 * total, total)
    c = a * dropout
    o = xp.einsum("bhqw,bqwhe->bqhe", c, vn)
    return o, (a, kn, vn, n * there)

def backward(q, k, v, r, bias, keep, dropout, o, saved, do):
    a, kn, vn, n = saved
    c = a * dropout
    dc = xp.einsum("bqhe,bqwhe->bhqw", do, vn)
    da = dc * dropout
    ds = a * (da - (a * da).sum(-1, keepdims=True))
    dr = ds.sum((0, 2))
    dq = xp.einsum("bhqw,bqwhd->bqhd", ds, kn) * q.shape[-1] ** -0.5
    dkn = xp.einsum("bhqw,bqhd->bqwhd", ds, q) * q.shape[-1] ** -0.5
    dvn = xp.einsum("bhqw,bqhe->bqwhe", c, do)
    dk, dv = 0 * k, 0 * v
    for i in range(n.shape[0]):
        for j in range(n.shape[1]):
            dk[:, n[i, j]] += dkn[:, i, j]
            dv[:, n[i, j]] += dvn[:, i, j]
    return dq, dk, dv, ds, dr
"""
TEXTS = {"hyla": HYLA, "softmax": SOFTMAX, "linear": LINEAR, "compositional": COMPOSITIONAL, "sliding_dilated": SLIDING}

ROWS = [                       # page, old text, new text, line, what is wrong
    ("hyla", "/ q.shape[-1] ** 0.5\n    s = s + bias", "\n    s = s + bias", "forward (1)", "no 1/sqrt(d)"),
    ("hyla", "k) / q.shape[-1] ** 0.5\n    s = s + bias", "k) / q.shape[-1]\n    s = s + bias", "forward (1)",
     "divided by d"),
    ("hyla", "s = s + bias", "s = s + bias / q.shape[-1] ** 0.5", "forward (1)", "the bias is scaled"),
    ("hyla", "s = s + bias", "s = s - bias", "forward (1)", "the sign of the bias"),
    ("hyla", "s = xp.where(keep, s, 0 * s)", "pass", "forward (2)", "no keep"),
    ("hyla", "mean = (s ** 2).mean(1, keepdims=True)", "mean = (s ** 2).sum(1, keepdims=True)", "forward (3)",
     "sum for mean over heads"),
    ("hyla", "mean = (s ** 2).mean(1, keepdims=True)", "mean = (s ** 2).mean(3, keepdims=True)", "forward (3)",
     "RMS over keys"),
    ("hyla", "a = s / (mean + 1e-6) ** 0.5", "a = s / (mean + 1e-5) ** 0.5", "forward (3)", "epsilon 1e-5"),
    ("hyla", "a = s / (mean + 1e-6) ** 0.5", "a = s / (mean ** 0.5 + 1e-6)", "forward (3)", "epsilon outside"),
    ("hyla", 'z = xp.einsum("bhqk,bkhe->bqke", c, v)', 'z = xp.einsum("bhqk,bkhe->bqke", a, v)', "forward (5)",
     "dropout missing in the first use"),
    ("hyla", "g = z * (z > 0)\n    o", "g = z\n    o", "forward (6)", "no relu"),
    ("hyla", "g = z * (z > 0)\n    o", "g = xp.where(z > 0, z, 0.01 * z)\n    o", "forward (6)", "leaky relu"),
    ("hyla", 'o = xp.einsum("bhqk,bqke->bqhe", c, g)', 'o = xp.einsum("bhqk,bqke->bqhe", c, z)', "forward (7)",
     "z in place of relu(z)"),
    ("hyla", "dc = dc_out + dc_in", "dc = dc_out", "backward (5)", "first use's gradient missing"),
    ("hyla", "dc = dc_out + dc_in", "dc = dc_in", "backward (7)", "second use's gradient missing"),
    ("hyla", "dz = dg * (z > 0)", "dz = dg", "backward (6)", "no slope of the relu"),
    ("hyla", "da = dc * dropout", "da = dc", "backward (4)", "no dropout in da"),
    ("hyla", "dot = (a * da).mean(1, keepdims=True)", "dot = (a * da).sum(1, keepdims=True)", "backward (3)",
     "sum for mean over heads"),
    ("hyla", "ds = rho * (da - a * dot)", "ds = rho * da", "backward (3)", "rho held constant"),
    ("hyla", "ds = rho * (da - a * dot)", "ds = rho * (da + a * dot)", "backward (3)", "a sign"),
    ("hyla", "ds = rho * (da - a * dot)", "ds = da - a * dot", "backward (3)", "rho missing"),
    ("hyla", 'dq = xp.einsum("bhqk,bkhd->bqhd", ds, k) / q.shape[-1] ** 0.5',
     'dq = xp.einsum("bhqk,bkhd->bqhd", ds, k)', "backward (1)", "dq unscaled"),
    ("hyla", 'dv = xp.einsum("bhqk,bqke->bkhe", c, dz)', 'dv = xp.einsum("bhqk,bqke->bkhe", a, dz)', "backward (5)",
     "dv without dropout"),
    ("hyla", 'dv = xp.einsum("bhqk,bqke->bkhe", c, dz)',
     'dv = xp.einsum("bhqk,bqke->bkhe", c[:, :, :4], dz[:, :4])', "backward (5)", "the last tile of queries is lost"),
    ("softmax", "s = xp.where(keep, s, -30000.0 + 0 * s)\n    e = xp.exp(s) * keep", "e = xp.exp(s)", "forward (2)",
     "keep missing"),
    ("softmax", "total = e.sum(-1, keepdims=True)", "total = e.sum(-2, keepdims=True)", "forward (2)", "over queries"),
    ("softmax", "c = a * dropout\n    o", "c = a\n    o", "forward (3)", "no dropout"),
    ("softmax", 'o = xp.einsum("bhqk,bkhe->bqhe", c, v)', 'o = xp.einsum("bhqk,bkhe->bqhe", c[..., 1:], v[:, 1:])',
     "forward (4)", "the first key is skipped"),
    ("softmax", "* q.shape[-1] ** -0.5 + bias", "* (q.shape[2] * q.shape[-1]) ** -0.5 + bias", "forward (1)",
     "the model's width in the scale"),
    ("softmax", "s = xp.einsum(", "s = 1.25 * xp.einsum(", "forward (1)", "scores too large"),
    ("softmax", "ds = a * (da - delta)", "ds = a * da", "backward (2)", "no delta"),
    ("softmax", "ds = a * (da - delta)", "ds = c * (da - delta)", "backward (2)", "the code after dropout"),
    ("softmax", "da = dc * dropout", "da = dc * dropout * dropout", "backward (3)", "dropout twice"),
    ("softmax", 'dv = xp.einsum("bhqk,bqhe->bkhe", c, do)', 'dv = xp.einsum("bhqk,bqhe->bkhe", a, do)', "backward (4)",
     "dv without dropout"),
    ("softmax", 'dk = xp.einsum("bhqk,bqhd->bkhd", ds, q) * q.shape[-1] ** -0.5',
     'dk = xp.einsum("bhqk,bqhd->bkhd", ds, q) / q.shape[-1]', "backward (1)", "dk scaled twice"),
    ("softmax", 'dc = xp.einsum("bqhe,bkhe->bhqk", do, v)',
     'dc = xp.einsum("bqhe,bkhe->bhqk", do, v) * (xp.arange(k.shape[1]) < k.shape[1] - 1)',
     "backward (4)", "the last key gets no dc"),
    ("linear", "a = s * keep", "a = s", "forward (2)", "keep missing"),
    ("linear", "ds = dc * dropout * keep", "ds = dc * dropout", "backward (2)", "keep missing backward"),
    ("linear", "ds = dc * dropout * keep", "ds = dc * keep", "backward (3)", "dropout missing backward"),
    ("compositional", "l = xp.einsum(\"bqhc,bqhrc->bqhr\", selector, key) * selector.shape[-1] ** -0.5",
     "l = xp.einsum(\"bqhc,bqhrc->bqhr\", selector, key) * q.shape[-1] ** -0.5", "forward (5)", "d for c"),
    ("compositional", "g = g / g.sum(-1, keepdims=True)", "g = g / g.sum(-2, keepdims=True)", "forward (6)",
     "over searches"),
    ("compositional", 't = xp.einsum("bhqk,bkre->bqhre", c, v)', 't = xp.einsum("bhqk,bkre->bqhre", a, v)',
     "forward (4)", "before dropout"),
    ("compositional", "dt = dt + xp.einsum(", "dt = xp.einsum(", "backward (5)", "value scores' gradient missing"),
    ("compositional", "dl = g * (dg - (g * dg).sum(-1, keepdims=True))", "dl = g * dg", "backward (6)", "no sum"),
    ("compositional", 'dv = xp.einsum("bhqk,bqhre->bkre", c, dt)', 'dv = xp.einsum("bhqk,bqhre->bkre", a, dt)',
     "backward (4)", "before dropout"),
    ("sliding_dilated", "s = s + r[:, None, :] + bias", "s = s + r[:, None, :] * q.shape[-1] ** -0.5 + bias",
     "forward (2)", "r is scaled"),
    ("sliding_dilated", "- 2 * xp.arange(w)", "- xp.arange(w)", "forward (1)", "dilation 1"),
    ("sliding_dilated", "e = xp.exp(s) * (keep & there)", "e = xp.exp(s) * keep", "forward (4)", "no left edge"),
    ("sliding_dilated", "dr = ds.sum((0, 2))", "dr = ds.mean((0, 2))", "backward (2)", "mean for sum"),
    ("sliding_dilated", "dk[:, n[i, j]] += dkn", "dk[:, n[i, j]] = dkn", "backward (1)", "duplicates lost"),
    ("sliding_dilated", "da = dc * dropout", "da = dc", "backward (5)", "no dropout"),
]


def function(page, source, xp, autograd=None):
    """A kernel for `check.compare`; with a right text beside a wrong forward, the gradients are those of the right one.

    `autograd`: gradients of what was written, by PyTorch.
    """
    texts = {"own": {"xp": xp}, "right": {"xp": xp}}
    exec(source, texts["own"])
    exec(TEXTS[page], texts["right"])
    own, right = texts["own"], texts["right"]

    def kernel(q, k, v, *extras, do, bias=None, keep=None, dropout=None):
        if xp is not np:
            given = [xp.as_tensor(x) if x is not None else None for x in (q, k, v, *extras, do, bias, keep, dropout)]
            q, k, v, *extras, do, bias, keep, dropout = given
        width = extras[0].shape[1] if page == "sliding_dilated" else k.shape[1]
        full = (q.shape[0], q.shape[2], q.shape[1], width)
        zero, one = 0 * q.sum(), 0 * q.sum() + 1
        options = [xp.broadcast_to(x, full) for x in (zero if bias is None else bias,
                   (one > 0) if keep is None else keep, one if dropout is None else dropout)]
        if autograd:
            leaves = [x.clone().requires_grad_() for x in (q, k, v, *extras, zero if bias is None else bias)]
            *arrays, b = leaves
            o, _ = own["forward"](*arrays, xp.broadcast_to(b, full), *options[1:])
            grads = xp.autograd.grad(o, leaves, do, allow_unused=True)
            grads = [xp.zeros_like(x) if g is None else g for x, g in zip(leaves, grads, strict=True)]
            dq, dk, dv, *dextras, db = grads
            return o.detach(), dq, dk, dv, *([] if bias is None else [db]), *dextras
        o, saved = own["forward"](q, k, v, *extras, *options)
        if source.partition("def backward")[0] != TEXTS[page].partition("def backward")[0]:
            saved = right["forward"](q, k, v, *extras, *options)[1]
        o_right = right["forward"](q, k, v, *extras, *options)[0]
        dq, dk, dv, ds, *dextras = own["backward"](q, k, v, *extras, *options, o_right, saved, do)
        if bias is None:
            return o, dq, dk, dv, *dextras
        db = ds.sum(tuple(range(4 - bias.ndim))) if bias.ndim < 4 else ds
        for i, n in enumerate(bias.shape):
            db = db.sum(i, keepdims=True) if n == 1 else db
        return o, dq, dk, dv, db, *dextras
    return kernel


def cases(xp=np):
    """Every row, forward ones with autograd too where `xp` is PyTorch; and every page without a mistake."""
    for page, old, new, line, what in ROWS:
        if TEXTS[page].count(old) != 1:
            raise ValueError(f"{page} has {TEXTS[page].count(old)} times, not once, the text {old!r}")
        source = TEXTS[page].replace(old, new)
        yield Case(f"{page}: {what}", page, function(page, source, xp), line, what)
        if xp is not np and line.startswith("forward"):
            yield Case(f"{page}: {what}, autograd", page, function(page, source, xp, autograd=True), line, what)
    for page, text in TEXTS.items():
        yield Case(f"{page}, right", page, function(page, text, xp), "", "")
        if xp is not np:
            yield Case(f"{page}, right, autograd", page, function(page, text, xp, autograd=True), "", "")


CASES = list(cases())
