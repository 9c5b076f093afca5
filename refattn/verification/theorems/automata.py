"""The theorems of finite automata: lemma 1, products of transition matrices, and automata as weights."""

from math import ceil, log2

import numpy as np

from ...automata.compiled import compiled, with_reset
from ...automata.finite import random_automaton
from ...automata.lemma_1 import chain, lemma_1, lemma_1_backward
from ...tasks.languages import LANGUAGES
from .statement import deviation, theorem


def both(rng, a, b):
    """Values and gradients of the network and of the product, for a random upstream gradient."""
    y, saved = lemma_1(a, b)
    dy = rng.standard_normal(y.shape)
    return y, a @ b, lemma_1_backward(saved, dy), (dy @ b.mT, a.mT @ dy)


@theorem("the network of lemma 1 is the matrix product for all 256 pairs of 2 x 2 matrices of zeros and ones, and for "
         "64 random pairs of each size n = 1 ... 8; exactly", "R, lemma 1, appendix C", tolerance=0)
def lemma_1_is_the_product_of_0_1_matrices(rng):
    every = ((np.arange(16)[:, None] >> np.arange(4)) & 1).reshape(16, 2, 2).astype(float)
    worst = deviation(lemma_1(np.repeat(every, 16, axis=0), np.tile(every, (16, 1, 1)))[0],
                      (every[:, None] @ every).reshape(256, 2, 2))
    for n in range(1, 9):
        a, b = rng.integers(2, size=(2, 64, n, n)).astype(float)
        worst = max(worst, deviation(lemma_1(a, b)[0], a @ b))
    return worst


@theorem("equal values are not equal gradients: on all pairs of 0/1 matrices, where lemma 1 has the product's values, "
         "its gradients are those of the product times the factors' own entries, A * (dY B^T) and B * (A^T dY); and "
         "with A = B = 0 nothing can be learned; exactly (up to summation order)", "R, lemma 1; this library")
def lemma_1_has_not_the_gradients_of_the_product(rng):
    n = int(rng.integers(2, 7))
    a, b = rng.integers(2, size=(2, 50, n, n)).astype(float)
    y, product, (da, db), (true_da, true_db) = both(rng, a, b)
    differ = min(deviation(da, true_da), deviation(db, true_db)) > 0.1
    nothing = all((x == 0).all() for x in both(rng, 0 * a, 0 * b)[2])
    return max(deviation(y, product), deviation(da, a * true_da), deviation(db, b * true_db),
               0.0 if differ and nothing else np.inf)


@theorem("a word's state map is the product of its symbols' transition matrices, the earlier factor on the left, by "
         "ceil(log2 T) uses of one network of lemma 1: random automata of 2 to 8 states, every T from 1 to 40; exactly",
         "R, section 7.2", tolerance=0, over=range(1, 41))
def transition_matrices_multiply_in_log2_levels(rng, t):
    automaton = random_automaton(rng, int(rng.integers(2, 9)), int(rng.integers(1, 4)))
    word = rng.integers(automaton.vocabulary, size=t)
    levels = chain(automaton.matrices()[word])
    depth = np.inf if len(levels) - 1 != ceil(log2(t)) else 0.0
    return max(depth, deviation(levels[-1][0], np.eye(automaton.states)[automaton.word_map(word)]))


@theorem("a chain of lemma 1 needs factors with one 1 in each row: the network's square of a square of the n x n "
         "matrix of ones, n > 1, has the entries n (2 n - 1) where the product has n^3; exactly",
         "R, section 7.2; this library", 0, over=range(2, 9))
def products_of_other_0_1_matrices_leave_0_and_1(rng, n):
    ones = np.ones((4, n, n))
    levels = chain(ones)
    wrong = 0.0 if n * (2 * n - 1) != n**3 else np.inf
    return max(wrong, deviation(levels[1], n * ones[:2]), deviation(levels[2], n * (2 * n - 1) * ones[:1]))


# --------------------------------------------------------------------------------------------- automata as weights

def truth_of(machine, words):
    """The one-hot classes of the automaton after each token."""
    return np.eye(machine.automaton.classes)[machine.automaton.outputs(words)]


def answers(machine, words, **options):
    """What the model says after each token, and the truth."""
    y, _ = machine.model.forward(machine.parameters, with_reset(machine, words), **options)
    return y[:, -words.shape[1]:], truth_of(machine, words)


def distance(rng, most_states: int, **switches) -> float:
    """The largest error of logits of three random automata at all positions, and by the tree at the last."""
    worst = 0.0
    for chunk, states in (2, int(rng.integers(1, most_states + 1))), (3, int(rng.integers(1, 5))), (4, 3):
        machine = compiled(random_automaton(rng, states, int(rng.integers(1, 4)), 3), chunk, **switches)
        words = rng.integers(machine.automaton.vocabulary, size=(2, int(rng.integers(1, 70))))
        y, truth = answers(machine, words)
        last, _ = answers(machine, words, tree=True)
        worst = max(worst, deviation(y, truth), deviation(last[:, -1:], truth[:, -1:]))
    return worst


@theorem("a compiled automaton is right at every position: logits are exactly 1 for the class and 0 for the others, in "
         "the dense form and the tree; random automata of 1 to 8 states with C = 2, 1 to 4 with C = 3, 3 with C = 4, "
         "relu and gelu, pads and mask, no LayerNorm", "R, section 7.2; this library", tolerance=0)
def compiled_automata_are_exact(rng):
    return max(distance(rng, 8, activation=activation, out_of_range=edge)
               for activation in ("relu", "gelu", "gelu_exact") for edge in ("pad", "mask"))


@theorem("a compiled automaton with LayerNorm, before or after the sub-layers, is right to rounding, embeddings scaled "
         "by the root of the width or not; random automata of 1 to 6 states with C = 2, 1 to 4 with C = 3, 3 with "
         "C = 4, relu, pads and mask", "R, section 7.2; this library", tolerance=1e-9)
def compiled_automata_keep_layer_norm(rng):
    return max(distance(rng, 6, norm=norm, out_of_range=edge, embedding_scale=bool(rng.integers(2)))
               for norm in ("pre", "post") for edge in ("pad", "mask"))


@theorem("the order of the factors matters: with the slots of the first layer exchanged, later times earlier, every "
         "prefix is read backwards; so of nine languages exactly those closed under reversal are still read right, "
         "Even Pairs and Tomita 4 among them though their symbols do not commute, and D_n and Tomita 3 are not; C = 2, "
         "all words of up to 6 symbols", "R, section 7.2; this library", tolerance=0,
         over=("parity", "even_pairs", "cycle", "d2", "d3", "tomita3", "tomita4", "tomita5", "tomita6"))
def exchanged_factors_read_backwards(rng, name):
    machine = compiled(LANGUAGES[name].automaton)
    v, size = machine.automaton.vocabulary, machine.automaton.states**2
    w1, units = machine.parameters.blocks[0].feed_forward.w1, machine.automaton.states**3
    w1[:, :units] = np.roll(w1[:, :units], size, axis=0)
    words = np.arange(v**6)[:, None] // v ** np.arange(6) % v
    y, truth = answers(machine, words)
    wrong = [deviation(y[:, t - 1], truth_of(machine, words[:, :t][:, ::-1])[:, -1]) for t in range(1, 7)]
    closed = name not in ("d2", "d3", "tomita3")
    return max(*wrong, 0.0 if (deviation(y, truth) == 0) == closed else np.inf)


@theorem("under mask semantics the reset cannot be left out: without it a word of one symbol x is read as x x, for "
         "C = 2; random automata", "R, eq. (1) and section 7.2; this library", tolerance=0)
def without_a_reset_the_mask_reads_a_symbol_twice(rng):
    machine = compiled(random_automaton(rng, int(rng.integers(2, 9)), 3), out_of_range="mask")
    y, _ = machine.model.forward(machine.parameters, np.arange(3)[:, None])
    return deviation(y[:, 0], truth_of(machine, np.repeat(np.arange(3)[:, None], 2, axis=1))[:, -1])
