"""The gradient of a batch that is cut into a fixed number of shards.

    L = sum_s w_s L_s    and so    dL/dp = sum_s w_s dL_s/dp,    w_s = terms of shard s / terms of the batch

The batch of an update, and what dropout draws for it, do not depend on the shards.  A shard's gradient is one row, and
rows are summed in the order of the shards: the bits of a result depend on how many shards there are, never on who
computes which (`groups` says who may).  One process that computes all of them holds the activations of one at a time.
"""

from .. import params
from ..xp import array_module
from .evaluation import moved, stream
from .prefetch import ahead


def dropouts_of(drawn, rows: slice, samples: int):
    """Of what `Recipe.dropouts` has drawn for so many samples what belongs to some of them.

    >>> import numpy as np
    >>> dropouts_of({"hidden": [np.arange(8), None], "dropout": np.zeros((1, 5))}, slice(1, 3), 4)["hidden"]
    [array([2, 3, 4, 5]), None]
    """
    if isinstance(drawn, dict):
        return {name: dropouts_of(x, rows, samples) for name, x in drawn.items()}
    if isinstance(drawn, list | tuple):
        return type(drawn)(dropouts_of(x, rows, samples) for x in drawn)
    if drawn is None or len(drawn) == 1:
        return drawn
    each = len(drawn) // samples
    return drawn[rows.start * each:rows.stop * each]


class Shards:
    """`gradient(update, batch)` asks a group for the rows of all shards; `help` computes rows for somebody's group."""

    def __init__(self, recipe, model, flat, group):
        self.recipe, self.model, self.flat, self.group, self.xp = recipe, model, flat, group, array_module(flat)
        listed = model.parameters()
        self.p = params.view(flat, listed)
        rows = list(group.allocate(recipe.shards, len(flat) + 1, self.xp, flat.dtype))   # the last number is the loss
        self.rows = [(row, params.view(row[:-1], listed)) for row in rows]
        self.total = rows[0] if recipe.shards == 1 else self.xp.empty_like(rows[0])

    def gradient(self, update: int, batch):
        """Loss and flat gradient of the batch (on the host) of an update; they hold until the next call."""
        rows = self.group.rows(self.flat, update, lambda: self.compute(update, batch))
        for n, row in enumerate(rows):
            if n:
                self.total += row
            elif row is not self.total:                     # which the only row may be
                self.total[...] = row
        return self.total[-1], self.total[:-1]

    def compute(self, update: int, batch):
        """Computes the shards of this process; yields the row of each."""
        recipe, n, samples = self.recipe, self.recipe.shards, len(batch[-1])
        drawn = recipe.dropouts(batch, stream(recipe.seed, "dropout", update), self.xp)
        cuts = [slice(samples * i // n, samples * (i + 1) // n) for i in range(n)]
        parts = [recipe.cut(batch, rows) for rows in cuts] if n > 1 else [batch]
        terms = [float(recipe.loss_terms(part)) if len(part[-1]) else 0.0 for part in parts]
        if not any(terms):
            raise ValueError(f"batch {update} has no terms; allowed: at least one that weighs something")
        for i, place in self.group.mine:
            row, grads = self.rows[place]
            row[...] = 0
            if terms[i]:
                part = moved(parts[i], self.xp)
                x, options = recipe.inputs(part)
                y, saved = self.model.forward(self.p, x, **options, **dropouts_of(drawn, cuts[i], samples))
                loss, dy = recipe.loss(y, part)
                if n > 1:
                    share = terms[i] / sum(terms)
                    loss, dy = loss * share, dy * share
                self.model.backward(self.p, saved, dy, grads)
                row[-1] = loss
                del y, saved, dy                        # or they would lie beside those of the next shard
            yield row

    def help(self) -> None:
        """Computes this process's shards of every update that the group's leader begins, until it ends."""
        if (update := self.group.next(self.flat)) is None:
            return
        turns = self.recipe.TURNS
        for _, batch in ahead(self.recipe.draw, update // turns, self.recipe.steps):
            for part in self.recipe.turns(batch):
                self.group.hand_in(self.compute(update, part))
                if (update := self.group.next(self.flat)) is None:
                    return
