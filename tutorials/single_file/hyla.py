"""A transformer with HYLA in one file: forward, backward, Adam, a task, a printed curve.  Needs NumPy.

    python tutorials/single_file/hyla.py

HYLA is hypernetwork linear attention (Schug et al. 2025, equation 6): the scores of one query and key, normalised over
the heads, are a code that is used twice, for both layers of a value network with a relu between them.

The task is fuzzy logic.  A function of three numbers is the larger (or) of two terms, a term the least (and) of the
three numbers, each as it is or negated, 1 - x.  19 tokens show inputs and answer of an unknown function, the last one
shows inputs with 0 for the answer.  Six of the 15 pairs of terms are never trained on; the curve is about those.

Every forward line has a number, and the backward answers it with the same number, from the last line to the first.
dx is the gradient of the loss with respect to x.  One letter is one axis everywhere: b sequence, t token, q query,
k key, h head, d and e feature of a head, m width of the model, f hidden width, i number in a token.
"""

import os
import time
from math import prod

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")              # products this small are fastest on one thread
import numpy as np  # noqa: E402

VARIABLES, LENGTH = 3, 20                           # numbers that a function has, tokens with the question
WIDTH, HEADS, HEAD, HIDDEN, BLOCKS = 64, 8, 2, 128, 2
STEPS, BATCH, RATE = 800, 64, 5e-3


def contract(spec, a, b):
    """The sum of a times b over letters missing on the right: a matrix product for each value of those in all three."""
    of_a, of_b, result = spec.replace("->", ",").split(",")
    batch, inner = [x for x in result if x in of_a and x in of_b], [x for x in of_a if x not in result]
    left, right = ([x for x in result if x not in other] for other in (of_b, of_a))
    size = dict(zip(of_a + of_b, a.shape + b.shape, strict=True))
    n, head, made = prod(size[x] for x in inner), [size[x] for x in batch], batch + left + right
    a = a.transpose([of_a.index(x) for x in batch + left + inner]).reshape(*head, -1, n)
    b = b.transpose([of_b.index(x) for x in batch + inner + right]).reshape(*head, n, -1)
    return (a @ b).reshape([size[x] for x in made]).transpose([made.index(x) for x in result])


def shapes():
    """The name of every array, and its shape."""
    m = WIDTH
    found = {"embed.w": (VARIABLES + 1, m), "embed.b": (m,)}
    for n in range(BLOCKS):
        own = {"norm1.scale": (m,), "norm1.shift": (m,),
               "attention.wq": (m, HEADS, HEAD), "attention.wk": (m, HEADS, HEAD),
               "attention.wv": (m, HEADS, HEAD), "attention.wo": (HEADS, HEAD, m),
               "norm2.scale": (m,), "norm2.shift": (m,),
               "feed_forward.w1": (m, HIDDEN), "feed_forward.b1": (HIDDEN,),
               "feed_forward.w2": (HIDDEN, m), "feed_forward.b2": (m,)}
        found |= {f"blocks.{n}.{name}": shape for name, shape in own.items()}
    return found | {"norm.scale": (m,), "norm.shift": (m,), "readout.w": (m, 1), "readout.b": (1,)}


def initial(rng):
    """Weights of deviation 1/sqrt(number of summed inputs), scales 1, all else 0."""
    p = {}
    for name, shape in shapes().items():
        fan_in = shape[0] * shape[1] if name.endswith("wo") else shape[0]
        weight = rng.standard_normal(shape) / fan_in**0.5
        p[name] = weight if ".w" in name else np.full(shape, float(name.endswith("scale")))
    return {name: value.astype(np.float32) for name, value in p.items()}


def layer_norm(x, scale, shift):
    r = 1 / np.sqrt(((x - x.mean(-1, keepdims=True))**2).mean(-1, keepdims=True) + 1e-6)        # (1)
    n = (x - x.mean(-1, keepdims=True)) * r                                                     # (2)
    return n * scale + shift, (n, r, scale)                                                     # (3)


def layer_norm_backward(saved, dy):
    n, r, scale = saved
    dscale, dshift, dn = (dy * n).sum((0, 1)), dy.sum((0, 1)), dy * scale                       # (3)
    dx = r * (dn - dn.mean(-1, keepdims=True) - n * (dn * n).mean(-1, keepdims=True))           # (2), (1)
    return dx, dscale, dshift


def attention(x, wq, wk, wv, wo):
    q, k, v = (contract("btm,mhd->bthd", x, w) for w in (wq, wk, wv))                           # (1)
    s = contract("bqhd,bkhd->bhqk", q, k) / q.shape[-1]**0.5                                    # (2)
    rho = 1 / np.sqrt((s * s).mean(1, keepdims=True) + 1e-6)                                    # (3) RMSHead, over h
    a = rho * s                                                                                 # (3)
    z = contract("bhqk,bkhe->bqke", a, v)                                                    # (4) first use of the code
    r = np.maximum(z, 0)                                                                        # (5)
    o = contract("bhqk,bqke->bqhe", a, r)                                                       # (6) and its second
    return contract("bqhe,hem->bqm", o, wo), (x, wq, wk, wv, wo, q, k, v, rho, a, z, r, o)      # (7)


def attention_backward(saved, dy):
    x, wq, wk, wv, wo, q, k, v, rho, a, z, r, o = saved
    do, dwo = contract("bqm,hem->bqhe", dy, wo), contract("bqhe,bqm->hem", o, dy)               # (7)
    da, dr = contract("bqhe,bqke->bhqk", do, r), contract("bhqk,bqhe->bqke", a, do)             # (6)
    dz = dr * (z > 0)                                                                           # (5)
    da += contract("bqke,bkhe->bhqk", dz, v)                                                    # (4) two uses, a sum
    dv = contract("bhqk,bqke->bkhe", a, dz)                                                     # (4)
    ds = rho * (da - a * (a * da).mean(1, keepdims=True)) / q.shape[-1]**0.5                    # (3), root of (2)
    dq, dk = contract("bhqk,bkhd->bqhd", ds, k), contract("bhqk,bqhd->bkhd", ds, q)             # (2)
    dx = sum(contract("bthd,mhd->btm", dz, w) for dz, w in ((dq, wq), (dk, wk), (dv, wv)))      # (1)
    return dx, *(contract("btm,bthd->mhd", x, dz) for dz in (dq, dk, dv)), dwo                  # (1)


def feed_forward(x, w1, b1, w2, b2):
    u = x @ w1 + b1                                                                             # (1)
    r = np.maximum(u, 0)                                                                        # (2)
    return r @ w2 + b2, (x, w1, w2, u, r)                                                       # (3)


def feed_forward_backward(saved, dy):
    x, w1, w2, u, r = saved
    dr, dw2, db2 = dy @ w2.T, contract("btf,btm->fm", r, dy), dy.sum((0, 1))                    # (3)
    du = dr * (u > 0)                                                                           # (2)
    return du @ w1.T, contract("btm,btf->mf", x, du), du.sum((0, 1)), dw2, db2                  # (1)


SUB_LAYERS = (("norm1", "attention", attention, attention_backward, ("wq", "wk", "wv", "wo")),
              ("norm2", "feed_forward", feed_forward, feed_forward_backward, ("w1", "b1", "w2", "b2")))


# --------------------------------------------------------------------------------------------------- model and loss


def loss_and_gradients(p, tokens, target):
    """Mean square error of the answers, {name: gradient}, and the answers y (b)."""
    x, tape = tokens @ p["embed.w"] + p["embed.b"], []                                          # (1)
    for n in range(BLOCKS):
        for norm, name, forward, _, arrays in SUB_LAYERS:
            normed, of_norm = layer_norm(x, *(p[f"blocks.{n}.{norm}.{a}"] for a in ("scale", "shift")))
            y, of_layer = forward(normed, *(p[f"blocks.{n}.{name}.{a}"] for a in arrays))
            x = x + y                                                                           # (2)
            tape.append((of_norm, of_layer))
    last, of_norm = layer_norm(x[:, -1:], p["norm.scale"], p["norm.shift"])                     # (3)
    y = (last[:, 0] @ p["readout.w"] + p["readout.b"])[:, 0]                                    # (4)
    loss = ((y - target)**2).mean()                                                             # (5)

    dy = ((y - target) * 2 / len(y))[:, None]                                                   # (5)
    g = {"readout.w": last[:, 0].T @ dy, "readout.b": dy.sum(0)}                                # (4)
    dx = np.zeros_like(x)
    dlast, g["norm.scale"], g["norm.shift"] = layer_norm_backward(of_norm, (dy @ p["readout.w"].T)[:, None])    # (3)
    dx[:, -1:] = dlast
    for n in reversed(range(BLOCKS)):
        for norm, name, _, backward, arrays in reversed(SUB_LAYERS):
            of_norm, of_layer = tape.pop()
            dn, *own = backward(of_layer, dx)                                                   # (2)
            dn, *of_norm = layer_norm_backward(of_norm, dn)
            dx = dx + dn                                                                        # (2) x is used twice
            g |= {f"blocks.{n}.{name}.{a}": value for a, value in zip(arrays, own, strict=True)}
            g |= {f"blocks.{n}.{norm}.{a}": value for a, value in zip(("scale", "shift"), of_norm, strict=True)}
    g |= {"embed.w": contract("bti,btm->im", tokens, dx), "embed.b": dx.sum((0, 1))}            # (1)
    return loss, g, y


def adam(p, g, first, second, step, rate):
    """p <- p - rate m / (sqrt(v) + 1e-8), m and v the bias-corrected running means of g and of its square."""
    for name in p:
        first[name] += 0.1 * (g[name] - first[name])
        second[name] += 0.001 * (g[name]**2 - second[name])
        m, v = first[name] / (1 - 0.9**step), second[name] / (1 - 0.999**step)
        p[name] -= rate * m / (np.sqrt(v) + 1e-8)


PAIRS = np.random.default_rng(5).permutation([(i, j) for i in range(6) for j in range(i)])   # 6 of 8 terms, as H's code
TRAINED, HELD_OUT = np.split(PAIRS, [9])


def draw(rng, size, pairs=TRAINED):
    """tokens (b, t, i) with numbers from 0 to 1, and the answers (b)."""
    terms = pairs[rng.integers(len(pairs), size=size)]
    kept = (terms[:, :, None] >> np.arange(VARIABLES)) & 1                          # (b, term, variable)
    x = rng.random((size, LENGTH, VARIABLES))
    literals = np.where(kept[:, None], x[:, :, None], 1 - x[:, :, None])            # (b, t, term, variable)
    answer = literals.min(-1).max(-1)
    shown = np.where(np.arange(LENGTH) == LENGTH - 1, 0, answer)
    return np.concatenate([x, shown[..., None]], -1).astype(np.float32), answer[:, -1].astype(np.float32)


def main(steps=STEPS, seed=0):
    """Trains, prints loss and R2 on pairs of terms never trained on, and returns the last R2."""
    rng = np.random.default_rng(seed)
    p, start = initial(rng), time.perf_counter()
    first, second = ({name: np.zeros_like(value) for name, value in p.items()} for _ in range(2))
    print(f"fuzzy logic: {sum(x.size for x in p.values()):,} parameters, {len(TRAINED)} pairs of terms trained, "
          f"{len(HELD_OUT)} held out")
    for step in range(1, steps + 1):
        loss, g, _ = loss_and_gradients(p, *draw(rng, BATCH))
        norm = sum(float((x**2).sum()) for x in g.values())**0.5
        g = {name: x / max(1, norm) for name, x in g.items()}                       # clipped to norm 1
        adam(p, g, first, second, step, RATE * min(1, step / 50, 1.1 - step / steps))
        if step % max(1, steps // 12) == 0 or step == steps:
            tokens, target = draw(rng, 500, HELD_OUT)
            r2 = 1 - loss_and_gradients(p, tokens, target)[0] / target.var()
            print(f"step {step:5d}  loss {loss:.4f}  R2 held out {r2:5.2f}  {'#' * round(40 * max(0, r2))}")
    print(f"{time.perf_counter() - start:.0f} seconds")
    return r2


if __name__ == "__main__":
    main()
