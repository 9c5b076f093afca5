"""The best possible answers to SRAVEN: the posterior of the ninth panel for one who knows how instances are made.

    p(answer | eight panels)  is proportional to  the sum, over permutations and rules that give this answer,
                              of the probability of the rules times the likelihood of every feature's cells

Every rule combination (multiset) of a split is equally likely, and then every order of its rules, so that an ordered
choice of rules has a prior proportional to the product of the factorials of how often each rule is in it.  The
likelihood of the eight cells of a feature is 1/K^3 (constant, progressions), 1/K^6 (addition, subtraction) or
1/(C(K, 3) 6^3) (distribute three), and the rule then decides the ninth.

Source: ours; the paper has no ceiling.  The prior is that of `Sraven.sample`.
"""

from math import comb, factorial
from typing import NamedTuple

import numpy as np

from .accuracies import panel_accuracy
from .sraven import ADDITION, METRICS, RULES, SUBTRACTION, THREE
from .sraven_hypotheses import chunks, hypotheses, matchings, merged, third_row

TIE = 1 - 1e-9                              # answers with this part of the greatest probability count as equally likely


class Posterior(NamedTuple):
    """One entry for every answer that is possible for an instance, ordered by instance."""
    instance: np.ndarray        # (n)
    answer: np.ndarray          # (n, M)
    probability: np.ndarray     # (n), sums to 1 over each instance


class Best(NamedTuple):
    answer: np.ndarray          # (b, M): the likeliest, the first in lexicographic order of equally likely ones
    probability: np.ndarray     # (b): how likely it is, the best achievable accuracy for this instance
    answers: np.ndarray         # (b): how many answers are possible


def posterior(panels, symbols, combinations, *, last_row_only=False) -> Posterior:
    """The posterior of the ninth panel, given the others, where rules come from these combinations.

    Shapes: panels (b, 3, 3, M), of which the ninth is not read; combinations (n, M), each row non-decreasing.
    With `last_row_only` only the two given panels of the last row are seen.

    Raises: ValueError as `check_size`, or for an instance that no combination can have made.
    """
    batch, features = len(panels), panels.shape[-1]
    check_size(features, symbols)
    answers, base = symbols**features, features + 1
    found = (third_row if last_row_only else hypotheses)(panels, symbols)
    place = symbols ** (features - 1 - found.k)
    code = base**found.rule * answers + found.answer * place
    instance, code, weight = matchings(found, features, batch, code, likelihood(symbols, last_row_only)[found.rule])
    rules, answer = np.divmod(code, answers)
    instance, answer, weight = merged(instance, answer, weight * prior(rules, combinations))
    instance, answer, weight = (x[weight > 0] for x in (instance, answer, weight))
    total = np.bincount(instance, weight, minlength=batch)
    if not total.all():
        raise ValueError(f"instance {int(total.argmin())} cannot come from these {len(combinations)} rule combinations")
    digits = answer[:, None] // symbols ** np.arange(features)[::-1] % symbols
    return Posterior(instance, digits, weight / total[instance])


def check_size(features, symbols):
    """Nothing, or a ValueError where rules and answer do not fit into one code of 63 bits."""
    if (int(features) + 1)**len(RULES) * int(symbols)**int(features) >= 2**63:
        raise ValueError(f"features is {features} with {symbols} symbols, which is too many for the best answers; "
                         f"allowed: M features and K symbols with (M + 1)^{len(RULES)} K^M below 2^63, or no ceiling")


def likelihood(symbols, last_row_only=False):
    """Of the given cells, and an answer that the rule allows, for each rule."""
    rows = 1 if last_row_only else 3
    p = np.full(len(RULES), float(symbols) ** -rows)
    p[[ADDITION, SUBTRACTION]] = float(symbols) ** (-2 * rows)
    p[THREE] = 1 / (comb(symbols, 3) * 6**rows)
    return p


def prior(rules, combinations):
    """The product of the factorials of how often each rule occurs, 0 for what is none of the combinations.

    A multiset is coded as the sum of (M + 1)^rule over its rules.
    """
    features = combinations.shape[1]
    codes = ((features + 1) ** combinations).sum(axis=1)
    often = (combinations[:, :, None] == np.arange(len(RULES))).sum(axis=1)
    weight = np.array([factorial(n) for n in range(features + 1)], dtype=float)[often].prod(axis=1)
    order = np.argsort(codes)
    at = order[np.searchsorted(codes[order], rules).clip(max=len(codes) - 1)]
    return np.where(codes[at] == rules, weight[at], 0.0)


def best_answers(panels, symbols, combinations, *, last_row_only=False) -> Best:
    """The likeliest answer to each instance, how likely it is, and how many answers are possible; as `posterior`."""
    room = 1 << (14 if last_row_only else max(0, min(18, 26 - 2 * panels.shape[-1])))
    parts = [_best(posterior(panels[rows], symbols, combinations, last_row_only=last_row_only), rows.stop - rows.start)
             for rows in chunks(len(panels), panels.shape[-1], room)]
    return Best(*map(np.concatenate, zip(*parts, strict=True)))


def _best(found: Posterior, batch) -> Best:
    top = np.zeros(batch)
    np.maximum.at(top, found.instance, found.probability)
    likely = np.flatnonzero(found.probability >= top[found.instance] * TIE)
    first = likely[np.unique(found.instance[likely], return_index=True)[1]]
    return Best(found.answer[first], found.probability[first], np.bincount(found.instance, minlength=batch))


class Ceiling(NamedTuple):
    """Over n instances of a split."""
    expected: float             # mean probability of the best answer: the highest accuracy that anything can expect
    reached: float              # accuracy of the best answers on these instances
    unique: float               # fraction of instances with one possible answer
    instances: int
    standard_error: float       # of `expected`


def ceiling(task, rng, count, split="train") -> Ceiling:
    """The best achievable panel accuracy on a split, for one who knows its rule combinations and all probabilities."""
    batch = task.sample(rng, count, split)
    best = best_answers(batch.panels, task.symbols, task.combinations(split))
    return Ceiling(float(best.probability.mean()), panel_accuracy(best.answer, batch.target),
                   float((best.answers == 1).mean()), count, float(best.probability.std() / count**0.5))


def rule_free(task, rng, count, split="train") -> dict:
    """Accuracies of what answers without inferring a rule: {name: {metric: value}}.

    last row : the best answer from the two given panels of the last row, for one who knows the generator
    copy     : a given panel with the same number added to all features, the best choice in hindsight
    majority : for each feature, the symbol that this feature shows most often, the smallest of equals

    For few features: `last row` holds every answer of 256 instances at a time, at M = 4 and K = 8 far too many.
    """
    batch = task.sample(rng, count, split)
    m, k = task.features, task.symbols
    given = batch.panels.reshape(count, 9, m)[:, :8]
    copies = [(given[:, panel] + add) % k for panel in range(8) for add in range(k)]
    shown = (given[..., None] == np.arange(k)).sum(axis=1)
    last_row = best_answers(batch.panels, k, task.combinations(split), last_row_only=True)
    answers = {"last row": last_row.answer, "copy": max(copies, key=lambda x: panel_accuracy(x, batch.target)),
               "majority": shown.argmax(axis=-1)}
    return {name: {metric: accuracy(answer, batch.target) for metric, accuracy in METRICS.items()}
            for name, answer in answers.items()}
