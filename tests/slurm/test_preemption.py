"""A sweep on a real Slurm, one job pre-empted in the middle. `make test-slurm` brings up the Slurm that this needs."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from helpers.runs import ROOT, TINY, python, write_texts

from varrnn.config import compose
from varrnn.records import store
from varrnn.training import checkpoint
from varrnn.training import run as training_run
from varrnn.training import summary as run_summary

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        "VARRNN_TEST_SLURM" not in os.environ,  # only the Slurm of the tests, never a real cluster
        reason="needs a Slurm for tests; `make test-slurm` starts one",
    ),
]
EPOCHS = 40  # about ten seconds on an idle core, enough to interrupt the job
LONG = (f"optim.epochs={EPOCHS}", "optim.max_epoch=30", "mc.samples=3", "train.checkpoint_minutes=60")
QUEUE = (
    *("launcher=slurm", "hydra.launcher.partition=test", "hydra.launcher.timeout_min=30", "hydra.launcher.mem_gb=1"),
    *("hydra.launcher.cpus_per_task=1", "hydra.launcher.gpus_per_node=null", "threads=0", "device=cpu"),
)
TIMED = ("wps_train", "wps_authors", "seconds")


def slurm(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def wait_until(reached, what: str, seconds: float = 600) -> None:
    """Wait long enough for a busy machine; then fail with the condition that was not met."""
    until = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < until, f"{what} did not happen within {seconds} seconds"
        time.sleep(0.2)


def untimed(numbers: dict) -> dict:
    return {name: value for name, value in numbers.items() if name not in TIMED}


def rows(folder: Path) -> int:
    log = folder / "log.csv"
    return len(log.read_text().splitlines()) - 1 if log.is_file() else 0


def test_a_preempted_run_resumes_and_equals_one_that_was_never_stopped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_texts(tmp_path)
    (tmp_path / "a").write_text((tmp_path / "a").read_text() * 8)
    swept = ("model.p_U=0.1,0.3", "model.p_W=0.2,0.4")
    words = [sys.executable, str(ROOT / "run.py"), *TINY, *LONG, *swept, *QUEUE]
    first = compose.compose([*TINY, *LONG, "model.p_U=0.1", "model.p_W=0.2"])  # job 0 of the array
    folder = compose.run_dir(first)
    with (tmp_path / "out.txt").open("w") as out, subprocess.Popen(words, stdout=out, stderr=out) as sweep:
        try:
            wait_until(lambda: rows(folder) >= 3, "the first epochs")
            (job,) = [line for line in slurm("squeue", "-rh", "-o", "%i").split() if line.endswith("_0")]
            for name in ("TERM", "USR2"):  # as Slurm's pre-emption does
                slurm("scancel", f"--signal={name}", f"{job}.0")
            wait_until(lambda: "Restarts=1" in slurm("scontrol", "show", "job", job), "the requeueing")
            assert rows(folder) < EPOCHS and run_summary.read(folder) is None  # it was stopped in the middle
            never_stopped = training_run.run(first, tmp_path / "never_stopped")
            assert sweep.wait(timeout=900) == 0, (tmp_path / "out.txt").read_text()
        finally:
            sweep.kill()
    logs = "".join(file.read_text() for file in (tmp_path / "runs").rglob(f"{job}_*_log.out"))
    assert re.search(r"resuming in epoch (\d+) after update", logs)
    requeued = run_summary.read(folder)
    assert requeued["status"] == "finished" and requeued["hardware"]["threads"] == 1
    assert untimed(requeued["metrics"]) == untimed(never_stopped["metrics"])
    assert untimed(requeued["history"]) == untimed(never_stopped["history"])
    assert requeued["mc_curve"] == never_stopped["mc_curve"]
    weights = [checkpoint.load(run / "checkpoint.pt")["model"] for run in (folder, tmp_path / "never_stopped")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    check_summary(tmp_path)


def check_summary(folder: Path) -> None:
    """Four records, and the summary chooses the lowest validation perplexity of them."""
    found = [store.as_record(file, store.read_json(file)) for file in sorted((folder / "runs").rglob("summary.json"))]
    assert [record.status for record in found] == ["finished"] * 4
    rates = ("model.p_U", "model.p_W")
    valid = {tuple(record.options[key] for key in rates): record.metric("valid_ppl") for record in found}
    assert set(valid) == {(0.1, 0.2), (0.1, 0.4), (0.3, 0.2), (0.3, 0.4)}
    done = python("scripts/sweep_summary.py", "runs", folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    p_U, p_W = min(valid, key=valid.__getitem__)
    assert re.search(rf"\| 1 \| {p_U} \| {p_W} \|", done.stdout) and "| 4 |" in done.stdout
    assert len(list((folder / "runs" / "summary" / "figures").glob("*.pdf"))) == 1


def test_a_failing_job_does_not_lose_the_others(tmp_path):
    write_texts(tmp_path)
    done = python("run.py", *TINY, "mc.samples=0", "task.batch_size=4,400", *QUEUE, folder=tmp_path)
    assert done.returncode == 1
    assert "1 of the sweep's runs failed" in done.stderr and "again: python run.py task=text" in done.stderr
    assert "too few for task.batch_size=400" in done.stderr and "Traceback" not in done.stderr
    assert len(list((tmp_path / "runs").rglob("summary.json"))) == 1
