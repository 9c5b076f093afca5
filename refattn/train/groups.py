"""Who computes the shards of a run: this process alone, or with forked processes that work for it; `mpi` has ranks.

A group has a leader, who trains, and helpers, who compute gradients of shards with the leader's parameters:

    allocate(shards, numbers, xp, dtype)   the rows to write into; from then on
    mine                                   (shard, its place among them) of every shard of this process
    at_work(trained)                       a context in which the helpers work
    rows(flat, update, compute)            all rows of an update, in order, for the leader, who has parameters `flat`
    next(flat), hand_in(computed)          a helper's side of it: the number of the update, or None; its rows
    cpu_seconds()                          of all of them, so far
"""

import mmap
import os
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ..checks import check_choice, check_integer
from ..xp import DEVICES


class WorkerLost(BrokenExecutor):
    """A process that computed shards for a run has ended; the message names the step and the checkpoint."""


class Alone:
    """Nobody helps: shards are computed one after the other, each into the same row."""

    size = 1

    def __init__(self, why: str = ""):
        self.why = why                                      # nobody helps, where one could wonder

    def __str__(self):
        return f"1 worker ({self.why})" if self.why else "1 worker"

    def allocate(self, shards: int, numbers: int, xp, dtype):
        """One row for all shards."""
        self.mine = [(shard, 0) for shard in range(shards)]
        return xp.zeros((1, numbers), dtype)

    @contextmanager
    def at_work(self, trained):
        """Nobody has to be called."""
        yield

    def rows(self, flat, update: int, compute):
        """The row of each shard, once it is computed."""
        return compute()

    def cpu_seconds(self) -> float:
        """Of this process."""
        return time.process_time()


def shared(numbers: int, dtype) -> np.ndarray:
    """Zeros in memory that this process and those that it forks have in common."""
    return np.frombuffer(mmap.mmap(-1, max(1, numbers * np.dtype(dtype).itemsize)), dtype, numbers)


class Forked(Alone):
    """Processes forked from this one compute with it.  Only numbers of updates and CPU seconds travel between them:

    rows and parameters lie in shared memory, and every process draws the batch itself.  A helper leaves when the line
    to its leader is cut, however that comes about, and is killed where the leader is done.
    """

    def __init__(self, size: int):
        self.size, self.rank, self.helpers, self.seconds = size, 0, [], {}

    def __str__(self):
        return f"{self.size} workers"

    def allocate(self, shards, numbers, xp, dtype):
        """A row for each shard, in shared memory, each at the beginning of a cache line."""
        self.shards, line = shards, 64 // np.dtype(dtype).itemsize
        width = -(-numbers // line) * line
        self.stack = shared(shards * width, dtype).reshape(shards, width)[:, :numbers]
        self.parameters = shared(numbers - 1, dtype)
        return self.stack

    @property
    def mine(self):
        """A run of neighbouring shards."""
        return [(n, n) for n in range(self.shards * self.rank // self.size, self.shards * (self.rank + 1) // self.size)]

    @contextmanager
    def at_work(self, trained):
        """Forks the helpers, none of which hears Ctrl-C or SIGTERM, nor is left afterwards."""
        heard = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        try:
            for rank in range(1, self.size):
                self._fork(rank, trained)
            signal.pthread_sigmask(signal.SIG_SETMASK, heard)                   # by the leader alone
            yield
        finally:
            for process, line in self.helpers:
                line.close()
                os.kill(process, signal.SIGKILL)            # it has nothing that could be lost
                os.waitpid(process, 0)
            self.helpers = []
            signal.pthread_sigmask(signal.SIG_SETMASK, heard)                   # where it could not fork

    def _fork(self, rank: int, trained) -> None:
        ours, theirs = socket.socketpair()
        for stream in filter(None, (sys.stdout, sys.stderr)):                   # None is one that is closed
            stream.flush()
        if process := os.fork():
            theirs.close()
            self.helpers.append((process, ours))
            return
        try:
            for line in (ours, *(line for _, line in self.helpers)):
                line.close()                                # else nobody would see it cut
            self.rank, self.line = rank, theirs
            trained.help()
        except ConnectionError:                             # the leader is gone
            pass
        except (MemoryError, ValueError) as error:          # as the leader says it
            print(f"refattn: a worker: {error}", file=sys.stderr)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)                                     # nothing of the leader's is flushed, closed or unlocked

    def rows(self, flat, update, compute):
        """The rows of all shards, once everybody has computed his."""
        self.parameters[...] = flat
        try:
            for _, line in self.helpers:
                line.sendall(struct.pack("q", update))
            list(compute())                                 # the leader's own, into their rows
            for process, line in self.helpers:
                self.seconds[process] = self._receive(line, "d")
        except ConnectionError:
            raise WorkerLost("one of its workers died") from None
        return self.stack

    @staticmethod
    def _receive(line, kind: str):
        """A number of eight bytes.  Raises ConnectionError where the line is cut."""
        if len(data := line.recv(8, socket.MSG_WAITALL)) < 8:
            raise ConnectionResetError
        return struct.unpack(kind, data)[0]

    def next(self, flat) -> int:
        """The next update that the leader begins, whose parameters are then in `flat`."""
        update = self._receive(self.line, "q")
        flat[...] = self.parameters
        return update

    def hand_in(self, computed) -> None:
        """Tells the leader that the rows are there."""
        list(computed)                                      # into their rows
        self.line.sendall(struct.pack("d", time.process_time()))

    def cpu_seconds(self):
        """Of the leader, and of the helpers up to the last update."""
        return time.process_time() + sum(self.seconds.values())


def cores() -> int:
    """The physical cores that this process may use: threads that share one count once, where the system tells."""
    threads = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    siblings = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
    try:
        return len({Path(siblings.format(n)).read_text(encoding="utf-8") for n in threads})
    except OSError:
        return len(threads)


def check(workers: int | None, device: str, ranks=None) -> None:
    """Raises ValueError for an unknown device, less than one worker, several on a GPU, and any beside ranks of MPI."""
    check_choice("device", device, DEVICES)
    if workers is None:
        return
    check_integer("workers", workers)
    if ranks is not None:
        raise ValueError(f"workers is {workers}, but mpiexec says how many there are; allowed: no workers")
    if device != "cpu" and workers > 1:
        raise ValueError(f"workers is {workers}; allowed with device {device}: 1")


def group(workers: int | None, shards: int, device: str = "cpu") -> Alone:
    """The group of so many workers, at most one for each shard; None: as many as there are cores.

    Raises ValueError as `check` does.
    """
    check(workers, device)
    if device != "cpu":
        return Alone()
    workers = cores() if workers is None else workers
    if workers == 1 or shards == 1:
        return Alone("more would need more shards" if workers > 1 else "")
    if not hasattr(os, "fork") or sys.platform == "darwin":
        return Alone("this system does not fork safely")
    if threading.active_count() > 1:
        return Alone("this process has threads, and could not fork safely")
    return Forked(min(workers, shards))
