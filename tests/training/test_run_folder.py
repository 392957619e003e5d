"""The files of a run: damaged or missing ones, an extended run, and invalid options that change nothing."""

import fcntl
import json
import threading
from dataclasses import replace

import pytest
import torch
from helpers.runs import make_run

from varrnn import fileio
from varrnn.config import compose
from varrnn.errors import UserError
from varrnn.records import publish
from varrnn.sweeps import ranking
from varrnn.sweeps.unfinished import unfinished_runs
from varrnn.training import checkpoint, ensemble
from varrnn.training import run as training_run
from varrnn.training import summary as run_summary
from varrnn.training.device import choose_device, supports_capability
from varrnn.training.trainer import Trainer

pytestmark = pytest.mark.slow  # most of these tests train


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_run("mc.samples=0")


def test_a_finished_run_that_is_extended_and_stopped_is_no_longer_finished(run, monkeypatch):
    """Its metrics belong to the old number of epochs, its parameters do not: nothing may combine the two."""
    original = Trainer.training_step

    def stop(self, *arguments):
        if self.progress.epoch == 3 and self.progress.update == 5:
            raise KeyboardInterrupt
        return original(self, *arguments)

    longer = compose.load_config(run)
    longer.optim.epochs, longer.train.checkpoint_minutes = 4, 0
    monkeypatch.setattr(Trainer, "training_step", stop)
    with pytest.raises(KeyboardInterrupt):
        training_run.run(longer, run)
    monkeypatch.setattr(Trainer, "training_step", original)
    assert run_summary.read(run)["status"] == "going on"
    for use in (
        lambda: ensemble.load_member(run, mc=False),
        lambda: publish.publish(run),
        lambda: run_summary.load_finished(run),
    ):
        with pytest.raises(UserError, match="going on"):
            use()
    assert [one.status for one in unfinished_runs(run.parents[5])] == ["stopped"]
    assert not list(ranking.load_summaries(run.parents[5]))
    ended = training_run.run(longer, run)
    assert ended["status"] == "finished" and ended["metrics"]["epochs"] == 4


def test_a_run_that_was_stopped_during_mc_dropout_is_unfinished(run):
    """The training has a summary then, and the same command would continue with the samples."""
    assert not unfinished_runs(run)
    saved = (run / "config.yaml").read_text()
    assert "samples: 0" in saved
    (run / "config.yaml").write_text(saved.replace("samples: 0", "samples: 9"))
    (stopped,) = unfinished_runs(run)
    assert stopped.status == "stopped" and "MC dropout has not finished" in stopped.failure.last_lines[0]
    assert "mc.samples=9" in stopped.failure.command


def test_a_mistake_does_not_change_a_finished_run(run):
    asked = compose.load_config(run)
    asked.device = "meta"
    with pytest.raises(UserError, match="device=meta: allowed are auto, cpu, cuda and cuda:N"):
        training_run.run(asked, run)
    assert not (run / "error.txt").exists() and not unfinished_runs(run)
    before = (run / "config.yaml").read_text()
    for change in ({"path": "nonsense"}, {"train": "nowhere"}):
        wrong = compose.load_config(run)
        wrong.optim.epochs, wrong.task = 5, replace(wrong.task, **change)
        with pytest.raises(UserError, match=r"nonsense: task=text does not read it|nowhere"):
            training_run.run(wrong, run)
    assert (run / "config.yaml").read_text() == before  # a request for more samples does change it
    more = compose.load_config(run, ["mc.samples=3"])
    training_run.run(more, run)
    assert compose.load_config(run).mc.samples == 3 and run_summary.load_finished(run)["metrics"]["epochs"] == 2
    (run / "summary.json").unlink()
    with pytest.raises(UserError, match="device=meta"):
        training_run.run(asked, run)
    assert "device=meta" in (run / "error.txt").read_text()


def test_an_option_in_one_config_only_is_a_difference(tmp_path):
    for saved, asked, message in (
        ({"old": 2}, {}, "old: 2 there, None requested"),
        ({}, {"new": 3}, "new: None there, 3 requested"),
    ):
        with pytest.raises(UserError, match=message):
            checkpoint.require_same_config(tmp_path, {"same": 1} | saved, {"same": 1} | asked)


@pytest.mark.parametrize("content", ["half", "{}", "[1]"])
def test_a_damaged_summary_is_one_clear_line(run, content):
    (run / "summary.json").write_text(content)
    with pytest.raises(UserError, match=r"summary\.json: not .*; remove it and start the same command again"):
        training_run.run(compose.load_config(run), run)


def test_a_checkpoint_of_a_finished_run_that_is_missing_or_of_something_else(run):
    asked = compose.load_config(run)
    asked.mc.samples = 2
    file = run / "checkpoint.pt"
    for content in ({}, {"model": {"nothing": torch.zeros(1)}}, [1]):
        torch.save(content, file)
        with pytest.raises(UserError, match=r"damaged .*; remove checkpoint\.pt, best\.pt and summary\.json"):
            training_run.run(asked, run)
    file.unlink()
    with pytest.raises(UserError, match=r"checkpoint\.pt: is missing; remove .* to train this run again"):
        training_run.run(asked, run)
    for name in ("best.pt", "summary.json"):
        (run / name).unlink()
    assert training_run.run(asked, run)["metrics"]["mc_samples"] == 2  # the advice works


def test_a_damaged_mc_file_loses_its_samples_only(run):
    asked = compose.load_config(run)
    asked.mc.samples = 2
    torch.save({"done": 3}, run / "mc.pt")
    with pytest.raises(UserError, match=r"mc\.pt: not a checkpoint .*\(KeyError\); remove it to sample again"):
        training_run.run(asked, run)
    assert json.loads((run / "summary.json").read_text())["status"] == "finished"


def test_the_first_error_is_reported_when_nothing_can_be_written(run, monkeypatch):
    asked = compose.load_config(run)
    asked.device = "meta"
    (run / "summary.json").unlink()

    def full(file, text):
        raise UserError(f"{file}: cannot be written")

    monkeypatch.setattr(checkpoint, "write_text", full)
    with pytest.raises(UserError, match="device=meta"):
        training_run.run(asked, run)


def test_a_gpu_beyond_the_last_is_rejected(tiny, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UserError, match="device=cuda:2: this machine has 2 GPUs"):
        choose_device(compose.compose([*tiny, "device=cuda:2"]))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "V100")
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_70", "sm_80"])
    assert choose_device(compose.compose([*tiny, "device=cuda:1"])) == torch.device("cuda:1")
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_80", "compute_120"])
    with pytest.raises(UserError, match="device=cuda:1: this build of torch has no code for the V100; install one"):
        choose_device(compose.compose([*tiny, "device=cuda:1"]))


@pytest.mark.parametrize(
    ("gpu", "builds", "served"),
    [
        ((8, 6), ["sm_80"], True),
        ((8, 0), ["sm_86"], False),
        ((9, 0), ["sm_80"], False),
        ((9, 0), ["sm_90a"], True),
        ((12, 0), ["sm_80", "compute_90"], True),
        ((7, 0), ["compute_75"], False),
        ((7, 0), [], True),
        ((9, 0), ["gfx906", "gfx90a:sramecc+"], True),
    ],
)
def test_which_gpus_a_build_of_torch_supports(gpu, builds, served):
    assert supports_capability(gpu, builds) == served


def test_a_broken_checkpoint_or_folder_is_one_clear_line(tiny, tmp_path):
    made = compose.compose([*tiny, f"run_dir={tmp_path / 'here'}"])
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "checkpoint.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(UserError, match="not a checkpoint of this run, or damaged"):
        training_run.run(made)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        training_run.run(compose.compose([*tiny, f"run_dir={tmp_path / 'file' / 'below'}"]))


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    file = tmp_path / "checkpoint.pt"
    checkpoint.save({"epoch": 1}, file)

    def full(state, target):
        target.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(UserError, match=r"No space left on device\); free some space"):
        checkpoint.save({"epoch": 2}, file)
    assert checkpoint.load(file) == {"epoch": 1} and list(tmp_path.iterdir()) == [file]


def test_a_missing_gpu_is_reported_in_one_line(tiny):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(UserError, match="device=cuda: this machine has no CUDA GPU"):
        training_run.run(compose.compose([*tiny, "device=cuda"]))


def test_the_vocabulary_is_that_of_the_data_trained_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = make_run("mc.samples=0")
    for name in ("checkpoint.pt", "best.pt", "summary.json"):
        (folder / name).unlink()
    words = json.loads((folder / "vocabulary.json").read_text())["words"]
    (folder / "vocabulary.json").write_text(json.dumps({"words": ["other"]}))
    training_run.run(compose.load_config(folder), folder)
    assert json.loads((folder / "vocabulary.json").read_text())["words"] == words


def test_a_damaged_checkpoint_does_not_lose_a_finished_result(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = make_run("mc.samples=0")
    before = (folder / "summary.json").read_bytes()
    (folder / "checkpoint.pt").write_bytes(b"")
    longer = compose.load_config(folder)
    longer.optim.epochs += 1
    with pytest.raises(UserError, match=r"checkpoint\.pt"):
        training_run.run(longer, folder)
    assert (folder / "summary.json").read_bytes() == before
    assert compose.load_config(folder).optim.epochs == longer.optim.epochs - 1


def test_a_lock_removes_what_a_killed_process_was_writing(tmp_path):
    with fileio.replacing(tmp_path / "checkpoint.pt") as temporary:
        temporary.write_text("whole")
        left, other = tmp_path / temporary.name, tmp_path / ".download.part"
        other.touch()
    left.write_text("half")
    with checkpoint.lock_run_dir(tmp_path):
        assert not left.exists() and other.exists()


def test_a_command_that_reads_the_lock_does_not_prevent_a_start(tmp_path):
    with (tmp_path / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        threading.Timer(0.15, lambda: fcntl.flock(handle, fcntl.LOCK_UN)).start()
        with checkpoint.lock_run_dir(tmp_path):
            pass
