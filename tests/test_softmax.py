"""What is particular to softmax attention."""

import numpy as np

from refattn.attention.softmax import softmax, softmax_backward
from tests.pages import inputs


def test_two_keys_by_hand():
    """Scores 0 and log 3: weights 1/4 and 3/4, so o = 8/4 + 3 * 4/4; ds = a (da - sum a da) with da = (8, 4)."""
    q, k, v = np.ones((1, 1, 1, 1)), np.log([[[[1.0]], [[3.0]]]]), np.array([[[[8.0]], [[4.0]]]])
    o, saved = softmax(q, k, v)
    dq, dk, dv, dbias = softmax_backward(saved, np.ones_like(o))
    assert np.allclose(saved.code, [0.25, 0.75], rtol=1e-15, atol=0) and np.isclose(o.item(), 5.0, rtol=1e-15, atol=0)
    assert np.allclose(dv.ravel(), [0.25, 0.75]) and dbias is None
    assert np.allclose(dk.ravel(), [0.25 * (8 - 5), 0.75 * (4 - 5)])
    assert np.isclose(dq.item(), -0.75 * np.log(3))


def test_code_sums_to_one_and_a_constant_on_the_scores_changes_nothing():
    q, k, v = inputs()
    o, saved = softmax(q, k, v)
    shifted, _ = softmax(q, k, v, bias=np.full((5, 3, 1), 7.0))
    assert np.allclose(saved.code.sum(axis=-1), 1, rtol=1e-14, atol=0) and np.allclose(o, shifted, rtol=1e-12, atol=0)


def test_huge_scores_choose_one_key():
    q, k, v = inputs(dtype="float32")
    with np.errstate(all="raise", under="ignore"):
        o, saved = softmax(1e4 * q, 1e3 * k, v)
    best = saved.code.argmax(axis=-1)
    assert np.isfinite(o).all() and np.array_equal(o[1, 2, 3], v[1, best[1, 3, 2], 3])


def test_a_query_that_keeps_nothing_gets_zero_and_the_others_what_they_got():
    q, k, v = inputs()
    keep = np.array([[True], [False], [True]])
    o, _ = softmax(q, k, v, keep=keep)
    assert not o[:, 1].any() and np.allclose(o[:, [0, 2]], softmax(q, k, v)[0][:, [0, 2]], rtol=1e-14, atol=0)
