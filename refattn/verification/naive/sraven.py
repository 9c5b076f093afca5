"""SRAVEN by loops: the rules, what a batch must satisfy, and the brute-force search over all (M!)^3 permutations."""

from collections import Counter
from itertools import permutations, product
from math import comb, factorial

STEPS = {0: 0, 1: 1, 2: 2, 3: -1, 4: -2}                # rule -> step from column to column


def explains(rule, grid, symbols):
    """Whether the rule can have made a feature's 3 x 3 grid, given by rows.

    >>> explains(1, [[0, 1, 2], [5, 6, 7], [6, 7, 0]], 8), explains(7, [[0, 1, 5], [1, 5, 0], [0, 0, 1]], 8)
    (True, False)
    """
    if rule in STEPS:
        return all((row[c + 1] - row[c] - STEPS[rule]) % symbols == 0 for row in grid for c in (0, 1))
    if rule in (5, 6):
        return all((row[0] + (row[1] if rule == 5 else -row[1]) - row[2]) % symbols == 0 for row in grid)
    return len(set(grid[0])) == 3 and all(sorted(row) == sorted(grid[0]) for row in grid)


def faults(batch, symbols, combinations):
    """What is wrong with a batch: {what: how often}, empty for a right one.

    batch : (tokens, target, panels, rules, permutation) as `tasks.sraven.Batch` has them
    """
    found = Counter()
    allowed = {tuple(row) for row in combinations.tolist()}
    for tokens, target, panels, rules, permutation in zip(*(x.tolist() for x in batch), strict=True):
        features = len(target)
        found["rules are not of the split"] += tuple(rules) not in allowed
        shown = [panels[r][c][m] for r in range(3) for c in range(3) for m in range(features)]
        for n, token in enumerate(tokens):
            hot = [float(n < 8 * features and value == shown[n]) for value in range(symbols)]
            found["a token is not the one-hot vector of its symbol"] += token != hot
        found["the target is not the ninth panel"] += target != panels[2][2]
        for m, rule in enumerate(rules):
            where = [permutation[c].index(m) for c in range(3)]
            grid = [[panels[r][c][where[c]] for c in range(3)] for r in range(3)]
            found[f"rule {rule} did not make its feature"] += not explains(rule, grid, symbols)
    return {what: count for what, count in found.items() if count}


# ----------------------------------------------------------------------------------------- brute-force explanations

def fitting(cells, symbols, strict=True):
    """[(rule, what it says about the last cell)] for eight cells, by rows; one entry for each rule that fits.

    The tests for ambiguity of the authors' code, and with `strict` the rules as the generator has them.
    """
    (a, b, c), (d, e, f), (g, h) = cells
    found = []
    for rule, step in STEPS.items():
        if all((later - sooner - step) % symbols == 0 for sooner, later in ((a, b), (b, c), (d, e), (e, f), (g, h))):
            found.append((rule, (h + step) % symbols))
    for rule, sign in (5, 1), (6, -1):
        if (a + sign * b - c) % symbols == 0 and (d + sign * e - f) % symbols == 0:
            found.append((rule, (g + sign * h) % symbols))
    triple = sorted((a, b, c))
    if triple == sorted((d, e, f)) and g in triple and h in triple:
        if not strict:
            found.append((7, min(triple, key=lambda symbol: (g == symbol) + (h == symbol))))
        elif len(set(triple)) == 3 and g != h:
            found.append((7, sum(triple) - g - h))
    return found


def explanations(panels, symbols, strict=True):
    """Every (rules, answer) that some permutations of the three columns give, as often as they give it.

    panels : one instance, (3, 3, M) by row and column; features of the answer are in the order of the third column
    """
    features = len(panels[0][0])
    orders = list(permutations(range(features)))
    for p, q, s in product(orders, repeat=3):
        options = []
        for m in range(features):
            rows = [[panels[r][c][order[m]] for c, order in enumerate((p, q, s))] for r in range(3)]
            options.append(fitting((rows[0], rows[1], rows[2][:2]), symbols, strict))
        for choice in product(*options):
            answer = [None] * features
            for m, (_, symbol) in enumerate(choice):
                answer[s[m]] = symbol
            yield tuple(rule for rule, _ in choice), tuple(answer)


def differing(panels, symbols, strict=False):
    """For how many features an explanation of the given panels can miss the ninth: a set of numbers."""
    truth = panels[2][2]
    return {sum(x != y for x, y in zip(answer, truth, strict=True))
            for _, answer in explanations(panels, symbols, strict)}


def posterior(panels, symbols, combinations):
    """{answer: probability} of the ninth panel, if each combination of rules, and each permutation, is equally likely.

    The generator's rules are in non-decreasing order, so that an explanation counts if its rules are.
    """
    allowed, weights = {tuple(row) for row in combinations}, Counter()
    likelihood = {rule: symbols**-3.0 for rule in STEPS} | {5: symbols**-6.0, 6: symbols**-6.0,
                                                            7: 1 / (comb(symbols, 3) * factorial(3) ** 3)}
    for rules, answer in explanations(panels, symbols):
        if rules in allowed:
            weight = 1.0
            for rule in rules:
                weight *= likelihood[rule]
            weights[answer] += weight
    total = sum(weights.values())
    return {answer: weight / total for answer, weight in weights.items()}
