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
# # SRAVEN: how well can anybody do?
#
# [all tutorials](README.md) · before: [6](06_regulargpt.py) · after: [8](08_reading_the_latent_code.py) · [exercises](exercises/README.md)
#
# Pages: [`tasks/sraven.py`](../refattn/tasks/sraven.py), [`tasks/sraven_ambiguity.py`](../refattn/tasks/sraven_ambiguity.py), [`tasks/sraven_bayes.py`](../refattn/tasks/sraven_bayes.py) · equations: H, section 4 and appendix B · `pip install '.[plots]'`, as a notebook `'.[tutorials]'`
#
# **What you'll do.** Build a symbolic Raven matrix by hand, shuffle its features, and find out again which of them
# belong together; count how many matrices have more than one answer; compute the best answer that there is.
#
# **What you'll learn.** What makes the task hard; that "ambiguous" has two meanings whose counts differ by a factor of ten
# to several hundred; which accuracy nobody can pass, and how far below it the published models are.
#
# **What you need.** Counting; from section 4 on conditional probabilities. No network is trained here; `refattn train
# sraven` does that.
#
# The paper is *Attention as a Hypernetwork* (Schug et al. 2025), called H; section 4 and appendix B.

# %%
import itertools
import sys

import matplotlib
import numpy as np

sys.path.append(".")                        # in a checkout that is not installed: run it from the root
if "ipykernel" not in sys.modules:
    matplotlib.use("Agg")                   # as a script: no window
import matplotlib.pyplot as plt

from refattn.reproduce.published import TABLE_A1, TABLE_A2
from refattn.tasks import sraven_ambiguity as ambiguity
from refattn.tasks import sraven_bayes as bayes
from refattn.tasks.sraven import RULES, Sraven, truth
from refattn.tasks.sraven_hypotheses import hypotheses
from refattn.verification.naive import sraven as naive

plt.rcParams.update({"figure.dpi": 100, "figure.constrained_layout.use": True, "font.size": 11,
                     "axes.spines.top": False, "axes.spines.right": False})
COLOURS = "#0072B2", "#E69F00", "#009E73", "#CC79A7"        # colour-blind-safe (Okabe & Ito)
BLUE, ORANGE, GREEN, _ = COLOURS
GREY = "#666666"
rng = np.random.default_rng(0)

# %% [markdown]
# ## 1. By hand
#
# Nine panels in three rows; each panel has M features with values 0 ... K - 1. Every feature has a rule, and the
# rule makes each of its three rows. There are eight rules (all sums modulo K):
#
# | rule | a row is |
# |---|---|
# | constant | x, x, x |
# | progression +1, +2, −1, −2 | x, x + c, x + 2c, with c = 1, 2, −1, −2 |
# | addition | x, y, x + y |
# | subtraction | x, y, x − y |
# | distribute three | three different values, the same three in each row, in an order of its own |
#
# Here are M = 4 features, K = 8 values, and one rule of each kind:

# %%
M, K = 4, 8
assert RULES == ("constant", *(f"progression {c:+d}" for c in (1, 2, -1, -2)), "addition", "subtraction",
                 "distribute three")
CHOSEN = 0, 1, 5, 7                                         # in non-decreasing order, as the generator has them
constant = [[x, x, x] for x in (3, 6, 0)]
progression = [[x, (x + 1) % K, (x + 2) % K] for x in (2, 7, 4)]
addition = [[x, y, (x + y) % K] for x, y in ((1, 5), (4, 4), (7, 2))]
three = [[2, 5, 6], [5, 6, 2], [6, 2, 5]]                   # three different symbols, each row in its own order
features = np.array([constant, progression, addition, three]).transpose(1, 2, 0)        # (row, column, feature)
for rule, feature in zip(CHOSEN, features.transpose(2, 0, 1).tolist(), strict=True):
    print(f"{RULES[rule]:17s}", *feature)
    assert naive.explains(rule, feature, K)

# %% [markdown]
# Then the features of each **column** are shuffled: one permutation for a column, the same in its three rows, another
# one for the next column. The third column is shuffled too, so that the answer has to be given in its order.

# %%
permutation = np.array([[2, 0, 3, 1], [0, 3, 1, 2], [1, 2, 0, 3]])
shown = np.take_along_axis(features, permutation[None], axis=-1)


def draw(ax, panels, owner, title):
    """Each panel as four coloured numbers; `owner` says which feature stands where in each column."""
    for row, column, place in itertools.product(range(3), range(3), range(M)):
        hidden = row == column == 2 and title != "before the shuffle"
        x, y = column + 0.27 + 0.46 * (place % 2), row + 0.27 + 0.46 * (place // 2)
        ax.text(x, y, "?" if hidden else panels[row, column, place], ha="center", va="center", fontsize=13,
                color="white", bbox={"boxstyle": "circle,pad=0.25", "linewidth": 0,
                                     "facecolor": GREY if hidden else COLOURS[owner[column, place]]})
    ax.set(xlim=(0, 3), ylim=(3, 0), xticks=range(4), yticks=range(4), xticklabels=[], yticklabels=[], title=title,
           aspect="equal")
    ax.grid(color="black")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


figure, axes = plt.subplots(1, 2, figsize=(9, 4.8))
draw(axes[0], features, np.tile(np.arange(M), (3, 1)), "before the shuffle")
draw(axes[1], shown, permutation, "after the shuffle (the model sees no colours)")
handles = [plt.Line2D([], [], marker="o", linestyle="", markersize=9, color=colour, label=RULES[rule])
           for colour, rule in zip(COLOURS, CHOSEN, strict=True)]
figure.legend(handles=handles, loc="outside lower center", ncols=4)
figure.suptitle("One instance: rows and columns of panels; numbers are values of features, 0 to 7")

# %% [markdown]
# The model sees a token for each feature of each panel, a one-hot vector; for the ninth panel it gets M zero vectors,
# and answers there. `Sraven` draws such instances. Combinations of rules are *multisets* (a rule may stand in one several
# times, and their order does not count), all equally likely, and a quarter of them is held out: new combinations of
# known rules.

# %%
task = Sraven(M, K)
batch = task.sample(rng, 128, "train")
print("tokens", batch.tokens.shape, " target", batch.target.shape)
print("rule combinations:", {split: len(task.combinations(split)) for split in ("train", "held_out")})
assert naive.faults(batch, K, task.combinations("train")) == {}                # loops find nothing to object to
assert (truth(batch.tokens, batch.rules, batch.permutation) == batch.target).all()
tokens = np.eye(K, dtype=np.float32)[shown.reshape(1, 9 * M)]
print("by hand:", shown[2, 2], " recomputed from the tokens:", truth(tokens, np.array([CHOSEN]), permutation[None])[0])
assert (truth(tokens, np.array([CHOSEN]), permutation[None]) == shown[2, 2]).all()

# %% [markdown]
# ## 2. Finding correspondences
#
# To solve the matrix one has to find out which feature of the first column goes with which of the second and of the
# third. Call (i, j, k) a **track**: feature i of the first column's panels, j of the second's, k of the third's, in all
# three rows. There are M^3 = 64, with eight given cells each (the ninth is asked for), and a rule either fits the eight
# or does not. Most tracks fit nothing:

# %%
found = hypotheses(shown[None], K)
print("track      rule               says of feature k of the answer")
for i, j, k, rule, answer in zip(*found[1:], strict=True):
    print(f"({i}, {j}, {k})  {RULES[rule]:17s}  {answer}   {'right' if answer == shown[2, 2, k] else 'wrong'}")
true_tracks = {tuple(int(np.flatnonzero(permutation[c] == m)[0]) for c in range(3)) for m in range(M)}
assert true_tracks <= set(zip(*(x.tolist() for x in found[1:4]), strict=True))

# %% [markdown]
# An explanation of the whole matrix takes M of these lines which use every feature of every column once: a perfect
# matching, in three dimensions. The naive search runs through a permutation of each of the three columns, (M!)^3 =
# 13,824 together for each instance, and meets every matching M! times. The library takes the features of the third
# column one after the other and remembers only what has been used of the other two, for all instances at once. On
# small matrices the two agree, instance by instance. Printed below them: how many tasks there are, a task being a rule
# for each feature and the two permutations that lead from the first column to the others, 8^M (M!)^2 in all. The
# paper's formula multiplies the number of multisets of rules by ((M!)^2 - M).

# %%
small = Sraven(2, 4).sample(rng, 200, "all").panels
misses = ambiguity.differing(small, 4)
for instance, mine in zip(small.tolist(), misses, strict=True):
    assert naive.differing(instance, 4) == set(np.flatnonzero(mine))
print("200 instances with M = 2, K = 4: explanations miss the same numbers of features in both")
for m in 2, 3, 4, 6, 8:
    print(f"M = {m}: {ambiguity.tasks(m):>22,d} tasks, {ambiguity.tasks(m, 'paper'):>15,d} by the paper's formula")
assert ambiguity.tasks(4, "paper") == 188_760

# %% [markdown]
# ## 3. How ambiguous is it?
#
# H says (appendix B.2) that an instance is ambiguous if other rules and permutations fit the given panels "but
# prescribe a different final query panel". One feature that differs makes a different panel. Here is such an instance:

# %%
panels = task.sample(np.random.default_rng(1), 2_000, "train").panels
by_text = ambiguity.ambiguous(panels, K, "text", strict=True)
chosen = panels[np.flatnonzero(by_text)[0]]
possible = bayes.posterior(chosen[None], K, task.combinations("train"))
print(*[f"row {r}: " + "  ".join(str(panel) for panel in chosen[r]) for r in (0, 1)], sep="\n")
print("row 2: " + "  ".join(str(panel) for panel in chosen[2, :2]) + "  ?")
for answer, probability in zip(possible.answer, possible.probability, strict=True):
    print(f"{answer} with probability {probability:.3f}", "  <- drawn" if (answer == chosen[2, 2]).all() else "")
assert len(possible.answer) > 1 and abs(possible.probability.sum() - 1) < 1e-12

# %% [markdown]
# What the released code counts is something else: instances with an explanation that misses **every** feature of the
# true answer. Those are the figures of Table A2. Both ways of counting, with 20,000 instances each:

# %%
rows = ambiguity.ambiguity_table(seed=0, count=20_000)
by_key = {(row.features, row.symbols, row.criterion): row for row in rows}
print("M  K   table A2 (4,096)    as the code counts   as the text says")
for (m, k), (theirs, error) in TABLE_A2.items():
    code, text = by_key[m, k, "released"], by_key[m, k, "text"]
    print(f"{m}  {k:2d}  {theirs:.4f} ± {error:.4f}     {code.fraction:.4f} ± {code.standard_error:.4f}      "
          f"{text.fraction:.3f} ± {text.standard_error:.3f}")
    assert abs(code.fraction - theirs) < 4 * np.hypot(error, code.standard_error) + 1e-3
    assert text.fraction > 10 * code.fraction
    print(f"{'':21s}text / code: {text.fraction / code.fraction:,.0f}")

# %%
counts = 3, 4, 5, 6, 8, 10, 12, 16
table = {(row.symbols, row.criterion): row for row in
         ambiguity.ambiguity_table(seed=1, count=40_000, grid=[(4, k) for k in counts])}
figure, ax = plt.subplots(figsize=(7, 4))
for criterion, colour, label in ("text", BLUE, "some feature differs (text)"), (
        "released", ORANGE, "every feature differs (released code)"):
    points = [table[k, criterion] for k in counts]
    ax.errorbar(counts, [p.fraction for p in points], [p.standard_error for p in points], color=colour, marker="o",
                markersize=4, capsize=2, label=label)
ax.errorbar([k for _, k in TABLE_A2], [x for x, _ in TABLE_A2.values()], [e for _, e in TABLE_A2.values()], color=GREY,
            linestyle="", marker="s", markersize=5, capsize=2, label="H, table A2")
ax.set(xlabel="K, values of a feature", ylabel="fraction of ambiguous instances", yscale="log", ylim=(3e-5, 1.5),
       title="M = 4: n = 40,000 instances a point (A2: 4,096), ± standard error (seed 1)")
ax.grid(alpha=0.3)
ax.legend(loc="lower left", frameon=False)

# %% [markdown]
# The ratio of the two grows from ten at K = 4 to hundreds at K = 16 (the lines `text / code` printed above), where the code
# counts so few that the ratio is rough; at M = 4, K = 8,
# where H's experiments are, it is about a hundred, and a quarter of all instances has more than one answer:

# %%
print(f"K = 8: {by_key[4, 8, 'text'].fraction:.3f} of the instances are ambiguous as the text says")
assert 0.22 < by_key[4, 8, "text"].fraction < 0.28
ratios = [by_key[4, k, "text"].fraction / max(by_key[4, k, "released"].fraction, 5e-5) for k in (4, 8, 16)]
assert 8 < ratios[0] < 15 and 50 < ratios[1] < 200 and ratios[2] > 200

# %% [markdown]
# ## 4. The ceiling
#
# More than one answer does not mean that all of them are equally likely. Whoever knows the generator can weigh them:
#
# $$p(\text{answer} \mid \text{panels}) \;\propto \sum_{\text{explanations that give it}} p(\text{rules}) \prod_{\text{features}} p(\text{eight cells} \mid \text{rule})$$
#
# and gives the most probable answer. How often that is right is the **ceiling**, 1 minus the Bayes error: on average
# nobody, and no network, can be right more often. The likelihoods are not alike, as the cells of a constant or a
# progression have the likelihood $1/K^3$, of a sum $1/K^6$, of distribute three, which has an order for each row,
# $1/(\binom K3\, 6^3)$: a progression that fits by accident is rarer than a sum that does. The probabilities are
# calibrated:

# %%
batch = task.sample(np.random.default_rng(2), 10_000, "train")
best = bayes.best_answers(batch.panels, K, task.combinations("train"))
right = (best.answer == batch.target).all(axis=-1)
print(f"one possible answer, if the trained combinations are known: {np.mean(best.answers == 1):.3f} of the instances")
print(f"best answers: expected to be right {best.probability.mean():.3f}, are right {right.mean():.3f}")
assert abs(best.probability.mean() - right.mean()) < 4 * 0.5 / 100
unsure = best.answers > 1
figure, axes = plt.subplots(1, 2, figsize=(11, 4), width_ratios=[1, 1.5])
edges = np.linspace(0, 1, 11)
bins = np.digitize(best.probability[unsure], edges[1:-1], right=True)
heights = [(best.probability[unsure][bins == n].mean(), right[unsure][bins == n].mean(), (bins == n).sum())
           for n in range(10) if (bins == n).sum() >= 30]
axes[0].plot([0, 1], [0, 1], color=GREY, linestyle=":", label="as expected")
axes[0].legend(loc="upper left", fontsize=9)
axes[0].scatter(*zip(*[(p, hit) for p, hit, _ in heights], strict=True), color=BLUE,
                s=[12 + n / 8 for *_, n in heights])
axes[0].set(xlabel="probability of the best answer", ylabel="fraction that is right", aspect="equal",
            title=f"Instances with several answers\n(n = {unsure.sum():,}), in bins of at least 30;\narea: how many")
ceiling = {split: bayes.ceiling(task, rng, 10_000, split) for split in ("train", "held_out")}
names = "Softmax attention", "Linear attention", "HYLA", "HYLA + MoE", "HYLA + deep value network"
published = [next(row for row in TABLE_A1.values() if row.words == name).sraven for name in names]
axes[1].barh(names, [x for x, _ in published], xerr=[e for _, e in published], color=ORANGE, capsize=2)
axes[1].axvline(ceiling["held_out"].expected, color=BLUE, linewidth=2, label="ceiling (n = 10,000)")
axes[1].invert_yaxis()
axes[1].set(xlim=(0, 1), xlabel="accuracy on held-out rule combinations", ylabel="model",
            title="H, table A1 (20 million instances,\nmean ± standard error, n = 3 seeds)")
figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower right")
axes[1].grid(alpha=0.3, axis="x")
for split, value in ceiling.items():
    print(f"{split:9s} ceiling {value.expected:.3f} ± {value.standard_error:.3f}")
assert 0.92 < ceiling["train"].expected < ceiling["held_out"].expected < 0.96
hyla = dict(zip(names, published, strict=True))["HYLA"][0]
print(f"HYLA {hyla:.2f}: {100 * (1 - hyla):.0f} points below 1, "
      f"{100 * (ceiling['held_out'].expected - hyla):.0f} below the ceiling")
assert round(100 * hyla) == 69 and 25 <= round(100 * (ceiling["held_out"].expected - hyla)) <= 26

# %% [markdown]
# (With fewer rule combinations to choose from, the held-out ones leave less doubt, for one who knows which they are.) So
# 0.69, HYLA's held-out accuracy in Table A1, is not 31 points away from what can be done by one who knows that list, but
# about 26.
#
# ## 5. The floor
#
# And which accuracy says that anything was learned? Guessing has $K^{-M}$, one in 4,096, but one can do better without ever
# inferring a rule, by looking at the last row alone: if its two panels are equal, a constant is likely. For the smaller
# matrices of the quick recipe (M = 2, K = 4; guessing has 1/16), beside two ways that know no rules at all: `copy` answers
# with a given panel, the same number added to all its features, whichever panel and number do best in hindsight; `majority`
# gives each feature the value that it shows most often:

# %%
quick = Sraven(2, 4)
for split in "train", "held_out":
    free = bayes.rule_free(quick, np.random.default_rng(3), 10_000, split)
    top = bayes.ceiling(quick, np.random.default_rng(4), 10_000, split)
    print(f"{split:9s}", ", ".join(f"{name} {row['panel_accuracy']:.3f}" for name, row in free.items()),
          f"   ceiling {top.expected:.3f}")
    assert 0.25 < free["last row"]["panel_accuracy"] < 0.4 < top.expected

# %% [markdown]
# On this split (seed 0; on other splits the last row alone gives 0.29 to 0.43) a model that has clearly more than a third
# of the held-out panels right uses more than the last row.
#
# ## 6. Change this
#
# (Three exercises, with what comes out and how to grade each, are [here](exercises/README.md). Assertions are about the
# settings that stand here: one that fails after a change is an answer; take it out and go on.)
#
# * `task.sample(..., shuffled=False)` keeps the features in order. What is the ceiling for one who knows that (keep
#   only hypotheses with i = j = k)? How much of the doubt does the shuffle make?
# * M = 6 at K = 8: which accuracy can a model reach at most? (`bayes.ceiling(Sraven(6, 8), rng, 1_000, "held_out")`)
# * Train: `refattn train sraven --attention softmax hyla`, and compare with floor and ceiling. (Two runs of 12,000 steps;
#   of the recorded ones most took 5 or 6 minutes, some on busy machines up to 72.)
#
# ## 7. Where paper and code differ
#
# * Constants run from 1 to K by the text, from 0 to K - 1 in the code; "distribute three" has different symbols in the
#   code, the text does not say so. Here as in the code.
# * "Ambiguous": section 3.
# * The number of tasks by the paper's formula has an unexplained "- M" and gives 0 for M = 1; both are in
#   `refattn/tasks/sraven_ambiguity.py`.
# * The released code's in-distribution score is over the first training instances; here evaluation draws its own.
