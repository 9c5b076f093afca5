"""The command line: refattn train | compile | verify | list | reproduce | vectors.

Tables go to standard output, progress to standard error.  Bad input is one line on standard error that names the
option, the value and what is allowed, with exit status 2; a failed check or run exits with 1, Ctrl-C with 130.
"""

import json
import shlex
import shutil
import sys
import time
from difflib import get_close_matches
from pathlib import Path

from .. import __version__
from .options import BESIDE_RESUME, Parser, Usage, fits, flag, train_parser, whole, writable

HELP = f"""refattn {__version__}: attention, forward and backward by hand, in NumPy and CuPy

  refattn train [TASK] [options]   train and compare; alone: fuzzy logic with softmax, linear and hyla attention
  refattn train --resume DIR       go on with what is in DIR
  refattn compile --language NAME  a finite automaton as exact weights of a RegularGPT; also --table FILE, --regex R
  refattn verify [NAME ...]        check the theorems and every gradient in float64; NAME is a part of a name
  refattn list                     variants, tasks, recipes and theorems, with their sources
  refattn reproduce [NAME]         a published table, the paper's figures beside ours; alone: the names
  refattn vectors --out DIR        write reference inputs, outputs and gradients for other languages

refattn COMMAND --help lists the options of a command."""
def as_option(error: ValueError, names) -> str:
    """The words of an error about a field, with the field as its option."""
    name, _, rest = str(error).partition(" ")
    return f"{flag(name)} {rest}" if name in names else str(error)


def plan(argv):
    """(recipes, out, resume, options) of a `train` command line."""
    from ..recipes import RECIPES, SHORT, recipe, unknown
    named = bool(argv) and not argv[0].startswith("-")
    task = argv[0].replace("-", "_") if named else "fuzzy_logic"
    task, fixed = SHORT.get(task, (task, {}))
    if task not in RECIPES:
        raise Usage(unknown("TASK", task, [*RECIPES, *SHORT]))
    options = train_parser(RECIPES[task]).parse(argv[named:])
    if "resume" in options:
        for name in options:
            if name not in (*BESIDE_RESUME, "resume") or named:
                raise Usage(f"{f'TASK {task!r}' if named else flag(name)} cannot go with --resume; allowed beside it: "
                            f"{', '.join(map(flag, BESIDE_RESUME))}")
        return (*resumed(options.pop("resume"), options.pop("out", None)), True, options)
    for name in fixed.keys() & options.keys():
        raise Usage(f"{flag(name)} is {options[name]!r}, but the TASK says it already; allowed: regular-languages, or "
                    f"the TASK alone")
    options |= fixed
    scale = options.pop("scale", "quick")
    rest = {name: options.pop(name) for name in ("device", "max_seconds", "json") if name in options}
    out = Path(options.pop("out", None) or Path("runs", time.strftime(f"{task}-{scale}-%Y%m%d-%H%M%S")))
    attention = dict.fromkeys(options.pop("attention", RECIPES[task].COMPARED))
    seeds = dict.fromkeys(options.pop("seed", [0]))
    try:
        chosen = [recipe(task, scale, attention=a, seed=s, **options) for a in attention for s in seeds]
        if rest.get("device") != "gpu":
            for one in chosen:
                fits(one)
    except ValueError as error:
        raise Usage(as_option(error, {*options, *RECIPES[task].__dataclass_fields__})) from None
    return chosen, out, False, rest


def resumed(source: str, out: str | None):
    """(recipes, directory) of the runs in `source`, copied to `out` where it is given."""
    from ..recipes import RECIPES
    from ..train import runs
    try:
        found = runs.find(source)
    except ValueError as error:
        raise Usage(f"--resume {error}") from None
    recipes = [runs.read_recipe(path) for path in found]
    for path, recipe in zip(found, recipes, strict=True):
        if recipe.TASK not in RECIPES:
            raise Usage(f"--resume {str(path)!r} holds a {recipe.TASK}, which is not trained; allowed: a training run")
    for path, recipe in zip(found, recipes, strict=True):
        if path.resolve().name != recipe.name:
            raise Usage(f"--resume {str(path)!r} holds the run {recipe.name}; allowed: a directory of that name")
    if out is not None:
        writable(Path(out))
        for recipe in recipes:
            if Path(out, recipe.name).exists():
                raise Usage(f"--out is {out!r}, which holds {recipe.name} already; allowed: another directory")
        for path, recipe in zip(found, recipes, strict=True):
            shutil.copytree(path, Path(out, recipe.name), ignore=shutil.ignore_patterns("*.tmp", "lock"))
        return recipes, Path(out)
    return recipes, found[0].resolve().parent


def train(argv) -> int:
    """Train and compare; 1 if a run met a bad number."""
    from concurrent.futures import BrokenExecutor

    from ..recipes import RECIPES
    from ..train.compare import compare
    from ..xp import device, keep_freed_memory
    from .tables import summary, table
    keep_freed_memory()
    recipes, out, resume, options = plan(argv)
    as_json = options.pop("json", False)
    try:
        device(options.get("device", "cpu"))
    except RuntimeError as error:
        raise Usage(f"--device is 'gpu', but {error}; allowed here: cpu") from None
    writable(out)
    on = f"refattn train --resume {shlex.quote(str(out))}"
    try:
        outcomes = compare(recipes, out, resume=resume, **options)
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(f"{error or 'stopped'}; checkpoints are in {out}, go on with: {on}") from None
    except ValueError as error:
        raise Usage(as_option(error, {"out"})) from None
    except MemoryError:
        raise Usage("memory does not suffice for these sizes; allowed are smaller --batch, --length, --width") from None
    except BrokenExecutor:
        print(f"refattn train: a run's process died; checkpoints are in {out}, go on with: {on}", file=sys.stderr)
        return 1
    kind, fields = RECIPES[outcomes[0]["task"]], outcomes[0]["fields"]
    if as_json:
        print(json.dumps({"task": kind.TASK, "out": str(out), "runs": outcomes, "table": summary(kind, outcomes),
                          "published_source": kind.published(fields).source}, indent=1, ensure_ascii=False))
    else:
        print(table(kind, outcomes))
    failed = [outcome for outcome in outcomes if outcome.get("error")]
    for outcome in failed:
        print(f"refattn: {outcome['error']}", file=sys.stderr)
    stopped = not failed and any(not outcome["finished"] for outcome in outcomes)
    print(f"checkpoints are in {out}, go on with: {on}" if stopped else f"the runs are in {out}", file=sys.stderr)
    return 1 if failed else 0


def verify(argv) -> int:
    """Check theorems and gradients; 1 if one fails."""
    parser = Parser("refattn verify", "Checks at random sizes in float64: statement, source, largest error, verdict.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of names (refattn list has them); default: all")
    parser.add_argument("--seed", type=whole, metavar="S", help="of the random sizes and numbers (default: 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    options = parser.parse(argv)
    if options.get("seed", 0) < 0:
        raise Usage(f"--seed is {options['seed']}, allowed are whole numbers of at least 0")
    from .. import theorems
    results = []
    for result in theorems.verify(options.get("names", ()), options.get("seed", 0)):
        results.append(result)
        if "json" not in options:
            print(f"{'ok  ' if result.ok else 'FAIL'}  {result.error:8.1e} <= {result.tolerance:.0e}  {result.name}: "
                  f"{result.statement} [{result.source}]", flush=True)
    failed = sum(not result.ok for result in results)
    if "json" in options:
        print(json.dumps([{**result._asdict(), "error": float(result.error)} for result in results], indent=1))
    else:
        print(f"{len(results) - failed} of {len(results)} hold")
    return 1 if failed else 0


def listing() -> dict:
    """{section: rows}, the first row being the heading."""
    from .. import theorems
    from ..attention.pages import PAGES
    from ..recipes import RECIPES, SHORT
    return {
        "variants": [("name", "paper", "equation", "row of table A1", "file")] + [
            (name, v.paper, v.equation, v.row or "-", f"refattn/attention/{v.file}") for name, v in PAGES.items()],
        "tasks": [("name", "paper", "file")] + [
            (name, kind.SOURCE, f"refattn/tasks/{name}.py") for name, kind in RECIPES.items()] + [
            (name, RECIPES[task].SOURCE, f"refattn/tasks/{task}.py") for name, (task, _) in SHORT.items()],
        "recipes": [("name", "scale", "steps", "figures", "file")] + [
            (name, scale, f"{kind(**kind.SCALES[scale]).steps:,}", kind.PUBLISHED.source.split(":")[0],
             f"refattn/recipes/{name}.py") for name, kind in RECIPES.items() for scale in kind.SCALES],
        "theorems": [("name", "source", "file", "statement")] + [
            (t.name, t.source, f"{t.error.__module__.replace('.', '/')}.py", t.statement)
            for t in theorems.THEOREMS.values()],
    }


def list_all(argv) -> int:
    """What there is, and where it comes from."""
    from .tables import columns
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
    writable(Path(options["out"]))
    from .. import vectors as module
    module.write(options["out"])
    print(f"the vectors are in {options['out']}", file=sys.stderr)
    return 0


def reproduce(argv) -> int:
    """Print a published table beside ours."""
    from .reproduce import reproduce as command
    return command(argv)


def compile_automaton(argv) -> int:
    """Write the weights of a finite automaton."""
    from .compiling import run
    return run(argv)


COMMANDS = {"train": train, "compile": compile_automaton, "verify": verify, "list": list_all, "reproduce": reproduce,
            "vectors": vectors}


def main(argv=None) -> int:
    """Run a command line; returns the exit status."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")            # a terminal without ± gets a question mark
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
    except (Usage, ValueError, OSError) as error:
        line, status = str(error), 2
    except KeyboardInterrupt as error:
        line, status = str(error) or "stopped", 130
    print(f"refattn{f' {name}' if name in COMMANDS else ''}: {' '.join(line.split())}", file=sys.stderr)
    return status
