"""The theorems of the mixture of experts."""

import numpy as np

from ... import ops, params
from ...layers.feed_forward import FeedForward
from ...layers.mixture_of_experts import MixtureOfExperts
from .statement import deviations, filled, passes, sizes, theorem


def layers(rng):
    """A mixture of random small sizes, a feed-forward layer like one expert, the mixture's parameters, x and dy."""
    b, t, m, f, n = sizes(rng, 5)
    mixture = MixtureOfExperts(m, f, n, int(rng.integers(1, n + 1)))
    x, dy = rng.standard_normal((2, b, t, m))
    return mixture, FeedForward(m, f), filled(mixture, rng), x, dy


def expert(plain, p, i):
    """Expert i's parameters as those of a feed-forward layer."""
    _, q = params.allocate(plain.parameters(), np.float64)
    for name, w in ("w1", p.w1[:, i]), ("b1", p.b1[i]), ("w2", p.w2[i]), ("b2", p.b2[i]):
        getattr(q, name)[...] = w
    return q


@theorem("equal experts are one feed-forward layer, whatever the gate and k: same output and dx, gradients that sum to "
         "the layer's, and none for the gate", "H, appendix A.1")
def equal_experts_are_one_layer(rng):
    mixture, plain, p, x, dy = layers(rng)
    for name in "w1", "b1", "w2", "b2":
        w = getattr(p, name)
        w[...] = w[:, :1] if name == "w1" else w[:1]
    q = expert(plain, p, 0)
    y, g, dx = passes(mixture, p, x, dy)
    y2, h, dx2 = passes(plain, q, x, dy)
    return deviations([y, dx, g.w1.sum(1), g.b1.sum(0), g.w2.sum(0), g.b2.sum(0), g.wg],
                      [y2, dx2, h.w1, h.b1, h.w2, h.b2, np.zeros_like(g.wg)])


@theorem("with k = the number of experts the mixture is the sum of the feed-forward layers, weighted by the softmax "
         "of the gate's logits", "H, appendix A.1")
def choosing_all_experts_is_a_weighted_sum(rng):
    mixture, plain, p, x, _ = layers(rng)
    mixture = MixtureOfExperts(mixture.width, mixture.hidden, mixture.experts, mixture.experts)
    gate = ops.softmax(x @ p.wg)
    each = [plain.forward(expert(plain, p, i), x)[0] * gate[..., i, None] for i in range(mixture.experts)]
    return deviations([mixture.forward(p, x)[0]], [sum(each)])
