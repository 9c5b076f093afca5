"""Feed-forward layers: two maps with a nonlinearity between them, at every position alone.

    MLP      y = phi(x W1 + b1) W2 + b2
    SwiGLU   y = ((x Wg) sigmoid(x Wg) * (x Wu)) Wd

Source: H, released code (`gelu_mlp`: GELU in the tanh form; `swiglu`: no biases); Shazeer 2020.
"""

from dataclasses import dataclass
from operator import mul
from typing import Any, NamedTuple

from .. import ops
from ..checks import check_choice, check_integers
from ..params import Parameter, check_views
from ..xp import array_module

__all__ = ["FeedForward", "SwiGLU"]


def gelu_and_slope(x):
    """The activations, and the slope there: half the time of computing tanh once more in the backward."""
    slope = array_module(x).empty_like(x)
    return ops.gelu(x, slope=slope), slope


ACTIVATIONS = {                # hidden -> activations, kept;   kept, dactivations -> dhidden
    "gelu": (gelu_and_slope, mul),
    "gelu_exact": (lambda x: (ops.gelu_exact(x), x), ops.gelu_exact_backward),
    "relu": (lambda x: (ops.relu(x), x), ops.relu_backward),
}


class Saved(NamedTuple):
    x: Any
    kept: Any                  # of the activation: its slope (gelu), or what was before it
    active: Any                # after it and dropout
    dropout: Any


@dataclass(frozen=True)
class FeedForward:
    """y = phi(x w1 + b1) w2 + b2, phi one of gelu (tanh form), gelu_exact, relu; `outputs` features, else as many as x.

    Raises ValueError for an unknown activation, or a size that is no integer of at least 1.
    """
    width: int
    hidden: int
    activation: str = "gelu"
    outputs: int | None = None

    def __post_init__(self):
        check_choice("activation", self.activation, ACTIVATIONS)
        check_integers(vars(self), "width", "hidden", *(() if self.outputs is None else ("outputs",)))

    def parameters(self) -> dict:
        """w1 (m, f), b1 (f), w2 (f, m), b2 (m), or o for the last m."""
        m, f = self.width, self.hidden
        o, letter = (m, "m") if self.outputs is None else (self.outputs, "o")
        return {"w1": Parameter("mf", (m, f), m, "weight"), "b1": Parameter("f", (f,), m, "bias"),
                "w2": Parameter(f"f{letter}", (f, o), f, "weight"), "b2": Parameter(letter, (o,), f, "bias")}

    def forward(self, p, x, *, dropout=None) -> tuple[Any, Saved]:
        """y (..., m or o) from x (..., m); `dropout`, (..., f), already divided by 1 - p, multiplies the activations.

        With relu it may as well come before the activation, as in C's image tasks.  Returns y and Saved.
        """
        check_views(p)
        hidden = ops.linear(x, p.w1, p.b1)                      # (1)
        active, kept = ACTIVATIONS[self.activation][0](hidden)  # (2)
        ops.check_dropout(active, dropout)
        active = ops.drop(active, dropout, out=active)          # (3)
        return ops.linear(active, p.w2, p.b2), Saved(x, kept, active, dropout)              # (4)

    def backward(self, p, saved, dy, grads):
        """dx (..., m); parameter gradients are added into `grads`."""
        x, kept, active, dropout = saved
        dactive, dw2, db2 = ops.linear_backward(active, p.w2, dy)               # (4)
        dactive = ops.drop(dactive, dropout)                    # (3)
        dhidden = ACTIVATIONS[self.activation][1](kept, dactive)                # (2)
        dx, dw1, db1 = ops.linear_backward(x, p.w1, dhidden)    # (1)
        grads.w1 += dw1
        grads.b1 += db1
        grads.w2 += dw2
        grads.b2 += db2
        return dx


class GatedSaved(NamedTuple):
    x: Any
    gate: Any                  # before silu
    up: Any
    active: Any                # silu(gate) * up


@dataclass(frozen=True)
class SwiGLU:
    """y = (silu(x wg) * (x wu)) wd, without biases.  Raises ValueError for a size that is no integer of at least 1."""
    width: int
    hidden: int

    def __post_init__(self):
        check_integers(vars(self), "width", "hidden")

    def parameters(self) -> dict:
        """wg (m, f) of the gate, wu (m, f), wd (f, m)."""
        m, f = self.width, self.hidden
        return {"wg": Parameter("mf", (m, f), m, "weight"), "wu": Parameter("mf", (m, f), m, "weight"),
                "wd": Parameter("fm", (f, m), f, "weight")}

    def forward(self, p, x) -> tuple[Any, GatedSaved]:
        """y (..., m) from x (..., m).  Returns y and GatedSaved."""
        check_views(p)
        gate, up = ops.linears(x, (p.wg, None), (p.wu, None))   # (1)
        active = ops.silu(gate) * up                            # (2)
        return ops.linear(active, p.wd), GatedSaved(x, gate, up, active)        # (3)

    def backward(self, p, saved, dy, grads):
        """dx (..., m); parameter gradients are added into `grads`."""
        x, gate, up, active = saved
        dactive, dwd, _ = ops.linear_backward(active, p.wd, dy)                 # (3)
        dgate = ops.silu_backward(gate, dactive * up)           # (2)
        dup = dactive * ops.silu(gate)                          # (2)
        dx, ((dwg, _), (dwu, _)) = ops.linears_backward(x, (p.wg, p.wu), (dgate, dup))          # (1)
        grads.wg += dwg
        grads.wu += dwu
        grads.wd += dwd
        return dx
