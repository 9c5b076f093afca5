"""Figures that the papers print, for comparison.  They are theirs, never measured here."""

from typing import NamedTuple


class Published(NamedTuple):
    metric: str                # heading in our table
    source: str                # one line: where it stands and how it was made
    figures: dict              # attention variant -> (mean, standard error)
    elsewhere: dict            # rows that no variant here stands for


# H, table A1, column "logic": out-of-distribution R2 in per cent there, as fractions here.
FUZZY_LOGIC = Published(
    "held-out R²",
    "Schug et al. 2025, table A1: best of a grid, 50,000 steps, 3 seeds, mean ± standard error",
    {
        "softmax": (0.6328, 0.0231),
        "linear": (0.5989, 0.0522),
        "hyla": (0.8113, 0.0777),
        "linear_rms_head": (0.6893, 0.0510),
        "linear_rms_head_relu_values": (0.5691, 0.0425),
        "hyla_no_rms_head": (0.8127, 0.0788),
        "hyla_no_nonlinearity": (0.8454, 0.0532),
        "hyla_no_nonlinearity_no_rms_head": (0.7942, 0.0743),
        "hyla_softmax_for_rms_head": (0.7098, 0.0708),
        "hyla_deep": (0.8765, 0.0454),
        "hyla_and_softmax": (0.8247, 0.0422),       # the order of the two normalisers is not stated
    },
    {"Softmax + MoE": (0.6383, 0.0607), "Linear + MoE": (0.6009, 0.0616), "HYLA + MoE": (0.8237, 0.0655)},
)

# C, table 6: (searches, retrievals, width) -> {heads, or 0 for compositional attention: (in-distribution, held-out)}.
TABLE_6 = {
    (2, 4, 64): {2: (0.28, 1.00), 4: (0.31, 0.96), 8: (0.39, 0.96), 0: (0.10, 0.28)},
    (2, 4, 128): {2: (0.08, 0.95), 4: (0.09, 0.89), 8: (0.14, 0.95), 0: (0.08, 0.37)},
    (4, 8, 128): {4: (0.81, 1.05), 8: (0.80, 0.93), 32: (0.84, 1.04), 0: (0.48, 0.47)},
    (4, 8, 256): {4: (0.54, 0.89), 8: (0.57, 0.83), 32: (0.61, 0.86), 0: (0.31, 0.18)},
    (4, 8, 512): {4: (0.45, 0.70), 8: (0.24, 0.67), 32: (0.25, 0.75), 0: (0.17, 0.18)},
    (4, 16, 128): {4: (0.91, 1.00), 16: (0.95, 1.00), 64: (0.99, 1.01), 0: (0.67, 0.88)},
    (4, 16, 256): {4: (0.77, 0.91), 16: (0.84, 0.96), 64: (0.92, 0.98), 0: (0.39, 0.21)},
    (4, 16, 512): {4: (0.59, 0.81), 16: (0.67, 0.83), 64: (0.77, 0.90), 0: (0.20, 0.24)},
}


def contextual_retrieval(searches: int, retrievals: int, width: int, heads: int, held_out: bool) -> Published:
    """Table 6 for one task and width; the baseline is softmax attention with that many heads."""
    cell = TABLE_6.get((searches, retrievals, width), {})
    rows = {"softmax": cell.get(heads), "compositional": cell.get(0)}
    return Published("held-out loss" if held_out else "loss",
                     "Mittal et al. 2022, table 6: 100,000 steps at rate 0.0001, batches of 256, seeds not stated",
                     {name: (row[held_out], None) for name, row in rows.items() if row}, {})
