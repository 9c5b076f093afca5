"""Position-wise networks."""

import numpy as np

from .arguments import exact
from .ops import gelu, gelu_exact, linear, relu, silu, softmax

ACTIVATIONS = {"gelu": gelu, "gelu_exact": gelu_exact, "relu": relu}


def mlp(x, w1, b1, w2, b2, activation="gelu", dropout=None):
    """y = (dropout activation(x w1 + b1)) w2 + b2.

    Source: the authors' code ("gelu_mlp"; gelu is the tanh form).  `dropout` broadcasts to (..., f), None is 1.
    Shapes: x (..., m), w1 (m, f), b1 (f), w2 (f, m), b2 (m), returns (..., m).

    >>> mlp([2.0], [[1.0, -1.0]], [0.0, 0.0], [[10.0], [100.0]], [1.0], "relu")
    array([21.])
    """
    return linear(ACTIVATIONS[activation](linear(x, w1, b1)) * (1.0 if dropout is None else exact(dropout)), w2, b2)


def layer(p, x, activation="gelu", dropout=None):
    """`mlp` with the parameters p.w1, p.b1, p.w2, p.b2."""
    return mlp(x, p.w1, p.b1, p.w2, p.b2, activation, dropout)


def swiglu(x, wu, wg, wd):
    """y = ((x wu) silu(x wg)) wd, without biases.

    Source: Shazeer 2020, and the authors' code for language modelling.
    Shapes: x (..., m), wu (m, f), wg (m, f), wd (f, m), returns (..., m).

    >>> swiglu([1.0], [[3.0]], [[0.0]], [[4.0]])                # silu(0) = 0
    array([0.])
    """
    up, gate = linear(x, wu), linear(x, wg)                             # (1)
    active = up * silu(gate)                                            # (2)
    return linear(active, wd)                                           # (3)


def mixture_of_experts(x, wg, w1, b1, w2, b2, chosen, activation="gelu"):
    """y = sum over the chosen i of g_i mlp_i(x), g the softmax of their logits x wg; the first of equal logits win.

    Source: Attention as a Hypernetwork, appendix A.1.
    Shapes: x (..., m), wg (m, x), w1 (m, x, f), b1 (x, f), w2 (x, f, m), b2 (x, m), returns (..., m).

    >>> w1, w2, none = [[[1.0], [2.0]]], [[[1.0]], [[10.0]]], [[0.0], [0.0]]
    >>> mixture_of_experts([1.0], [[0.0, 5.0]], w1, none, w2, none, 1, "relu")             # the second expert, alone
    array([20.])
    """
    x, wg, w1, b1, w2, b2 = map(exact, (x, wg, w1, b1, w2, b2))
    y = np.zeros_like(x, dtype=np.result_type(x, wg, w1, b1, w2, b2))
    for place in np.ndindex(x.shape[:-1]):
        logits = linear(x[place], wg)
        best = sorted(range(len(logits)), key=lambda i: (-logits[i].real, i))[:chosen]
        gate = softmax(logits[best])
        for g, i in zip(gate, best, strict=True):
            y[place] += g * mlp(x[place], w1[:, i], b1[i], w2[i], b2[i], activation)
    return y
