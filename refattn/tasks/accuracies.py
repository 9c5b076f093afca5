"""Accuracies of predictions that have several features each."""

import numpy as np


def right(prediction, target):
    """Where they are equal.  Raises ValueError for shapes that differ."""
    if np.shape(prediction) != np.shape(target):
        raise ValueError(f"prediction has shape {np.shape(prediction)}; allowed: {np.shape(target)}, the target's")
    return np.asarray(prediction) == np.asarray(target)


def feature_accuracy(prediction, target):
    """The fraction of features that are predicted exactly; both are (b, M)."""
    return float(right(prediction, target).mean())


def panel_accuracy(prediction, target):
    """The fraction of panels of which every feature is predicted exactly; both are (b, M).

    >>> prediction, target = [[1, 2], [3, 4]], [[1, 2], [3, 0]]
    >>> panel_accuracy(prediction, target), feature_accuracy(prediction, target)
    (0.5, 0.75)
    """
    return float(right(prediction, target).all(axis=-1).mean())
