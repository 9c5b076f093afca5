"""A residual block as formulas: those of its sub-layers, between its norms and its stream.

Every name has its sub-layer's before it, attention_s1; attention to a context has letters of its own, H D E K.
"""

import re
from typing import NamedTuple

PARTED = "-----\n"
WORD = re.compile(r"'[^']*'|\b[A-Za-z_]\w*")            # a name, or the letters of a product
ACROSS = str.maketrans("hdek", "HDEK")
QUERIES = str.maketrans("t", "q")
CONTEXT = {"context": "context", "dcontext": "dcontext", "keep": "context_keep", "dropout": "context_dropout",
           "scale": "n_D ** -0.5"}


class Part(NamedTuple):
    """A sub-layer, a norm or a position layer of a block."""
    name: str
    text: str                  # its formulas
    parameters: tuple
    norm: str = ""             # the name of a sub-layer's norm


def within(part, tag, shared, letters=None) -> list[str]:
    """The forward and the backward of a part as they stand in the block, with its names for what is `shared`."""
    heads = [line.split()[1] for line in part.text.splitlines() if " = " in line]
    called = {n: f"{part.name}_{n}" for n in [*heads, *(n.replace(".", "_") for n in part.parameters)]}
    called |= {f"d{n}": f"d{part.name}.{n}" for n in part.parameters} | shared

    def word(found):
        text = found[0]
        return text.translate(letters or {}) if re.match("'|n_", text) else called.get(text, text)

    def line(text):
        head, _, body = text.partition(" = ")
        _, name, axes = head.split()
        return f"{tag} {called[name]} {axes.translate(letters or {})} = {WORD.sub(word, body)}\n"

    return ["".join(map(line, x.splitlines())) for x in part.text.split(PARTED)]


def without_bias(text, instead="") -> str:
    """An attention layer's formulas whose scores have no bias, or another one."""
    return re.sub(r"^\S+ dbias .*\n", "", text, flags=re.MULTILINE).replace(" + bias", instead)


def composed(norm, parts, norm_text, position, read) -> str:
    """The formulas of a block from its sub-layers in order; `position` makes the bias of the first.

    With `read` that one picks queries, so that what comes before it has the letter t for tokens.
    """
    ahead, back, x, dx = "", "", "x", "dx"
    for n, part in enumerate(parts):
        name, reads = part.name, read and n == 0
        y, dy = ("o", "do") if part is parts[-1] else (f"{name}_y", f"d{name}_y")
        added, dadded = (f"{name}_added", f"d{name}_added") if norm == "post" else (y, dy)
        normed = f"{part.norm}_o" if norm == "pre" else x
        dnormed = f"{part.norm}_dx" if norm == "pre" else f"{name}_dx"
        letters = {"cross": ACROSS, "feed_forward": QUERIES}.get(name)
        own, undo = within(part, "2", {"x": normed, "context": normed, "o": f"{name}_o", "do": f"d{name}_o",
                                       **(CONTEXT if name == "cross" else {})}, letters)
        if position and n == 0:
            table, dtable = within(position, "position", {"do": "position_do"})
            own, undo = table + own, undo + "position position_do hqk = total(attention_ds, 'b')\n" + dtable
        stays = f"dot('btm,qt->bqm', {x}, picked)" if reads else x
        goes = f"dot('bqm,qt->btm', {dadded}, picked)" if reads else dadded
        own += f"3 {name}_dropped bqm = {name}_o * residual_{n}\n4 {added} bqm = {name}_dropped + {stays}\n"
        undo = f"3 d{name}_o bqm = {dadded} * residual_{n}\n" + undo
        sum_back = f"4 {dx} b{'t' if reads else 'q'}m = {dnormed} + {goes}\n"
        normal = Part(part.norm, norm_text, ("scale", "shift"))
        if norm == "pre":
            first, last = within(normal, "1", {"x": x, "do": f"{name}_dx"}, None if reads else QUERIES)
            own, undo = first + own, undo + last
        elif norm == "post":
            last, first = within(normal, "5", {"x": added, "o": y, "do": dy, "dx": dadded}, QUERIES)
            own, undo = own + last, first + undo
        ahead, back, x, dx = ahead + own, undo + sum_back + back, y, dy
    return ahead + PARTED + back
