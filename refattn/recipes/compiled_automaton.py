"""What a run directory says of a compiled automaton: `refattn.load` makes the model from it as from any recipe.

Nothing is trained: the checkpoint is of step 0 of 0, and holds parameters alone.  A word is asked about by

    recipe, model, p = refattn.load(path)
    y, _ = model.forward(p, recipe.automaton.encode("0110")[None])
    y[0, -1].argmax()                                       # its class: of an expression 1 if it matches

Under "mask" a reset token has to stand before every word: the model that is loaded puts it there.
`evaluate(*refattn.load(path), "words")` reads uniformly random words and compares every position with the automaton,
`exactness.errors(refattn.load(path), words)` any others.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from ..automata.compiled import ACTIVATIONS, WithReset, shaped
from ..automata.reading import from_table
from ..checks import check_choice
from ..layers.block import NORMS
from .base import Recipe, check_fields, setting


class Batch(NamedTuple):
    tokens: Any                # (b, t)
    target: Any                # (b, t), the class after every token


@dataclass(frozen=True, kw_only=True)
class CompiledAutomaton:
    """An automaton as a table (`automata.reading` says how) and the switches of its compilation."""

    TASK = "compiled_automaton"
    SPLITS = ("words",)
    steps = 0
    evaluation_batch = 0
    batches, asked, drawn = Recipe.batches, Recipe.asked, Recipe.drawn
    predict, data_read = Recipe.predict, Recipe.data_read

    name: str = setting("automaton", "of the language")
    table: str = setting("state output a\nq 0 q", "the automaton, its start first")
    expression: str = setting("", "the regular expression, where it is one")
    chunk: int = setting(2, "C", least=2, most=64)
    norm: str = setting("none", "LayerNorm", choices=NORMS)
    activation: str = setting("relu", "of the feed-forward layer", choices=ACTIVATIONS)
    out_of_range: str = setting("pad", "what stands before the first token", choices=("pad", "mask"))
    embedding_scale: bool = setting(False, "embeddings times the root of the width")
    seed: int = setting(0, "of words for an evaluation", least=0, most=2**32 - 1)
    length: int = setting(100, "tokens of these", least=1, most=2**20)
    batch: int = setting(8, "words at a time", least=1, most=2**20)
    evaluation: int = setting(64, "words in all", least=1, most=10**9)

    def __post_init__(self):
        check_fields(self)
        from_table(self.table)

    @property
    def automaton(self):
        return from_table(self.table)

    @property
    def switches(self) -> dict:
        """The arguments of `compiled` beside the automaton."""
        return {x: getattr(self, x) for x in ("chunk", "norm", "activation", "out_of_range", "embedding_scale")}

    def build(self):
        model = shaped(self.automaton, **self.switches)
        return WithReset(**vars(model)) if self.out_of_range == "mask" else model

    def sample(self, rng, split="words", size=None):
        check_choice("split", split, self.SPLITS)
        tokens = rng.integers(self.automaton.vocabulary, size=(self.drawn(size), self.length))
        return Batch(tokens, self.automaton.outputs(tokens))

    def inputs(self, batch):
        return batch.tokens, {}

    def score(self, y, batch):
        return {"accuracy": y.argmax(axis=-1) == batch.target}

    def summary(self, scores):
        return {"errors": int((~scores["accuracy"]).sum()), "accuracy": float(scores["accuracy"].mean())}
