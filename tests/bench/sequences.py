"""`python -m tests.bench.sequences [esbn | scan]`: a step of ESBN's identity rules, and of SCAN, beside PyTorch eager.

ESBN's twin encodes every picture of every trial, as the released code does (`each`), or every different picture once,
as ours does (`once`).  SCAN's draws dropout wherever ours does; q, k and v are one product, attention is matrix
products.  One process, one thread, taken in turns; medians of CPU time; below 1, ours is faster.
"""
import sys

import numpy as np
from threadpoolctl import threadpool_limits

from refattn.layers.positions import sinusoidal
from refattn.recipes import recipe
from refattn.xp import keep_freed_memory

from . import with_extra
from .contextual import interleaved, said
from .images import Ours


def tensors(torch, views, prefix=""):
    """{dotted name: tensor} of parameters by name."""
    found = {}
    for name, x in (views if hasattr(views, "__dict__") else [(str(i), x) for i, x in enumerate(views)]):
        if hasattr(x, "dtype"):
            found[prefix + name] = torch.from_numpy(np.array(x)).requires_grad_()
        else:
            found |= tensors(torch, x, f"{prefix}{name}.")
    return found


class Twin:
    """What both networks share: parameters that begin as ours, attention, a post-LN block, Adam."""

    def __init__(self, ours, dropout=0.0):
        import torch
        self.torch, self.f, self.recipe, self.dropout = torch, torch.nn.functional, ours.recipe.chosen, dropout
        self.p = tensors(torch, ours.p)
        self.optimiser = torch.optim.Adam(self.p.values(), lr=self.recipe.rate, foreach=True)
        self.table = torch.from_numpy(sinusoidal(64, self.recipe.width).astype(np.float32))

    def drop(self, x):
        return self.f.dropout(x, self.dropout) if self.dropout else x

    def maps(self, name, x, letters):
        """The maps of these letters in one product, a tensor (b, t, h, d) for each."""
        weights = [self.p[f"{name}.w{n}"] for n in letters]
        y = x @ self.torch.cat([w.flatten(1) for w in weights], 1)
        if f"{name}.bq" in self.p:
            y = y + self.torch.cat([self.p[f"{name}.b{n}"].flatten() for n in letters])
        parts = y.split([w[0].numel() for w in weights], -1)
        return [part.unflatten(-1, w.shape[1:]) for part, w in zip(parts, weights, strict=True)]

    def attend(self, name, x, context=None, hidden=None):
        torch, p, composed = self.torch, self.p, f"{name}.ws" in self.p
        if context is None:
            q, k, v = self.maps(name, x, "qkv")
        else:
            (q,), (k, v) = self.maps(name, x, "q"), self.maps(name, context, "kv")
        q, k = (z.transpose(1, 2) for z in (q, k))
        s = q @ k.mT * q.shape[-1] ** -0.5
        a = torch.softmax(s if hidden is None else s.masked_fill(hidden, float("-inf")), -1)
        if not composed:
            o = self.drop(a) @ v.transpose(1, 2)
        else:                                               # the selector is computed, as in the released code
            b, h, n, _ = a.shape
            ret = (a.reshape(b, h * n, -1) @ v.flatten(2)).view(b, h, n, *v.shape[2:])
            selector = (x @ p[f"{name}.ws"].flatten(1) + p[f"{name}.bs"].flatten()).unflatten(-1, (h, -1))
            selector = selector.transpose(1, 2)
            if f"{name}.wc" in p:
                same = selector @ p[f"{name}.wc"] + p[f"{name}.br"]
                l = ret @ p[f"{name}.wr"] + same[..., None]
            else:
                l = (ret @ (selector * selector.shape[-1] ** -0.5 @ p[f"{name}.wr"].t())[..., None])[..., 0]
            o = (torch.softmax(l, -1)[..., None, :] @ ret)[..., 0, :]
        y = o.transpose(1, 2).flatten(2) @ p[f"{name}.wo"].flatten(0, 1)
        return y + p[f"{name}.bo"] if f"{name}.bo" in p else y

    def norm(self, name, x):
        return self.f.layer_norm(x, x.shape[-1:], self.p[f"{name}.scale"], self.p[f"{name}.shift"], 1e-5)

    def mlp(self, name, x, drop=False):
        w1, b1, w2, b2 = (self.p[f"{name}.{x}"] for x in ("w1", "b1", "w2", "b2"))
        hidden = self.torch.relu(x @ w1 + b1)
        return (self.drop(hidden) if drop else hidden) @ w2 + b2

    def block(self, name, x, hidden=None, context=None, context_hidden=None):
        x = self.norm(f"{name}.norm1", x + self.drop(self.attend(f"{name}.attention", x, hidden=hidden)))
        if context is not None:
            x = self.norm(f"{name}.norm_cross", x + self.drop(self.attend(f"{name}.cross", x, context, context_hidden)))
        return self.norm(f"{name}.norm2", x + self.drop(self.mlp(f"{name}.feed_forward", x, True)))

    def step(self, batch):
        loss = self.loss(batch)
        self.optimiser.zero_grad()
        loss.backward()
        if self.recipe.clip:
            self.torch.nn.utils.clip_grad_norm_(list(self.p.values()), self.recipe.clip)
        self.optimiser.step()
        return float(loss.detach())


class Esbn(Twin):
    def __init__(self, ours, once=False):
        super().__init__(ours)
        self.once = once

    def loss(self, batch):
        torch, f, p = self.torch, self.f, self.p
        x, options = self.recipe.inputs(batch)
        place = torch.from_numpy(options["place"])
        x = torch.from_numpy(x).permute(0, 3, 1, 2)
        x = x if self.once else x[place.flatten()]
        for n in range(3):
            x = torch.relu(f.conv2d(x, p[f"convs.{n}.k"].permute(3, 2, 0, 1), p[f"convs.{n}.b"], stride=2, padding=1))
        z = torch.relu(self.mlp("encoder", x.permute(0, 2, 3, 1).flatten(1)))
        z = z[place] if self.once else z.view(*place.shape, -1)
        parts = z.unflatten(1, (self.recipe.build().segments, -1))
        n = (parts - parts.mean(2, keepdim=True)) / torch.sqrt(parts.var(2, keepdim=True) + 1e-8)
        h = n.flatten(1, 2) * p["context.scale"] + p["context.shift"] + self.table[:z.shape[1]]
        h = self.norm("norm", self.block("block", h)).mean(1)
        return f.cross_entropy(self.mlp("readout", h), torch.from_numpy(batch.target))


class Scan(Twin):
    def loss(self, batch):
        torch, f, p, n = self.torch, self.f, self.p, self.recipe.layers
        source, options = self.recipe.inputs(batch)
        paddings = ~torch.from_numpy(options["source_keep"])
        h = self.drop(p["source.table"][torch.from_numpy(source)] + self.table[:source.shape[1]])
        for _ in range(n):
            h = self.block("encoder.block", h, paddings)
        context, t = h, batch.target.shape[1]
        later = ~torch.tril(torch.ones(t, t, dtype=torch.bool))
        h = self.drop(p["target.table"][torch.from_numpy(options["target"])] + self.table[:t])
        for _ in range(n):
            h = self.block("decoder.block", h, later, context, paddings)
        target = torch.from_numpy(batch.target)
        target = target.masked_fill(torch.arange(t) > torch.from_numpy(batch.length)[:, None], -100)
        return f.cross_entropy((h @ p["target.table"].t() + p["readout.b"]).flatten(0, 1), target.flatten())


def main(names):
    import torch
    torch.set_num_threads(1)
    keep_freed_memory()
    for fields in {"attention": "softmax"}, {"retrievals": 1}, {"retrievals": 2, "scoring": "dot"}:
        if not names or "esbn" in names:
            chosen = recipe("identity_rules", "paper", **fields)
            ours = Ours(chosen)
            sides = {"ours": ours.step, "PyTorch, each": Esbn(ours).step, "PyTorch, once": Esbn(ours, True).step}
            said(f"identity rules {fields}", interleaved(sides, [chosen.draw(n) for n in range(40)]))
        if not names or "scan" in names:
            chosen = recipe("scan", "paper", **fields)
            ours = Ours(chosen, np.random.default_rng(0))
            sides = {"ours": ours.step, "PyTorch": Scan(ours, chosen.dropout).step}
            said(f"SCAN {fields}", interleaved(sides, [chosen.draw(n) for n in range(11)]))


if __name__ == "__main__":
    with with_extra(), threadpool_limits(1):
        main(sys.argv[1:])
