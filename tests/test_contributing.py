"""A variant is a page, its loops and a row: done as CONTRIBUTING.md says, in a copy of the repository.

Each directory of tests/contributed has page.py, loops.py and row.txt, written by somebody who had read CONTRIBUTING.md
and the pages, not what reads the table.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from refattn.attention import VARIANTS

ROOT = Path(__file__).parents[1]
CONTRIBUTED = sorted(path.parent for path in ROOT.glob("tests/contributed/*/page.py")
                     if path.parent.name not in VARIANTS)       # whoever does the exercise has a sigmoid of his own
NAMES = [path.name for path in CONTRIBUTED]
END = "\n)})\n"                                  # of the table of variants


def run(copy, *words):
    """A Python command in the copy."""
    return subprocess.run([sys.executable, *words], cwd=copy, capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(copy)})


def contribute(copy, folder):
    """What CONTRIBUTING.md says: two files, one row."""
    shutil.copy(folder / "page.py", copy / "refattn" / "attention" / f"{folder.name}.py")
    shutil.copy(folder / "loops.py", copy / "refattn" / "verification" / "naive" / f"{folder.name}.py")
    table = copy / "refattn" / "attention" / "__init__.py"
    before, after = table.read_text(encoding="utf-8").split(END)
    row = (folder / "row.txt").read_text(encoding="utf-8").rstrip()
    table.write_text(f"{before}\n{row}{END}{after}", encoding="utf-8")


@pytest.fixture
def copy(tmp_path):
    """The repository without what is contributed to it."""
    unwanted = shutil.ignore_patterns("__pycache__", ".*", "runs", "rendered", "contributed")
    return Path(shutil.copytree(ROOT, tmp_path / "copy", ignore=unwanted))


@pytest.mark.skipif(not CONTRIBUTED, reason="nothing is contributed here")
def test_everything_follows_from_page_loops_and_row(copy):
    for folder in CONTRIBUTED:
        contribute(copy, folder)
    assert run(copy, "-m", "tests.readme_tables").returncode == 0
    assert run(copy, "-m", "tests.planted.revealed").returncode == 0
    readme = (copy / "README.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in readme for name in NAMES)
    done = run(copy, "-m", "tests.new_variants", *NAMES)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    assert all(re.search(rf"^ok .* gradient of attention/{name}:", done.stdout, re.M) for name in NAMES)
