"""Reading networks for images: which retrieval a question picks, who pairs with whom, what a search looks at.

    by_kind    mean value score of each application, search and retrieval, by kind of question           C, figure 14
    pairing    the same over all samples: of each search and retrieval                                   C, figure 15
    maps       search scores of the learned token over the patches, one picture for each application and search
    ask        an answer about a picture of one's own, with its maps; `figure` lays them over the picture

Source: C, appendix C.2, C.3.  Differs: of the last application only the token that is read is computed, here too; means
are over tokens first, then over applications, so that the last one weighs as much as the others.
"""

from math import isqrt
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..checks import check_choice, check_integer
from ..tasks import sort_of_clevr as task
from ..tasks.natural_images import in_eight_bits
from ..train.evaluation import forward
from ..xp import to_host
from .searches import value_scores

__all__ = ["Answer", "ask", "by_kind", "figure", "maps", "pairing", "picture"]


def of_tokens(recipe, model, p, batch) -> np.ndarray:
    """(b, l, s, r): value scores, their mean over tokens.  Raises ValueError for attention that has none."""
    blocks = forward(recipe, model, p, batch)[1].stack.blocks
    return np.stack([value_scores(recipe, block.attention.attention).mean(axis=1) for block in blocks], axis=1)


def by_kind(recipe, model, p, split: str = "test", questions: int = 1_984) -> dict:
    """{kind of question: (l, s, r)} of Sort-of-CLEVR, of kinds that are asked; arguments as `refattn.load` has them.

    Raises ValueError for another task, and for attention that has no value scores.
    """
    check_choice("task of the recipe", recipe.TASK, ("sort_of_clevr",))
    check_integer("questions", questions)
    total, count = {}, {}
    for batch in recipe.asked(split, questions):
        scores = of_tokens(recipe, model, p, batch)
        for t, k in np.ndindex(3, 3):
            here = ((batch.type == t) & (batch.kind == k)).reshape(-1)
            total[t, k] = total.get((t, k), 0) + scores[here].sum(axis=0)
            count[t, k] = count.get((t, k), 0) + here.sum()
    return {task.KINDS[t][k]: total[t, k] / n for (t, k), n in count.items() if n}


def pairing(recipe, model, p, split: str = "test", samples: int = 1_000) -> np.ndarray:
    """(s, r): mean value score over samples, tokens and applications; rows sum to 1.  Raises as `by_kind`."""
    check_choice("task of the recipe", recipe.TASK, ("sort_of_clevr", "triangles", "multitask_images"))
    check_integer("samples", samples)
    parts = [of_tokens(recipe, model, p, batch) for batch in recipe.asked(split, samples)]
    return np.concatenate(parts).mean(axis=(0, 1))


def maps(saved, sample: int = 0, token: int = 0) -> np.ndarray:
    """(l, s, rows, columns): search scores, or attention, of a learned token over the patches of one image."""
    pages = [block.attention.attention for block in saved.stack.blocks]
    codes = [to_host(getattr(page, "search_scores", getattr(page, "code", None))) for page in pages]
    side = isqrt(codes[-1].shape[-1] - codes[-1].shape[-2])             # keys less learned tokens, which alone ask last
    return np.stack([x[sample, :, token, -side * side:] for x in codes]).reshape(len(pages), -1, side, side)


class Answer(NamedTuple):
    """What a network answers about one picture, and where it looked."""
    words: str
    probability: dict          # of every answer
    maps: np.ndarray           # (l, s, rows, columns)
    saved: Any


def picture(path, size: int = task.SIZE) -> np.ndarray:
    """(size, size, 3) uint8 from an image file.  Raises ValueError, one line, for no image or another size."""
    try:
        from PIL import Image
        with Image.open(path) as file:
            found = in_eight_bits(file)
    except Exception as error:                              # Pillow's for too many pixels is no OSError
        raise ValueError(f"{path} cannot be read as a picture ({error})") from None
    return checked(found, size, path)


def checked(image, size: int, name="image") -> np.ndarray:
    """The image as an array.  Raises ValueError unless it is (size, size, 3) of uint8."""
    image = np.asarray(image)
    if image.shape != (size, size, 3) or image.dtype != np.uint8:
        raise ValueError(f"{name} has shape {image.shape}, dtype {image.dtype}; allowed: ({size}, {size}, 3) of uint8")
    return image


def ask(recipe, model, p, image, kind: str, first: str, second: str | None = None) -> Answer:
    """What a trained network answers to one question about a picture, `image` (75, 75, 3) uint8 or a file.

    `kind`, `first` and `second` are words of tasks.sort_of_clevr (KINDS, COLOURS).  Raises ValueError, one line, for a
    network that was trained for something else, other pictures, unknown words.
    """
    check_choice("task of the recipe", recipe.TASK, ("sort_of_clevr",))
    image = checked(image, task.SIZE) if hasattr(image, "dtype") else picture(image)
    question = task.Questions(*(np.array([x]) for x in task.ask(kind, first, second)))
    batch = task.Batch(image[None], task.encode(question), np.zeros(1, int), question.type, question.kind)
    y, saved = forward(recipe, model, p, type(batch)(*(x[:, None] for x in batch)))
    shares = dict(zip(task.ANSWERS, ops.softmax(to_host(y)[0, 0]).tolist(), strict=True))
    return Answer(max(shares, key=shares.__getitem__), shares, maps(saved), saved)


def figure(image, seen: np.ndarray, title: str = ""):
    """The picture with the maps (l, s, rows, columns) over it, a row for each application; a matplotlib Figure."""
    from matplotlib.figure import Figure
    layers, searches = seen.shape[:2]
    made = Figure(figsize=(1.9 * searches + 0.6, 1.9 * layers + 0.4), layout="constrained")
    for (n, s), axes in np.ndenumerate(made.subplots(layers, searches, squeeze=False)):
        side = image.shape[0] // seen.shape[2]
        axes.imshow(image, cmap="gray")
        over = axes.imshow(np.kron(seen[n, s], np.ones((side, side))), cmap="magma", alpha=0.5, vmin=0, vmax=seen.max())
        axes.set(xticks=[], yticks=[], title=f"application {n + 1}, search {s + 1}")
        axes.title.set_fontsize(8)
    made.colorbar(over, ax=made.axes, label="attention", shrink=0.8).ax.tick_params(labelsize=7)
    made.suptitle(title, fontsize=9)
    return made
