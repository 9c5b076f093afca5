"""Figures: what is drawn is what the table says; what is read off networks, and off the same networks untrained."""

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from refattn import cli
from refattn.analysis import latent_code, latent_code_figures, regular, searches
from refattn.analysis.text import receptive_field
from refattn.recipes import recipe
from refattn.reproduce import codes, drawing, pictures
from refattn.reproduce.all_tables import TABLES
from refattn.reproduce.pictures import PICTURES
from refattn.reproduce.table import Row
from refattn.tasks.regular_languages import RegularLanguages
from refattn.tasks.sraven import RULES
from refattn.tasks.text_windows import sample
from refattn.train import fit, load, stream

plots = pytest.mark.skipif(not all(map(importlib.util.find_spec, ("matplotlib", "sklearn"))),
                           reason="matplotlib or scikit-learn is not installed")


def says(capsys, *words, status=0):
    assert cli.main(["reproduce", *words]) == status
    return capsys.readouterr()


@plots
@pytest.mark.parametrize("name", ["claims", "table-a1-logic", "figure-2c", "figure-5f", "figure-10", "figure-a9"])
def test_a_table_is_drawn_too(name, tmp_path, capsys):
    file = tmp_path / "drawn.svg"
    said = says(capsys, name, "--plot", str(file))
    assert TABLES[name].title in said.out and f"{file} is written" in said.err
    assert file.read_text(encoding="utf-8").startswith("<?xml")


@plots
@pytest.mark.parametrize("name", [name for name, table in TABLES.items() if hasattr(table, "columns")])
def test_words_of_a_tables_picture_have_room(name):
    """Of the recorded runs; a layout that finds no room for its panels warns."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    made = TABLES[name].plot(TABLES[name].sheet(TABLES[name].recorded()))
    FigureCanvasAgg(made).draw()
    *_, settings = made.texts
    assert settings.get_text() == made.get_supxlabel()
    for axes in made.axes:
        label = axes.yaxis.label.get_window_extent()
        assert 0 <= label.y0 <= label.y1 <= made.bbox.height and axes.bbox.height > 40
        assert axes.xaxis.label.get_window_extent().y0 >= settings.get_window_extent().y1 * bool(settings.get_text())


@plots
def test_codes_that_are_all_alike_are_one_point(monkeypatch):
    """scikit-learn's t-SNE ends the process there.  In layer 1 of SRAVEN the last token has one code for all."""
    assert not latent_code.embed(np.full((50, 3), 0.1)).any()
    places = latent_code.embed(np.random.default_rng(0).standard_normal((50, 3)), perplexity=5)
    assert places.shape == (50, 2) and places.any()
    monkeypatch.setattr(latent_code, "embed", lambda code: np.zeros((len(code), 2)))
    _, panels = drawn("figure-5ab")
    assert panels and all(", all alike" in title for title in panels)


@plots
@pytest.mark.parametrize("name", [picture.name for picture in PICTURES])
def test_every_picture_of_a_network_is_drawn(name, tmp_path, monkeypatch):
    """Of an untrained one; every panel has a name at an axis, and the title has room on the page.

    t-SNE, which takes long, is left to tests of its own.
    """
    def embed(vectors):
        assert vectors.ndim == 2 and len(vectors) == 1_500
        return vectors[:, :2]

    monkeypatch.setattr(latent_code, "embed", embed)
    picture = TABLES[name]
    run, = picture.recipes("quick", [0]).values()
    model = run.build()
    monkeypatch.setattr(pictures, "load", lambda path: (run, model, codes.initial(run, model)))
    made = picture.plot(picture.sheet([{"name": run.name, "step": 100_000, "seconds": 1.0, "path": tmp_path}]))
    made.savefig(tmp_path / "drawn.png")
    title, = made.texts
    assert re.match(rf".+ of [HCR], .+\n{run.name} after 100,000 steps, .*\d.* .+", title.get_text())
    assert 0 <= title.get_window_extent().x0 < title.get_window_extent().x1 <= made.bbox.width
    panels = [axes for axes in made.axes if axes.get_label() != "<colorbar>"]
    assert panels and all(axes.get_xlabel() or axes.get_ylabel() for axes in panels)


def drawn(name):
    """(recipe, model, parameters) of an untrained network, and what each panel of its picture shows by title."""
    run, = TABLES[name].recipes("quick", [0]).values()
    model = run.build()
    network = run, model, codes.initial(run, model)
    made = TABLES[name].draw(*network, stream(0, "evaluation", 7))
    return network, {axes.get_title(): axes for axes in made.axes if axes.get_title()}


@plots
def test_classes_with_words_are_named_and_many_rows_stand_side_by_side():
    rows = {f"layer {n}": np.zeros((2, 2)) for n in range(7)}
    made = latent_code_figures.points(rows, {"rule": np.array([0, 2]), "target": np.arange(2)}, words={"rule": "abc"})
    panels = [axes for axes in made.axes if axes.get_label() != "<colorbar>"]
    assert [axes.get_title() for axes in panels] == [f"{row}: {x}" for row in rows for x in ("rule", "target")]
    assert {axes.get_subplotspec().get_gridspec().get_geometry() for axes in panels} == {(4, 4)}
    bars = [[x.get_text() for x in axes.get_yticklabels()] for axes in made.axes if axes.get_label() == "<colorbar>"]
    assert bars == [["a", "c"], ["0", "1"]] * 7


@plots
def test_pairings_are_of_all_tuples_those_of_training_and_those_held_out():
    (run, *rest), panels = drawn("figure-4-pairings")
    rng = stream(0, "evaluation", 7)
    for title, one, split in ("all tuples", replace(run, held_out=False), "train"), ("of training", run, "train"), (
            "held out", run, "held_out"):
        seen = searches.observe(one, *rest, rng, split=split)
        known = {tuple(x) for x in run.data().tuples("held_out")}
        asked = {tuple(x) for x in seen.preference.reshape(-1, run.searches)}
        assert asked == known if split == "held_out" else asked >= known if title == "all tuples" else not asked & known
        assert np.array_equal(panels[title].images[0].get_array(), seen.value_scores.mean(axis=(0, 1)))


@plots
def test_codes_are_drawn_of_the_layer_that_the_title_says(monkeypatch):
    monkeypatch.setattr(latent_code, "embed", lambda vectors: vectors[:, :2])
    (run, *rest), panels = drawn("figure-2d")
    rng = stream(0, "evaluation", 7)
    seen = latent_code.observe(run, *rest, context=rng.random((run.length - 1, run.variables)), rng=rng,
                               split="held_out", count=1_500)
    assert [title for title in panels if title.startswith("layer 1")] == [
        f"layer 1: {what}" for what in ("target", "function", "first term", "second term")]
    for layer in range(run.layers):
        points = panels[f"layer {layer + 1}: target"].collections[0]
        assert np.array_equal(points.get_offsets(), seen.at(layer)[:, :2])
        assert np.array_equal(points.get_array(), seen.target)
        functions = panels[f"layer {layer + 1}: function"].collections[0].get_array()
        alike = (seen.terms[:, None] == seen.terms[None]).all(axis=-1)
        assert np.array_equal(functions[:, None] == functions[None], alike)


@plots
@pytest.mark.parametrize("words, pieces", [
    (["table-a2", "--plot", "x.png"], ["--plot", "table-a2"]),
    (["figure-a8", "--plot", "x.png"], ["figure-a8 is drawn from a trained network; allowed: --fresh --plot FILE"]),
    (["figure-2c", "--plot", "nowhere/x.png"], ["--plot", "nowhere/x.png"]),
    (["figure-2c", "--plot", "x.nothing"], ["--plot", "x.nothing"]),
    (["figure-2c", "--fresh", "--plot", "nowhere/x.png"], ["--plot is 'nowhere/x.png', which cannot be written"]),
    (["figure-2c", "--fresh", "--plot", "x.nothing"], ["--plot is 'x.nothing'", "allowed: files that end in ."])])
def test_what_cannot_be_drawn_is_one_line(words, pieces, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    said = says(capsys, *words, status=2)
    assert said.err.count("\n") == 1 and all(piece in said.err for piece in pieces) and not list(tmp_path.iterdir())


@plots
def test_a_picture_of_what_is_not_complete_is_not_drawn(tmp_path, capsys):
    for name in "figure-2d", "table-1":
        file = tmp_path / f"{name}.png"
        said = says(capsys, name, "--seed", "0", "--out", str(tmp_path / name), "--max-seconds", "0.000001", "--plot",
                    str(file), *["--row", "parity: rnn"][:2 * (name == "table-1")])
        assert "1 of 1 are not complete, the same command goes on" in said.err and not file.exists()


@plots
def test_a_picture_that_is_there_stays_until_there_is_another(tmp_path, capsys):
    file = tmp_path / "mine.png"
    file.write_bytes(b"an older one")
    says(capsys, "figure-2d", "--seed", "0", "--out", str(tmp_path), "--max-seconds", "0.000001", "--plot", str(file))
    assert file.read_bytes() == b"an older one"


@plots
def test_a_line_goes_through_the_means_of_the_recorded_runs():
    table = TABLES["figure-5f"]
    sheet = table.sheet(table.recorded())
    axes, = table.plot(sheet).axes
    assert axes.get_xlabel() == "layer" and "standard error" in axes.get_ylabel()
    for line, row in zip(axes.containers, sheet.data, strict=True):
        np.testing.assert_allclose(line.lines[0].get_ydata(orig=False), [cell["ours"]["mean"] for cell in row["cells"]])
        assert f"n = {row['cells'][0]['ours']['n']}" in line.get_label()
    assert drawing.looks(["a, x", "a, y", "b, x"]) == [
        {"color": drawing.COLOURS[0], "linestyle": "-", "marker": "o"},
        {"color": drawing.COLOURS[0], "linestyle": "--", "marker": "s"},
        {"color": drawing.COLOURS[1], "linestyle": "-", "marker": "o"}]


def test_a_curve_is_the_mean_of_the_histories():
    table, found = TABLES["figure-10"], []
    for seed, losses in (0, (8.0, 6.0, 4.0, 2.0)), (1, (4.0, 4.0, 2.0, 2.0)):
        one = recipe("contextual_retrieval", "quick", attention="softmax", held_out=False, seed=seed)
        found.append({"task": "contextual_retrieval", "fields": vars(one), "step": 4, "history": {
            "step": [1, 2, 3, 4], "train.loss": list(losses)}})
    sheet = table.sheet(found, ["softmax"])
    assert sheet.data[0]["mean"] == [6.0, 5.0, 3.0, 2.0] and sheet.data[0]["standard_error"][0] == 2.0
    assert sheet.rows == [["softmax", "6.000 ± 2.000", "5.000 ± 1.000", "3.000 ± 1.000", "2.000 ± 0.000", "2"]]
    assert table.sheet([]).rows[0][1:] == ["never run"] * 4 + ["0"]
    few = [{**run, "history": {name: column[1::2] for name, column in run["history"].items()}} for run in found]
    assert table.sheet(few).rows[0][1:5] == ["not evaluated", "5.000 ± 1.000", "5.000 ± 1.000", "2.000 ± 0.000"]
    lacking = [{**run, "history": {name: column[:left] + column[left + 1:] for name, column in run["history"].items()}}
               for left, run in enumerate(found)]           # whose lines were damaged
    assert [table.sheet(lacking).data[0][name] for name in ("steps", "mean")] == [[3, 4], [3.0, 2.0]]
    assert table.sheet([found[0], lacking[1]]).data[0]["steps"] == [1, 3, 4]
    none = table.sheet([{**run, "history": {}} for run in found]).without_empty_rows()
    assert none.rows == [["softmax", *["not evaluated"] * 4, "2"]]
    found[1]["fields"] = {**found[1]["fields"], "width": 7}
    with pytest.raises(ValueError, match="runs of softmax have width 7 and 32; allowed: runs that differ in the seed"):
        table.sheet(found)


def test_rows_and_columns_of_figure_4_have_the_sizes_that_they_say():
    for name, (split, metric) in {"figure-4": ("held_out", "panel_accuracy"), "figure-a4": ("train", "loss")}.items():
        table, paper = TABLES[name], recipe("sraven", "paper")
        for row in table.rows:
            kind, number = re.fullmatch(r"\w+, (width x|depth) (\d+)", row.label).groups()
            made = recipe("sraven", "paper", **row.fields)
            assert (made.wider, made.layers) == ((int(number), paper.layers) if "x" in kind else (1, int(number)))
        for column in table.columns:
            assert (column.split, column.metric) == (split, metric)
            assert int(column.heading.split()[0]) * 1_000_000 == dict(column.fields)["steps"] * paper.batch


@plots
def test_a_picture_says_which_network_it_is_of_after_how_many_steps(tmp_path):
    picture = TABLES["figure-11-1s2r"]
    (place, run), = picture.recipes("quick", [3], steps=1).items()
    fit(run, tmp_path / place, progress=False)
    sheet = picture.sheet([{"name": run.name, "step": 1, "seconds": 2.0, "path": tmp_path / place}])
    assert picture.plot(sheet).get_suptitle() == (
        "Figure 11 of C, contextual retrieval\ncompositional-all-seed3 after 1 steps, 2,000 sets")
    assert sheet.data[0]["seconds"] == 2.0


@plots
def test_a_picture_of_a_table_says_other_settings_and_draws_no_error_where_there_is_none():
    table = TABLES["table-a1-logic"]
    sheet = table.sheet(table.recorded())
    assert "steps 3,000 (50,000)" in " ".join(table.plot(sheet).get_supxlabel().split())
    assert drawing.bar({"standard_error": 0.0}) == 0 and np.isnan(drawing.bar({"standard_error": None}))


def test_rows_of_figure_a3_have_32_examples():
    assert {row.fields["length"] for row in TABLES["figure-a3"].rows} == {32}


def test_numbers_of_tasks_are_those_of_the_formulas():
    table = TABLES["figure-a9"]
    assert table.sheet([]).rows[3][:3] == ["M = 4", "2,359,296", "188,760"]


@plots
def test_orders_of_magnitude_are_drawn_on_a_logarithmic_scale():
    for name, scale in ("table-3", "log"), ("figure-2c", "linear"):
        table = TABLES[name]
        assert table.plot(table.sheet(table.recorded())).axes[0].get_yscale() == scale


@plots
def test_what_was_never_run_takes_no_room():
    """A column of which nothing was run is not drawn, nor a row of which neither we nor the paper have a number."""
    table = TABLES["figure-2c"]
    sheet = table.sheet(table.recorded())
    axes, = table.plot(sheet).axes
    assert [cell["heading"] for cell in sheet.data[0]["cells"]] == ["16", "32", "64", "96"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["16", "32", "64"]
    assert np.allclose(axes.get_xlim(), (-0.5, 2.5))
    middle = replace(table, columns=(table.columns[0], table.columns[3], table.columns[1]))
    axes, = middle.plot(middle.sheet(table.recorded())).axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["16", "32"]
    line, = (x for x in axes.containers if x.get_label().startswith("hyla, 70%"))
    assert np.round(line.lines[0].get_xdata(orig=False)).tolist() == [0, 1]
    axes, = table.plot(table.sheet([])).axes
    assert [text.get_text() for text in axes.texts] == ["never run"]
    heads = TABLES["figure-5c"]
    sheet = heads.sheet([run for run in heads.recorded() if run["fields"].get("heads", 8) in (1, 8)])
    labels = [text.get_text() for text in heads.plot(sheet).axes[0].get_yticklabels()]
    assert labels == ["hyla, 1 head", "hyla, 8 heads", "softmax, 1 head", "softmax, 8 heads"] and len(sheet.data) == 10


@plots
def test_panels_of_one_quantity_have_one_scale():
    for name, alike in ("figure-2b", True), ("figure-6", False), ("figure-a3", False):
        table = TABLES[name]
        limits = {axes.get_xlim() for axes in table.plot(table.sheet(table.recorded())).axes}
        assert (len(limits) == 1) == alike


@plots
def test_rows_of_several_units_have_panels_of_their_own():
    table = TABLES["figure-6"]
    axes = table.plot(table.sheet(table.recorded())).axes
    rows = [[text.get_text().partition(": ")[0] for text in one.get_yticklabels()] for one in axes[::3]]
    assert len(axes) == 6 and rows == [["characters"] * 4, ["words"] * 4] and axes[0].get_ylim() == (3.5, -0.5)
    assert axes[2].get_xlim()[1] < 4 < axes[5].get_xlim()[0]
    ours = {one["label"]: one["cells"][1]["ours"]["mean"] for one in table.sheet(table.recorded()).data}
    drawn = axes[4].containers[0].lines[0].get_xdata()
    assert list(drawn) == [x for label, x in ours.items() if label.startswith("words")]


@plots
def test_a_receptive_field_is_drawn_beside_that_of_equal_shares():
    axes, = drawing.field(np.array([0.5, 0.75, 1.0, 1.0]), "a").axes
    assert [line.get_ydata().tolist() for line in axes.lines] == [[0.5, 0.75, 1, 1], [0.25, 0.5, 0.75, 1]]


# --- codes of networks that have other things to read than latent codes ----------------------------------------------

SMALL = {"steps": 2, "batch": 8, "evaluation": 2, "probe": 2, "checkpoint_every": 1}


@plots
def test_untrained_networks_are_those_that_training_began_with(tmp_path, monkeypatch):
    for name, value in ("WORDS", 2), ("LENGTH", 40), ("FIELD_WORDS", 4):
        monkeypatch.setattr(codes, name, value)
    one = recipe("parity", "quick", width=8, heads=2, max_length=60, far=50, stride=20, **SMALL)
    fit(one, tmp_path / "run", progress=False)
    found = codes.read_codes(tmp_path / "run")
    run, model, p = load(tmp_path / "run")
    assert set(found) == {"layer outputs", "receptive field", "probability"}
    assert {name for name in found["layer outputs"] if not name.startswith("untrained ")} == {"purity", "count",
                                                                                            "most frequent"}
    share = found["receptive field"]
    drawn = run.sample(stream(0, "evaluation", 1_000_000), "longer", 4, 40)
    back = regular.receptive_field(model, p, drawn.tokens, drawn.target)        # of 1, 2 ... tokens before the end
    assert 0 < share["first half"] == 1 - back[19] < 1 and share["one half"] == 0.5
    begun = codes.regular_codes(run, model, codes.initial(run, model))
    assert begun["receptive field"]["first half"] == share["untrained first half"] != share["first half"]
    assert begun["layer outputs"]["purity"] == found["layer outputs"]["untrained purity"]


def test_a_transformer_is_asked_about_other_probabilities_at_its_trained_lengths(tmp_path):
    one = recipe("parity", "quick", attention="transformer_xl", layers=1, width=8, heads=2, train_length=3,
                 max_length=5, **SMALL)
    fit(one, tmp_path / "run", progress=False)
    run, model, p = load(tmp_path / "run")
    found = codes.read_codes(tmp_path / "run")

    def right(ones):
        rng, share = np.random.default_rng((0, (0.1, 0.3, 0.5, 0.7, 0.9).index(ones))), []
        for length in (1, 2, 3):
            words, parity = RegularLanguages("parity", ones=ones).sample(rng, 512, length)
            share.append(np.mean(model.forward(p, words)[0][:, -1].argmax(-1) == parity))
        return np.mean(share)
    assert found == {"probability": {f"ones {x:g}": pytest.approx(right(x)) for x in (0.1, 0.3, 0.5, 0.7, 0.9)}}
    with pytest.raises(ValueError, match="nothing is read off transformer_xl trained on cycle; allowed: parity"):
        codes.regular_codes(replace(run, language="cycle"), model, p)
    with pytest.raises(ValueError, match="protocol is 'per_position'; allowed for codes: released"):
        codes.regular_codes(replace(run, language="d2", protocol="per_position", far=run.max_length), model, p)


def test_members_of_d3_lead_by_their_margin(tmp_path):
    fit(recipe("d3", "quick", width=8, heads=2, max_length=60, far=50, stride=20, **SMALL), tmp_path / "run",
        progress=False)
    found = codes.read_codes(tmp_path / "run")
    assert set(found["member margin"]) == {"16", "32", "64", "128", "256", "512"}
    for length, lead in found["member margin"].items():
        assert abs(lead - found["float64 member margin"][length]) < 1e-4
    run, model, p = load(tmp_path / "run")
    tokens, member = run.data().sample(codes.again(run), 128, 16)
    y = model.forward(p, tokens[member == 1])[0][:, -1]     # of all levels, not of the tree
    assert found["member margin"]["16"] == pytest.approx((y[:, 1] - y[:, 0]).mean(), rel=1e-4)
    p.readout.b += [-1, 2]
    for length, lead in codes.margins(run, model, p).items():
        assert abs(lead - found["member margin"][length] - 3) < 1e-4


def test_pairings_of_contextual_retrieval_are_read(tmp_path):
    fit(recipe("contextual_retrieval", "quick", width=8, **SMALL), tmp_path / "run", progress=False)
    found = codes.read_codes(tmp_path / "run")
    assert set(found) == {"specialisation", "pairing"}
    assert all(0 < x < 1 for x in found["specialisation"].values()) and 0 <= found["pairing"]["all"] < 1


@plots
def test_codes_of_related_rules_are_compared_with_those_of_all_others(tmp_path, monkeypatch):
    monkeypatch.setattr(codes, "COUNT", 200)
    fit(recipe("sraven", "quick", width=8, heads=2, hidden=8, ceiling=False, attention="hyla", **SMALL),
        tmp_path / "run", progress=False)
    found = codes.read_codes(tmp_path / "run")["itself, layer 2"]
    run, model, p = load(tmp_path / "run")
    rng = stream(0, "evaluation", 1_000_000)
    seen = [latent_code.observe(run, model, p, rng, split, 200) for split in ("train", "held_out")]
    mean = {rule: np.mean([code for one in seen for code, its in zip(one.code[:, 1, :, 2].astype(float),
                                                                     one.labels["rule"], strict=True) if its == rule],
                          axis=0) for rule in range(8)}
    cosine = {(a, b): mean[a] @ mean[b] / np.linalg.norm(mean[a]) / np.linalg.norm(mean[b])
              for a in range(8) for b in range(a)}
    related = cosine.pop((RULES.index("subtraction"), RULES.index("addition")))
    assert found["related cosine"] == pytest.approx(related)
    assert found["other cosine"] == pytest.approx(np.mean(list(cosine.values())))


TEXT = {"attention": "regular_gpt", "chunk": 4, "length": 20, "longest": 40, "chunks": 1, "layers": 1, "width": 8,
        "heads": 2, "text": str(Path(__file__).parent / "bad_input_blind.md")}


def test_where_a_language_model_looks_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(codes, "FIELD_WORDS", 3)
    one = recipe("text", "quick", **SMALL, **TEXT)
    fit(one, tmp_path / "run", progress=False)
    share = codes.read_codes(tmp_path / "run")["receptive field"]
    kinds = {kind: [share[f"{kind}last {n}"] for n in codes.LAST] for kind in ("", "untrained ", "even ")}
    assert len(share) == 3 * 8 and kinds["even "] == [*(n / 40 for n in (1, 2, 4, 8, 16, 32)), 1, 1]
    for kind in "", "untrained ":
        assert np.all(np.diff([0, *kinds[kind][:7]]) > 0) and kinds[kind][6:] == pytest.approx([1, 1])
    run, model, p = load(tmp_path / "run")
    drawn = sample(stream(0, "evaluation", 1_000_000), run.corpus().ids["test"], 3, 40)
    assert kinds[""] == receptive_field(model, p, drawn.tokens, drawn.target)[[0, 1, 3, 7, 15, 31, 39, 39]].tolist()
    begun = codes.text_codes(run, model, codes.initial(run, model))["receptive field"]
    assert kinds[""][3] != kinds["untrained "][3] == begun["last 8"]


def test_fresh_tables_of_codes_read_the_codes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(codes, "FIELD_WORDS", 3)
    few = replace(TABLES["figure-4b"], rows=(Row("chunk 4", {**SMALL, **TEXT}),))
    monkeypatch.setitem(TABLES, "figure-4b", few)
    said = says(capsys, "figure-4b", "--fresh", "--scale", "quick", "--seed", "0", "--out", str(tmp_path)).out
    found, = (codes.read_codes(path.parent) for path in tmp_path.rglob("result.json"))
    row = next(line for line in said.splitlines() if line.startswith("chunk 4"))
    assert f"{found['receptive field']['last 1']:.3f}" in row.split()
