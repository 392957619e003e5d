"""Compose a `RunConfig` from overrides, and map between a `RunConfig` and a run's folder."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
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
from varrnn.config.identity import config_identity, identity_options
from varrnn.config.schema import CHOICE_GROUPS, EPOCHS_KEY, RunConfig, flatten
from varrnn.config.validation import check, check_names, suggest
from varrnn.errors import UserError
from varrnn.fileio import PROJECT_ROOT

CONFIGS = PROJECT_ROOT / "configs"
COMPOSE_ERRORS = (HydraException, OmegaConfBaseException, UserError)  # e.g. a choice from another --config-dir
USER_FILES = ("task.train", "task.valid", "task.test", "task.csv")  # options that name the user's files
MAX_FILE_NAME = 40  # characters of such a file in the name of a folder
MAX_NAME_BYTES = 200  # bytes of a folder's name; file systems stop at 255


def register_schema() -> None:
    """Register the schema with Hydra, which then rejects wrong keys and types; tuned files use `of_cell`."""
    OmegaConf.register_new_resolver("of_cell", value_of_cell, replace=True)
    OmegaConf.register_new_resolver("expanduser", os.path.expanduser, replace=True)
    store = ConfigStore.instance()
    store.store(name="schema", node=RunConfig)
    for name, node in schema.TASKS.items():
        store.store(group="schema", name=name, node=node)


def value_of_cell(values: Mapping[str, Any], cell: str) -> Any:
    """The value for this cell; any value for a cell that does not exist, which the validation then rejects by name."""
    return values.get(cell, next(iter(values.values())))


@contextmanager
def _hydra() -> Iterator[None]:
    """The Hydra instance that run.py started, or a new one if Hydra was not started."""
    if GlobalHydra.instance().is_initialized():
        yield
    else:
        register_schema()
        with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
            yield


def compose(overrides: Sequence[str]) -> RunConfig:
    """The config that `python run.py OVERRIDES` would run."""
    return to_config(compose_raw(overrides))


def compose_raw(overrides: Sequence[str]) -> DictConfig:
    """The composed config before conversion to dataclasses."""
    with _hydra():
        return hydra.compose("config", list(overrides))


def tied_rates(composed: DictConfig) -> dict[str, str]:
    """`{"model.p_E": "model.p_U"}`: the dropout rates that are tied to another one (`p_E: ${.p_U}` in the YAML)."""
    values = OmegaConf.to_container(composed.model, resolve=False)
    assert isinstance(values, dict)
    found = {name: re.fullmatch(r"\$\{(?:\.|model\.)(\w+)\}", str(values[name])) for name in schema.DROP_RATES}
    return {f"model.{name}": f"model.{tie[1]}" for name, tie in found.items() if tie}


def explain_tied_rates(composed: DictConfig, overrides: Sequence[str]) -> list[str]:
    """One line for every override that also changes a tied dropout rate."""
    given = dict(word.split("=", 1) for word in overrides if "=" in word)
    return [
        f"{source}={given[source]} also sets {key}={given[source]}, which model={composed.model.name} ties to it; "
        f"give {key}= to set it separately"
        for key, source in tied_rates(composed).items()
        if source in given
    ]


def to_config(raw: DictConfig, chosen: Mapping[str, str] | None = None) -> RunConfig:
    """Convert to dataclasses and validate. `chosen` are the group choices, if Hydra was started by run.py."""
    config = OmegaConf.to_object(raw)
    assert isinstance(config, RunConfig)
    known = flatten(config)
    for key in flatten(OmegaConf.to_container(raw)):  # type: ignore[arg-type]
        if key not in known:  # added with +key=
            raise UserError(f"{key}: there is no such option{suggest(key, list(known))}; see python run.py --help")
    check(config)
    check_names(choices(config), chosen or {})
    return config


def choices(config: RunConfig) -> dict[str, str]:
    """The group choices that name a run's folder."""
    return {
        "task": config.task.name,
        "size": config.size.name,
        "model": config.model.name,
        "cell": config.cell,
        "protocol": config.protocol,
    }


def defaults(chosen: Mapping[str, str]) -> dict[str, Any]:
    """The options that the group choices alone compose to, without those that have no effect."""
    return identity_options(flatten(compose([f"{group}={name}" for group, name in chosen.items()])))


def diff(config: RunConfig) -> dict[str, Any]:
    """The sorted options that differ from composing the group choices alone."""
    base = defaults(choices(config))
    return {key: value for key, value in config_identity(config).items() if key != "seed" and base.get(key) != value}


def run_dir(config: RunConfig) -> Path:
    """`<runs_root>/<task>/<size>/<model>/<cell>/<protocol>/<diff|default>/seed_N`, or `run_dir` if it is set.

    The number of epochs is not part of it: no learning rate schedule depends on it, so a longer run continues a
    shorter one.
    """
    if config.run_dir is not None:
        return Path(config.run_dir).expanduser()
    differs = {key: value for key, value in diff(config).items() if key != EPOCHS_KEY}
    root = Path(config.runs_root).expanduser()
    folder = root / relative_dir(choices(config), short_paths(differs), config.seed)
    early = root / relative_dir(choices(config), differs, config.seed)
    return early if early.is_dir() and not folder.is_dir() else folder  # early versions put whole paths into the name


def short_paths(differs: dict[str, Any]) -> dict[str, Any]:
    """The user's files as the first file's name and a hash of all paths; config.yaml has the whole paths."""
    files = {key: str(value) for key, value in sorted(differs.items()) if key in USER_FILES and value is not None}
    if not files:
        return differs
    rest = {key: value for key, value in differs.items() if key not in files}
    first = next(key for key in USER_FILES if key in files)
    name = f"{Path(files[first]).name[:MAX_FILE_NAME]}~{short_hash(format_overrides(files))}"
    return rest | {first.removeprefix("task."): name}


def safe_file_name(text: str) -> str:
    """The text without slashes; a long one is cut and gets a hash."""
    name = text.replace("/", "%")
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    return f"{name.encode()[: MAX_NAME_BYTES - 13].decode(errors='ignore')}~{short_hash(name, 12)}"


def short_hash(text: str, length: int = 8) -> str:
    """The first hexadecimal digits of a hash, to distinguish long names."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def format_overrides(differs: dict[str, Any]) -> str:
    """`model.p_W=0.15,model.p_y=0.15`"""
    return ",".join(f"{key}={value}" for key, value in sorted(differs.items()))


def relative_dir(chosen: dict[str, str], differs: dict[str, Any], seed: int) -> Path:
    """The folder of a run below runs_root, or of its record below results/records."""
    name = safe_file_name(format_overrides(differs)) or "default"
    return Path(*(chosen[group] for group in CHOICE_GROUPS), name, f"seed_{seed}")


def save_config(config: RunConfig, file: Path) -> None:
    """Write config.yaml, all values resolved."""
    fileio.write_text(file, OmegaConf.to_yaml(asdict(config)), schema.OTHER_FOLDER)


def load_config(folder: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The config of an existing run, with overrides of `mc.*`, logger, device, threads and progress."""
    file = Path(folder) / "config.yaml"
    if not file.is_file():
        raise UserError(f"{folder}: not a run's folder (it has no config.yaml); give a folder that ends in seed_N")
    made = OmegaConf.structured(RunConfig)
    for override in overrides:
        key = override.split("=", 1)[0]
        if "=" not in override or not (key.startswith(("mc.", "logger.")) or key in ("device", "threads", "progress")):
            raise UserError(
                f"{override}: for a finished run only mc.*=, logger.*=, device=, threads= and progress= can change; "
                "leave it out"
            )
    try:
        saved = OmegaConf.load(file)
        made.task = OmegaConf.structured(task_class(saved))
        if saved.task.get("headline") in schema.EARLIER_HEADLINE:
            saved.task.headline = "exact"
        merged = OmegaConf.merge(made, saved)
    except (OmegaConfBaseException, YAMLError, ValueError, TypeError) as error:
        first = str(error).strip().splitlines()[0]
        raise UserError(f"{file}: not the config of a run ({first}); remove it, or choose run_dir=") from error
    try:
        config = OmegaConf.to_object(OmegaConf.merge(merged, OmegaConf.from_dotlist(list(overrides))))
    except OmegaConfBaseException as error:
        raise UserError(f"{' '.join(overrides)}: {str(error).strip().splitlines()[0]}") from error
    assert isinstance(config, RunConfig)
    check(config)
    return config


def task_class(saved: Any) -> type[schema.TaskConfig]:
    """The dataclass of the task that was saved."""
    if not isinstance(saved, DictConfig) or not isinstance(saved.get("task"), DictConfig):
        raise ValueError("no task in it")
    kind = schema.task_kind(saved.task)
    if kind not in schema.TASKS:
        raise ValueError(f"task.kind is {kind!r}, allowed are {', '.join(schema.TASKS)}")
    return schema.TASKS[kind]
