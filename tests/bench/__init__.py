"""Timings, beside PyTorch and JAX."""

import sys
from contextlib import contextmanager


@contextmanager
def with_extra():
    """Ends with one line that says what to install, where a package of the extra `bench` is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "refattn").partition(".")[0] in ("refattn", "tests"):
            raise
        sys.exit(f"{error.name} is missing; allowed after: pip install '.[bench]'")
