"""RegularGPT in one file: forward, backward, Adam, a task, a printed curve.  Needs NumPy.

    python tutorials/single_file/regulargpt.py

RegularGPT (Chi et al. 2023) is one block applied level after level.  At level l a position joins itself with those
C^l, ..., (C - 1) C^l earlier; after ceil(log_C T) levels the last position has seen all T symbols, so a longer word is
more levels of the same weights.  What the last position needs is a tree: each level reads groups of C positions,
padded at the front by a learned vector, and hands on the last of each group.  Post-LN, as in the authors' code.

The task is PARITY: is the number of ones even?  Trained on words of 1 to 40 symbols, asked about up to 5,000.

Every forward line has a number, and the backward answers it with the same number, from the last line to the first.
dx is the gradient of the loss with respect to x.  One letter is one axis everywhere: b word, g group, c place in a
group, h head, d feature of a head, m width of the model, f hidden width, v symbol or class.
"""

import os
import time
from math import prod

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")              # products this small are fastest on one thread
import numpy as np  # noqa: E402

CHUNK, LONGEST = 2, 40                              # positions that a level joins; symbols of the longest trained word
WIDTH, HEADS, HEAD, HIDDEN = 64, 8, 8, 256
STEPS, BATCH, RATE = 600, 128, 1e-3


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
    m, head = WIDTH, (WIDTH, HEADS, HEAD)
    return {"embed.table": (2, m), "attention.wq": head, "attention.wk": head, "attention.wv": head,
            "attention.offset_bias": (HEADS, CHUNK), "attention.pad": (m,), "attention.wo": (HEADS, HEAD, m),
            "norm1.scale": (m,), "norm1.shift": (m,),
            "feed_forward.w1": (m, HIDDEN), "feed_forward.b1": (HIDDEN,),
            "feed_forward.w2": (HIDDEN, m), "feed_forward.b2": (m,),
            "norm2.scale": (m,), "norm2.shift": (m,), "readout.w": (m, 2), "readout.b": (2,)}


def initial(rng):
    """Weights of deviation 0.9/sqrt(number of summed inputs), tables and vectors 0.02, scales 1, all else 0."""
    p = {}
    for name, shape in shapes().items():
        fan_in = shape[0] * shape[1] if name.endswith("wo") else shape[0]
        deviation = 0.9 / fan_in**0.5 if ".w" in name else 0.02 * name.endswith(("table", "offset_bias", "pad"))
        p[name] = float(name.endswith("scale")) + deviation * rng.standard_normal(shape)
    return {name: value.astype(np.float32) for name, value in p.items()}


# ------------------------------------------------------------------------------------------------- layers, in pairs


def layer_norm(x, scale, shift):
    r = 1 / np.sqrt(((x - x.mean(-1, keepdims=True))**2).mean(-1, keepdims=True) + 1e-5)        # (1)
    n = (x - x.mean(-1, keepdims=True)) * r                                                     # (2)
    return n * scale + shift, (n, r, scale)                                                     # (3)


def layer_norm_backward(saved, dy):
    n, r, scale = saved
    dscale, dshift, dn = (dy * n).sum((0, 1)), dy.sum((0, 1)), dy * scale                       # (3)
    dx = r * (dn - dn.mean(-1, keepdims=True) - n * (dn * n).mean(-1, keepdims=True))           # (2), (1)
    return dx, dscale, dshift


def attention(x, wq, wk, wv, offset_bias, pad, wo):
    pads = -x.shape[1] % CHUNK
    front = np.broadcast_to(pad, (len(x), pads, pad.size))
    group = np.concatenate([front, x], 1).reshape(len(x), -1, CHUNK, pad.size)                  # (1)
    q = contract("bgm,mhd->bghd", group[:, :, -1], wq)                                          # (2) last of each group
    k, v = (contract("bgcm,mhd->bgchd", group, w) for w in (wk, wv))                            # (2)
    s = contract("bghd,bgchd->bghc", q, k) / q.shape[-1]**0.5 + offset_bias[:, ::-1]       # (3) offset 0 stands last
    a = np.exp(s - s.max(-1, keepdims=True))                                                    # (4)
    a /= a.sum(-1, keepdims=True)                                                               # (4)
    o = contract("bghc,bgchd->bghd", a, v)                                                      # (5)
    y = contract("bghd,hdm->bgm", o, wo) + group[:, :, -1]                                      # (6) and the residual
    return y, (pads, group, wq, wk, wv, wo, q, k, v, a, o)


def attention_backward(saved, dy):
    pads, group, wq, wk, wv, wo, q, k, v, a, o = saved
    do, dwo = contract("bgm,hdm->bghd", dy, wo), contract("bghd,bgm->hdm", o, dy)               # (6)
    da, dv = contract("bghd,bgchd->bghc", do, v), contract("bghc,bghd->bgchd", a, do)           # (5)
    ds = a * (da - (a * da).sum(-1, keepdims=True))                                             # (4)
    doffset_bias = ds.sum((0, 1))[:, ::-1]                                                      # (3)
    dq, dk = contract("bghc,bgchd->bghd", ds, k), contract("bghc,bghd->bgchd", ds, q)           # (3)
    dq, dk = dq / q.shape[-1]**0.5, dk / q.shape[-1]**0.5                                       # (3)
    dgroup = contract("bgchd,mhd->bgcm", dk, wk) + contract("bgchd,mhd->bgcm", dv, wv)          # (2)
    dgroup[:, :, -1] += contract("bghd,mhd->bgm", dq, wq) + dy                                  # (2), (6) three uses
    dwq = contract("bgm,bghd->mhd", group[:, :, -1], dq)                                        # (2)
    dwk, dwv = (contract("bgcm,bgchd->mhd", group, dz) for dz in (dk, dv))                      # (2)
    dx = dgroup.reshape(len(dy), -1, dy.shape[-1])                                              # (1)
    return dx[:, pads:], dwq, dwk, dwv, doffset_bias, dx[:, :pads].sum((0, 1)), dwo             # (1)


def feed_forward(x, w1, b1, w2, b2):
    u = x @ w1 + b1                                                                             # (1)
    r = np.maximum(u, 0)                                                                        # (2)
    return r @ w2 + b2 + x, (x, w1, w2, u, r)                                                   # (3) and the residual


def feed_forward_backward(saved, dy):
    x, w1, w2, u, r = saved
    dr, dw2, db2 = dy @ w2.T, contract("bgf,bgm->fm", r, dy), dy.sum((0, 1))                    # (3)
    du = dr * (u > 0)                                                                           # (2)
    return du @ w1.T + dy, contract("bgm,bgf->mf", x, du), du.sum((0, 1)), dw2, db2             # (1)


SUB_LAYERS = (("attention", attention, attention_backward, ("wq", "wk", "wv", "offset_bias", "pad", "wo")),
              ("norm1", layer_norm, layer_norm_backward, ("scale", "shift")),
              ("feed_forward", feed_forward, feed_forward_backward, ("w1", "b1", "w2", "b2")),
              ("norm2", layer_norm, layer_norm_backward, ("scale", "shift")))


# --------------------------------------------------------------------------------------------------- model and loss


def forward(p, words):
    """y (b, v), the scores of even and odd, and what the backward needs."""
    x, tape = p["embed.table"][words] * WIDTH**0.5, []                                          # (1)
    while x.shape[1] > 1 or not tape:                                                           # one level each
        for name, layer, _, arrays in SUB_LAYERS:
            x, saved = layer(x, *(p[f"{name}.{a}"] for a in arrays))                            # (2)
            tape.append(saved)
    return x[:, 0] @ p["readout.w"] + p["readout.b"], (x, tape)                                 # (3)


def loss_and_gradients(p, words, target):
    """Mean cross-entropy in nats, {name: gradient}, and the scores y (b, v)."""
    y, (x, tape) = forward(p, words)
    probability = np.exp(y - y.max(-1, keepdims=True))
    probability /= probability.sum(-1, keepdims=True)
    rows = np.arange(len(y))
    loss = -np.log(probability[rows, target]).mean()                                            # (4)
    dy = (probability - np.eye(2, dtype=y.dtype)[target]) / len(y)                              # (4)
    g = {name: np.zeros_like(value) for name, value in p.items()}
    g["readout.w"], g["readout.b"] = x[:, 0].T @ dy, dy.sum(0)                                  # (3)
    dx = (dy @ p["readout.w"].T)[:, None]                                                       # (3)
    while tape:
        for name, _, backward, arrays in reversed(SUB_LAYERS):
            dx, *own = backward(tape.pop(), dx)                                                 # (2)
            for a, value in zip(arrays, own, strict=True):
                g[f"{name}.{a}"] += value                                                       # all levels share them
    np.add.at(g["embed.table"], words, dx * WIDTH**0.5)                                         # (1)
    return loss, g, y


def adam(p, g, first, second, step, rate):
    """p <- p - rate m / (sqrt(v) + 1e-8), m and v the bias-corrected running means of g and of its square."""
    for name in p:
        first[name] += 0.1 * (g[name] - first[name])
        second[name] += 0.001 * (g[name]**2 - second[name])
        m, v = first[name] / (1 - 0.9**step), second[name] / (1 - 0.999**step)
        p[name] -= rate * m / (np.sqrt(v) + 1e-8)


# -------------------------------------------------------------------------------------------------------------- task


def draw(rng, size, length):
    """Words (b, t) of zeros and ones, and 1 where the number of ones is odd."""
    words = rng.integers(2, size=(size, length))
    return words, words.sum(1) % 2


def main(steps=STEPS, seed=0):
    """Trains, prints the loss and the accuracy at 40, 500 and at last 5,000 symbols, and returns that at 500."""
    rng = np.random.default_rng(seed)
    p, start = initial(rng), time.perf_counter()
    first, second = ({name: np.zeros_like(value) for name, value in p.items()} for _ in range(2))
    print(f"PARITY: {sum(x.size for x in p.values()):,} parameters, trained on 1 to {LONGEST} symbols, chance 0.5")
    for step in range(1, steps + 1):
        loss, g, _ = loss_and_gradients(p, *draw(rng, BATCH, rng.integers(1, LONGEST + 1)))
        norm = sum(float((x**2).sum()) for x in g.values())**0.5
        adam(p, {name: x / max(1, norm) for name, x in g.items()}, first, second, step, RATE)       # clipped to norm 1
        if step % max(1, steps // 12) == 0:
            asked = {n: draw(np.random.default_rng(n), size, n) for n, size in ((40, 64), (500, 64), (5_000, 8))
                     if n <= 500 or step == steps}
            right = {n: (forward(p, words)[0].argmax(-1) == odd).mean() for n, (words, odd) in asked.items()}
            print(f"step {step:5d}  loss {loss:.3f} nats  right at " + ", ".join(
                f"{n}: {x:.2f}" for n, x in right.items()), "#" * round(40 * max(0, 2 * right[500] - 1)))
    print(f"{time.perf_counter() - start:.0f} seconds")
    return right[500]


if __name__ == "__main__":
    main()
