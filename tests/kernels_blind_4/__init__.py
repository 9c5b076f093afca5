"""A fourth bank: attention kernels by somebody who had read neither the checks, nor other banks, nor any test.

`kernels.py` is theirs.  A mistake is located where a line is reported that its row names, as the place or as an equal
explanation.  The first run, before anything was mended for it (44 mistakes, 16 right kernels; `python -m
tests.bench.diagnoses --bank tests.kernels_blind_4`, half precision as there):

    float64     44 seen, 44 located (100 %), 35 named (79.5 %), none in other lines; no right kernel called wrong
    float32     44 seen, 42 located (95.5 %), 35 named (79.5 %), none in other lines; no right kernel called wrong
    bfloat16    44 seen, 40 located (90.9 %), 35 named (79.5 %), none in other lines; no right kernel called wrong
    float16     44 seen, 42 located (95.5 %), 35 named (79.5 %), none in other lines; no right kernel called wrong

What it showed in general is in the grammar since: causal masks off by one or counted from the first key, sums and
contractions that end with a tile.  Then 44 located and 38 named (86.4 %) in float64, 42 (95.5 %) and 38 in bfloat16;
none in other lines, no right kernel called wrong.
"""

from tests.kernels_blind_3 import cases

from .kernels import ROWS

CASES = cases(ROWS)
