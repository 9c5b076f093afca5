"""An eighteenth bank, in NumPy alone: 35 right kernels and 105 with a mistake, by somebody who had not read the checks.

All are of the pages themselves: what people port to Triton, CUDA, JAX or PyTorch, and then transcribe.  For each of
seven pages there are five right kernels that have little in common, in `kernels.py`: tiles of keys with online
statistics, tiles of queries in base 2, the keys that are kept alone, pairs as rows, heads packed or last, Jacobians
written out, sums in float64.  Mistakes are patches of their source in `rows.py`, three for each, with the lines that
were written down before any run of the checks; several lines stand where each explains the same answers.

The right kernels were held against the pages by a plain comparison, in float64 to 1e-9 of an array's largest entry and
in float32 to 1e-5 or to four times what the page itself is off, at five seeds of two kinds of draws.  Each mistake
changes an answer by more than 1e-3 of its largest entry at each of four seeds.
Right kernels are asked in float64 and float32, mistakes in float32.
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
               only=("float32",))
          for name, those in WRONG.items() for what, lines, *patches in those]
