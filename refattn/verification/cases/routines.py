"""Rows for what has no backward: the optimiser, schedules, masks and tables."""

from functools import partial

import numpy as np

from ... import optim
from ...attention import masks
from ...layers import positions
from ...layers.mixture_of_experts import largest
from ..naive import optim as naive_optim
from ..naive import positions as naive_positions
from .case import Case

STEPS = 3
ADAMW = {"rate": 0.1, "decay": 0.3, "epsilon": 1e-2, "beta1": 0.8, "beta2": 0.9}       # large, so that each one shows


def adamw_inputs(rng):
    """Parameters, a few gradients, and perhaps a mask of what decays."""
    return {"flat": rng.standard_normal(7), "grads": rng.standard_normal((STEPS, 7)),
            "mask": (rng.random(7) < 0.5).astype(float) if rng.random() < 0.7 else None}


def adamw(inputs):
    """Parameters and both moments after one update for each gradient."""
    flat = inputs["flat"] * 1
    state = optim.moments(flat)
    for step, grads in enumerate(inputs["grads"], start=1):
        optim.adamw_step(flat, grads, state, step=step, mask=inputs["mask"], **ADAMW)
    return (flat, *state), None


def adamw_loops(inputs):
    """The same, number by number."""
    p, first, second = list(inputs["flat"]), [0.0] * 7, [0.0] * 7
    for step, grads in enumerate(inputs["grads"], start=1):
        p, first, second = naive_optim.adamw(p, grads, first, second, step, decayed=inputs["mask"], **ADAMW)
    return np.array(p), np.array(first), np.array(second)


def clip(inputs, **options):
    """The clipped gradient and the norm it had."""
    grads = inputs["grads"] * 1
    norm = optim.clip_by_global_norm(grads, 2.0, **options)
    return (grads, norm), None


def clip_loops(inputs, **options):
    """The same, number by number."""
    grads, norm = naive_optim.clip_by_global_norm(list(inputs["grads"]), 2.0, **options)
    return np.array(grads), np.array(norm)


def table(name, file, ours, definition, source="") -> Case:
    """A row for a table that is made from sizes alone."""
    return Case(name, source, file, lambda rng: {}, lambda inputs: (ours(), None), None, lambda inputs: definition())


def rates(schedule, length_option):
    """The learning rate at every step and past the last one, for both lengths of the cosine."""
    return np.array([[schedule(c, rate=2.0, steps=40, warmup=6, **{length_option: length}) for c in range(45)]
                     for length in ("released", "text")])


def pairs(rule, queries, keys):
    """(q, k): whether the rule lets position q see position k."""
    return np.array([[rule(q, k) for k in range(keys)] for q in range(queries)])


def in_pieces(extend, pieces, state=None) -> list:
    """The outputs of extend(piece, state) -> output, state, one piece after the other."""
    found = []
    for piece in pieces:
        y, state = extend(piece, state)
        found.append(y)
    return found


def two_largest(row):
    """Whether each entry is one of the two largest; of equal ones the first are."""
    first = sorted(range(len(row)), key=lambda i: (-row[i], i))[:2]
    return [i in first for i in range(len(row))]


def routines():
    """All rows of this file."""
    yield Case("optim/adamw_step", "Loshchilov & Hutter 2019", "optim.py", adamw_inputs, adamw, None, adamw_loops)
    for scale in 0.1, 10.0:                             # below the limit, and above it
        yield Case(f"optim/clip_by_global_norm, size {scale}", "", "optim.py", lambda rng, scale=scale: {
            "grads": scale * rng.standard_normal(7)}, clip, None, clip_loops)
    yield Case("optim/clip_by_global_norm, epsilon 0.5", "C, released code", "optim.py", lambda rng: {
        "grads": 2 * rng.standard_normal(7)}, partial(clip, epsilon=0.5), None, partial(clip_loops, epsilon=0.5))
    yield table("optim/warmup_cosine", "optim.py", lambda: rates(optim.warmup_cosine, "length"),
                lambda: rates(naive_optim.schedule, "decay_length"), "H, released code")
    yield table("positions/sinusoidal", "layers/positions.py", lambda: positions.sinusoidal(5, 6),
                lambda: naive_positions.sinusoidal(5, 6), "Vaswani et al. 2017, section 3.5")
    for name in "image_table", "halves_table":
        yield table(f"positions/{name}", "layers/positions.py", partial(getattr(positions, name), 5, 6),
                    partial(getattr(naive_positions, name), 5, 6), "C, released code")
    yield table("masks/causal", "attention/masks.py", lambda: masks.causal(4, 7),
                lambda: pairs(lambda q, k: k <= q + 3, 4, 7))
    yield table("masks/window", "attention/masks.py", lambda: masks.window(6, 3), lambda: pairs(
        lambda q, k: k in (q - 2, q - 1, q), 6, 6))
    yield table("masks/off_diagonal", "attention/masks.py", lambda: masks.off_diagonal(4), lambda: pairs(
        lambda q, k: q != k, 4, 4))
    yield Case("mixture_of_experts/largest", "H, appendix A.1", "layers/mixture_of_experts.py",
               lambda rng: {"logits": rng.integers(3, size=(6, 5))},
               lambda inputs: (largest(inputs["logits"], 2), None), None,
               lambda inputs: np.array([two_largest(row) for row in inputs["logits"].tolist()]))
    lengths = [3, 1, 4]
    yield Case("masks/padding", "", "attention/masks.py", lambda rng: {"lengths": np.array(lengths)}, lambda inputs: (
        masks.padding(inputs["lengths"], 4), None), None, lambda inputs: pairs(
            lambda b, k: k < lengths[b], 3, 4)[:, None, None])
