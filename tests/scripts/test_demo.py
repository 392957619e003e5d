"""`make demo` in small: three runs, a table, a figure."""

import pandas as pd
import pytest
from helpers import runs as small_runs


@pytest.mark.slow
def test_the_demo_trains_three_models_and_shows_table_and_figure(tmp_path):
    overrides = [*small_runs.learnable_texts(tmp_path), "optim.epochs=1", f"runs_root={tmp_path / 'runs'}"]
    done = small_runs.python("scripts/demo.py", *overrides, "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    table = pd.read_csv(tmp_path / "out" / "table.csv", index_col=0)
    assert list(table.index) == ["none", "naive", "variational_untied"]
    assert list(table.columns) == ["epochs", "valid", "test", "test MC", "words/s"]
    assert table["epochs"].tolist() == [1, 1, 1]
    assert table["test MC"].isna().tolist() == [True, False, False] and (table["test"] > 1).all()
    assert (tmp_path / "out" / "curves.png").stat().st_size > 10_000
    assert str(tmp_path / "out" / "curves.png") in done.stdout
    assert "authors" not in done.stdout and "Lower is better" in done.stdout
    assert "by the variational model" in done.stdout
    assert (tmp_path / "out" / "sentences.html").read_text().count("<p>") == 3


@pytest.mark.slow
def test_the_demo_chooses_its_models():
    done = small_runs.python("scripts/demo.py", "model=naive")
    assert done.returncode == 1 and done.stderr.startswith("error: model=: the demo compares none, naive")
    done = small_runs.python("scripts/demo.py", "task=synthetic_reviews")
    assert done.returncode == 1 and done.stderr.startswith("error: task=: the demo shows perplexities")
