"""A grammar of mistakes: one change in one line of a page's formulas, or two that belong together.

Mechanical: the syntax tree of each line is walked, and at each node what people write in its place is tried.  Factors
are symbols (n_h, the number of heads, not 5), so a change means the same at every size.
"""

import ast
import re
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from .formulas import KNOWN, Formulas

__all__ = ["FUNCTIONS", "Mutant", "Runner", "mutants", "scaled"]

OPTIONS = "bias", "keep", "dropout"


class Mutant(NamedTuple):
    """A page with a mistake."""
    line: Any                  # where it begins
    words: str
    cost: int                  # what one does by accident comes before what only a search would think of
    codes: dict                # index of a line -> code in place of its own


# ------------------------------------------------------------------------------------------------ what lines may call


def _places(n, how):
    """Where along an axis of n an index is read (None: zero there), and which entries are lost."""
    i, (words, _, tile) = np.arange(n), how.rpartition(" ")
    t = int(tile) if tile.isdigit() else 1
    return {"the first for all": i * 0, "shifted by one": np.minimum(i + 1, n - 1), "reversed": i[::-1],
            "shifted back by one": np.maximum(i - 1, 0), "rolled by one": np.roll(i, 1),
            "rolled back by one": np.roll(i, -1),
            "the first missing": np.where(i < 1, -1, i), "the last missing": np.where(i == n - 1, -1, i),
            "only the first": np.where(i > 0, -1, i), "only the last": np.where(i < n - 1, -1, i),
            "the first tile missing, of": np.where(i < t, -1, i), "only the first tile, of": np.where(i < t, i, -1),
            "the last tile missing, of": np.where(i >= (n - 1) // t * t, -1, i),
            "the partial tile missing, of": np.where(i >= n // t * t, -1, i),
            "only the last tile, of": np.where(i < (n - 1) // t * t, -1, i)}[words if tile.isdigit() else how]


WHOLE = ("the first for all", "shifted by one", "shifted back by one", "rolled by one", "rolled back by one",
         "reversed", "the first missing", "the last missing", "only the first", "only the last")
PARTS = ("the first tile missing, of", "the last tile missing, of", "the partial tile missing, of",
         "only the last tile, of", "only the first tile, of")


def ways(n):
    """How an axis of n may be handled wrongly."""
    return [*WHOLE, "mean", "sum", *(f"{words} {t}" for t in tiles(n) for words in PARTS)] if n > 1 else []


def tiles(n):
    """Sizes of tiles that may cut an axis of n."""
    return [t for t in ((2, 3, 4, 5) if n < 16 else (16, 32, 64, 128)) if t < n]


def along(x, axis, how):
    """x with one axis handled wrongly."""
    if how in ("mean", "sum"):
        return np.broadcast_to(getattr(x, how)(axis, keepdims=True), x.shape)
    places = _places(x.shape[axis], how)
    lost = (places < 0).reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
    return np.where(lost, 0, x.take(places, axis))


def folded(x, how):
    """(b, t, h, d) with positions and heads taken for one another in memory."""
    b, t, h, d = x.shape
    return x.reshape(b, h, t, d).swapaxes(1, 2) if how == "split" else x.swapaxes(1, 2).reshape(x.shape)


def _last(at, first=False):
    """One-hot places, each only for the last query and offset that reads it: what a scatter without adding keeps."""
    flat = at.reshape(-1, at.shape[-1])
    rank = np.where(flat > 0, np.arange(len(flat))[:, None] + 1, 0)
    rank = np.where(rank > 0, len(flat) + 1 - rank, 0) if first else rank
    return (flat * (rank == rank.max(0))).reshape(at.shape)


def _alive(keep, axis=-1):
    return np.where(keep.any(axis, keepdims=True), keep, 1.0)


def _drift(s, keep, tile):
    """exp(largest score - largest so far), tile of keys by tile: what a running sum lacks that is never rescaled."""
    s = np.where(keep > 0, s, -np.inf)
    last = np.minimum(np.arange(s.shape[-1]) // tile * tile + tile, s.shape[-1]) - 1
    so_far = np.maximum.accumulate(s, -1)[..., last]
    return np.exp(np.where(np.isfinite(so_far), s.max(-1, keepdims=True) - so_far, 0))


def _placed(at, late=0, dilation=2, edge=None):
    """One-hot places of keys at other positions, (q, w, k); before the first stands none, the first, or the last."""
    q, w, k = at.shape
    n = np.arange(q)[:, None] + k - q + int(late) - dilation * np.arange(w)
    n = np.maximum(n, 0) if edge == "first" else n % k if edge == "wrapped" else n
    return 1.0 * (n[..., None] == np.arange(k))


FUNCTIONS = KNOWN | {
    "drift": _drift,
    "sum": lambda x, axes: x.sum(axes, keepdims=True), "mean": lambda x, axes: x.mean(axes, keepdims=True),
    "total": lambda x, axes: x.sum(axes), "along": along, "folded": folded, "hit_": lambda x: 1.0 * (x != 0),
    "largest": lambda x, axes: x.max(axes, keepdims=True), "lastof": _last, "firstof": lambda at: _last(at, True),
    "alive": _alive, "some": lambda keep: 1.0 * keep.any(-1, keepdims=True), "reciprocal": lambda x: 1 / x,
    "placed": _placed,
}


PLACES = (*((0, f"the dilation is {n} in place of 2", f"placed(at, dilation={n})") for n in (1, 3, 4)),
          *((0, f"keys are {abs(n)} too {'late' if n > 0 else 'early'}", f"placed(at, {n})") for n in (1, -1, 2, -2)),
          (0, "queries stand at the first positions, not at the last", "placed(at, n_q - n_k)"),
          (0, "the first key stands where there is none", "placed(at, edge='first')"),
          (0, "the last keys stand where there is none", "placed(at, edge='wrapped')"),
          (0, "the first key is missing", "along(at, 2, 'the first missing')"),
          (0, "of several uses of one key only the last is kept", "lastof(at)"),
          (0, "of several uses of one key only the first is kept", "firstof(at)"))


def factors(letters="bqkhde"):
    """(words, text) of what values are multiplied by."""
    yield from (("-1", "-1.0"), ("2", "2.0"), ("1/2", "0.5"), ("0", "0.0"))
    for n in letters:
        for words, power in ("{}", 1), ("1/{}", -1), ("sqrt({})", 0.5), ("1/sqrt({})", -0.5):
            yield words.format(n), f"n_{n} ** {power:.1f}"


# ------------------------------------------------------------------------------------------------------------- changes


def resolved(of: Formulas, line) -> ast.Expression:
    """The tree of a line, in which the axes of sums are numbers instead of letters."""
    tree = ast.parse(line.text, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.func.id in ("sum", "mean", "total"):
            letters = reduced(of, node)
            node.args[1].value = tuple(letters.index(x) for x in node.args[1].value)
    return tree


def reduced(of, node) -> str:
    """The letters of what a sum runs over: those of its name with the most."""
    return max((of.letters.get(n.id, "") for n in ast.walk(node.args[0]) if isinstance(n, ast.Name)), key=len)


def exponent(of) -> str:
    """What the page's first exp is taken of."""
    return next(line.text.partition("(")[2].partition(")")[0] for line in of.lines if line.text.startswith("exp("))


class Writer:
    """The changed trees of one line, as code."""
    def __init__(self, of, line):
        self.tree, self.seen = resolved(of, line), {ast.unparse(resolved(of, line))}
        self.at = {id(child): (node, field, None if not isinstance(value, list) else i)
                   for node in ast.walk(self.tree) for field, value in ast.iter_fields(node)
                   for i, child in enumerate(value if isinstance(value, list) else [value])
                   if isinstance(child, ast.expr)}

    def put(self, node, new):
        """The code of the line with the text `new` in place of a node; None if that was there before."""
        parent, field, i = self.at[id(node)]
        fresh = ast.copy_location(ast.parse(new, mode="eval").body, node)
        ast.fix_missing_locations(fresh)
        value = getattr(parent, field)
        if i is None:
            setattr(parent, field, fresh)
        else:
            value[i] = fresh
        try:
            text = ast.unparse(self.tree)
            if text in self.seen:
                return None
            self.seen.add(text)
            return compile(self.tree, text, "eval")
        finally:
            if i is None:
                setattr(parent, field, node)
            else:
                value[i] = node


def code_of(text):
    """The code of an expression."""
    return compile(text, text, "eval")


def changes(of, node, original, scope, sizes):
    """(cost, words, text) of what may stand there instead of a node; `original` is the node with letters for axes."""
    x, keys = ast.unparse(node), tiles(sizes.get(of.code[-1], 1))
    if isinstance(node, ast.BinOp):
        yield from binary(of, node, original)
        if x.startswith("x * inverse(sum(x"):
            yield from ((1, f"the output is not rescaled where the largest score grows, tiles of {t}",
                         f"({x} * drift({exponent(of)}, keep, {t}))") for t in keys)
    if isinstance(node, ast.Call):
        yield from calls(of, node, original, sizes)
    if not isinstance(node, ast.Name):
        return
    if x == "eps":
        for e in (0.0, 1e-12, 1e-10, 1e-8, 1e-7, 1e-5, 1e-4, 1e-3, 1e-2):
            yield 0, f"epsilon is {e:g} in place of 1e-6" if e else "epsilon is missing", repr(e)
    if x == "scale":
        yield 0, "not divided by sqrt(d)", "1.0"
        yield 0, "divided by d in place of sqrt(d)", "n_d ** -1.0"
        yield 0, f"divided by sqrt({of.code[1]} d) in place of sqrt(d)", f"(n_{of.code[1]} * n_d) ** -0.5"
        for n in (*of.code, "e", "c"):
            yield 0, f"divided by sqrt({n}) in place of sqrt(d)", f"n_{n} ** -0.5"
        yield from ((1, f"times {w} in place of 1/sqrt(d)", f) for w, f in factors(of.code + "e") if "sqrt" not in w)
        yield 0, "multiplied by sqrt(d), not divided", "n_d ** 0.5"
    if x.startswith("n_"):
        yield from ((0, f"{m} in place of {x[2:]}", f"n_{m}") for m in "dechsrbkq" if m != x[2:])
    if x == "at":
        yield from PLACES
    letters = of.letters.get(x)
    if letters is None or x not in scope:
        return
    if x in {line.name for line in of.lines}:
        yield from ((1, f"{x} is made without {option}", f"{x}_no_{option}") for option in ("keep", "dropout"))
    if letters[-2:] in ("ef", "ee", "nn"):
        yield 0, f"{x} is transposed", f"{x}.swapaxes(-1, -2)"
    for y in scope:
        if y != x and of.letters.get(y, "?").replace("f", "e") == letters.replace("f", "e"):
            yield 1 + (y in OPTIONS and x in OPTIONS), f"{y} in place of {x}", y
    if x in ("keep", "dropout"):
        yield 0, f"{x} is ignored", "1.0"
        yield 0, f"{x} is inverted", f"(1.0 - hit_({x}))"
        yield 0, f"{x} is not scaled by 1/(1 - p)", f"hit_({x})"
        yield 0, f"{x} twice", f"({x} * {x})"
    elif letters == of.code and x != "bias":
        yield from ((1, f"{x} meets {option} once more", f"({x} * {option})") for option in ("keep", "dropout"))
    if x == "keep":
        yield 0, "a query that keeps nothing attends to everything", "alive(keep)"
        yield 1, "a key that no query keeps is kept", "alive(keep, -2)"
        yield 1, "a pair that no head keeps is kept", "alive(keep, 1)"
    if letters == "bqhd" or letters in ("bkhd", "bkhe", "bqhe", "bqsd", "bksd", "bqse", "bkre"):
        yield 1, f"heads and positions of {x} are split wrongly", f"folded({x}, 'split')"
        yield 1, f"heads and positions of {x} are joined wrongly", f"folded({x}, 'join')"
    for i, letter in enumerate(letters if letters != "bias" else ""):
        yield from ((2, f"{x} over {letter}: {how}", f"along({x}, {i}, {how!r})") for how in ways(sizes.get(letter, 1)))


def binary(of, node, original):
    """`changes` of a sum, a product or a power."""
    x, y, word_x, word_y = map(ast.unparse, (node.left, node.right, original.left, original.right))
    if isinstance(node.op, ast.Add | ast.Sub):
        sign, other = ("+", "-") if isinstance(node.op, ast.Add) else ("-", "+")
        if y != "eps":
            yield 0, f"the term {word_y} is missing", f"({x})"
            yield 0, f"the sign of {word_y} is wrong", f"(({x}) {other} ({y}))"
            yield from ((1, f"the term {word_y} is {w} times what it should be", f"(({x}) {sign} ({y}) * {f})")
                        for w, f in factors(of.code + "de"))
            yield from ((1, f"the term {word_x} is {w} times what it should be", f"(({x}) * {f} {sign} ({y}))")
                        for w, f in factors(of.code + "de"))
            yield 0, f"the term {word_x} is missing", f"(0 {sign} ({y}))"
        for product, form in (node.left, f"(({{}}) {sign} ({y}))"), (node.right, f"(({x}) {sign} ({{}}))"):
            if isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult):
                for m, n in (product.left, product.right), (product.right, product.left):
                    m, n = ast.unparse(m), ast.unparse(n)
                    yield 0, f"the factor {n} is applied to both terms", f"{form.format(m)} * ({n})"
    if isinstance(node.op, ast.Mult):
        for u, f, words, inner in (x, y, word_y, node.left), (y, x, word_x, node.right):
            yield 0, f"the factor {words} is missing", f"({u})"
            yield 0, f"the factor {words} is applied twice", f"(({x}) * ({y}) * ({f}))"
            yield 1, f"divided by {words} in place of multiplied", f"(({u}) * inverse({f}))"
            yield 1, f"the factor {words} is a sum, not a product", f"(({u}) + ({f}))"
            if isinstance(inner, ast.Call) and len(inner.args) == 1:
                inside = f"({ast.unparse(inner.args[0])}) * ({f})"
                yield 1, f"the factor {words} comes before {inner.func.id}", f"{inner.func.id}({inside})"
            if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Add | ast.Sub):
                sign = "+" if isinstance(inner.op, ast.Add) else "-"
                m, n = ast.unparse(inner.left), ast.unparse(inner.right)
                yield 0, f"the factor {words} misses the term {n}", f"(({m}) * ({f}) {sign} ({n}))"
                yield 0, f"the factor {words} misses the term {m}", f"(({m}) {sign} ({n}) * ({f}))"
    if isinstance(node.op, ast.Pow):
        for power in (-2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 3.0):
            yield 0, f"the power is {power:g}", f"(({x}) ** {power})"
        if isinstance(node.left, ast.BinOp) and ast.unparse(node.left.right) == "eps":
            m = ast.unparse(node.left.left)
            yield 0, "epsilon stands outside the root", f"((({m}) ** 0.5 + eps) ** -1.0)"
            yield 0, "epsilon is a lower bound, not added", f"(maximum({m}, eps) ** -0.5)"
            yield 0, "epsilon is a lower bound of the root, not added inside", f"(maximum(({m}) ** 0.5, eps) ** -1.0)"
            yield 0, "epsilon is squared", f"(({m}) + eps * eps) ** -0.5"


def calls(of, node, original, sizes):
    """`changes` of a function."""
    name, x, text = node.func.id, ast.unparse(node.args[0]), ast.unparse(node)
    keys = tiles(sizes.get(of.code[-1], 1))
    if name in ("sum", "mean", "total"):
        letters, own = reduced(of, original), node.args[1].value
        words = original.args[1].value
        for n in (1, 2, 0, len(letters)):
            for axes in combinations(range(len(letters)), n):
                other = "".join(letters[i] for i in axes) or "nothing"
                for f in ("sum", "mean") if name != "total" else ():
                    if (f, axes) != (name, own):
                        yield int(n != 1), f"{f} over {other} in place of {name} over {words}", f"{f}({x}, {axes})"
        if name == "total":
            yield 0, f"mean over {words} in place of sum", f"{text} / ({' * '.join(f'n_{n}' for n in words)})"
            for n in words:
                yield 0, f"mean over {n} in place of sum", f"{text} / n_{n}"
        yield 1, f"the largest over {words} in place of {name}", f"largest({x}, {own})"
        if len(words) == 1:
            yield 0, f"divided by {words} - 1", f"{text} * n_{words} / maximum(n_{words} - 1, 1)"
            yield 0, f"divided by {words} + 1", f"{text} * n_{words} / (n_{words} + 1)"
            yield (0, f"{name} over {words} without the last",
                   f"{name}(along({x}, {own[0]}, 'the last missing'), {own})")
    if name == "mean" and "h" in original.args[1].value and of.code.startswith("bh"):
        yield 0, "the mean divides by the number of heads that are kept", f"sum({x}, {own}) * inverse(sum(keep, {own}))"
    if name == "relu":
        yield 0, "relu is missing", f"({x})"
        yield 0, "the relu leaks 1 %", f"(relu({x}) - 0.01 * relu(-({x})))"
        yield 1, "the absolute value in place of relu", f"abs({x})"
        yield (1, "GELU in place of relu",
               f"(0.5 * ({x}) * (1 + tanh(0.7978845608028654 * (({x}) + 0.044715 * ({x}) ** 3))))")
        yield 1, "SiLU in place of relu", f"(({x}) * inverse(1 + exp(-({x}))))"
        yield 1, "relu squared", f"relu({x}) ** 2"
    if name == "step":
        yield 0, "the slope of relu is missing", "1.0"
        yield 0, "the slope of relu is inverted", f"step(-({x}))"
        yield 0, "relu in place of its slope", f"relu({x})"
    if name == "exp":
        yield 0, "exp is missing", f"({x})"
        if "keep" in of.letters:
            yield from ((1, f"sums are not rescaled where the largest score grows, tiles of {t}",
                         f"({text} * drift({x}, keep, {t}))") for t in keys)
        yield 1, "2 to the power in place of e", f"exp(0.6931471805599453 * ({x}))"
    if name == "inverse":
        yield 0, "the normaliser is missing", "1.0"
        yield 0, "0 / 0 where nothing is kept", f"reciprocal({x})"
        for t in keys:
            yield (1, f"keys that fill the last tile of {t} count in the normaliser",
                   f"inverse({x} + (-n_{of.code[-1]}) % {t})")
            if "sum(x" in x:
                running = x.replace("sum(x", f"sum(x * drift({exponent(of)}, keep, {t})")
                yield (1, f"the normaliser is not rescaled where the largest score grows, tiles of {t}",
                       f"inverse({running})")
        yield 0, "1e-6 is added to the normaliser", f"inverse(1e-6 + {x})"
        yield 1, "1 is added to the normaliser", f"inverse(1 + {x})"
    if name == "fold":
        yield 0, "a mean in place of a sum over stretched axes", "foldmean(" + x + ")"
        yield from ((1, f"{w} times what it should be", f"{text} * {f}") for w, f in factors(of.code + "de"))
    if name == "dot":
        spec = node.args[0].value
        for letter in dict.fromkeys(spec.split("->")[0].replace(",", "")):
            if letter not in spec.split("->")[1]:
                yield 0, f"a mean over {letter} in place of a sum", f"({text} / n_{letter})"


# ----------------------------------------------------------------------------------------------------- all of one page


def mutants(of: Formulas, part: int, sizes, costs=range(4), lines=None):
    """Every mistake of the forward or of the backward, or of some lines; `sizes` of the letters say which tiles fit."""
    texts = {i: ast.unparse(resolved(of, line)) for i, line in enumerate(of.lines)}
    letters = dict.fromkeys([*of.code, *(x for x in sizes if x not in of.code)])
    for i, line in enumerate(of.lines):
        if line.part != part or lines is not None and i not in lines:
            continue
        writer, original = Writer(of, line), ast.parse(line.text, mode="eval")
        scope = [n for n in dict.fromkeys(["do"] * part + [n for n in of.letters if n not in {x.name for x in of.lines}]
                 + [x.name for x in of.lines[:i]]) if part or n != "do"]
        same = [j for j, other in enumerate(of.lines) if j > i and other.text == line.text and other.part == part]
        whole = writer.tree.body
        found = [(1, f"{line.name} is {w} times what it should be", f"({texts[i]}) * {f}", whole)
                 for w, f in factors(letters)]
        if line.letters == of.code:
            found += [(1, f"{line.name} is divided by the number of {x} that are kept",
                       f"({texts[i]}) * inverse(sum(keep, {(of.code.index(x),)}))", whole) for x in of.code[1::2]]
        if len(line.letters) == 4 and line.letters[0] == "b" and line.letters[1] in "qk":
            found += [(1, f"heads and positions of {line.name} are taken for one another",
                       f"folded({texts[i]}, {how!r})", whole) for how in ("split", "join")]
        if line.text.startswith("exp(") and "keep" in line.text:
            found.append((1, "a query that keeps nothing attends to all keys alike",
                          f"exp({exponent(of)} * some(keep)) * alive(keep)", whole))
        if line.letters != "bias":
            found += [(2, f"{line.name} over {letter}: {how}", f"along({texts[i]}, {j}, {how!r})", whole)
                      for j, letter in enumerate(line.letters) if letter != "1" for how in ways(sizes.get(letter, 1))]
        for node, twin in zip(ast.walk(writer.tree), ast.walk(original), strict=True):
            if isinstance(node, ast.expr) and id(node) in writer.at:
                found += [(*change, node) for change in changes(of, node, twin, scope, sizes)]
        for x in {n.id for n in ast.walk(whole) if isinstance(n, ast.Name) and n.id in scope} if 1 in costs else ():
            for y in scope:
                if y != x and of.letters.get(y) == of.letters[x] and texts[i].count(x) > 1:
                    yield Mutant(line, f"{y} in place of {x} throughout", 1, {i: renamed(of, i, {x: y})})
            for option in ("keep", "dropout") if texts[i].count(x) > 1 else ():
                yield Mutant(line, f"{x} is made without {option}", 1, {i: renamed(of, i, {x: f"{x}_no_{option}"})})
        for cost, words, new, node in found:
            code = writer.put(node, new) if cost in costs else None
            if code:
                yield Mutant(line, words, cost, {i: code})
                for j in same:
                    yield Mutant(line, f"{words} (in both places)", cost, {i: code, j: code})
    yield from (m for m in pairs(of, part, texts, sizes, costs))


def pairs(of, part, texts, sizes, costs):
    """Two lines that change together: a factor that comes too early or too late, an input that is read wrongly."""
    lines = [i for i, line in enumerate(of.lines) if line.part == part]
    for i in lines:
        tree = resolved(of, of.lines[i]).body
        if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Mult):
            x, f = ast.unparse(tree.left), ast.unparse(tree.right)
            needed = {n.id for n in ast.walk(tree.right) if isinstance(n, ast.Name)}
            for j in lines:
                if j < i and needed & {line.name for line in of.lines[j:i]}:
                    continue
                before = f"{f} comes {'after' if j > i else 'before'} {of.lines[j].name} = {of.lines[j].text}"
                alike = of.lines[j].letters == of.lines[i].letters and (j < i or "(" not in f)
                if 1 in costs and 0 < abs(j - i) < 4 and alike:
                    yield Mutant(of.lines[min(i, j)], f"the factor {before}", 1,
                                 {i: code_of(x), j: code_of(f"({texts[j]}) * ({f})")})
    for name in ("q", "k", "v", "keep", "dropout", "bias", "do", "selector", "at"):
        letters = of.letters.get(name, "")
        found = [(1, f"{name} is read wrongly over {x}: {how}", f"along({name}, {i}, {how!r})")
                for i, x in enumerate(letters) for how in ways(sizes.get(x, 1)) if how not in ("sum", "mean")]
        if name in ("q", "k", "v", "do"):
            found += [(1, f"heads and positions of {name} are split wrongly", f"folded({name}, 'split')")]
        if name in ("keep", "dropout"):
            found += [(0, f"{name} is ignored everywhere", "1.0 + 0 * " + name),
                      (0, f"{name} is inverted", f"(1.0 - hit_({name}))"),
                     (0, f"{name} is not scaled by 1/(1 - p)", f"hit_({name})")]
        if name == "at":
            found = list(PLACES)
        uses = [i for i in lines if re.search(rf"\b{name}\b", texts[i])]
        for cost, words, new in found if uses else ():
            if cost + 1 not in costs:
                continue
            codes = {i: renamed(of, i, {name: new}) for i in uses}
            if name == "at":
                some = {i: codes[i] for i in uses if "reach" not in of.lines[i].text}
                yield Mutant(of.lines[uses[0]], words, 1, some)
            first = next((i for i in uses if "reach" in of.lines[i].text and "edge" in new), uses[0])
            if len(codes) > 1 or cost == 0:
                yield Mutant(of.lines[first], words, cost + 1, codes)


def renamed(of, i, names):
    """The code of a line with texts in place of names."""
    class Rename(ast.NodeTransformer):
        def visit_Name(self, node):
            return ast.parse(names[node.id], mode="eval").body if node.id in names else node
    tree = Rename().visit(resolved(of, of.lines[i]))
    return compile(ast.fix_missing_locations(tree), of.lines[i].text, "eval")


def scaled(of, part):
    """Mistakes by a factor that is not known beforehand: FACTOR times a line, a term or an epsilon."""
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


class Runner:
    """A page's formulas, run whole or from a mistake on; only what depends on a change is run again."""
    def __init__(self, of: Formulas):
        trees = [resolved(of, line) for line in of.lines]
        self.of, self.codes = of, [compile(tree, line.text, "eval") for tree, line in zip(trees, of.lines, strict=True)]
        self.uses = [{n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} for tree in trees]

    def reached(self, i, names) -> set:
        """Which of the names a line has an influence on."""
        changed = {self.of.lines[i].name}
        for line, uses in zip(self.of.lines[i + 1:], self.uses[i + 1:], strict=True):
            changed |= {line.name} if changed & uses else set()
        return changed & set(names)

    def shadows(self, env) -> dict:
        """Every value as it is where keep, or dropout, is ignored: what a mistaken second computation of it gives."""
        found = {}
        for option in ("keep", "dropout"):
            values = self.run(env | {option: 0 * env[option] + 1.0}) if option in env else env
            found |= {f"{line.name}_no_{option}": values[line.name] for line in self.of.lines if line.name in values}
        return found

    def run(self, env, codes=None, part=None, whole=False) -> dict:
        """Names and values.  With `codes`, env is the right page's and only what they change is run, unless `whole`."""
        env, changed = dict(env), None if codes is None or whole else set()
        with np.errstate(all="ignore"):
            for i, line in enumerate(self.of.lines):
                code = (codes or {}).get(i)
                if part not in (None, line.part) or changed is not None and code is None and not changed & self.uses[i]:
                    continue
                env[line.name] = eval(code or self.codes[i], {"__builtins__": {}}, env)    # noqa: S307 (our own text)
                if changed is not None:
                    changed.add(line.name)
        return env
