"""`refattn verify`: theorems, definitions and gradients, checked at random sizes in float64."""

import sys

from ..train.progress import progress_bar
from ..verification import theorems
from .layout import as_json, wrapped
from .options import SEVERAL, Parser, once, seed_number


def parser() -> Parser:
    """The options of `verify`."""
    made = Parser("refattn verify", "Checks at random sizes in float64: statement, source, largest error, verdict.")
    made.add_argument("names", nargs="*", metavar="NAME", help="parts of names (refattn list has them); default: all")
    made.add_argument("--seed", **SEVERAL, type=seed_number, metavar="S", help="one draw each (default: 0)")
    made.add_argument("--quiet", action="store_true", help="print a line for what fails only")
    made.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    return made


def line_of(result, seed: str) -> str:
    """Verdict, error, time, statement and source of one check; `seed` is said behind its name."""
    said = result.raised or result.statement
    where = f"; {result.where}" if result.where else ""
    return (f"{'ok  ' if result.ok else 'FAIL'}  {result.error:8.1e} <= {result.tolerance:.0e} {result.seconds:6.2f} s"
            f"  {result.name}{seed}: {said}{where} [{result.source}]")


def run(argv) -> int:
    """Check theorems, definitions and gradients; 1 if one fails."""
    options = parser().parse(argv)
    names, seeds = options.get("names", ()), once("--seed", options.get("seed", [0]))
    asked = [theorem.name for theorem in theorems.chosen(names)] * len(seeds)
    drawn = ((seed, result) for seed in seeds for result in theorems.verify(names, seed))
    results = []
    with progress_bar(progress=True, total=len(asked), unit="check", leave=False) as bar:
        show = bar.write if sys.stderr and sys.stderr.isatty() else print       # it draws itself again
        bar.set_postfix_str(asked[0])
        for (seed, result), following in zip(drawn, [*asked[1:], ""], strict=True):
            results.append((seed, result))
            bar.set_postfix_str(following, refresh=False)
            bar.update()
            if "json" not in options and not (result.ok and "quiet" in options):
                text = line_of(result, f", seed {seed}" if len(seeds) > 1 else "")
                show(wrapped(text, hang=6), file=sys.stdout)
                sys.stdout.flush()
    failed = sum(not result.ok for _, result in results)
    if "json" in options:
        print(as_json([{**result._asdict(), "seed": seed} for seed, result in results]))
    else:
        print(f"{len(results) - failed} of {len(results)} hold, {sum(result.seconds for _, result in results):.1f} s")
    return 1 if failed else 0
