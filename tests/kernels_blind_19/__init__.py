"""A nineteenth bank: 62 right kernels and 190 with a mistake, by somebody who had not read the checks.

Right kernels are in `kernels.py`: tiles with online statistics, split keys, base 2, Kahan sums, grouped and packed
heads, states, an FFT, PyTorch's own attention, autograd and compiled functions, JAX's scans and vjps; of pages,
operations, losses and layers.  Mistakes are in `mistakes.py`, most of them switches in one kernel for each page, and
`rows.py` has both by name.  33 of the right kernels and 124 of the mistakes are in NumPy alone.  The others import
PyTorch (19 and 66) or JAX (10) where they are called, and are in `CASES` where these are installed, as they were when
`tests/bench/diagnoses.json` was written.

A right kernel has up to seven settings, 159 in all: bias, mask and dropout with all axes or some, sizes of tiles, one
query, orders of the axes, causal, the four precisions.  `CASES` ask each in its first one, `SETTINGS` are all of them.
They were judged by `compare` itself.  It called two wrong when they were first asked, rightly, and they were repaired:
one had half of a gradient where a score is the largest, one another output.  Then it called none wrong in 4,014
comparisons, at up to 30 seeds of a setting, and up to 6 with tiles.

Lines were written down before the first run: by number for 113 of the mistakes, in the text or in the expression that
a report had to match, and in words alone for 75.  There (`~` in `rows.py`) the line is the one of the page that makes
what the words name, and was read from the page after that run.  Two have none, for less precision and for answers that
are kept from an earlier call.

8 more of the 198 that were written are left out.  Three are no mistakes: RMSHead's mask after it and its backward
without it, where the mask is the same for all heads, and a table whose positions begin at 2, as the row's do.  Five
layers with positions ignore mask, dropout and bias, four of them beside a mistake that is here without that.

In the first run all were seen, 180 located and 159 named, two more in another line: of the 113 it was 108 and 92, of
the 75 it was 72 and 67.  The two lines are as true and stand beside the first ones since (scores of another head are
weights of another head; x - mean is n without its factor).  One was named in words that are true at these sizes alone:
1/sqrt(m) in place of 1/sqrt(d), where m is d e.  `tests/bench/diagnoses.json` has what is found by now; of the 124 in
NumPy alone that is 120 located and 106 named.
"""

from functools import partial
from importlib.util import find_spec

from ..bench.diagnoses import Case
from ..kernels_blind_8 import places
from . import kernels, mistakes, rows


def right(those) -> list:
    """A case for each setting of each right kernel."""
    return [[Case(name, page, partial(getattr(kernels, function), **fixed), "", "",
                  {n: x for n, x in options.items() if n != "dtype"}, only=(options.get("dtype", "float32"),))
             for options in settings] for name, (page, function, fixed, settings) in those.items()]


def wrong(those) -> list:
    """A case for each mistake."""
    return [Case(name, page, partial(getattr(mistakes, function), **fixed),
                 lines if lines == "none" else places(lines.removeprefix("~")), what, options, only=("float32",))
            for name, (page, function, fixed, options, lines, what) in those.items()]


ASKED, CASES = right(rows.RIGHT), wrong(rows.WRONG)
if find_spec("torch"):
    ASKED, CASES = ASKED + right(rows.RIGHT_TORCH), CASES + wrong(rows.WRONG_TORCH)
if find_spec("jax"):
    ASKED += right(rows.RIGHT_JAX)
SETTINGS = [case for cases in ASKED for case in cases]
CASES = [cases[0] for cases in ASKED] + CASES
