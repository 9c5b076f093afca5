"""What q, k, v, bias, keep and dropout must have in common, checked once where they enter."""

import numpy as np

from ..contract import agree, broadcasts
from ..xp import array_module, check_alike


def check_inputs(q, k, v, bias=None, keep=None, dropout=None, **extras) -> None:
    """Nothing, if the arrays fit together; `extras` are further ones as name=(array, letters).

    Raises ValueError naming axis, sizes and arrays; TypeError for mixed dtypes, mixed array modules or a `keep` that is
    not boolean.
    """
    xp = check_alike(q=q, k=k, v=v, bias=bias, dropout=dropout, **{name: x for name, (x, _) in extras.items()})
    size = agree(q=(q, "bqhd"), k=(k, "bkhd"), v=(v, "bkhe"), **extras)
    check_pairs(xp, size, "bhqk", bias, keep, dropout)


def check_pairs(xp, size, axes, bias=None, keep=None, dropout=None) -> None:
    """Nothing, if each given array broadcasts to the sizes of `axes`, and there are heads and features of scores.

    `keep` has to be boolean, `bias` finite, which is asked in host memory only.
    """
    for letter, owner in ("h", "q"), ("d", "q"), ("c", "selector"):
        if size.get(letter) == 0:
            raise ValueError(f"axis {letter} is 0 in {owner}; allowed: at least 1")
    target = tuple(size[letter] for letter in axes)
    for name, x in ("bias", bias), ("keep", keep), ("dropout", dropout):
        if x is not None and not hasattr(x, "dtype"):
            raise TypeError(f"{name} is a {type(x).__name__}; allowed: an array of {xp.__name__}")
        if x is not None and not broadcasts(x.shape, target):
            raise ValueError(f"{name} has shape {x.shape}; allowed: what broadcasts to ({', '.join(axes)}) = {target}")
    if bias is not None and xp is np and not np.isfinite(bias).all():   # on a device this would wait for it
        raise ValueError("bias has entries that are not finite; allowed: finite numbers, and keep for a mask")
    if keep is not None and (keep.dtype != bool or array_module(keep) is not xp):
        raise TypeError(f"keep is an array of {array_module(keep).__name__} with dtype {keep.dtype}; allowed: "
                        f"booleans of {xp.__name__} (True = may attend)")
