"""Which planted bugs each reference vector reveals: `python -m tests.planted.revealed` writes it into the package.

The wheel has this table and not the bugs.
"""

import json
import warnings

import numpy as np

from refattn.verification import vectors

from . import BUGS, load


def reveals(bug, case, inputs, expected) -> bool:
    """Whether a planted bug changes any result by more than 1e-9 of its size, or cannot run."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            found = vectors.results(load(bug).verification.cases.find(case.name), inputs, doutput=expected["doutput"])
        except (ValueError, TypeError, IndexError):
            return True
    return any(found[n].shape != x.shape or not np.abs(found[n] - x).max() <= 1e-9 * np.abs(x).max() + 1e-12
               for n, x in expected.items())


def table(bugs=BUGS) -> dict:
    """{"mistakes": sentences, "revealed": {file: numbers of the sentences}}."""
    return {"mistakes": [f"{bug.file}: {bug.sentence}" for bug in bugs],
            "revealed": {file: [i for i, bug in enumerate(bugs) if reveals(bug, case, inputs, found)]
                         for file, case, inputs, _, found in vectors.arrays()}}


if __name__ == "__main__":
    text = json.dumps(table()).replace("], ", "],\n").replace('", ', '",\n')
    vectors.REVEALED.write_text(text + "\n", encoding="utf-8")
