"""The training loop between two epochs: stops, clocks, and rejected checkpoints."""

import os
import signal
import time

import pytest
from omegaconf import OmegaConf

from varrnn.config import compose
from varrnn.errors import UserError
from varrnn.sweeps import plan
from varrnn.tasks.language_model import LanguageModelTask
from varrnn.tasks.perplexity import MCPerplexity
from varrnn.training import checkpoint, progress, signals
from varrnn.training import run as training_run
from varrnn.training.progress import RunMonitor
from varrnn.training.signals import Interrupts, RunStopped
from varrnn.training.trainer import CHECKPOINT, Trainer


@pytest.mark.slow
def test_a_run_in_the_middle_of_an_epoch_is_not_shortened(tiny, monkeypatch):
    """Its parameters belong to no complete epoch."""
    words = [word for word in tiny if not word.startswith("optim.epochs")]
    original = Trainer.training_step

    def update(self, epoch, number, *others):
        if (epoch, number) == (3, 1):
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, epoch, number, *others)

    monkeypatch.setattr(Trainer, "training_step", update)
    with pytest.raises(RunStopped):
        training_run.run(compose.compose([*words, "optim.epochs=3", "mc.samples=0"]))
    with pytest.raises(UserError, match=r"optim\.epochs=2, but the run is in epoch 3 already"):
        training_run.run(compose.compose([*words, "optim.epochs=2", "mc.samples=0"]))


@pytest.mark.slow
def test_words_per_second_of_the_authors_include_validation(tiny, monkeypatch):
    original = LanguageModelTask.epoch_metrics

    def slow(self, *arguments):
        time.sleep(0.1)
        return original(self, *arguments)

    monkeypatch.setattr(LanguageModelTask, "epoch_metrics", slow)
    ended = training_run.run(compose.compose([*tiny, "optim.epochs=2", "mc.samples=0"]))
    spent, metrics = ended["duration"], ended["metrics"]
    assert spent["total_seconds"] >= spent["train_seconds"] + 0.2
    ratio = metrics["wps_train"] / metrics["wps_authors"]
    assert ratio == pytest.approx(spent["total_seconds"] / spent["train_seconds"])


def test_the_second_ctrl_c_stops_at_once():
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.signum == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)  # Python looks for signals between two instructions


def test_checkpoints_are_due_every_few_minutes(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with Interrupts() as interrupts, RunMonitor(interrupts, False, 5.0, "") as monitor:
        assert not monitor.save_due()
        now[0] += 301
        assert monitor.save_due() and not monitor.save_due()
        interrupts.signum = signal.SIGTERM
        assert monitor.save_due()


@pytest.mark.parametrize(
    ("words", "count"), [(["a.b=1,2,3", "model=x,y"], 12), (["model=glob(*)"], 2 * plan.UNKNOWN_COUNT)]
)
def test_the_runs_of_a_sweep_are_counted(words, count):
    made = OmegaConf.create({"hydra": {"sweeper": {"params": {"c": "range(1,3)"}}, "overrides": {"task": words}}})
    assert plan.num_points(made) == count


@pytest.mark.slow
def test_a_checkpoint_without_its_environment_is_one_clear_line(tiny):
    made = compose.compose([*tiny, "mc.samples=0"])
    training_run.run(made)
    file = compose.run_dir(made) / CHECKPOINT
    saved = checkpoint.load(file)
    checkpoint.save({key: value for key, value in saved.items() if key != "place"}, file)
    with pytest.raises(UserError, match="not a checkpoint of this run, or damaged"):
        training_run.run(compose.compose([*tiny, "mc.samples=0", "optim.epochs=3"]))


@pytest.mark.cuda
@pytest.mark.parametrize("variant", ["naive", "moon_emb", "variational_tied", "variational_untied"])
def test_a_run_on_a_gpu_stops_resumes_and_samples(tiny, variant, monkeypatch, tmp_path):
    words = [*tiny, f"model={variant}", "device=cuda", "mc.samples=30", "mc.rows=10"]
    whole = training_run.run(compose.compose([*words, f"run_dir={tmp_path / 'whole'}"]))
    original = Trainer.training_step

    def update(self, epoch, number, *others):
        if (epoch, number) == (2, 5):
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, epoch, number, *others)

    with monkeypatch.context() as patch, pytest.raises(RunStopped):
        patch.setattr(Trainer, "training_step", update)
        training_run.run(compose.compose([*words, f"run_dir={tmp_path / 'stopped'}"]))
    original_window, windows = MCPerplexity.advance, []

    def advance(self, samples):
        windows.append(1)
        if len(windows) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return original_window(self, samples)

    with monkeypatch.context() as patch, pytest.raises(RunStopped):
        patch.setattr(MCPerplexity, "advance", advance)
        training_run.run(compose.compose([*words, f"run_dir={tmp_path / 'stopped'}"]))
    resumed = training_run.run(compose.compose([*words, f"run_dir={tmp_path / 'stopped'}"]))
    for name in ("test_ppl", "test_ppl_mc"):
        assert resumed["metrics"][name] == whole["metrics"][name]
    assert whole["metrics"]["mc_samples"] == 30 and whole["hardware"]["gpu"]


def test_a_suspended_process_does_not_count_the_pause(monkeypatch):
    """SIGSTOP for 100 seconds between two updates of 2 seconds each; without SIGCONT the same gap is work."""
    now = [0.0]
    monkeypatch.setattr(signals.time, "perf_counter", lambda: now[0])
    clock = signals.Clock()
    start = clock.seconds()
    for gap, resumed in ((2, False), (2, False), (102, True), (2, False)):
        now[0] += gap
        clock.resumed = resumed
        clock.tick()
    assert clock.seconds() - start == pytest.approx(8)
    now[0] += 50
    clock.tick()
    assert clock.seconds() - start == pytest.approx(58)


def test_sigcont_reaches_the_clock_of_a_run():
    before = signal.getsignal(signal.SIGCONT)
    with signals.Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGCONT)
        assert interrupts.clock.resumed
    assert signal.getsignal(signal.SIGCONT) == before
