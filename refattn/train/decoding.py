"""Greedy decoding: the likeliest token, one after the other, from any model that extends what it has said so far.

    w_0 = first;    w_t+1 = argmax of y at t,  until the end is said

Source: C, section 4.6 and released code.  Every token is one call of `extend`, which keeps keys and values; nothing is
projected twice.
"""

from ..xp import array_module

LOOK = 8                       # on a device, tokens between two looks at whether all rows have ended


def greedy(extend, state, first, steps: int, end=None):
    """(b, at most `steps`) tokens after `first` (b, n), integers where `first` is; `end` fills what follows it in a row.

    extend(tokens (b, n), state) gives scores (b, n, o) of what comes next and the next state, as the models' `extend`
    does after `partial(model.extend, p)`.  Decoding stops when every row has said `end`; where that is None, at `steps`.
    """
    xp = array_module(first)
    tokens, said, ended = first, [], xp.zeros(first.shape[0], dtype=bool)
    for step in range(1, steps + 1):
        y, state = extend(tokens, state)
        token = y[:, -1].argmax(axis=-1).astype(first.dtype)
        if end is not None:
            token = xp.where(ended, end, token).astype(first.dtype)
            ended = ended | (token == end)
        said.append(token)
        tokens = token[:, None]
        if end is not None and (array_module(first).__name__ == "numpy" or step % LOOK == 0) and bool(ended.all()):
            break
    return xp.stack(said, axis=1)
