"""The theorems of finite automata: lemma 1, and products of transition matrices."""

from math import ceil, log2

import numpy as np

from ..automata.finite import random_automaton
from ..lemma_1 import chain, lemma_1, lemma_1_backward
from .statement import gap, theorem


def both(a, b):
    """Values and gradients of the network and of the product, for a random upstream gradient."""
    y, saved = lemma_1(a, b)
    dy = np.random.default_rng(len(a)).standard_normal(y.shape)
    return y, a @ b, lemma_1_backward(saved, dy), (dy @ b.mT, a.mT @ dy)


@theorem("the network of lemma 1 is the matrix product for all 256 pairs of 2 x 2 matrices of zeros and ones, and for "
         "64 random pairs of each size n = 1 ... 8; exactly", "R, lemma 1, appendix C", tolerance=0)
def lemma_1_is_the_product_of_0_1_matrices(rng):
    every = ((np.arange(16)[:, None] >> np.arange(4)) & 1).reshape(16, 2, 2).astype(float)
    worst = gap(lemma_1(np.repeat(every, 16, axis=0), np.tile(every, (16, 1, 1)))[0],
                (every[:, None] @ every).reshape(256, 2, 2))
    for n in range(1, 9):
        a, b = rng.integers(2, size=(2, 64, n, n)).astype(float)
        worst = max(worst, gap(lemma_1(a, b)[0], a @ b))
    return worst


@theorem("equal values are not equal gradients: on all pairs of 0/1 matrices, where lemma 1 has the product's values, "
         "its gradients are those of the product times the factors' own entries, A * (dY B^T) and B * (A^T dY); and "
         "with A = B = 0 nothing can be learned; exactly (up to summation order)", "R, lemma 1; this library")
def lemma_1_has_not_the_gradients_of_the_product(rng):
    n = int(rng.integers(2, 7))
    a, b = rng.integers(2, size=(2, 50, n, n)).astype(float)
    y, product, (da, db), (true_da, true_db) = both(a, b)
    differ = min(gap(da, true_da), gap(db, true_db)) > 0.1
    nothing = all((x == 0).all() for x in both(0 * a, 0 * b)[2])
    return max(gap(y, product), gap(da, a * true_da), gap(db, b * true_db), 0.0 if differ and nothing else np.inf)


@theorem("a word's state map is the product of its symbols' transition matrices, the earlier factor on the left, by "
         "ceil(log2 T) uses of one network of lemma 1: random automata of 2 to 8 states, every T from 1 to 40; exactly",
         "R, section 5", tolerance=0)
def transition_matrices_multiply_in_log2_levels(rng):
    worst = 0.0
    for t in range(1, 41):
        automaton = random_automaton(rng, int(rng.integers(2, 9)), int(rng.integers(1, 4)))
        word = rng.integers(automaton.vocabulary, size=t)
        levels = chain(automaton.matrices()[word])
        depth = np.inf if len(levels) - 1 != ceil(log2(t)) else 0.0
        worst = max(worst, depth, gap(levels[-1][0], np.eye(automaton.states)[automaton.word_map(word)]))
    return worst


@theorem("that needs one 1 in each row: the network's square of a square of the n x n matrix of ones, n > 1, has the "
         "entries n (2 n - 1) where the product has n^3; exactly", "R, section 5; this library", tolerance=0)
def products_of_other_0_1_matrices_leave_0_and_1(rng):
    worst = 0.0
    for n in range(2, 9):
        ones = np.ones((4, n, n))
        levels = chain(ones)
        wrong = 0.0 if n * (2 * n - 1) != n**3 else np.inf
        worst = max(worst, wrong, gap(levels[1], n * ones[:2]), gap(levels[2], n * (2 * n - 1) * ones[:1]))
    return worst
