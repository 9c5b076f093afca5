"""What the three papers say, statement by statement, and what each is held against.

`QUOTES` has each in the papers' own words, `verdicts` the rule.  Pairs, seeds and settings of records that say
`fixed_before` were fixed here before their runs.
"""

from . import compositional, hypernetwork, regular
from .evidence import Comparison, Computed, Counted, Exact, Side, Statement

__all__ = ["QUOTES", "STATEMENTS", "Comparison", "Computed", "Counted", "Exact", "Side", "Statement"]

STATEMENTS = hypernetwork.STATEMENTS + compositional.STATEMENTS + regular.STATEMENTS
QUOTES = {one.words: one.quote for one in reversed(STATEMENTS)}         # reversed: the first of the same words counts
