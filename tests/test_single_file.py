"""The three single files are short, need NumPy alone, and compute what the library computes."""

import ast
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from refattn import losses, optim, params
from refattn.attention.layer import MultiHead
from refattn.attention.sliding_dilated import SlidingDilated
from refattn.check import deviation
from refattn.layers.feed_forward import FeedForward
from refattn.models.regular_gpt import RegularGPT
from refattn.models.transformer import decoder

HERE = Path(__file__).resolve().parents[1] / "tutorials" / "single_file"
NAMES = "softmax", "hyla", "regulargpt"
EACH = pytest.mark.parametrize("name", NAMES)


def module(name):
    spec = importlib.util.spec_from_file_location(f"single_file_{name}", HERE / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def librarys(name, one):
    """The library's model of a single file."""
    if name == "regulargpt":
        attention = SlidingDilated(one.WIDTH, one.HEADS, one.HEAD, one.CHUNK)
        return RegularGPT(attention, FeedForward(one.WIDTH, one.HIDDEN, "relu"), vocabulary=2, outputs=2)
    attention = MultiHead(one.WIDTH, one.HEADS, one.HEAD, variant=name, biases=False)
    inputs, outputs = one.shapes()["embed.w"][0], one.shapes()["readout.b"][0]
    return decoder(attention, hidden=one.HIDDEN, layers=one.BLOCKS, inputs=inputs, outputs=outputs,
                   feed_forward=FeedForward(one.WIDTH, one.HIDDEN, "relu"))


def draw(name, one, rng):
    return one.draw(rng, 6, 21) if name == "regulargpt" else one.draw(rng, 6)


def librarys_loss(name, model, p, batch, grads):
    """Its loss, and its gradients in `grads`."""
    x, target = batch
    options = {"tree": True} if name == "regulargpt" else {"read": slice(-1, None)}
    y, saved = model.forward(p, x.astype(float) if x.dtype.kind == "f" else x, **options)
    if name == "hyla":
        loss, dy = losses.mse(y[:, 0, 0], target)
        dy = dy[:, None, None]
    else:
        loss, dy = losses.cross_entropy(y[:, 0], target)
        dy = dy[:, None]
    model.backward(p, saved, dy, grads)
    return loss


@EACH
def test_it_is_short_and_imports_numpy_alone(name):
    source = (HERE / f"{name}.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 200
    imported = {node.module if isinstance(node, ast.ImportFrom) else alias.name
                for node in ast.walk(ast.parse(source)) if isinstance(node, (ast.Import, ast.ImportFrom))
                for alias in node.names}
    assert imported == {"os", "time", "math", "numpy"}
    assert sorted(path.stem for path in HERE.glob("*.py")) == sorted(NAMES)


@EACH
def test_loss_and_gradients_are_the_librarys(name):
    one, rng = module(name), np.random.default_rng(3)
    model = librarys(name, one)
    listed = {full.replace("blocks.0.", "") if name == "regulargpt" else full: full
              for full, _ in params.entries(model.parameters())}
    flat, views = params.allocate(model.parameters(), np.float64)
    params.initialise(flat, model.parameters(), rng, "random")
    own, first = {}, 0
    shapes = dict(params.entries(model.parameters()))
    for short, full in listed.items():                  # the library's layout, by the file's names
        shape = shapes[full].shape
        own[short] = flat[first:first + np.prod(shape)].reshape(shape)
        first += own[short].size
    assert {short: x.shape for short, x in own.items()} == one.shapes()

    gradient, grads = params.allocate(model.parameters(), np.float64)
    batch = draw(name, one, rng)
    loss = librarys_loss(name, model, views, batch, grads)
    theirs, g, _ = one.loss_and_gradients(own, *batch)
    assert deviation("loss", np.array(theirs), np.array(loss)) < 1e-12
    assert set(g) == set(own)
    joined = np.concatenate([g[short].ravel() for short in listed])
    start = 0
    for short in listed:                                # array by array, so that a small gradient counts too
        stop = start + own[short].size
        scale = max(np.abs(gradient[start:stop]).max(), 1e-9 * np.abs(gradient).max())
        assert np.abs(joined[start:stop] - gradient[start:stop]).max() < 1e-11 * scale, short
        start = stop

    moments, copy = optim.moments(flat), {short: x.copy() for short, x in own.items()}
    first, second = ({short: np.zeros_like(x) for short, x in own.items()} for _ in range(2))
    for step in 1, 2, 3:
        one.adam(copy, g, first, second, step, 0.01)
        optim.adamw_step(flat, gradient, moments, step=step, rate=0.01)
    for short, x in own.items():
        assert np.abs(copy[short] - x).max() < 1e-6, short


@EACH
def test_a_few_steps_print_a_curve(name, capsys):
    module(name).main(steps=3)
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 5 and "parameters" in said[0] and "seconds" in said[-1]
    assert all("loss" in line for line in said[1:4])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("softmax", 0.95), ("hyla", 0.3), ("regulargpt", 0.95)])
def test_it_learns(name, least):
    assert module(name).main() > least
