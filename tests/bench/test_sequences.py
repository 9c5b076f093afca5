"""The PyTorch twins of ESBN's network and of SCAN's encoder and decoder learn what ours learn."""

import pytest

from refattn.recipes import recipe

from .images import Ours
from .sequences import Esbn, Scan

FIELDS = {"attention": "softmax"}, {"retrievals": 2, "scoring": "dot"}, {"retrievals": 2, "scoring": "linear"}


@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize("once", [False, True])
def test_losses_of_esbn_agree(fields, once):
    pytest.importorskip("torch")
    for problem, steps in ("rmts", 1), ("identity_rules", 2):      # slopes of constant features are steep: runs part
        chosen = recipe(problem, "paper", hold_out=95, **fields)
        ours = Ours(chosen)
        twin = Esbn(ours, once)
        for step in range(steps):
            batch = chosen.draw(step)
            assert abs(ours.step(batch) - twin.step(batch)) < 2e-4


@pytest.mark.parametrize("fields", FIELDS)
def test_losses_of_scan_agree(fields):
    pytest.importorskip("torch")
    chosen = recipe("scan", "paper", width=32, heads=4, batch=8, dropout=0.0, **fields)
    ours = Ours(chosen)
    twin = Scan(ours)
    for step in range(4):
        batch = chosen.draw(step)
        assert abs(ours.step(batch) - twin.step(batch)) < 1e-4
