"""The networks for images: parameter counts of every published model, what they refuse, what the token sees."""

import numpy as np
import pytest

from refattn import params
from refattn.attention.compositional import Compositional
from refattn.attention.layer import MultiHead
from refattn.layers.block import Block
from refattn.layers.convolution import Conv
from refattn.layers.feed_forward import FeedForward
from refattn.layers.stack import Stack
from refattn.models.esbn import RelationNetwork
from refattn.models.vision import ClassToken, TaskTokens
from tests.refusals import refused


def stack(d, layers, heads=None, searches=4, retrievals=None, selector=32, scoring="dot"):
    layer = MultiHead(d, heads, d // heads) if heads else Compositional(
        d, searches, retrievals, d // searches, d // searches, selector, scoring)
    return Stack(Block(layer, FeedForward(d, 2 * d, "relu"), epsilon=1e-5), layers, shared=True)


def clevr(d, **attention):
    return ClassToken(Conv(3, d // 2, 15, 15), stack(d, 4, **attention), 10, question=18)


def triangles(d=256, **attention):
    return ClassToken(Conv(1, d, 4, 4), stack(d, 4, **attention), 1)


def multitask(d=256, **attention):
    return TaskTokens(4, 3, stack(d, 2, **attention), tasks=4, outputs=31)


@pytest.mark.parametrize(("model", "expected"), [
    *((clevr(256, retrievals=r), n) for r, n in enumerate((670_186, 686_634, 703_082, 719_530), 1)),
    *((clevr(256, retrievals=r, scoring="linear"), n) for r, n in enumerate((668_203, 684_651, 701_099, 717_547), 1)),
    (clevr(256, heads=4), 684_554), (clevr(256, heads=8), 684_554), (clevr(32, heads=2), 21_066),
    (clevr(32, searches=2, retrievals=2, selector=8), 21_730), (clevr(32, searches=2, retrievals=2), 23_722),
    (clevr(512, heads=4), 2_548_746), (clevr(512, retrievals=2, selector=16), 2_452_314),
    (clevr(512, retrievals=2), 2_487_210), (triangles(heads=4), 531_969),
    *((triangles(retrievals=r), n) for r, n in ((1, 517_601), (2, 534_049), (4, 566_945))),
    *((triangles(retrievals=r, scoring="linear"), n) for r, n in ((1, 515_618), (2, 532_066), (4, 564_962))),
    (multitask(heads=4), 642_527),
    *((multitask(retrievals=r, selector=16), n) for r, n in enumerate((610_671, 627_119, 643_567, 660_015), 1)),
])
def test_parameter_counts_are_the_published_models(model, expected):
    assert params.count(model.parameters()) == expected


SMALL = ClassToken(Conv(1, 8, 4, 4), stack(8, 1, heads=2), 1)


@pytest.mark.parametrize(("make", "arguments", "message"), [
    (ClassToken, (Conv(3, 8, 4, 4), stack(8, 1, heads=2), 1, 5), "width 8, the stack 8; allowed: half of it"),
    (ClassToken, (Conv(3, 4, 4, 4), stack(8, 1, heads=2), 1), "patches have width 4, the stack 8; allowed: one width"),
    (TaskTokens, (4, 3, stack(8, 1, heads=2), 0, 31), "tasks is 0; allowed: whole numbers of at least 1"),
])
def test_settings_are_refused(make, arguments, message):
    refused(message, make, *arguments)


@pytest.mark.parametrize(("model", "shape", "options", "message"), [
    (SMALL, (2, 30, 32, 1), {}, "the image has 30 rows; allowed: 4 + 4 n for windows of 4"),
    (SMALL, (2, 32, 32, 3), {}, "allowed: (b, g, j, i) with i = 1 channels"),
    (SMALL, (2, 32, 32, 1), {"question": np.zeros((2, 18))}, "question is given; allowed: None"),
    (clevr(32, heads=2), (2, 75, 75, 3), {}, "question is None; allowed: (2, 18)"),
    (multitask(8, heads=2), (2, 32, 32, 1), {"task": np.eye(4)[:2]}, "allowed: (b, g, j, i) with i = 3 channels"),
    (RelationNetwork(MultiHead(8, 2, 4), 3, size=8), (5, 16, 16, 1), {"place": np.zeros((1, 3), int)},
     "x has shape (5, 16, 16, 1); allowed: (5, 8, 8, 1)"),
    (RelationNetwork(MultiHead(8, 2, 4), 3, size=8), (5, 8, 8, 1), {"place": np.zeros(3, int)},
     "place has shape (3,); allowed: 2 axes (b, t)"),
    (multitask(8, heads=2), (2, 32, 32, 3), {"task": np.eye(3)[:2]}, "task has shape (2, 3); allowed: (2, 4)"),
])
def test_images_are_refused(model, shape, options, message):
    p = params.allocate(model.parameters())[1]
    refused(message, model.forward, p, np.zeros(shape, np.float32), **options)


@pytest.mark.parametrize(("model", "shape", "options"), [
    (clevr(32, heads=2), (2, 75, 75, 3), {"question": np.zeros((2, 18), np.float32)}),
    (multitask(8, heads=2), (2, 8, 8, 3), {"task": np.eye(4, dtype=np.float32)[:2]}),
    (RelationNetwork(MultiHead(8, 2, 4), 3, size=8), (4, 8, 8, 1), {"place": np.array([[0, 1, 2], [3, 1, 0]])})])
def test_images_and_what_belongs_to_them_are_arrays(model, shape, options):
    p, x, (name,) = params.allocate(model.parameters())[1], np.zeros(shape, np.float32), options
    model.forward(p, x, **options)
    for args, given in ((p, x), {name: options[name].tolist()}), ((p, x.tolist()), options):
        with pytest.raises(TypeError, match="is a list; allowed: an array of NumPy or CuPy"):
            model.forward(*args, **given)


@pytest.mark.parametrize(("model", "shape", "options"), [
    (SMALL, (2, 8, 8, 1), {}), (multitask(8, heads=2), (2, 8, 8, 3), {"task": np.eye(4)[:2]}),
    (RelationNetwork(MultiHead(8, 2, 4), 3, size=8), (4, 8, 8, 1), {"place": np.array([[0, 1, 2], [3, 1, 0]])})])
def test_without_the_gradient_of_pixels_the_others_are_the_same(model, shape, options):
    rng = np.random.default_rng(0)
    flat, p = params.allocate(model.parameters(), np.float64)
    params.initialise(flat, model.parameters(), rng, "random")
    x, found = rng.standard_normal(shape), []
    for pixels in True, False:
        total, grads = params.allocate(model.parameters(), np.float64)
        y, saved = model.forward(p, x, pixels=pixels, **options)
        found.append((total, model.backward(p, saved, y, grads)))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1].shape == x.shape and found[1][1] is None
