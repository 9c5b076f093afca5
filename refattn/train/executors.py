"""Executors by address: `dask://host:port` is a running Dask scheduler, whose workers share this file system."""

from contextlib import contextmanager

WAIT = 10.0                    # seconds in which a scheduler has to answer


@contextmanager
def executor(address: str | None):
    """A concurrent.futures.Executor for an address, closed at the end; None for None, the processes of this machine.

    Raises ValueError, one line, for an address of another kind, without the package, or where nobody answers.
    """
    if address is None:
        yield None
        return
    kind, _, place = address.partition("://")
    host, _, port = place.rpartition(":")
    if kind != "dask" or not host or not port.isdigit():
        raise ValueError(f"executor is {address!r}; allowed: addresses like dask://127.0.0.1:8786")
    try:
        from distributed import Client
    except ImportError:
        raise ValueError(f"executor is {address!r}, but the package distributed is missing; allowed after: "
                         f"pip install 'refattn[cluster]'") from None
    try:
        client = Client(f"tcp://{place}", timeout=WAIT, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise ValueError(f"executor is {address!r}, where no Dask scheduler answers ({type(error).__name__}); allowed: "
                         f"the address of one that runs") from None
    with client:
        yield client.get_executor(pure=False)
