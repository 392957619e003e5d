"""Records: matching them to runs, commands for missing runs, and statistics of curves."""

import json

import numpy as np
import pytest
from helpers import records as synthetic

from varrnn.config.identity import Identity, config_identity, identity_of, matches
from varrnn.errors import UserError
from varrnn.records import paths as record_paths
from varrnn.records.store import load, read
from varrnn.reproduction.claims import CLAIMS
from varrnn.reproduction.grids import best_on_validation
from varrnn.reproduction.runs import SEEDS, command, commands, language_model, sentiment
from varrnn.reproduction.statistics import (
    final_mean,
    kendall,
    local_maximum,
    median_filter,
    overfitting_gap,
    pooled_sd,
    roughness,
    spearman,
)
from varrnn.sweeps import ranking

BY_ID = {claim.id: claim for claim in CLAIMS}


@pytest.mark.slow
def test_every_needed_run_can_be_composed() -> None:
    for run in {run for claim in CLAIMS for run in claim.runs.values()}:
        identity = identity_of(run)
        assert f"model={identity.choices['model']}" in run


@pytest.mark.parametrize("run", [BY_ID["C36b"].runs["1e-4"], BY_ID["C21"].runs["tokens"], BY_ID["C8"].runs["none"]])
@pytest.mark.slow
def test_identity_is_what_run_py_composes(run) -> None:
    from varrnn.config import compose

    composed = compose.compose(list(run))
    assert identity_of(run).options == config_identity(composed) and identity_of(run).choices == compose.choices(
        composed
    )


def test_a_shorter_run_is_still_missing(records_of) -> None:
    run = BY_ID["C26"].runs["naive"]
    lengths = {1: 40, 2: 100, 3: 120}
    records = records_of([synthetic.sentiment_run(run, seed, epochs) for seed, epochs in lengths.items()])
    assert len(records.group(run)) == 3 and records.missing(run, SEEDS) == (1,)
    unstable = synthetic.sentiment_run(run, 1, 40) | {"status": "unstable"}
    assert records_of([unstable]).missing(run, SEEDS) == ()  # the others are still there


def test_the_files_of_a_sweep_are_not_records(tmp_path) -> None:
    (tmp_path / ".sweeps" / "today").mkdir(parents=True)
    (tmp_path / ".sweeps" / "today" / "failed_1.json").write_text("{}")
    assert not load(tmp_path).runs


def test_small_uses_the_rates_chosen_on_validation(records_of) -> None:
    runs = {p: language_model("small", "naive", f"model.p_W={p}") for p in (0.15, 0.25, 0.35)}
    levels = {0.15: (104.0, 90.0), 0.25: (101.0, 97.0), 0.35: (102.0, 91.0)}  # (valid, test)
    records = records_of([synthetic.language_run(runs[p], 1, *levels[p]) for p in runs])
    assert best_on_validation(records, language_model("small", "naive")).mean("test_ppl") == 97.0


def test_only_points_of_the_planned_grid_are_chosen(records_of) -> None:
    """Publishing a further run does not change a row that states how much of its grid has records."""
    runs = {p: language_model("small", "naive", f"model.p_W={p}") for p in (0.15, 0.3)}
    records = records_of([synthetic.language_run(run, 1, 110.0 - 100 * p, 95.0) for p, run in runs.items()])
    assert best_on_validation(records, language_model("small", "naive")).records[0].rates[0] == ("p_W", 0.15)


def test_rates_are_chosen_on_the_seeds_that_all_points_share(records_of) -> None:
    runs = {p: language_model("small", "naive", f"model.p_W={p}") for p in (0.15, 0.25)}
    levels = {(0.15, 1): 100.0, (0.15, 2): 110.0, (0.25, 1): 101.0}  # seed 2 is a hard one
    records = records_of([synthetic.language_run(runs[p], seed, v, v) for (p, seed), v in levels.items()])
    chosen = best_on_validation(records, language_model("small", "naive"))
    assert chosen.by_seed("test_ppl") == {1: 100.0, 2: 110.0}


def test_points_without_a_common_seed_are_not_compared(records_of) -> None:
    runs = {p: language_model("small", "naive", f"model.p_W={p}") for p in (0.15, 0.25, 0.35)}
    levels = {(0.15, 1): 100.0, (0.25, 1): 99.0, (0.35, 2): 90.0}
    records = records_of([synthetic.language_run(runs[p], seed, v, v) for (p, seed), v in levels.items()])
    assert best_on_validation(records, language_model("small", "naive")).mean("test_ppl") == 99.0


def test_a_longer_sentiment_run_replaces_a_shorter_one(records_of) -> None:
    run = BY_ID["C26"].runs["naive"]
    runs = {epochs: (*run, f"optim.epochs={epochs}") for epochs in (120, 40)}
    records = records_of([synthetic.sentiment_run(runs[epochs], 1, epochs) for epochs in runs])
    assert records.group(run).epochs == 120 and len(records.group(run)) == 1


@pytest.mark.slow
def test_an_unstable_seed_that_finished_later_does_not_count_as_unstable(records_of) -> None:
    run = language_model("medium", "naive")
    finished = [synthetic.language_run(run, seed, 86.0, 83.0) for seed in (1, 2)]
    failed = [synthetic.language_run(run, s, 86.0, 83.0, epochs=3) | {"status": "unstable"} for s in (2, 3)]
    group = records_of(failed + finished).group(run)
    assert group.seeds() == (1, 2) and group.unstable == 1


def test_a_language_model_with_other_epochs_has_another_identity(records_of) -> None:
    run = language_model("medium", "naive")
    records = records_of([synthetic.language_run((*run, "optim.epochs=5"), 1, 120.0, 118.0, epochs=5)])
    assert len(records.group(run)) == 0 and records.missing(run, SEEDS) == (1, 2, 3)


def test_commands_combine_runs_that_differ_in_one_override() -> None:
    runs = [language_model(size, model) for size in ("medium", "large") for model in ("naive", "none")]
    joined = commands((run, (1, 2)) for run in runs)
    assert joined == ["python run.py -m experiment=ptb_medium,ptb_large model=naive,none seed=1,2"]
    assert command(("task=ptb",), [1]) == "python run.py task=ptb seed=1"


def test_commands_do_not_invent_runs() -> None:
    runs = [("a=1", "b=1"), ("a=2", "b=2"), ("a=2", "b=3")]
    assert len(commands((run, (1,)) for run in runs)) == 2


def test_statistics() -> None:
    epochs, values = np.arange(1, 21), np.array([5.0] * 10 + [1.0] + [2.0] * 7 + [3.0, 4.0])
    assert final_mean(epochs, values, 20) == 3.5 and overfitting_gap(epochs, values, 20) == 2.5
    assert spearman([1, 2, 3, 4], [10, 20, 30, 25]) == pytest.approx(0.8)
    assert np.isnan(spearman([1, 2], [3, 3]))
    assert kendall([1, 2, 3], [1, 3, 2]) == pytest.approx(1 / 3)
    assert pooled_sd([[1, 3], [10, 12]]) == pytest.approx(np.sqrt(2)) and pooled_sd([[1], [2]]) == 0
    assert median_filter(np.array([0.0, 9.0, 0.0, 0.0, 0.0])).max() < 9
    assert local_maximum(np.array([5, 4, 3, 2, 2, 2, 4, 5, 5, 4, 3, 1, 1, 1], dtype=float)) == pytest.approx(3, abs=1)
    assert local_maximum(np.arange(10.0)[::-1]) <= 0 and local_maximum(np.array([1.0, 1, 1, 4, 4, 4, 1, 1, 1])) == 0
    steep = [190, 153, 152, 152, 152, 154, 157, 158, 158, 158, 156, 154, 152, 151, 151, 151]
    assert local_maximum(np.array(steep) / 1000) == pytest.approx(0.006)


def test_roughness_counts_neighbours_only() -> None:
    epochs = np.array([4, 5, 6, 7, 8, 13, 18])
    assert roughness(epochs, np.array([9.0, 0.0, 1.0, 0.0, 1.0, 100.0, 0.0])) == pytest.approx(
        np.std([1, -1, 1], ddof=1)
    )


def test_a_mistyped_folder_is_an_error(tmp_path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "message"), [("{", "not valid JSON"), ('{"schema": 2}', "schema is 2"), ('{"schema": 1}', "no choices")]
)
def test_a_broken_record_is_an_error(tmp_path, text: str, message: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UserError, match=message):
        load(tmp_path)


DAMAGED = [
    ({"metrics": None}, "metrics is null, it should be numbers"),
    ({"metrics": {"test_ppl": "x"}}, "metrics is .*, it should be numbers"),
    ({"history": {}}, "history is {}, it should be columns"),
    ({"history": {"epoch": "x"}}, "history is "),
    ({"history": {"epoch": [1, 2], "valid_ppl": [3.0]}}, "history is "),
    ({"history": {"epoch": [None]}}, "history is "),
    ({"choices": {"task": "ptb"}}, "choices is .*the names of task, size"),
    ({"config": []}, "config is "),
    ({"seed": True}, "seed is true, it should be a whole number"),
    ({"status": None}, "status is null"),
    ({"hardware": "a big one"}, 'hardware is "a big one"'),
    ({"batches": {"train_loss": [None, "x"]}}, "batches is "),
]


@pytest.mark.parametrize(("change", "message"), DAMAGED)
def test_a_damaged_record_is_named(tmp_path, capsys, change: dict, message: str) -> None:
    content = synthetic.language_run(language_model("small", "naive"), 1, 100.0, 95.0)
    assert len(load(synthetic.save([content], tmp_path)).runs) == 1
    synthetic.save([content | change], tmp_path)
    with pytest.raises(UserError, match=rf"0\.json: {message}.*; delete the file and publish the run again"):
        load(tmp_path)
    left_out = "history" not in change
    assert len(list(ranking.load_summaries(tmp_path))) == (0 if left_out else 1)  # an early schema without history
    assert ("left out: " in capsys.readouterr().err) is left_out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (synthetic.ensemble("small", "naive", 3, 90.0) | {"metrics": None}, "metrics is null"),
        (synthetic.ensemble("small", "naive", 3, 90.0) | {"members": "3"}, 'members is "3"'),
        (synthetic.benchmark() | {"machine": "mine"}, 'machine is "mine"'),
    ],
)
def test_a_damaged_ensemble_or_benchmark_is_named(tmp_path, content: dict, message: str) -> None:
    with pytest.raises(UserError, match=rf"0\.json: {message}"):
        load(synthetic.save([content], tmp_path))


def edited(folder, path: str, **change) -> None:
    """Change a record's file as an editor would."""
    content = json.loads((folder / path).read_text())
    (folder / path).write_text(json.dumps(content | change))


def test_an_edited_record_is_rejected_by_every_reader(tmp_path) -> None:
    content = synthetic.language_run(language_model("small", "naive"), 1, 100.0, 95.0)
    synthetic.save([content, synthetic.ensemble("small", "naive", 3, 90.0), synthetic.benchmark()], tmp_path)
    assert load(tmp_path).runs[0].metric("test_ppl") == 95.0
    for path in ("run/0.json", "ensemble/1.json", "benchmark/2.json"):
        before = (tmp_path / path).read_text()
        edited(tmp_path, path, metrics={**content["metrics"], "test_ppl": 80.0})
        for reader in (load, record_paths.relocate):
            with pytest.raises(UserError, match=rf"{path}: edited after it was published .*publish the run again"):
                reader(tmp_path)
        (tmp_path / path).write_text(before)
    edited(tmp_path, "run/0.json", seed=2)
    with pytest.raises(UserError, match="edited after it was published"):
        read(tmp_path / "run/0.json")


@pytest.mark.parametrize("task", ["ptb", "cornell"])
def test_a_record_of_a_known_corpus_with_another_data_hash_is_rejected(tmp_path, task: str) -> None:
    """Also with a recomputed digest."""
    run = language_model("small", "naive") if task == "ptb" else sentiment("naive")
    content = synthetic.record(run, 1, {"test_ppl": 95.0})
    synthetic.save([content], tmp_path)
    assert load(tmp_path).runs
    for data in ({"name": task, "sha256": "0" * 64}, {"name": "other", "sha256": "0" * 64}, None):
        synthetic.save([content | {"data": data}], tmp_path)
        with pytest.raises(UserError, match=rf"0\.json: data hash of {task} is"):
            load(tmp_path)


def test_a_record_without_a_digest_is_named_and_relocating_adds_it(tmp_path) -> None:
    synthetic.save([synthetic.language_run(language_model("small", "naive"), 1, 100.0, 95.0)], tmp_path)
    content = json.loads((tmp_path / "run/0.json").read_text())
    del content["digest"]
    (tmp_path / "run/0.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"0\.json: .*no digest.*--relocate"):
        load(tmp_path)
    record_paths.relocate(tmp_path)
    assert load(tmp_path).runs[0].content["digest"]


def test_an_option_that_a_record_lacks_has_its_default() -> None:
    wanted = identity_of(language_model("small", "naive"))
    record = Identity(wanted.choices, dict(wanted.options))
    for key in (
        "task.train",
        "task.min_count",
        "model.word_tokens",
    ):  # left out by publishing, or newer
        del record.options[key]
    assert matches(record, wanted)
    other = Identity(wanted.choices, {**wanted.options, "model.word_tokens": True})
    assert not matches(record, other)


def test_an_early_headline_in_a_record_reads_as_exact(tmp_path) -> None:
    content = synthetic.language_run(language_model("small", "naive"), 1, 100.0, 95.0)
    content["config"]["task"]["headline"] = "true"
    (record,) = load(synthetic.save([content], tmp_path)).runs
    assert record.options["task.headline"] == "exact"


def test_no_committed_record_has_the_early_headline() -> None:
    assert {record.config["task"].get("headline", "exact") for record in load().runs} <= {"exact", "authors"}
