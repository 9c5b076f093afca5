"""Rows for images: convolutions of every kind of overlap, and the networks of C's image tasks."""

from ..layers.convolution import Conv
from ..naive.convolution import convolution
from .case import Case
from .layers import row


def conv(name, layer, high, wide) -> Case:
    """Conv of images of high x wide pixels; the sizes are fixed, since windows have to tile them."""
    def make(rng):
        return {"x": rng.standard_normal((int(rng.integers(2, 4)), high, wide, layer.inputs))}

    return row(f"layers/Conv {name}", layer, "layers/convolution.py", make,
               lambda p, x: convolution(x, p.k, p.b, layer.stride, layer.padding), source="LeCun et al. 1989",
               independent="b", symmetric="b", axes={"x": "bgji", "output": "bgjo"})


def image_rows():
    """All rows of this file."""
    yield conv("of tiles", Conv(3, 5, 2, 2), 4, 6)
    yield conv("of overlapping windows", Conv(2, 3, 4, 2, 1), 6, 8)
    yield conv("at every pixel", Conv(2, 4, 3, 1, 1), 5, 4)
    yield conv("of windows that stride does not divide", Conv(3, 2, 3, 2), 5, 7)
    yield conv("with gaps", Conv(2, 3, 2, 3, 1), 6, 9)
