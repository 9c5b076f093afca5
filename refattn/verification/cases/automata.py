"""Rows for lemma 1, whose factors are random: there the kink of the relu is never met."""

from ...automata.lemma_1 import lemma_1, lemma_1_backward
from ..naive.lemma_1 import lemma_1 as loops
from .operations import op


def rows():
    """All rows of this file."""
    yield op("lemma_1", lemma_1, lemma_1_backward, loops, "bnn", source="R, lemma 1",
             file="automata/lemma_1.py", a="bnn", b="bnn", independent="b", symmetric="bn", smallest=3)
