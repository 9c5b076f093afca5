"""A fifteenth bank, in NumPy alone: 81 right kernels and 251 with a mistake, by somebody who had not read the checks.

All are of rows that are not attention pages: operations, losses, the loss of the next token, mixtures of experts and
networks that are generated.  They were written while the search for these rows was, unseen.  Right kernels are in
`kernels.py`, mistakes as patches of their source in `rows.py`, each with its lines, written down before any run of the
checks.  Several lines stand where each explains the same answers.

The right kernels were held against the pages in float64 and float32, at six seeds of a row's own draws, by a plain
comparison.  Each mistake changes an answer there by more than 5e-5 of its largest entry, at every seed that draws what
it needs, such as weights, a bias or a stretched axis: at three seeds at least.
Right kernels are asked in float64 and float32, mistakes in float32.

In the first run all mistakes were seen, 243 located and 175 named in a line that was written down; of 81 right kernels
none was called wrong.  Five more were named in another line.  Four of these lines are as true, as was judged by hand,
and stand beside the first ones since.  One is not: scores of a backward that lack a scale of 1/2, whose sum is the
forward's, are called an exponential that is applied twice.  `tests/bench/diagnoses.json` has what is found by now.
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
