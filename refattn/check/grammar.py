"""A grammar of mistakes: one change in one line of a page's formulas, or two that belong together.

Mechanical: the syntax tree of each line is walked, and at each node `changes` says what people write in its place.
"""

import ast
import re
from functools import cache, partial
from itertools import combinations
from typing import Any, NamedTuple

from .blocks import WORD
from .changes import Changes, rows
from .formulas import OPTIONS, Formulas
from .running import code_of, resolved, ways

PAIRED = "q", "k", "v", "do", "selector", "position_a", "position_p"        # of which two may be exchanged
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


def mutants(of: Formulas, part: int, sizes, costs=range(4), leads=lambda lines: True):
    """Every mistake of the forward or of the backward; `sizes` of the letters say which tiles fit.

    `leads` says whether a mistake in some lines is to be tried.  With None as the part, what is read wrongly in both.
    """
    texts = [ast.unparse(resolved(of, line)) for line in of.lines]
    own, same = [i for i, line in enumerate(of.lines) if line.part == part], twins(of, texts)
    for i in own:
        if leads([i]):
            yield from of_one_line(of, i, texts, sizes, costs)
        where, others = same.get(i, ("", {}))
        if others and leads([i, *others]):
            for m in of_one_line(of, i, texts, sizes, costs):       # the name of a code is its text
                yield m._replace(words=f"{where}, {m.words}", codes=m.codes | {
                    j: renamed(m.codes[i].co_filename, names) for j, names in others.items()})
    if 1 in costs:
        yield from moved(of, own, texts)
        yield from badly_scaled(of, own, texts)
        yield from interchanged(of, own, texts, sizes)
        yield from turned_alike(of, own, texts)
    yield from misread(of, range(len(of.lines)) if part is None else own, texts, sizes, costs)
    yield from misread_tokens(of, own, texts, sizes, costs)


def of_one_line(of, i, texts, sizes, costs):
    """One change in a line; the same name changed throughout it."""
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
    if 1 in costs:
        for x in dict.fromkeys(n.id for n in ast.walk(whole) if isinstance(n, ast.Name)):
            if x in scope and texts[i].count(x) > 1:
                for words, y in throughout(x, changes):
                    yield Mutant(line, words, 1, {i: renamed(texts[i], {x: y})}, x)
    for cost, words, new, node, *kind in found:
        if code := writer.put(node, new) if cost in costs else None:
            yield Mutant(line, words, cost, {i: code}, *kind)


def alike(of, tags) -> list[list[int]]:
    """The lines of some tags of a block, in one order for each sub-layer: their code is shared, too."""
    if type(of.layer).__name__ != "Block" or of.read is not None:
        return []
    count, cut = len(of.layer.sub_layers), []
    for part in 0, 1:
        lines = [i for i, line in enumerate(of.lines) if line.part == part and line.tag in tags]
        n = len(lines) // count
        cut.append([lines[n * i:n * i + n] for i in range(count)])
    return [ahead + back for ahead, back in zip(cut[0], reversed(cut[1]), strict=True)]


def twins(of, texts) -> dict:
    """{a line of a block's first sub-layer: (where, {the same line of another one: {name: name there}})}."""
    found: dict = {}
    for where, tags in ("norm", "15"), ("sub-layer", "34"):
        first, *others = alike(of, tags) or [[]]
        for lines in others:
            ours, theirs = (WORD.findall(" ".join(texts[i] for i in those)) for those in (first, lines))
            names = dict(zip(ours, theirs, strict=True))
            for i, j in zip(first, lines, strict=True):
                found.setdefault(i, (f"in every {where}", {}))[1][j] = names
    return found


def throughout(x, changes):
    """(words, text) of what may stand in place of every x of a line."""
    for y in changes.scope:
        if y != x and changes.axes(y) == changes.axes(x):
            yield f"{y} in place of {x} throughout", y
    for option in OPTIONS[1:]:
        yield f"{x} is made without {option}", f"{x}_no_{option}"


@cache
def _which(text) -> list[str]:
    """What tells each part of a line from others of the same text, "(the second a)", in the order of `ast.walk`."""
    parts = [(ast.unparse(n), n.col_offset) if isinstance(n, ast.Name | ast.BinOp) else ("", 0)
             for n in ast.walk(ast.parse(text, mode="eval"))]
    places = {x: sorted(at for y, at in parts if x == y) for x, _ in parts}
    return [f" (the {ORDINALS[places[x].index(at)]} {x})" if x and len(places[x]) > 1 else "" for x, at in parts]


def moved(of, own, texts):
    """A factor or a term that comes some lines too early or too late."""
    for i in own:
        tree = resolved(of, of.lines[i]).body
        if not isinstance(tree, ast.BinOp) or not isinstance(tree.op, ast.Mult | ast.Add):
            continue
        kind, sign = ("factor", "*") if isinstance(tree.op, ast.Mult) else ("term", "+")
        x, f = ast.unparse(tree.left), ast.unparse(tree.right)
        needed = {n.id for n in ast.walk(tree.right) if isinstance(n, ast.Name)}
        for j in (j for j in own if 0 < abs(j - i) < 4 and of.lines[j].letters == of.lines[i].letters):
            if j > i and "(" in f or needed & {line.name for line in of.lines[j:i]}:
                continue
            when = f"comes {'after' if j > i else 'before'} {of.lines[j].name} = {of.lines[j].text}"
            yield Mutant(of.lines[min(i, j)], f"the {kind} {f} {when}", 1,
                         {i: code_of(x), j: code_of(f"({texts[j]}) {sign} ({f})")})


def badly_scaled(of, own, texts):
    """The scale of the scores wrong in the same way in all lines that have it."""
    uses = reading(own, texts, "scale")
    if len(uses) > 1 and "scale" not in of.letters:         # a page's 1/sqrt(d), not an array of LayerNorm's
        names = " and ".join(of.lines[i].name for i in uses)
        for cost, words, new in rows("scale", {"n": (*of.code, *"ecm"), "f": []}, head=of.code[1]):
            yield everywhere(of, uses, texts, {"scale": new}, f"{names}: {words}", cost)


def turned_alike(of, own, texts):
    """Queries and keys that are turned wrongly in the same way."""
    uses = reading(own, texts, "turned")
    calls = [ast.unparse(resolved(of, of.lines[i]).body)[7:-1].split(", ", 1) for i in uses if len(uses) > 1]
    for each in zip(*(rows("turned", {}, x=x, rest=rest) for x, rest in calls), strict=True):
        yield Mutant(of.lines[uses[0]], f"queries and keys: {each[0][1]}", each[0][0] + 1,
                     {i: code_of(text) for i, (_, _, text) in zip(uses, each, strict=True)})


def interchanged(of, own, texts, sizes):
    """Two inputs of one shape that are taken for one another in every line."""
    axes = Changes(of, of.lines[0], (), sizes).axes
    for x, y in combinations([n for n in PAIRED if n in of.letters], 2):
        uses = reading(own, texts, x, y)
        if uses and axes(x) == axes(y):
            yield everywhere(of, uses, texts, {x: y, y: x}, f"{x} and {y} are exchanged", 1)


def misread(of, lines, texts, sizes, costs):
    """An input read wrongly in every line; dropout stands wherever the weights are used: there they are misread."""
    changes = Changes(of, of.lines[0], (), sizes)
    for name in ("q", "k", "v", "keep", "dropout", "bias", "do", "dend", "state", "selector", "at", "picks"):
        uses = reading(lines if name != "picks" else range(len(texts)), texts, name)
        for cost, words, new in misreadings(of, name, changes) if uses else ():
            if cost + 1 not in costs:
                continue
            names = {name: new}
            if name == "at":
                names["before"] = f"1 - reach({new})"       # pads stand where no key does
                yield from misread_places(of, lines, uses, texts, names, words, cost)
            first = next((i for i in uses if "reach" in of.lines[i].text and "edge" in new), uses[0])
            if len(uses) > 1 or cost <= 0:
                yield everywhere(of, uses, texts, names, words, cost + 1)._replace(line=of.lines[first])


def misreadings(of, name, changes):
    """(cost, words, text) of what may be read in place of an input."""
    said = "the weights are" if name == "dropout" and name not in of.letters else f"{name} is"
    letters = of.letters.get(name, of.code if name == "dropout" else "") if name != "at" else ""
    for i, x in enumerate(letters):
        for how in ways(changes.sizes.get(x, 1)):
            if how not in ("sum", "mean"):
                yield 1, f"{said} read wrongly over {x}: {how}", f"along({name}, {i}, {how!r})"
    heads = changes.head_axis(letters)
    kinds = {"heads": name in ("q", "k", "v", "do"), "keep": name == "keep" and name in of.letters,
             "at": name == "at", "picks": name == "picks", "do": name == "do", "ignored": name in ("dend", "state"),
             "square": name in OPTIONS, "batch and heads": heads}
    yield from changes.rows(kinds, changes.squares(letters), x=name, name=name, heads=heads)
    if name in OPTIONS[1:] and name in of.letters:
        for cost, words, new in changes.rows("option", x=name):
            yield cost, f"{words} everywhere", new


def misread_places(of, lines, uses, texts, names, words, cost):
    """Places of keys that are misread in the windows alone, or in those too that the backward gathers again."""
    apart = [i for i in uses if "reach" not in of.lines[i].text]
    yield Mutant(of.lines[uses[0]], words, 1, {i: renamed(texts[i], names) for i in apart})
    again = {line.name: re.sub(r"\b(at|before)\b", lambda x: names[x[0]], line.text) for line in of.lines
             if of.lines[uses[0]].part and line.letters[:3] == "bqw" and "qwk" in line.text}
    reads = reading(lines, texts, "at", *again)
    if again and reads:
        yield Mutant(of.lines[uses[0]], f"{words}, in all windows", cost + 1,
                     {i: renamed(texts[i], names | again) for i in reads})


def misread_tokens(of, own, texts, sizes, costs):
    """A layer's tokens, and those of its context, that are read wrongly in every line."""
    uses = reading(own, texts, "x", "context")
    for i, letter in enumerate("bqm") if "context" in of.letters and uses and 2 in costs else ():
        for how in ways(sizes.get(letter, 1)):
            names = {x: f"along({x}, {i}, {how!r})" for x in ("x", "context")}
            yield everywhere(of, uses, texts, names, f"tokens are read wrongly over {letter}: {how}", 2)


def reading(lines, texts, *names) -> list[int]:
    """Those of the lines that read any of the names."""
    return [i for i in lines if re.search(rf"\b({'|'.join(names)})\b", texts[i])]


def everywhere(of, uses, texts, names, words, cost) -> Mutant:
    """Other texts in place of names, in all of some lines."""
    return Mutant(of.lines[uses[0]], words, cost, {i: renamed(texts[i], names) for i in uses})


def renamed(text, names):
    """The code of a text with other texts in place of names."""
    return code_of(WORD.sub(lambda x: f"({names[x[0]]})" if x[0] in names else x[0], text))


def scaled(of, part):
    """Mistakes by a factor that is not known beforehand: FACTOR times all gradients, a line, a term or an epsilon."""
    texts = [ast.unparse(resolved(of, line)) for line in of.lines]
    own = [i for i, line in enumerate(of.lines) if line.part == part]
    if uses := reading(own, texts, "do", "dend") if part else []:       # every gradient is linear in these
        names = {"do": "FACTOR * do", "dend": "FACTOR * dend"}
        yield everywhere(of, uses, texts, names, "every gradient is {} times what it should be", -1)
    for i in own:
        line = of.lines[i]
        writer, original = Writer(of, line), ast.parse(line.text, mode="eval")
        whole, terms = writer.tree.body, [(writer.tree.body, f"{line.name} is {{}} times what it should be")]
        for node, twin in zip(ast.walk(whole), ast.walk(original.body), strict=True):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
                terms += [(child, f"the term {ast.unparse(word)} is {{}} times what it should be")
                          for child, word in ((node.left, twin.left), (node.right, twin.right))]
        for node, words in terms:
            if code := writer.put(node, f"({ast.unparse(node)}) * FACTOR"):
                yield Mutant(line, words, 1, {i: code})
