"""Latent codes of trained models: what they say about the task, layer by layer.

    observe     codes of fresh samples by layer, with the labels that the task gives them        H, sections 3.2, 4.4
    decode      logistic regression from code to label, scored on other codes by macro-F1         H, figures 2B, 5F
    probe       the released code's ridge regression from codes to literals of the terms
    explained   share of the codes' variance that lies between groups: functions, rules, answers  H, figures 2D, 5A, 5B
    similarity  cosine of the mean codes of two labels                                            H, figures 5E, A8
    embed       t-SNE in two dimensions                                                       H, figures 2D, A2, 5A, 5B

The latent code of a query-key pair is its attention weights over heads, without dropout.  Fuzzy logic: the last token
attends to itself.  SRAVEN: the last query token attends to the same feature of the two given panels of its row, as the
released code has it, and to itself, as the text has it; on instances without permutation, rule of the last feature.
Differs: the paper leaves regulariser, averaging of F1 and numbers of points open; the released code has `probe` alone.
Needs the extra `plots` (scikit-learn) for `decode` and `embed`.
"""

from typing import NamedTuple

import numpy as np

from ..checks import check_choice, check_integer
from ..train.evaluation import forward
from ..xp import fitted, to_host

__all__ = ["Codes", "decode", "decode_terms", "embed", "explained", "macro_f1", "observe", "probe", "report",
           "similarity"]


class Codes(NamedTuple):
    """Latent codes of n samples, on the host."""
    code: np.ndarray           # (n, l, h, p), p the pairs of `pairs`
    pairs: tuple               # names of the pairs: "itself", or also "first panel", "second panel"
    labels: dict               # {label: (n) integers}: "term 1", "term 2" in increasing order, or "rule"
    terms: np.ndarray | None   # (n, K) the terms of each fuzzy-logic task
    target: np.ndarray         # (n)
    prediction: np.ndarray     # (n)
    inputs: np.ndarray         # (n, i): the query's inputs, or the symbols of the two given panels

    def at(self, layer: int, pair: int = -1) -> np.ndarray:
        """(n, h), in float64: the codes of one layer and pair."""
        return self.code[:, layer, :, pair].astype(np.float64)


def observe(recipe, model, parameters, rng, split: str = "train", count: int = 4_000, *, context=None,
            query=None) -> Codes:
    """The codes of `count` fresh samples; recipe, model, parameters as `refattn.load` returns them.

    `context` and `query` fix inputs for all samples of fuzzy logic: see `FuzzyLogic.sample`.
    Raises ValueError for a recipe of another task than fuzzy logic and SRAVEN, and of SRAVEN with such inputs.
    """
    check_choice("task of the recipe", recipe.TASK, READERS if context is query is None else ("fuzzy_logic",))
    check_integer("count", count)
    keys_of, read, options = READERS[recipe.TASK]
    keys = keys_of(recipe)
    places = list(keys.values())
    fixed = {name: x for name, x in (("context", context), ("query", query)) if x is not None}
    parts = []
    for start in range(0, count, recipe.batch):
        batch = recipe.data().sample(rng, min(recipe.batch, count - start), split, **options, **fixed)
        y, saved = forward(recipe, model, parameters, batch)
        codes = [to_host(block.attention.attention.code[:, :, -1, places]) for block in saved.blocks]
        parts.append((np.stack(codes, axis=1), *read(batch, to_host(y))))
    code, labels, target, prediction, inputs = (np.concatenate(part) for part in zip(*parts, strict=True))
    terms = labels if labels.ndim == 2 else None
    named = {"rule": labels} if terms is None else {f"term {n}": column for n, column in enumerate(terms.T, start=1)}
    return Codes(code, tuple(keys), named, terms, target, prediction, inputs)


def read_fuzzy_logic(batch, y):
    """The terms of each task, in increasing order; target, prediction and inputs of the query."""
    return np.sort(batch.terms, axis=1), batch.target, y[:, -1, 0], batch.tokens[:, -1, :-1]


def read_sraven(batch, y):
    """The last rule; target and prediction of the last feature, and its symbols in the two given panels."""
    return batch.rules[:, -1], batch.target[:, -1], y[:, -1].argmax(axis=-1), batch.panels[:, 2, :2, -1]


# task -> (recipe -> {pair: the key that the last token attends to}, what is read off a batch and y, how it is drawn)
READERS: dict[str, tuple] = {
    "fuzzy_logic": (lambda recipe: {"itself": -1}, read_fuzzy_logic, {}),
    "sraven": (lambda recipe: {"first panel": -1 - 2 * recipe.features, "second panel": -1 - recipe.features,
                               "itself": -1}, read_sraven, {"shuffled": False})}


def standardised(train, *others):
    """All arrays (n, h), shifted and scaled by mean and deviation of the first; a constant column becomes 0."""
    spread = np.where(np.ptp(train, axis=0) > 0, train.std(axis=0), np.inf)     # a mean of equals may be rounded
    return [(x - train.mean(axis=0)) / spread for x in (train, *others)]


def f1(truth, guess):
    """2 TP / (2 TP + FP + FN) of booleans."""
    return 2 * np.sum(truth & guess) / (np.sum(truth) + np.sum(guess))


def macro_f1(truth, guess) -> float:
    """Mean over the labels that occur in the truth of 2 TP / (2 TP + FP + FN).

    >>> round(macro_f1(np.array([0, 0, 1]), np.array([0, 1, 1])), 4)
    0.6667
    """
    guess = fitted(np.asarray(guess), "guess", np.shape(truth))
    return float(np.mean([f1(truth == label, guess == label) for label in np.unique(truth)]))


def shuffled(rows, seed: int | None):
    """The rows in random order, for what a code scores that says nothing; as they are without a seed."""
    return rows if seed is None else np.random.default_rng(seed).permutation(rows)


def decode(train, labels, test, truth, *, seed: int | None = None) -> float:
    """Macro-F1 on (test, truth) of multinomial logistic regression fitted on (train, labels); codes are (n, h).

    With a seed the labels are shuffled before the fit.  Where training has one label, that is always said.
    """
    if len(np.unique(labels)) == 1:
        return macro_f1(truth, np.full(len(truth), labels[0]))
    from sklearn.linear_model import LogisticRegression
    x, other = standardised(train, test)
    return macro_f1(truth, LogisticRegression(max_iter=2_000).fit(x, shuffled(labels, seed)).predict(other))


def decode_terms(train, terms, test, truth, *, seed: int | None = None) -> float:
    """Mean F1 of one balanced yes-no regression for each term: is it in the task?  Needs no order of terms (n, K).

    A term that is in all or in none of the training tasks is always or never said.
    """
    from sklearn.linear_model import LogisticRegression
    x, other = standardised(train, test)
    terms, scores = shuffled(terms, seed), []
    for term in np.unique(truth):
        has, is_there = (terms == term).any(axis=1), (truth == term).any(axis=1)
        guess = np.full(len(truth), has.all())
        if has.any() and not has.all():
            guess = LogisticRegression(class_weight="balanced", max_iter=2_000).fit(x, has).predict(other)
        scores.append(f1(is_there, guess))
    return float(np.mean(scores))


def binned(target, *others, bins: int = 16):
    """One-hot rows for up to `bins` ranges of the first array with about equally many entries: what an answer says."""
    edges = np.unique(np.quantile(target, np.linspace(0, 1, bins + 1)[1:-1]))
    return [np.eye(len(edges) + 1)[np.searchsorted(edges, x)] for x in (target, *others)]


def explained(code, groups) -> float:
    """1 - (W / (n - g)) / (S / (n - 1)): the share of the variance of codes (n, h) between g groups, less chance.

    W and S are the sums of squared distances from the mean of the own group, and of all; a row of `groups`, (n) or
    (n, k), names the group.  Groups that say nothing have 0 on average, 1 is a code that the group fixes; 0 too are
    codes that are all the same, and groups of one code each.

    >>> explained(np.array([[0.0], [0.0], [2.0], [2.0]]), np.array([3, 3, 5, 5]))
    1.0
    """
    names, group = np.unique(fitted(np.asarray(groups), "groups", (len(code), *np.shape(groups)[1:])), axis=0,
                             return_inverse=True)
    member = np.eye(len(names))[group.ravel()]
    within = code - member @ ((member.T @ code) / member.sum(axis=0)[:, None])
    free, spread = len(code) - len(names), np.sum((code - code.mean(axis=0)) ** 2)
    if not free or (code == code[:1]).all():                # whose mean may be rounded
        return 0.0
    return float(1 - np.sum(within**2) / free / (spread / (len(code) - 1)))


def report(train: Codes, test: Codes, pair: int = -1, seed: int = 0) -> dict:
    """{"layer 1": {label: macro-F1, "shuffled LABEL": ..., "answer LABEL": ..., "both explain": share, ...}, ...}.

    Regressions are fitted on `train` (in-distribution tasks) and scored on `test` (held-out tasks).  Labels are those
    of the codes, and "any term" for `decode_terms`.  Two scores to compare with: after the labels were shuffled, and
    from the true answer in place of the code, as a code that said the answer alone would have it.  "answer explains"
    and "both explain" are shares of variance, `explained`, of the codes of `test`: between answers, or 16 ranges where
    there are more, and between functions or rules with such an answer; the same on average where a code says no more.
    """
    labelled: list = [(name, decode, train.labels[name], test.labels[name]) for name in train.labels]
    if train.terms is not None:
        labelled.append(("any term", decode_terms, train.terms, test.terms))
    answer, answered = binned(train.target, test.target)
    ranges = test.target if len(np.unique(test.target)) <= 16 else binned(test.target)[0].argmax(axis=1)
    both = np.stack([*test.labels.values(), ranges], axis=1)
    alone, found = {name: score(answer, labels, answered, truth) for name, score, labels, truth in labelled}, {}
    for layer in range(train.code.shape[1]):
        x, other = train.at(layer, pair), test.at(layer, pair)
        scores = found[f"layer {layer + 1}"] = {"answer explains": explained(other, ranges),
                                                "both explain": explained(other, both)}
        for name, score, labels, truth in labelled:
            scores[name] = score(x, labels, other, truth)
            scores[f"shuffled {name}"] = score(x, labels, other, truth, seed=seed)
            scores[f"answer {name}"] = alone[name]
    return found


def conjugate_gradient(a, b, steps: int, tolerance: float = 1e-5):
    """x near the solution of a x = b, a symmetric and positive: from 0 until |b - a x| <= tolerance |b|, or `steps`."""
    x, r = np.zeros_like(b), b.copy()
    p, square = r.copy(), r @ r
    enough = tolerance * tolerance * square
    for _ in range(steps):
        if square <= enough:
            break
        ap = a @ p
        alpha = square / (p @ ap)
        x += alpha * p
        r -= alpha * ap
        square, before = r @ r, square
        p = r + square / before * p
    return x


def probe(codes: Codes, variables: int, *, penalty: float = 1.0, steps: int = 10) -> float:
    """Mean R2 of ridge regression from the codes of all layers to each literal's sign, over terms and variables.

    As released: first half fitted, second half scored, the penalty on all weights and the intercept, conjugate gradient
    to a residual of 1e-5, at most ten iterations; no intercept is fitted to a code with an entry of exactly 0.  The
    released code does so with codes of training tasks and one fixed query.  A sign that all scored tasks share is left
    out.  Raises ValueError for codes of another task than fuzzy logic.
    """
    n = len(codes.code)
    if codes.terms is None:
        raise ValueError("codes have no terms; allowed: codes of fuzzy logic")
    x = np.concatenate([codes.code.reshape(n, -1), np.ones((n, 1))], axis=1).astype(np.float64)
    signs = (codes.terms[:, :, None] >> np.arange(variables)[::-1] & 1).reshape(n, -1).astype(np.float64)
    fit, score = slice(None, n // 2), slice(n // 2, None)
    x[fit, -1] = (x[fit] != 0).all(axis=1)
    a, scores = x[fit].T @ x[fit] + penalty * np.eye(x.shape[1]), []
    for y in signs.T[signs[score].any(axis=0) & ~signs[score].all(axis=0)]:
        guess = x[score] @ conjugate_gradient(a, x[fit].T @ y[fit], steps)
        scores.append(1 - np.mean((y[score] - guess) ** 2) / np.var(y[score]))
    return float(np.mean(scores))


def mean_codes(code, labels):
    """(labels, means (l, h)): the mean code (n, h) of each label, in increasing order."""
    names = np.unique(labels)
    return names, np.stack([code[labels == name].mean(axis=0) for name in names])


def similarity(code, labels):
    """(labels, their cosines): of the mean codes (n, h) of each pair of labels, in increasing order.

    NaN, with NumPy's warning, for a label whose mean code is 0.

    >>> similarity(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([0, 1]))[1].tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    names, means = mean_codes(code, labels)
    means /= np.sqrt((means * means).sum(axis=1, keepdims=True))
    return names, means @ means.T


def embed(code, *, seed: int = 0, perplexity: float = 30.0):
    """(n, 2): t-SNE of standardised codes (n, h); zeros where all are alike, on which scikit-learn's crashes."""
    from sklearn.manifold import TSNE
    if np.ptp(code, axis=0).max() == 0:
        return np.zeros((len(code), 2), np.float32)
    return TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(standardised(code)[0])
