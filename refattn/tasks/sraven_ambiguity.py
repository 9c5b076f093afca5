"""How many tasks and instances SRAVEN has, and how many of its instances have more than one answer.

Two criteria, and they are far apart.  By the *text* an instance is ambiguous if some rules and permutations fit the
eight given panels and prescribe another ninth panel: one feature that differs is enough.  The *released* code counts an
instance only if some rules and permutations differ from the true answer in **every** feature; those are the figures of
table A2.  Both take rules as that code tests them, which is laxer for "distribute three" than instances are made.

Source: Attention as a Hypernetwork, appendix B.1, B.2, table A2, figure A9, and the authors' code.
Differs: the search joins tracks instead of visiting all permutations (`sraven_hypotheses`); the counts are the same.
"""

from math import comb, factorial, sqrt
from typing import NamedTuple

import numpy as np

from ..checks import check_choice, check_integer
from .sraven import ADDITION, RULES, SUBTRACTION, THREE, Sraven
from .sraven_hypotheses import chunks, hypotheses, matchings

CRITERIA = "released", "text"
GRID = (4, 4), (4, 8), (4, 16)              # (features, symbols) of table A2


# ------------------------------------------------------------------------------------------------------------ counting

def grids(symbols):
    """The number of 3 x 3 grids that each rule can make.

    >>> grids(8)
    [512, 512, 512, 512, 512, 262144, 262144, 12096]
    """
    symbols = int(symbols)                              # NumPy's would overflow
    count = [symbols**3] * len(RULES)
    count[ADDITION] = count[SUBTRACTION] = symbols**6
    count[THREE] = comb(symbols, 3) * 6**3
    return count


def tasks(features, formula="exact"):
    """The number of tasks: rules, and which features of the three columns belong together.

    "exact" : R^M (M!)^2, every task counted once
    "paper" : C(R + M - 1, M) ((M!)^2 - M); the M that is taken off is not explained, and leaves no task for M = 1

    >>> tasks(4), tasks(4, "paper")
    (2359296, 188760)
    """
    check_choice("formula", formula, ("exact", "paper"))
    features = int(features)
    if formula == "exact":
        return len(RULES)**features * factorial(features)**2
    return comb(len(RULES) + features - 1, features) * (factorial(features)**2 - features)


def instances(features, symbols, formula="exact"):
    """The number of pairs of a task and nine panels that it can show.

    "exact" : (sum of `grids`)^M (M!)^2
    "paper" : the paper's permutations, and for each multiset of rules the product of its `grids`

    >>> f"{instances(4, 8, 'paper'):.4g}", f"{instances(4, 8):.4g}"
    ('1.413e+25', '4.86e+25')
    """
    check_choice("formula", formula, ("exact", "paper"))
    features = int(features)
    if formula == "exact":
        return sum(grids(symbols))**features * factorial(features)**2
    series = [1] + [0] * features                       # complete homogeneous symmetric polynomials, rule by rule
    for count in grids(symbols):
        for degree in range(1, features + 1):
            series[degree] += count * series[degree - 1]
    return series[-1] * (factorial(features)**2 - features)


# ----------------------------------------------------------------------------------------------------------- ambiguity

def differing(panels, symbols, strict=False):
    """(b, M + 1) booleans: whether some explanation of the given panels misses exactly n features of the ninth."""
    batch, features = len(panels), panels.shape[-1]
    found = hypotheses(panels, symbols, strict)
    wrong = found.answer != panels[found.instance, 2, 2, found.k]
    instance, count, _ = matchings(found, features, batch, wrong.astype(np.int64), np.ones(len(wrong)))
    misses = np.zeros((batch, features + 1), dtype=bool)
    misses[instance, count] = True
    return misses


def ambiguous(panels, symbols, criterion="text", strict=False):
    """(b) booleans: whether the answer is ambiguous.  `strict` is that of `hypotheses`; released: False.

    Shapes: panels (b, 3, 3, M), the ninth being the true answer.
    Raises: ValueError for an unknown criterion.

    >>> panels = np.zeros((2, 3, 3, 1), dtype=int)
    >>> panels[1, 2] = 1                # 0 0 0, 0 0 0, 1 1 ?: constant says 1, addition says 2, subtraction says 0
    >>> ambiguous(panels, 8).tolist()
    [False, True]
    """
    check_choice("criterion", criterion, CRITERIA)
    parts = [differing(panels[rows], symbols, strict) for rows in chunks(len(panels), panels.shape[-1])]
    misses = np.concatenate(parts)
    return misses[:, -1] if criterion == "released" else misses[:, 1:].any(axis=1)


class Estimate(NamedTuple):
    features: int
    symbols: int
    criterion: str
    instances: int
    fraction: float
    standard_error: float


def ambiguity_table(seed=0, count=100_000, grid=GRID, split="train") -> list[Estimate]:
    """The fraction of ambiguous instances by both criteria: table A2, with another number of instances than 4,096.

    Instances are those of `Sraven(M, K, seed=seed)` in the split, drawn from default_rng((seed, M, K)).
    Raises ValueError for a count below 1.
    """
    count = check_integer("count", count, 1)
    rows = []
    for features, symbols in grid:
        task, rng = Sraven(features, symbols, seed=seed), np.random.default_rng((seed, features, symbols))
        misses = np.zeros(2, dtype=np.int64)
        for part in chunks(count, features):
            found = differing(task.sample(rng, part.stop - part.start, split).panels, symbols)
            misses += found[:, -1].sum(), found[:, 1:].any(axis=1).sum()
        for criterion, hits in zip(CRITERIA, misses / count, strict=True):
            rows.append(Estimate(features, symbols, criterion, count, float(hits), sqrt(hits * (1 - hits) / count)))
    return rows
