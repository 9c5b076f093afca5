"""Sigmoid attention, one pair at a time."""

import numpy as np

from .arguments import complete


def sigmoid(q, k, v, *, bias=None, keep=None, dropout=None):
    """o_i = sum_j a_ij v_j with a_ij = 1 / (1 + exp(-s_ij)) and s_ij = q_i . k_j / sqrt(d) + bias_ij.

    Source: Ramapuram et al. 2024, section 2.
    Differs: a bias for each pair (the paper's is one number), a mask, and dropout factors on the weights.  A pair that
    is not kept has a_ij = 0.

    Shapes
    ------
    q, k, v             : (b, q, h, d), (b, k, h, d), (b, k, h, e)
    bias, keep, dropout : broadcast to (b, h, q, k)
    returns             : (b, q, h, e)

    Two keys with the scores 0 and log 3 get the weights 1/2 and 3/4, whose sum is not 1:

    >>> q, k, v = np.ones((1, 1, 1, 1)), np.log([[[[1.0]], [[3.0]]]]), np.array([[[[8.0]], [[4.0]]]])
    >>> round(sigmoid(q, k, v).item(), 12)
    7.0
    """
    q, k, v, bias, keep, dropout, o = complete(q, k, v, bias, keep, dropout)
    for b, i, h in np.ndindex(o.shape[:3]):
        for j in range(k.shape[1]):
            if keep[b, h, i, j]:
                s = np.dot(q[b, i, h], k[b, j, h]) / np.sqrt(q.shape[-1]) + bias[b, h, i, j]
                o[b, i, h] += 1 / (1 + np.exp(-s)) * dropout[b, h, i, j] * v[b, j, h]
    return o
