"""The PyTorch twin of nanoGPT's example learns what ours learns."""

import numpy as np
import pytest

from refattn.recipes import recipe

from .contextual import Ours
from .language import Twin


@pytest.mark.parametrize("form", ["matmul", "sdpa"])
def test_losses_of_ten_steps_agree(form):
    pytest.importorskip("torch")
    chosen, rng = recipe("text", "small", text="documentation", width=32, layers=2, decay=0.0), np.random.default_rng(0)
    ours = Ours(chosen)
    twin = Twin(ours, form)
    for _ in range(10):
        batch = chosen.sample(rng)
        assert abs(ours.step(batch) - twin.step(batch)) < 1e-3
