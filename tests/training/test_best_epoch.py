"""checkpoint.pt and best.pt belong together: to one run, one seed and one best epoch."""

import shutil

import pytest
from helpers.runs import make_run, score_epochs

from varrnn.config import compose
from varrnn.errors import UserError
from varrnn.training import checkpoint
from varrnn.training import run as training_run
from varrnn.training import summary as run_summary

SCORES = {1: 50.0, 2: 60.0, 3: 40.0, 4: 70.0}  # the best of two epochs is the first, the best of more the third


class Killed(BaseException):
    """Simulates `kill -9`."""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A finished run of two epochs whose best epoch is the first."""
    monkeypatch.chdir(tmp_path)
    score_epochs(monkeypatch, SCORES.__getitem__)
    return make_run("mc.samples=0")


def asked(folder, epochs):
    config = compose.load_config(folder)
    config.optim.epochs = epochs
    return config


def train_and_kill(config, folder, monkeypatch, at_save):
    """Continue training, and simulate `kill -9` at the given call of `checkpoint.save`."""
    original, calls = checkpoint.save, []

    def save(state, file):
        calls.append(file)
        if len(calls) == at_save:
            raise Killed
        original(state, file)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(checkpoint, "save", save)
        training_run.run(config, folder)


def best_metrics(summary):
    return {name: value for name, value in summary["metrics"].items() if name.endswith("_best")}


@pytest.mark.slow
def test_a_kill_before_either_file_is_written_keeps_the_old_pair(run, monkeypatch):
    before = best_metrics(run_summary.read(run))
    train_and_kill(asked(run, 3), run, monkeypatch, at_save=1)
    ended = training_run.run(asked(run, 2), run)
    assert ended["metrics"]["best_epoch"] == 1 and best_metrics(ended) == before


@pytest.mark.slow
def test_a_kill_between_the_two_files_loses_nothing(run, monkeypatch, tmp_path):
    shutil.copytree(run, tmp_path / "whole")
    whole = training_run.run(asked(run, 4), tmp_path / "whole")
    train_and_kill(asked(run, 3), run, monkeypatch, at_save=2)
    with pytest.raises(UserError, match=r"optim\.epochs=2, but the run is in epoch 4 already"):
        training_run.run(asked(run, 2), run)
    ended = training_run.run(asked(run, 4), run)
    assert ended["metrics"]["best_epoch"] == 3 and best_metrics(ended) == best_metrics(whole)
    assert checkpoint.load(run / "best.pt")["epoch"] == 3


@pytest.mark.slow
def test_a_best_file_of_another_epoch_is_not_reported(run):
    """What an early version left when it was killed: best.pt of epoch 3, checkpoint.pt of epoch 2."""
    shutil.copy(run / "checkpoint.pt", run / "old.pt")
    training_run.run(asked(run, 3), run)
    (run / "old.pt").replace(run / "checkpoint.pt")
    (run / "summary.json").unlink()
    with pytest.raises(UserError, match=r"best\.pt: has epoch 3, but epoch 1 is the best in checkpoint\.pt; remove"):
        training_run.run(asked(run, 2), run)
    assert training_run.run(asked(run, 3), run)["metrics"]["best_epoch"] == 3


@pytest.mark.slow
def test_patience_starts_again_after_a_lost_best_epoch(run, capsys):
    config = asked(run, 4)
    config.train.patience = 2
    (run / "best.pt").unlink()
    for name in ("summary.json", "config.yaml"):
        (run / name).unlink()
    saved = checkpoint.load(run / "checkpoint.pt")
    checkpoint.save({key: value for key, value in saved.items() if key != "identity"}, run / "checkpoint.pt")
    ended = training_run.run(config, run)
    assert "best.pt is missing;" in capsys.readouterr().out
    assert ended["metrics"]["best_epoch"] == 3 and ended["metrics"]["epochs"] == 4


@pytest.mark.parametrize("name", ["checkpoint.pt", "best.pt"])
@pytest.mark.parametrize("override", ["seed=2", "optim.lr=0.5"])
@pytest.mark.slow
def test_a_file_of_another_run_is_rejected(run, name, override):
    other = make_run("mc.samples=0", override)
    shutil.copy(other / name, run / name)
    (run / "summary.json").unlink()
    key = override.split("=")[0]
    with pytest.raises(UserError, match=rf"{name}: belongs to another run:\n  {key}: .* there, .* requested"):
        training_run.run(asked(run, 3), run)


@pytest.mark.slow
@pytest.mark.parametrize("early", [False, True])
def test_a_finished_run_does_not_sample_from_the_parameters_of_another(tmp_path, monkeypatch, early):
    monkeypatch.chdir(tmp_path)
    words = ("mc.samples=0", f"train.early_stopping={early}")
    mine, other, name = make_run(*words), make_run(*words, "seed=2"), "best.pt" if early else "checkpoint.pt"
    shutil.copy(other / name, mine / name)
    with pytest.raises(UserError, match=rf"{name}: belongs to another run:\n  seed: 2 there, 1 requested"):
        training_run.run(compose.load_config(mine, ["mc.samples=2"]), mine)


@pytest.mark.slow
def test_files_from_before_identities_stay_valid(run):
    for name in ("checkpoint.pt", "best.pt"):
        saved = checkpoint.load(run / name)
        assert saved.pop("identity")["seed"] == 1
        checkpoint.save(saved, run / name)
    training_run.run(compose.load_config(run, ["mc.samples=2"]), run)
    assert training_run.run(asked(run, 3), run)["metrics"]["epochs"] == 3
