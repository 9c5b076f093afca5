"""Solutions of the exercises "change" and "explain" of each tutorial: functions that compute the expected result.

`python tutorials/exercises/solutions/answers.py` runs them all; each returns what the list of exercises says.
"""

import itertools

import numpy as np

from refattn import check, ops, params
from refattn.attention import as_hypernetwork
from refattn.attention.compositional import compositional, compositional_backward
from refattn.attention.hyla import hyla, hyla_backward
from refattn.attention.layer import MultiHead
from refattn.attention.linear_state import linear_state
from refattn.attention.sliding_dilated import sliding_dilated, sliding_dilated_backward
from refattn.attention.softmax import softmax, softmax_backward
from refattn.layers.convolution import patches
from refattn.models.regular_gpt import levels

SIZES = {"b": 2, "q": 5, "k": 6, "h": 3, "d": 4, "e": 7}


def arrays(*axes, seed=0):
    """A random array for each string of axes."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal([SIZES[x] for x in letters]) for letters in axes]


def change_1():
    """A gradient dl of l = log sum_k exp(s_k) beside do: ds = a (da - sum a da + dl).  Returns the largest error."""
    s, v = arrays("bhqk", "bkhe")

    def forward(inputs):
        total = np.exp(inputs["s"]).sum(axis=-1)
        a = np.exp(inputs["s"]) / total[..., None]
        return (np.einsum("bhqk,bkhe->bqhe", a, v), np.log(total)), a

    def backward(a, dy):
        do, dl = dy
        da = np.einsum("bqhe,bkhe->bhqk", do, v)
        return {"s": a * (da - (a * da).sum(axis=-1, keepdims=True) + dl[..., None])}

    return check.derivative(forward, backward, {"s": s}).error


def explain_1():
    """With values alike for all keys dq, dk and ds, which is dbias, are 0, whatever do is; do = 1 alone is not enough.

    Returns their largest entry.
    """
    q, k, v, bias, do = arrays("bqhd", "bkhd", "bkhe", "bhqk", "bqhe")

    def largest(v, do):
        dq, dk, _, dbias = softmax_backward(softmax(q, k, v, bias=bias)[1], do)
        return [np.abs(g).max() for g in (dq, dk, dbias)]

    assert min(largest(v, np.ones_like(do))) > 0.1
    return max(largest(np.repeat(v[:, :1], v.shape[1], axis=1), do))


def change_2():
    """Two of four heads with the same W^value and W^out: the generated matrices span 3 dimensions, not 4."""
    layer = MultiHead(8, 4, 2, variant="softmax", biases=False)
    flat, p = params.allocate(layer.parameters(), np.float64)
    params.initialise(flat, layer.parameters(), np.random.default_rng(0), "random")
    p.wv[:, 1], p.wo[1] = p.wv[:, 0], p.wo[0]
    x = np.random.default_rng(1).standard_normal((2, 6, 8))
    weights, _ = as_hypernetwork.generate(layer.forward(p, x)[1].attention.code, p.wv, p.wo)
    return int(np.linalg.matrix_rank(weights.reshape(-1, 64)))


def explain_2():
    """Under softmax sum_k W[q, k] is sum_h W_h^value W_h^out, whatever q is.  Returns the largest difference."""
    layer = MultiHead(8, 3, 2, variant="softmax", biases=False)
    flat, p = params.allocate(layer.parameters(), np.float64)
    params.initialise(flat, layer.parameters(), np.random.default_rng(0), "random")
    x = np.random.default_rng(1).standard_normal((2, 6, 8))
    weights, made = as_hypernetwork.generate(layer.forward(p, x)[1].attention.code, p.wv, p.wo)
    return np.abs(weights.sum(axis=2) - made.operation.sum(axis=0)).max()


def change_3():
    """HYLA's backward without line (2).  Returns the relative error of dq with one keep for all heads, one for each."""
    q, k, v, do = arrays("bqhd", "bkhd", "bkhe", "bqhe")
    found = []
    for heads in 1, 3:
        keep = np.random.default_rng(1).random((2, heads, 5, 6)) < 0.7
        _, saved = hyla(q, k, v, keep=keep)
        without, right = (hyla_backward(each, do)[0] for each in (saved._replace(keep=None), saved))
        found.append(float(np.abs(without - right).max() / np.abs(right).max()))
    return found


def explain_3():
    """One head: o = sum over k of relu(v) where s > 0 and of -relu(-v) where s < 0.  Returns the largest difference."""
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 5, 1, 4))
    s = ops.scores(q, k)[:, 0, :, :, None]
    expected = np.where(s > 0, np.maximum(v[:, None, :, 0], 0), np.minimum(v[:, None, :, 0], 0)).sum(axis=2)
    return np.abs(hyla(q, k, v, epsilon=0.0)[0][:, :, 0] - expected).max()


def change_4():
    """One retrieval: value scores 1, o softmax attention with shared values, dselector 0.  Returns both differences."""
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 2, 5, 3, 4))
    v, selector, wr = (rng.standard_normal(x) for x in ((2, 5, 1, 7), (2, 5, 3, 6), (7, 6)))
    o, saved = compositional(q, k, v, selector, wr)
    plain, _ = softmax(q, k, np.repeat(v, 3, axis=2))
    return np.abs(o - plain).max(), np.abs(compositional_backward(saved, np.ones_like(o))[4]).max()


def explain_4():
    """Retrievals have no order: permuted values give the same o.  Returns the largest difference."""
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 2, 5, 3, 4))
    v, selector, wr = (rng.standard_normal(x) for x in ((2, 5, 4, 7), (2, 5, 3, 6), (7, 6)))
    return np.abs(compositional(q, k, v, selector, wr)[0]
                  - compositional(q, k, v[:, :, [2, 0, 3, 1]], selector, wr)[0]).max()


def derive_5():
    """da[i, k] = sum_j dy[i, j] [a[i, k] + b[k, j] > 1], and db alike.  Returns the largest error."""
    rng = np.random.default_rng(0)

    def forward(inputs):
        pairs = inputs["a"][:, :, None] + inputs["b"][None] - 1                 # (i, k, j)
        return (pairs * (pairs.real > 0)).sum(axis=1), inputs

    def backward(inputs, dy):
        through = dy[:, None] * (inputs["a"][:, :, None] + inputs["b"][None] > 1)
        return {"a": through.sum(axis=2), "b": through.sum(axis=0)}

    return check.derivative(forward, backward, dict(zip("ab", rng.random((2, 3, 3)), strict=True))).error


def threes():
    """Is the number of ones divisible by three?"""
    from refattn.automata.reading import from_table
    return from_table("state output 0 1\nZ 1 Z A\nA 0 A B\nB 0 B Z\n")


def change_5():
    """The ones counted modulo 3.  Returns the number of maps of all words, and the errors up to length 300."""
    from refattn.automata.compiled import compiled
    from refattn.automata.exactness import errors
    drawn = np.random.default_rng(0).integers(2, size=(4, 300))
    return len(threes().monoid().maps), errors(compiled(threes()), drawn).elsewhere


def explain_5():
    """A product of two matrices of ones and zeros with one 1 in each row has one 1 in each row.  Returns whether so."""
    maps = [np.eye(3)[list(rows)] for rows in itertools.product(range(3), repeat=3)]
    return all(((a @ b).sum(axis=1) == 1).all() and set(np.unique(a @ b)) <= {0, 1} for a in maps for b in maps)


def change_6():
    """Returns the levels of C = 4 at 5,000 symbols, and the longest word that 3 levels of C = 3 see whole."""
    return levels(5_000, 4), max(n for n in range(1, 100) if levels(n, 3) == 3)


def explain_6():
    """A softmax is blind to what is the same for all offsets: doffset_bias sums to 0.  Returns its largest sum."""
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 2, 9, 3, 4))
    o, saved = sliding_dilated(q, k, v, rng.standard_normal((3, 2)), dilation=4)
    return np.abs(sliding_dilated_backward(saved, rng.standard_normal(o.shape))[4].sum(axis=1)).max()


def derive_7():
    """Returns how many 3 x 3 grids of K = 3 values each rule makes: K^3 if one cell gives a row, K^6 if two do."""
    from refattn.verification.naive.sraven import explains
    grids = [[list(cells[n:n + 3]) for n in (0, 3, 6)] for cells in itertools.product(range(3), repeat=9)]
    return [sum(explains(rule, grid, 3) for grid in grids) for rule in (0, 1, 5, 7)]


def change_7():
    """Returns the fraction of ambiguous instances, as the text says, with K = 8 and with K = 16 values."""
    from refattn.tasks.sraven_ambiguity import ambiguity_table
    table = ambiguity_table(seed=0, count=4_000, grid=[(4, 8), (4, 16)])
    return [row.fraction for row in table if row.criterion == "text"]


def explain_7():
    """Guessing all M = 4 features of K = 8 values is right once in K^M.  Returns that number."""
    return 8**4


def derive_8():
    """A code of epsilon 0 does not change when scores are stretched: sum_h s_h ds_h = 0.  Returns the largest sum."""
    s, da = arrays("bhqk", "bhqk")
    a, rho = ops.rms_head(s, epsilon=0.0)
    return np.abs((s * ops.rms_head_backward(a, rho, da)).sum(axis=1)).max()


def change_8():
    """A question of all 0.5, where every literal is 0.5.  Returns the answers that occur."""
    from refattn.recipes import recipe
    task = recipe("fuzzy_logic", "quick", variables=3).data()
    return np.unique(task.sample(np.random.default_rng(0), 200, query=[0.5, 0.5, 0.5]).target).tolist()


def explain_8():
    """Macro-F1 of always naming one of n = 6 labels that are equally frequent: 2 / (n (n + 1))."""
    precision, recall, n = 1 / 6, 1.0, 6
    return 2 * precision * recall / (precision + recall) / n


def change_9():
    """Returns how many tokens windows of 25 at a stride of 10 make of 75 x 75 pixels."""
    rows = patches(np.zeros((1, 75, 75, 3)), 25, 10)
    return rows.reshape(-1, 25 * 25 * 3).shape[0]


def explain_9():
    """Returns in how many windows of 4, at a stride of 2 with a border of 1, each of 6 pixels in a row lies."""
    return [sum(first <= pixel < first + 4 for first in range(-1, 4, 2)) for pixel in range(6)]


def change_10():
    """Three positions, two alike: n = -1/sqrt(3) twice and 2/sqrt(3).  Returns n."""
    x = np.array([5.0, 5.0, 9.0])
    return ((x - x.mean()) / x.std(ddof=1)).tolist()


def explain_10():
    """Returns the slope of context normalisation where a feature is constant: (1 - 1/T) / sqrt(epsilon), T = 4."""
    x = np.full(4, 2.0, dtype=complex)
    x[0] += 1e-30j
    spread = x - x.mean()
    return float((spread / np.sqrt((spread * spread).sum() / 3 + 1e-8))[0].imag / 1e-30)


def change_11():
    """Targets smoothed to 0.9 and 0.1 / V: dz = p - target.  Returns the largest error."""
    rng = np.random.default_rng(0)
    z, target = rng.standard_normal((5, 7)), 0.9 * np.eye(7)[rng.integers(7, size=5)] + 0.1 / 7

    def forward(inputs):
        return np.log(np.exp(inputs["z"]).sum(axis=-1)) - (target * inputs["z"]).sum(axis=-1), inputs["z"]

    def backward(z, dy):
        p = np.exp(z) / np.exp(z).sum(axis=-1, keepdims=True)
        return {"z": (p - target) * dy[:, None]}

    return check.derivative(forward, backward, {"z": z}).error


def explain_11():
    """A state has d e numbers, kept keys and values T (d + e).  Returns the first T at which the state is less."""
    q, k = np.ones((2, 1, 9, 1, 3))
    _, state, _ = linear_state(q, k, np.ones((1, 9, 1, 4)))
    return next(t for t in range(1, 100) if state.size < t * (3 + 4))


ANSWERS = {name: value for name, value in globals().items()
           if callable(value) and name.startswith(("derive_", "change_", "explain_"))}

if __name__ == "__main__":
    for name, answer in ANSWERS.items():
        print(f"{name:14s} {answer()}")
