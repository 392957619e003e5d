"""checkpoint.pt and summary.json edited by hand: one clear line, and no epoch is skipped."""

import copy
import json
import math

import pytest
import torch
from helpers.runs import make_run

from varrnn.config import compose
from varrnn.errors import UserError
from varrnn.training import checkpoint
from varrnn.training import run as training_run
from varrnn.training import summary as run_summary
from varrnn.training.trainer import Progress, Trainer, progress_problem

pytestmark = pytest.mark.slow  # most of these tests train

UPDATES, STATE = 7, (2, 4, 8)


def under_way() -> dict:
    """The progress of a run in its third epoch, after three updates."""
    made = Progress(epoch=3, update=3, best_epoch=1, best_score=9.5, words=30, train_seconds=2.0, total_seconds=3.0)
    made.state, made.looked_at = (torch.zeros(STATE), torch.zeros(STATE)), torch.zeros(UPDATES, 2)
    made.history = {"epoch": [1, 2], "valid_ppl": [9.5, 9.7]}
    made.commits, made.places = ["a"], ["cpu"]
    return copy.deepcopy(vars(made))


@pytest.mark.parametrize(
    "edit",
    [
        {"epoch": 4},
        {"epoch": 10**12},
        {"epoch": "3"},
        {"epoch": True},
        {"update": 10**9},
        {"update": UPDATES},
        {"update": -1},
        {"update": 0},
        {"looked_at": None},
        {"looked_at": torch.zeros(UPDATES - 1, 2)},
        {"state": (torch.zeros(2, 4, 9), torch.zeros(STATE))},
        {"state": "carried"},
        {"state": torch.zeros(STATE, dtype=torch.int64)},
        {"history": {"epoch": [1]}},
        {"history": {"epoch": [1, 2], "valid_ppl": [9.5]}},
        {"history": {"epoch": [1, 2], "valid_ppl": ["9.5", "9.7"]}},
        {"history": []},
        {"best_epoch": 3},
        {"best_epoch": None},
        {"best_score": math.nan},
        {"best_score": None},
        {"words": 0},
        {"words": 1.5},
        {"train_seconds": 0.0},
        {"epoch_seconds": -1.0},
        {"total_seconds": "long"},
        {"commits": "a"},
        {"commits": [1]},
        {"places": None},
        {"batches": ["x"]},
    ],
    ids=lambda edit: "-".join(f"{key}={value}"[:24] for key, value in edit.items()),
)
def test_an_edited_progress_is_found_and_the_field_is_named(edit):
    assert progress_problem(under_way(), UPDATES, STATE) == ""
    assert any(key in progress_problem(under_way() | edit, UPDATES, STATE) for key in (*edit, "history", "looked_at"))


def test_a_progress_without_its_newer_fields_is_accepted():
    """Early versions saved neither the list of environments nor the loss of every update."""
    early = {key: value for key, value in under_way().items() if key not in ("places", "batches")}
    assert progress_problem(early, UPDATES, STATE) == ""
    assert progress_problem([], UPDATES, STATE) == "progress is a list"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was stopped in its second epoch, after update 5."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("edited"))
        original = Trainer.training_step

        def stop(self, *arguments):
            if (self.progress.epoch, self.progress.update) == (2, 5):
                raise KeyboardInterrupt
            return original(self, *arguments)

        patch.setattr(Trainer, "training_step", stop)
        patch.setattr(compose, "run_dir", lambda config, real=compose.run_dir: real(config).resolve())
        with pytest.raises(KeyboardInterrupt):
            make_run("mc.samples=0", "train.checkpoint_minutes=0", "run_dir=run")
        patch.setattr(Trainer, "training_step", original)
        folder = compose.run_dir(compose.compose(["task=text", "run_dir=run"]))
        content = (folder / "checkpoint.pt").read_bytes()

        def edited(**edit):
            (folder / "checkpoint.pt").write_bytes(content)
            saved = checkpoint.load(folder / "checkpoint.pt")
            saved["progress"] |= edit
            checkpoint.save(saved, folder / "checkpoint.pt")
            return folder

        yield edited


def test_a_checkpoint_with_an_edited_update_does_not_skip_an_epoch(stopped):
    folder = stopped(update=10**9)
    with pytest.raises(UserError, match=r"checkpoint\.pt: damaged \(progress\.update is 1000000000, it should be from"):
        training_run.run(compose.load_config(folder), folder)
    folder = stopped()
    assert training_run.run(compose.load_config(folder), folder)["metrics"]["epochs"] == 2


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("finished"))
        folder = make_run("mc.samples=2")
        yield folder.resolve(), json.loads((folder / "summary.json").read_text())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("status", "done"),
        ("data", {}),
        ("data", {"name": "text", "sha256": 5}),
        ("config.optim", {}),
        ("config.optim.epochs", "2"),
        ("history", {"epoch": []}),
        ("history", {"epoch": [5, 6]}),
        ("mc", {"word_dropout": False}),
        ("mc", {"samples": "2", "word_dropout": False}),
        ("commits", "abc"),
        ("commits", [None]),
        ("duration", [1]),
        ("metrics", {"test_ppl": "low"}),
    ],
)
def test_an_edited_summary_is_one_clear_line(finished, key, value):
    folder, summary = finished
    edited = copy.deepcopy(summary)
    *groups, leaf = key.split(".")
    node = edited
    for group in groups:
        node = node[group]
    node[leaf] = value
    (folder / "summary.json").write_text(json.dumps(edited))
    with pytest.raises(UserError, match=rf"summary\.json: not the summary of a run \(.*{key.split('.')[0]}.*remove it"):
        training_run.run(compose.load_config(folder, ["mc.samples=3"]), folder)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("done", -1),
        ("done", 2.0),
        ("position", 10**9),
        ("pass_rows", "2"),
        ("log_sums", torch.zeros(3)),
        ("fresh", {"a": 1}),
        ("curve", []),
        ("curve", {1: "low"}),
        ("partial_curve", {1: 0.5}),
        ("state", torch.zeros(3)),
        ("commits", torch.zeros(2, 2)),
        ("commits", [5]),
        ("seconds", None),
        ("seconds", -1.0),
    ],
)
def test_an_edited_file_of_samples_is_one_clear_line(finished, key, value):
    folder, summary = finished
    (folder / "summary.json").write_text(json.dumps(summary))
    saved = torch.load(folder / "mc.pt")
    torch.save(saved | {key: value}, folder / "mc.pt")
    try:
        with pytest.raises(UserError, match=r"mc\.pt: .*damaged.*remove it to sample again"):
            training_run.run(compose.load_config(folder, ["mc.samples=5"]), folder)
    finally:
        torch.save(saved, folder / "mc.pt")


def test_a_summary_of_another_seed_is_rejected(finished):
    folder, summary = finished
    (folder / "summary.json").write_text(json.dumps(summary | {"config": summary["config"] | {"seed": 2}}))
    with pytest.raises(UserError, match=r"summary\.json: belongs to another run:\n  seed: 2 there, 1 requested"):
        training_run.run(compose.load_config(folder), folder)


def test_a_summary_without_its_newer_entries_is_accepted(finished):
    folder, summary = finished
    early = {key: value for key, value in summary.items() if key not in ("commits", "duration")}
    (folder / "summary.json").write_text(json.dumps(early))
    assert run_summary.read(folder)["commits"] == [summary["commit"]]
