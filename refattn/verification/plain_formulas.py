"""The tuned functions as one-line formulas, in the dtype of their arguments: what float32 results are judged against.

`package()` is the whole library with these in place of its own.
"""

from functools import cache

import numpy as np

from .rounding import UNIT

REPLACED = "linear", "linear_backward", "linears", "linears_backward", "softmax", "gelu", "gelu_backward", "layer_norm"


def rounded(x, precision: str):
    """x in its own dtype, its values rounded to `precision`, to nearest, ties to even.  Raises ValueError.

    To bfloat16 by way of float32: float64 is rounded twice, and 1 + 2^-8 + 2^-30, first made a tie, ends at 1.
    """
    if precision not in UNIT:
        raise ValueError(f"precision {precision!r} is unknown; allowed: {', '.join(UNIT)}")
    if precision != "bfloat16":
        with np.errstate(over="ignore"):
            return x.astype(precision).astype(x.dtype)
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    half = ((bits >> 16) & 1) + np.uint32(0x7FFF)
    found = ((bits + half) & np.uint32(0xFFFF0000)).view(np.float32).astype(x.dtype).reshape(x.shape)
    return np.where(np.isnan(x), x, found)                  # of which adding may make a number


def contract(spec, a, b, *, order=None, out=None):
    """einsum."""
    return np.einsum(spec, a, b, out=out)


def linear(x, w, b=None):
    """x w + b."""
    return np.tensordot(x, w, 1) + (0 if b is None else b)


def linear_backward(x, w, dy):
    """dy w^T, x^T dy, sum dy."""
    rows, dys = x.reshape(-1, x.shape[-1]), dy.reshape(-1, *w.shape[1:])
    dx = np.tensordot(dy, w, [range(x.ndim - 1, dy.ndim), range(1, w.ndim)])
    return dx, np.tensordot(rows, dys, (0, 0)), dys.sum(0)


def linears(x, *maps):
    """One product after the other."""
    return [linear(x, w, b) for w, b in maps]


def linears_backward(x, weights, dys):
    """One product after the other."""
    found = [linear_backward(x, w, dy) for w, dy in zip(weights, dys, strict=True)]
    return sum(dx for dx, _, _ in found), [(dw, db) for _, dw, db in found]


def softmax(s, keep=None, axis=-1, *, out=None):
    """exp(s - max) / sum over what is kept."""
    keep = np.ones(s.shape, bool) if keep is None else np.broadcast_to(keep, s.shape)
    top = np.where(keep, s, s.min(axis, keepdims=True)).max(axis, keepdims=True)
    e = np.where(keep, np.exp(np.where(keep, s, top) - top), 0)
    return (e / (e.sum(axis, keepdims=True) + ~keep.any(axis, keepdims=True))).astype(s.dtype)


def gelu(x, *, slope=None):
    """x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2."""
    if slope is not None:
        slope[...] = gelu_backward(x, np.ones_like(x))
    return 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


def gelu_backward(x, dy):
    """dy times the slope."""
    t, slope = np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)), (2 / np.pi) ** 0.5 * (1 + 3 * 0.044715 * x**2)
    return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t**2) * slope)


def layer_norm(x, scale, shift, epsilon=1e-6):
    """scale (x - mean) / sqrt(var + epsilon) + shift."""
    r = 1 / np.sqrt(x.var(-1, keepdims=True) + epsilon)
    n = (x - x.mean(-1, keepdims=True)) * r
    return n * scale + shift, n, r


@cache
def package():
    """The library made of plain formulas."""
    from .changed_source import rewritten
    here = "from .verification.plain_formulas import"
    return rewritten({"contract.py": lambda source: f"{source}\n{here} contract\n",
                      "ops.py": lambda source: f"{source}\n{here} {', '.join(REPLACED)}\n"})
