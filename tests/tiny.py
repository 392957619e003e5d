"""Runs that take a fraction of a second: eight units on a few hundred made-up words, in the current folder."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from varrnn import config, runs

ROOT = Path(__file__).resolve().parents[1]
FILES = ("task=text", "task.train=a", "task.valid=b", "task.test=c")  # short: they are part of the folder's name
TINY = (*FILES, "size.units=8", "size.layers=1", "optim.epochs=2", "task.steps=5", "task.batch_size=4", "threads=1")


def write_texts(folder: Path) -> None:
    """Texts of twelve words in which each word depends on the one before."""
    random = np.random.default_rng(0)
    for split, length in (("a", 400), ("b", 120), ("c", 100)):
        ids = np.cumsum(random.integers(0, 3, length)) % 12
        (folder / split).write_text(" ".join(f"w{i}" for i in ids) + "\n")


def make_run(*overrides: str) -> Path:
    """Train in this process, in the current folder; returns the run's folder."""
    write_texts(Path.cwd())
    made = config.compose([*TINY, *overrides])
    runs.run(made)
    return config.run_dir(made)


def python(script: str, *words: str, folder: Path) -> subprocess.CompletedProcess:
    """`python SCRIPT WORDS` in a folder, the script being one of the project's."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / script), *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
