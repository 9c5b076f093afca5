"""refattn reproduce: a published table, the paper's figures beside ours, from recorded or from fresh runs."""

import shlex
import sys
from concurrent.futures import BrokenExecutor
from pathlib import Path

from ..refusals import unknown
from ..reproduce import ambiguity, codes, records
from ..reproduce.all_tables import TABLES
from ..train import compare
from ..train.executors import executor
from ..train.json_files import write_json
from ..xp import DEVICES, keep_freed_memory
from .formats import FORMATS
from .layout import as_json, columns, room
from .options import SEVERAL, Parser, Usage, answers, directory, flag, in_options, once, positive, whole
from .places import plot_file, save, writable

FRESH = "scale", "seed", "steps", "out", "device", "max_seconds", "executor"       # any of them asks for fresh runs


def parser() -> Parser:
    """The options of `reproduce`."""
    made = Parser("refattn reproduce", "A published table beside ours; without NAME the names. Ours are of the runs "
                  "that are recorded in the package, or of fresh ones.")
    made.add_argument("name", nargs="?", metavar="NAME", help="of a table; refattn reproduce lists them")
    made.add_argument("--row", **SEVERAL, metavar="PART", help="only rows whose label contains one of these")
    made.add_argument("--plot", metavar="FILE", help="draw it too (.png, .svg, .pdf); needs the extra plots")
    made.add_argument("--all", action="store_true", help="also tables and rows of which nothing was "
                      "run; Markdown and JSON have them anyway")
    made.add_argument("--format", choices=tuple(FORMATS), help="default: text")
    made.add_argument("--json", action="store_true", help="the same as --format json")
    group = made.add_argument_group("fresh runs", "each of these asks for them; finished runs in --out are reused")
    group.add_argument("--fresh", action="store_true", help="train instead of reading what is recorded")
    group.add_argument("--scale", metavar="S", help="settings of the recipe (default: the table's own, mostly quick)")
    group.add_argument("--seed", **SEVERAL, type=whole, metavar="S", help="default: 0 1 2; the first of them for a "
                       "picture of a network, or what is counted")
    group.add_argument("--steps", type=whole, metavar="N", help="other than the scale's")
    group.add_argument("--out", type=directory, metavar="DIR", help="where the runs are (default: runs/NAME-SCALE)")
    group.add_argument("--device", choices=DEVICES, help="default: cpu")
    group.add_argument("--max-seconds", type=positive, metavar="T", help="train T seconds at most")
    group.add_argument("--executor", metavar="ADDRESS", help="dask://HOST:PORT of a Dask scheduler whose workers share "
                       "this file system (default: processes on this machine)")
    group = made.add_argument_group("records", "what finished runs say, in one file that tables are made of")
    group.add_argument("--record", nargs="+", metavar=("FILE", "DIR"), help="add the finished runs at or right below "
                       "each DIR to FILE, .json; with NAME table-a2 and no DIR: count it anew, with --seed S")
    group.add_argument("--what", metavar="TEXT", help="a sentence that the record begins with")
    group.add_argument("--codes", action="store_true", help="record what the latent codes of the runs say instead")
    return made


def run(argv) -> int:
    """Print a published table beside ours; 1 if a fresh run met a bad number, or nothing was recorded."""
    options = parser().parse(argv)
    if "json" in options and options.setdefault("format", "json") != "json":
        raise Usage(f"--json cannot go with --format {options['format']}; allowed: one of them")
    if "record" in options:
        return record(options)
    for other in "what", "codes":
        if other in options:
            raise Usage(f"--{other} is given, but there is no --record; allowed: both")
    name = options.get("name")
    if name is None:
        if set(options) - {"format", "json", "all"} or options.get("format") not in (None, "text", "json"):
            raise Usage(f"NAME is missing; allowed: {', '.join(TABLES)}")
        return listing(TABLES.values(), "all" in options, options.get("format") == "json")
    if name not in TABLES:
        raise Usage(unknown("NAME", name, list(TABLES)))
    if "plot" in options:
        if TABLES[name].plot is None:
            raise Usage(f"--plot cannot go with {name}, which has no picture; allowed: another NAME")
        plot_file(options["plot"])                          # refused before the training
    return show(TABLES[name], options)


def show(table, options) -> int:
    """Print a table, and draw it where that is asked for; 1 if a fresh run met a bad number."""
    fresh = any(word in options for word in (*FRESH, "fresh"))
    try:
        with in_options({"row", "steps", "seed", "scale", "executor"}):
            found, failed = from_fresh(table, options) if fresh else (table.recorded(), [])
            sheet = table.sheet(found, options.get("row", ()))
            if "plot" in options and (found or not fresh or table.fresh):       # else nothing is finished
                save(options["plot"], lambda: table.plot(sheet))
    except BrokenExecutor as error:
        print(f"refattn reproduce: {str(error) or 'a process died'}; the same command goes on from the checkpoints",
              file=sys.stderr)
        return 1
    form = options.get("format", "text")
    everything = form != "text" or "all" in options or table.whole              # for documents and programs
    shown = sheet if everything else sheet.without_empty_rows()
    print(FORMATS[form](shown.unfinished() if fresh else shown))
    if len(shown.rows) < len(sheet.rows):
        print(f"refattn reproduce {table.name} --all shows them", file=sys.stderr)
    for outcome in failed:
        print(f"refattn: {outcome['error']}", file=sys.stderr)
    return 1 if failed else 0


def record(options) -> int:
    """Write finished runs, what their codes say, or table A2 into a record."""
    file, *sources = options.pop("record")
    counting = options.pop("name", None)
    allowed = ("seed",) if counting else ("what", "codes")
    if odd := [name for name in options if name not in allowed]:
        raise Usage(f"{flag(odd[0])} cannot go with {'NAME and ' * bool(counting)}--record; allowed: "
                    f"{', '.join(map(flag, allowed))}")
    from_what = bool(sources) if counting is None else counting == "table-a2" and not sources
    if not from_what or not file.endswith(".json") or not Path(file).parent.is_dir():
        raise Usage(f"--record is {' '.join([file, *sources])!r}{f' with NAME {counting}' if counting else ''}; "
                    f"allowed: a .json in a directory that there is, and directories of runs, without NAME; with "
                    f"table-a2 the .json alone")
    try:
        if counting:
            write_json(file, ambiguity.count(*options.get("seed", [0])[:1]))
            print(f"table A2 is recorded in {file}")
            return 0
        collect, of = (codes.collect, "the codes of ") if "codes" in options else (records.collect, "")
        done, rest = collect(file, sources, options.get("what"))
    except ValueError as error:
        raise Usage(f"--record: {error}") from None
    said = f"{of}{done} runs recorded in {file}" if done else f"nothing was recorded in {file}"
    print(said + (f"; not finished: {', '.join(rest)}" if rest else ""))
    return 0 if done else 1


def listing(tables, everything: bool, in_json: bool) -> int:
    """Print the names of the tables, and how many runs ours are made of."""
    found = [(table, table.sheet(table.recorded()).runs) for table in tables]
    if in_json:
        print(as_json([{"name": table.name, "runs": runs, "title": table.title} for table, runs in found]))
        return 0
    rows = [(table.name, f"{runs}", table.title) for table, runs in found if runs or everything]
    print(columns([("name", "runs", "what"), *rows], right={1}, limit=room()))
    if len(rows) < len(found):
        print(f"nothing is recorded of {len(found) - len(rows)} others; refattn reproduce --all names them")
    return 0


def from_fresh(table, options) -> tuple[list[dict], list[dict]]:
    """(finished runs, runs that met a bad number) of what the options ask for, trained as far as it is not there."""
    if table.fresh:                             # counted, not trained
        for name in FRESH:
            if name in options and name != "seed":
                raise Usage(f"{flag(name)} cannot go with {table.name}, which trains nothing; allowed: --fresh, --seed")
        return table.fresh(*options.get("seed", [0])[:1]), []
    scale, seeds = options.get("scale", table.default_scale), once("--seed", options.get("seed", [0, 1, 2]))
    changes = {"steps": options["steps"]} if "steps" in options else {}
    jobs = table.recipes(scale, seeds, options.get("row", ()), **changes)
    if changes and any(one.steps != options["steps"] for one in jobs.values()):
        raise ValueError(f"steps is {options['steps']}, but some of these rows say their own; allowed: other rows")
    answers(options.get("device", "cpu"))
    out = Path(options.get("out") or Path("runs", f"{table.name}-{scale}" if scale else table.name))
    keep_freed_memory()
    settings = {name: options[name] for name in ("device", "max_seconds") if name in options}
    with executor(options.get("executor")) as chosen:
        writable(out)
        try:
            outcomes = compare.train_all({out / path: recipe for path, recipe in jobs.items()}, out, resume=True,
                                         executor=chosen, **settings)
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(f"{str(error) or 'stopped'}; the same command with --out "
                                    f"{shlex.quote(str(out))} goes on") from None
    left = sum(not outcome["finished"] for outcome in outcomes)
    print(f"the runs are in {out}" + (f"; {left} of {len(outcomes)} are not complete, the same command goes on"
                                      if left else ""), file=sys.stderr)
    return (table.after([outcome for outcome in outcomes if outcome["finished"]], options.get("row", ())),
            [outcome for outcome in outcomes if outcome.get("error")])
