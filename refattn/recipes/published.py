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

# C, table 6, 2 searches and 4 retrievals at width 64; without errors there.  Key: attention; the baseline has 4 heads.
CONTEXTUAL_RETRIEVAL = Published(
    "held-out loss",
    "Mittal et al. 2022, table 6, 2 searches, 4 retrievals, width 64: 100,000 steps, seeds not stated",
    {"softmax": (0.96, None), "compositional": (0.28, None)},
    {},
)
