"""Every function of the library as one row of one table: what the checks, planted bugs and reference vectors run over.

Attention rows are read from `attention.VARIANTS` and the three knobs, so a new variant is one row there and one loop in
`naive`.  Layers and models have all parameters as one flat input, `parameters`.
"""

from .attention import pages
from .automata import automata
from .case import Case
from .compositional import compositional_rows
from .images import image_rows
from .layers import layers
from .models import models
from .operations import operations
from .regular import regular_rows
from .routines import routines
from .sequences import normalisations, sequences
from .tasks import tasks

CASES: tuple[Case, ...] = (*operations(), *pages(), *layers(), *models(), *compositional_rows(),
                           *automata(), *regular_rows(), *image_rows(), *normalisations())  # with a backward
ROUTINES: tuple[Case, ...] = (*routines(), *tasks(), *sequences())                      # with a forward only


def find(name: str) -> Case:
    """The row of that name.  Raises ValueError for an unknown one."""
    for case in CASES + ROUTINES:
        if case.name == name:
            return case
    raise ValueError(f"no case is called {name!r}; allowed: {', '.join(case.name for case in CASES + ROUTINES)}")
