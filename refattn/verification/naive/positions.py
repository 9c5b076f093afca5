"""Positional schemes by their scalar formulas."""

import math

import numpy as np

from .arguments import exact

FLOAT32_EPSILON = np.finfo(np.float32).eps              # 1.19e-7; the original code adds it to n / m


def bucket(distance, buckets, max_distance, bidirectional=False):
    """The T5 bucket of distance = (position of the query) - (position of the key).

    With n the distance, 0 if negative, and m = buckets // 2: bucket n if n < m, else
    min(buckets - 1, m + floor((buckets - m) log(n / m + 1.19e-7) / log(max_distance / m))).
    n / m, the sum and log of it are rounded to 32 bits.
    Bidirectional: this with half of the buckets and n = |distance|, keys after the query in the upper half.

    Source: the authors' code, after Raffel et al. 2020.
    Units: distances in tokens.

    >>> [bucket(n, 32, 32) for n in (-5, 0, 15, 19, 20, 27, 28, 31)]
    [0, 0, 15, 19, 21, 28, 28, 31]
    >>> [bucket(n, 32, 128, bidirectional=True) for n in (-128, -8, -1, 0, 1, 8, 127)]
    [31, 24, 17, 0, 1, 8, 15]
    """
    if bidirectional:
        upper = buckets // 2 if distance < 0 else 0
        return upper + bucket(abs(distance), buckets // 2, max_distance)
    n, m = max(distance, 0), buckets // 2
    if n < m:
        return n
    steps = float(np.log(np.float32(n) / np.float32(m) + FLOAT32_EPSILON)) / math.log(max_distance / m) * (buckets - m)
    return min(buckets - 1, m + math.floor(steps))


def t5_bias(table, queries, keys, max_distance=None, bidirectional=False):
    """bias_hij = table[h, bucket(i - j)].

    Shapes: table (h, w), returns (h, q, k) with q = queries and k = keys.  max_distance is w unless given, in tokens.

    >>> t5_bias([[7.0, 8.0, 9.0]], 3, 3)[0]
    array([[7., 7., 7.],
           [8., 7., 7.],
           [9., 8., 7.]])
    """
    table = exact(table)
    heads, buckets = table.shape
    max_distance = buckets if max_distance is None else max_distance
    bias = np.zeros((heads, queries, keys), dtype=table.dtype)
    for h, i, j in np.ndindex(bias.shape):
        bias[h, i, j] = table[h, bucket(i - j, buckets, max_distance, bidirectional)]
    return bias


def rotary(x, pairing="interleaved", base=10000.0, start=0):
    """Each pair (x_1, x_2) of features turned by the angle t base^(-2 c / d), t the position, c = 0, 1, ... the pair.

    Pairs are (x_2c, x_2c+1) when `interleaved`, (x_c, x_c+d/2) when `half`.
    Source: Su et al. 2024.

    Shapes: x (b, t, h, d) with d even, returns the same.  `start` is the position of the first token.

    >>> x = np.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 1, 1, 4)
    >>> np.round(rotary(x, base=1.0, start=np.pi / 2).ravel(), 12)                     # a quarter turn
    array([-2.,  1., -4.,  3.])
    >>> np.round(rotary(x, "half", base=1.0, start=np.pi / 2).ravel(), 12)
    array([-3., -4.,  1.,  2.])
    """
    if pairing not in ("interleaved", "half"):
        raise ValueError(f"pairing is {pairing!r}; allowed: 'interleaved', 'half'")
    x = exact(x)
    y = np.zeros_like(x)
    width = x.shape[-1]
    for b, t, h in np.ndindex(x.shape[:3]):
        for c in range(width // 2):
            one, two = (2 * c, 2 * c + 1) if pairing == "interleaved" else (c, c + width // 2)
            angle = (start + t) * base ** (-2 * c / width)
            y[b, t, h, one] = math.cos(angle) * x[b, t, h, one] - math.sin(angle) * x[b, t, h, two]
            y[b, t, h, two] = math.sin(angle) * x[b, t, h, one] + math.cos(angle) * x[b, t, h, two]
    return y


def sinusoidal(length, width, base=10000.0):
    """table_t,2c = sin(t base^(-2 c / m)) and table_t,2c+1 = cos(t base^(-2 c / m)).

    Source: Vaswani et al. 2017, section 3.5.  Shapes: returns (t, m) with t = length and m = width.

    >>> np.round(sinusoidal(2, 4), 4)
    array([[0.    , 1.    , 0.    , 1.    ],
           [0.8415, 0.5403, 0.01  , 1.    ]])
    """
    table = np.zeros((length, width))
    for t, m in np.ndindex(table.shape):
        angle = t * base ** (-2 * (m // 2) / width)
        table[t, m] = math.sin(angle) if m % 2 == 0 else math.cos(angle)
    return table


def image_table(length, width):
    """table_t,i = c sin(t / 10000^(2 i / m)) for even features i, c cos(t / 10000^(2 i / m)) for odd ones.

    c = 1 / (1 + e^-1).  Source: Compositional Attention, the authors' code of the image tasks: i, not i / 2.
    Shapes: returns (t, m).
    """
    table = np.zeros((length, width))
    for t, m in np.ndindex(table.shape):
        angle = t / 10000 ** (2 * m / width)
        table[t, m] = (math.sin(angle) if m % 2 == 0 else math.cos(angle)) / (1 + math.exp(-1))
    return table


def halves_table(length, width, start=2):
    """table_t,c = sin((t + start) w_c) and table_t,c+m/2 = cos((t + start) w_c), w_c = exp(-c ln(10000) / (m / 2 - 1)).

    Source: Compositional Attention, the authors' code of the language model.  Shapes: returns (t, m).
    """
    table = np.zeros((length, width))
    for t, c in np.ndindex(length, width // 2):
        angle = (t + start) * math.exp(-c * math.log(10000) / (width // 2 - 1))
        table[t, c], table[t, c + width // 2] = math.sin(angle), math.cos(angle)
    return table
