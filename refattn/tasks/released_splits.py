"""The splits of the authors' own runs, which their random numbers decide and ours cannot repeat.

    FUZZY_LOGIC    seed -> the 66 pairs of known terms (4 variables), in permuted order: the first 19, 33 or 46 are held
                   out at the fractions 0.3, 0.5, 0.7
    SRAVEN         seed -> the 82 held-out rule combinations (4 features, a quarter held out)

Source: recomputed from the authors' code with the random-bit mode that was its library's default in 2024, which is also
the code's default seed.
"""

import json
from pathlib import Path

import numpy as np

from ..checks import check_choice


def rows(text: str) -> np.ndarray:
    """(n, size) integers from words of `size` hexadecimal digits, one for each term or rule."""
    return np.array([[int(digit, 16) for digit in word] for word in text.split()])


STORED = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")).values()
FUZZY_LOGIC, SRAVEN = ({int(seed): rows(text) for seed, text in splits.items()} for splits in STORED)


def check_released(task, **settings):
    """Nothing, or a ValueError where released splits are asked for with a setting that they were not made for."""
    for name, allowed in settings.items() if task.released else ():
        check_choice(name, getattr(task, name), allowed, "allowed with released splits")
