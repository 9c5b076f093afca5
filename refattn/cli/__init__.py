"""The command line: refattn train | verify | list | show | reproduce | vectors | compile | check | write.

Tables go to standard output, progress to standard error.  Bad input is one line on standard error that names the
option, the value and what is allowed, with exit status 2.  A failed check or run exits with 1, one that is stopped by
Ctrl-C or SIGTERM with 130.
"""

import codecs
import importlib
import json
import os
import signal
import sys
from contextlib import redirect_stderr
from dataclasses import asdict
from pathlib import Path

from .. import __version__
from ..refusals import unknown
from .options import SEVERAL, Parser, Usage, directory, seed_number, writable

HELP = f"""refattn {__version__}: attention, forward and backward by hand, in NumPy and CuPy

  refattn train [TASK]      train and compare; alone: fuzzy logic with softmax,
                            linear and hyla attention
  refattn train --resume D  go on with what is in directory D
  refattn show DIR          a comparison, finished or running: table and figure
  refattn reproduce [NAME]  a published table, the paper's figures beside ours
  refattn verify [NAME ...] check theorems, definitions, gradients in float64
  refattn list              variants, tasks, recipes, theorems, their sources
  refattn check M:F --as V  a kernel of yours against a page: what is wrong,
                            where and why
  refattn compile --regex R a finite automaton as exact weights of a RegularGPT
  refattn write RUN PROMPT  what a trained model says after a prompt
  refattn vectors --out DIR reference vectors for other languages

refattn COMMAND --help lists the options of a command,
refattn train TASK --help those of a task."""


def verify(argv) -> int:
    """Check theorems, definitions and gradients; 1 if one fails."""
    parser = Parser("refattn verify", "Checks at random sizes in float64: statement, source, largest error, verdict.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of names (refattn list has them); default: all")
    parser.add_argument("--seed", **SEVERAL, type=seed_number, metavar="S", help="one draw each (default: 0)")
    parser.add_argument("--quiet", action="store_true", help="print a line for what fails only")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    options = parser.parse(argv)
    names, seeds = options.get("names", ()), dict.fromkeys(options.get("seed", [0]))
    from ..train.json_files import plain
    from ..train.record import progress_bar
    from ..verification import theorems
    from .comparison import lines, room
    results, asked, limit = [], [t.name for t in theorems.chosen(names)] * len(seeds), room()
    drawn = ((seed, result) for seed in seeds for result in theorems.verify(names, seed))
    with progress_bar(progress=True, total=len(asked), unit="check", leave=False) as bar:
        bar.set_postfix_str(asked[0])
        for (seed, result), following in zip(drawn, [*asked[1:], ""], strict=True):
            results.append((seed, result))
            bar.set_postfix_str(following, refresh=False)
            bar.update()
            if "json" not in options and not (result.ok and "quiet" in options):
                said = (f"{'ok  ' if result.ok else 'FAIL'}  {result.error:8.1e} <= {result.tolerance:.0e} "
                        f"{result.seconds:6.2f} s  {result.name}{f', seed {seed}' * (len(seeds) > 1)}: "
                        f"{result.raised or result.statement}{result.where and f'; {result.where}'} [{result.source}]")
                show = bar.write if sys.stderr and sys.stderr.isatty() else print       # it draws itself again
                show("\n".join(lines(said, limit, hang=6)), file=sys.stdout)
                sys.stdout.flush()
    failed = sum(not result.ok for _, result in results)
    if "json" in options:
        print(json.dumps(plain([{**result._asdict(), "seed": seed} for seed, result in results]), indent=1))
    else:
        print(f"{len(results) - failed} of {len(results)} hold, {sum(result.seconds for _, result in results):.1f} s")
    return 1 if failed else 0


def listing() -> dict:
    """{section: rows}, the first row being the heading."""
    from ..attention.pages import PAGES
    from ..recipes import RECIPES, SHORT, kind_of, recipe
    from ..reproduce.published import figures_for
    from ..tasks.languages import LANGUAGES
    from ..verification import theorems
    from ..verification.cases import CASES
    kinds = {name: kind_of(name)[0] for name in RECIPES}
    return {
        "variants": [("name", "paper", "equation", "row of table A1", "file")] + [
            (name, v.paper, v.equation, v.row or "-", f"refattn/attention/{v.file}") for name, v in PAGES.items()],
        "tasks": [("name", "paper", "file")] + [
            (name, kind.SOURCE, f"refattn/tasks/{kind.DATA or name}.py") for name, kind in kinds.items()] + [
            (name, LANGUAGES[name].source if name in LANGUAGES else kinds[task].SOURCE, f"refattn/tasks/{task}.py")
            for name, (task, _) in SHORT.items()],
        "recipes": [("name", "scale", "steps", "figures", "file")] + [
            (name, scale, f"{recipe(name, scale).steps:,}",
             figures_for(name, asdict(recipe(name, scale))).source.split(":")[0], f"refattn/recipes/{name}.py")
            for name, kind in kinds.items() for scale in kind.SCALES],
        "theorems": [("name", "source", "file", "statement")] + [
            (t.name, t.source, f"{t.error.__module__.replace('.', '/')}.py", t.statement)
            for t in theorems.THEOREMS.values()],
        "checked": [("name", "source", "file")] + [            # rows with one output
            (x.name, x.source, f"refattn/{x.file}") for x in CASES if not isinstance(x.axes.get("output"), tuple)],
    }


def list_all(argv) -> int:
    """What there is, and where it comes from."""
    from .comparison import columns, lines, room
    parser = Parser("refattn list", "Variants, tasks, recipes and theorems, with paper, equation or table, and file; "
                    "rows of refattn check.")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    as_json, sections, limit = "json" in parser.parse(argv), listing(), room()
    if as_json:
        print(json.dumps({name: [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
                          for name, rows in sections.items()}, indent=1, ensure_ascii=False))
        return 0
    theorems, recipes, checked = sections.pop("theorems")[1:], {}, {}
    for name, *_ in sections.pop("checked")[1:]:
        checked.setdefault(name.partition("/")[0], []).append(name)
    for name, scale, steps, figures, file in sections["recipes"][1:]:      # a line for all scales of one
        recipes.setdefault((name, figures, file), []).append(f"{scale} {steps}")
    sections["recipes"] = [("name", "scales and their steps", "figures", "file"), *(
        (name, "; ".join(scales), figures, file) for (name, figures, file), scales in recipes.items())]
    for name, rows in sections.items():
        folder = os.path.commonpath([row[-1] for row in rows[1:]])          # said once, in the heading
        rows = [(*rows[0][:-1], f"file in {folder}"), *((*row[:-1], row[-1][len(folder) + 1:]) for row in rows[1:])]
        rows = [[text.replace(" et al.", "") for text in row] for row in rows]
        print(f"{name.upper()}\n{columns(rows, limit=limit)}\n")
    print("THEOREMS")
    for name, source, file, statement in theorems:
        print("\n".join(lines(f"{name}: {statement} [{source}; {file}]", limit, hang=4)))
    print("\nWHAT refattn check --as KNOWS BESIDE THE VARIANTS")
    for names in checked.values():
        print("\n".join(lines("; ".join(names), limit, hang=4)))
    return 0


def vectors(argv) -> int:
    """Write reference vectors."""
    parser = Parser("refattn vectors", "Small float64 cases: inputs, outputs, every gradient, and a manifest.")
    parser.add_argument("--out", type=directory, required=True, metavar="DIR", help="where to")
    options = parser.parse(argv)
    writable(out := Path(options["out"]))
    if odd := [x.name for x in out.iterdir() if x.suffix != ".npz" and x.name != "manifest.json"]:
        raise Usage(f"--out is {str(out)!r}, which holds {odd[0]}; allowed: a directory of nothing but vectors")
    from ..verification import vectors as module
    module.write(options["out"])
    print(f"the vectors are in {options['out']}", file=sys.stderr)
    return 0


COMMANDS = {"train": "training", "verify": verify, "list": list_all, "show": "showing", "reproduce": "reproduce",
            "vectors": vectors, "compile": "compiling", "check": "checking", "write": "writing"}
# a function, or the file here whose `run` it is: nothing is imported that the command does not need


class Lossy(codecs.StreamWriter):
    """A stream like another, but where its reader has left, what is written is lost and the work goes on."""

    def write(self, text):
        """Writes it, or from now on into nothing."""
        try:
            print(text, end="", file=self.stream, flush=True)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())


def main(argv=None) -> int:
    """Run a command line; returns the exit status, 141 where the reader of its output has left (`| head`).

    argv : None for the words of the process, in which SIGTERM is then as Ctrl-C; with a list both stay the caller's
    """
    if own := argv is None:                                 # a process of our own: SIGTERM is as Ctrl-C there
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    argv = sys.argv[1:] if argv is None else list(argv)
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w", encoding="utf-8")    # one is closed: `>&-`
                              for stream in (sys.stdout, sys.stderr))
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")            # a terminal without ± gets a question mark
    try:
        try:
            with redirect_stderr(Lossy(sys.stderr)):
                return status_of(argv)
        finally:
            print(end="", flush=True)                       # while it can still be caught
            for sign in (signal.SIGINT, signal.SIGTERM) if own else ():
                signal.signal(sign, signal.SIG_IGN)         # all is done
    except OSError as error:                                # of standard output: the pipe is broken, the disk full
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())      # for what the exit flushes
        return 141 if isinstance(error, BrokenPipeError) else 2


def status_of(argv) -> int:
    """Run a command; what goes wrong is one line on standard error."""
    if not argv or argv[0] in ("-h", "--help") or argv == ["--version"]:
        print(__version__ if argv == ["--version"] else HELP)
        return 0 if argv else 2
    name, *rest = argv
    try:
        if name not in COMMANDS:
            raise Usage(unknown("command", name, COMMANDS))
        command = COMMANDS[name]
        status = (command if callable(command) else importlib.import_module(f".{command}", __name__).run)(rest)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        raise
    except (Usage, ValueError, OSError) as error:
        line, status = str(error), 2
    except ModuleNotFoundError as error:                    # of an analysis or a picture
        advice = "" if "refattn" in str(error.name) else "; allowed after: pip install 'refattn[plots]'"
        line, status = f"{error.name} is missing{advice}", 2
    except KeyboardInterrupt as error:
        line, status = str(error) or "stopped", 130
    print(f"refattn{f' {name}' if name in COMMANDS else ''}: {' '.join(line.split())}", file=sys.stderr)
    return status
