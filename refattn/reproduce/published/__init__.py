"""Figures that the papers print, once, for comparison: one file a paper.  They are theirs, never measured here."""

from . import compositional, regular
from .compositional import FIGURE_7, SORT_OF_CLEVR, TABLE_2_OF_C, TABLE_3_OF_C, TABLE_4, TABLE_6
from .hypernetwork import FUZZY_LOGIC, FUZZY_LOGIC_EXPERTS, SRAVEN, SRAVEN_EXPERTS, TABLE_A1, TABLE_A2
from .regular import TABLE_1, TABLE_2, TABLE_3
from .source import Published

__all__ = ["FIGURE_7", "FUZZY_LOGIC", "FUZZY_LOGIC_EXPERTS", "SORT_OF_CLEVR", "SRAVEN", "SRAVEN_EXPERTS", "TABLE_1",
           "TABLE_2", "TABLE_2_OF_C", "TABLE_3", "TABLE_3_OF_C", "TABLE_4", "TABLE_6", "TABLE_A1", "TABLE_A2",
           "Published", "figures_for"]

OTHER_MODELS = Published("none", "Bhattamishra et al. 2020 trained other models. With protocol per_position an "
                         "accuracy is of strings right at every position, so many in each window, not per length", {})
OTHER_CORPORA = Published("none", "the papers trained on other corpora", {})
NOTHING = Published("none", "no paper has this task", {})
BY_TASK = {                    # of a recipe: TASK -> fields -> Published
    "fuzzy_logic": lambda x: FUZZY_LOGIC_EXPERTS if x.get("experts") else FUZZY_LOGIC,
    "sraven": lambda x: SRAVEN_EXPERTS if x.get("experts") else SRAVEN,
    "regular_languages": lambda x: OTHER_MODELS if x["protocol"] == "per_position" else regular.regular_languages(x),
    "contextual_retrieval": compositional.contextual_retrieval,
    "sort_of_clevr": compositional.sort_of_clevr,
    "triangles": compositional.triangles,
    "multitask_images": compositional.multitask_images,
    "esbn": lambda x: compositional.ESBN,
    "scan": compositional.scan,
    "text": lambda x: OTHER_CORPORA,
}


def figures_for(task: str, fields: dict) -> Published:
    """What the paper prints for runs of a recipe with these fields, as far as it does; never measured here."""
    return BY_TASK.get(task, lambda _: NOTHING)(fields)
