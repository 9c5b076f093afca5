"""What Sphinx does not do by itself: LaTeX to MathML, and docstrings shown as they are written."""

from docutils import nodes
from latex2mathml.converter import convert


def inline(self, node):
    """`$x$` in a sentence."""
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def block(self, node):
    """An equation of its own."""
    for part in node.astext().split("\n\n"):
        self.body.append(convert(part, display="block"))
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
