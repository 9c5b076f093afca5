"""Linear attention, one pair at a time."""

import numpy as np

from .arguments import complete


def linear(q, k, v, *, bias=None, keep=None, dropout=None):
    """o_i = sum_j a_ij v_j with a_ij = q_i . k_j / sqrt(d) + bias_ij.

    Source: Attention as a Hypernetwork, eq. 1 with the identity for sigma.
    Differs: a bias on the scores, a mask, and dropout factors on the weights.  A pair that is not kept has a_ij = 0.

    Shapes
    ------
    q, k, v             : (b, q, h, d), (b, k, h, d), (b, k, h, e)
    bias, keep, dropout : broadcast to (b, h, q, k)
    returns             : (b, q, h, e)

    >>> q, k, v = np.full((1, 1, 1, 4), 1.0), np.full((1, 2, 1, 4), 3.0), np.array([[[[1.0]], [[10.0]]]])
    >>> linear(q, k, v).item()                      # each weight is 12 / sqrt(4) = 6
    66.0
    """
    q, k, v, bias, keep, dropout, o = complete(q, k, v, bias, keep, dropout)
    for b, i, h in np.ndindex(o.shape[:3]):
        for j in range(k.shape[1]):
            if keep[b, h, i, j]:                                                                        # (2)
                a = np.dot(q[b, i, h], k[b, j, h]) / np.sqrt(q.shape[-1]) + bias[b, h, i, j]            # (1)
                c = a * dropout[b, h, i, j]                                                             # (3)
                o[b, i, h] += c * v[b, j, h]                                                            # (4)
    return o
