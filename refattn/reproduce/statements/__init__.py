"""What the three papers say, statement by statement, and what each is held against.

Pairs, seeds and settings of records that say `fixed_before` were fixed here before their runs; `verdicts` has the rule.
"""

from . import compositional, hypernetwork, regular
from .evidence import Comparison, Computed, Counted, Exact, Side, Statement

__all__ = ["STATEMENTS", "Comparison", "Computed", "Counted", "Exact", "Side", "Statement"]

STATEMENTS = hypernetwork.STATEMENTS + compositional.STATEMENTS + regular.STATEMENTS
