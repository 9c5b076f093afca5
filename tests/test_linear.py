"""What is particular to linear attention."""

import numpy as np
import pytest

from refattn.attention.linear import linear, linear_backward
from refattn.attention.linear_state import linear_state
from tests.pages import inputs
from tests.refusals import refused


def test_two_keys_by_hand():
    """Both weights are 4 * 3 / sqrt(4) = 6, so o = 6 (1 + 10) and dk = do v q / 2."""
    q, k, v = np.ones((1, 1, 1, 4)), np.full((1, 2, 1, 4), 3.0), np.array([[[[1.0]], [[10.0]]]])
    o, saved = linear(q, k, v)
    dq, dk, dv, dbias = linear_backward(saved, np.ones_like(o))
    assert o.item() == 66 and dv.ravel().tolist() == [6, 6]
    assert dk.reshape(2, 4).tolist() == [[0.5] * 4, [5.0] * 4] and dq.ravel().tolist() == [16.5] * 4


def test_it_is_linear_in_each_of_q_k_and_v():
    q, k, v = inputs()
    o = linear(q, k, v)[0]
    for scaled in (2 * q, k, v), (q, 2 * k, v), (q, k, 2 * v):
        assert np.allclose(linear(*scaled)[0], 2 * o, rtol=1e-14, atol=0)


def test_dropped_keys_count_for_nothing():
    q, k, v = inputs()
    keep = np.array([True, False, True, True])
    assert np.allclose(linear(q, k, v, keep=keep)[0], linear(q, k[:, keep], v[:, keep])[0], rtol=1e-13, atol=0)


def test_a_state_takes_what_linear_attention_takes():
    q = np.ones((2, 3, 4, 5))
    refused("axis k is 3 in k but 2 in v; allowed: one size", linear_state, q, q, q[:, :2])
    refused("axis d is 5 in q but 4 in k", linear_state, q, q[..., :4], q)
    with pytest.raises(TypeError, match="float32"):
        linear_state(q, q, q.astype(np.float32))
