"""Recurrent networks, step by step."""

import numpy as np

from .arguments import exact
from .layer import affine
from .ops import linear, relu


def recurrent(p, x):
    """y_t = h_t readout.w + readout.b with h_t = relu(wi[x_t] + bi + h_{t-1} wh + bh), h_{-1} = 0.

    Source: RegularGPT, section 5, and the authors' code.
    Shapes: x (b, t) integer, p.wi (v, f) bi (f) wh (f, f) bh (f) readout.w (f, o) .b (o), returns (b, t, o).
    """
    wi, bi, wh, bh = map(exact, (p.wi, p.bi, p.wh, p.bh))
    states = np.zeros((*np.shape(x), wi.shape[1]), np.result_type(wi, bi, wh, bh))
    for b, t in np.ndindex(*np.shape(x)):
        before = states[b, t - 1] if t else np.zeros_like(bi)
        states[b, t] = relu(wi[x[b, t]] + bi + linear(before, wh, bh))
    return affine(p.readout, states)


def linear_recurrence(a, u):
    """h_t = h_{t-1} a_t + u_t, h_{-1} = 0.

    Shapes: a (b, t, n, n), u (b, t, n), returns (b, t, n).

    >>> linear_recurrence(np.full((1, 3, 1, 1), 2.0), np.ones((1, 3, 1))).ravel()
    array([1., 3., 7.])
    """
    a, u = exact(a), exact(u)
    h = np.zeros(u.shape, np.result_type(a, u))
    for b, t in np.ndindex(u.shape[:2]):
        h[b, t] = u[b, t] + (linear(h[b, t - 1], a[b, t]) if t else 0)
    return h
