"""Reference vectors for other languages: small float64 cases with inputs, output and every gradient.

`write(directory)` makes one `.npz` (a zip of `.npy` arrays) for each case and `manifest.json`, which says of each file
what is computed, with which settings (epsilon, `read`, what a layer is made of), what is special about it, and which
common mistakes it reveals.  Output arrays are called `output`, upstream gradients `doutput`, gradients `d_` and the
input's name.  `parameters` is one flat array; the manifest has its layout.  Inputs are rounded to bfloat16, so they are
exact in every precision, but for numbers below 2^-17 in float16, and `allowed_float32_output` and the like say how far
each entry of a right kernel in that precision may be off (`rounding`): `docs/vectors.c` uses them.
The same version on the same kind of machine writes the same bits.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..attention.pages import PAGES
from ..files import whole_file
from ..params import layout
from . import rounding
from .cases import find
from .cases.case import normal, shape
from .plain_formulas import rounded
from .runs_of_cases import passes

__all__ = ["allowed", "arrays", "results", "rows", "write"]

REVEALED = Path(__file__).with_name("revealed.json")          # made by `python -m tests.planted.revealed`
SEED, PAIRS, PRECISIONS = 2024, 2, ("float64", "float32", "bfloat16", "float16")
SIZE = {"b": 2, "q": 3, "k": 5, "h": 4, "d": 6, "e": 7, "r": 8, "c": 9, "f": 10, "w": 2}
EVERYWHERE = "bias, keep and dropout together; the bias is broadcast over the batch, and query 1 keeps nothing"
SPECIAL = {                    # of WHOLE: name -> (axes of bias, keep and dropout, what is special)
    "plain": ((None, None, None), "neither bias nor keep nor dropout"),
    "bias": (("bhqk", None, None), "a bias for every pair, whose gradient is that of the scores"),
    "bias for heads": (("h1k", None, None), "a bias broadcast over batch and queries: its gradient is a sum"),
    "padding": ((None, "b11k", None), "keys that are kept or not for a whole sequence"),
    "nothing kept": ((None, "qk", None), "query 1 keeps nothing: its output and all gradients from it are zero"),
    "dropout": ((None, None, "bhqk"), "dropout, which every use of the code sees"),
}
WHOLE = "softmax", "linear", "hyla", "compositional", "sliding_dilated"
LAYERS = {                     # rows of `refattn.verification.cases` -> what is special
    "layers/MultiHead softmax": "projections with biases around softmax attention",
    "layers/MultiHead hyla": "projections with biases around HYLA",
    "layers/MultiHead hyla across, read": "queries from one sequence, keys and values from another, some queries only",
    "layers/MultiHead softmax rotary": "rotary positions between the projections and the attention",
    "layers/LayerNorm": "epsilon inside the root, variance divided by m",
    "layers/FeedForward gelu": "GELU in the tanh form",
    "layers/SwiGLU": "a gated unit without biases",
    "layers/Block hyla, T5 in both directions": "a pre-LN block whose T5 table tells later keys from earlier ones",
    "models/Transformer hyla, read": "two blocks, read at the last position only",
    "models/Transformer softmax, token ids, tied, causal": "token ids, a tied read-out and a causal mask",
    "losses/cross_entropy": "a weighted mean over targets",
    "layers/Compositional dot across": "queries and selector from one sequence, keys and values from another",
    "models/RetrievalNetwork dot": "the one-layer network of the contextual retrieval task, with its own value",
    "models/Universal dot, pre, image table": "one pre-LN block applied twice; its gradients add up",
}


def attention_inputs(rng, row, forms) -> dict:
    """q, k, v and extras; bias, keep and dropout in the given forms.  Query 1 keeps nothing where keep has queries."""
    inputs = {name: normal(rng, row.axes[name], SIZE) for name in ("q", "k", "v", *row.extras)}
    size = SIZE | ({"k": SIZE["w"]} if "w" in row.axes["bias"] else {})                 # pairs of query and offset
    bias, keep, dropout = (None if form is None else rng.random(shape(form, size)) for form in forms)
    if keep is not None:
        keep = keep < 0.7
        if "q" in forms[1]:
            keep[..., 1, :] = False
    return {**inputs, "bias": None if bias is None else 4 * bias - 2, "keep": keep,
            "dropout": None if dropout is None else (dropout < 0.75) / 0.75}


def rows():
    """(file name, case, inputs, what is special), in the order of the manifest."""
    for name, row in PAGES.items():
        case = find(f"attention/{name}")
        special = SPECIAL if name in WHOLE else {"plain": SPECIAL["plain"]}
        for title, (forms, words) in {**special, "everything": (("hqk", "bhqk", "bhqk"), EVERYWHERE)}.items():
            rng = np.random.default_rng((SEED, sum(map(ord, name + title))))
            yield f"{name}-{title}", case, attention_inputs(rng, row, forms), words
    for name, words in LAYERS.items():
        case = find(name)
        yield name.split("/")[1], case, case.make(np.random.default_rng((SEED, sum(map(ord, name))))), words


def results(case, inputs, rng=None, doutput=None) -> dict:
    """Output, upstream gradient and every gradient, by their names in the file."""
    found = passes(case, {name: x if x is None else x.copy() for name, x in inputs.items()}, rng, doutput)
    gradients = {f"d_{n}": g for n, g in (found.gradients or {}).items()}
    return {"output": np.asarray(found.y[0]), "doutput": np.asarray(found.dy), **gradients}


def allowed(case, inputs, doutput) -> dict:
    """How far each entry of the results may be off, by precision and name."""
    def run(xp):
        found = passes(case.on(xp), inputs, dy=doutput)
        return {"output": found.y[0], **{f"d_{n}": g for n, g in found.gradients.items()}}

    return {f"allowed_{dtype}_{n}": bar.astype("float32") for dtype in PRECISIONS
            for n, bar in rounding.bars(run, dtype, pairs=PAIRS)[1].items()}


def arrays():
    """(file name, case, inputs, what is special, results), with inputs and upstream gradient rounded to bfloat16."""
    for number, (name, case, inputs, words) in enumerate(rows()):
        inputs = {n: x if x is None or x.dtype.kind != "f" else rounded(x, "bfloat16") for n, x in inputs.items()}
        drawn = np.random.default_rng((SEED, number)).standard_normal(case.forward(inputs)[0].shape)
        file = f"{name.replace(', ', '-').replace(' ', '_')}.npz"
        yield file, case, inputs, words, results(case, inputs, doutput=rounded(drawn, "bfloat16"))


def write(directory, bar=iter) -> list[Path]:
    """Write all files, the manifest last; returns their paths.  An existing file of the same name is replaced.

    `bar` is what the files pass through, such as `tqdm.tqdm`.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    mistakes, revealed = (json.loads(REVEALED.read_text(encoding="utf-8"))[x] for x in ("mistakes", "revealed"))
    entries: list[dict] = []
    for file, case, inputs, words, found in bar(arrays()):
        given = {n: np.asarray(x) for n, x in inputs.items() if x is not None}
        stored: dict[str, Any] = {**given, **found, **allowed(case, inputs, found["doutput"])}
        with whole_file(directory / file, "wb") as opened:
            np.savez(opened, **stored)
        row = PAGES.get(case.name.removeprefix("attention/"))
        entries.append({
            "file": file, "case": case.name, "what": words, "source": case.source, "page": f"refattn/{case.file}",
            "equation": row.formula if row else None,
            "axes": {n: x for n, x in case.axes.items() if n in {*given, "output"}},
            "parameters": layout(case.layer.parameters()) if case.layer else None, "settings": case.settings,
            "reveals": [mistakes[i] for i in revealed.get(file, ())],
        })
    manifest = directory / "manifest.json"
    known = {"library": f"refattn {__version__}", "seed": SEED, "dtype": "float64", "inputs": "rounded to bfloat16",
             "allowed": {dtype: rounding.Noise(dtype, pairs=PAIRS).words for dtype in PRECISIONS}, "cases": entries,
             "rms_head": "s_h / sqrt(mean over heads of s_h^2 + 1e-6), where s is 0 for pairs that keep takes away"}
    manifest.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return [*(directory / entry["file"] for entry in entries), manifest]
