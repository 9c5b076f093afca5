"""Windows of a text that score every token once, token by token."""

import numpy as np


def windows(ids, length, context):
    """(tokens, target, weight), each (b, t): target number n = 1, 2, ... stands in the first window if n <= length.

    Otherwise in the window number w = 1 + (n - 1 - length) // (length - context), whose first token is number
    w (length - context); its first `context` tokens are read again, and what follows each of these is not scored.

    >>> [x.tolist() for x in windows([7, 8, 9], 2, 0)]
    [[[7, 8]], [[8, 9]], [[1.0, 1.0]]]
    """
    step, rows = length - context, {0: ([0] * length, [0] * length, [0.0] * length)}
    for n in range(1, len(ids)):
        w = 0 if n <= length else 1 + (n - 1 - length) // step
        rows.setdefault(w, ([0] * length, [0] * length, [0.0] * length))[2][n - 1 - w * step] = 1.0
    for w, (tokens, target, _) in rows.items():
        for t in range(length):
            for n, row in (w * step + t, tokens), (w * step + t + 1, target):
                row[t] = int(ids[n]) if n < len(ids) else 0
    return tuple(np.array([rows[w][part] for w in sorted(rows)]) for part in range(3))
