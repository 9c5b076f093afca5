"""Every attention row of Table A1, as three knobs, one query at a time.

Source: Attention as a Hypernetwork, appendix A.1.  The knobs are the three modifications that A.1 lists: how the scores
become the latent code, how many of the value network's layers the code generates, and what sits between the layers.
"""

import numpy as np

from .arguments import complete, exact
from .ops import relu, rms_head, softmax

NORMALISERS = "softmax", "none", "rms_head", "softmax_rms_head", "rms_head_softmax"
CODE_USES = 1, 2, 3
PHIS = "identity", "relu"


def code_of_one_query(s, keep, normaliser):
    """The latent code a (h, k) of one query, from its scores s (h, k); exactly 0 where keep is False."""
    s = np.where(keep, s, 0.0)
    if normaliser == "softmax":
        return softmax(s, keep)                                 # over keys, head by head
    if normaliser == "none":
        return s
    if normaliser == "rms_head":
        return rms_head(s, axis=0)                              # over heads, key by key
    if normaliser == "softmax_rms_head":
        return rms_head(softmax(s, keep), axis=0)
    return softmax(rms_head(s, axis=0), keep)                   # rms_head_softmax


def value_of_one_pair(a, v, code_uses, phi, wv2):
    """(h, e): what one key adds to the output of one query, from the code a (h) of the pair and the values v (h, e)."""
    heads = range(len(a))
    if code_uses == 1:
        return np.array([a[h] * phi(v[h]) for h in heads])
    z = phi(sum(a[h] * v[h] for h in heads))
    if code_uses == 3:                                          # eq. 10
        features = range(len(z))
        z = phi(np.array([sum(a[h] * z[e] * wv2[h, e, f] for h in heads for e in features) for f in features]))
    return np.array([a[h] * z for h in heads])


def ablation(q, k, v, *, normaliser, code_uses, phi, wv2=None, bias=None, keep=None, dropout=None):
    """o_ih = sum_j a_hij z_hij with z_hij = phi(v_jh), phi(sum_h' a_h'ij v_jh'), or that and one generated layer more.

    Source: Attention as a Hypernetwork, eq. 2 (one use of the code), eq. 6 (two); appendix A.1, eq. 10 (three).
    Differs: as the pages softmax, linear and hyla do.  Under softmax a pair that is not kept is left out; before `none`
    and `rms_head` its score is 0, and the mean over heads still divides by H; its weight is 0 in every composition.
    `softmax_rms_head` applies softmax first, `rms_head_softmax` applies it last.

    Shapes
    ------
    q, k, v             : (b, q, h, d), (b, k, h, d), (b, k, h, e)
    wv2                 : (h, e, e), with three uses of the code
    bias, keep, dropout : broadcast to (b, h, q, k)
    returns             : (b, q, h, e)

    Raises: ValueError for an unknown knob, or a wv2 where it is not used, or none where it is.

    >>> q, k, v = np.ones((1, 1, 1, 1)), np.full((1, 1, 1, 1), -2.0), np.full((1, 1, 1, 1), 5.0)
    >>> [ablation(q, k, v, normaliser="none", code_uses=n, phi="identity").item() for n in (1, 2)]
    [-10.0, 20.0]
    """
    for name, given, allowed in (
        ("normaliser", normaliser, NORMALISERS), ("code_uses", code_uses, CODE_USES), ("phi", phi, PHIS)
    ):
        if given not in allowed:
            raise ValueError(f"{name} is {given!r}; allowed: {', '.join(map(repr, allowed))}")
    if (code_uses == 3) != (wv2 is not None):
        raise ValueError(f"wv2 is {'missing' if wv2 is None else 'given'}, but code_uses is {code_uses}; allowed: wv2 "
                         f"with 3, None with 1 and 2")
    wv2 = None if wv2 is None else exact(wv2)
    q, k, v, bias, keep, dropout, o = complete(q, k, v, bias, keep, dropout)
    if wv2 is not None:
        o = o.astype(np.result_type(o, wv2))
    apply_phi = relu if phi == "relu" else np.asarray
    for b, i in np.ndindex(o.shape[:2]):
        s = np.zeros((q.shape[2], k.shape[1]), dtype=o.dtype)
        for h, j in np.ndindex(s.shape):
            s[h, j] = np.dot(q[b, i, h], k[b, j, h]) / np.sqrt(q.shape[-1]) + bias[b, h, i, j]          # (1)
        a = code_of_one_query(s, keep[b, :, i, :], normaliser)                                          # (2)
        c = a * dropout[b, :, i, :]                                                                     # (3)
        for j in range(k.shape[1]):
            o[b, i] += value_of_one_pair(c[:, j], v[b, j], code_uses, apply_phi, wv2)                   # (4)-(9)
    return o
