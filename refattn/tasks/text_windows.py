"""Windows of a text: drawn anywhere to train on, or one after the other so that every token is scored once.

Source: C, released code (windows of 512 tokens, of which 400 are context); drawn windows as in nanoGPT.
"""

from typing import NamedTuple

import numpy as np

from ..checks import check_integer, check_integers

__all__ = ["Windows", "sample", "windows", "windows_of"]


class Windows(NamedTuple):
    """Pieces of a text, the token after each of their tokens, and how much each of these counts in the loss."""
    tokens: np.ndarray         # (b, t)
    target: np.ndarray         # (b, t), the token after each
    weight: np.ndarray         # (b, t) float32: 0 where a token is context only, or beyond the end


def sample(rng, ids, size: int, length: int) -> Windows:
    """`size` windows of `length` tokens at uniformly drawn places.  Raises ValueError unless the text is longer.

    Shapes: (size, length) each; every token is scored.
    """
    length = check_integer("length", length, 1)
    if len(ids) <= length:
        raise ValueError(f"length is {length:,}; allowed: numbers below the {len(ids):,} tokens of the split")
    rows = ids[rng.integers(len(ids) - length, size=size)[:, None] + np.arange(length + 1)].astype(np.int64)
    return Windows(rows[:, :-1], rows[:, 1:], np.ones((size, length), dtype=np.float32))


def windows_of(tokens: int, length: int, context: int = 0) -> int:
    """How many `windows` a text of so many tokens has."""
    return 1 + max(0, -(-(tokens - 1 - length) // (length - context))) if tokens > 1 else 0


def windows(ids, length: int, context: int = 0, first: int = 0, size: int | None = None) -> Windows:
    """Windows number `first` and the `size` - 1 after it of those that score every token once, but the very first.

    Each scores its last `length` - `context` tokens; the first window scores its context too.  Beyond the end of the
    text tokens are 0 and weigh nothing.  `size` None: all of them.

    >>> w = windows(np.arange(9), 4, 2)
    >>> (w.target * w.weight.astype(int)).tolist()
    [[1, 2, 3, 4], [0, 0, 5, 6], [0, 0, 7, 8]]
    """
    length = check_integer("length", length, 1)
    context = check_integer("context", context, 0, length - 1)
    check_integers({"first": first, "size": 0 if size is None else size}, least=0)
    step, last, count = length - context, len(ids) - 1, windows_of(len(ids), length, context)
    start = step * np.arange(first, count if size is None else min(count, first + size))[:, None]
    at = start + np.arange(length + 1)
    rows = np.where(at <= last, ids[np.minimum(at, max(last, 0))], 0).astype(np.int64)
    scored = (at[:, 1:] <= last) & ((np.arange(length) >= context) | (start == 0))
    return Windows(rows[:, :-1], rows[:, 1:], scored.astype(np.float32))
