"""What goes on around the updates of a run: its state, the watch for bad numbers, log lines, checkpoints, the bar."""

import sys
import time
from pathlib import Path

import numpy as np

from .. import optim, params
from ..files import whole_file
from ..xp import array_module, to_device, to_host
from . import runs
from .evaluation import evaluate, stream
from .groups import WorkerLost
from .progress import ANNOUNCE, progress_bar, to_go


class NonFinite(FloatingPointError):
    """A loss, gradient or parameter was infinite or NaN; the message names the step and the parameter."""


class State:
    """What a checkpoint holds: parameters, both moments, the losses summed since the last log line, the step, the time.

    `seconds` is wall clock, pauses of the machine included; `cpu_seconds` is of all threads of all workers.
    """

    def __init__(self, recipe, listed, xp):
        self.flat, self.parameters = params.allocate(listed, xp=xp)
        params.initialise(self.flat, listed, stream(recipe.seed, "init"), recipe.initialise, recipe.INITIAL)
        self.moments = optim.moments(self.flat)
        self.loss_sum = xp.zeros((), dtype=self.flat.dtype)
        self.step, self.seconds, self.cpu_seconds = 0, 0.0, 0.0

    def arrays(self) -> dict:
        """{name: flat array} of a checkpoint."""
        return dict(zip(runs.ARRAYS, (self.flat, *self.moments, self.loss_sum), strict=True))

    def restore(self, arrays: dict, meta: dict) -> None:
        """Takes arrays, step and times from a checkpoint."""
        for name, x in self.arrays().items():
            x[...] = to_device(arrays[name], array_module(x))
        self.step, self.seconds = meta["step"], meta.get("seconds", 0.0)
        self.cpu_seconds = meta.get("cpu_seconds", 0.0)


def first_bad(finite, listed) -> str | None:
    """The name of the first parameter with an entry that is not finite, from a flat boolean array."""
    bad, parts = np.flatnonzero(~to_host(finite)), list(params.entries(listed))
    ends = np.cumsum([np.prod(p.shape, dtype=int) for _, p in parts])
    return parts[np.searchsorted(ends, bad[0], side="right")][0] if bad.size else None


class Health:
    """Whether every loss and gradient was finite so far, kept on the device: only `check` waits for it."""

    def __init__(self, flat, listed, step: int, turns: int):
        xp = array_module(flat)
        self.listed, self.start, self.turns = listed, step, turns
        self.finite = xp.ones(flat.shape, dtype=bool)       # entry by entry, of the first gradient that was not
        self.alive = xp.ones((), dtype=bool)
        self.good = xp.zeros((), dtype=np.int64)            # updates before that one

    def watch(self, loss, gradient) -> None:
        """Notes whether loss and gradient are finite, without waiting for the device."""
        xp = array_module(gradient)
        self.finite &= xp.isfinite(gradient) | ~self.alive
        self.alive &= self.finite.all() & xp.isfinite(loss)
        self.good += self.alive

    def check(self) -> None:
        """Raises NonFinite with the step and the first offending parameter, in the order of the list."""
        if not bool(self.alive):
            name = first_bad(self.finite, self.listed)
            what = "the loss" if name is None else f"the gradient of {name}"
            raise NonFinite(f"step {self.start + int(self.good) // self.turns + 1}: {what} is not finite")


class Record:
    """Log lines, evaluations, checkpoints and the bar of one run; with `out` None only the bar."""

    def __init__(self, recipe, model, state: State, out, progress: bool, group):
        self.recipe, self.model, self.state, self.out, self.group = recipe, model, state, out, group
        self.listed, self.first_step, self.saved_at = model.parameters(), state.step, state.step
        self.health = Health(state.flat, self.listed, state.step, recipe.TURNS)
        self.bar = progress_bar(progress=progress, total=recipe.steps, initial=state.step, unit="step",
                                desc=recipe.name)

    def __enter__(self):
        recipe = self.recipe
        updates = f"{recipe.TURNS} updates, each of " if recipe.TURNS > 1 else ""
        self.say(f"{recipe.name}: {len(self.state.flat):,} parameters, {recipe.steps:,} steps of {updates}"
                 f"{recipe.batch} samples in {recipe.shards} shard{'s' if recipe.shards > 1 else ''}, {self.group}")
        self.begun = self.saved_time = time.monotonic()
        self.saved_cpu = self.group.cpu_seconds()
        return self

    def __exit__(self, kind, error, _):
        self.bar.close()
        if kind is WorkerLost:
            self.fail(WorkerLost(f"step {self.state.step + 1}: {error}"))
        if kind is NonFinite:
            self.fail(error)

    def say(self, text: str) -> None:
        """Writes a line above the bar."""
        if not self.bar.disable:
            self.bar.write(text, file=sys.stderr)

    def fail(self, error: NonFinite | WorkerLost) -> None:
        """Raises the error, saying which checkpoint is kept; the run directory keeps the reason."""
        if self.out is not None:
            with whole_file(Path(self.out, runs.ERROR)) as file:
                file.write(f"{error}\n")
        kept = f"the checkpoint of step {self.saved_at} in {self.out} is kept" if self.out else "nothing was saved"
        raise type(error)(f"{self.recipe.name}, {error}; {kept}") from None

    def before_update(self, loss, gradient) -> None:
        """Takes note of loss and gradient."""
        self.health.watch(loss, gradient)
        if array_module(gradient) is np:                    # on a CPU a look costs nothing
            self.health.check()
        self.state.loss_sum += loss

    def after_step(self) -> None:
        """Counts the step; logs, evaluates and saves where it is due."""
        recipe, state = self.recipe, self.state
        state.step += 1
        self.bar.update()
        if state.step - self.first_step == ANNOUNCE:
            seconds = (recipe.steps - state.step) * (time.monotonic() - self.begun) / ANNOUNCE
            self.say(f"{recipe.name}: {to_go(seconds)}")
        last = state.step == recipe.steps
        if state.step % recipe.log_every == 0 or last:
            # all samples are asked after the last step: a probe of few is of use there only to choose the best by
            self.log(evaluating=recipe.CHOSEN_BY is not None if last else state.step % recipe.evaluate_every == 0)
        if state.step % recipe.checkpoint_every == 0:
            self.checkpoint()

    def log(self, evaluating: bool) -> None:
        """One line of metrics.jsonl; nothing in it depends on the clock."""
        self.health.check()
        recipe, state = self.recipe, self.state
        loss = float(state.loss_sum) / (((state.step - 1) % recipe.log_every + 1) * recipe.TURNS)
        line = {"step": state.step, "loss": loss, "rate": recipe.rate_at(state.step - 1)}
        state.loss_sum[...] = 0
        if evaluating:
            for split in recipe.SPLITS:
                line[split] = evaluate(recipe, self.model, state.parameters, split, tasks=recipe.probe)
        self.bar.set_postfix(loss=f"{loss:.4f}", rate=f"{line['rate']:.1e}", refresh=False)
        if self.out is not None:
            if evaluating and recipe.CHOSEN_BY:
                self.choose(line)
            runs.append(self.out, line)

    def choose(self, line: dict) -> None:
        """Keep the parameters as best.npz where the evaluation in this line is better than all before it."""
        split, metric, way = self.recipe.CHOSEN_BY
        sign = {"least": -1, "most": 1}[way]
        before = runs.measured(runs.lines(self.out), split, metric)
        value = line[split][metric]
        if value is not None and all(sign * value > sign * other for other in before.values()):
            runs.save_checkpoint(self.out, self.recipe, self.listed, {"parameters": to_host(self.state.flat)},
                                 self.state.step, self.state.seconds, self.state.cpu_seconds, runs.BEST)

    def checkpoint(self) -> None:
        """Save the state, unless it is saved already; a state with a bad number raises and is never saved."""
        self.health.check()
        state = self.state
        if self.out is None or state.step == self.saved_at:
            return
        arrays = {name: to_host(x) for name, x in state.arrays().items()}
        for name, x in arrays.items():
            if not np.isfinite(x).all():
                bad = first_bad(np.isfinite(x), self.listed) if x.ndim else "all losses"
                raise NonFinite(f"step {state.step}: {name} of {bad} is not finite after the update")
        now, cpu = time.monotonic(), self.group.cpu_seconds()
        state.seconds, self.saved_time = state.seconds + now - self.saved_time, now
        state.cpu_seconds, self.saved_cpu = state.cpu_seconds + cpu - self.saved_cpu, cpu
        runs.save_checkpoint(self.out, self.recipe, self.listed, arrays, state.step, state.seconds, state.cpu_seconds)
        Path(self.out, runs.ERROR).unlink(missing_ok=True)
        self.saved_at = state.step
