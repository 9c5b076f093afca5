"""Reading a RegularGPT: what its layers hold, how far back it looks, how it takes other words, and what it costs.

    layer outputs      should be as many points as the automaton has maps of words            R, section 7.3, figure 3
    receptive field    share of the gradient that the last positions get, cumulated backwards  R, section 7.4, figure 4
    probability shift  accuracy on PARITY where ones are rarer or more frequent                R, section 5.4, table 2
    cost               T C K log_C T against T^2 L pairs of query and key                      R, section 3.4

Source: R and the authors' code.  Differs: the number of levels is a whole one, so that R's "cheaper for K < 3.11 L"
at T = 512, C = 128 is K < 2 L, and K < 2.24 L where only keys that exist are counted, of a causal Transformer too;
clusters are compared with the true maps, their purity counted.
"""

from math import log
from typing import NamedTuple

import numpy as np

from .. import params
from ..attention.sliding_dilated import OUT_OF_RANGE
from ..automata.finite import Automaton, compose
from ..checks import check_choice, check_integer
from ..losses import cross_entropy
from ..models.regular_gpt import levels
from ..ops import embedding
from ..tasks.regular_languages import RegularLanguages
from ..xp import array_module, fitted, to_device, to_host

__all__ = ["Outputs", "cluster_count", "clusters", "crossing", "layer_outputs", "pairs", "principal",
           "probability_shift", "purity", "receptive_field", "window_maps"]


class Outputs(NamedTuple):
    """What the levels of the tree pass on for one word, n vectors, and what each of them should be."""
    vectors: np.ndarray        # (n, m): what each level of the tree passes on, level by level
    level: np.ndarray          # (n)
    position: np.ndarray       # (n): the last token that the vector has seen
    element: np.ndarray        # (n): which of the maps its window of tokens has
    maps: np.ndarray           # (k, states): those that occur


def window_maps(automaton: Automaton, tokens, chunk: int) -> list:
    """For each level the maps (t, states) of the last chunk^(l + 1) tokens at every position, fewer at the start.

    >>> window_maps(Automaton([[0, 1], [1, 0]], [0, 1]), np.array([1, 1, 1]), 2)[0].tolist()
    [[1, 0], [0, 1], [0, 1]]
    """
    here, found = automaton.transition.T[tokens], []
    identity = np.arange(automaton.states)
    for level in range(levels(len(tokens), chunk)):
        whole = here
        for j in range(1, chunk):
            shift = min(j * chunk**level, len(tokens))
            earlier = np.concatenate([np.broadcast_to(identity, (shift, automaton.states)), here[:len(here) - shift]])
            whole = compose(earlier, whole)
        here = whole
        found.append(here)
    return found


def layer_outputs(model, p, automaton: Automaton, tokens) -> Outputs:
    """What the levels of the tree pass on for one word (t), and the true map of each vector's window.

    With T = 500 and C = 2 these are the 501 vectors of R's figure 3; under norm "pre" they are taken before the last
    LayerNorm.  Raises ValueError for another model than RegularGPT.
    """
    check_choice("model", type(model).__name__, ("RegularGPT",))
    xp, chunk = array_module(p.readout.w), model.attention.chunk
    h, _ = model.embedding.forward(p.embed, to_device(tokens[None], xp))
    position = np.arange(len(tokens))
    vectors, places = [], []
    for block, k, read in model.schedule(len(tokens), True):
        h, _ = block.forward(p.blocks[k], h, read=read)
        if k == model.thickness - 1:                        # the last sub-layer of a level
            position = position[read]
            vectors.append(to_host(h)[0])
            places.append(position)
    windows = window_maps(automaton, to_host(tokens), chunk)
    seen = np.concatenate([w[at] for w, at in zip(windows, places, strict=True)])
    maps, element = np.unique(seen, axis=0, return_inverse=True)
    level = np.repeat(np.arange(len(places)), [len(at) for at in places])
    return Outputs(np.concatenate(vectors), level, np.concatenate(places), element.reshape(-1), maps)


def principal(vectors, count: int = 2):
    """(n, count): coordinates along the first principal components of all vectors.  Needs scikit-learn (`plots`)."""
    from sklearn.decomposition import PCA
    return PCA(count, svd_solver="full").fit_transform(vectors)


def _k_means(points, count: int, seed: int):
    """The cluster of each point.  Needs scikit-learn (`plots`)."""
    from sklearn.cluster import KMeans
    return KMeans(count, n_init=10, random_state=seed).fit_predict(points)


def purity(points, element, seed: int = 0) -> float:
    """The share of points that are of their cluster's most frequent element; k-means with as many clusters as elements.

    1 where the clusters are the elements; the share of the most frequent element is what chance gets at least.  Needs
    scikit-learn (`plots`).
    """
    from sklearn.metrics.cluster import contingency_matrix
    cluster = _k_means(points, len(np.unique(element)), seed)
    return float(contingency_matrix(cluster, element).max(axis=1).sum() / len(points))


def cluster_count(points, most: int = 10, seed: int = 0) -> int:
    """How many clusters there are, from 2 to `most`: k-means of the greatest mean silhouette (Rousseeuw 1987).

    Needs scikit-learn (`plots`).  Raises ValueError for fewer than 3 points, or points that are all the same.
    """
    from sklearn.metrics import silhouette_score
    check_integer("most", most, 2)
    most = min(most, len(points) - 1, len(np.unique(points, axis=0)))        # no more clusters than points that differ
    if most < 2:
        raise ValueError(f"points are {len(points)}, too few that differ; allowed: at least 3, of which 2 differ")
    return max(range(2, most + 1), key=lambda count: silhouette_score(points, _k_means(points, count, seed)))


def clusters(recipe, model, p, rng, words: int = 4, length: int = 500) -> dict:
    """{"purity", "count", "most frequent"} of the layer outputs of a RegularGPT, means over words; see `refattn.load`.

    count is the share of words whose number of clusters is that of the maps that occur.

    Raises ValueError for another model.
    """
    if recipe.attention != "sliding_dilated":
        raise ValueError(f"attention is {recipe.attention!r}, which has no levels; allowed: sliding_dilated")
    drawn = recipe.sample(rng, "longer", words, length)
    seen = [layer_outputs(model, p, recipe.data().automaton, word) for word in drawn.tokens]
    return {"purity": float(np.mean([purity(one.vectors, one.element) for one in seen])),
            "count": float(np.mean([cluster_count(one.vectors) == len(one.maps) for one in seen])),
            "most frequent": float(np.mean([np.bincount(one.element).max() / len(one.element) for one in seen]))}


def shares_of(model, p, saved, dy):
    """(t): the share of the last 1, 2, ..., t positions in the mean over words of the 2-norms of dx (b, t, m)."""
    _, unused = params.allocate(model.parameters(), dy.dtype, array_module(dy))
    dx = to_host(model.backward(p, saved, dy, unused))
    norm = np.sqrt((dx * dx).sum(axis=-1)).mean(axis=0)
    return np.cumsum(norm[::-1]) / norm.sum()


def receptive_field(model, p, tokens, target):
    """(t): the share of the gradient's norms that the last 1, 2, ..., t positions get, averaged over words.

    The gradient is that of the loss at the last position (cross-entropy) by each embedding before it is scaled; its
    2-norm over features is averaged over words (b, t).
    Raises ValueError for another model than RegularGPT.
    """
    check_choice("model", type(model).__name__, ("RegularGPT",))
    xp = array_module(p.readout.w)
    x = embedding(p.embed.table, to_device(tokens, xp))
    y, saved = model.forward(p, x, tree=True)
    _, dy = cross_entropy(y, to_device(target[:, None], xp))
    return shares_of(model, p, saved, dy)


def probability_shift(answer, lengths, ones=(0.1, 0.3, 0.5, 0.7, 0.9), words: int = 512, seed: int = 0) -> dict:
    """{probability of a 1: mean over lengths of the accuracy on PARITY}; answer(tokens (b, t)) -> class (b).

    Raises ValueError for no lengths.
    """
    found, lengths = {}, tuple(lengths)
    for number, probability in enumerate(ones):
        task, rng = RegularLanguages("parity", ones=probability), np.random.default_rng((seed, number))
        right = []
        for length in lengths:
            tokens, target = task.sample(rng, words, length)
            right.append(float((fitted(np.asarray(to_host(answer(tokens))), "answer", target.shape) == target).mean()))
        found[probability] = sum(right) / check_integer("number of lengths", len(right))
    return found


# ------------------------------------------------------------------------------------------------------------ cost

def pairs(length: int, chunk: int, thickness: int = 1, out_of_range: str = "pad") -> int:
    """Pairs of query and key of all levels, every position computed: T C K levels, fewer where a mask leaves some out.

    Raises ValueError for numbers that are not whole, a length below 0, a chunk below 2 and a thickness below 1.

    >>> pairs(512, 128, 6), pairs(512, 128, 6, "mask")
    (786432, 352128)
    """
    check_choice("out_of_range", out_of_range, OUT_OF_RANGE)
    check_integer("thickness", thickness)
    number = levels(length, chunk)
    if out_of_range == "pad":
        return length * chunk * thickness * number
    return thickness * sum(max(0, length - j * chunk**level) for level in range(number) for j in range(chunk))


def crossing(length: int, chunk: int, whole_levels: bool = True) -> float:
    """RegularGPT has fewer pairs than L layers of T^2 where K is below this number times L.

    One token still takes one level of `chunk` pairs: of length 1 it is 1 / chunk.  Raises ValueError for numbers that
    are not whole, a chunk below 2, a length below 0 and, unless levels are whole, below 2.

    >>> crossing(512, 128), round(crossing(512, 128, whole_levels=False), 2)
    (2.0, 3.11)
    """
    number = levels(length, chunk)
    return length / (chunk * (number if whole_levels else log(check_integer("length", length, 2), chunk)))
