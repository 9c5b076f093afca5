"""Sort-of-CLEVR and triangles: known scenes, published frequencies, speed, and what is refused."""

from time import perf_counter

import numpy as np
import pytest

from refattn.tasks import sort_of_clevr
from refattn.tasks import sort_of_clevr as clevr
from refattn.tasks.triangles import Triangles, draw_corners, render, third
from tests.refusals import refused

SCENE = clevr.Scenes(np.array([[[10, 10], [50, 10], [30, 10], [30, 22], [30, 23], [69, 69]]]),
                     np.array([[0, 1, 1, 0, 0, 1]]))


def answer(kind, first, second=None, nearest="released", scene=SCENE):
    questions = clevr.Questions(*(np.array([[x]]) for x in clevr.ask(kind, first, second)))
    return clevr.ANSWERS[clevr.answers(scene, questions, nearest)[0, 0]]


def test_objects_have_the_published_colours():
    image, = clevr.render(clevr.Scenes(np.array([[[x, 10] for x in range(5, 75, 12)]]), SCENE.shape))
    assert image[10, 5::12].tolist() == [
        [255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 156, 0], [128, 128, 128], [255, 255, 0]]


@pytest.mark.parametrize(("question", "expected"), [
    (("shape", "red"), "rectangle"), (("shape", "yellow"), "circle"), (("left", "blue"), "yes"),
    (("left", "green"), "no"), (("upper", "yellow"), "no"), (("upper", "gray"), "yes"),
    (("shape of nearest", "blue"), "rectangle"), (("shape of furthest", "red"), "circle"),
    (("count of same shape", "orange"), "2"), (("count between", "red", "green"), "1"),
    (("count between", "blue", "gray"), "1"), (("any on band", "red", "green"), "yes"),
    (("any on band", "orange", "gray"), "yes"), (("count of obtuse triangles", "red", "green"), "3"),
])
def test_answers_to_a_known_scene(question, expected):
    assert answer(*question) == expected


def test_the_code_asks_a_lonely_object_about_itself():
    """All others are farther from yellow than the root of 999 pixels: the code answers yellow's own shape."""
    assert answer("shape of nearest", "yellow") == "circle" and answer(
        "shape of nearest", "yellow", nearest="text") == "rectangle"


def test_a_band_ends_twelve_pixels_off():
    near = clevr.Scenes(np.array([[[10, 10], [50, 10], [60, 60], [30, 22], [10, 60], [60, 30]]]), SCENE.shape)
    far = clevr.Scenes(near.centre + (np.arange(6) == 3)[:, None] * [0, 1], SCENE.shape)
    assert [answer("any on band", "red", "green", scene=s) for s in (near, far)] == ["yes", "no"]


@pytest.mark.parametrize(("ends", "middle", "expected"), [
    (([35, 35], [65, 35]), [50, 35], "0"),                      # 180 degrees
    (([35, 35], [8, 20]), [26, 30], "0"), (([35, 35], [8, 50]), [26, 40], "0"),     # 179.99999..., none at A
    (([8, 20], [35, 35]), [26, 30], "4"), (([35, 35], [8, 20]), [26, 31], "4"),
])
def test_objects_in_line_make_a_triangle_only_where_the_code_says_so(ends, middle, expected):
    """Rounding takes a cosine beyond 1: Python's max, which the code takes, keeps a first angle that is NaN."""
    scene = clevr.Scenes(np.array([[*ends, *[middle] * 4]]), SCENE.shape)
    assert answer("count of obtuse triangles", "red", "green", scene=scene) == expected


def test_frequencies_are_those_of_the_released_generator():
    """Within 4 points of the shares that were counted in 1,500 of its scenes."""
    data = clevr.SortOfClevr().one(np.random.default_rng(0), 1_500)
    for (type_, kind), expected in {(1, 2): [3, 16, 32, 32, 14, 3], (2, 0): [69, 20, 7, 2], (2, 2): [1, 8, 29, 40, 21],
                                    (0, 0): [], (2, 1): []}.items():
        found = data.answers[:, type_][data.questions.kind[:, type_] == kind]
        share = 100 * np.bincount(found, minlength=10) / len(found)
        assert np.abs(share[4:4 + len(expected)] - expected).max(initial=0) < 4
        assert expected or np.abs(share[share > 0] - 50).max() < 4


def test_splits_do_not_depend_on_those_drawn_after_them():
    one, two = (clevr.SortOfClevr(test=3, validation=2, train=n).draw(np.random.default_rng(1)) for n in (4, 9))
    np.testing.assert_array_equal(one["validation"].scenes.centre, two["validation"].scenes.centre)
    batch = clevr.take(two["test"], 1, [0, 10, 29])
    np.testing.assert_array_equal(batch.image, clevr.render(two["test"].scenes))
    np.testing.assert_array_equal(batch.target, two["test"].answers[[0, 1, 2], 1, [0, 0, 9]])


def test_triangles_are_equilateral_to_a_pixel_and_others_are_not():
    sides = []
    for equilateral in True, False:
        corner = draw_corners(np.random.default_rng(2), np.full(20_000, equilateral), 64)
        d = np.linalg.norm(corner - corner[:, [1, 2, 0]], axis=-1)
        sides.append(d.max(axis=1) - d.min(axis=1))
        assert corner[:, 2].min() == 1 and corner[:, 2].max() == 63
    assert sides[0].max() < 1.42 and 0.7 < np.median(sides[0]) < 0.8 and np.mean(sides[1] < 2) < 0.01


def test_a_triangle_turns_by_sixty_degrees_and_a_dot_has_thirteen_pixels():
    assert third(np.array([[20, 20]]), np.array([[20, 40]])).tolist() == [[37, 30]]
    assert third(np.array([[28, 25], [21, 11]]), np.array([[28, 1], [5, 11]])).tolist() == [[7, 12], [12, 24]]
    assert [int((render(np.array([[at]]), 16) > 0).sum()) for at in ([5, 5], [0, 0], [16, 3], [-2, -2])] == [
        13, 6, 4, 0]


def test_drawing_is_quick():
    """A batch of 64 in less than what 20 s for 10,000 scenes, and 3 s for 50,000 triangles, leave for it."""
    rng, data, seconds = np.random.default_rng(3), clevr.SortOfClevr().one(np.random.default_rng(3), 100), []
    for _ in range(10):
        start = perf_counter()
        clevr.render(clevr.SortOfClevr().one(rng, 64).scenes)
        clevr.take(data, 2, rng.integers(1000, size=64))
        middle = perf_counter()
        Triangles().sample(rng, 64)
        seconds.append((middle - start, perf_counter() - middle))
    assert (np.min(seconds, axis=0) < (64 * 20 / 10_000, 64 * 3 / 50_000)).all()


@pytest.mark.parametrize(("make", "given", "message"), [
    (clevr.SortOfClevr, {"train": 0}, "train is 0; allowed: whole numbers from 1 to 1,000,000"),
    (clevr.SortOfClevr, {"nearest": "code"}, "nearest is 'code'; allowed: released, text"),
    (clevr.ask, {"kind": "size", "first": "red"}, "kind is 'size'; allowed: shape, left"),
    (clevr.ask, {"kind": "shape", "first": "pink"}, "first is 'pink'; allowed: red, green"),
    (clevr.ask, {"kind": "left", "first": "red", "second": "blue"}, "second is 'blue'; allowed: None"),
    (clevr.ask, {"kind": "any on band", "first": "red"}, "second is None; allowed: green"),
    (clevr.ask, {"kind": "any on band", "first": "red", "second": "red"}, "second is 'red'; allowed: green"),
    (Triangles, {"size": 7}, "size is 7; allowed: whole numbers from 8 to 1,024"),
    (Triangles().sample, {"rng": None, "batch": 2, "split": "valid"}, "split is 'valid'; allowed: train, test"),
    (Triangles().sample, {"rng": None, "batch": 0}, "batch is 0; allowed: whole numbers of at least 1"),
])
def test_settings_and_questions_are_refused(make, given, message):
    refused(message, make, **given)


def test_objects_may_be_ten_pixels_apart():
    centre = sort_of_clevr.draw_scenes(np.random.default_rng(0), 20_000).centre
    squared = ((centre[:, :, None] - centre[:, None]) ** 2).sum(-1)[:, ~np.eye(6, dtype=bool)]
    assert squared.min() == 100
