"""The ranks of `mpiexec -n N refattn train ...` share the shards of every run, on one machine or on several.

Rank 0 is the command: it reads the command line, draws, updates, writes the run directory, says everything.  The others
get each run's recipe from it, then at every update its parameters, and send back the rows of their shards, which rank 0
sums in the order of the shards: the parameters are bitwise those of one process (on machines of one kind).  Needs the
extra `mpi` and an MPI (https://mpi4py.readthedocs.io); a rank needs what the task reads, but no common file system.
"""

import os
import signal
import sys
import time
import traceback
from contextlib import contextmanager

import numpy as np
from threadpoolctl import threadpool_limits

from .. import __version__, params
from .groups import Alone
from .shards import Shards

RANKS = "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"          # what Open MPI, and MPICH and Intel MPI, tell those that they start
END = -1                                            # in place of the number of an update: the run is over


def ranks() -> int:
    """As how many ranks this command was started; 1 where no MPI started it."""
    told = [os.environ.get(name, "") for name in RANKS]
    return max((int(text) for text in told if text.isdigit()), default=1)


class Ranks(Alone):
    """All ranks of MPI's world; `groups` says what a group does."""

    def __init__(self, world):
        self.world, self.rank, self.size, self.seconds = world, world.Get_rank(), world.Get_size(), 0.0
        self.header, self.waited_for = np.zeros(1, np.int64), False

    def __str__(self):
        return f"{self.size} ranks of MPI"

    def suits(self, shards: int, device: str) -> None:
        """Raises ValueError for more ranks than shards, and for a GPU."""
        if device != "cpu":
            raise ValueError(f"device is {device!r}; allowed with {self.size} ranks: 'cpu'")
        if shards < self.size:
            raise ValueError(f"shards is {shards}; allowed with {self.size} ranks: numbers from {self.size} on")

    def allocate(self, shards, numbers, xp, dtype):
        """Rank 0 has the rows of all shards, the others their own.  Raises ValueError as `suits` does."""
        self.suits(shards, "cpu" if xp is np else "gpu")
        self.begun, self.seconds = time.process_time(), 0.0                         # of this run
        ends = [shards * rank // self.size for rank in range(self.size + 1)]
        self.counts = [(end - start) * numbers for start, end in zip(ends, ends[1:], strict=False)]
        own = range(ends[self.rank], ends[self.rank + 1])                           # rank 0's are the first
        self.mine = [(shard, place) for place, shard in enumerate(own)]
        self.stack = np.zeros((len(own) if self.rank else shards, numbers), dtype)
        return self.stack

    @contextmanager
    def at_work(self, trained):
        """The other ranks get the recipe, and learn of the end."""
        self.world.bcast((trained.recipe, trained.flat.dtype))
        try:
            yield
        finally:
            if self.waited_for:                             # by ranks that have rows for us: no words can reach them
                self.world.Abort(1)
            self._begin(END)

    def _begin(self, update: int) -> None:
        self.header[0] = update
        self.world.Bcast(self.header)

    def rows(self, flat, update, compute):
        """The rows of all shards, once every rank has computed its own."""
        self.waited_for = True
        self._begin(update)
        self.world.Bcast(flat)
        self.hand_in(compute())
        self.waited_for = False
        return self.stack

    def next(self, flat) -> int | None:
        """The number of the next update, whose parameters are then in `flat`; None at the end of the run."""
        self.world.Bcast(self.header)
        if self.header[0] == END:
            return None
        self.world.Bcast(flat)
        return int(self.header[0])

    def hand_in(self, computed) -> None:
        """Sends the rows to rank 0."""
        from mpi4py import MPI
        list(computed)                                      # into their rows
        if self.rank:
            self.world.Gatherv(self.stack, None)
        else:
            self.world.Gatherv(MPI.IN_PLACE, (self.stack, self.counts))
        self.seconds = sum(self.world.gather(time.process_time() - self.begun) or (0.0,))       # None but at rank 0

    def cpu_seconds(self):
        """Of all ranks in this run, up to its last update."""
        return self.seconds


@contextmanager
def joined(argv):
    """The ranks that were started with this command line, for rank 0; None for the others once they have helped.

    Raises ValueError, at rank 0, without mpi4py, and where ranks have other command lines or versions.
    """
    try:
        from mpi4py import MPI
    except ImportError:
        if int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", 0))):
            sys.exit(2)                                     # rank 0 says why
        raise ValueError(f"mpiexec started {ranks()} ranks, but the package mpi4py is missing; allowed after: "
                         f"pip install 'refattn[mpi]', or without mpiexec") from None
    group = Ranks(MPI.COMM_WORLD)
    if group.rank:
        help_until_the_end(group, argv)
        yield None
        return
    said = group.world.gather((__version__, list(argv)))
    try:
        for rank, other in enumerate(said):
            if other != said[0]:
                raise ValueError(f"rank {rank} of mpiexec was started as {' '.join(other[1])!r} by refattn {other[0]}, "
                                 f"rank 0 as {' '.join(said[0][1])!r} by {said[0][0]}; allowed: the same for all")
        yield group
    finally:
        group.world.bcast(None)


def help_until_the_end(group: Ranks, argv) -> None:
    """What the other ranks do: compute for each run that rank 0 begins.  An error ends all ranks, with its words."""
    for sign in (signal.SIGINT, signal.SIGTERM):            # rank 0 hears both
        signal.signal(sign, signal.SIG_IGN)
    group.world.gather((__version__, list(argv)))
    try:
        while (run := group.world.bcast(None)) is not None:
            recipe, dtype = run
            model = recipe.build()
            flat = np.zeros(params.count(model.parameters()), dtype)
            with threadpool_limits(1, "blas"), np.errstate(all="ignore"):
                Shards(recipe, model, flat, group).help()
    except BaseException:
        traceback.print_exc()
        group.world.Abort(1)
