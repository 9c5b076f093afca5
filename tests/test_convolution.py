"""Convolution: what the generic checks do not see, and what it refuses."""

import numpy as np
import pytest

from refattn import params
from refattn.layers.convolution import Conv, image_of, patches, windows
from tests.refusals import refused


def test_patches_of_tiles_are_the_image_cut_up():
    x = np.arange(2 * 4 * 6 * 3).reshape(2, 4, 6, 3)
    np.testing.assert_array_equal(patches(x, 2, 2)[1, 1, 2], x[1, 2:4, 4:6])


def test_initial_values_have_the_fan_in_of_a_window():
    conv = Conv(3, 40, 5)
    flat, p = params.allocate(conv.parameters())
    params.initialise(flat, conv.parameters(), np.random.default_rng(0), "pytorch")
    for x in p.k, p.b:
        assert 0.9 * 75**-0.5 < np.abs(x).max() <= 75**-0.5


@pytest.mark.parametrize(("shape", "message"), [
    ((1, 74, 75, 3), "the image has 74 rows; allowed: 15 + 15 n for windows of 15, stride 15, padding 0"),
    ((1, 75, 10, 3), "image has 10 columns; allowed: 15 + 15 n for windows"),
    ((1, 75, 75, 1), "x has shape (1, 75, 75, 1); allowed: (b, g, j, i) with i = 3 channels"),
    ((75, 75, 3), "x has shape (75, 75, 3)"),
])
def test_images_are_refused(shape, message):
    conv = Conv(3, 2, 15, 15)
    refused(message, conv.forward, params.allocate(conv.parameters())[1], np.zeros(shape, np.float32))


@pytest.mark.parametrize(("settings", "message"), [
    ((3, 2, 0), "size is 0; allowed: whole numbers of at least 1"), ((3, 2, 4, 0), "stride is 0"),
    ((3, 2, 4, 2, -1), "padding is -1"),
    ((3, 2, 4, 2, 4), "padding is 4; allowed: whole numbers from 0 to 3"), ((0, 2, 4), "inputs is 0"),
])
def test_settings_are_refused(settings, message):
    refused(message, Conv, *settings)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: windows(4, 0, 2, 0), "size is 0"), (lambda: windows(4, 2, 0, 0), "stride is 0"),
    (lambda: windows(-2, 2, 2, 3), "rows is -2"), (lambda: windows(4.0, 2, 2, 0, "columns"), "columns is 4.0"),
    (lambda: patches(np.ones((4, 4, 1)), 2, 2), "x has shape (4, 4, 1); allowed: 4 axes (b, g, j, i)"),
    (lambda: image_of(np.ones((1, 2, 2, 2, 2))), "squares has shape (1, 2, 2, 2, 2); allowed: 6 axes"),
])
def test_windows_are_counted_in_whole_numbers_and_images_have_four_axes(make, message):
    refused(message, make)


def test_an_image_is_an_array():
    conv = Conv(1, 2, 2)
    with pytest.raises(TypeError, match="x is a list; allowed: an array"):
        conv.forward(params.allocate(conv.parameters())[1], [[[[1.0]]]])
