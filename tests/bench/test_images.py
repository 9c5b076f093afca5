"""The PyTorch twin of Sort-of-CLEVR learns what ours learns."""

import numpy as np
import pytest

from refattn.recipes import recipe

from .images import Ours, Twin


@pytest.mark.parametrize("attention", ["softmax", "compositional"])
@pytest.mark.parametrize("read", [False, True])
def test_losses_of_six_updates_agree(attention, read):
    pytest.importorskip("torch")
    chosen = recipe("sort_of_clevr", "quick", attention=attention, scenes=20)
    ours = Ours(chosen)
    twin = Twin(ours, read)
    for n in range(2):
        for batch in chosen.turns(chosen.take("train", np.arange(64 * n, 64 * n + 64))):
            assert abs(ours.step(batch) - twin.step(batch)) < 1e-4
