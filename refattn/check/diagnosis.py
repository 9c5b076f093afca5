"""Where a kernel goes wrong, and what was forgotten there.

The kernel is asked about inputs that switch parts of the page on and off.  Whether its gradients are those of its own
forward is seen from differences of its own outputs.  Then every single mistake that the grammar can make in the
formulas of the page is held against all answers: a mistake is named only if it explains each of them.
"""

import re
from contextlib import suppress
from copy import copy
from functools import partial
from typing import NamedTuple

import numpy as np

from .changes import factors, told
from .formulas import formulas
from .kernels import Call, Comparison, attempt
from .probing import MAYBE, SECOND_SHAPE, Answer, consistent, probes
from .search import Search
from .subjects import masked, relatives, sized
from .upstream import ABSURD

__all__ = ["Diagnosis", "diagnose"]

NEAR = 0.9999                  # a cosine beyond this: a known mistake, of unknown size
LIKE = 0.5                     # beyond this: one that resembles it
ALIKE = 0.1                    # what outputs are off at most of those of another page or row that is held whole
MOST = 0.5                     # of the error; a hint that leaves more of it is not said, but:
OTHER = "a mistake that is not known, or two that meet"
SECOND = "the second answer to the same inputs is wrong, the first is right: a race, or a buffer that is not cleared?"
KEPT = "right for the first inputs, wrong for others like them: is something kept from an earlier call, a cache say?"
FRESH = 5                      # added to the seed for those
SMALL = 0.01                   # errors below this part of their array are said to be small; a hint's factor is above it
CAUSAL = {"right if queries see no later key: causal=True": False,
          "right if query i sees keys 0 to i: its causal mask counts from the first key, that of causal=True from the "
          "last; with as many queries as keys they are the same": True}


class Diagnosis(NamedTuple):
    """What `diagnose` found."""
    comparison: Comparison     # at the first of the inputs where something is wrong
    verdict: str = ""          # whether the forward differs, and whether the gradients are those of the kernel's own
    lines: tuple[str, ...] = ()     # "backward (3)": of those that explain it equally well three, simplest first
    sentences: tuple[str, ...] = ()
    named: bool = False        # whether the first sentence explains every answer
    fit: float = np.inf        # largest remaining error, in error bars

    def __str__(self):
        if self.comparison.ok:
            return "no mistake: every output and gradient agrees"
        every = "output" if "forward differs" in self.verdict else "answer"
        every += " but lse" * any(e.name == "lse" and not e.ok for e in self.comparison.entries)    # is not searched
        end = f"; explains every {every} to {self.fit:.2g} of what is allowed" if self.named else ""
        others = [f"or: {x}" if x.startswith("line (") else x for x in self.sentences[1:]]
        return "\n".join((self.verdict, *self.sentences[:1], *others)) + end


def diagnose(theirs, variant="hyla", *, dtype="float32", layout="bthd", bias=None, keep=None, dropout=None,
             causal=False, sizes=None, seed=0, naive=False) -> Diagnosis:
    """Say where a kernel and the page part, and name the mistake.

    Takes what `compare` takes, `theirs` being a function; give `bias`, `keep` and `dropout` if the kernel takes them:
    what is not used cannot be diagnosed, and a bias of all four axes shows most.  The kernel is called some ten times,
    in two shapes, and in one more with a bias of all four axes; if its output is wrong, some ten times more for each
    gradient.  Of lines that explain the answers equally up to three are listed.
    Raises ValueError as `compare` does.
    """
    call = Call(theirs, variant, dtype, layout, bias, keep, dropout, causal, naive)
    if not callable(theirs):
        raise ValueError("theirs is a mapping of arrays; allowed: a function, to be asked again, or compare for arrays")
    asked, late = answers(call, sizes, seed)
    if late:
        return Diagnosis(late.comparison._replace(again=True), SECOND, (), tuple(pattern(late, n) for n in late.wrong))
    if not any(a.wrong for a in asked.values()):
        return Diagnosis(asked["all"].comparison, fit=0.0)
    second = asked.get(SECOND_SHAPE)
    others = {p: a for p, a in asked.items() if a is not second}
    if second and not any(map(np.any, second.finite.values())) and any(a.wrong for a in others.values()):
        found = judged(call, others, sizes, seed)           # NaN explains no line
        q, k = (second.inputs[n].shape for n in "qk")
        return found._replace(verdict=f"{found.verdict}; nothing is finite where q is {q} and k {k}")
    return judged(call, asked, sizes, seed)


def judged(call, asked, sizes, seed) -> Diagnosis:
    """What the answers say, some of which are wrong."""
    worst = next(a for a in asked.values() if a.wrong)
    wrong = {n: [p for p, a in asked.items() if n in a.wrong] for a in asked.values() for n in a.theirs}
    if found := of_no_line(call, asked, wrong, worst, sizes, seed):
        return found
    if outputs := [n for n in ("o", "end") if wrong.get(n)]:
        found = searched(call, asked, 0, outputs, consistent(call, asked, wrong))
        known = found.named or any(a.misshapen for a in asked.values())
        return found if known else of_another(call, asked, found)
    verdict = f"forward {'right' if 'o' in wrong else 'not given'}, backward wrong"
    return searched(call, asked, 1, [n for n in wrong if n not in ("o", "lse", "end")], verdict)


def of_no_line(call, asked, wrong, worst, sizes, seed) -> Diagnosis | None:
    """What is no mistake in a line: values kept of an earlier call, another mask or layout, or lse alone."""
    full = asked["all"]
    if call.of.arrays and not full.wrong:
        anew = Answer(call, *call(call.draw(sizes, seed + FRESH)))
        if anew.wrong:
            return Diagnosis(anew.comparison, KEPT, (), tuple(pattern(anew, n) for n in anew.wrong))
    if wrong.get("o") and call.of.maskable and not call.causal:
        for words, first in CAUSAL.items():
            if call.report(masked(full.inputs, first), full.theirs).ok:
                left = [p for p, a in asked.items() if not call.report(masked(a.inputs, first), a.theirs).ok]
                return Diagnosis(worst.comparison, words + "".join(f"; but then wrong for: {p}" for p in left[:1]))
    if wrong.get("o") and call.of.arrays:
        other = copy(call)
        other.layout = call.layout.translate(str.maketrans("th", "ht"))
        size = {x: n for x, n in sized(sizes).items() if x != "1"}
        equal = call.draw(size | dict.fromkeys("qkr", size["h"]), seed)         # where arrays fit in either order
        with suppress(ValueError):                          # what such a call may raise
            if other.report(*other(equal)).ok:
                return Diagnosis(worst.comparison, f"right if its arrays are in another order: layout={other.layout!r}")
    if any(wrong[n] for n in wrong if n != "lse"):
        return None
    words = f"line (2) of softmax, {pattern(worst, 'lse', made=' = log(sum(exp(s1) * keep))')}"
    others = [n for n in wrong if n != "lse"]
    verdict = "o and its gradients are right" if others[1:] else "o is right" if others else "lse alone was given"
    return Diagnosis(worst.comparison, verdict, ("forward (2)",), (words,))


def answers(call, sizes, seed) -> tuple[dict, Answer | None]:
    """{probe: Answer}, and the second answer to a probe where that alone is wrong."""
    asked = {}
    for name, inputs in probes(call, sizes, seed).items():
        try:
            said = [Answer(call, *x) for x in (call.twice(inputs) if name == "all" else [call(inputs)])]
            if said[-1].wrong and not said[0].wrong:
                return asked, said[-1]
            if name != "stretched bias" or not said[0].misshapen:       # a kernel of whole ones need not know it
                asked[name] = said[0]
        except ValueError:
            if name not in MAYBE:
                raise
    return asked, None


def searched(call, asked, part, names, verdict) -> Diagnosis:
    """The mistake that explains what is wrong of the names, looked for in the lines of a part of the page."""
    worst = next(a for a in asked.values() if {*names} & {*a.wrong})
    # of other forms those whose backward has a sum from the output; the rest differ in the order of sums alone
    forms = [of for i, of in enumerate(formulas(call.of.name)) if i == 0 or "delta" in " ".join(of.letters)]
    searches = [Search(of, part, names, asked, call) for of in (forms if part else forms[:1])]      # one forward is all
    wrong = [n for n in names if any(n in a.wrong for a in asked.values())]
    if part and (given := exchanged(asked, names, wrong)):
        words = ", ".join(f"{said} is given as {n}" for n, (said, _) in given.items())
        return of_gradients(searches, worst, verdict, given, words, max(fit for _, fit in given.values()))
    if misshapen := [e for a in asked.values() for e in a.misshapen.values()]:
        words = f"{misshapen[0].name} has {misshapen[0].where}"
        made = [(line, words) for s in searches[:1] for line in s.of.lines if line.name == misshapen[0].name]
        return report(searches[0], worst, verdict, made) if made else Diagnosis(worst.comparison, verdict, (), (words,))
    verdict += "" if forms else f"; lines of {call.of.name} are not searched"
    mistakes = (lambda s: s.fits((0, 1))), (lambda s: s.fits((2, 3))), Search.factors
    return (explained(searches, worst, verdict, mistakes)
            or part and off_by_one_factor(searches, asked, wrong, worst, verdict)
            or explained(searches, worst, verdict, (Search.apart,))
            or unexplained(searches[:2], worst, verdict, names))


def off_by_one_factor(searches, asked, wrong, worst, verdict) -> Diagnosis | None:
    """Where the wrong gradients are the right ones times one factor: a number, or one of the sizes, as in a mean."""
    made = {p: [np.concatenate([y[n].ravel() for n in wrong]) for y in (a.theirs, a.ours, a.bars)]
            for p, a in asked.items() if {*wrong} <= {*a.theirs}}
    x, y, _ = (np.concatenate(each) for each in zip(*made.values(), strict=True))
    factor = (x @ y) / ((y @ y) or 1)
    if not abs(factor) < ABSURD:                            # or where x is not finite
        return None
    sizes = {p: searches[0].envs[p] if searches else {} for p in made}
    letters = [n for n in "bqkhdesr" if all(f"n_{n}" in env for env in sizes.values())]
    mean = [{"w": "1/(b q)", "f": "1 / (n_b * n_q)"}] if letters[:2] == ["b", "q"] else []
    for known in [*factors(letters), *mean, {"w": told(factor), "f": repr(float(factor))}]:
        by = {p: eval(known["f"], dict(sizes[p])) for p in made}        # noqa: S307 (our text)
        fit = max((abs(x - by[p] * y) / np.maximum(bars * max(1, abs(by[p])), 1e-300)).max()
                  for p, (x, y, bars) in made.items())
        if fit <= 1:
            words = f"{' and '.join(wrong)}: {known['w']} times what {'they' if wrong[1:] else 'it'} should be"
            return of_gradients(searches, worst, verdict, wrong, words, float(fit))
    return None


def of_gradients(searches, worst, verdict, names, words, fit) -> Diagnosis:
    """What is said of whole gradients, with the lines that make them."""
    lines = dict.fromkeys(f"backward ({x.tag})" for s in searches[:1] for x in s.of.lines if x.part and x.name in names)
    return Diagnosis(worst.comparison, verdict, tuple(lines), (words,), True, fit)


def exchanged(asked, names, wrong) -> dict:
    """{wrong gradient: (gradient, or sum of some, that is given in its place, error in error bars)}.

    {} where that is not all that is wrong, or where none of them has anything of another gradient.
    """
    found, moved = {}, False
    for n in wrong:
        every = [a for a in asked.values() if n in a.theirs]
        alike = [x for x in names if all(x in a.ours and a.ours[x].shape == a.theirs[n].shape for a in every)]
        if not alike or not all(a.finite[n].all() for a in every):
            return {}
        columns = np.concatenate([np.stack([a.ours[x].ravel() for x in alike], 1) for a in every])
        bars = np.concatenate([np.stack([a.bars[x].ravel() for x in alike], 1) for a in every])
        given = np.concatenate([a.theirs[n].ravel() for a in every])
        times = np.rint(np.linalg.lstsq(columns, given)[0])
        fit = (abs(given - columns @ times) / np.maximum(bars @ abs(times), 1e-300)).max(initial=0)
        if not fit <= 1 or abs(times).max() > 1:
            return {}
        terms = {x: t for t, x in sorted(zip(-times, alike, strict=True)) if t}          # the minuses last
        moved |= bool({*terms} - {n})
        found[n] = " ".join(f"{'+' if t < 0 else '-'} {x}" for x, t in terms.items()).removeprefix("+ ") or "0", fit
    return found if moved else {}


def of_another(call, asked, found) -> Diagnosis:
    """What was found or, if so, that the answers, or the outputs alone, are those of another page or row."""
    for of in relatives(call.of):
        other = copy(call)
        other.of = of
        entries, _ = attempt(held, other, asked)
        wrong = {entry.name for entry in entries or () if not entry.ok}
        if entries and "o" not in wrong:
            fit = max(entry.error / max(entry.allowed, 1e-300) for entry in entries if entry.name not in wrong)
            words = f"{'the output' if wrong else 'every answer'} is that of {of.name}"
            return found._replace(sentences=(words,), named=True, fit=fit)
    return found


def held(call, asked) -> list:
    """The entries of all answers held against a page; [] where the first output is not near its."""
    first = asked["all"]
    ours = call.of.run(call.seen({n: x for n, x in first.inputs.items() if n != "do"}))["o"]
    if ours.shape != first.theirs["o"].shape or not np.allclose(ours, first.theirs["o"], ALIKE, ALIKE):
        return []
    return [entry for a in asked.values() for entry in call.report(a.inputs, {
        n: x for n, x in a.theirs.items() if n != "lse"}).entries]            # lse is softmax's alone


def report(search, worst, verdict, found, named=False, fit=np.inf) -> Diagnosis:
    """A Diagnosis from (line, words), the plainest first; a line of None is a sentence of its own."""
    part, function = ("forward", "backward")[search.part], search.of.words[search.part]
    first = {line.tag: (line, words) for line, words in reversed(found) if line}
    tags = list(dict.fromkeys(line.tag for line, _ in found if line))[:3]
    sentences = [f"line ({tag}) of {function}, {first[tag][0].name} = {first[tag][0].text}: "
                 + re.sub(r"\bkeep\b", search.mask, first[tag][1]) for tag in tags]
    sure = [f"({tag})" for tag in tags if not first[tag][1].startswith("perhaps ")]
    if search.part and sure:
        *others, last = sure
        verdict += f" from line {', '.join(others)}{' or ' if others else ''}{last} on"
    return Diagnosis(worst.comparison, verdict, tuple(f"{part} ({tag})" for tag in tags),
                     (*sentences, *(words for line, words in found if line is None)), named, float(fit))


def explained(searches, worst, verdict, ways) -> Diagnosis | None:
    """What the first of the ways explains, in its plainest words."""
    found = next(filter(None, ([(*f, s) for s in searches for f in way(s) if f[1] <= 1] for way in ways)), ())
    if not found:
        return None
    best = min(f[0] for f in found)
    found = sorted((f for f in found if f[0] <= 2 * best + 0.02), key=lambda f: (
        f[2].cost, not re.match("the term .* is missing", f[2].words), len(f[2].words)))
    words = [(m.line, m.words) for _, _, m, _ in found]
    words += [(line, f"in line ({m.line.tag}), {m.words}" if line.tag != m.line.tag else m.words)
              for _, _, m, s in found for line in s.alike(m)]
    return report(found[0][3], worst, verdict, words, True, found[0][1])


def unexplained(searches, worst, verdict, names) -> Diagnosis:
    """Where no mistake of the grammar fits: the first line whose value alone would explain it, and the pattern."""
    near = nearest(searches)
    named = any(tell() for _, _, tell in near.values())
    said = [(None, pattern(worst, n, ask=not named)) for n in names if n in worst.wrong][:4]
    found = [s.first_lines() for s in searches]
    lines = [line for first, _ in found for line in first]
    if lines:
        passes = {n: f", and in a pass for {n} alone any line before it" for n in names if searches[0].part}
        words = would_explain(lines, any(sure for _, sure in found), near, passes)
        return report(searches[0], worst, verdict, [*words, said[0]])
    if not near:
        return Diagnosis(worst.comparison, verdict, sentences=tuple(words for _, words in said))
    top = max(cosine for _, cosine, _ in near.values())
    how = "as" if top > NEAR else "perhaps"
    hints = [(line, tell()) for line, cosine, tell in near.values() if cosine >= top - 1e-6]
    made = [(line, f"{how} {words}" if words else f"perhaps {OTHER}") for line, words in hints]
    return report(searches[0], worst, verdict, [*made, *said])


def would_explain(lines, sure, near, passes) -> list:
    """(line, words) of the first lines of which another value would explain the answers.

    Where that is not `sure`, the line of the nearest known mistake comes before them.  `passes` are results that a
    kernel may have a pass of its own for, and what is said of it.
    """
    nearest_line = [] if sure else [line for line, *_ in near.values()][:1]
    first = ", none of a line before it was found" if sure else ""
    found = []
    for line in dict.fromkeys([*nearest_line, *lines]):
        said = near[line.tag][2]() if line.tag in near else ""
        if line in lines:
            words = f"another {line.name} would explain it{passes.get(line.name, ' too' if found else first)}"
            found.append((line, f"{words}; nearest: {said}" if said else words))
        else:
            found.append((line, f"perhaps {said or OTHER}"))
    return found


def nearest(searches) -> dict:
    """{tag: (line, cosine, tell)} of the mistakes that change the answers most alike, the nearest first.

    tell() gives the `hint`, for which every probe is run again: it is called for lines that are said.
    """
    found: dict = {}
    close = [(search, *each) for search in searches for each in search.close]
    for search, cosine, factor, m in sorted(close, key=lambda x: -x[1]):
        size = abs(factor) if cosine > NEAR else factor     # the reverse of a mistake only where it is just that
        if cosine > LIKE and SMALL < size < 1 / SMALL:
            found.setdefault(m.line.tag, (m.line, cosine, partial(hint, search, factor, m)))
    return found


def hint(search, factor, m) -> str:
    """A mistake, how much more of it there is, and what it leaves; "" where that is more than half of the error.

    There its name would mislead, and the line is all that is said.
    """
    leaves = search.leaves(m, factor)
    said = m.words if factor > 0 else f"the reverse of {m.words}"
    said += f", {abs(factor):.3g} times as much, which leaves {leaves:.0%} of the error"
    return said if leaves <= MOST else ""


def pattern(answer, n, ask=True, made="") -> str:
    """Which entries of a wrong array are wrong, in words; and, if `ask`, whether it is less precision.

    `made`, such as " = log(s)", is said behind its name.
    """
    x, y, bar = answer.theirs[n], answer.ours[n], answer.bars[n]
    if x.shape != y.shape:
        return f"{n} has shape {x.shape} instead of {y.shape}"
    if not (finite := np.isfinite(x) | ~(bar < np.inf)).all():
        return f"{n}{made}: {(~finite).sum()} of {x.size} entries are NaN or infinite"
    bad, part = ~(np.abs(x - y) <= bar), np.linalg.norm(x - y) / (np.linalg.norm(y) or 1)
    if part < SMALL and bad.mean() > 0.5:
        why = ": less precision, or an approximation?" if ask else ""
        return f"{n}{made}: {bad.sum()} of {bad.size} entries are wrong, by {part:.0e} of their size{why}"
    if bad.mean() > 0.9:
        factor = (x * y).sum() / ((y * y).sum() or 1)
        exact = np.allclose(x, factor * y, rtol=1e-2, atol=1e-8 * np.abs(y).max())
        many = "all" if bad.all() else f"{bad.sum()} of {bad.size}"
        return f"{n}{made}: {many} entries are wrong" + (f", {told(factor)} times what they should be" if exact else "")
    letters = answer.of.axes(n)
    lost = [np.flatnonzero(bad.any(tuple(i for i in range(x.ndim) if i != axis))) for axis in range(x.ndim)]
    where = [f"{letters[i:i + 1] or f'axis {i}'} at {', '.join(map(str, at[:8]))}{' ...' if len(at) > 8 else ''}"
             for i, at in enumerate(lost) if len(at) < x.shape[i]]
    return f"{n}{made}: {bad.sum()} of {bad.size} entries are wrong" + (f", {' and '.join(where)}" if where else "")
