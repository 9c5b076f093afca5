"""The notation of formulas in docstrings: read, evaluated, and applied to other arrays.

    y[T,O] = sum_m(x[T,m] * w[m,O]) + b[O]

A formula is an assignment in Python's grammar.  `x[b,q]` is an entry, `sum_d(...)` and `mean_h(...)` run over an axis;
a small letter is one axis, its size where it stands alone; a capital any number of axes; 1 an axis of one entry.
"""

import ast
import re
from copy import deepcopy

import numpy as np

FUNCTIONS = {"exp": np.exp, "sqrt": np.sqrt, "tanh": np.tanh, "log": np.log, "max": np.maximum, "erf": None}
REDUCED = re.compile(r"(sum|mean)_(\w)$")


def pieces(text: str) -> list[str]:
    """A text cut at the commas and full stops that stand outside brackets and before a blank."""
    found, depth = [""], 0
    for i, x in enumerate(text):
        depth += (x in "([") - (x in ")]")
        if x in ",." and depth == 0 and text[i + 1:i + 2] in (" ", "\n", ""):
            found.append("")
        else:
            found[-1] += x
    return [" ".join(piece.split()) for piece in found]


def formulas(docstring: str | None) -> list[ast.Assign]:
    """The formulas of a docstring's first paragraph, in order."""
    found = []
    for piece in pieces((docstring or "").split("\n\n")[0]):
        try:
            statements = ast.parse(piece).body
        except SyntaxError:
            continue
        if len(statements) == 1 and isinstance(statements[0], ast.Assign) and isinstance(
                statements[0].targets[0], ast.Subscript):
            found.append(statements[0])
    return found


def indices(entry: ast.Subscript) -> list:
    """The nodes of its index."""
    return list(entry.slice.elts) if isinstance(entry.slice, ast.Tuple) else [entry.slice]


def letters(entry: ast.Subscript) -> str:
    """The letters of an entry whose index is letters and 1."""
    return "".join(str(getattr(i, "id", None) or i.value) for i in indices(entry))


def reduction(node) -> tuple[str, str, ast.expr] | None:
    """("sum" or "mean", letter, what is summed) of a call such as sum_d(...)."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and (match := REDUCED.match(node.func.id)):
        return match[1], match[2], node.args[0]
    return None


class Evaluator:
    """Values of formulas; every axis that a formula speaks of has a place of its own."""

    def __init__(self, statements, arrays, sizes=None, **constants):
        self.statements = {s.targets[0].value.id: s for s in statements}
        self.arrays, self.constants = dict(arrays), {"pi": np.pi} | constants
        used = {n.id for s in statements for n in ast.walk(s) if isinstance(n, ast.Name)}
        self.order = sorted(x for x in used if len(x) == 1)
        self.size = dict(sizes or {})
        for entry in (n for s in statements for n in ast.walk(s) if isinstance(n, ast.Subscript)):
            shape = np.shape(self.arrays.get(entry.value.id, 0.0))
            for index, n in zip(indices(entry), shape, strict=bool(shape)):
                if isinstance(index, ast.Name) and n != 1:
                    self.size[index.id] = n

    def value(self, name: str):
        """The array that the formula for `name` gives."""
        statement = self.statements[name]
        index, body = letters(statement.targets[0]), self.of(statement.value)
        wanted = [self.size.get(x, 1) if x in index else 1 for x in self.order]
        body = np.broadcast_to(body, np.broadcast_shapes(np.shape(body), tuple(wanted)))
        own = [x for x in self.order if x in index]
        body = body.reshape([self.size.get(x, 1) for x in own])
        body = body.transpose([own.index(x) for x in index if x != "1"])
        return body.reshape([self.size.get(x, 1) for x in index])

    def along(self, letter):
        """0, 1, 2, ... along the place of a letter."""
        n = self.size.get(letter, 1)
        return np.arange(n).reshape([n if x == letter else 1 for x in self.order])

    def of(self, node, index=False):
        """The value of an expression; letters stand for the index inside an index or a comparison, else for a size."""
        if found := reduction(node):
            kind, letter, body = found
            inside = self.of(body)
            shape = [self.size[letter] if x == letter else 1 for x in self.order]
            inside = np.broadcast_to(inside, np.broadcast_shapes(np.shape(inside), tuple(shape)))
            return getattr(inside, kind)(axis=self.order.index(letter), keepdims=True)
        match node:
            case ast.Constant():
                return node.value
            case ast.Name() if index:
                return self.along(node.id)
            case ast.Name():
                return self.constants[node.id] if node.id in self.constants else self.size[node.id]
            case ast.Subscript():
                name = node.value.id
                if name not in self.arrays:
                    self.arrays[name] = self.value(name)
                places = [0 if n == 1 else self.of(i, True) for i, n in
                          zip(indices(node), np.shape(self.arrays[name]), strict=True)]
                places = [0 if isinstance(i, ast.Constant) else p for i, p in zip(indices(node), places, strict=True)]
                return self.arrays[name][tuple(places)]
            case ast.UnaryOp():
                return -self.of(node.operand)
            case ast.Compare():
                left, right = (self.of(x, isinstance(x, ast.Name)) for x in (node.left, node.comparators[0]))
                return {ast.Gt: np.greater, ast.Lt: np.less, ast.Eq: np.equal}[type(node.ops[0])](left, right)
            case ast.BinOp():
                name = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide",
                        ast.Pow: "power"}[type(node.op)]
                return getattr(np, name)(self.of(node.left), self.of(node.right))
            case ast.Call():
                return (FUNCTIONS[node.func.id] or self.constants[node.func.id])(*map(self.of, node.args))
        raise ValueError(f"a formula holds {ast.unparse(node)!r}, which the notation does not have")


class Applied(ast.NodeTransformer):
    """A formula about other arrays: names and letters exchanged, options that were not given left out."""

    def __init__(self, names: dict, letters: dict):
        self.names, self.letters = names, letters      # formal -> expression or None;  formal letter -> letters

    def visit_Subscript(self, node):
        given = self.names.get(node.value.id, node.value)
        if given is None:
            return None
        index = []
        for i in indices(node):
            formal = str(getattr(i, "id", 1))
            index += [self.visit(i)] if isinstance(i, ast.Subscript) else [
                ast.Constant(1) if x == "1" else ast.Name(x) for x in self.letters.get(formal, formal)]
        if isinstance(given, ast.Name):
            return ast.Subscript(ast.Name(given.id), ast.Tuple(index))
        return deepcopy(given)

    def visit_Name(self, node):
        return ast.Name(self.letters.get(node.id, node.id))

    def visit_BinOp(self, node):
        left, right = self.visit(node.left), self.visit(node.right)
        if left is None or right is None:
            return right if left is None else left
        return ast.BinOp(left, node.op, right)

    def visit_Call(self, node):
        found = reduction(node)
        if not found:
            return self.generic_visit(node)
        kind, letter, body = found
        body = self.visit(body)
        for x in reversed(self.letters.get(letter, letter)):
            body = body if x == "1" else ast.Call(ast.Name(f"{kind}_{x}"), [body], [])
        return body
