"""Evaluation without dropout, and the random numbers of training and evaluation."""

import numpy as np

from ..xp import array_module, to_device, to_host

PURPOSES = {"init": 0, "data": 1, "dropout": 2, "split": 3, "evaluation": 4}     # fixed: they are part of every result


def stream(seed: int, purpose: str, step: int = 0) -> np.random.Generator:
    """The random numbers of one purpose at one step: default_rng((seed, number of the purpose, step)).

    Nothing else is ever drawn from, so a checkpoint holds the step and no generator state.

    >>> bool(stream(0, "data", 7).random() == stream(0, "data", 7).random())
    True
    """
    return np.random.default_rng((seed, PURPOSES[purpose], step))


def moved(batch, xp):
    """The same named tuple with its arrays in the module `xp`."""
    return batch if xp is np else type(batch)(*(to_device(x, xp) for x in batch))


def _module(views):
    while not hasattr(views, "dtype"):
        views = views[0] if isinstance(views, tuple) else next(iter(views))[1]
    return array_module(views)


def evaluate(recipe, model, parameters, split: str, *, tasks: int | None = None) -> dict:
    """{metric: value} of a split, over `tasks` samples (the recipe's number when None), without dropout.

    In the recipe's `batches`; a split that has none has no figures.  Metrics see all predictions at once; a mean over
    samples is the unweighted mean of batch means (H, released code) as long as the batches are of one size.

    Raises ValueError for an unknown split or a number of tasks below 1.
    """
    xp, tasks = _module(parameters), recipe.evaluation if tasks is None else tasks
    if not isinstance(tasks, int) or tasks < 1:
        raise ValueError(f"tasks is {tasks!r}, allowed are whole numbers of at least 1")
    outputs, batches = [], []
    for number, (size, further) in enumerate(recipe.batches(split, tasks)):
        batch = recipe.sample(stream(recipe.seed, "evaluation", number), split, size, **further)
        x, options = recipe.inputs(moved(batch, xp))
        y, _ = model.forward(parameters, x, **options)
        outputs.append(to_host(y))
        batches.append(recipe.kept(batch))
    if not batches:
        return dict.fromkeys(recipe.LABELS)
    joined = type(batches[0])(*map(np.concatenate, zip(*batches, strict=True)))
    return recipe.metrics(np.concatenate(outputs), joined)
