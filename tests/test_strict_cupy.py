"""The stand-in for CuPy itself: planted mistakes are refused or counted, valid code equals NumPy."""
import copy
import json
import math
import pathlib

import numpy as np
import pytest

from refattn.xp import array_module, to_device, to_host
from tests import cupy_names, strict_cupy

DRAWN = np.random.default_rng(7)
HOST = dict(
    x=DRAWN.standard_normal((4, 5)).astype(np.float32),
    y=DRAWN.standard_normal((4, 5)).astype(np.float32),
    w=DRAWN.standard_normal((5, 5)).astype(np.float32),
    q=DRAWN.standard_normal((2, 3, 4, 5)).astype(np.float32),       # b h t d
    k=DRAWN.standard_normal((2, 3, 7, 5)).astype(np.float32),
    one=DRAWN.standard_normal((2, 1, 5, 7)).astype(np.float32),     # keys that all heads share
    z=DRAWN.standard_normal((3, 4)) + 1j * DRAWN.standard_normal((3, 4)),
    keep=DRAWN.random((4, 5)) < 0.6,
    ids=np.array([2, 0, 3]),
    twice=np.array([1, 1, 3]),
    n=np.array(3),
    s=np.array(2.5, dtype=np.float32),
)


def run(code, xp):
    """Executes a snippet on copies of HOST in the module `xp`; `host` is a NumPy array in either case."""
    names = {name: xp.asarray(value.copy()) for name, value in HOST.items()}
    names |= dict(xp=xp, np=np, math=math, host=HOST["x"].copy(), r=None)
    exec(code, names)
    return names["r"]


# The mistake, and what the stand-in raises.  All pass on NumPy.
MISTAKES = [
    ("x + host", TypeError),
    ("host * x", TypeError),
    ("x += host", TypeError),
    ("xp.clip(z, -1, 1)", TypeError),
    ("x.astype(xp.complex64).clip(-1, 1)", TypeError),
    ("xp.logical_not(z)", TypeError),
    ("host += x", TypeError),
    ("x @ host.T", TypeError),
    ("x + [1, 2, 3, 4, 5]", TypeError),
    ("x - host[0, 0:1].reshape(())", TypeError),
    ("xp.exp(host)", TypeError),
    ("xp.exp(x, out=host)", TypeError),
    ("xp.sum(host)", TypeError),                            # CuPy computes this one on the host
    ("xp.sum([1, 2])", TypeError),
    ("xp.where(keep, x, host)", TypeError),
    ("xp.where([True] * 5, x, y)", TypeError),
    ("xp.where(True, x, y)", TypeError),
    ("xp.concatenate([x, host])", TypeError),
    ("xp.stack([host, x])", TypeError),
    ("xp.einsum('td,td->t', x, host)", TypeError),
    ("xp.copyto(x, host)", TypeError),
    ("x[...] = host", ValueError),
    ("x[1:] = host[1:]", ValueError),
    ("x[0] = [1, 2, 3, 4, 5]", ValueError),
    ("xp.add.at(x, ids, host[:3])", TypeError),
    ("xp.exp(x, where=keep, out=y)", TypeError),
    ("xp.divide(x, y, out=y, where=keep)", TypeError),
    ("xp.add(x, y, order='K')", TypeError),
    ("x.sum(where=keep)", TypeError),
    ("x.max(axis=-1, initial=0)", TypeError),
    ("xp.mean(x, where=keep)", TypeError),
    ("x.var(axis=-1, mean=x.mean(axis=-1, keepdims=True))", TypeError),
    ("xp.var(x, correction=1)", TypeError),
    ("xp.take(x, ids, mode='clip')", TypeError),
    ("xp.take(x, ids, 0, None, 'clip')", TypeError),
    ("xp.clip(x, 0, 1, where=keep)", TypeError),
    ("xp.sort(x, stable=True)", TypeError),
    ("xp.einsum('td->dt', x, out=w[:, :4])", TypeError),
    ("xp.matmul(x, w, y)", TypeError),                      # out by keyword only
    ("xp.matmul(x, w, out=np.empty((4, 5), np.float32))", TypeError),
    ("xp.matmul(x, w, out=xp.zeros((4, 5)))", TypeError),   # of dtype float64
    ("xp.matmul(w, w, out=w)", ValueError),
    ("x[0].item(0)", TypeError),
    ("np.asarray(x)", TypeError),
    ("np.float32(s)", TypeError),
    ("np.testing.assert_allclose(x, x)", TypeError),
    ("range(n)", TypeError),
    ("[1, 2, 3, 4][n]", TypeError),
    ("xp.zeros((n, 2), dtype=x.dtype)", TypeError),
    ("x[:, :4].reshape(n + 1, 4)", TypeError),
    ("x.sum(axis=n - 3)", TypeError),
    ("{x.sum(): 1}", TypeError),                            # NumPy's scalars have a hash
    ("xp.maximum.reduce(x, axis=-1)", NotImplementedError),
    ("xp.logaddexp.reduce(x)", NotImplementedError),
    ("xp.maximum.accumulate(x)", NotImplementedError),
    ("xp.add.reduce(x, initial=0)", TypeError),
    ("xp.add.reduce(host)", TypeError),
    ("xp.multiply.at(x, ids, 2)", NotImplementedError),
    ("xp.subtract.at(x, ids, 1)", TypeError),
    ("xp.add.at(z, n - 2, 1)", TypeError),                  # no atomic addition of complex numbers
    ("x[twice] = y[:3]", ValueError),
    ("x[twice] += 1", ValueError),
    ("x[1:] = x[:-1]", ValueError),
    ("xp.copyto(x[1:], x[:-1])", ValueError),
    ("x.T.sort()", NotImplementedError),
    ("xp.einsum_path('td,td->t', x, x)", AttributeError),
    ("np.einsum_path('td,td->t', x, x)", TypeError),
    ("xp.errstate(over='ignore')", AttributeError),
    ("xp.vecdot(x, y)", AttributeError),
    ("xp.geomspace(1, 8, 4)", AttributeError),
    ("xp.insert(x, 0, 1)", AttributeError),
    ("xp.linalg.multi_dot([x, w, w])", AttributeError),
    ("x.setflags(write=False)", AttributeError),
    ("x.flags.writeable", AttributeError),
    ("xp.asarray([None])", TypeError),
    ("x * np.longdouble(2)", TypeError),
]
if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
    MISTAKES += [("xp.clip(x, min=0, max=1)", TypeError), ("xp.reshape(x, shape=(20,))", TypeError)]

# The mistake, the counter that sees it, and its number.
COSTS = [
    ("float(x.sum())", "sync", 1),
    ("float(x.sum())", "d2h", 1),
    ("bool((x > 0).all())", "sync", 1),
    ("int(n)", "d2h", 1),
    ("x[0, 0].item()", "sync", 1),
    ("x[0].tolist()", "d2h", 1),
    ("str(x)", "d2h", 1),
    ("f'{s:.3f}'", "d2h", 1),
    ("math.sqrt(s)", "sync", 1),
    ("max(x.sum(), y.sum())", "sync", 1),
    ("if (x == y).any(): pass", "sync", 1),
    ("7.0 in x[0]", "sync", 5),
    ("x[:n]", "sync", 1),
    ("x[keep]", "sync", 1),
    ("x[keep] = 0", "sync", 1),
    ("xp.nonzero(keep)", "sync", 1),
    ("xp.where(keep)", "d2h", 1),
    ("xp.unique(ids)", "sync", 1),
    ("xp.bincount(ids, minlength=5)", "sync", 2),
    ("xp.repeat(x, ids[:1], axis=0)", "sync", 1),
    ("xp.tril_indices(4)", "sync", 1),
    ("xp.lib.stride_tricks.sliding_window_view(x, 2, axis=0)", "sync", 1),
    ("xp.lib.stride_tricks.sliding_window_view(x, 2, axis=0)", "h2d", 1),
    ("x[[2, 0]]", "h2d", 1),
    ("x[np.array([2, 0])]", "h2d", 1),
    ("xp.take(x, [2, 0], axis=0)", "h2d", 1),
    ("x[ids] = 0", "h2d", 1),                               # even a scalar
    ("x[ids] = host[:3]", "h2d", 1),
    ("xp.asarray(host)", "h2d", 1),
    ("xp.array([1, 2])", "h2d", 1),
    ("np.exp(x)", "dispatches", 1),
    ("np.sum(x)", "dispatches", 1),
    ("np.float32(2) * x", "dispatches", 1),
    ("xp.einsum('td,te->de', x, y)", "einsum", 1),
    ("q @ k.swapaxes(-1, -2)", "operand_copies", 1),
    ("q.swapaxes(-1, -2) @ q[..., :3]", "operand_copies", 2),
    ("x[:, :3] @ w[:3]", "operand_copies", 1),
    ("q[0] @ w.T", "operand_copies", 1),
    ("x.T @ y", "operand_copies", 0),
    ("x[1:] @ w.T", "operand_copies", 0),
    ("q @ q.mT.copy()", "operand_copies", 0),
    ("q @ w", "pointer_gemms", 1),
    ("q @ one", "pointer_gemms", 1),
    ("q @ w[0]", "pointer_gemms", 1),
    ("q @ k.mT", "pointer_gemms", 0),
    ("q[:1, :1] @ w", "pointer_gemms", 0),
    ("xp.matmul(x, w, out=xp.zeros((5, 4), dtype=x.dtype).T)", "out_copies", 1),
    ("xp.matmul(x, w, out=y)", "out_copies", 0),
    ("x + y", "launches", 1),
    ("x.reshape(2, 10)", "launches", 0),
    ("x.T.reshape(20)", "launches", 1),
    ("x[1:, None].T", "launches", 0),
    ("xp.split(x, 2)", "launches", 0),
    ("x.astype(x.dtype, copy=False)", "launches", 0),
    ("x[1:] += 1", "launches", 1),
    ("x[1:] = y[:3]", "launches", 1),
    ("x.mean(axis=0)", "launches", 2),
    ("xp.concatenate([x, y, x])", "launches", 3),
    ("xp.take_along_axis(x, ids[None], axis=1)", "launches", 6),
    ("xp.add.at(x, ids, y[:3])", "launches", 2),
    ("x @ w", "launches", 1),
    ("q @ k.mT", "launches", 2),
    ("q @ one", "launches", 7),
]

# Valid on CuPy, and equal to NumPy in value, shape and dtype.
VALID = """
x += y; x *= 2; x -= y; x /= 3.0; r = x
r = xp.subtract(x, y, out=x)
r = xp.subtract(x, y, x)
r = xp.exp(x, dtype=xp.float64, casting='same_kind')
r = xp.where(keep, x, -xp.inf)
r = xp.where(keep, 0.0, x.max(axis=-1, keepdims=True))
r = xp.maximum(x, 0); r *= keep
r = 1 / (1 + xp.exp(-x))
r = (2 - x) * x // 1 % 3
r = x ** 2 + 2 ** x
r = abs(-x) > y
r = ~keep | (x >= y) & keep
r = x == y
r = x.max(axis=0)
r = x.sum()
r = x.sum(axis=-1, keepdims=True)
r = x.mean(axis=(0, 1))
r = keep.sum(axis=-1)
r = xp.sum(x * y, axis=-1, dtype=xp.float64)
r = xp.argmax(x, axis=-1)
r = x.argmax()
r = xp.count_nonzero(keep)
r = xp.isfinite(x).all()
r = xp.allclose(x, x)
r = xp.add.reduce(x, axis=1)
r = xp.multiply.reduce(x)
r = xp.add.accumulate(x, axis=1)
xp.add.at(x, twice, y[:3]); r = x
xp.add.at(x, (twice, ids), 1.0); r = x
xp.maximum.at(x, ids, 0.5); r = x
r = x.swapaxes(0, 1) + w[:, :4]
r = q.transpose(0, 2, 1, 3).reshape(2, 4, 15)
r = q.transpose((0, 2, 1, 3))[..., ::2]
r = xp.moveaxis(q, 1, 2)[:, ::-1, 1]
r = q.reshape((-1, 5)) @ w
r = q @ k.mT
r = xp.matmul(q, k.swapaxes(-1, -2)) * q.shape[-1] ** -0.5
r = xp.zeros((2, 4, 3, 7), dtype=q.dtype); xp.matmul(q, k.mT, out=r.transpose(0, 2, 1, 3))
r = x @ w[0]
r = x[0] @ x[0]
r = xp.tensordot(q, q, axes=([0, 1, 2], [0, 1, 2]))
r = xp.dot(x, w)
r = xp.einsum('bhqd,bhkd->bhqk', q, k)
r = xp.linalg.norm(x)
r = x[1]
r = x[1, 2]
r = x[-1, ::2]
r = x[..., None, 1:3]
r = x[ids]
r = x[n]
r = x[:, ids[:2]][1:]
r = x[xp.arange(3), ids]
r = [row * 2 for row in x][2]
x[1] = 0; x[:, 2] = y[:, 0]; x[0, 0] = 7.0; x[..., 1] *= 2; r = x
x[ids] = y[:3]; r = x
x[twice] = s; r = x
x[:, 1:] = x[:, :-1]; r = x
x[0] = np.float32(3); x[1] = np.array(4.0); r = x
v = x[1:3]; v += 1; r = x
v = x[2, 3]; r = v + 1
r = x.copy(); x[...] = 0
xp.copyto(x, y, where=keep); r = x
xp.copyto(x, 0.0, where=~keep); r = x
r = xp.take(w, ids, axis=0)
r = xp.take_along_axis(x, ids[None], axis=1)
r = xp.broadcast_to(x[0], (3, 5))
r = xp.concatenate([x, y[:2]], axis=0)
r = xp.stack((x, y), axis=1)
r = xp.split(x, [1, 3])[1]
r = xp.clip(x, -0.5, 0.5)
r = x.clip(min=0)
r = xp.tril(w)
r = xp.tri(4, 5, -1, dtype=xp.float32)
r = xp.arange(1, 9, 2, dtype=xp.float32)[:, None] - xp.arange(3, dtype=xp.float32)
r = xp.zeros((2, 3), dtype=x.dtype) + xp.ones(3, dtype=x.dtype)
r = xp.full((2, 2), 3, dtype=xp.int32)
r = xp.full_like(x, -1) + xp.zeros_like(x)
r = xp.empty((2, 3), dtype=x.dtype); r[...] = 1
r = xp.eye(3, dtype=xp.complex64)
r = x.astype(xp.float64)
r = x.view(xp.int32)
r = keep.astype(x.dtype) @ x.T
r = x.cumsum(axis=1)
r = xp.cumsum(x, 0)
r = xp.sort(x, axis=-1)
r = xp.argsort(x[0])
r = xp.pad(x, ((1, 0), (0, 2)))
r = xp.expand_dims(x, 1).squeeze(1).ravel()
r = xp.square(x).sum(-1) + xp.sqrt(xp.abs(x)).sum(-1)
r = xp.logaddexp(x, y)
r = xp.lib.stride_tricks.as_strided(x, (3, 2, 5), (20, 20, 4))
r = xp.outer(x[0], x[1])
r = xp.isinf(x).any()
r = xp.result_type(x, 1.0), x.shape, x.ndim, x.size, len(x), x.dtype, x.nbytes, x.flags.c_contiguous
r = z.real
r = z.imag * 2
z.real[...] = 1; r = z
r = xp.exp(z) / (1 + xp.tanh(z)) + xp.sqrt(z)
r = z @ z.T.conj()
r = (x + 1e-30j).imag / 1e-30
r = xp.where(z.real > 0, z, 0)
r = x.real
r = divmod(ids, 2)[1]
r = np.tanh(x) + np.sum(x) + np.where(keep, x, 0)
r = np.float32(2) * x
r = x * np.float64(2)
""".strip().splitlines()


@pytest.mark.parametrize("code, error", MISTAKES, ids=[code for code, _ in MISTAKES])
def test_mistakes_are_refused(code, error):
    run(code, np)
    with pytest.raises(error):
        run(code, strict_cupy)


@pytest.mark.parametrize("code, kind, times", COSTS, ids=[f"{code} [{kind}]" for code, kind, _ in COSTS])
def test_costs_are_counted(code, kind, times):
    names = {name: strict_cupy.asarray(value.copy()) for name, value in HOST.items()}
    with strict_cupy.count() as c:
        exec(code, names | dict(xp=strict_cupy, np=np, math=math, host=HOST["x"].copy()))
    assert getattr(c, kind) == times


@pytest.mark.parametrize("code", VALID)
def test_valid_code_equals_numpy(code):
    expected, got = run(code, np), run(code, strict_cupy)
    if isinstance(got, tuple):
        assert got == expected
        return
    expected = np.asarray(expected)
    assert isinstance(got, strict_cupy.ndarray) and (got.shape, got.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(to_host(got), expected, rtol=0 if "**" not in code else 1e-6)


def test_out_of_range_indices_raise():
    x = strict_cupy.asarray(HOST["x"])
    for wrong in "x[xp.asarray([0, 4])]", "xp.take(x, xp.asarray([-5]), axis=0)", "x[xp.asarray([9])] = 0":
        with pytest.raises(IndexError):
            exec(wrong, dict(x=x, xp=strict_cupy))


def test_arrays_lead_to_the_module_and_back():
    x = to_device(HOST["x"], strict_cupy)
    assert array_module(x) is strict_cupy is strict_cupy.get_array_module(x, HOST["x"])
    back = to_host(x)
    assert type(back) is type(to_device(x, np)) is np.ndarray and not np.shares_memory(back, HOST["x"])
    np.testing.assert_array_equal(back, HOST["x"])
    assert strict_cupy.asarray(x) is x and strict_cupy.ascontiguousarray(x) is x


def test_memory_is_dirty_and_results_are_c_ordered():
    assert math.isnan(strict_cupy.empty(3, dtype=np.float32).sum())
    assert int(strict_cupy.empty_like(strict_cupy.asarray(HOST["ids"]))[0]) == np.iinfo(np.int64).max
    x = strict_cupy.asarray(HOST["x"]).T
    assert not x.flags.c_contiguous and (x + 1).flags.c_contiguous and strict_cupy.exp(x).flags.c_contiguous


def test_matmul_in_place_makes_a_new_array():
    x = strict_cupy.asarray(HOST["w"])
    before = x
    x @= x
    assert x is not before
    np.testing.assert_array_equal(before.get(), HOST["w"])


def test_erf_keeps_float32():
    y = strict_cupy.erf(strict_cupy.asarray(HOST["x"]))
    assert y.dtype == np.float32 and abs(float(y[1, 2]) - math.erf(HOST["x"][1, 2])) < 1e-7


def test_counts_nest():
    x = strict_cupy.asarray(HOST["x"])
    with strict_cupy.count() as outer:
        x + x
        with strict_cupy.count() as inner:
            (x * x).get()
    assert (inner.launches, inner.d2h, outer.launches, outer.d2h) == (1, 1, 2, 1)


@pytest.mark.parametrize("code, kinds", [
    ("float(x.sum())", {}), ("x[[0]]", {}), ("x[x > 0]", {}), ("xp.asnumpy(x)", dict(sync=False)),
    ("xp.asarray(host)", dict(sync=False, d2h=False)), ("np.sum(x)", dict(dispatches=True)),
    ("x.T[:2] @ x[:, :2]", dict(operand_copies=True))])
def test_forbidden_lines_raise(code, kinds):
    names = dict(x=strict_cupy.asarray(HOST["w"]), xp=strict_cupy, np=np, host=HOST["x"])
    exec(code, names)
    with strict_cupy.forbid(**kinds), pytest.raises(RuntimeError, match="forbidden here"):
        exec(code, names)
    with strict_cupy.forbid():
        exec("x @ x.T + 1", names)


def test_unknown_kinds_cannot_be_forbidden():
    with pytest.raises(ValueError, match="syncs"):
        strict_cupy.forbid(syncs=True)


@pytest.mark.parametrize("code", [
    "x.astype(float)", "x * np.float64(2)", "xp.zeros(3)", "x + 1j * xp.ones(())", "n / 2", "x.sum(dtype=float)",
    "xp.linspace(0, 1, 3)", "xp.arange(3) * s", "z[0]", "z.real", "xp.asarray(np.ones(3))", "xp.exp(2.0)"])
def test_no_float64(code):
    names = {name: strict_cupy.asarray(value) for name, value in HOST.items()} | dict(xp=strict_cupy, np=np)
    with strict_cupy.no_float64(), pytest.raises(TypeError, match="float64|complex128"):
        exec(code, names)
    with strict_cupy.no_float64():
        exec("xp.exp(x * 2.0).mean() / 3 + 1e-6; xp.where(keep, x, -xp.inf); keep.sum(); ids + 1", names)


def test_names_are_those_of_cupy():
    names = json.loads(pathlib.Path(strict_cupy.__file__).with_name("cupy_names.json").read_text())
    allowed = {*names["shared"].split(), *names["ufuncs"].split(), *names["others"].split(), *names["functions"]}
    public = {name for name in dir(strict_cupy) if not name.startswith("_")}
    assert public - allowed == {"count", "forbid", "no_float64", "Counts", "erf"}
    methods = {name for name in dir(strict_cupy.ndarray) if not name.startswith("_")}
    assert methods <= names["attributes"].keys()
    for owner, name in (strict_cupy, "random"), (strict_cupy.asarray(HOST["x"]), "device"):
        with pytest.raises(NotImplementedError, match="does not model"):
            getattr(owner, name)


def test_names_are_up_to_date():
    cupy = pytest.importorskip("cupy")
    names = json.loads(pathlib.Path(strict_cupy.__file__).with_name("cupy_names.json").read_text())
    if cupy.__version__ != names["cupy"]:
        pytest.skip(f"the names are those of CuPy {names['cupy']}, here is {cupy.__version__}")
    assert cupy_names.names() == names


def test_arrays_can_be_copied():
    x = strict_cupy.asarray(HOST["x"])
    y = copy.deepcopy(x)
    y += 1
    np.testing.assert_array_equal(x.get(), HOST["x"])
