"""The checks: one table, and every row of `verification.cases` has to pass every one that applies to it.

A check is a function (case, rng) -> Deviation, an error in words and in a number, for the cases that its condition
takes.
"""

from copy import deepcopy
from dataclasses import replace

import numpy as np

from ..checks import check_choice
from ..params import entries
from ..xp import to_host
from . import plain_formulas
from .cases import Case
from .derivatives import TOLERANCE, as_tuple, is_float, random_like
from .derivatives import derivative as _derivative
from .deviation import Deviation, deviation, deviations
from .runs_of_cases import arrays, axes_of, cast, copied, hosted, length, mapped, moved, passes, taken, taken_all

CHECKS, CONDITIONS, ALLOWED = {}, {}, {}        # name -> (case, rng) -> Deviation; case -> bool; the largest error
ROUNDED = 1e-10                # of two runs of ours, which round differently: near zero RMSHead magnifies rounding


class Wrong(AssertionError):
    """A check has failed; the text names the case, the check and the entry."""


def tolerance(case: Case, check: str = "derivative") -> float:
    """The error that a check allows: 1e-12 relative, 1e-9 by finite differences, 0 for exact checks, 2 for float32.

    Two runs on NumPy that round differently may be 1e-10 apart.  Raises ValueError for an unknown check.
    """
    check_choice("check", check, CHECKS)
    return TOLERANCE["finite"] if check == "derivative" and not case.analytic else ALLOWED[check]


def applies(check: str, case: Case) -> bool:
    """Whether a check has something to say about a case.  Raises ValueError for an unknown check."""
    check_choice("check", check, CHECKS)
    return bool(CONDITIONS[check](case))


def run(check: str, case: Case, rng=None, *, locate: bool = True) -> Deviation | None:
    """The error of one check, None where it does not apply.  Raises Wrong, one line, for one too large or missing.

    `locate` : whether the entry where a gradient is wrong is looked for, which takes longer than to find that one is
    """
    if not applies(check, case):
        return None
    rng = np.random.default_rng(0) if rng is None else rng
    again, error = deepcopy(rng), CHECKS[check](case, rng)
    if error is None:
        raise Wrong(f"{case.name} fails the check {check!r}, which has compared nothing")
    if not error <= tolerance(case, check):
        exact = locate and check == "derivative"            # the entry, among up to 1,000 numbers of each array
        where = (in_layer(case, derivative(case, again, entries=1_000)) if exact else error).where
        raise Wrong(f"{case.name} fails the check {check!r} (error {error:.2g}): {where}")
    return error


def check(condition, allowed=1e-12):
    """Enters a function into CHECKS under its name, for the cases that the condition takes, with what it allows."""
    def enter(f):
        CHECKS[f.__name__], CONDITIONS[f.__name__], ALLOWED[f.__name__] = f, condition, allowed
        return f
    return enter


def differentiated(case) -> bool:
    """Whether the case has a backward."""
    return case.backward is not None


def on_numpy(case) -> bool:
    """Whether the case runs on NumPy."""
    return case.xp is np


def has_arrays(case) -> bool:
    """Whether any input is an array."""
    return bool(arrays(case.make(np.random.default_rng(0))))


def has_floats(case) -> bool:
    """Whether any input is a float array."""
    return any(map(is_float, case.make(np.random.default_rng(0)).values()))


def identical(name, ours, theirs) -> Deviation:
    """0 if two lists of host arrays are bitwise equal, else 1 and the first difference."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a.dtype != b.dtype or a.tobytes() != b.tobytes():
            return Deviation(1, f"{name}, array {i}: {deviation('entry ', a, b).where}")
    return Deviation(0)


def in_layer(case, found: Deviation) -> Deviation:
    """What was found in the flat gradient of a layer's parameters as found in one of its arrays: dwq[1, 0, 2]."""
    if found.array != "dparameters" or not case.layer:
        return found
    places = [(f"d{name}", at) for name, p in entries(case.layer.parameters()) for at in np.ndindex(p.shape)]
    array, entry = places[found.entry[0]]
    return Deviation(found, array, entry, found.words)


@check(differentiated, TOLERANCE["complex"])
def derivative(case, rng, **asked):
    """Every gradient is the derivative."""
    return _derivative(lambda x: case.forward(moved(case, x)), case.backward, case.make(rng), constants=case.constants,
                       method="complex" if case.analytic else "finite", rng=rng, **asked).error


@check(lambda case: True)
def loops(case, rng):
    """The output is that of the definition, written as loops, which write into none of their arguments."""
    inputs = case.make(rng)
    before = copied(inputs)
    error = deviations("output", passes(case, inputs, rng).y, as_tuple(case.naive(inputs)))
    return max(error, identical("inputs after the loops", copied(inputs), before))


@check(has_arrays, 0.0)
def untouched(case, rng):
    """Forward and backward write into none of their arguments, `saved` included."""
    inputs = moved(case, case.make(rng))
    before = copied(inputs)
    y, saved = case.forward(inputs)
    error = identical("inputs after forward", copied(inputs), before)
    if case.backward is None:
        return error
    kept, dy = copied(saved), random_like(y, rng)
    upstream = copied(as_tuple(dy))
    case.backward(saved, dy)
    return max(error, identical("inputs after backward", copied(inputs), before),
               identical("saved after backward", copied(saved), kept),
               identical("the upstream gradient", copied(as_tuple(dy)), upstream))


@check(differentiated, 0.0)
def repeatable(case, rng):
    """A second backward gives the same."""
    first = passes(case, case.make(rng), rng)
    before = copied(first.gradients)
    return identical("the second backward", copied(case.backward(first.saved, first.dy)), before)


@check(on_numpy, 0.0)
def fresh(case, rng):
    """Output and gradients share no memory with what was given."""
    found = passes(case, case.make(rng), rng)
    pairs = [("the output", found.y, found.inputs)]
    if case.backward is not None:
        pairs += [("a gradient", found.gradients, (found.inputs, as_tuple(found.dy), arrays(found.saved)))]
    for name, results, given in pairs:
        for result in arrays(results):
            if any(np.shares_memory(result, x) for x in arrays(given)):
                return Deviation(1, f"{name} of shape {result.shape} shares memory with an argument")
    return Deviation(0)


@check(lambda case: case.views is not None, ROUNDED)
def added(case, rng):
    """Parameter gradients are added to what is in `grads` already."""
    found = passes(case, case.make(rng), rng)
    start = rng.standard_normal(found.gradients["parameters"].shape)
    total = to_host(case.backward(found.saved, found.dy, start=moved(case, start))["parameters"])
    return deviation("parameter gradient", total - start, found.gradients["parameters"])


@check(differentiated, 0.0)
def used_twice(case, rng):
    """Two applications, then both backwards, give bitwise what each gives alone: nothing is kept between calls."""
    one = case.make(rng)
    two = {name: x * rng.uniform(0.5, 1.5, x.shape) if is_float(x) and name not in case.constants else x
           for name, x in one.items()}                      # of the same sign: some parameters must be positive
    alone = [passes(case, inputs, np.random.default_rng(1)) for inputs in (one, two)]
    expected = [copied((run.y, run.gradients)) for run in alone]
    together = [case.forward(run.inputs) for run in alone]
    backwards = [case.backward(saved, run.dy) for run, (_, saved) in zip(alone, together, strict=True)]
    results = [copied((as_tuple(y), g)) for (y, _), g in zip(together, backwards, strict=True)]
    return max(identical(f"application {i + 1}", ours, theirs) for i, (ours, theirs) in enumerate(zip(
        results, expected, strict=True)))


@check(differentiated, ROUNDED)
def linear(case, rng):
    """The backward is linear in the upstream gradient."""
    one = passes(case, case.make(rng), rng)
    other = random_like(one.y if isinstance(one.dy, tuple) else one.y[0], rng)
    mixed = tuple(2 * a - 3 * b for a, b in zip(as_tuple(one.dy), as_tuple(other), strict=True))
    two = case.backward(one.saved, other)
    both = case.backward(one.saved, mixed if isinstance(other, tuple) else mixed[0])
    return deviations("for 2 dy - 3 dy', gradient of", both, {n: 2 * g - 3 * two[n] for n, g in one.gradients.items()})


@check(lambda case: case.recomputed is not None, 0.0)
def recomputed(case, rng):
    """`recompute` changes nothing, bitwise."""
    inputs = case.make(rng)
    forward, backward = case.recomputed
    ours = passes(replace(case, forward=forward, backward=backward), inputs, np.random.default_rng(1))
    plainly = passes(case, inputs, np.random.default_rng(1))
    return identical("recomputed", copied((ours.y, ours.gradients)), copied((plainly.y, plainly.gradients)))


@check(lambda case: case.independent and differentiated(case), ROUNDED)
def independent(case, rng):
    """Entries of the batch (and of the other letters in `independent`) do not influence one another."""
    inputs = case.make(rng)
    whole = passes(case, inputs, rng)
    errors, dy, gradients = [], hosted(whole.dy), hosted(whole.gradients)
    for letter in case.independent:
        total = {name: 0 for name in gradients}
        for i in range(length(case, letter, inputs)):
            part = passes(case, taken_all(case, letter, inputs, [i]), dy=taken(case.axes["output"], letter, dy, [i]))
            here = hosted(part.gradients)
            expected = taken_all(case, letter, gradients, [i])
            local = {n for n, x in inputs.items() if x is not None and axes_of(case.axes.get(n, ""), letter, x)}
            errors += [deviations(f"axis {letter}, entry {i} alone: output", part.y, taken(
                case.axes["output"], letter, hosted(whole.y), [i]))]
            errors += [deviation(f"axis {letter}, entry {i} alone: gradient of {n} at ", here[n], expected[n],
                           scale=np.abs(gradients[n]).max()) for n in local & here.keys()]
            total = {n: total[n] + here[n] for n in total}
        errors += [deviation(f"summed over axis {letter}: gradient of {n} at ", total[n], gradients[n])
                   for n in total.keys() - local]
    return max(errors)


@check(lambda case: case.symmetric and differentiated(case), ROUNDED)
def symmetric(case, rng):
    """Permuting an axis (batch, positions, heads, features) of all inputs permutes output and gradients."""
    inputs = case.make(rng)
    whole = passes(case, inputs, rng)
    y, dy, gradients, errors = hosted(whole.y), hosted(whole.dy), hosted(whole.gradients), []
    for letter in case.symmetric:
        order = rng.permutation(length(case, letter, inputs))
        order = order if (order != np.arange(len(order))).any() else order[::-1]
        mixed = passes(case, taken_all(case, letter, inputs, order), dy=taken(case.axes["output"], letter, dy, order))
        errors += [deviations(f"axis {letter} permuted: output", mixed.y, taken(case.axes["output"], letter, y, order)),
                   deviations(f"axis {letter} permuted: gradient of", mixed.gradients, taken_all(
                       case, letter, gradients, order))]
    return max(errors)


@check(lambda case: case.masked, 0.0)
def masked(case, rng):
    """A query that keeps nothing gets exactly zero from the attention, and passes exactly no gradient on."""
    inputs = case.make(rng)
    letters = case.axes["keep"]
    keep = rng.random([length(case, x, {**inputs, "keep": None, "dropout": None, "bias": None}) for x in letters]) < 0.7
    keep[0, :, 1] = False
    found = passes(case, {**inputs, "keep": keep}, rng)
    dy = np.zeros_like(hosted(found.dy))
    dy[0, 1] = rng.standard_normal(dy[0, 1].shape)
    leaked = hosted(passes(case, {**inputs, "keep": keep}, dy=dy).gradients)
    if case.views is not None and hasattr(case.views(leaked["parameters"]), "bo"):
        case.views(leaked["parameters"]).bo[...] = 0            # y = bo is what remains
    gradients = hosted(found.gradients)
    zeros = {f"gradient of {name} from a query that keeps nothing": x for name, x in leaked.items()}
    if case.masked == "zero":
        zeros |= {"output of a query that keeps nothing": hosted(found.y)[0][0, 1],
                  "its gradient of q": gradients["q"][0, 1]}
    errors = [deviation(f"{name} ", x, np.zeros_like(x)) for name, x in zeros.items()]
    return max(errors + [Deviation(0 if np.isfinite(x).all() else np.inf, f"gradient of {name} is not finite")
                         for name, x in gradients.items()])


@check(lambda case: on_numpy(case) and differentiated(case), ROUNDED)
def strided(case, rng):
    """Inputs and upstream gradients in any memory layout give the same."""
    inputs = case.make(rng)
    found = passes(case, inputs, rng)

    def scattered(x):
        """The same numbers, axes in reverse order in memory, with gaps."""
        if not x.ndim:
            return x
        wide = np.zeros([2 * n for n in x.shape[::-1]], x.dtype)[(slice(None, None, 2),) * x.ndim].T
        wide[...] = x
        return wide

    views = {n: x if n == "parameters" else mapped(scattered, x) for n, x in inputs.items()}
    other = passes(case, views, dy=mapped(scattered, found.dy))
    return max(deviations("from strided inputs, output", other.y, found.y),
               deviations("from strided inputs, gradient of", other.gradients, found.gradients))


@check(has_floats, 0.0)
def dtype(case, rng):
    """Dtype in is dtype out."""
    inputs = case.make(rng)
    for wanted in "float32", "float64":
        found = passes(case, cast(inputs, wanted), rng)
        for name, x in [*enumerate(found.y), *(found.gradients or {}).items()]:
            if x.dtype != wanted:
                return Deviation(1, f"from {wanted} inputs, output or gradient {name} is {x.dtype}")
    return Deviation(0)


@check(has_floats, 2.0)
def float32(case, rng):
    """In float32, errors are at most twice those of the plain formulas in float32 (rms over 4,000 entries or more).

    Each array of each draw weighs the same, else one badly conditioned draw would decide alone: with r the ratio of
    the two errors, r^2 / (1 + r^2) is averaged.  And no array alone has 32 times the error, rounding of its largest
    entry added, unless it is 0 in theory: of a few arrays the mean does not see one that is in float16.
    """
    formulas = plain_formulas.package().verification.cases.find(case.name)
    shares, worst, entries = [], 0.0, 0
    while entries < 4000:
        inputs = cast(case.make(rng), "float32")
        single = passes(case, inputs, rng)
        dy = hosted(single.dy)
        exactly = passes(case.on(np), cast(inputs, "float64"), dy=mapped(np.float64, dy))
        runs = [copied((run.y, run.gradients)) for run in (single, passes(formulas, inputs, dy=dy), exactly)]
        least = 1e-12 * max(1, *(np.abs(x).max(initial=0) for x in runs[2]))
        for ours, theirs, exact in zip(*runs, strict=True):
            ours, theirs = (float(((x - exact) ** 2).sum()) for x in (ours, theirs))
            entries += exact.size
            shares += [ours / (ours + theirs)] if ours + theirs else []
            if (top := np.abs(exact).max(initial=0)) > least:
                worst = max(worst, ours / (theirs + exact.size * (top * 2.0**-24) ** 2))
    share, words = float(np.mean(shares or [0])), "times the error of the plain formulas"
    return max(Deviation((share / (1 - share)) ** 0.5 if share < 1 else np.inf, words),
               Deviation(worst**0.5 / 16, f"x 16 {words}, in one array alone"))


@check(lambda case: not on_numpy(case) and has_arrays(case))
def array_module(case, rng):
    """Another array module gives what NumPy gives."""
    inputs = case.make(rng)
    here = passes(case.on(np), inputs, rng)
    there = passes(case, inputs, dy=here.dy)
    error = deviations(f"on {case.xp.__name__}, output", there.y, here.y)
    return error if here.gradients is None else max(error, deviations(f"on {case.xp.__name__}, gradient of",
                                                               there.gradients, here.gradients))
