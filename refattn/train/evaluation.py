"""Evaluation without dropout, and the random numbers of training and evaluation."""

import numpy as np

from ..checks import check_choice, check_integer
from ..xp import array_module, to_device, to_host

PURPOSES = {"init": 0, "data": 1, "dropout": 2, "split": 3, "evaluation": 4}     # fixed: they are part of every result
BEYOND = 1_000_000             # the step of "evaluation" that analyses of trained networks draw from
ALIGNED = 256                  # bytes: where arrays of a device may begin


def stream(seed: int, purpose: str, step: int = 0) -> np.random.Generator:
    """The random numbers of one purpose at one step: default_rng((seed, number of the purpose, step)).

    Whatever a training draws is a function of seed and step: mostly from here, multitask_images from its seed and the
    numbers of its samples.  So a checkpoint holds the step and no generator state.  A seed is below 2^32: the generator
    is told words of 32 bits, and a seed of two of them would have the draws of a smaller one.  Raises ValueError for
    another seed, purpose or step.

    >>> bool(stream(0, "data", 7).random() == stream(0, "data", 7).random())
    True
    """
    check_choice("purpose", purpose, PURPOSES)
    return np.random.default_rng((check_integer("seed", seed, 0, 2**32 - 1), PURPOSES[purpose],
                                  check_integer("step", step, 0)))


def moved(batch, xp):
    """The same named tuple with its arrays in the module `xp`, all of them in one copy."""
    if xp is np:
        return batch
    rooms = [-(-x.nbytes // ALIGNED) * ALIGNED for x in batch]              # rounded up
    *starts, end = np.cumsum([0, *rooms]).tolist()
    packed = np.zeros(end, dtype=np.uint8)
    for start, x in zip(starts, batch, strict=True):
        packed[start:start + x.nbytes] = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    there = to_device(packed, xp)
    return type(batch)(*(there[start:start + x.nbytes].view(x.dtype).reshape(x.shape)
                         for start, x in zip(starts, batch, strict=True)))


def _module(views):
    while not hasattr(views, "dtype"):
        views = views[0] if isinstance(views, tuple) else next(iter(views))[1]
    return array_module(views)


def forward(recipe, model, parameters, batch):
    """y and what the model saves, without dropout, of a batch on the host, computed where the parameters are."""
    x, options = recipe.inputs(moved(batch, _module(parameters)))
    return model.forward(parameters, x, **options)


def evaluate(recipe, model, parameters, split: str, *, tasks: int | None = None, bar=iter) -> dict:
    """{metric: value} of a split, over `tasks` samples (the recipe's number when None), without dropout.

    One batch of outputs exists at a time: what stays of it are the recipe's scores, one row for each sample or token.
    A split that is asked nothing has no figures.  `bar` is what batches pass through, such as `tqdm.tqdm`.

    Raises ValueError for a number of tasks below 1, and as the recipe's `sample` does for a split that it refuses.
    """
    xp, tasks = _module(parameters), recipe.evaluation if tasks is None else tasks
    check_integer("tasks", tasks)
    scores = {}
    for batch in bar(recipe.asked(split, tasks)):
        for name, x in recipe.score(to_host(recipe.predict(model, parameters, moved(batch, xp))), batch).items():
            scores.setdefault(name, []).append(x)
    if not scores:
        return dict.fromkeys(recipe.LABELS)
    return recipe.summary({name: np.concatenate(parts) for name, parts in scores.items()})
