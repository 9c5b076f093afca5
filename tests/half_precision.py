"""The library made of plain formulas, with what goes into and comes out of every contraction in half precision.

A kernel in half precision that sums in full precision, and takes any precision.
"""

from functools import cache

import numpy as np

from refattn.verification.changed_source import rewritten
from refattn.verification.plain_formulas import REPLACED, rounded


def contract_in(precision):
    """`contract` with operands and result rounded."""
    return lambda spec, a, b, **_: rounded(np.einsum(spec, rounded(a, precision), rounded(b, precision)), precision)


@cache
def package(precision):
    """The library whose contractions round to this precision."""
    contract = f"from tests.half_precision import contract_in\ncontract = contract_in({precision!r})"
    plain = f"from .verification.plain_formulas import {', '.join(REPLACED)}"
    return rewritten({"contract.py": lambda source: f"{source}\n{contract}\n",
                      "ops.py": lambda source: f"{source}\n{plain}\n"})
