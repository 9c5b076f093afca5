"""The lines of a pair with small numbers: what each makes, right and with each mistake planted, for stepping."""

import ast
import warnings

import numpy as np

from .mistakes import load
from .notation import indices, reduction
from .operations import statement_names
from .traced import Watch, atoms, reaching
from .units import Line

SIZES = {"b": 1, "k": 3, "t": 3}           # 2 for every other letter
LARGEST, SEEDS = 48, 6                     # entries of an array that is shown; examples that are tried


def example(case, seed: int) -> tuple[dict, object]:
    """Inputs that are multiples of a half, one pair of one head not kept, one pair dropped; and what draws do."""
    rng = np.random.default_rng(seed)
    inputs = {}
    for name in case.make(np.random.default_rng(0)):
        shape = [SIZES.get(x, 1 if x == "1" else 2) for x in case.axes[name]]
        inputs[name] = rng.integers(-4, 5, shape) / 2
        if name == "keep":
            inputs[name] = np.ones(shape, bool)
            inputs[name][0, -1, 0, -1] = False
        elif name == "dropout":
            inputs[name] = np.full(shape, 4 / 3)
            inputs[name][0, :, -1, 0] = 0
    return inputs, lambda y: np.random.default_rng((seed, 1)).integers(-4, 5, y.shape) / 2


def tree(node):
    """An expression as nested lists, which the script evaluates and writes out."""
    if found := reduction(node):
        return [found[0], found[1], tree(found[2])]
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return ["size", node.id]
        case ast.Subscript():
            return ["at", node.value.id, [getattr(i, "id", "1") if not isinstance(i, ast.Subscript) else None
                                          for i in indices(node)]]
        case ast.UnaryOp():
            return ["-", 0, tree(node.operand)]
        case ast.Compare():
            sign = {ast.Gt: ">", ast.Lt: "<", ast.Eq: "=="}[type(node.ops[0])]
            return [sign, tree(node.left), tree(node.comparators[0])]
        case ast.BinOp():
            sign = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}[type(node.op)]
            return [sign, tree(node.left), tree(node.right)]
        case ast.Call():
            return [node.func.id, *map(tree, node.args)]
    raise TypeError(ast.unparse(node))


def flat(x) -> list[float]:
    """The entries, five digits each."""
    return [float(f"{y:.5g}") + 0.0 for y in np.asarray(x, float).ravel()]


class Numbers:
    """One pair's example: the case and the seed at which most mistakes show."""

    def __init__(self, pair):
        self.pair, self.unit = pair, pair.unit
        self.lines = [x for x in pair.lines if x.tags]
        cases = [c for c in reaching(self.unit)[:16] if c.layer is None and c.file == self.near]
        cases = [c for c in cases if all(isinstance(c.axes[n], str) for n in c.make(np.random.default_rng(0)))]
        self.case = max(cases, key=lambda c: len(self.run(c, 0)[0]), default=None)

    @property
    def near(self):
        return reaching(self.unit)[0].file

    def run(self, case, seed):
        """(states of lines, output and gradients) of an example; ({}, {}) where it cannot run."""
        inputs, dy = example(case, seed)
        watch = Watch(self.unit)
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                y, gradients = watch.run(lambda: case.forward(inputs), case.backward, dy)
        except Exception:                                       # whatever a mistake leads to
            return {}, {}
        y = y if isinstance(y, tuple) else (y,)
        return watch.states, {f"output {i}": x for i, x in enumerate(y)} | gradients

    def made(self, states) -> list[dict]:
        """What each line makes."""
        found = []
        for line in self.lines:
            after = states.get(line.first, ({}, {}))[1]
            found.append({n: flat(after[n]) for n in self.pair.stores(line) if self.shown(line, n, after.get(n))})
        return found

    def shown(self, line: Line, name, value) -> bool:
        return isinstance(value, np.ndarray) and value.size <= LARGEST and np.isfinite(value).all() and len(
            self.pair.axes(line).get(name, "")) == value.ndim > 0

    def planted(self, seed) -> list[tuple]:
        """(mistake, what its lines make, output and gradients) of those that run."""
        return [(m, *self.run(load(m.bug).verification.cases.find(self.case.name), seed)) for m in self.pair.mistakes]

    def differs(self, right, wrong) -> bool:
        return bool(wrong) and any(n not in wrong or wrong[n].shape != x.shape or not np.allclose(
            wrong[n], x, rtol=1e-9, atol=1e-12) for n, x in right.items())

    def data(self) -> dict | None:
        """Everything for the script; None for a pair whose arrays are too large, or that no function of arrays runs."""
        if self.case is None:
            return None
        tries = []
        for seed in range(SEEDS if self.pair.mistakes else 1):
            states, right = self.run(self.case, seed)
            planted = [(m, wrong, results) for m, wrong, results in self.planted(seed) if self.differs(right, results)]
            tries.append((len(planted), -seed, states, planted))
            if len(planted) == len(self.pair.mistakes):
                break
        _, _, states, planted = max(tries, key=lambda x: x[:2])
        steps, given, letters = self.made(states), {}, {}
        for line, made in zip(self.lines, steps, strict=True):
            before = states.get(line.first, ({}, {}))[0]
            for name, value in before.items():
                if name not in letters and name not in given and self.shown(line, name, value):
                    given[name], letters[name] = flat(value), self.pair.axes(line)[name]
            letters |= {name: self.pair.axes(line)[name] for name in made if name not in letters}
        if not letters:
            return None
        bugs = []
        for m, wrong, _ in planted:
            changed = [{n: x for n, x in now.items() if x != good.get(n)}
                       for now, good in zip(self.made(wrong), steps, strict=True)]
            bugs.append({"sentence": m.bug.sentence, "steps": changed})
        rows = [{"id": f"{self.unit.name}-{'f' if x in self.unit.forward.lines else 'b'}{x.first}", "tag": x.tags[0],
                 "again": x.again, "sign": {e.name: e.sign for e in x.equations},
                 "reads": sorted(set(given | letters) & set(atoms(x.node))),
                 "trees": {e.name: tree(e.statement.value) for e in x.equations
                           if statement_names(e.statement) <= set(letters)},
                 "index": {e.name: [getattr(i, "id", "1") for i in indices(e.statement.targets[0])]
                           for e in x.equations}} for x in self.lines]
        numbers = {n: x for _, state in states.values() for n, x in state.items()
                   if isinstance(x, float | int) and np.isfinite(x)}
        shapes = {n: [SIZES.get(x, 1 if x == "1" else 2) for x in index] for n, index in letters.items()}
        return {"given": given, "letters": letters, "shapes": shapes, "numbers": {"epsilon": 1e-6} | numbers,
                "lines": rows, "steps": steps, "bugs": bugs, "planted": len(self.pair.mistakes)}
