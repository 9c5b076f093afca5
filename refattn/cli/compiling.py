"""`refattn compile`: from a language, a table or a regular expression to a checkpoint, and its errors by length."""

import json
import sys
import time
from pathlib import Path

import numpy as np

from ..automata.compiled import ACTIVATIONS, compiled, fits
from ..automata.exactness import errors, passes, positions, walked
from ..automata.expressions import from_regex
from ..automata.reading import read_table, to_table
from ..automata.walks import reached
from ..layers.block import NORMS
from ..recipes.compiled_automaton import CompiledAutomaton
from ..refusals import unknown
from ..tasks.languages import LANGUAGES
from ..train import runs
from ..train.json_files import environment, plain, write_json
from ..train.progress import progress_bar
from .layout import columns, room, wrapped
from .options import Parser, Usage, as_option, counted, directory, in_options, seed_number, whole
from .places import new, writable

DEFAULTS = {"dtype": "float32", "max_length": 600, "words": 4, "seed": 0}


def parser() -> Parser:
    """The options of `compile`."""
    p = Parser("refattn compile", "A finite automaton as exact weights of a RegularGPT, in a run directory that "
               "refattn.load reads, and its errors on words of every length.")
    p.values = dict.fromkeys(LANGUAGES, "--language")
    p.add_argument("--language", metavar="NAME", help=", ".join(LANGUAGES))
    p.add_argument("--table", metavar="FILE", help="a line 'state output', then the symbols; then a line for each "
                   "state: its name, its class (0, 1, ...), the next state for each symbol; the first is the start")
    p.add_argument("--regex", metavar="R", help="Python's re.fullmatch: words that match are of class 1, others of 0")
    p.add_argument("--alphabet", metavar="ABC", help="the symbols of --regex, a character each (default: 01)")
    p.add_argument("--chunk", type=whole, metavar="C", help="keys that a query sees (default: 2)")
    p.add_argument("--norm", choices=NORMS, help="LayerNorm (default: none)")
    p.add_argument("--activation", choices=ACTIVATIONS, help="default: relu")
    p.add_argument("--out-of-range", choices=("pad", "mask"), help="before the first token: a vector of its own, or "
                   "nothing, which takes a reset token before every word; refattn.load puts it there (default: pad)")
    p.add_argument("--dtype", choices=("float32", "float64"), help="default: float32")
    p.add_argument("--max-length", type=counted(1, 2**20), metavar="T", help="of the longest words (default: 600)")
    p.add_argument("--words", type=counted(1, 2**16), metavar="N", help="of each length that are read (default: 4)")
    p.add_argument("--seed", type=seed_number, metavar="S", help="of these words (default: 0)")
    p.add_argument("--out", type=directory, metavar="DIR", help="where to (default: a new directory below runs/)")
    p.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    return p


def source(options):
    """(name, automaton) that the options ask for."""
    given = [name for name in ("language", "table", "regex") if name in options]
    if len(given) != 1:
        raise Usage(f"{'--' + ' and --'.join(given) if given else 'no automaton'} given; allowed: exactly one of "
                    f"--language, --table, --regex")
    if "alphabet" in options and "regex" not in options:
        raise Usage(f"--alphabet is {options['alphabet']!r}, but there is no --regex; allowed: both")
    if "language" in options:
        name = options["language"].replace("-", "_")
        if name not in LANGUAGES:
            raise Usage(unknown("--language", name, list(LANGUAGES)))
        return name, LANGUAGES[name].automaton
    try:
        if "table" in options:
            return Path(options["table"]).stem, read_table(options["table"])
        return "regex", from_regex(options["regex"], options.get("alphabet", "01"))
    except OSError as error:
        raise Usage(f"--table is {options['table']!r}, which cannot be read ({error.strerror}); allowed: "
                    f"a file") from None
    except ValueError as error:
        words = as_option(error, {"alphabet"}).replace("allowed: an alphabet", "allowed: an --alphabet")
        raise Usage(words if words.startswith("--") else f"--{given[0]}: {words}") from None


def report(machine, found, longest: int) -> str:
    """Errors by length, the lengths of one number of levels in one line, with what was asked; those wrong are named."""
    automaton, done = machine.automaton, 0
    can_end, of_class = reached(automaton, longest), np.eye(automaton.classes, dtype=int)[automaton.output]
    rows = [("lengths", "levels", "states", f"answers {'/'.join(map(str, range(automaton.classes)))}", "errors")]
    for (levels, length), asked in zip(passes(machine, longest), found.asked, strict=True):
        rows.append((f"{done + 1:,} to {length:,}", str(levels),
                     f"{(asked > 0).sum()} of {can_end[done + 1:length + 1].any(axis=0).sum()}",
                     "/".join(map(str, asked @ of_class)), errors_of(found.by_length[done:length], done + 1)))
        done = length
    asked, there = found.asked.sum(axis=0), can_end[1:].any(axis=0)
    answers = ", ".join(f"{number}: {count:,}" for number, count in enumerate(asked @ of_class))
    said = (f"asked about {(asked > 0).sum()} of the {there.sum()} states that these words can end in, each at least "
            f"{asked[there].min():,} times; answers {answers}")
    return f"{columns(rows, {1}, room())}\n{wrapped(said)}"


def errors_of(by_length, first: int) -> str:
    """How many errors, and at which lengths, of which the first has the number `first`; eight are named."""
    wrong = np.flatnonzero(by_length)
    named = [f"{first + i:,}: {by_length[i]}" for i in wrong[:8]] + ["..."] * (wrong.size > 8)
    return f"{by_length.sum():,} (at length {', '.join(named)})" if named else "0"


def plan(options) -> tuple:
    """(recipe, states before minimising, directory).  Raises Usage."""
    name, given = source(options)
    switches = {x: options[x] for x in ("chunk", "norm", "activation", "out_of_range") if x in options}
    try:
        with in_options(switches):
            recipe = CompiledAutomaton(name=name, table=to_table(given.minimal()), expression=options.get("regex", ""),
                                       seed=options["seed"], **switches)
            fits(recipe.build(), options["dtype"])
    except MemoryError as error:
        raise Usage(f"{name} has {recipe.automaton.states} states: {error}") from None
    out = Path(options["out"]) if "out" in options else new(f"compiled-{name}-{time.strftime('%Y%m%d-%H%M%S')}")
    writable(out)
    if any(out.glob("*/recipe.json")):
        raise Usage(f"--out is {str(out)!r}, which holds runs already; allowed: another directory")
    return recipe, given.states, out


def run(argv) -> int:
    """Compile; 1 if the weights are wrong somewhere."""
    options, start = DEFAULTS | parser().parse(joined(argv)), time.perf_counter()
    longest, count, dtype = options["max_length"], options["words"], options["dtype"]
    recipe, states, out = plan(options)
    runs.begin(out, recipe)
    machine = compiled(recipe.automaton, dtype=dtype, **recipe.switches)
    runs.save_checkpoint(out, recipe, machine.model.parameters(), {"parameters": machine.flat}, 0, 0.0)
    say(recipe, machine, states)
    found = read(machine, recipe.seed, count, longest, out)
    document = {"errors": int(found.by_length.sum()), "errors_at_all_positions": found.elsewhere,
                "answers": found.answers, "margin": found.margin, "words": count, "max_length": longest}
    write_json(out / "result.json", {
        **runs.describe(recipe), "name": recipe.name, "step": 0, "metrics": {"words": document},
        "parameters": machine.flat.size, "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(time.process_time(), 1), "device": "cpu", "workers": 1, "dtype": dtype, **environment()})
    if "json" in options:
        print(json.dumps({"name": recipe.name, "out": str(out), **plain(document),
                          "by_length": found.by_length.tolist(), "asked": found.asked.tolist()}, indent=1))
    else:
        print(report(machine, found, longest))
        print(wrapped(f"{document['errors']:,} errors in {count} words of each length 1 to {longest:,}, "
                      f"{found.elsewhere:,} at all {found.answers:,} positions read; least margin {found.margin:.6g}"))
    print(f"the checkpoint is in {out}", file=sys.stderr)
    return 1 if found.elsewhere else 0


def joined(argv) -> list[str]:
    """The command line with what follows --regex or --alphabet put behind a sign of equality: it may begin with -."""
    found, rest = [], iter(argv)
    for word in rest:
        value = next(rest, None) if word in ("--regex", "--alphabet") else None
        found.append(word if value is None else f"{word}={value}")
    return found


def say(recipe, machine, states: int) -> None:
    """What was compiled, and what of it may surprise, on standard error."""
    automaton, model = recipe.automaton, machine.model
    print(wrapped(f"{recipe.name}: {states} states, {automaton.states} when minimal; symbols "
                  f"{' '.join(automaton.symbols)}; chunk {recipe.chunk}, width {model.attention.width:,}, "
                  f"{model.feed_forward.hidden:,} hidden units, {machine.flat.size:,} parameters"), file=sys.stderr)
    if len(only := np.unique(automaton.output)) == 1:
        print(f"each word has class {only[0]}: the language is {'everything' if only[0] else 'empty'}", file=sys.stderr)
    if recipe.out_of_range == "mask":
        print(wrapped(f"mask: a reset, token {automaton.vocabulary}, stands before every word; the model that "
                      f"refattn.load makes puts it there"), file=sys.stderr)


def read(machine, seed: int, count: int, longest: int, out):
    """The errors, with a bar if they take more than two seconds; at Ctrl-C the checkpoint stays."""
    try:
        tokens = walked(machine, np.random.default_rng(seed), count, longest)
        with progress_bar(progress=True, total=positions(machine, longest), delay=2, desc="reading", unit="position",
                          leave=False) as bar:
            return errors(machine, tokens, bar.update)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped before all lengths were read; the checkpoint is in {out}") from None
