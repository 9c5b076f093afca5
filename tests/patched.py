"""Kernels of a bank as patches of right ones, as the banks in NumPy have them."""

import inspect
from functools import cache, partial

source_of = cache(inspect.getsource)           # which reads a function anew, and a bank changes each many times


def patched(kernels, rows, name, patches=()):
    """The kernel of a row, which is a function of the module `kernels`, with its source changed.

    Each old text stands in it once.  `rows` is {name: (page, function, arguments that are fixed, options)}.
    """
    _, function, fixed, _ = rows[name]
    source = source_of(getattr(kernels, function))
    for old, new in patches:
        assert source.count(old) == 1, (function, old)
        source = source.replace(old, new)
    space = dict(vars(kernels))
    exec(source, space)
    return partial(space[function], **fixed)
