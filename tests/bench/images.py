"""`python -m tests.bench.images [SCALE ...]`: an update of Sort-of-CLEVR beside a PyTorch eager twin, dropout included.

The twin is written as one writes it in PyTorch, q, k, v (and the selector) in one map, the key map absorbed into the
selector; `usual` computes every token of the last application, as the released code does, `read` the class token only,
as ours does.  One process, one thread, taken in turns; medians of CPU time; below 1, ours is faster.  The peak of ours
is that of three updates in a process of their own, without PyTorch: `--memory SCALE ATTENTION` prints it alone.
"""
import subprocess
import sys

import numpy as np
from threadpoolctl import threadpool_limits

from refattn.recipes import recipe
from refattn.xp import keep_freed_memory

from . import contextual, with_extra
from .contextual import interleaved, said
from .timing import peak_megabytes


class Ours(contextual.Ours):
    """`step(batch)` -> loss, as `fit` does it; `rng` draws dropout, None leaves it out."""

    def __init__(self, chosen, rng=None):
        super().__init__(chosen)
        self.recipe = Dropping(chosen, rng)


class Dropping:
    """A recipe whose inputs always draw dropout from one generator."""

    def __init__(self, chosen, rng):
        self.chosen, self.rng = chosen, rng

    def __getattr__(self, name):
        return getattr(self.chosen, name)

    def inputs(self, batch):
        x, options = self.chosen.inputs(batch)
        return x, options if self.rng is None else options | self.chosen.dropouts(batch, self.rng, np)


class Twin:
    """The same network and optimiser in PyTorch, beginning with the parameters of `ours`."""

    def __init__(self, ours, read=False, dropout=0.0):
        import torch
        self.torch, self.recipe, self.read, self.dropout = torch, ours.recipe.chosen, read, dropout
        p, m, block = ours.p, self.recipe.width, ours.p.block
        a, names = block.attention, "qkvs" if self.recipe.attention == "compositional" else "qkv"
        parts = [getattr(a, f"w{x}").reshape(m, -1) for x in names]
        arrays = {"patch": p.patch.k.transpose(3, 2, 0, 1), "patch_b": p.patch.b, "token": p.token,
                  "question": p.question.w, "question_b": p.question.b, "join": p.join.w, "join_b": p.join.b,
                  "w": np.concatenate(parts, 1), "b": np.concatenate([getattr(a, f"b{x}").ravel() for x in names]),
                  "wo": a.wo.reshape(-1, m), "bo": a.bo, "readout": p.readout.w, "readout_b": p.readout.b,
                  **{f"{n}.{name}": x for n in ("norm1", "norm2", "feed_forward") for name, x in block[n]}}
        if "s" in names:
            arrays["wr"] = a.wr
        self.p = {name: torch.from_numpy(np.array(x)).requires_grad_() for name, x in arrays.items()}
        self.sizes = [w.shape[1] for w in parts]
        self.optimiser = torch.optim.Adam(self.p.values(), lr=self.recipe.rate, foreach=True)
        from refattn.layers.positions import image_table
        self.table = torch.from_numpy(image_table(25, m // 2).astype(np.float32))

    def attend(self, x, queries):
        torch, p, r = self.torch, self.p, self.recipe
        b, t, m = x.shape
        q, k, v, *selector = torch.addmm(p["b"], x.reshape(-1, m), p["w"]).view(b, t, -1).split(self.sizes, -1)
        heads = r.searches if selector else r.heads
        q, k = (z.reshape(b, t, heads, -1).transpose(1, 2) for z in (q, k))
        q = q[:, :, :queries]
        if not selector:
            v = v.reshape(b, t, heads, -1).transpose(1, 2)
            o = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            a = torch.softmax(torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2)), -1)
            ret = torch.matmul(a.reshape(b, -1, t), v).view(b, heads, q.shape[2], r.retrievals, -1)
            u = selector[0].reshape(b, t, heads, -1).transpose(1, 2)[:, :, :queries]
            u = torch.matmul(u * u.shape[-1] ** -0.5, p["wr"].t())
            g = torch.softmax(torch.matmul(ret, u.unsqueeze(-1)).squeeze(-1), -1)
            o = torch.matmul(g.unsqueeze(-2), ret).squeeze(-2)
        return o.transpose(1, 2).reshape(b, -1, p["wo"].shape[0]) @ p["wo"] + p["bo"]

    def block(self, x, queries):
        torch, p, drop = self.torch, self.p, self.torch.nn.functional.dropout
        n = torch.nn.functional.layer_norm(x, x.shape[-1:], p["norm1.scale"], p["norm1.shift"])
        x = x[:, :queries] + self.attend(n, queries)
        n = torch.nn.functional.layer_norm(x, x.shape[-1:], p["norm2.scale"], p["norm2.shift"])
        hidden = torch.relu(drop(n @ p["feed_forward.w1"] + p["feed_forward.b1"], self.dropout))
        return x + drop(hidden @ p["feed_forward.w2"] + p["feed_forward.b2"], self.dropout)

    def step(self, batch):
        torch, p = self.torch, self.p
        image, question, target = (torch.from_numpy(x.reshape(-1, *x.shape[2:])) for x in batch[:3])
        x = image.permute(0, 3, 1, 2).float() / 255
        x = (1 - x) * self.recipe.ink if self.recipe.ink else x
        h = torch.nn.functional.conv2d(x, p["patch"], p["patch_b"], stride=15).flatten(2).transpose(1, 2) + self.table
        h = torch.cat([p["token"].expand(len(x), 1, -1), h], 1)
        asked = (question @ p["question"] + p["question_b"])[:, None].expand(-1, h.shape[1], -1)
        h = torch.cat([h, asked], -1) @ p["join"] + p["join_b"]
        for n in range(self.recipe.layers):
            last = n == self.recipe.layers - 1 and self.read
            h = self.block(h, 1 if last else h.shape[1])
        loss = torch.nn.functional.cross_entropy(h[:, 0] @ p["readout"] + p["readout_b"], target)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return float(loss.detach())


def batches_of(chosen, steps):
    """Batches of questions of one type."""
    rng, questions = np.random.default_rng(1), chosen.size("train")
    return [chosen.turns(chosen.take("train", rng.integers(questions, size=chosen.batch)))[0] for _ in range(steps)]


def memory(scale, attention):
    """Prints the megabytes of some updates, and of nothing else."""
    chosen = recipe("sort_of_clevr", scale, attention=attention, scenes=200)
    ours = Ours(chosen, np.random.default_rng(0))
    for batch in batches_of(chosen, 3):
        ours.step(batch)
    print(f"{peak_megabytes():.0f}")


def main(words, steps=40):
    keep_freed_memory()
    if words[:1] == ["--memory"]:
        return memory(*words[1:])
    import torch
    torch.set_num_threads(1)
    for scale in words or ["small", "paper"]:
        for attention in "softmax", "compositional":
            chosen = recipe("sort_of_clevr", scale, attention=attention, scenes=200)
            ours = Ours(chosen, np.random.default_rng(0))
            alone = [sys.executable, "-m", "tests.bench.images", "--memory", scale, attention]
            peak = subprocess.run(alone, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
            print(f"{scale} {attention}: peak of ours {peak} MB", flush=True)
            said(f"{scale} {attention}", interleaved({
                "ours": ours.step, "PyTorch usual": Twin(ours, dropout=0.1).step,
                "PyTorch read": Twin(ours, True, 0.1).step}, batches_of(chosen, steps)))


if __name__ == "__main__":
    with with_extra(), threadpool_limits(1):
        main(sys.argv[1:])
