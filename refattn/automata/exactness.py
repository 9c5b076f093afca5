"""Where a compiled automaton is wrong, length by length: one causal pass for each number of levels.

A word of length t is read at its last position with as many levels as t needs.  Reading is causal, so a pass over a
long word with that number of levels gives at position t the same answer: one pass covers all lengths that need it.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..layers.norm import LayerNorm
from ..models.regular_gpt import levels as levels_for
from ..xp import array_module, to_device, to_host
from . import walks
from .compiled import TILE, Compiled, with_reset

__all__ = ["Errors", "errors", "logits", "passes", "positions", "walked"]


class Errors(NamedTuple):
    """How often a compiled automaton answers wrongly, and how clear its right answers are."""
    by_length: np.ndarray      # (t): wrong answers to words of length 1, 2, ..., read at their last position
    elsewhere: int             # wrong answers at all positions of all passes, those of `by_length` among them
    margin: float              # the least by which a right logit is above the others; 1 in exact arithmetic
    answers: int               # that were compared, at all positions of all passes
    asked: np.ndarray          # (passes, n): how often a word of the lengths of a pass ended in each state


def as_compiled(machine) -> Compiled:
    """A compiled automaton, also from the (recipe, model, parameters) of a run directory that was loaded."""
    if isinstance(machine, Compiled):
        return machine
    recipe, model, p = machine
    return Compiled(recipe.automaton, model, None, p)


def length_of(words) -> int:
    """t of words (b, t).  Raises ValueError for other axes, or no token."""
    if len(shape := np.shape(words)) != 2 or not shape[1]:
        raise ValueError(f"words have shape {shape}; allowed: (b, t) with at least one token")
    return shape[1]


def logits(machine, words, levels: int | None = None, progress=None):
    """(b, t, classes) after each token of words (b, t), by the model's own blocks, some positions at a time.

    `levels` are as many as the length needs unless given; `progress` is called with numbers of positions, as they get
    done at one level.  Under "mask" the reset is put before the words here, and its own answer left out.  Raises
    ValueError for words of other axes, or without a token.
    """
    machine, length = as_compiled(machine), length_of(words)
    model, p = machine.model, machine.parameters
    tokens, xp = with_reset(machine, words), array_module(p.embed.table)
    h, _ = model.embedding.forward(p.embed, to_device(tokens, xp))
    t = tokens.shape[1]
    step = max(1, TILE // (model.feed_forward.hidden * max(1, len(words))))
    for block, k, _ in model.schedule(t, False, None, levels):
        parts, back = [], (model.attention.chunk - 1) * block.attention.dilation
        for start in range(0, t, step):                 # a tile, which looks back so far and no farther
            first = max(0, start - back)
            parts.append(block.forward(p.blocks[k], h[:, first:start + step], read=slice(start - first, None))[0])
            if progress is not None:
                progress(min(step, t - start))
        h = xp.concatenate(parts, axis=1)
    if model.norm == "pre":
        h, _ = LayerNorm(h.shape[-1], model.epsilon).forward(p.norm, h)
    return model.readout.forward(p.readout, h)[0][:, t - length:]


def passes(machine, longest: int) -> list:
    """(number of levels, length) of the passes that cover all lengths up to `longest`.

    The reset of "mask" is a token more.
    """
    machine = as_compiled(machine)
    chunk, reset = machine.model.attention.chunk, machine.model.attention.out_of_range == "mask"
    return [(level, min(longest, chunk**level - reset)) for level in range(1, levels_for(longest + reset, chunk) + 1)]


def walked(machine, rng, count: int, longest: int) -> list:
    """Words for `errors`, so many of every length up to `longest`, that visit all states: one array for each pass."""
    spans = pairwise([0, *(length for _, length in passes(machine, longest))])
    return walks.words(as_compiled(machine).automaton, rng, count, [(last + 1, length) for last, length in spans])


def positions(machine, longest: int) -> int:
    """How many positions `progress` will have been told of in the end."""
    reset = as_compiled(machine).model.attention.out_of_range == "mask"
    return sum(number * (length + reset) for number, length in passes(machine, longest))


def errors(machine, words, progress=None) -> Errors:
    """Errors against the automaton, at all lengths from 1 to t and at every position of each pass.

    machine : what `compiled` made, or what `refattn.load` returns of its run directory
    words   : (b, t) tokens, or a list of such arrays, one for each of the `passes` and as long as the pass

    Raises ValueError for words of other axes or lengths, or without a token.

    >>> from refattn.automata.compiled import compiled
    >>> from refattn.automata.finite import Automaton
    >>> found = errors(compiled(Automaton([[0, 1], [1, 0]], [0, 1])), np.array([[1, 0, 1, 1, 0]]))
    >>> found.by_length.tolist(), found.asked.tolist()          # lengths 1 and 2, 3 and 4, 5
    ([0, 0, 0, 0, 0], [[0, 2], [1, 1], [0, 1]])
    """
    machine = as_compiled(machine)
    automaton, longest = machine.automaton, length_of(words[-1] if isinstance(words, list) and words else words)
    parts = passes(machine, longest)
    words = words if isinstance(words, list) else [words[:, :length] for _, length in parts]
    given, lengths = [length_of(part) for part in words], [length for _, length in parts]
    if given != lengths:
        raise ValueError(f"words are of lengths {given}; allowed: those of the passes, {lengths}")
    by_length, asked = np.zeros(longest, dtype=np.int64), []
    elsewhere, margin, done = 0, np.inf, 0                  # `done`: the longest of the pass before
    for (number, length), tokens in zip(parts, words, strict=True):
        states = automaton.run(to_host(tokens))
        truth = automaton.output[states][..., None]
        y = to_host(logits(machine, tokens, number, progress))
        right = np.take_along_axis(y, truth, axis=-1)[..., 0]
        others = np.where(np.arange(y.shape[-1]) == truth, -np.inf, y).max(axis=-1)
        wrong = ~(right > others)
        by_length[done:length] = wrong[:, done:].sum(axis=0)
        asked.append(np.bincount(states[:, done:].ravel(), minlength=automaton.states))
        elsewhere += int(wrong.sum())
        margin = min(margin, float((right - others).min(initial=np.inf)))
        done = length
    return Errors(by_length, elsewhere, margin, sum(map(np.size, words)), np.array(asked))
