"""`python -m tests.bench.workers`: what a second core gains, for a step and for comparisons of several runs.

steps   medians of interleaved steps of the main job: one shard, then 4, 8, 16 by one worker (CPU time); 4 and 16 by
        two (wall clock).  What of a step is not computed in shards is its serial part; steps on more cores are
        predicted from it, as serial + shards on the fullest worker x time of a shard.  A prediction leaves out what
        cores take from one another: memory, caches, clock.
runs    seconds of 1, 2, 3 and 6 short runs on two cores: side by side with one worker each, one after the other with
        two, and as `compare` has them by default.
"""
import argparse
import tempfile
import time

import numpy as np
from threadpoolctl import threadpool_limits

from refattn import optim
from refattn.recipes import recipe
from refattn.train import compare, groups
from refattn.train.record import State
from refattn.train.shards import Shards
from refattn.xp import keep_freed_memory


class Step:
    """Draws, computes and updates as `fit` does, by so many workers."""

    def __init__(self, chosen, workers):
        self.recipe, model, shards = chosen, chosen.build(), chosen.shards
        self.state = State(self.recipe, model.parameters(), np)
        self.shards, self.count, self.in_shards = Shards(self.recipe, model, self.state.flat, groups.group(
            workers, shards)), 0, 0.0
        self.work = self.shards.group.at_work(self.shards)
        self.work.__enter__()
        self.compute, self.shards.compute = self.shards.compute, self.timed
        self.clock = time.process_time if workers == 1 else time.perf_counter

    def timed(self, update, batch):
        rows = self.compute(update, batch)
        while True:
            begun = self.clock()
            row = next(rows, None)
            self.in_shards += self.clock() - begun
            if row is None:
                return
            yield row

    def __call__(self):
        """(milliseconds of a step, of its shards)."""
        begun, self.in_shards, r = self.clock(), 0.0, self.recipe
        _, gradient = self.shards.gradient(self.count, r.draw(self.count))
        optim.clip_by_global_norm(gradient, r.clip)
        optim.adamw_step(self.state.flat, gradient, self.state.moments, step=self.count + 1, rate=1e-4, decay=r.decay)
        self.count += 1
        return 1e3 * (self.clock() - begun), 1e3 * self.in_shards


def steps(rounds):
    """Prints the steps' medians and what they predict."""
    for attention in "softmax", "hyla":
        made = {(shards, workers): Step(recipe("fuzzy_logic", "quick", attention=attention, shards=shards), workers)
                for shards, workers in ((1, 1), (4, 1), (8, 1), (16, 1), (4, 2), (16, 2))}
        found = {key: [] for key in made}
        for n in range(3 + rounds):
            for key, step in made.items():
                times = step()
                found[key] += [times] * (n >= 3)
        median = {key: np.median(times, axis=0) for key, times in found.items()}
        for (shards, workers), (whole, inside) in median.items():
            print(f"{attention:8} {shards:2} shards, {workers} worker{'s' * (workers > 1):1}: {whole:6.1f} ms, of them "
                  f"outside shards {whole - inside:4.1f}; {whole / median[1, 1][0]:.2f} of 1 shard")
        for shards, cores in (4, 2), (4, 4), (8, 8), (16, 16):
            whole, inside = median[shards, 1]
            predicted = whole - inside + inside / shards * -(-shards // cores)
            print(f"{attention:8} predicted: {shards:2} shards on {cores:2} cores {predicted:6.1f} ms, "
                  f"{predicted / median[1, 1][0]:.2f} of 1 shard on one core")
        for step in made.values():
            step.work.__exit__(None, None, None)


def comparisons(updates):
    """Prints the seconds of comparisons."""
    for many in 1, 2, 3, 6:
        took = {}
        for how, workers in ("side by side", 1), ("one after the other", 2), ("default", None):
            chosen = [recipe("fuzzy_logic", "quick", steps=updates, seed=seed, evaluation=128, probe=128)
                      for seed in range(many)]
            begun = time.perf_counter()
            with tempfile.TemporaryDirectory() as out:
                compare.compare(chosen, out, progress=False, workers=workers)
            took[how] = time.perf_counter() - begun
        print(f"{many} run{'s' * (many > 1)}: " + ", ".join(f"{how} {x:.1f} s" for how, x in took.items()), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.workers", description=__doc__.partition("\n")[0])
    parser.add_argument("what", nargs="*", choices=["steps", "runs", []], default=[], help="default: both")
    parser.add_argument("--rounds", type=int, default=20, help="timed steps of each (default %(default)s)")
    parser.add_argument("--updates", type=int, default=100, help="of each run (default %(default)s)")
    args = parser.parse_args()
    keep_freed_memory()
    with threadpool_limits(1, "blas"):
        if not args.what or "steps" in args.what:
            steps(args.rounds)
    if not args.what or "runs" in args.what:
        comparisons(args.updates)
