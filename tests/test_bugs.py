"""The checks catch every planted bug, and every check catches one: a check that cannot fail would be a defect."""

import sys

import numpy as np
import pytest

import refattn.ops
from refattn import check
from refattn.verification.changed_source import ROOT, rewritten
from tests import planted, strict_cupy
from tests.planted import BUGS, Bug, caught

IDS = [f"{bug.file}: {bug.sentence}" for bug in BUGS]


@pytest.mark.parametrize("bug", BUGS, ids=IDS)
def test_is_caught(bug):
    assert next(caught.catches(bug, xp=strict_cupy), None)


@pytest.mark.long
@pytest.mark.parametrize("name", check.CHECKS)
def test_every_check_catches_something(name):
    assert any(next(caught.catches(bug, [name], xp=strict_cupy), None) for bug in BUGS)


def test_an_unchanged_copy_passes():
    """What is caught is the bug, not the copy: a third of the cases, since `verify` runs them all without a copy."""
    table = rewritten({}).verification.cases
    for case in (table.CASES + table.ROUTINES)[::3]:
        for name in check.CHECKS:
            assert not caught.verdict(name, case.on(strict_cupy) if name == "array_module" else case)


def test_rows_are_distinct_and_speak():
    assert len(BUGS) >= 40
    assert len({(bug.file, bug.old, bug.new) for bug in BUGS}) == len(BUGS) == len(set(IDS))
    for bug in BUGS:
        assert (ROOT / bug.file).exists() and len(bug.sentence.split()) > 2 and bug.old != bug.new


def test_loading_leaves_the_real_package_alone():
    before = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "refattn"}
    finders = list(sys.meta_path)
    bug = next(bug for bug in BUGS if bug.sentence == "dq lacks 1/sqrt(d)")
    package = planted.load(bug)
    q = np.ones((1, 1, 1, 4))
    wrong, right = (ops.scores_backward(q, q, None, q[..., :1])[0] for ops in (package.ops, refattn.ops))
    assert wrong[0, 0, 0, 0] == 1 and right[0, 0, 0, 0] == 0.5
    assert package.ops is not refattn.ops
    assert package.verification.cases.find("ops/relu") is not refattn.verification.cases.find("ops/relu")
    assert {name: module for name, module in sys.modules.items() if name.split(".")[0] == "refattn"} == before
    assert sys.meta_path == finders


@pytest.mark.parametrize("old", ["no such text", "return"])
def test_a_text_that_does_not_stand_there_once_is_refused(old):
    count = (ROOT / "ops.py").read_text().count(old)
    with pytest.raises(ValueError, match=rf"ops.py has {count} times, not once, the text '{old}'"):
        planted.load(Bug("ops.py", old, "x", "a sentence"))


def test_a_copy_that_cannot_be_imported_leaves_nothing_behind():
    before = set(sys.modules)
    with pytest.raises(SyntaxError):
        rewritten({"ops.py": lambda source: source + "\n)"})
    assert set(sys.modules) == before
