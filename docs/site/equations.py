"""What a line computes, in the notation of formulas: from subscripts of `contract`, formulas of operations, and code.

Every equation is evaluated on the values of a run before it is shown; what the notation cannot say stays code.
"""

import ast
import re
from collections.abc import Callable
from copy import deepcopy
from typing import NamedTuple

import numpy as np

from refattn.contract import contract
from refattn.ops import linear, linears
from refattn.xp import erf

from .notation import FUNCTIONS, Evaluator, indices, letters
from .operations import Operations, Renamed, Unread, entry, repeated, statement_names


class Untrue(ValueError):
    """An equation that is not what its line computes."""


class Equation(NamedTuple):
    """`target[letters] = expression`, or what is added to, or taken from, an array that is there already."""
    statement: ast.Assign
    sign: str                  # =, += or -=
    place: int | None          # of what is returned: which one

    @property
    def name(self) -> str:
        return self.statement.targets[0].value.id


def elements(value) -> list:
    """The expressions of nested tuples."""
    return [x for inner in value.elts for x in elements(inner)] if isinstance(value, ast.Tuple) else [value]


class Reader(Operations):
    """Statements as equations; `axes` are the letters of arrays, `lookup` finds a function by its code."""

    def __init__(self, axes: dict, lookup: Callable):
        self.axes, self.lookup = axes, lookup

    def statement(self, node, names=()) -> list[Equation]:
        """The equations of an assignment, or of a `return` of what `names` are; [] for what the notation cannot say."""
        if isinstance(node, ast.Return):
            pairs = [(n, ast.Name(name), x) for n, (name, x) in enumerate(zip(
                names, elements(node.value), strict=False))
                     if not isinstance(x, ast.Name)]
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and isinstance(
                node.value, ast.Tuple):
            pairs = [(None, *pair) for pair in zip(node.targets[0].elts, node.value.elts, strict=True)]
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult):
            pairs = [(None, node.target, ast.BinOp(node.target, ast.Mult(), node.value))]
        elif isinstance(node, ast.Assign | ast.AugAssign):
            pairs = [(None, node.targets[0] if isinstance(node, ast.Assign) else node.target, node.value)]
        else:
            return []
        sign = {ast.Add: "+=", ast.Sub: "-="}.get(type(getattr(node, "op", None)), "=")
        found = []
        for place, target, value in pairs:
            try:
                if isinstance(target, ast.Tuple):
                    found += self.several(target.elts, value)
                elif not isinstance(target, ast.Subscript):
                    body, index = self.read(value, self.axes.get(ast.unparse(target)))
                    found.append(self.equation(ast.unparse(target), index, body, sign, place))
            except Unread:
                continue
        return found

    def equation(self, name, index, body, sign="=", place=None):
        """One equation; where the array has more axes than the expression, or other letters of size 1, its own."""
        if place is None and (not index or sign != "=") and name not in self.axes:
            raise Unread(name)
        own = self.axes.get(name, index)
        if len(own) < len(index) or any(x != y and "1" not in (x, y) for x, y in zip(
                own[::-1], index[::-1], strict=False)):
            own = index
        index = index.rjust(len(own), "1")
        index = "".join(y if x == "1" else x for x, y in zip(index, own, strict=True))
        if repeated(index):
            raise Unread(name)
        return Equation(ast.fix_missing_locations(ast.Assign([entry(name, index)], body)), sign, place)

    def several(self, targets, call):
        """Equations of `a, rho = ops.rms_head(s)`, by what the docstring says that it returns."""
        function = self.function(call)
        if function is linears:
            pairs = [(target, ast.Call(call.func, [call.args[0], *maps.elts], [])) for target, maps in
                     zip(targets, call.args[1:], strict=True)]
            return [self.linear(t, c) for t, c in pairs]
        made = re.search(r"Returns ([\w, ]+)", function.__doc__ or "")
        made = re.findall(r"\w+", made[1]) if made else []
        made = {x: ast.unparse(target) for x, target in zip(made, targets, strict=False)}
        found = []
        for x, target in made.items():
            if target.isidentifier() and target != "_":
                body, index = self.operation(call, x, others={y: t for y, t in made.items() if t not in (target, "_")})
                found.append(self.equation(target, index, body))
        return found

    def linear(self, target, call):
        body, index = self.operation(call, None, function=linear)
        return self.equation(ast.unparse(target), index, body)

    def function(self, call):
        try:
            return self.lookup(call.func)
        except (NameError, AttributeError, SyntaxError, TypeError) as error:
            raise Unread(ast.unparse(call)) from error

    def read(self, node, hint=None) -> tuple[ast.expr, str]:
        """(expression in the notation, letters of its axes); `hint` are those of an array that has none of its own."""
        match node:
            case ast.Constant(value=int() | float()):
                return node, ""
            case ast.Name() | ast.Attribute(value=ast.Name() | ast.Attribute()):
                name = ast.unparse(node)
                if name.endswith(".T"):
                    index = self.axes.get(ast.unparse(node.value), "")[::-1]
                    return entry(ast.unparse(node.value), index[::-1]), index
                index = self.axes.get(name, hint)
                if index is None or repeated(index):
                    raise Unread(name)
                return (entry(name, index), index) if index else (ast.Name(name), "")
            case ast.UnaryOp(op=ast.USub()):
                body, index = self.read(node.operand, hint)
                return ast.UnaryOp(node.op, body), index
            case ast.BinOp(op=ast.MatMult()):
                return self.product(node)
            case ast.BinOp():
                return self.elementwise(node, hint)
            case ast.IfExp():
                empty = [isinstance(x, ast.Constant) and x.value is None for x in (node.body, node.orelse)]
                if any(empty):
                    return self.read(node.orelse if empty[0] else node.body, hint)
            case ast.Subscript(value=ast.Attribute(value=array, attr="shape"), slice=at):
                _, index = self.read(array)
                try:
                    return ast.Name(index[ast.literal_eval(at)]), ""
                except (ValueError, IndexError):
                    raise Unread(ast.unparse(node)) from None
            case ast.Subscript():
                return self.sliced(node, hint)
            case ast.Call():
                return self.call(node, hint)
        raise Unread(ast.unparse(node))

    def elementwise(self, node, hint):
        (left, one), (right, two) = self.read(node.left, hint), self.read(node.right, hint)
        if not isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div | ast.Pow):
            raise Unread(ast.unparse(node))
        n = max(len(one), len(two))
        pairs = zip(one.rjust(n, "1"), two.rjust(n, "1"), strict=True)
        if any(x != y and "1" not in (x, y) for x, y in pairs):
            raise Unread(ast.unparse(node))
        index = "".join(y if x == "1" else x for x, y in zip(one.rjust(n, "1"), two.rjust(n, "1"), strict=True))
        return ast.BinOp(left, node.op, right), index

    def product(self, node):
        (left, one), (right, two) = self.read(node.left), self.read(node.right)
        if len(one) < 2 or len(two) != 2 or one[-1] != two[0] or two[1] in one:
            raise Unread(ast.unparse(node))
        return self.summed("sum", two[0], ast.BinOp(left, ast.Mult(), right)), one[:-1] + two[1]

    def summed(self, kind, over, body):
        for x in reversed(over):
            body = ast.Call(ast.Name(f"{kind}_{x}"), [body], [])
        return body

    def sliced(self, node, hint):
        """x[..., None] and x[:, None]: the same entries."""
        body, index = self.read(node.value, hint)
        parts, found = indices(node), ""
        if any(isinstance(x, ast.Slice) and (x.lower or x.upper or x.step) for x in parts):
            raise Unread(ast.unparse(node))
        taken = sum(isinstance(x, ast.Slice) for x in parts)
        for x in parts:
            if isinstance(x, ast.Slice):
                found, index = found + index[0], index[1:]
            elif isinstance(x, ast.Constant) and x.value is ...:
                rest = len(index) - (taken - len(found.replace("1", "")))
                found, index = found + index[:rest], index[rest:]
            elif isinstance(x, ast.Constant) and x.value is None:
                found += "1"
            else:
                raise Unread(ast.unparse(node))
        return body, found + index

    def call(self, node, hint):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        options = {k.arg: k.value for k in node.keywords}
        if name == "contract" and self.function(node) is contract:
            return self.contraction(node)
        if name in ("sum", "mean") and isinstance(node.func, ast.Attribute) and set(options) <= {"axis", "keepdims"}:
            body, index = self.read(node.func.value)
            axis = ast.literal_eval(options["axis"]) if "axis" in options else tuple(range(len(index)))
            axes = [i % len(index) for i in (axis if isinstance(axis, tuple) else (axis,))]
            over, kept = "".join(index[i] for i in axes if index[i] != "1"), "keepdims" in options and "axis" in options
            rest = "".join(("1" if kept else "") if i in axes else x for i, x in enumerate(index))
            return self.summed(name, over, body), rest
        if name in ("copy", "astype"):
            return self.read(node.func.value, hint)
        if name in FUNCTIONS and len(node.args) == 1:
            body, index = self.read(node.args[0], hint)
            return ast.Call(ast.Name(name), [body], []), index
        return self.operation(node, None)

    def contraction(self, node):
        left, right, out = node.args[0].value.replace("->", ",").split(",")
        parts = []
        for argument, own in zip(node.args[1:], (left, right), strict=True):
            body, index = (entry(ast.unparse(argument), own), own) if isinstance(argument, ast.Name) else (
                self.read(argument, own))
            if len(index) != len(own):
                raise Unread(ast.unparse(node))
            parts.append(Renamed(dict(zip(index, own, strict=True))).visit(deepcopy(body)))
        over = "".join(x for x in left if x not in out)
        return self.summed("sum", over, ast.BinOp(parts[0], ast.Mult(), parts[1])), out


def hold(equation: Equation, before: dict, after: dict, axes: dict, **constants) -> bool:
    """Whether an equation is what a line did.  Raises Untrue if it is not; False where the run has not all values."""
    name, used = equation.name, statement_names(equation.statement)
    result = after.get(name) if equation.place is None else after["return"][equation.place]
    arrays = {x: before.get(x) if x in before else after.get(x) for x in used}
    if any(not isinstance(x, np.ndarray) for x in (*arrays.values(), result)):
        return False
    scalars = {x: y for x, y in before.items() if isinstance(y, float | int)}
    sizes = {x: n for text, index in axes.items() for x, n in zip(index, np.shape(before.get(text)), strict=False)}
    sizes |= dict(zip(letters(equation.statement.targets[0]), result.shape, strict=False))
    with np.errstate(all="ignore"):
        ours = Evaluator([equation.statement], arrays, sizes, erf=erf, **constants | scalars).value(name)
        wanted = result if equation.sign == "=" else (result - before[name]) * (1 if equation.sign == "+=" else -1)
        shaped = ours.shape == wanted.shape
        off = np.where(ours == wanted, 0, np.abs(ours - wanted)).max() if shaped else np.inf        # infinities too
    if off > 1e-9 * np.abs(wanted[np.isfinite(wanted)]).max(initial=0) + 1e-300:
        raise Untrue(f"{ast.unparse(equation.statement)} is not what the line computes")
    return True
