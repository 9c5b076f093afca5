# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Language models: the next token, and texts longer than any in training
#
# [all tutorials](README.md) · before: [10](10_sequences.py) · [exercises](exercises/README.md)
#
# Pages: [`layers/next_token.py`](../refattn/layers/next_token.py), [`attention/linear_state.py`](../refattn/attention/linear_state.py), [`layers/text_positions.py`](../refattn/layers/text_positions.py), [`models/language.py`](../refattn/models/language.py) · equations: R, section 6; H, section 5 · `pip install '.[plots]'`, as a notebook `'.[tutorials]'`
#
# **What you'll do.** Write the loss of the next token and its gradient; see a causal mask in gradients; carry linear
# attention along as a state; train three small models with different position encodings, and ask them about texts eight
# times as long; let one of them write.
#
# **What you'll learn.** Why the loss of a large vocabulary needs no large array; what a decoder has to keep of what it has
# read, and for which variants of attention that is a fixed amount; why some position encodings fail beyond the trained
# length.
#
# **What you need.** Tutorials 1 and 2. From the extras: `plots`. The text is the documentation that Python carries.
#
# The papers are *Attention as a Hypernetwork* (section 5), *Compositional Attention* (section 4.7) and *Transformer
# Working Memory …* (section 6, called R). Training takes most of the time.

# %%
import sys
import textwrap

import matplotlib
import numpy as np
from threadpoolctl import threadpool_limits

sys.path.append(".")                        # in a checkout that is not installed: run it from the root
if "ipykernel" not in sys.modules:
    matplotlib.use("Agg")                   # as a script: no window
import matplotlib.pyplot as plt

from refattn import check, params
from refattn.attention.linear_state import linear_state
from refattn.layers.next_token import next_token, next_token_backward
from refattn.recipes import recipe
from refattn.tasks.text import corpus
from refattn.train import evaluate, fit
from refattn.train.writing import streamed, written
from refattn.verification import theorems
from refattn.verification.naive.next_token import next_token as by_loops

threadpool_limits(1, "blas")
plt.rcParams.update({"figure.dpi": 100, "figure.constrained_layout.use": True, "font.size": 11,
                     "axes.spines.top": False, "axes.spines.right": False})
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#666666"      # colour-blind-safe (Okabe & Ito)
rng = np.random.default_rng(0)

# %% [markdown]
# ## 1. The loss of the next token
#
# A model gives a vector $\mathbf{h}_i$ for each token $i$. The scores of what comes next are products with the table of the
# embedding, and the loss is the cross-entropy, minus the logarithm of a softmax. (Here i is a token, w a word of the
# vocabulary, and **h** what the model puts out; none is the index of README's notation.)
#
# $$\mathbf{z}_{iw} = \mathbf{h}_i \cdot \mathbf{table}_w, \qquad \mathbf{y}_i = \ln \sum_w e^{\mathbf{z}_{iw}} - \mathbf{z}_{i,\,\mathrm{target}_i}$$
#
# First as loops, then as the library has it; `rows` says how many tokens are in hand at a time.

# %%
b, t, m, v = 2, 5, 4, 7
h, table, target = rng.standard_normal((b, t, m)), rng.standard_normal((v, m)), rng.integers(v, size=(b, t))
y, saved = next_token(h, table, target, rows=3)
assert np.allclose(y, by_loops(h, table, target), rtol=0, atol=1e-12)
print("nats for each token, the first text:", np.round(y[0], 3))

# %% [markdown]
# **Backward.** The derivative of $\ln \sum_w e^{\mathbf{z}_w}$ is the softmax $\mathbf{p}_w$, that of $-\mathbf{z}_\mathrm{target}$ is $-1$ at
# the target; $[w = \mathrm{target}_i]$ is 1 or 0. The rest are two products.
#
# | forward | backward |
# |---|---|
# | $\mathbf{z}_{iw} = \mathbf{h}_i \cdot \mathbf{table}_w$ | $\mathrm{d}\mathbf{h}_i = \sum_w \mathrm{d}\mathbf{z}_{iw}\, \mathbf{table}_w$, $\quad \mathrm{d}\mathbf{table}_w = \sum_i \mathrm{d}\mathbf{z}_{iw}\, \mathbf{h}_i$ |
# | $\mathbf{y}_i = \ln \sum_w e^{\mathbf{z}_{iw}} - \mathbf{z}_{i,\,\mathrm{target}_i}$ | $\mathrm{d}\mathbf{z}_{iw} = (\mathbf{p}_{iw} - [w = \mathrm{target}_i])\, \mathrm{d}\mathbf{y}_i$ |
#
# $\mathbf{z}$ has as many entries as tokens times words: a batch of four texts of 512 words out of 267,744 has over half a
# billion.
# Nothing ever needs all of them: a tile of tokens makes its scores, uses them and forgets them, and the backward makes
# them once more.

# %%
dy = rng.standard_normal((b, t))
dh, dtable = next_token_backward(saved, dy)
z = h @ table.T
p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
dz = (p - (np.arange(v) == target[..., None])) * dy[..., None]
assert np.allclose(dh, dz @ table, rtol=0, atol=1e-12)
assert np.allclose(dtable, np.einsum("btv,btm->vm", dz, h), rtol=0, atol=1e-12)
report = check.derivative(lambda x: next_token(**x, rows=3), lambda s, dy: dict(zip(("h", "table"), next_token_backward(
    s, dy), strict=True)), {"h": h, "table": table, "target": target}, rng=rng)
print(f"against the complex step: {report.error:.1e}")
assert report.error < 1e-12

# %% [markdown]
# ## 2. A causal mask, seen in gradients
#
# The loss of token $i$ may depend on what was read up to $i$, on nothing later. So its derivative with respect to the
# embedding of token $j$ is exactly zero above the diagonal, $j > i$; here for HYLA.

# %%
shown = recipe("text", attention="hyla", position="none", width=16, heads=2, layers=2, length=12)
model = shown.build()
listed = model.parameters()
flat, weights = params.allocate(listed, np.float64)
params.initialise(flat, listed, rng, "random")
batch = shown.sample(rng, "train", 1)
y, saved = model.forward(weights, batch.tokens, target=batch.target)
reach = np.zeros((12, 12))
for i in range(12):
    _, grads = params.allocate(listed, np.float64)
    dh, _ = next_token_backward(saved.loss, np.eye(12)[i:i + 1])
    reach[i] = np.linalg.norm(model.stack.backward(weights, saved.stack, dh, grads).x[0], axis=-1)
assert not np.triu(reach, 1).any() and (np.diag(reach) > 0).all()
figure, axis = plt.subplots(figsize=(5.6, 4.4))
image = axis.imshow(np.log10(np.where(reach, reach, np.nan)), cmap="cividis")
axis.set(xlabel="embedding of token", ylabel="loss of token",
         title="Gradients under a causal mask: HYLA,\nn = 1 text, random weights (seed 0)")
figure.colorbar(image, ax=axis, label="log10 of the gradient's norm (white: exactly 0)")
plt.show()

# %% [markdown]
# ## 3. What a decoder keeps
#
# A decoder that has read n tokens keeps their keys and values (the KV cache), and a new query looks at all of them. Linear
# attention need not, since a sum may be taken before the query is known:
#
# $$\sum_{k} \frac{\mathbf{q} \cdot \mathbf{k}_k}{\sqrt D}\, \mathbf{v}_k = \frac{\mathbf{q}}{\sqrt D}\, \mathbf{S}, \qquad \mathbf{S} = \sum_k \mathbf{k}_k^\top \mathbf{v}_k$$
#
# with $\mathbf{q}$, $\mathbf{k}_k$ and $\mathbf{v}_k$ as rows. $\mathbf{S}$ is D × E numbers (the features of a key and of a value),
# whatever n is. A text may be read in pieces that hand
# on $\mathbf{S}$, and gradients handed back with $\mathrm{d}\mathbf{S}$ are those of the whole text.

# %%
q, k = rng.standard_normal((2, 1, 9, 2, 3))
value = rng.standard_normal((1, 9, 2, 4))
whole, last, _ = linear_state(q, k, value)
state, pieces = None, []
for start, stop in (0, 2), (2, 3), (3, 9):
    piece, state, _ = linear_state(q[:, start:stop], k[:, start:stop], value[:, start:stop], state)
    pieces.append(piece)
assert np.allclose(np.concatenate(pieces, 1), whole, rtol=0, atol=1e-12) and np.allclose(state, last, rtol=0, atol=1e-12)
for result in theorems.verify(["a_state_carries_linear_attention", "alibi_is_two_more_features",
                               "which_variants_have_a_state"]):
    print(textwrap.fill(f"{'holds' if result.ok else 'FAILS'}: {result.statement}", 100, subsequent_indent="    "))
    assert result.ok

# %% [markdown]
# ## 4. Where a token stands, and texts longer than any that was trained on
#
# Attention itself does not know where a token stands; under a causal mask it can tell only from what it sees, which is more
# for a later token. Positions say it outright. Sines and cosines are added to the embedding; rotary positions
# turn queries and keys; ALiBi subtracts from a score the distance of the key, times a slope of the head. Each model below reads 64 bytes at a
# time, and is then asked about the last byte of longer windows, as R does.

# %%
names = {"interleaved": "sines and cosines", "rotary": "rotary", "alibi": "ALiBi"}
fitted = {}
for position in names:
    trained = recipe("text", position=position, steps=400, longest=512, chunks=64, evaluate_every=400, probe=1,
                     initialise="lecun_normal", embedding_scale=True)
    fitted[position] = fit(trained)
lengths = list(trained.lengths.values())
assert trained.chunks == 64 and trained.seed == 0
bits = {position: [done.metrics[split]["bits"] for split in trained.lengths] for position, done in fitted.items()}
print("bits for the last byte, after so many:\n" + " " * 18, " ".join(f"{n:6}" for n in lengths))
for position, words in names.items():
    print(f"{words:18}", " ".join(f"{x:6.2f}" for x in bits[position]))
growth = {position: row[-1] - row[0] for position, row in bits.items()}
assert growth["alibi"] < min(growth["interleaved"], growth["rotary"]), growth

# %%
figure, axis = plt.subplots(figsize=(8, 4))
for (position, words), colour, marker in zip(names.items(), (BLUE, ORANGE, GREEN), "os^", strict=True):
    axis.plot(lengths, bits[position], color=colour, marker=marker, linewidth=2, label=words)
axis.axvline(64, color=GREY, linewidth=1, linestyle=":", label="trained length")
axis.set(xscale="log", xlabel="tokens read (bytes)", ylabel="bits for the last byte",
         xticks=lengths, xticklabels=lengths,
         title="Texts longer than trained on: one run each (seed 0), 400 steps;\n"
               "n = 64 windows of 512 tokens, 128 of 256, and so on")
axis.minorticks_off()
axis.legend()
plt.show()

# %% [markdown]
# One run of each, and the last byte of 64 windows at the longest: with the seeds 0, 1 and 2 ALiBi changes by -0.34, +0.68
# and -0.09 bits from 64 to 512 bytes, sines by +0.54, +1.13 and +0.44, rotary by +1.45, +2.38 and +1.84. In each of the
# three ALiBi loses least, which the code above asserts of seed 0; the sizes differ from seed to seed. To ALiBi a distance
# never trained on only means that a key counts less. Rotary positions turn their slow pairs by angles that no distance in
# training had, and the network never learned what they mean. A learned table has no row beyond its end at all. R's own
# model, `--attention regular_gpt`, grows another level instead, at a dilation that training never had; `refattn reproduce
# table-3` is its table.
#
# ## 5. What it says
#
# Four hundred steps of 16 windows of 64 bytes are some two hundred pages of documentation. `refattn write RUN "def "`
# does this for any run. Each byte is drawn from the softmax of the scores divided by the temperature, over the `top_k`
# greatest of them.

# %%
done = fitted["alibi"]
text = corpus("documentation")
ids = text.encode("The ")
said = written(done.model, done.parameters, ids, 240, temperature=0.7, top_k=30, seed=1)
for line in ("The " + "".join(streamed(text, said))).splitlines():
    print(textwrap.fill(line, 100))

# %% [markdown]
# The kept keys change nothing but the time: the same scores come from reading everything again. The perplexity below is 2
# to the power of the bits for each token, here a byte.

# %%
tokens = text.ids["test"][None, :40].astype(np.int64)
again, _ = done.model.forward(done.parameters, tokens)
kept, scores = None, []
for n in range(40):
    z, kept = done.model.extend(done.parameters, tokens[:, n:n + 1], kept)
    scores.append(z)
assert np.allclose(np.concatenate(scores, 1), again, rtol=1e-3, atol=1e-4)
print({split: round(evaluate(*done[:3], split)["perplexity"], 2) for split in ("validation", "test")})

# %% [markdown]
# ## 6. Change this
#
# (Three exercises, with what comes out and how to grade each, are [here](exercises/README.md). Assertions are about the
# settings that stand here: one that fails after a change is an answer; take it out and go on.)
#
# * `attention="hyla"` or `"linear"` in the last three trainings: H's figure 6 has HYLA ahead of linear attention and close
#   to softmax attention. Which of the two shows in a minute?
# * `attention="regular_gpt", chunk=4`: where does it break, and which power of 4 is that?
# * `unit="words"`: the loss is per word then; `corpus("documentation", unit="words").unknown` says which share of the
#   test's words training never saw.
#
# ## 7. Where the papers differ
#
# None of their corpora is here; they have subwords or 267,744 words, this tutorial has bytes. H's code reads out with scores
# over the root of the width, C scales the embedding instead, R and nanoGPT do neither: `scaled` and `embedding_scale`.
