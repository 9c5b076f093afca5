"""`refattn check`: a kernel or an exercise against the oracle, with an exit status for scripts."""

import importlib
import os
import sys
from difflib import get_close_matches

from .comparison import wrapped
from .options import Parser, Usage

__all__ = ["run"]


def function(text: str):
    """The function of MODULE:FUNCTION, looked for in the current directory too."""
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise Usage(f"MODULE:FUNCTION is {text!r}, allowed are a module, a colon and a name, such as mine:kernel")
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise Usage(f"module {module!r} cannot be imported ({error})") from None
    finally:
        sys.path.pop(0)
    if not callable(getattr(found, name, None)):
        near = get_close_matches(name, [n for n in vars(found) if callable(getattr(found, n))], n=1)
        raise Usage(f"{module!r} has no function {name!r}{f'; did you mean {near[0]}?' if near else ''}")
    return getattr(found, name)


def run(argv) -> int:
    """Compare, and where something is wrong diagnose; 1 if it is."""
    from ..check import compare, diagnose
    parser = Parser("refattn check", "A kernel, theirs(q, k, v, do=do) -> o, dq, dk, dv, against a page in float64: "
                    "which entry of which gradient is wrong, in which line, and why.")
    parser.add_argument("kernel", metavar="MODULE:FUNCTION", help="what takes and returns NumPy, PyTorch or JAX arrays")
    parser.add_argument("--as", dest="variant", required=True, metavar="V", help="hyla, softmax, layers/LayerNorm, ...")
    parser.add_argument("--dtype", help="float64, float32, float16 or bfloat16 (default: float32)")
    parser.add_argument("--layout", help="order of batch b, position t, head h, feature d (default: bthd)")
    for name in ("bias", "keep", "dropout"):
        parser.add_argument(f"--{name}", metavar="AXES", help="axes that it has, such as bhqk or h1k; default: none")
    parser.add_argument("--causal", action="store_true", help="the kernel masks later keys itself")
    parser.add_argument("--naive", action="store_true", help="half precision in every step, sums too")
    parser.add_argument("--tiles", dest="sizes", action="store_const", const="tiles", help="sizes for tiled kernels")
    parser.add_argument("--seed", type=int)
    options = parser.parse(argv)
    kernel = function(options.pop("kernel"))
    report = compare(kernel, **options)
    print(wrapped(str(report)))
    if not report.ok:
        print(wrapped(str(diagnose(kernel, **options))))
    return 0 if report.ok else 1
