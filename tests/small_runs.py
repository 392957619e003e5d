"""Tiny language-model runs for the tests: a generated text, few units, a second or two each."""

import os
import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def write_texts(folder: Path) -> list[str]:
    """Three texts with a little structure (each word suggests the next); returns the overrides that use them."""
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
    small = ["size.units=8", "size.layers=2", "task.steps=10", "task.batch_size=5", "optim.epochs=2", "mc.samples=4"]
    return [*overrides, *small, "threads=1", "progress=false"]


def command(overrides: list[str]) -> list[str]:
    """`python run.py OVERRIDES`."""
    return [sys.executable, str(ROOT / "run.py"), *overrides]


def run(overrides: list[str], **options) -> subprocess.CompletedProcess[str]:
    """Run it to its end as a user would, in one thread."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"} | options.pop("env", {})
    return subprocess.run(
        command(overrides), capture_output=True, text=True, timeout=300, env=environment, cwd=ROOT, **options
    )
