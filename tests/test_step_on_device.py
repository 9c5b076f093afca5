"""A training step as a GPU would run it: the strict stand-in counts what the host must not do.

In a step nothing waits for the device, nothing is copied to or from it but the batch, and no float64 appears.
"""

import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from refattn import losses, ops, optim, params, xp
from refattn.attention import VARIANTS
from refattn.attention.layer import MultiHead
from refattn.models.transformer import decoder
from tests import strict_cupy

B, T = 4, 6


def a_model(variant):
    return decoder(MultiHead(8, 2, 3, variant=variant), hidden=10, layers=2, buckets=T, inputs=5)


def a_step(module, variant, read):
    """step(count) -> loss and flat gradient in the module; batch and dropout are on the device before it is called."""
    model = a_model(variant)
    layout = model.parameters()
    rng = np.random.default_rng(0)
    (flat, p), (flat_grads, grads) = (params.allocate(layout, np.float32, module) for _ in range(2))
    params.initialise(flat, layout, rng, "lecun_normal")
    state, mask = optim.moments(flat), params.decay_mask(layout, "released", np.float32, module)
    x, target = (module.asarray(rng.random(shape, dtype=np.float32)) for shape in ((B, T, 5), (B,)))
    dropout = module.asarray((rng.random((2, 1, 1, T, T), dtype=np.float32) < 0.9) * np.float32(1 / 0.9))

    def step(count):
        y, saved = model.forward(p, x, dropout=dropout, read=read)
        loss, dlast = losses.mse(y[:, -1, 0], target)
        dy = module.zeros_like(y)
        dy[:, -1, 0] = dlast
        flat_grads.fill(0)
        model.backward(p, saved, dy, grads)
        optim.clip_by_global_norm(flat_grads, 1.0)
        optim.adamw_step(flat, flat_grads, state, step=count + 1, rate=1e-3, decay=0.1, mask=mask)
        return loss, flat_grads

    return step


@pytest.mark.parametrize("read", [None, slice(T - 1, T)], ids=["whole", "read"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_step_never_waits_nor_transfers_nor_widens(variant, read):
    step = a_step(strict_cupy, variant, read)
    step(0)                                             # bucket indices are uploaded once per length
    with strict_cupy.forbid(), strict_cupy.no_float64(), strict_cupy.count() as c:
        step(1)
    assert c.dispatches == 0, "NumPy was called on an array of the device; allowed: its array_module"
    assert c.sync == c.h2d == c.d2h == c.einsum == c.pointer_gemms == 0, c


LAUNCHES = {"softmax": 430, "linear": 396, "hyla": 452}     # per step of this model, recorded; fewer is better


@pytest.mark.parametrize("variant", LAUNCHES)
def test_launches_do_not_grow(variant):
    step = a_step(strict_cupy, variant, None)
    step(0)
    with strict_cupy.count() as c:
        step(1)
    assert c.launches <= LAUNCHES[variant]


def agree_on(module, tolerance):
    """Losses of three steps, gradient of the first; not the parameters, since AdamW blows up the rounding of zero."""
    for variant in VARIANTS:
        ours, theirs = (a_step(m, variant, None) for m in (np, module))
        for count in range(3):
            (loss, gradient), (loss2, gradient2) = ours(count), theirs(count)
            assert abs(float(loss) - float(loss2.get())) < tolerance
            if count == 0:
                assert np.abs(gradient - gradient2.get()).max() < tolerance * np.abs(gradient).max()


def test_three_steps_agree_with_numpy():
    agree_on(strict_cupy, 1e-5)


@pytest.mark.parametrize(("module", "rows"), [(np, [1, 1, 1]), (strict_cupy, [3])])
def test_rows_are_tiled_on_the_host_alone(module, rows):
    x, found = module.zeros((3, 1 << 16), dtype=np.float32), []
    ops.in_tiles(lambda piece, out: found.append(len(piece)), x, outs=(x,))
    assert found == rows


def test_a_device_that_multiplies_rightly_is_taken(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", strict_cupy)
    assert xp.device("gpu") is strict_cupy and xp.device("cpu") is np


@pytest.mark.parametrize("product, said", [
    (RuntimeError("old\ndriver"), "device is 'gpu', which does not answer (old); allowed: cpu, or a driver"),
    (MemoryError(), "does not answer (MemoryError)"), (np.zeros((2, 2)), "(a 2 x 2 product came out wrong)"),
    (ImportError("no cupy"), "CuPy is missing (no cupy); allowed: cpu, or gpu after pip install"),
])
def test_why_a_device_does_not_answer_is_said(monkeypatch, product, said):
    def ones(shape, dtype):
        if isinstance(product, Exception):
            raise product
        return product

    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(ones=ones))
    with pytest.raises(RuntimeError, match=re.escape(said)):
        xp.device("gpu")


@pytest.mark.gpu
def test_three_steps_agree_with_numpy_on_the_device():
    pytest.importorskip("cupy")
    agree_on(xp.device("gpu"), 1e-4)                    # sums in another order; NumPy's are up to 2.5e-5 from float64


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*allow_synchronize")                   # it is deprecated or experimental
def test_a_step_never_waits_on_the_device():
    cupyx = pytest.importorskip("cupyx")
    step = a_step(xp.device("gpu"), "hyla", None)
    step(0)
    with cupyx.allow_synchronize(False):
        step(1)
