"""Live curves: their points are those of training, a resumed run duplicates none, and a failing logger ends no run."""

import csv
import time
from collections import Counter
from dataclasses import replace

import pytest
from helpers.runs import learnable_texts, python

from varrnn.config import compose
from varrnn.config.identity import config_identity
from varrnn.errors import UserError
from varrnn.training import loggers, progress
from varrnn.training import run as training_run
from varrnn.training.loggers import BackgroundLogger, Logger, hyper_parameters, make_logger
from varrnn.training.signals import Interrupts


def composed(folder, *more):
    return compose.compose([*learnable_texts(folder), f"run_dir={folder / 'run'}", "train.log_every=10", *more])


def scalars(folder):
    """tag -> [(step, value), ...] of a folder of event files."""
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = event_accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def history(run):
    with (run / "log.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_the_logger_is_not_part_of_a_runs_identity(tmp_path):
    plain, other = composed(tmp_path), composed(tmp_path, "logger=tensorboard")
    assert config_identity(plain) == config_identity(other) and compose.run_dir(plain) == compose.run_dir(other)
    with pytest.raises(UserError, match=r"logger\.name=other: allowed are csv, tensorboard, wandb"):
        make_logger(replace(plain, logger=replace(plain.logger, name="other")), tmp_path, print)
    assert other.logger.name == "tensorboard" and isinstance(make_logger(plain, tmp_path, print), Logger)
    assert not [key for key in hyper_parameters(other) if key.startswith(("logger", "run"))]
    assert hyper_parameters(other)["model.p_W"] == other.model.p_W


@pytest.mark.slow
def test_tensorboard_has_the_points_of_the_run(tmp_path):
    pytest.importorskip("tensorboard")
    summary = training_run.run(composed(tmp_path, "logger=tensorboard"))
    run = tmp_path / "run"
    found = scalars(run / "tensorboard")
    rows = history(run)
    assert [value for _, value in found["epoch/valid_ppl"]] == pytest.approx([float(r["valid_ppl"]) for r in rows])
    updates = found["epoch/valid_ppl"][0][0]
    steps = [step for step, _ in found["update/loss"]]
    assert steps == [*range(10, updates, 10), updates, *range(updates + 10, 2 * updates, 10), 2 * updates]
    assert found.keys() >= {"update/grad_norm", "update/lr", "update/words_per_second", "final/test_ppl"}
    assert found["final/test_ppl"][0][1] == pytest.approx(summary["metrics"]["test_ppl"])
    mc = scalars(run / "tensorboard" / "mc")["test_ppl_mc"]
    assert mc[-1][0] == 4 and mc[-1][1] == pytest.approx(summary["metrics"]["test_ppl_mc"])
    assert "logger" not in summary["config"]


@pytest.mark.slow
def test_a_resumed_run_continues_the_curves_without_doubled_points(tmp_path):
    """The first start is lost after its last checkpoint: the points behind that are replaced."""
    pytest.importorskip("tensorboard")
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    whole.mkdir(), stopped.mkdir()
    training_run.run(composed(whole, "logger=tensorboard"))
    training_run.run(composed(stopped, "logger=tensorboard", "optim.epochs=1"))
    writer = loggers.TensorBoard(stopped / "run", composed(stopped))
    updates = scalars(whole / "run" / "tensorboard")["epoch/valid_ppl"][0][0]
    writer.resume(updates)
    writer.log(updates + 10, {"update/loss": 123.0})  # what a killed start wrote after its last checkpoint
    writer.close()
    time.sleep(1.1)  # event files are named by the second, and read in that order
    training_run.run(composed(stopped, "logger=tensorboard"))
    found, wanted = (scalars(folder / "run" / "tensorboard") for folder in (stopped, whole))
    assert max(Counter(step for step, _ in found["update/loss"]).values()) == 1
    assert found["update/loss"] == wanted["update/loss"]
    assert found["epoch/valid_ppl"] == wanted["epoch/valid_ppl"]


@pytest.mark.slow
def test_wandb_works_offline_and_keeps_its_id(tmp_path):
    pytest.importorskip("wandb")
    options = ("logger=wandb", "logger.mode=offline")
    training_run.run(composed(tmp_path, *options, "optim.epochs=1"))
    run = tmp_path / "run"
    kept = (run / "wandb_id.txt").read_text().strip()
    first = list((run / "wandb").glob("offline-run-*"))
    assert len(first) == 1 and first[0].name.endswith(kept)
    assert next(first[0].glob("*.wandb")).stat().st_size > 1000
    training_run.run(composed(tmp_path, *options))
    assert (run / "wandb_id.txt").read_text().strip() == kept
    assert all(folder.name.endswith(kept) for folder in (run / "wandb").glob("offline-run-*"))


class Broken(Logger):
    def log(self, step, values):
        raise OSError(28, "No space left on device")


def test_a_failing_logger_warns_once_and_the_run_continues():
    said = []
    logger = BackgroundLogger("broken", Broken, said.append)
    for step in range(5):
        logger.log(step, {"loss": 1.0})
    logger.close()
    logger.log(6, {"loss": 1.0})
    assert len(said) == 1 and "No space left on device" in said[0] and "log.csv" in said[0]


def test_a_missing_package_is_named():
    def absent():
        import no_such_package_here

        return no_such_package_here

    said = []
    logger = BackgroundLogger("wandb", absent, said.append)
    logger.resume(0)
    logger.close()
    assert said == [
        "warning: logger=wandb: the package no_such_package_here is not installed (pip install 'varrnn[wandb]'); "
        "the run continues, its curves are in log.csv"
    ]


@pytest.mark.slow
def test_a_slow_backend_does_not_slow_the_run(monkeypatch):
    class Slow(Logger):
        def log(self, step, values):
            time.sleep(60)

    monkeypatch.setattr(loggers, "CLOSE_SECONDS", 0.2)
    said = []
    logger = BackgroundLogger("slow", Slow, said.append)
    started = time.monotonic()
    for step in range(1000):
        logger.log(step, {"loss": 1.0})
    logger.close()
    assert time.monotonic() - started < 10 and "not written" in said[0]


@pytest.mark.slow
def test_a_run_survives_its_logger(tmp_path, monkeypatch):
    """A file with the name of the folder for event files."""
    pytest.importorskip("tensorboard")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tensorboard").write_text("in the way")
    summary = training_run.run(composed(tmp_path, "logger=tensorboard", "mc.samples=0"))
    assert summary["status"] == "finished" and len(history(tmp_path / "run")) == 2


def test_without_a_terminal_a_line_has_the_remaining_time(monkeypatch, capsys):
    monkeypatch.setattr(progress, "FIRST_ETA", 0.0)
    with Interrupts() as interrupts, progress.RunMonitor(interrupts, True, 5.0, "") as bar:
        bar.shown, bar.prints_eta = False, True
        bar.start(1000, done=500)
        bar.advance(100)
        bar.advance(100)  # the next line is due in ten minutes
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("  60% done, about 0 minutes left")


@pytest.mark.slow
def test_bad_values_get_one_line(tmp_path):
    done = python("run.py", "logger=tensorbord", folder=tmp_path)
    assert done.returncode == 1 and "logger=tensorbord: allowed are csv, tensorboard, wandb" in done.stderr
    done = python("run.py", "logger=wandb", "logger.mode=off", folder=tmp_path)
    assert done.returncode == 1 and "logger.mode=off: allowed are online, offline, disabled" in done.stderr
