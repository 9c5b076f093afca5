"""The splits of the authors' own runs, which their random numbers decide and ours cannot repeat.

    FUZZY_LOGIC    seed -> the 66 pairs of known terms (4 variables), two hexadecimal digits each, in permuted order:
                   the first 19, 33 or 46 are held out at the fractions 0.3, 0.5, 0.7
    SRAVEN         seed -> the 82 held-out rule combinations (4 features, a quarter held out), a digit for each rule

Source: recomputed from the authors' code with the random-bit mode that was its library's default in 2024, which is also
the code's default seed.
"""

import json
from pathlib import Path

FUZZY_LOGIC, SRAVEN = ({int(seed): numbers for seed, numbers in splits.items()} for splits in json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")).values())
