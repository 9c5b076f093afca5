"""`python -m tests.new_variants NAME ...`: everything that this repository tests about the named variants.

First the checks of the page by itself, its tags and CuPy's rules: the first that fails is said in one line, and ends
it, since everything else is built on the page.  Then of all tests those that speak of a variant by its name, or of all
variants at once; then the reference vectors, `refattn verify` and `refattn train`.  What is tested of REFERENCE, and
missing or skipped for a variant, fails.
"""

import re
import sys
import tempfile
import traceback
import warnings

import numpy as np
import pytest

try:
    from refattn import cli, refusals
    from refattn.attention import VARIANTS
    from refattn.check import deviation
    from refattn.verification import cases, checks, theorems, vectors
    from refattn.verification.cases.attention import loops
    from refattn.verification.theorems import variants
    from tests import strict_cupy
    from tests.pages import check_row, check_tags
    from tests.tiny import FLAGS
except Exception as error:                      # loops that are not there yet, a name that differs, a comma
    if __name__ != "__main__":
        raise
    sys.exit(f"tests.new_variants: {type(error).__name__}: {' '.join(str(error).split())}")

REFERENCE = "hyla_and_softmax"                  # what is tested of this row is tested of every row,
OWN_PAGE = r"(?<=/)hyla(?=\.py\])"              # of a row with a page of its own, each of its two files,
TILED = r"(?<=attention/)hyla(?= in tiles)|(?<=tileable_variant_in_float32\[)hyla(?=\])"    # of one with tiles, these
# sentences, the paper, and formulas in which a mistake gets a name, which a variant may have
# or what is asked of every sixth row
ELSEWHERE = re.compile("test_bugs.py|table_a1|test_formulas_are_the_page|test_rows_agree_with_themselves")
OF_ALL = [*(f"test_holds[{name}]" for name, t in theorems.THEOREMS.items() if t.error.__module__ == variants.__name__),
          "::test_list_names_everything", "::test_all_rows_and_all_knobs_are_there", "_command_prints[variants]",
          "::test_published_figures_belong_to_variants", "::test_its_counts_are_those_of_the_tables",
          "::test_three_steps_agree_with_numpy", "::test_every_statement_has_words_and_a_source",
          "::test_rooms_stay_below_their_ceilings", "::test_recipes_fix_what_they_fixed[ranges]",
          "::test_the_table_of_what_is_revealed_is_of_these_bugs[some]", "::test_every_case_reveals_a_planted_bug"]


class Only:
    """A pytest plugin: chooses the tests, and remembers which have passed."""

    def __init__(self, names):
        self.names, self.wanted, self.there, self.passed = names, set(), set(), set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        ids = [item.nodeid for item in items if not ELSEWHERE.search(item.nodeid)]
        for name in self.names:
            for pattern in rf"\b{REFERENCE}\b", OWN_PAGE, *([TILED] if VARIANTS[name].tiles else []):
                self.wanted |= {re.sub(pattern, name, each) for each in ids if re.search(pattern, each)}
        words = re.compile("|".join([*(rf"\b{name}\b" for name in self.names), *map(re.escape, OF_ALL)]))
        items[:] = [item for item in items if words.search(item.nodeid) and not ELSEWHERE.search(item.nodeid)]
        self.there = {item.nodeid for item in items}
        self.wanted |= self.there

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)


def wrong(case, names=tuple(checks.CHECKS)) -> str:
    """What the first of these checks that the page fails says, or where it raises or warns; nothing if all pass."""
    for check in filter(lambda check: checks.applies(check, case), names):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for seed in range(1 if check == "float32" else 10):
                    checks.run(check, case, np.random.default_rng(seed))
        except checks.Wrong as error:
            return str(error)
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            return (f"{case.name} raises {type(error).__name__} in the check {check!r}: {error}, "
                    f"{at.filename}:{at.lineno}")
    return ""


def first_fault(row) -> str:
    """What is wrong with the page by itself, with CuPy's rules or with its tags; nothing if all is right."""
    for case in map(cases.find, (f"attention/{row.name}", *([f"attention/{row.name} in tiles"] if row.tiles else []))):
        if words := wrong(case) or wrong(case.on(strict_cupy), ["array_module"]):
            return words
    try:
        check_tags(getattr(row.forward, "func", row.forward), row.backward)
    except AssertionError as error:
        return str(error)
    return ""


def write_vectors(names) -> None:
    """The reference vectors of the variants: their outputs are those of the loops."""
    found = set()
    for file, case, inputs, _ in vectors.rows():
        row = VARIANTS.get(case.name.removeprefix("attention/"))
        if row and row.name in names:
            o = loops(row)(**inputs)
            assert deviation("output", vectors.results(case, inputs, doutput=o)["output"], o) <= 1e-12 and row.formula
            found.add(file)
    assert found >= {f"{name}-{kind}" for name in names for kind in ("plain", "everything")}, found


def main(names) -> int:
    """0 if everything is there and passes."""
    for name in names or [""]:
        if name not in VARIANTS:
            print(f"tests.new_variants: {refusals.unknown('variant', name, VARIANTS)}", file=sys.stderr)
            return 2
        try:
            check_row(VARIANTS[name])
        except ValueError as error:
            print(f"tests.new_variants: {error}", file=sys.stderr)
            return 2
        if words := first_fault(VARIANTS[name]):
            print(f"tests.new_variants: {words}", file=sys.stderr)
            return 1
    only = Only(names)
    status = pytest.main(["-q", "-p", "no:cacheprovider", "tests"], plugins=[only])
    if status or only.wanted - only.passed:
        for words, tests in ((f"there for {REFERENCE}, but not for the variant:", only.wanted - only.there),
                             ("skipped or failed:", only.there - only.passed)):
            if tests:
                print(words, *sorted(tests), sep="\n", file=sys.stderr)
        return 1
    write_vectors(names)
    with tempfile.TemporaryDirectory() as out:
        return cli.main(["verify", *names]) or cli.main(["train", "--attention", *names, *FLAGS, "--out", out])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
