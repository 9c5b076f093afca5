"""How often right kernels are called wrong.

    python -m tests.bench.false_alarms [--seeds N] [--kernel-sizes N] [--planted N] [--pages ...] [--dtypes ...]
                                       [--record FILE]

Pages of the library in the precision itself (half precision: contractions in and out of it, sums in float32), and,
where PyTorch is installed, twins of five of them with autograd.  Prints a row of counts for each page and precision;
then how many errors of 2^-10, planted in a line, were seen of those that move a result by more than 2^-12 of its size.
"""

import argparse
import ast
import json
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
from tqdm import tqdm

from refattn.attention.pages import PAGES
from refattn.check.formulas import formulas, start
from refattn.check.kernels import Call
from refattn.check.running import Runner, code_of, resolved
from refattn.check.subjects import subject
from refattn.verification import plain_formulas
from tests import half_precision
from tests.kernels_own import TEXTS, function

OPTIONS = {"none": {}, "bias": {"bias": "hqk"}, "keep shared": {"keep": "qk"}, "keep per head": {"keep": "hqk"},
           "dropout": {"dropout": "bhqk"}, "all three": {"bias": "hqk", "keep": "bhqk", "dropout": "bhqk"}}
DTYPES = "float64", "float32", "bfloat16", "float16"


def anything(*arrays, **options):
    """A kernel that takes everything."""


def options(page, name):
    sliding = page.startswith("sliding")
    return {n: form.replace("k", "w") if sliding else form for n, form in OPTIONS[name].items()}


def own(page, dtype):
    """The library's page as a kernel in this precision."""
    half = dtype in ("bfloat16", "float16")
    row = half_precision.package(dtype).attention.pages.page(page) if half else PAGES[page]

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


def ratios(page, dtype, option, seed, sizes, kernels):
    """{kind: largest error in error bars} of kernels of one page, all held against the same bars."""
    call = Call(anything, page, dtype, **options(page, option))
    inputs = call.draw(sizes, seed)
    known, found = None, {}
    for kind, kernel in kernels.items():
        call.theirs = kernel
        results = call(inputs)[1]
        known = known or call.bars(inputs, results)
        report = call.report(inputs, results, known)
        report = report if report.ok else call.report(inputs, results)          # as it would be without the others
        found[kind] = max(entry.error / max(entry.allowed, 1e-300) for entry in report.entries)
    return found


def kernel_sizes(seed):
    """One of the sizes of real kernels."""
    rng = np.random.default_rng(seed)
    t, d = rng.choice([63, 64, 65, 127, 128, 512], p=[0.19] * 5 + [0.05]), int(rng.choice([16, 64, 128]))
    return {"b": 1, "q": int(t), "k": int(t), "h": int(rng.choice([1, 4, 8] if t < 512 else [1])), "d": d, "e": d}


SIZES = {"default": lambda seed: None, "kernel": kernel_sizes}


class Record:
    """Counts by sizes and cell: [seeds, alarms or seen, largest or all]; in a file, where a later run goes on."""
    def __init__(self, path=None):
        self.path = path and Path(path)
        self.counts = json.loads(self.path.read_text()) if path and self.path.exists() else {}
        self.saved = time.monotonic()

    def row(self, *names):
        return self.counts.setdefault(" / ".join(names), [0, 0, 0.0])

    def save(self, every=0):
        if self.path and time.monotonic() - self.saved >= every:
            self.saved = time.monotonic()
            new = self.path.with_suffix(".new")
            new.write_text("{\n" + ",\n".join(f"{json.dumps(n)}: {json.dumps(x)}" for n, x in sorted(
                self.counts.items())) + "\n}\n")
            new.replace(self.path)


def count(record, where, seeds, pages, dtypes, kinds, slice_=20):
    """Adds cells up to `seeds` seeds each, all of them slice by slice."""
    for stop in range(slice_, seeds + slice_, slice_):
        cells = list(product(pages, dtypes, OPTIONS))
        for page, dtype, option in tqdm(cells, f"{where} sizes, up to seed {min(stop, seeds)}", disable=None):
            made = {kind: make(page, dtype) for kind, make in kinds.items() if kind == "own" or page in TEXTS}
            rows = {kind: record.row(where, page, dtype, option, kind) for kind in made}
            for seed in range(min(row[0] for row in rows.values()), min(stop, seeds)):
                for kind, x in ratios(page, dtype, option, seed, SIZES[where](seed), made).items():
                    row = rows[kind]
                    if row[0] == seed:
                        row[:] = seed + 1, row[1] + (not x <= 1), round(max(row[2], x), 4)
            record.save(every=20)
    record.save()


def count_planted(record, where, seeds, pages):
    for seed, page in tqdm(list(product(range(seeds), pages)), f"planted, {where} sizes", disable=None):
        row = record.row(f"planted, {where}", page)
        if row[0] == seed:
            seen, total = planted(page, [seed], SIZES[where])
            row[:] = seed + 1, row[1] + seen, row[2] + total
            record.save()


def planted(page, seeds, sizes=lambda seed: None, size=2.0**-10):
    """(seen, all) of errors of 2^-10 in single lines, in float32, that move a result above 2^-12 of its largest."""
    of, seen, total = formulas(subject(page).name)[0], 0, 0
    runner = Runner(of)
    for seed in seeds:
        call = Call(anything, page, "float32", **options(page, list(OPTIONS)[seed % len(OPTIONS)]))
        inputs = call.draw(sizes(seed), seed)
        ours, bars, _ = call.bars(inputs, {})
        env = runner.run(start(of, inputs))
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


def table(record) -> str:
    """For each page and precision: alarms / seeds of each option, and the largest error in error bars."""
    lines, cells, alarms = [], {}, 0
    for name, (seeds, found, largest) in sorted(record.counts.items()):
        where, page, *rest = name.split(" / ")
        if where.startswith("planted"):
            lines.append(f"{where} sizes, {page}: {found} of {largest:.0f} errors of 2^-10 seen, {seeds} seeds")
            continue
        dtype, option, kind = rest
        cells.setdefault((where, kind, page, dtype), {})[option] = seeds, found, largest
        alarms += found
    head = [f"{where:7} {kind:7} {page:34} {dtype:8} " + "  ".join(
                f"{n} {row[n][1]}/{row[n][0]} ({row[n][2]:.2f})" for n in OPTIONS if n in row)
            for (where, kind, page, dtype), row in cells.items()]
    total = sum(n for row in cells.values() for n, *_ in row.values())
    return "\n".join([*head, *lines, f"{alarms} false alarms in {total} comparisons"])


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--kernel-sizes", type=int, default=0, metavar="N", help="seeds at the sizes of real kernels")
    parser.add_argument("--planted", type=int, default=0, metavar="N", help="seeds of planted errors")
    parser.add_argument("--pages", nargs="+", default=list(PAGES))
    parser.add_argument("--dtypes", nargs="+", default=DTYPES)
    parser.add_argument("--record", metavar="FILE", help="JSON file of the counts, where a run goes on")
    args = parser.parse_args(argv)
    kinds, record = {"own": own}, Record(args.record)
    try:
        import torch  # noqa: F401
        kinds["PyTorch"] = twin
    except ImportError:
        print("PyTorch is not installed: own pages only")
    for where, seeds in ("default", args.seeds), ("kernel", args.kernel_sizes):
        count(record, where, seeds, args.pages, args.dtypes, kinds)
    for where in SIZES:
        count_planted(record, where, args.planted, args.pages)
    print(table(record))
    return any(row[1] for name, row in record.counts.items() if not name.startswith("planted"))


if __name__ == "__main__":
    sys.exit(main())
