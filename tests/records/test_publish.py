"""Publishing: what becomes a record, and what is rejected."""

import json
import socket
import subprocess
from pathlib import Path, PurePosixPath

import pytest
from helpers import ROOT, processes
from helpers import records as synthetic

from varrnn.errors import UserError
from varrnn.records.publish import KNOWN_DATA, lacks_mc, publish
from varrnn.records.store import load
from varrnn.reproduction.runs import SEEDS, language_model, sentiment
from varrnn.training import provenance

ABSOLUTE = str(PurePosixPath("/", "home", "someone", "error.txt"))  # what must not be committed
RUN = language_model("small", "variational_untied", "model.p_U=0.05")


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    return subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("repository")
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "one")
    return folder, git(folder, "rev-parse", "HEAD")


@pytest.fixture
def summary(repository) -> dict:
    made = synthetic.language_run(RUN, 2, 97.0, 93.0, 92.0, epochs=22)
    made["config"] |= {"runs_root": "/somewhere/runs", "run_dir": None, "train": {"patience": 0}}
    made["config"]["task"]["path"] = "/somewhere/data"
    made["config"]["task"]["headline"] = "true"  # as early versions wrote it
    made["diff"] = {"model.p_U": 0.05, "task.path": "/somewhere/data"}
    made |= {"data": {"name": "ptb", "sha256": KNOWN_DATA["ptb"]}, "commit": repository[1]}
    made["hardware"]["hostname"] = socket.gethostname()
    made["pid"] = 12345
    return made


@pytest.fixture
def publishing(tmp_path, repository):
    def act(summary: dict) -> Path:
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        (folder / "summary.json").write_text(json.dumps(summary))
        return publish(folder, tmp_path / "records", repository[0])

    return act


@pytest.mark.slow
def test_a_finished_run_becomes_a_record(publishing, summary, tmp_path) -> None:
    path = publishing(summary)
    assert (
        path == tmp_path / "records/ptb/small/variational_untied/lstm/paper/model.p_E=0.05,model.p_U=0.05/seed_2.json"
    )
    assert path.stat().st_size < 20_000 and json.loads(path.read_text())["config"]["task"]["headline"] == "exact"
    records = load(tmp_path / "records")
    assert records.group(RUN).mean("test_ppl") == 93.0 and records.missing(RUN, SEEDS) == (1, 3)
    assert publishing(summary).read_bytes() == path.read_bytes()


def test_a_run_that_lacks_mc_dropout_is_noticed(summary, tmp_path) -> None:
    """A run that was stopped while it drew samples has a summary; so has a run that was asked for none."""
    for samples, status, lacks in ((1000, "finished", True), (0, "finished", False), (1000, "unstable", False)):
        summary["config"]["mc"], summary["status"] = {"samples": samples, "word_dropout": False}, status
        (tmp_path / "summary.json").write_text(json.dumps(summary))
        assert lacks_mc(tmp_path) is lacks
    summary |= {"mc": {"samples": 10, "word_dropout": False}, "status": "finished"}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert not lacks_mc(tmp_path)


def test_paths_and_names_are_stripped(publishing, summary) -> None:
    text = publishing(summary).read_text()
    assert "somewhere" not in text and socket.gethostname() not in text and "pid" not in text
    assert json.loads(text)["hardware"]["cpu"] == "Example CPU" and json.loads(text)["config"]["train"] == {
        "patience": 0
    }


def test_tables_may_change_while_code_may_not(tmp_path, monkeypatch) -> None:
    """`make paper` rewrites the README between two runs; only what computes makes a run unpublishable."""
    folder = tmp_path
    git(folder, "init", "-q")
    for name in ("README.md", "varrnn/training/provenance.py", "configs/config.yaml"):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text("one")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "all")
    monkeypatch.setattr(provenance, "PROJECT_ROOT", folder)
    monkeypatch.setattr(provenance, "__file__", str(folder / "varrnn" / "training" / "provenance.py"))
    head = git(folder, "rev-parse", "HEAD")
    look = provenance.commit.__wrapped__  # a process runs git once
    (folder / "README.md").write_text("two")
    assert look() == (head, False)
    (folder / "configs" / "config.yaml").write_text("two")
    assert look() == (head, True)
    git(folder, "rm", "-q", "--cached", "varrnn/training/provenance.py")
    assert look() == (None, False)  # a package installed somewhere inside another repository


def test_what_is_committed_later_is_not_the_code_that_runs(monkeypatch) -> None:
    """In a long sweep the modules were loaded before; the commit of that time counts."""
    before = provenance.code_version()
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("asked git again"))
    assert provenance.code_version() == before


def test_a_record_is_not_replaced_by_another_run(publishing, summary) -> None:
    path = publishing(summary)
    before = path.read_text()
    with pytest.raises(UserError, match=r"another training of this run \(epoch 3: valid_ppl is .* there and 1\.0 here"):
        publishing(changed(summary, epoch=3))
    with pytest.raises(UserError, match="more samples than this run"):
        publishing(summary | {"metrics": summary["metrics"] | {"mc_samples": 10}})
    assert path.read_text() == before and publishing(summary) == path


def changed(summary: dict, epoch: int) -> dict:
    history = {column: list(values) for column, values in summary["history"].items()}
    history["valid_ppl"][epoch - 1] = 1.0
    history["valid_ppl_authors"][epoch] = None  # as where a shorter run had ended
    return summary | {"history": history}


def test_an_unstable_run_is_published_too(publishing, summary, tmp_path) -> None:
    history = {column: values[:5] for column, values in summary["history"].items()}
    publishing(summary | {"status": "unstable", "metrics": {}, "history": history, "reason": "loss is nan"})
    group = load(tmp_path / "records").group(RUN)
    assert len(group) == 0 and group.unstable == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"status": "running"}, "only finished and unstable"),
        ({"schema": 7}, "schema is 7"),
        ({"dirty": True}, "uncommitted changes"),
        ({"commits": ["0" * 40 + "+dirty"]}, "uncommitted changes"),
        ({"commit": "1" * 40}, "not in this repository"),
        ({"commit": None}, "not in this repository"),
        ({"data": {"name": "ptb", "sha256": "0" * 64}}, "data hash of ptb"),
        ({"data": {"name": "text", "sha256": "0" * 64}}, "data 'text' cannot be published"),
        ({"data": {"name": "pydoc", "sha256": None}}, "no SHA-256"),
        ({"metrics": {"valid_ppl": 3.0}}, "no final metric"),
        ({"data": None}, "data None"),
        ({"metrics": None}, r"summary\.json: metrics is null, it should be numbers"),
        ({"history": {}}, r"summary\.json: history is {}, it should be columns"),
        ({"history": {"epoch": []}}, "0 of 22 epochs"),
        ({"history": {"epoch": []}, "config": {"train": {"patience": 3}, "optim": {"epochs": 22}}}, "0 of 22 epochs"),
        ({"config": {}}, r"no optim\.epochs in the config"),
        ({"hardware": []}, r"summary\.json: hardware is \[\]"),
        ({"reason": f"see {ABSOLUTE}"}, None),
        ({"reason": ABSOLUTE}, ABSOLUTE),
    ],
)
def test_rejected_runs(publishing, summary, tmp_path, change, message) -> None:
    if message is None:
        publishing(summary | change)
        return
    with pytest.raises(UserError, match=message):
        publishing(summary | change)
    assert not (tmp_path / "records").exists()


@pytest.mark.parametrize(
    ("host", "reason", "leaks"),
    [
        ("small", None, False),
        ("medium", "medium", False),
        ("lstm", None, False),
        ("mybox", "at mybox:22", True),
        ("mybox", "in runs/mybox_2/x", True),
        ("mybox", "mybox2", False),
        ("a.b.org", "a.b.org", True),
    ],
)
def test_a_host_name_may_equal_a_name_of_a_choice(publishing, summary, monkeypatch, host, reason, leaks) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    if leaks:
        with pytest.raises(UserError, match="names this machine"):
            publishing(summary | {"reason": reason})
    else:
        assert publishing(summary | ({"reason": reason} if reason else {})).is_file()


def test_a_summary_that_is_not_an_object(publishing) -> None:
    with pytest.raises(UserError, match=r"summary\.json: a summary is a JSON object, this is a list"):
        publishing([])


def test_a_commit_of_an_earlier_start_counts_too(publishing, summary, repository) -> None:
    with pytest.raises(UserError, match="not in this repository"):
        publishing(summary | {"commits": ["1" * 40, repository[1]]})
    publishing(summary | {"commits": [repository[1], repository[1]]})


def test_an_amended_commit_is_not_in_the_repository(publishing, summary, repository) -> None:
    folder, _ = repository
    git(folder, "checkout", "-q", "--detach")
    git(folder, "commit", "-q", "--allow-empty", "-m", "lost")
    lost = git(folder, "rev-parse", "HEAD")
    git(folder, "checkout", "-q", "-")
    with pytest.raises(UserError, match="not in this repository"):
        publishing(summary | {"commit": lost})


def test_a_run_that_stopped_early_is_rejected(publishing, summary) -> None:
    short = {column: values[:-1] for column, values in summary["history"].items()}
    with pytest.raises(UserError, match="21 of 22 epochs"):
        publishing(summary | {"history": short})
    publishing(summary | {"history": short, "config": summary["config"] | {"train": {"patience": 3}}})


def test_no_summary_means_not_finished(tmp_path, repository) -> None:
    with pytest.raises(UserError, match="has not finished"):
        publish(tmp_path, tmp_path / "records", repository[0])


def test_losses_per_batch_are_averaged(publishing, repository, tmp_path) -> None:
    run = (*sentiment("naive"), "optim.epochs=120")
    made = synthetic.sentiment_run(run, 1, epochs=120)
    made["config"]["train"] = {"patience": 0}
    made["metrics"]["test_rmse"] = 0.17
    made |= {"data": {"name": "cornell", "sha256": KNOWN_DATA["cornell"]}, "commit": repository[1]}
    made["batches"] = {"train_loss": [float(i) for i in range(83 * 120)]}
    record = json.loads(publishing(made).read_text())
    assert record["batches"]["every"] == 10 and record["batches"]["train_loss"][:2] == [4.5, 14.5]
    assert len(record["batches"]["train_loss"]) == 996


def test_an_ensemble_is_published_by_its_file(tmp_path, repository) -> None:
    made = synthetic.ensemble("small", "naive", 3, 95.0) | {"mc_samples": 10}
    made |= {"data": {"name": "ptb", "sha256": KNOWN_DATA["ptb"]}, "commit": repository[1], "dirty": False}
    file = tmp_path / "ptb_small_naive_3.json"
    file.write_text(json.dumps(made))
    assert publish(file, tmp_path / "records", repository[0]) == tmp_path / "records/ensembles/ptb_small_naive_3.json"
    assert len(load(tmp_path / "records").ensembles) == 1
    for change, why in (({"member_seeds": [4, 5, 6]}, "member_seeds differs"), ({"mc_samples": 1}, "more MC samples")):
        file.write_text(json.dumps(made | change))
        with pytest.raises(UserError, match=why):
            publish(file, tmp_path / "records", repository[0])
    file.write_text(json.dumps(made | {"dirty": True}))
    with pytest.raises(UserError, match="dirty"):
        publish(file, tmp_path / "records", repository[0])


@pytest.mark.data
@pytest.mark.parametrize("name", ["ptb", "cornell"])
def test_known_hashes_are_those_of_the_true_files(name: str) -> None:
    from varrnn.data import cornell, ptb

    assert {"ptb": ptb, "cornell": cornell}[name].load().sha256 == KNOWN_DATA[name]


@pytest.mark.slow
def test_command_line_continues_after_a_rejected_run(tmp_path) -> None:
    script = ROOT / "scripts" / "publish.py"
    words = [str(script), str(tmp_path / "a"), str(tmp_path / "b"), "--to", str(tmp_path / "records")]
    answer = processes.run(*words)
    assert (
        answer.returncode == 1 and answer.stderr.count("rejected: ") == 2 and "0 published, 2 rejected" in answer.stdout
    )
