"""The tutorials run, and the notebooks beside them were rendered from them."""

import ast
import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.test_links import markdown, prose
from tutorials.render import seen_from_rendered

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "tutorials").glob("[0-9][0-9]_*.py"))
EACH = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)


RENDERED = ROOT / "tutorials" / "rendered"


def notebook(source):
    return json.loads((RENDERED / f"{source.stem}.ipynb").read_text(encoding="utf-8"))


def outputs(source):
    return [out for cell in notebook(source)["cells"] for out in cell.get("outputs", ())]


def test_there_are_tutorials_and_no_notebook_without_one():
    assert len(SOURCES) >= 3
    rendered = {path.stem for path in RENDERED.glob("*.ipynb")}
    assert rendered == {source.stem for source in SOURCES}


@EACH
def test_the_notebook_is_of_this_source(source):
    stamp = notebook(source)["metadata"]["refattn"]
    digest = hashlib.sha256(source.read_text(encoding="utf-8").encode()).hexdigest()
    expected = {"source": f"tutorials/{source.name}", "sha256": digest}
    assert stamp == expected, "run: python tutorials/render.py"


@cache
def functions():
    """{name: texts of the library's functions of that name}."""
    found = {}
    for path in (ROOT / "refattn").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                found.setdefault(node.name, []).append(ast.get_source_segment(text, node))
    return found


@EACH
def test_the_notebook_prints_the_source_that_there_is(source):
    said = "".join("".join(out.get("text", ())) for out in outputs(source))
    asked = Counter(re.findall(r"inspect\.getsource\((?:\w+\.)*(\w+)\)(\.split)?", source.read_text(encoding="utf-8")))
    for (name, cut), times in asked.items():
        texts = [text.split('"""')[2] if cut else text for text in functions()[name] if text.count('"""') or not cut]
        assert sum(text in said for text in texts) >= times, f"{name}; run: python tutorials/render.py {source.stem}"


@EACH
def test_the_notebook_was_run_from_top_to_bottom_and_shows_figures(source):
    code = [cell for cell in notebook(source)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert {out["output_type"] for out in outputs(source)} <= {"stream", "display_data"}
    assert sum("image/png" in out.get("data", {}) for out in outputs(source)) >= 2


@EACH
def test_the_notebook_says_nothing_about_the_machine(source):
    assert set(notebook(source)["metadata"]) == {"kernelspec", "language_info", "refattn"}
    assert not any(cell["metadata"] for cell in notebook(source)["cells"])
    said = "".join("".join(out.get("text", ())) for out in outputs(source))
    assert not re.search(r"(?:/home/|/Users/|/tmp/|/root/|[A-Z]:\\)| at 0x[0-9a-f]+", said)


@EACH
def test_the_source_tells_what_it_does_and_ends_with_what_to_change(source):
    text = source.read_text(encoding="utf-8")
    for words in "What you'll do", "What you'll learn", "What you need", "Change this", "differ":
        assert words in text
    assert text.count("\nassert ") + text.count("\n    assert ") >= 5


@EACH
def test_it_links_to_the_last_the_next_its_pages_and_the_exercises(source):
    place, text = SOURCES.index(source), source.read_text(encoding="utf-8")
    head = text[:text.index("**What you'll do.**")]
    links = re.findall(r"\]\((\S+?)\)", head)
    for other in SOURCES[max(0, place - 1):place] + SOURCES[place + 1:place + 2]:
        assert other.name in links
    assert {"README.md", "exercises/README.md"} <= set(links)
    assert sum(link.startswith("../refattn/") for link in links) >= 3
    assert "pip install '.[plots" in head and "equations:" in head


@EACH
def test_the_notebook_has_the_text_of_the_source_and_its_links(source):
    rendered = markdown(RENDERED / f"{source.stem}.ipynb")
    assert rendered.split() == seen_from_rendered(markdown(source)).split()


@EACH
def test_a_number_in_brackets_is_that_of_a_line(source):
    text = prose(markdown(source))
    lines = re.compile(r"\bline \(1?\d\)|\blines \(1?\d\) and \(1?\d\)|^\| \(1?\d\) \|", re.M | re.I)
    assert not re.findall(r".*\(1?\d\).*", lines.sub("", text))
    assert not re.search(r"\\tag\{(?!eq\. )", text)


def test_the_guide_lists_every_tutorial_and_links_to_what_is_there():
    guide = ROOT / "tutorials" / "README.md"
    text = guide.read_text(encoding="utf-8")
    for source in SOURCES:
        assert text.count(f"(rendered/{source.stem}.ipynb)") == 1
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert link.startswith("https://") or (guide.parent / link.split("#")[0]).exists(), link
    for words in "A reader", "A kernel author", "An experimenter", "One week for a lecturer", "## Notation":
        assert words in text


@pytest.mark.parametrize("name", ["softmax", "hyla", "compositional", "sliding_dilated"])
def test_a_diagram_is_drawn_from_the_page(name):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from tutorials import diagrams
    assert name in diagrams.ATTENTION
    page = importlib.import_module(f"refattn.attention.{name}")
    down, up = (diagrams.lines_of(getattr(page, each)) for each in (name, f"{name}_backward"))
    assert {line.tag for line in down} == {line.tag for line in up}
    assert all(line.words.count("(") == line.words.count(")") for line in (*down, *up))      # none is cut in two
    figure = diagrams.flow(name)
    drawn = "\n".join(text.get_text() for text in figure.axes[0].texts)
    assert all(line.words in drawn for line in (*down, *up))
    if name == "hyla":                                  # the code's gradient goes from (7) past (6) to (5)
        assert "dc" in diagrams.edges(up)[7, 5] and "c" in diagrams.edges(down)[4, 7]
    assert diagrams.attention(name).axes[0].get_title()
    diagrams.plt.close("all")


@pytest.mark.tutorial
@EACH
def test_it_runs(source):
    one_core = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run([sys.executable, "-W", "error", str(source)], cwd=ROOT, timeout=600,
                          env={**os.environ, **one_core, "TQDM_DISABLE": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert not done.stderr
