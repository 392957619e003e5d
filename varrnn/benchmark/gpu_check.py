"""The parts of `make gpu-check`: the tests that need a GPU, the benchmark, and training with a CUDA graph."""

import json
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from varrnn.config.schema import RunConfig
from varrnn.errors import UserError
from varrnn.fileio import PROJECT_ROOT
from varrnn.tasks.base import Task
from varrnn.training import checkpoint, optim, provenance
from varrnn.training.progress import RunMonitor
from varrnn.training.signals import Interrupts
from varrnn.training.trainer import Trainer

UNTIMED = 20  # updates before the clock starts


def run_script(words: Sequence[str]) -> int:
    """Run `python WORDS` in the project's folder and show its output; returns the exit code."""
    return subprocess.run([sys.executable, *words], cwd=PROJECT_ROOT).returncode


def run_tests(report: Path) -> dict[str, Any]:
    """Run the tests marked `cuda` and count the results; pytest writes its report to a file."""
    run_script(["-m", "pytest", "-q", "-m", "cuda", f"--junitxml={report}", "tests"])
    if not report.is_file():
        raise UserError(f"pytest wrote no report to {report}: its message is above; `make setup` installs the tests")
    return count_tests(report.read_text(encoding="utf-8"))


def count_tests(report: str) -> dict[str, Any]:
    """The numbers of passed, failed and skipped tests in pytest's JUnit report, and the names of the failed ones."""
    cases = list(ElementTree.fromstring(report).iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    names = [f"{case.get('classname')}::{case.get('name')}" for case in failed]
    passed = len(cases) - len(failed) - skipped
    return {"passed": passed, "failed": len(failed), "skipped": skipped, "failures": names}


def run_benchmark(file: Path, device: str, precision: str) -> dict[str, Any]:
    """Run scripts/benchmark.py at all sizes; returns its numbers."""
    words = ["scripts/benchmark.py", "--size", "all", "--device", device, "--precision", precision]
    if run_script([*words, "--json", str(file)]) != 0:
        raise UserError("scripts/benchmark.py failed: its message is above")
    return json.loads(file.read_text(encoding="utf-8"))


def train_updates(task: Task, config: RunConfig, device: torch.device, updates: int) -> dict[str, Any]:
    """Train the first updates of a run: speed (without the first 20), losses, memory, and a hash of the weights."""
    with Interrupts() as interrupts, RunMonitor(interrupts, False, 60.0, "") as monitor:
        trainer = Trainer(task, task.model(config).train(), config, Path(), monitor, device)
        provenance.reset_peak_memory(device)
        trainer.prepare_graph()
        lr, state = optim.learning_rate(config.optim, 1), None
        losses = torch.zeros(updates, device=device)
        untimed = min(UNTIMED, updates // 2)
        for update in range(updates):
            if update == untimed:
                started = _synchronised_time(device)
            step, _ = trainer.training_step(1, update, state, lr, trainer.mask_generator(update))
            losses[update], state = step.loss_for_log, step.state
        seconds = _synchronised_time(device) - started
    return {
        "words_per_second": sum(map(task.words, range(untimed, updates))) / seconds,
        "losses": losses.tolist(),
        "peak_memory_mb": provenance.peak_memory_mb(device),
        "weights": checkpoint.fingerprint(trainer.model),
        **trainer.progress.graph_record(),
    }


def _synchronised_time(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def compare_graph(task: Task, config: RunConfig, device: torch.device, updates: int) -> dict[str, Any]:
    """Train the same updates without and with a CUDA graph of the training step, and compare them."""
    updates = min(updates, task.updates_per_epoch)
    found = {
        name: train_updates(task, replace(config, train=replace(config.train, cuda_graph=graph)), device, updates)
        for name, graph in (("eager", False), ("graph", True))
    }
    eager, graph = found["eager"], found["graph"]
    return {
        **found,
        "updates": updates,
        "equal_to_the_bit": eager["weights"] == graph["weights"] and eager["losses"] == graph["losses"],
        "largest_loss_difference": max(abs(a - b) for a, b in zip(eager["losses"], graph["losses"])),
        "graph_to_eager": graph["words_per_second"] / eager["words_per_second"],
    }


def problems(tests: dict[str, Any], training: dict[str, Any]) -> list[str]:
    """The problems found, one sentence each; empty if everything passed."""
    found = [f"failed: {name}" for name in tests["failures"]]
    if not tests["passed"]:
        found.append("no test marked cuda has passed")
    note = training["graph"]["cuda_graph"]
    if note.startswith("not used"):
        found.append(f"the CUDA graph was {note}")
    elif not training["equal_to_the_bit"] and note.startswith("equal to eager steps to the bit"):
        difference = training["largest_loss_difference"]
        found.append(f"training with the CUDA graph differs from eager training, by up to {difference:.3g} in the loss")
    return found
