"""Hypothesis strategies for testing attention, yours or ours: distinct sizes for distinct axes, masks, biases, inputs.

    >>> from hypothesis import given
    >>> from refattn.attention.softmax import softmax
    >>> def mine(**inputs):                     # q, k, v, and bias, keep, dropout, each of which may be None
    ...     return softmax(**inputs)[0]
    >>> @given(attention_inputs())
    ... def test_mine(inputs):
    ...     assert np.allclose(mine(**inputs), softmax(**inputs)[0])
    >>> test_mine()

Sizes differ from axis to axis, so that no exchanged axis can hide behind a right shape; sizes are what hypothesis
shrinks, while numbers are standard normal from a drawn seed.  This module alone needs hypothesis.
"""

from types import MappingProxyType

import numpy as np
from hypothesis import strategies as st

from ..attention import AXES
from .cases.case import FORMS, normal, shape

__all__ = ["attention_inputs", "biases", "dropouts", "forms", "generators", "masks", "sizes"]

LIMIT = 7                      # the largest size unless told


def generators():
    """NumPy generators from drawn seeds."""
    return st.integers(0, 2**32 - 1).map(np.random.default_rng)


@st.composite
def sizes(draw, letters: str = "bqkhde", smallest: int = 1, largest: int = LIMIT) -> dict[str, int]:
    """{letter: size}, all sizes different.  Raises ValueError when there are fewer sizes than letters."""
    if largest - smallest + 1 < len(letters):
        raise ValueError(f"largest is {largest}; allowed: room for {len(letters)} different sizes from {smallest} on")
    chosen = draw(st.lists(st.integers(smallest, largest), min_size=len(letters), max_size=len(letters), unique=True))
    return dict(zip(letters, chosen, strict=True))


def forms():
    """The axes of something that broadcasts to (b, h, q, k), as letters and 1 for a stretched axis: 'qk', 'h1k', ..."""
    return st.sampled_from(FORMS)


@st.composite
def biases(draw, size: dict[str, int]):
    """A bias in some broadcast form."""
    return normal(draw(generators()), draw(forms()), size)


@st.composite
def masks(draw, size: dict[str, int], empty_rows: bool = True):
    """A keep in some broadcast form: all, most, few or none True; with `empty_rows` False every query keeps a key."""
    keep = draw(generators()).random(shape(draw(forms()), size)) < draw(st.sampled_from([1.0, 0.7, 0.3, 0.0]))
    if not empty_rows:
        keep[..., 0] = True
    return keep


@st.composite
def dropouts(draw, size: dict[str, int], rate: float = 0.25):
    """Dropout in some broadcast form, already divided by 1 - rate."""
    return (draw(generators()).random(shape(draw(forms()), size)) >= rate) / (1 - rate)


@st.composite
def attention_inputs(draw, extras=MappingProxyType({}), dtype="float64", largest: int = LIMIT) -> dict:
    """q (b, q, h, d), k (b, k, h, d), v (b, k, h, e); bias, keep, dropout, each or None; `extras` (name -> axes).

    A letter in `extras` that is none of these, nor 1, is a further axis.
    """
    letters = dict.fromkeys("bqkhde" + "".join(extras.values()).replace("1", ""))
    size, rng = draw(sizes("".join(letters), largest=largest)), draw(generators())
    inputs = {name: normal(rng, {**AXES, **extras}[name], size) for name in ("q", "k", "v", *extras)}
    inputs["bias"] = draw(st.none() | biases(size))
    inputs["keep"] = draw(st.none() | masks(size))
    inputs["dropout"] = draw(st.none() | dropouts(size))
    return {n: x if x is None or x.dtype == bool else x.astype(dtype) for n, x in inputs.items()}
