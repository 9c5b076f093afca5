"""Which planted bugs each reference vector reveals; the wheel has this table and not the bugs.

    python -m tests.planted.revealed            writes it into the package; asks new vectors, and all for new bugs
    python -m tests.planted.revealed NAME ...   the same, and the vectors of these variants, whose pages have changed
    python -m tests.planted.revealed --all      asks everything
"""

import json
import sys
import warnings

import numpy as np
from tqdm import tqdm

from refattn import refusals
from refattn.attention import VARIANTS
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


def table(bugs=BUGS, known=None) -> dict:
    """{"mistakes": sentences, "revealed": {file: numbers of the sentences}}; a pair that is in `known` is not asked."""
    mistakes, before = [f"{bug.file}: {bug.sentence}" for bug in bugs], {}
    if known is not None:
        asked = known["mistakes"]
        before = {(file, words): words in {asked[i] for i in numbers} for file, numbers in known["revealed"].items()
                  for words in asked}

    def is_revealed(file, words, *asked):
        return before[file, words] if (file, words) in before else reveals(*asked)
    return {"mistakes": mistakes,
            "revealed": {file: [i for i, (words, bug) in enumerate(zip(mistakes, bugs, strict=True))
                                if is_revealed(file, words, bug, case, inputs, found)]
                         for file, case, inputs, _, found in tqdm(vectors.arrays(), "vectors", disable=None)}}


def others(kept, found) -> str:
    """The names of the variants of whose vectors `found`, about some mistakes, says something else than `kept`.

    "--all" if some are of no variant, "" if there are none.
    """
    now, before = ({file: [table["mistakes"][i] for i in numbers if table["mistakes"][i] in found["mistakes"]]
                    for file, numbers in table["revealed"].items()} for table in (found, kept))
    names = sorted({file.split("-")[0] for file in now.keys() | before.keys() if now.get(file) != before.get(file)})
    return " ".join(names) if set(names) <= set(VARIANTS) else "--all"


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if name != "--all"]
    if odd := [name for name in names if name not in VARIANTS]:
        sys.exit(f"tests.planted.revealed: {refusals.unknown('variant', odd[0], VARIANTS)}")
    kept = None if "--all" in sys.argv else json.loads(vectors.REVEALED.read_text(encoding="utf-8"))
    if kept is not None:
        kept["revealed"] = {file: x for file, x in kept["revealed"].items() if file.split("-")[0] not in names}
    text = json.dumps(table(known=kept)).replace("], ", "],\n").replace('", ', '",\n')
    vectors.REVEALED.write_text(text + "\n", encoding="utf-8")
