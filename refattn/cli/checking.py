"""`refattn check`: a kernel or an exercise against the oracle, with an exit status for scripts."""

import importlib
import os
import runpy
import sys
from inspect import signature
from operator import attrgetter
from types import SimpleNamespace

from ..refusals import choices
from .layout import wrapped
from .options import Parser, Usage, in_options, reader, seed_number

__all__ = ["run"]

SIZES = reader(lambda text: [(axis, int(n)) for axis, n in (part.split("=") for part in text.split(","))],
               "axes with whole numbers, each once, such as q=6,k=6", lambda found: len(dict(found)) == len(found))
ASKED = {"bias": "--bias", "keep": "--keep", "dropout": "--dropout", "causal": "--causal", "sizes": "--tiles"}


def defined(where: str) -> dict:
    """What a file of Python or a module defines; the file's directory, or the current one, is looked in from now on."""
    from ..check.kernels import attempt
    file = where.endswith(".py")
    if file and not os.path.isfile(where):
        raise Usage(f"{where!r} is not a file; allowed: a file of Python, or MODULE:FUNCTION such as mine:kernel")
    place = os.path.dirname(os.path.abspath(where)) if file else os.getcwd()
    sys.path.insert(0, place)
    found, error = attempt(runpy.run_path if file else importlib.import_module, where)
    if error is not None:
        what = f"{where} cannot be run" if file else f"module {where!r} cannot be imported"
        raise Usage(f"{what} ({type(error).__name__}: {error}); allowed: a module that is found from {place}, or a "
                    f"file of Python, FILE.py, that runs")
    return found if file else vars(found)


def function(text: str):
    """The function of MODULE:FUNCTION or FILE:FUNCTION; with FUNCTION_backward if it takes no do and there is one."""
    module, colon, name = text.rpartition(":")
    if not (module and colon and name):
        raise Usage(f"MODULE:FUNCTION is {text!r}; allowed: one file, mine.py, or a module and a name, mine:kernel")
    found = defined(module)
    forward, backward = (named(found, x) for x in (name, f"{name}_backward"))
    if not callable(forward):
        raise Usage(f"{module!r} has no function {name!r}{choices(name, [n for n in found if callable(found[n])])}")
    pair = callable(backward) and not any(x.name == "do" or x.kind is x.VAR_KEYWORD
                                          for x in signature(forward).parameters.values())
    return together(forward, backward) if pair else forward


def named(found: dict, name: str):
    """What a name leads to, or a dotted one such as that of a method; None where nothing has it."""
    try:
        return attrgetter(name)(SimpleNamespace(**found))
    except AttributeError:
        return None


def together(forward, backward, **settings):
    """A forward that gives o (and end) and what it saves, and its backward, as one kernel."""
    def kernel(*arrays, do, **options):
        upstream = [x for x in (do, options.pop("dend", None)) if x is not None]
        *outputs, saved = forward(*arrays, **settings, **options)
        if (given := backward(saved, *upstream)) is None:
            raise TypeError(f"{getattr(backward, '__name__', 'the backward')} returned None; allowed: the gradients")
        return dict(zip(("o", "end"), outputs, strict=False)) | given if isinstance(given, dict) else (*outputs, *given)
    return kernel


def of_file(path: str, variant: str):
    """The function `kernel` of a file, or its pair of a page's name, NAME and NAME_backward, as one kernel."""
    from ..attention.pages import page
    from ..check.subjects import known_pages
    found = defined(path)
    if "kernel" in found:
        return found["kernel"]
    if "/" in variant:
        raise Usage(f"{path} has no function called kernel; allowed with {variant}: kernel, or FILE.py:NAME")
    forward = page(variant, known_pages()).forward
    own = getattr(forward, "func", forward).__name__             # of a variant that is a page with other settings
    name = variant if variant in found else own
    settings = getattr(forward, "keywords", {}) if name == own else {}
    theirs, backward = found.get(name), found.get(f"{name}_backward")
    if None in (theirs, backward):
        raise Usage(f"{path} has neither kernel nor {variant} and {variant}_backward; allowed: one of the two")
    return together(theirs, backward, **settings)


def run(argv) -> int:
    """Compare, and where something is wrong diagnose; 1 if it is."""
    from ..attention.pages import PAGES
    from ..check import compare, diagnose
    from ..check.kernels import OPTIONS
    from ..check.subjects import subject
    parser = Parser("refattn check", "A kernel, theirs(q, k, v, do=do) -> o, dq, dk, dv, against a page in float64: "
                    "which entry of which gradient is wrong, in which line, and why.")
    parser.add_argument("kernel", metavar="MODULE:FUNCTION | FILE", help="what takes and returns NumPy, PyTorch or JAX "
                        "arrays: NAME of FILE.py:NAME; of a file alone its `kernel`, or else its pair V(q, k, v, ...) "
                        "-> o, saved and V_backward(saved, do); a function of a page without do is such a pair, too")
    parser.add_argument("--as", dest="variant", required=True, metavar="V", help="hyla, softmax, ... or a row, "
                        "layers/LayerNorm, ops/relu, ...: refattn list has all of them, the rows at its end")
    parser.add_argument("--dtype", choices=("float64", "float32", "float16", "bfloat16"), help="default: float32")
    parser.add_argument("--layout", help="order of batch b, position t, head h, feature d (default: bthd)")
    for name, words in zip(OPTIONS, ("is added to the scores", "booleans, True where a query may attend",
                                     "factors of the weights"), strict=True):
        parser.add_argument(f"--{name}", metavar="AXES", help=f"{words}: its axes, 1 where it is stretched, such as "
                            "bhqk or h1k; default: none")
    parser.add_argument("--causal", action="store_true", help="the kernel masks later keys itself")
    parser.add_argument("--naive", action="store_true", help="half precision in every step, sums too")
    parser.add_argument("--tiles", action="store_true", help="sizes for tiled kernels")
    parser.add_argument("--sizes", type=SIZES, metavar="A=N,...", help="sizes of axes, such as q=6,k=6,d=4,e=4")
    parser.add_argument("--seed", type=seed_number, help="of the inputs (default: 0)")
    options = parser.parse(argv)
    if options.pop("tiles", False):
        if "sizes" in options:
            raise Usage("--tiles is given, but so is --sizes; allowed: one of the two")
        options["sizes"] = "tiles"
    elif "sizes" in options:
        options["sizes"] = dict(options["sizes"])
    name, places = options.pop("kernel"), sys.path[:]
    try:
        with in_options(options, variant="--as"):
            kernel = of_file(name, options["variant"]) if name.endswith(".py") else function(name)
            report = compare(kernel, **options)
            print(wrapped(str(report)))
            if not report.ok:
                print(wrapped(str(diagnose(kernel, **options))))
            elif options["variant"] in PAGES:
                refused = () if subject(options["variant"]).maskable else ("causal",)
                if rest := [ASKED[x] for x in ASKED if x not in (*options, *refused)]:
                    print(wrapped(f"not asked: {', '.join(rest)}"))
    finally:
        sys.path[:] = places                                # a kernel may import where it is called
    return 0 if report.ok else 1
