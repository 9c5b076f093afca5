"""The PyTorch twin of contextual retrieval learns what ours learns."""

import numpy as np
import pytest

from refattn.recipes import recipe

from .contextual import Ours, Twin


@pytest.mark.parametrize("attention", ["softmax", "compositional"])
@pytest.mark.parametrize("form", ["matmul", "conv"])
def test_losses_of_ten_steps_agree(attention, form):
    pytest.importorskip("torch")
    chosen, rng = recipe("contextual_retrieval", "quick", attention=attention), np.random.default_rng(0)
    ours = Ours(chosen)
    twin = Twin(ours, form)
    for _ in range(10):
        batch = chosen.sample(rng, "train", chosen.batch)
        assert abs(ours.step(batch) - twin.step(batch)) < 1e-4
