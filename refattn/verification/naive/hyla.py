"""Hypernetwork linear attention (HYLA), one pair of positions at a time."""

import numpy as np

from .arguments import complete
from .ops import relu


def hyla(q, k, v, *, bias=None, keep=None, dropout=None, epsilon=1e-6):
    """o_ih = sum_j a_hij relu(sum_h' a_h'ij v_jh') with a_hij = s_hij / sqrt(mean_h' s_h'ij^2 + epsilon).

    The scores are s_hij = q_ih . k_jh / sqrt(d) + bias_hij, and 0 for a pair that is not kept.  The H numbers a_hij of
    one pair (i, j) are its latent code, used twice: into the hidden layer of the pair's value network and out of it.

    Source: Attention as a Hypernetwork, eq. 6 and RMSHead (section 2.2), before the output projection.
    Differs: epsilon inside the root (the authors' code), a bias on the scores, a mask, and dropout factors, which
    multiply the code once and are seen by both uses.  The mean runs over all H heads, kept or not.

    Shapes
    ------
    q, k, v             : (b, q, h, d), (b, k, h, d), (b, k, h, e)
    bias, keep, dropout : broadcast to (b, h, q, k)
    returns             : (b, q, h, e)

    Two heads with the scores 1 and -7 have the root mean square 5, so the code is (0.2, -1.4):

    >>> q, k, v = np.ones((1, 1, 2, 1)), np.array([[[[1.0], [-7.0]]]]), np.array([[[[12.0], [1.0]]]])
    >>> np.round(hyla(q, k, v).ravel(), 6) + 0.0    # relu(0.2 * 12 - 1.4 * 1) = 1
    array([ 0.2, -1.4])
    """
    q, k, v, bias, keep, dropout, o = complete(q, k, v, bias, keep, dropout)
    heads = range(q.shape[2])
    for b, i, j in np.ndindex(q.shape[0], q.shape[1], k.shape[1]):
        s = [np.dot(q[b, i, h], k[b, j, h]) / np.sqrt(q.shape[-1]) + bias[b, h, i, j] for h in heads]   # (1)
        s = [s[h] if keep[b, h, i, j] else 0.0 for h in heads]                                          # (2)
        root = np.sqrt(sum(s[h] * s[h] for h in heads) / len(heads) + epsilon) or 1.0                   # (3)
        a = [s[h] / root for h in heads]                                                                # (3)
        c = [a[h] * dropout[b, h, i, j] for h in heads]                                                 # (4)
        z = sum(c[h] * v[b, j, h] for h in heads)                                                       # (5)
        g = relu(z)                                                                                     # (6)
        for h in heads:
            o[b, i, h] += c[h] * g                                                                      # (7)
    return o
