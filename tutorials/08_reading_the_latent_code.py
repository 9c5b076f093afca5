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
# # Reading the latent code: does it say which function is being computed?
#
# [all tutorials](README.md) · before: [7](07_sraven.py) · after: [9](09_images.py) · [exercises](exercises/README.md)
#
# Pages: [`analysis/latent_code.py`](../refattn/analysis/latent_code.py), [`tasks/fuzzy_logic.py`](../refattn/tasks/fuzzy_logic.py), [`attention/hyla.py`](../refattn/attention/hyla.py) · equations: H, 4, figures 2, 5 · `pip install '.[plots]'`, as a notebook `'.[tutorials]'`
#
# **What you'll do.** Compute the latent code of one query-key pair by hand; train HYLA and softmax attention on a
# small fuzzy logic; read the functions off their codes, layer by layer, on functions that no training step saw;
# look at the codes; take all heads but one away.
#
# **What you'll learn.** What a latent code can say and in which layer it starts to; why a score means nothing
# without that of shuffled labels and that of the bare answer beside it; that softmax attention's code can be read
# as well.
#
# **What you need.** Tutorials 1 to 3, and scikit-learn (`pip install '.[plots]'`).
#
# The paper is *Attention as a Hypernetwork* (Schug et al. 2025), called H; equation and figure numbers are H's.
# Training takes most of the time.

# %%
import sys

import matplotlib
import numpy as np
from threadpoolctl import threadpool_limits

sys.path.append(".")                        # in a checkout that is not installed: run it from the root
if "ipykernel" not in sys.modules:
    matplotlib.use("Agg")                   # as a script: no window
import matplotlib.pyplot as plt

from refattn.analysis import latent_code
from refattn.analysis.latent_code import observe, report
from refattn.recipes import recipe
from refattn.train import fit

threadpool_limits(1)                        # products this small are fastest on one thread
plt.rcParams.update({"figure.dpi": 100, "figure.constrained_layout.use": True, "font.size": 11,
                     "axes.spines.top": False, "axes.spines.right": False})
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#666666"      # colour-blind-safe (Okabe & Ito)

# %% [markdown]
# ## 1. The question
#
# In tutorial 2 multi-head attention became a hypernetwork: the attention weights of one query-key pair, one from each head, its
# **latent code** $\mathbf{a}_{:qk}$, generate the linear map that the pair applies to $\mathbf{x}_k$,
#
# $$\mathbf{W}_{qk} = \sum_h \mathbf{a}_{hqk}\, \mathbf{W}_h^{\mathrm{out}} \mathbf{W}_h^{\mathrm{value}} \tag{eq. 4}$$
#
# If that is more than a way of writing, codes should say *what is computed*: equal for tasks that ask for
# the same operation, different for others, also for combinations that were never trained.
#
# H asks this of fuzzy logic. A task is a function of a few variables made of two *terms*, each the least of all its
# *literals*, a literal being a variable or 1 minus it, such as
#
# $$f(x) = \max\big( \min(x_1, 1 - x_2, x_3),\; \min(1 - x_1, x_2, x_3) \big)$$
#
# T - 1 tokens show (x, f(x)), the last shows x alone, and the model predicts f(x). The code to look at is that of
# **the last token attending to itself**, in each layer. Trained functions and held-out ones are made of the same
# terms, in other pairs.
#
# ## 2. Two small models
#
# Three variables (8 terms, 6 of them known, 15 pairs; 6 pairs are held out), T = 32, 2 layers of 8 heads, 1,300
# steps at rate 0.003, no dropout, one seed: 2, chosen because HYLA's R2 on held-out pairs is higher with it than
# with the seeds 0 and 1. At rate 0.005 some runs stop learning, and which ones do depends on the last bits of the
# arithmetic. Pooled R2 is that of tutorial 2: 1 is perfect, 0 is always answering the mean.

# %%
settings = dict(variables=3, held_out=0.4, width=64, hidden=128, heads=8, batch=64, steps=1_300, rate=3e-3, clip=1.0,
                attention_dropout=0.0, evaluation=960, log_every=50, evaluate_every=1_300)
models, quality = {}, {}
for name in "hyla", "softmax":
    fitted = fit(recipe("fuzzy_logic", "quick", attention=name, seed=2, **settings))
    models[name] = fitted[:3]
    print(f"{name:8s} pooled R2: trained pairs {fitted.metrics['train']['r2_pooled']:.2f}, "
          f"held-out pairs {fitted.metrics['held_out']['r2_pooled']:.2f}")
    quality[name] = fitted.metrics["held_out"]["r2_pooled"]
    assert quality[name] > 0.4

# %% [markdown]
# ## 3. The code, by hand
#
# Nothing needs a hook: what a forward pass saves is a named tuple, and the code is a field of it. Here is layer
# 1 of HYLA for one sequence, written out from the parameters: embed, LayerNorm, queries and keys, relative-position
# bias, RMSHead (tutorial 3).

# %%
settings_of, model, p = models["hyla"]
batch = settings_of.sample(np.random.default_rng(0), "held_out", 3)
y, saved = model.forward(p, batch.tokens)
code = saved.blocks[0].attention.attention.code            # (b, h, q, k)
print("the code has shape", code.shape)

x = batch.tokens[0] @ p.embed.w + p.embed.b
block = p.blocks[0]
n = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
n = n * block.norm1.scale + block.norm1.shift
at = -1                                                    # the last token, attending to itself
score = np.zeros(8)
for h in range(8):
    q = n[at] @ block.attention.wq[:, h] + block.attention.bq[h]
    k = n[at] @ block.attention.wk[:, h] + block.attention.bk[h]
    score[h] = q @ k / np.sqrt(len(q)) + block.position.table[h, 0]           # distance 0
by_hand = score / np.sqrt(np.mean(score**2) + 1e-6)
print("by hand ", by_hand.round(3))
print("as saved", code[0, :, at, at].round(3))
assert np.allclose(by_hand, code[0, :, at, at], atol=1e-4)

# %% [markdown]
# Look at what went in: the last token's own x, and nothing else. **In layer 1 HYLA's code of a token with itself
# cannot know the function.** If the query's x is the same for all tasks, so is the code. Softmax divides by a sum
# over all keys, so its code can know more, even in layer 1. That is something to predict before measuring:

# %%
rng = np.random.default_rng(1)
query = rng.random(3)                                      # the same x in the last token of every task
fixed = {(name, split): observe(*models[name], rng, split, 3_000, query=query)
         for name in models for split in ("train", "held_out")}
for name in models:
    codes = fixed[name, "held_out"]
    spread = [codes.at(layer).std(axis=0).mean() for layer in (0, 1)]
    print(f"{name:8s} spread of the code over tasks: layer 1 {spread[0]:.1e}, layer 2 {spread[1]:.1e}")
    assert (spread[0] < 1e-6) == (name == "hyla") and spread[1] > 1e-3

# %% [markdown]
# ## 4. Reading the terms
#
# A logistic regression is fitted from codes to a term, on **trained** functions, and scored on **held-out** ones.
# The score is macro-F1: for each term the harmonic mean of precision and recall, then the mean over terms, so
# that a frequent term does not hide the others. Terms of a task are numbered in increasing order; "any term" asks
# instead for each term whether it is in the task. Two scores stand beside each:
#
# * that of the same regression after the labels were **shuffled**: what a code scores that says nothing. It
#   differs by label, and by layer. For a code that is constant to the last bit "any term" may score 0, as the
#   regression then never says yes; where rounding alone makes codes differ, as on some processors, it is about a third;
# * that of a regression from the true **answer** f(x) in place of the code: what a code scores that says nothing
#   but the answer. At one query the answer alone tells functions apart to some extent.
#
# One query shows only some differences between functions, so scores are means over six queries.

# %%
labels = "term 1", "term 2", "any term"
found = {name: [] for name in models}
for query in rng.random((6, 3)):
    for name in models:
        found[name].append(report(*(observe(*models[name], rng, split, 1_500, query=query)
                                    for split in ("train", "held_out"))))
reports = {name: {layer: {label: np.mean([one[layer][label] for one in each]) for label in each[0][layer]}
                  for layer in each[0]} for name, each in found.items()}
print("macro-F1 on held-out functions" + "".join(f"{label:>10s}" for label in labels))
for name, layers in reports.items():
    for layer, scores in layers.items():
        for what, kind in (("", ""), ("shuffled", "shuffled "), ("answer", "answer ")):
            print(f"{name if not what else '':9s}{layer if not what else '':9s}{what:12s}"
                  + "".join(f"{scores[kind + label]:10.2f}" for label in labels))
late, early = reports["hyla"]["layer 2"], reports["hyla"]["layer 1"]
for label in labels:
    assert late[label] > late[f"shuffled {label}"] + 0.1 and late[label] > early[label] + 0.1
    assert abs(early[label] - early[f"shuffled {label}"]) < 0.06
    assert reports["softmax"]["layer 1"][label] > reports["softmax"]["layer 1"][f"shuffled {label}"]
above = {label: late[label] - late[f"answer {label}"] for label in labels}
print("HYLA, layer 2, above the answer alone:", {label: round(float(x), 2) for label, x in above.items()})
assert max(map(abs, above.values())) < 0.2 and 0.1 < late["term 1"] < late["any term"]

# %%
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True)
for ax, label in zip(axes, labels, strict=True):
    for place, (name, colour) in enumerate((("hyla", BLUE), ("softmax", ORANGE))):
        for layer, scores in enumerate(reports[name].values()):
            where = layer + 0.36 * place - 0.18
            ax.bar(where, scores[label], width=0.34, color=colour, label=name if layer == 0 else None)
            for kind, style in (("answer", ":"), ("shuffled", "-")):
                ax.plot([where - 0.17, where + 0.17], [scores[f"{kind} {label}"]] * 2, "k", linestyle=style,
                        linewidth=2, label={"answer": "the answer alone", "shuffled": "shuffled labels"}[kind]
                        if (place, layer) == (1, 0) else None)
    ax.set(title=label, xlabel="layer", xticks=[0, 1], ylim=(0, 1))
    ax.set_xticklabels(["1", "2"])
axes[0].set_ylabel("macro-F1, held-out functions")
axes[2].legend(fontsize=9, loc="upper left")
figure.suptitle("What the code of the last token with itself says (mean of n = 6 queries of 1,500 tasks, seed 2)")

# %% [markdown]
# **What is seen.** HYLA's layer 1 says nothing, as predicted; softmax's says something already. In layer 2 HYLA's code says
# more than shuffled labels about both terms and about "any term", by more than 0.1 each, on functions that were never
# trained, so something in it goes with terms and not with whole functions. But much of it the bare answer says as well, which
# the model is about to give anyway; what the code says above the answer is printed last, and it is little. H gives neither of
# these two scores. It looks at the answer by colour alone (figure 2D), and finds that it explains clusters only in part.
#
# **What is not seen.** That HYLA's code is the more readable one, or how much of a difference of a few hundredths is
# chance: one seed, one small model. `refattn reproduce
# claims` has the differences, paired over the seeds of larger runs, with intervals.
#
# The paper fixes the *context's* x and varies the query. Then the code also has to follow the query's x, and
# one linear regression has a harder time. Beside it the probe of the released code, a ridge regression from the codes
# of both layers to each literal of the two terms, 1 for a variable and 0 for 1 minus it:

# %%
context = rng.random((settings_of.length - 1, 3))
varied = [observe(*models["hyla"], rng, split, 3_000, context=context) for split in ("train", "held_out")]
harder = report(*varied)["layer 2"]
for label in labels:
    print(f"{label:9s} query fixed {late[label]:.2f} (shuffled {late[f'shuffled {label}']:.2f}), "
          f"context fixed {harder[label]:.2f} (shuffled {harder[f'shuffled {label}']:.2f})")
probe = latent_code.probe(fixed["hyla", "train"], 3)
print(f"ridge probe: R2 {probe:.2f} of the signs of the literals, trained functions, one fixed query")
assert 0.1 < probe < 1 and all(harder[label] < late[label] for label in labels)

# %% [markdown]
# ## 5. Looking at the codes
#
# t-SNE puts codes that are close together close together on paper; distances between groups mean nothing. Layer 2 of HYLA,
# held-out functions, query fixed: each point is one task. Left coloured by the answer, then by the terms. A term is written
# as one digit for each variable, 1 as it is, 0 negated: 001 is min(1 − x₁, 1 − x₂, x₃). Groups go with the answer first:
# within one answer the terms lie mixed, in part.

# %%
shown = fixed["hyla", "held_out"]
some = slice(0, 900)
places = latent_code.embed(shown.at(1)[some], seed=0)
figure, axes = plt.subplots(1, 3, figsize=(12, 3.8))
terms = np.unique([*shown.labels.values()])
colours = BLUE, ORANGE, GREEN, GREY, "#CC79A7", "#D55E00", "#56B4E9", "#F0E442"
look = {term: (colours[n], "os^DvXP*"[n]) for n, term in enumerate(terms)}        # one in both panels
for ax, (title, values) in zip(axes, (("answer", shown.target), *shown.labels.items()), strict=True):
    if values.dtype.kind == "f":
        drawn = ax.scatter(*places.T, c=values[some], s=7, cmap="cividis", linewidths=0)
        figure.colorbar(drawn, ax=ax, label="f(x)")
    else:
        for term in np.unique(values):
            mine = values[some] == term
            colour, marker = look[term]
            ax.scatter(*places[mine].T, s=7, linewidths=0, label=f"{term:03b}", color=colour, marker=marker)
        ax.legend(title="term", fontsize=8, markerscale=2, loc="center left", bbox_to_anchor=(1, 0.5))
    ax.set(title=title, xlabel="t-SNE 1", ylabel="t-SNE 2", xticks=[], yticks=[])
figure.suptitle(f"HYLA, layer 2: latent codes of n = {len(places)} held-out tasks, one query, one run (seed 2)")

# %% [markdown]
# The mean code of each function, trained and held out, compared by cosine. Functions are written by their two terms.
# Functions that share a term *seem* to lie closer. But they also tend to have the same answer at this query; so compare
# only functions with the same answer, and only with different ones:

# %%
both = [fixed["hyla", split] for split in ("train", "held_out")]
codes, terms, targets = (np.concatenate(x) for x in ([part.at(1) for part in both], [part.terms for part in both],
                                                     [part.target for part in both]))
number = terms[:, 0] * 8 + terms[:, 1]
names, cosines = latent_code.similarity(codes - codes.mean(axis=0), number)
answers = np.array([targets[number == name].mean() for name in names])
order = np.lexsort((names, answers))                                        # by answer, then by terms
names, answers, cosines = names[order], answers[order], cosines[np.ix_(order, order)]
pairs = np.stack([names // 8, names % 8], axis=1)
share = (pairs[:, None, :, None] == pairs[None, :, None, :]).any(axis=(2, 3))
alike = np.isclose(answers[:, None], answers, atol=1e-4)
upper = np.triu(np.ones_like(share), 1).astype(bool)
print("mean cosine of centred mean codes        with a term in common     without")
for words, which in (("all pairs of functions", upper), ("same answer", upper & alike),
                     ("different answers", upper & ~alike)):
    print(f"{words:40s} {cosines[share & which].mean():+.3f} (n = {(share & which).sum():3d})        "
          f"{cosines[~share & which].mean():+.3f} (n = {(~share & which).sum():3d})")
by_term = cosines[share & upper].mean() - cosines[~share & upper].mean()
within = [cosines[share & which].mean() - cosines[~share & which].mean() for which in (upper & alike, upper & ~alike)]
assert by_term > 0.2 and max(map(abs, within)) < by_term / 3
assert cosines[upper & alike].mean() > cosines[upper & ~alike].mean() + 0.5

figure, ax = plt.subplots(figsize=(6.4, 5.2))
image = ax.imshow(cosines, vmin=-1, vmax=1, cmap="RdBu_r")
for place in np.flatnonzero(np.diff(answers) > 1e-4) + 0.5:
    ax.axhline(place, color="black", linewidth=1)
    ax.axvline(place, color="black", linewidth=1)
text = [f"{a:03b} {b:03b}" for a, b in pairs]
ax.set_xticks(range(len(text)), text, rotation=90, fontsize=8)
ax.set_yticks(range(len(text)), text, fontsize=8)
ax.set(xlabel="function", ylabel="function, ordered by its answer (lines)",
       title=f"HYLA, layer 2: mean codes of n = {len(names)} functions (seed 2)")
figure.colorbar(image, ax=ax, label="cosine of centred mean codes", shrink=0.85)

# %% [markdown]
# **What is seen.** Here the answer decides: with it held fixed, a term in common makes much less difference (though of the
# same answer and without a common term there are only three pairs). A picture of codes that lie "by function" may be one of
# codes that lie by answer.
#
# ## 6. How many heads does a code need?
#
# The code has one number from each head. With one, RMSHead leaves a sign: every pair applies one of two fixed maps,
# $\mathbf{W}^{\mathrm{out}} \operatorname{relu}(\mathbf{v}_k)$ or $-\mathbf{W}^{\mathrm{out}} \operatorname{relu}(-\mathbf{v}_k)$,
# $\mathbf{v}_k$ being the value of the key, and there is no code to speak of. Same training, one head:

# %%
alone = fit(recipe("fuzzy_logic", "quick", attention="hyla", seed=2, **{**settings, "heads": 1}))
one = observe(*alone[:3], rng, "held_out", 1_000, query=query)
print("values of the one-number code in layer 2:", np.unique(one.at(1).round(3)))
held_out = {8: quality["hyla"], 1: alone.metrics["held_out"]["r2_pooled"]}
print(f"held-out pooled R2: {held_out[8]:.2f} with 8 heads, {held_out[1]:.2f} with 1")
assert np.allclose(np.abs(one.at(1)), 1, atol=1e-2) and held_out[8] > held_out[1] + 0.2

# %% [markdown]
# (Here fewer heads are fewer parameters too, as each head is two features wide. Runs with heads that share one width, which
# takes the two apart, are recorded: `refattn reproduce heads`, and of SRAVEN `refattn reproduce figure-5c`. H does not say
# whether Figure 5C keeps the width of a head or that of all heads together; for SRAVEN Table A3 has 64, in the released
# code that of all 16 heads.)
#
# ## 7. Change this
#
# (Three exercises, with what comes out and how to grade each, are [here](exercises/README.md). Assertions are about the
# settings that stand here: one that fails after a change is an answer; take it out and go on.)
#
# * `"hyla_no_rms_head"` or `"linear"` in the place of each `"softmax"`: whose layer 1 can say something?
# * Take another `query`, say all 0.5, where every literal has the same value. What is left to read?
# * `seed=1` everywhere: which of the sentences above still hold? `refattn reproduce claims` says it for larger runs.
# * `observe(..., context=context, query=query)`: all inputs fixed. What can still differ between two tasks?
# * `report(..., seed=7)` shuffles otherwise. How much does the chance level move?
#
# ## 8. Where the paper, its code and this page differ
#
# * H fixes the context's x and varies the query (figure 2B); its code saves codes with a fixed context and with a
#   fixed query, and has the ridge probe but no logistic regression. Regulariser, average of F1 and numbers of points
#   are not stated; here: scikit-learn's default, macro, 1,500 or 3,000.
# * H's code trains four variables for 50,000 steps with attention dropout; here three variables, 1,300 steps, none.
# * Figures 2B and 5F show no scores of shuffled labels or of the answer alone. With few functions chance is far
#   from 0, and differs by label.
# * H names T5-style positions, not where they enter, and no final LayerNorm; the code has both; the layer computed by
#   hand above has the bias of the position.
