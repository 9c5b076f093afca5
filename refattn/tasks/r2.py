"""R2 in two forms, for tasks with one prediction each.

Source: Attention as a Hypernetwork, the authors' code (per task) and the text, "coefficient of determination" (pooled).
"""

import numpy as np


def r2_of_each_task(prediction, values):
    """1 - (prediction - y_T)^2 / variance of the task's own targets y_1 ... y_T, the query's included, divided by T.

    Shapes: prediction (b), values (b, t), returns (b) in float64.  A task whose targets (of float32) do not vary counts
    1 if it is predicted exactly and minus infinity if not.  The mean is the R2 of the authors' code: one residual each,
    no lower bound, a heavy left tail.  Means of batches of one size can be averaged.

    >>> r2_of_each_task([0.5, 0.25], [[0.0, 1.0, 0.5], [0.0, 0.0, 0.75]])
    array([ 1., -1.])
    """
    values = np.asarray(values, dtype=np.float64)
    prediction = same_tasks(prediction, values)
    error = (prediction - values[:, -1]) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error == 0, 1.0, 1 - error / values.var(axis=1))


def r2_pooled(prediction, values):
    """1 - sum (prediction - y_T)^2 / sum (y_T - mean y_T)^2 over all tasks: the coefficient of determination.

    Batches cannot be averaged; join their predictions and values.

    Shapes: prediction (b), values (b, t), returns a number.

    >>> r2_pooled([0.0, 0.5, 0.5], [[0.9, 0.0], [0.9, 0.5], [0.9, 1.0]])
    0.5
    """
    values = np.asarray(values, dtype=np.float64)
    prediction, target = same_tasks(prediction, values), values[:, -1]
    return float(1 - ((prediction - target) ** 2).sum() / ((target - target.mean()) ** 2).sum())


def same_tasks(prediction, values):
    """prediction in float64, or a ValueError unless it has one number for each task."""
    prediction = np.asarray(prediction, dtype=np.float64)
    if prediction.shape != values.shape[:1]:
        raise ValueError(f"prediction has shape {prediction.shape}; allowed: {values.shape[:1]}")
    return prediction
