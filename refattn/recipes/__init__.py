"""Recipes: one frozen dataclass per published experiment, each number with its source.

A row of RECIPES is all that a new experiment needs: the command line makes its flags from the fields, run directories
name it, `refattn list` shows it.
"""

from dataclasses import fields

from ..refusals import unknown
from ..tasks.esbn import TASKS
from ..tasks.languages import LANGUAGES
from .base import Recipe
from .compiled_automaton import CompiledAutomaton
from .contextual_retrieval import ContextualRetrievalRecipe
from .esbn import EsbnRecipe
from .fuzzy_logic import FuzzyLogicRecipe
from .multitask_images import MultitaskImagesRecipe
from .regular_languages import RegularLanguagesRecipe
from .scan import ScanRecipe
from .sort_of_clevr import SortOfClevrRecipe
from .sraven import SravenRecipe
from .text import TextRecipe
from .triangles import TrianglesRecipe

__all__ = ["RECIPES", "SHORT", "Recipe", "recipe"]

RECIPES: dict[str, type[Recipe]] = {kind.TASK: kind for kind in (
    FuzzyLogicRecipe, SravenRecipe, ContextualRetrievalRecipe, RegularLanguagesRecipe, SortOfClevrRecipe,
    TrianglesRecipe, MultitaskImagesRecipe, EsbnRecipe, ScanRecipe, TextRecipe)}
SHORT = {                      # name -> (task, its fields)
    **{name: ("regular_languages", {"language": name}) for name in LANGUAGES},
    **{name: ("esbn", {"problem": name}) for name in TASKS}}


def kind_of(task: str, what: str = "task") -> tuple[type[Recipe], dict]:
    """(class, fields that the name says) of a task, which a refusal calls `what`; its - may stand for _.

    Raises ValueError for an unknown task, or as `check_class` does.
    """
    task = task if task in RECIPES else str(task).replace("-", "_")
    task, fixed = SHORT.get(task, (task, {}))
    if task not in RECIPES:
        raise ValueError(unknown(what, task, [*RECIPES, *SHORT]))
    check_class(RECIPES[task])
    return RECIPES[task], fixed


def check_class(kind: type[Recipe]) -> None:
    """Raises ValueError where what the docstring of Recipe lists in capitals is missing, or names what is not there."""
    said = [name for name in Recipe.__annotations__ if name.isupper() and not hasattr(Recipe, name)]
    if lacking := [name for name in said if not getattr(kind, name, ())]:
        raise ValueError(f"{kind.__name__} lacks {', '.join(lacking)}; allowed: all that the docstring of Recipe lists")
    names = [f.name for f in fields(kind)]
    named = [("metric in TABLE", metric, [*kind.LABELS]) for *_, metric in kind.TABLE]
    named += [(f"field in scale {scale!r}", name, names) for scale in kind.SCALES for name in kind.SCALES[scale]]
    for what, name, known in named:
        if name not in known:
            raise ValueError(unknown(f"{what} of {kind.__name__}", name, known))


def recipe(task: str = "fuzzy_logic", scale: str | None = None, **changes) -> Recipe:
    """The recipe of a task at a scale, its first one unless given, with the given fields changed.

    With other `steps` and no `warmup` the warm-up is at most a tenth of the steps.
    Raises ValueError for an unknown task, scale or field, a value that is not allowed, a language given twice, or a
    class that lacks what the docstring of Recipe lists in capitals.

    >>> recipe("fuzzy_logic", "paper", attention="linear").steps
    50000
    """
    kind, fixed = kind_of(task)
    scale = kind.first_scale() if scale is None else scale
    if scale not in kind.SCALES:
        raise ValueError(unknown("scale", scale, list(kind.SCALES)))
    names = [f.name for f in fields(kind)]
    for name in changes:
        if name not in names:
            raise ValueError(unknown(f"field of {kind.TASK}", name, names))
        if name in fixed:
            raise ValueError(f"{name} is {changes[name]!r}, but task {task!r} says it already; allowed: no {name}, or "
                             f"task {kind.TASK!r}")
    changes = fixed | {name: x.tolist() if hasattr(x, "dtype") else x for name, x in changes.items()}      # of NumPy
    settings = {**kind.scale(scale, changes), **changes}
    if isinstance(settings.get("steps"), int) and "steps" in changes and "warmup" not in changes:
        settings["warmup"] = max(0, min(settings.get("warmup", kind.warmup), settings["steps"] // 10))
    return kind(**settings)


def from_document(document: dict, source) -> Recipe:
    """The recipe that recipe.json describes; a field that came in after it was written has its default.

    Raises ValueError naming the file when it is not one of ours.
    """
    task, given = document.get("task"), document.get("fields", {})
    known = {**RECIPES, CompiledAutomaton.TASK: CompiledAutomaton}
    try:
        if task not in known:
            raise ValueError(f"{unknown('task', task, list(known))}, and one entered into refattn.recipes.RECIPES")
        names = {f.name for f in fields(known[task])}
        if odd := sorted(set(given) - names) if isinstance(given, dict) and given else "everything":
            raise ValueError(f"its fields are not those of {task}: {odd}")
        return known[task](**given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{source} is not a recipe of this refattn ({error})") from error
