# ruff: noqa: F401, F821, F841
"""Exercise: write the forward of linear attention.  The backward is given.

Linear attention: softmax attention with sigma = identity.

    a[h, q, k] = q_hq . k_hk / sqrt(d) + bias                                                                 eq. (1)
    o[h, q]    = sum_k a[h, q, k] v[h, k]                                                                     eq. (3)

Each missing line has left its number and the arrays that it makes; dx is the gradient of x.
    refattn check tutorials/exercises/linear.py --as linear --bias h1k --keep bhqk --dropout bhqk
says for the output and each gradient whether it is right, and where not, which line is wrong.  Without
--bias, --keep or --dropout it does not look at what belongs to it.
Made by make.py from refattn/attention/linear.py.
"""

from typing import Any, NamedTuple

from refattn import ops
from refattn.attention.shapes import check_inputs
from refattn.contract import contract


class Saved(NamedTuple):
    q: Any
    k: Any
    v: Any
    bias: Any
    keep: Any
    dropout: Any
    code: Any                  # (b, h, q, k), before dropout


def linear(q, k, v, *, bias=None, keep=None, dropout=None):
    """o[b, q, h, e] = sum_k (q.k / sqrt(d) + bias) v[b, k, h, e].  Returns o and Saved.

    Shapes
    ------
    q       : b q h d
    k       : b k h d
    v       : b k h e
    bias    : b h q k      (finite, broadcasts)
    keep    : b h q k      (bool, broadcasts; False = weight 0)
    dropout : b h q k      (broadcasts; already divided by 1 - p)
    returns : b q h e

    Raises ValueError or TypeError for shapes, dtypes or devices that do not fit together.
    """
    check_inputs(q, k, v, bias, keep, dropout)
    # (1) eq. 1                            s = ?
    # (2) eq. 1, sigma = Id                a = ?
    # (3)                                  c = ?
    # (4) eq. 3                            o = ?
    raise NotImplementedError("lines (1) to (4) are to be written")
    return o, Saved(q, k, v, bias, keep, dropout, a)


def linear_backward(saved, do):
    """dq, dk, dv, dbias from do (b, q, h, e); each in the shape of its input, dbias None without bias."""
    q, k, v, bias, keep, dropout, a = saved
    c = ops.drop(a, dropout)                                    # (3) again
    dc = contract("bqhe,bkhe->bhqk", do, v, order=a)            # (4)
    dv = contract("bhqk,bqhe->bkhe", c, do)                     # (4)
    da = ops.drop(dc, dropout, out=dc)                          # (3)
    ds = ops.dropped_to_zero(da, keep)                          # (2)
    dq, dk, dbias = ops.scores_backward(q, k, bias, ds)         # (1)
    return dq, dk, dv, dbias
