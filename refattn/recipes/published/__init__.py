"""Figures that the papers print, once, for comparison: one file a paper.  They are theirs, never measured here."""

from .compositional import (
    FIGURE_7,
    SORT_OF_CLEVR,
    TABLE_2_OF_C,
    TABLE_3_OF_C,
    TABLE_4,
    TABLE_6,
    contextual_retrieval,
    esbn,
    multitask_images,
    scan,
    sort_of_clevr,
    triangles,
)
from .hypernetwork import FUZZY_LOGIC, FUZZY_LOGIC_EXPERTS, SRAVEN, SRAVEN_EXPERTS, TABLE_A1, TABLE_A2
from .regular import TABLE_1, TABLE_2, TABLE_3, regular_languages
from .source import Published

__all__ = ["FIGURE_7", "FUZZY_LOGIC", "FUZZY_LOGIC_EXPERTS", "SORT_OF_CLEVR", "SRAVEN", "SRAVEN_EXPERTS", "TABLE_1",
           "TABLE_2", "TABLE_2_OF_C", "TABLE_3", "TABLE_3_OF_C", "TABLE_4", "TABLE_6", "TABLE_A1", "TABLE_A2",
           "Published", "contextual_retrieval", "esbn", "multitask_images", "regular_languages", "scan",
           "sort_of_clevr", "triangles"]
