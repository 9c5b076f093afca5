"""How a search scores its retrievals: the logits l[b, q, s, r] before the softmax over r, in pairs.

    dot        l[q, s, r] = selector_qs . (t_qsr W^key) / sqrt(c)                   eq. (11)-(13)
    linear     l[q, s, r] = selector_qs . w^query + t_qsr . w + b                   one map of the two side by side
    nonlinear  l[q, s, r] = relu(selector_qs W^query + t_qsr W + b) . w2 + b2

Source: C, section 3 (dot) and appendix B.7 (linear: "Compositional-MLP", by its own words only a linear network, which
takes the retrieval's key there and the retrieval in the released code); `nonlinear` is an option of the released
language-model code, without a published number.  Differs: `dot` moves the key map into the selector, (selector
W^key^T) . t, 3.8 to 14.7 times fewer multiply-adds over Table 6, and leaves out the key's bias, which adds the
same number to all r logits and so changes nothing: its gradient is exactly 0.
Symbols: t = the retrievals (b, q, s, r, e).
"""

from collections.abc import Callable
from typing import NamedTuple

from .. import ops
from ..checks import check_choice
from ..contract import contract

__all__ = ["Scoring", "dot", "dot_backward", "linear", "linear_backward", "nonlinear", "nonlinear_backward", "scoring"]

RETRIEVAL_FIRST = "rbqs"       # in memory, on a GPU too: the softmax over r, of a few, then runs over whole slices


def dot(selector, ret, key_map):
    """l (b, q, s, r) from selector (b, q, s, c), ret (b, q, s, r, e), key_map (e, c).  Returns l and u (b, q, s, e)."""
    u = contract("bqsc,ec->bqse", selector * selector.shape[-1] ** -0.5, key_map)   # (1)
    return contract("bqse,bqsre->bqsr", u, ret, order=RETRIEVAL_FIRST), u           # (2)


def dot_backward(selector, ret, key_map, u, dl):
    """dselector, dret, (dkey_map,) from dl (b, q, s, r)."""
    scale = selector.shape[-1] ** -0.5
    du = contract("bqsr,bqsre->bqse", dl, ret) * scale                              # (2)
    dret = contract("bqsr,bqse->bqsre", dl, u)                                      # (2)
    return contract("bqse,ec->bqsc", du, key_map), dret, (contract("bqse,bqsc->ec", du, selector),)     # (1)


def linear(selector, ret, w, w_query, b):
    """l (b, q, s, r) from w (e), w_query (c) and b (1).  Returns l and None."""
    same = contract("bqsc,c->bqs", selector, w_query)[..., None]                    # (1) for every r: softmax drops it
    return contract("bqsre,e->bqsr", ret, w) + same + b, None                       # (2)


def linear_backward(selector, ret, w, w_query, b, _, dl):
    """dselector, dret, (dw, dw_query, db) from dl (b, q, s, r)."""
    dsame = dl.sum(axis=-1)                                                         # (2)
    dret, dw = contract("bqsr,e->bqsre", dl, w), contract("bqsr,bqsre->e", dl, ret)                 # (2)
    dw_query = contract("bqs,bqsc->c", dsame, selector)                             # (1)
    return contract("bqs,c->bqsc", dsame, w_query), dret, (dw, dw_query, dsame.sum().reshape(1))


def nonlinear(selector, ret, w, w_query, b, w2, b2):
    """l (b, q, s, r) from w (e, f), w_query (c, f), b (f), w2 (f), b2 (1).  Returns l and z (b, q, s, r, f)."""
    z = contract("bqsre,ef->bqsrf", ret, w)                                         # (1)
    z += (contract("bqsc,cf->bqsf", selector, w_query) + b)[..., None, :]           # (2)
    return contract("bqsrf,f->bqsr", ops.relu(z), w2) + b2, z                       # (3)


def nonlinear_backward(selector, ret, w, w_query, b, w2, b2, z, dl):
    """dselector, dret, (dw, dw_query, db, dw2, db2) from dl (b, q, s, r)."""
    dw2, db2 = contract("bqsr,bqsrf->f", dl, ops.relu(z)), dl.sum().reshape(1)      # (3)
    dz = ops.relu_backward(z, contract("bqsr,f->bqsrf", dl, w2))                    # (3)
    dsame = dz.sum(axis=-2)                                                         # (2)
    dw_query, db = contract("bqsc,bqsf->cf", selector, dsame), dsame.sum(axis=(0, 1, 2))            # (2)
    dret, dw = contract("bqsrf,ef->bqsre", dz, w), contract("bqsre,bqsrf->ef", ret, dz)             # (1)
    return contract("bqsf,cf->bqsc", dsame, w_query), dret, (dw, dw_query, db, dw2, db2)


class Scoring(NamedTuple):
    """A way to score values: its two functions, and the arrays that it has of its own."""
    forward: Callable          # (selector, ret, *arrays) -> l, what the backward needs
    backward: Callable         # (selector, ret, *arrays, that, dl) -> dselector, dret, darrays
    names: tuple[str, ...]     # the layer's names of the arrays
    axes: tuple[str, ...]      # their letters; 1 is an axis of one entry


SCORINGS = {
    "dot": Scoring(dot, dot_backward, ("wr",), ("ec",)),
    "linear": Scoring(linear, linear_backward, ("wr", "wc", "br"), ("e", "c", "1")),
    "nonlinear": Scoring(nonlinear, nonlinear_backward, ("wr", "wc", "br", "w2", "b2"), ("ef", "cf", "f", "f", "1")),
}


def scoring(name) -> Scoring:
    """The row of a name.  Raises ValueError listing the names."""
    check_choice("scoring", name, SCORINGS)
    return SCORINGS[name]
