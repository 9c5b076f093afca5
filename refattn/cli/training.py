"""`refattn train`: from a command line to recipes, and from their runs to a table."""

import argparse
import os
import shlex
import shutil
import stat
import sys
import time
from concurrent.futures import BrokenExecutor
from dataclasses import fields
from pathlib import Path

from ..recipes import RECIPES, SHORT, kind_of, recipe
from ..recipes.base import types_of
from ..reproduce.published import figures_for
from ..tasks.languages import LANGUAGES
from ..train import WorkerLost, compare, groups, mpi, runs
from ..xp import DEVICES, keep_freed_memory, physical_memory
from .comparison import Found, compared, of_group, summary, tables
from .layout import as_json, lines, room
from .options import SEVERAL, Parser, Usage, answers, directory, flag, in_options, number, once, positive, whole
from .places import new, writable

BESIDE_RESUME = "out", "device", "max_seconds", "workers", "json"


def sentence(kind) -> str:
    """What a recipe is of, in one sentence; nothing where docstrings are left out (-OO)."""
    return " ".join(kind.__doc__.split()) if __doc__ else ""


def allowed(field) -> str:
    """The choices of a field as words of its help."""
    choices = field.metadata.get("choices")
    return f"; one of {', '.join(choices)}" if choices else ""


def tasks() -> str:
    """Every task with a line, and what comes after it on the command line."""
    rows = [(name, sentence(kind)) for name, kind in RECIPES.items()]
    rows += [(name, f"{LANGUAGES[name].label} of {task}" if name in LANGUAGES else f"this problem of {task}")
             for name, (task, _) in SHORT.items()]
    listed = [line for name, words in rows for line in lines(f"  {name:<23}{words}", room() or 80, hang=25)]
    return "\n".join(["usage: refattn train [TASK] [--attention V ...] [--seed S ...] [--scale S]",
                      "                     [--steps N] [--device cpu|gpu] [--out DIR] [--json]",
                      "       refattn train --resume DIR [--out DIR] [--max-seconds T]", "",
                      "Trains one run for each value of --attention and --seed, and prints a table.",
                      "TASK is fuzzy_logic unless given; refattn train TASK --help lists its options.", "", *listed])


def train_parser(kind, fixed: dict, name: str | None = None) -> Parser:
    """The options of `train NAME`, those of the recipe from its fields, of which a task may have fixed some."""
    parser = Parser(f"refattn train {name or kind.TASK}", f"{sentence(kind)} {kind.SOURCE}.")
    parser.usage = f"{parser.prog} [options]"
    scale = kind.first_scale()
    default = {f.name: f.default for f in fields(kind)} | kind.scale(scale, fixed) | fixed
    types = types_of(kind)
    kinds = {f.name: {int: whole, float: number}.get(types[f.name], str) for f in fields(kind)}
    parser.add_argument(flag(kind.COMPARES), **SEVERAL, metavar="V", dest="compared", type=kinds[kind.COMPARES], help=(
        f"what is compared: one run for each value{allowed(kind.__dataclass_fields__[kind.COMPARES])} (default: "
        f"{' '.join(map(str, kind.compared()))})"))
    parser.add_argument("--seed", **SEVERAL, type=whole, metavar="S", help="seeds to average over (default: 0)")
    parser.add_argument("--scale", choices=tuple(kind.SCALES), metavar="S", help=(
        f"settings to begin with; one of {', '.join(kind.SCALES)} (default: {scale})"))
    parser.add_argument("--device", choices=DEVICES, help="default: cpu")
    parser.add_argument("--out", type=directory, metavar="DIR", help="where the runs go (default: new, below runs/)")
    parser.add_argument("--resume", type=directory, metavar="DIR", help="go on with a run, or with all runs of a "
                        f"comparison; beside it only {', '.join(map(flag, BESIDE_RESUME))}; with --out the runs are "
                        "copied there first")
    parser.add_argument("--max-seconds", type=positive, metavar="T", help="train T seconds at most; --resume goes on")
    parser.add_argument("--workers", type=whole, metavar="N", help="processes that share the --shards of a batch, for "
                        "each run; no bit depends on it (default: the physical cores, divided among runs side by side)")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    group = parser.add_argument_group("fields of the recipe", f"defaults are those of scale {scale} where it has any")
    for f in fields(kind):
        if f.name in (kind.COMPARES, "seed") or len(f.metadata.get("choices", ())) == 1:       # nothing to choose
            continue
        usual = "none" if default[f.name] == "" else default[f.name]
        text = f"{f.metadata.get('help', '')}{allowed(f)} (default: {usual})".replace("%", "%%")
        how = {"action": argparse.BooleanOptionalAction} if types[f.name] is bool else {
            "type": kinds[f.name], "metavar": types[f.name].__name__.upper()}
        group.add_argument(flag(f.name), help=text, **how)
    return parser


def plan(argv):
    """(recipes, directory or name of a new one, resume, options) of a `train` command line."""
    named = bool(argv) and not argv[0].startswith("-")
    if not named and {"-h", "--help"} & set(argv):
        print(tasks())
        sys.exit(0)
    name = argv[0].replace("-", "_") if named else "fuzzy_logic"
    kind, fixed = kind_of(name, "TASK")
    options = train_parser(kind, fixed, name).parse(argv[named:])
    if "resume" in options:
        beside = [kind.COMPARES if name == "compared" else name
                  for name in options if name not in (*BESIDE_RESUME, "resume")]
        if named or beside:
            what = f"TASK {argv[0]!r}" if named else flag(beside[0])
            raise Usage(f"{what} cannot go with --resume; allowed beside it: {', '.join(map(flag, BESIDE_RESUME))}")
        return (*resumed(options.pop("resume"), options.pop("out", None)), True, options)
    scale = options.pop("scale", kind.first_scale())
    out = Path(options.pop("out")) if "out" in options else time.strftime(f"{kind.TASK}-{scale}-%Y%m%d-%H%M%S")
    rest = {other: options.pop(other) for other in BESIDE_RESUME if other in options}
    values = once(flag(kind.COMPARES), options.pop("compared", kind.compared()))
    seeds = once("--seed", options.pop("seed", [0]))
    with in_options(kind.__dataclass_fields__):
        chosen = [recipe(name, scale, **{kind.COMPARES: value}, seed=s, **options) for value in values for s in seeds]
        for one in chosen:
            one.data_read()                                 # refuses what is missing
            if rest.get("device") != "gpu":
                fits(one)
    return chosen, out, False, rest


def resumed(source: str, out: str | None):
    """(recipes, directory) of the runs in `source`, copied to `out` where it is given."""
    try:
        paths = runs.find(source)
    except ValueError as error:
        raise Usage(f"--resume {error}") from None
    found = {path: runs.read_recipe(path) for path in paths}
    for path, one in found.items():
        if one.TASK not in RECIPES:
            raise Usage(f"--resume {str(path)!r} holds a {one.TASK}, which is not trained; allowed: a training run")
        if Path(os.path.abspath(path)).name != one.name:
            raise Usage(f"--resume {str(path)!r} holds the run {one.name}; allowed: a directory of that name")
    if out is None:
        return [*found.values()], Path(os.path.abspath(paths[0])).parent        # where a link to a run stands
    compare.unfinished(found)                               # refuses a damaged one before it is copied
    writable(Path(out))
    copy(found, out)
    return [*found.values()], Path(out)


def copy(found: dict, out: str) -> None:
    """Copy the runs of {path: recipe} below `out`, all of them or none.  Raises Usage where one cannot be written."""
    for one in found.values():
        if Path(out, one.name).exists():
            raise Usage(f"--out is {out!r}, which holds {one.name} already; allowed: another directory")
    made = {path: Path(out, f"{one.name}.tmp") for path, one in found.items()}
    try:
        for path, place in made.items():
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(path, place, ignore=shutil.ignore_patterns("*.tmp", "lock"))
    except BaseException as error:                          # at Ctrl-C nothing stays either
        for place in made.values():
            shutil.rmtree(place, ignore_errors=True)
        if not isinstance(error, shutil.Error):
            raise
        _, file, reason = error.args[0][0]
        raise Usage(f"--out is {out!r}, where {file!r} cannot be written ({reason}); allowed: more room") from None
    for place in made.values():
        for file in (place, *place.iterdir()):
            file.chmod(file.stat().st_mode | stat.S_IWUSR)  # of an archive that nobody may write
        place.rename(place.with_suffix(""))


def fits(recipe) -> None:
    """Raises Usage when the machine's memory surely does not suffice (where the system tells how much there is)."""
    need, have = recipe.least_bytes(), physical_memory()
    if need > have:
        raise Usage(f"training {recipe.name} takes at least {need / 2**30:,.0f} GiB of memory, but there are the "
                    f"{have / 2**30:,.0f} GiB of this machine; allowed: {smaller(recipe)}")


def smaller(recipe) -> str:
    """What to do where memory does not suffice: the options of a recipe on which it depends most."""
    sizes = [name for name in ("batch", "length", "train_length", "size", "width") if name in vars(recipe)]
    return f"smaller {', '.join(map(flag, sizes))}, or more --shards"


def run(argv) -> int:
    """Train and compare; 1 if a run met a bad number."""
    keep_freed_memory()
    if mpi.ranks() == 1:
        return train(argv)
    with mpi.joined(argv) as group:
        return 0 if group is None else train(argv, group)


def train(argv, group=None) -> int:
    """`run` in this process, or with a group of ranks."""
    recipes, out, resume, options = plan(argv)
    in_json, device = options.pop("json", False), options.get("device", "cpu")
    answers(device)
    with in_options({"workers", "shards", "device"}):
        groups.check(options.get("workers"), device, group)
        for one in recipes if group else ():
            group.suits(one.shards, device)
    options |= {"workers": group} if group else {}
    out = new(out) if isinstance(out, str) else out
    writable(out, "--resume" if resume else "--out")
    on = f"refattn train --resume {shlex.quote(str(out))}" + " --device gpu" * (device == "gpu")
    try:
        with in_options({"out"} if resume else {"out", "batch"}):
            outcomes = compare.compare(recipes, out, resume=resume, **options)
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(f"{str(error) or 'stopped'}; checkpoints are in {out}, go on with: {on}") from None
    except MemoryError:
        raise Usage(f"memory does not suffice for these sizes; allowed: {smaller(recipes[0])}") from None
    except (BrokenExecutor, OSError) as error:
        what = error if isinstance(error, WorkerLost | OSError) else f"a run's process died; checkpoints are in {out}"
        print(f"refattn train: {what}, go on with: {on}", file=sys.stderr)
        return 1
    return report(recipes, outcomes, out, on, in_json)


def report(recipes, outcomes, out, on: str, in_json: bool) -> int:
    """Print the tables, and below them on standard error what went wrong and where the runs are; the exit status.

    There is one table, but where runs that are resumed were begun with several settings or tasks.
    """
    made = compared(Found(Path(one["path"]), each, one) for each, one in zip(recipes, outcomes, strict=True))
    if in_json:
        task = outcomes[0]["task"]
        print(as_json({"task": task, "out": str(out), "runs": outcomes,
                       "table": [row for group in made.values() for row in summary(*of_group(group))],
                       "published_source": figures_for(task, outcomes[0]["fields"]).source}))
    else:
        print("\n\n".join(tables(made)))
    failed = [outcome for outcome in outcomes if outcome.get("error")]
    for outcome in failed:
        print(f"refattn: {outcome['error']}", file=sys.stderr)
    stopped = not failed and any(not outcome["finished"] for outcome in outcomes)
    print(f"checkpoints are in {out}, go on with: {on}" if stopped else f"the runs are in {out}", file=sys.stderr)
    return 1 if failed else 0
