"""Linear attention as a recurrence, token by token."""

import numpy as np

from .arguments import exact


def linear_state(q, k, v, state=None):
    """S_t = S_{t-1} + k_t v_t^T and o_t = q_t S_t / sqrt(d), for each head; S_0 is `state`, or 0.

    Source: Katharopoulos et al. 2020, equations 16 to 20, without feature map and normaliser.
    Shapes: q, k (b, t, h, d), v (b, t, h, e), state (b, h, d, e), returns o (b, t, h, e) and the last S (b, h, d, e).

    >>> o, last = linear_state([[[[2.0]], [[3.0]]]], [[[[1.0]], [[5.0]]]], [[[[10.0]], [[1.0]]]])
    >>> o.ravel().tolist(), last.item()                             # 2 x 10, 3 x 15
    ([20.0, 45.0], 15.0)
    """
    q, k, v = exact(q), exact(k), exact(v)
    (b, steps, h, d), e = q.shape, v.shape[3]
    whole = np.result_type(q, k, v, 0.0 if state is None else exact(state))
    s = np.zeros((b, h, d, e), dtype=whole) if state is None else exact(state).astype(whole)
    o = np.zeros((b, steps, h, e), dtype=whole)
    for n, t, i in np.ndindex(b, steps, h):
        for x, y in np.ndindex(d, e):
            s[n, i, x, y] += k[n, t, i, x] * v[n, t, i, y]
        for x, y in np.ndindex(d, e):
            o[n, t, i, y] += q[n, t, i, x] * s[n, i, x, y] / np.sqrt(d)
    return o, s
