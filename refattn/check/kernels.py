"""Somebody else's attention kernel against ours: which entry is wrong, by how much, and what was forgotten.

A PyTorch kernel, forward and backward (the tests run it where PyTorch is installed):

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
from functools import partial
from inspect import Parameter, signature
from traceback import extract_tb
from typing import NamedTuple

import numpy as np

from ..checks import check_choice, check_integer, check_switches
from ..refusals import unknown
from ..verification import rounding
from .formulas import OPTIONS, formulas, with_log
from .running import Runner, evaluated
from .subjects import Subject, drawn, masked, subject

__all__ = ["Comparison", "Entry", "compare", "pytest_params"]

HOUSE = __file__.rpartition("check")[0]
FURTHER = 8                    # draws of a row among which each option is looked for
ATOMIC = 32                    # units of the largest entry by which sums in an order of chance may differ
CHANCE, MORE = 0.01, 16        # a share of entries that may be off by chance, and the pairs of evaluations asked then


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
        if np.isnan(self.ours):
            return f"WRONG   {self.where}"
        yours, ours = next(x for n in (6, 9, 17) if len(set(x := (f"{self.theirs:.{n}g}", f"{self.ours:.{n}g}"))) > 1)
        return (f"WRONG   at {self.where}: yours {yours}, refattn {ours}; "
                f"error {self.error:.1e}, allowed {self.allowed:.1e}")


class Comparison(NamedTuple):
    """What `compare` found.  Prints as a heading, a line for each array, and one that says what is allowed."""
    variant: str
    dtype: str
    entries: tuple[Entry, ...]
    allowed: str
    again: bool = False        # whether of the second answer to the same inputs, the first being right
    settings: str = ""         # of a row of `verification.cases`, beside its inputs

    @property
    def ok(self) -> bool:
        """Whether every output and gradient agrees."""
        return all(entry.ok for entry in self.entries)

    def __str__(self):
        width = max(6, *(len(entry.name) for entry in self.entries))
        second = ": the second answer to the same inputs, the first agrees" * self.again
        settings = [f"settings: {self.settings}"] if self.settings else []
        return "\n".join([f"{self.variant}, {self.dtype}, against refattn in float64{second}", *settings,
                          *(f"{entry.name:{width}} {entry}" for entry in self.entries), self.allowed])


def compare(theirs, variant="hyla", *, dtype="float32", layout="bthd", bias=None, keep=None, dropout=None, causal=False,
            sizes=None, seed=0, naive=False) -> Comparison:
    """Hold a kernel, or arrays that it has computed, against `variant` in float64.

    theirs  : a function of NumPy arrays, theirs(q, k, v, do=do) -> o, dq, dk, dv or o alone (then it need not take
              do); with `bias`, `keep`, `dropout` it is called with these keywords too, and a bias's gradient comes
              next, those of further inputs last.  It may return a mapping by these names instead, with softmax's
              `lse` (b, h, q), log sum exp, too.
              Or a mapping with q, k, v, do (bias, keep, dropout) and what they gave, as far as there.
              Results may be arrays of NumPy, PyTorch, JAX or CuPy, on any device.
    variant : a page, such as "hyla"; "linear_state", causal linear attention with a state (b, h, d, e) in and out:
              after v comes `state`, beside do `dend`, and it gives o, end, dq, dk, dv, dstate, or o, end; or a row of
              `verification.cases`, such as "layers/MultiHead hyla" or "ops/layer_norm", called with its inputs and `do`
              by name only
    dtype   : float64, float32, float16 or bfloat16, or np.float32, torch.float32: what the inputs are rounded to and
              the error bar is made for.  NumPy has no bfloat16, so those inputs come as float32 with bfloat16 values.
              In half precision sums and elementwise steps are expected in float32, as in fused kernels, unless `naive`.
    layout  : the order of batch b, position t, head h and feature d in q, k, v, o, do, a selector, and their gradients,
              "bhtd" say
    bias    : None, or the axes that it has, such as "hqk" or "b11k"; with 1 for a stretched axis.  keep and dropout
              likewise; all three broadcast to (b, h, q, k).  Where a keep has the axis q, query 2 keeps nothing.
    causal  : whether query i sees the keys up to i + k - q only; a mask of the kernel's own, not handed over
    sizes   : sizes other than b 3, q 6, k 7, h 5, d 11, e 8, as in {"q": 16, "d": 64}, or "tiles": powers of two for d
              and e, 129 queries, 191 keys (of sliding-dilated attention 130, of linear_state as many as queries); of
              compositional attention also r 4, c 13, f 10, its h being s and the h of its values r; selector (b, q, s,
              c) and what scores follow v; of sliding-dilated attention (dilation 2, queries at the last positions) w 3
              offsets, the last axis of bias, keep and dropout too; offset_bias (h, w), and with pads pad_k (h, d),
              pad_v (h, e) follow v. A row of `verification.cases` keeps its own sizes and axes, whatever sizes and
              layout say

    One query (number 1), or sequence 1 of a row's x, whose mean is near 0, is a hundred times smaller than the others:
    there an epsilon shows.  The kernel is called twice, and both answers are judged.  A row draws its options by
    chance, so it is called with further draws that show those left out along every axis, as far as it takes them, and
    do without those that it has a default for.  The error bar of each entry is measured (`verification.rounding`); the
    report's last line says how.

    Raises ValueError for unknown names, for options, sizes or a seed beside a mapping, for results that are not as
    described, and for a kernel that raises, changes its inputs or answers differently when asked again; TypeError for a
    keep that is not of booleans.
    """
    call = Call(theirs, variant, dtype, layout, bias, keep, dropout, causal, naive)
    if isinstance(theirs, Mapping):
        given = call.forms | {"sizes": sizes, "seed": seed or None}
        if odd := [f"{n} is {x!r}" for n, x in given.items() if x is not None]:
            raise ValueError(f"{odd[0]}, but theirs is a mapping of arrays; allowed: its default")
        return call.report(*call.given())
    reports = [call.report(*answer)._replace(again=i > 0) for s in call.seeds(sizes, seed)
               for i, answer in enumerate(call.twice(call.draw(sizes, s)))]
    return next((report for report in reports if not report.ok), reports[0])


def pytest_params(variant="hyla", options=(*OPTIONS, "causal"), **fixed) -> list:
    """Settings for `compare` as pytest parameters: each option, all of them, a causal mask; in two precisions.

    options : those that the kernel takes

        @pytest.mark.parametrize("settings", check.pytest_params("hyla", layout="bhtd"))
        def test_kernel(settings):
            report = check.compare(kernel, **settings)
            assert report.ok, str(report)

    Raises ValueError for unknown names.
    """
    import pytest
    if off := [n for n in options if n not in (*OPTIONS, "causal")]:
        raise ValueError(unknown("option", off[0], (*OPTIONS, "causal")))
    of = subject(variant)
    forms = {n: of.letters[n] for n in OPTIONS if n in options and n in of.letters and of.arrays}
    ways: dict[str, dict] = {"plain": {}, **{n: {n: form} for n, form in forms.items()}}
    if len(forms) > 1:
        ways["all"] = forms
    if "causal" in options and of.maskable:
        ways["causal"] = {"causal": True}
    dtypes = [fixed["dtype"]] if "dtype" in fixed else ["float32", "float64"]
    return [pytest.param({"variant": variant, "dtype": dtype, **way, **fixed}, id=f"{variant}-{name}-{dtype}")
            for name, way in ways.items() for dtype in dtypes]


class Call:
    """A kernel and how it is called; `call(inputs)` gives results by name in our layout, in float64."""
    def __init__(self, theirs, variant, dtype, layout="bthd", bias=None, keep=None, dropout=None, causal=False,
                 naive=False):
        if sorted(layout or "") != sorted("bthd"):
            raise ValueError(f"layout {layout!r} is unknown; allowed: b, t, h, d in any order, as in 'bhtd'")
        dtype = str(getattr(dtype, "__name__", dtype)).rpartition(".")[2]     # np.float32, torch.float32
        check_choice("dtype", dtype, rounding.UNIT)
        check_switches({"causal": causal, "naive": naive})
        self.theirs, self.of, self.dtype, self.naive, self.causal = theirs, subject(variant), dtype, naive, causal
        if not (callable(theirs) or isinstance(theirs, Mapping) and self.of.arrays):
            mapping = ", or a mapping of arrays" if self.of.arrays else ""
            raise ValueError(f"theirs is a {type(theirs).__name__}; allowed: a function{mapping}")
        if causal and not self.of.maskable:
            raise ValueError(f"causal is True, but {self.of.name} has an order of its own, or no mask; allowed: False")
        self.forms = {"bias": bias, "keep": keep, "dropout": dropout}
        self.layout, self.unit = "".join(layout), rounding.UNIT[dtype]

    def draw(self, sizes=None, seed=0, **forms) -> dict:
        """Inputs, without those options of a row that the kernel does not take."""
        inputs = drawn(self.of, self.dtype, self.forms | forms, sizes, seed)
        return {n: x for n, x in inputs.items() if n not in self.of.optional or self.takes([n], others=True)}

    def takes(self, names, arrays=(), others=False) -> bool:
        """Whether the kernel can be called with these arrays and keywords; with `others`, beside further arguments.

        False where it has no signature that can be read.
        """
        try:
            of = signature(self.theirs)
            (of.bind_partial if others else of.bind)(*arrays, **dict.fromkeys(names))
        except (TypeError, ValueError):
            return False
        return True

    def seeds(self, sizes, seed) -> list[int]:
        """The seed and further ones: whose draws show an option of a row that those before did not, or do without it.

        An option shows along each axis on which it varies; a kernel that has a default for one is asked without it.
        """
        if self.of.arrays or not self.takes([], others=True):
            return [seed]
        default = {n for n, x in signature(self.theirs).parameters.items() if x.default is not Parameter.empty}
        found, seen = [], set()
        for s in range(check_integer("seed", seed, 0), seed + FURTHER):
            inputs = self.draw(sizes, s)
            shown: set = {(n, i) for n, x in inputs.items() for i in range(x.ndim) if (x != x.take([0], ~i)).any()}
            shown |= {f"no {n}" for n in self.of.optional & default - inputs.keys()}
            if shown - seen and self.takes(self.hand(inputs)[1]):
                found, seen = [*found, s], seen | shown
        return found or [seed]

    def laid_out(self, name, x, here="bthd", there="bthd"):
        """x with its axes in another order, if it is an array that has a layout, or the gradient of one."""
        letters = self.of.letters.get(name.removeprefix("d"), "") if self.of.arrays else ""
        return x.transpose([here.index(n) for n in there]) if letters[1:2] in ("q", "k") and x.ndim == 4 else x

    def hand(self, inputs) -> tuple[list, dict]:
        """Positional arguments and keywords, fresh copies in their layout and dtype."""
        storage = "float32" if self.dtype == "bfloat16" else self.dtype
        handed = {n: np.array(self.laid_out(n, x, there=self.layout), storage if x.dtype.kind == "f" else None,
                              order="C") for n, x in inputs.items()}
        arrays = [handed.pop(n) for n in self.of.arrays]
        less = {n: x for n, x in handed.items() if n not in ("do", "dend")}             # of a forward alone
        alone = self.takes([], others=True) and not any(self.takes([n], others=True) for n in handed.keys() - less)
        return arrays, less if alone else handed

    def __call__(self, inputs) -> tuple[dict, dict]:
        """(inputs, results)."""
        arrays, options = self.hand(inputs)
        before = [np.array(x) for x in (*arrays, *options.values())]
        results, error = attempt(self.theirs, *arrays, **options)
        if error is not None:
            raise ValueError(f"theirs raised {type(error).__name__}: {' '.join(str(error).split())}{line_of(error)}; "
                             f"it is called as {self.as_called(inputs, arrays, options)}") from error
        for n, x, y in zip([*self.of.arrays, *options], (*arrays, *options.values()), before, strict=True):
            if not np.array_equal(x, y):
                raise ValueError(f"theirs changed its input {n} in place; allowed: inputs that stay as they are")
        return inputs, self.named(results, inputs)

    def as_called(self, inputs, arrays, options) -> str:
        """The call in words."""
        named = [f"{n}={n}" for n in options] if all(map(str.isidentifier, options)) else ["**inputs"]
        told = ", ".join([*self.of.arrays, *named])
        order = f", q being {self.layout} {arrays[0].shape}" if arrays else ""
        alone = "do" in inputs and "do" not in options and not self.takes([], arrays)
        return f"theirs({told}){', without do, which it does not take' if alone else ''}{order}"

    def twice(self, inputs) -> list[tuple[dict, dict]]:
        """(inputs, results) of the first call, and those of a second one unless they are the same bit for bit."""
        (_, first), (_, second) = found = [self(inputs), self(inputs)]
        if odd := sorted(first.keys() ^ second.keys()):
            raise ValueError(f"theirs gives {odd[0]} once of two times with the same inputs; allowed: the same arrays")
        size = {n: np.abs(x[np.isfinite(x)]).max(initial=0) for n, x in first.items()}
        chance = ATOMIC * self.unit * max(size.values(), default=0)        # all that there is of a gradient of 0
        for n, x in first.items():
            y = second[n]
            if x.shape != y.shape or not np.allclose(x, y, 0.01, max(0.01 * size[n], chance), equal_nan=True):
                raise ValueError(f"theirs answers differently when asked again with the same inputs: {n}")
        return found[:1] if all(np.array_equal(x, second[n], equal_nan=True) for n, x in first.items()) else found

    def named(self, results, inputs) -> dict:
        """What a kernel returned, by name, in our layout, in float64."""
        names = self.of.names(inputs)
        if isinstance(results, Mapping):
            if (odd := [n for n in results if n not in (*names, "lse")]) or not results:
                raise ValueError(f"theirs returned {', '.join(odd) or 'nothing'}; allowed: {', '.join(names)}")
        else:
            results = list(results) if isinstance(results, tuple | list) else [results]
            results = [x for x in results if x is not None] if len(results) > len(names) else results
            if len(results) not in (1, 1 + ("end" in names), len(names)):
                alone = "o alone, o and end," if "end" in names else "o alone,"
                raise ValueError(f"theirs returned {len(results)} arrays; allowed: {alone} or {', '.join(names)}")
            results = dict(zip(names, results, strict=False))
        return {n: self.laid_out(n, 1.0 * host(n, x), self.layout) for n, x in results.items()}

    def given(self) -> tuple[dict, dict]:
        """Inputs and results from a mapping that has both."""
        theirs = {n: x for n, x in self.theirs.items() if x is not None}
        ends = ["do", "dend"] if "state" in self.of.arrays and {"do", "dend"} & theirs.keys() else []
        if not {*self.of.arrays, *ends} <= theirs.keys() or not {"o", "dq", "dk", "dv"} & theirs.keys():
            raise ValueError(f"theirs has {', '.join(theirs) or 'nothing'}; allowed: "
                             f"{', '.join((*self.of.arrays, *ends))} and at least one of o, dq, dk, dv")
        arrays = {n: self.laid_out(n, host(n, x), self.layout) for n, x in theirs.items()}
        inputs = {n: x for n, x in arrays.items() if n in {*self.of.arrays, "do", *ends, *OPTIONS} & {*self.of.letters}}
        low = arrays["bias"].max(-1, initial=-np.inf).min(initial=0) if "bias" in arrays else 0
        if low > -np.inf and low * min(self.unit, rounding.UNIT["float32"]) < -0.01:
            raise ValueError(f"theirs has a bias of {low:.2g} at every key of a query, beside which {self.dtype} loses "
                             f"the scores; allowed: keep for what is not attended to")
        for n, x in inputs.items():
            if not x.size:
                raise ValueError(f"theirs has {n} of shape {np.shape(theirs[n])}; allowed: at least one entry")
            if not np.isfinite(x).all():
                instead = ", and keep for what is not attended to" if n == "bias" else ""
                raise ValueError(f"theirs has {n} with NaN or infinite entries; allowed: finite numbers{instead}")
        return inputs, {n: x for n, x in arrays.items() if n not in inputs}

    def seen(self, inputs) -> dict:
        """Inputs as the page sees them: with the mask that a causal kernel has of its own."""
        return masked(inputs) if self.causal else inputs

    def bars(self, inputs, results) -> tuple[dict, dict, str]:
        """Our results, what is allowed of each entry, and how that was found in words.

        Half of the evaluations are in another form, if there is one: a softmax by its log-sum-exp and its backward as
        fused kernels have it, sums over retrievals after products, a variance in one pass.  In half precision few
        entries may be off by chance, beside a kink that no evaluation met: then more evaluations are asked.
        """
        inputs = self.seen(inputs)

        def run(xp):
            return self.of.run(inputs, xp, "lse" in results)

        other, forms = None, formulas(self.of.name)[:2]
        if forms and (other_form := with_log(forms[-1])) != forms[0]:
            asked = inputs if "do" in inputs else {**inputs, "do": 0 * run(np)["o"]}
            other = partial(evaluated, Runner(other_form), asked)
        ours, bars = rounding.bars(run, self.dtype, naive=self.naive, other=other)
        words = rounding.Noise(self.dtype, self.naive).words
        off = [np.abs(x - ours[n]) > bars[n] for n, x in results.items() if n in ours and x.shape == ours[n].shape]
        if self.unit > 1e-5 and any(x.any() for x in off) and all(x.mean() < CHANCE for x in off):
            again = rounding.bars(run, self.dtype, naive=self.naive, other=other, seed=1, pairs=MORE)[1]
            bars = {n: np.maximum(x, again[n]) for n, x in bars.items()}
            words += f"; since few entries were off by more, also what {2 * MORE} further evaluations give"
        if "lse" in bars and "keep" in inputs:                    # log 0 where nothing is kept, or what one likes
            keep = np.broadcast_to(inputs["keep"], (*bars["lse"].shape, inputs["k"].shape[1]))
            bars["lse"] = np.where(keep.any(-1), bars["lse"], np.inf)
        return ours, bars, words

    def report(self, inputs, results, known=None) -> Comparison:
        """The Comparison of results with ours, or with what is `known` from `bars`."""
        ours, bars, words = known or self.bars(inputs, results)
        if odd := [n for n in results if n not in ours]:
            raise ValueError(f"theirs gave {odd[0]}; allowed: {', '.join(ours)} (gradients with do, dbias with bias)")
        entries = tuple(_entry(self.of, n, x, ours[n], bars[n]) for n, x in results.items())
        return Comparison(self.of.name, self.dtype, entries, words, settings=self.of.settings)


def attempt(f, *arrays, **options):
    """(what somebody's f gives, None), or (None, what it raises): an exit too, or pytest's skip, but not Ctrl-C."""
    try:
        return f(*arrays, **options), None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return None, error


def line_of(error) -> str:
    """Where what `attempt` caught was raised: in the last line that is neither the library's nor of a package."""
    lines = [x for x in extract_tb(error.__traceback__)[1:]
             if "-packages" not in x.filename and not x.filename.endswith(".pyx")]          # CuPy's
    theirs = [x for x in lines if not x.filename.startswith(HOUSE)]
    return "".join(f", {x.filename}:{x.lineno}" for x in (theirs or lines)[-1:])


def _entry(of: Subject, name, x, expected, bar) -> Entry:
    if x.shape != expected.shape:
        return Entry(name, False, np.inf, 0.0, f"shape {x.shape} instead of {expected.shape}", np.nan, np.nan)
    with np.errstate(invalid="ignore"):
        error = np.abs(x - expected)
        error = np.where(np.isnan(error), np.inf, error)
        at = np.unravel_index(np.where(bar < np.inf, error / np.maximum(bar, 1e-300), 0).argmax(), x.shape)
    letters = of.axes(name)
    where = ", ".join(f"{letter}={i}" for letter, i in zip(letters[-x.ndim:] or at, at, strict=False)) or "the number"
    return Entry(name, bool(error[at] <= bar[at]), float(error[at]), float(bar[at]), where, float(x[at]),
                 float(expected[at]))


def host(name, x):
    """An array of any library as float64 on the host."""
    if hasattr(x, "detach"):                                    # PyTorch
        x = (x.float() if "bfloat16" in str(x.dtype) else x).detach().cpu()
    elif hasattr(x, "get") and not hasattr(x, "keys"):          # CuPy
        x = x.get()
    elif hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
        x = np.from_dlpack(x)
    x = np.asarray(x)
    if x.dtype.kind not in "fiub" and x.dtype.name != "bfloat16":
        what = x.dtype if x.dtype != object or not x.size else f"objects such as {x.flat[0]!r}" if x.ndim else x.flat[0]
        other = f", or a mapping without {name}" if what is None else ""
        raise ValueError(f"theirs gave {name} as {what}; allowed: real numbers{other}")
    return x if x.dtype == bool or name == "keep" else x.astype(np.float64)     # a keep of numbers is refused later
