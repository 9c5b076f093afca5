"""A page's formulas run, right or with a mistake in them, and what their lines may call.

A function here is either one of the page's own or a way to do it wrongly: an axis misread, a scatter that loses, a
running sum that is never rescaled.
"""

import ast
import re
from functools import cache, lru_cache

import numpy as np

from ..contract import contract
from ..layers.mixture_of_experts import largest
from ..layers.text_positions import slopes
from ..xp import erf
from .formulas import Formulas, start


def erf_of(x):
    """erf(x), of a complex step too."""
    return erf(x.real) + 2j / np.pi**0.5 * x.imag * np.exp(-x.real**2) if np.iscomplexobj(x) else erf(x)


WHOLE = {                      # which entry of an axis of n is read in place of i; -1 is none
    "the first for all": lambda i, n: 0 * i,
    "shifted by one": lambda i, n: np.minimum(i + 1, n - 1),
    "shifted back by one": lambda i, n: np.maximum(i - 1, 0),
    "rolled by one": lambda i, n: np.roll(i, 1),
    "rolled back by one": lambda i, n: np.roll(i, -1),
    "reversed": lambda i, n: i[::-1],
    "the first missing": lambda i, n: np.where(i > 0, i, -1),
    "the last missing": lambda i, n: np.where(i < n - 1, i, -1),
    "only the first": lambda i, n: np.where(i == 0, i, -1),
    "only the last": lambda i, n: np.where(i == n - 1, i, -1),
}
PARTS = {                      # the same in tiles of t
    "the first tile missing, of": lambda i, n, t: np.where(i >= t, i, -1),
    "the last tile missing, of": lambda i, n, t: np.where(i < (n - 1) // t * t, i, -1),
    "the partial tile missing, of": lambda i, n, t: np.where(i < n // t * t, i, -1),
    "only the last tile, of": lambda i, n, t: np.where(i >= (n - 1) // t * t, i, -1),
    "only the first tile, of": lambda i, n, t: np.where(i < t, i, -1),
}


def ways(n):
    """How an axis of n may be handled wrongly."""
    return [*WHOLE, "mean", "sum", *(f"{words} {t}" for t in tiles(n) for words in PARTS)] if n > 1 else []


def tiles(n):
    """Sizes of tiles that may cut an axis of n."""
    return [t for t in ((2, 3, 4, 5) if n < 16 else (16, 32, 64, 128)) if t < n]


@cache
def _places(n, how):
    """Which entry of an axis of n is read in place of each, -1 where none is."""
    words, _, tile = how.rpartition(" ")
    return PARTS[words](np.arange(n), n, int(tile)) if words in PARTS else WHOLE[how](np.arange(n), n)


def along(x, axis, how):
    """x with one axis handled wrongly."""
    if how in ("mean", "sum"):
        return np.broadcast_to(getattr(x, how)(axis, keepdims=True), x.shape)
    places = _places(x.shape[axis], how)
    lost = (places < 0).reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
    return np.where(lost, 0, x.take(places, axis))


def folded(x, i, j, back=False, heads=2):
    """(b, h, t, d), heads being axis `heads`, with axes i and j taken for one another in memory."""
    x = x.swapaxes(1, heads)
    y = x.swapaxes(i, j)
    return (x.reshape(y.shape).swapaxes(i, j) if back else y.reshape(x.shape)).swapaxes(1, heads)


def elsewhere(spec, x, y, moved):
    """A product in which the first array, the second or the result has the place of the key and not of the query.

    Or that of the query and not of the key: there are as many of them.
    """
    parts, arrays = re.split(",|->", spec), [x, y]
    n = x.shape[max(map(parts[0].find, "qk"))]
    parts[moved] = parts[moved].translate(str.maketrans("qk", "kq"))
    for i in 0, 1:
        for letter in {*parts[i]} - {*parts[1 - i], *parts[2]}:
            arrays[i], parts[i] = arrays[i].sum(parts[i].index(letter)), parts[i].replace(letter, "")
    own = "".join(letter for letter in parts[2] if letter in parts[0] + parts[1])
    found = contract(f"{parts[0]},{parts[1]}->{own}", *arrays)
    for i, letter in enumerate(parts[2]):
        found = found if letter in own else found[(slice(None),) * i + (None,)].repeat(n, i)
    return found


def lastof(at):
    """One-hot places, each only for the last query and offset that reads it: what a scatter without adding keeps."""
    flat = at.reshape(-1, at.shape[-1])
    rank = np.where(flat > 0, np.arange(len(flat))[:, None] + 1, 0)
    return (flat * (rank == rank.max(0))).reshape(at.shape)


def firstof(at):
    """The same of the first query and offset."""
    queries = tuple(range(at.ndim - 1))
    return np.flip(lastof(np.flip(at, queries)), queries)


def tile_of_query(x, tile=1):
    """The tile of keys, (q, 1), in which each query's own key is; a negative one counts from the first query's."""
    q, k = x.shape[-2:]
    return (np.arange(q)[:, None] + (k - q if tile > 0 else 0)) // abs(tile)


def tile_of_key(x, tile=1):
    """The tile of keys, (k,), in which each key is, counted likewise."""
    q, k = x.shape[-2:]
    return (np.arange(k) - (0 if tile > 0 else k - q)) // abs(tile)


def within(x, axis, tile):
    """Sums over each tile of an axis, for every entry of the tile."""
    starts = np.arange(0, x.shape[axis], tile)
    return np.add.reduceat(x, starts, axis).repeat(np.diff([*starts, x.shape[axis]]), axis)


def drift(s, keep, tile):
    """exp(largest score - largest so far), tile of keys by tile: what a running sum lacks that is never rescaled."""
    s = np.where(keep > 0, s, -np.inf)
    last = np.minimum(np.arange(s.shape[-1]) // tile * tile + tile, s.shape[-1]) - 1
    so_far = np.maximum.accumulate(s, -1)[..., last]
    return np.exp(np.where(np.isfinite(so_far), s.max(-1, keepdims=True) - so_far, 0))


def placed(at, late=0, dilation=2, edge=None):
    """One-hot places of keys at other positions, (q, w, k); before the first stands none, the first, or the last."""
    q, w, k = at.shape
    n = np.arange(q)[:, None] + k - q + int(late) - dilation * np.arange(w)
    n = {"first": np.maximum(n, 0), "wrapped": n % k}.get(edge, n)
    return 1.0 * (n[..., None] == np.arange(k))


def turned(x, pairing, sign=1, at=None, *, way=1, late=0, base=10000.0, power=1.0, times=1.0, pairs=None, other=False,
           apart=False, side=None, exchanged=False):
    """Rotary positions of (b, t, h, d): y_i = x_i cos + s_i x_j sin, j being i's partner.

    s_i is -1 for the first of a pair, else 1; the angle is the place, 0, 1, ... unless `at` has them, times the speed
    base^(-2 pair / d).  Sign -1 turns back; the keywords are ways to do it wrongly.
    """
    d, half = x.shape[-1], (pairing == "half") != other
    i = np.arange(d)
    first, partner = (i < d // 2, (i + d // 2) % d) if half else (i % 2 == 0, i ^ 1)
    pair = i % (d // 2) if half != apart else i // 2            # whose angle is a feature's
    speed = times * base ** (-2 * power * pair / d) * (pair < (pairs or d))
    places = np.arange(x.shape[1]) if at is None else at.reshape(-1)
    angle = (places + late)[:, None, None] * speed
    cos, sin = (np.sin(angle), np.cos(angle)) if exchanged else (np.cos(angle), np.sin(angle))
    return x * cos + sign * way * (side or np.where(first, -1, 1)) * sin * x[..., partner]


def sines(at, m):
    """sin(p w_0), sin(p w_1), ..., cos(p w_0), ... of places p, on a last axis of m."""
    angle = at[..., None] * 1e4 ** (-np.arange(0, m, 2) / m)
    return np.concatenate([np.sin(angle), np.cos(angle)], -1)


def by_log(s, kept):
    """A softmax of the last axis as exp(s - lse), zero where nothing is kept: off by what a large lse is off."""
    top = np.where(kept > 0, s, -np.inf).max(-1, keepdims=True)
    total = np.where(kept > 0, np.exp(s - top), 0).sum(-1, keepdims=True)
    return np.where(kept > 0, np.exp(s - (top + np.log(np.where(total > 0, total, 1)))), 0)


NAMED = (np.exp, np.tanh, np.log, np.maximum, np.rint, along, folded, elsewhere, lastof, firstof, tile_of_query,
         tile_of_key, within, drift, placed, turned, sines, by_log)
FUNCTIONS = {f.__name__: f for f in NAMED} | {              # all that formulas and mistakes see
    "__builtins__": {"__import__": __import__},             # NumPy 2.0 imports its errors by it
    "abs": np.abs,
    "best": largest,
    "alive": lambda keep, axis=-1: np.where(keep.any(axis, keepdims=True), keep, 1.0),
    "dot": contract,
    "ends": lambda x, axes: x[tuple(slice(-1 if i in axes else 0, None) for i in range(x.ndim))],
    "erf": erf_of,
    "inverse": lambda x: 1 / np.where(x == 0, 1, x),        # 1 where nothing is kept, for a normaliser to divide by
    "largest": lambda x, axes: x.max(axes, keepdims=True),
    "mean": lambda x, axes: x.mean(axes, keepdims=True),
    "parts": lambda x, n: x.reshape(x.shape[0], n, -1, x.shape[2]),         # (b, t, m) in equal parts of the positions
    "reach": lambda at: at.sum(-1),
    "relu": lambda x: x * (x > 0),
    "slopes": lambda heads: slopes(heads)[:, None, None],
    "some": lambda keep: 1.0 * keep.any(-1, keepdims=True),
    "step": lambda x: 1.0 * (x > 0),
    "sum": lambda x, axes: x.sum(axes, keepdims=True),
    "total": lambda x, axes: x.sum(axes),
    "whole": lambda x, like: x.reshape(like.shape),
}


def resolved(of: Formulas, line) -> ast.Expression:
    """The tree of a line, in which the axes of sums are numbers instead of letters."""
    tree = ast.parse(line.text, mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.func.id in ("sum", "mean", "total"):
            letters = reduced(of, node)
            node.args[1].value = tuple(letters.index(x) for x in node.args[1].value)
    return tree


def reduced(of, node) -> str:
    """The letters of what a sum runs over: those of its name with the most."""
    return max((of.letters.get(n.id, "") for n in ast.walk(node.args[0]) if isinstance(n, ast.Name)), key=len)


@lru_cache(maxsize=1 << 16)
def code_of(text):
    """The code of an expression."""
    return compile(text, text, "eval")


class Runner:
    """A page's formulas, run whole or from a mistake on; only what depends on a change is run again."""
    def __init__(self, of: Formulas):
        trees = [resolved(of, line) for line in of.lines]
        self.of, self.codes = of, [compile(tree, line.text, "eval") for tree, line in zip(trees, of.lines, strict=True)]
        self.uses = [{n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} for tree in trees]

    def reached(self, i, names) -> set:
        """Which of the names a line has an influence on."""
        changed = {self.of.lines[i].name}
        for line, uses in zip(self.of.lines[i + 1:], self.uses[i + 1:], strict=True):
            changed |= {line.name} if changed & uses else set()
        return changed & set(names)

    def shadows(self, env) -> dict:
        """Every value as it is where keep, or dropout, is ignored: what a mistaken second computation of it gives."""
        found = {}
        for option in ("keep", "dropout"):
            values = self.run(env | {option: 0 * env[option] + 1.0}) if np.ndim(env.get(option)) else {}
            found |= {f"{line.name}_no_{option}": values[line.name] for line in self.of.lines if line.name in values}
        return found

    def run(self, env, codes=None, part=None, whole=False) -> dict:
        """Names and values.  With `codes`, env is the right page's and only what they change is run, unless `whole`.

        A mistake in a forward line that is run for the backward is one of what the backward makes again: o stays right.
        """
        env, codes = dict(env), codes or {}
        changed = None if whole or not codes else set()
        again = part == 1 and any(self.of.lines[i].part == 0 for i in codes)
        with np.errstate(all="ignore"):
            for i, line in enumerate(self.of.lines):
                code = codes.get(i)
                if part not in (None, line.part) and not (again and line.name != "o"):
                    continue
                if changed is None or code is not None or changed & self.uses[i]:
                    env[line.name] = eval(code or self.codes[i], FUNCTIONS, env)     # noqa: S307 (our text)
                    if changed is not None:
                        changed.add(line.name)
        return env


def evaluated(runner, inputs, xp) -> dict:
    """All values of the formulas, as arrays of a module."""
    env = {n: xp.asarray(x) if isinstance(x, np.ndarray) else x for n, x in start(runner.of, inputs).items()}
    return runner.run(env)
