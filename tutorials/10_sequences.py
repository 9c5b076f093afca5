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
# # Relations and commands: what is the same, and how long it takes to say
#
# [all tutorials](README.md) · before: [9](09_images.py) · after: [11](11_language.py) · [exercises](exercises/README.md)
#
# Pages: [`layers/context_norm.py`](../refattn/layers/context_norm.py), [`tasks/esbn.py`](../refattn/tasks/esbn.py), [`tasks/scan.py`](../refattn/tasks/scan.py), [`models/encoder_decoder.py`](../refattn/models/encoder_decoder.py) · equations: C, sections 4.5, 4.6 · `pip install '.[plots]'`, as a notebook `'.[tutorials]'`
#
# **What you'll do.** Normalise features over a context, by loops and by the layer; answer whether two pictures are the
# same with a network that was never trained; train one on five pictures and ask it about the other ninety-five; turn
# commands into actions, one at a time, with keys and values that are kept; watch it fail beyond the trained length.
#
# **What you'll learn.** Why context normalisation hands equality to a network almost for free; what a search of
# compositional attention finds between pictures; why a split by length breaks networks that are right on all that they
# were trained on; what decoding computes anew at every step, and what it need not.
#
# **What you need.** Tutorials 1 and 4. From the extras: `plots`.
#
# The paper is *Compositional Attention: Disentangling Search and Retrieval* (Mittal et al. 2022), called C, sections
# 4.5 (tasks of Webb et al. 2021, "ESBN") and 4.6 (SCAN, Lake & Baroni 2018). Training takes most of the time.

# %%
import sys
from functools import partial
from time import process_time

import matplotlib
import numpy as np
from threadpoolctl import threadpool_limits

sys.path.append(".")                        # in a checkout that is not installed: run it from the root
if "ipykernel" not in sys.modules:
    matplotlib.use("Agg")                   # as a script: no window
import matplotlib.pyplot as plt

from refattn import check, params
from refattn.layers.context_norm import ContextNorm
from refattn.recipes import recipe
from refattn.tasks.esbn import TASKS, Esbn
from refattn.tasks.glyphs import glyphs
from refattn.tasks.scan import ACTIONS, END, START, STOP, WORDS, Scan, correct, grammar, spoken
from refattn.train import fit
from refattn.train.decoding import greedy
from refattn.verification.cases import find
from refattn.verification.naive.context_norm import context_norm
from refattn.verification.naive.scan import interpret

threadpool_limits(1)                        # products this small are fastest on one thread
plt.rcParams.update({"figure.dpi": 100, "figure.constrained_layout.use": True, "font.size": 11,
                     "axes.spines.top": False, "axes.spines.right": False})
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#666666"      # colour-blind-safe (Okabe & Ito)
rng = np.random.default_rng(0)

# %% [markdown]
# ## 1. The question: the same or different?
#
# A hundred pictures, five of them for training. After training, two of the other ninety-five are shown: are they the
# same? Whatever a network has learned about the five pictures is of no use; it must have learned what *the same* means.
#
# C's released code takes pictures of Unicode symbols. These here are drawn by whole numbers alone, so that they are the same on every
# machine, whatever its fonts.

# %%
pictures = glyphs()
figure, axis = plt.subplots(figsize=(6, 6))
sheet = np.pad(pictures, ((0, 0), (2, 2), (2, 2)), constant_values=0.85)
axis.imshow(sheet.reshape(10, 10, 36, 36).swapaxes(1, 2).reshape(360, 360), cmap="gray", vmin=0, vmax=1)
axis.set(title="All n = 100 pictures, 32 x 32 pixels each")
axis.set_axis_off()
plt.show()

# %% [markdown]
# Four tasks are made of them. A trial is a row of pictures and the label of the right answer: 0 for "the same" and 1 for
# "different", otherwise the place of the right choice, counted from 0. RMTS (relational match to sample) asks which of the
# last two pairs has the relation of the first one; distribution of three, which of the last four completes the second row;
# identity rules, the same for rows AAA, ABA or ABB. Frames show what is given in a row or pair, and what is to be chosen from:

# %%
parts = {"same_different": (2,), "rmts": (2, 2, 2), "distribution_of_three": (3, 2, 4), "identity_rules": (3, 2, 4)}
drawn = {"same_different": (3, 0), "rmts": (3, 0), "distribution_of_three": (0, 5), "identity_rules": (3, 4)}
figure, axes = plt.subplots(4, 2, figsize=(12, 5))
for pair, name in zip(axes, TASKS, strict=True):
    labels = []
    for axis, number in zip(pair, drawn[name], strict=True):
        pictures_of, place, target = Esbn(name, 95).take("train", [number])
        row = np.pad(pictures[pictures_of[place[0]]], ((0, 0), (2, 2), (2, 2)), constant_values=0.85)
        axis.imshow(row.swapaxes(0, 1).reshape(36, -1), cmap="gray", vmin=0, vmax=1)
        for start, n in zip(np.cumsum((0, *parts[name]))[:-1], parts[name], strict=True):
            axis.add_patch(plt.Rectangle((36 * start + 1, 0.5), 36 * n - 3, 34, fill=False, edgecolor=ORANGE,
                                         linewidth=2))
        axis.set_title(f"{name.replace('_', ' ')}: label {target[0]}", fontsize=10, loc="left")
        axis.set_axis_off()
        labels.append(int(target[0]))
    assert labels[0] == 0 < labels[1]
figure.suptitle("Two trials of each task, made of the five pictures to train on")
plt.show()

# %% [markdown]
# How many trials there are follows from the number of objects (rare kinds are repeated), and at most 10,000 of a split are
# taken: with five left to train on, all 480 of RMTS.

# %%
sizes = {name: [Esbn(name, 95).size(split) for split in ("train", "held_out")] for name in TASKS}
for name, (train, held_out) in sizes.items():
    print(f"{name:21s} {train:5,d} trials of five pictures, {held_out:,} of the other ninety-five")
assert pictures.shape == (100, 32, 32)
assert sizes["rmts"] == [480, 10_000] and sizes["same_different"] == [40, 10_000]

# %% [markdown]
# ## 2. Context normalisation
#
# Webb et al. put one layer between the encoder, which makes a vector of each picture, and what looks at the relations:
#
# $$\mathbf{y}_t = \boldsymbol\gamma\,\mathbf{n}_t + \boldsymbol\beta, \qquad \mathbf{n}_t = \frac{\mathbf{x}_t - \boldsymbol\mu}{\sqrt{\boldsymbol\sigma^2 + \epsilon}}, \qquad \boldsymbol\mu = \frac1T\sum_t \mathbf{x}_t, \qquad
# \boldsymbol\sigma^2 = \frac1{T-1}\sum_t (\mathbf{x}_t - \boldsymbol\mu)^2, \qquad \epsilon = 10^{-8}$$
#
# for each feature, over the T positions of a trial. Unlike LayerNorm it looks along time, not along features, and its
# variance is the unbiased one. $\mathbf{x}_t$ acts on $\mathbf{n}_t$ directly, and on all $\mathbf{n}_j$ through mean and
# variance. As $\sum_j (\mathbf{x}_j - \boldsymbol\mu) = 0$, $\partial \boldsymbol\mu / \partial \mathbf{x}_t = 1/T$ and
# $\partial \boldsymbol\sigma^2 / \partial \mathbf{x}_t = 2\, (\mathbf{x}_t - \boldsymbol\mu) / (T - 1)$:
#
# $$\mathbf{r} = \frac{1}{\sqrt{\boldsymbol\sigma^2+\epsilon}}, \qquad
# \frac{\partial \mathbf{r}}{\partial \mathbf{x}_t} = -\tfrac12 \mathbf{r}^3\, \frac{2\, (\mathbf{x}_t - \boldsymbol\mu)}{T-1} = -\frac{\mathbf{r}^2\, \mathbf{n}_t}{T-1},$$
#
# $$\frac{\partial \mathbf{n}_j}{\partial \mathbf{x}_t} = \mathbf{r}\, \Big( [j = t] - \frac1T \Big) + (\mathbf{x}_j - \boldsymbol\mu)\, \frac{\partial \mathbf{r}}{\partial \mathbf{x}_t}
# = \mathbf{r}\, \Big( [j = t] - \frac1T - \frac{\mathbf{n}_j\, \mathbf{n}_t}{T-1} \Big)$$
#
# $$\mathrm{d}\mathbf{n}_j = \boldsymbol\gamma\, \mathrm{d}\mathbf{y}_j, \qquad
# \mathrm{d}\mathbf{x}_t = \sum_j \mathrm{d}\mathbf{n}_j\, \frac{\partial \mathbf{n}_j}{\partial \mathbf{x}_t}
# = \mathbf{r}\,\Big(\mathrm{d}\mathbf{n}_t - \frac1T \sum_j \mathrm{d}\mathbf{n}_j - \mathbf{n}_t\,\frac{\sum_j \mathrm{d}\mathbf{n}_j\, \mathbf{n}_j}{T-1}\Big)$$
#
# The gradients of $\boldsymbol\gamma$ and $\boldsymbol\beta$, which the layer calls `scale` and `shift`, are left to the exercise.
# By loops, by the layer, and checked by the complex step:

# %%
layer = ContextNorm(3)
_, p = params.allocate(layer.parameters(), "float64")
p.scale[...] = 1
x = rng.standard_normal((2, 5, 3))
y, _ = layer.forward(p, x)
assert np.allclose(y, context_norm(x, p.scale, p.shift), rtol=0, atol=1e-12)
error = check.run("derivative", find("layers/ContextNorm in 1"), rng)
print(f"largest relative error of the backward: {error:.1e}")
assert error < 1e-12

# %% [markdown]
# Now two positions. Their mean is half way, each is half their difference away from it, and dividing by the deviation
# leaves nothing of how large that was:
#
# $$\mathbf{n} = \pm\sqrt{1/2}\ \text{ where the two differ},\qquad \mathbf{n} = 0\ \text{ where they are equal.}$$

# %%
both = np.array([[[3.0, -2.0, 7.0], [3.0, 5.0, 7.01]]])         # two vectors: equal, far apart, nearly equal
y, saved = layer.forward(p, both)
print(y.round(4))
assert np.allclose(np.abs(y), [[[0, 0.5**0.5, 0.5**0.5]] * 2], atol=1e-3)

# %% [markdown]
# So the *size* of a normalised pair says whether the two are the same, whatever the pictures are, as long as the encoder
# has not made the same of them. An encoder with random weights will do:

# %%
one = recipe("same_different", hold_out=95)
network = one.build()
flat, p = params.allocate(network.parameters())
params.initialise(flat, network.parameters(), np.random.default_rng(0), one.initialise, one.INITIAL)
batch = one.take("held_out", np.arange(1_000))
seen, options = one.inputs(batch)
_, saved = network.forward(p, seen, **options)
size = np.abs(saved.norm.n).mean(axis=(1, 2, 3))                # of a pair's normalised vectors, over all features

figure, axis = plt.subplots(figsize=(8, 3.4))
for label, colour, words in (0, BLUE, "same"), (1, ORANGE, "different"):
    axis.hist(size[batch.target == label], bins=np.linspace(0, 0.75, 60), color=colour, label=words)
axis.set(xlabel="mean |n| of a pair of pictures", ylabel="trials",
         title="Untrained encoder (seed 0), n = 1,000 trials with pictures of the test")
axis.legend(frameon=False)
plt.show()
accuracy = ((size > 0.1) == (batch.target == 1)).mean()
print(f"a threshold on it is right on {accuracy:.1%} of 1,000 trials with pictures of the test")
each = np.abs(saved.norm.n)[batch.target == 1]
zero, full = (each < 0.01).mean(), (np.abs(each - 0.5**0.5) < 0.01).mean()
print(f"of the features of different pairs {zero:.0%} have |n| below 0.01, {full:.0%} have 0.71")
assert accuracy == 1 and zero > 0.3 and zero + full > 0.99

# %% [markdown]
# Why is the size of a different pair not $\sqrt{1/2} = 0.71$? The encoder ends in a relu, so that many features are 0 for
# both pictures, where $\mathbf{n} = 0$; nearly all others have 0.71 (the shares are printed above). The mean is over both.
#
# There is a price. Where a feature is constant the factor $\mathbf{r}$ is $1/\sqrt{\epsilon} = 10^4$, and in float32 whatever
# differs by rounding alone is blown up with it.
#
# ## 3. A relation between relations
#
# In RMTS this is not yet the answer: *same* and *different* must be found in three pairs, and then compared. Each pair
# is normalised for itself (three segments), and one block of attention looks at all six pictures. Trained on the 480
# trials of five pictures:

# %%
fits = {attention: fit(recipe("rmts", hold_out=95, attention=attention, retrievals=2, steps=600, evaluation=1_000))
        for attention in ("softmax", "compositional")}
for attention, fitted in fits.items():
    print(f"{attention:13}  trained on: {fitted.metrics['train']['accuracy']:.3f}   "
          f"never seen: {fitted.metrics['held_out']['accuracy']:.3f}")
assert all(fitted.metrics["train"]["accuracy"] > 0.95 for fitted in fits.values())
assert fits["compositional"].metrics["held_out"]["accuracy"] > fits["softmax"].metrics["held_out"]["accuracy"]

# %% [markdown]
# What do the eight searches of the compositional block look for? Their scores, mean over trials of the test, for trials
# whose source pair is the same picture twice (above) and for the others:

# %%
fitted = fits["compositional"]
one = fitted.recipe
batch = one.take("held_out", np.arange(1_000))
seen, options = one.inputs(batch)
_, saved = fitted.model.forward(fitted.parameters, seen, **options)
scores = saved.stack.blocks[0].attention.attention.search_scores           # (b, s, q, k)
source_same = (batch.place[:, 0] == batch.place[:, 1])
largest = max(scores[which].mean(axis=0).max() for which in (source_same, ~source_same))
figure, axes = plt.subplots(2, 8, figsize=(12, 4.2), sharex=True, sharey=True)
for row, (words, which) in enumerate((("same", source_same), ("different", ~source_same))):
    for s in range(8):
        image = axes[row, s].imshow(scores[which, s].mean(axis=0), vmin=0, vmax=largest, cmap="cividis")
        axes[row, s].set(xticks=range(6), xticklabels=range(1, 7), yticks=range(6), yticklabels=range(1, 7),
                         title=f"search {s + 1}" if row == 0 else "")
    axes[row, 0].set_ylabel(f"source {words}\n(n = {which.sum()})\nquery: picture")
for axis in axes[1]:
    axis.set_xlabel("key: picture")
figure.colorbar(image, ax=axes, label="mean search score", shrink=0.8)
figure.suptitle("What searches look at in RMTS (seed 0): pictures 1 and 2 are the source, 3 and 4, 5 and 6 the choices")
plt.show()
away = np.abs(scores[source_same].mean(axis=0) - scores[~source_same].mean(axis=0)).max(axis=(1, 2))
print("largest difference between the two kinds of trial by search:", *(f"{x:.2f}" for x in away))
source = scores[..., :2].sum(axis=-1).mean(axis=(0, 2))                    # (s): on pictures 1 and 2, over all queries
print("weight of each search on pictures 1 and 2, two of six:", *(f"{x:.2f}" for x in source))
assert np.allclose(scores.sum(axis=-1), 1, atol=1e-5) and away.max() < 0.15 and source.min() > 1 / 3

# %% [markdown]
# **What is seen.** Chance is 0.5. Both networks know the 480 trials by heart, and compositional attention knows more of the
# new pictures. One run each shows no more than that: rounding alone moves it. With
# OpenBLAS's kernels for Haswell (`OPENBLAS_CORETYPE=Haswell`) these seeds have 0.905 and 0.997, as in the notebook, with
# those for SkylakeX 0.792 and 0.960. In the recorded runs, eight seeds and more steps, softmax attention has 0.626 ± 0.067
# (mean ± standard error) and compositional attention with 1 retrieval 0.780 ± 0.050 ([results](../docs/results.md)). The
# searches, too, are of this run. Each gives the pictures of the source more than a third of its weight, which is their
# share of the pictures. And each looks at nearly the same places in both kinds of trial.
#
# ## 4. Commands
#
# SCAN has 20,910 commands, all that a small grammar makes, and each means a sequence of actions.

# %%
for command in "jump twice", "walk around left", "run thrice after turn opposite right":
    actions = grammar()[command]
    assert list(actions) == interpret(command.split())
    print(f"{command}: {' '.join(actions)}")
assert len(grammar()) == 20_910

# %% [markdown]
# C trains on all commands with at most so many actions (the cut-off; a tenth of them is held out) and asks about all
# others. Some lengths do not occur, so the cut-offs 28 and 29 are one split, though table 4 has a column for each: by how
# much the two columns differ is how much runs differ by themselves.

# %%
lengths = np.array([len(actions) for actions in grammar().values()])
figure, axis = plt.subplots(figsize=(8, 3.2))
numbers, counts = np.unique(lengths, return_counts=True)
for which, colour, hatch, words in ((numbers <= 26, BLUE, "", "trained on (a tenth held out)"),
                                    (numbers > 26, ORANGE, "//", "asked about")):
    axis.bar(numbers[which], counts[which], color=colour, hatch=hatch, edgecolor="white", label=words)
axis.set(xlabel="actions of a command", ylabel="commands",
         title=f"SCAN at the cut-off 26: n = {len(lengths):,} commands")
axis.legend(frameon=False)
plt.show()
assert 29 not in lengths
assert [Scan(28).size(split) for split in ("train", "longer")] == [Scan(29).size(split) for split in (
    "train", "longer")]

# %% [markdown]
# Now a small network, trained up to 8 actions (the figure above is of 26, one of C's cut-offs). Its **encoder** attends within
# the command. Its **decoder** attends to the actions said so far, and then, in **cross-attention**, to the command: with
# queries of the actions, and keys and values of the encoder's output. Each is one block applied twice. (`refattn train scan
# --scale paper` trains as the paper does, two runs of 50,000 steps; 10,000 took 73 to 110 minutes in the recorded runs.)

# %%
one = recipe("scan", attention="softmax", cutoff=8, steps=1_200, heads=4, evaluation=256, evaluate_every=1_200)
small = fit(one)
for split, found in small.metrics.items():
    print(f"{split:8}  {found['accuracy']:.3f} of sequences exactly right")
assert small.metrics["held_out"]["accuracy"] > 0.5 > small.metrics["longer"]["accuracy"]

# %% [markdown]
# ## 5. Decoding, step by step
#
# The decoder begins with END, as there is no other mark of where the actions begin. It says one action, takes it as its
# next input, and goes on until it says END. At step $t$ it has read $t$ tokens, END and $t - 1$ actions. The keys and
# values of all but the last of these are what they were, since no position sees a later one; those of the command never
# change. So `begin` projects the command once, and `extend` projects one token and appends it to what is kept (the KV
# cache):

# %%
model, p = small.model, small.parameters
command = "walk opposite left and jump twice"
tokens = np.array([[START, *(WORDS.index(word) for word in command.split()), STOP]])
state = model.begin(p, tokens, np.ones((1, 1, 1, tokens.shape[1]), dtype=bool))
said, action = [], np.array([[END]])
while len(said) < 12:
    y, state = model.extend(p, action, state)
    action = y[:, -1:].argmax(axis=-1)
    said.append(int(action[0, 0]))
    if said[-1] == END:
        break
print(f"{command}: {spoken(said)}")
print(f"right: {correct([said], [[*(ACTIONS.index(x) for x in grammar()[command]), END]])[0]}")

whole, saved = model.forward(p, tokens, target=np.array([[END, *said[:-1]]]))
assert np.array_equal(whole[0].argmax(axis=-1), said)           # all at once: the same

# %% [markdown]
# What each of the actions looked at in the command: the weights of cross-attention in the second application of the
# decoder's block.

# %%
weights = saved.decoder.blocks[-1].cross.attention.code[0]      # (h, q, k)
figure, axes = plt.subplots(1, 4, figsize=(12, 4), sharey=True)
for h, axis in enumerate(axes):
    image = axis.imshow(weights[h], vmin=0, vmax=1, cmap="cividis", aspect="auto")
    axis.set_xticks(range(tokens.shape[1]), ["start", *command.split(), "stop"], rotation=60, ha="right", fontsize=9)
    axis.set(title=f"head {h + 1}", xlabel="word of the command")
axes[0].set_yticks(range(len(said)), [*(spoken([x]) for x in said[:-1]), "END"], fontsize=9)
axes[0].set_ylabel("action said")
figure.colorbar(image, ax=axes, label="weight")
figure.suptitle("Cross-attention while decoding one command (seed 0)")
plt.show()
assert np.allclose(weights.sum(axis=-1), 1, atol=1e-5)

# %% [markdown]
# **What is seen.** Head 1 looks at walk while the decoder walks, and at jump while it jumps and at END; while it turns, at
# left and at walk. Head 3 looks at left while the decoder turns, head 4 at twice while it jumps and at END. It is one command
# and one run.
#
# Keeping is worth a lot, and more the longer the answer. A hundred commands, with the whole target anew at every step,
# and with what is kept:

# %%
batch = one.take("longer", np.arange(100))
x, options = one.inputs(batch)
seconds = []
for keep in True, False:
    begin, asked = process_time(), np.full((100, 1), END)
    if keep:
        kept = greedy(partial(model.extend, p), model.begin(p, x, options["source_keep"]), asked, 30)
    else:
        for _ in range(30):
            y, _ = model.forward(p, x, target=asked, source_keep=options["source_keep"])
            asked = np.concatenate([asked, y[:, -1:].argmax(axis=-1)], axis=1)
    seconds.append(process_time() - begin)
print(f"30 actions each: {seconds[1] / seconds[0]:.0f} times faster with what is kept")
assert (kept == asked[:, 1:]).mean() > 0.999 and seconds[1] > 2 * seconds[0]

# %% [markdown]
# ## 6. Why length splits break
#
# How long are the answers? Up to the cut-off nearly all are as long as they should be; beyond it few are, and most are too
# short. Positions after the ninth were never in training, so their position vectors are new, and END was always said by
# then. Most of the rest go on too long: where END was not said in time, nothing has taught when to.

# %%
groups = {"trained lengths": one.take("train", np.arange(300)), "longer": one.take("longer", np.arange(300))}
figure, axis = plt.subplots(figsize=(8, 3.8))
for (words, batch), colour, marker in zip(groups.items(), (BLUE, ORANGE), "o^", strict=True):
    said = one.predict(model, p, batch)
    ended = np.where((said == END).any(axis=1), (said == END).argmax(axis=1), said.shape[1])
    as_long = (ended == batch.length).mean()
    print(f"{words}: {as_long:.0%} of the answers are as long as they should be")
    assert as_long > 0.9 if words == "trained lengths" else as_long < 0.2
    axis.scatter(batch.length + rng.uniform(-0.3, 0.3, 300), ended + rng.uniform(-0.3, 0.3, 300), s=10, color=colour,
                 marker=marker, label=f"{words} (n = 300)")
    if words == "longer":
        short, over = (ended < batch.length).mean(), (ended > batch.length).mean()
axis.plot([0, 48], [0, 48], color=GREY, linewidth=1, label="as long as it should be")
axis.set(xlabel="actions of the right answer", ylabel="actions said",
         title="SCAN, trained up to 8 actions: one run (seed 0),\npoints moved by up to 0.3")
axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()
print(f"of the longer commands, {short:.0%} are answered with too few actions, {over:.0%} with too many")
assert short > 0.5 and over > (1 - short) / 2

# %% [markdown]
# ## 7. Change this
#
# (Three exercises, with what comes out and how to grade each, are [here](exercises/README.md). Assertions are about the
# settings that stand here: one that fails after a change is an answer; take it out and go on.)
#
# * Leave out the segments of RMTS: `from refattn.tasks import esbn; esbn.TASKS["rmts"] = esbn.TASKS["rmts"]._replace(segments=1)`
#   before section 3. Does the network still learn? (Softmax attention, seed 0, the same 600 steps: with the kernels for
#   Haswell 0.71 of the trained trials right and 0.54 of the new ones, with those for SkylakeX 0.74 and 0.48.)
# * Ask a network trained with `hold_out=50` about `distribution_of_three`.
# * Train SCAN with `attention="compositional", scoring="dot"`, which sees the query, and with `"linear"`, which cannot:
#   the query's part is the same for all retrievals, and the softmax over them drops it. (What section 5 draws, `code`, is
#   `search_scores` then.)
# * Train with a `cutoff` of 22: which commands of 24 actions are right?
#
# ## 8. Where the paper, its code and this page differ
#
# The recipes follow the code. ESBN's rate is 0.0001 in the text, 0.0005 in the code; identity rules are ABA in the text,
# AAA, ABA and ABB in the code; SCAN has dot products in the text and one linear map in the code, in which the query
# cancels. [All differences](../docs/differences.md).
