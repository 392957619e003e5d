"""The command line of run.py: the order of options, invalid values, and the user's files."""

import os
import pty
import signal
import subprocess
import sys
import time

import pytest
import torch
from helpers import runs as small_runs
from helpers.runs import ROOT, TINY, make_run, python, write_texts

from varrnn.cli import argv
from varrnn.config import compose
from varrnn.config.compose import load_config
from varrnn.errors import UserError
from varrnn.tasks.language_model import LanguageModelTask
from varrnn.training import checkpoint
from varrnn.training import run as training_run
from varrnn.training import summary as run_summary
from varrnn.training.trainer import BEST, CHECKPOINT
from varrnn.version import __version__


def test_options_may_be_at_any_position():
    words = ["seed=1,2", "-m", "optim.lr=1", "--config-dir", "mine", "--cfg=job", "x=-1"]
    assert argv.options_first(words) == [
        *("-m", "--config-dir", "mine", "--cfg=job"),
        *("seed=1,2", "optim.lr=1", "x=-1"),
    ]
    assert argv.options_first(["a=1", "-cd"]) == ["-cd", "a=1"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--epochs 3", r"--epochs: write optim\.epochs=3;"),
        ("--epochs=3 seed=2", r"--epochs=3: write optim\.epochs=3;"),
        ("seed=2 --batch-size 5", r"--batch-size: write task\.batch_size=5;"),
        ("--lr", r"--lr: write optim\.lr=VALUE;"),
        ("--resume", "--resume: not needed, the same command resumes"),
        ("--frobnicate 3", "--frobnicate: there is no such option; write KEY=VALUE"),
        ("-x", "-x: there is no such option"),
    ],
)
def test_an_unknown_flag_gets_the_override_to_write_instead(monkeypatch, words, message):
    monkeypatch.setattr(sys, "argv", ["run.py", *words.split()])
    with pytest.raises(UserError, match=rf"^{message}"):
        argv.normalize_argv()


@pytest.mark.parametrize("words", ["-m seed=1,2", "--multirun seed=1", "--cfg job", "-cd mine", "--info config", "--h"])
def test_options_of_hydra_pass(monkeypatch, words):
    monkeypatch.setattr(sys, "argv", ["run.py", *words.split()])
    argv.normalize_argv()
    assert sorted(sys.argv[1:]) == sorted(words.split())


@pytest.mark.parametrize("value", ["/tmp/für mich/a.txt", "runs/model.p_U=0.3,model.p_W=0.4/seed_1", "it's=ü"])
@pytest.mark.slow
def test_paths_that_hydra_needs_quotes_for_are_quoted(monkeypatch, value):
    monkeypatch.setattr(sys, "argv", ["run.py", "task=text", f"run_dir={value}"])
    argv.normalize_argv()
    assert compose.compose(sys.argv[1:]).run_dir == value
    assert argv.quote_path("task.train=ü,ö", sweep=True) == "task.train='ü','ö'"
    for plain in ("run_dir=runs/a", "run_dir='ü'", "seed=ü", "run_dir=a b"):
        assert argv.quote_path(plain) == plain


def test_a_network_that_cannot_fit_is_rejected_before_it_is_built(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = time.monotonic()
    with pytest.raises(UserError, match=r"size\.layers=1000000000, .* need about [\d,]+ GB, cpu has \d+ GB; lower one"):
        make_run("mc.samples=0", "size.layers=1000000000")
    assert time.monotonic() - before < 60


@pytest.mark.slow
def test_version_and_a_value_without_a_key():
    done = python("run.py", "--version")
    assert (done.returncode, done.stdout) == (0, f"varrnn {__version__}\n")
    done = python("run.py", "=3")
    assert (
        done.returncode == 1
        and done.stderr == "error: =3: a value without its key; give KEY=VALUE, see python run.py --help\n"
    )


@pytest.mark.slow
def test_ctrl_c_during_the_imports_prints_no_traceback(tmp_path):
    started = subprocess.Popen(
        [sys.executable, "-X", "importtime", str(ROOT / "run.py")],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=small_runs.default_signals,
    )
    assert started.stderr is not None
    while (
        "hydra" not in started.stderr.readline()
    ):  # the first module that run.py imports after it has set its signal handler
        assert started.poll() is None
    started.send_signal(signal.SIGINT)
    assert "Traceback" not in started.communicate(timeout=120)[1] and started.returncode == 130


@pytest.mark.slow
@pytest.mark.parametrize(("ignored", "epochs"), [(False, 900), (True, 30)])
def test_a_closed_terminal_stops_a_run_after_saving_unless_sighup_is_ignored(ignored, epochs, tmp_path):
    write_texts(tmp_path)
    words = [*TINY, f"optim.epochs={epochs}", "mc.samples=0", f"run_dir={tmp_path / 'run'}"]
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
        os.execv(sys.executable, [sys.executable, str(ROOT / "run.py"), *words])
    shown = b""
    while f"epoch   3/{epochs}".encode() not in shown:
        shown += os.read(terminal, 4096)
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    progress = checkpoint.load(tmp_path / "run" / CHECKPOINT)["progress"]
    if ignored:
        assert progress["epoch"] == epochs + 1 and run_summary.read(tmp_path / "run")["status"] == "finished"
    else:
        assert status == 128 + signal.SIGHUP and 3 < progress["epoch"] < epochs


def own_model(folder, text: str) -> tuple[str, str, str]:
    (folder / "model").mkdir()
    (folder / "model" / "mine.yaml").write_text(text)
    return "model=mine", "--config-dir", str(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: naive\np_U: 0.3\n", "error: model=mine: its file says `name: naive`"),
        ("name: mine\np_Q: 0.3\n", "error: model.p_Q: there is no such group or option"),
    ],
)
def test_a_custom_variant(text, expected, tmp_path):
    done = python("run.py", *own_model(tmp_path, text))
    assert done.returncode == 1 and done.stderr.startswith(expected) and done.stderr.count("\n") == 1


def test_a_text_in_which_every_word_is_rare(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_texts(tmp_path)
    with pytest.raises(UserError, match=r"task\.min_count=1000: no word of a "):
        training_run.run(compose.compose([*TINY, "task.min_count=1000"]))


@pytest.mark.slow
def test_a_start_that_failed_does_not_block_the_right_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_texts(tmp_path)
    wrong = compose.compose([*TINY, "task.train=nowhere", "run_dir=here", "mc.samples=0"])
    with pytest.raises(UserError, match="nowhere"):
        training_run.run(wrong)
    assert training_run.run(compose.compose([*TINY, "run_dir=here", "mc.samples=0"]))["status"] == "finished"
    assert load_config("here").task.train == "a"


@pytest.mark.parametrize("content", ["", "[1, 2]", "a: [", "task: {sead: 3}", "task: 3", "model: {p_Q: 1}"])
def test_a_damaged_config_is_named(content, tmp_path):
    (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(UserError, match=r"config\.yaml: not the config of a run"):
        load_config(tmp_path)


@pytest.mark.slow
def test_a_score_that_is_not_finite_ends_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LanguageModelTask, "epoch_metrics", lambda *_: {"valid_ppl": float("inf")})
    with pytest.raises(
        UserError, match=r"epoch 1: valid_ppl is inf; the last good checkpoint is kept\. Try another seed="
    ):
        make_run("mc.samples=0")


@pytest.mark.slow
def test_too_large_for_the_memory_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def fit(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 TiB")

    monkeypatch.setattr("varrnn.training.trainer.Trainer.fit", fit)
    with pytest.raises(UserError, match=r"not enough memory for size\.units=8, .* lower one of them"):
        make_run("mc.samples=0")
    with pytest.raises(UserError, match=r"not enough memory for size\.units=10000000"):
        make_run("mc.samples=0", "size.units=10000000")


@pytest.mark.slow
def test_files_that_are_missing_when_a_run_resumes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small_runs.score_epochs(monkeypatch, lambda epoch: 50.0 - epoch)  # every epoch is better than the one before
    folder = make_run("mc.samples=0")
    longer = load_config(folder)
    longer.optim.epochs = 3
    (folder / BEST).unlink()
    ended = training_run.run(longer, folder)
    assert "best.pt is missing" not in capsys.readouterr().out  # epoch 2 was the best: checkpoint.pt has a copy
    assert ended["metrics"]["best_epoch"] == 3
    (folder / CHECKPOINT).unlink()
    longer.optim.epochs = 4
    with pytest.raises(UserError, match=r"checkpoint\.pt: is missing"):
        training_run.run(longer, folder)


@pytest.mark.slow
def test_help_shows_what_a_plain_run_uses():
    made = compose.compose([])
    shown = small_runs.python("run.py", "--help").stdout
    for key, value in (("optim.epochs", made.optim.epochs), ("mc.samples", made.mc.samples)):
        assert f"  {key}={value} " in shown
