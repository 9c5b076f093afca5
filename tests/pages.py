"""What the tests of the attention pages have in common: tags read from the source, and bad input."""

import inspect
import re

import numpy as np
import pytest

from refattn.verification.cases.case import shape
from tests import strict_cupy


def tags(function) -> list[int]:
    """The numbers of the tags `# (1)`, `# (2)`, ... in a function's lines, in order, repetitions together."""
    found = [int(n) for line in inspect.getsource(function).splitlines() if (
        comment := line.partition("#")[2]) and "again" not in comment for n in re.findall(r"\((\d+)\)", comment)[:1]]
    return [n for i, n in enumerate(found) if i == 0 or n != found[i - 1]]


def check_tags(forward, backward):
    """The backward answers the forward's lines in exactly reverse order."""
    numbers = list(dict.fromkeys(tags(forward)[::-1]))          # of two branches that end alike, the last
    assert numbers == list(range(len(numbers), 0, -1)) and len(numbers) > 3, (
        f"tags of {forward.__name__} are {numbers[::-1]}; allowed: 1, 2, ..., at least four, one in a line")
    assert tags(backward) == numbers, f"tags of {backward.__name__} are {tags(backward)}; allowed: {numbers}"


def inputs(b=2, q=3, k=4, h=5, d=6, e=7, dtype="float64"):
    """q, k, v by shape."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(size).astype(dtype) for size in ((b, q, h, d), (b, k, h, d), (b, k, h, e))]


BAD_INPUT = [
    (lambda q, k, v: ((q[..., :5], k, v), {}), ValueError, "axis d is 5 in q but 6 in k"),
    (lambda q, k, v: ((q, k[:, :, :4], v), {}), ValueError, "axis h is 5 in q but 4 in k"),
    (lambda q, k, v: ((q, k, v[:, :3]), {}), ValueError, "axis k is 4 in k but 3 in v"),
    (lambda q, k, v: ((q[:1], k, v), {}), ValueError, "axis b is 1 in q but 2 in k"),
    (lambda q, k, v: ((q[0], k, v), {}), ValueError, r"q has shape \(3, 5, 6\); allowed: 4 axes \(b, q, h, d\)"),
    (lambda q, k, v: ((q, k, v), {"bias": np.zeros((4, 3))}), ValueError,
     r"bias has shape \(4, 3\); allowed: what broadcasts to \(b, h, q, k\) = \(2, 5, 3, 4\)"),
    (lambda q, k, v: ((q, k, v), {"dropout": np.zeros((1, 1, 1, 1, 1))}), ValueError, "dropout has shape"),
    (lambda q, k, v: ((q, k, v), {"keep": np.ones(4)}), TypeError,
     "keep is an array of numpy with dtype float64; allowed: booleans of numpy"),
    (lambda q, k, v: ((q, k, v.astype("float32")), {}), TypeError, "q is float64 but v is float32"),
    (lambda q, k, v: ((q, k, v), {"bias": np.zeros(4, "float32")}), TypeError, "q is float64 but bias is float32"),
    (lambda q, k, v: ((q, k.astype(int), v), {}), TypeError, "k has dtype int64; allowed: floating point"),
    (lambda q, k, v: ((q, k, v), {"keep": [[True] * 4] * 3}), TypeError, "keep is a list; allowed: an array of numpy"),
    (lambda q, k, v: ((q[..., :0], k[..., :0], v), {}), ValueError, "axis d is 0 in q; allowed: at least 1"),
    (lambda q, k, v: ((q.tolist(), k, v), {}), TypeError, "q is a list; allowed: an array of NumPy or CuPy"),
    (lambda q, k, v: ((q, strict_cupy.asarray(k), v), {}), TypeError, "q is an array of numpy but k of tests.strict"),
]


TAKEN = {"q", "k", "v", "o", "do", "bias", "keep", "dropout", "position", *(a + b for a in "wb" for b in "qkvo")}


def check_row(row):
    """Raises ValueError for an extra that the layer cannot make, or whose name it has anyway, and for unknown tiles."""
    for name, axes in row.extras.items():
        taken = TAKEN | {a + b for a in "wb" for b in row.extras}               # what a projection of another one has
        if name in taken:
            raise ValueError(f"{row.name} has the extra {name!r}; allowed: other names than {', '.join(sorted(taken))}")
        if not re.fullmatch("b[qk]h[de]|[hde]{1,3}", axes):
            raise ValueError(f"{row.name} has the extra {name!r} of axes {axes!r}; allowed: bqhd, bqhe, bkhd, bkhe, or "
                             f"one to three of h, d, e (h for a single number: one for each head)")
    if row.tiles not in ("", "sum", "softmax"):
        raise ValueError(f"{row.name} has tiles {row.tiles!r}; allowed: 'sum', or none")


def check_bad_input(row):
    """Every kind of bad input gets one line that names what was given."""
    size = {"b": 2, "q": 3, "k": 4, "h": 5, "d": 6, "e": 7}
    for change, error, words in BAD_INPUT:
        arrays, options = change(*inputs())
        none = getattr(arrays[0], "shape", (1,))[-1] == 0           # no features, of the extras either
        extras = [np.ones(shape(axes, size | {"d": 0} if none else size)) for axes in row.extras.values()]
        with pytest.raises(error, match=words) as caught:
            row.forward(*arrays, *extras, **options)
        assert "\n" not in str(caught.value)
