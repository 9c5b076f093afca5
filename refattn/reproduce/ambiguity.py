"""Table A2 of H, and what is recorded beside it of SRAVEN itself: the best achievable and the rule-free accuracies.

    refattn reproduce table-a2 --record FILE [--seed S]

writes the record; `records/sraven_ambiguity.json` is of seed 0, 1,000,000 instances (for ceilings a tenth of that).
"""

import time

import numpy as np

from ..checks import check_integer
from ..tasks.sraven import Sraven
from ..tasks.sraven_ambiguity import ambiguity_table
from ..tasks.sraven_bayes import ceiling, rule_free
from ..train.json_files import environment, read_json
from .published import TABLE_A2
from .records import RECORDS
from .sheet import NEVER, Sheet, chosen, shown
from .table import PAPERS, Exhibit

QUICK = 2, 4                                        # (features, symbols) of the quick recipe
SETTINGS = QUICK, (4, 4), (4, 8), (4, 16)           # of the ceilings
SPLITS = "train", "held_out"


class Ambiguity(Exhibit):
    """Table A2 of H: counted, not trained, so a fresh one takes no run directory; both criteria of ambiguity."""
    name = "table-a2"
    title = "Table A2 of H, SRAVEN: fraction of ambiguous instances"
    source = f"{PAPERS['H']}, table A2: 4,096 instances, mean ± standard error"
    records = ("sraven_ambiguity",)

    def recorded(self) -> list[dict]:
        """The rows of the record."""
        return read_json(RECORDS / f"{self.records[0]}.json")["rows"]

    def fresh(self, seed: int = 0, count: int = 100_000) -> list[dict]:
        """Count again: rows as `tasks.sraven_ambiguity.Estimate` has them."""
        return [row._asdict() for row in ambiguity_table(seed, count)]

    def sheet(self, rows, only=()) -> Sheet:
        """One row for each setting: the released criterion, beside the paper's figure, and the text's."""
        texts, data = [], []
        labels = {f"M = {features}, K = {symbols}": (features, symbols) for features, symbols in TABLE_A2}
        for label, setting in chosen(labels, only).items():
            theirs = TABLE_A2[setting]
            ours = {row["criterion"]: row for row in rows if (row["features"], row["symbols"]) == setting}
            cells = [shown(ours[name]["fraction"], ours[name]["standard_error"], 5) if name in ours else NEVER
                     for name in ("released", "text")]
            texts.append([label, cells[0], shown(*theirs, 4), cells[1]])
            data.append({"label": label, "ours": ours, "paper": {"mean": theirs[0], "standard_error": theirs[1]}})
        counts = sorted({row["instances"] for row in rows})
        notes = [f"Ours: {' or '.join(f'{n:,}' for n in counts)} instances a row." if rows else
                 f"Nothing is recorded: every cell of ours is {NEVER}.",
                 "Released code: some explanation of the given panels differs from the answer in every feature. "
                 "Text: in some feature, rules being tested as that code tests them."]
        headings = ["", "as the released code counts", "paper", "as the text says"]
        return Sheet(self.name, self.title, self.source, headings, texts, data, notes, len(rows))


def count(seed: int = 0, instances: int = 1_000_000) -> dict:
    """The record.  Raises ValueError for a seed below 0 or fewer than 10 instances."""
    check_integer("instances", instances, 10)
    begun, few = time.process_time(), instances // 10
    rows = Ambiguity().fresh(seed, instances)
    ceilings = [{"features": m, "symbols": k, "split": split,
                 **ceiling(Sraven(m, k, seed=seed), np.random.default_rng((seed, m, k, 1)), few, split)._asdict()}
                for m, k in SETTINGS for split in SPLITS]
    free = [{"seed": own, "split": split,                           # seeds of the quick recipe's splits
             **rule_free(Sraven(*QUICK, seed=own), np.random.default_rng((seed, *QUICK, 2)), few, split)}
            for own in (0, 1, 2) for split in SPLITS]
    return {"what": "SRAVEN: fractions of ambiguous instances (table A2 of H, both criteria), best achievable panel "
                    "accuracies of both splits, and accuracies without inferring a rule at M = 2, K = 4, for the "
                    "splits of three seeds",
            "seed": seed, "split": "train", "seconds": round(time.process_time() - begun, 1), "rows": rows,
            "ceilings": ceilings, "rule_free": free, **environment()}
