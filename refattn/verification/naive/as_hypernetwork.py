"""Attention in the five ways in which the paper writes it, each as its own loops.

All take the latent code a (b, h, q, k), one input x_j per key, and the matrices W_h^value = wv[:, h] and
W_h^out = wo[h] as the library stores them; no biases.  Equations 2 to 5 are equal for every code; equation 6 is
another function.

Source: Attention as a Hypernetwork, eq. 2-7 and algorithm 2 (figure A1).
"""

import numpy as np

from .arguments import exact
from .ops import relu


def prepare(a, x, wv, wo):
    """The four in double precision, and the zero output.

    Shapes: a (b, h, q, k), x (b, k, m), wv (m, h, e), wo (h, e, m), y (b, q, m), in all that follows.
    """
    a, x, wv, wo = exact(a), exact(x), exact(wv), exact(wo)
    return a, x, wv, wo, np.zeros((a.shape[0], a.shape[2], wo.shape[2]), dtype=np.result_type(a, x, wv, wo))


def apply(w, x):
    """y_f = sum_m x_m w_mf for a matrix w (m, f) and a vector x (m)."""
    return np.array([sum(x[m] * w[m, f] for m in range(w.shape[0])) for f in range(w.shape[1])])


def eq_2(a, x, wv, wo):
    """y_i = W^out concatenate_h(sum_j a_hij W_h^value x_j)."""
    a, x, wv, wo, y = prepare(a, x, wv, wo)
    heads, features = wo.shape[:2]
    w_out = np.array([wo[h, e] for h in range(heads) for e in range(features)])             # (h e, m), stacked
    for b, i in np.ndindex(y.shape[:2]):
        concatenated = []
        for h in range(heads):
            concatenated.extend(sum(a[b, h, i, j] * apply(wv[:, h], x[b, j]) for j in range(x.shape[1])))
        y[b, i] = apply(w_out, concatenated)
    return y


def eq_3(a, x, wv, wo):
    """y_i = sum_h W_h^out sum_j a_hij W_h^value x_j."""
    a, x, wv, wo, y = prepare(a, x, wv, wo)
    for b, i in np.ndindex(y.shape[:2]):
        for h in range(wo.shape[0]):
            inner = sum(a[b, h, i, j] * apply(wv[:, h], x[b, j]) for j in range(x.shape[1]))
            y[b, i] += apply(wo[h], inner)
    return y


def eq_4(a, x, wv, wo):
    """y_i = sum_j (sum_h a_hij W_h^out W_h^value) x_j."""
    a, x, wv, wo, y = prepare(a, x, wv, wo)
    products = [np.array([apply(wo[h], row) for row in wv[:, h]]) for h in range(wo.shape[0])]      # each (m, m)
    for b, i, j in np.ndindex(*y.shape[:2], x.shape[1]):
        y[b, i] += apply(sum(a[b, h, i, j] * products[h] for h in range(wo.shape[0])), x[b, j])
    return y


def eq_5(a, x, wv, wo):
    """y_i = sum_j W_ij x_j with W_ij[m, n] = sum_h,e a_hij wv_mhe wo_hen, the generated weights, entry by entry."""
    a, x, wv, wo, y = prepare(a, x, wv, wo)
    for b, i, j in np.ndindex(*y.shape[:2], x.shape[1]):
        for m, n in np.ndindex(wv.shape[0], wo.shape[2]):
            w_ij = 0.0
            for h, e in np.ndindex(wo.shape[:2]):
                w_ij += a[b, h, i, j] * wv[m, h, e] * wo[h, e, n]
            y[b, i, n] += w_ij * x[b, j, m]
    return y


def eq_6(a, x, wv, wo):
    """y_i = sum_j (sum_h a_hij W_h^out) relu(sum_h a_hij W_h^value x_j)."""
    a, x, wv, wo, y = prepare(a, x, wv, wo)
    heads = range(wo.shape[0])
    for b, i, j in np.ndindex(*y.shape[:2], x.shape[1]):
        w_in = sum(a[b, h, i, j] * wv[:, h] for h in heads)
        w_out = sum(a[b, h, i, j] * wo[h] for h in heads)
        y[b, i] += apply(w_out, relu(apply(w_in, x[b, j])))
    return y


def pseudocode_hyla(x, wq, wk, wv, wo, *, epsilon=0.0):
    """Algorithm 2 line by line: no biases, no 1 / sqrt(d), and no epsilon unless given.

    Shapes: x (b, t, m), wq and wk (m, h, d), wv (m, h, e), wo (h, e, m), returns (b, t, m).
    """
    x, wq, wk, wv, wo = map(exact, (x, wq, wk, wv, wo))
    q = np.einsum("...tm,mhd->...thd", x, wq)                                   # 1
    k = np.einsum("...tm,mhd->...thd", x, wk)                                   # 2
    v = np.einsum("...tm,mhd->...thd", x, wv)                                   # 3
    a = np.einsum("...qhd,...khd->...hqk", q, k)                                # 5
    a = a / np.sqrt(np.mean(a * a, axis=-3, keepdims=True) + epsilon)           # 6, rms_norm over the heads
    z = np.einsum("...hqk,...khd->...qkd", a, v)                                # 8
    z = np.where(z.real > 0, z, 0)                                              # 9, relu
    z = np.einsum("...hqk,...qkd->...qhd", a, z)                                # 10
    return np.einsum("...qhd,hdm->...qm", z, wo)                                # 11
