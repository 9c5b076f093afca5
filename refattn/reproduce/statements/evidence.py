"""What a statement of a paper is held against: comparisons of runs, theorems, counts; nothing where it was never tried.

A comparison is a list of pairs of numbers of runs that differ in nothing but what the statement is about, those that
speak against the statement too.  docs/verdicts.md says which recorded pairs are in none.
"""

from collections.abc import Callable
from typing import NamedTuple

from ..language import CORPORA

COUNTED = {"heads": "{} heads", "experts": "{} experts", "searches": "{} searches", "retrievals": "{} retrievals",
           "scoring": "{} scoring", "width": "width {}", "length": "{} examples", "held_out": "{:.0%} held out",
           "hold_out": "m = {}", "position": "{}"}


class Side(NamedTuple):
    """One number of a run: that of the fields, in a split and metric."""
    fields: dict
    split: str
    metric: str
    at: tuple | None = None    # ("step", n) or ("train.loss", x): where in the history the first point has reached that

    def words(self, other, pairs=()) -> str:
        """What tells it from the other side of its pair, and from other pairs."""
        others = [other, *(side for pair in pairs for side in pair)]
        fields = [str(self.fields[x]) for x in ("problem", "language", "attention", "chunk") if x in self.fields]
        for name, text in COUNTED.items():
            if name in self.fields and any(self.fields[name] != side.fields.get(name) for side in others):
                words = text.format(self.fields[name])
                fields.append(words.removesuffix("s") if self.fields[name] == 1 else words)
        same = (self.split, self.metric) == (other.split, other.metric)
        return ", ".join(fields if same else [*fields, self.split, self.metric])


class Comparison(NamedTuple):
    """Mean over the pairs of better minus worse, paired by seed, positive as claimed; the interval is Student's t."""
    measured: str              # what the number is, in words
    task: str
    pairs: tuple               # (better, worse) Sides
    records: tuple
    scale: str                 # of the runs
    less: bool = False         # whether less is better, as of a loss
    given: tuple = ()          # (split, metric, least): only seeds in which every side has learned that
    margin: float = 0.0        # of a claim that two numbers are the same: they differ by less
    paper: str = "paper"       # the scale with the paper's settings
    seen: bool = False         # whether some of the pairs were listed after their runs had been seen: no star
    beside: tuple = ()         # further pairs, whose mean difference is taken off
    sizes: bool = False        # whether differences count by their size, whichever side is ahead

    @property
    def all_pairs(self) -> tuple:
        """Those that are taken off too."""
        return self.pairs + self.beside

    @property
    def every_side(self) -> list:
        """The Sides of all pairs."""
        return [side for pair in self.all_pairs for side in pair]


class Exact(NamedTuple):
    """Theorems that `refattn verify` checks at random sizes; with `refutes` they say the opposite of the statement."""
    measured: str
    theorems: tuple
    refutes: bool = False


class Counted(NamedTuple):
    """A fraction counted in a record's `rows`, and its standard error, against what the paper allows at most."""
    measured: str
    record: str
    row: dict                  # what the row has
    most: float


class Computed(NamedTuple):
    """A number that follows from the formulas alone, against what the paper allows at most."""
    measured: str
    number: Callable
    most: float


class Statement(NamedTuple):
    """What a paper says, where, what it is held against here, and where that was not tried, what it would cost.

    `quote` is a passage of the paper, from quotes.txt; None where the words are read off a figure or a table alone.
    """
    words: str
    source: str
    evidence: Comparison | Exact | Counted | Computed | None
    cost: str = ""
    quote: str | None = None

    @property
    def paper(self) -> str:
        """H, C or R."""
        return self.source[0]


def statements(words, source, *evidence) -> tuple:
    """One for each evidence that the same words are held against."""
    return tuple(Statement(words, source, each) for each in evidence)


def sides(pairs, split, metric, at=None, **fields) -> tuple:
    """Pairs of Sides, one number of two kinds of runs: from pairs of variants or of fields; all have the others too."""
    def side(own):
        return Side({**fields, **({"attention": own} if isinstance(own, str) else own)}, split, metric, at)
    return tuple(tuple(map(side, pair)) for pair in pairs)


def text(pair, unit, words="", margin=0.0, record="text_models", **fields) -> Comparison:
    """Bits of the test file under two attentions, per character or word; `margin` (bits) if both should be the same."""
    measured = f"bits a {unit[:-1]}{words}" + (f", the same within {margin}" if margin > 0 else "")
    fields = {**CORPORA[unit], "position": "learned", "length": 64, **fields}
    return Comparison(measured, "text", sides((pair,), "test", "bits", **fields), (record,), "small", less=True,
                      margin=margin)
