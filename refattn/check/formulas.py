"""The pages once more as data, one expression a line: what `check.grammar` makes mistakes in.

A line is `tag name axes = expression`, its tag that of the page; forward and backward are parted by a line of dashes.
A value that the backward makes again is a line of its own.  `sum` and `mean` keep the axes that they run over, named by
the letters of what they sum.  Tests hold every block against its page.
"""

import re
from dataclasses import replace
from functools import cache, partial
from importlib.resources import files
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..attention.pages import PAGES, page
from ..layers.positions import t5_buckets
from ..ops import queries, queries_backward, unbroadcast
from ..params import layout
from ..verification.cases import find
from .blocks import ACROSS, PARTED, Part, composed, without_bias

TEXT = files(__package__).joinpath("formulas.txt").read_text(encoding="utf-8")
BLOCKS = {name: body for name, body in re.findall(r"^\[(.+)\]\n((?:.+\n)+)", TEXT, re.MULTILINE)}
OPTIONS = "bias", "keep", "dropout"
OWN = {                        # axes of a layer's inputs in its formulas, and of what says which entries it reads
    "T5": {"table": "hv", "hit": "qkv", "do": "hqk"},
    "LearnedTable": {"table": "vm", "hit": "tv", "do": "btm"},
    "Conv": {"x": "byzi", "picks": "gjuwyz", "do": "bgjo"},
}
OPTIONAL = *OPTIONS, "hidden", "context_keep", "context_dropout", *(f"residual_{n}" for n in range(3))  # blocks too
WRITTEN = {f"{name}.py" for name in ("softmax", "linear", "hyla", "ablations", "compositional", "sliding_dilated")}
JOINED = [row.replace("; ", "\n").split(" -> ") for row in BLOCKS["joined"].splitlines()]


class Line(NamedTuple):
    part: int                  # 0 forward, 1 backward
    tag: str
    name: str
    letters: str
    text: str


class Formulas(NamedTuple):
    """A page as data."""
    lines: tuple               # of both parts
    letters: dict              # name -> axes, of inputs too
    words: tuple               # names of the two functions
    code: str                  # letters of bias, keep and dropout
    layer: Any                 # of a layer's own formulas, or None
    read: slice | None         # the queries that it is asked for, where not all
    start: int                 # the position of the first token


def formulas(of: str) -> list[Formulas]:
    """The formulas of a subject's name, where there are any: of the page, and of how fused kernels do the same.

    Last, where these make the scores of a softmax again in the backward and keep their normaliser.
    """
    found = [_formulas(of, fused) for fused in range(3)]
    return [x for n, x in enumerate(found) if x is not None and x not in found[:n]]


def with_log(of: Formulas) -> Formulas:
    """The same with each softmax as exp(s - log sum exp s), as in kernels that keep this log or merge parts by it."""
    text, lines = {line.name: line.text for line in of.lines}, []
    for line in of.lines:
        made = re.fullmatch(rf"(\w+) \* inverse\(sum\(\1, '{line.letters[-1]}'\)\)", line.text)
        of_exp = made and re.fullmatch(r"exp\((\w+)\)(?: \* (.+))?", text[made[1]])
        lines.append(line._replace(text=f"by_log({of_exp[1]}, {of_exp[2] or 1})") if of_exp else line)
    return of._replace(lines=tuple(lines))


def joined(text, fused) -> str:
    """The text as it stands in fused kernels, or as it is."""
    for apart, together in JOINED if fused else ():
        text = text.replace(apart, together)
    return text


@cache
def _formulas(of: str, fused) -> Formulas | None:
    case = find(of) if "/" in of else None
    layer = case and case.layer
    found = _layer(case, fused) if layer else _operation(case, fused) if case else _page(of, fused)
    if found is None:
        return None
    text, inputs, code = found
    lines = []
    for part, rows in enumerate(text.split(PARTED)):
        for row in rows.splitlines():
            head, _, body = row.partition(" = ")
            tag, name, axes = head.split()
            lines.append(Line(part, tag, name, axes, body))
    letters = {line.name: line.letters for line in lines} | inputs | dict.fromkeys(OPTIONS, code)
    function = re.split(r"\W", of.rpartition("/")[2])[0]
    fixed = dict(re.findall(r"(\w+)=(\d+)", case.settings)) if case else {}
    words = (f"{function}.forward", f"{function}.backward") if layer else (function, f"{function}_backward")
    return Formulas(tuple(lines), letters, words, code, layer, case.read if case else None,
                    int(fixed.get("start", 0)))


def _operation(case, fused):
    if (kind := re.split(" in | over |, ", case.name)[0]) not in BLOCKS:
        return None
    text = BLOCKS[kind].format(**dict(x.split("=") for x in case.settings.split(", ") if x))        # scale=0.5, say
    hit = {"hit": "btv"} if "hit" in text else {}
    return joined(text, fused), {**case.axes, "do": case.axes["output"], **hit}, "bhqk"


def _page(of, fused):
    inputs, code = {"q": "bqhd", "k": "bkhd", "v": "bkhe", "do": "bqhe"}, "bhqk"
    if of == "linear_state":
        return BLOCKS[of], inputs | {"state": "bhde", "dend": "bhde"}, code
    if of not in PAGES or PAGES[of].file not in WRITTEN:
        return None
    if of.startswith("sliding"):
        text, code = BLOCKS["sliding_dilated"], "bhqw"
        inputs |= {"at": "qwk", "before": "qw", "r": "bhqw"}
        if of.endswith("pad"):
            inputs |= {"pad_k": "hd", "pad_v": "he"}
            text = text.format(there="", pad_k=" + dot('qw,hd->qwhd', before, pad_k)[None]",
                               pad_v=" + dot('qw,he->qwhe', before, pad_v)[None]") + BLOCKS["pads"]
        else:
            text = text.format(there=" * reach(at)", pad_k="", pad_v="")
    elif of.startswith("compositional"):
        code, variant = "bsqk", page(of)
        logits, backward = BLOCKS[f"scoring {of.partition('_')[2] or 'dot'}"].split(PARTED)
        text = BLOCKS["compositional"].format(logits=logits, backward=backward)
        inputs |= {**variant.letters, **variant.extras}
        inputs = {n: x.replace("h", "s") for n, x in inputs.items()}
    else:
        text = _multi_head(page(of).knobs, of)
        inputs["wv2"] = "hef"
    if fused and of == "softmax":                           # the same sum, from the output
        delta = "2 delta bhqk = dot('bqhe,bqhe->bhq', do, o)[..., None]\n"
        delta = BLOCKS["scores again"] * (fused == 2) + delta
        text = text.replace("sum(a * da, 'k')", "delta").replace(PARTED, PARTED + delta)
    return joined(text, fused), inputs, code


def _layer(case, fused):
    """A layer: its own formulas, or those of a page between the maps into it and out of it."""
    layer, kind = case.layer, type(case.layer).__name__
    if kind == "Block":
        return _block(case, fused)
    axes = {name.replace(".", "_"): axes for name, axes, *_ in layout(layer.parameters())}
    if text := BLOCKS.get("ops/layer_norm" if kind == "LayerNorm" else f"layers/{kind}"):
        ahead, slope = BLOCKS[f"activation {getattr(layer, 'activation', 'relu')}"].strip().split(f"\n{PARTED}")
        text = text.format(phi=ahead, slope=slope, **vars(layer))               # of which are segments, and chosen
        return joined(text, fused), {**case.axes, **axes, **OWN.get(kind, {"do": "btm"})}, "bhqk"
    pads, of = "pad" in axes, None
    if kind == "MultiHead":
        of = page(layer.variant).name
    elif kind == "SlidingDilated":
        of = "sliding_dilated_pad" if pads else "sliding_dilated"
    elif kind == "Compositional":
        of = f"compositional_{layer.scoring}".removesuffix("_dot")
    scheme = getattr(layer, "position", None)
    position = scheme and BLOCKS.get(f"position {type(scheme).__name__} {getattr(scheme, 'kernel', '')}".strip())
    inner = _page(of, fused) if of and (scheme is None or position) else None
    if inner is None:
        return None
    text, inputs, code = inner
    ahead, back = re.sub(r"\bx\b", "ex", re.sub(r"\b(d?)o\b", r"\1heads", text)).split(PARTED)
    first, last = _maps(axes, "context" in case.axes, case.read)
    if position:
        first, ahead, back = _positioned(position.format(**vars(scheme)), first, ahead, back)
    if pads:
        last += "in dpad m = dot('hd,mhd->m', dpad_k, wk) + dot('he,mhe->m', dpad_v, wv)\n"
    if "br" in axes and "dbr" not in text:
        last += "in dbr c = 0.0 * br\n"                      # the softmax drops it
    out, undo = _map("out", axes, w="o", h=axes["wo"][:2])
    text = first + ahead + out + PARTED + undo + back + last
    inputs = {n: x for n, x in inputs.items() if n not in (*"qkv", "selector", "pad_k", "pad_v")}
    inputs |= {"x": "bqm"} if case.read is None else {"x": "btm", "picked": "qt"}
    return text, inputs | axes | {"context": "bkm", "do": "bqm"}, code


def _block(case, fused):
    """A residual block, where there are formulas of all of its sub-layers."""
    block, parts, inputs = case.layer, [], {}
    for name, layer, norm in block.sub_layers:
        axes = {n: x for n, x in case.axes.items() if n == "context" and name == "cross"}
        found = _layer(replace(case, layer=layer, axes=axes, read=case.read if name == "attention" else None), fused)
        if found is None or name == "attention" and block.slides:
            return None
        text, letters, _ = found
        parameters = {n: x for n, x, *_ in layout(layer.parameters())}
        inputs |= {f"{name}_{n}".replace(".", "_"): x.translate(ACROSS) if name == "cross" else x
                   for n, x in parameters.items()}
        inputs |= {f"{norm}_{n}": "m" for n in ("scale", "shift")}
        if name != "feed_forward":
            text = without_bias(text, " + position_o" if name == "attention" and block.position else "")
        parts.append(Part(name, text, tuple(parameters), norm))
    position = None
    if block.position:
        if case.read or type(block.position).__name__ != "T5":
            return None
        position = Part("position", BLOCKS["layers/T5"], ("table",))
        inputs |= {"position_table": "hv", "hit": "qkv"}
    text = composed(block.norm, parts, joined(BLOCKS["ops/layer_norm"], fused), position, case.read)
    inputs |= {"x": "btm", "picked": "qt"} if case.read else {"x": "bqm"}
    inputs |= {"hidden": "bqf", "do": "bqm", **{f"residual_{n}": "bqm" for n in range(len(parts))}}
    if block.cross:
        inputs |= {"context": "bKm", "context_keep": "bHqK", "context_dropout": "bHqK"}
    return text, inputs, "bhqk"


def _positioned(position, first, ahead, back) -> tuple[str, str, str]:
    """The lines of a position layer behind the maps of q and k, then called qm and km, and its bias r in the scores."""
    turn, turn_back = position.split(PARTED)
    for x in re.findall("^position ([qk]) ", turn, re.MULTILINE):
        first, back = first.replace(f"in {x} ", f"in {x}m "), back.replace(f"1 d{x} ", f"1 d{x}m ")
    if "position r " in turn:
        ahead, back = (text.replace("* scale + bias", "* scale + bias + r") for text in (ahead, back))
    return first + turn, ahead, back + turn_back


def _map(kind, axes, w, **names) -> list[str]:
    """The lines of one map, and of its gradients; those of a bias only where it has one."""
    text = BLOCKS[f"map {kind}"].format(w=w, **names)
    if f"b{w}" not in axes:
        text = re.sub(rf" \+ b{w}$|^\w+ db{w} .*\n", "", text, flags=re.MULTILINE)
    return text.split(PARTED)


def _maps(axes, across, read) -> tuple[str, str]:
    """The lines of the maps from x and the context, and of their gradients; a pad is projected like a token."""
    first, last, dx, asks = "", "", {"q": [], "k": []}, "x"
    if read is not None:
        first, asks = "in xq bqm = dot('btm,qt->bqm', x, picked)\n", "xq"
    for n, x, p, w in ("q", asks, "q", "q"), ("selector", asks, "q", "s"), ("k", "context", "k", "k"), (
            "v", "context", "k", "v"):
        if f"w{w}" in axes:
            kind = "in, with a pad" if "pad" in axes and p == "k" else "in"
            ahead, back = _map(kind, axes, w, n=n, x=x, p=p, form=axes[f"w{w}"][1:])
            first, last = first + ahead, last + back
            dx[p].append(f"dx{w}")
    if read is not None:
        last += f"in dread bqm = {' + '.join(dx['q'])}\n"
        dx["q"] = ["dot('bqm,qt->btm', dread, picked)"]
    x = "dx bqm" if read is None else "dx btm"
    ends = {x: dx["q"], "dcontext bkm": dx["k"]} if across else {x: dx["q"] + dx["k"]}
    return first, last + "".join(f"in {name} = {' + '.join(terms)}\n" for name, terms in ends.items())


def _multi_head(knobs, of) -> str:
    """softmax, linear, HYLA and every row of table A1."""
    names = {"softmax_rms_head": ("softmax", "rms_head"), "rms_head_softmax": ("rms_head", "softmax")}.get(
        knobs.normaliser, (knobs.normaliser,))
    arrays, first = ["s1", *["b1"] * (len(names) - 1), "a"], 3 if of == "hyla" else 2
    fill = [{"t": first, "u": 2, "x": x, "y": y} for x, y in pairwise(arrays)]
    steps = [BLOCKS[f"normaliser {s}"].format(**f).split(PARTED) for s, f in zip(names, fill, strict=True)]
    scores, gradients = BLOCKS["scores"].split(PARTED)
    uses = BLOCKS[f"code uses {knobs.code_uses}"].replace("phi(", "relu(" if knobs.phi == "relu" else "(")
    if knobs.phi != "relu":
        uses = re.sub(r" \* step\(\w+\)", "", uses)
    tags = {"c": first + 1, "z": first + 2, "g": first + 3, "u": 6, "z2": 7, "g2": 8,
            "o": {"hyla": 7, "softmax": 4, "linear": 4}.get(of, 9)}
    ahead, back = uses.format(**tags).split(PARTED)
    undo = [b.replace("ds1 bhqk", "ds bhqk") for _, b in reversed(steps)]
    return "".join((scores, *(a for a, _ in steps), ahead, PARTED, back, *undo, gradients))


def renamed(inputs) -> dict:
    """Inputs by the names that formulas have for them."""
    each = {f"residual_{n}": x for n, x in enumerate(inputs.get("residual", ()))}
    return {n.replace(".", "_"): x for n, x in inputs.items() if n != "residual"} | each


def start(of: Formulas, inputs) -> dict:
    """What the first line sees: float64 arrays, sizes as n_h, options that are missing as what changes nothing."""
    env: dict[str, Any] = {n: np.asarray(x, float) for n, x in renamed(inputs).items()}
    env["eps"] = getattr(of.layer, "epsilon", 1e-6)
    if "x" in env and "context" in of.letters:
        env.setdefault("context", env["x"])
    bias = env.get("bias", np.zeros(()))
    if of.read is not None:
        env |= {n: queries(env[n], of.read) for n in OPTIONAL if n in env}
        env["picked"] = np.eye(env["x"].shape[1])[of.read]
    size = {"1": 1}
    for name, axes in of.letters.items():
        if name in env and name not in OPTIONAL:
            size |= dict(zip(axes, env[name].shape, strict=False))
    if "residual_0" in of.letters:
        size["k"] = size.get("t", size["q"])                # a block attends to its own tokens
    if {"d", "q", "k"} <= size.keys():
        form = np.shape(env.get("bias", 0.0))
        env |= {"scale": size["d"] ** -0.5, "fold": lambda ds: queries_backward(unbroadcast(ds, form), bias, of.read),
                "foldmean": lambda ds: unbroadcast(ds, form) * (prod(form) / ds.size)}
    env |= _places(of, env, size)
    for name in *OPTIONAL, "weight":
        axes = of.letters.get(name, "")
        shape = [size[x] for x in axes] if {*axes} <= size.keys() else ()
        env[name] = np.broadcast_to(env.get(name, 1.0 * (name != "bias")), shape)
    return env | {f"n_{x}": n for x, n in size.items() if x != "1"}


def _places(of: Formulas, env, size) -> dict:
    """Where queries and keys stand, as numbers; what an index, a window, a bucket picks, as ones among zeros."""
    made: dict[str, Any] = {}
    if "state" in env:
        made["keep"] = np.tri(size["q"])
    if {"q", "k"} <= size.keys():
        keys = np.arange(size["k"])
        at = np.arange(size["q"]) + size["k"] - size["q"] if of.read is None else keys[of.read]
        made |= {"at_q": at[:, None], "at_k": keys}
        if of.code == "bhqw":
            width = size["w"] = env["offset_bias"].shape[1]
            n = at[:, None] - getattr(of.layer, "dilation", 2) * np.arange(width)
            made |= {"at": 1.0 * (n[..., None] == keys), "before": 1.0 * (n < 0),
                     "r": np.broadcast_to(env["offset_bias"][None, :, None], [size[x] for x in of.code])}
    if of.letters.get("hit") == "qkv":
        t5 = of.layer.position if "residual_0" in of.letters else of.layer
        made |= {"bucketed": (f := partial(_bucketed, t5, size["q"], size["k"])), "hit": f()}
    elif of.letters.get("hit") == "tv":
        made |= {"rows_from": (f := partial(_rows, of.start, size)), "hit": f()}
    elif "picks" in of.letters:
        made |= {"windowed": (f := partial(_windowed, of.layer, size)), "picks": f()}
    elif "hit" in of.letters:
        made["hit"] = 1.0 * (env.get("index", env.get("target"))[..., None] == np.arange(size["v"]))
    return made


def _bucketed(t5, queries, keys, flip=False, start=0, times=1, **changed):
    """The bucket of each pair (q, k) as a one among zeros, right or wrong."""
    of = replace(t5, max_distance=times * t5.max_distance, **changed)
    each = [(queries, keys), (keys, queries)][flip]
    place = t5_buckets(*each, of.buckets, of.max_distance, of.bidirectional, start)
    return 1.0 * ((place.T if flip else place)[..., None] == np.arange(t5.buckets))


def _rows(first, size, late=0, start=None):
    """The row of a table for each position as a one among zeros, right or wrong; a missing row is the last."""
    at = (first if start is None else start) + late + np.arange(size["t"])
    return 1.0 * (at[:, None] % size["v"] == np.arange(size["v"]))


def _windowed(conv, size, late=0, apart=1, edge=None, **changed):
    """The pixel (y, z) at each place (u, w) of each window (g, j) as a one among zeros, right or wrong."""
    of = {"stride": conv.stride, "padding": conv.padding, **changed}

    def line(windows, pixels):
        at = of["stride"] * np.arange(windows)[:, None] - of["padding"] + late + apart * np.arange(conv.size)
        last = pixels - 1
        at = {"nearest": np.clip(at, 0, last), "wrapped": at % pixels,
              "mirrored": last - abs(last - abs(at))}.get(edge, at)
        return 1.0 * (at[..., None] == np.arange(pixels))
    return np.einsum("guy,jwz->gjuwyz", line(size["g"], size["y"]), line(size["j"], size["z"]))
