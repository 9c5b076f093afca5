"""Members of D_n and Tomita 3 to 6 with two targets at every position: the protocol of Bhattamishra et al. 2020.

Strings are members only, of Tomita 3 to 6 different from one another, of lengths in a window, each drawn as their code
does:

    D_n            (0 w 1)* from D_n up to a target length, a fraction of the longest; too long ones are thrown away
    Tomita 3, 4    a uniform length of the window, then as in `languages.py`; so is any other language with members
    Tomita 5, 6    fair symbols, a stop before each with probability 1 / (1 + l), l the middle of the window, and at
                   its end; what is then a member and long enough

Targets are what may come next (D_n, Tomita 3, 4: may 0, may 1) or what the prefix is (Tomita 5, 6: no member, member).
Source: Bhattamishra, Ahuja & Goyal 2020, On the Ability and Limitations of Transformers to Recognize Formal Languages;
the samplers are those of the authors' code.
Differs: other random numbers, and many strings at a time.  The code asks for 10,000 different strings of D_n too, but
its sampler has too few up to 50 symbols, so that they may repeat here.  A million tries, 10,000 at a time, found 76 of
D_2, 435 of D_4 and 1,300 of D_12 with the generator of seed 0, and 73, 436 and 1,309 with that of seed 1.
Of Tomita 3 a state is taken for dead that is not, as in the code: a member's own next symbol may be one that its target
says may not come.
Units: lengths in symbols.
"""

from typing import NamedTuple

import numpy as np

from ..checks import check_choice, check_integer
from .languages import LANGUAGES, part

ROUND, TRIES = 1_000, 100               # strings drawn at once at least, and for each that is asked for at most


class Strings(NamedTuple):
    tokens: np.ndarray         # (b, t) integers, 0 after the end
    target: np.ndarray         # (b, t, 2) of 0 and 1, float32
    weight: np.ndarray         # (b, t) float32, 1 inside the string, 0 after its end


def dyck(rng, n, room):
    """One string of D_n for each target length: 0 w 1 from D_(n-1) until it is reached, each w of a `part` of it.

    A part is one of the whole target and not of what is left of it, so strings become longer than asked for.
    """
    if n == 1:
        return ["01" * ((m + 1) // 2) for m in room.tolist()]
    words = [""] * len(room)
    growing = np.flatnonzero(room > 0)
    while growing.size:
        for i, inner in zip(growing.tolist(), dyck(rng, n - 1, part(rng, room[growing])), strict=True):
            words[i] += f"0{inner}1"
        growing = growing[[len(words[i]) < room[i] for i in growing.tolist()]]
    return words


def draw(rng, language, b, shortest, longest):
    """tokens (b', longest) and lengths (b') of b tries, b' <= b: members in the window, one like another or not."""
    row = LANGUAGES[language]
    tokens = np.zeros((b, longest), dtype=np.int64)
    if row.depth:
        words = dyck(rng, row.depth, part(rng, np.full(b, longest)))
        length = np.array([len(word) for word in words])
        for i in np.flatnonzero(length <= longest).tolist():
            tokens[i, :length[i]] = np.frombuffer(words[i].encode(), dtype=np.uint8) - ord("0")
        fits = (length >= shortest) & (length <= longest)
    elif language not in ("tomita5", "tomita6"):
        length = rng.integers(shortest, longest + 1, size=b)
        for m in filter(row.has_members, np.unique(length).tolist()):
            tokens[length == m, :m] = row.draw(rng, int((length == m).sum()), m)
        fits = np.array([row.has_members(m) for m in length.tolist()])
    else:
        stop = 1 / (1 + (shortest + longest) // 2)
        length = np.minimum(rng.geometric(stop, size=b) - 1, longest)
        tokens = rng.integers(2, size=(b, longest)) * (np.arange(longest) < length[:, None])
        fits = (length >= shortest) & (row.automaton.outputs(tokens)[np.arange(b), length - 1] == 1)
    return tokens[fits], length[fits]


def strings(rng, language, number, shortest, longest) -> Strings:
    """`number` members with shortest <= length <= longest, padded to the longest, in random order; no two the same but
    in D_n.

    Raises ValueError for a language without this protocol, an empty window, or one with too few strings.

    >>> s = strings(np.random.default_rng(5), "tomita5", 2, 2, 4)
    >>> s.tokens.tolist(), s.weight.tolist(), s.target[0].tolist()              # target: no member, member
    ([[0, 0, 1, 1], [1, 1, 0, 0]], [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]], [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], \
[0.0, 1.0]])
    """
    allowed = [name for name, row in LANGUAGES.items() if row.members]
    check_choice("protocol is 'per_position', for which language", language, allowed)
    number = check_integer("strings", number, 1)
    shortest = check_integer("shortest", shortest, 1)
    longest = check_integer("longest", longest, shortest)
    found, tries, row = {}, 0, LANGUAGES[language]
    while len(found) < number:
        b = max(ROUND, number - len(found))
        for tokens, length in zip(*draw(rng, language, b, shortest, longest), strict=True):
            again = len(found) if row.depth else 0
            found.setdefault((int(length), tokens.tobytes(), again), tokens)
        tries += b
        if len(found) < number and tries > TRIES * (number + ROUND):
            raise ValueError(f"{number:,} strings are asked for, but {tries:,} tries found {len(found):,} of "
                             f"{row.label} with {shortest} to {longest} symbols; allowed: fewer")
    chosen = rng.permutation(len(found))[:number]           # what comes first is short: there are fewer short strings
    tokens, length = np.stack(list(found.values()))[chosen], np.array([key[0] for key in found])[chosen]
    target = np.array(row.next_symbols, dtype=np.float32)[row.automaton.run(tokens)]
    weight = np.arange(longest) < length[:, None]
    return Strings(tokens, target * weight[..., None], weight.astype(np.float32))
