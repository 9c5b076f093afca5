"""Equations as MathML: arrays bold and upright, indices light, gradients with an upright d."""

import ast
from html import escape

from .equations import Equation
from .notation import indices, reduction

GREEK = {"epsilon": "ε", "rho": "𝛒", "phi": "φ", "sigma": "σ", "pi": "π"}
OPERATORS = {ast.Add: "+", ast.Sub: "−", ast.Gt: "&gt;", ast.Lt: "&lt;", ast.Eq: "="}
NEEDS = {ast.Add: 1, ast.Sub: 1, ast.Mult: 2, ast.Div: 2}


class Typesetter:
    """MathML of a pair's equations; `names` are its arrays, so that dq is the gradient of q and dropout is not."""

    def __init__(self, names):
        self.names = set(names)

    def symbol(self, text: str) -> str:
        """An array, by its name in the code."""
        root, _, _ = text.partition(".")
        name = text.rpartition(".")[2]
        gradient = root == "grads" or len(name) > 1 and name[0] == "d" and name[1:].rstrip("0123456789_") in self.names
        letter = name[1:] if gradient and root != "grads" else name
        if letter in GREEK:
            shown = f"<mi>{GREEK[letter]}</mi>"
        elif len(letter.rstrip("0123456789")) == 1:
            bold = chr((0x1D41A if letter[0].islower() else 0x1D400) + ord(letter[0].lower()) - 97)
            shown = f"<mi>{bold}</mi>" + "".join(f"<mn>{chr(0x1D7CE + int(x))}</mn>" for x in letter[1:])
        else:
            shown = f'<mtext class="w">{escape(letter)}</mtext>'
        upright = '<mi mathvariant="normal">d</mi>' * gradient
        return f'<mrow class="v" data-v="{escape(text)}">{upright}{shown}</mrow>'

    def equation(self, equation: Equation) -> str:
        """A whole equation; the batch stays unsaid unless it is summed over."""
        statement = equation.statement
        summed = {r[1] for n in ast.walk(statement) if (r := reduction(n))}
        spoken = {getattr(i, "id", "") for n in ast.walk(statement) if isinstance(n, ast.Subscript) for i in indices(n)}
        self.silent = {"1"} | ({"b"} if "b" not in summed and len(spoken) > 2 else set())
        sign = {"=": "=", "+=": "+=", "-=": "−="}[equation.sign]
        body = f"{self.of(statement.targets[0])}<mo>{sign}</mo>{self.of(statement.value)}"
        return self.whole(body, f"{ast.unparse(statement.targets[0])} {sign} {ast.unparse(statement.value)}")

    def whole(self, body, words):
        return f'<math aria-label="{escape(words)}"><mstyle displaystyle="true">{body}</mstyle></math>'

    def index(self, nodes) -> str:
        found = ""
        for i in nodes:
            if isinstance(i, ast.Subscript):
                found += self.of(i)
            elif getattr(i, "id", "1") not in self.silent:
                found += f"<mi>{i.id}</mi>"
        return found

    def fence(self, node, need=1) -> str:
        """An operand, in brackets where it binds less."""
        body = self.of(node)
        low = isinstance(node, ast.BinOp) and NEEDS.get(type(node.op), 3) <= need or isinstance(node, ast.UnaryOp)
        low = low or need > 2 and (reduction(node) or isinstance(node, ast.BinOp))
        return f"<mo>(</mo>{body}<mo>)</mo>" if low else body

    def of(self, node) -> str:
        """An expression of the notation."""
        if found := reduction(node):
            kind, under, inner = found[0], found[1], found[2]
            while (more := reduction(inner)) and more[0] == kind:
                under, inner = under + more[1], more[2]
            letters = "".join(f"<mi>{x}</mi>" for x in under)
            sign = '<mo movablelimits="false">∑</mo>' if kind == "sum" else "<mi>mean</mi>"
            return f'<munder>{sign}<mrow>{letters}</mrow></munder><mspace width=".1em"/>{self.fence(inner, 1)}'
        match node:
            case ast.Constant():
                return f"<mn>{node.value:.6g}</mn>" if isinstance(node.value, float) else f"<mn>{node.value}</mn>"
            case ast.Name():
                name = node.id.rpartition(".")[2]
                return f"<mi>{GREEK.get(name, escape(name))}</mi>" if len(name) == 1 or name in GREEK else (
                    f"<mtext>{escape(name)}</mtext>")
            case ast.Subscript():
                index = self.index(indices(node))
                return f"<msub>{self.symbol(node.value.id)}<mrow>{index}</mrow></msub>" if index else self.symbol(
                    node.value.id)
            case ast.UnaryOp():
                return f"<mo>−</mo>{self.fence(node.operand)}"
            case ast.Compare():
                sides = f"{self.of(node.left)}<mo>{OPERATORS[type(node.ops[0])]}</mo>{self.of(node.comparators[0])}"
                return f'<mo stretchy="false">[</mo>{sides}<mo stretchy="false">]</mo>'
            case ast.BinOp(op=ast.Div(), left=top, right=ast.Call(func=ast.Name(id="sqrt"))) if reduction(top):
                return f"<mfrac><mn>1</mn>{self.of(node.right)}</mfrac>{self.of(top)}"
            case ast.BinOp(op=ast.Div()):
                return f"<mfrac><mrow>{self.of(node.left)}</mrow><mrow>{self.of(node.right)}</mrow></mfrac>"
            case ast.BinOp(op=ast.Pow()):
                return self.power(node)
            case ast.BinOp(op=ast.Mult()):
                return f'{self.fence(node.left)}<mspace width=".16em"/>{self.fence(node.right)}'
            case ast.BinOp():
                right = self.fence(node.right) if isinstance(node.op, ast.Sub) else self.of(node.right)
                return f"{self.of(node.left)}<mo>{OPERATORS[type(node.op)]}</mo>{right}"
            case ast.Call():
                return self.function(node)
        raise TypeError(f"no way to set {ast.unparse(node)!r}")

    def power(self, node):
        exponent = ast.unparse(node.right).strip("()")
        if exponent in ("-0.5", "0.5"):
            root = f"<msqrt>{self.of(node.left)}</msqrt>"
            return root if exponent == "0.5" else f"<mfrac><mn>1</mn>{root}</mfrac>"
        if isinstance(node.left, ast.Subscript) and (index := self.index(indices(node.left))):
            return (f"<msubsup>{self.symbol(node.left.value.id)}<mrow>{index}</mrow>"
                    f"<mrow>{self.of(node.right)}</mrow></msubsup>")
        return f"<msup><mrow>{self.fence(node.left, 3)}</mrow><mrow>{self.of(node.right)}</mrow></msup>"

    def function(self, node):
        name, inside = node.func.id, "<mo>,</mo>".join(map(self.of, node.args))
        if name == "sqrt":
            return f"<msqrt>{inside}</msqrt>"
        if name == "exp":
            return f"<msup><mi>e</mi><mrow>{inside}</mrow></msup>"
        return f"<mi>{'ln' if name == 'log' else name}</mi><mo>(</mo>{inside}<mo>)</mo>"

    # ------------------------------------------------------------------------- what the notation has no word for

    def sketch(self, statement, names=()) -> str:
        """A statement in outline: what is made by which function of which arrays; f⊤ is the backward of f."""
        value = getattr(statement, "value", None)
        if value is None:
            return ""
        targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
        made = self.parts(targets[-1]) if targets[-1] is not None else [ast.Name(n) for n in names[:1]]
        if not made or isinstance(value, ast.Name):
            return ""
        sign = "+=" if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add) else "="
        if isinstance(statement, ast.Return) and isinstance(value, ast.Tuple):
            value = value.elts[0]
        left = "<mo>,</mo>".join(map(self.outline, made))
        return self.whole(f"{left}<mo>{sign}</mo>{self.outline(value)}", ast.unparse(statement))

    def parts(self, target) -> list:
        if isinstance(target, ast.Tuple):
            return [x for inner in target.elts for x in self.parts(inner)]
        known = not isinstance(target, ast.Name) or target.id in self.names and target.id != "_"
        return [target] if known else []

    def outline(self, node) -> str:
        """An expression without indices."""
        match node:
            case ast.Name() | ast.Attribute(value=ast.Name() | ast.Attribute()):
                return self.symbol(ast.unparse(node))
            case ast.Subscript():
                return self.outline(node.value)
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                return f"{self.outline(node.left)}<mo>{OPERATORS[type(node.op)]}</mo>{self.outline(node.right)}"
            case ast.BinOp(op=ast.Mult() | ast.MatMult()):
                return f'{self.outline(node.left)}<mspace width=".16em"/>{self.outline(node.right)}'
            case ast.Call(func=ast.Attribute(attr="copy" | "reshape" | "transpose", value=array)):
                return self.outline(array)
            case ast.Call():
                return self.application(node)
            case ast.Attribute(value=inner):
                return self.outline(inner)
        return f'<mtext class="code">{escape(ast.unparse(node))}</mtext>'

    def application(self, node):
        *before, name = ast.unparse(node.func).split(".") if "(" not in ast.unparse(node.func) else ["", "layer"]
        turned = name.endswith("backward")
        name = before[-1] if name in ("forward", "backward") else name.removesuffix("_backward")
        given = [x for x in node.args if not isinstance(x, ast.Starred | ast.Constant) and ast.unparse(x).split(".")[
            0] not in ("self", "grads", "saved") and self.parts(x)]
        given = [x for x in given if not (ast.unparse(x).startswith("p.") and name in ast.unparse(x))]
        inside = "<mo>,</mo>".join(map(self.outline, given))
        shown = f"<mtext>{escape(name)}</mtext>"
        return f"{f'<msup>{shown}<mo>⊤</mo></msup>' if turned else shown}<mo>(</mo>{inside}<mo>)</mo>"
