"""`refattn show`: what stands in a directory of runs, finished, running or damaged, as tables and one figure."""

import os
from pathlib import Path

from ..analysis import images
from ..reproduce.published import figures_for
from ..train import runs
from ..train.compare import outcome, unfinished
from ..train.curves import Curve, figure
from .comparison import Found, compared, of_group, summary, tables
from .layout import as_json, wrapped
from .options import Parser, Usage, directory
from .places import save

MARKS = "recipe.json", *runs.PARTS                          # a directory with one of them is a run
ABOUT = "kind", "first", "second"


def absent(recipe) -> str:
    """Words on data that an unfinished run needs and that is not there, without which no checkpoint is looked into."""
    try:
        recipe.data_read()
    except ValueError as error:
        return f"; {error}"
    return ""


def look(directory) -> tuple[list[Found], dict]:
    """The runs at or below a directory in the order in which they were begun, and {path: words} of what is damaged.

    An unfinished run's error says how far it is, and why it failed.
    """
    paths = {file.parent: None for mark in MARKS for file in sorted(Path(directory).rglob(mark))}
    found, damaged = [], {}
    for path in paths:
        try:
            if not Path(path, "recipe.json").exists():
                raise ValueError("its recipe.json is missing")
            recipe = runs.read_recipe(path)
            done = outcome(path, recipe)
            missing = "" if done["finished"] else absent(recipe)
            if not (done["finished"] or missing):
                unfinished({path: recipe})                  # refuses a damaged one
        except (ValueError, OSError) as error:
            damaged[path] = " ".join(str(error).split())
            continue
        if not done["finished"]:
            history = runs.lines(path)
            step = max(done["step"], history[-1]["step"] if history else 0)
            loss = f", training loss {history[-1]['loss']:.4g}" if history else ""
            done |= {"step": step, "running": runs.at_work(path)}
            done["error"] = (f"{'running' if done['running'] else 'stopped'}, at step {step:,} of {recipe.steps:,} "
                             f"({step / max(recipe.steps, 1):.0%}){loss}{missing}")
            if not done["running"] and (why := Path(path, runs.ERROR)).is_file():        # not its user's wish
                done["error"] += f"; {why.read_text(encoding='utf-8', errors='replace').strip()}"
        found.append(Found(path, recipe, done))
    found.sort(key=lambda one: (Path(one.path, "recipe.json").stat().st_mtime_ns, one.path))
    return found, damaged


def counted(found, damaged) -> str:
    """How many runs there are of each kind."""
    finished = sum(one.outcome["finished"] for one in found)
    running = sum(one.outcome.get("running", False) for one in found)
    kinds = {"finished": finished, "running": running, "stopped": len(found) - finished - running,
             "damaged": len(damaged)}
    total = len(found) + len(damaged)
    return f"{total} run{'s' if total != 1 else ''}: " + ", ".join(f"{n} {kind}" for kind, n in kinds.items() if n)


def compiled(one) -> str:
    """A line for an automaton that was compiled, not trained."""
    said = one.outcome.get("metrics", {}).get("words", {})
    of = f" of {one.recipe.expression!r}" if one.recipe.expression else ""
    return (f"{one.path}: compiled automaton {one.recipe.name}{of}, {one.recipe.automaton.states} states; " + (
        f"{said['errors']:,} errors in {said['words']} words of each length to {said['max_length']:,}"
        if all(runs.number(said.get(x)) for x in ("errors", "words", "max_length")) else "not read yet"))


def plot(file: str, made: dict) -> None:
    """Draw all curves.  Raises Usage where the file cannot be written."""
    curves = {title: [Curve(one.recipe, runs.lines(one.path), one.outcome.get("metrics", {})) for one in group]
              for title, group in made.items()}
    papers = {title: figures_for(group[0].recipe.TASK, group[0].outcome["fields"]) for title, group in made.items()}
    save(file, lambda: figure(curves, papers))


def parser() -> Parser:
    """The options of `show`."""
    made = Parser("refattn show", "What stands in a directory of runs, one or many, finished, running or damaged: the "
                  "table of each comparison and, with --plot, one figure of all curves.")
    made.add_argument("directory", type=directory, metavar="DIR", help="a run, or what --out of train or reproduce was")
    made.add_argument("--plot", metavar="FILE", help="draw the curves, or with --image what was looked at: .png, .svg")
    made.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    group = made.add_argument_group("a picture", "to ask a network of sort_of_clevr about one of your own")
    group.add_argument("--image", metavar="FILE", help="75 x 75 pixels")
    group.add_argument("--kind", metavar="K", help="of the question, such as shape or 'shape of nearest'")
    group.add_argument("--first", metavar="C", help="colour of the object that it is about")
    group.add_argument("--second", metavar="C", help="of the other object, where the kind asks about two")
    return made


def answer(one, options) -> int:
    """Print what the network of a run says of a picture."""
    if not {"kind", "first"} <= set(options):
        raise Usage("--image is given without --kind and --first; allowed: all three")
    recipe, model, p = runs.load(one.path)
    found = images.ask(recipe, model, p, options["image"], options["kind"], options["first"], options.get("second"))
    shares = dict(sorted(found.probability.items(), key=lambda pair: -pair[1]))
    print(as_json(shares) if "json" in options else
          "\n".join(f"{words:<12} {share:6.1%}" for words, share in shares.items()))
    if "plot" in options:
        title = f"{', '.join(options[name] for name in ABOUT if name in options)}: {found.words}"
        save(options["plot"], lambda: images.figure(images.picture(options["image"]), found.maps, title))
    return 0


def run(argv) -> int:
    """Print tables, and draw; 1 if something is damaged."""
    options = parser().parse(argv)
    found, damaged = look(options["directory"])
    if not found and not damaged:
        if os.path.isdir(options["directory"]):
            os.listdir(options["directory"])                # refuses one that cannot be looked into
        raise Usage(f"DIR is {options['directory']!r}, which holds no run; allowed: a run, or a directory of runs")
    if "image" in options:
        if len(found) != 1:
            raise Usage(f"DIR holds {len(found)} runs; allowed with --image: one of them")
        return answer(found[0], options)
    if given := [name for name in ABOUT if name in options]:
        raise Usage(f"--{given[0]} is {options[given[0]]!r}, but there is no --image; allowed: both")
    trained = [one for one in found if hasattr(one.recipe, "TABLE")]
    made = compared(trained)
    if "plot" in options:                                   # first, since a reader may leave the tables early
        if not made:
            raise Usage(f"--plot is {options['plot']!r}, but {options['directory']} holds no run that was trained; "
                        f"allowed: with one")
        plot(options["plot"], made)
    if "json" in options:
        print(as_json({"runs": [one.outcome for one in found],
                       "damaged": {str(path): words for path, words in damaged.items()},
                       "tables": {title: summary(*of_group(group)) for title, group in made.items()}}))
    else:
        print("\n\n".join([counted(found, damaged), *tables(made)]))
        for one in found:
            if one not in trained:
                print(wrapped(compiled(one)))
        for path, words in damaged.items():
            print(wrapped(f"{path} is damaged: {words}"))
    return 1 if damaged else 0
