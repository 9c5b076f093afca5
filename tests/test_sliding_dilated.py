"""Sliding-dilated attention: values by hand, edges, what `Saved` shows, and what page and layer refuse."""

import numpy as np
import pytest

from refattn import check
from refattn.attention.pages import PAGES
from refattn.attention.sliding_dilated import SlidingDilated, sliding_dilated, sliding_dilated_backward
from refattn.attention.windows import windows
from refattn.verification.theorems.statement import filled
from tests import planted
from tests.pages import check_tags


def arrays(rng, b=2, t=7, h=3, d=4, e=2, w=3):
    """q, k, v, offset_bias, pad_k, pad_v."""
    return [rng.standard_normal(shape) for shape in ((b, t, h, d), (b, t, h, d), (b, t, h, e), (h, w), (h, d), (h, e))]


def test_tags():
    check_tags(sliding_dilated, sliding_dilated_backward)


def counting(t=5, w=2, dilation=2, **options):
    """Values 1, 2, 3, ..., all scores zero, offset biases 0 and log 3: weights 1/4 and 3/4."""
    q, v = np.zeros((1, t, 1, 1)), np.arange(1.0, t + 1)[None, :, None, None]
    return sliding_dilated(q, q, v, np.log([[1.0, 3.0]]), dilation=dilation, **options)


def test_by_hand_at_dilation_2():
    np.testing.assert_allclose(counting()[0].ravel(), [1, 2, 3 / 4 + 9 / 4 - 6 / 4, 4 / 4 + 6 / 4, 5 / 4 + 9 / 4])
    pads = {"pad_k": np.zeros((1, 1)), "pad_v": np.full((1, 1), 100.0), "out_of_range": "pad"}
    np.testing.assert_allclose(counting(**pads)[0].ravel(), [75.25, 75.5, 1.5, 2.5, 3.5])


def test_saved_shows_the_weights():
    o, saved = counting()
    assert saved.code.shape == (1, 1, 5, 2)
    np.testing.assert_allclose(saved.code[0, 0], [[1, 0], [1, 0]] + 3 * [[1 / 4, 3 / 4]])


def test_an_offset_bias_of_exactly_zero_is_no_mask():
    """The released code takes a bias of 0 for a missing key."""
    rng = np.random.default_rng(0)
    q, k, v, r, _, _ = arrays(rng)
    r[:, 1] = 0
    near = r + 1e-12 * (r == 0)
    np.testing.assert_allclose(sliding_dilated(q, k, v, r)[0], sliding_dilated(q, k, v, near)[0], rtol=1e-9)
    assert (sliding_dilated(q, k, v, r)[1].code[:, :, 3:, 1] > 0).all()


@pytest.mark.parametrize("dilation", [1, 2, 3, 10])
def test_windows_name_every_pair_once(dilation):
    for read in range(7), range(2, 7, 2), range(6, 7), range(0):
        for j, (inside, keys, outside) in enumerate(windows(read, 3, dilation)):
            pairs = list(zip(read[inside], range(7)[keys], strict=True))
            assert pairs == [(i, i - j * dilation) for i in read if i >= j * dilation]
            assert [*range(len(read))[outside or slice(0)], *range(len(read))[inside]] == list(range(len(read)))


def test_a_dilation_beyond_the_length_sees_the_query_alone():
    q, k, v, r, _, _ = arrays(np.random.default_rng(0))
    np.testing.assert_allclose(sliding_dilated(q, k, v, r, dilation=2**70)[0], v)


def test_no_token_is_no_error():
    for out_of_range in "mask", "pad":
        layer = SlidingDilated(8, 2, 3, 2, out_of_range=out_of_range)
        p, x = filled(layer, np.random.default_rng(0)), np.zeros((2, 0, 8))
        y, saved = layer.forward(p, x)
        assert y.shape == layer.backward(p, saved, y, filled(layer, np.random.default_rng(0))).x.shape == (2, 0, 8)


def test_queries_are_the_last_positions_unless_told():
    q, k, v, r, pad_k, pad_v = arrays(np.random.default_rng(0))
    for pads in {}, {"pad_k": pad_k, "pad_v": pad_v, "out_of_range": "pad"}:
        whole = sliding_dilated(q, k, v, r, dilation=2, **pads)[0]
        np.testing.assert_allclose(sliding_dilated(q[:, 3:], k, v, r, dilation=2, **pads)[0], whole[:, 3:])
        some = sliding_dilated(q[:, 1::4], k, v, r, dilation=2, read=slice(1, None, 4), **pads)[0]
        np.testing.assert_allclose(some, whole[:, 1::4])


def test_the_code_of_a_step_has_no_square():
    """Nothing that is kept has T x T entries."""
    q, k, v, r, _, _ = arrays(np.random.default_rng(0), b=1, t=100, h=1, d=1, e=1)
    _, saved = sliding_dilated(q, k, v, r)
    assert max(x.size for x in saved if hasattr(x, "size")) <= 3 * 100


@pytest.mark.parametrize(("change", "error", "message"), [
    ({"dilation": 0}, ValueError, "dilation is 0; allowed: whole numbers of at least 1"),
    ({"out_of_range": "clamp"}, ValueError, "out_of_range is 'clamp'; allowed: mask, pad"),
    ({"out_of_range": "pad"}, ValueError, "pad_k is missing, but out_of_range is 'pad'"),
    ({"pad_v": np.zeros((3, 2))}, ValueError, "pad_v is given, but out_of_range is 'mask'; allowed: pads with 'pad'"),
    ({"read": slice(2, None)}, ValueError, r"read is slice\(2, None, None\), which gives 5 of 7 positions for 7"),
    ({"read": slice(None, None, -1)}, ValueError, "allowed: as many, and steps of at least 1"),
    ({"keep": np.ones((7, 7), bool)}, ValueError, r"keep has shape \(7, 7\); .* \(b, h, q, w\) = \(2, 3, 7, 3\)"),
    ({"bias": np.zeros(3, np.float32)}, TypeError, "q is float64 but bias is float32"),
])
def test_pages_refuse(change, error, message):
    with pytest.raises(error, match=message):
        sliding_dilated(*arrays(np.random.default_rng(0))[:4], **change)


def test_pages_refuse_sizes_that_disagree():
    q, k, v, r, _, _ = arrays(np.random.default_rng(0))
    with pytest.raises(ValueError, match="axis h is 3 in q but 2 in offset_bias"):
        sliding_dilated(q, k, v, r[:2])
    with pytest.raises(ValueError, match="q has 7 queries, k 5 keys; allowed: at most as many queries as keys"):
        sliding_dilated(q, k[:, :5], v[:, :5], r)


@pytest.mark.parametrize(("change", "message"), [
    ({"chunk": 1}, "chunk is 1; allowed: whole numbers of at least 2"),
    ({"chunk": 2.0}, "chunk is 2.0; allowed: whole numbers"),
    ({"heads": 0}, "heads is 0; allowed: whole numbers of at least 1"),
    ({"dilation": 0}, "dilation is 0; allowed: whole numbers of at least 1"),
    ({"out_of_range": "zero"}, "out_of_range is 'zero'; allowed: mask, pad"),
])
def test_layers_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        SlidingDilated(**{"width": 8, "heads": 2, "head_width": 3, "chunk": 2} | change)


def test_a_context_is_refused():
    with pytest.raises(ValueError, match="context is given, but sliding-dilated attention looks back along x"):
        SlidingDilated(8, 2, 3, 2).forward(None, np.zeros((1, 2, 8)), context=np.zeros((1, 2, 8)))


@pytest.mark.parametrize("name", ["sliding_dilated", "sliding_dilated_pad"])
def test_a_kernel_is_compared_and_its_mistake_named(name):
    """Somebody's kernel whose offset biases are divided by sqrt(d) like the scores."""
    wrong = planted.load(next(bug for bug in planted.BUGS if "are divided by sqrt(d) like the scores" in bug.sentence))

    def kernel(row):
        def run(q, k, v, *more, do, **options):
            o, saved = row.forward(q, k, v, *more, **options)
            return [x for x in (o, *row.backward(saved, do)) if x is not None]
        return run

    given = {"bias": "h1w", "keep": "bhqw", "dropout": "hqw"}
    assert check.compare(kernel(PAGES[name]), name, **given).ok
    report = str(check.diagnose(kernel(wrong.attention.pages.PAGES[name]), name))
    assert report.startswith("forward differs, and your gradients are not those of your forward\nline (1)"), report
    assert f"line (2) of {name}, s2 = s1 + r: the term r is 1/sqrt(d) times what it should be" in report
