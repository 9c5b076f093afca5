"""Our own pool of processes for `compare`: one BLAS thread in each, and none outlives its parent."""

import os
import signal
import threading
import time
from contextlib import contextmanager
from multiprocessing import parent_process

from ..xp import keep_freed_memory

THREADS = "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"

at_work = threading.Lock()     # held in a process of the pool while it trains


def begin_worker() -> None:
    """What a process of the pool begins with: idle ones would otherwise outlive a killed parent."""
    keep_freed_memory()
    if hasattr(signal, "setitimer"):                        # no thread, so that a run in here can fork its workers
        signal.signal(signal.SIGALRM, _end_with_parent)
        signal.setitimer(signal.ITIMER_REAL, 0.5, 0.5)
    else:
        threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    while True:
        time.sleep(0.5)
        _end_with_parent()


def _end_with_parent(*_) -> None:
    parent = parent_process()
    if parent and not parent.is_alive() and not at_work.locked():      # a run notices too, and puts its state away
        os._exit(1)


@contextmanager
def quiet_start():
    """Processes begun in here have one BLAS thread and leave Ctrl-C and SIGTERM to this one."""
    before = {name: os.environ[name] for name in THREADS if name in os.environ}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    main = threading.current_thread() is threading.main_thread()
    handlers = {sign: signal.signal(sign, signal.SIG_IGN) for sign in (signal.SIGINT, signal.SIGTERM) if main}
    try:
        yield
    finally:
        for sign, handler in handlers.items():
            signal.signal(sign, handler)
        for name in THREADS:
            del os.environ[name]
        os.environ.update(before)
