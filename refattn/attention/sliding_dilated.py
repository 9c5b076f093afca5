"""Sliding-dilated attention: each query sees itself and the C - 1 keys before it that are a dilation apart.

    s[h, q, w] = q_q . k_n / sqrt(d) + offset_bias[h, w],   n = position of q - w x dilation,   w = 0 .. C - 1  eq. (1)
    a[h, q]    = softmax over the offsets w of s;     o[h, q] = sum_w a[h, q, w] v_n

Source: R, section 3.1, eq. (1), and the authors' code.  Differs: eq. (1) as C shifted products, not as a T x T mask; a
window for every position, where the text of R speaks of chunks that do not overlap (the last position is the same); a
key is missing because of its index (n < 0), where the code takes a bias of exactly 0 for a mask; `bias`, `keep` and
`dropout` act on the (query, offset) pairs.
Out of range, two semantics: "mask" (eq. 1: the key does not exist, the softmax runs over the others) and "pad" (code: a
learned vector stands at every position before the first, in every layer the same).
Symbols: `offset_bias` = r (R: relative positional scalars), not divided by sqrt(d) and the same at every dilation; C =
chunk, the size of w.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import ops
from ..checks import check_choice, check_integers, check_read, check_switch
from ..contract import agree, laid_out_like
from ..layers.positions import slice_of
from ..layers.protocol import check_tokens
from ..params import Parameter
from ..xp import check_alike
from .kept import appended
from .projections import AttentionLayer, in_maps, mapped, out, out_map, weights
from .shapes import check_pairs
from .windows import mixtures, present, products, scattered, windows

__all__ = ["Saved", "SlidingDilated", "sliding_dilated", "sliding_dilated_backward"]

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
    dc = products(do, v, pad_v, at)                                             # (6)
    dv, dpad_v = scattered(c, do, at, v.shape[1], pad_v)                        # (6)
    da = ops.drop(dc, dropout, out=dc)                                          # (5)
    ds = ops.softmax_backward(a, da, out=da)                                    # (4)
    dbias = None if bias is None else ops.unbroadcast(ds, bias.shape)           # (3)
    doffset_bias = ds.sum(axis=(0, 2))                                          # (2)
    dq = mixtures(ds, k, pad_k, at)                                             # (1)
    dq *= scale                                                                 # (1)
    dk, dpad_k = scattered(ds, q * scale, at, k.shape[1], pad_k)                # (1)
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


@dataclass(frozen=True)
class SlidingDilated(AttentionLayer):
    """y_i = sum_h o_ih W_h^out around `sliding_dilated`; `head_width` is d, `value_width` (the same unless given) e.

    With out_of_range "pad" the layer owns the vector `pad` (m), which stands before the first token and is projected
    like one.  `biases` are those of q, k, v and the output; the released code has none.
    """
    width: int
    heads: int
    head_width: int
    chunk: int
    dilation: int = 1
    out_of_range: str = "pad"
    biases: bool = False
    value_width: int | None = None

    def __post_init__(self):
        vars(self)["value_width"] = self.head_width if self.value_width is None else self.value_width
        check_integers(vars(self), "width", "heads", "head_width", "value_width", "dilation")
        check_integers(vars(self), "chunk", least=2)
        check_switch("biases", self.biases)
        check_choice("out_of_range", self.out_of_range, OUT_OF_RANGE)

    def parameters(self) -> dict:
        """wq bq wk bk wv bv, offset_bias (h, w), pad (m) where it is used, wo bo."""
        m, size = self.width, {"h": self.heads, "d": self.head_width, "e": self.value_width}
        names = in_maps(m, self.biases, size, q="hd", k="hd", v="he")
        names["offset_bias"] = Parameter("hw", (self.heads, self.chunk), self.chunk, "vector")
        if self.out_of_range == "pad":
            names["pad"] = Parameter("m", (m,), m, "vector")
        return names | out_map(m, self.biases, size, "he")

    def forward(self, p, x, *, context=None, bias=None, keep=None, dropout=None, read=None) -> tuple:
        """y (b, q, m) from x (b, t, m).  Returns y and Saved.

        `bias`, `keep` and `dropout` broadcast to (b, h, q, w), the pairs of query and offset; `read`, a slice of
        positions in steps of at least 1, gives y[:, read] at the cost of those queries only.  Raises ValueError for a
        context: offsets count back along x itself.
        """
        if context is not None:
            raise ValueError("context is given, but sliding-dilated attention looks back along x; allowed: None")
        return super().forward(p, x, bias=bias, keep=keep, dropout=dropout, read=read)

    def page(self, p, arrays, at, bias, keep, dropout):
        """o (b, q, h, e) from q, k, v, and what the page saves; without `at` the queries are the last tokens."""
        pads = [ops.linear(p.pad[None], w, b)[0] for w, b in weights(p, "kv")] if self.out_of_range == "pad" else ()
        o, saved = sliding_dilated(arrays["q"], arrays["k"], arrays["v"], p.offset_bias, *pads, dilation=self.dilation,
                                   out_of_range=self.out_of_range, read=None if at is None else slice_of(at), bias=bias,
                                   keep=keep, dropout=dropout)
        return o, None, saved

    def page_backward(self, p, saved, do, grads):
        """The gradients of q, k, v by name, and dbias; those of offset biases and pad are added into `grads`."""
        dq, dk, dv, dbias, doffset_bias, *dpads = sliding_dilated_backward(saved.attention, do)
        grads.offset_bias += doffset_bias
        for (w, _), (dw, db), dpad in zip(weights(p, "kv"), weights(grads, "kv"), dpads, strict=False):
            found = ops.linear_backward(p.pad[None], w, dpad[None])             # the pad is projected like a token
            grads.pad += found[0][0]
            dw += found[1]
            if db is not None:
                db += found[2]
        return {"q": dq, "k": dk, "v": dv}, dbias

    def extend(self, p, x, kept=None, *, bias=None, keep=None):
        """y (b, n, m) of n further tokens x (b, n, m), and the Kept that includes them; `kept` is None at the start.

        `bias` and `keep` broadcast to (b, h, n, w).
        """
        check_tokens(self.width, x=x)
        arrays = mapped(p, x, "qkv")
        kept = appended(kept, {"k": arrays["k"], "v": arrays["v"]})
        return out(p, self.page(p, arrays | kept.seen(), None, bias, keep, None)[0]), kept
