"""A step of a recipe as a GPU would run it: the strict stand-in for CuPy counts what the host must not do."""

from refattn import params
from refattn.train.evaluation import moved
from refattn.train.record import State
from tests import strict_cupy


def never_waits_nor_transfers_nor_widens(recipe, batch, rng=None):
    """Forward, loss and backward of a second step on a batch wait for nothing, copy nothing and make no float64.

    Returns the flat gradient of both steps.
    """
    model = recipe.build()
    state = State(recipe, model.parameters(), strict_cupy)
    gradient, grads = params.allocate(model.parameters(), xp=strict_cupy)
    batch = moved(batch, strict_cupy)
    x, options = recipe.inputs(batch)
    if rng is not None:
        options |= recipe.dropouts(batch, rng, strict_cupy)

    def step():
        y, saved = model.forward(state.parameters, x, **options)
        _, dy = recipe.loss(y, batch)
        model.backward(state.parameters, saved, dy, grads)

    step()                                              # tables of positions are uploaded once per length
    with strict_cupy.forbid(), strict_cupy.no_float64(), strict_cupy.count() as c:
        step()
    assert c.sync == c.h2d == c.d2h == c.einsum == c.dispatches == 0
    return gradient
