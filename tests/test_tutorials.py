"""The tutorials run, and the notebooks beside them were rendered from them."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.tutorial
@EACH
def test_it_runs(source):
    one_core = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run([sys.executable, "-W", "error", str(source)], cwd=ROOT, timeout=600,
                          env={**os.environ, **one_core}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert not done.stderr
