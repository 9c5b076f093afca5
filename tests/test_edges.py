"""Numbers at the edge of what is allowed: no epsilon, classes that cannot be, ids of few bits or from the end."""

import numpy as np
import pytest

from refattn import ops
from refattn.attention.hyla import hyla, hyla_backward
from refattn.contract import contract
from refattn.layers.next_token import next_token, next_token_backward
from refattn.losses import cross_entropy
from refattn.verification.naive.hyla import hyla as naive_hyla


def test_rms_head_without_epsilon_leaves_masked_pairs_at_zero():
    rng = np.random.default_rng(0)
    q, k, v, do = rng.standard_normal((4, 2, 5, 3, 4))
    keep = np.tri(5, dtype=bool)
    o, saved = hyla(q, k, v, keep=keep, epsilon=0)
    np.testing.assert_allclose(o, naive_hyla(q, k, v, keep=keep, epsilon=0), rtol=1e-12, atol=1e-12)
    assert not saved.code[..., ~keep].any()
    later = k.copy()
    later[:, 4] += 1                                            # the last key, which the first four queries do not see
    np.testing.assert_array_equal(hyla(q, later, v, keep=keep, epsilon=0)[0][:, :4], o[:, :4])
    dq, dk, dv, _ = hyla_backward(saved, do)
    assert all(np.isfinite(x).all() for x in (dq, dk, dv))
    step = np.zeros_like(k, dtype=complex)
    step[1, 2, 1, 3] = 1e-30j
    slope = (hyla(q + 0j, k + step, v + 0j, keep=keep, epsilon=0)[0] * do).sum().imag / 1e-30
    assert dk[1, 2, 1, 3] == pytest.approx(slope, rel=1e-12)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "int32"])
def test_targets_of_few_bits_are_found_in_a_large_vocabulary(dtype):
    rng = np.random.default_rng(0)
    h, table = rng.standard_normal((2, 128, 3)), rng.standard_normal((5_000, 3))
    target = rng.integers(0, 250, (2, 128))
    right, saved = next_token(h, table, target)
    loss, narrow = next_token(h, table, target.astype(dtype))
    np.testing.assert_array_equal(loss, right)
    for x, y in zip(next_token_backward(narrow, np.ones_like(loss)), next_token_backward(saved, np.ones_like(loss)),
                    strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("rows", [5, 70])
def test_an_id_from_the_end_of_a_table_has_its_gradient_there(rows):
    table, index = np.ones((rows, 2)), np.array([0, -1, rows - 1])
    np.testing.assert_array_equal(ops.embedding_backward(table, index, np.ones((3, 2)))[[0, -1]], [[1, 1], [2, 2]])


@pytest.mark.parametrize("spec", ["b,b->b", "bd,bd->b", "ab,bc->ac"])
def test_a_product_is_not_stretched_into_out(spec):
    x = np.ones((3, 3))
    operands = [x if len(letters) == 2 else x[0] for letters in spec.partition("->")[0].split(",")]
    with pytest.raises(ValueError, match=r"out has shape \(5, 3, 3\); allowed: \(3"):
        contract(spec, *operands, out=np.empty((5, 3, 3)))


def test_a_logit_of_minus_infinity_is_a_class_that_cannot_be():
    rng = np.random.default_rng(0)
    logits, target = rng.standard_normal((4, 5, 7)), rng.integers(0, 6, (4, 5))
    without, slopes = cross_entropy(logits[..., :6], target)
    logits[..., 6] = -np.inf
    loss, dlogits = cross_entropy(logits, target)
    assert loss == pytest.approx(float(without), rel=1e-15) and not dlogits[..., 6].any()
    np.testing.assert_allclose(dlogits[..., :6], slopes, rtol=1e-14)
