"""SCAN: commands such as "jump twice and walk left" become actions; trained on short sequences, asked for long ones.

    u = walk | look | run | jump                                                its action
    V = u | turn D | u D | turn opposite D | ... | u around D, D = left | right     turns, before each u
    S = V | V twice | V thrice                                                  the actions once, twice, three times
    C = S | S1 and S2 | S1 after S2                                             those of S1 and S2 in the order of doing

Source: Lake & Baroni 2018, figures 6 and 7; splits of C, section 4.6, table 4, and of the authors' code.
Differs: not from the code.  Its held-out tenth is drawn from the published file, whose order scan_order.npy repeats.
A cut-off counts actions without the end; no command has 29 of them, so the cut-offs 28 and 29 are one split, to which
table 4 gives two columns.
Units: lengths in tokens.
"""

from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..checks import check_choice, check_integer, check_numbers
from ..refusals import choices
from .splits import frozen

WORDS = tuple("after and around jump left look opposite right run thrice turn twice walk".split())
ACTIONS = tuple("I_JUMP I_LOOK I_RUN I_TURN_LEFT I_TURN_RIGHT I_WALK".split())
STOP, START = len(WORDS), len(WORDS) + 1        # around a command
END = len(ACTIONS)                              # after the actions, and before them where a decoder begins
LONGEST = 48                                    # actions
SPLITS = "train", "held_out", "longer"


class Batch(NamedTuple):
    source: np.ndarray         # (b, 11) integers: START, the words, STOP, and zeros to the right edge
    source_length: np.ndarray  # (b) integers, START and STOP included
    target: np.ndarray         # (b, t) integers: the actions, and END to the right edge, at least once
    length: np.ndarray         # (b) integers, of the actions


@cache
def grammar():
    """{command: its actions}, all 20,910.

    >>> len(grammar()), " ".join(grammar()["jump twice after turn opposite left"])
    (20910, 'I_TURN_LEFT I_TURN_LEFT I_JUMP I_JUMP')
    """
    primitives = {word: (f"I_{word.upper()}",) for word in ("walk", "look", "run", "jump")}
    verbs = dict(primitives)
    for side, (verb, does) in product(("left", "right"), (("turn", ()), *primitives.items())):
        turn = f"I_TURN_{side.upper()}"
        verbs[f"{verb} {side}"] = (turn, *does)
        verbs[f"{verb} opposite {side}"] = (turn, turn, *does)
        verbs[f"{verb} around {side}"] = (turn, *does) * 4
    sentences = {f"{verb}{often}": does * times for verb, does in verbs.items()
                 for times, often in enumerate(("", " twice", " thrice"), start=1)}
    commands = dict(sentences)
    for (one, first), (two, second) in product(sentences.items(), repeat=2):
        commands[f"{one} and {two}"] = first + second
        commands[f"{one} after {two}"] = second + first
    return commands


def tokens(command):
    """START, the words and STOP as integers.  Raises ValueError for a word that is not of SCAN, none or over nine.

    >>> tokens("walk twice")
    [14, 12, 11, 13]
    >>> tokens("fly left")
    Traceback (most recent call last):
    ValueError: the command has the word 'fly'; allowed: after, and, around, jump, left, look, opposite, right, \
run, thrice, turn, twice, walk
    """
    words = command.split()
    for word in words:
        if word not in WORDS:
            raise ValueError(f"the command has the word {word!r}{choices(word, WORDS)}")
    if not 1 <= len(words) <= 9:
        raise ValueError(f"the command has {len(words)} words; allowed: 1 to 9")
    return [START, *map(WORDS.index, words), STOP]


def spoken(actions):
    """The names of actions up to the first END.

    >>> spoken([0, 5, 6, 0])
    'I_JUMP I_WALK'
    """
    check_numbers("actions", actions, END + 1)
    actions = [*actions, END]
    return " ".join(ACTIONS[action] for action in actions[:actions.index(END)])


@cache
def examples() -> Batch:
    """All commands in the order of the published file, END to a width of 49."""
    commands = list(grammar().items())
    commands = [commands[n] for n in np.load(Path(__file__).with_name("scan_order.npy"))]
    sources = [tokens(command) for command, _ in commands]
    source = np.array([words + [0] * (11 - len(words)) for words in sources])
    targets = [list(map(ACTIONS.index, actions)) for _, actions in commands]
    target = np.array([said + [END] * (LONGEST + 1 - len(said)) for said in targets])
    length = np.array([len(words) for words in sources])
    return frozen(Batch(source, length, target, (target != END).sum(axis=1)))


@cache
def indices(cutoff):
    """{split: the indices of its examples}: held_out is the authors' own draw from what has at most `cutoff` actions.

    Their fraction is 1 - 0.9 in floating point, a bit less than a tenth.
    """
    length = examples().length
    pool = np.flatnonzero(length <= cutoff)
    held_out = np.random.RandomState(1234).choice(len(pool), int(len(pool) * (1 - 0.9)), replace=False)
    return {"train": np.delete(pool, held_out), "held_out": pool[held_out], "longer": np.flatnonzero(length > cutoff)}


@dataclass(frozen=True)
class Scan:
    """The task with commands of at most `cutoff` actions to train on; examples come from `take` and `sample`.

    Raises: ValueError naming the field, what was given and what is allowed.

    >>> task = Scan(26)
    >>> [task.size(split) for split in SPLITS]
    [16458, 1828, 2624]
    >>> spoken(task.take("train", [46]).target[0])
    'I_RUN I_TURN_LEFT I_TURN_LEFT I_LOOK'
    """

    cutoff: int = 26

    def __post_init__(self):
        vars(self)["cutoff"] = check_integer("cutoff", self.cutoff, 2, LONGEST - 1)     # 1 holds nothing out, 48 is all

    def size(self, split):
        """How many examples a split has.  Raises ValueError for an unknown one."""
        check_choice("split", split, SPLITS)
        return len(indices(self.cutoff)[split])

    def longest(self, split):
        """Actions of the longest sequence of a split.  Raises ValueError for an unknown one."""
        check_choice("split", split, SPLITS)
        return int(examples().length[indices(self.cutoff)[split]].max())

    def take(self, split, chosen) -> Batch:
        """The examples of a split with these numbers, 0 to size(split) - 1, as wide as the split's longest and END."""
        check_numbers("chosen", chosen, self.size(split))
        source, source_length, target, length = (x[indices(self.cutoff)[split][chosen]] for x in examples())
        return Batch(source, source_length, target[:, :self.longest(split) + 1], length)

    def sample(self, rng, batch, split="train") -> Batch:
        """Examples of a split, drawn uniformly with replacement.  Raises ValueError for a batch below 1."""
        return self.take(split, rng.integers(self.size(split), size=check_integer("batch", batch)))


def correct(prediction, target):
    """Whether a row says exactly the target's actions and then END, as published: (b) booleans.

    Shapes: prediction (b, p) and target (b, t) integers; what follows the first END is ignored.

    >>> correct([[0, 6, 3], [0, 0, 6], [0, 0, 0]], [[0, 6], [0, 6], [0, 6]]).tolist()
    [True, False, False]
    """
    prediction, target = np.asarray(prediction), np.asarray(target)
    width = max(prediction.shape[1], target.shape[1] + 1)

    def wide(x, filled):
        return np.pad(x, ((0, 0), (0, width - x.shape[1])), constant_values=filled)

    said, asked = wide(prediction, -1), wide(target, END)
    beyond = np.arange(width) > (asked == END).argmax(axis=1)[:, None]
    return ((said == asked) | beyond).all(axis=1)
