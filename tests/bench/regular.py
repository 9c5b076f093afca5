"""`python -m tests.bench.regular [tree] [gather] [length]`: RegularGPT beside PyTorch eager, and at great lengths.

tree    a training step (width 64, batch 128, T = 40, C = 2, 8 heads), the same tree form on both sides: chunks as an
        axis, only kept queries; `conv` writes the wide maps as 1x1 convolutions (torch_twin.py)
gather  forward and backward of the attention at all positions, beside softmax attention under the dense T x T matrix
        of eq. (1), in PyTorch and in ours
length  forward and backward of the dense form with `recompute` at T = 4,096 and 65,536 (batch 1, width 64), seconds
        and peak resident megabytes, each in a process of its own
One thread; medians of CPU time, taken in turns; sampling left out.  Below 1, ours is faster.
"""
import resource
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits

from refattn import params
from refattn.attention.sliding_dilated import sliding_dilated, sliding_dilated_backward
from refattn.attention.softmax import softmax, softmax_backward
from refattn.recipes import recipe
from refattn.xp import keep_freed_memory

from . import with_extra
from .contextual import Ours, interleaved, said

T, C, DILATION = 40, 2, 4


class Twin:
    """The same network and optimiser in PyTorch, beginning with the parameters of `ours`."""

    def __init__(self, ours, form="linear"):
        import torch

        from . import torch_twin
        self.torch, self.recipe = torch, ours.recipe
        self.conv = torch_twin.conv if form == "conv" else None
        block, m = ours.p.blocks[0], ours.recipe.width
        a = block.attention
        arrays = {"table": ours.p.embed.table, "wq": a.wq.reshape(m, -1), "r": a.offset_bias, "pad": a.pad,
                  "wkv": np.concatenate([a.wk.reshape(m, -1), a.wv.reshape(m, -1)], 1), "wo": a.wo.reshape(-1, m),
                  **{f"f{name}": x for name, x in block.feed_forward}, "w": ours.p.readout.w, "b": ours.p.readout.b,
                  **{f"n{i}{name}": x for i in (1, 2) for name, x in getattr(block, f"norm{i}")}}
        self.p = {name: torch.from_numpy(np.array(x)).requires_grad_() for name, x in arrays.items()}
        self.optimiser = torch.optim.Adam(self.p.values(), lr=self.recipe.rate, foreach=True)

    def map(self, x, w, b):
        if self.conv and x.ndim == 3 and x.shape[1] > 1:
            return self.conv(x, w, b)
        rows = x.reshape(-1, x.shape[-1])
        return (rows @ w if b is None else self.torch.addmm(b, rows, w)).view(*x.shape[:-1], -1)

    def level(self, x):
        """The last position of each chunk, from (b, n, m)."""
        torch, p, heads = self.torch, self.p, self.recipe.heads
        b, n, m = x.shape
        if n % C:
            x = torch.cat([p["pad"].expand(b, -n % C, m), x], 1)
        last = x.view(b, -1, C, m)[:, :, -1]
        q = self.map(last, p["wq"], None).reshape(b, -1, 1, heads, m // heads)
        k, v = self.map(x, p["wkv"], None).reshape(b, -1, C, 2, heads, m // heads).unbind(3)
        s = (q * (m // heads) ** -0.5 * k).sum(-1) + p["r"].flip(1).t()
        o = (torch.softmax(s, 2)[..., None] * v).sum(2).reshape(b, -1, m)
        norm = torch.nn.functional.layer_norm
        y = norm(last + self.map(o, p["wo"], None), (m,), p["n1scale"], p["n1shift"], 1e-5)
        z = self.map(torch.relu(self.map(y, p["fw1"], p["fb1"])), p["fw2"], p["fb2"])
        return norm(y + z, (m,), p["n2scale"], p["n2shift"], 1e-5)

    def step(self, batch):
        torch = self.torch
        x = self.p["table"][torch.from_numpy(batch.tokens)] * self.recipe.width ** 0.5
        while True:
            x = self.level(x)
            if x.shape[1] == 1:
                break
        y = x[:, 0] @ self.p["w"] + self.p["b"]
        loss = torch.nn.functional.cross_entropy(y, torch.from_numpy(batch.target))
        self.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(self.p.values()), self.recipe.clip)
        self.optimiser.step()
        return float(loss.detach())


def tree(steps=200):
    chosen = recipe("parity", "quick")
    ours = Ours(chosen)
    sides = {"ours": ours.step, "PyTorch": Twin(ours).step, "PyTorch conv": Twin(ours, "conv").step}
    batches = [chosen.sample(np.random.default_rng(n), length=T) for n in range(steps)]
    losses = [side(batches[0]) for side in sides.values()]
    assert np.ptp(losses) < 1e-5, losses
    said(f"tree step, T = {T}", interleaved(sides, batches))


def gather(steps=40, b=1, t=512, h=8, d=8):
    import torch
    rng = np.random.default_rng(0)
    q, k, v, do = (rng.standard_normal((b, t, h, d)).astype(np.float32) for _ in range(4))
    r = rng.standard_normal((h, C)).astype(np.float32)
    offset = np.subtract.outer(np.arange(t), np.arange(t))
    keep = (offset >= 0) & (offset % DILATION == 0) & (offset // DILATION < C)
    j = np.where(keep, offset // DILATION, 0)

    def shifted(_=0):
        o, saved = sliding_dilated(q, k, v, r, dilation=DILATION)
        return o, sliding_dilated_backward(saved, do)

    def dense(_=0):
        o, saved = softmax(q, k, v, bias=np.where(keep, r[:, j], 0), keep=keep)
        dq, dk, dv, dm = softmax_backward(saved, do)
        return o, (dq, dk, dv, None, np.stack([dm[:, keep & (j == n)].sum(1) for n in range(C)], 1))

    ready = [torch.from_numpy(x.transpose(0, 2, 1, 3).copy()).requires_grad_() for x in (q, k, v)]
    tr, td = torch.from_numpy(r).requires_grad_(), torch.from_numpy(do.transpose(0, 2, 1, 3).copy())
    index, hidden = torch.from_numpy(j), torch.from_numpy(~keep)

    def twin(_=0):
        for x in (*ready, tr):
            x.grad = None
        mask = tr[:, index].masked_fill(hidden, float("-inf"))
        o = torch.softmax(ready[0] @ ready[1].mT * d ** -0.5 + mask, -1) @ ready[2]
        o.backward(td)
        return o

    assert np.abs(twin().detach().numpy().transpose(0, 2, 1, 3) - shifted()[0]).max() < 1e-5
    for mine, theirs in zip(shifted()[1], dense()[1], strict=True):
        assert mine is None or np.abs(mine - theirs).max() < 1e-3
    said(f"gather, T = {t}, dilation {DILATION}", interleaved(
        {"ours": shifted, "dense mask in PyTorch": twin, "dense mask in ours": dense}, range(steps)))


def at_length(t):
    """Seconds of one forward and backward at length t, after one to warm up, and the peak of resident megabytes."""
    model = replace(recipe("parity", "quick").build(), recompute=True)
    listed = model.parameters()
    (flat, p), (_, grads) = (params.allocate(listed) for _ in range(2))
    params.initialise(flat, listed, np.random.default_rng(0), "haiku")
    x = np.random.default_rng(0).integers(2, size=(1, t))
    for _ in range(2):
        start = time.process_time()
        y, saved = model.forward(p, x)
        model.backward(p, saved, np.ones_like(y), grads)
        seconds = time.process_time() - start
    print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def length():
    found = {}
    for t in 4_096, 65_536:
        done = subprocess.run([sys.executable, "-m", "tests.bench.regular", str(t)], stdout=subprocess.PIPE, check=True)
        found[t] = tuple(map(float, done.stdout.split()))
        print(f"dense form with recompute, T = {t:,}: {found[t][0]:.2f} s, peak {found[t][1]:.0f} MB", flush=True)
    print(f"grown {found[65_536][0] / found[4_096][0]:.1f} times; 16 x 16/12 = 21.3 by the count of tokens and levels")


def main(words):
    if words and words[0].isdigit():
        return at_length(int(words[0]))
    for word in words or ["tree", "gather", "length"]:
        {"tree": tree, "gather": gather, "length": length}[word]()


if __name__ == "__main__":
    keep_freed_memory()
    with with_extra(), threadpool_limits(1):
        if not (sys.argv[1:] and sys.argv[1].isdigit()):
            import torch
            torch.set_num_threads(1)
        main(sys.argv[1:])
