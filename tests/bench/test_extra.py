"""Without the extra `bench` a benchmark ends with one line that says what to install."""

import subprocess
import sys

import pytest

from refattn.verification.changed_source import ROOT

WITHOUT = "import runpy, sys; sys.modules['torch'] = None; runpy.run_module(sys.argv.pop(1), run_name='__main__')"


@pytest.mark.parametrize("name", ["contextual", "language", "diagnoses"])
def test_what_is_missing_is_named_in_one_line(name):
    said = subprocess.run([sys.executable, "-c", WITHOUT, f"tests.bench.{name}"], cwd=ROOT.parent, text=True,
                          capture_output=True)
    assert said.returncode == 1 and said.stderr == "torch is missing; allowed after: pip install '.[bench]'\n"


@pytest.mark.parametrize("words", [["tests.bench", "--memory", "--rounds", "1", "--variants", "softmax", "--modes",
                                    "read"], ["tests.bench.images", "--memory", "small", "softmax"]])
def test_memory_is_that_of_our_steps_alone(words):
    """One number, and PyTorch is not asked for, whose import takes more than our steps do."""
    said = subprocess.run([sys.executable, "-c", WITHOUT, *words], cwd=ROOT.parent, text=True, capture_output=True)
    assert said.returncode == 0 and 30 < float(said.stdout) < 300, said
