"""Writes `cupy_names.json`: what an installed CuPy offers, and under which parameter names.

    python -m tests.cupy_names > tests/cupy_names.json

Needs a CuPy wheel in the environment, but no GPU: only names and signatures are read.  Parameters are given as one
string, "a axis dtype out keepdims"; what takes none or does not say is "".
"""
import inspect
import json
import re


def parameters(function):
    """The parameter names of a Python or Cython function, the latter from the first line of its docstring."""
    try:
        return " ".join(str(p).split("=")[0].split(":")[0] for p in inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        head = re.search(r"\w\((.*?)\)(?: ->|$)", (function.__doc__ or "").split("\n")[0])
        fields = head.group(1).split(",") if head else []
        return " ".join(f.split("=")[0].split()[-1] for f in fields if f.strip() not in ("", "*"))


def names():
    import cupy
    import numpy

    public = {name: getattr(cupy, name) for name in dir(cupy) if not name.startswith("_")}
    shared = {n for n, o in public.items() if o is getattr(numpy, n, None) and not inspect.ismodule(o)}
    ufuncs = {n for n, o in public.items() if isinstance(o, cupy.ufunc)}
    functions = {n for n, o in public.items() if inspect.isroutine(o) or n == "matmul"} - shared
    methods = {n: getattr(cupy.ndarray, n) for n in dir(cupy.ndarray) if not n.startswith("_")}
    linalg = {n: o for n, o in vars(cupy.linalg).items() if inspect.isfunction(o) and not n.startswith("_")}
    return {
        "cupy": cupy.__version__,
        "shared": " ".join(sorted(shared)),         # NumPy's own objects: dtypes, constants, dtype arithmetic
        "ufuncs": " ".join(sorted(ufuncs)),
        "others": " ".join(sorted(public.keys() - shared - ufuncs - functions)),
        "functions": {n: parameters(public[n]) for n in sorted(functions)},
        "linalg": {n: parameters(o) for n, o in sorted(linalg.items())},
        "attributes": {n: parameters(o) if callable(o) else "" for n, o in sorted(methods.items())},
    }


if __name__ == "__main__":
    print(json.dumps(names(), indent=1))
