"""JAX twins of the training step: one `jax.jit` over forward, backward and AdamW.

`einsum`  by the letters of the authors' code; for softmax and linear attention also the fastest form that was found.
`sums`    HYLA with multiplications and sums that XLA fuses.
"""
import jax
import jax.numpy as jnp

from . import problem as P

FORMS = {"softmax": ("einsum",), "linear": ("einsum",), "hyla": ("einsum", "sums")}


def hyla_sums(s, v, dropout):
    """s (b,h,q,k), v (b,k,h,e) -> (b,q,h,e) in sums that XLA fuses; as in PyTorch's twin, the code is never written."""
    weight = dropout * dropout / (jnp.square(s).mean(1) + P.EPSILON)
    v = v.transpose(3, 0, 2, 1)[..., None, :]                                               # e b h 1 k
    z = [jax.nn.relu((s * v_e).sum(1)) * weight for v_e in v]
    return jnp.stack([(s * z_e[:, None]).sum(-1).transpose(0, 2, 1) for z_e in z], -1)


def attention(variant, form, p, x, rows, bias, dropout):
    """Self-attention of (b,t,m) at the query positions `rows` (b,q,m); bias (h,q,k), dropout (q,k)."""
    def out(y):
        return jnp.einsum("bqhe,hem->bqm", y, p["attention.wo"]) + p["attention.bo"]

    q, k, v = (jnp.einsum("btm,mhd->bthd", y, p[f"attention.w{i}"]) + p[f"attention.b{i}"]
               for i, y in (("q", rows), ("k", x), ("v", x)))
    s = jnp.einsum("bqhd,bkhd->bhqk", q * P.HEAD_WIDTH ** -0.5, k) + bias
    if form == "sums":
        return out(hyla_sums(s, v, dropout))
    if variant == "softmax":
        s = jax.nn.softmax(s, -1)
    elif variant == "hyla":
        s = s * jax.lax.rsqrt(jnp.square(s).mean(1, keepdims=True) + P.EPSILON)
    a = s * dropout
    if variant == "hyla":
        z = jax.nn.relu(jnp.einsum("bhqk,bkhe->bqke", a, v))
        return out(jnp.einsum("bhqk,bqke->bqhe", a, z))
    return out(jnp.einsum("bhqk,bkhe->bqhe", a, v))


def norm(x, scale, shift):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + P.EPSILON) * scale + shift


def loss(variant, form, read, p, tokens, target, dropout):
    bucket = P.buckets()
    x = tokens @ p["embed.w"] + p["embed.b"]
    for layer in range(P.LAYERS):
        name = f"blocks.{layer}."
        block = {key.removeprefix(name): value for key, value in p.items() if key.startswith(name)}
        last = slice(-1, None) if read and layer == P.LAYERS - 1 else slice(None)
        y = norm(x, block["norm1.scale"], block["norm1.shift"])
        x = x[:, last] + attention(variant, form, block, y, y[:, last], block["position.table"][:, bucket[last]],
                                   dropout[layer, last])
        y = norm(x, block["norm2.scale"], block["norm2.shift"])
        y = jax.nn.gelu(y @ block["feed_forward.w1"] + block["feed_forward.b1"], approximate=True)
        x = x + y @ block["feed_forward.w2"] + block["feed_forward.b2"]
    y = norm(x, p["norm.scale"], p["norm.shift"]) @ p["readout.w"] + p["readout.b"]
    return jnp.square(y[:, -1, 0] - target).mean()


def update(p, g, m, v, count, rate):
    """AdamW on one array: moments corrected with the step counted from 1, decay unless one-dimensional."""
    (b1, b2), t = P.BETAS, count + 1
    m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
    move = m / (1 - b1 ** t) / (jnp.sqrt(v / (1 - b2 ** t)) + P.ADAM_EPSILON)
    return p - rate * (move + (P.DECAY * p if p.ndim != 1 else 0)), m, v


class Twin:
    """The same use as of the PyTorch twins; parameters and moments are donated, to be updated in place."""

    def __init__(self, parameters, variant, read, form):
        p = {name: jnp.array(x) for name, x in parameters.items()}
        self.state, self.count = (p, *({name: jnp.zeros_like(x) for name, x in p.items()} for _ in range(2))), 0

        def step(state, count, rate, *batch):
            value, g = jax.value_and_grad(lambda p: loss(variant, form, read, p, *batch))(state[0])
            new = {name: update(*(x[name] for x in (state[0], g, *state[1:])), count, rate) for name in g}
            return tuple({name: x[i] for name, x in new.items()} for i in range(3)), value

        self.jitted = jax.jit(step, donate_argnums=0)

    def step(self, batch):
        self.state, value = self.jitted(self.state, float(self.count), P.learning_rate(self.count), *batch)
        self.count += 1
        return jax.block_until_ready((value, self.state))[0]

    def gradients(self):
        return {name: jax.device_get(x) / (1 - P.BETAS[0]) for name, x in self.state[1].items()}
