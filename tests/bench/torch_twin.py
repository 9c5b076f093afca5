"""PyTorch eager twins of the training step: the same mathematics in the forms that eager code can take.

`einsum`  as the authors write it: one einsum per projection and per contraction.
`matmul`  one product for q, k and v; contractions as bmm where that is fastest, else multiply and sum.
`conv`    as `matmul`, with the three wide linear maps as 1x1 convolutions: on CPUs for which MKL picks slow kernels
          oneDNN, which runs convolutions, is up to twice as fast.

Scaled-dot-product attention cannot express a keep matrix that is shared over batch and heads and applied after the
normaliser, so it has no place here; torch.compile is not eager.
"""
import torch
from torch.nn import functional as F

from . import problem as P

FORMS = ("einsum", "matmul", "conv")


def linear(x, w, b):
    """(b,t,i) (i,o) -> (b,t,o)"""
    return torch.addmm(b, x.reshape(-1, x.shape[-1]), w).view(*x.shape[:-1], -1)


def conv(x, w, b):
    """The same map as a 1x1 convolution over an image of shape (b,i,1,t) whose channels lie innermost."""
    if x.shape[1] == 1:
        return linear(x, w, b)                    # a single position does not repay the set-up
    return F.conv2d(x.transpose(1, 2).unsqueeze(2), w.t()[..., None, None], b).squeeze(2).transpose(1, 2)


def attend_einsum(variant, q, k, v, bias, dropout):
    """q (b,q,h,d), k (b,k,h,d), v (b,k,h,e), bias (h,q,k), dropout (q,k) -> (b,q,h,e), by the letters."""
    s = torch.einsum("bqhd,bkhd->bhqk", q * q.shape[-1] ** -0.5, k) + bias
    if variant == "softmax":
        s = torch.softmax(s, -1)
    elif variant == "hyla":
        s = s * torch.rsqrt(s.square().mean(1, keepdim=True) + P.EPSILON)
    a = s * dropout
    if variant == "hyla":
        z = F.relu(torch.einsum("bhqk,bkhe->bqke", a, v))
        return torch.einsum("bhqk,bqke->bqhe", a, z)
    return torch.einsum("bhqk,bkhe->bqhe", a, v)


def attend(variant, q, k, v, bias, dropout):
    """q (b,h,d,q), k (b,h,d,k), v (b,h,e,k) -> (b,h,e,q): positions innermost, so that no product needs a copy.

    HYLA: with the code a = s rho (rho > 0, one per pair of positions), relu(sum_h a_h v_h) = rho relu(sum_h s_h v_h):
    both uses of rho and of the dropout act on z, and the code itself is never written.
    """
    s = torch.matmul((q * q.shape[2] ** -0.5).transpose(-1, -2), k) + bias
    if variant == "hyla":
        weight = dropout * dropout / (s.square().mean(1) + P.EPSILON)
        z = [F.relu((s * v_e.unsqueeze(-2)).sum(1)) * weight for v_e in v.unbind(2)]
        return torch.stack([(s * z_e.unsqueeze(1)).sum(-1) for z_e in z], 2)
    a = (torch.softmax(s, -1) if variant == "softmax" else s) * dropout
    return torch.matmul(v, a.transpose(-1, -2))


class Twin:
    """`step(batch)` -> loss, and after the first step `gradients()`; `parameters` is {dotted name: NumPy array}."""

    def __init__(self, parameters, variant, read, form):
        self.variant, self.read, self.form = variant, read, form
        self.wide = conv if form == "conv" else linear
        self.p = {name: torch.tensor(array, requires_grad=True) for name, array in parameters.items()}
        self.bucket = torch.from_numpy(P.buckets())
        decayed = [x for x in self.p.values() if x.ndim != 1]
        others = [x for x in self.p.values() if x.ndim == 1]
        self.adamw = torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0.0}], lr=P.RATE,
                                       betas=P.BETAS, eps=P.ADAM_EPSILON, weight_decay=P.DECAY, fused=True)
        self.count = 0

    def attention(self, p, x, dropout, last):
        """Self-attention of (b,t,m); with `last` only for the last query."""
        bias, rows = p["position.table"][:, self.bucket[last]], x[:, last]
        dropout = dropout[last]
        w = [p[f"attention.w{i}"] for i in "qkv"]
        b = [p[f"attention.b{i}"] for i in "qkv"]
        if self.form == "einsum":
            q, k, v = (torch.einsum("btm,mhd->bthd", y, w_i) + b_i
                       for y, w_i, b_i in zip((rows, x, x), w, b, strict=True))
            y = attend_einsum(self.variant, q, k, v, bias, dropout)
            return torch.einsum("bqhe,hem->bqm", y, p["attention.wo"]) + p["attention.bo"]
        w, b = [i.flatten(1) for i in w], [i.flatten() for i in b]

        def heads(y):
            return y.transpose(1, 2).contiguous().view(len(x), -1, P.HEADS, P.HEAD_WIDTH, y.shape[1]).unbind(1)

        if rows.shape == x.shape:
            q, k, v = heads(self.wide(x, torch.cat(w, 1), torch.cat(b)))
        else:
            (q,), (k, v) = heads(linear(rows, w[0], b[0])), heads(self.wide(x, torch.cat(w[1:], 1), torch.cat(b[1:])))
        y = attend(self.variant, q, k, v, bias, dropout)
        return linear(y.flatten(1, 2).transpose(1, 2), p["attention.wo"].flatten(0, 1), p["attention.bo"])

    def loss(self, tokens, target, dropout):
        p, every = self.p, slice(None)

        def norm(name, x):
            return F.layer_norm(x, x.shape[-1:], p[name + ".scale"], p[name + ".shift"], P.EPSILON)

        x = linear(tokens, p["embed.w"], p["embed.b"])
        for layer in range(P.LAYERS):
            name = f"blocks.{layer}."
            last = slice(-1, None) if self.read and layer == P.LAYERS - 1 else every
            block = {key.removeprefix(name): value for key, value in p.items() if key.startswith(name)}
            x = x[:, last] + self.attention(block, norm(name + "norm1", x), dropout[layer], last)
            y = self.wide(norm(name + "norm2", x), block["feed_forward.w1"], block["feed_forward.b1"])
            x = x + self.wide(F.gelu(y, approximate="tanh"), block["feed_forward.w2"], block["feed_forward.b2"])
        y = linear(norm("norm", x), p["readout.w"], p["readout.b"])
        return F.mse_loss(y[:, -1, 0], target)

    def step(self, batch):
        loss = self.loss(*(torch.from_numpy(x) for x in batch))
        self.adamw.zero_grad(set_to_none=True)
        loss.backward()
        for group in self.adamw.param_groups:
            group["lr"] = P.learning_rate(self.count)
        self.adamw.step()
        self.count += 1
        return loss.detach()

    def gradients(self):
        return {name: self.adamw.state[x]["exp_avg"].numpy() / (1 - P.BETAS[0]) for name, x in self.p.items()}
