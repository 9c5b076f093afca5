"""How often the mistake of a kernel is found: a bank of kernels through `diagnose`.

    python -m tests.bench.diagnoses [--bank tests.kernels_blind ...] [--dtypes float64 float32 bfloat16 float16]
                                    [--verbose] [--record FILE]

In half precision a kernel in PyTorch has the form of fused kernels (`fused`), one in NumPy is as it is written.
A mistake counts as located where its line is among those reported, at most three; as named where one mistake explains
every answer, and as misnamed where it does so in other lines.  A mistake that changes no answer beyond the error bars
counts as not seen and not located.  `diagnoses.json` has the counts that `docs/oracle.md` gives.
"""

import argparse
import importlib
import json
import pkgutil
import sys
import time
from pathlib import Path
from typing import NamedTuple

from refattn import check
from tests.bench import with_extra

DTYPES = "float64", "float32", "bfloat16", "float16"


class Case(NamedTuple):
    """A kernel of a bank in NumPy: half precision is what the kernel itself makes of it."""
    name: str
    as_: str
    function: object
    line: str                  # "" where it is right, "none" where no line is known
    what: str
    options: dict              # how the kernel is called
    output: str = ""           # what differs first
    words: str = ""            # a pattern of what names the mistake
    only: tuple = DTYPES       # in which it is a mistake

    numpy = True


def as_run(case, dtype):
    """The kernel of a case, as fused kernels have it where it is one of PyTorch in half precision."""
    if dtype not in ("float16", "bfloat16") or getattr(case, "numpy", False):
        return case.function
    from .fused import fused
    return fused(case.function, dtype)


def everything(page):
    """All options, bias with all axes."""
    letters = "bhqw" if page.startswith("sliding") else "bhqk"
    return dict.fromkeys(("bias", "keep", "dropout"), letters)


def bank(package) -> list:
    """The cases of a package, or of all its modules."""
    top = importlib.import_module(package)
    names = [m.name for m in pkgutil.iter_modules(getattr(top, "__path__", []))]
    modules = [top] if hasattr(top, "CASES") else [importlib.import_module(f"{package}.{n}") for n in names]
    return [case for m in modules for case in m.CASES]


def measure(cases, dtype, say=lambda *words, **_: None) -> dict:
    """Counts over a bank in one precision."""
    counts = dict.fromkeys(("right", "called wrong", "wrong", "seen", "located", "named", "misnamed"), 0)
    for case in (c for c in cases if dtype in getattr(c, "only", DTYPES)):
        began = time.process_time()
        try:
            found = check.diagnose(as_run(case, dtype), case.as_, dtype=dtype,
                                   **getattr(case, "options", everything(case.as_)))
        except ValueError as error:                             # refused: as bad as called wrong
            counts["wrong" if case.line else "right"] += 1
            counts["called wrong"] += not case.line
            say(f"{case.as_}: {case.name}: refused: {error}")
            continue
        located = any(line in case.line for line in found.lines) and len(found.lines) <= 3
        if case.line:
            got = {"wrong": True, "seen": not found.comparison.ok, "located": located, "named": located and found.named,
                   "misnamed": found.named and bool(found.lines) and not located}       # a row may have no lines
        else:
            got = {"right": True, "called wrong": not found.comparison.ok}
        for name, yes in got.items():
            counts[name] += yes
        words = [name for name, yes in got.items() if yes]
        say(f"{case.as_}: {case.name}, {case.line or 'right'}: {words[-1]} "
            f"({time.process_time() - began:.1f} s)", *([str(found)] if case.line and not located else []), sep="\n  ")
    return counts


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bank", nargs="+", default=["tests.kernels_blind"])
    parser.add_argument("--dtypes", nargs="+", default=DTYPES)
    parser.add_argument("--pages", nargs="+", help="cases of these pages only")
    parser.add_argument("--verbose", action="store_true", help="each case, and what was said where it is not located")
    parser.add_argument("--record", type=Path, help="JSON of counts by bank and precision, which these are put into")
    args = parser.parse_args(argv)
    for name, dtype in ((name, dtype) for name in args.bank for dtype in args.dtypes):
        cases = [c for c in bank(name) if not args.pages or c.as_ in args.pages]
        counts = measure(cases, dtype, **{"say": print} if args.verbose else {})
        n = counts["wrong"] or 1
        print(f"{name}, {dtype}: of {counts['wrong']} mistakes {counts['seen']} seen, {counts['located']} located "
              f"({100 * counts['located'] / n:.1f} %), {counts['named']} named ({100 * counts['named'] / n:.1f} %), "
              f"{counts['misnamed']} misnamed; of {counts['right']} right kernels {counts['called wrong']} "
              f"called wrong", flush=True)
        if args.record:
            known = json.loads(args.record.read_text()) if args.record.exists() else {}
            known.setdefault(name.rpartition(".")[2], {})[dtype] = counts
            args.record.write_text(json.dumps(known, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    with with_extra():
        sys.exit(main())
