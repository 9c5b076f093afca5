"""A sixteenth bank, in NumPy alone: 18 right kernels and 60 with a mistake, by somebody who had not read the checks.

All are of one array that is turned by its positions, interleaved and in halves.  They were written while the search
for these rows was, unseen.  Right kernels are in `kernels.py`, mistakes as patches of their source in `rows.py`, each
with its lines, written down before any run of the checks: 1 for o, 1b for dx, and both where both turn wrongly.

The right kernels were held against `Rotary` by a plain comparison, in float64 to 1e-9 and in float32 to 1e-5 of the
largest entry, for all 24 choices of three different sizes from 2 to 5.  Each mistake changes what its lines say, and
nothing else, by more than 1e-3 of the largest entry at every one of them.
Right kernels are asked in float64 and float32, mistakes in float32.

In the first run, at six features, all mistakes were seen, 60 located and 36 named, one of them in words that are true
at six features only; of 18 right kernels none was called wrong.  Since then there are eight.
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
