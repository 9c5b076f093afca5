"""Right kernels in NumPy that turn an array by its positions; `rows.py` has their mistakes."""

from math import cos as cosine
from math import log
from math import sin as sine

import numpy as np


def rotate_every_two(x):
    """(-x1, x0, -x3, x2, ...)."""
    return np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)


def rotate_half(x):
    """The second half of the features with the other sign, then the first."""
    first, second = np.split(x, 2, -1)
    return np.concatenate([-second, first], -1)


# -------------------------------------------------------------------------------------------------------- interleaved

def pairs_gptj(x, do):
    """GPT-J's: sines and cosines repeated for both features of a pair."""
    d = x.shape[-1]
    inverse = 1.0 / 10000 ** (np.arange(0, d, 2) / d)
    angle = np.einsum("t,c->tc", np.arange(x.shape[1]), inverse)
    sin, cos = (np.repeat(f(angle), 2, -1)[:, None].astype(x.dtype) for f in (np.sin, np.cos))
    o = x * cos + rotate_every_two(x) * sin
    dx = do * cos - rotate_every_two(do) * sin
    return o, dx


def pairs_complex(x, do):
    """Llama's: a pair is a complex number."""
    b, t, h, d = x.shape
    theta = 10000.0 ** -(np.arange(0, d, 2)[:d // 2] / d)
    turn = np.exp(1j * np.outer(np.arange(t), theta))[:, None].astype(np.result_type(x, np.complex64))
    z = np.ascontiguousarray(x).view(turn.dtype) * turn
    g = np.ascontiguousarray(do).view(turn.dtype) * turn.conj()
    return z.view(x.dtype), g.view(x.dtype)


def pairs_matrices(x, do):
    """A matrix of 2 by 2 for each position and pair."""
    b, t, h, d = x.shape
    angle = np.arange(t)[:, None] / 10000 ** (np.arange(0, d, 2) / d)
    c, s = np.cos(angle), np.sin(angle)
    r = np.array([[c, -s], [s, c]]).astype(x.dtype)
    o = np.einsum("ijtc,bthcj->bthci", r, x.reshape(b, t, h, d // 2, 2))
    dx = np.einsum("ijtc,bthci->bthcj", r, do.reshape(b, t, h, d // 2, 2))
    return o.reshape(x.shape), dx.reshape(x.shape)


def pairs_heads_first(x, do):
    """Tables of 64 positions, which are cut; heads stand before positions inside."""
    t, d = x.shape[1], x.shape[3]
    angle = np.arange(64)[:, None] * np.exp(np.arange(0, d, 2) * (-log(10000) / d))
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
    cos, sin = cos[:t], sin[:t]
    y, g = x.transpose(0, 2, 1, 3), do.transpose(0, 2, 1, 3)
    o, dx = np.empty_like(y), np.empty_like(g)
    o[..., ::2] = y[..., ::2] * cos - y[..., 1::2] * sin
    o[..., 1::2] = y[..., ::2] * sin + y[..., 1::2] * cos
    dx[..., ::2] = g[..., ::2] * cos + g[..., 1::2] * sin
    dx[..., 1::2] = g[..., 1::2] * cos - g[..., ::2] * sin
    return o.transpose(0, 2, 1, 3), dx.transpose(0, 2, 1, 3)


def pairs_loops(x, do):
    """Position by position and pair by pair in float64."""
    o, dx, d = x.astype(float), do.astype(float), x.shape[3]
    for t in range(x.shape[1]):
        for i in range(0, d, 2):
            angle = t * 10000 ** (-i / d)
            c, s = cosine(angle), sine(angle)
            one, two = x[:, t, :, i], x[:, t, :, i + 1]
            o[:, t, :, i] = c * one - s * two
            o[:, t, :, i + 1] = s * one + c * two
            one, two = do[:, t, :, i], do[:, t, :, i + 1]
            dx[:, t, :, i] = c * one + s * two
            dx[:, t, :, i + 1] = c * two - s * one
    return o.astype(x.dtype), dx.astype(x.dtype)


def pairs_recurrence(x, do):
    """The turn by one position again and again, in float64."""
    d, o, dx = x.shape[-1], [], []
    step = np.exp(1j * 10000.0 ** (-np.arange(0, d, 2) / d))
    turn = np.ones(d // 2, complex)
    for t in range(x.shape[1]):
        z = (x[:, t, :, ::2] + 1j * x[:, t, :, 1::2]) * turn
        g = (do[:, t, :, ::2] + 1j * do[:, t, :, 1::2]) * turn.conj()
        o.append(np.stack([z.real, z.imag], -1))
        dx.append(np.stack([g.real, g.imag], -1))
        turn = turn * step
    return tuple(np.stack(y, 1).reshape(x.shape).astype(x.dtype) for y in (o, dx))


def pairs_rows(x, do):
    """Rows of all sequences with their position ids, one table of sines and cosines, one program for both ways."""
    b, t, h, d = x.shape
    ids = np.tile(np.arange(t), b)
    angle = np.arange(b * t)[:, None] * (1 / 10000 ** (np.arange(0, d, 2, dtype=np.float64) / d))
    table = np.concatenate([np.sin(angle), np.cos(angle)], 1).astype(x.dtype)
    sin, cos = np.split(table[ids][:, None], 2, -1)
    found = []
    for y, sign in ((x, 1), (do, -1)):
        even, odd = np.moveaxis(y.reshape(b * t, h, d // 2, 2), -1, 0)
        turned = even * cos - sign * odd * sin, odd * cos + sign * even * sin
        found.append(np.stack(turned, -1).reshape(x.shape))
    return tuple(found)


def pairs_in_place(x, do):
    """Copies whose features are overwritten."""
    d, o, dx = x.shape[-1], x.copy(), do.copy()
    angle = np.arange(x.shape[1])[:, None, None] * np.power(10000.0, -np.arange(d // 2) * 2 / d)
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
    for y, s in ((o, sin), (dx, -sin)):
        even = y[..., ::2].copy()
        y[..., ::2] *= cos
        y[..., ::2] -= y[..., 1::2] * s
        y[..., 1::2] *= cos
        y[..., 1::2] += even * s
    return o, dx


def pairs_dense(x, do):
    """A matrix of d by d for each position, as the paper writes it."""
    t, d = x.shape[1], x.shape[3]
    r = np.zeros((t, d, d))
    for p, i in np.ndindex(t, d // 2):
        c, s = (f(p * 10000 ** (-2 * i / d)) for f in (cosine, sine))
        r[p, 2 * i:2 * i + 2, 2 * i:2 * i + 2] = (c, -s), (s, c)
    r = r.astype(x.dtype)
    return x @ r.swapaxes(1, 2), do @ r


# --------------------------------------------------------------------------------------------------------------- half

def halves_neox(x, do):
    """GPT-NeoX's: tables twice side by side, rotate_half, and heads before positions."""
    d = x.shape[-1]
    inverse = 1.0 / (10000 ** (np.arange(0, d, 2, dtype=float) / d))
    freqs = np.einsum("i,j->ij", np.arange(x.shape[1], dtype=float), inverse)
    emb = np.concatenate((freqs, freqs), -1)
    cos, sin = (f(emb)[None, None].astype(x.dtype) for f in (np.cos, np.sin))
    q, g = x.swapaxes(1, 2), do.swapaxes(1, 2)
    o = q * cos + rotate_half(q) * sin
    dx = g * cos - rotate_half(g) * sin
    return o.swapaxes(1, 2), dx.swapaxes(1, 2)


def halves_complex(x, do):
    """The halves are real and imaginary parts."""
    t, half = x.shape[1], x.shape[3] // 2
    angle = np.arange(t)[:, None, None] * 10000.0 ** (-np.arange(half) / half)
    turn = np.exp(1j * angle).astype(np.result_type(x, np.complex64))
    z = (x[..., :half] + 1j * x[..., half:]) * turn
    g = (do[..., :half] + 1j * do[..., half:]) * turn.conj()
    return tuple(np.concatenate([y.real, y.imag], -1) for y in (z, g))


def halves_matrices(x, do):
    """A matrix of 2 by 2 for each position and pair."""
    b, t, h, d = x.shape
    angle = np.multiply.outer(np.arange(t), np.exp(-log(10000) * np.arange(0, d, 2) / d))
    c, s = np.cos(angle), np.sin(angle)
    r = np.array([[c, -s], [s, c]]).astype(x.dtype)
    o = np.einsum("ijtc,bthjc->bthic", r, x.reshape(b, t, h, 2, -1))
    dx = np.einsum("ijtc,bthic->bthjc", r, do.reshape(b, t, h, 2, -1))
    return o.reshape(x.shape), dx.reshape(x.shape)


def halves_cache(x, do):
    """Llama's in Transformers: a cache of 128 positions, from which position ids pick."""
    b, t, h, d = x.shape
    ids = np.broadcast_to(np.arange(t), (b, t))
    freqs = np.outer(np.arange(128), 10000 ** (-np.arange(0, d, 2) / d))
    emb = np.tile(freqs, 2)
    cos, sin = (f(emb).astype(x.dtype)[ids][:, :, None] for f in (np.cos, np.sin))
    return x * cos + rotate_half(x) * sin, do * cos - rotate_half(do * sin)


def halves_loops(x, do):
    """Position by position and pair by pair in float64."""
    o, dx, half = x.astype(float), do.astype(float), x.shape[3] // 2
    for t in range(x.shape[1]):
        for i in range(half):
            angle = t / 10000 ** (i / half)
            c, s = cosine(angle), sine(angle)
            one, two = x[:, t, :, i], x[:, t, :, i + half]
            o[:, t, :, i] = c * one - s * two
            o[:, t, :, i + half] = s * one + c * two
            one, two = do[:, t, :, i], do[:, t, :, i + half]
            dx[:, t, :, i] = c * one + s * two
            dx[:, t, :, i + half] = c * two - s * one
    return o.astype(x.dtype), dx.astype(x.dtype)


def halves_recurrence(x, do):
    """Sines and cosines of the sum of angles, position after position in float64."""
    o, dx, half = np.empty(x.shape), np.empty(x.shape), x.shape[-1] // 2
    theta = 10000.0 ** (-2.0 * np.arange(half) / x.shape[-1])
    c1, s1 = np.cos(theta), np.sin(theta)
    c, s = np.ones(half), np.zeros(half)
    for t in range(x.shape[1]):
        one, two = np.split(x[:, t], 2, -1)
        o[:, t] = np.concatenate([one * c - two * s, two * c + one * s], -1)
        one, two = np.split(do[:, t], 2, -1)
        dx[:, t] = np.concatenate([one * c + two * s, two * c - one * s], -1)
        c, s = c * c1 - s * s1, s * c1 + c * s1
    return o.astype(x.dtype), dx.astype(x.dtype)


def halves_tiles(x, do, tile=2):
    """Tiles of positions, one program for both ways with a switch, as flash attention's."""
    half, found = x.shape[-1] // 2, []
    for y, conjugate in ((x, False), (do, True)):
        z = np.zeros_like(y)
        for start in range(0, y.shape[1], tile):
            rows = np.arange(start, min(start + tile, y.shape[1]))
            angle = np.outer(rows, 10000.0 ** -(np.arange(half) / half))[:, None]
            cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
            if conjugate:
                sin = -sin
            x0, x1 = y[:, rows, :, :half], y[:, rows, :, half:]
            z[:, rows, :, :half] = x0 * cos - x1 * sin
            z[:, rows, :, half:] = x0 * sin + x1 * cos
        found.append(z)
    return tuple(found)


def halves_in_place(x, do):
    """Copies whose halves are overwritten."""
    d, o, dx = x.shape[-1], x.copy(), do.copy()
    angle = (np.arange(x.shape[1])[:, None] * np.exp2(-np.log2(10000) * np.arange(0, d, 2) / d))[:, None]
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
    first, second = o[..., :d // 2], o[..., d // 2:]
    kept = first.copy()
    first[:] = kept * cos - second * sin
    second[:] = second * cos + kept * sin
    dfirst, dsecond = dx[..., :d // 2], dx[..., d // 2:]
    dkept = dfirst.copy()
    dfirst[:] = dkept * cos + dsecond * sin
    dsecond[:] = dsecond * cos - dkept * sin
    return o, dx


def halves_permuted(x, do):
    """Features are put in the order of neighbouring pairs, turned as complex numbers, and put back."""
    t, d = x.shape[1], x.shape[3]
    order = np.arange(d).reshape(2, d // 2).T.reshape(-1)
    turn = np.exp(1j * np.arange(t)[:, None, None] * 10000.0 ** (-np.arange(0, d, 2) / d))
    turn = turn.astype(np.result_type(x, np.complex64))
    z = np.ascontiguousarray(x[..., order]).view(turn.dtype) * turn
    g = np.ascontiguousarray(do[..., order]).view(turn.dtype) / turn
    o, dx = np.empty_like(x), np.empty_like(do)
    o[..., order] = z.view(x.dtype)
    dx[..., order] = g.view(x.dtype)
    return o, dx
