"""Convolution of images: every window as one row of numbers, then one matrix product.

    y[g, j, o] = b[o] + sum_uwi x[stride g + u - padding, stride j + w - padding, i] k[u, w, i, o]

The backward cuts the padded image into squares of stride x stride; p, q = row and column in a square.  The gradient of
a square is a convolution of dy with stride 1:

    dx[stride g + p - padding, stride j + q - padding, i] =
        sum_uwo dy[g - u, j - w, o] k[stride u + p, stride w + q, i, o]

Source: LeCun et al. 1989; as patch embedding (stride = size, no padding), Dosovitskiy et al. 2021, C's code.
Differs: features last, (b, row, column, channel); an image that the windows do not tile is refused, not cropped.
Symbols: g, j = row and column of a pixel or window; u, w = row and column in a window; i, o = channels in and out.
"""

from dataclasses import dataclass
from math import ceil
from typing import Any, NamedTuple

from .. import ops
from ..checks import check_integer, check_integers
from ..contract import agree, contract
from ..params import Parameter, check_views
from ..xp import array_module, check_alike, fitted

__all__ = ["Conv", "image_of", "patches", "windows"]


def windows(length: int, size: int, stride: int, padding: int, name: str = "rows") -> int:
    """How many windows lie in a line of pixels.

    Raises ValueError where the last one does not end at the border, for numbers that are not whole, a size or stride
    below 1, a length or padding below 0.

    >>> windows(75, 15, 15, 0), windows(32, 4, 2, 1)
    (5, 16)
    """
    check_integers({"size": size, "stride": stride})
    check_integers({name: length, "padding": padding}, least=0)
    room = length + 2 * padding - size
    if room < 0 or room % stride:
        raise ValueError(f"the image has {length} {name}; allowed: {size - 2 * padding} + {stride} n for windows of "
                         f"{size}, stride {stride}, padding {padding}")
    return room // stride + 1


def patches(x, size: int, stride: int, padding: int = 0):
    """y[g, j, u, w] = x[stride g + u - padding, stride j + w - padding], 0 outside the image.

    Shapes
    ------
    x       : b g j i      (rows and columns of pixels)
    returns : b g j u w i  (rows and columns of windows, then of pixels in them)

    Raises ValueError where the windows do not tile the padded image, for a size or stride below 1, a padding below 0,
    and for other axes.
    """
    xp, (b, high, wide, i) = array_module(x), agree(x=(x, "bgji")).values()
    rows, columns = windows(high, size, stride, padding), windows(wide, size, stride, padding, "columns")
    if padding:
        x, inner = xp.zeros((b, high + 2 * padding, wide + 2 * padding, i), dtype=x.dtype), x
        x[:, padding:padding + high, padding:padding + wide] = inner
    row, column = x.strides[1:3]
    strides = x.strides[0], stride * row, stride * column, row, column, x.strides[3]
    return xp.lib.stride_tricks.as_strided(x, (b, rows, columns, size, size, i), strides).copy()


def image_of(squares):
    """The image (b, g p, j q, i) of squares (b, g, j, p, q, i), the inverse of `patches` that tile it.

    Raises ValueError for other axes.
    """
    b, g, j, p, q, i = agree(squares=(squares, "bgjpqi")).values()
    return squares.transpose(0, 1, 3, 2, 4, 5).reshape(b, g * p, j * q, i)


def check_image(x, channels: int, **weights) -> None:
    """Nothing, or an error for x that is not (b, g, j, i) with so many channels, or has not the weights' dtype."""
    check_alike(x=x, **weights)
    if x.ndim != 4 or x.shape[3] != channels:
        raise ValueError(f"x has shape {x.shape}; allowed: (b, g, j, i) with i = {channels} channels")


class Saved(NamedTuple):
    shape: tuple               # of x
    patches: Any               # (b, g, j, u, w, i)


@dataclass(frozen=True)
class Conv:
    """y (b, g, j, o) from x (b, g, j, i) by square windows of `size`, every `stride` pixels, `padding` zeros around x.

    Raises ValueError for sizes that are no whole numbers, padding of a whole window, images that windows do not tile.
    """
    inputs: int
    outputs: int
    size: int
    stride: int = 1
    padding: int = 0

    def __post_init__(self):
        check_integers(vars(self), "inputs", "outputs", "size", "stride")
        vars(self)["padding"] = check_integer("padding", self.padding, 0, self.size - 1)

    def parameters(self) -> dict:
        """k (u, w, i, o), the kernel's rows and columns first; b (o)."""
        i, o, u = self.inputs, self.outputs, self.size
        return {"k": Parameter("uwio", (u, u, i, o), u * u * i, "weight", fan_out=u * u * o),
                "b": Parameter("o", (o,), u * u * i, "bias")}

    def forward(self, p, x) -> tuple[Any, Saved]:
        """y (b, g, j, o) from x (b, g, j, i).  Returns y and Saved."""
        check_views(p)
        check_image(x, self.inputs, k=p.k)
        cut = patches(x, self.size, self.stride, self.padding)                  # (1)
        y = contract("bgjuwi,uwio->bgjo", cut, p.k)                             # (2)
        y += p.b                                                                # (3)
        return y, Saved(x.shape, cut)

    def backward(self, p, saved, dy, grads, *, pixels=True):
        """dx (b, g, j, i), or None without `pixels`; parameter gradients are added into `grads`."""
        check_alike(k=p.k, dy=fitted(dy, "dy", saved.patches.shape[:3] + p.k.shape[3:]))
        grads.b += ops.column_sums(ops.rows_of(dy))                             # (3)
        grads.k += contract("bgjuwi,bgjo->uwio", saved.patches, dy)             # (2)
        if not pixels:
            return None
        n, s = ceil(self.size / self.stride), self.stride                       # a square lies in n x n windows
        k = array_module(dy).zeros((n * s, n * s, *p.k.shape[2:]), dtype=p.k.dtype)
        k[:self.size, :self.size] = p.k
        k = k.reshape(n, s, n, s, *k.shape[2:])[::-1, :, ::-1]                  # patches of dy count n - 1 - u
        dsquares = contract("bgjuwo,upwqio->bgjpqi", patches(dy, n, 1, n - 1), k)           # (2)
        (_, high, wide, _), first = saved.shape, self.padding
        return image_of(dsquares)[:, first:first + high, first:first + wide]    # (1)
