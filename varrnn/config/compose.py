"""From words on the command line to a `Config`, and from a `Config` to a run's folder and back."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from varrnn import fileio
from varrnn.config import schema
from varrnn.config.schema import CHOICES, HORIZON, NOT_IDENTITY, Config, effective, leaves
from varrnn.config.validation import check, check_names, nearest
from varrnn.errors import UserError
from varrnn.fileio import PROJECT_ROOT

CONFIGS = PROJECT_ROOT / "configs"
NOT_COMPOSED = (HydraException, OmegaConfBaseException, UserError)  # e.g. a choice from another --config-dir
LONGEST = 200  # bytes of a folder's name; file systems stop at 255


def register() -> None:
    """Give the schema to Hydra, so that a wrong key or type is refused while composing; tuned files use `of_cell`."""
    OmegaConf.register_new_resolver("of_cell", lambda values, cell: values[cell], replace=True)
    OmegaConf.register_new_resolver("expanduser", os.path.expanduser, replace=True)
    store = ConfigStore.instance()
    store.store(name="schema", node=Config)
    for name, node in schema.TASKS.items():
        store.store(group="schema", name=name, node=node)


@contextmanager
def _hydra() -> Iterator[None]:
    """Hydra as run.py started it, or one of our own where there is none."""
    if GlobalHydra.instance().is_initialized():
        yield
    else:
        register()
        with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
            yield


def compose(overrides: Sequence[str]) -> Config:
    """The config that `python run.py OVERRIDES` would run."""
    return to_config(composed(overrides))


def composed(overrides: Sequence[str]) -> DictConfig:
    """Hydra's part of it."""
    with _hydra():
        return hydra.compose("config", list(overrides))


def to_config(composed: DictConfig, chosen: Mapping[str, str] | None = None) -> Config:
    """Dataclasses from here on: config stops at the door. `chosen` are the group choices, where Hydra tells them."""
    config = OmegaConf.to_object(composed)
    assert isinstance(config, Config)
    known = leaves(config)
    for key in leaves(OmegaConf.to_container(composed)):  # type: ignore[arg-type]
        if key not in known:  # added with +key=
            raise UserError(f"{key}: there is no such option{nearest(key, list(known))}")
    check(config)
    check_names(choices(config), chosen or {})
    return config


def of_a_folder(config: Config) -> dict[str, Any]:
    """What all starts in one folder have in common: a run's identity without its horizon."""
    return {key: value for key, value in identity(config).items() if key != HORIZON}


def identity(config: Config | dict[str, Any]) -> dict[str, Any]:
    """What makes a run this run: every option that has an effect, but where, and how comfortably, it is carried out."""
    return effective(compared(leaves(config)))


def compared(options: Mapping[str, Any]) -> dict[str, Any]:
    """Without where and how a run is carried out."""
    return {
        key: value
        for key, value in options.items()
        if not any(key == skip or key.startswith(skip + ".") for skip in NOT_IDENTITY)
    }


def choices(config: Config) -> dict[str, str]:
    """The group choices that name a run's folder."""
    return {
        "task": config.task.name,
        "size": config.size.name,
        "model": config.model.name,
        "cell": config.cell,
        "protocol": config.protocol,
    }


def defaults(chosen: Mapping[str, str]) -> dict[str, Any]:
    """What the group choices alone compose to, every option that may have an effect included."""
    return compared(leaves(compose([f"{group}={name}" for group, name in chosen.items()])))


def diff(config: Config) -> dict[str, Any]:
    """The sorted options that differ from composing the group choices alone."""
    base = defaults(choices(config))
    return {key: value for key, value in identity(config).items() if key != "seed" and base.get(key) != value}


def run_dir(config: Config) -> Path:
    """`<runs_root>/<task>/<size>/<model>/<cell>/<protocol>/<diff|default>/seed_N`, or what `run_dir` says.

    The horizon is no part of it: no learning rate looks ahead, so a longer run is a shorter one that went on.
    """
    if config.run_dir is not None:
        return Path(config.run_dir).expanduser()
    differs = {key: value for key, value in diff(config).items() if key != HORIZON}
    return Path(config.runs_root).expanduser() / relative_dir(choices(config), differs, config.seed)


def as_file_name(text: str) -> str:
    """The text without slashes; a long one is cut and told apart by a hash."""
    name = text.replace("/", "%")
    if len(name.encode()) <= LONGEST:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{name.encode()[: LONGEST - 13].decode(errors='ignore')}~{digest}"


def named(differs: dict[str, Any]) -> str:
    """`model.p_W=0.15,model.p_y=0.15`"""
    return ",".join(f"{key}={value}" for key, value in sorted(differs.items()))


def relative_dir(chosen: dict[str, str], differs: dict[str, Any], seed: int) -> Path:
    """The folder of a run below runs_root; of its record below results/records."""
    name = as_file_name(named(differs)) or "default"
    return Path(*(chosen[group] for group in CHOICES), name, f"seed_{seed}")


def save(config: Config, file: Path) -> None:
    """Write config.yaml, all values resolved."""
    fileio.write_text(file, OmegaConf.to_yaml(asdict(config)), schema.OTHER_FOLDER)


def load_config(folder: str | Path, overrides: Sequence[str] = ()) -> Config:
    """The config of an existing run, with `mc.*` (and device, threads, progress) changed as asked."""
    file = Path(folder) / "config.yaml"
    if not file.is_file():
        raise UserError(f"{folder}: not a run's folder (no config.yaml in it)")
    made = OmegaConf.structured(Config)
    for override in overrides:
        key = override.split("=", 1)[0]
        if "=" not in override or not (key.startswith(("mc.", "logger.")) or key in ("device", "threads", "progress")):
            raise UserError(
                f"{override}: a finished run can only be given mc.*=, logger.*=, device=, threads= or progress="
            )
    try:
        saved = OmegaConf.load(file)
        made.task = OmegaConf.structured(_task_class(saved))
        asked = OmegaConf.merge(made, saved)
    except (OmegaConfBaseException, YAMLError, ValueError, TypeError) as error:
        first = str(error).strip().splitlines()[0]
        raise UserError(f"{file}: not the config of a run ({first}); remove it, or choose run_dir=") from error
    config = OmegaConf.to_object(OmegaConf.merge(asked, OmegaConf.from_dotlist(list(overrides))))
    assert isinstance(config, Config)
    check(config)
    return config


def _task_class(saved: Any) -> type[schema.Task]:
    """The task's dataclass: the one whose options are those that were saved."""
    if not isinstance(saved, DictConfig) or not isinstance(saved.get("task"), DictConfig):
        raise ValueError("no task in it")
    names = {str(name) for name in saved.task}
    fits = [task for task in schema.TASKS.values() if names <= {field.name for field in fields(task)}]
    if not fits:
        raise ValueError(f"no task has the options {', '.join(sorted(names))}")
    return fits[0]
