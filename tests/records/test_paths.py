"""The paths of records; no run overwrites the record of another."""

import json
from pathlib import Path

import pytest
from helpers import records as synthetic

from varrnn.errors import UserError
from varrnn.records import paths as record_paths
from varrnn.records.integrity import with_digest
from varrnn.records.store import RECORDS, Records, as_record, load
from varrnn.reproduction import runs as paper_runs
from varrnn.reproduction.machines import describe_machine
from varrnn.reproduction.runs import language_model

DEFAULT, OTHER = (language_model("small", "naive", *options) for options in ((), ("model.p_W=0.15", "model.p_y=0.15")))
FOLDER = Path("ptb/small/naive/lstm/paper")
OTHER_NAME = "model.p_W=0.15,model.p_y=0.15"


def content(run, epochs: int = 22) -> dict:
    return synthetic.language_run(run, 1, 97.0, 93.0, epochs=epochs)


def write(folder: Path, name: str, run) -> Path:
    file = folder / FOLDER / name / "seed_1.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(with_digest(content(run))))
    return file


@pytest.mark.slow
def test_committed_records_have_the_paths_that_the_defaults_give() -> None:
    records = load().runs
    assert records
    for record in records:
        assert record.path.relative_to(RECORDS) == record_paths.relative_path(record)


def test_another_run_is_never_replaced(tmp_path) -> None:
    """As when a default changed after the record was published: the folder's name means another run now."""
    path = write(tmp_path, "default", OTHER)
    with pytest.raises(UserError, match=r"another run.*model.p_W.*--relocate"):
        record_paths.check_overwrite(as_record(Path(), content(DEFAULT)), path)
    record_paths.check_overwrite(as_record(Path(), content(OTHER)), path)  # the same run, published again
    record_paths.check_overwrite(as_record(Path(), content(DEFAULT)), tmp_path / "nothing.json")


@pytest.mark.slow
def test_a_language_model_with_other_epochs_is_another_run(tmp_path) -> None:
    """It matches no row of a table, so it must not replace the record of the run that does."""
    longer = record_paths.relative_path(as_record(Path(), content(language_model("small", "naive", "optim.epochs=50"))))
    assert longer == FOLDER / "optim.epochs=50" / "seed_1.json"
    sentiment = (*paper_runs.sentiment("naive"), "optim.epochs=40")
    path = record_paths.relative_path(as_record(Path(), synthetic.record(sentiment, 1, {"test_rmse": 0.1})))
    assert path.parent.name == "default"  # which resumes, and whose verdict says "few epochs"


@pytest.mark.slow
def test_scaling_of_masks_names_a_run_that_has_masks(tmp_path) -> None:
    """The default went from inverted to retain: older records move, those of the standard model stay."""
    inverted = "task.scaling=inverted"
    paths = {
        run: record_paths.relative_path(as_record(Path(), synthetic.record(run, 1, {"test_rmse": 0.1}))).parent.name
        for model in ("naive", "none")
        for run in ((*paper_runs.sentiment(model), inverted), paper_runs.sentiment(model))
    }
    assert list(paths.values()) == [inverted, "default", "default", "default"]
    for model, same in (("naive", False), ("none", True)):
        content = synthetic.record(paper_runs.sentiment(model), 1, {"test_rmse": 0.1})
        content["config"]["task"]["scaling"] = "inverted"  # as all records of that time have it
        record = as_record(Path(), content)
        assert (record_paths.relative_path(record).parent.name == "default") is same
        assert bool(Records((record,)).group(paper_runs.sentiment(model))) is same


def test_another_number_of_mc_samples_is_not_another_training(tmp_path) -> None:
    """A run of 20 epochs measures its last two with more samples than one that is to have 100."""
    run = (*paper_runs.sentiment("naive"), "optim.epochs=3")
    columns = {"epoch": [1, 2, 3], "test_rmse": [0.19, 0.18, 0.17], "test_rmse_mc": [0.191, 0.181, 0.171]}
    history = {**columns, "mc_samples": [10, 10, 50]}
    longer = {**columns, "test_rmse_mc": [0.191, 0.181, 0.172], "mc_samples": [10, 10, 10]}
    before = {**columns, "test_rmse_mc": [0.191, 0.181, 0.173]}  # without the column: ten samples everywhere
    made, more, older = (
        as_record(Path(), synthetic.record(run, 1, {"test_rmse": 0.17}, one)) for one in (history, longer, before)
    )
    assert not record_paths.first_difference(made, more) and not record_paths.first_difference(older, made)
    assert "epoch 3: test_rmse_mc is 0.173 there" in record_paths.first_difference(older, more)
    other = as_record(Path(), synthetic.record(run, 1, {}, {**history, "test_rmse": [0.19, 0.18, 0.16]}))
    assert "epoch 3: test_rmse is" in record_paths.first_difference(made, other)


def test_an_interrupted_relocation_is_reported(tmp_path) -> None:
    write(tmp_path, "default", DEFAULT).rename(tmp_path / FOLDER / "default" / "seed_1.moving")
    with pytest.raises(UserError, match=r"seed_1\.moving: relocating was interrupted; rename it to seed_1_moved\.json"):
        load(tmp_path)
    folder = tmp_path / FOLDER / "default"
    (folder / "seed_1.moving").rename(folder / "seed_1_moved.json")  # the record at its path is not overwritten
    assert record_paths.relocate(tmp_path) == [(folder / "seed_1_moved.json", folder / "seed_1.json")]


def test_a_shorter_run_does_not_replace_a_longer_one(tmp_path) -> None:
    path = write(tmp_path, "default", DEFAULT)
    with pytest.raises(UserError, match="has 22 epochs and this run 10"):
        record_paths.check_overwrite(as_record(Path(), content(DEFAULT, epochs=10)), path)
    longer = content(DEFAULT)
    for column, values in longer["history"].items():
        longer["history"][column] = [*values, 23] if column == "epoch" else values + values[-1:]
    record_paths.check_overwrite(as_record(Path(), longer), path)


def test_an_unstable_run_does_not_replace_a_finished_one(tmp_path) -> None:
    path = write(tmp_path, "default", DEFAULT)
    unstable = content(DEFAULT, epochs=25) | {"status": "unstable", "metrics": {}}
    with pytest.raises(UserError, match=r"seed_1.json is of a finished run.*unstable"):
        record_paths.check_overwrite(as_record(Path(), unstable), path)


def test_a_record_with_mc_is_not_replaced_by_one_without(tmp_path) -> None:
    path = write(tmp_path, "default", DEFAULT)
    sampled, plain = content(DEFAULT), content(DEFAULT)
    sampled["metrics"]["mc_samples"] = 1000
    plain["metrics"].pop("mc_samples", None)
    path.write_text(json.dumps(with_digest(sampled)))
    with pytest.raises(UserError, match="MC dropout with more samples"):
        record_paths.check_overwrite(as_record(Path(), plain), path)
    record_paths.check_overwrite(as_record(Path(), sampled), path)


def test_mc_without_word_dropout_is_not_replaced_by_the_ablation(tmp_path) -> None:
    path = write(tmp_path, "default", DEFAULT)
    ablation = content(DEFAULT) | {"mc": {"samples": 1000, "word_dropout": True}}
    with pytest.raises(UserError, match="MC dropout without word dropout"):
        record_paths.check_overwrite(as_record(Path(), ablation), path)
    path.write_text(json.dumps(with_digest(ablation)))
    record_paths.check_overwrite(as_record(Path(), content(DEFAULT)), path)


def test_relocate_moves_records_whose_path_changed(tmp_path) -> None:
    first, second = write(tmp_path, "default", OTHER), write(tmp_path, OTHER_NAME, DEFAULT)
    before = first.read_text(), second.read_text()
    assert record_paths.relocate(tmp_path) == [(first, second), (second, first)]
    assert (second.read_text(), first.read_text()) == before
    assert record_paths.relocate(tmp_path) == []


def test_relocate_leaves_no_empty_folder_and_rejects_two_records_of_one_run(tmp_path) -> None:
    old = write(tmp_path, "model.p_W=0.3", OTHER)
    record_paths.relocate(tmp_path)
    assert not old.parent.exists() and (tmp_path / FOLDER / OTHER_NAME / "seed_1.json").is_file()
    again = write(tmp_path, "model.p_W=0.3", OTHER)
    with pytest.raises(UserError, match=r"seed_1.json and .*seed_1.json"):
        record_paths.relocate(tmp_path)
    assert again.is_file()


def test_the_speeds_of_a_gpu_at_two_precisions_are_two_records() -> None:
    machine = {"gpu": "NVIDIA A100", "cpu": "Example CPU", "cores": 8, "precision": "highest"}
    exact, tf32 = (record_paths.benchmark_path(machine | {"precision": name}).name for name in ("highest", "high"))
    assert (exact, tf32) == ("nvidia_a100.json", "nvidia_a100_precision_high.json")
    described = describe_machine({"machine": machine | {"precision": "high"}})
    assert "precision high" in described and "precision" not in describe_machine({"machine": machine})
