"""The mistakes of the grammar, held against a kernel's answers to all probes."""

from functools import partial
from itertools import chain

import numpy as np

from ..verification import rounding
from .changes import told
from .formulas import OPTIONAL, renamed, start
from .grammar import mutants, scaled
from .probing import SECOND_SHAPE
from .running import Runner
from .upstream import ABSURD, FAR, first_lines

MANY = 60                      # lines, of which those are tried that lead to all that is wrong; fewer give more hints
IMPOSSIBLE = ValueError, TypeError, IndexError, AttributeError, NameError       # of a mistake at some shape


class Search:
    """The mistakes of the grammar against the kernel's answers."""
    def __init__(self, of, part, names, asked, call):
        self.of, self.part, self.names, self.runner = of, part, names, Runner(of)
        self.dtype, self.naive, self.loose = call.dtype, call.naive, call.unit * (8 if call.unit > 1e-5 else 256)
        order = sorted(asked, key=lambda p: (not self.wrong(asked[p]), asked[p].ours["o"].size))     # telling ones
        self.asked = {p: asked[p] for p in order}
        seen = {p: call.seen(a.inputs) for p, a in self.asked.items()}
        self.starts = {p: start(of, inputs) for p, inputs in seen.items()}
        self.envs = {p: self.runner.run(env) | self.runner.shadows(env) for p, env in self.starts.items()}
        self.sizes = {n[2:]: max(env[n] for env in self.envs.values()) for n in self.starts[order[0]] if n[:2] == "n_"}
        self.first, self.close = order[0], []
        # what the kernel's author calls its mask
        self.mask = "keep" if call.forms["keep"] or not (call.causal or "state" in of.letters) else "the causal mask"
        # of a gradient that is zero but for rounding what is allowed of it
        self.scale = {p: {n: max(np.abs(x).max(), np.median(a.bars[n])) or 1.0 for n, x in a.ours.items()}
                      for p, a in asked.items()}
        given = {n for inputs in seen.values() for n in renamed(inputs)}
        given |= {"keep"} if "state" in of.letters else set()
        self.known = of._replace(letters={n: x for n, x in of.letters.items() if n in given or n not in OPTIONAL})
        self.difference = self.flat(self.first, self.asked[self.first].theirs)
        self.apart_by = np.linalg.norm(self.difference)

    def wrong(self, a) -> set:
        """Which of the compared results an answer has wrong."""
        return {*self.names} & {*a.wrong}

    def flat(self, p, results):
        """How far results are from the page, every array relative to its largest entry, in one vector."""
        a = self.asked[p]
        x = np.concatenate([((results[n] - a.ours[n]) / self.scale[p][n]).ravel() for n in self.names
                            if n in a.theirs and np.shape(results[n]) == a.ours[n].shape] or [np.zeros(1)])
        return np.where(np.isfinite(x), x, 0)

    def leaves(self, m, factor) -> float:
        """The part of the error that so much of a mistake leaves, at most, over the probes where something is wrong."""
        largest = 0.0
        for p, a in self.asked.items():
            found = self.made(p, m)
            if found is None:
                return 1.0
            if self.wrong(a):
                off = self.flat(p, a.theirs)
                left = off - factor * self.flat(p, a.ours | found)
                largest = max(largest, float(np.linalg.norm(left) / (np.linalg.norm(off) or 1.0)))
        return largest

    def made(self, p, m) -> dict | None:
        """What a mistake makes of the compared results at a probe; None where it cannot be made there."""
        try:
            return self.found(p, self.runner.run(self.envs[p], m.codes, self.part), m.only)
        except IMPOSSIBLE:
            return None

    def found(self, p, env, only=()) -> dict:
        """The compared results, or `only` some of them, in the shapes that the kernel's have."""
        ours, xs = self.asked[p].ours, {n: env[n] for n in only or self.names if n in self.asked[p].theirs}
        return {n: x.reshape(ours[n].shape) if x.size == ours[n].size else x for n, x in xs.items()}

    def misfit(self, p, m):
        """Root mean square error of a mistake at a probe in error bars of the right page; inf where it cannot be it."""
        a, found = self.asked[p], self.made(p, m)
        if found is None or any(y.shape != a.theirs[n].shape or (np.isfinite(y) != a.finite[n]).any()
                                for n, y in found.items()):
            return np.inf
        square, count = 0.0, 0
        for n, y in found.items():
            x, y = np.where(a.finite[n], a.theirs[n], 0), np.where(a.finite[n], y, 0)
            top = np.abs(y).max(initial=0)
            growth = max(1.0, top / (np.abs(a.ours[n]).max(initial=0) or 1.0))
            r = np.abs(x - y) / (4 * growth * a.bars[n] + self.loose * top + 1e-300)
            if r.max(initial=0) > 1:
                if p == self.first and not m.only and "{}" not in m.words:      # not those that look for their factor
                    self.remember(m, self.flat(p, found))
                return np.inf
            square, count = square + (r * r).sum(), count + r.size
        return (square / max(1, count)) ** 0.5

    def remember(self, m, change):
        """Keeps a mistake that does not explain the first probe, with how alike the change is and how much of it."""
        with np.errstate(over="ignore"):
            norm = np.linalg.norm(change) * self.apart_by
        if 0 < norm < np.inf:
            like = change @ self.difference
            self.close.append((abs(like) / norm, like / (change @ change), m))

    def made_whole(self, p, m, xp) -> dict:
        """What `made` says, every line run anew on arrays of a module."""
        env = {n: xp.asarray(x) if isinstance(x, np.ndarray) else x for n, x in self.starts[p].items()}
        if any("_no_" in name for code in m.codes.values() for name in code.co_names):
            env |= self.runner.shadows(env)
        part = None if self.part else 0
        if self.part and any(self.of.lines[i].part == 0 for i in m.codes):      # made again, o being right
            env, part = self.runner.run(env), 1
        return self.found(p, self.runner.run(env, m.codes, part, whole=True), m.only)

    def strictly(self, m):
        """(root mean square, largest) error of a mistake in error bars of its own, over all probes."""
        rms, largest = 0.0, 0.0
        for p, a in self.asked.items():
            exact, bars = rounding.bars(partial(self.made_whole, p, m), self.dtype, naive=self.naive, pairs=2)
            for n, y in exact.items():
                bar = bars[n] if n in a.wrong else np.maximum(bars[n], a.bars[n])       # which know other forms, too
                judged = np.isfinite(y) & np.isfinite(bar)
                r = np.minimum(np.abs(a.theirs[n] - y)[judged] / np.maximum(bar[judged], 1e-300), FAR)
                rms, largest = max(rms, ((r * r).sum() / max(1, r.size)) ** 0.5), max(largest, r.max(initial=0))
            if largest > 1:
                break                                           # it explains nothing
        return float(rms), float(largest)

    def reached(self, lines) -> set:
        """Which of the compared results some lines have an influence on."""
        return set().union(*(self.runner.reached(i, self.names) for i in lines))

    def fits(self, costs):
        """(rms, largest, mistake) of those that explain every answer."""
        wrong = {n for a in self.asked.values() for n in self.wrong(a)}

        def leads(lines):                                       # of the many only where they lead to nothing else
            names = self.reached(lines)
            return names == wrong or 0 in costs and (names >= wrong or len(self.of.lines) < MANY)
        found = [mutants(self.known, self.part, self.sizes, costs, leads)]
        if self.part and 0 in costs:                            # what the backward makes again
            found.append(m._replace(words=f"made again wrongly, {m.words}", cost=m.cost + 1)
                         for m in mutants(self.known, 0, self.sizes, costs, leads))
        return self.explaining(chain(*found))

    def apart(self):
        """(rms, largest, mistake) of mistakes in a pass that makes the wrong gradients alone, dk and dv say.

        What such a pass misreads is misread in the weights that it makes again, too.
        """
        only = tuple(n for n in self.names if any(n in a.wrong for a in self.asked.values()))
        found = [mutants(self.known, part, self.sizes, costs, lambda lines: self.reached(lines) > {*only})
                 for part, costs in ((1, (0, 1)), (0, (0, 1)), (None, range(4))) if self.part]
        return self.explaining(m._replace(words=f"{m.words}, for {' and '.join(only)} only", only=only)
                               for m in chain(*found) if not m.words.startswith("every"))

    def explaining(self, mistakes):
        """(rms, largest, mistake) of those that explain every answer."""
        near = []
        for m in mistakes:
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
        def off(m, factor):
            values = self.runner.run(self.envs[self.first] | {"FACTOR": factor}, m.codes, self.part)
            return self.flat(self.first, self.found(self.first, values))

        for m in scaled(self.of, self.part):
            factor = 1.0
            for _ in range(24):                                        # Gauss and Newton, in one unknown
                here, there = off(m, factor), off(m, factor + 1e-4)
                slope, most = (there - here) / 1e-4, max(0.5, abs(factor))
                step = np.clip((slope @ (self.difference - here)) / ((slope @ slope) or 1), -most, most)
                factor += step
                if abs(step) < 1e-9 * most:
                    break
            for env in (*self.starts.values(), *self.envs.values()):
                env["FACTOR"] = factor
            if abs(factor) < ABSURD and max(self.misfit(p, m) for p in self.asked) < np.inf:
                yield *self.strictly(m), m._replace(words=m.words.format(told(factor)))

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
        wrong = [p for p, a in self.asked.items() if self.wrong(a)]
        p = SECOND_SHAPE if SECOND_SHAPE in wrong else wrong[0]
        a = self.asked[p]
        theirs = {n: a.theirs[n] for n in self.names if n in a.theirs}
        top = {n: max(np.abs(x).max(initial=0) for x in (a.ours[n], theirs[n])) for n in theirs}
        bars = {n: 4 * a.bars[n] + self.loose * top[n] for n in theirs}
        return first_lines(self.runner, self.part, self.envs[p], theirs, bars)
