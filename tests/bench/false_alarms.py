"""How often right kernels are called wrong.

    python -m tests.bench.false_alarms [--seeds N] [--kernel-sizes N] [--planted N] [--pages ...] [--dtypes ...]

Pages of the library in the precision itself (half precision: contractions in and out of it, sums in float32), and,
where PyTorch is installed, twins of five of them with autograd.  Prints a row of counts for each page and precision;
then how many errors of 2^-10, planted in a line, were seen of those that move a result by more than 2^-12 of its size.
"""

import argparse
import ast
import sys
import time
from itertools import product

import numpy as np

from refattn.attention.pages import PAGES
from refattn.check.formulas import formulas, start
from refattn.check.grammar import FUNCTIONS, Runner, code_of, resolved
from refattn.check.kernels import Call
from refattn.check.subjects import subject
from refattn.verification import plain_formulas
from tests.kernels_own import TEXTS, function

OPTIONS = {"none": {}, "bias": {"bias": "hqk"}, "keep shared": {"keep": "qk"}, "keep per head": {"keep": "hqk"},
           "dropout": {"dropout": "bhqk"}, "all three": {"bias": "hqk", "keep": "bhqk", "dropout": "bhqk"}}
DTYPES = "float64", "float32", "bfloat16", "float16"


def options(page, name):
    sliding = page.startswith("sliding")
    return {n: form.replace("k", "w") if sliding else form for n, form in OPTIONS[name].items()}


def own(page, dtype):
    """The library's page as a kernel in this precision."""
    half = dtype in ("bfloat16", "float16")
    row = plain_formulas.package(dtype).attention.pages.page(page) if half else PAGES[page]

    def kernel(*arrays, do, **given):
        cast = "float32" if half else dtype
        o, saved = row.forward(*(x.astype(cast) for x in arrays), **{n: x.astype(cast) if x.dtype != bool else x
                                                                     for n, x in given.items()})
        found = [o, *(x for x in row.backward(saved, do.astype(cast)) if x is not None)]
        return [plain_formulas.rounded(x, dtype) for x in found] if half else found
    return kernel


def twin(page, dtype):
    """A plain PyTorch kernel with autograd: products of half precision, all else in float32."""
    import torch

    wide = function(page, TEXTS[page], torch, autograd=True)
    if dtype in ("float64", "float32"):
        return wide
    narrow = getattr(torch, dtype)

    class Half:
        """torch, whose einsum rounds what goes in and comes out."""
        def __getattr__(self, name):
            return getattr(torch, name)

        def einsum(self, spec, *arrays):
            return torch.einsum(spec, *(x.to(narrow).float() for x in arrays)).to(narrow).float()
    half = function(page, TEXTS[page], Half(), autograd=True)

    def kernel(*arrays, do, **given):
        found = half(*(torch.as_tensor(x).float() for x in arrays), do=torch.as_tensor(do).float(),
                     **{n: torch.as_tensor(x if x.dtype == bool else x.astype("float32")) for n, x in given.items()})
        return [x.to(narrow) for x in found]
    return kernel


def worst(kernel, page, dtype, seed, sizes=None, **given):
    """The largest error in error bars."""
    call = Call(kernel, page, dtype, **given)
    report = call.report(*call(call.draw(sizes, seed)))
    return max(entry.error / max(entry.allowed, 1e-300) for entry in report.entries)


def kernel_sizes(seed):
    """One of the sizes of real kernels."""
    rng = np.random.default_rng(seed)
    t, d = rng.choice([63, 64, 65, 127, 128, 512], p=[0.19] * 5 + [0.05]), int(rng.choice([16, 64, 128]))
    return {"b": 1, "q": int(t), "k": int(t), "h": int(rng.choice([1, 4, 8] if t < 512 else [1])), "d": d, "e": d}


def count(kernels, seeds, sizes=lambda seed: None, pages=PAGES, dtypes=DTYPES):
    """Prints, and returns the number of false alarms."""
    alarms = 0
    for page, dtype in product(pages, dtypes):
        began, found = time.time(), {}
        for name in OPTIONS:
            found[name] = [worst(kernels(page, dtype), page, dtype, s, sizes(s), **options(page, name))
                           for s in range(seeds)]
        alarms += sum(x > 1 for xs in found.values() for x in xs)
        print(f"{page:34} {dtype:9}", *(f"{name} {sum(x > 1 for x in xs)}/{seeds} ({max(xs):.2f})" for name, xs in
                                        found.items()), f"{time.time() - began:.0f} s", sep="  ", flush=True)
    return alarms


def planted(page, seeds, sizes=lambda seed: None, size=2.0**-10):
    """(seen, all) of errors of 2^-10 in single lines, in float32, that move a result above 2^-12 of its largest."""
    of, seen, total = formulas(subject(page).name)[0], 0, 0
    runner = Runner(of)
    for seed in range(seeds):
        call = Call(None, page, "float32", **options(page, list(OPTIONS)[seed % len(OPTIONS)]))
        inputs = call.draw(sizes(seed), seed)
        ours, bars = call.bars(inputs, {})
        env = runner.run({**FUNCTIONS, **start(of, inputs)})
        right = own(page, "float32")
        results = call_results(call, right, inputs)
        for i, line in enumerate(of.lines):
            code = code_of(f"({ast.unparse(resolved(of, line))}) * {1 + size}")
            off = runner.run(env, {i: code})
            moved = {n: off[n].reshape(x.shape) - env[n].reshape(x.shape) for n, x in ours.items()}
            whole = max(np.abs(x).max() for x in ours.values())             # some gradients are zero by theory
            if max(np.abs(m).max() / max(np.abs(ours[n]).max(), 1e-9 * whole) for n, m in moved.items()) > 2.0**-12:
                total += 1
                seen += any((np.abs(results[n] + m - ours[n]) > bars[n]).any() for n, m in moved.items())
    return seen, total


def call_results(call, kernel, inputs):
    call.theirs = kernel
    return call(inputs)[1]


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--kernel-sizes", type=int, default=0, metavar="N", help="seeds at the sizes of real kernels")
    parser.add_argument("--planted", type=int, default=0, metavar="N", help="seeds of planted errors")
    parser.add_argument("--pages", nargs="+", default=list(PAGES))
    parser.add_argument("--dtypes", nargs="+", default=DTYPES)
    args = parser.parse_args(argv)
    alarms = 0
    kinds = {"own": own}
    try:
        import torch  # noqa: F401
        kinds["PyTorch"] = twin
    except ImportError:
        print("PyTorch is not installed: own pages only")
    for words, make in kinds.items():
        pages = [p for p in args.pages if words == "own" or p in TEXTS]
        for seeds, sizes, where in ((args.seeds, lambda seed: None, "default sizes"),
                                    (args.kernel_sizes, kernel_sizes, "kernel sizes")):
            if seeds:
                print(f"{words} kernels, {where}: option, false alarms / seeds (largest error in error bars)")
                alarms += count(make, seeds, sizes, pages, args.dtypes)
    for page in args.pages if args.planted else ():
        for where, sizes in ("default", lambda seed: None), ("kernel", kernel_sizes):
            seen, total = planted(page, args.planted, sizes)
            print(f"{page}, {where} sizes: {seen} of {total} planted errors of 2^-10 seen", flush=True)
    print(f"{alarms} false alarms")
    return alarms > 0


if __name__ == "__main__":
    sys.exit(main())
