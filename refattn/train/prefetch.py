"""Batches, each prepared by a thread while the one before it is trained on."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any


def ahead(make: Callable[[int], Any], start: int, stop: int) -> Iterator[tuple[int, Any]]:
    """(step, make(step)) for start <= step < stop, in order; make(step + 1) runs while the caller has make(step).

    One thread makes all of them, one after the other; what `make` raises is raised at its own step.  It may be called
    once more than is used.

    >>> list(ahead(lambda step: step**2, 2, 5))
    [(2, 4), (3, 9), (4, 16)]
    """
    context = copy_context()                            # NumPy's error state is the caller's
    with ThreadPoolExecutor(1, "batches") as pool:
        coming = None
        for step in range(start, stop):
            batch = (coming or pool.submit(context.run, make, step)).result()
            coming = pool.submit(context.run, make, step + 1) if step + 1 < stop else None
            yield step, batch
