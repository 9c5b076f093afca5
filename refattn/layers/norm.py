"""LayerNorm.

    y = scale (x - mean) / sqrt(var + epsilon) + shift,   mean and variance over the last axis

Source: Ba et al. 2016.  Differs: not at all; epsilon is 1e-6 in H's code (Flax), 1e-5 in C's and R's (PyTorch, Haiku).
"""

from dataclasses import dataclass

from .. import ops
from ..checks import check_integers, check_number
from ..params import Parameter, check_views

__all__ = ["LayerNorm"]


@dataclass(frozen=True)
class LayerNorm:
    """LayerNorm of the last axis, m; the variance is divided by m.

    Raises ValueError for a width that is no integer of at least 1, an epsilon below 0.
    """
    width: int
    epsilon: float = 1e-6

    def __post_init__(self):
        check_integers(vars(self), "width")
        check_number("epsilon", self.epsilon)

    def parameters(self) -> dict:
        """scale (m), shift (m)."""
        m = self.width
        return {"scale": Parameter("m", (m,), m, "scale"), "shift": Parameter("m", (m,), m, "shift")}

    def forward(self, p, x) -> tuple:
        """y like x.  Returns y and what the backward needs."""
        check_views(p)
        y, *saved = ops.layer_norm(x, p.scale, p.shift, self.epsilon)
        return y, saved

    def backward(self, p, saved, dy, grads):
        """dx; parameter gradients are added into `grads`."""
        dx, dscale, dshift = ops.layer_norm_backward(*saved, p.scale, dy)
        grads.scale += dscale
        grads.shift += dshift
        return dx
