"""Who retrieves what: value scores by search and retrieval, against what the contextual retrieval task asks for.

    pairing           mean value score of each search and retrieval                                       C, figure 4
    specialisation    mean value score of each retrieval, by the retrieval that is asked for     C, figures 5, 11, 12
    error_by_tuple    mean absolute error of the objects with each tuple of preferences          not in the paper

Source: C, section 4.1, appendix C.1.  Retrievals and searches have no order, so learned ones are aligned with true ones
by the permutation of the largest sum.  Differs: the authors' code has no function for the figures; `matched` is ours.
"""

from itertools import permutations
from typing import NamedTuple

import numpy as np

from ..checks import check_choice
from ..train.evaluation import forward
from ..xp import to_host

__all__ = ["Observed", "best_order", "diagonality", "error_by_tuple", "figure", "observe", "pairing", "searches_found",
           "specialisation"]


class Observed(NamedTuple):
    """What one forward pass saw, on the host."""
    value_scores: np.ndarray   # (b, t, s, r)
    search_scores: np.ndarray  # (b, s, t, t)
    preference: np.ndarray     # (b, t, s) the true retrieval of each true search
    winner: np.ndarray         # (b, t, s) the object that each true search finds


def value_scores(recipe, page) -> np.ndarray:
    """(b, t, s, r), what a page saved of them, on the host.  Raises ValueError for attention that has none."""
    if not hasattr(page, "value_scores"):
        raise ValueError(f"attention is {recipe.attention!r}, which has no value scores; allowed: compositional")
    return to_host(page.value_scores)


def observe(recipe, model, parameters, rng, sets: int = 2_000, split: str = "train") -> Observed:
    """The scores of a trained network on fresh sets; recipe, model, parameters as `refattn.load` returns them.

    Raises ValueError for another task, and for attention that has no value scores.
    """
    check_choice("task of the recipe", recipe.TASK, ("contextual_retrieval",))
    batch = recipe.sample(rng, split, sets)
    _, saved = forward(recipe, model, parameters, batch)
    page = saved.attention.attention
    return Observed(value_scores(recipe, page), to_host(page.search_scores), batch.preference, batch.winner)


def pairing(seen: Observed) -> np.ndarray:
    """(s, r): mean value score; rows sum to 1."""
    return seen.value_scores.mean(axis=(0, 1))


def best_order(score) -> tuple[int, ...]:
    """For each row its column, all different, with the largest sum; beyond 8 rows or columns largest entry first.

    Raises ValueError for more rows than columns, and for NaN.

    >>> best_order(np.array([[0.1, 0.9], [0.2, 0.8]]))
    (1, 0)
    """
    score = np.asarray(score)
    rows, columns = score.shape
    if rows > columns or np.isnan(score).any():
        raise ValueError(f"score has {rows} rows and {columns} columns; allowed: as many columns as rows, or more, "
                         "and no NaN")
    if rows <= 8 and columns <= 8:
        return max(permutations(range(columns), rows), key=lambda order: sum(score[range(rows), order]))
    order, left, free = [-1] * rows, list(range(rows)), list(range(columns))
    while left:
        row, column = np.unravel_index(score[np.ix_(left, free)].argmax(), (len(left), len(free)))
        order[left.pop(row)] = free.pop(column)
    return tuple(order)


def searches_found(seen: Observed) -> np.ndarray:
    """(true search, learned search): mean probability that the learned one gives to the true winner."""
    at_winner = np.take_along_axis(seen.search_scores[:, None], seen.winner.transpose(0, 2, 1)[:, :, None, :, None], -1)
    return at_winner[..., 0].mean(axis=(0, 3))


def specialisation(seen: Observed, *, matched: bool = True, aligned: bool = True) -> np.ndarray:
    """(true retrieval, learned retrieval): mean value score where the true retrieval is asked for.

    Rows sum to 1; the row of a retrieval that nobody asks for, as held-out tuples may leave one, is 0.

    matched : each true search looks at the learned search that finds its winner; else at the mean of all of them
    aligned : columns permuted to bring the largest entries to the diagonal
    """
    b, t, s, r = seen.value_scores.shape
    known = np.arange(max(r, seen.preference.max() + 1))
    asked = (seen.preference[..., None] == known).astype(seen.value_scores.dtype)
    scores = seen.value_scores
    if matched:
        scores = scores[:, :, list(best_order(searches_found(seen)))]
    else:
        scores = np.broadcast_to(scores.mean(axis=2, keepdims=True), (b, t, asked.shape[2], r))
    total = np.tensordot(asked, scores, ([0, 1, 2], [0, 1, 2])) / np.maximum(asked.sum(axis=(0, 1, 2)), 1)[:, None]
    if aligned and total.shape[0] <= r:
        first = best_order(total)
        total = total[:, [*first, *(column for column in range(r) if column not in first)]]
    return total


def diagonality(matrix) -> float:
    """Mean of the diagonal over rows that are not 0: of aligned rows 1 for one-hot ones, 1 / r for uniform ones.

    NaN, with NumPy's warning, where all rows are 0.
    """
    return float(np.diagonal(matrix)[matrix.any(axis=1)[:min(matrix.shape)]].mean())


def error_by_tuple(recipe, model, parameters, rng, sets: int = 4_000, split: str = "train") -> np.ndarray:
    """(R, ..., R), one axis for each search: mean |y - target| by the tuple of preferences, on fresh sets.

    NaN where no object has that tuple.  Any attention; arguments as for `observe`.  What a network has not learned is
    a set of tuples, hence the plateaus of its loss.  Raises ValueError for another task.
    """
    check_choice("task of the recipe", recipe.TASK, ("contextual_retrieval",))
    batch = recipe.sample(rng, split, sets)
    y = to_host(forward(recipe, model, parameters, batch)[0])[..., 0]
    shape = (recipe.retrievals,) * recipe.searches
    place = np.ravel_multi_index(np.moveaxis(batch.preference, -1, 0), shape).ravel()
    total = np.bincount(place, np.abs(y - batch.target).ravel(), recipe.retrievals**recipe.searches)
    count = np.bincount(place, minlength=total.size)
    return np.where(count, total / np.maximum(count, 1), np.nan).reshape(shape)


def figure(matrices: dict[str, np.ndarray], xlabel: str = "learned retrieval", ylabel: str = "true retrieval"):
    """One heat map for each title, on one scale from 0 to 1; a matplotlib Figure.  Needs the extra `plots`."""
    from matplotlib.figure import Figure
    made = Figure(figsize=(max(4.8, 0.8 + 2.6 * len(matrices)), 2.7), layout="constrained")
    for axes, (title, matrix) in zip(made.subplots(1, len(matrices), squeeze=False)[0], matrices.items(), strict=True):
        image = axes.imshow(matrix, vmin=0, vmax=1, cmap="cividis")
        axes.set(title=title, xlabel=xlabel, ylabel=ylabel)
        axes.set(xticks=range(matrix.shape[1]), yticks=range(matrix.shape[0]))
        if matrix.size <= 64:
            for (row, column), value in np.ndenumerate(matrix):
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8,
                          color="black" if value > 0.5 else "white")
    made.colorbar(image, ax=made.axes, label="mean value score", shrink=0.8)
    return made
