"""The command line: refattn train | verify | list | show | reproduce | vectors | compile | check | write.

Tables go to standard output, progress to standard error.  Bad input is one line on standard error that says
what was given and, mostly, what is allowed, with exit status 2.  A failed check or run exits with 1, as does `show`
of a damaged run; one that is stopped by Ctrl-C or SIGTERM with 130.
"""

import codecs
import importlib
import os
import signal
import sys
from contextlib import redirect_stderr

from .. import __version__
from ..refusals import unknown
from .options import Usage

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
refattn train TASK --help those of a task; refattn --version says which it is."""


COMMANDS = {                   # of each the file here whose `run` it is; nothing is imported that it does not need
    "train": "training", "verify": "verifying", "list": "listing", "show": "showing", "reproduce": "reproduce",
    "vectors": "vectors", "compile": "compiling", "check": "checking", "write": "writing"}


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
        status = importlib.import_module(f".{COMMANDS[name]}", __name__).run(rest)
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
