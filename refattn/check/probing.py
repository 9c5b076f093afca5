"""What a kernel is asked: inputs that switch parts of a page on and off; its answers; differences of its outputs."""

import numpy as np

from ..verification.plain_formulas import rounded
from ..verification.rounding import UNIT
from .formulas import OPTIONS

SECOND_SHAPE = "one sequence"
MAYBE = SECOND_SHAPE, "stretched bias"          # shapes that a kernel may refuse
SLOPES = {"float64": ((1e-4, 1e-5, 1e-6), 1e-5),           # lengths of steps, and what a slope may be off
          "float32": ((1e-2, 3e-3, 1e-3, 3e-4), 0.01)}
OF_HALF = (0.25, 0.125), 0.2                    # the same in half precision


def probes(call, sizes, seed) -> dict:
    """Name -> inputs: all options, none, each alone, small scores, positive numbers, one sequence, a stretched bias."""
    seeds = call.seeds(sizes, seed)
    full = call.draw(sizes, seeds[0])
    found = {"all": full}
    if not call.of.arrays:
        further = {s: call.draw(sizes, s) for s in (seed + 1, seed + 2, *seeds[1:])}
        return found | {f"draw {s}": x for s, x in further.items() if call.takes(call.hand(x)[1])}
    given = [n for n in OPTIONS if n in full]
    nothing = {n: np.zeros_like(full[n]) if n == "bias" else np.ones_like(full[n]) for n in given}
    found[SECOND_SHAPE] = call.draw(one_sequence(sizes), seed + 1)
    found["no options"] = call.draw(sizes, seed + 2) | nothing
    found["small scores"] = {**found["no options"], "q": found["no options"]["q"] * 2.0**-9}
    found["positive"] = {**found["no options"], **{n: np.abs(found["no options"][n]) for n in "qkv"}}
    if (call.forms["bias"] or "").startswith("b"):
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
    def __init__(self, call, inputs, theirs):
        self.of, self.inputs, self.theirs = call.of, inputs, theirs
        self.finite = {n: np.isfinite(x) for n, x in theirs.items()}
        self.ours, self.bars, _ = known = call.bars(inputs, theirs)
        self.comparison = call.report(inputs, theirs, known)
        self.wrong = [entry.name for entry in self.comparison.entries if not entry.ok]
        self.misshapen = {x.name: x for x in self.comparison.entries if theirs[x.name].shape != self.ours[x.name].shape}


def consistent(call, asked, wrong) -> str:
    """The verdict on a kernel whose output is wrong: are its gradients those of its own forward, or of the page's?"""
    gradients = sorted((n for n in wrong if n[0] == "d" and n[1:] in asked["all"].inputs), key=lambda n: not wrong[n])
    if not gradients:
        return "forward differs, no gradients given"
    if not any(wrong[n] for n in gradients):
        return "forward differs, your gradients are those of the right forward"
    rng, whole = np.random.default_rng(0), [asked[n] for n in ("no options", "all") if n in asked]
    whole = [a for a in whole if np.isfinite(a.theirs.get("o", 0)).all() and not {"o", "end"} & a.misshapen.keys()]
    if not whole:
        return "forward differs; whether your gradients are right for it shows where o is finite and has its shape"
    for a in whole:
        for n in gradients:
            x, steepest = a.inputs[n[1:]], np.sign(a.theirs[n])
            drawn = (rng.choice([-1.0, 1.0], x.shape) for _ in range(3))                # any of which may meet a kink
            if steepest.shape != x.shape or not a.finite[n].all() or not (
                    follows(call, a, n, steepest * sizes_of(x))
                    and any(follows(call, a, n, u * sizes_of(x)) for u in drawn)):
                return "forward differs, and your gradients are not those of your forward"
    if call.dtype not in SLOPES:
        return "forward differs; whether your gradients are right for it shows in float32"
    return "forward differs, your gradients are right for it"


def sizes_of(x):
    """How large the vectors of x are, 1 where they are 0: steps are in proportion, a small query's are small."""
    size = (x * x).mean(-1, keepdims=True) ** 0.5 if x.ndim else abs(x)
    return np.where(size > 0, size, 1.0)


def follows(call, a, n, u) -> bool:
    """Whether a kernel's gradient is the slope of its outputs in a direction, as far as its precision tells.

    A long step meets kinks, and what bends; a short one rounding: what two steps differ by is not held against it.
    """
    steps, within = SLOPES.get(call.dtype, OF_HALF)
    outputs = {y: a.inputs[dy] for y, dy in (("o", "do"), ("end", "dend")) if y in a.theirs and dy in a.inputs}
    u = u / (np.linalg.norm(u) or 1.0)
    size, errors = np.linalg.norm(a.theirs[n] * u), []
    noise = 8 * UNIT[call.dtype] * sum(np.linalg.norm(a.theirs[y] * dy) for y, dy in outputs.items())
    for step in steps:
        there, here = (rounded(a.inputs[n[1:]] + t * u, call.dtype) for t in (step, -step))
        length = np.linalg.norm(there - here) or 1.0
        up, down = (call({**a.inputs, n[1:]: x})[1] for x in (there, here))
        slope = sum(((up[y] - down[y]) * dy).sum() for y, dy in outputs.items()) / length
        errors.append(slope - (a.theirs[n] * (there - here)).sum() / length)
        allowed = within * (size + abs(slope)) + noise / length
        if abs(errors[-1]) <= allowed + (2 * abs(errors[-1] - errors[-2]) if errors[1:] else 0):
            return True
    return False
