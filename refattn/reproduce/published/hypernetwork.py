"""Schug et al. 2025, Attention as a Hypernetwork: tables A1 and A2."""

from collections.abc import Iterator
from typing import NamedTuple

from .source import Published

EXPERTS, CHOSEN = 4, 2                             # our choice: the paper gives neither the number of experts nor k


class Row(NamedTuple):
    """A row of table A1.  Figures are (mean, standard error over 3 seeds), as fractions; the table has per cent."""
    words: str                 # the paper's name
    attention: str             # variant
    experts: bool              # whether a mixture of experts replaces the feed-forward layers
    fuzzy_logic: tuple         # out-of-distribution R2, T = 32, 70 % of the combinations held out
    sraven: tuple              # out-of-distribution accuracy, 4 layers, 20 million instances

    @property
    def settings(self) -> dict:
        """The fields of either task's recipe that make it this row."""
        return {"attention": self.attention, "experts": EXPERTS if self.experts else 0, "chosen": CHOSEN}


def _rows(text: str) -> dict[int, Row]:
    """{number: row} from lines of words, variant, and the table's four numbers."""
    rows = {}
    for number, line in enumerate(text.strip().splitlines(), 1):
        words, attention, figures = (part.strip() for part in line.split("|"))
        logic, its_error, accuracy, error = (round(float(x) / 100, 6) for x in figures.split())
        rows[number] = Row(words, attention, "MoE" in words, (logic, its_error), (accuracy, error))
    return rows


TABLE_A1 = _rows("""
    Softmax attention                            | softmax                           | 63.28 2.31  56.56 1.05
    Linear attention                             | linear                            | 59.89 5.22  56.30 1.11
    HYLA                                         | hyla                              | 81.13 7.77  69.13 1.90
    Linear attention + RMSHead                   | linear_rms_head                   | 68.93 5.10  59.01 2.50
    Linear attention + RMSHead + nonlinear value | linear_rms_head_relu_values       | 56.91 4.25  55.38 0.32
    HYLA – RMSHead                               | hyla_no_rms_head                  | 81.27 7.88  62.53 5.73
    HYLA – nonlinearity                          | hyla_no_nonlinearity              | 84.54 5.32  56.54 0.21
    HYLA – nonlinearity – RMSHead                | hyla_no_nonlinearity_no_rms_head  | 79.42 7.43  56.33 1.41
    HYLA – RMSHead + softmax                     | hyla_softmax_for_rms_head         | 70.98 7.08  38.21 2.98
    HYLA + deep value network                    | hyla_deep                         | 87.65 4.54  66.59 0.08
    HYLA + softmax                               | hyla_and_softmax                  | 82.47 4.22  62.21 3.08
    Softmax attention + MoE                      | softmax                           | 63.83 6.07  57.68 1.31
    Linear attention + MoE                       | linear                            | 60.09 6.16  64.34 4.30
    HYLA + MoE                                   | hyla                              | 82.37 6.55  66.94 3.94
""")                                            # row 11: the paper does not say in which order the two normalisers go

# Fraction of ambiguous instances over 4,096: (features M, values K) -> (mean, standard error).
TABLE_A2 = {(4, 4): (0.0642, 0.0038), (4, 8): (0.0032, 0.0009), (4, 16): (0.0005, 0.0003)}


def _columns(metric: str, source: str, task: str) -> Iterator[Published]:
    """Of the rows with feed-forward layers, then of those with a mixture of experts."""
    for experts in False, True:
        rows = {row.attention: getattr(row, task) for row in TABLE_A1.values() if row.experts == experts}
        words = f"Schug et al. 2025, table A1: best of a grid, {source}, 3 seeds, mean ± standard error"
        yield Published(metric, words, rows, ("experts",))


FUZZY_LOGIC, FUZZY_LOGIC_EXPERTS = _columns("held-out R²", "50,000 steps in the code", "fuzzy_logic")
SRAVEN, SRAVEN_EXPERTS = _columns("held-out accuracy", "20 million instances", "sraven")
