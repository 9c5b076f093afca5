"""What a line computes, in the notation of formulas: read from subscripts of `contract`, formulas of operations, and code.

Every equation is evaluated on the values of a run before it is shown; what the notation cannot say stays code.
"""

import ast
import re
from collections.abc import Callable
from copy import deepcopy
from inspect import signature
from typing import NamedTuple

import numpy as np

from refattn.contract import contract
from refattn.ops import linear, linears
from refattn.xp import erf

from .notation import FUNCTIONS, Applied, Evaluator, formulas, indices, letters, reduction


class Unread(ValueError):
    """The notation has no word for it."""


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


def statement_names(statement) -> set[str]:
    """The arrays of a formula."""
    return {n.value.id for n in ast.walk(statement.value) if isinstance(n, ast.Subscript)}


def repeated(index: str) -> bool:
    """Whether a letter stands twice."""
    return len(set(index) - {"1"}) != len(index.replace("1", ""))


def elements(value) -> list:
    """The expressions of nested tuples."""
    return [x for inner in value.elts for x in elements(inner)] if isinstance(value, ast.Tuple) else [value]


def entry(name: str, index: str) -> ast.Subscript:
    """name[index]."""
    parts = [ast.Constant(1) if x == "1" else ast.Name(x) for x in index]
    return ast.Subscript(ast.Name(name), ast.Tuple(parts))


class Renamed(ast.NodeTransformer):
    """An expression with other letters in its indices and sums."""

    def __init__(self, names):
        self.names = names

    def visit_Subscript(self, node):
        index = [self.visit(i) if isinstance(i, ast.Subscript) else
                 i if isinstance(i, ast.Constant) else ast.Name(self.names.get(i.id, i.id)) for i in indices(node)]
        return ast.Subscript(node.value, ast.Tuple([
            ast.Constant(1) if isinstance(i, ast.Name) and i.id == "1" else i for i in index]))

    def visit_Name(self, node):
        return ast.Name(self.names.get(node.id, node.id))


class Reader:
    """Statements of one pair as equations; `axes` are the letters of its arrays, `lookup` finds a function by its code."""

    def __init__(self, axes: dict, lookup: Callable):
        self.axes, self.lookup = axes, lookup

    def statement(self, node, names=()) -> list[Equation]:
        """The equations of an assignment, or of a `return` of what `names` are; [] for what the notation cannot say."""
        if isinstance(node, ast.Return):
            pairs = [(n, ast.Name(name), x) for n, (name, x) in enumerate(zip(names, elements(node.value)))
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
        if len(own) < len(index) or any(x != y and "1" not in (x, y) for x, y in zip(own[::-1], index[::-1])):
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

    def operation(self, node, made, function=None, others=None):
        """The formula of a function's docstring about the arrays of a call; `made` names which of its formulas.

        others : what the call makes beside it, formal name -> name
        """
        function = function or self.function(node)
        statements = {s.targets[0].value.id: s for s in formulas(function.__doc__)}
        made = made or next(iter(statements), None)
        if made not in statements or any(isinstance(x, ast.Starred) for x in node.args):
            raise Unread(ast.unparse(node))
        bound = signature(function).bind(*node.args, **{k.arg: k.value for k in node.keywords}).arguments
        names = {name: None if isinstance(x := bound.get(name), ast.Constant) and x.value is None else x
                 for name in signature(function).parameters}
        statement = self.inlined(statements, made, {*names, *(others or {})})
        given, local = {}, {}
        for n in ast.walk(statement.value):
            name = n.value.id if isinstance(n, ast.Subscript) else None
            if names.get(name) is not None:
                formal = "".join("?" if isinstance(i, ast.Subscript) else letters(ast.Subscript(n.value, i))
                                 for i in indices(n))
                given[name] = given.get(name) or self.read(names[name], None if "?" in formal or formal.lower(
                    ) != formal else formal)
                self.unify(formal, given[name][1], local)
        bound = {r[1] for n in ast.walk(statement) if (r := reduction(n))} - set(letters(statement.targets[0]))
        free = {x: y for x, y in local.items() if x not in bound}
        for x in sorted(bound):
            if local.get(x, x) in free.values():
                local[x] = next(y for y in x + "jiuxy" if y not in {*local.values(), *free.values()})
        return self.apply(statement, {n: given.get(n, x) for n, x in names.items()} | {
            y: ast.Name(t) for y, t in (others or {}).items()}, local)

    def apply(self, statement, names, local):
        exchanged = {}
        for name, value in names.items():
            if isinstance(value, tuple):
                body, index = value
                exchanged[name] = ast.Name(body.value.id) if isinstance(body, ast.Subscript) and letters(
                    body) == index else Inserted(body, index)
            elif value is None or isinstance(value, ast.Name) and name in statement_names(statement):
                exchanged[name] = value
        body = Filled(exchanged, local).visit(deepcopy(statement.value))
        return body, "".join(local.get(x, x) for x in letters(statement.targets[0]))

    def inlined(self, statements, made, given):
        """The formula for `made`; auxiliary formulas put in its place where they are one letter long in code."""
        statement = deepcopy(statements[made])

        class Inline(ast.NodeTransformer):
            def visit_Subscript(self, node):
                name = node.value.id
                if name in statements and name not in given and name != made:
                    other = statements[name]
                    exchange = dict(zip(letters(other.targets[0]), letters(node), strict=True))
                    return Renamed(exchange).visit(deepcopy(other.value))
                return node

        statement.value = Inline().visit(statement.value)
        return statement

    def unify(self, formal, index, local):
        """Enters formal letter -> letters; the one capital that is not known yet takes what is left."""
        unknown = [x for x in formal if x.isupper() and x not in local]
        rest = len(index) - sum(len(local[x]) if x.isupper() else 1 for x in formal if x not in unknown)
        if len(unknown) > 1 or rest < 0 or rest and not unknown:
            raise Unread(f"{index} for {formal}")
        for x in formal:
            n = rest if x in unknown else len(local[x]) if x.isupper() else 1
            mine, index = index[:n], index[n:]
            if x not in "1?" and set(local.get(x, "1")) <= {"1"}:
                local[x] = mine


class Inserted(NamedTuple):
    body: ast.expr
    index: str


class Filled(Applied):
    """`Applied`, with whole expressions in place of names too."""

    def visit_Subscript(self, node):
        given = self.names.get(node.value.id)
        if not isinstance(given, Inserted):
            return super().visit_Subscript(node)
        wanted = "".join(self.letters.get(x, x) for x in letters(node))
        return Renamed(dict(zip(given.index, wanted, strict=True))).visit(deepcopy(given.body))


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
    if ours.shape != wanted.shape or np.abs(ours - wanted).max() > 1e-9 * np.abs(wanted).max() + 1e-300:
        raise Untrue(f"{ast.unparse(equation.statement)} is not what the line computes")
    return True
