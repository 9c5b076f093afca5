"""Attention kernels in PyTorch, written as others write them: most with one mistake, some without.

They were written without a look at the checks that judge them.  A function takes q, k, v and the page's further arrays
(torch or NumPy), `do` and the options, and returns o, dq, dk, dv, dbias and the gradients of the further arrays, in the
shapes of the page.  A mistake that needs an option to show says so in its sentence.  Some need a size: tiles are of 4
keys, so a tile's mistake shows above 4 keys, that of a tail where 4 does not divide them; those of the left edge and of
sliding-dilated attention's positions need windows that overlap, reach before the first key and have fewer queries.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch


class Case(NamedTuple):
    name: str
    as_: str                   # the page
    function: Callable
    line: str                  # "forward (3)", "backward (5)": the page's line with the mistake; "" without one
    what: str                  # the mistake


def tensors(*arrays):
    """Each array as a tensor of its dtype, None as None."""
    return [x if x is None else x.detach() if isinstance(x, torch.Tensor) else torch.as_tensor(np.array(x))
            for x in arrays]


def leaves(*arrays):
    """The same, asking for gradients."""
    return [x if x is None else x.clone().requires_grad_() for x in tensors(*arrays)]


def autograd(o, do, *inputs):
    """o and torch's own gradient of each input, None for None."""
    found = iter(torch.autograd.grad(o, [x for x in inputs if x is not None], do, materialize_grads=True))
    return o.detach(), *(None if x is None else next(found) for x in inputs)
