"""Figures 6 and 17 and table 4 of C: relations between objects never seen, and commands longer than any in training."""

from collections.abc import Iterator

from ..tasks.esbn import TASKS
from .published import TABLE_4
from .published.compositional import CUTOFFS, sequences_accuracy
from .table import PAPERS, Column, Row, Table

ATTENTION: dict[str, dict] = {
    "softmax": {"attention": "softmax"}, "1 retrieval": {"attention": "compositional", "retrievals": 1},
    **{f"{r} retrievals": {"attention": "compositional", "retrievals": r} for r in (4, 8)}}
ESBN = Table(
    "esbn", "Figures 6 and 17 of C, ESBN's tasks: accuracy on objects never seen in training",
    f"{PAPERS['C']}, section 4.5: curves without numbers, 10 runs", "esbn",
    (Column("held-out accuracy", "held_out", "accuracy"), Column("train accuracy", "train", "accuracy")),
    tuple(Row(f"{problem.replace('_', ' ')}, m = {m}: {words}", {"problem": problem, "hold_out": m, **fields})
          for problem in TASKS for m in (50, 95) for words, fields in ATTENTION.items()), ("esbn",),
    remarks=("m of 100 objects are kept for the test. The pictures are ours, not the paper's.",))


def scan_rows() -> Iterator[Row]:
    """Table 4, and beside it dot scoring, which the paper's text presents and its code never ran."""
    for cutoff in CUTOFFS:
        for r in TABLE_4:
            words, fields = "softmax, 8 heads", ATTENTION["softmax"]
            if r:
                words = f"{r} retrieval{'s' if r > 1 else ''}, linear scoring"
                fields = {"retrievals": r, "attention": "compositional", "scoring": "linear"}
            yield Row(f"cut-off {cutoff}: {words}", {"cutoff": cutoff, **fields}, (sequences_accuracy(cutoff, r),))
    yield Row("cut-off 26: 2 retrievals, dot scoring",
              {"cutoff": 26, "attention": "compositional", "retrievals": 2, "scoring": "dot"})


TABLE_4_OF_C = Table(
    "table-4", "Table 4 of C, SCAN: sequences exactly right beyond the trained lengths",
    f"{PAPERS['C']}, table 4: probably 50,000 steps, the code's 5 runs, mean, standard error if ± is the deviation",
    "scan", (Column("longer", "longer", "accuracy"), Column("held out", "held_out", "accuracy"),
             Column("train", "train", "accuracy")),
    tuple(scan_rows()), ("scan_10000",), default_scale="fifth",
    remarks=("The cut-offs 28 and 29 are one experiment: no command has 29 actions. Their difference in the paper is "
             "the spread of its runs.", "Linear scoring cannot see the query; it is what the released code ran."))
