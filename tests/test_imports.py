"""Imports point one way, importing is quick, and docstrings say what they promise: read from the sources."""

import ast
import doctest
import importlib
import inspect
import operator
import re
import statistics
import subprocess
import sys
from dataclasses import is_dataclass

import numpy as np
import pytest

import refattn
from refattn.attention import VARIANTS
from refattn.attention.pages import PAGES
from refattn.layers import protocol
from refattn.recipes.base import Recipe
from refattn.recipes.decoder import DecoderRecipe
from refattn.verification.changed_source import ROOT

LEVELS = [                     # a module imports modules of earlier entries and of its own
    "xp refusals files checks", "contract params optim", "ops", "losses", "layers", "attention", "models",
    "verification.naive automata.finite", "tasks", "automata analysis train",
    "verification", "check", "recipes", "reproduce", "cli", "__main__"]
LEVEL = {name: i for i, names in enumerate(LEVELS) for name in names.split()}
# beside NumPy
ALONE = {"verification.naive": ("verification.naive",), "automata.finite": ("checks",),
         "tasks": ("refusals", "files", "checks", "tasks", "automata.finite")}
UPWARDS = ROOT / "train" / "runs.py", "recipes"            # the one look upwards: a run names its recipe
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.name != "__init__.py")
MODULES = [".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__") for path in FILES]
MODULES.remove("refattn.__main__")


def imported(path, inside_functions=False):
    """Dotted names below the package that a file imports, at its top or anywhere."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = path.relative_to(ROOT).parts[:-1]
    for node in ast.walk(tree) if inside_functions else tree.body:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1] + tuple(node.module.split(".") if node.module else ())
            yield from [".".join(base)] if node.module else [".".join((*base, alias.name)) for alias in node.names]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            yield from (f"/{name}" for name in names)


def place(name):
    """The entry of LEVELS that a dotted name belongs to: its own, or that of its folder."""
    own = ".".join(name.split(".")[:2])
    return own if own in LEVEL else name.split(".")[0]


def test_what_describes_a_layer_a_task_or_a_run_never_changes():
    made = {x for name in MODULES for x in vars(importlib.import_module(name)).values()
            if isinstance(x, type) and is_dataclass(x)}
    assert len(made) > 50 and [x for x in made if not x.__dataclass_params__.frozen] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_point_one_way(path):
    mine = place(".".join(path.relative_to(ROOT).with_suffix("").parts))
    assert mine in LEVEL, f"{mine} has no level; add it to LEVELS"
    for name in imported(path, True):
        if not name.startswith("/"):
            other = place(name)
            if (path, other) == UPWARDS:
                continue
            assert LEVEL.get(other, -1) <= LEVEL[mine], f"{mine} imports {other}"
            assert other in ALONE.get(mine, (other,)), f"{mine} imports {other}; NumPy only"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_only_relative_imports_of_the_package(path):
    assert not [name for name in imported(path, True) if name.startswith(f"/{ROOT.name}")]


def test_every_folder_is_a_package():
    """Else an editable installation has what is below it, and a wheel has not."""
    assert {path.parent for path in FILES} == {path.parent for path in ROOT.rglob("__init__.py")}


def test_variants_do_not_import_one_another():
    pages = {row.file.removesuffix(".py") for row in PAGES.values()}
    for page in pages:
        assert not {f"attention.{other}" for other in pages} & set(imported(ROOT / "attention" / f"{page}.py", True))


def test_only_xp_knows_cupy():
    users = [path.name for path in FILES if any(name.split(".")[0] == "/cupy" for name in imported(path, True))]
    assert set(users) <= {"xp.py"}


@pytest.mark.parametrize("file, allowed", [("strategies.py", "hypothesis")])
def test_hypothesis_is_imported_in_one_place(file, allowed):
    users = {path.name for path in FILES if any(name.split(".")[0] == f"/{allowed}" for name in imported(path, True))}
    assert users == {file}


def test_importing_adds_less_than_a_tenth_of_a_second():
    code = "import time, numpy; t = time.perf_counter(); import refattn; print(time.perf_counter() - t)"
    seconds = [float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
               for _ in range(3)]
    assert statistics.median(seconds) < 0.1


def functions(thing):
    """(name, function) of every public function that is defined in a module, and of every method in its classes."""
    home = getattr(thing, "__module__", thing.__name__)
    for name, each in vars(thing).items():
        if not name.startswith("_") and getattr(each, "__module__", None) == home:
            yield from functions(each) if inspect.isclass(each) else [(name, each)] if inspect.isfunction(each) else []


@pytest.mark.parametrize("name", MODULES)
def test_docstrings_are_there_and_their_examples_run(name):
    """Of methods that every layer or recipe has, the words stand once, where it is said what these are."""
    module = importlib.import_module(name)
    assert module.__doc__ or not inspect.getsource(module), f"{name} has no docstring"
    common = f"{protocol.__doc__}{Recipe.__doc__}{DecoderRecipe.__doc__}"
    spoken = {f for f, each in functions(module) if each.__doc__ or f"{f}(" in common or hasattr(Recipe, f)}
    silent = {f for f, _ in functions(module)} - spoken
    assert not silent, f"{name} has functions without a docstring: {silent}"
    assert doctest.testmod(module, extraglobs={"np": np}).failed == 0


def test_every_module_is_reachable_by_its_path():
    """No function of a package has the name of one of its modules: `refattn.attention.hyla` is the page."""
    modules = {name: importlib.import_module(name) for name in MODULES}
    assert all(operator.attrgetter(name.partition(".")[2])(refattn) is module for name, module in modules.items())


@pytest.mark.parametrize("file", sorted({row.file for row in PAGES.values()}))
def test_pages_name_their_source_and_what_differs(file):
    words = (ROOT / "attention" / file).read_text(encoding="utf-8").split('"""')[1]
    assert "Source:" in words and "Differs:" in words, f"{file} lacks Source: or Differs: in its docstring"


@pytest.mark.parametrize("name", VARIANTS)
def test_shapes_tables_are_executed_with_primes(name):
    """Every axis letter of the Shapes table gets its own prime; the call must fit, and return what the table says."""
    row = VARIANTS[name]
    function = getattr(row.forward, "func", row.forward)
    table = re.findall(r"^ +(\w+) +: ((?:[a-z] )*[a-z])(?: |$)", inspect.getdoc(function).split("Shapes")[1], re.M)
    table = dict(table or re.findall(r"^(\w+) +: ((?:[a-z] )*[a-z])(?: |$)", inspect.getdoc(function), re.M))
    wanted = {"q", "k", "v", "bias", "keep", "dropout", "returns", *row.extras}
    assert wanted <= table.keys(), f"the table Shapes of {name} lacks {wanted - table.keys()}"
    size, rng = dict(zip("bqkhde", (2, 3, 5, 7, 11, 13), strict=True)), np.random.default_rng(0)
    arrays = {n: rng.standard_normal([size[x] for x in letters.split()]) for n, letters in table.items()}
    arrays["keep"] = arrays["keep"] > -1
    expected = arrays.pop("returns").shape
    positional = [arrays[n] for n in ("q", "k", "v", *row.extras)]
    o, saved = row.forward(*positional, **{n: arrays[n] for n in ("bias", "keep", "dropout")})
    assert o.shape == expected
    gradients = [g for g in row.backward(saved, o) if g is not None]
    assert [g.shape for g in gradients] == [x.shape for x in (*positional[:3], arrays["bias"], *positional[3:])]
