"""`python -m tests.bench`: our training step beside its PyTorch and JAX twins, in one process and one thread.

`--threads 1 2` does so for each number of threads: PyTorch has as many, our step as many processes, which share
`--shards` of a batch; JAX is left out where there are several, and so is CPU time.

OpenBLAS chooses its kernels by the CPU, as oneDNN and XLA do, whatever the environment says.  Freed memory stays with
the process, for everybody; `--allocator shipped` leaves the C library as it is, again for everybody.  A ratio is ours
over the row's time: below 1, ours is faster.  Where other programs compete for the CPU, read the ratio of CPU times.
"""
import argparse
import ctypes
import importlib.util
import json
import os
import platform
import subprocess
import sys
from pathlib import Path


def arguments():
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="timed steps of every form (default %(default)s)")
    for name, words in (("variants", "softmax linear hyla"), ("modes", "full read"), ("only", "ours torch jax")):
        parser.add_argument(f"--{name}", nargs="+", choices=words.split(), default=words.split())
    parser.add_argument("--allocator", choices=["kept", "shipped"], default="kept", help="of all (default %(default)s)")
    parser.add_argument("--threads", nargs="+", type=int, default=[1], metavar="N", help="cores of each (default 1)")
    parser.add_argument("--shards", type=int, default=4, help="of ours with several threads (default %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    parser.add_argument("--memory", action="store_true", help="print the peak megabytes of our steps and nothing else")
    return parser.parse_args()


def set_threads(allocator, threads):
    """So many CPUs (XLA starts a thread for each that it sees), and threads of PyTorch; before anything numeric."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": f"{threads}", "MKL_NUM_THREADS": f"{threads}",
                   "JAX_PLATFORMS": "cpu",
                   "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        os.environ.pop(name, None)
    if allocator == "kept":
        from refattn.xp import keep_freed_memory
        if keep_freed_memory():
            ctypes.CDLL("libc.so.6").mallopt(-8, 1)        # M_ARENA_MAX: XLA's own threads keep freed memory too


def ours(args, variant, read, parameters):
    """{"ours": an object with step and gradients}, before any library has threads."""
    from .ours import Ours, Workers
    if "ours" not in args.only:
        return {}
    if args.threads == [1]:
        return {"ours": Ours(parameters, variant, read)}
    return {"ours": Workers(parameters, variant, read, args.threads[0], args.shards)}


def twins(chosen, variant, read, parameters):
    """{name: an object with step and gradients} of every form of the twins, all from equal parameters."""
    found = {}
    if "torch" in chosen:
        from . import torch_twin
        found |= {f"torch {form}": torch_twin.Twin(parameters, variant, read, form) for form in torch_twin.FORMS}
    if "jax" in chosen:
        from . import jax_twin
        found |= {f"jax {form}": jax_twin.Twin(parameters, variant, read, form) for form in jax_twin.FORMS[variant]}
    return found


def check(group, batch, title):
    """Exit unless loss and every gradient of the first step agree with the first competitor's to 1e-4.

    An array whose gradient is zero in theory (the key bias under softmax) is held to 1e-4 of the largest gradient.
    """
    import numpy as np
    results = {name: {"loss": np.array(float(each.step(batch))), **each.gradients()} for name, each in group.items()}
    first, *others = results
    size = {key: abs(x).max() for key, x in results[first].items()}
    for name in others:
        gap = {key: abs(x - results[first][key]).max() / max(size[key], 1e-4 * max(size.values()))
               for key, x in results[name].items()}
        worst = max(gap, key=gap.get)
        if not gap[worst] < 1e-4:
            sys.exit(f"{title}: {name} and {first} differ by {gap[worst]:.1e} in {worst}; nothing was timed")


def about():
    """What is compared: machine, versions, threads and kernels."""
    from threadpoolctl import threadpool_info
    info = Path("/proc/cpuinfo")
    names = [x.partition(": ")[2] for x in info.read_text().splitlines() if "model name" in x] if info.exists() else []
    versions = [f"{name} {sys.modules[name].__version__}" for name in ("numpy", "torch", "jax") if name in sys.modules]
    return [", ".join([*(names[:1] or [platform.processor()]), f"Python {platform.python_version()}", *versions]),
            *(f"{x['prefix']}: {x['num_threads']} thread, {x.get('architecture', 'its own')} kernels"
              for x in threadpool_info())]


def main():
    args = arguments()
    if len(args.threads) > 1:
        at = sys.argv.index("--threads")
        words = sys.argv[1:at] + sys.argv[at + 1 + len(args.threads):]
        for threads in args.threads:
            print(f"\n{threads} thread{'s' * (threads > 1)}", flush=True)
            subprocess.run([sys.executable, "-m", "tests.bench", *words, "--threads", f"{threads}"], check=True)
        return
    set_threads(args.allocator, *args.threads)
    from . import problem, timing
    from .ours import initial
    if args.memory:
        args.only = ["ours"]                                # importing the others takes more than our steps do
    for name in [x for x in args.only if x != "ours" and importlib.util.find_spec(x) is None]:
        print(f"{name} is not installed (pip install refattn[bench]); its twins are left out")
        args.only = [x for x in args.only if x != name]
    args.only = [x for x in args.only if x != "jax" or args.threads == [1]]
    groups = {(variant, mode): ours(args, variant, mode == "read", initial(0))
              for variant in args.variants for mode in args.modes}
    if "torch" in args.only:
        import torch
        torch.set_num_threads(*args.threads)
    for (variant, mode), group in groups.items():
        group |= twins(args.only, variant, mode == "read", initial(0))
    steps = {(*key, name): lambda each=each: each.step(problem.sample(each.count))
             for key, group in groups.items() for name, each in group.items()}
    if args.memory:
        timing.interleave(steps, args.rounds, 0)
        return print(f"{timing.peak_megabytes():.0f}")
    for key, group in groups.items():
        check(group, problem.sample(0), ", ".join(key))
    compared = any(len(group) > 1 for group in groups.values())
    print("Loss and all gradients agree." if compared else "Nothing to compare with.", *about(), sep="\n")
    times = timing.interleave(steps, args.rounds, warm_up=5, pause=0.0 if args.threads == [1] else 0.01)
    results = {", ".join(key): report(key, {name: times[*key, name] for name in group}, args, timing)
               for key, group in groups.items()}
    if args.json:
        args.json.write_text(json.dumps({"about": about(), "rounds": args.rounds, **results}, indent=1) + "\n")


def report(key, times, args, timing):
    """Print and return the figures of one variant and mode; ratios are to the first row."""
    figures = {name: timing.summary(rows, next(iter(times.values()))) for name, rows in times.items()}
    print("\n" + timing.table(", ".join(key), figures))
    if "ours" not in figures:
        return figures
    for library in ("torch", "jax"):
        forms = [name for name in figures if name.startswith(library)]
        if forms:
            alone = args.threads == [1]
            best = min(forms, key=lambda name: figures[name]["cpu_ms" if alone else "wall_ms"])
            _, wall, cpu = (figures[best][ratio] for ratio in timing.RATIOS)
            print(f"  ours / fastest {library} ({best}): {wall:.2f}" + f"; by CPU time {cpu:.2f}" * alone)
    if not Path("/proc/self/status").exists() or args.threads != [1]:
        return figures
    command = [sys.executable, "-m", "tests.bench", "--memory", "--rounds", "20", "--only", "ours",
               "--variants", key[0], "--modes", key[1], "--allocator", args.allocator]
    figures["ours"]["peak_mb"] = float(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    print(f"  peak resident memory of ours, in a process of its own: {figures['ours']['peak_mb']:.0f} MB")
    return figures


if __name__ == "__main__":
    main()
