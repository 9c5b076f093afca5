"""What people write in place of a line of a page's formulas, or of a part of it: the table mistakes.txt, applied.

Factors are symbols (n_h, the number of heads, not 5), so a change means the same at every size.
"""

import ast
import re
from importlib.resources import files
from itertools import combinations, product

from .formulas import OPTIONS
from .running import reduced, resolved, tiles, ways

TABLE = files(__package__).joinpath("mistakes.txt").read_text(encoding="utf-8")
EPSILONS = "1e-12", "1e-10", "1e-08", "1e-07", "1e-06", "2.0**-23", "2.0**-52", "1e-05", "0.0001", "0.001", "0.01"
CAPS = 15, 20, 30, 50
EXPONENTS = -2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 3.0
FACTORS = ("-1", "-1.0"), ("2", "2.0"), ("1/2", "0.5"), ("0", "0.0")
POWERS = ("{}", 1.0), ("1/{}", -1.0), ("sqrt({})", 0.5), ("1/sqrt({})", -0.5)
HEADS = {"bqhd", "bkhd", "bkhe", "bqhe", "bqsd", "bksd", "bqse", "bkre"}


def _read(row) -> tuple:
    """(cost, words, text, the fields in braces) of a row of the table."""
    cost, words, text = (part.strip() for part in row.split(" | ", 2))
    return cost, words, text, set(re.findall(r"{(\w+)", row))


MISTAKES = {kind: [_read(row) for row in body.splitlines()]
            for kind, body in re.findall(r"^\[(.+)\]\n((?:.+\n)+)", TABLE, re.MULTILINE)}


def factors(letters) -> list:
    """What values are multiplied by, and its words."""
    return [{"w": w, "f": f} for w, f in FACTORS] + [
        {"w": words.format(n), "f": f"n_{n} ** {power}"} for n in letters for words, power in POWERS]


def told(factor) -> str:
    """A factor in four digits, or how far it is from 1."""
    digits = f"{factor:.4g}"
    return digits if digits != "1" else f"1 {'-' if factor < 1 else '+'} {abs(factor - 1):.1g}"


def several(axes) -> list:
    """Every choice of two or more of them."""
    return [chosen for n in range(2, len(axes) + 1) for chosen in combinations(axes, n)]


def rows(kinds, ranges, **fields):
    """(cost, words, text) of a section of the table, or of those of several that are true, `{section: whether}`.

    Its rows with every value of the ranges that they name; a value may be a dict, of several fields.
    """
    chosen = [kinds] if isinstance(kinds, str) else [kind for kind, yes in kinds.items() if yes]
    for cost, words, text, names in (row for kind in chosen for row in MISTAKES[kind]):
        named = [name for name in ranges if name in names]
        for values in product(*map(ranges.get, named)):
            known = fields.copy()
            for name, value in zip(named, values, strict=True):
                known |= value if isinstance(value, dict) else {name: value}
            yield int(cost.format(**known)), words.format(**known), text.format(**known)


class Changes:
    """What may stand in one line of a page."""
    def __init__(self, of, line, scope, sizes):
        self.of, self.line, self.scope, self.sizes, keys = of, line, scope, sizes, tiles(sizes.get(of.code[-1], 1))
        exps = [(x.name, x.text.partition("(")[2].partition(")")[0]) for x in of.lines if x.text.startswith("exp(")]
        self.exps, self.exponent = exps[0] if exps else (None, None)
        self.names = {each.name: each for each in of.lines}
        same: dict = {}                                     # of axes of one size one letter
        self.alike = str.maketrans({x: same.setdefault(n, x) for x, n in sizes.items()})
        self.ranges = {"f": factors(of.code + "de"), "e": EPSILONS, "p": EXPONENTS, "t": keys if self.exponent else (),
                       "option": OPTIONS[1:],
                       "tile": [{"tile": f"{t}{words}", "step": sign * t} for t in keys if of.code[-1] == "k"
                                for sign, words in ((1, ""), (-1, " counted from the first query"))
                                if sign > 0 or sizes.get("q") != sizes["k"]],
                       "whole": (1,) if of.code[-1] == "k" else ()}

    def rows(self, kinds, ranges=None, **fields):
        """`rows` with what the page gives; none that speak of an option which is not there."""
        if fields.get("Y") in {*OPTIONS} - {*self.scope}:
            return ()
        return rows(kinds, self.ranges | (ranges or {}), exps=self.exps, exponent=self.exponent,
                    last=self.of.code[-1], **fields)

    def axes(self, x) -> str:
        """The letters of a value, one for all axes of one size."""
        return self.of.letters.get(x, "?").translate(self.alike)

    def head_axis(self, letters) -> int:
        """Where the heads are, or the searches, of what has batch and heads; 0 otherwise."""
        return max(0, letters.find(self.of.code[1])) if letters[:1] == "b" and letters != "bias" else 0

    def squares(self, letters) -> dict:
        """Ranges of pairs of neighbouring axes that can be exchanged, to the same shape."""
        same, last = letters.translate(self.alike), len(letters) - 2
        return {"over": [{"over": f" over {' and '.join(letters[i:i + 2])}" * (i < last), "here": i, "there": i + 1}
                         for i in range(last + 1) if same[i] == same[i + 1]]}

    def along(self, kind, letters, **fields):
        """Every axis handled wrongly."""
        for i, letter in enumerate(letters if letters != "bias" else ""):
            if letter != "1":
                hows, cost = ways(self.sizes.get(letter, 1)), 2 + (letter in self.line.letters)
                yield from self.rows(kind, {"how": hows}, i=i, letter=letter, cost=cost, **fields)

    def of_line(self, x):
        """Of the whole line, x in words that can be run."""
        of, line = self.of, self.line
        fields = {"x": x, "name": line.name}
        heads = len(line.letters) == 4 and line.letters[0] == "b" and line.letters[1] in "qk"
        kinds = {"line": True, "line of the code": line.letters == of.code, "line of scores": line.name.endswith("s1"),
                 "batch and heads": self.head_axis(line.letters), "line of heads": heads, "reshaped": heads,
                 "line of exp": line.text.startswith("exp(") and "keep" in line.text, "square": True,
                 "line of weights": line.part and "inverse(sum(" in line.text,
                 "line of values": line.name == "v" and "qm" in self.names,         # positions stand behind the maps
                 "line of channels": line.letters == "uwio",
                 "line of windows": line.letters == "bgjuwi", "line of pixels": line.letters == "byzi",
                 "line of what is read": line.text.startswith("dot('bqm,qt->btm', dread")}
        norm = re.fullmatch(r"(\w*)n \* \1scale \+ \1shift|(\w*)r \* \(\2dn - .*", line.text)
        if norm:
            made = self.names[f"{norm[1]}n" if norm[2] is None else f"{norm[2]}dn"].text
            yield from self.rows("line of a norm", inside=re.search(r"\w+", made)[0])
        ends = [{"i": i, "letter": of.code[i]} for i in (1, 3)]
        ranges = {"f": factors(dict.fromkeys([*of.code, *self.sizes])), "i": ends, "cap": CAPS,
                  **self.squares(line.letters)}
        yield from self.rows(kinds, ranges, **fields, heads=self.head_axis(line.letters))
        yield from self.along("line along an axis", line.letters, **fields)

    def of_node(self, node, twin):
        """Of a part of the line; `twin` has letters for axes."""
        if isinstance(node, ast.Name):
            yield from self._of_name(node.id)
        elif isinstance(node, ast.Call):
            yield from self._of_call(node, twin)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            yield from self._of_sum(node, twin)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            yield from self._of_factor(node.left, node.right, twin.left, twin.right)
            yield from self._of_factor(node.right, node.left, twin.right, twin.left)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            yield from self.rows("power", x=ast.unparse(node.left))
            if isinstance(node.left, ast.BinOp) and ast.unparse(node.left.right) == "eps":
                yield from self._of_root(node.left.left)

    def _of_root(self, mean):
        """Of (mean(root ** 2, own) + eps) ** -0.5, or (root ** 2 + eps) ** -0.5."""
        square, own = (mean.args[0], mean.args[1].value) if isinstance(mean, ast.Call) else (mean, ())
        root = square.left if isinstance(square, ast.BinOp) else square
        yield from self.rows("root", a=ast.unparse(mean), call="mean", root=ast.unparse(root), own=own)

    def _of_name(self, x):
        of, letters = self.of, self.of.letters.get(x)
        kinds = {"epsilon": x == "eps", "at": x == "at", "hit": x == "hit", "buckets": letters == "qkv",
                 "rows": x == "hit" and letters == "tv", "picks": x == "picks", "channels": letters == "uwio"}
        yield from self.rows(kinds, {"n": "hmd"}, x=x)
        if x == "scale" and letters is None:            # a page's 1/sqrt(d), not an array of LayerNorm's
            short = [each for each in factors(of.code + "e") if "sqrt" not in each["w"]]
            yield from self.rows("scale", {"n": (*of.code, *"ecm"), "f": short}, head=of.code[1])
        if x.startswith("n_"):
            yield from self.rows("size", {"n": "dechsrbkq".replace(x[2:], "")}, letter=x[2:])
        if letters is None or x not in self.scope:
            return
        weights = x in self.names and re.search(r"inverse\(\w+\(\w+, '(\w+)'", self.names[x].text)
        code = letters == of.code and x not in OPTIONS
        kinds = {"made": x in self.names, "square": True, "keep": x == "keep", "weights": weights,
                 "code of a softmax": code and self.exps in self.scope,
                 "operand": code or x not in (*self.names, *OPTIONS, "do"), "heads": letters in HEADS, "code": code,
                 "reshaped": letters in HEADS, "batch and heads": self.head_axis(letters),
                 "output": self.exponent and x in ("c", "attention_c") and not self.line.part,
                 "option": x in OPTIONS[1:]}
        yield from self.rows(kinds, self.squares(letters), x=x, name=x, heads=self.head_axis(letters),
                             size=" / n_".join(weights[1]) if weights else "")
        for y in self.scope:
            if y != x and self.axes(y) == self.axes(x):
                yield 1 + (y in OPTIONS and x in OPTIONS), f"{y} in place of {x}", y        # other options come last
                if code and self.line.part and y not in OPTIONS:
                    yield 1, f"{x} was multiplied by {y} before", f"({x} * {y})"
        yield from self.along("axis", letters, x=x)

    def _of_sum(self, node, twin):
        x, y, X, Y = map(ast.unparse, (node.left, node.right, twin.left, twin.right))       # noqa: N806 (in words)
        sign, other = ("+", "-") if isinstance(node.op, ast.Add) else ("-", "+")
        if y != "eps":
            yield from self.rows("term", x=x, y=y, X=X, Y=Y, sign=sign, other=other)
        for side, rest in ("left", f"(({{}}) {sign} ({y}))"), ("right", f"(({x}) {sign} ({{}}))"):
            term, words = getattr(node, side), getattr(twin, side)
            if isinstance(term, ast.BinOp) and isinstance(term.op, ast.Mult):
                for a, b, word in (term.left, term.right, words.right), (term.right, term.left, words.left):
                    yield from self.rows("term of two factors", rest=rest.format(ast.unparse(a)), b=ast.unparse(b),
                                         B=ast.unparse(word))

    def _of_factor(self, left, right, left_twin, right_twin):
        x, y, word = map(ast.unparse, (left, right, right_twin))
        yield from self.rows({"factor": True, "factor step": y.startswith("step(")}, x=x, y=y, Y=word)
        if isinstance(left, ast.Call) and len(left.args) == 1:
            yield from self.rows("factor of a call", call=left.func.id, inside=ast.unparse(left.args[0]), y=y, Y=word)
        if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Add | ast.Sub):
            a, b, A, B = map(ast.unparse, (left.left, left.right, left_twin.left, left_twin.right))     # noqa: N806
            sign = "+" if isinstance(left.op, ast.Add) else "-"
            yield from self.rows("factor of a sum", a=a, b=b, A=A, B=B, sign=sign, y=y, Y=word)

    def _of_call(self, node, twin):
        call, x, text = node.func.id, ast.unparse(node.args[0]), ast.unparse(node)
        if call in ("sum", "mean", "total"):
            yield from self._of_reduction(call, x, text, node.args[1].value, twin)
        elif call == "dot":
            ahead, behind = x.strip("'").split("->")
            yield from self.rows("dot of a square", self.squares(behind), text=text)
            yield from self._of_places(ahead.split(",") + [behind], node, twin)
            gone = "".join(x for x in dict.fromkeys(ahead.replace(",", "")) if x not in behind)
            for letters in dict.fromkeys((*gone, gone)) if gone else ():
                yield from self.rows("dot", text=text, letters=letters, size=" / n_".join(letters))
            for letters in several(gone):
                last = (f"ends({ast.unparse(y)}, {[i for i, x in enumerate(part) if x in letters]})"
                        for y, part in zip(node.args[1:], ahead.split(","), strict=True))
                yield from self.rows("several", letters=" and ".join(letters), text=f"dot({x}, {', '.join(last)})")
        elif call in MISTAKES:
            made = resolved(self.of, self.names[x]).body if x in self.names else node.args[0]   # what x stands for
            source = ast.unparse(made)
            exps = f"sum({self.exps}"                           # x, in the pages
            running = source.replace(exps, f"{exps} * drift({self.exponent}, keep, {{t}})")
            letters = reduced(self.of, made) if source.startswith("sum(") else ""
            inside = [dict(zip(("inside", "own"), map(ast.unparse, made.args), strict=True))] if letters else []
            ranges = {"t": [{"t": t, "running": running.format(t=t)} for t in self.ranges["t"]],
                      "inside": inside, "how": ways(self.sizes.get("h", 1)),
                      "j": [{"j": j, "letter": letter} for j, letter in enumerate(letters)]}
            peak = f"largest(exp({self.exponent}) * keep, (-1,))" if source.startswith(exps) else "0.0"
            yield from self.rows(call, ranges, x=x, text=text, running="", peak=peak,
                                 rest=", ".join(map(ast.unparse, node.args[1:])), h="h" if "h" in self.names else "x")

    def _of_places(self, parts, node, twin):
        """A product in which one array, or the result, has the key's place in place of the query's, or the reverse."""
        if "qk".translate(self.alike) != "qq":
            return
        for i, letters in enumerate(parts):
            if ("q" in letters) != ("k" in letters):
                place, other = ("key", "query") if "q" in letters else ("query", "key")
                what = ast.unparse(twin.args[i + 1]) if i < 2 else self.line.name
                yield from self.rows("place", what=what, place=place, other=other, i=i, parts=ast.unparse(node.args[0]),
                                     a=ast.unparse(node.args[1]), b=ast.unparse(node.args[2]))

    def _of_reduction(self, call, x, text, own, twin):
        letters, words = reduced(self.of, twin), twin.args[1].value
        fields = {"x": x, "text": text, "call": call, "own": own, "axis": (*own, 0)[0], "words": words,
                  "ismean": int(call == "mean")}
        ranges = {"cut": tiles(self.sizes.get(words, 1)) if call != "total" else (),
                  "size": [{"some": x, "size": " / n_".join(x)} for x in dict.fromkeys((words, *words))]}
        for n in (1, 2, 0, len(letters)):
            for numbers in combinations(range(len(letters)), n):
                axes = "".join(letters[i] for i in numbers) or "nothing"
                for other in ("sum", "mean") if call != "total" and letters else ():
                    if (other, numbers) != (call, own):
                        yield (int(n != 1), f"{other} over {axes} in place of {call} over {words}",
                               f"{other}({x}, {numbers})")
        for numbers in several(own) if call == "total" else ():
            yield from self.rows("several", letters=" and ".join(letters[i] for i in numbers),
                                 text=f"total(ends({x}, {numbers}), {own})")
        kinds = {"reduction": True, "reduction over one": len(words) == 1, "total": call == "total",
                 "total of weights": x == "weight",
                 "mean over one": call == "mean" and len(words) == 1,
                 "mean over heads": call == "mean" and "h" in words and self.of.code.startswith("bh"),
                 "sum of a softmax": self.line.part and (call, letters, words) == ("sum", self.of.code, letters[-1:])}
        yield from self.rows(kinds, ranges, h=letters[1:2], **fields)
