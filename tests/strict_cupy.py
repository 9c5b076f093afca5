"""A strict stand-in for CuPy: CuPy's names and rules, NumPy's arithmetic, no GPU.

The numeric suite runs once more with `xp = tests.strict_cupy`.  What CuPy refuses is refused here, what CuPy does
silently wrong is refused as well, and what CuPy does slowly is counted:

    with xp.count() as c: step()            # c.launches, c.sync, c.h2d, c.d2h, c.operand_copies, ... (see `Counts`)
    with xp.forbid(): step()                # the line that waits for the device or moves data to or from it raises
    with xp.no_float64(): step()            # whatever makes a float64 or complex128 array raises

Where the rules come from.  Names, parameters, and with them the forbidden keywords: `cupy_names.json`, which
`cupy_names.py` writes from an installed CuPy.  Behaviour: "Differences between CuPy and NumPy" in the documentation of
CuPy 14.2, its source (core.pyx, _kernel.pyx, _gufuncs.py, _routines_indexing.pyx, _routines_linalg.pyx) and its issues
#3421, #9065 (no implicit conversion), #6021 (sliced matrices are copied before a product), #2904, #4838 (einsum).
Launches are those measured for CuPy 14.2, and one for whatever `LAUNCHES` does not list: a yardstick, not a time.

What it cannot see: GPU rounding, the order of atomic additions, TF32, races and streams, what a graph may capture,
kernel sources, GPU memory, real speed, CuPy's own bugs.  A name of CuPy that is not modelled (`cuda`, `random`, ...)
raises NotImplementedError, a name that CuPy lacks AttributeError.  This file is not the namespace that
`import tests.strict_cupy` gives: its last lines put one in its place that holds CuPy's names and, beside them, `count`,
`forbid`, `no_float64`, `Counts` and `erf`.
"""
import contextlib
import dataclasses
import functools
import json
import math
import pathlib
import sys
import types

import numpy as np

NAMES = json.loads(pathlib.Path(__file__).with_name("cupy_names.json").read_text())
NAMES["functions"]["einsum"] = "subscripts *operands dtype optimize"       # what its **kwargs may be
CUPY = f"CuPy {NAMES['cupy']}"

LAUNCHES = dict(mean=2, var=4, std=4, cumsum=2, cumprod=2, tril=2, triu=2, nan_to_num=3, norm=3, pad=2,
                take_along_axis=6, put_along_axis=7, empty=0, empty_like=0)
HIDDEN = dict.fromkeys("nonzero argwhere flatnonzero unique putmask place extract compress tril_indices triu_indices "
                       "mask_indices".split(), "sync d2h") | dict(
    bincount="sync d2h sync d2h", sliding_window_view="h2d sync d2h", einsum="einsum",
    where=lambda condition, x=None, y=None: "sync d2h" if x is None else "",
    repeat=lambda a, repeats, axis=None: "sync d2h" if type(repeats) is ndarray else "")
ONE_LAUNCH_EACH = {"concatenate", "concat", "stack", "hstack", "vstack", "dstack", "column_stack"}
HOST_ANSWERS = set("result_type can_cast common_type min_scalar_type ndim shape size isscalar iscomplexobj isrealobj "
                   "isfortran may_share_memory shares_memory".split())
KEEP_ORDER = set("copy astype empty empty_like full zeros ones full_like zeros_like ones_like asfortranarray einsum "
                 "asarray array".split())
HOST_PARAMETERS = set("axis axes axisa axisb axisc axis1 axis2 source destination shape newshape new_shape dims reps "
                      "dimensions pad_width shift indices_or_sections window_shape strides start stop step num k n N M "
                      "offset kth decimals dtype order subscripts".split())
UPLOADED = {"indices", "repeats"}                   # parameters that CuPy takes from the host, but copies each time
INTEGERS = "int32 int64 uint32 uint64"
AT = dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), INTEGERS) | {
    "add": f"{INTEGERS} float16 float32 float64", "subtract": "int32 uint32",
    "maximum": f"{INTEGERS} float32 float64", "minimum": f"{INTEGERS} float32 float64"}
REAL = {"clip", "logical_and", "logical_or", "logical_xor", "logical_not"}      # no complex numbers, unlike NumPy's
REDUCTIONS = {"add": dict(reduce="sum", accumulate="cumsum"), "multiply": dict(reduce="prod", accumulate="cumprod")}
SCALARS, SEQUENCES = (int, float, complex, bool, np.generic), (list, tuple, np.ndarray)


# What is counted, forbidden, allowed

@dataclasses.dataclass
class Counts:
    launches: int = 0               # kernels and cuBLAS calls
    sync: int = 0                   # the host waits for the device
    h2d: int = 0                    # copies host to device
    d2h: int = 0                    # copies device to host
    operand_copies: int = 0         # operands that a matrix product copies into C order first
    out_copies: int = 0             # matrix products that copy their result into a non-contiguous out
    pointer_gemms: int = 0          # products over broadcast batches, one pointer for every matrix
    einsum: int = 0
    multiply_adds: int = 0          # of matrix products
    dispatches: int = 0             # np.f(x) in place of xp.f(x)


counts, forbidden, dtypes = Counts(), frozenset(), frozenset("?bhilqBHILQefdFD")


def note(kinds, what, times=1):
    for kind in kinds.split():
        setattr(counts, kind, getattr(counts, kind) + times)
        if kind in forbidden:
            raise RuntimeError(f"{what}: {kind} on {CUPY}, and it is forbidden here")


@contextlib.contextmanager
def setting(name, value):
    before, globals()[name] = globals()[name], value
    try:
        yield value
    finally:
        globals()[name] = before


@contextlib.contextmanager
def count():
    """Counts what happens inside; an outer block gets what the inner one counted when that ends."""
    outer, inner = counts, Counts()
    try:
        with setting("counts", inner):
            yield inner
    finally:
        for kind, times in vars(inner).items():
            setattr(outer, kind, getattr(outer, kind) + times)


def forbid(*, sync=True, h2d=True, d2h=True, **others):
    """Makes the line raise RuntimeError that causes one of these kinds (fields of `Counts`, launches excepted)."""
    kinds = dict(sync=sync, h2d=h2d, d2h=d2h, **others)
    if wrong := kinds.keys() - (vars(counts).keys() - {"launches"}):
        raise ValueError(f"forbid takes the fields of Counts except launches, not {sorted(wrong)}")
    return setting("forbidden", forbidden | {kind for kind, on in kinds.items() if on})


def no_float64():
    """Makes everything raise TypeError that returns a float64 or complex128 array, be it 0-d or a view."""
    return setting("dtypes", dtypes - set("dD"))


# Between host and device

def device(host, name):
    """The device array whose memory is this host array, or which holds this scalar."""
    if type(host) is not np.ndarray:
        host = np.asarray(host)
    if host.dtype.char not in dtypes:
        rule = "which is forbidden here" if host.dtype.char in "dD" else f"which {CUPY} does not support"
        raise TypeError(f"{name} makes an array of dtype {host.dtype}, {rule}")
    x = object.__new__(ndarray)
    x._host = host
    return x


def operand(a, name):
    if type(a) is ndarray:
        return a._host
    if isinstance(a, SCALARS):
        return a
    raise TypeError(f"Unsupported type {type(a)}: {name} of {CUPY} takes device arrays and scalars")


def real(hosts, name):
    if name in REAL and any(np.iscomplexobj(x) for x in hosts):
        raise TypeError(f"Wrong type of arguments for {name}: {CUPY} has none for complex numbers")


def argument(a, name, parameter):
    """What NumPy gets: a device array's memory, or the argument itself where the host may decide."""
    if type(a) is ndarray:
        return a if parameter in HOST_PARAMETERS else a._host       # without __index__ it is no shape and no axis
    if parameter in HOST_PARAMETERS or not isinstance(a, SEQUENCES):
        return a
    if parameter in UPLOADED:
        note("h2d", f"{name} with {parameter} of {type(a)}")
        return a
    if len(a) and not isinstance(a, np.ndarray) and all(type(x) is ndarray for x in a):
        return [x._host for x in a]
    raise TypeError(f"Unsupported type {type(a)} as {parameter} of {name}: {CUPY} raises or quietly stays on the host")


def wrap(value, name, launches, source=None):
    """Results as device arrays: views of `source` as they are and for free, all else C-ordered and with launches."""
    if type(value) is np.ndarray:
        if value.base is not None and type(source) is np.ndarray:
            if value.base is source or np.may_share_memory(value, source):
                return device(value, name)
        if value.ndim > 1 and not value.flags.c_contiguous and name not in KEEP_ORDER:
            value = np.ascontiguousarray(value)
    elif isinstance(value, SEQUENCES):
        wrapped = [wrap(v, name, launches, source) for v in value]
        return wrapped if type(value) is list else tuple(wrapped)
    counts.launches += launches
    return None if value is None else device(value, name)


# Functions and ufuncs, made from their names

def function(name, parameters, run):
    """The function or method `name` of CuPy: computed by `run`, with CuPy's parameters and no others."""
    names = [p.lstrip("*") for p in parameters.split()]
    star = next((i for i, p in enumerate(parameters.split()) if p.startswith("*")), None)
    most, allowed = len(names) if star is None else math.inf, None if "**" in parameters else frozenset(names)
    launches, hidden, needs_array = LAUNCHES.get(name, 1), HIDDEN.get(name), names[0] not in HOST_PARAMETERS

    def call(*args, **kwargs):
        if len(args) > most or kwargs and allowed is not None and not kwargs.keys() <= allowed:
            raise TypeError(f"{name} with {len(args)} arguments and keywords {sorted(kwargs)}: "
                            f"in {CUPY} its parameters are ({parameters})")
        where = names if star is None else names[:star] + names[star:star + 1] * (len(args) - star)
        hosts = [argument(a, name, p) for a, p in zip(args, where)]     # noqa: B905
        first = hosts[0] if hosts else None
        if type(first) is not np.ndarray and needs_array and hosts and type(first) is not list:
            raise TypeError(f"Unsupported type {type(first)}: {name} of {CUPY} takes a device array")
        real(hosts, name)
        keywords = {key: argument(a, name, key) for key, a in kwargs.items()} if kwargs else kwargs
        if hidden:
            note(hidden if type(hidden) is str else hidden(*args, **kwargs), name)
        value = run(*hosts, **keywords)
        if kwargs.get("out") is None and value is not first:
            return wrap(value, name, len(first) if name in ONE_LAUNCH_EACH else launches, first)
        if value is first:                          # nothing to do, as for astype(copy=False): the same array
            return args[0]
        counts.launches += launches
        return kwargs["out"]

    call.__name__ = name
    return call


class ufunc:
    """An elementwise function of CuPy: keywords out, dtype and casting, C-ordered results, few methods."""

    def __init__(self, name):
        self.__name__, self.run, self.nin = name, getattr(np, name), getattr(np, name).nin

    def __call__(self, *args, out=None, **keywords):
        name = self.__name__
        if keywords and not keywords.keys() <= {"dtype", "casting"}:
            raise TypeError(f"Wrong arguments {sorted(keywords)}: {name} of {CUPY} takes out, dtype and casting")
        if len(args) > self.nin and out is None:
            args, out = args[:self.nin], args[self.nin:]
        hosts = [a._host if type(a) is ndarray else operand(a, name) for a in args]
        real(hosts, name)
        counts.launches += 1
        if out is None:
            value = self.run(*hosts, order="C", **keywords)
            return device(value, name) if type(value) is not tuple else tuple([device(v, name) for v in value])
        outs = out if type(out) is tuple else (out,)
        if wrong := [type(o) for o in outs if type(o) is not ndarray]:
            raise TypeError(f"Unsupported type {wrong[0]}: out of {name} must be a device array in {CUPY}")
        self.run(*hosts, out=tuple([o._host for o in outs]), **keywords)
        return outs[0] if len(outs) == 1 else outs

    def method(self, name, array, axis=0, *args, **keywords):
        if self.__name__ not in REDUCTIONS:
            raise NotImplementedError(f"`cupy_{self.__name__}.{name}` is not supported yet by {CUPY}")
        operand(array, f"{self.__name__}.{name}")
        return getattr(array, REDUCTIONS[self.__name__][name])(axis, *args, **keywords)

    reduce = functools.partialmethod(method, "reduce")
    accumulate = functools.partialmethod(method, "accumulate")

    def outer(self, a, b, **keywords):
        return self(a.reshape(a.shape + (1,) * b.ndim), b, **keywords)

    def at(self, a, indices, b=None):
        name, supported = f"{self.__name__}.at", AT.get(self.__name__)
        if supported is None:
            raise NotImplementedError(f"`cupy_{name}` is not supported yet by {CUPY}")
        if a.dtype.name not in supported.split():
            raise TypeError(f"cupy.{name} only supports {supported} in {CUPY}, not {a.dtype}")
        self.run.at(a._host, index(indices, name)[0], operand(b, name))
        counts.launches += 2


# Arrays

def index(key, name):
    """The host's form of an index, with an Ellipsis so that NumPy returns arrays; and "mask", "integers" or None."""
    entries, fancy = [], None
    for e in key if type(key) is tuple else (key,):
        if type(e) is slice and ndarray in map(type, (e.start, e.stop, e.step)):
            e = slice(*[int(part) if type(part) is ndarray else part for part in (e.start, e.stop, e.step)])
        elif not (type(e) in (int, slice) or e is None or e is Ellipsis or isinstance(e, np.integer)):
            if type(e) is not ndarray:
                note("h2d", f"{name} with an index of {type(e)}")
            e = e._host if type(e) is ndarray else np.asarray(e) if np.size(e) else np.asarray(e, dtype=int)
            fancy = "mask" if fancy == "mask" or e.dtype.kind == "b" else "integers"
        entries.append(e)
    if fancy == "mask":
        note("sync d2h", f"{name} with a boolean index")
    return tuple(entries) if any(e is Ellipsis for e in entries) else (*entries, Ellipsis), fancy


def is_copy(target, source):
    """False if the source is the target itself, which CuPy skips.  Between equal strides CuPy copies by cudaMemcpy,
    which must not overlap; every other copy gets a temporary where it needs one."""
    def layout(a):
        return a.shape, a.strides, a.dtype

    if not isinstance(source, np.ndarray) or layout(target) != layout(source):
        return True
    if target.__array_interface__["data"] == source.__array_interface__["data"]:
        return False
    if target.flags.c_contiguous and np.may_share_memory(target, source):
        raise ValueError(f"overlapping copy: undefined in {CUPY}; copy the source first")
    return True


class ndarray:
    """A device array.  `complete` adds its operators and most of its methods."""

    __slots__ = ("_host",)
    __module__ = __name__
    __hash__ = None

    def __getattr__(self, name):
        if name in NAMES["attributes"]:
            raise NotImplementedError(f"cupy.ndarray.{name} exists, but the stand-in does not model it")
        raise AttributeError(f"'ndarray' object of {CUPY} has no attribute {name!r}")

    def __getitem__(self, key):
        entries, fancy = index(key, "x[...]")
        value = self._host[entries]
        counts.launches += bool(fancy)
        return device(np.array(value, order="C") if fancy else value, "x[...]")

    def __setitem__(self, key, value):
        entries, fancy = index(key, "x[...] = v")
        host = value._host if type(value) is ndarray else value
        if fancy and type(value) is not ndarray:
            note("h2d", f"x[{fancy}] = {type(value)}")
        elif type(value) is not ndarray and not isinstance(value, SCALARS) and np.shape(value) != ():
            raise ValueError(f"non-scalar {type(value)} cannot be used for fill: {CUPY} takes device arrays")
        if fancy == "integers" and np.ndim(host):
            places = np.arange(self.size).reshape(self.shape)[entries]
            if np.unique(places).size < places.size:
                raise ValueError(f"repeated indices in x[indices] = v: undefined in {CUPY}; xp.add.at accumulates")
        if fancy or is_copy(self._host[entries], host):
            counts.launches += 1
            self._host[entries] = host

    def __len__(self):
        return len(self._host)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a "
                        "NumPy array explicitly.")

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **keywords):
        mine = public.get(ufunc.__name__)
        if mine is None:
            return NotImplemented
        note("dispatches", f"np.{ufunc.__name__}")
        keywords |= {"out": out[0] if len(out) == 1 else out} if out else {}
        return (mine if method == "__call__" else getattr(mine, method))(*inputs, **keywords)

    def __array_function__(self, func, types, args, kwargs):
        names = {"numpy": public, "numpy.linalg": vars(public["linalg"])}.get(func.__module__, {})
        mine = names.get(func.__name__, func)
        if mine is func:
            return NotImplemented
        note("dispatches", f"np.{func.__name__}")
        return mine(*args, **kwargs)

    def get(self, stream=None, order="C", out=None, blocking=True):
        note("sync d2h", "get(), or a conversion to a host value")
        if out is None:
            return np.array(self._host, order=order)
        np.copyto(out, self._host, casting="no")
        return out

    def fill(self, value):
        self[...] = value

    def sort(self, axis=-1, kind=None):
        if not self._host.flags.c_contiguous:
            raise NotImplementedError(f"Sorting non-contiguous array is not supported by {CUPY}")
        counts.launches += 1
        self._host.sort(axis, kind)

    def __copy__(self, memo=None):
        return self.copy()

    __deepcopy__ = __copy__

    @property
    def flags(self):
        return types.SimpleNamespace(**{flag: getattr(self._host.flags, flag)
                                        for flag in ("c_contiguous", "f_contiguous", "owndata")})


def complete(cls):
    """The operators, and the methods and properties that CuPy's arrays share with NumPy's."""
    def operators(symbol, call, reflected=True, in_place=True):
        setattr(cls, f"__{symbol}__", lambda self, other: call(self, other))
        if reflected:
            setattr(cls, f"__r{symbol}__", lambda self, other: call(other, self))
        if in_place:
            setattr(cls, f"__i{symbol}__", lambda self, other: call(self, other, out=self))

    for symbol, name in dict(add="add", sub="subtract", mul="multiply", truediv="true_divide", floordiv="floor_divide",
                             mod="remainder", pow="power", lshift="left_shift", rshift="right_shift",
                             and_="bitwise_and", or_="bitwise_or", xor="bitwise_xor").items():
        operators(symbol.rstrip("_"), public[name].__call__)
    for name in ("matmul", "divmod"):
        operators(name, public[name], in_place=False)           # CuPy has no __imatmul__: x @= w makes a new array
    for symbol, name in dict(lt="less", le="less_equal", eq="equal", ne="not_equal", gt="greater",
                             ge="greater_equal").items():
        operators(symbol, public[name].__call__, reflected=False, in_place=False)
    for symbol, name in dict(neg="negative", pos="positive", abs="absolute", invert="invert").items():
        setattr(cls, f"__{symbol}__", lambda self, call=public[name]: call(self))
    for of_host in (bool, int, float, complex, repr, str, format):
        setattr(cls, f"__{of_host.__name__}__", lambda self, *a, of_host=of_host: of_host(self.get(), *a))
    for name in ("item", "tolist", "tobytes"):
        setattr(cls, name, lambda self, name=name: getattr(self.get(), name)())
    for name in ("shape", "strides", "dtype", "ndim", "size", "itemsize", "nbytes"):
        setattr(cls, name, property(lambda self, name=name: getattr(self._host, name)))
    for name in ("T", "mT", "real", "imag"):
        setattr(cls, name, property(lambda self, name=name: device(getattr(self._host, name), name)))
    for name, parameters in NAMES["attributes"].items():
        if name not in vars(cls) and parameters and hasattr(np.ndarray, name):
            setattr(cls, name, function(name, parameters, getattr(np.ndarray, name)))


# Functions written by hand: those that move data, multiply matrices or have a rule of their own

def asarray(a, dtype=None, order=None, copy=None, blocking=False):
    several = type(a) in (list, tuple) and len(a) and all(type(x) is ndarray for x in a)
    if type(a) is not ndarray and not several:
        note("h2d", "asarray")
        return device(np.array(a, dtype=dtype, order=order or "C"), "asarray")
    hosts = [x._host for x in a] if several else a._host
    value = np.array(hosts, dtype=dtype, order=order or "K", copy=copy)
    return a if value is hosts else wrap(value, "asarray", len(a) if several else 1)


def array(obj, dtype=None, copy=True, order="K"):
    return asarray(obj, dtype, order, copy)


def ascontiguousarray(a, dtype=None):
    return asarray(a, dtype, "C")


def dirty(allocate):
    """CuPy's pool hands memory out as it was left: NaN here, and integers beyond the end of any table."""
    def call(*args, **keywords):
        host = allocate(*args, **keywords)
        host.fill({"f": np.nan, "c": np.nan, "b": True}.get(host.dtype.kind) or np.iinfo(host.dtype).max)
        return host
    return call


def matmul(a, b, /, *more, out=None, **keywords):
    if more or keywords.keys() - {"axes", "axis", "keepdims", "casting", "dtype", "order"}:
        raise TypeError(f"matmul of {CUPY} takes two positional arguments, out by keyword only, no {sorted(keywords)}")
    x, y = operand(a, "matmul"), operand(b, "matmul")
    if out is not None and type(out) is not ndarray:
        raise TypeError(f"`out` of matmul must be a `cupy.ndarray` in {CUPY}, not {type(out)}")
    if type(x) is type(y) is np.ndarray:
        count_product(x, y, out)
    if out is None:
        return wrap(np.matmul(x, y, **keywords), "matmul", 0)
    if np.may_share_memory(out._host, x) or np.may_share_memory(out._host, y):
        raise ValueError(f"out of matmul overlaps an operand: the cuBLAS call of {CUPY} reads what it has overwritten")
    if out.dtype != np.result_type(x, y):
        raise TypeError(f"out of matmul is {out.dtype}, the product {np.result_type(x, y)}: {CUPY} refuses or copies")
    np.matmul(x, y, out=out._host, **keywords)
    return out


def count_product(x, y, out):
    """One cuBLAS call; a transposed operand is a flag for plain matrices, but a copy when there are batch axes."""
    batch_axes = max(x.ndim, y.ndim, 2) - 2
    batches = [(1,) * (batch_axes + 2 - max(z.ndim, 2)) + z.shape[:-2] for z in (x, y)]
    copies = sum([not (z.flags.c_contiguous or not batch_axes and z.flags.f_contiguous) for z in (x, y)])
    pointers, kept = int(batches[0] != batches[1]), int(out is not None and not out._host.flags.c_contiguous)
    sizes = (*np.broadcast_shapes(*batches), *x.shape[-2:], *(y.shape[-1:] if y.ndim > 1 else ()))
    counts.multiply_adds += math.prod(sizes)
    counts.launches += 1 + copies + kept + 3 * batch_axes * pointers
    for kind, times in ("operand_copies", copies), ("out_copies", kept), ("pointer_gemms", pointers):
        if times:
            note(kind, "matmul", times)


def copyto(dst, src, casting="same_kind", where=None):
    if isinstance(src, np.ndarray) and src.size == 1:
        src = src.squeeze()[()]
    host = operand(src, "copyto")
    if where is None and not is_copy(dst._host, host):
        return
    counts.launches += 1
    np.copyto(dst._host, host, casting=casting, where=True if where is None else operand(where, "copyto"))


def asnumpy(a, stream=None, order="C", out=None, blocking=True):
    return a.get(stream, order, out) if type(a) is ndarray else np.asarray(a, order=order)


def get_array_module(*args):
    return sys.modules[__name__] if ndarray in map(type, args) else np


def erf(x):
    """As `cupyx.scipy.special.erf`: float32 gives float32, float16 gives float64."""
    host = operand(x, "erf")
    dtype = np.float64 if host.dtype.kind in "biu" or host.dtype == np.float16 else host.dtype
    return wrap(np.fromiter(map(math.erf, host.flat), dtype, host.size).reshape(host.shape), "erf", 1)


# The namespace

def functions(names, module):
    found = {name: getattr(module, name) for name in names if hasattr(module, name)}
    return {name: function(name, names[name], dirty(f) if name in ("empty", "empty_like") else f)
            for name, f in found.items()}


def answer(name):
    return lambda *args, **keywords: getattr(np, name)(*[getattr(a, "_host", a) for a in args], **keywords)


def namespace():
    ufuncs = {name: getattr(np, name) for name in NAMES["ufuncs"].split() if hasattr(np, name)}
    tricks = dict(as_strided="x shape strides", sliding_window_view="x window_shape axis")
    by_hand = (ndarray, ufunc, asarray, array, ascontiguousarray, matmul, copyto, asnumpy, get_array_module,
               Counts, count, forbid, no_float64, erf)
    return (
        {name: getattr(np, name) for name in NAMES["shared"].split() if hasattr(np, name)}
        | functions(NAMES["functions"], np) | {name: answer(name) for name in HOST_ANSWERS}
        | {n: ufunc(n) if isinstance(f, np.ufunc) else function(n, "x out", f) for n, f in ufuncs.items()}
        | {f.__name__: f for f in by_hand}
        | dict(asanyarray=asarray, linalg=types.SimpleNamespace(**functions(NAMES["linalg"], np.linalg)),
               lib=types.SimpleNamespace(stride_tricks=types.SimpleNamespace(
                   **functions(tricks, np.lib.stride_tricks)))))


class Namespace(types.ModuleType):
    def __getattr__(self, name):
        if name in NAMES["functions"] or name in NAMES["others"].split():
            raise NotImplementedError(f"cupy.{name} exists, but the stand-in does not model it")
        raise AttributeError(f"module 'cupy' has no attribute {name!r} ({CUPY})")


public = namespace()
complete(ndarray)
dunders = {name: value for name, value in globals().items() if name.startswith("__")}
sys.modules[__name__] = Namespace(__name__)
vars(sys.modules[__name__]).update(dunders | public)
