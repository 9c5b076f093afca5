"""Accuracies of predictions that have several features each."""

import numpy as np


def feature_accuracy(prediction, target):
    """The fraction of features that are predicted exactly; both are (b, M)."""
    return float((np.asarray(prediction) == np.asarray(target)).mean())


def panel_accuracy(prediction, target):
    """The fraction of panels of which every feature is predicted exactly; both are (b, M).

    >>> prediction, target = [[1, 2], [3, 4]], [[1, 2], [3, 0]]
    >>> panel_accuracy(prediction, target), feature_accuracy(prediction, target)
    (0.5, 0.75)
    """
    return float((np.asarray(prediction) == np.asarray(target)).all(axis=-1).mean())
