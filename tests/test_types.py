"""The package carries its types: somebody else's program is checked against them.  (Its own: `mypy`, in `.ci/run`.)"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = """
import numpy as np
import refattn
from refattn import params
from refattn.attention.layer import MultiHead
from refattn.check import compare
from refattn.train import fit
layer = MultiHead(16, 4, head_width=4)
flat, p = params.allocate(layer.parameters())
y, saved = layer.forward(p, np.ones((1, 2, 16)))
reveal_type(saved)
reveal_type(layer.backward(p, saved, y, p))
reveal_type(compare(print).ok)
reveal_type(fit(None).metrics)
saved.codee
MultiHead(16, 4, head_widht=4)
"""


@pytest.mark.slow
def test_a_program_that_uses_it_is_checked(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir",
                           str(tmp_path / "cache"), str(tmp_path / "program.py")], cwd=ROOT, capture_output=True,
                          text=True, check=False)
    said = [line.split(": ", 1)[1] for line in done.stdout.splitlines() if "program.py" in line]
    revealed = [line.split('"')[1] for line in said if "Revealed type" in line]
    assert [x.replace("builtins.", "") for x in revealed[1:]] == [
        "tuple[Any, Any, Any, fallback=refattn.layers.protocol.Gradients]", "bool", "dict[Any, Any]"]
    assert revealed[0].endswith("fallback=refattn.attention.projections.Saved]")
    assert any('has no attribute "codee"' in line for line in said) and any("head_widht" in line for line in said)
