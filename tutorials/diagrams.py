"""Diagrams of the tutorials, in one style: what attends to what, and the data flow of each backward.

    attention("hyla")      what one query takes from where
    flow("hyla")           the lines of a page, forward down and backward up, read from its source
    every()                all of them

Colours are those of Okabe & Ito: blue for what goes forward, orange for gradients, green for what is learned or chosen.
"""

import ast
import importlib
import inspect
import re
import textwrap
from typing import NamedTuple

import matplotlib.pyplot as plt

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
PALE = {BLUE: "#D6E8F4", ORANGE: "#FAE3D3", GREEN: "#CFEBE2", GREY: "#EEEEEE"}


def canvas(width, height, size, title):
    """A figure whose axes are plain coordinates, without ticks."""
    figure, ax = plt.subplots(figsize=size)
    ax.set(xlim=(0, width), ylim=(0, height), title=title)
    ax.set_axis_off()
    return figure, ax


def box(ax, x, y, text, colour=BLUE, fontsize=11, zorder=3, **options):
    """Text in a rounded box, centred at x, y; the box."""
    return ax.text(x, y, text, ha="center", va="center", fontsize=fontsize, zorder=zorder, bbox={
        "boxstyle": "round,pad=0.3", "facecolor": PALE[colour], "edgecolor": colour}, **options).get_bbox_patch()


def arrow(ax, start, end, colour=BLUE, bend=0.0, label="", style="-", width=1.3, shrink=11, boxes=(None, None)):
    """An arrow from start to end, its label at the middle; it begins and ends at the edges of `boxes`, drawn before."""
    ax.annotate("", end, start, zorder=3.5, arrowprops={        # after the boxes, whose edges a drawing settles
        "arrowstyle": "-|>", "color": colour, "linewidth": width, "linestyle": style, "shrinkA": shrink,
        "shrinkB": shrink, "connectionstyle": f"arc3,rad={bend}", "patchA": boxes[0], "patchB": boxes[1]})
    if label:
        ax.text((start[0] + end[0]) / 2, (start[1] + end[1]) / 2, label, ha="center", va="center", fontsize=9,
                color=colour, zorder=4, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})


# ------------------------------------------------------------------------------------------------ what attends to what


def softmax():
    """One query of one head: weights that sum to 1, and a mean of values."""
    figure, ax = canvas(10, 4.6, (9, 3.9), "Softmax attention, one head: weights compete over keys, o is a mean")
    weights = 0.1, 0.6, 0.05, 0.25
    query, output = box(ax, 0.9, 0.6, "query q", GREY), box(ax, 9.2, 2.4, "output o", BLUE)
    ax.plot([2.2, 7.9], [1.9, 1.9], color=GREEN, linewidth=2)
    ax.text(0.9, 1.9, "softmax over keys:\nthe four sum to 1", ha="center", va="center", fontsize=9, color=GREEN)
    for n, weight in enumerate(weights):
        x = 2.8 + 1.5 * n
        key, value = box(ax, x, 0.6, f"key {n + 1}", GREY), box(ax, x, 4.0, f"value {n + 1}", GREY)
        a = box(ax, x, 2.4, f"a = {weight:.2f}", BLUE)
        arrow(ax, (0.9, 0.6), (x, 2.4), GREY, width=0.8, shrink=2, boxes=(query, a))
        arrow(ax, (x, 0.6), (x, 2.4), BLUE, label="q·k/√d" if n == 3 else "", shrink=2, boxes=(key, a))
        arrow(ax, (x, 4.0), (x, 2.4), GREY, width=0.8, shrink=2, boxes=(value, a))
        arrow(ax, (x, 2.4), (9.2, 2.4), BLUE, width=0.4 + 5 * weight, bend=-0.22, shrink=2, boxes=(a, output))
    return figure


def hyla():
    """One pair of query and key: one code over heads, used for both layers of a value network."""
    figure, ax = canvas(10, 4.8, (9, 4), "HYLA, one query and one key: the code over heads is used twice")
    box(ax, 5, 4.2, "latent code  a[:, q, k] = RMSHead over heads of q·k/√d", GREEN)
    x, z, g = box(ax, 0.9, 1.4, "x of the key", GREY), box(ax, 4.9, 1.4, "z", BLUE), box(ax, 6.6, 1.4, "relu(z)", BLUE)
    for h in range(3):
        y = 2.3 - 0.9 * h                                         # the first at the top
        v, o = box(ax, 2.9, y, f"head {h + 1}: v", GREY), box(ax, 8.7, y, f"o of head {h + 1}", BLUE)
        arrow(ax, (0.9, 1.4), (2.9, y), GREY, shrink=2, boxes=(x, v))
        arrow(ax, (2.9, y), (4.9, 1.4), BLUE, label=f"a{h + 1}", shrink=2, boxes=(v, z))
        arrow(ax, (6.6, 1.4), (8.7, y), BLUE, label=f"a{h + 1}", shrink=2, boxes=(g, o))
    arrow(ax, (4.9, 1.4), (6.6, 1.4), BLUE, shrink=2, boxes=(z, g))
    arrow(ax, (4.2, 4.2), (3.8, 2.2), GREEN, label="first use, (5)", style="--")
    arrow(ax, (6.2, 4.2), (7.7, 2.2), GREEN, label="second use, (7)", style="--")
    return figure


def compositional():
    """One query: two searches, three retrievals, all six pairs, and the choice among them."""
    figure, ax = canvas(10, 5, (9, 4.2), "Compositional attention, one query: every search has its choice of retrieval")
    for s in range(2):
        y = 3.6 - 2.4 * s
        search = box(ax, 1.1, y, f"search {s + 1}:\nwhere to look", BLUE)
        o = box(ax, 8.9, y, f"o of search {s + 1}", BLUE)
        for r in range(3):
            weight = ((0.1, 0.8, 0.1), (0.7, 0.1, 0.2))[s][r]
            at = 4.4, y + 0.72 * (1 - r)
            t = box(ax, *at, f"t[{s + 1}, {r + 1}]", GREY)
            arrow(ax, (1.1, y), at, BLUE, shrink=2, boxes=(search, t))
            arrow(ax, at, (8.9, y), GREEN, width=0.4 + 4 * weight, shrink=2, label=f"g = {weight:.1f}", boxes=(t, o))
    ax.text(4.4, 4.85, "retrievals: v1, v2, v3, the same for both searches", ha="center", va="top", fontsize=9,
            color=GREY)
    ax.text(6.6, 0.05, "value scores g: softmax over retrievals of selector · (t W) / √C'", ha="center", fontsize=9,
            color=GREEN)
    return figure


def sliding_dilated(levels=3, chunk=2):
    """The tree that the last position reads: dilation C^l at level l."""
    length = chunk**levels
    figure, ax = canvas(length + 0.8, levels + 1.2, (9, 3.9),
                        f"Sliding-dilated attention, C = {chunk}: after level l a position has seen C^(l+1) symbols")
    needed = {levels: {length - 1}}
    for level in range(levels - 1, -1, -1):
        needed[level] = {i - j * chunk**level for i in needed[level + 1] for j in range(chunk)}
    for level in range(levels + 1):
        for i in range(length):
            used = i in needed[level]
            box(ax, i + 0.5, level + 0.5, f"{i + 1}", BLUE if used else GREY, fontsize=10, alpha=1 if used else 0.35)
            for j in range(chunk if level else 0):
                source = i - j * chunk**(level - 1)
                if source >= 0:
                    arrow(ax, (source + 0.5, level - 0.5), (i + 0.5, level + 0.5), BLUE if used else PALE[GREY],
                          width=1.6 if used else 0.8)
        words = f"level {level - 1}\ndilation {chunk**(level - 1)}" if level else "symbols"
        ax.text(length + 0.05, level + 0.5, words, fontsize=9, va="center", color=GREY)
    return figure


ATTENTION = {"softmax": softmax, "hyla": hyla, "compositional": compositional, "sliding_dilated": sliding_dilated}


def attention(name: str):
    """What attends to what, as a figure."""
    return ATTENTION[name]()


# -------------------------------------------------------------------------------------------------- flow of a backward


class Line(NamedTuple):
    tag: int
    targets: tuple[str, ...]
    used: tuple[str, ...]
    words: str


def names(node) -> tuple[str, ...]:
    """Names in a node, in order; what only sets memory (`order`, `out`) is left out."""
    skipped = {x for each in ast.walk(node) if isinstance(each, ast.Call) for keyword in each.keywords
               for x in ast.walk(keyword)}
    return tuple(dict.fromkeys(x.id for x in ast.walk(node) if isinstance(x, ast.Name) and x not in skipped))


def words_of(node) -> str:
    """The right side of a line, short: a contraction as a sum over the letters that go."""
    if isinstance(node, ast.Call):
        name = re.sub(r"ops\.|_of\(\w+\)|\.(forward|backward)", "", ast.unparse(node.func))
        args = [ast.unparse(x) for x in node.args]
        if name == "contract":
            of_a, of_b, result = re.split(",|->", ast.literal_eval(node.args[0]))
            gone = "".join(x for x in of_a if x not in result)
            return f"Σ_{gone} {args[1]} {args[2]}" if gone else f"{args[1]} {args[2]}"
        whole = f"{name}({', '.join(args)})"
        return whole if len(whole) < 26 else f"{name}(…)"
    text = ast.unparse(node)
    return text if len(text) < 26 else ", ".join(x for x in names(node) if x not in ("ops", "bias"))


def lines_of(function) -> list[Line]:
    """The tagged lines of a function of a page, in order."""
    found = []
    for text in inspect.getsource(function).splitlines():
        tag = re.search(r"#\s+\((\d+)\)", text)
        if not tag or "again" in text.split("#")[1]:
            continue
        node = ast.parse(text.split("#")[0].strip()).body[0]
        more = isinstance(node, ast.AugAssign)
        left = tuple(x.id for target in ([node.target] if more else node.targets) for x in ast.walk(target)
                     if isinstance(x, ast.Name))
        sign = {ast.Add: "+=", ast.Mult: "*="}[type(node.op)] if more else "="
        found.append(Line(int(tag[1]), left, names(node.value) + left * more,
                          f"{', '.join(left)} {sign} {words_of(node.value)}"))
    return found


def edges(lines) -> dict:
    """(from line, to line) -> the arrays that go that way."""
    made, found = {}, {}
    for line in lines:
        for name in line.used:
            if made.get(name, line.tag) != line.tag:
                found.setdefault((made[name], line.tag), set()).add(name)
        made |= dict.fromkeys(line.targets, line.tag)
    return found


def flow(name: str):
    """The lines of a page beside one another: the forward read downwards, the backward that answers it upwards."""
    page = importlib.import_module(f"refattn.attention.{name}")
    down, up = (lines_of(getattr(page, each)) for each in (name, f"{name}_backward"))
    at, place = {}, 0.0
    for tag in sorted({line.tag for line in down}):
        height = max(sum(line.tag == tag for line in side) for side in (down, up))
        at[tag], place = place + height / 2, place + height + 0.35
    figure, ax = canvas(13, place + 0.9, (10, 0.62 * place + 1.2),
                        f"The page {name}: forward downwards, backward upwards")
    for side, x, colour, outside in (down, 3, BLUE, -1), (up, 9.6, ORANGE, 1):
        boxes = {tag: box(ax, x, place - middle, "\n".join(line.words for line in side if line.tag == tag), colour,
                          fontsize=10, zorder=1.5, family="monospace") for tag, middle in at.items()}
        lane = 2.55
        for (start, end), arrays in sorted(edges(side).items(), key=lambda edge: abs(edge[0][0] - edge[0][1])):
            if abs(start - end) == 1:
                arrow(ax, (x, place - at[start]), (x, place - at[end]), colour, shrink=3,
                      boxes=(boxes[start], boxes[end]))
            else:                           # a second use: around the lines between, on the outer side, in its own lane
                edge, way = x + outside * lane, 0.13 if at[start] > at[end] else -0.13
                ys, lane = (place - at[start] + way, place - at[end] + way), lane + 0.45
                ax.plot([x, edge, edge], [ys[0], ys[0], ys[1]], color=colour, linewidth=1.3, linestyle="--", zorder=1)
                arrow(ax, (edge, ys[1]), (x, ys[1]), colour, style="--", shrink=2, boxes=(None, boxes[end]))
                ax.text(edge, sum(ys) / 2, ", ".join(sorted(arrays)), ha="center", va="center", fontsize=10,
                        color=colour, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1}, zorder=4)
    known = {target for line in down for target in line.targets} | {*page.Saved._fields}
    known |= {*inspect.signature(getattr(page, name)).parameters}
    for tag, middle in at.items():
        needs = sorted({x for line in up if line.tag == tag for x in line.used} & known)
        ax.text(6.15, place - middle + 0.1, f"({tag})", ha="center", va="center", fontsize=11, weight="bold")
        if needs:
            ax.text(6.15, place - middle - 0.13, textwrap.fill(f"needs {', '.join(needs)}", 16), ha="center", va="top",
                    fontsize=9, color=GREY)
    for x, colour, first, last in (3, BLUE, "q, k, v, …", "o"), (9.6, ORANGE, "dq, dk, dv, …", "do, from above"):
        ax.text(x, place + 0.5, first, ha="center", fontsize=10, color=colour)
        ax.text(x, -0.2, last, ha="center", fontsize=10, color=colour)
    return figure


def every():
    """(name, figure) of all diagrams."""
    for name in ATTENTION:
        yield f"attention_{name}", attention(name)
        yield f"flow_{name}", flow(name)
