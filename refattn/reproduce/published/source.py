"""What a recipe says of the figures that the paper has for it."""

from typing import NamedTuple


class Published(NamedTuple):
    """Figures of a paper for the variants of a table."""
    metric: str                # heading in our table
    source: str                # one line: where it stands and how it was made
    figures: dict              # attention variant -> (mean, standard error or None)
    by: tuple = ()             # fields of the recipe that choose among the paper's figures
