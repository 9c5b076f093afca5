# ruff: noqa: F401, F821, F841
"""Exercise: write the backward of softmax attention.  The forward is given.

Softmax attention.

    a[h, q, k] = softmax over k of (q_hq . k_hk / sqrt(d) + bias)                                            eq. (1)
    o[h, q]    = sum_k a[h, q, k] v[h, k]                                                                     eq. (3)

Each missing line has left its number and the arrays that it makes; dx is the gradient of x.
    refattn check tutorials/exercises/softmax.py --as softmax --bias h1k --keep bhqk --dropout bhqk
says for the output and each gradient whether it is right, and where not, which line is wrong.  Without
--bias, --keep or --dropout it does not look at what belongs to it.
Made by make.py from refattn/attention/softmax.py.
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
    dropout: Any
    code: Any                  # (b, h, q, k), before dropout


def softmax(q, k, v, *, bias=None, keep=None, dropout=None):
    """o[b, q, h, e] = sum_k softmax_k(q.k / sqrt(d) + bias) v[b, k, h, e].  Returns o and Saved.

    Shapes
    ------
    q       : b q h d
    k       : b k h d
    v       : b k h e
    bias    : b h q k      (finite, broadcasts)
    keep    : b h q k      (bool, broadcasts; False = not attended to)
    dropout : b h q k      (broadcasts; already divided by 1 - p)
    returns : b q h e

    A query that keeps nothing gets exactly zero.  Raises ValueError or TypeError for shapes, dtypes or devices that do
    not fit together.
    """
    check_inputs(q, k, v, bias, keep, dropout)
    s = ops.scores(q, k, bias, over="k")                        # (1) eq. 1
    a = ops.softmax(s, keep, out=s)                             # (2) eq. 1, sigma
    c = ops.drop(a, dropout)                                    # (3)
    o = contract("bhqk,bkhe->bqhe", c, v)                       # (4) eq. 3
    return o, Saved(q, k, v, bias, dropout, a)


def softmax_backward(saved, do):
    """dq, dk, dv, dbias from do (b, q, h, e); each in the shape of its input, dbias None without bias."""
    q, k, v, bias, dropout, a = saved
    c = ops.drop(a, dropout)                                    # (3) again
    # (4)                                  dc = ?
    # (4)                                  dv = ?
    # (3)                                  da = ?
    # (2)                                  ds = ?
    # (1)                                  dq, dk, dbias = ?
    raise NotImplementedError("lines (4) to (1) are to be written")
    return dq, dk, dv, dbias
