"""`python -m tests.bench.contextual [SCALE ...]`: a step of contextual retrieval beside a PyTorch eager twin.

The twin makes the maps of a token in one product, all retrievals of a search in one, and absorbs the key map into the
selector as ours does; `conv` writes the wide maps as 1x1 convolutions (torch_twin.py).  One process, one thread, taken
in turns; medians of CPU time, sampling left out on both sides.  Below 1, ours is faster.
"""
import sys
import time

import numpy as np
from threadpoolctl import threadpool_limits

from refattn import optim, params
from refattn.recipes import recipe
from refattn.xp import keep_freed_memory

from . import with_extra


class Ours:
    """`step(batch)` -> loss, as `fit` does it."""

    def __init__(self, chosen, seed=0):
        self.recipe, self.model, self.count = chosen, chosen.build(), 0
        listed = self.model.parameters()
        self.flat, self.p = params.allocate(listed)
        self.flat_grads, self.grads = params.allocate(listed)
        params.initialise(self.flat, listed, np.random.default_rng(seed), chosen.initialise)
        self.moments, self.mask = optim.moments(self.flat), params.decay_mask(listed, chosen.decay_rule)

    def step(self, batch):
        x, options = self.recipe.inputs(batch)
        y, saved = self.model.forward(self.p, x, **options)
        loss, dy = self.recipe.loss(y, batch)
        self.flat_grads[...] = 0
        self.model.backward(self.p, saved, dy, self.grads)
        if self.recipe.clip:
            optim.clip_by_global_norm(self.flat_grads, self.recipe.clip)
        self.count += 1
        optim.adamw_step(self.flat, self.flat_grads, self.moments, step=self.count, decay=0.0, mask=self.mask,
                         rate=self.recipe.rate_at(self.count - 1))
        return float(loss)


class Twin:
    """The same network and optimiser in PyTorch, beginning with the parameters of `ours`."""

    def __init__(self, ours, form="matmul"):
        import torch

        from . import torch_twin
        self.torch, self.recipe = torch, ours.recipe
        self.map = torch_twin.conv if form == "conv" else torch_twin.linear
        p, a, m = ours.p, ours.p.attention, ours.recipe.width
        names = "qkvs" if self.recipe.attention == "compositional" else "qkv"
        weights = [*(getattr(a, f"w{x}").reshape(m, -1) for x in names), p.own.wv]
        biases = [*(getattr(a, f"b{x}").ravel() for x in names), p.own.bv]
        arrays = {"w": np.concatenate(weights, 1), "b": np.concatenate(biases), "bo": a.bo,
                  "wo": np.concatenate([a.wo.reshape(-1, m), p.own.wo]), **({"wr": a.wr} if "s" in names else {}),
                  **{f"{part[0]}{name}": x for part in ("encoder", "decoder") for name, x in getattr(p, part)}}
        self.p = {name: torch.from_numpy(np.array(x)).requires_grad_() for name, x in arrays.items()}
        self.sizes = [w.shape[1] for w in weights]
        self.optimiser = torch.optim.Adam(self.p.values(), lr=self.recipe.rate, foreach=True)
        self.diagonal = torch.eye(self.recipe.objects, dtype=torch.bool)

    def mlp(self, x, part):
        w1, b1, w2, b2 = (self.p[part + name] for name in ("w1", "b1", "w2", "b2"))
        return self.map(self.torch.relu(self.map(x, w1, b1)), w2, b2)

    def step(self, batch):
        torch, p, r = self.torch, self.p, self.recipe
        x, target = torch.from_numpy(batch.tokens), torch.from_numpy(batch.target)
        b, t, _ = x.shape
        q, k, v, *selector, own = self.map(self.mlp(x, "e"), p["w"], p["b"]).split(self.sizes, -1)
        searches = r.searches if selector else r.heads
        q, k = (z.reshape(b, t, searches, -1).transpose(1, 2) for z in (q, k))
        s = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2)).masked_fill(self.diagonal, float("-inf"))
        a = torch.softmax(s, -1)
        if selector:
            ret = torch.matmul(a.reshape(b, searches * t, t), v).view(b, searches, t, r.retrievals, -1)
            u = selector[0].reshape(b, t, searches, -1).transpose(1, 2)
            u = torch.matmul(u * u.shape[-1] ** -0.5, p["wr"].t())
            g = torch.softmax(torch.matmul(ret, u.unsqueeze(-1)).squeeze(-1), -1)
            o = torch.matmul(g.unsqueeze(-2), ret).squeeze(-2)
        else:
            o = torch.matmul(a, v.reshape(b, t, searches, -1).transpose(1, 2))
        o = torch.cat([o.transpose(1, 2).reshape(b, t, -1), own], -1)
        loss = torch.nn.functional.l1_loss(self.mlp(self.map(o, p["wo"], p["bo"]), "d")[..., 0], target)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return float(loss.detach())


def interleaved(sides: dict, batches) -> dict:
    """{name: median milliseconds of CPU time}; a side is a function of a batch, the first tenth is to warm up."""
    spent = {name: [] for name in sides}
    for batch in batches:
        for name, side in sides.items():
            start = time.process_time()
            side(batch)
            spent[name].append(time.process_time() - start)
    return {name: 1e3 * float(np.median(x[len(batches) // 10:])) for name, x in spent.items()}


def said(title, times):
    """One line: milliseconds, and the first as a multiple of each other."""
    (first, mine), *rest = times.items()
    ratios = "".join(f"   {name} {ms:.2f} ms, ratio {mine / ms:.2f}" for name, ms in rest)
    print(f"{title}: {first} {mine:.2f} ms{ratios}", flush=True)


def main(scales, steps=200):
    import torch
    torch.set_num_threads(1)
    keep_freed_memory()
    for scale in scales or ["quick", "paper"]:
        for attention in "softmax", "compositional":
            chosen, rng = recipe("contextual_retrieval", scale, attention=attention), np.random.default_rng(0)
            ours = Ours(chosen)
            sides = {"ours": ours.step, "PyTorch matmul": Twin(ours).step, "PyTorch conv": Twin(ours, "conv").step}
            batches = [chosen.sample(rng, "train", chosen.batch) for _ in range(steps)]
            said(f"{scale} {attention}", interleaved(sides, batches))


if __name__ == "__main__":
    with with_extra(), threadpool_limits(1):
        main(sys.argv[1:])
