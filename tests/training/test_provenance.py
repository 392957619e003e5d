"""The code, samples and data that a run records over several starts."""

import pytest
import torch
from helpers.runs import make_run

from varrnn.config import compose
from varrnn.errors import UserError
from varrnn.records import publish
from varrnn.tasks.perplexity import MCPerplexity
from varrnn.training import checkpoint, ensemble, provenance
from varrnn.training import run as training_run
from varrnn.training import summary as run_summary

CLEAN, OTHER = "a" * 40, "b" * 40


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(provenance, "commit", lambda: (CLEAN, False))
    return make_run("mc.samples=0")


def stopped_after(windows: int, monkeypatch) -> None:
    """Ctrl-C in the middle of sampling."""
    original, seen = MCPerplexity.advance, []

    def advance(self, samples):
        seen.append(1)
        if len(seen) > windows:
            raise KeyboardInterrupt
        return original(self, samples)

    monkeypatch.setattr(MCPerplexity, "advance", advance)


@pytest.mark.slow
def test_samples_of_changed_code_cannot_be_published(run, monkeypatch):
    monkeypatch.setattr(provenance, "commit", lambda: (OTHER, True))
    ended = training_run.run(compose.load_config(run, ["mc.samples=3"]), run)
    assert ended["commit"] == CLEAN and ended["commits"] == [CLEAN, f"{OTHER}+dirty"] and ended["dirty"]
    monkeypatch.setattr(publish, "in_repository", lambda *_: True)
    with pytest.raises(UserError, match="dirty commit"):
        publish.publish(run)


@pytest.mark.slow
def test_samples_of_an_earlier_start_keep_their_code_and_their_time(run, monkeypatch):
    config = compose.load_config(run, ["mc.samples=6", "mc.rows=2"])
    config.train.checkpoint_minutes = 0
    with monkeypatch.context() as here:
        here.setattr(provenance, "commit", lambda: (OTHER, True))
        stopped_after(2, here)
        with pytest.raises(KeyboardInterrupt):
            training_run.run(config, run)
    saved = checkpoint.load(run / "mc.pt")
    assert 0 < saved["done"] < 6 and saved["commits"] == [f"{OTHER}+dirty"] and saved["seconds"] > 0
    checkpoint.save(saved | {"seconds": 1000.0}, run / "mc.pt")
    ended = training_run.run(config, run)
    assert ended["commits"] == [CLEAN, f"{OTHER}+dirty"] and ended["duration"]["mc_seconds"] > 1000
    record = ensemble.average([ensemble.load_member(run, mc=True)])
    assert record["commits"] == [CLEAN, f"{OTHER}+dirty"] and record["dirty"]


@pytest.mark.slow
def test_requesting_fewer_samples_keeps_all_samples(run, monkeypatch):
    config = compose.load_config(run, ["mc.samples=6", "mc.rows=2"])
    config.train.checkpoint_minutes = 0
    with monkeypatch.context() as here:
        stopped_after(2, here)
        with pytest.raises(KeyboardInterrupt):
            training_run.run(config, run)
    done = checkpoint.load(run / "mc.pt")["done"]
    assert done > 2
    config.mc.samples = 2
    ended = training_run.run(config, run)
    assert ended["metrics"]["mc_samples"] == ended["mc"]["samples"] == checkpoint.load(run / "mc.pt")["done"] == done
    config.mc.samples = 6
    assert training_run.run(config, run)["metrics"]["mc_samples"] == 6


@pytest.mark.slow
def test_word_dropout_in_mc_has_separate_samples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = make_run("mc.samples=3", "model.p_E=0.4")
    plain = run_summary.read(folder)["metrics"]["test_ppl_mc"]
    words = training_run.run(compose.load_config(folder, ["mc.word_dropout=true"]), folder)["metrics"]["test_ppl_mc"]
    monkeypatch.setattr(MCPerplexity, "advance", None)  # nothing is sampled again
    assert (
        training_run.run(compose.load_config(folder, ["mc.word_dropout=false"]), folder)["metrics"]["test_ppl_mc"]
        == plain
    )
    assert plain != words


@pytest.mark.slow
def test_the_code_that_ends_a_run_is_its_commit(run, monkeypatch):
    for epochs, name in ((3, OTHER), (4, CLEAN)):
        monkeypatch.setattr(provenance, "commit", lambda name=name: (name, False))
        longer = compose.load_config(run)
        longer.optim.epochs = epochs
        ended = training_run.run(longer, run)
    assert ended["commit"] == CLEAN and ended["commits"] == [OTHER, CLEAN]


@pytest.mark.slow
def test_a_finished_run_warns_if_the_users_files_have_changed(run, tmp_path, capsys):
    config = compose.load_config(run)
    training_run.run(config, run)
    assert "finished already" in capsys.readouterr().out
    (tmp_path / "a").write_text((tmp_path / "a").read_text() + "w1 w2\n")
    with pytest.raises(UserError, match="trained on other data than text is now"):
        training_run.run(config, run)
    (tmp_path / "a").unlink()
    assert training_run.run(config, run)["status"] == "finished"
    assert "warning: the data have changed" in capsys.readouterr().out


@pytest.mark.slow
def test_what_computes_is_recorded(run, monkeypatch, capsys):
    kernels = run_summary.read(run)["hardware"]["kernels"]
    assert kernels == provenance.kernels(torch.device("cpu"))
    assert run_summary.read(run)["hardware"]["instructions"] == torch.backends.cpu.get_cpu_capability()
    assert f"{provenance.cpu_model()}, {torch.backends.cpu.get_cpu_capability()}, " in provenance.environment(
        torch.device("cpu")
    )
    longer = compose.load_config(run)
    longer.optim.epochs = 3
    monkeypatch.setattr(provenance, "kernels", lambda device: "other words")
    moved = training_run.run(longer, run)
    assert f"kernels in {kernels}, resuming on" in capsys.readouterr().out
    begun, here = moved["hardware"]["earlier"], moved["hardware"]["kernels"]
    assert here == "other words" and len(begun) == 1 and begun[0].endswith(f"kernels in {kernels}")
    longer.optim.epochs = 4
    assert training_run.run(longer, run)["hardware"]["earlier"] == begun, (
        "the environment of the last start is not an earlier one"
    )
    monkeypatch.setattr(provenance, "kernels", lambda device: kernels)
    longer.optim.epochs = 5
    assert training_run.run(longer, run)["hardware"]["earlier"][0].endswith("kernels in other words")


@pytest.mark.slow
def test_a_run_that_is_longer_than_requested_is_reported(run, capsys):
    config = compose.load_config(run)
    config.optim.epochs = 1
    training_run.run(config, run)
    assert "finished already, with 2 epochs (1 requested)" in capsys.readouterr().out


@pytest.mark.slow
def test_the_commit_is_read_before_anything_is_computed(run, monkeypatch):
    calls = []
    monkeypatch.setattr(provenance, "commit", lambda: calls.append(1) or (CLEAN, False))
    monkeypatch.setattr(
        training_run, "add_mc", lambda *_: run_summary.read(run) if calls else pytest.fail("sampled first")
    )
    monkeypatch.setattr(ensemble, "test_log_probabilities", lambda *_: 1 / 0 if calls else pytest.fail("read first"))
    training_run.run(compose.load_config(run, ["mc.samples=3"]), run)
    calls.clear()
    with pytest.raises(ZeroDivisionError):
        ensemble.average([ensemble.load_member(run, False)])


@pytest.mark.parametrize(("words", "shown"), [(["task=ptb"], True), (["task=pydoc"], False), (["task=cornell"], False)])
def test_metrics_with_the_authors_normaliser_are_shown_for_ptb_only(words, shown):
    metrics = {"valid_ppl": 90.0, "valid_ppl_authors": 89.0, "wps_train": 900.0, "wps_authors": 800.0}
    shown_line = run_summary.describe({"metrics": metrics}, compose.compose(words))
    assert "valid_ppl " in shown_line and "wps_train " in shown_line
    for name, value in run_summary.AUTHORS_METRICS.items():
        assert (name in shown_line and value in shown_line) is shown
