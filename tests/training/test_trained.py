"""A finished run as one object: it needs no corpus, and repeats the numbers of its summary."""

import json
from dataclasses import replace

import pytest
from helpers.runs import learnable_texts, python

from varrnn.config import compose
from varrnn.data import registry
from varrnn.errors import UserError
from varrnn.training import open_run
from varrnn.training import run as training_run
from varrnn.training import summary as run_summary


@pytest.fixture(scope="module")
def language_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm")
    training_run.run(compose.compose([*learnable_texts(folder), f"run_dir={folder / 'run'}"]))
    return folder / "run"


@pytest.fixture(scope="module")
def sentiment_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reviews") / "run"
    sizes = ["size.units=16", "optim.epochs=2", "mc.samples=5", "optim.lr=0.01", "device=cpu", "threads=1"]
    training_run.run(compose.compose(["task=synthetic_reviews", *sizes, f"run_dir={folder}", "progress=false"]))
    return folder


@pytest.mark.slow
def test_perplexity_is_that_of_the_summary(language_run):
    run = open_run(language_run)
    test = (language_run.parent / "test.txt").read_text()
    assert run.perplexity(test) == pytest.approx(run.metrics["test_ppl"], rel=1e-6)
    assert run.perplexity(test, samples=4) == pytest.approx(run.metrics["test_ppl_mc"], rel=1e-6)


def test_the_corpus_is_not_needed(language_run, tmp_path, monkeypatch):
    def absent(task):
        raise UserError("nowhere")

    moved = tmp_path / "run"
    moved.mkdir()
    for name in ("config.yaml", "summary.json", "checkpoint.pt", "vocabulary.json"):
        (moved / name).write_bytes((language_run / name).read_bytes())
    monkeypatch.setitem(registry.TEXTS, "text", replace(registry.TEXTS["text"], load=absent))
    assert open_run(moved).generate("w1 w4", words=5)[0].prompt == 2
    (moved / "vocabulary.json").unlink()  # an early run has no vocabulary.json: then the corpus is read
    with pytest.raises(UserError, match="nowhere"):
        open_run(moved)
    monkeypatch.undo()
    assert (
        open_run(language_run).vocabulary.words == json.loads((language_run / "vocabulary.json").read_text())["words"]
    )


def test_an_early_run_rebuilds_its_vocabulary(language_run):
    words = open_run(language_run).vocabulary.words
    file = language_run / "vocabulary.json"
    kept = file.read_text()
    file.unlink()
    try:
        assert open_run(language_run).vocabulary.words == words
    finally:
        file.write_text(kept)


def test_generated_texts_repeat_and_follow_the_text(language_run):
    run = open_run(language_run)
    first = run.generate("w1", words=30, samples=2, seed=4)
    assert first == run.generate("w1", words=30, samples=2, seed=4) != run.generate("w1", words=30, samples=2, seed=5)
    assert run.generate("w1", words=30, mc=True)[0].ids[0] == run.vocabulary.ids["w1"]


@pytest.mark.slow
def test_ratings_agree_with_the_task(sentiment_run):
    """A review of the test set, as words, gets the rating that the task computes from its ids."""
    from varrnn.tasks import base
    from varrnn.tasks.sentiment import deterministic_predictions
    from varrnn.training.device import choose_device

    run = open_run(sentiment_run)
    task = base.build(run.config, choose_device(run.config))
    names = dict(enumerate(run.content["words"], 4))
    ids = task.test.x[0].tolist()
    text = " ".join(names[number] for number in ids if number in names)
    wanted = float(deterministic_predictions(run.model, task.test.x[:1])) * task.data.std + task.data.mean
    (rating,) = run.predict([text], samples=0)
    assert rating.mean == pytest.approx(wanted, abs=1e-5) and rating.unknown_words == []
    assert rating.model_sd == 0 and rating.low < rating.mean < rating.high


@pytest.mark.slow
def test_the_intervals_have_their_nominal_coverage(sentiment_run):
    from varrnn.tasks import base
    from varrnn.training.device import choose_device

    run = open_run(sentiment_run)
    task = base.build(run.config, choose_device(run.config))
    names = dict(enumerate(run.content["words"], 4))
    texts = [" ".join(names[n] for n in row if n in names) for row in task.test.x[:150].tolist()]
    ratings = run.predict(texts, samples=10, level=0.8)
    held = sum(r.low <= y <= r.high for r, y in zip(ratings, task.test.y[:150].tolist())) / 150
    assert 0.72 <= held <= 0.97  # a little too wide rather than too narrow


@pytest.mark.slow
def test_mistakes(language_run, sentiment_run, tmp_path):
    run = open_run(language_run)
    with pytest.raises(UserError, match="give at least 2"):
        run.perplexity("w1")
    with pytest.raises(UserError, match="zebra: not in the vocabulary of"):
        run.perplexity("zebra w1 w2")
    with pytest.raises(UserError, match="predicting a rating needs a sentiment model; this run is of task=text"):
        run.predict(["w1"])
    with pytest.raises(UserError, match="generating text needs a language model"):
        open_run(sentiment_run).generate("w1")
    with pytest.raises(UserError, match="has no words"):
        open_run(sentiment_run).predict(["  "])
    with pytest.raises(UserError, match="not a run's folder"):
        open_run(tmp_path)
    (tmp_path / "vocabulary.json").write_text('{"words": 3}')
    for name in ("config.yaml", "summary.json", "checkpoint.pt"):
        (tmp_path / name).write_bytes((language_run / name).read_bytes())
    with pytest.raises(UserError, match="not a vocabulary"):
        open_run(tmp_path)


@pytest.mark.slow
def test_an_unfinished_run_gets_one_line(language_run, tmp_path):
    (tmp_path / "config.yaml").write_bytes((language_run / "config.yaml").read_bytes())
    done = python("scripts/generate.py", str(tmp_path), "--prompt", "w1")
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "this run has not finished" in done.stderr
    assert run_summary.read(tmp_path) is None


@pytest.mark.slow
def test_generate_writes_texts_and_a_page(language_run, tmp_path):
    words = ("--prompt", "w1 w4", "--words", "12", "--samples", "2", "--mc", "--html", str(tmp_path / "a.html"))
    done = python("scripts/generate.py", str(language_run), *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("w1 w4") == 2 and "\x1b" not in done.stdout  # no colours where there is no terminal
    page = (tmp_path / "a.html").read_text()
    assert page.count("<p>") == 2 and page.count('class="given"') == 4 and "mutual information" in page
    done = python("scripts/generate.py", str(language_run), "--prompt", " ")
    assert (done.returncode, done.stderr) == (
        1,
        "error: the prompt is empty; give at least one word of the vocabulary\n",
    )


@pytest.mark.slow
def test_predict_rates_texts_and_files(sentiment_run, tmp_path):
    done = python("scripts/predict.py", str(sentiment_run), "--text", "w1 s2 zebra w3", "--samples", "5")
    assert done.returncode == 0, done.stderr
    assert "95% between" in done.stdout and "unknown words: zebra" in done.stdout
    (tmp_path / "a.csv").write_text('name,text\nfirst,w1 s2\nsecond,"w3, s4"\n')
    out = ("--out", str(tmp_path / "b.csv"))
    done = python("scripts/predict.py", str(sentiment_run), "--csv", str(tmp_path / "a.csv"), *out, "--samples", "5")
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "b.csv").read_text().splitlines()
    assert (
        lines[0] == "name,text,rating,low,high,spread" and len(lines) == 3 and lines[2].startswith('second,"w3, s4",')
    )
    (tmp_path / "a.csv").write_text(f'Name; Text\nfirst; "{"w1 " * 50_000}"\n')  # as training reads it
    done = python("scripts/predict.py", str(sentiment_run), "--csv", str(tmp_path / "a.csv"), "--samples", "0")
    assert done.returncode == 0 and done.stdout.startswith("name,text,rating,"), done.stderr
    (tmp_path / "a.csv").write_text("text\n \n")
    done = python("scripts/predict.py", str(sentiment_run), "--csv", str(tmp_path / "a.csv"))
    assert done.returncode == 1 and done.stderr.endswith("line 2: the text is empty; remove the row\n")
