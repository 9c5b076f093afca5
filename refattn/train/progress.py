"""Bars of `tqdm` on standard error: of one run, and of several, drawn by one process from what the runs write."""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import RLock

from tqdm import tqdm

from .. import params
from . import runs

ANNOUNCE = 20    # steps of a run after which the expected minutes are said
MANY = 12        # runs that a terminal has room for


class Bar(tqdm):
    """Without a thread of its own, beside which no later run of this process could fork."""
    monitor_interval = 0


Bar.set_lock(RLock())                                       # tqdm's is of the system, and outlives a killed process


class BarOfOne(Bar):
    """Of one run among several: its clock runs from its first step that is seen to its last."""
    took = None

    @property
    def format_dict(self):
        found = super().format_dict
        if self.n >= self.total and self.took is None:
            self.took = found["elapsed"]
        return {**found, "elapsed": found["elapsed"] if self.took is None else self.took}


def to_go(seconds: float) -> str:
    """What is said of the expected time.

    >>> to_go(150), to_go(3.2)
    ('about 2.5 minutes of training to go', 'about 3 seconds of training to go')
    """
    expected = f"{seconds / 60:.1f} minutes" if seconds >= 60 else f"{seconds:.0f} seconds"
    return f"about {expected} of training to go"


def is_shown(progress: bool) -> bool:
    """Whether bars are drawn: not without standard error (None where it is closed), nor where TQDM_DISABLE is set."""
    return bool(progress and sys.stderr and not os.environ.get("TQDM_DISABLE"))


def progress_bar(iterable=None, *, progress: bool, kind=Bar, **options):
    """A bar; elsewhere than on a terminal it is drawn every ten seconds."""
    options |= {"mininterval": 0.1 if sys.stderr.isatty() else 10} if is_shown(progress) else {"disable": True}
    return kind(iterable, dynamic_ncols=True, file=sys.stderr, **options)


class Bars:
    """A bar for every run on a terminal, one for all elsewhere or if many; `jobs` is [(directory, recipe), ...]."""

    def __init__(self, jobs, progress: bool, how: str = ""):
        self.jobs, self.progress = jobs, is_shown(progress)
        self.seen = [(runs.lines(path) or [{}])[-1].get("step", 0) for path, _ in jobs]
        self.sizes = [0] * len(jobs)                        # of the files that were read last, in bytes
        self.total = sum(recipe.steps for _, recipe in jobs)
        self.first: tuple[float, int, int] | None = None    # time and steps when the first line was seen, and whose
        self.said = False                                   # the minutes
        counts = [params.count(recipe.build().parameters()) for _, recipe in jobs]
        if len(jobs) > MANY:
            each = " to ".join(f"{n:,}" for n in sorted({min(counts), max(counts)})) + " each"
        else:
            each = ", ".join(f"{recipe.name} {n:,}" for (_, recipe), n in zip(jobs, counts, strict=True))
        self.say(f"{len(jobs)} runs, {self.total:,} steps together{how}; parameters: {each}")
        self.single = not (self.progress and sys.stderr.isatty()) or len(jobs) > MANY
        if self.single:
            self.bars = [progress_bar(progress=progress, total=self.total, initial=sum(self.seen), unit="step",
                                      desc=f"{len(jobs)} runs")] * len(jobs)
        else:
            self.bars = [progress_bar(progress=progress, kind=BarOfOne, total=recipe.steps, initial=seen, unit="step",
                                      desc=f"{recipe.name:<16}", position=place)
                         for place, ((_, recipe), seen) in enumerate(zip(jobs, self.seen, strict=True))]

    def say(self, text: str) -> None:
        """Writes a line above the bars."""
        if self.progress:
            Bar.write(text, file=sys.stderr)

    def look(self) -> None:
        """Move the bars to where the runs are, and say once how long it will take."""
        for place, (path, recipe) in enumerate(self.jobs):
            self.look_at_evaluation(place)
            file = Path(path, "metrics.jsonl")
            size = file.stat().st_size if file.exists() else 0
            if size == self.sizes[place]:                   # long runs have thousands of lines
                continue
            self.sizes[place], line = size, (runs.lines(path) or [{}])[-1]
            if line.get("step", 0) > self.seen[place]:
                loss, bar = f"{line['loss']:.4f}", self.bars[place]
                bar.set_postfix({recipe.name: loss} if self.single else {"loss": loss, "rate": f"{line['rate']:.1e}"},
                                refresh=False)
                if not self.single and bar.n == bar.initial:
                    bar.unpause()                           # it may have waited for a worker
                bar.update(line["step"] - self.seen[place])
                self.seen[place] = line["step"]
                self.announce(place)
                if self.seen[place] == recipe.steps and not Path(path, "result.json").exists():
                    self.say(f"{recipe.name}: all steps done, evaluating")

    def look_at_evaluation(self, place: int) -> None:
        """Behind the bar of a run whose steps are done: how far its evaluation is."""
        path, recipe = self.jobs[place]
        if self.single or self.seen[place] < recipe.steps:
            return
        words = "evaluated" if Path(path, "result.json").exists() else "evaluating"
        with suppress(FileNotFoundError):
            words = f"evaluating {Path(path, runs.EVALUATED).read_text(encoding='utf-8')}"
        if words != self.bars[place].postfix:
            self.bars[place].set_postfix_str(words)

    def announce(self, place: int) -> None:
        """Says once how long it will take, as soon as that can be told: when the run that was first has gone on."""
        now, steps = time.monotonic(), sum(self.seen)
        if self.first is None:                              # from here on, since processes take a while to start
            self.first = now, steps, place
        elif not self.said and place == self.first[2] and steps - self.first[1] >= ANNOUNCE * len(self.jobs):
            self.say(to_go((self.total - steps) * (now - self.first[0]) / (steps - self.first[1])))
            self.said = True

    def close(self) -> None:
        """Closes all bars."""
        for bar in self.bars:
            bar.close()
