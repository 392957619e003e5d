"""Fork Python processes that have imported torch, for helpers/processes.py; never imported by a test.

Only packages of others are loaded in advance. A forked process imports the project's modules itself, as a new
interpreter would.
"""

import atexit
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import types
from pathlib import Path

import hydra  # noqa: F401
import joblib  # noqa: F401
import matplotlib.pyplot  # noqa: F401
import numpy  # noqa: F401
import pandas  # noqa: F401
import torch  # noqa: F401
from hydra.core.plugins import Plugins

STOPPING = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def serve(requests: socket.socket) -> None:
    """Start one process per request, until the other end is closed."""
    Plugins.instance()  # Hydra looks for its plugins once
    while received := receive(requests):
        request, (out, err, status) = received
        if os.fork() == 0:
            requests.close()
            supervise(request, out, err, status)
        for fd in (out, err, status):
            os.close(fd)
        reap(os.WNOHANG)
    reap(0)


def receive(requests: socket.socket) -> tuple[dict, list[int]] | None:
    """A line of JSON with the files for stdout, stderr and the status; None at the end."""
    text, fds, *_ = socket.recv_fds(requests, 65536, 3)
    while text and not text.endswith(b"\n"):
        text += requests.recv(65536)
    return (json.loads(text), fds) if text else None


def reap(options: int) -> None:
    """Wait for children that have ended, so that their CPU time is counted."""
    try:
        while os.waitpid(-1, options)[0]:
            pass
    except ChildProcessError:
        pass


def supervise(request: dict, out: int, err: int, status: int) -> None:
    """Fork the process, send its process id, wait for it, and send its exit status."""
    child = os.fork()
    if child == 0:
        os.close(status)
        os.setpgid(0, 0)
        os._exit(execute(request, out, err))
    os.write(status, b"%d\n" % child)
    os.write(status, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os._exit(0)


def execute(request: dict, out: int, err: int) -> int:
    """What `python SCRIPT WORDS` or `python -c CODE WORDS` does; returns the exit status."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for fd, standard in ((nothing, 0), (out, 1), (err, 2)):
        os.dup2(fd, standard)
        os.close(fd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for signum in STOPPING:
        signal.signal(signum, signal.SIG_DFL)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # of this environment
    first, *words = request["words"]
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    if first == "-c":
        source, name, sys.path[0] = words.pop(0), "<string>", ""
    else:
        source, name, sys.path[0] = Path(first).read_text(encoding="utf-8"), first, str(Path(first).parent.absolute())
        module.__file__ = first
    sys.argv = [first, *words]
    status = 0
    try:
        exec(compile(source, name, "exec"), module.__dict__)
    except SystemExit as ended:
        status = exit_status(ended.code)
    except BaseException as error:
        trace = error.__traceback__ and error.__traceback__.tb_next  # without this line
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        status = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if status < 0:  # as Python ends after Ctrl-C
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return status


def exit_status(code: object) -> int:
    """The status of `sys.exit(code)`; a text is printed."""
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    print(code, file=sys.stderr)
    return 1


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
