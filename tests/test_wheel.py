"""What is built from a checkout says its commit in every run, away from the checkout too; it has the package alone."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no checkout")]
RUN = """
import refattn, sys
from refattn.recipes import recipe
from refattn.train import fit
assert refattn.__file__.startswith(sys.argv[1]), refattn.__file__
fit(recipe("fuzzy_logic", steps=2, batch=4, length=8, width=8, heads=2, hidden=8, evaluation=8), "run", progress=False)
"""


def said(*words, cwd) -> str:
    """What a command prints."""
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False,
                          env={name: x for name, x in os.environ.items() if name != "PYTHONPATH"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A clone with one commit and a file that differs from it; its commit."""
    path = tmp_path_factory.mktemp("built") / "clone"
    said("git", "clone", "--quiet", "--depth", "1", ROOT.as_uri(), str(path), cwd=ROOT)
    for name in "setup.py", "refattn/__init__.py", "refattn/train/runs.py":         # as they are here, committed or not
        shutil.copy(ROOT / name, path / name)
    with open(path / "refattn" / "__init__.py", "a", encoding="utf-8") as file:
        file.write("\n# differs\n")
    return path, said("git", "rev-parse", "HEAD", cwd=path).strip()


@pytest.mark.parametrize("kinds", [("--wheel",), ("--sdist", "--wheel")], ids=["wheel", "sdist, wheel from it"])
def test_a_run_from_a_wheel_has_the_commit(kinds, copy, tmp_path):
    pytest.importorskip("build")
    clone, commit = copy
    for kind in kinds:
        said(sys.executable, "-m", "build", kind, "--outdir", str(tmp_path), str(clone), cwd=tmp_path)
        if kind == "--sdist":
            source, = tmp_path.glob("*.tar.gz")
            said(sys.executable, "-m", "tarfile", "-e", str(source), str(tmp_path / "unpacked"), cwd=tmp_path)
            clone, = (tmp_path / "unpacked").iterdir()
    (wheel,), place, away = tmp_path.glob("*.whl"), tmp_path / "site", tmp_path / "away"
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        file.extractall(place)
    assert {"refattn/COMMIT", "refattn/py.typed"} <= set(names)
    assert all(re.match(r"refattn(-[\d.]+\.dist-info)?/", name) for name in names)
    away.mkdir()
    text = f"import sys; sys.path.insert(0, {str(place)!r})\n{RUN}"
    said(sys.executable, "-c", text, str(place), cwd=away)
    for name in "recipe.json", "result.json":
        assert json.loads((away / "run" / name).read_text())["commit"] == f"{commit}+"
