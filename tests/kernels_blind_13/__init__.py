"""A thirteenth bank, in NumPy alone: 117 right kernels and 208 with a mistake, by somebody who had not read the checks.

Right kernels are in `kernels.py`, mistakes as patches of their source in `rows.py`, each with the lines that were
written down before the first run, and in the precision in which it was asked.

In that run, before anything was mended for it, of 1,143 comparisons of right kernels 5 were called wrong, with 7,230
of random sizes and seeds 8, of 6 kernels in all.  Three, compositional in each form, take delta of the softmax over
retrievals from `do . o`, and dselector cancels by more than its bar knew.  Two, `ops/softmax` rows as
exp(s - logsumexp(s)), lose digits at scores near 1,000, which the row drew.  One reads delta from the o that is stored
in half precision, where a bias that is stretched over keys has a gradient of 0.

Of the 208 mistakes 207 were seen, 194 located and 173 named, 7 of them in words that are not true, as judged by hand.
Of the 14 that were not located 8 are in rows that were not searched (their line was "none").  Not seen is an epsilon of
1e-5 in HYLA's bfloat16.  Mistakes that showed in no answer (2) and changes that were more than one mistake (3) are left
out.  Where no line had been written down, since a row's lines were not known, there is the one that is true; an exact
equivalent that was judged to be as true stands beside it.

`tests/bench/diagnoses.json` has what is found by now.
"""

from functools import partial

from ..bench.diagnoses import DTYPES, Case
from ..kernels_blind_8 import places
from ..patched import patched
from . import kernels
from .rows import GIVEN_AS, HALF, HALVES, ONLY, RIGHT, WRONG

kernel = partial(patched, kernels, RIGHT)


def mistakes(name, options, those, only=("float32",)):
    """The cases of one right kernel's mistakes."""
    return [Case(f"{name}: {what}", RIGHT[name][0], kernel(name, patches), lines if lines == "none" else places(lines),
                 what, options, only=only) for what, lines, *patches in those]


CASES = [Case(name, row[0], kernel(name), "", "", row[3], only=ONLY.get(name, DTYPES)) for name, row in RIGHT.items()]
CASES += [case for one in WRONG for case in mistakes(*one)]
CASES += [Case(f"{name}: {what}", page, kernel(name), places(lines), what, options, only=("float32",))
          for what, page, name, options, lines in GIVEN_AS]
CASES += [case for half in HALVES for name, *rest in HALF for case in mistakes(f"{name} in {half}", *rest, (half,))]
