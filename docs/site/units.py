"""Pairs of functions whose lines carry tags, `# (3) eq. 6`, read from the sources; every tag must have its answer."""

import ast
import re
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path

import refattn

ROOT = Path(refattn.__file__).parent
TAG = re.compile(r"#\s+(\(\d+\)[^#]*)$")


class Unanswered(ValueError):
    """A tagged line that no line of the backward answers, an answer to no line, or to another than it says."""


@dataclass(eq=False)
class Line:
    """One statement as it stands in the source: the header only, of a statement with a body."""
    node: ast.stmt
    first: int
    code: list[str]            # source lines without tag and common indentation
    depth: int                 # in levels of indentation below the function
    tags: tuple[int, ...] = ()
    note: str = ""
    again: bool = False        # the backward makes once more what a forward line made
    equations: list = field(default_factory=list)


@dataclass(eq=False)
class Function:
    """A function's lines, in order."""
    name: str                  # as in `Block.forward`
    node: ast.FunctionDef
    lines: list[Line]

    @property
    def tags(self) -> set[int]:
        return {tag for line in self.lines if not line.again for tag in line.tags}


@dataclass(eq=False)
class Unit:
    """A forward and its backward."""
    file: str                  # below refattn/
    forward: Function
    backward: Function

    @cached_property
    def module(self):
        return import_module(f"refattn.{self.file.removesuffix('.py').replace('/', '.')}")

    @property
    def name(self) -> str:
        """`hyla`, `Block`."""
        return self.forward.name.removesuffix(".forward").lstrip("_")

    def check(self):
        """Itself.  Raises Unanswered naming the tags that have no answer."""
        for left, right, words in ((self.forward, self.backward, "no answer in"), (
                self.backward, self.forward, "no line to answer in")):
            if missing := sorted(left.tags - right.tags):
                raise Unanswered(f"{self.file}: {', '.join(f'({n})' for n in missing)} of {left.name} "
                                 f"has {words} {right.name}")
        ahead = [(tag, names(x.node, ast.Load)) for x in self.forward.lines for tag in x.tags if not x.again]
        reads = {tag: set().union(*(found for other, found in ahead if other == tag)) for tag in self.forward.tags}
        for line in self.backward.lines:
            made = {x[1:] for x in names(line.node, ast.Store) if x[0] == "d"}
            named = len(line.tags) == 1 and not line.again and "." not in self.forward.name     # not parts of a layer
            others = [tag for tag, found in reads.items() if made & found]
            if named and others and line.tags[0] not in others:
                raise Unanswered(f"{self.file}: line {line.first} of {self.backward.name} makes the gradient of "
                                 f"{', '.join(sorted(made))} and answers ({line.tags[0]}), which does not read it, but "
                                 f"({others[0]}) does")
        return self


def names(node, how) -> set[str]:
    """The names that a statement loads or stores, of attributes the last."""
    return {getattr(n, "id", None) or n.attr for n in ast.walk(node)
            if isinstance(n, ast.Name | ast.Attribute) and isinstance(n.ctx, how)}


def tag_of(comment: str) -> tuple[tuple[int, ...], str, bool]:
    """(numbers, note, whether it says "again") of what follows the # of a tagged line.

    >>> tag_of("(4), (6) again"), tag_of("(2)-(5) again")[0], tag_of("(7) the code's second use")
    (((4, 6), '', True), (2, 3, 4, 5), ((7,), "the code's second use", False))
    """
    head = re.match(r"(?:\(\d+\)[\s,:-]*)+", comment)[0]
    tags = [int(n) for n in re.findall(r"\d+", head)]
    if re.search(r"\)-\(", head):
        tags = list(range(tags[0], tags[-1] + 1))
    note = comment[len(head):].strip(" ,")
    return tuple(tags), "" if note == "again" else note, note.endswith("again")


def lines_of(function: ast.FunctionDef, source: list[str]) -> list[Line]:
    """The statements of a function below its docstring, headers of loops and branches among them."""
    found = []

    def visit(body, depth):
        for node in body:
            if isinstance(node, ast.FunctionDef) or isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue
            inner = getattr(node, "body", None)
            if inner and inner[0].lineno == node.lineno:
                inner = None
            last = inner[0].lineno - 1 if inner else node.end_lineno
            rows = source[node.lineno - 1:last]
            tagged = [TAG.search(row) for row in rows]
            line = Line(node, node.lineno, [TAG.sub("", row)[node.col_offset:].rstrip() for row in rows], depth)
            for match in filter(None, tagged):
                line.tags, line.note, line.again = tag_of(match[1])
            found.append(line)
            if inner:
                visit(inner, depth + 1)
                rest = getattr(node, "orelse", None) or []
                if rest and source[rest[0].lineno - 1].lstrip().startswith("elif"):
                    visit(rest, depth)
                elif rest:
                    at = next(n for n in range(rest[0].lineno, 0, -1) if source[n - 1].lstrip().startswith("else"))
                    found.append(Line(node, at, ["else:"], depth))
                    visit(rest, depth + 1)

    visit(function.body, 0)
    return found


def functions(source: str) -> list[Function]:
    """All functions of a file, nested ones and methods too, by their qualified names."""
    rows, found = source.splitlines(), []

    def visit(node, prefix):
        for inner in node.body:
            if isinstance(inner, ast.ClassDef | ast.FunctionDef):
                if isinstance(inner, ast.FunctionDef):
                    found.append(Function(prefix + inner.name, inner, lines_of(inner, rows)))
                visit(inner, f"{prefix}{inner.name}.")

    visit(ast.parse(source), "")
    return found


def units_of(file: str, source: str) -> list[Unit]:
    """The pairs of a file that have tags.  Raises Unanswered."""
    tagged = [f for f in functions(source) if f.tags]
    found = []
    for forward in tagged:
        if "backward" in forward.name:
            continue
        stem = forward.name.removesuffix("forward")
        answers = [f for f in tagged if "backward" in f.name and f.name.split("backward")[0].startswith(stem)]
        if not answers:
            raise Unanswered(f"{file}: {forward.name} has tagged lines and no backward that answers them")
        found.append(Unit(file, forward, min(answers, key=lambda f: len(f.name))).check())
    return found


def pages() -> dict[str, list[Unit]]:
    """{file: its pairs}, for every file of the library with tagged lines but those of the checks."""
    files = [f.relative_to(ROOT).as_posix() for f in sorted(ROOT.rglob("*.py"))]
    apart = "verification/", "check/"
    found = {f: units_of(f, (ROOT / f).read_text(encoding="utf-8")) for f in files if not f.startswith(apart)}
    return {f: units for f, units in found.items() if units}
