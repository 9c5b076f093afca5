"""Every refusal of the package has one form: NAME is VALUE, perhaps but WHY; allowed: WHAT IS ALLOWED."""

import ast
import re

import pytest

from refattn.verification.changed_source import ROOT

OTHER_FORMS = re.compile(r"(?<![;?}]) allowed\b|\ballowed(?!( [^:;]*)?: )|\b(must|needs?|needed|known here)\b")


def texts(tree):
    """(line, text) of every string that is raised, with {} for what is computed."""
    for raised in (node for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc):
        inside = set()
        for node in ast.walk(raised.exc):
            if isinstance(node, ast.JoinedStr):
                inside |= set(ast.walk(node))
                yield node.lineno, "".join(part.value if isinstance(part, ast.Constant) else "{}"
                                           for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inside:
                yield node.lineno, node.value


def test_refusals_have_one_form():
    assert not [f"{path}:{line}: {text}" for path in ROOT.rglob("*.py")
                for line, text in texts(ast.parse(path.read_text(encoding="utf-8"))) if OTHER_FORMS.search(text)]


@pytest.mark.parametrize("words, good", [
    ("f'x is {x}; allowed: {y}'", True), ("f'x is {x}, did you mean {y}? allowed: {z}'", True),
    ("f'x is {x}; allowed with {y}: 1'", True), ("'x is 1; allowed: '\n f'{y}'", True),
    ("f'x is {x}, allowed are {y}'", False), ("f'x is {x}; allowed are {y}'", False),
    ("f'x is {x}, allowed: {y}'", False), ("f'x is {x}; 1 is needed'", False), ("f'x must be {y}'", False),
    ("f'x is {x}, ' f'allowed are {y}'", False), ("f'{x}; allowed with {y} only'", False)])
def test_other_forms_are_seen(words, good):
    (_, text), *_ = texts(ast.parse(f"raise ValueError({words})"))
    assert bool(OTHER_FORMS.search(text)) != good
