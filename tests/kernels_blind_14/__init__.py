"""A fourteenth bank, in NumPy alone: 226 right kernels and 312 with a mistake, by somebody who had not read the checks.

Right kernels are in `kernels.py`, mistakes as patches of their source in `rows.py`, each with the lines that were
written down before the first run, and in the precision in which it was asked.  66 of the right kernels were added
after that run, before the checks were opened: halves that keep what stands between products, products of parts in TF32
or bfloat16, variances in one pass.

In 27,600 comparisons at default and at random options, sizes and seeds, one right kernel was called wrong, in 44 of
660: ContextNorm with its variance in one pass, for segments of three positions.  Five were refused because they answer
differently when asked again: they add up in an order of chance, and one of their gradients is zero but for rounding,
that of a bias that is stretched over keys (3), of a key's bias (1) and of the selector under linear scoring (1).
LayerNorm and the cross-entropy in half precision that keep their steps in it are asked with `naive`.

Of the 312 mistakes all were seen, 261 located and 219 named, 4 of them in words that are not true, as judged by hand,
two of these in another line.  Of the 51 that were not located 49 are in rows that were not searched (their line was
"none"; those of rows that are searched by now have the one that is true).
Where no line had been written down, since a row's lines were not known, there is the one that is true; an exact
equivalent that was judged to be as true stands beside it (2).

`tests/bench/diagnoses.json` has what is found by now.
"""

from functools import partial

from ..bench.diagnoses import DTYPES, Case
from ..kernels_blind_8 import places
from ..patched import patched
from . import kernels
from .rows import GIVEN_AS, HALF, RIGHT, WRONG

kernel = partial(patched, kernels, RIGHT)
ONLY = {name: (row[2].get("store", "bfloat16"),) for name, row in RIGHT.items()
        if row[1] == "stored" or "store" in row[2]}
ONLY["gelu by a series"] = DTYPES[1:]                       # its error is 1.5e-7


def mistakes(name, those, only=("float32",)):
    """The cases of one right kernel's mistakes."""
    page, _, _, options = RIGHT[name]
    return [Case(f"{name}: {what}", page, kernel(name, patches), lines if lines == "none" else places(lines), what,
                 options, only=only) for what, lines, *patches in those]


CASES = [Case(name, row[0], kernel(name), "", "", row[3], only=ONLY.get(name, DTYPES)) for name, row in RIGHT.items()]
CASES += [case for name, those in WRONG.items() for case in mistakes(name, those)]
CASES += [Case(f"{name}: {what}", page, kernel(name), places(lines), what, RIGHT[name][3], only=("float32",))
          for what, page, name, lines in GIVEN_AS]
CASES += [case for name, (half, those) in HALF.items() for case in mistakes(name, those, (half,))]
