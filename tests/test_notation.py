"""The formulas in docstrings are true: each is evaluated and held against its function."""

import numpy as np
import pytest

from docs.site.notation import Applied, Evaluator, formulas
from refattn import ops
from refattn.attention import windows
from refattn.verification.deviation import deviation
from refattn.xp import erf

SIZES = {"b": 2, "q": 3, "k": 4, "h": 5, "d": 6, "T": 7, "m": 8, "O": 9, "v": 10, "e": 3, "w": 2}
PAIRED = {"keep": "s", "dropout": "a", "dy": "y"}
TABLE = {                                  # function -> axes of its arguments, what it returns
    "linear": ("Tm mO O", "y"), "linear_backward": ("Tm mO TO", "dx dw db"), "embedding": ("vm index", "y"),
    "embedding_backward": ("vm index Tm", "dtable"), "relu": ("T", "y"), "relu_backward": ("T T", "dx"),
    "gelu": ("T", "y"), "gelu_backward": ("T T", "dx"), "gelu_exact": ("T", "y"),
    "gelu_exact_backward": ("T T", "dx"), "sigmoid": ("T", "y"), "silu": ("T", "y"), "silu_backward": ("T T", "dx"),
    "layer_norm": ("Tm m m", "y n r"), "layer_norm_backward": ("Tm T1 m Tm", "dx dscale dshift"),
    "softmax": ("Tk keep", "a"), "softmax_backward": ("Tk Tk", "ds"), "rms_head": ("bhT", "a rho"),
    "rms_head_backward": ("bhT b1T bhT", "ds"), "scores": ("bqhd bkhd bhqk", "s"),
    "scores_backward": ("bqhd bkhd bhqk bhqk", "dq dk dbias"), "drop": ("T T", "c"),
    "dropped_to_zero": ("T T", "r"),
}
ELSEWHERE = {"linears", "linears_backward", "scatter_slice", "unbroadcast"}        # several arrays, slices and shapes


def draw(axes):
    rng = np.random.default_rng(0)
    if axes == "keep":
        return rng.random((SIZES["T"], SIZES["k"])) < 0.7
    if axes == "index":
        return rng.integers(SIZES["v"], size=SIZES["T"])
    return rng.standard_normal([SIZES.get(x, 1) for x in axes])


def compare(function, arguments, results, **given):
    statements = formulas(function.__doc__)
    names = function.__code__.co_varnames[:len(arguments)]
    found = function(*arguments, **{x: y for x, y in given.items() if x == "at"})
    for name, array in zip(results, found if isinstance(found, tuple) else (found,), strict=True):
        evaluator = Evaluator(statements, dict(zip(names, arguments, strict=True)) | given, {"v": SIZES["v"]},
                              epsilon=1e-6, erf=erf)
        ours = evaluator.value(name).reshape(array.shape)
        error = deviation(name, ours, array, words=" by the formula in its docstring is {}, by the function {}")
        assert error <= 1e-13, f"{function.__name__}: {error.where}"


def test_every_operation_states_its_formula():
    missing = sorted(set(ops.__all__) - set(TABLE) - ELSEWHERE)
    assert not missing, f"no formula of {', '.join(missing)} is evaluated: enter it into TABLE of this file"
    assert set(TABLE) | ELSEWHERE == set(ops.__all__)


@pytest.mark.parametrize("name", TABLE)
def test_the_formula_is_the_function(name):
    axes, results = TABLE[name]
    arguments = [draw(x) * (1 + i) for i, x in enumerate(axes.split())] if "index" not in axes and "keep" not in axes \
        else [draw(x) for x in axes.split()]
    if name.startswith("embedding"):                            # a capital: any number of axes, here one
        assert arguments[1].shape == (SIZES["T"],)
    compare(getattr(ops, name), arguments, results.split())


def test_a_wrong_formula_is_found():
    wrong = formulas(ops.softmax_backward.__doc__.replace("a[T,j] * da[T,j]", "a[T,j] + da[T,j]"))
    a, da = draw("Tk"), draw("kT").T
    ours = Evaluator(wrong, {"a": a, "da": da}).value("ds")
    assert np.abs(ours - ops.softmax_backward(a, da)).max() > 0.1


def test_windows_of_keys():
    at = windows.windows(range(2, 5), 2, 2)
    n = np.arange(2, 5)[:, None] - np.array([0, 2])
    x, y, c = draw("bqhd"), np.random.default_rng(1).standard_normal((2, 5, 5, 6)), draw("bhqw")
    for function, arguments in (windows.products, (x, y)), (windows.mixtures, (c, y)):
        given = dict(zip(function.__code__.co_varnames, arguments, strict=False)) | {"n": n}
        ours = Evaluator(formulas(function.__doc__), given)
        name = formulas(function.__doc__)[0].targets[0].value.id
        assert np.allclose(ours.value(name), function(*arguments, None, at), rtol=1e-13, atol=1e-13)
    ours = Evaluator(formulas(windows.scattered.__doc__)[:1], {"c": c, "x": x, "n": n}, {"k": 5})
    assert np.allclose(ours.value("dy"), windows.scattered(c, x, at, 5)[0], rtol=1e-13, atol=1e-13)


def test_what_is_not_given_is_left_out():
    import ast
    applied = Applied({"keep": None, "s": ast.Name("l"), "a": ast.Name("g")}, {"T": "bqs", "k": "r", "j": "j"})
    text = ast.unparse(ast.fix_missing_locations(applied.visit(formulas(ops.softmax.__doc__)[0])))
    assert text == "g[b, q, s, r] = exp(l[b, q, s, r]) / sum_j(exp(l[b, q, s, j]))"
