"""A transformer with softmax attention in one file: forward, backward, Adam, a task, a printed curve.  Needs NumPy.

    python tutorials/single_file/softmax.py

The task is recall.  Each token is a pair (key, value), two symbols; the last token is one of the keys with a blank
for its value, and the answer is the value that stood beside that key.  The keys of the pairs differ.

Every forward line has a number, and the backward answers it with the same number, from the last line to the first.
dx is the gradient of the loss with respect to x.  One letter is one axis everywhere: b sequence, t token, q query,
k key, h head, d feature of a head, m width of the model, f hidden width, i symbols of a token, v value.
"""

import os
import time
from math import prod

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")              # products this small are fastest on one thread
import numpy as np  # noqa: E402

KEYS, VALUES, PAIRS = 24, 8, 12                     # symbols for keys and for values, pairs in a sequence
WIDTH, HEADS, HEAD, HIDDEN, BLOCKS = 32, 4, 8, 64, 2
STEPS, BATCH, RATE = 300, 64, 3e-3


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


# ------------------------------------------------------------------------------------------------------- parameters


def shapes():
    """The name of every array, and its shape."""
    m = WIDTH
    found = {"embed.w": (KEYS + VALUES + 1, m), "embed.b": (m,)}
    for n in range(BLOCKS):
        own = {"norm1.scale": (m,), "norm1.shift": (m,),
               "attention.wq": (m, HEADS, HEAD), "attention.wk": (m, HEADS, HEAD),
               "attention.wv": (m, HEADS, HEAD), "attention.wo": (HEADS, HEAD, m),
               "norm2.scale": (m,), "norm2.shift": (m,),
               "feed_forward.w1": (m, HIDDEN), "feed_forward.b1": (HIDDEN,),
               "feed_forward.w2": (HIDDEN, m), "feed_forward.b2": (m,)}
        found |= {f"blocks.{n}.{name}": shape for name, shape in own.items()}
    return found | {"norm.scale": (m,), "norm.shift": (m,), "readout.w": (m, VALUES), "readout.b": (VALUES,)}


def initial(rng):
    """Weights of deviation 1/sqrt(number of summed inputs), scales 1, all else 0."""
    p = {}
    for name, shape in shapes().items():
        fan_in = shape[0] * shape[1] if name.endswith("wo") else shape[0]
        weight = rng.standard_normal(shape) / fan_in**0.5
        p[name] = weight if ".w" in name else np.full(shape, float(name.endswith("scale")))
    return {name: value.astype(np.float32) for name, value in p.items()}


# ------------------------------------------------------------------------------------------------- layers, in pairs


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
    a = np.exp(s - s.max(-1, keepdims=True))                                                    # (3)
    a /= a.sum(-1, keepdims=True)                                                               # (3)
    o = contract("bhqk,bkhd->bqhd", a, v)                                                       # (4)
    return contract("bqhd,hdm->bqm", o, wo), (x, wq, wk, wv, wo, q, k, v, a, o)                 # (5)


def attention_backward(saved, dy):
    x, wq, wk, wv, wo, q, k, v, a, o = saved
    do, dwo = contract("bqm,hdm->bqhd", dy, wo), contract("bqhd,bqm->hdm", o, dy)               # (5)
    da, dv = contract("bqhd,bkhd->bhqk", do, v), contract("bhqk,bqhd->bkhd", a, do)             # (4)
    ds = a * (da - (a * da).sum(-1, keepdims=True)) / q.shape[-1]**0.5                          # (3), root of (2)
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
    """Mean cross-entropy of the answers in nats, {name: gradient}, and the scores y (b, v) of the last tokens."""
    x, tape = tokens @ p["embed.w"] + p["embed.b"], []                                          # (1)
    for n in range(BLOCKS):
        for norm, name, forward, _, arrays in SUB_LAYERS:
            normed, of_norm = layer_norm(x, *(p[f"blocks.{n}.{norm}.{a}"] for a in ("scale", "shift")))
            y, of_layer = forward(normed, *(p[f"blocks.{n}.{name}.{a}"] for a in arrays))
            x = x + y                                                                           # (2)
            tape.append((of_norm, of_layer))
    last, of_norm = layer_norm(x[:, -1:], p["norm.scale"], p["norm.shift"])                     # (3)
    y = last[:, 0] @ p["readout.w"] + p["readout.b"]                                            # (4)
    shifted = y - y.max(-1, keepdims=True)
    probability = np.exp(shifted) / np.exp(shifted).sum(-1, keepdims=True)
    rows = np.arange(len(y))
    loss = -np.log(probability[rows, target]).mean()                                            # (5)

    dy = probability                                                                            # (5)
    dy[rows, target] -= 1                                                                       # (5)
    dy /= len(y)                                                                                # (5)
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


# -------------------------------------------------------------------------------------------------------------- task


def draw(rng, size):
    """tokens (b, t, i) of zeros and ones, and the answers (b)."""
    keys = rng.permuted(np.broadcast_to(np.arange(KEYS), (size, KEYS)), axis=1)[:, :PAIRS]
    values, rows, asked = rng.integers(VALUES, size=(size, PAIRS)), np.arange(size), rng.integers(PAIRS, size=size)
    keys = np.concatenate([keys, keys[rows, asked][:, None]], axis=1)
    shown = np.concatenate([values, np.full((size, 1), VALUES)], axis=1)            # the blank is the last symbol
    tokens = np.concatenate([np.eye(KEYS)[keys], np.eye(VALUES + 1)[shown]], axis=-1)
    return tokens.astype(np.float32), values[rows, asked]


def main(steps=STEPS, seed=0):
    """Trains, prints loss and accuracy on sequences never seen, and returns the last accuracy."""
    rng = np.random.default_rng(seed)
    p, start = initial(rng), time.perf_counter()
    first, second = ({name: np.zeros_like(value) for name, value in p.items()} for _ in range(2))
    print(f"recall among {PAIRS} pairs: {sum(x.size for x in p.values()):,} parameters, chance {1 / VALUES:.3f}")
    for step in range(1, steps + 1):
        tokens, target = draw(rng, BATCH)
        loss, g, y = loss_and_gradients(p, tokens, target)
        adam(p, g, first, second, step, RATE * min(1, step / 20))
        if step % max(1, steps // 12) == 0:
            tokens, target = draw(rng, 500)
            loss, _, y = loss_and_gradients(p, tokens, target)
            right = (y.argmax(-1) == target).mean()
            print(f"step {step:5d}  loss {loss:.3f} nats  right {right:.3f}  {'#' * round(40 * right)}")
    print(f"{time.perf_counter() - start:.0f} seconds")
    return right


if __name__ == "__main__":
    main()
