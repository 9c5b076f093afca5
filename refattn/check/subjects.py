"""What a kernel may be held against: every page, causal linear attention with a state, every case of the checks."""

import reprlib
from collections.abc import Callable
from functools import partial
from math import prod
from typing import NamedTuple

import numpy as np

from ..attention import Variant
from ..attention.linear_state import linear_state, linear_state_backward
from ..attention.pages import PAGES, page
from ..attention.tiled import tiled
from ..checks import check_integer
from ..params import layout
from ..verification import plain_formulas, runs_of_cases
from ..verification.cases import CASES, find
from ..verification.cases.case import normal, shape
from ..xp import physical_memory
from .formulas import OPTIONS

SIZES = {"b": 3, "q": 6, "k": 7, "h": 5, "d": 11, "e": 8, "r": 4, "c": 13, "f": 10, "w": 3, "1": 1}
TILES = {"b": 2, "q": 129, "k": 191, "h": 3, "d": 16, "e": 32, "r": 2, "c": 16, "f": 32, "w": 3, "1": 1}
STATE = Variant("linear_state", linear_state, linear_state_backward, "eq. 1-3", "", "linear_state.py",
                extras={"state": "bhde"}, letters={"k": "bqhd", "v": "bqhe"})


class Subject(NamedTuple):
    """A function and its gradients, by the names of arrays."""
    name: str
    letters: dict              # input or result -> axes
    arrays: tuple              # inputs that are handed over by position
    draw: Callable             # (forms of the options, size of each letter, rng) -> inputs, `do` among them
    run: Callable              # (inputs, array module, lse wanted) -> {"o": ..., "dq": ..., ...}
    names: Callable            # inputs -> what a kernel returns, in order
    optional: frozenset = frozenset()       # inputs of a row that its draws leave out now and then
    settings: str = ""         # of a row, beside its inputs

    def axes(self, name) -> str:
        """Those of an input or a result; a gradient has its input's."""
        return self.letters.get(name) or self.letters.get(name.removeprefix("d"), "")

    @property
    def maskable(self) -> bool:
        """Whether it has pairs of query and key, of which a causal mask can leave some out."""
        return bool(self.arrays) and self.letters.get("keep") == "bhqk"


def plain(name: str) -> str:
    """What is said of a name where nobody looks at the folder, capitals and underscores."""
    return name.rpartition("/")[2].replace("_", "").lower()


def known_pages() -> dict:
    """{name: row} of every page that a kernel may be held against."""
    return PAGES | {STATE.name: STATE}


def subject(name) -> Subject:
    """The subject of a name or of Knobs.  Raises ValueError listing the names."""
    if isinstance(name, str) and ("/" in name or name in {case.name for case in CASES}):
        return _of_case(find(name))
    pages = known_pages()
    alike = [case.name for case in CASES if isinstance(name, str) and plain(case.name) == plain(name)]
    if alike and name not in pages:
        raise ValueError(f"variant {name!r} is unknown; allowed: {', '.join(alike)}, or {', '.join(pages)}")
    try:
        row = page(name, pages)
    except ValueError as error:
        raise ValueError(f"{error}, or a row such as layers/LayerNorm, which `refattn list` prints") from None
    letters = {**row.axes, "o": "bqhe", "do": "bqhe", "lse": "bhq", "end": "bhde", "dend": "bhde"}
    for option in OPTIONS if row is STATE else ():
        del letters[option]
    arrays = ("q", "k", "v", *row.extras)
    return Subject(row.name, letters, arrays, partial(_draw, row, letters), partial(_run, row), partial(_names, row))


def relatives(of: Subject):
    """Other pages, or rows, of the same arrays, one by one."""
    if of.arrays:
        return (x for name in PAGES if name != of.name and (x := subject(name)).arrays == of.arrays)
    alike = [case.name for case in CASES if case.axes == find(of.name).axes and case.name != of.name]
    return (x for name in alike if (x := subject(name)).letters == of.letters)


def _draw(row, letters, forms, size, rng) -> dict:
    """One query (number 1) is a hundred times smaller, since there an epsilon shows; query 2 keeps nothing."""
    upstream = ("do", "dend") if row is STATE else ("do",)
    inputs = {x: normal(rng, letters[x], size) for x in ("q", "k", "v", *row.extras, *upstream)}
    for name, form in forms.items():
        allowed = letters[name]
        if not isinstance(form, str) or not 0 < len(form) < 5 or any(
                x not in ("1", y) for x, y in zip(form[::-1], allowed[::-1], strict=False)):
            raise ValueError(f"{name} is {reprlib.repr(form)}; allowed: the last axes of {allowed!r}, or 1 for a "
                             f"stretched one: 'h1{allowed[-1]}'")
        x = rng.random(shape(form, size))
        inputs[name] = {"bias": normal(rng, form, size), "keep": x < 0.7, "dropout": (x < 0.75) / 0.75}[name]
        if name != "dropout" and "q" in form and size["q"] > 2:
            inputs[name][..., 2 if name == "keep" else 1, :] *= False if name == "keep" else 0.01
    inputs["q"][:, 1:2] *= 0.01
    return inputs


def _names(row, inputs) -> list[str]:
    outputs = ["o", "end"] if row is STATE else ["o"]
    return [*outputs, "dq", "dk", "dv", *(["dbias"] if "bias" in inputs else []), *(f"d{x}" for x in row.extras)]


def _run(row, inputs, xp=np, lse=False) -> dict:
    """o and, where do is given, every gradient; softmax's log-sum-exp where it is asked for."""
    given = {name: xp.asarray(x) for name, x in inputs.items()}
    upstream = [given.pop(name) for name in ("do", "dend") if name in given]
    arrays = [given.pop(x) for x in ("q", "k", "v", *row.extras)]
    *outputs, saved = row.forward(*arrays, **given)
    gradients = [g for g in row.backward(saved, *upstream) if g is not None] if upstream else []
    found = dict(zip(_names(row, inputs), (*outputs, *gradients), strict=False))
    if lse and row.name == "softmax":
        saved = tiled(*arrays, page="softmax", **given)[1]
        found["lse"] = (saved.top + xp.log(saved.total))[..., 0]
    return found


def _of_case(case) -> Subject:
    """A row of the table of functions; a layer's parameters are separate inputs by their names."""
    listed = layout(case.layer.parameters()) if case.layer else []
    optional = dict.fromkeys(case.make(np.random.default_rng(0)).keys() - {"parameters"})

    def cut(flat):
        return dict(zip((name for name, *_ in listed), runs_of_cases.arrays(case.views(flat)), strict=True))

    def draw(forms, size, rng):
        inputs = {n: x for n, x in case.make(rng).items() if x is not None}
        inputs |= cut(inputs.pop("parameters")) if listed else {}
        x = inputs.get("s" if case.name.startswith(("ops/rms_head", "ops/softmax")) else "x")
        if x is not None and x.dtype.kind == "f":
            x -= np.rint(x.mean())                              # not beside 30 or 1,000, where right kernels differ
            x[1:2] *= 0.01                                      # one sequence, since there an epsilon shows
        return inputs | ({"do": rng.standard_normal(np.shape(run(inputs)["o"]))} if case.backward else {})

    def run(inputs, xp=np, lse=False):
        given = {n: xp.asarray(x) for n, x in inputs.items()}
        do = given.pop("do", None)
        if listed:
            given["parameters"] = xp.concatenate([given.pop(name).reshape(-1) for name, *_ in listed])
        y, saved = case.forward(optional | given)
        if isinstance(y, tuple):
            raise ValueError(f"{case.name} has several outputs; allowed: rows with one")
        found = {} if do is None else case.backward(saved, do)
        found |= cut(found.pop("parameters")) if "parameters" in found and listed else {}
        return {"o": y, **{f"d{n}": g for n, g in found.items()}}

    def names(inputs):
        floats = [n for n, x in inputs.items() if x.dtype.kind == "f" and n not in ("do", *case.constants)]
        return ["o", *(f"d{n}" for n in floats)] if "do" in inputs else ["o"]

    letters = {**case.axes, **{name: axes for name, axes, *_ in listed}, "o": case.axes.get("output", "")}
    left_out = {n for s in range(8) for n, x in case.make(np.random.default_rng(s)).items() if x is None}
    return Subject(case.name, letters, (), draw, run, names, frozenset(left_out), case.settings)


def sized(sizes) -> dict:
    """Letter -> size, from None, "tiles" or what is changed.  Raises ValueError."""
    if sizes == "tiles":
        return TILES
    if sizes is not None and not isinstance(sizes, dict):
        raise ValueError(f"sizes is {sizes!r}; allowed: 'tiles', or a mapping of axes such as {{'q': 16}}")
    for axis, n in (sizes or {}).items():
        if axis not in (allowed := [x for x in SIZES if x != "1"]):
            raise ValueError(f"sizes has the unknown axis {axis!r}; allowed: {', '.join(allowed)}")
        check_integer(f"axis {axis} of sizes", n)
    return SIZES | (sizes or {})


def drawn(of: Subject, dtype, forms, sizes, seed) -> dict:
    """Inputs by name, float64 with values of `dtype`."""
    size = sized(sizes)
    if size is TILES and "w" in of.letters.get("keep", ""):      # where some windows begin before the first key
        size = TILES | {"k": TILES["q"] + 1}
    scores = [size[x] for x in of.letters.get("keep", "")] if of.arrays else []
    need, have = 16.0 * prod(map(float, scores)), physical_memory()             # their weights, too
    if need > have:
        raise ValueError(f"sizes make scores of shape {tuple(scores)}, which take at least {need / 2**30:,.0f} GiB, "
                         f"but there are the {have / 2**30:,.0f} GiB of this machine; allowed: smaller ones")
    rng = np.random.default_rng(check_integer("seed", seed, 0))
    chosen = {n: x for n, x in forms.items() if x is not None}
    if off := [n for n in chosen if not of.arrays or n not in of.letters]:
        raise ValueError(f"{', '.join(off)} cannot be chosen for {of.name}; allowed: inputs as its row draws")
    inputs = of.draw(chosen, size, rng)
    return {n: plain_formulas.rounded(x, dtype) if x.dtype.kind == "f" else x for n, x in inputs.items()}


def masked(inputs, first=False) -> dict:
    """Inputs whose keep leaves out later keys too, counted from the last one or, if `first`, from the first."""
    queries, keys = (inputs[n].shape[1] for n in "qk")
    return inputs | {"keep": np.tri(queries, keys, (keys - queries) * (not first), bool) & inputs.get("keep", True)}
