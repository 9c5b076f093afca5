"""Sliding-dilated attention as the paper prints it: softmax attention under a T x T matrix of biases and -infinity."""

import numpy as np

from .arguments import exact, filled
from .layer import affine, output_map
from .softmax import softmax


def sliding_dilated(q, k, v, offset_bias, pad_k=None, pad_v=None, *, dilation=1, read=None, bias=None, keep=None,
                    dropout=None):
    """o_i = softmax attention over all keys with M_h,m,n = r_h,j where m - n = j dilation, else -infinity.

    Source: RegularGPT, eq. 1; with pads the authors' code: (C - 1) dilation copies of one key and value stand before
    the first, and the matrix is that much wider.  Without them a key before the first does not exist.

    Shapes
    ------
    q, k, v             : (b, q, h, d), (b, k, h, d), (b, k, h, e)
    offset_bias         : (h, w), r;  pad_k, pad_v : (h, d), (h, e) or None
    read                : the queries' positions, a slice of the keys'; the last ones unless given
    bias, keep, dropout : broadcast to (b, h, q, w), one entry for each offset
    returns             : (b, q, h, e)

    Two tokens, chunk 2, r = (0, log 3), all scores 0.  The first sees itself alone; the second has weights 1/4 and 3/4:

    >>> q, v, r = np.zeros((1, 2, 1, 1)), np.array([[[[8.0]], [[4.0]]]]), np.log([[1.0, 3.0]])
    >>> sliding_dilated(q, q, v, r).ravel()
    array([8., 7.])
    """
    (batch, queries, heads, _), chunk = np.shape(q), np.shape(offset_bias)[1]
    pads = 0 if pad_k is None else (chunk - 1) * dilation
    if pads:
        k, v = (np.concatenate([np.broadcast_to(exact(pad), (batch, pads, *np.shape(pad))), exact(x)], axis=1)
                for pad, x in ((pad_k, k), (pad_v, v)))
    keys = np.shape(k)[1]
    positions = range(keys - pads)[slice(keys - pads - queries, None) if read is None else read]
    bias, keep, dropout = filled((batch, heads, queries, chunk), bias, keep, dropout)
    shape = batch, heads, queries, keys
    matrix = np.zeros(shape, np.result_type(exact(offset_bias), bias))
    seen, factors = np.zeros(shape, bool), np.ones(shape, dropout.dtype)
    for b, h, i, j in np.ndindex(batch, heads, queries, chunk):
        n = pads + positions[i] - j * dilation
        if n >= 0:
            matrix[b, h, i, n] = offset_bias[h, j] + bias[b, h, i, j]
            seen[b, h, i, n], factors[b, h, i, n] = keep[b, h, i, j], dropout[b, h, i, j]
    return softmax(q, k, v, bias=matrix, keep=seen, dropout=factors)


def layer(p, x, *, dilation=1, bias=None, keep=None, dropout=None):
    """y_i = bo + sum_h o_ih wo_h, with q = x wq + bq and so on, and the pads p.pad wk + bk, p.pad wv + bv if p has one.

    Source: RegularGPT, section 3.1 and the authors' code.

    Shapes
    ------
    x       : (b, t, m)
    p       : wq (m, h, d)  wk  wv (m, h, e)  wo (h, e, m)  offset_bias (h, w); perhaps pad (m), bq, bk, bv, bo
    returns : (b, t, m)
    """
    q, k, v = (affine(p, x, name) for name in "qkv")
    pads = [affine(p, p.pad, name) for name in "kv"] if hasattr(p, "pad") else []
    o = sliding_dilated(q, k, v, p.offset_bias, *pads, dilation=dilation, bias=bias, keep=keep, dropout=dropout)
    return output_map(p, o)
