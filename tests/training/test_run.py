"""Runs after kill -9, signals, two starts in one folder, changed configs and non-finite losses."""

import json
import os
import signal
import time

import pytest
import torch
from helpers import processes
from helpers import runs as small_runs

from varrnn.config import compose
from varrnn.errors import UserError
from varrnn.tasks.language_model import LanguageModelTask
from varrnn.training import checkpoint
from varrnn.training import run as training_run
from varrnn.training import summary as run_summary
from varrnn.training.trainer import Trainer

TIMES = {"seconds", "wps_train", "wps_authors"}


def numbers(folder) -> dict:
    """All results of a run, without times."""
    summary = run_summary.read(folder)
    history = {name: values for name, values in summary["history"].items() if name not in TIMES}
    metrics = {name: value for name, value in summary["metrics"].items() if name not in TIMES}
    return {"history": history, "metrics": metrics, "mc_curve": summary["mc_curve"]}


def parameters(folder) -> list[bytes]:
    return [t.numpy().tobytes() for t in checkpoint.load(folder / "checkpoint.pt")["model"].values()]


def test_what_a_run_leaves_behind(tiny):
    made = compose.compose(tiny)
    summary = training_run.run(made)
    folder = compose.run_dir(made)
    assert {"config.yaml", "log.csv", "summary.json", "checkpoint.pt", "best.pt"} <= {f.name for f in folder.iterdir()}
    log = (folder / "log.csv").read_text().splitlines()
    assert len(log) == 3 and set(log[0].split(",")) >= {
        "epoch", "train_ppl", "valid_ppl", "valid_ppl_authors", "lr", "grad_norm", "wps_train", "wps_authors", "seconds"
    }  # fmt: skip
    saved = json.loads((folder / "summary.json").read_text())
    assert saved["status"] == "finished" and saved["seed"] == 1 and saved["choices"]["model"] == "variational_untied"
    assert saved["diff"]["size.units"] == 8 and "runs_root" not in saved["config"]
    for key in ("valid_ppl", "valid_ppl_authors", "test_ppl", "valid_ppl_last", "test_ppl_best", "best_epoch",
                "test_ppl_mc", "test_ppl_mc_se", "mc_samples", "wps_train", "wps_authors", "parameters"):  # fmt: skip
        assert saved["metrics"][key] > 0
    assert saved["mc_curve"]["samples"] == [1, 2]
    assert len(saved["data"]["sha256"]) == 64 and saved["versions"]["torch"] and saved["hardware"]["cores"] > 0
    assert saved["metrics"] == pytest.approx(summary["metrics"])


@pytest.mark.slow
def test_training_learns_and_the_same_seed_gives_the_same_numbers(tiny, tmp_path):
    overrides = [*tiny, "model=none", "optim.epochs=8", "size.units=32", "size.init=0.3"]
    first = training_run.run(compose.compose(overrides))
    history = first["history"]["train_ppl"]
    assert history[-1] < 0.6 * history[0] and first["metrics"]["test_ppl"] < 25  # 41 words
    again = training_run.run(compose.compose([*overrides, f"runs_root={tmp_path / 'again'}"]))
    assert again["metrics"]["test_ppl"] == first["metrics"]["test_ppl"]
    other = training_run.run(compose.compose([*overrides, "seed=2"]))
    assert other["metrics"]["test_ppl"] != first["metrics"]["test_ppl"]


@pytest.mark.slow
def test_a_run_killed_at_any_moment_ends_bit_identical_to_one_that_was_never_stopped(tiny, tmp_path):
    overrides = [*tiny, "optim.epochs=12", "mc.samples=200", "mc.rows=5", "train.checkpoint_minutes=0"]
    whole = compose.compose([*overrides, f"run_dir={tmp_path / 'whole'}"])
    training_run.run(whole)
    folder = tmp_path / "killed"
    kills = 0
    for delay in (0.3, 0.6, 0.9, 0.1, 60):
        running = processes.Process(str(small_runs.ROOT / "run.py"), *overrides, f"run_dir={folder}")
        deadline = time.monotonic() + 100
        before = (folder / "checkpoint.pt").stat().st_mtime_ns if (folder / "checkpoint.pt").exists() else 0
        while running.poll() is None and time.monotonic() < deadline:
            file = folder / "checkpoint.pt"
            if file.exists() and file.stat().st_mtime_ns != before:
                break
            time.sleep(0.01)
        time.sleep(delay if delay < 60 else 0)
        if delay < 60 and running.poll() is None:
            running.kill()
            kills += 1
        running.wait(timeout=200)
    assert kills >= 2, "the run ended before it could be killed: slow it down"
    assert run_summary.read(folder)["status"] == "finished"
    assert numbers(folder) == numbers(tmp_path / "whole")
    assert parameters(folder) == parameters(tmp_path / "whole")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
@pytest.mark.slow
def test_a_signal_saves_and_prints_how_to_resume(tiny, signum, monkeypatch, tmp_path):
    overrides = [*tiny, f"run_dir={tmp_path / 'stopped'}"]
    whole = training_run.run(compose.compose([*tiny, f"run_dir={tmp_path / 'whole'}"]))
    original, steps = Trainer.training_step, []

    def update(self, *arguments):
        steps.append(1)
        if len(steps) == 30:
            os.kill(os.getpid(), signum)
        return original(self, *arguments)

    monkeypatch.setattr(Trainer, "training_step", update)
    with pytest.raises(KeyboardInterrupt, match="the same command resumes it"):
        training_run.run(compose.compose(overrides))
    assert len(steps) == 30 and run_summary.read(tmp_path / "stopped") is None
    assert checkpoint.load(tmp_path / "stopped" / "checkpoint.pt")["progress"]["update"] == 30
    resumed = training_run.run(compose.compose(overrides))
    assert resumed["metrics"]["test_ppl"] == whole["metrics"]["test_ppl"]
    assert parameters(tmp_path / "stopped") == parameters(tmp_path / "whole")


@pytest.mark.slow
def test_a_finished_run_is_not_repeated_and_other_samples_only_evaluate(tiny, monkeypatch, capsys):
    training_run.run(compose.compose(tiny))
    monkeypatch.setattr(Trainer, "training_step", None)  # training again would fail
    training_run.run(compose.compose(tiny))
    assert "finished already" in capsys.readouterr().out
    more = training_run.run(compose.compose([*tiny, "mc.samples=9"]))
    assert more["metrics"]["mc_samples"] == 9 and more["mc_curve"]["samples"] == [1, 2, 5]
    fewer = training_run.run(compose.compose([*tiny, "mc.samples=2"]))
    assert fewer["metrics"]["mc_samples"] == 9, "more samples than asked for are not thrown away"


@pytest.mark.slow
def test_a_changed_config_in_the_same_folder_is_rejected_with_the_difference(tiny, tmp_path):
    training_run.run(compose.compose([*tiny, f"run_dir={tmp_path / 'here'}", "mc.samples=0"]))
    with pytest.raises(UserError, match=r"optim\.lr: 1\.0 there, 0\.5 requested"):
        training_run.run(compose.compose([*tiny, f"run_dir={tmp_path / 'here'}", "optim.lr=0.5"]))


@pytest.mark.slow
def test_more_epochs_extend_a_finished_run(tiny, tmp_path):
    """The extended run equals a run of that length bit by bit; a request for fewer epochs changes nothing."""
    tiny = [word for word in tiny if not word.startswith("optim.epochs")]
    first = training_run.run(compose.compose([*tiny, "optim.epochs=1", "mc.samples=3"]))
    longer = training_run.run(compose.compose([*tiny, "optim.epochs=3", "mc.samples=3"]))
    at_once = training_run.run(
        compose.compose([*tiny, "optim.epochs=3", "mc.samples=3", f"run_dir={tmp_path / 'at_once'}"])
    )
    assert longer["history"]["valid_ppl"] == at_once["history"]["valid_ppl"]
    assert longer["history"]["valid_ppl"][:1] == first["history"]["valid_ppl"]
    for name in ("test_ppl", "test_ppl_mc"):
        assert longer["metrics"][name] == at_once["metrics"][name] != first["metrics"][name]
    shorter = training_run.run(compose.compose([*tiny, "optim.epochs=2", "mc.samples=5"]))
    assert shorter["config"]["optim"]["epochs"] == 3 and shorter["metrics"]["epochs"] == 3
    assert shorter["metrics"]["mc_samples"] == 5


@pytest.mark.slow
def test_an_unfinished_run_is_not_shortened(tiny, tmp_path):
    tiny = [word for word in tiny if not word.startswith("optim.epochs")]
    where = f"run_dir={tmp_path / 'here'}"
    training_run.run(compose.compose([*tiny, where, "optim.epochs=3", "mc.samples=0"]))
    (tmp_path / "here" / "summary.json").unlink()
    with pytest.raises(UserError, match=r"optim\.epochs=2, but the run is in epoch 4 already"):
        training_run.run(compose.compose([*tiny, where, "optim.epochs=2", "mc.samples=0"]))


@pytest.mark.slow
def test_other_data_in_the_same_folder_is_rejected(tiny, tmp_path):
    first = compose.compose([*tiny, f"run_dir={tmp_path / 'here'}", "optim.epochs=1", "mc.samples=0"])
    training_run.run(first)
    (tmp_path / "here" / "summary.json").unlink()
    train = tmp_path / "train.txt"
    train.write_text(train.read_text().replace("w1 ", "w2 "))
    with pytest.raises(UserError, match="trained on other data"):
        training_run.run(first)


@pytest.mark.slow
def test_more_samples_on_other_data_are_rejected(tiny, tmp_path):
    training_run.run(compose.compose(tiny))
    test = tmp_path / "test.txt"
    test.write_text(test.read_text().replace("w1 ", "w2 "))
    with pytest.raises(UserError, match="trained on other data"):
        training_run.run(compose.compose([*tiny, "mc.samples=9"]))


@pytest.mark.slow
def test_early_stopping_without_a_validation_set_is_rejected_before_training(tmp_path):
    made = ["task=synthetic_reviews", "model=none", f"runs_root={tmp_path}", "threads=1"]
    for option in ("train.early_stopping=true", "train.patience=2"):
        with pytest.raises(UserError, match=r"need a validation set.*task\.hold_out="):
            training_run.run(compose.compose([*made, option]))


@pytest.mark.slow
def test_a_signal_during_the_last_measurement_still_stops(tiny, tmp_path, monkeypatch):
    original = LanguageModelTask.final_metrics

    def measure(self, model, row=None):
        os.kill(os.getpid(), signal.SIGTERM)
        return original(self, model, row)

    monkeypatch.setattr(LanguageModelTask, "final_metrics", measure)
    made = compose.compose([*tiny, f"run_dir={tmp_path / 'stopped'}", "mc.samples=0", "optim.epochs=1"])
    with pytest.raises(KeyboardInterrupt):
        training_run.run(made)
    assert run_summary.read(tmp_path / "stopped")["status"] == "finished"


@pytest.mark.slow
def test_resuming_on_another_machine_is_reported(tiny, tmp_path, capsys):
    made = compose.compose([*tiny, f"run_dir={tmp_path / 'here'}", "mc.samples=0", "optim.epochs=1"])
    training_run.run(made)
    (tmp_path / "here" / "summary.json").unlink()
    before = torch.get_num_threads()
    made.threads = before + 1
    try:
        training_run.run(made)
    finally:
        torch.set_num_threads(before)
    said = capsys.readouterr().out
    assert "resuming on cpu, " in said and f", {before + 1} threads" in said


@pytest.mark.slow
def test_a_second_process_in_one_folder_is_rejected(tmp_path):
    expected = pytest.raises(UserError, match="another process is running here")
    with checkpoint.lock_run_dir(tmp_path), expected, checkpoint.lock_run_dir(tmp_path):
        pass
    with checkpoint.lock_run_dir(tmp_path):
        pass  # the lock is free again


@pytest.mark.parametrize(
    ("part", "said"),
    [("weights", "loss nan"), ("gradient", r"loss \d\.\d+, gradient norm (inf|nan)")],
    ids=["loss", "gradient"],
)
@pytest.mark.parametrize("every", [1, 1000])  # a checkpoint is due at every update, a check of the losses is not
@pytest.mark.slow
def test_a_loss_or_gradient_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(
    tiny, tmp_path, monkeypatch, part, said, every
):
    words = ("train.checkpoint_minutes=0", f"train.log_every={every}")
    made = compose.compose([*tiny, f"run_dir={tmp_path / 'bad'}", *words])
    original, steps = Trainer.training_step, []

    def update(self, *arguments):
        steps.append(1)
        if len(steps) == 5:
            weight = self.model.output.weight
            if part == "weights":
                weight.data.fill_(float("nan"))
            else:  # the loss of this update is still finite
                weight.register_hook(lambda gradient: gradient * float("inf"))
        return original(self, *arguments)

    monkeypatch.setattr(Trainer, "training_step", update)
    with pytest.raises(UserError, match=rf"epoch 1, update 5 of .*: {said}.*last good checkpoint is kept"):
        training_run.run(made)
    saved = checkpoint.load(tmp_path / "bad" / "checkpoint.pt")
    assert saved["progress"]["update"] == 4
    assert all(tensor.isfinite().all() for tensor in saved["model"].values())
    assert run_summary.read(tmp_path / "bad")["status"] == "unstable"
    assert "update 5" in (tmp_path / "bad" / "error.txt").read_text()


@pytest.mark.slow
def test_the_first_window_of_an_epoch_starts_from_zeros(tiny, monkeypatch):
    original, fresh = Trainer.training_step, []

    def update(self, epoch, update, state, *rest):
        if state is None:
            fresh.append((epoch, update))
        return original(self, epoch, update, state, *rest)

    monkeypatch.setattr(Trainer, "training_step", update)
    training_run.run(compose.compose([*tiny, "mc.samples=0"]))
    assert fresh == [(1, 0), (2, 0)]


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.slow
def test_mc_samples_the_parameters_that_are_reported(tiny, tmp_path, early):
    made = compose.compose([*tiny, f"run_dir={tmp_path / 'here'}", f"train.early_stopping={early}", "mc.samples=0"])
    training_run.run(made)
    best = checkpoint.load(tmp_path / "here" / "best.pt")
    for tensor in best["model"].values():
        tensor.zero_()  # all 41 words alike, which nothing else predicts
    checkpoint.save(best, tmp_path / "here" / "best.pt")
    made.mc.samples = 3
    ppl = training_run.run(made)["metrics"]["test_ppl_mc"]
    assert (ppl == pytest.approx(41, rel=1e-6)) is early


@pytest.mark.slow
def test_early_stopping_reports_the_best_epoch_and_continues_training(tiny, tmp_path):
    lines = (tmp_path / "valid.txt").read_text().splitlines()
    # what is learnt makes the result worse, independent of rounding
    backwards = [" ".join(reversed(line.split())) for line in lines]
    (tmp_path / "valid.txt").write_text("\n".join(backwards) + "\n")
    overrides = [*tiny, "model=none", "optim.epochs=12", "size.units=48", "mc.samples=0"]
    plain = training_run.run(compose.compose(overrides))["metrics"]
    assert plain["best_epoch"] < 12, "the test needs a run that overfits"
    assert plain["valid_ppl"] == plain["valid_ppl_last"] > plain["valid_ppl_best"]
    early = training_run.run(compose.compose([*overrides, "train.early_stopping=true"]))
    assert early["metrics"]["valid_ppl"] == early["metrics"]["valid_ppl_best"] == plain["valid_ppl_best"]
    assert early["metrics"]["test_ppl_last"] == plain["test_ppl_last"] and len(early["history"]["epoch"]) == 12
    cut = training_run.run(compose.compose([*overrides, "train.patience=2"]))
    assert len(cut["history"]["epoch"]) == plain["best_epoch"] + 2


@pytest.mark.slow
def test_a_run_ends_with_what_to_do_next_and_prints_no_nan(tiny, capsys):
    """One MC sample has no standard error; a run on the user's texts cannot be published."""
    training_run.run(compose.compose([*tiny, "optim.epochs=1", "mc.samples=1"]))
    said = capsys.readouterr().out
    assert "nan" not in said and "test_ppl_mc " in said
    assert said.splitlines()[-1].startswith("look at it with: python scripts/generate.py ")
