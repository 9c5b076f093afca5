"""`python -m tests.bench.language [--cores 2]`: a step of nanoGPT's example for a CPU, beside PyTorch.

The twin is nanoGPT's model: q, k and v in one product, attention as matrix products (`matmul`) or by PyTorch's own
function (`sdpa`), GELU in the tanh form, tied read-out, AdamW, clipping.  Characters are drawn at random.  One process,
one thread, taken in turns; medians of CPU time, sampling left out.  With two cores wall clock: two shards by two
processes, sampling included, beside two threads.  Below 1, ours is faster.
"""
import argparse
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from refattn.recipes import recipe
from refattn.xp import keep_freed_memory

from . import with_extra
from .contextual import Ours, interleaved, said
from .timing import interleave, summary, table
from .workers import Step


class Twin:
    """The same network and optimiser in PyTorch, beginning with the parameters of `ours`."""

    def __init__(self, ours, form="matmul"):
        import torch
        self.torch, self.recipe, self.form, self.count, m = torch, ours.recipe, form, 0, ours.recipe.width
        blocks = [{"wqkv": np.concatenate([p.attention[f"w{n}"].reshape(m, -1) for n in "qkv"], 1),
                   "bqkv": np.concatenate([p.attention[f"b{n}"].ravel() for n in "qkv"]),
                   "wo": p.attention.wo.reshape(-1, m), "bo": p.attention.bo, **dict(p.feed_forward),
                   **{f"{n}_{x}": y for n in ("norm1", "norm2") for x, y in p[n]}} for p in ours.p.blocks]
        arrays = {f"{i}.{name}": x for i, block in enumerate(blocks) for name, x in block.items()}
        arrays |= {"table": ours.p.embed.table, "at": ours.p.positions.table, "scale": ours.p.norm.scale,
                   "shift": ours.p.norm.shift}
        self.p = {name: torch.from_numpy(np.array(x)).requires_grad_() for name, x in arrays.items()}
        decayed, rest = ([x for x in self.p.values() if (x.ndim == 2) == wide] for wide in (True, False))
        self.optimiser = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": self.recipe.decay}, {"params": rest, "weight_decay": 0.0}],
            lr=self.recipe.rate, betas=(0.9, self.recipe.beta2), foreach=True)
        self.hidden = ~torch.tril(torch.ones(ours.recipe.length, ours.recipe.length, dtype=torch.bool))

    def step(self, batch):
        torch, p, r, f = self.torch, self.p, self.recipe, self.torch.nn.functional
        x, target = torch.from_numpy(batch.tokens), torch.from_numpy(batch.target)
        b, t = x.shape
        m, heads = r.width, r.heads
        h = p["table"][x] + p["at"]
        for i in range(r.layers):
            own = {name.partition(".")[2]: y for name, y in p.items() if name.startswith(f"{i}.")}
            n = f.layer_norm(h, (m,), own["norm1_scale"], own["norm1_shift"], 1e-5)
            qkv = torch.addmm(own["bqkv"], n.view(-1, m), own["wqkv"]).view(b, t, 3, heads, m // heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            if self.form == "sdpa":
                o = f.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                s = (q @ k.mT * (m // heads) ** -0.5).masked_fill(self.hidden, float("-inf"))
                o = torch.softmax(s, -1) @ v
            h = h + torch.addmm(own["bo"], o.transpose(1, 2).reshape(-1, m), own["wo"]).view(b, t, m)
            n = f.layer_norm(h, (m,), own["norm2_scale"], own["norm2_shift"], 1e-5)
            z = f.gelu(torch.addmm(own["b1"], n.view(-1, m), own["w1"]), approximate="tanh")
            h = h + torch.addmm(own["b2"], z, own["w2"]).view(b, t, m)
        h = f.layer_norm(h, (m,), p["scale"], p["shift"], 1e-5)
        loss = f.cross_entropy(h.view(-1, m) @ p["table"].t(), target.reshape(-1))
        self.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(p.values()), r.clip)
        for group in self.optimiser.param_groups:
            group["lr"] = r.rate_at(self.count)
        self.count += 1
        self.optimiser.step()
        return float(loss.detach())


def on_two_cores(rounds=100):
    import torch
    keep_freed_memory()
    chosen, rng = recipe("text", "small", text="documentation", shards=2), np.random.default_rng(0)
    step = Step(chosen, 2)                              # forks, so before PyTorch has threads
    torch.set_num_threads(2)
    ours, batch = Ours(chosen), chosen.sample(rng)
    twins = {form: Twin(ours, form) for form in ("matmul", "sdpa")}
    sides = {"ours": step} | {f"PyTorch {form}": partial(twin.step, batch) for form, twin in twins.items()}
    times = interleave(sides, rounds, warm_up=5, pause=0.01)
    print(table("two cores", {name: summary(rows, times["ours"]) for name, rows in times.items()}))
    step.work.__exit__(None, None, None)


def main(steps=200):
    import torch
    torch.set_num_threads(1)
    keep_freed_memory()
    chosen, rng = recipe("text", "small", text="documentation"), np.random.default_rng(0)
    ours = Ours(chosen)
    sides = {"ours": ours.step, "PyTorch matmul": Twin(ours).step, "PyTorch sdpa": Twin(ours, "sdpa").step}
    batches = [chosen.sample(rng) for _ in range(steps)]
    said("nanoGPT's example", interleaved(sides, batches))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.bench.language", description=__doc__.partition("\n")[0])
    parser.add_argument("--cores", type=int, choices=(1, 2), default=1, help="of ours and of PyTorch")
    cores = parser.parse_args().cores
    with with_extra(), threadpool_limits(1):
        on_two_cores() if cores == 2 else main()
