"""AdamW, clipping and schedules: values by hand, published check values, bad settings."""

import numpy as np
import pytest

from refattn import optim


def test_the_first_step_by_hand():
    """m = 0.4, v = 0.016; corrected 4 and 16; so 1 - 0.1 (4 / 4 + 0.5 * 1) where decay acts, 1 - 0.1 elsewhere."""
    flat, grads = np.array([1.0, 1.0]), np.array([4.0, 4.0])
    state = optim.moments(flat)
    optim.adamw_step(flat, grads, state, step=1, rate=0.1, decay=0.5, mask=np.array([1.0, 0.0]))
    assert np.allclose(flat, [0.85, 0.9], rtol=1e-8, atol=0)
    assert np.allclose(state.first, 0.4) and np.allclose(state.second, 0.016)


def test_epsilon_stands_outside_the_root():
    flat, grads = np.zeros(1), np.full(1, 1e-8)
    optim.adamw_step(flat, grads, optim.moments(flat), step=1, rate=1.0)
    assert flat[0] == pytest.approx(-0.5, rel=1e-6)             # 1e-8 / (1e-8 + 1e-8)


def test_a_rate_of_zero_moves_the_moments_only():
    flat = np.ones(3)
    state = optim.moments(flat)
    optim.adamw_step(flat, flat * 2, state, step=1, rate=0.0, decay=0.5)
    assert (flat == 1).all() and (state.first != 0).all()


def test_gradients_are_not_written_and_float32_stays():
    flat, grads = np.ones(3, "float32"), np.arange(3, dtype="float32")
    state = optim.moments(flat)
    optim.adamw_step(flat, grads, state, step=1, rate=0.1, decay=0.1)
    assert grads.tolist() == [0, 1, 2] and flat.dtype == state.first.dtype == np.float32


@pytest.mark.parametrize("limit, epsilon, factor", [
    (10.0, 0.0, 1.0), (2.5, 0.0, 0.5), (0.25, 0.0, 0.05), (5.0, 0.0, 1.0), (5.0, 1e-6, 5 / 5.000001), (3.0, 1.0, 0.5)])
def test_clipping_by_hand(limit, epsilon, factor):
    grads = np.array([3.0, 4.0])
    assert optim.clip_by_global_norm(grads, limit, epsilon) == 5
    assert np.allclose(grads, [3 * factor, 4 * factor], rtol=1e-12, atol=0)


def test_a_gradient_below_one_is_clipped_to_less():
    grads = np.array([0.3, 0.4])
    assert optim.clip_by_global_norm(grads, 0.25) == 0.5 and np.allclose(grads, [0.15, 0.2], rtol=1e-12, atol=0)


def test_clipping_zero_is_zero():
    grads = np.zeros(3, "float32")
    optim.clip_by_global_norm(grads, 1.0)
    assert not grads.any()


@pytest.mark.parametrize("steps, warmup, count, rate", [
    (50_000, 100, 0, 0.0), (50_000, 100, 1, 1e-5), (50_000, 100, 100, 1e-3), (50_000, 100, 25_000, 5.5e-4),
    (50_000, 100, 49_900, 1e-4), (50_000, 100, 49_999, 1e-4), (156_250, 1000, 78_125, 5.5e-4)])
def test_the_published_check_values(steps, warmup, count, rate):
    assert optim.warmup_cosine(count, rate=1e-3, steps=steps, warmup=warmup) == pytest.approx(rate, rel=1e-12)


def test_the_text_reaches_the_floor_at_the_end():
    rates = [optim.warmup_cosine(c, rate=1.0, steps=100, warmup=10, length="text") for c in (99, 100)]
    assert rates[0] > 0.1 and rates[1] == pytest.approx(0.1)


def test_bad_schedules():
    with pytest.raises(ValueError, match="length is 'code'; allowed: released, text"):
        optim.warmup_cosine(0, rate=1.0, steps=10, warmup=1, length="code")
    with pytest.raises(ValueError, match="leaves no step of 10; allowed: steps above 10"):
        optim.warmup_cosine(0, rate=1.0, steps=10, warmup=5)


@pytest.mark.parametrize("limit", [-1, float("nan"), True, None, "1"])
def test_a_limit_below_zero_is_refused(limit):
    """It turned the gradient round."""
    grads = np.array([3.0, 4.0])
    with pytest.raises(ValueError, match=f"limit is {limit!r}; allowed: numbers of at least 0"):
        optim.clip_by_global_norm(grads, limit)
    for large in float("inf"), np.float32("inf"):
        assert optim.clip_by_global_norm(grads, large) == 5 and grads.tolist() == [3, 4]


@pytest.mark.parametrize("change, words", [
    ({"mask": np.ones(1)}, "mask has shape (1,); allowed: (3,)"),
    ({"rate": -0.1}, "rate is -0.1; allowed: numbers of at least 0, and finite"),
    ({"step": 0}, "step is 0; allowed: whole numbers of at least 1"),
    ({"rate": float("nan")}, "rate is nan; allowed: numbers of at least 0, and finite")])
def test_an_update_stretches_no_mask_and_climbs_no_hill(change, words):
    flat, state = np.ones(3), optim.moments(np.ones(3))
    with pytest.raises(ValueError) as caught:
        optim.adamw_step(flat, flat * 2, state, **{"step": 1, "rate": 0.1, "decay": 0.5, **change})
    assert str(caught.value) == words and (flat == 1).all()
    assert "step" not in change or not np.any(state)


def test_a_gradient_whose_squares_overflow_is_no_update():
    """The limit of the sum of squares, as documented: 1.8e19 in float32."""
    right, over = np.array([1.8e19, 1], "f"), np.array([1.9e19, 1], "f")
    with np.errstate(over="ignore"):
        assert optim.clip_by_global_norm(right, 1.0) == np.float32(1.8e19) and right[0] == pytest.approx(1)
        assert optim.clip_by_global_norm(over, np.inf) == np.inf and over.all()             # inf / inf was NaN
        assert optim.clip_by_global_norm(over, 1.0) == np.inf and not over.any()


@pytest.mark.parametrize("change", [{"warmup": -5}, {"count": -1}, {"warmup": 2.5}])
def test_steps_are_whole_numbers_from_zero_on(change):
    """A negative number gave a rate: below 0 for a count."""
    (name, value), settings = *change.items(), {"count": 3, "rate": 1.0, "steps": 50, "warmup": 5, **change}
    with pytest.raises(ValueError, match=f"{name} is {value}; allowed: whole numbers of at least 0"):
        optim.warmup_cosine(**settings)


@pytest.mark.parametrize("name", ["grads", "first", "second"])
def test_an_update_is_of_one_dtype(name):
    """Moments in float32 cost float64 parameters their digits, silently."""
    flat = np.ones(3)
    given = {"flat": flat, "grads": flat, **optim.moments(flat)._asdict()}
    given[name] = given[name].astype(np.float32)
    state = optim.Moments(given["first"], given["second"])
    with pytest.raises(TypeError, match=f"flat is float64 but {name} is float32; allowed: one dtype"):
        optim.adamw_step(flat, given["grads"], state, step=1, rate=0.1)


def test_an_update_is_in_32_bits_at_least():
    """In float16 epsilon is 0, and a gradient of 0 made parameters NaN; so is 1e-46 in float32, which has 1e-45."""
    flat = np.ones(3, np.float16)
    with pytest.raises(TypeError, match="flat has dtype float16; allowed: float32, float64"):
        optim.adamw_step(flat, flat, optim.moments(flat), step=1, rate=0.1)
    for dtype, epsilon in ("float32", 0.0), ("float32", 1e-46), ("float64", 0):
        flat, state = np.ones(3, dtype), optim.moments(np.zeros(3, dtype))
        with pytest.raises(ValueError, match=f"epsilon is {epsilon}; allowed: numbers above 0 in {dtype}"):
            optim.adamw_step(flat, 0 * flat, state, step=1, rate=0.1, epsilon=epsilon)
    single = np.ones(3, "float32")
    optim.adamw_step(single, 0 * single, optim.moments(single), step=1, rate=0.1, epsilon=1e-45)
    assert (single == 1).all() and (flat == 1).all()
