"""Recurrent networks: the ReLU network that R compares with, and linear recurrences as a parallel scan.

    h_t = relu(W^in[x_t] + b^in + h_{t-1} W + b),  h_{-1} = 0;     y_t = h_t W^out + b^out

Source: R, section 5 and authors' code; Delétang et al. 2023 (the cell with relu, two biases, hidden width 256).
Differs: the code's relu before the read-out is left out, which relu(h) = h makes the identity; its input has one more
symbol, which never occurs: that row of W^in is left out, but counted in the fan-in of the others, as in the code.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import ops
from ..checks import check_integers, check_read
from ..contract import contract
from ..params import Parameter, check_views
from ..xp import array_module, check_alike, fitted

__all__ = ["Recurrent", "linear_scan", "linear_scan_backward"]


class Saved(NamedTuple):
    x: Any                     # (b, t)
    states: Any                # (t + 1, b, f), the first one 0
    read: slice | None


@dataclass(frozen=True)
class Recurrent:
    """y (b, q, o) from token ids (b, t), with the full gradient through time."""
    width: int
    vocabulary: int
    outputs: int

    def __post_init__(self):
        check_integers(vars(self), "width", "vocabulary", "outputs")

    def parameters(self) -> dict:
        """wi (v, f), bi (f), wh (f, f), bh (f), and those of `readout`."""
        f, v, o = self.width, self.vocabulary, self.outputs
        return {"wi": Parameter("vf", (v, f), v + 1, "weight", fan_out=f), "bi": Parameter("f", (f,), v + 1, "bias"),
                "wh": Parameter("ff", (f, f), f, "weight"), "bh": Parameter("f", (f,), f, "bias"),
                "readout": {"w": Parameter("fo", (f, o), f, "weight"), "b": Parameter("o", (o,), f, "bias")}}

    def forward(self, p, x, *, read=None) -> tuple[Any, Saved]:
        """y (b, q, o) at the positions `read`, at all unless given.  Returns y and Saved, whose `states` has all h."""
        xp = array_module(x)
        if x.ndim != 2 or x.shape[1] == 0:
            raise ValueError(f"x has shape {x.shape}; allowed: (b, t) with at least one token")
        check_views(p)
        check_read(read)
        z = ops.embedding(p.wi, x.T) + (p.bi + p.bh)                    # (1) of all steps, (t, b, f)
        h = xp.zeros((len(z) + 1, *z.shape[1:]), dtype=z.dtype)
        for t in range(len(z)):
            h[t + 1] = ops.relu(z[t] + h[t] @ p.wh)                     # (2)
        seen = h[1:].transpose(1, 0, 2)
        y = ops.linear(seen if read is None else seen[:, read], p.readout.w, p.readout.b)       # (3)
        return y, Saved(x, h, read)

    def backward(self, p, saved, dy, grads):
        """None, for token ids; parameter gradients are added into `grads`."""
        x, h, read = saved
        seen = h[1:].transpose(1, 0, 2)
        dseen, dw, db = ops.linear_backward(seen if read is None else seen[:, read], p.readout.w, dy)       # (3)
        grads.readout.w += dw
        grads.readout.b += db
        if read is not None:
            dseen = ops.scatter_slice(dseen, seen.shape, read, axis=1)
        dz = array_module(h).empty_like(h[1:])
        for t in reversed(range(len(dz))):
            dh = dseen[:, t] if t + 1 == len(dz) else dseen[:, t] + dz[t + 1] @ p.wh.T          # (2)
            dz[t] = ops.relu_backward(h[t + 1], dh)                     # (2) relu(h) = h: their slopes are the same
        grads.wh += contract("tbe,tbf->ef", h[:-1], dz)                 # (2)
        dbh = ops.column_sums(ops.rows_of(dz))                          # (2)
        grads.bh += dbh
        grads.bi += dbh                                                 # (1)
        grads.wi += ops.embedding_backward(p.wi, x.T, dz)               # (1)


class ScanSaved(NamedTuple):
    a: Any
    h: Any                     # (b, t, n), the returned array itself, not to be written into


def linear_scan(a, u) -> tuple[Any, ScanSaved]:
    """h_t = h_{t-1} A_t + u_t, h_{-1} = 0, for all t in ceil(log_2 T) parallel steps.  Returns h and ScanSaved.

    Pairs (A, u) compose associatively, (A, u) then (B, w) = (A B, u B + w), so each step doubles the window that ends
    at every t: the dense form of RegularGPT at chunk 2.  Source: R, section 4, figure 2; Martin & Cundy
    2018.  Differs from R: an A of each step; R has one.

    Shapes
    ------
    a       : b t n o      (square; A_t acts on rows from the right)
    u       : b t n
    returns : b t n

    Raises ValueError for another a, TypeError for arrays of several dtypes.
    """
    check_alike(a=a, u=u)
    fitted(a, "a", (*u.shape, u.shape[-1]))
    h, product, reach = u.copy(), a, 1
    while reach < u.shape[1]:
        h[:, reach:] += contract("btn,btno->bto", h[:, :-reach], product[:, reach:])
        if 2 * reach < u.shape[1]:
            longer = product.copy()
            longer[:, reach:] = contract("btno,btop->btnp", product[:, :-reach], product[:, reach:])
            product = longer
        reach *= 2
    return h, ScanSaved(a, h)


def linear_scan_backward(saved, dh) -> tuple:
    """da, du from dh (b, t, n): du_t = dh_t + du_{t+1} A_{t+1}^T, a scan from the other end; da_t = h_{t-1}^T du_t."""
    (a, h), later = saved, slice(1, None)
    turned = ops.scatter_slice(a[:, :0:-1].swapaxes(2, 3), a.shape, later, axis=1)
    du = linear_scan(turned, dh[:, ::-1])[0][:, ::-1]
    return ops.scatter_slice(contract("btn,bto->btno", h[:, :-1], du[:, 1:]), a.shape, later, axis=1), du.copy()
