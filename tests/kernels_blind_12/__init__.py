"""A twelfth bank, in NumPy alone: 62 right kernels and 137 with a mistake, by somebody who had not read the checks.

In the styles of real kernels: online softmax in tiles, split keys merged by their log-sum-exps, recomputation, grouped
queries, chunks with a state.  Lines were written down before the first run, of `more` after that of `kernels`.  Each is
asked in the precision of its options, mostly float32.  None of the 62 was called wrong; of the wrong ones all were, 119
were located and 106 named.  Two of the 132 in float32 are refused, as they should be.  `tests/bench/diagnoses.json`
has what is found by now.
"""

import re

from ..bench.diagnoses import DTYPES, Case
from . import kernels, more

PARTS = {"f": "forward", "b": "backward"}


def case(name, function, page, lines, what, options) -> Case:
    """A case whose lines are written `f2 b1`."""
    of = {"dtype": "float32"} | options
    line = re.sub(r"\b([fb])(\w+)", lambda m: f"{PARTS[m[1]]} ({m[2]})", lines)
    return Case(name, page, function, line, what, {n: x for n, x in of.items() if n != "dtype"}, only=(of["dtype"],))


CASES = [case(*(*one[:3], "", "", one[3])) for lot in (kernels, more) for one in lot.RIGHT]
CASES += [case(*one) for lot in (kernels, more) for one in lot.WRONG]
assert {d for c in CASES for d in c.only} <= set(DTYPES)
