"""Exported weights: small, complete, and with the results of their run."""

import pytest
from helpers.runs import learnable_texts, python

from varrnn.config import compose
from varrnn.data import ptb
from varrnn.errors import UserError
from varrnn.training import open_run, weights
from varrnn.training import run as training_run
from varrnn.training import summary as run_summary

pytest.importorskip("safetensors")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    training_run.run(compose.compose([*learnable_texts(folder), f"run_dir={folder / 'run'}"]))
    summary = run_summary.read(folder / "run")
    run_summary.write(folder / "run", summary | {"dirty": False})  # this checkout may have uncommitted changes
    return folder / "run"


@pytest.mark.slow
def test_an_exported_run_is_complete_and_has_the_same_perplexity(trained, tmp_path):
    done = python("scripts/export_weights.py", str(trained), "--name", "box", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    box = tmp_path / "box"
    names = {file.name for file in box.iterdir()}
    assert names == {"model.safetensors", "config.yaml", "vocabulary.json", "metrics.json", "README.md"}
    texts = [file.read_text() for file in box.iterdir() if file.suffix != ".safetensors"]
    assert not [text for text in texts if str(trained.parent) in text]
    run, exported = open_run(trained), open_run(box)
    test = (trained.parent / "test.txt").read_text()
    assert exported.perplexity(test) == pytest.approx(run.metrics["test_ppl"], rel=2e-3)
    assert exported.metrics == run.metrics and exported.vocabulary.words == run.vocabulary.words
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    assert 2 * parameters < (box / "model.safetensors").stat().st_size < 2 * parameters + 5000
    assert exported.generate("w1", words=20, mc=True)
    card = (box / "README.md").read_text()
    assert len(card.splitlines()) == 10 and "the corpus itself is not included" in card
    assert f"test_ppl {run.metrics['test_ppl']:.2f}" in card and f"p_U {run.config.model.p_U}" in card


@pytest.mark.slow
def test_mistakes(trained, tmp_path, monkeypatch):
    summary = run_summary.read(trained)
    run_summary.write(trained, summary | {"dirty": True})
    done = python("scripts/export_weights.py", str(trained), "--out", str(tmp_path))
    run_summary.write(trained, summary)
    assert done.returncode == 1 and "uncommitted changes" in done.stderr and not list(tmp_path.iterdir())
    model = open_run(trained).model
    monkeypatch.setattr(weights, "MAX_BYTES", 100)
    with pytest.raises(UserError, match="export a smaller model"):
        weights.save_weights(model, tmp_path / "a")
    monkeypatch.undo()
    weights.save_weights(model, tmp_path / "a")
    (tmp_path / "b").write_bytes((tmp_path / "a").read_bytes()[:200])
    with pytest.raises(UserError, match="not the weights of this model, or damaged"):
        weights.load_weights(model, tmp_path / "b")
    model.output.weight.data[0, 0] = 1e6
    with pytest.raises(UserError, match=r"output.weight: values beyond the range of half precision"):
        weights.save_weights(model, tmp_path / "c")


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.skipif(weights.find_weights() is None, reason="results/weights is empty")
def test_the_committed_weights_have_the_perplexity_of_their_run():
    run = open_run(weights.find_weights())
    corpus = ptb.load()
    assert run.data["sha256"] == corpus.sha256
    text = " ".join(corpus.words[number] for number in corpus.test)
    assert run.perplexity(text) == pytest.approx(run.metrics["test_ppl"], rel=2e-3)
