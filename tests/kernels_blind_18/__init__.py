"""An eighteenth bank, in NumPy alone: 75 right kernels and 225 with a mistake, by somebody who had not read the checks.

All are of what people port to Triton, CUDA, JAX or PyTorch, and then transcribe: eleven pages, and the layers around
softmax attention, HYLA, compositional and sliding-dilated attention.  Each of these fifteen has five right kernels that
have little in common, in `kernels.py`: tiles of keys with online statistics and D = rowsum(do o), tiles of queries in
base 2, the keys that are kept alone, pairs as rows, heads packed, last or one by one, Jacobians written out, maps
merged or absorbed, windows as matrices, slices or padded tokens, sums in float64.  Mistakes are patches of their
source in `rows.py`, three for each, with the lines that were written down before any run of the checks: those of the
page, or of the maps (in) and (out).  Several lines stand where each explains the same answers.

The right kernels were held against pages and layers by a plain comparison, in float64 to 1e-9 of an array's largest
entry and in float32 to 1e-5, or to four times what the page itself is off: at five seeds of a row's own draws, and for
pages at five of sizes that are all different too, with small and masked queries; then with each option alone.  At
fifteen further seeds of such sizes one of HYLA was once off by 4.3 times what the page was.  Each mistake changes an
answer by more than 1e-3 of the largest entry of its array: of a page at four seeds of four with all options, of a layer
at three or more of twelve, as many as draw what it needs.
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
