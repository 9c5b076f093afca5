"""What the three papers say, statement by statement, and what each is held against.

Pairs, seeds and settings are fixed here before the runs that they judge; `verdicts` has the rule.
"""

from . import compositional, hypernetwork, regular
from .evidence import Comparison, Computed, Counted, Exact, Side, Statement

__all__ = ["STATEMENTS", "Comparison", "Computed", "Counted", "Exact", "Side", "Statement"]

STATEMENTS = hypernetwork.STATEMENTS + compositional.STATEMENTS + regular.STATEMENTS
