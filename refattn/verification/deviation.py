"""How far two results are apart, in a number and in words."""

import numpy as np

from ..xp import to_host


class Deviation(float):
    """An error that remembers where it was found: in words, in which array, and in which entry of it."""
    where: str                 # "dq[0, 1] is 2.0, not 3.0"
    array: str                 # "dq"; all that is said where it is of no entry
    entry: tuple               # (0, 1)
    words: str                 # " is 2.0, not 3.0"

    def __new__(cls, error, where="", entry=(), words=""):
        new = super().__new__(cls, error)
        new.array, new.entry, new.words = where, entry, words
        new.where = f"{where}[{', '.join(map(str, entry))}]{words}" if entry else f"{where}{words}"
        return new


def deviation(name: str, a, b, scale=None, words=" is {}, not {}", least=1e-12) -> Deviation:
    """max |a - b| / max |b|, and the entry it stands in; infinite for NaN or another shape.

    Where b is zero by theory (max |b| at most `least`), max |a - b| itself.  `scale` replaces max |b|, where b is a
    part, say.  `words` say the entries of a and b.
    """
    a, b = np.asarray(to_host(a)), np.asarray(to_host(b))
    if a.shape != b.shape:
        return Deviation(np.inf, f"{name} has shape {a.shape}, not {b.shape}")
    if not a.size:
        return Deviation(0)
    a, b = (x.astype(np.float64) if x.dtype.kind in "biu" else x for x in (a, b))
    with np.errstate(invalid="ignore"):
        difference = np.where(a == b, 0.0, np.abs(a - b))
    difference = np.where(np.isnan(difference), np.inf, difference)
    at = np.unravel_index(difference.argmax(), a.shape)
    scale = np.abs(b).max() if scale is None else scale
    relative = difference[at] / (scale if least < scale < np.inf else 1)
    return Deviation(relative, name, at, words.format(a[at], b[at]))


def deviations(name: str, ours, theirs) -> Deviation:
    """The largest deviation of two tuples or two dicts of arrays; 1e-12 of the largest number in all is rounding."""
    if isinstance(theirs, dict):
        if ours.keys() != theirs.keys():
            return Deviation(np.inf, f"{name}: {', '.join(ours) or 'none'} instead of {', '.join(theirs) or 'none'}")
        pairs = [(f"{name} {key}", ours[key], theirs[key]) for key in theirs]
    else:
        pairs = [(f"{name} {i}" if len(theirs) > 1 else name, *pair) for i, pair in enumerate(zip(
            ours, theirs, strict=True))]
    least = 1e-12 * max([1, *(np.abs(to_host(b)).max(initial=0) for *_, b in pairs)])
    return max((deviation(*pair, least=least) for pair in pairs), default=Deviation(0))
