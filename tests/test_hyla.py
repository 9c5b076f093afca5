"""What is particular to HYLA."""

import numpy as np

from refattn.attention.hyla import hyla, hyla_backward
from tests.pages import inputs


def test_two_heads_by_hand():
    """Scores 1 and -7: root mean square 5, code (0.2, -1.4); z = 0.2 * 12 - 1.4 * 1 = 1; o = code * relu(z).

    Backward with do = (1, 0): dz = 0.2, dcode = z do + dz v = (1 + 2.4, 0.2), and for RMSHead's own backward
    ds = (dcode - code mean(code dcode)) / 5 with mean = (0.2 * 3.4 - 1.4 * 0.2) / 2 = 0.2.
    """
    q, k, v = np.ones((1, 1, 2, 1)), np.array([[[[1.0], [-7.0]]]]), np.array([[[[12.0], [1.0]]]])
    o, saved = hyla(q, k, v, epsilon=0.0)
    assert np.allclose(saved.code.ravel(), [0.2, -1.4]) and np.isclose(saved.z.item(), 1)
    assert np.allclose(o.ravel(), [0.2, -1.4])
    dq, dk, dv, _ = hyla_backward(saved, np.array([[[[1.0], [0.0]]]]))
    ds = [(3.4 - 0.2 * 0.2) / 5, (0.2 + 1.4 * 0.2) / 5]
    assert np.allclose(dv.ravel(), [0.2 * 0.2, 0.2 * -1.4])
    assert np.allclose(dk.ravel(), ds) and np.allclose(dq.ravel(), [ds[0], -7 * ds[1]])


def test_a_negative_hidden_layer_gives_nothing_back():
    q, k, v = np.ones((1, 1, 2, 1)), np.array([[[[1.0], [-7.0]]]]), np.array([[[[-12.0], [-1.0]]]])
    o, saved = hyla(q, k, v)
    assert saved.z.item() < 0 and not o.any() and not any(g.any() for g in hyla_backward(saved, o + 1)[:3])


def test_the_size_of_the_scores_does_not_matter_but_for_epsilon():
    q, k, v = inputs()
    o = hyla(q, k, v)[0]
    assert np.allclose(hyla(100 * q, k, v)[0], o, rtol=1e-3)
    assert np.allclose(hyla(100 * q, k, v, epsilon=0.0)[0], hyla(q, k, v, epsilon=0.0)[0], rtol=1e-12, atol=0)
    assert np.abs(hyla(1e-6 * q, k, v)[0]).max() < np.abs(o).max() / 1000


def test_root_mean_square_of_the_code_is_one_over_heads():
    saved = hyla(*inputs())[1]
    assert np.allclose((saved.code**2).mean(axis=1), 1, atol=1e-2) and saved.rho.shape == (2, 1, 3, 4)


def test_a_pair_that_is_not_kept_still_counts_in_the_mean_over_heads():
    q, k, v = inputs()
    keep = np.ones((5, 1, 1), bool)
    keep[0] = False
    code = hyla(q, k, v, keep=keep)[1].code
    assert not code[:, 0].any() and np.allclose((code**2).mean(axis=1), 1, atol=1e-2)
