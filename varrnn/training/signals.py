"""On Ctrl-C, pre-emption by a scheduler, a time limit or a closed terminal: save, then stop."""

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)


class RunStopped(KeyboardInterrupt):
    """The run was stopped by a signal, after saving. Not an Exception, since it must also end a sweep."""

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.signum = signum


def run_subprocess(words: Sequence[str], folder: Path) -> int:
    """Run a command and return its exit status; after Ctrl-C, which the command also receives, wait until it has saved.

    `subprocess.run` would kill it after a quarter of a second.
    """
    child, stopped = subprocess.Popen(words, cwd=folder), False
    while child.returncode is None:
        try:
            child.wait()
        except KeyboardInterrupt:
            stopped = True
    if stopped:
        raise KeyboardInterrupt
    return child.returncode


class Clock:
    """Seconds in which this process was not suspended (SIGSTOP or Ctrl-Z, until SIGCONT).

    `tick` is called at every unit of work. A suspension lies between two ticks; its length is their distance minus the
    usual distance of two ticks.
    """

    def __init__(self) -> None:
        self.resumed = False  # set by the handler of SIGCONT
        self.paused = 0.0
        self._last = time.perf_counter()
        self._usual = 0.0

    def tick(self) -> None:
        """Count one unit of work."""
        now = time.perf_counter()
        gap, self._last = now - self._last, now
        if self.resumed:
            self.resumed = False
            self.paused += max(0.0, gap - self._usual)
        else:
            self._usual = 0.9 * self._usual + 0.1 * gap if self._usual else gap

    def seconds(self) -> float:
        """A time stamp in seconds; only differences of two time stamps are meaningful."""
        if self.resumed:
            self.tick()
        return time.perf_counter() - self.paused


class Interrupts:
    """Inside this context a signal only sets `signum`; the loop checks it, saves, and calls `stop`."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.signum: int | None = None
        self.previous: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            # a run under nohup keeps ignoring SIGHUP
            handled = [one for one in SIGNALS if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN]
            self.previous = {signum: signal.signal(signum, self._record) for signum in handled}
            self.previous[signal.SIGCONT] = signal.signal(signal.SIGCONT, self._resume)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self.previous.items():
            signal.signal(signum, handler)
        self.previous = {}

    def _record(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is not None and signum == signal.SIGINT:  # the second Ctrl-C stops at once
            raise KeyboardInterrupt
        self.signum = signum

    def _resume(self, signum: int, frame: FrameType | None) -> None:
        self.clock.resumed = True

    def stop(self, message: str) -> None:
        """Pass the signal to the previous handler, or stop if there was none.

        Slurm pre-empts with TERM and then USR2: submitit ignores the first, so training continues; on the second it
        requeues the job and ends it.
        """
        signum = self.signum
        assert signum is not None
        before = self.previous.get(signum)
        if not callable(before) or before is signal.default_int_handler:
            self.__exit__()
            raise RunStopped(signum, message)
        self.signum = None
        self._call_previous(before, signum)

    def _call_previous(self, handler: Callable[[int, None], Any], signum: int) -> None:
        """Call the previous handler while further signals are blocked: Slurm signals every process several times.

        Our handlers stay installed, so that the previous one is not entered twice, and the signal mask protects the
        commands that it starts (a second USR2 would kill `scontrol requeue`).
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            handler(signum, None)
        except SystemExit:
            self.previous = {}  # the process ends; our handlers stay installed until then
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
