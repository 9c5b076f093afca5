"""Differential attention, one query at a time."""

import numpy as np

from .arguments import complete, exact


def differential(q, k, v, *, r, t, w, bias=None, keep=None, dropout=None, lambda_init=0.8, epsilon=1e-5):
    """o_i = (1 - lambda_init) z_i / sqrt(mean_e z_ie^2 + epsilon) with z_i = sum_j (a_ij - lambda a'_ij) v_j.

    Here a_ij is the softmax over j of q_i . k_j / sqrt(d) + bias_ij, a'_ij that of r_i . t_j / sqrt(d) + bias_ij, and
    lambda = w + lambda_init for each head.

    Source: Differential Transformer, eq. 1-3.
    Differs: lambda is learned as it is and for each head, no scale behind the norm, a bias on the scores, a mask, and
    dropout factors on the difference.

    Shapes
    ------
    q, k, v             : (b, q, h, d), (b, k, h, d), (b, k, h, e)
    r, t                : (b, q, h, d), (b, k, h, d)
    w                   : (h,)
    bias, keep, dropout : broadcast to (b, h, q, k)
    returns             : (b, q, h, e)

    With one key both softmaxes are 1 and lambda is 0.8, so that z = 0.2 v = 5, whose norm has nothing but the sign:

    >>> one = np.ones((1, 1, 1, 1))
    >>> round(differential(one, one, 25 * one, r=one, t=one, w=np.zeros(1), epsilon=0).item(), 12)
    0.2
    """
    q, k, v, bias, keep, dropout, o = complete(q, k, v, bias, keep, dropout)
    r, t, w = exact(r), exact(t), exact(w)
    for b, i, h in np.ndindex(o.shape[:3]):
        kept = [j for j in range(k.shape[1]) if keep[b, h, i, j]]
        lam = w[h] + lambda_init
        s1 = {j: np.dot(q[b, i, h], k[b, j, h]) / np.sqrt(q.shape[-1]) + bias[b, h, i, j] for j in kept}
        s2 = {j: np.dot(r[b, i, h], t[b, j, h]) / np.sqrt(q.shape[-1]) + bias[b, h, i, j] for j in kept}
        top1 = max((s1[j].real for j in kept), default=0.0)
        top2 = max((s2[j].real for j in kept), default=0.0)
        total1 = sum(np.exp(s1[j] - top1) for j in kept)
        total2 = sum(np.exp(s2[j] - top2) for j in kept)
        z = np.zeros_like(o[b, i, h])
        for j in kept:
            a = np.exp(s1[j] - top1) / total1 - lam * np.exp(s2[j] - top2) / total2
            z += a * dropout[b, h, i, j] * v[b, j, h]
        root = np.sqrt(sum(x * x for x in z) / len(z) + epsilon)
        o[b, i, h] = (1 - lambda_init) * z / root
    return o
