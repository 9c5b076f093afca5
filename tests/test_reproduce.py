"""`refattn reproduce`: rendered tables say what the recorded runs say, fresh runs are reused, statistics are right."""

import json
import math
import re
import shutil
import sys
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest

from refattn import cli
from refattn.recipes import RECIPES, recipe
from refattn.reproduce import published, records, statistics
from refattn.reproduce.all_tables import TABLES
from refattn.reproduce.table import Column, Row, Table, made_of, measured, put
from refattn.train import runs
from refattn.train.compare import HANDED_OUT, compare, train_all
from tests import readme_tables
from tests.tiny import final, tiny


def says(capsys, *words, status=0):
    assert cli.main(["reproduce", *words]) == status
    return capsys.readouterr()


# --- recorded --------------------------------------------------------------------------------------------------------

TRAINED = [table for table in TABLES.values() if isinstance(table, Table)]


@pytest.mark.parametrize("table", TRAINED, ids=lambda table: table.name)
def test_every_cell_is_recomputed_from_the_recorded_runs(table, capsys):
    """Cell by cell with NumPy from the files, not with the code that rendered them."""
    rows = [line.split("|")[1:-1] for line in says(capsys, table.name, "--format", "markdown").out.splitlines()
            if line.startswith("|")][2:]
    assert len(rows) == len(table.rows)
    documents = [json.loads((records.RECORDS / f"{name}.json").read_text()) for name in table.records
                 if (records.RECORDS / f"{name}.json").exists()]
    all_runs = [{**run, "fields": {**document["fields"], **run["fields"]}} for document in documents
                for run in document["runs"]]
    filled = 0
    for row, texts in zip(table.rows, rows, strict=True):
        texts = [text.strip() for text in texts]
        assert texts.pop(0) == row.label
        for at, (column, theirs) in enumerate(zip_longest(table.columns, row.paper)):
            fields = {**row.fields, **dict(column.fields)}
            values = np.array([run["metrics"][column.split][column.metric] for run in all_runs
                               if all(run["fields"].get(name) == value for name, value in fields.items())])
            said = texts.pop(0)
            filled += len(values)
            if not len(values):
                assert said == "never run"
            else:
                middle = column.extreme(values) if column.extreme else math.fsum(values) / len(values)
                spread = "" if column.extreme or len(values) == 1 else f" ± {values.std(ddof=1) / len(values)**0.5:.3f}"
                assert said == f"{middle:.3f}{spread} ({len(values)})"
            if any(any(other.paper[at:at + 1]) for other in table.rows):
                numbers = [float(x) for x in re.findall(r"[\d.]+", texts.pop(0))]
                np.testing.assert_allclose(numbers, [x for x in theirs or () if x is not None], atol=6e-4)
        assert not texts
    assert filled or not documents


@pytest.mark.parametrize("command, text", readme_tables.blocks(), ids=[c for c, _ in readme_tables.blocks()])
def test_the_tables_of_the_readme_are_what_the_command_prints(command, text):
    assert readme_tables.printed(command) == text, "run: python -m tests.readme_tables"


def test_there_are_such_tables():
    assert len(readme_tables.blocks()) >= 2


def test_paper_rows_are_those_of_the_paper():
    assert len(TABLES["table-a1-logic"].rows) == len(TABLES["table-a1-sraven"].rows) == 15      # row 11 in both orders
    assert len(TABLES["table-6"].rows) == sum(map(len, published.TABLE_6.values())) == 32
    assert len(TABLES["table-1"].rows) == 48
    for table in TRAINED:
        assert len({row.label for row in table.rows}) == len(table.rows)
        assert all(len(row.paper) <= len(table.columns) for row in table.rows)
        for row in table.rows:                              # a label says what is run
            if said := re.search(r"(\d+) retrievals?(?:, (\w+) scoring)?", row.label):
                assert (int(said[1]), said[2]) == (row.fields["retrievals"], said[2] and row.fields["scoring"])


# Of all numbers of a table, as it was last compared with its paper
SUMS = {"FIGURE_7": 78.7, "SORT_OF_CLEVR": 8022.01, "TABLE_1": 184.717, "TABLE_2": 29.728, "TABLE_2_OF_C": 1764.9,
        "TABLE_3": 5919.45, "TABLE_3_OF_C": 392.1, "TABLE_4": 22.91, "TABLE_6": 2544.85, "TABLE_A1": 124.6033,
        "TABLE_A2": 40.0729}


def test_figures_of_the_papers_are_as_they_were_compared():
    """A number that is changed by mistake changes its table's sum; after a change that is meant, compare the table."""
    tables = {name: repr(getattr(published, name)) for name in published.__all__ if re.match("TABLE|FIGURE|SORT", name)}
    assert {name: round(sum(map(float, re.findall(r"\d+\.?\d*", text))), 4) for name, text in tables.items()} == SUMS


def test_names_are_listed_with_the_runs_that_they_are_made_of(capsys):
    some, everything = says(capsys).out, says(capsys, "--all").out
    counts = {row["name"]: row["runs"] for row in json.loads(says(capsys, "--json").out)}
    for table in TABLES.values():
        line = rf"^{table.name} +{counts[table.name]}  {re.escape(table.title)}$"
        assert re.search(line, everything, re.M) and bool(re.search(line, some, re.M)) == (counts[table.name] > 0)
        notes = table.sheet(table.recorded()).notes
        if isinstance(table, Table) or table.name == "claims":
            made = re.search(r"(?:Made of|brackets;) (\d+) runs", " ".join(notes))
            assert counts[table.name] == (int(made[1]) if made else 0)
    assert f"nothing is recorded of {list(counts.values()).count(0)} others; refattn reproduce --all names them" in some


def test_the_time_of_a_table_is_that_of_a_core_where_its_records_have_it():
    run = {"fields": {"seed": 0}, "seconds": 9_000.0}
    assert made_of([{**run, "cpu_seconds": 3_600.0}] * 2) == "2 runs, seeds 0, 2.0 core-hours of training in all"
    assert made_of([{**run, "cpu_seconds": 9.0}, {**run, "seconds": 1.0}]) == (
        "2 runs, seeds 0, 10 core-seconds of training in all; runs timed by wall clock: 1")


@pytest.mark.parametrize("name", ["table-a1-logic", "claims", "table-a2", "esbn"])
def test_rows_of_which_nothing_was_run_are_left_out_and_counted(name, capsys):
    sheet = TABLES[name].sheet(TABLES[name].recorded())
    ours = [2] if name == "claims" else [i for i, x in enumerate(sheet.headings) if i and x != "paper"]
    empty = [row for row in sheet.rows if all(row[i] == "never run" for i in ours)]
    said, everything = says(capsys, name), says(capsys, name, "--all")
    left = f"{len(empty)} of {len(sheet.rows)} rows were never run and are left out."
    assert (left in said.out) == (f"refattn reproduce {name} --all shows them" in said.err) == bool(empty)
    assert "left out" not in everything.out
    for row in sheet.rows:
        line = rf"^{re.escape(row[0])}  .*$"
        assert len(re.findall(line, everything.out, re.M)) - len(re.findall(line, said.out, re.M)) == sum(
            other[0] == row[0] for other in empty)


def test_settings_that_are_not_the_papers_are_said_for_their_rows():
    columns = Column("loss", "train", "mse"),
    rows = tuple(Row(name, {"attention": name}, ((0.5, 0.1),)) for name in ("softmax", "linear", "hyla"))
    table = Table("t", "T", "S", "fuzzy_logic", columns, rows, ())

    def run(attention, seed, mse, **fields):
        made = recipe("fuzzy_logic", "paper", attention=attention, seed=seed, **fields)
        return {"task": "fuzzy_logic", "fields": runs.describe(made)["fields"], "seconds": 2.0, "name": made.name,
                "metrics": {"train": {"mse": mse}}}
    ours = [run("softmax", 0, 1.0, log_every=20), run("softmax", 1, 2.0), run("linear", 0, None, steps=300)]
    sheet = table.sheet(ours)
    assert [row[1] for row in sheet.rows] == ["1.500 ± 0.500 (2)", "not finite (1)", "never run"]
    assert ("Settings other than those of scale paper, which are in brackets: none for softmax; steps 300 (50,000), "
            "warmup 30 (100) for linear." in sheet.notes)
    assert "Settings are those of scale paper." in table.sheet(ours[:2]).notes
    assert "3 runs, seeds 0, 1, 6 core-seconds" in sheet.notes[0]
    with pytest.raises(ValueError, match="softmax, loss have rate 0.001 and 0.003; allowed: runs that differ"):
        table.sheet([*ours, run("softmax", 2, 1.0, rate=1e-3)])
    with pytest.raises(ValueError, match=r"have a seed twice: \[0, 1, 0\]"):
        table.sheet([*ours, run("softmax", 0, 1.0)])


def test_a_cell_that_its_runs_were_not_asked_about_is_one_that_was_never_run():
    """Table 3 of R has a column for 32 trained lengths, where the paper's scale ends at 16."""
    table, fields = TABLES["table-3"], {"attention": "softmax", "position": "rotary", "text": "tiny_shakespeare.txt"}
    made = recipe("text", "paper_r", unit="characters", **fields)
    run = {"task": "text", "fields": runs.describe(made)["fields"], "seconds": 2.0, "name": made.name,
           "metrics": {f"times_{n}": {"perplexity": float(n)} for n in (1, 2, 4, 8, 16)}}
    assert [cell for cell in table.sheet([run], ["rotary"]).rows[0] if cell not in ("rotary", "not given")] == [
        *(f"{n}.000 (1)" for n in (1, 2, 4, 8, 16)), "never run"]


# --- fresh -----------------------------------------------------------------------------------------------------------

WORDS = "table-6", "--row", "4 retrievals, width 64: comp", "--scale", "quick", "--steps", "6", "--seed", "0", "1"


def test_fresh_runs_are_trained_reused_and_put_beside_the_paper(tmp_path, capsys):
    words = [*WORDS, "--out", str(tmp_path)]
    said = says(capsys, *words)
    row = next(line for line in said.out.splitlines() if "compositional" in line)
    assert row.count("(2)") == 2 and "0.10" in row and "0.28" in row and "steps 6 (100,000)" in said.out
    found = sorted(tmp_path.glob("*/*/result.json"))
    assert len(found) == 4 and f"the runs are in {tmp_path}" in said.err
    before = [file.stat().st_mtime_ns for file in found]
    document = json.loads(says(capsys, *words, "--json").out)
    assert before == [file.stat().st_mtime_ns for file in found]
    values = [runs.read_json(file)["metrics"]["train"]["loss"] for file in found if "-all-" in str(file)]
    cell = document["rows"][0]["cells"][0]
    np.testing.assert_allclose(cell["ours"]["mean"], np.mean(values), rtol=1e-14)
    assert cell["ours"]["seeds"] == [0, 1] and cell["paper"] == {"mean": 0.10, "standard_error": None}
    shutil.rmtree(found[0].parent)                                          # one is lost: only that one is trained
    says(capsys, *words)
    assert before[1:] == [file.stat().st_mtime_ns for file in found[1:]] and found[0].exists()
    assert "steps is 7, but a resumed run" in says(capsys, *[w if w != "6" else "7" for w in words], status=2).err


def test_runs_that_are_not_complete_are_said_with_their_place(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = says(capsys, *WORDS, "--max-seconds", "0.000001")
    assert "never run" not in said.out
    assert f"{Path('runs', 'table-6-quick')}; 4 of 4 are not complete, the same command goes on" in said.err


@pytest.mark.parametrize("name", ["figure-a9", "table-6"])
def test_a_missing_package_is_one_line(name, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    for module in "matplotlib", "matplotlib.figure":
        monkeypatch.setitem(sys.modules, module, None)
    said = says(capsys, name, "--plot", "a.png", status=2).err
    assert said.count("\n") == 1 and said.startswith("refattn reproduce: matplotlib")
    assert said.endswith("is missing; allowed after: pip install 'refattn[plots]'\n")


BAD = [
    (["table-7"], ["NAME 'table-7' is unknown", "table-6", "table-a2"]),
    (["figure-11"], ["did you mean figure-11-1s2r or figure-11-1s4r or figure-11-2s4r? allowed: table-a1-logic"]),
    (["--fresh"], ["NAME is missing", "table-a1-logic"]),
    (["--format", "markdown"], ["NAME is missing", "table-a1-logic"]),
    (["table-6", "--row", "nothing"], ["--row is 'nothing'", "4 searches, 16 retrievals"]),
    (["table-6", "--scale", "huge"], ["scale 'huge' is unknown", "2s4r-64"]),
    (["table-6", "--steps", "0", "--row", "width 64"], ["steps is 0", "from 1"]),
    (["figure-4", "--steps", "5"], ["--steps is 5, but some of these rows say their own; allowed: other rows"]),
    (["claims", "--row", "Cycle", "PARITY", "--steps", "5"], ["--steps is 5, but some of these rows say their own"]),
    (["table-6", "--executor", "ray://x:1"], ["executor is 'ray://x:1'", "dask://127.0.0.1:8786"]),
    (["table-6", "--format", "xml"], ["--format", "'xml'", "markdown"]),
    (["table-6", "--json", "--format", "markdown"], ["--json cannot go with --format markdown; allowed: one of them"]),
    (["table-6", "--stepz", "3"], ["--stepz", "did you mean --steps?"]),
    (["table-a2", "--row", "nothing"], ["--row is 'nothing'", "M = 4, K = 4; M = 4, K = 8"]),
    (["table-a2", "--steps", "3"], ["--steps cannot go with table-a2", "--seed"]),
    (["table-a2", "--plot", "a.png"], ["--plot cannot go with table-a2", "no picture"]),
    (["figure-a9", "--row", "nothing"], ["row is 'nothing'; allowed: parts of: M = 1; M = 2"]),
    (["figure-2d", "--row", "nothing"], ["row is 'nothing'; allowed: parts of: figure-2d"]),
    (["figure-2d", "--fresh", "--row", "nothing"], ["row is 'nothing'; allowed: parts of: hyla-seed0"]),
]


@pytest.mark.parametrize("words, pieces", BAD, ids=[" ".join(words) for words, _ in BAD])
def test_bad_input_is_one_line(words, pieces, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    said = says(capsys, *words, status=2)
    assert said.out == "" and said.err.count("\n") == 1 and all(piece in said.err for piece in pieces)
    assert not list(tmp_path.iterdir())


def test_table_a2_is_counted():
    table = TABLES["table-a2"]
    rows = table.fresh(3, 256)
    sheet = table.sheet(rows)
    assert len(sheet.rows) == 3 and all("never" not in text for row in sheet.rows for text in row)
    assert sheet.rows[1][2] == "0.0032 ± 0.0009" and "256 instances" in sheet.notes[0]
    assert [row[1] for row in table.sheet([]).rows] == ["never run"] * 3
    assert table.sheet(rows, ["k = 8"]).rows == sheet.rows[1:2]


@pytest.mark.parametrize("table", TRAINED, ids=lambda table: table.name)
def test_fresh_runs_are_asked_about_every_column(table):
    for scale in {table.default_scale, table.scale}:
        made = table.recipes(scale, [0])
        assert set(made.values()) == {recipe(table.task, scale, **fields, seed=0) for *_, fields in table.cells()}
        for one in made.values():
            asked = {column.split for column in table.columns} & {*one.SPLITS, "chosen"}
            assert table.of_codes or len(asked) == len({column.split for column in table.columns}) or (
                table.name, scale, len(asked)) == ("table-3", "paper_r", 5)         # the sixth column is ours alone


def test_runs_of_one_name_have_directories_apart_and_one_run_has_one():
    """Of the same names whenever the command is given again: fresh runs are found there and go on."""
    jobs: dict = {}
    for steps in 10, 20, 30, 20:
        put(jobs, Path("row"), "again", tiny(steps=steps))
    assert {place.as_posix(): one.steps for place, one in jobs.items()} == {
        "row/hyla-seed0": 10, "row/again-0/hyla-seed0": 20, "row/again-1/hyla-seed0": 30}


def test_a_scale_that_does_not_ask_is_refused_before_anything_is_trained(tmp_path, capsys):
    said = says(capsys, "table-3", "--fresh", "--scale", "small", "--out", str(tmp_path / "runs"), status=2).err
    assert "scale is small, which asks about no column of table-3; allowed: lengths, paper_r" in said
    assert said.count("\n") == 1 and not (tmp_path / "runs").exists()


# --- executors -------------------------------------------------------------------------------------------------------

class Losing(Executor):
    """Threads, but the first `lost` tasks are trained by a worker that is never heard of again."""

    def __init__(self, lost: int, after=lambda *work: None):
        self.threads, self.lost, self.after, self.handed_out = ThreadPoolExecutor(2), lost, after, 0

    def submit(self, function, *work):
        self.handed_out += 1
        if self.handed_out > self.lost:
            return self.threads.submit(function, *work)
        self.after(function, *work)
        future = Future()
        if self.handed_out % 2:
            future.cancel()
            future.set_running_or_notify_cancel()
        else:
            future.set_exception(ConnectionResetError("worker gone"))
        return future


def test_what_cannot_be_built_leaves_no_directory_behind(tmp_path):
    with pytest.raises(ValueError, match="head_width is 3; allowed with Rotary: even numbers"):
        compare([tiny(), recipe("text", position="rotary", width=12, heads=4, steps=2)], tmp_path, progress=False)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("finishes", [False, True])
def test_a_run_whose_worker_is_lost_is_handed_out_again(finishes, tmp_path):
    """Also when the worker had finished it and only the message was lost: then nothing is trained twice."""
    chosen, written = [tiny(seed=0), tiny(seed=1)], []

    def train(function, recipe, path, *rest):
        if finishes:
            function(recipe, path, *rest)
            written.append((path, (path / "result.json").stat().st_mtime_ns))
    executor = Losing(3, train)
    found = compare(chosen, tmp_path / "lost", executor=executor, progress=False)
    assert executor.handed_out == 5 and all(outcome["finished"] for outcome in found)
    compare(chosen, tmp_path / "whole", progress=False, workers=1)
    for one in chosen:
        assert final(tmp_path / "lost" / one.name) == final(tmp_path / "whole" / one.name)
    assert all((path / "result.json").stat().st_mtime_ns == when for path, when in written)


def test_workers_that_are_lost_again_and_again_end_it(tmp_path, capsys, monkeypatch):
    with pytest.raises(BrokenExecutor, match=f"worker of hyla-seed0 was lost {HANDED_OUT} times"):
        train_all({tmp_path / "hyla-seed0": tiny()}, tmp_path, executor=Losing(99), progress=False)

    def gone(*jobs, **options):
        raise BrokenExecutor("gone")
    monkeypatch.setattr("refattn.train.compare.train_all", gone)
    said = says(capsys, *WORDS, "--out", str(tmp_path / "out"), status=1)
    assert said.err == "refattn reproduce: gone; the same command goes on from the checkpoints\n"


def test_a_run_that_goes_wrong_is_not_handed_out_again(tmp_path):
    class Failing(Losing):
        def submit(self, function, *work):
            self.handed_out += 1
            future = Future()
            future.set_exception(ValueError("wrong"))
            return future
    executor = Failing(0)
    with pytest.raises(ValueError, match="wrong"):
        compare([tiny()], tmp_path, executor=executor, progress=False)
    assert executor.handed_out == 1


# --- statistics ------------------------------------------------------------------------------------------------------

def test_student_t_is_that_of_the_tables():
    for freedom, level in (1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (7, 2.3646), (30, 2.0423):
        assert abs(statistics.quantile(0.95, freedom) - level) < 5e-5
    for probability, freedom, words in (95, 3, "probability is 95; allowed"), (1.0, 3, "probability is 1.0; allowed"), (
            0.95, 0, "freedom is 0; allowed: whole numbers of at least 1"):
        with pytest.raises(ValueError, match=words):
            statistics.quantile(probability, freedom)
    grid = np.linspace(0, 3, 30_001)
    for freedom in 1, 2, 5, 8:                                              # its density, integrated
        density = (1 + grid**2 / freedom) ** (-(freedom + 1) / 2)
        far = np.linspace(0, 1, 400_001)[1:]                                # t = 1 / u - 1
        whole = np.sum((1 + (1 / far - 1) ** 2 / freedom) ** (-(freedom + 1) / 2) / far**2) * (far[1] - far[0])
        part = np.sum((density[1:] + density[:-1]) / 2) * (grid[1] - grid[0])
        assert abs(statistics.student_t(3.0, freedom) - part / whole) < 1e-4


def test_means_and_intervals():
    assert statistics.mean([]) == (None, None, 0) and statistics.mean([2.0]) == (2.0, None, 1)
    assert statistics.mean([1.0, None]) == (None, None, 2)
    found = statistics.mean([1.0, 2.0, 4.0])
    assert np.allclose(found, (7 / 3, np.std([1, 2, 4], ddof=1) / 3**0.5, 3))
    low, high = statistics.interval(found)
    assert np.isclose((low + high) / 2, found.mean) and np.isclose(high - low, 2 * 4.302653 * found.standard_error)
    assert statistics.interval(statistics.mean([1.0])) is None
    assert np.allclose(statistics.mean([1e304, 3e304])[:2], (2e304, 1e304))     # as perplexities may be
    assert np.allclose(statistics.mean([1e-200, 3e-200])[:2], (2e-200, 1e-200), atol=0)


def test_a_run_from_before_a_metric_came_in_has_none_of_it():
    column = Column("accuracy", "longer", "to_100")
    of = [{"fields": {"seed": seed}, "metrics": {"longer": x}} for seed, x in enumerate(({}, {"to_100": 0.5}))]
    assert measured(of, column)["seeds"] == [1] and measured(of[:1], column) is None


def test_every_table_has_a_scale_of_the_paper():
    for table in TRAINED:
        assert table.scale in RECIPES[table.task].SCALES
        made = table.recipes(table.scale, [0])
        assert len(made) == len(set(made.values()))
