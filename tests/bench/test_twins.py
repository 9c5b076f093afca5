"""The twins compute what we compute: losses of three steps and all gradients in float64."""
import numpy as np
import pytest

from refattn import optim
from refattn.layers import positions

from . import problem as P
from .ours import Ours, initial

CASES = [(variant, read) for variant in P.VARIANTS for read in (False, True)]


def train(competitor):
    """Losses of three steps (the rate of the first is zero), gradients of the first."""
    batches = [[x.astype(np.float64) for x in P.sample(step)] for step in range(3)]
    losses = [float(competitor.step(batches[0]))]
    gradients = {name: np.array(g) for name, g in competitor.gradients().items()}
    return losses + [float(competitor.step(batch)) for batch in batches[1:]], gradients


def agree(variant, read, *twins):
    parameters = {name: x.astype(np.float64) for name, x in initial(0).items()}
    losses, gradients = train(Ours(parameters, variant, read))
    assert sum(g.size for g in gradients.values()) == P.PARAMETERS
    for twin in twins:
        found_losses, found = train(twin(parameters, variant, read))
        np.testing.assert_allclose(found_losses, losses, rtol=1e-10)
        for name, g in gradients.items():
            np.testing.assert_allclose(found[name], g, rtol=0, atol=1e-10 * max(abs(g).max(), 1e-3), err_msg=name)


def test_the_problem_is_the_one_that_is_trained():
    np.testing.assert_array_equal(P.buckets(), positions.t5_buckets(P.LENGTH, P.LENGTH, P.LENGTH, P.LENGTH))
    for count in (0, 1, 99, 100, 25_000, 49_899, 49_900, 49_999):
        assert P.learning_rate(count) == pytest.approx(
            optim.warmup_cosine(count, rate=P.RATE, steps=P.STEPS, warmup=P.WARMUP), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("variant, read", CASES)
def test_every_pytorch_form_computes_our_step(variant, read):
    pytest.importorskip("torch").set_num_threads(1)
    from .torch_twin import FORMS, Twin
    agree(variant, read, *(lambda *case, form=form: Twin(*case, form) for form in FORMS))


@pytest.mark.slow
@pytest.mark.parametrize("variant, read", CASES)
def test_every_jax_form_computes_our_step(variant, read):
    jax = pytest.importorskip("jax")
    from .jax_twin import FORMS, Twin
    with jax.enable_x64(True):
        agree(variant, read, *(lambda *case, form=form: Twin(*case, form) for form in FORMS[variant]))
