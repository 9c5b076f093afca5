"""Options of the command line: errors in one line, and flags made from the fields of a recipe."""

import argparse
import os
import re
import reprlib
import sys
from contextlib import suppress
from difflib import get_close_matches
from itertools import count
from pathlib import Path
from threading import Thread

from ..files import whole_file
from ..refusals import choices

SEVERAL = {"nargs": "+", "action": "extend"}                # values of an option, which may be given again for more
BESIDE_RESUME = "out", "device", "max_seconds", "workers", "json"


class Usage(Exception):
    """Bad input; the message is the line to print."""


class Parser(argparse.ArgumentParser):
    """Errors are one line, and an unknown option is answered with the nearest one."""

    def __init__(self, prog, description):
        super().__init__(prog=prog, description=description, allow_abbrev=False, argument_default=argparse.SUPPRESS)

    def error(self, message):
        """Raises Usage in place of argparse's exit, with its message in the form of all others."""
        what, _, why = message.removeprefix("argument ").partition(": ")
        if what == "the following arguments are required":
            what, why = why, "is missing"
        elif why.startswith("expected"):                    # a value, or at least one
            why = "has no value"
        raise Usage(f"{what} {why}" + f"; allowed: what {self.prog} --help lists" * ("allowed: " not in why))

    def _check_value(self, action, value):
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"is {value!r}{choices(value, action.choices)}")

    def parse(self, argv) -> dict:
        """Only what was given."""
        args, rest = self.parse_known_args(argv)
        for text in rest:
            name = text.split("=")[0]
            near = get_close_matches(name, self._option_string_actions, n=1, cutoff=0.75)
            before = argv[argv.index(text) - 1] if text in argv[1:] else None
            if name[:1] != "-" and getattr(self._option_string_actions.get(before), "nargs", None) == 0:
                raise Usage(f"{before} takes no value, but {text!r} follows it; allowed: the switch alone")
            option = name.startswith("-") and name not in self._option_string_actions       # which may stand behind --
            what = f"{name} is not an option" if option else f"{name!r} is one argument too many"
            guess = f", did you mean {near[0]}?" if near and option else ";"
            raise Usage(f"{what}{guess} allowed: what {self.prog} --help lists")
        return vars(args)


def reader(kind, words: str, fits=lambda found: True):
    """What reads the text of an option, for argparse; its error says what is allowed."""
    def read(text):
        """What the text says, or an error that names it and what is allowed."""
        with suppress(ValueError):
            if fits(found := kind(text)):
                return found
        raise argparse.ArgumentTypeError(f"is {reprlib.repr(text)}; allowed: {words}")
    return read


def counted(least: int, most: int):
    """What reads a whole number from one to the other."""
    return reader(int, f"whole numbers from {least:,} to {most:,}", lambda found: least <= found <= most)


whole, number, seed_number = reader(int, "whole numbers"), reader(float, "numbers"), counted(0, 2**32 - 1)
directory = reader(lambda text: os.path.abspath(text) if text[:1] == "-" else text, "the name of a directory", bool)
positive = reader(float, "numbers above 0", lambda found: 0 < found < float("inf"))


def flag(name: str) -> str:
    """The option of a field: --head-width of head_width."""
    return "--" + name.replace("_", "-")


def as_option(error: ValueError, names) -> str:
    """The words of an error about a field, with the field as its option, and others whose names are no plain words."""
    name, _, rest = str(error).partition(" ")
    rest = re.sub(r"(?<!')\b\w+_\w+", lambda word: flag(word[0]) if word[0] in names else word[0], rest)
    return f"{flag(name)} {rest}" if name in names else str(error)


def summary(kind) -> str:
    """What a recipe is of, in one sentence; nothing where docstrings are left out (-OO)."""
    return " ".join(kind.__doc__.split()) if __doc__ else ""


def allowed(field) -> str:
    """The choices of a field as words of its help."""
    choices = field.metadata.get("choices")
    return f"; one of {', '.join(choices)}" if choices else ""


def tasks() -> str:
    """Every task with a line, and what comes after it on the command line."""
    from ..recipes import RECIPES, SHORT
    from ..tasks.languages import LANGUAGES
    from .comparison import lines, room
    rows = [(name, summary(kind)) for name, kind in RECIPES.items()]
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
    from dataclasses import fields

    from ..recipes.base import types_of
    parser = Parser(f"refattn train {name or kind.TASK}", f"{summary(kind)} {kind.SOURCE}.")
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
    parser.add_argument("--device", choices=("cpu", "gpu"), help="default: cpu")
    parser.add_argument("--out", type=directory, metavar="DIR", help="where the runs go (default: new, below runs/)")
    parser.add_argument("--resume", type=directory, metavar="DIR", help="go on with a run, or with all runs of a "
                        f"comparison; beside it only {', '.join(map(flag, BESIDE_RESUME))}; with --out the runs are "
                        "copied there first")
    parser.add_argument("--max-seconds", type=positive, metavar="T", help="stop after T seconds, with checkpoints")
    parser.add_argument("--workers", type=whole, metavar="N", help="processes that share the --shards of a batch, for "
                        "each run; no bit depends on it (default: the physical cores, divided among runs side by side)")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    group = parser.add_argument_group("fields of the recipe", f"defaults are those of scale {scale} where it has any")
    for f in fields(kind):
        if f.name in (kind.COMPARES, "seed") or len(f.metadata.get("choices", ())) == 1:       # nothing to choose
            continue
        text = f"{f.metadata.get('help', '')}{allowed(f)} (default: {default[f.name]})".replace("%", "%%")
        how = {"action": argparse.BooleanOptionalAction} if types[f.name] is bool else {
            "type": kinds[f.name], "metavar": types[f.name].__name__.upper()}
        group.add_argument(flag(f.name), help=text, **how)
    return parser


def new(name: str) -> Path:
    """A directory below runs/ that no other command has, of this name or with a number behind it."""
    writable(Path("runs"))
    for n in count(1):
        out = Path("runs", f"{name}-{n}" if n > 1 else name)
        with suppress(FileExistsError):
            out.mkdir()
            break
    return out


def writable(out: Path, given: str = "--out") -> None:
    """Raises Usage unless the directory, which an option gave, is there, or can be made, and can be written."""
    try:
        if given == "--out" and (of := [x for x in (out, out.absolute().parent) if (x / "recipe.json").exists()]):
            raise Usage(f"--out is {str(out)!r}, but {of[0]} is a run; allowed: a directory that is in none")
        out.mkdir(parents=True, exist_ok=True)
        if not os.access(out, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except (OSError, ValueError) as error:                  # ValueError: of a name with a null character
        reason = getattr(error, "strerror", error)
        raise Usage(f"{given} is {str(out)!r}, which cannot be written ({reason}); allowed: a directory that can "
                    f"be made or written") from None


def save(file: str, draw=None) -> None:
    """Write the figure that `draw` makes, or only see whether one can be written.  Raises Usage where it cannot."""
    from matplotlib.figure import Figure
    path = Path(file if Path(file).suffix else f"{file}.png")
    known = sorted(Figure().canvas.get_supported_filetypes())
    if path.suffix[1:].lower() not in known:
        raise Usage(f"--plot is {file!r}; allowed: files that end in .{', .'.join(known)}")
    if path.is_dir() or not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        reason = "it is a directory" if path.is_dir() else os.strerror(13 if path.parent.is_dir() else 2)
        raise Usage(f"--plot is {file!r}, which cannot be written ({reason}); allowed: a file in a directory that "
                    f"can be written")
    if draw:
        with whole_file(path, "wb") as opened:
            draw().savefig(opened, format=path.suffix[1:], dpi=120)
        print(f"{path.resolve()} is written", file=sys.stderr)


def answers(device: str) -> None:
    """Raises Usage unless the device is there and computes, and a thread can be started, which training takes."""
    from .. import xp
    try:
        xp.device(device)
        thread = Thread(target=int)
        thread.start()
        thread.join()                                       # beside it no run could fork
    except RuntimeError as error:
        raise Usage(as_option(error, {"device"})) from None


def fits(recipe) -> None:
    """Raises Usage when the machine's memory surely does not suffice (where the system tells how much there is)."""
    from ..xp import physical_memory
    need, have = recipe.least_bytes(), physical_memory()
    if need > have:
        raise Usage(f"training {recipe.name} takes at least {need / 2**30:,.0f} GiB of memory, but there are the "
                    f"{have / 2**30:,.0f} GiB of this machine; allowed: {smaller(recipe)}")


def smaller(recipe) -> str:
    """What to do where memory does not suffice: the options of a recipe on which it depends most."""
    sizes = [name for name in ("batch", "length", "train_length", "size", "width") if name in vars(recipe)]
    return f"smaller {', '.join(map(flag, sizes))}"
