"""A mixture of experts in place of a feed-forward layer.

    y = sum_i g_i (phi(x W1_i + b1_i) W2_i + b2_i),  g = softmax over the k largest of x Wg, 0 for the others

Source: H, appendix A.1, and rows 12 to 14 of table A1.  Differs: the paper gives neither the number of experts nor k,
nor biases; here experts are feed-forward layers with theirs, and the gate has none.  No load-balancing loss, capacity
or noise, as the paper mentions none.  Every expert is computed at every position and those not chosen are weighted 0:
that costs experts / k times the work of gathering, and a GPU never waits for the choice.
Symbols: i is the axis x, phi the activation.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..checks import check_integer, check_integers
from ..params import Parameter, check_views
from ..xp import array_module
from .feed_forward import ACTIVATIONS, FeedForward

__all__ = ["MixtureOfExperts", "largest"]


class Saved(NamedTuple):
    x: Any
    gate: Any                  # (..., x): weight of each expert, 0 for those that are not chosen
    kept: Any                  # (..., x, f), of the activation: its slope (gelu), or what was before it
    active: Any                # after it
    weighted: Any              # active times gate, (..., x f)


def largest(logits, chosen: int):
    """True for the `chosen` largest of the last axis, the first of equal ones; comparisons look at `.real`.

    Where one is NaN, more may be True.  Raises ValueError for a `chosen` that is no whole number from 0 to all.
    """
    check_integer("chosen", chosen, 0, logits.shape[-1])
    index = array_module(logits).arange(logits.shape[-1], dtype=np.int64)
    mine, other = logits.real[..., :, None], logits.real[..., None, :]
    ahead = (other > mine) | ((other == mine) & (index < index[:, None]))
    return ahead.sum(axis=-1) < chosen


@dataclass(frozen=True)
class MixtureOfExperts:
    """`experts` feed-forward layers of width `hidden`, of which each position uses the `chosen` best of its gate.

    Raises ValueError for an unknown activation, a size that is no integer of at least 1, or more chosen than experts.
    """
    width: int
    hidden: int
    experts: int
    chosen: int
    activation: str = "gelu"

    def __post_init__(self):
        FeedForward(self.width, self.hidden, self.activation)                   # knows what is allowed
        check_integers(vars(self), "width", "hidden", "experts")
        vars(self)["chosen"] = check_integer("chosen", self.chosen, 1, self.experts)

    def parameters(self) -> dict:
        """wg (m, x) of the gate; w1 (m, x, f), b1 (x, f), w2 (x, f, m), b2 (x, m) of the experts."""
        m, f, x = self.width, self.hidden, self.experts
        return {"wg": Parameter("mx", (m, x), m, "weight"),
                "w1": Parameter("mxf", (m, x, f), m, "weight"), "b1": Parameter("xf", (x, f), m, "bias"),
                "w2": Parameter("xfm", (x, f, m), f, "weight"), "b2": Parameter("xm", (x, m), f, "bias")}

    def forward(self, p, x) -> tuple[Any, Saved]:
        """y (..., m) from x (..., m).  Returns y and Saved."""
        check_views(p)
        logits = ops.linear(x, p.wg)                                            # (1)
        gate = ops.softmax(logits, largest(logits, self.chosen))                # (2)
        hidden = ops.linear(x, p.w1, p.b1)                                      # (3)
        active, kept = ACTIVATIONS[self.activation][0](hidden)                  # (4)
        weighted = (active * gate[..., None]).reshape(*x.shape[:-1], self.experts * self.hidden)    # (5)
        y = ops.linear(weighted, p.w2.reshape(-1, self.width))                  # (6)
        y += ops.linear(gate, p.b2)                                             # (7)
        return y, Saved(x, gate, kept, active, weighted)

    def backward(self, p, saved, dy, grads):
        """dx (..., m); parameter gradients are added into `grads`."""
        x, gate, kept, active, weighted = saved
        dgate, db2, _ = ops.linear_backward(gate, p.b2, dy)                     # (7)
        dweighted, dw2, _ = ops.linear_backward(weighted, p.w2.reshape(-1, self.width), dy)     # (6)
        dactive = dweighted.reshape(active.shape)
        dgate += (dactive * active).sum(axis=-1)                                # (5)
        dactive *= gate[..., None]                                              # (5)
        dhidden = ACTIVATIONS[self.activation][1](kept, dactive)                # (4)
        dx, dw1, db1 = ops.linear_backward(x, p.w1, dhidden)                    # (3)
        dlogits = ops.softmax_backward(gate, dgate, out=dgate)                  # (2)
        dx_gate, dwg, _ = ops.linear_backward(x, p.wg, dlogits)                 # (1)
        dx += dx_gate
        grads.wg += dwg
        grads.w1 += dw1
        grads.b1 += db1
        grads.w2 += dw2.reshape(p.w2.shape)
        grads.b2 += db2
        return dx
