# ruff: noqa: F401, F821, F841
"""Exercise: write the backward of compositional attention.  The forward is given.

Compositional attention: searches and retrievals are separate, and every query pairs them anew by value scores.

    a[s, q, k]  = softmax over k of (q_sq . k_sk / sqrt(d) + bias)                    search scores          eq. (8)
    t[q, s, r]  = sum_k a[s, q, k] v[r, k]                                            all s r retrievals    eq. (10)
    g[q, s, r]  = softmax over r of selector_qs . (t_qsr W^key) / sqrt(c)             value scores     eq. (11)-(13)
    o[q, s]     = sum_r g[q, s, r] t[q, s, r]                                                               eq. (13)

Each missing line has left its number and the arrays that it makes; dx is the gradient of x.
    refattn check tutorials/exercises/compositional.py --as compositional --bias h1k --keep bhqk --dropout bhqk
says for the output and each gradient whether it is right, and where not, which line is wrong.  Without
--bias, --keep or --dropout it does not look at what belongs to it.
Made by make.py from refattn/attention/compositional.py.
"""

from typing import Any, NamedTuple

from refattn import ops
from refattn.attention.shapes import check_pairs
from refattn.attention.value_scores import scoring as scoring_of
from refattn.checks import check_choice
from refattn.contract import agree, contract
from refattn.xp import check_alike


class Saved(NamedTuple):
    q: Any
    k: Any
    v: Any
    selector: Any
    score: tuple               # the arrays of the scoring
    scoring: str
    bias: Any
    dropout: Any
    search_scores: Any         # (b, s, q, k), before dropout
    retrievals: Any            # (b, q, s, r, e)
    value_scores: Any          # (b, q, s, r)
    inside: Any                # what the scoring keeps


def compositional(q, k, v, selector, *score, scoring="dot", bias=None, keep=None, dropout=None):
    """o[b, q, s, e] = sum_r g_qsr sum_k a_sqk v_rk, a being a softmax over k, g over r.  Returns o and Saved.

    Shapes
    ------
    q        : b q s d
    k        : b k s d
    v        : b k r e
    selector : b q s c
    score    : the key map e c (dot);  e, c, 1 (linear);  e f, c f, f, f, 1 (nonlinear)
    bias     : b s q k     (finite, broadcasts)
    keep     : b s q k     (bool, broadcasts; False = not attended to)
    dropout  : b s q k     (broadcasts; already divided by 1 - p)
    returns  : b q s e

    A query that keeps nothing gets exactly zero.  Raises ValueError for an unknown scoring or shapes that do not fit
    together, TypeError for mixed dtypes or devices.
    """
    check(q, k, v, selector, score, scoring, bias, keep, dropout)
    s = ops.scores(q, k, bias, over="k")                                # (1) eq. 8
    a = ops.softmax(s, keep, out=s)                                     # (2) eq. 8, search scores
    c = ops.drop(a, dropout)                                            # (3)
    t = contract("bsqk,bkre->bqsre", c, v)                              # (4) eq. 10, retrievals
    l, inside = scoring_of(scoring).forward(selector, t, *score)        # (5) eq. 11-13
    g = ops.softmax(l, out=l)                                           # (6) eq. 13, value scores
    o = contract("bqsr,bqsre->bqse", g, t)                              # (7) eq. 13
    return o, Saved(q, k, v, selector, score, scoring, bias, dropout, a, t, g, inside)


def compositional_backward(saved, do):
    """dq, dk, dv, dbias, dselector, *dscore from do (b, q, s, e); dbias is None without bias."""
    q, k, v, selector, score, scoring, bias, dropout, a, t, g, inside = saved
    c = ops.drop(a, dropout)                                            # (3) again
    # (7)                                  dg = ?
    # (7) the retrievals' second use       dt = ?
    # (6)                                  dl = ?
    # (5)                                  dselector, dt5, dscore = ?
    # (5) the retrievals' first use        dt = ?
    # (4)                                  dc = ?
    # (4)                                  dv = ?
    # (3)                                  da = ?
    # (2)                                  ds = ?
    # (1)                                  dq, dk, dbias = ?
    raise NotImplementedError("lines (7) to (1) are to be written")
    return dq, dk, dv, dbias, dselector, *dscore


def check(q, k, v, selector, score, scoring, bias, keep, dropout):
    """Nothing, or the errors of `compositional`."""
    each = scoring_of(scoring)
    if len(score) != len(each.names):
        raise ValueError(f"scoring {scoring!r} got {len(score)} arrays; allowed: {', '.join(each.names)}")
    xp = check_alike(q=q, k=k, v=v, selector=selector, bias=bias, dropout=dropout,
                     **dict(zip(each.names, score, strict=True)))
    size = agree(q=(q, "bqsd"), k=(k, "bksd"), v=(v, "bkre"), selector=(selector, "bqsc"),
                 **{name: (x, axes) for name, x, axes in zip(each.names, score, each.axes, strict=True)})
    check_choice(f"number of entries of {each.names[-1]} (scoring {scoring!r})", size.get("1", 1), (1,))
    check_pairs(xp, size, "bsqk", bias, keep, dropout)
