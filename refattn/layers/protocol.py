"""What a layer is.

A layer is a frozen dataclass of hyper-parameters: it holds no array and changes nothing that it is given but `grads`.

    parameters()                    the one list of its arrays: {name: Parameter}, nested for a layer made of layers
    forward(p, x, **options)        y, Saved             `p`: views of those arrays; Saved: what the backward needs
    backward(p, saved, dy, grads)   dx, or Gradients     parameter gradients are ADDED into `grads`, views like `p`

Every layer and model raises ValueError where it is made, for a number, a word or a switch that is not allowed and for
parts of it whose widths do not fit; and ValueError or TypeError where it is used, for arrays that do not fit together.
Each message names the field or the array.  A part that is no layer at all may be an error only where it is used; None
in place of an array, and a flat array in place of views, may be an AttributeError.
A gradient is added into its view, as by `grads.wq += dwq` or, where the name is computed, `grads[name] += value`.
So one layer may be used many times in a network, and every use adds its part.
A block adds to y and dx in place: a layer in a block returns arrays that share no memory with arguments or with Saved.
"""

from typing import Any, NamedTuple, Protocol

from ..checks import check_read
from ..params import check_views
from ..xp import check_alike, fitted

__all__ = ["Attention", "Gradients", "Layer"]


class Gradients(NamedTuple):
    """Of the inputs of an attention layer or a block; None for what was not given."""
    x: Any
    context: Any = None
    bias: Any = None


class Layer(Protocol):
    """Any layer; one that attends takes more than x and returns Gradients."""

    def parameters(self) -> dict:
        """{name: Parameter} of its arrays, in the order of the layout; nested for a layer made of layers."""

    def forward(self, p, x, /, *more: Any, **options: Any) -> tuple[Any, Any]:
        """y, and Saved, what the backward needs; `p` are the views of its arrays."""

    def backward(self, p, saved, dy, grads) -> Any:
        """dx from dy, or Gradients, or None for token ids; gradients of parameters are added into `grads`."""


class Attention(Layer, Protocol):
    """What a block takes as attention; an argument that a layer cannot honour is a ValueError.

    Keys and values come from `context` (b, k, m) where given, else from x (b, t, m); `bias`, `keep` and `dropout`
    broadcast to (b, h, q, k) of the whole x; `read`, a slice of query positions, gives y[:, read] at their cost alone.
    """
    @property
    def width(self) -> int:
        """m, the features of each position."""

    def forward(self, p, x, /, *, context=None, bias=None, keep=None, dropout=None, read=None) -> tuple[Any, Any]:
        """y (b, q, m) from x (b, t, m), and Saved."""

    def backward(self, p, saved, dy, grads) -> Gradients:
        """Gradients of x, context and bias from dy (b, q, m); those of parameters are added into `grads`."""


def check_tokens(width, read=None, p=None, of_queries=None, **inputs) -> None:
    """Nothing, or a ValueError naming an input that is not (b, t, m) with the layer's m, or a `read` that is no slice.

    Where a part is read, arrays of queries, by name, must have those of all of x, or of x up to the last read, or one.
    Raises TypeError for what is no array of floats, inputs of several dtypes or array modules, a `p` without names.
    """
    check_views(p)
    check_alike(**inputs, bias=(of_queries or {}).get("bias"))          # which a position layer may add to
    check_read(read)
    for name, x in inputs.items():
        if x is not None and (x.ndim != 3 or x.shape[-1] != width):
            raise ValueError(f"{name} has shape {x.shape}; allowed: (b, t, m) with m = {width}")
    for name, y in (of_queries or {}).items() if read else ():
        fitted(y, name, getattr(y, "shape", ()))            # no array has none
        n, t = 1 if y is None or y.ndim < 2 else y.shape[-2], inputs["x"].shape[1]
        if n != 1 and (n > t or range(n)[read] != range(t)[read]):      # of other positions
            raise ValueError(f"{name} has shape {y.shape}; allowed with read: 1 or all {t} queries, or those up to the "
                             f"last read")
