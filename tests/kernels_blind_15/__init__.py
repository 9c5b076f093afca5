"""A fifteenth bank, in NumPy alone: 81 right kernels and 251 with a mistake, by somebody who had not read the checks.

It has kernels of rows that are no pages: operations, losses, the loss over a vocabulary, mixtures of experts, networks
that a code generates.  Right ones are in `kernels.py`, mistakes as patches of their source in `rows.py`, each with the
lines that were written down before the first run.  Of each it was asked beforehand, without the checks, that the right
ones are the page's to 1e-9 in float64, and that a mistake changes an answer by more than 1e-4 of its largest entry.

In the first run, in float32, all mistakes were seen, 243 located and 175 named in a line that was written down; of 81
right kernels none was called wrong.  Five more were named in another line.  Four of these lines are as true, as was
judged by hand, and stand beside the first ones since.  One is not: scores of a backward that lack a scale of 1/2, whose
sum is the forward's, are called an exponential that is applied twice.

`tests/bench/diagnoses.json` has what is found by now.
"""

from functools import partial

from ..bench.diagnoses import Case
from ..kernels_blind_8 import places
from ..patched import patched
from . import kernels
from .rows import RIGHT, WRONG

kernel = partial(patched, kernels, RIGHT)
CASES = [Case(name, row[0], kernel(name), "", "", row[3], only=("float64", "float32")) for name, row in RIGHT.items()]
CASES += [Case(f"{name}: {what}", RIGHT[name][0], kernel(name, patches), places(lines), what, RIGHT[name][3],
               only=("float32",)) for name, those in WRONG.items() for what, lines, *patches in those]
