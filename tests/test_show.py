"""`refattn show`: finished, running, stopped and damaged runs, one at a time and many, as tables and as a figure."""

import json
import shutil

import numpy as np
import pytest

from refattn import cli
from refattn.cli import places, showing
from refattn.cli.comparison import settings
from refattn.recipes import recipe
from refattn.tasks import sort_of_clevr
from refattn.tasks.text import corpus
from refattn.train import NonFinite, fit, runs
from refattn.train.curves import COLOURS, Curve, by_value, figure, shown_column
from tests.tiny import disturbed, tiny


@pytest.fixture(scope="module")
def comparison(tmp_path_factory):
    """Two variants and two seeds, of which the last run was stopped."""
    out = tmp_path_factory.mktemp("comparison")
    recipes = [tiny(attention=name, seed=seed) for name in ("softmax", "hyla") for seed in (0, 1)]
    for one in recipes[:3]:
        fit(one, out / one.name, progress=False)
    fit(recipes[3], out / recipes[3].name, max_seconds=1e-6, progress=False)
    return out


def show(capsys, *words, status=0) -> str:
    assert cli.main(["show", *map(str, words)]) == status
    return capsys.readouterr().out


def test_a_comparison_is_its_table_and_says_who_is_not_complete(comparison, capsys):
    said = show(capsys, comparison)
    assert said.startswith("4 runs: 3 finished, 1 stopped\n")
    rows = [line.split() for line in said.splitlines() if line.split()[:1] in (["softmax"], ["hyla"])]
    found = [runs.result(comparison / f"softmax-seed{seed}")["metrics"]["held_out"]["r2_per_task"] for seed in (0, 1)]
    assert rows[0][:4] == ["softmax", f"{np.mean(found):.3f}", "±", f"{abs(found[0] - found[1]) / 2:.3f}"]
    alone = runs.result(comparison / "hyla-seed0")["metrics"]["held_out"]["r2_per_task"]
    assert rows[1][:2] == ["hyla", f"{alone:.3f}"]
    assert "hyla-seed1 is not complete: stopped, at step " in said and " of 30 (" in said
    document = json.loads(show(capsys, comparison, "--json"))
    assert [run["name"] for run in document["runs"]] == ["softmax-seed0", "softmax-seed1", "hyla-seed0", "hyla-seed1"]
    table, = document["tables"].values()
    assert [row["finished"] for row in table] == [2, 1] and document["damaged"] == {}


def test_a_result_is_read_once(comparison, monkeypatch):
    read, seen = runs.read_json, []
    monkeypatch.setattr(runs, "read_json", lambda path: (seen.append(path), read(path))[1])
    found, damaged = showing.look(comparison / "hyla-seed0")
    assert len(found) == 1 and not damaged and [path.name for path in seen].count("result.json") == 1


def test_copies_of_a_run_count_as_one_seed_and_a_finished_one_stands_for_them(comparison, tmp_path, capsys):
    table, = json.loads(show(capsys, comparison, "--json"))["tables"].values()
    shutil.copytree(comparison, tmp_path / "all")
    shutil.copytree(comparison / "softmax-seed0", tmp_path / "again")
    shutil.copytree(comparison / "softmax-seed1", tmp_path / "stopped")
    (tmp_path / "stopped/result.json").unlink()
    again, = json.loads(show(capsys, tmp_path, "--json"))["tables"].values()
    softmax = next(row for row in again if row["attention"] == "softmax")
    assert softmax["metrics"] == next(row for row in table if row["attention"] == "softmax")["metrics"]
    assert softmax["seeds"] == [0, 1] and softmax["runs"] == softmax["finished"] == 2


def test_a_run_that_is_trained_right_now_is_running(comparison, capsys):
    with runs.locked(comparison / "hyla-seed1"):
        assert runs.at_work(comparison / "hyla-seed1")
        assert show(capsys, comparison / "hyla-seed1").startswith("1 run: 1 running\n")
    assert not runs.at_work(comparison / "hyla-seed1")
    assert show(capsys, comparison / "hyla-seed0").startswith("1 run: 1 finished\n")


def test_without_a_lock_nobody_is_at_work(tmp_path, monkeypatch):
    assert not runs.at_work(tmp_path)
    monkeypatch.setattr(runs, "fcntl", None)                # as on Windows
    with runs.locked(tmp_path):
        assert not runs.at_work(tmp_path)


def test_a_run_that_failed_says_why_until_it_gets_on(tmp_path, capsys):
    def poison(step, batch):
        if step == 5:
            batch.tokens[...] = np.nan
    path, why = tmp_path / "hyla-seed0", "; step 6: the gradient of embed.w is not finite"
    with pytest.raises(NonFinite):
        fit(disturbed(poison), path, progress=False)
    said = " ".join(show(capsys, path).split())
    assert "hyla-seed0 is not complete: stopped, at step 5 of 30 (17%), training loss " in said and why in said
    assert json.loads(show(capsys, path, "--json"))["runs"][0]["error"].endswith(why)
    with runs.locked(path):
        assert "not finite" not in show(capsys, path)
    kept = (path / runs.ERROR).rename(tmp_path / "kept")
    (path / runs.ERROR).mkdir()                                                     # nothing of ours, and not read
    assert "stopped, at step 5 of 30 (17%)" in show(capsys, path) and "not finite" not in show(capsys, path)
    (path / runs.ERROR).rmdir()
    kept.rename(path / runs.ERROR)
    fit(tiny(), path, resume=True, max_seconds=1e-6, progress=False)                # no checkpoint later than that
    assert "not finite" in show(capsys, path)
    fit(tiny(), path, resume=True, progress=False)
    assert not (path / runs.ERROR).exists()


def test_what_is_damaged_is_named_and_the_rest_is_shown(comparison, tmp_path, capsys):
    out = tmp_path / "all"
    shutil.copytree(comparison, out / "deeper")
    (out / "deeper/softmax-seed0/recipe.json").write_text("[")
    (out / "deeper/softmax-seed1/recipe.json").unlink()
    (out / "deeper/hyla-seed0/result.json").write_text('{"task": 3}')
    checkpoint = out / "deeper/hyla-seed1/checkpoint.npz"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    fit(tiny(attention="linear"), out / "linear-seed0", progress=False)
    assert cli.main(["compile", "--regex", "(01)*", "--max-length", "5", "--out", str(out / "words")]) == 0
    capsys.readouterr()
    said = show(capsys, out, status=1)
    assert said.startswith("6 runs: 2 finished, 4 damaged\n")
    for words in ("softmax-seed0/recipe.json is not a JSON object",
                  "softmax-seed1 is damaged: its recipe.json is missing",
                  "hyla-seed0/result.json is no result of a run", "hyla-seed1/checkpoint.npz is not a complete refattn",
                  "words: compiled automaton regex of '(01)*', 3 states; 0 errors in 4 words of each length to 5"):
        assert words in said, said
    assert len(json.loads(show(capsys, out, "--json", status=1))["damaged"]) == 4


@pytest.mark.parametrize("field", ["seed", "decay", "layers", "held_out"])
def test_a_field_that_came_in_after_a_run_ended_has_its_default(comparison, tmp_path, capsys, field):
    before = shutil.copytree(comparison / "softmax-seed0", tmp_path / "before")
    for name in "recipe.json", "result.json":
        document = json.loads((before / name).read_text())
        assert document["fields"].pop(field) == getattr(tiny(), field)
        (before / name).write_text(json.dumps(document))
    assert show(capsys, before) == show(capsys, comparison / "softmax-seed0").replace(str(comparison), str(before))
    one, other = (json.loads(show(capsys, x, "--json"))["tables"] for x in (before, comparison / "softmax-seed0"))
    assert one == other


def test_a_number_that_is_not_finite_is_null_in_json(comparison, tmp_path, capsys):
    run = shutil.copytree(comparison / "softmax-seed0", tmp_path / "run")
    document = json.loads((run / "result.json").read_text())
    document["cpu_seconds"] = np.nan
    (run / "result.json").write_text(json.dumps(document))
    said = json.loads(show(capsys, run, "--json"), parse_constant=pytest.fail)      # NaN is no JSON
    assert said["runs"][0]["cpu_seconds"] is None


def test_an_automaton_whose_result_lacks_a_number_is_not_read_yet(tmp_path, capsys):
    assert cli.main(["compile", "--regex", "(01)*", "--max-length", "5", "--out", str(tmp_path / "words")]) == 0
    file = tmp_path / "words" / "result.json"
    document = json.loads(file.read_text())
    for errors in {}, {"errors": None}:
        words = {name: x for name, x in document["metrics"]["words"].items() if name != "errors"} | errors
        file.write_text(json.dumps(document | {"metrics": {"words": words}}))
        assert "compiled automaton regex of '(01)*', 3 states; not read yet" in show(capsys, tmp_path / "words")


def test_a_run_whose_text_is_not_there_is_stopped_and_not_damaged(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("a line of letters\n" * 200)
    made = recipe("text", text=str(text), unit="characters", steps=2, layers=1, width=8, heads=1, length=8, batch=1)
    fit(made, tmp_path / made.name, max_seconds=1e-6, progress=False)
    text.write_text("other letters: JKLMN\n" * 200)
    corpus.cache_clear()
    said = show(capsys, tmp_path, status=1)
    assert f"trained on text {str(text)!r} of checksum" in " ".join(said.split()), said
    text.unlink()
    corpus.cache_clear()
    said = show(capsys, tmp_path)
    assert "1 run: 1 stopped" in said and f"text is {str(text)!r}; allowed:" in " ".join(said.split()), said


def test_the_curves_of_a_finished_run_need_no_text(tmp_path, capsys):
    """How many bits chance takes, a line in the figure, is counted in the text; the run is whole without it."""
    pytest.importorskip("matplotlib")
    text, out = tmp_path / "text.txt", tmp_path / "runs"
    text.write_text("a line of letters\n" * 200)
    made = recipe("text", text=str(text), unit="characters", steps=2, layers=1, width=8, heads=1, length=8, batch=1,
                  evaluation=2, probe=2)
    fit(made, out / made.name, progress=False)
    text.unlink()
    corpus.cache_clear()
    said = show(capsys, out, "--plot", tmp_path / "curves.png")
    assert "1 run: 1 finished" in said and (tmp_path / "curves.png").exists(), said
    (out / made.name / "curves.png").unlink()
    assert cli.main(["train", "--resume", str(out)]) == 0
    assert (out / made.name / "curves.png").exists()


def test_runs_of_several_settings_are_several_tables(comparison, tmp_path, capsys):
    shutil.copytree(comparison, tmp_path / "narrow")
    fit(tiny(width=16), tmp_path / "wide" / "hyla-seed0", progress=False)
    said = show(capsys, tmp_path)
    assert "\nfuzzy_logic, width 8\n" in said and "\nfuzzy_logic, width 16\n" in said
    assert sum(line.startswith("attention ") for line in said.splitlines()) == 2
    assert "fuzzy_logic\n" not in show(capsys, tmp_path / "narrow")


@pytest.mark.parametrize(("words", "message"), [
    (["{empty}"], "which holds no run; allowed: a run, or a directory of runs"),
    (["{runs}", "--kind", "shape"], "--kind is 'shape', but there is no --image; allowed: both"),
    (["{runs}", "--image", "x.png"], "DIR holds 4 runs; allowed with --image: one of them"),
    (["{runs}/hyla-seed0", "--image", "x.png"], "--image is given without --kind and --first"),
    (["{runs}/hyla-seed0", "--image", "x.png", "--kind", "shape", "--first", "red"],
     "task of the recipe is 'fuzzy_logic'; allowed: sort_of_clevr"),
    (["{runs}", "--plot", "{empty}/no/where.png"], "which cannot be written"),
    (["{runs}", "--plot", "{empty}/curves.txt"], "allowed: files that end in .")])
def test_bad_input_is_one_line(words, message, comparison, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    assert cli.main(["show", *(word.format(empty=tmp_path, runs=comparison) for word in words)]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


# ---------------------------------------------------------------- the figure

def test_all_curves_are_one_figure_with_named_lines(comparison, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    show(capsys, comparison, "--plot", tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert cli.main(["show", str(comparison), "--plot", str(tmp_path / "bare")]) == 0
    assert capsys.readouterr().err == f"{(tmp_path / 'bare.png').resolve()} is written\n"
    curves = [Curve(runs.read_recipe(path), runs.lines(path), (runs.result(path) or {}).get("metrics", {}))
              for path in runs.find(comparison)]
    theirs = type("Paper", (), {"metric": "held-out R²", "figures": {"hyla": (0.8113, None)}})
    left, right = figure({"both": curves}, {"both": theirs}).subfigs[0].axes
    texts = [text.get_text() for text in right.get_legend().get_texts()]
    assert texts == ["softmax, seeds 0, 1", "hyla, seeds 0, 1", "paper, hyla: 0.8113", "chance: 0"]
    assert left.get_title() == "Mean square error at the last position\nn = 4 a step; thick: mean over seeds"
    assert right.get_title() == "held-out R²\nlines: probes, n = 8; diamonds: final, n = 40"
    assert right.get_ylabel() == "R² (mean of per-task ratios)" and left.get_xlabel() == "steps"
    diamonds = [(line.get_color(), list(line.get_ydata())) for line in right.lines if line.get_marker() == "D"]
    assert diamonds == [(COLOURS[place], [curve.metrics["held_out"]["r2_per_task"] for curve in curves
                                          if curve.recipe.attention == name and curve.metrics])
                        for place, name in ((0, "softmax"), (2, "hyla"))]
    thick = [line for line in left.lines if line.get_linewidth() > 1][0]
    first, second = (dict((x["step"], x["loss"]) for x in curve.lines) for curve in curves[:2])
    assert dict(zip(thick.get_xdata(), thick.get_ydata(), strict=True)) == {
        step: (first[step] + second[step]) / 2 for step in first}


def test_a_loss_has_a_logarithmic_axis_where_it_falls_far_and_steps_begin_at_0():
    pytest.importorskip("matplotlib")
    for last, scale in (1.3, "linear"), (0.1, "log"):
        lines = [{"step": 100, "loss": 1.4, "rate": 1e-3}, {"step": 200, "loss": last, "rate": 1e-3}]
        metrics = {"held_out": {"r2_per_task": 0.5}}
        left, right = figure({"run": [Curve(tiny(steps=200), lines, metrics)]}).subfigs[0].axes
        assert left.get_yscale() == scale and left.get_xlim()[0] == right.get_xlim()[0] == 0


def test_runs_that_have_just_begun_are_seen_and_named():
    pytest.importorskip("matplotlib")
    begun = [Curve(tiny(attention=name, evaluation=10**9), [{"step": 5, "loss": 0.5, "rate": 1e-3}], {})
             for name in ("softmax", "hyla")]
    left, right = figure({"begun": begun}).subfigs[0].axes
    words = [text.get_text() for text in right.get_legend().get_texts()]
    assert words == ["softmax, seed 0", "hyla, seed 0", "chance: 0"] and left.get_legend() is None
    assert right.get_xlim() == left.get_xlim() and right.get_title().endswith("diamonds: final, all there are")
    assert [line.get_marker() for line in left.lines] == [".", "."]         # a line of one point has no length


def test_of_a_finite_set_as_many_are_asked_at_most():
    pytest.importorskip("matplotlib")
    rmts, questions = recipe("rmts", hold_out=95), recipe("sort_of_clevr")
    assert rmts.size("train") < rmts.evaluation == 20_000
    _, right = figure({"run": [Curve(rmts, [], {})]}).subfigs[0].axes
    assert right.get_title().endswith("lines: probes, n ≤ 1,000; diamonds: final, n ≤ 20,000")
    for one, words in (rmts, "20,000 samples per split at most"), (questions, "1,984 questions of each type and split"):
        fields = runs.describe(one)["fields"]
        assert words in settings(type(one), [{"task": one.TASK, "fields": fields}])
        everything = settings(type(one), [{"task": one.TASK, "fields": fields | {"evaluation": 10**9}}])
        assert "all " in everything and "at most" not in everything


def test_one_run_is_drawn_with_all_splits_that_were_probed():
    pytest.importorskip("matplotlib")
    probed = {"held_out": {"r2_per_task": 0.5}, "train": {"r2_per_task": 0.75}}
    lines = [{"step": step, "loss": 1.0, "rate": 1e-3, **probed} for step in (5, 10)]
    _, right = figure({"run": [Curve(tiny(), lines, {})]}).subfigs[0].axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in right.lines}
    assert drawn["train"] == [0.75, 0.75] and "unseen terms" not in drawn


def test_panels_of_unfinished_runs_are_as_wide_as_of_finished_ones_and_diamonds_stand_at_the_end():
    pytest.importorskip("matplotlib")
    widths = []
    for metrics in {}, {"held_out": {"r2_per_task": 0.5}}:
        made = figure({"run": [Curve(tiny(steps=100, attention=name), [{"step": 5, "loss": 0.5, "rate": 1e-3}], metrics)
                               for name in ("hyla", "hyla_deep")]})
        made.draw_without_rendering()
        left, right = made.subfigs[0].axes
        widths.append(right.get_window_extent().width / made.bbox.width)
        diamonds = [line.get_xdata()[0] for line in right.lines if line.get_marker() == "D" and len(line.get_xdata())]
        assert diamonds == ([103, 105] if metrics else [])
    assert min(widths) > 0.25


def test_a_variant_has_the_same_colour_in_every_figure():
    alone = by_value([Curve(tiny(attention="hyla"), [], {})])
    beside = by_value([Curve(tiny(attention=name), [], {}) for name in ("hyla", "linear", "softmax")])
    assert alone["hyla"][0] == beside["hyla"][0] == 2 and (beside["softmax"][0], beside["linear"][0]) == (0, 1)


def test_the_panel_shows_what_the_paper_has_figures_for():
    clevr, words = recipe("sort_of_clevr", scenes=5), recipe("parity")
    assert shown_column(words, "longer words") == shown_column(words) == ("longer words", "longer", "accuracy")
    assert shown_column(words, "trained lengths")[1] == "train" and shown_column(clevr)[1] in clevr.SPLITS
    assert recipe("cycle").chance() == 0.2 and words.chance() == 0.5 and recipe("rmts").chance() == 0.5
    assert recipe("sraven", features=2, symbols=4).chance() == 1 / 16 and recipe("scan").chance() is None


@pytest.mark.parametrize("scale, expected", [("paper", 0.75), ("4s8r-128", 1.04)])
def test_chance_in_contextual_retrieval_is_the_error_of_answering_zero(scale, expected):
    one = recipe("contextual_retrieval", scale)
    target = one.sample(np.random.default_rng(0), "train", 2_000).target
    assert one.chance() == pytest.approx(expected, abs=0.01) == pytest.approx(np.abs(target).mean(), abs=0.02)


# ---------------------------------------------------------------- a picture

def test_a_network_is_asked_about_a_picture(tmp_path, capsys):
    pillow = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    one = recipe("sort_of_clevr", scenes=5, steps=1, log_every=1, evaluate_every=1, warmup=0)
    runs.begin(tmp_path / "run", one)
    model = one.build()
    from refattn.train.record import State
    state = State(one, model.parameters(), np)
    runs.save_checkpoint(tmp_path / "run", one, model.parameters(), state.arrays(), 0, 0.0)
    scene = one.data()["test"].scenes
    pillow.fromarray(sort_of_clevr.render(sort_of_clevr.Scenes(scene.centre[:1], scene.shape[:1]))[0]).save(
        tmp_path / "scene.png")
    said = show(capsys, tmp_path / "run", "--image", tmp_path / "scene.png", "--kind", "count between",
                "--first", "red", "--second", "gray", "--plot", tmp_path / "seen.png")
    shares = [float(line.split()[-1].rstrip("%")) for line in said.splitlines()]
    assert shares == sorted(shares, reverse=True) and abs(sum(shares) - 100) < 1
    assert {line.rsplit(None, 1)[0].strip() for line in said.splitlines()} == set(map(str, sort_of_clevr.ANSWERS))
    assert (tmp_path / "seen.png").read_bytes().startswith(b"\x89PNG")
    document = json.loads(show(capsys, tmp_path / "run", "--image", tmp_path / "scene.png", "--kind", "count between",
                               "--first", "red", "--second", "gray", "--json"))
    assert sum(document.values()) == pytest.approx(1) and [f"{x:.1%}" for x in document.values()] == [
        line.split()[-1] for line in said.splitlines()]


def test_a_bar_of_a_finished_run_keeps_its_own_time():
    from refattn.train.progress import BarOfOne
    now = [0.0]
    bar = BarOfOne(total=10, file=open("/dev/null", "w", encoding="utf-8"))
    try:
        bar._time = lambda: now[0]
        bar.start_t = 0.0
        bar.update(4)
        now[0] = 5.0
        assert bar.format_dict["elapsed"] == 5
        bar.update(6)
        assert bar.format_dict["elapsed"] == 5
        now[0] = 60.0
        assert bar.format_dict["elapsed"] == 5 and "00:05" in str(bar)
    finally:
        bar.close()
        bar.fp.close()


@pytest.mark.parametrize("line, whole", [
    ('{"step": 3, "loss": 0.5, "rate": 1, "train": {"mse": null, "r2": 2}}', True), ('{"step": 3, "loss": 0.5}', False),
    ('{"step": 3, "loss": 1' + "0" * 400 + ', "rate": 1}', False),
    ('{"step": 3, "loss": {}, "rate": 1}', False),
    ('{"step": 3, "loss": 0.5, "rate": 1, "train": null}', False), ('{"step": 3, "loss": NaN, "rate": 1}', False),
    ('{"step": 3, "loss": 0.5, "rate": 1, "train": {"mse": "x"}}', False),
    ('{"step": true, "loss": 1, "rate": 1}', False)])
def test_a_line_is_whole_or_damaged(line, whole):
    assert (runs.whole_line(line + "\n") is not None) == whole


def test_a_picture_that_cannot_be_written_leaves_the_old_one(tmp_path):
    pytest.importorskip("matplotlib")

    class Picture:
        def savefig(self, file, **how):
            file.write(b"half")
            raise OSError("full")
    (tmp_path / "p.png").write_bytes(b"old")
    with pytest.raises(OSError, match="full"):
        places.save(str(tmp_path / "p.png"), Picture)
    assert [(x.name, x.read_bytes()) for x in tmp_path.iterdir()] == [("p.png", b"old")]


def test_the_first_seven_values_are_drawn_as_solid_lines():
    pytest.importorskip("matplotlib")
    lines = [{"step": n, "loss": 1.0 / n, "rate": 1.0} for n in (1, 2)]
    drawn = figure({"x": [Curve(recipe("fuzzy_logic", attention=name), lines, {})
                          for name in ("softmax", "linear", "hyla")]})
    assert {line.get_linestyle() for line in drawn.axes[0].lines} == {"-"}
