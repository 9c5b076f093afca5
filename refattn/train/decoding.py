"""Greedy decoding: the likeliest token, one after the other, from any model that extends what it has said so far.

    w_0 = first;    w_t+1 = argmax of y at t,  until the end is said

Source: C, section 4.6 and released code.  Every token is one call of `extend`, which keeps keys and values; nothing is
projected twice.
"""

import numpy as np

from ..checks import check_integer, check_integers
from ..contract import agree
from ..xp import array_module

LOOK = 8                       # on a device, tokens between two looks at whether all rows have ended


def greedy(extend, state, first, steps: int, end=None):
    """(b, t) tokens that follow `first` (b, n), like it in dtype and device; in a row that ends, `end` to the edge.

    extend : (tokens (b, n), state) -> scores (b, n, o) of what comes next, next state; `partial(model.extend, p)`
    state  : what `model.begin(p, ...)` gives
    Stops when every row has said `end`, or after `steps` tokens; a device is asked at every eighth of them only.
    Raises ValueError for a `first` of other axes or without a token, and for steps or an end that are no whole numbers.
    """
    check_integers({"steps": steps, "end": end or 0}, least=0)
    check_integer("tokens of first", agree(first=(first, "bn"))["n"])
    xp = array_module(first)
    tokens, said, ended = first, [], xp.zeros(first.shape[0], dtype=bool)
    for step in range(1, steps + 1):
        y, state = extend(tokens, state)
        token = y[:, -1].argmax(axis=-1)
        if end is not None:
            token = xp.where(ended, end, token)
            ended = ended | (token == end)
        said.append(token.astype(first.dtype))
        tokens = said[-1][:, None]
        if end is not None and step % (1 if xp is np else LOOK) == 0 and ended.all():
            break
    return xp.stack(said, axis=1) if said else first[:, :0]
