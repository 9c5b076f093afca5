"""The whole package once more under another name, with some of its source changed, beside the real one.

Planted bugs are loaded this way, and so are the plain formulas that float32 results are judged against.
"""

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_loader
from itertools import count
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
NUMBER = count(1)


@cache
def _compiled(path):
    """The code of an unchanged file: compiled once, however many copies of the package run it."""
    return compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)


class _Loader(SourceFileLoader):
    def __init__(self, fullname, path, edit):
        super().__init__(fullname, path)
        self.edit = edit

    def get_code(self, fullname):
        if self.edit is None:
            return _compiled(self.path)
        return compile(self.edit(self.get_data(self.path).decode()), self.path, "exec", dont_inherit=True)


class _Finder:
    def __init__(self, alias, edits):
        self.alias, self.edits = alias, edits

    def find_spec(self, fullname, path=None, target=None):
        alias, _, rest = fullname.partition(".")
        if alias != self.alias:
            return None
        place = ROOT.joinpath(*rest.split("."))
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if not file.exists():
            return None
        edit = self.edits.get(file.relative_to(ROOT).as_posix())
        return spec_from_loader(fullname, _Loader(fullname, str(file), edit))


def rewritten(edits: dict[str, Callable[[str], str]]) -> ModuleType:
    """The package with the sources of some files changed: file below the package -> function from source to source.

    Everything that `cases` needs is imported, and the changed files.  The copy keeps its own entries in `sys.modules`,
    under its own name; the real package does not notice.  Errors of an edit or of an import are raised as they are.
    """
    alias = f"_{ROOT.name}_{next(NUMBER)}"
    finder = _Finder(alias, edits)
    sys.meta_path.insert(0, finder)
    try:
        package = import_module(alias)
        for file in ("verification/cases/__init__.py", *edits):
            import_module(f"{alias}.{file.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}")
    except BaseException:
        for name in [name for name in sys.modules if name.partition(".")[0] == alias]:
            del sys.modules[name]
        raise
    finally:
        sys.meta_path.remove(finder)
    return package
