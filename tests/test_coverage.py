"""docs/coverage.md names every part of the three papers, and every command, function and record in it is there."""

import re
import shlex
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from refattn.cli import compiling, training
from refattn.reproduce import records
from refattn.reproduce.all_tables import TABLES
from refattn.verification import theorems

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs/coverage.md").read_text(encoding="utf-8")
ROWS = {paper[0]: [[cell.strip() for cell in line.strip("|").split("|")] for line in paper.splitlines()
                   if line.startswith("| ")][1:] for paper in TEXT.split("\n## ")[1:]}
QUOTED = sorted({text for rows in ROWS.values() for row in rows for text in re.findall("`([^`]*)`", row[2])})


def span(what: str, *ends: str) -> list[str]:
    """`span("table", "A1-3")`: table A1, table A2, table A3."""
    found = []
    for end in ends:
        head, first, last = re.fullmatch(r"(.*?)(\d+)-(\d+)", end).groups()
        found += [f"{what} {head}{n}" for n in range(int(first), int(last) + 1)]
    return found


def letters(*names: str) -> list[str]:
    return [f"appendix {name}" for name in names]


PARTS = {                      # of each paper: all that has a number
    "H": [*span("section", "1-7", "2.1-2", "3.1-2", "4.1-4"), *letters("A", "B", "C", "D"),
          *span("appendix", "A.1-1", "B.1-3", "D.1-2"), *span("figure", "1-6", "A1-9"), *span("table", "A1-3")],
    "C": [*span("section", "1-5", "2.1-3", "4.1-7"), *letters("A", "B", "C"),
          *span("appendix", "A.1-3", "B.1-8", "C.1-7"), *span("figure", "1-17"), *span("table", "1-9")],
    "R": [*span("section", "1-8", "2.1-3", "3.1-4", "5.1-4", "7.1-4"), *letters("A", "B", "C", "D"),
          *span("appendix", "D.1-2"), *span("figure", "1-4"), *span("table", "1-5")],
}


@pytest.mark.parametrize("paper", PARTS)
def test_every_part_of_the_paper_has_one_row(paper):
    assert sorted(row[0] for row in ROWS[paper]) == sorted(PARTS[paper])


@pytest.mark.parametrize("paper", PARTS)
def test_every_row_says_where_or_why_not(paper):
    for place, what, here in ROWS[paper]:
        assert what and re.search("`|^not here, because .{20}|^not yet here$|^its parts follow$", here), place
        if here == "its parts follow":
            assert any(other.startswith(f"{place}.") for other, *_ in ROWS[paper]), place


def dotted(name: str):
    """The object of a dotted name; its module is the longest beginning that is one."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


def command(name: str, *words: str) -> None:
    """Raises what the command line would say of bad words; nothing is trained."""
    if name == "train":
        assert training.plan(list(words))[0]
    elif name == "verify":
        assert words and theorems.chosen(words)
    elif name == "compile":
        compiling.source(compiling.parser().parse(list(words)))
    else:
        options = import_module("refattn.cli.reproduce").parser().parse(list(words))
        assert name == "reproduce" and options["name"] in TABLES


@pytest.mark.parametrize("text", QUOTED)
def test_what_it_names_is_there(text, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    if text.startswith("refattn "):
        command(*shlex.split(text)[1:])
    elif text.startswith("python -m "):
        assert find_spec(text.split()[2])
    elif text.endswith(".json"):
        assert (records.RECORDS / text).exists()
    elif text.startswith("tutorials/"):
        assert (ROOT / text).exists()
    else:
        assert text.startswith("refattn.") and dotted(text) is not None
    assert not list(tmp_path.iterdir())


def test_every_record_and_every_table_has_a_place():
    assert {path.name for path in records.RECORDS.glob("*.json")} <= set(QUOTED)
    missing = {f"refattn reproduce {name}" for name in TABLES} - set(QUOTED)
    assert not missing, f"docs/coverage.md has no {', '.join(sorted(missing))}"
