"""What tests ask about other processes: who is there, and whether something has happened yet."""

import time
from pathlib import Path

import pytest

linux = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no list of child processes here")


def children(process: int) -> list[int]:
    return [int(x) for x in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def is_there(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, process=None, seconds=120):
    """What is true at last, of a process that has not ended before."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline and (process is None or process.poll() is None)
        time.sleep(0.02)
    return found
