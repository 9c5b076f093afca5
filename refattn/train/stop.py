"""Reasons to stop a run cleanly: Ctrl-C, the clock, a file that somebody makes, the end of the parent process."""

import math
import multiprocessing
import os
import signal
import threading
import time

SAME = 1.0                     # seconds in which signals are one: a key held down, or who tells a process and its group


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, after the run has put its state away; the message says how far it, or how many runs, had come."""


class Stop:
    """Asked once a step whether to stop.  A first Ctrl-C is noted; one that comes more than SAME seconds after it
    raises KeyboardInterrupt at once.  SIGTERM is the same where Python handles it, as in our command line.

    Only the main thread can hear signals; elsewhere the clock and the file still work.
    """

    def __init__(self, max_seconds: float | None = None, file=None):
        if max_seconds is not None and not max_seconds > 0:
            raise ValueError(f"max_seconds is {max_seconds!r}; allowed: numbers above 0")
        self.deadline = None if max_seconds is None else time.monotonic() + max_seconds
        self.file, self.next_look = file, 0.0
        self.interrupted = False                            # by a signal, the file, or the end of the parent
        self.noted = -math.inf                              # when a signal came last

    def __enter__(self):
        main = threading.current_thread() is threading.main_thread()
        signs = [sign for sign in (signal.SIGINT, signal.SIGTERM) if main and callable(signal.getsignal(sign))]
        self.previous = {sign: signal.signal(sign, self._note) for sign in signs}     # workers ignore both
        return self

    def __exit__(self, *_):
        for sign, handler in self.previous.items():
            signal.signal(sign, handler)

    def ignore(self) -> None:
        """Signals do nothing from now on."""
        self.noted = math.inf

    def _note(self, *_):
        if (now := time.monotonic()) > self.noted + SAME:
            self.noted = now
            if self.interrupted:
                raise KeyboardInterrupt
            self.interrupted = True

    def __call__(self) -> bool:
        now = time.monotonic()
        if self.file is not None and now >= self.next_look:
            self.next_look = now + 0.2
            parent = multiprocessing.parent_process()
            self.interrupted |= os.path.exists(self.file) or not (parent is None or parent.is_alive())
        return self.interrupted or (self.deadline is not None and now >= self.deadline)
