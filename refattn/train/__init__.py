"""Training: one plain loop from samples to parameters.

Every random number is a function of the seed, its purpose and the step, or the numbers of the samples: a run that is
killed and resumed ends with bitwise the same parameters as one that is not (same machine kind, versions and number of
BLAS threads, on CPU).

A recipe is anything with the methods and fields of `recipes.base.Recipe`; this module knows no task and no model.
"""

import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from .. import optim, params
from ..checks import check_integer
from ..xp import array_module, to_device
from ..xp import device as find_device
from . import curves, groups, prefetch, runs
from .evaluation import evaluate, stream
from .groups import WorkerLost
from .json_files import environment, write_json
from .progress import progress_bar
from .record import NonFinite, Record, State
from .runs import load
from .shards import Shards
from .stop import Interrupted, Stop

__all__ = ["Fitted", "Interrupted", "NonFinite", "WorkerLost", "evaluate", "fit", "load", "stream"]


class Fitted(NamedTuple):
    """What `fit` returns: `evaluate(*fitted[:3], "held_out")` measures it again."""
    recipe: Any
    model: Any
    parameters: params.Views
    step: int                  # steps made, each of TURNS updates
    metrics: dict              # {split: {metric: value}}, empty unless the run is complete
    finished: bool


def fit(recipe, out=None, *, device: str = "cpu", max_seconds: float | None = None, resume: bool = False,
        progress: bool = True, threads: int = 1, stop_file=None, workers=1) -> Fitted:
    """Train the recipe's model; with `out` the run directory is written there (`runs` says what is in it).

    device      : "cpu" or "gpu"; on a GPU nothing in a step waits for the device
    max_seconds : stop training after that time, with a checkpoint; `finished` is then False
    resume      : go on from the checkpoint in `out`, or begin where there is none
    threads     : of BLAS; another number can change the last bits of a result
    workers     : processes that share the shards of a batch, None for the physical cores; or a group that has begun.
                  Their number changes no bit
    stop_file   : once this file exists the run stops like at Ctrl-C (for runs in other processes)

    Raises NonFinite at an infinite or NaN loss or gradient (the last checkpoint is kept); Interrupted, a
    KeyboardInterrupt, at Ctrl-C after a checkpoint; WorkerLost where a process has died (the last checkpoint is kept);
    ValueError for a foreign checkpoint, or where `out` holds a run and `resume` is False.
    """
    check_integer("threads", threads)
    xp = find_device(device)
    stop = Stop(max_seconds, stop_file)
    model = recipe.build()
    listed = model.parameters()
    state = State(recipe, listed, xp)
    flat = state.flat
    group = workers if isinstance(workers, groups.Alone) else groups.group(workers, recipe.shards, device)
    shards = Shards(recipe, model, flat, group)
    mask = params.decay_mask(listed, recipe.decay_rule, xp=xp)
    bounds = params.bounds(listed, xp=xp)
    with (_opened(out, recipe, listed, state, resume), threadpool_limits(threads, "blas"), np.errstate(all="ignore"),
          group.at_work(shards)):
        with stop, Record(recipe, model, state, out, progress, group) as record:
            for step, batch in prefetch.ahead(recipe.draw, state.step, recipe.steps):
                if stop():
                    break
                for update, part in enumerate(recipe.turns(batch), start=step * recipe.TURNS):
                    loss, gradient = shards.gradient(update, part)
                    record.before_update(loss, gradient)                    # watches for bad numbers
                    if recipe.clip:
                        optim.clip_by_global_norm(gradient, recipe.clip, recipe.CLIP_EPSILON)
                    optim.adamw_step(flat, gradient, state.moments, step=update + 1, rate=recipe.rate_at(step),
                                     decay=recipe.decay, mask=mask, **recipe.ADAM)
                    if bounds is not None:
                        xp.clip(flat, *bounds, out=flat)
                record.after_step()                                         # logs, evaluates, saves
            record.checkpoint()
        if stop.interrupted:
            raise Interrupted(f"{recipe.name} stopped at step {state.step:,} of {recipe.steps:,}")
        finished = state.step == recipe.steps
        bars = _bars(recipe, out, progress, stop)
        metrics = _finish(recipe, model, state, out, bars, device=device, workers=group.size) if finished else {}
    return Fitted(recipe, model, state.parameters, state.step, metrics, finished)


@contextmanager
def _opened(out, recipe, listed, state: State, resume: bool):
    """The run directory begun, or the state restored from its checkpoint; nobody else writes there meanwhile."""
    if out is None:
        if resume:
            raise ValueError("resume is True, but out is None; allowed: the directory of a run, or resume=False")
        yield
        return
    runs.begin(out, recipe, resume)
    with runs.locked(out):
        try:
            state.restore(*runs.load_checkpoint(out, recipe, listed))
        except FileNotFoundError:                           # new, or killed before its first checkpoint
            runs.save_checkpoint(out, recipe, listed, state.arrays(), 0, 0.0)
        runs.tidy(out, state.step)
        yield


def _finish(recipe, model, state: State, out, bars, **made_with) -> dict:
    """Final metrics of every split; with `out` also result.json and curves.png."""
    if out is not None and (done := runs.result(out, recipe)):
        return done["metrics"]
    metrics = _all_splits(recipe, model, state.parameters, bars)
    if out is not None:
        best = _best(recipe, model, out, array_module(state.flat), bars, {"step": state.step, "metrics": metrics})
        metrics = metrics | recipe.read_off([*runs.lines(out), {"step": state.step, **metrics}])
        write_json(Path(out, "result.json"), {
            **runs.describe(recipe), "name": recipe.name, "step": state.step, "metrics": metrics,
            **({"best": best} if best else {}), "parameters": len(state.flat), "seconds": round(state.seconds, 1),
            "cpu_seconds": round(state.cpu_seconds, 1), **made_with, **environment()})
        Path(out, runs.EVALUATED).unlink(missing_ok=True)
        curves.draw(out, recipe)
    return metrics


def _bars(recipe, out, progress: bool, stop: Stop):
    """What the batches of a split pass through: a bar where they take more than two seconds, and an eye on `stop`.

    Without progress of its own a run says in its directory how far it is, for who draws the bars of several.
    """
    told = -np.inf

    def watched(batches, split):
        nonlocal told
        total = sum(1 for _ in recipe.batches(split, recipe.evaluation))
        for number, batch in enumerate(progress_bar(batches, progress=progress, total=total, unit="batch", delay=2,
                                                    leave=False, desc=f"{recipe.name}, {split}")):
            if stop() and stop.interrupted:                 # what is asked by the clock is the training
                raise Interrupted(f"{recipe.name} stopped while it was evaluated; all its steps are done")
            if out is not None and not progress and time.monotonic() > told + 0.3:
                told = time.monotonic()
                with suppress(OSError):                     # only a look
                    Path(out, runs.EVALUATED).write_text(f"{split}, {number} of {total} batches", encoding="utf-8")
            yield batch
    return watched


def _all_splits(recipe, model, p, bars) -> dict:
    """{split: metrics}."""
    return {split: evaluate(recipe, model, p, split, bar=partial(bars, split=split)) for split in recipe.SPLITS}


def _best(recipe, model, out, xp, bars, last: dict) -> dict | None:
    """Step and metrics of the parameters in best.npz, which may be the last; None where there are none."""
    if not Path(out, runs.BEST).exists():
        return None
    arrays, meta = runs.load_checkpoint(out, recipe, model.parameters(), runs.BEST)
    if meta["step"] == last["step"]:
        return last
    p = params.view(to_device(arrays["parameters"], xp), model.parameters())
    return {"step": meta["step"], "metrics": _all_splits(recipe, model, p, bars)}
