"""HYLA with a gated value network, one pair of positions at a time."""

import numpy as np

from .arguments import complete, exact
from .ops import silu


def gated_hyla(q, k, v, *, u, bias=None, keep=None, dropout=None):
    """o_ih = sum_j a_hij silu(z_ij) w_ij with z_ij = sum_h a_hij v_jh, w_ij = sum_h a_hij u_jh, a = RMSHead(scores).

    The scores are s_hij = q_ih . k_jh / sqrt(d) + bias_hij, and 0 for a pair that is not kept; RMSHead divides them by
    sqrt(mean_h s_hij^2 + 1e-6).

    Source: Attention as a Hypernetwork, eq. 6, its value network replaced by SwiGLU (Shazeer 2020).
    Differs: epsilon inside the root, a bias on the scores, a mask, and dropout factors, which multiply the code once
    and are seen by its three uses.  The mean runs over all H heads, kept or not.

    Shapes
    ------
    q, k, v, u          : (b, q, h, d), (b, k, h, d), (b, k, h, e), (b, k, h, e)
    bias, keep, dropout : broadcast to (b, h, q, k)
    returns             : (b, q, h, e)

    Two heads with the scores 1 and -7 have the root mean square 5, so the code is (0.2, -1.4):

    >>> q, k = np.ones((1, 1, 2, 1)), np.array([[[[1.0], [-7.0]]]])
    >>> v, u = np.array([[[[12.0], [1.0]]]]), np.array([[[[10.0], [0.0]]]])     # z = 1, w = 2
    >>> np.round(gated_hyla(q, k, v, u=u).ravel() * (1 + np.exp(-1)), 6)        # silu(1) = 1 / (1 + 1/e)
    array([ 0.4, -2.8])
    """
    q, k, v, bias, keep, dropout, o = complete(q, k, v, bias, keep, dropout)
    u = exact(u)
    heads = range(q.shape[2])
    for b, i, j in np.ndindex(q.shape[0], q.shape[1], k.shape[1]):
        s = [np.dot(q[b, i, h], k[b, j, h]) / np.sqrt(q.shape[-1]) + bias[b, h, i, j] for h in heads]
        s = [s[h] if keep[b, h, i, j] else 0.0 for h in heads]
        root = np.sqrt(sum(s[h] * s[h] for h in heads) / len(heads) + 1e-6)
        a = [s[h] / root * dropout[b, h, i, j] for h in heads]
        z = sum(a[h] * v[b, j, h] for h in heads)
        w = sum(a[h] * u[b, j, h] for h in heads)
        g = silu(z) * w
        for h in heads:
            o[b, i, h] += a[h] * g
    return o
