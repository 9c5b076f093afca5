"""The line that a mistake begins in, without knowing the mistake.

For each line of a page's formulas: is there a value which, put in its place, makes everything after it give what the
kernel gave?  There is one for the wrong line and for lines after it; a line before it can only be explained by chance,
since what lies between restricts its results (a softmax's gradients add up to zero, dropout leaves zeros).  So the
mistake is in the first line that has such a value.  Levenberg and Marquardt find it, all derivatives in one run: each
entry of the value is moved in a sequence of its own of one large batch.
"""

import numpy as np

from .running import code_of

LARGEST = 400                  # entries of a value that is searched for
STEPS = 20
FAR = 1e100                    # error bars; the square of more would overflow
ABSURD = 1e6                   # a value so large explains what it hides: inputs are of order 1
VALUE = code_of("VALUE")


def first_lines(runner, part, env, theirs, bars) -> tuple:
    """The first lines of a part of which another value would make what a kernel gave, `theirs`, to within `bars`.

    With the only readers of these; and whether the first of them is sure, which it is not where each could explain
    anything.

    `env` has the values of the right page.  Of results that are sums over sequences no more is asked than that a line
    leads to those that are wrong.  Empty where nothing is wrong beyond these bars, or values are too large.
    """
    of, wrong = runner.of, {n for n, x in theirs.items() if apart(x, env[n], bars[n])}
    if not wrong or not all(np.isfinite(x).all() for x in theirs.values()):
        return [], False
    env, names = batched(of, env), observed(of, env, theirs)
    known = {n: (theirs[n][:1].ravel(), np.maximum(bars[n][:1].ravel(), 1e-300)) for n in names}
    for source in dict.fromkeys((part, 0)):                     # the backward makes values of the forward again
        leading = [i for i, line in enumerate(of.lines) if line.part == source and runner.reached(i, theirs) >= wrong
                   and not (part and line.name == "o")]
        if not wrong & set(names):
            return [of.lines[i] for i in leading if runner.reached(i, theirs) == wrong], True
        small = [i for i in leading if of.lines[i].letters[:1] == "b" and of.lines[i].letters != "bias"
                 and env[of.lines[i].name].size <= LARGEST]
        kinds = {i: kind for i in small if (kind := explained(runner, i, part, env, known))}
        left = [i for i, kind in kinds.items() if kind == "surely"]
        found = foremost(runner, left) or [*kinds][::-1 if part else 1]     # if none is sure all, the last first
        if left and source == part:                             # a value that one line reads may be misread there
            found = [*dict.fromkeys([*found, *(j for i in found for j in sole_readers(runner, i, part))])]
        if found:
            break
    return [of.lines[i] for i in found], bool(left)


def apart(x, expected, bar) -> bool:
    """Whether an array has another size than is expected, or an entry beyond its bar."""
    return x.size != expected.size or not (np.abs(x.ravel() - expected.ravel()) <= bar.ravel()).all()


def foremost(runner, lines) -> list[int]:
    """Those of the lines, in order, on whose values no line before them among these has an influence."""
    return [i for i in lines if not any(j < i and runner.reached(j, [runner.of.lines[i].name]) for j in lines)]


def sole_readers(runner, i, part) -> list[int]:
    """The only line of a part that reads line i's value, where there is one, the only one that reads its, and so on."""
    readers = [j for j, uses in enumerate(runner.uses)
               if runner.of.lines[i].name in uses and runner.of.lines[j].part == part]
    return [*readers, *sole_readers(runner, readers[0], part)] if len(readers) == 1 else []


def batched(of, env) -> dict:
    """The values of the first sequence alone."""
    own = {n for n, letters in of.letters.items() if letters[:1] == "b" and letters != "bias"}
    return env | {n: x[:1] for n, x in env.items() if n in own and np.ndim(x)}


def observed(of, env, theirs) -> list[str]:
    """The results that every sequence has of its own."""
    own = [n for n in theirs if of.letters.get(n, "")[:1] == "b" and theirs[n].shape[1:] == np.shape(env[n])[1:]]
    return [n for n in own if n != "dbias" or theirs[n].shape[1:] == np.shape(env["bias"])[1:]]


def explained(runner, i, part, env, known) -> str | None:
    """Whether a value of line i explains what is known: "surely", or "freely" where it could explain anything."""
    name, n = runner.of.lines[i].name, env[runner.of.lines[i].name].size
    reached = runner.reached(i, known)
    target, bar = (np.concatenate([known[x][k] for x in known if x in reached]) for k in (0, 1))
    batch = {x: np.repeat(y, n + 1, 0) for x, y in env.items() if np.shape(y)[:1] == (1,) and np.ndim(y) > 1
             and runner.of.letters.get(x, "")[:1] == "b"} | {"fold": lambda ds: ds}

    def results(values):
        values = np.broadcast_to(values, (n + 1, n)).reshape(n + 1, *env[name].shape[1:])
        found = runner.run(env | batch | {"VALUE": values}, {i: VALUE}, part)
        return np.concatenate([found[x].reshape(n + 1, -1) for x in known if x in reached], 1)

    # from where the page stands and, where the slopes of an exp vanish there, from 0
    return solved(results, target, bar, env[name].reshape(n)) or solved(results, target, bar, np.zeros(n))


def solved(results, target, bar, value) -> str | None:
    """What `explained` says, by Levenberg and Marquardt from this value on."""
    off, moves = (target - results(value)[0]) / bar, 1e-30j * np.eye(len(value) + 1, len(value), -1)
    for _ in range(STEPS):
        slopes = np.nan_to_num((results(value + moves)[1:].imag / 1e-30 / bar).T, posinf=0, neginf=0)   # complex step
        u, size, v = np.linalg.svd(slopes, full_matrices=False)
        top, seen = size[0], size > 1e-9 * size[0]                          # none where nothing changes, whatever it is
        u, size, v = u[:, seen], size[seen], v[seen]
        for damping in (0, *np.geomspace(1e-8, 1, 9)):
            move = ((off @ u) * size / (size**2 + damping * top**2)) @ v
            there = (target - results(value + move)[0]) / bar
            if np.abs(there).max() < FAR and np.linalg.norm(there) < 0.9 * np.linalg.norm(off):
                break
        else:
            return None
        value, off = value + move, there
        if np.abs(off).max() <= 2 and np.abs(value).max() < ABSURD:
            return "freely" if len(size) >= (np.abs(slopes).max(1) > 0).sum() else "surely"
    return None
