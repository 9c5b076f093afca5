"""What the README says is run: its code, its two commands, its table of files, its numbers of bugs and theorems."""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from refattn import cli
from tests import readme_tables

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.M | re.S)
PYTHON = [text for language, text in BLOCKS if language == "python"]


@pytest.mark.parametrize("code", PYTHON, ids=[f"block{i}" for i in range(len(PYTHON))])
def test_python_blocks_run(code, capsys):
    for package in "torch", "jax":
        if re.search(rf"^import {package}|^from {package}", code, re.M) and not find_spec(package):
            pytest.skip(f"{package} is not installed")
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    printed = capsys.readouterr().out
    for line in re.findall(r"^print\(.*\)  +# (\([\d, ()]*\))", code, re.M):
        assert line in printed


def test_it_begins_with_two_commands(tmp_path, capsys):
    language, text = BLOCKS[0]
    install_and_train, install_and_test = text.strip().splitlines()
    assert install_and_train == "pip install . && refattn train"
    assert install_and_test == "pip install '.[test]' && python -m pytest"
    words = shlex.split(install_and_train.split("&&")[1])[1:]
    small = "--steps 2 --evaluation 64 --width 16 --hidden 16".split()
    status = cli.main([*words, *small, "--out", str(tmp_path)])
    assert status in (0, None)
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("softmax", "linear", "hyla"))


def test_every_file_it_names_exists():
    for path in re.findall(r"`((?:refattn|tests|tutorials)/[\w/.]+)`", README):
        assert (ROOT / path).exists(), path
    table = README.split("| what else |")[1].split("\n\n")[0]
    for path in re.findall(r"`([\w/]+\.py)`", table):
        assert (ROOT / "refattn" / path).exists(), path
    for name in re.findall(r"`(0\d_\w+)`", README):
        assert (ROOT / "tutorials" / f"{name}.py").exists(), name


def test_every_extra_that_it_or_an_error_names_can_be_installed():
    there = set(re.findall(r'^    "(\w+)": ', (ROOT / "setup.py").read_text(encoding="utf-8"), re.M))
    sources = [README, *(path.read_text(encoding="utf-8") for folder in ("refattn", "tutorials")
                         for path in (ROOT / folder).rglob("*.py"))]
    named = {name for text in sources for name in re.findall(r"(?:'\.|refattn)\[(\w+)\]", text)}
    assert {"test", "plots", "cluster"} <= named <= there


def test_its_counts_are_those_of_the_tables():
    assert len(re.findall("plants [0-9]+ mistakes|[0-9]+ of [0-9]+ hold", README)) == 2
    assert readme_tables.counted(README) == README, "run: python -m tests.readme_tables"
