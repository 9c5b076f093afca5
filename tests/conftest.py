"""One BLAS thread, set before NumPy is imported, and the hypothesis profiles: quick, or `--hypothesis-profile deep`.

Ctrl-C is heard even where the suite was started in the background by a shell, which lets its jobs ignore it; programs
that tests start inherit that.
"""

import os
import signal

os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ.pop("COLUMNS", None)              # texts are compared as a pipe gets them
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

from hypothesis import HealthCheck, settings  # noqa: E402

settings.register_profile("quick", deadline=None, derandomize=True, max_examples=15, database=None,
                          suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", deadline=None, max_examples=300, print_blob=True,
                          suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quick")


def pytest_collection_modifyitems(config, items):
    """Tutorials, the longest, first, as many in each process: `--dist worksteal` deals each a run of the items."""
    n = getattr(config, "workerinput", {"workercount": 1})["workercount"]
    long, rest = ([item for item in items if ("tutorial" in item.keywords) is wanted] for wanted in (True, False))
    at = [len(rest) * i // n for i in range(n + 1)]
    items[:] = [item for i in range(n) for item in (*long[i::n], *rest[at[i]:at[i + 1]])]
