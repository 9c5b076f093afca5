"""Softmax attention, one query at a time."""

import numpy as np

from .arguments import complete


def softmax(q, k, v, *, bias=None, keep=None, dropout=None):
    """o_i = sum_j a_ij v_j with a_ij = exp(s_ij) / sum_j' exp(s_ij') and s_ij = q_i . k_j / sqrt(d) + bias_ij.

    Source: Attention as a Hypernetwork, eq. 1 with softmax over the keys.
    Differs: a bias on the scores, a mask, and dropout factors on the weights (the paper leaves all three out).
    A key that is not kept takes no part in either sum; a query that keeps nothing has o_i = 0.

    Shapes
    ------
    q, k, v             : (b, q, h, d), (b, k, h, d), (b, k, h, e)
    bias, keep, dropout : broadcast to (b, h, q, k)
    returns             : (b, q, h, e)

    Two keys with the scores 0 and log 3 get the weights 1/4 and 3/4:

    >>> q, k, v = np.ones((1, 1, 1, 1)), np.log([[[[1.0]], [[3.0]]]]), np.array([[[[8.0]], [[4.0]]]])
    >>> round(softmax(q, k, v).item(), 12)
    5.0
    """
    q, k, v, bias, keep, dropout, o = complete(q, k, v, bias, keep, dropout)
    for b, i, h in np.ndindex(o.shape[:3]):
        kept = [j for j in range(k.shape[1]) if keep[b, h, i, j]]
        s = {j: np.dot(q[b, i, h], k[b, j, h]) / np.sqrt(q.shape[-1]) + bias[b, h, i, j] for j in kept} # (1)
        top = max((s[j].real for j in kept), default=0.0)       # a common factor of every exp: it changes no ratio
        total = sum(np.exp(s[j] - top) for j in kept)                                                   # (2)
        for j in kept:
            a = np.exp(s[j] - top) / total                                                              # (2)
            c = a * dropout[b, h, i, j]                                                                 # (3)
            o[b, i, h] += c * v[b, j, h]                                                                # (4)
    return o
