"""The exercises are made from the source, and their solutions are right."""

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from refattn.check import compare
from refattn.cli import main
from refattn.cli.checking import of_file

HERE = Path(__file__).resolve().parents[1] / "tutorials" / "exercises"
PAGES = "softmax", "linear", "hyla", "compositional", "sliding_dilated"
KERNELS = {"conv": "layers/Conv of tiles", "context_norm": "layers/ContextNorm in 1",
           "next_token": "layers/next_token, 4 at a time"}


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def answers():
    return load(HERE / "solutions" / "answers.py").ANSWERS


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_made_from_the_source(name):
    expected = load(HERE / "make.py").exercise(name)
    assert (HERE / f"{name}.py").read_text(encoding="utf-8") == expected, "run: python tutorials/exercises/make.py"
    assert expected.count("= ?") >= 4 and "NotImplementedError" in expected


@pytest.mark.parametrize("name", PAGES)
def test_an_untouched_page_says_what_is_to_be_written(name, capsys):
    assert main(["check", str(HERE / f"{name}.py"), "--as", name]) == 2
    assert "are to be written" in capsys.readouterr().err


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("options", [
    {}, *({"bias": bias, "keep": "bhqk", "dropout": "bhqk"} for bias in ("hqk", "h1k"))],
    ids=["plain", "all", "stretched bias"])
def test_a_solution_agrees(name, options):
    options = {key: axes.replace("k", "w") if name == "sliding_dilated" else axes for key, axes in options.items()}
    report = compare(of_file(str(HERE / "solutions" / f"{name}.py"), name), name, dtype="float64", **options)
    assert report.ok, report


@pytest.mark.parametrize("name", KERNELS)
def test_a_solution_that_is_a_kernel_agrees(name):
    variant = KERNELS[name]
    report = compare(of_file(str(HERE / "solutions" / f"{name}.py"), variant), variant, dtype="float64")
    assert report.ok and len(report.entries) >= 3, report


@pytest.mark.parametrize("name, line, right, wrong", [
    ("conv", "line (3) of Conv.backward", "axis=(0, 1, 2))}", "axis=(0, 1))[0]}"),
    ("context_norm", "line (4) of ContextNorm.backward", "keepdims=True) / (x.shape[1] - 1))\n    return",
     "keepdims=True) / x.shape[1])\n    return"),
    ("next_token", "line (4) of next_token_backward", " - (np.arange(len(table)) == target[..., None])", "")])
def test_a_mistake_in_a_solution_that_is_a_kernel_is_named_by_a_line(name, line, right, wrong, tmp_path, capsys):
    text = (HERE / "solutions" / f"{name}.py").read_text(encoding="utf-8")
    told = (HERE / "README.md").read_text(encoding="utf-8").split("makes fresh pages")[0]
    assert text.count(right) == 1 and f"layers/{'convolution' if name == 'conv' else name}.py)" in told
    (tmp_path / "mine.py").write_text(text.replace(right, wrong), encoding="utf-8")
    assert main(["check", str(tmp_path / "mine.py"), "--as", KERNELS[name]]) == 1
    assert line in capsys.readouterr().out


def test_a_forgotten_use_is_named_by_its_line(tmp_path, capsys):
    text = (HERE / "solutions" / "hyla.py").read_text(encoding="utf-8")
    assert text.count("dc = dc + np.einsum") == 1
    (tmp_path / "mine.py").write_text(text.replace("dc = dc + np.einsum", "dc + np.einsum"), encoding="utf-8")
    assert main(["check", str(tmp_path / "mine.py"), "--as", "hyla"]) == 1
    said = capsys.readouterr().out
    assert re.search(r"^dq +WRONG", said, re.M) and re.search(r"^dv +agrees", said, re.M)
    assert re.search(r"^line \(5\) of hyla_backward", said, re.M)


def test_a_file_may_import_its_neighbour_and_have_any_function(tmp_path, capsys):
    for name in "my_neighbour", "my_late_neighbour":
        (tmp_path / f"{name}.py").write_text("from refattn.attention.softmax import *", encoding="utf-8")
    path = tmp_path / "mine.py"
    path.write_text("import sys; sys.path.insert(0, 'own'); import my_neighbour\n"
                    "def kernel(q, k, v, do):\n    import my_late_neighbour\n"
                    "    return my_late_neighbour.softmax(q, k, v)[0]\n"
                    "def wrong(q, k, v, do):\n    return -kernel(q, k, v, do)\n"
                    "class mine:\n    forward = staticmethod(kernel)\n", encoding="utf-8")
    before = [*sys.path]
    for name, status in ("", 0), (":kernel", 0), (":wrong", 1), (":mine.forward", 0):
        assert main(["check", f"{path}{name}", "--as", "softmax"]) == status, capsys.readouterr().err
        assert sys.path == before
    assert main(["check", f"{path}:mine.backward", "--as", "softmax"]) == 2
    assert main(["check", f"{path}:wronk", "--as", "softmax"]) == 2
    assert "mine.py' has no function 'wronk', did you mean wrong?" in capsys.readouterr().err


def test_what_was_not_asked_of_a_right_kernel_is_said(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text("from refattn.attention.softmax import softmax as page\n"
                    "def softmax(q, k, v, do, bias=None):\n    return page(q, k, v, bias=bias)[0]\n", encoding="utf-8")
    for words, rest in ([], "--bias, --keep, --dropout, --causal, --tiles"), (
            ["--bias", "hqk", "--tiles"], "--keep, --dropout, --causal"):
        assert main(["check", f"{path}:softmax", "--as", "softmax", *words]) == 0, capsys.readouterr().err
        assert capsys.readouterr().out.splitlines()[-1] == f"not asked: {rest}"
    path.write_text("from refattn.attention.sliding_dilated import sliding_dilated as page\n"
                    "def kernel(q, k, v, offset_bias, do):\n"
                    "    return page(q, k, v, offset_bias, dilation=2)[0]\n", encoding="utf-8")
    assert main(["check", str(path), "--as", "sliding_dilated"]) == 0, capsys.readouterr().err     # refuses --causal
    assert capsys.readouterr().out.splitlines()[-1] == "not asked: --bias, --keep, --dropout, --tiles"
    path.write_text("3", encoding="utf-8")
    assert main(["check", f"{path}:softmax", "--as", "softmax"]) == 2
    assert "has no function 'softmax'; allowed: nothing, there is none" in capsys.readouterr().err


def test_a_function_that_takes_no_do_is_asked_with_its_backward(tmp_path, capsys):
    path = tmp_path / "mine.py"
    path.write_text("""from refattn.attention.softmax import softmax, softmax_backward
def wrong(q, k, v):
    return softmax(q, k, v)
def wrong_backward(saved, do):
    dq, dk, dv, _ = softmax_backward(saved, do)
    return 2 * dq, dk, dv
def whole(q, k, v, do):
    o, saved = softmax(q, k, v)
    return o, *softmax_backward(saved, do)[:3]
def whole_backward(saved, do):
    1 / 0
def open_to_all(q, k, v, **options):
    return whole(q, k, v, **options)
open_to_all_backward = whole_backward
""", encoding="utf-8")
    for name, wrong in ("softmax", 0), ("wrong", 1), ("whole", 0), ("open_to_all", 0):
        assert main(["check", f"{path}:{name}", "--as", "softmax"]) == wrong, capsys.readouterr().err
        said = capsys.readouterr().out
        assert "dv     agrees" in said and ("dq is 2 times what it should be" in said) == bool(wrong)


@pytest.mark.parametrize("gives", ["dq, dk, dv, dstate", "dict(dq=dq, dk=dk, dv=dv, dstate=dstate)"])
def test_a_pair_that_carries_a_state_gives_its_end_too_and_gets_its_gradient(tmp_path, capsys, gives):
    path = tmp_path / "mine.py"
    for end, wrong in ("dend", 0), ("2 * dend", 1):
        path.write_text("from refattn.attention.linear_state import linear_state, linear_state_backward as theirs\n"
                        "def linear_state_backward(saved, do, dend):\n"
                        f"    dq, dk, dv, dstate = theirs(saved, do, {end})\n"
                        f"    return {gives}\n", encoding="utf-8")
        for given in str(path), f"{path}:linear_state":
            assert main(["check", given, "--as", "linear_state"]) == wrong, capsys.readouterr().err
            said = capsys.readouterr().out
            assert "end    agrees" in said and "dstate" in said
            assert ("forward right, backward wrong" in said) == bool(wrong)


def test_what_a_students_backward_lacks_is_told_at_its_own_line(tmp_path, capsys):
    """Not at the line of the library that it called; a backward that returns nothing is named; a mapping is taken."""
    text = (HERE / "solutions" / "softmax.py").read_text(encoding="utf-8")
    path, give = tmp_path / "mine.py", "    return dq, dk, dv, None"
    assert text.count(give) == 1
    for lines, status, words in (
            ("    None", 2, "theirs raised TypeError: softmax_backward returned None; allowed: the gradients"),
            ("    ops.scores_backward(q, k[0], None, ds)\n" + give, 2, "mine.py:"),
            ("    return {'dq': dq, 'dk': dk, 'dv': dv}\n" + give, 0, "dv     agrees")):
        path.write_text("from refattn import ops\n" + text.replace(give, lines), encoding="utf-8")
        assert main(["check", str(path), "--as", "softmax"]) == status
        said = capsys.readouterr()
        assert words in said.out + said.err and "contract.py:" not in said.err, said


def test_a_variant_has_a_pair_of_its_own_name(tmp_path, capsys):
    path = tmp_path / "mine.py"
    for name in "hyla_deep", "compositional_linear":
        path.write_text(f"from refattn.attention.pages import PAGES\n"
                        f"{name}, {name}_backward = PAGES['{name}'][1:3]\n", encoding="utf-8")
        assert main(["check", str(path), "--as", name]) == 0, capsys.readouterr().err
    assert main(["check", str(path), "--as", "hyla_deep"]) == 2
    assert "neither kernel nor hyla_deep and hyla_deep_backward" in capsys.readouterr().err


def test_a_file_that_does_not_fit_is_one_line(tmp_path, capsys):
    path = tmp_path / "mine.py"
    for text, words in ("x = 1", "neither kernel nor hyla and hyla_backward"), ("x =", "cannot be run (SyntaxError"), (
            "import sys; sys.exit(0)", "cannot be run (SystemExit: 0)"), ("1 / 0", "cannot be run (ZeroDivisionError"
            ), ("import pytest; pytest.importorskip('nowhere')", "cannot be run (Skipped: could not import 'nowhere'"):
        path.write_text(text, encoding="utf-8")
        assert main(["check", str(path), "--as", "hyla"]) == 2
        said = capsys.readouterr().err
        assert words in said and said.count("\n") == 1
    assert main(["check", str(tmp_path / "none.py"), "--as", "hyla"]) == 2
    assert "is not a file" in capsys.readouterr().err
    path.write_text("x = 1", encoding="utf-8")
    for name, words in (("layers/LayerNorm", "no function called kernel; allowed with layers/LayerNorm: kernel, or"),
                        ("linear_state", "neither kernel nor linear_state and linear_state_backward; allowed: one of")):
        assert main(["check", str(path), "--as", name]) == 2
        assert f"mine.py has {words}" in capsys.readouterr().err


@pytest.mark.parametrize("text, words", [("1 / 0", "ZeroDivisionError: division by zero"), ("x =", "SyntaxError: "),
                                         ("import sys; sys.exit(0)", "SystemExit: 0")])
def test_a_module_that_cannot_be_imported_is_one_line_and_no_verdict(text, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = f"module_{abs(hash(text))}"
    (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    assert main(["check", f"{name}:kernel", "--as", "hyla"]) == 2
    said = capsys.readouterr().err
    assert f"module {name!r} cannot be imported ({words}" in said and said.count("\n") == 1


EXPECTED = {
    "change_2": 3, "change_5": (3, 0), "explain_5": True, "change_6": (7, 27), "derive_7": [27, 27, 729, 216],
    "explain_7": 4096, "change_8": [0.5], "explain_8": 2 / 42, "change_9": 36, "explain_9": [1, 2, 2, 2, 2, 1],
    "change_10": [-(3**-0.5), -(3**-0.5), 2 * 3**-0.5], "explain_10": 7_500, "explain_11": 2}
NOTHING = ("change_1", "explain_1", "explain_2", "explain_3", "change_4", "explain_4", "derive_5", "explain_6",
           "derive_8", "change_11")


def test_answers_are_what_the_list_says(answers):
    for name, expected in EXPECTED.items():
        assert np.allclose(answers[name](), expected, rtol=1e-9, atol=0), name
    for name in NOTHING:
        assert np.max(answers[name]()) < 1e-12, name
    alike, apart = answers["change_3"]()
    assert alike == 0 and apart > 1
    few, many = answers["change_7"]()
    assert abs(few - 0.25) < 0.03 and abs(many - 0.09) < 0.02
    assert set(answers) == {*EXPECTED, *NOTHING, "change_3", "change_7"}


def test_every_tutorial_has_three_exercises():
    text = (HERE / "README.md").read_text(encoding="utf-8")
    rows = re.split(r"^\| \[(?=\d+\])", text.split("## Add a variant")[0], flags=re.M)[1:]
    assert [int(row.split("]")[0]) for row in rows] == list(range(1, 12))
    for row in rows:
        assert [row.count(f"**{kind}**") for kind in ("Derive", "Change", "Explain")] == [1, 1, 1]
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (HERE / target).exists(), target
