"""The PyTorch twin of RegularGPT's tree learns what ours learns, and what is timed at great lengths is RegularGPT."""

import numpy as np
import pytest

from refattn.recipes import recipe

from .contextual import Ours
from .regular import Twin, at_length


@pytest.mark.parametrize("form", ["linear", "conv"])
def test_losses_of_ten_steps_agree(form):
    pytest.importorskip("torch")
    chosen, rng = recipe("parity", "quick"), np.random.default_rng(0)
    ours = Ours(chosen)
    twin = Twin(ours, form)
    for _ in range(10):
        batch = chosen.sample(rng)
        assert abs(ours.step(batch) - twin.step(batch)) < 1e-4


def test_growth_and_memory_are_measured(capsys):
    at_length(64)
    seconds, megabytes = map(float, capsys.readouterr().out.split())
    assert seconds > 0 and megabytes > 10
