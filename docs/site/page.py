"""A pair as a table: the equation, the forward line, and the backward lines that answer it, one row for each tag."""

import ast
import json
import re
from functools import cached_property
from html import escape

from refattn import ops

from .equations import Equation, Reader, hold
from .mathml import Typesetter
from .mistakes import mistakes
from .notation import formulas
from .numbers import Numbers
from .operations import Unread, statement_names
from .traced import atoms, observe
from .units import ROOT, Line, Unit, functions

WORD = re.compile(r"(?<![\w\"'])[a-zA-Z_][\w.]*")


def results_of(function) -> list[str]:
    """What a function returns, as the first words of its docstring name it: `dq, dk, dv, dbias from do`."""
    text = re.sub(r"\s*\([^)]*\)", "", (ast.get_docstring(function.node) or "").split("\n\n")[0])
    return re.findall(r"\w+", re.match(r"\w+(, \*?\w+)*", text)[0]) if re.match(r"\w", text) else []


class Pair:
    """A unit with everything that its table says, read once."""

    def __init__(self, unit: Unit, planted: bool = True):
        self.unit, self.planted = unit, planted
        self.states, self.letters = observe(unit)
        self.sides = {"f": unit.forward, "b": unit.backward}
        for side in self.sides.values():
            names = results_of(side)
            for line in side.lines:
                line.equations = [e for e in self.reader(line).statement(line.node, names) if self.held(line, e)]
        found = {text.rpartition(".")[2] for line in self.lines for text in atoms(line.node)}
        self.type = Typesetter(found | {n for s in self.sides.values() for n in results_of(s)})

    @cached_property
    def lines(self) -> list[Line]:
        return [line for side in self.sides.values() for line in side.lines]

    @cached_property
    def spoken(self) -> dict:
        """{array: letters} that subscripts of `contract` say and no run could."""
        found = {}
        for line in self.lines:
            for node in ast.walk(line.node):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "contract":
                    arrays = [*node.args[1:]]
                    arrays += line.node.targets if isinstance(line.node, ast.Assign) and line.node.value is node else []
                    for x, index in zip(arrays, node.args[0].value.replace("->", ",").split(","), strict=False):
                        if isinstance(x, ast.Name):
                            found.setdefault(x.id, index)
        return found

    def axes(self, line: Line) -> dict:
        return self.spoken | self.letters.get(line.first, {})

    def lookup(self, node):
        return eval(ast.unparse(node), vars(self.unit.module))          # noqa: S307 (names of our own source)

    def reader(self, line) -> Reader:
        return Reader(self.axes(line), self.lookup)

    def held(self, line, equation) -> bool:
        """Whether to show it: a run has shown that it is true, or it speaks of windows, which a test evaluates."""
        before, after = self.states.get(line.first, ({}, {}))
        return hold(equation, before, after, self.axes(line), epsilon=1e-6) or "n" in statement_names(
            equation.statement)

    def called(self, lines) -> set[str]:
        """The operations of ops.py in some lines."""
        return {n.func.attr for line in lines for n in ast.walk(line.node) if isinstance(n, ast.Call) and isinstance(
            n.func, ast.Attribute) and ast.unparse(n.func.value) == "ops"} if not isinstance(lines, Line) else set()

    @cached_property
    def mistakes(self) -> list:
        return mistakes(self.unit, self.called(self.lines)) if self.planted else []

    @cached_property
    def rows(self) -> dict:
        """{row: {"f": lines, "b": lines}}: 0 the beginning, the tags, and "turn", where the backward begins."""
        order = ["0", *map(str, sorted(self.unit.forward.tags)), "turn"]
        found = {row: {"f": [], "b": []} for row in order}
        for key, side in self.sides.items():
            row = "0" if key == "f" else "turn"
            for line in side.lines:
                if line.tags and not line.again:
                    row = str(line.tags[0])
                last = line is side.lines[-1] and not line.tags
                found["turn" if last and key == "f" else "0" if last else row][key].append(line)
        return found

    # ------------------------------------------------------------------------------------------------------ as HTML

    def code(self, line: Line) -> str:
        """The line as it stands, its arrays marked."""
        known = self.axes(line)

        def marked(match):
            word = match[0]
            return f'<span class="v" data-v="{word}">{word}</span>' if word in known else word

        indent = "&#160;" * 4 * line.depth
        return "\n".join(indent + WORD.sub(marked, escape(row, quote=False)) for row in line.code)

    def math(self, line: Line) -> str:
        """The line's equations, or its outline; nothing where only its code could stand there once more."""
        if line.equations:
            return " ".join(map(self.type.equation, line.equations))
        try:
            outline = self.type.sketch(line.node, results_of(
                self.sides["f" if line in self.unit.forward.lines else "b"])) if line.tags else ""
        except (TypeError, Unread):
            return ""
        return "" if 'class="code"' in outline else outline

    @cached_property
    def typeset(self) -> bool:
        """Whether every tagged line of the forward has its equations."""
        return all(line.equations for line in self.unit.forward.lines if line.tags)

    def line(self, line: Line, side: str) -> str:
        tagged = bool(line.tags) and not line.again
        makes = sorted({e.name for e in line.equations} or set(self.stores(line)))
        reads = sorted(set(atoms(line.node)) & set(self.axes(line)) - set(makes))
        said = [x for x in (line.note, " ".join(f"({t})" for t in line.tags[1:]) and "answers " + " ".join(
            f"({t})" for t in line.tags) if len(line.tags) > 1 and not line.again else "",
            "again" if line.again else "") if x]
        size = " ".join(f'<span class="size" data-n="{escape(n)}" data-letters="{self.axes(line)[n]}">'
                        f"{escape(n)} {self.axes(line)[n]}</span>" for n in makes if self.axes(line).get(n))
        equations = f'<div class="made">{self.math(line)}</div>' if side == "b" and tagged else ""
        note = f'<p class="note">{escape("; ".join(said))} <small>{size}</small></p>' * bool(tagged and (said or size))
        data = f' tabindex="0" data-makes="{escape(" ".join(makes))}" data-reads="{escape(" ".join(reads))}"' * tagged
        kind = "ln" if tagged else "pale"
        return (f'<div class="{kind}" id="{self.unit.name}-{side}{line.first}"{data}><i class="no">{line.first}</i>'
                f"<code>{self.code(line)}</code>{equations}{note}</div>")

    def stores(self, line):
        """The names that a line assigns to."""
        targets = getattr(line.node, "targets", None) or [getattr(line.node, "target", None)]
        return [text for t in targets if t is not None and not isinstance(line.node, ast.For) for text in atoms(t)
                if text != "_"]

    def row(self, row: str) -> str:
        sides = self.rows[row]
        if not any(sides.values()):
            return ""
        cells = {s: "".join(self.line(x, s) for x in lines) for s, lines in sides.items()}
        for s, side in self.sides.items():
            cells[s] += "".join(f'<p class="note">with ({x.tags[0]}), line {x.first}</p>' for x in side.lines
                                if row.isdigit() and int(row) in x.tags[1:] and not x.again)
        tagged = [x for x in sides["f"] if x.tags]
        head = {"0": "", "turn": "↷"}.get(row, f"({row})")
        return (f'<tr data-row="{row}" class="{"step" if tagged else "edge"}"><th scope="row">{head}</th>'
                f'<td class="eq">{"".join(f"<div>{self.math(x)}</div>" for x in tagged)}</td>'
                f'<td class="f">{cells["f"]}</td><td class="b">{cells["b"]}{self.more(row)}</td></tr>')

    def more(self, row: str) -> str:
        """Loops that define a row and the mistakes that are known on it; closed until somebody asks."""
        lines = [x for side in self.rows[row].values() for x in side if x.tags and not x.again]
        if not lines:
            return ""
        own = {n for x in lines for n in range(x.first, x.node.end_lineno + 1)}
        called = self.called(lines)
        found = [m for m in self.mistakes if (m.line in own if m.bug.file == self.unit.file else m.function in called)]
        bugs = "".join(f'<li>{escape(m.bug.sentence)}{f" <i>in ops.{m.function}</i>" * (m.bug.file == "ops.py")}'
                       f'<span class="marks">{self.marks(m.spoiled)} seen by <b>{m.seen.split(" of ")[0]}</b></span>'
                       f"<code><del>{escape(bare(m.bug.old))}</del> <ins>{escape(bare(m.bug.new))}</ins></code></li>"
                       for m in found)
        loops = "".join(f'<div{" class=lit" * lit}>{escape(text)}</div>' for text, lit in loops_of(self.unit, int(row)))
        name = f"verification/naive/{self.unit.file.rpartition('/')[2]}"
        parts = [f'<section class="loops"><h4>the loops that define it · {name}</h4>{loops}</section>' if loops else "",
                 f'<section class="bugs"><h4>{len(found)} known mistake{"s" * (len(found) != 1)} and what each spoils'
                 f"</h4><ul>{bugs}</ul></section>" if found else ""]
        text = "".join(parts)
        return f'<details class="more"><summary>more on ({row})</summary>{text}</details>' if text else ""

    def marks(self, spoiled: dict) -> str:
        short = {"output": "y" if "y" in results_of(self.unit.forward) else "o", "dparameters": "grads"}
        marks = (f'<span class="{"bad" if wrong else "good"}">{escape(short.get(n, n))} {"✗" if wrong else "✓"}</span>'
                 for n, wrong in spoiled.items())
        return " ".join(marks) if any(spoiled.values()) else ""

    def table(self) -> str:
        """The whole table of a pair."""
        letters = sorted({x for axes in self.letters.values() for index in axes.values() for x in index if x != "1"})
        ahead, back = escape(self.unit.forward.name), escape(self.unit.backward.name)
        head = (f'<th></th><th>Equation</th><th class="f">Forward ↓ <small>{ahead}</small></th>'
                f'<th class="b">Backward ↑ <small>{back}</small></th>')
        return (f'<table class="pair" data-letters="{"".join(letters)}"><thead><tr>{head}</tr></thead><tbody>'
                f'{"".join(map(self.row, self.rows))}</tbody></table>{self.numbers()}')

    def numbers(self) -> str:
        """What the script needs to step through an example."""
        data = Numbers(self).data()
        if data is None:
            return ""
        text = json.dumps(data, separators=(",", ":")).replace("</", "<\\/")
        return ('<section class="numbers"><h3>The same lines, with numbers</h3><p>Every gradient stands under its '
                "array, in the same shape. Point at a cell that this line makes to see what it is made of; ← and → "
                "step.</p>"
                f'<script type="application/json">{text}</script></section>')


def bare(text: str) -> str:
    """Source without tags, in one line."""
    return " ".join(re.sub(r"#\s*\(.*", "", row).strip() for row in text.splitlines()).strip() or "(nothing)"


def loops_of(unit: Unit, tag: int) -> list[tuple[str, bool]]:
    """The lines of the loops that define a pair, and whether each carries the tag; [] where the loops have none."""
    path = ROOT / "verification" / "naive" / unit.file.rpartition("/")[2]
    if not path.exists():
        return []
    plain = unit.name.replace("_", "").lower()
    tagged = [f for f in functions(path.read_text(encoding="utf-8")) if f.tags]
    named = [f for f in tagged if f.name.replace("_", "").lower() == plain] or (tagged if len(tagged) == 1 else [])
    return [("    " * x.depth + row, tag in x.tags) for f in named[:1] for x in f.lines for row in x.code]


def operations() -> str:
    """The table of ops.py: a row is a pair, its formulas, and both sources."""
    source = (ROOT / "ops.py").read_text(encoding="utf-8").splitlines()
    found = {f.name: f for f in functions("\n".join(source)) if f.name in ops.__all__}
    rows = ""
    for name in (n for n in found if not n.endswith("_backward")):
        sides = [found[name], found.get(f"{name}_backward")]
        cells = "".join(f'<td class="{s}"><pre>{escape(body(source, f))}</pre></td>' if f else
                        f'<td class="{s}"><p class="note">its own derivative, or a part of another’s</p></td>'
                        for s, f in zip("fb", sides, strict=True))
        rows += (f'<tr class="step" id="{name}"><th scope="row">{name}</th><td class="eq">{typeset(sides)}</td>'
                 f"{cells}</tr>")
    return (f'<table class="pair ops"><thead><tr><th></th><th>Equation</th><th class="f">Forward ↓</th><th class="b">'
            f"Backward ↑</th></tr></thead><tbody>{rows}</tbody></table>")


def body(source, function) -> str:
    """A function's lines below its docstring."""
    first = function.node.body[1 if ast.get_docstring(function.node) else 0].lineno
    return "\n".join(row[4:] for row in source[first - 1:function.node.end_lineno])


def typeset(sides) -> str:
    """The formulas of a pair's docstrings."""
    statements = [s for f in sides if f for s in formulas(ast.get_docstring(f.node))]
    names = {n for s in statements for n in {*statement_names(s), s.targets[0].value.id}}
    setter = Typesetter(names)
    return "".join(f"<div>{setter.equation(Equation(s, '=', None))}</div>" for s in statements)


def page(file: str, units: list[Unit], planted: bool = True) -> str:
    """The HTML of a file's page."""
    pairs = [Pair(unit, planted) for unit in units]
    shown = "".join((f"<h2>{escape(p.unit.name)}</h2>" if len(pairs) > 1 else "") + p.table() for p in pairs)
    doc = ast.get_docstring(ast.parse((ROOT / file).read_text(encoding="utf-8"))) or ""
    first, _, rest = doc.partition("\n")
    closed = "" if all(p.typeset for p in pairs) else " open"      # where the table has not all equations, the text has
    about = (f'<p>{escape(first)}</p><details class="about"{closed}><summary>equation and source</summary>'
             f"<pre>{escape(rest.strip(chr(10)))}</pre></details>")
    return f'<div class="sbs">{about}<div class="sizes" hidden></div>{shown}</div>'
