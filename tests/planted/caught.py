"""Which check catches which planted bug.  `python -m tests.planted.caught` prints the whole matrix (minutes)."""

import warnings
from collections.abc import Iterator
from itertools import product

import numpy as np

from refattn.verification.checks import CHECKS, run

from . import BUGS, Bug, load

DRAWS = 3                      # of inputs for each case, since masks and biases are not in every draw


def verdict(check: str, case, seed: int = 0) -> str | None:
    """What a check says against a case; None if it passes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(check, case, np.random.default_rng(seed), locate=False)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def catches(bug: Bug, checks=None, xp=np) -> Iterator[tuple[str, str, str]]:
    """(check, case, what it said), one after the other, likely ones first.

    `xp` is the array module that the check `array_module` holds against NumPy.
    """
    table = load(bug).verification.cases
    trials = product(reversed(table.CASES + table.ROUTINES), CHECKS if checks is None else checks, range(DRAWS))

    def late(trial):
        case, check, draw = trial
        elsewhere, unlikely = case.file != bug.file, check not in ("derivative", "loops")
        other_room = case.file.startswith("tasks/") != bug.file.startswith("tasks/")       # which is slow, and in vain
        return other_room, elsewhere or unlikely, draw, elsewhere, unlikely

    for case, check, seed in sorted(trials, key=late):
        words = verdict(check, case.on(xp) if check == "array_module" else case, seed)
        if words:
            yield check, case.name, words


def main() -> None:
    """Print the matrix: one line for each row, one column for each check."""
    for i, check in enumerate(CHECKS):
        print(f"{'| ' * i}{check}")
    for bug in BUGS:
        marks = ("x" if next(catches(bug, [check]), None) else "." for check in CHECKS)
        print(" ".join(marks), f"{bug.file}: {bug.sentence}", flush=True)


if __name__ == "__main__":
    main()
