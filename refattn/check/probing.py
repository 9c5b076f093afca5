"""What a kernel is asked: inputs that switch parts of a page on and off; its answers; differences of its outputs."""

import numpy as np

__all__ = ["MAYBE", "Answer", "consistent", "probes"]

DIRECTIONS = 4                 # gradients that are held against differences of the kernel's own outputs
MAYBE = "one sequence", "stretched bias"        # shapes that a kernel may refuse


def probes(call, sizes, seed) -> dict:
    """Name -> inputs: all options, none, each alone, small scores, positive numbers, one sequence, a stretched bias."""
    full, found = call.draw(sizes, seed), {}
    found["all"] = full
    if not call.of.arrays or "q" not in full:
        return found | {f"draw {i}": call.draw(sizes, seed + i) for i in (1, 2)}
    given = [n for n in ("bias", "keep", "dropout") if n in full and not (n == "keep" and call.causal)]
    nothing = {n: np.zeros_like(full[n]) if n == "bias" else np.ones_like(full[n]) for n in given}
    alone = call.draw(one_sequence(sizes), seed + 1)
    found["one sequence"] = alone
    found["no options"] = call.draw(sizes, seed + 2) | nothing
    found["small scores"] = {**found["no options"], "q": found["no options"]["q"] * 2.0**-9}
    found["positive"] = {**found["no options"], **{n: np.abs(found["no options"][n]) for n in "qkv"}}
    if "b" in (call.forms["bias"] or "")[-4:-3]:
        found["stretched bias"] = call.draw(sizes, seed + 4, bias="1" + call.forms["bias"][1:])
    for name in given if len(given) > 1 else ():
        found[f"{name} alone"] = call.draw(sizes, seed + 3) | nothing | {name: full[name]}
    return found


def one_sequence(sizes):
    """Sizes for a second shape, where factors that are alike in the first are not."""
    other = {None: {"q": 4, "k": 6, "h": 3}, "tiles": {"q": 33, "k": 63, "h": 2, "d": 32, "e": 16}}
    return {**(sizes if isinstance(sizes, dict) else other[sizes]), "b": 1}


class Answer:
    """What the kernel said to one probe, what the page says, and what is allowed."""
    def __init__(self, call, inputs, twice=False):
        self.inputs, self.theirs = call(inputs, twice)
        self.ours, self.bars = call.bars(inputs, self.theirs)
        self.comparison = call.report(inputs, self.theirs, (self.ours, self.bars))
        self.wrong = [entry.name for entry in self.comparison.entries if not entry.ok]


def consistent(call, asked, wrong) -> str:
    """The verdict on a kernel whose output is wrong: are its gradients those of its own forward, or of the page's?"""
    gradients = [n for n in wrong if n[0] == "d" and n[1:] in asked["all"].inputs][:DIRECTIONS]
    if not gradients:
        return "forward differs, no gradients given"
    if not any(wrong[n] for n in gradients):
        return "forward differs, your gradients are those of the right forward"
    rng, step = np.random.default_rng(0), {"float64": 1e-5, "float32": 1e-2}.get(call.dtype, 0.125)
    for probe in ("no options", "all"):
        a = asked.get(probe)
        for n in gradients if a is not None and np.isfinite(a.theirs["o"]).all() else ():
            x = a.inputs[n[1:]]
            u, g = rng.choice([-1.0, 1.0], x.shape) / max(1, x.size) ** 0.5, a.theirs[n]
            ends = [call({**a.inputs, n[1:]: x + t * u})[1]["o"] for t in (step, -step)]
            slope, size = ((ends[0] - ends[1]) * a.inputs["do"]).sum() / (2 * step), np.linalg.norm(g) / x.size**0.5
            if g.shape != x.shape or not abs(slope - (g * u).sum()) <= {"float64": 1e-3, "float32": 0.05}.get(
                    call.dtype, 0.5) * (size + abs(slope)):
                return "forward differs, and your gradients are not those of your forward"
    return "forward differs, your gradients are right for it"
