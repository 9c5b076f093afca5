"""Mittal et al. 2022, Compositional Attention: table 6."""

from .source import Published

# (searches, retrievals, width) -> {heads, or 0 for compositional attention: (in-distribution, held-out)}.
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

FIGURE_7 = {"softmax": (39.6, 0.3), "compositional": (38.8, 0.0)}       # perplexity of WikiText-103's test, section 4.7


def contextual_retrieval(searches: int, retrievals: int, width: int, heads: int, held_out: bool) -> Published:
    """Table 6 for one task and width; the baseline is softmax attention with that many heads."""
    cell = TABLE_6.get((searches, retrievals, width), {})
    rows = {"softmax": cell.get(heads), "compositional": cell.get(0)}
    return Published("held-out loss" if held_out else "loss",
                     "Mittal et al. 2022, table 6: 100,000 steps at rate 0.0001, batches of 256, seeds not stated",
                     {name: (row[held_out], None) for name, row in rows.items() if row}, {})
