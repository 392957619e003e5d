"""Runs and tasks that take a second at most: a few units on a few hundred made-up words."""

import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers import ROOT, processes
from varrnn.config import compose
from varrnn.data.corpus import Corpus
from varrnn.tasks.language_model import LanguageModelTask
from varrnn.training import run as training_run
from varrnn.training.signals import SIGNALS

CPU = torch.device("cpu")
FILES = ("task=text", "task.train=a", "task.valid=b", "task.test=c")  # short: they are part of the folder's name
TINY = (
    *FILES,
    "size.units=8",
    "size.layers=1",
    "optim.epochs=2",
    "task.steps=5",
    "task.batch_size=4",
    "threads=1",
    "device=cpu",
)


def write_texts(folder: Path) -> None:
    """Texts of twelve words in which each word depends on the one before."""
    draws = np.random.default_rng(0)
    for split, length in (("a", 400), ("b", 120), ("c", 100)):
        ids = np.cumsum(draws.integers(0, 3, length)) % 12
        (folder / split).write_text(" ".join(f"w{i}" for i in ids) + "\n")


def learnable_texts(folder: Path) -> list[str]:
    """Longer texts of 40 words in which each word suggests the next; returns the overrides that use them."""
    draw = random.Random(0)
    words = [f"w{i}" for i in range(40)]
    overrides = ["task=text"]
    for split, lines in (("train", 300), ("valid", 60), ("test", 40)):
        text = []
        for _ in range(lines):
            at = draw.randrange(40)
            line = []
            for _ in range(8):
                at = (at * 3 + 1) % 40 if draw.random() < 0.8 else draw.randrange(40)
                line.append(words[at])
            text.append(" ".join(line))
        file = folder / f"{split}.txt"
        file.write_text("\n".join(text) + "\n", encoding="utf-8")
        overrides.append(f"task.{split}={file}")
    sizes = ["size.units=8", "size.layers=2", "task.steps=10", "task.batch_size=5", "optim.epochs=2", "mc.samples=4"]
    return [*overrides, *sizes, "threads=1", "device=cpu", "progress=false"]


def small(*overrides: str, device: torch.device = CPU) -> tuple[LanguageModelTask, compose.RunConfig]:
    """A task on 40 random words."""
    draw = np.random.default_rng(0)
    splits = [draw.integers(0, 40, n).astype(np.int64) for n in (1203, 407, 301)]
    corpus = Corpus("random", *splits, [f"w{i}" for i in range(40)], "0" * 64)
    made = compose.compose(["task=text", "size.units=6", "task.steps=7", "task.batch_size=4", *overrides])
    return LanguageModelTask(corpus, made.task, device), made


def make_run(*overrides: str) -> Path:
    """Train in this process, in the current folder; returns the run's folder."""
    write_texts(Path.cwd())
    made = compose.compose([*TINY, *overrides])
    training_run.run(made)
    return compose.run_dir(made)


def score_epochs(monkeypatch: pytest.MonkeyPatch, score: Callable[[int], float]) -> None:
    """Give every epoch of a language model the validation perplexity `score(epoch)`."""
    original = LanguageModelTask.epoch_metrics

    def scored(task, model, epoch):
        return original(task, model, epoch) | {"valid_ppl": score(epoch)}

    monkeypatch.setattr(LanguageModelTask, "epoch_metrics", scored)


def default_signals() -> None:
    """For `preexec_fn` of a child that is sent signals: a script's background job ignores Ctrl-C, and so would it."""
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_DFL)


def python(script: str, *words: str, folder: Path = ROOT) -> subprocess.CompletedProcess:
    """`python SCRIPT WORDS` in a folder, the script being one of the project's."""
    return processes.run(str(ROOT / script), *words, folder=folder)
