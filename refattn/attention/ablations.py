"""Table A1 as three knobs: how the code is normalised, how often it is used, and what sits between the uses.

    a = normaliser(q.k / sqrt(d) + bias)
    one use    o[h, q] = sum_k a_h phi(v_h)                                        standard attention, eq. (3)
    two uses   o[h, q] = sum_k a_h phi(sum_j a_j v_j)                              HYLA, eq. (6)
    three      o[h, q] = sum_k a_h phi(sum_j a_j W'_j phi(sum_i a_i v_i))          deep value network, eq. (10)

Source: H, appendix A.1, eq. (10), table A1.  Differs: rows 5, 10 and 11 are not in the released code; here row 5 is
phi on the values of one use, row 10 has no bias on W' (wv2), and row 11 (HYLA + softmax) takes softmax first, RMSHead
last, with the other order beside it.
"""

from typing import Any, NamedTuple

from .. import ops
from ..checks import check_choice, check_integer
from ..contract import contract
from .shapes import check_inputs

__all__ = ["Knobs", "Saved", "ablation", "ablation_backward"]

NORMALISERS = {             # name -> (steps in order, the axis of the first sum)
    "softmax": (("softmax",), "k"),
    "none": (("mask",), None),
    "rms_head": (("mask", "rms_head"), "h"),
    "softmax_rms_head": (("softmax", "rms_head"), "k"),
    "rms_head_softmax": (("mask", "rms_head", "softmax"), "h"),
}
PHI = {"identity": (lambda x: x, lambda x, dy: dy), "relu": (ops.relu, ops.relu_backward)}


class Knobs(NamedTuple):
    """A variant of Table A1: `normaliser`, `code_uses` (1, 2 or 3) and `phi` (identity or relu)."""
    normaliser: str
    code_uses: int
    phi: str

    def check(self):
        """Itself.  Raises ValueError naming the knob, its value and what is allowed."""
        check_choice("normaliser", self.normaliser, NORMALISERS)
        check_integer("code_uses", self.code_uses, 1, 3)
        check_choice("phi", self.phi, PHI)
        return self


class Saved(NamedTuple):
    knobs: Knobs
    q: Any
    k: Any
    v: Any
    wv2: Any
    bias: Any
    keep: Any
    dropout: Any
    code: Any                  # (b, h, q, k), before dropout
    steps: tuple               # what each step of the normaliser keeps
    z: Any                     # (b, q, k, e), first hidden layer before phi; None with one use
    z2: Any                    # (b, q, k, f), second hidden layer before phi; None with fewer than three


STEPS = {                   # (s, keep) -> what is kept, the code first;   (*kept, da, keep) -> ds
    "softmax": (lambda s, keep: (ops.softmax(s, keep),), lambda a, da, keep: ops.softmax_backward(a, da)),
    "mask": (lambda s, keep: (ops.dropped_to_zero(s, keep),), lambda a, da, keep: ops.dropped_to_zero(da, keep)),
    "rms_head": (lambda s, keep: ops.rms_head(s), lambda a, rho, da, keep: ops.rms_head_backward(a, rho, da)),
}


def normalise(s, keep, steps):
    """The code from the scores, step by step, and what each step keeps."""
    undo = []
    for step in steps:
        undo.append(STEPS[step][0](s, keep))
        s = undo[-1][0]
    return s, tuple(undo)


def normalise_backward(undo, keep, steps, da):
    """ds of `normalise`, its steps undone in reverse."""
    for step, kept in zip(reversed(steps), reversed(undo), strict=True):
        da = STEPS[step][1](*kept, da, keep)
    return da


def ablation(q, k, v, wv2=None, *, knobs, bias=None, keep=None, dropout=None):
    """o[b, q, h, e] of the variant that `knobs` describes.  Returns o and Saved.

    Shapes
    ------
    q       : b q h d
    k       : b k h d
    v       : b k h e
    wv2     : h e e        (three uses only: the second layer of the value network)
    bias    : b h q k      (finite, broadcasts)
    keep    : b h q k      (bool, broadcasts; weight exactly 0 where False)
    dropout : b h q k      (broadcasts; already divided by 1 - p; multiplied into the code once, seen by every use)
    returns : b q h e

    Raises ValueError for unknown knobs, shapes that do not fit, or a wv2 that is missing or not wanted, TypeError for
    dtypes or devices that do not fit.
    """
    check_inputs(q, k, v, bias, keep, dropout, **{} if wv2 is None else {"wv2": (wv2, "hee")})
    knobs = Knobs(*knobs).check()
    (steps, over), phi, uses = NORMALISERS[knobs.normaliser], PHI[knobs.phi][0], knobs.code_uses
    if (wv2 is None) != (uses != 3):
        raise ValueError(f"wv2 is {'missing' if wv2 is None else 'given'}, but code_uses is {uses}; "
                         f"allowed: wv2 with 3, None with 1 and 2")
    s = ops.scores(q, k, bias, over=over)                       # (1) eq. 1
    a, undo = normalise(s, keep, steps)                         # (2) eq. 1, sigma
    c = ops.drop(a, dropout)                                    # (3)
    z = z2 = None
    if uses == 1:
        o = contract("bhqk,bkhe->bqhe", c, phi(v))              # (9) eq. 3
        return o, Saved(knobs, q, k, v, wv2, bias, keep, dropout, a, undo, z, z2)
    z = contract("bhqk,bkhe->bqke", c, v)                       # (4) eq. 6, inner sum
    g = phi(z)                                                  # (5)
    if uses == 3:
        u = contract("bqke,hef->bqkhf", g, wv2)                 # (6) eq. 10
        z2 = contract("bhqk,bqkhf->bqkf", c, u)                 # (7) eq. 10
        g = phi(z2)                                             # (8)
    o = contract("bhqk,bqke->bqhe", c, g)                       # (9) eq. 6, outer sum
    return o, Saved(knobs, q, k, v, wv2, bias, keep, dropout, a, undo, z, z2)


def ablation_backward(saved, do):
    """dq, dk, dv, dbias, dwv2 from do (b, q, h, e); None for what was not given."""
    knobs, q, k, v, wv2, bias, keep, dropout, a, undo, z, z2 = saved
    phi, phi_backward = PHI[knobs.phi]
    c, dwv2 = ops.drop(a, dropout), None                        # (3) again
    if knobs.code_uses == 1:
        dc = contract("bqhe,bkhe->bhqk", do, phi(v), order=a)   # (9)
        dv = phi_backward(v, contract("bhqk,bqhe->bkhe", c, do))                # (9)
    else:
        last = z if z2 is None else z2
        dc = contract("bqhe,bqke->bhqk", do, phi(last), order=a)                # (9)
        dg = contract("bhqk,bqhe->bqke", c, do)                 # (9)
        if knobs.code_uses == 3:
            dz2 = phi_backward(z2, dg)                          # (8)
            g = phi(z)                                          # (5) again
            u = contract("bqke,hef->bqkhf", g, wv2)             # (6) again
            dc += contract("bqkf,bqkhf->bhqk", dz2, u)          # (7)
            du = contract("bhqk,bqkf->bqkhf", c, dz2)           # (7)
            dwv2 = contract("bqke,bqkhf->hef", g, du)           # (6)
            dg = contract("bqkhf,hef->bqke", du, wv2)           # (6)
        dz = phi_backward(z, dg)                                # (5)
        dc += contract("bqke,bkhe->bhqk", dz, v, order=a)       # (4)
        dv = contract("bhqk,bqke->bkhe", c, dz)                 # (4)
    da = ops.drop(dc, dropout, out=dc)                          # (3)
    ds = normalise_backward(undo, keep, NORMALISERS[knobs.normaliser][0], da)   # (2)
    dq, dk, dbias = ops.scores_backward(q, k, bias, ds)         # (1)
    return dq, dk, dv, dbias, dwv2
