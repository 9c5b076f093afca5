"""Every link of a Markdown file, a notebook or its script leads to a file that is there, and to a heading in it; every
table is one; no network."""

import json
import re
import subprocess
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]
SUFFIXES = ".md", ".ipynb"
SCRIPTS = sorted((ROOT / "tutorials").glob("[0-9][0-9]_*.py"))          # notebooks too, in percent format
FENCED = re.compile(r"^( *)(```+|~~~+).*?^ *\2 *$", re.M | re.S)
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|<(?:a|img)\s[^>]*?(?:href|src)=\"([^\"]+)\"|"
                  r"^\s{0,3}\[[^\]]+\]:\s+(\S+)", re.M)
REFERENCE = re.compile(r"\[[^\]]+\]\[([^\]]+)\]")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//")


def documents() -> list[Path]:
    """The Markdown files and notebooks of the repository that git knows or would add, and the notebooks' scripts."""
    asked = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *(f"*{x}" for x in SUFFIXES)], cwd=ROOT,
                           capture_output=True, text=True, check=False)
    found = [ROOT / name for name in asked.stdout.splitlines()] if asked.returncode == 0 else [
        path for path in ROOT.rglob("*") if path.suffix in SUFFIXES]
    return sorted({*SCRIPTS, *(path for path in found if path.exists())})


def prose(text: str) -> str:
    """Markdown without its code, in which brackets are no links.

    >>> prose('a `[b](c)` [d](e)')
    'a `` [d](e)'
    """
    return re.sub(r"(`+).+?\1", "``", FENCED.sub("", text), flags=re.S)


@cache
def markdown(path: Path) -> str:
    """The text of a Markdown file, or of the text cells of a notebook or its script."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"]
                           if cell["cell_type"] == "markdown")
    elif path.suffix == ".py":
        cells = re.findall(r"^# %% \[markdown\]\n(.*?)(?=^# %%|\Z)", text, re.M | re.S)
        text = "\n\n".join(re.sub(r"^# ?", "", cell, flags=re.M) for cell in cells)
    return text


def slug(heading: str) -> str:
    """What the forge makes of a heading.

    >>> slug("What `refattn train` prints: R², in 2 lines")
    'what-refattn-train-prints-r²-in-2-lines'
    """
    heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().strip("#").strip())
    return re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "").replace("*", "")).replace(" ", "-")


@cache
def anchors(path: Path) -> set[str]:
    """The names of a document's headings, the second of the same words with -1 behind it, and of its <a name>s."""
    text = FENCED.sub("", markdown(path))
    found: set[str] = set(re.findall(r"<a (?:name|id)=\"([^\"]+)\"", text))
    times: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.+)$", text, re.M):
        name = slug(heading)
        found.add(f"{name}-{times[name]}" if name in times else name)
        times[name] = times.get(name, 0) + 1
    return found


def broken(path: Path) -> list[str]:
    """The links of a document that lead nowhere."""
    text, bad = prose(markdown(path)), []
    defined = set(re.findall(r"^\s{0,3}\[([^\]]+)\]:", text, re.M))
    bad += [f"[{name}]" for name in REFERENCE.findall(text) if name not in defined]
    for found in LINK.findall(text):
        link = next(filter(None, found))
        if ELSEWHERE.match(link) or link.startswith("attachment:"):
            continue
        place, _, anchor = unquote(link).partition("#")
        target = (path.parent / place).resolve() if place else path
        if not target.exists() or not target.is_relative_to(ROOT):
            bad.append(link)
        elif anchor and (target.suffix not in SUFFIXES or anchor not in anchors(target)):
            bad.append(link)
    return bad


def torn(text: str) -> list[str]:
    """What is wrong with the tables of Markdown: rows of another number of cells, and text that has become a row.

    >>> torn("| a | b |\\n|---|---|\\n| 1 | `2|3` |\\nand so on")
    ['| 1 | `2|3` |', 'and so on']
    """
    bad, width = [], 0
    lines = [*re.sub(r"^<!--.*", "", FENCED.sub("", text), flags=re.M).splitlines(), ""]      # a comment ends a table
    for line, after in pairwise(lines):
        bars = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        if not width and bars and re.fullmatch(r"\|(\s*:?-+:?\s*\|)+", after):
            width = bars
        bad += [line] * bool(width and line.strip() and bars != width)
        width = width if line.strip() else 0
    return bad


EACH = pytest.mark.parametrize("path", documents(), ids=lambda path: path.relative_to(ROOT).as_posix())


@EACH
def test_links_lead_somewhere(path):
    assert broken(path) == []


@EACH
def test_tables_are_whole(path):
    assert torn(markdown(path)) == []


def test_a_torn_table_is_found():
    head = "a\n\n| a | b |\n|---|:-:|\n"
    assert torn(head + "| 1 | `2\\|3` |\n\nand so on\n```\n| a |\n|---|\nb\n```") == []
    assert torn(head + "| 1 | `2|3` |\n| 4 |\nand so on\n\n| 5 |") == ["| 1 | `2|3` |", "| 4 |", "and so on"]


def test_a_broken_link_is_found(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "b.md").write_text("# One\n# One\n```\n# no heading\n```\n## Two: `three`, [four](x)\n")
    good = "[a](b.md) [c](b.md#one-1) ![d](b.md 'x') `[e](no.md)` [f](https://no.where) [g](#here) [h][i]\n# Here\n"
    (tmp_path / "a.md").write_text(good.replace("'x'", '"x"') + "[i]: b.md#two-three-four\n")
    assert broken(tmp_path / "a.md") == []
    wrong = ["no.md", "b.md#no-heading", "#no", "../x", "b.md#one-2"]
    (tmp_path / "c.md").write_text(" ".join(f"[a]({link})" for link in wrong) + " [b][c] <img src=\"no.png\">")
    cells = [{"cell_type": "markdown", "source": ["[a](no", ".md)"]}, {"cell_type": "code", "source": "[a](b)"}]
    (tmp_path / "d.ipynb").write_text(json.dumps({"cells": cells}))
    assert broken(tmp_path / "c.md") == ["[c]", *wrong, "no.png"] and broken(tmp_path / "d.ipynb") == ["no.md"]


def test_documents_are_looked_at():
    names = {path.relative_to(ROOT).as_posix() for path in documents()}
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/coverage.md"} <= names
    for script in SCRIPTS:
        assert {f"tutorials/{script.name}", f"tutorials/rendered/{script.stem}.ipynb"} <= names
        assert len(LINK.findall(prose(markdown(script)))) >= 5
