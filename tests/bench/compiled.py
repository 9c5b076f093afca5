"""Compiled automata read words of every length: python -m tests.bench.compiled FILE writes the record.

What it writes is kept in refattn/reproduce/records/compiled_automata.json.  Ten minutes on one thread, most of them
for the 25 states of Modular Arithmetic; --quick leaves those out.
"""

import json
import sys
import time

import numpy as np
from threadpoolctl import threadpool_limits

from refattn.automata.compiled import compiled
from refattn.automata.exactness import errors
from refattn.automata.finite import random_automaton
from refattn.files import whole_file
from refattn.tasks.languages import LANGUAGES
from refattn.train.json_files import environment

MOST_UNITS = 50_000            # n^(C+1) at most: chunk 4 up to 8 states, chunk 3 up to 14
SWITCHES = {
    "as constructed": {},
    "released: post-LN, relu, scaled embeddings": {"norm": "post", "embedding_scale": True},
    "GPT-2: pre-LN, gelu": {"norm": "pre", "activation": "gelu"},
    "mask, post-LN": {"out_of_range": "mask", "norm": "post"},
    "mask, pre-LN, exact gelu": {"out_of_range": "mask", "norm": "pre", "activation": "gelu_exact"},
}
QUICK_STATES = 6


def words(automaton, draw, rng, count: int, length: int):
    """(count, length) tokens: uniformly random, and of a known language half of them as its task draws members."""
    tokens = rng.integers(automaton.vocabulary, size=(count, length))
    if draw is not None:
        drawn = draw(rng, (count + 1) // 2, length + length % 2)        # D_n has members of even length
        tokens[:len(drawn)] = drawn[:, :length]
    return tokens


def line(automaton, name, chunk, switches, dtype, longest, count, seed=0):
    """One row of the record."""
    start = time.perf_counter()
    draw = LANGUAGES[name].draw if name in LANGUAGES else None
    machine = compiled(automaton, chunk, dtype=dtype, **SWITCHES[switches])
    found = errors(machine, words(automaton, draw, np.random.default_rng(seed), count, longest))
    return {"name": name, "states": automaton.states, "chunk": chunk, "switches": switches,
            "dtype": str(np.dtype(dtype)), "hidden": machine.model.feed_forward.hidden, "parameters": machine.flat.size,
            "lengths": [1, longest], "words": count, "errors": int(found.by_length.sum()), "positions": found.answers,
            "errors_at_all_positions": found.elsewhere, "margin_from_1": abs(1 - found.margin),
            "seconds": round(time.perf_counter() - start, 1)}


def languages(quick: bool):
    """Rows of the twelve: C = 2 to 4,096; other chunks, norms and edges to 600."""
    for name, row in LANGUAGES.items():
        automaton, n = row.automaton, row.automaton.states
        if quick and n > QUICK_STATES:
            continue
        dtype = np.float64 if n <= QUICK_STATES else np.float32
        yield line(automaton, name, 2, "as constructed", dtype, 600, 4 if n < 25 else 2)
        yield line(automaton, name, 2, "as constructed", dtype, 4096, 2)
        for chunk in 3, 4:
            if n**(chunk + 1) <= MOST_UNITS:
                yield line(automaton, name, chunk, "as constructed", dtype, 600, 4)
        for switches in list(SWITCHES)[1:]:
            if n <= QUICK_STATES:
                yield line(automaton, name, 2, switches, dtype, 600, 4)
                yield line(automaton, name, 2, switches, np.float32, 600, 4)
                yield line(automaton, name, 3, switches, dtype, 600, 2)


def random_ones(count: int) -> dict:
    """All of the random automata in one row: switches in turn, chunk 2 at lengths to 600, chunk 3 to 100."""
    rows, start = [], time.perf_counter()
    for seed in range(count):
        rng = np.random.default_rng(seed)
        automaton = random_automaton(rng, 1 + seed % 8, int(rng.integers(1, 4)), int(rng.integers(2, 4)))
        switches = list(SWITCHES)[seed % len(SWITCHES)]
        rows.append(line(automaton, f"random {seed}", 2, switches, np.float64, 600, 2, seed))
        rows.append(line(automaton, f"random {seed}", 3, switches, np.float64, 100, 2, seed))
    return {"automata": count, "states": [1, 8], "symbols": [1, 3], "classes": [2, 3],
            "errors": sum(row["errors"] for row in rows), "positions": sum(row["positions"] for row in rows),
            "errors_at_all_positions": sum(row["errors_at_all_positions"] for row in rows),
            "margin_from_1": max(row["margin_from_1"] for row in rows),
            "seconds": round(time.perf_counter() - start, 1)}


def main(argv) -> None:
    """Write the record to the file that is named."""
    quick = "--quick" in argv
    file, = (word for word in argv if word != "--quick")
    with threadpool_limits(1, "blas"):
        rows = []
        for row in languages(quick):
            rows.append(row)
            print(row, flush=True)
        found = random_ones(20 if quick else 200)
        print(found, flush=True)
    record = {
        "what": "errors of compiled automata against the automata, at every length of a range and at every position of "
                "every causal pass; words are uniformly random, and half of a language's as its task draws "
                "members; margin_from_1: the largest distance of the least margin from 1; seconds are of one thread "
                "on a shared two-core machine",
        "command": "python -m tests.bench.compiled FILE", "most_units": MOST_UNITS, "switches": SWITCHES,
        **environment()}
    top = json.dumps(record, indent=1)[:-2]
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    with whole_file(file) as out:
        out.write(f'{top},\n "random": {json.dumps(found)},\n "languages": [\n{lines}\n ]\n}}\n')


if __name__ == "__main__":
    main(sys.argv[1:])
