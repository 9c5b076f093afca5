"""A third bank: attention kernels by somebody who had read neither the checks nor the other banks' mistakes.

`kernels.py` is theirs.  A mistake is located where a line is reported that its row names, as the place or as an equal
explanation.  The first run, before anything was mended for it (54 mistakes, 24 right kernels; `python -m
tests.bench.diagnoses --bank tests.kernels_blind_3`, half precision as there):

    float64     54 seen, 53 located (98.1 %), 39 named (72.2 %), none in other lines; no right kernel called wrong
    float32     54 seen, 53 located (98.1 %), 39 named (72.2 %), none in other lines; no right kernel called wrong
    bfloat16    53 seen, 48 located (88.9 %), 39 named (72.2 %), none in other lines; 1 right kernel called wrong
    float16     54 seen, 52 located (96.3 %), 39 named (72.2 %), none in other lines; 1 right kernel called wrong

That one scores retrievals by one map of two arrays joined; error bars know that form since.  After the mending of what
the bank showed in general, in float64: 53 located, 44 named (81.5 %), none in other lines, no right kernel wrong.
"""

import re

from tests.kernels_blind_2 import Case

from .kernels import ROWS

LINE = re.compile(r"(?:forward|backward) \(\d+\)")


def cases(rows) -> list:
    """Rows of such a bank as `diagnoses` takes them."""
    lines = ["" if row.right else " ".join(LINE.findall(f"{row.where} {row.also}")) for row in rows]
    return [Case(row.name, row.variant, row.kernel, line, row.what, row.options)
            for row, line in zip(rows, lines, strict=True)]


CASES = cases(ROWS)
