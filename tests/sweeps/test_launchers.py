"""Launchers: one option each; a failing run does not affect the others; cores and GPUs are divided."""

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from helpers import processes
from helpers.runs import ROOT, TINY, default_signals, python, write_texts
from omegaconf import OmegaConf

from varrnn.config import compose
from varrnn.config.compose import CONFIGS
from varrnn.errors import UserError
from varrnn.sweeps import failures, launch, ranking
from varrnn.training import checkpoint
from varrnn.training.signals import SIGNALS, Interrupts, RunStopped


def summaries(folder):
    return sorted(ranking.load_summaries(folder / "runs"), key=lambda one: one["config"]["model"]["p_U"])


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["local", "joblib"])
def test_a_failing_run_does_not_lose_the_others(launcher, tmp_path):
    write_texts(tmp_path)
    swept = ("model.p_U=0.1,0.3", "task.batch_size=4,400", "mc.samples=0")
    done = python("run.py", "-m", *TINY, *swept, f"launcher={launcher}", "threads=0", folder=tmp_path)
    assert done.returncode == 1
    assert done.stdout.count("note: model.p_U=0.1,0.3 also sets model.p_E=0.1,0.3") == 1
    assert [one["config"]["model"]["p_U"] for one in summaries(tmp_path)] == [0.1, 0.3]
    listed = done.stderr.split("2 of the sweep's runs failed")[1]
    assert listed.count("too few for task.batch_size=400") == 2 and listed.count("again: python run.py task=text") == 2
    assert "Traceback" not in done.stderr
    assert len(list((tmp_path / "runs").rglob("error.txt"))) == 2
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a", "b", "c", "runs"]  # Hydra leaves nothing else
    if launcher == "joblib":  # cores divided by processes
        assert {(one["hardware"]["threads"], one["config"]["threads"]) for one in summaries(tmp_path)} == {(1, 0)}


def started(*words, folder):
    """A new interpreter in a separate process group, as a shell starts it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *words]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        preexec_fn=default_signals,
    )


def interrupted(process, files):
    """A Ctrl-C, which reaches the whole group, as soon as all the files exist; returns the output."""
    deadline = time.monotonic() + 120
    while not all(file.exists() for file in files) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    return said


LONG = ("size.units=64", "optim.epochs=1000", "mc.samples=0", "progress=false", "train.checkpoint_minutes=60")


@pytest.mark.slow
def test_ctrl_c_lets_parallel_jobs_save(tmp_path):
    """joblib kills its processes when one of them raises, in the middle of writing a checkpoint."""
    write_texts(tmp_path)
    words = (str(ROOT / "run.py"), "-m", *TINY, *LONG, "model.p_U=0.1,0.3,0.4", "launcher=joblib")
    words = (*words, "hydra.launcher.n_jobs=2", "runs_root=runs", "run_dir=null")
    process = processes.Process(*words, folder=tmp_path)
    folders = [compose.run_dir(compose.compose([*TINY, *LONG, f"model.p_U={p}", "runs_root=runs"])) for p in (0.1, 0.3)]
    folders = [tmp_path / folder for folder in folders]
    said = interrupted(process, [folder / "log.csv" for folder in folders])
    assert process.returncode == 130 and "stopped; checkpoints are kept" in said and "Traceback" not in said
    for folder in folders:
        assert f"stopped and saved in {folder.relative_to(tmp_path)}" in said and checkpoint.load(
            folder / "checkpoint.pt"
        )
    assert len(list(tmp_path.rglob("config.yaml"))) == 2  # the third was not begun


@pytest.mark.slow
def test_ctrl_c_lets_a_job_save_while_another_process_is_idle(tmp_path):
    """One job cannot begin, so that its process has nothing to do; the other needs a moment to save 1200 units."""
    write_texts(tmp_path)
    words = [word for word in (*TINY, *LONG) if "units" not in word] + ["size.units=1200"]
    process = processes.Process(
        str(ROOT / "run.py"), "-m", *words, "seed=-1,1", "launcher=joblib", "hydra.launcher.n_jobs=2", folder=tmp_path
    )
    folder = tmp_path / compose.run_dir(compose.compose(words))
    said = interrupted(process, [folder / "log.csv"])
    assert process.returncode == 130 and f"stopped and saved in {folder.relative_to(tmp_path)}" in said
    assert not list(folder.glob(".*.part"))


SLOW = """\
import pathlib, signal, time
signal.signal(signal.SIGINT, lambda *_: (time.sleep(1), pathlib.Path("saved").touch(), exit(3)))
pathlib.Path("begun").touch()
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN], ids=["heard", "ignored"])
def test_ctrl_c_waits_for_the_current_run(tmp_path, handler):
    """As in `make sentiment`: the command that starts others must not kill one that takes its time to save.

    Also where the tests themselves ignore Ctrl-C, as in the background of a script.
    """
    before = signal.signal(signal.SIGINT, handler)
    code = "import sys; from pathlib import Path; from varrnn.training.signals import run_subprocess; "
    process = started("-c", f"{code} run_subprocess([sys.executable, '-c', {SLOW!r}], Path.cwd())", folder=tmp_path)
    signal.signal(signal.SIGINT, before)
    interrupted(process, [tmp_path / "begun"])
    assert process.returncode == -signal.SIGINT and (tmp_path / "saved").exists()


@pytest.mark.slow
def test_finished_runs_are_skipped_and_run_dir_is_rejected(tmp_path):
    write_texts(tmp_path)
    words = ("-m", *TINY, "model.p_U=0.1,0.3", "mc.samples=0")
    assert python("run.py", *words, folder=tmp_path).returncode == 0
    again = python("run.py", *words, "model.p_U=0.1,0.3,0.4", folder=tmp_path)
    assert again.returncode == 0 and again.stdout.count("finished already") == 2
    assert len(summaries(tmp_path)) == 3
    done = python("run.py", *words, "run_dir=x", folder=tmp_path)
    assert done.returncode == 1 and "run_dir=x: a multirun" in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("optim.epochs=1,2", "a longer run continues the shorter one"),
        ("mc.samples=0,3", "its values do not distinguish runs"),
        ("threads=1,2", "its values do not distinguish runs"),
        ("runs_root=r,s", "a sweep over folders"),
        ("run_dir=r,s", "a sweep over folders"),
    ],
)
def test_a_sweep_over_options_outside_the_identity_is_rejected(word, why, tmp_path):
    done = python("run.py", "-m", *TINY, word, folder=tmp_path)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and not list(tmp_path.iterdir())
    assert done.stderr.startswith(f"error: {word.split('=')[0]}: {why}")


@pytest.mark.slow
def test_user_files_can_be_swept(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    words = ("-m", "task=reviews", "task.path=a.csv,b.csv", "runs_root='~/my'", "launcher=joblib", "mc.samples=0")
    done = python("run.py", *words, folder=tmp_path)
    assert done.returncode == 1 and "2 of the sweep's runs failed" in done.stderr  # there are no such files
    assert [entry.name for entry in tmp_path.iterdir()] == ["home"]  # the sweep's notes too


@pytest.mark.slow
def test_files_of_an_earlier_sweep_in_the_folder_are_removed(tmp_path):
    write_texts(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / launch.STOP_FILE).touch()
    (tmp_path / "here" / "failed_7.json").write_text("{}")
    words = ("-m", *TINY, "model=glob(non*)", "launcher=joblib", "hydra.sweep.dir=here", "mc.samples=0")
    done = python("run.py", *words, folder=tmp_path)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
    assert len(summaries(tmp_path)) == 1


def test_a_sweep_that_cannot_start_exits(monkeypatch, tmp_path):
    """Hydra would turn the exception into a warning and start every run."""
    monkeypatch.setattr(launch.SweepCallback, "folder", None)
    monkeypatch.setattr(launch, "non_identity_key", lambda _: 1 / 0)
    made = OmegaConf.create({"run_dir": None, "hydra": {"sweep": {"dir": str(tmp_path)}}})
    with pytest.raises(SystemExit, match=r"(?s)Traceback.*ZeroDivisionError"):
        launch.SweepCallback().on_multirun_start(made)


NO_WORDS = "sweep=sentiment_grid model=variational_untied_noemb"


@pytest.mark.slow
@pytest.mark.parametrize("words", ["sweep=sentiment_grid model=naive", "sweep=small_moon model=moon,none", NO_WORDS])
def test_a_grid_of_rates_that_the_model_lacks_is_rejected(words, tmp_path):
    """With p_U, naive dropout would be another model under the same name."""
    done = python("run.py", *words.split(), "progress=false", folder=tmp_path)
    assert done.returncode == 1 and not list(tmp_path.iterdir())
    assert re.search(r"^error: sweep=\w+ varies model.p_[UcE], which model=\w+ does not have", done.stderr)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("launcher", ["joblib", "slurm"])
def test_a_missing_plugin_is_named_with_the_pip_command(launcher, monkeypatch):
    launch.require_plugin([f"launcher={launcher}"])  # both are installed here
    assert not launch.is_installed("hydra_plugins.nothing") and not launch.is_installed("no_such_package.nothing")
    monkeypatch.setattr(launch, "is_installed", lambda module: False)
    launch.require_plugin(["launcher=local"])
    with pytest.raises(UserError, match=r"pip install -c constraints\.txt hydra-.*-launcher$") as caught:
        launch.require_plugin(["seed=1,2", f"launcher={launcher}"])
    assert str(caught.value).startswith(f"launcher={launcher} needs hydra-")
    # without this line in the file it would run locally, silently
    assert "mode: MULTIRUN" in (CONFIGS / "launcher" / f"{launcher}.yaml").read_text()


def test_a_job_that_slurm_rejected_is_reported_as_rejected():
    rejected = RuntimeError("\nsbatch: error: invalid partition specified: gpu\nsbatch: error: job refused")
    assert failures.crash_message(rejected).startswith("Slurm rejected the job: sbatch: error: invalid partition")
    assert failures.crash_message(RuntimeError("Killed")).startswith("a job ended without an error message (Killed)")


def hydra(launcher, number=0, n_jobs=0):
    keys = {"n_jobs": n_jobs} if launcher == "joblib" else {}
    return SimpleNamespace(launcher=OmegaConf.create(keys), job=SimpleNamespace(num=number))


def test_threads_are_divided(tmp_path, monkeypatch):
    made = compose.RunConfig()
    monkeypatch.setattr(torch, "set_num_threads", lambda count: taken.append(count))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(launch, "available_cores", lambda: 8)
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "3")
    cases = {("basic", 0): 3, ("joblib", 0): 1, ("joblib", 2): 4, ("joblib", 16): 1, ("joblib", -1): 1}
    for (launcher, n_jobs), threads in [*cases.items(), (("submitit_slurm", 0), 3)]:
        taken = []
        with launch.assign_resources(made, hydra(launcher, n_jobs=n_jobs), tmp_path):
            assert taken == [threads] * bool(threads), (launcher, n_jobs)
    taken = []
    with launch.assign_resources(compose.RunConfig(threads=5), hydra("joblib"), tmp_path):
        assert taken == []  # which the run takes itself
    monkeypatch.delenv("SLURM_CPUS_PER_TASK")
    with launch.assign_resources(made, hydra("basic"), tmp_path):
        assert taken == []  # torch's own choice


def test_one_gpu_each(tmp_path, monkeypatch):
    """The process takes a GPU; the config, which later evaluations repeat elsewhere, does not name it."""
    taken = []
    for name, fake in {"set_device": taken.append, "device_count": lambda: 2, "is_available": lambda: False}.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    monkeypatch.setattr(launch, "available_cores", lambda: 7)
    assert launch.max_parallel_runs("auto") == 7  # a driver that torch cannot use
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert launch.max_parallel_runs("auto") == 2
    with launch.assign_resources(compose.RunConfig(), hydra("joblib", 0), tmp_path):
        with launch.assign_resources(compose.RunConfig(device="cuda"), hydra("joblib", 1), tmp_path):
            assert taken == [0, 1]
        third, fourth = (
            launch.assign_resources(compose.RunConfig(), hydra("joblib", number), tmp_path) for number in (2, 3)
        )
        with third, fourth:
            assert taken == [0, 1, 1, 1]  # the second has ended; then all are taken: 3 modulo 2
    for given, launcher in itertools.product(("cpu", "cuda:1"), ("joblib", "basic")):
        with launch.assign_resources(compose.RunConfig(device=given), hydra(launcher), tmp_path):
            assert len(taken) == 4
    with launch.assign_resources(compose.RunConfig(), hydra("submitit_slurm"), tmp_path):
        assert len(taken) == 4  # Slurm hands out its own GPUs


@pytest.mark.slow
def test_a_bug_leaves_its_traceback(tmp_path):
    made = compose.compose([f"runs_root={tmp_path}"])
    try:
        raise ZeroDivisionError("fault")
    except ZeroDivisionError as error:
        failure = failures.record_failure(error, made, [])
    assert failure.last_lines[-1] == "ZeroDivisionError: fault"
    assert "Traceback" in (compose.run_dir(made) / "error.txt").read_text()


def test_a_killed_job_is_explained(tmp_path):
    class TerminatedWorkerError(Exception):
        __module__ = "joblib.externals.loky"

    with pytest.raises(Exception, match="a job ended without") as caught, launch.report_failures():
        launch.SweepCallback.folder = tmp_path
        raise TerminatedWorkerError("a worker was killed")
    assert "start the same command again" in str(caught.value)


def test_submitits_signals_save_and_requeue():
    """TERM is let pass and training continues; USR2 ends the job through submitit's handler, which requeues it."""
    heard = []

    def requeue(signum, frame):
        heard.append(signum)
        os.kill(os.getpid(), signal.SIGUSR2)  # Slurm may send a signal twice, ...
        subprocess.run(["sh", "-c", "kill -USR2 $$"], check=True)  # ... and to every process of the job
        raise SystemExit(-1)

    kept = {signum: signal.getsignal(signum) for signum in SIGNALS}
    try:
        signal.signal(signal.SIGTERM, lambda signum, frame: heard.append(signum))
        signal.signal(signal.SIGUSR2, requeue)
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGTERM)
            interrupts.stop("saved")
            assert heard == [signal.SIGTERM] and interrupts.signum is None
            os.kill(os.getpid(), signal.SIGUSR2)
            with pytest.raises(SystemExit):
                interrupts.stop("saved")
        os.kill(os.getpid(), signal.SIGUSR2)  # while the process is ending
        assert heard == [signal.SIGTERM, signal.SIGUSR2]
        with pytest.raises(RunStopped), Interrupts() as interrupts:
            interrupts.previous[signal.SIGUSR1] = signal.SIG_DFL  # no process handles it
            os.kill(os.getpid(), signal.SIGUSR1)
            interrupts.stop("saved")
    finally:
        for signum, handler in kept.items():
            signal.signal(signum, handler)


def test_slurm_keys_are_documented_and_timeouts_requeue():
    text = (CONFIGS / "launcher" / "slurm.yaml").read_text()
    for key in ("partition", "timeout_min", "mem_gb", "cpus_per_task", "gpus_per_node"):
        line = next(line for line in text.splitlines() if line.strip().startswith(f"{key}:"))
        assert "#" in line
    assert int(text.split("max_num_timeout:")[1].split()[0]) >= 1
