"""What check.derivative says of pairs that were written before it was run on them (tests/derivatives_blind)."""

import re

import numpy as np
import pytest

from refattn import check

from .derivatives_blind.rows import ROWS

NUMBER, FLOAT = "backward returned dt as a float; allowed: an array", "forward returned an output that is a float"
WRITES, UNSETTLED = "the gradient of the output was changed in place", "differences of forward along"
REFUSED = {      # with a reason that is true
    "square of nothing": "allowed: one of floats, not empty",
    "InfoNCE": NUMBER, "InfoNCE: second half not transposed": NUMBER, "InfoNCE: one direction": NUMBER,
    "gradient as a list": FLOAT, "gradient as a list: last entry": FLOAT,
    "in-place backward": WRITES, "in-place backward: factor": WRITES,
    "accumulating: not cleared": "backward answers differently when asked again",
    "forgotten gradient: scale": "backward returned no gradient of scale",
    "random forward": "forward answers differently when asked again",
    "logits in half precision": UNSETTLED, "cross-entropy, very sure rows": UNSETTLED,
}
SCIPY = {        # whose forward calls it
    "gelu by erf", "gelu by erf: slope of the approximation", "matrix exponential",
    "matrix exponential: as if it commuted",
}
UNSEEN = {       # wrong, and called right: each entry's gradient is between the slopes to both sides, their sum is not
    "row maximum with ties: ones for all ties",
}


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_verdict(row):
    if row.name in SCIPY:
        pytest.importorskip("scipy")

    def report():
        forward, backward = row.build()
        inputs = row.make(np.random.default_rng(0))
        return check.derivative(forward, backward, inputs, constants=row.constants, rng=np.random.default_rng(0))

    if row.name in REFUSED:
        with pytest.raises(ValueError, match=re.escape(REFUSED[row.name])):
            report()
    else:
        found = report()
        assert found.ok == (row.right or row.name in UNSEEN), found


def test_the_exceptions_are_rows():
    assert {*REFUSED, *UNSEEN, *SCIPY} <= {row.name for row in ROWS}
