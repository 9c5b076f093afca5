"""Reference vectors: complete, reproducible bit for bit, and about what their manifest claims."""

import json
import re
import subprocess
from pathlib import Path
from shutil import which

import numpy as np
import pytest

from refattn.attention import VARIANTS
from refattn.check import deviation
from refattn.verification import vectors
from refattn.verification.cases import find
from refattn.verification.cases.attention import loops
from tests.planted import BUGS, revealed


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    directory = tmp_path_factory.mktemp("vectors")
    paths = vectors.write(directory)
    return paths, json.loads((directory / "manifest.json").read_text(encoding="utf-8"))


def entry(written, file):
    return next(case for case in written[1]["cases"] if case["file"] == file)


def test_manifest_and_files_belong_together(written):
    paths, manifest = written
    assert [path.name for path in paths] == [case["file"] for case in manifest["cases"]] + ["manifest.json"]
    assert len({path.name for path in paths}) == len(paths) and all(path.exists() for path in paths)
    assert {case["case"] for case in manifest["cases"]} >= {f"attention/{name}" for name in VARIANTS}
    for case in manifest["cases"]:
        assert case["what"] and (case["equation"] or not case["case"].startswith("attention/"))


def test_the_manifest_says_the_numbers_that_no_array_holds(written):
    """Which queries are read, what a layer is made of, and the epsilons of LayerNorm and of RMSHead."""
    for case in written[1]["cases"]:
        assert case["settings"] == find(case["case"]).settings
        assert case["settings"] or not case["case"].startswith(("layers/", "models/"))
    assert entry(written, "LayerNorm.npz")["settings"] == "LayerNorm(width=8, epsilon=1e-06)"
    assert entry(written, "MultiHead_hyla_across-read.npz")["settings"].endswith(", read=slice(2, None, None)")
    epsilon = float(re.search(r" \+ (1e-\d)\)", written[1]["rms_head"]).group(1))
    path = next(path for path in written[0] if path.name == "linear_rms_head-plain.npz")
    with np.load(path) as file:
        s = np.einsum("bqhd,bkhd->bhqk", file["q"], file["k"]) * file["q"].shape[-1] ** -0.5
        code = s / np.sqrt((s * s).mean(axis=1, keepdims=True) + epsilon)
        assert deviation("output", file["output"], np.einsum("bhqk,bkhe->bqhe", code, file["v"])) <= 1e-12


def test_every_array_is_there_and_small(written):
    for path, case in zip(written[0], written[1]["cases"], strict=False):
        with np.load(path, allow_pickle=False) as file:
            inputs = {n for n in file.files if n not in ("output", "doutput") and not n.startswith(("d_", "allowed_"))}
            constants = set(find(case["case"]).constants)
            floats = {n for n in inputs if file[n].dtype == np.float64 and n not in constants}
            assert {n.removeprefix("d_") for n in file.files if n.startswith("d_")} == floats
            assert all(file[f"d_{n}"].shape == file[n].shape for n in floats)
            assert file["doutput"].shape == file["output"].shape
            assert sum(file[n].nbytes for n in file.files) < 200_000


def test_attention_agrees_with_the_loops(written):
    for path, case in zip(written[0], written[1]["cases"], strict=False):
        name = case["case"].removeprefix("attention/")
        if name in VARIANTS:
            with np.load(path) as file:
                inputs = {n: file[n] for n in file.files
                          if n not in ("output", "doutput") and not n.startswith(("d_", "allowed_"))}
                assert deviation("output", file["output"], loops(VARIANTS[name])(**inputs)) <= 1e-12


def test_what_is_special_is_so(written):
    with np.load(next(p for p in written[0] if p.name == "hyla-nothing_kept.npz")) as file:
        assert not file["keep"][1].any() and not file["output"][:, 1].any() and not file["d_q"][:, 1].any()
    with np.load(next(p for p in written[0] if p.name == "softmax-bias_for_heads.npz")) as file:
        assert file["bias"].shape == file["d_bias"].shape == (4, 1, 5)


@pytest.mark.parametrize("bugs", [BUGS[::12], pytest.param(BUGS[1::4], marks=pytest.mark.slow),
                                  pytest.param(BUGS, marks=pytest.mark.long)], ids=["some", "many", "all"])
def test_the_table_of_what_is_revealed_is_of_these_bugs(bugs):
    """Where bugs or vectors are new: python -m tests.planted.revealed.  Where one was changed: the same with --all."""
    kept, found = json.loads(vectors.REVEALED.read_text(encoding="utf-8")), revealed.table(bugs)
    assert kept["mistakes"] == [f"{bug.file}: {bug.sentence}" for bug in BUGS]
    assert not revealed.others(kept, found), (f"run: python -m tests.planted.revealed {revealed.others(kept, found)}; "
                                              "where a planted bug was changed, --all in place of names")


def test_the_message_names_the_variants_whose_vectors_are_asked_again():
    kept = {"mistakes": ["one", "two"], "revealed": {"softmax-plain": [0], "hyla-plain": [0, 1], "linear-plain": [1]}}
    found = {"mistakes": ["two"], "revealed": {"softmax-plain": [], "hyla-plain": [], "linear-plain": [0]}}
    assert revealed.others(kept, found) == "hyla"
    assert revealed.others(kept, {**found, "revealed": found["revealed"] | {"hyla_deep-plain": []}}) == "hyla hyla_deep"
    assert revealed.others(kept, {**found, "revealed": found["revealed"] | {"rotary-plain": []}}) == "--all"


def test_the_bugs_that_it_reveals_are_named(written):
    plain, everything = (set(entry(written, f"hyla-{name}.npz")["reveals"]) for name in ("plain", "everything"))
    assert plain < everything <= {f"{bug.file}: {bug.sentence}" for bug in BUGS}
    assert "ops.py: dq lacks 1/sqrt(d)" in plain
    dropout = {name for name in everything if "dropout" in name}
    assert dropout and not dropout & plain


def test_every_case_reveals_a_planted_bug(written):
    assert all(case["reveals"] for case in written[1]["cases"]), "new vectors: python -m tests.planted.revealed"


def test_a_second_writing_gives_the_same_bytes(written, tmp_path):
    *again, manifest = vectors.write(tmp_path)
    for one, two in zip(written[0][:-1], again, strict=True):
        assert one.name == two.name and one.read_bytes() == two.read_bytes()
    assert json.loads(manifest.read_text(encoding="utf-8")) == written[1]


@pytest.mark.skipif(which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("mistake", [[], ["-DMISTAKE"]])
def test_a_c_program_judges_by_the_vectors_alone(written, tmp_path, mistake):
    source = Path(__file__).parents[1] / "docs" / "vectors.c"
    subprocess.run(["cc", "-O1", *mistake, "-o", tmp_path / "judge", source, "-lm"], check=True)
    path = next(p for p in written[0] if p.name == "softmax-plain.npz")
    found = subprocess.run([tmp_path / "judge", path], capture_output=True, text=True)
    assert found.returncode == bool(mistake) and "entries are wrong" in found.stdout


def test_what_is_allowed_covers_float32_and_not_a_mistake(written):
    with np.load(next(p for p in written[0] if p.name == "hyla-everything.npz")) as file:
        arrays = {n: file[n].astype("float32") if file[n].dtype == np.float64 else file[n]
                  for n in ("q", "k", "v", "bias", "keep", "dropout")}
        o, saved = VARIANTS["hyla"].forward(**arrays)
        dq = VARIANTS["hyla"].backward(saved, file["doutput"].astype("float32"))[0]
        for name, x in ("output", o), ("d_q", dq):
            assert (np.abs(x - file[name]) <= file[f"allowed_float32_{name}"]).all()
            assert not (np.abs(x * 1.001 - file[name]) <= file[f"allowed_float32_{name}"]).all()
