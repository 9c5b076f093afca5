"""HYLA with a value network for each query, one query at a time."""

import numpy as np

from .arguments import complete
from .ops import relu


def query_values(q, k, v, *, bias=None, keep=None, dropout=None):
    """o_ih = sum_j a_hij relu(z_i) with z_i = sum_j' sum_h' a_h'ij' v_j'h', summed over keys before relu.

    a_hij = s_hij / sqrt(mean_h' s_h'ij^2 + 1e-6), the scores being s_hij = q_ih . k_jh / sqrt(d) + bias_hij, and 0 for
    a pair that is not kept.

    Source: Attention as a Hypernetwork, section 7, on value networks that are specific to a query only.
    Differs: the paper has no equation; this is eq. 6 with the sum over keys in the hidden layer.  As in HYLA: epsilon
    inside the root, a bias on the scores, a mask, and dropout factors on the code, which both of its uses see.

    Shapes
    ------
    q, k, v             : (b, q, h, d), (b, k, h, d), (b, k, h, e)
    bias, keep, dropout : broadcast to (b, h, q, k)
    returns             : (b, q, h, e)

    Two keys with the codes (0.2, -1.4) and (1, 1); their hidden layers -1 and 3 add up to 2 before relu:

    >>> q, k = np.ones((1, 1, 2, 1)), np.array([[[[1.0], [-7.0]], [[9.0], [9.0]]]])
    >>> v = np.array([[[[2.0], [1.0]], [[1.0], [2.0]]]])
    >>> np.round(query_values(q, k, v).ravel(), 6)  # (0.2 + 1) * 2 and (-1.4 + 1) * 2
    array([ 2.4, -0.8])
    """
    q, k, v, bias, keep, dropout, o = complete(q, k, v, bias, keep, dropout)
    heads, keys = range(q.shape[2]), range(k.shape[1])
    for b, i in np.ndindex(q.shape[:2]):
        a = {}
        for j in keys:
            s = [np.dot(q[b, i, h], k[b, j, h]) / np.sqrt(q.shape[-1]) + bias[b, h, i, j] for h in heads]
            s = [s[h] if keep[b, h, i, j] else 0.0 for h in heads]
            root = np.sqrt(sum(s[h] * s[h] for h in heads) / len(heads) + 1e-6)
            for h in heads:
                a[h, j] = s[h] / root * dropout[b, h, i, j]
        g = relu(sum(a[h, j] * v[b, j, h] for j in keys for h in heads))
        for h in heads:
            for j in keys:
                o[b, i, h] += a[h, j] * g
    return o
