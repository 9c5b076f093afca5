"""Parameters: one list per layer, one flat array per model, views by attribute.

A layer's `parameters()` names every array once; storage, initialisation, decay, error texts and checkpoints are read
from that list.  Weights, gradients and both moments of Adam share one layout, so that an update is a dozen operations
on flat arrays however many parameters there are.
"""

import json
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import partial
from itertools import zip_longest
from math import prod, sqrt
from typing import NamedTuple

import numpy as np

from .checks import check_choice
from .files import whole_file
from .xp import array_module, check_alike, fitted, to_host

__all__ = ["Init", "Parameter", "Views", "allocate", "count", "decay_mask", "entries", "initialise", "layout", "load",
           "save", "view"]

FORMAT = "refattn-1"


class Parameter(NamedTuple):
    axes: str                  # one letter per axis, e.g. "mhd"
    shape: tuple[int, ...]
    fan_in: int                # inputs of each output, n; what SCHEMES draw is mostly scaled by 1/sqrt(n)
    role: str                  # weight | bias | scale and shift (of LayerNorm) | table | vector (any other)
    residuals: int = 1         # of an output map: how many outputs add up in the stream that it writes to
    fan_out: int | None = None # None: all entries over fan_in
    span: tuple[float, float] | None = None         # least and most that an update of train.fit leaves


def check_views(p, name: str = "p") -> None:
    """Nothing, or a TypeError where the flat array stands in place of its named views."""
    if not isinstance(p, Views) and hasattr(p, "dtype"):        # views would say what they lack
        raise TypeError(f"{name} is an array of shape {p.shape}; allowed: the named views that params.allocate gives")


class Views:
    """Named arrays by attribute, as in `p.blocks[0].norm1.scale`, or by a name that is computed, `p[name]`.

    `g.wq += x` and `g[name] += x` work, rebinding raises.
    """

    def __init__(self, **entries):
        self.__dict__.update(entries)

    def __setattr__(self, name, value):
        if name not in self.__dict__ or value is not self.__dict__[name]:
            raise AttributeError(f"{name} cannot be bound to another array; allowed: p.{name}[...] = x")

    def __getattr__(self, name):                            # of what is not there
        raise AttributeError(f"there is no {name!r}; allowed: {', '.join(self.__dict__)}")

    def __getitem__(self, name):
        return getattr(self, name)

    def __setitem__(self, name, value):
        setattr(self, name, value)

    def __iter__(self):
        return iter(self.__dict__.items())

    def __repr__(self):
        return f"Views({', '.join(self.__dict__)})"


def entries(parameters, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
    """Dotted name and Parameter of every array, in layout order: ('blocks.0.attention.wq', Parameter(...)), ..."""
    if hasattr(parameters, "parameters"):
        raise TypeError(f"parameters is a {type(parameters).__name__}; allowed: what its parameters() returns")
    items = parameters.items() if isinstance(parameters, dict) else enumerate(parameters)
    for name, value in items:
        if isinstance(value, Parameter):
            yield f"{prefix}{name}", value
        else:
            yield from entries(value, f"{prefix}{name}.")


def count(parameters) -> int:
    """Number of scalars in all arrays."""
    return sum(prod(p.shape) for _, p in entries(parameters))


def view(flat, parameters) -> Views:
    """Views into an existing flat array.  Raises ValueError when its size does not fit the list."""
    position, flat = 0, fitted(flat, "the flat array", (count(parameters),))

    def build(node):
        nonlocal position
        if isinstance(node, Parameter):
            start, position = position, position + prod(node.shape)
            return flat[start:position].reshape(node.shape)
        if isinstance(node, dict):
            return Views(**{name: build(child) for name, child in node.items()})
        return tuple(build(child) for child in node)

    return build(parameters)


def allocate(parameters, dtype=np.float32, xp=np):
    """(flat, views): one flat zero array in the module `xp`, and its named views.

    Raises ValueError for a dtype that is not floating point, or is too short for Adam's moments.
    """
    if np.dtype(dtype).kind not in "fc" or np.dtype(dtype).itemsize < 4:
        raise ValueError(f"dtype is {np.dtype(dtype)}; allowed: floating point of at least 32 bits")
    flat = xp.zeros(count(parameters), dtype=dtype)
    return flat, view(flat, parameters)


def _normal(rng, p: Parameter):
    return rng.standard_normal(p.shape) / sqrt(p.fan_in)


def _truncated(rng, shape):
    x = rng.standard_normal(shape)
    while (far := np.abs(x) > 2).any():
        x[far] = rng.standard_normal(far.sum())
    return x


def _small(rng, p: Parameter):
    return 0.02 * rng.standard_normal(p.shape)


def _uniform(rng, p: Parameter):
    return rng.uniform(-1, 1, p.shape) / sqrt(p.fan_in)


SCHEMES: dict[str, dict] = {                # what draws an array of each role, or the number that it begins as
    # H: Flax defaults of the released code.  Truncated at two sigma, where the deviation is 0.88, then rescaled to
    # 1/sqrt(fan_in).  Tables (T5 buckets, token embeddings) are untruncated normal; fan_in is the number of buckets, or
    # the width.
    "lecun_normal": {"weight": lambda rng, p: _truncated(rng, p.shape) / (0.87962566103423978 * sqrt(p.fan_in)),
                     "bias": 0.0, "scale": 1.0, "shift": 0.0, "table": _normal, "vector": _normal},
    # C: PyTorch defaults, weights and biases of linear maps uniform in +-1/sqrt(fan_in); embeddings standard normal
    "pytorch": {"weight": _uniform, "bias": _uniform, "scale": 1.0, "shift": 0.0,
                "table": lambda rng, p: rng.standard_normal(p.shape), "vector": _uniform},
    # R: Haiku defaults of the released code, truncated at two sigma and not rescaled (final deviation 0.88 sigma)
    "haiku": {"weight": lambda rng, p: _truncated(rng, p.shape) / sqrt(p.fan_in), "bias": 0.0, "scale": 1.0,
              "shift": 0.0, "table": lambda rng, p: 0.02 * _truncated(rng, p.shape), "vector": _small},
    # GPT-2, which R's text refers to: deviation 0.02; maps into the residual stream over the root of their number
    "gpt2": {"weight": lambda rng, p: _small(rng, p) / sqrt(p.residuals), "bias": 0.0, "scale": 1.0,
             "shift": 0.0, "table": _small, "vector": _small},
    # every array random, biases and scales too: for tests and reference vectors, never for training
    "random": {"weight": _normal, "bias": _normal, "scale": lambda rng, p: 1 + 0.3 * _normal(rng, p), "shift": _normal,
               "table": _normal, "vector": _normal},
}


class Init(NamedTuple):
    """How one array begins: numbers of deviation 1 (truncated: 0.88), times gain / sqrt(fan), fan as `fan` says."""
    distribution: str          # normal | truncated (at two deviations, not rescaled) | uniform
    fan: str = "in"            # in | out | mean (of both) | none (1)
    gain: float = 1.0

    def draw(self, rng, p: Parameter):
        """Values for a parameter.  Raises ValueError for an unknown distribution or fan."""
        out = p.fan_out or max(1, prod(p.shape) // p.fan_in)
        fans = {"in": p.fan_in, "out": out, "mean": (p.fan_in + out) / 2, "none": 1}
        draws = {"normal": rng.standard_normal, "truncated": partial(_truncated, rng),
                 "uniform": lambda shape: sqrt(3) * rng.uniform(-1, 1, shape)}
        for name, allowed in ("distribution", draws), ("fan", fans):
            check_choice(name, getattr(self, name), allowed)
        return draws[self.distribution](p.shape) * (self.gain / sqrt(fans[self.fan]))


XAVIER_NORMAL, XAVIER_UNIFORM = Init("normal", "mean"), Init("uniform", "mean")        # Glorot & Bengio 2010
KAIMING_NORMAL = Init("normal", "in", sqrt(2))                                          # He et al. 2015


def initialise(flat, parameters, rng: np.random.Generator, scheme: str = "lecun_normal", places=None) -> None:
    """Write initial values, drawn on the host in float64 and in layout order, into `flat`: equal on CPU and GPU.

    `places` maps patterns of dotted names, as "encoder.*.w", to an Init that holds there instead of the scheme, or to a
    number; the first pattern that fits counts.  Schemes: lecun_normal (H), pytorch (C), haiku (R), gpt2, and for tests
    random; sources are beside each of SCHEMES.  Raises ValueError for an unknown scheme and for a pattern that fits no
    name.
    """
    check_choice("scheme", scheme, SCHEMES)
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng is a {type(rng).__name__}; allowed: a numpy.random.Generator")
    names, places, values = [name for name, _ in entries(parameters)], places or {}, [np.zeros(0)]
    for pattern in places:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"pattern {pattern!r} fits no parameter; allowed: patterns of: {', '.join(names)}")
    for name, p in entries(parameters):
        check_choice(f"role of {name}", p.role, SCHEMES[scheme])
        found = next((places[pattern] for pattern in places if fnmatchcase(name, pattern)), SCHEMES[scheme][p.role])
        draw = found.draw if isinstance(found, Init) else found                 # or a number
        value = draw(rng, p) if callable(draw) else np.full(p.shape, float(draw))
        values.append(value.ravel())
    check_alike(flat=flat)
    host = np.concatenate(values).astype(flat.dtype)
    fitted(flat, "flat", host.shape)
    flat[...] = array_module(flat).asarray(host)


DECAY = {
    "all": lambda p: True,                                  # C, code of the language model
    "released": lambda p: len(p.shape) != 1,                # H, code: decays query/key/value biases (h, d) and tables
    "text": lambda p: p.role in ("weight", "table"),        # H, text: biases and LayerNorm parameters escape
    "none": lambda p: False,
}


def decay_mask(parameters, rule: str, dtype=np.float32, xp=np):
    """A flat 0/1 array: 1 where weight decay acts.  Raises ValueError for an unknown rule.

    rule : all (C's language model), released (H's code: arrays of one axis escape), text (H: biases, LayerNorm's
           parameters and vectors escape), none
    """
    check_choice("rule", rule, DECAY)
    masks = [np.full(prod(p.shape), DECAY[rule](p), dtype=dtype) for _, p in entries(parameters)]
    return xp.asarray(np.concatenate([np.zeros(0, dtype=dtype), *masks]))


def bounds(parameters, xp=np):
    """(least, most) of each entry as flat arrays, for `clip` after an update; None where no array has a `span`."""
    spans = (np.full((prod(p.shape), 2), p.span or (-np.inf, np.inf), np.float32) for _, p in entries(parameters))
    whole = np.concatenate([np.zeros((0, 2), np.float32), *spans])
    return None if np.isinf(whole).all() else tuple(xp.asarray(np.ascontiguousarray(x)) for x in whole.T)


def layout(parameters) -> list[list]:
    """The list as JSON: [[name, axes, shape, role], ...], in layout order."""
    return [[name, p.axes, list(p.shape), p.role] for name, p in entries(parameters)]


def save(path, parameters, arrays: dict, **meta) -> None:
    """Write flat arrays, their layout and JSON-able `meta` to an `.npz` without pickles.  See `whole_file`.

    The arrays are written as they are: nothing but the layout says which of them have it.  Raises ValueError, before
    anything is written, for what is no array of numbers, TypeError or ValueError for meta that JSON cannot hold.
    """
    arrays = {name: np.asarray(to_host(x)) for name, x in arrays.items()}
    for name, x in arrays.items():
        if name in ("header", "file", "allow_pickle") or x.dtype.kind not in "biufc":
            raise ValueError(f"array {name!r} has dtype {x.dtype}; allowed: numbers, not as header, file, allow_pickle")
    header = json.dumps({"format": FORMAT, "layout": layout(parameters), "meta": meta})
    with whole_file(path, "wb") as file:
        np.savez(file, header=np.array(header), **arrays)


def load(path, parameters=None) -> tuple[dict, dict]:
    """(arrays, meta) of a file written by `save`, as host arrays.

    Raises ValueError, one line, when the file is truncated, foreign, or has another layout than that of the parameters
    given; the sizes of the arrays are not compared.  FileNotFoundError where there is no file.
    """
    try:
        with open(path, "rb") as raw:                       # closed even where it is cut off
            if not zipfile.is_zipfile(raw):
                raise ValueError("its end is missing")
            raw.seek(0)
            with np.load(raw, allow_pickle=False) as file:
                header = json.loads(str(file["header"]))
                arrays = {name: file[name] for name in file.files if name != "header"}
        if header["format"] != FORMAT:
            raise ValueError(f"its format is {header['format']!r}, not {FORMAT!r}")
        if not isinstance(header["layout"], list) or not isinstance(header["meta"], dict):
            raise ValueError("its layout is no list, or its meta no object")
    except FileNotFoundError:
        raise
    except Exception as error:                              # zip, zlib, NumPy and JSON each have their own
        raise ValueError(f"{path} is not a complete refattn checkpoint ({type(error).__name__}: "
                         f"{' '.join(str(error).split())})") from error
    if parameters is not None:
        for theirs, ours in zip_longest(header["layout"], layout(parameters)):
            if theirs != ours:
                data = f", trained on {said}," if (said := header["meta"].get("data")) else ""
                raise ValueError(f"{path}{data} was written for other parameters: it has {theirs}; allowed: {ours}")
    return arrays, header["meta"]
