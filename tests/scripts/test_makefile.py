"""The Makefile passes the user's paths on unchanged."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers.runs import ROOT
from hydra.core.override_parser.overrides_parser import OverridesParser

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="needs make")


def shown(*words: str) -> subprocess.CompletedProcess:
    """The commands that make would run."""
    done_before = [f"--old-file={name}" for name in ("setup", "data-ptb", "data-cornell")]
    return subprocess.run(["make", "-n", *done_before, *words], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("target", ["ptb-small", "ptb-medium", "ptb-large", "sentiment", "table1-runs"])
@pytest.mark.parametrize(
    ("given", "meant"),
    [("my runs", "my runs"), ("~/my runs", str(Path("~/my runs").expanduser())), ("jürgen/lr=1", "jürgen/lr=1")],
)
def test_a_folder_of_runs_may_have_any_name(target, given, meant):
    """A path that make, the shell and Hydra's grammar leave unchanged."""
    (word,) = (word for word in shlex.split(shown(target, f"RUNS={given}").stdout) if word.startswith("runs_root="))
    assert OverridesParser.create().parse_override(word).value() == meant


def test_clean_removes_nothing_else():
    done = shown("clean", "VENV=my env")
    assert done.returncode and "VENV=my env: " in done.stderr and "spaces" in done.stderr
    assert "rm" not in done.stdout


def installed_from(folder: Path, checkout: Path) -> Path:
    """An environment as pip leaves it after `pip install --editable CHECKOUT`."""
    origin = folder / "lib" / "python3.12" / "site-packages" / "varrnn-1.0.dist-info" / "direct_url.json"
    origin.parent.mkdir(parents=True)
    origin.write_text(json.dumps({"dir_info": {"editable": True}, "url": checkout.as_uri()}))
    return folder


def own_venv(venv: Path) -> subprocess.CompletedProcess:
    return subprocess.run(["make", "own-venv", f"VENV={venv}"], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("name", ["clone", "another clone, für mich"])
def test_the_environment_of_another_checkout_is_rejected(tmp_path, name):
    other = tmp_path / name
    other.mkdir()
    done = own_venv(installed_from(tmp_path / "venv", other))
    assert done.returncode and f"the environment of another checkout, {other}; choose another" in done.stderr
    other.rmdir()  # a checkout that was removed or moved does not need its environment
    assert own_venv(tmp_path / "venv").returncode == 0


def test_the_environment_of_this_checkout_and_an_empty_one_are_used(tmp_path):
    (tmp_path / "link").symlink_to(ROOT)
    for number, checkout in enumerate((ROOT, tmp_path / "link")):
        assert own_venv(installed_from(tmp_path / str(number), checkout)).returncode == 0
    assert own_venv(tmp_path / "nothing").returncode == 0


def test_setup_says_what_it_installs(tmp_path):
    done = subprocess.run(["make", "-n", "setup", f"VENV={tmp_path / 'new'}"], cwd=ROOT, capture_output=True, text=True)
    echoed = [line for line in done.stdout.splitlines() if "echo" in line]
    assert any("creating the virtual environment" in line for line in echoed)
    assert any("installing torch" in line for line in echoed) and any("installing varrnn" in line for line in echoed)
