"""Convolution of images: every window as one row of numbers, then one matrix product.

    y[g, j, o] = b[o] + sum_uwi x[stride g + u - padding, stride j + w - padding, i] k[u, w, i, o]

Source: LeCun et al. 1989; as patch embedding (stride = size, no padding), Dosovitskiy et al. 2021 and C, section 4.2.
Differs: features last, (b, row, column, channel); an image that the windows do not tile is refused, not cropped.
Symbols: g, j = row and column of a pixel or window; u, w = row and column in a window; i, o = channels in and out.
"""

from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

from .. import ops
from ..contract import contract
from ..params import Parameter, check_integers
from ..xp import array_module

__all__ = ["Conv", "patches", "patches_backward", "windows"]


def windows(length: int, size: int, stride: int, padding: int, name: str = "rows") -> int:
    """How many windows lie in a line of pixels.  Raises ValueError where the last one does not end at the border.

    >>> windows(75, 15, 15, 0), windows(32, 4, 2, 1)
    (5, 16)
    """
    room = length + 2 * padding - size
    if room < 0 or room % stride:
        raise ValueError(f"the image has {length} {name}; allowed: {size - 2 * padding} + {stride} n for windows of "
                         f"{size}, stride {stride}, padding {padding}")
    return room // stride + 1


def _parts(size: int, stride: int, rows: int, columns: int):
    """(where in the windows, where in the blocks) of each piece that all windows hold in one and the same place.

    Blocks are the padded image cut into squares of stride x stride; a window overlaps ceil(size / stride)^2 of them.
    """
    for u in range(0, size, stride):
        for w in range(0, size, stride):
            high, wide = min(stride, size - u), min(stride, size - w)
            yield ((slice(None),) * 3 + (slice(u, u + high), slice(w, w + wide)),
                   (slice(None), slice(u // stride, u // stride + rows), slice(high),
                    slice(w // stride, w // stride + columns), slice(wide)))


def _blocks(xp, shape, dtype, size: int, stride: int, rows: int, columns: int):
    """Zeros (b, block row, row in it, block column, column in it, i), wide enough for all windows, and as an image."""
    more = ceil(size / stride) - 1
    blocks = xp.zeros((shape[0], rows + more, stride, columns + more, stride, shape[3]), dtype=dtype)
    return blocks, blocks.reshape(shape[0], (rows + more) * stride, (columns + more) * stride, shape[3])


def patches(x, size: int, stride: int, padding: int = 0):
    """y[g, j, u, w] = x[stride g + u - padding, stride j + w - padding], 0 outside the image.

    Shapes
    ------
    x       : b g j i      (rows and columns of pixels)
    returns : b g j u w i  (rows and columns of windows, then of pixels in them)

    Raises ValueError where the windows do not tile the padded image.
    """
    xp, (high, wide) = array_module(x), x.shape[1:3]
    rows, columns = windows(high, size, stride, padding), windows(wide, size, stride, padding, "columns")
    if stride == size and not padding:                                                  # tiles: x is its own blocks
        blocks = x.reshape(len(x), rows, size, columns, size, x.shape[3])
    else:
        blocks, image = _blocks(xp, x.shape, x.dtype, size, stride, rows, columns)
        image[:, padding:padding + high, padding:padding + wide] = x                    # (1)
    y = xp.empty((x.shape[0], rows, columns, size, size, x.shape[3]), dtype=x.dtype)
    for inside, place in _parts(size, stride, rows, columns):
        y[inside] = blocks[place].transpose(0, 1, 3, 2, 4, 5)                           # (2)
    return y


def patches_backward(shape, size: int, stride: int, padding: int, dy):
    """dx (b, g, j, i) of that shape: every pixel sums over the windows that it lies in."""
    rows, columns = dy.shape[1:3]
    blocks, image = _blocks(array_module(dy), shape, dy.dtype, size, stride, rows, columns)
    for inside, place in _parts(size, stride, rows, columns):
        blocks[place] += dy[inside].transpose(0, 1, 3, 2, 4, 5)                         # (2)
    return image[:, padding:padding + shape[1], padding:padding + shape[2]] * 1         # (1)


class Saved(NamedTuple):
    shape: tuple               # of x
    patches: Any               # (b, g, j, u, w, i)


@dataclass(frozen=True)
class Conv:
    """y (b, g, j, o) from x (b, g, j, i) by square windows of `size`, every `stride` pixels, in zeros of `padding`.

    Raises ValueError for sizes that are no whole numbers, padding of a whole window, images that windows do not tile.
    """
    inputs: int
    outputs: int
    size: int
    stride: int = 1
    padding: int = 0

    def __post_init__(self):
        check_integers(vars(self), "inputs", "outputs", "size", "stride")
        check_integers(vars(self), "padding", least=0)
        if self.padding >= self.size:
            raise ValueError(f"padding is {self.padding}; allowed: numbers below the size, {self.size}")

    def parameters(self) -> dict:
        """k (u, w, i, o), the kernel's rows and columns first; b (o)."""
        i, o, u = self.inputs, self.outputs, self.size
        return {"k": Parameter("uwio", (u, u, i, o), u * u * i, "weight"),
                "b": Parameter("o", (o,), u * u * i, "bias")}

    def forward(self, p, x) -> tuple[Any, Saved]:
        """y (b, g, j, o) from x (b, g, j, i).  Returns y and Saved."""
        if x.ndim != 4 or x.shape[3] != self.inputs:
            raise ValueError(f"x has shape {x.shape}; allowed: (b, g, j, i) with i = {self.inputs} channels")
        windows = patches(x, self.size, self.stride, self.padding)              # (1)
        y = contract("bgjuwi,uwio->bgjo", windows, p.k)                         # (2)
        y += p.b                                                                # (3)
        return y, Saved(x.shape, windows)

    def backward(self, p, saved, dy, grads, *, pixels=True):
        """dx (b, g, j, i), or None without `pixels`; parameter gradients are added into `grads`."""
        grads.b += ops.column_sums(ops.rows_of(dy))                             # (3)
        grads.k += contract("bgjuwi,bgjo->uwio", saved.patches, dy)             # (2)
        if not pixels:
            return None
        dwindows = contract("bgjo,uwio->bgjuwi", dy, p.k)                       # (2)
        return patches_backward(saved.shape, self.size, self.stride, self.padding, dwindows)        # (1)
