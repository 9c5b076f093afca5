"""Interleaved timing: on a shared machine only ratios from one process, taken in turn, mean anything."""
import random
import time
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import numpy as np
from tqdm import trange

RATIOS = ("ratio_of_medians", "median_of_ratios", "cpu_median_of_ratios")


def interleave(steps, rounds, warm_up, pause=0.0):
    """{name: (rounds, 3) array of wall ms, process CPU ms, page faults} of zero-argument steps.

    Every round calls every step once, in a new order; the first `warm_up` rounds are not kept.  `pause`, in seconds, is
    what threads that wait actively for more work get to fall asleep.
    """
    order, found, shuffler = list(steps), {name: [] for name in steps}, random.Random(0)
    for _ in trange(warm_up + rounds, desc="rounds", leave=False, disable=None):
        shuffler.shuffle(order)
        for name in order:
            time.sleep(pause)
            faults = getrusage(RUSAGE_SELF).ru_minflt
            cpu, wall = time.process_time(), time.perf_counter()
            steps[name]()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            found[name].append((1e3 * wall, 1e3 * cpu, getrusage(RUSAGE_SELF).ru_minflt - faults))
    return {name: np.array(rows[warm_up:]) for name, rows in found.items()}


def summary(rows, ours):
    """Medians of one step's times, least and spread of its wall time, and ours as a multiple of it in three ways."""
    low, wall, high = np.percentile(rows[:, 0], (25, 50, 75))
    by_round = np.median(ours[:, :2] / rows[:, :2], axis=0)
    figures = {"wall_ms": wall, "min_ms": rows[:, 0].min(), "iqr_ms": high - low, "cpu_ms": np.median(rows[:, 1]),
               "faults": np.median(rows[:, 2]),
               **dict(zip(RATIOS, (np.median(ours[:, 0]) / wall, *by_round), strict=True))}
    return {key: float(x) for key, x in figures.items()}


def table(title, figures):
    """The figures of one variant and mode as lines of text."""
    lines = [f"{title:14} wall ms     min     iqr  cpu ms  faults | ratio: medians  by round  by round, cpu"]
    for name, x in figures.items():
        ratios = "{:16.2f}{:10.2f}{:15.2f}".format(*(x[key] for key in RATIOS))
        lines.append("{:14}{:8.2f}{:8.2f}{:8.2f}{:8.2f}{:8.0f} |".format(name, *list(x.values())[:5]) + ratios)
    return "\n".join(lines)


def peak_megabytes():
    """Largest resident memory of this process so far (Linux only)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
