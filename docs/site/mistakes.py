"""What may go wrong on a line: the planted bugs, what each spoils, and which check sees it."""

import warnings
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from refattn.verification.cases import find
from refattn.verification.checks import CHECKS
from tests.planted import BUGS, Bug, load
from tests.planted.caught import verdict

from .traced import reaching, whole
from .units import ROOT, Unit, functions

LIKELY = "derivative", "loops"
DRAWS, TRIED = 3, 12


class Mistake(NamedTuple):
    """A planted bug, where it stands, and what it does."""
    bug: Bug
    line: int                  # in the bug's file
    function: str              # of that file, in which the line stands
    spoiled: dict              # output or gradient -> whether it is wrong; {} where it cannot run
    seen: str                  # the check that sees it, and on what


@cache
def places() -> tuple:
    """(bug, line, function) of every planted bug."""
    found = []
    for bug in BUGS:
        source = (ROOT / bug.file).read_text(encoding="utf-8")
        start = source.index(bug.old)
        line = source[:start + len(bug.old) - len(bug.old.lstrip())].count("\n") + 1
        inside = [f for f in functions(source) if f.node.lineno <= line <= f.node.end_lineno]
        found.append((bug, line, inside[-1].name if inside else ""))
    return tuple(found)


def results(case, inputs) -> dict:
    """{"output" or dname: array} of a case."""
    y, saved = case.forward(inputs)
    y = y if isinstance(y, tuple) else (y,)
    dy = tuple(np.random.default_rng(1).standard_normal(x.shape) for x in y)
    gradients = case.backward(saved, dy if len(dy) > 1 else dy[0])
    return {"output": np.concatenate([x.ravel() for x in y])} | {f"d{n}": g for n, g in gradients.items()}


@cache
def spoils(bug: Bug, name: str) -> dict:
    """What a bug spoils in the case of a name; {} where it cannot run."""
    case, rng = find(name), np.random.default_rng(0)
    inputs, _ = whole(case, case.make(rng), rng)
    right = results(case, inputs)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            copied = {n: x.copy() if isinstance(x, np.ndarray) else x for n, x in inputs.items()}
            wrong = results(load(bug).verification.cases.find(name), copied)
    except Exception:                                           # whatever a mistake leads to
        return {}
    return {n: n not in wrong or wrong[n].shape != x.shape or not np.abs(wrong[n] - x).max() <= 1e-9 * np.abs(x).max()
            for n, x in right.items()}


@cache
def sees(bug: Bug, name: str) -> str:
    """The first check that sees a bug in the case of a name."""
    case = load(bug).verification.cases.find(name)
    trials = [*product(range(DRAWS), LIKELY), *((0, check) for check in CHECKS if check not in LIKELY)]
    return next((check for seed, check in trials if verdict(check, case, seed)), "")


def mistakes(unit: Unit, called: set[str]) -> list[Mistake]:
    """Those on a pair's own lines, and those of the operations in ops.py that it calls, if they show here."""
    cases, found = reaching(unit), []
    cases = ([case for case in cases if case.file == unit.file] or cases)[:TRIED]
    for bug, line, function in places():
        own = bug.file == unit.file and any(
            f.node.lineno <= line <= f.node.end_lineno for f in (unit.forward, unit.backward))
        if not own and not (bug.file == "ops.py" and function in called):
            continue
        for case in cases if own else cases[:1]:
            spoiled = spoils(bug, case.name)
            seen = sees(bug, case.name) if own or any(spoiled.values()) else ""
            if seen:
                found.append(Mistake(bug, line, function, spoiled, f"{seen} of {case.name}"))
                break
    return found
