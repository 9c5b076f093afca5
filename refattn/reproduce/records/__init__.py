"""Recorded runs: what finished run directories say, many in one small file of `reproduce/records/`.

    refattn reproduce --record FILE DIR... [--what TEXT]

collects them: every finished run at or right below each DIR is added to FILE, which may hold others already.

    task      of all runs                          what      one sentence
    fields    the recipe's, as far as all runs share them
    runs      name, fields (the others, the seed among them), step, parameters, metrics {split: {metric: value}},
              seconds (wall clock), cpu_seconds, device, commit, platform, processor, cores, blas (its kernels),
              versions, history {column: values, of at most 20 evaluations}
    varied    settings of training in which runs of one name may differ, as in a grid: none unless they stand here

Anything else at the top of a file is kept as it is; a file without `runs` is no record of runs.
"""

import json
from dataclasses import fields
from pathlib import Path

from ...files import whole_file
from ...recipes import RECIPES, Recipe, from_document
from ...train import progress_bar, runs
from ...train.json_files import read_json

__all__ = ["collect", "load", "names"]

RECORDS = Path(__file__).parent
KEPT = ("step", "parameters", "metrics", "seconds", "cpu_seconds", "device", "commit", "platform", "processor", "cores",
        "blas", "versions")                        # of result.json; older runs lack some
POINTS = 20                                        # of a history, at most


def history(lines: list[dict]) -> dict:
    """{column: values} of the lines of metrics.jsonl that have an evaluation: every n-th, so that at most POINTS stay.

    Columns are step, loss (mean since the last line) and SPLIT.METRIC; four significant digits.

    >>> history([{"step": 5, "loss": 2.0}, {"step": 10, "loss": 1.23456, "train": {"mse": 0.5}}])
    {'step': [10], 'loss': [1.235], 'train.mse': [0.5]}
    """
    points = [line for line in lines if any(isinstance(value, dict) for value in line.values())]
    every, columns = max(1, -(-len(points) // POINTS)), {}
    for line in points[(len(points) - 1) % every::every]:
        flat = {"step": line["step"], "loss": line["loss"]}
        for split, metrics in line.items():
            if isinstance(metrics, dict):
                flat.update({f"{split}.{metric}": value for metric, value in metrics.items()})
        for name, value in flat.items():
            columns.setdefault(name, []).append(float(f"{value:.4g}") if isinstance(value, float) else value)
    return columns


def read_run(path) -> dict | None:
    """A finished run directory as an entry of a record, with all its fields; None while the run is not complete.

    Raises ValueError for one that was not trained.
    """
    recipe = runs.read_recipe(path)
    done = runs.result(path, recipe)
    if done is None:
        return None
    if recipe.TASK not in RECIPES:
        raise ValueError(f"{path} is of {recipe.TASK}; allowed: runs of {', '.join(RECIPES)}")
    return {"task": recipe.TASK, "name": done["name"], "fields": runs.describe(recipe)["fields"],
            **{name: done[name] for name in KEPT if name in done}, "history": history(runs.lines(path))}


def with_histories(outcomes) -> list[dict]:
    """Finished fresh runs with all that an entry of a record has."""
    return [{**run, **(read_run(run["path"]) or {})} for run in outcomes]


def load(name) -> dict:
    """A record by its path, or by its name in `reproduce/records/`; every run has all its fields, and its task.

    Raises ValueError when there is none of that name, or the file is none.
    """
    path = Path(name) if str(name).endswith(".json") else RECORDS / f"{name}.json"
    if not path.exists():
        raise ValueError(f"record {str(name)!r} does not exist; allowed: {', '.join(names())}, or the path of a file")
    record = read_json(path)
    if not _is_record(record):
        raise ValueError(f"{path} is no record of runs; allowed: a task, fields and runs")

    def whole(run):                                         # a field that came in after it has its default
        recipe = from_document({"task": record["task"], "fields": record["fields"] | run["fields"]}, path)
        return {"task": recipe.TASK, **run, "fields": runs.describe(recipe)["fields"]}

    return {**record, "runs": [whole(run) for run in record["runs"]]}


def _is_record(x: dict) -> bool:
    return (isinstance(x.get("task"), str) and x["task"] in RECIPES and isinstance(x.get("fields"), dict)
            and isinstance(x.get("runs"), list) and all(isinstance(run, dict) and isinstance(run.get("name"), str)
                                                        and isinstance(run.get("fields"), dict) for run in x["runs"]))


def names() -> list[str]:
    """Of the files in `reproduce/records/` that hold runs."""
    return [path.stem for path in sorted(RECORDS.glob("*.json")) if isinstance(read_json(path).get("runs"), list)]


def recorded(wanted) -> list[dict]:
    """The runs of those of the named records that exist, each with its record and what that says of `fixed_before`."""
    found = {name: load(name) for name in wanted if (RECORDS / f"{name}.json").exists()}
    return [{**run, "record": name, "fixed_before": record.get("fixed_before")}
            for name, record in found.items() for run in record["runs"]]


SETTINGS = {f.name for f in fields(Recipe)} - {"seed"}        # of training, whatever the task and the model


def merged(record: dict, found: list[dict]) -> dict:
    """The record with these runs in it; a run that it has already, with the same fields, is replaced.

    Raises ValueError for a run of another task, or of a recorded name but trained otherwise than by what is `varied`.
    """
    task, same = record.get("task", found[0]["task"]), sorted(SETTINGS - {*record.get("varied", ())})
    named, all_runs = {}, {}                                # the first of each name, with which all others agree
    for run in [*record.get("runs", ()), *found]:
        if run["task"] != task:
            raise ValueError(f"{run['name']} is of {run['task']}, but the record is of {task}; allowed: another file")
        other = named.setdefault(run["name"], run)
        for name in same:
            if run["fields"][name] != other["fields"][name]:
                raise ValueError(f"{run['name']} has {name} {run['fields'][name]!r}, but the recorded run of that name "
                                 f"has {other['fields'][name]!r}; allowed: another file, or {name} in varied")
        all_runs[run["name"], json.dumps(run["fields"])] = run
    return {"task": task, "what": "", "fields": {}, **record, "runs": [all_runs[key] for key in sorted(all_runs)]}


def write(path, record: dict) -> None:
    """Write a record with whole runs: fields that all share move to its top; one line for each field and each run."""
    first, *rest = record["runs"]
    shared = {name: value for name, value in first["fields"].items()
              if name != "seed" and all(run["fields"].get(name) == value for run in rest)}
    lines = []
    for run in record["runs"]:
        own = {name: value for name, value in run["fields"].items() if name not in shared}
        lines.append(json.dumps({name: own if name == "fields" else x for name, x in run.items() if name != "task"}))
    top = {name: value for name, value in record.items() if name not in ("runs", "fields")}
    with whole_file(path) as file:
        file.write("{\n" + entries(top, " ") + ',\n "fields": {\n' + entries(shared, "  ") + '\n },\n "runs": [\n  '
                   + ",\n  ".join(lines) + "\n ]\n}\n")


def entries(values: dict, indent: str) -> str:
    """The inside of a JSON object, a line for each entry."""
    return ",\n".join(f"{indent}{json.dumps(name)}: {json.dumps(value)}" for name, value in values.items())


def collect(file, sources, what: str | None = None, read=read_run) -> tuple[int, list[str]]:
    """Add the finished runs at or right below each source to a record; returns how many, and who is not finished.

    `read` makes an entry of a run directory, None while the run is not complete.  Copies of a run count once.

    The file appears whole or stays as it was.  Raises ValueError for a source without runs, and as `merged` does.
    """
    file = Path(file)
    record = load(file) if file.exists() else {}
    paths = [path for source in sources for path in runs.find(source)]
    found = {path: read(path) for path in progress_bar(paths, progress=True, unit="run", delay=2, leave=False)}
    done = {(run["name"], json.dumps(run["fields"])): run for run in found.values() if run is not None}
    if what is not None:
        record["what"] = what
    if done:
        write(file, merged(record, [*done.values()]))
    return len(done), [str(path) for path, run in found.items() if run is None]
