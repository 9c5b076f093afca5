"""What is public: named in `__all__`, there, and all that documents and tutorials need (its table: test_reproduce)."""

import ast
import json
import re
from importlib import import_module
from inspect import isclass

import pytest

from tests import public_arguments
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


@pytest.mark.parametrize("name", MODULES)
def test_public_classes_say_what_they_are(name):
    """Of a tuple help() knew the signature only.  What a page saves is explained field by field."""
    named = [n for n in MODULES[name].__all__ if n not in ("Saved", "Parameter")]
    classes = {n: x for n in named if isclass(x := getattr(MODULES[name], n))}
    assert not [n for n, x in classes.items() if not x.__doc__ or x.__doc__.startswith(f"{n}(")]
    assert not [f"{n}.{p}" for n, x in classes.items() for p, each in vars(x).items()
                if isinstance(each, property) and p[0] != "_" and not each.__doc__ and ".recipes." not in name]


@pytest.mark.parametrize("source", SOURCES)
def test_examples_use_what_is_public(source):
    for node in ast.walk(ast.parse(SOURCES[source])):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("refattn") and not node.module.startswith(READ):
            for name in (alias.name for alias in node.names):
                here, module = MODULES.get(node.module), f"{node.module}.{name}"
                assert here and name in here.__all__ or module in MODULES or module.startswith(READ), module
                assert getattr(import_module(node.module), name)


def test_calls_that_were_right_stay_right():
    """Where a change is meant, and announced in CHANGELOG.md: python -m tests.public_arguments."""
    before, now = json.loads(public_arguments.FILE.read_text(encoding="utf-8")), public_arguments.table()
    assert not [name for name, words in before.items() if name not in now or public_arguments.broken(words, now[name])]


@pytest.mark.parametrize("breaks, now", [
    (False, lambda q, k, bias=None, *, keep=None: 0), (False, lambda q, k, bias=None, new=1, *, far=2, keep=None: 0),
    (True, lambda q, k, bias=None: 0), (True, lambda k, q, bias=None, *, keep=None: 0),
    (True, lambda q, k, new=1, bias=None, *, keep=None: 0), (True, lambda q, k, bias=0, *, keep=None: 0),
    (True, lambda q, k, bias=None, *, far, keep=None: 0), (True, lambda q, k, new, bias=None, *, keep=None: 0),
    (True, lambda q, k, *, bias=None, keep=None: 0), (True, lambda q, key, bias=None, *, keep=None: 0)])
def test_a_broken_call_is_seen(breaks, now):
    before = public_arguments.arguments(lambda q, k, bias=None, *, keep=None: 0)
    assert public_arguments.broken(before, public_arguments.arguments(now)) is breaks
