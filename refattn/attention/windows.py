"""Keys at fixed offsets: the sums that sliding-dilated attention is made of, one shift of the keys for each offset.

    products    s[q, j] = x_q . y_n(q, j)
    mixtures    o[q]    = sum_j c[q, j] y_n(q, j)                n(q, j) = position of query q  -  j x dilation
    scattered   dy[n]   = sum of c[q, j] x_q over all q, j with n(q, j) = n

Where n(q, j) < 0 there is no key: there `pad` (h, d) stands, and without a pad the term is 0.  Which it is follows from
the positions, never from a value.  The first two are linear in each argument, and the third is the transpose of both:
these three are the whole backward.  The keys of one offset are a slice, so nothing is gathered, scattered or T x T.
"""

from bisect import bisect_left
from typing import NamedTuple

from ..contract import contract
from ..xp import array_module


class Window(NamedTuple):
    """The keys of one offset: those of the queries `inside` are at `keys`; the queries `outside` have none."""
    inside: slice
    keys: slice
    outside: slice | None


def windows(read: range, chunk: int, dilation: int) -> tuple[Window, ...]:
    """The window of each offset 0 .. chunk - 1, for queries at the positions `read`.

    >>> windows(range(5), 2, 3)[1]
    Window(inside=slice(3, 5, None), keys=slice(0, 2, 1), outside=slice(0, 3, None))
    """
    found = []
    for shift in range(0, chunk * dilation, dilation):
        first = bisect_left(read, shift)            # of the queries that have a key so far back
        inside = read[first:]
        keys = slice(inside[0] - shift, inside[-1] - shift + 1, read.step) if inside else slice(0, 0)
        found.append(Window(slice(first, len(read)), keys, slice(0, first) if first else None))
    return tuple(found)


def present(read: range, chunk: int, dilation: int, xp):
    """keep[q, w]: whether the offset w of query q reaches a key; None where all do."""
    if read and read[0] >= (chunk - 1) * dilation:
        return None
    position = xp.arange(read.start, read.stop, read.step, dtype="int32")
    return position[:, None] >= xp.arange(0, chunk * dilation, dilation, dtype="int32")


def products(x, y, pad, at):
    """s[b,h,q,w] = sum_d(x[b,q,h,d] * y[b,n[q,w],h,d]), pad (h, d), if any, standing where n < 0; `at` are the windows.

    In memory w stands outermost, on a GPU too: each offset is written as one slice.
    """
    b, q, h, _ = x.shape
    xp = array_module(x, y)
    s = xp.zeros((len(at), b, q, h), dtype=xp.result_type(x, y, x if pad is None else pad))
    for row, (inside, keys, outside) in zip(s, at, strict=True):
        row[:, inside] = contract("bqhd,bqhd->bqh", x[:, inside], y[:, keys])
        if pad is not None and outside:
            row[:, outside] = contract("bqhd,hd->bqh", x[:, outside], pad)
    return s.transpose(1, 3, 2, 0)


def mixtures(c, y, pad, at):
    """o[b,q,h,e] = sum_w(c[b,h,q,w] * y[b,n[q,w],h,e]), pad (h, e), if any, standing where n < 0."""
    o = contract("bhq,bqhe->bqhe", c[..., 0], y[:, at[0].keys])             # offset 0 is always inside
    for j, (inside, keys, outside) in enumerate(at[1:], 1):
        o[:, inside] += contract("bhq,bqhe->bqhe", c[:, :, inside, j], y[:, keys])
        if pad is not None and outside:
            o[:, outside] += contract("bhq,he->bqhe", c[:, :, outside, j], pad)
    return o


def scattered(c, x, at, keys: int, pad=None):
    """dy[b,k,h,e] = sum_q(sum_w(c[b,h,q,w] * x[b,q,h,e] * (n[q,w] == k))),
    dpad[h,e] = sum_b(sum_q(sum_w(c[b,h,q,w] * x[b,q,h,e] * (n[q,w] < 0)))), None without a pad.  Returns dy, dpad.
    """
    xp = array_module(c, x)
    dy = xp.zeros((x.shape[0], keys, *x.shape[2:]), dtype=x.dtype)
    dpad = None if pad is None else xp.zeros(x.shape[2:], dtype=x.dtype)
    for j, (inside, places, outside) in enumerate(at):
        dy[:, places] += contract("bhq,bqhe->bqhe", c[:, :, inside, j], x[:, inside])
        if pad is not None and outside:
            dpad += contract("bhq,bqhe->he", c[:, :, outside, j], x[:, outside])
    return dy, dpad
