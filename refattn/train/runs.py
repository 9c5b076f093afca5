"""Run directories: what a training run leaves on disk, and how it is read back.

    lock             empty; locked by the process that trains
    recipe.json      the settings, and the commit that began it, written before all that follows
    metrics.jsonl    one line per log point: step, mean loss since the last, rate; and at evaluations the metrics
    checkpoint.npz   parameters and both moments as flat arrays, their layout, the step; no pickle
    best.npz         parameters at the best evaluation, where the recipe says which that is
    result.json      final metrics, seconds, machine, versions: its presence says that the run is complete
    error.txt        why the run failed, until a resumed one gets beyond its last checkpoint
    curves.png       where matplotlib is installed

Every file but metrics.jsonl appears whole or not at all (temporary name, sync, rename); lines of metrics.jsonl past the
checkpoint are dropped on resume.  So a run may be killed at any moment and goes on from its last checkpoint.
"""

import json
import os
import reprlib
import sys
import time
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np

from .. import __version__, params
from ..files import named, whole_file
from .json_files import commit, plain, read_json, write_json

__all__ = ["find", "lines", "load", "read_recipe", "result"]

try:
    import fcntl
except ImportError:            # Windows
    fcntl = None               # type: ignore[assignment]

CHECKPOINT, BEST, ERROR = "checkpoint.npz", "best.npz", "error.txt"
PARTS = CHECKPOINT, "metrics.jsonl", "result.json"          # of a run, beside its recipe
EVALUATED = "evaluated.tmp"    # how far the last evaluation is, for who draws bars of several runs
ARRAYS = "parameters", "first", "second", "loss_sum"       # of a checkpoint


def describe(recipe) -> dict:
    """A recipe as recipe.json has it."""
    return {"refattn": __version__, "task": recipe.TASK, "fields": plain(asdict(recipe))}


def completed(recipe, theirs):
    """Fields written with a recipe, and the default of every one that came in later; none at all of what is no dict."""
    if not isinstance(theirs, dict):
        return {}
    return {**{f.name: plain(f.default) for f in fields(recipe)}, **theirs}


def check_recipe(path, name: str, recipe, theirs) -> None:
    """Raises ValueError unless the fields in the file of that name are the recipe's."""
    if completed(recipe, theirs) != describe(recipe)["fields"]:
        raise ValueError(f"{Path(path, name)} was written by another recipe than {path}/recipe.json; allowed: that one")


def begin(path, recipe, resume: bool = False) -> None:
    """Make the directory and write recipe.json; with `resume` a run of the same recipe may be there already.

    Raises ValueError when another run is there, OSError when the directory cannot be written.
    """
    file = Path(path, "recipe.json")
    os.makedirs(path, exist_ok=True)
    if not file.exists():
        with locked(path):                                  # another process may begin here too
            parts = [name for name in PARTS if Path(path, name).exists()]
            if parts and not resume:
                raise ValueError(f"out is {str(path)!r}, which holds {', '.join(parts)}; allowed: another directory")
            if not file.exists():
                write_json(file, {**describe(recipe), "commit": commit()})
                return
    if not resume:
        raise ValueError(f"out is {str(path)!r}, which holds a run already; allowed: another directory, or resuming it")
    theirs, ours = completed(recipe, read_json(file).get("fields")), describe(recipe)["fields"]
    for name, value in ours.items():
        if theirs.get(name) != value:
            raise ValueError(f"{name} is {value!r}, but a resumed run keeps its recipe; allowed in {path}: "
                             f"{theirs.get(name)!r}, or another directory")


@contextmanager
def locked(path, patience: float = 10.0):
    """One process at a time writes a run; the lock goes with its process, however that ends (not on Windows).

    Raises ValueError when another process still has it after `patience` seconds.
    """
    with open(Path(path, "lock"), "w", encoding="utf-8") as file:
        deadline = time.monotonic() + patience
        while fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ValueError(f"{str(path)!r} is being trained by another process; allowed: one at a "
                                     f"time") from None
                time.sleep(0.05)
        yield


def at_work(path) -> bool:
    """Whether a process trains the run right now; False where the system has no locks to ask."""
    file = Path(path, "lock")
    if fcntl is None or not file.exists():
        return False
    with open(file, encoding="utf-8") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def append(path, line: dict) -> None:
    """Add one line to metrics.jsonl, on disk before the next checkpoint can be."""
    with named(file := Path(path, "metrics.jsonl")), open(file, "a", encoding="utf-8") as opened:
        opened.write(json.dumps(plain(line)) + "\n")
        opened.flush()
        os.fsync(opened.fileno())


def number(x) -> bool:
    """Whether it is one that a clock or a loss can have: finite, and no boolean."""
    return type(x) in (int, float) and abs(x) < 1e308       # a whole number may be beyond every float


def metrics(x) -> bool:
    """Whether it is what is measured in a split: {metric: number or None}."""
    return isinstance(x, dict) and all(value is None or number(value) for value in x.values())


def whole_line(text: str) -> dict | None:
    """A line of metrics.jsonl; None if it is damaged."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or type(line.get("step")) is not int or not text.endswith("\n"):
        return None
    whole = (all(number(line.get(name)) for name in ("step", "loss", "rate"))
             and all(number(x) or metrics(x) for x in line.values()))
    return line if whole else None


def lines(path) -> list[dict]:
    """The lines of metrics.jsonl, without those that are damaged; a writer that was killed leaves half a last one."""
    return [line for line in map(whole_line, _texts(path)) if line is not None]


def measured(found: list[dict], split: str, metric: str) -> dict:
    """{step: value} of a metric, from lines of metrics.jsonl."""
    return {line["step"]: line[split][metric] for line in found if line.get(split, {}).get(metric) is not None}


def _texts(path) -> list[str]:
    file = Path(path, "metrics.jsonl")
    return file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True) if file.exists() else []


def tidy(path, step: int) -> None:
    """Keep the lines of metrics.jsonl up to `step`, and no temporary file of a writer that was killed."""
    for leftover in Path(path).glob("*.tmp"):
        leftover.unlink(missing_ok=True)
    damaged = [str(n) for n, text in enumerate(_texts(path)[:-1], 1) if whole_line(text) is None]
    if damaged:
        print(f"refattn: {path}/metrics.jsonl, line {', '.join(damaged)}: damaged and left out", file=sys.stderr)
    with whole_file(Path(path, "metrics.jsonl")) as file:
        file.writelines(json.dumps(line) + "\n" for line in lines(path) if line["step"] <= step)


def save_checkpoint(path, recipe, parameters, arrays: dict, step: int, seconds: float,
                    cpu_seconds: float = 0.0, name: str = CHECKPOINT) -> None:
    """Replace checkpoint.npz (or `name`), or leave the old one as it is when that fails."""
    params.save(Path(path, name), parameters, arrays, step=step, seconds=seconds, cpu_seconds=cpu_seconds,
                recipe=describe(recipe), data=recipe.data_read())


def load_checkpoint(path, recipe, parameters, which: str = CHECKPOINT, resuming: bool = True) -> tuple[dict, dict]:
    """(arrays, meta): the arrays of `ARRAYS` (parameters alone for 0 steps, and in best.npz), and step and seconds.

    Raises ValueError, one line, when it is truncated, foreign, of another recipe, or of other data than are there now
    (`resuming` False: data without which its numbers mean nothing); FileNotFoundError without one.
    """
    file = Path(path, which)
    if which == CHECKPOINT and not file.exists() and (begun := lines(path)):
        raise ValueError(f"{file} is missing, but metrics.jsonl goes to step {begun[-1]['step']}; allowed: both, "
                         f"or neither: without {path} the other runs go on")
    arrays, meta = params.load(file, parameters)
    n = params.count(parameters)
    for name in ARRAYS if recipe.steps and which != BEST else ARRAYS[:1]:
        shape = () if name == "loss_sum" else (n,)
        if name not in arrays or arrays[name].shape != shape or arrays[name].dtype.kind != "f":
            raise ValueError(f"{file} is not a complete refattn checkpoint ({name} of shape {shape} is missing)")
        low = " or below 0" * (name == "second")
        if not np.isfinite(arrays[name]).all() or (low and arrays[name].min() < 0):
            raise ValueError(f"{file} has entries of {name} that are not finite{low}; allowed: finite numbers")
    step, theirs = meta.get("step"), meta.get("recipe")
    check_recipe(path, which, recipe, theirs.get("fields") if isinstance(theirs, dict) else None)
    if (now := recipe.data_read(resuming)) and meta.get("data") not in (None, now):
        raise ValueError(f"{file} was trained on {meta['data']}, but now there is {now}; allowed: the former")
    if type(step) is not int or not 0 <= step <= recipe.steps:
        raise ValueError(f"{file} is of step {step!r}; allowed: steps from 0 to {recipe.steps}")
    for name in "seconds", "cpu_seconds":
        if not number(meta.get(name, 0)) or meta.get(name, 0) < 0:
            raise ValueError(f"{file} has {name} {meta[name]!r}; allowed: numbers from 0")
    return arrays, meta


RESULT = {"task": lambda x: isinstance(x, str), "name": lambda x: isinstance(x, str),
          "fields": lambda x: isinstance(x, dict), "step": lambda x: type(x) is int and x >= 0,
          "seconds": lambda x: number(x) and x >= 0,        # metrics are of one split at least, none of them empty
          "metrics": lambda x: isinstance(x, dict) and bool(x) and all(part and metrics(part) for part in x.values())}


def result(path, recipe=None) -> dict | None:
    """result.json, or None while the run is not complete.

    Raises ValueError when something is missing from it, or it is of another recipe than the one given.
    """
    file = Path(path, "result.json")
    if not file.exists():
        return None
    found = read_json(file)
    for name, good in RESULT.items():
        if not good(found.get(name)):
            raise ValueError(f"{file} is no result of a run (its {name} is {reprlib.repr(found.get(name))})")
    if recipe is not None:
        check_recipe(path, "result.json", recipe, found["fields"])
        if found["step"] != recipe.steps:
            raise ValueError(f"{file} is of step {found['step']}; allowed: {recipe.steps}")
        found["fields"] = completed(recipe, found["fields"])
    return found


def find(path) -> list[Path]:
    """The run directories at or right below `path`, in the order in which they were begun.

    Raises ValueError when there is none, or one that has lost its recipe.json.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ValueError(f"path is {path!r}; allowed: the name of a run directory, or a Path")
    if Path(path, "recipe.json").exists():
        return [Path(path)]
    found = sorted(Path(path).glob("*/recipe.json"), key=lambda file: (file.stat().st_mtime_ns, file))
    begun = {file.parent for name in PARTS for file in Path(path).glob(f"*/{name}")}
    if lost := sorted(begun.difference(file.parent for file in found)):
        raise ValueError(f"{str(lost[0])!r} holds parts of a run and no recipe.json; allowed: a run that is whole")
    if not found:
        raise ValueError(f"{str(path)!r} holds no run; allowed: one with recipe.json in it, or right above such ones")
    return [file.parent for file in found]


def only(path) -> Path:
    """The one run directory at or right below `path`.  Raises ValueError where there is none, or are several."""
    first, *more = find(path)
    if more:
        raise ValueError(f"{str(path)!r} holds {len(more) + 1} runs; allowed: one of them, such as {first}")
    return first


def read_recipe(path):
    """The recipe of a run directory.  Raises ValueError when it is not one of ours."""
    from .. import recipes  # the one look upwards: a run names its recipe
    file = Path(path, "recipe.json")
    if not file.exists():
        raise ValueError(f"{str(path)!r} holds no run; allowed: a directory with recipe.json in it")
    return recipes.from_document(read_json(file), file)


def load(path, *, best: bool = False):
    """(recipe, model, parameters) of a run directory, at its last checkpoint: `evaluate(*load(path), "held_out")`.

    path : of the run, or right above it, if there is no other
    best : at the best of its evaluations instead, where the recipe says what that is (CHOSEN_BY)
    Raises ValueError, one line, when there is no run, are several or its checkpoint is truncated or foreign.
    """
    path = only(path)
    recipe = read_recipe(path)
    model = recipe.build()
    listed = model.parameters()
    try:
        arrays, _ = load_checkpoint(path, recipe, listed, BEST if best else CHECKPOINT, resuming=False)
    except FileNotFoundError:
        why = f"{BEST}; none of its evaluations was kept" if best else f"{CHECKPOINT}; the run has not started"
        raise ValueError(f"{str(path)!r} has no {why}; allowed: a run that has one") from None
    return recipe, model, params.view(arrays["parameters"], listed)
