"""What is public: named in `__all__`, there, and all that documents and tutorials need (its table: test_reproduce)."""

import ast
import re
from importlib import import_module

import pytest

from tests.readme_tables import DOCUMENTS, ROOT, public_modules

MODULES = public_modules()
READ = "refattn.verification.naive", "refattn.tasks", "refattn.verification.theorems"   # to be read
SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "tutorials").glob("0*.py"))} | {
    path.stem: "\n".join(re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S))
    for path in DOCUMENTS}


@pytest.mark.parametrize("name", MODULES)
def test_public_names_are_there_once(name):
    names = MODULES[name].__all__
    assert len(set(names)) == len(names) and all(hasattr(MODULES[name], x) for x in names)


@pytest.mark.parametrize("source", SOURCES)
def test_examples_use_what_is_public(source):
    for node in ast.walk(ast.parse(SOURCES[source])):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("refattn") and not node.module.startswith(READ):
            for name in (alias.name for alias in node.names):
                here, module = MODULES.get(node.module), f"{node.module}.{name}"
                assert here and name in here.__all__ or module in MODULES or module.startswith(READ), module
                assert getattr(import_module(node.module), name)
