"""Settings checked once, when they are made: each error names the field, what was given, and what is allowed."""

import reprlib
from numbers import Integral

import numpy as np


def check_integer(name, value, least=1, most=None, reason="") -> int:
    """The value as Python's int, for layouts and JSON, or a ValueError unless it is whole with least <= value <= most.

    `reason` is said where the value is below `least`.

    >>> check_integer("length", 2.5, 2)
    Traceback (most recent call last):
    ValueError: length is 2.5; allowed: whole numbers of at least 2
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not (whole and least <= value and (most is None or value <= most)):
        allowed = f"of at least {least:,}" if most is None else f"from {least:,} to {most:,}"
        but = f", but {reason}" if reason and whole and value < least else ""
        raise ValueError(f"{name} is {reprlib.repr(value)}{but}; allowed: whole numbers {allowed}")
    return int(value)


def check_integers(values: dict, *names, least: int = 1) -> None:
    """`check_integer` of the named values, or of all; `values`, say a dataclass's vars, then has Python's ints."""
    for name in names or values:
        values[name] = check_integer(name, values[name], least)


def check_number(name, value, below=np.inf):
    """Nothing, or a ValueError unless value is a number with 0 <= value < below."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not (number and 0 <= value < below):
        allowed = "of at least 0, and finite" if below == np.inf else f"from 0 up to, but not including, {below}"
        raise ValueError(f"{name} is {value!r}; allowed: numbers {allowed}")


def check_switch(name, value):
    """Nothing, or a ValueError unless value is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} is {value!r}; allowed: True and False")


def check_switches(values: dict, *names):
    """`check_switch` of the named values, or of all."""
    for name in names or values:
        check_switch(name, values[name])


def check_choice(name, value, allowed, how="allowed"):
    """Nothing, or a ValueError unless value is one of the allowed."""
    if value not in list(allowed):                          # a dict would ask for a hash
        raise ValueError(f"{name} is {value!r}; {how}: {', '.join(map(str, allowed))}")


def check_numbers(name, x, size):
    """Nothing, or a ValueError for numbers outside 0 .. size - 1: negative ones would count from the end.

    Only in host memory: a device is not waited for.
    """
    if hasattr(x, "get"):                                   # as `xp.to_host` knows arrays of a device
        return
    x = np.asarray(x)
    if x.size and not 0 <= x.min() <= x.max() < size:
        raise ValueError(f"{name} has {x.min()} to {x.max()}; allowed: 0 to {size - 1}")


def check_read(read) -> None:
    """Nothing, or a ValueError unless `read` is None or a slice of integers, not in steps of 0."""
    whole = isinstance(read, slice) and all(isinstance(n, Integral | None) for n in (read.start, read.stop, read.step))
    if read is not None and not (whole and read.step != 0):
        raise ValueError(f"read is {read!r}; allowed: None and slices of integers, which keep the axis, step not 0")
