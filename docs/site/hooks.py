"""What Sphinx does not do by itself: LaTeX to MathML, and docstrings shown as they are written."""

import re
from html import unescape

from docutils import nodes
from latex2mathml.converter import convert

BOLD = {"a": "𝐚", "A": "𝐀", "α": "𝛂"}           # of each alphabet the first letter


def bold(match):
    """A bold letter as a character of its own, where there is one."""
    letter = unescape(match[1])
    for first, heavy in BOLD.items():
        if 0 <= ord(letter) - ord(first) < 26:
            return f"<mi>{chr(ord(heavy) + ord(letter) - ord(first))}</mi>"
    return match[0]


def word(match):
    """A bold word, such as the name of an array, whose letters would stand apart."""
    return f'<mtext class="w">{re.sub("<.*?>", "", match[0])}</mtext>'


def mathml(latex: str, **options) -> str:
    """MathML of LaTeX: browsers draw one letter slanted unless it is said to be normal, and know no bold ones."""
    latex = re.sub(r"\\tag\{(.*?)\}", r"\\qquad\\text{(\1)}", latex)          # would stand too close
    found = convert(latex, **options)
    found = found.replace("<mi>&#x00064;</mi>", '<mi mathvariant="normal">d</mi>')         # of a gradient
    found = found.replace("<mo><mrow><mo>&#x0002B;</mo></mrow></mo><mo>&#x0003D;</mo>", "<mo>+=</mo>")
    found = re.sub(r"(?<!<msu[bp]>)(<mi>(?:exp|ln)</mi>)(?=<m(?!o>))", r'\1<mspace width="0.17em"/>', found)
    found = re.sub(r'(?:<mi mathvariant="bold">\w</mi>){2,}', word, found)
    return re.sub(r'<mi mathvariant="bold(?:-italic)?">(\w|&#x\w+;)</mi>', bold, found)


def inline(self, node):
    """`$x$` in a sentence."""
    self.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def block(self, node):
    """An equation of its own."""
    for part in node.astext().split("\n\n"):
        self.body.append(mathml(part, display="block"))
    raise nodes.SkipNode


def verbatim(app, what, name, obj, options, lines):
    """A docstring with its own line ends and indentation: its formulas and tables of shapes are no reStructuredText."""
    if lines:
        lines[:] = ["::", "", *(f"   {line}" for line in lines), ""]


def setup(app):
    """What Sphinx calls."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.connect("autodoc-process-docstring", verbatim)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
