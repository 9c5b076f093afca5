"""Where a kernel goes wrong, and what was forgotten there.

The kernel is asked about inputs that switch parts of the page on and off.  Whether its gradients are those of its own
forward is seen from differences of its own outputs.  Then every single mistake that the grammar can make in the
formulas of the page is held against all answers: a mistake is named only if it explains each of them.
"""

from itertools import chain
from typing import NamedTuple

import numpy as np

from ..verification import rounding
from ..verification.rounding import UNIT
from .formulas import formulas, start
from .grammar import mutants, scaled
from .kernels import Call, Comparison
from .running import FUNCTIONS, Runner
from .upstream import first_lines

__all__ = ["Diagnosis", "diagnose"]

NEAR = 0.9999                  # a cosine beyond this is a known mistake of unknown size,
LIKE = 0.5                     # and beyond this like one
DIRECTIONS = 4                 # gradients that are held against differences of the kernel's own outputs
MAYBE = "one sequence", "stretched bias"        # shapes that a kernel may refuse


class Diagnosis(NamedTuple):
    """What `diagnose` found."""
    comparison: Comparison     # at the first of the inputs where something is wrong
    verdict: str               # whether the forward differs, and whether the gradients are those of the kernel's own
    lines: tuple[str, ...]     # "backward (3)": those that explain it equally well, simplest first
    sentences: tuple[str, ...]
    named: bool                # whether the first sentence explains every answer
    fit: float                 # largest remaining error, in error bars

    def __str__(self):
        if self.comparison.ok:
            return "no mistake: every output and gradient agrees"
        end = f"; explains every answer to {self.fit:.2g} of what is allowed" if self.named else ""
        return f"{self.verdict}\n" + "\nor: ".join(self.sentences) + end


def diagnose(theirs, variant="hyla", *, dtype="float32", layout="bthd", bias=None, keep=None, dropout=None,
             causal=False, sizes=None, seed=0, naive=False) -> Diagnosis:
    """Say where a kernel and the page part, and name the mistake.

    Takes what `compare` takes, `theirs` being a function; give `bias`, `keep` and `dropout` if the kernel takes them:
    what is not used cannot be diagnosed, and a bias of all four axes shows most.  The kernel is called some ten times,
    in two shapes, and in one more with a bias of all four axes.  Lines that explain the answers equally are all listed.
    Raises ValueError as `compare` does.
    """
    call, asked = Call(theirs, variant, dtype, layout, bias, keep, dropout, causal, naive), {}
    if not callable(theirs):
        raise ValueError("theirs is a mapping of arrays; allowed: a function, to be asked again, or compare for arrays")
    for name, inputs in probes(call, sizes, seed).items():
        try:
            asked[name] = Answer(call, inputs, twice=name == "all")
        except ValueError:
            if name not in MAYBE:
                raise
    wrong = {n: [p for p, a in asked.items() if n in a.wrong] for a in asked.values() for n in a.theirs}
    if not any(wrong.values()):
        return Diagnosis(asked["all"].comparison, "", (), (), False, 0.0)
    worst = next(a for a in asked.values() if a.wrong)
    if not wrong["o"]:
        verdict, part, names = "forward right, backward wrong", 1, [n for n in wrong if n not in ("o", "lse", "end")]
    else:
        verdict, part, names = consistent(call, asked, wrong), 0, ["o"]
    bad = next((e for a in asked.values() for e in a.comparison.entries if e.where.startswith("shape")), None)
    search = [Search(of, part, names, asked, dtype, naive) for of in formulas(call.of.name)]
    if bad:
        lines = [(line, f"{bad.name} has {bad.where}") for s in search[:1] for line in s.of.lines
                 if line.name == bad.name]
        said = search[0].report(worst, verdict, lines, False, np.inf) if lines else None
        return said or Diagnosis(worst.comparison, verdict, (), (f"{bad.name} has {bad.where}",), False, np.inf)
    return diagnosed(search, worst, verdict, names)


def probes(call, sizes, seed) -> dict:
    """Name -> inputs: all options, none, each alone, small scores, positive numbers, one sequence, a stretched bias."""
    full, found = call.draw(sizes, seed), {}
    found["all"] = full
    if not call.of.arrays or "q" not in full:
        return found | {f"draw {i}": call.draw(sizes, seed + i) for i in (1, 2)}
    given = [n for n in ("bias", "keep", "dropout") if n in full and not (n == "keep" and call.causal)]
    nothing = {n: np.zeros_like(full[n]) if n == "bias" else np.ones_like(full[n]) for n in given}
    alone = call.draw(one_sequence(sizes), seed + 1)
    found["one sequence"] = alone
    found["no options"] = call.draw(sizes, seed + 2) | nothing
    found["small scores"] = {**found["no options"], "q": found["no options"]["q"] * 2.0**-9}
    found["positive"] = {**found["no options"], **{n: np.abs(found["no options"][n]) for n in "qkv"}}
    if "b" in (call.forms["bias"] or "")[-4:-3]:
        found["stretched bias"] = call.draw(sizes, seed + 4, bias="1" + call.forms["bias"][1:])
    for name in given if len(given) > 1 else ():
        found[f"{name} alone"] = call.draw(sizes, seed + 3) | nothing | {name: full[name]}
    return found


def one_sequence(sizes):
    """Sizes for a second shape, where factors that are alike in the first are not."""
    other = {None: {"q": 4, "k": 5, "h": 3}, "tiles": {"q": 33, "k": 63, "h": 2, "d": 32, "e": 16}}
    return {**(sizes if isinstance(sizes, dict) else other[sizes]), "b": 1}


class Answer:
    """What the kernel said to one probe, what the page says, and what is allowed."""
    def __init__(self, call, inputs, twice=False):
        self.inputs, self.theirs = call(inputs, twice)
        self.ours, self.bars = call.bars(inputs, self.theirs)
        self.comparison = call.report(inputs, self.theirs, (self.ours, self.bars))
        self.wrong = [entry.name for entry in self.comparison.entries if not entry.ok]


def consistent(call, asked, wrong) -> str:
    """The verdict on a kernel whose output is wrong: are its gradients those of its own forward, or of the page's?"""
    gradients = [n for n in wrong if n[0] == "d" and n[1:] in asked["all"].inputs][:DIRECTIONS]
    if not gradients:
        return "forward differs, no gradients given"
    if not any(wrong[n] for n in gradients):
        return "forward differs, your gradients are those of the right forward"
    rng, step = np.random.default_rng(0), {"float64": 1e-5, "float32": 1e-2}.get(call.dtype, 0.125)
    for probe in ("no options", "all"):
        a = asked.get(probe)
        for n in gradients if a is not None and np.isfinite(a.theirs["o"]).all() else ():
            x = a.inputs[n[1:]]
            u, g = rng.choice([-1.0, 1.0], x.shape) / max(1, x.size) ** 0.5, a.theirs[n]
            ends = [call({**a.inputs, n[1:]: x + t * u})[1]["o"] for t in (step, -step)]
            slope, size = ((ends[0] - ends[1]) * a.inputs["do"]).sum() / (2 * step), np.linalg.norm(g) / x.size**0.5
            if g.shape != x.shape or not abs(slope - (g * u).sum()) <= {"float64": 1e-3, "float32": 0.05}.get(
                    call.dtype, 0.5) * (size + abs(slope)):
                return "forward differs, and your gradients are not those of your forward"
    return "forward differs, your gradients are right for it"


class Search:
    """The mistakes of the grammar against the kernel's answers."""
    def __init__(self, of, part, names, asked, dtype, naive):
        self.of, self.part, self.names, self.runner = of, part, names, Runner(of)
        self.dtype, self.naive, self.loose = dtype, naive, UNIT[dtype] * (8 if UNIT[dtype] > 1e-5 else 256)
        order = sorted(asked, key=lambda p: (not asked[p].wrong, asked[p].theirs["o"].size))   # telling and cheap first
        self.asked = {p: asked[p] for p in order}
        self.starts = {p: {**FUNCTIONS, **start(of, a.inputs)} for p, a in self.asked.items()}
        self.envs = {p: self.runner.run(env) | self.runner.shadows(env) for p, env in self.starts.items()}
        self.sizes = {n[2:]: x for n, x in self.envs[order[0]].items() if n.startswith("n_")}
        self.first, self.close = order[0], []
        a = self.asked[self.first]
        self.scale = {n: np.abs(x).max() or 1.0 for n, x in a.ours.items()}
        self.difference = self.flat(a, a.theirs)

    def flat(self, a, results):
        """How far results are from the page, every array relative to its largest entry, in one vector."""
        x = np.concatenate([((results[n] - a.ours[n]) / self.scale[n]).ravel() for n in self.names
                            if n in a.theirs and np.shape(results[n]) == a.ours[n].shape] or [np.zeros(1)])
        return np.where(np.isfinite(x), x, 0)

    def found(self, p, env) -> dict:
        """The compared results, in the shapes that the kernel's have."""
        ours, xs = self.asked[p].ours, {n: env[n] for n in self.names if n in self.asked[p].theirs}
        return {n: x.reshape(ours[n].shape) if x.size == ours[n].size else x for n, x in xs.items()}

    def misfit(self, p, m):
        """Root mean square error of a mistake at a probe in error bars of the right page; inf where it cannot be it."""
        a, square, count = self.asked[p], 0.0, 0
        try:
            found = self.found(p, self.runner.run(self.envs[p], m.codes, self.part))
        except (ValueError, TypeError, IndexError, AttributeError, NameError):
            return np.inf
        off = False
        for n, y in found.items():
            x, finite = a.theirs[n], np.isfinite(y)
            if x.shape != y.shape or (np.isfinite(x) != finite).any():
                return np.inf
            x, y = np.where(finite, x, 0), np.where(finite, y, 0)
            top = np.abs(y).max(initial=0)
            growth = max(1.0, top / (np.abs(a.ours[n]).max(initial=0) or 1.0))
            r = np.abs(x - y) / (4 * growth * a.bars[n] + self.loose * top + 1e-300)
            off, square, count = off or r.max(initial=0) > 1, square + (r * r).sum(), count + r.size
        if off and p == self.first:
            y = self.flat(a, found)
            norm = np.linalg.norm(y) * np.linalg.norm(self.difference)
            if norm > 0:
                self.close.append((abs(y @ self.difference) / norm, (y @ self.difference) / (y @ y), m))
        return np.inf if off else (square / max(1, count)) ** 0.5

    def strictly(self, m):
        """(root mean square, largest) error of a mistake in error bars of its own, over all probes."""
        rms, largest = 0.0, 0.0
        for p, a in self.asked.items():
            def run(xp, start=self.starts[p], p=p):
                env = {n: xp.asarray(x) if isinstance(x, np.ndarray) else x for n, x in start.items()}
                if any("_no_" in name for code in m.codes.values() for name in code.co_names):
                    env |= self.runner.shadows(env)
                return self.found(p, self.runner.run(env, m.codes, self.part if self.part == 0 else None, whole=True))
            exact, bars = rounding.bars(run, self.dtype, naive=self.naive, pairs=2)
            for n, y in exact.items():
                judged = np.isfinite(y) & np.isfinite(bars[n])
                r = np.abs(a.theirs[n] - y)[judged] / np.maximum(bars[n][judged], 1e-300)
                rms, largest = max(rms, ((r * r).sum() / max(1, r.size)) ** 0.5), max(largest, r.max(initial=0))
        return float(rms), float(largest)

    def fits(self, costs):
        """(rms, largest, mistake) of those that explain every answer."""
        near, wrong, lines = [], {n for n in self.names if any(n in a.wrong for a in self.asked.values())}, None
        if 0 not in costs:                                      # many: only where all that is wrong comes from
            lines = [i for i in range(len(self.of.lines)) if self.runner.reached(i, self.names) == wrong]
        found = [mutants(self.of, self.part, self.sizes, costs, lines)]
        if self.part and 0 in costs:                            # what the backward makes again
            found.append(m._replace(words=f"made again wrongly, {m.words}", cost=m.cost + 1)
                         for m in mutants(self.of, 0, self.sizes, costs))
        for m in chain(*found):
            worst = 0.0
            for p in self.asked:
                worst = max(worst, self.misfit(p, m))
                if worst == np.inf:
                    break
            else:
                near.append((worst, m))
        near.sort(key=lambda x: (x[0], x[1].cost))
        return [(*self.strictly(m), m) for _, m in near[:16]]

    def factors(self):
        """(rms, largest, mistake) of a value that is off by a factor which one probe gives and the others confirm."""
        for m in scaled(self.of, self.part):
            factor = 1.0
            for _ in range(12):                                        # Gauss and Newton, in one unknown
                here, there = (self.flat(self.asked[self.first], self.found(self.first, self.runner.run(
                    self.envs[self.first] | {"FACTOR": f}, m.codes, self.part))) for f in (factor, factor + 1e-4))
                slope = (there - here) / 1e-4
                step = (slope @ (self.difference - here)) / ((slope @ slope) or 1)
                factor += np.clip(step, -0.5, 0.5)
            for env in (*self.starts.values(), *self.envs.values()):
                env["FACTOR"] = factor
            if max(self.misfit(p, m) for p in self.asked) < np.inf:
                yield *self.strictly(m), m._replace(words=m.words.format(f"{factor:.4g}"))

    def alike(self, m) -> list:
        """Lines that nobody can tell from a mistake's own.

        The others that change; those where an option enters that it leaves out or brings in; the one that makes a value
        which is misread in one line only; the only one that reads a value that is made wrongly.
        """
        lines, uses = self.of.lines, self.runner.uses
        mine = [i for i, line in enumerate(lines) if line.part == self.part]
        used = {name for code in m.codes.values() for name in code.co_names}
        left_out = {tuple(name.rsplit("_no_", 1)) for name in used if "_no_" in name}
        brought = {x for x in ("keep", "dropout") if x in used and not any(x in uses[i] for i in m.codes)}
        found = [*m.codes, *(i for i in mine for x, option in left_out
                             if option in uses[i] and x in self.runner.reached(i, [x]))]
        found += [i for i in mine if brought & uses[i]]
        value = m.line.name if m.whole else m.misread
        readers = {lines[i].tag for i in mine if value in uses[i]}
        if len(readers) == 1:
            found += [i for i in mine if (value in uses[i] if m.whole else lines[i].name == value)]
        return [lines[i] for i in found]

    def first_lines(self) -> tuple:
        """The first lines whose value alone would explain the answers to one probe, the smallest that tells."""
        wrong = [p for p, a in self.asked.items() if a.wrong]
        p = "one sequence" if "one sequence" in wrong else wrong[0]
        a = self.asked[p]
        theirs = {n: a.theirs[n] for n in self.names if n in a.theirs}
        bars = {n: 4 * a.bars[n] + self.loose * np.abs(a.ours[n]).max(initial=0) for n in theirs}
        return first_lines(self.of, self.part, self.envs[p], theirs, bars)

    def report(self, worst, verdict, found, named, fit):
        """A Diagnosis from (line, words), the plainest first; a line of None is a sentence of its own."""
        part, function = ("forward", "backward")[self.part], self.of.words[self.part]
        lines = tuple(dict.fromkeys(f"{part} ({line.tag})" for line, _ in found if line))[:3]
        sentences = []
        for tag in lines:
            line, words = next((line, w) for line, w in found if line and f"{part} ({line.tag})" == tag)
            sentences.append(f"line ({line.tag}) of {function}, {line.name} = {line.text}: {words}")
        sentences += [words for line, words in found if line is None]
        verdict += f" from line {lines[0].split()[1]} on" if self.part else ""
        return Diagnosis(worst.comparison, verdict, lines, tuple(sentences), named, float(fit))


def diagnosed(searches, worst, verdict, names) -> Diagnosis:
    """What the grammar explains, in its plainest words; else the nearest mistake and the pattern of wrong entries."""
    found = []
    for ways in (lambda s: s.fits((0, 1)), lambda s: s.fits((2, 3)), Search.factors):
        found = found or [(*f, s) for s in searches for f in ways(s) if f[1] <= 1]
    if found:
        best = min(f[0] for f in found)
        found = sorted((f for f in found if f[0] <= 2 * best + 0.02), key=lambda f: (f[2].cost, len(f[2].words)))
        words = [(m.line, m.words) for _, _, m, _ in found]
        words += [(line, m.words) for _, _, m, s in found for line in s.alike(m)]
        return found[0][3].report(worst, verdict, words, True, found[0][1])
    return unexplained(searches, worst, verdict, names)


def unexplained(searches, worst, verdict, names) -> Diagnosis:
    """Where no mistake of the grammar fits: the first line whose value alone would explain it, and the pattern."""
    said = (None, pattern(worst, names))
    close = sorted((c for s in searches for c in s.close), key=lambda c: -c[0])
    found = [s.first_lines() for s in searches]
    first = [line for lines, _ in found for line in lines]
    if first and close and not any(sure for _, sure in found):
        first = [m.line for x, _, m in close[:1] if x > LIKE] + first
    if first:
        tags = list(dict.fromkeys(line.tag for line in first))[:3]
        near = {tag: next((c for c in close if c[2].line.tag == tag and c[0] > LIKE), None) for tag in tags}
        like = {tag: f"; nearest: {c[2].words}, {c[1]:.3g} times as much" for tag, c in near.items() if c}
        words = [(line, f"another {line.name} would explain it, none before it does{like.get(line.tag, '')}")
                 for line in first]
        return searches[0].report(worst, verdict, [*words, said], False, np.inf)
    if not close:
        return Diagnosis(worst.comparison, verdict, (), (said[1],), False, np.inf)
    top = [c for c in close if c[0] >= close[0][0] - 1e-6][:3]
    words = [(m.line, f"{'as' if top[0][0] > NEAR else 'perhaps'} {m.words}, {f:.3g} times as much") for _, f, m in top]
    return searches[0].report(worst, verdict, [*words, said], False, np.inf)


def pattern(answer, names) -> str:
    """Which entries are wrong, in words."""
    for n in (n for n in names if n in answer.wrong):
        x, y, bar = answer.theirs[n], answer.ours[n], answer.bars[n]
        if not np.isfinite(x).all():
            return f"{n}: {(~np.isfinite(x)).sum()} of {x.size} entries are NaN or infinite"
        if x.shape == y.shape:
            bad = ~(np.abs(x - y) <= bar)
            if bad.mean() > 0.9:
                factor = (x * y).sum() / ((y * y).sum() or 1)
                exact = np.allclose(x, factor * y, rtol=1e-2)
                return f"{n}: all entries are wrong" + (f", {factor:.4g} times what they should be" if exact else "")
            where = []
            for axis in range(x.ndim):
                lost = np.flatnonzero(bad.any(tuple(i for i in range(x.ndim) if i != axis)))
                if len(lost) < x.shape[axis]:
                    where.append(f"axis {axis} at {', '.join(map(str, lost[:8]))}{' ...' if len(lost) > 8 else ''}")
            return f"{n}: {bad.sum()} of {bad.size} entries are wrong" + (f", {' and '.join(where)}" if where else "")
    return "an array has the wrong shape"
