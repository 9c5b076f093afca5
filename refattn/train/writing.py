"""Text from a language model: one token drawn after the other, each a call of `extend` on what is kept.

    p(next) = softmax(z / temperature) over the `top_k` greatest scores z and their equals;  temperature 0: the greatest
"""

from collections.abc import Iterator

import numpy as np

from ..checks import check_integer, check_integers, check_number
from ..xp import array_module, fitted, to_device, to_host

__all__ = ["drawn", "streamed", "written"]


def drawn(z, rng, temperature: float = 1.0, top_k: int = 0) -> int:
    """A token drawn by its scores z (v), on the host; of equally great ones at temperature 0 the first.

    Raises ValueError for scores of another shape, where the greatest is not finite, or the temperature below 0.

    >>> z = np.log([0.1, 0.6, 0.3])
    >>> drawn(z, None, 0), {drawn(z, np.random.default_rng(n), 1.0, 2) for n in range(50)} == {1, 2}
    (1, True)
    """
    check_integer("top_k", top_k, 0)
    fitted(z, "z", np.shape(z)[-1:])                        # of rows of scores a place in all of them would be drawn
    if not (np.isfinite(z.max()) and 0 <= temperature < np.inf):
        raise ValueError(f"the greatest score is {z.max()}, temperature {temperature}; allowed: finite, both, and "
                         f"temperatures from 0 on")
    if temperature == 0:
        return int(z.argmax())
    z = (z.astype(np.float64) - z.max()) / max(temperature, 1e-100)             # 1e-100: nothing overflows
    if 0 < top_k < len(z):
        z[z < np.partition(z, -top_k)[-top_k]] = -np.inf
    p = np.exp(z).cumsum()
    return int(np.searchsorted(p, rng.random() * p[-1], side="right"))


def written(model, p, prompt, tokens: int, *, temperature: float = 1.0, top_k: int = 0, seed: int = 0,
            stop=()) -> Iterator[int]:
    """Up to `tokens` token ids after those of the prompt, until one of `stop` is drawn; the same for the same seed.

    A model with a learned table of positions reads the last half of its table's length again whenever it is full.
    Raises ValueError for an empty prompt, token ids that the model does not have, or numbers below 0.
    """
    check_integers({"tokens": tokens, "top_k": top_k, "seed": seed}, least=0)
    if not len(prompt):
        raise ValueError("the prompt is empty; allowed: at least one token")
    check_number("temperature", temperature)
    prompt = [check_integer("a token of the prompt", x, 0, len(p.embed.table) - 1) for x in to_host(prompt)]
    return _written(model, p, prompt, tokens, temperature, top_k, seed, stop)


def _written(model, p, prompt, tokens, temperature, top_k, seed, stop):
    xp, rng, limit = array_module(p.embed.table), np.random.default_rng(seed), model.learned
    ids, kept, new = prompt, None, len(prompt)
    for _ in range(tokens):
        if limit and (kept.length if kept else 0) + new > limit:
            kept, new = None, min(len(ids), max(1, limit // 2))
        y, kept = model.extend(p, to_device(np.array([ids[-new:]]), xp), kept)
        token, new = drawn(to_host(y[0, -1]), rng, temperature, top_k), 1
        if token in stop:
            return
        ids.append(token)
        yield token


def streamed(corpus, ids) -> Iterator[str]:
    """The text of token ids, piece by piece as they come; half a character waits for its other half."""
    whole, said = [], 0
    for token in ids:
        whole.append(token)
        text = corpus.decode(whole)
        if not text.endswith("\ufffd"):
            yield text[said:]
            said = len(text)
        if len(whole) > 64 and said == len(text) and corpus.unit in ("bytes", "characters"):
            whole, said = [], 0                             # what has been said need not be decoded again
    yield corpus.decode(whole)[said:]
