"""Causal linear attention over a piece of a sequence: what came before it is a state of fixed size.

    o[h, q] = sum over k <= q of (q_hq . k_hk / sqrt(d)) v[h, k] + q_hq S_h / sqrt(d)                   eq. (1)-(3)
    S'_h    = S_h + sum_k k_hk v[h, k]^T                   the state, d x e numbers for each head

Source: H, eq. (1)-(3) with sigma = Id, whose order of products is free; Katharopoulos et al. 2020, section 3.4; Sun et
al. 2023, "chunkwise".  Differs: no feature map and no normaliser, as in H.
An additive bias would have to factorise, bias[q, k] = u_q . w_k, and is then only further features of q and k; the
theorem `which_variants_have_a_state` says which other variants have a state.
Pieces of any lengths follow one another, S' of one being S of the next, and dS of one the upstream dS' of the one
before: outputs and gradients are those of the whole sequence.
"""

from typing import Any, NamedTuple

from .. import ops
from ..contract import contract
from ..xp import array_module
from . import masks
from .shapes import check_inputs

__all__ = ["KeptState", "linear_state", "linear_state_backward"]


class Saved(NamedTuple):
    q: Any
    k: Any
    v: Any
    state: Any                 # before this piece, None at the start
    code: Any                  # (b, h, q, k), 0 where the key is later


class KeptState(NamedTuple):
    """What a decoder keeps of any number of tokens."""
    state: Any                 # (b, h, d, e)
    length: int


def linear_state(q, k, v, state=None):
    """o[b, q, h, e] of a piece, and the state after it.  Returns o, state and Saved.

    Shapes
    ------
    q       : b t h d
    k       : b t h d
    v       : b t h e
    state   : b h d e      (None: the sequence begins here)
    returns : b t h e, and b h d e

    Raises ValueError or TypeError for shapes, dtypes or devices that do not fit together.
    """
    check_inputs(q, k, v, **({} if state is None else {"state": (state, "bhde")}))
    if q.shape != k.shape:
        raise ValueError(f"q is {q.shape}, k {k.shape}; allowed: as many queries as keys")
    s = ops.scores(q, k)                                                        # (1) eq. 1
    a = ops.dropped_to_zero(s, masks.causal(q.shape[1], xp=array_module(q)))    # (2)
    o = contract("bhqk,bkhe->bqhe", a, v)                                       # (3) eq. 3
    after = contract("bkhd,bkhe->bhde", k, v)                                   # (4)
    if state is not None:
        o += contract("bqhd,bhde->bqhe", q * q.shape[-1] ** -0.5, state)        # (5)
        after += state                                                          # (6)
    return o, after, Saved(q, k, v, state, a)


def linear_state_backward(saved, do, dafter):
    """dq, dk, dv, dstate from do (b, t, h, e) and the gradient of the state after; dstate None without a state."""
    q, k, v, state, a = saved
    scale, dq, dstate = q.shape[-1] ** -0.5, 0, None
    if state is not None:
        dstate = contract("bqhd,bqhe->bhde", q * scale, do)                     # (5)
        dq = contract("bqhe,bhde->bqhd", do, state) * scale                     # (5)
        dstate += dafter                                                        # (6)
    dk = contract("bkhe,bhde->bkhd", v, dafter)                                 # (4)
    dv = contract("bkhd,bhde->bkhe", k, dafter)                                 # (4)
    dv += contract("bhqk,bqhe->bkhe", a, do)                                    # (3)
    da = contract("bqhe,bkhe->bhqk", do, v, order=a)                            # (3)
    ds = ops.dropped_to_zero(da, masks.causal(q.shape[1], xp=array_module(q)))  # (2)
    dq_piece, dk_piece, _ = ops.scores_backward(q, k, None, ds)                 # (1)
    return dq_piece + dq, dk_piece + dk, dv, dstate
