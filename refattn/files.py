"""Files that appear whole or not at all, whatever ends the program meanwhile."""

import os
from contextlib import contextmanager


@contextmanager
def whole_file(path, mode: str = "w"):
    """A file that appears whole or not at all: written under a temporary name, synced, then renamed.

    An OSError keeps its kind and names the file.
    """
    temporary = f"{os.fspath(path)}.{os.getpid()}.tmp"
    try:
        with open(temporary, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:                                # that of a full disk names no file
        raise type(error)(f"{os.fspath(path)!r} cannot be written ({error.strerror or error})") from error
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)
