"""The optimiser, one Python number at a time.

Source: the authors' code (AdamW with decoupled decay, warm-up and cosine).
Units: rates per step, step numbers without unit.
"""

import math

DECAY_LENGTHS = "released", "text"


def adamw(p, gradients, first, second, step, *, rate, decay, decayed=None, beta1=0.9, beta2=0.999, epsilon=1e-8):
    """(p, first, second) after one step: p - rate (m / (sqrt(n) + epsilon) + decay p), m and n bias-corrected moments.

    p, gradients and the moments are lists of equally many numbers; `step` counts from 1; `decayed` says entry by entry
    whether the decay applies (everywhere unless given).  The lists are not changed.

    >>> p, first, second = adamw([1.0], [4.0], [0.0], [0.0], 1, rate=0.1, decay=0.5)
    >>> round(p[0], 6), round(first[0], 6), round(second[0], 6)         # 1 - 0.1 (4 / 4 + 0.5)
    (0.85, 0.4, 0.016)
    """
    decayed = [True] * len(p) if decayed is None else decayed
    new_p, new_first, new_second = [], [], []
    for n in range(len(p)):
        weight, gradient = float(p[n]), float(gradients[n])
        moment1 = beta1 * float(first[n]) + (1 - beta1) * gradient
        moment2 = beta2 * float(second[n]) + (1 - beta2) * gradient * gradient
        update = moment1 / (1 - beta1**step) / (math.sqrt(moment2 / (1 - beta2**step)) + epsilon)
        if decayed[n]:
            update += decay * weight
        new_p.append(weight - rate * update)
        new_first.append(moment1)
        new_second.append(moment2)
    return new_p, new_first, new_second


def schedule(c, *, rate, steps, warmup, floor=0.1, decay_length="released"):
    """The rate of update c = 0, 1, ...: rate c / W for c < W, then rate (floor + (1 - floor) (1 + cos(pi u)) / 2).

    u = min(c - W, length) / length, W = warmup.  The length of the decay is steps - 2 W as `released`, so that the last
    W updates run at floor * rate; it is steps - W in the `text`.

    >>> [float(f"{schedule(c, rate=1e-3, steps=50_000, warmup=100):.6g}") for c in (0, 1, 100, 25_000, 49_900, 49_999)]
    [0.0, 1e-05, 0.001, 0.00055, 0.0001, 0.0001]
    """
    if decay_length not in DECAY_LENGTHS:
        raise ValueError(f"decay_length is {decay_length!r}; allowed: {', '.join(map(repr, DECAY_LENGTHS))}")
    if c < warmup:
        return rate * c / warmup
    length = steps - 2 * warmup if decay_length == "released" else steps - warmup
    if length <= 0:
        raise ValueError(f"steps {steps} and warmup {warmup} leave {length} steps of decay; allowed: 1 or more")
    u = min(c - warmup, length) / length
    return rate * (floor + (1 - floor) * (1 + math.cos(math.pi * u)) / 2)


def clip_by_global_norm(gradients, limit, epsilon=0.0):
    """(gradients, norm): g limit / (norm + epsilon) if that makes g smaller, else g; and the norm sqrt(sum g^2) of g.

    >>> clip_by_global_norm([3.0, 4.0], 2.5)
    ([1.5, 2.0], 5.0)
    """
    norm = math.sqrt(sum(float(g) * float(g) for g in gradients))
    factor = limit / (norm + epsilon) if norm + epsilon > limit else 1.0
    return [float(g) * factor for g in gradients], norm
