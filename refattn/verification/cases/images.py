"""Rows for images: convolutions of every kind of overlap, C's image tasks and the networks for them."""

from functools import partial

import numpy as np

from ...layers.block import Block
from ...layers.convolution import Conv
from ...layers.feed_forward import FeedForward
from ...layers.stack import Stack
from ...models.vision import ClassToken, TaskTokens
from ...tasks import sort_of_clevr as clevr
from ...tasks.triangles import Triangles
from ..naive import sort_of_clevr as scenes_by_loops
from ..naive import triangles as triangles_by_loops
from ..naive import vision
from ..naive.convolution import convolution
from .case import Case, dropped
from .compositional import attention
from .layers import row
from .routines import table
from .tasks import unlikely


def conv(name, layer, high, wide) -> Case:
    """Conv of images of high x wide pixels; the sizes are fixed, since windows have to tile them."""
    def make(rng):
        return {"x": rng.standard_normal((int(rng.integers(2, 4)), high, wide, layer.inputs))}

    return row(f"layers/Conv {name}", layer, "layers/convolution.py", make,
               lambda p, x: convolution(x, p.k, p.b, layer.stride, layer.padding), source="LeCun et al. 1989",
               axes={"x": "bgji", "output": "bgjo"})


LAYERS, TILE, HIGH, WIDE = 2, 2, 4, 6      # of the networks: applications; pixels of a patch and of an image


def network(name, scoring, *, questions=0, tasks=0) -> Case:
    """A class token with and without questions, or task tokens, over images of 2 x 3 patches."""
    stack = Stack(Block(attention(scoring), FeedForward(8, 9, "relu"), epsilon=1e-5), LAYERS, shared=True)
    if tasks:
        model, naive = TaskTokens(TILE, 2, stack, tasks, 5, hidden=7), vision.task_tokens
    else:
        model = ClassToken(Conv(2, 4 if questions else 8, TILE, TILE), stack, 3, questions)
        naive = vision.class_token

    def make(rng):
        b, t = int(rng.integers(2, 5)), 6 + (tasks or 1)
        given = {"question": (rng.random((b, questions)) < 0.4).astype(float)} if questions else {}
        given |= {"task": np.eye(tasks)[rng.integers(tasks, size=b)]} if tasks else {}
        return {"x": rng.standard_normal((b, HIGH, WIDE, 2)), **given,
                "residual": dropped(rng, LAYERS, 2, b, t, 8), "hidden": dropped(rng, LAYERS, b, t, 9)}

    return row(f"models/{type(model).__name__} {name}", model, "models/vision.py", make,
               partial(naive, size=TILE, layers=LAYERS, scoring=scoring), source="C, section 4.2 to 4.4",
               constants=("question", "task", "residual", "hidden"),
               axes={"x": "bgji", "question": "bq", "task": "bq", "residual": "btm", "hidden": "btf",
                     "output": "bo" if tasks else "bqo"})


def rows():
    """All rows of this file."""
    yield network("with questions, dot", "dot", questions=7)
    yield network("with questions, softmax", None, questions=5)
    yield network("without questions, dot", "dot")
    yield network("dot", "dot", tasks=3)
    yield network("softmax", None, tasks=2)
    yield conv("of tiles", Conv(3, 5, 2, 2), 4, 6)
    yield conv("of overlapping windows", Conv(2, 3, 4, 2, 1), 6, 8)
    yield conv("at every pixel", Conv(2, 4, 3, 1, 1), 5, 4)
    yield conv("of windows that stride does not divide", Conv(3, 2, 3, 2), 5, 7)
    yield conv("with gaps between windows", Conv(2, 3, 2, 3, 1), 6, 9)


# ---------------------------------------------------------------- tasks

def scenes(number=300):
    """Sort-of-CLEVR data of a fixed seed."""
    return clevr.SortOfClevr(questions=3).one(np.random.default_rng(0), number)


def clevr_faults():
    """Objects too near or outside, questions after yellow, one colour twice, or one too many; unlikely frequencies."""
    (centre, shape), asked, _ = scenes(3_000)
    apart = ((centre[:, :, None] - centre[:, None]) ** 2).sum(axis=-1) + 1000 * np.eye(6, dtype=int)
    a, b = asked.first[:, 2], asked.second[:, 2]
    drawn = ((centre[:, 0], 65), (shape @ 2 ** np.arange(6), 64), (4 * a + b - (b > a), 20), (asked.first[:, :2], 6),
             (asked.kind, 3))
    bits = clevr.encode(asked).sum(axis=-1) != np.array([[3], [3], [4]])
    return np.array([(apart < 100).sum(), (centre < 5).sum() + (centre > 69).sum(), (np.maximum(a, b) > 4).sum(),
                     (a == b).sum(), bits.sum(), *(unlikely(x.ravel(), n) for x, n in drawn)])


def clevr_answers(nearest):
    """Answers, and some pictures."""
    drawn = scenes()
    return clevr.answers(drawn.scenes, drawn.questions, nearest), clevr.render(drawn.scenes)[:4]


def clevr_by_loops(nearest):
    """The same answers and pixels, scene by scene."""
    drawn = scenes()
    listed, bits = [x.tolist() for x in drawn.scenes], clevr.encode(drawn.questions)
    found = [[[clevr.ANSWERS.index(scenes_by_loops.answer(*scene, question, nearest)) for question in one]
              for one in questions] for *scene, questions in zip(*listed, bits, strict=True)]
    side = range(clevr.SIZE)
    return np.array(found), np.array([[[scenes_by_loops.pixel(*scene, x, y) for x in side] for y in side]
                                      for scene in list(zip(*listed, strict=True))[:4]])


def triangle_faults():
    """Faults that the loops find, and unlikely frequencies of labels, free corners and offsets of dots."""
    batch = Triangles(24).sample(np.random.default_rng(0), 24)
    found = sum(triangles_by_loops.faults(batch).values())
    batch = Triangles(24).sample(np.random.default_rng(1), 6_000)
    offset = (batch.dot.reshape(-1, 3, 8, 2) - batch.corner[:, :, None] + 1)[:, :, :4] @ np.array([1, 3])
    free = batch.corner[batch.target == 1]
    return np.array([found, *(unlikely(x.ravel(), n) for x, n in ((batch.target, 2), (free, 23), (offset, 9)))])


def routines():
    """The rows of the tasks, which have no backward."""
    source = "C, section 4.2, and the released code"
    yield table("tasks/sort_of_clevr samples", "tasks/sort_of_clevr.py", clevr_faults,
                lambda: np.zeros(10, dtype=int), source)
    for nearest in "released", "text":
        yield table(f"tasks/sort_of_clevr answers, {nearest}", "tasks/sort_of_clevr.py",
                    partial(clevr_answers, nearest), partial(clevr_by_loops, nearest), source)
    yield table("tasks/triangles samples", "tasks/triangles.py", triangle_faults, lambda: np.zeros(4, dtype=int),
                "C, section 4.3, and the released code")
