"""The runs of a sweep: each gets its share of the machine, and a failed run does not end the others.

Hydra's launchers start the jobs, in one process, in several, or through Slurm; this module contains what a job does.
torch is imported when a run starts, so that mistakes on the command line are reported fast.
"""

import fcntl
import gc
import importlib.util
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from varrnn import fileio
from varrnn.cli.errors import USER_ERRORS, format_error
from varrnn.config import compose
from varrnn.config.schema import OTHER_FOLDER, RunConfig
from varrnn.errors import UserError
from varrnn.sweeps import failures
from varrnn.sweeps.plan import non_identity_key, num_points, unsupported_rate
from varrnn.training.signals import RunStopped

STOP_FILE = "stopped"  # a file in the sweep's folder
STOPPED = "\nstopped; checkpoints are kept, the same command resumes (jobs in Slurm's queue keep running)"


class SweepCallback(Callback):
    """A Hydra callback in the process that starts a sweep (set in configs/config.yaml)."""

    folder: Path | None = None  # of the current sweep

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Exit if the sweep cannot start: Hydra would turn an exception of a callback into a warning and continue."""
        SweepCallback.folder = Path(config.hydra.sweep.dir)
        try:
            self.validate(config, SweepCallback.folder)
        except USER_ERRORS as error:
            sys.exit(f"error: {format_error(error)}")
        except Exception:
            sys.exit(traceback.format_exc())

    def validate(self, config: DictConfig, folder: Path) -> None:
        """Reject invalid sweeps before anything is started, and set the number of jobs for this machine."""
        if config.run_dir is not None:
            raise UserError(f"run_dir={config.run_dir}: a multirun has several runs; set runs_root= instead")
        if wrong := non_identity_key(config) or unsupported_rate(config):
            raise UserError(wrong)
        print_notes(config, config.hydra.overrides.task)
        # files of an earlier sweep, if hydra.sweep.dir is given
        left = [folder / STOP_FILE, *folder.glob("failed_*.json")]
        for file in left:
            file.unlink(missing_ok=True)
        wanted = config.hydra.launcher.get("n_jobs")
        if wanted is None:
            return
        with read_write(config.hydra), open_dict(config.hydra):  # a worker without a job would not survive Ctrl-C
            jobs = min(wanted or max_parallel_runs(config.device), num_points(config))
            config.hydra.launcher.n_jobs = jobs
        if jobs != 1:
            signal.signal(signal.SIGINT, self.wait_for_jobs)

    @staticmethod
    def wait_for_jobs(*_: Any) -> None:
        """Ignore the first Ctrl-C here: the jobs get it too, save and end; joblib would kill them before that."""
        signal.signal(signal.SIGINT, signal.default_int_handler)  # the second one stops at once
        if SweepCallback.folder is not None:
            request_stop(SweepCallback.folder)


def print_notes(config: DictConfig, overrides: Sequence[str]) -> None:
    """Print which overrides also change a dropout rate that the model ties to theirs."""
    for line in compose.explain_tied_rates(config, overrides):
        print(f"note: {line}")


def request_stop(folder: Path) -> None:
    """Signal all processes of a sweep not to start further jobs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STOP_FILE).touch()


def stop_requested() -> bool:
    """Whether the sweep of this process was stopped."""
    return SweepCallback.folder is not None and (SweepCallback.folder / STOP_FILE).exists()


def max_parallel_runs(device: str) -> int:
    """The number of parallel runs on this machine: one per GPU, or one per core without a GPU."""
    return usable_gpus(device) or available_cores()


def usable_gpus(device: str) -> int:
    """The number of visible GPUs, including those that this build of torch cannot use."""
    import torch

    return torch.cuda.device_count() if device in ("auto", "cuda") and torch.cuda.is_available() else 0


def available_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(composed: DictConfig) -> None:
    """Execute a composed config: one run; in a sweep, an error of the run does not end the sweep."""
    hydra = HydraConfig.get()
    if hydra.mode == RunMode.MULTIRUN:
        run_job(composed)
    else:
        config = compose.to_config(composed, hydra.runtime.choices)
        print_notes(composed, hydra.overrides.task)
        from varrnn.training import run as training_run

        training_run.run(config)


def run_job(composed: DictConfig) -> None:
    """One run of a sweep. An error is recorded in the sweep's folder, and `report_failures` shows it."""
    hydra = HydraConfig.get()
    folder = Path(hydra.runtime.output_dir)
    parallel = shares_machine(hydra) and SweepCallback.folder is None  # each job is a separate process
    config = None
    try:
        if parallel:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if (folder / STOP_FILE).exists():
                return
        config = compose.to_config(composed, hydra.runtime.choices)
        from varrnn.training import run as training_run

        with assign_resources(config, hydra, folder):
            training_run.run(config)
    except KeyboardInterrupt as interrupt:
        if not parallel:
            raise
        print(interrupt, file=sys.stderr, flush=True)
        request_stop(folder)  # no exception here: joblib would kill the other jobs before they have saved
    except Exception as error:
        failure = failures.record_failure(error, config, hydra.overrides.task)
        print(f"failed: {failure.folder}: {failure.last_lines[-1]}", file=sys.stderr, flush=True)
        fileio.write_text(folder / f"failed_{hydra.job.num}.json", json.dumps(asdict(failure)), OTHER_FOLDER)
    finally:
        free_gpu_memory()
        if parallel:  # an idle worker must survive Ctrl-C, otherwise joblib kills the others while they save
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def free_gpu_memory() -> None:
    """Free the GPU memory of the last run, also of a failed one, before the next starts."""
    if "torch" not in sys.modules:
        return
    import torch

    if torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()


@contextmanager
def assign_resources(config: RunConfig, hydra: Any, folder: Path) -> Iterator[None]:
    """Give this process its share of cores and GPUs, so that parallel runs do not slow each other down.

    The config does not change: a later evaluation of the run may use other resources.
    """
    import torch

    parallel = shares_machine(hydra)
    if parallel:
        threads = max(1, available_cores() // num_workers(hydra.launcher.n_jobs, config.device))
    else:
        threads = int(os.environ.get("SLURM_CPUS_PER_TASK", 0))  # 0 outside a Slurm job
    if threads and not config.threads:
        torch.set_num_threads(threads)
    gpus = usable_gpus(config.device) if parallel else 0
    if gpus > 1:
        with acquire_gpu(gpus, folder, hydra.job.num) as gpu:
            torch.cuda.set_device(gpu)
            yield
    else:
        yield


def shares_machine(hydra: Any) -> bool:
    """Whether the launcher runs several jobs on this machine in parallel; such launchers (joblib) have n_jobs."""
    return hydra.launcher.get("n_jobs") is not None


def num_workers(n_jobs: int, device: str) -> int:
    """joblib's n_jobs as a number of processes: 0 means `max_parallel_runs`, negative values count down from all."""
    jobs = n_jobs or max_parallel_runs(device)
    return jobs if jobs > 0 else max(1, available_cores() + 1 + jobs)


@contextmanager
def acquire_gpu(gpus: int, folder: Path, number: int) -> Iterator[int]:
    """A GPU that no other job of this sweep uses, or the job's number modulo the number of GPUs if all are in use.

    File locks of the operating system mark GPUs in use, so that a killed job frees its GPU. The job's number alone
    would put two runs on one GPU as soon as runs take different times.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for gpu in range(gpus):
        with (folder / f"gpu_{gpu}.lock").open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            yield gpu
            return
    yield number % gpus


@contextmanager
def report_failures() -> Iterator[None]:
    """After a sweep, print the failed runs, their last lines and commands; the exit status is then not zero."""
    require_plugin(sys.argv[1:])
    SweepCallback.folder = None
    try:
        yield
        if stop_requested():
            raise KeyboardInterrupt
    except KeyboardInterrupt as interrupt:
        if SweepCallback.folder is not None and not isinstance(interrupt, RunStopped):  # RunStopped prints a message
            print(STOPPED, file=sys.stderr)
        raise
    except Exception as error:
        if stop_requested():  # a worker without a job has nothing to save
            print(STOPPED, file=sys.stderr)
            raise KeyboardInterrupt from error
        if SweepCallback.folder is None or not type(error).__module__.startswith(("submitit", "joblib", "concurrent")):
            raise
        failures.print_failures(failures.load_failures(SweepCallback.folder))
        raise UserError(failures.crash_message(error)) from error
    if SweepCallback.folder is not None:
        found = failures.load_failures(SweepCallback.folder)
        failures.print_failures(found)
        if found:
            sys.exit(1)


def require_plugin(words: Sequence[str]) -> None:
    """Name the missing package of a launcher, before Hydra reports a less helpful error."""
    for word in words:
        package = plugin_package(word.removeprefix("launcher=")) if word.startswith("launcher=") else None
        if package and not is_installed(f"hydra_plugins.{package.replace('-', '_')}"):
            raise UserError(f"{word} needs {package}: pip install -c constraints.txt {package}")


def plugin_package(launcher: str) -> str | None:
    """The package behind configs/launcher/LAUNCHER.yaml; None for Hydra's own launcher or an unknown name.

    Hydra's plugins follow one rule: the launchers submitit_slurm and submitit_local are in hydra-submitit-launcher.
    """
    file = compose.CONFIGS / "launcher" / f"{launcher}.yaml"
    if not file.is_file():
        return None
    content = OmegaConf.load(file)
    assert isinstance(content, DictConfig)
    plugin = content.defaults[0]["override /hydra/launcher"].split("_")[0]
    return None if plugin == "basic" else f"hydra-{plugin}-launcher"


def is_installed(module: str) -> bool:
    """Whether a module can be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False
