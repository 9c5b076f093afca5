"""Compositional attention, one query and one search at a time."""

import numpy as np

from .arguments import complete, exact
from .layer import affine, output_map
from .ops import linear as linear_map
from .ops import relu, softmax


def dot(selector, retrieval, wr, br=None):
    """(retrieval wr + br) . selector / sqrt(c): the retrieval query against the retrieval key."""
    return np.dot(linear_map(retrieval, wr, br), selector) / np.sqrt(len(selector))


def linear(selector, retrieval, wr, wc, br):
    """One map of the retrieval query and the retrieval side by side."""
    return np.dot(np.concatenate([wc, wr]), np.concatenate([selector, retrieval])) + br[0]


def nonlinear(selector, retrieval, wr, wc, br, w2, b2):
    """A map of the two side by side, relu, and a map to one number."""
    hidden = relu(linear_map(np.concatenate([selector, retrieval]), np.concatenate([wc, wr]), br))
    return np.dot(hidden, w2) + b2[0]


SCORINGS = {"dot": (dot, ("wr", "br")), "linear": (linear, ("wr", "wc", "br")),
            "nonlinear": (nonlinear, ("wr", "wc", "br", "w2", "b2"))}


def compositional(q, k, v, selector, *score, scoring="dot", bias=None, keep=None, dropout=None):
    """o_is = sum_r g_isr t_isr with t_isr = sum_j a_sij v_jr, a a softmax over keys, g a softmax over retrievals.

    Source: Compositional Attention, eq. 7-13.  The retrieval key of every retrieval is made as eq. 11 has it, not
    absorbed into the selector.  Differs: a bias on the search scores, a mask, and dropout factors on the search scores.

    Shapes
    ------
    q, k, v             : (b, q, s, d), (b, k, s, d), (b, k, r, e)
    selector            : (b, q, s, c)
    score               : wr (e, c) and perhaps br (c); or wr (e) wc (c) br (1) of `linear`; or wr (e, f) wc (c, f)
                          br (f) w2 (f) b2 (1) of `nonlinear`
    bias, keep, dropout : broadcast to (b, s, q, k)
    returns             : (b, q, s, e)

    One key, so t = v; two retrievals 8 and 4, whose value scores are 3/4 and 1/4:

    >>> one, selector = np.ones((1, 1, 1, 1)), np.full((1, 1, 1, 1), np.log(3) / 4)
    >>> round(compositional(one, one, np.array([[[[8.0], [4.0]]]]), selector, np.ones((1, 1))).item(), 12)
    7.0
    """
    if scoring not in SCORINGS:
        raise ValueError(f"scoring is {scoring!r}; allowed: {', '.join(SCORINGS)}")
    selector, score = exact(selector), [None if x is None else exact(x) for x in score]
    q, k, v, bias, keep, dropout, o = complete(q, k, v, bias, keep, dropout)
    o = o.astype(np.result_type(o, selector, *(x for x in score if x is not None)))
    keys = range(k.shape[1])
    for b, i, s in np.ndindex(o.shape[:3]):
        scores = [np.dot(q[b, i, s], k[b, j, s]) / np.sqrt(q.shape[-1]) + bias[b, s, i, j] for j in keys]       # (1)
        a = softmax(scores, keep[b, s, i])                                                                      # (2)
        c = a * dropout[b, s, i]                                                                                # (3)
        t = [sum(c[j] * v[b, j, r] for j in keys) for r in range(v.shape[2])]                                   # (4)
        l = [SCORINGS[scoring][0](selector[b, i, s], retrieval, *score) for retrieval in t]                     # (5)
        g = softmax(l)                                                                                          # (6)
        for r, retrieval in enumerate(t):
            o[b, i, s] += g[r] * retrieval                                                                      # (7)
    return o


def projected(p, x, *, scoring="dot", context=None, bias=None, keep=None, dropout=None):
    """o of `compositional`, with q and the selector from x, k and v from the context (x unless given); as `layer`."""
    context = x if context is None else context
    q, selector, k, v = affine(p, x, "q"), affine(p, x, "s"), affine(p, context, "k"), affine(p, context, "v")
    score = [getattr(p, name, None) for name in SCORINGS[scoring][1]]
    return compositional(q, k, v, selector, *score, scoring=scoring, bias=bias, keep=keep, dropout=dropout)


def layer(p, x, **options):
    """y_i = bo + sum_s o_is wo_s: the searches side by side, as eq. 14 has them.

    Source: Compositional Attention, eq. 7-14, and the authors' code for the biases.

    Shapes
    ------
    x, context : (b, q, m), (b, k, m)
    p          : wq (m, s, d)  bq (s, d)  wk  bk alike  wv (m, r, e)  bv (r, e)  ws (m, s, c)  bs (s, c)
                 the arrays of the scoring  wo (s, e, m)  bo (m); absent biases are 0
    returns    : (b, q, m)
    """
    return output_map(p, projected(p, x, **options))
