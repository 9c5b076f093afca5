"""Somebody else's attention kernel against ours: which entry is wrong, by how much, and what was forgotten.

A PyTorch kernel, forward and backward (`EXAMPLE` below; the tests run it where PyTorch is installed):

    import torch
    from refattn import check

    def kernel(q, k, v, bias, do):                          # yours; NumPy arrays come in
        q, k, v, bias = (torch.from_numpy(x).requires_grad_() for x in (q, k, v, bias))
        s = q @ k.mT / q.shape[-1] ** 0.5 + bias
        a = s * (s.square().mean(1, keepdim=True) + 1e-6).rsqrt()
        z = torch.einsum("bhqk,bhke->bqke", a, v).relu()
        o = torch.einsum("bhqk,bqke->bhqe", a, z)
        o.backward(torch.from_numpy(do))
        return o, q.grad, k.grad, v.grad, bias.grad

    print(check.compare(kernel, "hyla", layout="bhtd", bias="hqk"))
    print(check.diagnose(kernel, "hyla", layout="bhtd", bias="hqk"))
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from .. import plain
from ..attention.pages import page as variant_row
from ..bugs import BUGS, load
from ..cases.case import normal, shape

EXAMPLE = "".join(line[4:] for line in __doc__.splitlines(keepends=True) if line.startswith("    ") or line == "\n")
SIZES = {"b": 2, "q": 5, "k": 7, "h": 3, "d": 4, "e": 6, "r": 8, "c": 9, "f": 10, "w": 3, "1": 1}
WORST, MEAN = 4, 0.5           # how far, in error bars, results may be from those of the bug that is named
ROWS = {"o": 1, "dq": 1, "dk": 1, "dv": 1, "dbias": -2}     # the axis whose entries are judged by themselves


class Entry(NamedTuple):
    """One output or gradient: its worst entry, measured against what is allowed there."""
    name: str
    ok: bool
    error: float
    allowed: float
    where: str
    theirs: float
    ours: float

    def __str__(self):
        if self.ok:
            return f"agrees  error {self.error:.1e}, allowed {self.allowed:.1e}, at {self.where}"
        return (f"WRONG   at {self.where}: theirs {self.theirs:.6g}, ours {self.ours:.6g}; "
                f"error {self.error:.1e}, allowed {self.allowed:.1e}")


class Comparison(NamedTuple):
    """What `compare` found.  Prints as one line for each array."""
    variant: str
    dtype: str
    entries: tuple[Entry, ...]

    @property
    def ok(self) -> bool:
        """Whether every output and gradient agrees."""
        return all(entry.ok for entry in self.entries)

    def __str__(self):
        width = max(6, *(len(entry.name) for entry in self.entries))
        return "\n".join([f"{self.variant}, {self.dtype}, against refattn in float64",
                          *(f"{entry.name:{width}} {entry}" for entry in self.entries)])


class Diagnosis(NamedTuple):
    """What `diagnose` found: sentences of planted bugs that have the same outputs and gradients."""
    comparison: Comparison
    sentences: tuple[str, ...]

    def __str__(self):
        if self.comparison.ok:
            return "no mistake: every output and gradient agrees"
        return "\nor: ".join(self.sentences) or "none of the known mistakes"


def compare(theirs, variant="hyla", *, dtype="float32", layout="bthd", bias=None, keep=None, dropout=None, sizes=None,
            seed=0) -> Comparison:
    """Hold a kernel, or arrays that it has computed, against `variant` in float64.

    theirs  : a function of NumPy arrays, theirs(q, k, v, do=do) -> o, dq, dk, dv or o alone; with `bias`, `keep`,
              `dropout` it is called with these keywords too, and a bias's gradient comes last.  Or a mapping with q, k,
              v, do (bias, keep, dropout) and what they gave: o, dq, dk, dv, dbias, as far as there.
              Results may be arrays of NumPy, PyTorch, JAX or CuPy, on any device.
    dtype   : float64, float32, float16 or bfloat16: what the inputs are rounded to and the error bar is made for.
              NumPy has no bfloat16, so those inputs come as float32 with bfloat16 values.
    layout  : the order of batch b, position t, head h and feature d in q, k, v, o, do and their gradients, "bhtd" say
    bias    : None, or the axes that it has, such as "hqk" or "b11k"; with 1 for a stretched axis.  keep and dropout
              likewise; all three broadcast to (b, h, q, k).  Where a keep has the axis q, query 2 keeps nothing.
    sizes   : sizes other than b 2, q 5, k 7, h 3, d 4, e 6, as in {"q": 16, "d": 64}; of compositional attention also
              r 8, c 9, f 10, its h being s and the h of its values r; selector (b, q, s, c) and what scores follow v;
              of sliding-dilated attention (dilation 2, queries at the last positions) w 3 offsets, the last axis of
              bias, keep and dropout too; offset_bias (h, w), and with pads pad_k (h, d), pad_v (h, e) follow v

    One query (number 1) is a hundred times smaller than the others, because there an epsilon shows.  The error bar of
    each row (a query of o, dq and dbias, a key of dk and dv) is eight times the error of our own plain formulas with
    every contraction rounded to `dtype`, plus four units in the last place of the row's largest entry.

    Raises ValueError for unknown names and for results that are not as described.
    """
    return _report(*_results(theirs, variant, dtype, layout, bias, keep, dropout, sizes, seed), variant, dtype)[0]


def diagnose(theirs, variant="hyla", **options) -> Diagnosis:
    """Name the mistake: the planted bugs of `refattn.bugs` whose outputs and gradients are theirs.

    Takes what `compare` takes; give `bias`, `keep` and `dropout` if the kernel takes them: what is not used cannot
    be diagnosed.  A bug is named only if its results are theirs (root mean square of half an error bar, no entry beyond
    four) and ours are at least twice as far away; the best fit is named, together with those up to twice as far, which
    these inputs do not tell apart.
    """
    settings = {"dtype": "float32", "layout": "bthd", "bias": None, "keep": None, "dropout": None, "sizes": None,
                "seed": 0, **options}
    unknown = settings.keys() - {"dtype", "layout", "bias", "keep", "dropout", "sizes", "seed"}
    if unknown:
        raise TypeError(f"diagnose does not take {', '.join(sorted(unknown))}")
    inputs, results = _results(theirs, variant, **settings)
    comparison, ours, noise = _report(inputs, results, variant, settings["dtype"])
    own, row, fits = _distance(results, ours, ours, noise, settings["dtype"])[1], variant_row(variant), []
    files = {"ops.py", "contract.py", *(f"attention/{file}" for file in (row.file, *row.parts))}
    for bug in () if comparison.ok else BUGS:
        if bug.file in files:
            wrong = _quietly(lambda package: _ours(inputs, package.attention.pages.page(_name(variant))), load(bug))
            worst, mean = _distance(results, wrong, ours, noise, settings["dtype"]) if wrong else (np.inf, np.inf)
            if worst <= WORST and mean <= min(MEAN, own / 2):
                fits.append((mean, bug.sentence))
    best = min(fits, default=(0, ""))[0]
    return Diagnosis(comparison, tuple(dict.fromkeys(sentence for mean, sentence in sorted(fits) if mean <= 2 * best)))


def _name(variant):
    return variant if isinstance(variant, str) else tuple(variant)


def _quietly(f, x):
    """f(x), or None where the bug cannot run on these inputs."""
    try:
        with np.errstate(all="ignore"):
            return f(x)
    except (ValueError, TypeError, IndexError):
        return None


# --------------------------------------------------------------------------------------------------- inputs and results


def _draw(row, dtype, forms, sizes, seed):
    """Inputs by name, float64 with values of `dtype`; None where there is none."""
    unknown = (sizes or {}).keys() - SIZES.keys()
    if unknown:
        raise ValueError(f"sizes has the unknown axis {', '.join(map(repr, unknown))}; allowed: {', '.join(SIZES)}")
    size, rng = {**SIZES, **(sizes or {})}, np.random.default_rng(seed)
    inputs = {x: normal(rng, row.axes[x], size) for x in ("q", "k", "v", *row.extras)}
    inputs["do"] = normal(rng, row.axes["output"], size)
    for name, form in forms.items():
        if form is None:
            continue
        pairs = row.axes[name]
        if len(form) > 4 or any(x not in ("1", y) for x, y in zip(form[::-1], pairs[::-1], strict=False)):
            raise ValueError(f"{name} is {form!r}; allowed: the last axes of {pairs!r}, or 1 for a stretched one: "
                             f"'h1{pairs[-1]}'")
        x = rng.random(shape(form, size))
        inputs[name] = {"bias": normal(rng, form, size), "keep": x < 0.7, "dropout": (x < 0.75) / 0.75}[name]
        if name != "dropout" and "q" in form:
            inputs[name][..., 2 if name == "keep" else 1, :] *= False if name == "keep" else 0.01
    inputs["q"][:, 1] *= 0.01
    return {n: x if x.dtype == bool else plain.rounded(x, dtype) for n, x in inputs.items()}


def _host(x):
    """An array of any library as float64 on the host."""
    if hasattr(x, "detach"):                                    # PyTorch
        x = x.detach().cpu()
        x = x.float() if "bfloat16" in str(x.dtype) else x
    elif hasattr(x, "get") and not isinstance(x, np.ndarray):   # CuPy
        x = x.get()
    elif hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
        x = np.from_dlpack(x)
    x = np.asarray(x)
    return x if x.dtype == bool else x.astype(np.float64)


def _axes(layout):
    if sorted(layout) != sorted("bthd"):
        raise ValueError(f"layout {layout!r} is unknown; allowed: b, t, h, d in any order, as in 'bhtd'")
    return ["bthd".index(x) for x in layout]


def _results(theirs, variant, dtype, layout, bias, keep, dropout, sizes, seed):
    """(inputs, their results), both by name, in our layout and in float64."""
    row, axes = variant_row(variant), _axes(layout)
    plain.rounded(np.zeros(1), dtype)                           # knows the names
    names = ["o", "dq", "dk", "dv", *(["dbias"] if bias else []), *(f"d{x}" for x in row.extras)]

    def back(name, x):
        x = _host(x)
        return x.transpose(np.argsort(axes)) if name.lstrip("d") in "qkvo" and x.ndim == 4 else x

    if isinstance(theirs, Mapping):
        if not {"q", "k", "v"} <= theirs.keys() or not {"o", "dq", "dk", "dv"} & theirs.keys():
            raise ValueError(f"theirs has {', '.join(theirs)}; q, k, v and at least one of o, dq, dk, dv are needed")
        given = {n: back(n, x) for n, x in theirs.items() if x is not None}
        inputs = {n: given[n] for n in ("q", "k", "v", *row.extras, "do", "bias", "keep", "dropout") if n in given}
        return inputs, {n: x for n, x in given.items() if n not in inputs}
    inputs = _draw(row, dtype, {"bias": bias, "keep": keep, "dropout": dropout}, sizes, seed)
    storage = "float32" if dtype == "bfloat16" else dtype
    handed = {n: x.astype(bool if x.dtype == bool else storage) for n, x in inputs.items()}
    handed |= {n: np.ascontiguousarray(handed[n].transpose(axes)) for n in ("q", "k", "v", "do")}
    results = theirs(*[handed.pop(n) for n in ("q", "k", "v", *row.extras)], **handed)
    results = results if isinstance(results, tuple | list) else (results,)
    if len(results) not in (1, len(names)):
        raise ValueError(f"theirs returned {len(results)} arrays; o alone, or {', '.join(names)}, is needed")
    return inputs, {n: back(n, x) for n, x in zip(names, results, strict=False)}


def _ours(inputs, row) -> dict:
    """o and, where do is given, every gradient."""
    inputs = {name: x.copy() for name, x in inputs.items()}     # some bugs write into them
    do, arrays = inputs.pop("do", None), [inputs.pop(x) for x in ("q", "k", "v", *row.extras)]
    o, saved = row.forward(*arrays, **inputs)
    if do is None:
        return {"o": o}
    gradients = dict(zip(["dq", "dk", "dv", "dbias", *(f"d{x}" for x in row.extras)], row.backward(saved, do),
                         strict=False))
    return {"o": o, **{n: g for n, g in gradients.items() if g is not None}}


# ------------------------------------------------------------------------------------------------------------ error bar


def _largest(name, x):
    """The largest magnitude of each row, in a shape that broadcasts against x."""
    row = ROWS.get(name)
    axes = tuple(i for i in range(x.ndim) if row is None or i != row % x.ndim) if x.ndim > 1 else None
    return np.abs(x).max(axis=axes, keepdims=True)


def _noise(inputs, variant, dtype, ours) -> dict:
    """The error of the plain formulas when every contraction is rounded to the precision, row by row."""
    rough = _ours(inputs, plain.package(dtype).attention.pages.page(_name(variant)))
    whole = max(np.abs(x).max() for x in ours.values())
    zero = {n: np.abs(x).max() <= 1e-12 * whole for n, x in ours.items()}       # by theory: only rounding is left of it
    return {n: _largest(n, rough[n] - x) + zero[n] * 4 * plain.EPSILON[dtype] * whole for n, x in ours.items()}


def _allowed(name, expected, ours, noise, dtype):
    """The error bar around `expected`: the noise of our formula, scaled where another one is larger, and rounding."""
    top, own = _largest(name, expected), _largest(name, ours)
    growth = np.maximum(top / np.where(own > 0, own, np.where(top > 0, top, 1)), 1)
    return 8 * noise * growth + 4 * plain.EPSILON[dtype] * (top + np.abs(expected).max() / 1000)


def _distance(results, expected, ours, noise, dtype):
    """(largest, root mean square) of the differences, in units of the error bar; NaN equals NaN only."""
    ratios = []
    for name, x in results.items():
        y = expected[name]
        if x.shape != y.shape or (np.isfinite(x) != np.isfinite(y)).any():
            return np.inf, np.inf
        x, y = (np.where(np.isfinite(z), z, 0) for z in (x, y))
        bar = _allowed(name, y, *((ours[name], noise[name]) if y.shape == ours[name].shape else (y, 0)), dtype)
        ratios.append((np.abs(x - y) / np.where(bar > 0, bar, 1e-300)).ravel())
    ratios = np.concatenate(ratios)
    return float(ratios.max()), float(np.sqrt((np.minimum(ratios, 1e100) ** 2).mean()))


def _report(inputs, results, variant, dtype):
    """The Comparison, and our results and the noise that it rests on."""
    row = variant_row(variant)
    ours = _ours(inputs, row)
    noise = _noise(inputs, variant, dtype, ours)
    letters = {"o": "bqhe", **{f"d{n}": x for n, x in row.axes.items()}}
    entries = []
    for name, x in results.items():
        if name not in ours:
            raise ValueError(f"theirs gave {name}; known here: {', '.join(ours)} (gradients need do, dbias a bias)")
        expected = ours[name]
        if x.shape != expected.shape:
            shapes = f"shape {x.shape} instead of {expected.shape}"
            entries.append(Entry(name, False, np.inf, 0.0, shapes, np.nan, np.nan))
            continue
        error = np.abs(x - expected)
        error = np.where(np.isnan(error), np.inf, error)
        bar = np.broadcast_to(_allowed(name, expected, expected, noise[name], dtype), x.shape)
        at = np.unravel_index((error / np.where(bar > 0, bar, 1e-300)).argmax(), x.shape)
        where = ", ".join(f"{letter}={i}" for letter, i in zip(letters[name][-x.ndim:], at, strict=True))
        entries.append(Entry(name, bool(error[at] <= bar[at]), float(error[at]), float(bar[at]), where, float(x[at]),
                             float(expected[at])))
    return Comparison(str(variant), dtype, tuple(entries)), ours, noise
