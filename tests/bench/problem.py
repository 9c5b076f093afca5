"""What is timed: one training step of H's fuzzy-logic model at T = 32, the same for ours and for the twins.

A step samples a batch and a dropout array (in NumPy, by the same function for everybody), runs forward, squared error
at the last position, backward and AdamW.  `full` computes every position of every block; `read` computes in the last
block only the last query, with keys and values everywhere.  float32, biases everywhere, LayerNorm and GELU as in H's
code, one T5 table per block gathered in every step, attention dropout as released.
"""
import math

import numpy as np

from refattn.tasks.fuzzy_logic import FuzzyLogic

BATCH, LENGTH, INPUTS, WIDTH, HEADS, HEAD_WIDTH, LAYERS, HIDDEN, PARAMETERS = 128, 32, 5, 128, 8, 2, 2, 256, 151_265
EPSILON, DROPOUT = 1e-6, 0.1
RATE, DECAY, BETAS, ADAM_EPSILON, WARMUP, STEPS = 1e-3, 0.1, (0.9, 0.999), 1e-8, 100, 50_000
VARIANTS, MODES = ("softmax", "linear", "hyla"), ("full", "read")


def sample(step):
    """tokens (b,t,i), target (b), dropout (l,q,k): one Bernoulli keep matrix per block, divided by 1 - p."""
    rng = np.random.default_rng((0, step))
    tokens, target, *_ = FuzzyLogic(length=LENGTH).sample(rng, BATCH)
    keep = rng.random((LAYERS, LENGTH, LENGTH), np.float32) >= DROPOUT
    return tokens, target, keep / np.float32(1 - DROPOUT)


def learning_rate(count):
    """Of update 0, 1, ...: linear warm-up from zero, then a cosine to a tenth that ends WARMUP updates early."""
    done = min(count - WARMUP, STEPS - 2 * WARMUP) / (STEPS - 2 * WARMUP)
    return RATE * (count / WARMUP if count < WARMUP else 0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def buckets():
    """(q,k) -> column of the T5 table, by the released code: one direction, exact up to LENGTH / 2, then by the log."""
    half = LENGTH // 2
    n = np.maximum(np.arange(LENGTH)[:, None] - np.arange(LENGTH), 0)
    far = half + (LENGTH - half) * np.log(np.maximum(n, half) / half + 1.19e-7) / math.log(LENGTH / half)
    return np.where(n < half, n, np.minimum(LENGTH - 1, far.astype(int)))
