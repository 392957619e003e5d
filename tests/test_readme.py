"""What the README shows works: its library example, its variant in one YAML, and its list of departures is fresh."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from varrnn.reproduction.marked import replaced

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
DEPARTURES = runpy.run_path(str(ROOT / "scripts" / "departures.py"))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_library_example_runs(capsys):
    examples = [block for block in blocks("python") if "varrnn" in block]
    assert examples, "the README shows no library example"
    for example in examples:
        exec(compile(example, "README.md", "exec"), {"__name__": "readme"})


@pytest.mark.slow
def test_a_variant_in_one_yaml(tmp_path):
    """The README's YAML, in a folder of the user's own, trains a model."""
    shown = [block for block in blocks("yaml") if "name:" in block and "p_" in block]
    assert shown, "the README shows no variant"
    name = yaml.safe_load(shown[0])["name"]
    folder = tmp_path / "mine" / "model"
    folder.mkdir(parents=True)
    (folder / f"{name}.yaml").write_text(shown[0])
    (tmp_path / "a.txt").write_text("the dog and the cat\n" * 8)
    texts = [f"task.{split}={tmp_path / 'a.txt'}" for split in ("train", "valid", "test")]
    small = ["task.steps=5", "task.batch_size=4", "size.units=4", "optim.epochs=1", "mc.samples=2", "device=cpu"]
    command = [sys.executable, "run.py", "--config-dir", str(tmp_path / "mine"), f"model={name}", "task=text"]
    done = subprocess.run([*command, *texts, *small, f"runs_root={tmp_path}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "test_ppl_mc" in done.stdout
    assert len(list((tmp_path / "text" / "tiny" / name).glob("**/summary.json"))) == 1


def test_the_departures_are_fresh():
    text = README.read_text(encoding="utf-8")
    assert replaced(text, "differs", DEPARTURES["block"]()) == text, "run python scripts/departures.py"


def test_departures_are_collected_to_the_end_of_their_paragraph():
    python = '''
def f():
    """Do it.

    Differs: the paper does
    not say.

    More.
    """
    x = 1  # 0.2. Differs: because
    y = 2
    # Differs: of a
    # comment
    # Differs: and another
'''
    assert list(DEPARTURES["departures"](python)) == [
        "the paper does not say.",
        "because",
        "of a comment",
        "and another",
    ]
    assert list(DEPARTURES["departures"]('"""A. Differs: one line."""\nx = 1\n')) == ["one line."]


def test_files_that_the_readme_names_exist():
    text = README.read_text(encoding="utf-8")
    linked = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", text)
    missing = [name for name in linked if not (ROOT / name).exists()]
    assert not missing
