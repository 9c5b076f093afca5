"""The theorems of attention as a hypernetwork."""

import numpy as np

from ... import ops
from ...attention import VARIANTS, as_hypernetwork, masks, variant
from ...attention.ablations import ablation, ablation_backward
from ...attention.layer import MultiHead
from ...contract import contract
from ..naive import as_hypernetwork as loops
from ..naive.linear_state import linear_state
from .statement import deviation, deviations, filled, largest, masked, sizes, theorem


def inputs(rng, *, heads=None, same=False):
    """q (b, q, h, d), k (b, k, h, d), v (b, k, h, e), standard normal; `same` makes as many queries as keys."""
    b, t, j, h, d, e = sizes(rng, 6)
    h, t = heads or h, j if same else t
    return rng.standard_normal((b, t, h, d)), rng.standard_normal((b, j, h, d)), rng.standard_normal((b, j, h, e))


def layer_of(rng, name, **options):
    """A MultiHead of random small sizes with random parameters, and an input x (b, t, m)."""
    b, t, m, h, d, e = sizes(rng, 6)
    layer = MultiHead(m, options.pop("heads", h), d, e, name, **options)
    return layer, filled(layer, rng), rng.standard_normal((b, t, m))


@theorem("heads concatenated = head by head = generated weights = value network, for softmax, linear and RMSHead "
         "codes; self- or cross-attention, without biases", "H, eq. (2) = (3) = (4) = (5)",
         over=(ops.softmax, lambda s: s, lambda s: ops.rms_head(s)[0]))
def multi_head_attention_is_a_hypernetwork(rng, normalise):
    q, k, v = inputs(rng)
    m = 5
    x, wv = rng.standard_normal((*k.shape[:2], m)), rng.standard_normal((m, k.shape[2], v.shape[3]))
    wo, code = rng.standard_normal((k.shape[2], v.shape[3], 4)), normalise(ops.scores(q, k))
    weights, _ = as_hypernetwork.generate(code, wv, wo)
    ours = [as_hypernetwork.eq_2(code, x, wv, wo), as_hypernetwork.eq_3(code, x, wv, wo),
            as_hypernetwork.value_network(weights, x)[0]]
    return max(deviations(ours, [eq(code, x, wv, wo)] * 3) for eq in (loops.eq_2, loops.eq_3, loops.eq_4, loops.eq_5))


@theorem("the MultiHead layer computes the same as its generated value networks, for softmax, linear and RMSHead "
         "codes; without biases", "H, eq. (2)-(5)", over=("softmax", "linear", "linear_rms_head"))
def the_layer_is_its_value_network(rng, name):
    layer, p, x = layer_of(rng, name, biases=False)
    y, saved = layer.forward(p, x)
    weights, _ = as_hypernetwork.generate(saved.attention.code, p.wv, p.wo)
    return deviation(y, as_hypernetwork.value_network(weights, x)[0])


@theorem("eq. (6) equals algorithm 2: without biases and at epsilon = 0, where RMSHead absorbs the missing "
         "1/sqrt(d); with epsilon, algorithm 2 needs epsilon d", "H, eq. (6), algorithm 2", over=(0.0, 1e-2))
def hyla_equals_its_pseudocode(rng, epsilon):
    layer, p, x = layer_of(rng, "hyla", biases=False)
    q, k, v = (contract("btm,mhd->bthd", x, w) for w in (p.wq, p.wk, p.wv))
    o, saved = variant("hyla").forward(q, k, v, epsilon=epsilon)
    y = contract("bqhe,hem->bqm", o, p.wo)
    code = saved.code
    literally = loops.pseudocode_hyla(x, p.wq, p.wk, p.wv, p.wo, epsilon=epsilon * layer.head_width)
    return max(deviation(y, literally), deviation(y, loops.eq_6(code, x, p.wv, p.wo)),
               deviation(y, as_hypernetwork.nonlinear_value_network(code, x, p.wv, p.wo)[0]))


@theorem("the three knobs set to (softmax, 1, identity), (none, 1, identity) and (rms_head, 2, relu) are the pages"
         " softmax, linear and hyla, forward and backward, with bias, keep and dropout",
         "H, table A1, rows 1-3", over=("softmax", "linear", "hyla"))
def knobs_contain_the_pages(rng, name):
    q, k, v = inputs(rng)
    options, row = masked(rng, q, k), VARIANTS[name]
    o, saved = row.forward(q, k, v, **options)
    o2, saved2 = ablation(q, k, v, knobs=row.knobs, **options)
    do = rng.standard_normal(o.shape)
    return max(deviation(o2, o), deviations(ablation_backward(saved2, do)[:4], row.backward(saved, do)))


@theorem("HYLA without its nonlinearity composes two linear maps generated from one code: y_q = sum_k W'_qk W_qk "
         "x_k; without biases", "H, eq. (7) with phi = identity")
def hyla_without_nonlinearity_is_two_linear_maps(rng):
    layer, p, x = layer_of(rng, "hyla_no_nonlinearity", biases=False)
    y, saved = layer.forward(p, x)
    code = saved.attention.code
    inner = contract("bhqk,ihe->bqkie", code, p.wv)
    outer = contract("bhqk,hem->bqkem", code, p.wo)
    return deviation(y, as_hypernetwork.value_network(contract("bqkie,bqkem->bqkim", inner, outer), x)[0])


@theorem("linear attention is a fast-weight programmer: o_q = q F / sqrt(d), F = sum_k k v^T; without positional "
         "bias", "H, section 2.1; Schlag et al. 2021")
def linear_attention_is_a_fast_weight_programmer(rng):
    q, k, v = inputs(rng)
    fast = contract("bkhd,bkhe->bhde", k, v)
    return deviation(VARIANTS["linear"].forward(q, k, v)[0], contract("bqhd,bhde->bqhe", q, fast) * q.shape[-1] ** -0.5)


@theorem("causal linear attention is the recurrence F_t = F_{t-1} + k_t v_t^T, o_t = q_t F_t / sqrt(d); without "
         "positional bias", "Katharopoulos et al. 2020; Schlag et al. 2021")
def causal_linear_attention_is_a_recurrence(rng):
    q, k, v = inputs(rng, same=True)
    return deviation(VARIANTS["linear"].forward(q, k, v, keep=masks.causal(q.shape[1]))[0], linear_state(q, k, v)[0])


@theorem("one head, linear attention: every generated W_qk is a multiple of the one matrix W^out W^value",
         "H, section 4.4, eq. (4) with H = 1")
def one_linear_head_only_rescales_one_map(rng):
    layer, p, x = layer_of(rng, "linear", heads=1)
    code = layer.forward(p, x)[1].attention.code
    weights, _ = as_hypernetwork.generate(code, p.wv, p.wo)
    return deviation(weights, code[:, 0, :, :, None, None] * (p.wv[:, 0] @ p.wo[0]))


@theorem("one head, RMSHead: the code s / sqrt(s^2 + epsilon) is +1 or -1 up to epsilon / (2 s^2)",
         "H, section 2.2, H = 1", 1e-14)
def one_rms_head_is_a_sign(rng):
    q, k, v = inputs(rng, heads=1)
    s = ops.scores(q, k)
    code = VARIANTS["hyla"].forward(q, k, v)[1].code
    far = np.maximum(np.abs(code - np.sign(s)) - 1e-6 / (2 * s * s), 0)
    return largest(far, code - s / np.sqrt(s * s + 1e-6))
