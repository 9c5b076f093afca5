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
# # Attention, forward and backward
#
# [all tutorials](README.md) · after: [2](02_attention_is_a_hypernetwork.py) · [exercises](exercises/README.md)
#
# Pages: [`attention/softmax.py`](../refattn/attention/softmax.py), [`ops.py`](../refattn/ops.py), [`verification/naive/softmax.py`](../refattn/verification/naive/softmax.py), [`attention/layer.py`](../refattn/attention/layer.py) · equations: H, 1 to 3 · `pip install '.[plots]'`, as a notebook `'.[tutorials]'`
#
# **What you'll do.** Write softmax attention as loops, call the library, derive its backward line by line,
# check it to twelve digits, mask it, and train one layer with it.
#
# **What you'll learn.** Why the backward of attention is four lines; why a complex step finds mistakes that
# finite differences hide; what a query that may attend to nothing has to return.
#
# **What you need.** Partial derivatives and NumPy. No framework: every gradient below is written by hand.
#
# The paper meant below is *Attention as a Hypernetwork* (Schug et al. 2025), called H. As a script this file
# prints and asserts; its figures are in the rendered notebook, `tutorials/rendered/`.

# %%
import inspect
import sys

import matplotlib
import numpy as np
from threadpoolctl import threadpool_limits

sys.path.append(".")                        # in a checkout that is not installed: run it from the root
if "ipykernel" not in sys.modules:
    matplotlib.use("Agg")                   # as a script: no window
import matplotlib.pyplot as plt

import refattn.verification.naive.softmax as naive
from refattn import check, losses, ops, optim, params
from refattn.attention import masks
from refattn.attention.layer import MultiHead
from refattn.attention.softmax import softmax, softmax_backward
from tutorials import diagrams

threadpool_limits(1)                        # products this small are fastest on one thread
plt.rcParams.update({"figure.dpi": 100, "figure.constrained_layout.use": True, "font.size": 11,
                     "axes.grid": True, "grid.alpha": 0.3, "axes.spines.top": False,
                     "axes.spines.right": False})
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#666666"      # colour-blind-safe (Okabe & Ito)

# %% [markdown]
# ## 1. The question and the equation
#
# You have the gradient of a loss with respect to the output of attention. What are the gradients of queries,
# keys and values, and **how do you know that yours are right?**
#
# H writes multi-head attention so (h is a head; the k-th input $\mathbf{x}_k$ is a row of $\mathbf{X}$ in
# $\mathbf{Q}_h = \mathbf{X} \mathbf{W}_h^{\mathrm{query}}$ and $\mathbf{K}_h = \mathbf{X} \mathbf{W}_h^{\mathrm{key}}$, and a column from eq. 2 on):
#
# $$\mathbf{a}_{hqk} = \operatorname{softmax}_k \Big( \frac{(\mathbf{Q}_h \mathbf{K}_h^\top)_{qk}}{\sqrt{D^{\mathrm{head}}}} \Big) \tag{eq. 1}$$
#
# $$\mathrm{MHA}_q = \mathbf{W}^{\mathrm{out}} \operatorname{concat}_h \Big( \sum_k \mathbf{a}_{hqk}\, \mathbf{W}_h^{\mathrm{value}} \mathbf{x}_k \Big) \tag{eq. 2}$$
#
# $$\phantom{\mathrm{MHA}_q} = \sum_h \mathbf{W}_h^{\mathrm{out}} \sum_k \mathbf{a}_{hqk}\, \mathbf{W}_h^{\mathrm{value}} \mathbf{x}_k \tag{eq. 3}$$
#
# Other functions can stand in the place of softmax; H calls whichever it is σ, the **normaliser**. The projections W are
# ordinary linear maps; a layer puts them around. What is left is a function of three arrays, and that is what this library
# calls a **page**:
#
# $$\mathbf{s}_{bhqk} = \frac{1}{\sqrt D} \sum_d \mathbf{q}_{bqhd}\, \mathbf{k}_{bkhd} + \mathbf{bias}_{bhqk}, \qquad
# \mathbf{a}_{bhqk} = \frac{\exp \mathbf{s}_{bhqk}}{\sum_{j} \exp \mathbf{s}_{bhqj}}, \qquad
# \mathbf{o}_{bqhe} = \sum_k \mathbf{a}_{bhqk}\, \mathbf{v}_{bkhe}$$
#
# Arrays are bold and upright, indices light and slanted, so $\mathbf{q}$ is the array of queries and $q$ one query. D is the
# number of features of a query or key: H writes it D^head, the code d, like the letter of its axis.
# One letter, one axis, everywhere: `b` batch, `q` query, `k` key, `h` head, `d` query/key feature, `e` value
# feature. Sizes below are all different, so that no swapped axis can hide. The drawing shows one query of one head.

# %%
figure = diagrams.attention("softmax")
rng = np.random.default_rng(0)
b, t_q, t_k, h, d, e = 2, 5, 6, 3, 4, 7
q = rng.standard_normal((b, t_q, h, d))
k = rng.standard_normal((b, t_k, h, d))
v = rng.standard_normal((b, t_k, h, e))

# %% [markdown]
# ## 2. The definition, as loops
#
# `refattn.verification.naive` holds the definitions: one batch entry, query and head at a time, in float64, nothing
# shared with the library. It is slow, and it is what everything else is held against. Section 7 says what `bias`,
# `keep` and `dropout` are for; without them nothing is added to the scores, every key is kept, and c = a.

# %%
print(inspect.getsource(naive.softmax))

# %% [markdown]
# ## 3. The library call
#
# The page does the same with whole arrays. `contract("bhqk,bkhe->bqhe", c, v)` is a sum over the letters that are missing
# on the right, done as a batched matrix product. The tags `(1)` to `(4)` number the forward's lines, and the text calls
# them line (1) to line (4); `eq. 1` behind a tag is the paper's equation 1. `out=s` saves memory and nothing else: the
# weights are written where the scores stood, so that s and a are one array from there on; so are dc, da and ds below.
# `over=` and `order=` say in which order the numbers of an array lie in memory; they change no number either.

# %%
print(inspect.getsource(softmax))

# %%
o, saved = softmax(q, k, v)
error = check.deviation("o", o, naive.softmax(q, k, v))
print(f"library against loops: largest relative difference {error:.1e}")
assert error < 1e-12

# %% [markdown]
# `saved` is a plain named tuple: what the backward will need, open to be looked at. The weights `a` are one of
# its fields, `code`; the name is explained in tutorial 2.

# %%
print("saved:", ", ".join(saved._fields))
print("a[0, 0] (queries down, keys across), every row sums to 1:")
print(saved.code[0, 0].round(3))
assert np.allclose(saved.code.sum(axis=-1), 1)

# %% [markdown]
# ## 4. The backward, by hand
#
# Write $\mathrm{d}\mathbf{x}$ for the gradient of some scalar loss with respect to $\mathbf{x}$. Given
# $\mathrm{d}\mathbf{o}$, walk the forward from its last line to its first. Two rules do nearly everything:
#
# * **A sum of products.** In $\mathbf{o} = \sum_k \mathbf{c}\,\mathbf{v}$, the gradient of one factor is the upstream gradient
#   times the *other* factor, summed over the letters that the first factor does not have. The letters are the same,
#   rearranged.
# * **A broadcast** copies one number to many places, so its gradient is the sum over those places.
#
# The index b is left out from here on, as every line holds for each entry of the batch by itself, and in line (2) also h
# and q, as it holds for each row of scores by itself.
#
# | line | forward | backward |
# |---|---|---|
# | (1) | $\mathbf{s}_{hqk} = \sum_d \mathbf{q}_{qhd}\, \mathbf{k}_{khd} / \sqrt D + \mathbf{bias}_{hqk}$ | $\mathrm{d}\mathbf{q}_{qhd} = \sum_k \mathrm{d}\mathbf{s}_{hqk}\, \mathbf{k}_{khd} / \sqrt D$, $\quad \mathrm{d}\mathbf{k}_{khd} = \sum_q \mathrm{d}\mathbf{s}_{hqk}\, \mathbf{q}_{qhd} / \sqrt D$, $\quad \mathrm{d}\mathbf{bias} = \mathrm{d}\mathbf{s}$, summed where it was broadcast |
# | (2) | $\mathbf{a}_k = \exp \mathbf{s}_k / \sum_j \exp \mathbf{s}_j$ | $\mathrm{d}\mathbf{s}_k = \mathbf{a}_k (\mathrm{d}\mathbf{a}_k - \sum_j \mathbf{a}_j\, \mathrm{d}\mathbf{a}_j)$ |
# | (3) | $\mathbf{c} = \mathbf{a} \cdot \mathbf{dropout}$ | $\mathrm{d}\mathbf{a} = \mathrm{d}\mathbf{c} \cdot \mathbf{dropout}$ |
# | (4) | $\mathbf{o}_{qhe} = \sum_k \mathbf{c}_{hqk}\, \mathbf{v}_{khe}$ | $\mathrm{d}\mathbf{c}_{hqk} = \sum_e \mathrm{d}\mathbf{o}_{qhe}\, \mathbf{v}_{khe}$, $\quad \mathrm{d}\mathbf{v}_{khe} = \sum_q \mathbf{c}_{hqk}\, \mathrm{d}\mathbf{o}_{qhe}$ |
#
# Read the left column down, the right column up. Lines (4) and (1) are sums of products, with a broadcast in line (1);
# line (3) multiplies by a given factor, so its gradient is multiplied by the same factor (without dropout c = a).
#
# Line (2) is the only one with something to derive. One score moves every weight of its row:
#
# $$\frac{\partial \mathbf{a}_j}{\partial \mathbf{s}_k} = \mathbf{a}_j\,([j = k] - \mathbf{a}_k) \qquad\text{(the quotient rule; } [j = k] \text{ is 1 or 0)}$$
#
# $$\mathrm{d}\mathbf{s}_k = \sum_j \mathrm{d}\mathbf{a}_j\, \mathbf{a}_j\, ([j = k] - \mathbf{a}_k)
# = \mathbf{a}_k\, \mathrm{d}\mathbf{a}_k - \mathbf{a}_k \sum_j \mathbf{a}_j\, \mathrm{d}\mathbf{a}_j
# = \mathbf{a}_k \Big( \mathrm{d}\mathbf{a}_k - \sum_j \mathbf{a}_j\, \mathrm{d}\mathbf{a}_j \Big)$$
#
# So the softmax backward subtracts from each da its average under a: only differences between keys matter,
# because adding one number to a whole row of scores changes nothing. It also needs `a` alone, not `s`.
#
# Here are the four lines with `np.einsum`, each against what the library returns. The upstream gradient do is
# random: where do and v make da the same for all keys (an exercise has such ones), ds is 0, and a softmax backward that
# returns zeros would pass.

# %%
do = rng.standard_normal(o.shape)
dq, dk, dv, dbias = softmax_backward(saved, do)
a = saved.code

dc = np.einsum("bqhe,bkhe->bhqk", do, v)                                    # (4)
assert check.deviation("dv", np.einsum("bhqk,bqhe->bkhe", a, do), dv) < 1e-12     # (4)
da = dc                                                                     # (3) no dropout here
ds = a * (da - (a * da).sum(axis=-1, keepdims=True))                        # (2)
assert check.deviation("dq", np.einsum("bhqk,bkhd->bqhd", ds, k) / d**0.5, dq) < 1e-12        # (1)
assert check.deviation("dk", np.einsum("bhqk,bqhd->bkhd", ds, q) / d**0.5, dk) < 1e-12        # (1)
assert np.abs(ds.sum(axis=-1)).max() < 1e-12    # differences only
print("four lines by hand = softmax_backward")

# %% [markdown]
# The page of the library, for comparison: the same tags, in reverse order. The drawing is made from these lines. Under each
# number stands what this line's backward needs of the forward: `saved` has it, or it is made from that again, as c is here.

# %%
print(inspect.getsource(softmax_backward))
figure = diagrams.flow("softmax")

# %% [markdown]
# Both versions could share one mistake of ours. So the next question is whether they are *the derivative*.

# %% [markdown]
# ## 5. Is it the derivative? The complex step
#
# For an analytic function that is real at real x, a tiny imaginary step η is carried along and comes out as the slope:
#
# $$f(x + i \eta) = f(x) + i \eta f'(x) - \tfrac12 \eta^2 f''(x) - \dots \qquad\text{so}\qquad
# f'(x) = \frac{\operatorname{imag} f(x + i \eta)}{\eta} + O(\eta^2)$$
#
# Nothing is subtracted, so nothing cancels, and η may be 1e-30: the O(η²) is then zero to every digit. First
# one entry of dq, with the scalar loss sum(do * o), whose gradient at o is do:

# %%
eta = 1e-30
moved = q.astype(complex)
moved[1, 2, 0, 3] += 1j * eta
slope = (do * softmax(moved, k.astype(complex), v.astype(complex))[0]).sum().imag / eta
print(f"complex step {slope:.16f}\nbackward     {dq[1, 2, 0, 3]:.16f}")
assert abs(slope - dq[1, 2, 0, 3]) < 1e-12 * abs(slope)

# %% [markdown]
# `check.derivative` does this for every input of any pair (forward, backward), and asks for 1e-12. What it needs:
#
# * `forward(inputs)` takes a dictionary of arrays and returns the output, or a tuple of outputs, and whatever `backward`
#   wants to have of it;
# * `backward(saved, do)` takes that and a gradient of the output's form, which is drawn at random, and returns a dictionary
#   with the gradient of each input under the input's name. The names are yours;
# * an input of up to `entries` numbers is tried number by number, a larger one along random directions. Inputs that are
#   not floats, such as a boolean `keep`, are not differentiated, nor those whose names are in `constants`.


# %%
def forward(inputs):
    return softmax(**inputs)


def backward(saved, do):
    return dict(zip(("q", "k", "v", "bias"), softmax_backward(saved, do), strict=True))


inputs = {"q": q, "k": k, "v": v, "bias": rng.standard_normal((h, t_q, t_k))}
report = check.derivative(forward, backward, inputs, entries=300)
print(report)
assert report.ok

# %% [markdown]
# And a backward with a common mistake, dq without its 1/sqrt(d): the report names the gradient and an entry.


# %%
def backward_without_scale(saved, do):
    gradients = backward(saved, do)
    return {**gradients, "q": gradients["q"] * d**0.5}


report = check.derivative(forward, backward_without_scale, inputs, entries=300)
print(str(report).replace("WRONG: ", "WRONG:\n    "))
assert not report.ok and report.errors["q"] > 0.5 and report.errors["k"] < 1e-12

# %% [markdown]
# A gradient check says nothing about a forward that is consistently wrong, a softmax over queries say. For
# that there are the loops. The tests of the library use both, and plant mistakes (`tests/planted/`) to see
# that they are found.
#
# ## 6. Why not finite differences? A dropped epsilon
#
# RMSHead, the normaliser of tutorial 3, divides the scores of one query and key by their root mean square over the H heads,
# with an epsilon, 1e-6, inside the root:
#
# $$\mathbf{a}_h = \boldsymbol\rho\, \mathbf{s}_h, \qquad \boldsymbol\rho = \Big( \frac1H \sum_j \mathbf{s}_j^2 + \epsilon \Big)^{-1/2}, \qquad
# \mathrm{d}\mathbf{s}_h = \boldsymbol\rho\, \Big( \mathrm{d}\mathbf{a}_h - \mathbf{a}_h\, \frac1H \sum_j \mathbf{a}_j\, \mathrm{d}\mathbf{a}_j \Big)$$
#
# (tutorial 3 derives the last). A backward that forgets the epsilon is wrong by about epsilon / (2 mean s²), here some
# 1e-6. Is that seen?

# %%
s = rng.standard_normal((1, 8, 4, 5))                           # scores (b, h, q, k), 8 heads
da, direction = rng.standard_normal((2, *s.shape))


def loss_of(s):
    return (da * ops.rms_head(s)[0]).sum()


right = (ops.rms_head_backward(*ops.rms_head(s), da) * direction).sum()
wrong = (ops.rms_head_backward(*ops.rms_head(s, epsilon=0.0), da) * direction).sum()
dropped = abs(wrong - right) / abs(right)

steps = 10.0 ** np.arange(-15, 0.1, 0.25)
single, direction32 = s.astype(np.float32), direction.astype(np.float32)
slopes = {
    "central difference, float32": [(loss_of(single + n * direction32)
                                     - loss_of(single - n * direction32)) / (2 * n) for n in steps.tolist()],
    "forward difference, float64": [(loss_of(s + n * direction) - loss_of(s)) / n for n in steps],
    "central difference, float64": [(loss_of(s + n * direction)
                                     - loss_of(s - n * direction)) / (2 * n) for n in steps],
    "complex step": [loss_of(s + 1j * n * direction).imag / n for n in steps],
}
errors = {name: np.abs(np.array(values, dtype=float) - right) / abs(right) for name, values in slopes.items()}
for name, values in errors.items():
    best, usual = values.argmin(), np.abs(np.log10(steps) + 6).argmin()
    print(f"{name:28s} error {values[usual]:.0e} at eta = 1e-6, {values[best]:.0e} at eta = {steps[best]:.0e}")
print(f"{'epsilon dropped':28s} error of that backward {dropped:.0e}")

assert 1e-8 < dropped < 1e-5 and errors["complex step"][steps < 1e-8].max() < 1e-12
assert errors["central difference, float32"].min() > dropped

# %%
figure, axes = plt.subplots(figsize=(10, 4.6))
styles = {"central difference, float32": (GREY, ":"), "forward difference, float64": (ORANGE, "--"),
          "central difference, float64": (BLUE, "-."), "complex step": (GREEN, "-")}
for name, (colour, line) in styles.items():
    axes.loglog(steps, errors[name], color=colour, linestyle=line, linewidth=2, label=name)
axes.axhline(dropped, color="black", linewidth=1, label="a backward without epsilon")
axes.axhspan(1e-5, 1e-3, color=GREY, alpha=0.15, linewidth=0, label="usual tolerances")
axes.set(xlabel="step η, in units of s", ylabel="relative error of the slope", xlim=(1e-15, 1),
         title="One slope of RMSHead (8 heads, n = 20 pairs, seed 0)")
figure.legend(loc="outside right upper")

# %% [markdown]
# What is seen: in float32 no step is good enough. In float64 a central difference with a well-chosen step is accurate enough
# to see the mistake. But a test compares with a *tolerance*, and that has to let every right backward pass, for every
# function, size and step, so it is set in the grey band (PyTorch's `gradcheck`: steps of 1e-6, tolerances of 1e-5 absolute
# and 1e-3 relative). The wrong backward passes. With larger scores it is also closer to right: the error falls with their
# square. With the complex step one tolerance, 1e-12, serves everything, and the wrong backward fails by three to six orders
# of magnitude (printed below). The price: a forward must stay analytic, `s * s` and never `abs(s)`, and compare only real
# parts: a relu is `np.where(z.real > 0, z, 0)`, and `np.abs`, `np.conj` and `np.vdot` must not occur, as they are not
# analytic.

# %%
pair = (lambda x: (ops.rms_head(x["s"])[0], x["s"]),
        lambda s, da: {"s": ops.rms_head_backward(*ops.rms_head(s, epsilon=0.0), da)})
for factor in 1, 30:
    strict = check.derivative(*pair, {"s": factor * s}, entries=200)
    loose = check.derivative(*pair, {"s": factor * s}, method="finite", tolerance=1e-5, entries=200)
    print(f"scores x {factor}, complex step, 1e-12:\n    {strict}".replace("WRONG: ", "WRONG:\n        "))
    print(f"scores x {factor}, finite differences, 1e-5:\n    {loose}")
    assert not strict.ok and loose.ok

# %% [markdown]
# ## 7. Mask, empty row, bias, dropout
#
# **`keep`** is a boolean array that broadcasts to (b, h, q, k); False means: not attended to. Under softmax
# such a key takes no part in numerator or denominator. **A query that keeps nothing** would be 0/0; here it
# gets exactly zero, and no gradient flows to it or from it. Minus infinity in the textbook formula gives NaN.
# The common trick, adding -1e9, adds the same number to the whole row, which softmax does not see: in float64
# the row attends *as if there were no mask*; in float32 the scores drown in the large number, and it gets the
# average of all values.

# %%
keep = masks.causal(t_q, t_k).copy()                    # q may see k <= q + 1, as there is one key more
keep[0] = False                                         # and query 0 may see nothing at all
o, saved = softmax(q, k, v, keep=keep)
dq, dk, dv, _ = softmax_backward(saved, do)
print("code of the first head and batch entry:")
print(saved.code[0, 0].round(3))
assert np.all(saved.code[..., ~keep] == 0) and np.all(o[:, 0] == 0) and np.all(dq[:, 0] == 0)
assert check.deviation("o", o, naive.softmax(q, k, v, keep=keep)) < 1e-12
only_first = np.where(np.arange(t_q)[:, None, None] == 0, do, 0.0)
assert all(np.all(g == 0) for g in softmax_backward(saved, only_first)[:3])

with np.errstate(invalid="ignore"):
    scores = np.where(keep, ops.scores(q, k), -np.inf)
    textbook = np.exp(scores - scores.max(axis=-1, keepdims=True))
added, _ = softmax(q, k, v, bias=np.where(keep, 0.0, -1e9))
print("the empty row, here:       ", o[0, 0, 0, :4])
print("its weights, with -inf:    ", textbook[0, 0, 0, :4])
print("adding -1e9, float64:      ", added[0, 0, 0, :4].round(3))
print("no mask at all:            ", softmax(q, k, v)[0][0, 0, 0, :4].round(3))
assert np.allclose(added[:, 0], softmax(q, k, v)[0][:, 0], atol=1e-6)

single = [x.astype(np.float32) for x in (q, k, v)]
added, _ = softmax(*single, bias=np.where(keep, 0.0, -1e9).astype(np.float32))
print("adding -1e9, float32:      ", added[0, 0, 0, :4].round(3))
print("the average of all values: ", v[0, :, 0, :4].mean(axis=0).round(3))
assert np.allclose(added[:, 0], v.mean(axis=1), atol=1e-6)

# %% [markdown]
# **`bias`** is added to the scores after the 1/sqrt(d). Its gradient comes back in the shape in which it was
# given. **`dropout`** is a given array that multiplies the weights after softmax: 0 for a weight that is dropped, which has
# the probability p, and 1 / (1 - p) for the others, so that each weight stays the same on average. Rows of c no longer sum
# to 1, and `saved.code` is still the code before it.

# %%
bias = rng.standard_normal((h, 1, t_k))                     # one number for each head and key
dropout = (rng.random((1, 1, t_q, t_k)) < 0.75) / 0.75      # one pattern for the whole batch and all heads
o, saved = softmax(q, k, v, bias=bias, keep=keep, dropout=dropout)
dbias = softmax_backward(saved, do)[3]
rows = (saved.code * dropout).sum(axis=-1)[:, :, 1:]
print(f"dbias has shape {dbias.shape}; row sums of c reach from {rows.min():.2f} to {rows.max():.2f}")
assert dbias.shape == bias.shape
assert check.deviation("o", o, naive.softmax(q, k, v, bias=bias, keep=keep, dropout=dropout)) < 1e-12
inputs = {"q": q, "k": k, "v": v, "bias": bias, "keep": keep, "dropout": dropout}
report = check.derivative(forward, backward, inputs, constants=("dropout",))
print(report)
assert report.ok

# %% [markdown]
# ## 8. A tiny experiment: recall
#
# Does it train? Eight pairs (key, value) are in the context, keys in 8 dimensions, values one number; the
# last token is one of the keys, with the value 0. The answer is that key's value. One attention layer, one
# head, no other layer: `MultiHead` puts the projections around a page. Softmax, and the same with no
# normaliser (H calls it linear attention).
#
# A layer has no state. `params.allocate` gives one flat array with named views, for weights and for
# gradients; a backward *adds* into the gradients; the optimiser sees the flat arrays only.

# %%
PAIRS, FEATURES, STEPS, SEEDS = 8, 8, 600, 5
keep = np.ones((1, 1, PAIRS + 1, PAIRS + 1), dtype=bool)
keep[..., -1] = False                                           # nobody attends to the question
read = slice(PAIRS, None)                                       # only the last position is computed


def draw(rng, batch):
    """x (b, t, m), a token being a key and, last, its value; the answers; the places of the asked pairs."""
    x = rng.standard_normal((batch, PAIRS + 1, FEATURES + 1))
    asked, rows = rng.integers(PAIRS, size=batch), np.arange(batch)
    answer = x[rows, asked, -1]
    x[:, -1] = x[rows, asked]
    x[:, -1, -1] = 0
    return x, answer, asked


def train(variant, seed):
    layer = MultiHead(FEATURES + 1, heads=1, head_width=8, variant=variant)
    flat, p = params.allocate(layer.parameters(), np.float64)
    gradient, grads = params.allocate(layer.parameters(), np.float64)
    params.initialise(flat, layer.parameters(), np.random.default_rng((seed, 0)))
    moments, data, history = optim.moments(flat), np.random.default_rng((seed, 1)), []
    for step in range(STEPS):
        x, answer, _ = draw(data, batch=64)
        y, saved = layer.forward(p, x, keep=keep, read=read)
        loss, dlast = losses.mse(y[:, 0, -1], answer)
        dy = np.zeros_like(y)
        dy[:, 0, -1] = dlast
        gradient[...] = 0
        layer.backward(p, saved, dy, grads)
        rate = optim.warmup_cosine(step, rate=0.03, steps=STEPS, warmup=20)
        optim.adamw_step(flat, gradient, moments, step=step + 1, rate=rate)
        history.append(float(loss))
    x, answer, asked = draw(np.random.default_rng((seed, 2)), batch=1_000)
    y, saved = layer.forward(p, x, keep=keep, read=read)
    a = saved.attention.code[:, 0, 0, :PAIRS]                   # (1000 tasks, 8 keys)
    in_order = np.stack([np.roll(row, -n) for row, n in zip(a, asked, strict=True)])    # the asked key first
    return history, float(losses.mse(y[:, 0, -1], answer)[0]), in_order


runs = {variant: [train(variant, seed) for seed in range(SEEDS)] for variant in ("softmax", "linear")}
for variant, results in runs.items():
    final = [error for _, error, _ in results]
    print(f"{variant:8s} mean square error on 1,000 new tasks, {SEEDS} seeds: "
          f"mean {np.mean(final):.3f}, from {min(final):.3f} to {max(final):.3f}")
print("always answering 0 has a mean square error of 1")
assert max(error for _, error, _ in runs["softmax"]) < 0.25
assert min(error for _, error, _ in runs["linear"]) > 0.35

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2))
window = 20
for variant, colour, line in ("softmax", ORANGE, "-"), ("linear", GREEN, "--"):
    for seed, (history, _, _) in enumerate(runs[variant]):
        smooth = np.convolve(history, np.ones(window) / window, mode="valid")
        left.semilogy(np.arange(window, STEPS + 1), smooth, color=colour, linestyle=line, alpha=0.8,
                      label=f"{variant}, one line a seed" if seed == 0 else None)
left.axhline(1.0, color="black", linewidth=1)
left.text(STEPS, 1.07, "always answering 0", ha="right", va="bottom")
left.set(xlabel="step (64 new tasks each)", ylabel=f"mean square error, mean of {window} steps",
         title=f"Recall of 1 value among {PAIRS} (n = {SEEDS} seeds)")
left.legend()

place = np.arange(PAIRS)
for variant, offset, colour, hatch in ("softmax", -0.2, ORANGE, ""), ("linear", 0.2, GREEN, "//"):
    _, _, weights = runs[variant][1]
    weights = weights * np.sign(weights[:, 0].mean())       # linear: either sign, which W^out undoes
    right.bar(place + offset, weights.mean(axis=0), 0.38, yerr=weights.std(axis=0), label=variant,
              color=colour, hatch=hatch, edgecolor="white", ecolor="black", capsize=2)
right.axhline(0, color="black", linewidth=0.8)
right.set_xticks(place, ["asked", *map(str, place[1:])])
right.set(xlabel="key (the asked one first)", ylabel="weight a of the question on the key",
          title="Mean ± standard deviation (n = 1,000 tasks, seed 1);\n"
                "linear: sign chosen so that the asked key is positive")
right.legend()

# %% [markdown]
# What is seen: both put most weight on the asked key on average; softmax brings the others close to zero, while the linear
# weights of the other keys scatter (black bars), and every one of them adds its value to the answer. Softmax can sharpen,
# by larger scores; larger scores do not help a linear code. What is not seen: that linear attention could not do it with
# more features than pairs, or with several layers. It is one task, one head and one size.
#
# ## 9. Change this
#
# (Three exercises, with what comes out and how to grade each, are [here](exercises/README.md). Assertions are about the
# settings that stand here: one that fails after a change is an answer; take it out and go on.)
#
# * `FEATURES = 32` with `head_width=32`, or `PAIRS = 3`: how does the error of linear attention follow? Keys interfere
#   less. And with `FEATURES = 32` alone?
# * `variant="hyla"` with `heads=4`, and with `heads=1`: what does RMSHead make of a single score? (Tutorial 2.)
# * Give `keep[..., -1]` the value True: the question may attend to itself. Who is hurt?
# * Plant your own mistake in `backward` above, and see what `check.derivative` says: a forgotten `- sum_j a_j
#   da_j`, `dv` with the dropout left out, `dk` and `dq` exchanged.
# * Take `np.float32` in `train`, and `x.astype(np.float32)`: dtype in is dtype out. Without the latter you are told so.
#
# ## 10. Where paper, released code and this page differ
#
# * Eq. 1 has no bias, mask or dropout. The released code has all three, in this order: scaled scores + bias,
#   mask inside the normaliser, dropout after it. So has the page.
# * In eq. 1 a head is as wide as the model's width divided by the number of heads. The released code chooses the width
#   per head freely (2 and 4), and so does `MultiHead`.
# * Eq. 2 and 3 have no biases on the linear maps; the released code has one on each,
#   `MultiHead(biases=True)`.
# * The released code sets masked scores to the most negative number, so a query that keeps nothing would get
#   an average of the values. Here it gets exactly zero.
# * `a` is what H calls attention scores after normalisation. Read down the heads at one query and key it is
#   the *latent code*: tutorial 2.
