"""The pages once more as data, one expression a line: what `check.grammar` makes mistakes in.

A line is `tag name axes = expression`, its tag that of the page; forward and backward are parted by a line of dashes.
A value that the backward makes again is a line of its own.  `sum` and `mean` keep the axes that they run over, named by
the letters of the line.  Tests hold every block against its page.
"""

import re
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..attention.pages import page
from ..cases import find
from ..contract import contract
from ..ops import unbroadcast

SCORES = "1 s1 bhqk = dot('bqhd,bkhd->bhqk', q, k) * scale + bias\n"
GRADIENTS = """1 dq bqhd = dot('bhqk,bkhd->bqhd', ds, k) * scale
1 dk bkhd = dot('bhqk,bqhd->bkhd', ds, q) * scale
1 dbias bias = fold(ds)
"""
STEPS = {                      # of a normaliser: from s1 to a, from da to ds
    "softmax": ("{t} x bhqk = exp({x}) * keep\n{t} {y} bhqk = x * inverse(sum(x, 'k'))\n",
                "{t} d{x} bhqk = {y} * (d{y} - sum({y} * d{y}, 'k'))\n"),
    "rms_head": ("{u} s bhqk = {x} * keep\n{t} {y} bhqk = s * (mean(s * s, 'h') + eps) ** -0.5\n",
                 "{t} rho bhqk = (mean(s * s, 'h') + eps) ** -0.5\n"
                 "{t} ds0 bhqk = rho * (d{y} - {y} * mean({y} * d{y}, 'h'))\n{u} d{x} bhqk = ds0 * keep\n"),
    "none": ("{t} {y} bhqk = {x} * keep\n", "{t} d{x} bhqk = d{y} * keep\n"),
}
USES = {                       # of the code: 1, 2 or 3
    1: """{c} c bhqk = a * dropout
{o} o bqhe = dot('bhqk,bkhe->bqhe', c, phi(v))
-----
{c} cb bhqk = a * dropout
{o} dc bhqk = dot('bqhe,bkhe->bhqk', do, phi(v))
{o} dv bkhe = dot('bhqk,bqhe->bkhe', cb, do) * step(v)
{c} da bhqk = dc * dropout
""",
    2: """{c} c bhqk = a * dropout
{z} z bqke = dot('bhqk,bkhe->bqke', c, v)
{g} g bqke = phi(z)
{o} o bqhe = dot('bhqk,bqke->bqhe', c, g)
-----
{c} cb bhqk = a * dropout
{g} gb bqke = phi(z)
{o} dg bqke = dot('bhqk,bqhe->bqke', cb, do)
{o} dc{o} bhqk = dot('bqhe,bqke->bhqk', do, gb)
{g} dz bqke = dg * step(z)
{z} dc bhqk = dc{o} + dot('bqke,bkhe->bhqk', dz, v)
{z} dv bkhe = dot('bhqk,bqke->bkhe', cb, dz)
{c} da bhqk = dc * dropout
""",
    3: """{c} c bhqk = a * dropout
{z} z bqke = dot('bhqk,bkhe->bqke', c, v)
{g} g bqke = phi(z)
{u} u bqkhf = dot('bqke,hef->bqkhf', g, wv2)
{z2} z2 bqkf = dot('bhqk,bqkhf->bqkf', c, u)
{g2} g2 bqkf = phi(z2)
{o} o bqhe = dot('bhqk,bqkf->bqhf', c, g2)
-----
{c} cb bhqk = a * dropout
{g2} gb bqkf = phi(z2)
{o} dg2 bqkf = dot('bhqk,bqhf->bqkf', cb, do)
{o} dc{o} bhqk = dot('bqhf,bqkf->bhqk', do, gb)
{g2} dz2 bqkf = dg2 * step(z2)
{z2} dc{z2} bhqk = dc{o} + dot('bqkf,bqkhf->bhqk', dz2, u)
{z2} du bqkhf = dot('bhqk,bqkf->bqkhf', cb, dz2)
{u} dwv2 hef = dot('bqke,bqkhf->hef', g, du)
{u} dg bqke = dot('bqkhf,hef->bqke', du, wv2)
{g} dz bqke = dg * step(z)
{z} dc bhqk = dc{z2} + dot('bqke,bkhe->bhqk', dz, v)
{z} dv bkhe = dot('bhqk,bqke->bkhe', cb, dz)
{c} da bhqk = dc * dropout
""",
}
SLIDING = """1 kn bqwhd = dot('qwk,bkhd->bqwhd', at, k){pad_k}
1 s1 bhqw = dot('bqhd,bqwhd->bhqw', q, kn) * scale
2 s2 bhqw = s1 + r
3 s bhqw = s2 + bias
4 x bhqw = exp(s) * keep{there}
4 a bhqw = x * inverse(sum(x, 'w'))
5 c bhqw = a * dropout
6 vn bqwhe = dot('qwk,bkhe->bqwhe', at, v){pad_v}
6 o bqhe = dot('bhqw,bqwhe->bqhe', c, vn)
-----
5 cb bhqw = a * dropout
6 dc bhqw = dot('bqhe,bqwhe->bhqw', do, vn)
6 dvn bqwhe = dot('bhqw,bqhe->bqwhe', cb, do)
6 dv bkhe = dot('bqwhe,qwk->bkhe', dvn, at)
5 da bhqw = dc * dropout
4 ds bhqw = a * (da - sum(a * da, 'w'))
3 dbias bias = fold(ds)
2 doffset_bias hw = total(ds, 'bq')
1 dq bqhd = dot('bhqw,bqwhd->bqhd', ds, kn) * scale
1 dkn bqwhd = dot('bhqw,bqhd->bqwhd', ds, q) * scale
1 dk bkhd = dot('bqwhd,qwk->bkhd', dkn, at)
"""
PADS = """1 dpk bhd = dot('bqwhd,qw->bhd', dkn, before)
1 dpad_k hd = total(dpk, 'b')
6 dpv bhe = dot('bqwhe,qw->bhe', dvn, before)
6 dpad_v he = total(dpv, 'b')
"""
COMPOSITIONAL = """1 s1 bsqk = dot('bqsd,bksd->bsqk', q, k) * scale + bias
2 x bsqk = exp(s1) * keep
2 a bsqk = x * inverse(sum(x, 'k'))
3 c bsqk = a * dropout
4 t bqsre = dot('bsqk,bkre->bqsre', c, v)
{logits}6 y bqsr = exp(l)
6 g bqsr = y * inverse(sum(y, 'r'))
7 o bqse = dot('bqsr,bqsre->bqse', g, t)
-----
3 cb bsqk = a * dropout
7 dg bqsr = dot('bqse,bqsre->bqsr', do, t)
6 dl bqsr = g * (dg - sum(g * dg, 'r'))
{backward}7 dt bqsre = dt5 + dot('bqsr,bqse->bqsre', g, do)
4 dc bsqk = dot('bqsre,bkre->bsqk', dt, v)
4 dv bkre = dot('bsqk,bqsre->bkre', cb, dt)
3 da bsqk = dc * dropout
2 ds bsqk = a * (da - sum(a * da, 'k'))
1 dq bqsd = dot('bsqk,bksd->bqsd', ds, k) * scale
1 dk bksd = dot('bsqk,bqsd->bksd', ds, q) * scale
1 dbias bias = fold(ds)
"""
SCORINGS = {
    "dot": ("5 u bqse = dot('bqsc,ec->bqse', selector, wr) * n_c ** -0.5\n5 l bqsr = dot('bqse,bqsre->bqsr', u, t)\n",
            "5 du bqse = dot('bqsr,bqsre->bqse', dl, t) * n_c ** -0.5\n5 dselector bqsc = dot('bqse,ec->bqsc', du, wr)\n"
            "5 dwr ec = dot('bqse,bqsc->ec', du, selector)\n5 dt5 bqsre = dot('bqsr,bqse->bqsre', dl, u)\n"),
    "linear": ("5 same bqs = dot('bqsc,c->bqs', selector, wc)\n"
               "5 l bqsr = dot('bqsre,e->bqsr', t, wr) + same[..., None] + br\n",
               "5 dsame bqs = total(dl, 'r')\n5 dt5 bqsre = dot('bqsr,e->bqsre', dl, wr)\n"
               "5 dselector bqsc = dot('bqs,c->bqsc', dsame, wc)\n5 dwr e = dot('bqsr,bqsre->e', dl, t)\n"
               "5 dwc c = dot('bqs,bqsc->c', dsame, selector)\n5 dbr 1 = total(dsame, 'bqs')\n"),
    "nonlinear": ("5 z bqsrf = dot('bqsre,ef->bqsrf', t, wr) + (dot('bqsc,cf->bqsf', selector, wc) + br)[..., None, :]\n"
                  "5 l bqsr = dot('bqsrf,f->bqsr', relu(z), w2) + b2\n",
                  "5 dz bqsrf = dot('bqsr,f->bqsrf', dl, w2) * step(z)\n5 dsame bqsf = total(dz, 'r')\n"
                  "5 dselector bqsc = dot('bqsf,cf->bqsc', dsame, wc)\n5 dt5 bqsre = dot('bqsrf,ef->bqsre', dz, wr)\n"
                  "5 dwr ef = dot('bqsre,bqsrf->ef', t, dz)\n5 dwc cf = dot('bqsc,bqsf->cf', selector, dsame)\n"
                  "5 dbr f = total(dsame, 'bqs')\n5 dw2 f = dot('bqsr,bqsrf->f', dl, relu(z))\n5 db2 1 = total(dl, 'bqsr')\n"),
}
OPERATIONS = {
    "ops/layer_norm": """1 n btm = (x - mean(x, 'm')) * (mean((x - mean(x, 'm')) ** 2, 'm') + eps) ** -0.5
2 o btm = n * scale + shift
-----
1 r btm = (mean((x - mean(x, 'm')) ** 2, 'm') + eps) ** -0.5
2 dn btm = do * scale
1 dx btm = r * (dn - mean(dn, 'm') - n * mean(dn * n, 'm'))
2 dscale m = total(do * n, 'bt')
2 dshift m = total(do, 'bt')
""",
    "ops/gelu": """1 u btm = 0.7978845608028654 * (x + 0.044715 * x ** 3)
2 o btm = 0.5 * x * (1 + tanh(u))
-----
1 du btm = 0.7978845608028654 * (1 + 0.134145 * x ** 2)
2 dx btm = do * (0.5 * (1 + tanh(u)) + 0.5 * x * (1 - tanh(u) ** 2) * du)
""",
    "ops/rms_head": """1 rho bhqk = (mean(s * s, 'h') + eps) ** -0.5
2 o bhqk = s * rho
-----
2 ds bhqk = rho * (do - o * mean(o * do, 'h'))
""",
    "ops/softmax of axis -1": """1 x bhqk = exp(s - 1000.0) * keep
2 o bhqk = x * inverse(sum(x, 'k'))
-----
2 ds bhqk = o * (do - sum(o * do, 'k'))
""",
    "ops/relu": "1 o btm = relu(x)\n-----\n1 dx btm = do * step(x)\n",
    "ops/silu": "1 p btm = inverse(1 + exp(-x))\n2 o btm = x * p\n-----\n2 dx btm = do * p * (1 + x * (1 - p))\n",
    "ops/linear": """1 o bthd = dot('btm,mhd->bthd', x, w) + b
-----
1 dx btm = dot('bthd,mhd->btm', do, w)
1 dw mhd = dot('btm,bthd->mhd', x, do)
1 db hd = total(do, 'bt')
""",
    "ops/embedding": "1 o btm = dot('btv,vm->btm', hit, table)\n-----\n1 dtable vm = dot('btv,btm->vm', hit, do)\n",
    "losses/cross_entropy": """1 p btv = exp(logits) * inverse(sum(exp(logits), 'v'))
2 loss bt = log(sum(exp(logits), 'v'))[..., 0] - dot('btv,btv->bt', logits, hit)
3 share bt = weight * inverse(total(weight, 'bt'))
4 o 1 = total(loss * share, 'bt')
-----
1 dlogits btv = (p - hit) * share[..., None] * do
""",
}


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

    def forward(self):
        return sum(line.part == 0 for line in self.lines)


def formulas(of: str) -> list[Formulas]:
    """The formulas of a subject's name, where there are any: of the page, and of how fused kernels do the same."""
    page = _formulas(of, False)
    return [] if page is None else [page, *([fused] if (fused := _formulas(of, True)) != page else [])]


@cache
def _formulas(of: str, fused) -> Formulas | None:
    inputs, words, code = {"q": "bqhd", "k": "bkhd", "v": "bkhe", "do": "bqhe"}, (of, f"{of}_backward"), "bhqk"
    if of in OPERATIONS:
        axes, name = find(of).axes, of.split("/")[1].split()[0]
        text, inputs, words = OPERATIONS[of], {**axes, "do": axes["output"], "hit": "btv"}, (name, f"{name}_backward")
    elif "/" in of or of == "linear_state":
        return None
    elif of.startswith("sliding"):
        pad = of.endswith("pad")
        there = {"there": "" if pad else " * reach(at)", "pad_k": " + dot('qw,hd->qwhd', before, pad_k)[None]" if pad else "",
                 "pad_v": " + dot('qw,he->qwhe', before, pad_v)[None]" if pad else ""}
        text, code = SLIDING.format(**there) + PADS * pad, "bhqw"
        inputs |= {"at": "qwk", "before": "qw", "r": "bhqw"} | ({"pad_k": "hd", "pad_v": "he"} if pad else {})
    elif of.startswith("compositional"):
        scoring, code = page(of).forward.keywords["scoring"], "bsqk"
        text = COMPOSITIONAL.format(logits=SCORINGS[scoring][0], backward=SCORINGS[scoring][1])
        inputs = {n: x.replace("h", "s") for n, x in inputs.items()} | page(of).letters
        inputs = {n: x.replace("h", "s") for n, x in inputs.items()} | {"do": "bqse"}
    else:
        text = _multi_head(page(of).knobs, of)
        inputs["wv2"] = "hef"
    if fused and of in ("softmax", "sliding_dilated", "sliding_dilated_pad"):       # the same sum, from the output
        text = re.sub(r"sum\(a \* da, '.'\)", "delta", text).replace(
            "-----\n", f"-----\n{2 if of == 'softmax' else 4} delta {code} = dot('bqhe,bqhe->bhq', do, o)[..., None]\n")
    lines, part = [], 0
    for row in text.splitlines():
        if row.startswith("-----"):
            part = 1
            continue
        head, _, body = row.partition(" = ")
        lines.append(Line(part, *head.split(), body))
    letters = {line.name: line.letters for line in lines} | inputs | dict.fromkeys(("bias", "keep", "dropout"), code)
    return Formulas(tuple(lines), letters, words, code)


def _multi_head(knobs, of) -> str:
    """softmax, linear, HYLA and every row of table A1."""
    steps = {"softmax_rms_head": ("softmax", "rms_head"), "rms_head_softmax": ("rms_head", "softmax")}.get(
        knobs.normaliser, (knobs.normaliser,))
    names, first = ["s1", *["b1"] * (len(steps) - 1), "a"], 3 if of == "hyla" else 2
    fill = [{"t": first, "u": 2, "x": x, "y": y} for x, y in pairwise(names)]
    ahead = SCORES + "".join(STEPS[s][0].format(**f) for s, f in zip(steps, fill, strict=True))
    back = "".join(STEPS[s][1].format(**f) for s, f in list(zip(steps, fill, strict=True))[::-1])
    uses = USES[knobs.code_uses].replace("phi(", "relu(" if knobs.phi == "relu" else "(")
    if knobs.phi != "relu":
        uses = re.sub(r" \* step\(\w+\)", "", uses)
    tags = {"c": first + 1, "z": first + 2, "g": first + 3, "u": 6, "z2": 7, "g2": 8,
            "o": {"hyla": 7, "softmax": 4, "linear": 4}.get(of, 9)}
    ahead_uses, back_uses = uses.format(**tags).split("-----\n")
    return f"{ahead}{ahead_uses}-----\n{back_uses}{back.replace('ds1 bhqk', 'ds bhqk')}{GRADIENTS}"


# ------------------------------------------------------------------------------------------------------- running them


def relu(x):
    return x * (x > 0)


def inverse(x):
    return 1 / np.where(x == 0, 1, x)


KNOWN = {"dot": contract, "exp": np.exp, "tanh": np.tanh, "log": np.log, "relu": relu, "step": lambda x: 1.0 * (x > 0),
         "inverse": inverse, "maximum": np.maximum, "reach": lambda at: at.sum(-1), "abs": np.abs}


def start(of: Formulas, inputs) -> dict:
    """What the first line sees: float64 arrays, sizes as n_h, options that are missing as what changes nothing."""
    env = {**KNOWN, "eps": 1e-6, **{n: np.asarray(x, float) for n, x in inputs.items()}}
    size = {"1": 1}
    for name, axes in of.letters.items():
        if name in inputs and name not in ("bias", "keep", "dropout"):
            size |= dict(zip(axes, env[name].shape, strict=False))
    if "q" in inputs and "do" in inputs:
        form = np.shape(inputs.get("bias", 0.0))
        env |= {"scale": inputs["q"].shape[-1] ** -0.5, "fold": lambda ds: unbroadcast(ds, form)}
        if of.code == "bhqw":
            width = size["w"] = inputs["offset_bias"].shape[1]
            n = np.arange(size["q"])[:, None] + size["k"] - size["q"] - 2 * np.arange(width)
            env |= {"at": 1.0 * (n[..., None] == np.arange(size["k"])), "before": 1.0 * (n < 0),
                    "r": np.broadcast_to(env["offset_bias"][None, :, None], [size[x] for x in of.code])}
    if "index" in inputs or "target" in inputs:
        rows = inputs["table"].shape[0] if "table" in inputs else inputs["logits"].shape[-1]
        env["hit"] = 1.0 * (np.asarray(inputs.get("index", inputs.get("target")))[..., None] == np.arange(rows))
    if all(x in size for x in of.code):
        for name, neutral in ("bias", 0.0), ("keep", 1.0), ("dropout", 1.0):
            env[name] = np.broadcast_to(env.get(name, neutral), [size[x] for x in of.code])
    elif "s" in env:
        env["keep"] = np.broadcast_to(env.get("keep", 1.0), env["s"].shape)
    return env | {f"n_{x}": n for x, n in size.items() if x != "1"}
