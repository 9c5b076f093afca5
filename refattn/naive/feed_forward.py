"""Position-wise networks."""

from .ops import gelu, gelu_exact, linear, relu, silu

ACTIVATIONS = {"gelu": gelu, "gelu_exact": gelu_exact, "relu": relu}


def mlp(x, w1, b1, w2, b2, activation="gelu"):
    """y = activation(x w1 + b1) w2 + b2.

    Source: the authors' code ("gelu_mlp"; gelu is the tanh form).
    Shapes: x (..., m), w1 (m, f), b1 (f), w2 (f, m), b2 (m), returns (..., m).

    >>> mlp([2.0], [[1.0, -1.0]], [0.0, 0.0], [[10.0], [100.0]], [1.0], "relu")
    array([21.])
    """
    return linear(ACTIVATIONS[activation](linear(x, w1, b1)), w2, b2)


def swiglu(x, wu, wg, wd):
    """y = ((x wu) silu(x wg)) wd, without biases.

    Source: Shazeer 2020, and the authors' code for language modelling.
    Shapes: x (..., m), wu (m, f), wg (m, f), wd (f, m), returns (..., m).

    >>> swiglu([1.0], [[3.0]], [[0.0]], [[4.0]])                # silu(0) = 0
    array([0.])
    """
    return linear(linear(x, wu) * silu(linear(x, wg)), wd)
