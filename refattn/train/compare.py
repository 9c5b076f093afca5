"""Independent runs side by side: one per recipe, through one executor.

By default that is a pool of spawned processes with one BLAS thread each.  This process draws all the bars, from what
the runs write into their directories, so any other executor will do that shares the file system (threads, Dask, MPI).
A run whose worker another executor loses is handed out again, and goes on from its checkpoint; one that had finished is
not repeated.  Our own pool ends with a BrokenExecutor when one of its processes is lost; resuming goes on.
"""

import os
import time
import uuid
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, ProcessPoolExecutor, wait
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

from threadpoolctl import threadpool_limits

from . import NonFinite, curves, fit, groups, pool, runs
from .progress import Bars
from .stop import Interrupted, Stop

HANDED_OUT = 4                 # times at most that a run is given to a foreign executor


def shares(runs: int, most: int) -> list[int]:
    """Workers of each of so many equally long runs on `most` cores: one each; the last runs, which do not fill the
    cores by themselves, share those that are left.

    >>> shares(6, 2), shares(3, 2), shares(2, 8)
    ([1, 1, 1, 1, 1, 1], [1, 1, 2], [4, 4])
    """
    last = runs % most
    if not last:
        return [1] * runs
    return [1] * (runs - last) + [most // last] * last


def compare(recipes, out, *, device: str = "cpu", max_seconds: float | None = None, resume: bool = False,
            progress: bool = True, executor=None, workers=None) -> list[dict]:
    """Train every recipe in its own directory below `out`; returns `outcome` of each, in their order.

    max_seconds : for all of them together
    executor    : any concurrent.futures.Executor; None makes a pool of processes, none for one run
    workers     : of each run, as `fit` has it; None: one, but on CPU, without an executor, more of the last runs where
                  these leave cores idle (`shares`).  With a group of ranks runs come one after the other
    A run that meets a bad number fails alone.  Ctrl-C stops every run with a checkpoint, then raises Interrupted.
    Raises ValueError when two recipes have the same name, or as `fit` does; BrokenExecutor when another executor loses
    a run's worker for the fourth time, or our own pool a process.
    """
    paths = {Path(out, recipe.name): recipe for recipe in recipes}
    if len(paths) != len(recipes):
        raise ValueError(f"names of recipes are {', '.join(recipe.name for recipe in recipes)}; allowed: each once")
    return train_all(paths, out, device=device, max_seconds=max_seconds, resume=resume, progress=progress,
                     executor=executor, workers=workers)


def train_all(paths: dict, out, *, device: str = "cpu", max_seconds: float | None = None, resume: bool = False,
              progress: bool = True, executor=None, workers=None) -> list[dict]:
    """`compare` for {run directory: recipe}, all of them below `out`."""
    Stop(max_seconds)                                       # knows what is allowed
    if not isinstance(workers, groups.Alone):
        groups.check(workers, device)
    for path, recipe in paths.items():                      # what is not allowed is refused before anything is written
        if not Path(path, "recipe.json").exists():
            recipe.build()
        elif not resume:
            raise ValueError(f"out is {str(out)!r}, which holds the run {recipe.name} already; allowed: another "
                             f"directory, or resuming it")
    for path, recipe in paths.items():                      # all of them, so that a killed comparison resumes whole
        runs.begin(path, recipe, resume)
    jobs = unfinished(paths)                                # a damaged one is refused before any run goes on
    for path in jobs:
        if not os.access(path, os.W_OK | os.X_OK):
            raise ValueError(f"{str(path)!r} cannot be written; allowed: a run directory that can be")
    for path in paths.keys() - jobs.keys():                 # killed, perhaps, before it was drawn
        curves.draw(path, paths[path])
    deadline = None if max_seconds is None else time.time() + max_seconds
    failed = {}
    if workers is None and (executor is not None or device != "cpu"):
        workers = 1
    if len(jobs) == 1 and executor is None or isinstance(workers, groups.Alone):
        for path, recipe in jobs.items():
            failed[path] = train_one(recipe, path, device, deadline, None, progress, workers)
    elif jobs:
        failed = _through(executor, jobs, Path(out), device, deadline, progress, workers)
    return [outcome(path, recipe, failed.get(path)) for path, recipe in paths.items()]


def unfinished(paths: dict) -> dict:
    """Those of {run directory: recipe} that are not complete.  Raises ValueError for a damaged result or checkpoint."""
    left = {path: recipe for path, recipe in paths.items() if runs.result(path, recipe) is None}
    for path, recipe in left.items():
        with suppress(FileNotFoundError):
            runs.load_checkpoint(path, recipe, recipe.build().parameters())
    return left


def outcome(path, recipe, error: str | None = None) -> dict:
    """result.json of a complete run; of any other name, task, fields, the step of its checkpoint, and the error."""
    if done := runs.result(path, recipe):
        return {**done, "finished": True, "path": str(path)}
    try:
        step = runs.load_checkpoint(path, recipe, recipe.build().parameters())[1]["step"]
    except (FileNotFoundError, ValueError):
        step = 0
    return {**runs.describe(recipe), "name": recipe.name, "finished": False, "step": step, "error": error,
            "path": str(path)}


def train_one(recipe, path, device, deadline, stop_file, progress, workers) -> str | None:
    """Train one run that has been begun; returns the error of a run that met a bad number, else None."""
    seconds = None if deadline is None else max(deadline - time.time(), 1e-9)
    try:
        fit(recipe, path, device=device, max_seconds=seconds, resume=True, progress=progress, stop_file=stop_file,
            workers=workers)
    except NonFinite as error:
        return str(error)
    except Interrupted:
        if stop_file is None:
            raise
    return None


def _train_in_worker(*arguments) -> str | None:
    with pool.at_work:
        return train_one(*arguments)


def _through(executor, jobs, out, device, deadline, progress, workers) -> dict:
    """{path: error or None}, from an executor."""
    own, how = executor is None, ""
    most = groups.cores()
    counts = shares(len(jobs), most) if workers is None else [workers] * len(jobs)
    each = dict(zip(jobs, counts, strict=True))
    if own:
        together = min(len(jobs), max(1, most // (workers or 1)))
        executor = ProcessPoolExecutor(together, get_context("spawn"), initializer=pool.begin_worker)
        by = " or ".join(map(str, sorted(set(counts))))
        how = f", {together} at a time, each by {by} worker{'s' if max(counts) > 1 else ''}"
    stop_file = out.resolve() / f"stop-{uuid.uuid4().hex}"
    bars = Bars(list(jobs.items()), progress, how)

    def hand_out(path):                                     # the worker's directory may be another one
        train = _train_in_worker if own else train_one
        return executor.submit(train, jobs[path], path.resolve(), device, deadline, stop_file, False, each[path])

    futures: dict = {}
    with Stop() as stop, threadpool_limits(1, "blas"):      # runs in threads of this process end at different times
        try:
            with pool.quiet_start():
                for path in jobs:
                    futures[hand_out(path)] = path
            return _gathered(futures, hand_out, bars, stop)
        except BaseException as error:                      # one that went wrong, or Ctrl-C
            stop_file.touch()
            running = [future for future in futures if not future.cancel()]
            bars.say("stopping the runs, each with a checkpoint")
            if not isinstance(error, KeyboardInterrupt):
                wait(running, timeout=60)                   # of an executor that is broken some never end
                raise
            try:
                wait(running)
            except KeyboardInterrupt:                       # another Ctrl-C: they keep the last of their checkpoints
                for process in [*executor._processes.values()] if own else ():
                    process.kill()
            raise Interrupted(f"{len(futures)} run{'s' * (len(futures) != 1)} stopped") from None
        finally:
            stop.ignore()                                   # a pool that is half closed would never end
            bars.close()
            if own:
                executor.shutdown(wait=True, cancel_futures=True)
            if all(future.done() for future in futures):    # one that has not looked yet shall find it
                stop_file.unlink(missing_ok=True)


def _gathered(futures: dict, hand_out, bars, stop) -> dict:
    """{path: error or None} once all of {future: path} have ended; what has ended is taken out of `futures`."""
    times, found = dict.fromkeys(futures.values(), 1), {}
    while futures:
        done, _ = wait(futures, timeout=0.3, return_when=FIRST_COMPLETED)
        bars.look()
        if stop():
            raise KeyboardInterrupt
        for future in done:
            path = futures.pop(future)
            error = CancelledError() if future.cancelled() else future.exception()
            of_dask = type(error).__module__.startswith("distributed")
            if not (of_dask or isinstance(error, CancelledError | ConnectionError)):    # no worker or message was lost
                found[path] = future.result()
                continue
            if times[path] == HANDED_OUT:
                raise BrokenExecutor(f"the worker of {path.name} was lost {HANDED_OUT} times")
            times[path] += 1
            futures[hand_out(path)] = path
    return found
