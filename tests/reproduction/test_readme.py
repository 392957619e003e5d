"""The examples on the pages run: the library example, the variant in one YAML, links, and the list of differences."""

import re
import runpy
from pathlib import Path

import pytest
import yaml
from helpers import ROOT
from helpers.runs import python

from varrnn.reproduction.readme import replace_section

README = ROOT / "README.md"
DIFFERENCES = runpy.run_path(str(ROOT / "scripts" / "differences.py"))


PAGES = [
    README,
    *(ROOT / name / "README.md" for name in ("configs", "data", "experiments", "results", "varrnn/kernels")),
    ROOT / "results" / "DIFFERENCES.md",
    ROOT / "results" / "SENTIMENT.md",
    ROOT / "varrnn" / "README.md",
    ROOT / "CONTRIBUTING.md",
]


def blocks(language: str, page: Path = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_library_example_runs(capsys):
    examples = [block for block in blocks("python") if "varrnn" in block]
    assert examples, "the README shows no library example"
    for example in examples:
        exec(compile(example, "README.md", "exec"), {"__name__": "readme"})


@pytest.mark.slow
def test_a_variant_in_one_yaml(tmp_path):
    """The YAML of configs/README.md, in a user's folder, trains a model."""
    shown = [block for block in blocks("yaml", ROOT / "configs" / "README.md") if "name:" in block and "p_" in block]
    assert shown, "the page shows no variant"
    name = yaml.safe_load(shown[0])["name"]
    folder = tmp_path / "mine" / "model"
    folder.mkdir(parents=True)
    (folder / f"{name}.yaml").write_text(shown[0])
    (tmp_path / "a.txt").write_text("the dog and the cat\n" * 8)
    texts = [f"task.{split}={tmp_path / 'a.txt'}" for split in ("train", "valid", "test")]
    small = ["task.steps=5", "task.batch_size=4", "size.units=4", "optim.epochs=1", "mc.samples=2", "device=cpu"]
    chosen = ["--config-dir", str(tmp_path / "mine"), f"model={name}", "task=text"]
    done = python("run.py", *chosen, *texts, *small, f"runs_root={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert "test_ppl_mc" in done.stdout
    assert len(list((tmp_path / "text" / "tiny" / name).glob("**/summary.json"))) == 1


def test_the_differences_are_up_to_date():
    text = (ROOT / "results" / "DIFFERENCES.md").read_text(encoding="utf-8")
    assert replace_section(text, "differs", DIFFERENCES["differences_section"]()) == text, (
        "run python scripts/differences.py"
    )


def test_differences_are_collected_to_the_end_of_their_paragraph():
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
    assert list(DIFFERENCES["differences"](python)) == [
        "the paper does not say.",
        "because",
        "of a comment",
        "and another",
    ]
    assert list(DIFFERENCES["differences"]('"""A. Differs: one line."""\nx = 1\n')) == ["one line."]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_linked_files_exist(page):
    linked = re.findall(r"\]\((?!https?:|#|mailto:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert not [name for name in linked if not (page.parent / name).exists()]


def test_the_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 160
