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
# # HYLA: how often the code is used, and what sits between
#
# **What you'll do.** Meet hypernetwork linear attention (HYLA), derive its backward, turn three knobs from
# softmax attention to HYLA and beyond, read the paper's ablation table against the paper's own claim, train a
# few rows of it, and cut attention into tiles of keys.
#
# **What you'll learn.** Why HYLA's code has two gradients; what the table supports and what it does not; why
# HYLA's tiles add up as they are, while softmax has to rescale.
#
# **What you need.** Tutorials 1 and 2.
#
# The paper is *Attention as a Hypernetwork* (Schug et al. 2025), called H; equation and table numbers are
# H's. Training takes most of the time, about half a minute.

# %%
import inspect
import sys
import time
import tracemalloc

import matplotlib
import numpy as np
from threadpoolctl import threadpool_limits

sys.path.append(".")                        # in a checkout that is not installed: run it from the root
if "ipykernel" not in sys.modules:
    matplotlib.use("Agg")                   # as a script: no window
import matplotlib.pyplot as plt

import refattn.verification.naive.hyla as naive
from refattn import check
from refattn.attention import VARIANTS
from refattn.attention.ablations import ablation, ablation_backward
from refattn.attention.hyla import hyla, hyla_backward
from refattn.attention.tiled import tiled, tiled_backward
from refattn.recipes import recipe
from refattn.reproduce import published
from refattn.train import fit

threadpool_limits(1)                        # products this small are fastest on one thread
plt.rcParams.update({"figure.dpi": 100, "figure.constrained_layout.use": True, "font.size": 11,
                     "axes.grid": True, "grid.alpha": 0.3, "axes.spines.top": False,
                     "axes.spines.right": False})
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#666666"      # colour-blind-safe (Okabe & Ito)

# %% [markdown]
# ## 1. The question and the equation
#
# If the H weights of a query-key pair are a code that generates a linear value network (tutorial 2), what if
# that network had a hidden layer? HYLA generates *two* matrices from the one code, puts a relu between them,
# and needs no new parameters, as W^value and W^out are there already:
#
#     HYLA_q = sum_k ( sum_h a[h, q, k] W_h^out ) relu( sum_h a[h, q, k] W_h^value x_k )             (6)
#     a[:, q, k] = RMSHead( s[:, q, k] ) = s / sqrt( mean over h of s^2 + epsilon )
#
# The page leaves the projections to the layer, with v[h, k] = W_h^value x_k:
#
#     z[q, k]  = sum_h a[h, q, k] v[h, k]           first use: into the hidden layer, no head axis left
#     o[h, q]  = sum_k a[h, q, k] relu(z[q, k])     second use: out of it, one output for each head
#
# ## 2. Loops and library

# %%
print(inspect.getsource(naive.hyla))
print(inspect.getsource(hyla))

# %%
rng = np.random.default_rng(0)
b, t_q, t_k, h, d, e = 2, 5, 6, 3, 4, 7
q = rng.standard_normal((b, t_q, h, d))
k = rng.standard_normal((b, t_k, h, d))
v = rng.standard_normal((b, t_k, h, e))
bias, keep = rng.standard_normal((h, t_q, t_k)), rng.random((b, 1, t_q, t_k)) < 0.8
dropout = (rng.random((1, 1, t_q, t_k)) < 0.75) / 0.75

o, saved = hyla(q, k, v, bias=bias, keep=keep, dropout=dropout)
error = check.deviation("o", o, naive.hyla(q, k, v, bias=bias, keep=keep, dropout=dropout))
print(f"library against loops: largest relative difference {error:.1e}")
assert error < 1e-12

# %% [markdown]
# ## 3. The backward, by hand
#
#          forward                                    backward
#     (1)  s   = q k / sqrt(d) + bias                 dq, dk, dbias as in tutorial 1
#     (2)  s   = s where kept, else 0                 ds  = ds where kept, else 0
#     (3)  a_h = rho s_h                              ds_h = rho (da_h - a_h mean_j a_j da_j)
#     (4)  c   = a dropout                            da  = dc dropout
#     (5)  z_qk  = sum_h c_hqk v_kh                   dc_hqk += sum_e dz_qke v_khe      the code's first use
#                                                     dv_khe  = sum_q c_hqk dz_qke
#     (6)  g   = relu(z)                              dz  = dg where z > 0, else 0
#     (7)  o_qh  = sum_k c_hqk g_qk                   dc_hqk  = sum_e do_qhe g_qke      the code's second use
#                                                     dg_qke  = sum_h c_hqk do_qhe
#
# Two lines are new.
#
# * **The code is used twice, so its gradient is a sum**: one part from (7), one from (5). Forgetting either
#   is the typical mistake.
# * **RMSHead** (3), with rho = (mean_j s_j^2 + epsilon)^(-1/2), over H heads. Write r = mean_j s_j^2 +
#   epsilon; then d rho / d s_h = -1/2 r^(-3/2) 2 s_h / H = -rho^3 s_h / H = -rho^2 a_h / H, and
#
#         ds_h = rho da_h + (sum_j da_j s_j) (-rho^2 a_h / H)
#              = rho da_h - rho a_h (1/H) sum_j da_j a_j              as rho s_j = a_j
#              = rho (da_h - a_h mean_j a_j da_j)
#
# Compare softmax: ds_k = a_k (da_k - sum_j a_j da_j). Both remove from da what the normaliser undoes: softmax
# a shift, RMSHead (at epsilon = 0) a stretch of the code. And epsilon sits in rho and in a: the formula is
# exact with it.

# %%
print(inspect.getsource(hyla_backward))


def forward(inputs):
    return hyla(**inputs)


def backward(saved, do):
    return dict(zip(("q", "k", "v", "bias"), hyla_backward(saved, do), strict=True))


inputs = {"q": q, "k": k, "v": v, "bias": bias, "keep": keep, "dropout": dropout}
report = check.derivative(forward, backward, inputs, constants=("dropout",), entries=300)
print(report)
assert report.ok

# %% [markdown]
# Now without the code's first use, written in einsum. dv is still right, so a test that looks at dv alone
# says nothing.


# %%
def one_use_only(saved, do):
    q, k, v, bias, keep, dropout, a, rho, z = saved
    c, g = a * dropout, np.maximum(z, 0)
    dc = np.einsum("bqhe,bqke->bhqk", do, g)                    # (7), and (5) forgotten
    dz = np.einsum("bhqk,bqhe->bqke", c, do) * (z > 0)
    da = dc * dropout
    ds = rho * (da - a * (a * da).mean(axis=1, keepdims=True)) * keep
    scale = d ** -0.5
    return {"q": np.einsum("bhqk,bkhd->bqhd", ds, k) * scale,
            "k": np.einsum("bhqk,bqhd->bkhd", ds, q) * scale,
            "v": np.einsum("bhqk,bqke->bkhe", c, dz),
            "bias": ds.sum(axis=0)}


report = check.derivative(forward, one_use_only, inputs, constants=("dropout",))
for name, error in report.errors.items():
    print(f"d{name:5s} relative error {error:.1e}")
assert report.errors["v"] < 1e-12 and min(report.errors[name] for name in ("q", "k", "bias")) > 1e-2

# %% [markdown]
# ## 4. Three knobs
#
# H's appendix A.1 takes HYLA apart into three changes to linear attention. In this library they are three
# knobs, and one function, `ablation`, is all rows of H's Table A1:
#
# * `normaliser`: what makes the code from the scores. `none`, `softmax`, `rms_head`, or two in a row.
# * `code_uses`: 1 is standard attention, 2 is HYLA, 3 generates one layer more (eq. 10).
# * `phi`: what sits between the uses, `identity` or `relu`. With one use it acts on the values.
#
# The numbers beside the knobs are **the paper's**, from Table A1, not ours: out-of-distribution R2 on fuzzy
# logic (T = 32, 70 % of combinations held out) and accuracy on SRAVEN, in per cent, mean and standard error
# over 3 seeds, best of a grid of settings.

# %%
logic, sraven = ({name: (100 * mean, 100 * error) for name, (mean, error) in table.figures.items()}
                 for table in (published.FUZZY_LOGIC, published.SRAVEN))

print(f"{'':66s}table A1 of the paper")
print(f"{'name':34s}{'normaliser':18s}{'uses':5s}{'phi':9s}{'fuzzy logic':14s} SRAVEN")
for name, row in ((name, row) for name, row in VARIANTS.items() if row.knobs):
    paper = [f"{x[name][0]:5.2f} ± {x[name][1]:4.2f}" if name in x else "not there" for x in (logic, sraven)]
    normaliser, uses, phi = row.knobs
    print(f"{name:34s}{normaliser:18s}{uses:<5d}{phi:9s}{paper[0]:14s} {paper[1]}")

# %% [markdown]
# (`hyla_and_softmax_reversed` is ours: the paper does not say in which order its "HYLA + softmax" takes the
# two normalisers.)
#
# That the knobs contain the pages is a statement about functions, so it can be checked, forward and backward:

# %%
do = rng.standard_normal(o.shape)
for name in "softmax", "linear", "hyla":
    page, options = VARIANTS[name], {"bias": bias, "keep": keep, "dropout": dropout}
    o_page, saved_page = page.forward(q, k, v, **options)
    o_knobs, saved_knobs = ablation(q, k, v, knobs=page.knobs, **options)
    theirs, ours = page.backward(saved_page, do), ablation_backward(saved_knobs, do)[:4]
    error = max(check.deviation("o", o_knobs, o_page), check.deviations("gradient", ours, theirs))
    print(f"{name:8s} = {tuple(page.knobs)}, forward and backward, to {error:.0e}")
    assert error < 1e-12

# %% [markdown]
# ## 5. What the paper's table says
#
# H, section 3.1, says of this table: it separates the contributions of RMSHead and of the nonlinearity,
# "showing that both components in combination are required to obtain the observed performance improvements".
# Here are the paper's numbers again, as a figure.

# %%
rows = list(logic)
figure, axes = plt.subplots(1, 2, figsize=(12, 5), sharey=True)
for ax, numbers, title in zip(axes, (logic, sraven), ("fuzzy logic", "SRAVEN"), strict=True):
    for y, name in enumerate(rows):
        uses = VARIANTS[name].knobs.code_uses
        mean, error = numbers[name]
        ax.errorbar(mean, y, xerr=error, fmt="so^"[uses - 1], color=(GREY, BLUE, GREEN)[uses - 1],
                    capsize=4, markersize=7)
    ax.axvline(numbers["hyla"][0], color=BLUE, linewidth=1, linestyle=":")
    ax.set_title(f"The paper's table A1: {title}")
axes[0].set(xlabel="out-of-distribution R2, per cent", ylabel="attention variant")
axes[1].set(xlabel="out-of-distribution accuracy, per cent")
axes[0].set_yticks(range(len(rows)), rows)
axes[0].invert_yaxis()
marks = [plt.Line2D([], [], color=colour, marker=marker, linestyle="", label=f"code used {n}")
         for colour, marker, n in ((GREY, "s", "once"), (BLUE, "o", "twice"), (GREEN, "^", "three times"))]
figure.legend(handles=[*marks, plt.Line2D([], [], color=BLUE, linestyle=":", label="HYLA")], ncols=4,
              loc="outside lower center", title="mean ± standard error, n = 3 seeds, best of a grid")


# %%
def difference(numbers, name, other):
    """Difference of two means, and in units of its own standard error."""
    (m, s), (n, t) = numbers[name], numbers[other]
    return f"{m - n:+6.2f} ({(m - n) / (s * s + t * t) ** 0.5:+.1f} standard errors)"


neither = "hyla_no_nonlinearity_no_rms_head"
for name, other in (("hyla", "hyla_no_nonlinearity"), ("hyla", "hyla_no_rms_head"), ("hyla", neither),
                    (neither, "linear"), ("hyla", "linear")):
    print(f"{name} - {other}\n    fuzzy logic {difference(logic, name, other)}   "
          f"SRAVEN {difference(sraven, name, other)}")

# %% [markdown]
# **On SRAVEN** the claim has support: without the nonlinearity 56.54, without RMSHead 62.53, with both 69.13;
# the second of these differences is about one standard error.
#
# **On fuzzy logic**, the task of that section, it has none. HYLA has 81.13 ± 7.77, without RMSHead 81.27 ±
# 7.88, without the nonlinearity 84.54 ± 5.32, without either 79.42 ± 7.43: four numbers within a fraction of
# one standard error. What lifts them from 59.89 is what all four have in common and neither component is:
# **the code is used twice**. Appendix A.1 is more careful than section 3.1 ("the full HYLA model generally
# performs best"). With three seeds, and a best of a grid in each row, the table cannot say more.
#
# ## 6. A small training comparison
#
# What can be seen in half a minute? Five rows, three seeds each, on a smaller fuzzy logic: three variables
# instead of four, half of the 15 combinations held out, T = 32, width 32, 8 heads of 2, batch 32, 500 steps
# of AdamW, one peak rate of 0.02 for all, gradients clipped to norm 1, no dropout. A seed changes the
# held-out functions, the weights and the data together.

# %%
SEEDS, COMPARED = 3, ("linear", "softmax", "hyla", "hyla_no_rms_head", "hyla_no_nonlinearity")
settings = dict(variables=3, held_out=0.5, width=32, hidden=64, batch=32, steps=500, rate=2e-2,
                clip=1.0, attention_dropout=0.0, evaluation=960, log_every=20, evaluate_every=500)
scores = {}
for name in COMPARED:
    results = [fit(recipe("fuzzy_logic", "quick", attention=name, seed=seed, **settings), progress=False)
               for seed in range(SEEDS)]
    scores[name] = {split: np.array([result.metrics[split]["r2_pooled"] for result in results])
                    for split in ("train", "held_out")}
    train, held_out = scores[name]["train"], scores[name]["held_out"]
    print(f"{name:21s} R2 held out: mean {held_out.mean():5.2f}, seeds {held_out.round(2)}   "
          f"train: mean {train.mean():5.2f}")
assert all(np.isfinite(part).all() for row in scores.values() for part in row.values())
assert max(row["train"].mean() for row in scores.values()) > 0.3

# %%
figure, ax = plt.subplots(figsize=(10, 4.4))
for x, name in enumerate(COMPARED):
    for offset, split, colour, marker in (-0.18, "train", ORANGE, "s"), (0.18, "held_out", BLUE, "o"):
        values = scores[name][split]
        ax.plot([x + offset - 0.14, x + offset + 0.14], [values.mean()] * 2, color=colour, linewidth=3)
        for seed, value in enumerate(values):
            place = x + offset + 0.08 * (seed - 1)
            ax.plot(place, value, marker, color=colour, markersize=6)
            ax.text(place, value + 0.015, str(seed), fontsize=9, ha="center", va="bottom")
ax.axhline(0, color="black", linewidth=0.8)
ax.set_xticks(range(len(COMPARED)), [name.replace("_no_", "\n_no_") for name in COMPARED])
ax.set(xlabel="attention variant", ylabel="R2, pooled over 960 tasks",
       title=f"Fuzzy logic, 3 variables, 500 steps, {SEEDS} seeds (numbered) and their means")
ax.legend(handles=[plt.Line2D([], [], color=ORANGE, marker="s", linestyle="", label="trained combinations"),
                   plt.Line2D([], [], color=BLUE, marker="o", linestyle="", label="held-out combinations")],
          loc="upper left", bbox_to_anchor=(1, 1))

# %% [markdown]
# **What is seen.** Most runs learn something in 500 steps, some hardly anything, and held-out functions lag
# behind trained ones. Softmax has the best mean. The seeds of one HYLA row lie further apart than the means
# of the HYLA rows.
#
# **What is not seen.** An order of the variants. This is one hundredth of the paper's steps on an easier
# task, with one learning rate that was tuned for nobody, and three seeds. H compares after 50,000 steps, each
# row at its best setting. Whoever wants to compare runs `refattn train fuzzy_logic --attention softmax linear
# hyla` with several seeds and more steps.
#
# ## 7. Tiles of keys
#
# Attention as written above builds a T x T code for each head, and HYLA a T x T hidden layer besides. Neither
# is needed at once: take the keys a tile at a time.
#
# **HYLA, linear:** RMSHead looks at one query and one key, over heads. The code of a pair is final as soon as
# the pair is seen, and o is a plain sum over keys. So tiles add up:
#
#     o = sum over tiles of page(q, k_tile, v_tile)
#
# Backward: dk and dv of a tile are that tile's own, dq adds up. Each tile's forward is repeated from q, k and
# v.
#
# **Softmax:** the denominator runs over all keys, and is unknown until the last tile. What has been summed so
# far was divided by too little; so sums are kept undivided, with a running maximum m that keeps exp in range,
# and are *rescaled* whenever m grows:
#
#     m' = max(m, max_k s_k)
#     l' = exp(m - m') l + sum_k exp(s_k - m')
#     o' = exp(m - m') o + sum_k exp(s_k - m') v_k            and o / l at the end
#
# H says the same in half a sentence (section 2.2): RMSHead "requires no communication across keys as opposed
# to softmax attention".

# %%
TILE = 4
for name in "hyla", "linear", "softmax":
    page = VARIANTS[name]
    o_whole, saved_whole = page.forward(q, k, v)
    plain_sum = sum(page.forward(q, k[:, i:i + TILE], v[:, i:i + TILE])[0] for i in range(0, t_k, TILE))
    o_tiles, saved_tiles = tiled(q, k, v, page=name, tile=TILE)
    expected = page.backward(saved_whole, do)[:3]
    gradients = check.deviations("gradient", tiled_backward(saved_tiles, do)[:3], expected)
    wrong, right = check.deviation("o", plain_sum, o_whole), check.deviation("o", o_tiles, o_whole)
    print(f"{name:8s} plain sum of tiles: error {wrong:.0e};  tiled: o {right:.0e}, dq dk dv {gradients:.0e}")
    assert right < 1e-12 and gradients < 1e-12 and (wrong > 0.1 if name == "softmax" else wrong < 1e-12)

# %% [markdown]
# The same with bias, keep and dropout, which are cut along with the keys; and a variant whose code *is*
# normalised over keys is refused:

# %%
o_tiles, saved_tiles = tiled(q, k, v, tile=TILE, bias=bias, keep=keep, dropout=dropout)
assert check.deviation("o", o_tiles, o) < 1e-12
assert check.deviations("gradient", tiled_backward(saved_tiles, do), hyla_backward(saved, do)) < 1e-12
try:
    tiled(q, k, v, page="hyla_softmax_for_rms_head")
except ValueError as refusal:
    print(refusal)
else:
    raise AssertionError("a code that is normalised over keys was cut")

# %% [markdown]
# What is gained is memory. Forward and backward together, one sequence, 8 heads of 16, float32, tiles of 64
# keys; peak of what NumPy allocates beyond the inputs, and time, both measured in this run.

# %%
LENGTHS, PAGES = (128, 256, 512, 1024), ("hyla", "softmax")


def both_passes(name, tile, q, k, v, do):
    if tile:
        return tiled_backward(tiled(q, k, v, page=name, tile=tile)[1], do)
    return VARIANTS[name].backward(VARIANTS[name].forward(q, k, v)[1], do)


measured = {}
for length in LENGTHS:
    arrays = [rng.standard_normal((1, length, 8, 16)).astype(np.float32) for _ in range(4)]
    for name in PAGES:
        for tile in None, 64:
            seconds = []
            for _ in range(3):
                start = time.perf_counter()
                both_passes(name, tile, *arrays)
                seconds.append(time.perf_counter() - start)
            tracemalloc.start()
            both_passes(name, tile, *arrays)
            measured[name, tile, length] = tracemalloc.get_traced_memory()[1] / 2**20, min(seconds)
            tracemalloc.stop()
kinds = [(name, tile) for name in PAGES for tile in (None, 64)]
print("T       " + "".join(f"{name + (', tiles' if tile else ', whole'):>20s}" for name, tile in kinds))
for length in LENGTHS:
    pairs = [measured[name, tile, length] for name, tile in kinds]
    print(f"{length:<8d}" + "".join(f"{size:9.1f} MiB{1e3 * duration:4.0f} ms" for size, duration in pairs))
for name in PAGES:
    whole, cut = ([measured[name, tile, n][0] for n in LENGTHS] for tile in (None, 64))
    assert whole[-1] > 12 * whole[-3] and cut[-1] < 6 * cut[-3] and cut[-1] < whole[-1] / 4

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 4.3))
for ax, part, factor in (axes[0], 0, 1), (axes[1], 1, 1e3):
    for name, colour in zip(PAGES, (BLUE, ORANGE), strict=True):
        for tile, line, marker in (None, "--", "s"), (64, "-", "o"):
            ax.loglog(LENGTHS, [factor * measured[name, tile, n][part] for n in LENGTHS], linestyle=line,
                      color=colour, marker=marker, linewidth=2,
                      label=f"{name}, {'tiles of 64 keys' if tile else 'whole'}")
    ax.set_xticks(LENGTHS, map(str, LENGTHS), minor=False)
    ax.minorticks_off()
    ax.set(xlabel="sequence length T, tokens")
axes[0].set(ylabel="peak memory, MiB", title="Forward + backward: memory")
axes[1].set(ylabel="time, milliseconds (best of 3)", title="Forward + backward: time, one CPU thread")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)

# %% [markdown]
# **What is seen.** Whole pages grow with the square of T, tiles in proportion to T. HYLA whole needs more
# than softmax, because of its hidden layer z, T x T x e; in tiles the difference shrinks to one tile's. The
# times are of NumPy on one thread of one machine: a tile of HYLA stays in the cache, which more than pays for
# repeating its forward.
#
# **What is not seen.** A GPU kernel. There too a softmax tile has to carry m and l along and to rescale what
# is already summed, while a HYLA tile only adds; partial sums of HYLA can be made anywhere and added in any
# order.
#
# ## 8. Change this
#
# * `COMPARED = ("hyla", "hyla_deep", "hyla_softmax_for_rms_head")`: the best and the worst row of SRAVEN.
# * `variables=4`, `steps=2_000`, `rate=3e-3`, width 128: the library's quick scale, minutes for each run.
# * `Knobs("rms_head", 2, "relu")` is HYLA; every combination works, also those without a name: `recipe` takes
#   the names, `MultiHead(variant=Knobs(...))` any of them.
# * In `one_use_only`, forget (7) instead of (5). Which gradients go wrong now?
# * `TILE = 1`: every key by itself. Does equality still hold to the last digits?
# * Give HYLA one head (tutorial 2): its code is a sign. What does (6) compute then?
#
# ## 9. Where the paper, its code and this page differ
#
# * RMSHead has an epsilon of 1e-6 inside the root in the released code, none in the text. The text's
#   pseudocode (algorithm 2) drops 1/sqrt(d); without bias and epsilon RMSHead undoes any scale, so nothing
#   changes; with either, it does.
# * The released code adds a relative-position bias to the scores of every variant, HYLA too, and multiplies
#   the code by attention dropout (0.1) in training, which both uses see. The paper mentions neither.
# * Rows 5, 10 and 11 of the table (`linear_rms_head_relu_values`, `hyla_deep`, `hyla_and_softmax`) are not in
#   the released code; the pages say how we read them.
# * The table's R2 is a mean of per-task ratios in the released code, "coefficient of determination" in the
#   text. This tutorial uses the pooled one, whose tail is lighter when a model is barely trained.
# * Tiles are ours; the paper only says that they are possible.
