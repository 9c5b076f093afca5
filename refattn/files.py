"""Files that appear whole or not at all, whatever ends the program meanwhile."""

import os
from contextlib import contextmanager


@contextmanager
def named(path):
    """An OSError inside keeps its type and names this file, also one that names none, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        raise type(error)(f"{os.fspath(path)!r} cannot be written ({error.strerror or error})") from error


@contextmanager
def whole_file(path, mode: str = "w"):
    """A file that appears whole or not at all: written under a temporary name, synced, then renamed.

    An OSError keeps its type and names the file.
    """
    temporary = f"{os.fspath(path)}.{os.getpid()}.tmp"
    try:
        with named(path):
            with open(temporary, mode, encoding=None if "b" in mode else "utf-8") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
