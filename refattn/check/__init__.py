"""Checks for forward and backward passes: this library's and yours.

    derivative(forward, backward, inputs)       is this backward the derivative of this forward?
    compare(your_kernel, "hyla", ...)           which entry of which output or gradient is wrong, and by how much?
    diagnose(your_kernel, "hyla", ...)          in which line they part, and what was forgotten there
    pytest_params("hyla", ...)                  settings for `compare` as ready test cases
    run("loops", case)                          one of the house checks on a row of `refattn.verification.cases`
"""

from ..verification.checks import CHECKS, Wrong, applies, run, tolerance
from ..verification.derivatives import Derivative, derivative
from ..verification.deviation import Deviation, deviation, deviations
from .diagnosis import Diagnosis, diagnose
from .kernels import Comparison, compare, pytest_params

__all__ = ["CHECKS", "Comparison", "Derivative", "Diagnosis", "Deviation", "Wrong", "applies", "compare", "derivative",
           "diagnose", "deviation", "deviations", "pytest_params", "run", "tolerance"]
