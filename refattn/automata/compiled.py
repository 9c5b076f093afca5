"""Any finite automaton as exact weights of a RegularGPT: right at every length, with no training.

A position's stream is C slots, each a flattened n x n matrix: [S | P_1 | ... | P_(C-1)].  A level does

    attention       P_j <- S of the position j C^l earlier                          one head for each j = 1 .. C - 1
    feed-forward    S <- P_(C-1) ... P_1 S,  P <- 0                                 lemma 1, for C factors at once

The matrix S of level 0 is the symbol's, A(x)[q, q'] = 1 where x leads from q to q', and after level l that of the last
C^(l+1) symbols.  The feed-forward layer has a unit for each path q_0 ... q_C,

    relu(P_(C-1)[q_0, q_1] + ... + P_1[q_(C-2), q_(C-1)] + S[q_(C-1), q_C] - (C - 1))      to S[q_0, q_C],

and one for each entry of the stream, relu(x) with weight -1, which takes back what the residual carries on.  The
read-out is S[start, q] summed over the states of a class: a margin of exactly 1.
Out of range: "pad" stands for the empty word, the identity.  Under "mask" the first token is a reset, whose matrix
sends every state to the start; a missing key is replaced by the farthest one there is, whose matrix covers the reset
and is therefore constant, and M M = M for a constant map.
LayerNorm becomes the identity: every vector that it meets has n or C n ones among zeros: mean and variance are known.
GELU becomes the relu on whole numbers, 32 times larger: gelu(32 z) = 32 relu(z) to the last bit.
Every number is whole, so nothing is rounded at any length; but LayerNorm and the root of the width at the embeddings do
round, and each level makes that about C times larger.  With them float32 is right for some 16 levels at C = 2 (65,536
symbols) and 12 at C = 3 or 4 (531,441 or more), float64 for twice as many.

Source: R, section 7.2, lemma 1, and this library: the paper multiplies two matrices and leaves out residuals, norms and
the left edge.  The paper lists the head of the position itself first; who takes that for the order of the factors
multiplies later by earlier, and reads words backwards.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import params
from ..attention.sliding_dilated import SlidingDilated
from ..checks import check_choice, check_integer, check_read
from ..layers.feed_forward import FeedForward
from ..layers.positions import slice_of
from ..models.regular_gpt import RegularGPT
from ..xp import array_module, physical_memory, to_device
from .finite import Automaton

__all__ = ["Compiled", "WithReset", "compiled", "norms", "shaped", "with_reset", "write_attention",
           "write_feed_forward"]

SATURATED = 1000.0             # exp(-1000) is 0 in float32 and float64
SHARP = 32.0                   # gelu(32 z) / 32 is relu(z) exactly for whole numbers z
ACTIVATIONS = "relu", "gelu", "gelu_exact"
TILE = 1 << 22                 # hidden units that are held at once where words are read


class Compiled(NamedTuple):
    """An automaton, and the RegularGPT that has it as weights."""
    automaton: Automaton
    model: RegularGPT
    flat: Any                  # all parameters as one array, in the layout of model.parameters(); None of a loaded one
    parameters: Any            # its views by name


def shaped(automaton: Automaton, chunk: int = 2, *, norm: str = "none", activation: str = "relu",
           out_of_range: str = "pad", embedding_scale: bool = False) -> RegularGPT:
    """The RegularGPT that holds the automaton: width C n^2, n^(C+1) + C n^2 hidden units.  Raises ValueError."""
    if not isinstance(automaton, Automaton):
        raise ValueError(f"automaton is {type(automaton).__name__!r}; allowed: Automaton")
    check_choice("activation", activation, ACTIVATIONS)
    check_integer("chunk", chunk, 2)
    n = automaton.states
    width = chunk * n * n
    attention = SlidingDilated(width, chunk - 1, 1, chunk, out_of_range=out_of_range, biases=False, value_width=n * n)
    feed_forward = FeedForward(width, n**(chunk + 1) + width, activation)
    symbols = automaton.vocabulary + (1 if out_of_range == "mask" else 0)       # the reset too
    return RegularGPT(attention, feed_forward, symbols, automaton.classes, norm=norm, embedding_scale=embedding_scale)


class WithReset(RegularGPT):
    """A model with out_of_range "mask" that puts the reset, its last token, before every word by itself."""

    def forward(self, p, x, *, tree=False, read=None, levels=None):
        """y (b, q, o) of words (b, t), as `RegularGPT.forward`; the answer to the reset is left out."""
        xp = array_module(x)
        if x.ndim != 2 or not x.shape[1]:
            raise ValueError(f"x has shape {x.shape}; allowed: (b, t) tokens, t at least 1, to put a reset before")
        check_read(read)
        at = range(1, x.shape[1] + 1)[read or slice(None)]
        tokens = xp.pad(x, ((0, 0), (1, 0)), constant_values=self.vocabulary - 1)
        return super().forward(p, tokens, tree=tree, levels=levels, read=read if tree else slice_of(at))


def compiled(automaton: Automaton, chunk: int = 2, *, dtype=np.float64, xp=np, **switches) -> Compiled:
    """The automaton as weights of the model that `shaped(automaton, chunk, **switches)` makes, in the module `xp`.

    Raises ValueError for a switch that is not allowed, MemoryError, one line and before anything is allocated, for an
    automaton that the machine's memory cannot hold.

    >>> parity = compiled(Automaton([[0, 1], [1, 0]], [0, 1]))
    >>> parity.model.attention.width, parity.model.feed_forward.hidden
    (8, 16)
    >>> parity.model.forward(parity.parameters, np.array([[1, 0, 1, 1]]))[0][0].tolist()        # even, odd
    [[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    """
    model = shaped(automaton, chunk, **switches)
    fits(model, dtype)
    n, width = automaton.states, model.attention.width
    flat, p = params.allocate(model.parameters(), dtype)
    scale = width ** -0.5 if model.embedding_scale else 1.0
    p.embed.table[:automaton.vocabulary, :n * n] = automaton.matrices(dtype).reshape(-1, n * n) * scale
    if model.attention.out_of_range == "mask":
        p.embed.table[-1, np.arange(n) * n + automaton.start] = scale      # the reset: from every state to the start
    block, = p.blocks
    write_attention(block.attention, model.attention, n)
    write_feed_forward(block.feed_forward, model.feed_forward.activation, n, chunk)
    for name, ones in norms(model, n):
        norm = p.norm if name == "norm" else getattr(block, name)
        mean = ones / width
        norm.scale[...], norm.shift[...] = (mean - mean * mean + model.epsilon) ** 0.5, mean
    p.readout.w[automaton.start * n + np.arange(n), automaton.output] = 1
    flat = to_device(flat, xp)
    return Compiled(automaton, model, flat, params.view(flat, model.parameters()))


def write_attention(p, layer: SlidingDilated, n: int) -> None:
    """Head j - 1 copies slot 0 of the key at offset j to slot j; what it does without that key is said above."""
    chunk, size = layer.chunk, n * n
    for j in range(1, chunk):
        p.wv[:size, j - 1] = np.eye(size)
        p.wo[j - 1, :, j * size:(j + 1) * size] = np.eye(size)
        for other in range(chunk):                      # no entry is 0, which the released code takes for a mask
            far = j - other if other < j else chunk     # of the keys that there are the farthest wins
            far = 1 if layer.out_of_range == "pad" else far
            p.offset_bias[j - 1, other] = 1 if other == j else 1 - SATURATED * far
    if layer.out_of_range == "pad":
        p.pad[:size] = np.eye(n).ravel()


def write_feed_forward(p, activation: str, n: int, chunk: int) -> None:
    """Lemma 1 for C factors, and the units that take the old stream back."""
    size, units = n * n, n ** (chunk + 1)
    sharp = 1.0 if activation == "relu" else SHARP
    unit = np.arange(units)
    path = [unit // n**k % n for k in range(chunk, -1, -1)]     # q_0 ... q_C of every unit
    for factor in range(chunk):                         # the earliest is in the last slot, the latest in S
        slot = chunk - 1 - factor
        p.w1[slot * size + path[factor] * n + path[factor + 1], unit] = sharp
    p.b1[:units] = -(chunk - 1) * sharp
    p.w2[unit, path[0] * n + path[-1]] = 1 / sharp
    stream = np.arange(chunk * size)
    p.w1[stream, units + stream], p.w2[units + stream, stream] = sharp, -1 / sharp


def norms(model: RegularGPT, n: int) -> list:
    """(name, number of ones in each vector that it meets) of every LayerNorm."""
    chunk = model.attention.chunk
    return {"none": [], "post": [("norm1", chunk * n), ("norm2", n)],
            "pre": [("norm1", n), ("norm2", chunk * n), ("norm", n)]}[model.norm]


def with_reset(machine: Compiled, words):
    """The words as the model reads them: under "mask" with the reset in front."""
    reset = machine.model.attention.out_of_range == "mask"
    return np.pad(words, ((0, 0), (reset, 0)), constant_values=machine.automaton.vocabulary)


# --------------------------------------------------------------------------------------------------------- memory

def memory_at_hand() -> float:
    """Bytes that can be had: what the system calls available, or all there is, or no limit where it does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(int(line.split()[1]) * 1024.0 for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return physical_memory()


def fits(model: RegularGPT, dtype) -> None:
    """Nothing, or a MemoryError, one line, when parameters and one tile of hidden units are more than can be had."""
    need = np.dtype(dtype).itemsize * (params.count(model.parameters()) + 3.0 * max(TILE, model.feed_forward.hidden))
    have = memory_at_hand()
    if need > have:
        raise MemoryError(f"{model.feed_forward.hidden:,} hidden units at width {model.attention.width:,} take "
                          f"{need / 2**30:,.1f} GiB in {np.dtype(dtype)}, but at hand are {have / 2**30:,.1f}; "
                          f"allowed: automata and chunks with a smaller n^(C+1)")
