"""What the lines of a pair do when they run: every array before and after each line, and the letters of its axes."""

import ast
import sys
from collections import defaultdict
from functools import cache, partial

import numpy as np

from refattn.attention.pages import PAGES
from refattn.params import Parameter
from refattn.verification.cases import CASES

from .units import ROOT, Unit

SEEDS = 4


def atoms(node) -> dict[str, ast.expr]:
    """{text: expression} of the names and chains of attributes in a node, `dq`, `p.readout.w`, and not their parts."""
    found = {}

    def visit(n):
        text = ast.unparse(n) if isinstance(n, ast.Name | ast.Attribute) else ""
        if text.replace(".", "").isidentifier():
            found[text] = n
            n = n.value if isinstance(n, ast.Attribute) else None
            if n is None or isinstance(n, ast.Name | ast.Attribute):
                while isinstance(n, ast.Attribute):
                    found[ast.unparse(n)], n = n, n.value
                if n is not None:
                    found[n.id] = n
                return
        for inner in ast.iter_child_nodes(n):
            visit(inner)

    visit(node)
    return found


def flat(value) -> list:
    """Copies of the arrays in nested tuples, in order; named tuples and all else as one None each."""
    if type(value) in (tuple, list):
        return [x for inner in value for x in flat(inner)]
    return [value.copy() if isinstance(value, np.ndarray) else None]


@cache
def looked_at(unit: Unit) -> dict:
    """{line number: {text: its code}} of what a pair's lines speak of."""
    found = {}
    for line in (*unit.forward.lines, *unit.backward.lines):
        header = line.node if not hasattr(line.node, "body") else getattr(
            line.node, "iter", None) or getattr(line.node, "test", ast.Pass())
        found[line.first] = {text: compile(text, "", "eval") for text in atoms(header)}
    return found


class Watch:
    """Runs of a pair under `sys.settrace`: {line: ({text: value} before, the same after)}, of the first calls."""

    def __init__(self, unit: Unit):
        self.states, self.open, self.calls = {}, None, {"forward": 0, "backward": 0}
        self.path, self.lines = str(ROOT / unit.file), looked_at(unit)
        self.parts = {unit.forward.node.lineno: "forward", unit.backward.node.lineno: "backward"}

    def values(self, frame, line):
        found = {}
        for text, code in self.lines.get(line, {}).items():
            try:
                value = eval(code, frame.f_globals, frame.f_locals)             # noqa: S307 (names of our own source)
            except (AttributeError, NameError):
                continue
            if isinstance(value, np.ndarray | float | int | bool | np.generic) or value is None:
                found[text] = np.array(value) if isinstance(value, np.ndarray) else value
        return found

    def close(self, frame):
        if self.open is not None:
            line, before = self.open
            self.states.setdefault(line, (before, self.values(frame, line)))
            self.open = None

    def start(self, frame, event, _):
        """What `sys.settrace` takes."""
        code = frame.f_code
        part = self.parts.get(code.co_firstlineno) if code.co_filename == self.path else None
        if part is None or self.calls[part]:
            return None
        self.calls[part] += 1

        def inside(frame, event, value):
            line = self.open and self.open[0]
            self.close(frame)
            if event == "return" and line in self.states:
                self.states[line][1]["return"] = flat(value)
            if event == "line" and frame.f_lineno in self.lines and frame.f_lineno not in self.states:
                self.open = frame.f_lineno, self.values(frame, frame.f_lineno)
            return inside

        return inside

    def run(self, forward, backward, dy=None):
        """(output, gradients) of forward() -> output, saved and backward(saved, dy)."""
        before = sys.gettrace()
        sys.settrace(self.start)
        try:
            y, saved = forward()
            dy = dy or (lambda y: np.random.default_rng(1).standard_normal(y.shape))
            ones = tuple(map(dy, y)) if isinstance(y, tuple) else dy(y)
            return y, backward(saved, ones)
        finally:
            sys.settrace(before)


def whole(case, inputs, rng):
    """The inputs of a case with bias, keep and dropout given, in their whole shapes."""
    size = {x: n for name, value in inputs.items() if value is not None and isinstance(case.axes.get(name), str)
            and name not in ("bias", "keep", "dropout") for x, n in zip(case.axes[name], np.shape(value), strict=False)}
    drawn = dict(inputs)
    for name in ("bias", "keep", "dropout") if case.layer is None else ():
        if name in drawn and all(x in size for x in case.axes[name]):
            x = rng.standard_normal([size[x] for x in case.axes[name]])
            drawn[name] = {"bias": x, "keep": x > -0.8, "dropout": (x > -0.7) / 0.75}[name]
    return drawn, size


def sizes_of(case, size) -> dict[int, set]:
    """Size -> the letters that have it, of inputs and parameters."""
    found = defaultdict(set)
    for letter, n in size.items():
        found[n].add(letter)

    def visit(tree):
        if isinstance(tree, Parameter):
            for letter, n in zip(tree.axes, tree.shape, strict=False):
                found[n].add(letter)
        elif isinstance(tree, dict | list | tuple):
            for inner in tree.values() if isinstance(tree, dict) else tree:
                visit(inner)

    if case.layer is not None:
        visit(case.layer.parameters())
    return found


def one_each(axes, given) -> str:
    """The letters of an array's axes, those of inputs before those of parameters; "" where one stays uncertain."""
    found = ""
    for letters in axes:
        chosen = {"1"} & letters or letters & set(given) or letters
        if len(chosen) != 1:
            return ""
        found += min(chosen)
    return found


def reaching(unit: Unit) -> list:
    """The cases that may run a pair, likely ones first: of its own file before others, arrays before layers."""
    cases = [case for case in CASES if case.backward is not None]
    parts = {row.file for row in PAGES.values() if unit.file.removeprefix("attention/") in row.parts}
    near = {unit.file, *(f"attention/{file}" for file in parts)}
    return sorted(cases, key=lambda case: (case.file not in near, case.layer is not None))


def observe(unit: Unit) -> tuple[dict, dict]:
    """({line: values before and after}, {line: {text: letters}}) of a pair, from runs of the cases that reach it.

    A number has the letters "".
    """
    states, letters = {}, {}
    wanted = {line.first for f in (unit.forward, unit.backward) for line in f.lines if line.tags}
    for case in reaching(unit):
        candidates = defaultdict(dict)
        for seed in range(SEEDS):
            rng, watch = np.random.default_rng(seed), Watch(unit)
            inputs, size = whole(case, case.make(rng), rng)
            watch.run(partial(case.forward, inputs), case.backward)
            if not all(watch.calls.values()):
                break
            names = sizes_of(case, size)
            for line, (before, after) in watch.states.items():
                for text, value in (after | before).items():
                    if not isinstance(value, np.ndarray | float | int):
                        continue
                    mine = [names.get(n, set()) | ({"1"} if n == 1 else set()) for n in np.shape(value)]
                    known = candidates[line].setdefault(text, mine)
                    if len(known) == len(mine):
                        candidates[line][text] = [a & b for a, b in zip(known, mine, strict=True)]
                states.setdefault(line, (before, after))
        for line, found in candidates.items():
            named = {text: one_each(axes, size) for text, axes in found.items()}
            named |= {n: x for n, x in case.axes.items() if n in named and len(x) == len(found[n])}
            letters[line] = {n: x for n, x in named.items() if x or not found[n]} | letters.get(line, {})
        if wanted <= set(states):
            break
    return states, letters
