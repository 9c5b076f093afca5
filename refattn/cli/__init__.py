"""The command line: refattn train | compile | check | verify | list | reproduce | write | vectors.

Tables go to standard output, progress to standard error.  Bad input is one line on standard error that names the
option, the value and what is allowed, with exit status 2; a failed check or run exits with 1, Ctrl-C with 130.
"""

import json
import os
import sys
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path

from .. import __version__
from .options import Parser, Usage, whole, writable

HELP = f"""refattn {__version__}: attention, forward and backward by hand, in NumPy and CuPy

  refattn train [TASK] [options]   train and compare; alone: fuzzy logic with softmax, linear and hyla attention
  refattn train --resume DIR       go on with what is in DIR
  refattn compile --language NAME  a finite automaton as exact weights of a RegularGPT; also --table FILE, --regex R
  refattn check MODULE:FUNCTION --as V   a kernel of yours against a page: what is wrong, where and why
  refattn verify [NAME ...]        check theorems, definitions and gradients in float64; NAME is a part of one
  refattn list                     variants, tasks, recipes and theorems, with their sources
  refattn reproduce [NAME]         a published table, the paper's figures beside ours; alone: the names
  refattn write RUN PROMPT         what a trained model says after a prompt
  refattn vectors --out DIR        write reference inputs, outputs and gradients for other languages

refattn COMMAND --help lists the options of a command."""


def train(argv) -> int:
    """Train and compare."""
    from .training import run
    return run(argv)


def verify(argv) -> int:
    """Check theorems, definitions and gradients; 1 if one fails."""
    parser = Parser("refattn verify", "Checks at random sizes in float64: statement, source, largest error, verdict.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of names (refattn list has them); default: all")
    parser.add_argument("--seed", type=whole, metavar="S", help="of the random sizes and numbers (default: 0)")
    parser.add_argument("--quiet", action="store_true", help="print a line for what fails only")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    options = parser.parse(argv)
    names, seed = options.get("names", ()), options.get("seed", 0)
    if seed < 0:
        raise Usage(f"--seed is {seed}, allowed are whole numbers of at least 0")
    from tqdm import tqdm

    from ..train.json_files import plain
    from ..verification import theorems
    results = []
    with tqdm(total=len(theorems.chosen(names)), unit="check", dynamic_ncols=True, leave=False, file=sys.stderr,
              mininterval=0.1 if sys.stderr.isatty() else 10) as bar:
        for result in theorems.verify(names, seed):
            results.append(result)
            bar.update()
            if "json" not in options and not (result.ok and "quiet" in options):
                bar.write(f"{'ok  ' if result.ok else 'FAIL'}  {result.error:8.1e} <= {result.tolerance:.0e}  "
                          f"{result.name}: {result.raised or result.statement} [{result.source}]", file=sys.stdout)
                sys.stdout.flush()
    failed = sum(not result.ok for result in results)
    if "json" in options:
        print(json.dumps(plain([result._asdict() for result in results]), indent=1))
    else:
        print(f"{len(results) - failed} of {len(results)} hold, {sum(result.seconds for result in results):.1f} s")
    return 1 if failed else 0


def listing() -> dict:
    """{section: rows}, the first row being the heading."""
    from ..attention.pages import PAGES
    from ..recipes import RECIPES, SHORT, recipe
    from ..reproduce.published import figures_for
    from ..verification import theorems
    return {
        "variants": [("name", "paper", "equation", "row of table A1", "file")] + [
            (name, v.paper, v.equation, v.row or "-", f"refattn/attention/{v.file}") for name, v in PAGES.items()],
        "tasks": [("name", "paper", "file")] + [
            (name, kind.SOURCE, f"refattn/tasks/{kind.DATA or name}.py") for name, kind in RECIPES.items()] + [
            (name, RECIPES[task].SOURCE, f"refattn/tasks/{task}.py") for name, (task, _) in SHORT.items()],
        "recipes": [("name", "scale", "steps", "figures", "file")] + [
            (name, scale, f"{recipe(name, scale).steps:,}",
             figures_for(name, asdict(recipe(name, scale))).source.split(":")[0], f"refattn/recipes/{name}.py")
            for name, kind in RECIPES.items() for scale in kind.SCALES],
        "theorems": [("name", "source", "file", "statement")] + [
            (t.name, t.source, f"{t.error.__module__.replace('.', '/')}.py", t.statement)
            for t in theorems.THEOREMS.values()],
    }


def list_all(argv) -> int:
    """What there is, and where it comes from."""
    from .comparison import columns
    parser = Parser("refattn list", "Variants, tasks, recipes and theorems, with paper, equation or table, and file.")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    as_json, sections = "json" in parser.parse(argv), listing()
    if as_json:
        print(json.dumps({name: [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
                          for name, rows in sections.items()}, indent=1, ensure_ascii=False))
    else:
        print("\n\n".join(f"{name.upper()}\n{columns(rows)}" for name, rows in sections.items()))
    return 0


def vectors(argv) -> int:
    """Write reference vectors."""
    parser = Parser("refattn vectors", "Small float64 cases: inputs, outputs, every gradient, and a manifest.")
    parser.add_argument("--out", required=True, metavar="DIR", help="where to")
    options = parser.parse(argv)
    if not options["out"]:
        raise Usage("--out is '', allowed: the name of a directory")
    writable(Path(options["out"]))
    from ..verification import vectors as module
    module.write(options["out"])
    print(f"the vectors are in {options['out']}", file=sys.stderr)
    return 0


def reproduce(argv) -> int:
    """Print a published table beside ours."""
    from .reproduce import run
    return run(argv)


def write(argv) -> int:
    """Write on from a prompt."""
    from .writing import run
    return run(argv)


def compile_automaton(argv) -> int:
    """Write the weights of a finite automaton."""
    from .compiling import run
    return run(argv)


def check(argv) -> int:
    """Hold a kernel against a page; 1 if it is wrong."""
    from .checking import run
    return run(argv)


COMMANDS = {"train": train, "compile": compile_automaton, "check": check, "verify": verify, "list": list_all,
            "reproduce": reproduce, "write": write, "vectors": vectors}


def main(argv=None) -> int:
    """Run a command line; returns the exit status, 141 where the reader of its output has left (`| head`)."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")            # a terminal without ± gets a question mark
    try:
        try:
            return status_of(argv)
        finally:
            print(end="", flush=True)                       # while a broken pipe can still be caught
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())      # for what the exit flushes
        return 141


def status_of(argv) -> int:
    """Run a command; what goes wrong is one line on standard error."""
    if not argv or argv[0] in ("-h", "--help", "--version"):
        print(__version__ if argv == ["--version"] else HELP)
        return 0 if argv else 2
    name, *rest = argv
    try:
        if name not in COMMANDS:
            near = get_close_matches(name, COMMANDS, n=1)
            raise Usage(f"command {name!r} is unknown{f', did you mean {near[0]}?' if near else ';'} allowed: "
                        f"{', '.join(COMMANDS)}")
        return COMMANDS[name](rest)
    except BrokenPipeError:
        raise
    except (Usage, ValueError, OSError) as error:
        line, status = str(error), 2
    except KeyboardInterrupt as error:
        line, status = str(error) or "stopped", 130
    print(f"refattn{f' {name}' if name in COMMANDS else ''}: {' '.join(line.split())}", file=sys.stderr)
    return status
