"""The loss of the next token, token by token."""

import numpy as np

from .arguments import exact
from .losses import cross_entropy


def next_token(h, table, target, scale=1.0):
    """y_bt = log(sum_v exp(z_v)) - z_target with z_v = scale sum_m h_btm table_vm.

    Shapes: h (b, t, m), table (v, m), target (b, t) integers, returns (b, t).

    >>> round(float(np.exp(next_token([[[0.0]]], [[1.0], [2.0], [3.0]], [[1]])).item()), 12)     # three alike
    3.0
    """
    h, table, target = exact(h), exact(table), np.asarray(target)
    y = np.zeros(target.shape, dtype=np.result_type(h, table))
    for b, t in np.ndindex(target.shape):
        z = [scale * sum(h[b, t, m] * row[m] for m in range(len(row))) for row in table]
        y[b, t] = cross_entropy(z, target[b, t])
    return y
