"""Reading trained language models: the loss by position, and how far back a prediction looks."""

import math

import numpy as np

from ..checks import check_integer
from ..ops import embedding
from ..tasks.text_windows import sample
from ..xp import array_module, to_device, to_host
from .regular import shares_of

__all__ = ["bits_by_position", "receptive_field"]


def bits_by_position(recipe, model, p, length: int, split: str = "test", windows: int = 64, seed: int = 0):
    """(t): bits for the token at each position of windows of this length, averaged over windows.

    Windows may be longer than in training.  Raises ValueError where they are longer than a learned table of positions,
    or not shorter than the split.
    Source: R, section 6, gives each scored token one number of tokens as its context; here each position has its own.
    """
    check_integer("windows", windows)
    xp, ids = array_module(p.embed.table), recipe.corpus().ids[split]
    total, rng = np.zeros(length), np.random.default_rng(seed)
    for _ in range(windows):                                # one at a time, since length may be great
        batch = sample(rng, ids, 1, length)
        y, _ = model.forward(p, to_device(batch.tokens, xp), target=to_device(batch.target, xp))
        total += to_host(y)[0]
    return total / windows / math.log(2)


def receptive_field(model, p, tokens, target):
    """(t): the share of the gradient's norms, averaged over texts (b, t), that the last 1, 2, ..., t tokens get.

    The gradient is that of the last token's loss by each embedding.  Source: R, figure 4, of the language model.
    """
    xp = array_module(p.embed.table)
    x, target = embedding(p.embed.table, to_device(tokens, xp)), to_device(target, xp)
    y, saved = model.forward(p, x, target=target, read=slice(tokens.shape[1] - 1, None))
    return shares_of(model, p, saved, xp.ones_like(y))
