"""refattn write: what a trained model says after a prompt, piece by piece."""

import sys
from inspect import signature
from pathlib import Path

from ..recipes import RECIPES
from ..train import runs
from .options import Parser, Usage, directory, flag, in_options, number, seed_number, whole

OPTIONS = {"tokens": (whole, "N", "at most so many (default: 500, of SCAN the longest answer's)"),
           "temperature": (number, "T", "scores are divided by it; 0: always the likeliest (default: 1)"),
           "top_k": (whole, "K", "draw from the K likeliest; 0: from all (default: 0)"),
           "seed": (seed_number, "S", "of what is drawn (default: 0)"),
           "stop": (str, "TEXT", "end before the first token of this text")}


def run(argv) -> int:
    """Write on; the prompt first."""
    parser = Parser("refattn write", "What the model of a run directory says after a prompt, as it comes.")
    parser.add_argument("run", type=directory, metavar="RUN", help="a run directory of text or scan")
    parser.add_argument("prompt", metavar="PROMPT", help="the beginning; behind -- where it begins with a -")
    for name, (parse, metavar, words) in OPTIONS.items():
        parser.add_argument(flag(name), type=parse, metavar=metavar, help=words)
    parser.add_argument("--last", action="store_true", help="ask the last parameters, not the best that were kept")
    options = parser.parse(argv)
    path, prompt, last = options.pop("run"), options.pop("prompt"), options.pop("last", False)
    try:
        with in_options(OPTIONS):
            say(path, prompt, last, options)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    print()
    return 0


def say(path, prompt: str, last: bool, options: dict) -> None:
    """Print what the model of a run says after a prompt."""
    path = runs.only(path)
    recipe, model, p = runs.load(path, best=not last and Path(path, runs.BEST).exists())
    if not hasattr(recipe, "write"):
        writers = ", ".join(name for name, kind in RECIPES.items() if hasattr(kind, "write"))
        raise Usage(f"RUN is of {recipe.TASK}, which says nothing; allowed: runs of {writers}")
    known = [name for name in OPTIONS if name in signature(recipe.write).parameters]
    for name in options:
        if name not in known:
            raise Usage(f"{flag(name)} cannot go with {recipe.TASK}; allowed: {', '.join(map(flag, known))}")
    said = False
    for piece in recipe.write(model, p, prompt, **options):
        print(piece, end="", flush=True)
        said = said or bool(piece)
    if not said:
        print("refattn write: the model says nothing after that", file=sys.stderr)
