"""`refattn compile`: from a language, a table or a regular expression to a checkpoint, and its errors by length."""

import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .comparison import columns
from .options import Parser, Usage, as_option, flag, whole, writable

DTYPES = "float32", "float64"


def parser() -> Parser:
    """The options of `compile`."""
    from ..automata.compiled import ACTIVATIONS
    from ..layers.block import NORMS
    from ..tasks.languages import LANGUAGES
    p = Parser("refattn compile", "A finite automaton as exact weights of a RegularGPT, in a run directory that "
               "refattn.load reads, and its errors on words of every length.")
    p.add_argument("--language", metavar="NAME", help=", ".join(LANGUAGES))
    p.add_argument("--table", metavar="FILE", help="a line 'state output', then the symbols; then a line for each "
                   "state: its name, its class (0, 1, ...), the next state for each symbol; the first is the start")
    p.add_argument("--regex", metavar="R", help="words that match are of class 1, others of 0; needs refattn[automata]")
    p.add_argument("--alphabet", metavar="ABC", help="the symbols of --regex (default: 01)")
    p.add_argument("--chunk", type=whole, metavar="C", help="keys that a query sees (default: 2)")
    p.add_argument("--norm", choices=NORMS, help="LayerNorm (default: none)")
    p.add_argument("--activation", choices=ACTIVATIONS, help="default: relu")
    p.add_argument("--out-of-range", choices=("pad", "mask"), help="before the first token (default: pad)")
    p.add_argument("--dtype", choices=DTYPES, help="default: float32")
    p.add_argument("--max-length", type=whole, metavar="T", help="errors are reported up to here (default: 600)")
    p.add_argument("--words", type=whole, metavar="N", help="of each length that are read (default: 4)")
    p.add_argument("--seed", type=whole, metavar="S", help="of these words (default: 0)")
    p.add_argument("--out", metavar="DIR", help="where to (default: a new directory below runs/)")
    p.add_argument("--json", action="store_true", help="print one JSON document instead of the table")
    return p


def source(options):
    """(name, automaton) that the options ask for, and how its members are drawn, None where nobody knows."""
    from ..automata import reading
    from ..recipes import unknown
    from ..tasks.languages import LANGUAGES
    given = [name for name in ("language", "table", "regex") if name in options]
    if len(given) != 1:
        raise Usage(f"{'--' + ' and --'.join(given) if given else 'no automaton'} given; exactly one of --language, "
                    f"--table, --regex is needed")
    if "alphabet" in options and "regex" not in options:
        raise Usage(f"--alphabet is {options['alphabet']!r}, allowed with --regex only")
    if "language" in options:
        name = options["language"].replace("-", "_")
        if name not in LANGUAGES:
            raise Usage(unknown("--language", name, list(LANGUAGES)))
        return name, LANGUAGES[name].automaton, LANGUAGES[name].draw
    try:
        if "table" in options:
            return Path(options["table"]).stem, reading.read_table(options["table"]), None
        return "regex", reading.from_regex(options["regex"], options.get("alphabet", "01")), None
    except OSError as error:
        raise Usage(f"--table is {options['table']!r}, which cannot be read ({error.strerror})") from None
    except (RuntimeError, ValueError) as error:
        raise Usage(f"--{given[0]}: {error}") from None


def words(automaton, draw, rng, count: int, length: int):
    """(count, length) tokens: uniformly random, and of a known language half of them as its task draws members."""
    tokens = rng.integers(automaton.vocabulary, size=(count, length))
    if draw is not None:
        drawn = draw(rng, (count + 1) // 2, length + length % 2)        # D_n has members of even length
        tokens[:len(drawn)] = drawn[:, :length]
    return tokens


def number(options, name, default, least, most):
    """A whole number of the options.  Raises Usage."""
    value = options.get(name, default)
    if not least <= value <= most:
        raise Usage(f"{flag(name)} is {value}, allowed are whole numbers from {least:,} to {most:,}")
    return value


def report(machine, found, longest: int) -> str:
    """Errors by length, the lengths of one number of levels in one line, those with errors named."""
    from ..automata.exactness import passes
    rows, done = [("lengths", "levels", "errors")], 0
    for levels, length in passes(machine, longest):
        part = found.by_length[done:length]
        wrong = [f"{done + 1 + i:,}: {part[i]}" for i in np.flatnonzero(part)[:8]]
        rows.append((f"{done + 1:,} to {length:,}", str(levels), f"{part.sum():,}" + (
            f" (at length {', '.join(wrong)}{', ...' if (part > 0).sum() > 8 else ''})" if wrong else "")))
        done = length
    return columns(rows, right={1})


class Plan(NamedTuple):
    recipe: Any                # of the run directory
    states: int                # before minimising
    draw: Any                  # of members, or None
    dtype: Any
    longest: int
    count: int                 # of words
    out: Path


def plan(options) -> Plan:
    """What the options ask for, if it can be had.  Raises Usage."""
    from ..automata.compiled import fits
    from ..automata.reading import to_table
    from ..recipes.compiled_automaton import CompiledAutomaton
    longest, count = number(options, "max_length", 600, 1, 2**20), number(options, "words", 4, 1, 2**16)
    seed, dtype = number(options, "seed", 0, 0, 2**63 - 1), np.dtype(options.get("dtype", "float32"))
    name, given, draw = source(options)
    switches = {x: options[x] for x in ("chunk", "norm", "activation", "out_of_range") if x in options}
    try:
        recipe = CompiledAutomaton(name=name, table=to_table(given.minimal()), seed=seed, **switches)
        fits(recipe.build(), dtype)
    except ValueError as error:
        raise Usage(as_option(error, switches)) from None
    except MemoryError as error:
        raise Usage(f"{name} has {recipe.automaton.states} states: {error}") from None
    out = Path(options.get("out") or Path("runs", time.strftime(f"compiled-{name}-%Y%m%d-%H%M%S")))
    writable(out)
    if (out / "recipe.json").exists():
        raise Usage(f"--out is {str(out)!r}, which holds a run already; allowed: another directory")
    return Plan(recipe, given.states, draw, dtype, longest, count, out)


def run(argv) -> int:
    """Compile; 1 if the weights are wrong somewhere."""
    from ..automata.compiled import compiled
    from ..train import runs
    from ..train.json_files import environment, plain, write_json
    options, start = parser().parse(argv), time.perf_counter()
    recipe, states, draw, dtype, longest, count, out = plan(options)
    runs.begin(out, recipe)
    automaton = recipe.automaton
    machine = compiled(automaton, dtype=dtype, **recipe.switches)
    model, size = machine.model, machine.flat.size
    runs.save_checkpoint(out, recipe, model.parameters(), {"parameters": machine.flat}, 0, 0.0)
    print(f"{recipe.name}: {states} states, {automaton.states} when minimal; symbols {' '.join(automaton.symbols)}; "
          f"chunk {recipe.chunk}, width {model.attention.width:,}, {model.feed_forward.hidden:,} hidden units, "
          f"{size:,} parameters", file=sys.stderr)
    found = read(machine, words(automaton, draw, np.random.default_rng(recipe.seed), count, longest), out)
    document = {"errors": int(found.by_length.sum()), "errors_at_all_positions": found.elsewhere,
                "answers": found.answers, "margin": found.margin, "words": count, "max_length": longest}
    write_json(out / "result.json", {
        **runs.describe(recipe), "name": recipe.name, "step": 0, "metrics": {"words": document}, "parameters": size,
        "seconds": round(time.perf_counter() - start, 1), "device": "cpu", "dtype": str(dtype), **environment()})
    if "json" in options:
        print(json.dumps({"name": recipe.name, "out": str(out), **plain(document),
                          "by_length": found.by_length.tolist()}, indent=1))
    else:
        print(report(machine, found, longest))
        print(f"{document['errors']:,} errors in {count} words of each length 1 to {longest:,}, {found.elsewhere:,} at "
              f"all {found.answers:,} positions read; least margin {found.margin:.6g}")
    print(f"the checkpoint is in {out}", file=sys.stderr)
    return 1 if found.elsewhere else 0


def read(machine, tokens, out):
    """The errors, with a bar if they take more than two seconds; at Ctrl-C the checkpoint stays."""
    from tqdm import tqdm

    from ..automata.exactness import errors, positions
    try:
        with tqdm(total=positions(machine, tokens.shape[1]), delay=2, desc="reading", unit="position", leave=False,
                  file=sys.stderr, dynamic_ncols=True, mininterval=0.1 if sys.stderr.isatty() else 10) as bar:
            return errors(machine, tokens, bar.update)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped before all lengths were read; the checkpoint is in {out}") from None
