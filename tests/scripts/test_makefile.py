"""The Makefile hands a user's paths on as they are."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.runs import ROOT
from hydra.core.override_parser.overrides_parser import OverridesParser

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="needs make")


def shown(*words: str) -> subprocess.CompletedProcess:
    """What make would do."""
    done_before = [f"--old-file={name}" for name in ("setup", "data-ptb", "data-cornell")]
    return subprocess.run(["make", "-n", *done_before, *words], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("target", ["ptb-small", "ptb-medium", "ptb-large", "sentiment", "table1-runs"])
@pytest.mark.parametrize(
    ("given", "meant"),
    [("my runs", "my runs"), ("~/my runs", str(Path("~/my runs").expanduser())), ("jürgen/lr=1", "jürgen/lr=1")],
)
def test_a_folder_of_runs_may_have_any_name(target, given, meant):
    """Which make, the shell and Hydra's grammar leave as it is."""
    (word,) = (word for word in shlex.split(shown(target, f"RUNS={given}").stdout) if word.startswith("runs_root="))
    assert OverridesParser.create().parse_override(word).value() == meant


def test_clean_removes_nothing_else():
    refused = shown("clean", "VENV=my env")
    assert refused.returncode and "VENV=my env: make knows no file names with spaces" in refused.stderr
    assert "rm" not in refused.stdout
