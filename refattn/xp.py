"""Array modules and devices: the only file that imports CuPy.

Numeric code asks its own arrays for their module (`xp = array_module(x)`), so NumPy and CuPy work side by side in one
process and nothing is global.  Source: CuPy 14.2 documentation, "Differences between CuPy and NumPy".
"""

import ctypes
import importlib
import math
import os
import sys
from types import ModuleType

import numpy as np

from .checks import check_choice

__all__ = ["array_module", "device", "keep_freed_memory", "to_device", "to_host"]

DEVICES = "cpu", "gpu"
# Arrays with rules of their own: a sum passes over what is masked, a mean counts it; classes in a matrix crashed NumPy.
OWN = "MaskedArray", "matrix"


def check_array(name: str, x) -> None:
    """Nothing, or a TypeError for what is no array, and for an array with rules of its own."""
    if type(x) is not np.ndarray and (isinstance(x, type) or not hasattr(x, "dtype") or type(x).__name__ in OWN):
        raise TypeError(f"{name} is a {type(x).__name__}; allowed: an array of NumPy or CuPy")


def array_module(*arrays) -> ModuleType:
    """The module that the arrays come from: `numpy`, `cupy`, or any other whose array type lives in its namespace.

    None is passed over; of no arrays at all it is `numpy`.
    Raises TypeError for what has no dtype, for a masked array or a matrix, and when arrays of two modules other than
    NumPy are mixed; a NumPy array among them is refused by the module itself, and by `check_alike` where arrays enter.
    """
    found = np
    for x in arrays:
        if x is None or type(x) is np.ndarray:
            continue
        check_array("an argument", x)
        if isinstance(x, np.generic | np.ndarray):
            continue
        module = sys.modules[type(x).__module__]
        if module is not found and found is not np:
            raise TypeError(f"arrays of {found.__name__} and {module.__name__} are mixed; allowed: all of one device")
        found = module
    return found


def check_alike(**arrays) -> ModuleType:
    """The module of all given arrays.  Raises TypeError naming both where modules or dtypes differ.

    None is skipped, but not as the first of them.
    """
    first = None
    for name, x in arrays.items():
        if x is None and first is not None:
            continue
        check_array(name, x)
        if x.dtype.kind not in "fc":
            raise TypeError(f"{name} has dtype {x.dtype}; allowed: floating point")
        if first is None:
            owner, first = name, x
        elif x.dtype.char.lower() != first.dtype.char.lower():              # complex goes with its real numbers
            raise TypeError(f"{owner} is {first.dtype} but {name} is {x.dtype}; allowed: one dtype")
        elif type(x) is not type(first) and array_module(x) is not array_module(first):
            raise TypeError(f"{owner} is an array of {array_module(first).__name__} but {name} of "
                            f"{array_module(x).__name__}; allowed: all of one device")
    return array_module(first)


def fitted(x, name: str, shape, dtype=None, xp: ModuleType | None = None):
    """x in the dtype; None as it is.

    Raises ValueError for another shape, which would be stretched without a word, TypeError for what is no array, or is
    one of another module than `xp` where that is given.
    """
    if x is None:
        return None
    check_array(name, x)
    if xp is not None and array_module(x) is not xp:
        raise TypeError(f"{name} is an array of {array_module(x).__name__}; allowed: one of {xp.__name__}")
    if x.shape != shape:
        raise ValueError(f"{name} has shape {x.shape}; allowed: {shape}")
    return x if dtype is None else x.astype(dtype, copy=False)


def read_only(x):
    """x itself, which is kept and handed out again: in host memory nobody can write into it."""
    if isinstance(x, np.ndarray):
        x.setflags(write=False)
    return x


def to_host(x):
    """The same array as a NumPy array (waits for the device)."""
    return x if isinstance(x, np.ndarray | np.generic) or not hasattr(x, "get") else x.get()


def to_device(x, xp: ModuleType):
    """The same array in the module `xp`."""
    return to_host(x) if xp is np else xp.asarray(x)


def device(name: str) -> ModuleType:
    """'cpu' -> numpy; 'gpu' -> cupy, after a probe that really multiplies two matrices on the device.

    Raises ValueError for another name, RuntimeError with the reason and the remedy when the device does not answer.
    """
    check_choice("device", name, DEVICES)
    if name == "cpu":
        return np
    try:
        cupy = importlib.import_module("cupy")
        ones = cupy.ones((2, 2), dtype=np.float32)
        if float((ones @ ones).sum()) != 8.0:       # needs driver, headers, NVRTC and cuBLAS
            raise RuntimeError("a 2 x 2 product came out wrong")
    except ImportError as error:
        raise RuntimeError(f"device is 'gpu', but CuPy is missing ({error}); allowed: cpu, or gpu after pip install "
                           f"'refattn[cuda12x]' or 'refattn[cuda13x]'") from error
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RuntimeError(f"device is 'gpu', which does not answer ({reason}); allowed: cpu, or a driver") from error
    return cupy


def erf(x):
    """erf(x) elementwise, exact to rounding: CuPy's, SciPy's when it is installed, else `math.erf` entry by entry."""
    name = array_module(x).__name__
    try:
        found = importlib.import_module({"numpy": "scipy.special", "cupy": "cupyx.scipy.special"}.get(name, name)).erf
    except ImportError:
        found = np.vectorize(math.erf, otypes=[x.dtype])
    return found(x.astype(x.dtype if x.dtype.char in "fdFD" else "d", copy=False)).astype(x.dtype, copy=False)


def physical_memory() -> float:
    """Bytes of memory that this machine has; infinite where the system does not tell."""
    known = {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= set(getattr(os, "sysconf_names", {}))
    return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) if known else math.inf


def keep_freed_memory() -> bool:
    """Ask the C library to keep freed memory for the process (glibc only); True unless it is another or refuses.

    Without it every large temporary is handed back and paged in again.  True is no proof: glibc does not refuse an
    option that it does not know, nor does it see that another allocator has taken its place.  Opt-in: command-line
    programs call it, an import never does.  CuPy's memory pool behaves so by itself.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    # M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX of malloc.h
    return all(mallopt(option, value) for option, value in ((-1, 1 << 30), (-2, 64 << 20), (-4, 0)))
