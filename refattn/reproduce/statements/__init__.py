"""What the three papers say, statement by statement, and what each is held against.

`QUOTES` has each in the papers' own words, `verdicts` the rule.  Seeds and settings of records that say `fixed_before`
were fixed before their runs, in `docs/unfinished_runs/README.md` or here; pairs that were listed later have `seen`.
"""

from importlib.resources import files

from . import compositional, hypernetwork, regular
from .evidence import Comparison, Computed, Counted, Exact, Side, Statement

__all__ = ["QUOTES", "STATEMENTS", "Comparison", "Computed", "Counted", "Exact", "Side", "Statement"]

TEXT = files(__package__).joinpath("quotes.txt").read_text(encoding="utf-8")


def passages(text: str) -> dict[str, str]:
    """{words of a statement: passage of its paper}, from blocks of words, a line each, above the passage, indented.

    >>> passages("Introduction.\\n\\nOne\\nTwo\\n    they\\n    say")
    {'One': 'they say', 'Two': 'they say'}
    """
    found = {}
    for block in text.split("\n\n")[1:]:
        words, _, passage = block.partition("\n    ")
        found |= dict.fromkeys(words.split("\n"), " ".join(passage.split()))
    return found


PASSAGES = passages(TEXT)
STATEMENTS = tuple(one._replace(quote=PASSAGES.get(one.words))
                   for one in hypernetwork.STATEMENTS + compositional.STATEMENTS + regular.STATEMENTS)
QUOTES = {one.words: one.quote for one in STATEMENTS}
