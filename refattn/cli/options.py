"""Options of the command line: what reads them, errors in one line, and devices that they ask for."""

import argparse
import os
import re
import reprlib
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from threading import Thread

from ..refusals import choices

SEVERAL = {"nargs": "+", "action": "extend"}                # values of an option, which may be given again for more


class Usage(Exception):
    """Bad input; the message is the line to print."""


class Parser(argparse.ArgumentParser):
    """Errors are one line, and an unknown option is answered with the nearest one."""
    values: dict[str, str] = {}                             # of options: what is given without one is told which

    def __init__(self, prog, description):
        super().__init__(prog=prog, description=description, allow_abbrev=False, argument_default=argparse.SUPPRESS)
        self._negative_number_matcher = re.compile(r"-\.?\d")   # argparse's own does not take -1e-3

    def error(self, message):
        """Raises Usage in place of argparse's exit, with its message in the form of all others."""
        what, _, why = message.removeprefix("argument ").partition(": ")
        if what == "the following arguments are required":
            what, why = why, "is missing"
        elif why.startswith("expected"):                    # a value, or at least one
            why = "has no value"
        elif why.startswith("ignored explicit argument"):   # of a switch
            why = f"takes no value, but {why.split(maxsplit=3)[3]} follows it; allowed: the switch alone"
        raise Usage(f"{what} {why}" + f"; allowed: what {self.prog} --help lists" * ("allowed: " not in why))

    def _check_value(self, action, value):
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"is {value!r}{choices(value, action.choices)}")

    def parse(self, argv) -> dict:
        """Only what was given."""
        args, rest = self.parse_known_args(argv)
        if not rest:
            return vars(args)
        text, options = rest[0], self._option_string_actions
        name = text.split("=")[0]
        if name.startswith("-") and name not in options:    # one that is may stand behind --
            near = get_close_matches(name, options, n=1, cutoff=0.75)
            guess = f", did you mean {near[0]}?" if near else ";"
            raise Usage(f"{name} is not an option{guess} allowed: what {self.prog} --help lists")
        before = argv[argv.index(text) - 1] if text in argv[1:] else None
        if name[:1] != "-" and getattr(options.get(before), "nargs", None) == 0:
            raise Usage(f"{before} takes no value, but {text!r} follows it; allowed: the switch alone")
        option = self.values.get(name.replace("-", "_"))
        guess = f", did you mean {option} {name}?" if option else ";"
        raise Usage(f"{name!r} is one argument too many{guess} allowed: what {self.prog} --help lists")


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
positive = reader(float, "finite numbers above 0", lambda found: 0 < found < float("inf"))


def once(name: str, values: list) -> list:
    """The values of an option.  Raises Usage where one is given twice."""
    if twice := [value for n, value in enumerate(values) if value in values[:n]]:
        raise Usage(f"{name} is {' '.join(map(str, values))}, which has {twice[0]} twice; allowed: each value once")
    return values


def flag(name: str) -> str:
    """The option of a field: --head-width of head_width."""
    return "--" + name.replace("_", "-")


def as_option(error: ValueError, names, **others: str) -> str:
    """The words of an error, in which the field that they begin with, and all whose names have a _, are options.

    names  : of fields, each the name of its option
    others : fields whose option has another name: variant="--as"
    """
    flags = {name: flag(name) for name in names} | others
    name, _, rest = str(error).partition(" ")
    rest = re.sub(r"(?<!')\b\w+_\w+", lambda word: flags.get(word[0], word[0]), rest)
    return f"{flags[name]} {rest}" if name in flags else str(error)


@contextmanager
def in_options(names, **others: str):
    """A ValueError inside is raised as Usage, in the words of `as_option`."""
    try:
        yield
    except ValueError as error:
        raise Usage(as_option(error, names, **others)) from None


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
