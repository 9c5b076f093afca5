"""Checks for forward and backward passes: this library's and yours.

    derivative(forward, backward, inputs)       is this backward the derivative of this forward?
    run("loops", case)                          one of the house checks on a row of `refattn.cases`
"""

from .derivative import Derivative, derivative
from .gap import Gap, gap, gaps
from .house import CHECKS, Wrong, run, tolerance

__all__ = ["CHECKS", "Derivative", "Gap", "Wrong", "derivative", "gap", "gaps", "run", "tolerance"]
