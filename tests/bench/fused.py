"""PyTorch kernels in half precision as fused kernels have it.

What goes into a matrix product and what comes out of it is rounded, in forward and backward, and so are the results;
sums and elementwise steps are float32.
"""

from functools import wraps

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

PRODUCTS = {torch.einsum, torch.matmul, torch.bmm, torch.mm, torch.mv, torch.tensordot, torch.nn.functional.linear,
            torch.Tensor.matmul, torch.Tensor.__matmul__, torch.Tensor.__rmatmul__, torch.Tensor.bmm, torch.Tensor.mm,
            torch.nn.functional.scaled_dot_product_attention, torch.baddbmm, torch.Tensor.baddbmm}


class Narrow(TorchFunctionMode):
    """PyTorch whose matrix products round what goes in and comes out, so that their gradients are rounded too."""
    def __init__(self, dtype):
        super().__init__()
        self.dtype = getattr(torch, dtype)

    def round(self, x):
        if isinstance(x, tuple | list):
            return type(x)(map(self.round, x))
        return x.to(self.dtype).to(x.dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function not in PRODUCTS:
            return function(*args, **(kwargs or {}))
        return self.round(function(*self.round(args), **{n: self.round(x) for n, x in (kwargs or {}).items()}))


def fused(kernel, dtype):
    """The kernel in half precision as fused kernels have it."""
    @wraps(kernel)
    def narrow(*arrays, **options):
        def wide(x):
            return x if x is None or x.dtype.kind != "f" else x.astype("float32")
        with Narrow(dtype) as mode:
            found = kernel(*map(wide, arrays), **{n: wide(x) for n, x in options.items()})
            named = found if isinstance(found, dict) else dict(enumerate(found))
            named = {n: x if isinstance(x, torch.Tensor) or x is None else torch.as_tensor(np.array(x))
                     for n, x in named.items()}
            named = {n: mode.round(x) for n, x in named.items()}
            return named if isinstance(found, dict) else list(named.values())
    return narrow
