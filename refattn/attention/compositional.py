"""Compositional attention: searches and retrievals are separate, and every query pairs them anew by value scores.

    a[s, q, k]  = softmax over k of (q_sq . k_sk / sqrt(d) + bias)                    search scores          eq. (8)
    t[q, s, r]  = sum_k a[s, q, k] v[r, k]                                            all s r retrievals    eq. (10)
    g[q, s, r]  = softmax over r of selector_qs . (t_qsr W^key) / sqrt(c)             value scores     eq. (11)-(13)
    o[q, s]     = sum_r g[q, s, r] t[q, s, r]                                                               eq. (13)

Source: C, section 3; `scoring` names the three ways to g (value_scores.py).  Differs: `bias`, `keep` and `dropout` act
on the search scores as in softmax attention; of these the released code has a mask, its language model dropout too.
Symbols: s = search, r = retrieval; selector = the retrieval query Q-bar, one for each search, made from the query's
token; W^key (e, c) = the retrieval key map, one for all searches and retrievals; c = d_r, e = d_v.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import ops
from ..checks import check_choice, check_integers, check_switches
from ..contract import agree, contract
from ..params import Parameter
from ..xp import check_alike
from .kept import Keeping
from .projections import in_maps, out_map
from .shapes import check_pairs
from .value_scores import scoring as scoring_of

__all__ = ["Compositional", "Saved", "compositional", "compositional_backward"]


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
    dg = contract("bqse,bqsre->bqsr", do, t, order=g)                   # (7)
    dt = contract("bqsr,bqse->bqsre", g, do)                            # (7) the retrievals' second use
    dl = ops.softmax_backward(g, dg, out=dg)                            # (6)
    dselector, dt5, dscore = scoring_of(scoring).backward(selector, t, *score, inside, dl)      # (5)
    dt += dt5                                                           # (5) the retrievals' first use
    dc = contract("bqsre,bkre->bsqk", dt, v, order=a)                   # (4)
    dv = contract("bsqk,bqsre->bkre", c, dt)                            # (4)
    da = ops.drop(dc, dropout, out=dc)                                  # (3)
    ds = ops.softmax_backward(a, da, out=da)                            # (2)
    dq, dk, dbias = ops.scores_backward(q, k, bias, ds)                 # (1)
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


@dataclass(frozen=True)
class Compositional(Keeping):
    """y_q = sum_s o_qs W_s^out + b around `compositional`, eq. (14); every width is that of one search or retrieval.

    The released code's totals: `search_width` d is D / searches; `retrieval_width` e is D / searches for images, ESBN
    and SCAN (more retrievals, more parameters), but D / retrievals for contextual retrieval and language (thinner
    retrievals).
    Keys and values come from a context where given, queries and selectors always from x.
    `biases` are those of q, k, v and the output; `selector_biases` (the same unless given) those of the selector and,
    with scoring "dot", the retrieval key.  The latter, `br`, is there so that parameters count as in the released
    code: its gradient is 0.  The other scorings have their biases (`br`, `b2`) always.  SCAN has no `biases`.
    """
    width: int
    searches: int
    retrievals: int
    search_width: int
    retrieval_width: int
    selector_width: int
    scoring: str = "dot"
    biases: bool = True
    selector_biases: bool | None = None

    def __post_init__(self):
        vars(self)["selector_biases"] = self.biases if self.selector_biases is None else self.selector_biases
        check_integers(vars(self), "width", "searches", "retrievals", "search_width", "retrieval_width",
                       "selector_width")
        check_switches(vars(self), "biases", "selector_biases")
        scoring_of(self.scoring)

    @property
    def heads(self) -> int:
        """The number of score maps, as a table of positional biases needs it."""
        return self.searches

    def parameters(self) -> dict:
        """wq bq wk bk wv bv, ws bs of the selector, what the scoring needs, wo bo."""
        m, e, c = self.width, self.retrieval_width, self.selector_width
        size: dict = {"s": self.searches, "r": self.retrievals, "d": self.search_width, "e": e, "c": c, "f": c, "1": 1}
        names = in_maps(m, self.biases, size, q="sd", k="sd", v="re") | in_maps(m, self.selector_biases, size, s="sc")
        listed = dict(zip(scoring_of(self.scoring).names, scoring_of(self.scoring).axes, strict=True))
        if self.scoring == "dot" and self.selector_biases:
            listed["br"] = "c"
        for name, axes in listed.items():
            fan_in = e if self.scoring == "dot" else c if name in ("w2", "b2") else c + e
            role = "weight" if name[0] == "w" else "bias"
            names[name] = Parameter(axes, tuple(size[x] for x in axes), fan_in, role, fan_out=size[axes[1:] or "1"])
        return names | out_map(m, self.biases, size, "se")

    def maps(self):
        """The names of what the queries' x is projected to, s being the selector, and of what the keys' is."""
        return "qs", "kv"

    def page(self, p, arrays, at, bias, keep, dropout):
        """o (b, q, s, e) from q, s the selector, k, v, and what the page saves; `at` is not used."""
        q, selector, k, v = (arrays[name] for name in "qskv")
        score = [p[name] for name in scoring_of(self.scoring).names]
        o, saved = compositional(q, k, v, selector, *score, scoring=self.scoring, bias=bias, keep=keep, dropout=dropout)
        return o, None, saved

    def page_backward(self, p, saved, do, grads):
        """The gradients of q, s, k, v by name, and dbias; those of the scoring's arrays are added into `grads`."""
        dq, dk, dv, dbias, ds, *dscore = compositional_backward(saved.attention, do)
        for name, value in zip(scoring_of(self.scoring).names, dscore, strict=True):
            grads[name] += value
        return {"q": dq, "s": ds, "k": dk, "v": dv}, dbias
