"""Sort-of-CLEVR: six coloured objects in a picture, and questions about one, two or three of them.

Drawing a scene, rendering it and answering questions are three separate functions, so that answers can be checked on
any scene.  The nine kinds of questions about colours A and B (KINDS names them; objects are their centres):

    unary    the shape of A;  whether A lies left;  whether A lies in the upper half
    binary   the shape of the object nearest to A, of the one furthest from A;  how many others have A's shape
    ternary  how many others lie in the box that A and B span;  whether one lies on the band through A and B;  with how
             many others A and B make an obtuse triangle

Source: C, section 4.2, appendix C.2, and the authors' generator, which is that of Santoro et al. 2017's followers.
Differs: from the text as the code does (18 bits of question for its 11; 10 questions of each of three types; yellow is
never asked of in ternary questions; the object itself can be the `nearest`, see `answers`).  From the code: rows of an
image are y (the code feeds the transpose), channels are red, green, blue, and other random numbers.
Units: positions and distances in pixels, x to the right, y downwards.
"""

from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np

from ..checks import check_choice, check_integer, check_numbers

SIZE, REACH, BAND = 75, 5, 12           # of a side; from the centre of an object to its border; half of a band
COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255), "orange": (255, 156, 0),
           "gray": (128, 128, 128), "yellow": (255, 255, 0)}
SHAPES = "rectangle", "circle"
TYPES = "unary", "binary", "ternary"
KINDS = (("shape", "left", "upper"), ("shape of nearest", "shape of furthest", "count of same shape"),
         ("count between", "any on band", "count of obtuse triangles"))
ANSWERS = "yes", "no", *SHAPES, *map(str, range(6))
BITS = 18                               # of a question: colour A, colour B, type, kind, each one-hot
SPLITS = {"test": 200, "validation": 200, "train": 9_800}      # scenes, in the order in which they are drawn
HALF_WIDTH = np.array([5, 4, 4, 4, 3, 0])                      # of the circle's raster, by distance from its middle row
FAR = 999                               # squared distance of an object from itself in the released code


class Scenes(NamedTuple):
    centre: np.ndarray         # (b, 6, 2) integers, x and y of the object of each colour
    shape: np.ndarray          # (b, 6), 0 rectangle, 1 circle


class Questions(NamedTuple):
    type: np.ndarray           # (...) integers, number in TYPES
    kind: np.ndarray           # (...) number in KINDS of that type
    first: np.ndarray          # (...) colour A
    second: np.ndarray         # (...) colour B, of ternary questions


class Batch(NamedTuple):
    image: np.ndarray          # (b, 75, 75, 3) uint8
    question: np.ndarray       # (b, 18) float32 of 0 and 1
    target: np.ndarray         # (b) number in ANSWERS
    type: np.ndarray           # (b)
    kind: np.ndarray           # (b)


def draw_scenes(rng, number):
    """Scenes of six objects, whole inside the picture and at least 10 pixels apart from centre to centre."""
    centre = np.empty((number, len(COLOURS), 2), dtype=np.int64)
    for n in range(len(COLOURS)):
        again = np.arange(number)
        while again.size:
            centre[again, n] = rng.integers(REACH, SIZE - REACH, size=(again.size, 2))
            apart = centre[again, :n] - centre[again, n, None]
            again = again[((apart**2).sum(axis=-1) < (2 * REACH) ** 2).any(axis=-1)]
    return Scenes(centre, rng.integers(2, size=(number, len(COLOURS))))


def rasters():
    """(2, 11, 11) of 0 and 1: the pixels of a rectangle and of a circle."""
    reach = np.arange(-REACH, REACH + 1)
    circle = np.abs(reach) <= HALF_WIDTH[np.abs(reach), None]
    return np.stack([np.ones_like(circle), circle])


def render(scenes):
    """(b, 75, 75, 3) uint8: objects on white, later ones over earlier ones; rows are y, columns x."""
    image = np.full((len(scenes.centre), SIZE, SIZE, 3), 255, dtype=np.uint8)
    pixels = image.reshape(-1, 3)
    x, y = np.moveaxis(scenes.centre - REACH, -1, 0)
    corner = (np.arange(len(image))[:, None] * SIZE + y) * SIZE + x
    inside = [y * SIZE + x for y, x in map(np.nonzero, rasters())]
    for n, colour in enumerate(COLOURS.values()):
        for shape, raster in enumerate(inside):
            pixels[corner[scenes.shape[:, n] == shape, n, None] + raster] = colour
    return image


# ---------------------------------------------------------------- questions

def draw_questions(rng, number, each):
    """Questions (b, 3, each): so many of every type, kinds uniform; A any colour, of ternary ones two but yellow."""
    shape, colours = (number, each), len(COLOURS)
    kind = rng.integers(3, size=(number, len(TYPES), each))
    one = rng.integers(colours, size=(number, 2, each))
    a, b = rng.integers(colours - 1, size=shape), rng.integers(colours - 2, size=shape)
    first = np.concatenate([one, a[:, None]], axis=1)
    second = np.concatenate([np.zeros_like(one), (b + (b >= a))[:, None]], axis=1)
    return Questions(np.broadcast_to(np.arange(len(TYPES))[:, None], kind.shape), kind, first, second)


def ask(kind, first, second=None):
    """One question in words, a Questions of numbers.  Raises ValueError for unknown ones, or a B too many or too few.

    >>> ask("count between", "red", "blue")
    Questions(type=2, kind=0, first=0, second=2)
    """
    check_choice("kind", kind, sum(KINDS, ()))
    type_ = next(n for n, kinds in enumerate(KINDS) if kind in kinds)
    check_choice("first", first, tuple(COLOURS))
    check_choice("second", second, tuple(c for c in COLOURS if c != first) if TYPES[type_] == "ternary" else (None,))
    names = list(COLOURS)
    return Questions(type_, KINDS[type_].index(kind), names.index(first), 0 if second is None else names.index(second))


def encode(questions):
    """(..., 18) float32 of 0 and 1: colour A, colour B of ternary questions, type, kind, one-hot each."""
    parts = ((questions.first, 6), (questions.second, 6), (questions.type, 3), (questions.kind, 3))
    hot = [np.asarray(x)[..., None] == np.arange(n) for x, n in parts]
    hot[1] = hot[1] & (np.asarray(questions.type) == 2)[..., None]
    return np.concatenate(hot, axis=-1).astype(np.float32)


# ---------------------------------------------------------------- answers

YES_NO, SHAPE, COUNT = 0, 2, 4          # where in ANSWERS these begin


def at(x, which):
    """(n, ...): the entry of x (n, 6, ...) at one colour for each question."""
    return x[np.arange(len(x)), which]


class Asked(NamedTuple):
    """n questions of one kind, each beside its scene."""
    centre: np.ndarray         # (n, 6, 2) float64
    shape: np.ndarray          # (n, 6)
    first: np.ndarray          # (n)
    second: np.ndarray         # (n)
    own: float                 # squared distance of an object from itself, for the question about the nearest

    def others(self, *which):
        """(n, 6) bool: the objects of other colours."""
        return np.all([np.arange(len(COLOURS)) != each[:, None] for each in which], axis=0)

    def distance(self, own):
        """(n, 6): squared distances from A, and what stands in for A's own."""
        squared = ((self.centre - at(self.centre, self.first)[:, None]) ** 2).sum(axis=-1)
        return np.where(self.others(self.first), squared, own)

    def count(self, which):
        """The number of objects but A and B of which something holds."""
        return COUNT + (which & self.others(self.first, self.second)).sum(axis=1)


def _between(asked):
    a, b = (at(asked.centre, which)[:, None] for which in (asked.first, asked.second))
    return asked.count(((asked.centre >= np.minimum(a, b)) & (asked.centre <= np.maximum(a, b))).all(axis=-1))


def _band(asked):
    (ax, ay), (bx, by) = (at(asked.centre, which).T for which in (asked.first, asked.second))
    slope = (by - ay) / (bx - ax + 1e-10)
    y = slope[:, None] * asked.centre[..., 0] + (ay - slope * ax)[:, None]
    near = (y - BAND <= asked.centre[..., 1]) & (asked.centre[..., 1] <= y + BAND)
    return YES_NO + (asked.count(near) == COUNT)


def _obtuse(asked):
    a, b = (at(asked.centre, which)[:, None] for which in (asked.first, asked.second))
    x, y, z = (np.linalg.norm(side, axis=-1) for side in (b - asked.centre, asked.centre - a, a - b))
    with np.errstate(invalid="ignore", divide="ignore"):                        # C may lie on A, B or between them
        angles = [np.rad2deg(np.arccos((v**2 + w**2 - u**2) / (2 * v * w)))
                  for u, v, w in ((x, y, z), (y, x, z), (z, x, y))]
        largest = reduce(lambda most, angle: np.where(angle > most, angle, most), angles)      # NaN at A stays
    return asked.count((largest >= 90) & (largest < 180))


RULES = (                      # the answers to each kind of question of one, two and three objects
    (lambda asked: SHAPE + at(asked.shape, asked.first),
     lambda asked: YES_NO + (at(asked.centre, asked.first)[:, 0] >= SIZE / 2),
     lambda asked: YES_NO + (at(asked.centre, asked.first)[:, 1] >= SIZE / 2)),
    (lambda asked: SHAPE + at(asked.shape, asked.distance(asked.own).argmin(axis=1)),
     lambda asked: SHAPE + at(asked.shape, asked.distance(0).argmax(axis=1)),
     lambda asked: COUNT + (asked.shape == at(asked.shape, asked.first)[:, None]).sum(axis=1) - 1),
    (_between, _band, _obtuse))


def answers(scenes, questions, nearest="released"):
    """The number in ANSWERS of each question: (b, ...) of scenes b and questions (b, ...).

    The nearest object is the first of equals among the others (nearest "text"), or (as the code has it) among all, A's
    distance from itself counting as the root of 999: if all others lie farther away, the answer is A's own shape.
    Right angles (0.35 % of triples), objects in line, and those exactly on the edge of a band (1 % of questions "any on
    band", of which a fifth get another answer) go by the rounding of arc cosines and of the distance, as in the code.

    >>> scene = Scenes(np.array([[[10, 10], [20, 10], [60, 60], [60, 10], [10, 60], [40, 40]]]), np.array([[0] * 6]))
    >>> one = Questions(*(np.array([[x]]) for x in ask("any on band", "red", "blue")))
    >>> ANSWERS[answers(scene, one)[0, 0]]                                      # yellow lies between them
    'yes'
    """
    check_choice("nearest", nearest, ("released", "text"))
    type_, kind, first, second = questions
    scene, own = np.indices(type_.shape)[0], FAR if nearest == "released" else np.inf
    found = np.empty(type_.shape, dtype=np.int64)
    for t, rules in enumerate(RULES):
        for k, rule in enumerate(rules):
            here = (type_ == t) & (kind == k)
            centre, shape = scenes.centre[scene[here]].astype(float), scenes.shape[scene[here]]
            found[here] = rule(Asked(centre, shape, first[here], second[here], own))
    return found


# ---------------------------------------------------------------- the data set

class Data(NamedTuple):
    scenes: Scenes
    questions: Questions       # (b, 3, questions of a type)
    answers: np.ndarray        # (b, 3, questions of a type)


@dataclass(frozen=True)
class SortOfClevr:
    """How many scenes each split has, and how many questions of each of the three types every scene.

    Raises: ValueError naming the field, what was given and what is allowed.

    >>> data = SortOfClevr(test=2, validation=1, train=3).draw(np.random.default_rng(0))
    >>> batch = take(data["train"], 2, np.arange(25))                           # ternary, of scenes 0, 1 and 2
    >>> batch.image.shape, batch.question.shape, sorted(set(batch.type.tolist()))
    ((25, 75, 75, 3), (25, 18), [2])
    """

    test: int = SPLITS["test"]
    validation: int = SPLITS["validation"]
    train: int = SPLITS["train"]
    questions: int = 10
    nearest: str = "released"

    def __post_init__(self):
        for name in (*SPLITS, "questions"):
            vars(self)[name] = check_integer(name, getattr(self, name), 1, 1_000_000)
        check_choice("nearest", self.nearest, ("released", "text"))

    def draw(self, rng):
        """{split: Data}: test first, then validation, then train, as the code does."""
        return {split: self.one(rng, getattr(self, split)) for split in SPLITS}

    def one(self, rng, scenes):
        """Data of so many scenes."""
        drawn, questions = draw_scenes(rng, scenes), draw_questions(rng, scenes, self.questions)
        return Data(drawn, questions, answers(drawn, questions, self.nearest))


def take(data, type_, index):
    """The Batch of the questions of one type with these numbers; question n is of scene n // questions."""
    check_numbers("index", index, data.answers.shape[0] * data.answers.shape[2])
    scene, number = np.divmod(np.asarray(index), data.answers.shape[2])
    asked = Questions(*(x[scene, type_, number] for x in data.questions))
    image = render(Scenes(data.scenes.centre[scene], data.scenes.shape[scene]))
    return Batch(image, encode(asked), data.answers[scene, type_, number], asked.type, asked.kind)
