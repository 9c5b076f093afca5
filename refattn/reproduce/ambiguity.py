"""What is recorded of SRAVEN itself: table A2 by both criteria, the best achievable accuracies, and the rule-free ones.

    refattn reproduce table-a2 --record FILE [--seed S]

writes them; `records/sraven_ambiguity.json` is of seed 0, 1,000,000 instances (for ceilings a tenth of that).
"""

import time

import numpy as np

from ..checks import check_integer
from ..tasks.sraven import Sraven
from ..tasks.sraven_ambiguity import ambiguity_table
from ..tasks.sraven_bayes import ceiling, rule_free
from ..train.json_files import environment

QUICK = 2, 4                                        # (features, symbols) of the quick recipe
SETTINGS = QUICK, (4, 4), (4, 8), (4, 16)           # of the ceilings
SPLITS = "train", "held_out"


def count(seed: int = 0, instances: int = 1_000_000) -> dict:
    """The record.  Raises ValueError for a seed below 0 or fewer than 10 instances."""
    check_integer("instances", instances, 10)
    begun, few = time.process_time(), instances // 10
    rows = [row._asdict() for row in ambiguity_table(seed, instances)]
    ceilings = [{"features": m, "symbols": k, "split": split, **ceiling(
        Sraven(m, k, seed=seed), np.random.default_rng((seed, m, k, 1)), few, split)._asdict()}
                for m, k in SETTINGS for split in SPLITS]
    free = [{"seed": own, "split": split, **rule_free(              # seeds of the quick recipe's splits
        Sraven(*QUICK, seed=own), np.random.default_rng((seed, *QUICK, 2)), few, split)}
            for own in (0, 1, 2) for split in SPLITS]
    seconds = time.process_time() - begun
    return {"what": "SRAVEN: fractions of ambiguous instances (table A2 of H, both criteria), best achievable panel "
                    "accuracies of both splits, and accuracies without inferring a rule at M = 2, K = 4, for the "
                    "splits of three seeds",
            "seed": seed, "split": "train", "seconds": round(seconds, 1), "rows": rows, "ceilings": ceilings,
            "rule_free": free, **environment()}
