"""Forked processes end, print and are stopped as those of a new interpreter."""

import os
import signal
import subprocess
import sys
import time

import pytest
from helpers import processes

pytestmark = pytest.mark.slow

PROGRAM = """
import atexit, os, sys
assert not [name for name in sys.modules if name.startswith("varrnn")]
atexit.register(print, "the end")
print(sys.argv[1:], os.getcwd(), os.environ["HERE"], sys.path[0], __name__)
print("note", file=sys.stderr)
{}
"""


@pytest.mark.parametrize("last", ["", "sys.exit(3)", "sys.exit('text')", "1 / 0", "raise KeyboardInterrupt"])
def test_a_forked_process_does_what_a_new_one_does(last, tmp_path):
    script, environment = tmp_path / "script.py", {**os.environ, "HERE": "a\nb"}
    script.write_text(PROGRAM.format(last))
    for words in ([str(script), "x", "y z"], ["-c", script.read_text(), "x"]):
        found = processes.run(*words, folder=tmp_path, environment=environment)
        command = [sys.executable, *words]
        wanted = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert (found.returncode, found.stdout, found.stderr) == (wanted.returncode, wanted.stdout, wanted.stderr)
        assert found.stdout.endswith("the end\n") and found.stderr.startswith("note\n")


def test_a_process_is_stopped_with_its_group(tmp_path):
    code = "import subprocess, pathlib; pathlib.Path('begun').touch(); subprocess.run(['sleep', '100'])"
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        process = processes.Process("-c", code, folder=tmp_path)
        while not (tmp_path / "begun").exists():
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signum)
        assert process.wait() == process.poll() == -signum
        (tmp_path / "begun").unlink()


def test_a_process_that_does_not_end_is_killed():
    process = processes.Process("-c", "import time; time.sleep(100)")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.1)
    assert process.wait() == -signal.SIGKILL
