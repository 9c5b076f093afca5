"""The formula of an operation's docstring about the arrays of a call."""

import ast
from copy import deepcopy
from inspect import signature
from typing import NamedTuple

from .notation import Applied, formulas, indices, letters, reduction


class Unread(ValueError):
    """The notation has no word for it."""


def statement_names(statement) -> set[str]:
    """The arrays of a formula."""
    return {n.value.id for n in ast.walk(statement.value) if isinstance(n, ast.Subscript)}


def repeated(index: str) -> bool:
    """Whether a letter stands twice."""
    return len(set(index) - {"1"}) != len(index.replace("1", ""))


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


class Operations:
    """What a reader of code knows about functions whose docstrings have formulas; `read` and `function` are its own."""

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
