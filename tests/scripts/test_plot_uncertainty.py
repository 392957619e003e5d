"""scripts/plot_uncertainty.py on two real, tiny runs; and reading a text word by word against the definition."""

import json
import math
import runpy
import sys
from pathlib import Path

import pytest
import torch
from helpers import ROOT

from varrnn import DropoutRates
from varrnn.analysis.word_uncertainty import auroc, random_words, read_text, shuffled
from varrnn.config import compose
from varrnn.tasks.model import SequenceModel, initialise
from varrnn.tasks.perplexity import sample_mask_batch
from varrnn.training import run as training_run

SCRIPT = ROOT / "scripts" / "plot_uncertainty.py"
TINY = ("size.units=8", "optim.epochs=1", "mc.samples=2", "progress=false", "device=cpu", "threads=1")


@pytest.fixture(scope="module")
def language_run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("lm")
    (folder / "a.txt").write_text("the dog and the cat\nthe <unk> and a bird\n" * 60)
    files = [f"task.{split}={folder / 'a.txt'}" for split in ("train", "valid", "test")]
    training_run.run(compose.compose(["task=text", *files, *TINY, "task.steps=5", "task.batch_size=4"]), folder / "run")
    return folder / "run"


@pytest.fixture
def draw(monkeypatch, capsys):
    """Run the script as the command line would, in this process: (exit status, stderr)."""

    def run(*words: str | Path) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--samples", "3", *map(str, words)])
        try:
            runpy.run_path(str(SCRIPT), run_name="__main__")
        except SystemExit as stop:
            return stop.code, capsys.readouterr().err
        return 0, ""

    return run


@pytest.mark.slow
def test_language_model(draw, language_run, tmp_path):
    (tmp_path / "own.txt").write_text("the unheard-of dog <\n")
    extra = ("threads=1", "--words", "300", "--length", "40", "--text", tmp_path / "own.txt", "--out", tmp_path / "out")
    assert draw(language_run, *extra) == (0, "")
    numbers = json.loads((tmp_path / "out" / "numbers.json").read_text())
    assert set(numbers["means"]) == {"test text", "shuffled", "uniform words"}
    for name in ("words", "position", "domains", "calibration"):
        assert (tmp_path / "out" / f"{name}.png").stat().st_size > 3000
    page = (tmp_path / "out" / "words.html").read_text()
    assert page.count("<span") >= 3 * 5 and "&lt;unk&gt;" in page and "<unk>" not in page


@pytest.mark.slow
def test_regression(draw, tmp_path):
    """The script plots every kind of sentiment run."""
    small = ("task=synthetic_reviews", *TINY, "task.steps=12", "task.mc_samples=1")
    training_run.run(compose.compose(list(small)), tmp_path / "run")
    assert draw(tmp_path / "run", "threads=1") == (0, "")
    numbers = json.loads((tmp_path / "run" / "uncertainty" / "numbers.json").read_text())
    assert numbers["rmse"] > 0 and numbers["noise_sd"] > 0
    assert draw(tmp_path / "run", "--out", tmp_path / "whole", "mc.word_dropout=false") == (0, "")
    assert json.loads((tmp_path / "whole" / "numbers.json").read_text()) != numbers
    assert (tmp_path / "run" / "uncertainty" / "regression.pdf").is_file()
    for words, message in (
        (("--text", SCRIPT), "--text: only for language models; leave out for task=synthetic_reviews"),
        (("--show-words", 9, "--words", 9, "--length", 9), "--words, --length, --show-words: only for language models"),
        (("--samples", 1), "--samples 1: must be at least 2 for task=synthetic_reviews"),
        (("--out", SCRIPT), f"{SCRIPT}: cannot be written ({SCRIPT} is a file, not a folder)"),
    ):
        status, said = draw(tmp_path / "run", *words)
        assert status == 1 and said.startswith(f"error: {message}") and said.count("\n") == 1


@pytest.mark.slow
def test_numbers_that_are_not_finite_are_null(draw, language_run, tmp_path, monkeypatch):
    """JSON has no NaN."""
    monkeypatch.setattr("varrnn.analysis.word_uncertainty.auroc", lambda *_: math.nan)
    assert draw(language_run, "--words", "50", "--out", tmp_path) == (0, "")
    numbers = json.loads((tmp_path / "numbers.json").read_text(), parse_constant=pytest.fail)
    assert set(numbers["auroc"]["shuffled"].values()) == {None}


@pytest.mark.slow
def test_mistakes_are_one_line(draw, language_run, tmp_path):
    summary = json.loads((language_run / "summary.json").read_text())
    for change, message in (
        ({"data": {"name": "text", "sha256": "0"}}, "another version"),
        ({"status": "unstable"}, "has not finished"),
    ):
        (tmp_path / "summary.json").write_text(json.dumps(summary | change))
        (tmp_path / "config.yaml").write_text((language_run / "config.yaml").read_text())
        status, said = draw(tmp_path)
        assert status == 1 and said.startswith("error: ") and message in said
    assert draw(language_run, "mc.samples=9") == (
        1,
        "error: mc.samples=: set the number of samples with --samples instead\n",
    )
    assert draw(language_run, "--words", 50, "--out", tmp_path / "few") == (0, "")
    for name, value, least in (("samples", 0, 1), ("words", 1, 2), ("length", 1, 2), ("show-words", -3, 2)):
        message = draw(language_run, f"--{name}", value)
        assert message == (1, f"error: --{name} {value}: must be at least {least}\n")
    for file in (tmp_path / "none.txt", tmp_path):
        status, said = draw(language_run, "--text", file)
        assert status == 1 and said.startswith(f"error: --text {file}: cannot be read") and said.count("\n") == 1
    assert "not a run's folder" in draw(tmp_path / "nowhere")[1]


@pytest.mark.parametrize("per_step", [False, True])
def test_reading_in_windows_equals_reading_at_once(per_step):
    """Masks are held over the text and the state is carried: equal to one call with the same masks."""
    dropout = DropoutRates(p_W=0.3, p_U=0.0 if per_step else 0.2, p_y=0.2, per_step=per_step)
    model = SequenceModel(13, 6, 2, 13, dropout).eval()
    initialise(model, 1.0, seed=1)
    text = torch.randint(13, (40,))
    whole = read_text(model, text, samples=4)
    masks = sample_mask_batch(model, range(4), 0, False, 0, 39)  # all of it fits into one window
    with torch.no_grad():
        logits, _ = model(text[:-1, None].expand(-1, 4), None, masks)
    mean = logits.softmax(-1).double().mean(1)
    torch.testing.assert_close(whole.surprise, -mean.gather(1, text[1:, None])[:, 0].log())
    torch.testing.assert_close(whole.predictive_entropy, -(mean * mean.log()).sum(-1))
    assert torch.equal(whole.correct, mean.argmax(-1) == text[1:])
    if per_step:  # masks belong to a window there, so that its length matters
        return
    pieces = read_text(model, torch.cat([text] * 20), samples=4, memory_mb=1)
    torch.testing.assert_close(pieces.surprise[:39], whole.surprise)
    single = read_text(model, text, samples=0)
    assert float(single.mutual_information.max()) < 1e-6
    with pytest.raises(ValueError, match="no next word"):
        read_text(model, text[:1])


def test_shuffled_and_random_texts():
    text = torch.arange(50)
    assert torch.equal(shuffled(text).sort().values, text) and not torch.equal(shuffled(text), text)
    assert random_words(text, 7).max() < 7
    assert auroc(torch.tensor([2.0, 3.0]), torch.tensor([0.0, 1.0])) == 1
    assert auroc(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0])) == 0.5
