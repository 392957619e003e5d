"""Processes of Python that start at once, since `import torch` alone takes two seconds.

One server per test process imports torch and forks; the processes import the project's own modules themselves. A test
about the start of Python, about what is imported, or about threads starts a new interpreter with `subprocess`.
"""

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from helpers import ROOT

SERVER = Path(__file__).with_name("fork_server.py")


@functools.cache
def _server() -> socket.socket:
    """The connection to this process's server, which ends with it."""
    ours, theirs = socket.socketpair()
    with theirs:
        server = subprocess.Popen(
            [sys.executable, str(SERVER), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )

    def close() -> None:
        ours.close()
        server.wait(timeout=60)

    atexit.register(close)
    return ours


class Process:
    """`python WORDS`, the words being a script and its arguments or -c and code, with the methods of `Popen`.

    It has a process group of its own and the signal handlers of a shell's foreground job; there is no stdin.
    """

    def __init__(self, *words: str, folder: Path = ROOT, environment: dict[str, str] | None = None) -> None:
        self.words, self.returncode = words, None
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        request = {
            "words": words,
            "folder": str(folder),
            "environment": {**os.environ, "OMP_NUM_THREADS": "1"} if environment is None else environment,
        }
        line = json.dumps(request).encode() + b"\n"
        read, write = os.pipe()
        fds = [self._out.fileno(), self._err.fileno(), write]
        sent = socket.send_fds(_server(), [line], fds)
        _server().sendall(line[sent:])
        os.close(write)
        self._status = os.fdopen(read, "rb", buffering=0)
        self.pid = self._number()

    def _number(self) -> int:
        digits = b""
        while not digits.endswith(b"\n"):
            digit = self._status.read(1)
            if not digit:
                raise RuntimeError(f"{self.words}: the process that waits for it has ended")
            digits += digit
        return int(digits)

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.returncode = self._number()
            self._status.close()
        return self.returncode

    def wait(self, timeout: float = 300) -> int:
        if self.poll() is None:
            select.select([self._status], [], [], timeout)
        found = self.poll()
        if found is None:
            self.kill()
            raise subprocess.TimeoutExpired(self.words, timeout)
        return found

    def send_signal(self, signum: int) -> None:
        os.kill(self.pid, signum)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float = 300) -> tuple[str, str]:
        """What it has written to stdout and stderr, as soon as it has ended."""
        self.wait(timeout)
        shown = []
        for file in (self._out, self._err):
            with file:
                file.seek(0)
                shown.append(file.read().decode())
        return shown[0], shown[1]


def run(*words: str, folder: Path = ROOT, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    """`python WORDS` to its end."""
    process = Process(*words, folder=folder, environment=environment)
    out, err = process.communicate()
    return subprocess.CompletedProcess(words, process.wait(), out, err)
