# ruff: noqa: F401, F821, F841
"""Exercise: write the backward of sliding_dilated attention.  The forward is given.

Sliding-dilated attention: each query sees itself and the C - 1 keys before it that are a dilation apart.

    s[h, q, w] = q_q . k_n / sqrt(d) + offset_bias[h, w],   n = position of q - w x dilation,   w = 0 .. C - 1  eq. (1)
    a[h, q]    = softmax over the offsets w of s;     o[h, q] = sum_w a[h, q, w] v_n

Each missing line has left its number and the arrays that it makes; dx is the gradient of x.
    refattn check tutorials/exercises/sliding_dilated.py --as sliding_dilated --bias h1w --keep bhqw --dropout bhqw
says for the output and each gradient whether it is right, and where not, which line is wrong.  Without
--bias, --keep or --dropout it does not look at what belongs to it.
Made by make.py from refattn/attention/sliding_dilated.py.
"""

from typing import Any, NamedTuple

from refattn import ops
from refattn.attention.shapes import check_pairs
from refattn.attention.windows import mixtures, present, products, scattered, windows
from refattn.checks import check_choice, check_integers, check_read
from refattn.contract import agree, laid_out_like
from refattn.xp import check_alike

OUT_OF_RANGE = "mask", "pad"


class Saved(NamedTuple):
    q: Any
    k: Any
    v: Any
    pad: tuple                 # pad_k and pad_v, or None twice
    at: tuple                  # where the keys of each offset are
    bias: Any
    dropout: Any
    code: Any                  # (b, h, q, w), the C weights of each query, before dropout


def sliding_dilated(q, k, v, offset_bias, pad_k=None, pad_v=None, *, dilation=1, out_of_range="mask", read=None,
                    bias=None, keep=None, dropout=None):
    """o[b, q, h, e] = sum_w softmax_w(q.k_n / sqrt(d) + r_w) v_n, n = position - w dilation.  Returns o and Saved.

    Shapes
    ------
    q            : b q h d
    k            : b k h d
    v            : b k h e
    offset_bias  : h w         (r; its width is the chunk size C)
    pad_k, pad_v : h d, h e    (with out_of_range "pad" only: key and value at positions before the first)
    bias         : b h q w     (finite, broadcasts)
    keep         : b h q w     (bool, broadcasts; False = not attended to)
    dropout      : b h q w     (broadcasts; already divided by 1 - p)
    returns      : b q h e

    The queries stand at the positions `read`, a slice, of the keys: at the last ones unless given.  A query that keeps
    nothing gets exactly zero.  `dilation` counts tokens.  Raises ValueError or TypeError for what does not fit.
    """
    xp, read = check(q, k, v, offset_bias, pad_k, pad_v, dilation, out_of_range, read, bias, keep, dropout)
    chunk, dilation = offset_bias.shape[1], max(1, min(dilation, k.shape[1]))   # a greater one reaches no key either
    at = windows(read, chunk, dilation)
    if out_of_range == "mask" and (there := present(read, chunk, dilation, xp)) is not None:
        keep = there if keep is None else keep & there
    s = products(q * q.shape[-1] ** -0.5, k, pad_k, at)                         # (1)
    s += offset_bias[:, None]                                                   # (2) eq. 1, M: r by offset
    if bias is not None:
        s += laid_out_like(bias, s)                                             # (3)
    a = ops.softmax(s, keep, out=s)                                             # (4) over offsets
    c = ops.drop(a, dropout)                                                    # (5)
    o = mixtures(c, v, pad_v, at)                                               # (6)
    return o, Saved(q, k, v, (pad_k, pad_v), at, bias, dropout, a)


def sliding_dilated_backward(saved, do):
    """dq, dk, dv, dbias, doffset_bias, and with pads dpad_k, dpad_v, from do (b, q, h, e); dbias None without bias."""
    q, k, v, (pad_k, pad_v), at, bias, dropout, a = saved
    scale = q.shape[-1] ** -0.5
    c = ops.drop(a, dropout)                                                    # (5) again
    # (6)                                  dc = ?
    # (6)                                  dv, dpad_v = ?
    # (5)                                  da = ?
    # (4)                                  ds = ?
    # (3)                                  dbias = ?
    # (2)                                  doffset_bias = ?
    # (1)                                  dq = ?
    # (1)                                  dk, dpad_k = ?
    raise NotImplementedError("lines (6) to (1) are to be written")
    return (dq, dk, dv, dbias, doffset_bias) + ((dpad_k, dpad_v) if pad_k is not None else ())


def check(q, k, v, offset_bias, pad_k, pad_v, dilation, out_of_range, read, bias, keep, dropout):
    """The array module and the queries' positions, if the arguments fit together."""
    named = {"pad_k": (pad_k, "hd"), "pad_v": (pad_v, "he")}
    check_choice("out_of_range", out_of_range, OUT_OF_RANGE)
    for name, (x, _) in named.items():
        if (x is None) != (out_of_range == "mask"):
            raise ValueError(f"{name} is {'missing' if x is None else 'given'}, but out_of_range is {out_of_range!r}; "
                             f"allowed: pads with 'pad', None with 'mask'")
    xp = check_alike(q=q, k=k, v=v, offset_bias=offset_bias, pad_k=pad_k, pad_v=pad_v, bias=bias, dropout=dropout)
    size = agree(q=(q, "bqhd"), k=(k, "bkhd"), v=(v, "bkhe"), offset_bias=(offset_bias, "hw"),
                 **{name: pair for name, pair in named.items() if pair[0] is not None})
    check_integers({"dilation": dilation, "chunk": size["w"]})
    check_read(read)
    if read is None and size["q"] > size["k"]:
        raise ValueError(f"q has {size['q']} queries, k {size['k']} keys; allowed: at most as many queries as keys")
    positions = range(size["k"])[slice(size["k"] - size["q"], None) if read is None else read]
    if len(positions) != size["q"] or positions.step < 1:
        raise ValueError(f"read is {read}, which gives {len(positions)} of {size['k']} positions for {size['q']} "
                         f"queries; allowed: as many, and steps of at least 1")
    check_pairs(xp, size, "bhqw", bias, keep, dropout)
    return xp, positions
