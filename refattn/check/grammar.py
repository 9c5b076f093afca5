"""A grammar of mistakes: one change in one line of a page's formulas, or two that belong together.

Mechanical: the syntax tree of each line is walked, and at each node `changes` says what people write in its place.
"""

import ast
import re
from functools import cache, partial
from itertools import combinations
from typing import Any, NamedTuple

from .changes import Changes, one, rows
from .formulas import OPTIONS, Formulas
from .running import code_of, resolved, ways

ORDINALS = "first", "second", "third", "fourth", "fifth", "sixth"


class Mutant(NamedTuple):
    """A page with a mistake."""
    line: Any                  # where it begins
    words: str
    cost: int                  # what one does by accident comes before what only a search would think of
    codes: dict                # index of a line -> code in place of its own
    misread: str = ""          # the value that is only read wrongly in the line,
    whole: bool = False        # or whether the line's own value could be read wrongly instead
    only: tuple = ()           # the results that alone are made so, in a pass of their own


class Writer:
    """The changed texts of one line, as code."""
    def __init__(self, of, line):
        self.tree, self.around, self.seen = resolved(of, line), {}, set()
        self.at = {}                                        # id of a node -> what puts another in its place
        for node in ast.walk(self.tree):
            for field, value in ast.iter_fields(node):
                if isinstance(value, list):
                    self.at |= {id(child): partial(value.__setitem__, i) for i, child in enumerate(value)}
                else:
                    self.at[id(value)] = partial(setattr, node, field)
        self.put(self.tree.body, ast.unparse(self.tree))

    def put(self, node, new):
        """The code of the line with the text `new` in place of a node; None if that was there before."""
        if node not in self.around:                         # the texts before and behind it
            self.at[id(node)](ast.Name("HERE"))
            self.around[node] = ast.unparse(self.tree).split("HERE")
            self.at[id(node)](node)
        text, before = f"({new})".join(self.around[node]), len(self.seen)
        code = code_of(text)
        self.seen.add((code.co_code, re.sub("[() ]", "", text)))        # both are the same of one tree only
        return code if len(self.seen) > before else None


def mutants(of: Formulas, part: int, sizes, costs=range(4), lines=None):
    """Every mistake of the forward or of the backward, or of some lines; `sizes` of the letters say which tiles fit.

    With None as the part, what is read wrongly in both.
    """
    texts = [ast.unparse(resolved(of, line)) for line in of.lines]
    for i, line in enumerate(of.lines):
        if line.part == part and (lines is None or i in lines):
            yield from of_one_line(of, i, texts, sizes, costs)
    if 1 in costs:
        yield from moved(of, part, texts)
        yield from badly_scaled(of, part, texts)
        yield from interchanged(of, part, texts, sizes)
    yield from misread(of, part, texts, sizes, costs)
    yield from misread_tokens(of, part, texts, sizes, costs)


def of_one_line(of, i, texts, sizes, costs):
    """One change in a line; the same name changed throughout it; the same change in a later line with the same text."""
    line = of.lines[i]
    writer, original = Writer(of, line), ast.parse(line.text, mode="eval")
    whole, made = writer.tree.body, {each.name for each in of.lines}
    given = [name for name in of.letters if name not in made and name != "do"]
    scope = list(dict.fromkeys(["do"] * line.part + given + [each.name for each in of.lines[:i]]))
    changes = Changes(of, line, scope, sizes)
    found = [(*change, whole, "", True) for change in changes.of_line(texts[i])]
    for node, twin, which in zip(ast.walk(writer.tree), ast.walk(original), _which(line.text), strict=True):
        if isinstance(node, ast.expr) and id(node) in writer.at:
            name = node.id if isinstance(node, ast.Name) else ""
            found += [(cost, words + which, new, node, name, False) for cost, words, new in changes.of_node(node, twin)]
    for x in dict.fromkeys(n.id for n in ast.walk(whole) if isinstance(n, ast.Name)) if 1 in costs else ():
        if x in scope and texts[i].count(x) > 1:
            others = [(f"{y} in place of {x} throughout", y) for y in scope
                      if y != x and changes.axes(y) == changes.axes(x)]
            others += [(f"{x} is made without {option}", f"{x}_no_{option}") for option in OPTIONS[1:]]
            for words, y in others:
                yield Mutant(line, words, 1, {i: renamed(texts[i], {x: y})}, x)
    same = [j for j, other in enumerate(of.lines) if j > i and other.text == line.text and other.part == line.part]
    for cost, words, new, node, *kind in found:
        code = writer.put(node, new) if cost in costs else None
        if code:
            yield Mutant(line, words, cost, {i: code}, *kind)
            for j in same:
                yield Mutant(line, f"{words} (in both places)", cost, {i: code, j: code})


@cache
def _which(text) -> list[str]:
    """What tells each part of a line from others of the same text, "(the second a)", in the order of `ast.walk`."""
    parts = [(ast.unparse(n), n.col_offset) if isinstance(n, ast.Name | ast.BinOp) else ("", 0)
             for n in ast.walk(ast.parse(text, mode="eval"))]
    places = {x: sorted(at for y, at in parts if x == y) for x, _ in parts}
    return [f" (the {ORDINALS[places[x].index(at)]} {x})" if x and len(places[x]) > 1 else "" for x, at in parts]


def moved(of, part, texts):
    """A factor or a term that comes some lines too early or too late."""
    lines = [i for i, line in enumerate(of.lines) if line.part == part]
    for i in lines:
        tree = resolved(of, of.lines[i]).body
        if not isinstance(tree, ast.BinOp) or not isinstance(tree.op, ast.Mult | ast.Add):
            continue
        kind, sign = ("factor", "*") if isinstance(tree.op, ast.Mult) else ("term", "+")
        x, f = ast.unparse(tree.left), ast.unparse(tree.right)
        needed = {n.id for n in ast.walk(tree.right) if isinstance(n, ast.Name)}
        for j in (j for j in lines if 0 < abs(j - i) < 4 and of.lines[j].letters == of.lines[i].letters):
            if j > i and "(" in f or needed & {line.name for line in of.lines[j:i]}:
                continue
            when = f"comes {'after' if j > i else 'before'} {of.lines[j].name} = {of.lines[j].text}"
            yield Mutant(of.lines[min(i, j)], f"the {kind} {f} {when}", 1,
                         {i: code_of(x), j: code_of(f"({texts[j]}) {sign} ({f})")})


def badly_scaled(of, part, texts):
    """The scale of the scores wrong in the same way in all lines that have it."""
    uses = [i for i, line in enumerate(of.lines) if line.part == part and re.search(r"\bscale\b", texts[i])]
    if len(uses) > 1 and "scale" not in of.letters:         # a page's 1/sqrt(d), not an array of LayerNorm's
        names = " and ".join(of.lines[i].name for i in uses)
        for cost, words, new in rows("scale", {"n": one("n", (*of.code, "e", "c")), "f": []}, head=of.code[1]):
            yield Mutant(of.lines[uses[0]], f"{names}: {words}", cost,
                         {i: renamed(texts[i], {"scale": new}) for i in uses})


def interchanged(of, part, texts, sizes):
    """Two inputs of one shape that are taken for one another in every line."""
    axes, lines = Changes(of, of.lines[0], (), sizes).axes, [i for i, line in enumerate(of.lines) if line.part == part]
    for x, y in combinations([n for n in ("q", "k", "v", "do", "selector") if n in of.letters], 2):
        uses = [i for i in lines if re.search(rf"\b({x}|{y})\b", texts[i])]
        if uses and axes(x) == axes(y):
            yield Mutant(of.lines[uses[0]], f"{x} and {y} are exchanged", 1,
                         {i: renamed(texts[i], {x: y, y: x}) for i in uses})


def misread(of, part, texts, sizes, costs):
    """An input that is read wrongly in every line; dropout stands wherever the weights are used, so they are."""
    lines = [i for i, line in enumerate(of.lines) if part in (line.part, None)]
    changes = Changes(of, of.lines[0], (), sizes)
    for name in ("q", "k", "v", "keep", "dropout", "bias", "do", "dend", "state", "selector", "at"):
        said = "the weights are" if name == "dropout" and name not in of.letters else f"{name} is"
        letters = of.letters.get(name, of.code if name == "dropout" else "") if name != "at" else ""
        found = [(1, f"{said} read wrongly over {x}: {how}", f"along({name}, {i}, {how!r})")
                for i, x in enumerate(letters) for how in ways(sizes.get(x, 1)) if how not in ("sum", "mean")]
        heads = changes.head_axis(letters)
        kinds = {"heads": name in ("q", "k", "v", "do"), "keep": name == "keep" and name in of.letters,
                 "at": name == "at", "do": name == "do", "ignored": name in ("dend", "state"),
                 "square": name in OPTIONS, "batch and heads": heads}
        found += changes.rows(kinds, changes.squares(letters), x=name, name=name, heads=heads)
        if name in OPTIONS[1:] and name in of.letters:
            found += [(cost, f"{words} everywhere", new) for cost, words, new in changes.rows("option", x=name)]
        uses = [i for i in lines if re.search(rf"\b{name}\b", texts[i])]
        for cost, words, new in found if uses else ():
            if cost + 1 not in costs:
                continue
            pads = {"before": f"1 - reach({new})"} if name == "at" else {}      # they stand where no key does
            codes = {i: renamed(texts[i], {name: new, **pads}) for i in uses}
            if name == "at":
                some = {i: codes[i] for i in uses if "reach" not in of.lines[i].text}
                yield Mutant(of.lines[uses[0]], words, 1, some)
                known = {name: new, **pads}
                again = {line.name: re.sub(r"\b(at|before)\b", lambda x, known=known: known[x[0]], line.text)
                         for line in of.lines if part and line.letters[:3] == "bqw" and "qwk" in line.text}
                reads = rf"\b({'|'.join((name, *again))})\b"       # of the keys that the backward gathers again, too
                windows = {i: renamed(texts[i], known | again) for i in lines if again and re.search(reads, texts[i])}
                if windows:
                    yield Mutant(of.lines[uses[0]], f"{words}, in all windows", cost + 1, windows)
            first = next((i for i in uses if "reach" in of.lines[i].text and "edge" in new), uses[0])
            if len(codes) > 1 or cost <= 0:
                yield Mutant(of.lines[first], words, cost + 1, codes)


def misread_tokens(of, part, texts, sizes, costs):
    """A layer's tokens, and those of its context, that are read wrongly in every line."""
    uses = [i for i, line in enumerate(of.lines) if line.part == part and re.search(r"\b(x|context)\b", texts[i])]
    for i, letter in enumerate("bqm") if "context" in of.letters and uses and 2 in costs else ():
        for how in ways(sizes.get(letter, 1)):
            names = {x: f"along({x}, {i}, {how!r})" for x in ("x", "context")}
            yield Mutant(of.lines[uses[0]], f"tokens are read wrongly over {letter}: {how}", 2,
                         {j: renamed(texts[j], names) for j in uses})


def renamed(text, names):
    """The code of a text with other texts in place of names."""
    return code_of(re.sub(r"'[^']*'|\b[A-Za-z_]\w*", lambda x: f"({names[x[0]]})" if x[0] in names else x[0], text))


def scaled(of, part):
    """Mistakes by a factor that is not known beforehand: FACTOR times all gradients, a line, a term or an epsilon."""
    upstream = r"\b(do|dend)\b"                            # every gradient is linear in these
    uses = [i for i, line in enumerate(of.lines) if line.part == part == 1 and re.search(upstream, line.text)]
    if uses:
        yield Mutant(of.lines[uses[0]], "every gradient is {} times what it should be", -1, {
            i: renamed(ast.unparse(resolved(of, of.lines[i])), {"do": "FACTOR * do", "dend": "FACTOR * dend"})
            for i in uses})
    for i, line in enumerate(of.lines):
        if line.part == part:
            writer, original = Writer(of, line), ast.parse(line.text, mode="eval")
            whole, terms = writer.tree.body, [(writer.tree.body, f"{line.name} is {{}} times what it should be")]
            for node, twin in zip(ast.walk(whole), ast.walk(original.body), strict=True):
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
                    terms += [(child, f"the term {ast.unparse(word)} is {{}} times what it should be")
                              for child, word in ((node.left, twin.left), (node.right, twin.right))]
            for node, words in terms:
                code = writer.put(node, f"({ast.unparse(node)}) * FACTOR")
                if code:
                    yield Mutant(line, words, 1, {i: code})
