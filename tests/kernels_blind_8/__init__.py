"""An eighth bank, in NumPy alone, by somebody who had not read the checks."""

import inspect
from functools import partial
from typing import NamedTuple

from . import kernels
from .rows import ONLY, RIGHT, RIGHT_TOO, WRONG


class Case(NamedTuple):
    name: str
    as_: str
    function: object
    line: str                  # "" where it is right
    what: str
    options: dict              # how the kernel is called
    output: str = ""           # what differs first
    words: str = ""            # a pattern of what names the mistake
    only: tuple = ("float64", "float32", "float16", "bfloat16")

    numpy = True               # half precision is what the kernel itself makes of it


def patched(name, patches=()):
    """The kernel of a row with its source changed; each old text stands in it once."""
    _, function, fixed, _ = RIGHT[name]
    source = inspect.getsource(getattr(kernels, function))
    for old, new in patches:
        assert source.count(old) == 1, (function, old)
        source = source.replace(old, new)
    space = dict(vars(kernels))
    exec(source, space)
    return partial(space[function], **fixed)


def places(lines):
    """"backward (2) forward (in) backward (in)" of "2b in"."""
    return " ".join(f"forward ({x}) backward ({x})" if x in ("in", "out") else
                    f"backward ({x[:-1]})" if x[-1] == "b" else f"forward ({x})" for x in lines.split())


CASES = [Case(name, as_, patched(name), "", "", options) for name, (as_, _, _, options) in RIGHT.items()]
CASES += [Case(f"{name}: {what}", RIGHT[name][0], patched(name, patches), "", what, RIGHT[name][3])
          for name, what, *patches in RIGHT_TOO]
CASES += [Case(f"{name}: {what}", RIGHT[name][0], patched(name, patches), places(lines), what, RIGHT[name][3], output,
               words, ONLY.get(what, ("float64", "float32", "float16", "bfloat16")))
          for name, what, lines, output, words, *patches in WRONG]
